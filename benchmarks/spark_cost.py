"""What work in a Spark session on this machine costs: the CPU of its JVM, and of that JVM's Python processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.load import ForeignLoad

_TICK = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """seconds: of the clock. python, jvm: of CPU. The driver's own process, which only waits, is left out.

    foreign: the share of the machine that other work took meanwhile.
    """

    seconds: float
    python: float
    jvm: float
    foreign: float


def measured(spark: Any, work: Callable[[], float | None]) -> Cost:
    """Of the work, which may say itself how many seconds count."""
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    load = ForeignLoad()
    began, before = time.perf_counter(), _cpu(jvm)
    seconds = work() or time.perf_counter() - began
    after = _cpu(jvm)
    return Cost(seconds, after[0] - before[0], after[1] - before[1], load.share())


def _cpu(jvm: int) -> tuple[float, float]:
    """Of all that descend of the JVM, those that have ended too, and of the JVM itself."""
    python = own = 0.0
    parents: dict[int, int] = {}
    ticks: dict[int, list[int]] = {}
    for number in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended since
            continue
        parents[number], ticks[number] = int(fields[1]), [int(each) for each in fields[11:15]]
    for number, (user, system, of_ended_user, of_ended_system) in ticks.items():
        if number == jvm:
            own, python = user + system, python + of_ended_user + of_ended_system
        elif _descends(number, jvm, parents):
            python += user + system + of_ended_user + of_ended_system
    return python / _TICK, own / _TICK


def _descends(number: int, root: int, parents: dict[int, int]) -> bool:
    while number and number != root:
        number = parents.get(number, 0)
    return bool(number)
