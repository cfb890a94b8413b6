"""Counts which rows of the three transition tables were taken (docs/rebalance.md, three machines).

Laws
1. The tables stay what they are: a row that a table does not have still raises.
2. They are counted for as long as `counted_transitions` is open, in this process, and put back then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from instride.core.group import membership, ownership
from instride.core.group.protocol import RebalanceProtocol
from instride.core.network import coordinator

__all__ = ["Rows", "TransitionCounts", "counted_transitions", "never_taken"]

Rows = Mapping[str, Mapping[str, int]]
"""By table: how often each row, "STATE + INPUT", was taken; 0 for those that never were."""


class _Counting(dict[Any, Any]):
    """A table that counts the rows that are read."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        super().__init__(table)
        self.taken: Counter[Any] = Counter()

    def __getitem__(self, row: Any) -> Any:
        found = super().__getitem__(row)
        self.taken[row] += 1
        return found


class TransitionCounts:
    """How often each row was taken, by table: "coordinator", "group", "ownership" (cooperative)."""

    def __init__(self) -> None:
        self.tables: dict[str, _Counting] = {
            "coordinator": _Counting(coordinator.TRANSITIONS),
            "group": _Counting(membership.TRANSITIONS),
            "ownership": _Counting(ownership.TRANSITIONS[RebalanceProtocol.COOPERATIVE]),
        }

    def rows(self) -> Rows:
        return {
            name: {f"{state.name} + {given.name}": table.taken[state, given] for state, given in table}
            for name, table in self.tables.items()
        }


def never_taken(rows: Rows) -> list[str]:
    """Those that no history took, each with its table."""
    return [f"{table}: {row}" for table, taken in rows.items() for row, count in taken.items() if not count]


@contextmanager
def counted_transitions() -> Iterator[TransitionCounts]:
    """Law 2."""
    counts = TransitionCounts()
    before = coordinator.TRANSITIONS, membership.TRANSITIONS
    cooperative = ownership.TRANSITIONS[RebalanceProtocol.COOPERATIVE]
    vars(coordinator)["TRANSITIONS"] = counts.tables["coordinator"]
    vars(membership)["TRANSITIONS"] = counts.tables["group"]
    ownership.TRANSITIONS[RebalanceProtocol.COOPERATIVE] = counts.tables["ownership"]
    try:
        yield counts
    finally:
        vars(coordinator)["TRANSITIONS"], vars(membership)["TRANSITIONS"] = before
        ownership.TRANSITIONS[RebalanceProtocol.COOPERATIVE] = cooperative
