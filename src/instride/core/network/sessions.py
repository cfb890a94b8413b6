"""Fetch sessions (KIP-227): a broker remembers what a lane asks for, and each fetch says only what has changed.

Laws
1. A session belongs to one lane, with one fetch under way at a time. Its first fetch names everything (epoch 0); those
   that follow name what is new or has moved, and what is to be forgotten, in the next epoch.
2. After any error the next fetch names everything again, and gives the old session up. A broker that makes no session
   (it answers with session id 0, as when its cache is full) is always told everything.
3. A session names its topics by id or by name, from its beginning to its end; where that must change, or a topic of
   its was made anew, a new one begins.
4. What a session has and a fetch does not ask for any more is forgotten, so that nothing unwanted is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from instride.errors.codes import ErrorCategory, ErrorCode, of_category
from instride.wire import api

__all__ = ["SESSION_ERRORS", "FetchSession", "FetchSessionState", "next_epoch"]

_NO_SESSION = 0
_FULL = 0
_FINAL = -1
_LAST_EPOCH = (1 << 31) - 1

SESSION_ERRORS = of_category(ErrorCategory.SESSION)
"""Errors of the session alone: the next fetch names everything again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSessionState:
    """What the next fetch of a session says."""

    session_id: int
    session_epoch: int
    named: bool
    partitions: tuple[api.FetchPartition, ...]
    forgotten: tuple[api.FetchPartition, ...] = ()
    known: Mapping[api.Partition, api.FetchPartition] = field(default_factory=dict)


def next_epoch(epoch: int) -> int:
    """After the last number they begin again, at 1: 0 is of a fetch that names everything."""
    return epoch + 1 if epoch < _LAST_EPOCH else 1


class FetchSession:
    """Not thread-safe: the fetcher owns it."""

    __slots__ = ("_epoch", "_id", "_named", "known")

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FULL
        self._named = False
        self.known: Mapping[api.Partition, api.FetchPartition] = {}

    @property
    def established(self) -> bool:
        return self._id != _NO_SESSION

    def ask(self, wanted: Iterable[api.FetchPartition]) -> FetchSessionState:
        """The next fetch, of these partitions, in this order."""
        table = {(each.topic, each.partition): each for each in wanted}
        named = any(each.topic_id == api.NO_TOPIC_ID for each in table.values())
        if self._epoch == _FULL or named != self._named or self._of_another_topic(table):
            self._epoch, self._named = _FULL, named
            self.known = table
            return FetchSessionState(
                session_id=self._id, session_epoch=_FULL, named=named, partitions=tuple(table.values()), known=table
            )
        known, self.known = self.known, table
        return FetchSessionState(
            session_id=self._id,
            session_epoch=self._epoch,
            named=named,
            partitions=tuple(each for key, each in table.items() if known.get(key) != each),
            forgotten=tuple(each for key, each in known.items() if key not in table),
            known=table,
        )

    def _of_another_topic(self, table: Mapping[api.Partition, api.FetchPartition]) -> bool:
        known = self.known
        return any(key in known and known[key].topic_id != each.topic_id for key, each in table.items())

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
        self._id, self._epoch, self.known = _NO_SESSION, _FULL, {}
        return ended
