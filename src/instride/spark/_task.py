"""What one Spark task does on an executor: read its ranges, run the user's function, write. Nothing comes back but a
line of text for each range.

Laws
1. Reading, working and writing are one stream in one process: no record leaves it but into the sink.
2. A range that fails is a value, not an exception: the others of the task and job succeed, and may be committed.
3. Where several tasks share a range, each reads its own offsets, and writes them as output of the whole range.
4. The user's function is unpickled once for each worker process: what it keeps in globals stays.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from instride.spark._dead_letters import DeadLetters, Sieve
from instride.spark._functions import batches_of, cast_to, unpickled
from instride.spark._range_reader import ReaderSettings, followed, forget, reader_for
from instride.spark._report import RangePart, RangeReport, problem_of
from instride.spark._worker import lacking, spare_collections
from instride.spark.sink import OutputRange, RangeWriter, WrittenRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

__all__ = ["BatchFormat", "CalledPer", "RangeTask"]

BatchFormat = Literal["arrow", "pandas", "spark"]
CalledPer = Literal["batch", "range"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTask:
    """The function of a job's tasks: chunks of ranges to reports, as JSON. Picklable.

    function: the user's, as `pickle_function` gives it. called_per: what it is called for: each batch, or each range,
    with an iterator of its batches. schema: to which its results are cast, or None.
    reports: hears of a task's ranges as soon as the task has succeeded; None over Spark Connect.
    dead_letters: where records go that the function cannot take, if they may. last_try: whether this job does that.
    """

    job: str
    writer: RangeWriter
    function: bytes
    batch_format: BatchFormat
    called_per: CalledPer
    schema: pa.Schema | None
    reader: ReaderSettings
    reports: Accumulator[list[str]] | None
    dead_letters: DeadLetters | None = None
    last_try: bool = False

    def __call__(self, chunks: Iterable[list[RangePart]]) -> Iterator[str]:
        for chunk in chunks:
            for each in self._reports(chunk):
                report = each.to_json()
                if self.reports is not None:
                    self.reports.add([report])
                yield report

    def _reports(self, chunk: list[RangePart]) -> Iterator[RangeReport]:
        follow = followed([part.offsets for part in chunk])
        for part, (_, following) in zip(chunk, follow, strict=True):
            began = time.monotonic()
            report = self._work(part, following)
            yield replace(report, part=part.number, seconds=time.monotonic() - began)

    def prepare(self, _: Iterable[int]) -> Iterator[str]:
        """Make this worker process ready, or tell what it lacks."""
        yield from lacking(self.function, self.reader, self.dead_letters)

    def _work(self, part: RangePart, following: OutputRange | None) -> RangeReport:
        count, wanted = _Count(), part.range
        sieve = Sieve(self.dead_letters, wanted) if self.dead_letters is not None and self.last_try else None
        # A dead letter has all that its record had.
        settings = self.reader if sieve is None else replace(self.reader, columns=None)
        try:
            written = self._write(part, following, count, settings, sieve)
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything; the driver decides
            forget(settings)
            return RangeReport(job=self.job, range=wanted, problem=problem_of(error, str(error)))
        finally:
            if sieve is not None:
                sieve.close()
        return RangeReport(
            job=self.job,
            range=wanted,
            written=written,
            records=count.records,
            nbytes=count.nbytes,
            dead_letters=sieve.count if sieve is not None else 0,
        )

    def _write(
        self,
        part: RangePart,
        following: OutputRange | None,
        count: _Count,
        settings: ReaderSettings,
        sieve: Sieve | None,
    ) -> WrittenRange:
        from pyspark import TaskContext  # noqa: PLC0415 - only where tasks run

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        reader, function = reader_for(settings, part.offsets), unpickled(self.function)
        # In a worker process alone: in a driver it would spare the user's garbage, too.
        if context is not None:
            spare_collections()
        read = count.of(reader.read(part.offsets, following))
        batches = self._results(function, read) if sieve is None else self._sifted(function, read, sieve)
        return self.writer.write(part.range, job=self.job, attempt=attempt, batches=batches)

    def _results(self, function: Callable[[Any], Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = iter(batches if self.batch_format == "arrow" else (batch.to_pandas() for batch in batches))
        for results in (function(given),) if self.called_per == "range" else map(function, given):
            for result in batches_of(results):
                yield from cast_to(result, self.schema)
        # What the function left is read all the same: that the range is whole is known at its end.
        deque(given, maxlen=0)

    def _sifted(
        self, function: Callable[[Any], Any], batches: Iterable[pa.RecordBatch], sieve: Sieve
    ) -> Iterator[pa.RecordBatch]:
        """As `_results`, without the records at which the function raises: they are dead letters by the end."""
        columns = self.reader.columns

        def work(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
            return list(self._results(function, [batch if columns is None else batch.select(list(columns))]))

        for batch in batches:
            yield from sieve.passed(batch, work)
        sieve.finish()


class _Count:
    """How much was read."""

    def __init__(self) -> None:
        self.records = 0
        self.nbytes = 0

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.records += batch.num_rows
            self.nbytes += batch.nbytes
            yield batch
