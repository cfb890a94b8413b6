"""A classic member of the group, whole: all that changes its state is in this file (docs/rebalance.md).

In this order, each with its laws: the table of the member's states; `Membership`, what the member is to its group at
this moment, and the one writer of the lease; `Group`, what the other parts want of it and how its membership ends;
`Joining`, from the need for a rebalance to an assignment; `EagerRevocation`; `LeaderAssignment`; `Heartbeats` and their
`Pace`; `Leaving`; and the error where a group has no assignor in common. Nothing here is
thread-safe: the network machine owns it.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final

from instride._core.assignors.assignor import Assignor, ClusterView, MemberSubscription, checked, no_partitions
from instride._core.events import LeaseRenewed
from instride._core.network.actions import PerformAssignment, assignor_failure
from instride._core.network.assignment import MemberAssignment
from instride._core.network.cluster import Cluster
from instride._core.network.connections import Backoff
from instride._core.network.context import Context
from instride._core.network.coordinator import Coordinator
from instride._core.ownership import IllegalTransitionError, RebalanceProtocol
from instride._core.session_lease import Lease
from instride._wire import api
from instride._wire.consumer_protocol import (
    MOST_NAMED,
    Assignment,
    SharedTopics,
    Subscription,
    TooManyNamedError,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from instride._wire.group_notice import GroupNotice, read_notice, write_notice
from instride.errors import (
    AssignorError,
    InconsistentGroupProtocolError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    error_for_code,
)
from instride.errors._quoting import first_of
from instride.errors.broker import name_of_code
from instride.errors.codes import COORDINATOR_MOVED, ErrorCode
from instride.records import TopicPartition

__all__ = [
    "Group",
    "GroupInput",
    "GroupState",
    "Heartbeats",
    "Membership",
    "TRANSITIONS",
    "next_group_state",
]


class GroupState(Enum):
    """The states of a member (KIP-429, threading refactor). The table below is the machine.

    Laws
    1. UNJOINED has no membership, or has lost it. PREPARING_REBALANCE has a Join in flight or about to be sent.
       COMPLETING_REBALANCE has joined and waits for the Sync. ASSIGNING_PARTITIONS has an assignment that the
       application has not taken yet. STABLE: it has.
    2. A rebalance may start in ASSIGNING_PARTITIONS: an application that does not poll holds up nobody.
    3. Cooperative: a join does not wait for a revoke. Eager: PREPARING_REBALANCE is entered when all are revoked.
    """

    UNJOINED = "no membership"
    PREPARING_REBALANCE = "joining"
    COMPLETING_REBALANCE = "joined, waiting for the assignment"
    ASSIGNING_PARTITIONS = "assigned, the application has not taken it yet"
    STABLE = "assigned and taken"


class GroupInput(Enum):
    JOIN = "a join is to be sent"
    JOINED = "the JoinGroup response has no error"
    SYNCED = "the SyncGroup response has no error"
    RESTART = "the sync was refused, or the coordinator moved: join again, membership kept"
    TAKEN = "PARTITIONS_ASSIGNED: the application took the assignment"
    LOST = "the membership is lost or was left"


_S = GroupState
_I = GroupInput

TRANSITIONS: Final[dict[tuple[GroupState, GroupInput], GroupState]] = {
    (_S.UNJOINED, _I.JOIN): _S.PREPARING_REBALANCE,
    (_S.UNJOINED, _I.LOST): _S.UNJOINED,
    (_S.PREPARING_REBALANCE, _I.JOIN): _S.PREPARING_REBALANCE,
    (_S.PREPARING_REBALANCE, _I.JOINED): _S.COMPLETING_REBALANCE,
    # The application may take an assignment while the next rebalance is under way already (law 2).
    (_S.PREPARING_REBALANCE, _I.TAKEN): _S.PREPARING_REBALANCE,
    (_S.PREPARING_REBALANCE, _I.LOST): _S.UNJOINED,
    (_S.COMPLETING_REBALANCE, _I.SYNCED): _S.ASSIGNING_PARTITIONS,
    (_S.COMPLETING_REBALANCE, _I.RESTART): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _I.TAKEN): _S.COMPLETING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _I.LOST): _S.UNJOINED,
    (_S.ASSIGNING_PARTITIONS, _I.JOIN): _S.PREPARING_REBALANCE,
    (_S.ASSIGNING_PARTITIONS, _I.TAKEN): _S.STABLE,
    (_S.ASSIGNING_PARTITIONS, _I.LOST): _S.UNJOINED,
    (_S.STABLE, _I.JOIN): _S.PREPARING_REBALANCE,
    (_S.STABLE, _I.TAKEN): _S.STABLE,
    (_S.STABLE, _I.LOST): _S.UNJOINED,
}


def next_group_state(state: GroupState, event: GroupInput) -> GroupState:
    """The state after the event. Raises `IllegalTransitionError` where the table has no row."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"group: {event.name} in {state.name}") from None


