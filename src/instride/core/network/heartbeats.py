"""Heartbeats, and the lease that they renew.

Laws
1. They go on in every state that has a generation, whatever the application does.
2. The lease ends session_timeout after the *sending* of the last heartbeat that was answered well. A join or sync that
   is pending at the broker renews it, as long as this thread is never away for that long and heartbeats neither fail
   nor are refused. An expired lease is not a loss: the next answer decides. Without a membership there is no lease: its
   loss may not have been heard yet.
3. ILLEGAL_GENERATION while a rebalance is under way, or to a heartbeat that a join overtook, is as good as none. What
   else one that was overtaken is refused for is not believed: the next one, of the present generation, decides.
4. How often: `pace` (docs/rebalance.md, rule 19). A throttle time is obeyed (KIP-219).
5. A refusal that may be taken back, of a right that was withdrawn say, is told when the lease has ended (Java's table).
"""

from __future__ import annotations

import logging

from instride.core.events import LeaseRenewed
from instride.core.lease import Lease
from instride.core.network.codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    MOVED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator
from instride.core.network.ends import Ends
from instride.core.network.membership import Membership
from instride.core.network.pace import Pace
from instride.errors import error_for_code
from instride.errors.broker import name_of_code
from instride.wire import api
from instride.wire.group_notice import GroupNotice

__all__ = ["Heartbeats"]


class Heartbeats:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self, context: Context, coordinator: Coordinator, membership: Membership, lease: Lease, ends: Ends
    ) -> None:
        self._context = context
        self._config = context.config
        self._coordinator = coordinator
        self._membership = membership
        self._lease = lease
        self._ends = ends
        self._pace = Pace(context)
        self._due = 0.0
        self._in_flight = False

    def joined(self, now: float) -> None:
        """The interval begins at the answered join."""
        self._due = self._pace.first(now)

    def synced(self, notice: GroupNotice | None, partitions: int | None, *, has_some: bool, now: float) -> None:
        """It begins anew at the answered sync. partitions: of our topics; None in an eager group."""
        if notice is not None:
            self._due = self._pace.told(notice, now)
        elif partitions is not None:
            self._due = self._pace.untold(partitions, has_some=has_some, now=now)

    def poll(self, now: float) -> float:
        member = self._membership
        if self._in_flight or member.generation < 0:
            return float("inf")
        if now < self._due:
            return self._due
        self._in_flight = True
        self._due = self._next(now)
        request = api.Heartbeat(
            group_id=self._config.group_id or "",
            generation=member.generation,
            member_id=member.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        stamp = (member.number, member.generation)
        # One that is stuck must leave time for another before the session ends.
        timeout = min(self._config.request_timeout, self._config.session_timeout / 2)
        self._coordinator.send(request, lambda result, then: self._beat(stamp, now, result, then), now, timeout=timeout)
        return float("inf")

    def _next(self, now: float) -> float:
        """In step with the heartbeats before, where none was late: the members of a group stay together."""
        if self._membership.rejoin_requested:
            self._pace.calm_down()
        interval = self._pace.interval(now)
        kept = self._due + interval
        return kept if kept > now else now + interval

    def _beat(self, stamp: tuple[int, int], sent: float, result: api.Response | Exception, now: float) -> None:
        member = self._membership
        self._in_flight = False
        self._context.touch()
        if isinstance(result, Exception):
            member.unheard = stamp[0] == member.number
            self._coordinator.lost(result)
            return
        if not isinstance(result, api.HeartbeatResponse) or stamp[0] != member.number:
            return
        self._due = max(self._due, now + result.throttle_time)
        error = result.error
        overtaken = stamp[1] != member.generation
        harmless = error == ILLEGAL_GENERATION and (member.rebalancing or overtaken)
        member.unheard = not (error in (0, REBALANCE_IN_PROGRESS) or harmless)
        if not member.unheard:
            member.alive_at = max(member.alive_at, sent)
        if error == 0:
            member.well_at = max(member.well_at, sent)
        if error == REBALANCE_IN_PROGRESS and member.stable and not overtaken:
            member.rejoin_requested = True
            member.rejoin("the group is rebalancing")
        elif error not in (0, REBALANCE_IN_PROGRESS) and not harmless:
            self._refused(error, now, overtaken=overtaken)

    def _refused(self, error: int, now: float, *, overtaken: bool) -> None:
        if error in MOVED:
            self._coordinator.lost(error_for_code(error))
        elif overtaken:
            pass
        elif error in (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION):
            name = "UNKNOWN_MEMBER_ID" if error == UNKNOWN_MEMBER_ID else "ILLEGAL_GENERATION"
            self._ends.lost(f"{name} on a heartbeat", now, forget_id=error == UNKNOWN_MEMBER_ID)
        elif error == FENCED_INSTANCE_ID or (error_for_code(error).fatal and not self._lease.holds(now)):
            why = f"a heartbeat of group {self._config.group_id!r}: {name_of_code(error)}"
            self._ends.fail(error_for_code(error, why), now)
        else:
            told = f"a heartbeat was answered with {name_of_code(error)}; it is tried again"
            self._context.log(logging.WARNING, told)

    def update_lease(self, now: float) -> None:
        """Law 2. What is pending counts only from turn to turn, and while heartbeats get through: a process that was
        suspended, or is cut off, does not know whether it still is a member, though its Join or Sync looks pending."""
        member = self._membership
        before = self._lease.expires
        unsent = member.requesting and not self._coordinator.join_in_flight()
        pending = member.request_pending and not unsent
        if member.generation < 0:
            self._lease.expires = float("-inf")
        elif pending and not member.unheard and self._lease.holds(now):
            self._lease.expires = now + self._config.session_timeout
        else:
            self._lease.expires = member.alive_at + self._config.session_timeout
        if float("-inf") < before < now <= self._lease.expires:
            self._context.deliver(LeaseRenewed())
