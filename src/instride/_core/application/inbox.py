"""Sorts what came up from the network side, so that a poll can take each kind at its own moment.

Laws
1. Draining is not taking. A drained request, loss or assignment takes effect when a poll takes it; responses and
   records take effect at once.
2. Those of one kind keep their order. Where law 4 takes an assignment out of it, those that wait in front of it lead
   back to no older generation.
3. Data of an epoch whose assignment was not taken yet waits for it; data of an epoch that is gone, or whose assignment
   was dropped, is dropped.
4. A poll that took a partition's loss takes no later event of it: `hold` keeps these for the next poll.
5. A wakeup is kept (`woken`) for the next call that waits: `polling.py`, `committing.py`, `machine.py` (`position`).
6. A handler of a signal may drain between what a poll computes of a queue and its writing. So a queue that was drained
   into is never replaced: what is written is of the places that were looked at, and what came since is behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from instride._core.application.calls import Write
from instride._core.events import (
    Assigned,
    CallCompleted,
    CommitsSettled,
    DropBuffered,
    EndFound,
    Epochs,
    Fetched,
    Lost,
    PartitionFailed,
    PartitionRecovered,
    Positioned,
    Reassigned,
    RevocationRequested,
    Revoked,
)
from instride.records import TopicPartition

__all__ = ["Change", "Completion", "Data", "Inbox"]

Change = RevocationRequested | Reassigned | Assigned
Completion = CommitsSettled | Revoked
Data = Fetched | EndFound | Positioned | PartitionFailed | PartitionRecovered | DropBuffered


class Inbox:
    """Queues by kind. Not thread-safe: the application machine owns it."""

    __slots__ = ("assigned", "changes", "completed", "completions", "early", "errors", "losses", "to_drop", "woken")

    def __init__(self) -> None:
        self.woken = False
        self.errors: deque[Exception] = deque()
        self.losses: deque[Lost] = deque()
        self.changes: deque[Change] = deque()
        # The newest epoch of each that was in them, taken or not.
        self.assigned: dict[TopicPartition, int] = {}
        self.completions: deque[Completion] = deque()
        # For the next poll: a verb between two is no moment to count as free what the application still works on.
        self.to_drop: deque[DropBuffered] = deque()
        # What callers are to hear of their calls, and whether these have ended.
        self.completed: deque[tuple[CallCompleted, bool]] = deque()
        # By epoch.
        self.early: dict[TopicPartition, dict[int, deque[Data]]] = {}

    def is_quiet(self) -> bool:
        """A poll has nothing to raise and nothing to take."""
        return not (self.woken or self.errors or self.losses or self.changes or self.completions or self.to_drop)

    def awaits(self, partition: TopicPartition, epoch: int) -> bool:
        """Whether its assignment has come, for a poll to take it. Of one that was dropped nobody asks for data."""
        return epoch <= self.assigned.get(partition, -1)

    def keeping_early(self, data: Data) -> Write:
        return (self._early_of(data).append, data)

    def released(self) -> set[tuple[TopicPartition, int]]:
        """What the group may have given to others already, though no poll has taken it yet."""
        revoked = (event for event in tuple(self.completions) if isinstance(event, Revoked))
        return {each for event in revoked for each in event.partitions.items()}

    def of_ownership(self) -> tuple[Any, ...]:
        """All that waits and speaks of an assignment."""
        return self.changes, self.assigned, self.completions, self.losses, self.early

    def _early_of(self, data: Data) -> deque[Data]:
        by_epoch = self.early.setdefault(data.partition, {data.epoch: deque()})
        return by_epoch.setdefault(data.epoch, deque())

    def early_epochs(self, partition: TopicPartition, newest: int) -> list[int]:
        """Of these epochs, and none newer, data of the partition came early."""
        return [epoch for epoch in tuple(self.early.get(partition, ())) if epoch <= newest]

    def forgetting(self, lost: Epochs) -> list[Write]:
        """Of these epochs and older ones: what waits for them. They were lost before it was taken."""
        early = [write for tp, epoch in lost.items() for write in self._forgetting_early(tp, epoch)]
        left = list(enumerate(_without(change, lost) for change in tuple(self.changes)))
        changes: list[Write] = [
            (self.changes.__delitem__, place) if change is None else (self.changes.__setitem__, place, change)
            for place, change in reversed(left)  # so that each is at its place still when it is written
        ]
        return [*changes, *early]

    def _forgetting_early(self, partition: TopicPartition, newest: int) -> list[Write]:
        """A partition of which nothing is left goes with the next drain."""
        known = self.early.get(partition, {})
        return [(known.pop, epoch, None) for epoch in self.early_epochs(partition, newest)]

    def next_change(self, deferred: AbstractSet[TopicPartition]) -> tuple[Change, Sequence[Write]] | None:
        """The first of which a part may be taken now (law 4): that part, and how to take it out."""
        for place in range(len(self.changes)):
            change = self.changes[place]
            now, later = _split(change, deferred)
            if later is None:
                return now, [*self._overtaking(place, change), (self.changes.__delitem__, place)]
            if now.partitions:
                return now, [*self._overtaking(place, change), (self.changes.__setitem__, place, later)]
        return None

    def _overtaking(self, place: int, change: Change) -> list[Write]:
        """Law 2. By the order, not by number: a group that was lost and recreated begins at a lower generation."""
        if not isinstance(change, Assigned):
            return []
        before = ((at, self.changes[at]) for at in range(place))
        return [
            (self.changes.__setitem__, at, replace(each, generation=change.generation, member_id=change.member_id))
            for at, each in before
            if isinstance(each, Assigned)
        ]


def _without(change: Change, lost: Epochs) -> Change | None:
    """Changes of an epoch that is lost are stale; of an assignment that nobody saw nothing is told.

    An empty request has a meaning of its own (C); one of which nothing is left has none.
    """
    left = {tp: epoch for tp, epoch in change.partitions.items() if epoch > lost.get(tp, -1)}
    if left or not change.partitions or isinstance(change, Assigned):
        return replace(change, partitions=left)
    return None


def _split(change: Change, deferred: AbstractSet[TopicPartition]) -> tuple[Change, Change | None]:
    """The part to take now, and the part of partitions whose loss this poll took (law 4)."""
    later = {tp: epoch for tp, epoch in change.partitions.items() if tp in deferred}
    if not later:
        return change, None
    now = {tp: epoch for tp, epoch in change.partitions.items() if tp not in deferred}
    return replace(change, partitions=now), replace(change, partitions=later)
