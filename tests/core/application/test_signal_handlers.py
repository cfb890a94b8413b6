"""A signal's handler that calls the consumer, at every line of a poll (law 6 of `partition`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from application_script import Script, epochs, tp

import instride
from contained import contained
from instride._core.application.partition import Delivery
from instride._core.events import (
    Assign,
    Assigned,
    BackgroundEvent,
    CallCompleted,
    Close,
    Commit,
    CommitsSettled,
    CompleteRevoke,
    Consumed,
    DeadlineMoved,
    DropBuffered,
    EndFound,
    EndsFound,
    FetchCommitted,
    Fetched,
    FetchMetadata,
    FetchOffsets,
    PartitionFailed,
    PartitionRecovered,
    Positioned,
    SetPosition,
    Subscribe,
    SubscriptionMatched,
    Unsubscribe,
)
from instride.commits import CommitResult
from instride.errors import IllegalStateError
from instride.records import OffsetAndTimestamp
from instride.telemetry import OwnershipChange

Polled = list[tuple[int, int, int]]
PATTERN = re.compile("t.*")
OURS = str(Path(instride.__file__).parent / "_core")


class Signal:
    """Its handler runs once, before the n-th line of the core; at: below zero counts only."""

    def __init__(self, at: int, handler: Callable[[], object]) -> None:
        self.at = at
        self.handler = handler
        self.steps = 0
        self.where = ""

    def during(self, call: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return contained(call)
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self.steps += 1
            if self.steps - 1 == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
                self.handler()
        return self._trace


def left(end: int = 20) -> Script:
    """A poll has taken a part of a batch, and nothing has happened since."""
    script = Script()
    script.subscribe()
    script.assigned(0)
    script.fetched(0, 0, end)
    assert script.poll(limit=4) == [(0, 0, 4)]
    return script


def begun() -> Script:
    """More has come since."""
    script = left(10)
    script.fetched(0, 10, 20)
    return script


def requested() -> Script:
    script = begun()
    script.revocation_requested(0)
    return script


def seen_to_be_requested() -> Script:
    script = requested()
    script.poll()
    return script


def delayed() -> Script:
    script = seen_to_be_requested()
    assert script.delay(0)
    return script


def reassigned() -> Script:
    script = delayed()
    script.reassigned(0)
    return script


def dropped() -> Script:
    """For want of memory."""
    script = begun()
    script.up(DropBuffered(partition=tp(0), epoch=1, fetch_number=0))
    return script


def out_of_range(reset: int) -> Script:
    script = left()
    script.poll()
    error = ValueError("out of range")
    script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=error, reset=reset))
    return script


def truncated() -> Script:
    return out_of_range(10)


def expired() -> Script:
    return out_of_range(30)


def not_positioned() -> Script:
    script = Script()
    script.subscribe()
    script.up(Assigned(generation=1, partitions={tp(0): 1}, unsubscribed=0))
    script.poll()
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=7))
    return script


def lost() -> Script:
    script = begun()
    script.lost(0)
    return script


def assigned() -> Script:
    """And what came for the new one is behind its assignment in the queue."""
    script = begun()
    script.assigned(1)
    script.fetched(1, 0, 5)
    return script


def lost_and_assigned() -> Script:
    """And lost again, before a poll took any of it."""
    script = lost()
    script.assigned(0, 1, epoch=2)
    script.lost(0, epoch=2)
    return script


def settled() -> Script:
    """Immediate mode: what a poll awaits. The revoke of partition 1, in two steps, was under way before."""
    script = Script()
    script.subscribe()
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(1)
    script.poll()
    script.poll()
    script.immediate = True
    script.revocation_requested(0)
    script.poll()
    script.up(CommitsSettled(partitions=epochs(0)))
    return script


def by_hand() -> Script:
    script = Script(group_id=None)
    script.machine.assign([tp(0)])
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
    script.fetched(0, 0, 20)
    assert script.poll(limit=4) == [(0, 0, 4)]
    return script


def every_line(
    limit: int, handler: Callable[[Script], object], scene: Callable[[], Script] = begun
) -> Iterator[tuple[str, Script, Polled]]:
    """Of each run: where the handler interrupted the poll, and what that returned."""
    script, counting = scene(), Signal(-1, lambda: None)
    counting.during(partial(script.poll, limit=limit))
    assert counting.steps > 80
    for at in range(counting.steps):
        script = scene()
        signal = Signal(at, partial(handler, script))
        polled = signal.during(partial(script.poll, limit=limit))
        yield signal.where, script, polled


RECORDS = [*((begun, each) for each in (1, 6, 8, -1)), (left, 6)]
SCENES = pytest.mark.parametrize(("scene", "limit"), RECORDS)
RESTARTS = [(each, 6) for each in (reassigned, dropped, truncated, expired, not_positioned)]
"""In each of them the poll itself says where the partition goes on."""


@pytest.mark.drawn(3)
@pytest.mark.rule("13")
@pytest.mark.parametrize(("scene", "limit"), [*RECORDS, *RESTARTS])
def test_a_seek_stands_wherever_it_interrupts_a_poll(scene: Callable[[], Script], limit: int) -> None:
    for where, script, _ in every_line(limit, lambda script: script.machine.seek(tp(0), 400), scene):
        assert script.machine.positions()[tp(0)][2] == 400, where
        *_, seek = script.take_posted(SetPosition)
        assert seek.offset == 400
        assert script.poll() == [], where
        script.fetched(0, 400, 410, fetch_number=seek.fetch_number)
        assert script.poll() == [(0, 400, 410)], where


@pytest.mark.rule("13")
def test_a_seek_stands_though_the_poll_drops_what_is_buffered_for_a_revoke() -> None:
    for where, script, _ in every_line(6, lambda script: script.machine.seek(tp(0), 400), requested):
        assert script.machine.positions()[tp(0)][2] == 400, where
        script.delay(0)
        script.reassigned(0)
        script.poll()
        *_, told = script.take_posted(SetPosition)
        assert told.offset == 400, where
        script.fetched(0, 400, 410, fetch_number=told.fetch_number)
        assert script.poll() == [(0, 400, 410)], where


@pytest.mark.rule("13")
def test_what_a_handler_takes_out_of_the_queue_while_a_revoke_begins_is_told() -> None:
    """Else it takes capacity until the partition is gone, though it was dropped."""

    def handler(script: Script) -> None:
        script.fetched(0, 20, 30)
        script.machine.lag(tp(0))

    for where, script, _ in every_line(6, handler, requested):
        script.poll()
        told = [each.partitions[tp(0)] for each in script.take_posted(Consumed) if tp(0) in each.partitions]
        assert sum(records for _, _, records, _ in told) == 30, where


@pytest.mark.rule("13")
@pytest.mark.parametrize("handler_seeks", [(400,), (400, 500)])
@pytest.mark.parametrize("scene", [begun, requested, not_positioned])
def test_of_two_seeks_the_last_stands(scene: Callable[[], Script], handler_seeks: tuple[int, ...]) -> None:
    """Both sides know it by the same numbers: else what is fetched from there is dropped for ever."""

    def handler(script: Script) -> None:
        for offset in handler_seeks:
            script.machine.seek(tp(0), offset)

    counting = Signal(-1, lambda: None)
    counting.during(partial(scene().machine.seek, tp(0), 300))
    for at in range(counting.steps):
        script = scene()
        script.take_posted(SetPosition)
        signal = Signal(at, partial(handler, script))
        signal.during(partial(script.machine.seek, tp(0), 300))
        told = script.take_posted(SetPosition)
        first = told[0].seek_number
        assert [each.seek_number for each in told] == list(range(first, first + 1 + len(handler_seeks))), signal.where
        _, seek_number, position = script.machine.positions()[tp(0)]
        assert (seek_number, position) == (told[-1].seek_number, told[-1].offset), signal.where
        script.fetched(0, told[-1].offset, 600, fetch_number=told[-1].fetch_number)
        script.poll()  # drops what came before
        assert told[-1].fetch_number == max(each.fetch_number for each in told), signal.where


@pytest.mark.rule("13")
def test_a_delay_that_was_accepted_in_a_poll_holds() -> None:
    accepted: list[bool] = []
    for where, script, _ in every_line(6, lambda script: accepted.append(script.delay(0)), seen_to_be_requested):
        assert bool(script.take_posted(CompleteRevoke)) is not accepted.pop(), where
        assert accepted == [], where


@pytest.mark.rule("13")
def test_each_commit_has_a_number_of_its_own() -> None:
    """Else the response to one is taken for that to the other."""

    def commit(script: Script) -> None:
        script.machine.commit_async(script.now, None)

    counting = Signal(-1, lambda: None)
    counting.during(partial(commit, left()))
    for at in range(counting.steps):
        script = left()
        signal = Signal(at, partial(commit, script))
        signal.during(partial(commit, script))
        one, other = script.take_posted(Commit)
        assert one.call != other.call, signal.where


@pytest.mark.rule("13")
@SCENES
def test_what_a_handler_seeks_from_has_the_seek_number_of_before(scene: Callable[[], Script], limit: int) -> None:
    """Else a commit of these records would count, though the position is another one."""

    def poll(script: Script) -> list[Delivery]:
        return script.run(script.machine.poll(script.now, 0.0, immediate=False, limit=limit))

    counting = Signal(-1, lambda: None)
    counting.during(partial(poll, scene()))
    for at in range(counting.steps):
        script = scene()
        signal = Signal(at, partial(script.machine.seek, tp(0), 400))
        deliveries = signal.during(partial(poll, script))
        assert [each for each in deliveries if each.chunk.first_offset < 400 and each.seek_number] == [], signal.where


@pytest.mark.drawn(2)
@pytest.mark.rule("13")
@SCENES
def test_what_comes_while_a_poll_has_records_makes_none_come_twice(scene: Callable[[], Script], limit: int) -> None:
    def comes(script: Script) -> None:
        """As where a listener of telemetry, or a deserializer, asks for the lag."""
        script.fetched(0, 20, 25)
        script.machine.positions()

    for where, script, polled in every_line(limit, comes, scene):
        returned = [*polled, *(each for _ in range(3) for each in script.poll())]
        assert [offset for _, a, b in returned for offset in range(a, b)] == list(range(4, 25)), where


@pytest.mark.rule("13")
@SCENES
def test_a_look_at_the_position_changes_nothing(scene: Callable[[], Script], limit: int) -> None:
    plain = scene()
    expected = [plain.poll(limit=limit), plain.poll(), plain.poll()]
    for where, script, polled in every_line(limit, lambda script: script.machine.positions(), scene):
        assert [polled, script.poll(), script.poll()] == expected, where


@pytest.mark.drawn(2)
@pytest.mark.rule("13")
@pytest.mark.parametrize("scene", [requested, reassigned, assigned, lost, lost_and_assigned])
def test_what_a_handler_takes_out_of_the_queue_is_taken_by_a_later_poll(scene: Callable[[], Script]) -> None:
    """Each kind that waits for a poll, and what comes early."""

    def drains(script: Script) -> None:
        script.assigned(2, 3)
        script.fetched(2, 0, 5)
        script.revocation_requested(3)
        script.machine.assignment()

    for where, script, polled in every_line(6, drains, scene):
        returned = [*polled, *(each for _ in range(4) for each in script.poll())]
        assert returned.count((2, 0, 5)) == 1, where
        assert {*script.machine.holdings()} >= {tp(2), tp(3)}, where
        assert script.machine.holdings()[tp(3)].state is not OwnershipChange.ASSIGNED, where


@pytest.mark.rule("13")
def test_the_end_of_a_revoke_that_a_handler_drains_is_taken_by_a_later_poll() -> None:
    def drains(script: Script) -> None:
        script.revoked(1)
        script.machine.assignment()

    for where, script, _ in every_line(6, drains, settled):
        script.poll()
        assert tp(1) not in script.machine.holdings(), where


@pytest.mark.rule("13")
@pytest.mark.parametrize("limit", [1, 6, -1])
def test_a_poll_goes_on_though_a_handler_assigns_others(limit: int) -> None:
    for where, script, polled in every_line(limit, lambda script: script.machine.assign([tp(1)]), by_hand):
        assert script.assignment() == {1}, where
        assert {p for p, _, _ in polled} <= {0}, where
        script.up(Positioned(partition=tp(1), epoch=2, seek_number=0, offset=0))
        script.fetched(1, 0, 5, epoch=2)
        assert script.poll() == [(1, 0, 5)], where


class Prompt(Script):
    """Its network side responds at once."""

    def _post(self, event: Any) -> None:
        super()._post(event)
        match event:
            case Commit():
                self.up(CallCompleted(call=event.call, result=CommitResult(), committed=dict.fromkeys(event.entries)))
            case FetchOffsets():
                self.up(CallCompleted(call=event.call, result={tp(0): OffsetAndTimestamp(offset=1, timestamp=-1)}))
            case FetchCommitted() | FetchMetadata() | Unsubscribe() | Close():
                self.up(CallCompleted(call=event.call, result={}))


CALLS: dict[str, Callable[[Script], Any]] = {
    "commit": lambda script: script.machine.commit(script.now, {tp(0): 3}, 60.0, carry_over=True),
    "commit nothing": lambda script: script.machine.commit(script.now, {}, 60.0, carry_over=True),
    "committed": lambda script: script.machine.committed(script.now, [tp(0)], 60.0),
    "offsets": lambda script: script.machine.offsets_for(script.now, {tp(0): -1}, 60.0),
    "times": lambda script: script.machine.offsets_for_times(script.now, {tp(0): 1}, 60.0),
    "topics": lambda script: script.machine.topics(script.now, None, 60.0, internal=True),
    "unsubscribe": lambda script: script.machine.unsubscribe(script.now, 60.0),
    "close": lambda script: script.machine.close(script.now, 60.0, leave=None),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_response_that_a_handler_drains_ends_its_call(name: str) -> None:
    """However soon it comes: before the call has begun to wait for it, too."""

    def made() -> Script:
        script = Prompt()
        script.subscribe()
        if name not in ("unsubscribe", "close"):
            script.assigned(0)
            script.poll()
        return script

    def call(script: Script) -> Any:
        return script.run(CALLS[name](script))

    counting = Signal(-1, lambda: None)
    expected = counting.during(partial(call, made()))
    assert counting.steps > 10
    for at in range(counting.steps):
        script = made()
        began = script.now
        signal = Signal(at, script.assignment)
        assert signal.during(partial(call, script)) == expected, signal.where
        assert script.now == began, f"it waited: {signal.where}"


ERROR, LATER = LookupError("the first"), LookupError("the second")


def failed(error: Exception, **how: Any) -> PartitionFailed:
    return PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=error, **how)


RECOVERED = PartitionRecovered(partition=tp(0), epoch=1, fetch_number=0)


def errors(script: Script) -> object:
    return script.machine.failed().get(tp(0))


@pytest.mark.rule("13")
@pytest.mark.parametrize(
    ("older", "newer", "seen"),
    [
        (RECOVERED, failed(LATER), errors),
        (failed(ERROR), RECOVERED, errors),
        (failed(ERROR), failed(LATER), errors),
        (failed(ERROR, reset=3), failed(LATER), errors),
        (failed(ERROR, void_from=8), failed(LATER), errors),
        (
            SubscriptionMatched(pattern=PATTERN, topics=frozenset({"a"})),
            SubscriptionMatched(pattern=PATTERN, topics=frozenset({"b"})),
            lambda script: script.machine.subscription(),
        ),
        (
            DeadlineMoved(partitions=epochs(0), deadline=300.0),
            DeadlineMoved(partitions=epochs(0), deadline=200.0),
            lambda script: script.machine.revoke_deadline(script.now, tp(0)),
        ),
        (
            EndsFound(ends=(EndFound(partition=tp(0), epoch=1, end=30),)),
            EndsFound(ends=(EndFound(partition=tp(0), epoch=1, end=40),)),
            lambda script: script.machine.lag(tp(0)),
        ),
        (
            Fetched(
                partition=tp(0),
                epoch=1,
                fetch_number=0,
                start=20,
                chunk=None,
                next_offset=20,
                high_watermark=100,
            ),
            EndsFound(ends=(EndFound(partition=tp(0), epoch=1, end=50),)),
            lambda script: script.machine.lag(tp(0)),
        ),
    ],
)
def test_of_two_events_the_newer_stands_whichever_drain_takes_it(
    older: BackgroundEvent, newer: BackgroundEvent, seen: Callable[[Script], object]
) -> None:
    def made() -> Script:
        script = Script()
        script.machine.subscribe(None, None, PATTERN)
        script.assigned(0)
        script.fetched(0, 0, 20)
        script.poll(limit=4)
        script.up(older)
        return script

    def handler(script: Script) -> None:
        script.up(newer)
        script.assignment()

    plain = made()
    plain.up(newer)
    expected = seen(plain)
    counting = Signal(-1, lambda: None)
    counting.during(made().assignment)
    for at in range(counting.steps):
        script = made()
        signal = Signal(at, partial(handler, script))
        signal.during(script.assignment)
        assert seen(script) == expected, signal.where


@pytest.mark.rule("13")
@pytest.mark.parametrize("error", [failed(ERROR), failed(ERROR, void_from=8)])
def test_a_seek_stands_that_interrupts_a_failure(error: BackgroundEvent) -> None:
    def made() -> Script:
        script = begun()
        script.up(error)
        return script

    counting = Signal(-1, lambda: None)
    counting.during(made().assignment)
    for at in range(counting.steps):
        script = made()
        signal = Signal(at, partial(script.machine.seek, tp(0), 400))
        signal.during(script.assignment)
        assert errors(script) is None, signal.where
        *_, seek = script.take_posted(SetPosition)
        script.fetched(0, 400, 410, fetch_number=seek.fetch_number)
        assert [offset for _, a, b in script.poll() for offset in range(a, b)] == list(range(400, 410)), signal.where


# --- subscribe and assign ------------------------------------------------------------------------------------


def subscribes(script: Script) -> None:
    script.machine.subscribe(["a"], None)


def subscribes_by_pattern(script: Script) -> None:
    script.machine.subscribe(None, None, PATTERN)


def assigns(script: Script) -> None:
    script.machine.assign([tp(0), tp(1)])


@pytest.mark.rule("13")
@pytest.mark.parametrize("verb", [subscribes, subscribes_by_pattern, assigns])
def test_what_is_read_is_told_wherever_an_exception_comes(verb: Callable[[Script], None]) -> None:
    """Else a poll waits for what nobody fetches."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    counting = Signal(-1, lambda: None)
    counting.during(partial(verb, Script()))
    for at in range(counting.steps):
        script = Script()
        signal = Signal(at, interrupt)
        with pytest.raises(KeyboardInterrupt):
            signal.during(partial(verb, script))
        told = [*script.take_posted(Subscribe), *script.take_posted(Assign)]
        if told:
            script.poll()
        else:
            with pytest.raises(IllegalStateError):
                script.poll()


