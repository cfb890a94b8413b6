"""What a signal does to a call: its handler runs at one of the call's steps, which is chosen by its number.

Laws
1. A step is a wait of the call, or the start of a line of `_core.application`: a signal can come before each.
2. A handler raises, as that of Ctrl-C does: `KeyboardInterrupt`. At a wait the call is closed, as `_net.driver` closes
   it; in a line it is raised there. Or the handler calls verbs and returns, and the call goes on from there.
3. What raises comes once; what returns, once between two waits. A call that has fewer steps ends as usual.
4. It comes to the one whose call it is: while a listener works, what others do is not interrupted (`spared`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NoReturn, TypeVar

from instride._core.application import calls
from instride._core.application.calls import Wait
from instride._core.application.partition import OwnedPartition
from instride._core.application.revoke_lists import RevokeLists
from instride._core.application.state import ApplicationState

__all__ = ["COMPUTING", "Interrupter", "at_line", "at_wait", "in_steps", "spared"]

T = TypeVar("T")
Call = Generator[Wait, float, T]
_HERE = str(Path(calls.__file__).parent)
COMPUTING: Final = frozenset(
    each.__code__
    for each in (
        OwnedPartition.take,
        OwnedPartition._take_part,
        OwnedPartition._take,
        OwnedPartition._go_on,
        OwnedPartition.positioned,
        OwnedPartition.dropping,
        OwnedPartition.restarting,
        OwnedPartition.seeking,
        RevokeLists.step,
        RevokeLists.reassigned,
        ApplicationState.next_call,
    )
)
"""What is computed there is written later: a small part of all lines, in which a handler may do harm."""


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


def _raise() -> NoReturn:
    raise KeyboardInterrupt


def at_line(call: Call[T], number: int) -> Call[T]:
    """number: of the line, the first being 0."""
    interrupter = Interrupter(number)
    return in_steps(call, lambda: interrupter)


def in_steps(
    call: Call[T], interrupter: Callable[[], Interrupter], *, pauses: Callable[[], None] = lambda: None
) -> Call[T]:
    """interrupter: of the next step, from one wait to the next. pauses: called when it waits, and has no records in
    hand, or has ended.
    """
    step = partial(next, call)
    while True:
        in_hand = False
        try:
            wait = interrupter().run(step)
            in_hand = wait.in_hand
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            if not in_hand:
                pauses()
        step = partial(call.send, (yield wait))


class Interrupter:
    """Runs the handler at the line with that number of what it runs. lines: how many there were so far.

    only: the functions whose lines count; all of `_core.application`, where none is named.
    """

    __slots__ = ("_handler", "_number", "_only", "_runs", "lines")

    def __init__(
        self, number: int, handler: Callable[[], None] = _raise, *, only: Collection[CodeType] = frozenset()
    ) -> None:
        self._number = number
        self._handler = handler
        self._only = only
        self._runs = False
        self.lines = 0

    def run(self, step: Callable[[], T]) -> T:
        before = sys.gettrace()
        sys.settrace(self._called)
        self._runs = True
        try:
            return step()
        finally:
            self._runs = False
            sys.settrace(before)

    def _called(self, frame: FrameType, what: str, argument: Any) -> Any:
        code = frame.f_code
        counts = code in self._only if self._only else code.co_filename.startswith(_HERE)
        return self._line if counts else None

    def _line(self, frame: FrameType, what: str, argument: Any) -> Any:
        # The frame of a call that waits keeps this for its next step, which may have an interrupter of its own.
        if what == "line" and self._runs:
            self.lines += 1
            if self.lines == self._number + 1:
                # Python traces nothing meanwhile: what the handler calls is interrupted by no further signal.
                self._handler()
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
