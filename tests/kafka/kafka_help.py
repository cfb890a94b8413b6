"""What the tests on a real Kafka share: members whose polls are taken in turns on one thread.

Laws
1. Nothing here sleeps to wait for a state: it polls until the state is there, or fails at a deadline with what it saw.
2. A record's value is "partition:offset" in text (`filled_topics`), so that what arrived can be compared with what was
   written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from instride import Consumer, ConsumerRecord, OffsetRange, RangeConsumer, TopicPartition
from instride.testing import LocalKafka

__all__ = [
    "PATIENCE",
    "QUICK",
    "Member",
    "drive",
    "each_once",
    "ids",
    "poll_until",
    "ranges_until",
    "settings",
    "tps",
    "until",
]

PATIENCE: Final = 60.0
"""Seconds after which a state that did not come is a failure. Only a failing test waits that long."""

QUICK: Final[dict[str, Any]] = {
    "auto_offset_reset": "earliest",
    "session_timeout": 10.0,
    "heartbeat_interval": 0.1,
    "retry_backoff": 0.02,
    "metadata_max_age": 60.0,
}
"""Settings with which a rebalance is noticed within a tenth of a second."""


def tps(topic: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]


def ids(records: Iterable[ConsumerRecord]) -> list[tuple[int, int]]:
    """(partition, offset) of each, and that the value says the same."""
    found = []
    for record in records:
        assert record.value == f"{record.partition}:{record.offset}".encode()
        found.append((record.partition, record.offset))
    return found


def settings(kafka: LocalKafka, group: str, **more: Any) -> Any:
    """Of a member of the group that hears of a rebalance soon."""
    return {"bootstrap_servers": kafka.bootstrap_servers, "group_id": group, **QUICK, **more}


def until(done: Callable[[], object]) -> None:
    """Until that is true, which others bring about."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.01)


def poll_until(consumer: Consumer, count: int, *, timeout: float = PATIENCE) -> list[ConsumerRecord]:
    """Poll until that many records came. Fails with what came instead."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + timeout
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came: {ids(records)[-5:]}"
        records += consumer.poll(timeout=0.2)
    return records


class Member:
    """A consumer with what it saw. `turn` polls once; what is in `holding` is delayed whenever it is requested."""

    def __init__(self, name: str, consumer: Consumer, *, commits: bool = True) -> None:
        self.name = name
        self.consumer = consumer
        self.records: list[ConsumerRecord] = []
        self.lost: list[TopicPartition] = []
        self.revocation_requested: list[TopicPartition] = []
        self.holding: set[TopicPartition] = set()
        self.commits = commits

    def turn(self) -> list[ConsumerRecord]:
        records = list(self.consumer.poll(timeout=0.02))
        self.records += records
        self.lost += sorted(self.consumer.lost_partitions())
        to_be_revoked = self.consumer.to_be_revoked_partitions()
        self.revocation_requested += sorted(to_be_revoked - set(self.revocation_requested))
        if records and self.commits:
            self.consumer.commit_async()
        owned = to_be_revoked & self.holding
        # It is refused where the deadline has passed since the poll: on a busy machine it may.
        assert self.consumer.delay_revoke(owned) or any((self.consumer.revoke_deadline(tp) or 0) <= 0 for tp in owned)
        return records

    def take_turn(self) -> None:
        self.turn()

    @property
    def in_turn(self) -> bool:
        return False

    @property
    def seen(self) -> list[tuple[int, int]]:
        return ids(self.records)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment()

    def __repr__(self) -> str:
        owned = sorted(each.partition for each in self.owned)
        requested = f"revocation requested of {self.revocation_requested}"
        return f"{self.name}(holds {owned}, {requested}, lost {self.lost}, {len(self.records)} records)"


class Turns(Protocol):
    """What `Member` and `Peer` have in common."""

    @property
    def seen(self) -> list[tuple[int, int]]: ...
    @property
    def owned(self) -> frozenset[TopicPartition]: ...
    def turn(self) -> object: ...
    def take_turn(self) -> object: ...
    @property
    def in_turn(self) -> bool: ...


def drive(*members: Turns, until: Callable[[], object], timeout: float = PATIENCE) -> None:
    """Let the members poll in turns until that is true. At no moment is a partition owned twice."""
    deadline = time.monotonic() + timeout
    while not until() or any(each.in_turn for each in members):
        assert time.monotonic() < deadline, f"it did not come to be: {members}"
        for member in members:
            member.take_turn()
            if _owned_twice(members):
                for each in members:
                    each.turn()  # who lost it at its deadline has not polled since
                assert not _owned_twice(members), f"owned twice: {members}"


def _owned_twice(members: Sequence[Turns]) -> bool:
    owned = Counter(partition for each in members for partition in each.owned)
    return bool(owned) and max(owned.values()) > 1


def each_once(written: Sequence[tuple[int, int]], *members: Turns) -> None:
    """Every record exactly once across the members."""
    seen = Counter(each for member in members for each in member.seen)
    twice = {each: count for each, count in seen.items() if count > 1}
    missing = set(written) - set(seen)
    assert not twice, f"processed more than once: {sorted(twice)[:10]}"
    assert not missing, f"never processed: {sorted(missing)[:10]}"


def ranges_until(consumer: RangeConsumer, ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Poll until the ranges reach these ends."""
    ranges: list[OffsetRange] = []
    reached: dict[TopicPartition, int] = {}
    deadline = time.monotonic() + PATIENCE
    while reached != dict(ends):
        assert time.monotonic() < deadline, f"the ranges reached {reached}, not {ends}"
        for each in consumer.poll(timeout=0.2):
            ranges.append(each)
            reached[each.topic_partition] = each.end
    return ranges
