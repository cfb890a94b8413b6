"""Which batches of a record set hold records to return, and their records in one buffer.

Laws
1. Aborted transactions are skipped as Java's consumer does it: those that begin at or before a batch's end
   are open, and the producer's next abort marker closes them.
2. Control batches are never returned, in either isolation level.
3. Before anything is allocated for a batch's records, their count is compared with the bytes that hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from instride.wire.batch_reader import Batch, BatchError, BatchReader
from instride.wire.compression import CompressionError, Sections
from instride.wire.decoder import index_batches
from instride.wire.record_index import LARGEST_BASE, MIN_RECORD_BYTES

__all__ = ["BatchWalk", "place"]

_CONTROL_KEY: Final = Struct(">hh")  # version, type
_ABORT: Final = 0

Placed = tuple[memoryview, bytearray, tuple[int, str | None] | None]


class BatchWalk:
    """Walks once over a record set. `batches` are those with records to return; `next_offset` is past all.

    aborted: (producer id, first offset) of each aborted transaction, or None to read uncommitted data too.
    """

    def __init__(
        self,
        data: memoryview,
        fetch_offset: int,
        aborted: Sequence[tuple[int, int]] | None,
        max_decompressed_bytes: int,
    ) -> None:
        self.batches: list[Batch] = []
        self.next_offset = fetch_offset
        self._data = data
        self._fetch_offset = fetch_offset
        self._read_committed = aborted is not None
        self._aborted = sorted(aborted or (), key=_first_offset, reverse=True)
        self._open: set[int] = set()
        self._max_decompressed_bytes = max_decompressed_bytes

    def run(self) -> str | None:
        """Says what is wrong with the first batch that cannot be read, if there is one."""
        reader = BatchReader(self._data)
        last_offset = -1
        try:
            while (batch := reader.next(self.next_offset)) is not None:
                last_offset = batch.last_offset
                if not self._skips(batch):
                    self.batches.append(batch)
                if last_offset >= self.next_offset:
                    self.next_offset = last_offset + 1
        except BatchError as error:
            return str(error)
        if reader.at == 0 and self._data:
            return f"{len(self._data)} bytes came, but no complete batch"
        if self._data and last_offset < self._fetch_offset:
            return f"the broker answered with records up to offset {last_offset} only"
        return None

    def _skips(self, batch: Batch) -> bool:
        """Whether none of its records is to be returned. Keeps account of the aborted transactions."""
        if self._read_committed and batch.producer_id >= 0 and self._skips_transaction(batch):
            return True
        return batch.control or batch.last_offset < self._fetch_offset or _is_empty(batch)

    def _skips_transaction(self, batch: Batch) -> bool:
        while self._aborted and self._aborted[-1][1] <= batch.last_offset:
            self._open.add(self._aborted.pop()[0])
        if batch.control:
            if batch.producer_id in self._open and self._aborts(batch):
                self._open.discard(batch.producer_id)
            return True
        return batch.transactional and batch.producer_id in self._open

    def _aborts(self, batch: Batch) -> bool:
        """Whether a control batch is an abort marker. Compaction may have left an empty one."""
        if batch.count == 0:
            return False
        base, table, unread = place(self._data, [batch], self._max_decompressed_bytes)
        columns = index_batches(base, table, 0)
        key = columns.key(0) if columns.rows > 0 else None
        if unread is not None or key is None or len(key) < _CONTROL_KEY.size:
            raise BatchError(f"{batch.describe()} is a broken control batch")
        version, kind = _CONTROL_KEY.unpack_from(key)
        return bool(version >= 0 and kind == _ABORT)


def _is_empty(batch: Batch) -> bool:
    """As compaction leaves the last batch of a producer: a header alone."""
    return batch.count == 0 and batch.start == batch.end


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]


def place(data: memoryview, batches: Sequence[Batch], max_decompressed_bytes: int) -> Placed:
    """One buffer with the records of all batches, the table of where they are, and what stopped it.

    Without compression the buffer is `data` itself. What stopped it: the offset to fetch from next, and what
    is wrong there, or None where only the bound of a set was reached.
    """
    sections = None
    if any(batch.codec for batch in batches):
        sections = Sections(min(max_decompressed_bytes, 4 * len(data)))
    table = bytearray()
    stopped: tuple[int, str | None] | None = None
    for batch in batches:
        used = 0 if sections is None else sections.used
        limit = min(max_decompressed_bytes, LARGEST_BASE - used)
        if used >= max_decompressed_bytes:
            stopped = batch.position, None
            break
        try:
            table += _row(batch, data, sections, limit)
        except (CompressionError, BatchError) as error:
            # In the next fetch the batch stands first and has all the room, so its own fault will show then.
            why = f"{error} (in {batch.describe()})" if limit == max_decompressed_bytes or not used else None
            stopped = batch.position, why
            break
    return data if sections is None else memoryview(sections.finish()), table, stopped


def _row(batch: Batch, data: memoryview, sections: Sections | None, limit: int) -> bytes:
    start, end = batch.start, batch.end
    if sections is not None:
        start, end = sections.append(batch.codec, data[start:end], limit)
    if batch.count * MIN_RECORD_BYTES > end - start:
        raise BatchError(f"{batch.count} records cannot be in {end - start} bytes")
    return batch.row(start, end)
