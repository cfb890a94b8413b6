"""What surrounds the handlers: set-up and tear-down, middleware, output topics; in virtual time, and in threads."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from awaited import AwaitedConnection
from engine_help import desk_of, keyed
from processing_help import P0, refuse_threads, tp

from instride import (
    AsyncDatabaseStore,
    ConsumerRecord,
    DatabaseStore,
    OffsetAndMetadata,
    OutputRecord,
    Processor,
    Retry,
    current_attempt,
)
from instride._processing.engine import Engine, EnginePlan
from instride._processing.health import Health
from instride._processing.lifespan import SyncLifespan
from instride._processing.outputs import error_of
from instride._processing.poll_loop import Verb
from instride._processing.retries import Failures, Step
from instride._processing.running_processor import RunningProcessor, run_with_signals
from instride._processing.thread_workers import ThreadWorkers
from instride.errors import (
    ConfigError,
    ConsumerClosedError,
    DrainTimeoutError,
    ForkedConsumerError,
    IllegalStateError,
    KafkaTimeoutError,
)

PATIENCE = 60.0
Record = ConsumerRecord[Any, Any]
client: ContextVar[str] = ContextVar("client")
NOWHERE: Any = {"bootstrap_servers": "localhost:1", "group_id": "g"}


class Life:
    """What was set up and torn down, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        self.told.append(f"+{name}")
        token = client.set(client.get("") + name)
        yield
        client.reset(token)
        self.told.append(f"-{name}")

    def run(self) -> Any:
        return self.of("run")

    def worker(self) -> Any:
        return self.of("worker")

    @asynccontextmanager
    async def loop(self) -> AsyncIterator[None]:
        with self.of("loop"):
            await asyncio.sleep(5)
            yield
            await asyncio.sleep(5)


def handle(record: Record) -> None: ...


async def handle_async(record: Record) -> None: ...


def plain_middleware(record: Record, following: Callable[[Record], Any]) -> Any:
    return following(record)


@pytest.mark.parametrize(
    ("handler", "options", "error", "told"),
    [
        (handle, {"breaker": OSError}, TypeError, "CircuitBreaker"),
        (handle, {"lifespan": 5}, TypeError, "lifespan"),
        (handle, {"worker_lifespan": "x"}, TypeError, "worker_lifespan"),
        (handle_async, {"worker_lifespan": Life().worker}, ConfigError, "threads"),
        (handle, {"middleware": plain_middleware}, TypeError, "list"),
        (handle, {"middleware": [5]}, TypeError, "functions"),
        (handle_async, {"middleware": [plain_middleware]}, ConfigError, "coroutine function"),
        (handle, {"middleware": [handle_async]}, ConfigError, "plain function"),
    ],
)
def test_wrong_surroundings_are_refused(handler: Any, options: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Processor(handler, topics=["t"], **options)


# -- set-up and tear-down


def test_plain_handlers_see_what_their_set_ups_set() -> None:
    life, seen = Life(), []
    processor = Processor(
        lambda record: seen.append(client.get()), topics=["t"], lifespan=life.run, worker_lifespan=life.worker
    )
    with processor.testing() as kit:
        assert life.told == []
        kit.give("t", b"1")
        kit.run()
        assert life.told == ["+run", "+worker"]
        kit.crash()
        kit.run()
    assert seen == ["runworker"] * 2
    assert life.told == ["+run", "+worker", "-worker", "-run"] * 2
    assert client.get("") == ""


def test_coroutine_handlers_see_what_their_set_up_set_and_it_takes_its_time() -> None:
    life, seen = Life(), []

    async def handler(record: Record) -> None:
        seen.append(client.get())

    with Processor(handler, topics=["t"], lifespan=life.loop).testing() as kit:
        kit.give("t", b"1")
        kit.run()
        assert kit.now == 5
    assert seen == ["loop"]
    assert life.told == ["+loop", "-loop"]


@contextmanager
def _refuses() -> Iterator[None]:
    if NOWHERE:
        raise LookupError("no database")
    yield


@asynccontextmanager
async def _refuses_async() -> AsyncIterator[None]:
    if NOWHERE:
        raise LookupError("no database")
    yield


@asynccontextmanager
async def _waits_for_the_world() -> AsyncIterator[None]:
    await asyncio.get_running_loop().create_future()
    yield


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        (handle, {"lifespan": _refuses}),
        (handle, {"worker_lifespan": _refuses}),
        (handle_async, {"lifespan": _refuses_async}),
    ],
)
def test_a_set_up_that_fails_ends_the_kit(handler: Any, options: Any) -> None:
    with Processor(handler, topics=["t"], **options).testing() as kit, pytest.raises(LookupError):
        kit.run()


def test_a_set_up_that_waits_for_the_world_is_refused_by_the_kit() -> None:
    kit = Processor(handle_async, topics=["t"], lifespan=_waits_for_the_world).testing()
    with pytest.raises(IllegalStateError, match="outside of the kit"), kit:
        kit.run()


@pytest.mark.parametrize(("handler", "lifespan"), [(handle, _refuses), (handle_async, _refuses_async)])
def test_a_set_up_that_fails_ends_the_run_by_its_error(handler: Any, lifespan: Any) -> None:
    running = Processor(handler, topics=["t"], lifespan=lifespan).running(**NOWHERE)
    with pytest.raises(LookupError, match="no database"), running:
        running.wait(PATIENCE)
    health = running.health()
    assert (health.live, type(health.ended)) == (False, LookupError)


class FalsyError(Exception):
    """Of several lines, of which there may be none."""

    def __len__(self) -> int:
        return 0


@asynccontextmanager
async def _is_false_at_set_up() -> AsyncIterator[None]:
    if NOWHERE:
        raise FalsyError
    yield


