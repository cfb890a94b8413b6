"""What a person sees while the demo runs: a live table on a terminal, plain lines anywhere else.

Laws
1. A view only shows; it neither reads files nor decides anything. Its owner calls `show` as often as it
   likes.
2. On a terminal the table is drawn in place, and what changed stands in a short list under it.
3. Elsewhere there is one line for each change and one every few seconds, without colours or cursor movements.
4. The terminal is as it was when the view is left, also by an exception.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Literal, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from demo.board import Board, Lane
from demo.history import State

__all__ = ["View"]

LINE_SECONDS: Final = 5.0
LAST_CHANGES: Final = 6
STYLES: Final[dict[State | None, str]] = {
    State.OWNED: "green",
    State.TO_BE_REVOKED: "yellow",
    State.DELAYED: "bold dark_orange",
    State.COMPLETING: "magenta",
    State.LOST: "bold red",
    None: "dim",
}
OWNER_STYLES: Final = ("bold cyan", "bold blue", "bold white")
BAR_WIDTH: Final = 16
COLUMNS: Final[tuple[tuple[str, int, Literal["left", "right"]], ...]] = (
    ("partition", 9, "right"),
    ("owner", 5, "left"),
    ("state", 13, "left"),
    ("for", 5, "right"),
    ("lag", 8, "right"),
    ("records/s", 9, "right"),
    ("", BAR_WIDTH, "left"),
)
"""Heading, least width, justification: fixed, so that the table does not jump while its figures change."""


class View:
    """A context manager around a run. title: stands above everything. console: where to; standard output by default."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self._console = console or Console()
        self._live: Live | None = None
        self._changes: deque[str] = deque(maxlen=LAST_CHANGES)
        self._started: float | None = None
        self._last_line = float("-inf")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
        else:
            self._console.print(f"== {self._title}", markup=False, highlight=False, soft_wrap=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, board: Board, changes: Iterable[str], at: float) -> None:
        """Show the board as of the time `at` (seconds, the events' clock) and the changes since the last call."""
        self._started = at if self._started is None else self._started
        stamped = [f"{at - self._started:6.1f} s  {change}" for change in changes]
        if self._live is not None:
            self._changes.extend(stamped)
            self._live.update(self._picture(board, at), refresh=True)
            return
        for line in stamped:
            self._line(line)
        if at - self._last_line >= LINE_SECONDS:
            self._last_line = at
            self._line(f"{at - self._started:6.1f} s  {_summary(board, at)}")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _picture(self, board: Board, at: float) -> Group:
        changes = [Text(f"  {change}", style="dim") for change in self._changes]
        return Group(_table(self._title, board, at), Text(_summary(board, at), style="bold"), *changes)


def _summary(board: Board, at: float) -> str:
    rates = {app: sum(board.lanes[p].rate(at) for p in board.owned_by(app)) for app in sorted(board.phases)}
    owned = ", ".join(f"{app} owns {len(board.owned_by(app))} ({rate:,.0f} records/s)" for app, rate in rates.items())
    states = [lane.state for lane in board.lanes.values()]
    held = ", ".join(
        f"{states.count(state)} {state}" for state in State if state is not State.OWNED and state in states
    )
    return "; ".join(filter(None, (f"{board.rows:,} flights written", f"lag {board.lag:,}", owned, held)))


def _table(title: str, board: Board, at: float) -> Table:
    table = Table(title=title, title_style="bold", title_justify="left", pad_edge=False)
    for name, width, justify in COLUMNS:
        table.add_column(name, min_width=width, justify=justify, no_wrap=True)
    owners = sorted(board.phases)
    fastest = max([1.0, *(lane.rate(at) for lane in board.lanes.values())])
    for lane in board.lanes.values():
        table.add_row(*_cells(lane, at, owners, fastest))
    return table


def _cells(lane: Lane, at: float, owners: list[str], fastest: float) -> tuple[Text, ...]:
    owner = OWNER_STYLES[owners.index(lane.owner) % len(OWNER_STYLES)] if lane.owner in owners else "dim"
    state = "nobody's" if lane.state is None else str(lane.state)
    waiting = lane.state not in (None, State.OWNED)
    rate = lane.rate(at)
    return (
        Text(str(lane.partition)),
        Text(lane.owner or "-", style=owner),
        Text(state, style=STYLES[lane.state]),
        Text(f"{at - lane.since:.0f} s" if waiting else "", style=STYLES[lane.state]),
        Text(f"{lane.lag:,}"),
        Text(f"{rate:,.0f}"),
        Text("━" * round(BAR_WIDTH * rate / fastest), style=STYLES[lane.state]),
    )
