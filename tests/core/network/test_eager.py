"""The eager protocol: everything is given up before a join, by a deadline that the broker's barrier sets."""

from __future__ import annotations

from typing import Any

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assigned,
    Close,
    CommitsSettled,
    CompleteRevoke,
    DeadlineMoved,
    Lost,
    PartitionsAssigned,
    PartitionsRevoked,
    Polled,
    RevocationRequested,
    Revoked,
    Subscribe,
    Unsubscribe,
)
from instride._wire import api
from instride._wire.consumer_protocol import read_assignment, read_subscription
from instride.errors import ErrorCode

ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 22, 25, 27


def eager(**settings: Any) -> NetworkScript:
    return NetworkScript(**{"assignors": ["range"], "max_poll_interval": 20.0, **settings})


@pytest.fixture
def script() -> NetworkScript:
    return eager()


def let_go(script: NetworkScript, *partitions: int) -> None:
    script.complete(*partitions)


@pytest.mark.requirement("threading/20")
@pytest.mark.requirement("KIP-429/2")
@pytest.mark.requirement("KIP-429/3")
@pytest.mark.rule("C")
def test_a_join_waits_until_everything_is_revoked(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    (event,) = script.take(RevocationRequested)
    assert set(event.partitions) == {tp(0), tp(1)}
    assert "JoinGroup" not in script.waits()
    let_go(script, 0)
    assert "JoinGroup" not in script.waits()
    let_go(script, 1)
    assert script.joining_with().owned == ()
    script.rebalance(2, 1, 2)
    assert script.take(Assigned)[-1].partitions.keys() == {tp(1), tp(2)}, "assigned anew, also what it had before"


@pytest.mark.rule("C")
def test_what_is_assigned_again_begins_a_new_epoch(script: NetworkScript) -> None:
    script.member_of(1, 0)
    before = script.epoch(0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    let_go(script, 0)
    script.rebalance(2, 0)
    assert script.epoch(0) > before


@pytest.mark.rule("C")
def test_who_holds_nothing_is_asked_and_not_waited_for(script: NetworkScript) -> None:
    script.member_of(1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    (event,) = script.take(RevocationRequested)
    assert event.partitions == {}
    script.requested(api.JoinGroup)


def test_a_first_join_asks_for_nothing(script: NetworkScript) -> None:
    script.subscribe()
    script.response(api.JoinGroup, api.JoinGroupResponse(error=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    script.rebalance(1, 0)
    assert script.take(RevocationRequested) == []


def test_a_sync_that_is_refused_asks_for_nothing_again(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.take(RevocationRequested)
    let_go(script, 0)
    script.join(2)
    script.response(api.SyncGroup, api.SyncGroupResponse(error=REBALANCE_IN_PROGRESS))
    script.rebalance(3, 0)
    assert script.take(RevocationRequested) == [], "one rebalance, one call of the listener"


@pytest.mark.requirement("threading/20")
@pytest.mark.requirement("threading/26")
@pytest.mark.requirement("KIP-983/30")
@pytest.mark.rule("completing")
def test_the_commits_and_the_listener_come_before_the_join(script: NetworkScript) -> None:
    script.member_of(1, 0, 1, listener=True)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.commit({0: 5, 1: 7})
    assert script.requested(api.OffsetCommit).generation == 1, "the broker takes commits while it waits for joins"
    let_go(script, 0, 1)
    assert script.take(CommitsSettled) == []
    script.committed()
    (settled,) = script.take(CommitsSettled)
    assert set(settled.partitions) == {tp(0), tp(1)}
    assert "JoinGroup" not in script.waits()
    script.do(PartitionsRevoked(partitions=settled.partitions))
    script.requested(api.JoinGroup)


@pytest.mark.rule("deadline")
def test_the_deadline_counts_from_the_last_heartbeat_that_succeeded(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.pass_time(script.config.heartbeat_interval)
    well = script.now
    script.now += 0.4
    script.response(api.Heartbeat, api.HeartbeatResponse())
    script.heartbeat(REBALANCE_IN_PROGRESS)
    (event,) = script.take(RevocationRequested)
    bound = well + script.config.max_poll_interval
    assert event.deadline == pytest.approx(bound - script.config.commit_budget)
    for _ in range(2):
        script.heartbeat(REBALANCE_IN_PROGRESS)
        script.do(Polled(at=script.now))
    assert script.take(DeadlineMoved) == [], "what says that a rebalance is under way moves nothing"
    script.pass_time(event.deadline - script.now - 0.01)
    assert script.take(Lost) == []
    script.pass_time(0.02)
    assert list(script.take(Lost)[0].partitions) == [tp(0)]
    assert script.requested(api.JoinGroup).member_id == "me", "the membership is kept, the partitions are not"
    assert script.joining_with().owned == ()
    assert script.now < bound


@pytest.mark.rule("deadline")
def test_a_rebalance_that_we_start_has_max_poll_interval_until_the_group_says_more(script: NetworkScript) -> None:
    script.topics["u"] = 1
    script.member_of(1, 0)
    script.pass_time(script.config.heartbeat_interval)
    well = script.now
    script.response(api.Heartbeat, api.HeartbeatResponse())
    script.now += 2.0
    script.do(Subscribe(topics=frozenset({"t", "u"})))
    (event,) = script.take(RevocationRequested)
    assert event.deadline == script.now + script.config.max_poll_interval - script.config.commit_budget
    script.pass_time(script.config.heartbeat_interval - 2.0)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=REBALANCE_IN_PROGRESS))
    (moved,) = script.take(DeadlineMoved)
    assert moved.deadline == pytest.approx(well + script.config.max_poll_interval - script.config.commit_budget)


@pytest.mark.rule("deadline")
@pytest.mark.vector(33)
def test_a_commit_without_a_response_leaves_the_join_time_to_arrive() -> None:
    script = eager(commit_budget=2.0)
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    (event,) = script.take(RevocationRequested)
    script.commit({0: 5})
    let_go(script, 0)
    while script.now < event.deadline + 0.9:
        script.do(Polled(at=script.now))
        script.pass_time(min(1.0, event.deadline + 0.9 - script.now))
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse(error=REBALANCE_IN_PROGRESS))
    assert "JoinGroup" not in script.waits()
    script.pass_time(0.2)
    assert len(script.take(Lost)) == 1
    script.requested(api.JoinGroup)
    assert script.now < event.deadline + script.config.commit_budget


@pytest.mark.requirement("KIP-429/4")
@pytest.mark.rule("11")
def test_a_new_subscription_gives_up_everything_at_once(script: NetworkScript) -> None:
    script.topics["u"] = 1
    script.member_of(1, 0, 1)
    script.do(Subscribe(topics=frozenset({"u"})))
    (event,) = script.take(RevocationRequested)
    assert set(event.partitions) == {tp(0), tp(1)}
    let_go(script, 0, 1)
    assert script.joining_with().topics == ("u",)


@pytest.mark.rule("membership")
@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION])
def test_a_barrier_that_was_missed_loses_what_is_owned(script: NetworkScript, code: int) -> None:
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.take(RevocationRequested)
    let_go(script, 0)
    script.heartbeat(code)
    assert list(script.take(Lost)[0].partitions) == [tp(1)], "what was revoked is not lost as well"
    assert script.requested(api.JoinGroup).member_id == ("" if code == UNKNOWN_MEMBER_ID else "me")


@pytest.mark.vector(32)
@pytest.mark.vector(31)
@pytest.mark.parametrize(("assignor", "lost"), [("range", 0), ("cooperative-sticky", 1)])
@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION])
def test_dropped_out_in_the_middle_of_a_rebalance(assignor: str, lost: int, code: int) -> None:
    """Eager members have revoked by then; cooperative ones lose what they hold."""
    script = eager(assignors=[assignor])
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    if assignor == "range":
        let_go(script, 0)
    response = UNKNOWN_MEMBER_ID if code == UNKNOWN_MEMBER_ID else REBALANCE_IN_PROGRESS
    script.join(2)
    script.response(api.SyncGroup, api.SyncGroupResponse(error=response))
    if code == ILLEGAL_GENERATION:
        script.response(api.JoinGroup, api.JoinGroupResponse(error=UNKNOWN_MEMBER_ID))
    assert len(script.take(Lost)) == lost
    assert script.requested(api.JoinGroup).member_id == ""
    script.rebalance(3, 0)
    assert script.take(Assigned)[-1].partitions.keys() == {tp(0)}


