"""The door to the command `instride`: it hears signals at once, and only then loads the package.

Loading `instride` takes half a second of a core. The kernel gives a container's first process no signal that it does
not handle, so a SIGTERM of that half second would be lost. This is a package of its own, because Python loads
`instride` before any module in it.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["EARLY", "main"]

EARLY: list[int] = []
"""The signals that came to `instride run` before it heard them itself: it looks here first."""


def main() -> int:
    """The exit status."""
    if sys.argv[1:2] == ["run"]:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: EARLY.append(number))
    from instride._cli import main as loaded  # noqa: PLC0415 - this is what takes the time

    return loaded()
