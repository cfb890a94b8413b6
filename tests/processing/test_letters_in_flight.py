"""Dead letters that nobody has acknowledged yet: they hold no place of a handler, in whatever form of workers."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest
from engine_help import TOPIC_ID, Bench, desk_of, keyed
from processing_help import P0, P1, refuse_threads

from instride import ConsumerRecord, OffsetAndMetadata, Retry
from instride._processing.coroutine_workers import LoopWorkers
from instride._processing.dead_letters import DeadLetter, LetterWriter
from instride._processing.engine import Job, Task
from instride._processing.health import unwritten_letters
from instride._processing.lifespan import AsyncLifespan, SyncLifespan
from instride._processing.process_workers import ProcessWorkers
from instride._processing.thread_workers import ThreadWorkers, _Gate
from instride.errors import RecordTooLargeError
from step_counter import steps

PATIENCE = 30.0
RESTS = _Gate.wait
Record = ConsumerRecord[Any, Any]
client: ContextVar[str] = ContextVar("client", default="none")


class Silent:
    """A producer that acknowledges what the test says, when it says so."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        self.futures: list[Future[None]] = []
        self.clients: list[str] = []
        self._news = threading.Condition()

    def __call__(self, letter: DeadLetter) -> Future[None]:
        with self._news:
            self.letters.append(letter)
            self.futures.append(Future())
            self.clients.append(client.get())
            self._news.notify_all()
            return self.futures[-1]

    async def awaited(self, letter: DeadLetter) -> None:
        await asyncio.wrap_future(self(letter))

    def until(self, letters: int) -> None:
        """So many were handed over. Nobody waits for the newest one before the call has returned."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.letters) >= letters, PATIENCE), len(self.letters)


def bench_of(bad: int, good: int = 0, **plan: Any) -> Bench:
    """So many records of P0, whose handler fails, and of P1, whose handler does not."""
    plan.setdefault("order", "none")
    bench = Bench(after="dead-letter", retry=Retry(attempts=1, backoff=1.0, jitter=0.0), **plan)
    bench.submit([*keyed(P0, "a" * bad), *keyed(P1, "a" * good)])
    return bench


def handle(record: Record) -> None:
    if record.partition == 0:
        raise ValueError("bad")


async def handle_awaited(record: Record) -> None:
    handle(record)


@contextmanager
def around() -> Iterator[None]:
    client.set("open")
    yield


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Resting(list[Any]):
    """Tells how many threads have nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self._news = threading.Condition()

    def append(self, gate: Any) -> None:
        with self._news:
            super().append(gate)
            self._news.notify_all()

    def until(self, threads: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self) == threads, PATIENCE)


class Threads:
    """Two of them, with a clock that is moved by hand."""

    def __init__(
        self, bench: Bench, producer: Silent, *, handler: Callable[[Record], object] = handle, output: str | None = None
    ) -> None:
        self.bench = bench
        self.told = threading.Event()
        self.teller: list[str] = []
        desk = desk_of(bench.engine, clock=lambda: bench.now, dead_letters="dlq", output=output)
        desk = replace(desk, pass_over=self._pass_over)
        self.workers = ThreadWorkers(desk, handler, producer, 2, SyncLifespan(), around)
        self.workers._resting = self.resting = Resting()
        self.workers.wake()

    def until_idle(self, threads: int) -> None:
        until(lambda: self._is_idle(threads))

    def _is_idle(self, threads: int) -> bool:
        """Who is listed may still wait for the lock, and takes a record then. Under the lock nobody is woken."""
        with self.workers._desk.lock:
            frames = sys._current_frames()
            found = [frames.get(each.ident or 0) for each in self.workers._threads]
            at_rest = [each for each in found if each is not None and each.f_code is RESTS.__code__]
            return len(at_rest) == len(self.resting) == threads

    def _pass_over(self, task: Task) -> None:
        self.teller.append(threading.current_thread().name)
        self.told.set()

    def close(self) -> None:
        self.workers.close()
        for thread in self.workers._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def join_writers() -> None:
    """What is too large is written in a thread of its own, which may end by another one."""
    while found := [each for each in threading.enumerate() if each.name == "instride-letter"]:
        found[0].join(PATIENCE)