# What stands as an error (`Standing`): that the group refuses us; that it refuses heartbeats alone.
_REFUSED = "group"
_HEARTBEATS: Final = "heartbeats"
# This part of max_poll_interval after a poll the next one is told at once.
_POLL_MAY_WAIT: Final = 0.05
_FIRST_TRY: Final = 1.0
_LONGEST: Final = 60.0
# Our own settings, or another member of our name: what the broker says will not change.
_FINAL_CODES: Final = frozenset({ErrorCode.INVALID_GROUP_ID, ErrorCode.FENCED_INSTANCE_ID})
# A join has its response when the slowest member has joined; the broker's own timer may be later than ours by this.
_JOIN_GRACE = 5.0
# Partitions that a leader assigned and that are not known to exist (law 7 of `Joining`).
_MOST_UNKNOWN: Final = 1000
# What UNKNOWN_SERVER_ERROR may mean of a Join or Sync, after the error.
_TOO_LARGE: Final = (
    ". The coordinator's log says why. If it could not write the group since the record is too large{}: raise"
    " message.max.bytes of the brokers (or max.message.bytes of __consumer_offsets), or let members subscribe to fewer"
    " topics (one pattern may match very many), list shorter user data, or be fewer"
)
# Why a leader sees nothing of a topic of other members: what may help.
_MAY_HELP: Final[dict[int, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        ". Grant this consumer Describe on each topic that any member of the group reads: any member may lead"
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        ". It does not exist; or this consumer may not see it: then grant it Describe, since any member may lead"
    ),
}
# Seconds for which a leader waits for metadata of topics that were missing when they were requested last.
_LOOKS_AGAIN: Final = 2.0
# Topics of other members, of which a leader requests the metadata.
_MOST_FOREIGN: Final = 30_000
# Topics and owned partitions that all members of a group together name: a leader reads no more.
_MOST_HEARD: Final = 300_000
# Seconds after which the user is told that an assignor takes long.
_LONG: Final = 10.0
# Heartbeats while a hand-over may be pending, in seconds: of a member with partitions, of one without (`Pace`).
_FAST = 0.25
_SURPLUS = 1.0
_MOST_A_SECOND = 450  # below 500: what the members of a group send is not exactly even
# For so long after a Sync that brought a notice, and after one that brought none.
_FAST_FOR = 30.0
_FAST_FOR_UNTOLD = 5.0
# The responses to LeaveGroup after which the group waits for this member no more.
_LEFT = (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
_OURS: Final = "consumer"
_OF_ANOTHER_TYPE: Final = (
    "The coordinator knows no classic group of that name. It may be of another type (a share or streams group, or one"
    " of KIP-848's protocol whose classic members use another assignor): choose another group_id. Or its members have"
    " just left: then the next try joins it."
)
_NAMED: Final = 5


# -- what the member is at this moment


class Membership:
    """What this member is to its group at this moment: shared by the parts that join, beat and leave.

    Laws
    1. `number` rises whenever a membership ends: a response to a request of an older membership is ignored.
    2. A need for a new join is kept until a join is sent; several needs share one. How long revokes that complete
       shortly after each other are gathered for one join: `assignment.py`, law 6.
    3. The lease ends session_timeout after the *sending* of the last heartbeat whose response was good. A join or sync
       that is pending at the broker renews it, as long as this thread is never away for that long and heartbeats
       neither fail nor are refused. An expired lease is not a loss: the next response decides. Without a membership
       there is no lease, since the application may not have heard of the loss yet; after an unsubscribe nothing is at
       stake. It ends at the latest max_poll_interval after the last poll: the application of a process that was
       suspended may poll before this thread says that all is lost.
    4. It ends before a rebalance can end without this member (`_rebalance_until`). A rebalance may begin as soon as the
       broker has said that there is none, and the broker waits for this member's Join for max_poll_interval at least,
       heartbeats or not. For so long, too, from the join's end, it waits for the Sync: a leader may have yet to assign.
       A Join or Sync is taken to be there once a heartbeat that was sent after it has a response: then it waits with
       those of the others, for as long as that takes, and each such response renews the lease.

    id_used: a Join was sent with the member id, so the group may count us as a member by it.
    requesting: a Join or Sync is under way. rejoin_requested: by a heartbeat or commit, since the last join.
    alive_at: when the last heartbeat that had a response was sent. well_at: the same, of those whose response named no
    rebalance; or the end of a join. unheard: the last one had no response, or a refusal. shortest: of leases, from the
    sending of the last sign of life.
    """

    def __init__(self, context: Context, coordinator: Coordinator, lease: Lease) -> None:
        self._context = context
        self._coordinator = coordinator
        self._lease = lease
        self._session_timeout = context.config.session_timeout
        self._max_poll_interval = context.config.max_poll_interval
        self.shortest = min(self._session_timeout, self._max_poll_interval)
        self.subscribed = False
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
        self._sent_at = float("inf")
        self._sync_until = float("inf")
        self._ended = False

    @property
    def polls_until(self) -> float:
        """When the next poll is too late, unless there is one before."""
        return self.last_polled + self._max_poll_interval

    @property
    def sync_pending(self) -> bool:
        """From the response to the join until the response to the sync the broker takes no commit."""
        return self.state is GroupState.COMPLETING_REBALANCE

    @property
    def rebalancing(self) -> bool:
        return self.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)

    @property
    def stable(self) -> bool:
        return self.state in (GroupState.ASSIGNING_PARTITIONS, GroupState.STABLE)

    @property
    def request_pending(self) -> bool:
        """A Join or Sync is. A leader that has yet to assign has sent no Sync: nothing is pending at the broker."""
        return self.requesting and self.rebalancing

    @property
    def request_in_flight(self) -> bool:
        """A Join or Sync is on its connection. The broker ends no session while it owes that response."""
        return self.request_pending and self._coordinator.join_in_flight()

    @property
    def between_generations(self) -> bool:
        return self.state is GroupState.PREPARING_REBALANCE or self.request_pending

    def lease_holds(self, now: float) -> bool:
        return self._lease.holds(now)

    def may_commit(self, now: float) -> bool:
        if not self.subscribed:
            return True  # assign(): committed without a membership
        return self.generation >= 0 and not self.sync_pending and self._lease.holds(now)

    def heard(self, sent: float, *, well: bool) -> None:
        """The broker took us for a member when it responded to what was `sent` then. well: and named no rebalance."""
        # What had a response meanwhile may be younger: a sync waits for the leader.
        self.alive_at = max(self.alive_at, sent)
        self._context.standing.passed(_HEARTBEATS)
        if well:
            self.well_at = max(self.well_at, sent)

    def told_to_rejoin(self, reason: str) -> None:
        """The broker says that a rebalance is under way."""
        self.rejoin_requested = True
        self.rejoin(reason)

    def requests(self) -> None:
        """A Join or Sync is to be sent."""
        self.requesting, self._sent_at = True, float("inf")

    def note_sent(self) -> None:
        """It was put on its connection."""
        self._sent_at = self._context.now

    def joined(self, response: api.JoinGroupResponse, sent: float) -> None:
        """sent: when the Join was."""
        self.rejoin_requested = False
        # The rebalance ended after that, and the next one begins later.
        self.well_at = max(self.well_at, self.alive_at, sent)
        self._sync_until = self.well_at + self._max_poll_interval
        self.generation, self.member_id, self.id_used = response.generation, response.member_id, True
        self.move(GroupInput.JOINED)

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
        self._ended = True
        self._context.standing.passed(_HEARTBEATS)
        self.requesting = self.wants_join = self.rejoin_requested = self.unheard = False
        self.generation = -1
        if forget_id:
            self.member_id, self.id_used = "", False
        self.move(GroupInput.LOST)

    def update_lease(self, now: float) -> None:
        """Laws 3 and 4."""
        before = self._lease.expires
        if self._ended and self.generation >= 0:
            self._ended = False
            self._lease.number += 1
        if not self.subscribed:
            self._lease.expires = float("inf")  # no group decides what is read
        elif self.generation < 0:
            # The application may not have heard of the loss yet, and polls must return nothing until it has.
            self._lease.expires = float("-inf")
        else:
            self._lease.expires = min(self._session_until(now), self._rebalance_until(), self.polls_until)
        if float("-inf") < before < now <= self._lease.expires < float("inf"):
            self._context.deliver(LeaseRenewed())

    def _session_until(self, now: float) -> float:
        """Law 3. What is pending counts only from turn to turn, and while heartbeats get through: a process that was
        suspended, or is cut off, does not know whether it still is a member, though its Join or Sync looks pending."""
        if self.request_in_flight and not self.unheard and self._lease.holds(now):
            # The broker does not end the session of a member whose Join or Sync it has not responded to.
            return now + self._session_timeout
        # The broker counts from the heartbeat's arrival, which is later than its sending: so ours ends first.
        return self.alive_at + self._session_timeout

    def _rebalance_until(self) -> float:
        """Law 4."""
        if self.request_in_flight and self.alive_at > self._sent_at:
            return self.alive_at + self._max_poll_interval
        return self._sync_until if self.sync_pending else self.well_at + self._max_poll_interval


# -- the member


