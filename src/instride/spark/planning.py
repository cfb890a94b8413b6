"""Which offsets make up the next job. Pure: no thread, no clock, no Spark; the time is an argument.

Laws
1. A partition has at most one range in flight, and its ranges are planned in order and without a gap.
2. A job is made when fewer ranges are in flight than Spark has cores, so that they are never idle and what arrives
   meanwhile is gathered. Every partition that is idle and has offsets joins it, with one range: none is starved by
   another's backlog (KIP-41), and a slow one shares its later time with nobody.
3. A range is bounded in records and, by what the partition's records were seen to weigh, in bytes.
4. A failed range is tried again as it was, after a pause that doubles, in a job of its own: what fails with others
   may have failed because of them.
5. What is reset (lost, revoked, sought) is forgotten, with all that was planned of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from instride.records import OffsetRange, TopicPartition

__all__ = ["Limits", "Planner"]

_FIRST_GUESS: Final = 1024.0
"""Bytes of a record, before any was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """range_records, range_bytes: of one partition in one job. jobs: how many run at a time.

    linger: seconds for which a partition's offsets may gather before they are worth a job.
    retries: how often a failed range is tried again. backoff, backoff_max: seconds before that.
    """

    range_records: int = 100_000
    range_bytes: int = 64 << 20
    jobs: int = 8
    linger: float = 0.1
    retries: int = 3
    backoff: float = 0.5
    backoff_max: float = 30.0


@dataclass(slots=True)
class _Lane:
    """One partition: what was offered and not planned, and the range in flight or to be tried again."""

    pending: deque[OffsetRange] = field(default_factory=deque)
    since: float = 0.0
    running_job: OffsetRange | None = None
    retry: OffsetRange | None = None
    ready_at: float = 0.0
    failures: int = 0
    record_bytes: float = _FIRST_GUESS

    @property
    def waiting(self) -> int:
        return self.pending[-1].end - self.pending[0].start if self.pending else 0


class Planner:
    """See the laws above. Not thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        """How many ranges are in jobs."""
        return self._in_flight

    def offer(self, ranges: Iterable[OffsetRange], now: float) -> None:
        """Offsets that a poll returned."""
        for each in ranges:
            lane = self._lanes.setdefault(each.topic_partition, _Lane())
            if not lane.pending:
                lane.since = now
            lane.pending.append(each)

    def plan(
        self, now: float, *, jobs: int, cores: int, blocked: Container[TopicPartition] = ()
    ) -> tuple[OffsetRange, ...]:
        """The ranges of a job to start now; none where there is nothing to do, or too much is under way.

        jobs: how many are running. cores: how many tasks Spark runs at a time. blocked: partitions that get no new
        job. Every range given out is in flight until `succeeded`, `failed`, `withdraw` or `reset`.
        """
        if jobs >= self._limits.jobs or self._in_flight >= cores:
            return ()
        idle = {tp: lane for tp, lane in self._lanes.items() if lane.running_job is None and tp not in blocked}
        chosen = next((lane for lane in idle.values() if self._may_retry(lane, now)), None)
        if chosen is not None:
            return (self._start(chosen),)
        fresh = [lane for lane in idle.values() if lane.pending and lane.retry is None]
        if not any(self._is_due(lane, now) for lane in fresh):
            return ()
        return tuple(self._start(lane) for lane in fresh)

    def _may_retry(self, lane: _Lane, now: float) -> bool:
        return lane.retry is not None and lane.ready_at <= now

    def _is_due(self, lane: _Lane, now: float) -> bool:
        return lane.since + self._limits.linger <= now or lane.waiting >= self._most(lane)

    def _most(self, lane: _Lane) -> int:
        return max(1, min(self._limits.range_records, int(self._limits.range_bytes / lane.record_bytes)))

    def _start(self, lane: _Lane) -> OffsetRange:
        if lane.retry is not None:
            running_job, lane.retry = lane.retry, None
        else:
            running_job = _take(lane.pending, self._most(lane))
        lane.running_job = running_job
        self._in_flight += 1
        return running_job

    def succeeded(self, running_job: OffsetRange, *, records: int, nbytes: int) -> None:
        """The range is in the sink. records, nbytes: what was read."""
        lane = self._landed(running_job)
        if lane is not None:
            lane.failures = 0
            if records:
                lane.record_bytes = max(1.0, nbytes / records)

    def failed(self, running_job: OffsetRange, now: float) -> bool:
        """Work on the range failed. True: it will be planned again; False: it was tried often enough."""
        lane = self._landed(running_job)
        if lane is None:
            return True
        lane.failures += 1
        lane.retry = running_job
        pause = self._limits.backoff * 2.0 ** min(lane.failures - 1, 30)
        lane.ready_at = now + min(self._limits.backoff_max, pause)
        return lane.failures <= self._limits.retries

    def withdraw(self, partition: TopicPartition) -> None:
        """What is in flight or to be tried again is taken back, to be planned anew, should it come to that."""
        lane = self._lanes.get(partition)
        if lane is None:
            return
        taken = lane.running_job or lane.retry
        self._in_flight -= lane.running_job is not None
        lane.running_job = lane.retry = None
        if taken is not None:
            lane.pending.appendleft(taken)

    def is_waiting_to_retry(self, partition: TopicPartition) -> bool:
        lane = self._lanes.get(partition)
        return lane is not None and lane.retry is not None

    def reset(self, partition: TopicPartition) -> None:
        """Forget the partition."""
        lane = self._lanes.pop(partition, None)
        self._in_flight -= lane is not None and lane.running_job is not None

    def _landed(self, running_job: OffsetRange) -> _Lane | None:
        lane = self._lanes.get(running_job.topic_partition)
        if lane is None or lane.running_job != running_job:
            return None
        lane.running_job = None
        self._in_flight -= 1
        return lane


def _take(pending: deque[OffsetRange], most: int) -> OffsetRange:
    """At most that many offsets from the front. Neighbours of one epoch and seek number become one range."""
    first = last = pending.popleft()
    while pending and pending[0].start == last.end and _same(pending[0], first) and last.end - first.start < most:
        last = pending.popleft()
    if last.end - first.start <= most:
        return replace(last, start=first.start)
    middle = first.start + most
    pending.appendleft(replace(last, start=middle))
    # The leader epoch is that of the range's own end; nothing says whose leader wrote the record in the middle.
    return replace(first, end=middle, leader_epoch=-1)


def _same(left: OffsetRange, right: OffsetRange) -> bool:
    return (left.epoch, left.seek_number) == (right.epoch, right.seek_number)
