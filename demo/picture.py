"""The picture of a run: who owned each partition and what flowed through it; runs side by side.

Laws
1. All columns have the same axes, so that what looks longer was longer.
2. Nothing is smoothed: every record stands in the second in which it was finished.
3. A lane's ground is its owner's colour, or that of its state where that is not just owned. The bars on it are its
   own throughput, cut at the lane's height: a lane without bars is owned and stands still.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from demo.history import History, State
from demo.report import Result

HEIGHT: Final = 0.86
INK: Final = "#22272e"
STATES: Final = {State.TO_BE_REVOKED: "#fff1b0", State.DELAYED: "#f7c531"}
GROUNDS: Final = {"A": "#cfe3f5", "B": "#fbdcc3"}
INKS: Final = {"A": "#1f6fb2", "B": "#d9661f"}
LEGEND: Final = {
    **{f"{app} owns it": colour for app, colour in GROUNDS.items()},
    **{f"{app} works": colour for app, colour in INKS.items()},
    **{str(state): colour for state, colour in STATES.items()},
}


def draw(results: Sequence[Result]) -> Figure:
    """A figure with one column for each result. ValueError if there is none."""
    figure = Figure(figsize=(2.2 + 7.4 * len(results), 7.4), layout="constrained")
    axes = figure.subplots(1, len(results), sharex=True, sharey=True, squeeze=False)[0]
    for each, result in zip(axes, results, strict=True):
        _lanes(each, result)
    axes[0].set_ylabel("partition")
    axes[0].set_xlim(0, max(1.0, *(result.run.end - result.run.start for result in results)))
    handles = [Patch(facecolor=colour, label=label) for label, colour in LEGEND.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


def save(figure: Figure, kind: str) -> bytes:
    """The figure as "png" or "svg"."""
    out = io.BytesIO()
    figure.savefig(out, format=kind, dpi=150)
    return out.getvalue()


def _lanes(axes: Axes, result: Result) -> None:
    """A result's lanes, with the scenario's marks and a word on what matters most."""
    run, gap, move = result.run, result.run.longest_gap(), result.longest_delay
    for span in run.spans:
        where = (span.start - run.start, min(span.end, run.end) - span.start)
        colour = STATES.get(span.state, GROUNDS[span.app])
        axes.broken_barh([where], (span.partition - HEIGHT / 2, HEIGHT), color=colour)
    for partition in run.partitions:
        _bars(axes, run, partition)
    for at, text in run.marks:
        axes.axvline(at - run.start, color=INK, linewidth=0.9, linestyle="--")
        axes.text(at - run.start, 1.01, f"{text} ", transform=axes.get_xaxis_transform(), ha="center", fontsize=9)
    notes = [(gap.partition, gap.start, gap.length, "without progress")] if gap else []
    notes += [(move.partition, move.requested, move.delay, "its own work")] if move else []
    for partition, start, length, text in notes:
        if length >= 1.0:
            place = (start + length / 2 - run.start, partition)
            axes.annotate(f"{text}: {length:.1f} s", place, ha="center", va="center", fontsize=9)
    axes.set_yticks(run.partitions)
    axes.set_ylim(max(run.partitions, default=0) + 0.6, -0.6)
    verdict = "every flight exactly once" if result.verdict.exactly_once else "NOT every flight exactly once"
    longest = f"longest gap of a partition that was not moving: {gap.length:.1f} s" if gap else ""
    # Two lines: in one it is wider than the column, and the next column's title covers its end.
    axes.set_title(f"{result.name}: {verdict}\n{longest}", loc="left", fontsize=10.5, pad=26)
    axes.set_xlabel("seconds")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, labelsize=9)


def _bars(axes: Axes, run: History, partition: int) -> None:
    values = run.rate(lambda each: each.partition == partition)
    # What flows in most seconds. What was kept back comes as a peak, beside which all else were flat.
    top = np.percentile(values[values > 0], 90) * 1.25 if values.any() else 1.0
    for app, ink in INKS.items():
        values = run.rate(lambda each, app=app: (each.app, each.partition) == (app, partition))  # type: ignore[misc]
        heights = -np.clip(values / top, 0.0, 1.0) * HEIGHT
        axes.bar(np.arange(len(values)) + 0.5, heights, 1.0, bottom=partition + HEIGHT / 2, color=ink, alpha=0.85)
