"""What is measured, where it happens: by the network machine's connections, and by the application machine's polls.

Laws of the meters
1. Each meter has one writer, the thread of its machine. Any thread may read.
2. One record for a request, a poll or a rebalance; never one for a record of a topic.
3. A meter observes and decides nothing.
4. Where topics come and go for years, no meter grows: what is of a partition or topic that is not ours any more is
   dropped an hour later, when others come. Until then a monitor has seen it. The sums over all topics never fall.

Laws of a statistic (`Stat`): sums, averages, greatest values and rates over the last half minute to minute, as Java's
S1. One writer. Any thread may read at any time: what is read is one tuple, which is replaced as a whole.
S2. Nothing is kept for a single value: to record costs one tuple, however many there are.
S3. Values older than two windows count no more. Without values an average and a greatest value are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from instride._wire import api
from instride.errors import AuthenticationError
from instride.records import TopicPartition
from instride.telemetry import HandedOver, OwnershipChange, PositionReset, RebalanceEnded, RebalanceOutcome

__all__ = [
    "ApplicationMeter",
    "Buffered",
    "ByTopic",
    "NOTHING",
    "NOTHING_BUFFERED",
    "NetworkMeter",
    "Stat",
    "TopicMeter",
    "WINDOW",
]


WINDOW: Final = 30.0
"""Seconds. A statistic speaks of the present window and the one before, as with Java's default settings."""

NOTHING: Final = float("nan")

_KEPT: Final = 3600.0
"""Seconds (law 4)."""
_FEW_TOPICS: Final = 64


class _Before(NamedTuple):
    """What a window begins with, the same until it ends: number, total of everything before; then the window before."""

    number: int
    total: float
    start: float
    recent: int
    sum: float
    most: float


_State: TypeAlias = "tuple[float, int, float, float, _Before]"
_LOW: Final = float("-inf")


