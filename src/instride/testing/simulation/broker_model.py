"""A model of the brokers: logs, leaders, metadata, long polls, and which node is the group's coordinator.

Laws
1. A Fetch is answered as soon as there are records of min_bytes or an error for it, else when its max_wait ends; and
   always of every partition that it names.
2. A node that does not lead a partition, or is not the coordinator, says so. One that still loads the group answers
   COORDINATOR_LOAD_IN_PROGRESS, and NONE to heartbeats, as Kafka does.
3. A node that is down serves nothing; the cluster calls `cut` on its connections.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from instride.records import TopicPartition
from instride.testing.simulation.chunk import RECORD_BYTES, SimulatedChunk
from instride.testing.simulation.coordinator_model import GroupModel
from instride.testing.simulation.history import BROKER, History
from instride.testing.simulation.links import Reply
from instride.testing.simulation.scheduler import Scheduler
from instride.wire import api

__all__ = ["HOST", "PORT", "BrokerModel"]

HOST = "broker"
PORT = 9092
_OFFSET_OUT_OF_RANGE = 1
_UNKNOWN_TOPIC = 3
_NOT_LEADER = 6
_LOAD_IN_PROGRESS = 14
_NOT_AVAILABLE = 15
_NOT_COORDINATOR = 16
_FENCED_LEADER_EPOCH = 74
_UNKNOWN_LEADER_EPOCH = 75
_LATEST = -1


class _LongPoll:
    """A Fetch that waits for records."""

    __slots__ = ("node", "over", "reply", "request")

    def __init__(self, node: int, request: api.Fetch, reply: Reply) -> None:
        self.node = node
        self.request = request
        self.reply = reply
        self.over = False


class BrokerModel:
    """nodes: 1 to `nodes`. Partitions are led in turns; node 1 begins as coordinator."""

    def __init__(
        self, scheduler: Scheduler, history: History, *, nodes: int, topics: dict[str, int], initial_delay: float
    ) -> None:
        self._scheduler = scheduler
        self._history = history
        self._polls: list[_LongPoll] = []
        self._nodes = tuple(range(1, nodes + 1))
        self._topics = topics
        self._loading_until = 0.0
        partitions = [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
        self.ends: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
        self.leaders = {tp: self._nodes[place % nodes] for place, tp in enumerate(partitions)}
        self.leader_epochs: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
        self.coordinator = 1
        self.group = GroupModel(scheduler, history, initial_delay=initial_delay)
        self._metadata: dict[tuple[str, ...] | None, api.MetadataAnswer] = {}

    # -- what happens to it

    def produce(self, tp: TopicPartition, count: int) -> None:
        self.ends[tp] += count
        self._history.add(BROKER, "produced", tp, self.ends[tp])
        for poll in [each for each in self._polls if self._is_due(each)]:
            self._answer_poll(poll)

    def move_coordinator(self, loading: float) -> None:
        """To the next node, which loads the group for so many seconds."""
        place = self._nodes.index(self.coordinator)
        self.coordinator = self._nodes[(place + 1) % len(self._nodes)]
        self._loading_until = self._scheduler.now + loading
        self._history.add(BROKER, "moved", self.coordinator, round(loading, 3))
        self.group.moved(loading)

    def move_leader(self, tp: TopicPartition) -> None:
        place = self._nodes.index(self.leaders[tp])
        self.leaders[tp] = self._nodes[(place + 1) % len(self._nodes)]
        self.leader_epochs[tp] += 1
        self._metadata.clear()
        self._history.add(BROKER, "leader", tp, self.leaders[tp])
        for poll in [each for each in self._polls if self._is_due(each)]:
            self._answer_poll(poll)

    # -- what it is asked

    def serve(self, node: int, who: str, request: api.Request, reply: Reply) -> None:
        match request:
            case api.Fetch():
                self._fetch(node, request, reply)
            case api.Metadata():
                reply(self._describe(request.topics))
            case api.FindCoordinator():
                reply(self._find_coordinator())
            case api.ListOffsets():
                reply(api.ListOffsetsAnswer(offsets={tp: self._listed(node, tp, request) for tp in request.timestamps}))
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
        elif isinstance(request, api.OffsetCommit):
            self._commit(who, request, reply)
        else:
            self.group.handle(who, request, reply)

    def _commit(self, who: str, request: api.OffsetCommit, reply: Reply) -> None:
        """What is no partition of a topic does not reach the group."""
        missing = {tp: _UNKNOWN_TOPIC for tp in request.offsets if tp not in self.ends}
        if not missing:
            self.group.handle(who, request, reply)
            return
        there = {tp: offset for tp, offset in request.offsets.items() if tp not in missing}

        def complete(answer: api.Answer) -> None:
            assert isinstance(answer, api.OffsetCommitAnswer)
            reply(api.OffsetCommitAnswer(errors=missing | answer.errors))

        self.group.handle(who, replace(request, offsets=there), complete)

    def _find_coordinator(self) -> api.FindCoordinatorAnswer:
        if self._scheduler.now < self._loading_until and self._scheduler.random.random() < 0.3:
            return api.FindCoordinatorAnswer(error=_NOT_AVAILABLE)
        return api.FindCoordinatorAnswer(node_id=self.coordinator, host=HOST, port=PORT + self.coordinator)

    def _describe(self, topics: tuple[str, ...] | None) -> api.MetadataAnswer:
        if topics not in self._metadata:
            self._metadata[topics] = api.MetadataAnswer(
                brokers=tuple(api.Broker(node_id=node, host=HOST, port=PORT + node) for node in self._nodes),
                topics=tuple(self._describe_topic(name) for name in (self._topics if topics is None else topics)),
            )
        return self._metadata[topics]

    def _describe_topic(self, name: str) -> api.MetadataTopic:
        if name not in self._topics:
            return api.MetadataTopic(name=name, error=_UNKNOWN_TOPIC)
        partitions = [TopicPartition(name, number) for number in range(self._topics[name])]
        return api.MetadataTopic(name=name, partitions=tuple(self._describe_partition(tp) for tp in partitions))

    def _describe_partition(self, tp: TopicPartition) -> api.MetadataPartition:
        return api.MetadataPartition(
            partition=tp.partition, leader=self.leaders[tp], leader_epoch=self.leader_epochs[tp]
        )

    def _log_error(self, node: int, tp: TopicPartition, epoch: int) -> int:
        """epoch: the leader's as the client knows it, or -1. It is looked at first (KIP-320)."""
        if tp not in self.leaders:
            return _UNKNOWN_TOPIC
        if epoch >= 0 and epoch != self.leader_epochs[tp]:
            return _FENCED_LEADER_EPOCH if epoch < self.leader_epochs[tp] else _UNKNOWN_LEADER_EPOCH
        return 0 if self.leaders[tp] == node else _NOT_LEADER

    def _listed(self, node: int, partition: api.Partition, request: api.ListOffsets) -> api.ListedOffset:
        tp = TopicPartition(*partition)
        if error := self._log_error(node, tp, request.leader_epochs.get(partition, -1)):
            return api.ListedOffset(error=error)
        return api.ListedOffset(
            offset=self.ends[tp] if request.timestamps[partition] == _LATEST else 0, leader_epoch=self.leader_epochs[tp]
        )

    # -- fetching

    def _fetch(self, node: int, request: api.Fetch, reply: Reply) -> None:
        poll = _LongPoll(node, request, reply)
        self._polls.append(poll)
        if not request.max_wait or self._is_due(poll):
            self._answer_poll(poll)
        else:
            self._scheduler.after(request.max_wait, partial(self._answer_poll, poll))

    def _is_due(self, poll: _LongPoll) -> bool:
        """Law 1."""
        found = self._found(poll.node, poll.request).values()
        size = sum(each.chunk.nbytes for each in found if each.chunk)
        return size >= max(1, poll.request.min_bytes) or any(each.error for each in found)

    def _answer_poll(self, poll: _LongPoll) -> None:
        if not poll.over:
            poll.over = True
            self._polls.remove(poll)
            poll.reply(api.FetchAnswer(partitions=self._found(poll.node, poll.request)))

    def _found(self, node: int, request: api.Fetch) -> dict[api.Partition, api.FetchedPartition]:
        asked = {TopicPartition(each.topic, each.partition): each for each in request.partitions}
        return {tp: self._fetched(node, tp, each) for tp, each in asked.items()}

    def _fetched(self, node: int, tp: TopicPartition, asked: api.FetchPartition) -> api.FetchedPartition:
        if error := self._log_error(node, tp, asked.leader_epoch):
            return api.FetchedPartition(error=error)
        end = self.ends[tp]
        if not 0 <= asked.offset <= end:
            return api.FetchedPartition(error=_OFFSET_OUT_OF_RANGE)
        return self._records(tp, asked, end)

    def _records(self, tp: TopicPartition, asked: api.FetchPartition, end: int) -> api.FetchedPartition:
        upto = min(end, asked.offset + max(1, asked.max_bytes // RECORD_BYTES))
        chunk = SimulatedChunk(
            topic=tp.topic,
            partition=tp.partition,
            first_offset=asked.offset,
            next_offset=upto,
            leader_epoch=self.leader_epochs[tp],
        )
        return api.FetchedPartition(
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=0,
            chunk=chunk if chunk else None,
            next_offset=upto,
        )


def _refusal(request: api.Request, code: int) -> api.Answer:
    match request:
        case api.JoinGroup():
            return api.JoinGroupAnswer(error=code, member_id=request.member_id)
        case api.OffsetCommit():
            return api.OffsetCommitAnswer(errors=dict.fromkeys(request.offsets, code))
        case api.SyncGroup():
            return api.SyncGroupAnswer(error=code)
        case api.Heartbeat():
            return api.HeartbeatAnswer(error=code)
        case api.LeaveGroup():
            return api.LeaveGroupAnswer(error=code)
        case api.DescribeGroup():
            return api.DescribeGroupAnswer(error=code)
        case api.OffsetFetch():
            return api.OffsetFetchAnswer(error=code)
        case _:
            raise TypeError(f"not for a coordinator: {request}")
