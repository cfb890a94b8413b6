"""Binds the two machines to their threads, and runs calls on the threads that use a blocking consumer.

Laws of every driver (`Shell`; an event loop's is `async_driver`)
1. Building it has no side effect. The first event that is posted starts the thread.
2. After a fork the child's use of an open consumer is an error; after close every use is.
3. Telemetry is told before a call waits and before it ends.

Laws of a thread's driver (`Driver`)
4. One thread at a time is inside a call; the same thread may call again from a listener, but not poll.
5. A signal handler may run between any two steps of a call of the same thread. So the guard is no lock, whether the
   consumer is closed is looked at once it is passed, and a close that comes in the middle of a call is done when
   that call ends (`close_later`).
6. An exception of such a handler may come between any two steps of the way in and out. So who is inside is the verb
   that is still on its thread's stack, whatever was noted.
7. A verb inside another call may take out of the queue what that call waits for, or change it. So the call looks again
   before it waits on.

What Ctrl-C in the middle of a poll leaves behind, and that no record is lost by it: `_core/application/polling.py`, law
9. In the middle of a close: `_core/application/closing.py`, law 4.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import FrameType
from typing import TypeVar

from instride._core.application.calls import Call
from instride._core.application.machine import ApplicationMachine
from instride._core.application.state import OnCommit
from instride._core.events import ChangeSettings, LeaseRenewed, Wakeup
from instride._core.network.context import Lines
from instride._core.network.machine import NetworkMachine
from instride._core.session_lease import Lease
from instride._core.telemetry_lines import first_fetches, formatted
from instride._net.call_stack import is_under_way
from instride._net.clock import now
from instride._net.mailbox import Mailbox
from instride._net.thread import NetworkThread
from instride.commits import CommitResult
from instride.config import ConsumerConfig
from instride.errors import (
    ConcurrentUseError,
    ConsumerClosedError,
    ForkedConsumerError,
    IllegalStateError,
    NetworkThreadDiedError,
    TransportError,
)
from instride.errors._quoting import one_line
from instride.metrics import MetricName
from instride.observers import Observers
from instride.telemetry import (
    DelayAtRisk,
    FetchBegan,
    PartitionFlows,
    PartitionStalled,
    PositionReset,
    TelemetryEvent,
)

__all__ = ["Driver", "Shell", "TelemetryDispatcher"]

T = TypeVar("T")

_telemetry_logger = logging.getLogger("instride.telemetry")


class Shell:
    """The two machines, the network thread and the queues between them."""

    def __init__(
        self, config: ConsumerConfig, mailbox: Mailbox, *, ranges: bool = False, on_commit: OnCommit | None = None
    ) -> None:
        lease = Lease()
        self._network = network = NetworkMachine(
            config, lease=lease, random=random.random, wall_clock=time.time, ranges=ranges
        )
        self.observers = Observers()
        self._thread = NetworkThread(config, network, mailbox, self.observers)
        self.application = ApplicationMachine(
            config,
            protocol=network.protocol,
            queue=mailbox.queue,
            post=self._thread.events.append,
            wake=self._wake_network,
            lease=lease,
            on_commit=on_commit,
        )
        self._dispatcher = TelemetryDispatcher(config, self.application.telemetry, self.observers)
        self._check_alive = mailbox.check_alive
        self._deliver = mailbox.deliver
        self._retry_backoff = config.retry_backoff
        self._pid: int | None = None
        self.closed = self._ends_at_exit = self._death_told = False

    # -- guards

    def _check_process(self) -> None:
        if self._pid is not None and self._pid != os.getpid() and self.started:
            raise ForkedConsumerError("this consumer was opened before the process forked; build one in the child")

    def _check_open(self) -> None:
        if self.closed:
            raise ConsumerClosedError("this consumer is closed")

    # -- the network thread

    def _wake_network(self) -> None:
        """There may be an event for the network side. The first thing that is starts the thread."""
        if not self._thread.events:
            return
        self._check_alive()
        if not self.started:
            self._pid = os.getpid()
            self._thread.start()
        self._thread.wake()

    def _tell(self) -> None:
        """Telemetry, and the network thread where what was interrupted did not wake it."""
        try:
            self._dispatcher.tell()
        finally:
            if self._thread.events and self.started:
                self._thread.wake()  # of what was interrupted before it did

    def tell_death(self, error: NetworkThreadDiedError | None = None) -> None:
        """Tell observers that the network thread has died, once. error: what is raised for it; None: if it has."""
        try:
            if error is None:
                self._check_alive()
        except NetworkThreadDiedError as found:
            error = found
        if error is not None and not self._death_told:
            died, self._death_told = error, True
            self.observers.each(lambda observer: observer.on_died(died))

    def metrics(self) -> dict[MetricName, float]:
        """From any thread, at any time."""
        return self.application.metrics(self._network.meter, now(), self._network.buffered())

    def future(self, call: int) -> Future[CommitResult]:
        return self._thread.future(call)

    def wakeup(self) -> None:
        """From any thread, or a signal handler's Python code."""
        if not self.application.wakeup_waits():
            self._deliver([Wakeup()])

    def change_settings(self, config: ConsumerConfig) -> None:
        """Before the thread runs nothing starts it: its machine is told on this thread."""
        self.application.change_settings(config, tell=self.started)
        if not self.started:
            self._network.handle(ChangeSettings(config=config), now())
            self._thread.change_settings(config)

    @property
    def started(self) -> bool:
        """Whether the network thread was. A start that failed is tried again by the next event."""
        return self._thread.begun

    @property
    def alive(self) -> bool:
        """Whether the network thread runs."""
        return self.started and self._thread.alive

    def join_at_exit(self, timeout: float) -> None:
        """The thread is ending by itself: the interpreter waits for it, as long as a close may take."""
        self._thread.join_at_exit(timeout)

    def mark_closed(self) -> None:
        """From here on each verb raises."""
        self.closed = True
        if self._ends_at_exit:
            atexit.unregister(self._end)

    def end_at_exit(self, timeout: float) -> None:
        """After an interrupted unsubscribe: the membership ends with the program, if nobody closes before that."""
        if not self._ends_at_exit:
            self._ends_at_exit = True
            # Python calls it before it stops daemon threads: the network thread still runs then.
            atexit.register(self._end, timeout)

    def _end(self, timeout: float) -> None:
        if self.alive and not self.closed:
            self.application.end(now(), timeout, leave=None)
            self._thread.wake()
            self._thread.join(timeout)

    def join(self, timeout: float) -> bool:
        return not self.started or self._thread.join(timeout)


