"""instride on Spark: `Pipeline`, its events, and the sinks it writes to."""

# In the driver: _pipeline, its loop _run, and what the loop asks (_membership, _planning, _jobs, _committing).
# On the executors: _task, _range_reader, and the writer of a sink.

from instride.spark._conf import recommended_conf
from instride.spark._data_source.leaving import stop
from instride.spark._data_source.readers import source
from instride.spark._database import DatabaseSink
from instride.spark._events import (
    JobFinished,
    JobStarted,
    PipelineEvent,
    RangeCommitted,
    RangeDropped,
    RangeFailed,
)
from instride.spark._handle import PipelineQuery
from instride.spark._listener import OffsetsBehindListener
from instride.spark._pipeline import Pipeline
from instride.spark._tables import DeltaSink, IcebergSink
from instride.spark.parquet import ParquetSink
from instride.spark.sink import Sink

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
