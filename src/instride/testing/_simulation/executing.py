"""A user whose workers have a queue for each partition: the README's loop, with what `PartitionExecutor` decides by.

Laws
1. `PartitionQueues` decides, as in `PartitionExecutor`; instead of its threads there are the simulation's workers.
2. Which record is begun when is written into the history, and from where on what was only queued is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import TYPE_CHECKING, Any

from instride._core.application.calls import Wait
from instride._core.session_lease import Standing
from instride._processing.partition_queues import PartitionQueues, Task
from instride.consumer_records import ConsumerRecords
from instride.ledger import OffsetLedger
from instride.records import ConsumerRecord, TopicPartition
from instride.testing._simulation.process import Sleep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instride.testing._simulation.member import Member

__all__ = ["QueuedWork", "rounds"]

_Run = tuple[int, int]


def _run(record: ConsumerRecord) -> _Run:
    return record.epoch, record.seek_number


class QueuedWork:
    """What `PartitionExecutor` does with threads. next: of each partition the epoch and the seek number, and the first
    offset that was never begun."""

    def __init__(self, member: Member) -> None:
        self.queues: PartitionQueues[ConsumerRecord] = PartitionQueues(
            max_records=member.plan.most_in_flight, max_bytes=1 << 40, size=lambda _: 1, may_start=self._may_start
        )
        self._standing: Standing | None = None
        self._member = member
        self._running = 0
        self._next: dict[TopicPartition, tuple[_Run, int]] = {}

    def _may_start(self) -> bool:
        return self._standing is None or self._standing.holds(self._member.process.scheduler.now)

    def submit(self, records: ConsumerRecords, lost: Collection[TopicPartition]) -> None:
        self.queues.submit(records, lost)
        self._standing = records.standing
        for record in records:
            tp = record.topic_partition
            if self._next.get(tp, (None, 0))[0] != _run(record):
                self._next[tp] = _run(record), record.offset
        self.start()

    def start(self) -> None:
        while self._running < self._member.plan.workers and (task := self.queues.take()) is not None:
            self._running += 1
            self._begins(task.record)
            self._member.submit(task.record).add_done_callback(self._ends(task))

    def _begins(self, record: ConsumerRecord) -> None:
        tp, offset = record.topic_partition, record.offset
        self._member.did("begins", tp, offset, record.epoch)
        self._next[tp] = _run(record), max(offset + 1, self._next[tp][1])

    def _ends(self, task: Task[ConsumerRecord]) -> Callable[[Any], None]:
        def end(future: Any) -> None:
            self._running -= 1
            self.queues.end(task, future.exception())
            self.start()

        return end

    def hold(self, to_be_revoked: Collection[TopicPartition]) -> set[TopicPartition]:
        """A partition that is not delayed is released: none of its queued records will be begun."""
        delayed = self.queues.hold(to_be_revoked)
        self._drop(sorted(set(to_be_revoked) - delayed))
        return delayed

    def stop(self) -> None:
        self.queues.stop()
        self._drop(sorted(self._next))
        self.start()

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            if tp in self._next:
                (epoch, _), offset = self._next[tp]
                self._member.did("not begun", tp, epoch, offset)


def rounds(member: Member) -> Generator[Wait | Sleep, float, OffsetLedger]:
    """Until the member is to stop and nothing is at work any more. Returns what is to be committed then."""
    consumer, work = member.consumer, QueuedWork(member)
    queues = work.queues
    while not member.stopping:
        member.follow()
        try:
            records = yield from consumer.poll(timeout=member.plan.poll_timeout)
        except member.poll_errors:
            continue
        work.submit(records, consumer.lost_partitions())
        yield member.breath()
        consumer.commit_async(queues.ledger.committable())
        yield member.breath()
        consumer.delay_revoke(work.hold(consumer.to_be_revoked_partitions()), reason=queues.ledger.oldest)
        yield member.breath()
        consumer.pause(*queues.full())
        consumer.resume(*queues.ready())
        for record, _ in queues.failures():
            queues.retry(record)
        work.start()
    work.stop()
    while not queues.at_rest():
        yield Sleep(0.05)
    return queues.ledger
