"""A scripted consumer for the thread of a query in group mode, in lock-step with its test."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from instride.commits import CommitResult
from instride.errors import KafkaError, KafkaTimeoutError, WakeupError
from instride.observers import Observer
from instride.records import GroupMetadata, OffsetAndMetadata, OffsetRange, TopicPartition
from instride.telemetry import PositionReset, ResetCause

__all__ = ["PATIENCE", "Commit", "Scripted", "Turn", "done", "records"]

PATIENCE = 20.0
Turn = Callable[[], Iterable[OffsetRange]]
Commit = tuple[dict[TopicPartition, int], Future[CommitResult]]


@dataclass(frozen=True, slots=True)
class Info:
    """leader: its number."""

    topic_partition: TopicPartition
    topic_id: str | None
    leader: int | None


class Scripted:
    """The consumer. Each poll waits for a turn of the script; the turn is over when the next poll begins.

    group_has: the group's offsets. metadata: that of the newest commits. taken_over: commits that only take partitions
    over, where they are. Those are accepted at once. looked_up: of what the group's offsets were asked. described: of
    which topics the leaders.
    topic_ids: what brokers say of the topic, one after another; the last one stays. ends: where all logs end.
    partitions: how many a topic has: three, where it is not in here. leaders: 1, where a partition is not in here; of
    those that are `unreachable`, and where there is none, nobody learns where a log begins.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.commits: list[Commit] = []
        self.group_has: dict[TopicPartition, int] = {}
        self.metadata: dict[TopicPartition, str] = {}
        self.looked_up: list[set[TopicPartition]] = []
        self.described: list[list[str]] = []
        self.taken_over: list[dict[TopicPartition, int]] = []
        self.raises: dict[str, list[BaseException]] = {}
        self.requested: set[TopicPartition] = set()
        self.expired: set[TopicPartition] = set()
        self.delayed: list[set[TopicPartition]] = []
        self.topic_ids: list[str | None] = ["id"]
        self.ends = 9
        self.partitions: dict[str, int] = {}
        self.leaders: dict[TopicPartition, int | None] = {}
        self.unreachable: set[int | None] = {None}
        self.listener: Any = None
        self.observers: list[Observer] = []
        self.woken = threading.Event()
        self._turns: queue.Queue[tuple[Turn, threading.Event]] = queue.Queue()
        self._over = threading.Event()

    # -- for the test

    def turn(self, play: Turn = list) -> None:
        """One poll that does this, and all that the member does after it."""
        assert self.then(play).wait(PATIENCE)

    def then(self, play: Turn) -> threading.Event:
        """A poll that does this is next. The event: that poll, and what the member does after it, is over."""
        over = threading.Event()
        self._turns.put((play, over))
        return over

    def leads(
        self, partition: TopicPartition, start: int, to: int, cause: ResetCause = ResetCause.OUT_OF_RANGE
    ) -> None:
        """It goes on there by itself, as telemetry tells in a poll or another call."""
        event = PositionReset(at=0.0, partition=partition, epoch=1, cause=cause, from_offset=start, to_offset=to)
        for observer in self.observers:
            observer.on_telemetry(event)

    def calls_of(self, name: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == name]

    # -- for the member

    def observe(self, observer: Observer) -> None:
        self.observers.append(observer)

    def poll(self, *, timeout: float) -> Iterable[OffsetRange]:
        assert 0 < timeout <= 1, "a wait that is short: the group's other requests come between"
        self._over.set()
        play, self._over = self._turns.get(timeout=PATIENCE)
        return play()

    def wakeup(self) -> None:
        self.woken.set()
        self.then(_woken)

    def close(self, *, timeout: float) -> None:
        self.calls.append(("close", timeout))
        self._raise("close")
        self._over.set()

    def subscribe(self, topics: Sequence[str] = (), *, listener: Any, pattern: str | None = None) -> None:
        self.calls.append(("subscribe", pattern or tuple(topics)))
        self.listener = listener

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("pause", *partitions))

    def resume(self, partition: TopicPartition) -> None:
        self.calls.append(("resume", partition))

    def seek(self, partition: TopicPartition, position: int) -> None:
        self.calls.append(("seek", partition, position))

    def committed(self, partitions: Sequence[TopicPartition], *, timeout: float) -> dict[TopicPartition, Any]:
        del timeout
        self._raise("committed")
        self.looked_up.append(set(partitions))
        has, names = self.group_has, self.metadata
        return {
            each: OffsetAndMetadata(offset=has[each], metadata=names.get(each, "")) if each in has else None
            for each in partitions
        }

    def beginning_offsets(self, partitions: Sequence[TopicPartition], *, timeout: float) -> dict[TopicPartition, int]:
        del timeout
        self._raise("beginning_offsets")
        if self.unreachable & {self.leaders.get(each, 1) for each in partitions}:
            raise KafkaTimeoutError("a leader did not respond")
        return dict.fromkeys(partitions, 3)

    def end_offsets(self, partitions: Sequence[TopicPartition], *, timeout: float) -> dict[TopicPartition, int]:
        del timeout
        self._raise("end_offsets")
        self.calls.append(("end_offsets", *partitions))
        return dict.fromkeys(partitions, self.ends)

    def list_topics(self, topics: Sequence[str], *, timeout: float) -> dict[str, list[Info]]:
        del timeout
        self._raise("list_topics")
        self.described.append([*topics])
        found = {topic: self._described(topic) for topic in topics}
        return {topic: infos for topic, infos in found.items() if infos}

    def _described(self, topic: str) -> list[Info]:
        topic_id = self.topic_ids.pop(0) if len(self.topic_ids) > 1 else self.topic_ids[0]
        there = [TopicPartition(topic, number) for number in range(self.partitions.get(topic, 3))]
        return [Info(each, topic_id, self.leaders.get(each, 1)) for each in there]

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata("g", 1 if self.calls_of("pause") else -1)

    def to_be_revoked_partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.requested - self.expired)

    def revoke_deadline(self, partition: TopicPartition) -> float | None:
        return 1.0 if partition in self.requested else None

    def delay_revoke(self, partitions: Iterable[TopicPartition], *, reason: str) -> bool:
        assert reason
        self.delayed.append(set(partitions))
        return True

    def commit_async(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> Future[CommitResult]:
        self._raise("commit_async")
        future: Future[CommitResult] = Future()
        commit = ({each: at.offset for each, at in offsets.items()}, future)
        self.metadata |= {each: at.metadata for each, at in offsets.items()}
        if all(self.group_has.get(each) == offset for each, offset in commit[0].items()):
            self.taken_over.append(commit[0])
            done(commit)
        else:
            self.commits.append(commit)
        return future

    def _raise(self, name: str) -> None:
        if self.raises.get(name):
            raise self.raises[name].pop(0)


def _woken() -> Iterable[OffsetRange]:
    raise WakeupError("woken")


def records(partition: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(
        topic=partition.topic, partition=partition.partition, start=start, end=end, epoch=1, seek_number=0
    )


def done(commit: Commit, **refused: KafkaError) -> None:
    """refused: by the name of the partition, "p0" or "p1"."""
    offsets, future = commit
    why = {TopicPartition("t", int(name[1])): error for name, error in refused.items()}
    have = {each: OffsetAndMetadata(offset=at) for each, at in offsets.items() if each not in why}
    future.set_result(CommitResult(committed=have, not_committed=why))
