"""What a `Processor` decides: which record is started next, what becomes of one that failed, what may be committed,
what a hand-over waits for, what is paused.

Laws (rules 16 and 18 of docs/rebalance.md)
1. Pure: no thread, no clock, no chance; nothing of the user's is called but `Retry.on`. Its owner holds a lock around
   every call, and gives it the time and the chance.
2. A record is pending (where its partition was committed is not known yet), queued, started, or finished. From queued
   to started is one step. Finished is also what was skipped, what has an acknowledged dead letter, and what an earlier
   owner's commit remembers as finished. A record that waits for its next attempt is queued; one whose dead letter is
   being written is started.
3. Order "key": of the records of one key in one partition the next is startable when the one before is finished;
   "partition": the same with one key for all. "none", and records without a key: all are startable. The lowest offset
   goes first.
4. A commit has the offset of the first unfinished record, and remembers what is finished beyond it and how often the
   others were tried. While more would have to be remembered than the metadata takes, only the first unfinished record
   is started.
5. A record that fails for good ("stop") ends the processing: nothing more is started, and its partition's commits stay
   before it, unless the log has lost it (law 9).
6. Of a draining partition (its revocation is requested) nothing is started. A hand-over waits for what is started and
   for the commit of what is finished and tried, unless that is refused for good; for nothing else. So a partition
   without these is released: its queue is dropped. What was given up before the deadline is queued again if the
   partition is reassigned.
7. Where the group had no offset of a partition, where it begins is committed before its first record is started.
8. With `max_batch` records of one partition are started together, in order, as soon as there are so many or the first
   has waited for `max_wait`. A batch may have several records of a key; the next of that key wait for all of it. When
   it fails, or one of its records cannot be deserialized, each of its records is tried alone, since one is to blame:
   by the next owner too, as far as its attempts are remembered.
9. A record is known by partition, epoch, seek number and offset. What ends under an older one, or of a lost partition,
   is ignored; what was started of it is given up, so that its owner can cancel it. A seek number that rises by itself
   says that the consumer has reset the position: the log was cut, say. Nobody reads again what lies below that, so what
   is unfinished of it is queued anew, before what comes. No commit waits for what lies below the log's beginning, as
   far as `locate` is told that: from there the next owner would be reset again. What a commit remembers is of the log
   as it was, and counts no more. If the topic was recreated, all that came before is of no use.
10. Where a database keeps the offsets (`has_store`), a record that is skipped, or dead-lettered, stays started until
   its offset is there too; then `wrote` is told. Once a letter is acknowledged, for which nobody waits, it is taken as
   another record is (`to_tell`): who tells the database needs a connection, and these are one more than handlers.
11. Before its first record is started a commit says so, and of what came before a crash one record is started at a
    time: see `crashes`. A record under which processes died has failed by HandlerDiedError, as often as they did. A
   letter that is being written ends no process, nor do outputs that are handed over: none waits for these.
12. With a circuit breaker an outage starts nothing, and blames no record: see `breaker`. A record that is put back, or
   whose attempt does not count, is queued again as it was.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count, groupby
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import UUID

from instride import _arguments as arguments
from instride._partition_ledger import FINISHED, UNDER_WAY, Block, PartitionLedger
from instride._processing.back_pressure import BelowShare, has_its_share, may_resume
from instride._processing.breaker import Breaker, CircuitBreaker
from instride._processing.commit_metadata import NO_MARK, Mark, Remembered, decode, encode
from instride._processing.crashes import Guard, Permit
from instride._processing.retries import Failures, Step
from instride.commits import CommitEntry, CommitOutcome, CommitSnapshot
from instride.consumer_records import Stretch
from instride.errors import DeserializationError, HandlerDiedError
from instride.records import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from instride._wire.decoder import ConsumerRecord

__all__ = ["Batch", "Engine", "EnginePlan", "Job", "Order", "Tally", "Task", "Verdict"]

Order = Literal["partition", "key", "none"]

_run: Final = attrgetter("topic", "partition", "epoch", "seek_number", "leader_epoch")
_BYTES_PER_RANGE: Final = 4
"""Of metadata, in base64; most ranges need three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """order, failures: see the laws. per_partition: records of one partition in progress at a time, at most.

    max_records, max_bytes: how much may be queued or started: see `back_pressure`.
    breaker: see law 12. has_store: see law 10. max_batch, max_wait: see law 8; 0: records are handled one by one.
    metadata_limit: characters of a commit's metadata; what the broker takes (offset.metadata.max.bytes) bounds it.
    window: how many offsets of a partition are started before a commit has moved its offset (law 11); 0: all.
    """

    order: Order = "key"
    failures: Failures = field(default_factory=Failures)
    per_partition: int = 1 << 30
    max_records: int = 10_000
    max_bytes: int = 64 << 20
    metadata_limit: int = 4_000
    window: int = 0
    max_batch: int = 0
    max_wait: float = 0.0
    has_store: bool = False
    breaker: CircuitBreaker | None = None


@dataclass(slots=True, kw_only=True)
class Tally:
    """How many records so far. remembered: not run again, since an earlier owner's commit says that they are finished.
    abandoned: given up while they were in progress. attempts: handlers' calls that ended; seconds: how long these took
    together; longest: the longest of them."""

    finished: int = 0
    attempts: int = 0
    retried: int = 0
    skipped: int = 0
    dead_lettered: int = 0
    failed: int = 0
    remembered: int = 0
    abandoned: int = 0
    seconds: float = 0.0
    longest: float = 0.0


_COPIED: Final = (
    "alone",
    "attempts",
    "error",
    "is_skipped",
    "letter_written",
    "since",
    "spared_at",
    "writes_dead_letter",
)
"""Of a task, by one that does the same work."""


class Task:
    """One record on its way. attempts: how often it was handled before. error: of the last attempt.

    writes_dead_letter: not its handler is due but its dead letter, or (is_skipped) that a database is told.
    letter_error: why that letter was not written, or the database not told of it, at the newest try. letter_written: it
    is acknowledged, and a database is still to be told. over: its result is ignored. late: its time is out, so that its
    attempt fails when it ends. since: when it came; from its start on, when it was started. alone: it is in no batch
    with others. spared_at: the circuit breaker's.
    """

    __slots__ = (
        "alone",
        "attempts",
        "error",
        "is_skipped",
        "key",
        "lane",
        "late",
        "letter_error",
        "letter_written",
        "offset",
        "over",
        "record",
        "since",
        "size",
        "spared_at",
        "writes_dead_letter",
    )

    def __init__(self, record: ConsumerRecord, lane: Lane, key: Any, size: int) -> None:
        self.record = record
        self.offset = record.offset
        self.lane = lane
        self.key = key
        self.size = size
        self.attempts = 0
        self.error: BaseException | None = None
        self.writes_dead_letter = False
        self.letter_error: BaseException | None = None
        self.letter_written = False
        self.is_skipped = False
        self.alone = False
        self.over = False
        self.late = False
        self.since = 0.0
        self.spared_at = -1

    def copy(self) -> Task:
        """The same work, not given up."""
        found = Task(self.record, self.lane, self.key, self.size)
        found.go_on_from(self)
        return found

    def go_on_from(self, before: Task) -> None:
        """It does the same work."""
        for name in _COPIED:
            setattr(self, name, getattr(before, name))


class Batch:
    """Records of one partition that are handled by one call (law 8). To its executor it looks like a task."""

    __slots__ = ("lane", "late", "since", "tasks")

    writes_dead_letter: Final = False

    def __init__(self, lane: Lane, tasks: list[Task], since: float) -> None:
        self.lane = lane
        self.tasks = tasks
        self.late = False
        self.since = since

    @property
    def offset(self) -> int:
        return self.tasks[0].offset

    @property
    def attempts(self) -> int:
        return self.tasks[0].attempts

    @property
    def error(self) -> BaseException | None:
        return self.tasks[0].error

    @property
    def over(self) -> bool:
        # A lane is given up as a whole, so the first of a batch speaks for all.
        return self.tasks[0].over

    @property
    def spared_at(self) -> int:
        """Of whichever failed so: those that came besides say nothing."""
        return max(task.spared_at for task in self.tasks)

    @spared_at.setter
    def spared_at(self, number: int) -> None:
        for task in self.tasks:
            task.spared_at = number