class Stat:
    """A value that is recorded now and then. Times are in seconds of one clock that is never set back."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        # The present window's start, count, sum and greatest value; and what was before it. A plain tuple, since each
        # poll and each response record several values.
        self._state: _State | None = None

    def record(self, value: float, now: float) -> None:
        state = self._state
        if state is None or now - state[0] >= WINDOW:
            state = self._rolled(now)
        start, count, total, most, before = state
        self._state = (start, count + 1, total + value, value if value > most else most, before)

    def _rolled(self, now: float) -> _State:
        state = self._state
        if state is None:
            return now, 0, 0.0, _LOW, _Before(0, 0.0, now, 0, 0.0, _LOW)
        start, count, total, most, before = state
        if now - start < WINDOW:
            return state
        number, sum_of_all = before.number + count, before.total + total
        if now - start < 2 * WINDOW:
            return start + WINDOW, 0, 0.0, _LOW, _Before(number, sum_of_all, start, count, total, most)
        return now, 0, 0.0, _LOW, _Before(number, sum_of_all, now, 0, 0.0, _LOW)

    @property
    def number(self) -> int:
        """How many values there were."""
        state = self._state
        return 0 if state is None else state[4].number + state[1]

    @property
    def total(self) -> float:
        """Their sum."""
        state = self._state
        return 0.0 if state is None else state[4].total + state[2]

    def average(self, now: float) -> float:
        _, count, total, _, before = self._rolled(now)
        return (total + before.sum) / (count + before.recent) if count + before.recent else NOTHING

    def most(self, now: float) -> float:
        _, count, _, most, before = self._rolled(now)
        return max(most, before.most) if count + before.recent else NOTHING

    def rate(self, now: float) -> float:
        """Sum of the values in a second."""
        _, _, total, _, before = self._rolled(now)
        return (total + before.sum) / _elapsed(before, now)

    def frequency(self, now: float) -> float:
        """Number of the values in a second."""
        _, count, _, _, before = self._rolled(now)
        return (count + before.recent) / _elapsed(before, now)


def _elapsed(before: _Before, now: float) -> float:
    """A window at least, so that the first values make no absurd rate. Java adds a window to the first one, and so
    tells less of it: half of the rate at its end. From then on both divide by the same time.
    """
    return max(now - before.start, WINDOW)


_SUCCEEDED: Final = (api.JoinGroupResponse, api.SyncGroupResponse)
"""Counted only without an error, as in Java: the coordinator refuses each first join, to give a member id (KIP-394)."""

_KINDS: Final[dict[type, str]] = {
    api.JoinGroup: "join",
    api.SyncGroup: "sync",
    api.Heartbeat: "heartbeat",
    api.OffsetCommit: "commit",
    api.Fetch: "fetch",
}


class NetworkMeter:
    """Requests, connections and rebalances. `latency`, `by_kind` and `throttled` are in milliseconds.

    resets: of positions; each value is how many offsets it skipped.
    replicas: of those partitions that are read from a follower, the follower's node.
    released_at, first_fetch_at: seconds since 1970, of partitions that were ours or are. The first is in the order of
    the releases, by which it is pruned.
    """

    def __init__(self) -> None:
        self.opened = Stat()
        self.closed = Stat()
        self.refused = Stat()
        self.sent = Stat()
        self.latency = Stat()
        self.by_kind: Mapping[str, Stat] = {kind: Stat() for kind in _KINDS.values()}
        self.fetch_bytes = Stat()
        self.fetch_records = Stat()
        self.throttled = Stat()
        self.resets = Stat()
        self.replicas: dict[TopicPartition, int] = {}
        self.released_at: dict[TopicPartition, float] = {}
        self.first_fetch_at: dict[TopicPartition, float] = {}
        self.rebalances = Stat()
        self.failed_rebalances = Stat()
        self.last_heartbeat = float("-inf")
        self.last_rebalance = float("-inf")

    def connection_opened(self, now: float) -> None:
        self.opened.record(1, now)

    def connection_closed(self, now: float, error: Exception | None, *, ready: bool) -> None:
        """ready: it had been opened."""
        if ready:
            self.closed.record(1, now)
        if isinstance(error, AuthenticationError):
            self.refused.record(1, now)

    def request_sent(self, request: api.Request, now: float) -> None:
        self.sent.record(1, now)
        if isinstance(request, api.Heartbeat):
            self.last_heartbeat = now

    def response_received(
        self, request: api.Request, response: api.Response | Exception, sent_at: float, now: float
    ) -> None:
        if isinstance(response, Exception):
            return
        took = (now - sent_at) * 1000
        self.latency.record(took, now)
        kind = _KINDS.get(type(request))
        if kind is not None and not (isinstance(response, _SUCCEEDED) and response.error):
            self.by_kind[kind].record(took, now)
        if isinstance(response, api.FetchResponse):
            self._fetched(response, now)

    def _fetched(self, response: api.FetchResponse, now: float) -> None:
        self.throttled.record(response.throttle_time * 1000, now)
        chunks = [each.chunk for each in response.partitions.values() if each.chunk is not None]
        if chunks:
            self.decoded(sum(len(chunk) for chunk in chunks), sum(chunk.nbytes for chunk in chunks), now)

    def decoded(self, records: int, nbytes: int, now: float) -> None:
        """All that came with one response."""
        self.fetch_bytes.record(nbytes, now)
        self.fetch_records.record(records, now)

    def read_from(self, partition: TopicPartition, follower: int | None) -> None:
        """Which node has just responded for it; None: its leader."""
        if follower is None:
            self.replicas.pop(partition, None)
        else:
            self.replicas[partition] = follower

    # Written in place, so that thousands of partitions cost no copy each: another thread copies them before it walks.

    def released(self, partition: TopicPartition, wall_clock: float) -> None:
        self.replicas.pop(partition, None)
        self.released_at.pop(partition, None)
        self.released_at[partition] = wall_clock
        self._forget_released(wall_clock - _KEPT)

    def _forget_released(self, before: float) -> None:
        """Law 4. It costs by what is forgotten. What was released later than now, before the clock was set back, is
        forgotten as well: the others wait behind it."""
        now = next(reversed(self.released_at.values()))
        while (oldest := next(iter(self.released_at))) and not before <= (at := self.released_at[oldest]) <= now:
            del self.released_at[oldest]
            if self.first_fetch_at.get(oldest, at) <= at:  # else it has come back
                self.first_fetch_at.pop(oldest, None)

    def fetch_began(self, partition: TopicPartition, wall_clock: float) -> None:
        self.first_fetch_at[partition] = wall_clock

    def reset(self, event: PositionReset) -> None:
        self.resets.record(max(0, event.count), event.at)

    def rebalanced(self, event: RebalanceEnded) -> None:
        if event.outcome is RebalanceOutcome.FAILED:
            self.failed_rebalances.record(1, event.at)
        elif event.outcome is RebalanceOutcome.TAKEN:
            self.rebalances.record(event.seconds * 1000, event.at)
            self.last_rebalance = event.at


class Buffered(NamedTuple):
    """Bytes in memory of what is decoded and no poll has returned yet, and how many that may be at most."""

    nbytes: int = 0
    limit: int = 0


NOTHING_BUFFERED: Final = Buffered()


class TopicMeter:
    """What polls returned of a topic. returned_at: when one last did."""

    __slots__ = ("bytes", "records", "returned_at")

    def __init__(self) -> None:
        self.records = Stat()
        self.bytes = Stat()
        self.returned_at = float("-inf")


class ByTopic(NamedTuple):
    """topics: those that have a meter. gone_records, gone_bytes: the sums of those that had one (law 4)."""

    topics: Mapping[str, TopicMeter] = MappingProxyType({})
    gone_records: float = 0.0
    gone_bytes: float = 0.0

    def without(self, gone: Collection[str]) -> ByTopic:
        meters = [self.topics[topic] for topic in gone]
        return ByTopic(
            {topic: meter for topic, meter in self.topics.items() if topic not in gone},
            self.gone_records + sum(each.records.total for each in meters),
            self.gone_bytes + sum(each.bytes.total for each in meters),
        )


_NONE: Final = (0, 0)


class ApplicationMeter:
    """Polls, blocking commits, records that were returned, hand-overs. Times: ms if not said else.

    owned_topics: of which partitions are ours now.
    """

    def __init__(self, owned_topics: Callable[[], Collection[str]] = frozenset) -> None:
        self.between_polls = Stat()
        self.idle_ratio = Stat()
        self.last_poll = float("-inf")
        self.commit_seconds = 0.0
        self.committed_seconds = 0.0
        # Replaced as a whole, since another thread may be reading it.
        self.by_topic = ByTopic()
        self._owned_topics = owned_topics
        # With how many topics it is looked for those that are gone.
        self._many_topics = _FEW_TOPICS
        self.handed_over = Stat()
        self.lost = Stat()
        self.abandoned = Stat()
        self._last_end = float("-inf")

    def poll_began(self, now: float) -> None:
        if self.last_poll > float("-inf"):
            self.between_polls.record((now - self.last_poll) * 1000, now)
        self.last_poll = now

    def poll_ended(self, now: float) -> None:
        whole = now - self._last_end
        if 0 < whole < float("inf"):
            self.idle_ratio.record((now - self.last_poll) / whole, now)
        self._last_end = now

    def returned(self, taken: Mapping[TopicPartition, tuple[int, int]], now: float) -> None:
        """taken: (records, bytes) of each partition."""
        sums: dict[str, tuple[int, int]] = {}
        for tp, (records, nbytes) in taken.items():
            before, bytes_before = sums.get(tp.topic, _NONE)
            sums[tp.topic] = (before + records, bytes_before + nbytes)
        for topic, (records, nbytes) in sums.items():
            self.returned_of(topic, records, nbytes, now)

    def returned_of(self, topic: str, records: int, nbytes: int, now: float) -> None:
        meter = self.by_topic.topics.get(topic)
        if meter is None:
            if len(self.by_topic.topics) >= self._many_topics:
                self._forget_topics(now - _KEPT)
            meter = TopicMeter()
            self.by_topic = self.by_topic._replace(topics={**self.by_topic.topics, topic: meter})
        meter.returned_at = now
        meter.records.record(records, now)
        meter.bytes.record(nbytes, now)

    def _forget_topics(self, before: float) -> None:
        """Law 4. Looked for when their number has doubled, so that it costs little for each topic that comes."""
        owned = self._owned_topics()
        idle = [topic for topic, meter in self.by_topic.topics.items() if meter.returned_at < before]
        self.by_topic = self.by_topic.without({topic for topic in idle if topic not in owned})
        self._many_topics = max(_FEW_TOPICS, 2 * len(self.by_topic.topics))

    def handed(self, event: HandedOver) -> None:
        if event.how is OwnershipChange.LOST:
            self.lost.record(1, event.at)
        else:
            self.handed_over.record(event.seconds * 1000, event.at)
        if event.abandoned:
            self.abandoned.record(event.abandoned, event.at)
