"""A `Processor` in virtual time: its rounds and its engine under the real machines, with the simulation's workers."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from concurrent.futures import Future
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from awaited import awaited_store

from instride import ConsumerRecord, DatabaseStore, TopicPartition
from instride._core.events import EARLIEST
from instride._processing.async_store import AsyncTransactions
from instride._processing.attempts import enter_attempt
from instride._processing.breaker import CircuitBreaker
from instride._processing.engine import Batch, Engine, EnginePlan, Job, Lane, Order, Task
from instride._processing.poll_loop import Pace, Rounds, Verb
from instride._processing.retries import Failures, Retry
from instride._processing.store import Transactions
from instride._wire.decoder import replaced
from instride.commits import CommitEntry, CommitOutcome, CommitSnapshot
from instride.consumer_records import ConsumerRecords, Stretch
from instride.errors import KafkaError
from instride.testing._simulation.process import Sleep
from instride.testing.simulation import Member, UserLoop

__all__ = ["ATTEMPTS", "KEYS", "Bank", "Course", "processor_loop"]

_numbers = count()

KEYS, ATTEMPTS = 3, 3
FAILS, FAILS_ALWAYS, LETTER_FAILS = 0.1, 0.01, 0.2


class SimulatedEngine(Engine):
    """Tells the history of records that an earlier owner's commit says are finished: they are done, not handled.

    covered: of each partition what accepted commits covered when its owner began with it.
    """

    def __init__(self, plan: EnginePlan, member: Member, course: Course) -> None:
        super().__init__(plan, lambda _: 1)
        self._member = member
        self._course = course
        self.covered: dict[Lane, frozenset[tuple[TopicPartition, int]]] = {}
        self._finished: dict[Lane, set[tuple[TopicPartition, int]]] = {}
        self._given: dict[tuple[TopicPartition, int], set[int]] = {}

    def _add(self, lane: Lane, records: list[ConsumerRecord]) -> None:
        self._given.setdefault((lane.partition, lane.epoch), set()).update(each.offset for each in records)
        super()._add(lane, records)

    def _was_finished_before(self, lane: Lane, task: Task) -> None:
        super()._was_finished_before(lane, task)
        self._course.remembered += 1
        self._member.did("done", lane.partition, task.offset, lane.epoch)

    def _begin(self, lane: Lane) -> None:
        self.covered[lane] = frozenset(each for each in self._course.covered if each[0] == lane.partition)
        super()._begin(lane)

    def _finish(self, task: Task, *, releases: bool = True) -> None:
        super()._finish(task, releases=releases)
        self._finished.setdefault(task.lane, set()).add((task.lane.partition, task.offset))

    def ready(self) -> list[TopicPartition]:
        found = super().ready()
        left = [each for each in self._lanes.values() if each.paused and not (each.queued or each.draining)]
        assert not left, f"{left[0].partition} is paused, and none of its records waits"
        return found

    def committable(self, in_flight: Set[TopicPartition] = frozenset()) -> CommitSnapshot:
        covered = {lane.partition: set(self._finished.get(lane, ())) for lane in self._ahead.values()}
        gone = {lane.partition: {(lane.partition, at) for at in lane.gone} for lane in self._ahead.values()}
        snapshot = super().committable(in_flight)

        def settled(partition: TopicPartition, entry: CommitEntry, outcome: CommitOutcome) -> None:
            committed, stale = outcome is CommitOutcome.COMMITTED, outcome is CommitOutcome.STALE
            snapshot.settle(partition, entry, committed=committed, stale=stale)
            if committed:
                self._course.covered |= covered[partition]
                self._course.unfinished += self._unfinished(partition, entry) - gone[partition]
                self._course.gone |= gone[partition]

        return CommitSnapshot(snapshot.entries, settled)

    def _unfinished(self, partition: TopicPartition, entry: CommitEntry) -> set[tuple[TopicPartition, int]]:
        """What polls returned in this assignment, and its commit covers, though nobody has finished it."""
        given = {(partition, at) for at in self._given[partition, entry.epoch] if at < entry.offset}
        return given.difference(self._course.finished, self._course.covered, *self._finished.values())


class Bank:
    """A database of all members of a history, in memory. written: each record that a transaction left there.

    What a member does with it is done when its handler ends: also that of one which was suspended until then, and whose
    partitions are another's, as it does not know yet.
    """

    def __init__(self) -> None:
        name = f"file:bank-{next(_numbers)}?mode=memory&cache=shared"
        self._keeper = sqlite3.connect(name, uri=True)  # while one connection is open it lives
        self._keeper.execute("CREATE TABLE bills (topic TEXT, part INTEGER, offset INTEGER)")
        self.store = DatabaseStore(lambda: sqlite3.connect(name, uri=True))
        self.store.database.prepare()
        self.awaited = awaited_store(lambda: sqlite3.connect(name, uri=True))
        self._loop = asyncio.new_event_loop()
        self._members = 0

    def bill(self, records: list[ConsumerRecord]) -> None:
        bills = [(each.topic, each.partition, each.offset) for each in records]
        self.store.connection.executemany("INSERT INTO bills VALUES (?, ?, ?)", bills)

    async def bill_awaited(self, records: list[ConsumerRecord]) -> None:
        cursor = self.awaited.connection.cursor()
        for each in records:
            await cursor.execute("INSERT INTO bills VALUES (?, ?, ?)", (each.topic, each.partition, each.offset))

    def transactions(self) -> Transactions | AtOnce:
        """Of a member: by turns those of plain functions and of coroutines. They share the table."""
        self._members += 1
        if self._members % 2:
            return self.store.database.transactions(self.bill, "g")
        return AtOnce(self.awaited.database.transactions(self.bill_awaited, "g"), self._loop)

    def written(self) -> Counter[tuple[TopicPartition, int]]:
        found = self._keeper.execute("SELECT topic, part, offset FROM bills").fetchall()
        return Counter((TopicPartition(topic, part), offset) for topic, part, offset in found)

    def below_positions(self) -> set[tuple[TopicPartition, int]]:
        """Every offset up to which a partition was written."""
        found = self._keeper.execute("SELECT topic, part, next_offset FROM instride_offsets").fetchall()
        return {(TopicPartition(topic, part), at) for topic, part, end in found for at in range(end)}

    def close(self) -> None:
        with self.store.database.thread():
            pass
        self._loop.run_until_complete(self._close_awaited())
        self._loop.close()
        self._keeper.close()

    async def _close_awaited(self) -> None:
        async with self.awaited.database.connections():
            pass


class AtOnce:
    """Transactions of coroutines, of which none waits for anything."""

    def __init__(self, transactions: AsyncTransactions, loop: asyncio.AbstractEventLoop) -> None:
        self._transactions = transactions
        self._loop = loop

    def __call__(self, what: Any) -> None:
        self._loop.run_until_complete(self._transactions(what))

    def pass_over(self, task: Task) -> None:
        self._loop.run_until_complete(self._transactions.pass_over(task))


class KeyedRecords:
    """A poll's records, each with the key that its offset says."""

    def __init__(self, records: ConsumerRecords) -> None:
        self._records = records

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return (replaced(each, b"%d" % (each.offset % KEYS), None) for each in self._records)

    def stretches(self) -> list[Stretch]:
        return self._records.stretches()

    @property
    def standing(self) -> Any:
        return self._records.standing


