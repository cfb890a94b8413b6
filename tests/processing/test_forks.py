"""A handler that forks: in the child, which is the copy of its thread alone, nothing goes on when the handler ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from awaited import awaited_store
from engine_help import Bench, desk_of, keyed
from processing_help import P0

from instride import ConsumerRecord, DatabaseStore, PartitionExecutor, Processor
from instride._processing.coroutine_workers import LoopWorkers
from instride._processing.lifespan import AsyncLifespan, SyncLifespan
from instride._processing.thread_workers import ThreadWorkers

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


def returns() -> None: ...


def exits() -> None:
    sys.exit(3)


def exits_well() -> None:
    sys.exit()


def exits_by_text() -> None:
    sys.exit("by a text")


def raises() -> None:
    raise OSError("in the child")


def closes_its_output() -> None:
    sys.stdout.close()


def raises_unheard() -> None:
    sys.stderr.close()
    raise OSError("in the child")


class Interrupted:
    """Ctrl-C comes while it is flushed."""

    def flush(self) -> None:
        raise KeyboardInterrupt


def is_interrupted() -> None:
    sys.stdout = Interrupted()


ENDS = [
    (returns, 0),
    (exits, 3),
    (exits_well, 0),
    (exits_by_text, 1),
    (raises, 1),
    (closes_its_output, 0),
    (raises_unheard, 1),
    (is_interrupted, 0),
]
Around = Literal["nothing", "middleware", "store"]
AROUND: list[Around] = ["nothing", "middleware", "store"]
PARENT = os.getpid()


def ends_a_child_by(status: int) -> None:
    """Whoever calls this is to be called in the parent only."""
    if os.getpid() != PARENT:
        os._exit(status)


class Told(sqlite3.Connection):
    """A child that goes on with the transaction ends by 98."""

    def commit(self) -> None:
        ends_a_child_by(98)
        super().commit()

    def rollback(self) -> None:
        ends_a_child_by(98)
        super().rollback()


def middleware(record: Any, following: Callable[[Any], Any]) -> Any:
    try:
        return following(record)
    finally:
        ends_a_child_by(98)


async def middleware_async(record: Any, following: Callable[[Any], Any]) -> Any:
    try:
        return await following(record)
    finally:
        ends_a_child_by(98)


class Forks:
    """A handler: of its first call a child ends in this way; the second must be called in this process only."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end
        self.status = -1
        self.is_handled = False
        self.done = threading.Event()

    def __call__(self, record: Any) -> Any:
        ends_a_child_by(99)
        if record.offset == 1:
            self.is_handled = True
        elif self.is_child():
            self.end()

    def is_child(self) -> bool:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # kills it, if it goes on
            return True
        self.status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.done.set()
        return False


class ForksAwaited(Forks):
    async def __call__(self, record: Any) -> None:
        super().__call__(record)


class ChildAwaits(Forks):
    async def __call__(self, record: Any) -> None:
        ends_a_child_by(99)
        self.is_handled = record.offset == 1
        # Before the fork: in the child asyncio itself knows of no event loop.
        never = asyncio.get_running_loop().create_future()
        if record.offset == 0 and self.is_child():
            await never


def defined(handler: Forks, around: Around, folder: Path) -> Any:
    """How a `Processor` calls it."""

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(folder / "bills.db", factory=Told, check_same_thread=False)

    is_async = isinstance(handler, ForksAwaited | ChildAwaits)
    options: dict[str, Any] = {"order": "partition"}
    if around == "middleware":
        options["middleware"] = [middleware_async if is_async else middleware]
    if around == "store":
        DatabaseStore(connect).database.prepare()
        options["store"] = awaited_store(connect) if is_async else DatabaseStore(connect)
    return Processor(handler, topics=["t"], **options)._definition


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(("end", "status"), ENDS)
def test_a_child_of_a_processors_handler_ends_with_it(
    end: Callable[[], None], status: int, around: Around, tmp_path: Path
) -> None:
    found, handler = Bench(order="partition"), Forks(end)
    found.submit(keyed(P0, "aa"))
    what = defined(handler, around, tmp_path)
    workers = ThreadWorkers(
        desk_of(found.engine), what.bound("g").handler, None, 1, SyncLifespan(), what.worker_lifespan
    )
    workers.wake()
    workers.close(60.0)
    for thread in workers._threads:
        thread.join(60.0)
    assert (handler.status, handler.is_handled) == (status, True)


def run_awaited(handler: Forks, around: Around, folder: Path, concurrency: int = 1) -> None:
    """Until both records have ended, on an event loop of this thread."""
    found = Bench(order="partition" if concurrency == 1 else "none")
    found.submit(keyed(P0, "aa"))
    loop = asyncio.new_event_loop()
    try:
        desk = desk_of(found.engine)
        bound = defined(handler, around, folder).bound("g").handler
        LoopWorkers(desk, bound, None, concurrency, loop, None, AsyncLifespan(desk.fail)).wake()
        while found.engine.tally.finished < 2 and found.engine.failure is None:
            loop.run_until_complete(asyncio.sleep(0))
            ends_a_child_by(97)
    finally:
        ends_a_child_by(97)
        loop.close()


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(("end", "status"), ENDS)
def test_a_child_of_a_coroutine_handler_ends_with_it(
    end: Callable[[], None], status: int, around: Around, tmp_path: Path
) -> None:
    handler = ForksAwaited(end)
    run_awaited(handler, around, tmp_path)
    assert (handler.status, handler.is_handled) == (status, True)


def test_a_child_of_a_coroutine_handler_that_awaits_ends_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = ChildAwaits(returns)
    run_awaited(handler, "nothing", tmp_path, concurrency=2)
    assert handler.status == 1
    assert "a child that a handler forked awaits something" in capfd.readouterr().err


class MiddlewareForks(Forks):
    """A middleware."""

    def __call__(self, record: Any, following: Callable[[Any], Any] = lambda _: None) -> Any:
        if record.offset == 0 and self.is_child():
            return None
        return following(record)


def test_a_child_of_a_middleware_ends_with_it() -> None:
    found, forks, handled = Bench(order="partition"), MiddlewareForks(returns), list[int]()
    found.submit(keyed(P0, "aa"))

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        ends_a_child_by(99)
        handled.append(record.offset)

    bound = Processor(handle, topics=["t"], middleware=[middleware, forks])._definition.bound("g").handler
    workers = ThreadWorkers(desk_of(found.engine), bound, None, 1, SyncLifespan())
    workers.wake()
    workers.close(60.0)
    for thread in workers._threads:
        thread.join(60.0)
    assert (forks.status, handled) == (0, [0, 1])


@pytest.mark.parametrize(("end", "status"), ENDS)
def test_a_child_of_an_executors_handler_ends_with_it(end: Callable[[], None], status: int) -> None:
    handler = Forks(end)
    with PartitionExecutor(handler, max_workers=1, drain_timeout=60.0) as work:
        work.submit(keyed(P0, "a"))
        assert handler.done.wait(60.0)
    assert handler.status == status
