"""Reads the same with Spark's own connector and with instride's source, in a Spark with both.

    python both_sources.py SETTINGS    (JSON: servers, jars, folder)

Then it reads from stdin what to do, one line of JSON each, and prints one in return: what each of the two gave, or
"refused".
    do: batch     options: the rows, the schema and, with "tasks", how many those are; union: of the frame with itself
    do: stream    options, name (whose checkpoint it goes on from, if there is one): the rows and, where batches is
                  true, how many rows each micro-batch had, and by how much it was behind: least, most, mean.
                  deletes: a topic that the first micro-batch deletes
    do: deleted   options, deletes: the rows of a job whose topic is deleted after it was planned, before it is read
    do: bind      options: the rows of a new frame, which is kept
    do: again     the rows of the frame that was kept, and of one that is made of it
Everywhere "SOURCE" stands for kafka or instride: so each of the two may have a topic of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka.admin import AdminClient
from pipeline_help import QUICK_JVM
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from instride.errors import KafkaError
from instride.spark import recommended_conf
from instride.spark._data_source import batch_reader, source_schema, stream_reader
from instride.spark._listener import offsets_behind

FORMATS = ("kafka", "instride")
# The connector waits for what follows the last record, which a transaction's marker is; and between its tries.
SOON = {"kafka.fetch.max.wait.ms": "20", "fetchOffset.retryIntervalMs": "10"}

Command = dict[str, Any]
Result = dict[str, Any]


def main() -> None:
    settings = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {**recommended_conf(), "spark.ui.enabled": "false", "spark.jars": ",".join(settings["jars"])}
    conf |= {"spark.driver.extraJavaOptions": QUICK_JVM, "spark.sql.shuffle.partitions": "1"}
    conf["spark.driver.memory"] = "1g"
    spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    sources = [Source(spark, name, settings) for name in FORMATS]
    with ThreadPoolExecutor(len(FORMATS)) as pool:
        for line in sys.stdin:
            found = pool.map(partial(Source.respond, line=line), sources)
            print(json.dumps(dict(zip(FORMATS, found, strict=True))), flush=True)
    spark.stop()


class Source:
    """One of the two. Its queries keep their checkpoints and rows in folders of their own."""

    def __init__(self, spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
        self._spark = spark
        self._name = name
        self._servers: str = settings["servers"]
        self._folder = Path(settings["folder"])
        self._bound: DataFrame | None = None
        self._does: dict[str, Callable[[Command], Result]] = {
            "batch": self._batch,
            "stream": self._stream,
            "deleted": self._deleted,
            "bind": self._bind,
            "again": self._again,
        }

    def respond(self, line: str) -> Result | str:
        command: Command = json.loads(line.replace("SOURCE", self._name))
        if "options" in command and self._refused_here(command):
            return "refused"
        while True:
            try:
                return self._does[command["do"]](command)
            except Exception as error:  # Scala's assertions too, which have no class in Python
                if isinstance(error, StreamingQueryException) and "failed to connect back" in str(error):
                    continue  # Spark gives a new Python process ten seconds to call back: too few beside a full load
                print(f"{self._name}: {type(error).__name__}: {error}"[:3000], file=sys.stderr, flush=True)
                return "refused"

    def _refused_here(self, command: Command) -> bool:
        """Ours is asked in this process first: each refusal in one of Spark's costs Spark a new Python process.

        That a refusal reaches the user through Spark is shown by `test_what_is_wrong_is_told`.
        """
        if self._name != "instride":
            return False
        given = self._given(command)
        try:
            if command["do"] == "stream":
                stream_reader(given, source_schema(given))
            else:
                batch_reader(given, source_schema(given)).partitions()
        except KafkaError as error:
            print(f"{self._name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return True
        return False

    def _given(self, command: Command) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self._servers, **SOON, **command["options"]}
        return {name: value for name, value in given.items() if value is not None}

    # -- batch

    def _batch(self, command: Command) -> Result:
        frame = self._spark.read.format(self._name).options(**self._given(command)).load()
        tasks = "tasks" in command and frame.rdd.getNumPartitions()
        if "union" in command:
            frame = frame.union(frame)
        return {"rows": rows(frame), "schema": frame.schema.json(), "tasks": tasks}

    def _deleted(self, command: Command) -> Result:
        """In one task the deletion comes first, then the rows; both were planned before it."""
        frame = self._spark.read.format(self._name).options(**self._given(command)).load().select("value")
        delete = partial(delete_topic, self._servers, command["deletes"])

        def deleting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            delete()
            for batch in batches:
                yield pa.record_batch({"value": pa.nulls(batch.num_rows, pa.binary())})

        first = self._spark.range(0, 1, 1, 1).mapInArrow(deleting, "value binary")
        found = first.union(frame).coalesce(1).collect()
        return {"rows": len(found) - 1}

    def _bind(self, command: Command) -> Result:
        self._bound = self._spark.read.format(self._name).options(**self._given(command)).load()
        return {"rows": rows(self._bound)}

    def _again(self, command: Command) -> Result:
        assert self._bound is not None
        return {"same frame": len(self._bound.collect()), "another": len(self._bound.select("value").collect())}

    # -- streaming

    def _stream(self, command: Command) -> Result:
        """Everything that there is."""
        frame = self._spark.readStream.format(self._name).options(**self._given(command)).load()
        place = self._folder / f"{self._name}-{command['name']}"
        if "deletes" in command:

            def read_and_delete(batch: DataFrame, number: int) -> None:
                batch.count()
                if number == 0:
                    delete_topic(self._servers, command["deletes"])

            writer = frame.writeStream.foreachBatch(read_and_delete)
        else:
            writer = frame.writeStream.format("parquet").option("path", str(place / "out"))
        query = writer.option("checkpointLocation", str(place / "at")).trigger(availableNow=True).start()
        query.awaitTermination()
        written = sorted((place / "out").glob("*.parquet"))
        found: Result = {"rows": rows(self._spark.read.parquet(str(place / "out"))) if written else []}
        if command.get("batches"):
            told = [dict(progress) for progress in query.recentProgress if progress["numInputRows"]]
            found["batches"] = [progress["numInputRows"] for progress in told]
            found["behind"] = [self._behind(progress["sources"][0]) for progress in told]
        return found

    def _behind(self, source: dict[str, Any]) -> list[float]:
        """The connector has metrics of it; of ours the offsets of the progress are for OffsetsBehindListener."""
        if self._name == "kafka":
            return [float(source["metrics"][f"{name}OffsetsBehindLatest"]) for name in ("min", "max", "avg")]
        behind = offsets_behind(source["endOffset"], source["latestOffset"]).values()
        return [float(min(behind)), float(max(behind)), sum(behind) / len(behind)]


def delete_topic(servers: str, topic: str) -> None:
    """Returns when brokers know it no more."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(60)
    while topic in admin.list_topics(timeout=60).topics:
        time.sleep(0.05)


def rows(frame: DataFrame) -> list[str]:
    columns = [name for name in frame.columns if name != "timestamp"]
    chosen = frame.selectExpr(*columns, "unix_micros(timestamp) AS timestamp")
    return sorted(json.dumps([plain(value) for value in row]) for row in chosen.collect())


def plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("latin-1")
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main()
