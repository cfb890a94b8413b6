"""Outputs that nobody has acknowledged yet: they hold no place of a handler, in whatever form of workers."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from engine_help import Bench, desk_of, keyed
from processing_help import P0, P1
from test_letters_in_flight import (
    PATIENCE,
    Record,
    Silent,
    Threads,
    bench_of,
    client,
    turn,
    until,
    until_empty,
    until_in_flight,
)

from instride import CircuitBreaker, OutputRecord, Retry
from instride._processing.coroutine_workers import LoopWorkers
from instride._processing.dead_letters import DeadLetter
from instride._processing.engine import Job
from instride._processing.lifespan import AsyncLifespan
from instride._processing.outputs import OutputWriter, Room
from instride._processing.process_child import DONE
from instride._processing.process_workers import ProcessWorkers

OUTPUT = OutputRecord(value=b"x", topic="o")


def handle(record: Record) -> OutputRecord | None:
    """Of P0 it has an output, of P1 none."""
    return OUTPUT if record.partition == 0 else None


async def handle_awaited(record: Record) -> OutputRecord | None:
    return handle(record)


def retrying(records: int) -> Bench:
    """A second attempt comes a second later."""
    bench = Bench(order="none", after="dead-letter", retry=Retry(attempts=2, backoff=1.0, jitter=0.0))
    bench.submit(keyed(P0, "a" * records))
    return bench


def writer_of(bench: Bench, producer: Any, handlers: int = 1) -> OutputWriter:
    return OutputWriter(desk_of(bench.engine, clock=lambda: bench.now), producer, handlers, lambda: None)


class Fast(Future[None]):
    """It is acknowledged, or refused, before whoever has handed its output over goes on. In the producer's thread."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self._end = threading.Thread(target=self.set_result if error is None else self.set_exception, args=(error,))

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        super().add_done_callback(fn)
        self._end.start()
        self._end.join(PATIENCE)


# -- how many are in flight


def test_four_times_as_many_outputs_are_in_flight_as_there_are_handlers() -> None:
    """What finds no room keeps its place until another has ended, the first one first; or it has itself."""
    let_go = list[str]()
    room = Room[str](1, let_go.append)
    for each in "abcdefg":
        room.enter(each)
    assert let_go == [*"abcd"]
    assert room.leave("f"), "it had its place to the end"
    assert let_go == [*"abcd"]
    assert not room.leave("a")
    assert not room.leave("b")
    assert let_go == [*"abcdeg"]
    assert room.leave("z"), "it had no outputs"


def test_outputs_of_all_partitions_in_flight_are_bounded() -> None:
    """Else the bound is that of a partition, as often as there are partitions: in the producer's queue."""
    bench, producer = bench_of(12), Silent()
    threads = Threads(bench, producer, handler=handle, output="o")
    producer.until(10)
    until(lambda: len(bench.engine.awaited) == 8 and len(threads.workers._outputs._room._held) == 2)
    assert (len(producer.letters), bench.engine.started, bench.engine.queued) == (10, 10, 2)
    producer.futures[0].set_result(None)
    producer.until(11)
    for number in range(1, 12):
        producer.until(number + 1)
        producer.futures[number].set_result(None)
    threads.close()
    assert (bench.engine.tally.finished, bench.engine.started, bench.engine.awaited) == (12, 0, set())


def test_outputs_without_room_end_as_their_handler_does() -> None:
    """No thread but theirs tells of it."""
    bench, error = bench_of(1), ConnectionError("no leader")
    found = iter([Fast(), Fast(error)])
    writer, task = writer_of(bench, lambda _: next(found), handlers=0), bench.take()
    assert writer.hand_over(task, [OUTPUT])
    with pytest.raises(ConnectionError):
        writer.hand_over(task, [OUTPUT])
    assert (bench.engine.started, bench.engine.tally.attempts, bench.engine._in_flight) == (1, 0, 0)


