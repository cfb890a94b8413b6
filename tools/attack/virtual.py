"""A consumer's two machines against a broker's bytes, in virtual time: no socket, no thread, no clock.

Laws
1. Everything is drawn by the seed: the same seed gives the same history.
2. What a broker sends comes in order, a moment later: whole, or damaged (`attack.proxy`). While that lasts it may name
   another partition or another end of the log. A request that the broker cannot read ends the connection.
3. The user polls, takes every record, and goes on after each error. Once the network is good he reads all from the
   beginning: by a seek, or, since what a group's leader says has no checksum, by another subscription.
"""

from __future__ import annotations

import heapq
import random
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import fields, is_dataclass, replace
from itertools import count
from typing import Any

from attack.broker import Broker
from attack.proxy import DAMAGES
from instride._core.application.machine import ApplicationMachine
from instride._core.events import EARLIEST, ApplicationEvent, BackgroundEvent
from instride._core.network.actions import (
    CloseConnection,
    ConnectionKey,
    Deliver,
    OpenConnection,
    PerformAssignment,
    Transmit,
)
from instride._core.network.machine import NetworkMachine
from instride._core.session_lease import Lease
from instride._wire.api import FetchResponse
from instride._wire.connection import Connection
from instride.config import ConsumerConfig
from instride.errors import KafkaError
from instride.records import TopicPartition

__all__ = ["Damaged", "Lying", "SilentBroker"]

_LATENCY = 0.01
_TURNS = 10_000
_LONGEST_FRAME = 64 << 20


class SilentBroker(Broker):
    """Each response is made when the test calls for it; no socket listens."""

    port = 9092

    def __init__(self) -> None:
        self.requested, self.fetched = Counter(), Counter()
        self.asking = threading.local()

    def linger(self) -> None:
        """Its clients' clock is not the machine's."""


