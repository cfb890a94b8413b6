"""What the database of a `store` was asked about where partitions begin, and what of its answer is not used yet.

Laws
1. Nobody waits for the answer: the loop looks again in each round, and its polls go on meanwhile.
2. There is one question at a time: a database that is silent would be asked by ever more threads. A connection that
   nobody serves any more (after a failover) may never tell: so one that is not answered for long is dropped, and asked
   anew, each time after twice as long. What cannot be cancelled hangs on; where so many do, there is one more an hour.
3. Partitions that are lost are forgotten, so that a late answer says nothing of their next assignment. A question about
   nothing else is dropped. An answer about a topic that was recreated meanwhile does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from math import inf
from typing import Final, TypeAlias
from uuid import UUID

from instride._processing.event_loop import result_of
from instride.records import TopicPartition

__all__ = ["Answer", "StorePositions"]

_TELL_AFTER: Final = 1.0
"""Seconds until it is to be said that the database is silent."""
_PATIENCE: Final = 60.0
_LONGEST_PATIENCE: Final = 3600.0
_MANY_HANGING: Final = 8
"""Each is a thread, and a connection."""

Answer: TypeAlias = Mapping[TopicPartition, int] | Future[Mapping[TopicPartition, int]]


class StorePositions:
    """See the laws above. tell_at: when it is to be said that the database is silent."""

    __slots__ = ("_answer", "_asked", "_hanging", "_known", "_newest", "_patience", "_until", "tell_at")

    def __init__(self) -> None:
        self.tell_at = inf
        self._patience = _PATIENCE
        # The newest question, and until when it waits. The questions without an answer yet, dropped ones too.
        self._newest: Future[Mapping[TopicPartition, int]] | None = None
        self._until = -inf
        self._hanging: list[Future[Mapping[TopicPartition, int]]] = []
        self._answer: Future[Mapping[TopicPartition, int]] | None = None
        # With their topics' ids.
        self._asked: dict[TopicPartition, UUID | None] = {}
        self._known: dict[TopicPartition, tuple[UUID | None, int | None]] = {}

    def is_awaited(self, now: float) -> bool:
        """An answer, also to a question that was dropped: until then none is asked (law 2)."""
        self._hanging = [each for each in self._hanging if not each.done()]
        # The database answers again: also where nobody wants this answer any more. (A cancellation says nothing of it.)
        if self._newest is not None and self._newest.done() and not self._newest.cancelled():
            self._until = -inf
        if self._answer is not None and self._answer.done():
            return False
        return bool(self._hanging) and now < self._until

    def missing(self, wanted: Mapping[TopicPartition, UUID | None], now: float) -> dict[TopicPartition, UUID | None]:
        """Of these, what to ask the database now. Raises what it has answered, once."""
        self._look()
        if self.is_awaited(now):
            return {}
        if self._answer is not None:
            self.drop()
            self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
        return {each: topic_id for each, topic_id in wanted.items() if not self._is_known(each, topic_id)}

    def asked(self, partitions: Mapping[TopicPartition, UUID | None], answer: Answer, now: float) -> None:
        self._asked, self.tell_at = dict(partitions), now + _TELL_AFTER
        if isinstance(answer, Future):
            self._answer = self._newest = answer
            self._hanging.append(answer)
        else:
            self._answer = Future()
            self._answer.set_result(answer)
        self._until = now + (self._patience if len(self._hanging) < _MANY_HANGING else _LONGEST_PATIENCE)

    def take(self, wanted: Mapping[TopicPartition, UUID | None]) -> dict[TopicPartition, int | None]:
        """Of these, what is known, to be used now: None where there is no row. Raises as `missing`."""
        self._look()
        known = [each for each, topic_id in wanted.items() if self._is_known(each, topic_id)]
        return {each: self._known.pop(each)[1] for each in known}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Law 3."""
        for partition in partitions:
            self._asked.pop(partition, None)
            self._known.pop(partition, None)
        if not self._asked:
            self.drop()

    def drop(self) -> None:
        """Nobody looks at the answer any more. A thread that waits for it cannot be cancelled."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.cancel()

    def _look(self) -> None:
        answer = self._answer
        if answer is None or not answer.done():
            return
        asked, self._asked, self._answer = self._asked, {}, None
        self._patience, self._until = _PATIENCE, -inf
        found = result_of(answer)
        self._known.update((each, (topic_id, found.get(each))) for each, topic_id in asked.items())

    def _is_known(self, partition: TopicPartition, topic_id: UUID | None) -> bool:
        return partition in self._known and self._known[partition][0] == topic_id
