"""The demo's figures, for a terminal and for the page: each run judged by the same measures, side by side.

Laws
1. A figure is computed from a history or a verdict, here and nowhere else.
2. Only hand-overs that somebody took up count; what the last one puts down when everything is done is none.
3. The page is one HTML file that needs nothing else, no network either.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from demo.history import Gap, Handover, History
from demo.verdict import Verdict
from instride.testing.check import Violation, WithoutOwner

__all__ = ["Result", "figures", "handover_rows", "page", "print_report"]

LONG_SECONDS: Final = 1.0
PAGE_WIDTH: Final = 170
PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>instride: the demo</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2.5rem auto; max-width: 1500px; padding: 0 1.5rem; }}
p {{ max-width: 60rem; }} img {{ width: 100%; }} pre {{ line-height: 1.2; overflow-x: auto; }}
</style></head><body><h1>336,776 flights, two applications, one rebalance each way</h1>
<p>Each lane is a partition. Its ground is the colour of the application that owns it, yellow while its revocation is
requested and it is kept because work on it is in progress; the bars are the records that were finished. A lane without
bars stands still. Application B joins while A is at work on one flight that takes long, and leaves again.</p>
<p>All runs have the same flights at the same pace, and the same work. A client with a revoke callback must wait there
until all work on the partitions that move has ended; while it waits there, nobody polls.</p>
<img alt="Timeline of ownership and throughput" src="data:image/svg+xml;base64,{picture}">
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
    def handovers(self) -> list[Handover]:
        return [each for each in self.run.handovers if each.after is not None]

    @property
    def longest_delay(self) -> Handover | None:
        """The hand-over that was delayed longest; of those that went together, the one that the others waited for."""
        return max(self.handovers, key=lambda each: (round(each.delay, 1), self._own_work(each)), default=None)

    @property
    def gap(self) -> Gap | None:
        return self.run.longest_gap()

    def cause(self, handover: Handover) -> str:
        return str(self.run.cause(handover) or "nothing")

    def _own_work(self, handover: Handover) -> bool:
        cause = self.run.cause(handover)
        return cause is not None and cause.partition == handover.partition


def _violations(result: Result) -> str:
    numbers = sorted({each.number for each in result.violations})
    return f"{len(result.violations)} ({', '.join(numbers)})" if numbers else "none"


def _gap(result: Result) -> str:
    if (gap := result.gap) is None:
        return "none"
    own = f", {gap.own_work:.1f} s of it its own work" if gap.own_work >= LONG_SECONDS else ""
    return f"{gap.length:.1f} s (partition {gap.partition}, from {gap.start - result.run.start:.1f} s{own})"


def _longest_delay(result: Result) -> str:
    longest = result.longest_delay
    return f"{longest.delay:.1f} s, partition {longest.partition}, by {result.cause(longest)}" if longest else "none"


def _ownerless(result: Result) -> str:
    longest = max(result.ownerless, key=lambda each: each.seconds, default=None)
    if longest is None:
        return "none"
    return f"{longest.seconds:.2f} s, partition {longest.partition.partition}, of {len(result.ownerless)}"


MEASURES: Final[dict[str, Callable[[Result], object]]] = {
    "every flight exactly once": lambda r: "yes" if r.verdict.exactly_once else "NO",
    "flights in the source": lambda r: f"{r.verdict.source:,}",
    "flights written": lambda r: f"{r.verdict.written:,}",
    "missing": lambda r: r.verdict.missing,
    "duplicated": lambda r: r.verdict.duplicated,
    "altered": lambda r: r.verdict.altered,
    "not in the source": lambda r: r.verdict.foreign,
    "violations in its history": _violations,
    "longest gap of a partition that was not moving": _gap,
    "hand-overs": lambda r: len(r.handovers),
    f"hand-overs delayed by {LONG_SECONDS:.0f} s or more": lambda r: sum(m.delay >= LONG_SECONDS for m in r.handovers),
    "longest delay of a hand-over": _longest_delay,
    "longest time without an owner": _ownerless,
}
"""The comparison, most important first."""


def figures(results: Sequence[Result]) -> dict[str, list[str]]:
    """By label, a text for each result."""
    return {label: [str(measure(result)) for result in results] for label, measure in MEASURES.items()}


HEADINGS: Final = ("partitions", "from", "to", "requested at", "delayed", "by", "next owner after")


def handover_rows(result: Result) -> Iterator[tuple[str, ...]]:
    """A row for each hand-over, under HEADINGS; those that went alike share one. Times are from the start."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for each in result.handovers:
        how = f" ({each.how})" if each.how else ""
        texts: tuple[str, ...] = (
            *(each.before, f"{each.after}{how}", f"{each.requested - result.run.start:.1f} s", f"{each.delay:.1f} s"),
            *(result.cause(each), f"{max(0.0, (each.resumed or 0.0) - (each.released or 0.0)):.1f} s"),
        )
        alike.setdefault(texts, []).append(each.partition)
    for texts, partitions in alike.items():
        yield ", ".join(map(str, partitions)), *texts


def print_report(results: Sequence[Result], console: Console) -> None:
    """Print the comparison and every run's hand-overs."""
    rows = [(label, *texts) for label, texts in figures(results).items()]
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
