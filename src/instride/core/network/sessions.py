"""Fetch sessions (KIP-227): a broker remembers what a lane asks for, and each fetch says only what has changed.

Laws
1. A session belongs to one lane, with one fetch under way at a time. Its first fetch names everything (epoch 0); those
   that follow name what is new or has moved, and what is to be forgotten, in the next epoch.
2. After any error the next fetch names everything again, and gives the old session up. A broker that makes no session
   (it answers with session id 0, as when its cache is full) is always told everything.
3. A session names its topics by id or by name, from its beginning to its end; where that must change, or a topic of
   its was made anew, a new one begins.
4. What a session has and a fetch does not ask for any more is forgotten, so that nothing unwanted is sent.
5. Whoever asks may have everything named again (`renew`): a request that was damaged on the way may have put another
   partition into the broker's session. Of one outside its session a broker never speaks, not even by an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from instride.errors.codes import ErrorCategory, ErrorCode, of_category
from instride.wire import api

__all__ = ["SESSION_ERRORS", "FetchSession", "FetchSessionState", "alone", "next_epoch"]

_NO_SESSION = 0
_FULL = 0
_FINAL = -1
_LAST_EPOCH = (1 << 31) - 1

SESSION_ERRORS = of_category(ErrorCategory.SESSION)
"""Errors of the session alone: the next fetch names everything again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSessionState:
    """What the next fetch of a session says. known: all that is in the session; topics: their names by id."""

    session_id: int
    session_epoch: int
    named: bool
    partitions: tuple[api.FetchPartition, ...]
    forgotten: tuple[api.FetchPartition, ...] = ()
    known: Mapping[api.Partition, api.FetchPartition] = field(default_factory=dict)
    topics: Mapping[UUID, str] = field(default_factory=dict)

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


class FetchSession:
    """Not thread-safe: the fetcher owns it. `put` and `drop` what the next fetch is to be of, then `ask`.

    A fetch costs by what was put or dropped since the last one, but for those that name everything.
    """

    __slots__ = ("_before", "_epoch", "_id", "_named", "_table", "_topics", "_without_id")

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FULL
        self._named = False
        self._table: dict[api.Partition, api.FetchPartition] = {}
        self._topics: dict[UUID, str] = {}
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
        self._without_id += wanted.topic_id == api.NO_TOPIC_ID
        self._topics[wanted.topic_id] = wanted.topic

    def drop(self, key: api.Partition) -> None:
        self._take_out(key)
        self._table.pop(key, None)

    def _take_out(self, key: api.Partition) -> api.FetchPartition | None:
        """It keeps its place in the order."""
        before = self._table.get(key)
        self._before.setdefault(key, before)
        self._without_id -= before is not None and before.topic_id == api.NO_TOPIC_ID
        return before

    def ask(self, turn: int = 0, *, renew: bool = False) -> FetchSessionState:
        """The next fetch. turn: where a fetch that names everything begins in their order. renew: law 5.

        Until it was answered, or has failed, nothing may be put or dropped: the response is read by its `known`.
        """
        before, self._before = self._before, {}
        named = self._without_id > 0
        if renew or self._epoch == _FULL or named != self._named or self._of_another_topic(before):
            self._epoch, self._named = _FULL, named
            everything = tuple(self._table.values())
            self._topics = {each.topic_id: each.topic for each in everything}
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
        return any(old is not None and new is not None and old.topic_id != new.topic_id for old, new in pairs)

    def response_received(self, response: api.FetchResponse) -> None:
        """The fetch was answered without an error."""
        if self._epoch == _FULL:
            self._id = response.session_id
            self._epoch = next_epoch(_FULL) if self.established else _FULL
        elif response.session_id != self._id:
            self._id, self._epoch = _NO_SESSION, _FULL
        else:
            self._epoch = next_epoch(self._epoch)

    def failed(self, code: int = 0) -> bool:
        """Law 2. code: the answer's error, or 0 for none. Whether only the session was at fault: try again at once."""
        was_full, self._epoch = self._epoch == _FULL, _FULL
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = _NO_SESSION
        return code in SESSION_ERRORS and not was_full

    def end(self) -> FetchSessionState:
        """The session is not needed any more: the broker may forget it."""
        ended = FetchSessionState(session_id=self._id, session_epoch=_FINAL, named=self._named, partitions=())
        self._id, self._epoch = _NO_SESSION, _FULL
        return ended
