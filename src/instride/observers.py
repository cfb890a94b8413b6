"""What a consumer does, as it does it: requests, responses, polls, verbs. For recorders, traces, metrics of your own.

    class Slowest(Observer):
        def on_request(self, connection, number, request, at): ...
        def on_response(self, number, response, at): ...

    consumer.observe(Slowest())     # before its first use; of a `Pipeline` too

Laws
1. Every method may be left out: those of `Observer` do nothing. More may be added.
2. An observer changes nothing. What it raises is logged and goes no further; it may not call the consumer. On the
   application's thread an interrupt (what is no `Exception`) goes on; the network thread survives that too. Only what
   `on_observed` raises goes on in any case: `observe` raises it, and the observer hears nothing.
3. Methods are called on the thread that does what they tell of. A slow one delays that thread: heartbeats, or the poll.
4. `at` is the time, in seconds of the clock that telemetry's times are of, too (law 3 of `instride.telemetry`).
5. A consumer without an observer asks once for each verb and each turn of its network thread whether there is one.

Telemetry (`instride.telemetry`) tells what became of partitions, in few events of stable types. Messages and the core's
own events, which are passed here, are as the code has them: they may change in a minor version.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instride._core.events import ApplicationEvent, BackgroundEvent
from instride._wire.api import Request, Response
from instride.listeners import AsyncRebalanceListener
from instride.records import OffsetRange, TopicPartition
from instride.telemetry import TelemetryEvent

if TYPE_CHECKING:
    from instride._core.application.partition import Delivery
    from instride.config import ConsumerConfig
    from instride.records import ConsumerRecord

__all__ = ["ObservedListener", "Observer", "Observers", "Polled", "Positions"]

_logger = logging.getLogger("instride.observers")

Positions = Mapping[TopicPartition, tuple[int, int, int | None]]
"""Of each partition: assignment epoch, seek number, and the offset of the next record; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """What a poll returns. to_be_revoked, lost, paused: as they are at its end. positions: asks for them, now.

    completed: whether the poll has returned. Never, where an exception leaves it after all (Ctrl-C, say): then it took
        nothing, and the next poll has the same. Any thread may ask.
    """

    to_be_revoked: frozenset[TopicPartition]
    lost: frozenset[TopicPartition]
    paused: frozenset[TopicPartition]
    positions: Callable[[], Positions]
    deliveries: Iterable[Delivery]
    completed: Callable[[], bool] = lambda: True

    def records(self) -> Iterator[ConsumerRecord | OffsetRange]:
        """Made anew, not deserialized; ranges of a `RangeConsumer`."""
        for each in self.deliveries:
            yield from each.chunk.records(epoch=each.epoch, seek_number=each.seek_number)


class Observer:
    """Subclass it, and give an object of it to `observe`."""

    def on_observed(self, consumer: Any, config: ConsumerConfig) -> None:
        """It observes this `Consumer` or `RangeConsumer` from now on, unless this raises. config: its settings."""

    # -- on the network thread

    def on_request(self, connection: Hashable, number: int, request: Request, at: float) -> None:
        """A request is put on a connection. connection: equal for the same one. number: rises; its response has it."""

    def on_response(self, number: int, response: Response | Exception, at: float) -> None:
        """A request was responded to, or its response could not be read."""

    def on_connection_closed(self, connection: Hashable, at: float) -> None:
        """A connection was closed, or is about to be opened anew: no response will come on it any more."""

    def on_application_event(self, event: ApplicationEvent, at: float) -> None:
        """The network thread takes an event of the application's."""

    def on_background_event(self, event: BackgroundEvent, at: float) -> None:
        """The network thread posts an event to the application: assigned, revoked, lost, fetched, failed, ..."""

    # -- on the application's thread

    def on_telemetry(self, event: TelemetryEvent) -> None:
        """What the setting `telemetry` hears."""

    def on_poll(self, polled: Polled) -> None:
        """A poll is about to return (`Polled.completed`)."""

    def on_subscribe(self, topics: tuple[str, ...]) -> None:
        """`subscribe` was called. topics: none where it is by pattern."""

    def on_unsubscribe(self, *, done: bool) -> None:
        """`unsubscribe` was called, and once more when it is done."""

    def on_timed_out(self, verb: str) -> None:
        """An `unsubscribe` has taken its whole timeout: it leaves without the commits that it tried until then."""

    def on_interrupted(self, verb: str) -> None:
        """`unsubscribe` or `close` is about to raise: an exception came in the middle, or a listener's at its end."""

    def on_seek(self, partition: TopicPartition) -> None:
        """A seek was taken."""

    def on_delay_revoke(self, partitions: tuple[TopicPartition, ...], *, accepted: bool) -> None:
        """`delay_revoke` is about to return."""

    def on_commit(self, offsets: Any, positions: Callable[[], Positions]) -> None:
        """`commit` or `commit_async` was called. offsets: as the user gave them. positions: asks for them, now."""

    def on_allow_rewind(self, offsets: Any, positions: Callable[[], Positions]) -> None:
        """The same, before `on_commit`, of one with `allow_rewind`: it may take the group's offsets back."""

    def on_commit_failed(self, error: Exception) -> None:
        """`commit` is about to raise this."""

    def on_listener(self, method: str, partitions: tuple[TopicPartition, ...]) -> None:
        """A method of the user's rebalance listener is about to be called."""

    def on_died(self, error: Exception) -> None:
        """The network thread has died: told once, by the poll that raises it, or by `close`."""

    def on_close(self, *, clean: bool) -> None:
        """`close` is about to return. clean: everything was sent and responded to."""


class Observers(list[Observer]):
    """Those of one consumer. `each` may be called by any thread; one is added only before the consumer's first use."""

    __slots__ = ()

    def each(self, call: Callable[[Observer], None], survived: type[BaseException] = Exception) -> None:
        """Law 2."""
        for observer in self:
            try:
                call(observer)
            except survived:
                _logger.exception("an observer raised: %s", type(observer).__name__)


class ObservedListener(AsyncRebalanceListener):
    """Tells observers what a user's listener is about to hear, then calls it."""

    def __init__(self, listener: AsyncRebalanceListener, observers: Observers) -> None:
        self._listener = listener
        self._observers = observers

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        self._tell("on_partitions_assigned", partitions)
        return self._listener.on_partitions_assigned(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        self._tell("on_partitions_revoked", partitions)
        return self._listener.on_partitions_revoked(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        self._tell("on_partitions_lost", partitions)
        return self._listener.on_partitions_lost(partitions)

    def _tell(self, method: str, partitions: Sequence[TopicPartition]) -> None:
        told = tuple(partitions)
        self._observers.each(lambda observer: observer.on_listener(method, told))
