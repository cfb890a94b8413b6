"""Records that were never bytes: a `wire.chunk.RecordChunk` of a simulated log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from instride.records import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RECORD_BYTES", "SimulatedChunk"]

RECORD_BYTES = 100
"""What each record accounts for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedChunk:
    """offsets: of its records, where some are missing; else all from `first_offset` to before `next_offset`."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    leader_epoch: int = 0
    offsets: tuple[int, ...] = ()

    @property
    def last_offset(self) -> int:
        return self.offsets[-1] if self.offsets else self.next_offset - 1

    @property
    def nbytes(self) -> int:
        return len(self) * RECORD_BYTES

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
            leader_epoch=self.leader_epoch,
            offsets=offsets,
        )

    def stretches(self) -> Iterator[tuple[int, int]]:
        """Its offsets, as stretches without a gap: the first and the last of each."""
        if not self.offsets:
            yield self.first_offset, self.last_offset
            return
        first = self.offsets[0]
        for before, after in pairwise(self.offsets):
            if after > before + 1:
                yield first, before
                first = after
        yield first, self.offsets[-1]

    def records(self, *, epoch: int, seek_number: int) -> list[ConsumerRecord]:
        offsets: Sequence[int] = self.offsets or range(self.first_offset, self.next_offset)
        return [
            ConsumerRecord(
                self.topic,
                self.partition,
                offset,
                leader_epoch=self.leader_epoch,
                epoch=epoch,
                seek_number=seek_number,
            )
            for offset in offsets
        ]

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        raise TypeError("a simulated record has no columns")
