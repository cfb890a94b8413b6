"""Faults that once were, on the application side: each of these went wrong before it was mended."""

from __future__ import annotations

import pytest
from application_script import RecordingListener, Script, epochs, tp

from instride._core.events import (
    COMMITTED,
    EARLIEST,
    LATEST,
    Assigned,
    CallCompleted,
    Close,
    Commit,
    CommitsSettled,
    CompleteRevoke,
    ErrorRaised,
    LeaseRenewed,
    PartitionFailed,
    Revoked,
    SetPosition,
    SubscriptionMatched,
    Unsubscribe,
)
from instride.commits import CommitEntry, CommitOutcome, CommitSnapshot
from instride.errors import OffsetOutOfRangeError


@pytest.fixture
def owner(script: Script) -> Script:
    script.assigned(0, 1)
    script.poll()
    script.posted.clear()
    return script


def failed(script: Script, partition: int, *, reset: int | None = None, fetch_number: int = 0) -> None:
    error = OffsetOutOfRangeError("gone")
    script.up(PartitionFailed(partition=tp(partition), epoch=1, fetch_number=fetch_number, error=error, reset=reset))


def test_an_unsubscribe_during_an_immediate_revoke_stops_no_later_subscription(owner: Script) -> None:
    owner.immediate = True
    owner.revocation_requested(1)
    assert owner.poll() == [], "it timed out; the revoke is under way still"
    call = owner.machine.unsubscribe(owner.now, 5.0)
    owner.start(call)
    owner.up(Revoked(partitions=epochs(0)), Revoked(partitions=epochs(1)))
    call.send(owner.now)
    owner.up(CallCompleted(call=owner.take_posted(Unsubscribe)[0].call))
    with pytest.raises(StopIteration):
        call.send(owner.now)
    owner.subscribe()
    owner.assigned(0, epoch=3)
    owner.fetched(0, 0, 3, epoch=3)
    assert owner.poll() == [(0, 0, 3)]


@pytest.mark.rule("8")
@pytest.mark.parametrize("where", [EARLIEST, LATEST])
def test_a_partition_that_is_reassigned_keeps_a_seek_whose_offset_is_not_found_yet(owner: Script, where: int) -> None:
    owner.revocation_requested(1)
    owner.poll()
    owner.machine.seek(tp(1), where)
    owner.delay(1)
    owner.reassigned(1)
    owner.take_posted(SetPosition)
    owner.poll()
    (told,) = owner.take_posted(SetPosition)
    assert told.offset == where


@pytest.mark.rule("8")
def test_a_partition_reassigned_without_a_position_starts_at_the_committed_offset(script: Script) -> None:
    script.assigned(0)
    script.queue.pop()  # the position never came
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.delay(0)
    script.reassigned(0)
    script.poll()
    assert script.take_posted(SetPosition)[-1].offset == COMMITTED


# --- out of range ------------------------------------------------------------------------------------------


def test_an_offset_out_of_range_becomes_a_seek_when_all_before_it_was_returned(owner: Script) -> None:
    owner.fetched(0, 0, 4)
    failed(owner, 0, reset=EARLIEST)
    assert owner.poll(limit=3) == [(0, 0, 3)]
    assert owner.take_posted(SetPosition) == []
    assert owner.poll() == [(0, 3, 4)]
    owner.poll()
    (seek,) = owner.take_posted(SetPosition)
    assert (seek.offset, seek.seek_number, seek.fetch_number) == (EARLIEST, 1, 1)
    assert seek.reset_from == 4, "so that the reset can be told of"
    owner.machine.seek(tp(0), 7)
    assert owner.take_posted(SetPosition)[0].reset_from is None


def test_after_a_reset_commits_may_go_back(owner: Script) -> None:
    owner.machine.commit_async(owner.now, {tp(0): 100})
    failed(owner, 0, reset=EARLIEST)
    owner.poll()
    owner.machine.commit_async(owner.now, {tp(0): 3})
    newest = owner.take_posted(Commit)[-1].entries[tp(0)]
    assert (newest.offset, newest.seek_number) == (3, 1)


def test_an_offset_out_of_range_is_an_error_where_nothing_is_to_be_reset(owner: Script) -> None:
    failed(owner, 0)
    with pytest.raises(OffsetOutOfRangeError):
        owner.poll()
    assert owner.take_posted(SetPosition) == []


# --- the lease ---------------------------------------------------------------------------------------------


@pytest.mark.rule("membership")
def test_a_poll_that_waits_without_a_lease_goes_on_when_it_is_renewed(owner: Script) -> None:
    owner.fetched(0, 0, 3)
    owner.lease.expires = owner.now - 1
    call = owner.machine.poll(owner.now, 60.0, immediate=False, limit=-1)
    owner.start(call)
    owner.lease.expires = owner.now + 10
    owner.up(LeaseRenewed())
    with pytest.raises(StopIteration) as end:
        call.send(owner.now)
    assert len(end.value.value) == 1


# --- closing -----------------------------------------------------------------------------------------------


@pytest.mark.rule("12")
def test_closing_says_that_it_leaves_already_with_the_revokes(owner: Script) -> None:
    owner.start(owner.machine.close(owner.now, 5.0, leave=True))
    assert owner.take_posted(CompleteRevoke) == [CompleteRevoke(partitions=epochs(0, 1), leaving_by=owner.now + 5.0)]


