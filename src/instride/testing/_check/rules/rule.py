"""How a rule is declared.

    @rule("S4", "no commit beyond a gap", "commit")
    def s4(commit: Commit, state: HistoryState) -> str | None:

Laws
1. A rule is a pure function of one step and the state as it was before that step. It gives None, or what is wrong.
2. Its number is that of the invariant in docs/histories.md, and its docstring is the definition.
3. Where it may be asked at all is declared, so that the judge knows of what a history tells something: in which kinds
   of histories, within which bound that the history names, and of which steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeVar

from instride.testing._check.history_state import HistoryState
from instride.testing._check.parameters import Parameters

__all__ = ["RULES", "Rule", "rule"]

F = TypeVar("F", bound=Callable[..., str | None])
Within = Literal["any", "faultless", "calm"]
When = Callable[[Any, HistoryState], bool]


def _always(_step: Any, _state: HistoryState) -> bool:
    return True


class Rule(NamedTuple):
    """number: "S4". law: in a word. on: the step that it is asked about, where `when` says that it concerns it.

    within: the kinds of histories. bound: the field of `Parameters` without which it is not asked, or "".
    """

    number: str
    law: str
    on: str
    judge: Callable[[Any, HistoryState], str | None]
    within: Within = "any"
    bound: str = ""
    when: When = _always

    def fits(self, parameters: Parameters) -> bool:
        """Whether a history with these parameters may be judged by it."""
        kind = self.within == "any" or (parameters.calm if self.within == "calm" else parameters.faultless)
        return kind and (not self.bound or getattr(parameters, self.bound) is not None)


RULES: Final[list[Rule]] = []


def rule(
    number: str, law: str, *on: str, within: Within = "any", bound: str = "", when: When = _always
) -> Callable[[F], F]:
    def register(function: F) -> F:
        RULES.extend(Rule(number, law, each, function, within, bound, when) for each in on)
        return function

    return register
