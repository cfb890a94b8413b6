"""Runs a pipeline's jobs over Spark Connect, where there are no accumulators and no jobs of the driver's own.

Laws
1. Each task of a job is an operation of its own, `range(1).mapInArrow(task)`, on a thread of its own. Connect gives an
   operation's rows in the order of its tasks: in one operation a slow task would hold up what others have to tell.
2. `tell` is called on those threads.
3. The operations of a job bear a tag, by which they are interrupted; one that is not yet begun is not begun then. The
   server is told of it on a thread of its own: it may be dead or silent, and the group is not to wait for that.
4. How many tasks Spark runs at a time is known from `prepare` on: a client is told of it by nothing but a job. Where
   the server's conf says how many tasks a range has, that is what it learns.
5. A server closes a session in which nothing is called for an hour, and a pipeline may have no records for longer. So
   it is called all the same while work may be begun. A session that it has lost takes no job any more: that ends the
   run, since each range would fail as often as it is tried.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

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
    import pyarrow as pa

    from instride.spark._frames import Frames

__all__ = ["ConnectJobRunner", "over_connect"]

_log = logging.getLogger(__name__)
_PATIENCE: Final = 10.0
"""Seconds that the server has at the end to take cancellations."""
_MANY: Final = 1 << 16
"""Rows of the first job: Spark makes as many tasks of them as it runs at a time."""
_CALL_SECONDS: Final = 60.0
"""Between two calls of law 5. A server may be told to close sessions sooner than after an hour."""
_LOST: Final = "INVALID_HANDLE.SESSION_"
"""Spark's names of the errors of a session that is not there. PySpark takes note of one of them only."""


