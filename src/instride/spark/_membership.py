"""The group's side of a pipeline: what it owns, what is to be revoked, and for how long it keeps that (KIP-983).

Laws
1. A newly assigned partition begins where the sink has reached; the group's committed offset counts only where the
   sink holds nothing of it (see `starting`).
2. A partition whose revocation is requested gets no new job from that moment. It is kept while a job of it is under way
   or its commit has no response yet, and by nothing else.
3. A lost partition's work is cancelled at once, and everything about it is forgotten.
4. What became of partitions `on_event` hears from the consumer's telemetry: nothing is told of that here.
5. Telemetry comes inside the loop's own calls of the consumer, on its thread. An observer may not call the consumer, so
   what is to be done about an event the loop does, after the call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from instride import RebalanceListener
from instride.consumer import RangeConsumer
from instride.observers import Observer
from instride.records import TopicPartition
from instride.spark._events import PipelineEvent
from instride.spark._starting import Starts
from instride.telemetry import OwnershipChanged, TelemetryEvent

__all__ = ["Membership", "OwnershipObserver"]


class OwnershipObserver(Observer):
    """Passes on how ownership changes. What `emit` raises is kept for the loop: an observer may raise nothing, and an
    error of Kafka's that comes out of a poll is taken for the group's.
    """

    def __init__(self, emit: Callable[[PipelineEvent], None]) -> None:
        self._emit = emit
        self._error: BaseException | None = None

    def on_telemetry(self, event: TelemetryEvent) -> None:
        if isinstance(event, OwnershipChanged):
            self.tell(event)

    def tell(self, event: PipelineEvent) -> None:
        """Within a call of the consumer."""
        try:
            self._emit(event)
        except BaseException as error:  # noqa: BLE001 - raised by `check`; a SystemExit, too, leaves no step half done
            if self._error is None:
                self._error = error

    def check(self) -> None:
        """Raises what `emit` raised first, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error


class Membership(RebalanceListener):
    """For the thread that polls. forget: hears of partitions that are ours no more, and whether they were lost."""

    def __init__(
        self, consumer: RangeConsumer, starts: Starts, *, forget: Callable[[Sequence[TopicPartition], bool], None]
    ) -> None:
        self._consumer = consumer
        self._starts = starts
        self._forget = forget
        self._requested: set[TopicPartition] = set()
        self._owned: set[TopicPartition] = set()

    @property
    def owned(self) -> int:
        """How many partitions are ours, those that are to be revoked included."""
        return len(self._owned)

    @property
    def blocked(self) -> Collection[TopicPartition]:
        """Those whose revocation the group requested: they get no new job."""
        return self._requested

    # -- the listener

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._owned.update(partitions)
        self._starts.begin(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._gone(partitions, lost=False)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._gone(partitions, lost=True)

    def _gone(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        self._requested.difference_update(partitions)
        self._owned.difference_update(partitions)
        self._starts.forget(partitions)
        self._forget(partitions, lost)

    # -- after each poll

    def look(self) -> None:
        """Take note of which revocations the group requested, and of which it takes back."""
        known = self._requested | self._consumer.to_be_revoked_partitions()
        self._requested = {each for each in known if self._consumer.revoke_deadline(each) is not None}

    def delay(
        self,
        uncommitted: Callable[[Iterable[TopicPartition]], set[TopicPartition]],
        reason: Callable[[TopicPartition], str],
    ) -> None:
        """Keep those that have work under way, and release the others in the next poll. reason: which work it is."""
        self._consumer.delay_revoke(uncommitted(self._consumer.to_be_revoked_partitions()), reason=reason)
