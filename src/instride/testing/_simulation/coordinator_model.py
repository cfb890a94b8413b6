"""A model of the group coordinator for classic members, as docs/protocol-facts.md saw Apache Kafka behave.

Laws
1. Empty -> PreparingRebalance -> CompletingRebalance -> Stable. The join barrier is the largest of all members'
   rebalance time-outs, counted from entering Preparing; the sync barrier as long again. Who misses one is removed.
2. Commits: Stable and Preparing take the present generation and renew the session; Completing responds
   REBALANCE_IN_PROGRESS to the new generation, ILLEGAL_GENERATION to any other. Empty takes those of no member.
   Nobody asks who owns a partition.
3. A follower that joins again in Stable, with equal bytes, completes at once, with the same generation. A changed
   follower, and the leader always, starts a rebalance.
4. A coordinator that moves keeps what was stored: offsets, and the group as of its last complete Sync.
5. A pending Join or Sync needs no heartbeats. Who waits for a rebalance is told so by its heartbeat's response.
6. A static member (KIP-345) needs no id to begin with. One that joins without an id takes the place and the assignment
   of who has its instance id, who is fenced: in Stable at once and without a rebalance, while the elected protocol
   stays; a leader is told to skip the assignment (KIP-814). One that misses the join barrier stays, until it misses the
   sync barrier too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from instride._wire import api
from instride.errors.codes import ErrorCode
from instride.testing._simulation.committed_offsets import CommittedOffsets
from instride.testing._simulation.group_members import (
    FENCED_INSTANCE_ID,
    UNKNOWN_MEMBER_ID,
    GroupMember,
    Speaker,
    StoredGroup,
    new_member,
    static_one,
    stored_group,
    unknown,
)
from instride.testing._simulation.group_protocols import elect, fits, metadata_of
from instride.testing._simulation.history import BROKER, History
from instride.testing._simulation.initial_delay import InitialDelay
from instride.testing._simulation.links import Reply
from instride.testing._simulation.scheduler import Scheduler

__all__ = ["GroupModel"]

_NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
_ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
_INCONSISTENT_GROUP_PROTOCOL = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
_REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS
_GROUP_ID_NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
_MEMBER_ID_REQUIRED = ErrorCode.MEMBER_ID_REQUIRED

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"


class GroupModel:
    """One group. Who calls it has made sure that the right node is asked."""

    def __init__(self, scheduler: Scheduler, history: History, *, initial_delay: float) -> None:
        self._scheduler = scheduler
        self._history = history
        self._initial_delay = initial_delay
        self._state = EMPTY
        self._leader = ""
        self._protocol = ""
        self._pending: set[str] = set()
        self._barrier = 0
        self._first: InitialDelay | None = None
        self._ids = 0
        self._exists = False
        self._stored = StoredGroup()
        self.generation = 0
        self.members: dict[str, GroupMember] = {}
        self.committed = CommittedOffsets()

    @property
    def state(self) -> str:
        return self._state

    def handle(self, who: str, request: api.Request, reply: Reply) -> None:
        match request:
            case api.JoinGroup():
                self._join(who, request, reply)
            case api.SyncGroup():
                self._sync(request, reply)
            case api.Heartbeat():
                reply(api.HeartbeatResponse(error=self._heartbeat(request)))
            case api.LeaveGroup():
                reply(api.LeaveGroupResponse(error=self._leave(request)))
            case api.DescribeGroup():
                names = tuple(member.name for member in self.members.values())
                reply(api.DescribeGroupResponse(protocol_type="consumer", protocol=self._protocol, clients=names))
            case api.OffsetCommit():
                self._commit(who, request, reply)
            case api.OffsetFetch():
                reply(self.committed.response(request))
            case _:
                raise TypeError(f"not for a coordinator: {request}")

    # -- joining

    def _join(self, who: str, request: api.JoinGroup, reply: Reply) -> None:
        member_id = request.member_id
        member = self.members.get(member_id)
        self._exists = True
        if not fits(request.protocols, self._offers()):
            reply(api.JoinGroupResponse(error=_INCONSISTENT_GROUP_PROTOCOL, member_id=member_id))
        elif not member_id:
            self._join_without_id(who, request, reply)
        elif member_id in self._pending:
            self._pending.discard(member_id)
            self._add(who, request, reply)
        elif member is not None and not unknown(self.members, request):
            self._rejoin(member, request, reply)
        else:
            reply(api.JoinGroupResponse(error=unknown(self.members, request), member_id=member_id))

    def _join_without_id(self, who: str, request: api.JoinGroup, reply: Reply) -> None:
        self._ids += 1
        fresh = f"{who}-{self._ids}"
        old = static_one(self.members.values(), request.group_instance_id)
        if old is not None:
            self._replace(old, who, replace(request, member_id=fresh), reply)
        elif request.group_instance_id is not None:
            self._add(who, replace(request, member_id=fresh), reply)
        else:
            self._pending.add(fresh)
            self._scheduler.after(request.session_timeout, partial(self._forget_pending, fresh))
            reply(api.JoinGroupResponse(error=_MEMBER_ID_REQUIRED, member_id=fresh))

    def _replace(self, old: GroupMember, who: str, request: api.JoinGroup, reply: Reply) -> None:
        """Law 6."""
        new = new_member(who, request)
        new.assignment, new.synced = old.assignment, old.synced
        self.members[new.id] = new
        self._leader = new.id if self._leader == old.id else self._leader
        self._evict(old, "another one has its instance id", FENCED_INSTANCE_ID)
        self._renew(new)
        self._monitor(new)
        if self._state == STABLE and elect(self._offers()) == self._protocol:
            self._store()
            reply(replace(self._join_response(new), skip_assignment=self._leader == new.id))
            return
        new.join = reply
        self._prepare()

    def _add(self, who: str, request: api.JoinGroup, reply: Reply) -> None:
        member = new_member(who, request)
        member.join = reply
        self.members[member.id] = member
        if self._first is not None:
            self._first.somebody_joined = True
        self._renew(member)
        self._monitor(member)
        self._prepare()

    def _rejoin(self, member: GroupMember, request: api.JoinGroup, reply: Reply) -> None:
        """Law 3."""
        quiet = self._state == COMPLETING or (self._state == STABLE and member.id != self._leader)
        self._renew(member)
        if quiet and member.protocols == request.protocols:
            reply(self._join_response(member))
            return
        if member.join is not None:  # an older Join of the same member, of a connection that broke
            member.join(api.JoinGroupResponse(error=_REBALANCE_IN_PROGRESS, member_id=member.id))
        member.protocols, member.join = request.protocols, reply
        if request.session_timeout < member.session:
            self._scheduler.after(request.session_timeout, partial(self._monitor, member))
        member.session, member.rebalance = request.session_timeout, request.rebalance_timeout
        self._prepare()

    def _forget_pending(self, member_id: str) -> None:
        if member_id in self._pending:
            self._pending.discard(member_id)
            self._try_to_complete()

    def _prepare(self) -> None:
        if self._state == PREPARING:
            self._try_to_complete()
            return
        for member in self.members.values():
            if member.sync is not None:
                waiting, member.sync = member.sync, None
                self._renew(member)
                waiting(api.SyncGroupResponse(error=_REBALANCE_IN_PROGRESS))
        longest = self._longest_rebalance()
        self._first = InitialDelay(self._initial_delay, longest) if self._state == EMPTY else None
        self._enter(PREPARING)
        self._start_barrier(self._first.now if self._first else longest)
        self._try_to_complete()

    def _longest_rebalance(self) -> float:
        return max((member.rebalance for member in self.members.values()), default=0.0)

    def _start_barrier(self, seconds: float) -> None:
        self._barrier += 1
        self._scheduler.after(seconds, partial(self._barrier_over, self._barrier))

    def _try_to_complete(self) -> None:
        if self._state != PREPARING or self._first or self._pending:
            return
        if all(member.join is not None for member in self.members.values()):
            self._complete_join()

    def _barrier_over(self, barrier: int) -> None:
        if barrier != self._barrier:
            return
        if self._first is not None and self._first.goes_on():
            self._start_barrier(self._first.now)
        elif self._state == PREPARING:
            self._first = None
            self._complete_join()
        elif late := [member for member in self.members.values() if not member.synced]:
            for member in late:
                self._evict(member, "it did not sync in time")
            self._prepare()

    def _complete_join(self) -> None:
        """Laws 1 and 6."""
        for member in [each for each in self.members.values() if each.join is None and each.instance is None]:
            self._evict(member, "it did not join in time")
        joined = [each.id for each in self.members.values() if each.join is not None]
        if self.members and not joined:
            self._start_barrier(self._longest_rebalance())
            return
        self.generation += 1
        if not self.members:
            self._leader = self._protocol = ""
            self._stored = StoredGroup(generation=self.generation)
            self._enter(EMPTY)
            return
        if self._leader not in joined:
            self._leader = joined[0]
        self._protocol = elect(self._offers())
        self._enter(COMPLETING)
        self._start_barrier(self._longest_rebalance())
        for member in list(self.members.values()):
            waiting, member.join = member.join, None
            member.synced = False
            self._renew(member)
            if waiting is not None:
                waiting(self._join_response(member))

    def _offers(self) -> list[tuple[api.GroupProtocol, ...]]:
        return [member.protocols for member in self.members.values()]

    def _join_response(self, member: GroupMember) -> api.JoinGroupResponse:
        members: tuple[api.GroupMember, ...] = ()
        if member.id == self._leader:
            members = tuple(
                api.GroupMember(
                    member_id=each.id,
                    metadata=metadata_of(each.protocols, self._protocol),
                    group_instance_id=each.instance,
                )
                for each in self.members.values()
            )
        return api.JoinGroupResponse(
            generation=self.generation,
            protocol_type="consumer",
            protocol=self._protocol,
            leader=self._leader,
            member_id=member.id,
            members=members,
        )

    # -- syncing

    def _sync(self, request: api.SyncGroup, reply: Reply) -> None:
        member = self.members.get(request.member_id)
        error = self._refused(request)
        if member is None or error:
            reply(api.SyncGroupResponse(error=error))
        elif self._state == PREPARING:
            reply(api.SyncGroupResponse(error=_REBALANCE_IN_PROGRESS))
        elif self._state == STABLE:
            member.synced = True
            self._renew(member)
            reply(api.SyncGroupResponse(assignment=member.assignment))
        else:
            member.sync, member.synced = reply, True
            self._renew(member)
            if member.id == self._leader:
                self._stabilize(request)

    def _stabilize(self, request: api.SyncGroup) -> None:
        for member in self.members.values():
            member.assignment = request.assignments.get(member.id, b"")
        self._enter(STABLE)
        self._store()
        for member in list(self.members.values()):
            if member.sync is not None:
                waiting, member.sync = member.sync, None
                self._renew(member)
                waiting(api.SyncGroupResponse(assignment=member.assignment))

    def _store(self) -> None:
        self._stored = stored_group(self.generation, self._leader, self._protocol, self.members.values())

    # -- living

    def _refused(self, request: Speaker) -> int:
        error = unknown(self.members, request)
        return error or (0 if request.generation == self.generation else _ILLEGAL_GENERATION)

    def _heartbeat(self, request: api.Heartbeat) -> int:
        member = self.members.get(request.member_id)
        error = self._refused(request)
        if member is None or error:
            return error
        self._renew(member)
        return _REBALANCE_IN_PROGRESS if self._state == PREPARING else 0

    def _renew(self, member: GroupMember) -> None:
        member.expires = self._scheduler.now + member.session

    def _monitor(self, member: GroupMember) -> None:
        """Law 5."""
        if self.members.get(member.id) is not member:
            return
        if not member.waits() and self._scheduler.now >= member.expires:
            synced = "no heartbeat within the session time-out"
            self._remove(member, synced if member.synced else "it joined, and neither synced nor beat in time")
            return
        again = member.expires if member.expires > self._scheduler.now else self._scheduler.now + member.session
        self._scheduler.at(again, partial(self._monitor, member))

    def _leave(self, request: api.LeaveGroup) -> int:
        member = self.members.get(request.member_id)
        if request.member_id in self._pending:  # it was no member, and yet Kafka starts a rebalance
            self._pending.discard(request.member_id)
            if self.members:
                self._prepare()
            return 0
        error = unknown(self.members, request)
        if member is not None and not error:
            self._remove(member, "it left")
        return error

    def _remove(self, member: GroupMember, why: str) -> None:
        self._evict(member, why)
        self._prepare()

    def _evict(self, member: GroupMember, why: str, error: int = UNKNOWN_MEMBER_ID) -> None:
        del self.members[member.id]
        self._history.add(member.name, "evicted", why)
        if member.join is not None:
            member.join(api.JoinGroupResponse(error=error, member_id=member.id))
        if member.sync is not None:
            member.sync(api.SyncGroupResponse(error=error))

    def _enter(self, state: str) -> None:
        self._state = state
        self._history.add(BROKER, "group", state, self.generation, tuple(each.name for each in self.members.values()))

    # -- offsets

    def _commit(self, who: str, request: api.OffsetCommit, reply: Reply) -> None:
        error = self._commit_error(request)
        self._exists |= not error
        self._history.add(who, "commit", request.generation, self.committed.take(request, error))
        reply(api.OffsetCommitResponse(errors=dict.fromkeys(request.offsets, error)))

    def _commit_error(self, request: api.OffsetCommit) -> int:
        """Law 2."""
        if request.generation < 0 and self._state == EMPTY:
            return 0
        if not self._exists:
            return _GROUP_ID_NOT_FOUND
        member = self.members.get(request.member_id)
        error = self._refused(request)
        if member is None or error:
            return error
        if self._state == COMPLETING:
            return _REBALANCE_IN_PROGRESS
        self._renew(member)
        return 0

    # -- moving

    def moved(self, loading: float) -> None:
        """Law 4: this is another node now; what waited at the old one is told so. Sessions begin when it has loaded."""
        waiting = [(each.join, each.sync) for each in self.members.values()]
        stored = self._stored
        self.members = {member.id: replace(member) for member in stored.members}
        self.generation, self._leader, self._protocol = stored.generation, stored.leader, stored.protocol
        self._pending.clear()
        self._barrier += 1
        self._first = None
        self._enter(STABLE if self.members else EMPTY)
        for member in self.members.values():
            member.expires = self._scheduler.now + loading + member.session
            self._monitor(member)
        for join, sync in waiting:
            if join is not None:
                join(api.JoinGroupResponse(error=_NOT_COORDINATOR))
            if sync is not None:
                sync(api.SyncGroupResponse(error=_NOT_COORDINATOR))
