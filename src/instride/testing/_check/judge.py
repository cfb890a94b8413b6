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
from instride.testing._check.events import BROKER, Event
from instride.testing._check.folds import FOLDS
from instride.testing._check.history_state import HistoryState
from instride.testing._check.parameters import Parameters
from instride.testing._check.rules import RULES, Rule
from instride.testing._check.steps import Again, Change, Commit, Delivery, Passed, Place, Step
from instride.testing._check.violation import Violation
from instride.testing._check.vocabulary import KINDS

__all__ = ["INVARIANTS", "Judge", "check"]

INVARIANTS: Final[tuple[str, ...]] = tuple(
    sorted({rule.number for rule in RULES}, key=lambda number: ("SLRP".index(number[0]), int(number[1:])))
)


def check(history: Iterable[Event]) -> list[Violation]:
    """Everything that is wrong with the history, in the order of time; nothing where all is well.

    Raises HistoryError where it is no history: it does not say what it may be judged by, or speaks of an assignment
    that was never told.
    """
    judge = Judge()
    for event in history:
        judge.take(event)
    return judge.end()


def _rules_for(parameters: Parameters) -> dict[str, list[Rule]]:
    """Those that fit, by the step that they are asked about."""
    found: dict[str, list[Rule]] = {}
    for each in RULES:
        if each.fits(parameters):
            found.setdefault(each.on, []).append(each)
    return found


_NETWORK: Final = frozenset({"alive", "sends commit", "commit response", "looked up"})
"""What a member's network thread tells of its requests and their responses."""


class Judge:
    """Takes a history event by event. judged: the invariants that something was asked about. Not thread-safe."""

    def __init__(self) -> None:
        self.state = HistoryState(ask=self._ask)
        self._last: Event | None = None
        self._applied: set[str] = set()
        self._rules: dict[str, list[Rule]] | None = None
        self._found: list[Violation] = []

    def take(self, event: Event) -> None:
        """Raises HistoryError."""
        self.state.line += 1
        if self.state.ended and event.what in KINDS:
            raise HistoryError(f'{event.what!r} comes after the event "end"')
        self._last = event
        if event.what in _NETWORK:
            self.state.networked_at[event.who] = event.time
        fold = FOLDS.get(event.what)
        if fold is not None:
            fold(self.state, event)

    def end(self) -> list[Violation]:
        """What was found, in the order of time. Raises HistoryError where nothing says what to judge by."""
        if self.state.parameters is None or self._last is None:
            raise HistoryError('a history needs the event "history", which says what it may be judged by')
        if not self.state.ended:
            FOLDS["end"](self.state, Event(self._last.time, BROKER, "end", (False,)))
        return sorted(self._found, key=attrgetter("time"))

    @property
    def judged(self) -> tuple[str, ...]:
        """Law 3."""
        numbers = set(self._applied)
        if self.state.delivered:  # what did not happen breaks nothing
            numbers |= {"S1"} | ({"P3", "P4"} if self.state.judged_by.calm else set())
        if self.state.alive:
            numbers.add("L4")
        return tuple(number for number in INVARIANTS if number in numbers)

    def _ask(self, name: str, step: Step) -> None:
        state = self.state
        if self._rules is None:
            self._rules = _rules_for(state.judged_by)
        for rule in self._rules.get(name, ()):
            if rule.when(step, state):
                self._applied.add(rule.number)
                text = rule.judge(step, state)
                if text is not None:
                    self._wrong(rule, step, text)

    def _wrong(self, rule: Rule, step: Step, text: str) -> None:
        event = step if isinstance(step, Event) else step.event
        match step:
            case Again():
                lines = step.lines
            case Change():
                lines = self.state.lines_of(step.each, step.older)
            case Delivery() | Place() | Commit() | Passed():
                lines = self.state.lines_of(step.each)
            case _:
                lines = (self.state.line,)
        self._found.append(Violation(number=rule.number, law=rule.law, time=event.time, text=text, lines=lines))
