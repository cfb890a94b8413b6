"""Which commit may go while others are in flight: a machine, with a table.

Laws
1. Pure: no I/O, no clock. Its owner tells what was sent, settled and ended, and locks.
2. No commit names what is on its way, since it would say the same.
3. While a commit is in flight no other is sent: the next one says more. But one that waits for some of its partitions,
   or for long, keeps none of other partitions back, and none keeps a hand-over of others waiting.
4. After a commit that nobody answered in time the next waits until one is answered, or has ended otherwise, or all have
   ended: in an outage they would never come together again. One of other partitions alone may go, since the first may
   be of a topic that is away.
5. Each pair of state and input has a row in the table.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final

from instride.commits import CommitOutcome
from instride.errors import KafkaTimeoutError, RebalanceInProgressError
from instride.records import TopicPartition

__all__ = ["PATIENCE", "TRANSITIONS", "CommitsInFlight", "Following", "Heard", "SentCommit"]

PATIENCE: Final = 1.0
"""Seconds that a commit may keep others waiting."""
_UNANSWERED: Final = (KafkaTimeoutError, RebalanceInProgressError)
"""What a commit ends by whose time is out."""


class Following(Enum):
    """Whether a commit may follow those in flight."""

    FREE = "it may"
    WAITING = "not before the newest of them has waited for long"
    OUTAGE = "nobody has answered in time: not before somebody answers"
    OUTAGE_FREE = "the same, but a part of one is settled: one may"


class Heard(Enum):
    SENT = "one was sent"
    SETTLED = "it is known what became of a partition, and not yet of the rest of its commit"
    ANSWERED = "a response says that a partition is committed, or refused for good"
    ENDED = "one has ended"
    UNANSWERED = "one has ended, and since it was sent there was no answer"


_F, _H = Following, Heard

TRANSITIONS: Final[dict[tuple[Following, Heard], Following]] = {
    (_F.FREE, _H.SENT): _F.WAITING,
    (_F.WAITING, _H.SENT): _F.WAITING,
    (_F.OUTAGE, _H.SENT): _F.OUTAGE,
    (_F.OUTAGE_FREE, _H.SENT): _F.OUTAGE,
    (_F.FREE, _H.SETTLED): _F.FREE,
    (_F.WAITING, _H.SETTLED): _F.FREE,
    (_F.OUTAGE, _H.SETTLED): _F.OUTAGE_FREE,
    (_F.OUTAGE_FREE, _H.SETTLED): _F.OUTAGE_FREE,
    **{(each, _H.ANSWERED): _F.FREE for each in Following},
    **{(each, _H.ENDED): _F.FREE for each in Following},
    **{(each, _H.UNANSWERED): _F.OUTAGE for each in Following},
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SentCommit:
    """waits_for: partitions of which it is not known what became of them."""

    names: frozenset[TopicPartition]
    waits_for: set[TopicPartition]
    sent_at: float


class CommitsInFlight:
    """See the laws."""

    def __init__(self) -> None:
        self._following = Following.FREE
        self._in_flight: list[SentCommit] = []
        self._newest_at = self._answered_at = -inf
        # Law 4: what they named that nobody answered.
        self._unanswered = frozenset[TopicPartition]()

    def on_its_way(self) -> frozenset[TopicPartition]:
        """Law 2."""
        return frozenset[TopicPartition]().union(*(each.waits_for for each in self._in_flight))

    def kept_back(self, now: float, *, hurries: bool) -> Set[TopicPartition] | None:
        """What a commit must not name that is sent now. None: none may be sent. hurries: a hand-over waits for nothing
        but a commit that is not on its way."""
        on_its_way = self.on_its_way()
        if hurries or not self._in_flight or self._may_follow(now):
            return on_its_way
        if self._unanswered and on_its_way <= self._unanswered:
            # Perhaps these alone are away: one commit of others finds that out.
            return on_its_way | self._unanswered
        return None

    def sent(self, commit: SentCommit) -> None:
        """Before the consumer is given it, which may settle some of it at once."""
        self._in_flight.append(commit)
        self._newest_at = commit.sent_at
        self._hear(Heard.SENT)

    def settled(self, commit: SentCommit, partition: TopicPartition, outcome: CommitOutcome, now: float) -> None:
        commit.waits_for.discard(partition)
        if outcome in (CommitOutcome.COMMITTED, CommitOutcome.REFUSED):
            self._answered_at, self._unanswered = now, frozenset()
            self._hear(Heard.ANSWERED)
        if commit.waits_for:
            self._hear(Heard.SETTLED)

    def ended(self, commit: SentCommit, error: BaseException | None) -> None:
        self._in_flight.remove(commit)
        # Where somebody has answered meanwhile, only what is left of it has no response.
        is_unanswered = isinstance(error, _UNANSWERED) and self._answered_at < commit.sent_at
        self._unanswered = self._unanswered | commit.names if is_unanswered else frozenset()
        self._hear(Heard.UNANSWERED if is_unanswered else Heard.ENDED)

    def _may_follow(self, now: float) -> bool:
        if self._following is Following.WAITING:
            return now >= self._newest_at + PATIENCE
        return self._following in (Following.FREE, Following.OUTAGE_FREE)

    def _hear(self, what: Heard) -> None:
        self._following = TRANSITIONS[self._following, what]
