"""One client reads a topic, in a process of its own: `python -m benchmarks.clients NAME 'JSON of a Task'`.

Prints one line of JSON: rows, and the seconds and CPU seconds that they took, all three without start-up and warm-up;
peak memory; "first at", when the records of the first poll had been read (seconds since 1970), and "start-up cpu", the
CPU seconds up to then. Every client reads each record's key and value, and drops it.

The tuned forms have the fetch sizes of `Task`, and ours its buffer; librdkafka has the queue settings without which its
queue would be measured (of up to 1 GiB). The forms "at defaults" have no setting that is not needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.meter import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is read, and which part of it counts: from `warm_rows` rows or `warm_seconds` seconds after the first record
    on, whichever is first, until `most_rows` rows have come in all, or `most_seconds` seconds have passed.

    ca_file: of the authority, where connections are encrypted.
    """

    servers: str
    topic: str
    warm_rows: int
    warm_seconds: float
    most_rows: int
    most_seconds: float
    partitions: int = 12
    partition_bytes: int = 4 << 20
    fetch_bytes: int = 64 << 20
    buffer_bytes: int = 256 << 20
    ca_file: str = ""


def _instride(task: Task, form: str, **settings: int | str) -> Iterator[int]:
    from instride import Consumer, TopicPartition

    if task.ca_file:
        settings |= {"security_protocol": "SSL", "ssl_ca_file": task.ca_file}
    consumer = Consumer(bootstrap_servers=task.servers, auto_offset_reset="earliest", **settings)  # type: ignore[arg-type]
    consumer.assign([TopicPartition(task.topic, number) for number in range(task.partitions)])
    while form == "arrow":
        yield consumer.poll_arrow(timeout=1.0).num_rows
    while form == "views":
        yield consumer.poll_arrow(timeout=1.0, binary_view=True, dictionary=True).num_rows
    while form == "handler":
        yield handled(pairs(consumer.poll(timeout=1.0)))
    while True:
        yield taken(consumer.poll(timeout=1.0))


def taken(records: Any) -> int:
    """How many: the key and the value of each are read, and dropped. One way for all clients whose records have
    attributes, and a loop, since a generator's turn for each record would count as the client's."""
    for each in records:
        _, _ = each.key, each.value
    return len(records)


def pairs(records: Iterable[Any]) -> Iterable[object]:
    """The key and the value of each."""
    return ((each.key, each.value) for each in records)


def handled(pairs: Iterable[object]) -> int:
    """Five microseconds of work for each."""
    count = 0
    for _ in pairs:
        until = time.perf_counter() + 5e-6
        while time.perf_counter() < until:
            pass
        count += 1
    return count


def _tuned(task: Task) -> dict[str, int | str]:
    return {
        "max_poll_records": -1,
        "max_partition_fetch_bytes": task.partition_bytes,
        "fetch_max_bytes": task.fetch_bytes,
        "fetch_buffer_bytes": task.buffer_bytes,
    }


def _confluent(task: Task, *, tuned: bool, crc: bool = False, handler: bool = False) -> Iterator[int]:
    from confluent_kafka import Consumer, TopicPartition

    settings: dict[str, object] = {
        "bootstrap.servers": task.servers,
        "group.id": "bench",
        "enable.auto.commit": False,
        "check.crcs": crc,
    }
    if task.ca_file:
        settings |= {"security.protocol": "ssl", "ssl.ca.location": task.ca_file}
    if tuned:
        settings |= {
            "queued.min.messages": 2_000_000,
            "queued.max.messages.kbytes": 1_048_576,
            "fetch.queue.backoff.ms": 10,
            "max.partition.fetch.bytes": task.partition_bytes,
            "fetch.max.bytes": task.fetch_bytes,
        }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(task.topic, number, 0) for number in range(task.partitions)])
    while handler:
        yield handled((message.key(), message.value()) for message in consumer.consume(500, 1.0))
    while True:
        messages = consumer.consume(10_000, 1.0)
        for message in messages:
            message.key()
            message.value()
        yield len(messages)


def _kafka_python(task: Task, *, crc: bool = True) -> Iterator[int]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=task.servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=task.partition_bytes,
        fetch_max_bytes=task.fetch_bytes,
        max_poll_records=10_000,
        check_crcs=crc,
        security_protocol="SSL" if task.ca_file else "PLAINTEXT",
        ssl_cafile=task.ca_file or None,
    )
    consumer.assign([TopicPartition(task.topic, number) for number in range(task.partitions)])
    while True:
        yield sum(map(taken, consumer.poll(timeout_ms=1000).values()))


