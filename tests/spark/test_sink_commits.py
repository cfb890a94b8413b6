"""The sink's calls on threads of their own: what is told, and what the log has of it."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterable
from typing import Any, cast

import pytest

from instride.errors import KafkaTimeoutError, SinkError
from instride.records import OffsetRange, TopicPartition
from instride.spark._committing import Committer, Failed
from instride.spark._report import RangeReport
from instride.spark._running_jobs import Job
from instride.spark.sink import OutputRange, WrittenRange

PATIENCE = 60.0
OUTPUT = OutputRange(topic="t", partition=0, start=0, end=3)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise KeyError("constraint")


def chained() -> SinkError:
    """Two of ours around one of a database's."""
    try:
        try:
            try:
                raise ValueError("Key (card)=(4111) exists")
            except ValueError as error:
                raise SinkError("Key (card)=(4111) exists") from error
        except SinkError as error:
            raise SinkError(f"not committed: {error}") from error
    except SinkError as error:
        return error


class Refusing:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def commit(self, result: object) -> object:
        raise self.error

    def positions(self, partitions: Iterable[TopicPartition]) -> object:
        return dict.fromkeys(partitions)


def failed(error: BaseException) -> Failed:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    running = Job(name="j").add(OffsetRange(topic="t", partition=0, start=0, end=3, epoch=1, seek_number=0), 1)
    committer = Committer(cast("Any", Refusing(error)), told.put)
    committer._closing.set()  # no pause between its tries
    committer.commit(running, RangeReport(job="j", range=OUTPUT), WrittenRange(range=OUTPUT))
    found = told.get(timeout=PATIENCE)
    committer.close()
    assert isinstance(found, Failed)
    return found


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("Key (card)=(4111) exists" + "x" * 50_000), "ValueError"),
        (UnspeakableError(), "UnspeakableError"),
        (chained(), "SinkError"),
    ],
)
def test_what_a_sink_raises_is_told_and_the_log_has_no_row_of_it(
    error: Exception, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        problem = failed(error).problem
    assert (problem.kind, problem.private, problem.fatal) == (kind, True, False)
    assert len(problem.message) < 3_000
    assert caplog.records
    assert not [each for each in caplog.records if "4111" in each.getMessage()]


def test_an_error_of_ours_is_logged_with_its_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        problem = failed(KafkaTimeoutError("no response within 3 s")).problem
    assert problem.private is False
    assert any("no response within 3 s" in each.getMessage() for each in caplog.records)