@pytest.mark.rule("13")
def test_of_two_assigns_the_last_stands_and_both_sides_know_the_same_epochs() -> None:
    def assigns_another(script: Script) -> None:
        script.machine.assign([tp(1), tp(2)])

    def scene() -> Script:
        script = by_hand()
        script.posted.clear()
        return script

    counting = Signal(-1, lambda: None)
    counting.during(partial(assigns, scene()))
    for at in range(counting.steps):
        script = scene()
        signal = Signal(at, partial(assigns_another, script))
        signal.during(partial(assigns, script))
        one, other = script.take_posted(Assign)
        owned = {tp: epoch for tp, (epoch, _, _) in script.machine.positions().items()}
        assert owned == other.partitions, signal.where
        for each in one.partitions.keys() - owned.keys():
            assert one.partitions[each] not in owned.values(), signal.where


@pytest.mark.rule("13")
@pytest.mark.parametrize("assigning", [True, False])
def test_no_epoch_of_the_group_is_given_again_after_an_assign_and_a_drain(assigning: bool) -> None:
    """Whichever of them interrupts the other."""

    def drains(script: Script) -> None:
        script.up(Assigned(generation=2, partitions={tp(7): 9}, unsubscribed=-1))
        script.assignment()

    verb, handler = (assigns, drains) if assigning else (drains, assigns)
    counting = Signal(-1, lambda: None)
    counting.during(partial(verb, Script()))
    for at in range(counting.steps):
        script = Script()
        signal = Signal(at, partial(handler, script))
        signal.during(partial(verb, script))
        script.machine.assign([tp(2)])
        (epoch,) = script.take_posted(Assign)[-1].partitions.values()
        assert epoch > 9, signal.where


