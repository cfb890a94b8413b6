"""The pipeline on Spark: the backlog of one partition with and without `split_ranges`; a Parquet sink of many ranges.

    python -m benchmarks pipeline [--rows N] [--rounds N] [--cores N] [--ranges N] [--parts backlog parquet ...]

The function hashes each value many times: nothing but computing. Without `split_ranges` one core works, with it all do;
the figure is the ratio of the medians of all rounds but the first. The sink's figure is the time to open it, before
compaction, after it, and after what was replaced has been deleted. Of headers: the CPU of decoding and of Arrow columns
with one header a record, against none. Of small ranges: the CPU in Python of one of 300 rows, as it was before workers
spared the collector (PySpark runs a full collection after each task), as it is, and where ranges share a task.
Trickle and slow sink: see `spark_promptness`.

A run beside which other work took more than 5 % of the machine is void. The medians leave it out, and the table says
how many were. If all runs are void, the table shows them and says VOID.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import spark_promptness
from benchmarks.load import ForeignLoad, not_void, void_remark

TURNS = 20


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks pipeline")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of 100 bytes, in one partition")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--ranges", type=int, default=100_000, help="of the Parquet sink")
    measures: dict[str, Callable[[], object]] = {
        "backlog": lambda: one_partition(chosen.rows, chosen.rounds, chosen.cores),
        "parquet": lambda: parquet(chosen.ranges),
        "headers": headers,
        "small ranges": lambda: small_ranges(chosen.rounds, chosen.cores),
        "trickle": lambda: spark_promptness.trickle(lambda: session(chosen.cores), chosen.rounds),
        "slow sink": lambda: spark_promptness.slow_sink(lambda: session(chosen.cores)),
    }
    parser.add_argument("--parts", nargs="*", choices=list(measures), default=list(measures))
    chosen = parser.parse_args(arguments)
    return {part: measures[part]() for part in chosen.parts}


def session(cores: int) -> Any:
    from pyspark.sql import SparkSession

    from instride.spark import recommended_conf

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = {**recommended_conf(), "spark.ui.enabled": "false"}
    spark = SparkSession.builder.master(f"local[{cores}]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def hashed(batch: Any) -> Any:
    import pyarrow as pa

    last = b""
    for value in batch["value"].to_pylist():
        for _ in range(TURNS):
            last = hashlib.sha256(last + value).digest()
    return pa.record_batch({"rows": [batch.num_rows], "last": [last]})


def one_partition(rows: int, rounds: int, cores: int) -> dict[str, object]:
    from benchmarks.batches import Log
    from benchmarks.filler import fill
    from instride.testing import LocalKafka

    spark = session(cores)
    runs: dict[str, list[dict[str, float]]] = {"whole": [], "split": []}
    with LocalKafka() as kafka:
        kafka.create_topic("backlog", partitions=1, configs={"retention.ms": "-1"})
        rows = fill(
            kafka.bootstrap_servers, "backlog", Log(size=100, rows=8_000, random=True, partitions=1, hot=1), rows
        )
        for number in range(rounds):
            for way, each in runs.items():
                load = ForeignLoad()
                seconds = run(spark, kafka.bootstrap_servers, f"{way}-{number}", split=way == "split")
                each.append({"seconds": seconds, "foreign": load.share()})
                print(f"round {number + 1} of {rounds}: {way}: {seconds:.1f} s", file=sys.stderr, flush=True)
    spark.stop()
    counted = {way: each[1:] or each for way, each in runs.items()}
    found = {way: rows / statistics.median(one["seconds"] for one in not_void(each)) for way, each in counted.items()}
    ratio = found["split"] / found["whole"]
    print(f"\na backlog of one partition, {cores} cores: rows a second")
    remarks = {way: void_remark(each) for way, each in counted.items()}
    whole, split = (f"{found[way]:,.0f}{remarks[way]}" for way in ("whole", "split"))
    print(f"{whole} by one task at a time, {split} split: {ratio:.2f} x")
    return {**found, "ratio": ratio, "runs": runs}


def run(spark: Any, servers: str, group: str, *, split: bool) -> float:
    from instride.spark import ParquetSink, Pipeline

    with tempfile.TemporaryDirectory() as folder:
        pipeline = Pipeline(
            spark,
            topics=["backlog"],
            group_id=group,
            bootstrap_servers=servers,
            function=hashed,
            sink=ParquetSink(folder),
            columns=["value"],
            split_ranges=split,
            available_now=True,
        )
        began = time.perf_counter()
        pipeline.run()
        return time.perf_counter() - began


def parquet(ranges: int) -> dict[str, float]:
    """Empty ranges but for every thousandth: the files are not what is measured. Without syncing, which takes hours."""
    import pyarrow as pa

    from instride.spark import ParquetSink
    from instride.spark.parquet import compact, read_files, vacuum
    from instride.spark.sink import JobResult, OutputRange

    load = ForeignLoad()
    syncing, os.fsync = os.fsync, lambda _: None
    try:
        with tempfile.TemporaryDirectory() as folder:
            sink, writer = ParquetSink(folder), ParquetSink(folder).writer()
            for start in range(ranges):
                output = OutputRange(topic="t", partition=start % 12, start=start // 12, end=start // 12 + 1)
                rows = [pa.record_batch({"offset": [start]})] if start % 1000 == 0 else []
                written = writer.write(output, job="j", attempt=0, batches=iter(rows))
                sink.commit(JobResult(job="j", written=(written,)))
            found = {"before": opened(read_files, folder)}
            compact(folder)
            found["compacted"] = opened(read_files, folder)
            vacuum(folder, keep_for=0)
            found["vacuumed"] = opened(read_files, folder)
    finally:
        os.fsync = syncing
    print(f"\na Parquet sink of {ranges:,} ranges, 12 partitions: seconds to open")
    run = {"foreign": load.share()}
    print(", ".join(f"{name} {taken:.2f}" for name, taken in found.items()) + void_remark([run]))
    return {**found, **run}


def headers() -> dict[str, float]:
    """Of records of 100 bytes, the best of many turns each."""
    from benchmarks.batches import Log, batch
    from benchmarks.decoder import decode, to_arrow

    load = ForeignLoad()
    plain = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type")
    best: dict[str, float] = {}
    for name, log, columns in (
        ("none", Log(key=True), plain),
        ("not chosen", Log(key=True, header=True), plain),
        ("chosen", Log(key=True, header=True), (*plain, "headers")),
    ):
        one = batch(0, log)
        data = memoryview(b"".join((n * log.rows).to_bytes(8, "big") + one[8:] for n in range(100)))

        def read(data: memoryview = data, columns: tuple[str, ...] = columns) -> None:
            to_arrow(decode(data), columns)

        best[name] = min(cpu(read) for _ in range(50))
    found = {name: taken / best["none"] for name, taken in best.items()}
    run = {"foreign": load.share()}
    told = ", ".join(f"{name} {ratio:.2f} x" for name, ratio in found.items())
    print(f"\none header a record, against none: {told}{void_remark([run])}")
    return {**found, **run}


ROWS_OF_A_RANGE = 300
RANGES = 192


def small_ranges(rounds: int, cores: int) -> dict[str, object]:
    """Milliseconds of CPU in Python for a range, medians of all rounds but the first; the ways take turns."""
    from benchmarks.batches import Log
    from benchmarks.filler import fill
    from benchmarks.spark_cost import measured
    from instride.testing import LocalKafka

    spark = session(cores)
    ways = {
        "a task each, nothing spared": SmallRanges(spared=False),
        "a task each": SmallRanges(),
        "32 share a task": SmallRanges(of_a_task=32),
    }
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    with LocalKafka() as kafka:
        kafka.create_topic("small", partitions=12, configs={"retention.ms": "-1"})
        fill(
            kafka.bootstrap_servers, "small", Log(size=100, rows=ROWS_OF_A_RANGE, random=True), ROWS_OF_A_RANGE * RANGES
        )
        for _ in range(rounds):
            for name, way in ways.items():
                work = partial(way.run, spark, kafka.bootstrap_servers)
                cost = measured(spark, work)
                runs[name].append({"ms": 1000 * cost.python / RANGES, "foreign": cost.foreign})
    spark.stop()
    counted = {name: each[1:] or each for name, each in runs.items()}
    found = {name: statistics.median(one["ms"] for one in not_void(each)) for name, each in counted.items()}
    told = ", ".join(f"{name} {ms:.1f} ms{void_remark(counted[name])}" for name, ms in found.items())
    print(f"\nCPU of a range of {ROWS_OF_A_RANGE} rows: {told}")
    return {**found, "runs": runs}


@dataclass(frozen=True)
class SmallRanges:
    """For mapInArrow: reads ranges with the pipeline's reader. spared: whether the worker spares the collector."""

    spared: bool = True
    of_a_task: int = 1
    servers: str = ""

    def run(self, spark: Any, servers: str) -> None:
        tasks = RANGES // self.of_a_task
        work = replace(self, servers=servers)
        spark.range(0, tasks, 1, tasks).mapInArrow(work, "rows BIGINT").collect()

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import gc

        import pyarrow as pa

        from instride.spark._range_reader import ReaderSettings, followed, reader_for
        from instride.spark.sink import OutputRange

        reader = reader_for(ReaderSettings(bootstrap_servers=self.servers))
        gc.freeze() if self.spared else gc.unfreeze()
        for task in (each for batch in batches for each in batch["id"].to_pylist()):
            numbers = range(task * self.of_a_task, (task + 1) * self.of_a_task)
            starts = [(each % 12, each // 12 * ROWS_OF_A_RANGE) for each in numbers]
            ranges = [OutputRange(topic="small", partition=p, start=at, end=at + ROWS_OF_A_RANGE) for p, at in starts]
            rows = sum(each.num_rows for wanted in followed(ranges) for each in reader.read(*wanted))
            assert rows == ROWS_OF_A_RANGE * self.of_a_task
            yield pa.record_batch({"rows": [rows]})


def cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def opened(read: Any, folder: str | Path) -> float:
    began = time.perf_counter()
    read(folder)
    return time.perf_counter() - began
