"""The benchmark of Spark as a table: for the terminal, and as a section of docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.spark_cost import Cost

ROOT = Path(__file__).parents[1]
Rates = dict[int, tuple[int, dict[str, list[Cost]]]]
"""By the values' bytes: how many rows, and by way each round."""
Batches = dict[int, dict[str, list[float]]]
"""By partitions, by source, the seconds of each micro-batch."""

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
    """A row of the table. ratio: to what it is measured against. goal: and whether it was reached, as text."""

    measure: str
    figure: str
    ratio: str = ""
    goal: str = ""


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
    speeds = [rows / each.seconds / 1e6 for each in rounds]
    figure = f"{statistics.median(speeds):.2f} M rows/s ({min(speeds):.2f} to {max(speeds):.2f})"
    ratio = statistics.median(each.seconds for each in base) / statistics.median(each.seconds for each in rounds)
    least = _LEAST.get((name, size))
    goal = "" if least is None else _judged(f"at least {least:g} x", reached=ratio >= least)
    return Line(f"{name}, {size} B", figure, f"{ratio:.2f} x", goal)


def _cpu(name: str, rows: int, rounds: list[Cost]) -> Iterator[Line]:
    millions = rows / 1e6
    python = statistics.median(each.python for each in rounds) / millions
    both = statistics.median(each.python + each.jvm for each in rounds) / millions
    for what, spent, most in (("Python", python, _MOST_CPU[0]), ("Python and JVM", both, _MOST_CPU[1])):
        goal = _judged(f"at most {most:g} s", reached=spent <= most) if name == "instride" else ""
        yield Line(f"{name}, CPU for a million rows of 100 B, {what}", f"{spent:.2f} s", "", goal)


def _batch(name: str, partitions: int, seconds: list[float], base: list[float]) -> Line:
    median = statistics.median(seconds)
    ratio, most = median / statistics.median(base), _MOST_SECONDS[partitions]
    goal = "" if name == "connector" else _judged(f"at most {most:g} x", reached=ratio <= most)
    figure = f"{1000 * median:.0f} ms ({len(seconds)} batches, 9 of 10 within {1000 * _ninth(seconds):.0f})"
    return Line(f"{name}, half of the micro-batches, partitions: {partitions}", figure, f"{ratio:.2f} x", goal)


def _ninth(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 9 // 10]


def _judged(goal: str, *, reached: bool) -> str:
    return f"{goal}: {'reached' if reached else '**missed**'}"


def show(rates: Rates, batches: Batches, foreign: float) -> None:
    print(f"\nOther work took {100 * foreign:.0f} % of the machine.")
    for line in lines(rates, batches):
        print(f"{line.measure:55} {line.figure:45} {line.ratio:>8}  {line.goal.replace('*', '')}")


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
        f"Other work took {100 * foreign:.0f} % of the machine.",
        f"[Every run](benchmarks/{Path(_RUNS).name}).",
        "",
        "| | | ratio | goal |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *(f"| {' | '.join(each)} |" for each in lines(rates, batches)), "", ""])