def test_letters_that_nobody_acknowledges_hold_no_thread() -> None:
    """Else as many of them as there are threads stop every partition."""
    bench, producer = bench_of(4, 2), Silent()
    threads = Threads(bench, producer)
    producer.until(4)
    threads.close()
    assert (bench.engine.tally.finished, bench.engine.started) == (2, 4)
    for future in producer.futures:
        future.set_result(None)
    assert (bench.engine.tally.dead_lettered, bench.engine.started) == (4, 0)


def test_of_one_partition_no_more_letters_are_in_flight_than_its_bound() -> None:
    """And what one of them makes startable waits for no poll."""
    bench, producer = bench_of(3, 2, per_partition=2), Silent()
    threads = Threads(bench, producer)
    producer.until(2)
    threads.until_idle(2)
    assert (len(producer.letters), bench.engine.queued) == (2, 1)
    producer.futures[0].set_result(None)
    producer.until(3)
    threads.close()
    assert (bench.engine.tally.finished, bench.engine.tally.dead_lettered, bench.engine.started) == (2, 1, 2)


def test_a_letter_that_is_not_acknowledged_in_time_is_written_again() -> None:
    bench, producer = bench_of(1), Silent()
    threads = Threads(bench, producer)
    producer.until(1)
    threads.resting.until(1)
    bench.now = 119.0
    threads.workers.wake()
    assert not list(unwritten_letters(bench.engine))
    bench.now = 120.0
    threads.workers.wake()
    (found,) = unwritten_letters(bench.engine)
    assert (type(found.error), str(found.error)) == (TimeoutError, "dlq: not acknowledged in 120 s")
    producer.futures[0].set_exception(ConnectionError("late"))
    bench.now = 121.0
    threads.workers.wake()
    producer.until(2)
    threads.resting.until(1)
    producer.futures[1].set_result(None)
    assert (bench.engine.tally.dead_lettered, bench.engine.started) == (1, 0)
    threads.close()


def test_of_what_was_given_up_meanwhile_no_smaller_letter_is_written() -> None:
    bench, producer = bench_of(1), Silent()
    threads = Threads(bench, producer)
    producer.until(1)
    with threads.workers._desk.lock:
        bench.engine.give_up()
    producer.futures[0].set_exception(RecordTooLargeError("too large"))
    join_writers()
    threads.close()
    assert len(producer.letters) == 1
    assert bench.engine.tally.dead_lettered == 0


@pytest.mark.parametrize("by", ["deadline", "reset"])
def test_a_letter_acknowledged_after_it_was_given_up_is_not_written_again(by: str) -> None:
    bench, producer = bench_of(1), Silent()
    writer = LetterWriter(desk_of(bench.engine, dead_letters="dlq"), producer)
    task = bench.take()
    bench.end(task, ValueError("bad"))
    writer.write(task)
    if by == "deadline":
        bench.engine.hold([P0])
        assert bench.engine.give_up_of(P0) == [task]
        producer.futures[0].set_result(None)
        bench.engine.hold([])
    else:
        assert bench.engine.submit(keyed(P0, "b", start=1, seek=1)) == [task]
        producer.futures[0].set_result(None)
        bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID, log_begin=0)
    again = bench.take()
    assert (again.offset, again.writes_dead_letter) == (0, True)
    writer.write(again)
    assert (len(producer.letters), bench.engine.tally.dead_lettered) == (1, 1)


def test_a_smaller_letter_is_written_at_once_and_sees_what_the_set_up_set() -> None:
    """Not by the thread that tells of it, which may be the producer's own."""
    bench, producer = bench_of(1), Silent()
    threads = Threads(bench, producer)
    for number in range(3):
        producer.until(number + 1)
        producer.futures[number].set_exception(RecordTooLargeError("too large"))
    join_writers()
    threads.close()
    assert [each.left_out for each in producer.letters] == ["", "value (1 byte)", "key, value and headers"]
    assert producer.clients == ["open"] * 3
    (found,) = unwritten_letters(bench.engine)
    assert isinstance(found.error, RecordTooLargeError)
    assert (bench.engine.started, bench.engine.queued) == (0, 1), "it has no smaller form, and is tried again"


