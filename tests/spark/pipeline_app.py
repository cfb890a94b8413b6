"""An application with a pipeline and a Spark of its own, for tests with several processes.

    python pipeline_app.py SETTINGS    (JSON: name, master, events, conf)

It makes its Spark, then reads from stdin what to run, one line of JSON for each pipeline: topic, group, servers, out,
slow (a record's value that takes long), gate (the file whose appearing ends that); and, where wanted, sink (a name in
`table_help.MAKERS`), reset (the pipeline's auto_offset_reset), bad (a record's value at which the function raises,
once), fault ("SIGKILL" or "SIGSTOP": what the process does to itself between the data and the commit) and commit (at
which one, from 1). SIGTERM stops the pipeline cleanly. What happens goes to `events`, one line of JSON each.

SINK_LONG=1 in the environment: executors read every range as a long one (`_range_reader`, law 4), but the first of a
worker process, which may be read before the function is unpickled.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pipeline_help import QUICK, QUICK_JVM
from pyspark.sql import SparkSession
from table_help import MAKERS

from instride import TopicPartition
from instride.spark import Pipeline, PipelineEvent, Sink, _range_reader, recommended_conf
from instride.spark.sink import CommitOutcome, JobResult

__all__ = ["Faulty"]

SCHEMA = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])


def work(batch: pa.RecordBatch, slow: str, bad: str, gate: str) -> pa.RecordBatch:
    """What the functions of these tests do: keep the value; wait at the slow one until the gate opens."""
    if os.environ.get("SINK_LONG"):
        read_as_long(gate)
    failed = Path(gate).with_suffix(".failed")
    if bad.encode() in batch["value"].to_pylist() and not failed.exists():
        failed.touch()
        raise ValueError("a bad record")
    if slow.encode() in batch["value"].to_pylist():
        Path(gate).with_suffix(".reached").write_text(str(os.getpid()))
        while not Path(gate).exists():
            time.sleep(0.05)
    return batch.select(["partition", "offset", "value"])


def read_as_long(gate: str) -> None:
    """The ranges that follow in this process. One that is there already leaves a file that says so."""
    _range_reader.fetches_for = lambda wanted: _range_reader._LONG
    if any(fetches is _range_reader._LONG for _, fetches in _range_reader._readers):
        Path(gate).with_suffix(".long").touch()


class Faulty:
    """A sink whose driver is killed, or stopped, between the data and the commit.

    One call at a time: a process that is stopped within another call could hold a lock of SQLite's.
    """

    def __init__(self, sink: Sink, fault: signal.Signals, commit: int, gate: Path) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self.writer = sink.writer
        self._fault = fault
        self._commits = itertools.count(1)
        self._due = commit
        self._gate = gate

    def positions(
        self, partitions: Iterable[TopicPartition], *, topic_ids: Mapping[str, str] | None = None
    ) -> dict[TopicPartition, int | None]:
        with self._lock:
            return self._sink.positions(partitions, topic_ids=topic_ids)

    def begin(self, partition: TopicPartition, offset: int, *, topic_id: str = "") -> int:
        with self._lock:
            return self._sink.begin(partition, offset, topic_id=topic_id)

    def commit(self, job: JobResult) -> dict[TopicPartition, CommitOutcome]:
        with self._lock:
            return self._commit_one(job)

    def _commit_one(self, job: JobResult) -> dict[TopicPartition, CommitOutcome]:
        due = next(self._commits) == self._due
        if due:
            # To this thread: one to the process may find another, and this one goes on for some milliseconds.
            signal.pthread_kill(threading.get_ident(), self._fault)
        outcomes = self._sink.commit(job)
        if due:
            self._gate.with_suffix(".outcome").write_text(" ".join(each.status.value for each in outcomes.values()))
        return outcomes


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
    os.environ["PYSPARK_PYTHON"] = settings["conf"].get("spark.pyspark.python", sys.executable)
    small = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.driver.extraJavaOptions": QUICK_JVM}
    conf = {**recommended_conf(), **small, **settings["conf"]}
    spark = SparkSession.builder.master(settings["master"]).config(map=conf).getOrCreate()
    log = Log(Path(settings["events"]))
    log.write("ready")
    for line in sys.stdin:
        run(spark, json.loads(line), log, settings["name"])
        log.write("ran")
    spark.stop()


def run(spark: SparkSession, wanted: dict[str, Any], log: Log, name: str) -> None:
    sink = MAKERS[wanted.get("sink", "parquet")](Path(wanted["out"]), SCHEMA)
    if "fault" in wanted:
        sink = Faulty(sink, signal.Signals[wanted["fault"]], wanted["commit"], Path(wanted["gate"]))
    pipeline = Pipeline(
        spark,
        topics=[wanted["topic"]],
        group_id=wanted["topic"],
        bootstrap_servers=wanted["servers"],
        client_id=name,
        function=partial(work, slow=wanted["slow"], bad=wanted.get("bad", "none"), gate=wanted["gate"]),
        sink=sink,
        on_event=log.pipeline,
        max_range_records=500,
        auto_offset_reset=wanted.get("reset", "earliest"),
        **QUICK,
    )
    signal.signal(signal.SIGTERM, lambda *_: pipeline.stop())
    pipeline.run()


if __name__ == "__main__":
    main()
