"""S10: who does not know whether it still is a member."""

from __future__ import annotations

from typing import Final

from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Commit, Delivery

_GRACE: Final = 0.05
"""Between the decision and its being written down (real threads)."""


def _is_told(step: Delivery | Commit, state: HistoryState) -> bool:
    """What is read by hand needs no membership: a static member that unsubscribed before has sent no LeaveGroup."""
    by_hand = step.each is not None and step.each.generation is None
    return step.event.who in state.alive and not by_hand


@rule("S10", "fences itself", "delivery", when=_is_told)
def s10_records(step: Delivery, state: HistoryState) -> str | None:
    """When the session time-out has passed since the sending of the last heartbeat that succeeded, nothing is
    returned until one is. (What a Join or Sync under way is worth, the writer of "alive" knows.) What a poll has in
    hand when a signal's handler begins, it may return after the handler's end. (That it looks again where it can,
    tests/core/application/test_signal_handlers.py shows.)"""
    until = state.alive_until(step.event.who)
    in_hand = step.each.in_hand
    if (step.event.time if in_hand is None else in_hand.since) <= until + _GRACE:
        return None
    return f"{step.each}: {step.first}-{step.last} was returned; {step.event.who} knew of its membership to {until:.3f}"


@rule("S10", "commits as a member only", "commit sent", when=_is_told)
def s10_commits(commit: Commit, state: HistoryState) -> str | None:
    """Nor is anything committed meanwhile."""
    until = state.alive_until(commit.event.who)
    if commit.event.time <= until + _GRACE:
        return None
    return f"{commit.event.who} commits {commit.partition}, and knew of its membership to {until:.3f} only"
