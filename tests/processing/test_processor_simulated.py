"""`Processor` in simulated groups, with faults, failing handlers and dead letters: judged by the one checker. And the
order of a key holds across hand-overs, attempts are bounded, what is remembered is not handled again."""

from __future__ import annotations

from typing import get_args

import pytest
from simulated_processor import ATTEMPTS, Course, processor_loop

from instride.processing.engine import Order
from instride.testing import SimulatedCluster
from instride.testing.simulation import check, plan_for, transcript


@pytest.mark.rule("16")
@pytest.mark.parametrize("order", get_args(Order))
@pytest.mark.parametrize(("seed", "max_batch"), [(seed, 0 if seed % 3 else 5) for seed in range(30)])
def test_histories_of_a_processor_are_good(seed: int, max_batch: int, order: Order) -> None:
    course = Course(order=order, max_batch=max_batch, has_outages=seed % 4 == 1)
    history = SimulatedCluster(plan_for(seed), loop=processor_loop(course)).run()
    found = [each for each in check(history) if each.number != "S1" or course.was_handled_again(each.text)]
    assert not found, transcript(history, found)
    holes = {(each.detail[0], at) for each in history if each.what == "hole" for at in range(*_range(each.detail))}
    assert not [late for late in course.late if (late[0], late[2]) not in holes]
    if not any(event.what in ("lost", "crashed", "evicted") for event in history):
        assert max(course.attempts.values(), default=0) <= ATTEMPTS


def _range(detail: tuple[object, int, int]) -> tuple[int, int]:
    return detail[1], detail[2] + 1


def test_they_remember_and_retry_and_dead_letter_at_all() -> None:
    """The histories above would be good if nothing of that ever happened."""
    course = Course(order="none", has_outages=True)
    for seed in range(12):
        SimulatedCluster(plan_for(seed), loop=processor_loop(course)).run()
    assert course.remembered > 0
    assert course.spared > 0
    assert course.attempts.total() > len(course.attempts), "some were tried again"
