"""The one checker of all histories: simulated, of a real broker, of the demo, of mixed groups.

Laws
1. It reads nothing but the history, and nothing of how it came about.
2. Each event is folded once; each rule is asked once about each step that it is for.
3. What a history does not tell of is not judged: `judged` says of which invariants it tells anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from instride.errors import HistoryError
from instride.testing.check.book import Book
from instride.testing.check.events import BROKER, Event
from instride.testing.check.folds import FOLDS
from instride.testing.check.rules import RULES, Rule
from instride.testing.check.steps import Again, Change, Commit, Delivery, Place, Step
from instride.testing.check.violation import Violation

__all__ = ["INVARIANTS", "Judge", "check"]

_BY_STEP: Final[dict[str, tuple[Rule, ...]]] = {
    on: tuple(rule for rule in RULES if rule.on == on) for on in {rule.on for rule in RULES}
}
INVARIANTS: Final[tuple[str, ...]] = tuple(
    sorted({rule.number for rule in RULES}, key=lambda number: ("SLRP".index(number[0]), int(number[1:])))
)
_OF_FAULTLESS: Final = frozenset({"L1", "L2", "L5"})
_OF_CALM: Final = frozenset({"P3", "P4"})


def check(history: Iterable[Event]) -> list[Violation]:
    """Everything that is wrong with the history, in the order of time; nothing where all is well.

    Raises HistoryError where it is no history: it does not say what it may be judged by, or speaks of an assignment
    that was never told.
    """
    judge = Judge()
    for event in history:
        judge.take(event)
    return judge.end()


class Judge:
    """Takes a history event by event. judged: the invariants that something was asked about. Not thread-safe."""

    def __init__(self) -> None:
        self.book = Book(ask=self._ask)
        self._last: Event | None = None
        self._steps: set[str] = set()
        self._found: list[Violation] = []

    def take(self, event: Event) -> None:
        """Raises HistoryError."""
        self.book.line += 1
        self._last = event
        fold = FOLDS.get(event.what)
        if fold is not None:
            fold(self.book, event)

    def end(self) -> list[Violation]:
        """What was found, in the order of time. Raises HistoryError where nothing says what to judge by."""
        if self.book.terms is None or self._last is None:
            raise HistoryError('a history needs the event "history", which says what it may be judged by')
        if not self.book.ended:
            FOLDS["end"](self.book, Event(self._last.time, BROKER, "end", (False,)))
        return sorted(self._found, key=attrgetter("time"))

    @property
    def judged(self) -> tuple[str, ...]:
        """Law 3."""
        numbers = {rule.number for on in self._steps for rule in _BY_STEP[on]}
        numbers |= _OF_CALM | ({"S1"} if self.book.delivered else set())  # what did not happen breaks nothing
        numbers -= {"R1"} if not self.book.samples else set()
        return tuple(number for number in INVARIANTS if number in numbers and self._has_bound(number))

    def _has_bound(self, number: str) -> bool:
        """Whether the history allows it to be judged."""
        terms = self.book.judged_by
        bound = {"L1": terms.gap, "L5": terms.gap, "L2": terms.delay}.get(number, 0.0)
        if number in _OF_CALM:
            return terms.calm
        return bound is not None and (terms.faultless or number not in _OF_FAULTLESS)

    def _ask(self, name: str, step: Step) -> None:
        rules = _BY_STEP.get(name)
        if rules is None:
            return
        self._steps.add(name)
        for rule in rules:
            text = rule.judge(step, self.book)
            if text is not None:
                self._wrong(rule, step, text)

    def _wrong(self, rule: Rule, step: Step, text: str) -> None:
        event = step if isinstance(step, Event) else step.event
        match step:
            case Again():
                lines = step.lines
            case Change():
                lines = self.book.lines_of(step.each, step.older)
            case Delivery() | Place() | Commit():
                lines = self.book.lines_of(step.each)
            case _:
                lines = (self.book.line,)
        self._found.append(Violation(number=rule.number, law=rule.law, time=event.time, text=text, lines=lines))
