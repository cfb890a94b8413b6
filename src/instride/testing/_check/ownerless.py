"""The time without an owner: from the release of a partition to the first fetch of its next owner.

Laws
1. Each member tells its half, and both halves are events of a history: "revoked", and "first fetch". Here they meet.
2. A member of another client tells no fetch: the first record that it returns stands for that, so its time is an upper
   bound, and holds only where there are records to return.
3. A partition that was lost was not handed over, and one that nobody takes afterwards has no end: neither is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from instride.records import TopicPartition
from instride.testing._check.events import Event

__all__ = ["WithoutOwner", "percentile", "without_owner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutOwner:
    """A partition that nobody owned. released_by and taken_by are members; times are those of the history."""

    partition: TopicPartition
    released_by: str
    released_at: float
    taken_by: str
    first_fetch_at: float

    @property
    def seconds(self) -> float:
        return self.first_fetch_at - self.released_at


def without_owner(events: Iterable[Event]) -> list[WithoutOwner]:
    """Every hand-over of a history, in the order in which they ended."""
    released: dict[TopicPartition, tuple[str, float]] = {}
    found: list[WithoutOwner] = []
    for event in events:
        if event.what == "revoked":
            released |= {tp: (event.who, event.time) for tp, _ in event.detail[0]}
        elif event.what == "lost":
            for tp, _ in event.detail[0]:
                released.pop(tp, None)
        for tp in _taken(event):
            if tp in released:
                who, at = released.pop(tp)
                found.append(
                    WithoutOwner(
                        partition=tp, released_by=who, released_at=at, taken_by=event.who, first_fetch_at=event.time
                    )
                )
    return found


def _taken(event: Event) -> list[TopicPartition]:
    """Law 2. A member of ours has fetched before it returns anything."""
    if event.what == "first fetch":
        return [event.detail[0]]
    return [each[0] for each in event.detail[0]] if event.what == "poll" else []


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed. ValueError where there is none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values: nothing was handed over")
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
