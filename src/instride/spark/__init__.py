"""instride on Spark: `Pipeline`, its events, and the sinks it writes to."""

# What is inside:
# _pipeline, _pipeline_loop,
# _handle, _conf                         `Pipeline`; one run of it; a run in the background; Spark's settings
# _membership, _starting, _resets        what the group assigned; where a partition begins, and goes on without a seek
# _planning, _targets                     which offsets make a job; up to where, with available_now
# _jobs, _running_jobs, _connect_jobs    running jobs, also over Spark Connect; what is under way
# _task, _range_reader, _functions,
# _frames, _nested, _worker, _report     on the executors: read, call the function, say what became of a range
# _committing, _daemon_pool,
# _dead_letters, sink                    the sink and its commits, and threads for its calls; dead letters
# _database, _database_values,
# _tables, parquet, contract             the sinks, and the checks of one
# _events, _listener, _progress_line     what a user hears
# _data_source                           `format("instride")`

# In the driver: _pipeline, _pipeline_loop, and what the loop asks (_membership, _planning, _jobs, _committing).
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
