"""Records that were never bytes: a `_wire.record_chunk.RecordChunk` of a simulated log, and batches of them."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from instride._wire.record_chunk import Piece
from instride.records import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RECORD_BYTES", "SimulatedBatches", "SimulatedChunk", "epoch_at", "finished"]

RECORD_BYTES = 100
"""What each record accounts for."""
_INDEX_BYTES = 36
_BATCHES = (1, 2, 5, 20, 60)
"""How many records a batch may have."""


def epoch_at(starts: Sequence[int], offset: int) -> int:
    """Of what is, or was, at this offset: a marker and an aborted record have a leader epoch too."""
    return bisect_right(starts, offset) - 1


def finished(record: ConsumerRecord) -> tuple[TopicPartition, int, int, int]:
    """The detail of the event "done"."""
    return record.topic_partition, record.offset, record.epoch, record.timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedChunk:
    """offsets: of its records, where some are missing; else all from `first_offset` to before `next_offset`.

    epoch_starts: where each leader epoch begins in the log, from epoch 0 on. epochs_before: as in `topic_ids`.
    A record's timestamp is its leader epoch as a history tells it.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    offsets: tuple[int, ...] = ()
    epoch_starts: tuple[int, ...] = (0,)
    epochs_before: int = 0

    @property
    def leader_epoch(self) -> int:
        return self._epoch_of(self.next_offset - 1)

    @property
    def last_offset(self) -> int:
        return self.offsets[-1] if self.offsets else self.next_offset - 1

    @property
    def nbytes(self) -> int:
        return len(self) * RECORD_BYTES

    @property
    def lets_go_of(self) -> int:
        return self.nbytes

    def __len__(self) -> int:
        return len(self.offsets) or self.next_offset - self.first_offset

    def split(self, count: int) -> tuple[SimulatedChunk, SimulatedChunk]:
        if self.offsets:
            left, right = self.offsets[:count], self.offsets[count:]
            return self._part(left[0], left[-1] + 1, left), self._part(right[0], self.next_offset, right)
        middle = self.first_offset + count
        return self._part(self.first_offset, middle), self._part(middle, self.next_offset)

    def _part(self, first: int, end: int, offsets: tuple[int, ...] = ()) -> SimulatedChunk:
        return SimulatedChunk(
            topic=self.topic,
            partition=self.partition,
            first_offset=first,
            next_offset=end,
            offsets=offsets,
            epoch_starts=self.epoch_starts,
            epochs_before=self.epochs_before,
        )

    def _epoch_of(self, offset: int) -> int:
        return epoch_at(self.epoch_starts, offset)

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """Its offsets, as stretches without a gap and of one leader epoch: first, last, that epoch as it is told."""
        for first, last, leader_epoch in self._stretches():
            yield first, last, self.epochs_before + leader_epoch

    def _stretches(self) -> Iterator[tuple[int, int, int]]:
        offsets = self._offsets()
        first = offsets[0]
        if not self.offsets and self._epoch_of(first) == self.leader_epoch:
            yield first, offsets[-1], self.leader_epoch
            return
        for before, after in pairwise(offsets):
            if after > before + 1 or self._epoch_of(after) != self._epoch_of(before):
                yield first, before, self._epoch_of(before)
                first = after
        yield first, offsets[-1], self._epoch_of(offsets[-1])

    def _offsets(self) -> Sequence[int]:
        return self.offsets or range(self.first_offset, self.next_offset)

    def record_runs(self, *, epoch: int, seek_number: int) -> Iterator[list[ConsumerRecord]]:
        yield self.records(epoch=epoch, seek_number=seek_number)

    def records(self, *, epoch: int, seek_number: int) -> list[ConsumerRecord]:
        return [
            ConsumerRecord(
                self.topic,
                self.partition,
                offset,
                timestamp=self.epochs_before + self._epoch_of(offset),
                leader_epoch=self._epoch_of(offset),
                epoch=epoch,
                seek_number=seek_number,
            )
            for offset in self._offsets()
        ]

    def to_arrow(
        self, columns: Sequence[str] | None = None, *, binary_view: bool = False, dictionary: bool = False
    ) -> pa.RecordBatch:
        raise TypeError("a simulated record has no columns")


class SimulatedBatches:
    """What a fetch brought of a partition, in batches: a `_wire.record_chunk.UndecodedRecords`.

    next_offset: after its last batch, which may have no records to return. end_epoch: the leader epoch of that batch.
    """

    def __init__(self, chunk: SimulatedChunk, next_offset: int, end_epoch: int, chance: random.Random) -> None:
        self._left: SimulatedChunk | None = chunk
        self.next_offset = next_offset
        self._end_epoch = end_epoch
        self.length = chunk.nbytes
        self._chance = chance
        self._batch = chance.choice(_BATCHES)
        self.done = False

    @property
    def nbytes(self) -> int:
        return 0 if self._left is None else self._left.nbytes

    def decode(self, target: int, capacity: int, *, alone: bool = False) -> Piece | None:
        """A batch whatever the target."""
        left = self._left
        if left is None:
            self.done = True
            return Piece(next_offset=self.next_offset, leader_epoch=self._end_epoch)
        count = min(self._batch, len(left))
        nbytes = count * (RECORD_BYTES + _INDEX_BYTES)
        if nbytes > capacity and not alone:
            return None
        self._batch = self._chance.choice(_BATCHES)
        if count < len(left):
            left, self._left = left.split(count)
        else:
            self._left = None
            self.done = left.next_offset == self.next_offset and self._chance.random() < 0.5
        return Piece(chunk=left, next_offset=left.next_offset, nbytes=nbytes)

    def detach(self, most: int = 0, *, usual: int = 0, stays: bool = False) -> None:
        """It keeps nothing but itself."""
