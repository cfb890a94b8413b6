"""Faults that once were, on the network side: each of these went wrong before it was mended."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    LATEST,
    Assign,
    CallCompleted,
    CompleteRevoke,
    ErrorRaised,
    FetchCommitted,
    FetchOffsets,
    LeaseRenewed,
    Lost,
    PartitionFailed,
    Pause,
    RevocationRequested,
    SetPosition,
)
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride.errors import CommitFailedError, ErrorCode, GroupAuthorizationFailedError, ProtocolError

UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED = 25, 27, 30


@pytest.fixture
def script() -> NetworkScript:
    return NetworkScript()


def test_a_commit_without_a_membership_can_lose_none(script: NetworkScript) -> None:
    """The group is in use by members; a commit of a consumer that only assigns is refused with UNKNOWN_MEMBER_ID."""
    script.do(Assign(partitions={tp(0): 1}))
    call = script.commit({0: 5}, epoch=1)
    script.committed(UNKNOWN_MEMBER_ID)
    assert script.take(Lost) == []
    (response,) = script.take(CallCompleted)
    assert response.call == call
    assert isinstance(response.committed[tp(0)], CommitFailedError)


@pytest.mark.rule("full-speed")
@pytest.mark.parametrize("how", ["fetched", "paused"])
def test_what_a_stopped_partition_has_buffered_stops_no_other(how: str) -> None:
    script = NetworkScript(prefetch="total", max_poll_records=10)
    script.member_of(1, 0, 1)
    fetched(script, 0, 0, 10)
    assert "Fetch" not in script.waits(), "ten records are buffered in all"
    if how == "paused":
        script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    else:
        script.heartbeat(REBALANCE_IN_PROGRESS)
        script.rebalance(2, 1)
        assert len(script.take(RevocationRequested)) == 1
    assert {each.partition for each in script.requested(api.Fetch).partitions} == {1}


def test_lookups_about_nothing_have_their_responses_at_once(script: NetworkScript) -> None:
    script.reachable = False
    deadline = script.now + 60
    script.do(FetchOffsets(call=1, deadline=deadline, timestamps={}))
    script.do(FetchCommitted(call=2, deadline=deadline, partitions=()))
    assert [(each.call, each.result, each.error) for each in script.take(CallCompleted)] == [
        (1, {}, None),
        (2, {}, None),
    ]


def test_a_refused_group_is_told_once_and_commits_end_at_once(script: NetworkScript) -> None:
    script.coordinator_error = GROUP_AUTHORIZATION_FAILED
    script.subscribe()
    script.pass_time(30.0)
    (told,) = script.take(ErrorRaised)
    assert isinstance(told.error, GroupAuthorizationFailedError)
    script.do(Assign(partitions={tp(0): 1}))
    script.commit({0: 5}, epoch=1)
    (response,) = script.take(CallCompleted)
    assert isinstance(response.committed[tp(0)], GroupAuthorizationFailedError)
    script.coordinator_error = 0
    script.pass_time(5.0)
    script.requested(api.JoinGroup)


@pytest.mark.rule("12")
def test_closing_neither_joins_nor_assigns_anew_before_it_leaves(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    epochs = {tp(0): script.epoch(0), tp(1): script.epoch(1)}
    script.delivered.clear()
    script.do(CompleteRevoke(partitions=epochs, leaving_by=script.now + 30.0))
    assert "JoinGroup" not in script.waits()
    assert {type(event).__name__ for event in script.delivered} == {"Revoked"}


def test_after_an_unreadable_response_one_more_fetch_is_sent_before_anything_fails(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    script.response(api.Fetch, ProtocolError("bad bytes"))
    assert script.take(PartitionFailed) == []
    script.pass_time(2.0)
    script.response(api.Fetch, ProtocolError("bad bytes"))
    assert {each.partition for each in script.take(PartitionFailed)} == {tp(0), tp(1)}


def test_an_unreadable_response_ends_the_requests_behind_it_as_a_broken_connection(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 5})
    key = next(each.key for each in script.waiting if isinstance(each.request, api.OffsetCommit))
    script.waiting = [each for each in script.waiting if each.key != key]
    script.machine.closed(key, ProtocolError("bad bytes"), script.now)
    script.settle()
    script.pass_time(2.0)
    assert script.committed() == {0: 5}


def test_a_join_does_not_wait_behind_one_of_a_coordinator_that_is_gone(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    old = script.requested(api.JoinGroup)
    script.coordinator = 2
    script.heartbeat(ErrorCode.NOT_COORDINATOR)  # NOT_COORDINATOR
    script.pass_time(1.0)
    assert script.requested(api.JoinGroup) is not old
    assert script.requested(api.JoinGroup).member_id == "me"
    assert script.take(Lost) == []


def test_a_new_membership_does_not_join_behind_the_old_ones_join(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.heartbeat(UNKNOWN_MEMBER_ID)
    assert script.requested(api.JoinGroup).member_id == ""


def test_a_commit_refused_by_a_rebalance_that_is_over_asks_for_no_join(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.commit({0: 5})
    script.rebalance(2, 0)
    script.committed(REBALANCE_IN_PROGRESS)
    script.pass_time(1.0)
    assert "JoinGroup" not in script.waits()
    assert script.committed() == {0: 5}


def test_a_leader_whose_assignor_fails_leaves_so_that_nobody_waits_for_it(script: NetworkScript) -> None:
    script.subscribe()
    response = api.JoinGroupResponse(generation=1, protocol="never-offered", leader="me", member_id="me")
    script.response(api.JoinGroup, response)
    assert len(script.take(ErrorRaised)) == 1
    assert script.requested(api.LeaveGroup).member_id == "me"


def test_a_stuck_heartbeat_ends_in_time_for_another() -> None:
    script = NetworkScript(session_timeout=6.0, heartbeat_interval=1.0, request_timeout=30.0)
    script.member_of(1, 0)
    script.pass_time(1.0)
    script.requested(api.Heartbeat)
    script.pass_time(4.0)
    script.response(api.Heartbeat, api.HeartbeatResponse())
    assert script.lease.holds(script.now + 3)


@pytest.mark.rule("membership")
def test_a_lease_that_holds_again_is_told_since_a_poll_may_be_waiting(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.pass_time(script.config.heartbeat_interval)
    script.now += script.config.session_timeout + 1  # suspended, with a heartbeat under way
    script.settle()
    assert not script.lease.holds(script.now)
    script.pass_time(script.config.heartbeat_interval)
    script.response(api.Heartbeat, api.HeartbeatResponse())
    assert script.lease.holds(script.now)
    assert len(script.take(LeaseRenewed)) == 1


# --- out of range ------------------------------------------------------------------------------------------


def test_out_of_range_is_for_the_application_to_seek(script: NetworkScript) -> None:
    """Only a seek number that rises lets later commits go back; only the application raises it."""
    script.member_of(1, 0)
    fetch_error(script, 0, ErrorCode.OFFSET_OUT_OF_RANGE)
    script.log_reaches(5, 9)
    (failed,) = script.take(PartitionFailed)
    assert failed.reset == -2
    assert "ListOffsets" not in script.waits()
    epoch = script.epoch(0)
    script.do(SetPosition(partition=tp(0), epoch=epoch, seek_number=1, fetch_number=1, offset=LATEST))
    assert script.requested(api.ListOffsets).timestamps == {tp(0): LATEST}


# --- help --------------------------------------------------------------------------------------------------


def fetched(script: NetworkScript, partition: int, start: int, end: int) -> None:
    chunk = RangeChunk(topic="t", partition=partition, first_offset=start, next_offset=end)
    response = api.FetchedPartition(chunk=chunk, next_offset=end, high_watermark=end)  # type: ignore[arg-type]
    script.response(api.Fetch, api.FetchResponse(partitions={tp(partition): response}))


def fetch_error(script: NetworkScript, partition: int, code: int) -> None:
    script.response(api.Fetch, api.FetchResponse(partitions={tp(partition): api.FetchedPartition(error=code)}))
