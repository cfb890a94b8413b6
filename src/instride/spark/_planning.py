"""Which offsets make up the next job, and which of its tasks does what. Pure: no thread, no clock, no Spark; the time
is an argument.

Laws
1. A partition has at most one range in flight, and its ranges are planned in order and without a gap.
2. There is no barrier: a job is made whenever tasks would leave a core idle soon, whatever others do. What a task has
   told of holds no core any more, however long the sink takes to commit it. As many tasks as there are cores may wait
   behind those that run, so that no core is idle while a job is submitted; but none waits behind one that takes long,
   since what waits could not be handed over. A partition's offsets gather for `linger`, and jobs begin so far apart:
   ranges that end one after the other go on in one job, since each job costs the driver and the JVM some 15 ms. What
   fills a range waits for neither.
3. Every partition that is idle and has offsets joins the job (but see law 11), with one range: none is starved by
   another's backlog (KIP-41). Each has a task of its own; only where there are many do small ones share tasks, by the
   time that they are expected to take, those whose turn was longest ago first. What does not fit is in the next job.
4. A partition whose last range took long shares its task with nobody; and such partitions never get the last core
   where there are others.
5. A range is bounded in records and, by what the partition's records were seen to weigh, in bytes. Where nobody has
   chosen the bound of records, a range has `_RECORDS`, and more of them as long as they are expected to take no more
   than `_QUICK` seconds: each range costs some 0.1 s of its own. For the same reason it takes all that
   waits, where that is expected to take no more than half as long again. Where a full range is expected to be slow,
   what waits is cut into equal ones: after a small rest a partition counts as quick, and law 4 keeps a core for it.
6. A failed range is tried again as it was, after a pause that doubles, in a job of its own: what fails with others
   may have failed because of them.
7. Where order within a range does not matter, a large range that has a task of its own takes the cores as well that the
   job would leave idle; but not the last one while there are other partitions. One that is tried again is whole.
8. What is reset (lost, revoked, sought) is forgotten, with all that was planned of it. But what was told of its
   topic's records (law 11) is kept: it is of no one partition.
9. A plan costs by what there is to do: of partitions that are idle and have nothing it looks at none.
10. What is kept of a partition that is behind does not grow with each poll.
11. Of a topic's records nothing is known at first, and a range is a small one then, however quick it may be. So of a
   topic's partitions of which more waits than that no more begin than keep the cores busy, as in law 2: its scouts.
   What they tell holds for those that have told nothing themselves. But it makes no partition slow, since a first task
   may be, and of what is slow no range larger than without it. What was not written, or has few records, tells nothing.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from instride.records import OffsetRange, TopicPartition

__all__ = ["Limits", "Planner", "Task"]

Task = tuple[OffsetRange, ...]
"""The ranges of one of Spark's tasks, which are worked on one after another."""

_FIRST_GUESS: Final = 1024.0
"""Bytes of a record, before any was seen."""

_SLOW: Final = 1.0
"""Seconds: a task that takes longer is slow, and no task is packed to take longer."""

_RANGE_SECONDS: Final = 0.01
"""What a range takes besides its records."""

_UNPACKED: Final = 32
"""So many ranges, at least, have a task each."""

_SHARED_PER_CORE: Final = 4
"""So many tasks of a job, at least, where ranges share them: as few as leave no core idle, since a task has a cost
of its own.
"""

_RECORDS: Final = 100_000
_QUICK: Final = 0.5
"""Seconds."""

_PART: Final = 10_000
"""Offsets of a part, at least: a task takes some 20 ms of its own."""

_NEAR: Final = 1 / 64
"""Of the time for which a partition's offsets have waited: so near to each other, two offers count as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """range_records, range_bytes: of one partition in one job; records None: see law 5. jobs: how many run at a time.

    task_ranges: how many share a task, at most. alone: each job has one range. split: tasks may share a range.

    linger: seconds for which a partition's offsets may gather before they are worth a job, and between two jobs.
    retries: how often a failed range is tried again. backoff, backoff_max: seconds before that.
    """

    range_records: int | None = None
    range_bytes: int = 64 << 20
    jobs: int = 8
    task_ranges: int = 32
    alone: bool = False
    split: bool = False
    linger: float = 0.1
    retries: int = 3
    backoff: float = 0.5
    backoff_max: float = 30.0


@dataclass(slots=True, eq=False)
class _Running:
    """A task that has not told of all its ranges: it holds a core, or waits for one. parts: so many tasks share its
    range, and hold a core each.
    """

    since: float
    slow: bool
    ranges: int
    parts: int = 1


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a topic's records were seen to weigh and to take, each."""

    nbytes: float
    seconds: float


