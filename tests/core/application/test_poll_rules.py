"""Rules 1 to 10 of docs/rebalance.md, as far as the application side decides them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from application_script import RecordingListener, Script, epochs, tp

from instride._core.events import (
    Assigned,
    CommitsSettled,
    CompleteRevoke,
    DeadlineMoved,
    ErrorRaised,
    LeaseRenewed,
    PartitionsAssigned,
    PartitionsRevoked,
    Polled,
    Revoked,
    SetPosition,
    Wakeup,
)
from instride._core.session_lease import Lease
from instride.errors import ConfigError, IllegalStateError, WakeupError


@pytest.mark.requirement("threading/14")
@pytest.mark.rule("1")
def test_when_an_error_is_raised_nothing_else_was_taken(script: Script) -> None:
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    assert script.to_be_revoked() == {0}
    script.lost(1)
    script.up(ErrorRaised(error=RuntimeError("first")))
    with pytest.raises(RuntimeError, match="first"):
        script.poll()
    assert script.to_be_revoked() == {0}, "the lists did not move"
    assert script.lost_partitions() == set(), "the loss was not taken"
    script.poll()
    assert script.to_be_revoked() == set()
    assert script.lost_partitions() == {1}


@pytest.mark.requirement("threading/14")
@pytest.mark.rule("1")
def test_wakeup_comes_before_the_step(script: Script) -> None:
    script.assigned(0)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.up(Wakeup())
    with pytest.raises(WakeupError):
        script.poll()
    assert script.to_be_revoked() == {0}


def test_a_wakeup_that_waits_is_enough(script: Script) -> None:
    """Of an application that works for long a queue would be left that grows with each wakeup."""
    assert not script.machine.wakeup_waits()
    script.up(Wakeup())
    assert script.machine.wakeup_waits()
    with pytest.raises(WakeupError):
        script.poll()
    assert not script.machine.wakeup_waits()


@pytest.mark.requirement("threading/14")
@pytest.mark.rule("1")
@pytest.mark.parametrize("wakeup_first", [True, False])
def test_of_a_wakeup_and_an_error_the_wakeup_is_raised_first(script: Script, *, wakeup_first: bool) -> None:
    """Whichever came first: one poll raises one of them, and the next poll the other."""
    script.assigned(0)
    script.poll()
    events: list[Wakeup | ErrorRaised] = [Wakeup(), ErrorRaised(error=RuntimeError("second"))]
    for event in events if wakeup_first else reversed(events):
        script.up(event)
    with pytest.raises(WakeupError):
        script.poll()
    with pytest.raises(RuntimeError, match="second"):
        script.poll()
    script.poll()


@pytest.mark.rule("1")
def test_a_poll_that_raised_after_its_step_is_continued_by_the_next(script: Script) -> None:
    script.assigned(0, 1, 2)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.delay(0)
    script.posted.clear()
    call = script.machine.poll(script.now, 10.0, immediate=False, limit=-1)
    script.start(call)
    assert script.to_be_revoked() == {0}, "the step moved it from thereafter to next"
    script.lost(1)
    script.up(ErrorRaised(error=RuntimeError("mid-poll")))
    with pytest.raises(RuntimeError, match="mid-poll"):
        call.send(script.now)
    script.revocation_requested(2)
    script.poll()
    assert script.to_be_revoked() == {0, 2}, "the lists did not move again: 0 would be completing"
    assert script.lost_partitions() == {1}
    assert script.take_posted(CompleteRevoke) == []


@pytest.mark.requirement("KIP-983/26")
@pytest.mark.rule("1")
def test_losses_leave_the_lists_before_the_step(script: Script) -> None:
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(0, 1)
    script.poll()
    script.lost(0)
    script.poll()
    assert [event.partitions for event in script.take_posted(CompleteRevoke)] == [epochs(1)]
    assert script.lost_partitions() == {0}


@pytest.mark.requirement("KIP-983/10")
@pytest.mark.requirement("KIP-983/24")
@pytest.mark.requirement("KIP-983/25")
@pytest.mark.requirement("KIP-983/21")
@pytest.mark.requirement("KIP-983/22")
@pytest.mark.rule("2")
def test_the_step(script: Script) -> None:
    script.assigned(0, 1, 2)
    script.poll()
    script.revocation_requested(0, 1)
    script.lost(2)
    script.poll()
    assert (script.to_be_revoked(), script.lost_partitions()) == ({0, 1}, {2})
    assert script.delay(1)
    assert script.to_be_revoked() == {0}
    script.poll()
    assert [event.partitions for event in script.take_posted(CompleteRevoke)] == [epochs(0)]
    assert (script.to_be_revoked(), script.lost_partitions()) == ({1}, set())


@pytest.mark.requirement("KIP-983/18")
@pytest.mark.requirement("threading/15")
@pytest.mark.vector(52)
@pytest.mark.rule("3")
def test_from_the_request_on_no_record_of_it_is_returned(script: Script) -> None:
    script.assigned(0, 1)
    script.fetched(0, 0, 10)
    script.revocation_requested(0)
    script.fetched(0, 10, 20)
    script.fetched(1, 0, 5)
    assert script.poll() == [(1, 0, 5)]
    script.fetched(0, 20, 30)
    assert script.poll() == []


@pytest.mark.rule("3")
def test_a_request_that_waits_in_the_queue_is_not_taken_yet(script: Script) -> None:
    script.assigned(0)
    script.poll()
    script.revocation_requested(0)
    assert script.to_be_revoked() == set()
    with pytest.raises(ValueError, match="did not ask for t-0"):
        script.delay(0)


@pytest.mark.requirement("KIP-983/17")
@pytest.mark.requirement("KIP-41/2")
@pytest.mark.rule("4")
@pytest.mark.parametrize("news", ["record", "request", "loss"])
def test_poll_returns_as_soon_as_anything_new_is_there(script: Script, news: str) -> None:
    script.assigned(0)
    script.poll()
    call = script.machine.poll(script.now, 10.0, immediate=False, limit=-1)
    script.start(call)
    {
        "record": lambda: script.fetched(0, 0, 1),
        "request": lambda: script.revocation_requested(0),
        "loss": lambda: script.lost(0),
    }[news]()
    with pytest.raises(StopIteration):
        call.send(script.now + 0.5)


@pytest.mark.requirement("KIP-41/2")
@pytest.mark.requirement("threading/24")
@pytest.mark.rule("4")
def test_poll_returns_at_its_timeout_otherwise(script: Script) -> None:
    script.assigned(0)
    script.up(Assigned(generation=2, partitions={}))
    before = script.now
    assert script.poll(timeout=7.0) == []
    assert script.now == before + 7.0


@pytest.mark.rule("5")
def test_a_poll_that_took_a_loss_takes_no_later_event_of_it(script: Script) -> None:
    script.assigned(0, 1)
    script.poll()
    script.lost(0, epoch=1)
    script.assigned(0, epoch=2)
    script.fetched(0, 0, 3, epoch=2)
    assert script.poll() == []
    assert script.lost_partitions() == {0}
    assert script.assignment() == {1}, "the new assignment waits for the next poll"
    assert script.poll() == [(0, 0, 3)]
    assert (script.lost_partitions(), script.assignment()) == (set(), {0, 1})


@pytest.mark.rule("5")
def test_the_others_of_the_same_event_are_taken(script: Script) -> None:
    script.assigned(0)
    script.poll()
    script.lost(0, epoch=1)
    script.up(Assigned(generation=2, partitions={tp(0): 2, tp(5): 3}))
    script.poll()
    assert script.assignment() == {5}
    script.poll()
    assert script.assignment() == {0, 5}


@pytest.mark.rule("5")
def test_an_assignment_that_was_lost_before_anybody_saw_it_is_not_told(listener: RecordingListener) -> None:
    script = Script()
    script.subscribe(listener)
    script.assigned(0)
    script.lost(0)
    script.fetched(0, 0, 3)
    assert script.poll() == []
    assert script.assignment() == set()
    assert listener.heard == []
    assert script.lost_partitions() == set()


@pytest.mark.requirement("KIP-983/26")
@pytest.mark.requirement("KIP-983/22")
@pytest.mark.rule("5")
def test_a_lost_partition_leaves_both_lists_and_is_lost_once(script: Script) -> None:
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(0, 1)
    script.poll()
    script.delay(1)
    script.lost(0, 1)
    script.poll()
    assert (script.to_be_revoked(), script.lost_partitions()) == (set(), {0, 1})
    script.poll()
    assert (script.to_be_revoked(), script.lost_partitions()) == (set(), set())
    assert script.take_posted(CompleteRevoke) == []


@pytest.mark.requirement("KIP-983/13")
@pytest.mark.requirement("KIP-983/23")
@pytest.mark.requirement("KIP-983/16")
@pytest.mark.requirement("KIP-983/21")
@pytest.mark.rule("6")
def test_delay_revoke(script: Script) -> None:
    script.assigned(0, 1, 2, 3)
    script.poll()
    assert script.delay() is True, "delaying nothing"
    with pytest.raises(ValueError, match="t-0"):
        script.delay(0)
    script.revocation_requested(0, 1, 2)
    script.poll()
    with pytest.raises(ValueError, match="t-3"):
        script.delay(0, 3)
    assert script.to_be_revoked() == {0, 1, 2}, "a call that raised changed nothing"
    assert script.delay(0) is True
    assert script.delay(0) is True, "delayed already"
    script.lost(1)
    script.poll()
    assert script.delay(0, 1) is False, "1 was lost; 0 is delayed all the same"
    assert script.to_be_revoked() == set()
    script.poll()
    assert script.delay(2) is False, "2 is completing"
    script.up(Revoked(partitions=epochs(2)))
    script.poll()
    assert script.delay(2) is False, "2 is revoked"


@pytest.mark.rule("6")
@pytest.mark.rule("deadline")
def test_what_is_refused_at_its_deadline_is_lost_and_not_completed(script: Script) -> None:
    """Who wants a delay has not finished. Found by simulation: a poll came between the refusal and the loss."""
    script.assigned(0)
    script.poll()
    script.revocation_requested(0, deadline=script.now + 5.0)
    script.poll()
    script.now += 5.0
    assert script.machine.delay_revoke([tp(0)], now=script.now) is False
    script.posted.clear()
    script.poll()
    assert script.take_posted(CompleteRevoke) == []
    script.lost(0)
    script.poll()
    assert script.lost_partitions() == {0}


@pytest.mark.rule("6")
def test_delaying_what_was_reassigned_is_true(script: Script) -> None:
    script.assigned(0)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.delay(0)
    script.reassigned(0)
    script.poll()
    assert script.delay(0) is True
    script.poll()
    assert script.to_be_revoked() == set()


@pytest.mark.requirement("KIP-983/5")
def test_delay_is_refused_with_auto_commit() -> None:
    script = Script(enable_auto_commit=True)
    script.subscribe()
    script.assigned(0)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    with pytest.raises(ConfigError, match="enable_auto_commit"):
        script.delay(0)


@pytest.mark.rule("8")
@pytest.mark.parametrize("delayed", [False, True])
def test_reassigned_goes_on_after_the_last_returned_record(script: Script, delayed: bool) -> None:
    script.assigned(0)
    script.fetched(0, 0, 10)
    assert script.poll(limit=4) == [(0, 0, 4)]
    script.revocation_requested(0)
    script.poll()
    if delayed:
        script.delay(0)
    script.reassigned(0)
    # The request and the reassignment are both taken in a poll that does not complete it.
    script.delay(0)
    script.poll()
    (moved,) = script.take_posted(SetPosition)
    assert (moved.offset, moved.epoch) == (4, 1)
    script.fetched(0, 4, 6, fetch_number=moved.fetch_number)
    assert script.poll() == [(0, 4, 6)]
    assert script.to_be_revoked() == set()


@pytest.mark.rule("8")
def test_reassigned_while_completing_finishes_the_revoke(script: Script) -> None:
    script.assigned(0)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.reassigned(0)
    script.poll()
    assert script.take_posted(SetPosition) == []
    assert [event.partitions for event in script.take_posted(CompleteRevoke)] == [epochs(0)]
    script.up(Revoked(partitions=epochs(0)))
    script.assigned(0, epoch=2)
    script.fetched(0, 0, 1, epoch=2)
    assert script.poll() == [(0, 0, 1)]


@pytest.mark.requirement("KIP-983/4")
@pytest.mark.requirement("KIP-983/29")
@pytest.mark.requirement("KIP-429/8")
@pytest.mark.rule("9")
def test_immediate_mode_completes_in_the_same_poll_and_waits_for_it(listener: RecordingListener) -> None:
    script = Script()
    script.subscribe(listener)
    script.immediate = True
    script.assigned(0, 1)
    script.poll()
    listener.heard.clear()
    script.revocation_requested(0)
    script.up(Assigned(generation=2, partitions={tp(7): 9}))
    call = script.machine.poll(script.now, 10.0, immediate=True, limit=-1)
    script.fetched(1, 0, 3)
    script.start(call)
    assert [event.partitions for event in script.take_posted(CompleteRevoke)] == [epochs(0)]
    assert script.to_be_revoked() == set()
    assert listener.heard == [], "the new assignment waits for the revoke"
    script.up(CommitsSettled(partitions=epochs(0)))
    assert call.send(script.now).until == script.now, "the listener may have taken long: it looks again, at once"
    with pytest.raises(StopIteration) as end:
        call.send(script.now)
    assert [each.partition.partition for each in end.value.value] == [1]
    assert listener.heard == [("revoked", [0]), ("assigned", [7])]


@pytest.mark.requirement("KIP-983/29")
@pytest.mark.rule("9")
def test_what_was_delayed_under_poll_changes_advances_one_step_in_an_immediate_poll(script: Script) -> None:
    """One consumer with revoke_mode "immediate" that uses both verbs."""
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(0, 1)
    script.poll()
    assert script.to_be_revoked() == {0, 1}, "two-step, as poll_changes always is"
    script.delay(0)
    script.immediate = True
    script.poll()
    assert [event.partitions for event in script.take_posted(CompleteRevoke)] == [epochs(1)]
    assert script.to_be_revoked() == {0}, "not completed at once: it was promised one more poll"
    script.poll()
    assert [event.partitions for event in script.take_posted(CompleteRevoke)] == [epochs(0)]
    assert script.to_be_revoked() == set()


@pytest.mark.requirement("KIP-983/27")
@pytest.mark.rule("10")
def test_listeners_in_two_steps(listener: RecordingListener) -> None:
    script = Script()
    script.subscribe(listener)
    script.assigned(1, 0)
    script.poll()
    assert listener.heard == [("assigned", [0, 1])]
    assert len(script.take_posted(PartitionsAssigned)) == 1
    script.up(Assigned(generation=2, partitions={}))
    script.poll()
    assert len(listener.heard) == 1, "nothing new, nothing told"
    script.revocation_requested(0)
    script.poll()
    script.poll()
    assert len(listener.heard) == 1, "the revoke is not complete"
    script.up(CommitsSettled(partitions=epochs(0)))
    script.poll()
    script.lost(1)
    script.poll()
    assert listener.heard[1:] == [("revoked", [0]), ("lost", [1])]


@pytest.mark.requirement("KIP-429/10")
@pytest.mark.rule("10")
def test_immediate_mode_tells_of_empty_assignments(listener: RecordingListener) -> None:
    script = Script()
    script.subscribe(listener)
    script.immediate = True
    script.up(Assigned(generation=2, partitions={}))
    script.poll()
    assert listener.heard == [("assigned", [])]


@pytest.mark.rule("1")
@pytest.mark.rule("10")
def test_a_listeners_error_is_raised_after_its_step_and_it_runs_once(listener: RecordingListener) -> None:
    script = Script()
    script.subscribe(listener)
    script.assigned(0)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.poll()
    script.up(CommitsSettled(partitions=epochs(0)))
    listener.error = RuntimeError("from the listener")
    with pytest.raises(RuntimeError, match="from the listener"):
        script.poll()
    assert script.assignment() == set()
    assert [event.partitions for event in script.take_posted(PartitionsRevoked)] == [epochs(0)]
    script.poll()
    assert [what for what, _ in listener.heard] == ["assigned", "revoked"]


@pytest.mark.rule("1")
def test_a_listener_that_raises_stop_iteration_has_not_ended_well(listener: RecordingListener) -> None:
    """It was taken for the end of an iteration: the revocation went on as if the listener had committed."""
    script = Script()
    script.subscribe(listener)
    script.assigned(0)
    listener.error = StopIteration("of a next()")
    with pytest.raises(RuntimeError, match="a listener raised StopIteration") as raised:
        script.poll()
    assert isinstance(raised.value.__cause__, StopIteration)
    script.poll()
    assert [what for what, _ in listener.heard] == ["assigned"]


def test_nothing_is_returned_without_a_lease(script: Script) -> None:
    script.assigned(0)
    script.fetched(0, 0, 5)
    script.lease.expires = script.now - 1
    assert script.poll() == []
    script.lease.expires = script.now + 10
    assert script.poll() == [(0, 0, 5)]


class Hurried(Lease):
    """The network thread's turn comes just before the lease is looked at, or just after."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def holds(self, now: float) -> bool:
        self.before()
        owned = super().holds(now)
        self.after()
        return owned


