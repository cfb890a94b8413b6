"""What this member is to its group at this moment: shared by the parts that join, beat and leave.

Laws
1. `number` rises whenever a membership ends: an answer that was asked for under an older one is ignored.
2. A need for a new join is kept until a join is sent; several needs share one.
"""

from __future__ import annotations

from instride.core.group.membership import GroupInput, GroupState, next_group_state
from instride.core.network.context import Context

__all__ = ["Membership"]


class Membership:
    """Not thread-safe: the network machine owns it.

    id_used: a Join was sent with the member id, so the group may count us as a member by it.
    requesting: a Join or Sync is under way. rejoin_requested: by a heartbeat or commit, since the last join.
    alive_at: when the last heartbeat that was answered was sent. well_at: the same, of those answered without a word of
    a rebalance. unheard: the last one had no answer, or a refusal.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.state = GroupState.UNJOINED
        self.topics: frozenset[str] = frozenset()
        self.generation = -1
        self.member_id = ""
        self.id_used = False
        self.number = 0
        self.syncs = 0
        self.reason = ""
        self.wants_join = False
        self.requesting = False
        self.rejoin_requested = False
        self.unheard = False
        self.alive_at = float("-inf")
        self.well_at = float("-inf")
        self.last_polled = float("inf")

    @property
    def sync_pending(self) -> bool:
        """From the answered join to the answered sync the broker takes no commit."""
        return self.state is GroupState.COMPLETING_REBALANCE

    @property
    def rebalancing(self) -> bool:
        return self.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)

    @property
    def stable(self) -> bool:
        return self.state in (GroupState.ASSIGNING_PARTITIONS, GroupState.STABLE)

    @property
    def request_pending(self) -> bool:
        return self.sync_pending or (self.requesting and self.rebalancing)

    def rejoin(self, reason: str) -> None:
        """A new join is needed (law 2). The first reason is the one that is told."""
        if not self.wants_join:
            self.reason = reason
        self.wants_join = True
        self._context.touch()

    def move(self, event: GroupInput) -> None:
        self.state = next_group_state(self.state, event)
        self._context.touch()

    def end(self, *, forget_id: bool) -> None:
        """Law 1."""
        self.number += 1
        self.requesting = self.wants_join = self.rejoin_requested = self.unheard = False
        self.generation = -1
        if forget_id:
            self.member_id, self.id_used = "", False
        self.move(GroupInput.LOST)
