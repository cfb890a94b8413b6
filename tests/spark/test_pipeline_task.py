"""What a task does with a range, without Spark and without a broker: the reader is played."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pytest
from pipeline_help import range_task

from instride._processing.dead_letters import DeadLetter
from instride._processing.origin import DeadLetterOrigin
from instride.errors import CorruptRecordError, OffsetsGoneError, RecordTooLargeError
from instride.spark import ParquetSink, Pipeline
from instride.spark import _dead_letters as dead_letters
from instride.spark import _task as task
from instride.spark._data_source.splitting import cut
from instride.spark._dead_letters import DeadLetters
from instride.spark._jobs import _Reports
from instride.spark._range_reader import ReaderSettings
from instride.spark._report import JobMessage, RangePart, RangeReport, Reported, whole
from instride.spark._task import BatchFormat, CalledPer, RangeTask
from instride.spark.parquet import read_table
from instride.spark.sink import JobResult, OutputRange

WANTED = OutputRange(topic="t", partition=0, start=10, end=14)
SETTINGS = ReaderSettings(bootstrap_servers="nowhere:1")


class Reader:
    """Gives two batches of two records, then what it is told to raise."""

    def __init__(self, error: Exception | None = None) -> None:
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


@pytest.mark.parametrize(
    ("security", "text"), [({"group_id": "x"}, "begin with security_"), ({"ssl_context": object()}, "cannot travel")]
)
def test_security_that_is_none_is_refused(tmp_path: Path, security: dict[str, Any], text: str) -> None:
    from instride.errors import ConfigError

    with pytest.raises(ConfigError, match=text):
        _pipeline(tmp_path, security=security)


def _pipeline(folder: Path, **settings: Any) -> Pipeline:
    return Pipeline(
        cast(Any, None),
        topics=["t"],
        group_id="g",
        bootstrap_servers="localhost:9092",
        function=partial(_nothing),
        sink=ParquetSink(folder / "out"),
        **settings,
    )


def _nothing(batches: Iterable[Any]) -> None:
    return None
