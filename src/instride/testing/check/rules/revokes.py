"""S7: in which order a revoke goes."""

from __future__ import annotations

from instride.testing.check.history_state import HistoryState
from instride.testing.check.rules.rule import rule
from instride.testing.check.steps import Change, Commit, Delivery


@rule("S7", "nothing after the request", "delivery")
def s7_records(step: Delivery, state: HistoryState) -> str | None:
    """Once a poll has said that a partition is to be revoked, no record of it is returned, that poll included, until
    its revoke is delayed and it is reassigned; nor with the news of its loss, nor after its revoke."""
    each = step.each
    if step.asked or step.lost:
        return f"{each.partition} {step.first}-{step.last} came with its revoke"
    if each.ended == "revoked" or each.undelayed:
        return f"{each}: {step.first}-{step.last} after its revoke"
    return None


@rule("S7", "commits are answered first", "revoked")
def s7_answered(step: Change, state: HistoryState) -> str | None:
    """A revoke completes only when each commit of the partition is answered."""
    each = step.each
    for number, offsets in state.in_flight[each.who].items():
        if each.partition in offsets:
            return f"{each} was let go of with its commit {number} at {offsets[each.partition]} unanswered"
    return None


@rule("S7", "no commit after the revoke", "commit sent")
def s7_after(commit: Commit, state: HistoryState) -> str | None:
    """The final commit is before the end of the revoke: none is sent after it."""
    each = commit.each
    if each is None or each.ended not in ("revoked", "closed"):
        return None
    return f"{each.who} commits {commit.partition} at {commit.offset}, and has let go of it"
