"""Why and when a member joins again: reasons (KIP-800), rebalances that the user wants, ids that change repeatedly."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assigned,
    Close,
    EnforceRebalance,
    Lost,
    PartitionsAssigned,
    Polled,
    RevocationRequested,
    Unsubscribe,
)
from instride._wire import api

NOT_COORDINATOR, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 16, 25, 27, 79


@pytest.fixture
def script() -> NetworkScript:
    return NetworkScript()


@pytest.mark.requirement("surface/enforce-rebalance")
@pytest.mark.vector(37)
def test_a_join_says_why(script: NetworkScript) -> None:
    script.subscribe()
    assert script.requested(api.JoinGroup).reason == ""
    script.response(api.JoinGroup, api.JoinGroupResponse(error=MEMBER_ID_REQUIRED, member_id="me"))
    assert script.requested(api.JoinGroup).reason == ""
    script.rebalance(1, 0)
    script.do(EnforceRebalance(reason="a test"))
    assert script.requested(api.JoinGroup).reason == "a test"
    script.response(api.JoinGroup, api.JoinGroupResponse(error=UNKNOWN_MEMBER_ID))
    assert "UNKNOWN_MEMBER_ID" in (script.requested(api.JoinGroup).reason or "")


def test_a_rebalance_that_the_user_wants_asks_for_everything_in_an_eager_group() -> None:
    script = NetworkScript(assignors=["range"])
    script.member_of(1, 0)
    script.do(EnforceRebalance(reason="why not"))
    assert script.take(RevocationRequested)[-1].partitions.keys() == {tp(0)}
    before = script.epoch(0)
    script.complete(0)
    first = script.requested(api.JoinGroup)
    assert first.reason == "why not"
    script.rebalance(2, 0)
    assert script.epoch(0) > before
    script.do(EnforceRebalance(reason="again"))
    script.complete(0)
    assert script.requested(api.JoinGroup).protocols != first.protocols, "equal bytes would start no rebalance"


@pytest.mark.parametrize("assignors", [["cooperative-sticky"], ["range"], ["sticky"], ["sticky", "roundrobin"]])
def test_a_rebalance_that_an_idle_member_wants_is_no_repeated_join(assignors: list[str]) -> None:
    """To a follower that joins with the same bytes the broker responds with the generation that there is."""
    script = NetworkScript(assignors=assignors)
    script.subscribe()
    said = [script.requested(api.JoinGroup).protocols]
    for generation in (7, 8, 9):
        script.rebalance(generation)
        script.do(PartitionsAssigned(generation=generation), EnforceRebalance(reason="a test"))
        said.append(script.requested(api.JoinGroup).protocols)
        assert script.joining_with().generation == generation
    assert len({tuple(each.metadata for each in protocols) for protocols in said}) == len(said)
    script.response(api.JoinGroup, api.JoinGroupResponse(error=UNKNOWN_MEMBER_ID))
    assert script.joining_with().generation == -1, "a new member has none"


def test_without_a_subscription_nothing_is_enforced(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.do(Unsubscribe(call=1, deadline=script.now + 5))
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    script.do(EnforceRebalance(reason="late"))
    script.pass_time(1.0)
    assert "JoinGroup" not in script.waits()


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED])
def test_ids_that_change_over_and_over_do_not_spin(script: NetworkScript, code: int) -> None:
    script.subscribe()
    script.response(api.JoinGroup, api.JoinGroupResponse(error=code, member_id="first"))
    for _ in range(5):
        script.response(api.JoinGroup, api.JoinGroupResponse(error=code, member_id="another"))
        assert "JoinGroup" not in script.waits(), "the first change is followed at once, the next after a back-off"
        script.pass_time(2.0)
    script.rebalance(1, 0)
    assert script.take(Assigned)[-1].partitions.keys() == {tp(0)}
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.response(api.JoinGroup, api.JoinGroupResponse(error=code, member_id="yet another"))
    script.requested(api.JoinGroup)  # forgotten with the sync that went well


def test_an_id_that_no_join_was_sent_with_is_not_given_back(script: NetworkScript) -> None:
    """It is no member's yet; giving it back starts a rebalance (docs/protocol-facts.md)."""
    script.subscribe()
    action = next(each for each in script.waiting if isinstance(each.request, api.JoinGroup))
    script.waiting.remove(action)
    response = api.JoinGroupResponse(error=MEMBER_ID_REQUIRED, member_id="fresh")
    script.machine.response_received(action.request_id, response, script.now)
    script.do(Close(call=1, deadline=script.now + 5))
    assert "LeaveGroup" not in script.waits()
    assert script.stopped


def test_an_id_that_a_join_is_pending_with_is_given_back(script: NetworkScript) -> None:
    script.subscribe()
    script.response(api.JoinGroup, api.JoinGroupResponse(error=MEMBER_ID_REQUIRED, member_id="fresh"))
    assert script.requested(api.JoinGroup).member_id == "fresh"
    script.do(Close(call=1, deadline=script.now + 5))
    assert script.requested(api.LeaveGroup).member_id == "fresh"


@pytest.mark.vector(30)
def test_a_change_that_reverts_while_the_coordinator_moves_still_ends_in_a_join() -> None:
    script = NetworkScript(metadata_max_age=5.0)
    script.subscribe()
    script.join(1, leader=True)
    script.sync(0, 1, 2, 3)
    script.do(PartitionsAssigned(generation=1))
    script.topics["t"] = 6
    script.pass_time(5.5)
    script.topics["t"] = 4
    script.response(api.JoinGroup, api.JoinGroupResponse(error=NOT_COORDINATOR))
    script.pass_time(5.5)
    assert script.requested(api.JoinGroup).member_id == "me"
    script.rebalance(2, 0, 1, 2, 3)
    assert script.take(Lost) == []


@pytest.mark.vector(32)
def test_a_membership_that_ends_before_the_sync_ends(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.heartbeat(UNKNOWN_MEMBER_ID)
    assert [list(each.partitions) for each in script.take(Lost)] == [[tp(0)]]
    assert script.requested(api.JoinGroup).member_id == ""
    assert "SyncGroup" not in script.waits(), "its response would concern nobody"
    script.rebalance(3, 0)
    assert script.take(Assigned)[-1].partitions.keys() == {tp(0)}


@pytest.mark.vector(35)
def test_a_heartbeat_that_tells_of_the_rebalance_that_is_joined_changes_nothing(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    before = script.requested(api.JoinGroup)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    assert script.requested(api.JoinGroup) is before
    script.join(2)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    assert script.requested(api.SyncGroup).generation == 2
    script.sync(0)
    assert "JoinGroup" not in script.waits()
    assert script.take(Lost) == []


@pytest.mark.vector(36)
def test_a_join_is_awaited_for_the_request_timeout_at_least() -> None:
    script = NetworkScript(max_poll_interval=5.0, request_timeout=30.0, session_timeout=10.0)
    script.subscribe()
    first = script.requested(api.JoinGroup)
    for _ in range(29):
        script.do(Polled(at=script.now))
        script.pass_time(1.0)
    assert script.requested(api.JoinGroup) is first
    script.do(Polled(at=script.now))
    script.pass_time(3.0)
    assert script.requested(api.JoinGroup) is not first