@pytest.mark.parametrize("holds", [True, False])
def test_a_small_poll_looks_at_the_lease_again_where_a_handler_has_called(holds: bool) -> None:
    """A signal's. Here it runs just after the first look, and may wait for longer than the lease lasts."""
    lease, handled = Hurried(), list[None]()
    script = Script(lease=lease)
    script.subscribe()
    script.assigned(0)
    script.fetched(0, 0, 5)
    assert script.poll(limit=2) == [(0, 0, 2)]

    def handler() -> None:
        if not handled:
            handled.append(None)
            script.machine.assignment()
            script.now += 0.0 if holds else 10.0

    lease.expires, lease.after = script.now + 5.0, handler
    assert script.poll(limit=2) == ([(0, 2, 4)] if holds else [])
    lease.expires = float("inf")
    returned = [offset for _, start, end in script.poll(limit=2) for offset in range(start, end)]
    assert returned == ([4] if holds else [2, 3])


@pytest.mark.rule("membership")
def test_a_lease_that_is_renewed_while_a_poll_looks_wakes_it() -> None:
    """The look takes the event that says so, and no other comes."""

    def renewed() -> None:
        if script.lease.expires < script.now:
            script.lease.expires = script.now + 10
            script.up(LeaseRenewed())

    script = Script(lease=Hurried())
    script.subscribe()
    script.assigned(0)
    script.fetched(0, 0, 5)
    script.lease.expires = script.now - 1
    script.lease.after = renewed  # type: ignore[attr-defined]  # it is Hurried
    assert script.poll() == [(0, 0, 5)]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.rule("membership")
