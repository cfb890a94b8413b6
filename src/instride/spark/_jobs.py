"""Runs Spark jobs beside each other, each on a thread of its own, and hears of their ranges as their tasks end.

Laws
1. A task's reports come through an accumulator as soon as the task has succeeded, and once more as the job's result:
   the first is quick, the second is certain. Whoever is told takes the first of the two.
2. `tell` is called on other threads than the driver's own, one of which holds up all of Spark's scheduling: it must
   return at once.
3. A job bears a tag, by which it is cancelled; one that is not yet submitted is not submitted then.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.util import InheritableThread

from instride.errors import PipelineError
from instride.spark._report import (
    CancelledJobs,
    JobEnded,
    JobMessage,
    RangePart,
    RangeReport,
    Reported,
    problem_from_spark,
    reason_of,
    tag_of,
)
from instride.spark._task import RangeTask

if TYPE_CHECKING:
    from pyspark import SparkContext

    from instride.spark._frames import Frames

__all__ = ["JobRunner"]

_log = logging.getLogger(__name__)
_NAMED: Final = 8
_CORES_SECONDS: Final = 1.0
_WARM_SECONDS: Final = 2.0
_QUICKER: Final = 0.9
_NO_QUICKER: Final = 3
"""So many jobs that did not take less than this part of the quickest one: the JVM is warm."""


class _Reports(AccumulatorParam[list[str]]):
    """Law 1. On the driver what is added is told and forgotten; on executors it is gathered."""

    def __init__(self, tell: Callable[[JobMessage], None] | None) -> None:
        self._tell = tell

    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802 - Spark's name
        if self._tell is None:
            return value1 + value2
        for text in value2:
            self._tell(Reported(report=RangeReport.from_json(text)))
        return []

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Reports, (None,))


class JobRunner:
    """See the laws above. frames: where the function is one of DataFrames."""

    def __init__(self, context: SparkContext, tell: Callable[[JobMessage], None], frames: Frames | None = None) -> None:
        self._context = context
        self._frames = frames
        self._tell = tell
        self._cancelled = CancelledJobs()
        self._count = _counter(context)
        self._cores = 1
        self._ask_cores_at = -math.inf
        self.reports: Accumulator[list[str]] = context.accumulator([], _Reports(tell))

    @property
    def cores(self) -> int:
        """How many tasks Spark runs at a time, or did a second ago. Raises PipelineError where Spark is gone."""
        # The loop looks in each of its steps, and a JVM that is busy takes some 10 ms to respond.
        now = time.monotonic()
        if now >= self._ask_cores_at:
            with _spark_responds():
                self._cores, self._ask_cores_at = self._count(), now + _CORES_SECONDS
        return self._cores

    def prepare(self, task: RangeTask) -> None:
        """Start the workers, and see that they have what the tasks need. Raises PipelineError with what they lack.

        Then such jobs run until they get no quicker, for about `_WARM_SECONDS` at most: a JVM that has run few takes
        0.1 s for each, and the partitions that the group assigns to this member would wait for it.
        """
        self._run_everywhere(task)
        best, no_quicker, until = math.inf, 0, time.monotonic() + _WARM_SECONDS
        while no_quicker < _NO_QUICKER and (began := time.monotonic()) < until:
            self._run_everywhere(task)
            took = time.monotonic() - began
            no_quicker = 0 if took < best * _QUICKER else no_quicker + 1
            best = min(best, took)

    def _run_everywhere(self, task: RangeTask) -> None:
        cores = max(1, self.cores)
        job = self._context.parallelize(range(cores), cores).mapPartitions(task.prepare)
        try:
            failures = job.collect()
        except Exception as error:
            raise PipelineError(f"Spark cannot run the pipeline's tasks: {reason_of(error)}") from error
        if failures:
            raise PipelineError(f"Spark's workers cannot run the pipeline's tasks:\n{failures[0]}")

    def start(self, task: RangeTask, tasks: Sequence[list[RangePart]]) -> None:
        """Submit a job; `JobEnded` comes for it in any case. It inherits this thread's local properties.

        tasks: what each works on. Raises PipelineError as `cores` does.
        """
        work = InheritableThread(target=self._run, args=(task, list(tasks)), name=f"instride-{task.job}", daemon=True)
        with _spark_responds():  # it looks at this thread's local properties
            try:
                work.start()
            except RuntimeError as error:  # the system has no thread left
                self._tell(JobEnded(job=task.job, reason=reason_of(error)))

    def _run(self, task: RangeTask, tasks: list[list[RangePart]]) -> None:
        try:
            reason = self._submit(task, tasks)
        except BaseException as error:  # noqa: BLE001 - told as the job's end: a panic of a library in Rust, too
            _log.debug("job %s", task.job, exc_info=True)
            reason = reason_of(error)
        self._cancelled.discard(task.job)
        self._tell(JobEnded(job=task.job, reason=reason))

    def _submit(self, task: RangeTask, tasks: list[list[RangePart]]) -> str | None:
        context = self._context
        # Spark's pages show it as the place of the call, which would be a line of this file for every job.
        context.setLocalProperty("callSite.short", _described(tasks))
        context.setJobDescription(_described(tasks))
        context.addJobTag(tag_of(task.job))
        if self._frames is not None:
            return self._submit_frames(self._frames, task, tasks)
        job = context.parallelize(tasks, len(tasks)).mapPartitions(task)
        # After the tag was set: a cancellation before this found no job to cancel.
        self._cancelled.check(task.job)
        for text in job.collect():
            self._tell(Reported(report=RangeReport.from_json(text)))
        return None

    def _submit_frames(self, frames: Frames, task: RangeTask, tasks: list[list[RangePart]]) -> str | None:
        for wanted in (each.range for parts in tasks for each in parts):
            self._cancelled.check(task.job)
            try:
                report = frames.run(task, wanted, self.cores, partial(self._cancelled.check, task.job))
            except Exception as error:  # noqa: BLE001 - the user's function may raise anything; the run decides
                report = RangeReport(job=task.job, range=wanted, problem=problem_from_spark(error, task.job))
            self._tell(Reported(report=report))
        return None

    def cancel(self, job: str) -> None:
        """Cancel a job that runs. Again is harmless, and reaches a job that was just being submitted.

        Raises PipelineError as `cores` does.
        """
        # First: a thread that is about to submit looks here. If it has looked already, the next `cancel` ends its job.
        self._cancelled.add(job)
        with _spark_responds():
            self._context.cancelJobsWithTag(tag_of(job))

    def close(self) -> None:
        """Nothing is told any more."""
        from pyspark.accumulators import _accumulatorRegistry  # noqa: PLC0415 - Spark has no public way to end one

        _accumulatorRegistry.pop(self.reports.aid, None)


def _counter(context: SparkContext) -> Callable[[], int]:
    """Says how many tasks Spark runs at a time. It keeps Java's objects: each look would make them anew."""
    try:
        inner = context._jsc.sc()
        return partial(_tasks_at_a_time, inner, inner.resourceProfileManager().defaultResourceProfile())
    except Exception:  # noqa: BLE001 - nothing of it is public: a later Spark may not have it
        return lambda: int(context.defaultParallelism)


def _tasks_at_a_time(inner: Any, profile: Any) -> int:
    # In any case: it raises where the session is stopped, though only Java knows it.
    parallelism = int(inner.defaultParallelism())
    try:
        # What stages with a barrier go by: of the executors that there are by now, and with spark.task.cpus.
        return max(1, int(inner.maxNumConcurrentTasks(profile)))
    except Exception:  # noqa: BLE001 - as above
        return parallelism


@contextmanager
def _spark_responds() -> Iterator[None]:
    """What is raised by a session that was stopped is Java's, or an AttributeError of the None that is left of it."""
    try:
        yield
    except Exception as error:
        raise PipelineError(
            "Spark does not respond any more: was its session stopped, or has its JVM died? What is committed stays. "
            "Stop a pipeline, and wait for its end, before its session"
        ) from error


def _described(tasks: Sequence[Sequence[RangePart]]) -> str:
    """For Spark's pages: the partitions and their offsets."""
    ranges = list(dict.fromkeys(each.range for parts in tasks for each in parts))
    more = f" and {len(ranges) - _NAMED} more" if len(ranges) > _NAMED else ""
    return "instride: " + ", ".join(map(str, ranges[:_NAMED])) + more
