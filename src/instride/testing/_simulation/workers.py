"""A pool of workers in virtual time: what the loop's `ThreadPoolExecutor` would be.

Laws
1. At most `size` handlers run at once, first come first served. A handler takes as long as chance says.
2. A suspended process's handlers end after it goes on; a crashed one's never end.
3. A future that has begun cannot be cancelled. Its callbacks run when it ends, as those of `concurrent.futures`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from instride.records import ConsumerRecord
from instride.testing._simulation.chunk import finished
from instride.testing._simulation.process import Process

__all__ = ["HandlerError", "SimulatedFuture", "WorkerPool"]


class HandlerError(Exception):
    """What a failing handler raises."""


class SimulatedFuture:
    """The part of a future that `OffsetLedger` and the loops use."""

    __slots__ = ("_callbacks", "_cancelled", "_done", "_error", "record", "started")

    def __init__(self, record: ConsumerRecord) -> None:
        self.record = record
        self.started = False
        self._done = False
        self._cancelled = False
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        if self._done:
            fn(self)
        else:
            self._callbacks.append(fn)

    def cancelled(self) -> bool:
        return self._cancelled

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> None:
        """Its handler returns nothing."""

    def cancel(self) -> bool:
        if self.started or self._done:
            return False
        self._cancelled = True
        self.end(None)
        return True

    def end(self, error: Exception | None) -> None:
        self._done, self._error = True, error
        for callback in self._callbacks:
            callback(self)


class WorkerPool:
    """duration: seconds of the next handler. fails: whether it fails."""

    def __init__(self, process: Process, size: int, duration: Callable[[], float], fails: Callable[[], bool]) -> None:
        self._process = process
        self._size = size
        self._duration = duration
        self._fails = fails
        self._waiting: deque[SimulatedFuture] = deque()
        self._running = 0

    @property
    def busy(self) -> bool:
        return self._running > 0 or bool(self._waiting)

    def submit(self, record: ConsumerRecord) -> SimulatedFuture:
        future = SimulatedFuture(record)
        self._waiting.append(future)
        self._next()
        return future

    def _next(self) -> None:
        while self._waiting and self._running < self._size:
            future = self._waiting.popleft()
            if not future.cancelled():
                future.started = True
                self._running += 1
                self._process.scheduler.after(self._duration(), partial(self._ends, future))

    def _ends(self, future: SimulatedFuture) -> None:
        process = self._process
        if process.crashed:
            return
        if process.scheduler.now < process.suspended_until:
            process.scheduler.at(process.suspended_until, partial(self._ends, future))
            return
        record = future.record
        failed = self._fails()
        self._running -= 1
        told = finished(record)
        process.history.add(process.name, *(("failed", *told[:3]) if failed else ("done", *told)))
        future.end(HandlerError("the handler failed") if failed else None)
        self._next()
