"""How long to wait before trying again: exponential, with jitter, bounded (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Backoff"]

_JITTER = 0.2


class Backoff:
    """Counts failures of one thing. `random` gives numbers in [0, 1)."""

    __slots__ = ("_high", "_low", "_random", "failures", "ready_at")

    def __init__(self, low: float, high: float, random: Callable[[], float]) -> None:
        self._low = low
        self._high = high
        self._random = random
        self.failures = 0
        self.ready_at = 0.0

    def failed(self, now: float, *, at_least: float = 0.0) -> None:
        """at_least: seconds, for what must not be tried often."""
        delay = max(at_least, min(self._high, self._low * 2.0 ** min(self.failures, 30)))
        self.failures += 1
        self.ready_at = now + max(at_least, delay * (1 + _JITTER * (2 * self._random() - 1)))

    def succeeded(self) -> None:
        self.failures = 0
        self.ready_at = 0.0

    def ready(self, now: float) -> bool:
        return now >= self.ready_at