def test_outputs_without_room_fail_by_an_error_that_says_that_it_is_false() -> None:
    """Else the record is in progress for ever: nobody tells of its end."""

    class FalseError(ConnectionError):
        def __len__(self) -> int:
            return 0

    bench = bench_of(1)
    writer = writer_of(bench, lambda _: Fast(FalseError()), handlers=0)
    with pytest.raises(FalseError):
        writer.hand_over(bench.take(), [OUTPUT])


def test_outputs_without_room_have_failed_if_nobody_acknowledges_them_in_time() -> None:
    bench, producer = bench_of(1), Silent()
    writer, task = writer_of(bench, producer, handlers=0), bench.take()
    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(writer.hand_over, task, [OUTPUT])
        until(lambda: bool(writer._waiting))
        bench.now = 120.0
        writer.look()
        assert isinstance(ends.exception(PATIENCE), TimeoutError)


def test_a_stop_ends_outputs_without_room_by_its_deadline() -> None:
    bench, producer = bench_of(1), Silent()
    writer, task = writer_of(bench, producer, handlers=0), bench.take()
    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(writer.hand_over, task, [OUTPUT])
        until(lambda: bool(writer._waiting))
        bench.engine.stop()
        assert not bench.engine.is_at_rest()
        assert bench.engine.give_up() == [task]
        assert bench.engine.is_at_rest()
        producer.futures[0].set_result(None)
        assert ends.result(PATIENCE)


def test_after_a_close_no_thread_waits_for_room() -> None:
    """Else it would be there for ever: nobody looks any more at what is not acknowledged in time."""
    bench, producer = bench_of(10), Silent()
    threads = Threads(bench, producer, handler=handle, output="o")
    producer.until(10)
    until(lambda: len(threads.workers._outputs._room._held) == 2)
    assert len(bench.engine.give_up()) == 10
    threads.close()
    producer.futures[0].set_result(None)
    producer.futures[9].set_exception(ConnectionError("no leader"))
    assert (bench.engine.tally.finished, bench.engine._in_flight, bench.engine.failure) == (0, 0, None)


def test_after_a_close_no_keeper_waits_for_room() -> None:
    bench, producer = bench_of(5), Silent()
    workers, returning = processes_of(bench, producer), Returning()
    process: Any = returning
    keeper = threading.Thread(target=workers._handle, args=(process, deque(bench.takes())), daemon=True)
    keeper.start()
    until(lambda: len(workers._outputs._room._held) == 1)
    assert len(bench.engine.give_up()) == 5
    workers.close()
    keeper.join(PATIENCE)
    assert not keeper.is_alive()
    assert (bench.engine.tally.finished, bench.engine._in_flight, bench.engine.failure) == (0, 0, None)


# -- a dead letter that is due since outputs were refused


def test_a_letter_after_a_refused_output_waits_for_no_others_handler_in_threads() -> None:
    """A hand-over may wait for it alone. Records are handled by as many as before."""
    bench, producer, gate, running = bench_of(1, 4), Silent(), threading.Event(), list[int]()

    def handler(record: Record) -> OutputRecord | None:
        if record.partition == 1:
            running.append(record.offset)
            gate.wait(PATIENCE)
        return handle(record)

    threads = Threads(bench, producer, handler=handler, output="o")
    producer.until(1)
    until(lambda: len(running) == 2)
    producer.futures[0].set_exception(ConnectionError("no leader"))
    threads.workers.wake()
    producer.until(2)
    assert isinstance(producer.letters[1], DeadLetter)
    until(lambda: len(threads.workers._threads) == 2)
    assert len(running) == 2
    gate.set()
    until(lambda: len(running) == 4)
    threads.close()


def test_a_letter_after_a_refused_output_waits_for_no_others_handler_in_processes() -> None:
    bench, producer = bench_of(2), Silent()
    workers, returning = processes_of(bench, producer), Returning()
    process: Any = returning
    assert workers._handle(process, deque(bench.takes()))
    keeper = threading.Thread()
    workers._keepers[keeper] = process
    producer.futures[0].set_exception(ConnectionError("no leader"))
    workers.wake()
    assert len(bench.engine.to_write) == 1, "its keeper has nothing to do, and takes it"
    workers._busy.add(keeper)
    workers.wake()
    producer.until(3)
    until(lambda: not workers._writes_beside)
    producer.futures[1].set_exception(ConnectionError("no leader"))
    workers.wake()
    producer.until(4)
    assert [type(each) for each in producer.letters[2:]] == [DeadLetter, DeadLetter]


