"""TLS that the pump reads without the GIL does the same as Python's own reads, and is used only where safe."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import random
import select
import selectors
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from test_reads import Frames

from instride._net import openssl
from instride._net import transport as transport_module
from instride._net.pump import Line, Pump
from instride._net.tls import Tls
from instride._net.transport import Transport
from instride.errors import KafkaError, TransportError

PATIENCE = 60.0
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
FORMS = ["unlocked", "python's"]
REASON = "no OpenSSL that can be called: Python's own reads are used"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Known(Frames):
    """The broker has said what it speaks."""

    @property
    def versions(self) -> Any:
        return {0: 0}

    def end_of_stream(self) -> KafkaError:
        return TransportError(f"ended {'in the middle of a response' if self.in_the_middle else 'between two'}")


class Ends:
    """Both ends of a connection by TLS. The first frame has come: from now on the pump reads, if it can."""

    def __init__(self, authority: trustme.CA, version: ssl.TLSVersion) -> None:
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
        authority.issue_cert("127.0.0.1").configure_cert(server)
        authority.configure_trust(client)
        server.minimum_version = server.maximum_version = version
        self.frames, self.told = Known(), list[bytes]()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            tls = Tls(context=client, host="127.0.0.1", where="127.0.0.1:1")
            place = (socket.AF_INET, listener.getsockname())
            self.transport = Transport([place], "127.0.0.1:1", self.frames, tls=tls).open()
            accepted, _ = listener.accept()
        accepted.settimeout(PATIENCE)
        self.peer = self._agreed(server, accepted)
        self.pump: Pump[str] = Pump(eager=sys.platform == "linux")
        self.send(framed(b"first"))
        self.receive(1)

    def _agreed(self, server: ssl.SSLContext, accepted: socket.socket) -> ssl.SSLSocket:
        found: list[ssl.SSLSocket] = []
        serving = threading.Thread(target=lambda: found.append(server.wrap_socket(accepted, server_side=True)))
        serving.start()
        while not (self.transport.interest == selectors.EVENT_READ and self.transport._secure):
            assert self.transport.socket is not None
            with selectors.DefaultSelector() as selector:
                selector.register(self.transport.socket, self.transport.interest)
                selector.select(PATIENCE)
            self.transport.writable()
            assert self.transport.failure is None
        serving.join()
        return found[0]

    def send(self, data: bytes) -> None:
        """From a thread of its own: what is long fits into no buffer of the system."""
        self.sending = threading.Thread(target=self.peer.sendall, args=(data,))
        self.sending.start()

    def turn(self) -> None:
        transport = self.transport
        assert transport.socket is not None
        transport.offer()
        self.pump.register("one", transport.socket.fileno(), transport.interest, transport.line)
        for _, mask in self.pump.select(PATIENCE):
            if mask & selectors.EVENT_WRITE:
                transport.writable()
            if mask & selectors.EVENT_READ and transport.failure is None:
                transport.readable()
                self.told += [bytes(each) for each in self.frames.found]
                self.frames.found.clear()

    def receive(self, frames: int) -> list[bytes]:
        while len(self.told) < frames and self.transport.failure is None:
            self.turn()
        self.sending.join()
        found, self.told = self.told, []
        return found

    def failed(self) -> KafkaError:
        while self.transport.failure is None:
            self.turn()
        return self.transport.failure

    def raw(self, data: bytes) -> None:
        """Past TLS."""
        with socket.socket(fileno=socket.dup(self.peer.fileno())) as copy:
            copy.sendall(data)

    def close(self) -> None:
        self.transport.close()
        self.peer.close()


@pytest.fixture(params=VERSIONS, ids=["1.2", "1.3"])
def version(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=FORMS)
def ends(
    request: pytest.FixtureRequest, authority: trustme.CA, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ends]:
    if request.param != "unlocked":
        monkeypatch.setattr(transport_module, "unlocked_line", lambda secured: None)
    made = Ends(authority, version)
    if request.param == "unlocked" and made.transport.line is None:
        pytest.skip(REASON)
    assert (made.transport.line is not None) == (request.param == "unlocked")
    yield made
    made.close()


@pytest.fixture
def unlocked(authority: trustme.CA) -> Iterator[Ends]:
    made = Ends(authority, ssl.TLSVersion.TLSv1_3)
    if made.transport.line is None:
        pytest.skip(REASON)
    yield made
    made.close()


def test_responses_of_every_length_arrive(ends: Ends) -> None:
    chance = random.Random(1)
    lengths = [0, 1, 16_379, 16_380, 16_381, 70_000, 1_500_000, 1_400_000, 3, 65_532, 65_533, 40]
    bodies = [chance.randbytes(length) for length in lengths]
    ends.send(b"".join(framed(body) for body in bodies))
    assert ends.receive(len(bodies)) == bodies
    assert ends.transport.failure is None


def test_what_comes_in_small_records_arrives(ends: Ends) -> None:
    body = random.Random(2).randbytes(3_000)
    for at in range(0, 3_000, 7):
        ends.peer.sendall((framed(body) + framed(b"end"))[at : at + 7])
    ends.peer.sendall((framed(body) + framed(b"end"))[3_003:])
    assert ends.receive(2) == [body, b"end"]


def test_requests_leave_and_long_ones_wait_for_room(ends: Ends) -> None:
    request, got = random.Random(3).randbytes(6_000_000), bytearray()
    ends.transport._out.append(memoryview(request))
    ends.transport.writable()
    assert ends.transport.interest & selectors.EVENT_WRITE

    def take() -> None:
        while len(got) < len(request):
            got.extend(ends.peer.recv(1 << 20))

    taking = threading.Thread(target=take)
    taking.start()
    while ends.transport.interest & selectors.EVENT_WRITE:
        ends.turn()
    taking.join()
    assert bytes(got) == request


def test_an_end_that_is_announced(ends: Ends) -> None:
    """close_notify; the socket stays."""
    ends.send(framed(b"last"))
    ends.sending.join()
    ends.peer.settimeout(0)
    with pytest.raises((ssl.SSLWantReadError, ssl.SSLSyscallError)):  # it waits for ours, which never comes
        ends.peer.unwrap()
    assert ends.receive(1) == [b"last"]
    assert "ended between two" in str(ends.failed())


@pytest.mark.parametrize("sent", [b"", b"\0\0\1\0part"])
def test_an_end_that_is_not_announced(ends: Ends, sent: bytes) -> None:
    ends.peer.sendall(sent) if sent else None
    ends.peer.close()
    assert f"ended {'in the middle of a response' if sent else 'between two'}" in str(ends.failed())


def test_a_request_to_a_peer_that_is_gone(ends: Ends) -> None:
    ends.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ends.peer.close()
    unlocked = ends.transport.line is not None
    ends.transport._out.append(memoryview(b"request"))
    ends.transport.writable()
    failure = ends.transport.failure
    assert isinstance(failure, TransportError)
    assert "sending to 127.0.0.1:1 failed" in str(failure)
    if unlocked:  # Python says "EOF occurred" of it
        assert any(os.strerror(code) in str(failure) for code in (errno.EPIPE, errno.ECONNRESET))


def test_an_error_of_the_system_is_told_as_that_and_an_end_as_none() -> None:
    syscall = 5
    found = openssl.trouble((syscall, 0, errno.ECONNRESET))
    assert isinstance(found, ConnectionResetError)
    assert openssl.trouble((syscall, 0, 0)) is None


def test_what_is_no_record_ends_the_connection(ends: Ends) -> None:
    ends.raw(b"\x17\x03\x03\x00\x40" + bytes(64))
    failure = ends.failed()
    assert "the connection to 127.0.0.1:1 broke: [SSL" in str(failure)
    assert "bad record mac" in str(failure).lower()
    assert failure.retriable


def test_what_came_before_the_garbage_is_told(ends: Ends) -> None:
    ends.peer.sendall(framed(b"good"))
    ends.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "broke: [SSL" in str(ends.failed())
    assert ends.told == [b"good"]


def test_keys_that_are_renewed(ends: Ends, version: ssl.TLSVersion) -> None:
    """TLS 1.2 has no such thing; the same responses come."""
    library, address = openssl._library(), openssl._address(ends.peer, ends.peer._sslobj)  # type: ignore[attr-defined]
    for number in range(3):
        if library is not None and version is ssl.TLSVersion.TLSv1_3:
            update = library.opened.SSL_key_update
            update.argtypes = [ctypes.c_void_p, ctypes.c_int]
            assert update(address, 1) == 1  # and ours are to be renewed too
        ends.peer.sendall(framed(b"%d" % number))
        assert ends.receive(1) == [b"%d" % number]
        frame = framed(bytes(30_000))
        ends.peer.sendall(frame[:20_000])
        if library is not None and version is ssl.TLSVersion.TLSv1_3:
            assert update(address, 0) == 1, "in the middle of a response"
        ends.peer.sendall(frame[20_000:])
        assert ends.receive(1) == [frame[4:]]
    ends.transport._out.append(memoryview(b"request"))
    ends.transport.writable()
    assert ends.peer.recv(99) == b"request"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2], indirect=True)
def test_a_connection_that_the_peer_agrees_on_anew(ends: Ends) -> None:
    """Renegotiation, between two responses. TLS 1.3 has no such thing."""
    library, address = openssl._library(), openssl._address(ends.peer, ends.peer._sslobj)  # type: ignore[attr-defined]
    if library is None:
        pytest.skip(REASON)
    library.opened.SSL_renegotiate.argtypes = [ctypes.c_void_p]
    library.opened.SSL_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    library.opened.SSL_ctrl.restype = ctypes.c_long
    assert library.opened.SSL_renegotiate(address) == 1
    bodies = [random.Random(7).randbytes(length) for length in (50_000, 3, 20_000)]
    got: list[bytes] = []

    def serve() -> None:
        ends.peer.do_handshake()
        got.append(ends.peer.recv(99))  # in which the requested handshake is
        for body in bodies:
            ends.peer.sendall(framed(body))

    ends.sending = threading.Thread(target=serve)
    ends.sending.start()
    ends.transport._out.append(memoryview(b"request"))
    assert ends.receive(len(bodies)) == bodies
    assert got == [b"request"]
    assert library.opened.SSL_ctrl(address, 10, 0, None) == 1, "SSL_CTRL_GET_NUM_RENEGOTIATIONS"


def test_an_end_that_is_announced_in_the_middle_of_a_response(ends: Ends) -> None:
    """close_notify; nothing of what came is lost, and half a response is none."""
    ends.peer.sendall(framed(b"whole") + framed(bytes(100))[:50])
    ends.peer.settimeout(0)
    with pytest.raises((ssl.SSLWantReadError, ssl.SSLSyscallError)):
        ends.peer.unwrap()
    assert "ended in the middle of a response" in str(ends.failed())
    assert ends.told == [b"whole"]


@pytest.mark.parametrize("cut", [1, 4, 5, 21, 1_000])
def test_a_record_that_is_cut_off(ends: Ends, cut: int) -> None:
    """The connection is closed within a record, as by a network that was cut: nothing of the record is taken."""
    ends.peer.sendall(framed(b"whole"))
    record = b"\x17\x03\x03\x40\x00" + bytes(2_000)
    ends.raw(record[:cut])
    ends.peer.close()
    assert "ended between two" in str(ends.failed())
    assert ends.told == [b"whole"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("how", ["let_go", "close"])
def test_a_child_process_that_ends_leaves_the_connection_alone(ends: Ends, how: str) -> None:
    """A fork after the connection was made: what the child frees announces no end to the peer."""
    child = os.fork()
    if not child:
        try:
            getattr(ends.transport, how)()
            ends.transport.line = ends.transport._socket = None
            gc.collect()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    body = random.Random(8).randbytes(40_000)
    ends.send(framed(body))
    assert ends.receive(1) == [body]
    ends.transport._out.append(memoryview(b"request"))
    ends.transport.writable()
    assert ends.peer.recv(99) == b"request"


@pytest.mark.parametrize("handshake", [False, True])
def test_what_was_let_go_does_not_write_under_its_old_number(ends: Ends, *, handshake: bool) -> None:
    """A child that was forked on the network thread may go on there. OpenSSL has the number in a copy."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = ends.transport
        if handshake:
            tls = Tls(context=ssl.create_default_context(), host="127.0.0.1", where="127.0.0.1:1")
            transport = Transport([(socket.AF_INET, listener.getsockname())], "127.0.0.1:1", Known(), tls=tls).open()
            assert transport.socket is not None
            select.select([], [transport.socket], [], PATIENCE)
            transport.writable()
            assert isinstance(transport.socket, ssl.SSLSocket)
        assert transport.socket is not None
        number, (other, mine) = transport.socket.fileno(), socket.socketpair()
        transport.let_go()
        transport.let_go()  # another fork's hook may have been here
        with other, mine:
            os.dup2(mine.fileno(), number)
            transport._out.append(memoryview(b"request"))
            transport.writable()
            os.close(number)
            mine.close()
            assert other.recv(99) == b""
        assert transport.failure is not None


