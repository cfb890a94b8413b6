"""One client reads a topic once, in a process of its own: `python -m benchmarks.clients NAME SERVERS TOPIC ROWS`.

Prints one line of JSON: rows, seconds from the first row to the last, CPU seconds of the process, peak memory.
Every client has the same fetch sizes; librdkafka has the queue settings without which its queue would be measured.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator

PARTITIONS = 12
PARTITION_BYTES = 4 << 20
FETCH_BYTES = 64 << 20
PATIENCE = 60.0


def instride_rows(servers: str, topic: str, form: str) -> Iterator[int]:
    from instride import Consumer, TopicPartition

    with Consumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        max_poll_records=-1,
        max_partition_fetch_bytes=PARTITION_BYTES,
        fetch_max_bytes=FETCH_BYTES,
    ) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        while True:
            records = consumer.poll(timeout=1.0)
            if form == "arrow":
                yield sum(batch.num_rows for batch in records.to_arrow())
            elif form == "records":
                yield sum(1 for record in records if record.value is not None)
            else:
                yield len(records)


def confluent_rows(servers: str, topic: str, form: str) -> Iterator[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "queued.min.messages": 2_000_000,
            "queued.max.messages.kbytes": 1_048_576,
            "fetch.queue.backoff.ms": 10,
            "max.partition.fetch.bytes": PARTITION_BYTES,
            "fetch.max.bytes": FETCH_BYTES,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    while True:
        if form == "consume":
            yield sum(1 for message in consumer.consume(10_000, 1.0) if message.value() is not None)
        else:
            message = consumer.poll(1.0)
            yield int(message is not None and message.value() is not None)


def kafka_python_rows(servers: str, topic: str, form: str) -> Iterator[int]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=PARTITION_BYTES,
        fetch_max_bytes=FETCH_BYTES,
        max_poll_records=10_000,
    )
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    while True:
        yield sum(len(records) for records in consumer.poll(timeout_ms=1000).values())


async def aiokafka_read(servers: str, topic: str, rows: int) -> tuple[int, float]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=PARTITION_BYTES,
        fetch_max_bytes=FETCH_BYTES,
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    seen, first = 0, 0.0
    while seen < rows:
        got = sum(len(records) for records in (await consumer.getmany(timeout_ms=1000)).values())
        first = first or (time.monotonic() if got else 0.0)
        seen += got
    took = time.monotonic() - first
    await consumer.stop()
    return seen, took


CLIENTS = {
    "instride-columns": lambda servers, topic: instride_rows(servers, topic, "columns"),
    "instride-arrow": lambda servers, topic: instride_rows(servers, topic, "arrow"),
    "instride-records": lambda servers, topic: instride_rows(servers, topic, "records"),
    "confluent-consume": lambda servers, topic: confluent_rows(servers, topic, "consume"),
    "confluent-poll": lambda servers, topic: confluent_rows(servers, topic, "poll"),
    "kafka-python": lambda servers, topic: kafka_python_rows(servers, topic, "poll"),
}


def read(name: str, servers: str, topic: str, rows: int) -> tuple[int, float]:
    if name == "aiokafka":
        return asyncio.run(aiokafka_read(servers, topic, rows))
    seen, first, limit = 0, 0.0, time.monotonic() + PATIENCE
    for got in CLIENTS[name](servers, topic):
        now = time.monotonic()
        first = first or (now if got else 0.0)
        seen += got
        if seen >= rows or now > limit:
            return seen, now - first
    raise AssertionError("the client ended by itself")


def main() -> None:
    name, servers, topic, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    seen, took = read(name, servers, topic, rows)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "client": name,
                "rows": seen,
                "seconds": took,
                "cpu": usage.ru_utime + usage.ru_stime,
                "peak_mb": usage.ru_maxrss / 1024,
            }
        )
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