@pytest.mark.rule("13")
def test_a_subscription_stands_that_interrupts_what_another_one_matched() -> None:
    def made() -> Script:
        script = Script()
        subscribes_by_pattern(script)
        script.up(SubscriptionMatched(pattern=PATTERN, topics=frozenset({"t"})))
        return script

    counting = Signal(-1, lambda: None)
    counting.during(made().assignment)
    for at in range(counting.steps):
        script = made()
        signal = Signal(at, partial(subscribes, script))
        signal.during(script.assignment)
        assert script.machine.subscription() == {"a"}, signal.where


@pytest.mark.rule("13")
def test_of_two_subscriptions_the_last_stands() -> None:
    def handler(script: Script) -> None:
        script.machine.subscribe(["b"], None)

    counting = Signal(-1, lambda: None)
    counting.during(partial(subscribes, Script()))
    for at in range(counting.steps):
        script = Script()
        signal = Signal(at, partial(handler, script))
        signal.during(partial(subscribes, script))
        *_, told = script.take_posted(Subscribe)
        assert script.machine.subscription() == told.topics, signal.where


def calls_many_verbs(script: Script) -> None:
    """What does not wait; a partition may be owned already, or no more."""
    with suppress(ValueError):
        script.machine.pause([tp(0)])
        script.machine.resume([tp(0)])
    script.machine.commit_async(script.now, None)
    with suppress(ValueError):
        script.delay(0)