@pytest.mark.parametrize("by", ["a stop", "a failure", "an outage"])
def test_a_letter_after_a_refused_output_waits_for_no_leave_to_start(by: str) -> None:
    """It is in progress, as where its handler fails."""
    bench, producer = bench_of(1, 1, breaker=CircuitBreaker(on=KeyError, attempts=1, pause=5.0)), Silent()
    desk = desk_of(bench.engine, output="o", dead_letters="dlq")
    task, other = bench.take(), bench.take()
    assert not OutputWriter(desk, producer, 1, lambda: None).hand_over(task, [OUTPUT])
    if by == "a stop":
        bench.engine.stop()
    elif by == "a failure":
        bench.engine.failure = ValueError()
    else:
        bench.end(other, KeyError())
    producer.futures[0].set_exception(ConnectionError("no leader"))
    assert bench.engine.started >= 1
    assert bench.engine.has_next(0.0)
    assert desk.next_task() is task
    assert (task.writes_dead_letter, desk.next_task()) == (True, None)


def test_a_letter_after_a_refused_output_is_not_written_of_a_lost_partition() -> None:
    bench, producer = bench_of(1), Silent()
    desk = desk_of(bench.engine, output="o", dead_letters="dlq")
    assert not OutputWriter(desk, producer, 1, lambda: None).hand_over(bench.take(), [OUTPUT])
    producer.futures[0].set_exception(ConnectionError("no leader"))
    bench.submit([], [P0])
    assert not bench.engine.has_next(0.0)
    assert (desk.next_task(), bench.engine._in_flight) == (None, 0)


def test_after_a_stop_a_thread_writes_the_letter_of_a_refused_output() -> None:
    bench, producer = bench_of(1), Silent()
    threads = Threads(bench, producer, handler=handle, output="o")
    producer.until(1)
    threads.until_idle(1)
    bench.engine.stop()
    producer.futures[0].set_exception(ConnectionError("no leader"))
    producer.until(2)
    assert isinstance(producer.letters[1], DeadLetter)
    assert not bench.engine.is_at_rest()
    until(lambda: bool(threads.workers._writer._waiting))
    producer.futures[1].set_result(None)
    assert (bench.engine.tally.dead_lettered, bench.engine.is_at_rest()) == (1, True)
    threads.close()


def test_after_a_stop_a_keeper_writes_the_letter_of_a_refused_output() -> None:
    bench, producer = bench_of(1), Silent()
    workers, process = processes_of(bench, producer), Returning()
    returning: Any = process
    assert workers._handle(returning, deque(bench.takes()))
    bench.engine.stop()
    assert not workers._finds(0, deque())
    producer.futures[0].set_exception(ConnectionError("no leader"))
    jobs = deque[Job]()
    assert workers._finds(0, jobs), "one without a process begins one"
    assert workers._finds(1, jobs)
    assert workers._handle(returning, jobs)
    producer.futures[1].set_result(None)
    assert (bench.engine.tally.dead_lettered, bench.engine.is_at_rest()) == (1, True)


def test_after_a_stop_a_coroutine_writes_the_letter_of_a_refused_output() -> None:
    bench, producer = bench_of(1), Silent()
    with closing(asyncio.new_event_loop()) as loop:
        workers = loop_workers(bench, loop, producer.awaited, handle_awaited, 1)
        turn(loop)
        bench.engine.stop()
        producer.futures[0].set_exception(ConnectionError("no leader"))
        turn(loop)
        producer.futures[1].set_result(None)
        turn(loop)
        assert (bench.engine.tally.dead_lettered, bench.engine.is_at_rest()) == (1, True)
        assert (workers._attempts, workers._in_flight) == ({}, set())


# -- threads


