"""`Processor` in simulated groups, with faults, failing handlers and dead letters: judged by the one checker. And the
order of a key holds across hand-overs, attempts are bounded, and nothing that an accepted commit covered, remembered
records included, is handled again by whoever comes next, after whatever crash."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import get_args

import pytest
from simulated_processor import ATTEMPTS, Bank, Course, processor_loop

from instride import TopicPartition
from instride._processing.engine import Order
from instride.testing import SimulatedCluster
from instride.testing._simulation.history import Event
from instride.testing._simulation.planning_groups import with_groups
from instride.testing.simulation import check, plan_for, transcript


@pytest.mark.drawn(30)
@pytest.mark.rule("16")
@pytest.mark.parametrize("order", get_args(Order))
@pytest.mark.parametrize(("seed", "max_batch"), [(seed, 0 if seed % 3 else 5) for seed in range(30)])
def test_histories_of_a_processor_are_good(seed: int, max_batch: int, order: Order) -> None:
    course = Course(order=order, max_batch=max_batch, has_outages=seed % 4 == 1, cancels_in_time=seed % 5 == 2)
    history = SimulatedCluster(plan_for(seed), loop=processor_loop(course)).run()
    found = [each for each in check(history) if each.number != "S1" or course.was_handled_again(each.text)]
    assert not found, transcript(history, found)
    assert not course.repeated, "after a crash too, nothing that an accepted commit covered is handled again"
    assert not course.unfinished, "no commit covers a record that is not finished"
    assert not course.zombies, "a former owner starts nothing, whether it knows of its loss or not"
    gone = holes(history)
    assert not [late for late in course.late if (late[0], late[2]) not in gone]
    assert max(course.attempts.values(), default=0) <= ATTEMPTS, "of one owner, whatever happened"
    if not any(event.what in ("lost", "crashed", "evicted") for event in history):
        assert max(course.attempts_of_all_owners().values(), default=0) <= ATTEMPTS


def holes(history: Iterable[Event]) -> set[tuple[TopicPartition, int]]:
    """Offsets that no log has any more."""
    found = [each.detail for each in history if each.what == "hole"]
    return {(partition, at) for partition, first, last in found for at in range(first, last + 1)}


def test_they_remember_and_retry_and_dead_letter_at_all() -> None:
    """The histories above would be good if nothing of that ever happened."""
    course = Course(order="none", has_outages=True)
    for seed in range(12):
        SimulatedCluster(plan_for(seed), loop=processor_loop(course)).run()
    assert course.remembered > 0
    assert course.spared > 0
    assert course.attempts.total() > len(course.attempts), "some were tried again"


@pytest.mark.drawn(8)
@pytest.mark.parametrize("means", [{"retention"}, {"latest", "retention"}], ids=lambda means: "-".join(sorted(means)))
@pytest.mark.parametrize("seed", range(24))
def test_no_commit_covers_what_is_unfinished_though_logs_lose_what_is_old(seed: int, means: set[str]) -> None:
    """A member that is reset has records in memory that nobody reads again. Where it led moves with the partition."""
    course = Course(order=get_args(Order)[seed % 3], max_batch=0 if seed % 4 else 5)
    plan = with_groups(seed, plan_for(seed), frozenset(means))
    history = SimulatedCluster(plan, loop=processor_loop(course)).run()
    found = [each for each in check(history) if each.number != "S1" or course.was_handled_again(each.text)]
    assert not found, transcript(history, found)
    assert not course.unfinished, transcript(history, [])
    assert course.gone <= holes(history)


@pytest.mark.parametrize(
    ("seed", "means"),
    [
        *((seed, "") for seed in (*range(6), 44, 246, 333, 514, 697)),
        (0, "retention"),
        (3, "retention"),
        (13, "retention"),
        (113, "retention"),
    ],
)
def test_each_row_is_in_the_database_once_whoever_crashed_was_suspended_or_lost_it(seed: int, means: str) -> None:
    """And nothing below its offsets is missing, but what was dead-lettered. 246: what is dead-lettered last is told.
    13: the log has lost a row, and the group's offset is higher. 113: a full partition is reset."""
    check_bank(seed, means)


@pytest.mark.parametrize("seed", range(6))
def test_so_it_is_where_the_database_is_silent_for_a_while(seed: int) -> None:
    check_bank(seed, "", answers_after=1.5)


def check_bank(seed: int, means: str, answers_after: float = 0.0) -> None:
    bank = Bank()
    with closing(bank):
        course = Course(
            order="partition", max_batch=4, bank=bank, answers_after=answers_after, has_outages=seed % 4 == 1
        )
        plan = with_groups(seed, plan_for(seed), frozenset(means.split()))
        history = SimulatedCluster(plan, loop=processor_loop(course)).run()
        found = [each for each in check(history) if each.number != "S1" or course.was_handled_again(each.text)]
        assert not found, transcript(history, found)
        written = bank.written()
        assert {each: times for each, times in written.items() if times > 1} == {}
        assert bank.below_positions() - set(written) - course.finished - holes(history) == set()