def test_the_lease_of_a_new_membership_does_not_vouch_for_what_the_old_one_lost(moment: str) -> None:
    """A process that was suspended: the loss and the lease may come between any two steps of its poll."""

    def turn() -> None:
        script.lost(0)
        script.lease.expires = script.now + 10

    script = Script(lease=Hurried())
    script.subscribe()
    script.assigned(0)
    script.fetched(0, 0, 5)
    assert script.poll(limit=2) == [(0, 0, 2)]
    script.lease.expires = script.now - 1
    setattr(script.lease, moment, turn)
    assert script.poll() == []
    assert script.lost_partitions() == {0}


@pytest.mark.rule("16")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_poll_speaks_for_the_membership_whose_losses_it_has_taken(moment: str) -> None:
    """The loss and the next membership come just before the poll looks at the lease, or just after."""

    def turn() -> None:
        setattr(script.lease, moment, lambda: None)
        script.lost(0)
        script.lease.number, script.lease.expires = 1, script.now + 10

    script = Script(lease=Hurried())
    script.subscribe()
    script.assigned(0)
    script.fetched(0, 0, 5)
    assert script.poll(limit=2) == [(0, 0, 2)]
    former = script.machine.standing()
    setattr(script.lease, moment, turn)
    script.poll()
    assert script.lost_partitions() == {0}
    assert not former.holds(script.now)
    script.poll()
    assert script.machine.standing().holds(script.now)