def test_outputs_that_nobody_acknowledges_hold_no_thread() -> None:
    """Else as many of them as there are threads stop every partition. Their commit waits."""
    bench, producer = bench_of(4, 2), Silent()
    threads = Threads(bench, producer, handler=handle, output="o")
    producer.until(4)
    threads.close()
    assert (bench.engine.tally.finished, bench.engine.started) == (2, 4)
    assert bench.commit() == {P1: (2, (), {})}
    for future in producer.futures:
        future.set_result(None)
    assert (bench.engine.tally.finished, bench.engine.started) == (6, 0)
    assert bench.commit() == {P0: (4, (), {})}


def test_of_one_partition_no_more_outputs_are_in_flight_than_its_bound() -> None:
    """And what one of them makes startable waits for no poll."""
    bench, producer = bench_of(3, 2, per_partition=2), Silent()
    threads = Threads(bench, producer, handler=handle, output="o")
    producer.until(2)
    threads.until_idle(2)
    assert (len(producer.letters), bench.engine.queued) == (2, 1)
    producer.futures[0].set_result(None)
    producer.until(3)
    threads.close()
    assert (bench.engine.tally.finished, bench.engine.started) == (3, 2)


def test_the_next_record_of_a_key_waits_until_its_outputs_are_acknowledged() -> None:
    """One of them may be refused, and its record is handled again then: before that one."""
    bench, producer = bench_of(2, order="key"), Silent()
    threads = Threads(bench, producer, handler=lambda _: [OUTPUT, OUTPUT], output="o")
    producer.until(2)
    threads.resting.until(len(threads.workers._threads))
    assert (bench.engine.queued, bench.engine.started) == (1, 1)
    producer.futures[1].set_result(None)
    assert (bench.engine.queued, bench.engine.started) == (1, 1), "the first one is not"
    producer.futures[0].set_result(None)
    producer.until(4)
    threads.close()
    assert (bench.engine.queued, bench.engine.started) == (0, 1)


def test_an_attempt_whose_outputs_are_not_acknowledged_in_time_has_failed() -> None:
    bench, producer = bench_of(1), Silent()
    threads = Threads(bench, producer, handler=handle, output="o")
    producer.until(1)
    threads.resting.until(1)
    bench.now = 119.0
    threads.workers.wake()
    assert bench.engine.tally.attempts == 0
    bench.now = 120.0
    threads.workers.wake()
    producer.until(2)
    letter = producer.letters[1]
    assert isinstance(letter, DeadLetter)
    assert (type(letter.error), str(letter.error)) == (TimeoutError, "o: not acknowledged in 120 s")
    producer.futures[0].set_result(None)
    assert bench.engine.tally.finished == 0, "it is too late"
    threads.close()
    producer.futures[1].set_result(None)
    assert (bench.engine.tally.dead_lettered, bench.engine.started) == (1, 0)


def test_an_attempt_one_of_whose_outputs_is_refused_has_failed_once() -> None:
    bench, producer = retrying(1), Silent()
    task, writer = bench.take(), writer_of(bench, producer)
    assert not writer.hand_over(task, [OUTPUT, OUTPUT, OUTPUT])
    producer.futures[1].set_exception(ConnectionError("no leader"))
    assert (bench.engine.tally.retried, bench.engine.queued, bench.engine.started) == (1, 1, 0)
    assert isinstance(task.error, ConnectionError)
    producer.futures[0].set_result(None)
    producer.futures[2].set_exception(ConnectionError("no leader"))
    assert (bench.engine.tally.attempts, bench.engine.tally.finished, bench.engine.failure) == (1, 0, None)


def test_what_is_no_exception_ends_the_run_by_an_output_too() -> None:
    bench, producer, error = bench_of(1), Silent(), SystemExit(3)
    assert not writer_of(bench, producer).hand_over(bench.take(), [OUTPUT])
    producer.futures[0].set_exception(error)
    assert bench.engine.failure is error


def test_the_records_of_a_batch_whose_outputs_are_refused_are_judged_one_by_one() -> None:
    bench, producer = bench_of(2, max_batch=2), Silent()
    assert not writer_of(bench, producer).hand_over(bench.take_batch(), [OUTPUT, OUTPUT])
    producer.futures[0].set_exception(ConnectionError("no leader"))
    assert (bench.engine.started, bench.engine.queued) == (0, 2)
    assert [task.writes_dead_letter for task in bench.takes()] == [True, True]