@pytest.mark.requirement("KIP-429/12")
def test_a_list_with_an_eager_assignor_is_eager_and_offers_all_of_them() -> None:
    script = eager(assignors=["range", "cooperative-sticky"])
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    assert "JoinGroup" not in script.waits()
    let_go(script, 0)
    protocols = script.requested(api.JoinGroup).protocols
    assert [each.name for each in protocols] == ["range", "cooperative-sticky"]
    assert [read_subscription(each.metadata).owned for each in protocols] == [(), ()]


def test_sticky_tells_its_last_assignment_in_the_userdata() -> None:
    script = eager(assignors=["sticky"])
    script.subscribe()
    assert script.joining_with().userdata is None
    script.rebalance(1, 0, 1)
    script.do(PartitionsAssigned(generation=1))
    script.heartbeat(REBALANCE_IN_PROGRESS)
    let_go(script, 0, 1)
    said = script.joining_with()
    assert said.owned == ()
    assert said.userdata is not None
    assert said.userdata.endswith((1).to_bytes(4, "big")), "the generation of that assignment"


def test_a_leader_deals_out_with_the_assignor_that_the_group_chose() -> None:
    script = eager(metadata_max_age=5.0)
    script.subscribe()
    script.join(1, leader=True)
    assert script.requested(api.SyncGroup).protocol == "range"
    assert script.requested(api.SyncGroup).assignments.keys() == {"me"}
    script.sync(0, 1, 2, 3)
    script.topics["t"] = 6
    script.pass_time(script.config.metadata_max_age + 1)
    assert script.take(RevocationRequested), "more partitions: the leader starts a rebalance, and gives up first"