@pytest.mark.rule("12")
def test_a_close_that_is_interrupted_still_leaves_the_group(owner: Script) -> None:
    call = owner.machine.close(owner.now, 30.0, leave=True)
    owner.start(call)
    assert owner.take_posted(Close) == []
    call.close()  # what a KeyboardInterrupt in the wait does
    (event,) = owner.take_posted(Close)
    assert (event.leave, event.deadline) == (True, owner.now + 30.0)


@pytest.mark.rule("13")
def test_an_assignment_before_an_interrupted_unsubscribe_is_not_taken_after_it(owner: Script) -> None:
    """The group's assignment and the unsubscribe pass each other."""
    call = owner.machine.unsubscribe(owner.now, 30.0)
    owner.start(call)
    call.close()
    owner.subscribe()
    owner.up(Assigned(generation=7, partitions={tp(0): 3, tp(1): 4}))
    owner.poll()
    assert owner.assignment() == set()
    owner.assigned(0, epoch=5)
    owner.poll()
    assert owner.assignment() == {0}


@pytest.mark.rule("12")
def test_an_unsubscribe_says_that_it_leaves_where_a_step_has_let_go_of_all(owner: Script) -> None:
    """Else the group might assign the partitions again before the member has left."""
    owner.immediate = True
    owner.revocation_requested(0, 1)
    owner.poll()
    assert owner.take_posted(CompleteRevoke) == [CompleteRevoke(partitions=epochs(0, 1))]
    owner.start(owner.machine.unsubscribe(owner.now, 5.0))
    assert owner.take_posted(CompleteRevoke) == [CompleteRevoke(partitions={}, leaving_by=owner.now + 5.0)]


@pytest.mark.rule("12")
def test_an_interrupted_unsubscribe_still_leaves_and_a_new_subscription_starts(owner: Script) -> None:
    call = owner.machine.unsubscribe(owner.now, 30.0)
    owner.start(call)
    call.close()
    (event,) = owner.take_posted(Unsubscribe)
    assert event.deadline == owner.now + 30.0
    assert owner.assignment() == set()
    owner.subscribe()
    owner.assigned(0, epoch=3)
    owner.fetched(0, 0, 3, epoch=3)
    assert owner.poll() == [(0, 0, 3)]


def test_a_snapshot_whose_commit_has_no_response_before_the_end_is_settled(owner: Script) -> None:
    settled: list[CommitOutcome] = []
    entry = CommitEntry(offset=3, epoch=1, seek_number=0)
    snapshot = CommitSnapshot({tp(0): entry}, lambda _tp, _entry, outcome: settled.append(outcome))
    owner.machine.commit_async(owner.now, snapshot)
    owner.run(owner.machine.close(owner.now, 5.0, leave=True))
    assert settled == [CommitOutcome.FAILED]


def test_auto_commit_lets_completing_partitions_be() -> None:
    script = Script(enable_auto_commit=True, auto_commit_interval=1.0)
    listener = RecordingListener()
    script.subscribe(listener)
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(1)
    script.poll()
    script.poll()
    script.take_posted(Commit)
    script.now += 5
    script.poll()
    assert [set(each.entries) for each in script.take_posted(Commit)] == [{tp(0)}]
    script.up(CommitsSettled(partitions=epochs(1)))
    script.poll()
    assert listener.heard[-1] == ("revoked", [1])


def test_lookups_about_nothing_need_no_response(owner: Script) -> None:
    assert owner.run(owner.machine.offsets_for(owner.now, {}, 60.0)) == {}
    assert owner.run(owner.machine.committed(owner.now, [], 60.0)) == {}
    assert owner.posted == []


@pytest.mark.rule("13")
def test_an_end_that_was_interrupted_is_told_once(owner: Script) -> None:
    call = owner.machine.close(owner.now, 30.0, leave=None)
    owner.start(call)
    call.close()
    owner.machine.end(owner.now, 30.0, leave=None)
    assert len(owner.take_posted(Close)) == 1


@pytest.mark.rule("13")
@pytest.mark.parametrize("begins", [True, False])
def test_an_unsubscribe_that_was_interrupted_before_it_began_leaves_all_the_same(owner: Script, begins: bool) -> None:
    since = owner.machine.unsubscribed
    if begins:  # else Ctrl-C came first
        owner.machine.unsubscribe(owner.now, 30.0)
    owner.machine.give_up(owner.now, 30.0, since=since)
    owner.machine.give_up(owner.now, 30.0, since=since)
    assert len(owner.take_posted(Unsubscribe)) == 1
    assert owner.assignment() == set()


@pytest.mark.rule("13")
def test_an_event_that_a_handler_drained_meanwhile_is_taken_once(owner: Script) -> None:
    """A signal's handler may call the consumer at any moment; here, while an event is applied."""

    class Called:
        calls = 0

        def __eq__(self, other: object) -> bool:
            self.calls += 1
            if self.calls == 1:
                owner.machine.assignment()
            return False

        __hash__ = None  # type: ignore[assignment]

    matched = SubscriptionMatched(pattern=Called(), topics=frozenset())  # type: ignore[arg-type]
    owner.up(matched)
    owner.up(ErrorRaised(error=LookupError("once")))
    with pytest.raises(LookupError):
        owner.poll()
    owner.poll()


def test_a_partition_with_two_turns_in_one_poll_goes_on_where_the_first_ended(script: Script) -> None:
    script.assigned(0)
    script.fetched(0, 0, 3)
    assert script.poll(limit=2) == [(0, 0, 2)]
    script.fetched(0, 3, 6)
    assert script.poll() == [(0, 2, 3), (0, 3, 6)]