class Group:
    """What others ask of the member, and how its membership ends.

    Laws
    1. A membership is lost by UNKNOWN_MEMBER_ID, by ILLEGAL_GENERATION while no rebalance is under way, by fencing, and
       by an application that does not poll within max_poll_interval. Then every partition is lost. A group that the
       broker does not know (GROUP_ID_NOT_FOUND) has no member of this id either; to a Join without one it is an error.
    2. Heartbeats go on whatever the application does; only max_poll_interval bounds it.
    3. A dynamic member that ends its membership sends LeaveGroup; a static one (KIP-345) does not, unless it is told
       to: it comes back, or its session ends. No LeaveGroup names an id with which no Join was sent: it would start a
       rebalance.
    4. A group that refuses us is joined again, after 1 s, then ever longer, up to a minute, where that may help
       (`_may_pass`); its error is raised again while it stands. Else a new subscription tries again.
    """

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        coordinator: Coordinator,
        *,
        membership: Membership,
        assignment: MemberAssignment,
        commits_deferred: Callable[[], bool],
        assignors: tuple[Assignor, ...],
        protocol: RebalanceProtocol,
    ) -> None:
        self._context = context
        self._protocol = protocol
        self._config = context.config
        self._coordinator = coordinator
        self._assignment = assignment
        self._membership = membership
        self._heartbeats = Heartbeats(context, coordinator, membership, self)
        self._leaving = Leaving(context, coordinator)
        self._joining = Joining(
            context,
            cluster,
            coordinator,
            membership=membership,
            assignment=assignment,
            heartbeats=self._heartbeats,
            eager_revocation=EagerRevocation(context, membership, assignment, protocol),
            commits_deferred=commits_deferred,
            assignors=assignors,
            group=self,
        )
        self._waits_for_poll = False
        self.failed: Exception | None = None
        self._refusals = Backoff(_FIRST_TRY, _LONGEST, context.random)

    # -- what others ask

    @property
    def subscribed(self) -> bool:
        return self._membership.subscribed

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
    def reason(self) -> str:
        """Why it joins, or joined last."""
        return self._membership.reason or "a new membership"

    def group_topics(self) -> frozenset[str]:
        """Topics whose metadata the leader needs besides its own."""
        return self._joining.leader_topics

    # -- what the application says

    def subscribe(self, topics: frozenset[str], now: float) -> None:
        self._look_at_polls(now, now)
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
        self._membership.subscribed = True
        self._membership.topics = topics
        if changed and not first:
            if self._protocol is not RebalanceProtocol.EAGER:  # an eager member releases everything before the join
                self._assignment.request_revocation_outside(topics, now)
            self.rejoin("the subscription changed")
        self._context.touch()

    def polled(self, at: float, now: float) -> None:
        self._look_at_polls(at, now)  # after a suspension the poll may be heard of before the time is looked at
        self._membership.last_polled = at
        if self._waits_for_poll:
            self._waits_for_poll = False
            self._context.touch()

    @property
    def awaits_poll_at(self) -> float:
        """From when on a poll is to be told at once. An earlier one may wait for the next turn, which a member has
        before its lease ends: that of the next heartbeat, or of a response or its time-out."""
        if not self.subscribed:
            return float("inf")
        config = self._config
        most = config.max_poll_interval * _POLL_MAY_WAIT
        if self._waits_for_poll or config.max_poll_interval - most <= max(
            config.heartbeat_interval, config.request_timeout, config.session_timeout
        ):
            return float("-inf")
        return self._membership.last_polled + most

    def assignment_performed(
        self, action: PerformAssignment, result: Mapping[str, bytes] | Exception, now: float
    ) -> None:
        """The outcome of the action."""
        self._joining.assignment_performed(action, result, now)

    def taken(self, generation: int) -> None:
        """T's PARTITIONS_ASSIGNED."""
        # The assignment of an older generation may be taken when a newer one is on its way.
        if generation == self.generation:
            self._membership.move(GroupInput.TAKEN)

    def unsubscribed(self) -> None:
        self._membership.subscribed = False
        self.forgive()
        self._context.standing.passed("coordinator")
        self._membership.update_lease(self._context.now)
        self._membership.topics = frozenset()
        self._membership.wants_join = False

    def rejoin(self, reason: str) -> None:
        """A new join is needed; several needs share one."""
        self._membership.rejoin(reason)

    def enforce(self, reason: str) -> None:
        """The user wants a rebalance. Without a membership it is that of the next join anyway."""
        if self.subscribed and self.failed is None:
            self.rejoin(reason)

    def meaning(self, code: int, now: float) -> int:
        """`Joining`, law 8."""
        return self._joining.meaning(code, now)

    def commit_refused(self, code: int, now: float) -> int:
        """A commit's response told of the group before a heartbeat did. Returns the code that it is taken for."""
        if not self.subscribed:
            return code  # assign(): there is no membership to lose
        code = self.meaning(code, now)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            # While a join is under way the code says nothing new, and another join would begin one more rebalance.
            if self._membership.stable:
                self._joining.request_join(now)
                self._membership.told_to_rejoin("a commit's response was REBALANCE_IN_PROGRESS")
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.lost("UNKNOWN_MEMBER_ID on a commit", now, forget_id=True)
        # The id is kept, as in Java: with a new one, the group would wait for the old member until its session ends.
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self.lost("ILLEGAL_GENERATION on a commit", now)
        else:
            self.fail(error_for_code(code, f"a commit of group {self._config.group_id!r}: {name_of_code(code)}"), now)
        return code

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
        self._look_at_polls(now, now)
        self._membership.update_lease(now)
        if self._waits_for_poll:
            return float("inf")  # a time that is past would keep the thread awake
        # A poll at the very limit is in time, so the next look comes just after it (0.001 s below).
        exceeded_at = self._membership.polls_until
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
        # Before the request: its response may come much later, and concerns no membership any more.
        self._end_membership(now, forget_id=True)
        if not member_id or (instance is not None and not static_too):
            self._leaving.follow(on_done)
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

    def _look_at_polls(self, until: float, now: float) -> None:
        """All is lost if there was none in time (law 1)."""
        may_wait = not self.subscribed or self.failed is not None or self._waits_for_poll
        if may_wait or until <= self._membership.polls_until:
            return
        self._context.log(
            logging.WARNING,
            f"poll was not called for max_poll_interval ({self._config.max_poll_interval} s): leaving the group; all "
            "partitions are lost. Process less per poll, or raise max_poll_interval",
        )
        # No join before the next poll: the member would take partitions that nobody reads (KIP-62).
        self._waits_for_poll = True
        self._assignment.lose_all(now)
        self.leave(lambda _error: None, now, reason="max_poll_interval exceeded")

    def _end_membership(self, now: float, *, forget_id: bool) -> None:
        self._joining.end_membership(now, forget_id=forget_id)
        self._membership.update_lease(now)


def _may_pass(error: Exception) -> bool:
    """Whether joining again may help: not where it was the user's own code that failed."""
    own = not isinstance(error, KafkaError) or isinstance(error, AssignorError)
    return not own and getattr(error, "code", 0) not in _FINAL_CODES


# -- joining and syncing


