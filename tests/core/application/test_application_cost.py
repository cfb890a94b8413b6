"""The application side's work grows with the partitions, and no faster: twice as many, twice the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from application_script import RecordingListener, Script, epochs, tp

from held_bytes import bytes_of
from instride._core.events import (
    Assigned,
    CommitsSettled,
    FetchesBegan,
    Positioned,
    PositionsFound,
    RevocationRequested,
    Revoked,
)
from instride.telemetry import FetchBegan
from step_counter import calls, steps

pytestmark = pytest.mark.rule("20")

FEW = 150


class Hashed(int):
    """A number of a partition; counts how often a table looks for it, which happens in C."""

    looks = 0

    def __hash__(self) -> int:
        Hashed.looks += 1
        return int(self)


def member(many: int, *, immediate: bool = False, **settings: Any) -> Script:
    script = Script(**settings)
    script.immediate = immediate
    script.subscribe(RecordingListener())
    script.assigned(*range(many))
    script.poll()
    return script


def revoked(script: Script, many: int) -> None:
    script.up(*(Revoked(partitions=epochs(p)) for p in range(many)))
    script.poll()


def assign(many: int) -> Callable[[], object]:
    return lambda: member(many)


def assign_and_position(many: int) -> Callable[[], object]:
    """As a group's member hears it: the assignment, where each begins, and that each is fetched."""
    script = Script()
    script.subscribe()
    assigned = Assigned(generation=1, partitions=epochs(*range(many)))
    where = [Positioned(partition=tp(p), epoch=1, seek_number=0, offset=0) for p in range(many)]
    began = [FetchBegan(at=1.0, partition=tp(p), epoch=1, assigned_at=0.5) for p in range(many)]

    def polls() -> None:
        for event in (assigned, PositionsFound(positions=tuple(where)), FetchesBegan(began=tuple(began))):
            script.up(event)
            script.poll()
        script.machine.telemetry()

    return polls


def assign_one_by_one_with_early_data(many: int) -> Callable[[], object]:
    script = Script()
    script.subscribe()
    for p in range(many):
        script.fetched(p, 0, 1)
    for p in range(many):
        script.assigned(p)
    return script.poll


def idle(many: int) -> Callable[[], object]:
    script = member(many)
    return lambda: script.poll(timeout=0.5)


def lose_with_early_data(many: int) -> Callable[[], object]:
    script = member(many)
    script.assigned(*range(many), epoch=2)
    for p in range(many):
        script.fetched(p, 0, 1, epoch=2)
    script.up(RevocationRequested(partitions=epochs(*range(many)), deadline=400.0))
    script.lost(*range(many), epoch=2)
    return script.poll


def lose_one_by_one(many: int) -> Callable[[], object]:
    script = member(many)
    for p in range(many):
        script.lost(p)
    return lambda: (script.poll(), script.machine.telemetry())


def delay_one_by_one(many: int) -> Callable[[], object]:
    script = member(many)
    script.revocation_requested(*range(many))
    script.poll()
    return lambda: [script.delay(p) for p in range(many)]


def reassign(many: int) -> Callable[[], object]:
    script = member(many)
    script.revocation_requested(*range(many))
    script.poll()
    script.delay(*range(many))
    script.reassigned(*range(many))
    return lambda: (script.poll(), script.machine.telemetry())


def revoke_one_by_one(many: int) -> Callable[[], object]:
    script = member(many)
    for p in range(many):
        script.revocation_requested(p)
    script.poll()
    script.poll()
    return lambda: revoked(script, many)


def revoke_at_once(many: int) -> Callable[[], object]:
    script = member(many, immediate=True)
    script.revocation_requested(*range(many))
    script.poll()
    return lambda: revoked(script, many)


def revoke_at_once_and_commit(many: int) -> Callable[[], object]:
    script = member(many, immediate=True)
    script.revocation_requested(*range(many))
    script.poll()
    script.up(*(CommitsSettled(partitions=epochs(p)) for p in range(many)))
    return script.poll


def assign_after_a_release(many: int) -> Callable[[], object]:
    """The hand-overs of some are not told yet while the others are assigned."""
    script = member(2 * many)
    script.lost(*range(many, 2 * many))
    script.assigned(*range(many), epoch=2)
    return script.poll


