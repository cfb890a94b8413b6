"""A classic member of the group: join, sync, heartbeat, leave (docs/rebalance.md; tables in `core.group.membership`).

Laws
1. A membership is lost by UNKNOWN_MEMBER_ID, by ILLEGAL_GENERATION while no rebalance is under way, by fencing, and
   by an application that does not poll within max_poll_interval. Then every partition is lost.
2. REBALANCE_IN_PROGRESS and a coordinator that moves keep the membership: join again, listing what is held.
3. A join lists everything held as owned, delayed and completing partitions too, with the joined generation.
4. An answer that was sent for under an older membership is ignored.
5. Heartbeats go on in every state that has a generation, whatever the application does.
6. The lease ends session_timeout after the *sending* of the last heartbeat that was answered. A join or sync that is
   pending renews it, as long as this thread is never away for that long and heartbeats do not fail. An expired lease is
   not a loss: the next answer decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from instride.core.assignors.api import Assignor
from instride.core.events import ErrorRaised, LeaseRenewed
from instride.core.group.membership import GroupInput, GroupState, next_group_state
from instride.core.lease import Lease
from instride.core.network.book import Book
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator
from instride.core.network.leading import Leading
from instride.errors import KafkaError, ProtocolError, error_for_code
from instride.wire import api
from instride.wire.consumer_protocol import Subscription, read_assignment, write_subscription

__all__ = ["Group"]

_COORDINATOR_LOAD_IN_PROGRESS = 14
_ILLEGAL_GENERATION = 22
_UNKNOWN_MEMBER_ID = 25
_REBALANCE_IN_PROGRESS = 27
_MEMBER_ID_REQUIRED = 79
_MOVED = frozenset({15, 16})
# A join is answered when the slowest member has joined; the broker's own timer may be later than ours by this.
_JOIN_GRACE = 5.0


class Group:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        coordinator: Coordinator,
        assignors: tuple[Assignor, ...],
        lease: Lease,
    ) -> None:
        self._context = context
        self._config = context.config
        self._cluster = cluster
        self._coordinator = coordinator
        self._assignors = assignors
        self._lease = lease
        self._backoff = context.backoff()
        self.book: Book
        self.commits_held_back: Callable[[], bool] = lambda: False
        self.state = GroupState.UNJOINED
        self.topics: frozenset[str] = frozenset()
        self.generation = -1
        self.member_id = ""
        self.syncs = 0
        self._reason = "subscribe"
        self._rejoin = False
        self._requesting = False  # a Join or Sync is under way
        self._membership = 0  # rises whenever a membership ends: older answers are stale
        self._leading: Leading | None = None
        self._protocol = ""
        self._claimed: frozenset[object] = frozenset()
        self._joined_topics: frozenset[str] = frozenset()
        self._last_polled = float("inf")
        self._waits_for_poll = False
        self._heartbeat_due = 0.0
        self._heartbeat_flying = False
        self._unheard = False  # the last heartbeat had no answer
        self._alive_at = float("-inf")
        self._last_join = float("-inf")
        self._told_to_rejoin = False
        self._mixed = False
        self.failed: Exception | None = None
        cluster.on_update.append(self._metadata_changed)

    # -- what others ask

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

    def may_commit(self, now: float) -> bool:
        if not self.topics:
            return True  # assign(): committed without a membership
        return self.generation >= 0 and not self.sync_pending and self._lease.holds(now)

    def group_topics(self) -> frozenset[str]:
        """Topics whose metadata the leader needs besides its own."""
        return self._leading.topics if self._leading is not None else frozenset()

    # -- what the application says

    def subscribe(self, topics: frozenset[str], now: float) -> None:
        first = not self.topics
        changed = topics != self.topics
        self.topics = topics
        self.failed = None
        self._last_polled = now
        if changed and not first:
            self.book.ask_for_topics_outside(topics, now)
            self.rejoin("the subscription changed")
        self._context.touch()

    def polled(self, now: float) -> None:
        self._last_polled = now
        if self._waits_for_poll:
            self._waits_for_poll = False
            self._context.touch()

    def taken(self, generation: int) -> None:
        """T's PARTITIONS_ASSIGNED."""
        if generation == self.generation:
            self._move(GroupInput.TAKEN)

    def unsubscribed(self) -> None:
        self.topics = frozenset()
        self._rejoin = False

    def rejoin(self, reason: str) -> None:
        """A new join is needed; several needs share one."""
        self._rejoin = True
        self._reason = reason
        self._context.touch()

    def commit_refused(self, code: int, now: float) -> None:
        """A commit's answer told of the group before a heartbeat did."""
        if not self.topics:
            return  # assign(): there is no membership to lose
        if code == _REBALANCE_IN_PROGRESS:
            if self.stable:
                self.rejoin("a commit was answered with REBALANCE_IN_PROGRESS")
        elif code == _UNKNOWN_MEMBER_ID:
            self._lost("UNKNOWN_MEMBER_ID on a commit", now, forget_id=True)
        elif code == _ILLEGAL_GENERATION:
            self._lost("ILLEGAL_GENERATION on a commit", now)
        else:
            self._fail(error_for_code(code), now)

    # -- time

    def poll(self, now: float) -> float:
        if not self.topics or self.failed is not None:
            return float("inf")
        if now - self._last_polled > self._config.max_poll_interval and not self._waits_for_poll:
            self._poll_interval_exceeded(now)
        self._update_lease(now)
        if self._waits_for_poll:
            return float("inf")  # a time that is past would keep the thread awake
        exceeded_at = self._last_polled + self._config.max_poll_interval + 0.001
        if not self._coordinator.need():
            return exceeded_at
        # While a Join or Sync is pending the lease is renewed from turn to turn (law 6): so there must be turns.
        renew_at = now + self._config.session_timeout / 3 if self._request_pending else float("inf")
        return min(exceeded_at, renew_at, self._poll_join(now), self._poll_heartbeat(now))

    def _poll_join(self, now: float) -> float:
        if self._requesting:
            return float("inf")
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._try_sync(now)
            return float("inf")
        if not self._wants_to_join():
            return float("inf")
        ready_at = max(self._backoff.ready_at, self._spaced(now))
        if now < ready_at:
            return ready_at
        self._send_join(now)
        return float("inf")

    def _wants_to_join(self) -> bool:
        if self.book.draining():
            return False
        if self.book.leaving and not (self.generation >= 0 and self.commits_held_back()):
            return False  # leaving: a join is sent only where a commit can be sent in no other way
        return self._rejoin or self.state in (GroupState.UNJOINED, GroupState.PREPARING_REBALANCE)

    def _spaced(self, now: float) -> float:
        """In a mixed group every heartbeat asks for a rejoin while anything is pending: follow it well spaced, which
        re-arms the broker's timer, or the two would spin (docs/protocol-facts.md)."""
        if not (self._mixed and self._told_to_rejoin and self.book.anything_pending()):
            return now
        return self._last_join + self._config.max_poll_interval / 3

    # -- joining

    def _send_join(self, now: float) -> None:
        self._move(GroupInput.JOIN)
        self._requesting, self._rejoin = True, False
        claimed = self.book.claimed()
        self._claimed, self._joined_topics = frozenset(claimed), self.topics
        self._last_join = now
        request = api.JoinGroup(
            group_id=self._config.group_id or "",
            session_timeout=self._config.session_timeout,
            rebalance_timeout=self._config.max_poll_interval,
            member_id=self.member_id,
            protocols=tuple(
                api.GroupProtocol(name=each.name, metadata=self._metadata(each)) for each in self._assignors
            ),
            reason=self._reason,
        )
        self._context.log(logging.INFO, f"joining group {self._config.group_id!r}: {self._reason}")
        membership = self._membership
        self._coordinator.send_join(
            request,
            lambda result, then: self._joined(membership, result, then),
            now,
            timeout=max(self._config.request_timeout, self._config.max_poll_interval + _JOIN_GRACE),
        )

    def _metadata(self, assignor: Assignor) -> bytes:
        """Law 3. Two places for the generation: leaders before 3.4 read only the assignor's own (protocol-facts)."""
        owned = self.book.claimed()
        generation = self.generation if owned else -1
        userdata = assignor.subscription_userdata(self.topics, owned=owned, generation=generation)
        return write_subscription(
            Subscription(topics=tuple(self.topics), owned=tuple(owned), generation=generation, userdata=userdata)
        )

    def _joined(self, membership: int, result: api.Answer | Exception, now: float) -> None:
        if membership != self._membership:
            return
        self._requesting = False
        self._context.touch()
        if not isinstance(result, api.JoinGroupAnswer):
            self._request_failed(result, now)
        elif result.error == 0:
            self._join_answered(result, now)
        elif result.error == _MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            self.rejoin(self._reason)
        else:
            self._refused("JoinGroup", result.error, now)

    def _join_answered(self, answer: api.JoinGroupAnswer, now: float) -> None:
        self._backoff.succeeded()
        self._mixed = self._told_to_rejoin and answer.generation == self.generation
        self._told_to_rejoin = False
        self.generation, self.member_id = answer.generation, answer.member_id
        self._protocol = answer.protocol or ""
        self._heartbeat_due = now + self._config.heartbeat_interval
        self._leading = Leading(answer, self._cluster) if answer.leader == answer.member_id else None
        self._move(GroupInput.JOINED)
        role = "leader" if self._leading else "member"
        self._context.log(
            logging.INFO, f"joined group {self._config.group_id!r} in generation {self.generation} as {role}"
        )

    def _try_sync(self, now: float) -> None:
        assignments: dict[str, bytes] = {}
        if self._leading is not None:
            if not self._leading.ready():
                return
            made = self._make_assignments(self._leading, now)
            if made is None:
                return
            assignments = made
        self._requesting = True
        request = api.SyncGroup(
            group_id=self._config.group_id or "",
            generation=self.generation,
            member_id=self.member_id,
            protocol=self._protocol,
            assignments=assignments,
        )
        membership = self._membership
        self._coordinator.send_join(
            request,
            lambda result, then: self._synced(membership, now, result, then),
            now,
            timeout=max(self._config.request_timeout, self._config.max_poll_interval + _JOIN_GRACE),
        )

    def _make_assignments(self, leading: Leading, now: float) -> dict[str, bytes] | None:
        assignor = self._assignor()
        if assignor is None:
            self._fail(
                ProtocolError(f"the group chose assignor {self._protocol!r}, which this member did not offer"), now
            )
            return None
        try:
            return leading.assign(assignor)
        except Exception as error:  # noqa: BLE001 - an assignor may be the user's own code
            self._fail(error, now)
            return None

    def _synced(self, membership: int, sent: float, result: api.Answer | Exception, now: float) -> None:
        if membership != self._membership:
            return
        self._requesting = False
        self._context.touch()
        if not isinstance(result, api.SyncGroupAnswer):
            self._request_failed(result, now)
        elif result.error == 0:
            self._sync_answered(result, sent, now)
        else:
            self._refused("SyncGroup", result.error, now)

    def _sync_answered(self, answer: api.SyncGroupAnswer, sent: float, now: float) -> None:
        self._backoff.succeeded()
        self._alive_at = sent
        self.syncs += 1
        self._move(GroupInput.SYNCED)
        try:
            partitions = read_assignment(answer.assignment).partitions if answer.assignment else ()
        except ProtocolError as error:
            self._fail(error, now)
            return
        if any(tp.topic not in self.topics for tp in partitions):
            if self.topics == self._joined_topics:
                self._backoff.failed(now)  # a leader that errs each time must not make us spin
            self.rejoin("the assignment does not fit the subscription, which changed during the join")
            return
        assignor = self._assignor()
        if assignor is not None:
            assignor.on_assignment(partitions, self.generation)
        target = frozenset(partitions)
        self.book.apply(target, self.generation, now)
        if self._claimed - self.book.held.keys() - target:
            self.rejoin("a revoke was completed during the join")
        self._metadata_changed(now)  # what changed since the deal

    def _assignor(self) -> Assignor | None:
        return next((each for each in self._assignors if each.name == self._protocol), None)

    # -- heartbeats

    def _poll_heartbeat(self, now: float) -> float:
        if self._heartbeat_flying or self.generation < 0:
            return float("inf")
        if now < self._heartbeat_due:
            return self._heartbeat_due
        self._heartbeat_flying = True
        self._heartbeat_due = now + self._config.heartbeat_interval
        request = api.Heartbeat(
            group_id=self._config.group_id or "", generation=self.generation, member_id=self.member_id
        )
        stamp = (self._membership, self.generation)
        # One that is stuck must leave time for another before the session ends.
        timeout = min(self._config.request_timeout, self._config.session_timeout / 2)
        self._coordinator.send(request, lambda result, then: self._beat(stamp, now, result, then), now, timeout=timeout)
        return float("inf")

    def _beat(self, stamp: tuple[int, int], sent: float, result: api.Answer | Exception, now: float) -> None:
        self._heartbeat_flying = False
        self._context.touch()
        if isinstance(result, Exception):
            self._unheard = stamp[0] == self._membership
            self._coordinator.lost(result)
            return
        if not isinstance(result, api.HeartbeatAnswer) or stamp[0] != self._membership:
            return
        self._unheard = False
        error = result.error
        harmless = error == _ILLEGAL_GENERATION and (self.rebalancing or stamp[1] != self.generation)
        if error in (0, _REBALANCE_IN_PROGRESS) or harmless:
            self._alive_at = max(self._alive_at, sent)
        if error == _REBALANCE_IN_PROGRESS and self.stable and stamp[1] == self.generation:
            self._told_to_rejoin = True
            self.rejoin("the group is rebalancing")
        elif error not in (0, _REBALANCE_IN_PROGRESS) and not harmless:
            self._beat_refused(error, now)

    def _beat_refused(self, error: int, now: float) -> None:
        if error in (_UNKNOWN_MEMBER_ID, _ILLEGAL_GENERATION):
            name = "UNKNOWN_MEMBER_ID" if error == _UNKNOWN_MEMBER_ID else "ILLEGAL_GENERATION"
            self._lost(f"{name} on a heartbeat", now, forget_id=error == _UNKNOWN_MEMBER_ID)
        elif error in _MOVED:
            self._coordinator.lost(error_for_code(error))
        elif error_for_code(error).fatal:
            self._fail(error_for_code(error), now)

    def _update_lease(self, now: float) -> None:
        """Law 6. What is pending counts only from turn to turn, and while heartbeats get through: a process that was
        suspended, or is cut off, does not know whether it still is a member, though its Join or Sync looks pending."""
        before = self._lease.expires
        if self.generation < 0:
            self._lease.expires = float("inf")
        elif self._request_pending and not self._unheard and self._lease.holds(now):
            self._lease.expires = now + self._config.session_timeout
        else:
            self._lease.expires = self._alive_at + self._config.session_timeout
        if before < now <= self._lease.expires:
            self._context.deliver(LeaseRenewed())

    @property
    def _request_pending(self) -> bool:
        return self.sync_pending or (self._requesting and self.rebalancing)

    # -- ends

    def leave(
        self, on_done: Callable[[Exception | None], None], now: float, *, reason: str, timeout: float | None = None
    ) -> None:
        """Tell the group; `on_done` hears in any case, and of what went wrong. The membership ends at once."""
        member_id = self.member_id
        self._end_membership(now, forget_id=True)
        if not member_id or not self._coordinator.known:
            on_done(None)
            return
        request = api.LeaveGroup(group_id=self._config.group_id or "", member_id=member_id, reason=reason)

        def done(result: api.Answer | Exception, _now: float) -> None:
            on_done(result if isinstance(result, Exception) else None)

        self._coordinator.send(request, done, now, timeout=timeout)

    def _poll_interval_exceeded(self, now: float) -> None:
        self._context.log(
            logging.WARNING,
            f"poll was not called for max_poll_interval ({self._config.max_poll_interval} s): leaving the group; all "
            "partitions are lost. Process less per poll, or raise max_poll_interval",
        )
        self._waits_for_poll = True
        self.book.lose_all(now)
        self.leave(lambda _error: None, now, reason="max_poll_interval exceeded")

    def _lost(self, why: str, now: float, *, forget_id: bool = False) -> None:
        """Law 1."""
        self._context.log(logging.WARNING, f"membership of group {self._config.group_id!r} is lost: {why}")
        self.book.lose_all(now)
        self._end_membership(now, forget_id=forget_id)
        self._reason = f"rejoining after {why}"

    def _end_membership(self, now: float, *, forget_id: bool) -> None:
        self._membership += 1
        if self._requesting:
            self._coordinator.drop_join(now, "the membership has ended")
        self._requesting = self._rejoin = False
        self._told_to_rejoin = self._mixed = self._unheard = False
        self.generation = -1
        if forget_id:
            self.member_id = ""
        self._leading = None
        self._move(GroupInput.LOST)
        self._lease.expires = float("inf")

    def _fail(self, error: Exception, now: float) -> None:
        """This group cannot be joined: the user hears of it, and a new subscribe tries again."""
        self.failed = error
        self.book.lose_all(now)
        if self.generation >= 0:
            self.leave(
                lambda _error: None, now, reason=f"giving up: {type(error).__name__}"
            )  # nobody shall wait for us
        else:
            self._end_membership(now, forget_id=False)
        self._context.deliver(ErrorRaised(error=error))

    def _request_failed(self, result: object, now: float) -> None:
        error = result if isinstance(result, Exception) else TypeError(f"unexpected answer {type(result)}")
        if not isinstance(error, KafkaError) or not error.retriable:
            self._fail(error, now)
            return
        self._backoff.failed(now)
        self._restart()
        self._coordinator.lost(error)

    def _refused(self, what: str, code: int, now: float) -> None:
        """An error code on Join or Sync (Java's table)."""
        self._context.log(logging.INFO, f"{what} was answered with error code {code}")
        if code == _UNKNOWN_MEMBER_ID:
            self._lost(f"UNKNOWN_MEMBER_ID on {what}", now, forget_id=True)
        elif code in (_REBALANCE_IN_PROGRESS, _ILLEGAL_GENERATION):
            self._restart()
        elif code in _MOVED or code == _COORDINATOR_LOAD_IN_PROGRESS:
            self._backoff.failed(now)
            self._restart()
            if code in _MOVED:
                self._coordinator.lost(error_for_code(code))
        else:
            self._fail(error_for_code(code, f"{what} of group {self._config.group_id!r}: error code {code}"), now)

    def _restart(self) -> None:
        """Law 2: at Join, with what was kept."""
        self._leading = None
        self._rejoin = True
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._move(GroupInput.RESTART)

    def _metadata_changed(self, now: float) -> None:
        """A leader answers for the group's partitions: when their number changes, it joins again."""
        if self._leading is not None and self.stable and self._leading.outdated():
            self.rejoin("the partitions of the group's topics changed")

    def _move(self, event: GroupInput) -> None:
        self.state = next_group_state(self.state, event)
        self._context.touch()
