"""The Fetch request and response, versions 4 to 18: the hot path, so written out by hand.

Laws
1. Record bytes are neither copied nor looked at: `FetchedPartition.undecoded` points into the response's body.
2. What the broker leaves out of its response gets UNKNOWN_SERVER_ERROR, but in an incremental fetch of a
   session, where nothing is said of what has nothing new, and in the empty response of a broker that throttles.
   Partitions that the request did not name are ignored.
3. Any body gives a response or a ProtocolError. Record batches that cannot be read are no error of the
   message: to decode them tells, and the other partitions flow.
4. A partition that is listed twice is a ProtocolError, and so are many that were not requested. Of the lists of aborted
   transactions nothing is made before the batches are decoded.

What the versions brought: 5 log start offset, 7 sessions, 9 leader epoch, 11 rack and preferred replica,
12 compact types and tags, 13 topic ids in place of names, 15 no replica id, 16 to 18 tagged fields only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from instride._wire.api import NO_TOPIC_ID, Fetch, FetchedPartition, FetchPartition, FetchResponse, Partition
from instride._wire.reader import Reader, written_count, written_text
from instride._wire.record_set import RecordSet
from instride.errors import ProtocolError

__all__ = ["FETCH_VERSIONS", "decode_fetch", "encode_fetch"]

# Below version 4 a broker converts batches to the formats 0 and 1, which nothing here reads.
FETCH_VERSIONS: Final = (4, 18)

_LOG_START_FROM: Final = 5
_SESSION_FROM: Final = 7
_LEADER_EPOCH_FROM: Final = 9
_RACK_FROM: Final = 11
_COMPACT_FROM: Final = 12
_TOPIC_ID_FROM: Final = 13
_NO_REPLICA_ID_FROM: Final = 15

_UNKNOWN_SERVER_ERROR: Final = -1
_CONSUMER: Final = -1  # where followers write their replica id

_INT32: Final = Struct(">i")
_SIZES: Final = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_SESSION: Final = Struct(">ii")
# A partition that is requested, and the head of one in a response, from that version on.
_FETCH_4: Final = Struct(">iqi")
_FETCH_5: Final = Struct(">iqqi")
_FETCH_9: Final = Struct(">iiqqi")
_FETCH_12: Final = Struct(">iiqiqi")
_HEAD_4: Final = Struct(">ihqq")
_HEAD_5: Final = Struct(">ihqqq")

_NO_TAGS: Final = b"\x00"
_INT32_MAX: Final = (1 << 31) - 1
# Of topics, partitions and tags in a response, besides two for each partition that the session has.
_FEW: Final = 20_000


def encode_fetch(request: Fetch, version: int) -> bytes:
    """The request's body. From version 13 on every topic needs its id, which `partitions` give."""
    return _Writer(version).fetch(request)


