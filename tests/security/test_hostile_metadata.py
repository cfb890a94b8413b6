"""A broker that is good, and metadata that lead to one that is not: no password gets there, over TLS or without it."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import trustme
from security_help import PATIENCE, Certificates

from instride import Consumer, TopicPartition
from instride.errors import AuthenticationError, KafkaError

SECRET = b"canary-redirected"


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class Listener:
    """Takes connections, over TLS where it has a context, and keeps what it is sent, as it is and as TLS gives it."""

    def __init__(self, context: ssl.SSLContext | None, *, redirect: tuple[str, int] | None = None) -> None:
        self.got = b""
        self.connections = 0
        self._context, self._redirect = context, redirect
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            with peer:
                peer.settimeout(PATIENCE)
                if self._context is not None:
                    peer = self._context.wrap_socket(peer, server_side=True)
                with peer:
                    self._respond(peer)
        except OSError:
            pass

    def _respond(self, peer: socket.socket) -> None:
        if self._redirect is None:
            while part := peer.recv(65536):
                self.got += part
            return
        stream = peer.makefile("rb")
        while head := stream.read(4):
            frame = stream.read(struct.unpack(">i", head)[0])
            self.got += frame
            key, version, correlation = struct.unpack_from(">hhi", frame)
            body = struct.pack(">i", correlation) + self._body(key, version)
            peer.sendall(struct.pack(">i", len(body)) + body)

    def _body(self, key: int, version: int) -> bytes:
        if key == 18:
            keys = ((18, 0, 0), (17, 1, 1), (36, 0, 0), (3, 4, 4))
            listed = b"".join(struct.pack(">hhh", *each) for each in keys)
            return struct.pack(">hi", 35 if version else 0, len(keys)) + listed
        if key == 17:
            return struct.pack(">hi", 0, 1) + text("PLAIN")
        if key == 36:
            return struct.pack(">hhi", 0, -1, 0)
        assert (key, version) == (3, 4), key
        assert self._redirect is not None
        host, port = self._redirect
        broker = struct.pack(">i", 7) + text(host) + struct.pack(">ih", port, -1)
        partition = struct.pack(">hiiiiii", 0, 0, 7, 1, 7, 1, 7)
        topic = struct.pack(">h", 0) + text("t") + struct.pack(">?i", False, 1) + partition
        return struct.pack(">ii", 0, 1) + broker + text("c") + struct.pack(">ii", 7, 1) + topic

    def close(self) -> None:
        self._socket.close()


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    with ExitStack() as stack:

        def start(*arguments: Any, **settings: Any) -> Listener:
            made = Listener(*arguments, **settings)
            stack.callback(made.close)
            return made

        yield start


@pytest.mark.requirement("surface/tls-downgrade")
@pytest.mark.parametrize("evil", ["unknown authority", "another name", "no TLS"])
def test_no_password_follows_metadata_to_a_broker_that_is_not_verified(
    evil: str, certificates: Certificates, listen: Callable[..., Listener], open_consumer: Callable[..., Consumer]
) -> None:
    contexts = {
        "unknown authority": server_context(trustme.CA(), "127.0.0.1"),
        "another name": server_context(certificates.authority, "other.test"),
        "no TLS": None,
    }
    bad = listen(contexts[evil])
    good = listen(server_context(certificates.authority, "localhost"), redirect=("127.0.0.1", bad.port))
    consumer = open_consumer(
        bootstrap_servers=f"localhost:{good.port}",
        security_protocol="SASL_SSL",
        ssl_ca_file=certificates.file("ca.pem"),
        sasl_mechanism="PLAIN",
        sasl_username="reader",
        sasl_password=SECRET.decode(),
        connection_setup_timeout=1.0,
        request_timeout=1.0,
    )
    consumer.assign([TopicPartition("t", 0)])
    if evil == "no TLS":
        while not bad.connections:
            consumer.poll(timeout=0.1)
        with pytest.raises(KafkaError):
            consumer.position(TopicPartition("t", 0), timeout=3.0)
        assert bad.got[:1] == b"\x16", "the first it is sent is TLS's own"
        assert b"SaslHandshake" not in bad.got
        assert b"PLAIN" not in bad.got
    else:
        with pytest.raises(AuthenticationError, match=r"certificate of 127\.0\.0\.1"):
            consumer.poll(timeout=PATIENCE)
        assert bad.got == b""
    assert SECRET in good.got, "the good broker was given it"
    assert SECRET not in bad.got
