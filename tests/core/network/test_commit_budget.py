"""How much of a delay is kept free for its last commit (docs/rebalance.md, the deadline of a delay)."""

from __future__ import annotations

import pytest
from network_script import NetworkScript

from instride._core.events import Lost, Polled, RevocationRequested
from instride._wire import api

REBALANCE_IN_PROGRESS = 27


def slow_heartbeat(script: NetworkScript, seconds: float, error: int = 0) -> None:
    """The next heartbeat, whose response arrives so long after it was sent."""
    while "Heartbeat" not in script.waits():
        script.pass_time(0.05)
    script.do(Polled(at=script.now))
    script.pass_time(seconds)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=error))


def requested(script: NetworkScript) -> RevocationRequested:
    """A cooperative rebalance takes t-0 away; Join and Sync, which wait for others, take long."""
    slow_heartbeat(script, 0.0, REBALANCE_IN_PROGRESS)
    script.pass_time(2.0)
    script.join(2)
    script.pass_time(2.0)
    script.sync()
    (event,) = script.take(RevocationRequested)
    return event


@pytest.fixture
def script() -> NetworkScript:
    made = NetworkScript(max_poll_interval=60.0)
    made.member_of(1, 0)
    return made


@pytest.mark.rule("deadline")
@pytest.mark.parametrize(("round_trip", "budget"), [(0.1, 1.0), (0.5, 1.0), (2.0, 4.0), (4.0, 8.0)])
def test_the_budget_is_a_second_or_twice_the_round_trip_seen(
    script: NetworkScript, round_trip: float, budget: float
) -> None:
    slow_heartbeat(script, round_trip)
    event = requested(script)
    assert max(1.0, round_trip) <= script.now + 60.0 - event.deadline <= budget


@pytest.mark.rule("deadline")
def test_the_budget_leaves_half_of_the_interval() -> None:
    script = NetworkScript(max_poll_interval=10.0)
    script.member_of(1, 0)
    script.commit({0: 5})
    for _ in range(8):
        slow_heartbeat(script, 0.0)
        script.pass_time(1.0)
    script.committed()
    assert 10.0 - (requested(script).deadline - script.now) == pytest.approx(5.0)


@pytest.mark.rule("deadline")
def test_a_slow_response_is_forgotten_by_and_by(script: NetworkScript) -> None:
    slow_heartbeat(script, 8.0)
    for _ in range(6):
        script.do(Polled(at=script.now))
        slow_heartbeat(script, 0.1)
    assert 60.0 - (requested(script).deadline - script.now) == pytest.approx(1.0)


@pytest.mark.rule("deadline")
def test_a_commit_sent_at_the_deadline_has_the_whole_budget_for_its_response(script: NetworkScript) -> None:
    slow_heartbeat(script, 8.0)
    event = requested(script)
    budget = script.now + 60.0 - event.deadline
    assert budget > 3.0
    while script.now < event.deadline - 0.1:
        script.do(Polled(at=script.now))
        script.pass_time(min(1.0, event.deadline - 0.1 - script.now))
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    script.commit({0: 5})
    script.complete(0)
    script.pass_time(budget - 0.5)
    assert script.take(Lost) == []
    script.committed()
    assert script.take(Lost) == []
    assert "JoinGroup" in script.waits(), "it is let go of, and the group is told"
