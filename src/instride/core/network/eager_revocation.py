"""Eager: every partition is given up before a join (KIP-429; docs/rebalance.md, the deadline of a delay).

Laws
1. A need for a join, in a membership that holds an assignment, asks for everything that is held, once. The join is sent
   when nothing is held any more.
2. The broker removes who has not joined when the largest rebalance time-out of all members has passed since the
   rebalance began: which is not on the wire. A heartbeat that was answered well was sent before it. So the bound is the
   sending of the last such one plus our own time-out; where nobody has told us of a rebalance, max_poll_interval from
   the need.
3. A rebalance that is told of later brings the deadline forward. Nothing takes it back.
4. Who holds nothing is asked too (KIP-429: the listener hears of the empty set), and not waited for.
"""

from __future__ import annotations

from instride.core.group.protocol import RebalanceProtocol
from instride.core.network.assignment import MemberAssignment
from instride.core.network.context import Context
from instride.core.network.membership import Membership

__all__ = ["EagerRevocation"]


class EagerRevocation:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, membership: Membership, protocol: RebalanceProtocol) -> None:
        self._context = context
        self._config = context.config
        self._membership = membership
        self.eager = protocol is RebalanceProtocol.EAGER
        self._asked = False
        self._deadline = float("inf")
        self.assignment: MemberAssignment

    def over(self) -> None:
        """A join is sent, or the membership has ended."""
        self._asked = False

    def done(self, now: float) -> bool:
        """Whether a join may be sent, as far as what is held is concerned."""
        if not self.eager or not self._membership.stable:
            return True
        if not self._asked:
            self._asked = True
            self._deadline = self._bound(now)
            self.assignment.request_revocation_of_all(self._deadline)
        elif (bound := self._bound(now)) < self._deadline:
            self._deadline = bound
            self.assignment.bring_forward(bound)
        return not self.assignment.partitions

    def _bound(self, now: float) -> float:
        """Law 2."""
        member = self._membership
        since = member.well_at if member.rejoin_requested else now
        return since + self._config.max_poll_interval - self._context.commit_budget
