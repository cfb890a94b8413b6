"""How long the first rebalance of an empty group waits for more members: `group.initial.rebalance.delay.ms`.

Laws
1. It waits for `seconds`; and where somebody joined meanwhile as long again, and so on.
2. In all that is no longer than the first member's rebalance time-out, unless `seconds` alone is.
"""

from __future__ import annotations

__all__ = ["InitialDelay"]


class InitialDelay:
    """seconds: the broker's setting. rebalance: the first member's time-out.

    now: how long to wait at present. somebody_joined: set it when one does.
    """

    __slots__ = ("_remaining", "_seconds", "now", "somebody_joined")

    def __init__(self, seconds: float, rebalance: float) -> None:
        self._seconds = self.now = seconds
        self._remaining = max(rebalance - seconds, 0.0)
        self.somebody_joined = False

    def goes_on(self) -> bool:
        """At the end of a wait: whether another follows, of `now` seconds."""
        if not self.somebody_joined or not self._remaining:
            return False
        self.somebody_joined = False
        waited, self.now = self.now, min(self._seconds, self._remaining)
        self._remaining = max(self._remaining - waited, 0.0)
        return True
