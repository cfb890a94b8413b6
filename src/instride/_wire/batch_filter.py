"""Which batches of a record set hold records to return, one after another.

Laws
1. Aborted transactions are skipped as Java's consumer does it: those that begin at or before a batch's end
   are open, and the producer's next abort marker closes them.
2. Control batches are never returned, in either isolation level.
3. Before anything is allocated for a batch's records, their count is compared with the bytes that hold them.
4. The checksum does not cover the base offset. So a batch is bad that lies wholly before the fetch offset, or that
   comes after a gap and reaches beyond the end of the log that the response states. (Without a gap it was written
   between the broker's look at the end and its look at the log.) Where offsets do not rise from one batch to the next,
   both batches are bad: nobody knows which of them is wrong.

Checksums: `batch_headers.py`, law 1. A response that ends within a batch: `record_set.py`, law 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from instride._wire.batch_headers import INDEX_BYTES, Batch, BatchError, BatchReader, OverlapError
from instride._wire.compression import CompressionError, Sections
from instride._wire.decoder import index_batches
from instride._wire.record_index import MIN_RECORD_BYTES
from instride.errors._quoting import counted

__all__ = ["HEADER_BYTES", "INDEX_BYTES", "BatchWalk", "check_count"]

HEADER_BYTES: Final = 61
"""Of a batch, before its records."""

_CONTROL_KEY: Final = Struct(">hh")  # version, type
_ABORT: Final = 0
_LARGEST_MARKER: Final = 1 << 16


class BatchWalk:
    """Walks once over a record set. next_offset: past all that `next` has gone over.

    leader_epoch: of the batch before the one that `next` gave last, be it one without records to return; once it gave
        None, of the last good one. -1 before the first.

    failure: what is wrong with the batch at next_offset, once `next` has given None.
    aborted: (producer id, first offset) of each aborted transaction, or None to read uncommitted data too.
    end: of the log as far as it may be read, or -1 where that is unknown.
    epochs: the least and the most that a batch may have: see `BatchReader`.
    """

    def __init__(
        self,
        data: memoryview,
        fetch_offset: int,
        aborted: Sequence[tuple[int, int]] | None,
        end: int,
        epochs: tuple[int, int] = (-1, -1),
    ) -> None:
        self.next_offset = fetch_offset
        self.leader_epoch = self._passed_epoch = -1
        self.failure: str | None = None
        self._fetch_offset = fetch_offset
        self._read_committed = aborted is not None
        # The protocol promises no order: Java's consumer has them in a priority queue. Reversed, since they are popped.
        self._aborted = sorted(aborted or (), key=_first_offset, reverse=True)
        self._open: set[int] = set()
        self._end = end
        self._epochs = epochs
        self._data = data
        self._pushed_back: list[Batch] = []
        # The batch that comes next was read already: only with its successor is it known to be good (law 4).
        self._reader, self._ahead, self._ahead_failure = self._begun(data)

    def _begun(self, data: memoryview) -> tuple[BatchReader, Batch | None, str | None]:
        """A reader of these bytes, its first batch, and what is wrong where there is none."""
        reader = BatchReader(data, self._fetch_offset, self._end, *self._epochs)
        try:
            first = reader.next(self.next_offset)
        except BatchError as error:
            return reader, None, str(error)
        if first is None and data:
            return reader, None, f"{counted(len(data), 'byte')} came, but no complete batch"
        return reader, first, None

    def move(self, data: memoryview, batch: Batch) -> None:
        """Go on in a copy of the bytes, which begins with this batch: the last one that `next` gave."""
        # Back to before the batch: `next` gives it once more, with its place in the copy.
        self.next_offset, self._passed_epoch = batch.position, self.leader_epoch
        self._pushed_back.clear()
        least, most = self._epochs
        self._epochs = max(least, self.leader_epoch), most
        self._data = data
        self._reader, self._ahead, self._ahead_failure = self._begun(data)

    def next(self) -> Batch | None:
        """The next batch with records to return, or None at the end or before one that is bad."""
        read = self._reader.next
        self.leader_epoch = self._passed_epoch
        if self._pushed_back:
            pushed_back = self._pushed_back.pop()
            self.next_offset, self._passed_epoch = pushed_back.last_offset + 1, pushed_back.leader_epoch
            return pushed_back
        while (batch := self._ahead) is not None:
            position = batch.last_offset + 1
            try:
                self._ahead = read(position)
            except OverlapError as error:  # the batch itself is doubtful as well
                self._ahead, self.failure = None, str(error)
                return None
            except BatchError as error:
                # This batch is good: what is wrong behind it is told of once it has been returned.
                self._ahead, self._ahead_failure = None, str(error)
            if self._read_committed and batch.producer_id >= 0:
                try:
                    skipped = self._skips_transaction(batch)
                except BatchError as error:
                    self._ahead, self.failure = None, str(error)
                    return None
                if skipped:
                    self._passed(batch)
                    continue
            if not (batch.control or (batch.count == 0 and batch.start == batch.end)):
                self.next_offset, self._passed_epoch = position, batch.leader_epoch
                return batch  # (compaction leaves the last batch of a producer as a header alone)
            self._passed(batch)
        self.failure = self._ahead_failure
        return None

    def run(self, found: list[Batch], count: int, limit: int, most: int, scale: int = 1) -> int:
        """Add to `found`, whose last one `next` gave last, the batches that `next` would give after it.

        It stops before one that wants a decision or has no room, which `next` gives then: see `BatchReader.run`.
        Returns how many records were found.
        """
        assert not self._pushed_back
        had = len(found)
        self._ahead, count = self._reader.run(self._ahead, found, count, limit, most, self._read_committed, scale)
        if len(found) > had:
            last = found[-1]
            self.next_offset, self._passed_epoch = last.last_offset + 1, last.leader_epoch
        return count

    def push_back(self, found: Sequence[Batch]) -> None:
        """`next` gives these once more: those that `run` has found just now, and the one before them."""
        self.next_offset, self._passed_epoch = found[0].position, self.leader_epoch
        self._pushed_back = [*reversed(found)]

    def _passed(self, batch: Batch) -> None:
        self.next_offset = batch.last_offset + 1
        self.leader_epoch = self._passed_epoch = batch.leader_epoch

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
        key = self._control_key(batch)
        if key is None or len(key) < _CONTROL_KEY.size:
            raise BatchError(f"{batch.describe()} is a broken control batch")
        version, kind = _CONTROL_KEY.unpack_from(key)
        return bool(version >= 0 and kind == _ABORT)

    def _control_key(self, batch: Batch) -> bytes | None:
        # Decompressed like any batch: nothing says that a marker must not be compressed.
        section = Sections(0)
        try:
            start, end = section.append(batch.codec, self._data[batch.start : batch.end], _LARGEST_MARKER)
            check_count(batch, end - start, INDEX_BYTES)
        except (CompressionError, BatchError):
            return None
        columns = index_batches(section.finish(), bytearray(batch.row(start, end)), 0)
        return columns.key(0) if columns.rows > 0 else None


def check_count(batch: Batch, nbytes: int, most_bytes: int) -> None:
    """Law 3. nbytes: of its records. most_bytes: of its index. Raises BatchError."""
    if batch.count * MIN_RECORD_BYTES > nbytes:
        raise BatchError(f"{counted(batch.count, 'record')} cannot be in {counted(nbytes, 'byte')}")
    if batch.count * INDEX_BYTES > most_bytes:
        raise BatchError(
            f"the index of {counted(batch.count, 'record')} takes over {most_bytes} bytes (max_decompressed_bytes)"
        )


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]
