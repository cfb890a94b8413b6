"""What goes on while one poll waits: it tells that we are alive, and commits what earlier polls returned."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from application_script import Script, tp

from instride._core.application.calls import Wait
from instride._core.events import Commit, Fetched, Polled


def aborted(script: Script, number: int) -> Fetched:
    """A batch without a record to return: it wakes the poll, and does not end it."""
    return Fetched(partition=tp(0), epoch=1, fetch_number=0, start=number - 1, chunk=None, next_offset=number)


@pytest.mark.rule("full-speed")
def test_a_poll_that_is_woken_all_the_time_still_shows_that_the_user_is_alive() -> None:
    """A log of aborted transactions: something comes up each second, nothing that a poll returns."""
    script = Script(max_poll_interval=30.0)
    script.subscribe()
    script.assigned(0)
    script.poll()
    script.take_posted(Polled)
    poll = script.machine.poll(script.now, 1000.0, immediate=False, limit=-1)
    next(poll)
    alive = []
    for second in range(90):
        script.up(aborted(script, second + 1))
        script.now += 1.0
        poll.send(script.now)
        if script.take_posted(Polled):
            alive.append(script.now)
    gaps = [after - before for before, after in zip([100.0, *alive], [*alive, script.now], strict=True)]
    assert max(gaps) < script.config.max_poll_interval


def test_a_poll_that_waits_commits_what_earlier_polls_returned_after_the_interval() -> None:
    script = Script(enable_auto_commit=True, auto_commit_interval=5.0)
    script.subscribe()
    script.assigned(0)
    script.fetched(0, 0, 4)
    assert script.poll() == [(0, 0, 4)]
    script.take_posted(Commit)
    poll = script.machine.poll(script.now, 1000.0, immediate=False, limit=-1)
    wait = next(poll)
    assert script.take_posted(Commit) == [], "the interval has not passed"
    assert wait == Wait(until=105.0)
    poll.send(105.0)
    (commit,) = script.take_posted(Commit)
    assert commit.entries[tp(0)].offset == 4
    assert poll.send(106.0).until > 110.0, "there is nothing new"
    poll.send(111.0)
    assert script.take_posted(Commit) == []


def test_a_poll_that_has_nothing_new_to_commit_sleeps() -> None:
    script = Script(enable_auto_commit=True, auto_commit_interval=5.0)
    script.subscribe()
    poll = script.machine.poll(script.now, 1000.0, immediate=False, limit=-1)
    assert next(poll).until > 105.0


def returned(script: Script) -> None:
    script.fetched(0, 0, 4)
    assert script.poll() == [(0, 0, 4)]


def in_two_polls(script: Script) -> None:
    script.fetched(0, 0, 4)
    assert script.poll(limit=2) == [(0, 0, 2)]
    assert script.poll(limit=2) == [(0, 2, 4)]


def paused_meanwhile(script: Script) -> None:
    """What is buffered moves the position later."""
    script.fetched(0, 0, 4)
    script.machine.pause([tp(0)])
    assert script.poll(timeout=0.5) == []
    script.machine.resume([tp(0)])
    assert script.poll() == [(0, 0, 4)]


def sought(script: Script) -> None:
    script.machine.seek(tp(0), 9)


def passed_over(script: Script) -> None:
    script.up(aborted(script, 1))


def assigned_too(script: Script) -> None:
    script.assigned(1)


def lost_and_assigned(script: Script) -> None:
    script.lost(0)
    script.poll()
    script.assigned(0, epoch=2)


@pytest.mark.parametrize(
    "moved", [returned, in_two_polls, paused_meanwhile, sought, passed_over, assigned_too, lost_and_assigned]
)
def test_whatever_moves_a_position_a_poll_that_waits_commits_it(moved: Callable[[Script], None]) -> None:
    script = Script(enable_auto_commit=True, auto_commit_interval=5.0)
    script.subscribe()
    script.assigned(0)
    script.poll(timeout=4.0)
    script.now = 106.0
    script.poll()
    assert script.take_posted(Commit)
    waiting = script.machine.poll(script.now, 1000.0, immediate=False, limit=-1)
    assert next(waiting).until > 111.0, "there is nothing new"
    moved(script)
    waiting = script.machine.poll(script.now, 1000.0, immediate=False, limit=-1)
    assert next(waiting).until == 111.0
    waiting.send(111.0)
    assert script.take_posted(Commit)


def test_a_turn_ends_with_what_was_there_when_it_began() -> None:
    """KIP-41: else a partition that is refilled between two polls keeps the others from being returned."""
    script = Script()
    script.subscribe()
    script.assigned(0, 1)
    script.poll()
    script.fetched(0, 0, 4)
    script.fetched(1, 0, 4)
    assert script.poll(limit=2) == [(0, 0, 2)]
    script.fetched(0, 4, 8)
    assert script.poll(limit=2) == [(0, 2, 4)]
    assert script.poll(limit=2) == [(1, 0, 2)]
