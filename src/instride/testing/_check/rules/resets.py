"""S9: the reset policy."""

from __future__ import annotations

from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Place


@rule("S9", "no reset after an error", "positioned")
def s9(step: Place, state: HistoryState) -> str | None:
    """A partition is read from where the coordinator says that the group has committed. The reset policy applies only
    where the coordinator says that there is no offset, or the leader that it is out of range; never after an error, and
    never unasked."""
    each = step.each
    if each.ended == "interrupted" or each.reset or step.offset in each.responses or None in each.responses:
        return None
    said = f"the coordinator said {each.responses[-1]}" if each.responses else "no good response had come"
    return f"{each} is read from {step.offset}, and {said}"
