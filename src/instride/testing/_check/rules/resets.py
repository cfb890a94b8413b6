"""S9: the reset policy, and where a truncated log is read on."""

from __future__ import annotations

from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Place


@rule("S9", "no reset after an error", "positioned")
def s9(step: Place, state: HistoryState) -> str | None:
    """A partition is read from where the coordinator says that the group has committed. The reset policy applies only
    where the coordinator says that there is no offset, or the leader that it is out of range; never after an error, and
    never unasked. Once something was returned of where it began, or where a seek or a reset led, it goes on there. (Of
    one that has crashed, or was interrupted while it left, no seek counts any more. Of one by hand that another assign
    has ended nothing is read any more, wherever that would be.)"""
    each = step.each
    if each.ended and each.generation is None:
        return None
    begins = not each.deliveries and (step.offset in each.responses or None in each.responses)
    if each.ended in ("interrupted", "crashed") or each.moves or begins or step.offset == each.next:
        return None
    if each.deliveries:
        return f"{each} is read from {step.offset}, and neither a seek nor a reset led there from {each.next}"
    said = f"the coordinator said {each.responses[-1]}" if each.responses else "no good response had come"
    return f"{each} is read from {step.offset}, and {said}"


def _was_truncated(step: Place, state: HistoryState) -> bool:
    """Retention may have taken the place, too: then the policy says where it is read on."""
    return step.each.partition in state.cuts and step.each.partition not in state.starts


@rule("S9", "a truncated log is read on where it was truncated", "positioned", when=_was_truncated)
def s9_truncated(step: Place, state: HistoryState) -> str | None:
    """Where a reset leads since the log was truncated behind what was read, whatever the policy: to where that was. Of
    several truncations the lowest counts of those of which the leader knew. Of a recreated topic the policy says it:
    "earliest" leads to its beginning."""
    each = step.each
    if each.next is None or (each.reset, each.moves) != ("out of range", "asked"):
        return None
    cut = state.truncated_at(each.partition, each.next - 1, each.read_epoch)
    if cut is None or step.offset in state.places_of_cuts(each) or state.deleted_since(each, step.offset) is not None:
        return None  # the broker of the topic of before may not have heard yet
    if state.judged_by.reset != "earliest" and state.is_of_deleted_topic(each.partition, each.read_epoch):
        return None  # the policy leads elsewhere
    return f"{each} is read from {step.offset}; the log was truncated at {cut}"