@pytest.mark.rule("membership")
def test_what_was_lost_while_a_listener_ran_is_not_returned(listener: RecordingListener) -> None:
    script = Script()
    script.subscribe(listener)
    script.assigned(0)
    script.fetched(0, 0, 5)
    assert script.poll(limit=2) == [(0, 0, 2)]
    script.assigned(1, epoch=2)
    listener.meanwhile = lambda: script.lost(0)
    assert script.poll() == []
    assert script.lost_partitions() == {0}


@pytest.mark.rule("5")
@pytest.mark.parametrize("again", [[], [0], [0, 2]], ids=["nothing", "the same", "others too"])
def test_no_assignment_overtakes_a_loss_that_a_verb_in_a_listener_drained(
    listener: RecordingListener, again: list[int]
) -> None:
    """The listener works for so long that its partitions are lost and assigned anew meanwhile, and then calls a verb:
    of what the older assignment had, the user hears as lost first."""
    script = Script()
    script.subscribe(listener)
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(1)
    script.poll()
    script.poll()
    script.up(CommitsSettled(partitions=epochs(1)))

    def meanwhile() -> None:
        listener.meanwhile = lambda: None
        script.lost(0, 1)
        script.assigned(*again, epoch=2)
        script.machine.commit_async(script.now, None)

    listener.meanwhile = meanwhile
    script.poll()
    assert listener.heard[1:3] == [("revoked", [1]), ("lost", [0])]
    assert script.lost_partitions() == {0}
    script.poll()
    assert sorted(p for what, partitions in listener.heard[3:] for p in partitions if what == "assigned") == again
    assert script.assignment() == set(again)


