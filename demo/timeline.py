"""The picture of a run: who owned each partition and what flowed through it, over the throughput; runs side by side.

Laws
1. All columns have the same axes, so that what looks longer was longer.
2. Nothing is smoothed: every record stands in the second in which it was written and committed.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from demo.lanes import draw_lanes
from demo.palette import INK, MOVING, QUIET, STATE_GROUND, STAYING, ground, ink
from demo.report import Result
from demo.throughput import draw_by_app, draw_by_motion, usual_top

__all__ = ["draw", "save_png", "to_svg"]


def draw(results: Sequence[Result]) -> Figure:
    """A figure with one column for each result. ValueError if there is none."""
    if not results:
        raise ValueError("there is no run to draw")
    layout = ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.12)
    figure = Figure(figsize=(2.2 + 7.4 * len(results), 10.4), layout=layout, facecolor="white")
    axes = figure.subplots(3, len(results), height_ratios=(5.2, 1.5, 1.5), sharex=True, sharey="row", squeeze=False)
    top = usual_top([result.run for result in results])
    for column, result in enumerate(results):
        draw_lanes(axes[0][column], result)
        draw_by_app(axes[1][column], result.run, top)
        draw_by_motion(axes[2][column], result.run, top)
        axes[2][column].set_xlabel("seconds", color=QUIET)
    _labels(axes, results)
    legend = _legend(results)
    figure.legend(
        handles=legend, loc="outside lower center", ncols=len(legend), frameon=False, fontsize=9, labelcolor=INK
    )
    return figure


def save_png(figure: Figure, path: Path) -> None:
    """Write the figure as PNG."""
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=150)


def to_svg(figure: Figure) -> bytes:
    """The figure as one SVG document."""
    out = io.BytesIO()
    figure.savefig(out, format="svg")
    return out.getvalue()


def _labels(axes: np.ndarray, results: Sequence[Result]) -> None:
    texts = ("partition", "records/s\nby application", "records/s of partitions\nthat stay and that move")
    for row, text in enumerate(texts):
        axes[row][0].set_ylabel(text, color=QUIET, fontsize=9.5)
    axes[0][0].set_xlim(0, max(1.0, *(result.run.end - result.run.start for result in results)))


def _legend(results: Sequence[Result]) -> list[Patch]:
    apps = sorted({app for result in results for app in result.run.apps})
    seen = {span.state for result in results for span in result.run.spans}
    entries = [(f"{app} owns it", ground(app)) for app in apps]
    entries += [(f"{app} works", ink(app)) for app in apps]
    entries += [(str(state), colour) for state, colour in STATE_GROUND.items() if state in seen]
    entries += [("stays", STAYING), ("moves", MOVING)]
    return [Patch(facecolor=colour, label=label) for label, colour in entries]
