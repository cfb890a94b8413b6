"""What a run's events add up to: who owned each partition when, what ran when, and how each hand-over went.

Laws
1. A history is made of events alone, in the order of time; it asks no clock.
2. A partition is in one state of one application at a time. An assignment ends what another one still had: a
   killed process never says that it let go.
3. A hand-over goes from the request (or the loss) to the next assignment, of whichever application.
4. A partition is *moving* from then until its first progress after that. Only the others count as not moving.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from demo.events import (
    Change,
    Event,
    JobFailed,
    JobFinished,
    JobStarted,
    Life,
    Mark,
    Ownership,
    Produced,
    Progress,
    Range,
)

__all__ = ["HELD", "STATE_AFTER", "Handover", "History", "Job", "Span", "State", "history"]


class State(StrEnum):
    """What the owner of a partition is about to do with it."""

    OWNED = "owned"
    TO_BE_REVOKED = "to be revoked"
    DELAYED = "delayed"
    COMPLETING = "completing"
    LOST = "lost"


STATE_AFTER: Final[dict[Change, State | None]] = {
    Change.ASSIGNED: State.OWNED,
    Change.REVOKE_REQUESTED: State.TO_BE_REVOKED,
    Change.DELAYED: State.DELAYED,
    Change.COMPLETING: State.COMPLETING,
    Change.REVOKED: None,
    Change.LOST: State.LOST,
    Change.REASSIGNED: State.OWNED,
}
HELD: Final = frozenset({State.TO_BE_REVOKED, State.DELAYED, State.COMPLETING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A partition was in one state of one application, from start to end (seconds)."""

    partition: int
    app: str
    state: State
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work on ranges of offsets. end: None while it runs, or where its process died."""

    app: str
    name: str
    ranges: tuple[Range, ...]
    start: float
    end: float | None = None
    failed: str | None = None

    def works_on(self, partition: int) -> bool:
        return any(each.partition == partition for each in self.ranges)

    def __str__(self) -> str:
        where = ", ".join(f"partition {p} offsets {start:,}-{end - 1:,}" for p, start, end in self.ranges)
        return f"{self.app}'s {self.name} ({where})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A partition that was asked for, or lost.

    requested, released, resumed: when it was asked for, let go, and owned again; None if that never came.
    before, after: the applications. reassigned: the group left it where it was. cause: what it was kept for: work
    on it or, where a client gives up several only together, on one of the others.
    """

    partition: int
    before: str
    requested: float
    released: float | None = None
    resumed: float | None = None
    after: str | None = None
    lost: bool = False
    reassigned: bool = False
    cause: Job | None = None

    @property
    def delay(self) -> float | None:
        """Seconds between the request and the release."""
        return None if self.released is None else self.released - self.requested


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A run, folded. Times are those of the events.

    start: when something first happened, which is later than its processes' start. moving: by partition, when it was on
    its way. ends: by partition, the end of what was produced.
    """

    start: float
    end: float
    spans: tuple[Span, ...]
    jobs: tuple[Job, ...]
    progress: tuple[Progress, ...]
    handovers: tuple[Handover, ...]
    moving: dict[int, tuple[tuple[float, float], ...]]
    marks: tuple[Mark, ...]
    ends: dict[int, int]

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(sorted({span.partition for span in self.spans} | {p.partition for p in self.progress}))

    @property
    def apps(self) -> tuple[str, ...]:
        return tuple(sorted({span.app for span in self.spans} | {p.app for p in self.progress}))

    def was_moving(self, partition: int, at: float) -> bool:
        return any(start <= at <= end for start, end in self.moving.get(partition, ()))


def history(events: Iterable[Event]) -> History:
    """Fold the events of a run, in any order, to its history. Without events it is empty."""
    ordered = sorted(events, key=lambda event: event.t)
    times = [event.t for event in ordered if not isinstance(event, Life)]
    start, end = (times[0], times[-1]) if times else (0.0, 0.0)
    jobs = tuple(_jobs(ordered))
    handovers = tuple(_with_causes(_handovers(ordered), jobs))
    progress = tuple(event for event in ordered if isinstance(event, Progress))
    return History(
        start=start,
        end=end,
        spans=tuple(_spans(ordered, end)),
        jobs=jobs,
        progress=progress,
        handovers=handovers,
        moving=_moving(handovers, progress, end),
        marks=tuple(event for event in ordered if isinstance(event, Mark)),
        ends={event.partition: event.end for event in ordered if isinstance(event, Produced)},
    )


def _changes(ordered: Iterable[Event]) -> Iterator[tuple[float, str, Change, int]]:
    for event in ordered:
        if isinstance(event, Ownership):
            for partition in event.partitions:
                yield event.t, event.app, event.change, partition


def _spans(ordered: Iterable[Event], end: float) -> Iterator[Span]:
    now: dict[int, tuple[float, str, State]] = {}
    for t, app, change, partition in _changes(ordered):
        if not _concerns_owner(now.get(partition), app, change):
            continue
        if partition in now:
            yield _span(partition, now.pop(partition), t)
        if (state := STATE_AFTER[change]) is not None:
            now[partition] = (t, app, state)
    for partition, open_span in now.items():
        yield _span(partition, open_span, end)


def _concerns_owner(owner: tuple[float, str, State] | None, app: str, change: Change) -> bool:
    """A late word of one that is the owner no more changes nothing."""
    return change is Change.ASSIGNED or (owner is not None and owner[1] == app)


def _span(partition: int, opened: tuple[float, str, State], end: float) -> Span:
    start, app, state = opened
    return Span(partition=partition, app=app, state=state, start=start, end=end)


def _jobs(ordered: Iterable[Event]) -> Iterator[Job]:
    running: dict[tuple[str, str], JobStarted] = {}
    for event in ordered:
        if isinstance(event, JobStarted):
            running[event.app, event.job] = event
        elif isinstance(event, JobFinished | JobFailed) and (begun := running.pop((event.app, event.job), None)):
            yield _job(begun, event.t, event.reason if isinstance(event, JobFailed) else None)
    for begun in running.values():
        yield _job(begun, None, None)


def _job(begun: JobStarted, end: float | None, failed: str | None) -> Job:
    return Job(app=begun.app, name=begun.job, ranges=begun.ranges, start=begun.t, end=end, failed=failed)


@dataclass(slots=True)
class _Open:
    """A hand-over under way."""

    before: str
    requested: float
    released: float | None = None
    lost: bool = False


def _handovers(ordered: Iterable[Event]) -> Iterator[Handover]:
    under_way: dict[int, _Open] = {}
    for t, app, change, partition in _changes(ordered):
        current = under_way.get(partition)
        if change in (Change.REVOKE_REQUESTED, Change.LOST) and current is None:
            current = under_way[partition] = _Open(app, t)
        if current is None:
            continue
        if change is Change.ASSIGNED or (change is Change.REASSIGNED and app == current.before):
            yield _ended(partition, under_way.pop(partition), t, app, reassigned=change is Change.REASSIGNED)
        elif change in (Change.REVOKED, Change.LOST) and app == current.before and current.released is None:
            current.released, current.lost = t, change is Change.LOST
    for partition, current in under_way.items():
        yield _ended(partition, current, None, None, reassigned=False)


def _ended(partition: int, opened: _Open, t: float | None, after: str | None, *, reassigned: bool) -> Handover:
    released = t if opened.released is None else opened.released
    return Handover(
        partition=partition,
        before=opened.before,
        requested=opened.requested,
        released=released,
        resumed=t,
        after=after,
        lost=opened.lost,
        reassigned=reassigned,
    )


def _with_causes(handovers: Iterable[Handover], jobs: tuple[Job, ...]) -> Iterator[Handover]:
    ordered = sorted(handovers, key=lambda handover: (handover.requested, handover.partition))
    for each in ordered:
        together = {
            other.partition
            for other in ordered
            if other.before == each.before and other.requested <= each.requested < (other.released or math.inf)
        }
        yield replace(each, cause=_cause(each, together, jobs))


def _cause(handover: Handover, together: set[int], jobs: tuple[Job, ...]) -> Job | None:
    """The job that ended last before the release, of those under way at the request on a partition asked for."""
    released = math.inf if handover.released is None else handover.released
    held_by = [
        (math.inf if job.end is None else job.end, job)
        for job in jobs
        if job.app == handover.before
        and job.start <= handover.requested
        and any(job.works_on(partition) for partition in together)
    ]
    ended_last = [each for each in held_by if handover.requested < each[0] <= released]
    return max(ended_last, key=lambda each: (each[0], each[1].works_on(handover.partition)), default=(0, None))[1]


def _moving(
    handovers: Iterable[Handover], progress: tuple[Progress, ...], end: float
) -> dict[int, tuple[tuple[float, float], ...]]:
    times: defaultdict[int, list[float]] = defaultdict(list)
    for each in progress:
        times[each.partition].append(each.t)
    windows: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for handover in handovers:
        resumed = end if handover.resumed is None else handover.resumed
        first = next((t for t in times[handover.partition] if t >= resumed), end)
        windows[handover.partition].append((handover.requested, first))
    return {partition: tuple(sorted(each)) for partition, each in windows.items()}
