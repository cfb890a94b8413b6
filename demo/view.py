"""What a person sees while the demo runs: a line for each change; on a terminal also who owns what now.

A view only shows. The terminal is as it was when the view is left, also by an exception.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.status import Status

from demo.history import History, State


class View(Status):
    """A context manager around a run."""

    def __init__(self, title: str, console: Console) -> None:
        super().__init__("", console=console)
        console.print(f"== {title}", markup=False)

    def show(self, run: History, changes: Iterable[str], at: float) -> None:
        """Show the run as of the time `at` (seconds, the events' clock) and the changes since the last call."""
        for change in changes:
            line = f"{at - (run.start or at):6.1f} s  {change}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self.update(summary(run))


def summary(run: History) -> str:
    """A letter for each partition: its owner's, small while its revocation is requested or delayed."""
    lanes = ""
    for partition in run.partitions:
        span = run.owned.get(partition)
        app = "-" if span is None else span.app
        lanes += app if span is None or span.state is State.OWNED else app.lower()
    written = sum(each.rows for each in run.done)
    return f"{lanes}  {written:,} flights written; lag {sum(map(run.lag, run.ends)):,}"
