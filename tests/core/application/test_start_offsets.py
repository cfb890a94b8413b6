"""Rule 18: where a partition began at a reset is committed before it is let go of, by a member that commits at all."""

from __future__ import annotations

from typing import Any

import pytest
from application_script import Script, epochs, tp

from instride._core.events import (
    LATEST,
    Assigned,
    CallCompleted,
    Close,
    Commit,
    CompleteRevoke,
    MissingOffsets,
    PartitionFailed,
    Positioned,
    SetPosition,
)
from instride._core.ownership import RebalanceProtocol
from instride.commits import CommitResult
from instride.errors import LogTruncationError, OffsetOutOfRangeError
from instride.records import OffsetAndMetadata

GONE = OffsetOutOfRangeError("t-1 has no records at offset 7")


def member(protocol: RebalanceProtocol = RebalanceProtocol.COOPERATIVE, **settings: Any) -> Script:
    """Partition 0 began at a reset, at 40; partition 1 at a committed offset."""
    script = Script(protocol=protocol, auto_offset_reset="latest", **settings)
    script.subscribe()
    script.up(Assigned(generation=1, partitions=epochs(0, 1)))
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=40, leader_epoch=3, reset=True))
    script.up(Positioned(partition=tp(1), epoch=1, seek_number=0, offset=7))
    script.poll()
    return script


def starts(script: Script) -> dict[int, int]:
    found = [each for each in script.take_posted(Commit) if each.starts]
    return {at.partition: entry.offset for each in found for at, entry in each.entries.items()}


@pytest.mark.rule("18")
@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("protocol", [RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER])
def test_it_goes_before_the_revoke_is_completed(protocol: RebalanceProtocol, immediate: bool) -> None:
    script = member(protocol)
    script.immediate = immediate
    script.machine.commit_async(script.now, {})
    script.revocation_requested(0, 1)
    script.poll()
    script.poll()
    kinds = [type(each) for each in script.posted if isinstance(each, Commit | CompleteRevoke)]
    assert kinds == [Commit, CompleteRevoke]
    (commit,) = script.take_posted(Commit)
    assert commit.starts
    (entry,) = commit.entries.values()
    assert (entry.offset, entry.epoch, entry.seek_number, entry.leader_epoch) == (40, 1, 0, 3)


@pytest.mark.rule("18")
@pytest.mark.parametrize("verb", ["close", "unsubscribe"])
def test_it_goes_before_the_group_is_left(verb: str) -> None:
    script = member()
    script.machine.commit_async(script.now, None)
    script.posted.clear()
    call: Any = (
        script.machine.close(script.now, 5.0, leave=None)
        if verb == "close"
        else script.machine.unsubscribe(script.now, 5.0)
    )
    script.start(call)
    assert starts(script) == {0: 40}
    assert script.take_posted(CompleteRevoke)


@pytest.mark.rule("18")
@pytest.mark.parametrize(
    ("settings", "commits", "expected"),
    [
        ({}, False, {}),
        ({}, True, {0: 40}),
        ({"enable_auto_commit": True}, False, {0: 40}),
        ({"commit_start_offsets": True}, False, {0: 40}),
        ({"commit_start_offsets": False}, True, {}),
    ],
)
def test_a_member_that_commits_at_all_does_it(settings: Any, commits: bool, expected: Any) -> None:
    script = member(**settings)
    if commits:
        script.machine.commit_async(script.now, {})
    script.revocation_requested(0)
    script.poll()
    script.poll()
    assert starts(script) == expected


@pytest.mark.rule("18")
def test_not_after_a_seek() -> None:
    script = member(commit_start_offsets=True)
    script.machine.seek(tp(0), 40)
    script.revocation_requested(0)
    script.poll()
    script.poll()
    assert starts(script) == {}


@pytest.mark.rule("18")
def test_after_a_reset_by_policy_it_says_which_offset_the_log_lacked() -> None:
    script = member(commit_start_offsets=True)
    script.up(PartitionFailed(partition=tp(1), epoch=1, fetch_number=0, error=GONE, reset=LATEST))
    script.poll()
    (sought,) = script.take_posted(SetPosition)
    assert sought.reset_from == 7
    missing = MissingOffsets(7, 12)
    script.up(Positioned(partition=tp(1), epoch=1, seek_number=1, offset=90, reset=True, missing=missing))
    script.revocation_requested(0, 1)
    script.poll()
    script.poll()
    (commit,) = [each for each in script.take_posted(Commit) if each.starts]
    assert {at.partition: entry.offset for at, entry in commit.entries.items()} == {0: 40, 1: 90}
    assert commit.missing == {tp(1): missing}


