"""`ProcessorKit`: a processor under test, in virtual time, without a broker: the same engine, the same rounds.

Laws
1. Nothing sleeps and no thread runs: plain handlers are called by `run` and `advance`, one after the other; coroutine
   handlers run on an event loop whose clock is the kit's.
2. What the processor asks of a consumer, `_Double` is asked: logs of records, committed offsets, a revocation's two
   steps.
3. What ends the processor is raised by the call in which it ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import threading
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar
from uuid import UUID

from instride._processing.async_store import AsyncDatabaseStore
from instride._processing.attempts import Desk
from instride._processing.coroutine_workers import LoopWorkers
from instride._processing.dead_letters import DeadLetter, LetterWriter
from instride._processing.definition import Definition
from instride._processing.engine import Engine, Job, Tally, Task
from instride._processing.lifespan import AsyncLifespan, SyncLifespan
from instride._processing.outputs import OutputRecord
from instride._processing.poll_loop import Rounds, Verb, Verbs
from instride._wire.decoder import ConsumerRecord
from instride.commits import CommitEntry, CommitSnapshot
from instride.consumer_records import Stretch
from instride.errors import IllegalStateError
from instride.records import OffsetAndMetadata, TopicPartition

__all__ = ["ProcessorKit"]

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")

# Not 0, which stands for none.
_TOPIC_ID: Final = UUID(int=1)
_GROUP: Final = "kit"
_STILL: Final = 3
"""Rounds without any news after which nothing more happens by itself."""


class _Records:
    """What a poll of the double returns."""

    standing: Final = None

    def __init__(self, records: list[ConsumerRecord]) -> None:
        self._records = records

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self._records)

    def stretches(self) -> list[Stretch]:
        return [Stretch(each.offset, each.offset + 1, 1) for each in self._records]


@dataclass(slots=True)
class _Broker:
    """What outlives a crash: the records, what the group committed, and how often partitions were assigned."""

    logs: dict[TopicPartition, list[ConsumerRecord]]
    group: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    assignments: int = 0


class _Double:
    """One membership of a consumer that owns what it is let own: at first, each partition."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._positions: dict[TopicPartition, int] = {}
        self._owned: dict[TopicPartition, int] = {}
        self._requested: set[TopicPartition] = set()
        self._next: set[TopicPartition] = set()
        self._delayed: set[TopicPartition] = set()
        self._lost: set[TopicPartition] = set()
        self._to_lose: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._to_assign = list(broker.logs)
        self._listener: Any = None

    # -- what the test does to it

    def assign(self, partition: TopicPartition) -> None:
        self._to_assign.append(partition)

    def ask_for(self, partition: TopicPartition) -> None:
        self._requested.add(self._of_ours(partition))

    def lose(self, partition: TopicPartition) -> None:
        self._to_lose.add(self._of_ours(partition))

    def _of_ours(self, partition: TopicPartition) -> TopicPartition:
        if partition not in self._owned and partition not in self._to_assign:
            raise ValueError(f"{partition} is not assigned to the processor now")
        return partition

    # -- the verbs

    def subscribe(self, topics: list[str], *, listener: Any) -> None:
        self._listener = listener

    def poll(self, *, timeout: float, max_records: int | None = None) -> _Records:
        for partition in self._next - self._delayed:
            self._let_go(partition)
        self._next, self._delayed = self._delayed | self._requested, set()
        self._requested = set()
        # Handed over just now it cannot be lost.
        self._lost, self._to_lose = self._to_lose & self._owned.keys(), set()
        for partition in self._lost:
            self._let_go(partition)
        self._take_new()
        found: list[ConsumerRecord] = []
        for partition in sorted(self._owned):
            found += self._read(partition, None if max_records is None else max_records - len(found))
        return _Records(found)

    def _take_new(self) -> None:
        new, self._to_assign = self._to_assign, []
        for partition in new:
            self._broker.assignments += 1
            self._owned[partition] = self._broker.assignments
            committed = self._broker.group.get(partition)
            self._positions[partition] = 0 if committed is None else committed.offset
        if new:
            self._listener.on_partitions_assigned(new)

    def _let_go(self, partition: TopicPartition) -> None:
        self._owned.pop(partition, None)
        self._paused.discard(partition)
        self._next.discard(partition)

    def _read(self, partition: TopicPartition, most: int | None) -> list[ConsumerRecord]:
        if partition in self._paused or partition in self._next:
            return []
        found = self._broker.logs[partition][self._positions[partition] :][:most]
        self._positions[partition] += len(found)
        return [_stamped(each, self._owned[partition]) for each in found]

    def lost_partitions(self) -> set[TopicPartition]:
        return self._lost

    def to_be_revoked_partitions(self) -> set[TopicPartition]:
        return set(self._next)

    def delay_revoke(self, partitions: Iterable[TopicPartition], *, reason: object) -> bool:
        self._delayed = set(partitions) & self._next
        return True

    def revoke_deadline(self, partition: TopicPartition) -> float | None:
        """A hand-over in the kit may last for ever."""

    def assignment(self) -> set[TopicPartition]:
        return set(self._owned)

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused.difference_update(partitions)

    def committed(self, *partitions: TopicPartition, timeout: float) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return {each: self._broker.group.get(each) for each in partitions}

    def topic_ids(self, *topics: str) -> dict[str, UUID]:
        return dict.fromkeys(topics, _TOPIC_ID)

    def beginning_offsets(self, partitions: list[TopicPartition], *, timeout: float) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    def position(self, partition: TopicPartition, *, timeout: float) -> int:
        return self._positions[partition]

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout: float) -> None:
        self.commit_async(offsets)

    def commit_async(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        entries: Mapping[TopicPartition, CommitEntry] = offsets.entries if isinstance(offsets, CommitSnapshot) else {}
        for partition, each in offsets.items():
            entry = entries.get(partition)
            current = entry is None or self._owned.get(partition) == entry.epoch
            if current:
                self._broker.group[partition] = each
            if isinstance(offsets, CommitSnapshot) and entry is not None:
                offsets.settle(partition, entry, committed=current, stale=not current)

    def sleep(self, seconds: float) -> None: ...

    def close(self, *, timeout: float) -> None: ...


def _stamped(record: ConsumerRecord, epoch: int) -> ConsumerRecord:
    return ConsumerRecord(
        record.topic,
        record.partition,
        record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
        epoch=epoch,
    )


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock is the kit's. scheduled: how many callbacks it was given."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self.scheduled = 0
        self._timers: list[float] = []

    def time(self) -> float:
        return self._clock()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        self.scheduled += 1
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        heapq.heappush(self._timers, when)
        return super().call_at(when, callback, *args, context=context)

    def next_timer(self) -> float | None:
        """Perhaps of one that was cancelled."""
        # asyncio keeps its timers to itself: these are our own, and nobody says which of them were cancelled.
        while self._timers and self._timers[0] <= self._clock():
            heapq.heappop(self._timers)
        return self._timers[0] if self._timers else None

    def settle(self) -> None:
        """Run until everybody waits for time to pass, or for something outside."""
        before = -1
        while self.scheduled != before:
            self.call_soon(self.stop)
            # After the stop was scheduled: what the run schedules besides is news.
            before = self.scheduled
            self.run_forever()


class _Inline:
    """Plain handlers, called by `work`."""

    def __init__(
        self, desk: Desk, handle: Callable[[Any], Any], produce: Callable[[Any], None], lifespan: SyncLifespan
    ) -> None:
        self._desk = desk
        self._handle = handle
        self._produce = produce
        self._lifespan = lifespan

    def wake(self) -> None: ...

    def cancel(self, tasks: Sequence[Task]) -> None: ...

    def work(self) -> None:
        while (task := self._desk.next_task()) is not None:
            if not task.writes_dead_letter:
                error = self._lifespan.context.copy().run(self._error_of, task)
                self._desk.end(task, error)
            if isinstance(task, Task) and task.writes_dead_letter:
                LetterWriter(self._desk, self._produce).write(task)

    def _error_of(self, task: Job) -> BaseException | None:
        try:
            returned = self._handle(self._desk.read(task))
            for each in self._desk.outputs(task, returned):
                self._produce(each)
        except Exception as error:  # noqa: BLE001 - the engine decides what becomes of it
            return error
        return None


class _SetUp:
    """The run's, and that of a thread within it. inner: whose context handlers see."""

    def __init__(self, what: Definition) -> None:
        self._what = what
        self._entered = False
        self.inner = SyncLifespan(contextvars.copy_context())

    def enter(self) -> None:
        """Once."""
        if not self._entered:
            self._entered = True
            self.inner.enter(self._what.lifespan)
            self.inner.enter(self._what.worker_lifespan)

    def leave(self) -> None:
        self.inner.leave()


class _AsyncSetUp:
    """The same for coroutines. pass_time: to the next timer, if there is one."""

    def __init__(
        self,
        what: Definition,
        loop: _Loop,
        pass_time: Callable[[], bool],
        fail: Callable[[BaseException], object],
    ) -> None:
        self._what = what
        self._loop = loop
        self._pass_time = pass_time
        self._entered = False
        self.inner = AsyncLifespan(fail, contextvars.copy_context())

    def enter(self) -> None:
        """Once."""
        if not self._entered:
            self._entered = True
            self._until_done(self.inner.enter(self._what.lifespan))

    def leave(self) -> None:
        if self._entered:
            self._until_done(self.inner.leave())

    def _until_done(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._loop.settle()
        while not task.done() and self._pass_time():
            self._loop.settle()
        if not task.done():
            task.cancel()
            self._loop.settle()
            raise IllegalStateError("the lifespan waits for something outside of the kit, whose time is not real")
        task.result()


@dataclass(frozen=True, slots=True)
class _Process:
    """What dies in a crash."""

    double: _Double
    engine: Engine
    workers: LoopWorkers | _Inline
    set_up: _SetUp | _AsyncSetUp
    rounds: Rounds
    verbs: Verbs

    def end(self, settle: Callable[[], None]) -> None:
        """With whatever is in progress."""
        self.verbs.close()
        self.workers.cancel(self.engine.give_up())
        settle()
        self.set_up.leave()


class ProcessorKit(Generic[K, V]):
    """A `Processor` under test: `with billing.testing() as kit`. Not thread-safe; nothing waits for real time.

    handled: the records that handlers finished, as they saw them, in order. dead_letters, outputs: what was written, in
    order. Set-ups are entered by the first `run` or `advance`, and left at the end, and by `crash`.
    Each plain handler takes no time; a coroutine's `asyncio.sleep(5)` ends when the kit's time has moved by 5 seconds.
    """

    def __init__(self, what: Definition, partitions: int) -> None:
        self.handled: list[ConsumerRecord[K, V]] = []
        self.dead_letters: list[DeadLetter] = []
        self.outputs: list[OutputRecord] = []
        self._what = what
        self._count = partitions
        self._now = 0.0
        self._loop = _Loop(lambda: self._now) if what.is_async else None
        self._broker = _Broker({TopicPartition(topic, n): [] for topic in what.topics for n in range(partitions)})
        self._ended = False
        try:
            self._process = self._started()
            self._verb = next(self._process.verbs)
        except BaseException:
            if self._loop is not None:
                self._loop.close()
            raise

    def _started(self) -> _Process:
        what, lock = self._what, threading.RLock()
        bound = what.bound(_GROUP)
        if isinstance(what.store, AsyncDatabaseStore):
            self._await(what.store.database.prepare())
        elif what.store is not None:
            what.store.database.prepare()
        engine = Engine(what.plan, lambda record: len(record.key or b"") + len(record.value or b""))
        desk = Desk(
            engine=engine,
            lock=lock,
            reader=what.reader,
            clock=lambda: self._now,
            # The middle: the jitter of a delay is 0 then, so that tests know when a retry is due.
            chance=lambda: 0.5,
            attention=lambda: None,
            wants_attention=lambda: False,
            may_start=lambda: True,
            dead_letters=what.dead_letters,
            output=what.output,
            group=_GROUP,
            pass_over=bound.pass_over,
        )
        set_up, workers = self._workers(desk, bound.handler)
        rounds = Rounds(
            engine,
            workers,
            pace=what.pace,
            guard=lock,
            clock=lambda: self._now,
            has_store=what.store is not None,
        )
        return _Process(_Double(self._broker), engine, workers, set_up, rounds, rounds.run(what.topics))

    def _workers(self, desk: Desk, handler: Callable[[Any], Any]) -> tuple[_SetUp | _AsyncSetUp, LoopWorkers | _Inline]:
        what = self._what
        if self._loop is None:
            set_up = _SetUp(what)
            return set_up, _Inline(desk, partial(self._handle, handler), self._write, set_up.inner)
        around = _AsyncSetUp(what, self._loop, self._pass_time, desk.fail)
        handle = partial(self._handle_async, handler)
        return around, LoopWorkers(
            desk, handle, self._produce, what.concurrency, self._loop, what.timeout, around.inner
        )

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        task = self._loop.create_task(coroutine)
        self._loop.settle()
        if not task.done():
            task.cancel()
            self._loop.settle()
            raise IllegalStateError("the store's database is outside of the kit, whose time is not real: use running()")
        return task.result()

    def _handle(self, handler: Callable[[Any], Any], what: Any) -> Any:
        returned = handler(what)
        self.handled += what if isinstance(what, list) else [what]
        return returned

    async def _handle_async(self, handler: Callable[[Any], Awaitable[Any]], what: Any) -> Any:
        returned = await handler(what)
        self.handled += what if isinstance(what, list) else [what]
        return returned

    async def _produce(self, record: DeadLetter | OutputRecord) -> None:
        self._write(record)

    def _write(self, record: DeadLetter | OutputRecord) -> None:
        if isinstance(record, DeadLetter):
            self.dead_letters.append(record)
        else:
            self.outputs.append(record)

    # -- what a test does

    def give(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> ConsumerRecord[bytes | None, bytes | None]:
        """Write a record; the next `run` or `advance` handles it. partition: by default the key says which.

        Raises ValueError for a topic or partition that the processor does not read.
        """
        number = zlib.crc32(key or b"") % self._count if partition is None else partition
        where = TopicPartition(topic, number)
        if where not in self._broker.logs:
            raise ValueError(f"give: the processor reads no {where}; testing(partitions={self._count})")
        at = len(self._broker.logs[where])
        made: ConsumerRecord[bytes | None, bytes | None] = ConsumerRecord(
            topic, number, at, timestamp=int(self._now * 1000), key=key, value=value, headers=tuple(headers)
        )
        self._broker.logs[where].append(made)
        return made

    def run(self) -> None:
        """Let everything happen that needs no time. Raises what ends the processor."""
        if self._ended:
            raise IllegalStateError("run: the processor has ended")
        self._process.set_up.enter()
        still, before = 0, None
        while still < _STILL and not self._ended:
            self._work()
            self._round()
            after = self._state()
            still = still + 1 if after == before else 0
            before = after
        self._work()
        if self._process.rounds.is_ended and self._process.rounds.error is not None:
            raise self._process.rounds.error

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass: retries become due, commits are sent. Raises what ends the processor."""
        end = self._now + seconds
        self.run()
        while self._now < end and not self._ended:
            self._now = min(end, self._next_event())
            self.run()

    def revoke(self, topic: str, partition: int) -> None:
        """The group requests its revocation. The next `run` hands it over, unless records of it are in progress."""
        self._process.double.ask_for(TopicPartition(topic, partition))

    def lose(self, topic: str, partition: int) -> None:
        """It is another member's all of a sudden: what is in progress is cancelled, nothing of it is committed."""
        self._process.double.lose(TopicPartition(topic, partition))

    def assign(self, topic: str, partition: int) -> None:
        """It comes (back) to this member, from the group's committed offset."""
        self._process.double.assign(TopicPartition(topic, partition))

    def crash(self) -> None:
        """The process dies, and another one begins with what is committed."""
        self._process.end(self._settle)
        self._process = self._started()
        self._verb = next(self._process.verbs)

    def stop(self) -> None:
        """As a SIGTERM: what is in progress is finished (let time pass for it), what is finished committed."""
        self._process.rounds.stop()

    # -- what it sees

    @property
    def now(self) -> float:
        """Virtual seconds since the kit began."""
        return self._now

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The group's offsets."""
        return {partition: each.offset for partition, each in sorted(self._broker.group.items())}

    @property
    def owned(self) -> list[TopicPartition]:
        """Partitions of the processor."""
        return sorted(self._process.double.assignment())

    @property
    def tally(self) -> Tally:
        """How many records were handled, tried again, skipped and so on, since the kit began or crashed."""
        return self._process.engine.tally

    # -- inside

    def _work(self) -> None:
        if isinstance(self._process.workers, _Inline):
            self._process.workers.work()
        else:
            self._process.workers.wake()
        self._settle()

    def _settle(self) -> None:
        if self._loop is not None:
            self._loop.settle()

    def _round(self) -> None:
        """From one poll to before the next."""
        polled = False
        while not (polled and self._verb.name == "poll"):
            polled = polled or self._verb.name == "poll"
            try:
                self._verb = self._next_verb()
            except StopIteration:
                self._ended = True
                return

    def _next_verb(self) -> Verb:
        try:
            result = self._call(self._verb)
        except Exception as error:  # noqa: BLE001 - the database's: the rounds decide
            return self._process.verbs.throw(error)
        return self._process.verbs.send(result)

    def _call(self, verb: Verb) -> Any:
        if verb.name == "stored":
            store = self._what.store
            assert store is not None
            if isinstance(store, AsyncDatabaseStore):
                return self._await(store.database.positions(_GROUP, *verb.args))
            return store.database.positions(_GROUP, *verb.args)
        return getattr(self._process.double, verb.name)(*verb.args, **verb.kwargs)

    def _state(self) -> tuple[object, ...]:
        engine, broker = self._process.engine, self._broker
        logs = sum(map(len, broker.logs.values()))
        return repr(engine.tally), engine.queued, engine.started, logs, repr(broker.group), self.owned, self._ended

    def _pass_time(self) -> bool:
        """To the next timer of the event loop, if there is one."""
        timer = None if self._loop is None else self._loop.next_timer()
        if timer is None:
            return False
        self._now = timer
        return True

    def _next_event(self) -> float:
        timer = None if self._loop is None else self._loop.next_timer()
        times = [self._process.engine.next_due(), timer, self._now + self._what.pace.longest_wait]
        return min(each for each in times if each is not None and each > self._now)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops, as a SIGTERM does, with all the time that it needs."""
        try:
            if not self._ended and error is None:
                self.stop()
                self.advance(self._what.pace.drain_timeout + 1)
        finally:
            self._process.end(self._settle)
            if self._loop is not None:
                self._loop.close()
