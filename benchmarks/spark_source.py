"""Spark: instride's source and pipeline beside Spark's own connector, in turn, in one session, several rounds.

    python -m benchmarks spark [--rows N] [--rounds N] [--cores N] [--seconds N] [--only rates|batches] [--page]

*Rates*: each reads the whole topic of 12 partitions and gives its rows to "noop". The connector is tuned: large
fetches, one task a partition. "fused" counts in the reader, against the connector followed by mapInArrow. The
pipeline's function drops every row; it counts from its first job to its last commit, against a bare mapInArrow that
reads the same. *Batches*: how long a micro-batch takes (trigger 0, a record each 10 ms), of 12 partitions and of one.

Figures are medians of all rounds but the first, with the least and the most. A run beside which other work took more
than 5 % of the machine is void: medians leave it out, and the table says how many were. If all are void, the table
shows them and says VOID. --page writes them into
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load import ForeignLoad
from benchmarks.spark_cost import Cost, measured
from benchmarks.spark_page import Batches, Rates, show, write_page

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

TUNED = {
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "10000",
    "kafka.receive.buffer.bytes": str(1 << 20),
}
COUNTED = "rows BIGINT"
LIKE_THE_CONNECTOR = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
PARTITIONS = 12
Ways = dict[str, Callable[[], float | None]]


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks spark")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 100 bytes; a quarter as many of 1 KB")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each query whose micro-batches are timed")
    parser.add_argument("--only", choices=["rates", "batches"])
    parser.add_argument("--page", action="store_true", help="write the medians into docs/benchmarks.md")
    chosen = parser.parse_args(arguments)
    from benchmarks.spark_batches import micro_batches
    from instride.testing import LocalKafka

    spark = session(chosen.cores)
    rates: Rates = {}
    batches: Batches = {}
    load = ForeignLoad()
    with LocalKafka() as kafka:
        if chosen.only != "batches":
            rates = {size: of_size(spark, kafka, size, chosen) for size in (100, 1000)}
        if chosen.only != "rates":
            batches = {number: micro_batches(spark, kafka, number, chosen) for number in (PARTITIONS, 1)}
    spark.stop()
    foreign = load.share()
    show(rates, batches, foreign)
    if chosen.page:
        write_page(rates, batches, foreign, " ".join(arguments))
    return {"rates": {size: of for size, (_, of) in rates.items()}, "batches": batches, "foreign": foreign}


def session(cores: int) -> Any:
    from pyspark.sql import SparkSession

    from connector_jars import connector_jars
    from instride.spark import recommended_conf

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = {**recommended_conf(), "spark.ui.enabled": "false", "spark.jars": ",".join(connector_jars())}
    conf["spark.sql.streaming.numRecentProgressUpdates"] = "1000"
    conf["spark.driver.memory"] = "4g"  # the tuned connector needs more than the default of 1 GiB
    spark = SparkSession.builder.master(f"local[{cores}]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def of_size(spark: Any, kafka: Any, size: int, chosen: argparse.Namespace) -> tuple[int, dict[str, list[Cost]]]:
    """How many rows there are, and what each way of each round cost."""
    from benchmarks.batches import Log
    from benchmarks.filler import fill

    topic = f"bytes-{size}"
    kafka.create_topic(topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    log = Log(size=size, rows=800_000 // size, random=True)
    rows = fill(kafka.bootstrap_servers, topic, log, chosen.rows if size == 100 else chosen.rows // 4)
    with ExitStack() as stack:
        ways = readers(spark, kafka.bootstrap_servers, topic, chosen.cores)
        ways |= pipelines(spark, kafka.bootstrap_servers, topic, chosen.cores, stack)
        return rows, in_turn(spark, ways, chosen.rounds)


def in_turn(spark: Any, ways: Ways, rounds: int) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, work in ways.items():
            costs[name].append(measured(spark, work))
            print(
                f"round {number + 1} of {rounds}: {name}: {costs[name][-1].seconds:.1f} s", file=sys.stderr, flush=True
            )
    return {name: each[1:] or each for name, each in costs.items()}


def readers(spark: Any, servers: str, topic: str, cores: int) -> Ways:
    from pyspark.sql.types import LongType, StructType

    from instride.spark import source

    spark.dataSource.register(source(count, StructType().add("rows", LongType()), name="fused"))

    def frame(name: str, **options: str) -> Any:
        reader = spark.read.format(name).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return reader.options(**options)

    packed = {"maxPartitions": str(cores)}
    return {
        "connector": lambda: noop(frame("kafka", **TUNED).load()),
        "instride": lambda: noop(frame("instride", **packed).load()),
        "instride, value only": lambda: noop(frame("instride", columns="value", **packed).load()),
        "connector + mapInArrow": lambda: noop(frame("kafka", **TUNED).load().mapInArrow(counts, COUNTED)),
        "fused": lambda: noop(frame("fused", columns="value", **packed).load()),
    }


def pipelines(spark: Any, servers: str, topic: str, cores: int, stack: ExitStack) -> Ways:
    """A bare mapInArrow with and without the rows for Spark, and a pipeline whose function drops them."""
    from instride.spark._data_source.columns import spark_schema

    kept = Reads(servers, topic, cores, columns=LIKE_THE_CONNECTOR)
    dropped = Reads(servers, topic, cores)
    tasks = spark.range(0, cores, 1, cores)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return {
        "mapInArrow reader": lambda: noop(tasks.mapInArrow(kept, spark_schema(LIKE_THE_CONNECTOR))),
        "bare mapInArrow, rows dropped": lambda: noop(tasks.mapInArrow(dropped, COUNTED)),
        "Pipeline, rows dropped": lambda: backlog(spark, servers, topic, folder / uuid.uuid4().hex),
    }


def noop(made: Any) -> None:
    made.write.format("noop").mode("overwrite").save()


def count(batch: Any) -> Any:
    import pyarrow as pa

    return pa.record_batch({"rows": [batch.num_rows]})


def counts(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield count(batch)


@dataclass(frozen=True)
class Reads:
    """For mapInArrow: each of `cores` tasks reads its part of the partitions with the pipeline's reader, whole.

    columns: given to Spark; None: what a pipeline's function is given by default, counted and dropped.
    """

    servers: str
    topic: str
    cores: int
    columns: tuple[str, ...] | None = None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from instride.spark._data_source.columns import in_spark_schema
        from instride.spark._range_reader import ReaderSettings, end_offsets, followed, reader_for
        from instride.spark._worker import spare_collections
        from instride.spark.sink import OutputRange

        read = self.columns and tuple("timestamp_type" if each == "timestampType" else each for each in self.columns)
        settings = ReaderSettings(bootstrap_servers=self.servers, columns=read)
        spare_collections()
        ends = sorted((each.partition, end) for each, end in end_offsets(settings, [self.topic]).items())
        for number in (each for batch in batches for each in batch["id"].to_pylist()):
            mine = ends[number :: self.cores]
            ranges = [OutputRange(topic=self.topic, partition=each, start=0, end=end) for each, end in mine]
            for wanted, following in followed(ranges):
                for rows in reader_for(settings, wanted).read(wanted, following):
                    yield in_spark_schema(rows, self.columns) if self.columns else count(rows)


def drop(batch: Any) -> None:
    """A pipeline's function that writes nothing."""


def backlog(spark: Any, servers: str, topic: str, folder: Path) -> float:
    """Seconds from the first job's beginning to the last commit."""
    from instride.spark import JobStarted, ParquetSink, Pipeline, RangeCommitted

    times: list[float] = []

    def note(event: object) -> None:
        if isinstance(event, JobStarted | RangeCommitted):
            times.append(time.perf_counter())

    pipeline = Pipeline(
        spark,
        topics=[topic],
        group_id=folder.name,
        bootstrap_servers=servers,
        function=drop,
        sink=ParquetSink(folder),
        on_event=note,
        available_now=True,
        progress_line=False,
    )
    pipeline.run()
    return times[-1] - times[0]
