"""A model of a broker's fetch sessions (KIP-227): what it remembers of each, and what it leaves out of its responses.

Laws
1. A session is made by a fetch of epoch 0 that succeeds, if there is room; else its response has session id 0. A
   fetch of epoch 0 or -1 that names a session ends that one first.
2. A later fetch must come in the session's epoch, and name topics as it began; then what it names is taken over, and
   what it forgets is left out. One that has nothing left is over.
3. The response in a session says only what is news: bytes of the log (with records to return or without), an error,
   another high watermark than was told last. What it has bytes of goes to the end of the session's order.
4. A node that restarts has lost its sessions. One that nobody used for a while makes room.
5. A session keeps the name of an id that the node has known once. So it says of a topic that is deleted that it has no
   such partition, and of one that was created under its name that this has another id; but of an id that it never knew,
   that it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from instride._wire import api
from instride.errors.codes import ErrorCode
from instride.records import TopicPartition

__all__ = ["Requested", "SessionModel"]

_ID_NOT_FOUND = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
_INVALID_EPOCH = ErrorCode.INVALID_FETCH_SESSION_EPOCH
_UNKNOWN_TOPIC_ID = ErrorCode.UNKNOWN_TOPIC_ID
_TOPIC_ID_ERROR = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
_SLOTS = 8
_IDLE = 5.0

Partitions = dict[api.Partition, api.FetchPartition]
Found = Mapping[api.Partition, api.FetchedPartition]


@dataclass(slots=True, kw_only=True)
class _Session:
    number: int
    named: bool
    partitions: Partitions
    epoch: int = 1
    used: float = 0.0
    told: dict[api.Partition, int] = field(default_factory=dict)
    known: dict[api.Partition, UUID] = field(default_factory=dict)

    def learn(self, found: Found) -> None:
        """Law 5."""
        for tp, each in found.items():
            if each.error != _UNKNOWN_TOPIC_ID and tp in self.partitions:
                self.known[tp] = self.partitions[tp].topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What a fetch asks for. error: refused as a whole. begins: it wants a session; session: it is in one."""

    partitions: Partitions = field(default_factory=dict)
    error: int = 0
    begins: bool = False
    named: bool = False
    session: _Session | None = None

    def has_known(self, partition: api.Partition, topic_id: UUID) -> bool:
        """Law 5."""
        return self.session is not None and self.session.known.get(partition) == topic_id


class SessionModel:
    """The sessions of one node."""

    def __init__(self, first: int) -> None:
        """first: the number of the first session; those of other nodes are others."""
        self._next = first
        self._sessions: dict[int, _Session] = {}

    def forget_all(self) -> None:
        self._sessions.clear()

    def ask(self, request: api.Fetch, now: float) -> Requested:
        named: Partitions = {TopicPartition(each.topic, each.partition): each for each in request.partitions}
        if request.session_epoch <= 0:
            self._sessions.pop(request.session_id, None)
            return Requested(partitions=named, begins=request.session_epoch == 0, named=request.named)
        session = self._sessions.get(request.session_id)
        if session is None:
            return Requested(error=_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return Requested(error=_INVALID_EPOCH)
        if session.named != request.named:
            return Requested(error=_TOPIC_ID_ERROR)
        session.epoch += 1
        session.used = now
        session.partitions.update(named)
        for each in request.forgotten:
            session.partitions.pop(TopicPartition(each.topic, each.partition), None)
        if not session.partitions:
            del self._sessions[session.number]
            return Requested()
        return Requested(partitions=dict(session.partitions), session=session)

    def response(self, requested: Requested, found: Found, now: float) -> api.FetchResponse:
        if requested.session is not None:
            requested.session.learn(found)
            news = {tp: each for tp, each in found.items() if self._is_news(requested.session, tp, each)}
            return api.FetchResponse(session_id=requested.session.number, partitions=news)
        return api.FetchResponse(
            session_id=self._begin(requested, found, now) if requested.begins else 0, partitions=dict(found)
        )

    def _begin(self, requested: Requested, found: Found, now: float) -> int:
        """Law 1."""
        for number in [each.number for each in self._sessions.values() if now - each.used > _IDLE]:
            del self._sessions[number]
        if len(self._sessions) >= _SLOTS:
            return 0
        self._next += 1
        session = _Session(number=self._next, named=requested.named, partitions=dict(requested.partitions), used=now)
        session.told = {tp: each.high_watermark for tp, each in found.items()}
        session.learn(found)
        self._sessions[session.number] = session
        return session.number

    def _is_news(self, session: _Session, tp: api.Partition, fetched: api.FetchedPartition) -> bool:
        """Law 3."""
        told, session.told[tp] = session.told.get(tp, -1), fetched.high_watermark
        requested = session.partitions.get(tp)
        has_bytes = requested is not None and (fetched.undecoded is not None or fetched.next_offset > requested.offset)
        if has_bytes:
            session.partitions[tp] = session.partitions.pop(tp)
        return has_bytes or bool(fetched.error) or told != fetched.high_watermark
