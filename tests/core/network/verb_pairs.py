"""Both real machines, the two queues between them, and a scripted broker: each moves only when the test says so.

Laws
1. What a poll returns is judged at once: it begins where the partition stands, but for gaps that the log has.
2. Where a partition begins that was assigned, or sought to an end, only a response of the broker says.
3. A commit never names an offset behind which something was not returned. In the end one is accepted.
4. A topic that was made again is read where the broker told, or the user sought, in the new one: not at an offset of
   the old one. What came of the old one may be returned before.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from network_script import NO_SUCH_PARTITION, NetworkScript, tp

from instride._core.application.machine import ApplicationMachine
from instride._core.events import (
    EARLIEST,
    LATEST,
    ApplicationEvent,
    BackgroundEvent,
    Commit,
    EnforceRebalance,
    FetchOffsets,
)
from instride._core.network.actions import Action, Deliver
from instride._core.network.ranges import RangeChunk
from instride._core.ownership import RebalanceProtocol
from instride._wire import api
from instride.errors import ErrorCode, KafkaTimeoutError
from instride.listeners import RebalanceListener
from instride.records import TopicPartition

__all__ = ["Pair"]

GAPS: Final = frozenset({3, 4, 11, 25})
"""Offsets that compaction has taken out of the log."""

FETCH: Final = 6
_QUIET: Final = 5


class Brokers(NetworkScript):
    """Everything waits for `respond_next`. What goes up waits in `up`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.up: deque[BackgroundEvent] = deque()
        self.committed_offset = None
        self.end = 40
        self.generation = 0
        self.wanted: tuple[int, ...] = (0, 1)
        self.stored: dict[TopicPartition, int] = {}
        self.told: dict[TopicPartition, set[int]] = {}
        self.lies = 0
        self.topic_ids = {"t": UUID(int=1)}
        # Where a fetch may begin: of the present topic, by partition; and of any, since the user sought it.
        self.begins: dict[int, set[int]] = {}
        self.sought: set[int] = set()

    @property
    def topic_id(self) -> UUID:
        return self.topic_ids["t"]

    def recreate(self) -> None:
        """The topic is made again, with a log like the old one's. The group's offsets go with the old one."""
        self.topic_ids = {"t": UUID(int=self.topic_id.int + 1)}
        self.begins.clear()
        self.stored.clear()

    def hear_of_topics(self) -> None:
        """The machine requests metadata."""
        missing = {tp(NO_SUCH_PARTITION): EARLIEST}
        self.do(FetchOffsets(call=-1, deadline=self.now + 0.001, timestamps=missing))
        self.pass_time(0.3)

    def _is_old(self, topic_ids: dict[str, UUID]) -> bool:
        return topic_ids.get("t", self.topic_id) != self.topic_id

    def _act(self, action: Action) -> None:
        if isinstance(action, Deliver):
            self.up.append(action.event)
        else:
            super()._act(action)

    def respond_next(self) -> bool:
        """The oldest request of each kind that waits."""
        kinds = {type(each.request): each.request for each in reversed(self.waiting)}
        for kind, request in kinds.items():
            self._respond_one(kind, request)
        return bool(kinds)

    def _respond_one(self, kind: type[Any], request: Any) -> None:
        match request:
            case api.JoinGroup():
                self.generation += 1
                self.join(self.generation)
            case api.SyncGroup():
                self.sync(*self.wanted)
            case api.Heartbeat():
                self.response(kind, api.HeartbeatResponse())
            case api.OffsetFetch():
                self._respond_with_committed(request)
            case api.OffsetCommit():
                error = ErrorCode.UNKNOWN_TOPIC_ID if self._is_old(request.topic_ids) else ErrorCode.NONE
                if not error:
                    self.stored |= {TopicPartition(*each): entry.offset for each, entry in request.offsets.items()}
                self.response(kind, api.OffsetCommitResponse(errors=dict.fromkeys(request.offsets, error)))
            case api.ListOffsets():
                found = {each: 0 if what == EARLIEST else self.end for each, what in request.timestamps.items()}
                self._tell(found)
                listed = {each: api.ListedOffset(offset=offset) for each, offset in found.items()}
                self.response(kind, api.ListOffsetsResponse(offsets=listed))
            case api.Fetch():
                self._respond_to_fetch(request)

    def _respond_with_committed(self, request: api.OffsetFetch) -> None:
        partitions = request.partitions or ()
        if self._is_old(request.topic_ids):
            unknown = api.CommittedOffset(error=ErrorCode.UNKNOWN_TOPIC_ID)
            self.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=dict.fromkeys(partitions, unknown)))
            return
        found = {each: self.stored.get(TopicPartition(*each), -1) for each in partitions}
        self._tell(found)
        offsets = {each: api.CommittedOffset(offset=offset) for each, offset in found.items()}
        self.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=offsets))

    def _tell(self, found: dict[api.Partition, int]) -> None:
        for each, offset in found.items():
            self.told.setdefault(TopicPartition(*each), set()).add(offset)
            self.begins.setdefault(each[1], set()).add(offset)

    def _respond_to_fetch(self, request: api.Fetch) -> None:
        found = {}
        for each in request.partitions:
            if each.topic_id != self.topic_id:
                found[each.topic, each.partition] = api.FetchedPartition(error=ErrorCode.UNKNOWN_TOPIC_ID)
            elif self.lies:
                self.lies -= 1
                found[each.topic, each.partition] = api.FetchedPartition(error=ErrorCode.OFFSET_OUT_OF_RANGE)
            else:
                found[each.topic, each.partition] = self._records(each)
        self.response(api.Fetch, api.FetchResponse(partitions=found))

    def _records(self, requested: api.FetchPartition) -> api.FetchedPartition:
        """A run of records without a gap; the position goes on behind the gap that follows it."""
        begins = self.begins.setdefault(requested.partition, set())
        assert requested.offset in begins | self.sought, f"{requested} is of another topic; here it is {begins}"
        first = self.next_record(requested.offset)
        end = first
        while end < min(first + FETCH, self.end) and end not in GAPS:
            end += 1
        after = min(self.next_record(end), self.end)
        begins.update(range(requested.offset, after + 1))
        chunk = RangeChunk(topic="t", partition=requested.partition, first_offset=first, next_offset=end)
        return api.FetchedPartition(
            chunk=chunk if end > first else None,  # type: ignore[arg-type]  # a chunk without record objects will do
            next_offset=max(after, requested.offset),
            high_watermark=self.end,
        )

    def next_record(self, offset: int) -> int:
        while offset in GAPS:
            offset += 1
        return offset