class Damaged:
    """One consumer behind a network that damages this share of what comes, before the time `until`.

    member: of a group; else all partitions are assigned by hand. records: what came since the last `begin_again`.
    """

    def __init__(
        self,
        damages: tuple[str, ...],
        seed: int,
        *,
        share: float,
        until: float,
        member: bool,
        broker: Callable[[], Broker] = SilentBroker,
    ) -> None:
        self.now = 0.0
        self.records: dict[int, list[int]] = {}
        self.errors: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._dice = random.Random(seed)  # noqa: S311
        self._damages = [DAMAGES[each] for each in damages]
        self._share, self._until, self._member = share, until, member
        self.broker = broker()
        self._connections: dict[ConnectionKey, Connection] = {}
        self._open: set[ConnectionKey] = set()
        self._coming: list[tuple[float, int, ConnectionKey, Connection, bytes, bool]] = []
        self._number = count()
        self._queue: deque[BackgroundEvent] = deque()
        config = ConsumerConfig(
            bootstrap_servers="127.0.0.1:9092",
            group_id="g" if member else None,
            auto_offset_reset="earliest",
            request_timeout=3.0,
            metadata_max_age=30.0,
        )
        lease = Lease()
        self._network = NetworkMachine(config, lease=lease, random=self._dice.random, wall_clock=lambda: self.now)
        self.application = ApplicationMachine(
            config, protocol=self._network.protocol, queue=self._queue, post=self._post, lease=lease
        )
        self._partitions = [TopicPartition("t", number) for number in range(self.broker.partitions)]

    # -- the user

    def begin(self) -> None:
        if self._member:
            self.application.subscribe(["t"], None)
        else:
            self.application.assign(self._partitions)

    def begin_again(self) -> None:
        """From the beginning of the logs."""
        self.records.clear()
        if self._member:
            self._run(self.application.unsubscribe(self.now, 5.0))
            self.begin()
        else:
            for partition in self._partitions:
                self.application.seek(partition, EARLIEST)

    def read(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> bool:
        """Poll for so long, or until it is enough. Whether it is."""
        end = self.now + seconds
        while self.now < end and not enough():
            try:
                found = self._run(self.application.poll(self.now, 0.2, immediate=False, limit=100))
            except KafkaError as error:
                self.errors[type(error).__name__] += 1
                self._pass_until(self.now + 0.05)
                continue
            for delivery in found or ():
                for each in delivery.chunk.records(epoch=delivery.epoch, seek_number=delivery.seek_number):
                    self.records.setdefault(each.partition, []).append(each.offset)
                    if self.now > self._until and each.value != b"%d:%d" % (each.partition, each.offset):
                        self.wrong.append(f"{each.partition}:{each.offset} has the value {each.value!r}")
        return enough()

    def all_read(self) -> bool:
        """Every record of each partition, once and in order."""
        everything = list(range(self.broker.end))
        return all(self.records.get(number) == everything for number in range(self.broker.partitions))

    def _run(self, call: Generator[Any, float, Any]) -> Any:
        try:
            wait = next(call)
            while True:
                self._pass_until(wait.until, lambda: bool(self._queue))
                wait = call.send(self.now)
        except StopIteration as end:
            return end.value

    # -- the network

    def _post(self, event: ApplicationEvent) -> None:
        self._network.handle(event, self.now)

    def _pass_until(self, end: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Virtual time passes, from one thing that happens to the next."""
        for _ in range(_TURNS):
            self._settle()
            if enough() or self.now >= end:
                return
            arrives = self._coming[0][0] if self._coming else float("inf")
            self.now = min(end, max(self.now, min(arrives, self._network.deadline())) + 1e-6)
            while self._coming and self._coming[0][0] <= self.now:
                self._arrive(*heapq.heappop(self._coming)[2:])
        raise AssertionError(f"it spins at {self.now}")

    def _settle(self) -> None:
        for _ in range(_TURNS):
            actions = self._network.tick(self.now)
            if not actions:
                return
            for action in actions:
                self._act(action)
        raise AssertionError(f"it never settles at {self.now}")

    def _act(self, action: object) -> None:
        match action:
            case OpenConnection():
                connection = Connection(client_id="attacked", max_frame_bytes=_LONGEST_FRAME)
                self._connections[action.key] = connection
                self._serve(action.key, connection, connection.handshake())
            case CloseConnection():
                self._forget(action.key)
            case Transmit() if action.key in self._open:
                connection = self._connections[action.key]
                try:
                    self._serve(action.key, connection, connection.send(action.request_id, action.request))
                except KafkaError as error:
                    self._network.response_received(action.request_id, error, self.now)
            case PerformAssignment():
                self._network.assignment_performed(action, action.outcome(), self.now)
            case Deliver():
                self._queue.append(action.event)
            case _:
                pass

    def _serve(self, key: ConnectionKey, connection: Connection, frame: bytes) -> None:
        if not frame:
            return
        try:
            data, ends = self.broker.response(frame[4:]), False
        except (KafkaError, struct.error, KeyError):  # a version that it does not have: as Kafka, it hangs up
            data, ends = b"", True
        if data and self.now < self._until and self._dice.random() < self._share:
            data, ends = self._dice.choice(self._damages)(self._dice, data)
        heapq.heappush(self._coming, (self.now + _LATENCY, next(self._number), key, connection, data, ends))

    def _arrive(self, key: ConnectionKey, connection: Connection, data: bytes, ends: bool) -> None:  # noqa: FBT001
        if self._connections.get(key) is not connection:
            return
        for each in connection.receive_data(data):
            result = each.error if each.response is None else self._told(each.response)
            assert result is not None
            self._network.response_received(each.request_id, result, self.now)
        if connection.failure is not None or ends:
            self._forget(key)
            self._network.closed(key, connection.failure or connection.end_of_stream(), self.now)
        elif key not in self._open and connection.ready:
            self._open.add(key)
            self._network.opened(key, self.now)
        elif not connection.ready:
            self._serve(key, connection, connection.handshake())

    def _told(self, response: Any) -> Any:
        """What a broker says, as it was read."""
        return response

    def _forget(self, key: ConnectionKey) -> None:
        self._connections.pop(key, None)
        self._open.discard(key)


class Lying(Damaged):
    """The same with a broker that lies: in this share of its responses a value is another that its type may have."""

    def __init__(self, seed: int, *, share: float, until: float, member: bool) -> None:
        super().__init__(("cut",), seed, share=0.0, until=until, member=member)
        self._lies = share
        self.lied: Counter[str] = Counter()

    def _told(self, response: Any) -> Any:
        share = (
            self._lies if isinstance(response, FetchResponse) else min(0.8, 5 * self._lies)
        )  # of those there are few
        if self.now >= self._until or self._dice.random() >= share:
            return response
        lie = lied(self._dice, response)
        self.lied[type(response).__name__] += lie != response
        return lie


_CODES = (
    -1,
    0,
    *range(1, 20),
    *range(22, 32),
    35,
    36,
    47,
    56,
    70,
    71,
    74,
    75,
    76,
    77,
    79,
    82,
    83,
    97,
    100,
    106,
    113,
    129,
    999,
    -32768,
)
_LONG = (-1, 0, 1, 199, 200, 201, 10**6, (1 << 31) - 1, 1 << 31, 1 << 53, (1 << 63) - 1, -2, -(1 << 63))
_INT = (-1, 0, 1, 2, 3, 10**6, (1 << 31) - 1, -2, -(1 << 31))
_TEXTS = (
    "",
    "t",
    "other",
    "me",
    "range",
    "cooperative-sticky",
    "x" * 3000,
    "evil\n\x1b[2J",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
)
# What a codec made of the bytes: no broker says it.
_OWN = ("undecoded", "chunk", "corrupt", "next_offset")
_LONGS = ("offset", "watermark", "timestamp", "start")


def lied(dice: random.Random, value: Any, name: str = "") -> Any:
    """One value of it is another one."""
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value) if each.init and each.name not in _OWN]
        chosen = dice.choice(names)
        return replace(value, **{chosen: lied(dice, getattr(value, chosen), chosen)})
    match value:
        case bool():
            return not value
        case int():
            numbers = _CODES if name.startswith("error") else _LONG if any(part in name for part in _LONGS) else _INT
            return dice.choice((*numbers, value + 1, value - 1))
        case float():
            return dice.choice((0.0, 0.001, 5.0, 1e6, 2147483.647))
        case str():
            return dice.choice(_TEXTS)
        case bytes():
            return dice.choice((b"", dice.randbytes(20), value[: len(value) // 2], value + value))
        case tuple():
            return _tuple(dice, value, name)
        case dict():
            return _dict(dice, value, name)
        case _:
            return value


def _tuple(dice: random.Random, value: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if not value or dice.random() < 0.1:
        return ()
    at, how = dice.randrange(len(value)), dice.random()
    if how < 0.15:
        return (*value, value[at])
    if how < 0.3:
        return value[:at] + value[at + 1 :]
    return (*value[:at], lied(dice, value[at], name), *value[at + 1 :])


def _dict(dice: random.Random, value: dict[Any, Any], name: str) -> dict[Any, Any]:
    """Nothing is left out: of what was requested and is not there the codecs say that it failed."""
    if not value:
        return value
    key = dice.choice(sorted(value))
    return {**value, key: lied(dice, value[key], name)}