@pytest.mark.rule("18")
def test_a_reset_that_is_under_way_stays_one_when_the_partition_is_reassigned() -> None:
    """It became a seek of the user's, of which no start is committed."""
    script = member(commit_start_offsets=True)
    script.up(PartitionFailed(partition=tp(1), epoch=1, fetch_number=0, error=GONE, reset=LATEST))
    script.poll()
    script.revocation_requested(1)
    script.poll()
    script.delay(1)
    script.reassigned(1)
    script.poll()
    told = [(each.offset, each.reset_from) for each in script.take_posted(SetPosition)]
    assert told == [(LATEST, 7)] * 2


@pytest.mark.rule("18")
def test_nothing_of_what_was_lost() -> None:
    script = member(commit_start_offsets=True)
    script.lost(0, 1)
    script.poll()
    script.start(script.machine.close(script.now, 5.0, leave=None))
    assert starts(script) == {}


@pytest.mark.rule("18")
def test_by_hand_it_goes_before_another_assignment_and_at_close() -> None:
    script = Script(auto_offset_reset="latest", commit_start_offsets=True)
    script.machine.assign([tp(0), tp(1)])
    for number in (0, 1):
        script.up(Positioned(partition=tp(number), epoch=number + 1, seek_number=0, offset=40 + number, reset=True))
    script.poll()
    script.machine.assign([tp(1)])
    assert starts(script) == {0: 40}
    script.start(script.machine.close(script.now, 5.0, leave=None))
    kinds = [type(each) for each in script.posted if isinstance(each, Commit | Close)]
    assert kinds == [Commit, Close]
    assert starts(script) == {1: 41}


@pytest.mark.rule("18")
def test_without_a_group_there_is_nothing_to_commit_to() -> None:
    script = Script(group_id=None, auto_offset_reset="latest", commit_start_offsets=True)
    script.machine.assign([tp(0)])
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=40, reset=True))
    script.poll()
    script.machine.assign([])
    assert starts(script) == {}


@pytest.mark.rule("18")
@pytest.mark.parametrize(("end", "start"), [(30, 30), (50, 40)])
def test_after_a_truncation_it_is_in_what_is_left_of_the_log(end: int, start: int) -> None:
    """Else the next owner would be reset to a later end, or begin behind records that nobody has finished."""
    script = member(commit_start_offsets=True)
    script.fetched(0, 40, 60)
    script.poll()
    truncate(script, 0, 60, end)
    release(script, 0)
    assert starts(script) == {0: start}


def truncate(script: Script, partition: int, read: int, end: int, *, fetch_number: int = 0) -> None:
    error = LogTruncationError("truncated", topic="t", partition=partition, offset=read, divergent_offset=end)
    failed = PartitionFailed(
        partition=tp(partition),
        epoch=1,
        fetch_number=fetch_number,
        error=error,
        reset=end,
        leader_epoch=2,
        void_from=end,
        divergences=fetch_number + 1,
    )
    script.up(failed)
    script.poll()


def release(script: Script, partition: int) -> None:
    script.revocation_requested(partition)
    script.poll()
    script.poll()


def released(script: Script, partition: int) -> tuple[int, MissingOffsets | None] | None:
    """The start that its release commits, and what the log did not have."""
    release(script, partition)
    found = [each for each in script.take_posted(Commit) if each.starts]
    for commit in found:
        return commit.entries[tp(partition)].offset, commit.missing.get(tp(partition))
    return None


def reading(*, auto_offset_reset: str = "latest") -> Script:
    """Partition 1, from the group's offset 7 up to 60."""
    script = Script(auto_offset_reset=auto_offset_reset, commit_start_offsets=True)
    script.subscribe()
    script.up(Assigned(generation=1, partitions=epochs(1)))
    script.up(Positioned(partition=tp(1), epoch=1, seek_number=0, offset=7))
    script.fetched(1, 7, 60)
    script.poll()
    return script


