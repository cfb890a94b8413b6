"""Bugs that the simulation found, each at the lowest level that shows it."""

from __future__ import annotations

from typing import TypeVar

import pytest
from network_script import NetworkScript, tp

from instride._core.events import CallCompleted, Lost, Polled, RevocationRequested, Revoked
from instride._core.network.actions import Action, ConnectionKey, OpenConnection, Role
from instride._wire import api
from instride.errors import CommitFailedError, TransportError

COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
REBALANCE_IN_PROGRESS = 27


def test_after_the_poll_interval_the_thread_sleeps_until_the_application_polls() -> None:
    """Seed 7: the deadline stayed in the past, and the network thread turned without a pause."""
    script = NetworkScript(max_poll_interval=5.0, commit_budget=1.0)
    script.member_of(1, 0)
    for _ in range(3):
        script.pass_time(3.0)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    assert script.machine.deadline() > script.now
    script.do(Polled(at=script.now))
    script.requested(api.JoinGroup)


@pytest.mark.rule("fence yourself")
@pytest.mark.parametrize("pending", ["join", "sync"])
def test_a_process_suspended_during_a_join_or_sync_has_no_lease_when_it_goes_on(pending: str) -> None:
    """Seed 754: the lease had no end while a join was pending, so a member that had been evicted returned records."""
    script = NetworkScript()
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    if pending == "sync":
        script.join(2)
    assert script.lease.holds(script.now)
    script.now += script.config.session_timeout + 1.0  # no turn of the thread meanwhile
    assert not script.lease.holds(script.now), "the application may be the first to run"
    script.settle()
    assert not script.lease.holds(script.now), "what is pending may have had its response long since"
    if pending == "join":
        script.join(2)
    script.sync(0)
    script.heartbeat()
    assert script.lease.holds(script.now)
    assert script.take(Lost) == []
    assert script.epoch(0) == 1, "it is what it was"


class SlowToConnect(NetworkScript):
    """Where `slow`, connections stay on their way."""

    slow = False

    def _act(self, action: Action) -> None:
        if not (self.slow and isinstance(action, OpenConnection)):
            super()._act(action)


@pytest.mark.rule("fence yourself")
def test_a_commit_that_waits_for_its_connection_is_not_sent_without_a_lease() -> None:
    """Seed 333: it was handed over in time, and transmitted when a partition had healed, after the session's end."""
    script = SlowToConnect(session_timeout=6.0, heartbeat_interval=1.0, request_timeout=20.0)
    script.member_of(1, 0)
    key = ConnectionKey(Role.COORDINATOR, 1)
    script.slow = True
    script.machine.closed(key, TransportError("it broke"), script.now)
    call = script.commit({0: 5})
    script.pass_time(7.0)
    assert not script.lease.holds(script.now)
    script.machine.opened(key, script.now)
    script.settle()
    assert "OffsetCommit" not in script.waits()
    script.heartbeat()
    assert script.requested(api.OffsetCommit).offsets[tp(0)].offset == 5, "it waits, and is not dropped"
    script.committed()
    assert [event.call for event in script.take(CallCompleted)] == [call]


@pytest.mark.rule("deadline")
def test_a_commit_that_waits_for_its_connection_leaves_out_what_is_lost_meanwhile() -> None:
    """Seed 2003737: the deadline of a delay passed while the new coordinator's connection was opened."""
    script = SlowToConnect(max_poll_interval=10.0, session_timeout=60.0, heartbeat_interval=1.0, request_timeout=30.0)
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    (request,) = script.take(RevocationRequested)
    key = ConnectionKey(Role.COORDINATOR, 1)
    script.slow = True
    script.machine.closed(key, TransportError("it broke"), script.now)
    call = script.commit({0: 5, 1: 7})
    while script.now < request.deadline + 0.5:
        script.do(Polled(at=script.now))
        script.pass_time(0.5)
    assert [set(event.partitions) for event in script.take(Lost)] == [{tp(1)}]
    script.machine.opened(key, script.now)
    script.settle()
    assert set(script.requested(api.OffsetCommit).offsets) == {tp(0)}, "the others of it are not held up"
    script.committed()
    (response,) = [event for event in script.take(CallCompleted) if event.call == call]
    assert response.committed[tp(0)] is None
    assert isinstance(response.committed[tp(1)], CommitFailedError)


