"""A pool of threads that keep no process from ending for long: for calls of a sink, which may hang for ever.

Laws
1. Its threads are daemons: those of `concurrent.futures` are joined when the interpreter ends, each until it is done.
   When it ends, pools are closed, and calls that are under way have `_PATIENCE` to come to their end: a daemon that
   comes back from a native library after the interpreter has ended may crash the process. A call that hangs longer is
   abandoned, as where the process is killed: a sink's contract makes both safe.
2. A thread is started when there is work and none is idle, up to `most`.
3. An error in a piece of work is logged and takes no thread away.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["DaemonPool"]

_log = logging.getLogger(__name__)

_PATIENCE: Final = 10.0
"""Seconds that all calls under way have together when the interpreter ends."""


class DaemonPool:
    """Thread-safe. most: threads. name: what theirs begin with."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], object]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._is_closed = False
        self.process = os.getpid()
        with _pools_lock:
            _pools.add(self)

    def submit(self, work: Callable[[], object]) -> None:
        """Do it when a thread is free; never, once the pool is closed.

        Raises RuntimeError where the pool has no thread, and the system has none for it.
        """
        with self._changed:
            if self._is_closed:
                return
            self._waiting.append(work)
            if self._idle < len(self._waiting) and len(self._threads) < self._most:
                name = f"{self._name}-{len(self._threads) + 1}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system has no thread left: those that there are do it
                    if not self._threads:
                        self._waiting.pop()
                        raise
                else:
                    self._threads.append(thread)
            self._changed.notify()

    def close(self) -> None:
        """Begin nothing more. Waits for nothing: what is under way goes on to its end, or to the process's."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def join(self, deadline: float) -> int:
        """Wait for what is under way, until the deadline of `time.monotonic`. Gives how much is left. It is closed."""
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return sum(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except BaseException:  # noqa: BLE001 - whatever it is, others are to have the thread
                _log.exception("a piece of work failed")
            # Or what it refers to would live until the next piece comes.
            del work

    def _next(self) -> Callable[[], object] | None:
        """None: the pool is closed."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            self._idle -= 1
            return self._waiting.popleft() if self._waiting else None


_pools: weakref.WeakSet[DaemonPool] = weakref.WeakSet()
"""Those of this process that are not over. A pool's threads refer to it."""
_pools_lock = threading.Lock()


@atexit.register
def _end_all() -> None:
    """Law 1. Daemons run until the functions of `atexit` are done."""
    deadline = time.monotonic() + _PATIENCE
    # A child of a fork has none of its parent's threads, and perhaps a lock that one of them held.
    pools = [each for each in list(_pools) if each.process == os.getpid()]
    for pool in pools:
        pool.close()
    left = sum(pool.join(deadline) for pool in pools)
    if left:
        _log.warning("the process ends while %d calls of a sink hang: they are abandoned", left)
