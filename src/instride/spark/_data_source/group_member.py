"""A query's member of its group: one thread, which alone uses the consumer and the table.

    poll -> note what is requested -> offer what there is -> place what is new -> respond to Spark -> commit -> delay

Laws
1. Polls go on for as long as the source's process lives, also while a batch runs for long.
2. Spark's thread asks by a function that runs here between two polls. One that returns None is asked again after each
   poll, until its time is over.
3. What ends the thread is raised by every request from then on.
4. It leaves the group when it was asked to and the table is settled, or at once when it is closed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Final, TypeVar

from instride.commits import CommitResult
from instride.consumer import RangeConsumer
from instride.errors import (
    CommitFailedError,
    CommitOvertakenError,
    IllegalStateError,
    KafkaError,
    WakeupError,
)
from instride.listeners import RebalanceListener
from instride.records import OffsetAndMetadata, TopicPartition
from instride.spark._data_source.group_table import Committed, GroupTable
from instride.spark._data_source.options import Topics

__all__ = ["GroupMember"]

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_ASKING: Final = 10.0
_LEAVE_SECONDS: Final = 5.0
_RUN: Final = "instride run "
"""A commit's metadata: this, and the run that it names."""

T = TypeVar("T")


class GroupMember(RebalanceListener):
    """consumer: closed by the thread. start: where partitions begin of which the group knows nothing.

    Spark's thread may call `ask`, `leave`, `close`; the rest is for functions that `ask` runs.
    """

    def __init__(self, consumer: RangeConsumer, table: GroupTable, topics: Topics, *, earliest: bool) -> None:
        self.consumer = consumer
        self.table = table
        self.topic_ids: dict[str, str] = {}
        self._topics = topics
        self._earliest = earliest
        self._requested: set[TopicPartition] = set()
        self._requests: list[tuple[Callable[[], object], Future[object]]] = []
        self._lock = threading.Lock()
        self._commit: tuple[dict[TopicPartition, int], Future[CommitResult]] | None = None
        self._failure: BaseException | None = None
        self._leaving = self._closing = False
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="instride-member", daemon=True)

    # -- for other threads

    def start(self) -> None:
        self._thread.start()

    def ask(self, request: Callable[[], T | None], *, timeout: float) -> T | None:
        """What the request returns. None: it returned nothing in time. Raises what it raised, and law 3."""
        future: Future[object] = Future()
        with self._lock:
            self._check()
            self._requests.append((request, future))
        self.consumer.wakeup()
        try:
            return future.result(timeout)  # type: ignore[return-value]
        except TimeoutError:
            # Where it cannot be cancelled, the response has come in this moment.
            return None if future.cancel() else future.result()  # type: ignore[return-value]

    def leave(self) -> threading.Event:
        """Law 4. The event: it has left."""
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
            while not self._closing and not (self._leaving and self.table.settled and self._commit is None):
                self._step()
        except BaseException as error:  # noqa: BLE001 - raised by the next request
            self._failure = error
        finally:
            self._end()

    def _step(self) -> None:
        self._poll()
        known = self._requested | self.consumer.to_be_revoked_partitions()
        self._requested = {each for each in known if self.consumer.revoke_deadline(each) is not None}
        self.table.requested(self._requested)
        self._place()
        self._respond()
        self._commit_owed()
        self.consumer.delay_revoke(
            self.table.kept(self.consumer.to_be_revoked_partitions()), reason="the batch that Spark runs"
        )

    def _poll(self) -> None:
        try:
            for each in self.consumer.poll(timeout=_POLL_SECONDS):
                self.table.offered(each.topic_partition, each.end)
        except WakeupError:
            pass
        except KafkaError as error:
            if not error.retriable:
                raise
            _log.warning("the group's member goes on: %s", error)

    def _place(self) -> None:
        """Where new partitions begin. What cannot be learnt now is tried again after the next poll."""
        new = self.table.unplaced
        if not new:
            return
        try:
            self._learn_ids({partition.topic for partition in new})
            found = self.found(new)
            unknown = [partition for partition in new if found[partition] is None]
            ends = self.consumer.beginning_offsets if self._earliest else self.consumer.end_offsets
            starts = ends(unknown, timeout=_ASKING) if unknown else {}
        except KafkaError as error:  # a wake-up, a time-out too
            if not error.retriable:
                raise
            return
        for partition in new:
            position = self.table.place(
                partition,
                committed=found[partition],
                start=starts.get(partition, 0),
                topic_id=self.topic_ids[partition.topic],
            )
            self.consumer.seek(partition, position)
            self.consumer.resume(partition)

    def _learn_ids(self, topics: Iterable[str]) -> None:
        for topic in sorted(topics):
            infos = self.consumer.partitions_for(topic, timeout=_ASKING)
            self.topic_ids[topic] = str(infos[0].topic_id) if infos and infos[0].topic_id is not None else ""

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
        self._left.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _metadata(run: str) -> str:
    return run and _RUN + run


def _run_in(metadata: str) -> str:
    return metadata.removeprefix(_RUN) if metadata.startswith(_RUN) else ""


def _settle(future: Future[object], *, found: object = None, error: BaseException | None = None) -> None:
    try:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found)
    except InvalidStateError:
        pass  # its time was over just now; the same request gets the same response the next time (the table's law 8)
