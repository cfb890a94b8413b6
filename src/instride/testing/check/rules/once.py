"""S1 and S2: how often."""

from __future__ import annotations

from instride.testing.check.book import Book
from instride.testing.check.rules.rule import rule
from instride.testing.check.steps import Again, EndOf


@rule("S1", "exactly once", "again")
def s1(again: Again, book: Book) -> str | None:
    """Each offset is returned at most once per group, across any sequence of joins and leaves. It may come again only
    where who had it before lost it, crashed, closed without an answer, saw its handler or a blocking commit of it fail,
    gave it up, or had begun no work on it. A user's seek lets what follows it come once more, and what was
    not committed then, whose commit it ends."""
    before, after = again.before, again.after
    if before.ended in ("lost", "crashed") or before.excused:
        return None
    if before.not_begun is not None and again.offset >= before.not_begun:
        return None
    return f"offset {again.offset}: {before} ({before.ended or 'live'}), and again {after}"


@rule("S2", "at least once", "end of")
def s2(end: EndOf, book: Book) -> str | None:
    """Whatever crashed or was lost: at the end every record that was returned is finished at least once. (That
    duplicates are confined to what was not committed is S3: who comes next begins at the committed offset.)"""
    if end.prefix < end.end and end.prefix in book.delivered.get(end.partition, ()):
        return f"{end.partition}: offset {end.prefix} was returned, and nobody finished it"
    return None