async def _aiokafka(task: Task, *, crc: bool) -> AsyncIterator[int]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=task.servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=task.partition_bytes,
        fetch_max_bytes=task.fetch_bytes,
        check_crcs=crc,
        security_protocol="SSL" if task.ca_file else "PLAINTEXT",
        ssl_context=ssl.create_default_context(cafile=task.ca_file) if task.ca_file else None,
    )
    await consumer.start()
    consumer.assign([TopicPartition(task.topic, number) for number in range(task.partitions)])
    while True:
        yield sum(map(taken, (await consumer.getmany(timeout_ms=1000)).values()))


def _raw(task: Task, connections: int, outstanding: int) -> Iterator[int]:
    from benchmarks.raw_drain import drain

    return drain(
        task.servers,
        task.topic,
        partitions=task.partitions,
        partition_bytes=task.partition_bytes,
        fetch_bytes=task.fetch_bytes,
        connections=connections,
        outstanding=outstanding,
        ca_file=task.ca_file,
    )


def _spinning(reader: Iterator[int]) -> Iterator[int]:
    """The same beside a thread that runs Python all the time."""
    threading.Thread(target=spin, daemon=True).start()
    yield from reader


def spin() -> None:
    while True:
        sum(range(1000))


CLIENTS: dict[str, Callable[[Task], Iterator[int]]] = {
    "raw drain, 1 fetch": lambda task: _raw(task, 1, 1),
    "raw drain, 2 fetches": lambda task: _raw(task, 1, 2),
    "raw drain, 3 fetches": lambda task: _raw(task, 1, 3),
    "raw drain, 2 connections": lambda task: _raw(task, 2, 1),
    "raw drain, 2 connections, 2 fetches": lambda task: _raw(task, 2, 2),
    "raw drain, 2 connections, 3 fetches": lambda task: _raw(task, 2, 3),
    "instride, Arrow": lambda task: _instride(task, "arrow", **_tuned(task)),
    "instride, Arrow, views": lambda task: _instride(task, "views", **_tuned(task)),
    "instride, Arrow, at defaults": lambda task: _instride(task, "arrow"),
    "instride, records": lambda task: _instride(task, "records", **_tuned(task)),
    "instride, records, at defaults": lambda task: _instride(task, "records"),
    "confluent-kafka": lambda task: _confluent(task, tuned=True),
    "confluent-kafka, CRC too": lambda task: _confluent(task, tuned=True, crc=True),
    "confluent-kafka, at defaults": lambda task: _confluent(task, tuned=False),
    "confluent-kafka, at defaults, CRC too": lambda task: _confluent(task, tuned=False, crc=True),
    "instride, handler of 5 us": lambda task: _instride(task, "handler", **{**_tuned(task), "max_poll_records": 500}),
    "confluent-kafka, handler of 5 us": lambda task: _confluent(task, tuned=True, handler=True),
    "instride, Arrow, busy thread": lambda task: _spinning(_instride(task, "arrow", **_tuned(task))),
    "instride, records, busy thread": lambda task: _spinning(_instride(task, "records", **_tuned(task))),
    "confluent-kafka, busy thread": lambda task: _spinning(_confluent(task, tuned=True)),
    "kafka-python": _kafka_python,
    "kafka-python, without CRC": lambda task: _kafka_python(task, crc=False),
}
"""The blocking ones. Of the raw drain, the fetches are those of each connection. Besides there are "aiokafka" (also
without CRC), and in processes that are not Python "Java" (also without CRC) and "franz-go". instride and franz-go
always check it."""


class Window:
    """What of a client's reading counts; see `Task`."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._meter: Meter | None = None
        self._warming: Meter | None = None
        self._rows = 0
        self._rows_before = 0
        self._start_up: dict[str, float] = {}

    def read(self, rows: int) -> dict[str, float] | None:
        """These rows have come; the result, when all that counts has."""
        self._rows += rows
        if self._meter is not None:
            done = self._rows >= self._task.most_rows or self._meter.seconds >= self._task.most_seconds
            return self._meter.read(self._rows - self._rows_before) | self._start_up if done else None
        if self._rows and self._warming is None:
            self._warming = Meter()
            self._start_up = {"first at": time.time(), "start-up cpu": time.process_time()}
        if self._warming is not None:
            warm = self._warming.seconds >= self._task.warm_seconds
            if warm or self._rows >= self._task.warm_rows:
                self._meter, self._rows_before = Meter(), self._rows
        return None


async def _read_awaiting(task: Task, *, crc: bool) -> dict[str, float]:
    window = Window(task)
    async for rows in _aiokafka(task, crc=crc):
        if found := window.read(rows):
            return found
    raise AssertionError("the client ended by itself")


def read(name: str, task: Task) -> dict[str, float]:
    if name.startswith("aiokafka"):
        return asyncio.run(_read_awaiting(task, crc=name == "aiokafka"))
    window = Window(task)
    for rows in CLIENTS[name](task):
        if found := window.read(rows):
            return found
    raise AssertionError("the client ended by itself")


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1], Task(**json.loads(sys.argv[2])))), flush=True)
    os._exit(0)  # without waiting for what is under way
