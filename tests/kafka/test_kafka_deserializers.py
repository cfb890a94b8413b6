"""Deserializers and interceptors on a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, StringDeserializer
from kafka_help import poll_until, tps

from filled_topics import fill
from instride import Consumer, ConsumerInterceptor, ConsumerRecords, OffsetAndMetadata, TopicPartition
from instride.errors import DeserializationError
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]
AVRO = '{"type": "record", "name": "Flight", "fields": [{"name": "delay", "type": "int"}]}'


def write(kafka: LocalKafka, topic: str, *values: bytes | None, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        producer.produce(topic, key=b"k", value=value, partition=partition)
    assert producer.flush(30) == 0


@pytest.mark.requirement("surface/deserializers")
def test_poll_returns_what_the_deserializers_made_and_arrow_has_bytes(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    write(kafka, topic, b'{"delay": 1}', None, b"[2]")
    consumer = open_consumer(key_deserializer=bytes.decode, value_deserializer=json.loads)
    consumer.assign(tps(topic, 0))
    assert [(each.key, each.value) for each in poll_until(consumer, 3)] == [
        ("k", {"delay": 1}),
        ("k", None),
        ("k", [2]),
    ]
    consumer.seek_to_beginning()
    polled = ConsumerRecords()
    while not polled:
        polled = consumer.poll(timeout=0.5)
    assert polled.to_arrow()[0].column("value").to_pylist()[0] == b'{"delay": 1}'
    consumer.seek_to_beginning()
    polled = ConsumerRecords()
    while not polled:
        polled = consumer.poll(timeout=0.5, deserialize=False)
    assert next(iter(polled)).value == b'{"delay": 1}'
    consumer.seek_to_beginning()
    table = consumer.poll_arrow(timeout=0)
    while not table.num_rows:
        table = consumer.poll_arrow(timeout=0.5)
    assert table.column("value").to_pylist()[0] == b'{"delay": 1}'


@pytest.mark.requirement("surface/deserialization-error")
@pytest.mark.vector(58)
def test_one_that_cannot_be_read_repeats_and_can_be_gone_past(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(2)
    zero, one = tps(topic, 0, 1)
    write(kafka, topic, b"1", b"{", b"3")
    consumer = open_consumer(group_id=group, value_deserializer=json.loads)
    consumer.assign([zero, one])
    assert [each.value for each in poll_until(consumer, 1)] == [1]
    write(kafka, topic, b"10", partition=1)
    for _ in range(3):
        with pytest.raises(DeserializationError) as failed:
            poll_until(consumer, 10)
        error = failed.value
        assert (error.topic_partition, error.offset, error.part, error.record.value) == (zero, 1, "value", b"{")
        assert consumer.position(zero) == 1
    consumer.commit()
    assert consumer.committed(zero)[zero] == OffsetAndMetadata(offset=1, leader_epoch=0)
    consumer.seek(error.topic_partition, error.offset + 1)
    seen: set[object] = set()
    while not seen >= {3}:
        seen |= {each.value for each in poll_until(consumer, 1)}
    consumer.commit()
    assert consumer.committed(zero)[zero] == OffsetAndMetadata(offset=3, leader_epoch=0)


@pytest.mark.requirement("surface/deserializers")
def test_confluents_deserializers_are_used_as_they_are(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    serializer = AvroSerializer(registry, AVRO)
    context = SerializationContext(topic, MessageField.VALUE)
    write(kafka, topic, *(serializer({"delay": delay}, context) for delay in range(3)))
    consumer = open_consumer(
        key_deserializer=StringDeserializer("utf_8"), value_deserializer=AvroDeserializer(registry)
    )
    consumer.assign(tps(topic, 0))
    assert [(each.key, each.value) for each in poll_until(consumer, 3)] == [("k", {"delay": n}) for n in range(3)]


class Recording(ConsumerInterceptor):
    def __init__(self) -> None:
        self.consumed: list[int] = []
        self.committed: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.closed = 0

    def on_consume(self, records: ConsumerRecords) -> None:
        self.consumed += [record.offset for record in records]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append(dict(offsets))

    def close(self) -> None:
        self.closed += 1


@pytest.mark.requirement("surface/interceptors")
def test_interceptors_hear_of_records_and_of_each_kind_of_commit(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    (tp,) = tps(topic, 0)
    fill(kafka, topic, {0: 3})
    recording = Recording()
    consumer = open_consumer(
        group_id=group, interceptors=[recording], enable_auto_commit=True, auto_commit_interval=3600.0
    )
    consumer.assign([tp])
    consumer.seek(tp, 1)  # not left to the commit: the committed offset may be looked up before it
    consumer.commit({tp: 1})
    assert recording.committed == [{tp: OffsetAndMetadata(offset=1)}]
    poll_until(consumer, 2)
    consumer.commit_async({tp: 2}).result(30)
    consumer.position(tp)  # takes the response
    assert recording.committed[-1] == {tp: OffsetAndMetadata(offset=2)}
    consumer.close()
    assert recording.committed[-1][tp].offset == 3, "the auto-commit of the close"
    assert recording.consumed == [1, 2]
    assert recording.closed == 1
