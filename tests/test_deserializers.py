"""How deserializers are called, and what becomes of what they raise."""

from __future__ import annotations

import functools
import json
import pickle
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import (
    IntegerDeserializer,
    MessageField,
    SerializationContext,
    SerializationError,
    StringDeserializer,
)

from instride import Consumer, ConsumerRecord, RangeConsumer, TopicPartition
from instride._record_deserializer import RecordDeserializer
from instride.errors import ConfigError, DeserializationError

AVRO = '{"type": "record", "name": "Flight", "fields": [{"name": "delay", "type": "int"}]}'


def record(key: bytes | None = b"k", value: bytes | None = b"v", **more: Any) -> ConsumerRecord:
    return ConsumerRecord("flights", 3, 77, key=key, value=value, epoch=2, seek_number=1, **more)


def value_of(deserializer: Any, value: bytes | None) -> Any:
    return RecordDeserializer(None, deserializer).read(record(value=value)).value


@pytest.mark.parametrize(
    ("deserializer", "expected"),
    [
        (json.loads, 12),
        (bytes.decode, "12"),
        (int, 12),
        (functools.partial(str, encoding="utf-8"), "12"),
        (lambda data, *, option=1: (data, option), (b"12", 1)),
        (StringDeserializer("utf_8"), "12"),
    ],
    ids=["json", "method", "type", "partial", "lambda", "confluent"],
)
def test_a_callable_is_given_the_bytes(deserializer: Any, expected: object) -> None:
    assert value_of(deserializer, b"12") == expected


@pytest.mark.parametrize(
    "deserializer",
    [lambda data, where: where, lambda data, ctx=None: ctx, lambda data, context=None: context],
    ids=["required", "ctx", "context"],
)
@pytest.mark.parametrize("part", ["key", "value"])
def test_one_that_takes_a_context_is_told_where_the_bytes_come_from(deserializer: Any, part: str) -> None:
    reader = RecordDeserializer(**{"key": None, "value": None, part: deserializer})
    found = reader.read(record(headers=(("a", b"1"),)))
    context = found.key if part == "key" else found.value
    assert (context.topic, context.field, context.headers) == ("flights", part, [("a", b"1")])
    assert (found.value if part == "key" else found.key) == (b"v" if part == "key" else b"k"), "the other is left"


def test_null_stays_none_and_is_not_deserialized() -> None:
    reader = RecordDeserializer(json.loads, json.loads)
    found = reader.read(record(key=None, value=None))
    assert (found.key, found.value) == (None, None)


def test_all_else_of_a_record_stays() -> None:
    raw = record(timestamp=5, timestamp_type=1, headers=(("a", None),), leader_epoch=9)
    found = RecordDeserializer(bytes.decode, bytes.decode).read(raw)
    assert (found.key, found.value) == ("k", "v")
    names = ["topic", "partition", "offset", "timestamp", "timestamp_type", "headers", "leader_epoch"]
    names += ["epoch", "seek_number", "topic_partition"]
    assert [getattr(found, name) for name in names] == [getattr(raw, name) for name in names]
    assert pickle.loads(pickle.dumps(found)) == found
    assert "<str>" in repr(found)
    assert (raw.key, raw.value) == (b"k", b"v"), "and so does the one that was fetched"


@pytest.mark.requirement("surface/deserialization-error")
@pytest.mark.parametrize(("part", "broken"), [("key", b"{"), ("value", b"{")])
def test_an_error_names_the_record_and_the_part_and_shows_no_content(part: str, broken: bytes) -> None:
    raw = record(**{"key": b"1", "value": b"2", part: broken})
    with pytest.raises(DeserializationError, match=rf"{part} of flights-3 at offset 77.*JSONDecodeError") as failed:
        RecordDeserializer(json.loads, json.loads).read(raw)
    error = failed.value
    assert (error.topic, error.partition, error.offset, error.part) == ("flights", 3, 77, part)
    assert error.topic_partition == TopicPartition("flights", 3)
    assert error.record is raw
    assert isinstance(error.__cause__, json.JSONDecodeError)
    assert "{" not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.part, again.record) == (str(error), part, raw)


def test_what_is_no_exception_passes() -> None:
    def interrupted(data: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        value_of(interrupted, b"")


async def asynchronous(data: bytes) -> bytes:
    return data


class Asynchronous:
    async def __call__(self, data: bytes, ctx: object = None) -> bytes:
        return data


@pytest.mark.parametrize("wrong", [7, "json", asynchronous, Asynchronous()], ids=["number", "text", "async", "object"])
@pytest.mark.parametrize("setting", ["key_deserializer", "value_deserializer"])
def test_what_cannot_be_called_is_refused_when_the_consumer_is_built(wrong: Any, setting: str) -> None:
    settings: Any = {setting: wrong}
    with pytest.raises(ConfigError, match=setting):
        Consumer(bootstrap_servers="localhost:9092", **settings)


@pytest.mark.parametrize("setting", ["key_deserializer", "value_deserializer", "interceptors"])
def test_a_consumer_of_ranges_reads_no_records(setting: str) -> None:
    settings: Any = {setting: [object()] if setting == "interceptors" else json.loads}
    with pytest.raises(ConfigError, match=setting):
        RangeConsumer(bootstrap_servers="localhost:9092", **settings)


def test_confluents_errors_are_told_as_ours() -> None:
    with pytest.raises(DeserializationError) as failed:
        value_of(IntegerDeserializer(), b"too long")
    assert isinstance(failed.value.__cause__, SerializationError)


@pytest.mark.requirement("surface/deserializers")
def test_confluents_schema_registry_deserializer_is_used_as_it_is() -> None:
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    written = AvroSerializer(registry, AVRO)({"delay": 12}, SerializationContext("flights", MessageField.VALUE))
    assert written is not None
    assert value_of(AvroDeserializer(registry), written) == {"delay": 12}
    with pytest.raises(DeserializationError):
        value_of(AvroDeserializer(registry), b"no magic byte")


def test_confluents_deserializer_may_turn_to_the_context() -> None:
    """As one that makes an object of the record's class does."""
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    written = AvroSerializer(registry, AVRO)({"delay": 12}, SerializationContext("flights", MessageField.VALUE))
    assert written is not None
    made = AvroDeserializer(registry, AVRO, lambda found, ctx: (ctx.topic, ctx.field == MessageField.VALUE, found))
    assert value_of(made, written) == ("flights", True, {"delay": 12})
