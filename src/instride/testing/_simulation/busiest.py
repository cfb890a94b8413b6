"""How much a network thread did within one virtual second, at its busiest: turns, and requests that it sent.

Law: whatever comes in, each turn and each request counts. A thread that is woken by its own requests' responses spins
as well. Only a commit that the application handed over in that second does not count, since the thread did not choose
to send it. One that is sent again counts.
"""

from __future__ import annotations

from instride._core.events import ApplicationEvent, Commit
from instride._wire.api import OffsetCommit, Request

__all__ = ["Busiest"]


class Busiest:
    __slots__ = ("_commits", "_handed_over", "_most", "_second", "_sent", "_turns")

    def __init__(self) -> None:
        self._second = 0
        self._turns = self._sent = self._commits = self._handed_over = 0
        self._most = 0, 0

    def turn(self, now: float) -> None:
        if int(now) != self._second:
            self._second = int(now)
            self._turns = self._sent = self._commits = self._handed_over = 0
        self._turns += 1
        self._keep()

    def took(self, event: ApplicationEvent) -> None:
        self._handed_over += isinstance(event, Commit)

    def sent(self, request: Request) -> None:
        if isinstance(request, OffsetCommit):
            self._commits += 1
        else:
            self._sent += 1
        self._keep()

    def take(self) -> tuple[int, int]:
        """The most turns, and the most requests, of a second since the last call."""
        most, self._most = self._most, (0, 0)
        return most

    def _keep(self) -> None:
        self._most = max(self._most[0], self._turns), max(self._most[1], self._own())

    def _own(self) -> int:
        return self._sent + max(0, self._commits - self._handed_over)
