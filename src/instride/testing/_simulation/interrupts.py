"""What a signal does to a call: an exception at one of its steps, which is chosen by its number.

Laws
1. A step is a wait of the call, or the start of a line of `_core.application`: a signal can come before each.
2. At a wait the call is closed, as `_net.driver` closes it, and `KeyboardInterrupt` is raised; in a line it is raised
   there.
3. It comes once. A call that has fewer steps ends as usual.
4. It comes to the one whose call it is: while a listener works, what others do is not interrupted (`spared`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from instride._core.application import calls
from instride._core.application.calls import Wait

__all__ = ["Interrupter", "at_line", "at_wait", "spared"]

T = TypeVar("T")
Call = Generator[Wait, float, T]
_HERE = str(Path(calls.__file__).parent)


def at_wait(call: Call[T], number: int) -> Call[T]:
    """number: of the wait, the first being 0."""
    sent: float | None = None
    while True:
        try:
            wait = next(call) if sent is None else call.send(sent)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if not number:
            call.close()
            raise KeyboardInterrupt
        number -= 1
        sent = yield wait


def at_line(call: Call[T], number: int) -> Call[T]:
    """number: of the line, the first being 0."""
    interrupter = Interrupter(number)
    step = partial(next, call)
    while True:
        try:
            wait = interrupter.run(step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        step = partial(call.send, (yield wait))


class Interrupter:
    """Raises `KeyboardInterrupt` at the line with that number of what it runs. lines: how many there were so far."""

    __slots__ = ("_number", "lines")

    def __init__(self, number: int) -> None:
        self._number = number
        self.lines = 0

    def run(self, step: Callable[[], T]) -> T:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            return step()
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, what: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(_HERE) else None

    def _line(self, frame: FrameType, what: str, argument: Any) -> Any:
        if what == "line":
            self.lines += 1
            if self.lines == self._number + 1:
                raise KeyboardInterrupt
        return self._line


@contextmanager
def spared() -> Iterator[None]:
    """Law 4. What runs within this counts no lines and raises nothing."""
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)
