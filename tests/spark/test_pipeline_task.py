"""What a task does with a range, without Spark and without a broker: the reader is played."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import pandas as pd
import pyarrow as pa
import pytest
from pipeline_help import range_task

from instride import OAuthClientCredentials
from instride._processing.dead_letters import DeadLetter
from instride._processing.origin import DeadLetterOrigin
from instride.errors import (
    ConfigError,
    CorruptRecordError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    OffsetsGoneError,
    PipelineError,
    RecordTooLargeError,
    SinkError,
    UnknownTopicOrPartitionError,
)
from instride.records import TopicPartition
from instride.spark import ParquetSink, Pipeline
from instride.spark import _dead_letters as dead_letters
from instride.spark import _pipeline as pipelines
from instride.spark import _task as task
from instride.spark._data_source.splitting import cut
from instride.spark._dead_letters import DeadLetters
from instride.spark._jobs import _Reports
from instride.spark._range_reader import ReaderSettings, forget, reader_for
from instride.spark._report import JobMessage, RangePart, RangeReport, Reported, problem_of, whole
from instride.spark._task import BatchFormat, CalledPer, RangeTask
from instride.spark.parquet import read_table
from instride.spark.sink import JobResult, OutputRange, WrittenRange

WANTED = OutputRange(topic="t", partition=0, start=10, end=14)
SETTINGS = ReaderSettings(bootstrap_servers="nowhere:1")


class Reader:
    """Gives two batches of two records, then what it is told to raise."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.forgotten = 0
        self.whole = False
        self.asked: list[tuple[OutputRange, OutputRange | None]] = []

    def read(self, wanted: OutputRange, following: OutputRange | None = None) -> Iterator[pa.RecordBatch]:
        self.asked.append((wanted, following))
        for start in range(wanted.start, wanted.end, 2):
            offsets = [start, start + 1]
            columns = {"offset": offsets, "value": [b"%d" % offset for offset in offsets]}
            if self.whole:
                at = pa.array([1_700_000_000_123, None], pa.timestamp("ms", tz="UTC"))
                headers = [[{"key": "h", "value": b"1"}], None]
                columns |= {"topic": [wanted.topic] * 2, "partition": [wanted.partition] * 2, "key": [b"k", None]}
                columns |= {"timestamp": at, "headers": headers}
            yield pa.record_batch(columns)
        if self.error is not None:
            raise self.error


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    played = Reader()

    def forget(settings: ReaderSettings) -> None:
        played.forgotten += 1

    monkeypatch.setattr(task, "reader_for", lambda settings, wanted=None: played)
    monkeypatch.setattr(task, "forget", forget)
    return played


class Reports:
    def __init__(self) -> None:
        self.added: list[str] = []

    def add(self, more: list[str]) -> None:
        self.added += more


def work(
    sink: ParquetSink,
    function: Callable[[Any], Any],
    *,
    batch_format: BatchFormat = "arrow",
    called_per: CalledPer = "batch",
    schema: Any = None,
) -> RangeReport:
    reports = Reports()
    plain = range_task(sink, function, SETTINGS, reports)
    run = replace(plain, batch_format=batch_format, called_per=called_per, schema=schema)
    (text,) = run([[RangePart(range=WANTED, offsets=WANTED)]])
    assert reports.added == [text]
    return RangeReport.from_json(text)


def rows(sink: ParquetSink, report: RangeReport) -> list[dict[str, Any]]:
    assert report.written is not None
    sink.commit(JobResult(job="j", written=(report.written,)))
    found: list[dict[str, Any]] = read_table(sink.folder).to_pylist()
    return found


def as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch.select(["value"])])


def as_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["value"])


