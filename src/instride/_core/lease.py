"""How long this member may believe that it is one.

Laws
1. One writer, the network machine; any reader. It is one number, so a reader never sees half of a change.
2. A reader compares it with the clock itself: a process that was suspended returns nothing first.
"""

from __future__ import annotations

__all__ = ["Lease"]


class Lease:
    """expires: by the machine's clock (which counts a suspended machine too), infinite while nothing is at stake."""

    __slots__ = ("expires",)

    def __init__(self) -> None:
        self.expires = float("inf")

    def holds(self, now: float) -> bool:
        return now <= self.expires
