"""The picture of a run: who owned each partition and what flowed through it, over the throughput; runs side by side.

Laws
1. All columns have the same axes, so that what looks longer was longer.
2. Nothing is smoothed: every record stands in the second in which it was written.
3. A lane's ground is its owner's colour, or that of its state where that is not just owned. The bars on it are its
   own throughput, cut at the lane's height: a lane without bars is owned and stands still.
4. A colour means one thing in the whole picture: blue is A's, orange B's, yellow waits, green stays.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from demo.history import History, State, Work
from demo.report import Result

__all__ = ["clipped_peaks", "draw", "rate", "save"]

TOP_FACTOR: Final = 3.0
HEIGHT: Final = 0.86
NOTE_SECONDS: Final = 2.0
LEAST_WIDTH: Final = 0.05

INK: Final = "#22272e"
QUIET: Final = "#6b7480"
STAYING: Final = "#12826f"
MOVING: Final = "#b8860b"
WAITING: Final = "#f7c531"
STATES: Final = {
    State.TO_BE_REVOKED: "#fff1b0",
    State.DELAYED: WAITING,
    State.COMPLETING: "#b9a3e3",
    State.LOST: "#e5484d",
}
GROUNDS: Final = {"A": "#cfe3f5", "B": "#fbdcc3"}
INKS: Final = {"A": "#1f6fb2", "B": "#d9661f"}
LABELS: Final = ("partition", "records/s\nby application", "records/s of partitions\nthat stay and that move")


def draw(results: Sequence[Result]) -> Figure:
    """A figure with one column for each result. ValueError if there is none."""
    if not results:
        raise ValueError("there is no run to draw")
    runs = [result.run for result in results]
    layout = ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.12)
    figure = Figure(figsize=(2.2 + 7.4 * len(results), 10.4), layout=layout, facecolor="white")
    axes = figure.subplots(3, len(results), height_ratios=(5.2, 1.5, 1.5), sharex=True, sharey="row", squeeze=False)
    # Three times what usually flows. What is above it has its number at the top.
    top = _top([rate(run) for run in runs], 50, TOP_FACTOR)
    for column, result in enumerate(results):
        _lanes(axes[0][column], result)
        _by_app(axes[1][column], result.run, top)
        _by_motion(axes[2][column], result.run, top)
        axes[2][column].set_xlabel("seconds", color=QUIET)
    for row, label in enumerate(LABELS):
        axes[row][0].set_ylabel(label, color=QUIET, fontsize=9.5)
    axes[0][0].set_xlim(0, max(1.0, *(run.end - run.start for run in runs)))
    handles = _legend(runs)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


def save(figure: Figure, kind: str) -> bytes:
    """The figure as "png" or "svg"."""
    out = io.BytesIO()
    figure.savefig(out, format=kind, dpi=150)
    return out.getvalue()


def _legend(runs: Sequence[History]) -> list[Patch]:
    apps = sorted({app for run in runs for app in run.apps})
    seen = {span.state for run in runs for span in run.spans}
    entries = [(f"{app} owns it", GROUNDS[app]) for app in apps] + [(f"{app} works", INKS[app]) for app in apps]
    entries += [(str(state), colour) for state, colour in STATES.items() if state in seen]
    entries += [("stays", STAYING), ("moves", MOVING)]
    return [Patch(facecolor=colour, label=label) for label, colour in entries]


# -- throughput


def rate(run: History, chosen: Callable[[Work], bool] = lambda _: True) -> np.ndarray:
    """Records in each second from the run's start, of the finished work that is chosen."""
    works = [each for each in run.done if chosen(each)]
    seconds = np.array([int(each.end - run.start) for each in works], dtype=int)
    return np.bincount(seconds, [each.rows for each in works], minlength=int(run.end - run.start) + 1)


def _top(values: Sequence[np.ndarray], percentile: float, factor: float) -> float:
    """The upper end of a scale: this percentile of what flows, times the factor; never far above the highest value."""
    every = np.concatenate([np.zeros(0), *values])
    flowing = every[every > 0]
    return min(float(np.percentile(flowing, percentile)) * factor, flowing.max() * 1.1) if len(flowing) else 1.0


def _middles(values: np.ndarray) -> np.ndarray:
    return np.arange(len(values)) + 0.5


def _by_app(axes: Axes, run: History, top: float) -> None:
    """Records a second of each application, on top of each other."""
    rates = [rate(run, lambda each, app=app: each.app == app) for app in run.apps]  # type: ignore[misc]
    total = rate(run)
    if rates:
        axes.stackplot(_middles(total), rates, step="mid", colors=[INKS[app] for app in run.apps], alpha=0.85)
    _frame(axes, total, top)


