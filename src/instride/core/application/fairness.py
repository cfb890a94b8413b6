"""Which buffered records a poll returns (KIP-41).

Laws
1. Greedy round-robin: as many as possible of one partition, then the next, beginning with the one where the last
   poll left off. A turn ends with what was retained when the turn began, so no refill starves the others: no
   partition with data waits for more than one round of the others' turns.
2. Proportional: an equal share of each partition with data; what one lacks goes to the others.
3. At most `limit` records are returned (below zero: no bound). An unavailable partition never stops another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from instride.core.application.partition import Delivery, OwnedPartition
from instride.records import TopicPartition

__all__ = ["Greedy", "Proportional"]

_NO_BOUND = 1 << 62


class _Rotation:
    """The order of turns: newly known partitions join at the end, unknown ones leave."""

    __slots__ = ("order",)

    def __init__(self) -> None:
        self.order: deque[TopicPartition] = deque()

    def follow(self, partitions: Mapping[TopicPartition, OwnedPartition]) -> None:
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

    def _take_turn(self, partition: OwnedPartition, budget: int) -> list[Delivery]:
        available = partition.available()
        if self._turn != partition.partition:
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
        budget = limit if limit >= 0 else _NO_BOUND
        deliveries: list[Delivery] = []
        while budget > 0:
            ready = [partitions[p] for p in order if partitions[p].available()]
            if not ready:
                break
            share = max(1, budget // len(ready))
            for partition in ready:
                count = min(share, partition.available(), budget)
                if count:
                    deliveries += partition.take(count)
                    budget -= count
        order.rotate(-1)
        return deliveries
