"""Batches that real producers wrote: librdkafka's codecs, and Java's (where the broker compresses again)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from record_batches import CODECS

from instride._wire import api
from instride._wire.compression import Sections
from instride._wire.connection import Connection
from instride.records import ConsumerRecord
from instride.testing._kafka.local_kafka import LocalKafka

pytestmark = pytest.mark.kafka

COUNT = 500
Topic = Callable[..., str]


class Client:
    """One blocking connection: a request, then its response."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._connection = Connection(client_id="test", max_frame_bytes=1 << 26)
        while not self._connection.ready:
            self._socket.sendall(self._connection.handshake())
            self._receive()

    def _receive(self) -> list[Any]:
        size = self._socket.recv_into(self._connection.get_buffer())
        assert size
        received = self._connection.buffer_updated(size)
        assert self._connection.failure is None
        return received

    def ask(self, request: api.Request) -> Any:
        self._socket.sendall(self._connection.send(1, request))
        while not (received := self._receive()):
            pass
        assert received[0].error is None
        return received[0].response

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def client(kafka: LocalKafka) -> Iterator[Client]:
    made = Client(kafka.address())
    yield made
    made.close()


@pytest.fixture
def codecs_seen(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The codecs of the batches that were decompressed."""
    seen: set[str] = set()
    append = Sections.append

    def spy(self: Sections, codec: int, data: memoryview, limit: int, *, expected_bytes: int = 0) -> tuple[int, int]:
        seen.add(CODECS[codec])
        return append(self, codec, data, limit, expected_bytes=expected_bytes)

    monkeypatch.setattr(Sections, "append", spy)
    return seen


def read_all(client: Client, topic: str, end: int, *, with_id: bool = True, **options: Any) -> list[ConsumerRecord]:
    """The records of partition 0 up to the offset `end`."""
    described = client.ask(api.Metadata(topics=(topic,)))
    topic_id = described.topics[0].topic_id if with_id else api.NO_TOPIC_ID
    offset, records = 0, []
    while offset < end:
        wanted = api.FetchPartition(topic=topic, partition=0, offset=offset, topic_id=topic_id, max_bytes=20_000)
        request = api.Fetch(partitions=(wanted,), max_wait=0.2, min_bytes=1, max_bytes=1 << 24, **options)
        found = client.ask(request).partitions[topic, 0]
        assert found.error == 0
        while found.undecoded is not None and not found.undecoded.done:
            piece = found.undecoded.decode(1 << 20, 1 << 20, alone=True)
            assert piece is not None
            assert piece.corrupt is None
            if piece.chunk is not None:
                records += piece.chunk.records(epoch=1, seek_number=1)
                assert piece.chunk.to_arrow().num_rows == len(piece.chunk)
            offset = piece.next_offset
    return records


def messages() -> list[dict[str, Any]]:
    """Nulls, empties, headers, and sizes to both sides of a varint's steps."""
    return [
        {
            "key": None if n % 5 == 0 else b"key-%d" % n,
            "value": None if n % 7 == 0 else b"value " * (n % 50),
            "headers": [("h", b"1"), ("h", None), ("é", b"")] if n % 3 == 0 else [],
            "timestamp": 1_700_000_000_000 + n * (-1) ** n,
        }
        for n in range(COUNT)
    ]


def produce(kafka: LocalKafka, topic: str, sent: list[dict[str, Any]], **settings: Any) -> None:
    """In as few batches as the settings allow: a batch of one small record may leave librdkafka uncompressed."""
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 30_000, **settings})
    for each in sent:
        producer.produce(topic, partition=0, **each)
    assert producer.flush(30) == 0


def check(records: list[ConsumerRecord], sent: list[dict[str, Any]]) -> None:
    assert [r.offset for r in records] == list(range(len(sent)))
    assert [r.key for r in records] == [each["key"] for each in sent]
    assert [r.value for r in records] == [each["value"] for each in sent]
    assert [list(r.headers) for r in records] == [each["headers"] for each in sent]
    assert {r.leader_epoch for r in records} == {0}


@pytest.mark.requirement("surface/codecs")
@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_librdkafka(
    kafka: LocalKafka, kafka_topic: Topic, client: Client, codecs_seen: set[str], codec: str
) -> None:
    topic, sent = kafka_topic(), messages()
    produce(kafka, topic, sent, **{"compression.type": codec, "batch.num.messages": 60})
    records = read_all(client, topic, COUNT)
    check(records, sent)
    assert codecs_seen == {codec} - {"none"}
    assert [(r.timestamp, r.timestamp_type) for r in records] == [(each["timestamp"], 0) for each in sent]


@pytest.mark.requirement("surface/codecs")
@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_java(
    kafka: LocalKafka, kafka_topic: Topic, client: Client, codecs_seen: set[str], codec: str
) -> None:
    """A topic's own compression.type makes the broker compress with the Java client's code; its clock is the time."""
    kind = "uncompressed" if codec == "none" else codec
    configs = {"compression.type": kind, "message.timestamp.type": "LogAppendTime"}
    topic, sent = kafka_topic(configs=configs), messages()
    produce(kafka, topic, sent, **{"compression.type": "gzip" if codec == "none" else "none"})
    records = read_all(client, topic, COUNT, with_id=False)
    check(records, sent)
    assert codecs_seen == {codec} - {"none"}
    assert {r.timestamp_type for r in records} == {1}
    assert all(r.timestamp > 1_700_000_001_000 for r in records)


@pytest.mark.requirement("surface/read-committed")
def test_transactions(kafka: LocalKafka, kafka_topic: Topic, client: Client) -> None:
    topic = kafka_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for n in range(6):
        producer.begin_transaction()
        producer.produce(topic, value=b"%d" % n, partition=0)
        producer.flush(30)
        if n % 3 == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    everything = [r.value for r in read_all(client, topic, 12)]
    committed = [r.value for r in read_all(client, topic, 12, read_committed=True)]
    assert everything == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert committed == [b"0", b"2", b"3", b"5"]
