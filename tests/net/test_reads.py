"""A long response takes few reads: the system wakes us for much of it at once, and no read is made for nothing."""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import sys
import termios
import threading
from array import array
from collections.abc import Iterator

import pytest

from instride._core.lease import Lease
from instride._core.network.actions import ConnectionKey, Role
from instride._core.network.machine import NetworkMachine
from instride._net.mailbox import Mailbox
from instride._net.thread import NetworkThread
from instride._net.transport import Transport
from instride._wire.connection import Connection, Received
from instride._wire.frames import FrameBuffer
from instride._wire.segments import Segments
from instride.config import ConsumerConfig

LONG = 4 << 20
PART = 100_000

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the setting is Linux's")


class Frames(Connection):
    """Takes frames for what they are: no handshake, no requests."""

    def __init__(self) -> None:
        super().__init__(client_id="c", max_frame_bytes=1 << 30)
        self._frames = FrameBuffer(max_frame_bytes=1 << 30, segments=Segments(1 << 24))
        self.found: list[memoryview] = []

    @property
    def ready(self) -> bool:
        return True

    def handshake(self) -> bytes:
        return b""

    def buffer_updated(self, size: int) -> list[Received]:
        self.found += self._frames.buffer_updated(size)
        return []


class Line:
    """Both ends of one connection."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.frames = Frames()
            self.transport = Transport([(socket.AF_INET, server.getsockname())], "b:1", self.frames)
            assert self.transport.socket is not None
            self.socket = self.transport.socket
            self.peer, _ = server.accept()
        select.select([], [self.socket], [])
        self.transport.writable()
        self.peer.sendall(struct.pack(">i", 1) + b"x")  # the first frame is short
        self.read_until(1)
        self.frames.found.clear()

    def begin(self) -> None:
        """A part of a long response has come and is read."""
        self.peer.sendall(struct.pack(">i", LONG) + b"y" * PART)
        self.read_but(LONG - PART)

    def read_but(self, missing: int) -> None:
        """Without waiting to be woken, which the system does for more than this only."""
        while self.frames.missing != missing:
            self.transport.readable()
            assert self.transport.failure is None

    def read_until(self, frames: int) -> None:
        while len(self.frames.found) < frames:
            select.select([self.socket], [], [])
            self.transport.readable()

    @property
    def wakes_for(self) -> int:
        return self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.transport.close()
    made.peer.close()


def test_the_rest_of_a_long_response_wakes_us_when_much_of_it_is_there(line: Line) -> None:
    assert line.wakes_for == 1
    line.begin()
    assert line.wakes_for > PART
    sender = threading.Thread(target=line.peer.sendall, args=(b"z" * (LONG - PART),))
    sender.start()
    line.read_until(1)
    sender.join()
    assert line.frames.found == [b"y" * PART + b"z" * (LONG - PART)]
    assert line.wakes_for == 1, "what comes next may be short"


def test_the_last_of_a_long_response_wakes_us_however_little_it_is(line: Line) -> None:
    line.begin()
    sender = threading.Thread(target=line.peer.sendall, args=(b"z" * (LONG - PART - 1),))
    sender.start()
    line.read_but(1)
    sender.join()
    assert line.wakes_for == 1
    line.peer.sendall(b"z")
    line.read_until(1)


def test_a_read_that_got_less_than_it_had_room_for_is_the_last(line: Line) -> None:
    line.begin()
    reads: list[str] = []

    def count(_frame: object, event: str, made: object) -> None:
        if event == "c_call" and getattr(made, "__name__", "") == "recv_into":
            reads.append(event)

    line.peer.sendall(b"z" * 10)
    while line.frames.missing != LONG - PART - 10:
        before = len(reads)
        sys.setprofile(count)
        line.transport.readable()
        sys.setprofile(None)
        assert len(reads) == before + 1


def test_a_response_that_comes_slowly_has_not_stopped(line: Line) -> None:
    config = ConsumerConfig(bootstrap_servers="b:1")
    machine = NetworkMachine(config, lease=Lease(), random=lambda: 0.5, wall_clock=lambda: 0.0)
    thread = NetworkThread(config, machine, Mailbox())
    key = ConnectionKey(Role.DATA, 1)
    thread._transports[key] = line.transport
    thread._announced.add(key)
    line.begin()
    line.peer.sendall(b"z" * 10)  # the system does not wake us for so little
    waiting = array("i", [0])
    while waiting[0] != 10:
        fcntl.ioctl(line.socket, termios.FIONREAD, waiting)
    line.transport.stalls_at = 0.0
    thread._end_stalled()
    assert line.transport.failure is None
    assert line.frames.missing == LONG - PART - 10
    line.transport.stalls_at = 0.0
    thread._end_stalled()
    assert "stopped in the middle" in str(line.transport.failure)
