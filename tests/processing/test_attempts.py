"""`Desk`, and workers that meet an error of our own: it ends the run, and no record is at work for ever."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from engine_help import desk_of, keyed
from processing_help import P0, commit

from instride import ConsumerRecord, OffsetAndMetadata, Retry
from instride._processing.attempts import Desk
from instride._processing.commit_metadata import Mark, Remembered, decode, encode
from instride._processing.coroutine_workers import LoopWorkers
from instride._processing.engine import Engine, EnginePlan
from instride._processing.lifespan import AsyncLifespan, SyncLifespan
from instride._processing.retries import Failures
from instride._processing.thread_workers import ThreadWorkers
from instride.errors import HandlerCancelledError

PATIENCE = 60.0
Record = ConsumerRecord[Any, Any]


class Undecided(type):
    """Of a class of errors: nobody learns whether an error is one of them."""

    def __instancecheck__(cls, instance: object) -> bool:
        raise LookupError("ask somebody else")


class OddError(Exception, metaclass=Undecided): ...


def engine(retry: Retry, **plan: Any) -> Engine:
    made = Engine(EnginePlan(order="none", failures=Failures(retry=retry), **plan), lambda _: 1)
    made.submit(keyed(P0, "aa"))
    made.locate(P0, OffsetAndMetadata(offset=0))
    return made


def test_where_the_end_of_an_attempt_cannot_be_judged_the_run_ends() -> None:
    of_run = engine(Retry(attempts=2, on=OddError))
    desk = desk_of(of_run, wants_attention=lambda: of_run.failure is not None)
    job = desk.next_task()
    assert job is not None
    assert desk.end(job, ValueError("bad")) == (None, True)
    assert isinstance(of_run.failure, LookupError)
    assert (of_run.started, of_run.queued, desk.next_task()) == (0, 2, None)


def test_a_function_that_chooses_errors_and_exits_ends_the_run_at_once() -> None:
    """Its record is in progress no more: else a stop would wait for that."""

    def choose(_: Exception) -> bool:
        raise SystemExit(3)

    of_run = engine(Retry(attempts=2, on=choose))
    desk = desk_of(of_run, wants_attention=lambda: of_run.failure is not None)
    job = desk.next_task()
    assert job is not None
    assert desk.end(job, ValueError("bad")) == (None, True)
    assert isinstance(of_run.failure, SystemExit)
    assert of_run.is_at_rest()


def test_a_batch_whose_end_cannot_be_judged_is_counted_off_once() -> None:
    of_run = engine(Retry(attempts=2, on=OddError), max_batch=2)
    desk = desk_of(of_run)
    batch = desk.next_task()
    assert batch is not None
    desk.end(batch, ValueError("bad"))
    assert isinstance(of_run.failure, LookupError)
    assert (of_run.started, of_run.queued, batch.lane.jobs) == (0, 2, 0)


def test_an_attempt_whose_end_cannot_be_judged_was_made() -> None:
    """Its process lives: so no death is its doing."""
    plan = EnginePlan(order="none", window=4, failures=Failures(retry=Retry(attempts=2, on=OddError)))
    of_run, named = Engine(plan, lambda _: 1), Remembered(mark=Mark(reach=4, named=0, deaths=1))
    of_run.submit(keyed(P0, "a"))
    of_run.locate(P0, OffsetAndMetadata(offset=0, metadata=encode(0, named, limit=4_000)))
    commit(of_run.committable())
    desk = desk_of(of_run)
    job = desk.next_task()
    assert job is not None
    desk.end(job, ValueError("bad"))
    of_run.stop()
    told = of_run.committable()[P0]
    memory = decode(told.metadata, told.offset)
    assert memory is not None
    assert memory.mark == Mark()


def broken(*_: Any) -> None:
    raise LookupError("an error of our own")


def test_a_thread_that_cannot_go_on_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "note", broken)

    def handler(record: Record) -> None:
        raise ValueError("bad")

    of_run, lock = engine(Retry(attempts=9)), threading.RLock()
    workers = ThreadWorkers(desk_of(of_run, lock), handler, None, 1, SyncLifespan())
    workers.wake()
    (thread,) = workers._threads
    thread.join(PATIENCE)
    assert isinstance(of_run.failure, LookupError)


def test_a_plain_handler_that_is_told_of_a_cancellation_has_failed() -> None:
    """By a loop of its own, say. A bare CancelledError is no error: the caller's task group would ignore it."""
    of_run = engine(Retry(attempts=1))
    desk = desk_of(of_run)
    job = desk.next_task()
    assert job is not None
    desk.end(job, asyncio.CancelledError("theirs"))
    assert isinstance(of_run.failure, HandlerCancelledError)


@pytest.fixture
def loop() -> Any:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def turn(loop: asyncio.AbstractEventLoop) -> None:
    for _ in range(20):
        loop.run_until_complete(asyncio.sleep(0))


def test_a_coroutine_of_ours_that_cannot_go_on_ends_the_run(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Desk, "note", broken)

    async def handler(record: Record) -> None:
        raise ValueError("bad")

    of_run = engine(Retry(attempts=9))
    desk = desk_of(of_run)
    workers = LoopWorkers(desk, handler, None, 1, loop, None, AsyncLifespan(desk.fail))
    workers.wake()
    turn(loop)
    assert isinstance(of_run.failure, LookupError)


def test_what_is_cancelled_before_its_first_step_leaves_its_place_to_another(loop: asyncio.AbstractEventLoop) -> None:
    """It was given up after it was taken, and the event loop was told of that before it was told to begin it."""
    handled: list[int] = []

    async def handler(record: Record) -> None:
        handled.append(record.offset)

    of_run = engine(Retry(attempts=9))
    desk = desk_of(of_run)
    workers = LoopWorkers(desk, handler, None, 1, loop, None, AsyncLifespan(desk.fail))
    job = desk.next_task()
    assert job is not None
    given_up = of_run.give_up()
    loop.call_soon(workers._cancel, given_up)
    workers._start(job)
    workers.wake()
    turn(loop)
    assert (handled, of_run.failure) == ([1], None)
