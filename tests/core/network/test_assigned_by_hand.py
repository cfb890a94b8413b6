"""assign(): the application chooses partitions and epochs itself, and may choose again at any moment."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Assign, CallCompleted, Commit, PartitionFailed, Pause, Positioned, SetPosition
from instride._wire import api
from instride.commits import CommitEntry
from instride.errors import CommitFailedError, TransportError

NOT_AVAILABLE, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID = 15, 22, 25


@pytest.fixture
def script() -> NetworkScript:
    return NetworkScript()


def assign(**epochs: int) -> Assign:
    """p0=1, ...: partition 0 in epoch 1."""
    return Assign(partitions={tp(int(name[1:])): epoch for name, epoch in epochs.items()})


def commit(call: int, offset: int, *, epoch: int) -> Commit:
    return Commit(call=call, deadline=1000.0, entries={tp(0): CommitEntry(offset=offset, epoch=epoch, seek_number=0)})


def fetched(script: NetworkScript) -> set[int]:
    """Responds to the fetches that wait, with nothing; the partitions that are requested now."""
    for _ in [each for each in script.waits() if each == "Fetch"]:
        script.response(api.Fetch, api.FetchResponse(partitions={}))
    requests = [each.request for each in script.waiting if isinstance(each.request, api.Fetch)]
    return {each.partition for request in requests for each in request.partitions}


def outcomes(script: NetworkScript) -> dict[int, Exception | None]:
    return {each.call: each.committed[tp(0)] for each in script.take(CallCompleted)}


def test_what_waits_for_the_first_metadata_does_not_back_off_as_well() -> None:
    script = NetworkScript(group_id=None)
    script.hold_metadata = True
    script.do(assign(p0=1, p1=2))
    script.pass_time(5.0)
    script.response(api.Metadata, script.metadata(script.requested(api.Metadata)))
    assert set(script.requested(api.ListOffsets).timestamps) == {tp(0), tp(1)}


@pytest.mark.parametrize("sought", [True, False])
def test_an_id_that_was_known_before_nobody_followed_the_topic_is_not_believed(sought: bool) -> None:
    """The topic was made anew meanwhile: the seek was taken for one in the old topic, and thrown away."""
    script = NetworkScript()
    script.topic_ids = {"t": UUID(int=1)}
    script.committed_offset = 40
    script.do(assign(p0=1))
    script.do(assign())
    script.pass_time(1.0)
    script.topic_ids, script.hold_metadata = {"t": UUID(int=2)}, True
    script.take(Positioned)
    script.do(assign(p0=2))
    if sought:
        script.do(SetPosition(partition=tp(0), epoch=2, seek_number=1, fetch_number=1, offset=40))
    script.hold_metadata = False
    script.response(api.Metadata, script.metadata(script.requested(api.Metadata)))
    script.pass_time(1.0)
    assert script.take(PartitionFailed) == []
    assert fetched(script) == {0}


def test_another_assign_keeps_what_is_in_both_and_drops_the_rest(script: NetworkScript) -> None:
    script.do(assign(p0=1, p1=2))
    script.do(assign(p1=2, p2=3))
    assert "JoinGroup" not in script.waits()
    script.do(
        Commit(
            call=1,
            deadline=1000.0,
            entries={tp(p): CommitEntry(offset=5, epoch=e, seek_number=0) for p, e in ((0, 1), (1, 2), (2, 3))},
        )
    )
    assert script.committed() == {1: 5, 2: 5}
    (response,) = script.take(CallCompleted)
    assert isinstance(response.committed[tp(0)], CommitFailedError)
    assert (response.committed[tp(1)], response.committed[tp(2)]) == (None, None)


def test_a_commit_of_a_partition_that_was_assigned_again_is_not_the_old_one(script: NetworkScript) -> None:
    script.coordinator_error = NOT_AVAILABLE
    script.do(assign(p0=1))
    script.do(commit(1, 9, epoch=1))
    script.do(assign(), assign(p0=2), commit(2, 3, epoch=2))
    assert isinstance(outcomes(script)[1], CommitFailedError)
    script.coordinator_error = 0
    script.pass_time(3.0)
    assert script.committed() == {0: 3}
    assert outcomes(script) == {2: None}


def test_one_that_was_assigned_again_begins_where_the_older_assignment_committed(script: NetworkScript) -> None:
    """The question where it begins overtook a commit that waited for another: what was finished was read again."""
    script.do(assign(p0=1), commit(1, 5, epoch=1))
    script.do(commit(2, 9, epoch=1))
    script.committed_offset = None
    script.do(assign(), assign(p0=2, p1=3))
    assert script.requested(api.OffsetFetch).partitions == (tp(1),)
    assert script.committed() == {0: 5}
    found: dict[api.Partition, api.CommittedOffset] = {tp(1): api.CommittedOffset(offset=0)}
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=found))
    assert "OffsetFetch" not in script.waits()
    assert script.committed() == {0: 9}
    assert script.requested(api.OffsetFetch).partitions == (tp(0),)


def test_one_that_was_assigned_again_waits_for_request_timeout_at_most(script: NetworkScript) -> None:
    """While the coordinator takes no commit it may well say where the partition begins."""
    script.do(assign(p0=1), commit(1, 5, epoch=1))
    script.committed_offset = None
    script.do(assign(), assign(p0=2))
    script.committed(NOT_AVAILABLE)
    script.pass_time(29.0)
    assert "OffsetFetch" not in script.waits()
    script.pass_time(2.0)
    assert script.requested(api.OffsetFetch).partitions == (tp(0),)


def test_one_that_was_assigned_again_waits_for_no_commit_that_was_overtaken(script: NetworkScript) -> None:
    """The older assignment's last commit was overtaken by one in flight: nobody asked where the partition begins."""
    script.do(assign(p0=1), Pause(partition=tp(0), epoch=1), commit(1, 9, epoch=1))
    script.do(commit(2, 5, epoch=1))
    script.committed_offset = None
    script.do(assign(), assign(p0=2))
    assert "OffsetFetch" not in script.waits()
    assert script.committed() == {0: 9}
    assert script.requested(api.OffsetFetch).partitions == (tp(0),)


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION])
def test_a_commit_to_a_group_with_members_says_so(script: NetworkScript, code: int) -> None:
    script.do(assign(p0=1), commit(1, 3, epoch=1))
    script.committed(code)
    error = outcomes(script)[1]
    assert isinstance(error, CommitFailedError)
    assert "the group has members" in str(error)
    assert "max_poll_interval" not in str(error), "it is no member, and loses nothing by polling seldom"


