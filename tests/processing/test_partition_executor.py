"""`PartitionExecutor`: its threads, its end, its interrupts. What it decides is shown by the tests of its queues."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from processing_help import P0, P1, commit, offsets, records, refuse_threads, tp

from instride import ConsumerRecord, ConsumerRecords, OffsetRange, PartitionExecutor, RangeConsumer
from instride._core.session_lease import Lease, Standing
from instride._partition_ledger import PolledRanges
from instride.consumer_records import Stretch
from instride.errors import IllegalStateError

PATIENCE = 60.0


class Handlers:
    """Handlers that wait for the test. began: what was begun. go: lets so many end. bad: offsets that fail."""

    def __init__(self, *bad: int) -> None:
        self.bad = bad
        self.began: list[tuple[int, int]] = []
        self._gate = threading.Semaphore(0)
        self._news = threading.Condition()

    def __call__(self, work: ConsumerRecord | OffsetRange) -> None:
        offset = work.start if isinstance(work, OffsetRange) else work.offset
        with self._news:
            self.began.append((work.partition, offset))
            self._news.notify_all()
        assert self._gate.acquire(timeout=PATIENCE)
        if offset in self.bad:
            raise ValueError(f"record {offset}")

    def go(self, count: int = 1) -> None:
        self._gate.release(count)

    def wait_for(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.began) >= count, PATIENCE)


@contextmanager
def executor(handle: Callable[[Any], object], workers: int = 2) -> Iterator[PartitionExecutor[Any]]:
    """One whose end waits for nothing."""
    with PartitionExecutor(handle, max_workers=workers, drain_timeout=0.0) as work:
        yield work


def ended(work: PartitionExecutor[Any]) -> None:
    """All that is queued is done."""
    while work.queued() or work.started():
        pass


@contextmanager
def interrupted(when: threading.Event) -> Iterator[None]:
    """The main thread gets a Ctrl-C once that has happened."""

    def interrupt() -> None:
        assert when.wait(PATIENCE)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE)


def test_every_record_is_handled_once_and_committed() -> None:
    seen: list[tuple[int, int]] = []
    with PartitionExecutor[ConsumerRecord](lambda record: seen.append((record.partition, record.offset))) as work:
        for start in range(0, 3000, 100):
            work.submit([each for number in range(4) for each in records(tp(number), *range(start, start + 100))])
        ended(work)
        assert work.drain() == []
        assert commit(work.committable()) == {tp(number): 3000 for number in range(4)}
    assert Counter(seen) == Counter((number, offset) for number in range(4) for offset in range(3000))


def test_no_more_threads_than_there_is_work_and_none_without() -> None:
    handlers, before = Handlers(), threading.active_count()
    with executor(handlers, workers=3) as work:
        assert threading.active_count() == before
        work.submit(records(P0, 0))
        handlers.wait_for(1)
        assert threading.active_count() == before + 1
        work.submit(records(P0, *range(1, 50)))
        handlers.wait_for(3)
        assert threading.active_count() == before + 3
        assert (work.started(), work.queued()) == (3, 47)
        assert repr(work) == "PartitionExecutor(3 started, 47 queued)"
        handlers.go(50)
        ended(work)
    assert threading.active_count() == before


def test_two_submits_before_a_worker_wakes_start_two() -> None:
    """One idle worker is told of both; a second one must be there for the second record."""
    handlers = Handlers()
    with executor(handlers) as work:
        work.submit(records(P0, 0))
        handlers.go()
        ended(work)
        work.submit(records(P0, 1))
        work.submit(records(P1, 0))
        handlers.wait_for(3)
        handlers.go(2)


@pytest.mark.rule("16")
def test_a_hand_over_waits_for_what_is_started_only() -> None:
    handlers = Handlers()
    with executor(handlers, workers=1) as work:
        work.submit(records(P0, *range(5000)) + records(P1, *range(5000)))
        handlers.wait_for(1)
        assert work.hold([P0, P1]) == {P0}
        handlers.go()
        while not work.committable():
            pass
        assert work.hold([P0]) == {P0}
        assert commit(work.committable()) == {P0: 1}
        assert work.hold([P0]) == set()
    assert handlers.began == [(0, 0)]


@pytest.mark.rule("16")
def test_what_is_reassigned_is_worked_on_again() -> None:
    handlers = Handlers()
    with executor(handlers, workers=1) as work:
        work.submit(records(P0, 0, 1))
        handlers.wait_for(1)
        assert work.hold([P0]) == {P0}
        handlers.go()
        while work.started():
            pass
        assert work.hold([]) == set()
        handlers.wait_for(2)
        handlers.go()


@pytest.mark.rule("16")
def test_what_is_lost_is_cancelled_named_and_ignored() -> None:
    found: list[bool] = []
    handlers = Handlers()

    def handle(record: ConsumerRecord) -> None:
        found.append(work.cancelled(record))
        handlers(record)
        found.append(work.cancelled(record))

    with executor(handle) as work:
        work.submit(records(P0, 0))
        handlers.wait_for(1)
        work.submit([], lost=[P0])
        assert offsets(work.abandoned()) == [(0, 0)]
        handlers.go()
        while len(found) < 2:
            pass
        assert work.drain() == []
        assert not work.committable()
    assert found == [False, True]


def test_a_failure_is_raised_once_holds_its_partition_and_is_settled() -> None:
    handlers = Handlers(1)
    with executor(handlers, workers=1) as work:
        work.submit(records(P0, 0, 1, 2) + records(P1, 0))
        handlers.go(3)
        while work.queued() > 1 or work.started():
            pass
        with pytest.raises(ValueError, match="record 1") as caught:
            work.check()
        assert caught.value.__notes__ == ["while handling t-0 at offset 1"]
        work.check()
        assert commit(work.committable()) == {P0: 1, P1: 1}
        assert work.full() == [P0]
        ((bad, error),) = work.failures()
        assert (bad.offset, error) == (1, caught.value)
        assert work.oldest(P0) is bad
        handlers.bad = ()
        handlers.go(2)
        work.retry(bad)
        ended(work)
        assert work.ready() == [P0]
        assert commit(work.committable()) == {P0: 3}
    assert handlers.began == [(0, 0), (1, 0), (0, 1), (0, 1), (0, 2)]


def test_done_lets_a_partition_go_on_behind_a_failed_record() -> None:
    handlers = Handlers(0)
    with executor(handlers) as work:
        work.submit(records(P0, 0))
        handlers.go(2)
        while not work.failures():
            pass
        work.submit(records(P0, 1))
        assert (work.queued(), handlers.began) == (1, [(0, 0)])
        work.done(work.failures()[0][0])
        ended(work)
        assert commit(work.committable()) == {P0: 2}


def test_a_handler_that_wants_to_exit_has_failed() -> None:
    def handle(record: ConsumerRecord) -> None:
        raise SystemExit(3)

    with executor(handle) as work:
        work.submit(records(P0, 0))
        while not work.failures():
            pass
        with pytest.raises(SystemExit):
            work.check()


@pytest.mark.rule("16")
def test_a_stop_waits_for_what_is_started_only() -> None:
    handlers = Handlers()
    with executor(handlers) as work:
        work.submit(records(P0, *range(10_000)))
        handlers.wait_for(2)
        handlers.go(2)
        assert work.drain(timeout=PATIENCE) == []
        assert commit(work.committable()) == {P0: 2}
        with pytest.raises(IllegalStateError, match="was drained"):
            work.submit(records(P0, 10_000))
    assert len(handlers.began) == 2


def test_what_outlasts_the_drain_is_returned_and_may_end_later() -> None:
    handlers = Handlers()
    with executor(handlers) as work:
        work.submit(records(P0, 0, 1, 2))
        handlers.wait_for(2)
        left = work.drain(timeout=0.0)
        assert offsets(left) == [(0, 0), (0, 1)]
        assert all(map(work.cancelled, left))
        handlers.go(2)
        assert work.drain(timeout=PATIENCE) == []
        assert commit(work.committable()) == {P0: 2}


@pytest.mark.rule("16")
def test_an_interrupt_of_the_drain_ends_it_with_what_is_unfinished() -> None:
    handlers, waits = Handlers(), threading.Event()
    with executor(handlers) as work:
        work.submit(records(P0, 0, 1, 2))
        handlers.wait_for(2)
        at_rest = work._queues.at_rest

        def requested() -> bool:
            waits.set()
            return at_rest()

        work._queues.at_rest = requested  # type: ignore[method-assign]
        with interrupted(waits):
            left = work.drain(timeout=PATIENCE)
        assert offsets(left) == [(0, 0), (0, 1)]
        assert all(map(work.cancelled, left))
        handlers.go(2)


def test_leaving_after_an_interrupt_waits_for_what_is_started_and_raises_it_on() -> None:
    handlers = Handlers()

    def leave() -> None:
        with PartitionExecutor(handlers, max_workers=2, drain_timeout=PATIENCE) as work:
            work.submit(records(P0, *range(100)))
            handlers.wait_for(2)
            handlers.go(2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert len(handlers.began) >= 2
    workers = [each for each in threading.enumerate() if "instride-worker" in each.name]
    for each in workers:
        each.join(PATIENCE)  # the last lines of a worker's thread run after its work was awaited
    assert not any(each.is_alive() for each in workers)


def test_another_exception_in_the_drain_cancels_and_is_raised() -> None:
    class StopNowError(Exception):
        pass

    def raises() -> bool:
        raise StopNowError

    handlers = Handlers()
    with executor(handlers) as work:
        work.submit(records(P0, 0))
        handlers.wait_for(1)
        work._queues.at_rest = raises  # type: ignore[method-assign]
        with pytest.raises(StopNowError):
            work.drain()
        assert work.cancelled(records(P0, 0)[0])
        del work._queues.at_rest
        handlers.go()


def test_bytes_are_those_of_keys_and_values() -> None:
    handlers = Handlers()
    with PartitionExecutor(handlers, max_bytes=20, max_workers=1, drain_timeout=0.0) as work:
        work.submit(
            [ConsumerRecord("t", 0, offset, key=b"four", value={"no": "bytes"}, epoch=1) for offset in range(2)]
        )
        handlers.wait_for(1)
        assert work.full() == []
        work.submit(records(P0, 2, value=b"xx"))
        assert work.full() == [P0]
        handlers.go(3)


@pytest.mark.parametrize(
    ("wrong", "error", "word"),
    [
        ({"handle": {"uri": "secret"}}, TypeError, "handle must be a function of one record, not dict$"),
        ({"max_workers": 0}, ValueError, "max_workers must be 1 or more"),
        ({"max_records": -1}, ValueError, "max_records must be 1 or more"),
        ({"max_bytes": "1"}, TypeError, "max_bytes must be a whole number"),
        ({"drain_timeout": -1}, ValueError, "drain_timeout must be 0 seconds or more"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        PartitionExecutor(**{"handle": print, **wrong})  # type: ignore[arg-type]


def polled(lease: Lease, *numbers: int) -> ConsumerRecords:
    """What a poll returns, without its decoder."""
    found: ConsumerRecords = Polled((), Standing(lease, lease.number))
    assert isinstance(found, Polled)
    found.found = records(P0, *numbers)
    return found


def polled_ranges(lease: Lease, *starts: int) -> PolledRanges:
    """What a poll of a RangeConsumer returns: ranges of one offset."""
    found = PolledRanges(Standing(lease, lease.number))
    found += [
        OffsetRange(topic="t", partition=0, start=start, end=start + 1, epoch=1, seek_number=0) for start in starts
    ]
    return found


class Polled(ConsumerRecords):
    __slots__ = ("found",)
    found: list[ConsumerRecord]

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self.found)

    def stretches(self) -> list[Stretch]:
        return [Stretch(each.offset, each.offset + 1, 1) for each in self.found]


@pytest.mark.rule("16")
@pytest.mark.parametrize("rejoined", [False, True])
@pytest.mark.parametrize("polled", [polled, polled_ranges])
def test_nothing_is_started_after_a_suspension_before_the_next_poll(polled: Callable[..., Any], rejoined: bool) -> None:
    """The lease ends while a record is handled; with a new membership another lease holds, and is not this one."""
    lease, handlers = Lease(), Handlers()
    with executor(handlers, workers=1) as work:
        work.submit(polled(lease, 0, 1, 2))
        handlers.wait_for(1)
        lease.expires = float("-inf")
        if rejoined:
            lease.number, lease.expires = 1, float("inf")
        handlers.go()
        while work.started() and len(handlers.began) == 1:
            pass
        began = list(handlers.began)
        handlers.go(2)  # also where the next was begun, so that this ends
        assert began == [(0, 0)]
        assert work.queued() == 2
        lease.expires = float("inf")
        work.submit(polled(lease), lost=[P0] if rejoined else [])
        if rejoined:
            assert work.queued() == 0
        else:
            handlers.wait_for(2)
            handlers.go(2)
            ended(work)


async def never_awaited(_: object) -> None: ...


def never_iterated(_: object) -> Iterator[None]:
    yield


async def never_begun(_: object) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("handle", [never_awaited, never_iterated, never_begun], ids=lambda each: each.__name__)
def test_a_record_whose_handler_ran_nothing_has_failed(handle: Callable[[Any], object]) -> None:
    with executor(handle) as work:
        work.submit(records(P0, 0, 1))
        while not work.failures():
            pass
        assert not work.committable()
        with pytest.raises(TypeError, match="of which nothing has run"):
            work.check()


@pytest.mark.rule("16")
def test_where_the_system_makes_no_more_threads_those_that_there_are_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And each call does what it is to do: what a hand-over waits for is delayed."""
    handlers = Handlers()
    refuse_threads(monkeypatch, 1)
    with executor(handlers, workers=4) as work:
        work.submit(records(P0, 0, 1) + records(P1, 0))
        handlers.wait_for(1)
        assert work.hold([P0]) == {P0}
        assert work.hold([]) == set(), "it was reassigned"
        handlers.go(3)
        ended(work)
        work.submit(records(P1, 1, 2))
        handlers.go(2)
        ended(work)
    told = [each for each in caplog.messages if "makes no thread" in each]
    assert told == ["the system makes no thread for another handler: 1 of 4 go on (can't start new thread)"]


def test_where_the_system_makes_no_thread_at_all_the_loop_hears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads(monkeypatch)
    with executor(Handlers()) as work, pytest.raises(RuntimeError, match="can't start new thread"):
        work.submit(records(P0, 0))


@pytest.mark.rule("16")
def test_a_poll_of_ranges_says_whether_its_member_is_one_still() -> None:
    with RangeConsumer(bootstrap_servers="localhost:1") as consumer:
        consumer.assign([P0])
        ranges = consumer.poll(timeout=0)
    assert ranges == []
    assert isinstance(ranges, PolledRanges)
    assert ranges.standing.holds(0.0)
