"""The streaming reader in group mode: the query is a member of a group, and reads the partitions that it is assigned.

    new query      initialOffset -> latestOffset -> partitions -> read (executors) -> latestOffset -> ...
    restart        partitions of the batch that was logged and not committed -> read -> latestOffset ...
                   or, where Spark has committed the last batch, latestOffset with its end -> ...

Laws
1. The decisions are those of `group_table`; this passes on what Spark asks.
2. Each run plans a batch at once, if need be an empty one: its end offset has the run's token, by which `stop` finds
   this process (`leaving`). But it joins the group before, if the group may not have heard that Spark has committed the
   last batch: a new batch makes the checkpoint forget that one.
3. A checkpoint of another group or subscription is refused. The group has the offsets: a new checkpoint loses nothing.
4. SIGTERM and the end of Spark's connection (the driver was killed) leave the group at once, also while a request
   waits for the group. The batch in flight is not committed to it then.
5. Spark says `commit` of a batch once the end of the next one is logged, and before it asks for that one's partitions.
   With asynchronous progress tracking, of which nothing else tells, it does not: such a query is refused.
6. Spark turns adaptive execution off for stateful queries alone, and tells the tasks. So a task where it is off reads
   nothing: before its first record the query is refused, unless its user has said that it has no state.
7. `trigger(once=True)` is refused: Spark asks once, before the group has assigned anything, and never asks what follows
   the batch, so the group would not hear of it. Only with that trigger does Spark give `ReadAllAvailable`, which is why
   no default limit is that.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from instride.consumer import RangeConsumer
from instride.errors import ConfigError, IllegalStateError, KafkaError, KafkaTimeoutError, WakeupError
from instride.records import TopicPartition
from instride.spark._data_source.cluster import absent, not_there
from instride.spark._data_source.fused import Transform
from instride.spark._data_source.group_member import GroupMember
from instride.spark._data_source.group_table import Committed, GroupTable, untouched
from instride.spark._data_source.leaving import Door, new_token
from instride.spark._data_source.offsets import BatchPlan, GroupMark, Span
from instride.spark._data_source.options import EARLIEST, Options
from instride.spark._data_source.planning import made_again
from instride.spark._data_source.reading import input_partitions
from instride.spark._data_source.stream import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["GroupStreamReader"]

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_WAIT: Final = 0.5
"""Seconds for which a request of Spark's waits for records. A request that waits holds up no stop."""
_JOIN: Final = 600.0
"""Seconds for the first assignment, which waits for the session time-out of a member that was killed."""
_TELL: Final = 15.0
"""Seconds for a look at the group, of which an error is to tell."""
_ASK_AGAIN: Final = 1.0
"""Seconds after which a request that waits asks again what the group has."""
_ADVICE: Final = "look at its members with kafka-consumer-groups --describe --members"

_NO_LIMIT: Final = ReadMaxRows(2**63 - 1)
"""The most that Java's long has (law 7)."""

T = TypeVar("T")


