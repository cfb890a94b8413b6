"""Static membership (KIP-345, KIP-814): a member that keeps its place over restarts, and is fenced by its successor."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assigned,
    CallCompleted,
    Close,
    ErrorRaised,
    Lost,
    PartitionsAssigned,
    Polled,
    Unsubscribe,
)
from instride._core.network.actions import ConnectionKey, Role
from instride._wire import api
from instride.errors import FencedInstanceIdError, TransportError

UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID = 25, 22, 27, 82


@pytest.fixture
def script() -> NetworkScript:
    return NetworkScript(group_instance_id="one", assignors=["range"])


def cooperative() -> NetworkScript:
    return NetworkScript(group_instance_id="one")


@pytest.mark.requirement("surface/static-membership")
def test_every_request_of_the_group_names_the_instance(script: NetworkScript) -> None:
    script.subscribe()
    assert script.requested(api.JoinGroup).group_instance_id == "one"
    script.join(1)
    assert script.requested(api.SyncGroup).group_instance_id == "one"
    script.sync(0)
    script.commit({0: 3})
    assert script.requested(api.OffsetCommit).group_instance_id == "one"
    script.pass_time(script.config.heartbeat_interval)
    assert script.requested(api.Heartbeat).group_instance_id == "one"


@pytest.mark.requirement("surface/close-leaves")
@pytest.mark.vector(38)
@pytest.mark.parametrize(("leave", "tells"), [(None, False), (False, False), (True, True)])
def test_closing_tells_the_group_only_where_that_is_requested(
    script: NetworkScript, leave: bool | None, tells: bool
) -> None:
    script.member_of(1, 0)
    script.do(Close(call=1, deadline=script.now + 30, leave=leave))
    assert ("LeaveGroup" in script.waits()) == tells
    if tells:
        request = script.requested(api.LeaveGroup)
        assert (request.member_id, request.group_instance_id) == ("me", "one")
        script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert script.stopped


def test_unsubscribe_and_a_poll_that_does_not_come_tell_nobody(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.do(Unsubscribe(call=1, deadline=script.now + 30))
    assert "LeaveGroup" not in script.waits()
    assert script.take(CallCompleted)[-1].error is None

    script = NetworkScript(group_instance_id="one", max_poll_interval=5.0)
    script.member_of(1, 0)
    script.pass_time(6.0)
    assert "LeaveGroup" not in script.waits()
    assert len(script.take(Lost)) == 1
    script.do(Polled(at=script.now))
    assert script.requested(api.JoinGroup).member_id == "", "the broker gives it a new one, and what it had"


@pytest.mark.requirement("surface/static-membership")
@pytest.mark.parametrize("where", [api.JoinGroup, api.SyncGroup, api.Heartbeat, api.OffsetCommit])
def test_a_fenced_instance_is_fatal_and_typed(script: NetworkScript, where: type[api.Request]) -> None:
    script.member_of(1, 0)
    call = script.commit({0: 3})
    if where is api.OffsetCommit:
        script.committed(FENCED_INSTANCE_ID)
        (response,) = script.take(CallCompleted)
        assert isinstance(response.committed[tp(0)], FencedInstanceIdError)
        assert response.call == call
    elif where is api.Heartbeat:
        script.heartbeat(FENCED_INSTANCE_ID)
    else:
        script.committed()
        script.heartbeat(REBALANCE_IN_PROGRESS)
        script.complete(0)
        if where is api.JoinGroup:
            script.response(api.JoinGroup, api.JoinGroupResponse(error=FENCED_INSTANCE_ID))
        else:
            script.join(2)
            script.response(api.SyncGroup, api.SyncGroupResponse(error=FENCED_INSTANCE_ID))
    (raised,) = script.take(ErrorRaised)
    assert isinstance(raised.error, FencedInstanceIdError)
    assert raised.error.fatal
    assert len(script.take(Lost)) == (where in (api.Heartbeat, api.OffsetCommit)), "what was revoked is not lost too"
    script.pass_time(60.0)
    assert "JoinGroup" not in script.waits(), "its successor would be fenced in turn"
    assert "LeaveGroup" not in script.waits()


def test_a_late_response_to_a_commit_says_nothing_of_the_next_membership() -> None:
    """A stable group gives a static member that comes back its old generation (KIP-814)."""
    script = NetworkScript(group_instance_id="one", assignors=["range"], max_poll_interval=5.0)
    script.member_of(1, 0)
    call = script.commit({0: 3})
    script.pass_time(6.0)
    assert len(script.take(Lost)) == 1
    script.do(Polled(at=script.now))
    script.join(1)
    script.committed(FENCED_INSTANCE_ID)
    assert script.take(ErrorRaised) == []
    (response,) = script.take(CallCompleted)
    assert (response.call, type(response.committed[tp(0)])) == (call, FencedInstanceIdError)
    script.sync(0)
    assert script.take(Lost) == []
    script.commit({0: 4})
    script.pass_time(0.5)
    assert script.committed() == {0: 4}


def joining_again(script: NetworkScript) -> None:
    """Its first Join, which names no member id, is given up before its response: it may arrive after the second."""
    script.subscribe()
    assert script.requested(api.JoinGroup).member_id == ""
    script.do(Unsubscribe(call=1, deadline=script.now + 30))
    script.subscribe()
    assert script.requested(api.JoinGroup).member_id == ""


def fence(script: NetworkScript, where: type[api.Request]) -> None:
    """The broker says to this request that another one has the instance id."""
    if where is not api.JoinGroup:
        script.join(1)
    if where in (api.Heartbeat, api.OffsetCommit):
        script.sync(0)
        script.do(PartitionsAssigned(generation=1))
    if where is api.OffsetCommit:
        script.commit({0: 3})
        script.committed(FENCED_INSTANCE_ID)
    elif where is api.Heartbeat:
        script.heartbeat(FENCED_INSTANCE_ID)
    elif where is api.SyncGroup:
        script.response(api.SyncGroup, api.SyncGroupResponse(error=FENCED_INSTANCE_ID))
    else:
        script.response(api.JoinGroup, api.JoinGroupResponse(error=FENCED_INSTANCE_ID))


@pytest.mark.requirement("surface/static-membership")
@pytest.mark.parametrize("where", [api.JoinGroup, api.SyncGroup, api.Heartbeat, api.OffsetCommit])
def test_a_member_that_its_own_late_join_fences_joins_again(where: type[api.Request]) -> None:
    """The first Join arrives after the second, and takes its place: no other process has the instance id."""
    script = NetworkScript(group_instance_id="one", assignors=["range"], heartbeat_interval=1.0)
    joining_again(script)
    fence(script, where)
    assert script.take(ErrorRaised) == []
    assert all(not isinstance(each, FencedInstanceIdError) for each in commit_errors(script))
    assert script.requested(api.JoinGroup).member_id == "", "the last one to join without a member id takes the place"
    assert script.requested(api.JoinGroup).group_instance_id == "one"

    script.response(api.JoinGroup, api.JoinGroupResponse(error=FENCED_INSTANCE_ID))
    (raised,) = script.take(ErrorRaised)
    assert isinstance(raised.error, FencedInstanceIdError), "one late Join fences once: now it was another consumer"
    assert "JoinGroup" not in script.waits()


def commit_errors(script: NetworkScript) -> list[Exception | None]:
    return [error for each in script.take(CallCompleted) for error in (each.error, *each.committed.values())]


def test_a_join_whose_connection_broke_may_fence_the_next_one_as_well(script: NetworkScript) -> None:
    script.subscribe()
    script.requested(api.JoinGroup)
    script.response(api.JoinGroup, TransportError("the connection broke"))
    script.pass_time(script.config.retry_backoff * 2)
    fence(script, api.JoinGroup)
    assert script.take(ErrorRaised) == []
    assert script.requested(api.JoinGroup).member_id == ""


def test_joins_that_never_left_this_machine_excuse_no_fence(script: NetworkScript) -> None:
    """Else two consumers with one instance id fence each other in turn, and nobody is told."""
    script.subscribe()
    script.waiting.clear()
    script.reachable = False
    script.machine.closed(ConnectionKey(Role.JOIN, 1), TransportError("the connection broke"), script.now)
    script.pass_time(script.config.request_timeout + 1.0)
    assert "JoinGroup" not in script.waits()
    script.reachable = True
    script.pass_time(2.0)
    fence(script, api.JoinGroup)
    assert isinstance(script.take(ErrorRaised)[-1].error, FencedInstanceIdError)


def test_however_many_joins_of_one_attempt_broke_one_fence_is_excused(script: NetworkScript) -> None:
    script.subscribe()
    for _ in range(5):
        script.response(api.JoinGroup, TransportError("the connection broke"))
        script.pass_time(script.config.retry_backoff_max * 2)
    fence(script, api.JoinGroup)
    assert script.take(ErrorRaised) == []
    fence(script, api.JoinGroup)
    assert isinstance(script.take(ErrorRaised)[-1].error, FencedInstanceIdError)


def test_a_join_that_cannot_arrive_any_more_excuses_no_fence(script: NetworkScript) -> None:
    joining_again(script)
    script.pass_time(script.config.request_timeout + 1.0)
    fence(script, api.JoinGroup)
    assert isinstance(script.take(ErrorRaised)[-1].error, FencedInstanceIdError)


def test_a_join_that_named_its_member_id_fences_nobody(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(ILLEGAL_GENERATION)
    assert script.requested(api.JoinGroup).member_id == "me"
    script.response(api.JoinGroup, TransportError("the connection broke"))
    script.pass_time(script.config.retry_backoff * 2)
    script.response(api.JoinGroup, api.JoinGroupResponse(error=FENCED_INSTANCE_ID))
    assert isinstance(script.take(ErrorRaised)[-1].error, FencedInstanceIdError)


def test_a_fenced_commit_of_an_older_generation_says_nothing_of_this_membership() -> None:
    script = cooperative()
    script.member_of(1, 0)
    script.rebalance(2, 0)
    script.commit({0: 3}, epoch=script.epoch(0))
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(3, 0)
    script.committed(FENCED_INSTANCE_ID)
    assert script.take(ErrorRaised) == []


@pytest.mark.vector(41)
def test_a_barrier_that_was_missed_keeps_the_id(script: NetworkScript) -> None:
    """A static member survives it, in a new generation: it has lost its partitions and joins with its id."""
    script.member_of(1, 0)
    script.heartbeat(ILLEGAL_GENERATION)
    assert len(script.take(Lost)) == 1
    request = script.requested(api.JoinGroup)
    assert (request.member_id, request.group_instance_id) == ("me", "one")


def test_a_session_that_ended_joins_as_the_same_instance(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(UNKNOWN_MEMBER_ID)
    request = script.requested(api.JoinGroup)
    assert (request.member_id, request.group_instance_id) == ("", "one")


@pytest.mark.requirement("surface/static-delaying")
@pytest.mark.rule("deadline")
def test_a_cooperative_member_that_came_back_joins_once_more_with_changed_metadata() -> None:
    """What its predecessor delayed is with nobody, and the broker started no rebalance: an idle partition for ever."""
    script = cooperative()
    script.subscribe()
    first = script.requested(api.JoinGroup)
    script.rebalance(7, 0, 1)
    assert script.take(Assigned)[-1].partitions.keys() == {tp(0), tp(1)}
    second = script.requested(api.JoinGroup)
    assert second.protocols != first.protocols
    assert script.joining_with().owned == (tp(0), tp(1))
    script.rebalance(8, 0, 1, 2)
    script.do(PartitionsAssigned(generation=8))
    assert "JoinGroup" not in script.waits(), "once"


@pytest.mark.requirement("surface/static-delaying")
def test_a_member_that_came_back_with_nothing_joins_with_other_bytes() -> None:
    """To a follower's join with the same bytes the broker responds with the generation that there is."""
    script = cooperative()
    script.subscribe()
    first = script.requested(api.JoinGroup).protocols
    script.rebalance(7)
    again = script.requested(api.JoinGroup)
    assert again.reason == "a static member came back: what its predecessor was to release is with nobody"
    assert script.joining_with().owned == ()
    assert [each.metadata for each in again.protocols] != [each.metadata for each in first]