class _Writer:
    """Writes one request in one version."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._compact = version >= _COMPACT_FROM
        self._tags = _NO_TAGS if self._compact else b""

    def fetch(self, request: Fetch) -> bytes:
        version = self._version
        out = bytearray()
        if version < _NO_REPLICA_ID_FROM:
            out += _INT32.pack(_CONSUMER)
        max_wait = min(_INT32_MAX, max(0, round(request.max_wait * 1000)))
        out += _SIZES.pack(max_wait, request.min_bytes, request.max_bytes, 1 if request.read_committed else 0)
        if version >= _SESSION_FROM:
            out += _SESSION.pack(request.session_id, request.session_epoch)
        out += self._by_topic((each, self._partition(each)) for each in request.partitions)
        if version >= _SESSION_FROM:
            out += self._by_topic((each, _INT32.pack(each.partition)) for each in request.forgotten)
        if version >= _RACK_FROM:
            out += self._string(request.rack)
        return bytes(out + self._tags)

    def _by_topic(self, written: Iterable[tuple[FetchPartition, bytes]]) -> bytes:
        # By the number of the id: to hash an id, or to compare two, is a function in Python.
        topics: dict[tuple[str, int], list[bytes]] = {}
        name, number, rows = "", 0, list[bytes]()
        for each, data in written:
            if each.topic_id.int != number or each.topic is not name:
                name, number = each.topic, each.topic_id.int
                rows = topics.setdefault((name, number), [])
            rows.append(data)
        out = bytearray(self._count(len(topics)))
        for (topic, topic_number), partitions in topics.items():
            out += self._topic(topic, topic_number)
            out += self._count(len(partitions)) + b"".join(partitions) + self._tags
        return bytes(out)

    def _partition(self, each: FetchPartition) -> bytes:
        # Minus one: the last fetched epoch and the log's start, which followers tell.
        if self._version >= _COMPACT_FROM:
            row = _FETCH_12.pack(each.partition, each.leader_epoch, each.offset, -1, -1, each.max_bytes)
        elif self._version >= _LEADER_EPOCH_FROM:
            row = _FETCH_9.pack(each.partition, each.leader_epoch, each.offset, -1, each.max_bytes)
        elif self._version >= _LOG_START_FROM:
            row = _FETCH_5.pack(each.partition, each.offset, -1, each.max_bytes)
        else:
            row = _FETCH_4.pack(each.partition, each.offset, each.max_bytes)
        return row + self._tags

    def _topic(self, topic: str, topic_number: int) -> bytes:
        if self._version < _TOPIC_ID_FROM:
            return self._string(topic)
        if topic_number == NO_TOPIC_ID.int:
            raise ValueError(f"Fetch version {self._version} names topics by id; that of {topic!r} is not given")
        return topic_number.to_bytes(16)

    def _string(self, text: str) -> bytes:
        return written_text(text, compact=self._compact)

    def _count(self, count: int) -> bytes:
        return written_count(count, compact=self._compact)


def decode_fetch(body: memoryview, version: int, request: Fetch) -> FetchResponse:
    """The response in a body. The body must not change afterwards: what is undecoded points into it.

    request: what was requested, and for a session all that is in it; it gives topics' names and fetch offsets, and
    the bound of decompression. Raises ProtocolError.
    """
    return _Reading(body, version, request).response()


@dataclass(frozen=True, slots=True)
class _Aborted:
    """The list of a partition's aborted transactions, which is not read before there is room for it.

    data: a copy, since it must not keep the response.
    """

    data: bytes
    count: int
    compact: bool

    def read(self) -> tuple[tuple[int, int], ...]:
        reader = Reader(self.data)
        found = []
        for _ in range(self.count):
            found.append((reader.int64(), reader.int64()))
            if self.compact:
                reader.tagged_fields()
        return tuple(found)


_NONE_ABORTED = _Aborted(b"", 0, False)


@dataclass(frozen=True, slots=True)
class _Head:
    """A partition's response without its records."""

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: _Aborted
    preferred_read_replica: int


