"""A classic member of the group, whole: what others ask of it, and how its membership ends (docs/rebalance.md).

`joining` joins and syncs, `heartbeats` keeps it alive, `membership` is what they share. Table: `core.group.membership`.

Laws
1. A membership is lost by UNKNOWN_MEMBER_ID, by ILLEGAL_GENERATION while no rebalance is under way, by fencing, and
   by an application that does not poll within max_poll_interval. Then every partition is lost.
2. Heartbeats go on whatever the application does; only max_poll_interval bounds it.
3. A dynamic member that ends its membership tells the group; a static one (KIP-345) does not, unless it is told to: it
   comes back, or its session ends. An id that no Join was sent with is not given back, since that starts a rebalance.
4. A group that refuses us is joined again, after 1 s, then ever longer, up to a minute, where that may help
   (`_may_pass`); its error is raised again while it stands. Else a new subscription tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from instride.core.assignors.assignor import Assignor
from instride.core.group.membership import GroupInput, GroupState
from instride.core.group.protocol import RebalanceProtocol
from instride.core.lease import Lease
from instride.core.network.assignment import MemberAssignment
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator
from instride.core.network.eager_revocation import EagerRevocation
from instride.core.network.heartbeats import Heartbeats
from instride.core.network.joining import Joining
from instride.core.network.leaving import Leaving
from instride.core.network.membership import Membership
from instride.errors import AssignorError, KafkaError, error_for_code
from instride.wire import api

__all__ = ["Group"]

_REFUSED = "group"
_FIRST_TRY: Final = 1.0
_LONGEST: Final = 60.0
# Our own settings, or another member of our name: what the broker says will not change.
_FINAL_CODES: Final = frozenset({INVALID_GROUP_ID, FENCED_INSTANCE_ID})


class Group:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        coordinator: Coordinator,
        assignors: tuple[Assignor, ...],
        protocol: RebalanceProtocol,
        lease: Lease,
    ) -> None:
        self._context = context
        self._protocol = protocol
        self._config = context.config
        self._coordinator = coordinator
        self._lease = lease
        self._membership = Membership(context)
        self._heartbeats = Heartbeats(context, coordinator, self._membership, lease, self)
        self._leaving = Leaving(context, coordinator)
        self._eager_revocation = EagerRevocation(context, self._membership, protocol)
        self._joining = Joining(
            context,
            cluster,
            coordinator,
            membership=self._membership,
            heartbeats=self._heartbeats,
            eager_revocation=self._eager_revocation,
            assignors=assignors,
            ends=self,
        )
        self.subscribed = False
        self._waits_for_poll = False
        self.failed: Exception | None = None
        self._refusals = Backoff(_FIRST_TRY, _LONGEST, context.random)

    def connect(self, assignment: MemberAssignment, commits_deferred: Callable[[], bool]) -> None:
        """The parts that need the group need to be made after it."""
        self._assignment = self._joining.assignment = self._eager_revocation.assignment = assignment
        self._joining.commits_deferred = commits_deferred

    # -- what others ask

    @property
    def state(self) -> GroupState:
        return self._membership.state

    @property
    def topics(self) -> frozenset[str]:
        return self._membership.topics

    @property
    def generation(self) -> int:
        return self._membership.generation

    @property
    def member_id(self) -> str:
        return self._membership.member_id

    @property
    def syncs(self) -> int:
        """How many syncs were answered well."""
        return self._membership.syncs

    @property
    def reason(self) -> str:
        """Why it joins, or joined last."""
        return self._membership.reason or "a new membership"

    @property
    def sync_pending(self) -> bool:
        return self._membership.sync_pending

    @property
    def rebalancing(self) -> bool:
        return self._membership.rebalancing

    def may_commit(self, now: float) -> bool:
        if not self.subscribed:
            return True  # assign(): committed without a membership
        return self.generation >= 0 and not self.sync_pending and self._lease.holds(now)

    def group_topics(self) -> frozenset[str]:
        """Topics whose metadata the leader needs besides its own."""
        return self._joining.leader_topics

    # -- what the application says

    def subscribe(self, topics: frozenset[str], now: float) -> None:
        self.forgive()
        self._membership.last_polled = now
        self.change_topics(topics, now)

    def forgive(self) -> None:
        """A new subscription tries a group again that could not be joined."""
        self.failed = None
        self._refusals.succeeded()
        self._context.standing.passed(_REFUSED)

    def change_topics(self, topics: frozenset[str], now: float) -> None:
        """Be a member for these; there may be none, where no topic matches a pattern (now)."""
        first = not self.subscribed
        changed = topics != self.topics
        self.subscribed = True
        self._membership.topics = topics
        if changed and not first:
            if self._protocol is not RebalanceProtocol.EAGER:  # who gives up everything before the join
                self._assignment.request_revocation_outside(topics, now)
            self.rejoin("the subscription changed")
        self._context.touch()

    def polled(self, now: float) -> None:
        self._membership.last_polled = now
        if self._waits_for_poll:
            self._waits_for_poll = False
            self._context.touch()

    def taken(self, generation: int) -> None:
        """T's PARTITIONS_ASSIGNED."""
        if generation == self.generation:
            self._membership.move(GroupInput.TAKEN)

    def unsubscribed(self) -> None:
        self.subscribed = False
        self.forgive()
        self._context.standing.passed("coordinator")
        self._lease.expires = float("inf")  # no group decides what is read now
        self._membership.topics = frozenset()
        self._membership.wants_join = False

    def rejoin(self, reason: str) -> None:
        """A new join is needed; several needs share one."""
        self._membership.rejoin(reason)

    def enforce(self, reason: str) -> None:
        """The user wants a rebalance. Without a membership it is that of the next join anyway."""
        if self.subscribed and self.failed is None:
            self.rejoin(reason)

    def commit_refused(self, code: int, now: float) -> None:
        """A commit's answer told of the group before a heartbeat did."""
        if not self.subscribed:
            return  # assign(): there is no membership to lose
        if code == REBALANCE_IN_PROGRESS:
            if self._membership.stable:
                self._membership.rejoin_requested = True
                self._joining.commit_refused(now)
                self.rejoin("a commit was answered with REBALANCE_IN_PROGRESS")
        elif code == UNKNOWN_MEMBER_ID:
            self.lost("UNKNOWN_MEMBER_ID on a commit", now, forget_id=True)
        elif code == ILLEGAL_GENERATION:
            self.lost("ILLEGAL_GENERATION on a commit", now)
        else:
            self.fail(error_for_code(code, f"a commit of group {self._config.group_id!r}: error code {code}"), now)

    # -- time

    def poll(self, now: float) -> float:
        leaving_at = self._leaving.poll(now)
        if not self.subscribed:
            return leaving_at
        return min(leaving_at, self._poll_membership(now))

    def _poll_membership(self, now: float) -> float:
        if self.failed is not None:
            if not _may_pass(self.failed):
                return float("inf")
            if not self._refusals.ready(now):
                return self._refusals.ready_at
            self.failed = None
        exceeded_at = self._membership.last_polled + self._config.max_poll_interval
        if now > exceeded_at and not self._waits_for_poll:
            self._poll_interval_exceeded(now)
        self._heartbeats.update_lease(now)
        if self._waits_for_poll:
            return float("inf")  # a time that is past would keep the thread awake
        if not self._coordinator.need():
            return exceeded_at + 0.001
        # While a Join or Sync is pending the lease is renewed from turn to turn: so there must be turns.
        renew_at = now + self._config.session_timeout / 3 if self._membership.request_pending else float("inf")
        return min(exceeded_at + 0.001, renew_at, self._joining.poll(now), self._heartbeats.poll(now))

    # -- ends

    def leave(
        self,
        on_done: Callable[[Exception | None], None],
        now: float,
        *,
        reason: str,
        static_too: bool = False,
    ) -> None:
        """Tell the group (law 3); `on_done` hears in any case, and of what went wrong. The membership ends at once."""
        instance = self._config.group_instance_id
        member_id = self.member_id if self._membership.id_used else ""
        self._end_membership(now, forget_id=True)
        if not member_id or (instance is not None and not static_too):
            on_done(None)
            return
        request = api.LeaveGroup(
            group_id=self._config.group_id or "", member_id=member_id, group_instance_id=instance, reason=reason
        )
        self._leaving.begin(request, on_done, now)

    def lost(self, why: str, now: float, *, forget_id: bool = False) -> None:
        """Law 1."""
        self._context.log(logging.WARNING, f"membership of group {self._config.group_id!r} is lost: {why}")
        self._assignment.lose_all(now)
        self._end_membership(now, forget_id=forget_id)
        self._membership.reason = f"rejoining after {why}"

    def fail(self, error: Exception, now: float) -> None:
        """Law 4: this group cannot be joined now."""
        self.failed = error
        self._refusals.failed(now)
        self._assignment.lose_all(now)
        if self.generation >= 0:
            # nobody shall wait for us
            self.leave(lambda _error: None, now, reason=f"giving up: {type(error).__name__}")
        else:
            self._end_membership(now, forget_id=False)
        self._context.standing.stands(_REFUSED, error, now)

    def well(self) -> None:
        """An assignment was taken on: the group takes us."""
        self._refusals.succeeded()
        self._context.standing.passed(_REFUSED)

    def _poll_interval_exceeded(self, now: float) -> None:
        self._context.log(
            logging.WARNING,
            f"poll was not called for max_poll_interval ({self._config.max_poll_interval} s): leaving the group; all "
            "partitions are lost. Process less per poll, or raise max_poll_interval",
        )
        self._waits_for_poll = True
        self._assignment.lose_all(now)
        self.leave(lambda _error: None, now, reason="max_poll_interval exceeded")

    def _end_membership(self, now: float, *, forget_id: bool) -> None:
        self._joining.end_membership(now, forget_id=forget_id)
        # Whose loss is on its way needs a new lease; who left decides alone what is read.
        self._lease.expires = float("-inf" if self.subscribed else "inf")


def _may_pass(error: Exception) -> bool:
    """Whether joining again may help: not where it was the user's own code that failed."""
    own = not isinstance(error, KafkaError) or isinstance(error, AssignorError)
    return not own and getattr(error, "code", 0) not in _FINAL_CODES
