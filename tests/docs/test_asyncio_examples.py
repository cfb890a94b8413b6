"""The examples of docs/asyncio.md are run as they stand, against a real Kafka."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from instride import AsyncConsumer, ConsumerRecord, OffsetLedger, TopicPartition
from instride.testing import LocalKafka

PAGE = Path(__file__).parents[2] / "docs" / "asyncio.md"
RECORDS = 60
pytestmark = pytest.mark.kafka


class Page:
    """The page's names, with this test's topic, which is the group's name too. done: every record was handled."""

    def __init__(self, servers: str, topic: str) -> None:
        code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        self.loop, self.one_by_one, self.lifespan, self.listener = (
            each.replace("localhost:9092", servers)
            .replace('"flights"', repr(topic))
            .replace("group_id=", 'auto_offset_reset="earliest", group_id=')
            for each in code
        )
        self.topic = topic
        self.handled: list[bytes] = []
        self.done = asyncio.Event()
        self.names: dict[str, Any] = {}

    def run(self, code: str) -> None:
        exec(compile(code, "example", "exec"), self.names)
        self.names["handle"] = self.handle

    async def handle(self, record: ConsumerRecord) -> None:
        await asyncio.sleep(0.01)
        self.handled.append(record.value)
        if len(self.handled) == RECORDS:
            self.done.set()


@pytest.fixture
def page(kafka: LocalKafka, kafka_topic: Callable[..., str]) -> Page:
    topic = kafka_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, value=str(number).encode())
    assert producer.flush(30) == 0
    return Page(kafka.bootstrap_servers, topic)


async def all_committed(page: Page, kafka: LocalKafka, *, offset: int = RECORDS) -> None:
    assert sorted(page.handled) == sorted(str(number).encode() for number in range(RECORDS))
    partition = TopicPartition(page.topic, 0)
    async with AsyncConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id=page.topic) as reader:
        found = (await reader.committed(partition))[partition]
    assert found is not None
    assert found.offset == offset


def test_the_loop(page: Page, kafka: LocalKafka) -> None:
    page.run(page.loop)

    async def story() -> None:
        async with asyncio.timeout(60):
            await page.names["work"](page.done)
        await all_committed(page, kafka)

    asyncio.run(story())


def test_one_record_after_the_other_until_it_is_cancelled(page: Page, kafka: LocalKafka) -> None:
    page.run(page.one_by_one)

    async def story() -> None:
        async with asyncio.timeout(60):
            working = asyncio.create_task(page.names["work"]())
            await page.done.wait()
            working.cancel()
            await asyncio.wait([working])
        await all_committed(page, kafka)

    asyncio.run(story())


@pytest.mark.skipif(not importlib.util.find_spec("fastapi"), reason="needs fastapi")
def test_the_lifespan(page: Page, kafka: LocalKafka) -> None:
    page.run(page.loop)
    page.run(page.lifespan)

    async def story() -> None:
        async with asyncio.timeout(60), page.names["lifespan"](page.names["app"]):
            await page.done.wait()
        await all_committed(page, kafka)

    asyncio.run(story())


def test_the_listener(page: Page, kafka: LocalKafka) -> None:
    page.run(page.loop)
    page.run(page.listener)

    async def story() -> None:
        ledger = OffsetLedger()
        settings: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "auto_offset_reset": "earliest"}
        async with asyncio.timeout(60), AsyncConsumer(**settings, group_id=page.topic) as consumer:
            consumer.subscribe([page.topic], listener=page.names["Listener"](consumer, ledger))
            while not page.done.is_set():
                for record in ledger.track(await consumer.poll(timeout=1.0)):
                    await page.handle(record)
                    if record.offset < RECORDS - 1:  # the last one is returned, and never finished
                        ledger.done(record)
        await all_committed(page, kafka, offset=RECORDS - 1)

    asyncio.run(story())
