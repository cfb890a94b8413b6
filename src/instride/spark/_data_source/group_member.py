"""A query's member of its group: one thread, which alone uses the consumer and the table.

    poll -> note what is requested -> offer what there is -> place what is new -> respond to Spark -> seek -> commit
    -> delay

Laws
1. Polls go on for as long as the source's process lives, also while a batch runs for long.
2. Spark's thread asks by a function that runs here between two polls. One that returns None is asked again after each
   poll, until its time is over.
3. What ends the thread is raised by every request from then on.
4. It leaves the group when it was asked to and the table is settled, or at once when it is closed.
5. That the consumer goes on elsewhere by itself, since the log does not have what followed, is data loss. So is another
   id of a topic than the run has known. It is told before anything comes of it: an error ends the thread, and leaves
   the group's offset as it is. Only where loss is passed over the partition is placed anew (the table's law 14).
6. Of a topic that was made again each partition that is ours begins anew as soon as the topic's id is known: nothing
   is planned by the offsets of one topic with the id of the other. A broker that still has an older id is asked again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from typing import Final, TypeVar

from instride.commits import CommitResult
from instride.consumer import RangeConsumer
from instride.errors import (
    CommitFailedError,
    CommitOvertakenError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    WakeupError,
)
from instride.listeners import RebalanceListener
from instride.records import OffsetAndMetadata, OffsetRange, TopicPartition
from instride.spark._data_source.group_table import Committed, GroupTable
from instride.spark._data_source.options import Topics
from instride.spark._data_source.planning import LossReport, made_again
from instride.spark._resets import ResetObserver
from instride.telemetry import PositionReset, ResetCause

__all__ = ["GroupMember"]

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_ASKING: Final = 10.0
_LEAVE_SECONDS: Final = 5.0
_LOOK: Final = 1.0
"""Seconds between two looks of who waits for a response."""
_STALE: Final = 10.0
"""Seconds for which a broker may still know a topic as it was before it was made again."""
_RUN: Final = "instride run "
"""A commit's metadata: this, and the run that it names."""

T = TypeVar("T")