class Joining:
    """Joining and syncing: from the need for a rebalance to an assignment (docs/rebalance.md, C).

    Laws
    1. REBALANCE_IN_PROGRESS and a coordinator that moves keep the membership: join again, listing what is owned.
    2. A join lists everything owned, delayed and completing partitions too, with the joined generation; also where
       nothing is owned.
    3. A response to a request of an older membership is ignored.
    4. If the broker refuses or gives a member id, or a rebalance overtook a Join or Sync, the member joins again at
       once; if either repeats, after a back-off. It grows until an assignment is taken on: a Join that succeeds
       before its Sync is refused is no success, but one more rebalance for the whole group.
    5. A static member that joins without its member id may get its predecessor's partitions without a rebalance. What
       the group requested of the predecessor, and the predecessor did not release, has no owner then. So the member
       joins once more, with metadata that has changed, and the leader assigns that. Eager members release everything
       before a join. But the group may not know that the successor subscribes to more topics (KAFKA-12759): an eager
       one joins once more where it has no partition of one of its topics.
    6. An assignor may be the user's own: what it raises, whenever it is called, ends the membership and is told. Its
       `assign` may take long. So it runs on another thread (`PerformAssignment`) while heartbeats go on; how long it
       takes is logged after 10 s, and again. If the membership ends meanwhile, its outcome is dropped. Two threads
       never use an assignor at the same time: a join, which needs its user data, waits for `assign` to end.
    7. Any leader may assign what does not exist, or does not yet as far as we know. That is told in one line; up to
       `_MOST_UNKNOWN` such partitions are taken on, the others are left out until they are there.
    8. A static member's Join without a member id fences whoever has its instance id when the Join arrives. One that was
       given up after it was sent, before its response was there, may arrive after a later one, and fence this very
       member. So a FENCED_INSTANCE_ID counts as UNKNOWN_MEMBER_ID once for each membership, or attempt at one, in which
       such Joins were sent, within request_timeout after the last Join of this one was given up: the member joins
       again, and the last Join takes the place. Any other one is due to another consumer, and is fatal (KIP-345). If
       more were excused, two consumers with one instance id would fence each other in turn, and no user would be told.
    9. A leader that sees nothing of a topic which only other members read (it may not describe it, say) assigns nothing
       of it, and they read nothing. That is one line for each topic and error, and no error here: all that this
       consumer reads goes on (rule 17).
    """

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        coordinator: Coordinator,
        *,
        membership: Membership,
        assignment: MemberAssignment,
        heartbeats: Heartbeats,
        eager_revocation: EagerRevocation,
        commits_deferred: Callable[[], bool],
        assignors: tuple[Assignor, ...],
        group: Group,
    ) -> None:
        self._context = context
        self._config = context.config
        self._cluster = cluster
        self._coordinator = coordinator
        self._membership = membership
        self._heartbeats = heartbeats
        self._eager_revocation = eager_revocation
        self._assignment = assignment
        self._commits_deferred = commits_deferred
        self._assignors = assignors
        self._group = group
        self._backoff = context.backoff()
        self._leader_assignment: LeaderAssignment | None = None
        # Of the group, if this member led it when it joined last: also while it joins again, so that what is known of
        # them, and since when they are missing, stays known.
        self._led: frozenset[str] = frozenset()
        self._assigning: _Assigning | None = None
        self._protocol = ""
        self._listed_as_owned: frozenset[object] = frozenset()
        self._joined_topics: frozenset[str] = frozenset()
        self._last_join = float("-inf")
        self._repeated: set[str] = set()
        self._left_out: list[TopicPartition] = []
        # How often in a row an assignment named topics that are not in the subscription with which we had joined.
        self._misfits = 0
        self._request_backoff = context.backoff()
        self._requested_at = float("-inf")
        self._succeeds_itself = False
        # Until when Joins without a member id that were given up may still arrive, by the number of the membership.
        self._late_until: dict[int, float] = {}
        # Whether the Join that is under way was put on its connection.
        self._join_sent = False
        self._mixed = False
        # Law 9: what was told, and why: topics and error codes.
        self._starved: dict[str, int] = {}
        cluster.on_update.append(self._metadata_changed)

    @property
    def leader_topics(self) -> frozenset[str]:
        """Topics whose metadata the leader needs besides its own."""
        return self._led

    def end_membership(self, now: float, *, forget_id: bool) -> None:
        """What is pending at the broker is not waited for; its response concerns nobody (law 3)."""
        requesting = self._membership.requesting
        self._membership.end(forget_id=forget_id)
        if requesting:
            self._coordinator.drop_join(now, "the membership has ended")
        self._eager_revocation.over()
        self._mixed = False
        self._leader_assignment = None
        self._led = frozenset()

    # -- when

    def poll(self, now: float) -> float:
        if self._membership.requesting:
            return float("inf")
        if self._assigning is not None:
            return self._tell_how_long(self._assigning, now)
        if self._membership.state is GroupState.COMPLETING_REBALANCE:
            return self._try_sync(now)
        if not self._wants_to_join() or not self._eager_revocation.done(now):
            return float("inf")
        ready_at = max(self._backoff.ready_at, self._request_backoff.ready_at, self._spaced(now))
        if now < ready_at:
            return ready_at
        self._send_join(now)
        return float("inf")

    def _wants_to_join(self) -> bool:
        member = self._membership
        if self._assignment.draining():
            return False
        if self._assignment.leaving and not (member.generation >= 0 and self._commits_deferred()):
            return False  # leaving: a join is sent only where a commit can be sent in no other way
        return member.wants_join or member.state in (GroupState.UNJOINED, GroupState.PREPARING_REBALANCE)

    def _spaced(self, now: float) -> float:
        """In a mixed group every heartbeat asks for a rejoin while a revoke is pending (docs/protocol-facts.md). After
        each join would come such a heartbeat, and a join after that, without end. So joins are spaced; each one
        re-arms the broker's timer."""
        if not (self._mixed and self._membership.rejoin_requested and self._assignment.anything_pending()):
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
        # This join lists what is owned now, so it informs the group of every revoke that is complete.
        self._assignment.group_told()
        # A need that comes from here on is not in this join's metadata: it needs a join of its own.
        member.requests()
        member.wants_join = False
        self._listed_as_owned, self._joined_topics = frozenset(self._assignment.owned_partitions()), member.topics
        self._succeeds_itself = self._config.group_instance_id is not None and not member.member_id
        member.id_used = bool(member.member_id)
        self._last_join = now
        request = api.JoinGroup(
            group_id=self._config.group_id or "",
            group_instance_id=self._config.group_instance_id,
            session_timeout=self._config.session_timeout,
            # As in Java (KIP-62): for so long the broker waits for the members to join again.
            rebalance_timeout=self._config.max_poll_interval,
            member_id=member.member_id,
            protocols=protocols,
            reason=member.reason,
        )
        why = member.reason or "a new membership"
        self._context.log(logging.INFO, f"joining group {self._config.group_id!r}: {why}")
        number = member.number
        self._join_sent = False
        self._send(request, lambda result, then: self._joined(number, result, then), now, on_sent=self._note_sent)

    def _note_sent(self) -> None:
        self._join_sent = True
        self._membership.note_sent()

    def _send(
        self,
        request: api.Request,
        on_done: Callable[[api.Response | Exception, float], None],
        now: float,
        *,
        on_sent: Callable[[], None],
    ) -> None:
        # The response comes when the slowest member has joined, and that one may take its max_poll_interval.
        timeout = max(self._config.request_timeout, self._config.max_poll_interval + _JOIN_GRACE)
        self._coordinator.send_join(request, on_done, now, timeout=timeout, on_sent=on_sent)

    def _protocols(self, now: float) -> tuple[api.GroupProtocol, ...] | None:
        """None where an assignor failed: the user hears of it (law 6)."""
        try:
            return tuple(api.GroupProtocol(name=each.name, metadata=self._metadata(each)) for each in self._assignors)
        except BaseException as error:  # noqa: BLE001 - an assignor may be the user's own code
            self._group.fail(assignor_failure(error), now)
            return None

    def _metadata(self, assignor: Assignor) -> bytes:
        """Law 2. Two places for the generation: leaders before 3.4 read only the assignor's own (protocol-facts)."""
        topics, owned = self._membership.topics, self._assignment.owned_partitions()
        # Whatever is owned, as in Java: the generation says that this is a new join. To a follower that joins with the
        # same bytes as before the broker responds with the generation that there is, and no rebalance begins.
        generation = self._membership.generation
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
        # Law 8: whatever became of the membership, this Join may still be on its way.
        if self._succeeds_itself and self._join_sent and isinstance(result, Exception):
            self._drop_those_that_arrived(now)
            self._late_until[number] = now + self._config.request_timeout
        if number != member.number:
            return
        member.requesting = False
        self._context.touch()
        if not isinstance(result, api.JoinGroupResponse):
            self._request_failed(result, now)
        elif result.error == ErrorCode.NONE:
            self._join_accepted(result, now)
        elif result.error == ErrorCode.MEMBER_ID_REQUIRED:
            # KIP-394: the first Join of a dynamic member gets an id only. So a Join whose response is lost leaves no
            # member behind, for which the group would wait.
            self._follow("id", now)
            member.member_id = result.member_id
            member.rejoin(member.reason)
        else:
            self._refused("JoinGroup", result.error, now)

    def _join_accepted(self, response: api.JoinGroupResponse, now: float) -> None:
        member = self._membership
        if response.generation < 0 or not response.member_id:
            # Without a generation and an id it is no member: it would send no heartbeat and read no record, for ever.
            self._group.fail(ProtocolError(f"JoinGroup had a response with generation {response.generation}"), now)
            return
        # A requested Join that leaves the generation as it is: the group has KIP-848 members too (protocol-facts).
        self._mixed = member.rejoin_requested and response.generation == member.generation
        member.joined(response, self._last_join)
        self._protocol = response.protocol or ""
        self._heartbeats.joined(now)
        self._leader_assignment = (
            LeaderAssignment(response, self._cluster, now) if response.leader == response.member_id else None
        )
        self._led = frozenset() if self._leader_assignment is None else self._leader_assignment.topics
        if self._leader_assignment is not None and self._leader_assignment.left_out:
            first, *others = self._leader_assignment.left_out
            which = f"member {first!r} and {len(others)} more get nothing"
            why = f"members of the group subscribe to over {_MOST_FOREIGN} topics that this leader does not know"
            why += f", or name over {MOST_NAMED} topics and partitions, or over {_MOST_HEARD} together"
            if self._leader_assignment.unheard:
                which += "; meanwhile no member of a cooperative group is given what it does not own already"
            self._context.log(logging.WARNING, f"{why}: {which}")
        role = "leader" if self._leader_assignment else "member"
        self._context.log(
            logging.INFO, f"joined group {self._config.group_id!r} in generation {member.generation} as {role}"
        )

    # -- the sync

    def _try_sync(self, now: float) -> float:
        """Returns when to be asked again."""
        member, leading = self._membership, self._leader_assignment
        if leading is not None and leading.made is None:
            if now < leading.ready_at:
                return leading.ready_at
            self._assign(leading, now)
            return float("inf")
        member.requests()
        request = api.SyncGroup(
            group_id=self._config.group_id or "",
            generation=member.generation,
            member_id=member.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol=self._protocol,
            assignments={} if leading is None or leading.made is None else leading.made,
        )
        # The lease counts from `now`, when the Sync is sent: its response waits for the group's leader.
        number = member.number
        self._send(request, lambda result, then: self._synced(number, now, result, then), now, on_sent=member.note_sent)
        self._context.touch()  # from here on it is pending, which renews the lease
        return float("inf")

    def _assign(self, leading: LeaderAssignment, now: float) -> None:
        """Law 6."""
        self._tell_who_gets_nothing(leading)
        assignor = self._assignor()
        if assignor is None:
            self._group.fail(
                ProtocolError(f"the group chose assignor {self._protocol!r}, which this member did not offer"), now
            )
            return
        action = PerformAssignment(assign=leading.assigning(assignor))
        self._assigning = _Assigning(action=action, leading=leading, began=now, tell_at=now + _LONG)
        self._context.out.append(action)
        self._context.touch()

    def assignment_performed(
        self, action: PerformAssignment, result: Mapping[str, bytes] | Exception, now: float
    ) -> None:
        """The outcome of the action (law 6)."""
        assigning = self._assigning
        if assigning is None or assigning.action is not action:
            return
        self._assigning = None
        self._context.touch()
        if assigning.leading is not self._leader_assignment:
            return
        if isinstance(result, Exception):
            self._group.fail(result, now)
        else:
            assigning.leading.made = result

    def _tell_how_long(self, assigning: _Assigning, now: float) -> float:
        """Law 6. Returns when to be asked again."""
        if now >= assigning.tell_at:
            took = now - assigning.began
            assigning.tell_at = now + took
            who = f"assignor {self._protocol!r} has been assigning partitions for {took:.0f} s"
            self._context.log(logging.WARNING, f"{who}; group {self._config.group_id!r} waits for it")
        return assigning.tell_at

    def _synced(self, number: int, sent: float, result: api.Response | Exception, now: float) -> None:
        member = self._membership
        if number != member.number:
            return
        member.requesting = False
        self._context.touch()
        if not isinstance(result, api.SyncGroupResponse):
            self._request_failed(result, now)
        elif result.error == ErrorCode.NONE:
            self._sync_accepted(result, sent, now)
        else:
            self._refused("SyncGroup", result.error, now)

    def _sync_accepted(self, response: api.SyncGroupResponse, sent: float, now: float) -> None:
        member = self._membership
        # To the broker a Sync is as good as a heartbeat: it begins the session anew.
        member.heard(sent, well=True)
        member.syncs += 1
        member.move(GroupInput.SYNCED)
        try:
            assignment = read_assignment(response.assignment)
        except ProtocolError as error:
            self._group.fail(error, now)
            return
        partitions = assignment.partitions
        self._set_pace(assignment, now)
        # The subscription may have changed since the join: then the leader may assign topics that it has no more.
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
        self._group.well()
        target = frozenset(partitions)
        self._assignment.apply(target, member.generation, now, member_id=member.member_id)
        # The leader withheld what the join listed. Only another join can tell it that the partition is free.
        if self._listed_as_owned - self._assignment.partitions.keys() - target:
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
            has_some=bool(assignment.partitions or self._assignment.partitions),
            now=now,
        )

    def _leader_insists(self, now: float) -> bool:
        """The leader assigned topics that this member does not subscribe to. Whether it did so again, for the same
        subscription: then another join would not mend it, and the member takes what fits. Else any leader could keep
        the whole group joining for ever."""
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
        text = f"{len(unknown)} of the partitions that the group assigned are not known to exist: {first_of(unknown)}"
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
        except BaseException as error:  # noqa: BLE001 - an assignor may be the user's own code
            self._group.fail(assignor_failure(error), now)
            return False
        return True

    def _assignor(self) -> Assignor | None:
        return next((each for each in self._assignors if each.name == self._protocol), None)

    def _metadata_changed(self, now: float) -> None:
        member = self._membership
        if self._leader_assignment is not None:
            self._tell_who_gets_nothing(self._leader_assignment)
        # A join that is wanted already goes by the newest metadata; another request would only hold it back.
        why = self._what_the_metadata_ask_for() if member.stable and not member.wants_join else ""
        if why:
            self.request_join(now)
            member.rejoin(why)

    def _what_the_metadata_ask_for(self) -> str:
        """A leader is responsible for the group's partitions: when their number changes, it joins again."""
        if self._leader_assignment is not None and self._leader_assignment.outdated():
            return "the partitions of the group's topics changed"
        if self._left_out and not self._cluster.lacks(self._left_out[0]):
            return "partitions that were assigned, and were not known, are there now"
        # Law 5. From the next join on it is no successor any more.
        lacking = self._membership.topics - self._assignment.partitions.topics if self._succeeds_itself else ()
        if any(self._cluster.believed_count(topic) for topic in lacking):
            return "a static member came back, and has no partition of a topic that it subscribes to"
        return ""

    def _tell_who_gets_nothing(self, leading: LeaderAssignment) -> None:
        """Law 9. Of a topic of its own the user hears as an error (`Cluster`, law 3)."""
        topics = leading.topics - self._membership.topics
        codes = {topic: code for topic in topics if (code := self._cluster.error(topic))}
        news = sorted(topic for topic, code in codes.items() if self._starved.get(topic) != code)
        self._starved = codes
        for code in sorted({codes[topic] for topic in news}):
            names = [repr(topic) for topic in news if codes[topic] == code]
            shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
            why = f"this leader assigns no partition of {shown}, to which other members of the group subscribe"
            self._context.log(logging.WARNING, f"{why}: {name_of_code(code)}{_MAY_HELP.get(code, '')}")

    # -- what goes wrong

    def _request_failed(self, result: object, now: float) -> None:
        error = result if isinstance(result, Exception) else TypeError(f"unexpected response {type(result)}")
        if not isinstance(error, KafkaError) or not error.retriable:
            self._group.fail(error, now)
            return
        self._backoff.failed(now)
        # The group may have moved to another coordinator, whose address only a new lookup finds.
        self._restart()
        self._coordinator.lost(error)

    def _refused(self, what: str, code: int, now: float) -> None:
        """An error code on Join or Sync (Java's table)."""
        self._context.log(logging.INFO, f"{what} had the response {name_of_code(code)}")
        code = self.meaning(code, now, named=self._membership.id_used)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._follow("id", now)
            self._group.lost(f"UNKNOWN_MEMBER_ID on {what}", now, forget_id=True)
        # A Sync of an older generation: the next rebalance has begun, and the group still knows the member (law 1).
        elif code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self._follow("rebalance", now)
            self._restart()
        elif error_for_code(code).retriable:
            self._backoff.failed(now)
            self._restart()
            if code in COORDINATOR_MOVED:
                self._coordinator.lost(error_for_code(code))
        # Of a Sync it says that the protocol's name is wrong (KIP-559): there is nothing to look up.
        elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL and what == "JoinGroup":
            self._learn_what_the_group_uses(now)
        else:
            why = f"{what} of group {self._config.group_id!r}: {name_of_code(code)}{self._hint(code)}"
            self._group.fail(error_for_code(code, why), now)

    def _hint(self, code: int) -> str:
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            return f". {_OF_ANOTHER_TYPE}"
        if code != ErrorCode.UNKNOWN_SERVER_ERROR:
            return ""
        # The broker's word for a group that is larger than a batch of its log may be, and for much else.
        return _TOO_LARGE.format("" if self._leader_assignment is None else self._leader_assignment.size())

    def meaning(self, code: int, now: float, *, named: bool = True) -> int:
        """The error code that one on any request of the group is taken for (law 8; law 1 of `Group`).

        named: the request named this member. Else there is no membership to lose, and joining again is no remedy.
        """
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            return ErrorCode.UNKNOWN_MEMBER_ID if named else code
        self._drop_those_that_arrived(now)
        if code != ErrorCode.FENCED_INSTANCE_ID or not self._late_until:
            return code
        # Once: the next FENCED_INSTANCE_ID is of another consumer.
        del self._late_until[min(self._late_until)]
        told = "FENCED_INSTANCE_ID: an earlier Join of this member may have arrived late; joining again"
        self._context.log(logging.INFO, told)
        return ErrorCode.UNKNOWN_MEMBER_ID

    def _drop_those_that_arrived(self, now: float) -> None:
        self._late_until = {attempt: until for attempt, until in self._late_until.items() if until > now}

    def _learn_what_the_group_uses(self, now: float) -> None:
        """No other join is sent until the coordinator has said it, as if the refused join were still under way."""
        number, names = self._membership.number, [each.name for each in self._assignors]
        self._membership.requesting = True

        def learnt(error: KafkaError, then: float) -> None:
            if number == self._membership.number:
                self._membership.requesting = False
                self._context.touch()
                self._group.fail(error, then)

        _ask_what_it_uses(self._coordinator, self._config.group_id or "", names, learnt, now)

    def _follow(self, what: str, now: float) -> None:
        """Law 4."""
        if what in self._repeated:
            self._backoff.failed(now)
        self._repeated.add(what)

    def request_join(self, now: float) -> None:
        """A commit or the metadata request a join: at once, unless another one was requested moments ago."""
        if now > max(self._requested_at, self._request_backoff.ready_at) + self._config.heartbeat_interval:
            self._request_backoff.succeeded()
        else:
            self._request_backoff.failed(now)
        self._requested_at = now

    def _restart(self) -> None:
        """Law 1: at Join, with what was kept."""
        # The member id and the generation stay: the broker still knows this member by them.
        self._leader_assignment = None
        self._membership.wants_join = True
        if self._membership.state is GroupState.COMPLETING_REBALANCE:
            self._membership.move(GroupInput.RESTART)


