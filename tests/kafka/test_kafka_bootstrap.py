"""Finding a real cluster: names with several addresses, IPv6, and a cluster that moved."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_help import QUICK, ids, poll_until, tps

from filled_topics import fill
from instride import Consumer
from instride._net import resolver
from instride._net.transport import Transport
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]
Addresses = list[tuple[int, Any]]


@contextlib.contextmanager
def silent(family: int = socket.AF_INET, host: str = "127.0.0.1") -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server((host, 0), family=family) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def relay(to: str, *, host: str = "::1") -> Iterator[str]:
    """An IPv6 address behind which a broker is; ends its connections when the block ends."""
    try:
        server = socket.create_server((host, 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    name, port = to.rsplit(":", 1)
    open_: list[socket.socket] = [server]

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                broker = socket.create_connection((name, int(port)))
                open_.extend((client, broker))
                for pair in ((client, broker), (broker, client)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"[{host}]:{server.getsockname()[1]}"
    finally:
        for each in open_:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> dict[str, Addresses]:
    """Names of this test's own, besides the system's."""
    names: dict[str, Addresses] = {}
    lookup = resolver.lookup

    def known(host: str, port: int, flags: int = 0) -> Addresses:
        if host in names and not flags:
            return names[host]
        return lookup(host, port, flags)

    monkeypatch.setattr(resolver, "lookup", known)
    return names


@pytest.mark.requirement("surface/dns")
def test_an_address_that_never_responds_does_not_hide_the_next(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, dns: dict[str, Addresses]
) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 5})
    host, port = kafka.bootstrap_servers.split(":")
    with silent() as quiet:
        dns["many.test"] = [(socket.AF_INET, ("127.0.0.1", quiet)), (socket.AF_INET, (host, int(port)))]
        consumer = open_consumer(bootstrap_servers="many.test:9092", connection_setup_timeout=0.5)
        consumer.assign(tps(topic, 0))
        assert ids(poll_until(consumer, 5)) == written


@pytest.mark.requirement("surface/dns")
def test_an_address_that_refuses_is_passed_over(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, dns: dict[str, Addresses]
) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 5})
    host, port = kafka.bootstrap_servers.split(":")
    dns["many.test"] = [
        (socket.AF_INET6, ("::1", 1, 0, 0)),
        (socket.AF_INET, ("127.0.0.1", 1)),
        (socket.AF_INET, (host, int(port))),
    ]
    consumer = open_consumer(bootstrap_servers="many.test:9092")
    consumer.assign(tps(topic, 0))
    assert ids(poll_until(consumer, 5)) == written


@pytest.mark.requirement("surface/ipv6")
def test_an_ipv6_bootstrap_server(kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 5})
    with relay(kafka.bootstrap_servers) as address:
        consumer = open_consumer(bootstrap_servers=address)
        consumer.assign(tps(topic, 0))
        assert ids(poll_until(consumer, 5)) == written


def test_canonical_names_are_connected_to(
    kafka: LocalKafka,
    kafka_topic: Topic,
    open_consumer: Open,
    dns: dict[str, Addresses],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 5})
    host, port = kafka.bootstrap_servers.split(":")
    with silent() as quiet:
        one, two = (socket.AF_INET, ("127.0.0.1", quiet)), (socket.AF_INET, (host, int(port)))
        dns.update({"alias.test": [one, two], "one.test": [one], "two.test": [two]})
        monkeypatch.setattr(
            socket, "getnameinfo", lambda address, flags: ("one.test" if address == one[1] else "two.test", "9092")
        )
        connected: list[str] = []

        def noted(addresses: Any, where: str, connection: Any, **options: Any) -> Transport:
            connected.append(where)
            return Transport(addresses, where, connection, **options)

        monkeypatch.setattr("instride._net.thread.Transport", noted)
        consumer = open_consumer(
            bootstrap_servers="alias.test:9092",
            client_dns_lookup="resolve_canonical_bootstrap_servers_only",
            connection_setup_timeout=0.5,
        )
        consumer.assign(tps(topic, 0))
        assert ids(poll_until(consumer, 5)) == written
    assert connected[:2] == ["one.test:9092", "two.test:9092"], "what certificates and Kerberos speak of"


@pytest.mark.requirement("surface/ipv6")
@pytest.mark.slow
def test_a_broker_that_has_an_ipv6_address_only() -> None:
    """All connections, not only the first."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with LocalKafka(listeners={"SIX": "PLAINTEXT@::1"}) as kafka:
        kafka.create_topic("t")
        written = fill(kafka, "t", {0: 5})
        with Consumer(bootstrap_servers=kafka.listener("SIX"), group_id="g", **QUICK) as consumer:
            consumer.subscribe(["t"])
            assert ids(poll_until(consumer, 5)) == written
            consumer.commit()
            (info,) = consumer.partitions_for("t")
            assert info.leader is not None
            assert info.leader.host in ("::1", "[::1]")


@pytest.mark.requirement("surface/rediscovery")
@pytest.mark.slow
def test_a_cluster_that_moved_is_found_by_the_bootstrap_servers(dns: dict[str, Addresses]) -> None:
    """Every broker that was known is gone; the name in the list points to others now."""

    def points_to(kafka: LocalKafka) -> None:
        host, port = kafka.bootstrap_servers.split(":")
        dns["cluster.test"] = [(socket.AF_INET, (host, int(port)))]

    settings: dict[str, Any] = {**QUICK, "request_timeout": 3.0}
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(LocalKafka())
        points_to(first)
        first.create_topic("t")
        fill(first, "t", {0: 3})
        consumer = stack.enter_context(
            Consumer(bootstrap_servers="cluster.test:9092", group_id="g", isolation_level="read_committed", **settings)
        )
        consumer.subscribe(["t"])
        assert len(poll_until(consumer, 3)) == 3
        first.stop()
        second = stack.enter_context(LocalKafka())
        second.create_topic("t")
        written = fill(second, "t", {0: 3})
        points_to(second)
        assert ids(poll_until(consumer, 3, timeout=90.0)) == written
