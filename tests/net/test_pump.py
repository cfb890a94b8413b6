"""The pump receives whole frames where it was told to, in both of its forms, and gives up the GIL once for a wait."""

from __future__ import annotations

import errno
import importlib.util
import itertools
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from attack.broker import Broker
from attack.bytes_of import batch, record
from instride._net import compiled_pump, plain_pump, pump
from instride._wire.api import Fetch, FetchPartition, FetchResponse
from instride._wire.connection import Connection, Received
from instride._wire.memory_pool import Segments

READ, WRITE = 1, 2
FORMS = [compiled_pump, plain_pump]
NAMES = ("Line", "Pump", "Waker", "receive", "send")


class Ends:
    """A pump, and a socket that it waits for."""

    def __init__(self, form: ModuleType) -> None:
        self.peer, self.socket = socket.socketpair()
        self.socket.setblocking(False)
        self.pump = form.Pump(eager=False)
        self.line = form.Line()
        self.pump.register("one", self.socket.fileno(), READ, self.line)
        self.buffer = bytearray(20)

    def offer(self, start: int = 0, wanted: int = 0) -> None:
        self.line.offer(memoryview(self.buffer)[start:], wanted)

    def close(self) -> None:
        self.line.take()
        self.peer.close()
        self.socket.close()


