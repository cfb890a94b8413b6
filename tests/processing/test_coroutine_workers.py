"""Coroutine handlers: what attempts that share a task of asyncio share besides; and the loop that a processor makes."""

from __future__ import annotations

import asyncio
import gc
import select
import socket
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from engine_help import desk_of, keyed
from processing_help import P0

from instride import ConsumerRecord, OffsetAndMetadata, Processor, Retry, current_attempt
from instride._processing.coroutine_workers import LoopWorkers
from instride._processing.engine import Engine, EnginePlan, Order
from instride._processing.event_loop import new_event_loop
from instride._processing.lifespan import AsyncLifespan
from instride._processing.retries import Failures
from instride.errors import HandlerCancelledError, IllegalStateError

Record = ConsumerRecord[Any, Any]
mark: ContextVar[int] = ContextVar("mark")


class Bench:
    """Records of one partition and a handler for one of them at a time; `turn` gives the event loop its turns."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handler: Any, records: int, order: Order = "none", max_batch: int = 0
    ) -> None:
        self.loop = loop
        failures = Failures(retry=Retry(attempts=2, backoff=0.0))
        self.engine = Engine(EnginePlan(order=order, failures=failures, max_batch=max_batch), lambda _: 1)
        desk = desk_of(self.engine)
        self.workers = LoopWorkers(desk, handler, None, 1, loop, None, AsyncLifespan(desk.fail))
        self.engine.submit(keyed(P0, "a" * records))
        self.engine.locate(P0, OffsetAndMetadata(offset=0))
        self.workers.wake()

    def turn(self, until: Callable[[], object] = lambda: False, most: int = 50) -> None:
        for _ in range(most):
            if until():
                return
            self.loop.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def loop() -> Any:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_each_attempt_has_a_context_of_its_own_through_all_its_steps(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[tuple[int, int, int, int]] = []

    async def child() -> int:
        return mark.get()

    async def handler(record: Record) -> None:
        before = mark.get(-1)
        mark.set(record.offset)
        await asyncio.sleep(0)
        childs = await asyncio.create_task(child())
        seen.append((before, mark.get(), childs, current_attempt().number))

    bench = Bench(loop, handler, 3)
    bench.turn(lambda: bench.engine.tally.finished == 3)
    assert seen == [(-1, 0, 0, 1), (-1, 1, 1, 1), (-1, 2, 2, 1)]


def test_a_loop_whose_tasks_are_eager_runs_no_handler_before_it_is_noted(loop: asyncio.AbstractEventLoop) -> None:
    """`asyncio.eager_task_factory` (Python 3.12) ends a handler that waits for nothing inside of `create_task`."""

    async def handler(record: Record) -> None: ...

    def factory(*_: Any, **__: Any) -> Any:
        raise AssertionError("the users' factory is not asked: it may be an eager one")

    async def turns() -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    all_turns = loop.create_task(turns())
    loop.set_task_factory(factory)
    bench = Bench(loop, handler, 3)
    loop.run_until_complete(all_turns)
    loop.set_task_factory(None)
    assert bench.engine.tally.finished == 3


def test_an_attempt_leaves_nothing_for_the_garbage_collector(loop: asyncio.AbstractEventLoop) -> None:
    """Each of its collections stops all threads, for as long as there are objects."""

    async def handler(record: Record) -> None:
        await asyncio.sleep(0)

    bench = Bench(loop, handler, 200)
    bench.turn(lambda: bench.engine.tally.finished == 10)
    gc.collect()
    gc.disable()
    try:
        bench.turn(lambda: bench.engine.tally.finished == 190, most=1_000)
        assert gc.collect() < 90, "less than one object in two records"
    finally:
        gc.enable()
    bench.turn(lambda: bench.engine.tally.finished == 200)


def test_an_error_from_outside_reaches_the_handler_where_it_waits(loop: asyncio.AbstractEventLoop) -> None:
    caught: list[str] = []

    async def handler(record: Record) -> None:
        broken = loop.create_future()
        loop.call_soon(broken.set_exception, OSError("away"))
        try:
            await broken
        except OSError as error:
            caught.append(str(error))
            await asyncio.sleep(0)
            raise

    bench = Bench(loop, handler, 1)
    bench.turn(lambda: bench.engine.failure is not None)
    assert caught == ["away", "away"]
    assert isinstance(bench.engine.failure, OSError)


def test_a_cancellation_is_felt_by_its_own_attempt_only(loop: asyncio.AbstractEventLoop) -> None:
    """Also one that comes when the attempt has ended, and one that the handler keeps to itself."""
    ends: dict[int, asyncio.Future[None]] = {}
    felt: list[int] = []
    servers: list[asyncio.Task[Any] | None] = []

    async def handler(record: Record) -> None:
        servers.append(asyncio.current_task())
        assert servers[-1] is not None
        assert not servers[-1].cancelling()
        ends[record.offset] = loop.create_future()
        try:
            await ends[record.offset]
        except asyncio.CancelledError:
            felt.append(record.offset)

    bench = Bench(loop, handler, 4)
    bench.turn(lambda: 0 in ends)
    (first,) = bench.engine.at_work()
    ends[0].set_result(None)
    bench.turn(lambda: 1 in ends)
    (second,) = bench.engine.at_work()
    bench.workers.cancel([first])
    bench.turn(most=3)
    assert felt == []
    bench.workers.cancel([second])
    bench.turn(lambda: 2 in ends)
    assert felt == [1]
    ends[2].set_result(None)
    bench.turn(lambda: 3 in ends)
    ends[3].set_result(None)
    bench.turn(lambda: bench.engine.tally.finished == 4)
    assert servers[0] is servers[1] is not servers[2] is servers[3], "a task for all, until one was cancelled in it"


def test_what_somebody_else_cancelled_fails_the_attempt_as_any_error_does(loop: asyncio.AbstractEventLoop) -> None:
    """The handler awaits a task of others': nobody has cancelled the handler, and the run goes on."""
    seen: list[str] = []

    async def handler(record: Record) -> None:
        if current_attempt().number == 1:
            theirs = loop.create_future()
            loop.call_soon(theirs.cancel, "its owner has gone")
            await theirs
        seen.append(f"{record.offset}")

    bench = Bench(loop, handler, 2, order="partition")
    errors = list[BaseException | None]()
    ends = bench.engine.end

    def end(job: Any, error: BaseException | None, now: float, chance: float) -> Any:
        errors.append(error)
        return ends(job, error, now, chance)

    bench.engine.end = end  # type: ignore[method-assign]
    bench.turn(lambda: bench.engine.tally.finished == 2)
    assert (seen, bench.engine.failure) == (["0", "1"], None)
    assert isinstance(errors[0], HandlerCancelledError)
    assert isinstance(errors[0].__cause__, asyncio.CancelledError)


