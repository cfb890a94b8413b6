"""How long a micro-batch takes, with Spark's own connector and with instride's source, in turn."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchmarks.load import ForeignLoad

PAUSE = 0.01
"""Between two records: each batch has some, however short it is."""
WARM = 5
"""Batches of a query that do not count."""
FORMATS = {"connector": "kafka", "instride": "instride"}


class Query(NamedTuple):
    """Seconds of each of its micro-batches that had records, and the share of the machine that other work took."""

    batches: list[float]
    foreign: float


def micro_batches(spark: Any, kafka: Any, partitions: int, chosen: argparse.Namespace) -> dict[str, list[Query]]:
    """By source, each round; the first one does not count."""
    topic = f"batches-{partitions}"
    kafka.create_topic(topic, partitions=partitions)
    queries: dict[str, list[Query]] = {name: [] for name in FORMATS}
    with fed(kafka.bootstrap_servers, topic, partitions):
        for number in range(chosen.rounds):
            for name, rounds in queries.items():
                load = ForeignLoad()
                batches = one_query(spark, kafka.bootstrap_servers, topic, name, chosen)
                rounds.append(Query(batches, load.share()))
                told = f"{name}, {partitions} partitions: {len(batches)} batches"
                print(f"round {number + 1} of {chosen.rounds}: {told}", file=sys.stderr, flush=True)
    return {name: rounds[1:] or rounds for name, rounds in queries.items()}


def one_query(spark: Any, servers: str, topic: str, name: str, chosen: argparse.Namespace) -> list[float]:
    reader = spark.readStream.format(FORMATS[name]).option("kafka.bootstrap.servers", servers)
    if name == "instride":
        reader = reader.option("maxPartitions", str(chosen.cores))
    frame = reader.option("subscribe", topic).option("startingOffsets", "latest").load()
    with tempfile.TemporaryDirectory() as folder:
        writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            query.awaitTermination(int(chosen.seconds))
        finally:
            query.stop()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
    if len(progress) <= WARM:
        raise RuntimeError(
            f"{name}: only {len(progress)} micro-batches in {chosen.seconds:g} s; give it more --seconds"
        )
    return [each["durationMs"]["triggerExecution"] / 1000 for each in progress[WARM:]]


@contextmanager
def fed(servers: str, topic: str, partitions: int) -> Iterator[None]:
    """Meanwhile records of 100 bytes come, for one partition after the other."""
    from confluent_kafka import Producer

    producer, ended = Producer({"bootstrap.servers": servers, "linger.ms": 0}), threading.Event()

    def feed() -> None:
        number = 0
        while not ended.is_set():
            producer.produce(topic, b"v" * 100, partition=number % partitions)
            producer.poll(0)
            number += 1
            time.sleep(PAUSE)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        producer.flush(60)
