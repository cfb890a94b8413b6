"""A run of consecutive decoded records of one partition: what fetches produce and polls hand out.

Laws
1. A chunk is immutable; `split` shares its memory. No record object is made until `records` is called.
2. Offsets rise strictly; they need not be contiguous (compaction, transactions).
3. The parts of a split account for exactly the memory of the whole: what a poll takes out of a buffer is counted so.
4. `next_offset` is the position once the whole chunk is consumed: after the last batch, also where that batch
   ends in records that are never returned (control, aborted). A split's left part ends after its last record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from instride._wire.decoder import ConsumerRecord

__all__ = ["Piece", "RecordChunk", "UndecodedRecords"]


class RecordChunk(Protocol):
    """The surface that the core relies on. `_wire.record_set` has the real one, simulations have their own."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int:
        """Of the last batch before `next_offset`, whether or not it has records to return; or -1."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory that this part of the chunk accounts for."""
        ...

    @property
    def lets_go_of(self) -> int:
        """Memory that is free once this part is: of the last part that of the whole, which all parts share."""
        ...

    def __len__(self) -> int: ...

    def split(self, count: int) -> tuple[RecordChunk, RecordChunk]:
        """The first `count` records (0 < count < len) and the rest."""
        ...

    def records(self, *, epoch: int, seek_number: int) -> list[ConsumerRecord]:
        """Record objects, stamped with the assignment epoch and seek number they were returned in."""
        ...

    def record_runs(self, *, epoch: int, seek_number: int) -> Iterator[Sequence[ConsumerRecord]]:
        """The same, some at a time: those of one run need not be there when the next one is made."""
        ...

    def to_arrow(
        self, columns: Sequence[str] | None = None, *, binary_view: bool = False, dictionary: bool = False
    ) -> pa.RecordBatch:
        """Columns topic, partition, offset, timestamp, timestamp_type, key, value, headers, or those of them.

        binary_view: keys and values as views. dictionary: topic and partition as dictionaries.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What was decoded of a partition's part of a response.

    chunk: None where there is no record to return. next_offset: after it. leader_epoch: where there is no chunk, of the
    last batch before next_offset, or -1 where there is none. nbytes: all the memory that the chunk keeps,
    until none of its parts is left. corrupt: what comes after it cannot be read.
    """

    chunk: RecordChunk | None = None
    next_offset: int
    leader_epoch: int = -1
    nbytes: int = 0
    corrupt: Exception | None = None


class UndecodedRecords(Protocol):
    """A partition's part of a response. `_wire.record_set` has the real one."""

    @property
    def done(self) -> bool:
        """Nothing is left."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory that it keeps."""
        ...

    @property
    def length(self) -> int:
        """Bytes of its batches, as they came; of those, too, that were not kept."""
        ...

    @property
    def next_offset(self) -> int:
        """After its last whole batch, by headers that nobody has checked; the fetch offset where none is whole."""
        ...

    def decode(self, target: int, capacity: int, *, alone: bool = False) -> Piece | None:
        """The next records, about `target` bytes within `capacity` bytes. None: that is too little.

        alone: one batch may take max_decompressed_bytes in any case; then there is a piece always.
        """
        ...

    def detach(self, most: int = ..., *, usual: int = ..., stays: bool = ...) -> None:
        """Copy out what is left, where much more than that is kept for it.

        most: bytes that are worth keeping behind the next batch; where there are more they are dropped.
        usual: a response that keeps more than this gives back its pages as it is copied from.
        stays: where there is memory enough, it may stay where it is.
        """
        ...
