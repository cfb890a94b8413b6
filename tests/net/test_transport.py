"""One connection in plain text: what it sends and when, while it authenticates anew, and what ends it."""

from __future__ import annotations

import errno
import os
import random
import re
import select
import selectors
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from test_reads import Frames, Line

from instride._net import transport as transport_module
from instride._net.clock import now
from instride._net.pump import Pump
from instride._net.resolver import SocketAddress
from instride._net.tls import Tls
from instride._net.transport import Transport
from instride._wire.api import ApiVersions
from instride._wire.connection import Received
from instride._wire.sasl.plain import Plain
from instride.errors import FrameTooLargeError, TransportError, UnsupportedVersionError

PATIENCE = 60.0
WELCOME = b"welcome"


class Session(Frames):
    """Authenticates with one message each way. sent: the requests; unknown: those that the broker has no version of.
    awaited: those without a response, as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[int] = []
        self.awaited: tuple[int, ...] = ()
        self.unknown: set[int] = set()
        self.lifetime = 0.0
        self._to_say = b""
        self._waits = False

    @property
    def ready(self) -> bool:
        return not self._waits

    @property
    def versions(self) -> Any:
        """The broker has said what it speaks."""
        return {0: (0, 0)}

    @property
    def outstanding(self) -> tuple[int, ...]:
        return self.awaited

    @property
    def session_lifetime(self) -> float:
        return self.lifetime

    def authenticate_again(self, mechanism: Any) -> None:
        self._to_say, self._waits = b"[who I am]", True

    def handshake(self) -> bytes:
        said, self._to_say = self._to_say, b""
        return said

    def send(self, request_id: int, request: Any) -> bytes:
        self.sent.append(request_id)
        if request_id in self.unknown:
            raise UnsupportedVersionError("the broker does not know it")
        return b"[%d]" % request_id

    def buffer_updated(self, size: int) -> list[Received]:
        found = super().buffer_updated(size)
        if WELCOME in self.found:
            self._waits = False
        return found


class Ends(Line):
    """The same with a session."""

    def __init__(self) -> None:
        self.session = Session()
        super().__init__(self.session)
        self.peer.settimeout(PATIENCE)

    def requests(self, *numbers: int) -> None:
        for number in numbers:
            self.transport.send(number, ApiVersions())

    def heard(self, size: int) -> bytes:
        """What the peer gets, of so many bytes."""
        got = b""
        while len(got) < size and (part := self.peer.recv(size - len(got))):
            got += part
        return got

    def welcome(self) -> list[Received]:
        self.send(struct.pack(">i", len(WELCOME)) + WELCOME)
        return self.transport.readable()

    def reset(self) -> None:
        """The peer ends the connection, and forgets what it has not read."""
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.peer.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.transport.close()
    made.peer.close()


# --- authenticating anew -----------------------------------------------------------------------------------


def test_requests_wait_until_a_connection_has_authenticated_anew(ends: Ends) -> None:
    ends.session.unknown.add(2)
    ends.transport.authenticate_again(Plain("u", "p"))
    ends.requests(1, 2, 3)
    assert ends.heard(10) == b"[who I am]"
    assert not ends.transport.ready
    assert ends.session.sent == [], "requests wait"
    refused = ends.welcome()
    assert [(each.request_id, type(each.error)) for each in refused] == [(2, UnsupportedVersionError)]
    assert ends.heard(6) == b"[1][3]"
    ends.requests(4)
    assert ends.heard(3) == b"[4]"


def test_what_waited_for_a_connection_that_breaks_is_not_sent(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(number: int, data: memoryview) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    ends.transport.authenticate_again(Plain("u", "p"))
    ends.requests(1, 2, 3)
    monkeypatch.setattr(transport_module, "send", broken)
    assert ends.welcome() == []
    assert ends.session.sent == [1]
    assert "sending to b:1 failed" in str(ends.transport.failure)


def test_a_connection_that_has_failed_authenticates_no_more(ends: Ends) -> None:
    ends.transport.stalled()
    ends.transport.authenticate_again(Plain("u", "p"))
    assert ends.session.ready
    assert ends.heard(1) == b""


@pytest.mark.parametrize(
    ("lifetime", "ahead", "least", "most"),
    [
        (1000.0, 0.0, 850.0, 950.0),
        (1000.0, 8.0, 850.0, 950.0),
        (40.0, 8.0, 40.0 - 1.2 * 8.0, 40.0 - 1.05 * 8.0),
        (10.0, 8.0, 5.0, 5.0),
        (0.5, 0.0, 1.1, 1.1),
        (0.5, 8.0, 1.1, 1.1),
    ],
)
def test_it_is_due_to_authenticate_before_its_session_ends(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, lifetime: float, ahead: float, least: float, most: float
) -> None:
    """Of a short one, so early that a token may take its time."""
    assert ends.transport.authenticate_at == float("inf")
    monkeypatch.setattr(ends.transport, "_ahead", ahead)
    ends.session.lifetime = lifetime
    ends.transport.authenticate_again(Plain("u", "p"))
    before = now()
    ends.welcome()
    assert before + least <= ends.transport.authenticate_at <= now() + most


def test_an_authentication_is_put_off_with_a_back_off_until_the_session_ends(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = [1000.0]
    monkeypatch.setattr(transport_module, "now", lambda: at[0])
    ends.session.lifetime = 100.0
    ends.transport.authenticate_again(Plain("u", "p"))
    ends.welcome()
    began = at[0] = ends.transport.authenticate_at
    times = []
    while ends.transport.put_off_authentication():
        times.append(round(ends.transport.authenticate_at - began, 6))
        at[0] = ends.transport.authenticate_at
    assert times[:2] == [1.0, 3.0]
    assert at[0] == 1100.0, "the last is when it has ended"
    ends.transport.authenticate_again(Plain("u", "p"))
    ends.welcome()
    at[0] = ends.transport.authenticate_at
    assert ends.transport.put_off_authentication(), "of the next session"
    assert ends.transport.authenticate_at == at[0] + 1.0


# --- sending -----------------------------------------------------------------------------------------------


def test_a_long_request_goes_on_where_the_socket_took_no_more(ends: Ends) -> None:
    body, got = random.Random(1).randbytes(12 << 20), bytearray()
    ends.session.send = lambda request_id, request: body  # type: ignore[method-assign]
    ends.requests(1)
    assert ends.transport.interest == selectors.EVENT_READ | selectors.EVENT_WRITE, "it takes more than once"
    reading = threading.Thread(target=lambda: got.extend(ends.heard(len(body))))
    reading.start()
    while ends.transport.interest & selectors.EVENT_WRITE:
        assert select.select([], [ends.socket], [], PATIENCE)[1]
        ends.transport.writable()
    reading.join(PATIENCE)
    assert got == body


def test_a_request_to_a_peer_that_is_gone_ends_the_connection(ends: Ends) -> None:
    ends.reset()
    ends.requests(1)
    assert isinstance(ends.transport.failure, TransportError)
    assert "sending to b:1 failed" in str(ends.transport.failure)
    assert ends.transport.socket is None


def test_a_connection_that_both_sides_have_shut_is_closed_all_the_same(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS refuses an option of such a socket then: that ended the network thread."""

    def refused(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "setsockopt", refused)
        ends.transport.close(abort=True)
    assert ends.transport.socket is None
    assert ends.heard(1) == b""