@asynccontextmanager
async def _is_false_at_tear_down() -> AsyncIterator[None]:
    yield
    raise FalsyError


@asynccontextmanager
async def _is_false_in_the_middle() -> AsyncIterator[None]:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0, task.cancel)
    try:
        yield
    except asyncio.CancelledError:
        raise FalsyError from None


@pytest.mark.parametrize("lifespan", [_is_false_at_set_up, _is_false_in_the_middle])
def test_an_error_of_a_lifespan_that_says_it_is_false_ends_the_run(lifespan: Any) -> None:
    with (
        pytest.raises(FalsyError),
        Processor(handle_async, topics=["t"], lifespan=lifespan).running(**NOWHERE) as running,
    ):
        assert running.wait(PATIENCE)


def test_an_error_of_the_tear_down_that_says_it_is_false_is_raised() -> None:
    with (
        pytest.raises(FalsyError),
        Processor(handle_async, topics=["t"], lifespan=_is_false_at_tear_down).running(**NOWHERE),
    ):
        pass


def test_an_output_is_not_acknowledged_by_an_error_that_says_it_is_false() -> None:
    refused = Future[None]()
    refused.set_exception(FalsyError())
    assert isinstance(error_of(refused), FalsyError)


def test_a_run_is_entered_once() -> None:
    running = Processor(handle, topics=["t"]).running(**NOWHERE)
    with running, pytest.raises(IllegalStateError, match=r"runs once.*processor\.running"), running:
        pass
    with pytest.raises(IllegalStateError, match="runs once"), running:
        pass


async def _entered(running: Any) -> None:
    async with running:
        pass


def test_a_run_of_coroutines_is_entered_once() -> None:
    running = Processor(handle_async, topics=["t"]).running(**NOWHERE)
    asyncio.run(_entered(running))
    with pytest.raises(IllegalStateError, match="runs once"):
        asyncio.run(_entered(running))
    with pytest.raises(IllegalStateError, match="runs once"), running:
        pass


def test_a_run_sets_up_before_it_begins_and_tears_down_when_it_has_ended() -> None:
    life, up = Life(), threading.Event()

    @contextmanager
    def lifespan() -> Iterator[None]:
        with life.of("run"):
            up.set()
            yield

    with Processor(handle, topics=["t"], lifespan=lifespan).running(**NOWHERE):
        assert up.wait(PATIENCE)
    assert life.told == ["+run", "-run"]


@asynccontextmanager
async def _is_cancelled_by_another_at_set_up() -> AsyncIterator[None]:
    theirs = asyncio.get_running_loop().create_future()
    theirs.cancel()
    await theirs
    yield


@asynccontextmanager
async def _is_cancelled_by_another_at_tear_down() -> AsyncIterator[None]:
    yield
    theirs = asyncio.get_running_loop().create_future()
    theirs.cancel()
    await theirs


@pytest.mark.parametrize("lifespan", [_is_cancelled_by_another_at_set_up, _is_cancelled_by_another_at_tear_down])
def test_a_run_that_others_cancelled_ends_by_a_named_error(lifespan: Any) -> None:
    """A TaskGroup takes a bare CancelledError for its own, and goes on as if nothing had happened."""

    async def consume() -> None:
        async with Processor(handle_async, topics=["t"], lifespan=lifespan).running(**NOWHERE) as running:
            running.stop()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(consume())

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(main())
    assert isinstance(raised.value.exceptions[0], IllegalStateError)


def test_a_run_that_is_cancelled_again_and_again_is_awaited_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a scope of anyio's, which cancels in each turn of the loop."""

    async def main() -> None:
        begun, is_torn_down, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            begun.set()
            yield
            is_torn_down.set()
            await may_end.wait()

        running = Processor(handle_async, topics=["t"], lifespan=lifespan).running(**NOWHERE)
        # Each cancel wakes a verb of the consumer: the last commit, say, which may be woken once.
        cancels, cancel = count(), running.cancel
        monkeypatch.setattr(running, "cancel", lambda: (next(cancels), cancel()))

        async def run() -> None:
            async with running:
                await asyncio.Event().wait()

        task = asyncio.create_task(run())
        await begun.wait()
        task.cancel()
        await is_torn_down.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        await asyncio.wait([task])
        assert task.cancelled()
        assert running.wait(0)
        assert next(cancels) == 1

    asyncio.run(main())


@pytest.fixture
def hanging() -> Iterator[SimpleNamespace]:
    """A plain set-up that ends when the test does. began: it was called; left: its tear-down was."""
    began, release, left = threading.Event(), threading.Event(), threading.Event()

    @contextmanager
    def hang() -> Iterator[None]:
        began.set()
        release.wait(PATIENCE)
        yield
        left.set()

    yield SimpleNamespace(lifespan=hang, began=began, release=release, left=left)
    release.set()


def test_a_cancel_waits_for_no_set_up_and_what_it_made_is_torn_down(hanging: SimpleNamespace) -> None:
    running = Processor(handle, topics=["t"], lifespan=hanging.lifespan).running(**NOWHERE)
    with running:
        assert hanging.began.wait(PATIENCE)
        running.stop()
        running.cancel()
        assert running.wait(PATIENCE)
    assert not hanging.left.is_set()
    hanging.release.set()
    assert hanging.left.wait(PATIENCE)
    with pytest.raises(ConsumerClosedError):
        running.consumer.poll(timeout=0)


