"""Damages of L1 to L5, of R1, and of what docs/rebalance.md promises besides (P1 to P5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from damaging import History, at_time_of, damage, later, returns, said, with_events

from instride.testing.check import BROKER

# -- liveness and resources


@damage("L1", "L2 L3 L5 S10")
def _all_stands_still(history: History) -> Iterator[History]:
    yield from _stands_still(history)


@damage("L1")
def _turns_without_its_records(history: History) -> Iterator[History]:
    yield from _turns_pass(history)


@damage("L2", "L1 L3 L5 S10")
def _a_revoke_takes_long(history: History) -> Iterator[History]:
    for at, _ in said(history, "revoked"):
        yield later(history, at)


@damage("L3")
def _more_is_written_than_returned(history: History) -> Iterator[History]:
    *_, (_, event) = said(history, "produced")
    partition, end = event.detail
    yield with_events(history, len(history) - 1, at_time_of(history[-1], "produced", partition, end + 1, who=BROKER))


@damage("L3", "L1 L2 L5 S10")
def _the_members_take_long_to_join(history: History) -> Iterator[History]:
    for at, event in said(history, "group"):
        if event.detail[0] == "CompletingRebalance":
            yield later(history, at)


@damage("L3")
def _rebalance_upon_rebalance(history: History) -> Iterator[History]:
    for at, event in said(history, "group"):
        if event.detail[0] == "PreparingRebalance":
            yield with_events(history, at, *[event] * 100)


@damage("L4")
def _evicted(history: History) -> Iterator[History]:
    for at, event in said(history, "alive"):
        yield with_events(history, at, at_time_of(event, "evicted", "its session ended"))


@damage("L4", "S7 P2 L2")
def _a_thread_dies(history: History) -> Iterator[History]:
    for at, event in said(history, "closed"):
        yield with_events(history, at, at_time_of(event, "died", "network thread", "KeyError: 7"))


@damage("L5", "L1 L2 L3 S10")
def _stands_still_after_a_failed_commit(history: History) -> Iterator[History]:
    yield from _stands_still(_refused(history))


@damage("L5", "L1")
def _turns_without_its_records_after_a_failed_commit(history: History) -> Iterator[History]:
    yield from _turns_pass(history, refused=True)


def _refused(history: History) -> History:
    """Every response to a commit says no."""
    return [
        event._replace(detail=(event.detail[0], tuple((tp, at, 27) for tp, at, _ in event.detail[1])))
        if event.what == "commit response"
        else event
        for event in history
    ]


def _stands_still(history: History) -> Iterator[History]:
    if history[0].detail[2] == "faults":
        return  # where something fails, something may stand still
    for at, _, _ in returns(history):
        if at > len(history) // 2:
            yield later(history, at)


def _turns_pass(history: History, *, refused: bool = False) -> Iterator[History]:
    """Before a poll that returned records that were there already, forty others have returned nothing."""
    for at, event, each in returns(history):
        alive = [each.detail[0] for each in history[:at] if each.what == "alive" and each.who == event.who]
        if not alive or alive[-1] is None:
            continue
        turns = [
            turn
            for number in range(45)
            for turn in (at_time_of(event, "alive", alive[-1] + 0.001 * number), at_time_of(event, "poll", (), (), ()))
        ]
        code = ((each[0], each[3], 27),)
        yield with_events(history, at, *([at_time_of(event, "commit response", -7, code)] if refused else []), *turns)


@damage("R1")
def _more_is_buffered_than_may_be(history: History) -> Iterator[History]:
    for at, event in said(history, "load"):
        _, cap, *rest = event.detail
        yield with_events(history, at, event._replace(detail=(cap + 1, cap, *rest)), instead=True)


@damage("R1")
def _more_and_more_requests(history: History) -> Iterator[History]:
    grown, number = list(history), 0
    for at, event in said(history, "load"):
        number += 1
        grown[at] = event._replace(detail=(*event.detail[:3], number, *event.detail[4:]))
    if number > 60:
        yield grown


@damage("R1")
def _a_thread_spins(history: History) -> Iterator[History]:
    for at, event in said(history, "load"):
        yield with_events(history, at, event._replace(detail=(*event.detail[:5], 5000, event.detail[6])), instead=True)


@damage("R1")
def _requests_without_end(history: History) -> Iterator[History]:
    for at, event in said(history, "load"):
        yield with_events(history, at, event._replace(detail=(*event.detail[:6], 5000)), instead=True)


# -- what docs/rebalance.md promises besides


@damage("P1")
def _returned_while_paused(history: History) -> Iterator[History]:
    for at, event, each in returns(history):
        yield with_events(history, at, at_time_of(event, "still paused", (each[0],)))


@damage("P2")
def _a_listener_hears_twice(history: History) -> Iterator[History]:
    for at, event in said(history, "on assigned"):
        if event.detail[0]:
            yield with_events(history, at + 1, event)


@damage("P3", "S8 S6 S3 S1")
def _lost_without_a_reason(history: History) -> Iterator[History]:
    for at, event in said(history, "revoked"):
        yield with_events(history, at, at_time_of(event, "lost", *event.detail), instead=True)


@damage("P4")
def _a_commit_fails(history: History) -> Iterator[History]:
    for at, event in said(history, "sends commit"):
        yield with_events(history, at, at_time_of(event, "commit failed", "CommitFailedError"))


@damage("P5", "S3 S1 S7 S11 S8 S9 S10 L1 L2 L3 L4 P3 S2 S4 S5 S6")
def _an_epoch_that_was_there(history: History) -> Iterator[History]:
    """A partition that comes back has the epoch that it had."""
    had: dict[Any, int] = {}
    for at, event in said(history, "assigned"):
        for partition, epoch in event.detail[1]:
            if (event.who, partition) in had:
                older = had[event.who, partition]
                again = tuple((tp, older if tp == partition else e) for tp, e in event.detail[1])
                yield [*history[:at], event._replace(detail=(event.detail[0], again)), history[-1]]
            had[event.who, partition] = epoch


@damage("L3", "S1 S2 S3 S4 S5 S6 S7 S8 S9 S10 S11 P1 P2 P5")
def _interrupted_while_it_left_and_a_member_still(history: History) -> Iterator[History]:
    for at, event in said(history, "group"):
        for who in event.detail[2]:
            yield with_events(history, at, at_time_of(event, "interrupted", "close", event.time - 2.0, who=who))
