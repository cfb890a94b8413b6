"""Runs calls on the threads that use a blocking consumer, one at a time, and guards against misuse.

Laws
1. Those of `shell`.
2. One thread at a time is inside a call; the same thread may call again from a listener, but not poll.
3. A signal handler may run between any two steps of a call of the same thread. So the guard is no lock, whether the
   consumer is closed is looked at once it is passed, and a close that comes in the middle of a call is done when
   that call ends (`close_later`).
4. An exception of such a handler may come between any two steps of the way in and out. So who is inside is the verb
   that is still on its thread's stack, whatever was noted.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from instride._core.application.calls import Call
from instride._core.application.state import OnCommit
from instride._net.clock import now
from instride._net.mailbox import Mailbox
from instride._net.shell import Shell
from instride.config import ConsumerConfig
from instride.errors import ConcurrentUseError, IllegalStateError, TransportError

__all__ = ["Driver"]

T = TypeVar("T")


class _Use:
    """What `Driver.use` gives to a verb's `with`."""

    __slots__ = ("_before", "_driver")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._before = 0

    def __enter__(self) -> None:
        self._before = self._driver.enter(threading.get_ident(), sys._getframe(1))

    def __exit__(self, *_: object) -> None:
        self._driver.leave(self._before)


class Driver(Shell):
    """What `Consumer` and `RangeConsumer` have in common below their verbs."""

    def __init__(self, config: ConsumerConfig, *, ranges: bool = False, on_commit: OnCommit | None = None) -> None:
        self._mailbox = Mailbox()
        self._retry_backoff = config.retry_backoff
        super().__init__(config, self._mailbox, ranges=ranges, on_commit=on_commit)
        # The thread and the frame of the verb that entered first; its key is "first".
        self._inside: dict[str, tuple[int, FrameType]] = {}
        self._depth = 0
        self._at_end: Callable[[], None] | None = None

    # -- guards

    def use(self) -> _Use:
        """Inside: one thread, an open consumer, of this process."""
        return _Use(self)

    def enter(self, me: int, frame: FrameType) -> int:
        """frame: of the verb. How deep its thread was inside before."""
        self._check_process()
        self._check_open()
        mine = (me, frame)
        first = self._inside.setdefault("first", mine)
        if first is not mine and not _is_under_way(first):
            first = self._inside["first"] = mine
        if first[0] != me:
            raise ConcurrentUseError(
                "another thread is inside a call of this consumer; a consumer may move between threads, "
                "but only one at a time may use it (wakeup alone may come from any)"
            )
        before = 0 if first is mine else self._depth
        self._depth = before + 1
        self._check_open()
        return before

    def leave(self, before: int) -> None:
        """Back to the depth of before."""
        try:
            self._tell()
        finally:
            self._depth = before
            if before == 0:
                self._inside.clear()
        if before == 0 and self._at_end is not None:
            at_end, self._at_end = self._at_end, None
            at_end()

    def close_later(self, close: Callable[[], None]) -> None:
        """Of the thread that is inside a call: `close` when that call ends, which is woken up."""
        self._at_end = close
        self.wakeup()

    @property
    def inside(self) -> bool:
        """Whether this very thread is inside a call: then we are in a listener, or in a signal's handler."""
        first = self._inside.get("first")
        return first is not None and first[0] == threading.get_ident() and _is_under_way(first)

    @property
    def nested(self) -> bool:
        """Whether the present call comes from within another, that is from a listener."""
        return self._depth > 1

    def _wake_network(self) -> None:
        try:
            super()._wake_network()
        except TransportError:
            self._mailbox.wait(now() + self._retry_backoff)  # a loop that tries again at once must not spin
            raise

    # -- running

    def refuse_on_network_thread(self) -> None:
        """A call that waits would wait there for what only that thread can do."""
        if self._thread.is_current:
            raise IllegalStateError(
                "a blocking call was made in a callback of commit_async's future, on the network thread, which it "
                "would stall; make it on your own thread, and let the callback only note what happened"
            )

    def run(self, call: Call[T]) -> T:
        """Run a call to its end on this thread. Raises what it raises, or `NetworkThreadDiedError`."""
        self.refuse_on_network_thread()
        try:
            wait = next(call)
            while True:
                self._dispatcher.tell()
                if wait.awaited is None:
                    self._mailbox.wait(wait.until)
                    wait = call.send(now())
                else:
                    refusal = TypeError("a method of the listener is asynchronous; only AsyncConsumer can await it")
                    wait = call.throw(refusal)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            call.close()


def _is_under_way(entered: tuple[int, FrameType]) -> bool:
    """Law 4."""
    thread, verb = entered
    frame = sys._current_frames().get(thread)
    while frame is not None and frame is not verb:
        frame = frame.f_back
    return frame is not None