@pytest.mark.parametrize(("drain_timeout", "told"), [(0.3, r"0\.3 s"), (1.0, "1 s")])
def test_a_stop_waits_for_a_set_up_for_drain_timeout(hanging: SimpleNamespace, drain_timeout: float, told: str) -> None:
    processor = Processor(handle, topics=["t"], lifespan=hanging.lifespan, drain_timeout=drain_timeout)
    with (
        pytest.raises(DrainTimeoutError, match=f"the set-up did not end in {told}"),
        processor.running(**NOWHERE),
    ):
        assert hanging.began.wait(PATIENCE)


def test_a_set_up_that_awaits_is_cancelled_by_a_cancel() -> None:
    began, told = threading.Event(), list[str]()

    @asynccontextmanager
    async def hang() -> AsyncIterator[None]:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cancelled")
        yield

    running = Processor(handle_async, topics=["t"], lifespan=hang).running(**NOWHERE)
    with running:
        assert began.wait(PATIENCE)
        running.cancel()
        assert running.wait(PATIENCE)
    assert told == ["cancelled"]


@asynccontextmanager
async def _exits_at_set_up() -> AsyncIterator[None]:
    if NOWHERE:
        raise SystemExit(3)
    yield


@asynccontextmanager
async def _exits_at_tear_down() -> AsyncIterator[None]:
    yield
    raise SystemExit(3)


@asynccontextmanager
async def _exits_in_a_task_of_its_own() -> AsyncIterator[None]:
    async def give_up() -> None:
        raise SystemExit(3)

    task = asyncio.create_task(give_up())
    yield
    assert task.done()


@asynccontextmanager
async def _exits_when_it_is_cancelled() -> AsyncIterator[None]:
    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise SystemExit(3) from None

    task = asyncio.create_task(stay())
    yield
    assert not task.done()


@pytest.mark.parametrize("lifespan", [_exits_at_set_up, _exits_in_a_task_of_its_own])
def test_a_coroutine_that_exits_ends_the_run_by_that(lifespan: Any) -> None:
    with (
        pytest.raises(SystemExit),
        Processor(handle_async, topics=["t"], lifespan=lifespan).running(**NOWHERE) as running,
    ):
        assert running.wait(PATIENCE)


def test_a_coroutine_that_exits_at_the_tear_down_ends_the_run_by_that() -> None:
    with (
        pytest.raises(SystemExit),
        Processor(handle_async, topics=["t"], lifespan=_exits_at_tear_down).running(**NOWHERE),
    ):
        pass


def test_a_task_that_exits_when_it_is_cancelled_leaves_no_other_task_behind() -> None:
    with Processor(handle_async, topics=["t"], lifespan=_exits_when_it_is_cancelled).running(**NOWHERE):
        pass
    assert "instride-event-loop" not in {thread.name for thread in threading.enumerate()}


def test_a_tear_down_that_fails_is_raised_at_the_end() -> None:
    up = threading.Event()

    @contextmanager
    def lifespan() -> Iterator[None]:
        up.set()
        yield
        raise LookupError("the pool is broken")

    running = Processor(handle, topics=["t"], lifespan=lifespan).running(**NOWHERE)
    with pytest.raises(LookupError, match="the pool is broken"), running:
        assert up.wait(PATIENCE)


def test_what_the_end_of_handlers_raises_keeps_no_lifespan_from_its_tear_down(monkeypatch: pytest.MonkeyPatch) -> None:
    life, up = Life(), threading.Event()

    @contextmanager
    def lifespan() -> Iterator[None]:
        with life.of("run"):
            up.set()
            yield

    def broken(_: ThreadWorkers, patience: float = 0.0) -> None:
        if patience:
            raise LookupError("a handler's thread")

    monkeypatch.setattr(ThreadWorkers, "close", broken)
    with (
        pytest.raises(LookupError, match="a handler's thread"),
        Processor(handle, topics=["t"], lifespan=lifespan).running(**NOWHERE),
    ):
        assert up.wait(PATIENCE)
    assert life.told == ["+run", "-run"]


def hasty(processor: Any) -> Any:
    """What a stop waits for it waits for a moment only."""
    what = processor._definition
    pace = replace(what.pace, close_timeout=0.2, drain_timeout=0.2)
    object.__setattr__(processor, "_definition", replace(what, pace=pace))
    return processor.running(**NOWHERE)


def test_a_tear_down_that_hangs_is_named_and_left_behind() -> None:
    up, release = threading.Event(), threading.Event()

    @contextmanager
    def lifespan() -> Iterator[None]:
        up.set()
        yield
        release.wait(PATIENCE)

    with pytest.raises(KafkaTimeoutError, match="the tear-down of its lifespan"):  # noqa: SIM117
        with hasty(Processor(handle, topics=["t"], lifespan=lifespan)):
            assert up.wait(PATIENCE)
    release.set()


@asynccontextmanager
async def _of_nothing() -> AsyncIterator[None]:
    yield


def test_an_event_loop_that_a_handler_blocks_is_named_where_it_keeps_a_tear_down() -> None:
    release = threading.Event()
    with pytest.raises(KafkaTimeoutError, match="block the event loop"):  # noqa: PT012, SIM117
        with hasty(Processor(handle_async, topics=["t"], lifespan=_of_nothing)) as running:
            assert running._is_set_up.wait(PATIENCE)
            running._loop.call_soon_threadsafe(release.wait, PATIENCE)
    release.set()


def test_a_cancel_of_a_blocked_event_loop_without_a_tear_down_is_no_failure() -> None:
    release = threading.Event()
    with hasty(Processor(handle_async, topics=["t"])) as running:
        assert running._is_set_up.wait(PATIENCE)
        running._loop.call_soon_threadsafe(release.wait, PATIENCE)
        running.cancel()
        assert running.wait(PATIENCE / 2)
    release.set()


