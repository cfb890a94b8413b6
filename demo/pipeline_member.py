"""A member of the demo's group with instride's pipeline: a Spark of its own, and a Parquet sink that both share.

Laws
1. The work is `MemberSettings.work`, on Spark's workers: the same as that of the other kinds of members.
2. The history is that of the pipeline's own consumer, with the ranges that the sink has as what is finished. Each
   range of a Spark job is work of its own, since each is committed by itself.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from demo.flights import SCHEMA
from demo.history import Note, recorder
from demo.member import MemberSettings, Stop, wait_to_join
from instride.records import TopicPartition
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
from instride.telemetry import OwnershipChange, OwnershipChanged
from instride.testing.recording import RecordedMember

CORES: Final = 4  # one may be taken for long by the slow flight
QUICK_START: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
MOST_ROWS: Final = 20_000


class _WorkNotes:
    """Tells the history what the pipeline's consumer cannot know: its work."""

    def __init__(self) -> None:
        self.member: RecordedMember
        self._begun: dict[TopicPartition, int] = {}

    def __call__(self, event: PipelineEvent) -> None:
        match event:
            case OwnershipChanged(change=OwnershipChange.COMPLETING):
                for each in event.partitions:
                    self.member.not_begun(each, self._begun.get(each, 0))
                self.member.note(Note.COMPLETING, [each.partition for each in event.partitions])
            case JobStarted():
                for where in event.ranges:
                    self._begun[where.topic_partition] = where.end
                    self.member.note(Note.WORK_BEGAN, where.partition, where.start, where.end)
            case RangeCommitted():
                self.member.done(event.range)
            case RangeFailed():
                self.member.note(Note.WORK_FAILED, event.range.partition, event.range.start, event.reason)
            case RangeDropped():
                self.member.note(Note.WORK_FAILED, event.range.partition, event.range.start, "its result is not used")


def _work(batch: pa.RecordBatch, *, settings: MemberSettings) -> pa.Table:
    return settings.work(value.as_py() or b"" for value in batch.column("value"))


def _spark(app: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The driver's heap is what a local Spark works in; no record comes there, so little is enough.
    conf = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.log.level": "WARN", **QUICK_START}
    builder = SparkSession.builder.master(f"local[{CORES}]").appName(f"instride demo {app}")
    return builder.config(map={**recommended_conf(), **conf}).getOrCreate()


class _StopPipeline(Stop):
    """SIGTERM also stops the pipeline, once there is one."""

    pipeline: Pipeline | None = None

    def _set(self, number: int, frame: object) -> None:
        super()._set(number, frame)
        if self.pipeline is not None:
            self.pipeline.stop()


def main() -> None:
    """Run one member until SIGTERM."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = MemberSettings.from_argument()
    spark = _spark(settings.app)
    stop, notes = _StopPipeline(), _WorkNotes()
    with recorder(settings.histories, settings.topic, settings.app) as history:
        stop.pipeline = Pipeline(
            spark,
            topics=[settings.topic],
            group_id=settings.group_id,
            bootstrap_servers=settings.bootstrap_servers,
            client_id=settings.app,
            function=partial(_work, settings=settings),
            schema=SCHEMA,
            sink=ParquetSink(settings.output),
            on_event=notes,
            max_range_records=MOST_ROWS,
            session_timeout=10.0,
        )
        notes.member = history.watch(stop.pipeline, settings.app)
        stop.pipeline.prepare()
        if wait_to_join(settings, history, stop):
            stop.pipeline.run()
    spark.stop()


if __name__ == "__main__":
    main()
