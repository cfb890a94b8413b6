"""What a ledger's snapshot says of an assignment that is over never leaves the application side."""

from __future__ import annotations

from application_script import Script, tp

from instride.core.events import Commit
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
