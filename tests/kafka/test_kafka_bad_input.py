"""Bad input at every entrance: each gets a typed error that says what is wrong and where, and stops nothing else."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from kafka_help import PATIENCE, QUICK, ids, poll_until, tps

from filled_topics import fill
from instride import Consumer, ConsumerRecord, TopicPartition
from instride.errors import (
    ConfigError,
    CorruptRecordError,
    FrameTooLargeError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    KafkaTimeoutError,
    NotKafkaError,
    ProtocolError,
    TransportError,
    UnknownTopicOrPartitionError,
)
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]

IMPATIENT: dict[str, Any] = {**QUICK, "request_timeout": 0.5, "connection_setup_timeout": 0.5}


# --- who responds there


@pytest.fixture
def serve() -> Iterator[Callable[[bytes], str]]:
    """``serve(response)``: a server that responds to whatever it hears with these bytes and hangs up; its address."""
    with ExitStack() as stack:

        def start(response: bytes) -> str:
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            thread = Thread(target=talk, args=(server, response))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown, socket.SHUT_RDWR)
            return f"127.0.0.1:{server.getsockname()[1]}"

        yield start


def talk(server: socket.socket, response: bytes) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return  # the test is over
        with connection:
            connection.recv(4096)
            connection.sendall(response)


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address that nobody else can take meanwhile, and where nobody listens."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
        (b"<!DOCTYPE HTML>\n<html>", "HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS listener"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH server"),
        (b"-ERR unknown command\r\n", "Redis server"),
    ],
    ids=["http", "html", "tls", "ssh", "redis"],
)
def test_what_responds_is_not_kafka(serve: Callable[[bytes], str], response: bytes, says: str, group: str) -> None:
    address = serve(response)
    with Consumer(bootstrap_servers=address, group_id=group, **IMPATIENT) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(NotKafkaError, match=rf"{address}.*{says}"):
            consumer.poll(timeout=20)


def test_no_broker_there_is_told_once_the_request_timeout_is_over(closed_port: str, group: str) -> None:
    patient = {**IMPATIENT, "request_timeout": 3.0, "connection_setup_timeout": 3.0}  # time enough to be refused
    with Consumer(bootstrap_servers=closed_port, group_id=group, **patient) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(TransportError, match=rf"{closed_port}.*refused"):
            consumer.poll(timeout=20)
        with pytest.raises(TransportError, match=closed_port):
            consumer.poll(timeout=20)


def test_a_server_that_hangs_up_at_once_is_no_broker(serve: Callable[[bytes], str]) -> None:
    address = serve(b"")
    with Consumer(bootstrap_servers=address, **IMPATIENT) as consumer:
        consumer.assign(tps("t", 0))
        with pytest.raises(TransportError, match=address):
            consumer.poll(timeout=20)


def test_a_port_where_nobody_speaks_ends_by_timeouts() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with Consumer(bootstrap_servers=address, **IMPATIENT) as consumer:
            consumer.assign(tps("t", 0))
            with pytest.raises(TransportError, match=address):
                consumer.poll(timeout=20)


def test_a_name_that_does_not_resolve_is_named() -> None:
    with Consumer(bootstrap_servers="no-such-host.invalid:9092", **IMPATIENT) as consumer:
        consumer.assign(tps("t", 0))
        with pytest.raises(TransportError, match=r"no-such-host\.invalid"):
            consumer.poll(timeout=20)


def test_every_blocking_call_ends_at_its_timeout_without_a_broker(closed_port: str, group: str) -> None:
    with Consumer(bootstrap_servers=closed_port, group_id=group, **QUICK) as consumer:
        (tp,) = tps("t", 0)
        consumer.assign([tp])
        calls: list[Callable[[], object]] = [
            lambda: consumer.committed(tp, timeout=0.3),
            lambda: consumer.end_offsets([tp], timeout=0.3),
            lambda: consumer.commit({tp: 1}, timeout=0.3),
            lambda: consumer.position(tp, timeout=0.3),
        ]
        for call in calls:
            with pytest.raises(KafkaTimeoutError):
                call()
        consumer.close(timeout=0.3)


@pytest.mark.requirement("surface/bootstrap")
def test_one_good_server_in_the_list_is_enough(
    serve: Callable[[bytes], str], closed_port: str, kafka: LocalKafka, kafka_topic: Topic
) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 5})
    servers = [closed_port, serve(b"HTTP/1.1 400 Bad Request\r\n\r\n"), kafka.bootstrap_servers]
    with Consumer(bootstrap_servers=servers, **QUICK) as consumer:
        consumer.assign(tps(topic, 0))
        assert ids(poll_until(consumer, 5)) == written


# --- topics and partitions


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is told after half a second instead of five: nothing here is about to be created."""
    monkeypatch.setattr("instride._core.network.cluster.MISSING_GRACE", 0.5)


