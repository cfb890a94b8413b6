"""Many changes that happen as one, whatever interrupts the thread.

Laws
1. Python runs a signal's handler between two steps of its own code, never inside a function that is written in C.
   `at_once` makes all its changes inside one such function. So an exception that a handler raises comes before the
   first change or after the last.
2. Therefore each change is a call of something written in C that runs no Python code: `setattr` of a plain attribute,
   a method of a deque, dict or set whose keys are hashed and compared in C. Only the last may be any function.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import starmap
from operator import call
from typing import Any

__all__ = ["Write", "at_once"]

Write = tuple[Any, ...]
"""A function and its positional arguments."""


def at_once(writes: Iterable[Write]) -> Any:
    """What the last of them returned; None where there is none."""
    last = deque(starmap(call, tuple(writes)), maxlen=1)
    return last[0] if last else None
