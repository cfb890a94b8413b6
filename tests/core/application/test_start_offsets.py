"""Rule 18: where a partition began at a reset is committed before it is let go of, by a member that commits at all."""

from __future__ import annotations

from typing import Any

import pytest
from application_script import Script, epochs, tp

from instride._core.events import (
    LATEST,
    Assigned,
    Close,
    Commit,
    CompleteRevoke,
    MissingOffsets,
    PartitionFailed,
    Positioned,
    SetPosition,
)
from instride._core.ownership import RebalanceProtocol
from instride.errors import LogTruncationError, OffsetOutOfRangeError

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
    error = LogTruncationError("truncated", topic="t", partition=0, offset=60, divergent_offset=end)
    failed = PartitionFailed(
        partition=tp(0), epoch=1, fetch_number=0, error=error, reset=end, leader_epoch=2, void_from=end, divergences=1
    )
    script.up(failed)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.poll()
    assert starts(script) == {0: start}