def test_a_response_to_an_old_commit_releases_nothing_that_is_read_again(script: NetworkScript) -> None:
    """It was told then that it had been released, while it was read."""
    script.do(assign(p0=1))
    script.do(commit(1, 5, epoch=1))
    script.do(assign())
    released = script.machine.meter.released_at[tp(0)]
    script.do(assign(p0=2))
    script.wall_clock += 60.0
    script.committed()
    assert outcomes(script) == {1: None}
    assert script.machine.meter.released_at.get(tp(0), released) == released


@pytest.mark.parametrize("offset", [None, 3])
def test_a_commit_is_sent_though_its_partition_came_back_and_left_again(
    script: NetworkScript, offset: int | None
) -> None:
    """offset: of a commit in the newer assignment, which then counts."""
    script.coordinator_error = NOT_AVAILABLE
    script.do(assign(p0=1), commit(1, 10, epoch=1))
    script.do(assign(p1=2), assign(p0=3))
    if offset is not None:
        script.do(commit(2, offset, epoch=3))
    script.do(assign(p1=4))
    script.coordinator_error = 0
    script.pass_time(3.0)
    assert script.committed() == {0: 10 if offset is None else offset}
    told = outcomes(script)
    assert [call for call, error in told.items() if error is None] == [1 if offset is None else 2]


def test_nor_does_a_start_of_the_newer_assignment_take_its_place(script: NetworkScript) -> None:
    script.committed_offset = None
    script.do(assign(p0=1), commit(1, 10, epoch=1))
    script.do(assign(p1=2), assign(p0=3))
    script.do(replace(commit(2, 50, epoch=3), starts=True))
    script.do(assign(p1=4))
    script.response(api.OffsetCommit, TransportError("gone"))
    script.pass_time(3.0)
    assert script.committed() == {0: 10}
    assert outcomes(script)[1] is None


def test_one_that_came_back_holds_up_nothing_of_the_older_assignment(script: NetworkScript) -> None:
    """Once the older commit has its response, that of the newer assignment has its own end."""
    script.do(assign(p0=1), commit(1, 10, epoch=1))
    script.do(assign(p1=2), assign(p0=3))
    script.do(commit(2, 12, epoch=3))
    assert script.committed() == {0: 10}
    script.do(assign(p1=4))
    assert script.committed() == {0: 12}
    assert outcomes(script) == {1: None, 2: None}
