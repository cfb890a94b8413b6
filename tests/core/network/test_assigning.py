"""A leader's assignor runs elsewhere (law 6 of `Joining`), and may take long."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import pytest
from network_script import NetworkScript, tp

from instride._core.events import ErrorRaised, Lost, PartitionsAssigned, Polled, Unsubscribe
from instride._core.network.actions import PerformAssignment
from instride._wire import api
from instride._wire.consumer_protocol import read_assignment
from instride.assignors import Assignment, ClusterView, MemberSubscription, RebalanceProtocol
from instride.errors import AssignorError, ErrorCode, TransportError
from instride.records import TopicPartition


class Noted:
    """Everything to the first member. calls: of its methods, in order. fails: what `assign` raises."""

    name = "noted"
    version = 0
    protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: BaseException | None = None

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        self.calls.append("userdata")
        return None

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        self.calls.append("assign")
        if self.fails is not None:
            raise self.fails
        everything = tuple(each for topic in cluster.partitions for each in cluster.of_topic(topic))
        return {member.member_id: () if place else everything for place, member in enumerate(members)}

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        self.calls.append("on_assignment")


@pytest.fixture
def assignor() -> Noted:
    return Noted()


@pytest.fixture
def script(assignor: Noted) -> NetworkScript:
    script = NetworkScript(topics={"t": 2}, session_timeout=6.0, heartbeat_interval=1.0, assignors=[assignor])
    script.hold_assigning = True
    return script


def begin(script: NetworkScript) -> None:
    """A leader whose assignor has not ended."""
    script.subscribe()
    script.join(1, leader=True)
    assert len(script.assigning) == 1


def ends(script: NetworkScript) -> None:
    script.assigned()
    script.settle()


def made(script: NetworkScript) -> Mapping[str, Sequence[TopicPartition]]:
    assignments = script.requested(api.SyncGroup).assignments
    return {member: read_assignment(each).partitions for member, each in assignments.items()}


def beats_go_on(script: NetworkScript, seconds: int) -> None:
    for _ in range(seconds):
        script.heartbeat()


@pytest.mark.rule("membership")
def test_heartbeats_go_on_while_an_assignor_takes_longer_than_a_session(script: NetworkScript) -> None:
    begin(script)
    beats_go_on(script, 60)
    assert script.waits() == []
    assert script.lease.holds(script.now)
    ends(script)
    assert made(script) == {"me": (tp(0), tp(1))}


def test_that_an_assignor_takes_long_is_told_ever_more_seldom(script: NetworkScript) -> None:
    begin(script)
    beats_go_on(script, 45)
    told = [line for line in script.logs if "has been assigning" in line]
    assert told == [
        f"assignor 'noted' has been assigning partitions for {seconds} s; group 'g' waits for it"
        for seconds in (10, 20, 40)
    ]


def test_what_an_ended_membership_wanted_is_thrown_away(script: NetworkScript, assignor: Noted) -> None:
    begin(script)
    script.pass_time(1.0)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=ErrorCode.UNKNOWN_MEMBER_ID))
    script.pass_time(1.0)
    assert "JoinGroup" not in script.waits(), "its user data is the assignor's, which another thread uses"
    assignor.fails = RuntimeError("of an ended membership")
    ends(script)
    assert script.take(ErrorRaised) == []
    assignor.fails = None
    script.join(5, leader=True)
    ends(script)
    assert made(script) == {"me": (tp(0), tp(1))}
    assert script.requested(api.SyncGroup).generation == 5


def test_no_two_threads_use_an_assignor_at_the_same_time(script: NetworkScript, assignor: Noted) -> None:
    begin(script)
    before = list(assignor.calls)
    script.do(Unsubscribe(call=1, deadline=script.now + 5))
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    script.subscribe("t", "u")
    script.pass_time(5.0)
    assert assignor.calls == before
    ends(script)
    assert assignor.calls == [*before, "assign", "userdata"]
    assert script.joining_with().topics in (("t", "u"), ("u", "t"))


@pytest.mark.rule("fence yourself")
def test_a_leader_that_assigns_has_a_lease_by_heartbeats_alone(script: NetworkScript) -> None:
    """It was renewed as if the broker waited with the session's end, until a heartbeat had timed out."""
    begin(script)
    script.heartbeat()
    until = script.now + script.config.session_timeout
    while script.now <= until:
        assert script.lease.expires <= until
        script.pass_time(0.5)
    assert not script.lease.holds(script.now)


