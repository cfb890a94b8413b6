"""An `AsyncConsumer` in a simulated group: its own facade, driver and mailbox, on an event loop in the group's time.

Laws
1. Each turn of a member's event loop is a step of the group's scheduler: the network thread, the other members and the
   faults come between any two of them.
2. The two machines and the queues between them are the simulated process'. All that stands above them is what a user
   runs: `AsyncConsumer`, `AsyncDriver`, `LoopMailbox`.
3. Before any turn of the loop the verb that is under way may be cancelled: a close always, others until the quiet time.
   Its user calls it again, or goes on.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pytest
from aio_help import CLOCKED

from instride import AsyncConsumer, AsyncRebalanceListener, ConsumerRecord, OffsetLedger, TopicPartition
from instride._core.events import BackgroundEvent, CallCompleted, CallsCompleted
from instride.consumer_records import ConsumerRecords
from instride.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    TransportError,
    WakeupError,
)
from instride.testing import SimulatedCluster
from instride.testing._recording.observer import Recording
from instride.testing._simulation.process import Process, Sleep
from instride.testing._simulation.scheduler import Scheduler
from instride.testing.simulation import Member, UserLoop

__all__ = ["Group", "play"]

_STEP: Final = 0.0005
"""Between two turns of a loop that has something to do, so many seconds pass at most."""
_FOREVER: Final = 1e9
_POLL_ERRORS = (WakeupError, TransportError)
_COMMIT_ERRORS = (CommitFailedError, KafkaTimeoutError, RebalanceInProgressError, WakeupError)


class Loop(asyncio.SelectorEventLoop):
    """Turn by turn, by whoever drives it."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def time(self) -> float:
        return self._scheduler.now

    def turn(self) -> None:
        """What is due or ready now, and nothing that this makes ready."""
        self.call_soon(self.stop)
        self.run_forever()

    def due(self) -> float:
        """When there is something to do next."""
        inside: Any = self
        if inside._ready:
            return self._scheduler.now
        timers = [each._when for each in inside._scheduled if not each._cancelled]
        return min(timers, default=_FOREVER)


class NetworkThread:
    """The simulated process', as an `AsyncDriver` knows one."""

    begun = True

    def __init__(self, process: Process) -> None:
        self.events = process._events
        self._process = process
        self.futures: dict[int, Future[Any]] = {}

    @property
    def alive(self) -> bool:
        return not self._process._stopped

    def start(self) -> None: ...

    def wake(self) -> None:
        """What is posted has woken it."""

    def join(self, timeout: float) -> bool:
        return not self.alive

    def join_at_exit(self, timeout: float) -> None: ...

    def future(self, call: int) -> Future[Any]:
        self.futures[call] = Future()
        return self.futures[call]


def consumer_of(process: Process, config: Any, loop: Loop) -> AsyncConsumer:
    """Over the machines and the queues of this process (law 2)."""
    consumer = AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    driver: Any = consumer._driver
    thread = NetworkThread(process)
    consumer._config = config
    consumer._application = driver.application = process.application
    driver._thread, driver._pid, driver._mailbox.queue = thread, os.getpid(), process._queue
    driver._dispatcher._take = lambda: ()  # the process asks for telemetry itself
    say = partial(process.history.add, process.name)

    def hold(events: Iterable[tuple[Any, ...]], completed: object) -> None:
        """No cancellation comes between this and the poll's end."""
        for what, *detail in events:
            say(what, *detail)

    recording = Recording(say, hold, holes=False)
    recording.on_observed(consumer, config)
    driver.observers.append(recording)
    told, turned = process._deliver, process._network_turn

    def deliver(event: BackgroundEvent) -> None:
        told(event)
        calls = event.calls if isinstance(event, CallsCompleted) else [event]
        for each in calls:
            if isinstance(each, CallCompleted) and each.call in thread.futures:
                thread.futures.pop(each.call).set_result(each.result)
        driver._mailbox._wake()
        wake()

    def turn(time: float) -> None:
        was_alive = thread.alive
        turned(time)
        if was_alive and not thread.alive:
            driver._mailbox.network_ended()
            wake()

    def wake() -> None:
        if loop.due() <= process.scheduler.now:
            process._wake_application(process.scheduler.now + process.scheduler.jitter(_STEP))

    process._deliver, process._network_turn = deliver, turn  # type: ignore[method-assign]
    return consumer


@dataclass(kw_only=True)
class Group:
    """What the members of one history did. cancels: how likely a turn of a loop begins with a cancellation.

    left: of each member that came to its end, what of its consumer was still in use then.
    """

    cancels: float = 0.0
    slow_listeners: bool = False
    cancelled: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)
    users: list[User] = field(default_factory=list)

    def loop(self, member: Member) -> UserLoop:
        user = User(member, self)
        self.users.append(user)
        return user.run()

    def close(self) -> None:
        """Those that crashed stand where they were."""
        for each in self.users:
            each.bury()