@pytest.fixture(params=FORMS, ids=["compiled", "plain"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    made = Ends(request.param)
    yield made
    made.close()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("body", [b"", b"x", b"x" * 16])
def test_a_frame_that_is_there_takes_one_wait(ends: Ends, body: bytes) -> None:
    ends.offer()
    ends.peer.send(framed(body))
    assert ends.pump.select(60.0) == [("one", READ)]
    assert (ends.line.take(), ends.pump.takes) == (4 + len(body), 1)
    assert ends.buffer.startswith(framed(body))


@pytest.mark.parametrize("sent", [b"\0", b"\0\0\0\x05abc"])
def test_a_part_is_told_of_when_a_moment_is_over(ends: Ends, sent: bytes) -> None:
    """Whoever waits for the rest is to know that it has begun."""
    ends.offer()
    ends.peer.send(sent)
    assert ends.line.received == 0
    assert ends.pump.select(60.0) == [("one", READ)]
    assert ends.line.received == len(sent)
    assert ends.line.take() == len(sent)
    assert ends.line.received == 0


def test_a_part_is_told_of_with_whatever_else_is_ready(ends: Ends) -> None:
    out, other = socket.socketpair()
    with out, other:
        ends.pump.register("other", other.fileno(), READ)
        ends.offer()
        ends.peer.send(b"\0\0")
        out.send(b"x")
        assert ends.pump.select(60.0) == [("one", READ), ("other", READ)]
        assert ends.line.take() == 2
        ends.pump.unregister("other")


def test_the_rest_of_a_frame_is_received_behind_what_has_come(ends: Ends) -> None:
    ends.offer(start=6, wanted=3)
    ends.peer.send(b"abc")
    assert ends.pump.select(60.0) == [("one", READ)]
    assert ends.line.take() == 3
    assert ends.buffer == bytes(6) + b"abc" + bytes(11)


@pytest.mark.parametrize("length", [17, 1 << 20, -1, -(1 << 31)])
def test_a_length_for_which_there_is_no_room_is_left_to_judge(ends: Ends, length: int) -> None:
    ends.offer()
    ends.peer.send(struct.pack(">i", length) + b"a")
    assert ends.pump.select(60.0) == [("one", READ)]
    assert ends.line.take() == 5


def test_nothing_is_received_beyond_the_buffer(ends: Ends) -> None:
    ends.line.offer(memoryview(ends.buffer)[2:10], 0)
    ends.peer.send(framed(b"y" * 30))
    assert ends.pump.select(60.0) == [("one", READ)]
    assert ends.line.take() == 8
    assert ends.buffer == b"\0\0" + framed(b"y" * 30)[:8] + bytes(10)


def test_an_end_and_a_reset_are_told_of(ends: Ends) -> None:
    ends.offer()
    ends.peer.close()
    assert ends.pump.select(60.0) == [("one", READ)]
    assert ends.line.take() == 0


def test_an_end_behind_which_the_peer_still_reads_is_told_of(ends: Ends) -> None:
    ends.offer()
    ends.peer.shutdown(socket.SHUT_WR)
    assert ends.pump.select(60.0) == [("one", READ)]
    assert ends.line.take() == 0


def test_what_another_has_received_is_waited_for_no_longer(ends: Ends) -> None:
    """Two lines of one socket: the system says of both that there is something, and the first takes it."""
    second, buffer = type(ends.line)(), memoryview(bytearray(20))
    with socket.socket(fileno=os.dup(ends.socket.fileno())) as copy:
        ends.pump.register("two", copy.fileno(), READ, second)
        ends.offer()
        second.offer(buffer, 0)
        ends.peer.send(framed(b"x"))
        assert ends.pump.select(60.0) == [("one", READ)]
        assert (ends.line.take(), second.take()) == (5, 0)
        ends.pump.unregister("two")


def test_a_socket_that_nothing_can_be_read_of_is_told_of(ends: Ends) -> None:
    """One that listens, say. Whoever reads it then meets the error."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        server.setblocking(False)
        line = type(ends.line)()
        line.offer(memoryview(bytearray(20)), 0)
        ends.pump.register("server", server.fileno(), READ, line)
        assert ends.pump.select(60.0) == [("server", READ)]
        assert line.take() == 0
        ends.pump.unregister("server")


def test_the_plain_form_is_used_where_nothing_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("chosen", pump.__file__)
    assert spec is not None
    assert spec.loader is not None
    for compiled, form in ((False, plain_pump), (True, compiled_pump)):
        monkeypatch.setattr(compiled_pump, "COMPILED", compiled)
        chosen = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(chosen)
        assert [getattr(chosen, name) for name in NAMES] == [getattr(form, name) for name in NAMES]


def test_without_a_buffer_nothing_is_received(ends: Ends) -> None:
    ends.peer.send(b"abc")
    assert ends.pump.select(60.0) == [("one", READ)]
    assert ends.line.take() == 0
    assert ends.socket.recv(9) == b"abc"


def test_room_to_write_is_told_of(ends: Ends) -> None:
    ends.offer()
    ends.pump.register("one", ends.socket.fileno(), READ | WRITE, ends.line)
    assert ends.pump.select(60.0) == [("one", WRITE)]
    ends.pump.unregister("one")
    assert ends.pump.select(0.0) == []


def test_a_refused_connection_is_told_of_as_room_to_write(ends: Ends) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
    with socket.socket() as one:
        one.setblocking(False)
        one.connect_ex(place)
        ends.pump.register("other", one.fileno(), WRITE)
        ((who, mask),) = ends.pump.select(60.0)
        assert (who, mask & WRITE) == ("other", WRITE)
        ends.pump.unregister("other")


def test_a_wait_ends_at_its_time(ends: Ends) -> None:
    ends.offer()
    assert ends.pump.select(0.01) == []
    assert ends.pump.select(-1.0) == []


_TOO_MANY = """
import errno, resource, socket, sys
from importlib import import_module

pump = import_module(sys.argv[1]).Pump(eager=False)
ends = [end for _ in range(3) for end in socket.socketpair()]
for number, end in enumerate(ends):
    pump.register(number, end.fileno(), 1)
resource.setrlimit(resource.RLIMIT_NOFILE, (2, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for timeout in (0.0, 60.0):
    try:
        pump.select(timeout)
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere poll may take more than the bound")
@pytest.mark.parametrize("form", FORMS, ids=["compiled", "plain"])
def test_what_the_system_does_not_wait_for_is_an_error(form: ModuleType) -> None:
    """Not what a signal is: it would be here again at once, for ever. Of more sockets than files may be open, say."""
    done = subprocess.run([sys.executable, "-c", _TOO_MANY, form.__name__], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["EINVAL", "EINVAL"]


_REFUSED = """
import ctypes, errno, socket, sys
from importlib import import_module

system = import_module(sys.argv[1])
pump, line, buffer = system.Pump(eager=False), system.Line(), bytearray(20)
peer, end = socket.socketpair()
end.setblocking(False)
pump.register("one", end.fileno(), 1, line)
for name in ("ENOMEM", "EAGAIN"):
    for after in (0, 1):
        line.offer(memoryview(buffer), 0)
        peer.send(bytes([0, 0]))
        ctypes.CDLL(None).refuse_poll(after, getattr(errno, name))
        told = pump.select(0.3)
        print(told == [("one", 1)] if after else told in ([], [("one", 1)]), end=" ")
        told = told or pump.select(60.0)
        print(told == [("one", 1)], line.take(), end=" ")
"""
_REFUSING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
static int after = -1, number;
void refuse_poll(int calls, int code) { after = calls; number = code; }
int poll(struct pollfd *fds, nfds_t count, int timeout) {
    int (*real)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");
    if (count && after >= 0 && after-- == 0) { errno = number; return -1; }
    return real(fds, count, timeout);
}
"""


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs a C compiler and LD_PRELOAD")
@pytest.mark.parametrize("form", FORMS, ids=["compiled", "plain"])
def test_a_system_without_memory_for_a_wait_is_no_error(form: ModuleType, tmp_path: Path) -> None:
    """It may have some again soon; what was received before the refusal is told of."""
    (tmp_path / "refusing.c").write_text(_REFUSING)
    library = tmp_path / "refusing.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "refusing.c", "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", _REFUSED, form.__name__],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "True", "2"] * 4


@pytest.mark.parametrize(("number", "passes"), [(errno.ENOMEM, True), (errno.EAGAIN, True), (errno.EINVAL, False)])
def test_the_plain_form_goes_on_where_poll_is_refused_for_now(number: int, *, passes: bool) -> None:
    class Refused:
        def poll(self, _: float) -> list[tuple[int, int]]:
            raise OSError(number, os.strerror(number))

    with nullcontext() if passes else pytest.raises(OSError, match=os.strerror(number)):
        assert plain_pump._polled(cast("select.poll", Refused()), 1.0) == {}


def _played(form: ModuleType, seed: int) -> list[object]:
    chance, ends, told = random.Random(seed), Ends(form), []
    used = 0
    try:
        for _ in range(60):
            match chance.randrange(3):
                case 0:
                    ends.peer.send(chance.choice((framed(b"a" * chance.randrange(18)), chance.randbytes(5), b"\0")))
                case 1:
                    used = 0 if used >= 20 else used
                    ends.offer(used, chance.choice((0, 1, 20 - used)))
                case _:
                    told.append(ends.pump.select(0.0))
                    got = ends.line.take()
                    used += got
                    told.append((got, bytes(ends.buffer)))
        return told
    finally:
        ends.close()


@pytest.mark.parametrize("seed", range(40))
def test_both_forms_give_the_same_results(seed: int) -> None:
    assert _played(compiled_pump, seed) == _played(plain_pump, seed)


@pytest.mark.skipif(sys.platform != "linux", reason="not every system has this kind of socket")
@pytest.mark.parametrize("form", FORMS, ids=["compiled", "plain"])
def test_pieces_are_received_behind_each_other_until_the_frame_is_whole(form: ModuleType) -> None:
    """A read of this kind of socket gives what one write sent, and no more."""
    peer, one = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with peer, one:
        one.setblocking(False)
        pump, line, buffer = form.Pump(eager=False), form.Line(), bytearray(30)
        pump.register("one", one.fileno(), READ, line)
        frame = framed(b"abcde")
        for piece in (frame[:2], frame[2:6], frame[6:], framed(b"the next one")):
            peer.send(piece)
        line.offer(memoryview(buffer), 0)
        while line.received < len(frame):  # a busy machine may end a wait before
            assert pump.select(60.0) == [("one", READ)]
        assert line.take() == len(frame)
        assert buffer == frame + bytes(30 - len(frame))


def value(partition: int, offset: int) -> bytes:
    return b"%d:%d" % (partition, offset) * (9_000 if partition else 1)


class Records(Broker):
    """Partition 0 has ten short records in a batch, partition 1 long ones, partition 2 none."""

    def records(self, index: int, offset: int) -> bytes:
        if index == 2:
            return b""
        return batch(offset, b"".join(record(n, value(index, offset + n)) for n in range(10)), 10)

    def linger(self) -> None:
        pass


def fetch(*offsets: int) -> Fetch:
    """Of the first partitions, from these offsets on."""
    requested = (FetchPartition(topic="t", partition=number, offset=offset) for number, offset in enumerate(offsets))
    return Fetch(partitions=tuple(requested), max_wait=0.5, min_bytes=1, max_bytes=1 << 20)


REQUESTS = [fetch(0), fetch(10, 0), fetch(20, 10, 0), fetch(20), fetch(20, 20), fetch(30, 30), fetch(30)]


class Asking:
    """A connection that has sent `REQUESTS`. frames: the responses to them, all that the broker has to say."""

    def __init__(self) -> None:
        self.connection = Connection(client_id="c", max_frame_bytes=1 << 24, segments=Segments(1 << 24))
        broker = Records()
        try:
            while not self.connection.ready:
                self.connection.receive_data(broker.response(self.connection.handshake()[4:]))
            sent = [self.connection.send(number, request) for number, request in enumerate(REQUESTS)]
            self.frames = [broker.response(each[4:]) for each in sent]
        finally:
            broker.close()
        self.received: list[Received] = []

    def by_the_pump(self, form: ModuleType, pieces: list[bytes]) -> None:
        peer, one = socket.socketpair()
        with peer, one:
            one.setblocking(False)
            pump, line = form.Pump(eager=False), form.Line()
            pump.register("one", one.fileno(), READ, line)
            for piece in pieces:
                peer.sendall(piece)
                while True:
                    line.offer(self.connection.get_buffer(), self.connection.wanted)
                    pump.select(0.0)
                    used = line.take()
                    if not used:
                        break
                    self.received += self.connection.buffer_updated(used)

    def in_place(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                with self.connection.get_buffer() as buffer:
                    size = min(len(buffer), len(rest))
                    buffer[:size] = rest[:size]
                self.received += self.connection.buffer_updated(size)
                rest = rest[size:]

    def from_elsewhere(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self.received += self.connection.receive_data(piece)

    def records(self) -> list[tuple[int, int, int, int, bytes]]:
        """With the request, the partition and the offset at which each was found."""
        assert self.connection.failure is None
        assert self.connection.outstanding == ()
        found = []
        for each in self.received:
            assert isinstance(each.response, FetchResponse)
            for (_, partition), fetched in each.response.partitions.items():
                while fetched.undecoded is not None and not fetched.undecoded.done:
                    piece = fetched.undecoded.decode(1 << 24, 1 << 24)
                    assert piece is not None
                    assert piece.chunk is not None
                    for one in piece.chunk.records(epoch=1, seek_number=0):
                        assert one.value is not None
                        found.append((each.request_id, partition, one.offset, one.timestamp, one.value))
        return found


def cut(frames: list[bytes], chance: random.Random) -> list[bytes]:
    """Anywhere, and near the ends of frames. No piece is longer than what a socket takes at once."""
    ends = list(itertools.accumulate(map(len, frames)))
    stream = b"".join(frames)
    places = {chance.randrange(len(stream)) for _ in range(chance.randrange(30))}
    places |= {chance.choice(ends) + chance.randrange(-9, 10) for _ in range(chance.randrange(30))}
    places |= set(range(0, len(stream), 60_000))
    inside = sorted(each for each in places | {0, len(stream)} if 0 <= each <= len(stream))
    return [stream[start:end] for start, end in itertools.pairwise(inside)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("form", FORMS, ids=["compiled", "plain"])
def test_a_brokers_bytes_give_the_same_records_by_the_pump_and_without_it(form: ModuleType, seed: int) -> None:
    """Wherever the network, or whoever gives the bytes to a `Connection`, cuts them."""
    chance = random.Random(seed)
    pumped, in_place, elsewhere = Asking(), Asking(), Asking()
    pumped.by_the_pump(form, cut(pumped.frames, chance))
    in_place.in_place(cut(in_place.frames, chance))
    elsewhere.from_elsewhere(cut(elsewhere.frames, chance))
    expected = [
        (number, each.partition, each.offset + n, 0, value(each.partition, each.offset + n))
        for number, request in enumerate(REQUESTS)
        for each in request.partitions
        if each.partition < 2
        for n in range(10)
    ]
    assert pumped.records() == expected
    assert in_place.records() == expected
    assert elsewhere.records() == expected


@pytest.mark.parametrize("form", FORMS, ids=["compiled", "plain"])
def test_what_is_sent_is_received_and_what_would_block_is_said(form: ModuleType) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        assert form.send(one.fileno(), memoryview(b"")) == 0
        assert form.send(one.fileno(), memoryview(b"abc")) == 3
        buffer = memoryview(bytearray(8))
        assert (form.receive(other.fileno(), buffer), bytes(buffer[:3])) == (3, b"abc")
        with pytest.raises(BlockingIOError):
            form.receive(other.fileno(), buffer)
        other.close()
        with pytest.raises(BrokenPipeError):
            form.send(one.fileno(), memoryview(b"abc"))


@pytest.mark.parametrize("form", FORMS, ids=["compiled", "plain"])
def test_a_waker_that_is_closed_writes_to_nobody(form: ModuleType) -> None:
    one, other = socket.socketpair()
    with one, other:
        waker = form.Waker(one.fileno())
        waker.wake()
        assert other.recv(9) == b"\0"
        waker.close()
        waker.wake()
        assert select.select([other], [], [], 0)[0] == []


@contextmanager
def busy_thread() -> Iterator[None]:
    """Beside it, whoever gives up the GIL gets it back late."""
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            sum(range(1000))

    spinning = threading.Thread(target=spin)
    spinning.start()
    try:
        yield
    finally:
        over.set()
        spinning.join()


def test_beside_a_busy_thread_what_is_there_costs_no_gil() -> None:
    seen = False
    with closing(Ends(compiled_pump)) as ends, busy_thread():
        while not seen:  # until it was noticed, and did not pass before the look
            ends.pump.select(0.001)
            ends.offer()
            ends.peer.send(framed(b"x"))
            before, crowded = ends.pump.takes, ends.pump.crowded
            assert ends.pump.select(60.0) == [("one", READ)]
            assert ends.line.take() == 5
            seen = crowded and ends.pump.takes == before


@pytest.mark.timeout(60)
def test_beside_a_busy_thread_too_a_part_is_told_of_when_a_moment_is_over() -> None:
    """What was received before the wait was not known to it: the part was told of when the whole wait was over."""
    crowded = False
    with closing(Ends(compiled_pump)) as ends, busy_thread():
        while not crowded:
            ends.pump.select(0.001)
            ends.offer()
            ends.peer.send(b"\0\0\0\x05abc")
            crowded = ends.pump.crowded
            assert ends.pump.select(3600.0) == [("one", READ)]
            assert ends.line.take() == 7


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is Linux's")
@pytest.mark.parametrize("form", FORMS, ids=["compiled", "plain"])
def test_the_rest_of_a_long_frame_wakes_us_when_much_of_it_is_there(form: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    with one, peer:
        one.setblocking(False)
        pump, line, buffer = form.Pump(eager=True), form.Line(), bytearray(3 << 20)
        pump.register("one", one.fileno(), READ, line)
        for part, wakes_for in ((struct.pack(">i", 2 << 20), 1 << 20), (b"x" * 9, (1 << 20) - 9)):
            peer.sendall(part)
            line.offer(memoryview(buffer), 0 if len(part) == 4 else 1 << 20)
            while not pump.select(60.0):
                pass
            assert line.take() == len(part)
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == wakes_for
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)  # so that the next part is told of


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is Linux's")
@pytest.mark.parametrize("form", FORMS, ids=["compiled", "plain"])
@pytest.mark.parametrize(("read", "missing", "comes"), [(600, 400, b"y" * 400), (1_000, 0, framed(b"short"))])
def test_the_low_water_mark_falls_with_what_others_read_of_a_frame(
    form: ModuleType, read: int, missing: int, comes: bytes
) -> None:
    """The look at a stall reads what is there, and so does whoever may write at the same time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    with one, peer:
        pump, line, buffer = form.Pump(eager=True), form.Line(), bytearray(1 << 20)
        pump.register("one", one.fileno(), READ, line)
        peer.sendall(struct.pack(">i", 1_000))
        line.offer(memoryview(buffer), 0)
        assert pump.select(60.0) == [("one", READ)]
        line.take()
        peer.sendall(b"x" * read)
        assert len(one.recv(read, socket.MSG_WAITALL)) == read
        one.setblocking(False)
        line.offer(memoryview(buffer), missing)
        peer.sendall(comes)
        assert pump.select(60.0) == [("one", READ)]
        assert line.take() == len(comes)