# --- receiving ---------------------------------------------------------------------------------------------


def no_memory(*_: object) -> Any:
    raise MemoryError


@pytest.mark.parametrize("call", ["get_buffer", "buffer_updated"])
def test_a_response_for_which_there_is_no_memory_ends_its_connection(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(ends.session, call, no_memory)
    ends.send(struct.pack(">i", 3) + b"abc")
    assert ends.transport.readable() == []
    assert str(ends.transport.failure) == "no memory for what b:1 sends"


def test_what_the_pump_received_and_there_is_no_memory_for_ends_its_connection_too(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends.transport.offer()
    ends.send(struct.pack(">i", 3) + b"abc")
    assert ends.pump.select(PATIENCE) == [("one", selectors.EVENT_READ)]
    monkeypatch.setattr(ends.session, "buffer_updated", no_memory)
    assert ends.transport.readable() == []
    assert str(ends.transport.failure) == "no memory for what b:1 sends"


def test_what_cannot_be_a_response_ends_the_connection(ends: Ends) -> None:
    ends.send(struct.pack(">i", -7) + b"abc")
    assert ends.transport.readable() == []
    assert isinstance(ends.transport.failure, FrameTooLargeError)


class Records:
    """In a TLS socket's place: gives one after the other, a text or an error; then there is nothing."""

    def __init__(self, *given: bytes | Exception) -> None:
        self._given = list(given)

    def recv_into(self, buffer: memoryview) -> int:
        given = self._given.pop(0) if self._given else ssl.SSLWantReadError()
        if isinstance(given, Exception):
            raise given
        buffer[: len(given)] = given
        return len(given)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("last", "failure"),
    [
        (ssl.SSLWantReadError(), None),
        (ssl.SSLWantWriteError(), None),
        (b"", "the connection was closed"),
        (ssl.SSLError(1, "a bad record"), "the connection to b:1 broke.*a bad record"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "the connection to b:1 broke.*reset"),
    ],
    ids=["nothing", "room to write", "the end", "a bad record", "a reset"],
)
@pytest.mark.parametrize("before", [0, 1, 3])
def test_what_came_by_tls_before_it_ended_is_taken(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, before: int, last: bytes | Exception, failure: str | None
) -> None:
    """No later read would meet the end again."""
    tls = Tls(context=ssl.create_default_context(), host="b", where="b:1")
    records = Records(*[struct.pack(">i", 4) + b"%04d" % number for number in range(before)], last)
    monkeypatch.setattr(ends.transport, "_tls", tls)
    monkeypatch.setattr(ends.transport, "line", None)
    monkeypatch.setattr(ends.transport, "_socket", records)
    ends.transport.readable()
    assert [bytes(each) for each in ends.session.found] == [b"%04d" % number for number in range(before)]
    assert (ends.transport.failure is None) == (failure is None)
    assert failure is None or re.search(failure, str(ends.transport.failure))
    monkeypatch.undo()


# --- connecting --------------------------------------------------------------------------------------------


def test_an_address_that_the_system_refuses_at_once_is_told_and_the_next_is_tried() -> None:
    nowhere: Any = (socket.AF_INET, ("255.255.255.255", 9092))
    alone = Transport([nowhere], "b:1", Frames()).open()
    refusals = [os.strerror(code) for code in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES)]
    assert "cannot connect to b:1" in str(alone.failure)
    assert any(each in str(alone.failure) for each in refusals)
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = Transport([nowhere, (socket.AF_INET, server.getsockname())], "b:1", Frames()).open()
        assert transport.failure is None
        transport.close()


