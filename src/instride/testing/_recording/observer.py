"""What is seen of a consumer, as events of a history (docs/histories.md).

Laws
1. A poll is written down when it has returned, with the lists as they are then. One that returns nothing new is written
   only when a heartbeat had its response since the last one: that the application goes on polling, at the pace of that.
2. Offsets without a record are holes only where the user says that the log has some; else they are told as they are.
   For an auto-commit the network thread records the holes, before it is sent.
3. The network thread tells of an assignment by hand when it takes it, so that nothing of it is told before. A seek that
   comes earlier is told behind it, by whichever thread finds that it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from instride._consumer_base import ConsumerBase
from instride._core.events import ApplicationEvent, Assign, Commit, PartitionFailed, Positioned
from instride.commits import CommitEntry, CommitSnapshot
from instride.config import ConsumerConfig
from instride.observers import Polled, Positions
from instride.records import ConsumerRecord, OffsetAndMetadata, OffsetRange, TopicPartition
from instride.testing._check.vocabulary import parts
from instride.testing._tap import Tap, is_overtaken

__all__ = ["Hold", "Recording"]

Hold = Callable[..., None]
Stretch = tuple[TopicPartition, int, int, int, int, int]
Due = tuple[int, int, int]
"""Assignment epoch, seek number, and the offset that comes next there. Later ones are greater."""
_NONE: Final[Due] = (-1, -1, -1)


class Recording(Tap):
    """say: takes an event's kind and detail. hold: a poll's events, and whether it is completed. Both thread-safe."""

    def __init__(self, say: Callable[..., None], hold: Hold, *, holes: bool) -> None:
        super().__init__(say, session_timeout=0.0, overtaken=self._is_overtaken)
        self._hold = hold
        self._holes = holes
        self.consumer: ConsumerBase | None = None
        self._by_hand: dict[TopicPartition, int] = {}
        self._seeks: dict[tuple[TopicPartition, int], bool] = {}  # those that are not told yet (law 3)
        self._beats_told = 0
        self._next: dict[TopicPartition, Due] = {}
        # What becomes `_next` once that is completed.
        self._ahead: tuple[Callable[[], bool], dict[TopicPartition, Due]] = (lambda: True, {})
        self._epochs: dict[TopicPartition, int] = {}

    def epoch_of(self, partition: TopicPartition) -> int | None:
        """Of the present assignment, as its application knows it; else of the last one that returned something. None of
        one by hand that is not told yet (law 3): nothing of it is returned by then."""
        state = None if self.consumer is None else self.consumer._application._state
        owned = None if state is None else state.lists.owned.get(partition)
        if state is None or owned is None:
            return self._epochs.get(partition)
        is_told = not state.assigned_by_hand or self._by_hand.get(partition) == owned.epoch
        return owned.epoch if is_told else None

    def on_observed(self, consumer: ConsumerBase, config: ConsumerConfig) -> None:
        self.consumer = consumer
        self.session_timeout = config.session_timeout

    # -- on the network thread

    def on_application_event(self, event: ApplicationEvent, at: float) -> None:
        if isinstance(event, Commit) and self._holes and not event.by_hand:
            self._tell_holes_before(event.entries)
        elif isinstance(event, Assign):
            self._assigned_by_hand(dict(event.partitions))

    def _tell_holes_before(self, entries: Mapping[TopicPartition, CommitEntry]) -> None:
        """Law 2. It only tells, since `_next` is the application's thread's, and twice is harmless."""
        # Before `_next`: what leaves `ahead` meanwhile is in there already.
        completed, ahead = self._ahead
        returned = dict(ahead) if completed() else {}
        for tp, entry in entries.items():
            *here, due = max(returned.get(tp, _NONE), self._next.get(tp, _NONE))
            if here == [entry.epoch, entry.seek_number]:
                self._tell_holes(tp, due, entry.offset)

    def _assigned_by_hand(self, partitions: dict[TopicPartition, int]) -> None:
        """They come and go without a group."""
        before = self._by_hand
        if gone := tuple((tp, epoch) for tp, epoch in before.items() if partitions.get(tp) != epoch):
            self._say("revoked", gone)
        if new := tuple((tp, epoch) for tp, epoch in partitions.items() if before.get(tp) != epoch):
            self._say("assigned", None, new)
        self._by_hand = partitions
        if self.consumer is not None and self.consumer._config.group_id is None:
            for tp, _ in new:
                self._say("looked up", tp, None, 0)  # there is no coordinator to be asked: nothing is committed
        for each in new:
            self._tell_seek(each)

    def _is_overtaken(self, event: Positioned | PartitionFailed) -> bool:
        return self.consumer is not None and is_overtaken(self.consumer._application, event)

    # -- polling

    def on_poll(self, polled: Polled) -> None:
        self._tell_passed(polled.positions)
        stretches = self._stretches(polled.records())
        holes = self._holes_before(stretches, polled.completed) if self._holes else []
        if stretches or polled.to_be_revoked or polled.lost or self.beats > self._beats_told:
            self._beats_told = self.beats
            paused = [("still paused", tuple(sorted(polled.paused)))] if polled.paused else []
            returned = tuple(_in_parts(stretches))
            poll = ("poll", returned, tuple(sorted(polled.to_be_revoked)), tuple(sorted(polled.lost)))
            self._hold([*holes, *paused, poll], polled.completed)

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
        return found

    def _tell_passed(self, positions: Callable[[], Positions]) -> None:
        """Positions move over control records at a log's end without a delivery, and between two polls too."""
        if not self._holes:
            return
        completed, ahead = self._ahead
        if completed():
            self._next |= ahead
            ahead.clear()
        for tp, (epoch, seek, position) in positions().items():
            *here, due = self._next.get(tp, _NONE)
            if here == [epoch, seek] and position is not None and due < position:
                self._next[tp] = (epoch, seek, position)
                self._tell_holes(tp, due, position)

    def _tell_holes(self, partition: TopicPartition, start: int, end: int) -> None:
        for part in parts(start, end - 1):
            self._say("hole", partition, *part)

    def _holes_before(self, stretches: Iterable[Stretch], completed: Callable[[], bool]) -> list[tuple[Any, ...]]:
        holes, ahead = list[tuple[Any, ...]](), dict[TopicPartition, Due]()
        for tp, epoch, seek, first, last, _ in stretches:
            *here, due = ahead.get(tp) or self._next.get(tp, _NONE)
            if here == [epoch, seek]:
                holes += [("hole", tp, *part) for part in parts(due, first - 1)]
            ahead[tp] = (epoch, seek, last + 1)
        self._ahead = (completed, ahead)
        return holes

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
        """Law 3."""
        assert self.consumer is not None
        state = self.consumer._application._state
        owned = state.lists.owned.get(partition)
        if owned is None or not state.assigned_by_hand:
            self._say("seek", partition)
        else:
            self._seeks[partition, owned.epoch] = True
            if self._by_hand.get(partition) == owned.epoch:
                self._tell_seek((partition, owned.epoch))

    def _tell_seek(self, assignment: tuple[TopicPartition, int]) -> None:
        """One thread puts it down and then looks whether it may be told; the other allows it and then looks for it."""
        if self._seeks.pop(assignment, False):
            self._say("seek", assignment[0])

    def on_commit(self, offsets: Any, positions: Callable[[], Positions]) -> None:
        self._tell_passed(positions)
        if own := _own_offsets(offsets):
            self._say("own offsets", own)

    def on_allow_rewind(self, offsets: Any, positions: Callable[[], Positions]) -> None:
        if wanted := _offsets(offsets, positions):
            self._say("allows rewind", wanted)

    def on_commit_failed(self, error: Exception) -> None:
        self._say("commit failed", f"{type(error).__name__}: {error}")

    def on_close(self, *, clean: bool) -> None:
        self._say("closed", clean)


