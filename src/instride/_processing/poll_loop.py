"""The loop of a `Processor`, as a generator of a consumer's verbs: polls, commits, delays, pauses, and the end.

Laws
1. It does no I/O and reads no clock: a driver calls the verb that it yields, and sends back what that returned or
   throws what it raised. A thread does so with a `Consumer`, the simulation with its own, a test kit with a double.
2. After a poll that raised, `hold` is not called: the next poll continues the one that raised. `hold` is the engine's
   (`engine.py`), which decides whose revocation is delayed. What such a poll had lost is given up at once.
3. An error that ends nothing (a partition's, a broker's) is logged, and the loop goes on; a fatal one, and a record
   that failed for good, stop it as `stop` does, and are raised at its end by whoever runs it.
4. In a process that was suspended, whose partitions another member may have by now, nothing is started before a poll
   has told what was lost: `may_start` compares the lease with the clock.
5. The end: nothing more is started, polls go on (with everything paused) until what was started is finished or
   the drain time-out is over; then the last commit, and the consumer is closed. Where a round ends by what nobody
   expects, what was started is given up at once; all else is the same.
6. No round waits for a database: what it has not answered about waits, paused perhaps, and all else goes on
   (`store_positions`).
7. While a commit is in flight, `commits_in_flight` says whether another may go.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Any, Final, Protocol, TypeAlias
from uuid import UUID

from instride import _arguments as arguments
from instride._core.session_lease import Standing
from instride._processing.commits_in_flight import CommitsInFlight, SentCommit
from instride._processing.engine import Engine, Task
from instride._processing.outputs import ACKNOWLEDGED
from instride._processing.store_positions import Answer, StorePositions
from instride.commits import CommitEntry, CommitOutcome, CommitResult, CommitSnapshot
from instride.consumer_records import ConsumerRecords
from instride.errors import (
    DeadLettersUnwrittenError,
    DrainTimeoutError,
    KafkaError,
    OffsetMetadataTooLargeError,
    WakeupError,
)
from instride.errors._quoting import counted
from instride.listeners import RebalanceListener
from instride.records import OffsetAndMetadata, TopicPartition

__all__ = ["Pace", "Rounds", "Verb", "Verbs"]

_logger = logging.getLogger("instride.processing")

_HASTE: Final = 0.02
"""Seconds of a poll while a hand-over or the end waits for something of ours; of a round's questions where partitions
begin; and of a pause after an error."""
_IN_TIME: Final = 1.0
"""Seconds before the deadline of a hand-over, for the last commit."""
_PATIENCE: Final = 1.0
"""Seconds that a question to the coordinator, or to leaders, may hold the loop up; between two about what nobody tells,
or to a database that fails."""
_PATIENCE_OF_DRAINS: Final = 0.2
"""The same of a question to leaders while a hand-over waits: its deadline is seen between rounds."""
_PATIENCE_OF_ONE: Final = 0.1
"""The same of a question about one partition, after one about all was not answered in time."""
_LONGEST: Final = 10.0
"""Seconds that what is left of before a reset waits to be told where its log begins."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A call of the consumer's that the driver is to make. "sleep", "topic_ids" and "stored" are the driver's own; of
    "stored" it may return a future."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


