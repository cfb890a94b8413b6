"""What a type checker knows of a consumer's records: `make check` runs mypy and pyright over this file."""

from __future__ import annotations

import sqlite3
from typing import Any, assert_type

import pytest

from instride import (
    AsyncConsumer,
    Consumer,
    ConsumerRecord,
    ConsumerRecords,
    ConsumerSettings,
    DatabaseStore,
    OutputRecord,
    Processor,
    ProcessorKit,
    TopicPartition,
)
from instride.errors import IllegalStateError

SERVERS = "127.0.0.1:1"


class Order:
    def __init__(self, data: bytes) -> None:
        self.data = data


def test_deserializers_type_the_records() -> None:
    typed = Consumer(bootstrap_servers=SERVERS, key_deserializer=bytes.decode, value_deserializer=Order)
    assert_type(typed, Consumer[str, Order])
    with pytest.raises(IllegalStateError):  # it has nothing to read
        assert_type(typed.poll(timeout=0), ConsumerRecords[str, Order])
    with pytest.raises(IllegalStateError):
        assert_type(typed.poll_changes(timeout=0).records, ConsumerRecords[str, Order])


def test_a_polls_records_are_typed() -> None:
    records: ConsumerRecords[str, Order] = ConsumerRecords()
    assert_type(list(records), list[ConsumerRecord[str, Order]])
    assert_type(records.by_partition(), dict[TopicPartition, list[ConsumerRecord[str, Order]]])


def test_without_a_deserializer_anything_may_be() -> None:
    settings: ConsumerSettings = {"bootstrap_servers": SERVERS, "group_id": "billing"}
    assert_type(Consumer(**settings), Consumer[Any, Any])
    assert_type(AsyncConsumer(bootstrap_servers=SERVERS, value_deserializer=Order), AsyncConsumer[Any, Order])


def looped(consumer: Consumer[str, Order]) -> None:
    for record in consumer:
        assert_type(record, ConsumerRecord[str, Order])


async def awaited(consumer: AsyncConsumer[str, Order]) -> None:
    assert_type(await consumer.poll(), ConsumerRecords[str, Order])
    async for record in consumer:
        assert_type(record, ConsumerRecord[str, Order])
        assert_type(record.value, Order)


def handles(record: ConsumerRecord[str, Order]) -> None: ...
async def handles_async(record: ConsumerRecord[str, Order]) -> None: ...
def handles_batch(records: list[ConsumerRecord[str, Order]]) -> None: ...
async def handles_batch_async(records: list[ConsumerRecord[str, Order]]) -> None: ...
def handles_bytes(record: ConsumerRecord[bytes | None, bytes | None]) -> None: ...


def test_deserializers_type_a_processor_and_its_handler() -> None:
    topics, key, value = ["t"], bytes.decode, Order
    one = Processor(handles, topics=topics, key_deserializer=key, value_deserializer=value)
    assert_type(one, Processor[str, Order])
    assert_type(
        Processor(handles_async, topics=topics, key_deserializer=key, value_deserializer=value), Processor[str, Order]
    )
    for handler in (handles_batch, handles_batch_async):
        batches = Processor(handler, topics=topics, key_deserializer=key, value_deserializer=value, max_batch=5)
        assert_type(batches, Processor[str, Order])
    assert_type(Processor(handles_bytes, topics=topics), Processor[bytes | None, bytes | None])
    with one.testing() as kit:
        assert_type(kit, ProcessorKit[str, Order])
        assert_type(kit.handled, list[ConsumerRecord[str, Order]])


def test_a_handler_of_other_records_is_refused_by_the_type_checker() -> None:
    Processor(handles, topics=["t"])  # type: ignore[arg-type]
    Processor(handles, topics=["t"], key_deserializer=bytes.decode, value_deserializer=int)  # type: ignore[misc]
    Processor(handles_batch, topics=["t"], key_deserializer=bytes.decode, value_deserializer=Order)  # type: ignore[arg-type]


def returns_one(record: ConsumerRecord[str, Order]) -> OutputRecord:
    return OutputRecord(value=None)


async def returns_some(record: ConsumerRecord[str, Order]) -> list[OutputRecord] | None:
    return None


async def returns_of_batch(records: list[ConsumerRecord[str, Order]]) -> list[OutputRecord]:
    return []


def returns_bytes(record: ConsumerRecord[str, Order]) -> bytes:
    return b""


def test_what_a_handler_returns_is_checked_where_it_is_written() -> None:
    topics, key, value = ["t"], bytes.decode, Order
    one = Processor(returns_one, topics=topics, key_deserializer=key, value_deserializer=value, output="o")
    assert_type(one, Processor[str, Order])
    Processor(returns_some, topics=topics, key_deserializer=key, value_deserializer=value, output="o")
    Processor(returns_of_batch, topics=topics, key_deserializer=key, value_deserializer=value, output="o", max_batch=5)
    Processor(returns_bytes, topics=topics, key_deserializer=key, value_deserializer=value)
    Processor(returns_bytes, topics=topics, key_deserializer=key, value_deserializer=value, output="o")  # type: ignore[arg-type]


def test_a_store_types_its_connection() -> None:
    store = DatabaseStore(lambda: sqlite3.connect(":memory:"))
    assert_type(store, DatabaseStore[sqlite3.Connection])
    with pytest.raises(IllegalStateError):  # no handler runs
        assert_type(store.connection, sqlite3.Connection)
