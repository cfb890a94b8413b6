"""Binds the two machines to their threads: starts the network thread, runs calls, guards against misuse.

Laws
1. Building it has no side effect. The first event that is posted starts the thread.
2. One thread at a time is inside a call; the same thread may call again from a listener, but not poll.
3. After a fork the child's use of an open consumer is an error; after close every use is.
4. Telemetry is told before a call waits and before it ends.
5. A signal handler may run between any two steps of a call of the same thread. So the guard is reentrant, whether the
   consumer is closed is looked at once the guard is held, and a close that comes in the middle of a call is done when
   that call ends (`close_later`).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from instride.commits import CommitResult
from instride.config import ConsumerConfig
from instride.core.application.calls import Call
from instride.core.application.machine import ApplicationMachine
from instride.core.application.state import OnCommit
from instride.core.events import ApplicationEvent, ChangeSettings, Wakeup
from instride.core.lease import Lease
from instride.core.network.machine import NetworkMachine
from instride.errors import ConcurrentUseError, ConsumerClosedError, ForkedConsumerError
from instride.metrics import MetricName
from instride.net.clock import now
from instride.net.mailbox import Mailbox
from instride.net.teller import Teller
from instride.net.thread import NetworkThread

__all__ = ["Driver"]

T = TypeVar("T")


class Driver:
    """What `Consumer` and `RangeConsumer` have in common below their verbs."""

    def __init__(self, config: ConsumerConfig, *, ranges: bool = False, on_commit: OnCommit | None = None) -> None:
        lease = Lease()
        self._network = network = NetworkMachine(
            config, lease=lease, random=random.random, wall_clock=time.time, ranges=ranges
        )
        self._mailbox = Mailbox()
        self._thread = NetworkThread(config, network, self._mailbox)
        self.application = ApplicationMachine(
            config,
            protocol=network.protocol,
            queue=self._mailbox.queue,
            post=self._post,
            lease=lease,
            on_commit=on_commit,
        )
        self._teller = Teller(config, self.application.telemetry)
        self._pid: int | None = None
        self._owner: int | None = None
        self._depth = 0
        self._guard = threading.RLock()
        self._at_end: Callable[[], None] | None = None
        self.closed = False

    # -- guards

    @contextmanager
    def use(self) -> Iterator[None]:
        """Inside: one thread, an open consumer, of this process."""
        me = threading.get_ident()
        before = self._depth if self._owner == me else 0
        try:
            self._enter(me)
            yield
        finally:
            self._leave(me, before)

    def _enter(self, me: int) -> None:
        if self._pid is not None and self._pid != os.getpid():
            raise ForkedConsumerError("this consumer was opened before the process forked; build one in the child")
        with self._guard:
            self._check_open()
            if self._owner not in (None, me):
                raise ConcurrentUseError(
                    "another thread is inside a call of this consumer; a consumer may move between threads, "
                    "but only one at a time may use it (wakeup alone may come from any)"
                )
            self._owner = me
            self._depth += 1
        self._check_open()

    def _check_open(self) -> None:
        if self.closed:
            raise ConsumerClosedError("this consumer is closed")

    def _leave(self, me: int, before: int) -> None:
        """Back to the depth of before, however far the way in had come when it was refused or interrupted."""
        if self._owner != me:
            return
        try:
            self._teller.tell()
        finally:
            with self._guard:
                self._depth = before
                if before == 0:
                    self._owner = None
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
        return self._owner == threading.get_ident() and self._depth > 0

    @property
    def nested(self) -> bool:
        """Whether the present call comes from within another, that is from a listener."""
        return self._depth > 1

    # -- running

    def run(self, call: Call[T]) -> T:
        """Run a call to its end on this thread. Raises what it raises, or `NetworkThreadDiedError`."""
        try:
            wait = next(call)
            while True:
                self._teller.tell()
                self._mailbox.wait(wait.until)
                wait = call.send(now())
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            call.close()

    def _post(self, event: ApplicationEvent) -> None:
        self._mailbox.check_alive()
        if self._pid is None:
            self._thread.start()
            self._pid = os.getpid()
        self._thread.post(event)

    def metrics(self) -> dict[MetricName, float]:
        """From any thread, at any time."""
        return self.application.metrics(self._network.meter, now())

    def future(self, call: int) -> Future[CommitResult]:
        return self._thread.future(call)

    def wakeup(self) -> None:
        """From any thread, or a signal handler's Python code."""
        self._mailbox.deliver([Wakeup()])

    def change_settings(self, config: ConsumerConfig) -> None:
        """Before the thread runs nothing starts it: its machine is told on this thread."""
        self.application.change_settings(config, tell=self.started)
        if not self.started:
            self._network.handle(ChangeSettings(config=config), now())

    @property
    def started(self) -> bool:
        return self._pid is not None

    def join(self, timeout: float) -> bool:
        return not self.started or self._thread.join(timeout)
