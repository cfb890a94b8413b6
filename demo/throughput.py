"""The lower part of the picture: records a second, by application, and of the partitions that stay or move.

Laws
1. All runs have one scale: three times what usually flows. Where more came, the number stands at the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from demo.history import History
from demo.palette import GRID, INK, MOVING, STAYING, WAITING, clean, ink
from demo.series import bin_times, rate, worked_by

__all__ = ["draw_by_app", "draw_by_motion", "usual_top"]

BIN: Final = 1.0
TOP_FACTOR: Final = 3.0


def usual_top(runs: Sequence[History]) -> float:
    """The upper end of the scale for these runs, in records a second."""
    totals = [rate(run, lambda _: True, seconds=BIN) for run in runs]
    flowing = np.concatenate([total[total > 0] for total in totals]) if totals else np.zeros(0)
    return min(float(np.median(flowing)) * TOP_FACTOR, float(flowing.max()) * 1.1) if len(flowing) else 1.0


def draw_by_app(axes: Axes, run: History, top: float) -> None:
    """Records a second of each application, on top of each other."""
    times = bin_times(run, seconds=BIN)
    floor = np.zeros(len(times))
    for app in run.apps:
        ceiling = floor + rate(run, worked_by(app), seconds=BIN)
        axes.fill_between(times, floor, ceiling, step="mid", color=ink(app), alpha=0.85, linewidth=0)
        floor = ceiling
    _frame(axes, times, floor, top)


def draw_by_motion(axes: Axes, run: History, top: float) -> None:
    """Records a second of the partitions that stay and of those that move; the ground shows who waits for whom."""
    times = bin_times(run, seconds=BIN)
    staying = rate(run, lambda each: not run.was_moving(each.partition, each.t), seconds=BIN)
    moving = rate(run, lambda each: run.was_moving(each.partition, each.t), seconds=BIN)
    for handover in run.handovers:
        if handover.after is not None and handover.released is not None:
            start, end = handover.requested - run.start, handover.released - run.start
            axes.axvspan(start, end, color=WAITING, alpha=0.07, linewidth=0)
    axes.fill_between(times, 0, staying, step="mid", color=STAYING, alpha=0.18, linewidth=0)
    axes.step(times, staying, where="mid", color=STAYING, linewidth=1.6)
    axes.step(times, moving, where="mid", color=MOVING, linewidth=1.3, linestyle=(0, (2, 1)))
    _frame(axes, times, np.maximum(staying, moving), top)


def _frame(axes: Axes, times: np.ndarray, values: np.ndarray, top: float) -> None:
    clean(axes)
    axes.set_ylim(0, top)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for at, value in zip(times, values, strict=True):
        if value > top:
            axes.text(at + BIN / 2, top, f" ↑ {value:,.0f}", va="top", fontsize=8.5, color=INK)