@pytest.mark.rule("18")
@pytest.mark.parametrize("policy", ["latest", "by_duration:PT1H"])
def test_a_truncation_makes_one_where_it_began_at_the_groups_offset(policy: str) -> None:
    """Retention may have taken that, or the group has forgotten it: the next owner would be reset to a later end."""
    script = reading(auto_offset_reset=policy)
    truncate(script, 1, 60, 50)
    assert released(script, 1) == (7, MissingOffsets(cut=50))


@pytest.mark.rule("18")
def test_so_does_one_that_takes_only_what_no_poll_has_returned() -> None:
    script = reading()
    script.fetched(1, 60, 90)
    truncate(script, 1, 90, 70)
    assert released(script, 1) == (7, MissingOffsets(cut=70))


@pytest.mark.rule("18")
def test_by_earliest_a_truncation_makes_none() -> None:
    """The next owner would begin behind records that nobody has finished, and that the log has."""
    script = reading(auto_offset_reset="earliest")
    truncate(script, 1, 60, 50)
    assert released(script, 1) is None


@pytest.mark.rule("18")
def test_a_truncation_makes_none_of_where_the_user_sought() -> None:
    script = reading()
    script.machine.seek(tp(1), 20)
    script.fetched(1, 20, 60, fetch_number=1)
    script.poll()
    truncate(script, 1, 60, 50, fetch_number=1)
    assert released(script, 1) is None


@pytest.mark.rule("18")
@pytest.mark.parametrize("ends", [(50, 55), (55, 50)])
def test_of_two_truncations_the_lower_one_counts(ends: tuple[int, int]) -> None:
    """What was read again behind it is finished by nobody."""
    script = member(commit_start_offsets=True)
    script.up(PartitionFailed(partition=tp(1), epoch=1, fetch_number=0, error=GONE, reset=LATEST))
    script.poll()
    script.up(Positioned(partition=tp(1), epoch=1, seek_number=1, offset=90, reset=True, missing=MissingOffsets(7, 12)))
    read, before = 100, 1
    for end in ends:
        script.fetched(1, 90 if read == 100 else ends[0], read, fetch_number=before)
        script.poll()
        truncate(script, 1, read, end, fetch_number=before)
        read, before = 60, before + 1
    assert released(script, 1) == (50, MissingOffsets(7, 12, cut=50, since=1))


@pytest.mark.rule("18")
@pytest.mark.parametrize(("end", "start"), [(80, 80), (95, 90)])
def test_a_truncation_leaves_what_the_log_lacked_before(end: int, start: int) -> None:
    """The group has that still."""
    script = member(commit_start_offsets=True)
    script.up(PartitionFailed(partition=tp(1), epoch=1, fetch_number=0, error=GONE, reset=LATEST))
    script.poll()
    lacked = MissingOffsets(7, 12)
    script.up(Positioned(partition=tp(1), epoch=1, seek_number=1, offset=90, reset=True, missing=lacked))
    script.fetched(1, 90, 100, fetch_number=1)
    script.poll()
    truncate(script, 1, 100, end, fetch_number=1)
    assert released(script, 1) == (start, MissingOffsets(7, 12, cut=end, since=1))


@pytest.mark.rule("18")
@pytest.mark.parametrize(("leader_epoch", "position"), [(-1, 60), (3, -1)])
def test_a_group_offset_behind_a_truncation_counts_only_where_its_epoch_is_known(
    leader_epoch: int, position: int
) -> None:
    """Else the next owner begins there again, behind what took the place of the records, and nobody notices."""
    script = Script(auto_offset_reset="latest", commit_start_offsets=True)
    script.subscribe()
    script.up(Assigned(generation=1, partitions=epochs(1)))
    script.up(Positioned(partition=tp(1), epoch=1, seek_number=0, offset=60, leader_epoch=leader_epoch))
    script.poll()
    truncate(script, 1, 60, 50)
    assert released(script, 1) == (50, MissingOffsets(position, cut=50))


@pytest.mark.rule("18")
def test_an_interceptor_hears_what_was_committed_in_its_place() -> None:
    script = reading()
    truncate(script, 1, 60, 50)
    release(script, 1)
    (commit,) = [each for each in script.take_posted(Commit) if each.starts]
    result = CommitResult(committed={tp(1): OffsetAndMetadata(offset=12)})
    script.up(CallCompleted(call=commit.call, result=result, committed={tp(1): None}))
    script.poll()
    assert script.heard_commits == [{1: 12}]
