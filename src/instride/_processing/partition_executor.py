"""`PartitionExecutor`: threads that handle records beside the polls, with a queue for each partition.

Laws
1. What is decided, `PartitionQueues` decides; here are the threads and the one lock around it.
2. No more threads than `max_workers`, started when there is work, for all partitions together. A thread without work
   sleeps until it is woken; nothing is looked at again and again. If the system has no thread left, those that are
   there go on, and the next call tries again.
3. The handler runs without the lock. From queued to started is one step under it.
4. Before a record is started, the lease is compared with the clock: in a process that was suspended, whose partitions
   another member may have by now, nothing is started before a poll has told what was lost.
5. The threads are daemons: a handler that never ends keeps neither `drain` beyond its time-out nor the interpreter.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from instride import _arguments as arguments
from instride._core.session_lease import Standing
from instride._coroutines import refuse_coroutine
from instride._net.clock import now
from instride._partition_ledger import standing_of, stretches_of
from instride._processing.forks import guarded
from instride._processing.partition_queues import PartitionQueues, Task
from instride.commits import CommitSnapshot
from instride.errors import IllegalStateError
from instride.ledger import TrackedRecord
from instride.records import OffsetRange, TopicPartition

__all__ = ["PartitionExecutor"]

R = TypeVar("R", bound=TrackedRecord)

_logger = logging.getLogger("instride.processing")
_PULSE: Final = 0.25
"""Seconds. A signal that comes just before a thread falls asleep does not wake it; it is seen at the next waking."""


class PartitionExecutor(Generic[R]):
    """Handles records in threads, and knows what a hand-over has to wait for: only for records whose work was started.

        with Consumer(...) as consumer, PartitionExecutor(handle, max_workers=32) as work:
            consumer.subscribe(["flights"])
            try:
                while not stop.is_set():
                    work.submit(consumer.poll(timeout=0.1), lost=consumer.lost_partitions())
                    consumer.commit_async(work.committable())
                    consumer.delay_revoke(work.hold(consumer.to_be_revoked_partitions()))
                    consumer.pause(*work.full())
                    consumer.resume(*work.ready())
                    work.check()
            finally:
                work.drain(timeout=25)
                consumer.commit(work.committable())

    Workers take from the partitions in turns, of each the lowest offset first; records of one partition are handled at
    the same time by several, and may finish in any order. Commits are in order. A handler that raises holds its
    partition: nothing behind that record is started or committed until `done` or `retry` settles it.

    Every method may be called from any thread, but `submit`, `hold`, `full` and `ready` belong to the one that polls.
    """

    def __init__(
        self,
        handle: Callable[[R], object],
        *,
        max_workers: int = 32,
        max_records: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        size: Callable[[R], int] | None = None,
        drain_timeout: float = 30.0,
    ) -> None:
        """handle: a plain function, called with each record, in a thread; what it raises is a failure, and so is a
        coroutine or a generator that it returns, since nothing of that has run. All else that it returns is ignored.

        max_workers: how many records are handled at a time, at most. max_records, max_bytes: how much may wait or be
        in progress (see `full`); where nothing is left of that, each poll's records still come on top. size: the bytes
        of a record; by default those of its key and value where they are bytes, else 0. drain_timeout: seconds that
        leaving the context waits, unless `drain` was called before. No thread is started here.
        Raises TypeError or ValueError for a wrong argument.
        """
        verb = "PartitionExecutor"
        if not callable(handle):
            raise TypeError(f"{verb}: handle must be a function of one record, not {type(handle).__name__}")
        self._handle = guarded(handle)
        self._max_workers = arguments.positive(verb, "max_workers", max_workers)
        self._drain_timeout = arguments.seconds(verb, drain_timeout, name="drain_timeout")
        self._queues: PartitionQueues[R] = PartitionQueues(
            max_records=arguments.positive(verb, "max_records", max_records),
            max_bytes=arguments.positive(verb, "max_bytes", max_bytes),
            size=size or _payload_size,
            may_start=self._may_start,
        )
        self._standing: Standing | None = None
        # Re-entrant, since the garbage collector may run a user's finalizer anywhere, and that may call us.
        lock = threading.RLock()
        self._work = threading.Condition(lock)
        self._rest = threading.Condition(lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._handling = 0
        self._draining = False
        self._closed = False
        self._told_of_fewer = False

    # -- the loop's verbs

    def submit(self, records: Iterable[R], *, lost: Iterable[tuple[str, int]] = ()) -> None:
        """Take a poll's records, once for each poll. Does not block.

        records: what the poll returned, as it is (`ConsumerRecords`, or a RangeConsumer's ranges). Then nothing is
        started once the member may be one no more, after a suspension of the process say, until the next poll has told
        what was lost. Of a list that was made of it the executor does not know this.

        lost: what the same poll lost (`Consumer.lost_partitions`). The queues of these are dropped, `cancelled` is
        true of what is in progress, and its results are ignored; `abandoned` names it.
        Raises ValueError where a partition's offsets do not rise (a record submitted twice), IllegalStateError
        after `drain`, or where a partition that `hold` had released goes on; then no record was taken. Raises
        RuntimeError if the system refuses a thread, and there is none to go on with; the records are queued then.
        """
        batch = list(records)
        stretches, standing = stretches_of(records), standing_of(records)
        with self._work:
            if self._draining:
                raise IllegalStateError("submit: this PartitionExecutor was drained; make another one")
            self._queues.submit(batch, lost, stretches)
            self._standing = standing
            self._wake()

    def committable(self) -> CommitSnapshot:
        """What may be committed now and is not known to be committed, as `OffsetLedger.committable`. Never raises.

        Give it to `Consumer.commit` or `commit_async`, which settle it. Costs by the partitions in it.
        """
        # Without the lock: the ledger has one of its own.
        return self._queues.ledger.committable()

    def hold(self, to_be_revoked: Iterable[tuple[str, int]]) -> set[TopicPartition]:
        """Say what the last poll named as to be revoked; returns what of it to delay. Once for each poll that returned.

        to_be_revoked: all of it (`Consumer.to_be_revoked_partitions`), an empty set too. Of these nothing more is
        started, except what lies below a started record. To be delayed are those with records in progress, in that gap,
        or finished and not committed. The queues of the others are dropped, since their revocation completes in the
        next poll. A partition that was returned before and is neither named now nor lost was reassigned: its queue goes
        on.
        """
        with self._work:
            delayed = self._queues.hold(to_be_revoked)
            self._wake()
            return delayed

    def full(self) -> list[TopicPartition]:
        """Partitions to pause now, each named once: those whose queue takes half of the space that is left, in records
        or bytes, and those with a failed record.
        """
        with self._work:
            return self._queues.full()

    def ready(self) -> list[TopicPartition]:
        """Partitions to resume now, each that `full` had named once: those whose queue is empty, or takes no more than
        a quarter of the space that is left.
        """
        with self._work:
            return self._queues.ready()

    def check(self) -> None:
        """Raise the error of a failed record, the oldest first, each once; nothing where none is left.

        OffsetGapError where records that a poll returned were never submitted: see `OffsetLedger`, law 5. Any other
        is the handler's own, with a note that names the record. Passed over is what was settled by `done` or
        `retry` meanwhile, and what was lost.
        """
        with self._work:
            error = self._queues.next_error()
        if error is not None:
            raise error

    # -- what is left behind

    def abandoned(self) -> list[R]:
        """Records that were in progress when the last `submit` gave them up: of lost partitions, or from before a seek.

        Another member handles those of lost partitions again.

        After a seek, and after a reset of the position by the consumer, also those that were queued or had failed and
        lie below the new position: no later poll returns them.
        """
        with self._work:
            return list(self._queues.abandoned)

    def cancelled(self, record: R) -> bool:
        """For handlers: whether the result of this record is ignored, so that its work may as well stop.

        True once its partition is lost or sought, or `drain` has given it up.
        """
        with self._work:
            return not self._queues.is_current(record)

    def failures(self) -> list[tuple[R, BaseException]]:
        """The records that failed and hold their partitions, each with its error, whether raised or not."""
        with self._work:
            return self._queues.failures()

    def done(self, record: R) -> None:
        """A failed record counts as finished (it was written to another topic, say): its partition goes on.

        Nothing where the record is not one that failed, or its partition is gone.
        """
        with self._work:
            self._queues.done(record)
            self._wake()

    def retry(self, record: R) -> None:
        """Queue a failed record again, before all others of its partition. It is tried at once, not later.

        Nothing where the record is not one that failed, or its partition is gone.
        """
        with self._work:
            self._queues.retry(record)
            self._wake()

    def oldest(self, partition: tuple[str, int]) -> Any:
        """What the partition's next commit waits for: a record, or None. A `reason` for `Consumer.delay_revoke`."""
        # As in `committable`.
        return self._queues.ledger.oldest(partition)

    def queued(self) -> int:
        """How many records wait to be started."""
        with self._work:
            return self._queues.queued

    def started(self) -> int:
        """How many records are in progress, without those whose results are ignored."""
        with self._work:
            return self._queues.started

    # -- the end

    def drain(self, timeout: float | None = None) -> list[R]:
        """Drop what is queued, wait for what was started, and return what is unfinished even so.

        timeout: seconds, by default drain_timeout. It waits for what is in progress, and for what lies below a started
        record of its partition; commit afterwards. Ctrl-C (KeyboardInterrupt) ends the waiting: what is unfinished then
        is cancelled and returned, and nothing is raised. Any other exception cancels as well, and is raised.
        `submit` is refused from here on. May be called again.
        """
        limit = arguments.seconds("drain", timeout, default=self._drain_timeout)
        with self._work:
            unfinished: list[R] = []
            try:
                self._draining = True
                self._queues.stop()
                self._wake()
                self._wait_for_rest(time.monotonic() + limit)
            except KeyboardInterrupt:  # whoever waits at the end of a program has requested the end before
                pass
            finally:
                unfinished = self._queues.give_up()
            return unfinished

    def _wait_for_rest(self, deadline: float) -> None:
        while not self._queues.at_rest() and (left := deadline - time.monotonic()) > 0:
            self._rest.wait(min(left, _PULSE))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain, unless that was done; then the threads end."""
        try:
            if not self._draining:
                self.drain()
        finally:
            with self._work:
                self._closed = True
                self._work.notify_all()
                # Law 5: a handler that never ends would hold the join up for ever.
                ending = [] if self._handling else self._threads
            for thread in ending:
                thread.join()

    def __repr__(self) -> str:
        with self._work:
            return f"PartitionExecutor({self._queues.started} started, {self._queues.queued} queued)"

    # -- threads

    def _may_start(self) -> bool:
        return self._standing is None or self._standing.holds(now())

    def _wake(self) -> None:
        """Let as many workers look for work as there are records queued, new ones too while there may be."""
        if not self._queues.has_next():
            return
        queued = self._queues.queued
        try:
            for _ in range(min(queued - self._idle, self._max_workers - len(self._threads))):
                thread = threading.Thread(target=self._run, name=f"instride-worker-{len(self._threads)}", daemon=True)
                thread.start()
                self._threads.append(thread)
        except RuntimeError as error:
            self._go_on_with_fewer(error)
        self._work.notify(queued)

    def _go_on_with_fewer(self, error: RuntimeError) -> None:
        """Raises only if there is no thread at all: the caller has changed the state, and needs the result (that of
        `hold`, say)."""
        if not self._threads:
            raise error
        if not self._told_of_fewer:
            self._told_of_fewer = True
            text = "the system makes no thread for another handler: %d of %d go on (%s)"
            _logger.warning(text, len(self._threads), self._max_workers, error)

    def _run(self) -> None:
        ended: tuple[Task[R], BaseException | None] | None = None
        while True:
            with self._work:
                # Under the lock in which the next one is taken: one lock for each record, and not two.
                if ended is not None:
                    self._end(*ended)
                    ended = None
                task = self._next()
            if task is None:
                return
            ended = task, self._error_of(task.record)
            # Else the record stays in memory for as long as the thread waits for the next.
            del task

    def _next(self) -> Task[R] | None:
        """Waits for one; None when the executor is closed."""
        while (task := self._queues.take()) is None:
            if self._closed:
                return None
            self._idle += 1
            self._work.wait()
            self._idle -= 1
        self._handling += 1
        return task

    def _end(self, task: Task[R], error: BaseException | None) -> None:
        self._handling -= 1
        self._queues.end(task, error)
        if self._draining and self._queues.at_rest():
            self._rest.notify_all()

    def _error_of(self, record: R) -> BaseException | None:
        try:
            returned = self._handle(record)
            refuse_coroutine(returned)
        except BaseException as error:  # noqa: BLE001 - `check` raises it where the loop is
            return error
        return None


def _payload_size(record: Any) -> int:
    if isinstance(record, OffsetRange):
        return 0
    key, value = record.key, record.value
    return (len(key) if isinstance(key, bytes) else 0) + (len(value) if isinstance(value, bytes) else 0)
