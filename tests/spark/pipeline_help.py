"""What the tests with a real Spark and a real Kafka share: topics that can be checked, and pipelines on threads."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from instride.errors import NotASinkError
from instride.spark import JobFinished, JobStarted, ParquetSink, Pipeline, RangeCommitted
from instride.spark._functions import pickle_function
from instride.spark._range_reader import ReaderSettings
from instride.spark._task import RangeTask
from instride.spark.parquet import read_table

__all__ = ["PATIENCE", "QUICK", "QUICK_JVM", "Runner", "each_once", "keep", "range_task", "seen", "wait_for"]

PATIENCE: Final = 180.0
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK: Final[dict[str, Any]] = {
    "session_timeout": 6.0,
    "heartbeat_interval": 0.2,
    "linger": 0.0,
    "retry_backoff": 0.05,
    "stop_timeout": 20.0,
}


def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The least that a function can do. Pickled by reference where this module can be imported, so it must be."""
    return batch.select(["partition", "offset", "value"])


def range_task(
    sink: ParquetSink, function: Callable[[Any], Any], reader: ReaderSettings, reports: Any = None
) -> RangeTask:
    """What an executor does with a range, by a function of Arrow batches. Others: `dataclasses.replace`."""
    return RangeTask(
        job="j",
        writer=sink.writer(),
        function=pickle_function(function),
        batch_format="arrow",
        called_per="batch",
        schema=None,
        reader=reader,
        reports=reports,
    )


def seen(folder: Path) -> list[str]:
    """The values that the sink holds, as texts; none while it is no sink yet."""
    try:
        table = read_table(folder)
    except NotASinkError:
        return []
    return [value.decode() for value in table["value"].to_pylist()] if table.num_rows else []


def each_once(folder: Path, values: Iterable[str]) -> None:
    """The sink holds exactly these, compared as multisets."""
    there, expected = Counter(seen(folder)), Counter(values)
    assert there == expected, f"missing {list(expected - there)[:5]}, too many {list(there - expected)[:5]}"


def wait_for(condition: Callable[[], object], what: str, *, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come: {what}"
        time.sleep(0.02)


class Runner:
    """A pipeline that runs on a thread. Leaving the context stops it, and raises what it raised. Then each of its jobs
    must have been told as finished.
    """

    def __init__(self, spark: SparkSession, folder: Path, **settings: Any) -> None:
        self.events: list[Any] = []
        self.error: BaseException | None = None
        merged: dict[str, Any] = {"function": keep, "sink": ParquetSink(folder), **QUICK, **settings}
        self.pipeline = Pipeline(spark, on_event=self.events.append, **merged)
        self._thread = threading.Thread(target=self._run, name="pipeline")

    def _run(self) -> None:
        try:
            self.pipeline.run()
        except BaseException as error:
            self.error = error

    @property
    def rows(self) -> int:
        return sum(event.rows for event in self.of(RangeCommitted))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def until(self, condition: Callable[[], object], what: str = "the state") -> None:
        try:
            wait_for(lambda: self.error is not None or condition(), what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last events: {self.events[-5:]}") from None
        if self.error is not None:
            raise self.error

    def until_rows(self, rows: int) -> None:
        self.until(lambda: self.rows == rows, f"{rows} rows")

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def __enter__(self) -> Runner:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.pipeline.stop()
        self.join()
        if self.error is not None and kind is None:
            raise self.error
        if kind is None:
            finished = {event.job for event in self.of(JobFinished)}
            assert [event for event in self.of(JobStarted) if event.job not in finished] == []


def read_events(path: Path) -> list[dict[str, Any]]:
    """An application's events, those whose line is whole."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
