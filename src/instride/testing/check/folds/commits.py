"""Commits: what a member sends, what it is answered, and what the coordinator takes."""

from __future__ import annotations

from instride.testing.check.book import Book, Folds
from instride.testing.check.events import Event
from instride.testing.check.steps import Commit

__all__ = ["FOLDS"]

_FENCED_INSTANCE_ID = 82


def _sends(book: Book, event: Event) -> None:
    number, offsets = event.detail
    for partition, offset, leader_epoch in offsets:
        each = book.last.get((event.who, partition))
        book.ask("commit sent", Commit(event, each, partition, offset, leader_epoch))
        book.sent[partition] = max(offset, book.sent.get(partition, 0))
    book.in_flight[event.who][number] = {partition: offset for partition, offset, _ in offsets}


def _answered(book: Book, event: Event) -> None:
    """Whoever is fenced, by another with its instance id, can commit nothing more: all it has done may come again."""
    number, offsets = event.detail
    if any(code == _FENCED_INSTANCE_ID for _, _, code in offsets):
        for fenced in book.live[event.who].values():
            fenced.excused = True
    book.in_flight[event.who].pop(number, None)
    for partition, offset, code in offsets:
        each = book.live[event.who].get(partition)
        if code and each is not None:
            each.failed_at = event.time
        elif not code and book.judged_by.view == "clients":
            _take(book, Commit(event, book.last.get((event.who, partition)), partition, offset))


def _commit(book: Book, event: Event) -> None:
    for partition, offset, code in event.detail[1]:
        if not code:
            _take(book, Commit(event, book.last.get((event.who, partition)), partition, offset))


def _take(book: Book, commit: Commit) -> None:
    book.ask("commit", commit)
    book.committed[commit.partition] = commit.offset
    book.sent[commit.partition] = max(commit.offset, book.sent.get(commit.partition, 0))
    if commit.each is not None:
        commit.each.failed_at = None
        if not commit.each.is_of_before_its_seek(commit.offset):
            commit.each.committed, commit.each.earlier = commit.offset, None


def _commit_failed(book: Book, event: Event) -> None:
    """Of a blocking commit: what it spoke of may come again."""
    book.ask("commit failed", event)
    for each in book.of_member[event.who]:
        each.excused = True


def _own_offsets(book: Book, event: Event) -> None:
    book.own[event.who].update(event.detail[0])


def _stored(book: Book, event: Event) -> None:
    book.stored = dict(event.detail[0])


FOLDS: Folds = {
    "sends commit": _sends,
    "commit answered": _answered,
    "commit": _commit,
    "commit failed": _commit_failed,
    "own offsets": _own_offsets,
    "stored": _stored,
}
