"""A member's life, the group's state, and the history's own beginning and end."""

from __future__ import annotations

from instride.errors import HistoryError
from instride.testing._check.events import BROKER, Event
from instride.testing._check.history_state import Folds, HistoryState
from instride.testing._check.parameters import Parameters
from instride.testing._check.steps import Change, EndOf

__all__ = ["FOLDS"]


def _history(state: HistoryState, event: Event) -> None:
    parameters = Parameters.of(event.detail)
    if state.parameters not in (None, parameters):
        raise HistoryError(f"two files say that they are of different histories: {state.parameters} and {parameters}")
    state.parameters = parameters


def _group(state: HistoryState, event: Event) -> None:
    state.ask("group", event)
    if event.detail[0] == "PreparingRebalance":
        state.rounds += 1
        state.rebalancing_since = event.time
    else:
        state.rebalancing_since = None
    state.members = event.detail[2]


def _started(state: HistoryState, event: Event) -> None:
    steady, finishes, commits = event.detail
    if event.who in state.started or event.who == BROKER:
        raise HistoryError(f"two members are called {event.who!r}: each needs a name of its own")
    state.started.add(event.who)
    if steady:
        state.steady.add(event.who)
    if finishes == "delivered":
        state.taken_for_done.add(event.who)
    state.commits_unseen |= not commits


def _subscribes(state: HistoryState, event: Event) -> None:
    state.changes += 1
    state.ending.pop(event.who, None)
    if state.judged_by.view == "clients":  # one writer that sees all has one listener for each member
        heard = state.heard[event.who]
        state.another_heard[event.who] |= {*heard, *state.live[event.who], *state.untold[event.who]}
        heard.clear()


def _leaving(state: HistoryState, event: Event) -> None:
    """A member that goes before it has used the id that it was given is waited for until its session ends: so a
    rebalance during which one goes is not judged by its length."""
    state.leaving.add(event.who)
    state.steady.discard(event.who)
    state.rebalancing_since = None


def _died(state: HistoryState, event: Event) -> None:
    state.ask("died", event)
    _crashed(state, event)


def _crashed(state: HistoryState, event: Event) -> None:
    state.in_flight.pop(event.who, None)
    for each in list(state.live[event.who].values()):
        state.over(each, "crashed")


def _closed(state: HistoryState, event: Event) -> None:
    (clean,) = event.detail
    state.changes += 1
    if clean:
        state.ask("gone", event)
    else:
        for each in state.of_member[event.who]:
            each.excused = True
    _gone(state, event)


def _gone(state: HistoryState, event: Event) -> None:
    """Whatever is left with the group now was never taken by the application; its listener heard of all else."""
    state.heard[event.who].clear()
    state.another_heard.pop(event.who, None)
    for each in list(state.live[event.who].values()):
        state.over(each, "closed")


def _unsubscribes(state: HistoryState, event: Event) -> None:
    state.rebalancing_since = None
    state.changes += 1
    for each in state.live[event.who].values():
        each.waiting_since = None
        each.excused |= event.detail[0] == "resubscribe in haste"


def _unsubscribed(state: HistoryState, event: Event) -> None:
    state.ask("gone", event)
    state.untold.pop(event.who, None)
    state.to_tell.pop(event.who, None)
    _gone(state, event)


def _timed_out(state: HistoryState, event: Event) -> None:
    """It leaves without the commits that were tried, and refused or pending, for as long as it might wait: what
    they spoke of may come again. What it did not try to commit may not."""
    pending = {partition for offsets in state.in_flight[event.who].values() for partition in offsets}
    for each in state.live[event.who].values():
        each.excused |= each.failed_at is not None or each.partition in pending


def _interrupted(state: HistoryState, event: Event) -> None:
    """An exception left a call. Of one that was to end the membership nothing is left to the application."""
    verb, until = event.detail
    if verb in ("close", "unsubscribe"):
        state.changes += 1
        state.rebalancing_since = None
        state.interrupted.add(event.who)
        state.untold.pop(event.who, None)
        state.to_tell.pop(event.who, None)
        for each in state.of_member[event.who]:
            each.excused = True
        for each in list(state.live[event.who].values()):
            state.over(each, "interrupted")
        if until is not None:
            state.ending.setdefault(event.who, until)


def _evicted(state: HistoryState, event: Event) -> None:
    state.ask("evicted", event)
    state.changes += 0 if event.detail[0] == "it left" else 2  # it goes, and comes back
    state.evicted[event.who] = (event.time, event.detail[0])


def _blind(state: HistoryState, event: Event) -> None:
    state.blind[event.who] = event.time


def _alive(state: HistoryState, event: Event) -> None:
    (until,) = event.detail
    state.heartbeat_responses[event.who] += until is not None and until > state.alive.get(event.who, 0.0)
    state.alive[event.who] = float("inf") if until is None else until


def _sample(state: HistoryState, event: Event) -> None:
    state.ask("sample", event)
    state.samples[event.who].append(event)


def _load(state: HistoryState, event: Event) -> None:
    state.ask("load", event)
    state.loads[event.who].append(event)
    if event.who not in state.leaving:
        state.last_loads[event.who] = event


def _end(state: HistoryState, event: Event) -> None:
    state.ended = True
    state.ask("end", event)
    for each in state.assignments.values():
        if not each.ended:
            state.ask("standing", Change(event, each))
    for again in state.again:
        state.ask("again", again)
    if event.detail[0]:
        for partition, end in state.ends.items():
            state.ask("end of", EndOf(event, partition, end, state.reached(partition)))


FOLDS: Folds = {
    "history": _history,
    "group": _group,
    "started": _started,
    "subscribes": _subscribes,
    "leaving": _leaving,
    "died": _died,
    "crashed": _crashed,
    "closed": _closed,
    "unsubscribes": _unsubscribes,
    "unsubscribed": _unsubscribed,
    "timed out": _timed_out,
    "interrupted": _interrupted,
    "evicted": _evicted,
    "blind": _blind,
    "alive": _alive,
    "sample": _sample,
    "load": _load,
    "end": _end,
}
