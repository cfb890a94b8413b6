"""Calls that a trace interrupts at lines where Python itself never would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["contained"]

T = TypeVar("T")


def contained(call: Callable[[], T]) -> T:
    """What it returns or raises. A generator has its own state of the exception that is handled: Python does not end an
    `except` whose last line a trace interrupts, and each later error of the thread would be a consequence of that one.
    """

    def run() -> Iterator[T]:
        yield call()

    return next(run())