def test_no_record_is_read_by_python(unlocked: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its reads and writes gives the GIL away."""

    def called(*_: object) -> None:
        raise AssertionError("Python's read or write was called")

    for name in ("recv_into", "recv", "read", "send", "write"):
        monkeypatch.setattr(ssl.SSLSocket, name, called)
    peer = unlocked.peer._sslobj  # type: ignore[attr-defined]
    unlocked.transport._out.append(memoryview(b"request"))
    unlocked.transport.writable()
    assert peer.read(99) == b"request"
    body = bytes(200_000)
    rest = memoryview(framed(body))
    sending = threading.Thread(
        target=lambda: [peer.write(rest[at : at + 16_384]) for at in range(0, len(rest), 16_384)]
    )
    sending.start()
    while not unlocked.told:
        unlocked.turn()
    sending.join()
    assert unlocked.told == [body]


def test_a_response_of_many_records_takes_one_wait(unlocked: Ends) -> None:
    waits = []
    for _ in range(5):  # a busy machine delays parts
        unlocked.peer.sendall(framed(bytes(100_000)))
        takes = unlocked.pump.takes
        assert len(unlocked.receive(1)) == 1
        waits.append(unlocked.pump.takes - takes)
    assert min(waits) <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is Linux's")
def test_the_system_wakes_us_before_the_last_record(unlocked: Ends) -> None:
    """OpenSSL may have most of a record already: what is to come is as much less."""
    unlocked.peer.sendall(framed(bytes(40_000))[:10_000])
    assert unlocked.transport.socket is not None
    while unlocked.frames.wanted != 30_004:
        unlocked.turn()
    assert unlocked.transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 30_004 - (17 << 10)
    unlocked.peer.sendall(bytes(30_004))
    assert unlocked.receive(1) == [bytes(40_000)]
    assert unlocked.transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


def test_the_line_keeps_what_it_reads_from(unlocked: Ends) -> None:
    assert isinstance(unlocked.transport.socket, ssl.SSLSocket)
    inner = unlocked.transport.socket._sslobj  # type: ignore[attr-defined]
    held = sys.getrefcount(inner)
    line = openssl.unlocked_line(unlocked.transport.socket)
    assert sys.getrefcount(inner) == held + 1
    del line
    assert sys.getrefcount(inner) == held


def test_where_anything_is_otherwise_nothing_is_found(unlocked: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    secured = unlocked.transport.socket
    assert isinstance(secured, ssl.SSLSocket)
    assert isinstance(openssl.unlocked_line(secured), Line)
    assert openssl._address(unlocked.peer, secured._sslobj) == 0  # type: ignore[attr-defined]  # another's
    assert openssl._address(secured, object()) == 0
    with monkeypatch.context() as patch:
        patch.setattr(openssl, "_library", lambda: None)
        assert openssl.unlocked_line(secured) is None
    with monkeypatch.context() as patch:
        patch.setattr(openssl, "_address", lambda secured, inner: openssl_address_of(unlocked.peer))
        assert openssl.unlocked_line(secured) is None, "another socket's"


def openssl_address_of(secured: ssl.SSLSocket) -> int:
    return ctypes.c_size_t.from_address(id(secured._sslobj) + 3 * ctypes.sizeof(ctypes.c_void_p)).value  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["version", "file", "built in", "implementation"])
def test_another_library_is_not_called(what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    match what:
        case "version":
            monkeypatch.setattr(ssl, "OPENSSL_VERSION_NUMBER", 1)
        case "file":
            monkeypatch.setattr("_ssl.__file__", str(tmp_path / "none.so"), raising=False)
        case "built in":  # as `_ssl` is where an interpreter was linked with OpenSSL
            monkeypatch.delattr("_ssl.__file__")
        case _:
            monkeypatch.setattr(sys.implementation, "name", "pypy")
    assert openssl._library.__wrapped__() is None
