"""What a person sees while the demo runs: a live table on a terminal, plain lines anywhere else.

Laws
1. A view only shows; it neither reads files nor decides anything. Its owner calls `show` as often as it likes.
2. On a terminal the table is drawn in place, and what changed stands in a short list under it.
3. Elsewhere there is one line for each change and one every few seconds, without colours or cursor movements.
4. The terminal is as it was when the view is left, also by an exception.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from demo.history import RATE_SECONDS, History, State

__all__ = ["View"]

LINE_SECONDS: Final = 5.0
LAST_CHANGES: Final = 6
STYLES: Final = {
    State.TO_BE_REVOKED: "yellow",
    State.DELAYED: "bold dark_orange",
    State.COMPLETING: "magenta",
    State.LOST: "bold red",
}
COLUMNS: Final = {"partition": 9, "owner": 5, "state": 13, "for": 5, "lag": 8, "records/s": 9}
"""Heading and least width: fixed, so that the table does not jump while its figures change."""


class View(ExitStack):
    """A context manager around a run. title: stands above everything. console: where to."""

    def __init__(self, title: str, console: Console) -> None:
        super().__init__()
        self._title = title
        self._console = console
        self._live: Live | None = None
        self._changes: deque[str] = deque(maxlen=LAST_CHANGES)
        self._started: float | None = None
        self._last_line = float("-inf")
        if console.is_terminal:
            live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live = self.enter_context(live)
        else:
            self._line(f"== {title}")

    def show(self, run: History, changes: Iterable[str], at: float) -> None:
        """Show the run as of the time `at` (seconds, the events' clock) and the changes since the last call."""
        self._started = at if self._started is None else self._started
        stamped = [f"{at - self._started:6.1f} s  {change}" for change in changes]
        if self._live is not None:
            self._changes.extend(stamped)
            listed = [Text(f"  {change}", style="dim") for change in self._changes]
            picture = Group(_table(self._title, run, at), Text(_summary(run, at), style="bold"), *listed)
            self._live.update(picture, refresh=True)
            return
        for line in stamped:
            self._line(line)
        if at - self._last_line >= LINE_SECONDS:
            self._last_line = at
            self._line(f"{at - self._started:6.1f} s  {_summary(run, at)}")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _summary(run: History, at: float) -> str:
    rates = dict.fromkeys(sorted(run.ready), 0.0)
    for each in run.recent(at):
        rates[each.app] = rates.get(each.app, 0.0) + each.rows / RATE_SECONDS
    owned = ", ".join(f"{app} owns {len(run.owned_by(app))} ({rate:,.0f} records/s)" for app, rate in rates.items())
    states = [span.state for span in run.owned.values()]
    moving = ", ".join(f"{states.count(state)} {state}" for state in STYLES if state in states)
    written = f"{sum(each.rows for each in run.done):,} flights written"
    return "; ".join(filter(None, (written, f"lag {sum(map(run.lag, list(run.ends))):,}", owned, moving)))


def _table(title: str, run: History, at: float) -> Table:
    table = Table(title=title, title_style="bold", title_justify="left", pad_edge=False)
    for name, width in COLUMNS.items():
        table.add_column(name, min_width=width, justify="right", no_wrap=True)
    recent = run.recent(at)
    for partition in run.partitions:
        span = run.owned.get(partition)
        rate = sum(each.rows for each in recent if each.partition == partition) / RATE_SECONDS
        figures = (f"{run.lag(partition):,}", f"{rate:,.0f}")
        if span is None:
            table.add_row(str(partition), "-", "nobody's", "", *figures, style="dim")
        else:
            since = f"{at - span.start:.0f} s" if span.state in STYLES else ""
            style = STYLES.get(span.state, "green")
            table.add_row(str(partition), span.app, span.state, since, *figures, style=style)
    return table
