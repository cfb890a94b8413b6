"""The upper part of the picture: one lane for each partition.

Laws
1. The ground of a lane is its owner's colour, and that of its state where that is not just owned.
2. The strong ridge on it is the lane's own throughput: a lane without a ridge is owned and stands still.
3. All lanes have one scale. A ridge is cut at the lane's height: what was held back comes as a peak.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes

from demo.history import History
from demo.palette import INK, STATE_GROUND, clean, ground, ink
from demo.report import Result
from demo.series import bin_times, rate, worked_by

__all__ = ["draw_lanes"]

BIN: Final = 1.0
HEIGHT: Final = 0.86
NOTE_SECONDS: Final = 2.0
LEAST_WIDTH: Final = 0.05


def draw_lanes(axes: Axes, result: Result) -> None:
    """Draw a result's lanes, with the scenario's marks and a word on what matters most."""
    run = result.run
    for span in run.spans:
        width = max(span.end - span.start, LEAST_WIDTH)
        colour = STATE_GROUND.get(span.state) or ground(span.app)
        bottom = span.partition - HEIGHT / 2
        axes.broken_barh([(span.start - run.start, width)], (bottom, HEIGHT), facecolor=colour, linewidth=0)
    _ridges(axes, run)
    _marks(axes, run)
    _notes(axes, result)
    axes.set_yticks(run.partitions, [str(partition) for partition in run.partitions])
    axes.set_ylim(max(run.partitions, default=0) + 0.6, -0.6)
    _headline(axes, result)
    clean(axes)


def _ridges(axes: Axes, run: History) -> None:
    lanes = {
        (app, partition): rate(run, worked_by(app, partition), seconds=BIN)
        for app in run.apps
        for partition in run.partitions
    }
    top = _usual_peak(list(lanes.values()))
    times = bin_times(run, seconds=BIN)
    for (app, partition), values in lanes.items():
        floor = partition + HEIGHT / 2
        flowing = values > 0
        heights = -np.clip(values[flowing] / top, 0.0, 1.0) * HEIGHT
        axes.bar(times[flowing], heights, BIN, bottom=floor, color=ink(app), alpha=0.85, linewidth=0)


def _usual_peak(lanes: list[np.ndarray]) -> float:
    flowing = np.concatenate([values[values > 0] for values in lanes]) if lanes else np.zeros(0)
    return float(np.percentile(flowing, 90)) * 1.25 if len(flowing) else 1.0


def _marks(axes: Axes, run: History) -> None:
    for mark in run.marks:
        at = mark.t - run.start
        late = at > 0.9 * (run.end - run.start)
        axes.axvline(at, color=INK, linewidth=0.9, linestyle=(0, (3, 3)))
        axes.annotate(
            mark.text,
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if late else 3, 4),
            textcoords="offset points",
            ha="right" if late else "left",
            fontsize=9,
            color=INK,
        )


def _notes(axes: Axes, result: Result) -> None:
    """What a reader shall not miss, written where it happened: the longest gap, and the longest delay."""
    gap = result.gap
    if gap is not None and gap.length >= NOTE_SECONDS:
        _note(axes, result.run, gap.partition, gap.start, gap.end, f"{gap.length:.1f} s without progress")
    longest = result.longest_delay
    if longest is None or longest.released is None or (longest.delay or 0.0) < NOTE_SECONDS:
        return
    _note(
        axes,
        result.run,
        longest.partition,
        longest.requested,
        longest.released,
        f"its own work: {longest.delay:.1f} s",
    )


def _note(axes: Axes, run: History, partition: int, start: float, end: float, text: str) -> None:
    axes.text((start + end) / 2 - run.start, partition, text, ha="center", va="center", fontsize=9, color=INK)


def _headline(axes: Axes, result: Result) -> None:
    gap = result.gap
    verdict = "every flight exactly once" if result.verdict.exactly_once else "NOT every flight exactly once"
    longest = "" if gap is None else f"  ·  longest gap of a partition that was not moving: {gap.length:.1f} s"
    axes.set_title(f"{verdict}{longest}", loc="left", fontsize=11.5, color=INK, pad=26)
    axes.annotate(
        result.name,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 47),
        textcoords="offset points",
        fontsize=17,
        fontweight="bold",
        color=INK,
    )