class TelemetryDispatcher:
    """Tells telemetry's events to the log, to observers and to the user's listener. take: those since it was asked.

    Not thread-safe: on the application's thread, in order, each event once. An event that is told while a listener runs
    follows it. What the network thread has logged already (`telemetry_monitor`) is not logged again. Of a loss of
    thousands of partitions one line tells, and some in detail; of first fetches that come together one line tells. The
    listener hears of all.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        take: Callable[[], Iterable[TelemetryEvent]],
        observers: Observers,
    ) -> None:
        self._observers = observers
        self._client_id = config.client_id
        self._listener = config.telemetry
        self._take = take
        self._waiting: deque[TelemetryEvent] = deque()
        self._telling = False
        self._lines = Lines()
        # How many of those that wait are first fetches that a line has told of.
        self._fetches_logged = 0

    def tell(self) -> None:
        self._waiting.extend(self._take())
        if self._telling or not self._waiting:
            return
        self._telling = True
        try:
            while self._waiting:
                self._tell(self._waiting.popleft())
        finally:
            self._telling = False

    def _tell(self, event: TelemetryEvent) -> None:
        """What a listener raises is logged and goes no further; what is no `Exception`, an interrupt say, does."""
        if isinstance(event, FetchBegan):
            self._log_first_fetch(event)
        elif not isinstance(event, DelayAtRisk | PartitionStalled | PartitionFlows | PositionReset):
            self._log(event)
        if self._observers:
            self._observers.each(lambda observer: observer.on_telemetry(event))
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            _telemetry_logger.exception("%s: the telemetry listener raised; consuming goes on", self._client_id)

    def _log_first_fetch(self, event: FetchBegan) -> None:
        """With those that follow it directly."""
        if self._fetches_logged:
            self._fetches_logged -= 1
        elif _telemetry_logger.isEnabledFor(logging.DEBUG):
            began = [event]
            for each in tuple(self._waiting):  # a copy: a handler of a signal may add to them meanwhile
                if not isinstance(each, FetchBegan):
                    break
                began.append(each)
            level, text = first_fetches(began)
            _telemetry_logger.log(level, "%s: %s", self._client_id, one_line(text))
            self._fetches_logged = len(began) - 1

    def _log(self, event: TelemetryEvent) -> None:
        level, text = formatted(event)
        if not _telemetry_logger.isEnabledFor(level):
            return
        line = (level, text) if level == logging.DEBUG else self._lines.say(level, text, event.at)
        if line is not None:
            _telemetry_logger.log(line[0], "%s: %s", self._client_id, one_line(line[1]))


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
        # One step in C: of two threads, or of a thread and its signal's handler, exactly one is first.
        first = self._inside.setdefault("first", mine)
        # Law 6: an exception between the way in and the `with` may have left the note of a call that is over.
        if first is not mine and not is_under_way(first):
            first = self._inside["first"] = mine
        if first[0] != me:
            raise ConcurrentUseError(
                "another thread is inside a call of this consumer; a consumer may move between threads, "
                "but only one at a time may use it (wakeup alone may come from any)"
            )
        # `_depth` may be what a call left that an exception ended on its way out (law 6), and be 0 where a handler has
        # interrupted a call on its way in or out.
        before = 0 if first is mine else max(self._depth, 1)
        self._depth = before + 1
        # Looked at once more: a signal's handler may have closed it since the first look (law 5).
        self._check_open()
        return before

    def leave(self, before: int) -> None:
        """Back to the depth of before."""
        try:
            self._tell()
        finally:
            self._depth = before
            # Only the outermost call: one that a listener made leaves its caller inside.
            if before == 0:
                self._inside.clear()
                self._end_call()
            elif self.started:  # law 7; what is in the queue already makes it look
                self._deliver([] if self._mailbox.queue else [LeaseRenewed()])

    def _end_call(self) -> None:
        # Taken first: the close leaves by this way too, and would begin itself again; so may a handler of a signal.
        at_end, self._at_end = self._at_end, None
        if at_end is not None:
            at_end()

    def close_later(self, close: Callable[[], None]) -> None:
        """Of the thread that is inside a call: `close` when that call ends, which is woken up."""
        self._at_end = close
        self.wakeup()

    @property
    def inside(self) -> bool:
        """Whether this very thread is inside a call: then we are in a listener, or in a signal's handler."""
        first = self._inside.get("first")
        return first is not None and first[0] == threading.get_ident() and is_under_way(first)

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
            # However it ends: the generator's `finally` blocks run now, on this thread, and not when it is collected.
            call.close()
