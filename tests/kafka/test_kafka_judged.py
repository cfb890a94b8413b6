"""What a recorded history on a real Kafka is judged by, where nothing may be measured in seconds (L1, L2, L3, L5): what
is right is judged and kept, and a client that holds something up is found, by the number of what it breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from kafka_help import Member, drive, tps

from filled_topics import fill, told_of_writes
from instride import Consumer, OffsetAndMetadata, TopicPartition
from instride._core.network import fetcher
from instride._core.network.assigned_partitions import AssignedPartition, AssignedPartitions
from instride._core.network.assignment import MemberAssignment
from instride._core.network.fetcher import Capacity, capacity
from instride.config import ConsumerConfig
from instride.errors import KafkaError
from instride.testing import LocalKafka, Recorder

Open = Callable[..., Consumer]
Topic = Callable[..., str]
Join = Callable[..., Member]

PARTITIONS = 4
SAFETY = " ".join(f"S{number}" for number in range(1, 12))
BEATS = 50
"""A few more than the checker's forty turns."""


def beats(member: Member) -> int:
    """How many heartbeats of it had a response."""
    found = member.consumer.metrics().items()
    return int(next(value for each, value in found if each.name == "heartbeat-total"))


class Lived:
    """Counts a member's polls before which heartbeats of it had a response: several in one poll's time are one beat, as
    for the checker (`folds.turns`).
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        self._responded = beats(member)
        self._count = 0

    def count(self) -> int:
        """To be asked once between two polls."""
        responded = beats(self._member)
        self._count += responded > self._responded
        self._responded = responded
        return self._count


def live_on(*members: Member, until_beats: int) -> None:
    """The members poll until each has had so many beats from now on."""
    lives = [Lived(each) for each in members]
    drive(*members, until=lambda: min(each.count() for each in lives) >= until_beats, timeout=120.0)


@pytest.mark.history("calm", judges=f"{SAFETY} L1 L2 L3 L4")
def test_a_delay_is_judged_by_turns(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(PARTITIONS)
    fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 10))
    a = join("a", topic)
    drive(a, until=lambda: len(a.records) == 10 * PARTITIONS)
    a.holding = set(tps(topic, *range(PARTITIONS)))
    b = join("b", topic)
    drive(a, b, until=lambda: len(a.revocation_requested) == PARTITIONS // 2)
    for start in range(10, 20):
        fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 1), start=start)
        live_on(a, b, until_beats=5)
    assert len(a.revocation_requested) == PARTITIONS // 2
    a.holding.clear()
    drive(a, b, until=lambda: len(b.owned) == PARTITIONS // 2)


@pytest.mark.history("slow", judges="L3 L5")
def test_a_commit_that_is_refused_stops_nothing(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    a = join("a", topic, commits=False)
    drive(a, until=lambda: len(a.records) == 10)
    refused(a, topic)
    fill(kafka, topic, {0: 10}, start=10)
    drive(a, until=lambda: len(a.records) == 20)


def refused(member: Member, topic: str) -> None:
    """The broker takes no metadata as large as this."""
    with pytest.raises(KafkaError, match="error code 12"):
        member.consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset=10, metadata="x" * 10_000)})


class Own:
    """``own("a", topic)``: a member whose history is the test's own to judge."""

    def __init__(self, open_consumer: Open, group: str, recorder: Recorder) -> None:
        self.recorder = recorder
        self._open = partial(open_consumer, group_id=group)

    def __call__(self, name: str, topic: str) -> Member:
        consumer = self._open(client_id=name)
        self.recorder.watch(consumer, name, finishes="delivered")
        consumer.subscribe([topic])
        return Member(name, consumer)


@pytest.fixture
def own(open_consumer: Open, group: str, tmp_path: Path) -> Iterator[Own]:
    with Recorder(tmp_path / "own.jsonl", source="bugs", kind="slow", reset="earliest") as recorder:
        yield Own(open_consumer, group, recorder)


def found(own: Own, *, drained: bool = False) -> set[str]:
    own.recorder.end(drained=drained)
    return {each.number for each in own.recorder.check()}


