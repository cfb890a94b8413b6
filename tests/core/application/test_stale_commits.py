"""What a ledger's snapshot says of an assignment that is over never leaves the application side."""

from __future__ import annotations

import pytest
from application_script import Script, tp

from instride._core.events import CallCompleted, Commit
from instride.errors import (
    CommitFailedError,
    CommitOvertakenError,
    CommitRewindError,
    KafkaError,
    StaleCommitError,
)
from instride.ledger import OffsetLedger
from instride.records import OffsetRange


def ranged(start: int, end: int, *, epoch: int = 1, seek_number: int = 0) -> OffsetRange:
    return OffsetRange(topic="t", partition=0, start=start, end=end, epoch=epoch, seek_number=seek_number)


def finished(ledger: OffsetLedger, piece: OffsetRange) -> None:
    for each in ledger.track([piece]):
        ledger.done(each)


def test_a_snapshot_of_the_present_is_handed_over() -> None:
    script, ledger = Script(), OffsetLedger()
    script.subscribe()
    script.assigned(0)
    script.poll()
    finished(ledger, ranged(0, 5))
    script.machine.commit_async(script.now, ledger.committable())
    (commit,) = script.take_posted(Commit)
    assert {each: entry.offset for each, entry in commit.entries.items()} == {tp(0): 5}


def test_after_a_seek_what_was_finished_before_is_dropped_and_delays_no_revoke() -> None:
    script, ledger = Script(), OffsetLedger()
    script.subscribe()
    script.assigned(0)
    script.poll()
    finished(ledger, ranged(0, 5))
    script.machine.seek(tp(0), 90)
    script.machine.commit_async(script.now, ledger.committable())
    assert not any(commit.entries for commit in script.take_posted(Commit))
    assert not ledger.committable()
    assert ledger.uncommitted([tp(0)]) == set()


def test_what_was_finished_in_an_older_epoch_is_dropped() -> None:
    script, ledger = Script(), OffsetLedger()
    script.subscribe()
    script.assigned(0)
    script.poll()
    finished(ledger, ranged(0, 5))
    script.lost(0)
    script.assigned(0, epoch=2)
    script.poll()
    script.machine.commit_async(script.now, ledger.committable())
    assert not any(commit.entries for commit in script.take_posted(Commit))
    assert not ledger.committable()


@pytest.mark.rule("15")
def test_what_is_stale_goes_along_so_that_the_response_tells_it() -> None:
    script, ledger = Script(), OffsetLedger()
    script.subscribe()
    script.assigned(0)
    script.poll()
    finished(ledger, ranged(0, 5))
    snapshot = ledger.committable()

    def dropped() -> str:
        script.machine.commit_async(script.now, snapshot)
        (commit,) = script.take_posted(Commit)
        assert commit.entries == {}
        assert isinstance(commit.dropped[tp(0)], StaleCommitError)
        return str(commit.dropped[tp(0)])

    script.machine.seek(tp(0), 90)
    assert "sought elsewhere" in dropped()
    script.lost(0)
    script.poll()
    assert "not this consumer's any more" in dropped()
    script.assigned(0, epoch=2)
    script.poll()
    assert "assigned anew" in dropped()


def ledger_after(error: KafkaError) -> OffsetLedger:
    script, ledger = Script(), OffsetLedger()
    script.subscribe()
    script.assigned(0)
    script.poll()
    finished(ledger, ranged(0, 5))
    script.machine.commit_async(script.now, ledger.committable())
    (commit,) = script.take_posted(Commit)
    script.up(CallCompleted(call=commit.call, committed={tp(0): error}))
    script.poll()
    return ledger


@pytest.mark.rule("15")
@pytest.mark.parametrize("kind", [CommitOvertakenError, CommitRewindError])
def test_a_ledger_is_done_with_what_a_later_offset_of_the_group_covers(kind: type[CommitOvertakenError]) -> None:
    ledger = ledger_after(kind("the group has 9", offset=5, committed=9))
    assert not ledger.committable()
    assert ledger.uncommitted([tp(0)]) == set()


@pytest.mark.rule("15")
def test_a_ledger_offers_what_was_refused_again_and_never_what_is_stale() -> None:
    refused = ledger_after(CommitFailedError("refused"))
    assert refused.committable()
    stale = ledger_after(StaleCommitError("lost meanwhile"))
    assert not stale.committable()
    assert stale.uncommitted([tp(0)]) == set()
