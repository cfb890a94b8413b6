"""What is assigned to whom, asked for, given back, revoked and lost; and what listeners hear of it."""

from __future__ import annotations

from instride.testing.check.assignment import Assignment
from instride.testing.check.book import Book, Folds
from instride.testing.check.events import Event
from instride.testing.check.steps import Change

__all__ = ["FOLDS"]


def _assigned(book: Book, event: Event) -> None:
    generation, partitions = event.detail
    for partition, epoch in partitions:
        older = book.newest.get(partition)
        new = Assignment(who=event.who, partition=partition, epoch=epoch, generation=generation, lines=[book.line])
        book.ask("assigned", Change(event, new, older))
        book.assignments[event.who, partition, epoch] = book.live[event.who][partition] = new
        book.last[event.who, partition] = new
        book.of_member[event.who].append(new)
        _supersede(book, older, new)


def _supersede(book: Book, older: Assignment | None, new: Assignment) -> None:
    """An assignment of an older generation, of which a suspended member hears late, is over from the start."""
    if older is not None:
        if _is_of_later_generation(older, new):
            new.superseded = True
            return
        older.superseded = True
    book.newest[new.partition] = new


def _is_of_later_generation(one: Assignment, other: Assignment) -> bool:
    return one.generation is not None and other.generation is not None and one.generation > other.generation


def _requested(book: Book, event: Event) -> None:
    for each in book.each(event.who, event.detail[0]):
        book.ask("requested", Change(event, each))
        each.asked, each.asked_at = True, event.time
        each.waiting_since, each.passed, each.overdue = None, 0, 0
        each.lines.append(book.line)


def _deadline(book: Book, event: Event) -> None:
    epochs, until = event.detail
    for each in book.each(event.who, epochs):
        each.deadline, each.overdue = until, 0


def _given_back(book: Book, event: Event) -> None:
    for each in book.each(event.who, event.detail[0]):
        book.ask("given back", Change(event, each))
        book.delays_over += each.delayed
        each.asked, each.delayed, each.passed, each.deadline = False, False, 0, None
        each.lines.append(book.line)
        if each.next is not None and book.has_records(each.partition, each.next):
            each.waits(event.time)


def _revoked(book: Book, event: Event) -> None:
    for each in book.each(event.who, event.detail[0]):
        book.ask("revoked", Change(event, each))
        book.delays_over += each.delayed
        book.over(each, "revoked")


def _lost(book: Book, event: Event) -> None:
    for each in book.each(event.who, event.detail[0]):
        book.ask("lost", Change(event, each))
        book.delays_over += each.delayed
        book.over(each, "lost")
        book.untold[event.who].append(each.partition)
        if each.next != each.start and not each.released:
            book.to_tell[event.who].append((event.time, each))


def _on_assigned(book: Book, event: Event) -> None:
    book.ask("on assigned", event)
    book.heard[event.who].update(event.detail[0])


def _on_gone(book: Book, event: Event) -> None:
    """Who was told of a revoke need not be told that it was lost while his listener ran: its commits were answered."""
    book.ask("on gone", event)
    for partition in event.detail[0] if event.what == "on revoked" else ():
        each = book.live[event.who].get(partition)
        if each is not None:
            each.released = True
    book.heard[event.who].difference_update(event.detail[0])


FOLDS: Folds = {
    "assigned": _assigned,
    "requested": _requested,
    "deadline": _deadline,
    "given back": _given_back,
    "revoked": _revoked,
    "lost": _lost,
    "on assigned": _on_assigned,
    "on revoked": _on_gone,
    "on lost": _on_gone,
}
