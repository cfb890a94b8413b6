"""S7: in which order a revoke goes, and what it waits for."""

from __future__ import annotations

from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Change, Commit, Delivery, Place


@rule("S7", "nothing after the request", "delivery")
def s7_records(step: Delivery, state: HistoryState) -> str | None:
    """Once a poll has said that a partition is to be revoked, no record of it is returned, that poll included, until
    its revoke is delayed and it is reassigned; nor with the news of its loss, nor after its revoke."""
    each = step.each
    if step.requested or step.lost:
        return f"{each.partition} {step.first}-{step.last} came with its revoke"
    if each.ended == "revoked" or each.undelayed:
        return f"{each}: {step.first}-{step.last} after its revoke"
    return None


@rule("S7", "commits have their responses first", "revoked")
def s7_responses(step: Change, state: HistoryState) -> str | None:
    """A revoke completes only when each commit of the partition has its response. For what was assigned by hand nobody
    waits: it is let go of at once, and commits that were handed over before are still sent."""
    each = step.each
    for number, sent in state.in_flight[each.who].items() if each.generation is not None else ():
        if each.partition in sent:
            offset = sent[each.partition].offset
            return f"{each} was let go of with its commit {number} at {offset} without a response"
    return None


@rule("S7", "no commit after the revoke", "commit sent")
def s7_after(commit: Commit, state: HistoryState) -> str | None:
    """The final commit is before the end of the revoke: none is sent after it. (But of what was assigned by hand.)"""
    each = commit.each
    if each is None or each.ended not in ("revoked", "closed"):
        return None
    if each.ended == "revoked" and each.generation is None:
        return None
    return f"{each.who} commits {commit.partition} at {commit.offset}, and has let go of it"


def _began_at_a_reset(step: Change, state: HistoryState) -> bool:
    """Of a member that commits at all, where the coordinator is seen and the next owner would begin at a later end."""
    each, parameters = step.each, state.judged_by
    seen = parameters.view == "broker" and parameters.reset == "latest"
    return seen and each.began_at_reset and each.reset != "seek" and each.who in state.commits_at_all


@rule("S7", "a start moves with its partition", "revoked", within="faultless", when=_began_at_a_reset)
def s7_start(step: Change, state: HistoryState) -> str | None:
    """Where a partition began at a reset to the latest and nothing of it was committed, its start is committed before
    its revoke completes: else the next owner would begin at a later end, and pass over what was written between (rule
    18). So it is where it was reset later, and the group still has what the log does not have. Not after a seek."""
    committed = state.committed.get(step.each.partition)
    if committed is not None and committed >= (step.each.log_start or 0):
        return None
    return f"{step.each} began at {step.each.start} by a reset, and was let go of with {committed} committed"


@rule("S7", "a delayed partition begins nothing more", "begins")
def s7_delayed(step: Place, state: HistoryState) -> str | None:
    """Once its user has delayed a revoke he begins no work on another record of the partition (rule 16). What failed he
    may try again."""
    each = step.each
    if not (each.requested and each.delayed) or each.ended or step.offset in each.begun:
        return None
    return f"{each}: work on {step.offset} was begun after its revoke was delayed"


@rule("S7", "the lowest offset begins first", "begins")
def s7_lowest(step: Place, state: HistoryState) -> str | None:
    """Work on the records of a partition is begun in the order of their offsets, so that what was begun when it is to
    be revoked leaves no gap (rule 16). What failed may be tried again later."""
    begun = step.each.begun
    if not begun or step.offset in begun or step.offset > max(begun):
        return None
    return f"{step.each}: work on {step.offset} was begun after {max(begun)}"