def test_where_no_thread_is_left_a_smaller_letter_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, producer = bench_of(1), Silent()
    threads = Threads(bench, producer)
    producer.until(1)
    threads.resting.until(1)
    refuse_threads(monkeypatch)
    producer.futures[0].set_exception(RecordTooLargeError("too large"))
    assert [type(each.error) for each in unwritten_letters(bench.engine)] == [RuntimeError]
    threads.close()


def test_a_store_is_told_of_an_acknowledged_letter_by_a_thread_of_handlers() -> None:
    """Which has its connection."""
    bench, producer = bench_of(1, has_store=True), Silent()
    threads = Threads(bench, producer)
    producer.until(1)
    producer.futures[0].set_result(None)
    assert threads.told.wait(PATIENCE)
    threads.close()
    (teller,) = threads.teller
    assert teller.startswith("instride-handler-")
    assert (bench.engine.tally.dead_lettered, bench.engine.started) == (1, 0)


def test_a_store_is_told_of_a_smaller_letter_by_no_thread_without_its_connection() -> None:
    """Also where the producer acknowledges it by returning."""
    bench, futures, tellers = bench_of(1, has_store=True), list[Future[None]](), list[str]()

    def produce(letter: DeadLetter) -> Future[None] | None:
        if letter.left_out:
            return None
        futures.append(Future())
        return futures[-1]

    def pass_over(_: Task) -> None:
        tellers.append(threading.current_thread().name)

    desk = replace(desk_of(bench.engine, dead_letters="dlq"), pass_over=pass_over)
    writer = LetterWriter(desk, produce)
    task = bench.take()
    bench.end(task, ValueError("bad"))
    writer.write(task)
    futures[0].set_exception(RecordTooLargeError("too large"))
    join_writers()
    assert (tellers, task.letter_written) == ([], True)
    assert desk.next_task() is task
    writer.write(task)
    assert (tellers, bench.engine.tally.dead_lettered) == ([threading.current_thread().name], 1)


def test_a_store_is_told_of_a_letter_though_all_threads_that_there_are_are_busy() -> None:
    """There may be more of them."""
    bench, producer, runs, ends = bench_of(1, has_store=True), Silent(), threading.Event(), threading.Event()

    def handler(record: Record) -> None:
        handle(record)
        runs.set()
        assert ends.wait(PATIENCE)

    threads = Threads(bench, producer, handler=handler)
    producer.until(1)
    threads.resting.until(1)
    with threads.workers._desk.lock:
        bench.submit(keyed(P1, "a"))
    threads.workers.wake()
    assert runs.wait(PATIENCE)
    producer.futures[0].set_result(None)
    assert len(threads.workers._threads) == 1
    threads.workers.wake()
    assert threads.told.wait(PATIENCE)
    ends.set()
    threads.close()
    assert (bench.engine.tally.dead_lettered, bench.engine.tally.finished) == (1, 1)


def test_a_store_is_told_of_a_letter_by_a_thread_more_where_handlers_have_all() -> None:
    """Another partition's, perhaps long ones. It is one thread, and none that stays."""
    bench, producer, runs, ends = bench_of(2, has_store=True), Silent(), threading.Semaphore(0), threading.Event()

    def handler(record: Record) -> None:
        handle(record)
        runs.release()
        assert ends.wait(PATIENCE)

    threads = Threads(bench, producer, handler=handler)
    producer.until(2)
    threads.resting.until(len(threads.workers._threads))
    with threads.workers._desk.lock:
        bench.submit(keyed(P1, "aaa"))
    threads.workers.wake()
    assert all(runs.acquire(timeout=PATIENCE) for _ in range(2))
    producer.futures[0].set_result(None)
    threads.workers.wake()
    assert threads.told.wait(PATIENCE)
    assert not runs.acquire(blocking=False), "it handles no record"
    ends.set()
    assert runs.acquire(timeout=PATIENCE)
    producer.futures[1].set_result(None)
    threads.close()
    assert len(threads.workers._threads) == 2
    assert (len(threads.teller), bench.engine.tally.finished) == (2, 3)


