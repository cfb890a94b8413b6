"""Commits: what a member sends, what the response says, and what the coordinator takes."""

from __future__ import annotations

from instride.errors.codes import ErrorCode
from instride.testing._check.events import Event
from instride.testing._check.history_state import Folds, HistoryState
from instride.testing._check.steps import Commit

__all__ = ["FOLDS"]

_FENCED_INSTANCE_ID = ErrorCode.FENCED_INSTANCE_ID
_REFUSED_FOR_GOOD = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
"""Not authorized: the user is told, and what the commit spoke of may come again."""


def _sends(state: HistoryState, event: Event) -> None:
    number, offsets = event.detail
    state.commits_at_all.add(event.who)
    for partition, offset, leader_epoch in offsets:
        each = state.last.get((event.who, partition))
        state.ask("commit sent", Commit(event, each, partition, offset, leader_epoch))
        state.sent[partition] = max(offset, state.sent.get(partition, 0))
    state.in_flight[event.who][number] = {partition: offset for partition, offset, _ in offsets}


def _responded(state: HistoryState, event: Event) -> None:
    """Whoever is fenced, by another with its instance id, can commit nothing more: all it has done may come again."""
    number, offsets = event.detail
    if any(code == _FENCED_INSTANCE_ID for _, _, code in offsets):
        for fenced in state.live[event.who].values():
            fenced.excused = True
    state.in_flight[event.who].pop(number, None)
    for partition, offset, code in offsets:
        taken = state.taken[event.who, partition]
        if not code and offset in taken:
            del taken[: taken.index(offset)]
        refused = state.last.get((event.who, partition))
        if code in _REFUSED_FOR_GOOD and refused is not None:
            refused.excused = True
        each = state.live[event.who].get(partition)
        if not code and each is not None:
            each.acknowledged = max(offset, each.acknowledged)
        if code and each is not None:
            each.failed_at = event.time
        elif not code and state.judged_by.view == "clients":
            _take(state, Commit(event, state.last.get((event.who, partition)), partition, offset))


def _commit(state: HistoryState, event: Event) -> None:
    for partition, offset, code in event.detail[1]:
        if not code:
            _take(state, Commit(event, state.last.get((event.who, partition)), partition, offset))


def _take(state: HistoryState, commit: Commit) -> None:
    state.ask("commit", commit)
    state.committed[commit.partition] = commit.offset
    state.taken[commit.event.who, commit.partition].append(commit.offset)
    state.sent[commit.partition] = max(commit.offset, state.sent.get(commit.partition, 0))
    rewinds = state.rewinds[commit.event.who]
    least = state.least_rewind(commit.event.who, commit.partition, commit.offset)
    if least is not None:
        rewinds -= {(tp, at) for tp, at in rewinds if tp == commit.partition and at <= commit.offset}
        state.forget_deliveries(commit.partition, least)
    if commit.each is not None:
        commit.each.failed_at = None
        if not commit.each.is_of_before_its_seek(commit.offset):
            commit.each.committed, commit.each.earlier = commit.offset, None


def _commit_failed(state: HistoryState, event: Event) -> None:
    """Of a blocking commit: what it spoke of may come again."""
    state.ask("commit failed", event)
    for each in state.of_member[event.who]:
        each.excused = True


def _told(state: HistoryState, event: Event) -> None:
    state.ask("commit told", event)


def _group_refused(state: HistoryState, event: Event) -> None:
    """What it has finished cannot be committed: its user is told, and it may come again."""
    for each in state.live[event.who].values():
        each.excused = True


def _own_offsets(state: HistoryState, event: Event) -> None:
    state.own[event.who].update(event.detail[0])


def _allows_rewind(state: HistoryState, event: Event) -> None:
    state.rewinds[event.who].update(event.detail[0])


def _stored(state: HistoryState, event: Event) -> None:
    state.stored = dict(event.detail[0])


FOLDS: Folds = {
    "sends commit": _sends,
    "commit response": _responded,
    "commit": _commit,
    "commit failed": _commit_failed,
    "commit told": _told,
    "group refused": _group_refused,
    "own offsets": _own_offsets,
    "allows rewind": _allows_rewind,
    "stored": _stored,
}
