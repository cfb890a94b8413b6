"""Where a partition begins: committed offset, reset policy, and never a reset after a mere error."""

from __future__ import annotations

from itertools import cycle, pairwise
from typing import Any

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    BY_DURATION,
    COMMITTED,
    EARLIEST,
    LATEST,
    Assign,
    Lost,
    MissingOffsets,
    PartitionFailed,
    Pause,
    Positioned,
    SetPosition,
)
from instride._wire import api
from instride.errors import ErrorCode, GroupAuthorizationFailedError, NoOffsetForPartitionError, TransportError


class Finding(NetworkScript):
    """OffsetFetch waits for the test."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.committed_offset = None

    def found(self, offset: int, partition: int = 0, *, error: int = 0, leader_epoch: int = -1) -> None:
        found = api.CommittedOffset(offset=offset, error=error, leader_epoch=leader_epoch)
        self.response(api.OffsetFetch, api.OffsetFetchResponse(offsets={tp(partition): found}))

    def listed(self, offset: int, partition: int = 0, *, error: int = 0) -> None:
        listed = api.ListedOffset(offset=offset, error=error)
        self.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(partition): listed}))


@pytest.fixture
def script() -> Finding:
    made = Finding()
    made.member_of(1, 0)
    return made


def test_the_committed_offset_is_where_it_begins(script: Finding) -> None:
    script.found(7, leader_epoch=3)
    (event,) = script.take(Positioned)
    assert (event.partition, event.offset, event.leader_epoch, event.seek_number) == (tp(0), 7, 3, 0)
    assert script.requested(api.Fetch).partitions[0].offset == 7
    assert "ListOffsets" not in script.waits()


@pytest.mark.requirement("surface/reset")
@pytest.mark.parametrize(("policy", "timestamp"), [("earliest", EARLIEST), ("latest", LATEST)])
def test_without_a_committed_offset_the_reset_policy_says(policy: str, timestamp: int) -> None:
    script = Finding(auto_offset_reset=policy)
    script.member_of(1, 0)
    script.found(-1)
    assert script.requested(api.ListOffsets).timestamps == {tp(0): timestamp}
    script.listed(40)
    assert script.take(Positioned)[0].offset == 40
    assert script.requested(api.Fetch).partitions[0].offset == 40


@pytest.mark.requirement("surface/reset")
def test_the_policy_none_parks_with_an_error_that_names_it() -> None:
    script = Finding(auto_offset_reset="none")
    script.member_of(1, 0)
    script.found(-1)
    (event,) = script.take(PartitionFailed)
    assert isinstance(event.error, NoOffsetForPartitionError)
    assert "t-0" in str(event.error)
    assert event.reset is None
    script.pass_time(10.0)
    assert script.take(PartitionFailed) == []
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=5))
    assert script.requested(api.Fetch).partitions[0].offset == 5


@pytest.mark.requirement("surface/no-reset-by-error")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ],
)
def test_an_error_is_no_reset_it_is_asked_again(script: Finding, code: int) -> None:
    script.found(-1, error=code)
    assert script.take(Positioned) == []
    assert "ListOffsets" not in script.waits()
    script.pass_time(3.0)
    assert "ListOffsets" not in script.waits()
    script.found(7)
    assert script.take(Positioned)[0].offset == 7


@pytest.mark.requirement("surface/no-reset-by-error")
@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_an_error_of_the_whole_response_is_no_reset_either(script: Finding, code: int) -> None:
    script.response(api.OffsetFetch, api.OffsetFetchResponse(error=code))
    script.pass_time(3.0)
    assert "ListOffsets" not in script.waits()
    script.found(7)
    assert script.take(Positioned)[0].offset == 7


@pytest.mark.requirement("surface/no-reset-by-error")
def test_a_broken_connection_is_no_reset(script: Finding) -> None:
    script.response(api.OffsetFetch, TransportError("gone"))
    script.pass_time(3.0)
    script.found(9)
    assert script.take(Positioned)[0].offset == 9


@pytest.mark.requirement("surface/no-reset-by-error")
def test_a_response_that_leaves_the_partition_out_is_no_reset(script: Finding) -> None:
    script.response(api.OffsetFetch, api.OffsetFetchResponse())
    script.pass_time(3.0)
    assert "ListOffsets" not in script.waits()
    assert script.take(Positioned) == []


def test_what_cannot_be_retried_parks(script: Finding) -> None:
    script.response(api.OffsetFetch, api.OffsetFetchResponse(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    (event,) = script.take(PartitionFailed)
    assert isinstance(event.error, GroupAuthorizationFailedError)
    assert "ListOffsets" not in script.waits()


@pytest.mark.vector(73)
def test_a_response_that_a_seek_overtook_is_dropped(script: Finding) -> None:
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=50))
    script.found(7)
    assert script.take(Positioned) == []
    assert script.requested(api.Fetch).partitions[0].offset == 50


@pytest.mark.vector(73)
@pytest.mark.requirement("threading/7")
def test_a_response_of_an_older_epoch_is_dropped(script: Finding) -> None:
    script.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert len(script.take(Lost)) == 1
    script.rebalance(2, 0)
    assert script.requested(api.OffsetFetch).partitions == (tp(0),), "the old one, which is under way"
    script.found(7)
    assert script.take(Positioned) == [], "that was the old epoch's"
    script.found(8)
    assert script.take(Positioned)[0].offset == 8


@pytest.mark.vector(73)
def test_a_pause_while_searching_voids_nothing_and_fetches_nothing(script: Finding) -> None:
    script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    script.found(7)
    assert script.take(Positioned)[0].offset == 7
    assert "Fetch" not in script.waits()


@pytest.mark.vector(73)
def test_a_reset_that_a_seek_overtook_is_dropped(script: Finding) -> None:
    script.found(-1)
    epoch = script.epoch(0)
    script.do(SetPosition(partition=tp(0), epoch=epoch, seek_number=1, fetch_number=1, offset=LATEST))
    script.listed(0)
    assert script.take(Positioned) == [], "that was the earliest"
    script.listed(90)
    assert script.take(Positioned)[0].offset == 90


@pytest.mark.parametrize(
    "code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH]
)
def test_a_leader_that_moved_is_asked_again_with_fresh_metadata(script: Finding, code: int) -> None:
    script.found(-1)
    script.listed(-1, error=code)
    script.pass_time(3.0)
    script.listed(12)
    assert script.take(Positioned)[0].offset == 12


def test_a_leader_that_does_not_respond_is_asked_again(script: Finding) -> None:
    script.found(-1)
    script.response(api.ListOffsets, TransportError("gone"))
    script.pass_time(3.0)
    script.listed(12)
    assert script.take(Positioned)[0].offset == 12


def test_a_leader_that_the_metadata_did_not_have_yet_is_found_and_asked() -> None:
    """It names a broker that is not among the brokers, which is no error of its own."""
    script = Finding()
    script.leaders = {0: 2}
    script.member_of(1, 0)
    script.found(-1)
    assert "ListOffsets" not in script.waits()
    script.nodes = (1, 2)
    script.pass_time(5.0)
    script.listed(12)
    assert script.take(Positioned)[0].offset == 12


@pytest.mark.requirement("surface/assign")
def test_without_a_group_nothing_is_asked_of_a_coordinator() -> None:
    script = Finding(group_id=None)
    script.do(Assign(partitions={tp(0): 1}))
    script.pass_time(1.0)
    assert "OffsetFetch" not in script.waits()
    assert script.requested(api.ListOffsets).timestamps == {tp(0): EARLIEST}


def test_the_committed_offset_can_be_requested_again(script: Finding) -> None:
    script.found(7)
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=0, fetch_number=1, offset=COMMITTED))
    script.found(8)
    assert script.take(Positioned)[-1].offset == 8


def test_partitions_are_requested_together() -> None:
    script = Finding()
    script.member_of(1, 0, 1, 2)
    assert script.requested(api.OffsetFetch).partitions == (tp(0), tp(1), tp(2))


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
)
def test_one_request_to_the_coordinator_is_under_way_at_a_time(code: int) -> None:
    """Law 3. Each partition's jitter is its own, and a coordinator that loads refuses for a while."""
    jitter = cycle((0.0, 0.3, 0.6, 0.99))
    script = Finding(random=lambda: next(jitter))
    script.member_of(1, 0, 1, 2, 3)
    for _ in range(5):
        requested = script.requested(api.OffsetFetch)
        assert requested.partitions == (tp(0), tp(1), tp(2), tp(3))
        script.response(api.OffsetFetch, api.OffsetFetchResponse(error=code))
        script.pass_time(2.0)
    found = {each: api.CommittedOffset(offset=3) for each in script.requested(api.OffsetFetch).partitions}
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=found))
    assert len(script.take(Positioned)) == 4


