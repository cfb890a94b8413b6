"""Deserializing what a poll returns, so that a record which cannot be read stands in nobody's way for good.

Laws
1. A poll returns what comes before such a record, and of other partitions; its own partition stands at it. When
   nothing else is there, or in the next poll, the error is raised; and again by each poll, until a seek, a pause, or
   until it can be read after all.
2. What a poll took and does not return was never taken: position, leader epoch and buffer are as before.
3. So it is for whatever interrupts a deserializer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from instride.core.application.partition import Delivery, OwnedPartition
from instride.errors import DeserializationError
from instride.records import TopicPartition
from instride.wire.chunk import RecordChunk
from instride.wire.decoder import ConsumerRecord

__all__ = ["Read", "read_first", "read_taken"]

Read = Callable[[ConsumerRecord], ConsumerRecord]
"""Deserializes one record. Raises DeserializationError."""


@dataclass(slots=True, kw_only=True)
class _Taken:
    """What a poll took of one partition, where that stood before, and what becomes of it."""

    held: OwnedPartition
    position: int | None
    leader_epoch: int
    taken: list[Delivery] = field(default_factory=list)
    good: list[Delivery] = field(default_factory=list)
    rest: list[RecordChunk] = field(default_factory=list)
    error: DeserializationError | None = None

    def apply(self) -> None:
        """Law 2."""
        if self.good:
            last = self.good[-1].chunk
            self.position, self.leader_epoch = last.next_offset, last.leader_epoch
        self._put_back(self.rest)
        self.held.unreadable = self.error is not None

    def undo(self) -> None:
        """Law 3."""
        self._put_back([each.chunk for each in self.taken])

    def _put_back(self, chunks: Sequence[RecordChunk]) -> None:
        if chunks:
            self.held.put_back(chunks, self.position, self.leader_epoch)


def read_first(read: Read, held: Iterable[OwnedPartition]) -> list[Delivery]:
    """Try those that could not be read in an earlier poll once more. Raises as law 1 says."""
    taken = [_before(each) for each in held if each.unreadable and each.available()]
    for each in taken:
        each.taken += each.held.take(1)
    return _read_all(read, taken)


def read_taken(
    read: Read, held: Mapping[TopicPartition, OwnedPartition], take: Callable[[], Sequence[Delivery]]
) -> list[Delivery]:
    """What `take` takes, deserialized, up to the first of each partition that cannot be. Raises as law 1 says."""
    taken = {tp: _before(each) for tp, each in held.items()}
    for delivery in take():
        taken[delivery.partition].taken.append(delivery)
    return _read_all(read, [each for each in taken.values() if each.taken])


def _before(held: OwnedPartition) -> _Taken:
    return _Taken(held=held, position=held.position, leader_epoch=held.leader_epoch)


def _read_all(read: Read, taken: Sequence[_Taken]) -> list[Delivery]:
    try:
        for each in taken:
            _read_partition(read, each)
    except BaseException:
        for each in taken:
            each.undo()
        raise
    for each in taken:
        each.apply()
    deliveries = [delivery for each in taken for delivery in each.good]
    errors = [each.error for each in taken if each.error is not None]
    if errors and not deliveries:
        raise errors[0]
    return deliveries


def _read_partition(read: Read, each: _Taken) -> None:
    for delivery in each.taken:
        if each.error is not None:
            each.rest.append(delivery.chunk)
            continue
        records: list[ConsumerRecord] = []
        try:
            for record in delivery.chunk.records(epoch=delivery.epoch, seek_number=delivery.seek_number):
                records.append(read(record))
        except DeserializationError as error:
            each.error = error
        _divide(each, delivery, records)


def _divide(each: _Taken, delivery: Delivery, records: list[ConsumerRecord]) -> None:
    """The part of a delivery that could be read is good; the rest goes back."""
    chunk = delivery.chunk
    if len(records) == len(chunk):
        each.good.append(replace(delivery, records=tuple(records)))
        return
    rest = chunk
    if records:
        chunk, rest = chunk.split(len(records))
        each.good.append(replace(delivery, chunk=chunk, records=tuple(records)))
    each.rest.append(rest)
