"""S4, S5 and S6: what may be committed."""

from __future__ import annotations

from collections.abc import Set

from instride.testing._check.events import Event
from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Commit


@rule("S4", "no commit beyond a gap", "commit")
def s4(commit: Commit, state: HistoryState) -> str | None:
    """Every commit is at or before the lowest offset that nobody has finished. (Not judged: one of records that the log
    has no more, since it was truncated; nor by S5 and S6.)"""
    reached = state.reached(commit.partition)
    if commit.offset <= reached or state.is_of_truncated(commit):
        return None
    who = commit.event.who
    return f"{who}: {commit.partition} at {commit.offset}; {reached} is not done"


def _was_recreated(commit: Commit, state: HistoryState) -> bool:
    return any(cut.recreated for cut in state.cuts.get(commit.partition, ()))


@rule("S4", "no commit of a deleted topic", "commit", when=_was_recreated)
def s4_deleted(commit: Commit, state: HistoryState) -> str | None:
    """No offset of a deleted topic is committed for the one that was created under its name: the next owner would take
    it for an offset of that one. Whoever commits it names the topic by its id (KIP-516, Kafka 4.1)."""
    if not state.is_of_deleted_topic(commit.partition, commit.leader_epoch):
        return None
    return f"{commit.event.who}: {commit.partition} at {commit.offset} is of a topic that was deleted"


@rule("S5", "commits rise", "commit")
def s5_back(commit: Commit, state: HistoryState) -> str | None:
    """Committed offsets never go back: not within an assignment and, where the coordinator is seen, not in the group.
    Only a seek of the user's leads back, or a reset, or a commit that he allows to rewind. Of a commit whose response
    was lost the user hears that it failed, though the coordinator may have taken it: he may commit less then, and not
    less than he knows to be committed."""
    each = commit.each
    if state.may_rewind(commit.event.who, commit.partition, commit.offset) or state.is_of_truncated(commit):
        return None
    if each is not None and each.is_of_before_its_seek(commit.offset):
        return None
    if each is not None and each.excused and commit.offset >= each.acknowledged:
        return None
    if state.judged_by.view == "broker" and not (each is not None and each.reset):
        before = state.committed.get(commit.partition, 0)
    else:
        before = each.committed if each is not None else 0
    if commit.offset >= before:
        return None
    return f"{commit.event.who} takes {commit.partition} back from {before} to {commit.offset}"


@rule("S5", "one commit at a time", "commit sent")
def s5_alone(commit: Commit, state: HistoryState) -> str | None:
    """A member sends no commit before the last one has its response, or is sure to have none: of two that are under way
    the coordinator might take the older one last."""
    number = next(iter(state.in_flight[commit.event.who]), None)
    if number is None:
        return None
    return f"{commit.event.who} commits {commit.partition} at {commit.offset}; its commit {number} has no response yet"


@rule("S5", "commits carry the leader epoch", "commit sent")
def s5_leader_epoch(commit: Commit, state: HistoryState) -> str | None:
    """A commit carries the leader epoch of the last batch before its offset (KIP-320), that of the last record or a
    newer one: a marker has one too. Without it, an offset that a truncated log does not have looks as if it were out of
    range. What a user commits by numbers of his own, without an epoch, is sent as he wrote it; so is the number that he
    sought to."""
    each = commit.each
    if each is None or (commit.leader_epoch < 0 and (commit.partition, commit.offset) in state.own[each.who]):
        return None
    if state.is_of_truncated(commit):
        return None
    sought = each.sought and (commit.offset == each.start or each.is_of_before_its_seek(commit.offset))
    if sought and commit.leader_epoch < 0:
        return None
    last = each.delivery_of(commit.offset - 1)
    if last is None or last.leader_epoch <= commit.leader_epoch:
        return None
    told = f"leader epoch {commit.leader_epoch}; that of its last record is {last.leader_epoch}"
    return f"{each.who} commits {commit.partition} at {commit.offset} with {told}"


def _coordinator_is_seen(_step: Event | Commit, state: HistoryState) -> bool:
    return state.judged_by.view == "broker"


@rule("S5", "a commit's result is true", "commit told", when=_coordinator_is_seen)
def s5_result(event: Event, state: HistoryState) -> str | None:
    """What a commit's result says is committed, the coordinator took from this member, and nothing of the partition
    since that the member knows of; what it names instead of an offset that was overtaken or lay behind, the group has
    (rule 15). Where it asked the coordinator, what that said last is true."""
    committed, instead = event.detail
    for partition, offset in (*committed, *instead):
        taken = state.taken[event.who, partition]
        requested = state.last.get((event.who, partition))
        if requested is not None and requested.responses[-1:] == [offset]:
            continue
        if offset not in taken and ((partition, offset) in committed or offset != state.committed.get(partition)):
            last = taken[-1] if taken else "nothing"
            return f"{event.who} was told that {partition} is committed at {offset}; the group took {last} from it"
    return None


@rule("S6", "no commit of an older epoch", "commit")
def s6(commit: Commit, state: HistoryState) -> str | None:
    """What was finished in an earlier assignment never reaches a commit: a commit speaks of offsets that were finished
    in the sender's present assignment, since its user sought last, and of nothing else. What was requested before a
    seek may still be taken after it; and what its user allows to rewind is his own choice, as is how commits rise again
    from there. By hand a commit may be taken when its partition is assigned anew already: then it speaks of either.
    (What nobody has finished is S4.)"""
    if commit.offset > state.reached(commit.partition) or state.is_of_truncated(commit):
        return None
    if state.may_rewind(commit.event.who, commit.partition, commit.offset):
        return None
    newest = state.newest.get(commit.partition)
    is_by_group = newest is not None and newest.generation is not None
    owner = newest if state.judged_by.view == "broker" and is_by_group else commit.each
    holes: Set[int] = state.holes.get(commit.partition, frozenset())
    if owner is None or owner.who != commit.event.who or owner.covers(commit.offset, holes):
        return None
    if owner.is_of_before_its_seek(commit.offset) or (owner.start is None and owner.reset == "seek"):
        return None
    if owner.start is not None and owner.committed <= commit.offset < owner.start:
        return None
    return f"{commit.offset} is none of {owner}, begun at {owner.start}"


@rule("S6", "by hand no generation", "commit", when=_coordinator_is_seen)
def s6_by_hand(commit: Commit, state: HistoryState) -> str | None:
    """What is assigned by hand is committed without a generation: the group has no such member."""
    generation, each = commit.event.detail[0], commit.each
    if each is None or each.generation is not None or generation < 0:
        return None
    return f"{each}, by hand, is committed at {commit.offset} in generation {generation}"