class GroupMember(RebalanceListener):
    """consumer: closed by the thread. earliest: where partitions begin of which the group knows nothing.

    topic_ids: those that the run has known last.
    Spark's thread may call `ask`, `leave`, `close`; the rest is for functions that `ask` runs.
    """

    def __init__(
        self, consumer: RangeConsumer, table: GroupTable, topics: Topics, *, earliest: bool, loss: LossReport
    ) -> None:
        self.consumer = consumer
        self.table = table
        self.topic_ids: dict[str, str] = {}
        self._topics = topics
        self._earliest = earliest
        self._loss = loss
        self._resets = ResetObserver()
        consumer.observe(self._resets)
        # Law 6. Ids that were replaced, and until when the present one of a topic is in doubt.
        self._old_ids: set[str] = set()
        self._doubted: dict[str, float] = {}
        self._requested: set[TopicPartition] = set()
        self._requests: list[tuple[Callable[[], object], Future[object]]] = []
        self._lock = threading.Lock()
        self._commit: tuple[dict[TopicPartition, int], Future[CommitResult]] | None = None
        self._failure: BaseException | None = None
        self._leaving = self._closing = False
        self._left: Future[bool] = Future()
        self._thread = threading.Thread(target=self._run, name="instride-member", daemon=True)

    # -- for other threads

    def start(self) -> None:
        self._thread.start()

    def ask(
        self,
        request: Callable[[], T | None],
        *,
        timeout: float,
        each_second: Callable[[], None] = lambda: None,
    ) -> T | None:
        """What the request returns. None: it returned nothing in time. Raises what it raised, and law 3.

        each_second: called on the thread that asks, while it waits.
        """
        until = time.monotonic() + timeout
        future: Future[object] = Future()
        with self._lock:
            self._check()
            self._requests.append((request, future))
        # Once: where the thread is in the middle of a look at the group, a wake-up cuts it short.
        self.consumer.wakeup()
        while not _is_done(future, min(until - time.monotonic(), _LOOK)):
            # Where it cannot be cancelled, the response has come in this moment.
            if time.monotonic() >= until and future.cancel():
                return None
            each_second()
        return future.result()  # type: ignore[return-value]

    def leave(self) -> Future[bool]:
        """Law 4. Ends when the thread does: whether all was confirmed and committed then, as it is not after an error
        or a close."""
        self._leaving = True
        self.consumer.wakeup()
        return self._left

    def close(self) -> None:
        """Leave the group now, with what is in flight unconfirmed. Within a few seconds."""
        self._closing = True
        if self._thread.is_alive():
            self.consumer.wakeup()
            self._thread.join(_LEAVE_SECONDS * 2)

    # -- for functions that run on the thread

    @property
    def joined(self) -> bool:
        """It has its first assignment, which may be empty, and knows where all of that begins."""
        return self.consumer.group_metadata().generation_id >= 0 and not self.table.unplaced

    @property
    def leaves(self) -> bool:
        return self._leaving

    def found(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """What the group has of any partitions. Raises KafkaError."""
        found = self.consumer.committed(partitions, timeout=_ASKING)
        return {each: None if at is None else Committed(at.offset, _run_in(at.metadata)) for each, at in found.items()}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs of any partitions end. Raises KafkaError."""
        return self.consumer.end_offsets(partitions, timeout=_ASKING)

    # -- the listener

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.consumer.pause(partitions)
        self.table.assigned(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._requested.difference_update(partitions)
        self.table.gone(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in sorted(self.table.kept(partitions)):
            _log.warning("%s was lost: its next owner reads again what the batch in flight reads of it", partition)
        self.on_partitions_revoked(partitions)

    # -- the thread

    def _run(self) -> None:
        try:
            if self._topics.pattern is not None:
                self.consumer.subscribe(pattern=self._topics.pattern, listener=self)
            else:
                self.consumer.subscribe(self._topics.subscribe, listener=self)
            while not self._closing and not self._may_leave:
                self._step()
        except BaseException as error:  # noqa: BLE001 - raised by the next request
            self._failure = error
        finally:
            self._end()

    @property
    def _may_leave(self) -> bool:
        return self._leaving and self.table.settled and self._commit is None

    def _step(self) -> None:
        self._poll()
        known = self._requested | self.consumer.to_be_revoked_partitions()
        self._requested = {each for each in known if self.consumer.revoke_deadline(each) is not None}
        self.table.requested(self._requested)
        self._place()
        self._respond()
        for partition, position in self.table.passed().items():
            self.consumer.seek(partition, position)
        self._commit_owed()
        self.consumer.delay_revoke(
            self.table.kept(self.consumer.to_be_revoked_partitions()), reason="the batch that Spark runs"
        )

    def _poll(self) -> None:
        offered: list[OffsetRange] = []
        try:
            offered = self.consumer.poll(timeout=_POLL_SECONDS)
        except WakeupError:
            pass
        except KafkaError as error:
            if not error.retriable:
                raise
            _log.warning("the group's member goes on: %s", error)
        # Before what the poll brought from there.
        for reset in self._resets.take():
            self._go_elsewhere(reset)
        for each in offered:
            self.table.offered(each.topic_partition, each.end)

    def _go_elsewhere(self, event: PositionReset) -> None:
        """Law 5."""
        partition, is_other = event.partition, event.cause is ResetCause.RECREATED
        is_off = self._take_off(partition, event.to_offset, made_again=is_other)
        if is_other:
            # Told once its ids are known, and only if they differ: the consumer alone may have known an older topic.
            self._doubted[partition.topic] = time.monotonic() + _STALE
        elif is_off:
            self._loss.tell(f"{partition} cannot go on at offset {event.from_offset}: {event.cause.value}")

    def _take_off(self, partition: TopicPartition, to: int, *, made_again: bool) -> bool:
        """False: it is not ours any more, or where it begins is looked up in any case, since it is not placed."""
        if not self.table.reset(partition, to, made_again=made_again):
            return False
        self.consumer.pause([partition])
        return True

    def _place(self) -> None:
        """Where new partitions begin. What cannot be learnt now is tried again after the next poll."""
        try:
            self._learn_ids({*self._doubted, *(partition.topic for partition in self.table.unplaced)})
            new = self.table.unplaced
            found = self.found(new) if new else {}
            starts = self._starts([partition for partition in new if found[partition] is None])
        except KafkaError as error:  # a wake-up, a time-out too
            if not error.retriable:
                raise
            return
        self._resets.forget(new)
        for partition in new:
            position = self.table.place(
                partition,
                committed=found[partition],
                start=starts.get(partition, 0),
                topic_id=self.topic_ids[partition.topic],
            )
            self.consumer.seek(partition, position)
            self.consumer.resume(partition)

    def _starts(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        ends = self.consumer.beginning_offsets if self._earliest else self.consumer.end_offsets
        return ends(partitions, timeout=_ASKING) if partitions else {}

    def _learn_ids(self, topics: Iterable[str]) -> None:
        """Laws 5 and 6. Raises KafkaTimeoutError where a broker does not know the newest id yet."""
        for topic in sorted(topics):
            known, now = self.topic_ids.get(topic, ""), self._id_of(topic)
            if "" not in (known, now) and known != now:
                self._loss.tell(made_again(topic, known, now))
                ours = [partition for partition in self.table.placed if partition.topic == topic]
                for partition, start in self._starts(ours).items():
                    self._take_off(partition, start, made_again=True)
                self._old_ids.add(known)
            self.topic_ids[topic] = now or known
            self._doubted.pop(topic, None)

    def _id_of(self, topic: str) -> str:
        infos = self.consumer.partitions_for(topic, timeout=_ASKING)
        found = str(infos[0].topic_id) if infos and infos[0].topic_id is not None else ""
        # "": it knows that the old topic is gone, and not yet the new one.
        is_doubtful = found in ("", self.topic_ids.get(topic, "")) and time.monotonic() < self._doubted.get(topic, 0.0)
        if found in self._old_ids or is_doubtful:
            raise KafkaTimeoutError(f"a broker knows topic {topic} as it was before it was made again")
        return found

    def _respond(self) -> None:
        with self._lock:
            requests, self._requests = self._requests, []
        again = []
        for request, future in requests:
            if future.cancelled():
                continue
            try:
                found = request()
            except Exception as error:  # noqa: BLE001 - raised on the thread that asked
                _settle(future, error=error)
                continue
            if found is None:
                again.append((request, future))
            else:
                _settle(future, found=found)
        with self._lock:
            self._requests += again

    def _commit_owed(self) -> None:
        if self._commit is not None and self._commit[1].done():
            self._committed(*self._commit)
            self._commit = None
        owed = self.table.owed
        if owed and self._commit is None:
            future = self._sent(
                {
                    each: OffsetAndMetadata(offset=at, metadata=_metadata(self.table.run_of(each)))
                    for each, at in owed.items()
                }
            )
            self._commit = (owed, future)
            future.add_done_callback(lambda _: self.consumer.wakeup())

    def _sent(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> Future[CommitResult]:
        try:
            return self.consumer.commit_async(offsets)
        except KafkaError as error:
            refused: Future[CommitResult] = Future()
            refused.set_exception(error)
            return refused

    def _committed(self, offsets: dict[TopicPartition, int], future: Future[CommitResult]) -> None:
        """What failed stays owed, and is sent again, until the partition is ours no more."""
        error = future.exception()
        if error is None:
            result = future.result()
            self.table.committed({each: offsets[each] for each in result.committed})
            # The group has a later offset already.
            passed = [each for each, why in result.not_committed.items() if isinstance(why, CommitOvertakenError)]
            self.table.committed({each: offsets[each] for each in passed})
            refused = [why for each, why in result.not_committed.items() if each not in passed]
            error = refused[0] if refused else None
        if error is None:
            return
        if not isinstance(error, KafkaError) or isinstance(error, CommitOvertakenError):
            raise error
        if not error.retriable and not isinstance(error, CommitFailedError):
            raise error
        _log.warning("the batch's offsets are not committed to the group yet: %s", error)

    def _end(self) -> None:
        left = self._failure is None and self._may_leave
        for _ in range(2):
            try:
                self.consumer.close(timeout=_LEAVE_SECONDS)
            except WakeupError:
                continue  # a wake-up that was meant for a poll
            except KafkaError as error:
                _log.warning("while the query's member left its group: %s", error)
            break
        with self._lock:
            if self._failure is None:
                self._failure = IllegalStateError("the query's source has left its group: start the query anew")
            requests, self._requests = self._requests, []
        for _, future in requests:
            _settle(future, error=self._failure)
        self._left.set_result(left)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _metadata(run: str) -> str:
    return run and _RUN + run


def _run_in(metadata: str) -> str:
    return metadata.removeprefix(_RUN) if metadata.startswith(_RUN) else ""


def _is_done(future: Future[object], timeout: float) -> bool:
    return bool(wait([future], max(0.0, timeout)).done)


def _settle(future: Future[object], *, found: object = None, error: BaseException | None = None) -> None:
    try:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found)
    except InvalidStateError:
        pass  # its time was over just now; the same request gets the same response the next time (the table's law 8)
