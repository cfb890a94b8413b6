"""S3: in which order, and from where on."""

from __future__ import annotations

from collections.abc import Set

from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Delivery


@rule("S3", "no skip", "delivery")
def s3_order(step: Delivery, state: HistoryState) -> str | None:
    """In each assignment offsets strictly rise with no skip, but for those where the log has no record ("hole":
    compaction, aborted and control records), a reset that was told, and a seek."""
    each = step.each
    if step.first == step.due or (step.due is None and each.reset == "seek"):
        return None
    holes: Set[int] = state.holes.get(each.partition, frozenset())
    if _is_truncated(step, state):
        holes = holes | state.former_holes[each.partition]
    if step.due is not None and step.due < step.first and all(at in holes for at in range(step.due, step.first)):
        return None
    return f"{each}: {step.first} was returned where {step.due} was due"


@rule("S3", "nothing that is no record", "delivery")
def s3_hole(step: Delivery, state: HistoryState) -> str | None:
    """Nothing is returned for an offset that never was a record to be read: a marker, or one of an aborted
    transaction. (What a compaction has taken may still be on its way.)"""
    never = () if _is_truncated(step, state) else state.never.get(step.each.partition, ())
    wrong = [at for at in range(step.first, step.last + 1) if at in never] if never else []
    return f"{step.each}: {wrong[0]} was returned, and is no record" if wrong else None


def _is_truncated(step: Delivery, state: HistoryState) -> bool:
    """Whether the log has no more what is returned: the member need not know."""
    return state.truncated_at(step.each.partition, step.last, step.leader_epoch) is not None


def _was_truncated(step: Delivery, state: HistoryState) -> bool:
    return step.each.partition in state.cuts


@rule("S3", "nothing of a truncated log", "delivery", when=_was_truncated)
def s3_truncated(step: Delivery, state: HistoryState) -> str | None:
    """What begins anew after a truncation, be it by a reset or by another owner, returns nothing that was truncated. (A
    broker may hear late that a topic is deleted: so nothing of it is returned after a reset, or after a record of the
    next one.)"""
    each = step.each
    cuts = state.cuts[each.partition][: each.cuts]
    cut = next((cut for cut in cuts if cut.takes(step.last, step.leader_epoch)), None)
    if cut is None:
        return None
    if cut.recreated and max(each.least_epoch, each.read_epoch) < cut.leader_epoch:
        return None
    return f"{step.each}: {step.last} of leader epoch {step.leader_epoch} was returned, and was truncated before"


@rule("S3", "a truncation is noticed", "delivery", when=_was_truncated)
def s3_notices(step: Delivery, state: HistoryState) -> str | None:
    """Behind what was truncated nothing of the present log is returned before what has taken its place (KIP-320)."""
    each = step.each
    if step.due is None:
        return None
    cut = state.truncated_at(each.partition, step.due - 1, each.read_epoch, seen=step.leader_epoch)
    if cut is None or state.next_record(each.partition, cut) >= step.first:  # retention may have taken that, too
        return None
    return f"{each}: {step.first} was returned, and {cut} is due: the log was truncated there"


@rule("S3", "begins where committed", "delivery")
def s3_begin(step: Delivery, state: HistoryState) -> str | None:
    """A new owner starts exactly at the group's committed offset; where there is none, at the start of the log
    (reset to the earliest). Where only the members are seen, a commit whose response never came may count or not. One
    that has a newer owner, and cannot know, began where the group was then: whether it may return anything is S11's."""
    each = step.each
    if each.start is None or each.deliveries or each.ended or each.reset or each.superseded or state.commits_unseen:
        return None
    if _is_truncated(step, state):
        return None  # it began in the log of before
    parameters = state.judged_by
    has_gone_back = each.committed < each.start  # its own user, since it began
    if has_gone_back and parameters.view == "clients":
        return None
    committed = each.began_at_committed if has_gone_back else state.committed.get(each.partition)
    if committed is None and parameters.reset != "earliest":
        return None
    least = state.start_of(each.partition) if committed is None else committed
    places, most = [least], least
    if parameters.view == "clients":
        places += [sent.offset for sent in state.sent_back[each.partition].values()]
        most = max(least, state.sent.get(each.partition, least))
    first = state.next_record(each.partition, each.start)
    if least <= each.start <= most or any(state.next_record(each.partition, at) == first for at in places):
        return None
    return f"{each} begins at {each.start}; {least if committed is None else committed} is committed"
