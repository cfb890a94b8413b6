"""Records that were never bytes: a `wire.chunk.RecordChunk` of a simulated log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from instride.wire.decoder import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RECORD_BYTES", "SimulatedChunk"]

RECORD_BYTES = 100
"""What each record accounts for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedChunk:
    """All offsets from `first_offset` to before `next_offset` (law 2 of `wire.chunk`, without gaps)."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    leader_epoch: int = 0

    @property
    def last_offset(self) -> int:
        return self.next_offset - 1

    @property
    def nbytes(self) -> int:
        return len(self) * RECORD_BYTES

    def __len__(self) -> int:
        return self.next_offset - self.first_offset

    def split(self, count: int) -> tuple[SimulatedChunk, SimulatedChunk]:
        middle = self.first_offset + count
        return self._part(self.first_offset, middle), self._part(middle, self.next_offset)

    def _part(self, first: int, end: int) -> SimulatedChunk:
        return SimulatedChunk(
            topic=self.topic,
            partition=self.partition,
            first_offset=first,
            next_offset=end,
            leader_epoch=self.leader_epoch,
        )

    def records(self, *, epoch: int, seek_number: int) -> list[ConsumerRecord]:
        return [
            ConsumerRecord(
                self.topic,
                self.partition,
                offset,
                leader_epoch=self.leader_epoch,
                epoch=epoch,
                seek_number=seek_number,
            )
            for offset in range(self.first_offset, self.next_offset)
        ]

    def to_arrow(self) -> pa.RecordBatch:
        raise TypeError("a simulated record has no columns")
