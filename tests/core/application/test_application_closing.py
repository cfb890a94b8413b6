"""Leaving with no next poll (rule 12): everything completes, in time, whatever a listener does."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from application_script import RecordingListener, Script, epochs, tp

from instride._core.events import (
    Assign,
    Assigned,
    CallCompleted,
    Close,
    Commit,
    CommitsSettled,
    CompleteRevoke,
    PartitionFailed,
    PartitionsRevoked,
    Positioned,
    Revoked,
    Unsubscribe,
    Wakeup,
)
from instride.errors import IllegalStateError, KafkaTimeoutError
from instride.testing._simulation.interrupts import Interrupter

Leaving = type[Close] | type[Unsubscribe]
KINDS = pytest.mark.parametrize("kind", [Close, Unsubscribe])


class Leaver:
    """A consumer that leaves while the test plays the network side."""

    def __init__(self, kind: Leaving, *, listener: RecordingListener | None = None, **settings: Any) -> None:
        self.script = Script(**settings)
        self.kind = kind
        self.script.subscribe(listener)
        self.script.assigned(0, 1, 2)
        self.script.poll()
        self.script.revocation_requested(1, 2)
        self.script.poll()
        if not self.script.config.enable_auto_commit:
            self.script.delay(2)
        self.script.posted.clear()
        self.result: Any = None
        self.ended = False
        machine, now = self.script.machine, self.script.now
        self.call: Any = machine.close(now, 10.0, leave=True) if kind is Close else machine.unsubscribe(now, 10.0)

    def go(self, now: float | None = None) -> None:
        """On to the next wait, or the end."""
        try:
            self.call.send(now)
        except StopIteration as end:
            self.ended, self.result = True, end.value

    def settle(self, *partitions: int, listener: bool = False) -> None:
        kind = CommitsSettled if listener else Revoked
        self.script.up(kind(partitions=epochs(*partitions)))
        self.go(self.script.now)

    def completion(self, error: Exception | None = None) -> None:
        (event,) = self.script.take_posted(self.kind)
        self.script.up(CallCompleted(call=event.call, error=error))
        self.go(self.script.now)


@pytest.mark.rule("12")
@KINDS
def test_all_go_at_once_delayed_ones_too_and_then_the_group_is_left(kind: Leaving) -> None:
    leaver = Leaver(kind)
    leaver.go()
    (complete,) = leaver.script.take_posted(CompleteRevoke)
    assert complete.partitions == epochs(0, 1, 2)
    assert leaver.script.take_posted(kind) == [], "commits and revokes first"
    leaver.settle(0, 1)
    assert leaver.script.take_posted(kind) == []
    leaver.settle(2)
    leaver.completion()
    assert leaver.ended
    assert leaver.script.assignment() == set()
    assert (leaver.script.to_be_revoked(), leaver.script.lost_partitions()) == (set(), set())
    assert leaver.script.machine.subscription() == frozenset()
    with pytest.raises(IllegalStateError):
        leaver.script.poll()


@pytest.mark.rule("12")
@KINDS
def test_the_listener_is_called_once_for_each_before_the_group_is_left(kind: Leaving) -> None:
    listener = RecordingListener()
    leaver = Leaver(kind, listener=listener)
    listener.heard.clear()
    leaver.go()
    leaver.settle(0, 1, 2, listener=True)
    assert listener.heard == [("revoked", [0, 1, 2])]
    assert leaver.script.take_posted(PartitionsRevoked) == [PartitionsRevoked(partitions=epochs(0, 1, 2))]
    leaver.completion()
    assert leaver.ended


@pytest.mark.rule("12")
@KINDS
def test_what_is_lost_meanwhile_is_lost_and_not_revoked(kind: Leaving) -> None:
    listener = RecordingListener()
    leaver = Leaver(kind, listener=listener)
    listener.heard.clear()
    leaver.go()
    leaver.script.lost(2)
    leaver.settle(0, 1, listener=True)
    assert listener.heard == [("lost", [2]), ("revoked", [0, 1])]
    leaver.completion()
    assert leaver.ended


@pytest.mark.rule("12")
@KINDS
@pytest.mark.parametrize("where", ["revoked", "lost"])
@pytest.mark.parametrize(("error", "raised"), [(LookupError("a bug"), LookupError), (StopIteration(), RuntimeError)])
def test_a_listeners_error_is_raised_when_everything_is_done(
    kind: Leaving, where: str, error: Exception, raised: type[Exception]
) -> None:
    listener = RecordingListener()
    leaver = Leaver(kind, listener=listener)
    listener.error = error
    leaver.go()
    if where == "lost":
        leaver.script.lost(0, 1, 2)
        leaver.go(leaver.script.now)
    else:
        leaver.settle(0, 1, 2, listener=True)
    with pytest.raises(raised):
        leaver.completion()
    assert leaver.script.assignment() == set()


@pytest.mark.rule("12")
def test_a_wakeup_stops_no_close() -> None:
    leaver = Leaver(Close)
    leaver.go()
    leaver.script.up(Wakeup())
    leaver.settle(0, 1, 2)
    leaver.completion()
    assert leaver.result is True


@pytest.mark.requirement("surface/close-bounded")
@pytest.mark.rule("12")
@pytest.mark.rule("T")
@KINDS
def test_the_whole_ends_at_its_timeout(kind: Leaving) -> None:
    leaver = Leaver(kind)
    leaver.go()
    leaver.go(leaver.script.now + 10.0)
    (event,) = leaver.script.take_posted(kind)
    assert event.deadline == leaver.script.now + 10.0, "it is past: the network side leaves at once"
    leaver.go(leaver.script.now + 10.5)
    assert leaver.ended
    assert leaver.result in (False, None)
    assert leaver.script.assignment() == set()


@pytest.mark.rule("12")
@KINDS
def test_partitions_not_revoked_by_the_timeout_are_told_as_lost(kind: Leaving) -> None:
    """A commit without a response, say: of each partition a listener hears the end, once."""
    listener = RecordingListener()
    leaver = Leaver(kind, listener=listener)
    listener.heard.clear()
    leaver.go()
    leaver.settle(0, listener=True)
    leaver.go(leaver.script.now + 10.0)
    assert listener.heard == [("revoked", [0]), ("lost", [1, 2])]
    assert leaver.script.assignment() == set()
    leaver.go(leaver.script.now + 10.5)
    assert leaver.ended
    assert leaver.result in (False, None)
    assert leaver.script.lost_partitions() == set()


@pytest.mark.rule("12")
@KINDS
def test_what_had_its_response_as_the_timeout_came_is_revoked(kind: Leaving) -> None:
    listener = RecordingListener()
    leaver = Leaver(kind, listener=listener)
    listener.heard.clear()
    leaver.go()
    leaver.script.up(CommitsSettled(partitions=epochs(0, 1, 2)))
    leaver.go(leaver.script.now + 10.0)
    assert listener.heard == [("revoked", [0, 1, 2])]


@pytest.mark.rule("12")
@KINDS
def test_a_listeners_error_on_a_loss_at_the_timeout_is_raised_at_the_end(kind: Leaving) -> None:
    listener = RecordingListener()
    leaver = Leaver(kind, listener=listener)
    listener.error = LookupError("the user's bug")
    leaver.go()
    leaver.go(leaver.script.now + 10.0)
    with pytest.raises(LookupError):
        leaver.go(leaver.script.now + 10.5)


@pytest.mark.requirement("surface/close-bounded")
@pytest.mark.rule("12")
def test_a_close_that_did_not_do_everything_says_so() -> None:
    leaver = Leaver(Close)
    leaver.go()
    leaver.settle(0, 1, 2)
    leaver.completion(KafkaTimeoutError("the group's response did not come"))
    assert leaver.result is False


@pytest.mark.requirement("threading/12")
@pytest.mark.requirement("surface/close-commits")
@pytest.mark.rule("12")
@KINDS
def test_auto_commit_speaks_before_the_revokes(kind: Leaving) -> None:
    leaver = Leaver(kind, enable_auto_commit=True)
    leaver.go()
    kinds = [type(event) for event in leaver.script.posted]
    assert kinds.index(Commit) < kinds.index(CompleteRevoke)


@KINDS
def test_what_was_assigned_by_hand_needs_no_revoke(kind: Leaving) -> None:
    script = Script(enable_auto_commit=True)
    script.machine.assign([tp(0)])
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
    script.fetched(0, 0, 5)
    script.poll()
    script.posted.clear()
    machine = script.machine
    call: Any = machine.close(script.now, 10.0, leave=True) if kind is Close else machine.unsubscribe(script.now, 10.0)
    script.start(call)
    assert [type(event) for event in script.posted] == [Commit, kind]
    script.up(CallCompleted(call=script.take_posted(kind)[0].call))
    with pytest.raises(StopIteration):
        call.send(script.now)
    assert script.assignment() == set()


def test_closing_what_holds_nothing_asks_nothing() -> None:
    script = Script()
    call = script.machine.close(script.now, 10.0, leave=False)
    script.start(call)
    assert [type(event) for event in script.posted] == [Close]


@pytest.mark.rule("12")
@pytest.mark.rule("6")
def test_a_revocation_requested_before_is_nothing_to_a_new_subscription() -> None:
    leaver = Leaver(Unsubscribe)
    leaver.go()
    leaver.settle(0, 1, 2)
    leaver.completion()
    leaver.go(leaver.script.now)
    assert leaver.ended
    leaver.script.subscribe()
    leaver.script.assigned(1, epoch=5)
    leaver.script.poll()
    with pytest.raises(ValueError, match="t-1"):
        leaver.script.delay(1)


@pytest.mark.rule("13")
@pytest.mark.rule("12")
@KINDS
def test_a_loss_is_told_once_wherever_the_poll_that_takes_it_is_interrupted(kind: Leaving) -> None:
    """Each line of that poll in turn, until the number is beyond its last line and nothing interrupts it."""
    number, interrupted = 0, True
    while interrupted:
        listener = RecordingListener()
        leaver = Leaver(kind, listener=listener)
        leaver.script.lost(0)
        try:
            Interrupter(number).run(leaver.script.poll)
        except KeyboardInterrupt:
            number += 1
        else:
            interrupted = False
        leaver.go()
        leaver.settle(1, 2, listener=True)
        leaver.settle(1, 2)
        leaver.completion()
        told = [partition for what, partitions in listener.heard if what != "assigned" for partition in partitions]
        assert leaver.ended
        assert sorted(told) == [0, 1, 2], f"line {number}: {listener.heard}"
        assert ("lost", [0]) in listener.heard
    assert number > 50


@pytest.mark.rule("12")
def test_after_an_unsubscribe_that_was_interrupted_another_subscription_begins() -> None:
    leaver = Leaver(Unsubscribe)
    since = leaver.script.machine.unsubscribed
    leaver.go()
    leaver.call.close()
    leaver.script.machine.give_up(leaver.script.now, 10.0, since=since)
    assert len(leaver.script.take_posted(Unsubscribe)) == 1
    leaver.script.subscribe()
    assert leaver.script.machine.subscription() == {"t"}


@pytest.mark.rule("12")
@pytest.mark.parametrize("comes", ["before it is given up", "after it"])
def test_nobody_keeps_the_response_of_an_unsubscribe_that_was_interrupted(comes: str) -> None:
    leaver = Leaver(Unsubscribe)
    since = leaver.script.machine.unsubscribed
    leaver.go()
    leaver.call.close()
    (event,) = leaver.script.take_posted(Unsubscribe)
    error = KafkaTimeoutError("the group's response to LeaveGroup did not come within the timeout")
    kept = weakref.ref(error)
    leaver.script.up(CallCompleted(call=event.call, error=error))
    del error
    if comes == "before it is given up":
        leaver.script.assignment()
    leaver.script.machine.give_up(leaver.script.now, 10.0, since=since)
    leaver.script.assignment()
    gc.collect()
    assert kept() is None


@pytest.mark.rule("12")
@pytest.mark.parametrize("seen", [True, False])
def test_what_was_assigned_amid_an_interrupted_unsubscribe_leaves_no_data(seen: bool) -> None:
    """seen: the unsubscribe came to see that assignment, and left it with the group."""
    leaver = Leaver(Unsubscribe)
    script, machine = leaver.script, leaver.script.machine
    since = machine.unsubscribed
    leaver.go()
    late = Assigned(generation=2, partitions={tp(7): 9}, unsubscribed=since)
    if seen:
        script.up(late)
        leaver.go(script.now)
    leaver.call.close()
    if not seen:
        script.up(late)
    script.up(Positioned(partition=tp(7), epoch=9, seek_number=0, offset=0))
    error = KafkaTimeoutError("as records, nobody is to keep it")
    kept = weakref.ref(error)
    script.up(PartitionFailed(partition=tp(7), epoch=9, fetch_number=0, error=error))
    del error
    machine.give_up(script.now, 10.0, since=since)
    machine.subscribe(["u"], None)
    assert script.poll() == []
    gc.collect()
    assert kept() is None
    script.run(machine.unsubscribe(script.now, 1.0))
    script.take_posted(Assign)
    machine.assign([tp(7)])
    (assign,) = script.take_posted(Assign)
    assert assign.partitions == {tp(7): 10}, "an epoch of its own"


@pytest.mark.rule("12")
def test_a_listener_subscribes_to_nothing_amid_an_unsubscribe() -> None:
    """It would be undone, and nobody would say so."""
    listener = RecordingListener()
    leaver = Leaver(Unsubscribe, listener=listener)
    leaver.go()
    listener.meanwhile = lambda: leaver.script.machine.subscribe(["u"], None)
    leaver.settle(0, 1, 2, listener=True)
    leaver.settle(0, 1, 2)
    with pytest.raises(IllegalStateError, match="unsubscribe is under way"):
        leaver.completion()
    assert leaver.script.machine.subscription() == frozenset()
