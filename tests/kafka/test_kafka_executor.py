"""The README's loop on a real Kafka (rule 16): what waits in a queue holds no partition and no end of a program."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from kafka_help import PATIENCE

from filled_topics import fill
from instride import Consumer, ConsumerRecord, PartitionExecutor, TopicPartition
from instride.testing import LocalKafka

PARTITIONS, EACH, WORKERS = 8, 1250, 4


class Loop:
    """The loop of the README, one turn at a time. named: in how many rounds each partition was to be revoked."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.consumer = consumer
        self.handled: list[tuple[int, int]] = []
        self.began = 0
        self.named = Counter[TopicPartition]()
        self.delayed = Counter[TopicPartition]()
        self._gate = threading.Event()
        self._lock = threading.Lock()
        self.work = PartitionExecutor(self._handle, max_workers=WORKERS, max_records=20_000)
        consumer.subscribe([topic])

    def _handle(self, record: ConsumerRecord) -> None:
        with self._lock:
            self.began += 1
        assert self._gate.wait(2 * PATIENCE)
        with self._lock:
            self.handled.append((record.partition, record.offset))

    def release(self) -> None:
        self._gate.set()

    def turn(self) -> None:
        consumer, work = self.consumer, self.work
        work.submit(consumer.poll(timeout=0.02), lost=consumer.lost_partitions())
        assert consumer.lost_partitions() == frozenset()
        consumer.commit_async(work.committable())
        requested = consumer.to_be_revoked_partitions()
        delayed = work.hold(requested)
        self.named.update(requested)
        self.delayed.update(delayed)
        assert consumer.delay_revoke(delayed)
        consumer.pause(*work.full())
        consumer.resume(*work.ready())
        work.check()

    def end(self) -> list[ConsumerRecord]:
        """What its `finally` does, and what is unfinished."""
        unfinished = self.work.drain(timeout=PATIENCE)
        self.consumer.commit(self.work.committable())
        return unfinished


def until(done: Callable[[], object], *loops: Loop) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "it did not come to be"
        for loop in loops:
            loop.turn()


@pytest.mark.rule("16")
def test_queued_records_move_at_the_next_poll_and_ctrl_c_waits_for_started_ones(
    kafka: LocalKafka, kafka_topic: Callable[..., str], open_consumer: Callable[..., Consumer], group: str
) -> None:
    topic = kafka_topic(PARTITIONS)
    written = fill(kafka, topic, dict.fromkeys(range(PARTITIONS), EACH))
    a = Loop(open_consumer(group_id=group, client_id="a"), topic)
    with a.work:
        until(lambda: a.work.queued() == len(written) - WORKERS, a)
        b = Loop(open_consumer(group_id=group, client_id="b"), topic)
        with b.work:
            until(lambda: len(b.consumer.assignment()) >= PARTITIONS // 2 - 1, a, b)
            moved = b.consumer.assignment()
            assert {partition: a.named[partition] for partition in moved} == dict.fromkeys(moved, 1), "at the next poll"
            assert not moved & a.delayed.keys()
            assert (a.began, a.handled) == (WORKERS, []), "no handler has ended meanwhile"

            a.release()
            assert a.end() == []
            assert a.began == len(a.handled) == WORKERS, "nothing else was awaited"
            a.consumer.close()
            b.release()
            until(lambda: len(a.handled) + len(b.handled) == len(written), b)
            assert b.end() == []
    assert sorted(a.handled + b.handled) == sorted(written)
