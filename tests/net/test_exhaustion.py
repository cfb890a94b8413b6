"""Files, threads and memory that are used up: an error that may pass, and no death of the network thread."""

from __future__ import annotations

import errno
import gc
import socket
import struct
import threading
import warnings
from concurrent.futures import Future
from contextlib import closing, suppress
from typing import Any

import pytest

from attack.broker import Broker
from instride import Consumer, TopicPartition
from instride._net import driver
from instride._net.credentials import authenticator
from instride._net.mailbox import Mailbox
from instride._net.transport import Transport
from instride._wire.connection import Connection
from instride.config import ConsumerConfig
from instride.errors import KafkaTimeoutError, TransportError

TP = TopicPartition("t", 0)


def refuse(*_: object, **__: object) -> Any:
    raise RuntimeError("can't start new thread")


def no_files(*_: object, **__: object) -> Any:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize("what", ["thread", "files"])
def test_a_consumer_that_cannot_start_says_so_leaves_nothing_and_starts_later(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
        with monkeypatch.context() as patch:
            if what == "thread":
                patch.setattr(threading.Thread, "start", refuse)
            else:
                patch.setattr(socket, "socketpair", no_files)
            with pytest.raises(TransportError, match="cannot start the network thread"):
                consumer.assign([TP])
        gc.collect()
        consumer.assign([TP])
        consumer.close(timeout=1.0)


def test_a_loop_that_tries_to_start_again_at_once_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", retry_backoff=0.25)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        patch.setattr(driver, "now", lambda: 100.0)
        patch.setattr(Mailbox, "wait", lambda _self, until: waits.append(until - 100.0))
        for _ in range(3):
            with pytest.raises(TransportError):
                consumer.assign([TP])
    assert waits == [0.25] * 3
    consumer.close(timeout=1.0)


@pytest.mark.parametrize("what", ["thread", "files"])
def test_what_is_used_up_while_it_runs_is_an_obstacle_and_not_its_end(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        consumer = Consumer(bootstrap_servers=f"{'no-such-name' if what == 'thread' else '127.0.0.1'}:{port}")
        own = socket.socket
        started = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            if thread.name.startswith("instride-resolve"):
                refuse()
            started(thread)

        def open_socket(family: int = -1, kind: int = -1, *rest: Any, **more: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                no_files()
            return own(family, kind, *rest, **more)

        monkeypatch.setattr(threading.Thread, "start", start)
        if what == "files":
            monkeypatch.setattr("instride._net.transport.socket.socket", open_socket)
        with pytest.raises(KafkaTimeoutError, match=r"no thread can be started|Too many open files"):
            consumer.list_topics(timeout=0.5)
        monkeypatch.undo()
        consumer.close(timeout=1.0)


def test_a_token_without_a_thread_to_ask_for_it_is_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: Future[None] = Future()
    config = ConsumerConfig(
        bootstrap_servers="b:1",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token=lambda: "token",
        sasl_plain_without_tls=True,
    )
    asks = authenticator(config, lambda: woken.set_result(None), print)
    assert asks is not None
    found: list[object] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    asks.prepare("b", found.append)
    asks.poll()
    assert isinstance(found[0], TransportError)
    assert woken.done()


class WithoutAuthentication(Broker):
    """A broker that agrees on a mechanism and has no SaslAuthenticate."""

    sasl = True

    def versions(self, version: int) -> bytes:
        made = super().versions(version)
        return made.replace(struct.pack(">hhh", 36, 1, 1), struct.pack(">hhh", 99, 1, 1))


def test_what_a_broker_cannot_do_amid_the_handshake_is_raised_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with closing(WithoutAuthentication()) as broker:
        consumer = Consumer(
            bootstrap_servers=f"127.0.0.1:{broker.port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="u",
            sasl_password="p",
            sasl_plain_without_tls=True,
            connection_setup_timeout=3000.0,
        )
        consumer.assign([TP])
        while "SaslAuthenticate" not in caplog.text:  # for ever, if only the time-out ends it
            with suppress(TransportError):
                consumer.poll(timeout=0.05)
        consumer.close(timeout=1.0)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="of Linux")
def test_a_silent_peer_is_probed_so_that_its_end_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        connection = Connection(client_id="c", max_frame_bytes=1 << 20, mechanism=None)
        transport = Transport([(socket.AF_INET, address)], f"{address[0]}:{address[1]}", connection).open()
        made = transport.socket
        assert made is not None
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        assert [made.getsockopt(socket.IPPROTO_TCP, each) for each in options] == [10, 5, 3, 30_000]
        transport.close()
