"""Sorts what came up from the network side, so that a poll can take each kind at its own moment.

Laws
1. Draining is not taking. A drained request, loss or assignment takes effect when a poll takes it; answers and
   records take effect at once.
2. Those of one kind keep their order.
3. Data of an epoch whose assignment was not taken yet waits for it; data of an epoch that is gone is dropped.
4. A poll that took a partition's loss takes no later event of it: `hold` keeps these for the next poll.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import replace

from instride.core.events import (
    Assigned,
    CommitsSettled,
    Fetched,
    GivenBack,
    Lost,
    Parked,
    Positioned,
    Revoked,
    RevokeRequested,
)
from instride.records import TopicPartition

__all__ = ["Change", "Completion", "Data", "Inbox", "split_change"]

Change = RevokeRequested | GivenBack | Assigned
Completion = CommitsSettled | Revoked
Data = Fetched | Positioned | Parked


class Inbox:
    """Queues by kind. Not thread-safe: the application machine owns it."""

    __slots__ = ("changes", "completions", "early", "errors", "losses", "woken")

    def __init__(self) -> None:
        self.woken = False
        self.errors: deque[Exception] = deque()
        self.losses: deque[Lost] = deque()
        self.changes: deque[Change] = deque()
        self.completions: deque[Completion] = deque()
        self.early: dict[tuple[TopicPartition, int], list[Data]] = {}

    def keep_early(self, data: Data) -> None:
        self.early.setdefault((data.partition, data.epoch), []).append(data)

    def pop_early(self, partition: TopicPartition, epoch: int) -> list[Data]:
        return self.early.pop((partition, epoch), [])

    def released(self) -> set[tuple[TopicPartition, int]]:
        """What the group may have given to others already, though no poll has taken it yet."""
        revoked = (event for event in self.completions if isinstance(event, Revoked))
        return {each for event in revoked for each in event.partitions.items()}

    def forget_before(self, partition: TopicPartition, epoch: int) -> None:
        """Drop waiting data of this epoch and older ones: it was lost before it was taken."""
        for key in [key for key in self.early if key[0] == partition and key[1] <= epoch]:
            del self.early[key]


def split_change(change: Change, held_back: AbstractSet[TopicPartition]) -> tuple[Change, Change | None]:
    """The part to take now, and the part of partitions whose loss this poll took (law 4)."""
    later = {tp: epoch for tp, epoch in change.partitions.items() if tp in held_back}
    if not later:
        return change, None
    now = {tp: epoch for tp, epoch in change.partitions.items() if tp not in held_back}
    return replace(change, partitions=now), replace(change, partitions=later)
