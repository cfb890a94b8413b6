"""TLS on one connection, against a server in this process: what is checked, and that nothing is sent before."""

from __future__ import annotations

import select
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from security_help import PATIENCE, Certificates, self_signed

from instride._net import transport as transport_module
from instride._net.tls import Tls, tls_context
from instride._net.transport import Transport
from instride._wire.connection import Connection, Received
from instride._wire.sasl.plain import Plain
from instride.config import ConsumerConfig
from instride.errors import NotKafkaError, TlsError, TransportError


class Server:
    """Takes one connection, speaks TLS if it has a context, reads, then sends what it is told. got: what it read."""

    def __init__(
        self,
        context: ssl.SSLContext | None,
        *,
        family: int = socket.AF_INET,
        reply: bytes = b"",
        after: threading.Event | None = None,
    ) -> None:
        host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
        self._listener = socket.create_server((host, 0), family=family)
        self._listener.settimeout(PATIENCE)
        self.address = (family, self._listener.getsockname())
        self.got = b""
        self._context, self._reply, self._after = context, reply, after
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            peer, _ = self._listener.accept()
            with peer:
                peer.settimeout(PATIENCE)
                if self._context is not None:
                    peer = self._context.wrap_socket(peer, server_side=True)
                with peer:
                    self.got = peer.recv(65536)
                    if self._after is not None:
                        self._after.wait(PATIENCE)
                    peer.sendall(self._reply)
                    peer.recv(1)
        except OSError:
            pass

    def end(self) -> None:
        self._thread.join(PATIENCE)
        self._listener.close()
        assert not self._thread.is_alive()


Serve = Callable[..., Server]


@pytest.fixture
def serve(certificates: Certificates) -> Iterator[Serve]:
    """``serve("name", ...)``: a server with a certificate for these names; without any, in plain text."""
    with ExitStack() as stack:

        def start(
            *names: str, authority: trustme.CA | None = None, version: Any = None, context: Any = None, **kwargs: Any
        ) -> Server:
            if names:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                (authority or certificates.authority).issue_cert(*names).configure_cert(context)
                if version is not None:
                    context.minimum_version = context.maximum_version = version
            server = Server(context, **kwargs)
            stack.callback(server.end)
            return server

        yield start


def connect(server: Server, host: str, certificates: Certificates, connection: Any = None) -> Transport:
    """A transport to the server, driven until its first bytes were sent or it has failed."""
    ca_file = certificates.file("ca.pem")
    context = tls_context(ConsumerConfig(bootstrap_servers="x:1", security_protocol="SSL", ssl_ca_file=ca_file))
    assert context is not None
    connection = connection or Connection(client_id="c", max_frame_bytes=1 << 20, mechanism=Plain("u", "canary"))
    tls = Tls(context=context, host=host, where=host)
    transport = Transport([server.address], f"{host}:1", connection, tls=tls).open()
    drive(transport, lambda: bool(server.got))
    return transport


def drive(transport: Transport, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until() and transport.failure is None:
        assert time.monotonic() < deadline
        assert transport.socket is not None
        with selectors.DefaultSelector() as selector:
            selector.register(transport.socket, transport.interest)
            for _, mask in selector.select(0.05):
                transport.readable() if mask & selectors.EVENT_READ else transport.writable()


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("broker.test", ["broker.test"]),
        ("broker.test.", ["broker.test"]),
        ("b-1.kafka.test", ["*.kafka.test"]),
        ("127.0.0.1", ["127.0.0.1"]),
    ],
)
def test_a_name_that_fits(serve: Serve, certificates: Certificates, host: str, names: list[str]) -> None:
    server = serve(*names)
    transport = connect(server, host, certificates)
    assert transport.failure is None
    assert b"instride" in server.got
    transport.close()


def test_ipv6_addresses_are_checked(serve: Serve, certificates: Certificates) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    server = serve("::1", family=socket.AF_INET6)
    transport = connect(server, "::1", certificates)
    assert transport.failure is None
    transport.close()


@pytest.mark.requirement("surface/tls-names")
@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("broker.test", ["other.test"]),
        ("broker.test", ["127.0.0.1"]),
        ("127.0.0.1", ["broker.test"]),
        ("127.0.0.1", ["127.0.0.2"]),
        ("a.b.kafka.test", ["*.kafka.test"]),
        ("test", ["broker.test"]),
    ],
)
def test_a_name_that_does_not_fit(serve: Serve, certificates: Certificates, host: str, names: list[str]) -> None:
    server = serve(*names)
    transport = connect(server, host, certificates)
    assert isinstance(transport.failure, TlsError)
    assert host in str(transport.failure)
    server.end()
    assert server.got == b"", "something was sent to a peer that was not verified"


