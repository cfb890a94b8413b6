"""A pipeline's jobs on a classic session, with a played context: that a job's end is told in any case."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any, cast

import pytest
from run_help import PATIENCE, PanicError

from instride.errors import PipelineError
from instride.spark import _jobs
from instride.spark._jobs import JobRunner
from instride.spark._report import JobEnded, JobMessage, problem_of, reason_of


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


class PanickingContext:
    """Of Spark. A library in Rust panics beneath it."""

    error: BaseException = PanicError("index out of bounds")

    def accumulator(self, value: object, param: object) -> object:
        return object()

    def setLocalProperty(self, name: str, value: str) -> None:
        raise self.error


class NamedTask:
    job = "j"


def test_a_job_that_panics_has_ended() -> None:
    """Its range was under way for ever: the thread of the job ended in silence."""
    told: queue.SimpleQueue[JobMessage] = queue.SimpleQueue()
    JobRunner(cast(Any, PanickingContext()), told.put)._run(cast(Any, NamedTask()), [])
    assert told.get(timeout=PATIENCE) == JobEnded(job="j", reason="index out of bounds")


def test_a_job_that_ends_by_an_error_without_a_text_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PanickingContext, "error", UnspeakableError())
    told: queue.SimpleQueue[JobMessage] = queue.SimpleQueue()
    JobRunner(cast(Any, PanickingContext()), told.put)._run(cast(Any, NamedTask()), [])
    assert told.get(timeout=PATIENCE) == JobEnded(job="j", reason="its text cannot be had: LookupError")


def test_an_error_without_a_text_is_told_by_its_class_and_its_traceback() -> None:
    """Of a function of DataFrames: what was told was the error of its text."""
    problem = problem_of(UnspeakableError())
    assert str(problem) == "UnspeakableError: its text cannot be had: LookupError"
    assert "UnspeakableError" in problem.traceback


class StoppedContext:
    """Of Spark, whose session was stopped: whatever is asked of it raises."""

    stopped = False
    defaultParallelism = 4  # noqa: N815 - Spark's name

    def accumulator(self, value: object, param: object) -> object:
        return object()

    def __getattribute__(self, name: str) -> Any:
        if name not in ("stopped", "accumulator") and object.__getattribute__(self, "stopped"):
            raise AttributeError("'NoneType' object has no attribute 'sc'")
        return object.__getattribute__(self, name)


class PropertylessThread:
    """Of PySpark, which asks the session for the local properties that a thread is to inherit."""

    def __init__(self, **_: object) -> None: ...

    def start(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    "call",
    [lambda runner: runner.cores, lambda runner: runner.cancel("j"), lambda runner: runner.start(NamedTask(), [])],
    ids=["cores", "cancel", "start"],
)
def test_a_session_that_is_stopped_during_a_run_is_said_to_be_so(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[JobRunner], object]
) -> None:
    """The run ended with a Py4JJavaError, or with an AttributeError of None."""
    monkeypatch.setattr(_jobs, "InheritableThread", PropertylessThread)
    context = StoppedContext()
    runner = JobRunner(cast(Any, context), lambda message: None)
    context.stopped = True
    with pytest.raises(PipelineError, match="was its session stopped") as caught:
        call(runner)
    assert isinstance(caught.value.__cause__, AttributeError | AssertionError)


class UnstartableThread(PropertylessThread):
    """Of a system that has none left."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_a_job_whose_thread_cannot_be_started_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ended, and said that Spark did not respond."""
    monkeypatch.setattr(_jobs, "InheritableThread", UnstartableThread)
    told: queue.SimpleQueue[JobMessage] = queue.SimpleQueue()
    JobRunner(cast(Any, PanickingContext()), told.put).start(cast(Any, NamedTask()), [])
    assert told.get(timeout=PATIENCE) == JobEnded(job="j", reason="can't start new thread")


def test_a_reason_of_sparks_is_bounded() -> None:
    assert len(reason_of(ValueError("bad row, " * 1_000_000))) < 2_100
