"""A consumer with its real driver, mailbox and network thread's turns, over a scripted clock and scripted sockets.

Laws
1. Nothing takes time but a wait. Where the application waits, the network thread's turns are taken on its behalf; where
   these wait too, the clock goes on to the nearest of both ends, or to the next response.
2. A socket is an end of a socket pair, and connects at once. At the other end is a broker (`attack.broker`).
3. What the broker holds back gets no response.
"""

from __future__ import annotations

import errno
import heapq
import socket
import struct
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

import instride._consumer_base
import instride._net.driver
import instride._net.mailbox
import instride._net.thread
import instride._net.transport
from attack.broker import Request
from attack.bytes_of import array, assignment, text
from attack.virtual import SilentBroker
from instride import Consumer, RangeConsumer

__all__ = [
    "COMMIT",
    "COORDINATOR",
    "FETCH",
    "HEARTBEAT",
    "JOIN",
    "KEEPALIVE",
    "LEAVE",
    "LIST_OFFSETS",
    "METADATA",
    "SYNC",
    "Build",
    "ScriptedBroker",
    "World",
    "kept",
]

FETCH, LIST_OFFSETS, METADATA, COMMIT, COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 1, 2, 3, 8, 10, 11, 12, 13, 14
KEEPALIVE: Final = -1
"""Among the options of a socket: SO_KEEPALIVE, which is none of TCP."""
FETCH_TAKES: Final = 0.2
_BEGAN: Final = 1000.0
_TURNS: Final = 200_000


def kept(seconds: float, bound: float, *, late: float = 0.5) -> bool:
    """Not before its bound, and half a second after it at the latest."""
    return bound - 1e-6 <= seconds <= bound + late + 1e-6


class ScriptedBroker(SilentBroker):
    """Gives this member `given` of "t", with the leader's word `notice`. without_response: the requests that get none.

    errors: by the request's key, the error code that it responds with. corrupt: the records of each batch are damaged.
    """

    end = 1_000_000

    def __init__(self) -> None:
        super().__init__()
        self.silent = False
        self.without_response: set[int] = set()
        self.given: tuple[int, ...] = (0, 1, 2)
        self.notice: bytes | None = None
        self.rebalances = False
        self.throttle = 0.0
        self.generation = 0
        self.leader_epoch = 0
        self.errors: dict[int, int] = {}
        self.corrupt = False

    def response(self, frame: bytes) -> bytes:
        key = struct.unpack_from(">h", frame)[0]
        return b"" if self.silent or key in self.without_response else super().response(frame)

    def respond(self, key: int, request: Request) -> bytes:
        if key != HEARTBEAT:
            return super().respond(key, request)
        error = 27 if self.rebalances else self.errors.get(HEARTBEAT, 0)
        return struct.pack(">ih", round(self.throttle * 1000), error)

    def topic_entry(self, topic: str) -> bytes:
        if METADATA not in self.errors:
            return super().topic_entry(topic)
        return struct.pack(">h", self.errors[METADATA]) + text(topic) + b"\0" + array(())

    def partition_entry(self, topic: str, index: int) -> bytes:
        entry = super().partition_entry(topic, index)
        return entry[:10] + struct.pack(">i", self.leader_epoch) + entry[14:]

    def coordinator(self, request: Request) -> bytes:
        error = struct.pack(">h", self.errors.get(COORDINATOR, 0))
        found = super().coordinator(request)
        return found[:4] + error + found[6:]

    def fetched_entry(self, index: int, records: bytes, *, error: int = 0, **rest: Any) -> bytes:
        damaged = records[:-1] + bytes([records[-1] ^ 1]) if self.corrupt and records else records
        return super().fetched_entry(index, damaged, error=error or self.errors.get(FETCH, 0), **rest)

    def join(self, request: Request) -> bytes:
        if JOIN in self.errors:
            return self.joined(request, leader="", members=(), error=self.errors[JOIN])
        self.generation += 1
        self.rebalances = False
        joined = super().join(request)
        return joined[:6] + struct.pack(">i", self.generation) + joined[10:]

    def sync(self, request: Request) -> bytes:
        return self.synced(assignment({"t": self.given}, self.notice))


@dataclass(slots=True)
class Clock:
    at: float = _BEGAN

    def __call__(self) -> float:
        return self.at


class ScriptedSocket(socket.socket):
    """options: of TCP, as they were set."""

    options: dict[int, int]

    def setsockopt(self, level: int, option: int, value: Any, *rest: Any) -> None:
        if level == socket.IPPROTO_TCP:
            self.options[option] = value
        elif option != socket.SO_KEEPALIVE:
            super().setsockopt(level, option, value, *rest)
        else:
            self.options[KEEPALIVE] = value

    refused = False

    def connect_ex(self, address: object) -> int:
        return errno.ECONNREFUSED if self.refused else errno.EINPROGRESS