@dataclass(slots=True, kw_only=True)
class Course:
    """What the members of one history did together. handled: of each offset, who finished it by handling it.

    late: partition and offset of what was started, and the offset before that was not finished. A record that another
    member began may be gone meanwhile: the log was compacted.
    bank: a database; then each attempt that ends well is a transaction of it, with its offset.
    answers_after: seconds after which it has answered where partitions begin, by what was there when it was asked.
    has_outages: of every ten seconds handlers fail for three, with a circuit breaker.
    attempts: those that count, of a record by one owner. The next one goes on from what the last commit tells of them.
    unfinished: what was covered by an accepted commit of whoever was given it, and nobody had finished; but what its
    engine took for gone from the log.
    covered: what was finished when a commit was made that the broker accepted. repeated: what of that was started by an
    owner who came later; a former owner who does not know of his loss may start what the new one has committed.
    """

    order: Order
    max_batch: int = 0
    bank: Bank | None = None
    answers_after: float = 0.0
    has_outages: bool = False
    cancels_in_time: bool = False
    started: list[tuple[TopicPartition, int]] = field(default_factory=list)
    finished: set[tuple[TopicPartition, int]] = field(default_factory=set)
    attempts: Counter[tuple[TopicPartition, int, str]] = field(default_factory=Counter)
    handled: dict[int, set[str]] = field(default_factory=dict)
    remembered: int = 0
    spared: int = 0
    late: list[tuple[TopicPartition, int, int]] = field(default_factory=list)
    covered: set[tuple[TopicPartition, int]] = field(default_factory=set)
    repeated: list[tuple[TopicPartition, int]] = field(default_factory=list)
    unfinished: list[tuple[TopicPartition, int]] = field(default_factory=list)
    gone: set[tuple[TopicPartition, int]] = field(default_factory=set)
    zombies: list[str] = field(default_factory=list)
    _starters: dict[TopicPartition, list[str]] = field(default_factory=dict)

    def attempts_of_all_owners(self) -> Counter[tuple[TopicPartition, int]]:
        found: Counter[tuple[TopicPartition, int]] = Counter()
        for (partition, offset, _), attempts in self.attempts.items():
            found[partition, offset] += attempts
        return found

    def check_owner(self, partition: TopicPartition, starter: str) -> None:
        """Who starts a record is not one whose partition another has begun to work on."""
        starters = self._starters.setdefault(partition, [])
        if starter in starters[:-1]:
            self.zombies.append(f"{starter} starts a record of {partition} after {starters[-1]} did")
        elif starter not in starters:
            starters.append(starter)

    def check_order(self, together: list[Task]) -> None:
        """What comes before it, of its key or partition, is finished, by whichever member (across any hand-over)."""
        if self.order == "none":
            return
        partition, step = together[0].record.topic_partition, KEYS if self.order == "key" else 1
        started = {each for each in self.started if each[0] == partition} - self.finished
        started -= {(partition, task.offset) for task in together}
        for task in together:
            behind = [at for _, at in started if at < task.offset and (task.offset - at) % step == 0]
            self.late += [(partition, task.offset, at) for at in behind]

    def was_handled_again(self, violation: str) -> bool:
        """Of S1: whether both of whom it speaks handled the record. What is dropped, or remembered, comes again."""
        told = re.match(r"offset (\d+): (.*?) \(.*\), and again (.*)", violation)
        assert told
        return {told[2], told[3]} <= self.handled.get(int(told[1]), set())


