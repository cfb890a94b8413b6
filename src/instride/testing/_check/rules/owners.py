"""S11: who owns what."""

from __future__ import annotations

from instride.testing._check.events import Event
from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Change, Delivery


@rule("S11", "one owner", "assigned")
def s11_twice(step: Change, state: HistoryState) -> str | None:
    """A member is not assigned what it has. Where one writer sees all, and nothing fails, no member is assigned what
    another one still has: that one is named, since the leader's assignment or its own claim is at fault."""
    each, older = step.each, step.older
    mine = state.live[each.who].get(each.partition)
    if mine is not None:
        return f"{mine} is assigned again"
    parameters = state.judged_by
    if (
        parameters.view == "broker"
        and parameters.calm
        and older is not None
        and not older.ended
        and older.who != each.who
    ):
        return f"{each} is assigned, and {older} is not over"
    return None


@rule("S11", "one owner", "delivery")
def s11_live(step: Delivery, state: HistoryState) -> str | None:
    """Nothing is returned by a member after another one was assigned the partition; who returned it is at fault. Who
    cannot know is not: one that missed a barrier, or the response of its Join, hears of it by its next heartbeat; so
    does a static member whose place another process takes, for as long as it may take itself for a member; and a
    coordinator that loads says that all is well."""
    each = step.each
    if not each.superseded or _could_not_know(step.event, state):
        return None
    return f"{each}: {step.first}-{step.last} was returned after another member had it"


def _could_not_know(event: Event, state: HistoryState) -> bool:
    parameters = state.judged_by
    blind = state.blind.get(event.who)
    if blind is not None and event.time - blind < (parameters.session or 0.0):
        return True
    evicted_at, why = state.evicted.get(event.who, (0.0, ""))
    if "instance id" in why:
        return event.time - evicted_at < (parameters.session or 0.0)
    return "in time" in why and event.time - evicted_at < (parameters.beat or 0.0)