@dataclass(slots=True, kw_only=True, eq=False)
class _Assigning:
    """A `PerformAssignment` without an outcome. leading: for whom. tell_at: when the user is told how long it takes."""

    action: PerformAssignment
    leading: LeaderAssignment
    began: float
    tell_at: float


# -- eager: everything is revoked before a join


class EagerRevocation:
    """Eager: every partition is given up before a join (KIP-429; docs/rebalance.md, the deadline of a delay).

    Laws
    1. A need for a join, in a membership that has an assignment, requests the revocation of all that is owned, once.
       The join is sent when nothing is owned any more.
    2. The broker removes who has not joined when the largest rebalance time-out of all members has passed since the
       rebalance began. The protocol does not tell when it began, but the last heartbeat with a good response was sent
       before it. So the bound is the sending of that heartbeat plus our own time-out; where nobody has told us of a
       rebalance, max_poll_interval from the need.
    3. A rebalance that is told of later brings the deadline forward. Nothing takes it back.
    4. If the member owns nothing, the listener gets the empty set (KIP-429), and the join does not wait for that.
    """

    def __init__(
        self, context: Context, membership: Membership, assignment: MemberAssignment, protocol: RebalanceProtocol
    ) -> None:
        self._context = context
        self._config = context.config
        self._membership = membership
        self.eager = protocol is RebalanceProtocol.EAGER
        self._requested = False
        self._deadline = float("inf")
        self._assignment = assignment

    def over(self) -> None:
        """A join is sent, or the membership has ended."""
        self._requested = False

    def done(self, now: float) -> bool:
        """Whether a join may be sent, as far as what is owned is concerned."""
        if not self.eager or not self._membership.stable:
            return True
        if not self._requested:
            self._requested = True
            self._deadline = self._bound(now)
            self._assignment.request_revocation_of_all(self._deadline)
        elif (bound := self._bound(now)) < self._deadline:
            self._deadline = bound
            self._assignment.bring_forward(bound)
        return not self._assignment.partitions

    def _bound(self, now: float) -> float:
        """Law 2."""
        member = self._membership
        since = member.well_at if member.rejoin_requested else now
        return since + self._config.max_poll_interval - self._context.commit_budget


