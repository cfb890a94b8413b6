"""How long this member may believe that it is one.

Laws
1. One writer, the network machine; any reader. It is one number, so a reader never sees half of a change.
2. A reader compares it with the clock itself: a process that was suspended returns nothing first.
3. The lease of the next membership has another number, which is written before it holds. Who works on what a poll
   returned keeps the `Standing` of that poll: it ends with the lease, and a later lease does not renew it.

How long it is, and what becomes of a member that does not poll within max_poll_interval: `_core/network/group.py`.
The deadline of a delayed revoke: `_core/network/assignment.py`, law 4.
"""

from __future__ import annotations

__all__ = ["Lease", "Standing"]


class Lease:
    """expires: by the machine's clock (which counts a suspended machine too), infinite while nothing is at stake.
    number: of the membership; it rises when another one begins.
    """

    __slots__ = ("expires", "number")

    def __init__(self) -> None:
        self.expires = float("inf")
        self.number = 0

    def holds(self, now: float) -> bool:
        return now <= self.expires


class Standing:
    """Whether the member that a poll spoke for is one still. Any thread may ask."""

    __slots__ = ("_lease", "number")

    def __init__(self, lease: Lease, number: int) -> None:
        self._lease = lease
        self.number = number

    def holds(self, now: float) -> bool:
        """The number is read last: of a lease that holds again it has been written before."""
        return self._lease.holds(now) and self._lease.number == self.number