@dataclass(slots=True, eq=False)
class _Lane:
    """One partition: what was offered and not planned, and the range in flight or to be tried again.

    task: that works on the range in flight; None once it has told of it. seconds: that its last range took.
    since: when it got what waits. began: when its last range did.
    known: up to which offset was known when; not later, and earlier by `_NEAR` at most.
    """

    pending: deque[OffsetRange] = field(default_factory=deque)
    since: float = 0.0
    running_job: OffsetRange | None = None
    retry: OffsetRange | None = None
    ready_at: float = 0.0
    failures: int = 0
    record_bytes: float = _FIRST_GUESS
    record_seconds: float = 0.0
    seconds: float = 0.0
    task: _Running | None = None
    began: float = -math.inf
    known: deque[tuple[int, float]] = field(default_factory=deque)

    @property
    def waiting(self) -> int:
        return self.pending[-1].end - self.pending[0].start if self.pending else 0


class Planner:
    """See the laws above. Not thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lanes: dict[TopicPartition, _Lane] = {}
        # Law 9: with a range in flight; and those without one that have something to do.
        self._in_flight: dict[TopicPartition, _Lane] = {}
        self._ready: dict[TopicPartition, _Lane] = {}
        self._seen: dict[str, _Seen] = {}  # law 11, by topic
        # Whose last range took long.
        self._slow: set[TopicPartition] = set()
        self._running: set[_Running] = set()
        self._started = -math.inf

    @property
    def in_flight(self) -> int:
        """How many ranges are in jobs."""
        return len(self._in_flight)

    def offer(self, ranges: Iterable[OffsetRange], now: float) -> None:
        """Offsets that a poll returned."""
        for each in ranges:
            lane = self._lanes.setdefault(each.topic_partition, _Lane())
            if not lane.pending:
                lane.since = now
                if lane.running_job is None and lane.retry is None:
                    lane.known.clear()  # all of it is done: nobody asks for its delay any more
            _append(lane.pending, each)
            _note(lane.known, each.end, now)
            self._sort(each.topic_partition, lane)

    def plan(self, now: float, *, jobs: int, cores: int, blocked: Container[TopicPartition] = ()) -> tuple[Task, ...]:
        """The tasks of a job to start now; none where there is nothing to do, or enough is under way.

        jobs: how many are running. cores: how many tasks Spark runs at a time. blocked: partitions that get no new
        job. Every range given out is in flight until `succeeded`, `failed`, `withdraw` or `reset`.
        """
        if jobs >= self._limits.jobs or self._busy_cores >= self._enough(cores, now):
            return ()
        ready = [lane for tp, lane in self._ready.items() if tp not in blocked]
        chosen = self._to_retry(ready, now, cores)
        if chosen is not None:
            return (self._start([chosen], now),)
        fresh = [lane for lane in ready if lane.retry is None]
        # Before law 11: what a first guess would fill does not linger to fill the larger range that others told of.
        if not any(self._is_due(lane, now) for lane in fresh):
            return ()
        packed = self._packed(self._informed(fresh, cores), cores)
        if self._limits.alone:
            packed = [[min((lane for lanes in packed for lane in lanes), key=_since)]] if packed else []
        spare = self._spare(packed, cores) if self._limits.split else 0
        if packed and not self._limits.alone:  # where each job has one range, no wait would bring two together
            self._started = now
        return tuple(self._start(lanes, now, spare) for lanes in packed)

    def _informed(self, fresh: list[_Lane], cores: int) -> list[_Lane]:
        """Law 11: without those that wait for what others of their topic tell."""
        if self._limits.range_records is not None:
            return fresh
        for lane in fresh:
            seen = self._seen.get(lane.pending[0].topic)
            if seen is not None and not lane.record_seconds:
                lane.record_bytes, lane.record_seconds = seen.nbytes, seen.seconds
        guessed = sorted((lane for lane in fresh if self._is_guessed(lane)), key=_since)
        if not guessed:
            return fresh
        # Of those that share a task one alone is at work.
        scouting = {(each.topic, lane.task) for each, lane in self._in_flight.items() if _is_scout(lane)}
        scouts = Counter(topic for topic, _ in scouting)
        held = set()
        for lane in guessed:
            scouts[lane.pending[0].topic] += 1
            if scouts[lane.pending[0].topic] > 2 * cores:
                held.add(lane)
        return [lane for lane in fresh if lane not in held]

    def _is_guessed(self, lane: _Lane) -> bool:
        """Whether its next range is smaller than what waits, only since nobody has told how quick its records are."""
        return not lane.record_seconds and lane.waiting > self._full(lane) >= _PART

    def parts(self, partition: TopicPartition) -> int:
        """How many tasks share its range in flight."""
        lane = self._lanes.get(partition)
        return lane.task.parts if lane is not None and lane.task is not None else 1

    @property
    def _busy_cores(self) -> int:
        """Cores, of those that run or wait for one."""
        return sum(task.parts for task in self._running)

    def _spare(self, packed: list[list[_Lane]], cores: int) -> int:
        """Law 7: cores for each large range besides its own."""
        large = sum(self._is_large(lanes) for lanes in packed)
        # The last term: one core stays free where there are other partitions.
        free = cores - self._busy_cores - len(packed) - (large < len(self._lanes))
        return max(0, free) // large if large else 0

    def _is_large(self, lanes: list[_Lane]) -> bool:
        return len(lanes) == 1 and min(lanes[0].waiting, self._most(lanes[0])) >= 2 * _PART

    def _enough(self, cores: int, now: float) -> int:
        """Law 2: tasks that are under way, of which some wait."""
        slow = sum(task.parts for task in self._running if now - task.since > _SLOW)
        return 2 * cores - min(slow, cores)

    def _packed(self, fresh: list[_Lane], cores: int) -> list[list[_Lane]]:
        """Laws 3 and 4."""
        slow = sorted((lane for lane in fresh if self._expected(lane) > _SLOW), key=_since)
        quick = sorted((lane for lane in fresh if self._expected(lane) <= _SLOW), key=_since)
        if quick or self._has_quick():
            slow = slow[: self._left_for_slow(cores)]
        tasks = [[lane] for lane in slow]
        # The number: of two tasks with one load the lanes would be compared, and cannot be.
        heap = [(0.0, number, list[_Lane]()) for number in range(self._tasks(quick, cores))]
        for lane in quick:
            load, number, lanes = heap[0]
            # This task has the least load. Smaller lanes behind this one are not tried: they have not waited as long.
            if lanes and (load + self._expected(lane) > _SLOW or len(lanes) >= self._limits.task_ranges):
                break
            lanes.append(lane)
            heapq.heapreplace(heap, (load + self._expected(lane), number, lanes))
        return tasks + [lanes for _, _, lanes in sorted(heap, key=lambda entry: entry[1])]

    def _tasks(self, quick: list[_Lane], cores: int) -> int:
        """Law 3: how many tasks there are for those that do not take long."""
        most, least = max(_UNPACKED, _SHARED_PER_CORE * cores), _SHARED_PER_CORE * cores
        if len(quick) <= most:
            return len(quick)
        by_time = math.ceil(sum(map(self._expected, quick)) / _SLOW)
        return min(most, max(least, by_time, math.ceil(len(quick) / self._limits.task_ranges)))

    def _has_quick(self) -> bool:
        """Whether the next range of any partition is expected not to take long."""
        busy = {**self._ready, **self._in_flight}
        # One that has nothing is expected to take as long as its last range did.
        slow = len(self._slow) - sum(partition in self._slow for partition in busy)
        return len(self._lanes) - len(busy) > slow or any(self._expected(lane) <= _SLOW for lane in busy.values())

    def _expected(self, lane: _Lane) -> float:
        """Seconds for its next range: by its records, but what took long last time is taken to do so again."""
        offsets = lane.retry.end - lane.retry.start if lane.retry is not None else min(lane.waiting, self._most(lane))
        by_records = offsets * lane.record_seconds
        return _RANGE_SECONDS + max(by_records, lane.seconds if lane.seconds > _SLOW else 0.0)

    def _left_for_slow(self, cores: int) -> int:
        """Law 4: how many tasks that take long may begin where there are other partitions."""
        return max(0, max(1, cores - 1) - sum(task.slow for task in self._running))

    def _to_retry(self, ready: list[_Lane], now: float, cores: int) -> _Lane | None:
        """Law 4. The first that may be tried again."""
        due = [lane for lane in ready if lane.retry is not None and lane.ready_at <= now]
        if not due:
            return None
        # Law 9: asked once for all of them, since it looks at more than these partitions.
        may_be_slow = self._left_for_slow(cores) > 0 or not self._has_quick()
        return next((lane for lane in due if may_be_slow or self._expected(lane) <= _SLOW), None)

    def _is_due(self, lane: _Lane, now: float) -> bool:
        begins = max(lane.since, self._started) + self._limits.linger
        return begins <= now or lane.waiting >= self._full(lane)

    def _most(self, lane: _Lane) -> int:
        """Law 5. Of the next range: what fills it, and a small rest behind that; or its share of what waits."""
        full = self._full(lane)
        if self._limits.range_records is not None:
            return full
        if lane.waiting > full and full * lane.record_seconds > _SLOW:
            return math.ceil(lane.waiting / math.ceil(lane.waiting / full))
        most = lane.waiting if lane.waiting <= _quick(lane) * 3 // 2 else 0
        return max(full, min(most, self._most_by_bytes(lane)))

    def _full(self, lane: _Lane) -> int:
        """Law 5. How many records fill a range."""
        records = self._limits.range_records or max(_RECORDS, _quick(lane))
        return max(1, min(records, self._most_by_bytes(lane)))

    def _most_by_bytes(self, lane: _Lane) -> int:
        return int(self._limits.range_bytes / lane.record_bytes)

    def _start(self, lanes: list[_Lane], now: float, spare: int = 0) -> Task:
        task = _Running(since=now, slow=any(self._expected(lane) > _SLOW for lane in lanes), ranges=len(lanes))
        self._running.add(task)
        ranges = tuple(self._begin(lane, task) for lane in lanes)
        if spare and len(ranges) == 1:
            # By what was taken: what waits may go on behind a seek, where another range begins.
            task.parts = max(1, min(1 + spare, (ranges[0].end - ranges[0].start) // _PART))
        return ranges

    def _begin(self, lane: _Lane, task: _Running) -> OffsetRange:
        if lane.retry is not None:
            running_job, lane.retry = lane.retry, None
        else:
            running_job = _take(lane.pending, self._most(lane))
        lane.running_job, lane.task, lane.began = running_job, task, task.since
        self._sort(running_job.topic_partition, lane)
        return running_job

    def _sort(self, partition: TopicPartition, lane: _Lane) -> None:
        """Law 9: into what its lane is now."""
        self._in_flight.pop(partition, None)
        self._ready.pop(partition, None)
        if lane.running_job is not None:
            self._in_flight[partition] = lane
        elif lane.pending or lane.retry is not None:
            self._ready[partition] = lane

    def told(self, running_job: OffsetRange, *, seconds: float = 0.0, records: int = 0, nbytes: int = 0) -> None:
        """Its task has told of the range, or is over: it holds no core any more. seconds: that the task took for it.
        records, nbytes: what it read; 0 where that is not known, or does not go with the seconds."""
        lane = self._lanes.get(running_job.topic_partition)
        if lane is None or lane.running_job != running_job:
            return
        self._release(lane)
        offsets = running_job.end - running_job.start
        lane.seconds, lane.record_seconds = seconds, seconds / offsets
        # By its records: a compacted log has offsets without any.
        if records >= _PART:
            quick = lane.record_seconds if _quick(lane) > _RECORDS else 0.0
            self._seen[running_job.topic] = _Seen(max(1.0 if quick else _FIRST_GUESS, nbytes / records), quick)
        if seconds > _SLOW:
            self._slow.add(running_job.topic_partition)
        else:
            self._slow.discard(running_job.topic_partition)

    def succeeded(self, running_job: OffsetRange, *, records: int, nbytes: int) -> None:
        """The range is in the sink. records, nbytes: what was read."""
        lane = self._landed(running_job)
        if lane is not None:
            lane.failures = 0
            # Not below 1: `_most` divides by it.
            if records:
                lane.record_bytes = max(1.0, nbytes / records)

    def failed(self, running_job: OffsetRange, now: float) -> bool:
        """Work on the range failed. True: it will be planned again; False: it was tried often enough."""
        lane = self._landed(running_job)
        # Lost or sought meanwhile: its failure stops nobody.
        if lane is None:
            return True
        lane.failures += 1
        lane.retry = running_job
        self._sort(running_job.topic_partition, lane)
        # Bounded: 2.0 ** 1024 is an OverflowError.
        pause = self._limits.backoff * 2.0 ** min(lane.failures - 1, 30)
        lane.ready_at = now + min(self._limits.backoff_max, pause)
        return lane.failures <= self._limits.retries

    def withdraw(self, partition: TopicPartition) -> None:
        """What is in flight or to be tried again is taken back, to be planned anew, should it come to that. Its tries
        begin anew too: it may share a job with others then, whose last try this is not.
        """
        lane = self._lanes.get(partition)
        if lane is None:
            return
        taken = lane.running_job or lane.retry
        self._release(lane)
        lane.running_job = lane.retry = None
        lane.failures = 0
        if taken is not None:
            lane.pending.appendleft(taken)
        self._sort(partition, lane)

    def behind(self, partition: TopicPartition) -> int:
        """How many of its offsets are known and in no job."""
        lane = self._lanes.get(partition)
        return lane.waiting if lane is not None else 0

    def is_last_try(self, partition: TopicPartition) -> bool:
        """Whether its range in flight is not tried again when it fails."""
        lane = self._lanes.get(partition)
        return lane is not None and lane.failures >= self._limits.retries

    def delay(self, committed: OffsetRange, now: float) -> float:
        """Seconds since the first of the range's offsets was offered. What ends before the range is forgotten."""
        lane = self._lanes.get(committed.topic_partition)
        while lane is not None and lane.known and lane.known[0][0] <= committed.start:
            lane.known.popleft()
        return now - lane.known[0][1] if lane is not None and lane.known else 0.0

    def is_waiting_to_retry(self, partition: TopicPartition) -> bool:
        lane = self._lanes.get(partition)
        return lane is not None and lane.retry is not None

    def reset(self, partition: TopicPartition) -> None:
        """Forget the partition."""
        lane = self._lanes.pop(partition, None)
        if lane is not None:
            self._in_flight.pop(partition, None)
            self._ready.pop(partition, None)
            self._slow.discard(partition)
            self._release(lane)

    def _landed(self, running_job: OffsetRange) -> _Lane | None:
        lane = self._lanes.get(running_job.topic_partition)
        if lane is None or lane.running_job != running_job:
            return None
        self._release(lane)
        lane.running_job = None
        self._sort(running_job.topic_partition, lane)
        return lane

    def _release(self, lane: _Lane) -> None:
        """It waits for its task no more. A task that nobody waits for is not counted: it is over, or cancelled."""
        task, lane.task = lane.task, None
        if task is not None:
            task.ranges -= 1
            if task.ranges == 0:
                self._running.discard(task)