# -- the leader's assignment


class LeaderAssignment:
    """What a member does when it leads its group: it assigns the partitions to the members of one generation.

    Laws
    1. It waits until the metadata of every subscribed topic of every member is known. A topic that is said to be
       missing, and that was never seen here, is waited for a few seconds where a member owns some of it (`Cluster`, law
       7): it exists, or did a moment ago, and its owners would lose it. The metadata of one that has been missing for
       longer are requested again, and waited for, but not for long: the rebalance may be for one that was just made.
    2. What a member says of itself that cannot be read makes that member subscribe to nothing; it stops nobody else.
       So does a subscription with which the topics that are not known here would be over `_MOST_FOREIGN`, since the
       leader requests and keeps the metadata of each; one that names over `MOST_NAMED` topics and partitions by itself;
       and one that comes when members have named over `_MOST_HEARD` (`left_out`). The shortest are read first;
       a list of topics that several members wrote alike counts once.
    3. The counts of partitions that an assignment was made from are kept, so that a change of them is seen; where
       members say in which racks they run, the racks of the replicas too (KIP-881).
    4. While partitions are withheld until their owners have released them, each assignment carries a notice for members
       of ours: the group's size, and how many are withheld (docs/rebalance.md, rule 19). Other clients do not read user
       data of this kind. Else there is none: a broker does not let a KIP-848 member into a classic group whose
       assignments have user data, since it takes them for a custom assignor's.
    5. A static leader that comes back to a stable group makes none: the group goes on with the one there is (KIP-814).
    6. What an assignor returns is `checked` before it is written: it may be the user's own code, and any type.
    7. A member whose subscription was not read may own any partition. Until it has released what it owns (it gets
       nothing, and so joins again without it), no member of a cooperative group is assigned what it does not own
       already. Eager members own nothing when they join.
    """

    def __init__(self, response: api.JoinGroupResponse, cluster: Cluster, now: float) -> None:
        self._cluster = cluster
        self.left_out: list[str] = []
        # Whether what some member says was not read (law 7).
        self.unheard = False
        self._members = self._bounded(response.members, response.member_id)
        # In bytes.
        self._subscribed = sum(len(member.metadata) for member in response.members)
        self.topics = frozenset(topic for member in self._members for topic in member.topics)
        self._owned = self.topics & frozenset(part.topic for member in self._members for part in member.owned)
        self._skips = response.skip_assignment
        self._racked = any(member.rack is not None for member in self._members)
        self._view: ClusterView | None = None
        # Until when it waits for metadata of a newer version than there was at first (law 1).
        self._first_version = cluster.version
        self._looks_until = now + _LOOKS_AGAIN if cluster.look_again(self.topics) else float("-inf")
        # Law 1, of that version of the metadata: each turn looks at it.
        self._ready_at, self._ready_version = float("inf"), -1
        # Member id -> assignment bytes, as soon as there are some.
        self.made: Mapping[str, bytes] | None = None

    def _bounded(self, members: Sequence[api.GroupMember], own: str) -> tuple[MemberSubscription, ...]:
        """Law 2."""
        bounded = list(map(_silent, members))
        foreign: set[str] = set()
        heard, shared = 0, SharedTopics()
        for place in sorted(range(len(members)), key=lambda place: len(members[place].metadata)):
            is_own = members[place].member_id == own
            decoded = _decoded(members[place], shared) if heard <= _MOST_HEARD or is_own else None
            if decoded is None:
                self.left_out.append(members[place].member_id)
                self.unheard = True
                continue
            member, repeats = decoded
            heard += len(member.owned) + (0 if repeats else len(member.topics))
            more = {topic for topic in member.topics if topic not in self._cluster.topics} - foreign
            if len(foreign) + len(more) <= _MOST_FOREIGN or is_own:
                foreign |= more
                bounded[place] = member
            else:
                self.left_out.append(member.member_id)
                bounded[place] = replace(member, topics=())
        return tuple(bounded)

    @property
    def ready_at(self) -> float:
        """Law 1: once all are known, or known to be missing. infinity: no time makes it so."""
        if self._ready_version != self._cluster.version:
            self._ready_at, self._ready_version = self._find_ready_at(), self._cluster.version
        return self._ready_at

    def _find_ready_at(self) -> float:
        if not all(topic in self._cluster.topics for topic in self.topics):
            return float("inf")
        looks_until = self._looks_until if self._cluster.version == self._first_version else float("-inf")
        return max([looks_until, *map(self._cluster.doubted_until, self._owned)])

    def outdated(self) -> bool:
        return self._view is not None and self._view != self._present_view()

    def size(self) -> str:
        """What the coordinator is to write of the group, as far as this member knows, for a message."""
        assigned = sum(map(len, (self.made or {}).values()))
        return (
            f" (the subscriptions of its {len(self._members)} members have {self._subscribed} bytes, their assignments"
            f" {assigned})"
        )

    def assigning(self, assignor: Assignor) -> Callable[[], dict[str, bytes]]:
        """What computes the assignment, from what is known now: member id -> assignment bytes.

        It raises what the assignor raises, and AssignorError (law 6). Any thread may call it.
        """
        view = self._view = self._present_view()
        return partial(self._assign, assignor, view)

    def _assign(self, assignor: Assignor, view: ClusterView) -> dict[str, bytes]:
        """On another thread: of this object it reads only what never changes."""
        if self._skips:
            return {}
        made = checked(assignor, view, self._members)
        if self.unheard and RebalanceProtocol.COOPERATIVE in assignor.protocols:
            made = self._only_owned(made)
        withheld = self._withheld(made)
        places = {member: place for place, member in enumerate(sorted(made))}
        notices = {
            member: write_notice(GroupNotice(members=len(places), place=place, withheld=withheld))
            for member, place in (places.items() if withheld else ())
        }
        return {member: _written(assignor.name, member, parts, notices.get(member)) for member, parts in made.items()}

    def _only_owned(self, made: Mapping[str, Iterable[TopicPartition]]) -> dict[str, tuple[TopicPartition, ...]]:
        """Law 7."""
        owned = {each.member_id: frozenset(each.owned) for each in self._members}
        return {member: tuple(part for part in parts if part in owned[member]) for member, parts in made.items()}

    def _withheld(self, made: Mapping[str, Iterable[TopicPartition]]) -> int:
        """Partitions that a member still owns and is to release. Eager members own none when they join."""
        released = (set(each.owned).difference(made.get(each.member_id, ())) for each in self._members)
        return len(set[TopicPartition]().union(*released))

    def _present_view(self) -> ClusterView:
        counts = {topic: self._cluster.believed_count(topic) for topic in self.topics}
        known = {topic: count for topic, count in counts.items() if count is not None}
        return ClusterView(partitions=known, racks=self._cluster.racks(known) if self._racked else {})


