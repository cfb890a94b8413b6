"""L3 and L4: it comes to an end, and nothing dies."""

from __future__ import annotations

from typing import Final

from instride.testing._check.assignment import Assignment
from instride.testing._check.events import Event
from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Change, EndOf

_LATE: Final = 1.0
"""Seconds that the last request and its response may take."""


def _rebalances_are_seen(_event: Event, state: HistoryState) -> bool:
    return state.rounds > 0


@rule("L3", "all is done", "end of")
def l3(end: EndOf, state: HistoryState) -> str | None:
    """Once the last fault is over, the group is stable and its lag drains: at the end all that was produced is
    returned, finished and committed. What a member lost while it left, and nobody was assigned after it, nobody may
    commit any more. Nor has one anything to commit that was reset to the end and received nothing since; or that was
    leaving when it began where the group is, after such a reset of another one, and received nothing. The same holds of
    one whose log was truncated, and who received nothing of what has taken the place. Nor has one that was leaving,
    where all that is not committed lies below the place to which another one was reset, and, if the log was not
    truncated, all that it received is committed."""
    if end.prefix < end.end:
        returned = end.prefix in state.delivered.get(end.partition, ())
        return None if returned else f"{end.partition}: {end.prefix} of {end.end} are finished"
    if state.stored is None and (state.commits_unseen or state.judged_by.view == "clients"):
        return None
    at = state.goes_on_at(end.partition) if state.stored is None else state.stored.get(end.partition)
    if state.judged_by.reset == "latest" and (at is None or at < state.start_of(end.partition)):
        return None  # a member that begins at the end and receives nothing has nothing to commit
    owner = state.newest.get(end.partition)
    if owner is not None and owner.lost_leaving:
        return None
    if owner is not None and _has_nothing_to_commit(owner, at, state):
        return None
    if state.has_records(end.partition, state.start_of(end.partition) if at is None else at):
        return f"{end.partition}: {at} of {end.end} is committed"
    return None


def _has_nothing_to_commit(owner: Assignment, at: int | None, state: HistoryState) -> bool:
    partition, own, has_received_nothing = owner.partition, owner.log_start is not None, owner.next == owner.start
    leaves, is_latest = owner.was_leaving and partition in state.was_reset, state.judged_by.reset == "latest"
    is_cut = partition in state.cuts
    if not is_cut and not is_latest:
        return False
    has_committed = has_received_nothing or (at is not None and owner.next is not None and at >= owner.next)
    if leaves and (is_cut or has_committed) and not state.has_records(partition, state.was_reset[partition]):
        return True
    return has_received_nothing and (own or (leaves and is_latest))


def _all_was_to_be_done(step: Change, _state: HistoryState) -> bool:
    return bool(step.event.detail[0])


@rule("L3", "what is sought back is returned", "standing", bound="gap", when=_all_was_to_be_done)
def l3_standing(step: Change, state: HistoryState) -> str | None:
    """The same of records that were committed before: a user who sought back to them has them again, and whoever is a
    member still when all was to be done does not stand still before a record."""
    each, since = step.each, step.each.waiting_since
    if since is None or step.event.time - since <= (state.judged_by.gap or 0.0):
        return None
    return f"{each} stands still at {each.next} since {since:.3f}"


@rule("L3", "a rebalance waits for no delay", "group", within="faultless", bound="rebalance")
def l3_rebalance(event: Event, state: HistoryState) -> str | None:
    """Where nothing fails, all members have joined within `rebalance`, whatever they hold back."""
    parameters, since = state.judged_by, state.rebalancing_since
    if event.detail[0] == "PreparingRebalance" or since is None:
        return None
    waited = event.time - since
    return f"the members took {waited:.2f} s to join" if waited > (parameters.rebalance or 0.0) else None


@rule("L3", "few rounds", "end", within="faultless", when=_rebalances_are_seen)
def l3_rounds(event: Event, state: HistoryState) -> str | None:
    """Where nothing fails a change of membership or of a subscription costs two rounds at most: one that takes
    partitions away, and one that gives them. A revoke that was delayed may end on its own, and costs one more."""
    most = 2 * state.changes + state.delays_over
    return f"{state.rounds} rebalances for {state.changes} changes" if state.rounds > most else None


@rule("L4", "heartbeats go on", "evicted", within="faultless")
def l4_beats(event: Event, state: HistoryState) -> str | None:
    """Heartbeats go on while a revoke is pending and handlers are slow: where nothing fails, nobody is evicted."""
    (why,) = event.detail
    return f"{event.who} was evicted: {why}" if why != "it left" else None


def _was_interrupted(_event: Event, state: HistoryState) -> bool:
    return bool(state.ending)


@rule("L3", "an interrupted end is an end", "group", "end", within="faultless", when=_was_interrupted)
def l3_ends(event: Event, state: HistoryState) -> str | None:
    """A close or an unsubscribe that an exception left still ends the membership, within its own time-out: nobody
    heartbeats for an application that has gone."""
    members = event.detail[2] if event.what == "group" else state.members
    late = [who for who in members if who in state.ending and event.time > state.ending[who] + _LATE]
    return f"{late[0]} was interrupted while it left, and is a member still" if late else None


@rule("L4", "nothing dies", "died")
def l4_lives(event: Event, state: HistoryState) -> str | None:
    """No thread dies or spins, and no call raises what the user cannot have caused; where one dies, its caller hears
    of it at once."""
    thread, error = event.detail
    return f"{event.who}'s {thread}: {error}"