def _is_scout(lane: _Lane) -> bool:
    """Whether its task may soon tell what its topic's records are like."""
    wanted = lane.running_job
    return lane.task is not None and wanted is not None and wanted.end - wanted.start >= _PART


def _quick(lane: _Lane) -> int:
    """How many records are expected to take `_QUICK` seconds; 0 where nothing is known of their time."""
    return int(_QUICK / lane.record_seconds) if lane.record_seconds else 0


def _since(lane: _Lane) -> float:
    """Since when its turn is due. A backlog has waited longest, and would else be before all others for ever."""
    return max(lane.since, lane.began)


def _append(pending: deque[OffsetRange], offered: OffsetRange) -> None:
    """Law 10. Not where another leader wrote it: each range is to have the epoch of its own end, if it may be."""
    last = pending[-1] if pending else None
    if last is not None and replace(last, start=last.end, end=offered.end) == offered:
        pending[-1] = replace(offered, start=last.start)
    else:
        pending.append(offered)


def _note(known: deque[tuple[int, float]], end: int, now: float) -> None:
    """Law 10."""
    if known and now - known[-1][1] <= (now - known[0][1]) * _NEAR:
        known[-1] = end, known[-1][1]
    else:
        known.append((end, now))


def _take(pending: deque[OffsetRange], most: int) -> OffsetRange:
    """At most that many offsets from the front. Neighbours of one epoch and seek number become one range."""
    first = last = pending.popleft()
    while pending and pending[0].start == last.end and _same(pending[0], first) and last.end - first.start < most:
        last = pending.popleft()
    if last.end - first.start <= most:
        return replace(last, start=first.start)
    middle = first.start + most
    pending.appendleft(replace(last, start=middle))
    # The epoch of the range's own end: nothing says which leader wrote the record in the middle. A newer one will do:
    # where the log has what that leader wrote, it has all that was before it (KIP-320).
    return replace(last, start=first.start, end=middle)


def _same(left: OffsetRange, right: OffsetRange) -> bool:
    return (left.epoch, left.seek_number) == (right.epoch, right.seek_number)
