"""The demo's figures, for a terminal and for the page: each run judged by the same measures, side by side.

Laws
1. A figure is computed from a history or a verdict, here and nowhere else; those who show it only show it.
2. Only hand-overs that somebody took up count; what the last one puts down when everything is done is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from demo.gaps import Gap, longest_gap
from demo.history import Handover, History
from demo.verdict import Verdict
from instride.testing.check import Violation, WithoutOwner

__all__ = ["Figure", "Result", "figures", "handover_rows", "print_report"]

LONG_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run: who, what happened, and what came out. violations, ownerless: of its history. ours: see `Contender`."""

    name: str
    run: History
    verdict: Verdict
    violations: tuple[Violation, ...] = ()
    ownerless: tuple[WithoutOwner, ...] = ()
    ours: bool = False

    @property
    def handovers(self) -> list[Handover]:
        return [each for each in self.run.handovers if each.after is not None]

    @property
    def longest_delay(self) -> Handover | None:
        """The hand-over that was delayed longest; of those that went together, the one that the others waited for."""
        return max(
            self.handovers, key=lambda each: (round(each.delay or 0.0, 1), _held_by_own_work(each)), default=None
        )

    @property
    def gap(self) -> Gap | None:
        return longest_gap(self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the comparison: a label and one text for each result."""

    label: str
    texts: tuple[str, ...]


def _held_by_own_work(handover: Handover) -> bool:
    return handover.cause is not None and handover.cause.works_on(handover.partition)


def figures(results: Sequence[Result]) -> list[Figure]:
    """The comparison, most important first."""
    measures: dict[str, Callable[[Result], str]] = {
        "every flight exactly once": lambda r: "yes" if r.verdict.exactly_once else "NO",
        "flights in the source": lambda r: f"{r.verdict.source:,}",
        "flights written": lambda r: f"{r.verdict.written:,}",
        "missing": lambda r: str(r.verdict.missing),
        "duplicated": lambda r: str(r.verdict.duplicated),
        "altered": lambda r: str(r.verdict.altered),
        "not in the source": lambda r: str(r.verdict.foreign),
        "violations in its history": _violations,
        "longest gap of a partition that was not moving": _gap,
        "hand-overs": lambda r: str(len(r.handovers)),
        f"hand-overs delayed by {LONG_SECONDS:.0f} s or more": lambda r: str(len(_long(r))),
        "longest delay of a hand-over": _longest_delay,
        "longest time without an owner": _ownerless,
    }
    return [
        Figure(label=label, texts=tuple(measure(result) for result in results)) for label, measure in measures.items()
    ]


def _violations(result: Result) -> str:
    numbers = sorted({each.number for each in result.violations})
    return f"{len(result.violations)} ({', '.join(numbers)})" if numbers else "none"


def _gap(result: Result) -> str:
    gap = result.gap
    if gap is None:
        return "none"
    own = f", {gap.own_work:.1f} s of it its own work" if gap.own_work >= LONG_SECONDS else ""
    return f"{gap.length:.1f} s (partition {gap.partition}, from {gap.start - result.run.start:.1f} s{own})"


def _long(result: Result) -> list[Handover]:
    return [each for each in result.handovers if each.delay is not None and each.delay >= LONG_SECONDS]


def _longest_delay(result: Result) -> str:
    longest = result.longest_delay
    if longest is None:
        return "none"
    return f"{longest.delay or 0.0:.1f} s, partition {longest.partition}, by {_cause(longest)}"


def _ownerless(result: Result) -> str:
    longest = max(result.ownerless, key=lambda each: each.seconds, default=None)
    if longest is None:
        return "none"
    return f"{longest.seconds:.2f} s, partition {longest.partition.partition}, of {len(result.ownerless)}"


def _cause(handover: Handover) -> str:
    return "nothing" if handover.cause is None else str(handover.cause)


HANDOVER_HEADINGS: Final = ("partitions", "from", "to", "asked for at", "delayed", "by", "next owner after")


def handover_rows(result: Result) -> Iterator[tuple[str, ...]]:
    """A row for each hand-over, under HANDOVER_HEADINGS; those that went alike share one. Times are from the start."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for each in result.handovers:
        alike.setdefault(_handover_texts(result, each), []).append(each.partition)
    for texts, partitions in alike.items():
        yield ", ".join(map(str, partitions)), *texts


def _handover_texts(result: Result, handover: Handover) -> tuple[str, ...]:
    released = handover.requested if handover.released is None else handover.released
    resumed = released if handover.resumed is None else handover.resumed
    how = " (given back)" if handover.reassigned else " (lost)" if handover.lost else ""
    return (
        handover.before,
        f"{handover.after}{how}",
        f"{handover.requested - result.run.start:.1f} s",
        f"{handover.delay or 0.0:.1f} s",
        _cause(handover),
        f"{max(0.0, resumed - released):.1f} s",
    )


def print_report(results: Sequence[Result], console: Console) -> None:
    """Print the comparison and every run's hand-overs."""
    table = Table(title="Verdict", title_justify="left", title_style="bold")
    table.add_column("")
    for result in results:
        table.add_column(result.name)
    for figure in figures(results):
        table.add_row(figure.label, *figure.texts)
    console.print(table, markup=False)
    for result in results:
        details = Table(title=f"Hand-overs with {result.name}", title_justify="left", title_style="bold")
        for heading in HANDOVER_HEADINGS:
            details.add_column(heading)
        for row in handover_rows(result):
            details.add_row(*row)
        console.print(details, markup=False)
