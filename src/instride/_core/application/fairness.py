"""Which buffered records a poll returns (KIP-41).

Laws
1. Greedy round-robin: as many as possible of one partition, then the next, beginning with the one where the last
   poll left off. A turn ends with what was retained when the turn began, so no refill starves the others: no
   partition with data waits for more than one round of the others' turns.
2. Proportional: an equal share of each partition with data; what one lacks goes to the others. What cannot be shared
   equally goes to those that come next in the round, so here, too, none waits for more than one.
3. At most `limit` records are returned (below zero: no bound). An unavailable partition never stops another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from instride._core.application.partition import Delivery, OwnedPartition
from instride.records import TopicPartition

__all__ = ["Greedy", "Proportional"]

_NO_BOUND = 1 << 62


class _Rotation:
    """The order of turns: a partition joins at the end when it has something, and leaves when it has nothing."""

    __slots__ = ("order",)

    def __init__(self) -> None:
        self.order: deque[TopicPartition] = deque()

    def follow(self, partitions: Mapping[TopicPartition, OwnedPartition]) -> None:
        # In most polls nothing has joined or left.
        if len(self.order) == len(partitions) and all(p in partitions for p in self.order):
            return
        known = set(self.order)
        kept = [p for p in self.order if p in partitions]
        self.order = deque(kept + sorted(p for p in partitions if p not in known))


class Greedy:
    """Law 1."""

    __slots__ = ("_left", "_rotation", "_turn")

    def __init__(self) -> None:
        self._rotation = _Rotation()
        self._turn: TopicPartition | None = None
        self._left = 0

    def collect(self, partitions: Mapping[TopicPartition, OwnedPartition], limit: int) -> list[Delivery]:
        self._rotation.follow(partitions)
        if self._turn not in partitions:
            self._turn = None
        order = self._rotation.order
        budget = limit if limit >= 0 else _NO_BOUND
        deliveries: list[Delivery] = []
        idle = 0
        while budget > 0 and idle < len(order):
            partition = partitions[order[0]]
            taken = self._take_turn(partition, budget)
            deliveries += taken
            budget -= sum(len(delivery.chunk) for delivery in taken)
            idle = 0 if taken else idle + 1
            if self._left <= 0:
                order.rotate(-1)
                self._turn = None
        return deliveries

    def go_on(self, partitions: Mapping[TopicPartition, OwnedPartition], limit: int) -> list[Delivery]:
        """All that `collect` would return, where that is a part of the turn that is under way: then nobody need look
        at the others. Else nothing."""
        partition = partitions.get(self._turn) if self._turn is not None else None
        if partition is None or not 0 < limit < self._left or partition.available() < limit:
            return []
        self._left -= limit
        return partition.take(limit)

    def _take_turn(self, partition: OwnedPartition, budget: int) -> list[Delivery]:
        available = partition.available()
        if self._turn != partition.partition or self._left <= 0:  # a poll that was interrupted left none of the turn
            self._turn, self._left = partition.partition, available
        count = min(budget, self._left, available)
        self._left = self._left - count if count else 0
        return partition.take(count) if count else []


class Proportional:
    """Law 2."""

    __slots__ = ("_rotation",)

    def __init__(self) -> None:
        self._rotation = _Rotation()

    def collect(self, partitions: Mapping[TopicPartition, OwnedPartition], limit: int) -> list[Delivery]:
        self._rotation.follow(partitions)
        order = self._rotation.order
        ready = [partitions[p] for p in order if partitions[p].available()]
        counts, odd = _shares([each.available() for each in ready], limit if limit >= 0 else _NO_BOUND)
        deliveries: list[Delivery] = []
        for partition, count in zip(ready, counts, strict=True):
            if count:
                deliveries += partition.take(count)
        if odd is not None:
            order.rotate(-1 - order.index(ready[odd].partition))
        return deliveries

    def go_on(self, partitions: Mapping[TopicPartition, OwnedPartition], limit: int) -> list[Delivery]:
        """Nothing: each poll looks at all that have something."""
        return []


def _shares(available: list[int], budget: int) -> tuple[list[int], int | None]:
    """How many each may give, and who got the last of what could not be shared equally: the next poll begins after it,
    so that none waits for a second share of another."""
    counts = [0] * len(available)
    active = [place for place, count in enumerate(available) if count]
    while active and budget >= len(active):
        share = budget // len(active)
        for place in active:
            count = min(share, available[place] - counts[place])
            counts[place] += count
            budget -= count
        active = [place for place in active if counts[place] < available[place]]
    for place in active[:budget]:
        counts[place] += 1
    return counts, active[budget - 1] if active and budget else None
