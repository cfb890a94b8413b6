"""What is assigned to whom, requested, reassigned, revoked and lost; and what listeners hear of it."""

from __future__ import annotations

from instride.testing._check.assignment import Assignment
from instride.testing._check.events import Event
from instride.testing._check.history_state import Folds, HistoryState
from instride.testing._check.steps import Change

__all__ = ["FOLDS"]


def _assigned(state: HistoryState, event: Event) -> None:
    generation, partitions = event.detail
    for partition, epoch in partitions:
        older = state.newest.get(partition)
        new = Assignment(
            who=event.who,
            partition=partition,
            epoch=epoch,
            generation=generation,
            was_leaving=event.who in state.leaving,
            lines=[state.line],
        )
        state.ask("assigned", Change(event, new, older))
        state.assignments[event.who, partition, epoch] = state.live[event.who][partition] = new
        state.last[event.who, partition] = new
        if generation is not None:  # by hand the call that allows it may come before this
            state.rewinds.pop((event.who, partition), None)  # of a call that raised, say
        state.of_member[event.who].append(new)
        _supersede(state, older, new)


def _supersede(state: HistoryState, older: Assignment | None, new: Assignment) -> None:
    """An assignment of an older generation, of which a suspended member hears late, is over from the start."""
    if older is not None:
        if _is_of_later_generation(older, new):
            new.superseded = True
            return
        older.superseded = True
    state.newest[new.partition] = new


def _is_of_later_generation(one: Assignment, other: Assignment) -> bool:
    return one.generation is not None and other.generation is not None and one.generation > other.generation


def _requested(state: HistoryState, event: Event) -> None:
    for each in state.each(event.who, event.detail[0]):
        state.ask("requested", Change(event, each))
        each.requested, each.requested_at = True, event.time
        each.began_at_reset = _began_at_reset(each)
        each.waiting_since, each.passed, each.overdue = None, 0, 0
        each.lines.append(state.line)


def _began_at_reset(each: Assignment) -> bool:
    """A reset of what the log did not have leads to a place, too, of which the group does not know."""
    if each.reset == "out of range":
        return each.log_start is not None
    return each.start is not None and not each.reset and each.responses[-1:] == [None]


def _deadline(state: HistoryState, event: Event) -> None:
    epochs, until = event.detail
    for each in state.each(event.who, epochs):
        each.deadline, each.overdue = until, 0


def _reassigned(state: HistoryState, event: Event) -> None:
    for each in state.each(event.who, event.detail[0]):
        state.ask("reassigned", Change(event, each))
        state.delays_over += each.delayed
        each.requested, each.delayed, each.passed, each.deadline = False, False, 0, None
        each.lines.append(state.line)
        if each.next is not None and state.has_records(each.partition, each.next):
            each.waits(event.time)


def _revoked(state: HistoryState, event: Event) -> None:
    for each in state.each(event.who, event.detail[0]):
        state.ask("revoked", Change(event, each))
        state.delays_over += each.delayed
        state.over(each, "revoked")


def _lost(state: HistoryState, event: Event) -> None:
    for each in state.each(event.who, event.detail[0]):
        state.ask("lost", Change(event, each))
        state.delays_over += each.delayed
        has_left = each.ended == "closed"  # its application unsubscribed, and its listener has heard of this
        state.over(each, "lost")
        each.lost_leaving = event.who in state.leaving
        state.untold[event.who].append(each.partition)
        if each.next != each.start and not each.released and not has_left:
            state.to_tell[event.who].append((event.time, each))


def _on_assigned(state: HistoryState, event: Event) -> None:
    state.ask("on assigned", event)
    state.another_heard[event.who].difference_update(event.detail[0])
    state.heard[event.who].update(event.detail[0])


def _on_gone(state: HistoryState, event: Event) -> None:
    """Who was told of a revoke need not be told that it was lost while his listener ran: its commits were over."""
    state.ask("on gone", event)
    for partition in event.detail[0] if event.what == "on revoked" else ():
        each = state.live[event.who].get(partition)
        if each is not None:
            each.released = True
    state.another_heard[event.who].difference_update(event.detail[0])
    state.heard[event.who].difference_update(event.detail[0])


FOLDS: Folds = {
    "assigned": _assigned,
    "requested": _requested,
    "deadline": _deadline,
    "reassigned": _reassigned,
    "revoked": _revoked,
    "lost": _lost,
    "on assigned": _on_assigned,
    "on revoked": _on_gone,
    "on lost": _on_gone,
}
