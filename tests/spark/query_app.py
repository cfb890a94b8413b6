"""An application with a Spark of its own that starts and stops one query of the source, for tests with more processes.

    python query_app.py SETTINGS    (JSON: name, master, events, conf)

It makes its Spark, then reads commands from stdin, one line of JSON each: {"do": "start", ...} (topic, servers, folder;
group: whether in group mode; slow: a record's value that takes long; gate: the file whose appearing ends that) and
{"do": "stop"}, which is `instride.spark.stop`. What happens goes to `events`, one line of JSON each.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pipeline_help import PATIENCE, QUICK_JVM
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from instride.spark import recommended_conf, stop


def work(batches: Iterable[pa.RecordBatch], slow: str, gate: str) -> Iterator[pa.RecordBatch]:
    """Passes on what it gets; waits at the slow record until the gate opens."""
    for batch in batches:
        if slow.encode() in batch["value"].to_pylist():
            Path(gate).with_suffix(".reached").write_text(str(os.getpid()))
            while not Path(gate).exists():
                time.sleep(0.05)
        yield batch


class Application:
    """One query at a time, which goes on from the folder's checkpoint."""

    def __init__(self, spark: SparkSession, events: Path) -> None:
        self._spark = spark
        self._events = events
        self._lock = threading.Lock()
        self._wanted: dict[str, Any] = {}
        self._query: StreamingQuery | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    def say(self, event: str, **fields: Any) -> None:
        with self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"t": time.monotonic(), "event": event, **fields}) + "\n")

    def start(self, wanted: dict[str, Any]) -> None:
        with self._lock:
            self._wanted = wanted
            self._query = self._started()
        self.say("started")

    def stop(self) -> None:
        assert self._query is not None
        query = self._query
        stop(query, timeout=PATIENCE)
        with self._lock:
            self._query = None
        self.say("stopped", error=str(query.exception() or ""))

    def _started(self) -> StreamingQuery:
        wanted, folder = self._wanted, Path(self._wanted["folder"])
        reader = self._spark.readStream.format("instride").option("kafka.bootstrap.servers", wanted["servers"])
        reader = reader.option("subscribe", wanted["topic"]).option("startingOffsets", "earliest")
        reader = reader.option("columns", "partition,offset,value").option("maxPartitions", "2")
        reader = reader.option("kafka.session.timeout.ms", "6000").option("kafka.heartbeat.interval.ms", "200")
        frame = (reader.option("consumerGroup", wanted["topic"]) if wanted["group"] else reader).load()
        slow = partial(work, slow=wanted["slow"], gate=wanted["gate"])
        writer = frame.mapInArrow(slow, frame.schema).writeStream.format("parquet")
        return writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "at")).start()

    def _watch(self) -> None:
        """Spark gives a new Python process ten seconds to call back: too few beside a full load."""
        while True:
            time.sleep(0.2)
            with self._lock:
                error = self._query.exception() if self._query is not None else None
                if error is not None and "failed to connect back" in str(error):
                    self._query = self._started()
                elif error is not None:
                    self._query = None
                    self.say("failed", error=str(error))


def main() -> None:
    settings = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = settings["conf"].get("spark.pyspark.python", sys.executable)
    small = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.driver.extraJavaOptions": QUICK_JVM}
    builder = SparkSession.builder.master(settings["master"])
    spark = builder.config(map={**recommended_conf(), **small, **settings["conf"]}).getOrCreate()
    application = Application(spark, Path(settings["events"]))
    application.say("ready")
    for line in sys.stdin:
        wanted = json.loads(line)
        if wanted["do"] == "start":
            application.start(wanted)
        else:
            application.stop()
    spark.stop()


if __name__ == "__main__":
    main()
