"""The benchmark of Spark as a table: for the terminal, and as a section of docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.load import FOREIGN_MOST, void_cell, void_remark
from benchmarks.spark_batches import Query
from benchmarks.spark_cost import Cost

ROOT = Path(__file__).parents[1]
Rates = dict[int, tuple[int, dict[str, list[Cost]]]]
"""By the values' bytes: how many rows, and by way each round."""
Batches = dict[int, dict[str, list[Query]]]
"""By partitions, by source, each round."""

Runs = list[dict[str, float]]
Measured = TypeVar("Measured", Cost, Query)

_BASES = {
    "fused": "connector + mapInArrow",
    "Pipeline, rows dropped": "bare mapInArrow, rows dropped",
}
_LEAST = {
    ("instride", 100): 3.0,
    ("instride", 1000): 3.0,
    ("mapInArrow reader", 100): 4.0,
    ("fused", 100): 10.0,
    ("fused", 1000): 5.0,
    ("Pipeline, rows dropped", 100): 0.8,
}
"""Times the rate of what it is measured against."""
_MOST_CPU = (0.4, 0.65)
"""Seconds for a million rows of 100 bytes: Python, and with the JVM."""
_MOST_SECONDS = {12: 1.0, 1: 1.6}
"""By partitions, times the connector's median micro-batch."""


class Line(NamedTuple):
    """A row of the table. ratio: to what it is measured against. goal: and whether it was reached, as text.

    runs: what void runs are told of.
    """

    measure: str
    figure: str
    ratio: str
    goal: str
    runs: Runs


def lines(rates: Rates, batches: Batches) -> Iterator[Line]:
    for size, (rows, costs) in rates.items():
        for name, rounds in costs.items():
            yield _rate(name, size, rows, rounds, costs[_BASES.get(name, "connector")])
        if size == 100:
            for name in ("connector", "instride"):
                yield from _cpu(name, rows, costs[name])
    for partitions, of in batches.items():
        for name, each in of.items():
            yield _batch(name, partitions, each, of["connector"])


def _rate(name: str, size: int, rows: int, rounds: list[Cost], base: list[Cost]) -> Line:
    found, compared = counted(rounds), counted(base)
    speeds = [rows / each.seconds / 1e6 for each in found]
    figure = f"{statistics.median(speeds):.2f} M rows/s ({min(speeds):.2f} to {max(speeds):.2f})"
    ratio = statistics.median(each.seconds for each in compared) / statistics.median(each.seconds for each in found)
    least = _LEAST.get((name, size))
    goal = "" if least is None else _judged(f"at least {least:g} x", reached=ratio >= least)
    return Line(f"{name}, {size} B", figure, f"{ratio:.2f} x", goal, _runs(rounds))


def _cpu(name: str, rows: int, rounds: list[Cost]) -> Iterator[Line]:
    millions, found = rows / 1e6, counted(rounds)
    python = statistics.median(each.python for each in found) / millions
    both = statistics.median(each.python + each.jvm for each in found) / millions
    for what, spent, most in (("Python", python, _MOST_CPU[0]), ("Python and JVM", both, _MOST_CPU[1])):
        goal = _judged(f"at most {most:g} s", reached=spent <= most) if name == "instride" else ""
        measure = f"{name}, CPU for a million rows of 100 B, {what}"
        yield Line(measure, f"{spent:.2f} s", "", goal, _runs(rounds))


def _batch(name: str, partitions: int, rounds: list[Query], base: list[Query]) -> Line:
    seconds, compared = ([each for one in counted(which) for each in one.batches] for which in (rounds, base))
    median = statistics.median(seconds)
    ratio, most = median / statistics.median(compared), _MOST_SECONDS[partitions]
    goal = "" if name == "connector" else _judged(f"at most {most:g} x", reached=ratio <= most)
    figure = f"{1000 * median:.0f} ms ({len(seconds)} batches, 9 of 10 within {1000 * _ninth(seconds):.0f})"
    measure = f"{name}, half of the micro-batches, partitions: {partitions}"
    return Line(measure, figure, f"{ratio:.2f} x", goal, _runs(rounds))


def counted(runs: list[Measured]) -> list[Measured]:
    """Those that are not void. All, where there is none: the table says so."""
    return [each for each in runs if each.foreign <= FOREIGN_MOST] or runs


def _runs(rounds: list[Cost] | list[Query]) -> Runs:
    return [{"foreign": each.foreign} for each in rounds]


def _ninth(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 9 // 10]


def _judged(goal: str, *, reached: bool) -> str:
    return f"{goal}: {'reached' if reached else '**missed**'}"


def show(rates: Rates, batches: Batches, foreign: float) -> None:
    print(f"\nOther work took {100 * foreign:.0f} % of the machine.")
    for line in lines(rates, batches):
        goal = line.goal.replace("*", "")
        print(f"{line.measure:55} {line.figure:45} {line.ratio:>8}  {goal}{void_remark(line.runs)}")


_TITLE, _BEFORE, _AFTER = "## On Spark", "## At a canned broker", "<!-- on Spark: end -->"
_RUNS = "docs/benchmarks/spark.json"


def write_page(rates: Rates, batches: Batches, foreign: float, command: str) -> None:
    """A section of docs/benchmarks.md: made, or made again up to the mark, behind which its text stays."""
    page, runs = ROOT / "docs" / "benchmarks.md", ROOT / _RUNS
    found = {"rates": {size: {"rows": rows, **costs} for size, (rows, costs) in rates.items()}, "batches": batches}
    runs.write_text(json.dumps(found, indent=1) + "\n")
    text = page.read_text()
    start = text.index(_TITLE) if _TITLE in text else text.index(_BEFORE)
    end = text.index(_AFTER) if _TITLE in text else start
    section = _section(rates, batches, foreign, command)
    page.write_text(text[:start] + section + (text[end:] if _TITLE in text else f"{_AFTER}\n\n{text[end:]}"))


def _section(rates: Rates, batches: Batches, foreign: float, command: str) -> str:
    rounds = max([len(each) for _, costs in rates.values() for each in costs.values()], default=0)
    head = [
        _TITLE,
        "",
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%d %B %Y')}; "
        f"`python -m benchmarks spark {command}`. A row shows the median of {rounds} rounds, with",
        "the least and the most; a first round does not count. Spark's own connector is version 4.2.0, tuned; all take",
        "turns in one session. A ratio is to the connector. Two have another base: the fused form's is to the",
        "connector followed by mapInArrow, the pipeline's is to the bare mapInArrow.",
        f"Other work took {100 * foreign:.0f} % of the machine. Medians leave out runs beside which it took over 5 %.",
        f"[Every run](benchmarks/{Path(_RUNS).name}).",
        "",
        "| | | ratio | goal |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *map(_row, lines(rates, batches)), "", ""])


def _row(line: Line) -> str:
    return f"| {line.measure}{void_cell(line.runs)} | {line.figure} | {line.ratio} | {line.goal} |"