@pytest.mark.parametrize("is_async", [False, True])
def test_neither_a_poll_nor_a_stop_waits_for_a_query_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_async: bool
) -> None:
    """A database that does not answer where a partition begins."""
    asked, polled, release, is_prepared = (threading.Event() for _ in range(4))
    call, cancelled = RunningProcessor._call, threading.Event()

    def connect() -> sqlite3.Connection:
        if is_prepared.is_set():
            asked.set()
            release.wait(PATIENCE)
        return sqlite3.connect(tmp_path / "x.db")

    async def connect_async() -> AwaitedConnection:
        if is_prepared.is_set():
            asked.set()
            try:
                await asyncio.wait_for(asyncio.Event().wait(), PATIENCE)
            except asyncio.CancelledError:
                cancelled.set()
                raise
        return AwaitedConnection(connect())

    def call_of_its_group(running: RunningProcessor, verb: Verb) -> Any:
        if verb.name == "poll" and asked.is_set():
            polled.set()
        elif verb.name == "poll" and not is_prepared.is_set():
            is_prepared.set()
            running._rounds.on_partitions_assigned([P0])
        return {} if verb.name in ("committed", "topic_ids") else call(running, verb)

    monkeypatch.setattr(RunningProcessor, "_call", call_of_its_group)
    if is_async:
        processor = Processor(handle_async, topics=["t"], store=AsyncDatabaseStore(connect_async, paramstyle="qmark"))
    else:
        processor = Processor(handle, topics=["t"], store=DatabaseStore(connect))
    with processor.running(**NOWHERE) as running:
        try:
            assert polled.wait(PATIENCE / 2)
            running.stop()
            assert running.wait(PATIENCE / 2)
        finally:
            release.set()
    assert cancelled.is_set() == is_async


def test_a_lifespan_of_the_users_loop_is_one_task_and_its_early_end_ends_the_run() -> None:
    async def main() -> None:
        tasks: list[Any] = []

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            tasks.append(asyncio.current_task())
            yield
            tasks.append(asyncio.current_task())

        async with Processor(handle_async, topics=["t"], lifespan=lifespan).running(**NOWHERE):
            while not tasks:
                await asyncio.sleep(0)
        assert len(tasks) == 2
        assert tasks[0] is tasks[1]

        tasks.clear()
        running = Processor(handle_async, topics=["t"], lifespan=lifespan).running(**NOWHERE)
        with pytest.raises(IllegalStateError, match="the lifespan ended"):  # noqa: PT012 - it is raised by the exit
            async with running:
                while not tasks:
                    await asyncio.sleep(0)
                tasks[0].cancel()
                await asyncio.to_thread(running.wait, PATIENCE)

    asyncio.run(main())


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's")
def test_a_signal_that_another_thread_is_given_stops_a_run() -> None:
    """The main thread sleeps on: also after a signal that came just before it fell asleep."""
    up, before = threading.Event(), signal.getsignal(signal.SIGTERM)

    @contextmanager
    def lifespan() -> Iterator[None]:
        up.set()
        yield

    def send() -> None:
        assert up.wait(PATIENCE)
        for _ in range(3):  # so that the main thread waits by then
            threading.Event().wait(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    Processor(handle, topics=["t"], lifespan=lifespan).run(**NOWHERE)
    sender.join()
    assert signal.getsignal(signal.SIGTERM) is before


class Signalled:
    """A run that is sent these signals while it waits, one after the other; what each did."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.numbers = numbers
        self.heard: list[str] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> None:
        for number in self.numbers:
            signal.raise_signal(number)

    def stop(self) -> None:
        self.heard.append("stop")

    def cancel(self) -> None:
        self.heard.append("cancel")


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's")
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_and_the_second_cancels(first: signal.Signals, second: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    running: Any = Signalled(first, second)
    run_with_signals(running)
    assert running.heard == ["stop", "cancel"]
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's")
def test_where_only_a_supervisor_may_cancel_each_signal_stops() -> None:
    running: Any = Signalled(signal.SIGTERM, signal.SIGTERM, signal.SIGINT)
    run_with_signals(running, second_cancels=False)
    assert running.heard == ["stop"] * 3


class Forks(Signalled):
    """A run whose handler forks; its child is sent the signal. status: the child's."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number)
        self.status = 0

    def wait(self) -> None:
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # kills it, if it goes on
            try:
                os.write(writes, b".")
                while True:
                    threading.Event().wait(0.01)
            except KeyboardInterrupt:
                os._exit(42)
        # A signal that comes while it is forked Python forgets.
        os.read(reads, 1)
        os.close(reads)
        os.close(writes)
        os.kill(child, self.numbers[0])
        self.status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 42)])
def test_a_child_that_a_handler_forks_hears_a_signal_as_without_a_run(number: signal.Signals, status: int) -> None:
    """multiprocessing ends its workers by SIGTERM, and waits for their end."""
    running: Any = Forks(number)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run_with_signals(running)
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    assert (running.status, running.heard) == (status, [])


def leaves(running: RunningProcessor, error: BaseException | None) -> None:
    running.__exit__(None, error, None)


def leaves_async(running: RunningProcessor, error: BaseException | None) -> None:
    with suppress(StopIteration):  # it has returned
        running.__aexit__(None, error, None).send(None)


