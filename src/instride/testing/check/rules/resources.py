"""R1: what a member needs."""

from __future__ import annotations

from typing import Final

from instride.testing.check.book import Book
from instride.testing.check.events import Event
from instride.testing.check.rules.rule import rule

_ENOUGH: Final = 8
"""Samples of a member, below which nothing is said of a trend."""
_FLAT: Final = 0.10
_ALLOWANCE: Final = {"rss": 16 << 20, "files": 4, "threads": 2}
"""What the last quarter may have above the second one, in bytes, files and threads; of rss a tenth at least."""


@rule("R1", "buffers keep their caps", "sample")
def r1_caps(event: Event, book: Book) -> str | None:
    """What a member has buffered is never more than it may."""
    *_, buffered, cap = event.detail
    return f"{event.who} has {buffered:,} bytes buffered; the cap is {cap:,}" if cap and buffered > cap else None


@rule("R1", "resources stay flat", "end")
def r1_flat(event: Event, book: Book) -> str | None:
    """Over a soak memory, open files and threads stay flat: the most of the last quarter of a member's samples is not
    above the most of the second quarter (the first is warming up), but for a tenth of memory and an allowance."""
    for who, samples in book.samples.items():
        if len(samples) >= _ENOUGH:
            for place, (name, allowance) in enumerate(_ALLOWANCE.items()):
                quarter = len(samples) // 4
                early = max(sample.detail[place] for sample in samples[quarter : 2 * quarter])
                late = max(sample.detail[place] for sample in samples[-quarter:])
                if late > early + max(allowance, _FLAT * early if name == "rss" else 0):
                    return f"{who}'s {name} rose from {early:,} to {late:,}"
    return None
