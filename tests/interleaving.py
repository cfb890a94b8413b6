"""Other threads between any two steps of a call, at steps that are chosen by number. No chance, no time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

__all__ = ["Interleaving", "ToldLock"]


class ToldLock:
    """A re-entrant lock that tells when somebody has to wait for it."""

    def __init__(self, told: Callable[[], object]) -> None:
        self._lock = threading.RLock()
        self._told = told

    def acquire(self, blocking: bool = True) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        if not blocking:
            return False
        self._told()
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(slots=True)
class Interleaving:
    """Of the first call the steps in these files count: its instructions, or its lines. At the step of its number each
    other call runs in a thread of its own, until it has ended or waits for a `lock` of ours; then the first goes on.

    steps: how many the first had; another whose number it did not reach was not called.
    """

    here: tuple[str, ...]
    others: Mapping[int, Callable[[], object]]
    kind: Literal["opcode", "line"] = "opcode"
    steps: int = 0
    called: int = 0
    _turn: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _errors: list[BaseException] = field(default_factory=list)

    def lock(self) -> ToldLock:
        return ToldLock(self._waits)

    def run(self, first: Callable[[], object]) -> None:
        """Returns when all have ended. Raises what another call raised."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            first()
        finally:
            sys.settrace(before)
        for thread in self._threads:
            thread.join()
        for error in self._errors:
            raise error

    def _waits(self) -> None:
        self._turn.set()

    def _called(self, frame: FrameType, _what: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith(self.here):
            return None
        if self.kind == "opcode":
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step

    def _step(self, _frame: FrameType, what: str, _argument: Any) -> Any:
        if what == self.kind:
            other = self.others.get(self.steps)
            self.steps += 1
            if other is not None:
                self._let(other)
        return self._step

    def _let(self, other: Callable[[], object]) -> None:
        turn = self._turn = threading.Event()

        def run() -> None:
            try:
                other()
            except BaseException as error:
                self._errors.append(error)
            finally:
                turn.set()

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        self.called += 1
        thread.start()
        turn.wait()
