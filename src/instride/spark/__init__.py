"""instride on Spark: `Pipeline`, its events, and the sinks it writes to.

Pipeline  ->  run (the loop)  ->  membership, planning, jobs, committing      in the driver
                                  task, range_reader, a sink's writer         on the executors
"""

from instride.spark.conf import recommended_conf
from instride.spark.data_source.leaving import stop
from instride.spark.data_source.readers import source
from instride.spark.database import DatabaseSink
from instride.spark.events import (
    JobFinished,
    JobStarted,
    PipelineEvent,
    RangeCommitted,
    RangeDropped,
    RangeFailed,
)
from instride.spark.handle import PipelineQuery
from instride.spark.listener import OffsetsBehindListener
from instride.spark.parquet import ParquetSink
from instride.spark.pipeline import Pipeline
from instride.spark.sink import Sink
from instride.spark.tables import DeltaSink, IcebergSink

__all__ = [
    "Pipeline",
    "PipelineQuery",
    "ParquetSink",
    "DeltaSink",
    "IcebergSink",
    "DatabaseSink",
    "Sink",
    "recommended_conf",
    "source",
    "stop",
    "OffsetsBehindListener",
    "PipelineEvent",
    "JobStarted",
    "JobFinished",
    "RangeCommitted",
    "RangeDropped",
    "RangeFailed",
]