@pytest.fixture
def refusing() -> SocketAddress:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return (socket.AF_INET, server.getsockname())


@pytest.fixture
def good() -> Iterator[SocketAddress]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield (socket.AF_INET, server.getsockname())


def woken(transport: Transport) -> None:
    """As the thread does, once the system says something of the socket."""
    assert transport.socket is not None
    pump: Pump[str] = Pump(eager=False)
    pump.register("one", transport.socket.fileno(), transport.interest, transport.line)
    ((_, mask),) = pump.select(PATIENCE)
    if mask & selectors.EVENT_WRITE:
        transport.writable()
    if mask & selectors.EVENT_READ and transport.socket is not None:
        transport.readable()


def test_each_address_has_its_share_of_the_time(
    silent: SocketAddress, good: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = [1000.0]
    monkeypatch.setattr(transport_module, "now", lambda: at[0])
    transport = Transport([silent, silent, good, silent], "b:1", Frames(), until=1020.0).open()
    assert transport.stalls_at == 1005.0
    at[0] = 1008.0  # later than it was due
    transport.stalled()
    assert transport.stalls_at == 1012.0, "a third of what is left"
    at[0] = 1012.0
    transport.stalled()
    assert transport.tried == [silent, silent, good]
    woken(transport)
    assert transport.ready
    assert transport.stalls_at == float("inf"), "what follows has all that is left"
    transport.close()


@pytest.mark.parametrize(("whole", "seconds"), [(10.0, 3.5), (5.0, 2.0)])
def test_of_many_addresses_each_has_time_to_respond(
    silent: SocketAddress, monkeypatch: pytest.MonkeyPatch, whole: float, seconds: float
) -> None:
    """Its third SYN counts, which follows after three seconds, where the whole time is not too short for that."""
    monkeypatch.setattr(transport_module, "now", lambda: 1000.0)
    transport = Transport([silent] * 1000, "b:1", Frames(), until=1000.0 + whole).open()
    assert transport.stalls_at == 1000.0 + seconds
    transport.close()


def test_where_all_have_failed_before_the_first_has_most_of_the_time(
    silent: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = [1000.0]
    monkeypatch.setattr(transport_module, "now", lambda: at[0])
    transport = Transport([silent] * 3, "b:1", Frames(), until=1010.0, all_failed=True).open()
    assert transport.stalls_at == 1008.0
    at[0] = 1008.0
    transport.stalled()
    assert transport.stalls_at == float("inf"), "the second has what is left: for a third there is no time"
    transport.close()


def test_the_last_address_has_all_that_is_left(silent: SocketAddress) -> None:
    transport = Transport([silent], "b:1", Frames(), until=now() + 10.0).open()
    assert transport.stalls_at == float("inf")
    transport.close()


def test_where_no_address_responds_the_error_says_so_of_each(silent: SocketAddress, refusing: SocketAddress) -> None:
    transport = Transport([silent, refusing], "b:1", Frames(), until=now() + 10.0).open()
    transport.stalled()
    woken(transport)
    assert str(transport.failure) == "cannot connect to b:1: no response; Connection refused"
    assert transport.tried == [silent, refusing]


def test_one_that_was_connected_while_nobody_looked_is_not_given_up(good: SocketAddress) -> None:
    """The thread was held up, and finds that both has come: the connection, and the end of its time."""
    transport = Transport([good, good], "b:1", Frames(), until=now() + 10.0).open()
    assert transport.socket is not None
    select.select([], [transport.socket], [], PATIENCE)
    transport.stalled()
    assert transport.ready
    assert transport.tried == [good]
    transport.close()


def test_what_the_system_says_of_a_refused_address_is_not_taken_for_the_next(
    silent: SocketAddress, refusing: SocketAddress
) -> None:
    transport = Transport([refusing, silent], "b:1", Session(), until=now() + 10.0).open()
    woken(transport)
    assert transport.tried == [refusing, silent]
    assert transport.standing == "the address does not respond"
    assert transport.interest == selectors.EVENT_WRITE
    transport.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="of Linux")
def test_a_system_without_an_option_connects_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    option = socket.TCP_USER_TIMEOUT
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
    line = Line()
    assert line.socket.getsockopt(socket.IPPROTO_TCP, option) == 0
    assert line.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
    line.transport.close()
    line.peer.close()