@pytest.mark.rule("deadline")
def test_what_could_not_be_committed_by_the_deadline_is_lost_and_not_revoked() -> None:
    """Seed 20075 of an early plan: the commit was dropped, and the partition was told as orderly revoked."""
    script = NetworkScript(max_poll_interval=10.0, session_timeout=6.0, heartbeat_interval=1.0)
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    (request,) = script.take(RevocationRequested)
    call = script.commit({1: 5})
    script.complete(1)
    while script.now < request.deadline + script.config.commit_budget + 0.5:
        script.do(Polled(at=script.now))
        script.pass_time(0.5)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    assert [set(event.partitions) for event in script.take(Lost)] == [{tp(1)}]
    assert script.take(Revoked) == []
    assert script.joining_with().owned == (tp(0),), "the budget has ended: the group is told at once"
    script.committed(ILLEGAL_GENERATION)
    (response,) = [event for event in script.take(CallCompleted) if event.call == call]
    assert isinstance(response.committed[tp(1)], CommitFailedError)


S = TypeVar("S", bound=NetworkScript)


def rejoining(kind: type[S]) -> S:
    """A member whose Join is pending."""
    script = kind(session_timeout=6.0, heartbeat_interval=1.0)
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    return script


def heartbeats_for_longer_than_a_session(script: NetworkScript, code: int) -> None:
    """Each has this response, while the Join is pending."""
    script.requested(api.JoinGroup)
    heard = script.now
    for _ in range(7):
        script.heartbeat(code)
    assert script.now > heard + script.config.session_timeout


@pytest.mark.rule("fence yourself")
def test_a_member_that_is_cut_off_has_no_lease_though_its_join_is_pending() -> None:
    """Seed 100239: the Join never reached the coordinator, and renewed the lease of a member that was evicted."""
    script = rejoining(NetworkScript)
    heard = script.now
    script.reachable = False
    script.pass_time(script.config.session_timeout - 0.5)
    assert script.lease.expires <= heard + script.config.session_timeout
    script.pass_time(10.0)
    assert not script.lease.holds(script.now)


@pytest.mark.rule("fence yourself")
def test_a_join_that_is_on_no_connection_yet_renews_no_lease() -> None:
    """S10: a commit went out although nobody could know whether the member still was one."""
    script = rejoining(SlowToConnect)
    script.requested(api.JoinGroup)
    known = script.lease.expires
    script.slow = True
    script.machine.closed(ConnectionKey(Role.JOIN, 1), TransportError("cut"), script.now)
    script.pass_time(1.5)
    assert script.waits().count("JoinGroup") == 1, "the other Join waits for its connection"
    assert script.lease.expires <= known


@pytest.mark.rule("fence yourself")
def test_illegal_generation_is_no_sign_of_life_when_the_join_has_failed() -> None:
    """Seed 904: the broker may have removed the member after the heartbeat before; with no Join or Sync of ours at the
    broker this code renews no session there. A Join that failed may have been followed, so it is no loss either."""
    script = rejoining(NetworkScript)
    heard = script.now
    script.pass_time(1.0)
    script.requested(api.Heartbeat)
    script.coordinator_error = COORDINATOR_NOT_AVAILABLE
    script.response(api.JoinGroup, TransportError("cut"))
    script.response(api.Heartbeat, api.HeartbeatResponse(error=ILLEGAL_GENERATION))
    assert script.lease.expires <= heard + script.config.session_timeout
    assert script.take(Lost) == []


@pytest.mark.rule("fence yourself")
def test_illegal_generation_is_a_sign_of_life_while_a_join_is_in_flight() -> None:
    script = rejoining(NetworkScript)
    heartbeats_for_longer_than_a_session(script, ILLEGAL_GENERATION)
    assert script.lease.holds(script.now)
    assert script.take(Lost) == []


@pytest.mark.rule("fence yourself")
def test_a_refused_heartbeat_tells_of_no_membership_though_a_join_is_pending() -> None:
    """A broker that says it is not the coordinator cannot know of the member either."""
    script = rejoining(NetworkScript)
    heartbeats_for_longer_than_a_session(script, NOT_COORDINATOR)
    assert not script.lease.holds(script.now)