def test_nothing_is_sent_to_a_peer_of_an_unknown_authority(serve: Serve, certificates: Certificates) -> None:
    server = serve("broker.test", authority=trustme.CA())
    assert isinstance(connect(server, "broker.test", certificates).failure, TlsError)
    server.end()
    assert server.got == b""


def test_nothing_is_sent_to_a_peer_whose_certificate_signs_itself(
    serve: Serve, certificates: Certificates, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed("broker.test", tmp_path))
    server = serve(context=context)
    failure = connect(server, "broker.test", certificates).failure
    assert isinstance(failure, TlsError)
    assert "self-signed" in str(failure)
    server.end()
    assert server.got == b""


@pytest.mark.requirement("surface/tls-downgrade")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_old_tls_is_refused(serve: Serve, certificates: Certificates) -> None:
    server = serve("broker.test", version=ssl.TLSVersion.TLSv1_1)
    failure = connect(server, "broker.test", certificates).failure
    assert isinstance(failure, TlsError)
    server.end()
    assert server.got == b""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls(serve: Serve, certificates: Certificates, version: ssl.TLSVersion) -> None:
    server = serve("broker.test", version=version)
    transport = connect(server, "broker.test", certificates)
    assert transport.failure is None
    transport.close()


@pytest.mark.requirement("surface/tls-downgrade")
def test_a_peer_that_responds_in_plain_text(serve: Serve, certificates: Certificates) -> None:
    server = serve(reply=b"HTTP/1.1 400 Bad Request\r\n\r\n")
    transport = connect(server, "broker.test", certificates)
    drive(transport, lambda: False)
    assert isinstance(transport.failure, NotKafkaError)
    assert "security_protocol" in str(transport.failure)


@pytest.mark.parametrize("reads", [True, False])
def test_a_peer_that_hangs_up(reads: bool) -> None:
    """As a broker's plain-text listener does: what TLS says first is too long a frame for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = (socket.AF_INET, listener.getsockname())
        tls = Tls(context=ssl.create_default_context(), host="broker.test", where="broker.test:1")
        connection = Connection(client_id="c", max_frame_bytes=1 << 20)
        transport = Transport([address], "broker.test:1", connection, tls=tls).open()
        drive(transport, lambda: isinstance(transport.socket, ssl.SSLSocket))
        peer, _ = listener.accept()
        if reads:
            peer.recv(65536)
        peer.close()
        drive(transport, lambda: False)
    assert isinstance(transport.failure, TransportError)
    assert transport.failure.retriable
    assert "security_protocol" in str(transport.failure)


class Sink:
    """In a connection's place: takes bytes in pieces of at most so many. updates: how many each had."""

    failure = None
    session_lifetime = 0.0
    ready = False
    in_the_middle = False
    missing = 0

    def __init__(self, most: int = 10) -> None:
        self._most = most
        self.updates: list[int] = []
        self.versions: dict[int, Any] = {}
        self._requested = False

    def handshake(self) -> bytes:
        requested, self._requested = self._requested, True
        return b"" if requested else b"hello"

    def get_buffer(self) -> memoryview:
        return memoryview(bytearray(self._most))

    @property
    def taken(self) -> int:
        return sum(self.updates)

    def buffer_updated(self, size: int) -> list[Received]:
        self.updates.append(size)
        return []


