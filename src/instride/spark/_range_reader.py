"""Reads a range of offsets on an executor, straight from the brokers, as Arrow batches.

Laws
1. Exactly [start, end) is read: what follows `end` is cut off, and gaps (compaction, aborted transactions, their
   markers) are passed, also at the end of the range. Nothing but the position ends a range.
2. No group: the consumer only assigns. Where a range begins is the driver's to say, never a reset policy's.
3. A worker process keeps its reader and the connections from task to task. A reader that failed is closed, also while
   somebody still holds the batches that were to come: they then end in silence.
4. Memory is bounded by what a consumer buffers, whatever the range's size: one batch is given out at a time. A long
   range has another reader than a short one, with larger fetches, which take half of the CPU. Beyond the end of a range
   its reader fetches no more than its buffer holds: 2 MiB, or 32 MiB for a range that is expected to have as much.
5. Every record of a range is of the topic whose id the driver knew, since it was fetched by that id. A broker before
   Kafka 3.1 is asked by the topic's name. An id is never used twice, so it is looked up then: before the first record
   is fetched and, since a topic may be made again between that and the fetch, after the last one. A reader or a broker
   may know an older topic of that name for a while: as long as nothing was given out, the reader tries again, for
   MISSING_GRACE. Once it has given something out, another id is believed at once; that a topic is gone, after
   MISSING_GRACE. What the consumer says of another topic, which it has read before, ends no range.
6. Offsets that the log does not hold any more are an error that says so, unless told to pass over them. What follows
   the end of a log that became shorter is passed over only for the source. A sink of a pipeline takes a range as a
   whole: it would stand beyond the end of the log, and pass over what is written there next. What is of an open
   transaction is in the log: a range that waits for it fails by its time-out, and is not ended early.
7. The fetch of the range that follows begins as soon as this one's last record is there: while that is worked on, and
   written. It is given up where this range is not read to its end, and not begun where topics are fetched by name.
8. It reads with an ordinary `Consumer`, which follows a partition whose leader moves (`_core/network/fetcher.py`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from instride._core.network.cluster import MISSING_GRACE
from instride.config import IsolationLevel
from instride.consumer import Consumer
from instride.consumer_records import ConsumerRecords
from instride.errors import (
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    OffsetsGoneError,
    TopicRecreatedError,
    TransportError,
    UnknownTopicOrPartitionError,
    WrongTopicError,
)
from instride.records import TopicPartition
from instride.spark._functions import pickle_function, unpickled
from instride.spark.sink import OutputRange
from instride.telemetry import PartitionFlows, PartitionStalled, TelemetryEvent

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RangeReader", "ReaderSettings", "carried", "end_offsets", "followed", "reader_for"]

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_MOST_READERS: Final = 4
_SOONEST: Final = 0.1
_LATEST: Final = 86_400.0
"""The bounds of `stalled_after`."""
_LOOK_AGAIN: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings:
    """What executors need to know to read. Hashable, picklable.

    timeout: seconds without any progress after which a range cannot be read.
    fail_on_data_loss: False passes over offsets that the log does not hold any more.
    ends_early: with fail_on_data_loss=False a range ends with its log, if that became shorter, and one that was cut and
    has grown again is read on. With ends_early=False neither is passed over (law 6).
    columns: which of the batches' columns are made, in this order; None: all.
    security: the consumer's settings of TLS and SASL, as `carried` makes them. They may hold secrets, so they are in no
    repr.
    """

    bootstrap_servers: str | tuple[str, ...]
    client_id: str = "instride"
    isolation_level: IsolationLevel = "read_uncommitted"
    timeout: float = 60.0
    fail_on_data_loss: bool = True
    ends_early: bool = False
    columns: tuple[str, ...] | None = None
    security: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    @property
    def consumer_settings(self) -> dict[str, Any]:
        """Those of any consumer of the same brokers."""
        security = {name: each.function if isinstance(each, _Carried) else each for name, each in self.security}
        return {"bootstrap_servers": self.bootstrap_servers, "client_id": self.client_id, **security}


@dataclass(frozen=True, slots=True)
class _Carried:
    """A function, pickled once: what a worker is sent with each task equals what it was sent before, so its reader is
    found again. Two functions that were unpickled from it need not be equal.
    """

    payload: bytes = field(repr=False)

    @property
    def function(self) -> Callable[..., Any]:
        return unpickled(self.payload)


def carried(security: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """Settings on their way to the executors. Raises ConfigError for a function that cannot be pickled."""
    return tuple((name, _carried(name, each) if callable(each) else each) for name, each in security)


def _carried(name: str, function: Callable[..., Any]) -> _Carried:
    try:
        return _Carried(pickle_function(function))
    except Exception as error:  # a user's object may raise anything
        raise ConfigError(f"{name} cannot be sent to the executors: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetches:
    """Law 4. How a reader fetches. most_bytes: with one fetch. buffer_bytes: of all that it fetches ahead."""

    most_bytes: int
    buffer_bytes: int


_SHORT: Final = Fetches(most_bytes=2 << 20, buffer_bytes=2 << 20)
_LONG: Final = Fetches(most_bytes=8 << 20, buffer_bytes=32 << 20)
_record_bytes: Final[dict[str, float]] = {}
"""By topic, the bytes of a record in Arrow, as the batch that was read last had them. Columns that are not read do not
count: a range that is read without its values counts as a short one."""


def fetches_for(wanted: OutputRange) -> Fetches:
    """How to fetch a range, by the bytes of its topic's records as far as this process has read any."""
    nbytes = (wanted.end - wanted.start) * _record_bytes.get(wanted.topic, 0.0)
    return _LONG if nbytes >= _LONG.buffer_bytes else _SHORT


