"""How much of what there is goes into the next micro-batch. Pure.

Laws
1. At most `limit` offsets, shared by backlog. A partition with a small backlog is never starved by one with a large
   (KIP-41): each that has something gets at least one offset, as with Spark's connector, even beyond the limit.
2. With a least number, a batch waits until that many are there, or `max_delay` seconds have passed since the last one.
   The first does not wait.
"""

from __future__ import annotations

from collections.abc import Mapping

from instride.records import TopicPartition

__all__ = ["Pace", "admitted"]


def admitted(lag: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """How many offsets of each partition's lag."""
    total = sum(lag.values())
    if limit is None or total <= limit:
        return dict(lag)
    return {partition: min(size, max(1, limit * size // total)) for partition, size in lag.items()}


class Pace:
    """Law 2. Not thread-safe; the time is an argument."""

    def __init__(self, least: int | None, max_delay: float) -> None:
        self._least = least
        self._max_delay = max_delay
        self._last: float | None = None

    def may_start(self, lag: int, now: float) -> bool:
        """Whether a batch is to start. True counts as its start."""
        if lag == 0 and self._last is not None:
            return False
        wait = (
            self._least is not None
            and lag < self._least
            and self._last is not None
            and now < self._last + self._max_delay
        )
        if not wait:
            self._last = now
        return not wait
