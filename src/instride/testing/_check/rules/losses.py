"""S8: what is lost."""

from __future__ import annotations

from instride.testing._check.events import Event
from instride.testing._check.folds.records import is_due
from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Commit


@rule("S8", "no commit after lost", "commit sent")
def s8_sent(commit: Commit, state: HistoryState) -> str | None:
    """Of a lost partition no commit is sent any more."""
    each = commit.each
    if each is None or each.ended != "lost":
        return None
    return f"{each.who} commits {commit.partition} at {commit.offset}, and has lost it"


@rule("S8", "no commit after a hand-over", "commit")
def s8_taken(commit: Commit, state: HistoryState) -> str | None:
    """No commit is taken from a member when another one has been assigned the partition since."""
    if state.judged_by.view != "broker":
        return None
    owner = state.newest.get(commit.partition)
    if owner is not None and owner.who == commit.event.who:
        return None
    return f"{commit.event.who}: {commit.partition} at {commit.offset}; now {owner}"


@rule("S8", "losses are told", "poll")
def s8_told(event: Event, state: HistoryState) -> str | None:
    """The next poll says what was lost of what earlier ones returned."""
    lost = event.detail[2]
    for at, each in state.to_tell[event.who]:
        if is_due(state, event, at) and each.partition not in lost:
            return f"{each} was lost, and this poll does not say so"
    return None


@rule("S8", "lost once", "poll")
def s8_once(event: Event, state: HistoryState) -> str | None:
    """A poll names a loss once, and nothing that was not lost."""
    untold = list(state.untold[event.who])
    for partition in event.detail[2]:
        if partition not in untold:
            return f"{event.who} was told that it lost {partition}, and had not"
        untold.remove(partition)
    return None