Job: TypeAlias = Task | Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of an attempt that failed. after: for a retry, seconds. counts: whether it is one of its record."""

    step: Step
    after: float = 0.0
    counts: bool = True


class Lane:
    """One partition's records in one epoch and seek number.

    fresh: startable, in order. again: startable, by offset: those that had to wait for their key or their next attempt.
    behind: of each key that is on its way, those that wait for it. pending: not looked at before `base` is known.
    given_up: by `give_up_of`, while it is held. later: how many wait for their next attempt. guard: law 11, as long as
    it has a say. to_come, tried_before: of the records that did not come yet, what an earlier owner finished or tried.
    jobs: calls of handlers in progress, and what is in flight: letters, and what waits for the acknowledgement of its
    outputs; in_flight: so much of what is started. noted: when its next batch is due. progress_at: when a record of it
    was last finished, or the first came that is not. version rises with each thing that a commit would tell; refused:
    that of a commit which the broker refused for good. due: whose dead letter is due, of those in `attempts` and
    `tried_before`. reset_to: where a reset of the position led (law 9); -1.
    gone: unfinished records that came before a reset, and that the log has lost, by offset. unproven_from: of the
    resets since the topic's id was known, the first one's seek number; -1. letters: by offset, what came before a reset
    and had its dead letter due. is_compared: with the store's row (law 4 of `store`).
    """

    __slots__ = (
        "again",
        "attempts",
        "base",
        "behind",
        "committed",
        "draining",
        "due",
        "epoch",
        "fresh",
        "given_up",
        "gone",
        "guard",
        "in_flight",
        "is_compared",
        "jobs",
        "later",
        "letters",
        "located",
        "noted",
        "partition",
        "paused",
        "pending",
        "progress_at",
        "queued",
        "ranges",
        "records",
        "refused",
        "released",
        "reset_to",
        "run",
        "seek_number",
        "since",
        "size",
        "started",
        "to_come",
        "topic_id",
        "tried_before",
        "unproven_from",
        "version",
    )

    def __init__(self, partition: TopicPartition, epoch: int, seek_number: int, base: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.seek_number = seek_number
        self.base = base
        self.run = PartitionLedger(partition, epoch, seek_number)
        self.fresh: deque[Task] = deque()
        self.again: list[tuple[int, Task]] = []
        self.behind: dict[Any, deque[Task] | None] = {}
        self.pending: list[ConsumerRecord] = []
        self.started: dict[int, Task] = {}
        self.given_up: list[Task] = []
        self.attempts: dict[int, int] = {}
        self.to_come = _ToCome(())
        self.tried_before: dict[int, int] = {}
        self.due: set[int] = set()
        self.gone: dict[int, ConsumerRecord] = {}
        self.letters: dict[int, Task] = {}
        self.reset_to = self.unproven_from = -1
        self.topic_id: UUID | None = None
        self.guard: Guard | None = None
        self.jobs = self.in_flight = 0
        self.noted = -1.0
        self.progress_at = 0.0
        self.later = 0
        self.queued = 0
        self.records = 0
        self.size = 0
        self.ranges = 0
        self.since = 0
        self.version = 0
        self.committed = 0
        self.refused = 0
        self.located = False
        self.draining = False
        self.released = False
        self.paused = False
        self.is_compared = False

    @property
    def is_handled(self) -> bool:
        """Whether a handler runs of it, which may end the process."""
        return len(self.started) > self.in_flight

    @property
    def is_ahead(self) -> bool:
        return self.version > self.committed

    @property
    def awaits_commit(self) -> bool:
        """The same, where a commit may be accepted: so that a hand-over waits for it."""
        return self.version > max(self.committed, self.refused)

    @property
    def is_refused(self) -> bool:
        return self.committed < self.version <= self.refused

    def forget(self) -> None:
        """All of its records. It stays at its offset, perhaps for long: until its partition is gone."""
        for each in (self.fresh, self.again, self.behind, self.pending, self.given_up):
            each.clear()
        for memory in (self.attempts, self.tried_before, self.due, self.gone, self.letters):
            memory.clear()
        self.to_come = _ToCome(())
        self.base = self.next_offset()
        self.run = PartitionLedger(self.partition, self.epoch, self.seek_number)

    def go_on_from(self, old: Lane) -> list[ConsumerRecord]:
        """Law 9: the consumer has reset the position. What the old lane leaves to this one."""
        self.reset_to, self.topic_id = self.base, old.topic_id
        self.unproven_from = self.seek_number if old.unproven_from < 0 else old.unproven_from
        left = [each for each in old.run.records(UNDER_WAY) if each.offset < self.reset_to]
        # Where the reset led does not tell whether the log was cut, or has lost its beginning: `lose` is told.
        if left:
            self.base = min(self.base, old.next_offset())
        left = [*(each for each in old.gone.values() if each.offset < self.reset_to), *left]
        old.gone.clear()
        old.pending.clear()
        tried = {**old.tried_before, **old.attempts}
        self.tried_before = {each.offset: tried[each.offset] for each in left if each.offset in tried}
        self.due = old.due.intersection(self.tried_before)
        return left

    def lose(self, log_begin: int, reset_to: int) -> None:
        """Law 9: of what came before the reset the log has no more what lies before its beginning. Nothing is queued
        yet."""
        end = min(log_begin, reset_to)
        if end < 0:
            return
        lost = [each for each in self.pending if each.offset < end]
        kept = self.pending[len(lost) :]
        # Also where none is lost: nothing is unfinished before that, so the log may have lost that place.
        self.base = min(reset_to, kept[0].offset)
        if not lost and not self.gone:
            return
        self.gone = {each.offset: each for each in lost}
        self.run = PartitionLedger(self.partition, self.epoch, self.seek_number)
        for _, group in groupby(kept, _run):
            self.run.add(Block(list(group)))

    def take_gone(self, records: list[ConsumerRecord]) -> None:
        """The first of these the log has lost."""
        gone = [each for each in records if each.offset < self.base]
        self.gone.update((each.offset, each) for each in gone)
        if len(gone) < len(records):
            self.run.add(Block(records[len(gone) :]))

    def missed(self) -> list[ConsumerRecord]:
        """Of what came before a reset, what its log has lost, or may have: it is not known yet where that begins."""
        return [*self.gone.values()] if self.located else [each for each in self.pending if each.offset < self.reset_to]

    def next_offset(self) -> int:
        return max(self.run.next_offset, self.base)

    def first_startable(self) -> Task | None:
        if self.again and not (self.fresh and self.fresh[0].offset < self.again[0][0]):
            return self.again[0][1]
        return self.fresh[0] if self.fresh else None

    def pop_startable(self) -> Task:
        if self.again and not (self.fresh and self.fresh[0].offset < self.again[0][0]):
            return heappop(self.again)[1]
        return self.fresh.popleft()

    def release_key(self, key: Any) -> None:
        """The record of this key that was on its way is finished."""
        waiting = self.behind.get(key)
        if waiting:
            task = waiting.popleft()
            heappush(self.again, (task.offset, task))
        else:
            self.behind.pop(key, None)

    def put_behind(self, task: Task) -> None:
        """Before all others that wait for its key; one that is before it is on its way."""
        waiting = self.behind[task.key]
        if waiting is None:
            self.behind[task.key] = deque((task,))
        else:
            waiting.appendleft(task)

    def memory(self, mark: Mark = NO_MARK) -> Remembered:
        """What a commit is to remember: of the records that came, and of those to come what was remembered before."""
        ranges, reached = self.run.finished_beyond(), max(self.run.last_offset + 1, self.base)
        for start, end in self.to_come.left:
            if end <= reached:
                continue
            if ranges and ranges[-1][1] >= max(start, reached):
                ranges[-1] = ranges[-1][0], end
            else:
                ranges.append((max(start, reached), end))
        to_come = {at: number for at, number in self.tried_before.items() if at >= reached}
        self.ranges, self.since = len(ranges), 0
        attempts = {**self.attempts, **to_come} if to_come else self.attempts
        if self.gone:
            attempts = {at: number for at, number in attempts.items() if at not in self.gone}
        return Remembered(finished=ranges, attempts=attempts, due=self.due, mark=mark)

    def count_ranges(self) -> None:
        """How many `memory` would have; or one more, where what came joins with what is to come."""
        self.ranges, self.since = self.run.ranges_beyond() + len(self.to_come.left), 0


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a commit says of a lane. is_ending: see `Guard.mark`."""

    lane: Lane
    version: int
    offset: int
    mark: Mark
    is_ending: bool


