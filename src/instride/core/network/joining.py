"""Joining and syncing: from the need for a rebalance to an assignment (docs/rebalance.md, C).

Laws
1. REBALANCE_IN_PROGRESS and a coordinator that moves keep the membership: join again, listing what is held.
2. A join lists everything held as owned, delayed and completing partitions too, with the joined generation.
3. An answer that was sent for under an older membership is ignored.
4. A member id that is refused or given is used at once, and a rebalance that overtook a Join or Sync is followed at
   once; where either repeats, after a back-off. It grows until an assignment is taken on: a Join that is answered well
   before its Sync is refused is no success, but one more rebalance for the whole group.
5. A static member that joins without its member id may be given what its predecessor had, without a rebalance: what
   that one was asked for and had not released is with nobody then. So it joins once more, with metadata that has
   changed, and the leader deals that out. (Eager members release everything before a join.)
6. An assignor may be the user's own: what it raises, whenever it is called, ends the membership and is told.
7. Any leader may assign what does not exist, or does not yet as far as we know. That is told in one line; up to
   `_MOST_UNKNOWN` such partitions are taken on, the others are left out until they are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from instride.core.assignors.assignor import Assignor
from instride.core.group.membership import GroupInput, GroupState
from instride.core.network.assignment import MemberAssignment
from instride.core.network.cluster import Cluster
from instride.core.network.codes import (
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    MOVED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator
from instride.core.network.eager_revocation import EagerRevocation
from instride.core.network.ends import Ends
from instride.core.network.heartbeats import Heartbeats
from instride.core.network.leader_assignment import LeaderAssignment
from instride.core.network.membership import Membership
from instride.core.network.mismatch import ask
from instride.errors import KafkaError, ProtocolError, error_for_code
from instride.errors.broker import name_of_code
from instride.records import TopicPartition
from instride.wire import api
from instride.wire.consumer_protocol import Assignment, Subscription, read_assignment, write_subscription
from instride.wire.group_notice import read_notice

__all__ = ["Joining"]

# A join is answered when the slowest member has joined; the broker's own timer may be later than ours by this.
_JOIN_GRACE = 5.0
_MOST_UNKNOWN: Final = 1000
_NAMED: Final = 5


class Joining:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        coordinator: Coordinator,
        *,
        membership: Membership,
        heartbeats: Heartbeats,
        eager_revocation: EagerRevocation,
        assignors: tuple[Assignor, ...],
        ends: Ends,
    ) -> None:
        self._context = context
        self._config = context.config
        self._cluster = cluster
        self._coordinator = coordinator
        self._membership = membership
        self._heartbeats = heartbeats
        self._eager_revocation = eager_revocation
        self._assignors = assignors
        self._ends = ends
        self._backoff = context.backoff()
        self.assignment: MemberAssignment
        self.commits_deferred: Callable[[], bool] = lambda: False
        self._leader_assignment: LeaderAssignment | None = None
        self._protocol = ""
        self._claimed: frozenset[object] = frozenset()
        self._joined_topics: frozenset[str] = frozenset()
        self._last_join = float("-inf")
        self._repeated: set[str] = set()
        self._left_out: list[TopicPartition] = []
        # How often in a row an assignment held topics that are not in the subscription, with which we had joined.
        self._misfits = 0
        self._commit_backoff = context.backoff()
        self._commit_refused_at = float("-inf")
        self._succeeds_itself = False
        self._mixed = False
        cluster.on_update.append(self._metadata_changed)

    @property
    def leader_topics(self) -> frozenset[str]:
        """Topics whose metadata the leader needs besides its own."""
        return self._leader_assignment.topics if self._leader_assignment is not None else frozenset()

    def end_membership(self, now: float, *, forget_id: bool) -> None:
        """What is pending at the broker is not waited for; its answer concerns nobody (law 3)."""
        requesting = self._membership.requesting
        self._membership.end(forget_id=forget_id)
        if requesting:
            self._coordinator.drop_join(now, "the membership has ended")
        self._eager_revocation.over()
        self._mixed = False
        self._leader_assignment = None

    # -- when

    def poll(self, now: float) -> float:
        if self._membership.requesting:
            return float("inf")
        if self._membership.state is GroupState.COMPLETING_REBALANCE:
            self._try_sync(now)
            return float("inf")
        if not self._wants_to_join() or not self._eager_revocation.done(now):
            return float("inf")
        ready_at = max(self._backoff.ready_at, self._commit_backoff.ready_at, self._spaced(now))
        if now < ready_at:
            return ready_at
        self._send_join(now)
        return float("inf")

    def _wants_to_join(self) -> bool:
        member = self._membership
        if self.assignment.draining():
            return False
        if self.assignment.leaving and not (member.generation >= 0 and self.commits_deferred()):
            return False  # leaving: a join is sent only where a commit can be sent in no other way
        return member.wants_join or member.state in (GroupState.UNJOINED, GroupState.PREPARING_REBALANCE)

    def _spaced(self, now: float) -> float:
        """In a mixed group every heartbeat asks for a rejoin while anything is pending: follow it well spaced, which
        re-arms the broker's timer, or the two would spin (docs/protocol-facts.md)."""
        if not (self._mixed and self._membership.rejoin_requested and self.assignment.anything_pending()):
            return now
        return self._last_join + self._config.max_poll_interval / 3

    # -- the join

    def _send_join(self, now: float) -> None:
        member = self._membership
        protocols = self._protocols(now)
        if protocols is None:
            return
        member.move(GroupInput.JOIN)
        self._eager_revocation.over()
        self.assignment.group_told()
        member.requesting, member.wants_join = True, False
        self._claimed, self._joined_topics = frozenset(self.assignment.claimed()), member.topics
        self._succeeds_itself = self._config.group_instance_id is not None and not member.member_id
        member.id_used = bool(member.member_id)
        self._last_join = now
        request = api.JoinGroup(
            group_id=self._config.group_id or "",
            group_instance_id=self._config.group_instance_id,
            session_timeout=self._config.session_timeout,
            rebalance_timeout=self._config.max_poll_interval,
            member_id=member.member_id,
            protocols=protocols,
            reason=member.reason,
        )
        why = member.reason or "a new membership"
        self._context.log(logging.INFO, f"joining group {self._config.group_id!r}: {why}")
        number = member.number
        self._send(request, lambda result, then: self._joined(number, result, then), now)

    def _send(
        self, request: api.Request, on_done: Callable[[api.Response | Exception, float], None], now: float
    ) -> None:
        timeout = max(self._config.request_timeout, self._config.max_poll_interval + _JOIN_GRACE)
        self._coordinator.send_join(request, on_done, now, timeout=timeout)

    def _protocols(self, now: float) -> tuple[api.GroupProtocol, ...] | None:
        """None where an assignor failed: the user hears of it (law 6)."""
        try:
            return tuple(api.GroupProtocol(name=each.name, metadata=self._metadata(each)) for each in self._assignors)
        except Exception as error:  # noqa: BLE001 - an assignor may be the user's own code
            self._ends.fail(error, now)
            return None

    def _metadata(self, assignor: Assignor) -> bytes:
        """Law 2. Two places for the generation: leaders before 3.4 read only the assignor's own (protocol-facts)."""
        topics, owned = self._membership.topics, self.assignment.claimed()
        # An eager member lists nothing; its generation still says that this is a new join, and not a repeated one.
        generation = self._membership.generation if owned or self._eager_revocation.eager else -1
        userdata = assignor.subscription_userdata(topics, owned=owned, generation=generation)
        return write_subscription(
            Subscription(
                topics=tuple(topics),
                owned=tuple(owned),
                generation=generation,
                rack=self._config.client_rack,
                userdata=userdata,
            )
        )

    def _joined(self, number: int, result: api.Response | Exception, now: float) -> None:
        member = self._membership
        if number != member.number:
            return
        member.requesting = False
        self._context.touch()
        if not isinstance(result, api.JoinGroupResponse):
            self._request_failed(result, now)
        elif result.error == 0:
            self._join_answered(result, now)
        elif result.error == MEMBER_ID_REQUIRED:
            self._follow("id", now)
            member.member_id = result.member_id
            member.rejoin(member.reason)
        else:
            self._refused("JoinGroup", result.error, now)

    def _join_answered(self, response: api.JoinGroupResponse, now: float) -> None:
        member = self._membership
        self._mixed = member.rejoin_requested and response.generation == member.generation
        member.rejoin_requested = False
        member.generation, member.member_id, member.id_used = response.generation, response.member_id, True
        self._protocol = response.protocol or ""
        self._heartbeats.joined(now)
        self._leader_assignment = (
            LeaderAssignment(response, self._cluster) if response.leader == response.member_id else None
        )
        member.move(GroupInput.JOINED)
        role = "leader" if self._leader_assignment else "member"
        self._context.log(
            logging.INFO, f"joined group {self._config.group_id!r} in generation {member.generation} as {role}"
        )

    # -- the sync

    def _try_sync(self, now: float) -> None:
        member = self._membership
        assignments: dict[str, bytes] = {}
        if self._leader_assignment is not None:
            if not self._leader_assignment.ready():
                return
            made = self._make_assignments(self._leader_assignment, now)
            if made is None:
                return
            assignments = made
        member.requesting = True
        request = api.SyncGroup(
            group_id=self._config.group_id or "",
            generation=member.generation,
            member_id=member.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol=self._protocol,
            assignments=assignments,
        )
        number = member.number
        self._send(request, lambda result, then: self._synced(number, now, result, then), now)

    def _make_assignments(self, leading: LeaderAssignment, now: float) -> dict[str, bytes] | None:
        assignor = self._assignor()
        if assignor is None:
            self._ends.fail(
                ProtocolError(f"the group chose assignor {self._protocol!r}, which this member did not offer"), now
            )
            return None
        try:
            return leading.assign(assignor)
        except Exception as error:  # noqa: BLE001 - an assignor may be the user's own code
            self._ends.fail(error, now)
            return None

    def _synced(self, number: int, sent: float, result: api.Response | Exception, now: float) -> None:
        member = self._membership
        if number != member.number:
            return
        member.requesting = False
        self._context.touch()
        if not isinstance(result, api.SyncGroupResponse):
            self._request_failed(result, now)
        elif result.error == 0:
            self._sync_answered(result, sent, now)
        else:
            self._refused("SyncGroup", result.error, now)

    def _sync_answered(self, response: api.SyncGroupResponse, sent: float, now: float) -> None:
        member = self._membership
        # What was answered meanwhile may be younger: a sync waits for the leader.
        member.alive_at, member.well_at = max(member.alive_at, sent), max(member.well_at, sent)
        member.syncs += 1
        member.move(GroupInput.SYNCED)
        try:
            assignment = read_assignment(response.assignment)
        except ProtocolError as error:
            self._ends.fail(error, now)
            return
        partitions = assignment.partitions
        self._set_pace(assignment, now)
        fitting = tuple(tp for tp in partitions if tp.topic in member.topics)
        if len(fitting) == len(partitions):
            self._misfits = 0
        elif not self._leader_insists(now):
            member.rejoin("the assignment does not fit the subscription")
            return
        partitions = self._bounded(fitting)
        if not self._tell_assignor(partitions, now):
            return
        self._backoff.succeeded()
        self._repeated.clear()
        self._ends.well()
        target = frozenset(partitions)
        self.assignment.apply(target, member.generation, now, member_id=member.member_id)
        if self._claimed - self.assignment.partitions.keys() - target:
            member.rejoin("a revoke was completed during the join")
        if self._succeeds_itself and not self._eager_revocation.eager:
            self._succeeds_itself = False
            member.rejoin("a static member came back: what its predecessor was to release is with nobody")
        self._metadata_changed(now)  # what changed since the deal

    def _set_pace(self, assignment: Assignment, now: float) -> None:
        """Rule 19: heartbeats are faster while a hand-over is pending. Eager members release all before they join."""
        counts = (self._cluster.partition_count(topic) or 0 for topic in self._membership.topics)
        known = None if self._eager_revocation.eager else sum(counts)
        self._heartbeats.synced(
            read_notice(assignment.userdata),
            known,
            has_some=bool(assignment.partitions or self.assignment.partitions),
            now=now,
        )

    def _leader_insists(self, now: float) -> bool:
        """Of an assignment with topics that we do not subscribe to: whether it came again to the same subscription.

        Then no join will mend it, and what fits is taken: else any leader could keep the whole group joining for ever.
        """
        if self._membership.topics != self._joined_topics:  # it changed during the join
            return False
        self._misfits += 1
        if self._misfits <= 1:
            self._backoff.failed(now)
            return False
        if self._misfits == 2:
            self._context.log(
                logging.WARNING,
                "the group's leader assigns topics that this member does not subscribe to; they are left out",
            )
        return True

    def _bounded(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        """Law 7."""
        unknown = [tp for tp in partitions if self._cluster.lacks(tp)]
        self._left_out = unknown[_MOST_UNKNOWN:]
        if not unknown:
            return partitions
        self._cluster.refresh()
        names = ", ".join(map(str, unknown[:_NAMED])) + (", ..." if len(unknown) > _NAMED else "")
        text = f"{len(unknown)} of the partitions that the group assigned are not known to exist: {names}"
        out = f"; {len(self._left_out)} of them are left out" if self._left_out else ""
        self._context.log(logging.WARNING, text + out)
        left_out = frozenset(self._left_out)
        return tuple(tp for tp in partitions if tp not in left_out)

    def _tell_assignor(self, partitions: Sequence[TopicPartition], now: float) -> bool:
        """False where it failed: the user hears of it (law 6)."""
        assignor = self._assignor()
        try:
            if assignor is not None:
                assignor.on_assignment(partitions, self._membership.generation)
        except Exception as error:  # noqa: BLE001 - an assignor may be the user's own code
            self._ends.fail(error, now)
            return False
        return True

    def _assignor(self) -> Assignor | None:
        return next((each for each in self._assignors if each.name == self._protocol), None)

    def _metadata_changed(self, now: float) -> None:
        """A leader answers for the group's partitions: when their number changes, it joins again."""
        if self._leader_assignment is not None and self._membership.stable and self._leader_assignment.outdated():
            self._membership.rejoin("the partitions of the group's topics changed")
        elif self._left_out and self._membership.stable and not self._cluster.lacks(self._left_out[0]):
            self._membership.rejoin("partitions that were assigned, and were not known, are there now")

    # -- what goes wrong

    def _request_failed(self, result: object, now: float) -> None:
        error = result if isinstance(result, Exception) else TypeError(f"unexpected answer {type(result)}")
        if not isinstance(error, KafkaError) or not error.retriable:
            self._ends.fail(error, now)
            return
        self._backoff.failed(now)
        self._restart()
        self._coordinator.lost(error)

    def _refused(self, what: str, code: int, now: float) -> None:
        """An error code on Join or Sync (Java's table)."""
        self._context.log(logging.INFO, f"{what} was answered with {name_of_code(code)}")
        if code == UNKNOWN_MEMBER_ID:
            self._follow("id", now)
            self._ends.lost(f"UNKNOWN_MEMBER_ID on {what}", now, forget_id=True)
        elif code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
            self._follow("rebalance", now)
            self._restart()
        elif error_for_code(code).retriable:
            self._backoff.failed(now)
            self._restart()
            if code in MOVED:
                self._coordinator.lost(error_for_code(code))
        elif code == INCONSISTENT_GROUP_PROTOCOL and what == "JoinGroup":
            self._learn_what_the_group_uses(now)
        else:
            self._ends.fail(error_for_code(code, f"{what} of group {self._config.group_id!r}: error code {code}"), now)

    def _learn_what_the_group_uses(self, now: float) -> None:
        """Until that is answered no other join is sent, as if this one were still under way."""
        number, names = self._membership.number, [each.name for each in self._assignors]
        self._membership.requesting = True

        def learnt(error: KafkaError, then: float) -> None:
            if number == self._membership.number:
                self._membership.requesting = False
                self._context.touch()
                self._ends.fail(error, then)

        ask(self._coordinator, self._config.group_id or "", names, learnt, now)

    def _follow(self, what: str, now: float) -> None:
        """Law 4."""
        if what in self._repeated:
            self._backoff.failed(now)
        self._repeated.add(what)

    def commit_refused(self, now: float) -> None:
        """A commit asks for a join: at once, unless another one did moments ago."""
        if now > self._commit_refused_at + self._config.heartbeat_interval:
            self._commit_backoff.succeeded()
        else:
            self._commit_backoff.failed(now)
        self._commit_refused_at = now

    def _restart(self) -> None:
        """Law 1: at Join, with what was kept."""
        self._leader_assignment = None
        self._membership.wants_join = True
        if self._membership.state is GroupState.COMPLETING_REBALANCE:
            self._membership.move(GroupInput.RESTART)
