"""A long response takes one wait: it is received whole, where the last one was, while the thread waits."""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import sys
import termios
from array import array
from collections.abc import Iterator

import pytest

from instride._core.network.actions import ConnectionKey, Role
from instride._core.network.machine import NetworkMachine
from instride._core.session_lease import Lease
from instride._net.mailbox import Mailbox
from instride._net.pump import Pump
from instride._net.thread import NetworkThread
from instride._net.transport import Transport
from instride._wire.api import ApiVersions
from instride._wire.connection import Connection, Received
from instride._wire.frames import FrameBuffer
from instride._wire.memory_pool import Segments
from instride.config import ConsumerConfig

LONG = 300_000
PART = 100_000
KEY = ConnectionKey(Role.DATA, 1)


class Frames(Connection):
    """Takes frames for what they are: no handshake, and a response is always awaited."""

    def __init__(self) -> None:
        super().__init__(client_id="c", max_frame_bytes=1 << 30)
        self._frames = FrameBuffer(max_frame_bytes=1 << 30, segments=Segments(1 << 24))
        self.found: list[memoryview] = []

    @property
    def ready(self) -> bool:
        return True

    def handshake(self) -> bytes:
        return b""

    def get_buffer(self) -> memoryview:
        return self._frames.get_buffer(whole=True)

    def buffer_updated(self, size: int) -> list[Received]:
        self.found += self._frames.buffer_updated(size)
        return []


class Line:
    """Both ends of one connection. What is sent fits into the system's buffers, and is there at once."""

    def __init__(self, frames: Frames | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            self.frames = Frames() if frames is None else frames
            self.transport = Transport([(socket.AF_INET, server.getsockname())], "b:1", self.frames).open()
            assert self.transport.socket is not None
            self.socket = self.transport.socket
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            self.peer, _ = server.accept()
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        select.select([], [self.socket], [])
        self.transport.writable()
        self.pump: Pump[str] = Pump(eager=sys.platform == "linux")
        self.pump.register("one", self.socket.fileno(), 1, self.transport.line)
        assert self.receive(b"x", 1) == [b"x"]  # the first frame is short

    def send(self, data: bytes) -> None:
        """All of it has come when this returns: the pump would wait for a part that comes later."""
        there = self.unread() + len(data)
        self.peer.sendall(data)
        while self.unread() < there:
            pass

    def unread(self) -> int:
        """Bytes that have come and were not received."""
        count = array("i", [0])
        fcntl.ioctl(self.socket, termios.FIONREAD, count)
        return count[0]

    def turn(self) -> None:
        self.transport.offer()
        for _ in self.pump.select(60.0):
            self.transport.readable()
        assert self.transport.failure is None

    def receive(self, body: bytes, frames: int) -> list[memoryview]:
        self.send(struct.pack(">i", len(body)) + body)
        while len(self.frames.found) < frames:
            self.turn()
        found, self.frames.found = self.frames.found, []
        return found

    def begin(self) -> None:
        """A part of a long response has come and is read."""
        self.send(struct.pack(">i", LONG) + b"y" * PART)
        while self.frames.wanted != LONG - PART:
            self.turn()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.transport.close()
    made.peer.close()


def fewest_waits(line: Line, body: bytes, before: bytes = b"") -> int:
    """Of some tries: on a busy machine a part may come late."""
    waits = []
    for _ in range(5):
        if before:
            line.receive(before, 1)
        takes = line.pump.takes
        assert line.receive(body, 1) == [body]
        waits.append(line.pump.takes - takes)
    return min(waits)


def test_a_response_that_is_as_long_as_the_last_one_takes_one_wait(line: Line) -> None:
    line.receive(b"a" * LONG, 1)
    assert fewest_waits(line, b"b" * LONG) <= 1
    assert fewest_waits(line, b"c" * (LONG + 7)) <= 1


def test_a_short_one_that_comes_instead_does_as_well(line: Line) -> None:
    assert fewest_waits(line, b"short", before=b"a" * LONG) <= 1


def test_what_the_pump_has_not_received_is_read(line: Line) -> None:
    line.begin()
    line.send(b"z" * (LONG - PART))
    while not line.frames.found:
        line.transport.readable()
    assert line.frames.found == [b"y" * PART + b"z" * (LONG - PART)]


def test_a_request_that_is_sent_leaves_what_was_received(line: Line) -> None:
    line.transport.offer()
    line.send(struct.pack(">i", 5) + b"fi")
    assert line.pump.select(60.0) == [("one", 1)]
    line.frames.send = lambda request_id, request: b"request"  # type: ignore[method-assign]  # its bytes mean nothing here
    line.transport.send(1, ApiVersions())
    line.transport.offer()
    line.send(b"ve!")
    assert line.pump.select(60.0) == [("one", 1)]
    line.transport.readable()
    assert line.frames.found == [b"five!"]
    assert line.peer.recv(99) == b"request"


@pytest.mark.skipif(sys.platform != "linux", reason="how much is there is asked as Linux has it")
def test_a_response_that_comes_slowly_has_not_stopped(line: Line) -> None:
    config = ConsumerConfig(bootstrap_servers="b:1")
    machine = NetworkMachine(config, lease=Lease(), random=lambda: 0.5, wall_clock=lambda: 0.0)
    thread = NetworkThread(config, machine, Mailbox())
    thread._transports[KEY] = line.transport
    thread._announced.add(KEY)
    line.begin()
    line.send(b"z" * 10)  # the system does not wake us for so little
    line.transport.stalls_at = 0.0
    thread._end_stalled()
    assert line.transport.failure is None
    assert line.frames.wanted == LONG - PART - 10
    line.transport.stalls_at = 0.0
    thread._end_stalled()
    assert "stopped in the middle" in str(line.transport.failure)
