"""Partitions of which something may be so: what a poll looks at instead of all that are held.

Laws
1. Whatever makes it so marks the partition, by the same write or before it. A mark that is not true any more does no
   harm: whoever looks takes it away.
2. No interrupt, and no handler of a signal that calls the consumer meanwhile, loses a mark: it is taken away first, and
   put back where a look after that finds that it is true.
"""

from __future__ import annotations

from collections.abc import Callable

from instride.core.application.partition import OwnedPartition
from instride.core.application.writes import Write, at_once

__all__ = ["Marks"]


class Marks:
    """Not thread-safe: the application machine owns it. holds: whether it is so, as a look at the partition tells."""

    __slots__ = ("_doubted", "_holds", "_marked")

    def __init__(self, holds: Callable[[OwnedPartition], bool]) -> None:
        self._holds = holds
        self._marked: dict[OwnedPartition, None] = {}
        self._doubted: dict[OwnedPartition, None] = {}

    def marking(self, owned: OwnedPartition) -> Write:
        return (self._marked.__setitem__, owned, None)

    def mark(self, owned: OwnedPartition) -> None:
        self._marked[owned] = None

    def those(self) -> list[OwnedPartition]:
        """Of which it is so now, in the order in which they were marked."""
        for owned in list(self._marked):
            if not self._holds(owned):
                at_once([(self._doubted.__setitem__, owned, None), (self._marked.pop, owned, None)])
        for owned in list(self._doubted):  # law 2; those of a look that was interrupted, too
            again = [self.marking(owned)] if self._holds(owned) else []
            at_once([*again, (self._doubted.pop, owned, None)])
        return list(self._marked)