def _written(assignor: str, member: str, partitions: tuple[TopicPartition, ...], notice: bytes | None) -> bytes:
    try:
        return write_assignment(Assignment(partitions=partitions, userdata=notice))
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise no_partitions(assignor, member, partitions, error) from error


def _silent(member: api.GroupMember) -> MemberSubscription:
    """What it says of itself is not read."""
    return MemberSubscription(member_id=member.member_id, group_instance_id=member.group_instance_id, topics=())


def _decoded(member: api.GroupMember, shared: SharedTopics) -> tuple[MemberSubscription, bool] | None:
    """And whether its topics were read of another member already. None: it names too much."""
    try:
        subscription = read_subscription(member.metadata, shared)
    except TooManyNamedError:
        return None
    except ProtocolError:
        subscription = Subscription(topics=())
    decoded = MemberSubscription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=subscription.topics,
        owned=subscription.owned,
        generation=subscription.generation,
        rack=subscription.rack,
        userdata=subscription.userdata,
    )
    return decoded, subscription.repeats


# -- heartbeats


class Heartbeats:
    """Heartbeats, which renew the lease.

    Laws
    1. They go on in every state that has a generation, whatever the application does.
    2. ILLEGAL_GENERATION while our Join or Sync is under way, or to a heartbeat that a join overtook, is as good as
       none. A leader that has yet to assign learns from it that the group has had a rebalance without it. Any other
       error of an overtaken heartbeat is ignored, except that the coordinator has moved: the next heartbeat, of the
       present generation, decides.
    3. How often: `Pace` (docs/rebalance.md, rule 19). A throttle time is obeyed (KIP-219).
    4. A refusal that may be taken back, of a right that was withdrawn say, is told when the lease has ended (Java's
       table): then polls return nothing. A fatal one ends the membership. Of any other one the next response decides;
       once none was accepted for a whole session, since the Join's response at the earliest, it is an error while it
       stands, and the coordinator is looked for again, since another broker may be it by now.
    """

    def __init__(self, context: Context, coordinator: Coordinator, membership: Membership, group: Group) -> None:
        self._context = context
        self._config = context.config
        self._coordinator = coordinator
        self._membership = membership
        self._group = group
        self._pace = Pace(context)
        self._due = 0.0
        self._in_flight = False
        self._joined_at = float("-inf")
        # One that is stuck must leave time for another before the lease ends; so must a throttle time of the broker's.
        self._longest = min(self._config.request_timeout, membership.shortest / 2)

    def joined(self, now: float) -> None:
        """The interval begins at the response to the join."""
        self._joined_at = now
        self._due = self._pace.first(now)

    def synced(self, notice: GroupNotice | None, partitions: int | None, *, has_some: bool, now: float) -> None:
        """It begins anew at the response to the sync. partitions: of our topics; None in an eager group."""
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
        fence = (member.number, member.generation)
        on_done = partial(self._beat, fence, now)
        self._coordinator.send(request, on_done, now, timeout=self._longest)
        return float("inf")

    def _next(self, now: float) -> float:
        """In step with the heartbeats before, where none was late: the members of a group stay together."""
        if self._membership.rejoin_requested:
            self._pace.calm_down()
        interval = self._pace.interval(now)
        kept = self._due + interval
        return kept if kept > now else now + interval

    def _beat(self, fence: tuple[int, int], sent: float, result: api.Response | Exception, now: float) -> None:
        member = self._membership
        self._in_flight = False
        self._context.touch()
        if isinstance(result, Exception):
            # No response renews no lease; and the coordinator is looked for again, as in Java.
            member.unheard = fence[0] == member.number
            self._coordinator.lost(result)
            return
        if not isinstance(result, api.HeartbeatResponse) or fence[0] != member.number:
            return
        self._due = max(self._due, now + min(result.throttle_time, self._longest))  # KIP-219
        error = result.error
        overtaken = fence[1] != member.generation
        harmless = error == ErrorCode.ILLEGAL_GENERATION and (member.between_generations or overtaken)
        # Where no Join or Sync of ours is on its connection, a heartbeat of an older generation renews no session.
        # Where one is, the broker may have responded to it just now: then the lease is longer than the session, by as
        # long as that response is on its way. docs/rebalance.md counts the code, since a second Join may wait there.
        alive = error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS) or (harmless and member.request_in_flight)
        member.unheard = not alive
        if alive:
            member.heard(sent, well=error == ErrorCode.NONE)
        if error == ErrorCode.NONE and member.stable:
            self._coordinator.served()
        if error == ErrorCode.REBALANCE_IN_PROGRESS and member.stable and not overtaken:
            member.told_to_rejoin("the group is rebalancing")
        elif error not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS) and not harmless:
            self._refused(error, now, overtaken=overtaken)

    def _refused(self, error: int, now: float, *, overtaken: bool) -> None:
        # Law 8 of `Joining` has one pardon for each late Join: none is spent on an older generation.
        error = error if overtaken else self._group.meaning(error, now)
        if error in COORDINATOR_MOVED:
            self._coordinator.lost(error_for_code(error))
        elif overtaken:
            pass
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            name = "UNKNOWN_MEMBER_ID" if error == ErrorCode.UNKNOWN_MEMBER_ID else "ILLEGAL_GENERATION"
            self._group.lost(f"{name} on a heartbeat", now, forget_id=error == ErrorCode.UNKNOWN_MEMBER_ID)
        elif error == ErrorCode.FENCED_INSTANCE_ID:
            self._group.fail(self._error(error), now)
        elif self._next_decides(error, now):
            told = f"a heartbeat's response was {name_of_code(error)}; it is tried again"
            self._context.log(logging.WARNING, told)
        elif error_for_code(error).fatal:
            self._group.fail(self._error(error), now)
        else:
            self._stands(error, now)

    def _next_decides(self, code: int, now: float) -> bool:
        """Law 4. Before the first Sync no lease has begun, and no heartbeat may have been accepted yet."""
        if error_for_code(code).fatal:
            return self._membership.lease_holds(now)
        return now < max(self._membership.alive_at, self._joined_at) + self._config.session_timeout

    def _error(self, code: int, more: str = "") -> KafkaError:
        return error_for_code(code, f"a heartbeat of group {self._config.group_id!r}: {name_of_code(code)}{more}")

    def _stands(self, code: int, now: float) -> None:
        """Law 4."""
        since = "; none was accepted for session_timeout, so no records are returned until one is"
        error = self._error(code, since)
        self._context.log(logging.WARNING, str(error))
        self._context.standing.stands(_HEARTBEATS, error, now)
        self._coordinator.lost(error)


# -- how often


