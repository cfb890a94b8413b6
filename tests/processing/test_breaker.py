"""The circuit breaker: an outage pauses, blames no record, and is over when a probe ends well."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
from engine_help import Bench, keyed
from processing_help import P0, P1, tp

from instride import CircuitBreaker, ConsumerRecord, Processor, Retry
from instride._processing.breaker import Breaker
from instride._processing.engine import Task
from instride._processing.retries import DeadLetterRecord, Step

AWAY, BAD = ConnectionError("away"), ValueError("bad")
QUICK = CircuitBreaker(on=OSError, rate=0.5, attempts=4, pause=5.0, pause_max=15.0)


def bench(**plan: Any) -> Bench:
    return Bench(order="none", breaker=QUICK, **plan)


def breaker(found: Bench) -> Any:
    assert found.engine.breaker is not None
    return found.engine.breaker


def trip(found: Bench) -> None:
    """With records 0 to 3 of P0; 4 and more are queued."""
    found.submit(keyed(P0, "abcdefgh"))
    for task in [found.take() for _ in range(4)]:
        found.end(task, AWAY)
    assert breaker(found).open_until == found.now + 5.0


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"on": "OSError"}, TypeError),
        ({"on": (OSError, callable)}, TypeError),
        ({"on": OSError, "rate": 0}, ValueError),
        ({"on": OSError, "rate": 1.5}, ValueError),
        ({"on": OSError, "attempts": 0}, ValueError),
        ({"on": OSError, "pause": -1}, ValueError),
        ({"on": OSError, "pause": 61}, ValueError),
    ],
)
def test_a_wrong_breaker_is_refused(values: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="CircuitBreaker"):
        CircuitBreaker(**values)


def test_it_trips_on_a_rate_of_chosen_errors_and_starts_nothing() -> None:
    found = bench(after="skip")
    found.submit(keyed(P0, "abcdefgh"))
    for error in (None, BAD, AWAY, None, AWAY):  # the window has four that say something
        found.end(found.take(), error)
    assert breaker(found).open_until == 5.0
    assert (breaker(found).trips, breaker(found).error) == (1, AWAY)
    assert found.engine.take(0.0) is None
    assert found.engine.next_due() is not None
    found.commit()
    assert not found.engine.hold([P0]), "a hand-over waits for what is at work only, and for commits"


def test_a_rate_is_that_part_of_the_attempts_exactly() -> None:
    """0.56 times 25 is more than 14 as computers count."""
    exact = Breaker(CircuitBreaker(on=OSError, rate=0.56, attempts=25))
    found = bench()
    found.submit(keyed(P0, "a" * 25))
    for number, task in enumerate(found.takes()):
        exact.ended(task, None if number < 11 else AWAY, 0.0)
    assert exact.trips == 1


def test_one_probe_at_a_time_and_a_failed_one_doubles_the_pause_up_to_its_bound() -> None:
    found = bench()
    trip(found)
    for pause in (10.0, 15.0, 15.0):
        found.now = breaker(found).open_until
        probe = found.take()
        assert found.engine.take(found.now) is None, "one at a time"
        found.end(probe, AWAY)
        assert breaker(found).open_until == found.now + pause
    found.now += 15.0
    found.end(found.take())
    assert breaker(found).open_until is None
    assert len(found.takes()) >= 3, "all go on"


def test_every_record_probes_before_one_does_so_again() -> None:
    found = bench()
    trip(found)
    probes = []
    for _ in range(12):
        found.now = breaker(found).open_until
        probes.append(found.take())
        found.end(probes[-1], AWAY)
    assert [task.offset for task in probes] == [0, 1, 2, 4, 5, 6, 7, 0, 1, 2, 3, 4], (
        "3 tripped it: it waits for the rest"
    )


def test_a_probe_that_fails_otherwise_or_is_given_up_says_nothing() -> None:
    found = bench(after="skip")
    found.submit(keyed(P1, "xyz"))
    trip(found)
    found.now = 5.0
    found.end(found.take(), BAD)
    assert breaker(found).open_until == 5.0
    probe = found.take()
    assert found.engine.take(found.now) is None
    found.submit([], lost=[probe.lane.partition])
    assert found.take() is not probe, "another one probes"


@pytest.mark.parametrize("error", [None, AWAY, BAD])
def test_a_probe_that_is_late_doubles_the_pause_and_then_another_probes(error: Exception | None) -> None:
    """A thread that hangs cannot be stopped: its attempt ends when it does, and nobody waits for that."""
    found = bench(after="skip")
    trip(found)
    found.now = 5.0
    hangs = found.take()
    assert found.engine.take(found.now) is None
    found.now = 7.0
    hangs.late = True
    assert found.engine.take(found.now) is None, "the next one would hang too"
    assert breaker(found).open_until == found.engine.next_due() == 17.0
    found.end(hangs, error)
    assert breaker(found).open_until == 17.0, "it says nothing any more"
    found.now = 17.0
    probe = found.take()
    assert found.engine.take(found.now) is None, "one at a time"
    found.end(probe, AWAY)
    assert breaker(found).open_until == 32.0
    found.now = 32.0
    found.end(found.take())
    assert breaker(found).open_until is None


def test_a_service_that_hangs_for_good_takes_a_thread_with_each_pause_only() -> None:
    found = bench()
    trip(found)
    begun = []
    for _ in range(50):
        found.now += 1.0
        while (probe := found.engine.take(found.now)) is not None:
            begun.append(found.now)
            assert isinstance(probe, Task)
            probe.late = True
    assert begun == [5.0, 15.0, 30.0, 45.0]


def test_a_coroutine_that_keeps_its_cancellation_to_itself_lets_another_probe() -> None:
    """It may never end, as a thread that hangs. Else nothing is ever started again."""
    probes, is_back = list[float](), asyncio.Event()

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        if kit.now < 5.0:
            raise AWAY
        probes.append(kit.now)
        while len(probes) < 3:
            with suppress(asyncio.CancelledError):
                await is_back.wait()

    processor = Processor(handle, topics=["t"], order="none", timeout=2.0, breaker=QUICK, on_failure="skip")
    with processor.testing() as kit:
        for number in range(8):
            kit.give("t", b"%d" % number)
        kit.advance(60.0)
        assert len(kit.handled) == 6, "all but the two that hang"
        assert [round(each) for each in probes[:3]] == [5, 17, 34]
        is_back.set()
        kit.advance(60.0)
        assert len(kit.handled) == 8, "they were late, and are tried again"


def test_an_outage_uses_no_attempts_up() -> None:
    found = bench(retry=Retry(attempts=2, backoff=0.1, jitter=0), after="dead-letter")
    found.submit(keyed(P0, "abcdefgh"))
    verdicts = []
    for _ in range(200):
        found.now += 1.0
        verdicts += [found.end(task, AWAY) for task in found.takes()]
    assert {(each.step, each.counts) for each in verdicts if each} == {(Step.RETRY, False)}
    assert found.engine.tally.retried == len(verdicts)
    found.now += 100.0
    found.end(found.take())
    found.now += 100.0
    for task in found.takes():
        found.end(task)
    assert found.commit() == {P0: (8, (), {})}
    assert found.engine.tally.finished == 8


def test_a_record_that_fails_so_while_others_end_well_is_to_blame() -> None:
    found = bench(retry=Retry(attempts=2, on=OSError, backoff=0.1, jitter=0), after="dead-letter")
    found.submit(keyed(P0, "abcdefghijklmnopqrst"))
    verdicts = []
    for _ in range(3):
        poison = found.take()
        assert poison.offset == 0
        verdicts.append(found.end(poison, AWAY))
        for _ in range(3):
            found.end(found.take())
        found.now += 1.0
    assert [(each.step, each.counts) for each in verdicts if each] == [
        (Step.RETRY, False),
        (Step.RETRY, True),
        (Step.DEAD_LETTER, True),
    ]


def test_what_asks_for_a_dead_letter_is_no_outage() -> None:
    anything = CircuitBreaker(on=Exception)
    assert anything.chooses(AWAY)
    assert not anything.chooses(DeadLetterRecord("no"))
    assert not anything.chooses(KeyboardInterrupt())
    assert not anything.chooses(None)


def test_a_function_that_chooses_and_raises_chooses_nothing() -> None:
    def on(error: Exception) -> bool:
        raise LookupError("a mistake")

    error = ValueError("bad")
    assert not CircuitBreaker(on=on).chooses(error)
    assert not Retry(on=on).covers(error)
    assert "LookupError" in error.__notes__[0]


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_a_batch_that_an_outage_failed_comes_again_as_one(order: Any) -> None:
    found = Bench(order=order, breaker=QUICK, max_batch=4, after="dead-letter")
    found.submit(keyed(P0, "aabb"))
    batch = found.take_batch()
    verdict = found.end(batch, AWAY)
    assert verdict is not None
    assert (verdict.step, verdict.counts) == (Step.RETRY, False)
    assert found.commit() == {}
    found.now += verdict.after
    again = found.take_batch()
    assert [task.offset for task in again.tasks] == [0, 1, 2, 3]
    found.end(again)
    assert found.commit() == {P0: (4, (), {})}


@pytest.mark.parametrize("order", ["partition", "key", "none"])
@pytest.mark.parametrize("max_batch", [0, 3])
def test_what_is_put_back_is_queued_as_it_was(order: Any, max_batch: int) -> None:
    found = Bench(order=order, max_batch=max_batch)
    found.submit(keyed(P0, "aab-ab"))
    for _ in range(3):
        job = found.engine.take(found.now)
        assert job is not None
        assert job.offset == 0
        found.engine.put_back(job)
        assert (found.engine.queued, found.engine.started) == (6, 0)
    done = []
    while (job := found.engine.take(found.now)) is not None:
        done += [task.offset for task in getattr(job, "tasks", [job])]
        found.end(job)
    assert sorted(done) == [0, 1, 2, 3, 4, 5]
    assert [at for at in done if at in (0, 1, 4)] == [0, 1, 4]
    assert found.engine.tally.attempts <= 6


def test_a_probe_that_is_put_back_probes_no_more() -> None:
    found = bench()
    trip(found)
    found.now = 5.0
    found.engine.put_back(found.take())
    probe = found.take()
    assert found.engine.give_up() == [probe]
    found.engine.put_back(probe)
    assert found.engine.started == 0


@pytest.mark.drawn(4)
@pytest.mark.parametrize("form", ["plain", "coroutine"])
@pytest.mark.parametrize("seed", range(5))
def test_an_outage_of_any_length_dead_letters_nothing_and_loses_nothing(form: str, seed: int) -> None:
    chance, away, called = random.Random(seed), [False], [0]

    def charge(record: ConsumerRecord[Any, Any]) -> None:
        called[0] += 1
        if away[0]:
            raise AWAY

    async def charge_async(record: ConsumerRecord[Any, Any]) -> None:
        charge(record)

    processor = Processor(
        charge if form == "plain" else charge_async,
        topics=["t"],
        order=chance.choice(["key", "none", "partition"]),
        breaker=CircuitBreaker(on=OSError, attempts=5, pause=2.0, pause_max=10.0),
        dead_letters="dlq",
    )
    with processor.testing(partitions=2) as kit:
        for number in range(40):
            kit.give("t", b"%d" % number, key=b"%d" % (number % 7))
            if number % 10 == 5:
                away[0] = True
                kit.advance(chance.uniform(0, 3))
                before = called[0]
                kit.advance(1000.0)
                assert called[0] - before <= 1000 / 10 + 40, "it is not asked all the time"
                away[0] = False
            kit.advance(0.1)
        kit.advance(100.0)
        assert kit.dead_letters == []
        assert sorted(int(each.value or b"") for each in kit.handled) == list(range(40))
        assert sum(kit.committed.values()) == 40


def test_a_poisonous_record_is_not_what_ends_an_outage() -> None:
    """It raises the chosen error for ever, at the lowest offset; the others go on, and it becomes a dead letter."""
    away = [True]

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        if away[0] or record.value == b"0":
            raise AWAY

    processor = Processor(
        handle, topics=["t"], order="none", breaker=QUICK, retry=Retry(attempts=3), dead_letters="dlq"
    )
    with processor.testing() as kit:
        for number in range(6):
            kit.give("t", b"%d" % number)
        kit.advance(300)
        assert kit.handled == []
        away[0] = False
        for number in range(6, 30):
            kit.give("t", b"%d" % number)
            kit.advance(10)
        assert [each.value for each in kit.dead_letters] == [b"0"]
        assert len(kit.handled) == 29
        assert kit.committed == {tp(0): 30}