def test_a_handler_whose_event_loop_is_closed_has_not_failed(loop: asyncio.AbstractEventLoop) -> None:
    """Of the user's loop: then its tasks are thrown away where they wait, and the run cannot go on."""
    begun: list[int] = []

    async def handler(record: Record) -> None:
        begun.append(record.offset)
        await loop.create_future()

    bench = Bench(loop, handler, 1)
    bench.turn(lambda: begun)
    (server,) = bench.workers._attempts
    coroutine: Any = server.get_coro()
    coroutine.close()
    assert (bench.engine.started, bench.engine.queued, bench.engine.tally.attempts) == (0, 1, 0)
    assert isinstance(bench.engine.failure, IllegalStateError)
    server.cancel()
    with pytest.raises(RuntimeError, match="cannot reuse"):
        loop.run_until_complete(server)


def test_a_batch_that_is_given_up_is_cancelled_once(loop: asyncio.AbstractEventLoop) -> None:
    felt: list[int] = []

    async def handler(records: list[Record]) -> None:
        try:
            await loop.create_future()
        except asyncio.CancelledError:
            felt.append(len(records))

    bench = Bench(loop, handler, 2, max_batch=2)
    bench.turn(lambda: bench.engine.started == 2)
    bench.turn(most=3)
    bench.workers.cancel(bench.engine.submit([], lost=[P0]))
    bench.turn(lambda: felt)
    bench.turn(most=3)
    assert felt == [2]


def test_nothing_is_started_of_a_draining_partition_by_the_end_of_an_attempt(loop: asyncio.AbstractEventLoop) -> None:
    """Rule 16."""
    begun: list[int] = []
    ends = loop.create_future()

    async def handler(record: Record) -> None:
        begun.append(record.offset)
        await ends

    bench = Bench(loop, handler, 3)
    bench.turn(lambda: begun)
    bench.engine.hold([P0])
    ends.set_result(None)
    bench.turn(lambda: not bench.engine.started)
    bench.turn(most=3)
    assert begun == [0]


# -- the loop


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere asyncio's own timers are exact")
def test_timers_of_the_loop_are_exact_and_files_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    real = select.select

    def counted(readable: Any, writable: Any, failed: Any, timeout: float) -> Any:
        if threading.current_thread() is threading.main_thread():  # a thread of an earlier test may wait, too
            waited.append(timeout)
        return real(readable, writable, failed, timeout)

    monkeypatch.setattr(select, "select", counted)
    loop = new_event_loop()
    here, there = socket.socketpair()
    try:
        loop.run_until_complete(asyncio.sleep(0.0005))
        assert all(0.0 < each < 0.0006 for each in waited), "asyncio's own selector would have waited for 0.001"
        here.setblocking(False)
        loop.call_soon(there.send, b"x")
        assert loop.run_until_complete(asyncio.wait_for(loop.sock_recv(here, 1), 60)) == b"x"
    finally:
        here.close()
        there.close()
        loop.close()


@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux's")
def test_timers_of_the_loops_own_thread_are_not_put_off() -> None:
    async def slack() -> str:
        return Path(f"/proc/{threading.get_native_id()}/timerslack_ns").read_text().strip()

    found: list[str] = []

    async def handler(record: Record) -> None:
        found.append(await slack())

    processor = Processor(handler, topics=["t"])
    with processor.running(bootstrap_servers="127.0.0.1:1", group_id="g") as running:
        assert running._loop is not None
        found.append(asyncio.run_coroutine_threadsafe(slack(), running._loop).result(60))
        running.cancel()
    assert found == ["1"]
    assert asyncio.run(slack()) != "1", "a loop of the user's is left as it is"


def test_the_loop_of_a_users_policy_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs(asyncio.SelectorEventLoop):
        pass

    monkeypatch.setattr(asyncio, "new_event_loop", Theirs)
    loop = new_event_loop()
    assert type(loop) is Theirs
    loop.close()


@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux's")
def test_where_there_are_too_many_files_for_select_the_loop_is_asyncios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instride._processing.event_loop._SELECTABLE", 0)
    loop = new_event_loop()
    loop.run_until_complete(asyncio.sleep(0.0001))
    loop.close()