@pytest.mark.parametrize("when", ["before", "after"])
def test_of_what_was_given_up_an_acknowledgement_says_nothing(when: str) -> None:
    """Nor is it counted as in flight. when: it was handed over."""
    bench, producer = bench_of(1), Silent()
    task, writer = bench.take(), writer_of(bench, producer)
    if when == "before":
        bench.submit([], [P0])
    writer.hand_over(task, [OUTPUT])
    assert (bench.engine._in_flight, len(bench.engine.awaited)) == ((1, 1) if when == "after" else (0, 0))
    if when == "after":
        bench.submit([], [P0])
    producer.futures[0].set_result(None)
    assert (bench.engine.tally.finished, bench.engine._in_flight, bench.engine.failure) == (0, 0, None)


def test_what_is_acknowledged_at_once_ends_at_once() -> None:
    bench, acknowledged, refused = bench_of(1), Future[None](), Future[None]()
    acknowledged.set_result(None)
    refused.set_exception(ConnectionError("no leader"))
    found = iter([None, acknowledged, None, refused])
    writer, task = writer_of(bench, lambda _: next(found)), bench.take()
    assert writer.hand_over(task, [OUTPUT, OUTPUT])
    with pytest.raises(ConnectionError):
        writer.hand_over(task, [OUTPUT, OUTPUT])
    assert bench.engine._in_flight == 0


def test_an_attempt_whose_end_cannot_be_noted_ends_the_run() -> None:
    """In a thread that is not ours: else it were in progress for ever, and nobody knew."""
    bench, producer = bench_of(1), Silent()
    assert not writer_of(bench, producer).hand_over(bench.take(), [OUTPUT])

    def taken_back(_: Job) -> None:
        raise MemoryError

    bench.engine.taken_back = taken_back  # type: ignore[method-assign, assignment]
    producer.futures[0].set_result(None)
    assert isinstance(bench.engine.failure, MemoryError)


# -- processes


class Returning:
    """A process whose handler returns one output of each record."""

    def send(self, jobs: list[Job]) -> None: ...

    def result(self, timeout: float | None) -> tuple[int, Any]:
        return DONE, [(b"x", None, (), "o", None)]


def test_outputs_that_nobody_acknowledges_hold_no_process() -> None:
    bench, producer = retrying(3), Silent()
    workers, process = processes_of(bench, producer), Returning()
    returning: Any = process
    assert workers._handle(returning, deque(bench.takes()))
    assert (len(producer.letters), bench.engine.started) == (3, 3)
    producer.futures[0].set_result(None)
    producer.futures[1].set_exception(ConnectionError("no leader"))
    tally = bench.engine.tally
    assert (tally.finished, tally.retried, bench.engine.started) == (1, 1, 1)
    bench.now = 120.0
    bench.engine.stop()  # else a process would begin for what is due
    workers.wake()
    assert (tally.finished, tally.retried, bench.engine.started) == (1, 2, 0)


def processes_of(bench: Bench, producer: Any) -> ProcessWorkers:
    desk = desk_of(bench.engine, clock=lambda: bench.now, dead_letters="dlq", output="o")
    return ProcessWorkers(desk, b"", producer, 1, 8, 1.0)


def test_a_letter_of_an_output_that_is_refused_at_once_is_written_once() -> None:
    """By whoever takes it, and not also by the keeper that has handed the output over."""
    bench, written = bench_of(2), list[type]()

    def produce(each: Any) -> Future[None] | None:
        written.append(type(each))
        return None if isinstance(each, DeadLetter) else Fast(ConnectionError("no leader"))

    workers, jobs, returning = processes_of(bench, produce), deque[Job](), Returning()
    process: Any = returning
    assert workers._handle(process, deque(bench.takes()))
    assert written == [OutputRecord, OutputRecord]
    assert workers._finds(8, jobs)
    assert workers._handle(process, jobs)
    assert written == [OutputRecord, OutputRecord, DeadLetter, DeadLetter]
    assert (bench.engine.tally.dead_lettered, bench.engine.failure, bench.engine._in_flight) == (2, None, 0)


