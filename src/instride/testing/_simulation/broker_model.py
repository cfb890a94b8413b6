"""A model of the brokers: logs, leaders, metadata, long polls, and which node is the group's coordinator.

Laws
1. A Fetch ends as soon as there are records of min_bytes or an error for it, else when its max_wait ends; and
   of every partition that it names, but in a session (`session_model`).
2. A node that does not lead a partition, or is not the coordinator, says so. One that still loads the group responds
   COORDINATOR_LOAD_IN_PROGRESS, and NONE to heartbeats, as Kafka does.
3. A node that is down serves nothing; the cluster calls `cut` on its connections.
4. What is refused for a while (`refusals`) is refused by every node, the present coordinator for the group.
5. What is "produced", and where there is a "hole", is written down as a reader of committed records sees it: the holes
   of a transaction before the end of the log that has them.
6. An unclean election is of a node whose log ends earlier. A record is known by its offset and its leader epoch: what
   is written from there on has a newer one.
7. A topic that is deleted takes its logs with it, and what the group has committed of it. One of the same name is
   created after it: with another id, from offset 0 and leader epoch 0 on, led by other nodes. In between nobody finds
   it; what is written meanwhile is there once it is created. Who names an id that is not the present one (Fetch,
   OffsetCommit, OffsetFetch) is told UNKNOWN_TOPIC_ID; who waits for records of a topic as it is deleted, or fetches it
   in a session (its law 5), that there is no such partition, or that its id is another one. ListOffsets and
   OffsetForLeaderEpoch know names only.
8. A node other than the coordinator may learn of that later (`Former`): until then it tells of, and serves, the old
   one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypedDict
from uuid import UUID

from instride._wire import api
from instride.errors import CorruptRecordError
from instride.errors.codes import ErrorCode
from instride.records import TopicPartition
from instride.testing._simulation.chunk import RECORD_BYTES, SimulatedBatches, SimulatedChunk, epoch_at
from instride.testing._simulation.coordinator_model import GroupModel
from instride.testing._simulation.former import Former
from instride.testing._simulation.history import BROKER, History
from instride.testing._simulation.links import Reply
from instride.testing._simulation.log_model import Found, LogModel
from instride.testing._simulation.refusals import NO_RESPONSE, RESPONSE_LOST, Refusals
from instride.testing._simulation.scheduler import Scheduler
from instride.testing._simulation.session_model import Requested, SessionModel
from instride.testing._simulation.topic_ids import epochs_before, id_of

__all__ = ["HOST", "PORT", "BrokerModel"]

HOST = "broker"
PORT = 9092
_OFFSET_OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
_UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_UNKNOWN_TOPIC_ID = ErrorCode.UNKNOWN_TOPIC_ID
_INCONSISTENT_TOPIC_ID = ErrorCode.INCONSISTENT_TOPIC_ID
_NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
_LOAD_IN_PROGRESS = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
_NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
_FENCED_LEADER_EPOCH = ErrorCode.FENCED_LEADER_EPOCH
_UNKNOWN_LEADER_EPOCH = ErrorCode.UNKNOWN_LEADER_EPOCH
_LATEST = -1
_BEHIND = 1.5
"""Seconds, at most, that a node is behind."""


class _Records(TypedDict, total=False):
    """The part of a fetched partition that has to do with records."""

    chunk: SimulatedChunk
    undecoded: SimulatedBatches
    next_offset: int
    leader_epoch: int


class _LongPoll:
    """A Fetch. waits: for records."""

    __slots__ = ("node", "over", "reply", "request", "requested", "waits")

    def __init__(self, node: int, request: api.Fetch, requested: Requested, reply: Reply) -> None:
        self.node = node
        self.request = request
        self.requested = requested
        self.reply = reply
        self.over = False
        self.waits = False


class BrokerModel:
    """nodes: 1 to `nodes`. Partitions are led in turns; node 1 begins as coordinator."""

    def __init__(
        self,
        scheduler: Scheduler,
        history: History,
        *,
        nodes: int,
        topics: dict[str, int],
        initial_delay: float,
        batches: bool = False,
        ids: bool = False,
        late: float = 0.0,
    ) -> None:
        """batches: as in a plan. ids: whether topics have ids (Kafka 2.8; in OffsetCommit 4.1). late: how likely a node
        learns late of a topic's deletion."""
        self._scheduler = scheduler
        self._history = history
        self.refusals = Refusals(scheduler)
        self._batches = batches
        self._polls: list[_LongPoll] = []
        self._nodes = tuple(range(1, nodes + 1))
        self._sessions = {node: SessionModel(node * 1_000_000) for node in self._nodes}
        self._topics = topics
        self._ids, self._late = ids, late
        # How often each was recreated; those that are deleted, and not created yet.
        self._recreated = dict.fromkeys(topics, 0)
        self._deleted: set[str] = set()
        # Law 8: by node and topic.
        self._behind: dict[tuple[int, str], Former] = {}
        self._loading_until = 0.0
        partitions = [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
        self.logs = {tp: LogModel() for tp in partitions}
        self.leaders = {tp: self._nodes[place % nodes] for place, tp in enumerate(partitions)}
        self.leader_epochs: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
        # Of which a fetch was refused since the group committed a place that the log had.
        self.out_of_range: set[TopicPartition] = set()
        self.truncated: set[TopicPartition] = set()
        # Of each log, the offset at which each epoch begins.
        self.epoch_starts: dict[TopicPartition, list[int]] = {tp: [0] for tp in partitions}
        self.coordinator = 1
        self.group = GroupModel(scheduler, history, initial_delay=initial_delay)
        self._metadata: dict[tuple[str, ...] | None, api.MetadataResponse] = {}

    # -- what happens to it

    def produce(self, tp: TopicPartition, count: int) -> None:
        self.logs[tp].append(count)
        self._appended(tp)

    def transact(self, tp: TopicPartition, count: int, seconds: float, *, commit: bool) -> None:
        """Produce in a transaction that ends so many seconds later. Without records nothing is written."""
        if not count:
            return
        log = self.logs[tp]
        number = log.begin(count)
        self._scheduler.after(seconds, partial(self._end_transaction, tp, log, number, commit=commit))

    def _end_transaction(self, tp: TopicPartition, log: LogModel, number: int, *, commit: bool) -> None:
        if log is not self.logs[tp]:
            return
        holes = log.finish(number, commit=commit)
        for hole in holes:
            self._history.add(BROKER, "hole", tp, hole[0], hole[-1])
        if holes:
            self._appended(tp)

    def compact(self, tp: TopicPartition) -> None:
        for offset in self.logs[tp].compact(self._scheduler.random):
            self._history.add(BROKER, "hole", tp, offset, offset)

    def retain(self, tp: TopicPartition, count: int) -> None:
        """Only the last `count` offsets are left."""
        taken = self.logs[tp].retain(count)
        if taken:
            self._history.add(BROKER, "hole", tp, taken[0], taken[-1])
            self._history.add(BROKER, "log starts", tp, taken.stop)
            self._respond_to_those_due()

    def _appended(self, tp: TopicPartition) -> None:
        """Law 5."""
        self._history.add(BROKER, "produced", tp, self.logs[tp].stable)
        self._respond_to_those_due()

    def _respond_to_those_due(self) -> None:
        for poll in [each for each in self._polls if self._is_due(each)]:
            self._respond_to_poll(poll)

    def move_coordinator(self, loading: float) -> None:
        """To the next node, which loads the group for so many seconds."""
        self.coordinator = self._next_node(self.coordinator)
        for topic in self._topics:
            self._catch_up(self.coordinator, topic)
        self._loading_until = self._scheduler.now + loading
        self._history.add(BROKER, "moved", self.coordinator, round(loading, 3))
        self.group.moved(loading)

    def _next_node(self, node: int) -> int:
        return self._nodes[(self._nodes.index(node) + 1) % len(self._nodes)]

    def truncate(self, tp: TopicPartition, count: int) -> None:
        """Law 6: so many offsets at the end of the log are lost, as far as it has them."""
        log = self.logs[tp]
        before = log.end
        log.truncate(log.end - count)
        self.epoch_starts[tp] = [min(start, log.end) for start in self.epoch_starts[tp]]
        if log.end < before:
            self.truncated.add(tp)
            told = epochs_before(self.topic_id(tp.topic)) + self.leader_epochs[tp] + 1
            self._history.add(BROKER, "truncated", tp, log.end, told)
        self.move_leader(tp)

    def move_leader(self, tp: TopicPartition) -> None:
        self.leaders[tp] = self._next_node(self.leaders[tp])
        self.leader_epochs[tp] += 1
        self.epoch_starts[tp].append(self.logs[tp].end)
        self._metadata.clear()
        self._history.add(BROKER, "leader", tp, self.leaders[tp])
        self._respond_to_those_due()

    def recreate(self, topic: str, seconds: float) -> None:
        """Law 7: delete it, and create it so many seconds later."""
        if topic in self._deleted:
            return
        self._fall_behind(topic)
        self._take_away(topic)
        if seconds:
            self._scheduler.after(seconds, partial(self.create, topic))
        else:
            self.create(topic)
        self._metadata.clear()
        self._respond_to_those_due()

    def delete(self, topic: str) -> None:
        """Law 7. It stays away until it is created."""
        self._take_away(topic)
        self._metadata.clear()
        self._respond_to_those_due()

    def _take_away(self, topic: str) -> None:
        self._recreated[topic] += 1
        for tp in [each for each in self.logs if each.topic == topic]:
            self.logs[tp] = LogModel()
            self.leaders[tp] = self._next_node(self.leaders[tp])
            self.leader_epochs[tp], self.epoch_starts[tp] = 0, [0]
            self.truncated.discard(tp)
            self.group.committed.forget(tp)
            self._history.recreated.add(tp)
            self._history.add(BROKER, "recreated", tp, epochs_before(self.topic_id(topic)))
        self._deleted.add(topic)

    def _fall_behind(self, topic: str) -> None:
        """Law 8: by one topic, and no more."""
        chance = self._scheduler.random
        late = [each for each in self._nodes if each != self.coordinator and chance.random() < self._late]
        for node in self._nodes:
            self._catch_up(node, topic)
        for node in late:
            self._behind[node, topic] = Former(
                described=self._describe_topic(topic),
                topic_id=self.topic_id(topic),
                logs=dict(self.logs),
                leaders=dict(self.leaders),
                leader_epochs=dict(self.leader_epochs),
                epoch_starts=dict(self.epoch_starts),
            )
            self._scheduler.after(chance.uniform(0.0, _BEHIND), partial(self._catch_up, node, topic))

    def _catch_up(self, node: int, topic: str) -> None:
        if self._behind.pop((node, topic), None) is not None:
            self._respond_to_those_due()

    def _seen(self, node: int, topic: str) -> BrokerModel | Former:
        return self._behind.get((node, topic), self) if self._behind else self

    def create(self, topic: str) -> None:
        self._deleted.discard(topic)
        self._metadata.clear()
        self._history.add(BROKER, "created", topic)

    def topic_id(self, topic: str) -> UUID:
        return id_of(topic, self._recreated[topic]) if self._ids else api.NO_TOPIC_ID

    def restarted(self, node: int) -> None:
        self._sessions[node].forget_all()

    # -- what it is asked

    def serve(self, node: int, who: str, request: api.Request, reply: Reply) -> None:
        match request:
            case api.Fetch():
                self._fetch(node, request, reply)
            case api.Metadata():
                reply(self._describe(node, request.topics))
            case api.FindCoordinator():
                reply(self._find_coordinator())
            case api.ListOffsets():
                reply(
                    api.ListOffsetsResponse(offsets={tp: self._listed(node, tp, request) for tp in request.timestamps})
                )
            case api.OffsetForLeaderEpoch():
                ends = {tp: self._epoch_end(node, TopicPartition(*tp), tp, request) for tp in request.epochs}
                reply(api.OffsetForLeaderEpochResponse(ends=ends))
            case _:
                self._serve_group(node, who, request, reply)

    def _serve_group(self, node: int, who: str, request: api.Request, reply: Reply) -> None:
        """Law 2."""
        if node != self.coordinator:
            reply(_refusal(request, _NOT_COORDINATOR))
        elif self._scheduler.now < self._loading_until:
            blind = isinstance(request, api.Heartbeat)
            if blind:
                self._history.add(who, "blind")
            reply(_refusal(request, 0 if blind else _LOAD_IN_PROGRESS))
        elif code := self.refusals.of_request(request):
            self._refuse(who, request, code, reply)
        else:
            self._serve_member(who, request, reply)

    def _refuse(self, who: str, request: api.Request, code: int, reply: Reply) -> None:
        """Law 4."""
        if code == RESPONSE_LOST:
            self._serve_member(who, request, lambda _response: None)
        elif code != NO_RESPONSE:
            reply(_refusal(request, code))

    def _serve_member(self, who: str, request: api.Request, reply: Reply) -> None:
        if isinstance(request, api.OffsetCommit):
            self._commit(who, request, reply)
        elif isinstance(request, api.OffsetFetch):
            self._look_up(who, request, reply)
        else:
            self.group.handle(who, request, reply)

    def _commit(self, who: str, request: api.OffsetCommit, reply: Reply) -> None:
        """What is no partition of a topic does not reach the group. Law 7."""
        codes = {tp: self._topic_error(TopicPartition(*tp), request.topic_ids.get(tp[0])) for tp in request.offsets}
        missing = {tp: code for tp, code in codes.items() if code}
        there = {tp: offset for tp, offset in request.offsets.items() if tp not in missing}

        def complete(response: api.Response) -> None:
            assert isinstance(response, api.OffsetCommitResponse)
            reply(api.OffsetCommitResponse(errors=missing | response.errors))

        self.group.handle(who, replace(request, offsets=there), complete)
        for tp in self.out_of_range.intersection(there):
            if self.logs[tp].start <= there[tp].offset == self.group.committed.next_offset(tp):
                self.out_of_range.discard(tp)

    def _look_up(self, who: str, request: api.OffsetFetch, reply: Reply) -> None:
        """Law 7. By its name a topic need not be there: then nothing is committed."""
        wrong = [tp for tp in request.partitions if self._is_other_id(tp[0], request.topic_ids.get(tp[0]))]
        refused = dict.fromkeys(wrong, api.CommittedOffset(error=_UNKNOWN_TOPIC_ID))

        def complete(response: api.Response) -> None:
            assert isinstance(response, api.OffsetFetchResponse)
            reply(replace(response, offsets=response.offsets | refused))

        self.group.handle(who, request, complete if wrong else reply)

    def _is_other_id(self, topic: str, topic_id: UUID | None) -> bool:
        """topic_id: None, or NO_TOPIC_ID, where it is asked for by its name."""
        if topic_id is None or topic_id == api.NO_TOPIC_ID:
            return False
        return topic in self._deleted or topic_id != self.topic_id(topic)

    def _topic_error(self, tp: TopicPartition, topic_id: UUID | None = None) -> int:
        if self._is_other_id(tp.topic, topic_id):
            return _UNKNOWN_TOPIC_ID
        return _UNKNOWN_TOPIC if tp not in self.logs or tp.topic in self._deleted else 0

    def _find_coordinator(self) -> api.FindCoordinatorResponse:
        if self._scheduler.now < self._loading_until and self._scheduler.random.random() < 0.3:
            return api.FindCoordinatorResponse(error=_NOT_AVAILABLE)
        if code := self.refusals.of_coordinator():
            return api.FindCoordinatorResponse(error=code)
        return api.FindCoordinatorResponse(node_id=self.coordinator, host=HOST, port=PORT + self.coordinator)

    def _describe(self, node: int, topics: tuple[str, ...] | None) -> api.MetadataResponse:
        refused = {name: code for name in self._topics if (code := self.refusals.of_topic(name))}
        found = self._describe_all(topics)
        if self._behind:
            seen = {name: former.described for (behind, name), former in self._behind.items() if behind == node}
            found = replace(found, topics=tuple(seen.get(each.name, each) for each in found.topics))
        if not refused:
            return found
        told = (api.MetadataTopic(name=t.name, error=refused[t.name]) if t.name in refused else t for t in found.topics)
        return replace(found, topics=tuple(told))

    def _describe_all(self, topics: tuple[str, ...] | None) -> api.MetadataResponse:
        if topics not in self._metadata:
            self._metadata[topics] = api.MetadataResponse(
                brokers=tuple(api.Broker(node_id=node, host=HOST, port=PORT + node) for node in self._nodes),
                topics=tuple(self._describe_topic(name) for name in (self._topics if topics is None else topics)),
            )
        return self._metadata[topics]

    def _describe_topic(self, name: str) -> api.MetadataTopic:
        if name not in self._topics or name in self._deleted:
            return api.MetadataTopic(name=name, error=_UNKNOWN_TOPIC)
        partitions = [TopicPartition(name, number) for number in range(self._topics[name])]
        described = tuple(self._describe_partition(tp) for tp in partitions)
        return api.MetadataTopic(name=name, topic_id=self.topic_id(name), partitions=described)

    def _describe_partition(self, tp: TopicPartition) -> api.MetadataPartition:
        return api.MetadataPartition(
            partition=tp.partition, leader=self.leaders[tp], leader_epoch=self.leader_epochs[tp]
        )

    def _log_error(self, node: int, tp: TopicPartition, epoch: int) -> int:
        """epoch: the leader's as the client knows it, or -1. It is looked at first (KIP-320)."""
        seen = self._seen(node, tp.topic)
        if code := (self._topic_error(tp) if seen is self else 0) or self.refusals.of_partition(tp):
            return code
        if epoch >= 0 and epoch != seen.leader_epochs[tp]:
            return _FENCED_LEADER_EPOCH if epoch < seen.leader_epochs[tp] else _UNKNOWN_LEADER_EPOCH
        return 0 if seen.leaders[tp] == node else _NOT_LEADER

    def _listed(self, node: int, partition: api.Partition, request: api.ListOffsets) -> api.ListedOffset:
        tp = TopicPartition(*partition)
        if error := self._log_error(node, tp, request.leader_epochs.get(partition, -1)):
            return api.ListedOffset(error=error)
        seen = self._seen(node, tp.topic)
        log = seen.logs[tp]
        end = log.stable if request.read_committed else log.end
        at = end if request.timestamps[partition] == _LATEST else log.start
        return api.ListedOffset(offset=at, leader_epoch=seen.leader_epochs[tp])

    def _epoch_end(
        self, node: int, tp: TopicPartition, partition: api.Partition, request: api.OffsetForLeaderEpoch
    ) -> api.EpochEnd:
        if error := self._log_error(node, tp, request.leader_epochs.get(partition, -1)):
            return api.EpochEnd(error=error)
        seen = self._seen(node, tp.topic)
        requested, present = request.epochs[partition], seen.leader_epochs[tp]
        if not 0 <= requested <= present:
            return api.EpochEnd()
        log, starts = seen.logs[tp], seen.epoch_starts[tp]
        if requested == present:
            return api.EpochEnd(leader_epoch=requested, end_offset=log.end)
        end = max(starts[requested + 1], log.start)
        # Of an epoch without records there is none: the one before it is told.
        return api.EpochEnd(leader_epoch=epoch_at(starts, end - 1) if end > log.start else requested, end_offset=end)

    def next_offset(self, tp: TopicPartition, offset: int, leader_epoch: int) -> int:
        """Where reading goes on that reached this offset in that epoch (-1: nobody knows)."""
        starts = self.epoch_starts[tp]
        if leader_epoch < 0 or leader_epoch + 1 >= len(starts):
            return min(offset, self.logs[tp].end)
        return min(offset, max(starts[leader_epoch + 1], self.logs[tp].start))

    # -- fetching

    def _fetch(self, node: int, request: api.Fetch, reply: Reply) -> None:
        requested = self._sessions[node].ask(request, self._scheduler.now)
        if requested.error:
            reply(api.FetchResponse(error=requested.error))
            return
        poll = _LongPoll(node, request, requested, reply)
        self._polls.append(poll)
        if not request.max_wait or not requested.partitions or self._is_due(poll):
            self._respond_to_poll(poll)
        else:
            poll.waits = True
            self._scheduler.after(request.max_wait, partial(self._respond_to_poll, poll))

    def _is_due(self, poll: _LongPoll) -> bool:
        """Law 1."""
        least = max(1, poll.request.min_bytes)
        size = 0
        for tp, requested in poll.requested.partitions.items():
            if self._fetch_error(poll, tp, requested):
                return True
            size += self._read(poll, tp, requested).size * RECORD_BYTES
            if size >= least:
                return True
        return False

    def _respond_to_poll(self, poll: _LongPoll) -> None:
        if not poll.over:
            poll.over = True
            self._polls.remove(poll)
            found = {
                tp: self._fetched(poll, TopicPartition(*tp), each) for tp, each in poll.requested.partitions.items()
            }
            response = self._sessions[poll.node].response(poll.requested, found, self._scheduler.now)
            poll.reply(replace(response, by_id=not poll.request.named) if self._ids else response)

    def _fetch_error(self, poll: _LongPoll, tp: api.Partition, requested: api.FetchPartition) -> int:
        seen = self._seen(poll.node, tp[0])
        if isinstance(seen, Former):
            if requested.topic_id not in (seen.topic_id, api.NO_TOPIC_ID):
                return _UNKNOWN_TOPIC_ID
        elif self._is_other_id(tp[0], requested.topic_id):
            if poll.waits or poll.requested.has_known(tp, requested.topic_id):
                return _UNKNOWN_TOPIC if tp[0] in self._deleted else _INCONSISTENT_TOPIC_ID
            return _UNKNOWN_TOPIC_ID
        error = self._log_error(poll.node, TopicPartition(*tp), requested.leader_epoch)
        log = seen.logs.get(TopicPartition(*tp))
        if not error and log is not None and not log.start <= requested.offset <= log.end:
            self.out_of_range.add(TopicPartition(*tp))
            return _OFFSET_OUT_OF_RANGE
        return error

    def _read(self, poll: _LongPoll, tp: api.Partition, requested: api.FetchPartition) -> Found:
        most = max(1, requested.max_bytes // RECORD_BYTES)
        log = self._seen(poll.node, tp[0]).logs[TopicPartition(*tp)]
        return log.read(requested.offset, most, committed=poll.request.read_committed)

    def _fetched(self, poll: _LongPoll, tp: TopicPartition, requested: api.FetchPartition) -> api.FetchedPartition:
        if error := self._fetch_error(poll, tp, requested):
            return api.FetchedPartition(error=error)
        found, seen = self._read(poll, tp, requested), self._seen(poll.node, tp.topic)
        log = seen.logs[tp]
        if found.offsets and self.refusals.is_corrupt(tp):
            corrupt = CorruptRecordError(f"{tp}: the batch at {requested.offset} is corrupt")
            return api.FetchedPartition(
                high_watermark=log.end, last_stable_offset=log.stable, next_offset=requested.offset, corrupt=corrupt
            )
        return api.FetchedPartition(
            high_watermark=log.end,
            last_stable_offset=log.stable,
            log_start_offset=log.start,
            **self._records(seen, tp, requested, found),
        )

    def _records(
        self, seen: BrokerModel | Former, tp: TopicPartition, requested: api.FetchPartition, found: Found
    ) -> _Records:
        end_epoch = epoch_at(seen.epoch_starts[tp], found.next_offset - 1)
        if not found.offsets:
            return _Records(next_offset=found.next_offset, leader_epoch=end_epoch)
        chunk = self._chunk(seen, tp, found)
        if not self._batches:
            return _Records(chunk=chunk, next_offset=found.next_offset)
        batches = SimulatedBatches(chunk, found.next_offset, end_epoch, self._scheduler.random)
        return _Records(undecoded=batches, next_offset=requested.offset)

    def _chunk(self, seen: BrokerModel | Former, tp: TopicPartition, found: Found) -> SimulatedChunk:
        topic_id = seen.topic_id if isinstance(seen, Former) else self.topic_id(tp.topic)
        return SimulatedChunk(
            topic=tp.topic,
            partition=tp.partition,
            first_offset=found.offsets[0],
            next_offset=found.next_offset,
            offsets=() if isinstance(found.offsets, range) else tuple(found.offsets),
            epoch_starts=tuple(seen.epoch_starts[tp]),
            epochs_before=epochs_before(topic_id),
        )


def _refusal(request: api.Request, code: int) -> api.Response:
    match request:
        case api.JoinGroup():
            return api.JoinGroupResponse(error=code, member_id=request.member_id)
        case api.OffsetCommit():
            return api.OffsetCommitResponse(errors=dict.fromkeys(request.offsets, code))
        case api.SyncGroup():
            return api.SyncGroupResponse(error=code)
        case api.Heartbeat():
            return api.HeartbeatResponse(error=code)
        case api.LeaveGroup():
            return api.LeaveGroupResponse(error=code)
        case api.DescribeGroup():
            return api.DescribeGroupResponse(error=code)
        case api.OffsetFetch():
            return api.OffsetFetchResponse(error=code)
        case _:
            raise TypeError(f"not for a coordinator: {request}")
