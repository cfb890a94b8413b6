"""What a pipeline tells its `on_event` callback: what became of its work, and of its partitions.

Laws
1. Every event is told on the thread that is inside `Pipeline.run`, in the order in which things happened there.
2. A range is told as committed when the sink has it; the group's offset follows.
3. An exception of the callback ends the run at once; what is under way is cancelled.
4. `OwnershipChanged` is telemetry's (`instride.telemetry`), of the pipeline's own consumer. To the pipeline it means:
   REVOKE_REQUESTED: no new job gets these partitions. DELAYED: kept until the job under way is committed. LOST: what
   their ranges wrote is not committed, and a job that has nothing but lost ranges left is cancelled.
"""

from __future__ import annotations

from dataclasses import dataclass

from instride.records import OffsetRange
from instride.telemetry import OwnershipChanged

__all__ = [
    "JobFinished",
    "JobStarted",
    "PipelineEvent",
    "RangeCommitted",
    "RangeDropped",
    "RangeFailed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted:
    """A Spark job began to work on these ranges, one of each partition."""

    job: str
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeCommitted:
    """The sink has the range's output.

    rows: how many were written; they need not be as many as were read. behind: how many of the partition's offsets are
    known by now that are not in the sink. delay: seconds from when the first of its offsets was known until now.
    dead_letters: how many of its records went to the topic of dead letters, which has acknowledged them.
    """

    job: str
    range: OffsetRange
    rows: int
    behind: int = 0
    delay: float = 0.0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeDropped:
    """The range's output is not used: the partition was lost, or the sink is at another position (or None)."""

    job: str
    range: OffsetRange
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFailed:
    """Work on the range failed. again: whether it is going to be tried again; else the pipeline stops."""

    job: str
    range: OffsetRange
    reason: str
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished:
    """Nothing of the job is in progress any more: each of its ranges was committed, dropped or failed."""

    job: str


PipelineEvent = OwnershipChanged | JobStarted | RangeCommitted | RangeDropped | RangeFailed | JobFinished
"""What `on_event` hears."""