def test_an_eager_member_that_came_back_does_not(script: NetworkScript) -> None:
    script.subscribe()
    script.rebalance(7, 0, 1)
    assert "JoinGroup" not in script.waits()


@pytest.mark.parametrize("known", ["at once", "later"])
def test_an_eager_member_that_came_back_with_one_more_topic_joins_once_more(known: str) -> None:
    """The broker gives it what its predecessor had, and starts no rebalance (KAFKA-12759)."""
    script = NetworkScript(group_instance_id="one", assignors=["range"], topics={"t": 4, "u": 2})
    if known == "later":
        del script.topics["u"]
    script.subscribe("t", "u")
    script.rebalance(7, 0, 1)
    if known == "later":
        assert "JoinGroup" not in script.waits()
        script.topics["u"] = 2
        script.fresh_metadata()
    script.complete(0, 1)
    assert script.requested(api.JoinGroup).member_id == "me"
    script.rebalance(8, 0, 1)
    script.do(PartitionsAssigned(generation=8))
    script.fresh_metadata()
    assert "JoinGroup" not in script.waits(), "once: now the group knows what it subscribes to"


def test_a_leader_that_came_back_makes_no_assignment(script: NetworkScript) -> None:
    """KIP-814: the broker says so, and the group goes on with the one there is."""
    script = NetworkScript(group_instance_id="one", assignors=["range"], metadata_max_age=5.0)
    script.subscribe()
    request = script.requested(api.JoinGroup)
    mine = api.GroupMember(member_id="new", metadata=request.protocols[0].metadata, group_instance_id="one")
    response = api.JoinGroupResponse(
        generation=7, protocol="range", leader="new", member_id="new", members=(mine,), skip_assignment=True
    )
    script.response(api.JoinGroup, response)
    assert script.requested(api.SyncGroup).assignments == {}
    script.sync(0, 1)
    script.topics["t"] = 6
    script.pass_time(5.5)
    script.complete(0, 1)
    script.requested(api.JoinGroup)  # it leads still: it saw that there are more partitions