def test_partitions_that_come_while_a_request_is_under_way_are_requested_next(script: Finding) -> None:
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0, 1)
    assert script.requested(api.OffsetFetch).partitions == (tp(0),)
    script.found(7)
    assert script.requested(api.OffsetFetch).partitions == (tp(1),)


def test_one_request_to_a_leader_is_under_way_at_a_time() -> None:
    """The next one names all whose back-off ended meanwhile."""
    jitter = cycle((0.0, 0.3, 0.6, 0.99))
    script = Finding(random=lambda: next(jitter))
    script.member_of(1, 0, 1, 2, 3)
    nothing: dict[api.Partition, api.CommittedOffset] = {tp(number): api.CommittedOffset() for number in range(4)}
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=nothing))
    named = []
    for _ in range(6):
        requested = script.requested(api.ListOffsets)
        named.append(set(requested.timestamps))
        refused = {each: api.ListedOffset(error=ErrorCode.NOT_LEADER_OR_FOLLOWER) for each in requested.timestamps}
        script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=refused))
        script.pass_time(2.0)
    assert named[0] == set(nothing)
    assert all(one | other == named[0] for one, other in pairwise(named)), "one waits for two others"


@pytest.mark.requirement("surface/reset")
@pytest.mark.parametrize("policy", [3600.0, "by_duration:PT1H"])
def test_a_reset_by_duration_asks_for_what_was_written_since(policy: Any) -> None:
    script = Finding(auto_offset_reset=policy)
    script.member_of(1, 0)
    script.wall_clock = 1_700_000_000.5
    script.found(-1)
    script.listed(90)
    assert script.requested(api.ListOffsets).timestamps == {tp(0): 1_699_996_400_500}
    script.listed(40)
    assert script.take(Positioned)[0].offset == 40


