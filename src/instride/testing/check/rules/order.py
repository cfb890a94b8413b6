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


@rule("S3", "begins where committed", "delivery")
def s3_begin(step: Delivery, book: Book) -> str | None:
    """A new owner starts exactly at the group's committed offset; where there is none, at the start of the log
    (reset to the earliest). Where only the members are seen, a commit whose answer never came may count or not."""
    each = step.each
    if step.first != each.start or each.deliveries or each.ended or each.reset or book.commits_unseen:
        return None
    terms = book.judged_by
    committed = book.committed.get(each.partition)
    if committed is None and terms.reset != "earliest":
        return None
    least = book.start_of(each.partition) if committed is None else committed
    most = least if terms.view == "broker" else max(least, book.sent.get(each.partition, least))
    if least <= step.first <= most:
        return None
    return f"{each} begins at {step.first}; {least if committed is None else committed} is committed"
