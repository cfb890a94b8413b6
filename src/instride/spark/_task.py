"""What one Spark task does on an executor: read its ranges, run the user's function, write. Nothing comes back but a
line of text for each range.

Laws
1. Reading, working and writing are one stream in one process: no record leaves it but into the sink.
2. A range that fails is a value, not an exception: the others of the task and job succeed, and may be committed.
3. Where several tasks share a range, each reads its own offsets, and writes them as output of the whole range.
4. The user's function is unpickled once for each worker process: what it keeps in globals stays.
5. A range is reported as written when its reader came to the end by itself. What the reader raises fails the range,
   whatever the function, or the sink's writer, does with it; and nothing that the function raises ends the batches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from instride._processing.dead_letters import text_of
from instride.errors import SinkError
from instride.spark._dead_letters import DeadLetters, Sieve
from instride.spark._functions import batches_of, cast_to, unpickled
from instride.spark._range_reader import ReaderSettings, followed, forget, reader_for
from instride.spark._report import RangePart, RangeReport, problem_of
from instride.spark._worker import lacking, spare_collections
from instride.spark.sink import OutputRange, RangeWriter, WrittenRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

__all__ = ["BatchFormat", "CalledPer", "Given", "RangeTask", "not_taken"]

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
            return RangeReport(job=self.job, range=wanted, problem=problem_of(error, text_of(error)))
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
        read = Given(count.of(reader.read(part.offsets, following)), frames=self._takes_frames and sieve is None)
        results = Given(self._results(function, read) if sieve is None else self._sifted(function, read, sieve))
        try:
            written = self.writer.write(part.range, job=self.job, attempt=attempt, batches=results)
        finally:
            # Law 5. Also in the place of what was raised since the reader failed: whether that is fatal is in its own.
            read.check()
        results.check()
        if not results.ended:
            raise not_taken()
        return written

    @property
    def _takes_frames(self) -> bool:
        return self.batch_format != "arrow"

    def _results(self, function: Callable[[Any], Any], given: Given) -> Iterator[pa.RecordBatch]:
        for what in (given,) if self.called_per == "range" else given:
            for result in batches_of(_called(function, what)):
                yield from cast_to(result, self.schema)
        # What the function left is read all the same: that the range is whole is known at its end.
        deque(given, maxlen=0)
        given.check()

    def _sifted(self, function: Callable[[Any], Any], batches: Given, sieve: Sieve) -> Iterator[pa.RecordBatch]:
        """As `_results`, without the records at which the function raises: they are dead letters by the end."""
        columns = self.reader.columns

        def work(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
            chosen = batch if columns is None else batch.select(list(columns))
            return list(self._results(function, Given(iter((chosen,)), frames=self._takes_frames)))

        for batch in batches:
            yield from sieve.passed(batch, work)
        sieve.finish()


def _called(function: Callable[[Any], Any], what: Any) -> Any:
    """Law 5. A StopIteration would be taken for the end of whatever iterator calls the function."""
    try:
        return function(what)
    except StopIteration as error:
        raise RuntimeError(
            "the function raised StopIteration, as next() does where nothing is left: give it a default"
        ) from error


class Given:
    """Law 5: batches as the user's code is given them, the function or a sink's writer. Not a generator, which anybody
    could close.

    frames: as pandas has them.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], *, frames: bool = False) -> None:
        self._batches = batches
        self._frames = frames
        self._error: BaseException | None = None
        self.ended = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
            return batch.to_pandas() if self._frames else batch
        except StopIteration:
            self.ended = True
            raise
        except BaseException as error:
            if self._error is None:  # what is raised after it says less
                self._error = error
            raise

    def check(self) -> None:
        """Raises what came in the place of a batch, however often."""
        if self._error is not None:
            raise self._error


def not_taken() -> SinkError:
    """Law 5. What the writer left would be lost."""
    return SinkError("the sink's writer returned before it had taken all batches of the range")


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
