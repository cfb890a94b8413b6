"""A scripted network side: the tests play the brokers, the application and the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from instride._core.events import (
    EARLIEST,
    ApplicationEvent,
    Assigned,
    BackgroundEvent,
    CallCompleted,
    CallsCompleted,
    Commit,
    CompleteRevoke,
    FetchOffsets,
    PartitionsAssigned,
    PositionsFound,
    Subscribe,
)
from instride._core.network.actions import (
    Action,
    CloseConnection,
    ConnectionKey,
    Deliver,
    Log,
    OpenConnection,
    PerformAssignment,
    Stop,
    Transmit,
)
from instride._core.network.machine import NetworkMachine
from instride._core.session_lease import Lease
from instride._wire import api
from instride._wire.consumer_protocol import Assignment, Subscription, read_subscription, write_assignment
from instride._wire.group_notice import GroupNotice, write_notice
from instride.commits import CommitEntry
from instride.config import ConsumerConfig
from instride.errors import ErrorCode, TransportError
from instride.records import TopicPartition

__all__ = ["NOTHING_PENDING", "NetworkScript", "single", "tp"]

R = TypeVar("R")
E = TypeVar("E")

NO_SUCH_PARTITION = 9999
NOTHING_PENDING = GroupNotice(members=1, place=0, withheld=0)


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def single(event: BackgroundEvent) -> Sequence[BackgroundEvent]:
    """What is told together, each as an event of its own."""
    if isinstance(event, CallsCompleted):
        return event.calls
    return event.positions if isinstance(event, PositionsFound) else [event]


class NetworkScript:
    """One network machine against brokers that say what the test says.

    Metadata (unless `hold_metadata`), FindCoordinator and OffsetFetch get their responses at once. Connections open at
    once, unless `reachable` is False; then `refusal` says why. Topics that begin with __ are internal. An assignor ends
    at once, unless `hold_assigning`: then each waits in `assigning` for `assigned`.
    Everything else waits in `waiting` until the test responds.
    """

    def __init__(
        self, *, topics: dict[str, int] | None = None, random: Callable[[], float] = lambda: 0.5, **settings: Any
    ) -> None:
        defaults: dict[str, Any] = {"bootstrap_servers": "test:9092", "group_id": "g", "auto_offset_reset": "earliest"}
        self.config = ConsumerConfig(**{**defaults, **settings})
        self.lease = Lease()
        self.machine = NetworkMachine(self.config, lease=self.lease, random=random, wall_clock=lambda: self.wall_clock)
        self.topics = topics if topics is not None else {"t": 4}
        self.now = 100.0
        self.wall_clock = 1_700_000_000.0
        self.reachable = True
        self.refusal: Exception = TransportError("refused")
        self.hold_metadata = False
        self.hold_assigning = False
        self.assigning: list[PerformAssignment] = []
        self.topic_errors: dict[str, int] = {}
        # What the metadata says: brokers, and of each partition of topic "t" its leader and the leader's epoch.
        self.nodes: tuple[int, ...] = (1,)
        self.leaders: dict[int, int] = {}
        self.leader_epochs: dict[int, int] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.committed_offset: int | None = 0
        self.coordinator_error = 0
        self.coordinator = 1
        self.coordinator_host = "b"
        self.waiting: list[Transmit] = []
        self.delivered: list[BackgroundEvent] = []
        # How many events came up; several completed calls may be one.
        self.events = 0
        self.logs: list[str] = []
        self.levels: list[int] = []
        self.stopped = False
        self.metadata_responses = 0
        self.attempts: list[tuple[str, int]] = []
        self.open: set[ConnectionKey] = set()
        self._calls = 1000

    # -- the shell

    def do(self, *events: ApplicationEvent) -> None:
        for event in events:
            self.machine.handle(event, self.now)
        self.settle()

    def settle(self) -> None:
        """Tick until there is nothing to do at this moment."""
        for _ in range(100):
            if not self.turn():
                assert self.machine.deadline() > self.now, "a deadline that is past would keep the thread awake"
                return
        raise AssertionError("the machine never settles")

    def turn(self) -> list[Action]:
        """One tick, and what it says is done."""
        actions = self.machine.tick(self.now)
        for action in actions:
            self._act(action)
        return actions

    def pass_time(self, seconds: float) -> None:
        """Tick at every deadline on the way."""
        end = self.now + seconds
        for _ in range(100_000):
            self.settle()
            self.now = min(max(self.machine.deadline(), self.now + 0.001), end)
            if self.now >= end:
                self.settle()
                return
        raise AssertionError("too many deadlines")

    def _act(self, action: Action) -> None:
        if isinstance(action, OpenConnection):
            self.attempts.append((action.host, action.port))
        match action:
            case OpenConnection() if self.reachable:
                self.open.add(action.key)
                self.machine.opened(action.key, self.now)
            case OpenConnection():
                self.machine.closed(action.key, self.refusal, self.now)
            case Transmit():
                self.waiting.append(action)
                self._respond_at_once(action)
            case CloseConnection():
                self.open.discard(action.key)
                self.waiting = [each for each in self.waiting if each.key != action.key]
            case Deliver():
                self.events += 1
                self.delivered += single(action.event)
            case Log():
                self.logs.append(action.message)
                self.levels.append(action.level)
            case PerformAssignment():
                self.assigning.append(action)
                if not self.hold_assigning:
                    self.assigned()
            case Stop():
                self.stopped = True

    def _respond_at_once(self, action: Transmit) -> None:
        request = action.request
        if isinstance(request, api.Metadata) and not self.hold_metadata:
            self.response(api.Metadata, self.metadata(request), settle=False)
        elif isinstance(request, api.FindCoordinator):
            node = self.coordinator
            found = api.FindCoordinatorResponse(
                error=self.coordinator_error, node_id=node, host=self.coordinator_host, port=node
            )
            self.response(api.FindCoordinator, found, settle=False)
        elif isinstance(request, api.OffsetFetch) and self.committed_offset is not None:
            offsets = {each: api.CommittedOffset(offset=self.committed_offset) for each in request.partitions}
            self.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=offsets), settle=False)

    def metadata(self, request: api.Metadata) -> api.MetadataResponse:
        def topic(name: str) -> api.MetadataTopic:
            if name in self.topic_errors:
                return api.MetadataTopic(name=name, error=self.topic_errors[name])
            if name not in self.topics:
                return api.MetadataTopic(name=name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partitions = tuple(
                api.MetadataPartition(
                    partition=p, leader=self.leaders.get(p, 1), leader_epoch=self.leader_epochs.get(p, -1)
                )
                for p in range(self.topics[name])
            )
            return api.MetadataTopic(
                name=name,
                partitions=partitions,
                is_internal=name.startswith("__"),
                topic_id=self.topic_ids.get(name, api.NO_TOPIC_ID),
            )

        brokers = tuple(api.Broker(node_id=node, host="b", port=node) for node in self.nodes)
        names = self.topics if request.topics is None else request.topics
        return api.MetadataResponse(brokers=brokers, topics=tuple(topic(name) for name in names))

    def assigned(self) -> None:
        """The one that is assigning ends."""
        (action,) = self.assigning
        self.assigning.clear()
        self.machine.assignment_performed(action, action.outcome(), self.now)

    # -- the brokers

    def requested(self, kind: type[R]) -> R:
        """The one request of this kind that waits for its response."""
        found = [each.request for each in self.waiting if isinstance(each.request, kind)]
        assert len(found) == 1, f"{len(found)} of {kind.__name__} wait; there are {self.waits()}"
        return found[0]

    def waits(self) -> list[str]:
        return [type(each.request).__name__ for each in self.waiting]

    def response(self, kind: type[Any], response: api.Response | Exception, *, settle: bool = True) -> None:
        """Respond to the oldest request of this kind."""
        action = next(each for each in self.waiting if isinstance(each.request, kind))
        self.waiting.remove(action)
        self.metadata_responses += isinstance(response, api.MetadataResponse)
        self.machine.response_received(action.request_id, response, self.now)
        if settle:
            self.settle()

    def fresh_metadata(self) -> None:
        """The machine hears what the metadata says now."""
        self.settle()
        self.pass_time(self.config.retry_backoff_max * 2)
        before = self.metadata_responses
        # A question about a partition without a leader asks for it; the question itself ends at once.
        self.do(FetchOffsets(call=-1, deadline=self.now + 0.001, timestamps={tp(NO_SUCH_PARTITION): EARLIEST}))
        self.pass_time(0.002)
        self.delivered = [each for each in self.delivered if not (isinstance(each, CallCompleted) and each.call == -1)]
        assert self.metadata_responses > before

    def log_reaches(self, start: int, end: int, *, partition: int = 0) -> None:
        """Respond to both requests of a look whether an offset is out of range."""
        for offset in (start, end):
            listed = api.ListOffsetsResponse(offsets={tp(partition): api.ListedOffset(offset=offset)})
            self.response(api.ListOffsets, listed)

    # -- the group

    def subscribe(self, *topics: str, listener: bool = False) -> None:
        self.do(Subscribe(topics=frozenset(topics or ("t",)), listener=listener))

    def join(self, generation: int, *, leader: bool = False, member_id: str = "me", others: Sequence[str] = ()) -> None:
        request = self.requested(api.JoinGroup)
        mine = api.GroupMember(member_id=member_id, metadata=request.protocols[0].metadata)
        self.response(
            api.JoinGroup,
            api.JoinGroupResponse(
                generation=generation,
                protocol=request.protocols[0].name,
                leader=member_id if leader else "another",
                member_id=member_id,
                members=(mine,) if leader else (),
            ),
        )

    def sync(self, *partitions: int, notice: GroupNotice | None = NOTHING_PENDING) -> None:
        """notice: of the group's leader; None where that is another client."""
        userdata = None if notice is None else write_notice(notice)
        bytes_ = write_assignment(Assignment(partitions=tuple(tp(p) for p in partitions), userdata=userdata))
        self.response(api.SyncGroup, api.SyncGroupResponse(assignment=bytes_))

    def rebalance(self, generation: int, *partitions: int, notice: GroupNotice | None = NOTHING_PENDING) -> None:
        """A whole round: the pending join gets its response, then the sync."""
        self.join(generation)
        self.sync(*partitions, notice=notice)

    def member_of(self, generation: int, *partitions: int, listener: bool = False) -> None:
        """A stable member that owns these."""
        self.subscribe(listener=listener)
        self.rebalance(generation, *partitions)
        self.do(PartitionsAssigned(generation=generation))

    def heartbeat(self, error: int = 0) -> None:
        self.pass_time(self.config.heartbeat_interval)
        self.response(api.Heartbeat, api.HeartbeatResponse(error=error))

    def joining_with(self) -> Subscription:
        """What the pending join says of us."""
        return read_subscription(self.requested(api.JoinGroup).protocols[0].metadata)

    # -- the application

    def take(self, kind: type[E]) -> list[E]:
        """Events of a kind that were delivered since the last look."""
        found: list[E] = [event for event in self.delivered if isinstance(event, kind)]
        self.delivered = [event for event in self.delivered if not isinstance(event, kind)]
        return found

    def epoch(self, partition: int) -> int:
        """The newest epoch that was assigned of it."""
        epochs = [event.partitions.get(tp(partition), -1) for event in self.delivered if isinstance(event, Assigned)]
        return max(epochs)

    def commit(self, offsets: dict[int, int], *, epoch: int | None = None, seek_number: int = 0, **options: Any) -> int:
        self._calls += 1
        entries = {
            tp(p): CommitEntry(offset=offset, epoch=self.epoch(p) if epoch is None else epoch, seek_number=seek_number)
            for p, offset in offsets.items()
        }
        self.do(Commit(call=self._calls, deadline=self.now + options.pop("timeout", 60.0), entries=entries, **options))
        return self._calls

    def complete(self, *partitions: int) -> None:
        self.do(CompleteRevoke(partitions={tp(p): self.epoch(p) for p in partitions}))

    def committed(self, error: int = 0) -> dict[int, int]:
        """Respond to the OffsetCommit that waits; what it said, by partition."""
        request = self.requested(api.OffsetCommit)
        self.response(api.OffsetCommit, api.OffsetCommitResponse(errors=dict.fromkeys(request.offsets, error)))
        return {key[1]: each.offset for key, each in request.offsets.items()}
