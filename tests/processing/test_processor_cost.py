"""What a record costs a `Processor`, counted in instructions of ours: no clock says whether it has become slower."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from itertools import count
from typing import Any

import pytest
from engine_help import Bench, desk_of
from processing_help import P0

from instride import CircuitBreaker, ConsumerRecord
from instride._processing.attempts import Desk
from instride._processing.lifespan import SyncLifespan
from instride._processing.thread_workers import ThreadWorkers, _Gate
from step_counter import calls, steps

COUNT, MOST_CALLS = 200, 45
OTHER_INSTRUCTIONS = sys.version_info >= (3, 12)  # the limits are those of 3.11's


PATIENCE = 60.0
RESTS = _Gate.wait


def bench(order: Any, records: int) -> Bench:
    found = Bench(order=order)
    keys = [b"k%d" % (offset % 50) for offset in range(records)]
    found.submit([ConsumerRecord(*P0, offset, epoch=1, key=key, value=b"v") for offset, key in enumerate(keys)])
    return found


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def handle_all(found: Bench) -> None:
    """In a context of its own: what a handler may ask of its attempt ends with it."""
    copy_context().run(_handle_all, found)


def _handle_all(found: Bench) -> None:
    desk = desk_of(found.engine)
    task = desk.next_task()
    while task is not None:
        desk.read(task)
        desk.outputs(task, None)
        desk.end(task, None)
        task = desk.next_task()


@pytest.mark.parametrize(("order", "most"), [("key", 780), ("partition", 780), ("none", 740)])
def test_a_record_from_its_start_to_its_end_takes_few_steps(order: Any, most: int) -> None:
    one, two = bench(order, COUNT), bench(order, 2 * COUNT)
    each = (steps(lambda: handle_all(two)) - steps(lambda: handle_all(one))) / COUNT
    one, two = bench(order, COUNT), bench(order, 2 * COUNT)
    made = (calls(lambda: handle_all(two)) - calls(lambda: handle_all(one))) / COUNT
    assert two.engine.tally.finished == 2 * COUNT
    assert made <= MOST_CALLS
    assert each <= most or OTHER_INSTRUCTIONS


@pytest.mark.parametrize(("order", "most"), [("key", 590), ("none", 590)])
def test_what_a_poll_brings_takes_few_steps_a_record(order: Any, most: int) -> None:
    each = (steps(lambda: bench(order, 2 * COUNT)) - steps(lambda: bench(order, COUNT))) / COUNT
    assert each <= most or OTHER_INSTRUCTIONS


class Threads:
    """So many that wait, and how often one of them is woken from now on."""

    def __init__(self, desk: Desk, handle: Callable[[Any], object], count: int) -> None:
        self.workers = ThreadWorkers(desk, handle, None, count, SyncLifespan())
        self.woken = 0
        self._lock = desk.lock
        wake_one = self.workers._wake_one

        def counted() -> None:
            resting = len(self.workers._resting)
            wake_one()
            self.woken += resting - len(self.workers._resting)

        self.workers._wake_one = counted  # type: ignore[method-assign]

    def until_idle(self, count: int) -> None:
        until(lambda: self._is_idle(count))

    def _is_idle(self, count: int) -> bool:
        """Who is listed may still wait for the lock, and takes a record then. Under the lock nobody is woken."""
        with self._lock:
            frames = sys._current_frames()
            found = [frames.get(each.ident or 0) for each in self.workers._threads]
            at_rest = [each for each in found if each is not None and each.f_code is RESTS.__code__]
            return len(at_rest) == len(self.workers._resting) == count


def test_a_poll_wakes_one_thread_which_wakes_the_next_if_there_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found, met = bench("none", 4), threading.Barrier(4)
    desk = desk_of(found.engine)

    def rest(gate: _Gate) -> None:
        RESTS(gate)
        with desk.lock:  # it is slow: else it may find who woke it there, and rest once more
            pass

    monkeypatch.setattr(_Gate, "wait", rest)
    threads = Threads(desk, lambda record: met.wait(PATIENCE), 4)
    threads.workers.wake()  # starts them
    threads.until_idle(4)
    threads.woken = 0
    with desk.lock:  # none can take anything yet
        found.submit([ConsumerRecord(*P0, 4 + each, epoch=1, value=b"v") for each in range(4)])
        threads.workers.wake()
        threads.workers.wake()
        assert threads.woken == 1
    until(lambda: found.engine.tally.finished == 8)  # all four met, so each was woken
    assert threads.woken == 4
    threads.workers.close(PATIENCE)


def test_what_the_end_of_an_outage_makes_startable_waits_for_no_poll() -> None:
    found = Bench(order="none", breaker=CircuitBreaker(on=OSError, attempts=1, pause=5.0))
    found.submit([ConsumerRecord(*P0, offset, epoch=1, value=b"v") for offset in range(3)])
    now, handled, met = [0.0], count(), threading.Barrier(3)

    def handle(record: Any) -> None:
        number = next(handled)
        if number == 0:
            raise OSError
        if number == 1:
            threads.until_idle(2)  # the probe ends when the others wait already
        else:
            met.wait(PATIENCE)

    desk = desk_of(found.engine, clock=lambda: now[0])
    found.submit([ConsumerRecord(*P0, 3, epoch=1, value=b"v")])
    threads = Threads(desk, handle, 1)
    threads.workers.wake()
    threads.until_idle(1)
    now[0] = 5.0
    threads.workers._concurrency = 3
    threads.workers.wake()
    until(lambda: found.engine.tally.finished == 4)
    assert not met.broken
    threads.workers.close(PATIENCE)