@dataclass(slots=True)
class Peer:
    """The broker's end of a connection. options: of TCP, by which the consumer's end was opened. ended_at: when the
    consumer closed it."""

    end: socket.socket
    options: dict[int, int]
    opened_at: float
    octets: bytearray = field(default_factory=bytearray)
    ended_at: float | None = None
    vanished: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that the broker has read."""

    at: float
    peer: Peer

    @property
    def given_up_after(self) -> float:
        """Seconds. Its connection was closed then."""
        assert self.peer.ended_at is not None, "it is waited for still"
        return self.peer.ended_at - self.at


class World:
    """requested: what the broker has read, by its key. chance: what every random number is. refused: no broker
    listens."""

    def __init__(
        self, patch: pytest.MonkeyPatch, kind: type[Consumer | RangeConsumer] = Consumer, **settings: Any
    ) -> None:
        self.clock = Clock()
        self.broker = ScriptedBroker()
        self.peers: list[Peer] = []
        self.requested: dict[int, list[Sent]] = defaultdict(list)
        self._coming: list[tuple[float, int, Peer, bytes]] = []
        self._numbers = count()
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._until = 0.0
        self._tokens = 0
        self._running = self._ended = False
        self.chance = 0.5
        self.refused = False
        patch.setattr(instride._net.driver, "random", SimpleNamespace(random=lambda: self.chance))
        for module in ("driver", "mailbox", "thread", "transport"):
            patch.setattr(getattr(instride._net, module), "now", self.clock)
        patch.setattr(instride._consumer_base, "now", self.clock)
        sockets: Any = {name: getattr(socket, name) for name in dir(socket)}
        patch.setattr(instride._net.transport, "socket", SimpleNamespace(**{**sockets, "socket": self._socket}))
        defaults: Any = {"bootstrap_servers": "127.0.0.1:9092", "group_id": "g", "auto_offset_reset": "earliest"}
        self.consumer = cast(Any, kind(**{**defaults, **settings}))
        self._thread = self.consumer._driver._thread
        self._mailbox = self.consumer._driver._mailbox
        self._mailbox._no_token = self
        self._thread._new_thread = lambda runs: self
        self._pump: Any = self._thread._pump
        self._thread._pump = self

    @property
    def now(self) -> float:
        return self.clock.at

    def later(self, seconds: float, happens: Callable[[], None]) -> None:
        """While the application waits."""
        self._later.append((self.now + seconds, happens))

    def vanishes(self, peer: Peer) -> None:
        """Its machine lost its power: it says nothing more, not even that. The consumer's system ends the connection as
        the options of the socket say, and whoever has its address from now on knows nothing of it."""
        peer.vanished = True
        idle, apart, probes = (peer.options[getattr(socket, f"TCP_KEEP{name}")] for name in ("IDLE", "INTVL", "CNT"))
        assert peer.options[KEEPALIVE] == 1
        self.later(idle + apart * probes, peer.end.close)

    def close(self) -> None:
        """The next world has another clock."""
        self.consumer.close(timeout=0)
        self.pass_until(self.now + 60.0, lambda: not self.is_alive())
        for each in self.peers:
            each.end.close()

    # -- as the network thread's `threading.Thread`

    @property
    def ident(self) -> int | None:
        return 1 if self._running else None

    def start(self) -> None:
        self._running = True

    def is_alive(self) -> bool:
        return self._running and not self._ended

    def join(self, timeout: float) -> None:
        self.pass_until(self.now + timeout, lambda: self._ended)

    # -- as the mailbox's token

    def locked(self) -> bool:
        return self._tokens == 0

    def release(self) -> None:
        self._tokens += 1

    def acquire(self, *, timeout: float) -> bool:
        self.pass_until(self.now + timeout, lambda: self._tokens > 0)
        if not self._tokens:
            return False
        self._tokens -= 1
        return True

    # -- as the pump

    crowded = False

    def register(self, *arguments: Any) -> None:
        self._pump.register(*arguments)

    def unregister(self, data: object) -> None:
        self._pump.unregister(data)

    def select(self, timeout: float) -> Any:
        """Law 1."""
        self._serve()
        ready = self._pump.select(0.0)
        if ready or timeout <= 0:
            return ready
        arrives = self._coming[0][0] if self._coming else float("inf")
        self.clock.at = max(self.now, min(self.now + timeout, self._until, arrives))
        self._serve()
        return self._pump.select(0.0)

    # -- time, and the other ends

    def pass_until(self, end: float, enough: Callable[[], bool] = lambda: False) -> None:
        for _ in range(_TURNS):
            if enough() or self.now >= end:
                return
            if not self.is_alive():
                self.clock.at = end
                return
            self._until = min([end, *(at for at, _ in self._later)])
            self._thread._turn()
            for each in [each for each in self._later if each[0] <= self.now]:
                self._later.remove(each)
                each[1]()
            if self._thread._stopping:
                self._ended = True
                self._thread._clean_up()
                self._mailbox.network_ended()
                self._serve()
        raise AssertionError(f"it spins at {self.now}")

    def _socket(self, family: int, kind: int) -> ScriptedSocket:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        made = ScriptedSocket(fileno=ours.detach())
        made.options, made.refused = {}, self.refused
        self.peers.append(Peer(end=theirs, options=made.options, opened_at=self.now))
        return made

    def _serve(self) -> None:
        for each in self.peers:
            if each.ended_at is None and not each.vanished:
                self._read(each)
        while self._coming and self._coming[0][0] <= self.now:
            _, _, peer, data = heapq.heappop(self._coming)
            if peer.vanished:
                continue
            with suppress(BrokenPipeError):  # it was closed meanwhile
                peer.end.sendall(data)

    def _read(self, peer: Peer) -> None:
        try:
            data = peer.end.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            peer.ended_at = self.now
        peer.octets += data
        while len(peer.octets) >= 4 and len(peer.octets) >= (size := 4 + int.from_bytes(peer.octets[:4])):
            frame = bytes(peer.octets[4:size])
            del peer.octets[:size]
            self._respond(peer, frame)

    def _respond(self, peer: Peer, frame: bytes) -> None:
        key = struct.unpack_from(">h", frame)[0]
        self.requested[key].append(Sent(self.now, peer))
        data = self.broker.response(frame)
        if data:
            heapq.heappush(self._coming, (self.now + FETCH_TAKES * (key == FETCH), next(self._numbers), peer, data))


Build = Callable[..., World]
