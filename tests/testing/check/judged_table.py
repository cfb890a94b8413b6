"""The table of docs/histories.md that says which invariant is judged in which history, or why it is not.

    PYTHONPATH=src python tests/testing/check/judged_table.py     writes it into the page

Laws
1. Whether something is judged is what the judge itself says of histories of that source: simulated here and now, or
   recorded on a real Kafka (`recorded`).
2. What is not judged has a reason, and what is judged has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from instride.testing.check import INVARIANTS, Event, Judge, Parameters, read_histories
from instride.testing.simulation import plan_for, run

__all__ = ["PAGE", "RECORDED", "SOURCES", "WHY_NOT", "judged", "page_with", "table"]

PAGE: Final = Path(__file__).parents[3] / "docs" / "histories.md"
RECORDED: Final = Path(__file__).parent / "recorded"
SOURCES: Final = ("calm", "storm", "slow", "faults", "kafka", "mixed", "demo")
_BEGIN: Final = "<!-- made by tests/testing/check/judged_table.py: begin -->"
_END: Final = "<!-- made by tests/testing/check/judged_table.py: end -->"
_SEEDS: Final = range(300)

_CALM_ONLY: Final = "it is promised where nothing fails and nobody is late"
_FAULTLESS_ONLY: Final = "it is promised where nothing fails: a broken connection stops its partitions"
_OUTSIDE: Final = "of a peer a history has only records and partitions"
WHY_NOT: Final[dict[str, dict[str, str]]] = {
    "slow": dict.fromkeys(("P3", "P4"), _CALM_ONLY),
    "faults": dict.fromkeys(("P3", "P4"), _CALM_ONLY) | dict.fromkeys(("L1", "L2", "L5"), _FAULTLESS_ONLY),
    "mixed": dict.fromkeys(("S4", "S5", "S6", "S9", "S10", "L1", "L2", "L4", "L5", "R1", "P2"), _OUTSIDE),
    "demo": {
        "L1": "only its end says which records were sent",
        "L5": "no commit fails in the demo",
        "R1": "the demo ends before it has enough samples; the soak on a real Kafka takes them",
    },
}


@cache
def judged(source: str) -> frozenset[str]:
    """Law 1."""
    found: set[str] = set()
    for history in _histories(source):
        found |= set(_by(history))
        if len(found) + len(WHY_NOT.get(source, {})) == len(INVARIANTS):
            break  # more would tell no more
    return frozenset(found)


def _by(history: Iterable[Event]) -> tuple[str, ...]:
    judge = Judge()
    for event in history:
        judge.take(event)
    assert judge.end() == []
    return judge.judged


def _histories(source: str) -> Iterable[Iterable[Event]]:
    if source in ("kafka", "mixed", "demo"):
        for path in sorted(RECORDED.glob(f"{source}*.jsonl")):
            yield (each.event for each in read_histories([path]))
    else:
        for seed in _SEEDS:
            if plan_for(seed).kind == source:
                history = run(plan_for(seed))
                assert Parameters.of(history.events[0].detail).kind == source
                yield history


def table() -> str:
    """In Markdown, with the reasons below it."""
    reasons = list(dict.fromkeys(reason for each in WHY_NOT.values() for reason in each.values()))
    lines = [
        "| | " + " | ".join(["simulated: calm", *SOURCES[1:4], "real Kafka", "mixed groups", "demo"]) + " |",
        "|---|" + "---|" * len(SOURCES),
    ]
    for number in INVARIANTS:
        cells = [_cell(number, source, reasons) for source in SOURCES]
        lines.append(f"| {number} | {' | '.join(cells)} |")
    notes = [f"{place}. {reason}" for place, reason in enumerate(reasons, start=1)]
    return "\n".join([*lines, "", "Not judged, since", "", *notes])


def _cell(number: str, source: str, reasons: list[str]) -> str:
    """Law 2."""
    why = WHY_NOT.get(source, {}).get(number)
    assert (why is None) == (number in judged(source)), (
        f"{number} in {source}: {why or 'not judged, and nobody says why'}"
    )
    return "yes" if why is None else f"no ({1 + reasons.index(why)})"


def page_with(text: str) -> str:
    """The page, with this between its two marks."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with(table()), encoding="utf-8")