def assign_by_hand(many: int) -> Callable[[], object]:
    script = Script()
    script.machine.assign([tp(p) for p in range(many)])
    return lambda: script.machine.assign([tp(p) for p in range(many // 2, many + many // 2)])


@pytest.mark.parametrize(
    "situation",
    [
        assign,
        assign_and_position,
        assign_one_by_one_with_early_data,
        idle,
        lose_with_early_data,
        lose_one_by_one,
        delay_one_by_one,
        reassign,
        revoke_one_by_one,
        revoke_at_once,
        revoke_at_once_and_commit,
        assign_after_a_release,
        assign_by_hand,
    ],
)
def test_twice_the_partitions_take_twice_the_steps(situation: Callable[[int], Callable[[], object]]) -> None:
    few, many = steps(situation(FEW)), steps(situation(2 * FEW))
    assert many <= 2.1 * few, f"{few} steps with {FEW} partitions, {many} with twice as many"


def test_a_partition_that_is_assigned_costs_the_application_few_calls() -> None:
    few, many = (calls(assign_and_position(each)) / each for each in (FEW, 10 * FEW))
    assert many <= few, f"{few} calls a partition among {FEW}, {many} among ten times as many"
    assert many <= 28  # 25 with Python 3.11; newer ones count some more of what is written in C


def empty_poll(script: Script) -> Callable[[], object]:
    return script.poll


def poll_of_one(script: Script) -> Callable[[], object]:
    script.fetched(3, 0, 5)
    return script.poll


def poll_beside_paused(script: Script) -> Callable[[], object]:
    """Of all but a few something is buffered behind a pause: their handlers are slow."""
    paused = range(10, len(script.assignment()))
    script.machine.pause([tp(p) for p in paused])
    for p in paused:
        script.fetched(p, 0, 1)
    script.poll()
    script.fetched(4, 0, 5)
    return lambda: (script.poll(), script.poll(timeout=0.5))


def lists(script: Script) -> Callable[[], object]:
    machine = script.machine
    return lambda: (machine.to_be_revoked(), machine.lost(), machine.failed(), machine.paused())


def waiting_poll(script: Script) -> Callable[[], object]:
    return lambda: script.poll(timeout=0.5)


@pytest.fixture(scope="module", params=[False, True], ids=["", "auto-commit"])
def idle_ones(request: pytest.FixtureRequest) -> tuple[Script, Script]:
    """With auto-commit all of them are committed where they stand, and the next time is not due yet."""
    few, many = (member(each, enable_auto_commit=request.param, auto_commit_interval=3600.0) for each in (100, 10_000))
    for each in (few, many):
        each.now += 3600.0
        each.poll()
        each.poll(timeout=0.5)
    return few, many


@pytest.mark.parametrize("situation", [empty_poll, waiting_poll, poll_of_one, lists, poll_beside_paused])
def test_idle_partitions_cost_a_poll_nothing(
    situation: Callable[[Script], Callable[[], object]], idle_ones: tuple[Script, Script]
) -> None:
    few, many = (steps(situation(each)) for each in idle_ones)
    assert many <= few + 20, f"{few} steps with 100 partitions, {many} with 10,000"


def poll_of_a_part(filled: int) -> int:
    """Calls of a poll that takes one record more of the partition of which the one before took one."""
    script = member(20)
    for p in range(filled):
        script.fetched(p, 0, 5)
        script.fetched(p, 5, 10)
    script.poll(limit=1)
    script.poll(limit=1)
    return calls(lambda: script.poll(limit=1))


def test_a_poll_that_takes_a_part_of_one_partition_looks_at_no_other() -> None:
    """The default size of a poll is far below what is buffered."""
    assert poll_of_a_part(20) == poll_of_a_part(1)
    assert poll_of_a_part(20) <= 82  # 75 with Python 3.11


def test_another_assign_looks_at_each_partition_a_few_times() -> None:
    def looks(many: int) -> int:
        script = Script()
        script.machine.assign([tp(Hashed(p)) for p in range(many)])
        wanted = [tp(Hashed(p)) for p in range(many // 2)]
        Hashed.looks = 0
        script.machine.assign(wanted)
        return Hashed.looks

    assert looks(2 * FEW) <= 2.1 * looks(FEW)


def test_an_assigned_partition_costs_little_memory() -> None:
    script, bytes_kept = bytes_of("application", lambda: member(1000))
    assert len(script.machine.assignment()) == 1000
    assert bytes_kept < 1000 * 1000, bytes_kept


def test_a_mark_that_is_not_true_any_more_is_looked_at_once() -> None:
    """All but the last partition were committed just now; the last has something new whenever a poll waits."""

    def second_look(many: int) -> int:
        script = member(many, enable_auto_commit=True, auto_commit_interval=3600.0)
        script.now += 3600.0
        script.fetched(many - 1, 0, 5)
        script.poll()
        script.poll(timeout=0.5)
        return steps(lambda: script.poll(timeout=0.5))

    few, many = second_look(100), second_look(1000)
    assert many <= few + 20, f"{few} steps with 100 partitions, {many} with 1,000"


def assigned_and_lost(times: int, *, auto_commit: bool) -> Script:
    """By polls that do not wait; no listener, and nobody asks what is paused."""
    script = Script(enable_auto_commit=auto_commit, auto_commit_interval=5.0)
    script.subscribe()
    script.assigned(*range(20))
    script.poll()
    for epoch in range(1, times + 1):
        script.machine.pause([tp(p) for p in range(10)])
        for p in range(20):
            script.fetched(p, 0, 5, epoch=epoch)
        script.poll(limit=10)
        script.lost(*range(20), epoch=epoch)
        script.poll()
        script.assigned(*range(20), epoch=epoch + 1)
        script.now += 1.0
        script.poll()
        script.posted.clear()
        script.machine.telemetry()
    return script


@pytest.mark.parametrize("auto_commit", [False, True])
def test_what_was_lost_is_kept_nowhere(auto_commit: bool) -> None:
    few = bytes_of("application", lambda: assigned_and_lost(10, auto_commit=auto_commit))[1]
    many = bytes_of("application", lambda: assigned_and_lost(100, auto_commit=auto_commit))[1]
    assert many <= few * 1.2, f"{few} bytes after 10 losses, {many} after 100"


def assigned_in_turns(times: int) -> Script:
    """By hand: no revoke and no loss takes what the next assign() does not name."""
    script = Script()
    for number in range(times):
        script.machine.assign([tp(number % 2)])
        script.up(Positioned(partition=tp(number % 2), epoch=number + 1, seek_number=0, offset=0))
        script.fetched(number % 2, 0, 5, epoch=number + 1)
        script.machine.pause([tp(number % 2)])
        script.poll()
        script.posted.clear()
        script.machine.telemetry()
    return script


def test_what_another_assign_does_not_name_is_kept_nowhere() -> None:
    few = bytes_of("application", lambda: assigned_in_turns(10))[1]
    many = bytes_of("application", lambda: assigned_in_turns(200))[1]
    assert many <= few * 1.2, f"{few} bytes after 10 assignments, {many} after 200"
