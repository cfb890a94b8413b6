"""The point of it all: the revoke of one partition is delayed for long, and every other one goes on at full speed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

import pytest
from kafka_help import Member, drive, each_once, tps

from filled_topics import fill
from instride.testing import LocalKafka

Topic = Callable[..., str]
Join = Callable[..., Member]

HOLD_SECONDS: Final = 20.0
PARTITIONS: Final = 6


@pytest.mark.requirement("KIP-983/1")
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_while_one_partition_is_delayed_for_20_s_the_others_records_go_on_arriving(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(PARTITIONS)
    written = fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 10))
    a = join("a", topic)
    drive(a, until=lambda: len(a.records) == 10 * PARTITIONS)
    a.holding = set(tps(topic, *range(PARTITIONS)))
    b = join("b", topic)
    drive(a, b, until=lambda: a.revocation_requested)
    delayed = a.revocation_requested[0]
    a.holding = {delayed}
    drive(a, b, until=lambda: len(b.owned) == PARTITIONS // 2 - 1)

    stop = Event()
    rounds: list[list[tuple[int, int]]] = []

    def produce() -> None:
        while not stop.is_set():
            start = 10 + 2 * len(rounds)
            rounds.append(fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 2), start=start))
            stop.wait(0.05)

    producer = Thread(target=produce)
    producer.start()
    before = Counter(partition for partition, _ in a.seen + b.seen)
    end = time.monotonic() + HOLD_SECONDS
    drive(a, b, until=lambda: time.monotonic() >= end)
    stop.set()
    producer.join()
    written += [each for batch in rounds for each in batch]
    others = 2 * len(rounds) * (PARTITIONS - 1)
    drive(a, b, until=lambda: len(a.records) + len(b.records) == 10 * PARTITIONS + others)
    during = Counter(partition for partition, _ in a.seen + b.seen) - before

    assert len(rounds) >= 20, "the producer was at work all the while"
    assert during == {partition: 2 * len(rounds) for partition in range(PARTITIONS) if partition != delayed.partition}
    assert delayed in a.owned
    assert a.consumer.delay_revoke([delayed]), "it is still on the list"

    a.holding.clear()
    drive(a, b, until=lambda: len(a.records) + len(b.records) == len(written))
    each_once(written, a, b)
    assert delayed in b.owned
    assert a.lost == b.lost == []
