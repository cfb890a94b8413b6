"""How much a network thread did within one virtual second, at its busiest: turns, and requests that it sent.

Law: whatever comes in, each turn and each request counts. A thread that is woken by its own requests' responses spins
as well.
"""

from __future__ import annotations

__all__ = ["Busiest"]


class Busiest:
    __slots__ = ("_most", "_second", "_sent", "_turns")

    def __init__(self) -> None:
        self._second = 0
        self._turns = self._sent = 0
        self._most = 0, 0

    def turn(self, now: float) -> None:
        if int(now) != self._second:
            self._second, self._turns, self._sent = int(now), 0, 0
        self._turns += 1
        self._keep()

    def sent(self) -> None:
        self._sent += 1
        self._keep()

    def take(self) -> tuple[int, int]:
        """The most turns, and the most requests, of a second since the last call."""
        most, self._most = self._most, (0, 0)
        return most

    def _keep(self) -> None:
        self._most = max(self._most[0], self._turns), max(self._most[1], self._sent)
