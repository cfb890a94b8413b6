"""How long to wait before trying again: exponential, with jitter, bounded (KIP-580).

Laws
1. It belongs to a purpose: it grows with each failure, until the purpose succeeds.
2. Where many of a kind fail one by one (partitions of one broker), `together` lets them end at the same moments: so
   they are tried again in one request, and the thread wakes for all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["Backoff"]

_JITTER = 0.2


class Backoff:
    """Counts failures of one thing. `random` gives numbers in [0, 1)."""

    __slots__ = ("_high", "_low", "_random", "_together", "failures", "ready_at")

    def __init__(self, low: float, high: float, random: Callable[[], float], *, together: bool = False) -> None:
        self._low = low
        self._high = high
        self._random = random
        self._together = together
        self.failures = 0
        self.ready_at = 0.0

    def failed(self, now: float, *, at_least: float = 0.0) -> None:
        """at_least: seconds, for what must not be tried often."""
        delay = max(at_least, min(self._high, self._low * 2.0 ** min(self.failures, 30)))
        self.failures += 1
        self.ready_at = now + max(at_least, delay * (1 + _JITTER * (2 * self._random() - 1)))
        if self._together:  # law 2: at the next whole multiple of a quarter of the delay
            self.ready_at = math.ceil(self.ready_at / delay * 4) * delay / 4

    def succeeded(self) -> None:
        self.failures = 0
        self.ready_at = 0.0

    def ready(self, now: float) -> bool:
        return now >= self.ready_at