def waits(running: RunningProcessor, _: BaseException | None) -> None:
    running.wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("ends", "error", "told"),
    [
        (leaves, None, b"refused"),
        (leaves, OSError(), b"left"),
        (leaves_async, None, b"refused"),
        (leaves_async, OSError(), b"left"),
        (waits, None, b"refused"),
    ],
)
def test_a_child_that_the_body_forks_waits_for_no_end(
    ends: Callable[[RunningProcessor, BaseException | None], None], error: BaseException | None, told: bytes
) -> None:
    """No thread of the run is there, so it would wait for ever. An error by which the child ends is its own."""
    reads, writes = os.pipe()
    with Processor(handle, topics=["t"]).running(**NOWHERE) as running:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # kills it, if it waits
            try:
                ends(running, error)
                os.write(writes, b"left")
            except ForkedConsumerError:
                os.write(writes, b"refused")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writes)
        assert os.read(reads, 10) == told
        os.close(reads)
        assert not running.wait(0.0)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's")
def test_a_signals_handler_that_python_does_not_know_is_the_systems_after_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program in C that embeds Python may have set one."""
    numbers, set_handler = (signal.SIGTERM, signal.SIGINT), signal.signal
    before = [signal.getsignal(each) for each in numbers]
    running: Any = Signalled(signal.SIGTERM)

    def unknown(_: object) -> None: ...

    with monkeypatch.context() as patched:
        patched.setattr(signal, "getsignal", lambda _: None)
        patched.setattr(signal, "signal", lambda *arguments: unknown(set_handler(*arguments)))
        run_with_signals(running)
    try:
        assert running.heard == ["stop"]
        assert [signal.getsignal(each) for each in numbers] == [signal.SIG_DFL] * 2
    finally:
        for number, handler in zip(numbers, before, strict=True):
            set_handler(number, handler)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's")
def test_a_context_handles_no_signal() -> None:
    async def main() -> None:
        before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
        async with Processor(handle, topics=["t"]).running(**NOWHERE):
            assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before

    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    with Processor(handle, topics=["t"]).running(**NOWHERE):
        assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before
    asyncio.run(main())


# -- a context that nobody leaves


def enter(processor: Any, form: str) -> Any:
    """Returns the run, once it has been entered and left."""
    running = processor.running(**NOWHERE)
    if form == "async with":
        asyncio.run(_entered(running))
    else:
        with running:
            pass
    return running


def has_ended(running: Any, before: set[threading.Thread]) -> None:
    """It ends by itself, and so do its threads."""
    assert running.wait(PATIENCE)
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread.name
    with pytest.raises(ConsumerClosedError):
        running.consumer.poll(timeout=0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each run that is entered."""
    found, enter_it = list[Any](), RunningProcessor._enter

    def noted(running: RunningProcessor) -> None:
        found.append(running)
        enter_it(running)

    monkeypatch.setattr(RunningProcessor, "_enter", noted)
    return found


ENTERED = [
    ("with", handle, ("set-up", "processor")),
    ("with", handle_async, ("event-loop", "set-up", "processor")),
    ("async with", handle_async, ("set-up", "processor")),
]
"""The form, its handler, and the threads that it starts, in this order."""


@pytest.mark.parametrize(
    ("form", "handler", "left"),
    [(form, handler, left) for form, handler, all_of in ENTERED for left in range(len(all_of))],
)
def test_a_run_that_the_system_gives_too_few_threads_leaves_nothing_that_runs(
    made: list[Any], threads_left: list[int], form: str, handler: Any, left: int
) -> None:
    before, life = set(threading.enumerate()), Life()
    threads_left[0] = left
    with pytest.raises(RuntimeError, match="can't start new thread"):
        enter(Processor(handler, topics=["t"], lifespan=life.run if handler is handle else life.loop), form)
    has_ended(made[0], before)
    assert life.told == []


@pytest.mark.parametrize(
    ("form", "handler", "name"), [(form, handler, name) for form, handler, all_of in ENTERED for name in all_of]
)
def test_ctrl_c_while_a_run_is_entered_leaves_nothing_that_runs(
    made: list[Any], monkeypatch: pytest.MonkeyPatch, form: str, handler: Any, name: str
) -> None:
    """The main thread waits in `Thread.start` until the new thread runs."""
    before, start = set(threading.enumerate()), threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith(f"instride-{name}"):
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        enter(Processor(handler, topics=["t"]), form)
    has_ended(made[0], before)


