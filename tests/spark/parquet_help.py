"""Small tools of the Parquet sink's tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instride.records import TopicPartition
from instride.spark.parquet import ParquetSink, read_table
from instride.spark.parquet import _files as files
from instride.spark.sink import CommitOutcome, JobResult, OutputRange, WrittenRange

__all__ = ["PARTITION", "Crash", "DeadFrom", "FailingFrom", "SystemCalls", "batches", "commit", "rows", "span", "write"]

PARTITION = TopicPartition("flights", 3)


def span(start: int, end: int, *, partition: int = 3, topic_id: str = "") -> OutputRange:
    return OutputRange(topic="flights", partition=partition, start=start, end=end, topic_id=topic_id)


def batches(output: OutputRange, job: str, *, size: int = 3) -> Iterator[pa.RecordBatch]:
    """One row for each offset, which says who wrote it."""
    for first in range(output.start, output.end, size):
        offsets = list(range(first, min(first + size, output.end)))
        columns = {"partition": [output.partition] * len(offsets), "offset": offsets, "job": [job] * len(offsets)}
        yield pa.RecordBatch.from_pydict(columns)


def write(sink: ParquetSink, output: OutputRange, job: str, *, attempt: int = 0) -> WrittenRange:
    return sink.writer().write(output, job=job, attempt=attempt, batches=batches(output, job))


def commit(sink: ParquetSink, job: str, written: WrittenRange) -> CommitOutcome:
    result = JobResult(job=job, written=(written,))
    return sink.commit(result)[written.range.topic_partition]


def rows(folder: Path) -> list[tuple[int, int, str]]:
    """What readers see, in order: partition, offset, job."""
    table = read_table(folder).to_pylist()
    return sorted((row["partition"], row["offset"], row["job"]) for row in table)


class Crash(BaseException):
    """The process ends here. Not an Exception, so that no handler takes it for an error to deal with."""


class SystemCalls:
    """Stands in for ``os`` in `files`: counts the calls, and does something just before a chosen one.

    volatile: names that were given, and that a crash of the machine may take: no sync of their folder has followed.
    """

    WATCHED = ("open", "write", "fsync", "close", "utime", "link", "replace", "mkdir", "unlink")

    def __init__(self, at: int = -1, act: Callable[[], None] | None = None) -> None:
        self.made: list[str] = []
        self.opened: list[Path] = []
        self.volatile: set[Path] = set()
        self._handles: dict[int, Path] = {}
        self._at = at
        self._act = act

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.WATCHED:
            return real

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.made.append(name)
            if name == "open":
                self.opened.append(Path(args[0]))
            if self._act is not None and self._due(name):
                self._act()
            result = real(*args, **kwargs)
            self._note(name, args, result)
            return result

        return watched

    def _note(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name == "open":
            self._handles[result] = Path(args[0])
        elif name == "fsync":
            self.volatile -= {each for each in self.volatile if each.parent == self._handles[args[0]]}
        elif name in ("mkdir", "link", "replace"):
            self.volatile.add(Path(args[-1]))

    def _due(self, _name: str) -> bool:
        return len(self.made) == self._at + 1

    def install(self, patch: pytest.MonkeyPatch) -> SystemCalls:
        patch.setattr(files, "os", self)
        return self


class DeadFrom(SystemCalls):
    """The process dies before the call of a number: it, and all after it (a `finally`'s too), do nothing."""

    def __init__(self, at: int) -> None:
        super().__init__(at, self._die)

    def _due(self, _name: str) -> bool:
        return len(self.made) > self._at

    def _die(self) -> None:
        raise Crash


class FailingFrom(SystemCalls):
    """Every writing call from a number on fails with an error of the system's; deleting goes on working."""

    def __init__(self, at: int, number: int) -> None:
        super().__init__(at, self._fail)
        self._number = number

    def _due(self, name: str) -> bool:
        return len(self.made) > self._at and name not in ("close", "unlink")

    def _fail(self) -> None:
        raise OSError(self._number, os.strerror(self._number))
