"""The handle of a running pipeline: what it tells, and how it ends. The pipeline is played."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from instride.records import OffsetRange, TopicPartition
from instride.spark._events import (
    JobFinished,
    JobStarted,
    PipelineEvent,
    RangeCommitted,
    RangeDropped,
    RangeFailed,
)
from instride.spark._handle import PipelineQuery
from instride.telemetry import OwnershipChange, OwnershipChanged

Hear = Callable[[PipelineEvent], None]


class Played:
    """A pipeline that tells some events and then works until it is stopped, or fails."""

    def __init__(self, *events: PipelineEvent, error: Exception | None = None) -> None:
        self.told = threading.Event()
        self.stopped = threading.Event()
        self._events = events
        self._error = error

    def run(self, hear: Hear) -> None:
        for event in self._events:
            hear(event)
        self.told.set()
        if self._error is not None:
            raise self._error
        assert self.stopped.wait(30)

    def start(self) -> PipelineQuery:
        query = PipelineQuery("g", self.run, self.stopped.set).begin()
        assert self.told.wait(30)
        return query


def span(partition: int) -> OffsetRange:
    return OffsetRange(topic="t", partition=partition, start=0, end=5, epoch=1, seek_number=0)


def test_it_tells_of_its_jobs_and_of_what_became_of_their_ranges() -> None:
    ranges = (span(0), span(1), span(2))
    query = Played(
        OwnershipChanged(
            at=1.0, change=OwnershipChange.ASSIGNED, partitions=tuple(TopicPartition("t", n) for n in range(3))
        ),
        OwnershipChanged(at=2.0, change=OwnershipChange.LOST, partitions=(TopicPartition("t", 2),)),
        JobStarted(job="one", ranges=ranges),
        RangeCommitted(job="one", range=ranges[0], rows=4, behind=9, delay=0.25, dead_letters=1),
        RangeFailed(job="one", range=ranges[1], reason="ValueError: no flight", again=True),
        RangeDropped(job="one", range=ranges[2]),
        JobFinished(job="one"),
        JobStarted(job="two", ranges=(span(1),)),
    ).start()
    assert query.isActive
    assert query.status == {
        "message": "1 job running",
        "isDataAvailable": True,
        "isTriggerActive": True,
        "partitions": 2,
    }
    (progress,) = query.recentProgress
    assert query.lastProgress == progress
    assert (progress["id"], progress["numOutputRows"]) == ("one", 4)
    counts = {"numOutputRows": 4, "numDeadLetters": 1, "offsetsBehindLatest": 9, "delayMs": 250}
    where = {"topic": "t", "startOffset": 0, "endOffset": 5}
    assert progress["ranges"] == [
        {**where, "partition": 0, "outcome": "committed", **counts},
        {**where, "partition": 1, "outcome": "failed", "reason": "ValueError: no flight"},
        {**where, "partition": 2, "outcome": "dropped"},
    ]
    query.stop()
    assert query.awaitTermination() is None
    assert query.status["message"] == "Stopped"
    assert query.exception() is None


def test_what_ended_it_is_kept_and_raised() -> None:
    error = ValueError("no flight")
    query = Played(error=error).start()
    for _ in range(2):
        with pytest.raises(ValueError, match="no flight"):
            query.awaitTermination()
    assert query.exception() is error
    assert query.status["message"] == "Terminated with exception: no flight"


def test_a_wait_with_a_bound_says_whether_it_has_ended() -> None:
    query = Played().start()
    assert query.status["message"] == "Waiting for data to arrive"
    assert query.lastProgress is None
    assert query.awaitTermination(0) is False
    query.stop()
    assert query.awaitTermination(30) is True


def test_what_no_event_ended_is_progress_at_the_end() -> None:
    """The last job of a run was in no progress, and ran on in the status."""
    committed = RangeCommitted(job="one", range=span(0), rows=4)
    query = Played(JobStarted(job="one", ranges=(span(0),)), committed, error=ValueError("no flight")).start()
    with pytest.raises(ValueError, match="no flight"):
        query.awaitTermination()
    assert query.status["isTriggerActive"] is query.status["isDataAvailable"] is False
    assert query.lastProgress is not None
    assert (query.lastProgress["id"], query.lastProgress["numOutputRows"]) == ("one", 4)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


def test_an_error_without_a_text_ends_no_status() -> None:
    query = Played(error=UnspeakableError()).start()
    with pytest.raises(UnspeakableError):
        query.awaitTermination()
    assert query.status["message"] == "Terminated with exception: its text cannot be had: LookupError"
