"""The colours of the demo's picture, and what every part of it has in common.

Laws
1. A colour means one thing in the whole picture: blue is A's, orange B's, yellow waits, green stays.
"""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes

from demo.history import State

__all__ = ["INK", "MOVING", "QUIET", "STATE_GROUND", "STAYING", "WAITING", "clean", "ground", "ink"]

INK: Final = "#22272e"
QUIET: Final = "#6b7480"
RULE: Final = "#c5cad1"
GRID: Final = "#e6e9ed"
STAYING: Final = "#12826f"
MOVING: Final = "#b8860b"
WAITING: Final = "#f7c531"

_GROUNDS: Final = {"A": "#cfe3f5", "B": "#fbdcc3"}
_INKS: Final = {"A": "#1f6fb2", "B": "#d9661f"}
STATE_GROUND: Final = {
    State.TO_BE_REVOKED: "#fff1b0",
    State.DELAYED: WAITING,
    State.COMPLETING: "#b9a3e3",
    State.LOST: "#e5484d",
}


def ground(app: str) -> str:
    """The pale colour of what an application owns."""
    return _GROUNDS.get(app, "#dddddd")


def ink(app: str) -> str:
    """The strong colour of what an application does."""
    return _INKS.get(app, "#555555")


def clean(axes: Axes) -> None:
    """Leave only what helps to read."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.tick_params(colors=QUIET, length=0, labelsize=9)
    axes.margins(x=0.005)