Verbs: TypeAlias = Generator[Verb, Any, None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _InFlight:
    """metadata_limit: by which the commit was made."""

    commit: SentCommit
    call: Any
    metadata_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds, but commit_records: so many finished records are committed before the interval is over.

    stuck_after: a record that is in progress for so long is named in the log, and in the health.
    cancels_in_time: whether what is in progress is given up shortly before the deadline of its partition's hand-over.
    """

    poll_timeout: float = 0.1
    commit_interval: float = 1.0
    commit_records: int = 10_000
    stuck_after: float = 60.0
    drain_timeout: float = 30.0
    close_timeout: float = 10.0
    cancels_in_time: bool = False

    @property
    def longest_wait(self) -> float:
        """Of a poll: commits go out between polls, so in a longer one they would be late."""
        # Polls that do not wait at all would take a whole processor.
        return max(_HASTE, self.commit_interval)


class Drains:
    """How long what is in progress takes to finish once its partition is to be handed over, or the processor stops.

    Seconds. count, total, longest: of drains that ended, also where records in progress were given up; one whose
    partition was lost did not end. Under the guard.
    """

    __slots__ = ("_since", "count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0
        self._since: dict[TopicPartition | None, float] = {}

    def follow(self, partitions: Collection[TopicPartition], lost: Iterable[TopicPartition], now: float) -> None:
        """partitions: all whose hand-over waits now."""
        # First, or the next loop would count them as drains that ended.
        for partition in lost:
            self._since.pop(partition, None)
        for partition in [each for each in self._since if each is not None and each not in partitions]:
            self._end(partition, now)
        for partition in partitions:
            self._since.setdefault(partition, now)

    def stop(self, now: float) -> None:
        """The whole processor drains."""
        self._since.setdefault(None, now)

    def end(self, now: float) -> None:
        """Of the processor."""
        for each in list(self._since):
            self._end(each, now)

    def age(self, now: float) -> float:
        """Of the oldest that goes on; 0 where none does."""
        return now - min(self._since.values(), default=now)

    def _end(self, what: TopicPartition | None, now: float) -> None:
        seconds = now - self._since.pop(what)
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)


class Executor(Protocol):
    """What runs handlers. Called without the lock."""

    def wake(self) -> None:
        """There may be something to start."""

    def cancel(self, tasks: Sequence[Task]) -> None:
        """Their results are ignored: let them end early, where that can be."""


class Rounds(RebalanceListener):
    """One run of a processor. `stop` and `cancel` may come from any thread; the rest is the driver's.

    guard: locked around every call of the engine. clock: the seconds by which the engine is told the time. lease_clock:
    the consumer's, which counts a suspended machine too; else the same.
    has_store: whether a database says where partitions begin, and not the group.
    most_records: of a poll, which asks for less where there is less capacity (`back_pressure.py`).
    error: what ended it (law 3), once it has ended. polled_at: when the newest poll returned; inf before the loop
    begins, since a set-up may take its time. drains: to be read under the guard.
    """

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        *,
        pace: Pace,
        guard: AbstractContextManager[object],
        clock: Callable[[], float],
        lease_clock: Callable[[], float] | None = None,
        has_store: bool = False,
        most_records: int = 500,
    ) -> None:
        self.error: BaseException | None = None
        self.polled_at = inf
        self.is_joined = False
        self.is_ended = False
        self.drains = Drains()
        self._engine = engine
        self._executor = executor
        self._pace = pace
        self._guard = guard
        self._clock = clock
        self._lease_clock = lease_clock or clock
        self._standing: Standing | None = None
        self._has_store = has_store
        self._most_records = most_records
        self._ask_store_at = clock()
        self._positions = StorePositions()
        # When a topic is asked about again that the group or a broker refused, or whose leaders were silent.
        self._ask_topic_at: dict[str, float] = {}
        self._asked_last = ""
        self._asked_alone = TopicPartition("", 0)
        self._asks_alone = False
        # Since when it is asked where their logs begin, for what is left of before a reset.
        self._left_since: dict[TopicPartition, float] = {}
        self._fresh: set[TopicPartition] = set()
        # The group has no offset of these. Where each begins is committed as soon as it is known.
        self._startless: set[TopicPartition] = set()
        self._assigned: set[TopicPartition] = set()
        # By polls since one returned, how often.
        self._raised: Counter[tuple[type[KafkaError], str]] = Counter()
        self._next_commit = clock() + pace.commit_interval
        self._commits = CommitsInFlight()
        self._in_flight: list[_InFlight] = []
        # What was due by `commit_records` while on its way.
        self._left_out: Set[TopicPartition] = frozenset()
        # By what commits failed since one succeeded: the log says each once.
        self._failed_by: set[type[BaseException]] = set()
        self._delays: Set[TopicPartition] = frozenset()
        self._has_more = True
        self._stops = self._cancels = False
        self._is_called = False
        self._drain_until: float | None = None
        self._next_look = clock() + pace.stuck_after
        self._told: set[Task] = set()
        self._outage: BaseException | None = None

    # -- from any thread

    def stop(self) -> None:
        self._stops = True

    def cancel(self) -> None:
        """Stop, and wait for nothing that is in progress."""
        self._stops = self._cancels = True

    @property
    def is_stopping(self) -> bool:
        return self._stops or self._drain_until is not None

    @property
    def is_cancelled(self) -> bool:
        return self._cancels

    def wants_attention(self) -> bool:
        """Whether a poll that waits had better return, since there is something to do. Once for each poll. Under the
        guard."""
        if self._is_called:
            return False
        engine = self._engine
        if self._drain_until is not None:
            self._is_called = engine.is_at_rest()
        else:
            self._is_called = self._stops or engine.failure is not None or engine.is_urgent() or engine.wants_resuming()
        return self._is_called

    def may_start(self) -> bool:
        """Whether this process is still a member, as far as it knows. Else the next poll says what was lost. Under the
        guard."""
        return self._standing is None or self._standing.holds(self._lease_clock())

    # -- the loop

    def run(self, topics: Iterable[str]) -> Verbs:
        self.polled_at = self._clock()
        try:
            # What stops, or has failed, before it began joins no group.
            self._begin_to_drain()
            if not self._is_drained():
                yield Verb("subscribe", (list(topics),), {"listener": self})
            while not self._is_drained():
                yield from self._round()
        except GeneratorExit:  # nobody drives it any more
            raise
        except BaseException as error:  # law 5
            _logger.exception("the processor ends by an error of its own")
            self.error = error
            with self._guard:
                self._engine.stop()
        yield from self._end()
        self.is_ended = True

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Listener: on the driver's thread, in a poll."""
        self.is_joined = self._has_more = True
        self._assigned.update(partitions)
        self._fresh.update(partitions)
        self._startless.difference_update(partitions)
        self._positions.forget(partitions)
        with self._guard:
            self._engine.assigned(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for each in (self._assigned, self._fresh, self._startless):
            each.difference_update(partitions)
        self._positions.forget(partitions)
        for topic, _ in partitions:
            self._ask_topic_at.pop(topic, None)

    def _round(self) -> Verbs:
        yield from self._poll()
        yield from self._locate()
        yield from self._commit_starts()
        yield from self._commit()
        yield from self._pause_and_resume()
        self._tell_of_deaths()
        self._tell_of_missed()
        self._tell_of_stuck()
        self._tell_of_outage()
        self._begin_to_drain()

    def _poll(self) -> Verbs:
        try:
            records: ConsumerRecords = yield Verb("poll", (), self._poll_bounds())
        except KafkaError as error:
            # By a wakeup too: the rest of the round looks at what it was woken for.
            yield from self._lose()
            if not isinstance(error, WakeupError):
                yield from self._note(error)
            self._executor.wake()  # what is due meanwhile waits for no poll that returns
            return
        self._raised.clear()
        self.polled_at = self._clock()
        lost = yield Verb("lost_partitions")
        to_be_revoked = yield Verb("to_be_revoked_partitions")
        with self._guard:  # in one step: nothing is started of what is to be revoked
            given_up = self._engine.submit(records, lost, records.stretches(), self.polled_at)
            delayed = self._engine.hold(to_be_revoked)
            self.drains.follow(delayed, lost, self.polled_at)
            self._standing = records.standing
        self._delays = delayed
        if delayed:
            yield Verb("delay_revoke", (delayed,), {"reason": self.waits_for})
            if self._pace.cancels_in_time:
                yield from self._cancel_in_time(delayed)
        self._give_up(given_up, "lost, or reset")
        self._executor.wake()

    def _lose(self) -> Verbs:
        """What a poll that raised had lost before: no verb may name it any more, a `resume` of the same round, say."""
        try:
            lost = yield Verb("lost_partitions")
        except KafkaError:  # it is closed, or of another process, and the poll has said so
            return
        with self._guard:
            given_up = self._engine.submit((), lost, now=self._clock())
        self._give_up(given_up, "lost")

    def _cancel_in_time(self, delayed: Iterable[TopicPartition]) -> Verbs:
        """What would be lost with its partition soon is given up, so that the rest is committed and handed over."""
        for partition in sorted(delayed):
            left = yield Verb("revoke_deadline", (partition,))
            # One second is left for the commit of what is finished; a moment later all of the partition would be lost.
            if left is not None and left <= _IN_TIME:
                with self._guard:
                    given_up = self._engine.give_up_of(partition)
                self._give_up(given_up, "the deadline of its hand-over")

    def _poll_bounds(self) -> dict[str, Any]:
        timeout = self._poll_timeout()
        with self._guard:
            capacity = self._engine.capacity()
        # None: there is capacity for a whole poll, which the consumer's own max_poll_records bounds.
        return {"timeout": timeout, "max_records": capacity if capacity < self._most_records else None}

    def _poll_timeout(self) -> float:
        now, pace = self._clock(), self._pace
        with self._guard:
            # Before the poll begins: from here on a worker may wake it.
            self._is_called = False
            is_beginning = self._engine.is_beginning(asks=not self._positions.is_awaited(now))
            if self._delays or self._drain_until is not None or is_beginning:
                # A revocation is complete with the first poll that delays it no more: so that one comes soon.
                return _HASTE
            self._engine.has_next(now)  # what is due is startable from here on, so that `next_due` is to come
            due = self._engine.next_due()
        return min(pace.poll_timeout, pace.longest_wait, pace.poll_timeout if due is None else due - now)

    def _note(self, error: KafkaError) -> Verbs:
        """Law 3."""
        if not self._ends_by(error):
            _logger.warning("the poll raised %s: %s", type(error).__name__, error)
        raised = type(error), str(error)
        self._raised[raised] += 1
        # It may come at once, again and again: the loop would spin. Those of many partitions come once each, and may
        # name their topic alone.
        if self._raised[raised] > max(1, len(self._assigned)):
            yield Verb("sleep", (_HASTE,))

    def _ends_by(self, error: KafkaError) -> bool:
        """Law 3: whether the consumer cannot go on, so that the run ends by this error."""
        if not error.fatal:
            return False
        with self._guard:
            if self._engine.failure is None:
                self._engine.failure = error
        return True

    # -- where partitions begin (law 7 of the engine)

    def _locate(self) -> Verbs:
        # A stop starts nothing more: where it would have begun is of no use.
        if self.is_stopping or self._clock() < self._ask_store_at:
            return
        if self._positions.is_awaited(self._clock()):
            self._tell_of_silence()
            return
        with self._guard:
            wanted = sorted({*self._fresh, *self._engine.unlocated()})
        if self._ask_topic_at:
            now = self._clock()
            wanted = [each for each in wanted if self._ask_topic_at.get(each.topic, now) <= now]
        if wanted:
            yield from self._locate_these(wanted)

    def _locate_these(self, wanted: Sequence[TopicPartition], until: float = inf) -> Verbs:
        """until: when the polls have waited long enough for the logs' beginnings."""
        topics = sorted({each.topic for each in wanted})
        try:
            committed = yield Verb("committed", tuple(wanted), {"timeout": _PATIENCE})
            ids: Mapping[str, UUID | None] = yield Verb("topic_ids", tuple(topics))
        except KafkaError as error:
            if error.retriable or error.fatal:  # what was woken, or cannot be told now: the next round asks again
                if not isinstance(error, WakeupError):
                    _logger.info("committed offsets are not known yet: %s", error)
            elif len(topics) > 1:  # one that is refused stops no other
                yield from self._locate_each(topics, wanted)
            else:
                self._wait_for(topics[0], error)
            return
        told = yield from self._stored(wanted, ids)
        if not told:
            return
        wanted, stored = [*told], {each: row for each, row in told.items() if row is not None}
        lower = {each for each in wanted if self._is_lower(each, stored, committed.get(each))}
        begins, waiting = yield from self._log_begins(wanted, lower, until)
        for each in wanted:
            if each not in waiting:
                found, row, topic_id = committed.get(each), stored.get(each), ids.get(each.topic)
                yield from self._locate_one(each, found, row, topic_id, begins.get(each, -1))
        for topic in {*topics}.difference(each.topic for each in waiting):
            self._ask_topic_at.pop(topic, None)
        self._executor.wake()

    def _locate_one(
        self,
        partition: TopicPartition,
        found: OffsetAndMetadata | None,
        row: int | None,
        topic_id: UUID | None,
        log_begin: int,
    ) -> Verbs:
        # The database is right: its offset was written in one transaction with the records' effects (exactly once).
        if row is not None and (found is None or found.offset != row):
            # Or where the log begins: the reset policy might lead past what the group has begun with.
            found = OffsetAndMetadata(offset=max(row, log_begin))
            # Only one whose records have not begun: a seek below records in progress would read them twice.
            if partition in self._fresh:
                if row < log_begin:
                    _logger.warning(
                        "%s: its row in the database is at %d, and its log begins at %d", partition, row, log_begin
                    )
                yield from self._seek(partition, found, topic_id)
                return
        self._tell_engine(partition, found, topic_id, log_begin)

    def _tell_engine(
        self, partition: TopicPartition, found: OffsetAndMetadata | None, topic_id: UUID | None, log_begin: int
    ) -> None:
        with self._guard:
            self._engine.locate(partition, found, topic_id, log_begin=log_begin)
            has_lane = self._engine.has_lane(partition)
        if found is None and not has_lane and partition in self._fresh:
            self._startless.add(partition)
        self._fresh.discard(partition)

    def _locate_each(self, topics: Iterable[str], wanted: Sequence[TopicPartition]) -> Verbs:
        """What is left when the time is out, the next round asks."""
        # For all together: polls are not to wait for each topic.
        until = self._clock() + _PATIENCE
        # From where the last round left off: one that is slow each time does not keep the others from being asked.
        for topic in sorted(topics, key=lambda each: (each <= self._asked_last, each)):
            if self.is_stopping or self._clock() >= until:
                return
            self._asked_last = topic
            yield from self._locate_these([each for each in wanted if each.topic == topic], until)

    def _wait_for(self, topic: str, error: KafkaError) -> None:
        if topic not in self._ask_topic_at:
            _logger.warning("nobody tells where the partitions of %s begin, so they wait: %s", topic, error)
        self._ask_topic_at[topic] = self._clock() + _PATIENCE

    def _stored(
        self, wanted: Iterable[TopicPartition], ids: Mapping[str, UUID | None]
    ) -> Generator[Verb, Any, Mapping[TopicPartition, int | None]]:
        """The rows of those of which the database has told. The records of the others wait, and it is asked again."""
        if not self._has_store:
            return dict.fromkeys(wanted)
        asked = {each: ids.get(each.topic) for each in wanted}
        try:
            missing = self._positions.missing(asked, self._clock())
            if missing:
                answer: Answer = yield Verb("stored", (missing,))
                self._positions.asked(missing, answer, self._clock())
            return self._positions.take(asked)
        except Exception as error:  # noqa: BLE001 - each driver has errors of its own
            _logger.warning("the database does not say where partitions begin: %s: %s", type(error).__name__, error)
            self._ask_store_at = self._clock() + _PATIENCE
            return {}

    def _tell_of_silence(self) -> None:
        """Of the database; once for each question."""
        if self._clock() >= self._positions.tell_at:
            self._positions.tell_at = inf
            _logger.warning("the database has not said yet where partitions begin, so they wait")

    def _is_lower(
        self, partition: TopicPartition, stored: Mapping[TopicPartition, int], group: OffsetAndMetadata | None
    ) -> bool:
        """It is to be read from below where the group is: the log may have lost that."""
        return partition in self._fresh and group is not None and stored.get(partition, group.offset) < group.offset

    def _log_begins(
        self, wanted: Iterable[TopicPartition], lower: Collection[TopicPartition], until: float
    ) -> Generator[Verb, Any, tuple[dict[TopicPartition, int], set[TopicPartition]]]:
        """Where the logs begin, of all partitions that need it; -1 where nobody tells. And which partitions wait: the
        next round asks again."""
        now = self._clock()
        with self._guard:
            self._left_since = {each: self._left_since.get(each, now) for each in self._engine.left_before_resets()}
        left = self._left_since.keys() & wanted
        asked = left.union(lower)
        if not asked or self.is_stopping:
            return {}, asked
        patience = _PATIENCE_OF_DRAINS if self._delays else _PATIENCE
        begins, refused = yield from self._ask_leaders(sorted(asked), max(min(until, now + patience), now + _HASTE))
        for each in left.difference(begins):
            # What is left of before a reset holds commits back, then.
            if (each in refused and not self._delays) or self._clock() >= self._left_since[each] + _LONGEST:
                begins[each] = -1
        for topic, error in {each.topic: refused[each] for each in refused if each in lower}.items():
            self._wait_for(topic, error)
        waiting = asked.difference(begins)
        self._asks_alone = bool(waiting)
        return begins, waiting

    def _ask_leaders(
        self, asked: Sequence[TopicPartition], until: float
    ) -> Generator[Verb, Any, tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]]:
        """In one call. That tells nothing where one leader is silent: then each is asked alone, also in the rounds to
        come. And of which nobody tells."""
        if not self._asks_alone or len(asked) == 1:
            together = until if len(asked) == 1 else (self._clock() + until) / 2
            found = yield from self._ask_begins(asked, together)
            if isinstance(found, WakeupError):
                return {}, {}
            if not isinstance(found, KafkaError):
                return dict(found), {}
            if len(asked) == 1:
                return {}, {asked[0]: found}
        begins: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, KafkaError] = {}
        # From where the last round left off, as in `_locate_each`.
        for partition in sorted(asked, key=lambda each: (each <= self._asked_alone, each)):
            if self._clock() >= until or self.is_stopping:
                break
            self._asked_alone = partition
            found = yield from self._ask_begins([partition], min(until, self._clock() + _PATIENCE_OF_ONE))
            if isinstance(found, WakeupError):
                break
            if isinstance(found, KafkaError):
                refused[partition] = found
            else:
                begins.update(found)
        return begins, refused

    def _ask_begins(
        self, asked: Sequence[TopicPartition], until: float
    ) -> Generator[Verb, Any, Mapping[TopicPartition, int] | KafkaError]:
        try:
            found: Mapping[TopicPartition, int] = yield Verb(
                "beginning_offsets", (asked,), {"timeout": max(0.0, until - self._clock())}
            )
        except KafkaError as error:
            return error
        return found

    def _seek(self, partition: TopicPartition, start: OffsetAndMetadata, topic_id: UUID | None) -> Verbs:
        """To where the database says, from where the group says. Nothing was started. Tools look at the group's."""
        try:
            yield Verb("seek", (partition, start.offset))
            yield Verb("resume", (partition,))  # what came before may have been too much
            yield Verb("commit_async", ({partition: start},))
        except (KafkaError, ValueError) as error:  # it was revoked in this moment
            _logger.debug("%s cannot be read from %d: %s", partition, start.offset, error)
            return
        with self._guard:
            self._engine.relocate(partition, start, topic_id)
        self._fresh.discard(partition)

    def _commit_starts(self) -> Verbs:
        """Of those without records so far (rule 18)."""
        # For all together: the next poll is not to wait for each partition whose leader cannot be reached.
        until = self._clock() + _HASTE
        for partition in sorted(self._startless):
            # At its end the consumer commits these itself.
            if self.is_stopping:
                return
            with self._guard:
                has_lane = self._engine.has_lane(partition)
            # Where records have come, the engine itself commits the start before it starts one (its law 7).
            if has_lane:
                self._startless.discard(partition)
            else:
                yield from self._commit_start(partition, max(0.0, until - self._clock()))

    def _commit_start(self, partition: TopicPartition, patience: float) -> Verbs:
        try:
            start = yield Verb("position", (partition,), {"timeout": patience})
            # Nobody looks at its outcome: if it fails, the first record lets the group be asked again (`unlocated`).
            yield Verb("commit_async", ({partition: OffsetAndMetadata(offset=start)},))
        except KafkaError as error:
            # `position` may be the first to tell of one, and then no poll does.
            if self._ends_by(error):
                return
            if error.retriable:  # a time-out or a wake-up, say: the next round asks again
                _logger.debug("the start of %s is not known yet: %s", partition, error)
                return
            _logger.warning("the start of %s is not committed before its first record: %s", partition, error)
        except ValueError as error:  # it was revoked in this moment
            _logger.debug("the start of %s is not committed: %s", partition, error)
        self._startless.discard(partition)

    # -- commits

    def _commit(self) -> Verbs:
        now = self._clock()
        self._look_at_commits()
        with self._guard:
            on_its_way = self._commits.on_its_way()
            is_full = self._engine.uncommitted >= self._pace.commit_records
            due = now >= self._next_commit or is_full or not self._left_out <= on_its_way
            due = due or self._engine.has_starts(on_its_way) or (self._engine.is_urgent() and self._lets_go(on_its_way))
            kept_back = self._commits.kept_back(now, hurries=self._lets_go(on_its_way)) if due else None
            if kept_back is None:
                return
            self._left_out = kept_back if is_full else self._left_out & kept_back
            snapshot, commit = self._committable(kept_back)
            limit = self._engine.plan.metadata_limit
            if snapshot:
                self._commits.sent(commit)
        # Also where there is nothing to commit: the interval is from look to look.
        self._next_commit = now + self._pace.commit_interval
        if snapshot:
            call = yield Verb("commit_async", (snapshot,))
            if call is None:
                self._commits.ended(commit, None)
            else:
                self._in_flight.append(_InFlight(commit=commit, call=call, metadata_limit=limit))

    def _lets_go(self, on_its_way: Set[TopicPartition]) -> bool:
        """Whether a hand-over waits for nothing but a commit that is not on its way."""
        return any(self._engine.waits_for(each) is None for each in self._delays - on_its_way)

    def _committable(self, kept_back: Set[TopicPartition] = frozenset()) -> tuple[CommitSnapshot, SentCommit]:
        """The consumer settles it, in a poll, say: under the guard."""
        snapshot = self._engine.committable(kept_back)
        commit = SentCommit(names=frozenset(snapshot), waits_for=set(snapshot), sent_at=self._clock())

        def on_settled(partition: TopicPartition, entry: CommitEntry, outcome: CommitOutcome) -> None:
            committed, stale = outcome is CommitOutcome.COMMITTED, outcome is CommitOutcome.STALE
            refused = outcome is CommitOutcome.REFUSED
            with self._guard:
                self._commits.settled(commit, partition, outcome, self._clock())
                snapshot.settle(partition, entry, committed=committed, stale=stale, refused=refused)

        return arguments.CheckedSnapshot(snapshot.entries, on_settled), commit

    def _look_at_commits(self) -> None:
        for each in [each for each in self._in_flight if each.call.done()]:
            self._in_flight.remove(each)
            self._look_at(each)

    def _look_at(self, ended: _InFlight) -> None:
        error = ended.call.exception()
        self._commits.ended(ended.commit, error)
        # What it named was due by then, whatever was sent since.
        self._next_commit = min(self._next_commit, ended.commit.sent_at + self._pace.commit_interval)
        result: CommitResult = CommitResult() if error is not None else ended.call.result()
        if any(isinstance(each, OffsetMetadataTooLargeError) for each in [error, *result.not_committed.values()]):
            # Else a refusal has said so already: it was made before that.
            if ended.metadata_limit == self._engine.plan.metadata_limit:
                self._shrink_metadata()
        elif error is None:
            self._failed_by.clear()
        elif type(error) not in self._failed_by:
            self._failed_by.add(type(error))
            _logger.warning("a commit failed, and is sent again: %s: %s", type(error).__name__, error)

    def _shrink_metadata(self) -> None:
        with self._guard:
            limit = self._engine.shrink_metadata()
        _logger.warning("the broker takes less metadata of a commit; from now on %d characters", limit)

    # -- hand-overs and back-pressure

    def waits_for(self, partition: TopicPartition) -> Any:
        """What holds a hand-over up: a record. For `holdings()`."""
        with self._guard:
            return self._engine.waits_for(partition)

    def _pause_and_resume(self) -> Verbs:
        # Law 5. Anew when a rebalance has assigned more meanwhile; what is paused stays so.
        if self._drain_until is not None:
            if self._has_more:
                assigned = yield Verb("assignment")
                yield Verb("pause", tuple(sorted(assigned)))
                self._has_more = False
            return
        with self._guard:
            full, ready = self._engine.full(), self._engine.ready()
        if full:
            yield Verb("pause", tuple(full))
        if ready:
            yield Verb("resume", tuple(ready))

    def stuck(self) -> list[Task]:
        """What has been in progress for longer than stuck_after, the oldest first. From any thread."""
        before = self._clock() - self._pace.stuck_after
        with self._guard:
            found = takewhile(lambda task: task.since <= before, self._engine.at_work())
            named = [(task, _writes_letter(task) or task in self._engine.awaited) for task in found]
        # What is produced has time to be acknowledged; then `unwritten` names a letter, and outputs have failed. Unless
        # a producer never returns.
        return [task for task, is_produced in named if not is_produced or task.since <= before - ACKNOWLEDGED]

    def stalled(self) -> list[TopicPartition]:
        """Where records wait, and none was finished for longer than stuck_after. From any thread."""
        # A batch may wait for more records for max_wait: that is no stall.
        before = self._clock() - self._pace.stuck_after - self._engine.plan.max_wait
        with self._guard:
            return self._engine.stalled(before)

    def _tell_of_stuck(self) -> None:
        """Once of each, looked for once a second."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look, found = now + 1.0, self.stuck()
        for task in found:
            if task not in self._told:
                where, seconds = task.lane.partition, now - task.since
                _logger.warning("%s at offset %d has been in progress for %.0f s", where, task.offset, seconds)
        self._told = set(found)

    def _tell_of_deaths(self) -> None:
        with self._guard:
            died, self._engine.died = self._engine.died, []
        for task, deaths in died:
            where = f"{task.lane.partition} at offset {task.offset}"
            if deaths == 1:
                _logger.warning("%s was in progress when a process died: it is handled alone", where)
            else:
                _logger.error("%s: %d processes died while it was handled: it has failed", where, deaths)

    def _tell_of_missed(self) -> None:
        with self._guard:
            missed, self._engine.missed = self._engine.missed, []
        found: dict[TopicPartition, list[int]] = {}
        for record in missed:
            found.setdefault(record.topic_partition, []).append(record.offset)
        for partition, offsets in found.items():
            _logger.warning(
                "%s: %s at offsets %d to %d, from before a reset, not handled here: the log has lost them, or may have",
                partition,
                counted(len(offsets), "record"),
                min(offsets),
                max(offsets),
            )

    def _tell_of_outage(self) -> None:
        """When it begins, and when it is over."""
        breaker = self._engine.breaker
        error = None if breaker is None else breaker.error
        if error is not None and self._outage is None:
            _logger.warning("an outage: nothing is started but a probe now and then: %s", type(error).__name__)
        elif error is None and self._outage is not None:
            _logger.warning("the outage is over")
        self._outage = error

    def _give_up(self, tasks: Sequence[Task], why: str) -> None:
        self._executor.cancel(tasks)
        for task in tasks:
            _logger.warning("%s: abandoned while in progress: %s at offset %d", why, task.lane.partition, task.offset)

    # -- the end

    def _begin_to_drain(self) -> None:
        with self._guard:
            failure = self._engine.failure
            if self._drain_until is None and (self._stops or failure is not None):
                self._engine.stop()
                self.drains.stop(self._clock())
                self._drain_until = self._clock() + self._pace.drain_timeout
        self.error = failure

    def _is_drained(self) -> bool:
        if self._drain_until is None:
            return False
        with self._guard:
            return self._cancels or self._engine.is_at_rest() or self._clock() >= self._drain_until

    def _fail_by_letters(self, unwritten: Sequence[Task], untold: Sequence[Task]) -> None:
        """A stop that leaves dead letters unwritten is no success: whoever looks at its end is to look at these. Nor is
        one that leaves a letter to be written twice.
        """
        self._fail_by(
            unwritten,
            "its dead letter is still not written",
            f"stopped before {counted(len(unwritten), 'dead letter')} could be written, of {_named(unwritten)}. "
            "No commit covers a record without its letter, unless the log has lost it: mend what keeps the letters "
            "from being written, and run the processor again",
        )
        self._fail_by(
            untold,
            "its dead letter is written, but the store could not be told",
            f"stopped with {counted(len(untold), 'dead letter')} written of which the store could not be told, of "
            f"{_named(untold)}. No commit covers a record before that, unless the log has lost it, so the next run may "
            "write its letter a second time: mend what keeps the store from being told, and run the processor again",
        )

    def _fail_by(self, tasks: Sequence[Task], what: str, message: str) -> None:
        for task in tasks:
            _logger.error("%s: %s (%s); no commit covers it", _where(task), what, type(task.letter_error).__name__)
        if tasks and self.error is None:
            self.error = DeadLettersUnwrittenError(message)
            self.error.__cause__ = tasks[0].letter_error

    def _fail_by_time(self, given_up: Sequence[Task]) -> None:
        """A stop that leaves records in progress is no success: they will be handled twice. Unless by `cancel`."""
        if given_up and self.error is None and not self._cancels:
            seconds = self._pace.drain_timeout
            self.error = DrainTimeoutError(
                f"stopped with {counted(len(given_up), 'record')} in progress after {seconds:g} s (drain_timeout): "
                f"{_named(given_up)}. No commit covers what was in progress: it is handled again"
            )

    def _end(self) -> Verbs:
        self._positions.drop()
        with self._guard:
            self.drains.end(self._clock())
            # Before `give_up`, which forgets what is started: a letter that is being written is unwritten, too.
            unwritten, untold = self._engine.unwritten(), self._engine.untold()
            given_up = self._engine.give_up()
            # A record may have failed for good since `_begin_to_drain` looked.
            self.error = self._engine.failure if self.error is None else self.error
        self._fail_by_letters(unwritten, untold)
        self._fail_by_time(given_up)
        self._give_up(given_up, "the end")
        self._tell_of_missed()
        yield from self._commit_last()
        until = self._clock() + self._pace.close_timeout
        try:
            yield Verb("close", (), {"timeout": self._pace.close_timeout})
        except WakeupError:  # one that came late; the second close ends what the first began
            yield Verb("close", (), {"timeout": max(0.0, until - self._clock())})

    def _commit_last(self) -> Verbs:
        """Blocking: no poll follows that would bring the response."""
        is_woken, until = False, self._clock() + self._pace.close_timeout
        while True:
            with self._guard:
                (snapshot, _), limit = self._committable(), self._engine.plan.metadata_limit
            if not snapshot:
                return
            try:
                yield Verb("commit", (snapshot,), {"timeout": max(0.0, until - self._clock())})
                return
            except KafkaError as error:
                if isinstance(error, WakeupError) and not is_woken:  # one that came late
                    is_woken = True
                elif isinstance(error, OffsetMetadataTooLargeError) and limit:
                    self._shrink_metadata()
                else:
                    _logger.warning("the last commit failed: %s: %s", type(error).__name__, error)
                    return


def _writes_letter(task: Task) -> bool:
    return task.writes_dead_letter and not (task.is_skipped or task.letter_written)


def _where(task: Task) -> str:
    return f"{task.lane.partition} at offset {task.offset}"


def _named(tasks: Sequence[Task]) -> str:
    return ", ".join(map(_where, tasks[:3])) + (", ..." if len(tasks) > 3 else "")
