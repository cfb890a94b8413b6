"""A pipeline's function of DataFrames: a range is a DataFrame, and what Spark makes of it is written for that range.

Laws
1. One range is one call: rows of a DataFrame do not say which partition they are from, once the function has joined or
   grouped them. So a job has one range, which several tasks read, each a part.
2. The function runs in the driver, in the thread of its job, and may look at the DataFrame as often as it likes: each
   time the same offsets are read.
3. The files of a range are those that the tasks of Spark's last stage returned: what other attempts wrote is named by
   nobody.
4. Of an error on an executor Spark gives the driver the text alone. So its class, and whether it is fatal, go within
   that text. The job's id marks them: no record can know it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from instride.spark._data_source.columns import in_spark_schema, spark_schema
from instride.spark._data_source.splitting import tasks_of
from instride.spark._functions import cast_to
from instride.spark._range_reader import ReaderSettings, forget, reader_for
from instride.spark._report import MarkedError, RangeReport
from instride.spark._task import Given, RangeTask, not_taken
from instride.spark._worker import spare_collections
from instride.spark.sink import JobResult, OutputRange, RangeWriter, WrittenRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Frames", "no_function"]

_RENAMED: Final = {"timestamp_type": "timestampType"}
"""As Spark's own connector has them."""
_PART: Final = 10_000
"""Offsets that a task reads, at least."""


class Frames:
    """For a pipeline's jobs. Thread-safe. function: the user's. columns: as the pipeline names them."""

    def __init__(self, spark: SparkSession, function: Callable[[DataFrame], DataFrame], columns: Iterable[str]) -> None:
        self._spark = spark
        self._function = function
        self._columns = tuple(_RENAMED.get(name, name) for name in columns)

    def run(self, task: RangeTask, wanted: OutputRange, cores: int, check: Callable[[], None]) -> RangeReport:
        """Work on the range. check: raises where the job is cancelled. Raises what it, the function and Spark raise."""
        began = time.monotonic()
        frame = self._function(self._frame(task, wanted, cores))
        if not hasattr(frame, "mapInArrow"):
            raise TypeError(f"the function returned {type(frame).__name__}; it must return a DataFrame of Spark")
        write = _Write(task.writer, wanted, task.job, task.schema)
        # The function may have taken long, and nothing that is submitted after a cancellation is sure to be cancelled.
        check()
        rows = frame.mapInArrow(write, "written string").collect()
        # The empty one: a DataFrame may have no partition at all, and then no task tells of the range.
        parts = [WrittenRange(range=wanted), *(WrittenRange.from_json(row["written"]) for row in rows)]
        (written,) = JobResult.merge(task.job, parts).written
        return RangeReport(job=task.job, range=wanted, written=written, seconds=time.monotonic() - began)

    def _frame(self, task: RangeTask, wanted: OutputRange, cores: int) -> DataFrame:
        parts = min(cores, -(-(wanted.end - wanted.start) // _PART))
        pieces = tuple(each for ranges in tasks_of([wanted], min_partitions=parts) for each in ranges)
        read = _Read(task.reader, pieces, self._columns, task.job)
        numbers = self._spark.range(0, len(pieces), 1, len(pieces))
        return numbers.mapInArrow(read, spark_schema(self._columns))


@dataclass(frozen=True, slots=True)
class _Read:
    """On the executors: numbers of pieces to their records."""

    settings: ReaderSettings
    pieces: tuple[OutputRange, ...]
    columns: tuple[str, ...]
    job: str

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from self._read(self.pieces[number])

    def _read(self, piece: OutputRange) -> Iterator[pa.RecordBatch]:
        try:
            reader = reader_for(self.settings, piece)
            spare_collections()
            for batch in reader.read(piece):
                yield in_spark_schema(batch, self.columns)
        except Exception as error:
            forget(self.settings)
            raise MarkedError(error, self.job) from error


@dataclass(frozen=True, slots=True)
class _Write:
    """On the executors: rows to what was written of them, as one line of text."""

    writer: RangeWriter
    wanted: OutputRange
    job: str
    schema: pa.Schema | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyspark import TaskContext  # noqa: PLC0415 - only where tasks run

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        fitted = Given(each for batch in batches if batch.num_rows for each in cast_to(batch, self.schema))
        try:
            written = self.writer.write(self.wanted, job=self.job, attempt=attempt, batches=fitted)
            fitted.check()
            if not fitted.ended:
                raise not_taken()
        except Exception as error:
            raise MarkedError(error, self.job) from error
        yield pa.record_batch({"written": [written.to_json()]})


def no_function(batch: Any) -> Any:
    """What travels to executors in the place of a function that runs in the driver."""
    return batch
