"""What a type checker knows of a consumer's records: `make check` runs mypy over this file."""

from __future__ import annotations

from typing import Any, assert_type

import pytest

from instride import AsyncConsumer, Consumer, ConsumerRecord, ConsumerRecords, ConsumerSettings, TopicPartition
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


async def _awaited(consumer: AsyncConsumer[str, Order]) -> None:
    assert_type(await consumer.poll(), ConsumerRecords[str, Order])
    async for record in consumer:
        assert_type(record, ConsumerRecord[str, Order])
        assert_type(record.value, Order)