def test_an_acknowledgement_wakes_one_keeper_and_none_if_nothing_may_start() -> None:
    """Of a hundred, each one takes the lock."""
    bench, producer, woken = bench_of(2, order="key"), Silent(), list[int]()
    workers, process = processes_of(bench, producer), Returning()
    returning: Any = process
    assert workers._handle(returning, deque(bench.takes()))
    workers._keepers = {threading.Thread(): returning for _ in range(8)}
    workers._work.notify = woken.append  # type: ignore[method-assign, assignment]
    producer.futures[0].set_result(None)
    assert woken == [1], "the other record has the same key"
    assert workers._handle(returning, deque(bench.takes()))
    producer.futures[1].set_result(None)
    assert woken == [1]


def test_an_output_that_a_process_cannot_hand_over_fails_its_attempt() -> None:
    bench = retrying(1)

    def produce(_: OutputRecord) -> None:
        raise ConnectionError("no leader")

    workers, returning = ProcessWorkers(desk_of(bench.engine, output="o"), b"", produce, 1, 8, 1.0), Returning()
    process: Any = returning
    assert workers._handle(process, deque(bench.takes()))
    assert (bench.engine.tally.retried, bench.engine.started) == (1, 0)


# -- coroutines


def loop_workers(bench: Bench, loop: asyncio.AbstractEventLoop, produce: Any, handler: Any, most: int) -> LoopWorkers:
    desk = desk_of(bench.engine, clock=lambda: bench.now, dead_letters="dlq", output="o")
    workers = LoopWorkers(desk, handler, produce, most, loop, None, AsyncLifespan(desk.fail))
    workers.wake()
    return workers


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_outputs_that_nobody_acknowledges_hold_no_place_of_coroutines(*, is_coroutine: bool) -> None:
    """Also where a plain function hands them over."""
    bench, producer = bench_of(3, 2), Silent()
    with closing(asyncio.new_event_loop()) as loop:
        workers = loop_workers(bench, loop, producer.awaited if is_coroutine else producer, handle_awaited, 1)
        loop.run_until_complete(until_in_flight(workers, 3))
        assert (len(producer.letters), bench.engine.tally.finished, bench.engine.started) == (3, 2, 3)
        for future in producer.futures:
            future.set_result(None)
        loop.run_until_complete(until_empty(workers))
        assert (bench.engine.tally.finished, bench.engine.started, workers._in_flight) == (5, 0, set())
        loop.run_until_complete(loop.shutdown_default_executor())


def test_the_letter_of_a_coroutines_refused_output_is_written_by_who_has_a_place() -> None:
    bench, producer = bench_of(1), Silent()
    with closing(asyncio.new_event_loop()) as loop:
        workers = loop_workers(bench, loop, producer.awaited, handle_awaited, 1)
        turn(loop)
        producer.futures[0].set_exception(ConnectionError("no leader"))
        turn(loop)
        (_, letter) = producer.letters
        assert isinstance(letter, DeadLetter)
        assert isinstance(letter.error, ConnectionError)
        producer.futures[1].set_result(None)
        turn(loop)
        assert (bench.engine.tally.dead_lettered, bench.engine.started) == (1, 0)
        assert (workers._attempts, workers._in_flight) == ({}, set())


@pytest.mark.parametrize("error", [None, ConnectionError("no leader")])
def test_however_many_outputs_there_are_coroutines_are_as_many_as_they_may_be(error: Exception | None) -> None:
    bench, producer, running = bench_of(2, 4), Silent(), list[int]()

    async def handler(record: Record) -> OutputRecord | None:
        if record.partition == 1:
            running.append(record.offset)
            await asyncio.Event().wait()
        return handle(record)

    with closing(asyncio.new_event_loop()) as loop:
        workers = loop_workers(bench, loop, producer.awaited, handler, 2)
        turn(loop)
        assert (len(producer.letters), len(running)) == (2, 2)
        for future in list(producer.futures):
            future.set_result(None) if error is None else future.set_exception(error)
        turn(loop)
        # Of a refused one a letter is handed over, for which a hand-over may wait: it waits for no handler.
        handed_over = 2 if error is None else 4
        assert (bench.engine.tally.attempts, len(producer.letters), len(running)) == (2, handed_over, 2)
        for server in workers._attempts:
            server.cancel()
        turn(loop)


