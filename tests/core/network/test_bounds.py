"""The bounds of docs/timeouts.md and rule 21, to the millisecond of virtual time: what needs no waiting is done in the
same moment, and what waits ends when its bound does. Whatever only slows one of these down fails here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Lost, Pause, Polled, Resume, RevocationRequested
from instride._wire import api

pytestmark = pytest.mark.rule("21")

REBALANCE_IN_PROGRESS, COORDINATOR_LOADING = 27, 14
MOMENT = 0.0021


def seconds_until(script: NetworkScript, happened: Callable[[], bool], most: float = 1000.0) -> float:
    """Virtual seconds, from deadline to deadline."""
    start = script.now
    while not happened():
        script.now = max(script.machine.deadline(), script.now + 0.001)
        assert script.now - start <= most
        script.settle()
    return script.now - start


def member(*partitions: int) -> NetworkScript:
    script = NetworkScript(session_timeout=20.0, heartbeat_interval=6.0, request_timeout=8.0, max_poll_interval=60.0)
    script.subscribe()
    script.do(Polled(at=script.now))
    script.join(1)
    script.sync(*partitions)
    return script


def waits_for(script: NetworkScript, name: str) -> Callable[[], bool]:
    return lambda: name in script.waits()


# -- at once


def test_an_assignment_is_looked_up_and_fetched_at_once() -> None:
    assert "Fetch" in member(0).waits()


def test_a_fetch_follows_the_one_before_at_once() -> None:
    script = member(0)
    for _ in range(5):
        script.response(api.Fetch, api.FetchResponse())
        assert "Fetch" in script.waits()


def test_a_commit_is_sent_at_once() -> None:
    script = member(0)
    script.commit({0: 1})
    assert "OffsetCommit" in script.waits()


def test_a_commit_follows_the_one_before_at_once() -> None:
    script = member(0)
    script.commit({0: 1})
    script.commit({0: 2})
    assert script.committed() == {0: 1}
    assert "OffsetCommit" in script.waits()


def test_a_rebalance_that_a_heartbeat_tells_is_joined_at_once() -> None:
    script = member(0)
    script.heartbeat(error=REBALANCE_IN_PROGRESS)
    assert "JoinGroup" in script.waits()


def test_what_is_resumed_is_fetched_at_once() -> None:
    script = member(0)
    epoch = script.epoch(0)
    script.do(Pause(partition=tp(0), epoch=epoch))
    script.response(api.Fetch, api.FetchResponse())
    assert "Fetch" not in script.waits()
    script.do(Resume(partition=tp(0), epoch=epoch))
    assert "Fetch" in script.waits()


def test_the_end_of_a_hold_is_told_at_once() -> None:
    script = member(0, 1)
    script.heartbeat(error=REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    assert [set(each.partitions) for each in script.take(RevocationRequested)] == [{tp(1)}]
    script.complete(1)
    assert "JoinGroup" in script.waits()


# -- at their bound


def test_what_failed_is_tried_again_after_the_back_off() -> None:
    script = member(0)
    script.commit({0: 1})
    script.committed(error=COORDINATOR_LOADING)
    assert seconds_until(script, waits_for(script, "OffsetCommit")) == pytest.approx(
        script.config.retry_backoff, abs=MOMENT
    )


def test_heartbeats_come_at_their_interval() -> None:
    script = member(0)
    for _ in range(4):
        assert seconds_until(script, waits_for(script, "Heartbeat")) == pytest.approx(6.0, abs=MOMENT)
        script.response(api.Heartbeat, api.HeartbeatResponse())


def test_a_heartbeat_ends_after_the_smaller_of_its_bounds() -> None:
    """The smaller of request_timeout and half of session_timeout."""
    script = member(0)
    seconds_until(script, waits_for(script, "Heartbeat"))
    beat = next(each for each in script.waiting if isinstance(each.request, api.Heartbeat))
    assert seconds_until(script, lambda: beat not in script.waiting) == pytest.approx(8.0, abs=MOMENT)


def test_a_request_ends_after_request_timeout() -> None:
    script = NetworkScript(request_timeout=8.0, session_timeout=60.0, heartbeat_interval=20.0, max_poll_interval=90.0)
    script.subscribe()
    script.do(Polled(at=script.now))
    script.rebalance(1, 0)
    script.commit({0: 1})
    commit = next(each for each in script.waiting if isinstance(each.request, api.OffsetCommit))
    assert seconds_until(script, lambda: commit not in script.waiting) == pytest.approx(8.0, abs=MOMENT)


def test_a_join_waits_for_the_others_as_long_as_it_says() -> None:
    """The larger of request_timeout and max_poll_interval + 5."""
    script = NetworkScript(request_timeout=8.0, max_poll_interval=20.0)
    script.subscribe()
    join = next(each for each in script.waiting if isinstance(each.request, api.JoinGroup))
    spent = 0.0
    while join in script.waiting:  # who polls on is not thrown out
        script.do(Polled(at=script.now))
        script.pass_time(0.5)
        spent += 0.5
    assert spent == pytest.approx(25.0, abs=0.5)


def test_a_member_fences_itself_a_session_after_its_last_heartbeat() -> None:
    script = member(0)
    seconds_until(script, waits_for(script, "Heartbeat"))
    sent = script.now
    script.now += 1.0
    script.response(api.Heartbeat, api.HeartbeatResponse())
    assert script.lease.expires == pytest.approx(sent + 20.0, abs=MOMENT)


def test_who_does_not_poll_leaves_after_max_poll_interval() -> None:
    script = member(0)
    beats_on(script, 59.0)
    assert script.take(Lost) == []
    beats_on(script, 1.01)
    assert [set(each.partitions) for each in script.take(Lost)] == [{tp(0)}]


def test_a_delay_ends_a_commit_budget_before_max_poll_interval() -> None:
    script = member(0, 1)
    script.heartbeat(error=REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    (requested,) = script.take(RevocationRequested)
    assert requested.deadline == pytest.approx(script.now + 60.0 - 1.0, abs=MOMENT)
    script.do(Polled(at=script.now))
    beats_on(script, 58.9)
    script.do(Polled(at=script.now))
    assert script.take(Lost) == []
    beats_on(script, 0.2)
    assert [set(each.partitions) for each in script.take(Lost)] == [{tp(1)}]


def beats_on(script: NetworkScript, seconds: float) -> None:
    """Time passes, and heartbeats get their responses."""
    end = script.now + seconds
    while script.now < end:
        script.pass_time(min(0.05, end - script.now))
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
