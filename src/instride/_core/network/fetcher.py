"""Fetching: for each broker one request of the partitions that lag, and one of those that are read to their end.

Why two: a broker holds a fetch back until it has records to send. A partition that lags must not wait for one
that has nothing new, so each kind has its own connection (a lane).

Laws of the fetcher
1. What comes back under an older epoch or fetch number is dropped.
2. The partitions of a request take turns in its order, so that a full response starves none. In a session the broker
   sees to that: it moves a partition that it has sent records of to the end.
3. An error of one partition stops that partition only. A leader's error requests fresh metadata and waits. Whether
   an offset is out of range, and where the partition goes on then, `positions` decides (its laws 7 to 9).
4. A corrupt batch, or a response that cannot be read, is fetched once more; then its partitions have failed, and are
   tried again as `positions` says. After a response that could not be read each of its partitions is fetched alone: it
   may be one of them that makes all unreadable.
5. The position moves only by a broker's response: to the end of the last complete batch.
6. A partition is in one request at a time. A fetch at the end that leaves out a partition of its broker (since its
   buffer is full, or it lags) waits briefly only, so that this one can join it soon. One whose end is not known, as
   after a seek or a new assignment, does not wait for a fetch that was sent without it: it goes with those that lag.
7. Where the leader names a replica in our rack (KIP-392), that one is fetched from, for metadata_max_age, unless it
   fails, does not have the offset, or the leader changes: then the leader decides again.
8. A broker that throttles is not sent a fetch before its time (KIP-219), but for request_timeout at most: it may lie,
   or the time may have been damaged on the way. The longest of what its responses say counts, of both lanes and with an
   error too.
9. What came is decoded when there is capacity for it (C3), of each partition in turn, and so much in one turn of the
   machine that heartbeats are never late. While one batch passes alone that is larger than the capacity, nothing else
   that came is kept: it is fetched again. What is little is decoded as it comes. Else the fetches that follow leave
   first: it is decoded from the next turn on, and two turns running never pass without decoding.
10. A session names all of its partitions again each metadata_max_age: what a broker believes to be in it may have been
    damaged on the way, and the broker would never send the others.
11. Where a response states no end of the log, since a session leaves out what has no news, its end is taken to be where
    the next fetch begins: else that would be sent at once, again and again, since an unknown end does not wait (law 6).
    Not where the broker throttles and states nothing of any partition: it has not looked.
12. A broker that responds before half of the time for which it may hold a fetch back, and sends no records, has a
    reason: an error of one partition, another replica, a session that it has forgotten. After `_EARLY` such responses
    of a lane running its next fetch waits, each time twice as long, up to the time for which the last one let the
    broker wait, or a second: a broker that never holds a fetch back then gets as few fetches as one that does. So
    does one that throttles each time and states nothing (law 11).

13. The application hears where a log ends with the records that came, or else alone: once for each change, and of all
    partitions of a response in one event. A guess (law 11) is told only where no end was, and not of a partition for
    which the response states an error: a broker states its end once the error has passed. (rule 20)

Laws of fetching ahead: the next fetch of a partition leaves before what came of it is decoded (`Undecoded`)
A1. What came of a partition waits in a queue, each part with the offset it begins at and the one after its last whole
    batch, by the batches' headers. The next fetch is from the end of the queue.
A2. A response is taken only if it was fetched from where the queue ends now. So whatever empties the queue (a seek, a
    bad batch, another leader) drops what was fetched ahead; its response is dropped, and it is fetched again.
A3. A part continues the one before it: where decoding ends elsewhere than the headers said, the rest is dropped.
A4. Behind a part whose headers do not lead further (no whole batch, or a batch that is no batch) nothing is fetched.
A5. What a fetch ahead met that is no batch (an error, an offset out of range) is not judged: the position that is
    judged is that of the last decoded record. It is fetched again once all that came before is decoded.

Laws of the capacity: which partitions may be fetched, and what may be decoded (KIP-41, "Prefetching")
C1. One half of fetch_buffer_bytes is for what is requested or has come and is not decoded yet; the other half is for
    what is decoded and was not returned yet. A partition's share is an equal part of a half; those that are to be
    revoked have none, so that a delayed revoke slows nobody, nor have those without demand (`assigned_partitions`).
    While one batch fills both halves, or nearly, an eighth of the whole is for what is requested. Where more than its
    half has come, so much less may be decoded, but an eighth of the whole at least.
C2. A partition is fetched again when what is buffered of it is under its share, and when all that came of it is
    decoded, or that and the most that the fetch may bring are together within its share, and within two responses.
    Nothing waits for the broker while there is capacity. One fetch requests a share of a partition at most.
C3. A partition is decoded while what is buffered of it is under its share, a batch at a time at least, and only within
    the half, of which is counted what is really in memory. Without that capacity only small batches of a partition of
    which nothing is buffered pass, and one batch alone where nothing waits that a poll could take: so the application
    goes on. For that one batch, what came of other partitions is dropped. A partition that was passed over for want of
    capacity is in a queue. The first of the queue is the first that is tried; once others were decoded before it in
    `_PATIENCE` turns, nothing else is decoded until it is: then what waits becomes less with each poll. The others are
    tried again when they have changed, or when there is more capacity than they were tried with.
C4. prefetch="total" (KIP-41's heuristic 1): besides, fewer than max_poll_records are buffered in all.
    prefetch="partition" (heuristic 2): besides, fewer than the partition's share of max_poll_records are.
    Both mean nothing where max_poll_records is -1; else nothing is fetched ahead: nobody has counted what came.
C5. A slow partition, full of what nobody consumes, never stops another; what is buffered of one that is paused or to be
    revoked, or of which a record cannot be deserialized, does not count for the others.
C6. A broker sends one batch at least for the first partition of a response, however large (KIP-74). So a fetch says how
    long its response may be: as long as is usual, or longer, within what is free of fetch_buffer_bytes and no fetch in
    flight may fill: twice what its lane expects, or all of that, where the lane lags while nothing waits to be decoded.
    While such a response is in flight no batch passes alone, and while one is to pass alone no such fetch leaves: both
    would be there. A longer response is not received. Its lane then waits until so much is free. While it waits no
    other fetch leaves, but usual ones where it waits for no poll, but for another such response: a broker may hold that
    back. What came of partitions that cannot be decoded (as of paused ones) is let go of. Where nothing is left
    that a poll could take, so much need not be free: one such response is in flight at a time.
    What is usual is an equal part of `_TOGETHER` for each of a broker's two lanes, however many brokers there are. So
    what is buffered and all that is in flight come to fetch_buffer_bytes and `_TOGETHER` at most. A fetch for which too
    little of that is left waits for a response, or for a poll.
C7. A batch passes alone (C3), and a response may have any length (C6), only where what is buffered and no poll takes
    (of partitions that are paused or to be revoked, or of which a record cannot be deserialized) keeps no more than
    an eighth of fetch_buffer_bytes. Else the application is asked to drop it, those that keep most first. What is to be
    revoked it drops by itself.

Laws of the fetch sessions (KIP-227): a broker remembers a lane's partitions, and each fetch says only what has changed
S1. A session belongs to one lane, with one fetch in flight at a time. Its first fetch names everything (epoch 0); those
    that follow name what is new or has moved, and what is to be forgotten, in the next epoch.
S2. After any error the next fetch names everything again, and ends the old session. A broker that makes no session
    (it responds with session id 0, as when its cache is full) is always sent everything.
S3. A session names its topics by id or by name, from its beginning to its end; where that must change, or one of its
    topics was recreated, a new one begins.
S4. What a session has and a fetch does not want any more is forgotten, so that nothing unwanted is sent.
S5. The fetcher may have everything named again (`renew`): a request that was damaged on the way may have put another
    partition into the broker's session. Of one outside its session a broker sends nothing, not even an error.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple
from uuid import UUID

from instride._core.events import DropBuffered, EndsFound, Fetched
from instride._core.network.actions import ConnectionKey, Role
from instride._core.network.assigned_partitions import (
    Arrival,
    AssignedPartition,
    AssignedPartitions,
    Phase,
    Undecoded,
    keep,
)
from instride._core.network.cluster import Cluster
from instride._core.network.connections import Backoff, forget
from instride._core.network.context import Context
from instride._core.network.positions import Fences, Positions, note_fetch, unchanged
from instride._core.ownership import Ownership
from instride._wire import api
from instride._wire.record_chunk import RecordChunk
from instride.config import ConsumerConfig
from instride.errors import (
    FrameTooLargeError,
    KafkaError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TransportError,
    error_for_code,
)
from instride.errors._quoting import counted
from instride.errors.broker import name_of_code
from instride.errors.codes import ErrorCategory, ErrorCode, of_category
from instride.records import TopicPartition

__all__ = [
    "Capacity",
    "DecodingCapacity",
    "FetchSession",
    "FetchSessionState",
    "Fetcher",
    "SESSION_ERRORS",
    "alone",
    "capacity",
    "decoding_capacity",
    "next_epoch",
    "requested_bytes",
    "response_bytes",
    "share",
    "usual_bytes",
]

# -- capacity

# A batch that is this small passes when nothing of its partition is buffered (C3).
_SMALL_BYTES = 16 << 10
# What a usual response has besides what was requested (C6): brokers allow batches of a MiB by default. Its partition's
# name, and whatever else is not records.
_LARGER_BATCH = 5 << 18
# What all responses in flight may have together besides what is free of the buffer, and what one has at least (C6).
_TOGETHER = 32 << 20
_LEAST = 16 << 10
# The part of the buffer that may stay full of what no poll takes, beside a batch that passes alone (C7).
_STAYS = 8
# C1: of the whole.
_LEAST_DECODED = 8
_PARTITION_BYTES = 512
# In so many responses of its lane after a large one, and two for each partition, another one is expected.
_REMEMBERED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """C2 and C4. nbytes, records: a partition is fetched again while less than that is buffered of it.

    most_bytes: how many bytes of one partition a fetch may bring.
    undecoded: while something of it is undecoded, only if that is no more than this; -1: not before all is decoded.
    none: no partition is fetched at all.
    """

    nbytes: int
    most_bytes: int
    records: int
    undecoded: int
    none: bool

    def of(self, assigned: AssignedPartition) -> bool:
        """Whether what is buffered of the partition leaves capacity for more."""
        if assigned.nbytes >= self.nbytes or 0 <= self.records <= assigned.records:
            return False
        return not assigned.undecoded or (assigned.leads_on and assigned.undecoded_bytes <= self.undecoded)


def capacity(config: ConsumerConfig, owned: AssignedPartitions) -> Capacity:
    """Of each of these."""
    sharers, limit = owned.sharers, -1 if config.prefetch == "bytes" else config.poll_records
    counted, part = limit >= 0, max(1, requested_bytes(config, owned) // sharers)
    response = response_bytes(config)
    most = min(config.max_partition_fetch_bytes, part)
    ahead = min(part, 2 * response) - min(most, response)
    return Capacity(
        nbytes=part,
        most_bytes=most,
        records=max(1, limit // sharers) if counted and config.prefetch == "partition" else -1,
        undecoded=-1 if counted else ahead,
        none=counted and config.prefetch == "total" and owned.flowing_records >= limit,
    )


def requested_bytes(config: ConsumerConfig, owned: AssignedPartitions) -> int:
    """C1: for what is requested or has come and is not decoded yet."""
    # What is decoded fills its own half and most of the other: one batch that passed alone (C3).
    large = owned.memory_bytes > config.fetch_buffer_bytes * 3 // 4
    return config.fetch_buffer_bytes // (8 if large else 2)


def response_bytes(config: ConsumerConfig) -> int:
    """How many bytes a whole response may have. While it is taken apart, much of it may be there twice."""
    return min(config.fetch_max_bytes, max(1, config.fetch_buffer_bytes // 8))


def _segment_bytes(config: ConsumerConfig) -> int:
    """How much memory a response may take that has as much as was requested: a segment may be an eighth longer."""
    return (response_bytes(config) + _LARGER_BATCH) * 9 // 8


@dataclass(slots=True, kw_only=True)
class DecodingCapacity:
    """C3. share: of a partition. left: of the half. alone: whether one batch may be larger, since nothing waits that a
    poll could take; False also where it was found out that none may.
    """

    share: int
    left: int
    alone: bool

    def of(self, assigned: AssignedPartition) -> int:
        """How much may be decoded of a partition now."""
        least = _SMALL_BYTES if not assigned.pieces else 0
        return max(self.left, least)

    def took(self, nbytes: int) -> None:
        self.left -= nbytes
        self.alone = False


def decoding_capacity(config: ConsumerConfig, owned: AssignedPartitions) -> DecodingCapacity:
    whole = config.fetch_buffer_bytes
    most = max(min(whole // 2, whole - owned.undecoded_bytes), whole // _LEAST_DECODED)
    left = most - owned.memory_bytes
    return DecodingCapacity(share=share(config, owned.sharers), left=left, alone=not owned.flowing_memory_bytes)


@dataclass(slots=True, kw_only=True)
class _PassedOver:
    """A partition of the queue (C3). turns: in how many others were decoded while it was the first. tried_with: how
    much was too little for it, as it is.
    """

    turns: int = 0
    tried_with: int = -1


class _FreeBytes(NamedTuple):
    """C6. buffer: of fetch_buffer_bytes; negative where more is buffered. responses: of what all responses may have."""

    buffer: int
    responses: int


def usual_bytes(config: ConsumerConfig, brokers: int, left: int) -> int:
    """C6: how many bytes of records a response may always have: with a batch that is larger than was requested.

    left: of what all may have together. Where that is less than its part, the fetch takes it, if a batch of a MiB
    passes: brokers allow no larger ones by default. 0: it waits.
    """
    part = max(_LEAST, _TOGETHER // (2 * max(1, brokers)))
    return min(response_bytes(config) + _LARGER_BATCH, part, left) if left >= min(part, _LARGER_BATCH) else 0


def share(config: ConsumerConfig, partitions: int) -> int:
    """A partition's part of one half of the buffer, where so many share it."""
    return max(1, config.fetch_buffer_bytes // (2 * partitions))


# -- fetch sessions

_NO_SESSION = 0
_FULL = 0
# Epoch -1 ends the session that the fetch names, and makes none (KIP-227).
_FINAL = -1
_LAST_EPOCH = (1 << 31) - 1

SESSION_ERRORS = of_category(ErrorCategory.SESSION)
"""Errors of the session alone: the next fetch names everything again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSessionState:
    """What the next fetch of a session says.

    known: all that is in the session; topics: their names, by the bytes of their ids.
    """

    session_id: int
    session_epoch: int
    named: bool
    partitions: tuple[api.FetchPartition, ...]
    forgotten: tuple[api.FetchPartition, ...] = ()
    known: Mapping[api.Partition, api.FetchPartition] = field(default_factory=dict)
    topics: Mapping[bytes, str] = field(default_factory=dict)

    @property
    def names_everything(self) -> bool:
        return self.session_epoch == _FULL


def alone(wanted: api.FetchPartition) -> FetchSessionState:
    """A fetch of one partition, without a session."""
    named = wanted.topic_id == api.NO_TOPIC_ID
    return FetchSessionState(session_id=_NO_SESSION, session_epoch=_FINAL, named=named, partitions=(wanted,))


def next_epoch(epoch: int) -> int:
    """After the last number they begin again, at 1: 0 is of a fetch that names everything."""
    return epoch + 1 if epoch < _LAST_EPOCH else 1


def _has_no_id(wanted: api.FetchPartition) -> bool:
    """As `NO_TOPIC_ID`: to compare two ids is a function in Python."""
    return wanted.topic_id.int == 0


class FetchSession:
    """Not thread-safe: the fetcher owns it. `put` and `drop` what the next fetch is to be of, then `ask`.

    A fetch costs by what was put or dropped since the last one, but for those that name everything.
    """

    __slots__ = ("_before", "_epoch", "_id", "_named", "_table", "_topic_id", "_topics", "_without_id")

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FULL
        self._named = False
        self._table: dict[api.Partition, api.FetchPartition] = {}
        self._topic_id: UUID | None = None  # of what was put last
        self._topics: dict[bytes, str] = {}
        self._without_id = 0
        # What the broker knows of all that was put or dropped since the last fetch.
        self._before: dict[api.Partition, api.FetchPartition | None] = {}

    @property
    def established(self) -> bool:
        return self._id != _NO_SESSION

    def __len__(self) -> int:
        """How many partitions the next fetch is of."""
        return len(self._table)

    def put(self, wanted: api.FetchPartition) -> None:
        key = (wanted.topic, wanted.partition)
        before = self._take_out(key)
        self._table[key] = before if before == wanted and before is not None else wanted
        self._without_id += _has_no_id(wanted)
        if wanted.topic_id is not self._topic_id:  # a dict calls Python for the hash of an id
            self._topic_id = wanted.topic_id
            self._topics[wanted.topic_id.bytes] = wanted.topic

    def put_last(self, key: api.Partition) -> None:
        """In the order of fetches that name everything."""
        self._table[key] = self._table.pop(key)

    def drop(self, key: api.Partition) -> None:
        self._take_out(key)
        self._table.pop(key, None)

    def _take_out(self, key: api.Partition) -> api.FetchPartition | None:
        """It keeps its place in the order."""
        before = self._table.get(key)
        self._before.setdefault(key, before)
        self._without_id -= before is not None and _has_no_id(before)
        return before

    def ask(self, turn: int = 0, *, renew: bool = False) -> FetchSessionState:
        """The next fetch. turn: where a fetch that names everything begins in their order. renew: S5.

        Until its response came, or it failed, nothing may be put or dropped: the response is read by its `known`.
        """
        before, self._before = self._before, {}
        named = self._without_id > 0
        if renew or self._epoch == _FULL or named != self._named or self._of_another_topic(before):
            self._epoch, self._named = _FULL, named
            everything = tuple(self._table.values())
            self._topics, self._topic_id = {each.topic_id.bytes: each.topic for each in everything}, None
            # A broker fills a response from the first partition on: always the same order would starve the last ones.
            start = turn % max(1, len(everything))
            return self._state(everything[start:] + everything[:start], ())
        after = {key: self._table.get(key) for key in before}
        return self._state(
            tuple(each for key, each in after.items() if each is not None and before[key] != each),
            tuple(each for key, each in before.items() if each is not None and after[key] is None),
        )

    def _state(
        self, partitions: tuple[api.FetchPartition, ...], forgotten: tuple[api.FetchPartition, ...]
    ) -> FetchSessionState:
        return FetchSessionState(
            session_id=self._id,
            session_epoch=self._epoch,
            named=self._named,
            partitions=partitions,
            forgotten=forgotten,
            known=self._table,
            topics=self._topics,
        )

    def _of_another_topic(self, before: Mapping[api.Partition, api.FetchPartition | None]) -> bool:
        pairs = ((each, self._table.get(key)) for key, each in before.items())
        return any(old is not None and new is not None and old.topic_id.int != new.topic_id.int for old, new in pairs)

    def response_received(self, response: api.FetchResponse) -> None:
        """The fetch succeeded."""
        if self._epoch == _FULL:
            self._id = response.session_id
            self._epoch = next_epoch(_FULL) if self.established else _FULL
        # The broker has closed it (its cache was full): 0 or another id, and what it knows is gone (S2).
        elif response.session_id != self._id:
            self._id, self._epoch = _NO_SESSION, _FULL
        else:
            self._epoch = next_epoch(self._epoch)

    def failed(self, code: int = 0) -> bool:
        """S2. code: the response's error, or 0. Returns whether only the session was at fault: try again at once."""
        was_full, self._epoch = self._epoch == _FULL, _FULL
        # There is nothing to end. After INVALID_FETCH_SESSION_EPOCH there is: the next fetch names its id (S2).
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = _NO_SESSION
        return code in SESSION_ERRORS and not was_full

    def end(self) -> FetchSessionState:
        """The session is not needed any more: the broker may forget it."""
        ended = FetchSessionState(session_id=self._id, session_epoch=_FINAL, named=self._named, partitions=())
        self._id, self._epoch = _NO_SESSION, _FULL
        return ended


_STALE_METADATA = of_category(ErrorCategory.METADATA)
_RETRY = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})
_BRIEFLY = 0.05
# Replicas whose time is over are looked for once in so many seconds.
_REPLICAS_TOGETHER = 1.0
# What is decoded in one turn, about: some milliseconds' work.
_TURN_BYTES = 4 << 20
# What is decoded before the next fetch leaves (law 9): less work than a turn, and this part of a response at most.
_LITTLE_BYTES = 64 << 10
_LITTLE = 8
# So many tries of which nothing is expected any more are not worth a new heap.
_FEW = 64
# In so many turns others may be decoded before the first of those that wait for capacity (C3).
_PATIENCE = 16
# What a piece counts for besides its bytes.
_PIECE_BYTES = 4 << 10
# Law 12: so many early responses without records are followed at once; then the pauses begin, in seconds.
_EARLY = 8
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 1.0