def _ends(record: ConsumerRecord | OffsetRange) -> tuple[int, int]:
    if isinstance(record, OffsetRange):
        return record.start, record.end - 1
    return record.offset, record.offset


def _in_parts(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    for *here, first, last, leader_epoch in stretches:
        for part in parts(first, last):
            yield (*here, *part, leader_epoch)  # type: ignore[misc]


def _offsets(offsets: object, positions: Callable[[], Positions]) -> tuple[tuple[TopicPartition, int], ...]:
    """What a commit of these asks for."""
    if isinstance(offsets, Mapping):
        return _numbers(offsets)
    return _numbers({tp: at for tp, (_, _, at) in positions().items() if at is not None})


def _own_offsets(offsets: object) -> tuple[tuple[TopicPartition, int], ...]:
    """Numbers that a user commits of his own, without a leader epoch."""
    if isinstance(offsets, CommitSnapshot) or not isinstance(offsets, Mapping):
        return ()
    return _numbers({tp: each for tp, each in offsets.items() if getattr(each, "leader_epoch", -1) < 0})


def _numbers(offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> tuple[tuple[TopicPartition, int], ...]:
    numbers = ((tp, each.offset if isinstance(each, OffsetAndMetadata) else each) for tp, each in offsets.items())
    return tuple((TopicPartition(*tp), int(number)) for tp, number in numbers)
