"""The logs, where each assignment reads, what polls return, and what becomes of the records."""

from __future__ import annotations

from collections.abc import Set

from instride.testing.check.assignment import Assignment, Delivered
from instride.testing.check.book import Book, Folds
from instride.testing.check.events import Event
from instride.testing.check.folds.turns import count_turns
from instride.testing.check.steps import Again, Delivery, Place

__all__ = ["FOLDS"]


def _produced(book: Book, event: Event) -> None:
    partition, end = event.detail
    book.ends[partition] = end
    book.produced[partition].append((end, event.time))
    owner = book.newest.get(partition)
    if owner is None or owner.next is None or owner.waiting_since is not None:
        return
    if book.has_records(partition, owner.next):
        owner.waits(event.time)


def _log_starts(book: Book, event: Event) -> None:
    partition, offset = event.detail
    book.starts[partition] = offset


def _hole(book: Book, event: Event) -> None:
    """One that is told before the log has grown so far is of no record that anybody may return."""
    partition, first, last = event.detail
    book.holes[partition].update(range(first, last + 1))
    if book.judged_by.view == "broker":
        book.never[partition].update(range(max(first, book.ends.get(partition, 0)), last + 1))
    if first <= book.reached(partition) <= last:
        book.prefix[partition] = book.next_record(partition, book.reached(partition))


def _looked_up(book: Book, event: Event) -> None:
    partition, offset, code = event.detail
    each = book.live[event.who].get(partition)
    if each is not None and not code:
        each.answers.append(offset)
        each.lines.append(book.line)


def _out_of_range(book: Book, event: Event) -> None:
    each = book.live[event.who].get(event.detail[0])
    if each is not None:
        each.reset = event.what
        each.lines.append(book.line)


def _seek(book: Book, event: Event) -> None:
    """The user's own will: he may read again what he had, and commit less than he did. He may seek in what is lost,
    too, as long as no poll has told him, and though it is assigned again meanwhile."""
    (partition,) = event.detail
    for before in book.of_member[event.who]:
        if before.partition == partition and before.ended == "lost":
            before.reset = event.what
    each = book.live[event.who].get(partition)
    if each is not None:
        each.reads_elsewhere()
        each.waiting_since, each.passed = None, 0
        each.lines.append(book.line)


def _positioned(book: Book, event: Event) -> None:
    partition, epoch, offset = event.detail
    each = book.find(event.who, partition, epoch)
    book.ask("positioned", Place(event, each, offset))
    _begin(book, each, offset)
    if book.has_records(partition, offset):
        each.waits(event.time)


def _pauses(book: Book, event: Event) -> None:
    for partition in event.detail[0]:
        each = book.live[event.who].get(partition)
        if each is not None:
            each.paused, each.waiting_since = True, None


def _resumes(book: Book, event: Event) -> None:
    for partition in event.detail[0]:
        each = book.live[event.who].get(partition)
        if each is not None:
            each.paused = False
            if each.next is not None and book.has_records(partition, each.next):
                each.waits(event.time)


def _begin(book: Book, each: Assignment, offset: int) -> None:
    if each.start is None:
        each.begin(offset)
        book.begins_late(each.partition, offset)
        if each.reset == "seek":
            book.forget_deliveries(each.partition, min(offset, *(each.earlier or (offset,))))
    if each.reset:
        if each.next != offset:
            each.begin(offset)
        book.skip_to(each.partition, offset)


def _still_paused(book: Book, event: Event) -> None:
    book.paused[event.who] = event.detail[0]


def _poll(book: Book, event: Event) -> None:
    who = event.who
    deliveries, asked, lost = event.detail
    paused = book.paused.pop(who, ())
    if not any(event.detail) and book.judged_by.view == "clients":
        count_turns(book, event, paused)  # it says that time has passed, and nothing else
        return
    book.ask("poll", event)
    waiting = book.to_tell[who]
    book.to_tell[who] = [
        (at, each) for at, each in waiting if each.partition not in lost and not is_due(book, event, at)
    ]
    for partition in lost:
        if partition in book.untold[who]:
            book.untold[who].remove(partition)
    for partition, epoch, seek, first, last, leader_epoch in deliveries:
        each = book.find(who, partition, epoch)
        if each.next is None and book.judged_by.view == "clients":
            _begin(book, each, first)  # a peer does not tell where it begins
        flags = partition in asked, partition in lost, partition in paused
        book.ask("delivery", Delivery(event, each, first, last, leader_epoch, *flags))
        each.seek = seek
        _delivered(book, event, each, Delivered(first, last, leader_epoch, book.line))
    count_turns(book, event, paused)
    for partition in asked:
        live = book.live[who].get(partition)
        if live is not None:
            live.undelayed = True
    book.polled_at[who] = event.time


def is_due(book: Book, event: Event, lost_at: float) -> bool:
    """Whether this poll has to tell a loss of that time: it began after it."""
    if book.judged_by.view == "broker":
        return lost_at < event.time
    return lost_at < book.polled_at.get(event.who, 0.0)


def _delivered(book: Book, event: Event, each: Assignment, what: Delivered) -> None:
    more = book.has_records(each.partition, what.last + 1)
    each.waiting_since = None
    if more:
        each.waits(event.time)
    each.failed_at = None
    each.passed = 0
    each.next = what.last + 1
    each.deliveries.append(what)
    before = book.delivered[each.partition]
    for offset in range(what.first, what.last + 1):
        if offset in before and not each.superseded:
            old = before[offset].delivery_of(offset)
            lines = (old.line if old is not None else what.line, what.line)
            book.again.append(Again(event, offset, before[offset], each, before[offset].committed, lines))
        before[offset] = each
    if each.who in book.taken_for_done:
        _finish(book, each, what.first, what.last)


def _finish(book: Book, each: Assignment, first: int, last: int) -> None:
    holes: Set[int] = book.holes.get(each.partition, frozenset())
    for offset in range(first, last + 1):
        each.finish(offset, holes)
        book.finish(each.partition, offset)


def _delay(book: Book, event: Event) -> None:
    for partition in event.detail[0]:
        each = book.live[event.who].get(partition)
        if each is not None:
            each.undelayed, each.delayed = False, True


def _done(book: Book, event: Event) -> None:
    partition, offset, epoch = event.detail
    _finish(book, book.find(event.who, partition, epoch), offset, offset)


def _range_done(book: Book, event: Event) -> None:
    partition, first, last, epoch = event.detail
    _finish(book, book.find(event.who, partition, epoch), first, last)


def _failed(book: Book, event: Event) -> None:
    partition, _, epoch = event.detail
    book.find(event.who, partition, epoch).excused = True


def _not_begun(book: Book, event: Event) -> None:
    partition, epoch, offset = event.detail
    book.find(event.who, partition, epoch).not_begun = offset


def _gave_up(book: Book, event: Event) -> None:
    for partition in event.detail[0]:
        if partition in book.live[event.who]:
            book.live[event.who][partition].excused = True


FOLDS: Folds = {
    "produced": _produced,
    "log starts": _log_starts,
    "hole": _hole,
    "looked up": _looked_up,
    "out of range": _out_of_range,
    "seek": _seek,
    "positioned": _positioned,
    "pauses": _pauses,
    "resumes": _resumes,
    "still paused": _still_paused,
    "poll": _poll,
    "delay": _delay,
    "done": _done,
    "range done": _range_done,
    "failed": _failed,
    "cancelled": _failed,
    "gave up": _gave_up,
    "not begun": _not_begun,
}