# A broker, and its epoch as the leader.
_Leader = tuple[api.Broker, int]


class _Lane:
    """One fetch after another to one broker. Its session changes between two of them only.

    key: its connection, of Role.DATA for partitions that lag or Role.TAIL for those at their end.
    in_flight: the fences of the fetch that is under way, or None.
    fences: of what is in the session, as of when it was put there. unsure: those whose end is not known.
    unproven: those of which no fetch succeeded lately.
    suspects: each is fetched alone, without the session (law 4).
    named_at: when its session last named everything.
    early: how many responses running came early and without records. ready_at: before that no fetch is sent (law 12).
    turn: where a fetch that names everything begins: each of its own, lest two in step begin at the same ones for ever.
    needs: how long its next response is expected to be, where that is more than usual; for `remembers` responses (C6).
    most_bytes: how long the response to its last fetch may be. usual: how many bytes of records are usual in it;
    reserved: how much longer it may be; both are 0 while nothing is in flight.
    left: in the session, and to be dropped. again: to be looked at once the fetch has its response.
    None of them is a set: the same inputs give the same requests, whatever the hashes of a process.
    """

    __slots__ = (
        "again",
        "early",
        "fences",
        "in_flight",
        "key",
        "left",
        "most_bytes",
        "named_at",
        "needs",
        "ready_at",
        "remembers",
        "reserved",
        "session",
        "suspects",
        "turn",
        "unproven",
        "unsure",
        "usual",
    )

    def __init__(self, key: ConnectionKey) -> None:
        self.key = key
        self.session = FetchSession()
        self.in_flight: Fences | None = None
        self.fences: Fences = {}
        self.unsure: dict[TopicPartition, None] = {}
        self.unproven: dict[TopicPartition, None] = {}
        self.suspects: dict[AssignedPartition, None] = {}
        self.left: dict[TopicPartition, None] = {}
        self.again: dict[AssignedPartition, None] = {}
        self.named_at = 0.0
        self.early = 0
        self.ready_at = 0.0
        self.needs = self.remembers = self.usual = self.reserved = self.most_bytes = self.turn = 0

    def expect(self, nbytes: int, partitions: int) -> None:
        """C6. A large batch comes at the head of a response only: each of the partitions may have its turn before."""
        self.needs, self.remembers = nbytes, _REMEMBERED + 2 * partitions

    def came_whole(self, nbytes: int, partitions: int) -> None:
        """C6, of a response with so many bytes of records."""
        if nbytes > self.requested_bytes:
            self.expect(nbytes + nbytes // 16, partitions)
        elif self.needs:
            self.remembers -= 1
            self.needs *= self.remembers > 0

    @property
    def requested_bytes(self) -> int:
        """C6. Of records. The rest of what is usual is for a batch that is larger."""
        return self.usual - min(_LARGER_BATCH, self.usual // 4)

    def asks_for(self, assigned: AssignedPartition) -> bool:
        """Whether a fetch of it, as it is now, is under way."""
        return self.in_flight is not None and self.in_flight.get(assigned.partition) == assigned.fence

    @property
    def idle(self) -> bool:
        """Whether no fetch is in flight, no partition is fetched alone, and the session names none."""
        return self.in_flight is None and not self.has_something_to_fetch

    @property
    def has_something_to_fetch(self) -> bool:
        return bool(self.suspects) or len(self.session) > 0

    def came(self, *, empty: bool, sent_at: float, wait: float, now: float) -> None:
        """Law 12, of a response. empty: without records. wait: for how long the broker might hold the fetch back."""
        early = empty and now - sent_at < wait / 2
        if not empty or (wait and not early) or sent_at > self.ready_at + wait:
            self.early = 0
        if early:
            self.early += 1
            pause = _FIRST_PAUSE * 2.0 ** min(self.early - _EARLY, 30) if self.early > _EARLY else 0.0
            self.ready_at = now + min(wait, _LONGEST_PAUSE, pause)

    def leave(self, partition: TopicPartition) -> None:
        if self.in_flight is not None:
            self.left[partition] = None
            return
        self.session.drop(partition)
        self.fences.pop(partition, None)
        self.unsure.pop(partition, None)
        self.unproven.pop(partition, None)


class Fetcher:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        positions: Positions,
        assigned: Callable[[], AssignedPartitions],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._positions = positions
        self._owned = assigned
        self._lanes: dict[ConnectionKey, _Lane] = {}
        # In which lane's session, or among whose suspects, a partition is.
        self._lane_of: dict[AssignedPartition, _Lane] = {}
        # From which node a partition is to be fetched, of each that may be, and how many from each node.
        self._source_of: dict[AssignedPartition, int] = {}
        self._fetched_from: dict[int, int] = {}
        # To be looked at again: at a time; where there is more capacity; where its replica's time is over (law 7).
        self._waiting: dict[AssignedPartition, None] = {}
        self._look_at = float("inf")
        self._full: dict[AssignedPartition, None] = {}
        self._replica_until = float("inf")
        self._metadata_version = -1
        self._settings = context.config
        self._capacity: Capacity | None = None
        self._node_backoff: dict[int, Backoff] = {}
        self._unreadable: set[ConnectionKey] = set()
        self._throttled: dict[int, float] = {}
        self._sent = 0
        # C6: the lanes that wait, the first one first. The sums of all lanes' `usual` and `reserved`.
        self._short: dict[_Lane, None] = {}
        self._usual = self._reserved = 0
        # C3: the queue. When to try them again: with how much each was tried in vain, as it is; which try that was.
        self._passed_over: dict[AssignedPartition, _PassedOver] = {}
        self._tries: list[tuple[int, int, AssignedPartition]] = []
        self._tried = 0
        # The others of which something waits that was not tried since they changed, the next first; and those that were
        # full when they were tried, with how large a share.
        self._to_decode = OrderedDict[AssignedPartition, None]()
        self._at_share: dict[AssignedPartition, None] = {}
        self._share = 0
        # C6: a batch is to pass alone as soon as no long response is in flight.
        self._alone_waits = False
        # Turns of the machine (law 9): from which on what came is decoded, which left that to the next one, which sent
        # a fetch last. What came and was not looked at, to be detached.
        self._decode_from = 0
        self._deferred_in = self._sent_in = -1
        self._arrived: list[Undecoded] = []
        # Law 13: whose end the response that is looked at tells, and the application does not know.
        self._ends: dict[AssignedPartition, None] = {}
        self._ended = False

    @property
    def waits_for_capacity(self) -> bool:
        """Whether something may be fetched or decoded as soon as it is known that more was consumed."""
        owned, config = self._owned(), self._context.config
        blocked = self._full or self._short or config.prefetch != "bytes" or owned.any_undecoded
        return bool(blocked) or owned.memory_bytes >= share(config, owned.sharers)

    def poll(self, now: float) -> float:
        if self._ended:
            return float("inf")
        turn = self._context.turn
        wake = now if turn < self._decode_from else self._decode(now)
        self._place_all(now)
        assert self._capacity is not None
        if not self._capacity.none:
            wake = min(wake, self._send_all(now), self._look_at, self._replica_until)
        if turn < self._decode_from and self._deferred_in == turn != self._sent_in:
            self._decode_from = turn  # no fetch follows: nothing waits for the decoding
            self._context.touch()
        return wake

    def _send_all(self, now: float) -> float:
        """Returns when the next one may be sent."""
        wake, behind, stops, brokers = float("inf"), False, False, 0
        for lane in [*self._short, *(each for each in self._lanes.values() if each not in self._short)]:
            # KIP-227 numbers a session's fetches: a second one in flight could overtake the first.
            if lane.in_flight is not None or not lane.has_something_to_fetch:
                self._short.pop(lane, None)
                continue
            node_id = lane.key.node_id
            backoff = self._node_backoff.setdefault(node_id, self._context.backoff())
            ready_at = max(backoff.ready_at, self._throttled.get(node_id, 0.0), lane.ready_at)
            if now < ready_at:
                wake = min(wake, ready_at)
                continue
            brokers = brokers or len({key.node_id for key, each in self._lanes.items() if not each.idle})
            if not stops and self._reserve(lane, brokers, behind=behind):
                self._short.pop(lane, None)
                self._send(lane, now)
                continue
            self._short[lane], behind = None, True
            stops = stops or not self._waits_for_response(lane)
        return wake

    def _waits_for_response(self, lane: _Lane) -> bool:
        """C6: whether it needs what another response may fill, and nothing that a poll could take."""
        owned = self._owned()
        return lane.needs > 0 and self._long_one_in_flight and not (owned.flowing_memory_bytes or owned.any_undecoded)

    @property
    def _long_one_in_flight(self) -> bool:
        return self._reserved > 0

    def _reserve(self, lane: _Lane, brokers: int, *, behind: bool) -> bool:
        """C6: whether its next fetch may leave. Where only one response may be large, that one may be of any length.

        behind: another lane waits for memory, and is to have all that is not usual.
        """
        config, owned = self._context.config, self._owned()
        names = _PARTITION_BYTES * max(1, len(lane.session))
        free = self._free_bytes()
        records = usual_bytes(config, brokers, free.responses)
        if not records or lane.needs > max(names + records, free.buffer):
            self._let_go()
            free = self._free_bytes()
            records = usual_bytes(config, brokers, free.responses)
        if not records:
            self._is_alone()
            return False
        usual = names + records
        # C6: a batch is about to pass alone, and the two would be there together.
        if lane.needs > usual and (behind or self._alone_waits):
            return False
        most = usual if behind else max(usual, min(free.buffer, self._expected(lane, usual)))
        if lane.needs <= most:
            lane.usual, lane.reserved, lane.most_bytes = records, most - usual, most
            return True
        if owned.flowing_memory_bytes or owned.any_undecoded or self._long_one_in_flight or not self._is_alone():
            return False
        lane.usual, lane.reserved, lane.most_bytes = records, lane.needs, 0
        return True

    def _expected(self, lane: _Lane, usual: int) -> int:
        """C6: how long its response may be, if there is room. Not all, where it is known: others need some, too."""
        if lane.needs > usual:
            return 2 * lane.needs
        return self._context.config.fetch_buffer_bytes if self._may_be_long(lane) else usual

    def _may_be_long(self, lane: _Lane) -> bool:
        """C6, where nothing says that it will be. Only where it comes at once: what is to pass alone waits for it."""
        ready = self._context.connections.is_ready(lane.key)
        return lane.key.role is Role.DATA and ready and not self._owned().any_undecoded

    def _free_bytes(self) -> _FreeBytes:
        owned = self._owned()
        buffered = owned.memory_bytes + owned.undecoded_bytes
        buffer = self._context.config.fetch_buffer_bytes - buffered - self._reserved
        return _FreeBytes(buffer=buffer, responses=_TOGETHER + min(0, buffer) - self._usual)

    def _passes_alone(self) -> bool:
        """Whether a batch may (C3, C6, C7)."""
        self._alone_waits = self._long_one_in_flight
        return not self._alone_waits and self._is_alone()

    def _is_alone(self) -> bool:
        """C7."""
        owned = self._owned()
        left = owned.memory_bytes - owned.flowing_memory_bytes
        most = self._context.config.fetch_buffer_bytes // _STAYS
        if left <= most:
            return True
        for assigned in sorted(owned.standing_still(), key=lambda each: each.memory_bytes, reverse=True):
            if left > most:
                left -= assigned.memory_bytes
                self._ask_to_drop(assigned)
        return False

    def _ask_to_drop(self, assigned: AssignedPartition) -> None:
        """C7. Once for each fetch number: whatever is done about it raises that."""
        if assigned.state is Ownership.OWNED and assigned.drop_asked != assigned.fetch_number:
            assigned.drop_asked, number = assigned.fetch_number, assigned.fetch_number
            event = DropBuffered(partition=assigned.partition, epoch=assigned.epoch, fetch_number=number)
            self._context.deliver(event)

    def _let_go(self) -> None:
        """C6."""
        for assigned in self._owned().held_back():
            assigned.undecoded = ()
            self._context.touch()

    def end(self, now: float) -> None:
        """The consumer closes: fetch no more, and let the brokers forget the sessions. Nobody awaits the responses."""
        self._ended = True
        for assigned in self._owned().undecoded():
            assigned.undecoded = ()
        for key, lane in self._lanes.items():
            broker = self._cluster.brokers.get(key.node_id)
            if lane.session.established and broker is not None and self._context.connections.is_ready(key):
                request = self._request(lane.session.end(), 0.0, lane)
                address = (broker.host, broker.port)
                self._context.connections.send(key, address, request, lambda _result, _then: None, now)

    # -- which partition is fetched in which lane

    def _place_all(self, now: float) -> None:
        """Look at what has changed, and at nothing else."""
        owned = self._owned()
        looks = dict.fromkeys(owned.changed_for_fetches())
        known = (self._metadata_version, self._settings)
        newer = known != (self._cluster.version, self._context.config)
        # The capacity follows from these two: the partitions and the settings.
        if looks or newer:
            before, self._capacity = self._capacity, capacity(self._context.config, owned)
            if before != self._capacity:
                looks |= self._full
        if newer or now >= self._replica_until:
            self._metadata_version, self._settings = self._cluster.version, self._context.config
            self._replica_until = float("inf")
            looks |= dict.fromkeys(owned.values())
        if now >= self._look_at:
            self._look_at = float("inf")
            looks |= self._waiting
        for assigned in looks:
            fetchable = assigned.fetchable
            if fetchable or self._is_placed(assigned):
                self._place(assigned, now, fetchable=fetchable)
            if not self._is_owned(assigned):
                self._passed_over.pop(assigned, None)
        if known[0] != self._metadata_version:
            self._forget_brokers(now)

    def _is_placed(self, assigned: AssignedPartition) -> bool:
        """One that is nowhere, and may not be fetched, has nothing to be placed."""
        counted = assigned in self._lane_of or assigned in self._source_of
        return counted or assigned in self._waiting or assigned in self._full

    def _forget_brokers(self, now: float) -> None:
        """Drop the lanes and back-offs of nodes that are no brokers any more, once nothing is in flight to them."""
        brokers = self._cluster.brokers
        for key in [key for key, lane in self._lanes.items() if key.node_id not in brokers and lane.idle]:
            del self._lanes[key]
            self._unreadable.discard(key)
        for node_id in forget(self._node_backoff, {*brokers, *(key.node_id for key in self._lanes)}, now):
            self._throttled.pop(node_id, None)
            self._fetched_from.pop(node_id, None)

    def _place(self, assigned: AssignedPartition, now: float, *, fetchable: bool) -> None:
        owned = self._is_owned(assigned)
        fetchable = owned and fetchable
        leader = self._cluster.leader(assigned.partition) if fetchable else None
        source = self._source(assigned, leader, now)
        self._count(assigned, source)
        old = self._lane_of.get(assigned)
        # Its fetch is under way, and what it wants has not changed: the response decides where it goes.
        if old is not None and owned and old.asks_for(assigned):
            old.again[assigned] = None
            return
        if self._waiting:
            self._waiting.pop(assigned, None)
        if self._full:
            self._full.pop(assigned, None)
        lane = self._lane(assigned, source, now) if fetchable else None
        if old is not None and (lane is not old or assigned in old.suspects or old.in_flight is not None):
            self._leave(old, assigned)
        if lane is None:
            return
        if lane.in_flight is not None:
            lane.again[assigned] = None
        else:
            self._join(lane, assigned, leader)

    def _is_owned(self, assigned: AssignedPartition) -> bool:
        return self._owned().get(assigned.partition) is assigned

    def _source(self, assigned: AssignedPartition, leader: _Leader | None, now: float) -> int | None:
        """Law 7: the node from which it is to be fetched. leader: None where it has none, or may not be fetched."""
        if leader is None:
            return None
        replica = assigned.replica
        return replica[0] if replica is not None and self._serves(replica, now) else leader[0].node_id

    def _serves(self, replica: tuple[int, float], now: float) -> bool:
        node_id, until = replica
        return now < until and node_id in self._cluster.brokers

    def _count(self, assigned: AssignedPartition, source: int | None) -> None:
        before = self._source_of.pop(assigned, None)
        if before is not None:
            self._fetched_from[before] -= 1
        if source is not None:
            self._source_of[assigned] = source
            self._fetched_from[source] = self._fetched_from.get(source, 0) + 1

    def _lane(self, assigned: AssignedPartition, source: int | None, now: float) -> _Lane | None:
        """The lane that is to fetch it now, since it may be fetched. None: no lane, or not yet."""
        assert self._capacity is not None
        if not self._capacity.of(assigned):
            self._full[assigned] = None
            return None
        if not assigned.backoff.ready(now):
            self._wait_until(assigned, assigned.backoff.ready_at)
            return None
        if source is None:
            assigned.hold_back(now)
            self._wait_until(assigned, assigned.backoff.ready_at)
            # The leader is being elected, or the metadata is old: ask, and do not spin meanwhile.
            self._cluster.miss(assigned.partition, now)
            self._context.touch()
            return None
        if assigned.replica is not None:
            self._keep_replica(assigned, assigned.replica, now)
        tail = self._lanes.get(ConnectionKey(Role.TAIL, source)) if assigned.known_end < 0 else None
        follows = tail is not None and tail.in_flight is not None
        key = ConnectionKey(Role.DATA if assigned.lagging or follows else Role.TAIL, source)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
            lane.turn = self._sent
        return lane

    def _wait_until(self, assigned: AssignedPartition, then: float) -> None:
        self._waiting[assigned] = None
        self._look_at = min(self._look_at, then)

    def _keep_replica(self, assigned: AssignedPartition, replica: tuple[int, float], now: float) -> None:
        """Law 7. Not while its fetch is under way: whose response that is must still be known."""
        if self._serves(replica, now):
            self._replica_until = min(self._replica_until, max(replica[1], now + _REPLICAS_TOGETHER))
        else:
            assigned.replica = None

    def _leave(self, lane: _Lane, assigned: AssignedPartition) -> None:
        del self._lane_of[assigned]
        lane.suspects.pop(assigned, None)
        lane.leave(assigned.partition)

    def _join(self, lane: _Lane, assigned: AssignedPartition, leader: _Leader | None) -> None:
        tp = assigned.partition
        self._lane_of[assigned] = lane
        keep(lane.unsure, tp, wanted=assigned.known_end < 0)
        if assigned.fetch_error:
            lane.unproven[tp] = None
        if assigned.alone and assigned.trouble is not None:
            lane.suspects[assigned] = None
            return
        lane.session.put(self._partition(assigned, leader))
        lane.fences[tp] = assigned.fence

    def _partition(self, assigned: AssignedPartition, leader: _Leader | None) -> api.FetchPartition:
        assert self._capacity is not None, "the partitions are placed before a fetch leaves"
        return api.FetchPartition(
            topic=assigned.partition.topic,
            partition=assigned.partition.partition,
            offset=assigned.fetch_offset,
            topic_id=self._cluster.topic_id(assigned.partition.topic),
            leader_epoch=leader[1] if leader is not None else -1,
            # The broker is not told: what comes must not have an older epoch than what was read.
            passed_epoch=assigned.leader_epoch,
            max_bytes=self._capacity.most_bytes,
        )

    # -- a fetch

    def _send(self, lane: _Lane, now: float) -> None:
        broker = self._cluster.brokers[lane.key.node_id]
        self._sent += 1
        self._usual += lane.usual
        self._reserved += lane.reserved
        lane.turn += 1
        self._sent_in = self._context.turn
        if lane.suspects:  # law 4; the others of its broker wait for this response
            suspect = next(iter(lane.suspects))
            lane.in_flight = {suspect.partition: suspect.fence}
            named = self._partition(suspect, self._cluster.leader(suspect.partition))
            state, wait = alone(named), 0.0
        else:
            lane.in_flight, state, wait = lane.fences, self._ask_session(lane, now), self._wait(lane)
        fences = lane.in_flight
        self._context.connections.send(
            lane.key,
            (broker.host, broker.port),
            self._request(state, wait, lane),
            lambda result, then: self._on_response(lane, fences, state, result, then, sent=(now, wait)),
            now,
            # The broker may hold it back for fetch_max_wait before its time begins.
            timeout=self._context.config.request_timeout + self._context.config.fetch_max_wait,
        )

    def _ask_session(self, lane: _Lane, now: float) -> FetchSessionState:
        """Law 10."""
        renew = now - lane.named_at >= self._context.config.metadata_max_age
        state = lane.session.ask(0 if lane.needs else lane.turn, renew=renew)
        if state.names_everything:
            lane.named_at = now
        return state

    def _request(self, state: FetchSessionState, max_wait: float, lane: _Lane) -> api.Fetch:
        config = self._context.config
        return api.Fetch(
            partitions=state.partitions,
            forgotten=state.forgotten,
            known=state.known,
            topics=state.topics,
            named=state.named,
            session_id=state.session_id,
            session_epoch=state.session_epoch,
            max_wait=max_wait,
            min_bytes=config.fetch_min_bytes,
            max_bytes=max(1, min(response_bytes(config), lane.requested_bytes)),
            read_committed=config.isolation_level == "read_committed",
            rack=config.client_rack or "",
            max_decompressed_bytes=config.max_decompressed_bytes,
            most_bytes=lane.most_bytes,
        )

    def _wait(self, lane: _Lane) -> float:
        """Law 6."""
        longest = self._context.config.fetch_max_wait
        if lane.key.role is Role.DATA:
            return 0.0 if lane.unsure else longest
        leaves_out = self._fetched_from.get(lane.key.node_id, 0) > len(lane.session)
        return min(longest, _BRIEFLY) if leaves_out else longest

    def _on_response(
        self,
        lane: _Lane,
        fences: Fences,
        requested: FetchSessionState,
        result: api.Response | Exception,
        now: float,
        *,
        sent: tuple[float, float],
    ) -> None:
        """sent: when, and for how long the broker might hold the fetch back."""
        self._reserved -= lane.reserved
        lane.in_flight, lane.reserved = None, 0
        self._context.touch()
        if isinstance(result, api.FetchResponse):
            self._obey(lane.key.node_id, result.throttle_time, now)
            wait = self._context.config.fetch_max_wait if _states_nothing(result) else sent[1]
            lane.came(empty=not _has_records(requested, result), sent_at=sent[0], wait=wait, now=now)
        self._take_response(lane, fences, requested, result, now)
        self._usual -= lane.usual
        lane.usual = 0
        for partition in lane.left:
            lane.leave(partition)
        lane.left.clear()
        self._owned().changed.update(lane.again)
        lane.again.clear()

    def _obey(self, node_id: int, throttle_time: float, now: float) -> None:
        """Law 8. The broker has responded already, and expects the client to wait."""
        if throttle_time > 0:
            until = now + min(throttle_time, self._context.config.request_timeout)
            self._throttled[node_id] = max(until, self._throttled.get(node_id, 0.0))

    def _take_response(
        self, lane: _Lane, fences: Fences, requested: FetchSessionState, result: api.Response | Exception, now: float
    ) -> None:
        node_id = lane.key.node_id
        if isinstance(result, FrameTooLargeError):
            lane.expect(result.length if lane.most_bytes else 0, len(fences))
            if lane.needs:
                self._context.log(
                    logging.DEBUG, f"node {node_id} has {counted(result.length, 'byte')}: there is no capacity yet"
                )
                lane.session.failed()
                return
        if not isinstance(result, api.FetchResponse) or result.error:
            code, error = result.error if isinstance(result, api.FetchResponse) else 0, _error_of(result)
            note_fetch(self._owned(), fences, str(error))
            lane.unproven.update(dict.fromkeys(fences))
            # The session alone was at fault: no back-off, since the broker is well.
            if lane.session.failed(code):
                self._context.log(logging.DEBUG, f"node {node_id} lost a fetch session: {error}")
            else:
                self._failed(lane.key, fences, error, now)
            return
        if fences is lane.fences:
            lane.session.response_received(result)
            if lane.needs and requested.partitions:
                head = requested.partitions[0]
                lane.session.put_last((head.topic, head.partition))
        self._node_backoff[node_id].succeeded()
        self._unreadable.discard(lane.key)
        proven = _part(fences, lane.unproven)
        note_fetch(self._owned(), proven, "")
        for partition in proven:
            lane.unproven.pop(partition, None)
        came = sum(each.undecoded.length for each in result.partitions.values() if each.undecoded is not None)
        lane.came_whole(came, len(fences))
        self._take_partitions(lane.key, fences, requested, result, now)
        if not _states_nothing(result):
            self._end_unknown_ends(lane, fences, result)
            # A session leaves out what has no news, but no error.
            refused = {partition for partition, each in result.partitions.items() if each.error}
            if len(refused) < len(fences):
                self._cluster.fetched(lane.key, fences.keys(), refused)
        self._tell_ends()

    def _take_partitions(
        self, key: ConnectionKey, fences: Fences, requested: FetchSessionState, result: api.FetchResponse, now: float
    ) -> None:
        table, arrival, came = self._owned(), Arrival(), []
        offsets = _offsets(requested)
        for tp, fetched in result.partitions.items():
            assigned = table.get(TopicPartition(*tp))
            # Revoked, reassigned or sought since the fetch left: its records are of another position (law 1).
            if assigned is None or fences.get(assigned.partition) != assigned.fence or not assigned.awaits_records:
                continue
            table.changed[assigned] = None
            if offsets[tp].offset == assigned.fetch_offset:  # A2
                topic_id = offsets[tp].topic_id if result.by_id else None
                self._take(key, assigned, fetched, arrival, topic_id, now)
                if assigned.undecoded:
                    came.append(assigned)
        self._decode_or_defer(came, arrival, now)

    def _decode_or_defer(self, came: Sequence[AssignedPartition], arrival: Arrival, now: float) -> None:
        """Law 9."""
        turn, little = self._context.turn, min(_LITTLE_BYTES, response_bytes(self._context.config) // _LITTLE)
        if arrival.came > little:
            if self._deferred_in != turn - 1:
                self._deferred_in, self._decode_from = turn, turn + 1
        elif turn >= self._decode_from:
            if came:
                self._decode_some(OrderedDict.fromkeys(each for each in came if each not in self._passed_over), now)
            self._detach()

    def _detach(self) -> None:
        """What could not be decoded at once is not to keep the response that it came in, unless memory is free."""
        usual = _segment_bytes(self._context.config)
        for each in self._arrived:
            each.records.detach(usual=usual, stays=True)
        self._arrived.clear()

    def _end_unknown_ends(self, lane: _Lane, fences: Fences, result: api.FetchResponse) -> None:
        """Laws 11 and 13."""
        for assigned in unchanged(self._owned(), _part(fences, lane.unsure)):
            if assigned.known_end < 0:
                assigned.known_end = assigned.fetch_offset
                stated = result.partitions.get(assigned.partition)
                if assigned.told_end < 0 and (stated is None or not stated.error):
                    self._ends[assigned] = None

    def _tell_ends(self) -> None:
        """Law 13. Of what waits to be decoded its records tell."""
        if not self._ends:
            return
        ends, self._ends = self._ends, {}
        untold = (each for each in ends if 0 <= each.known_end != each.told_end and not each.undecoded)
        told = tuple([each.end_found(each.known_end) for each in untold])
        if told:
            self._context.deliver(EndsFound(ends=told))

    def _failed(self, key: ConnectionKey, fences: Fences, error: Exception, now: float) -> None:
        node_id = key.node_id
        self._node_backoff[node_id].failed(now)
        level = logging.DEBUG if self._context.connections.closing else logging.INFO
        self._context.log(level, f"fetch from node {node_id} failed: {error}")
        if isinstance(error, TransportError | TimeoutError):
            self._cluster.suspect(node_id)
        # A broker that fails may lead nothing any more; and a follower that fails is left for the leader (KIP-392).
        self._cluster.refresh()
        for assigned in self._owned().values():
            if assigned.replica is not None and assigned.replica[0] == node_id:
                assigned.replica = None
        if self._is_final(key, error):
            requested = unchanged(self._owned(), fences)
            for assigned in [assigned for assigned in requested if assigned.phase is Phase.FETCHING]:
                self._positions.fail(assigned, error)
                assigned.alone = True

    def _is_final(self, key: ConnectionKey, error: Exception) -> bool:
        """Law 4 for a whole response that cannot be read: its bytes, too, may have been damaged on the way."""
        if isinstance(error, ProtocolError) and not error.fatal and key not in self._unreadable:
            self._unreadable.add(key)
            return False
        # A broker that does not know what went wrong may know better the next time (as in Java).
        unknown = getattr(error, "code", 0) == ErrorCode.UNKNOWN_SERVER_ERROR
        return isinstance(error, KafkaError) and not error.retriable and not unknown

    # -- one partition's response

    def _take(
        self,
        key: ConnectionKey,
        assigned: AssignedPartition,
        fetched: api.FetchedPartition,
        arrival: Arrival,
        topic_id: UUID | None,
        now: float,
    ) -> None:
        node_id = key.node_id
        follower = assigned.replica is not None and assigned.replica[0] == node_id
        self._context.connections.meter.read_from(assigned.partition, node_id if follower else None)
        if assigned.undecoded and fetched.undecoded is None and _is_news(assigned, fetched):
            assigned.lead_no_further()
            return
        if fetched.error:
            assigned.fetch_error = name_of_code(fetched.error)
            self._cluster.refused(assigned.partition, fetched.error, key, fetched=True)
            if self._was_follower(node_id, assigned) and fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                assigned.hold_back(now)  # or a leader that names it again each time would make us spin
                return  # law 7: the leader knows better
            self._partition_failed(assigned, fetched.error, now)
            return
        assigned.backoff.succeeded()
        self._cluster.served(assigned.partition)
        if fetched.corrupt is None and fetched.undecoded is None:
            self._positions.recovered(assigned)
        if fetched.preferred_read_replica >= 0:
            self._use_replica(assigned, fetched.preferred_read_replica, now)
        # A read_committed fetch ends at the last stable offset: no lag is behind that (KIP-98).
        stable = self._context.config.isolation_level == "read_committed"
        assigned.known_end = fetched.last_stable_offset if stable else fetched.high_watermark
        if assigned.known_end != assigned.told_end:
            self._ends[assigned] = None
        if not assigned.undecoded:
            self._deliver(assigned, fetched.chunk, fetched.next_offset, fetched.leader_epoch, topic_id)
        if fetched.corrupt is not None:
            self._corrupt(assigned, fetched.corrupt, now)
        elif fetched.undecoded is not None:
            arrival.partitions += 1
            arrival.came += fetched.undecoded.length
            self._arrived.append(assigned.arrived(fetched.undecoded, arrival, topic_id))

    def _use_replica(self, assigned: AssignedPartition, node_id: int, now: float) -> None:
        """Law 7. One that the metadata does not know is looked for: the leader gives nothing out meanwhile."""
        if node_id in self._cluster.brokers:
            assigned.replica = (node_id, now + self._context.config.metadata_max_age)
            return
        self._cluster.refresh()
        assigned.hold_back(now)

    def _was_follower(self, node_id: int, assigned: AssignedPartition) -> bool:
        """Whether the follower that was named has failed. It is not asked again before the leader names it again."""
        if assigned.replica is None or assigned.replica[0] != node_id:
            return False
        assigned.replica = None
        return True

    def _deliver(
        self,
        assigned: AssignedPartition,
        chunk: RecordChunk | None,
        next_offset: int,
        leader_epoch: int,
        topic_id: UUID | None,
        memory: int = 0,
    ) -> None:
        """leader_epoch: see `Piece`. topic_id: see `Fetched`. memory: what the chunk keeps, where that is more than it
        counts for.
        """
        if next_offset <= assigned.offset:
            return
        start, assigned.offset = assigned.offset, next_offset
        assigned.reached(next_offset)
        if chunk is not None:
            assigned.delivered(len(chunk), chunk.nbytes, max(memory, chunk.nbytes))
            assigned.leader_epoch = chunk.leader_epoch
        elif leader_epoch >= 0:
            assigned.leader_epoch = leader_epoch
        assigned.end_told(assigned.known_end)
        if 0 <= assigned.known_end < assigned.told_end:  # it went back: of what comes with records the greater counts
            self._ends[assigned] = None
        self._context.deliver(
            Fetched(
                partition=assigned.partition,
                epoch=assigned.epoch,
                fetch_number=assigned.fetch_number,
                start=start,
                chunk=chunk,
                next_offset=next_offset,
                leader_epoch=leader_epoch,
                high_watermark=assigned.known_end,
                topic_id=topic_id,
            )
        )

    # -- decoding

    def _decode(self, now: float) -> float:
        """Law 9. Returns when to be asked again: at once, where only the turn is over."""
        self._alone_waits = False
        self._look_at_undecoded()
        turn_over = self._owned().any_undecoded and self._decode_some(self._to_decode, now)
        self._detach()
        self._tell_ends()
        if not turn_over:
            return float("inf")
        self._decode_from = self._context.turn + 1
        return now

    def _is_decodable(self, assigned: AssignedPartition) -> bool:
        return assigned.undecoded != () and assigned.fetchable and self._is_owned(assigned)

    def _look_at_undecoded(self) -> None:
        """At what has changed, and at nothing else."""
        table = self._owned()
        before, self._share = self._share, share(self._context.config, table.sharers)
        if self._share > before:
            self._to_decode.update(self._at_share)
            self._at_share.clear()
        for assigned in table.take_undecoded_changed():
            self._at_share.pop(assigned, None)
            is_decodable, passed_over = self._is_decodable(assigned), self._passed_over.get(assigned)
            keep(self._to_decode, assigned, wanted=is_decodable and passed_over is None)
            owned = self._is_owned(assigned) and assigned.state is Ownership.OWNED
            if is_decodable:
                if passed_over is not None:
                    self._try_again(assigned, passed_over, -1)
            elif not owned or assigned.phase is Phase.FAILED:
                assigned.undecoded = ()
            else:  # nobody knows for how long: it is not to keep what came with it
                for each in assigned.undecoded:
                    each.records.detach(usual=_segment_bytes(self._context.config))

    def _try_again(self, assigned: AssignedPartition, passed_over: _PassedOver, tried_with: int) -> None:
        """Once there is more than that."""
        passed_over.tried_with = tried_with
        self._tried += 1
        heappush(self._tries, (tried_with, self._tried, assigned))
        if len(self._tries) > 2 * len(self._passed_over) + _FEW:  # most of them are of what has changed since
            places = enumerate(self._passed_over.items(), self._tried + 1)
            self._tries = [(place.tried_with, number, each) for number, (each, place) in places]
            self._tried += len(self._tries)
            heapify(self._tries)

    def _tried_with_less(self, capacity: int) -> AssignedPartition | None:
        """One of the queue that is to be tried with so much."""
        while self._tries and self._tries[0][0] < capacity:
            tried_with, _, assigned = heappop(self._tries)
            passed_over = self._passed_over.get(assigned)
            if passed_over is not None and passed_over.tried_with == tried_with:
                return assigned
        return None

    def _decode_some(self, todo: OrderedDict[AssignedPartition, None], now: float) -> bool:
        """Those of the queue (C3) that are to be tried, and these. Whether the turn is over before they are."""
        capacity, left = decoding_capacity(self._context.config, self._owned()), _TURN_BYTES
        first = next((e for e in self._passed_over if e.nbytes < capacity.share and self._is_decodable(e)), None)
        assigned = first
        while left > 0:
            assigned = assigned or self._tried_with_less(max(0, capacity.left))
            if assigned is None and todo:
                assigned, _ = todo.popitem(last=False)
            if assigned is None:
                break
            took = self._decode_piece(assigned, capacity, now) if self._is_decodable(assigned) else 0
            left -= took
            if took:
                todo[assigned] = None
            elif assigned is first and first in self._passed_over and self._passed_over[first].turns >= _PATIENCE:
                break
            assigned = None
        if first in self._passed_over and left < _TURN_BYTES:
            self._passed_over[first].turns += 1
        return left <= 0

    def _decode_piece(self, assigned: AssignedPartition, capacity: DecodingCapacity, now: float) -> int:
        """Returns what the work counts for, or 0: there is no capacity."""
        undecoded, free = assigned.undecoded[0], capacity.of(assigned)
        target = min(capacity.share - assigned.nbytes, _TURN_BYTES)
        if target <= 0:
            self._at_share[assigned] = None
            return 0
        piece = undecoded.records.decode(target, free)
        if piece is None and capacity.alone:
            capacity.alone = self._passes_alone()
            if capacity.alone:
                self._forget_undecoded(assigned)
                # The others' part of its response is of no use any more, nor is much that follows it.
                config = self._context.config
                undecoded.records.detach(response_bytes(config), usual=_segment_bytes(config))
                piece = undecoded.records.decode(target, free, alone=True)
        if piece is None:
            passed_over = self._passed_over.setdefault(assigned, _PassedOver())
            if free > passed_over.tried_with:
                self._try_again(assigned, passed_over, free)
            return 0
        self._passed_over.pop(assigned, None)
        if undecoded.records.done:
            undecoded.arrival.partitions -= 1
            self._context.touch()
        if piece.chunk is not None:
            capacity.took(piece.nbytes)
            undecoded.arrival.records += len(piece.chunk)
            undecoded.arrival.nbytes += piece.chunk.nbytes
        self._deliver(assigned, piece.chunk, piece.next_offset, piece.leader_epoch, undecoded.topic_id, piece.nbytes)
        if undecoded.records.done:
            assigned.decoded()
        if piece.corrupt is not None:
            self._corrupt(assigned, piece.corrupt, now)
        else:
            self._positions.recovered(assigned)
        arrival = undecoded.arrival
        if not arrival.partitions and arrival.records:
            self._context.connections.meter.decoded(arrival.records, arrival.nbytes, now)
        return piece.nbytes + _PIECE_BYTES

    def _forget_undecoded(self, but: AssignedPartition) -> None:
        """Law 9. What is dropped has its turn before the next batch that passes alone (C3)."""
        self._arrived.clear()  # else their response is there until the turn is over
        for assigned in list(self._owned().undecoded()):
            assigned.undecoded = assigned.undecoded[:1] if assigned is but else ()
            if assigned is not but:
                self._passed_over.setdefault(assigned, _PassedOver())
            self._context.touch()

    def _corrupt(self, assigned: AssignedPartition, error: Exception, now: float) -> None:
        """Law 4: the bytes may have been damaged on the way."""
        if assigned.corrupt_at == assigned.offset:
            self._positions.fail(assigned, error)
            return
        assigned.corrupt_at = assigned.offset
        assigned.hold_back(now)
        self._context.log(
            logging.WARNING, f"fetching {assigned.partition} at offset {assigned.offset} once more: {error}"
        )

    def _partition_failed(self, assigned: AssignedPartition, code: int, now: float) -> None:
        where = f"{assigned.partition} at offset {assigned.offset}"
        error = error_for_code(code, f"fetching {where}: the broker responded with error code {code}")
        # Not reset at once: a leader that lags, or an old one, says so too. ListOffsets tells both ends of its log.
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions.called_out_of_range(assigned)
        elif code in _STALE_METADATA:
            self._cluster.refresh()
            assigned.hold_back(now)
        elif code == ErrorCode.CORRUPT_MESSAGE:
            self._corrupt(assigned, error, now)
        elif code in _RETRY:
            assigned.hold_back(now)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            why = f"not authorised to read topic {assigned.partition.topic!r}: it needs Read"
            self._positions.fail(assigned, TopicAuthorizationFailedError(why))
        else:
            self._positions.fail(assigned, error)


def _is_news(assigned: AssignedPartition, fetched: api.FetchedPartition) -> bool:
    """A5: whether anything but "no news" came."""
    return bool(fetched.error or fetched.corrupt is not None or fetched.next_offset > assigned.fetch_offset)


def _states_nothing(result: api.FetchResponse) -> bool:
    """Whether the broker throttles instead of looking (laws 11 and 12)."""
    return result.throttle_time > 0 and not result.partitions


def _offsets(requested: FetchSessionState) -> Mapping[api.Partition, api.FetchPartition]:
    return requested.known or {(each.topic, each.partition): each for each in requested.partitions}


def _has_records(requested: FetchSessionState, result: api.FetchResponse) -> bool:
    """Or anything else from which an offset moves."""
    offsets = _offsets(requested)
    return any(
        each.undecoded is not None or (tp in offsets and each.next_offset > offsets[tp].offset)
        for tp, each in result.partitions.items()
    )


def _part(fences: Fences, partitions: Iterable[TopicPartition]) -> Fences:
    return {each: fences[each] for each in partitions if each in fences}


def _error_of(result: api.Response | Exception) -> Exception:
    if isinstance(result, api.FetchResponse):
        return error_for_code(result.error)
    return result if isinstance(result, Exception) else TypeError(repr(result))