def test_a_reset_by_duration_goes_to_the_end_where_nothing_was_written_since() -> None:
    script = Finding(auto_offset_reset="by_duration:PT1H")
    script.member_of(1, 0)
    script.found(-1)
    assert script.requested(api.ListOffsets).timestamps == {tp(0): LATEST}
    script.listed(90)
    assert script.take(Positioned) == []
    script.listed(-1)
    assert script.take(Positioned)[0].offset == 90


def test_what_is_written_while_a_reset_by_duration_looks_is_read() -> None:
    """The end was asked for last, and its response could come minutes later: what was written meanwhile was skipped."""
    script = Finding(auto_offset_reset="by_duration:PT1H")
    script.member_of(1, 0)
    script.found(-1)
    script.listed(90)
    script.listed(-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    script.pass_time(5.0)
    assert LATEST not in script.requested(api.ListOffsets).timestamps.values(), "the end is known"
    script.listed(-1)
    assert script.take(Positioned)[0].offset == 90


def test_an_end_of_before_a_seek_is_no_end_of_a_reset_by_duration() -> None:
    script = Finding(auto_offset_reset="by_duration:PT1H")
    script.member_of(1, 0)
    script.found(-1)
    script.listed(90)
    epoch = script.epoch(0)
    script.do(SetPosition(partition=tp(0), epoch=epoch, seek_number=1, fetch_number=1, offset=BY_DURATION))
    script.listed(-1)  # of before the seek
    assert script.requested(api.ListOffsets).timestamps == {tp(0): LATEST}
    script.listed(110)
    script.listed(-1)
    assert script.take(Positioned)[0].offset == 110


def test_a_duration_longer_than_time_itself_asks_for_all() -> None:
    script = Finding(auto_offset_reset=1e12)
    script.member_of(1, 0)
    script.found(-1)
    script.listed(90)
    assert script.requested(api.ListOffsets).timestamps == {tp(0): 0}


def test_a_leader_is_asked_in_its_epoch() -> None:
    script = Finding()
    script.leader_epochs = {0: 5}
    script.member_of(1, 0)
    script.found(-1)
    assert script.requested(api.ListOffsets).leader_epochs == {tp(0): 5}


@pytest.mark.vector(73)
def test_a_seek_to_the_end_again_while_it_is_looked_for_finds_it() -> None:
    script = Finding()
    script.member_of(1, 0)
    epoch = script.epoch(0)
    for number in (1, 2):
        script.do(SetPosition(partition=tp(0), epoch=epoch, seek_number=number, fetch_number=number, offset=LATEST))
    script.found(0)
    script.listed(90)
    script.listed(90) if "ListOffsets" in script.waits() else None
    (event,) = script.take(Positioned)
    assert (event.offset, event.seek_number) == (90, 2)


@pytest.mark.rule("18")
@pytest.mark.parametrize(("policy", "told"), [("earliest", False), ("latest", True), ("by_duration:PT1H", True)])
def test_a_beginning_that_a_later_reset_would_pass_is_told_as_one(policy: str, told: bool) -> None:
    script = Finding(auto_offset_reset=policy)
    script.member_of(1, 0)
    script.found(-1)
    script.listed(40)
    if policy.startswith("by"):
        script.listed(-1)  # nothing was written since: the end
    (event,) = script.take(Positioned)
    assert (event.offset, event.reset) == (40, told)


@pytest.mark.rule("18")
@pytest.mark.parametrize(("policy", "told"), [("earliest", False), ("latest", True), ("by_duration:PT1H", True)])
def test_so_is_where_a_reset_leads_of_an_offset_that_the_log_lacks(policy: str, told: bool) -> None:
    """Out of range, say: the next owner would be reset as well, and to a later end."""
    script = Finding(auto_offset_reset=policy)
    script.member_of(1, 0)
    script.found(10)
    script.take(Positioned)
    where = {"earliest": EARLIEST, "latest": LATEST}.get(policy, BY_DURATION)
    script.do(
        SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=where, reset_from=10)
    )
    script.listed(100)
    if where == BY_DURATION:
        script.listed(-1)
    (event,) = script.take(Positioned)
    assert (event.offset, event.reset, event.missing) == (100, told, MissingOffsets(10, 0) if told else None)


@pytest.mark.rule("18")
def test_a_seek_to_an_end_is_no_reset_nor_is_a_committed_offset(script: Finding) -> None:
    script.found(7)
    script.do(
        SetPosition(
            partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=LATEST, leader_epoch=-1
        )
    )
    script.listed(40)
    assert [each.reset for each in script.take(Positioned)] == [False, False]


@pytest.mark.parametrize("offset", [-1, -(1 << 63)])
def test_a_log_begins_nowhere_below_zero(script: Finding, offset: int) -> None:
    script.found(-1)
    script.listed(offset)
    assert script.take(Positioned) == []
    script.pass_time(2.0)
    script.listed(3)
    assert script.requested(api.Fetch).partitions[0].offset == 3