class Workers:
    """Handlers that take a while, fail by chance, and dead letters that are acknowledged a moment later."""

    def __init__(self, member: Member, engine: SimulatedEngine, course: Course) -> None:
        self._member = member
        self._engine = engine
        self._course = course
        self._running = 0
        self.may_start: Callable[[], bool] = lambda: True
        self.wants_attention: Callable[[], bool] = lambda: False
        bank = course.bank
        self._transactions = None if bank is None else bank.transactions()
        self.to_be_revoked: frozenset[TopicPartition] = frozenset()

    @property
    def now(self) -> float:
        return self._member.process.scheduler.now

    def wake(self) -> None:
        while (task := self._next()) is not None:
            partition = task.lane.partition
            assert partition not in self.to_be_revoked, f"{partition} was started after its revoke was taken"
            self._running += 1
            is_alone = len(_tasks(task)) == 1
            assert is_alone or not any(each.attempts for each in _tasks(task)), "who failed is in no batch with others"
            self._course.check_order(_tasks(task))
            self._course.check_owner(partition, self._owner(task))
            begun = [(partition, each.offset) for each in _tasks(task)]
            self._course.started += begun
            self._course.repeated += self._engine.covered[task.lane].intersection(begun)
            self._after(
                self._member.duration(), self._ends if not task.writes_dead_letter else self._acknowledged, task
            )

    def _owner(self, task: Job) -> str:
        return f"{self._member.process.name} in epoch {task.lane.epoch}"

    def _next(self) -> Job | None:
        may_start = self._running < self._member.plan.workers and self.may_start()
        return self._engine.take(self.now) if may_start else None

    def cancel(self, tasks: Sequence[Task]) -> None:
        """Threads cannot be stopped: what was given up ends as late as it does."""

    def _after(self, seconds: float, what: Any, task: Job) -> None:
        self._member.process.scheduler.after(seconds, partial(self._unless_gone, what, task))

    def _unless_gone(self, what: Any, task: Job) -> None:
        process = self._member.process
        if process.crashed:
            return
        if process.scheduler.now < process.suspended_until:
            process.scheduler.at(process.suspended_until, partial(self._unless_gone, what, task))
            return
        what(task)
        if self.wants_attention():
            process.wakeup()
        self.wake()

    def _ends(self, task: Job) -> None:
        chance = self._member.process.scheduler.random
        if task.over:  # it was given up, and ended nevertheless
            self._running -= 1
            return
        tasks = _tasks(task)
        fails = chance.random() < FAILS or any(_is_poisonous(each.record) for each in tasks)
        error: Exception | None = ValueError("by chance") if fails else None
        if self._course.has_outages and self.now % 10 < 3:
            error = ConnectionError("away")
        if error is None and self._transactions is not None:
            error = copy_context().run(self._write, self._transactions, task)
        verdict = self._engine.end(task, error, self.now, chance.random())
        for each in tasks:
            counts = verdict is None or verdict.counts
            self._course.attempts[each.record.topic_partition, each.offset, self._owner(task)] += counts
            self._course.spared += not counts
            if error is None:
                self._finished(each)
        if task.writes_dead_letter:
            self._after(0.01, self._acknowledged, task)
        else:
            self._running -= 1

    def _write(self, transactions: Transactions | AtOnce, job: Job) -> Exception | None:
        enter_attempt(job)
        try:
            transactions([task.record for task in _tasks(job)])
        except Exception as error:
            return error
        return None

    def _acknowledged(self, task: Task) -> None:
        chance = self._member.process.scheduler.random
        if task.over:
            self._running -= 1
            return
        error = ConnectionError() if chance.random() < LETTER_FAILS else None
        if error is None and self._transactions is not None:
            self._transactions.pass_over(task)
        self._engine.wrote(task, error, self.now, chance.random())
        if error is None:
            self._finished(task)
        self._running -= 1

    def _finished(self, task: Task) -> None:
        record = task.record
        partition, who = record.topic_partition, self._member.process.name
        self._course.finished.add((partition, task.offset))
        self._course.handled.setdefault(task.offset, set()).add(f"{partition} of {who} in epoch {record.epoch}")
        self._member.did("done", partition, task.offset, record.epoch)