class RangeReader:
    """A consumer without a group, for one range after another. Not thread-safe."""

    def __init__(self, settings: ReaderSettings, fetches: Fetches = _SHORT) -> None:
        self._settings = settings
        self._fetches = fetches
        self._closed = False
        self._stall: PartitionStalled | None = None
        self._trouble: TransportError | None = None
        self._reading: object = None  # what `read` made last
        self._ahead: OutputRange | None = None
        self._by_name = False  # law 5: some topic was fetched by its name
        self._consumer = Consumer(
            isolation_level=settings.isolation_level,
            auto_offset_reset="none",
            max_poll_records=-1,
            # Of a short range little is fetched beyond the end.
            fetch_buffer_bytes=fetches.buffer_bytes,
            max_partition_fetch_bytes=fetches.most_bytes,
            # The next range's fetch does not wait behind an empty one.
            fetch_max_wait=0.02,
            # Why nothing comes is known before the reader gives up, and said then.
            stalled_after=min(_LATEST, max(_SOONEST, settings.timeout / 2)),
            telemetry=self._heard,
            **settings.consumer_settings,  # security was checked by the pipeline
        )

    def read(self, wanted: OutputRange, following: OutputRange | None = None) -> Iterator[pa.RecordBatch]:
        """The range's records, in order, columns as `ConsumerRecords.to_arrow` has them; no batch is empty.

        following: the range that is to be read next, if it is known (law 7).
        Raises WrongTopicError (law 5), OffsetsGoneError (law 6), KafkaTimeoutError when nothing comes for too long,
        CorruptRecordError, and other errors of the partition.
        """
        self._ahead = None
        self._go_to(wanted)
        whole, self._reading = False, (this := object())
        try:
            if self._by_name:
                self._look_first(wanted, wanted.start)
            yield from self._read(wanted, following)
            if self._by_name:
                self._check_topic(wanted)
            whole = True
        finally:
            # Law 3: whoever gave this reader up has closed it, or reads another range, and this generator may end long
            # after.
            is_current = self._reading is this and not self._closed
            if is_current and (not whole or self._ahead is None):
                self._consumer.pause(*self._consumer.assignment())

    def rest(self) -> None:
        """Another reader reads what was to follow: of that nothing more is fetched."""
        if self._ahead is not None:
            self._ahead = None
            self._consumer.pause(*self._consumer.assignment())

    def close(self) -> None:
        self._closed = True
        self._consumer.close(timeout=1.0)

    def _heard(self, event: TelemetryEvent) -> None:
        if isinstance(event, PartitionStalled):
            self._stall = event
        elif isinstance(event, PartitionFlows):
            self._stall = None

    def _why(self) -> str:
        """What the consumer knows of a partition that stands still."""
        if self._stall is None:
            return ""
        return f": {self._stall.cause.value}" + (f", {self._stall.error}" if self._stall.error else "")

    def _look_first(self, wanted: OutputRange, position: int) -> None:
        """Law 5. What was fetched before is fetched again."""
        if wanted.topic_id:
            self._look_for(wanted, again=position == wanted.start)
        self._consumer.seek(wanted.topic_partition, position)

    def _is_proven(self, wanted: OutputRange, position: int) -> bool:
        """Law 5. Whether what comes next is of the range's topic; else it is fetched again."""
        if self._by_name or not wanted.topic_id:
            return True
        found = self._consumer.fetched_topic_id(wanted.topic_partition)
        if str(found) == wanted.topic_id:
            return True
        if found is not None and position != wanted.start:
            raise _other_topic(wanted, found)
        self._by_name = found is None
        self._look_first(wanted, position)
        return False

    def _check_topic(self, wanted: OutputRange) -> None:
        if wanted.topic_id:
            self._look_for(wanted, again=False)

    def _look_for(self, wanted: OutputRange, *, again: bool) -> None:
        """Law 5. again: whether a broker that knows another topic of that name may be behind. Else its word counts at
        once: asked again, a broker that is behind might name the older one. Raises UnknownTopicOrPartitionError or
        WrongTopicError."""
        until = time.monotonic() + MISSING_GRACE
        while (error := self._is_gone(wanted)) is not None:
            if time.monotonic() >= until or (isinstance(error, WrongTopicError) and not again):
                raise error
            time.sleep(_LOOK_AGAIN)

    def _is_gone(self, wanted: OutputRange) -> KafkaError | None:
        """By the word of one broker."""
        found = self._consumer.partitions_for(wanted.topic, timeout=self._settings.timeout)
        if all(each.partition != wanted.partition for each in found):
            return UnknownTopicOrPartitionError(f"{wanted} cannot be read: its partition is not there any more")
        if wanted.topic_id and str(found[0].topic_id) != wanted.topic_id:
            return _other_topic(wanted, found[0].topic_id)
        return None

    def _go_to(self, wanted: OutputRange) -> None:
        """What was fetched beyond the last range's end is used where this range begins there."""
        consumer, partition = self._consumer, wanted.topic_partition
        if partition in consumer.assignment() and consumer.position(partition, timeout=0) == wanted.start:
            consumer.resume(partition)
            return
        consumer.assign([])
        consumer.assign([partition])
        consumer.seek(partition, wanted.start)

    def _go_ahead(self, wanted: OutputRange, following: OutputRange | None) -> None:
        """Law 7. Of the same partition the consumer fetches ahead by itself. Another reader begins its own ranges."""
        if self._by_name or following is None or following.topic_partition == wanted.topic_partition:
            return
        if fetches_for(following) == self._fetches:
            self._go_to(following)
            self._ahead = following

    def _read(self, wanted: OutputRange, following: OutputRange | None) -> Iterator[pa.RecordBatch]:
        partition = wanted.topic_partition
        position, last_progress, self._stall, self._trouble = wanted.start, time.monotonic(), None, None
        while position < wanted.end:
            try:
                records = self._poll(wanted, position)
            except OffsetOutOfRangeError as error:
                # First: the offsets of a topic that was made again mean other records, and none may be passed over.
                self._check_topic(wanted)
                position = self._after_loss(wanted, position, error)
                self._check_topic(wanted)
                continue
            reached = self._consumer.position(partition, timeout=self._settings.timeout)
            if reached > position and not self._is_proven(wanted, position):
                reached = position
            # Before the batches are given out: the next range is fetched while these are worked on.
            if reached >= wanted.end:
                self._go_ahead(wanted, following)
            if reached > position:
                yield from self._given(wanted, records)
            # After the yields: the time that the user's function took is no waiting for Kafka.
            now = time.monotonic()
            if reached > position:
                position, last_progress, self._trouble = reached, now, None
            elif now - last_progress > self._settings.timeout:
                if self._is_the_end(wanted, position):
                    return
                seconds = f"{now - last_progress:.0f} s"
                raise KafkaTimeoutError(
                    f"reading {wanted}: nothing came after offset {position} for {seconds}{self._why()}"
                ) from self._trouble

    def _poll(self, wanted: OutputRange, position: int) -> ConsumerRecords:
        """A poll. It raises neither what ends no range (law 5), nor what may pass within the reader's time-out."""
        try:
            return self._consumer.poll(timeout=_POLL_SECONDS, max_records=wanted.end - position)
        except TopicRecreatedError as error:
            if str(error.topic_id) != wanted.topic_id or position != wanted.start:
                raise _other_topic(wanted, error.topic_id) from error
            self._consumer.seek(wanted.topic_partition, position)
        except UnknownTopicOrPartitionError:
            self._look_for(wanted, again=position == wanted.start)
        except TransportError as error:
            if not error.retriable:
                raise
            self._trouble = error
            _log.warning("reading %s: %s", wanted, error)
        return ConsumerRecords()

    def _given(self, wanted: OutputRange, records: ConsumerRecords) -> Iterator[pa.RecordBatch]:
        for batch in records.to_arrow(_with_offset(self._settings.columns)):
            kept = _before(batch, wanted.end)
            if kept.num_rows:
                _record_bytes[wanted.topic] = kept.nbytes / kept.num_rows
                yield kept if self._settings.columns is None else kept.select(list(self._settings.columns))

    def _after_loss(self, wanted: OutputRange, position: int, error: OffsetOutOfRangeError) -> int:
        """Law 6: where to go on."""
        partition = wanted.topic_partition
        begin = self._consumer.beginning_offsets([partition])[partition]
        raises = self._settings.fail_on_data_loss or (begin <= position and not self._settings.ends_early)
        # Another connection could fail, and hide the loss.
        end = self._consumer.end_offsets([partition])[partition] if raises else self._log_end(partition)
        if raises:
            # A log that begins behind the offset is passed over in any case, one that ends before it is not.
            passable = begin > position or self._settings.ends_early
            raise OffsetsGoneError(
                f"{wanted} cannot be read at offset {position}: the log of {partition} holds [{begin}, {end}). "
                "Retention, DeleteRecords or an unclean leader election removed the rest. Nothing was skipped"
                + ("; fail_on_data_loss=False goes on without what is gone" if passable else "")
            ) from error
        if end < position:
            _end_early(wanted, end)
            # It has failed there. A range that begins there, such as this one once more, is to find that anew.
            self._consumer.assign([])
            return wanted.end
        # Where it does not begin behind the offset, it was cut, and has grown again.
        goes_on = max(begin, position)
        target = min(goes_on, wanted.end)
        _log.warning("offsets [%d, %d) of %s are gone and are passed over: %s", position, target, partition, error)
        self._consumer.seek(partition, goes_on)
        return target

    def _is_the_end(self, wanted: OutputRange, position: int) -> bool:
        """Law 6, of a range of which nothing comes any more: whether it ends at this offset, with its log."""
        if self._settings.fail_on_data_loss or not self._settings.ends_early:
            return False
        partition = wanted.topic_partition
        try:
            end = self._log_end(partition, timeout=self._settings.timeout)
        except KafkaError as error:
            if not error.retriable:
                raise
            return False
        if end > position:
            return False
        self._check_topic(wanted)
        _end_early(wanted, end)
        return True

    def _log_end(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Behind the records of transactions that are open, too: those may come yet. A consumer that reads what is
        committed is told where the first of them begins."""
        if self._settings.isolation_level == "read_uncommitted":
            return self._consumer.end_offsets([partition], timeout=timeout)[partition]
        with Consumer(**self._settings.consumer_settings) as consumer:
            return consumer.end_offsets([partition], timeout=timeout)[partition]


def _end_early(wanted: OutputRange, end: int) -> None:
    _log.warning("the log of %s ends at %d and so ends before the range %s does", wanted.topic_partition, end, wanted)


def _other_topic(wanted: OutputRange, topic_id: UUID | None) -> WrongTopicError:
    return WrongTopicError(
        f"{wanted} is of the topic with id {wanted.topic_id}, but the id is now {topic_id}: the topic was deleted and "
        "made again, so its offsets mean other records. Nothing of it is committed"
    )


def _with_offset(columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """A range is cut by its offsets."""
    return columns if columns is None or "offset" in columns else (*columns, "offset")


def _before(batch: pa.RecordBatch, end: int) -> pa.RecordBatch:
    """The records below an offset: a poll returns at most as many as are wanted, but offsets have gaps."""
    offsets = batch.column("offset").to_numpy()
    return batch if offsets[-1] < end else batch.slice(0, int(offsets.searchsorted(end)))


def followed(ranges: Sequence[OutputRange]) -> Iterator[tuple[OutputRange, OutputRange | None]]:
    """Each range of a task, and the one that follows it."""
    return zip_longest(ranges, ranges[1:])


def end_offsets(settings: ReaderSettings, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Where the logs end now, for this isolation level. Topics that are not there are left out: after MISSING_GRACE,
    since a broker may be behind the others. Raises KafkaTimeoutError."""
    with Consumer(isolation_level=settings.isolation_level, **settings.consumer_settings) as consumer:
        partitions = _partitions(consumer, frozenset(topics), settings.timeout)
        return dict(consumer.end_offsets(partitions, timeout=settings.timeout)) if partitions else {}


def _partitions(consumer: Consumer, topics: Collection[str], timeout: float) -> list[TopicPartition]:
    until = time.monotonic() + MISSING_GRACE
    found: dict[str, list[TopicPartition]] = {}
    while True:
        # What was found is not asked again: the next broker may be behind in just that.
        listed = consumer.list_topics([topic for topic in topics if topic not in found], timeout=timeout)
        found |= {topic: [info.topic_partition for info in infos] for topic, infos in listed.items() if infos}
        if len(found) == len(topics) or time.monotonic() >= until:
            return [partition for partitions in found.values() for partition in partitions]
        time.sleep(_LOOK_AGAIN)


_readers: dict[tuple[ReaderSettings, Fetches], tuple[int, RangeReader]] = {}


def reader_for(settings: ReaderSettings, wanted: OutputRange | None = None) -> RangeReader:
    """This process's reader for such a range with these settings: made once. For one thread, as a Spark worker process
    has. wanted: None for a short range.
    """
    key = settings, _SHORT if wanted is None else fetches_for(wanted)
    # Taken out and put in again: so the first in the dict is the one that was not used for longest.
    pid, reader = _readers.pop(key, (0, None))
    if reader is None or pid != os.getpid():
        reader = RangeReader(*key)
    _readers[key] = (os.getpid(), reader)
    for its_pid, each in _readers.values():
        if each is not reader and its_pid == os.getpid():
            with suppress(KafkaError):  # of a reader whose consumer has died: who wants that one next is told
                each.rest()
    while len(_readers) > _MOST_READERS:
        _close(next(iter(_readers)))
    return reader


def forget(settings: ReaderSettings) -> None:
    """Close this process's readers with these settings, so that the next one starts afresh."""
    for key in [each for each in _readers if each[0] == settings]:
        _close(key)


def _close(key: tuple[ReaderSettings, Fetches]) -> None:
    pid, reader = _readers.pop(key)
    # In the child of a fork the connections are the parent's.
    if pid == os.getpid():
        reader.close()