class Working(RebalanceListener):
    """Does `work` once, when partitions are assigned."""

    def __init__(self) -> None:
        self.work: Callable[[], None] | None = None

    def on_partitions_assigned(self, partitions: Any) -> None:
        work, self.work = self.work, None
        if work is not None:
            work()


class Pair:
    """A member of a group that is assigned t-0 and t-1."""

    def __init__(self, **settings: Any) -> None:
        self.brokers = Brokers(session_timeout=3000.0, max_poll_interval=3500.0, **settings)
        self.queue: deque[BackgroundEvent] = deque()
        self.down: deque[ApplicationEvent] = deque()
        self.machine = ApplicationMachine(
            self.brokers.config,
            protocol=RebalanceProtocol.COOPERATIVE,
            queue=self.queue,
            post=self.down.append,
            lease=self.brokers.lease,
        )
        self.listener = Working()
        # Where each partition stands, in which epoch. None: only the broker's responses say.
        self.stands: dict[TopicPartition, tuple[int, int | None]] = {}
        self.returned: dict[TopicPartition, int] = {}
        # How often each may yet go on elsewhere, since its topic was made again.
        self.resets: Counter[TopicPartition] = Counter()
        self.machine.subscribe(["t"], self.listener)

    # -- what moves

    def let_down(self) -> bool:
        """The network thread takes the oldest event, and does what is to be done."""
        if not self.down:
            return False
        self.brokers.do(self.down.popleft())
        return True

    def let_up(self) -> bool:
        if not self.brokers.up:
            return False
        self.queue.append(self.brokers.up.popleft())
        return True

    def broker(self) -> bool:
        return self.brokers.respond_next()

    def lie(self) -> None:
        """The next fetches' partitions are called out of range."""
        self.brokers.lies = 2

    def all_down(self) -> None:
        while self.let_down():
            pass

    def all_up(self) -> None:
        while self.let_up():
            pass

    def time(self) -> None:
        self.brokers.pass_time(0.3)

    def work_of_the_network(self) -> None:
        """All that needs no application."""
        for _ in range(4):
            self.all_down()
            self.broker()

    def rebalance(self) -> None:
        """The group asks for t-0, or gives it (back)."""
        self.brokers.wanted = (1,) if self.brokers.wanted == (0, 1) else (0, 1)
        self.brokers.do(EnforceRebalance(reason="the test"))

    def recreate(self) -> None:
        """The topic is made again, and the member hears of it at once."""
        self.brokers.recreate()
        self.resets.update((tp(0), tp(1)))
        self.brokers.hear_of_topics()

    def produce(self) -> None:
        self.brokers.end += 7

    # -- verbs

    def owned(self) -> list[TopicPartition]:
        return sorted(self.machine.assignment())

    def poll(self, limit: int = 4) -> None:
        call = self.machine.poll(self.brokers.now, 0.0, immediate=False, limit=limit)
        try:
            next(call)
            while True:
                call.send(self.brokers.now)
        except StopIteration as end:
            for each in end.value:
                self._judge(each.partition, each.epoch, each.chunk.first_offset, each.chunk.next_offset)

    def pause(self) -> None:
        self.machine.pause(self.owned())

    def resume(self) -> None:
        self.machine.resume(self.owned())

    def seek(self, offset: int = 9) -> None:
        self.brokers.sought.add(offset)
        for each in self.owned():
            self.machine.seek(each, offset)
            self.stands[each] = (self._epoch(each), offset)

    def seek_back(self) -> None:
        self.seek(2)

    def seek_to_beginning(self) -> None:
        self._seek_to(EARLIEST)

    def seek_to_end(self) -> None:
        self._seek_to(LATEST)

    def _seek_to(self, end: int) -> None:
        for each in self.owned():
            self.machine.seek(each, end)
            self.stands[each] = (self._epoch(each), None)
            self.brokers.told.pop(each, None)

    def commit(self) -> None:
        before = len(self.down)
        self.machine.commit_async(self.brokers.now, None)
        for event in list(self.down)[before:]:
            if isinstance(event, Commit):
                self._judge_commit(event)

    def delay(self) -> None:
        self.machine.delay_revoke(self.machine.to_be_revoked())

    def position(self) -> None:
        for each in self.owned():
            try:
                next(self.machine.position(self.brokers.now, each, 0.0))
            except KafkaTimeoutError:
                continue
            except StopIteration as end:
                self._judge_position(each, end.value)

    def _epoch(self, partition: TopicPartition) -> int:
        return self.machine.holdings()[partition].epoch

    # -- the judge

    def _judge(self, partition: TopicPartition, epoch: int, first: int, after: int) -> None:
        if not self._goes_on(partition, epoch, first):
            begins = {self.brokers.next_record(each) for each in self.brokers.told.get(partition, ())}
            assert first in begins, f"{partition} begins at {first}; the broker told {begins}"
        self.stands[partition] = (epoch, after)

    def _goes_on(self, partition: TopicPartition, epoch: int, offset: int) -> bool:
        """From where it stands; False: where a response of the broker led."""
        known, stands = self.stands.get(partition, (-1, None))
        if known != epoch or stands is None:
            return False
        if self.brokers.next_record(stands) == self.brokers.next_record(offset):
            return True
        assert self.resets[partition] > 0, f"{partition} stands at {stands}, and {offset} came"
        self.resets[partition] -= 1
        return False

    def _judge_position(self, partition: TopicPartition, offset: int) -> None:
        """What was told once holds: the next record is not behind it."""
        epoch = self._epoch(partition)
        self._goes_on(partition, epoch, offset)
        self.stands[partition] = (epoch, offset)

    def _judge_commit(self, event: Commit) -> None:
        for partition, entry in event.entries.items():
            epoch, stands = self.stands.get(partition, (-1, None))
            if epoch != entry.epoch or stands is None or entry.offset <= self.brokers.next_record(stands):
                continue
            # Only where a reset led since the topic was made again.
            assert self.resets[partition] > 0, f"{partition}: {entry} passes {stands}"
            assert entry.offset in self.brokers.told.get(partition, ()), f"{partition}: nobody told of {entry}"
            self.resets[partition] -= 1
            self.stands[partition] = (epoch, entry.offset)

    # -- the end

    def finish(self) -> None:
        """Everything flows again: all that the log has is returned to its end."""
        self.brokers.lies, self.listener.work = 0, None
        if self.brokers.wanted != (0, 1):
            self.rebalance()
        for each in range(200):
            if each % (10 * _QUIET) == _QUIET:
                self.produce()  # so that something follows a seek to the end
            self.work_of_the_network()
            self.all_up()
            self.poll(-1)
            self.resume()
            self.time()
            if each > _QUIET and all(self._at_end(tp(number)) for number in (0, 1)):
                self._commits_all()
                return
        raise AssertionError(f"not all is returned: {self.stands} of {self.brokers.end}")

    def _commits_all(self) -> None:
        self.commit()
        wanted = dict.fromkeys((tp(0), tp(1)), self.brokers.end)
        for _ in range(20):
            if self.brokers.stored == wanted:
                return
            self.work_of_the_network()
            self.all_up()
            self.poll(-1)
            self.time()
        raise AssertionError(f"{self.brokers.stored} is committed, and everything was handed over")

    def _at_end(self, partition: TopicPartition) -> bool:
        epoch, stands = self.stands.get(partition, (-1, None))
        return partition in self.owned() and epoch == self._epoch(partition) and stands == self.brokers.end
