"""A pipeline's jobs over Spark Connect, with a played session: what is told, and when a job ends."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from run_help import PATIENCE, PanicError

from instride.errors import PipelineError
from instride.spark import _connect_jobs
from instride.spark._connect_jobs import ConnectJobRunner
from instride.spark._report import JobEnded, JobMessage, RangePart, RangeReport, Reported
from instride.spark._task import RangeTask
from instride.spark.sink import OutputRange

RANGES = [OutputRange(topic="t", partition=number, start=0, end=5) for number in range(3)]
Rows = list[dict[str, str]]


class PlayedSession:
    """Of Connect: what is collected is worked on at once, in as many tasks as `cores`. Tags are a thread's own.

    gate: before it is set the server takes no interruption. interrupt_error: raised by each.
    """

    def __init__(self, cores: int = 2) -> None:
        self.cores = cores
        self.tags = threading.local()
        self.interrupted: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_stopped = False
        self.error: BaseException | None = None
        self.interrupt_error: Exception | None = None

    def range(self, start: int, end: int = 0, step: int = 1, parts: int | None = None) -> PlayedFrame:
        return PlayedFrame(self, self.cores if parts is None else parts)

    def addTag(self, tag: str) -> None:
        self.tags.mine = tag

    def interruptTag(self, tag: str) -> None:
        assert self.gate.wait(PATIENCE)
        self.interrupted.append(tag)
        if self.interrupt_error is not None:
            raise self.interrupt_error


class PlayedFrame:
    def __init__(self, session: PlayedSession, tasks: int) -> None:
        self._session = session
        self._tasks = tasks
        self._function: Callable[[Iterable[Any]], Iterable[pa.RecordBatch]] | None = None

    def mapInArrow(self, function: Callable[[Iterable[Any]], Iterable[pa.RecordBatch]], schema: str) -> PlayedFrame:
        self._function = function
        return self

    def collect(self) -> Rows:
        if self._session.error is not None:
            raise self._session.error
        assert self._function is not None
        one = pa.record_batch({"id": [0]})
        return [row for _ in range(self._tasks) for batch in self._function(iter([one])) for row in batch.to_pylist()]


class PlayedTask:
    """Reports each range; waits at partition 0 until the gate opens."""

    job = "j"

    def __init__(self, problem: str | None = None) -> None:
        self.gate = threading.Event()
        self._problem = problem

    def __call__(self, chunks: Iterable[list[RangePart]]) -> Iterator[str]:
        for chunk in chunks:
            for part in chunk:
                if part.range.partition == 0:
                    assert self.gate.wait(300)
                yield RangeReport(job=self.job, range=part.range).to_json()

    def prepare(self, _: Iterable[int]) -> Iterator[str]:
        if self._problem is not None:
            yield self._problem


def runner(session: PlayedSession) -> tuple[ConnectJobRunner, queue.SimpleQueue[JobMessage]]:
    told: queue.SimpleQueue[JobMessage] = queue.SimpleQueue()
    return ConnectJobRunner(session, told.put), told


def task(problem: str | None = None) -> tuple[PlayedTask, RangeTask]:
    made = PlayedTask(problem)
    return made, cast("RangeTask", made)


def parts(*numbers: int) -> list[RangePart]:
    return [RangePart(range=RANGES[number], offsets=RANGES[number]) for number in numbers]


def test_how_many_tasks_run_at_a_time_is_known_once_it_is_prepared() -> None:
    ran, _ = runner(PlayedSession(cores=3))
    ran.prepare(task()[1])
    assert ran.cores == 3


def test_a_session_that_is_stopped_during_a_run_ends_it() -> None:
    """Each range failed as often as it was tried, and the first of them was the reason."""
    session = PlayedSession()
    ran, _ = runner(session)
    session.is_stopped = True
    with pytest.raises(PipelineError, match="is stopped, or its server has lost it"):
        _ = ran.cores


class LosingFrames:
    """A function of DataFrames whose session is lost."""

    def run(self, *_: object) -> RangeReport:
        raise CLOSED


CLOSED = PySparkException("Session was closed.", errorClass="INVALID_HANDLE.SESSION_CLOSED", messageParameters={})


@pytest.mark.parametrize("frames", [None, LosingFrames()])
def test_a_session_that_its_server_has_closed_ends_the_run(frames: LosingFrames | None) -> None:
    """PySpark does not take note of it: each range failed as often as it was tried."""
    session, told = PlayedSession(), queue.SimpleQueue[JobMessage]()
    ran = ConnectJobRunner(session, told.put, cast(Any, frames))
    session.error = CLOSED
    assert ran.cores == 1
    ran.start(task()[1], [parts(1)])
    while not isinstance(told.get(timeout=PATIENCE), JobEnded):
        pass
    assert not session.is_stopped
    with pytest.raises(PipelineError, match="its server has lost it") as raised:
        _ = ran.cores
    assert raised.value.__cause__ is CLOSED


@pytest.mark.parametrize(
    "error",
    [
        PySparkException("No such operation.", errorClass="INVALID_HANDLE.OPERATION_NOT_FOUND", messageParameters={}),
        PySparkException(f"a worker raised ValueError: {CLOSED}"),
        ValueError(str(CLOSED)),
    ],
    ids=["operation", "quoted-by-spark", "quoted"],
)
def test_an_error_of_a_job_is_no_loss_of_the_session(error: Exception) -> None:
    """By its text it was one, which may quote what a record holds."""
    assert "INVALID_HANDLE" in str(error)
    session = PlayedSession()
    ran, told = runner(session)
    session.error = error
    ran.start(task()[1], [parts(1)])
    assert isinstance(told.get(timeout=PATIENCE), JobEnded)
    assert ran.cores == 1


def test_a_server_is_called_now_and_then_though_no_job_runs() -> None:
    """It closed the session after an hour without a call, which is an hour without a record."""
    session, now = PlayedSession(), [0.0]
    ran = ConnectJobRunner(session, lambda _: None, clock=lambda: now[0])
    for second in range(0, 3_601, 20):
        now[0] = float(second)
        assert ran.cores == 1
        ran.close()
    assert session.interrupted == ["instride-call"] * 60


def test_a_server_that_is_silent_is_called_once_and_holds_up_nobody() -> None:
    session, now = PlayedSession(), [0.0]
    session.gate.clear()
    session.interrupt_error = CLOSED
    ran = ConnectJobRunner(session, lambda _: None, clock=lambda: now[0])
    for hour in range(4):
        now[0] = 3_600.0 * hour
        assert ran.cores == 1
    session.gate.set()
    ran.close()
    assert session.interrupted == ["instride-call"]
    with pytest.raises(PipelineError, match="its server has lost it"):
        _ = ran.cores


def test_what_workers_lack_is_told() -> None:
    ran, _ = runner(PlayedSession())
    with pytest.raises(PipelineError, match="no pyarrow"):
        ran.prepare(task("no pyarrow")[1])
    session = PlayedSession()
    session.error = ValueError("no server")
    with pytest.raises(PipelineError, match="no server"):
        runner(session)[0].prepare(task()[1])


def test_a_slow_task_holds_up_no_report_but_its_own() -> None:
    ran, told = runner(PlayedSession())
    played, given = task()
    ran.start(given, [parts(0), parts(1, 2)])
    first = [told.get(timeout=300) for _ in range(2)]
    assert [each.report.range for each in first if isinstance(each, Reported)] == RANGES[1:]
    played.gate.set()
    last = told.get(timeout=300)
    assert isinstance(last, Reported)
    assert last.report.range == RANGES[0]
    assert told.get(timeout=300) == JobEnded(job="j")


@pytest.mark.parametrize("kind", [ValueError, PanicError])
def test_a_task_that_spark_gives_up_is_the_jobs_reason(kind: type[BaseException]) -> None:
    session = PlayedSession()
    ran, told = runner(session)
    session.error = kind("the executor is gone\n\tat java")
    ran.start(task()[1], [parts(1)])
    assert told.get(timeout=300) == JobEnded(job="j", reason="the executor is gone")


def test_a_job_that_is_cancelled_before_it_is_submitted_is_not_submitted() -> None:
    session = PlayedSession()
    ran, told = runner(session)
    ran.cancel("j")
    ran.start(task()[1], [parts(1)])
    assert told.get(timeout=300) == JobEnded(job="j", reason="cancelled")
    ran.close()
    assert session.interrupted == ["instride-j"]


def test_a_server_that_is_silent_holds_up_nobody_who_cancels() -> None:
    """The group's poll waited for it, and a stop for ten minutes a job. It is told of a job by one thread at a time."""
    session = PlayedSession()
    session.gate.clear()
    ran, _ = runner(session)
    ran.cancel("j")
    ran.cancel("j")
    ran.cancel("k")
    assert session.interrupted == []
    session.gate.set()
    ran.close()
    assert sorted(session.interrupted) == ["instride-j", "instride-k"]
    ran.cancel("j")
    ran.close()
    assert len(session.interrupted) == 3, "a cancellation may have missed an operation: the next one is told, too"


