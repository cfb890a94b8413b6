"""Rows a second into Spark: instride's source and Spark's own connector, in turn, in one session, several rounds.

    python -m benchmarks spark [--rows N] [--rounds N] [--cores N]

Each reads the whole topic of 12 partitions and gives its rows to "noop". The connector is tuned: large fetches, one
task a core. "fused" counts in the reader, against the connector followed by mapInArrow. Figures are medians of all
rounds but the first, with the least and the most; the last column is the ratio to the connector's median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

TUNED = {
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "10000",
    "kafka.receive.buffer.bytes": str(1 << 20),
}
COUNTED = "rows BIGINT"


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks spark")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 100 bytes; a quarter as many of 1 KB")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2)
    chosen = parser.parse_args(arguments)
    from benchmarks.batches import Log
    from benchmarks.filler import fill
    from instride.testing import LocalKafka

    results: dict[str, object] = {}
    spark = session(chosen.cores)
    with LocalKafka() as kafka:
        for size, rows in ((100, chosen.rows), (1000, chosen.rows // 4)):
            topic = f"bytes-{size}"
            kafka.create_topic(topic, partitions=12, configs={"retention.ms": "-1"})
            log = Log(size=size, rows=800_000 // size, random=True)
            rows = fill(kafka.bootstrap_servers, topic, log, rows)  # noqa: PLW2901
            ways = readers(spark, kafka.bootstrap_servers, topic, chosen.cores)
            results[topic] = show(size, rows, measure(ways, chosen.rounds))
    spark.stop()
    return results


def session(cores: int) -> Any:
    from pyspark.sql import SparkSession

    from connector_jars import connector_jars
    from instride.spark import recommended_conf

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = {**recommended_conf(), "spark.ui.enabled": "false", "spark.jars": ",".join(connector_jars())}
    spark = SparkSession.builder.master(f"local[{cores}]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def readers(spark: Any, servers: str, topic: str, cores: int) -> dict[str, Callable[[], None]]:
    from pyspark.sql.types import LongType, StructType

    from instride.spark import source

    spark.dataSource.register(source(count, StructType().add("rows", LongType()), name="fused"))

    def frame(name: str, **options: str) -> Any:
        reader = spark.read.format(name).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return reader.options(**options)

    def noop(made: Any) -> None:
        made.write.format("noop").mode("overwrite").save()

    packed = {"maxPartitions": str(cores)}
    return {
        "connector": lambda: noop(frame("kafka", **TUNED).load()),
        "instride": lambda: noop(frame("instride", **packed).load()),
        "instride, value only": lambda: noop(frame("instride", columns="value", **packed).load()),
        "connector + mapInArrow": lambda: noop(frame("kafka", **TUNED).load().mapInArrow(counts, COUNTED)),
        "fused": lambda: noop(frame("fused", columns="value", **packed).load()),
    }


def count(batch: Any) -> Any:
    import pyarrow as pa

    return pa.record_batch({"rows": [batch.num_rows]})


def counts(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield count(batch)


def measure(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, work in ways.items():
            began = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - began)
            print(f"round {number + 1} of {rounds}: {name}: {seconds[name][-1]:.1f} s", file=sys.stderr, flush=True)
    return {name: each[1:] or each for name, each in seconds.items()}


def show(size: int, rows: int, seconds: dict[str, list[float]]) -> dict[str, object]:
    found: dict[str, object] = {}
    print(f"\nvalues of {size} bytes: million rows a second")
    for name, each in seconds.items():
        base = seconds["connector + mapInArrow" if name == "fused" else "connector"]
        speeds = [rows / taken / 1e6 for taken in each]
        ratio = statistics.median(base) / statistics.median(each)
        median, low, high = statistics.median(speeds), min(speeds), max(speeds)
        print(f"{name:24} {median:6.2f}  ({low:.2f} to {high:.2f})  {ratio:5.1f} x")
        found[name] = {"median": median, "low": low, "high": high, "ratio": ratio}
    return found