class User(AsyncRebalanceListener):
    """The loop of docs/asyncio.md, on one event loop; whatever it awaits of the consumer may be cancelled."""

    def __init__(self, member: Member, group: Group) -> None:
        self._member = member
        self._group = group
        self._scheduler = member.process.scheduler
        self._loop = Loop(self._scheduler)
        self._consumer = consumer_of(member.process, member.consumer._config, self._loop)
        self._ledger = OffsetLedger()
        self._tasks: dict[ConsumerRecord, asyncio.Task[None]] = {}
        self._under_way: asyncio.Task[Any] | None = None
        self._verb = ""

    # -- the event loop, step by step (law 1)

    def run(self) -> UserLoop:
        work = self._loop.create_task(self._work())
        while not work.done():
            now = self._scheduler.now
            due = self._loop.due()
            if due > now:
                yield Sleep(min(due - now, _FOREVER))
                continue
            self._perhaps_cancel()
            self._loop.turn()
            yield Sleep(self._scheduler.jitter(_STEP))
        work.result()

    def _perhaps_cancel(self) -> None:
        """Law 3."""
        if self._under_way is None or (self._member.behaviour.is_quiet() and self._verb != "close"):
            return
        if self._scheduler.random.random() < self._group.cancels:
            self._under_way.cancel()

    async def _call(self, verb: str, call: Callable[[], Coroutine[Any, Any, Any]], until: float | None = None) -> Any:
        """Raises CancelledError where it was cancelled, and says so in the history."""
        self._under_way, self._verb = asyncio.create_task(call()), verb
        try:
            return await self._under_way
        except asyncio.CancelledError:
            self._group.cancelled[verb] += 1
            self._member.did("interrupted", verb, until)
            raise
        finally:
            self._under_way = None

    def bury(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.get_coro().close()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._loop.close()

    # -- the user

    async def _work(self) -> None:
        try:
            while not self._member.stopping:
                await self._round()
            await self._end()
        except FencedInstanceIdError:
            self._member.did("fenced")
            await self._close()

    async def _round(self) -> None:
        member, consumer, ledger = self._member, self._consumer, self._ledger
        if member.subscribed != member.topics:
            member.subscribed = member.topics
            consumer.subscribe(member.topics, listener=self)
        records = await self._poll()
        for record in ledger.forget(consumer.lost_partitions()):
            self._tasks.pop(record).cancel()
        for record in ledger.track(records):
            self._begin(record)
        consumer.commit_async(ledger.committable())
        consumer.delay_revoke(ledger.uncommitted(consumer.to_be_revoked_partitions()))
        for record, _ in ledger.failures():
            self._begin(record)

    async def _poll(self) -> ConsumerRecords[Any, Any]:
        try:
            polled: ConsumerRecords[Any, Any] = await self._call(
                "poll", lambda: self._consumer.poll(timeout=self._member.plan.poll_timeout)
            )
        except (*_POLL_ERRORS, asyncio.CancelledError):
            return ConsumerRecords()
        return polled

    def _begin(self, record: ConsumerRecord) -> None:
        self._tasks[record] = task = asyncio.create_task(self._handle(record))
        self._ledger.watch(record, task)

    async def _handle(self, record: ConsumerRecord) -> None:
        await asyncio.sleep(self._member.duration())
        failed = self._member.pool._fails()
        self._member.did("failed" if failed else "done", record.topic_partition, record.offset, record.epoch)
        if failed:
            raise ValueError("the handler failed")
        self._tasks.pop(record, None)

    async def _end(self) -> None:
        """What was started is finished, with what failed tried again, and committed."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())
            for record, _ in self._ledger.failures():
                self._begin(record)
        while True:
            try:
                await self._call("commit", lambda: self._consumer.commit(self._ledger.committable()))
            except (WakeupError, asyncio.CancelledError):
                continue
            except _COMMIT_ERRORS as error:
                self._member.did("commit failed", type(error).__name__)
            break
        await self._close()

    async def _close(self) -> None:
        until = self._scheduler.now + 5.0
        try:
            await self._call("close", lambda: self._consumer.close(timeout=5.0), round(until, 6))
        except asyncio.CancelledError:  # the network thread does the rest; a second one waits for it
            await self._consumer.close(timeout=5.0)
        self._look_for_what_is_left()

    def _look_for_what_is_left(self) -> None:
        driver: Any = self._consumer._driver
        left = [
            name
            for name, there in (
                ("open", not driver.closed),
                ("alone", driver._alone),
                ("listening", driver._listening),
                ("waiters", driver._mailbox._waiters),
                ("a membership", driver.alive and self._member.behaviour.is_quiet()),
                ("tasks", asyncio.all_tasks(self._loop) - {asyncio.current_task()}),
            )
            if there
        ]
        self._group.left += [f"{self._member.process.name}: {each}" for each in left]

    # -- as a listener

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await self._listen("on assigned", partitions)

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self._listen("on revoked", partitions)

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        await self._listen("on lost", partitions)

    async def _listen(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        if self._group.slow_listeners:
            await asyncio.sleep(self._scheduler.jitter(0.05))


@contextmanager
def play(cluster: SimulatedCluster) -> Iterator[None]:
    """The clock of all that reads one is the group's."""
    with pytest.MonkeyPatch.context() as patch:
        for module in CLOCKED:
            patch.setattr(module, "now", lambda: cluster.scheduler.now)
        yield