@pytest.mark.parametrize("may_start", [True, False])
def test_of_an_acknowledged_letter_a_store_is_told_first_by_whoever_takes_a_record(*, may_start: bool) -> None:
    """Also where nothing may be started: it is in progress, and its hand-over waits for it."""
    bench = bench_of(1, 1, has_store=True)
    desk = desk_of(bench.engine, may_start=lambda: may_start)
    task, other = bench.take(), bench.take()
    bench.end(task, ValueError("bad"))
    bench.end(other)
    bench.submit(keyed(P1, "a", start=1))
    assert bench.engine.acknowledged(task)
    bench.engine.hold([P0])
    assert desk.next_task() is task
    assert bench.engine.hold([P0]) == {P0}
    assert (desk.next_task() is not None) == may_start
    assert desk.next_task() is None


def test_of_an_acknowledged_letter_that_was_given_up_no_store_is_told() -> None:
    bench = bench_of(1, has_store=True)
    task = bench.take()
    bench.end(task, ValueError("bad"))
    assert bench.engine.acknowledged(task)
    assert bench.engine.has_next(0.0)
    bench.submit([], [P0])
    assert not bench.engine.has_next(0.0)
    assert desk_of(bench.engine).next_task() is None
    assert not bench.engine.acknowledged(task)


@pytest.mark.parametrize("error", [SystemExit(3), Exception("no leader")])
def test_what_a_producer_tells_later_is_judged_as_what_it_raises(error: BaseException) -> None:
    bench, producer = bench_of(1), Silent()
    threads = Threads(bench, producer)
    producer.until(1)
    threads.resting.until(1)
    producer.futures[0].set_exception(error)
    assert bench.engine.failure is (error if isinstance(error, SystemExit) else None)
    assert [each.error for each in unwritten_letters(bench.engine)] == [error]
    threads.close()


def test_a_letter_whose_end_cannot_be_noted_ends_the_run() -> None:
    """In a thread that is not ours: else it were in progress for ever, and nobody knew."""
    bench, producer = bench_of(1), Silent()
    task = bench.take()
    bench.end(task, ValueError("bad"))
    LetterWriter(desk_of(bench.engine, dead_letters="dlq"), producer).write(task)

    def wrote(*_: Any) -> None:
        raise MemoryError

    bench.engine.wrote = wrote  # type: ignore[method-assign, assignment]
    producer.futures[0].set_result(None)
    assert isinstance(bench.engine.failure, MemoryError)


def test_letters_that_nobody_acknowledges_hold_no_place_of_coroutines() -> None:
    bench, producer = bench_of(3, 2), Silent()
    with closing(asyncio.new_event_loop()) as loop:
        desk = desk_of(bench.engine, dead_letters="dlq")
        workers = LoopWorkers(desk, handle_awaited, producer.awaited, 1, loop, None, AsyncLifespan(desk.fail))
        workers.wake()
        turn(loop)
        assert (len(producer.letters), bench.engine.tally.finished, bench.engine.started) == (3, 2, 3)
        for future in producer.futures:
            future.set_result(None)
        turn(loop)
        assert (bench.engine.tally.dead_lettered, bench.engine.started) == (3, 0)
        assert (workers._attempts, workers._in_flight) == ({}, set())


def test_letters_acknowledged_at_once_open_no_more_connections_than_handlers() -> None:
    bench, producer = bench_of(6, 1, has_store=True), Silent()
    told, go = list[Task](), asyncio.Event()

    async def pass_over(task: Task) -> None:
        told.append(task)
        await go.wait()

    with closing(asyncio.new_event_loop()) as loop:
        desk = replace(desk_of(bench.engine, dead_letters="dlq"), pass_over=pass_over)
        workers = LoopWorkers(desk, handle_awaited, producer.awaited, 2, loop, None, AsyncLifespan(desk.fail))
        workers.wake()
        turn(loop)
        for future in producer.futures:
            future.set_result(None)
        turn(loop)
        assert (len(producer.letters), len(told)) == (6, 2)
        go.set()
        turn(loop)
        assert (len(told), bench.engine.tally.dead_lettered) == (6, 6)