class GroupStreamReader(StreamReader):
    """Picklable until the first request."""

    def __init__(self, options: Options, transform: Transform | None = None) -> None:
        super().__init__(options, transform)
        topics = options.topics
        self._mark = GroupMark(
            group=options.group or "",
            subscribed=f"pattern {topics.pattern}" if topics.pattern is not None else ",".join(topics.subscribe),
            run="",
        )
        self._table = GroupTable()
        self._member: GroupMember | None = None
        self._door: Door | None = None
        self._follows: dict[str, Any] | None = None
        self._logged: dict[str, Any] | None = None
        self._parent = 0
        self._asks_at = float("-inf")  # when the group may be asked again

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's names, here and below
        """Law 7."""
        limit = super().getDefaultReadLimit()
        return _NO_LIMIT if isinstance(limit, ReadAllAvailable) else limit

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises ConfigError, OffsetsGoneError for data loss, and errors of the brokers and the group."""
        if isinstance(limit, ReadAllAvailable):
            raise ConfigError(
                "trigger(once=True) does not go with consumerGroup: Spark would not say that its batch is committed, "
                "and the group would not hear of it. Use trigger(availableNow=True)"
            )
        last = self._checked(start)
        if not last.begun:
            self._check_names(last)
        joins = self._member is None
        if joins:
            # Before the group is joined: Spark has committed this batch (the table's law 10).
            self._table.confirm(last)
        member = self._opened()
        try:
            if joins and self._target is not None:
                self._joined()
            elif joins and last.spans:
                self._joined(unless=lambda: self._is_touched(last, member))
            self._weigh_free(last, limit, member)
            wait = _WAIT if self._target is None and not self._unheard(last) else _JOIN
            plan = self._ask(lambda: self._next(last, limit, member), timeout=wait)
        # Once it has left, every request is refused: Spark hears of nothing new until `stop` ends the query.
        except IllegalStateError:
            if member.leaves:
                time.sleep(_WAIT)
                return start
            raise
        if plan is None and self._target is not None:
            what = f"what the group assigned could not be read within {_JOIN:.0f} s"
            raise KafkaTimeoutError(_with(what, member.obstacle)) from member.obstacle
        if plan == last:
            self._check_names(last)  # not before: what Spark has committed the group hears first
        if plan is None or plan == last:
            return start
        self._follows = start if last.mark is not None else None
        return plan.to_json()

    def commit(self, end: dict[str, Any]) -> None:
        self._logged = end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        follows, wanted = self._checked(start), self._checked(end)
        self._check_progress_tracking(start)
        if self._member is None:
            # Before the group is joined: where it has no offset, `place` goes by where this batch began.
            self._table.pending(wanted)
            self._joined()
        member = self._opened()
        reads = self._ask(lambda: self._replayed(follows, wanted, member), timeout=_JOIN)
        if reads is None:
            left_out = member.ask(lambda: self._left_out(wanted, member), timeout=_TELL)
            raise KafkaTimeoutError(
                f"the batch that was pending leaves out {left_out or 'partitions'}, which nobody in the group "
                f"{self._options.group!r} took over within {_JOIN:.0f} s; {_ADVICE}"
            )
        return input_partitions(reads.ranges(), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises ConfigError (law 6)."""
        if not self._options.stateless:
            _check_stateless()
        return super().read(partition)

    def stop(self) -> None:
        if self._door is not None:
            self._door.close()
        if self._member is not None:
            self._member.close()
        super().stop()

    def _check_names(self, last: BatchPlan) -> None:
        """Available-now: a named topic that was never there is an error, as in `stream`. The group does not tell of
        it."""
        if self._target is not None and self._options.fail_on_data_loss:
            missing = [each for each in absent(self._options.topics, self._target) if each not in last.topic_ids]
            if missing:
                raise not_there(missing)

    def _weigh_free(self, last: BatchPlan, limit: ReadLimit, member: GroupMember) -> None:
        """On Spark's thread: polls go on. What comes to be free after this gives one offset to the next batch."""
        if self._options.max_bytes is not None:
            ends, free = last.ends, member.ask(self._table.free, timeout=_WAIT) or {}
            self._weigh({each: Span(max(s.start, ends.get(each, 0)), s.end) for each, s in free.items()}, limit)

    # -- the member

    def _opened(self) -> GroupMember:
        if self._member is None:
            options = self._options
            self._mark, self._parent = replace(self._mark, run=new_token()), os.getppid()
            # First: what it needs of the system may be missing.
            self._door = Door(self._mark.run, self._leave)
            consumer = RangeConsumer(
                **dict(options.consumer),
                **dict(options.member),
                group_id=options.group,
                commit_start_offsets=False,  # the table says what is committed
                auto_offset_reset="earliest" if options.starting.every == EARLIEST else "latest",
            )
            earliest = options.starting.every == EARLIEST
            self._member = GroupMember(consumer, self._table, options.topics, earliest=earliest, loss=self._loss)
            self._table.begins(self._mark.run)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, _exit)
            self._member.start()
        return self._member

    def _leave(self) -> Future[bool]:
        """For the door, whose token nobody has before the member plans by it."""
        assert self._member is not None
        return self._member.leave()

    def _ask(self, request: Callable[[], T | None], *, timeout: float) -> T | None:
        """As the member's `ask`. Ends this process where its driver has gone meanwhile (law 4): nobody hears any more,
        and another run of this checkpoint may wait for its partitions."""
        member = self._opened()

        def look() -> None:
            if os.getppid() != self._parent:
                member.close()
                sys.exit(1)

        return member.ask(request, timeout=timeout, each_second=look)

    def _joined(self, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Waits for the first assignment. Each partition is ours after it, or its owner has taken it over."""
        member = self._opened()
        if self._ask(lambda: member.joined or unless() or None, timeout=_JOIN) is None:
            group, why = self._options.group, member.obstacle
            if why is not None:
                what = f"where partitions begin that the group {group!r} assigned was not found within {_JOIN:.0f} s"
                raise KafkaTimeoutError(_with(what, why)) from why
            raise KafkaTimeoutError(f"the group {group!r} assigned nothing within {_JOIN:.0f} s; {_ADVICE}")

    # -- on the member's thread

    def _ask_group(
        self, partitions: Collection[TopicPartition], member: GroupMember
    ) -> dict[TopicPartition, Committed | None] | None:
        """What the group has of these. None: it was asked within the last second, or cannot say now."""
        if not partitions:
            return {}
        if time.monotonic() < self._asks_at:
            return None
        try:
            found = member.found(partitions)
        except WakeupError:
            return None
        except KafkaError as error:
            if not error.retriable:
                raise
            found = None
        self._asks_at = time.monotonic() + _ASK_AGAIN
        return found

    def _is_touched(self, batch: BatchPlan, member: GroupMember) -> bool:
        """Every partition of it. False: or it is not known yet."""
        found = self._ask_group(batch.spans, member)
        return found is not None and not untouched(batch, found)

    def _left_out(self, wanted: BatchPlan, member: GroupMember) -> list[str] | None:
        found = self._ask_group(self._table.elsewhere(wanted), member)
        return None if found is None else [*map(str, untouched(wanted, found))]

    def _replayed(self, follows: BatchPlan, wanted: BatchPlan, member: GroupMember) -> BatchPlan | None:
        """None: it cannot be decided yet."""
        others = self._ask_group(self._table.elsewhere(wanted), member)
        return None if others is None else self._table.replay(follows, wanted, others)

    def _next(self, last: BatchPlan, limit: ReadLimit, member: GroupMember) -> BatchPlan | None:
        """None: nothing yet. last: nothing more (available-now)."""
        self._table.confirm(last)
        self._check_topics(last, member.topic_ids)
        return self._table.plan(last, lambda free: self._made(last, free, limit, member)) or self._end(last, member)

    def _made(
        self, last: BatchPlan, free: Mapping[TopicPartition, Span], limit: ReadLimit, member: GroupMember
    ) -> BatchPlan | None:
        if member.leaves:
            return None
        everything = BatchPlan(self._up_to_target(free), self._placed_ids(member))
        self._newest = everything
        unheard = self._unheard(last)
        # An empty first batch is none that `Pace` knows of: the first that has records is not to wait.
        chosen = self._admitted(everything, limit) if everything.records else everything if unheard else None
        if chosen is None:
            return None
        spans = {partition: span for partition, span in chosen.spans.items() if span.start < span.end}
        return BatchPlan(spans, _known(last.topic_ids, everything.topic_ids), self._mark)

    def _placed_ids(self, member: GroupMember) -> dict[str, str]:
        """Of a topic of which nothing is placed yet the group may have no offset (the table's law 13)."""
        placed = {each.topic for each in self._table.placed}
        return {topic: topic_id for topic, topic_id in member.topic_ids.items() if topic in placed}

    def _unheard(self, last: BatchPlan) -> bool:
        """Law 2: Spark has no batch of this run yet."""
        return last.mark is None or last.mark.run != self._mark.run

    def _up_to_target(self, free: Mapping[TopicPartition, Span]) -> dict[TopicPartition, Span]:
        """The target is of all partitions: one that is assigned later is read up to it, too."""
        if self._target is None:
            return dict(free)
        limits = self._target
        return {each: Span(s.start, max(s.start, min(s.end, limits.get(each, s.start)))) for each, s in free.items()}

    def _end(self, last: BatchPlan, member: GroupMember) -> BatchPlan | None:
        """Available-now is over when each partition that is ours has reached the target."""
        if self._target is None or self._table.owed or not member.joined:
            return None
        # A log that lost its end, or its topic, may never reach the target.
        short, free = self._table.short, self._table.free()
        limits = {each: min(target, short.get(each, target)) for each, target in self._target.items()}
        if any(span.start < limits.get(each, 0) for each, span in free.items()):
            return None
        beyond = {each: span.start for each, span in free.items() if span.start > limits.get(each, 0)}
        return None if self._may_be_short(beyond, member) else last

    def _may_be_short(self, positions: Mapping[TopicPartition, int], member: GroupMember) -> bool:
        """Whether some log ends before its position, or it cannot be told now. The consumer finds that in a moment."""
        try:
            ends = member.ends(positions) if positions else {}
        except KafkaError as error:  # a wake-up, a time-out too
            if not error.retriable:
                raise
            return True
        return any(ends[each] < position for each, position in positions.items())

    def _check_topics(self, last: BatchPlan, found: Mapping[str, str]) -> None:
        for topic, known in last.topic_ids.items():
            now = found.get(topic)
            if known and now and known != now:
                self._loss.tell(made_again(topic, known, now))

    # -- the checkpoint

    def _check_progress_tracking(self, start: dict[str, Any]) -> None:
        """Law 5. A batch that an earlier run planned is not judged."""
        if start == self._follows != self._logged:
            raise ConfigError(
                "asyncProgressTrackingEnabled does not go with consumerGroup: with it Spark runs batches whose ends "
                "are not in the checkpoint. After a failure their numbers stand for other records, and a sink that "
                "knows batches by number leaves these out. Remove it, and start the application anew"
            )

    def _checked(self, data: dict[str, Any]) -> BatchPlan:
        """Law 3."""
        plan, ours = BatchPlan.from_json(data), self._mark
        theirs = plan.mark
        if theirs is None and plan.begun:
            raise ConfigError("the checkpoint is of a query without consumerGroup: give this query a new checkpoint")
        if theirs is not None and theirs.group != ours.group:
            raise ConfigError(
                f"the checkpoint is of the group {theirs.group!r}, and consumerGroup is {ours.group!r}: give the "
                "query a new checkpoint; where to go on the group knows"
            )
        if theirs is not None and theirs.subscribed != ours.subscribed:
            raise ConfigError(
                f"the checkpoint is of a query that reads {theirs.subscribed}, and this one reads {ours.subscribed}: "
                "give the query a new checkpoint; where to go on the group knows"
            )
        return plan


def _known(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """The ids for the checkpoint. Also of topics that the batch does not read: one may be made again while others own
    its partitions, or while nobody runs."""
    return {**dict.fromkeys(now, ""), **before, **{topic: topic_id for topic, topic_id in now.items() if topic_id}}


def _with(what: str, why: KafkaError | None) -> str:
    return what if why is None else f"{what}: {why}"


def _check_stateless() -> None:
    """In a task. Raises ConfigError."""
    task = TaskContext.get()
    if task is not None and task.getLocalProperty(_ADAPTIVE) == "false":
        raise ConfigError(
            "a stateful query does not go with consumerGroup: a key's state stays behind when its partition moves to "
            f"another application. This query is taken for one, since {_ADAPTIVE} is false in it: Spark turns that "
            "off for stateful queries. If you have turned it off, and the query has no state, give the option "
            "statelessQuery=true"
        )


def _exit(number: int, frame: FrameType | None) -> None:
    """Law 4: PySpark calls `stop` on the way out."""
    sys.exit(128 + number)
