"""Ranges of offsets instead of records: every offset is handed out to exactly one member, delayed ones are kept."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from kafka_help import PATIENCE, QUICK, tps

from filled_topics import fill
from instride import OffsetLedger, OffsetRange, RangeConsumer, TopicPartition
from instride.testing import LocalKafka

Topic = Callable[..., str]


class RangeMember:
    """A member whose work on a range ends when the test says so."""

    def __init__(self, consumer: RangeConsumer) -> None:
        self.consumer = consumer
        self.ledger = OffsetLedger()
        self.ranges: list[OffsetRange] = []
        self.revocation_requested: set[TopicPartition] = set()
        self.slow: set[TopicPartition] = set()
        self._under_way: list[OffsetRange] = []

    def turn(self) -> None:
        consumer, ledger = self.consumer, self.ledger
        found = ledger.track(consumer.poll(timeout=0.02, max_offsets=20))
        self.ranges += found
        assert consumer.lost_partitions() == frozenset()
        self._under_way += found
        for each in [each for each in self._under_way if each.topic_partition not in self.slow]:
            self._under_way.remove(each)
            ledger.done(each)
        consumer.commit_async(ledger.committable())
        self.revocation_requested |= consumer.to_be_revoked_partitions()
        assert consumer.delay_revoke(ledger.uncommitted(consumer.to_be_revoked_partitions()))


@pytest.fixture
def join_ranges(kafka: LocalKafka, group: str) -> Iterator[Callable[..., RangeMember]]:
    with ExitStack() as stack:

        def build(name: str, topic: str) -> RangeMember:
            consumer = RangeConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group, client_id=name, **QUICK)
            stack.callback(consumer.close, timeout=5.0)
            consumer.subscribe([topic])
            return RangeMember(consumer)

        yield build


def work(*members: RangeMember, until: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline, [each.ranges[-5:] for each in members]
        for member in members:
            member.turn()


def offsets(*members: RangeMember) -> Counter[tuple[int, int]]:
    """How often each offset was handed out."""
    return Counter(
        (each.partition, offset)
        for member in members
        for each in member.ranges
        for offset in range(each.start, each.end)
    )


def test_ranges_are_handed_over_exactly_once_with_a_delay(
    kafka: LocalKafka, kafka_topic: Topic, join_ranges: Callable[..., RangeMember]
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 100))
    a = join_ranges("a", topic)
    a.slow = set(tps(topic, 0, 1, 2, 3))
    work(a, until=lambda: offsets(a).total() == 400)

    b = join_ranges("b", topic)
    work(a, b, until=lambda: a.revocation_requested)
    a.slow = set(a.revocation_requested)
    written += fill(kafka, topic, dict.fromkeys(range(4), 50), start=100)
    work(a, b, until=lambda: offsets(a).total() == 500)
    assert b.ranges == []

    a.slow.clear()
    work(a, b, until=lambda: offsets(a, b).total() == 600)
    assert offsets(a, b) == Counter(written)
    assert len(b.consumer.assignment()) == 2
