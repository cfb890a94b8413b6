"""The demo's figures, for a terminal and for the page: each run judged by the same measures, side by side.

The page is one HTML file that needs nothing else, no network either.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from demo.history import Handover, History
from demo.verdict import Verdict
from instride.testing.check import Violation, WithoutOwner

EXAMPLES: Final = 5
PAGE_WIDTH: Final = 170
PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>instride: the demo</title></head>
<body><img width="100%" alt="Timeline of ownership and throughput" src="data:image/svg+xml;base64,{picture}">
{tables}</body></html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run: who, what happened, and what came out. violations, ownerless: of its history."""

    name: str
    run: History
    verdict: Verdict
    violations: tuple[Violation, ...] = ()
    ownerless: tuple[WithoutOwner, ...] = ()

    @property
    def longest_delay(self) -> Handover | None:
        """The hand-over that was delayed longest; of those that went together, the one that the others waited for."""
        return max(self.run.handovers, key=lambda each: (round(each.delay, 1), self._own_work(each)), default=None)

    def _own_work(self, handover: Handover) -> bool:
        cause = self.run.cause(handover)
        return cause is not None and cause.partition == handover.partition


def rows_text(rows: Sequence[int]) -> str:
    """How many they are, and the first few of them."""
    if not rows:
        return "none"
    rest = ", ..." if len(rows) > EXAMPLES else ""
    return f"{len(rows):,} (rows {', '.join(map(str, rows[:EXAMPLES]))}{rest})"


def _violations(result: Result) -> str:
    numbers = sorted({each.number for each in result.violations})
    return f"{len(result.violations)} ({', '.join(numbers)})" if numbers else "none"


def _gap(result: Result) -> str:
    if (gap := result.run.longest_gap()) is None:
        return "none"
    return f"{gap.length:.1f} s (partition {gap.partition}, from {gap.start - result.run.start:.1f} s)"


def _longest_delay(result: Result) -> str:
    if (longest := result.longest_delay) is None:
        return "none"
    return f"{longest.delay:.1f} s, partition {longest.partition}, by {result.run.cause(longest) or 'nothing'}"


def _ownerless(result: Result) -> str:
    if not result.ownerless:
        return "none"
    longest = max(result.ownerless, key=lambda each: each.seconds)
    return f"{longest.seconds:.2f} s, partition {longest.partition.partition}, of {len(result.ownerless)}"


MEASURES: Final[dict[str, Callable[[Result], object]]] = {
    "every flight exactly once": lambda r: "yes" if r.verdict.exactly_once else "NO",
    "flights in the source": lambda r: f"{r.verdict.source:,}",
    "flights written": lambda r: f"{r.verdict.written:,}",
    "missing": lambda r: rows_text(r.verdict.missing),
    "duplicated": lambda r: rows_text(r.verdict.duplicated),
    "altered": lambda r: rows_text(r.verdict.altered),
    "not in the source": lambda r: rows_text(r.verdict.foreign),
    "violations in its history": _violations,
    "longest gap of a partition that was not moving": _gap,
    "flights written in the busiest second": lambda r: f"{r.run.rate().max():,.0f}",
    "hand-overs": lambda r: len(r.run.handovers),
    "longest delay of a hand-over": _longest_delay,
    "longest time without an owner": _ownerless,
}
"""The comparison, most important first."""


HEADINGS: Final = ("partitions", "from", "to", "requested at", "delayed", "by", "next owner after")


def handover_rows(result: Result) -> Iterator[tuple[str, ...]]:
    """A row for each hand-over, under HEADINGS; those that went alike share one. Times are from the start."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for each in result.run.handovers:
        times = (each.requested - result.run.start, each.delay, each.resumed - each.released)
        requested, delayed, after = (f"{seconds:.1f} s" for seconds in times)
        cause = str(result.run.cause(each) or "nothing")
        alike.setdefault((each.before, each.after, requested, delayed, cause, after), []).append(each.partition)
    for texts, partitions in alike.items():
        yield ", ".join(map(str, partitions)), *texts


def print_report(results: Sequence[Result], console: Console) -> None:
    """Print the comparison and every run's hand-overs."""
    rows = [(label, *(str(measure(each)) for each in results)) for label, measure in MEASURES.items()]
    _print_table("Verdict", ("", *(result.name for result in results)), rows, console)
    for result in results:
        _print_table(f"Hand-overs with {result.name}", HEADINGS, handover_rows(result), console)


def _print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], console: Console) -> None:
    table = Table(*headings, title=title, title_justify="left", title_style="bold")
    for row in rows:
        table.add_row(*row)
    console.print(table, markup=False)


def page(results: Sequence[Result], svg: bytes) -> str:
    """The page's whole text. svg: the picture."""
    console = Console(record=True, file=io.StringIO(), width=PAGE_WIDTH)
    print_report(results, console)
    tables = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    return PAGE.format(picture=base64.b64encode(svg).decode(), tables=tables)