def test_revokes_complete_with_nobody_polling_only_by_their_deadline() -> None:
    script = eager(max_poll_interval=60.0)
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    for _ in range(4):
        script.heartbeat(REBALANCE_IN_PROGRESS)
    assert (script.take(Lost), script.take(Revoked)) == ([], [])
    assert "JoinGroup" not in script.waits()


@pytest.mark.rule("12")
def test_leaving_in_the_middle_of_an_eager_revocation_joins_no_more(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.commit({0: 5})
    script.do(
        CompleteRevoke(partitions={tp(0): script.epoch(0), tp(1): script.epoch(1)}, leaving_by=script.now + 30.0),
        Close(call=1, deadline=script.now + 30),
    )
    assert "JoinGroup" not in script.waits()
    assert script.committed() == {0: 5}
    assert "JoinGroup" not in script.waits(), "it leaves instead"
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert script.stopped


@pytest.mark.rule("12")
def test_a_new_subscription_after_leaving_begins_anew(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.do(
        CompleteRevoke(partitions={tp(0): script.epoch(0)}, leaving_by=script.now + 30.0),
        Unsubscribe(call=1, deadline=script.now + 30),
    )
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    script.take(RevocationRequested)
    script.subscribe()
    script.rebalance(2, 0)
    script.do(PartitionsAssigned(generation=2))
    script.heartbeat(REBALANCE_IN_PROGRESS)
    assert len(script.take(RevocationRequested)) == 1


@pytest.mark.rule("deadline")
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_listener_that_nobody_comes_to_run_ends_at_the_deadline(assignor: str) -> None:
    script = eager(assignors=[assignor])
    script.member_of(1, 0, 1, listener=True)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    if assignor == "cooperative-sticky":
        script.rebalance(2, 0)
    (event,) = script.take(RevocationRequested)
    script.do(CompleteRevoke(partitions=event.partitions))
    assert len(script.take(CommitsSettled)) == 1
    while script.now <= event.deadline:
        script.do(Polled(at=script.now))
        script.pass_time(1.0)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    assert [set(each.partitions) for each in script.take(Lost)] == [set(event.partitions)]
    script.requested(api.JoinGroup)


def test_a_protocol_that_was_not_offered_is_the_leaders_affair(script: NetworkScript) -> None:
    script.subscribe()
    response = api.JoinGroupResponse(generation=1, protocol="unheard-of", leader="another", member_id="me")
    script.response(api.JoinGroup, response)
    script.sync(0)
    assert script.take(Assigned)[-1].partitions.keys() == {tp(0)}


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_each_assignor_of_the_eager_protocol_deals_and_is_told(assignor: str) -> None:
    script = NetworkScript(assignors=[assignor])
    script.subscribe()
    script.join(1, leader=True)
    (mine,) = script.requested(api.SyncGroup).assignments.values()
    assert [each.partition for each in read_assignment(mine).partitions] == [0, 1, 2, 3]
    script.sync(0, 1, 2, 3)
    (assigned,) = script.take(Assigned)
    assert sorted(each.partition for each in assigned.partitions) == [0, 1, 2, 3]
