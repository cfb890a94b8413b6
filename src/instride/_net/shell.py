"""Binds the two machines to their threads: what a thread's driver and an event loop's have in common.

Laws
1. Building it has no side effect. The first event that is posted starts the thread.
2. After a fork the child's use of an open consumer is an error; after close every use is.
3. Telemetry is told before a call waits and before it ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from instride._core.application.machine import ApplicationMachine
from instride._core.application.state import OnCommit
from instride._core.events import ChangeSettings, Wakeup
from instride._core.lease import Lease
from instride._core.network.context import Lines
from instride._core.network.machine import NetworkMachine
from instride._core.telemetry_lines import words
from instride._net.clock import now
from instride._net.mailbox import Mailbox
from instride._net.thread import NetworkThread
from instride.commits import CommitResult
from instride.config import ConsumerConfig
from instride.errors import ConsumerClosedError, ForkedConsumerError
from instride.errors.quoting import one_line
from instride.metrics import MetricName
from instride.observers import Observers
from instride.telemetry import DelayAtRisk, PartitionFlows, PartitionStalled, PositionReset, TelemetryEvent

__all__ = ["Shell", "TelemetryDispatcher"]

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
        self._pid: int | None = None
        self.closed = False

    # -- guards

    def _check_process(self) -> None:
        if self._pid is not None and self._pid != os.getpid():
            raise ForkedConsumerError("this consumer was opened before the process forked; build one in the child")

    def _check_open(self) -> None:
        if self.closed:
            raise ConsumerClosedError("this consumer is closed")

    # -- the network thread

    def _wake_network(self) -> None:
        """Something may have been said to the network side. The first thing that is starts the thread."""
        if not self._thread.events:
            return
        self._check_alive()
        if self._pid is None:
            self._thread.start()
            self._pid = os.getpid()
        self._thread.wake()

    def _tell(self) -> None:
        """Telemetry, and the network thread where what was interrupted did not wake it."""
        try:
            self._dispatcher.tell()
        finally:
            if self.started and self._thread.events:
                self._thread.wake()  # of what was interrupted before it did

    def metrics(self) -> dict[MetricName, float]:
        """From any thread, at any time."""
        return self.application.metrics(self._network.meter, now())

    def future(self, call: int) -> Future[CommitResult]:
        return self._thread.future(call)

    def wakeup(self) -> None:
        """From any thread, or a signal handler's Python code."""
        self._deliver([Wakeup()])

    def change_settings(self, config: ConsumerConfig) -> None:
        """Before the thread runs nothing starts it: its machine is told on this thread."""
        self.application.change_settings(config, tell=self.started)
        if not self.started:
            self._network.handle(ChangeSettings(config=config), now())

    @property
    def started(self) -> bool:
        return self._pid is not None

    @property
    def alive(self) -> bool:
        """Whether the network thread runs."""
        return self.started and self._thread.alive

    def join_at_exit(self, timeout: float) -> None:
        """The thread is ending by itself: the interpreter waits for it, as long as a close may take."""
        atexit.register(self._thread.join, timeout)

    def join(self, timeout: float) -> bool:
        return not self.started or self._thread.join(timeout)


class TelemetryDispatcher:
    """Tells telemetry's events to the log, to observers and to the user's listener. take: those since it was asked.

    Not thread-safe: on the application's thread, in order, each event once. An event that is told while a listener runs
    follows it. What the network thread has logged already (`_core.network.monitor`) is not logged again. Of a loss of
    thousands of partitions one line tells, and some in detail; the listener hears of all.
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
        if not isinstance(event, DelayAtRisk | PartitionStalled | PartitionFlows | PositionReset):
            self._log(event)
        if self._observers:
            self._observers.each(lambda observer: observer.on_telemetry(event))
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            _telemetry_logger.exception("%s: the telemetry listener raised; consuming goes on", self._client_id)

    def _log(self, event: TelemetryEvent) -> None:
        level, text = words(event)
        if not _telemetry_logger.isEnabledFor(level):
            return
        line = (level, text) if level == logging.DEBUG else self._lines.say(level, text, event.at)
        if line is not None:
            _telemetry_logger.log(line[0], "%s: %s", self._client_id, one_line(line[1]))
