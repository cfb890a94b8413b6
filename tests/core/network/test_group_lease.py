"""The lease where `max_poll_interval` is below `session_timeout`: the group may rebalance, and go on without a member
that did not join within its rebalance time-out, before the session of that member ends."""

from __future__ import annotations

from typing import Any

import pytest
from network_script import NetworkScript

from instride._core.events import Lost, Polled
from instride._core.network.actions import Action, ConnectionKey, OpenConnection, Role
from instride._wire import api
from instride.errors import TransportError

REBALANCE_IN_PROGRESS = 27

pytestmark = pytest.mark.rule("fence yourself")


class Cut(NetworkScript):
    """Where `cut`, no connection opens for Join and Sync."""

    cut = False

    def _act(self, action: Action) -> None:
        if not (self.cut and isinstance(action, OpenConnection) and action.key.role is Role.JOIN):
            super()._act(action)

    def poll_for(self, seconds: float) -> None:
        """No heartbeat has a response."""
        end = self.now + seconds
        while self.now < end:
            self.do(Polled(at=self.now))
            self.pass_time(min(0.25, end - self.now))


def member(**settings: Any) -> Cut:
    """A stable one, whose last heartbeat was sent and had its response just now."""
    bounds = {"session_timeout": 9.0, "heartbeat_interval": 0.5, "max_poll_interval": 3.0, "commit_budget": 1.0}
    script = Cut(**{**bounds, **settings})
    script.member_of(1, 0)
    beat(script)
    return script


def beat(script: Cut, error: int = 0) -> None:
    """As `heartbeat`, by a member that polls."""
    script.do(Polled(at=script.now))
    script.heartbeat(error)
    script.do(Polled(at=script.now))


@pytest.mark.parametrize("instance", [None, "one"])
def test_who_is_cut_off_has_a_lease_until_a_rebalance_may_end_without_it(instance: str | None) -> None:
    """Seed 439625: it returned records for the whole session, and another member had been assigned its partitions. A
    static member stays in the group then, but is assigned other partitions."""
    script = member(group_instance_id=instance)
    heard = script.now
    script.poll_for(2.9)
    assert script.lease.holds(script.now)
    script.poll_for(0.2)
    assert script.lease.expires == heard + script.config.max_poll_interval
    assert not script.lease.holds(script.now)
    assert script.take(Lost) == [], "whether it is lost, the next response says"


def test_that_a_rebalance_is_under_way_is_no_time_more_to_join_it() -> None:
    """It began after the last heartbeat that named none; the member's Join reaches nobody, its heartbeats do."""
    script = member()
    well = script.now
    script.cut = True
    script.machine.closed(ConnectionKey(Role.JOIN, 1), TransportError("cut"), script.now)
    while script.now < well + 2.0:
        beat(script, REBALANCE_IN_PROGRESS)
    assert script.lease.expires == well + script.config.max_poll_interval


def test_a_join_that_no_heartbeat_has_followed_may_not_have_arrived() -> None:
    script = member()
    well = script.now
    beat(script, REBALANCE_IN_PROGRESS)
    script.requested(api.JoinGroup)
    script.poll_for(1.0)
    assert script.lease.expires == well + script.config.max_poll_interval


@pytest.mark.parametrize("leader", [False, True])
def test_who_has_joined_waits_for_the_others_longer_than_its_own_time(leader: bool) -> None:
    """The group's rebalance time-out is the longest of all members'."""
    script = member()
    well = script.now
    beat(script, REBALANCE_IN_PROGRESS)
    while script.now < well + 10.0:
        beat(script, REBALANCE_IN_PROGRESS)
        assert script.lease.holds(script.now)
    script.hold_assigning = True
    script.join(2, leader=leader)
    assert script.lease.holds(script.now)
    beat(script)
    if leader:
        script.assigned()
        script.settle()
    script.sync(0)
    assert script.lease.holds(script.now)


def test_a_rebalance_that_overtakes_a_long_one_began_after_that() -> None:
    script = member()
    well = script.now
    while script.now < well + 10.0:
        beat(script, REBALANCE_IN_PROGRESS)
    script.join(2)
    script.response(api.SyncGroup, api.SyncGroupResponse(error=REBALANCE_IN_PROGRESS))
    script.requested(api.JoinGroup)
    assert script.lease.holds(script.now)


def test_with_a_heartbeat_interval_above_the_lease_it_holds_nevertheless() -> None:
    """With the default interval the lease would end before each heartbeat."""
    script = Cut(max_poll_interval=3.0, commit_budget=1.0)
    script.member_of(1, 0)
    for _ in range(40):
        script.poll_for(0.25)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
        assert script.lease.expires >= script.now + 1.5


def test_a_stuck_heartbeat_ends_in_time_for_another_before_the_lease_does() -> None:
    script = member(session_timeout=45.0, request_timeout=30.0)
    script.poll_for(2.5)
    script.response(api.Heartbeat, api.HeartbeatResponse())
    assert script.lease.holds(script.now + 2.0)