@pytest.mark.usefixtures("short_grace")
def test_an_unknown_topic_is_told_and_read_once_it_is_there(kafka: LocalKafka, open_consumer: Open, group: str) -> None:
    topic = f"late-{group}"
    consumer = open_consumer(group_id=group)
    consumer.subscribe([topic])
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}.*does not exist"):
        consumer.poll(timeout=20)
    kafka.create_topic(topic)
    written = fill(kafka, topic, {0: 3})
    assert ids(poll_until(consumer, 3)) == written


@pytest.mark.usefixtures("short_grace")
def test_an_unknown_topic_beside_a_known_one_stops_nothing(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 3})
    consumer = open_consumer(group_id=group)
    consumer.subscribe([topic, f"missing-{group}"])
    assert ids(poll_until(consumer, 3)) == written
    with pytest.raises(UnknownTopicOrPartitionError, match="missing"):
        consumer.poll(timeout=20)


@pytest.mark.usefixtures("short_grace")
def test_a_partition_that_the_topic_has_not_is_told(kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 3})
    consumer = open_consumer()
    consumer.assign(tps(topic, 0, 7))
    assert ids(poll_until(consumer, 3)) == written
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-7"):
        consumer.poll(timeout=20)


@pytest.mark.usefixtures("short_grace")
def test_a_topic_name_that_kafka_refuses_is_told(open_consumer: Open, group: str) -> None:
    consumer = open_consumer(group_id=group)
    consumer.subscribe(["no spaces, please"])
    with pytest.raises(Exception, match="no spaces, please"):
        consumer.poll(timeout=20)


# --- settings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "bootstrap_servers is missing"),
        ({"bootstrap_servers": ""}, "must name a broker"),
        ({"bootstrap_servers": "localhost"}, "host:port"),
        ({"bootstrap_servers": "http://localhost:9092"}, "scheme"),
        ({"bootstrap_servers": "localhost:99999"}, "1 to 65535"),
        ({"session_timeout_ms": 10000}, "did you mean session_timeout"),
        ({"max_pol_records": 5}, "did you mean max_poll_records"),
        ({"heartbeat_interval": 10.0, "session_timeout": 5.0}, "heartbeat_interval"),
        ({"commit_budget": 400.0}, "commit_budget"),
        ({"enable_auto_commit": True, "group_id": None}, "needs a group_id"),
        ({"max_poll_records": 0}, "max_poll_records"),
        ({"auto_offset_reset": "smallest"}, 'must be "earliest", "latest", "none"'),
        ({"assignors": ["nobody"]}, "nobody"),
        ({"assignors": "range"}, "sequence of names"),
        ({"group_id": ""}, "group_id"),
    ],
    ids=lambda value: None if isinstance(value, str) else "+".join(value) or "none",
)
def test_a_wrong_setting_is_refused_when_the_consumer_is_built(settings: dict[str, Any], says: str) -> None:
    base: dict[str, Any] = {"bootstrap_servers": "localhost:9092", "group_id": "g"} if settings else {}
    with pytest.raises(ConfigError, match=says):
        Consumer(**{**base, **settings})


