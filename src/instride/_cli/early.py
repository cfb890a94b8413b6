"""The signals that come to `instride run` while it imports what it needs.

Python loads the package `instride` before this (half a second of a core): what comes then is not heard.
"""

from __future__ import annotations

import signal

__all__ = ["EARLY", "note_signals"]

EARLY: list[int] = []
"""`run` looks here first."""


def note_signals() -> None:
    """A container's first process would get none that it does not handle; any other would end by them."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: EARLY.append(number))