class Pace:
    """How often a member heartbeats: at `heartbeat_interval`, and faster while a hand-over is pending, since members
    hear of the rebalance that completes it by a heartbeat (docs/rebalance.md, rule 19).

    Laws
    1. While its leader says that partitions are withheld, a member heartbeats every 250 ms. After 30 s without a new
       assignment the interval doubles with each heartbeat, up to the default.
    2. A group sends at most 500 a second: in one so large that this needs it, the fast interval is longer, and each
       member begins at its own place in it. Small groups begin together, so that they hear of a rebalance together.
    3. A leader of another client says nothing, nor does one of ours where nothing is withheld. Then a cooperative
       member takes it that a hand-over may be pending for 5 s, and that there are no more members with partitions than
       partitions; one that has none heartbeats every second.
    4. An interval of the user's that is shorter is kept. What a broker's throttle time asks for is kept as well.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._interval = float("inf")
        self._fast_until = float("-inf")
        self._offset = 0.0

    def first(self, now: float) -> float:
        """When the first heartbeat after a Join is due."""
        self.calm_down()
        return now + self._default + self._offset

    def told(self, notice: GroupNotice, now: float) -> float:
        """A Sync brought a notice. Returns when the first heartbeat is due."""
        self._offset = notice.place / _MOST_A_SECOND % self._default
        if not notice.withheld:
            return self.first(now)
        self._hurry(max(_FAST, notice.members / _MOST_A_SECOND), now + _FAST_FOR)
        return now + min(_FAST, self._default) + self._offset

    def untold(self, partitions: int, *, has_some: bool, now: float) -> float:
        """A Sync of a cooperative group brought none (law 3). partitions: of our topics. Returns when the
        first heartbeat is due."""
        spread = max(_FAST if has_some else _SURPLUS, partitions / _MOST_A_SECOND)
        self._hurry(spread, now + _FAST_FOR_UNTOLD)
        # Nobody gave the members a place: chance keeps them from coming all at once.
        return now + self.interval(now) * (0.5 + self._context.random() / 2)

    def calm_down(self) -> None:
        """Nothing is known to be pending; or a rebalance is under way, which no heartbeat can speed up."""
        self._interval, self._fast_until = float("inf"), float("-inf")

    def interval(self, now: float) -> float:
        """From a heartbeat that is sent now to the next one."""
        if now >= self._fast_until:
            self._interval *= 2
        return min(self._interval, self._default)

    def _hurry(self, interval: float, until: float) -> None:
        self._interval, self._fast_until = interval, until

    @property
    def _default(self) -> float:
        """Where a lease is short (law 4 of `Membership`), three of them come in one."""
        config = self._context.config
        return min(config.heartbeat_interval, config.max_poll_interval / 3)


# -- leaving


@dataclass(slots=True, kw_only=True, eq=False)
class _Farewell:
    """One LeaveGroup, until its final response. until: when the session has ended."""

    request: api.LeaveGroup
    backoff: Backoff
    until: float
    in_flight: bool = False


class Leaving:
    """Telling the group that a member leaves (docs/rebalance.md, rules 12 and 19).

    Laws
    1. It is tried again where that can help, with a search for the coordinator and a back-off between: until the broker
       responds, or the session has ended, after which the broker needs no telling.
    2. A broker that knows no such member, or another one in its place, has been told: the group waits for nobody.
    3. The caller is told the outcome, once, and truly; and not before each earlier LeaveGroup has ended as well: that
       of an interrupted unsubscribe may not have been sent yet, and a close would close its connection.
    """

    def __init__(self, context: Context, coordinator: Coordinator) -> None:
        self._context = context
        self._coordinator = coordinator
        self._farewells: list[_Farewell] = []
        self._waiters: list[Callable[[Exception | None], None]] = []
        self._error: Exception | None = None

    def begin(self, request: api.LeaveGroup, on_done: Callable[[Exception | None], None], now: float) -> None:
        """`on_done` hears of the end, at once where it comes at once."""
        self._waiters.append(on_done)
        # Then the broker removes the member by itself.
        until = now + self._context.config.session_timeout
        farewell = _Farewell(request=request, backoff=self._context.backoff(), until=until)
        self._farewells.append(farewell)
        self._try(farewell, now)

    def follow(self, on_done: Callable[[Exception | None], None]) -> None:
        """No further LeaveGroup is needed: waits for the earlier ones."""
        self._waiters.append(on_done)
        self._tell()

    def poll(self, now: float) -> float:
        times = [float("inf")]
        for farewell in list(self._farewells):
            if now >= farewell.until:
                self._end(farewell, KafkaTimeoutError("the group was not left before the session ended"))
                continue
            times.append(farewell.until)
            if not farewell.in_flight:
                times.append(self._try(farewell, now))
        return min(times)

    def _try(self, farewell: _Farewell, now: float) -> float:
        if now < farewell.backoff.ready_at:
            return farewell.backoff.ready_at
        if self._coordinator.need():
            farewell.in_flight = True
            self._coordinator.send(
                farewell.request, lambda result, then: self._on_response(farewell, result, then), now
            )
        return float("inf")

    def _on_response(self, farewell: _Farewell, result: api.Response | Exception, now: float) -> None:
        if farewell not in self._farewells:
            return  # the session has ended meanwhile
        farewell.in_flight = False
        self._context.touch()
        error = _error_of(result)
        if error is None or not isinstance(error, KafkaError) or not error.retriable:
            self._end(farewell, error)
            return
        farewell.backoff.failed(now)
        if not isinstance(result, api.LeaveGroupResponse) or result.error in COORDINATOR_MOVED:
            self._coordinator.lost(error)

    def _end(self, farewell: _Farewell, error: Exception | None) -> None:
        self._farewells.remove(farewell)
        self._error = self._error or error
        self._tell()

    def _tell(self) -> None:
        if self._farewells:
            return
        waiters, self._waiters = self._waiters, []
        error, self._error = self._error, None
        for on_done in waiters:
            on_done(error)


def _error_of(result: api.Response | Exception) -> Exception | None:
    """Law 2 of `Leaving`."""
    if isinstance(result, Exception):
        return result
    code = result.error if isinstance(result, api.LeaveGroupResponse) else 0
    return None if code in _LEFT else error_for_code(code, "the group was not left")


# -- a group without an assignor in common


def _ask_what_it_uses(
    coordinator: Coordinator,
    group_id: str,
    assignors: Sequence[str],
    on_done: Callable[[InconsistentGroupProtocolError, float], None],
    now: float,
) -> None:
    """The broker says only that no assignor is common; so we ask the group's coordinator what the group uses.

    Calls `on_done` with the error to raise, once the coordinator has responded or has not in time: whatever becomes of
    the question, the user hears of the mismatch, and what to do about it.
    """
    request = api.DescribeGroup(group_id=group_id)
    coordinator.send(request, lambda result, then: on_done(_mismatch(group_id, assignors, result), then), now)


def _mismatch(group_id: str, assignors: Sequence[str], found: object) -> InconsistentGroupProtocolError:
    """found: the coordinator's response, or why there is none."""
    offered = ", ".join(assignors)
    refusal = (
        f"group {group_id!r} cannot be joined: it has no assignor in common with this consumer, which offers {offered}."
    )
    if _is_no_classic_group(found):
        return InconsistentGroupProtocolError(f"{refusal} {_OF_ANOTHER_TYPE}")
    if not isinstance(found, api.DescribeGroupResponse) or found.error:
        why = name_of_code(found.error) if isinstance(found, api.DescribeGroupResponse) else found
        hint = "Set assignors to what its members use, or choose another group_id."
        return InconsistentGroupProtocolError(f"{refusal} What the group uses could not be learnt ({why}). {hint}")
    return InconsistentGroupProtocolError(f"{refusal} {_hint(found, assignors)}")


def _is_no_classic_group(found: object) -> bool:
    """To a broker that refuses our Join it is a group; to one that describes classic groups it is none."""
    if not isinstance(found, api.DescribeGroupResponse):
        return False
    empty = not (found.error or found.protocol_type or found.protocol or found.clients)
    return empty or found.error == ErrorCode.GROUP_ID_NOT_FOUND


def _hint(group: api.DescribeGroupResponse, assignors: Sequence[str]) -> str:
    if group.protocol_type not in ("", _OURS):
        return f"The group is not one of consumers but of {group.protocol_type!r}: choose another group_id."
    members = first_of(list(dict.fromkeys(group.clients)))
    with_whom = f" (members: {members})" if members else ""
    if not group.protocol:
        return f"The group{with_whom} has not chosen its assignor yet: set assignors to one that its members have."
    listed = [*assignors, group.protocol]
    return (
        f"The group{with_whom} uses {group.protocol!r}: set assignors to a list with it, as {listed!r}, or choose"
        " another group_id."
    )
