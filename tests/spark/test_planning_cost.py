"""The planner's work grows with what there is to do: partitions that are idle and have nothing cost it nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from instride.records import OffsetRange, TopicPartition
from instride.spark._planning import Limits, Planner
from step_counter import calls, steps

pytestmark = pytest.mark.rule("20")

LIMITS = Limits(range_records=100_000, linger=0.01, backoff=1.0)
SOON = 0.02
"""Seconds between two plans of the set-up."""
Turn = Callable[[], object]


def span(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic="t", partition=partition, start=start, end=end, epoch=1, seek_number=0, leader_epoch=7)


def planner(idle: int, *, seconds: float = 0.01, limits: Limits = LIMITS) -> Planner:
    """So many partitions whose first range is in the sink, which took so many seconds; and ten others, with none."""
    made = Planner(limits)
    made.offer([span(10 + partition, 0, 1) for partition in range(idle)], 0.0)
    now = 0.0
    while tasks := made.plan(now := now + SOON, jobs=0, cores=4):
        for first in [each for task in tasks for each in task]:
            made.told(first, seconds=seconds)
            made.succeeded(first, records=1, nbytes=1)
    return made


def plan(made: Planner, now: float = 30.0, *, blocked: int = 0) -> object:
    return made.plan(now, jobs=0, cores=4, blocked=[TopicPartition("t", each) for each in range(blocked)])


def followed_by_a_plan(made: Planner, action: Callable[[], object]) -> Turn:
    def turn() -> None:
        action()
        plan(made)

    return turn


def nothing_to_do(made: Planner) -> Turn:
    return lambda: plan(made)


def ten_have_offsets(made: Planner) -> Turn:
    made.offer([span(each, 0, 5) for each in range(10)], 29.0)
    return lambda: plan(made)


def ten_linger(made: Planner) -> Turn:
    made.offer([span(each, 0, 5) for each in range(10)], 29.995)
    return lambda: plan(made)


def ten_are_blocked(made: Planner) -> Turn:
    """The group has requested their revocation."""
    made.offer([span(each, 0, 5) for each in range(10)], 29.0)
    return lambda: plan(made, blocked=10)


def one_waits_to_retry(made: Planner) -> Turn:
    made.offer([span(0, 0, 5)], 28.0)
    plan(made, 29.0)
    made.failed(span(0, 0, 5), 29.5)
    return lambda: plan(made)


def one_may_be_tried_again(made: Planner) -> Turn:
    made.offer([span(0, 0, 5)], 21.0)
    plan(made, 22.0)
    made.failed(span(0, 0, 5), 23.0)
    return lambda: plan(made)


def two_slow_ones_wait(made: Planner) -> Turn:
    """None gets the last core, where there are others: these are looked for."""
    for each in range(2):
        made.offer([span(each, 0, 5)], 21.0)
        plan(made, 22.0 + each)
        made.told(span(each, 0, 5), seconds=3.0)
        made.succeeded(span(each, 0, 5), records=5, nbytes=5)
    made.offer([span(each, 5, 9) for each in range(2)], 29.0)
    return lambda: plan(made)


def one_is_taken_back(made: Planner) -> Turn:
    made.offer([span(0, 0, 5)], 28.0)
    plan(made, 29.0)
    return followed_by_a_plan(made, partial(made.withdraw, TopicPartition("t", 0)))


def one_is_in_the_sink(made: Planner) -> Turn:
    """A slow sink: its task has told of it long ago."""
    made.offer([span(0, 0, 5)], 28.0)
    plan(made, 29.0)
    made.told(span(0, 0, 5), seconds=0.1)
    return followed_by_a_plan(made, partial(made.succeeded, span(0, 0, 5), records=5, nbytes=5))


def one_is_lost(made: Planner) -> Turn:
    made.offer([span(0, 0, 5)], 28.0)
    plan(made, 29.0)
    return followed_by_a_plan(made, partial(made.reset, TopicPartition("t", 0)))


def backlog(made: Planner, *, seconds: float) -> Turn:
    """Twelve partitions have one, and the task of one has told of ten thousand records (law 11)."""
    made.offer([span(100_000 + each, 0, 500_000) for each in range(12)], 28.0)
    first = made.plan(29.0, jobs=0, cores=4)[0][0]
    made.told(first, seconds=seconds, records=10_000, nbytes=1_000_000)
    return lambda: plan(made)


def one_has_told_that_the_others_are_quick(made: Planner) -> Turn:
    return backlog(made, seconds=0.01)


def one_has_told_and_the_others_wait(made: Planner) -> Turn:
    return backlog(made, seconds=9.0)


SITUATIONS = [
    nothing_to_do,
    ten_have_offsets,
    ten_linger,
    ten_are_blocked,
    one_waits_to_retry,
    one_may_be_tried_again,
    two_slow_ones_wait,
    one_is_taken_back,
    one_is_in_the_sink,
    one_is_lost,
    one_has_told_that_the_others_are_quick,
    one_has_told_and_the_others_wait,
]
LIMITED = {
    "as it is": LIMITS,
    "split": replace(LIMITS, split=True),
    "alone": replace(LIMITS, alone=True),
    "without a bound of records": replace(LIMITS, range_records=None),
}


@pytest.mark.drawn(15)
@pytest.mark.parametrize("limits", LIMITED.values(), ids=LIMITED)
@pytest.mark.parametrize("seconds", [0.01, 2.0], ids=["quick", "slow"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_idle_partitions_cost_a_plan_nothing(
    situation: Callable[[Planner], Turn], seconds: float, limits: Limits
) -> None:
    few, many = (steps(situation(planner(idle, seconds=seconds, limits=limits))) for idle in (50, 200))
    assert few == many


@pytest.mark.drawn(3)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_ten_thousand_idle_partitions_cost_a_plan_no_call(situation: Callable[[Planner], Turn]) -> None:
    few, many = (calls(situation(planner(idle))) for idle in (100, 10_000))
    assert few == many


def test_slow_partitions_that_wait_for_a_core_are_looked_at_once_each() -> None:
    """The look for quick ones was made for each of them: an outage of a thousand took a quarter of a second a plan."""

    def failed(many: int) -> Turn:
        made = planner(1, limits=replace(LIMITS, backoff=0.0))  # one that is quick, and has nothing now
        made.offer([span(100 + each, 0, 1) for each in range(many)], 1.0)
        slow = [first for task in made.plan(2.0, jobs=0, cores=10 * many) for first in task]
        assert len(slow) == many
        for each in slow:
            made.told(each, seconds=5.0)
            made.failed(each, 3.0)
        assert made.plan(4.0, jobs=0, cores=2), "one is tried again, which leaves a core to the quick one"
        assert not made.plan(5.0, jobs=1, cores=2)
        return lambda: made.plan(6.0, jobs=1, cores=2)

    few, many = steps(failed(20)), steps(failed(200))
    assert many <= 15 * few, "ten times as many"
