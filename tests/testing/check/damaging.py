"""Ways to damage a right history, each as one invariant forbids. A damage gives the new history, or None where there is
nothing in this one that could be damaged so.

Laws
1. A damage is small: one event is added, taken away, moved or changed, or all later ones come later.
2. It names the invariant that must speak, and those that may as well since the same damage breaks them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from instride.testing.check import Event

__all__ = [
    "DAMAGES",
    "Damage",
    "History",
    "at_time_of",
    "damage",
    "later",
    "poll_with",
    "returns",
    "said",
    "with_events",
]

History = list[Event]
_LATER: Final = 30.0
"""Seconds: longer than any bound of a history, and than the session of a member that hears nothing meanwhile (S10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """number: the invariant that is broken. also: those that may speak besides. candidates: damaged histories."""

    name: str
    number: str
    also: frozenset[str]
    candidates: Callable[[History], Iterator[History]]


DAMAGES: Final[list[Damage]] = []


def damage(number: str, also: str = "") -> Callable[[Callable[[History], Iterator[History]]], Any]:
    def register(candidates: Callable[[History], Iterator[History]]) -> Any:
        name = candidates.__name__.strip("_").replace("_", " ")
        DAMAGES.append(Damage(name=name, number=number, also=frozenset(also.split()), candidates=candidates))
        return candidates

    return register


def said(history: History, *kinds: str) -> Iterator[tuple[int, Event]]:
    return ((at, event) for at, event in enumerate(history) if event.what in kinds)


def with_events(history: History, at: int, *events: Event, instead: bool = False) -> History:
    """events: come before the one at that place, or in its place."""
    return [*history[:at], *events, *history[at + instead :]]


def at_time_of(event: Event, what: str, *detail: Any, who: str | None = None) -> Event:
    return Event(event.time, event.who if who is None else who, what, detail)


def returns(history: History) -> Iterator[tuple[int, Event, Any]]:
    """Polls with each stretch that they returned."""
    return ((at, event, each) for at, event in said(history, "poll") for each in event.detail[0])


def poll_with(event: Event, old: Any, *new: Any) -> Event:
    records = tuple(each for one in event.detail[0] for each in (new if one is old else (one,)))
    return event._replace(detail=(records, *event.detail[1:]))


def later(history: History, at: int) -> History:
    """From this event on all is later; what a member said of the times to come as well."""
    moved = [event._replace(time=event.time + _LATER, detail=_detail_later(event)) for event in history[at:]]
    return [*history[:at], *moved]


def _detail_later(event: Event) -> tuple[Any, ...]:
    if event.what in ("alive", "deadline") and event.detail[-1] is not None:
        return (*event.detail[:-1], event.detail[-1] + _LATER)
    return event.detail
