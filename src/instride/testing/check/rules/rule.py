"""How a rule is declared.

    @rule("S4", "no commit beyond a gap", "commit")
    def s4(commit: Commit, book: Book) -> str | None:

Laws
1. A rule is a pure function of one step and the book as it was before that step. It gives None, or what is wrong.
2. Its number is that of the invariant in docs/histories.md, and its docstring is the definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from instride.testing.check.book import Book

__all__ = ["RULES", "Rule", "rule"]

F = TypeVar("F", bound=Callable[..., str | None])


class Rule(NamedTuple):
    """number: "S4". law: in a word. on: the step that it is asked about."""

    number: str
    law: str
    on: str
    judge: Callable[[Any, Book], str | None]


RULES: Final[list[Rule]] = []


def rule(number: str, law: str, *on: str) -> Callable[[F], F]:
    def register(function: F) -> F:
        RULES.extend(Rule(number, law, each, function) for each in on)
        return function

    return register
