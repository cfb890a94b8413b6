"""`OffsetLedger`: which records are finished, and therefore which offsets may be committed.

Laws
1. A partition's next commit is behind the unbroken finished stretch from its first tracked record, in the order of
   delivery: never beyond a record that is in progress, failed or cancelled.
2. A record is known by partition, assignment epoch, seek number and offset. A newer epoch or seek number starts the
   partition anew; whatever ends under an older one is ignored.
3. Only success settles a record. A failed or cancelled one holds its partition's commits until it is finished after
   all (`done`, or a new `watch`), or forgotten.
4. What is finished stays uncommitted until the broker has said that it is committed, and is offered until then. To
   offer again what is on its way is harmless: a commit is a place, not a step. What the broker refuses for good is
   offered, too, but worth no delay: none of a hand-over that waits already. One that begins tries it once more.
5. Of two stretches that do not join up, offsets between them were returned by a poll and never tracked: nothing behind
   such a gap is committed, and `check` names it, once. A gap that the log has (compaction, transactions) is none.
6. One lock guards all, and nothing of the user's is called under it. Every method may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

from instride import _arguments as arguments
from instride._coroutines import refuse_coroutine
from instride._partition_ledger import CANCELLED, FAILED, FINISHED, UNDER_WAY, Block, PartitionLedger, stretches_of
from instride.commits import CommitEntry, CommitOutcome, CommitSnapshot
from instride.consumer_records import Stretch
from instride.errors import OffsetGapError
from instride.errors._quoting import counted
from instride.records import OffsetRange, TopicPartition

__all__ = ["OffsetLedger", "TrackedRecord", "WatchedFuture"]


class TrackedRecord(Protocol):
    """What a ledger reads of a `ConsumerRecord` (besides `offset`) or an `OffsetRange` (besides `start` and `end`)."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def seek_number(self) -> int: ...


