"""Counts which verb followed which at a member, and in which state the partitions were when the first was called.

Laws
1. A pair is two calls of one consumer, one after the other; polls between them end it.
2. It counts for each state that a partition of the member was in at the first: an ownership state, or LOST where the
   application has not heard of the loss yet.
3. Each pair can be called in each of these states, also one that is refused there, and one whose second verb finds
   nothing any more: it must change nothing then. REVOKED is no such state, since no verb finds the partition in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

__all__ = ["FIRST", "SECOND", "STATES", "VerbPairs", "counted_verbs"]

SECOND: Final = ("pause", "resume", "seek", "commit", "delay", "subscribe", "unsubscribe", "close")
FIRST: Final = tuple(verb for verb in SECOND if verb != "close")
"""Nothing is called after a close."""
STATES: Final = ("OWNED", "REVOKE_NEXT", "REVOKE_THEREAFTER", "COMPLETING", "LOST")


class VerbPairs:
    """taken: how often each pair was called, by its words: "pause, resume: OWNED"."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()

    def rows(self) -> Mapping[str, int]:
        pairs = [(one, other, state) for one in FIRST for other in SECOND for state in STATES]
        return {each: self.taken[each] for each in (f"{one}, {other}: {state}" for one, other, state in pairs)}


_open: list[VerbPairs] = []


@contextmanager
def counted_verbs() -> Iterator[VerbPairs]:
    """Whatever consumer is called in this process."""
    pairs = VerbPairs()
    _open.append(pairs)
    try:
        yield pairs
    finally:
        _open.remove(pairs)


def count(first: str, second: str, states: frozenset[str]) -> None:
    for pairs in _open:
        pairs.taken.update(f"{first}, {second}: {state}" for state in states)