def test_a_stop_waits_for_a_silent_server_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connect_jobs, "_PATIENCE", 0.0)
    session = PlayedSession()
    session.gate.clear()
    ran, _ = runner(session)
    ran.cancel("j")
    ran.close()
    (thread,) = ran._calls.values()
    assert thread.is_alive()
    session.gate.set()
    thread.join(PATIENCE)


def test_a_server_that_takes_no_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    session = PlayedSession()
    session.interrupt_error = ValueError("the server is gone")
    ran, _ = runner(session)
    with caplog.at_level(logging.WARNING):
        ran.cancel("j")
        ran.close()
    assert "Spark was not told to cancel job j: the server is gone" in caplog.text


@pytest.mark.parametrize(("lacking", "reported"), [("-1", RANGES[1:2]), ("-j", [])])
def test_a_job_for_which_the_system_has_too_few_threads_ends(
    monkeypatch: pytest.MonkeyPatch, lacking: str, reported: list[OutputRange]
) -> None:
    """Its range was under way for ever, or the run ended."""
    start = threading.Thread.start

    def fails(thread: threading.Thread) -> None:
        if thread.name.endswith(lacking):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fails)
    ran, told = runner(PlayedSession())
    ran.start(task()[1], [parts(1), parts(2)])
    for wanted in reported:
        assert told.get(timeout=PATIENCE) == Reported(report=RangeReport(job="j", range=wanted))
    assert told.get(timeout=PATIENCE) == JobEnded(job="j", reason="can't start new thread")