def steps_of_acknowledgements(letters: int) -> int:
    """Of five, one after the other, with so many letters in flight."""
    bench, producer = bench_of(letters, has_store=True, metadata_limit=1 << 20), Silent()
    with closing(asyncio.new_event_loop()) as loop:
        desk = desk_of(bench.engine, dead_letters="dlq")
        workers = LoopWorkers(desk, handle_awaited, producer.awaited, 10, loop, None, AsyncLifespan(desk.fail))
        workers.wake()
        loop.run_until_complete(until_in_flight(workers, letters))

        def acknowledge() -> None:
            for future in producer.futures[:5]:
                future.set_result(None)
                turn(loop)

        counted = steps(acknowledge)
        assert bench.engine.tally.dead_lettered == 5
        for future in producer.futures[5:]:
            future.set_result(None)
        loop.run_until_complete(until_empty(workers))
    return counted


def test_an_acknowledgement_costs_the_same_however_many_letters_are_in_flight() -> None:
    """Whatever it does, all coroutines of the loop wait for."""
    assert steps_of_acknowledgements(1000) < 1.2 * steps_of_acknowledgements(100)


def test_tellers_and_handlers_together_are_no_more_than_handlers() -> None:
    """Of coroutines too: each has a connection."""
    bench, producer, running = bench_of(3, has_store=True), Silent(), list[int]()
    told, go = list[Task](), asyncio.Event()

    async def pass_over(task: Task) -> None:
        told.append(task)
        await go.wait()

    async def handler(record: Record) -> None:
        handle(record)
        running.append(record.offset)
        await go.wait()

    with closing(asyncio.new_event_loop()) as loop:
        desk = replace(desk_of(bench.engine, dead_letters="dlq"), pass_over=pass_over)
        workers = LoopWorkers(desk, handler, producer.awaited, 2, loop, None, AsyncLifespan(desk.fail))
        workers.wake()
        turn(loop)
        bench.submit(keyed(P1, "a"))
        workers.wake()
        turn(loop)
        for future in producer.futures:
            future.set_result(None)
        turn(loop)
        assert (len(producer.letters), len(running), len(told)) == (3, 1, 1)
        go.set()
        turn(loop)
        assert (len(told), bench.engine.tally.dead_lettered, bench.engine.started) == (3, 3, 0)
        assert (workers._attempts, workers._in_flight) == ({}, set())


def test_a_store_is_told_of_a_letter_beside_coroutines_that_have_all_places() -> None:
    """They may be another partition's, and long; a hand-over waits for the letter."""
    bench, producer, running = bench_of(2, has_store=True), Silent(), list[int]()
    told, go = list[Task](), asyncio.Event()

    async def pass_over(task: Task) -> None:
        told.append(task)
        await go.wait()

    async def handler(record: Record) -> None:
        handle(record)
        running.append(record.offset)
        await asyncio.Event().wait()

    with closing(asyncio.new_event_loop()) as loop:
        desk = replace(desk_of(bench.engine, dead_letters="dlq"), pass_over=pass_over)
        workers = LoopWorkers(desk, handler, producer.awaited, 2, loop, None, AsyncLifespan(desk.fail))
        workers.wake()
        turn(loop)
        bench.submit(keyed(P1, "aaa"))
        workers.wake()
        turn(loop)
        for future in producer.futures:
            future.set_result(None)
        turn(loop)
        assert (len(running), len(told)) == (2, 1), "by one place more"
        go.set()
        turn(loop)
        assert (len(running), len(told), bench.engine.tally.dead_lettered) == (2, 2, 2)
        for server in workers._attempts:
            server.cancel()
        turn(loop)


def test_letters_that_block_a_thread_of_asyncio_are_no_more_than_coroutines_may_be() -> None:
    """Else a handler's own `to_thread` waits for all of them."""
    bench, letters, go = bench_of(6, 1), list[DeadLetter](), threading.Event()
    entered = threading.Semaphore(0)

    def produce(letter: DeadLetter) -> None:
        letters.append(letter)
        entered.release()
        assert go.wait(PATIENCE)

    with closing(asyncio.new_event_loop()) as loop:
        desk = desk_of(bench.engine, dead_letters="dlq")
        workers = LoopWorkers(desk, handle_awaited, produce, 2, loop, None, AsyncLifespan(desk.fail))
        workers.wake()
        turn(loop)
        assert all(entered.acquire(timeout=PATIENCE) for _ in range(2))
        turn(loop)
        assert len(workers._attempts) == 2
        go.set()
        loop.run_until_complete(until_empty(workers))
        assert (len(letters), bench.engine.tally.dead_lettered, bench.engine.tally.finished) == (6, 6, 1)
        loop.run_until_complete(loop.shutdown_default_executor())


