"""What is asked of the sink while the pipeline runs, on threads of its own: a slow sink holds up no poll.

Laws
1. The sink is told of a range only while it is still ours; right before, that is looked at once more.
2. A commit that raises is tried again with the same job, which the sink's contract makes safe. What fails then, fails
   the range.
3. Where work on a range failed, the sink is asked first how far it is: if another has gone on, the failure is no
   failure but a conflict. Not so what concerns more than the range, as that the topic was made again: what is fatal
   stays a failure. But offsets that are gone may be gone since another has read them. A sink that does not say how far
   it is leaves the failure as it is: that is what is to be told, not the sink's.
4. Whatever the sink raises is told, a panic of its native library too: the pool would only log it. The log has its
   text only where that is ours: a database quotes the row that it refuses.
5. A call that hangs keeps no process from ending. It is abandoned then, which the sink's contract makes safe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from instride._processing.dead_letters import text_of
from instride.errors import KafkaError, OffsetsGoneError
from instride.spark._daemon_pool import DaemonPool
from instride.spark._report import RangeProblem, RangeReport, problem_of
from instride.spark._running_jobs import RunningJob
from instride.spark.sink import CommitOutcome, CommitStatus, JobResult, Sink, WrittenRange

__all__ = ["Committed", "Committer", "Failed"]

_log = logging.getLogger(__name__)
_THREADS: Final = 16
_TRIES: Final = 3
_PAUSE: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The sink's response. report: what the task told, or None where the driver wanted only its position."""

    running_job: RunningJob
    outcome: CommitOutcome
    report: RangeReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    running_job: RunningJob
    problem: RangeProblem


class Committer:
    """tell: hears `Committed` or `Failed`, on one of the committer's threads."""

    def __init__(self, sink: Sink, tell: Callable[[Committed | Failed], None]) -> None:
        self._sink = sink
        self._tell = tell
        self._closing = threading.Event()
        self._pool = DaemonPool(_THREADS, "instride-commit")

    def commit(self, running_job: RunningJob, report: RangeReport, written: WrittenRange) -> None:
        """Bring a range's output into the sink."""
        self._pool.submit(lambda: self._guarded(running_job, lambda: self._commit(running_job, report, written)))

    def look(self, running_job: RunningJob, problem: RangeProblem) -> None:
        """The range failed: find out whether that matters."""
        self._pool.submit(lambda: self._guarded(running_job, lambda: self._look(running_job, problem)))

    def close(self) -> None:
        """Begin nothing more. What is being committed goes on to its end, or to that of the process."""
        self._closing.set()
        self._pool.close()

    def _guarded(self, running_job: RunningJob, work: Callable[[], Committed | Failed]) -> None:
        try:
            response = work()
        except BaseException as error:  # noqa: BLE001 - a sink may be anybody's; the range fails with what it raised
            problem = problem_of(error, text_of(error))
            _log.warning("the sink: %s: %s", running_job.range, problem.told)
            response = Failed(running_job=running_job, problem=problem)
        self._tell(response)

    def _commit(self, running_job: RunningJob, report: RangeReport, written: WrittenRange) -> Committed | Failed:
        result = JobResult(job=report.job, written=(written,))
        tries = 0
        while True:
            if running_job.cancelled:
                return Failed(
                    running_job=running_job, problem=RangeProblem(kind="Cancelled", message="not ours any more")
                )
            try:
                outcome = self._sink.commit(result)[running_job.partition]
                return Committed(running_job=running_job, outcome=outcome, report=report)
            except Exception as error:
                if tries == _TRIES - 1 or (isinstance(error, KafkaError) and error.fatal):
                    raise
                _log.info("committing %s once more: %s", running_job.range, problem_of(error, text_of(error)).told)
                # Not a sleep: `close` ends it.
                self._closing.wait(_PAUSE * 2**tries)
                tries += 1

    def _look(self, running_job: RunningJob, problem: RangeProblem) -> Committed | Failed:
        try:
            position = self._sink.positions([running_job.partition])[running_job.partition]
        except Exception as error:
            if isinstance(error, KafkaError) and error.fatal:
                raise
            unknown = problem_of(error, text_of(error)).told
            _log.warning("whether another has gone on with %s is not known: %s", running_job.range, unknown)
            # What may be no failure is not yet one for good.
            fatal = problem.fatal and not _is_of_the_range(problem)
            return Failed(running_job=running_job, problem=replace(problem, fatal=fatal))
        if position is None or position <= running_job.range.start or not _is_of_the_range(problem):
            return Failed(running_job=running_job, problem=problem)
        return Committed(
            running_job=running_job, outcome=CommitOutcome(status=CommitStatus.CONFLICT, position=position)
        )


def _is_of_the_range(problem: RangeProblem) -> bool:
    """Whether it is over once another has gone on (law 3)."""
    return not problem.fatal or problem.kind == OffsetsGoneError.__name__