def over_connect(spark: object) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class ConnectJobRunner:
    """As `JobRunner`; see the laws above. spark: a session of Connect. frames: where the function is of DataFrames.

    clock: in seconds.
    """

    reports = None

    def __init__(
        self,
        spark: Any,
        tell: Callable[[JobMessage], None],
        frames: Frames | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._frames = frames
        self._tell = tell
        self._cancelled = CancelledJobs()
        self._calls: dict[str, threading.Thread] = {}
        self._cores = 1
        self._clock = clock
        self._call_at = clock() + _CALL_SECONDS
        self._lost: BaseException | None = None

    @property
    def cores(self) -> int:
        """How many tasks Spark runs at a time (law 4). Raises PipelineError where the session is stopped, or lost.

        For the thread of the loop, which asks in each turn in which it may begin work: so the session is kept, too
        (law 5).
        """
        if self._lost is not None or self._spark.is_stopped:
            raise PipelineError(
                "the session of Spark Connect is stopped, or its server has lost it. What is committed stays. Stop a "
                "pipeline, and wait for its end, before you stop its session"
            ) from self._lost
        now = self._clock()
        if now >= self._call_at:
            self._call_at = now + _CALL_SECONDS
            self._aside("call", self._call)
        return self._cores

    def prepare(self, task: RangeTask) -> None:
        """Start the workers, and see that they have what the tasks need. Raises PipelineError with what they lack."""
        try:
            rows = self._spark.range(_MANY).mapInArrow(_Prepare(task), "problem string").collect()
        except Exception as error:
            raise PipelineError(f"Spark cannot run the pipeline's tasks: {reason_of(error)}") from error
        problems = [row["problem"] for row in rows if row["problem"]]
        if problems:
            raise PipelineError(f"Spark's workers cannot run the pipeline's tasks:\n{problems[0]}")
        self._cores = max(1, len(rows))

    def start(self, task: RangeTask, tasks: Sequence[list[RangePart]]) -> None:
        """Submit a job; `JobEnded` comes for it in any case. tasks: what each works on."""
        reasons: list[str] = []
        if _begun(f"instride-{task.job}", reasons, self._run, task, list(tasks)) is None:
            self._tell(JobEnded(job=task.job, reason=reasons[0]))

    def cancel(self, job: str) -> None:
        """Cancel a job that runs. Again is harmless, and reaches an operation that was just being submitted. Returns at
        once (law 3).
        """
        self._cancelled.add(job)
        self._aside(f"cancel-{job}", self._interrupt, job)

    def close(self) -> None:
        """Wait for what the server is being told, for some seconds. Operations end by themselves."""
        deadline = time.monotonic() + _PATIENCE
        for thread in self._calls.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _aside(self, what: str, work: Callable[..., None], *arguments: Any) -> None:
        """What calls the server for the loop, on a thread of its own; one at a time of the same."""
        for each in [each for each, thread in self._calls.items() if not thread.is_alive()]:
            del self._calls[each]
        if what not in self._calls:
            thread = _begun(f"instride-{what}", [], work, *arguments)
            if thread is not None:
                self._calls[what] = thread

    def _interrupt(self, job: str) -> None:
        try:
            self._spark.interruptTag(tag_of(job))
        except Exception as error:  # noqa: BLE001 - the job may go on, and nothing of it is committed
            self._note(error)
            _log.warning("Spark was not told to cancel job %s: %s", job, reason_of(error))

    def _call(self) -> None:
        """Law 5. Nothing has this tag: no other call is as cheap, and is sure to reach the server."""
        try:
            self._spark.interruptTag(tag_of("call"))
        except Exception as error:  # noqa: BLE001 - a later call may succeed; a lost session `_note` tells
            self._note(error)
            _log.warning("Spark's server did not take the call that keeps the session: %s", reason_of(error))

    def _note(self, error: BaseException) -> None:
        """Law 5: whether the session is lost."""
        from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra

        # Not by its text, which may quote a record.
        if isinstance(error, PySparkException) and str(error.getCondition()).startswith(_LOST):
            self._lost = error

    def _run(self, task: RangeTask, tasks: list[list[RangePart]]) -> None:
        reasons: list[str] = []
        begun = [
            _begun(f"instride-{task.job}-{number}", reasons, self._run_one, task, parts, reasons)
            for number, parts in enumerate(tasks)
        ]
        for thread in begun:
            if thread is not None:
                thread.join()
        self._cancelled.discard(task.job)
        self._tell(JobEnded(job=task.job, reason=reasons[0] if reasons else None))

    def _run_one(self, task: RangeTask, parts: list[RangePart], reasons: list[str]) -> None:
        try:
            # On this very thread: a client's tags are each thread's own.
            self._spark.addTag(tag_of(task.job))
            work = self._worked if self._frames is None else self._framed
            for report in work(task, parts):
                self._tell(Reported(report=report))
        except BaseException as error:  # noqa: BLE001 - told as the job's end: a panic of a library in Rust, too
            _log.debug("job %s", task.job, exc_info=True)
            self._note(error)
            reasons.append(reason_of(error))

    def _worked(self, task: RangeTask, parts: list[RangePart]) -> Iterator[RangeReport]:
        frame = self._spark.range(0, 1, 1, 1).mapInArrow(_Work(task, tuple(parts)), "report string")
        self._cancelled.check(task.job)
        for row in frame.collect():
            yield RangeReport.from_json(row["report"])

    def _framed(self, task: RangeTask, parts: list[RangePart]) -> Iterator[RangeReport]:
        assert self._frames is not None
        for part in parts:
            self._cancelled.check(task.job)
            try:
                yield self._frames.run(task, part.range, self._cores, partial(self._cancelled.check, task.job))
            except Exception as error:  # noqa: BLE001 - the user's function may raise anything; the run decides
                self._note(error)
                yield RangeReport(job=task.job, range=part.range, problem=problem_from_spark(error, task.job))


def _begun(name: str, reasons: list[str], work: Callable[..., None], *arguments: Any) -> threading.Thread | None:
    """A thread that does the work; None where the system has none left: why is then the last of the reasons."""
    thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except Exception as error:  # noqa: BLE001 - told as the reason
        reasons.append(reason_of(error))
        _log.warning("%s cannot begin: %s", name, reasons[-1])
        return None
    return thread


@dataclass(frozen=True, slots=True)
class _Work:
    """On an executor: one task's ranges to their reports."""

    task: RangeTask
    parts: tuple[RangePart, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - an extra

        for _ in batches:
            for report in self.task([list(self.parts)]):
                yield pa.record_batch({"report": [report]})


@dataclass(frozen=True, slots=True)
class _Prepare:
    """On an executor: one row of each task, "" where all is there."""

    task: RangeTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - an extra

        for _ in batches:
            pass
        problems = list(self.task.prepare(()))
        yield pa.record_batch({"problem": [problems[0] if problems else ""]})