async def until_empty(workers: LoopWorkers) -> None:
    while workers._attempts:
        await asyncio.wait(list(workers._attempts), timeout=PATIENCE)


@pytest.mark.parametrize("future", [True, False])
def test_a_letter_that_is_handed_over_by_a_plain_function_holds_no_place(future: bool) -> None:
    """It returns a future, or an awaitable."""
    bench, producer = bench_of(3, 2), Silent()

    def awaited(letter: DeadLetter) -> Awaitable[None]:
        return producer.awaited(letter)

    with closing(asyncio.new_event_loop()) as loop:
        desk = desk_of(bench.engine, dead_letters="dlq")
        produce = producer if future else awaited
        workers = LoopWorkers(desk, handle_awaited, produce, 1, loop, None, AsyncLifespan(desk.fail))
        workers.wake()
        loop.run_until_complete(until_in_flight(workers, 3))
        assert (bench.engine.tally.finished, bench.engine.started) == (2, 3)
        for each in producer.futures:
            each.set_result(None)
        loop.run_until_complete(until_empty(workers))
        assert bench.engine.tally.dead_lettered == 3
        loop.run_until_complete(loop.shutdown_default_executor())


async def until_in_flight(workers: LoopWorkers, letters: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(workers._in_flight) < letters or len(workers._attempts) > letters:
            await asyncio.sleep(0.001)


def test_however_many_letters_there_are_coroutines_are_as_many_as_they_may_be() -> None:
    bench, producer, running = bench_of(2, 3), Silent(), list[int]()

    async def handler(record: Record) -> None:
        handle(record)
        running.append(record.offset)
        await asyncio.Event().wait()

    with closing(asyncio.new_event_loop()) as loop:
        desk = desk_of(bench.engine, dead_letters="dlq")
        workers = LoopWorkers(desk, handler, producer.awaited, 2, loop, None, AsyncLifespan(desk.fail))
        workers.wake()
        turn(loop)
        assert (len(producer.letters), len(running)) == (2, 2)
        for future in producer.futures:
            future.set_result(None)
        turn(loop)
        assert (bench.engine.tally.dead_lettered, len(running)) == (2, 2)
        for server in workers._attempts:
            server.cancel()
        turn(loop)


def turn(loop: asyncio.AbstractEventLoop) -> None:
    for _ in range(50):
        loop.run_until_complete(asyncio.sleep(0))


def test_a_keeper_waits_for_no_letter_and_is_woken_by_its_acknowledgement() -> None:
    bench, producer = bench_of(2, order="key"), Silent()
    workers = ProcessWorkers(desk_of(bench.engine, dead_letters="dlq"), b"", producer, 1, 8, 1.0)
    task, jobs, waits = bench.take(), deque[Job](), threading.Event()
    bench.end(task, ValueError("bad"))
    letters: Any = NoProcess()
    assert workers._handle(letters, deque([task]))
    assert (bench.engine.started, len(producer.letters)) == (1, 1)
    real = workers._work.wait

    def wait() -> bool:
        waits.set()
        return real()

    workers._work.wait = wait  # type: ignore[method-assign, assignment]
    keeper = threading.Thread(target=workers._take, args=(threading.current_thread(), 1, jobs), daemon=True)
    keeper.start()
    assert waits.wait(PATIENCE), "the other record has the same key"
    producer.futures[0].set_result(None)
    keeper.join(PATIENCE)
    assert [job.offset for job in jobs] == [1]


def test_a_letter_of_a_process_that_is_not_acknowledged_in_time_is_told() -> None:
    bench, producer = bench_of(1), Silent()
    desk = desk_of(bench.engine, clock=lambda: bench.now, dead_letters="dlq")
    workers = ProcessWorkers(desk, b"", producer, 1, 8, 1.0)
    task = bench.take()
    bench.end(task, ValueError("bad"))
    letters: Any = NoProcess()
    workers._handle(letters, deque([task]))
    bench.now = 120.0
    workers.wake()
    assert [type(each.error) for each in unwritten_letters(bench.engine)] == [TimeoutError]


class NoProcess:
    """It has no records."""

    def send(self, jobs: list[Job]) -> None:
        assert jobs == []
