"""A query's member of its group: one thread, which alone uses the consumer and the table.

    poll -> note what is requested -> offer what there is -> place what is new -> respond to Spark -> seek -> commit
    -> delay

Laws
1. Polls go on for as long as the source's process lives, also while a batch runs for long, and though look-ups time
   out: those between two polls have one deadline, and none begins after it.
2. Spark's thread asks by a function that runs here between two polls. One that returns None is asked again after each
   poll, until its time is over. A request ends a poll, and no look-up: Spark asks again and again, and no look-up that
   takes longer than that would ever end. To leave or to close ends both.
3. What ends the thread is raised by every request from then on.
4. It leaves the group when it was asked to and the table is settled, or at once when it is closed.
5. That the consumer goes on elsewhere by itself, since the log does not have what followed, is data loss. So is another
   id of a topic than the run has known. It is told before anything comes of it: an error ends the thread, and leaves
   the group's offset as it is. Only where loss is passed over the partition is placed anew (the table's law 14).
6. Of a topic that was made again each partition that is ours begins anew as soon as the topic's id is known: nothing
   is planned by the offsets of one topic with the id of the other. A broker that still has an older id is asked again.
7. What cannot be looked up of a topic, or at a leader, or committed of a topic, keeps no other from being placed or
   committed. What failed is looked up again behind all others, the longest ago first. But one response is of all
   topics. Where it times out, each is asked for by itself: a topic that times out keeps others waiting for two rounds.
8. Of a topic that is not there any more nothing is committed: that is data loss, too. Where loss is passed over, its
   partitions are as newly assigned, until the group takes them away or the topic is made again.
9. That the group has forgotten its offsets (nobody was in it for long) is data loss, too, where startingOffsets is
   latest: what the last batch did not read begins at the end of its log. A topic that the checkpoint knows had offsets.
   If the group still has one of another of its partitions, one without was added to the topic, and that is no loss.
   But once this run knows that they were forgotten, it is of all partitions that were there then: an offset may be one
   that it has committed since. What never had a record lacks none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from instride._processing.event_loop import result_of
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
from instride.errors.broker import UnknownTopicOrPartitionError
from instride.listeners import RebalanceListener
from instride.records import Node, OffsetAndMetadata, OffsetRange, PartitionInfo, TopicPartition
from instride.spark._data_source.group_table import Committed, GroupTable
from instride.spark._data_source.options import Topics
from instride.spark._data_source.planning import LossReport, made_again
from instride.spark._resets import ResetObserver
from instride.telemetry import PositionReset, ResetCause

__all__ = ["GroupMember"]

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_ASKING: Final = 10.0
_AGAIN: Final = 0.5
"""Seconds at least from a look-up that failed to the next one."""
_LONG: Final = 1.0
"""Seconds that look-ups take when one of them times out."""
_LEAVE_SECONDS: Final = 5.0
_LOOK: Final = 1.0
"""Seconds between two looks of who waits for a response."""
_STALE: Final = 10.0
"""Seconds for which a broker may still know a topic as it was before it was made again."""
_RUN: Final = "instride run "
"""A commit's metadata: this, and the run that it names."""

K = TypeVar("K")
T = TypeVar("T")


