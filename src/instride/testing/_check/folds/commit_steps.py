"""Commits: what a member sends, what the response says, and what the coordinator takes."""

from __future__ import annotations

from collections.abc import Set

from instride.errors.codes import ErrorCode
from instride.records import TopicPartition
from instride.testing._check.assignment import Assignment
from instride.testing._check.events import Event
from instride.testing._check.history_state import Folds, HistoryState, SentBack
from instride.testing._check.steps import Commit

__all__ = ["FOLDS"]

_FENCED_INSTANCE_ID = ErrorCode.FENCED_INSTANCE_ID
_REFUSED_FOR_GOOD = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
"""Not authorized: the user is told, and what the commit spoke of may come again."""
_NOT_TAKEN = (
    *_REFUSED_FOR_GOOD,
    _FENCED_INSTANCE_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
"""The coordinator looks for these before it takes a commit. Of any other failure it may have taken it all the same."""


def _sends(state: HistoryState, event: Event) -> None:
    number, offsets = event.detail
    state.commits_at_all.add(event.who)
    sent: dict[TopicPartition, Commit] = {}
    for partition, offset, leader_epoch in offsets:
        sent[partition] = Commit(event, _sent_of(state, event.who, partition, offset), partition, offset, leader_epoch)
        state.sent_epochs[event.who, partition, offset] = leader_epoch
        state.ask("commit sent", sent[partition])
        _sends_back(state, sent[partition], number)
        state.sent[partition] = max(offset, state.sent.get(partition, 0))
        allowed = state.rewinds[event.who, partition]
        while allowed.count(offset) > 1:
            state.use_rewind(event.who, partition, offset)  # of what was called by now a member sends one commit
        state.allowed_when_sent[event.who, partition] = len(allowed)
    state.in_flight[event.who][number] = sent


def _sends_back(state: HistoryState, commit: Commit, number: int) -> None:
    """The coordinator may take it though its sender never hears of that: then another one begins there."""
    who, partition, offset, each = commit.event.who, commit.partition, commit.offset, commit.each
    may_rewind = state.may_rewind(who, partition, offset)
    moved = each is not None and bool(each.reset) and each.committed <= offset
    if offset < state.sent.get(partition, 0) and (may_rewind or moved):
        state.sent_back[partition][who, number] = SentBack(offset, may_rewind)


def _sent_of(state: HistoryState, who: str, partition: TopicPartition, offset: int) -> Assignment | None:
    """By hand a partition may be assigned anew before a commit of its last assignment is sent, or taken: of another by
    hand, or of a membership that was interrupted while it ended."""
    last = state.last.get((who, partition))
    holes: Set[int] = state.holes.get(partition, frozenset())
    if last is None or last.generation is not None or _may_be_of(state, last, offset, holes):
        return last
    for each in reversed(state.of_member[who]):
        by_hand = each.generation is None and each.ended == "revoked"
        let_go = each.partition == partition and (by_hand or each.ended == "interrupted")
        if let_go and _may_be_of(state, each, offset, holes):
            return each
    return last


def _may_be_of(state: HistoryState, each: Assignment, offset: int, holes: Set[int]) -> bool:
    allowed = offset in state.rewinds[each.who, each.partition]
    return allowed or each.covers(offset, holes) or each.is_of_before_its_seek(offset)


def _responded(state: HistoryState, event: Event) -> None:
    """Whoever is fenced, by another with its instance id, can commit nothing more: all it has done may come again."""
    number, offsets = event.detail
    if any(code == _FENCED_INSTANCE_ID for _, _, code in offsets):
        for fenced in state.live[event.who].values():
            fenced.excused = True
    sent = state.in_flight[event.who].pop(number, {})
    for partition, offset, code in offsets:
        taken = state.taken[event.who, partition]
        if not code and offset in taken:
            del taken[: taken.index(offset)]
        refused = state.last.get((event.who, partition))
        if code in _REFUSED_FOR_GOOD and refused is not None:
            refused.excused = True
        if code in _NOT_TAKEN:
            state.sent_back[partition].pop((event.who, number), None)
        each = state.live[event.who].get(partition)
        is_lost = partition in sent and state.is_of_truncated(sent[partition])
        if not code and each is not None and not is_lost:
            each.acknowledged = max(offset, each.acknowledged)
        if code and each is not None:
            each.failed_at = event.time
        elif not code and state.judged_by.view == "clients":
            # Of the assignment in which it was sent; by hand the partition may be assigned anew before the response.
            last = sent[partition].each if partition in sent else state.last.get((event.who, partition))
            _take(state, Commit(event, last, partition, offset, _epoch_of(state, event.who, partition, offset)))


def _epoch_of(state: HistoryState, who: str, partition: TopicPartition, offset: int) -> int:
    """The leader epoch with which it was sent."""
    return state.sent_epochs.get((who, partition, offset), -1)


def _commit(state: HistoryState, event: Event) -> None:
    for partition, offset, code in event.detail[1]:
        if not code:
            each = _sent_of(state, event.who, partition, offset)
            _take(state, Commit(event, each, partition, offset, _epoch_of(state, event.who, partition, offset)))


def _take(state: HistoryState, commit: Commit) -> None:
    state.ask("commit", commit)
    may_be_older = _may_be_older(state, commit)
    is_elsewhere = _uses_rewind(state, commit)
    if commit.each is not None:
        commit.each.failed_at = None
        is_lost = state.is_of_truncated(commit)
        if may_be_older and not is_lost:
            commit.each.went_back_earlier(commit.offset)
        elif not is_lost and not commit.each.is_of_before_its_seek(commit.offset):
            is_elsewhere |= commit.each.earlier is not None
            commit.each.committed, commit.each.earlier = commit.offset, None
    state.committed[commit.partition] = commit.offset
    state.committed_epochs[commit.partition] = commit.leader_epoch
    state.sent_back.pop(commit.partition, None)
    state.taken[commit.event.who, commit.partition].append(commit.offset)
    # Where its user went back on purpose, what was sent before counts no more: from there on commits rise.
    before = 0 if is_elsewhere else state.sent.get(commit.partition, 0)
    state.sent[commit.partition] = max(commit.offset, before)


def _may_be_older(state: HistoryState, commit: Commit) -> bool:
    """Whether its user may have asked for it before he sought: he had allowed it by then, or it speaks of what he has
    not read since. (A signal's handler may seek between what he asks for and what he allows.)"""
    each, here = commit.each, (commit.event.who, commit.partition)
    if each is None or each.earlier is None:
        return False
    by_then = state.rewinds[here][: state.allowed_when_moved.get(here, 0)]
    return commit.offset in by_then or not each.covers(commit.offset, state.holes.get(commit.partition, frozenset()))


def _uses_rewind(state: HistoryState, commit: Commit) -> bool:
    """The commit that was allowed to go back uses that up, and what its user allowed before. Another one does where it
    goes back in its place; one that rises may have been on its way before. Whether it went back so."""
    here = commit.event.who, commit.partition
    allowed = state.rewinds[here]
    goes_back = commit.offset < state.sent.get(commit.partition, 0)
    if commit.offset in allowed:
        used = allowed[: allowed.index(commit.offset) + 1]
    else:
        has_moved = commit.each is not None and commit.each.earlier is not None
        by_then = state.allowed_when_sent.get(here, len(allowed))
        if has_moved:  # since its user sought it goes in the place of what he had allowed before that
            by_then = min(by_then, state.allowed_when_moved.get(here, by_then))
        # Of before a seek: it goes back by an earlier seek, and may be asked for before what is allowed.
        is_older = commit.each is not None and commit.each.is_of_before_its_seek(commit.offset)
        used = [at for at in allowed[:by_then] if goes_back and not is_older and at <= commit.offset]
    if commit.offset in allowed and _is_less_than_done(commit):  # in the place of one that was never sent, say
        state.forget_deliveries(commit.partition, commit.offset)
    for at in used:
        state.use_rewind(*here, at)
    if used and goes_back:
        state.forget_deliveries(commit.partition, min(*used, commit.offset))
    return bool(used) and goes_back


def _is_less_than_done(commit: Commit) -> bool:
    """Whether its user chose to commit less than he could."""
    each = commit.each
    return each is not None and each.start is not None and commit.offset < each.start + each.done


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
    for partition, offset in event.detail[0]:
        state.rewinds[event.who, partition].append(offset)


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