def test_what_tls_has_unpacked_is_not_left_behind(
    serve: Serve, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The selector does not know of it: one turn takes it all, however short turns are."""
    monkeypatch.setattr(transport_module, "_READ_TURN", 1)
    sink = Sink()
    server = serve("broker.test", reply=bytes(1000))
    transport = connect(server, "broker.test", certificates, sink)
    drive(transport, lambda: sink.taken > 0)
    assert sink.taken == 1000
    transport.close()


def test_all_that_has_come_is_looked_at_once(serve: Serve, certificates: Certificates) -> None:
    """TLS gives 16 KiB a read; what looks at what was read costs more than the read, and is called once for many."""
    sink, after = Sink(1 << 20), threading.Event()
    server = serve("broker.test", reply=bytes(160_000), after=after)
    transport = connect(server, "broker.test", certificates, sink)
    assert transport.socket is not None
    transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 100_000)
    after.set()
    assert select.select([transport.socket], [], [], PATIENCE)[0]
    transport.readable()
    assert sink.updates[0] >= 5 << 14
    transport.close()


def test_a_peer_that_hangs_up_once_tls_is_agreed(certificates: Certificates) -> None:
    """As what wants a certificate may, before anything is known of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.authority.issue_cert("broker.test").configure_cert(context)

    class HangsUp(Server):
        def _serve(self) -> None:
            peer, _ = self._listener.accept()
            peer.settimeout(PATIENCE)
            with context.wrap_socket(peer, server_side=True) as secured:
                secured.recv(65536)

    server = HangsUp(context)
    transport = connect(server, "broker.test", certificates)
    drive(transport, lambda: False)
    server.end()
    assert isinstance(transport.failure, TransportError)
    assert "closed the connection during TLS (end of stream)" in str(transport.failure)


def test_a_peer_that_wants_a_certificate_says_so_after_the_handshake(certificates: Certificates) -> None:
    """TLS 1.3: ours is done by then, and what we send first gets the refusal as its response."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    certificates.authority.configure_trust(context)
    certificates.authority.issue_cert("broker.test").configure_cert(context)
    over = threading.Event()

    class Refuses(Server):
        def _serve(self) -> None:
            peer, _ = self._listener.accept()
            peer.settimeout(PATIENCE)
            with context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False) as secured:
                with pytest.raises(ssl.SSLError):
                    secured.do_handshake()
                over.wait(PATIENCE)  # so that the refusal arrives, and not the end

    server = Refuses(context)
    transport = connect(server, "broker.test", certificates)
    drive(transport, lambda: False)
    over.set()
    server.end()
    assert isinstance(transport.failure, TlsError)
    assert "ssl_cert_file" in str(transport.failure)


def test_a_handshake_goes_on_when_there_is_room_to_write(
    serve: Serve, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system took not all of it: what comes in meanwhile is not waited for."""
    shake, left = ssl.SSLSocket.do_handshake, [ssl.SSLWantReadError, ssl.SSLWantWriteError]

    def crowded(self: ssl.SSLSocket, block: bool = False) -> None:
        if not self.server_side and left:
            raise left.pop(0)
        shake(self, block)

    monkeypatch.setattr(ssl.SSLSocket, "do_handshake", crowded)
    server = serve("broker.test")
    connection = Connection(client_id="c", max_frame_bytes=1 << 20)
    context = tls_context(
        ConsumerConfig(bootstrap_servers="x:1", security_protocol="SSL", ssl_ca_file=certificates.file("ca.pem"))
    )
    assert context is not None
    tls = Tls(context=context, host="broker.test", where="broker.test:1")
    transport = Transport([server.address], "broker.test:1", connection, tls=tls).open()

    drive(transport, lambda: len(left) == 1)
    assert transport.interest == selectors.EVENT_READ
    transport.readable()
    assert transport.interest == selectors.EVENT_WRITE
    drive(transport, lambda: bool(server.got))
    assert transport.failure is None
    transport.close()


def failed(context: ssl.SSLContext, host: str) -> str:
    """Why a connection to this host fails. Its socket is not left open: that would be a warning, an error here."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tls = Tls(context=context, host=host, where="broker:1")
        connection = Connection(client_id="c", max_frame_bytes=1 << 20)
        transport = Transport([(socket.AF_INET, listener.getsockname())], "broker:1", connection, tls=tls).open()
        drive(transport, lambda: False)
    assert isinstance(transport.failure, TransportError)
    assert transport.socket is None
    return str(transport.failure)


@pytest.mark.parametrize("host", [".broker", "broker\0x", "."])
def test_a_name_that_tls_cannot_take_fails_the_connection(host: str) -> None:
    assert "broker:1 has a name that no certificate can have" in failed(ssl.create_default_context(), host)


class BrokenSocket(ssl.SSLSocket):
    error: type[Exception] = LookupError

    def do_handshake(self, block: bool = False) -> None:
        raise self.error("of the user's class")


class BrokenContext(ssl.SSLContext):
    def wrap_socket(self, *_: Any, **__: Any) -> ssl.SSLSocket:
        raise BrokenSocket.error("of the user's class")


@pytest.mark.parametrize("error", [LookupError, ValueError])
@pytest.mark.parametrize("where", ["wrap_socket", "do_handshake"])
def test_what_a_context_of_the_users_own_raises_fails_the_connection(
    monkeypatch: pytest.MonkeyPatch, where: str, error: type[Exception]
) -> None:
    monkeypatch.setattr(BrokenSocket, "error", error)
    context = (BrokenContext if where == "wrap_socket" else ssl.SSLContext)(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = BrokenSocket
    told = f"the ssl_context raised {error.__name__} for broker:1: of the user's class"
    assert told in failed(context, "broker")
