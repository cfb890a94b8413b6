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

from instride._core import ownership
from instride._core.network import coordinator, group
from instride._core.ownership import RebalanceProtocol

__all__ = ["Rows", "TransitionCounts", "counted_transitions", "never_taken"]

_JOINED = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

_NOT_OF_EAGER = frozenset(
    f"ownership, eager: {row}"
    for row in (
        "OWNED + DELAYED",
        "OWNED + REASSIGNED",
        "REVOKE_NEXT + REVOCATION_REQUESTED",
        "REVOKE_NEXT + REASSIGNED",
        "REVOKE_THEREAFTER + REASSIGNED",
        "COMPLETING + REVOCATION_REQUESTED",
        "COMPLETING + REASSIGNED",
    )
)
"""From an eager member everything is requested once, and it owns nothing when it is assigned something: nothing is
requested again or reassigned. The table has these rows because its columns differ in one thing only."""

_TOO_RARE = frozenset(
    (
        # Some six times in ten thousand histories.
        "ownership, eager: COMPLETING + LOST",
        # A member joined again and was given the generation that it had, of which its application hears meanwhile. Each
        # Join has its member's generation since, so that brokers rarely take one for the same once more.
        "group: COMPLETING_REBALANCE + TAKEN",
    )
)
"""A run without these says nothing."""

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
    """How often each row was taken, by table: "coordinator", "group", each column of ownership that can be joined."""

    def __init__(self) -> None:
        self.tables: dict[str, _Counting] = {
            "coordinator": _Counting(coordinator.TRANSITIONS),
            "group": _Counting(group.TRANSITIONS),
            **{f"ownership, {each.name.lower()}": _Counting(ownership.TRANSITIONS[each]) for each in _JOINED},
        }

    def rows(self) -> Rows:
        return {
            name: {f"{state.name} + {given.name}": table.taken[state, given] for state, given in table}
            for name, table in self.tables.items()
        }


def never_taken(rows: Rows) -> list[str]:
    """Those that no history took though one can, each with its table."""
    never = [f"{table}: {row}" for table, taken in rows.items() for row, count in taken.items() if not count]
    return [each for each in never if each not in _NOT_OF_EAGER | _TOO_RARE]


@contextmanager
def counted_transitions() -> Iterator[TransitionCounts]:
    """Law 2."""
    counts = TransitionCounts()
    before = coordinator.TRANSITIONS, group.TRANSITIONS
    columns = dict(ownership.TRANSITIONS)
    vars(coordinator)["TRANSITIONS"] = counts.tables["coordinator"]
    vars(group)["TRANSITIONS"] = counts.tables["group"]
    for each in _JOINED:
        ownership.TRANSITIONS[each] = counts.tables[f"ownership, {each.name.lower()}"]
    try:
        yield counts
    finally:
        vars(coordinator)["TRANSITIONS"], vars(group)["TRANSITIONS"] = before
        ownership.TRANSITIONS.update(columns)
