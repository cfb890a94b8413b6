"""P1 to P5: what docs/rebalance.md promises besides."""

from __future__ import annotations

from instride.errors import StaleCommitError
from instride.testing._check.events import Event
from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Change, Delivery


@rule("P1", "nothing while paused", "delivery")
def p1(step: Delivery, state: HistoryState) -> str | None:
    """What is paused is not returned."""
    if not step.paused:
        return None
    return f"{step.each.partition} {step.first}-{step.last} was returned"


def _has_heard(event: Event, state: HistoryState) -> bool:
    """Nor is one judged that was interrupted while it left: what its listener was told before is not known."""
    if event.who in state.interrupted:
        return False
    return event.what.startswith("on ") or bool(state.heard[event.who])


@rule("P2", "listeners hear once", "on assigned", "on gone", "gone", when=_has_heard)
def p2(event: Event, state: HistoryState) -> str | None:
    """A listener hears of each assignment once, and once of its end; at the latest when the member has gone. Where a
    recorded member subscribes anew, nobody knows who its listener is now: of what it has by then one may hear, or not.
    """
    heard = state.heard[event.who]
    if event.what in ("closed", "unsubscribed"):
        return f"{event.who}: nothing was told of {sorted(heard)}" if heard else None
    for partition in event.detail[0]:
        if event.what == "on assigned" and partition in heard:
            return f"{event.who}: {partition} was assigned twice"
        if event.what != "on assigned" and partition not in heard and partition not in state.another_heard[event.who]:
            return f"{event.who}: {partition} {event.what}, and was not there"
    return None


@rule("P3", "a calm history loses nothing", "lost", within="calm")
def p3(step: Change, state: HistoryState) -> str | None:
    """Where nothing fails and nobody is late, nothing is lost."""
    return f"{step.event.who} lost {step.each}"


@rule("P4", "a calm commit succeeds", "commit failed", within="calm")
def p4(event: Event, state: HistoryState) -> str | None:
    """Where nothing fails and nobody is late, each commit succeeds: a rebalance is no reason. One that speaks of a
    place which its own user has left by a seek, or that a reset has left, is refused as stale, and that is true (rule
    15)."""
    error = event.detail[0]
    if error.startswith(StaleCommitError.__name__) and state.has_moved(event.who):
        return None
    return f"{event.who}: {error}"


@rule("P5", "epochs rise", "assigned")
def p5(step: Change, state: HistoryState) -> str | None:
    """A partition that is assigned to the same member again has a higher epoch."""
    older = state.last.get((step.each.who, step.each.partition))
    if older is None or older.epoch < step.each.epoch:
        return None
    return f"{step.each} after {older}"
