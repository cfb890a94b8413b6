"""The group's side of a pipeline: what it owns, what is to be revoked, and for how long it keeps that (KIP-983).

Laws
1. A newly assigned partition begins where the sink has reached; the group's committed offset counts only where the
   sink holds nothing of it (see `starting`).
2. A partition whose revocation is requested gets no new job from that moment. It is kept while a job of it is under way
   or its commit has no response yet, and by nothing else.
3. A lost partition's work is cancelled at once, and everything about it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from instride import RebalanceListener
from instride.consumer import RangeConsumer
from instride.records import TopicPartition
from instride.spark.events import PartitionsChanged, PipelineEvent
from instride.spark.starting import Starts
from instride.telemetry import OwnershipChange

__all__ = ["Membership"]


class Membership(RebalanceListener):
    """For the thread that polls. forget: hears of partitions that are ours no more, and whether they were lost."""

    def __init__(
        self,
        consumer: RangeConsumer,
        starts: Starts,
        *,
        emit: Callable[[PipelineEvent], None],
        forget: Callable[[Sequence[TopicPartition], bool], None],
    ) -> None:
        self._consumer = consumer
        self._starts = starts
        self._emit = emit
        self._forget = forget
        self._requested: set[TopicPartition] = set()
        self._delayed: set[TopicPartition] = set()
        self._completing: set[TopicPartition] = set()

    @property
    def blocked(self) -> Collection[TopicPartition]:
        """Those whose revocation the group requested: they get no new job."""
        return self._requested

    # -- the listener

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._tell(OwnershipChange.ASSIGNED, partitions)
        self._starts.begin(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        # Close releases those whose revocation no poll has seen: requested and handed over at once.
        self._tell(OwnershipChange.REVOKE_REQUESTED, set(partitions) - self._requested)
        self._gone(partitions, lost=False)
        self._tell(OwnershipChange.REVOKED, partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._gone(partitions, lost=True)
        self._tell(OwnershipChange.LOST, partitions)

    def _gone(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        for each in (self._requested, self._delayed, self._completing):
            each.difference_update(partitions)
        self._starts.forget(partitions)
        self._forget(partitions, lost)

    # -- after each poll

    def look(self) -> None:
        """Take note of what the poll said of revokes."""
        requested = self._consumer.to_be_revoked_partitions()
        self._tell(OwnershipChange.REVOKE_REQUESTED, requested - self._requested)
        self._requested |= requested
        back = {each for each in self._requested if self._consumer.revoke_deadline(each) is None}
        for known in (self._requested, self._delayed, self._completing):
            known.difference_update(back)
        self._tell(OwnershipChange.REASSIGNED, back)

    def delay(
        self,
        uncommitted: Callable[[Iterable[TopicPartition]], set[TopicPartition]],
        reason: Callable[[TopicPartition], str],
    ) -> None:
        """Keep those that have work under way, and release the others in the next poll. reason: which work it is."""
        requested = self._consumer.to_be_revoked_partitions()
        keep = uncommitted(requested)
        self._consumer.delay_revoke(keep, reason=reason)
        self._tell(OwnershipChange.DELAYED, keep - self._delayed)
        self._delayed |= keep
        self._tell(OwnershipChange.COMPLETING, requested - keep - self._completing)
        self._completing |= requested - keep

    def _tell(self, change: OwnershipChange, partitions: Iterable[TopicPartition]) -> None:
        chosen = tuple(sorted(partitions))
        if chosen:
            self._emit(PartitionsChanged(change=change, partitions=chosen))
