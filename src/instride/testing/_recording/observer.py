"""What is seen of a consumer, as events of a history (docs/histories.md).

Laws
1. A poll is written down when it returns, with the lists as they are then. One that returns nothing new is written
   only when a heartbeat had its response since the last one: that the application goes on polling, at the pace of that.
2. Offsets without a record are holes only where the user says that the log has some; else they are told as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from instride._consumer_base import ConsumerBase
from instride._core.events import ApplicationEvent, Assign
from instride.commits import CommitSnapshot
from instride.config import ConsumerConfig
from instride.observers import Polled, Positions
from instride.records import ConsumerRecord, OffsetAndMetadata, OffsetRange, TopicPartition
from instride.testing._tap import Tap

__all__ = ["Recording"]

Stretch = tuple[TopicPartition, int, int, int, int, int]


class Recording(Tap):
    """say: takes an event's kind and detail; thread-safe."""

    def __init__(self, say: Callable[..., None], *, holes: bool) -> None:
        super().__init__(say, session_timeout=0.0)
        self._holes = holes
        self.consumer: ConsumerBase | None = None
        self._by_hand: dict[TopicPartition, int] = {}
        self._beats_told = 0
        self._next: dict[tuple[TopicPartition, int, int], int] = {}
        self._epochs: dict[TopicPartition, int] = {}

    def epoch_of(self, partition: TopicPartition) -> int | None:
        """Of the assignment that returned something of it last."""
        return self._epochs.get(partition)

    def on_observed(self, consumer: ConsumerBase, config: ConsumerConfig) -> None:
        self.consumer = consumer
        self.session_timeout = config.session_timeout

    # -- on the network thread

    def on_application_event(self, event: ApplicationEvent, at: float) -> None:
        """Partitions that are assigned by hand come and go without a group."""
        if not isinstance(event, Assign):
            return
        partitions = dict(event.partitions)
        before, self._by_hand = self._by_hand, partitions
        if gone := tuple((tp, epoch) for tp, epoch in before.items() if partitions.get(tp) != epoch):
            self._say("revoked", gone)
        if new := tuple((tp, epoch) for tp, epoch in partitions.items() if before.get(tp) != epoch):
            self._say("assigned", None, new)

    # -- polling

    def on_poll(self, polled: Polled) -> None:
        stretches = self._stretches(polled.records())
        self._tell_passed(polled.positions)
        if stretches or polled.to_be_revoked or polled.lost or self.beats > self._beats_told:
            self._beats_told = self.beats
            if polled.paused:
                self._say("still paused", tuple(sorted(polled.paused)))
            self._say("poll", tuple(stretches), tuple(sorted(polled.to_be_revoked)), tuple(sorted(polled.lost)))

    def _stretches(self, records: Iterable[ConsumerRecord | OffsetRange]) -> list[Stretch]:
        found: list[Stretch] = []
        for record in records:
            first, last = _ends(record)
            here = (record.topic_partition, record.epoch, record.seek_number)
            self._epochs[record.topic_partition] = record.epoch
            if found and found[-1][:3] == here and found[-1][4] + 1 == first and found[-1][5] == record.leader_epoch:
                found[-1] = (*found[-1][:4], last, record.leader_epoch)
            else:
                found.append((*here, first, last, record.leader_epoch))
        if self._holes:
            self._tell_holes(found)
        return found

    def _tell_passed(self, positions: Callable[[], Positions]) -> None:
        """Positions move over control records at a log's end without a delivery, and between two polls too."""
        if not self._holes:
            return
        for tp, (epoch, seek, position) in positions().items():
            due = self._next.get((tp, epoch, seek))
            if due is not None and position is not None and due < position:
                self._next[tp, epoch, seek] = position
                self._say("hole", tp, due, position - 1)

    def _tell_holes(self, stretches: Iterable[Stretch]) -> None:
        for tp, epoch, seek, first, last, _ in stretches:
            due = self._next.get((tp, epoch, seek), first)
            if due < first:
                self._say("hole", tp, due, first - 1)
            self._next[tp, epoch, seek] = last + 1

    def on_died(self, error: Exception) -> None:
        self._say("died", "network thread", str(error))

    # -- what its user asks for

    def on_subscribe(self, topics: tuple[str, ...]) -> None:
        self._say("subscribes", tuple(sorted(topics)))

    def on_listener(self, method: str, partitions: tuple[TopicPartition, ...]) -> None:
        self._say(method.replace("_partitions_", " "), tuple(sorted(partitions)))

    def on_unsubscribe(self, *, done: bool) -> None:
        self._say(*(["unsubscribed"] if done else ["unsubscribes", "unsubscribe"]))

    def on_timed_out(self, verb: str) -> None:
        self._say("timed out", verb)

    def on_interrupted(self, verb: str) -> None:
        self._say("interrupted", verb, None)

    def on_delay_revoke(self, partitions: tuple[TopicPartition, ...], *, accepted: bool) -> None:
        self._say("delay", partitions, accepted)

    def on_seek(self, partition: TopicPartition) -> None:
        self._say("seek", partition)

    def on_commit(self, offsets: Any, positions: Callable[[], Positions]) -> None:
        self._tell_passed(positions)
        if own := _own_offsets(offsets):
            self._say("own offsets", own)

    def on_commit_failed(self, error: Exception) -> None:
        self._say("commit failed", f"{type(error).__name__}: {error}")

    def on_close(self, *, clean: bool) -> None:
        self._say("closed", clean)


def _ends(record: ConsumerRecord | OffsetRange) -> tuple[int, int]:
    if isinstance(record, OffsetRange):
        return record.start, record.end - 1
    return record.offset, record.offset


def _own_offsets(offsets: object) -> tuple[tuple[TopicPartition, int], ...]:
    """Numbers that a user commits of his own, without a leader epoch."""
    if isinstance(offsets, CommitSnapshot) or not isinstance(offsets, Mapping):
        return ()
    own = []
    for partition, offset in offsets.items():
        if not isinstance(offset, OffsetAndMetadata):
            own.append((TopicPartition(*partition), int(offset)))
        elif offset.leader_epoch < 0:
            own.append((TopicPartition(*partition), offset.offset))
    return tuple(own)