def everything(script: Script, polled: Polled) -> tuple[object, ...]:
    """What is returned in the end, and who holds what; the delay may have come a poll sooner or later."""
    returned = [*polled, *(each for _ in range(4) for each in script.poll())]
    stretches = {
        p: (min(a for q, a, _ in returned if q == p), max(b for q, _, b in returned if q == p))
        for p in (0, 1)
        if p in {q for q, _, _ in returned}
    }
    counted = {p: sum(b - a for q, a, b in returned if q == p) for p in (0, 1)}
    return stretches, counted, script.assignment(), script.lost_partitions()


@pytest.mark.parametrize(("scene", "limit"), [(left, 6), (begun, 6), (begun, -1)])
def test_a_poll_returns_nothing_if_the_lease_ended_while_a_handler_waited(
    scene: Callable[[], Script], limit: int
) -> None:
    """It waits for a commit, say. Before the poll looked first, or after it looked last, nobody can tell."""

    def leased() -> Script:
        script = scene()
        script.lease.expires = script.now + 5.0
        return script

    def handler(script: Script) -> None:
        script.now += 10.0
        script.assignment()

    seen = set[str]()
    for where, script, polled in every_line(limit, handler, leased):
        function = where.rpartition(" ")[2]
        if function in _WHILE_IT_COLLECTS:
            seen.add(function)
            assert polled == [], where
            script.lease.expires = float("inf")
            assert script.poll(limit=limit), where
    assert len(seen) > 1