class Engine:
    """See the laws above. `queued` and `started` count records; `records` and `bytes` all that is unfinished.

    failure: what ended the processing (law 5). died: under which records processes died, and how many; for the log.
    missed: what came before a reset, and was not handled here: the log has lost it, or may have; for the log.
    breaker: its state, where there is one. tally: what was done so far. to_tell: whose letters are acknowledged, and of
    which a database is to be told (law 10): whoever wants a record takes one of these first, and removes it here.
    to_write: likewise, whose dead letter is due since their outputs were refused, which hold no place. awaited: whose
    outputs are handed over, and not acknowledged.
    """

    def __init__(self, plan: EnginePlan, size: Callable[[ConsumerRecord], int]) -> None:
        self.plan = plan
        self.queued = 0
        self.records = 0
        self.bytes = 0
        self.failure: BaseException | None = None
        self.breaker = None if plan.breaker is None else Breaker(plan.breaker)
        self.tally = Tally()
        self.died: list[tuple[Task, int]] = []
        self.missed: list[ConsumerRecord] = []
        self.to_tell: deque[Task] = deque()
        self.to_write: deque[Task] = deque()
        self.awaited: set[Task] = set()
        self.uncommitted = 0
        self._size = size
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._turns: OrderedDict[tuple[str, int], Lane] = OrderedDict()
        self._delayed: dict[tuple[str, int], Lane] = {}
        # Of these, where nothing is in progress any more: all that wait for nothing but a commit are among them.
        self._let_go: dict[tuple[str, int], Lane] = {}
        self._ahead: dict[tuple[str, int], Lane] = {}
        # `locate` was not told of it yet; or that the group has nothing: it waits for a commit of ours then (law 7).
        self._unlocated: dict[tuple[str, int], Lane] = {}
        self._beginning_here: dict[tuple[str, int], Lane] = {}
        # Law 11: whose guard waits for a commit; who began and did not get on; who wait for `_trying`, whose accused is
        # tried while nothing else is in progress.
        self._asking: dict[tuple[str, int], Lane] = {}
        self._beginning: dict[tuple[str, int], Lane] = {}
        self._behind_accused: dict[tuple[str, int], Lane] = {}
        self._trying: Lane | None = None
        # It was let go: by which version a commit does not name it any more. -1: it was not.
        self._let_go_at = -1
        self._in_flight = 0
        self._located: dict[tuple[str, int], tuple[OffsetAndMetadata, UUID | None]] = {}
        # In the order of their starts: who asks for the oldest looks at no partition.
        self._at_work: dict[Task, None] = {}
        self._later: list[tuple[float, int, Task]] = []
        self._aging: list[tuple[float, int, Lane]] = []
        # Whose dead letter could not be written at the newest try, or a database not be told of it.
        self._unwritten: dict[Task, None] = {}
        # By an outage; its end, or a probe, wakes them, and no clock.
        self._spared: list[Task] = []
        self._now = 0.0
        # Of two entries of a heap that are due at one time, tasks or lanes would be compared, and cannot be.
        self._numbers = count()
        # Half of the metadata is left to the attempts (`encode`).
        self._most_ranges = max(1, plan.metadata_limit // _BYTES_PER_RANGE // 2)
        # Of `back_pressure`: with something queued and not paused, to be looked at, or seen to be below its share;
        # paused, and perhaps to be resumed.
        self._open: dict[tuple[str, int], Lane] = {}
        self._below_share: BelowShare[Lane] = BelowShare(plan.max_batch)
        self._to_resume: dict[tuple[str, int], Lane] = {}
        self._stopping = False

    @property
    def started(self) -> int:
        return len(self._at_work)

    # -- what a poll brings

    def submit(
        self,
        records: Iterable[ConsumerRecord],
        lost: Iterable[tuple[str, int]] = (),
        stretches: Sequence[Stretch] = (),
        now: float = 0.0,
    ) -> list[Task]:
        """Give up the lost partitions, then queue the records. What was started and is given up (law 9).

        stretches: `ConsumerRecords.stretches` of the poll. After `stop` records are dropped: nothing of them was begun.
        """
        # The poll's time was read before the lock was taken: a worker may have told a later one meanwhile.
        self._now = max(self._now, now)
        given_up: list[Task] = []
        for partition in arguments.partitions("submit", lost):
            given_up += self._drop(partition)
        if self._stopping:
            return given_up
        batch = list(records)
        place = 0
        for stretch in stretches or [Stretch(-1, -1, len(batch))]:
            for run, group in groupby(batch[place : place + stretch.records], _run):
                given_up += self._take_run(run, list(group), stretch)
            place += stretch.records
        return given_up

    def _take_run(self, run: tuple[Any, ...], records: list[ConsumerRecord], stretch: Stretch) -> list[Task]:
        topic, number, epoch, seek_number, _ = run
        partition = TopicPartition(topic, number)
        lane, given_up = self._lanes.get(partition), []
        if lane is None or (lane.epoch, lane.seek_number) < (epoch, seek_number):
            # The position may lie before the first record (of a compacted log, say): a commit then begins there.
            base = records[0].offset if stretch.start < 0 else stretch.start
            old, lane = lane, Lane(partition, epoch, seek_number, base)
            given_up = self._replace(old, lane)
        # A released lane stays until the partition is gone: what still comes of it is its next owner's.
        if (lane.epoch, lane.seek_number) == (epoch, seek_number) and not lane.released:
            self._add(lane, records)
        return given_up

    def _replace(self, old: Lane | None, lane: Lane) -> list[Task]:
        """What was started and is given up."""
        partition = lane.partition
        left = lane.go_on_from(old) if old is not None and old.epoch == lane.epoch else []
        if old is not None and left:
            lane.letters = {at: each for at, each in self._letters_of(old).items() if at < lane.reset_to}
            lane.tried_before.update((at, each.attempts) for at, each in lane.letters.items())
        given_up = self._drop(partition)
        self._lanes[partition] = self._unlocated[partition] = lane
        if partition in self._located:
            self.locate(partition, *self._located.pop(partition))
        for _, group in groupby(left, _run):
            self._add(lane, list(group))
        return given_up

    def _letters_of(self, lane: Lane) -> dict[int, Task]:
        """What waits to be written, or for the store (law 10), and what is in progress of that."""
        found = [*lane.fresh, *lane.given_up, *lane.started.values(), *(each for _, each in lane.again)]
        found += [each for _, _, each in self._later if each.lane is lane]
        found += [each for waiting in lane.behind.values() for each in waiting or ()]
        return {**lane.letters, **{each.offset: each for each in found if each.writes_dead_letter}}

    def _add(self, lane: Lane, records: list[ConsumerRecord]) -> None:
        if records[0].offset < lane.base:
            lane.take_gone(records)
        else:
            lane.run.add(Block(records))
        # What was idle is not stuck: its time counts from the first record that waits.
        if not lane.records:
            lane.progress_at = self._now
        size = sum(map(self._size, records))
        self._count(lane, len(records), size)
        lane.queued += len(records)
        self.queued += len(records)
        self._unpause(lane)  # a paused partition returns nothing: whoever paused it has resumed it
        if lane.located:
            self._queue(lane, records)
        else:
            # It may be paused before anybody knows where it begins, since its records take space already.
            lane.pending += records
            self._open[lane.partition] = lane

    def _queue(self, lane: Lane, records: Iterable[ConsumerRecord]) -> None:
        by_key, key = self.plan.order == "key", b"" if self.plan.order == "partition" else None
        size_of, now, guard = self._size, self._now, lane.guard
        done, tried = lane.to_come, lane.tried_before
        for record in records:
            if by_key:
                key = record.key
            task = Task(record, lane, key, size_of(record))
            task.since = now
            if done.left and task.offset in done:
                self._was_finished_before(lane, task)
                continue
            # Before it is queued: its attempts of earlier owners count, or a hand-over would begin them anew.
            if tried and task.offset in tried:
                self._was_tried_before(lane, task)
            if guard is not None and guard.has_died and guard.accused == task.offset:
                self.died.append((task, guard.deaths))
                if self._is_over_by_deaths(guard, task):
                    continue
            if key is None:
                lane.fresh.append(task)
            elif key in lane.behind:
                waiting = lane.behind[key]
                if waiting is None:
                    lane.behind[key] = deque((task,))
                else:
                    waiting.append(task)
            else:
                # A key with one record in progress has no queue yet: most keys never need one.
                lane.behind[key] = None
                lane.fresh.append(task)
        self._changed(lane)

    def _was_finished_before(self, lane: Lane, task: Task) -> None:
        lane.queued -= 1
        self.queued -= 1
        self.tally.remembered += 1
        # It never took its key: a release would start the next of the key beside the one that is in progress.
        self._finish(task, releases=False)

    def _was_tried_before(self, lane: Lane, task: Task) -> None:
        """By an earlier owner, or before a reset. If its dead letter was due, we write it. Else it has another attempt:
        who lowers `attempts` may do so to mend what they fail by."""
        task.attempts = lane.attempts[task.offset] = lane.tried_before.pop(task.offset)
        before = lane.letters.pop(task.offset, None)
        if before is not None:
            self._has_its_letter_due(task, before)
            return
        # Law 8: it may have failed in a batch, and be the one to blame.
        task.alone = True
        task.writes_dead_letter = task.offset in lane.due and self.plan.failures.has_dead_letters
        if not task.writes_dead_letter:
            lane.due.discard(task.offset)

    def _has_its_letter_due(self, task: Task, before: Task) -> None:
        """Before a reset the same record had, and perhaps it is written (law 10): it is not handled again."""
        task.go_on_from(before)
        self._remember(task)
        if before.letter_error is not None:
            task.letter_error = before.letter_error
            self._unwritten[task] = None

    def _is_over_by_deaths(self, guard: Guard, task: Task) -> bool:
        """Law 11: the process died under it, once more. Whether it is finished by that. One death proves nothing yet;
        the second one counts for both."""
        # A process may die for another reason: out of memory by a neighbour, say.
        if guard.deaths < 2:
            return False
        lane = task.lane
        # What is remembered may be less (`_remember`), and each death is an attempt.
        task.attempts = max(task.attempts + (2 if guard.deaths == 2 else 1), guard.deaths)
        task.error = HandlerDiedError(f"the processes that handled it died, {guard.deaths} by now")
        # No delay is taken from this verdict, so any chance will do.
        step, _ = self.plan.failures.decide(task.error, task.attempts, 0.5)
        if step is Step.RETRY:
            self._remember(task)
            return False
        guard.ended(task.offset)
        if step is Step.STOP:
            # Queued all the same: after a failure nothing is started, and its partition's commits stay before it.
            self._stop_by(task, task.error)
            return False
        if step is Step.SKIP and not self.plan.has_store:
            lane.queued -= 1
            self.queued -= 1
            self.tally.skipped += 1
            self._finish(task, releases=False)
            return True
        task.writes_dead_letter, task.is_skipped = True, step is Step.SKIP
        self._remember(task)
        return False

    def _count(self, lane: Lane, records: int, size: int) -> None:
        lane.records += records
        lane.size += size
        self.records += records
        self.bytes += size

    def _drop(self, partition: tuple[str, int]) -> list[Task]:
        """It is over: what ends of it is ignored."""
        lane = self._lanes.pop(partition, None)
        if lane is None:
            return []
        self._located.pop(partition, None)
        given_up = self._give_up(lane)
        self._empty(lane)
        self._let_accused_start()
        return given_up

    def _empty(self, lane: Lane) -> None:
        """Drop all that is counted of it, and leave every list."""
        self.missed += lane.missed()
        self._count(lane, -lane.records, -lane.size)
        self.queued -= lane.queued
        lane.queued = lane.later = lane.jobs = 0
        # A heap gives nothing up from its middle: `_wake` knows by this that what is due is of nobody.
        lane.released = True
        lane.forget()
        self._unpause(lane)
        lists: tuple[dict[tuple[str, int], Lane] | BelowShare[Lane], ...] = (
            self._turns,
            self._delayed,
            self._let_go,
            self._open,
            self._below_share,
            self._ahead,
            self._unlocated,
            self._beginning_here,
            self._asking,
            self._beginning,
            self._behind_accused,
        )
        for named in lists:
            named.pop(lane.partition, None)
        self._let_others_start(lane)

    def _changed(self, lane: Lane) -> None:
        """Something of it may be started, paused or resumed that could not be before."""
        if lane.paused:
            if self._may_resume(lane):
                self._to_resume[lane.partition] = lane
        elif lane.queued:
            self._open[lane.partition] = lane
        if lane.partition not in self._turns and self._may_start(lane):
            self._turns[lane.partition] = lane

    # -- where a partition begins

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """What was located is of an earlier assignment."""
        for partition in partitions:
            self._located.pop(partition, None)

    def is_beginning(self, *, asks: bool = True) -> bool:
        """Whether records wait until it is known where their partitions begin, or are soon to wait for a commit that
        was not refused for good. asks: whether it can be asked now where they begin."""
        if asks and self._unlocated:
            return True
        begun = self._beginning_here, self._beginning
        return any(not lane.is_refused for lanes in begun for lane in lanes.values())

    def unlocated(self) -> list[TopicPartition]:
        """Partitions with records of which `locate` was not told yet: ask the group for their committed offsets."""
        return [lane.partition for lane in self._unlocated.values()]

    def left_before_resets(self) -> list[TopicPartition]:
        """Of `unlocated`, those of which `locate` wants to be told where the log begins (law 9)."""
        return [lane.partition for lane in self._unlocated.values() if lane.base < lane.reset_to]

    def locate(
        self,
        partition: tuple[str, int],
        committed: OffsetAndMetadata | None,
        topic_id: UUID | None = None,
        *,
        log_begin: int = -1,
    ) -> None:
        """What the group has committed of it. None: nothing, so the start is committed first (law 7). log_begin: -1
        where nobody tells it; then all that is left of before a reset holds commits back."""
        lane = self._unlocated.get(partition) or self._beginning_here.get(partition)
        # The committed offset is fetched at the assignment, before the first records: it is kept until these come.
        if lane is None:
            if committed is not None:
                self._located[partition] = committed, topic_id
            return
        reset_to = lane.reset_to
        lane = self._of_topic(lane, topic_id)
        lane.lose(log_begin, reset_to)
        remembered = None if committed is None else self._remembered(lane, committed)
        if remembered is not None:
            lane.to_come, lane.tried_before = _ToCome(remembered.finished), dict(remembered.attempts)
            lane.due = set(remembered.due)
        if self.plan.window:
            lane.guard = Guard(NO_MARK if remembered is None else remembered.mark, self.plan.window)
        if committed is not None:
            self._begin(lane)
            return
        self._unlocated.pop(partition, None)
        self._beginning_here[partition] = lane
        if lane.guard is not None:  # one commit says both
            self._may_begin(lane, lane.guard, lane.pending[0].offset)
        self._touch(lane)

    def _of_topic(self, lane: Lane, topic_id: UUID | None) -> Lane:
        """Law 9: without what came of a topic that was recreated since."""
        if lane.reset_to >= 0 and topic_id is not None and lane.topic_id not in (None, topic_id):
            paused = lane.paused
            new = [each for each in lane.pending if each.seek_number >= lane.unproven_from]
            lane.pending.clear()
            # It may have been held back for records of the old topic alone.
            lane = Lane(lane.partition, lane.epoch, lane.seek_number, min(lane.reset_to, new[0].offset))
            self._replace(None, lane)
            for _, group in groupby(new, _run):
                self._add(lane, list(group))
            # These came before, so nobody has resumed it.
            lane.paused = paused
        if topic_id is not None:
            lane.topic_id, lane.unproven_from = topic_id, -1
        return lane

    def _remembered(self, lane: Lane, committed: OffsetAndMetadata) -> Remembered | None:
        """What the metadata say. Nothing after a reset (law 9), also one that came before the first record; nothing
        either if the lane begins below the committed offset."""
        if lane.base < committed.offset and lane.reset_to < 0 < lane.seek_number:
            lane.reset_to = lane.base
        if lane.base < committed.offset or lane.reset_to >= 0:
            return None
        return decode(committed.metadata, committed.offset, lane.topic_id)

    def relocate(self, partition: TopicPartition, start: OffsetAndMetadata, topic_id: UUID | None) -> None:
        """It is read from another offset, where its owner seeks to: what came before that is dropped, and pending."""
        self._drop(partition)
        self._located[partition] = start, topic_id

    def has_lane(self, partition: tuple[str, int]) -> bool:
        """Whether records of it have come."""
        return partition in self._lanes

    def _begin(self, lane: Lane) -> None:
        for each in (self._unlocated, self._beginning_here):
            each.pop(lane.partition, None)
        lane.located = True
        pending, lane.pending = lane.pending, []
        self._queue(lane, pending)

    # -- what workers do

    def take(self, now: float) -> Job | None:
        """Start the next record, or batch, of the partition whose turn it is. None where nothing may be started now."""
        lane = self._next_lane(now)
        if lane is None:
            return None
        self._turns.move_to_end(lane.partition)
        lane.jobs += 1
        task = lane.pop_startable()
        if self._start(task, now):
            task.alone = True
        as_it_is = not self.plan.max_batch or task.writes_dead_letter
        job = task if as_it_is else self._batch(lane, task, now)
        # A batch may have emptied the queue.
        if lane.paused and self._may_resume(lane):
            self._to_resume[lane.partition] = lane
        if self.breaker is not None:
            self.breaker.started(job)
        return job

    def _start(self, task: Task, now: float) -> bool:
        """Whether it is a suspect (law 11)."""
        lane = task.lane
        lane.started[task.offset] = task
        self._at_work[task] = None
        lane.queued -= 1
        self.queued -= 1
        task.since = now
        task.late = False
        # No handler runs for a letter: it ends no process, and needs no mark.
        if task.writes_dead_letter:
            self._count_in_flight(lane, 1)
            return False
        if lane.guard is None:
            return False
        return lane.guard.started(task.offset)

    def _batch(self, lane: Lane, first: Task, now: float) -> Batch:
        """Law 8. following: of each key in it the next record, which may be in the same batch."""
        tasks = [first]
        following: list[tuple[int, Task]] = []
        while len(tasks) < self.plan.max_batch and not first.alone:
            waiting = lane.behind.get(tasks[-1].key)
            if waiting:
                task = waiting.popleft()
                heappush(following, (task.offset, task))
            task_or_none = self._next_of_batch(lane, following)
            if task_or_none is None:
                break
            tasks.append(task_or_none)
            self._start(task_or_none, now)
        # Those that did not fit go back behind their keys, in front of what came later.
        for _, task in following:
            lane.put_behind(task)
        return Batch(lane, tasks, now)

    def _next_of_batch(self, lane: Lane, following: list[tuple[int, Task]]) -> Task | None:
        task = lane.first_startable()
        follows = bool(following) and (task is None or following[0][0] < task.offset)
        found = following[0][1] if follows else task
        # It ends the batch, and is not passed over: a batch has its records in order.
        if found is None or found.alone or found.writes_dead_letter:
            return None
        if lane.guard is not None and not lane.guard.joins(found.offset):
            return None
        return heappop(following)[1] if follows else lane.pop_startable()

    def has_next(self, now: float) -> bool:
        """Whether something may be started, told or written."""
        return self._next_lane(now) is not None or bool(self.to_tell or self.to_write)

    def _next_lane(self, now: float) -> Lane | None:
        """Of which something may be started: then it is the first in `_turns`."""
        if now > self._now:  # noqa: PLR1730 - max() is a call, for each record
            self._now = now
        if self._later and self._later[0][0] <= now:
            self._wake(now)
        # Batches that have waited for max_wait may start now, though they are not full.
        while self._aging and self._aging[0][0] <= now:
            self._changed(heappop(self._aging)[2])
        if self.breaker is None:
            return self._lane_of_turn()
        if not self.breaker.lets_start(now):
            return None
        if self._spared and self.breaker.open_until is None:
            self._release_spared()
        # Law 12: no other record is left that could probe.
        if self._lane_of_turn() is None and self._spared:
            self._release_spared()
        return self._lane_of_turn()

    def _lane_of_turn(self) -> Lane | None:
        turns = self._turns
        while turns:
            for lane in turns.values():  # the first; `next(iter())` is two calls more, for each record
                if self._may_start(lane):
                    return lane
                break
            turns.popitem(last=False)
        return None

    def _release_spared(self) -> None:
        spared, self._spared = self._spared, []
        for task in spared:
            self._is_due(task)

    def next_due(self) -> float | None:
        """When a record that waits for another attempt, a batch that waits for more, or a probe may be started."""
        if self._stopping:
            return None
        due = [each[0][0] for each in (self._later, self._aging) if each]
        probe = None if self.breaker is None else self.breaker.next_probe()
        # One that is due already lacks a record to probe with: named here, it would make each poll return at once.
        if probe is not None and probe > self._now:
            due.append(probe)
        return min(due, default=None)

    def _wake(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            self._is_due(heappop(self._later)[2])

    def _is_due(self, task: Task) -> None:
        """It waited long enough for its next attempt."""
        lane = task.lane
        if not lane.released:
            lane.later -= 1
            heappush(lane.again, (task.offset, task))
            self._changed(lane)

    def _may_start(self, lane: Lane) -> bool:
        if lane.draining or self._stopping or self.failure is not None or not (lane.fresh or lane.again):
            return False
        if self._trying not in (None, lane):
            # Out of `_turns`, a lane is looked at again only by `_changed`: `_let_others_start` needs to know of it.
            self._behind_accused[lane.partition] = lane
            return False
        # Here, and not in a function: it is evaluated for each record.
        if (
            (lane.jobs >= self.plan.per_partition and not self._has_room_for_accused(lane))
            or not self._fits(lane)
            or (self.plan.max_batch and not self._is_worth_a_batch(lane))
        ):
            # By dead letters, perhaps: for as long as nobody acknowledges them.
            if self._trying is lane:
                self._let_go_of_accused(lane)
            return False
        return lane.guard is None or self._may_begin(lane, lane.guard)

    def _may_begin(self, lane: Lane, guard: Guard, offset: int = -1) -> bool:
        """Law 11. offset: by default that of the first startable record."""
        first = lane.first_startable()
        if first is not None:
            # A letter waits for no mark, as in `_start`.
            if first.writes_dead_letter:
                return True
            offset = first.offset
        # While it is tried alone nothing else is started anywhere: if the process dies again, it is known by what.
        if guard.is_accused(offset):
            if lane.is_refused:
                return False
            self._trying, self._let_go_at = lane, -1
        is_busy = self._is_handled if guard.is_accused(offset) else lane.is_handled
        permit = guard.permit(offset, is_busy=is_busy)
        if permit is Permit.COMMIT:
            self._ask(lane)
        return permit is Permit.START

    def _ask(self, lane: Lane) -> None:
        """For a commit, soon."""
        if lane.partition not in self._asking:
            self._asking[lane.partition] = self._beginning[lane.partition] = lane
            self._touch(lane)

    def _let_others_start(self, lane: Lane) -> None:
        if self._trying is not lane:
            return
        self._trying, self._let_go_at = None, -1
        waiting, self._behind_accused = self._behind_accused, {}
        for each in waiting.values():
            self._changed(each)

    def _let_go_of_accused(self, lane: Lane) -> None:
        """Unless it is at work, nothing else waits for it: it is the next owner's, or is held up itself. But first a
        commit takes back that it is at work: what others do would be blamed on it."""
        guard = lane.guard
        if guard is None:
            return
        is_named = guard.is_named
        if not guard.let_go() or self._trying is not lane:
            return
        if is_named:
            self._hold_others_until_taken_back(lane)
        elif self._let_go_at < 0 <= guard.accused:
            self._let_others_start(lane)

    def _hold_others_until_taken_back(self, lane: Lane) -> None:
        """By a commit that is made from here on."""
        self._ask(lane)
        self._touch(lane)
        self._let_go_at = lane.version

    def _no_commit_tells(self, lane: Lane) -> None:
        """It is refused for good, without which its accused is not started, or which would say that it has ended, or
        that it is not at work; or it failed, and nobody knows for how long. Nothing else waits for that."""
        if lane.guard is not None and lane.guard.let_go():
            self._let_others_start(lane)

    def _let_accused_start(self) -> None:
        """It waits until nothing else is in progress: what ended, or was given up, may have been the last of that."""
        if self._trying is not None and not self._is_handled:
            self._changed(self._trying)

    @property
    def _is_handled(self) -> bool:
        return len(self._at_work) > self._in_flight

    def _count_in_flight(self, lane: Lane, number: int) -> None:
        lane.in_flight += number
        self._in_flight += number

    def _has_room_for_accused(self, lane: Lane) -> bool:
        """Dead letters in flight keep it from no trial: all others may wait for that."""
        first, guard = lane.first_startable(), lane.guard
        if first is None or guard is None or first.writes_dead_letter:
            return False
        return guard.is_accused(first.offset) and lane.jobs - lane.in_flight < self.plan.per_partition

    def _is_worth_a_batch(self, lane: Lane) -> bool:
        """Law 8. Where it is too early, the time is noted."""
        plan, first = self.plan, lane.first_startable()
        if first is None or first.alone or first.writes_dead_letter:
            return True
        due = first.since + plan.max_wait
        if lane.queued - lane.later >= plan.max_batch or due <= self._now:
            return True
        # Once for each due time: else every look at the lane would add to the heap.
        if lane.noted != due:
            lane.noted = due
            heappush(self._aging, (due, next(self._numbers), lane))
        return False

    def _fits(self, lane: Lane) -> bool:
        """Law 4. One range is counted for each record that is finished, or may be, out of order, until it matters."""
        if lane.ranges + lane.since + len(lane.started) < self._most_ranges:
            return True
        # Counted exactly only now, since counting costs more than adding up (law 4).
        lane.count_ranges()
        if lane.ranges + len(lane.started) < self._most_ranges:
            return True
        first = lane.first_startable()
        # Below that is what the log has lost, and no range is of it.
        return first is not None and first.offset <= lane.run.first_unfinished()

    def end(self, job: Job, error: BaseException | None, now: float, chance: float) -> Verdict | None:
        """An attempt ended. None: the record is finished, or its result is ignored. chance: in [0, 1).

        Where the verdict is a dead letter, the record stays started until `wrote` tells what became of it; those of a
        batch are queued, each to have its letter written.
        """
        if job.over:
            return None
        if now > self._now:  # noqa: PLR1730 - max() is a call, for each record
            self._now = now
        tally, seconds = self.tally, now - job.since
        tally.attempts += 1
        tally.seconds += seconds
        if seconds > tally.longest:  # noqa: PLR1730 - as above
            tally.longest = seconds
        if self.breaker is not None and not self.breaker.ended(job, error, self._now):
            return self._spare(job, error, chance)
        if isinstance(job, Batch):
            return self._end_batch(job, error, chance)
        task = job
        if error is None:
            tally.finished += 1
            self._end_started(task)
            self._finish(task)
            return None
        task.attempts += 1
        task.error = error
        step, after = self.plan.failures.decide(error, task.attempts, chance)
        if step is Step.RETRY:
            self.tally.retried += 1
            self._again(task, now + after)
        elif step is Step.STOP:
            self._fail(task, error)
        elif step is Step.SKIP and not self.plan.has_store:
            self.tally.skipped += 1
            self._end_started(task)
            self._finish(task)
        else:
            self._is_letter_now(task, is_skipped=step is Step.SKIP)
        return Verdict(step=step, after=after)

    def _is_letter_now(self, task: Task, *, is_skipped: bool) -> None:
        task.writes_dead_letter, task.is_skipped = True, is_skipped
        self._is_in_flight([task])

    def _is_in_flight(self, tasks: Sequence[Task]) -> None:
        """They stay started, and their handler has ended: what waited for that (law 11) does not wait for the rest."""
        lane = tasks[0].lane
        self._count_in_flight(lane, len(tasks))
        if lane.guard is not None:
            for task in tasks:
                self._guard_ended(lane, lane.guard, task.offset, was_tried=True)
            self._changed(lane)
        self._let_accused_start()

    def handed_over(self, job: Job) -> None:
        """Its outputs are, and nobody has acknowledged them yet. Until `taken_back`, before it ends."""
        if not job.over:
            tasks = job.tasks if isinstance(job, Batch) else [job]
            self.awaited.update(tasks)
            self._is_in_flight(tasks)

    def taken_back(self, job: Job) -> None:
        """Does nothing where `handed_over` was not called."""
        tasks = job.tasks if isinstance(job, Batch) else [job]
        if tasks[0] in self.awaited:
            self.awaited.difference_update(tasks)
            self._count_in_flight(job.lane, -len(tasks))

    def put_back(self, job: Job, *, was_tried: bool = False) -> None:
        """It was started, and is queued as it was before. was_tried: its handler was called all the same."""
        if job.over:
            return
        if self.breaker is not None:
            self.breaker.was_put_back(job)
        self._put_back(job, self._now, was_tried=was_tried)

    def _spare(self, job: Job, error: BaseException | None, chance: float) -> Verdict:
        """Law 12. In an outage it waits for its end, or until all others have probed in vain: one of them may be to
        blame."""
        assert self.breaker is not None
        after, due = self.plan.failures.retry.delay(max(1, job.attempts), chance), inf
        if self.breaker.open_until is None:
            due = self._now + after
        else:
            after = max(0.0, self.breaker.open_until - self._now)
        tasks = job.tasks if isinstance(job, Batch) else [job]
        for task in tasks:
            task.error = error
        self.tally.retried += len(tasks)
        self._put_back(job, due)
        return Verdict(step=Step.RETRY, after=after, counts=False)

    def _put_back(self, job: Job, due: float, *, was_tried: bool = True) -> None:
        """Of each key the first waits until it is due, the others for it."""
        tasks = job.tasks if isinstance(job, Batch) else [job]
        first = {task.key: task for task in reversed(tasks)}
        # Backwards, since each is put in front of those that wait for its key.
        for task in reversed(tasks):
            jobs = int(task is tasks[0])
            if task.writes_dead_letter:
                self._count_in_flight(task.lane, -1)
            if task.key is None or first[task.key] is task:
                self._again(task, due, jobs=jobs, was_tried=was_tried)
            else:
                self._end_started(task, jobs=jobs, was_tried=was_tried)
                self._queue_again(task, is_first=False)

    def _end_batch(self, batch: Batch, error: BaseException | None, chance: float) -> Verdict | None:
        if error is None:
            self.tally.finished += len(batch.tasks)
            last = {task.key: task for task in batch.tasks}
            for task in batch.tasks:
                self._end_started(task, jobs=int(task is batch.tasks[0]))
                self._finish(task, releases=last[task.key] is task)
            return None
        # No handler was called: so no attempt is counted against the others.
        if isinstance(error, DeserializationError) and len(batch.tasks) > 1:
            self._split(batch)
            return None
        return self._fail_batch(batch, error, chance)

    def _split(self, batch: Batch) -> None:
        """Try each alone; nobody is to blame yet."""
        first = {task.key: task for task in reversed(batch.tasks)}
        # Backwards, as in `_put_back`.
        for task in reversed(batch.tasks):
            task.alone = True
            self._end_started(task, jobs=int(task is batch.tasks[0]))
            self._queue_again(task, is_first=task.key is None or first[task.key] is task)

    def _fail_batch(self, batch: Batch, error: BaseException, chance: float) -> Verdict:
        """Each is judged by its own attempts. Of each key only the first goes on, the others wait for it: the last is
        put there first."""
        first = {task.key: task for task in reversed(batch.tasks)}
        verdicts: list[Verdict] = []
        for task in batch.tasks:
            task.attempts += 1
            task.error, task.alone = error, True
            step, after = self.plan.failures.decide(error, task.attempts, chance)
            verdicts.append(Verdict(step=step, after=after))
            if step is Step.STOP:
                self._fail(task, error, jobs=0)
        # Once, since it was one call of the handler; and before they are queued again, so that they find room.
        batch.lane.jobs -= 1
        for task, verdict in zip(reversed(batch.tasks), reversed(verdicts), strict=True):
            if verdict.step is not Step.STOP:
                self._judge_in_batch(task, verdict, is_first=task.key is None or first[task.key] is task)
        return verdicts[0]

    def _judge_in_batch(self, task: Task, verdict: Verdict, *, is_first: bool) -> None:
        if verdict.step is Step.RETRY and is_first:
            self.tally.retried += 1
            self._again(task, self._now + verdict.after, jobs=0)
            return
        self._end_started(task, jobs=0)
        if verdict.step is Step.SKIP and not self.plan.has_store:
            self.tally.skipped += 1
            self._finish(task, releases=is_first)
            return
        self.tally.retried += verdict.step is Step.RETRY
        task.writes_dead_letter, task.is_skipped = verdict.step is not Step.RETRY, verdict.step is Step.SKIP
        self._remember(task)
        self._queue_again(task, is_first=is_first)

    def _queue_again(self, task: Task, *, is_first: bool) -> None:
        lane = task.lane
        lane.queued += 1
        self.queued += 1
        if is_first:
            heappush(lane.again, (task.offset, task))
        else:
            lane.put_behind(task)
        self._changed(lane)

    def acknowledged(self, task: Task) -> bool:
        """Its dead letter is. Whether a database is to be told of it (law 10): else, or then, `wrote` is told."""
        task.letter_written = True
        if task.over or not self.plan.has_store:
            return False
        self.to_tell.append(task)
        return True

    def wrote(self, task: Task, error: BaseException | None, now: float, chance: float) -> float | None:
        """A dead letter (or a skip, law 10) was written, or could not be: then the seconds until it is tried again."""
        if task.over:
            return None
        self._unwritten.pop(task, None)
        # Here and not where it ends: each step there is felt with each record.
        self._count_in_flight(task.lane, -1)
        if error is None:
            self.tally.skipped += task.is_skipped
            self.tally.dead_lettered += not task.is_skipped
            self._end_started(task)
            self._finish(task)
            return None
        if not task.is_skipped:
            task.letter_error = error
            self._unwritten[task] = None
        after = self.plan.failures.retry.delay(max(1, task.attempts), chance)
        self._again(task, now + after)
        return after

    def unwritten(self) -> list[Task]:
        """Whose dead letter could not be written so far, by partition and offset; for health."""
        return [task for task in self._letters_in_trouble() if not task.letter_written]

    def untold(self) -> list[Task]:
        """Whose dead letter is written, and a database could not be told of it so far."""
        return [task for task in self._letters_in_trouble() if task.letter_written]

    def _letters_in_trouble(self) -> list[Task]:
        # Some may be of a partition that is over since.
        self._unwritten = {task: None for task in self._unwritten if not (task.over or task.lane.released)}
        found = [*self._unwritten]
        for lane in (*self._unlocated.values(), *self._beginning_here.values()):
            found += [each for each in lane.letters.values() if each.letter_error is not None]
        return sorted(found, key=lambda task: (task.lane.partition, task.offset))

    def _end_started(self, task: Task, *, jobs: int = 1, was_tried: bool = True) -> None:
        """jobs: 0 for all but one of a batch. was_tried: whether its handler was called."""
        lane = task.lane
        del lane.started[task.offset]
        del self._at_work[task]
        lane.jobs -= jobs
        if lane.draining:
            self._may_be_urgent(lane)
        if lane.guard is not None:
            self._guard_ended(lane, lane.guard, task.offset, was_tried=was_tried)
        self._let_accused_start()

    def _guard_ended(self, lane: Lane, guard: Guard, offset: int, *, was_tried: bool) -> None:
        """The next commit names it no more, also if it tells nothing else; others wait for that if it was accused."""
        was_accused = guard.is_accused(offset)
        if guard.ended(offset, was_tried=was_tried):
            self._touch(lane)
        if was_accused:
            self._ask(lane)
        # What still waits for a letter may be killed before it is acknowledged.
        if self._stopping:
            self._take_mark_back(lane)

    def _finish(self, task: Task, *, releases: bool = True) -> None:
        """releases: whether the next of its key may go on."""
        lane = task.lane
        if not lane.run.mark(task.offset, FINISHED):
            lane.gone.pop(task.offset, None)
        lane.progress_at = self._now
        lane.since += 1
        if lane.attempts:
            lane.attempts.pop(task.offset, None)
            lane.due.discard(task.offset)
        lane.records -= 1  # `_count`, without a call for each record
        lane.size -= task.size
        self.records -= 1
        self.bytes -= task.size
        if task.key is not None and releases:
            lane.release_key(task.key)
        self.uncommitted += 1
        lane.version += 1  # `_touch`, likewise
        self._ahead[lane.partition] = lane
        self._changed(lane)

    def _touch(self, lane: Lane) -> None:
        """A commit would tell something new."""
        lane.version += 1
        self._ahead[lane.partition] = lane

    def _again(self, task: Task, due: float, *, jobs: int = 1, was_tried: bool = True) -> None:
        lane = task.lane
        self._end_started(task, jobs=jobs, was_tried=was_tried)
        lane.queued += 1
        lane.later += 1
        self.queued += 1
        if due < inf:
            heappush(self._later, (due, next(self._numbers), task))
        else:
            self._spared.append(task)
        self._remember(task)
        self._changed(lane)

    def _remember(self, task: Task) -> None:
        """The next commit tells a later owner how often it was tried, and whether its letter is due. An older version
        takes it for due if no attempt is left: so only of one that is due all attempts are told."""
        number, failures = task.attempts, self.plan.failures
        is_due = task.writes_dead_letter and not task.is_skipped
        if is_due:
            task.lane.due.add(task.offset)
        if failures.after == "dead-letter" and failures.retry.attempts is not None and not is_due:
            number = min(number, failures.retry.attempts - 1)
        if number:
            task.lane.attempts[task.offset] = number
            self._touch(task.lane)

    def _fail(self, task: Task, error: BaseException, *, jobs: int = 1) -> None:
        self._end_started(task, jobs=jobs)
        self._stop_by(task, error)

    def _stop_by(self, task: Task, error: BaseException) -> None:
        self.tally.failed += 1
        task.lane.attempts.pop(task.offset, None)  # whoever starts it again has put it right
        self._touch(task.lane)
        # The first one is raised, whatever the others that are in progress still fail by.
        if self.failure is None:
            self.failure = error
            with suppress(Exception):  # a user's class may do anything
                error.add_note(f"while handling {task.lane.partition} at offset {task.offset}, attempt {task.attempts}")

    # -- commits

    def committable(self, in_flight: Set[TopicPartition] = frozenset()) -> CommitSnapshot:
        """What a commit would tell that the group does not have: offsets, with what is finished beyond (law 4).
        in_flight: of these nothing, since it is on its way."""
        # In C, as an outage may leave thousands in flight; sorted, for commits that are the same in each run.
        lanes = [self._ahead[each] for each in sorted(self._ahead.keys() - in_flight)] if in_flight else None
        sent = {lane.partition: self._told_of(lane) for lane in (self._ahead.values() if lanes is None else lanes)}
        entries = {partition: self._entry(each) for partition, each in sent.items()}
        self.uncommitted = 0
        return arguments.CheckedSnapshot(entries, partial(self._settled, sent))

    def _told_of(self, lane: Lane) -> _Sent:
        offset, is_ending = lane.next_offset(), (lane.draining or self._stopping) and not lane.is_handled
        mark = NO_MARK if lane.guard is None else lane.guard.mark(offset, is_ending=is_ending)
        return _Sent(lane, lane.version, offset, mark, is_ending)

    def _entry(self, sent: _Sent) -> CommitEntry:
        lane, offset = sent.lane, sent.offset
        entry, memory = lane.run.entry(), lane.memory(sent.mark)
        metadata = encode(offset, memory, topic_id=lane.topic_id, limit=self.plan.metadata_limit)
        return CommitEntry(
            offset=offset,
            epoch=lane.epoch,
            seek_number=lane.seek_number,
            leader_epoch=entry.leader_epoch,
            metadata=metadata,
        )

    def has_starts(self, in_flight: Set[TopicPartition] = frozenset()) -> bool:
        """Whether records wait for a commit (laws 7 and 11) that was not refused for good. in_flight: as above."""
        lanes = (lane for lanes in (self._asking, self._beginning_here) for lane in lanes.values())
        return any(not lane.is_refused and lane.partition not in in_flight for lane in lanes)

    def shrink_metadata(self) -> int:
        """The broker refused it as too large. The new limit; 0: nothing is remembered any more."""
        limit = self.plan.metadata_limit // 2 if self.plan.metadata_limit > 128 else 0
        self.plan = replace(self.plan, metadata_limit=limit)
        # Where nothing is remembered, no bound of what is remembered holds records up.
        self._most_ranges = limit // _BYTES_PER_RANGE // 2 or 1 << 30
        return limit

    def _settled(
        self,
        sent: dict[TopicPartition, _Sent],
        partition: TopicPartition,
        _: CommitEntry,
        outcome: CommitOutcome,
    ) -> None:
        """Its owner locks. A stale one is never committed, so it is ahead of nothing any more."""
        told = sent[partition]
        lane = told.lane
        # After a loss, or a seek, another lane is there, which this commit says nothing of.
        if self._lanes.get(partition) is not lane:
            return
        if outcome is CommitOutcome.FAILED:
            if self._trying is lane and self._let_go_at >= 0:
                self._let_others_start(lane)
            return
        if outcome is CommitOutcome.REFUSED:
            lane.refused = told.version
            self._no_commit_tells(lane)
            return
        lane.committed = lane.version if outcome is CommitOutcome.STALE else max(lane.committed, told.version)
        if not lane.is_ahead:
            self._ahead.pop(partition, None)
        if lane.guard is not None:
            self._guard_settled(lane, lane.guard, told, is_stale=outcome is CommitOutcome.STALE)
        if partition in self._beginning_here:
            self._begin(lane)

    def _guard_settled(self, lane: Lane, guard: Guard, told: _Sent, *, is_stale: bool) -> None:
        """Of a stale one no commit tells anything any more, so it waits for none: it was lost, or reset, and what came
        before that may be all that there is for long."""
        self._asking.pop(lane.partition, None)
        # Else its hand-over was taken back since, and its accused may be named anew: others wait for that one.
        is_over = told.is_ending and (lane.draining or self._stopping)
        if is_stale or is_over:
            self._beginning.pop(lane.partition, None)
            self._let_others_start(lane)
        if not told.mark.deaths and guard.accused < 0:
            self._let_others_start(lane)
        if is_stale or guard.accepted(told.mark, told.offset, is_ending=told.is_ending):
            lane.guard = None
            self._beginning.pop(lane.partition, None)
        self._take_back_what_came_late(lane, told)
        self._changed(lane)

    def _take_back_what_came_late(self, lane: Lane, told: _Sent) -> None:
        """The commit was sent before its partition was let go, or nothing was to be started any more."""
        if self._trying is lane and self._let_go_at >= 0:
            if told.version >= self._let_go_at:
                self._let_others_start(lane)
            else:
                self._ask(lane)
        if lane.draining or self._stopping:
            self._take_mark_back(lane)

    # -- hand-overs

    def hold(self, partitions: Iterable[tuple[str, int]]) -> set[TopicPartition]:
        """Law 6. partitions: all that are to be revoked; what of them is to be delayed. For each poll that returned."""
        wanted = dict.fromkeys(arguments.partitions("hold", partitions))
        for lane in [lane for partition, lane in self._delayed.items() if partition not in wanted]:
            self._reassigned(lane)
        for lane in [self._lanes[partition] for partition in wanted if partition in self._lanes]:
            if not lane.released:
                self._delay_or_release(lane)
        return {lane.partition for lane in self._delayed.values()}

    def _delay_or_release(self, lane: Lane) -> None:
        if not lane.draining:
            lane.refused = 0  # perhaps long ago: it is tried once more
        lane.draining = True
        self._let_go_of_accused(lane)
        # Before `is_ahead` is asked, since a mark to be taken back is one thing more to commit.
        self._take_mark_back(lane)
        if lane.started or lane.awaits_commit:
            self._delayed[lane.partition] = lane
            self._may_be_urgent(lane)
        else:
            self._empty(lane)

    def _may_be_urgent(self, lane: Lane) -> None:
        if lane.draining and not lane.started:
            self._let_go[lane.partition] = lane

    def _take_mark_back(self, lane: Lane) -> None:
        """Law 11: at a clean end. Soon, since others are at work, and dead letters may be in flight for long."""
        if lane.guard is not None and lane.guard.is_told and not lane.is_handled:
            self._ask(lane)

    def _reassigned(self, lane: Lane) -> None:
        del self._delayed[lane.partition]
        lane.draining = False
        self._queue_given_up(lane)
        self._changed(lane)

    def _queue_given_up(self, lane: Lane) -> None:
        """Its hand-over does not take place, so there is no next owner who handles these. Of each key the last is put
        there first."""
        given_up, lane.given_up = lane.given_up, []
        first = {task.key: task for task in reversed(given_up)}
        # Copies: the executor may still end the old ones, whose results are ignored.
        for task in reversed(given_up):
            self._queue_again(task.copy(), is_first=task.key is None or first[task.key] is task)

    def give_up_of(self, partition: tuple[str, int]) -> list[Task]:
        """What is in progress of a draining partition, in order: its results are ignored. Its hand-over waits no more.
        If the partition is reassigned instead, these are handled again."""
        lane = self._delayed.get(partition)
        if lane is None:
            return []
        given_up = self._give_up(lane)
        lane.given_up += given_up
        self._let_accused_start()
        return given_up

    def is_urgent(self) -> bool:
        """Whether a draining partition waits for nothing but a commit."""
        # Called for each record that ends: those that wait for what is in progress are not looked at.
        while self._let_go:
            partition, lane = self._let_go.popitem()
            if lane.draining and lane.awaits_commit and not lane.started:
                self._let_go[partition] = lane
                return True
        return False

    def waits_for(self, partition: tuple[str, int]) -> ConsumerRecord | None:
        """The oldest record that is in progress of it: what its hand-over, or its next commit, waits for."""
        lane = self._lanes.get(partition)
        return lane.started[min(lane.started)].record if lane is not None and lane.started else None

    # -- the end

    def stop(self) -> None:
        """Start nothing more, for good; what is queued stays so, and is another's."""
        self._stopping = True
        for lane in self._lanes.values():
            self._let_go_of_accused(lane)
            self._take_mark_back(lane)

    def is_at_rest(self) -> bool:
        """Whether nothing is started."""
        return not self.started

    def give_up(self) -> list[Task]:
        """What is still in progress, in order of partition and offset; its results are ignored from here on."""
        given_up: list[Task] = []
        for lane in self._lanes.values():
            given_up += self._give_up(lane)
            self.missed += lane.missed()
            self._take_mark_back(lane)
        return given_up

    def _give_up(self, lane: Lane) -> list[Task]:
        given_up = [task for _, task in sorted(lane.started.items())]
        for task in given_up:
            task.over = True
            del self._at_work[task]
        self.tally.abandoned += len(given_up)
        lane.started.clear()
        lane.jobs = 0
        self._count_in_flight(lane, -lane.in_flight)
        if given_up and self.to_tell:
            self.to_tell = deque(each for each in self.to_tell if not each.over)
        if given_up and (self.awaited or self.to_write):
            self.awaited.difference_update(given_up)
            self.to_write = deque(each for each in self.to_write if not each.over)
        if lane.guard is not None:
            was_named = lane.guard.is_named
            lane.guard.given_up()
            # It may go on, and its mark says that it is at work.
            if was_named and self._trying is lane:
                self._hold_others_until_taken_back(lane)
        self._may_be_urgent(lane)
        return given_up

    def at_work(self) -> Iterator[Task]:
        """What is started, the oldest first; for health and logs."""
        return iter(self._at_work)

    def stalled(self, before: float) -> list[TopicPartition]:
        """Where records wait, and none was finished since then. A record that waits for its next attempt alone keeps
        nobody waiting; in an outage, and once nothing is started any more, waiting is no news."""
        if self._stopping or (self.breaker is not None and self.breaker.open_until is not None):
            return []
        waiting = [each for each in self._lanes.values() if each.queued > each.later and not each.draining]
        return sorted(each.partition for each in waiting if each.progress_at <= before)

    # -- back-pressure (`back_pressure.py`)

    def full(self) -> list[TopicPartition]:
        """To be paused now."""
        free, free_bytes = self.plan.max_records - self.records, self.plan.max_bytes - self.bytes
        # They leave, and `_changed` lists them again: so a round costs nothing for what did not change.
        looked_at, self._open = {**self._below_share.concerned(free, free_bytes), **self._open}, {}
        found = []
        for partition, lane in looked_at.items():
            self._below_share.pop(partition)
            if not lane.queued or lane.draining:
                continue
            if has_its_share(lane, free, free_bytes, batch=self.plan.max_batch):
                lane.paused = True
                found.append(lane.partition)
            else:
                self._below_share.keep(lane)
        return sorted(found)

    def ready(self) -> list[TopicPartition]:
        """To be resumed now."""
        looked_at, self._to_resume = self._to_resume, {}
        found = [lane for lane in looked_at.values() if not lane.draining and self._may_resume(lane)]
        for lane in found:
            self._unpause(lane)
            self._changed(lane)
        return sorted(lane.partition for lane in found)

    def wants_resuming(self) -> bool:
        """Whether `ready` would name something, as far as that is known cheaply."""
        return bool(self._to_resume)

    def capacity(self) -> int:
        """How many records the next poll may bring."""
        free = self.plan.max_records - self.records
        # How large the next records are nobody knows: taken for as large as those that are here, on average.
        if self.bytes:
            free = min(free, (self.plan.max_bytes - self.bytes) * self.records // self.bytes)
        return max(free // 2, 1)

    def _may_resume(self, lane: Lane) -> bool:
        return may_resume(lane, self.plan.max_records - self.records, self.plan.max_bytes - self.bytes)

    def _unpause(self, lane: Lane) -> None:
        lane.paused = False
        self._to_resume.pop(lane.partition, None)


class _ToCome:
    """Ranges of offsets, rising, that an earlier owner finished. Each offset that comes is looked up once, in order:
    what lies before it is dropped, so that no later poll or commit looks at it."""

    __slots__ = ("left",)

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.left = deque(ranges)

    def __contains__(self, offset: int) -> bool:
        left = self.left
        while left and left[0][1] <= offset:
            left.popleft()
        return bool(left) and left[0][0] <= offset