def test_who_takes_the_place_of_outputs_sees_nothing_that_their_handler_has_set() -> None:
    bench, producer = bench_of(1, 1), Silent()

    async def handler(record: Record) -> OutputRecord:
        if record.partition == 1:
            raise ValueError("bad")
        client.set("handler")
        return OUTPUT

    with closing(asyncio.new_event_loop()) as loop:
        workers = loop_workers(bench, loop, producer.awaited, handler, 1)
        turn(loop)
        assert producer.clients == ["handler", "none"]
        for future in producer.futures:
            future.set_result(None)
        loop.run_until_complete(until_empty(workers))


def test_outputs_of_a_coroutine_that_is_given_up_hold_nothing() -> None:
    bench, producer = bench_of(1), Silent()
    with closing(asyncio.new_event_loop()) as loop:
        workers = loop_workers(bench, loop, producer.awaited, handle_awaited, 1)
        turn(loop)
        workers.cancel(bench.engine.give_up())
        turn(loop)
        assert (workers._attempts, workers._in_flight, bench.engine._in_flight) == ({}, set(), 0)
        assert (bench.engine.tally.abandoned, bench.engine.tally.finished) == (1, 0)


def test_outputs_of_coroutines_in_flight_are_bounded() -> None:
    """Else the bound is that of a partition, as often as there are partitions."""
    bench, producer = bench_of(6), Silent()
    with closing(asyncio.new_event_loop()) as loop:
        workers = loop_workers(bench, loop, producer.awaited, handle_awaited, 1)
        turn(loop)
        assert (len(producer.letters), len(bench.engine.awaited), bench.engine.queued) == (5, 4, 1)
        producer.futures[0].set_result(None)
        turn(loop)
        assert (len(producer.letters), len(bench.engine.awaited), bench.engine.queued) == (6, 4, 0)
        producer.futures[5].set_result(None)
        turn(loop)
        assert (bench.engine.tally.finished, len(bench.engine.awaited)) == (2, 4)
        for future in producer.futures[1:5]:
            future.set_result(None)
        turn(loop)
        assert (bench.engine.tally.finished, bench.engine.started, workers._attempts) == (6, 0, {})


async def produce_awaited(_: OutputRecord) -> None: ...


@pytest.mark.parametrize("returns", ["None", "a future", "a coroutine"])
def test_a_coroutine_whose_outputs_are_acknowledged_already_gives_no_place_up(returns: str) -> None:
    """Else each record costs a task of asyncio's."""
    bench, started, done = bench_of(3), list[Job](), Future[None]()
    done.set_result(None)
    produces = {"None": lambda _: None, "a future": lambda _: done, "a coroutine": produce_awaited}
    with closing(asyncio.new_event_loop()) as loop:
        workers = loop_workers(bench, loop, produces[returns], handle_awaited, 1)
        start = workers._start

        def counted(job: Job) -> None:
            started.append(job)
            start(job)

        workers._start = counted  # type: ignore[method-assign]
        turn(loop)
        loop.run_until_complete(until_empty(workers))
        assert (bench.engine.tally.finished, len(started)) == (3, 1)
        loop.run_until_complete(loop.shutdown_default_executor())


def test_outputs_whose_event_loop_was_closed_are_in_flight_no_more() -> None:
    bench, producer = bench_of(1), Silent()
    with closing(asyncio.new_event_loop()) as loop:
        workers = loop_workers(bench, loop, producer.awaited, handle_awaited, 1)
        turn(loop)
        assert bench.engine._in_flight == 1
        loop.set_exception_handler(lambda *_: None)  # asyncio's, that a task is pending
    (server,) = workers._attempts
    coroutine = server.get_coro()
    assert coroutine is not None
    coroutine.close()
    assert (bench.engine._in_flight, bench.engine.awaited, bench.engine.queued) == (0, set(), 1)
