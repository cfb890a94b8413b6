"""S3: in which order, and from where on."""

from __future__ import annotations

from instride.testing.check.book import Book
from instride.testing.check.rules.rule import rule
from instride.testing.check.steps import Delivery


@rule("S3", "no skip", "delivery")
def s3_order(step: Delivery, book: Book) -> str | None:
    """In each assignment offsets strictly rise with no skip, but for those where the log has no record ("hole":
    compaction, aborted and control records), a reset that was told, and a seek."""
    each = step.each
    if step.first == each.next or (each.next is None and each.reset == "seek"):
        return None
    holes = book.holes.get(each.partition, ())
    if each.next is not None and each.next < step.first and all(at in holes for at in range(each.next, step.first)):
        return None
    return f"{each}: {step.first} was returned where {each.next} was due"


@rule("S3", "nothing that is no record", "delivery")
def s3_hole(step: Delivery, book: Book) -> str | None:
    """Nothing is returned for an offset that never was a record to be read: a marker, or one of an aborted
    transaction. (What a compaction has taken may still be on its way.)"""
    never = book.never.get(step.each.partition, ())
    wrong = [at for at in range(step.first, step.last + 1) if at in never] if never else []
    return f"{step.each}: {wrong[0]} was returned, and is no record" if wrong else None


@rule("S3", "begins where committed", "delivery")
def s3_begin(step: Delivery, book: Book) -> str | None:
    """A new owner starts exactly at the group's committed offset; where there is none, at the start of the log
    (reset to the earliest). Where only the members are seen, a commit whose answer never came may count or not."""
    each = step.each
    if each.start is None or each.deliveries or each.ended or each.reset or book.commits_unseen:
        return None
    terms = book.judged_by
    committed = book.committed.get(each.partition)
    if committed is None and terms.reset != "earliest":
        return None
    least = book.start_of(each.partition) if committed is None else committed
    most = least if terms.view == "broker" else max(least, book.sent.get(each.partition, least))
    if least <= each.start <= most or book.next_record(each.partition, each.start) == book.next_record(
        each.partition, least
    ):
        return None
    return f"{each} begins at {each.start}; {least if committed is None else committed} is committed"