class GroupMember(RebalanceListener):
    """consumer: closed by the thread. earliest: where partitions begin of which the group knows nothing.

    topic_ids: those that the run has known last. obstacle: what keeps partitions from being placed, by the newest look.
    Spark's thread may call `ask`, `leave`, `close`, and see `obstacle`; the rest is for functions that `ask` runs.
    """

    def __init__(
        self, consumer: RangeConsumer, table: GroupTable, topics: Topics, *, earliest: bool, loss: LossReport
    ) -> None:
        self.consumer = consumer
        self.table = table
        self.topic_ids: dict[str, str] = {}
        self.obstacle: KafkaError | None = None
        self._topics = topics
        self._earliest = earliest
        self._loss = loss
        self._resets = ResetObserver()
        consumer.observe(self._resets)
        # Law 6. Ids that were replaced, and until when the present one of a topic is in doubt.
        self._old_ids: set[str] = set()
        self._doubted: dict[str, float] = {}
        self._places_from = float("-inf")  # when look-ups may be tried again
        self._obstacles: set[str] = set()  # told in the log
        # Law 9. By topic id, the partitions that were there when this run learnt that offsets were forgotten.
        self._forgotten: dict[str, frozenset[TopicPartition]] = {}
        self._failed: dict[str | Node, None] = {}  # topics and leaders whose newest look-up failed, in that order
        self._requested: set[TopicPartition] = set()
        self._requests: list[tuple[Callable[[], object], Future[object]]] = []
        self._lock = threading.Lock()
        self._looks_up = False  # law 2
        self._commits: dict[str, tuple[dict[TopicPartition, int], Future[CommitResult]]] = {}
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
            ends_poll = not self._looks_up
        if ends_poll:
            self.consumer.wakeup()
        while not _is_done(future, min(until - time.monotonic(), _LOOK)):
            # Where it cannot be cancelled, the response has come in this moment.
            if time.monotonic() >= until and future.cancel():
                return None
            each_second()
        return result_of(future)  # type: ignore[return-value]

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
        self._places_from = float("-inf")

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
        return self._leaving and self.table.settled and not self._commits

    def _step(self) -> None:
        self._poll()
        self._looks_up = True  # until all requests have been asked
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
        """Where new partitions begin. What cannot be learnt now is tried again soon (law 7)."""
        topics = sorted({*self._doubted, *(partition.topic for partition in self.table.unplaced)})
        if not topics:
            self.obstacle = None
            self._obstacles.clear()
            self._failed.clear()
        began = time.monotonic()
        if not topics or began < self._places_from:
            return
        with suppress(WakeupError):
            self._place_what_is_known(topics, began + _ASKING)
            if self._places_from < began:
                self.obstacle = None
        took = time.monotonic() - began
        if self._places_from >= began and took > _LONG:
            # What only times out takes half of the thread's time at most.
            self._places_from = began + 2 * took

    def _place_what_is_known(self, topics: Sequence[str], until: float) -> None:
        """Law 7. Raises WakeupError."""
        failed, held = [*self._failed], dict[Node, list[TopicPartition]]()
        self._place_together([topic for topic in topics if topic not in failed], held, until)
        for each in failed:
            if isinstance(each, str):
                # Placed one by one, too: what responds does not wait for what times out behind it.
                if each in topics:
                    self._place_together([each], held, until)
            elif each in held:
                self._begin_at(each, held[each], until)

    def _place_together(self, topics: Sequence[str], held: dict[Node, list[TopicPartition]], until: float) -> None:
        """held: to this it adds what is to be asked of leaders that failed. Raises WakeupError."""
        described = self._described(topics, until)
        new = [each for each in self.table.unplaced if each.topic in described]
        there = [each for each in new if each in described[each.topic]]
        if len(there) < len(new):
            self._hindered(KafkaTimeoutError(f"no broker knows {_names(set(new).difference(there))}"))
        # Of all topics at once. Where that fails, of each by itself the next time: one may have what fails all.
        asked = {each.topic for each in there}
        found = (self._tried(sorted(asked), partial(self.found, there), until) if there else None) or {}
        for partition, committed in found.items():
            if committed is not None:
                self._begin(partition, committed, start=0)
        without = self._without_offset(found, described, until)
        # By leader: one that cannot be reached keeps only what it leads.
        for leader, partitions in _grouped(without, lambda each: described[each.topic][each]).items():
            if leader is None:
                self._hindered(KafkaTimeoutError(f"no leader is known of {_names(partitions)}"))
            elif leader in self._failed:
                held.setdefault(leader, []).extend(partitions)
            else:
                self._begin_at(leader, partitions, until)

    def _described(self, topics: Sequence[str], until: float) -> dict[str, dict[TopicPartition, Node | None]]:
        """Who leads the partitions of each topic of which that can be learnt now. All are asked for at once, as their
        offsets are. Raises WakeupError."""
        if not topics:
            return {}
        listed = self._tried(topics, partial(self.consumer.list_topics, topics, timeout=_ASKING), until)
        if listed is None:
            return {}
        described: dict[str, dict[TopicPartition, Node | None]] = {}
        for topic in topics:
            leaders = self._tried([topic], partial(self._leaders, topic, listed.get(topic, [])), until)
            if leaders is not None:
                described[topic] = leaders
        return described

    def _without_offset(
        self,
        found: Mapping[TopicPartition, Committed | None],
        described: Mapping[str, Collection[TopicPartition]],
        until: float,
    ) -> list[TopicPartition]:
        """What of them is to begin where its leader says: it has no offset, and law 9 is decided of it. What was asked
        for that begins here. Raises OffsetsGoneError, WakeupError."""
        begins: list[TopicPartition] = []
        new = [each for each, committed in found.items() if committed is None]
        for topic, partitions in _grouped(new, lambda each: each.topic).items():
            ends = self._lost(topic, partitions, found, described[topic], until)
            if ends is None:
                continue
            lost = [each for each, end in ends.items() if end != 0]
            if lost:
                self._tell_forgotten(topic, lost)
            for partition in partitions:
                end = ends.get(partition)
                if end is None:
                    begins.append(partition)
                else:
                    # Not asked again: what came since would be passed over, and nobody would tell of it.
                    self._begin(partition, None, start=end)
        return begins

    def _lost(
        self,
        topic: str,
        partitions: Sequence[TopicPartition],
        found: Mapping[TopicPartition, Committed | None],
        described: Collection[TopicPartition],
        until: float,
    ) -> Mapping[TopicPartition, int | None] | None:
        """Law 9, of partitions without an offset: those that had one, and where their logs end, if that is where they
        begin. None: it cannot be learnt now. Raises WakeupError."""
        topic_id = self.topic_ids[topic]
        lost = self.table.forgotten(partitions, topic_id)
        # If the last batch has one of them, the group had an offset of it, and so nobody else is asked.
        if len(lost) < len(partitions):
            self._forgotten[topic_id] = frozenset(described)
        if not self._forgotten.get(topic_id, frozenset()).issuperset(lost):
            is_known = self._tried([topic], partial(self._has_any, described, found), until)
            if is_known is not False:
                return None if is_known is None else {}
        if not lost or self._earliest:
            return dict.fromkeys(lost)
        return self._tried([topic], partial(self.ends, lost), until)

    def _has_any(self, partitions: Iterable[TopicPartition], found: Mapping[TopicPartition, Committed | None]) -> bool:
        """The group has an offset of one of them. found: what is known of some."""
        others = [each for each in partitions if each not in found]
        known = {**found, **(self.found(others) if others else {})}
        return any(known.get(each) is not None for each in partitions)

    def _tell_forgotten(self, topic: str, lost: Sequence[TopicPartition]) -> None:
        what = f"the group has forgotten its offsets of topic {topic}"
        if self._earliest:
            told = f"{what}: {_names(lost)} is read again from its first record"
            if told not in self._obstacles:
                self._obstacles.add(told)
                _log.warning("%s", told)
        else:
            self._loss.tell(f"{what}, and the last batch did not read {_names(lost)}", once=what)

    def _begin_at(self, leader: Node, partitions: Sequence[TopicPartition], until: float) -> None:
        """Raises WakeupError."""
        for partition, start in (self._tried([leader], partial(self._starts, partitions), until) or {}).items():
            self._begin(partition, None, start=start)

    def _tried(self, units: Sequence[str | Node], look: Callable[[], T], until: float) -> T | None:
        """None: it cannot be learnt now. units: which topics it is of, or whom it asks. Raises WakeupError, and what no
        other try mends."""
        if time.monotonic() >= until:
            return None
        try:
            found = look()
        except WakeupError:
            raise
        except KafkaError as error:
            if not error.retriable:
                raise
            self._hindered(error)
            self._forget(units)
            self._failed |= dict.fromkeys(units)
            return None
        self._forget(units)
        return found

    def _forget(self, units: Iterable[str | Node]) -> None:
        for each in units:
            self._failed.pop(each, None)

    def _hindered(self, error: KafkaError) -> None:
        self.obstacle, self._places_from = error, time.monotonic() + _AGAIN
        if str(error) not in self._obstacles:
            self._obstacles.add(str(error))
            _log.warning("where some partitions begin is not known yet: %s", error)

    def _begin(self, partition: TopicPartition, committed: Committed | None, *, start: int) -> None:
        self._resets.forget([partition])
        topic_id = self.topic_ids[partition.topic]
        position = self.table.place(partition, committed=committed, start=start, topic_id=topic_id)
        self.consumer.seek(partition, position)
        self.consumer.resume(partition)

    def _starts(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        ends = self.consumer.beginning_offsets if self._earliest else self.consumer.end_offsets
        return ends(partitions, timeout=_ASKING) if partitions else {}

    def _leaders(self, topic: str, infos: Sequence[PartitionInfo]) -> dict[TopicPartition, Node | None]:
        """Who leads the topic's partitions. Before that, laws 5 and 6: its id is known. Raises KafkaTimeoutError where
        the broker that was asked does not know the newest id yet."""
        known, now = self.topic_ids.get(topic, ""), self._id_in(topic, infos)
        if "" not in (known, now) and known != now:
            self._loss.tell(made_again(topic, known, now))
            ours = [partition for partition in self.table.placed if partition.topic == topic]
            for partition, start in self._starts(ours).items():
                self._take_off(partition, start, made_again=True)
            self._old_ids.add(known)
        self.topic_ids[topic] = now or known
        self._doubted.pop(topic, None)
        return {info.topic_partition: info.leader for info in infos}

    def _id_in(self, topic: str, infos: Sequence[PartitionInfo]) -> str:
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
            late = bool(self._requests)
            self._requests += again
            self._looks_up = False
        if late:  # they came meanwhile, and woke nobody
            self.consumer.wakeup()

    def _commit_owed(self) -> None:
        """Of each topic one commit at a time (law 7). The consumer sends them together."""
        for topic, (offsets, future) in [*self._commits.items()]:
            if future.done():
                del self._commits[topic]
                self._committed(topic, offsets, future)
        owed = self.table.owed
        for topic, partitions in _grouped(owed, lambda each: each.topic).items():
            if topic not in self._commits:
                offsets = {each: owed[each] for each in partitions}
                self._commits[topic] = (offsets, self._sent(offsets))
                self._commits[topic][1].add_done_callback(self._ended)

    def _sent(self, offsets: Mapping[TopicPartition, int]) -> Future[CommitResult]:
        try:
            return self.consumer.commit_async(
                {
                    each: OffsetAndMetadata(offset=at, metadata=_metadata(self.table.run_of(each)))
                    for each, at in offsets.items()
                }
            )
        except KafkaError as error:
            refused: Future[CommitResult] = Future()
            refused.set_exception(error)
            return refused

    def _ended(self, _: Future[CommitResult]) -> None:
        """Any thread. What is looked up now is followed by a look at the commits (law 2)."""
        if not self._looks_up:
            self.consumer.wakeup()

    def _committed(self, topic: str, offsets: dict[TopicPartition, int], future: Future[CommitResult]) -> None:
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
        if isinstance(error, UnknownTopicOrPartitionError):
            self._topic_gone(topic)
            return
        if not isinstance(error, KafkaError) or isinstance(error, CommitOvertakenError):
            raise error
        if not error.retriable and not isinstance(error, CommitFailedError):
            raise error
        _log.warning("the batch's offsets are not committed to the group yet: %s", error)

    def _topic_gone(self, topic: str) -> None:
        """Law 8. The consumer says so once its brokers agree. It is told once of each topic that had that name."""
        ours = [partition for partition in self.table.owed if partition.topic == topic]
        if ours:
            self._loss.tell(f"topic {topic} is not there any more", once=f"{topic} {self.topic_ids.get(topic)}")
            self.on_partitions_assigned(ours)

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


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def _grouped(partitions: Iterable[TopicPartition], key: Callable[[TopicPartition], K]) -> dict[K, list[TopicPartition]]:
    groups: dict[K, list[TopicPartition]] = {}
    for partition in partitions:
        groups.setdefault(key(partition), []).append(partition)
    return groups


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
