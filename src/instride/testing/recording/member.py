"""A `Consumer` that is watched: both of its machines behind a proxy that writes down what passes.

Laws
1. The consumer does what it would do otherwise: each proxy hands everything on, results and errors too.
2. The network machine is watched by `Tap`, on the network thread; the application machine on its caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, cast

from instride.consumer import Consumer, RangeConsumer
from instride.core.application.machine import ApplicationMachine
from instride.core.events import ApplicationEvent, Assign
from instride.core.network.actions import Action, CloseConnection, ConnectionKey, Deliver, OpenConnection, Transmit
from instride.core.network.machine import NetworkMachine
from instride.errors import IllegalStateError
from instride.records import OffsetRange, TopicPartition
from instride.testing.recording.application import WatchedApplication
from instride.testing.recording.resources import sample
from instride.testing.tap import Tap
from instride.wire.api import Response
from instride.wire.decoder import ConsumerRecord

__all__ = ["RecordedMember"]

Say = Callable[..., None]
Finishes = Literal["told", "delivered"]


class RecordedMember:
    """What an application tells of itself, besides what is seen. Thread-safe."""

    def __init__(
        self, say: Say, consumer: Consumer | RangeConsumer, name: str, *, finishes: Finishes, holes: bool
    ) -> None:
        driver, config = consumer._driver, consumer._config
        if driver.started:
            raise IllegalStateError("watch a consumer before its first use: what came before is not known")
        self.name = name
        self._consumer = consumer
        self._say = partial(say, name)
        self._say("started", False, finishes, True)
        tap = Tap(self._say, session_timeout=config.session_timeout)
        watched = WatchedApplication(consumer._application, self._say, holes=holes, beats=lambda: tap.beats)
        driver.application = consumer._application = cast(ApplicationMachine, watched)
        self._application = watched
        thread = driver._thread
        thread._machine = cast(NetworkMachine, _WatchedNetwork(thread._machine, tap, self._say))

    def done(self, record: ConsumerRecord | OffsetRange) -> None:
        """The work on it is finished."""
        if isinstance(record, OffsetRange):
            self._say("range done", record.topic_partition, record.start, record.end - 1, record.epoch)
        else:
            self._say("done", record.topic_partition, record.offset, record.epoch)

    def failed(self, record: ConsumerRecord) -> None:
        """Its handler raised: it may be handled again."""
        self._say("failed", record.topic_partition, record.offset, record.epoch)

    def not_begun(self, partition: TopicPartition, offset: int = 0) -> None:
        """It lets go of what the present assignment returned from this offset on: no work on that was begun."""
        epoch = self._application.epoch_of(partition)
        if epoch is not None:
            self._say("not begun", partition, epoch, offset)

    def leaving(self) -> None:
        """It is asked to go."""
        self._say("leaving")

    def crashed(self) -> None:
        """It was killed, or dropped without `close`."""
        self._say("crashed")

    def note(self, what: str, *detail: Any) -> None:
        """Something for a reader of the history; the checker does not judge it."""
        self._say(what, *detail)

    def sample(self) -> None:
        """What the process and this consumer's buffers need now (R1): call it regularly in a soak."""
        self._say("sample", *sample(self._consumer))


class _WatchedNetwork:
    """The network machine's surface, as `net.thread` uses it."""

    def __init__(self, machine: NetworkMachine, tap: Tap, say: Say) -> None:
        self._machine = machine
        self._tap = tap
        self._say = say
        self._by_hand: dict[TopicPartition, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def handle(self, event: ApplicationEvent, now: float) -> None:
        if isinstance(event, Assign):
            self._assigned_by_hand(event.partitions)
        self._machine.handle(event, now)

    def _assigned_by_hand(self, partitions: Mapping[TopicPartition, int]) -> None:
        before, self._by_hand = self._by_hand, dict(partitions)
        if gone := tuple((tp, epoch) for tp, epoch in before.items() if partitions.get(tp) != epoch):
            self._say("revoked", gone)
        if new := tuple((tp, epoch) for tp, epoch in partitions.items() if before.get(tp) != epoch):
            self._say("assigned", None, new)

    def response_received(self, request_id: int, result: Response | Exception, now: float) -> None:
        self._tap.response_received(request_id, result, now)
        self._machine.response_received(request_id, result, now)

    def closed(self, key: ConnectionKey, error: Exception, now: float) -> None:
        self._tap.closed(key, now)
        self._machine.closed(key, error, now)

    def tick(self, now: float) -> list[Action]:
        actions = self._machine.tick(now)
        for action in actions:
            match action:
                case Transmit():
                    self._tap.sent(action.key, action.request_id, action.request, now)
                case OpenConnection() | CloseConnection():
                    self._tap.closed(action.key, now)
        for action in actions:  # the shell delivers last, too
            if isinstance(action, Deliver):
                self._tap.delivered(action.event)
        return actions
