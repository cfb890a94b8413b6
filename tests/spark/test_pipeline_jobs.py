"""A pipeline's jobs on a classic session, with a played context: that a job's end is told in any case."""

from __future__ import annotations

import queue
from typing import Any, cast

from run_help import PATIENCE, PanicError

from instride.spark._jobs import JobRunner
from instride.spark._report import JobEnded, JobMessage


class PanickingContext:
    """Of Spark. A library in Rust panics beneath it."""

    def accumulator(self, value: object, param: object) -> object:
        return object()

    def setLocalProperty(self, name: str, value: str) -> None:
        raise PanicError("index out of bounds")


class NamedTask:
    job = "j"


def test_a_job_that_panics_has_ended() -> None:
    """Its range was under way for ever: the thread of the job ended in silence."""
    told: queue.SimpleQueue[JobMessage] = queue.SimpleQueue()
    JobRunner(cast(Any, PanickingContext()), told.put)._run(cast(Any, NamedTask()), [])
    assert told.get(timeout=PATIENCE) == JobEnded(job="j", reason="index out of bounds")
