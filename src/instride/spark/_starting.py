"""Where an assigned partition begins: asked of the sink, and kept there, before the first job of the partition.

Laws
1. A partition is paused from its assignment until the sink has its start. So every job begins at an offset that the
   sink knows: where "latest" began is not lost with a first job that fails, or a driver that is killed.
2. Nothing of a sink or a broker is awaited on the thread that polls. A sink that is slow for one partition holds up
   that partition, but one that is slow for eight at once holds up the starts of all others as well.
3. What the sink tells counts only for the assignment for which it was asked.
4. What may pass (a broker that is away, a full disk) is tried again for as long as the partition is ours, and other
   partitions take their turn before. Any other error ends the run, a panic of the sink's native library too: the
   pool would only log it.
5. A call that hangs keeps no process from ending.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from instride._processing.dead_letters import text_of
from instride.consumer import Consumer, RangeConsumer
from instride.errors import KafkaError, KafkaTimeoutError, SinkError, UnknownTopicOrPartitionError, WakeupError
from instride.records import TopicPartition
from instride.spark._daemon_pool import DaemonPool
from instride.spark.sink import Sink

__all__ = ["Start", "Started", "Starts", "TopicLookup", "passes"]

_log = logging.getLogger(__name__)

_THREADS: Final = 8
_PAUSE: Final = 0.5
_ASKING: Final = 10.0
"""Seconds for what any broker tells of a topic, and as many for the ends of logs, which their leaders tell."""


class TopicLookup:
    """Kafka's ids of topics, and where their logs end, by a consumer of its own: the member may be used only by the
    thread that polls.

    Thread-safe. One call waits for another: who may not wait for the ends has another lookup for them.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._is_closed = False

    def topic_id(self, topic: str) -> str:
        """The id as text; "" where the topic has none (Kafka before 2.8). Raises KafkaTimeoutError,
        UnknownTopicOrPartitionError where the broker does not know the topic, and WakeupError once it is closed.
        """
        with self._opened() as consumer:
            found = consumer.partitions_for(topic, timeout=_ASKING)
        if not found:
            # We own partitions of it: a broker that has just started may not know it yet. Without an id nothing would
            # tell the topic from one that is made again.
            raise UnknownTopicOrPartitionError(f"{topic}: the broker that was asked does not know it")
        return "" if found[0].topic_id is None else str(found[0].topic_id)

    def ends(
        self, partitions: Collection[TopicPartition], ours: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Those of `partitions` that the broker knows. For `ours`, where their logs end, open transactions included;
        None for others, which are not asked, and where a leader does not tell. Raises KafkaTimeoutError, and
        WakeupError once it is closed.
        """
        with self._opened() as consumer:
            known = consumer.list_topics({each.topic for each in partitions}, timeout=_ASKING)
            there = {info.topic_partition for infos in known.values() for info in infos}.intersection(partitions)
            found: dict[TopicPartition, int | None] = dict.fromkeys(there)
            if asked := there.intersection(ours):
                try:
                    found.update(consumer.end_offsets(asked, timeout=_ASKING))
                except KafkaTimeoutError as error:
                    _log.warning("where the logs end is not known now: %s", error)
        return found

    @contextmanager
    def _opened(self) -> Iterator[Consumer]:
        with self._lock:
            if self._consumer is None and not self._is_closed:
                self._consumer = Consumer(**self._settings)
            # Looked at after the consumer is there: `close` wakes one that it sees, and closes one that it does not.
            if self._consumer is None or self._is_closed:
                raise WakeupError("the run has ended")
            yield self._consumer

    def close(self) -> None:
        """A call under way ends with WakeupError, as does each later one."""
        # Before the lock, which a call under way holds.
        self._is_closed = True
        if self._consumer is not None:
            self._consumer.wakeup()
        with self._lock:
            if self._consumer is not None:
                self._consumer.close(timeout=1.0)


@dataclass(slots=True, eq=False)
class Start:
    """The start of one partition in one assignment. forgotten: it is not ours any more."""

    partition: TopicPartition
    topic_id: Callable[[str], str]
    forgotten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What the sink told. position: None where it holds nothing of the partition. error: it ends the run."""

    start: Start
    position: int | None = None
    topic_id: str = ""
    error: Exception | None = None


class Starts:
    """For the thread that polls. tell: hears `Started`, on other threads; `take` is then to be called with it.

    fail: hears of the errors that end the run.
    """

    def __init__(
        self,
        consumer: RangeConsumer,
        sink: Sink,
        *,
        topic_id: Callable[[str], str],
        tell: Callable[[Started], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self.topic_ids: dict[str, str] = {}
        self._consumer = consumer
        self._sink = sink
        self._ask_topic_id = topic_id
        self._tell = tell
        self._fail = fail
        self._starts: dict[TopicPartition, Start] = {}
        self._unplaced: dict[TopicPartition, Start] = {}
        self._closing = threading.Event()
        self._pool = DaemonPool(_THREADS, "instride-start")

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """They were assigned. Topics are looked up anew: since the last time one may have been made again."""
        chosen = sorted(partitions)
        self.forget(chosen)
        self._consumer.pause(chosen)
        lookup = _Lookup(self._ask_topic_id)
        for partition in chosen:
            start = self._starts[partition] = Start(partition, lookup)
            self._submit(start, self._ask)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are not ours any more."""
        for partition in partitions:
            self._unplaced.pop(partition, None)
            start = self._starts.pop(partition, None)
            if start is not None:
                start.forgotten = True

    def take(self, message: Started) -> None:
        """What the sink told."""
        start = message.start
        if start.forgotten:
            return
        if message.error is not None:
            self._fail(message.error)
            return
        # A broker from before 2.8, in a cluster that is being upgraded, takes no id away.
        if message.topic_id:
            self.topic_ids[start.partition.topic] = message.topic_id
        if message.position is None:
            self._unplaced[start.partition] = start
            self._place(start)
            return
        del self._starts[start.partition]
        self._go_on(start.partition, message.position)

    def look(self) -> None:
        """Where the group, or a reset, has said by now where partitions begin, the sink is told so."""
        for start in list(self._unplaced.values()):
            self._place(start)

    def _place(self, start: Start) -> None:
        try:
            position = self._consumer.position(start.partition, timeout=0)
        except (KafkaTimeoutError, WakeupError):
            return
        except KafkaError as error:
            self._fail(error)
            return
        del self._unplaced[start.partition]
        self._submit(start, lambda each: self._keep(each, position))

    def aside(self, work: Callable[[], object]) -> None:
        """Do something else that is not to be awaited, on the same threads."""
        self._pool.submit(work)

    def close(self) -> None:
        """Begin nothing more."""
        self._closing.set()
        self.forget(list(self._starts))
        self._pool.close()

    def _go_on(self, partition: TopicPartition, position: int) -> None:
        try:
            moved = self._consumer.position(partition, timeout=0) != position
        except (KafkaError, WakeupError):
            # Where the position is unknown, `seek` sets it in any case.
            moved = True
        if moved:
            self._consumer.seek(partition, position)
        self._consumer.resume(partition)

    # -- on the pool's threads

    def _ask(self, start: Start) -> Started:
        partition, topic_id = start.partition, start.topic_id(start.partition.topic)
        known = {partition.topic: topic_id} if topic_id else {}
        position = self._sink.positions([partition], topic_ids=known)[partition]
        return Started(start=start, position=position, topic_id=topic_id)

    def _keep(self, start: Start, position: int) -> Started:
        topic_id = start.topic_id(start.partition.topic)
        reached = self._sink.begin(start.partition, position, topic_id=topic_id)
        return Started(start=start, position=reached, topic_id=topic_id)

    def _guarded(self, start: Start, work: Callable[[Start], Started]) -> None:
        if start.forgotten:
            return
        try:
            self._tell(work(start))
        except Exception as error:  # noqa: BLE001 - a sink may be anybody's; the run ends with what it raised
            if not passes(error):
                self._tell(Started(start=start, error=error))
                return
            _log.warning("where %s begins is not known yet: %s", start.partition, error)
            # Behind those that wait for a thread: as many as there are threads may fail for as long as the run lasts.
            if not self._closing.wait(_PAUSE):
                self._submit(start, work)
        except BaseException as error:  # noqa: BLE001 - pyo3's PanicException is no Exception
            told = SinkError(f"{start.partition}: {type(error).__name__}: {text_of(error)}")
            told.__cause__ = error
            self._tell(Started(start=start, error=told))

    def _submit(self, start: Start, work: Callable[[Start], Started]) -> None:
        self._pool.submit(lambda: self._guarded(start, work))


@dataclass(slots=True, eq=False)
class _Lookup:
    """The topics of one assignment: each is looked up once. Thread-safe."""

    ask: Callable[[str], str]
    _found: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, topic: str) -> str:
        with self._lock:
            if topic not in self._found:
                self._found[topic] = self.ask(topic)
            return self._found[topic]


def passes(error: Exception) -> bool:
    """Whether the same call may succeed a moment later."""
    return isinstance(error, KafkaTimeoutError | WakeupError) or (isinstance(error, KafkaError) and error.retriable)
