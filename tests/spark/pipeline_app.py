"""An application with a pipeline and a Spark of its own, for tests with several processes.

    python pipeline_app.py SETTINGS    (JSON: name, master, events, conf)

It makes its Spark, then reads from stdin what to run, one line of JSON for each pipeline: topic, group, servers, out,
slow (a record's value that takes long), gate (the file whose appearing ends that). SIGTERM stops the pipeline cleanly.
What happens goes to `events`, one line of JSON each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pipeline_help import QUICK, QUICK_JVM
from pyspark.sql import SparkSession

from instride.spark import ParquetSink, Pipeline, PipelineEvent, recommended_conf


def work(batch: pa.RecordBatch, slow: str, gate: str) -> pa.RecordBatch:
    """What the functions of these tests do: keep the value; wait at the slow one until the gate opens."""
    if slow.encode() in batch["value"].to_pylist():
        Path(gate).with_suffix(".reached").touch()
        while not Path(gate).exists():
            time.sleep(0.05)
    return batch.select(["partition", "offset", "value"])


class Log:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, event: str, **fields: Any) -> None:
        self._file.write(json.dumps({"t": time.monotonic(), "event": event, **fields}) + "\n")
        self._file.flush()

    def pipeline(self, event: PipelineEvent) -> None:
        self.write(type(event).__name__, **asdict(event))


def main() -> None:
    settings = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    small = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.driver.extraJavaOptions": QUICK_JVM}
    conf = {**recommended_conf(), **small, **settings["conf"]}
    spark = SparkSession.builder.master(settings["master"]).config(map=conf).getOrCreate()
    log = Log(Path(settings["events"]))
    log.write("ready")
    for line in sys.stdin:
        run(spark, json.loads(line), log, settings["name"])
        log.write("ran")
    spark.stop()


def run(spark: SparkSession, wanted: dict[str, str], log: Log, name: str) -> None:
    pipeline = Pipeline(
        spark,
        topics=[wanted["topic"]],
        group_id=wanted["topic"],
        bootstrap_servers=wanted["servers"],
        client_id=name,
        function=partial(work, slow=wanted["slow"], gate=wanted["gate"]),
        sink=ParquetSink(wanted["out"]),
        on_event=log.pipeline,
        max_range_records=500,
        **QUICK,
    )
    signal.signal(signal.SIGTERM, lambda *_: pipeline.stop())
    pipeline.run()


if __name__ == "__main__":
    main()