def test_ctrl_c_while_a_run_is_left_leaves_nothing_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Acknowledging:
        def __init__(self, _: Any) -> None: ...
        def produce(self, *_: Any, **__: Any) -> None: ...
        def poll(self, _: float) -> None: ...
        def purge(self) -> None: ...

        def __len__(self) -> int:
            return 0

    def interrupted(_: float | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("confluent_kafka.Producer", Acknowledging)
    before = set(threading.enumerate())
    running: Any = Processor(handle_async, topics=["t"], output="o").running(**NOWHERE)
    with pytest.raises(KeyboardInterrupt), running:  # noqa: PT012 - it is raised by the exit
        running._produce(OutputRecord(value=b"v", topic="o"))
        monkeypatch.setattr(running, "_wait", interrupted)
    monkeypatch.undo()
    has_ended(running, before)


@pytest.mark.parametrize("raises", ["_end", "_give_up_set_up"])
def test_whatever_an_end_raises_its_threads_end(monkeypatch: pytest.MonkeyPatch, raises: str) -> None:
    """Whoever waits for it may have an event loop that is closed, say."""
    before = set(threading.enumerate())
    running: Any = Processor(handle_async, topics=["t"]).running(**NOWHERE)
    do = getattr(running, raises)

    def failing(*arguments: Any) -> None:
        do(*arguments)
        raise LookupError(raises)

    def interrupted(_: float | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, raises, failing)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with monkeypatch.context() as leaving, pytest.raises((KeyboardInterrupt, LookupError)), running:  # noqa: PT012
        assert running._is_set_up.wait(PATIENCE)
        leaving.setattr(running, "_wait", interrupted)
    has_ended(running, before)


# -- threads, by hand


class Bench:
    """`ThreadWorkers` with an engine and no consumer: records of P0, with two threads at most."""

    def __init__(
        self,
        handler: Any,
        *,
        output: str | None = None,
        produce: Any = None,
        around: Any = None,
        records: int = 4,
        timeout: float | None = None,
        after: Any = "stop",
    ) -> None:
        self.now = 0.0
        failures = Failures(retry=Retry(attempts=2, backoff=0.0), after=after, has_dead_letters=after == "dead-letter")
        self.engine = Engine(EnginePlan(order="none", failures=failures), lambda _: 1)
        self.lock = threading.RLock()
        desk = desk_of(self.engine, self.lock, clock=lambda: self.now, output=output, dead_letters="dlq")
        self.workers = ThreadWorkers(desk, handler, produce, 2, SyncLifespan(), around, timeout)
        self._ended = threading.Condition(self.lock)
        end = self.engine.end
        with self.lock:
            self.engine.submit(keyed(P0, "a" * records))
            self.engine.locate(P0, OffsetAndMetadata(offset=0))

        def told(*arguments: Any) -> Any:
            verdict = end(*arguments)
            self._ended.notify_all()
            return verdict

        self.engine.end = told  # type: ignore[method-assign, assignment]
        self.workers.wake()

    def until(self, done: Callable[[], object]) -> None:
        with self._ended:
            assert self._ended.wait_for(done, PATIENCE)

    def committed(self) -> int:
        with self.lock:
            return self.engine.committable()[P0].offset


def test_each_thread_has_its_set_up_and_ends_before_the_run_does() -> None:
    life, both = Life(), threading.Barrier(2, timeout=PATIENCE)
    bench = Bench(lambda record: both.wait(), around=life.worker)
    bench.until(lambda: bench.engine.tally.finished == 4)
    bench.workers.close(PATIENCE)
    assert sorted(life.told) == ["+worker", "+worker", "-worker", "-worker"]


def test_what_a_handler_sets_the_next_one_in_its_thread_does_not_see() -> None:
    """Four records in two threads: of two that meet in one the second would see it."""
    life, seen = Life(), list[str]()

    def handler(record: Record) -> None:
        seen.append(client.get())
        client.set("a customer's")

    bench = Bench(handler, around=life.worker)
    bench.until(lambda: bench.engine.tally.finished == 4)
    bench.workers.close(PATIENCE)
    assert seen == ["worker"] * 4


def test_a_thread_whose_set_up_fails_ends_the_run_and_starts_nothing() -> None:
    bench = Bench(handle, around=_refuses)
    bench.workers.close(PATIENCE)
    assert isinstance(bench.engine.failure, LookupError)
    assert bench.engine.tally.attempts == 0


def test_a_close_waits_for_no_handler_that_is_stuck() -> None:
    stuck, go = threading.Event(), threading.Event()

    def handler(record: Record) -> None:
        if record.offset == 0:
            stuck.set()
            go.wait(PATIENCE)

    bench = Bench(handler)
    assert stuck.wait(PATIENCE)
    bench.until(lambda: bench.engine.tally.finished == 3)
    bench.workers.close(PATIENCE)
    assert bench.engine.started == 1
    go.set()
    bench.until(lambda: bench.engine.tally.finished == 4)


@pytest.fixture
def threads_left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return refuse_threads(monkeypatch)


def test_where_the_system_makes_no_more_threads_those_that_there_are_go_on(
    threads_left: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    handled: set[str] = set()
    threads_left[0] = 1
    bench = Bench(lambda record: handled.add(threading.current_thread().name))
    bench.workers.wake()
    bench.until(lambda: bench.engine.tally.finished == 4)
    assert (handled, bench.engine.failure) == ({"instride-handler-0"}, None)
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told == ["the system makes no thread for another handler: 1 of 2 go on (can't start new thread)"], "once"
    bench.workers.close(PATIENCE)


def test_where_the_system_makes_no_thread_at_all_the_run_ends_by_that(threads_left: list[int]) -> None:
    bench = Bench(handle)
    assert isinstance(bench.engine.failure, RuntimeError)
    assert (bench.engine.started, threads_left) == (0, [0])
    bench.workers.close(PATIENCE)


def test_an_attempt_out_of_time_fails_and_another_thread_takes_its_place() -> None:
    both, go = threading.Barrier(3, timeout=PATIENCE), threading.Event()
    cancelled: list[bool] = []

    def handler(record: Record) -> None:
        if record.offset < 2 and current_attempt().number == 1:
            cancelled.append(current_attempt().cancelled)
            both.wait()
            go.wait(PATIENCE)
            cancelled.append(current_attempt().cancelled)
            if record.offset == 1:
                raise LookupError

    bench = Bench(handler, timeout=5.0)
    errors: list[BaseException | None] = []
    end = bench.engine.end

    def noted(job: Any, error: BaseException | None, *rest: Any) -> Any:
        errors.append(error)
        return end(job, error, *rest)

    bench.engine.end = noted  # type: ignore[method-assign, assignment]
    both.wait()
    assert bench.engine.tally.finished == 0, "both threads are in the two that hang"
    bench.now = 5.0
    bench.workers.wake()
    bench.until(lambda: bench.engine.tally.finished == 2)
    go.set()
    bench.until(lambda: bench.engine.tally.finished == 4)
    bench.workers.close(PATIENCE)
    late = [error for error in errors if error is not None]
    assert [type(error) for error in late] == [TimeoutError, TimeoutError]
    assert {type(error.__cause__) for error in late} == {LookupError, type(None)}
    assert cancelled == [False, False, True, True]
    assert bench.engine.tally.retried == 2
    assert len(bench.workers._threads) <= 2, "those that are back are as many as before"


def test_threads_are_left_however_many_attempts_are_out_of_time() -> None:
    """Four at once, where two threads are usual: each of the two that stand in for late ones is late itself."""
    both, go = threading.Barrier(3, timeout=PATIENCE), threading.Event()

    def handler(record: Record) -> None:
        if record.offset < 4 and current_attempt().number == 1:
            both.wait()
            go.wait(PATIENCE)

    bench = Bench(handler, timeout=5.0, records=8)
    for now in (5.0, 10.0):
        both.wait()
        bench.now = now
        bench.workers.wake()
    go.set()
    bench.until(lambda: bench.engine.tally.finished == 8)
    bench.workers.close(PATIENCE)


# -- middleware


def test_middleware_surrounds_each_call_the_first_outermost() -> None:
    told: list[str] = []

    def named(name: str) -> Any:
        def middleware(record: Record, following: Callable[[Record], Any]) -> Any:
            told.append(f"{name}({record.value.decode()}")
            try:
                return following(record)
            finally:
                told.append(f"{name})")

        return middleware

    def handler(record: Record) -> OutputRecord:
        told.append("handler")
        if record.value == b"bad":
            raise ValueError("bad")
        return OutputRecord(value=b"out")

    processor = Processor(handler, topics=["t"], middleware=[named("a"), named("b")], on_failure="skip", output="o")
    assert repr(processor).startswith("Processor(test_middleware")
    with processor.testing() as kit:
        kit.give("t", b"1")
        kit.give("t", b"bad")
        kit.run()
        assert told == ["a(1", "b(1", "handler", "b)", "a)", "a(bad", "b(bad", "handler", "b)", "a)"]
        assert [each.value for each in kit.outputs] == [b"out"]
        assert kit.tally.skipped == 1


def test_middleware_of_coroutines_awaits_what_comes_next() -> None:
    seen: list[str] = []

    async def traced(records: list[Record], following: Callable[[list[Record]], Any]) -> Any:
        client.set("trace")
        return await following(records)

    async def handler(records: list[Record]) -> None:
        seen.append(client.get())

    with Processor(handler, topics=["t"], max_batch=2, max_wait=0.0, middleware=[traced]).testing() as kit:
        kit.give("t", b"1")
        kit.run()
    assert seen == ["trace"]


# -- output topics


def test_what_a_handler_returns_goes_to_the_output_topic_before_the_offset_moves() -> None:
    def split(record: Record) -> list[OutputRecord] | OutputRecord | None:
        if record.value == b"none":
            return None
        if record.value == b"one":
            return OutputRecord(value=b"1", key=record.key, headers=(("h", b"x"),))
        return [OutputRecord(value=b"1", topic="other"), OutputRecord(value=b"2")]

    with Processor(split, topics=["t"], output="o").testing() as kit:
        for value in (b"none", b"one", b"two"):
            kit.give("t", value, key=b"k")
        kit.advance(2)
        assert [(each.topic, each.key, each.value) for each in kit.outputs] == [
            ("o", b"k", b"1"),
            ("other", None, b"1"),
            ("o", None, b"2"),
        ]
        assert kit.committed == {tp(0): 3}


@pytest.mark.parametrize("form", ["plain", "coroutine"])
@pytest.mark.parametrize("returned", ["text", [b"1"], 5, {"value": b"1"}])
def test_what_is_no_output_fails_the_record(form: str, returned: Any) -> None:
    def plain(record: Record) -> Any:
        return returned

    async def coroutine(record: Record) -> Any:
        return returned

    processor = Processor(plain if form == "plain" else coroutine, topics=["t"], output="o", dead_letters="dlq")
    with processor.testing() as kit:
        kit.give("t", b"1")
        kit.run()
        assert [type(each.error) for each in kit.dead_letters] == [TypeError]
        assert kit.outputs == []


def test_coroutines_produce_and_wait_for_the_acknowledgement() -> None:
    async def handler(records: list[Record]) -> list[OutputRecord]:
        return [OutputRecord(value=each.value) for each in records]

    with Processor(handler, topics=["t"], max_batch=3, max_wait=0.0, output="o").testing() as kit:
        for number in range(3):
            kit.give("t", b"%d" % number)
        kit.run()
        assert [each.value for each in kit.outputs] == [b"0", b"1", b"2"]


def test_an_attempt_ends_when_its_outputs_are_acknowledged_and_fails_with_them() -> None:
    requested: list[tuple[bytes, Future[None]]] = []
    news = threading.Condition()

    def produce(output: OutputRecord) -> Future[None]:
        assert output.value is not None
        future: Future[None] = Future()
        with news:
            requested.append((output.value, future))
            news.notify_all()
        return future

    def wait(count: int) -> None:
        with news:
            assert news.wait_for(lambda: len(requested) == count, PATIENCE)

    bench = Bench(
        lambda record: [OutputRecord(value=b"x"), OutputRecord(value=b"y")], output="o", produce=produce, records=1
    )
    wait(2)
    requested[0][1].set_result(None)
    assert bench.engine.started == 1, "the second is not acknowledged"
    requested[1][1].set_exception(ConnectionError("no leader"))
    wait(4)  # the handler was called again
    assert bench.engine.tally.retried == 1
    for _, future in requested[2:]:
        future.set_result(None)
    bench.until(lambda: bench.engine.tally.finished == 1)
    assert bench.committed() == 1
    bench.workers.close(PATIENCE)


def test_an_awaitable_of_a_plain_handler_is_refused() -> None:
    async def produce(output: OutputRecord) -> None: ...

    requested = []

    def mistaken(output: OutputRecord) -> Any:
        requested.append(produce(output))
        return requested[-1]

    bench = Bench(lambda record: OutputRecord(value=b"x"), output="o", produce=mistaken, records=1)
    bench.until(lambda: bench.engine.failure is not None)
    assert isinstance(bench.engine.failure, ConfigError)
    for each in requested:
        each.close()
    bench.workers.close(PATIENCE)


def test_of_what_was_given_up_nothing_is_produced() -> None:
    begun, go, produced = threading.Event(), threading.Event(), list[OutputRecord]()

    def handler(record: Record) -> OutputRecord:
        begun.set()
        go.wait(PATIENCE)
        return OutputRecord(value=b"late")

    bench = Bench(handler, output="o", produce=produced.append, records=1)
    assert begun.wait(PATIENCE)
    with bench.lock:
        bench.engine.give_up()
    go.set()
    bench.workers.close()
    for thread in bench.workers._threads:
        thread.join(PATIENCE)
    assert produced == []


def test_of_what_was_given_up_no_dead_letter_is_written() -> None:
    """It waited for a thread meanwhile. Its next owner handles it again, and writes its letter."""
    go, produced = threading.Event(), list[Any]()

    def handler(record: Record) -> None:
        go.wait(PATIENCE)
        raise ValueError("bad")

    bench = Bench(handler, produce=produced.append, records=1, after="dead-letter")
    end = bench.engine.end

    def is_lost_then(*arguments: Any) -> Any:
        verdict = end(*arguments)
        if verdict is not None and verdict.step is Step.DEAD_LETTER:
            assert [task.offset for task in bench.engine.give_up()] == [0]
        return verdict

    bench.engine.end = is_lost_then  # type: ignore[method-assign, assignment]
    go.set()
    bench.until(lambda: bench.engine.tally.abandoned == 1)
    bench.workers.close()
    for thread in bench.workers._threads:
        thread.join(PATIENCE)
    assert (produced, bench.engine.failure) == ([], None)


def test_of_what_is_out_of_time_nothing_is_produced() -> None:
    begun, go, produced = threading.Barrier(2, timeout=PATIENCE), threading.Event(), list[bytes | None]()

    def handler(record: Record) -> OutputRecord:
        number = current_attempt().number
        if number == 1:
            begun.wait()
            go.wait(PATIENCE)
        return OutputRecord(value=b"%d" % number)

    def produce(output: OutputRecord) -> None:
        produced.append(output.value)

    bench = Bench(handler, output="o", produce=produce, records=1, timeout=5.0)
    begun.wait()
    bench.now = 5.0
    bench.workers.wake()
    go.set()
    bench.until(lambda: bench.engine.tally.finished == 1)
    bench.workers.close(PATIENCE)
    assert produced == [b"2"]


def test_what_is_in_time_stays_so_while_its_outputs_are_acknowledged() -> None:
    """They are in the topic by then: a second attempt would write them twice."""
    requested, acknowledged, is_asked = list[bytes | None](), Future[None](), threading.Event()

    def produce(output: OutputRecord) -> Future[None]:
        requested.append(output.value)
        is_asked.set()
        return acknowledged

    bench = Bench(lambda record: OutputRecord(value=b"x"), output="o", produce=produce, records=1, timeout=5.0)
    assert is_asked.wait(PATIENCE)
    bench.now = 5.0
    bench.workers.wake()
    acknowledged.set_result(None)
    bench.until(lambda: bench.engine.started == 0)
    bench.workers.close(PATIENCE)
    assert (bench.engine.tally.finished, requested) == (1, [b"x"])


def test_what_is_in_time_stays_so_while_its_transaction_is_committed(tmp_path: Path) -> None:
    commits, go = threading.Event(), threading.Event()

    class Slow(sqlite3.Connection):
        def commit(self) -> None:
            if not go.is_set() and self.execute("SELECT count(*) FROM bills").fetchone() == (1,):
                commits.set()
                assert go.wait(PATIENCE)
            super().commit()

    def handle(record: Record) -> None:
        store.connection.execute("INSERT INTO bills VALUES (?)", (current_attempt().number,))

    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "x.db", factory=Slow))
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE bills (attempt INTEGER)")
        store.database.prepare()
        transactions = store.database.transactions(handle, "g")
        bench = Bench(transactions, around=store.database.thread, records=1, timeout=5.0)
        assert commits.wait(PATIENCE)
        bench.now = 5.0
        bench.workers.wake()
        go.set()
        bench.until(lambda: bench.engine.started == 0)
        bench.workers.close(PATIENCE)
        assert bench.engine.tally.attempts == 1
        assert connection.execute("SELECT attempt FROM bills").fetchall() == [(1,)]


# -- the page of containers


@pytest.mark.skipif(not importlib.util.find_spec("fastapi"), reason="needs fastapi")
def test_the_probes_of_docs_containers_md(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand; the processor's health is told here."""
    health = Health(ready=True, live=True, stuck=(), outage=None, ended=None)
    entered: list[dict[str, Any]] = []

    class Stub:
        def health(self) -> Health:
            return health

        @asynccontextmanager
        async def running(self, **settings: Any) -> AsyncIterator[Stub]:
            entered.append(settings)
            yield self

    page = (Path(__file__).parents[2] / "docs" / "containers.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "billing", SimpleNamespace(billing=Stub()))
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], names)

    async def story() -> None:
        nonlocal health
        async with names["lifespan"](names["app"]):
            response = SimpleNamespace(status_code=0)
            assert names["live"](response) == {"ready": True, "live": True, "stalled": False}
            health = replace(health, live=False)
            names["live"](response)
            assert response.status_code == 503

    asyncio.run(story())
    assert [each["group_id"] for each in entered] == ["billing"]
