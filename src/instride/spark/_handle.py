"""`PipelineQuery`: a pipeline that runs on a thread of its own, with the names of Spark's StreamingQuery.

Laws
1. Every method may be called from any thread, and none but `awaitTermination` waits.
2. Progress is told by job: what its ranges became, and how long it took from its start to its last commit.
3. What ends the run is kept: `exception` gives it, `awaitTermination` raises it, each time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from instride._processing.dead_letters import text_of
from instride.errors._quoting import counted
from instride.spark._events import (
    JobFinished,
    JobStarted,
    PipelineEvent,
    RangeCommitted,
    RangeDropped,
    RangeFailed,
)
from instride.telemetry import OwnershipChange, OwnershipChanged

__all__ = ["PipelineQuery"]

_KEPT: Final = 100
Progress = dict[str, Any]


class PipelineQuery:
    """What `Pipeline.start` returns."""

    def __init__(
        self, name: str, run: Callable[[Callable[[PipelineEvent], None]], None], stop: Callable[[], None]
    ) -> None:
        """run: works until it is stopped; hears what is to hear of events."""
        self.name = name
        self._run = run
        self._stop = stop
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._owned: set[tuple[str, int]] = set()
        self._jobs: dict[str, _JobProgress] = {}
        self._progress: deque[Progress] = deque(maxlen=_KEPT)
        self._thread = threading.Thread(target=self._work, name=f"instride-pipeline-{name}", daemon=True)

    def begin(self) -> PipelineQuery:
        """For `Pipeline.start`."""
        self._thread.start()
        return self

    @property
    def isActive(self) -> bool:  # noqa: N802 - the names are Spark's, here and below
        """Whether it runs."""
        return self._thread.is_alive()

    @property
    def status(self) -> dict[str, Any]:
        """message: in words. isDataAvailable, isTriggerActive: whether jobs run. partitions: how many are ours."""
        with self._lock:
            jobs, owned = len(self._jobs), len(self._owned)
        if not self.isActive:
            message = "Stopped" if self._error is None else f"Terminated with exception: {text_of(self._error)}"
        else:
            message = f"{counted(jobs, 'job')} running" if jobs else "Waiting for data to arrive"
        return {
            "message": message,
            "isDataAvailable": jobs > 0,
            "isTriggerActive": jobs > 0,
            "partitions": owned,
        }

    @property
    def recentProgress(self) -> list[Progress]:  # noqa: N802
        """Of the last 100 jobs that have ended: id, timestamp, numOutputRows, durationMs, and ranges, each with topic,
        partition, startOffset, endOffset, outcome ("committed", "dropped" or "failed"), and numOutputRows,
        numDeadLetters, offsetsBehindLatest and delayMs (from when an offset was known until it was in the sink), or
        reason.
        """
        with self._lock:
            return list(self._progress)

    @property
    def lastProgress(self) -> Progress | None:  # noqa: N802
        """The newest, or None."""
        with self._lock:
            return self._progress[-1] if self._progress else None

    def exception(self) -> BaseException | None:
        """What ended the run, or None."""
        return self._error

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait for the end; raises what ended the run. With a timeout in seconds: whether it has ended."""
        self._thread.join(timeout)
        if self._error is not None and not self.isActive:
            raise self._error
        return None if timeout is None else not self.isActive

    def stop(self) -> None:
        """As `Pipeline.stop`: what is in progress is finished and committed. `awaitTermination` waits for that."""
        self._stop()

    def _work(self) -> None:
        try:
            self._run(self._hear)
        except BaseException as error:  # noqa: BLE001 - law 3
            self._error = error
        finally:
            with self._lock:
                # Of what the run cancelled, or left to the sink, no event may have come.
                self._progress.extend(job.ended(name) for name, job in self._jobs.items())
                self._jobs.clear()

    def _hear(self, event: PipelineEvent) -> None:
        with self._lock:
            match event:
                case OwnershipChanged():
                    self._changed(event)
                case JobStarted():
                    self._jobs[event.job] = _JobProgress()
                case JobFinished():
                    job = self._jobs.pop(event.job, None)
                    if job is not None:
                        self._progress.append(job.ended(event.job))
                case RangeCommitted() | RangeDropped() | RangeFailed():
                    if event.job in self._jobs:
                        self._jobs[event.job].ranges.append(_of(event))

    def _changed(self, event: OwnershipChanged) -> None:
        if event.change is OwnershipChange.ASSIGNED:
            self._owned.update(event.partitions)
        elif event.change in (OwnershipChange.REVOKED, OwnershipChange.LOST):
            self._owned.difference_update(event.partitions)


class _JobProgress:
    def __init__(self) -> None:
        self.ranges: list[Progress] = []
        self._at = datetime.now(UTC)
        self._began = time.monotonic()

    def ended(self, job: str) -> Progress:
        return {
            "id": job,
            "timestamp": self._at.isoformat(timespec="milliseconds"),
            "numOutputRows": sum(each.get("numOutputRows", 0) for each in self.ranges),
            "durationMs": round(1000 * (time.monotonic() - self._began)),
            "ranges": self.ranges,
        }


def _of(event: RangeCommitted | RangeDropped | RangeFailed) -> Progress:
    where = event.range
    found = {"topic": where.topic, "partition": where.partition, "startOffset": where.start, "endOffset": where.end}
    match event:
        case RangeCommitted():
            return {
                **found,
                "outcome": "committed",
                "numOutputRows": event.rows,
                "numDeadLetters": event.dead_letters,
                "offsetsBehindLatest": event.behind,
                "delayMs": round(1000 * event.delay),
            }
        case RangeDropped():
            return {**found, "outcome": "dropped"}
        case RangeFailed():
            return {**found, "outcome": "failed", "reason": event.reason}