@pytest.mark.rule("fence yourself")
def test_a_leader_has_no_lease_when_the_broker_waits_for_its_sync_no_more() -> None:
    """The broker removes it then, though it heartbeats; another member has its partitions at once."""
    script = NetworkScript(topics={"t": 2}, session_timeout=6.0, heartbeat_interval=1.0, max_poll_interval=10.0)
    script.member_of(1, 0)
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.hold_assigning = True
    began = script.now
    script.join(2, leader=True)
    for _ in range(9):
        script.do(Polled(at=script.now))
        assert script.lease.holds(script.now)
        script.heartbeat()
    assert script.lease.expires <= began + script.config.max_poll_interval
    script.pass_time(1.5)
    assert not script.lease.holds(script.now)


def test_illegal_generation_tells_a_leader_that_assigns_of_its_loss(script: NetworkScript) -> None:
    script.hold_assigning = False
    script.subscribe()
    script.join(1, leader=True)
    script.sync(0)
    script.do(PartitionsAssigned(generation=1))
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.hold_assigning = True
    script.join(2, leader=True)
    script.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    assert len(script.take(Lost)) == 1


def test_a_rebalance_begins_anew_where_the_partitions_changed_meanwhile(script: NetworkScript) -> None:
    begin(script)
    script.topics["t"] = 3
    script.fresh_metadata()
    ends(script)
    assert made(script) == {"me": (tp(0), tp(1))}, "as it was when the assignor began"
    script.sync(0, 1)
    assert script.requested(api.JoinGroup).reason == "the partitions of the group's topics changed"


def test_a_second_rebalance_meanwhile_is_followed_when_the_assignor_has_ended(script: NetworkScript) -> None:
    begin(script)
    script.pass_time(1.0)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=ErrorCode.REBALANCE_IN_PROGRESS))
    ends(script)
    script.response(api.SyncGroup, api.SyncGroupResponse(error=ErrorCode.REBALANCE_IN_PROGRESS))
    assert script.requested(api.JoinGroup).member_id == "me"
    assert script.take(Lost) == []


@pytest.mark.parametrize("error", [RuntimeError("mine"), SystemExit("mine")])
def test_what_an_assignor_raises_ends_the_membership_and_is_told(
    script: NetworkScript, assignor: Noted, error: BaseException
) -> None:
    assignor.fails = error
    begin(script)
    ends(script)
    (told,) = script.take(ErrorRaised)
    assert told.error is error or (isinstance(told.error, AssignorError) and told.error.__cause__ is error)
    assert type(error).__name__ in repr(told.error)
    assert script.requested(api.LeaveGroup).member_id == "me"


def test_a_thread_that_cannot_be_started_is_tried_again(script: NetworkScript) -> None:
    begin(script)
    (action,) = script.assigning
    script.assigning.clear()
    script.machine.assignment_performed(action, TransportError("no thread can be started"), script.now)
    script.machine.assignment_performed(action, {}, script.now)  # it was started after all
    script.settle()
    assert len(script.take(ErrorRaised)) == 1
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    script.pass_time(2.0)
    script.join(2, leader=True)
    ends(script)
    assert made(script) == {"me": (tp(0), tp(1))}


def test_an_outcome_is_what_the_assignor_returns() -> None:
    assert PerformAssignment(assign=lambda: {"me": b"1"}).outcome() == {"me": b"1"}