class _Reading:
    """Reads one response in one version."""

    def __init__(self, body: memoryview, version: int, request: Fetch) -> None:
        self._body = body
        self._version = version
        self._compact = version >= _COMPACT_FROM
        self._request = request
        self._requested: Mapping[Partition, FetchPartition] = request.known or {
            (each.topic, each.partition): each for each in request.partitions
        }
        self._names = request.topics or {each.topic_id.bytes: each.topic for each in self._requested.values()}
        self._reader = Reader(body, elements=_FEW + 2 * len(self._requested))

    def response(self) -> FetchResponse:
        reader = self._reader
        throttle_time = reader.int32() / 1000
        error = session_id = 0
        if self._version >= _SESSION_FROM:
            error, session_id = reader.int16(), reader.int32()
        partitions: dict[Partition, FetchedPartition] = {}
        for _ in range(reader.claim(self._count(smallest=6))):
            self._topic(partitions)
        self._skip_tags()
        throttled = throttle_time > 0 and not partitions  # KIP-219: nothing was read, so nothing is missing
        # 0 opens a session and -1 is none (KIP-227): both have every partition in the response.
        if error == 0 and self._request.session_epoch <= 0 and not throttled:
            for key in self._requested.keys() - partitions.keys():
                partitions[key] = FetchedPartition(error=_UNKNOWN_SERVER_ERROR)
        return FetchResponse(
            error=error,
            session_id=session_id,
            partitions=partitions,
            throttle_time=throttle_time,
            by_id=self._version >= _TOPIC_ID_FROM,
        )

    def _topic(self, partitions: dict[Partition, FetchedPartition]) -> None:
        topic = self._topic_name()
        for _ in range(self._reader.claim(self._count(smallest=24))):
            head, records = self._head(), self._records()
            self._skip_tags()
            requested = None if topic is None else self._requested.get((topic, head.partition))
            if requested is None:
                continue
            if (requested.topic, requested.partition) in partitions:
                raise ProtocolError(
                    f"partition {requested.partition} of topic {requested.topic!r} is listed twice in a response"
                )
            partitions[requested.topic, requested.partition] = self._fetched(requested, head, records)
        self._skip_tags()

    def _topic_name(self) -> str | None:
        """None for an id that was not requested."""
        if self._version >= _TOPIC_ID_FROM:
            return self._names.get(bytes(self._reader.take(16)))
        return self._reader.compact_string() if self._compact else self._reader.string()

    def _head(self) -> _Head:
        reader, log_start = self._reader, -1
        if self._version >= _LOG_START_FROM:
            partition, error, high_watermark, last_stable, log_start = reader.row(_HEAD_5)
        else:
            partition, error, high_watermark, last_stable = reader.row(_HEAD_4)
        return _Head(
            partition=partition,
            error=error,
            high_watermark=high_watermark,
            last_stable_offset=last_stable,
            log_start_offset=log_start,
            aborted=self._aborted(),
            preferred_read_replica=reader.int32() if self._version >= _RACK_FROM else -1,
        )

    def _aborted(self) -> _Aborted:
        reader, count = self._reader, self._count(smallest=17 if self._compact else 16)
        if not count:
            return _NONE_ABORTED
        start = reader.position
        if not self._compact:
            reader.take(16 * count)
        elif not any(self._body[start + 16 : start + 17 * count : 17]):
            reader.take(17 * count)  # none has tags, as usual: no loop over millions
        else:
            for _ in range(reader.claim(count)):
                reader.take(16)
                reader.tagged_fields()
        return _Aborted(bytes(self._body[start : reader.position]), count, self._compact)

    def _records(self) -> memoryview:
        reader = self._reader
        view = reader.compact_nullable_bytes_view() if self._compact else reader.nullable_bytes_view()
        return memoryview(b"") if view is None else view

    def _fetched(self, requested: FetchPartition, head: _Head, records: memoryview) -> FetchedPartition:
        undecoded = None
        if records and not head.error:
            committed = self._request.read_committed
            undecoded = RecordSet(
                records,
                topic=requested.topic,
                partition=requested.partition,
                fetch_offset=requested.offset,
                read_committed=committed,
                aborted=head.aborted.read,
                aborted_count=head.aborted.count,
                # A broker gives a reader of committed data nothing from the last stable offset on.
                end=head.last_stable_offset if committed else head.high_watermark,
                # All of the buffer, not this part: a view of the part keeps all of it.
                frame_bytes=memoryview(self._body.obj).nbytes,
                requested_bytes=requested.max_bytes,
                epochs=(requested.passed_epoch, requested.leader_epoch),
                max_decompressed_bytes=self._request.max_decompressed_bytes,
            )
        return FetchedPartition(
            error=head.error,
            high_watermark=head.high_watermark,
            last_stable_offset=head.last_stable_offset,
            log_start_offset=head.log_start_offset,
            preferred_read_replica=head.preferred_read_replica,
            next_offset=requested.offset,
            undecoded=undecoded,
        )

    def _count(self, *, smallest: int) -> int:
        reader = self._reader
        count = reader.compact_array_count(smallest) if self._compact else reader.array_count(smallest)
        return count or 0

    def _skip_tags(self) -> None:
        if self._compact:
            self._reader.tagged_fields()