class WatchedFuture(Protocol):
    """What a ledger asks of a future: those of `concurrent.futures` and of asyncio have it."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> object:
        """Call ``fn`` with the future when that is done; at once if it is done already."""


R = TypeVar("R", bound=TrackedRecord)
_stretch: Final = attrgetter("topic", "partition", "epoch", "seek_number", "leader_epoch")


class OffsetLedger:
    """Keeps count of records between `Consumer.poll` and `Consumer.commit`. See docs/ledger.md.

    A record costs about ten bytes while it is in progress, and two microseconds in all: a million at once is fine.
    """

    def __init__(self) -> None:
        # Re-entrant, since the garbage collector may run a user's finalizer anywhere, and that may call us.
        self._lock = threading.RLock()
        self._runs: dict[tuple[str, int], PartitionLedger] = {}
        self._ahead: dict[tuple[str, int], PartitionLedger] = {}
        self._gaps: dict[tuple[str, int], OffsetGapError] = {}
        self._unraised: dict[tuple[tuple[str, int], int], BaseException] = {}
        # By which call it was asked last whether these are worth a delay.
        self._asked: dict[tuple[str, int], int] = {}
        self._calls = 0
        self._under_way = 0

    def track(self, records: Iterable[R], *, stretches: Sequence[Stretch] | None = None) -> list[R]:
        """Register all of a poll's records as in progress, then give them back in the same order.

        A record of an epoch or seek number that is over is returned as well, and not registered. Raises
        ValueError, with nothing registered, where a partition's offsets do not rise (a record tracked twice).

        stretches: `ConsumerRecords.stretches` of the poll, where its records come as something else. By them the ledger
        notices records that a poll returned and that were never tracked. They must tell of just these records, in this
        order.
        """
        batch = list(records)
        if stretches is None:
            # Of records that no poll returned nobody knows what lies between them: that is no gap (law 5).
            stretches = stretches_of(records) or [Stretch(-1, -1, len(batch))]
        blocks = _blocks(batch, stretches)
        with self._lock:
            for run, block in self._plan(blocks):
                self._add(run, block)
        return batch

    def _plan(self, blocks: list[Block]) -> list[tuple[PartitionLedger, Block]]:
        """Which run takes which block. Changes nothing, so that a refused batch leaves no trace."""
        current: dict[tuple[str, int], PartitionLedger] = {}
        last: dict[PartitionLedger, int] = {}
        planned: list[tuple[PartitionLedger, Block]] = []
        for block in blocks:
            run = self._run_for(block, current)
            if run is None:
                continue
            # `last_offset` does not know of this batch's own blocks yet.
            if block.offsets[0] <= last.get(run, run.last_offset):
                raise ValueError(f"{run.partition}: offset {block.offsets[0]} was tracked before, or came out of order")
            last[run] = block.last_offset
            planned.append((run, block))
        return planned

    def _run_for(self, block: Block, current: dict[tuple[str, int], PartitionLedger]) -> PartitionLedger | None:
        first = block.records[0]
        key = TopicPartition(first.topic, first.partition)
        run = current.get(key) or self._runs.get(key)
        if run is None or (run.epoch, run.seek_number) < (first.epoch, first.seek_number):
            run = current[key] = PartitionLedger(key, first.epoch, first.seek_number)
        return run if run.is_of(first.epoch, first.seek_number) else None

    def _add(self, run: PartitionLedger, block: Block) -> None:
        if self._runs.get(run.partition) is not run:
            self._drop(run.partition)
            self._runs[run.partition] = run
        self._under_way += len(block.states)
        run.add(block)
        if run.gap is not None and run.partition not in self._gaps:
            self._gaps[run.partition] = run.gap
            self._unraised[run.partition, run.gap.start] = run.gap

    def _drop(self, key: tuple[str, int]) -> PartitionLedger | None:
        run = self._runs.pop(key, None)
        if run is not None:
            self._under_way -= run.under_way
            self._ahead.pop(key, None)
            gap = self._gaps.pop(key, None)
            for offset in [*run.failures, *([] if gap is None else [gap.start])]:
                self._unraised.pop((key, offset), None)
        return run

    def watch(self, record: TrackedRecord, future: WatchedFuture) -> None:
        """Settle a record by its future: finished on success, failed on an error, left open where it is cancelled.

        A future whose result is a coroutine or a generator has failed, since nothing of that has run: a pool was given
        a function that is defined by async def, say. To watch a record again that failed or was cancelled puts it in
        progress again.

        Raises TypeError for what is no future, with nothing changed; and what the future raises: the record is then as
        one that was cancelled, or has failed anew with its error.
        """
        if not callable(getattr(future, "add_done_callback", None)):
            raise TypeError(f"watch takes a future of concurrent.futures or of asyncio, not {type(future).__name__}")
        # Before the callback is added: a future that is done calls it at once.
        failure = self._mark(record, UNDER_WAY)
        try:
            future.add_done_callback(partial(self._on_done, record))
        except BaseException:  # its loop is closed, say
            self._mark(record, CANCELLED if failure is None else FAILED, failure)
            raise

    def _on_done(self, record: TrackedRecord, future: Any) -> None:
        if future.cancelled():
            self._mark(record, CANCELLED)
            return
        error = future.exception()
        if error is None:  # an error's class may say that it is false
            error = _unrun(future.result())
        self._mark(record, FINISHED if error is None else FAILED, error)

    def done(self, record: TrackedRecord) -> None:
        """The record is finished; also one that failed or was cancelled, so that its partition goes on."""
        self._mark(record, FINISHED)

    def fail(self, record: TrackedRecord, error: BaseException) -> None:
        """The record failed: it holds its partition's commits, and `check` raises the error, once."""
        self._mark(record, FAILED, error)

    def _mark(self, record: TrackedRecord, state: int, error: BaseException | None = None) -> BaseException | None:
        """Returns the error that the record had failed with until now."""
        key = (record.topic, record.partition)
        with self._lock:
            run = self._runs.get(key)
            if run is None or not run.is_of(record.epoch, record.seek_number):
                return None
            offset, before = _offset(record), run.under_way
            failure = run.failures.get(offset)
            if not run.mark(offset, state, error):
                return None
            self._under_way += run.under_way - before
            self._unraised.pop((key, offset), None)
            if error is not None:
                self._unraised[key, offset] = error
            if state == FINISHED and run.is_ahead():
                self._ahead[key] = run
            return failure

    def forget(self, partitions: Iterable[tuple[str, int]]) -> list[Any]:
        """Drop all that is known of these partitions, and return the records that were still in progress.

        When those end nevertheless, it is ignored. A partition that is not known is nothing.
        """
        named = arguments.partitions("forget", partitions)
        with self._lock:
            dropped = [run for partition in named if (run := self._drop(partition)) is not None]
            return [record for run in dropped for record in run.records(UNDER_WAY)]

    def committable(self) -> CommitSnapshot:
        """What may be committed now and is not known to be committed. Never raises; may be empty.

        An offset whose commit is on its way is in it again, until the consumer has settled it. Whoever commits
        the snapshot gives it to `Consumer.commit` or `commit_async`, which settle it.
        """
        with self._lock:
            entries = {run.partition: run.entry() for run in self._ahead.values()}
        return arguments.CheckedSnapshot(entries, self._on_settled)

    def _on_settled(self, partition: TopicPartition, entry: CommitEntry, outcome: CommitOutcome) -> None:
        with self._lock:
            run = self._runs.get(partition)
            if run is None or not run.is_of(entry.epoch, entry.seek_number):
                return
            if outcome is CommitOutcome.COMMITTED:
                run.commits(entry.offset)
            elif outcome is CommitOutcome.REFUSED:
                run.refuses(entry.offset)
            elif outcome is CommitOutcome.STALE:
                # The consumer has a newer assignment or seek: else the entry would be offered, and refused, for ever.
                run.stale = True
            if not run.is_ahead():
                self._ahead.pop(partition, None)

    def uncommitted(self, partitions: Iterable[tuple[str, int]]) -> set[TopicPartition]:
        """Those of the partitions that are worth a delay: with records in progress, or finished and not committed.

        Left out are those whose other records all failed or were cancelled, or are finished, but come after such a
        record, or after records that a poll returned and that were never tracked: no wait gets these committed. Nor
        where the broker refuses their commit for good, since their topic is gone, say; what it refused before the
        hand-over began is tried once more.
        """
        named = arguments.partitions("uncommitted", partitions)
        with self._lock:
            return {run.partition for run in self._asked_about(named) if run.is_worth_a_delay()}

    def _asked_about(self, named: Collection[tuple[str, int]]) -> list[PartitionLedger]:
        """Under the lock. A hand-over has ended that no call has named from one to the next about another partition, or
        where a call names none: what was refused in it says nothing of the next one (law 4)."""
        self._calls += 1
        since = max((self._asked.get(each, 0) for each in named), default=self._calls)
        for partition in [each for each, call in self._asked.items() if call < since and each not in named]:
            del self._asked[partition]
            if partition in self._runs:
                self._runs[partition].waits_no_more()
        self._asked.update(dict.fromkeys(named, self._calls))
        return [self._runs[partition] for partition in named if partition in self._runs]

    def check(self) -> None:
        """Raise the error of a failed record, or an OffsetGapError, the oldest first, each once; nothing where none is.

        An error is passed over when its record was meanwhile finished, tried again or forgotten, and a gap when its
        partition was. The error of a record is the handler's own, with a note that names the record.
        """
        with self._lock:
            if not self._unraised:
                return
            where = next(iter(self._unraised))
            error = self._unraised.pop(where)
        # Outside the lock: the error is the user's, and so may be its `add_note` (law 6).
        if not isinstance(error, OffsetGapError):
            (topic, number), offset = where
            with suppress(Exception):  # a frozen dataclass takes none
                error.add_note(f"while handling {topic}-{number} at offset {offset}")
        raise error

    def gaps(self) -> list[OffsetGapError]:
        """The first gap of each partition whose commits a gap holds back, whether raised or not. A gap: records that a
        poll returned and that were never tracked."""
        with self._lock:
            return list(self._gaps.values())

    def failures(self) -> list[tuple[Any, BaseException]]:
        """The records that failed and hold their partitions, each with its error, whether raised or not."""
        with self._lock:
            runs = [run for run in self._runs.values() if run.failures]
            return [(run.record_at(offset), error) for run in runs for offset, error in run.failures.items()]

    def in_progress(self, partition: tuple[str, int] | None = None) -> int:
        """How many records are in progress, of one partition or of all: what to pause by."""
        with self._lock:
            if partition is None:
                return self._under_way
            run = self._runs.get(arguments.partition("in_progress", partition))
            return 0 if run is None else run.under_way

    def oldest(self, partition: tuple[str, int]) -> Any:
        """The record that the partition's next commit waits for: the first that is not finished, or None.

        None also where it waits for records that were never tracked (`gaps`).
        """
        with self._lock:
            run = self._runs.get(arguments.partition("oldest", partition))
            return None if run is None else next(run.records_before_gap(UNDER_WAY, FAILED, CANCELLED), None)

    def __repr__(self) -> str:
        with self._lock:
            return f"OffsetLedger({self._under_way} in progress in {counted(len(self._runs), 'partition')})"


def awaiting_commit(ledger: OffsetLedger, partitions: Collection[tuple[str, int]]) -> set[TopicPartition]:
    """Those of which something is finished and to be committed, and not refused for good."""
    with ledger._lock:
        return {run.partition for run in ledger._asked_about(partitions) if run.asks_for_commit()}


def _blocks(batch: list[Any], stretches: Sequence[Stretch]) -> list[Block]:
    if sum(stretch.records for stretch in stretches) != len(batch):
        raise ValueError(f"stretches: they do not tell of the {counted(len(batch), 'record')} given")
    blocks: list[Block] = []
    place = 0
    for start, end, count in stretches:
        found = [Block(list(group)) for _, group in groupby(batch[place : place + count], _stretch)]
        for number, block in enumerate(found):
            # What a stretch holds joins up within it: only its first block has a start that can leave a gap.
            block.start, block.until = -1 if number else start, end
        blocks += found
        place += count
    return blocks


def _offset(record: Any) -> int:
    return int(record.start if isinstance(record, OffsetRange) else record.offset)


def _unrun(result: object) -> TypeError | None:
    try:
        refuse_coroutine(result)
    except TypeError as error:
        return error
    return None