def test_a_group_that_shares_no_assignor_is_told(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    from confluent_kafka import Consumer as Librdkafka

    topic = kafka_topic()
    eager = Librdkafka(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "range",
        }
    )
    eager.subscribe([topic])
    fill(kafka, topic, {0: 1})
    assert eager.consume(1, 20)
    ours = open_consumer(group_id=group)
    ours.subscribe([topic])
    with pytest.raises(InconsistentGroupProtocolError, match=f"{group}.*offers cooperative-sticky.*uses 'range'"):
        ours.poll(timeout=20)
    eager.close()
    ours.subscribe([topic])
    assert ids(poll_until(ours, 1)) == [(0, 0)], "a new subscribe tries again"


# --- bytes


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    with path.open("r+b") as file:
        file.write(data)


def segment(kafka: LocalKafka, tp: TopicPartition) -> Path:
    (path,) = kafka.folder.glob(f"*/data/{tp}/00000000000000000000.log")
    return path


def test_a_corrupt_batch_parks_its_partition_and_the_others_flow(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic(2)
    zero, one = tps(topic, 0, 1)
    written = fill(kafka, topic, {0: 5})
    healthy = segment(kafka, zero).stat().st_size
    written += fill(kafka, topic, {0: 5}, start=5) + fill(kafka, topic, {0: 5}, start=10)
    flip(segment(kafka, zero), healthy + 75)
    elsewhere = fill(kafka, topic, {1: 5})

    consumer = open_consumer()
    consumer.assign([zero, one])
    records: list[ConsumerRecord] = []
    told: list[str] = []
    deadline = time.monotonic() + PATIENCE
    while len(records) < 10 or not told:  # which of both partitions is heard of first is open
        assert time.monotonic() < deadline, (ids(records), told)
        try:
            records += consumer.poll(timeout=0.2)
        except CorruptRecordError as corrupt:
            told.append(str(corrupt))
    assert sorted(ids(records)) == written[:5] + elsewhere, "what is before it is returned"
    assert len(told) == 1
    assert re.search(f"{topic}.*0.*5", told[0])
    assert "CRC" in told[0] or "checksum" in told[0]

    elsewhere = fill(kafka, topic, {1: 5}, start=5)
    assert ids(poll_until(consumer, 5)) == elsewhere
    assert consumer.position(zero) == 5
    consumer.seek(zero, 10)
    assert ids(poll_until(consumer, 5)) == written[10:]


def test_seeking_back_to_a_corrupt_batch_tells_of_it_again(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    (tp,) = tps(topic, 0)
    fill(kafka, topic, {0: 5})
    flip(segment(kafka, tp), 75)
    consumer = open_consumer()
    consumer.assign([tp])
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            consumer.poll(timeout=20)
        consumer.seek(tp, 0)


def test_a_frame_over_the_bound_is_refused_before_anything_is_allocated(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 2000})
    consumer = open_consumer(max_frame_bytes=4096)
    consumer.assign(tps(topic, 0))
    with pytest.raises(FrameTooLargeError, match="4096"):
        consumer.poll(timeout=20)


@pytest.mark.requirement("surface/bombs")
def test_a_batch_that_unpacks_to_too_much_is_refused(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 5000}, settings={"compression.type": "gzip", "linger.ms": 200})
    consumer = open_consumer(max_decompressed_bytes=1024)
    consumer.assign(tps(topic, 0))
    with pytest.raises(ProtocolError, match="1024"):
        poll_until(consumer, 5000)  # a first batch may be small


# --- misuse


def test_poll_within_a_listener_is_refused(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    from instride import RebalanceListener

    topic = kafka_topic()

    class Polls(RebalanceListener):
        def on_partitions_assigned(self, partitions: Any) -> None:
            consumer.poll(timeout=0)

    consumer = open_consumer(group_id=group)
    consumer.subscribe([topic], listener=Polls())
    with pytest.raises(IllegalStateError, match="listener"):
        poll_until(consumer, 1)