@pytest.mark.rule("18")
def test_a_seek_that_interrupts_the_commit_of_a_start_raises_nothing() -> None:
    """A poll lets go of a partition of which it has returned nothing, and so commits where it began."""

    def beginning() -> Script:
        script = Script(commit_start_offsets=True)
        script.subscribe()
        script.up(Assigned(generation=1, partitions={tp(0): 1}, unsubscribed=0))
        script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=7, reset=True))
        script.poll()
        script.revocation_requested(0)
        script.poll()
        return script

    def seeks(script: Script) -> None:
        with suppress(ValueError):  # where it is let go of already
            script.machine.seek(tp(0), 3)

    plain = beginning()
    plain.poll()
    (commit,) = plain.take_posted(Commit)
    assert commit.starts
    for where, script, polled in every_line(6, seeks, beginning):
        assert polled == [], where
        assert script.take_posted(CompleteRevoke), where


_WHILE_IT_COLLECTS = ("_is_quiet", "go_on", "_begin", "_stepping", "_take_events", "_collect", "collect")


@pytest.mark.drawn(2)
@pytest.mark.rule("13")
@pytest.mark.parametrize("scene", [begun, requested, delayed, lost, assigned])
def test_verbs_that_a_handler_calls_disturb_no_poll(scene: Callable[[], Script]) -> None:
    """Whatever the poll was taking then: nothing is raised, and each record comes once."""
    plain = scene()
    expected = everything(plain, plain.poll(limit=6))
    for where, script, polled in every_line(6, calls_many_verbs, scene):
        assert everything(script, polled) == expected, where