def test_a_long_poll_goes_on_telling_that_the_application_is_alive() -> None:
    script = Script(max_poll_interval=3.0, session_timeout=2.0, heartbeat_interval=0.5)
    script.subscribe()
    script.poll(timeout=10.0)
    assert len(script.take_posted(Polled)) >= 10


def test_polling_without_a_subscription_is_refused() -> None:
    with pytest.raises(IllegalStateError, match="subscribe or assign"):
        Script().poll()


@pytest.mark.vector(47)
def test_data_of_an_assignment_that_is_over_is_dropped_and_not_kept(script: Script) -> None:
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.poll()
    script.up(Revoked(partitions=epochs(0)))
    script.poll()
    script.fetched(0, 0, 5)
    script.assigned(0, epoch=3)
    script.fetched(0, 7, 9, epoch=3, start=0)
    assert script.poll() == [(0, 7, 9)]


@pytest.mark.rule("deadline")
def test_a_deadline_that_moved_before_a_poll_took_the_request_is_kept(script: Script) -> None:
    script.subscribe()
    script.assigned(0)
    script.poll()
    script.revocation_requested(0, deadline=400.0)
    script.up(DeadlineMoved(partitions=epochs(0), deadline=150.0))
    script.poll()
    assert script.machine.revoke_deadline(script.now, tp(0)) == 150.0 - script.now


@pytest.mark.rule("6")
@pytest.mark.rule("deadline")
@pytest.mark.requirement("KIP-983/16")
def test_past_its_deadline_a_delay_is_refused_though_no_loss_was_told_yet(script: Script) -> None:
    """The network side may be late: the process was suspended, or its thread did not get its turn."""
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(0, deadline=150.0)
    script.revocation_requested(1, deadline=400.0)
    script.poll()
    assert script.machine.delay_revoke([tp(0), tp(1)], now=149.9)
    assert not script.machine.delay_revoke([tp(0), tp(1)], now=150.0)
    assert script.machine.delay_revoke([tp(1)], now=150.0)
