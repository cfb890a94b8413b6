"""The network machine: what happens on the network thread.

Laws
1. No socket, clock, thread or random number: events, responses and the time come in; actions and the next
   deadline go out. `random` is an argument.
2. Whatever came in, `tick` then polls every part, until nothing changes any more. A part that says in its `poll_at` or
   `under_way` that it has nothing to do is left out: it would have done nothing (tests/simulation).
3. A part calls another's methods, and reads nothing of its insides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never
from uuid import UUID

from instride._core.assignors.selection import common_protocol, pick_assignors
from instride._core.events import (
    ApplicationEvent,
    Assign,
    ChangeSettings,
    Close,
    Commit,
    CompleteRevoke,
    Consumed,
    DelayExplained,
    EnforceRebalance,
    Epochs,
    FetchCommitted,
    FetchMetadata,
    FetchOffsets,
    PartitionsAssigned,
    PartitionsRevoked,
    Pause,
    Polled,
    Resume,
    SetPosition,
    Subscribe,
    UnreadablePartitions,
    Unsubscribe,
)
from instride._core.metrics.meters import Buffered, NetworkMeter
from instride._core.network.actions import Action, ConnectionKey, PerformAssignment
from instride._core.network.assigned_partitions import AssignedPartitions
from instride._core.network.assignment import MemberAssignment
from instride._core.network.closing import Closing
from instride._core.network.cluster import Cluster
from instride._core.network.commits import Commits
from instride._core.network.context import Context, OwnershipEvent
from instride._core.network.coordinator import Coordinator, CoordinatorInput
from instride._core.network.fetcher import Fetcher
from instride._core.network.group import Group, Membership
from instride._core.network.lookups import Lookups
from instride._core.network.positions import Positions
from instride._core.network.ranges import LogEnds
from instride._core.network.subscription import PatternSubscription
from instride._core.network.telemetry_monitor import Monitor
from instride._core.ownership import RebalanceProtocol
from instride._core.session_lease import Lease
from instride._wire import api
from instride.config import ConsumerConfig
from instride.records import TopicPartition

__all__ = ["NetworkMachine"]

# More rounds than any chain of consequences needs; a bug that never settles must not hang the thread.
_MOST_ROUNDS = 50


class NetworkMachine:
    """One consumer's network side. Not thread-safe.

    ranges: ask for the ends of the partitions instead of fetching records.
    random: numbers in [0, 1), for the jitter of back-offs. wall_clock: seconds since 1970, for a reset by duration.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        lease: Lease,
        random: Callable[[], float],
        wall_clock: Callable[[], float],
        ranges: bool = False,
    ) -> None:
        assignors = pick_assignors(config.assignors)
        self.protocol: RebalanceProtocol = common_protocol(assignors)
        # The two parts that are named here are made below: nothing is delivered, or lacks a leader, before that.
        self._context = Context(config, random, wall_clock, self._delivered)
        self._cluster = Cluster(self._context, wanted=lambda tp: tp in self._assignment.partitions)
        self._coordinator = Coordinator(self._context, self._cluster)
        self._membership = membership = Membership(self._context, self._coordinator, lease)
        self._commits = Commits(
            self._context,
            self._cluster,
            self._coordinator,
            membership=membership,
            holds=self._holds,
            topic_id=self._topic_id,
            completes=self._completes,
            revoked_by=self._revoked_by,
            group_refused=self._group_refused,
        )
        self._assignment = MemberAssignment(
            self._context,
            self.protocol,
            commit_outstanding=self._commits.outstanding,
            outstanding_epochs=self._commits.outstanding_epochs,
            commit_in_flight=self._commits.in_flight,
            abandon_commit=self._commits.abandon,
            released=membership.rejoin,
            ended=self._commits.assignment_ended,
        )
        self._group = Group(
            self._context,
            self._cluster,
            self._coordinator,
            membership=membership,
            assignment=self._assignment,
            commits_deferred=self._commits.deferred,
            assignors=assignors,
            protocol=self.protocol,
        )
        assigned = self._assigned_partitions
        self._positions = Positions(self._context, self._cluster, self._coordinator, assigned, self._assignment.parting)
        reader: type[Fetcher | LogEnds] = LogEnds if ranges else Fetcher
        self._reader = reader(self._context, self._cluster, self._positions, assigned)
        self._pattern = PatternSubscription(self._context, self._cluster, self._group)
        self._lookups = Lookups(self._context, self._cluster, self._coordinator)
        self._closing = Closing(
            self._context, self._coordinator, self._group, self._assignment, self._commits, self._lookups
        )
        self._monitor = Monitor(self._context, self._group, self._cluster, assigned)
        self._coordinator.move(CoordinatorInput.STARTED)
        self._deadline = 0.0
        # What the cluster follows.
        self._followed: tuple[object, ...] = ()
        # As of the last tick: whether what was consumed is to be told at once, and from when on a poll is. Else it may
        # wait for the next tick. Any thread may read them.
        self.waits_for_capacity = True
        self.awaits_poll_at = float("-inf")
        # As the application said last.
        self._unreadable_partitions: Epochs = {}

    @property
    def meter(self) -> NetworkMeter:
        """Any thread may read it."""
        return self._context.connections.meter

    def buffered(self) -> Buffered:
        """Any thread may ask. The limit is loose: what is decoded is within a half of fetch_buffer_bytes, or small, or
        one batch that passes alone (the fetcher's law C3). That one may be larger than the limit."""
        config = self._context.config
        assigned = self._assigned_partitions().copy().values()
        limit = config.fetch_buffer_bytes + len(assigned) * config.max_partition_fetch_bytes
        return Buffered(sum(each.nbytes for each in assigned), limit)

    # -- in

    def handle(self, event: ApplicationEvent, now: float) -> None:
        """An application event, in the order of the queue."""
        self._context.now = now
        match event:
            case Polled(at=at):
                self._context.connections.polled()
                self._context.standing.polled()
                self._group.polled(at, now)
            case Consumed():
                self._consumed(event)
            case UnreadablePartitions():
                self._unreadable(event)
            case SetPosition() | Pause() | Resume():
                self._moved(event)
            case Commit():
                self._commits.add(event, now)
            case CompleteRevoke() | PartitionsRevoked() | DelayExplained():
                self._revoking(event)
            case PartitionsAssigned():
                self._group.taken(event.generation)
            case FetchCommitted() | FetchOffsets() | FetchMetadata():
                self._lookups.add(event)
            case Subscribe() | Assign() | Unsubscribe() | Close():
                self._begin_or_end(event, now)
            case EnforceRebalance():
                self._group.enforce(event.reason)
            case ChangeSettings():
                self._context.config = event.config
            case _:
                assert_never(event)
        self._handled(now)

    def opening(self, key: ConnectionKey, standing: str) -> None:
        """standing: how far the connection came, for whoever is told that it never opened."""
        self._context.connections.opening(key, standing)

    def opened(self, key: ConnectionKey, now: float) -> None:
        self._context.now = now
        self._context.connections.opened(key, now)
        self._handled(now)

    def closed(self, key: ConnectionKey, error: Exception, now: float) -> None:
        self._context.now = now
        self._context.connections.closed(key, error, now)
        self._handled(now)

    def response_received(self, request_id: int, result: api.Response | Exception, now: float) -> None:
        self._context.now = now
        self._context.connections.response_received(request_id, result, now)
        self._handled(now)

    def assignment_performed(
        self, action: PerformAssignment, result: Mapping[str, bytes] | Exception, now: float
    ) -> None:
        """The outcome of the action: member id -> assignment bytes, or why there are none."""
        self._context.now = now
        self._group.assignment_performed(action, result, now)
        self._handled(now)

    def _handled(self, now: float) -> None:
        if self._membership.state is not self._monitor.state:
            self._monitor.look(now)
        self._context.touch()

    # -- out

    def tick(self, now: float) -> list[Action]:
        """What is to be done now, after everything that came in."""
        self._context.now = now
        if self._context.touched or now >= self._deadline:
            self._context.touched, rounds = True, 0
            while self._context.touched and rounds < _MOST_ROUNDS:
                self._context.touched = False
                self._deadline = self._poll_parts(now)
                rounds += 1
        if now >= self._monitor.poll_at or self._membership.state is not self._monitor.state:
            self._monitor.poll(now)
        self.waits_for_capacity = self._reader.waits_for_capacity
        self.awaits_poll_at = self._awaits_poll_at()
        return self._context.take_actions()

    def deadline(self) -> float:
        """When to tick next if nothing comes in: at once where something did since the last tick."""
        return 0.0 if self._context.touched else self._deadline

    # -- inside

    def _awaits_poll_at(self) -> float:
        context = self._context
        if context.standing.awaits_poll or context.connections.awaits_poll:
            return float("-inf")
        return self._group.awaits_poll_at

    def _poll_parts(self, now: float) -> float:
        self._context.connections.expire(now)
        if self._closing.under_way:
            self._closing.give_up(now)
        self._follow()
        # A part that requests comes before the part that serves it: a complete revoke requests a join, a join may
        # request a commit, most of them request the coordinator and metadata. Else each would wait for the next round.
        times = [
            self._assignment.poll(now) if now >= self._assignment.poll_at else self._assignment.poll_at,
            self._group.poll(now),
            self._commits.poll(now),
            self._poll_positions(now),
            self._reader.poll(now),
            self._lookups.poll(now) if self._lookups.open else float("inf"),
            self._closing.poll(now) if self._closing.under_way else float("inf"),
            self._coordinator.poll(now),
            self._cluster.poll(now) if now >= self._cluster.poll_at else self._cluster.poll_at,
            self._context.standing.poll(now),
            self._context.connections.deadline(),
        ]
        return min(times)

    def _poll_positions(self, now: float) -> float:
        compared = self._positions.metadata_version == self._cluster.version
        if compared and self._assignment.partitions.all_fetching:
            return float("inf")
        return self._positions.poll(now)

    def _follow(self) -> None:
        """The cluster hears which topics are wanted, if these are others than before."""
        subscribed, assigned = self._membership.topics, self._assignment.partitions.topics
        led, everything = self._group.group_topics(), self._pattern.pattern is not None
        asked = self._lookups.topics() if self._lookups.open else frozenset()
        followed = (subscribed, assigned, led, asked, everything)
        if followed != self._followed:
            self._followed = followed
            # The user is told of the topics of the subscription and the assignment, of none that only a fellow member
            # or a single call wants.
            mine = subscribed | assigned
            self._cluster.follow(mine | led | asked, mine=mine, everything=everything)

    # What commits, and the context, ask and tell of parts that are made after them.

    def _delivered(self, event: OwnershipEvent) -> None:
        self._monitor.delivered(event)

    def _holds(self, partition: TopicPartition, epoch: int, seek_number: int) -> bool:
        # That a topic was recreated `Positions` sees only of what is assigned; of what another assign() left behind
        # nobody does.
        known, present = self._assignment.topic_id(partition, epoch), self._cluster.topic_id(partition.topic)
        recreated = known != present and api.NO_TOPIC_ID not in (known, present)
        return not recreated and self._assignment.holds(partition, epoch, seek_number)

    def _topic_id(self, partition: TopicPartition, epoch: int) -> UUID:
        known = self._assignment.topic_id(partition, epoch)
        return known if known != api.NO_TOPIC_ID else self._cluster.topic_id(partition.topic)

    def _completes(self, partition: TopicPartition) -> bool:
        return self._assignment.completes(partition)

    def _revoked_by(self, partition: TopicPartition) -> float:
        return self._assignment.revoked_by(partition)

    def _group_refused(self, code: int, now: float) -> int:
        return self._group.commit_refused(code, now)

    def _assigned_partitions(self) -> AssignedPartitions:
        return self._assignment.partitions

    def _subscribe(self, event: Subscribe, now: float) -> None:
        if event.pattern is not None:
            self._pattern.start(event.pattern, now)
            return
        self._pattern.stop()
        self._group.subscribe(event.topics, now)

    def _begin_or_end(self, event: Subscribe | Assign | Unsubscribe | Close, now: float) -> None:
        if not isinstance(event, Subscribe):
            self._pattern.stop()
        match event:
            case Subscribe():
                self._closing.cut_short(now)
                self._assignment.listener = event.listener
                self._subscribe(event, now)
            case Assign():
                self._closing.cut_short(now)
                self._assignment.assign_by_hand(event.partitions)
            case Unsubscribe() | Close():
                if isinstance(event, Close):
                    self._reader.end(now)
                self._closing.begin(event, now)
            case _:
                assert_never(event)

    def _revoking(self, event: CompleteRevoke | PartitionsRevoked | DelayExplained) -> None:
        match event:
            case CompleteRevoke():
                if event.leaving_by is not None:
                    self._closing.is_to_come(event.leaving_by)
                self._assignment.complete(event.partitions)
            case PartitionsRevoked():
                self._assignment.listener_done(event.partitions)
            case DelayExplained():
                self._monitor.explained(event)
            case _:
                assert_never(event)

    def _consumed(self, event: Consumed) -> None:
        for tp, (epoch, fetch_number, records, nbytes) in event.partitions.items():
            assigned = self._assignment.get(tp, epoch)
            if assigned is not None:
                assigned.consumed(fetch_number, records, nbytes)

    def _unreadable(self, event: UnreadablePartitions) -> None:
        before, self._unreadable_partitions = self._unreadable_partitions, event.partitions
        for unreadable, partitions in ((False, before), (True, event.partitions)):
            for tp, epoch in partitions.items():
                assigned = self._assignment.get(tp, epoch)
                if assigned is not None:
                    assigned.unreadable = unreadable

    def _moved(self, event: SetPosition | Pause | Resume) -> None:
        assigned = self._assignment.get(event.partition, event.epoch)
        if assigned is None:
            return
        match event:
            case SetPosition():
                self._positions.move(assigned, event)
            case Pause():
                assigned.paused = True
            case Resume():
                assigned.paused = False
            case _:
                assert_never(event)
