"""What a query in group mode owns, what its batch in flight reads, what it has to commit and what it may release. Pure.

    assigned -> placed (where the group says) -> offered offsets -> planned -> confirmed -> committed -> released

Laws
1. The group's committed offset alone says where a partition goes on. The checkpoint says only which batch is in flight.
2. One batch at most is in flight: from its plan, or its replay, until Spark asks with its end what comes next. By that
   Spark says that the batch is committed.
3. What was confirmed is committed to the group before anything more is planned. So all before the start of a range was
   confirmed by some member, and nothing behind the group's offset was committed to it unread.
4. Where the group has no offset of a partition, the start (startingOffsets) is committed before the first plan.
5. A partition whose revocation is requested is in no new plan. It is kept while the batch in flight reads it or its
   confirmed end is not committed, and by nothing else.
6. A batch that is replayed reads what the group still leaves to this query: of the partitions that it owns, from the
   group's offset on. What is left out some member has confirmed, or the partition's owner reads it.
7. What was left out of a replay is never committed.
8. Asked twice for what follows one batch, it gives the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from instride.errors import IllegalStateError
from instride.records import TopicPartition
from instride.spark._data_source.offsets import BatchPlan, Span

__all__ = ["GroupTable"]

Offsets = dict[TopicPartition, int]


@dataclass(slots=True)
class _Owned:
    """position: where the next plan begins; None: not known yet. available: where the log ends."""

    position: int | None = None
    available: int = 0
    requested: bool = False


@dataclass(frozen=True, slots=True)
class _InFlight:
    """follows: the batch before it. end: as Spark logs it. reads: what is read of it."""

    follows: BatchPlan
    end: BatchPlan
    reads: Mapping[TopicPartition, Span]


class GroupTable:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._owned: dict[TopicPartition, _Owned] = {}
        self._in_flight: _InFlight | None = None
        self._owed: Offsets = {}
        self._pending: Mapping[TopicPartition, Span] = {}

    # -- what the group says

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Newly assigned: nothing is known of them yet."""
        for partition in partitions:
            self._owned[partition] = _Owned()
            self._owed.pop(partition, None)

    def gone(self, partitions: Iterable[TopicPartition]) -> None:
        """Revoked or lost: nothing of them is committed any more."""
        for partition in partitions:
            self._owned.pop(partition, None)
            self._owed.pop(partition, None)

    def requested(self, partitions: Iterable[TopicPartition]) -> None:
        """Those whose revocation is requested now; of all others it is not, or not any more."""
        chosen = set(partitions)
        for partition, owned in self._owned.items():
            owned.requested = partition in chosen

    @property
    def unplaced(self) -> list[TopicPartition]:
        """Those of which it is not known where they begin."""
        return sorted(partition for partition, owned in self._owned.items() if owned.position is None)

    def place(self, partition: TopicPartition, *, committed: int | None, start: int) -> int:
        """Where it begins. committed: the group's offset. start: where to begin if there is none (law 4)."""
        planned = self._pending.get(partition)
        position = committed
        if position is None:
            # The group forgot its offset; the batch to be replayed still knows it.
            position = self._owed[partition] = planned.start if planned is not None else start
        self._owned[partition].position = self._owned[partition].available = position
        return position

    def offered(self, partition: TopicPartition, end: int) -> None:
        """The log of a placed partition ends there now."""
        self._owned[partition].available = max(end, self._owned[partition].available)

    # -- what Spark says

    def pending(self, end: BatchPlan) -> None:
        """Before the group is joined: a batch that was in flight when the last run ended is to be replayed."""
        self._pending = end.spans

    def replay(self, follows: BatchPlan, end: BatchPlan) -> BatchPlan:
        """What of it is to be read (law 6). It is in flight from now on. Raises IllegalStateError as `confirm`."""
        batch = self._in_flight
        if batch is None:
            self._in_flight = batch = _InFlight(follows, end, self._left_to_us(end))
        if batch.end != end:
            raise IllegalStateError("Spark replays a batch while another is in flight: start the query anew")
        return BatchPlan(batch.reads, end.topic_ids)

    def confirm(self, start: BatchPlan) -> None:
        """Spark asks what follows this batch. Raises IllegalStateError where another is in flight."""
        batch = self._in_flight
        if batch is None or start == batch.follows != batch.end:
            return
        if start != batch.end:
            raise IllegalStateError("Spark asks what follows a batch that it was not given: start the query anew")
        self._in_flight, self._pending = None, {}
        for partition, span in batch.reads.items():
            owned = self._owned.get(partition)
            if owned is not None and owned.position is not None and owned.position < span.end:
                owned.position = self._owed[partition] = span.end
                owned.available = max(owned.available, span.end)

    def free(self) -> dict[TopicPartition, Span]:
        """What may be planned now, empty spans of idle partitions among it. Nothing while something is owed (law 3)."""
        if self._owed:
            return {}
        return {
            partition: Span(owned.position, owned.available)
            for partition, owned in sorted(self._owned.items())
            if owned.position is not None and not owned.requested
        }

    def plan(
        self, follows: BatchPlan, make: Callable[[Mapping[TopicPartition, Span]], BatchPlan | None]
    ) -> BatchPlan | None:
        """The batch that follows. make: chooses from what is free; None: no batch. None while something is owed."""
        if self._in_flight is not None:
            return self._in_flight.end if self._in_flight.follows == follows else None
        if self._owed:
            return None
        made = make(self.free())
        if made is not None:
            self._in_flight = _InFlight(follows, made, dict(made.spans))
        return made

    # -- what is to be done

    @property
    def owed(self) -> Offsets:
        """What is to be committed to the group."""
        return dict(self._owed)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has these."""
        for partition, offset in offsets.items():
            if self._owed.get(partition) == offset:
                del self._owed[partition]

    def kept(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of them that must not be released yet (law 5)."""
        read = self._in_flight.reads if self._in_flight is not None else {}
        return {each for each in partitions if each in self._owned and (each in read or each in self._owed)}

    @property
    def settled(self) -> bool:
        """Nothing is in flight, and nothing is to be committed."""
        return not self._owed and (self._in_flight is None or not self._in_flight.reads)

    # -- inside

    def _left_to_us(self, end: BatchPlan) -> dict[TopicPartition, Span]:
        left = {}
        for partition, span in end.spans.items():
            owned = self._owned.get(partition)
            if owned is not None and owned.position is not None and span.start <= owned.position < span.end:
                left[partition] = Span(owned.position, span.end)
        return left
