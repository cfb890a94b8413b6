"""S1 and S2: how often."""

from __future__ import annotations

from instride.testing._check.assignment import Assignment
from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Again, EndOf


@rule("S1", "exactly once", "again")
def s1(again: Again, state: HistoryState) -> str | None:
    """Each offset is returned at most once per group, across any sequence of joins and leaves. It may come again only
    where who had it before lost it, crashed, was fenced, closed without a response, saw its handler or a blocking
    commit of it fail, gave it up, or had begun no work on it; or was reset, since the log was truncated, before it had
    committed it. A user's seek lets what follows it come once more, and
    what was not committed then, whose commit it ends."""
    before, after = again.before, again.after
    if _may_come_again(again):
        return None
    return f"offset {again.offset}: {before} ({before.ended or 'live'}), and again {after}"


def _may_come_again(again: Again) -> bool:
    before = again.before
    not_begun = before.not_begun is not None and again.offset >= before.not_begun
    left = again.offset < before.left_below
    return before.ended in ("lost", "crashed") or before.excused or not_begun or left


@rule("S2", "duplicates are confined", "again")
def s2_confined(again: Again, state: HistoryState) -> str | None:
    """What comes again after a crash or a loss is between what the crashed or fenced member had committed last, and
    what it was returned last: never an offset that it had committed. Only a seek, or a reset that was told, leads
    further back. (What may not come again at all is S1.)"""
    if not _may_come_again(again) or again.after.reset or again.offset >= again.committed:
        return None
    return f"offset {again.offset} came again {again.after}; {again.before} had committed {again.committed}"


@rule("S2", "at least once", "end of")
def s2(end: EndOf, state: HistoryState) -> str | None:
    """Whatever crashed or was lost: at the end every record that was returned is finished at least once; but what the
    last member of the group had only queued when it left. A member that is leaving already when a partition is
    assigned to it need not read it."""
    last = state.delivered.get(end.partition, {}).get(end.prefix)
    if end.prefix < end.end and last is not None and not _was_left_to_the_next(last, end, state):
        return f"{end.partition}: offset {end.prefix} was returned, and nobody finished it"
    return None


def _was_left_to_the_next(last: Assignment, end: EndOf, state: HistoryState) -> bool:
    not_begun = last.not_begun is not None and end.prefix >= last.not_begun
    newest = state.newest.get(end.partition)
    return not_begun and bool(last.ended) and newest is not None and (newest is last or newest.was_leaving)
