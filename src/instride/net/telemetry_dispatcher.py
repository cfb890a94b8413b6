"""Tells telemetry's events: to the log, to observers, and to the user's listener.

Laws
1. On the application's thread, in order, each event once. An event that is told while a listener runs follows it.
2. What a listener raises is logged and goes no further; only what is no `Exception`, an interrupt say, does.
3. Many lines of one kind are bounded as the network thread's are (`core.network.lines`): of a loss of thousands of
   partitions one line tells, and some in detail. The listener hears of all.
4. What the network thread has logged already (`core.network.watch`) is not logged again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from instride.config import ConsumerConfig
from instride.core.network.context import Lines
from instride.core.telemetry_lines import words
from instride.errors.quoting import one_line
from instride.observers import Observers
from instride.telemetry import DelayAtRisk, PartitionFlows, PartitionStalled, PositionReset, TelemetryEvent

__all__ = ["TelemetryDispatcher"]

_logger = logging.getLogger("instride.telemetry")


class TelemetryDispatcher:
    """Not thread-safe. take: the events since it was asked last."""

    def __init__(
        self,
        config: ConsumerConfig,
        take: Callable[[], Iterable[TelemetryEvent]],
        observers: Observers | None = None,
    ) -> None:
        self._observers = Observers() if observers is None else observers
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
        if not isinstance(event, DelayAtRisk | PartitionStalled | PartitionFlows | PositionReset):
            self._log(event)
        if self._observers:
            self._observers.each(lambda observer: observer.on_telemetry(event))
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            _logger.exception("%s: the telemetry listener raised; consuming goes on", self._client_id)

    def _log(self, event: TelemetryEvent) -> None:
        level, text = words(event)
        if not _logger.isEnabledFor(level):
            return
        line = (level, text) if level == logging.DEBUG else self._lines.say(level, text, event.at)
        if line is not None:
            _logger.log(line[0], "%s: %s", self._client_id, one_line(line[1]))
