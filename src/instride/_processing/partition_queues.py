"""What a `PartitionExecutor` decides: which record is started next, what a hand-over waits for, what is paused.

Laws (rule 16 of docs/rebalance.md)
1. Pure: no thread, no clock, nothing of the user's is called but `size`. Its owner holds a lock around every call.
2. A record is queued, started, failed or finished. From queued to started is one step, the lowest offset of its
   partition first; partitions take turns. A failed record that is tried again is queued again.
3. The gap of a partition are its queued records below its highest one that is started or finished. Records start in
   the order of their offsets, so only records that wait for another try are in the gap.
4. Of a draining partition (its revocation is requested, or all ends) only the gap is started; when it is reassigned,
   its queue goes on. A hand-over waits for what is started, for the gap, and for the commit of what is finished; for
   nothing else, so a partition without these is released: its queue is dropped.
5. Behind a failed record nothing is started and no gap is waited for: it could not be committed.
6. While its owner says that it may not (`may_start`: the member may be one no more), nothing is started, and nobody
   waits for a gap.
7. A record is known by partition, epoch, seek number and offset. What ends under an older one, or of a lost partition,
   is ignored. What was in progress of it is told as abandoned; where the seek number has risen, so is all else that is
   unfinished and lies below the new position, since nobody reads it again.
8. A partition is paused when its queue takes half of the space that is left, and resumed when it takes a quarter, or is
   empty. So one that stands still leaves space for the others. One with a failed record is paused until it is settled.

What a `Processor` decides, by key or by partition: `engine.py`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from instride import _arguments as arguments
from instride._processing.back_pressure import BelowShare, has_its_share, may_resume
from instride.consumer_records import Stretch
from instride.errors import IllegalStateError
from instride.ledger import OffsetLedger, TrackedRecord, awaiting_commit
from instride.records import OffsetRange, TopicPartition

__all__ = ["PartitionQueues", "Task"]

R = TypeVar("R", bound=TrackedRecord)
_run: Final = attrgetter("topic", "partition", "epoch", "seek_number")


class Task(Generic[R]):
    """One record on its way. Compares by offset, within a partition."""

    __slots__ = ("offset", "queue", "record", "size")

    def __init__(self, record: R, size: int, queue: PartitionQueue[R]) -> None:
        self.record = record
        self.offset = offset_of(record)
        self.size = size
        self.queue = queue

    def __lt__(self, other: Task[R]) -> bool:
        return self.offset < other.offset


class PartitionQueue(Generic[R]):
    """One partition's records in one epoch and seek number. `records` and `size` count all that is not finished."""

    __slots__ = (
        "draining",
        "epoch",
        "failed",
        "gap_raised",
        "highest_finished",
        "partition",
        "paused",
        "records",
        "released",
        "retries",
        "seek_number",
        "size",
        "started",
        "waiting",
    )

    def __init__(self, partition: TopicPartition, epoch: int, seek_number: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.seek_number = seek_number
        self.waiting: deque[Task[R]] = deque()
        self.retries: list[Task[R]] = []
        self.started: dict[int, Task[R]] = {}
        self.failed: dict[int, tuple[Task[R], BaseException]] = {}
        self.gap_raised = False
        self.highest_finished = -1
        self.records = 0
        self.size = 0
        self.draining = False
        self.released = False
        self.paused = False

    @property
    def queued(self) -> int:
        return len(self.waiting) + len(self.retries)

    def has_gap(self) -> bool:
        """Whether there is a queued record in the gap that may be started (laws 3 and 5)."""
        if not self._may_retry():
            return False
        return self.retries[0].offset < max(self.highest_finished, max(self.started, default=-1))

    def may_start(self) -> bool:
        if self.draining:
            return self.has_gap()
        return self._may_retry() or bool(self.waiting and not (self.failed or self.retries))

    def _may_retry(self) -> bool:
        return bool(self.retries) and (not self.failed or self.retries[0].offset < min(self.failed))

    def start(self) -> Task[R]:
        # What failed was started once, so by law 3 it lies below all that waits.
        task = heappop(self.retries) if self.retries else self.waiting.popleft()
        self.started[task.offset] = task
        return task


class PartitionQueues(Generic[R]):
    """See the laws above. `queued` and `started` count records; `records` and `bytes` also those that failed."""

    def __init__(
        self,
        *,
        max_records: int,
        max_bytes: int,
        size: Callable[[R], int],
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        self.ledger = OffsetLedger()
        self.queued = 0
        self.started = 0
        self.records = 0
        self.bytes = 0
        self.abandoned: list[R] = []
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._size = size
        self._may_start = may_start
        self._queues: dict[tuple[str, int], PartitionQueue[R]] = {}
        self._turns: OrderedDict[tuple[str, int], PartitionQueue[R]] = OrderedDict()
        self._delayed: dict[tuple[str, int], PartitionQueue[R]] = {}
        self._failed: dict[tuple[str, int], PartitionQueue[R]] = {}
        self._errors: dict[Task[R], BaseException] = {}
        # Law 8: with something queued, or failed, and not paused: to be looked at, or seen to be below its share;
        # paused; paused, and perhaps to be resumed.
        self._open: dict[tuple[str, int], PartitionQueue[R]] = {}
        self._below_share: BelowShare[PartitionQueue[R]] = BelowShare()
        self._paused: dict[tuple[str, int], PartitionQueue[R]] = {}
        self._to_resume: dict[tuple[str, int], PartitionQueue[R]] = {}
        self._stopping = False
        self._gave_up = False

    # -- what a poll brings

    def submit(
        self,
        records: Iterable[R],
        lost: Iterable[tuple[str, int]] = (),
        stretches: Sequence[Stretch] | None = None,
    ) -> None:
        """Forget the lost partitions, then queue the records. stretches: as for `OffsetLedger.track`."""
        gone = set(arguments.partitions("submit", lost))
        runs = [(run, list(group)) for run, group in groupby(records, _run)]
        # Before anything is changed: a refused poll leaves all as it was.
        self._refuse_released(run for run, _ in runs if (run[0], run[1]) not in gone)
        self.abandoned = []
        for partition in gone:
            self._drop(partition)
        self.ledger.forget(gone)
        # Before the queues: it refuses offsets that do not rise, and then no record is taken.
        self.ledger.track((record for _, group in runs for record in group), stretches=stretches)
        for run, group in runs:
            self._add(run, group)

    def _refuse_released(self, runs: Iterable[tuple[Any, ...]]) -> None:
        for topic, number, epoch, seek_number in runs:
            queue = self._queues.get((topic, number))
            if queue is not None and queue.released and (queue.epoch, queue.seek_number) == (epoch, seek_number):
                raise IllegalStateError(
                    f"submit: {queue.partition} was released by hold, which dropped its queue, and was not revoked. "
                    "Delay only what hold returns, and do not call hold after a poll that raised"
                )

    def _add(self, run: tuple[Any, ...], records: list[R]) -> None:
        queue = self._queue_for(*run, position=offset_of(records[0]))
        if queue is None:
            return
        tasks = [Task(record, self._size(record), queue) for record in records]
        self._count(queue, len(tasks), sum(task.size for task in tasks))
        queue.waiting.extend(tasks)
        self.queued += len(tasks)
        self._unpause(queue)  # a paused partition returns nothing: whoever paused it has resumed it
        self._changed(queue)

    def _queue_for(
        self, topic: str, number: int, epoch: int, seek_number: int, *, position: int
    ) -> PartitionQueue[R] | None:
        """None for an epoch or seek number that is over."""
        partition = TopicPartition(topic, number)
        queue = self._queues.get(partition)
        if queue is None or (queue.epoch, queue.seek_number) < (epoch, seek_number):
            self._drop(partition, position=position if queue is not None and queue.epoch == epoch else -1)
            queue = self._queues[partition] = PartitionQueue(partition, epoch, seek_number)
        return queue if (queue.epoch, queue.seek_number) == (epoch, seek_number) else None

    def _count(self, queue: PartitionQueue[R], records: int, size: int) -> None:
        queue.records += records
        queue.size += size
        self.records += records
        self.bytes += size

    def _drop(self, partition: tuple[str, int], *, position: int = -1) -> None:
        """It is over: what ends of it is ignored. position: where it goes on, after a seek."""
        queue = self._queues.pop(partition, None)
        if queue is None:
            return
        failed = [task for task, _ in queue.failed.values()]
        left = [task for task in (*queue.waiting, *queue.retries, *failed) if task.offset < position]
        self.abandoned += [task.record for task in sorted([*queue.started.values(), *left])]
        for task in failed:
            self._errors.pop(task, None)
        self.started -= len(queue.started)
        queue.started.clear()
        queue.failed.clear()
        self._empty(queue)

    def _empty(self, queue: PartitionQueue[R]) -> None:
        """Drop all that is counted of it, and leave every list."""
        self._count(queue, -queue.records, -queue.size)
        self.queued -= queue.queued
        queue.waiting.clear()
        queue.retries.clear()
        self._unpause(queue)
        for each in (self._turns, self._delayed, self._failed, self._open):
            each.pop(queue.partition, None)
        self._below_share.pop(queue.partition)

    def _changed(self, queue: PartitionQueue[R]) -> None:
        """Something of it may be started, paused or resumed that could not be before."""
        if queue.paused:
            if self._may_resume(queue):
                self._to_resume[queue.partition] = queue
        elif queue.queued or queue.failed:
            self._open[queue.partition] = queue
        if queue.partition not in self._turns and queue.may_start():
            self._turns[queue.partition] = queue

    # -- what workers do

    def take(self) -> Task[R] | None:
        """Start the next record: of the partition whose turn it is the lowest offset. None where there is none."""
        if not self.has_next():
            return None
        queue = next(iter(self._turns.values()))
        self._turns.move_to_end(queue.partition)
        task = queue.start()
        self.queued -= 1
        self.started += 1
        if queue.paused and self._may_resume(queue):
            self._to_resume[queue.partition] = queue
        return task

    def has_next(self) -> bool:
        """Whether something may be started; then it is of the first in `_turns`."""
        while self._turns and self._may_start():
            if next(iter(self._turns.values())).may_start():
                return True
            self._turns.popitem(last=False)
        return False

    def end(self, task: Task[R], error: BaseException | None = None) -> None:
        """The work on a started record is finished, or failed. Nothing where its partition is over."""
        queue = task.queue
        if queue.started.get(task.offset) is not task:
            return
        if error is None:
            self._finished(task)
        else:
            self.ledger.fail(task.record, error)
            queue.failed[task.offset] = task, error
            self._failed[queue.partition] = queue
            self._open[queue.partition] = queue
            self._errors[task] = error
        del queue.started[task.offset]
        self.started -= 1

    def _finished(self, task: Task[R]) -> None:
        self.ledger.done(task.record)
        self._count(task.queue, -1, -task.size)
        task.queue.highest_finished = max(task.queue.highest_finished, task.offset)

    def is_current(self, record: R) -> bool:
        """Whether the record is started, and what becomes of it still counts."""
        queue = self._current(record)
        return queue is not None and not self._gave_up and offset_of(record) in queue.started

    def _current(self, record: R) -> PartitionQueue[R] | None:
        topic, number, epoch, seek_number = _run(record)
        queue = self._queues.get((topic, number))
        return queue if queue is not None and (queue.epoch, queue.seek_number) == (epoch, seek_number) else None

    # -- records that failed

    def next_error(self) -> BaseException | None:
        """The oldest error that was not given out before and whose record is failed still, with a note; else a gap."""
        if self._errors:
            task = next(iter(self._errors))
            error = self._errors.pop(task)
            with suppress(Exception):  # a user's class may do anything
                error.add_note(f"while handling {task.queue.partition} at offset {task.offset}")
            return error
        return next(self._new_gaps(), None)

    def _new_gaps(self) -> Iterator[BaseException]:
        for gap in self.ledger.gaps():
            queue = self._queues.get((gap.topic, gap.partition))
            if queue is not None and not queue.gap_raised:
                queue.gap_raised = True
                yield gap

    def failures(self) -> list[tuple[R, BaseException]]:
        found = [failed for queue in self._failed.values() for failed in queue.failed.values()]
        return [(task.record, error) for task, error in found]

    def done(self, record: R) -> None:
        """A failed record counts as finished. Nothing for any other."""
        task = self._settle(record)
        if task is not None:
            self._finished(task)
            self._changed(task.queue)

    def retry(self, record: R) -> None:
        """A failed record is queued again. Nothing for any other."""
        task = None if self._gave_up else self._settle(record)
        if task is not None:
            heappush(task.queue.retries, task)
            self.queued += 1
            self._changed(task.queue)

    def _settle(self, record: R) -> Task[R] | None:
        queue = self._current(record)
        # What is left in a released queue `next_error` is to find, and nobody can settle any more.
        if queue is None or queue.released or offset_of(record) not in queue.failed:
            return None
        task, _ = queue.failed.pop(offset_of(record))
        self._errors.pop(task, None)
        if not queue.failed:
            del self._failed[queue.partition]
        return task

    # -- hand-overs

    def hold(self, partitions: Iterable[tuple[str, int]]) -> set[TopicPartition]:
        """Law 4. partitions: all that are to be revoked. What of them is to be delayed."""
        wanted = dict.fromkeys(arguments.partitions("hold", partitions))
        for queue in [queue for partition, queue in self._delayed.items() if partition not in wanted]:
            self._reassigned(queue)
        ahead = awaiting_commit(self.ledger, wanted)
        for queue in [self._queues[partition] for partition in wanted if partition in self._queues]:
            if not queue.released:
                self._delay_or_release(queue, is_ahead=queue.partition in ahead)
        return {queue.partition for queue in self._delayed.values()}

    def _delay_or_release(self, queue: PartitionQueue[R], *, is_ahead: bool) -> None:
        queue.draining = True
        if queue.started or queue.has_gap() or is_ahead:
            self._delayed[queue.partition] = queue
            return
        # Its failures stay, so that `next_error` still finds them.
        self.ledger.forget([queue.partition])
        self._empty(queue)
        queue.released = True

    def _reassigned(self, queue: PartitionQueue[R]) -> None:
        del self._delayed[queue.partition]
        queue.draining = self._stopping
        self._changed(queue)

    # -- the end

    def stop(self) -> None:
        """Start nothing more of what is only queued, for good."""
        self._stopping = True
        for queue in self._queues.values():
            queue.draining = True
            self._forget_queued(queue, queue.waiting)

    def at_rest(self) -> bool:
        """Whether nothing is started and nothing will be as things are."""
        return not self.started and not self.has_next()

    def give_up(self) -> list[R]:
        """Start nothing more, the gaps neither. What is not finished, by partition and offset."""
        self._gave_up = True
        unfinished = []
        for queue in self._queues.values():
            unfinished += [task.record for task in sorted([*queue.started.values(), *queue.retries])]
            self._forget_queued(queue, queue.retries)
        return unfinished

    def _forget_queued(self, queue: PartitionQueue[R], tasks: deque[Task[R]] | list[Task[R]]) -> None:
        self._count(queue, -len(tasks), -sum(task.size for task in tasks))
        self.queued -= len(tasks)
        tasks.clear()

    # -- back-pressure (law 8)

    def full(self) -> list[TopicPartition]:
        """To be paused now."""
        free, free_bytes = self._max_records - self.records, self._max_bytes - self.bytes
        # They leave, and `_changed` lists them again: so a round costs nothing for what did not change.
        looked_at, self._open = {**self._below_share.concerned(free, free_bytes), **self._open}, {}
        found = []
        for partition, queue in looked_at.items():
            self._below_share.pop(partition)
            if queue.paused or queue.draining or not (queue.queued or queue.failed):
                continue
            if queue.failed or has_its_share(queue, free, free_bytes):
                queue.paused = True
                self._paused[partition] = queue
                found.append(queue)
            else:
                self._below_share.keep(queue)
        return sorted(queue.partition for queue in found)

    def ready(self) -> list[TopicPartition]:
        """To be resumed now."""
        looked_at, self._to_resume = self._to_resume, {}
        found = [each for each in looked_at.values() if not (each.draining or each.failed) and self._may_resume(each)]
        for queue in found:
            self._unpause(queue)
            self._changed(queue)
        return sorted(queue.partition for queue in found)

    def _may_resume(self, queue: PartitionQueue[R]) -> bool:
        return may_resume(queue, self._max_records - self.records, self._max_bytes - self.bytes)

    def _unpause(self, queue: PartitionQueue[R]) -> None:
        queue.paused = False
        self._paused.pop(queue.partition, None)
        self._to_resume.pop(queue.partition, None)


def offset_of(record: Any) -> int:
    return int(record.start if isinstance(record, OffsetRange) else record.offset)