def _by_motion(axes: Axes, run: History, top: float) -> None:
    """Records a second of the partitions that stay and of those that move; the ground shows who waits for whom."""
    moving = rate(run, lambda each: run.was_moving(each.partition, each.end))
    staying = rate(run) - moving
    for each in run.handovers:
        if each.after is not None and each.released is not None:
            axes.axvspan(each.requested - run.start, each.released - run.start, color=WAITING, alpha=0.07, linewidth=0)
    axes.fill_between(_middles(staying), 0, staying, step="mid", color=STAYING, alpha=0.18, linewidth=0)
    axes.step(_middles(staying), staying, where="mid", color=STAYING, linewidth=1.6)
    axes.step(_middles(moving), moving, where="mid", color=MOVING, linewidth=1.3, linestyle=(0, (2, 1)))
    _frame(axes, np.maximum(staying, moving), top)


def _frame(axes: Axes, values: np.ndarray, top: float) -> None:
    _clean(axes)
    axes.set_ylim(0, top)
    axes.grid(axis="y", color="#e6e9ed", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for n in clipped_peaks(values, top):
        axes.text(n + 1, top, f" ↑ {values[n]:,.0f}", va="top", fontsize=8.5, color=INK)


def clipped_peaks(values: np.ndarray, top: float) -> list[int]:
    """The seconds that stand above the scale; of those whose labels would overlap, the highest."""
    near = len(values) // 8 + 1
    windows = [range(max(0, n - near), min(len(values), n + near + 1)) for n in range(len(values))]
    return [n for n, near_it in enumerate(windows) if values[n] > top and n == max(near_it, key=values.__getitem__)]


def _clean(axes: Axes) -> None:
    """Leave only what helps to read."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=QUIET, length=0, labelsize=9)
    axes.margins(x=0.005)


# -- lanes


def _lanes(axes: Axes, result: Result) -> None:
    """A result's lanes, with the scenario's marks and a word on what matters most."""
    run = result.run
    axes.barh(
        [span.partition for span in run.spans],
        [max(min(span.end, run.end) - span.start, LEAST_WIDTH) for span in run.spans],
        HEIGHT,
        left=[span.start - run.start for span in run.spans],
        color=[STATES.get(span.state) or GROUNDS[span.app] for span in run.spans],
    )
    _bars(axes, run)
    _marks(axes, run)
    _notes(axes, result)
    axes.set_yticks(run.partitions)
    axes.set_ylim(max(run.partitions, default=0) + 0.6, -0.6)
    verdict = "every flight exactly once" if result.verdict.exactly_once else "NOT every flight exactly once"
    gap = result.gap
    longest = "" if gap is None else f"  ·  longest gap of a partition that was not moving: {gap.length:.1f} s"
    axes.set_title(f"{result.name}: {verdict}{longest}", loc="left", fontsize=10.5, color=INK, pad=26)
    _clean(axes)


def _bars(axes: Axes, run: History) -> None:
    """All lanes have one scale. What was kept back comes as a peak."""
    lanes = {
        (app, partition): rate(run, lambda each, lane=(app, partition): (each.app, each.partition) == lane)  # type: ignore[misc]
        for app in run.apps
        for partition in run.partitions
    }
    top = _top(list(lanes.values()), 90, 1.25)
    for (app, partition), values in lanes.items():
        heights = -np.clip(values / top, 0.0, 1.0) * HEIGHT
        axes.bar(_middles(values), heights, 1.0, bottom=partition + HEIGHT / 2, color=INKS[app], alpha=0.85)


def _marks(axes: Axes, run: History) -> None:
    for t, text in run.marks:
        at = t - run.start
        side = "right" if at > 0.9 * (run.end - run.start) else "left"
        axes.axvline(at, color=INK, linewidth=0.9, linestyle=(0, (3, 3)))
        axes.text(at, 1.01, f" {text} ", transform=axes.get_xaxis_transform(), ha=side, fontsize=9, color=INK)


def _notes(axes: Axes, result: Result) -> None:
    """What a reader shall not miss, written where it happened: the longest gap, and the longest delay."""
    gap, move = result.gap, result.longest_delay
    notes = [(gap.partition, gap.start, gap.length, "{:.1f} s without progress")] if gap else []
    notes += [(move.partition, move.requested, move.delay, "its own work: {:.1f} s")] if move else []
    for partition, start, length, text in notes:
        if length >= NOTE_SECONDS:
            at = start + length / 2 - result.run.start
            axes.text(at, partition, text.format(length), ha="center", va="center", fontsize=9, color=INK)
