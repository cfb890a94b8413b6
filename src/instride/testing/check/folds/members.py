"""A member's life, the group's state, and the history's own beginning and end."""

from __future__ import annotations

from instride.errors import HistoryError
from instride.testing.check.book import Book, Folds
from instride.testing.check.events import BROKER, Event
from instride.testing.check.steps import Change, EndOf
from instride.testing.check.terms import Terms

__all__ = ["FOLDS"]


def _history(book: Book, event: Event) -> None:
    terms = Terms.of(event.detail)
    if book.terms not in (None, terms):
        raise HistoryError(f"two files say that they are of different histories: {book.terms} and {terms}")
    book.terms = terms


def _group(book: Book, event: Event) -> None:
    book.ask("group", event)
    if event.detail[0] == "PreparingRebalance":
        book.rounds += 1
        book.rebalancing_since = event.time
    else:
        book.rebalancing_since = None
    book.members = event.detail[2]


def _started(book: Book, event: Event) -> None:
    steady, finishes, commits = event.detail
    if event.who in book.started or event.who == BROKER:
        raise HistoryError(f"two members are called {event.who!r}: each needs a name of its own")
    book.started.add(event.who)
    if steady:
        book.steady.add(event.who)
    if finishes == "delivered":
        book.taken_for_done.add(event.who)
    book.commits_unseen |= not commits


def _subscribes(book: Book, event: Event) -> None:
    book.changes += 1
    book.ending.pop(event.who, None)


def _leaving(book: Book, event: Event) -> None:
    """A member that goes before it has used the id that it was given is waited for until its session ends: so a
    rebalance during which one goes is not judged by its length."""
    book.steady.discard(event.who)
    book.rebalancing_since = None


def _died(book: Book, event: Event) -> None:
    book.ask("died", event)
    _crashed(book, event)


def _crashed(book: Book, event: Event) -> None:
    book.in_flight.pop(event.who, None)
    for each in list(book.live[event.who].values()):
        book.over(each, "crashed")


def _closed(book: Book, event: Event) -> None:
    (clean,) = event.detail
    book.changes += 1
    if clean:
        book.ask("gone", event)
    else:
        for each in book.of_member[event.who]:
            each.excused = True
    _gone(book, event)


def _gone(book: Book, event: Event) -> None:
    """Whatever is left with the group now was never taken by the application; its listener heard of all else."""
    book.heard[event.who].clear()
    for each in list(book.live[event.who].values()):
        book.over(each, "closed")


def _unsubscribes(book: Book, event: Event) -> None:
    book.rebalancing_since = None
    book.changes += 1
    for each in book.live[event.who].values():
        each.waiting_since = None
        each.excused |= event.detail[0] == "resubscribe in haste"


def _unsubscribed(book: Book, event: Event) -> None:
    book.ask("gone", event)
    book.untold.pop(event.who, None)
    book.to_tell.pop(event.who, None)
    _gone(book, event)


def _interrupted(book: Book, event: Event) -> None:
    """An exception left a call. Of one that was to end the membership nothing is left to the application."""
    verb, until = event.detail
    if verb in ("close", "unsubscribe"):
        book.changes += 1
        book.rebalancing_since = None
        book.interrupted.add(event.who)
        book.untold.pop(event.who, None)
        book.to_tell.pop(event.who, None)
        for each in book.of_member[event.who]:
            each.excused = True
        for each in list(book.live[event.who].values()):
            book.over(each, "interrupted")
        if until is not None:
            book.ending.setdefault(event.who, until)


def _evicted(book: Book, event: Event) -> None:
    book.ask("evicted", event)
    book.changes += 0 if event.detail[0] == "it left" else 2  # it goes, and comes back
    book.evicted[event.who] = (event.time, event.detail[0])


def _blind(book: Book, event: Event) -> None:
    book.blind[event.who] = event.time


def _alive(book: Book, event: Event) -> None:
    (until,) = event.detail
    book.answered[event.who] += until is not None and until > book.alive.get(event.who, 0.0)
    book.alive[event.who] = float("inf") if until is None else until


def _sample(book: Book, event: Event) -> None:
    book.ask("sample", event)
    book.samples[event.who].append(event)


def _load(book: Book, event: Event) -> None:
    book.ask("load", event)
    book.loads[event.who].append(event)


def _end(book: Book, event: Event) -> None:
    book.ended = True
    book.ask("end", event)
    for each in book.assignments.values():
        if not each.ended:
            book.ask("standing", Change(event, each))
    for again in book.again:
        book.ask("again", again)
    if event.detail[0]:
        for partition, end in book.ends.items():
            book.ask("end of", EndOf(event, partition, end, book.reached(partition)))


FOLDS: Folds = {
    "history": _history,
    "group": _group,
    "started": _started,
    "subscribes": _subscribes,
    "leaving": _leaving,
    "died": _died,
    "crashed": _crashed,
    "closed": _closed,
    "unsubscribes": _unsubscribes,
    "unsubscribed": _unsubscribed,
    "interrupted": _interrupted,
    "evicted": _evicted,
    "blind": _blind,
    "alive": _alive,
    "sample": _sample,
    "load": _load,
    "end": _end,
}
