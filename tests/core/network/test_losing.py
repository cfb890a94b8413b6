"""Lost in the middle of something: what is told, what is sent, and when the group hears of it."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Assign, Assigned, CallCompleted, CompleteRevoke, Lost, Revoked
from instride._wire import api
from instride.errors import CommitFailedError, TransportError

UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, LOADING = 25, 27, 14


@pytest.fixture
def script() -> NetworkScript:
    """A member whose t-1 was requested."""
    made = NetworkScript()
    made.member_of(1, 0, 1)
    made.heartbeat(REBALANCE_IN_PROGRESS)
    made.rebalance(2, 0)
    return made


@pytest.mark.rule("completing")
def test_lost_with_every_response_is_revoked(script: NetworkScript) -> None:
    epoch = script.epoch(1)
    script.pass_time(script.config.heartbeat_interval)
    script.machine.handle(CompleteRevoke(partitions={tp(1): epoch}), script.now)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=UNKNOWN_MEMBER_ID))
    assert [event.partitions for event in script.take(Revoked)] == [{tp(1): epoch}]
    assert [list(event.partitions) for event in script.take(Lost)] == [[tp(0)]]


@pytest.mark.rule("completing")
def test_lost_while_completing_sends_no_new_commit_and_waits_for_the_one_in_flight(script: NetworkScript) -> None:
    in_flight, queued = script.commit({1: 5}), script.commit({1: 9})
    script.complete(1)
    script.heartbeat(UNKNOWN_MEMBER_ID)
    assert {each for event in script.take(Lost) for each in event.partitions} == {tp(0), tp(1)}
    (response,) = script.take(CallCompleted)
    assert response.call == queued
    assert isinstance(response.committed[tp(1)], CommitFailedError)
    assert "JoinGroup" not in script.waits(), "the commit could land late"
    assert script.committed() == {1: 5}
    assert script.take(CallCompleted)[0].call == in_flight
    assert "OffsetCommit" not in script.waits()
    assert script.requested(api.JoinGroup).member_id == ""


@pytest.mark.rule("completing")
def test_the_commit_budget_bounds_the_wait_for_a_commit_in_flight(script: NetworkScript) -> None:
    script.commit({1: 5})
    script.complete(1)
    script.heartbeat(UNKNOWN_MEMBER_ID)
    script.pass_time(script.config.commit_budget * 0.9)
    assert "JoinGroup" not in script.waits()
    script.pass_time(script.config.commit_budget * 0.2)
    script.requested(api.JoinGroup)


@pytest.mark.rule("full-speed")
def test_a_lost_partitions_commit_is_not_sent_again(script: NetworkScript) -> None:
    script.commit({0: 5})
    script.heartbeat(UNKNOWN_MEMBER_ID)
    script.response(api.OffsetCommit, TransportError("gone"))
    (response,) = script.take(CallCompleted)
    assert isinstance(response.committed[tp(0)], CommitFailedError)
    script.pass_time(3.0)
    script.rebalance(3, 0)
    assert "OffsetCommit" not in script.waits()


@pytest.mark.rule("full-speed")
def test_an_epoch_is_never_used_twice(script: NetworkScript) -> None:
    for generation in range(3, 8):
        script.heartbeat(UNKNOWN_MEMBER_ID)
        script.rebalance(generation, 0, 1)
    epochs = [epoch for event in script.take(Assigned) for epoch in event.partitions.values()]
    assert len(epochs) == len(set(epochs)) == 12
    assert epochs == sorted(epochs)


def test_responses_of_an_old_membership_are_ignored(script: NetworkScript) -> None:
    script.pass_time(script.config.heartbeat_interval)
    script.commit({0: 5})
    script.committed(UNKNOWN_MEMBER_ID)
    assert len(script.take(Lost)) == 1
    script.response(api.Heartbeat, api.HeartbeatResponse(error=UNKNOWN_MEMBER_ID))
    assert script.take(Lost) == []
    assert script.requested(api.JoinGroup).member_id == ""


def test_what_was_handed_over_before_another_assign_is_sent_all_the_same() -> None:
    """Nobody else waits for a partition that was assigned by hand. It may even have to be sent twice."""
    script = NetworkScript()
    script.do(Assign(partitions={tp(0): 1, tp(1): 2}))
    calls = {script.commit({0: 5}, epoch=1), script.commit({1: 6}, epoch=2)}
    script.do(Assign(partitions={tp(2): 3}))
    script.committed(LOADING)
    script.pass_time(2.0)
    assert script.committed() == {0: 5, 1: 6}
    completed = script.take(CallCompleted)
    assert {each.call for each in completed} == calls
    assert all(error is None for each in completed for error in each.committed.values())
