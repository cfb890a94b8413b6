"""The application machine, watched: what polls return, and what its user asks for.

Laws
1. It has the application machine's surface and hands everything on: `Consumer` does not notice.
2. A poll is written down when it returns, with the lists as they are then. One that returns nothing new is written
   only when a heartbeat was answered since the last one: that the application goes on polling, at the pace of that.
3. Offsets without a record are holes only where the user says that the log has some; else they are told as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from instride.commits import CommitResult, CommitSnapshot
from instride.core.application.calls import Call
from instride.core.application.listener import RebalanceListener
from instride.core.application.machine import ApplicationMachine
from instride.core.application.partition import Delivery, PollResult
from instride.errors import KafkaError, NetworkThreadDiedError, WakeupError
from instride.records import OffsetAndMetadata, OffsetRange, TopicPartition
from instride.testing.recording.listening import WatchedListener

__all__ = ["WatchedApplication"]

Say = Callable[..., None]
Stretch = tuple[TopicPartition, int, int, int, int, int]


class WatchedApplication:
    """Used by one thread at a time, as the machine is."""

    def __init__(self, machine: ApplicationMachine, say: Say, *, holes: bool, beats: Callable[[], int]) -> None:
        """beats: how many heartbeats have been answered."""
        self._machine = machine
        self._say = say
        self._holes = holes
        self._beats = beats
        self._beats_told = 0
        self._next: dict[tuple[TopicPartition, int, int], int] = {}
        self._epochs: dict[TopicPartition, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def epoch_of(self, partition: TopicPartition) -> int | None:
        """Of the assignment that returned something of it last."""
        return self._epochs.get(partition)

    # -- polling

    def poll_aside(self, *arguments: Any, **named: Any) -> Call[PollResult]:
        try:
            result = yield from self._machine.poll_aside(*arguments, **named)
        except NetworkThreadDiedError as error:
            self._say("died", "network thread", str(error))
            raise
        asked, lost = self._machine.to_be_revoked(), self._machine.lost()
        stretches = [stretch for each in result.deliveries for stretch in self._stretches(each)]
        self._tell_passed()
        beats = self._beats()
        if stretches or asked or lost or beats > self._beats_told:
            self._beats_told = beats
            if paused := self._machine.paused():
                self._say("still paused", tuple(sorted(paused)))
            self._say("poll", tuple(stretches), tuple(sorted(asked)), tuple(sorted(lost)))
        return result

    def _stretches(self, delivery: Delivery) -> list[Stretch]:
        found: list[Stretch] = []
        tp, epoch, seek = delivery.partition, delivery.epoch, delivery.seek_number
        self._epochs[tp] = epoch
        for record in delivery.chunk.records(epoch=epoch, seek_number=seek):
            first, last = _ends(record)
            if found and found[-1][4] + 1 == first and found[-1][5] == record.leader_epoch:
                found[-1] = (*found[-1][:4], last, record.leader_epoch)
            else:
                found.append((tp, epoch, seek, first, last, record.leader_epoch))
        if self._holes:
            self._tell_holes(found)
        return found

    def _tell_passed(self) -> None:
        """Positions move over control records at a log's end without a delivery, and between two polls too."""
        if not self._holes:
            return
        self._machine.assignment()  # takes what has come
        for tp, held in self._machine._state.lists.owned.items():
            due = self._next.get((tp, held.epoch, held.seek_number))
            if due is not None and held.position is not None and due < held.position:
                self._next[tp, held.epoch, held.seek_number] = held.position
                self._say("hole", tp, due, held.position - 1)

    def _tell_holes(self, stretches: Iterable[Stretch]) -> None:
        for tp, epoch, seek, first, last, _ in stretches:
            due = self._next.get((tp, epoch, seek), first)
            if due < first:
                self._say("hole", tp, due, first - 1)
            self._next[tp, epoch, seek] = last + 1

    # -- what its user asks for

    def subscribe(self, topics: Any, listener: RebalanceListener | None, *arguments: Any, **named: Any) -> None:
        watched = None if listener is None else WatchedListener(listener, self._say)
        self._say("subscribes", () if topics is None else tuple(sorted(topics)))
        self._machine.subscribe(topics, watched, *arguments, **named)

    def unsubscribe(self, *arguments: Any, **named: Any) -> Call[None]:
        self._say("unsubscribes", "unsubscribe")
        yield from self._machine.unsubscribe(*arguments, **named)
        self._say("unsubscribed")

    def delay_revoke(self, partitions: Iterable[TopicPartition], *arguments: Any, **named: Any) -> bool:
        wanted = [TopicPartition(*each) for each in partitions]
        accepted = self._machine.delay_revoke(wanted, *arguments, **named)
        if wanted:
            self._say("delay", tuple(sorted(wanted)), accepted)
        return accepted

    def seek(self, partition: TopicPartition, *arguments: Any, **named: Any) -> None:
        self._machine.seek(partition, *arguments, **named)
        self._say("seek", TopicPartition(*partition))

    def commit(self, now: float, offsets: Any, *arguments: Any, **named: Any) -> Call[CommitResult]:
        self._tell_passed()
        self._tell_own(offsets)
        try:
            return (yield from self._machine.commit(now, offsets, *arguments, **named))
        except WakeupError:
            raise  # it is not known yet what became of it, and its caller asks again
        except KafkaError as error:
            self._say("commit failed", f"{type(error).__name__}: {error}")
            raise

    def commit_async(self, now: float, offsets: Any = None, **named: Any) -> int:
        self._tell_passed()
        self._tell_own(offsets)
        return self._machine.commit_async(now, offsets, **named)

    def _tell_own(self, offsets: Any) -> None:
        if own := _own_offsets(offsets):
            self._say("own offsets", own)

    def close(self, *arguments: Any, **named: Any) -> Call[bool]:
        clean = yield from self._machine.close(*arguments, **named)
        self._say("closed", clean)
        return clean


def _ends(record: Any) -> tuple[int, int]:
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
