"""L1, L2 and L5: what holds others up."""

from __future__ import annotations

from instride.testing.check.book import Book
from instride.testing.check.rules.rule import rule
from instride.testing.check.steps import Change, Delivery


@rule("L1", "the others go on", "delivery", "requested")
def l1(step: Delivery | Change, book: Book) -> str | None:
    """While any number of partitions are to be revoked, delayed or completing, every other one goes on: where nothing
    fails, one with records to read stands still for no longer than `gap`, however long the others are held."""
    stood = _stood_still(step, book)
    if stood is None or step.each.failed_at is not None:
        return None
    return f"{step.each} stood still for {stood:.2f} s with records to read"


@rule("L5", "a failed commit stops nothing", "delivery", "requested")
def l5(step: Delivery | Change, book: Book) -> str | None:
    """The same after a commit of the partition was refused, or its answer lost: fetching goes on."""
    stood = _stood_still(step, book)
    if stood is None or step.each.failed_at is None:
        return None
    return f"{step.each} stood still for {stood:.2f} s after a commit of it had failed at {step.each.failed_at:.3f}"


def _stood_still(step: Delivery | Change, book: Book) -> float | None:
    each, terms = step.each, book.judged_by
    if terms.gap is None or each.waiting_since is None or each.ended:
        return None
    if not terms.faultless or each.who not in book.steady:
        return None
    stood = step.event.time - each.waiting_since
    return stood if stood > terms.gap else None


@rule("L2", "a delay ends", "given back", "revoked", "lost", "standing")
def l2(step: Change, book: Book) -> str | None:
    """A revoke is pending for no longer than the group allows (`delay`): it is released, given back, or lost."""
    each, terms = step.each, book.judged_by
    if not each.asked or not terms.faultless or terms.delay is None:
        return None
    waited = step.event.time - each.asked_at
    return f"{each} was asked for {waited:.2f} s ago" if waited > terms.delay else None