def write(own: Own, kafka: LocalKafka, topic: str, count: int, *, start: int) -> None:
    with told_of_writes(own.recorder.produced):
        fill(kafka, topic, dict.fromkeys(range(PARTITIONS), count), start=start)


def write_past_what_is_in_flight(own: Own, kafka: LocalKafka, topic: str, *members: Member) -> None:
    """A fetch that waits at the broker already may still bring the first of these records, but not the last."""
    for start in (10, 11):
        write(own, kafka, topic, 1, start=start)
        live_on(*members, until_beats=5)


def shared(own: Own, kafka: LocalKafka, topic: str, *, holding: bool) -> tuple[Member, Member]:
    """a has read everything, b has come, and a is requested half of it."""
    write(own, kafka, topic, 10, start=0)
    a = own("a", topic)
    drive(a, until=lambda: len(a.records) == 10 * PARTITIONS)
    a.holding = set(tps(topic, *range(PARTITIONS))) if holding else set()
    b = own("b", topic)
    drive(a, b, until=lambda: len(a.revocation_requested) == PARTITIONS // 2)
    return a, b


def test_one_that_holds_the_others_up_is_found(
    kafka: LocalKafka, kafka_topic: Topic, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_while_any_is_pending(config: ConsumerConfig, owned: AssignedPartitions) -> Capacity:
        return replace(capacity(config, owned), none=bool(owned.pending()))

    monkeypatch.setattr(fetcher, "capacity", nothing_while_any_is_pending)
    topic = kafka_topic(PARTITIONS)
    a, b = shared(own, kafka, topic, holding=True)
    write_past_what_is_in_flight(own, kafka, topic, a, b)
    live_on(a, b, until_beats=BEATS)
    assert found(own) == {"L1"}


def test_one_that_passes_a_partition_over_is_found_however_much_flows(
    kafka: LocalKafka, kafka_topic: Topic, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka_topic(PARTITIONS)
    write(own, kafka, topic, 10, start=0)
    a = own("a", topic)
    drive(a, until=lambda: len(a.records) == 10 * PARTITIONS)
    stop_fetching(TopicPartition(topic, 0), monkeypatch)
    for start in range(10, 10 + BEATS):
        write(own, kafka, topic, 1, start=start)
        drive(a, until=lambda: len(a.records) >= 10 * PARTITIONS + (start - 9) * (PARTITIONS - 1))  # noqa: B023
    assert found(own) == {"L1"}


def stop_fetching(partition: TopicPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Capacity.of

    def of_others(capacity: Capacity, assigned: AssignedPartition) -> bool:
        return of(capacity, assigned) and assigned.partition != partition

    monkeypatch.setattr(Capacity, "of", of_others)


def test_one_that_stops_after_a_refused_commit_is_found(
    kafka: LocalKafka, kafka_topic: Topic, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka_topic(PARTITIONS)
    write(own, kafka, topic, 10, start=0)
    a = own("a", topic)
    drive(a, until=lambda: len(a.records) == 10 * PARTITIONS)
    stop_fetching(TopicPartition(topic, 0), monkeypatch)
    a.commits = False
    write_past_what_is_in_flight(own, kafka, topic, a)
    refused(a, topic)
    live_on(a, until_beats=BEATS)
    assert found(own) == {"L5"}


@pytest.mark.slow
def test_one_that_never_lets_go_is_found(
    kafka: LocalKafka, kafka_topic: Topic, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemberAssignment, "complete", lambda self, partitions: None)
    topic = kafka_topic(PARTITIONS)
    a, b = shared(own, kafka, topic, holding=False)
    live_on(a, b, until_beats=BEATS)
    assert found(own) == {"L2"}


def test_one_that_is_not_done_in_the_end_is_found(kafka: LocalKafka, kafka_topic: Topic, own: Own) -> None:
    topic = kafka_topic(PARTITIONS)
    write(own, kafka, topic, 10, start=0)
    a = own("a", topic)
    drive(a, until=lambda: len(a.records) == 10 * PARTITIONS)
    write(own, kafka, topic, 1, start=10)
    assert found(own, drained=True) == {"L3"}
