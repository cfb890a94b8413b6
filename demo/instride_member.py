"""A member of the demo's group with instride's pipeline: a Spark of its own, and a Parquet sink that both share.

Laws
1. The work is `Plan.work`, on Spark's workers.
2. The history is that of the pipeline's own consumer, with the ranges that the sink has as what is finished. Each
   range of a Spark job is work of its own, since each is committed by itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from demo.flights import SCHEMA
from demo.history import Note
from demo.member import Member, Plan, WorkNotes, main
from instride.spark import (
    JobStarted,
    ParquetSink,
    Pipeline,
    PipelineEvent,
    RangeCommitted,
    RangeDropped,
    RangeFailed,
    recommended_conf,
)
from instride.testing import Recorder

CORES: Final = 4  # one may be taken for long by the slow flight
# The driver's heap is what a local Spark works in; no record comes there, so little is enough.
SPARK: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.log.level": "WARN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def _note(event: PipelineEvent, notes: WorkNotes) -> None:
    match event:
        case JobStarted():
            for each in event.ranges:
                notes.began(each)
        case RangeCommitted():
            notes.recorded.done(event.range)
        case RangeFailed():
            notes.recorded.note(Note.WORK_FAILED, event.range.partition, event.range.start, event.reason)
        case RangeDropped():
            notes.recorded.note(Note.WORK_FAILED, event.range.partition, event.range.start, "its result is not used")


@contextmanager
def member(plan: Plan, app: str, history: Recorder) -> Iterator[Member]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName(f"instride demo {app}")
    spark = builder.config(map={**recommended_conf(), **SPARK}).getOrCreate()
    pipeline = Pipeline(
        spark,
        topics=[plan.topic],
        group_id=f"demo-{plan.kind}",
        bootstrap_servers=plan.bootstrap_servers,
        client_id=app,
        function=lambda batch: plan.work(value.as_py() or b"" for value in batch.column("value")),
        schema=SCHEMA,
        sink=ParquetSink(plan.output),
        on_event=lambda event: _note(event, notes),
        max_range_records=20_000,
        session_timeout=10.0,
    )
    notes = WorkNotes(history, pipeline, app)
    pipeline.prepare()
    yield Member(pipeline.run, pipeline.stop)
    spark.stop()


if __name__ == "__main__":
    main(member)
