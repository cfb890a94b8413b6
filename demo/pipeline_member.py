"""A member of the demo's group with instride's pipeline: a Spark of its own, and a Parquet sink that both share.

Laws
1. The work is `member.work`, on Spark's workers: the same as that of the other kinds of members.
2. Ownership is written from the consumer's telemetry, the work from the pipeline's own events.
3. The log shows each partition's range in a Spark job as a job of its own, since each is committed by itself.
3. The history is that of the pipeline's own consumer, with the ranges that the sink has as what is finished.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from demo.events import Change, EventLog, Phase, Range
from demo.flights import SCHEMA
from demo.member import MemberSettings, Stop, wait_to_join, work
from demo.recorded import recorder
from instride.records import OffsetRange, TopicPartition
from instride.spark import (
    JobStarted,
    ParquetSink,
    PartitionChange,
    PartitionsChanged,
    Pipeline,
    PipelineEvent,
    RangeCommitted,
    RangeDropped,
    RangeFailed,
    recommended_conf,
)
from instride.telemetry import OwnershipChanged, TelemetryEvent
from instride.testing.recording import RecordedMember

__all__ = ["main"]

CORES: Final = 4  # one may be taken for long by the slow flight
QUICK_START: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
MOST_ROWS: Final = 20_000


class _Log:
    """Writes a pipeline's events as the demo's, and tells the history what its consumer cannot know."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.member: RecordedMember
        self._begun: dict[TopicPartition, int] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._jobs = 0

    def __call__(self, event: PipelineEvent) -> None:
        match event:
            case PartitionsChanged(change=PartitionChange.REVOKED):
                for each in event.partitions:
                    self.member.not_begun(each, self._begun.get(each, 0))
            case JobStarted():
                self._started(event)
            case RangeCommitted():
                self.member.done(event.range)
                self._log.progress(_range(event.range), event.rows)
                self._log.job_finished(self._name(event.job, event.range))
            case RangeFailed():
                self._log.job_failed(self._name(event.job, event.range), event.reason)
            case RangeDropped():
                self._log.job_failed(self._name(event.job, event.range), "its result is not used")

    def hear(self, event: TelemetryEvent) -> None:
        """What the consumer's telemetry tells of ownership."""
        if isinstance(event, OwnershipChanged):
            self._log.change(Change(event.change.value), (each.partition for each in event.partitions))

    def _started(self, event: JobStarted) -> None:
        self._jobs += 1
        for each in event.ranges:
            self._begun[each.topic_partition] = each.end
            name = self._names[event.job, each.partition] = f"job {self._jobs}.{each.partition}"
            self._log.job_started(name, [_range(each)])

    def _name(self, job: str, where: OffsetRange) -> str:
        return self._names.pop((job, where.partition))


def _range(where: OffsetRange) -> Range:
    return Range(where.partition, where.start, where.end)


def _work(batch: pa.RecordBatch, *, slow_row: int, slow_seconds: float) -> pa.Table:
    values = (value.as_py() or b"" for value in batch.column("value"))
    return work(values, slow_row=slow_row, slow_seconds=slow_seconds)


def _spark(app: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The driver's heap is what a local Spark works in; no record comes there, so little is enough.
    conf = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.log.level": "WARN", **QUICK_START}
    builder = SparkSession.builder.master(f"local[{CORES}]").appName(f"instride demo {app}")
    return builder.config(map={**recommended_conf(), **conf}).getOrCreate()


def _pipeline(settings: MemberSettings, spark: SparkSession, log: _Log) -> Pipeline:
    return Pipeline(
        spark,
        topics=[settings.topic],
        group_id=settings.group_id,
        bootstrap_servers=settings.bootstrap_servers,
        client_id=settings.app,
        function=partial(_work, slow_row=settings.slow_row, slow_seconds=settings.slow_seconds),
        schema=SCHEMA,
        sink=ParquetSink(settings.output),
        on_event=log,
        telemetry=log.hear,
        max_range_records=MOST_ROWS,
        session_timeout=10.0,
    )


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
    settings = MemberSettings.from_arguments()
    spark = _spark(settings.app)
    stop = _StopPipeline()
    with (
        EventLog(settings.events, settings.app) as log,
        recorder(settings.events, settings.topic, settings.app) as history,
    ):
        on_event = _Log(log)
        stop.pipeline = _pipeline(settings, spark, on_event)
        on_event.member = history.watch(stop.pipeline, settings.app)
        stop.pipeline.prepare()
        if wait_to_join(settings, log, stop):
            stop.pipeline.run()
            log.life(Phase.LEAVING)
        log.life(Phase.LEFT)
    spark.stop()


if __name__ == "__main__":
    main()