def as_iterator(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for number in range(batch.num_rows):
        yield batch.select(["value"]).slice(number, 1)


def as_frame(batch: pa.RecordBatch) -> pd.DataFrame:
    return batch.select(["value"]).to_pandas()


@pytest.mark.parametrize("function", [as_table, as_batch, as_iterator, as_frame])
def test_every_kind_of_result_is_written(reader: Reader, tmp_path: Path, function: Callable[[Any], Any]) -> None:
    sink = ParquetSink(tmp_path / "out")
    report = work(sink, function)
    assert rows(sink, report) == [{"value": b"%d" % offset} for offset in range(10, 14)]
    assert (report.records, report.nbytes > 0) == (4, True)


def with_set_up_and_tear_down(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"value": [b"set-up"]})
    yield from map(as_batch, batches)
    yield pa.record_batch({"value": [b"tear-down"]})


def of_frames(frames: Iterator[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([frame[["value"]] for frame in frames])


def the_first_alone(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    return as_batch(next(batches))


def test_a_function_called_for_a_range_is_given_all_its_batches(reader: Reader, tmp_path: Path) -> None:
    values = [b"10", b"11", b"12", b"13"]
    cases: list[tuple[Callable[[Any], Any], BatchFormat, list[bytes]]] = [
        (with_set_up_and_tear_down, "arrow", [b"set-up", *values, b"tear-down"]),
        (of_frames, "pandas", values),
        # What it leaves is read: only at the range's end is it known that the topic was the right one all the while.
        (the_first_alone, "arrow", values[:2]),
    ]
    for number, (function, batch_format, expected) in enumerate(cases):
        sink = ParquetSink(tmp_path / str(number))
        report = work(sink, function, batch_format=batch_format, called_per="range")
        assert report.problem is None, report.problem
        assert [row["value"] for row in rows(sink, report)] == expected
        assert report.records == 4


def test_what_fails_behind_the_batches_that_a_function_took_fails_the_range(reader: Reader, tmp_path: Path) -> None:
    reader.error = OffsetsGoneError("gone")
    report = work(ParquetSink(tmp_path / "out"), the_first_alone, called_per="range")
    assert report.problem is not None
    assert (report.written, report.problem.kind) == (None, "OffsetsGoneError")


def logging_on(batches: Iterator[Any]) -> Iterator[Any]:
    """As people write it: what fails is logged, and the function ends well."""
    try:
        for batch in batches:
            yield batch[["value"]] if isinstance(batch, pd.DataFrame) else as_batch(batch)
    except Exception:
        return


def going_on(batches: Iterator[Any]) -> Iterator[Any]:
    yield from logging_on(batches)
    yield from logging_on(batches)


def failing_otherwise(batches: Iterator[Any]) -> Iterator[Any]:
    yield from logging_on(batches)
    raise LookupError("there are too few")


@pytest.mark.parametrize("batch_format", ["arrow", "pandas"])
@pytest.mark.parametrize("function", [logging_on, going_on, failing_otherwise])
def test_a_function_that_swallows_an_error_of_reading_fails_the_range_by_it(
    reader: Reader, tmp_path: Path, function: Callable[[Any], Any], batch_format: BatchFormat
) -> None:
    """A half-read range was committed. The reader's error decides, also over one that the function raises for it."""
    reader.error = OffsetsGoneError("gone")
    sink = ParquetSink(tmp_path / "out")
    report = work(sink, function, batch_format=batch_format, called_per="range")
    assert report.problem is not None
    assert (report.written, report.problem.kind, report.problem.fatal) == (None, "OffsetsGoneError", True)
    assert reader.forgotten == 1
    assert list((tmp_path / "out" / "_data").rglob("*.parquet")) == []


def test_a_swallowed_interrupt_ends_the_task(reader: Reader, tmp_path: Path) -> None:
    def deaf(batches: Iterator[Any]) -> None:
        with suppress(BaseException):
            list(batches)

    reader.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        work(ParquetSink(tmp_path / "out"), deaf, called_per="range")


def test_a_batch_that_is_no_frame_fails_the_range_whatever_the_function_does(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a conversion is as one of reading."""
    batches = [pa.record_batch({"value": [b"1"]}), _Unconvertible(), pa.record_batch({"value": [b"3"]})]
    monkeypatch.setattr(reader, "read", lambda wanted, following: iter(batches))
    report = work(ParquetSink(tmp_path / "out"), going_on, batch_format="pandas", called_per="range")
    assert report.written is None
    assert str(report.problem) == "ArrowInvalid: no frame"


class _Unconvertible:
    num_rows, nbytes = 1, 1

    def to_pandas(self) -> None:
        raise pa.ArrowInvalid("no frame")


class _Lenient:
    """A sink's writer that takes what comes until something is raised."""

    def write(self, output: OutputRange, *, job: str, attempt: int, batches: Iterator[Any]) -> WrittenRange:
        with suppress(Exception):
            list(batches)
        return WrittenRange(range=output)


def test_a_writer_that_swallows_an_error_of_reading_fails_the_range_by_it(reader: Reader, tmp_path: Path) -> None:
    reader.error = CorruptRecordError("bad")
    sink = ParquetSink(tmp_path / "out")
    run = replace(range_task(sink, as_batch, SETTINGS, Reports()), writer=_Lenient())
    (text,) = run([[RangePart(range=WANTED, offsets=WANTED)]])
    report = RangeReport.from_json(text)
    assert report.problem is not None
    assert (report.written, report.problem.kind) == (None, "CorruptRecordError")


def second_fails(batch: Any) -> Any:
    raise ValueError("a row")


class _Hasty:
    """One that returns after the first batch."""

    def write(self, output: OutputRange, *, job: str, attempt: int, batches: Iterator[Any]) -> WrittenRange:
        next(batches)
        return WrittenRange(range=output)


@pytest.mark.parametrize(
    ("function", "writer", "problem"),
    [(as_batch, _Hasty(), "SinkError: the sink's writer returned"), (second_fails, _Lenient(), "ValueError: a row")],
)
def test_a_range_of_which_a_writer_did_not_take_all_is_not_written(
    reader: Reader, tmp_path: Path, function: Any, writer: Any, problem: str
) -> None:
    run = replace(range_task(ParquetSink(tmp_path / "out"), function, SETTINGS, Reports()), writer=writer)
    (text,) = run([[RangePart(range=WANTED, offsets=WANTED)]])
    report = RangeReport.from_json(text)
    assert report.written is None
    assert str(report.problem).startswith(problem)


def first_comma(what: Any) -> Any:
    """A `next` without a default: as an end of the batches it cost the rest of the range, in silence."""
    return next(value for value in [1, 2] if value == 3)


@pytest.mark.parametrize("called_per", ["batch", "range"])
def test_a_function_that_raises_stop_iteration_fails_the_range(
    reader: Reader, tmp_path: Path, called_per: CalledPer
) -> None:
    report = work(ParquetSink(tmp_path / "out"), first_comma, called_per=called_per)
    assert report.written is None
    assert str(report.problem) == (
        "RuntimeError: the function raised StopIteration, as next() does where nothing is left: give it a default"
    )
    assert report.problem is not None
    assert "in first_comma" in report.problem.traceback


def test_a_function_may_write_nothing(reader: Reader, tmp_path: Path) -> None:
    report = work(ParquetSink(tmp_path / "out"), lambda batch: None)
    assert report.written is not None
    assert report.written.files == ()
    assert report.records == 4


def test_pandas_frames_are_given_and_cast(reader: Reader, tmp_path: Path) -> None:
    def size(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"more": 1, "note": None, "offset": frame["offset"]})

    sink = ParquetSink(tmp_path / "out")
    schema = pa.schema([("offset", pa.int32()), ("note", pa.string())])
    report = work(sink, size, batch_format="pandas", schema=schema)
    assert rows(sink, report) == [{"offset": offset, "note": None} for offset in range(10, 14)]


def test_a_field_that_the_schema_lacks_within_a_column_is_no_result(reader: Reader, tmp_path: Path) -> None:
    """Arrow's cast drops it."""

    def noted(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"a": [{"x": 7, "note": "important"}] * batch.num_rows})

    schema = pa.schema([("a", pa.struct([("x", pa.int64())]))])
    report = work(ParquetSink(tmp_path / "out"), noted, schema=schema)
    assert report.written is None
    assert "there is no field a.note to take what was returned: a is struct<x: int64>" in str(report.problem)
    fuller = pa.schema([("a", pa.struct([("x", pa.int64()), ("note", pa.string()), ("y", pa.int64())]))])
    sink = ParquetSink(tmp_path / "out")
    found = rows(sink, work(sink, noted, schema=fuller))
    assert found == [{"a": {"x": 7, "note": "important", "y": None}}] * 4


def test_a_wrong_result_is_a_problem_that_names_what_is_right(reader: Reader, tmp_path: Path) -> None:
    report = work(ParquetSink(tmp_path / "out"), lambda batch: "rows")
    assert report.written is None
    assert report.problem is not None
    assert "must return a pyarrow RecordBatch" in str(report.problem)


@pytest.mark.parametrize(("error", "fatal"), [(CorruptRecordError("bad"), False), (OffsetsGoneError("gone"), True)])
def test_an_error_of_reading_is_told_and_the_reader_is_not_used_again(
    reader: Reader, tmp_path: Path, error: Exception, *, fatal: bool
) -> None:
    reader.error = error
    report = work(ParquetSink(tmp_path / "out"), as_batch)
    assert report.problem is not None
    assert (report.problem.kind, report.problem.fatal) == (type(error).__name__, fatal)
    assert "in read" in report.problem.traceback
    assert reader.forgotten == 1
    assert read_table(tmp_path / "out").num_rows == 0


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


def test_an_error_without_a_text_fails_its_range_alone(reader: Reader, tmp_path: Path) -> None:
    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise UnspeakableError

    report = work(ParquetSink(tmp_path / "out"), function)
    assert str(report.problem) == "UnspeakableError: its text cannot be had: LookupError"


@pytest.mark.parametrize("part", ["x" * 3_000_000, "bad row\n" * 300_000], ids=["one line", "many lines"])
def test_what_an_error_says_is_cut_on_the_executor(reader: Reader, tmp_path: Path, part: str) -> None:
    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError(f"it begins {part}")

    report = work(ParquetSink(tmp_path / "out"), function)
    assert report.problem is not None
    message, lines = report.problem.message, report.problem.traceback
    assert message.startswith("it begins ")
    assert (len(message) < 2_100, " characters more)" in message) == (True, True)
    assert (len(lines) < 11_000, " more" in lines) == (True, True)
    assert len(report.to_json()) < 20_000


def test_only_texts_that_quote_nobody_elses_error_are_for_the_log() -> None:
    """What a function, a database or Arrow says may have parts of a record."""

    def raised(cause: type[Exception] | None, error: Exception) -> Exception:
        try:
            try:
                if cause is not None:
                    raise cause("4711")
            finally:
                raise error
        except Exception as caught:
            return caught

    told = [
        problem_of(raised(None, ValueError("4711"))).told,
        problem_of(raised(ValueError, PipelineError("more than 5 records ... 4711"))).told,
        problem_of(raised(pa.ArrowInvalid, SinkError("what the function returned: 4711"))).told,
        problem_of(raised(None, OffsetsGoneError("at offset 5"))).told,
        problem_of(raised(OffsetOutOfRangeError, OffsetsGoneError("at offset 5"))).told,
    ]
    assert told == ["ValueError", "PipelineError", "SinkError", *["OffsetsGoneError: at offset 5"] * 2]


def test_a_failed_range_does_not_keep_the_tasks_others_from_succeeding(reader: Reader, tmp_path: Path) -> None:
    def picky(batch: pa.RecordBatch) -> pa.RecordBatch:
        if b"10" in batch["value"].to_pylist():
            raise ValueError("not ten")
        return batch

    run = range_task(ParquetSink(tmp_path / "out"), picky, SETTINGS, Reports())
    other = OutputRange(topic="t", partition=1, start=20, end=24)
    parts = [RangePart(range=each, offsets=each) for each in (WANTED, other)]
    first, second = (RangeReport.from_json(text) for text in run([parts]))
    assert first.problem is not None
    assert second.written is not None
    assert second.written.rows == 4
    assert reader.asked == [(WANTED, other), (other, None)]


def test_tasks_that_share_a_range_write_one_range(reader: Reader, tmp_path: Path) -> None:
    """Each reads its own offsets; the sink has them all, in order, or, where one failed, the problem."""
    sink = ParquetSink(tmp_path / "out")
    run = range_task(sink, as_batch, SETTINGS, Reports())
    wanted = OutputRange(topic="t", partition=0, start=10, end=16)
    parts = [RangePart(range=wanted, offsets=each, number=number) for number, each in enumerate(cut(wanted, 3))]
    reports = [RangeReport.from_json(text) for part in parts for text in run([[part]])]
    assert [report.part for report in reports] == [0, 1, 2]
    together = whole(reports)
    assert (together.records, together.range) == (6, wanted)
    assert rows(sink, together) == [{"value": b"%d" % offset} for offset in range(10, 16)]
    reader.error = ConnectionError("the broker is away")
    (broken,) = (RangeReport.from_json(text) for text in run([[parts[1]]]))
    failed = whole([reports[0], broken, reports[2]])
    assert (failed.written, failed.problem) == (None, broken.problem)


def test_of_several_ranges_one_that_fails_fails_alone(reader: Reader, tmp_path: Path) -> None:
    """Of two topics, a range each in turn. Each is reported as it ends."""

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["value"].to_pylist()[0] == b"2":
            raise ValueError("not this one")
        return batch.select(["value"])

    ranges = [
        OutputRange(topic="td"[number % 2], partition=number, start=2 * number, end=2 * number + 2, topic_id="x")
        for number in range(40)
    ]
    run = range_task(ParquetSink(tmp_path / "out"), function, SETTINGS, Reports())
    told = run([[RangePart(range=each, offsets=each) for each in ranges]])
    first = RangeReport.from_json(next(told))
    assert (first.range, reader.asked) == (ranges[0], [(ranges[0], ranges[1])])
    reports = [first, *map(RangeReport.from_json, told)]
    assert len(reader.asked) == 40
    assert [str(each.problem) for each in reports if each.problem] == ["ValueError: not this one"]
    assert sum(each.written is not None for each in reports) == 39


class Letters:
    """What a pipeline's `produce` was given. most: a letter with more than so many bytes is refused as too large."""

    def __init__(self, *, most: int = 1_000, told: str = "later") -> None:
        self.written: list[DeadLetter] = []
        self.response: Future[None] | None = None
        self._most = most
        self._told = told

    def produce(self, letter: DeadLetter) -> Future[None] | None:
        self.written.append(letter)
        size = len(letter.key or b"") + len(letter.value or b"")
        if size <= self._most:
            return self.response
        error = RecordTooLargeError(f"{size} bytes")
        if self._told == "at once":
            raise error
        refused: Future[None] = Future()
        refused.set_exception(error)
        return refused


def sifted(sink: ParquetSink, letters: Letters, function: Callable[[Any], Any], *, most: int = 2) -> RangeReport:
    given: list[Any] = []

    def seen(batch: pa.RecordBatch) -> Any:
        given.append(batch.schema.names)
        return function(batch)

    run = RangeTask(
        job="j",
        writer=sink.writer(),
        function=b"",
        batch_format="arrow",
        called_per="batch",
        schema=None,
        reader=replace(SETTINGS, columns=("value",), timeout=0.01),
        reports=cast(Any, Reports()),
        dead_letters=DeadLetters(topic="dlq", group="g", attempts=4, most=most, timeout=0.01, produce=b"here"),
        last_try=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "unpickled", lambda _: seen)
        patch.setattr(dead_letters, "unpickled", lambda _: letters.produce)
        (text,) = run([[RangePart(range=WANTED, offsets=WANTED)]])
    assert all(names == ["value"] for names in given)
    return RangeReport.from_json(text)


def bad(*values: bytes) -> Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]:
    """Raises at these only once its result is requested."""

    def function(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for value in batch["value"].to_pylist():
            if value in values:
                raise ValueError(f"not {value!r}")
        yield batch

    return function


def test_records_that_fail_in_the_last_try_are_dead_letters_and_the_rest_is_written(
    reader: Reader, tmp_path: Path
) -> None:
    reader.whole = True
    sink, letters = ParquetSink(tmp_path / "out"), Letters()
    report = sifted(sink, letters, bad(b"10", b"13"))
    assert report.problem is None, report.problem
    assert [row["value"] for row in rows(sink, report)] == [b"11", b"12"]
    assert (report.dead_letters, report.records) == (2, 4)
    first, second = letters.written
    assert (first.topic, first.key, first.value, first.attempts) == ("dlq", b"k", b"10", 4)
    assert first.headers[0] == ("h", b"1")
    assert DeadLetterOrigin.of(first.record) is None
    told = dict(first.headers)
    assert told["instride.offset"] == b"10"
    assert told["instride.timestamp"] == b"1700000000123"
    assert (told["instride.error"], told["instride.message"]) == (b"builtins.ValueError", b"not b'10'")
    assert (second.key, second.record.timestamp, dict(second.headers)["instride.group"]) == (None, -1, b"g")


def test_a_range_whose_letters_are_too_many_or_not_acknowledged_fails(reader: Reader, tmp_path: Path) -> None:
    reader.whole = True
    sink, letters = ParquetSink(tmp_path / "out"), Letters()
    report = sifted(sink, letters, bad(b"10", b"11", b"12"))
    assert report.problem is not None
    assert report.written is None
    assert "more than 2 records of t-0 [10, 14) cannot be worked on (max_dead_letters)" in str(report.problem)
    assert len(letters.written) == 2
    letters.response = Future()
    report = sifted(sink, letters, bad(b"10"))
    assert report.problem is not None
    assert report.problem.kind == "KafkaTimeoutError"
    letters.response.set_exception(ConnectionError("the broker did not take it"))
    report = sifted(sink, letters, bad(b"10"))
    assert report.problem is not None
    assert "did not take it" in str(report.problem)
    assert reader.forgotten == 3


def test_a_record_for_which_the_function_raises_stop_iteration_is_a_dead_letter(reader: Reader, tmp_path: Path) -> None:
    """It was read and dropped, without a letter."""

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if b"12" in batch["value"].to_pylist():
            first_comma(batch)
        return batch

    reader.whole = True
    sink, letters = ParquetSink(tmp_path / "out"), Letters()
    report = sifted(sink, letters, function)
    assert [row["value"] for row in rows(sink, report)] == [b"10", b"11", b"13"]
    assert [letter.value for letter in letters.written] == [b"12"]


class OtherClientsFuture:
    """As kafka-python's `send` returns: not a future of Python's."""


async def asynchronous() -> None:
    raise AssertionError("nobody awaits it")


@pytest.mark.parametrize("response", [OtherClientsFuture, asynchronous])
def test_a_letter_of_which_produce_says_something_unknown_is_not_acknowledged(
    reader: Reader, tmp_path: Path, response: Callable[[], Any]
) -> None:
    """It counted as acknowledged, whatever became of it."""
    reader.whole = True
    letters = Letters()
    letters.produce = lambda letter: response()  # type: ignore[method-assign]
    report = sifted(ParquetSink(tmp_path / "out"), letters, bad(b"10"))
    assert report.written is None
    assert report.problem is not None
    assert report.problem.kind == "ConfigError"
    assert "produce must return None or a concurrent.futures.Future, not a" in report.problem.message


@pytest.mark.parametrize("told", ["at once", "later"])
@pytest.mark.parametrize(
    ("most", "key", "left_out"), [(3, b"k", ""), (2, b"k", "value (2 bytes)"), (0, None, "key, value and headers")]
)
def test_a_letter_that_is_too_large_is_written_without_what_makes_it_so(
    reader: Reader, tmp_path: Path, told: str, most: int, key: bytes | None, left_out: str
) -> None:
    """As a processor's: `tests/processing/test_dead_letters_refused.py`."""
    reader.whole = True
    sink, letters = ParquetSink(tmp_path / "out"), Letters(most=most, told=told)
    report = sifted(sink, letters, bad(b"10"))
    assert report.problem is None, report.problem
    assert (report.dead_letters, report.records) == (1, 4)
    letter = letters.written[-1]
    assert (letter.key, letter.value, letter.left_out) == (key, b"" if left_out else b"10", left_out)


@pytest.mark.parametrize("told", ["at once", "later"])
def test_a_range_with_a_letter_that_has_no_smaller_form_fails(reader: Reader, tmp_path: Path, told: str) -> None:
    reader.whole = True
    sink, letters = ParquetSink(tmp_path / "out"), Letters(most=-1, told=told)
    report = sifted(sink, letters, bad(b"10"))
    assert report.written is None
    assert report.problem is not None
    assert report.problem.kind == "RecordTooLargeError"


def test_reports_are_told_on_the_driver_and_gathered_on_executors() -> None:
    told: list[JobMessage] = []
    text = RangeReport(job="j", range=WANTED).to_json()
    driver = _Reports(told.append)
    assert driver.addInPlace([], [text, text]) == []
    assert told == [Reported(report=RangeReport(job="j", range=WANTED))] * 2
    kind, arguments = driver.__reduce__()
    executor = kind(*arguments)
    assert executor.addInPlace(executor.addInPlace(executor.zero([]), ["a"]), ["b"]) == ["a", "b"]


def test_security_goes_to_the_member_and_to_the_readers_and_into_no_text(tmp_path: Path) -> None:
    security = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "ann",
        "sasl_password": "a secret",
    }
    pipeline = _pipeline(tmp_path, security=security)
    config = pipeline._consumer._config
    assert (config.security_protocol, config.sasl_password) == ("SASL_PLAINTEXT", "a secret")
    assert dict(pipeline._reader.security) == security
    assert "a secret" not in repr(pipeline) + repr(pipeline._reader) + repr(config)


def test_a_worker_knows_its_reader_again_where_the_settings_hold_a_function(tmp_path: Path) -> None:
    """Each task unpickles a function anew, which equals no other: each opened connections, and fetched a token."""
    here = "https://localhost/token"
    token = OAuthClientCredentials(token_url=here, client_id="me", client_secret="a secret")
    security = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token": token}
    pipeline = _pipeline(tmp_path, security=security)
    assert pipeline._consumer._config.sasl_oauth_token is token
    first, second = (pickle.loads(pickle.dumps(pipeline._reader)) for _ in range(2))
    try:
        assert reader_for(first) is reader_for(second)
        given = first.consumer_settings["sasl_oauth_token"]
        assert isinstance(given, OAuthClientCredentials)
        assert given is second.consumer_settings["sasl_oauth_token"]
    finally:
        forget(first)
    assert "a secret" not in repr(first) + repr(first.security) + repr(pipeline._reader)


@pytest.mark.parametrize(
    ("security", "text"), [({"group_id": "x"}, "begin with security_"), ({"ssl_context": object()}, "cannot travel")]
)
def test_security_that_is_none_is_refused(tmp_path: Path, security: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        _pipeline(tmp_path, security=security)


async def _awaited(letter: object) -> None: ...


COUNTS = ("max_range_records", "max_range_bytes", "max_concurrent_jobs", "ranges_per_task", "retries")
DURATIONS = ("linger", "retry_backoff", "retry_backoff_max", "stop_timeout", "read_timeout")
LONGER_THAN_ZERO = ("read_timeout",)
OTHERS = {
    "split_ranges": True,
    "available_now": False,
    "progress_line": True,
    "fail_on_data_loss": False,
    "on_event": None,
    "telemetry": None,
    "produce": None,
    "dead_letters": "dlq",
    "schema": None,
    "columns": None,
    "batch_format": "arrow",
    "called_per": "batch",
    "client_id": "me",
    "auto_offset_reset": "latest",
    "isolation_level": "read_committed",
    "assignors": ["range"],
    "session_timeout": 10.0,
    "heartbeat_interval": 1.0,
    "max_revoke_delay": 60.0,
    "range_poll_interval": 1.0,
    "security": None,
}
WRONG = (1e5, math.nan, math.inf, -math.inf, -1, True, "5", b"5", object(), Fraction(1, 2))


def wrong_settings() -> Iterator[tuple[str, Any]]:
    for name in (*COUNTS, "max_dead_letters"):
        yield from ((name, value) for value in WRONG)
    for name in DURATIONS:
        yield from ((name, value) for value in WRONG if value != 1e5)
        yield name, 1e10
    yield from ((name, 0) for name in LONGER_THAN_ZERO)
    for name, right in OTHERS.items():
        # What is no switch may be a text or None; the consumer looks at its assignors.
        refused = ["yes", 1, None] if isinstance(right, bool) else []
        yield from ((name, value) for value in [*refused, *([] if name == "assignors" else [object(), math.nan, b"x"])])
    yield "assignors", "range"
    yield "produce", _awaited
    yield "on_event", _awaited
    yield "function", _awaited
    yield "security", {3: "x"}
    yield "columns", ["value", "value"]


@pytest.mark.parametrize(("name", "value"), list(wrong_settings()))
def test_a_setting_of_the_wrong_kind_is_refused_by_its_name(tmp_path: Path, name: str, value: Any) -> None:
    """A number of records that is no int passed, and ended in a TypeError while the pipeline ran."""
    settings = {"dead_letters": "dlq", name: value}
    with pytest.raises(ConfigError, match=rf"(^|\W){name}\W"):
        _pipeline(tmp_path, **settings)


def test_each_setting_is_checked(tmp_path: Path) -> None:
    given = {"spark", "topics", "group_id", "bootstrap_servers", "function", "sink"}
    settings = inspect.signature(Pipeline).parameters.keys() - given
    assert settings == {*COUNTS, "max_dead_letters", *DURATIONS, *OTHERS}
    least = {name: 1e-3 if name in LONGER_THAN_ZERO else 0 for name in DURATIONS}
    _pipeline(tmp_path, **OTHERS, **dict.fromkeys(COUNTS, 1), max_dead_letters=1, **least)


def test_events_go_to_a_list_that_can_be_called(tmp_path: Path) -> None:
    """It is false as long as it is empty, and was taken for none."""

    class Events(list[object]):
        def __call__(self, event: object) -> None:
            self.append(event)

    events = Events()
    assert _pipeline(tmp_path, on_event=events)._on_event is events


class Runner:
    """Of Spark's jobs. error: what `prepare` raises."""

    reports = None

    def __init__(self, error: Exception | None = None) -> None:
        self.closed = 0
        self._error = error

    def prepare(self, _: RangeTask) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("error", [PipelineError("no worker"), None])
def test_a_run_that_fails_before_its_loop_leaves_nothing_with_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """Each left an accumulator, with all that it held."""

    def nowhere(*_: object) -> NoReturn:
        raise KafkaTimeoutError("no broker")

    runner = Runner(error)
    monkeypatch.setattr(Pipeline, "_runner", lambda *_: runner)
    monkeypatch.setattr(pipelines, "end_offsets", nowhere)
    with pytest.raises(PipelineError if error else KafkaTimeoutError):
        _pipeline(tmp_path, available_now=True).run()
    assert runner.closed == 1


def test_available_now_fails_where_a_topic_was_never_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped name: the run read nothing of it and ended well."""
    runner = Runner()
    monkeypatch.setattr(Pipeline, "_runner", lambda *_: runner)
    monkeypatch.setattr(pipelines, "end_offsets", lambda *_: {TopicPartition("t", 0): 3})
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no tpyo in the cluster"):
        _pipeline(tmp_path, topics=["t", "tpyo"], available_now=True).run()
    assert runner.closed == 1


def _pipeline(folder: Path, **settings: Any) -> Pipeline:
    given: dict[str, Any] = {"function": partial(_nothing), "topics": ["t"], **settings}
    return Pipeline(
        cast(Any, None),
        group_id="g",
        bootstrap_servers="localhost:9092",
        sink=ParquetSink(folder / "out"),
        **given,
    )


def _nothing(batches: Iterable[Any]) -> None:
    return None