def _tasks(job: Job) -> list[Task]:
    return job.tasks if isinstance(job, Batch) else [job]


def _is_poisonous(record: ConsumerRecord) -> bool:
    return record.offset % 29 == 7


class LateAnswers:
    """Of a database that takes its time."""

    def __init__(self, member: Member, course: Course) -> None:
        self._member = member
        self._after = course.answers_after
        self._waiting: list[tuple[float, Future[Any], Any]] = []

    def of(self, answer: Any) -> Any:
        if not self._after:
            return answer
        future: Future[Any] = Future()
        self._waiting.append((self._member.process.scheduler.now + self._after, future, answer))
        return future

    def come(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._member.process.scheduler.now:
            _, future, answer = self._waiting.pop(0)
            if future.set_running_or_notify_cancel():
                future.set_result(answer)


def processor_loop(course: Course) -> Any:
    def loop(member: Member) -> UserLoop:
        failures = Failures(
            retry=Retry(attempts=ATTEMPTS, backoff=0.1, backoff_max=0.3), after="dead-letter", has_dead_letters=True
        )
        plan = EnginePlan(
            order=course.order,
            failures=failures,
            max_records=30,
            window=4,
            max_batch=course.max_batch,
            max_wait=0.2,
            has_store=course.bank is not None,
            breaker=CircuitBreaker(on=OSError, attempts=5, pause=0.2, pause_max=1.0) if course.has_outages else None,
        )
        engine = SimulatedEngine(plan, member, course)
        workers = Workers(member, engine, course)
        rounds = Rounds(
            engine,
            workers,
            pace=Pace(
                commit_interval=0.3, drain_timeout=5.0, close_timeout=5.0, cancels_in_time=course.cancels_in_time
            ),
            guard=nullcontext(),
            clock=lambda: member.process.scheduler.now,
            has_store=course.bank is not None,
        )
        workers.may_start, workers.wants_attention = rounds.may_start, rounds.wants_attention
        verbs = rounds.run(member.topics)
        result: Any = None
        error: Exception | None = None
        late = LateAnswers(member, course)
        while True:
            late.come()
            if member.stopping:
                rounds.stop()
            try:
                verb = verbs.send(result) if error is None else verbs.throw(error)
            except StopIteration:
                if rounds.error is not None and not isinstance(rounds.error, KafkaError):
                    raise rounds.error from None  # it is ours: the simulation has found a bug
                return
            result = error = None
            try:
                if verb.name == "stored":
                    assert course.bank is not None
                    result = late.of(course.bank.store.database.positions("g", *verb.args))
                else:
                    result = yield from _call(member, verb, workers)
            except Exception as caught:
                error = caught

    return loop


def _call(member: Member, verb: Verb, workers: Workers) -> Generator[Any, float, Any]:
    consumer = member.consumer
    if verb.name in ("poll", "commit_async", "delay_revoke", "pause"):
        yield member.breath()
    if verb.name == "sleep":
        yield Sleep(*verb.args)
        return None
    if verb.name == "topic_ids":
        return {}
    if verb.name == "position":
        return (yield from consumer._application.position(workers.now, verb.args[0], verb.kwargs["timeout"]))
    if verb.name == "beginning_offsets":
        wanted = dict.fromkeys(verb.args[0], EARLIEST)
        return (yield from consumer._application.offsets_for(workers.now, wanted, verb.kwargs["timeout"]))
    kwargs = dict(verb.kwargs)
    if verb.name == "poll":
        kwargs["limit"] = kwargs.pop("max_records")
    found: Any = getattr(consumer, verb.name)(*verb.args, **kwargs)
    if isinstance(found, Generator):
        found = yield from found
    if verb.name == "poll":
        workers.to_be_revoked = consumer.to_be_revoked_partitions()
        return KeyedRecords(found)
    return found
