"""The batches of a record set: their headers read, their checksums proven, and the ones to skip left out.

Laws
1. Nothing of a batch is believed before its checksum holds, but its length and format. (The checksum does not
   cover base offset, length and leader epoch; so offsets must rise from batch to batch.)
2. Aborted transactions are skipped as Java's consumer does it: those that begin at or before a batch's end
   are open, and the producer's next abort marker closes them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from crc32c import crc32c

from instride.wire.compression import CODECS, CompressionError, Sections
from instride.wire.decoder import MIN_RECORD_BYTES, index_batches

__all__ = ["Batch", "BatchError", "BatchWalk", "place"]

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max timestamp,
# producer id, producer epoch, base sequence, count.
_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH: Final = Struct(">i")
_UNCOUNTED_BYTES: Final = 12  # base offset and length: what the length does not count
_MAGIC_AT: Final = 16
_CRC_FROM: Final = 21
_MIN_LENGTH: Final = _HEADER.size - _UNCOUNTED_BYTES
_MAX_OFFSET: Final = (1 << 63) - 1

_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20

_CONTROL_KEY: Final = Struct(">hh")
_ABORT: Final = 0


class BatchError(ValueError):
    """A batch that cannot be read. Never leaves `wire`: `record_set` makes it a CorruptRecordError."""


@dataclass(frozen=True, slots=True)
class Batch:
    """position: the offset to fetch from to get this batch. start, end: its records, compressed or not."""

    position: int
    start: int
    end: int
    base_offset: int
    last_delta: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_delta

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC

    def describe(self) -> str:
        return f"the batch of offsets {self.base_offset} to {self.last_offset}"

    def row(self, start: int, end: int) -> tuple[int, ...]:
        """The batch table's row, its records being at [start, end) of the buffer."""
        log_append = 1 if self.attributes & _LOG_APPEND_TIME else 0
        timestamp = self.max_timestamp if log_append else self.base_timestamp
        return (
            start,
            end,
            self.count,
            self.base_offset,
            self.last_delta,
            timestamp,
            log_append,
            self.leader_epoch,
            0,
        )


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
        self._at = 0
        self._fetch_offset = fetch_offset
        self._least_offset = 0
        self._read_committed = aborted is not None
        self._aborted = sorted(aborted or (), key=_first_offset, reverse=True)
        self._open: set[int] = set()
        self._max_decompressed_bytes = max_decompressed_bytes

    def run(self) -> str | None:
        """Says what is wrong with the first batch that cannot be read, if there is one."""
        try:
            while (batch := self._next()) is not None:
                if not self._skips(batch):
                    self.batches.append(batch)
                self._least_offset = batch.last_offset + 1
                self.next_offset = max(self.next_offset, self._least_offset)
        except BatchError as error:
            return str(error)
        if self._at == 0 and self._data:
            return f"{len(self._data)} bytes came, but no complete batch"
        if self._data and self.next_offset == self._fetch_offset:
            return f"the broker answered with records up to offset {self._least_offset - 1} only"
        return None

    def _next(self) -> Batch | None:
        """The next complete batch, its header checked; None at the end or where the rest is cut off."""
        data, at = self._data, self._at
        left = len(data) - at
        if left <= _MAGIC_AT:
            return None
        if data[at + _MAGIC_AT] != 2:
            raise BatchError(
                f"record format {data[at + _MAGIC_AT]} is not supported (only 2, of Kafka 0.11 and later)"
            )
        length = _LENGTH.unpack_from(data, at + 8)[0]
        if length < _MIN_LENGTH:
            raise BatchError(f"a batch states a length of {length} bytes")
        stop = at + _UNCOUNTED_BYTES + length
        if stop > len(data):
            return None
        header = _HEADER.unpack_from(data, at)
        if crc32c(data[at + _CRC_FROM : stop]) != header[4]:
            raise BatchError("a batch's checksum is wrong")
        batch = Batch(
            position=self.next_offset,
            start=at + _HEADER.size,
            end=stop,
            base_offset=header[0],
            last_delta=header[6],
            leader_epoch=header[2],
            attributes=header[5],
            base_timestamp=header[7],
            max_timestamp=header[8],
            producer_id=header[9],
            count=header[12],
        )
        self._check(batch)
        self._at = stop
        return batch

    def _check(self, batch: Batch) -> None:
        if batch.last_delta < 0 or batch.last_offset > _MAX_OFFSET - 1:
            raise BatchError(f"{batch.describe()} is impossible")
        if batch.base_offset < self._least_offset:
            raise BatchError(f"{batch.describe()} follows offset {self._least_offset - 1}")
        if batch.count < 0:
            raise BatchError(f"{batch.describe()} states {batch.count} records")
        if batch.codec >= len(CODECS):
            raise BatchError(f"{batch.describe()} has the unknown compression codec {batch.codec}")

    def _skips(self, batch: Batch) -> bool:
        """Whether none of its records is to be returned. Keeps account of the aborted transactions."""
        if self._read_committed and batch.producer_id >= 0 and self._skips_transaction(batch):
            return True
        return bool(batch.attributes & _CONTROL) or batch.count == 0 or batch.last_offset < self._fetch_offset

    def _skips_transaction(self, batch: Batch) -> bool:
        while self._aborted and self._aborted[-1][1] <= batch.last_offset:
            self._open.add(self._aborted.pop()[0])
        if batch.attributes & _CONTROL:
            if batch.producer_id in self._open and self._aborts(batch):
                self._open.discard(batch.producer_id)
            return True
        return bool(batch.attributes & _TRANSACTIONAL) and batch.producer_id in self._open

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


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]


Placed = tuple[memoryview, "array[int]", tuple[int, str | None] | None]


def place(data: memoryview, batches: Sequence[Batch], max_decompressed_bytes: int) -> Placed:
    """One buffer with the records of all batches, the table of where they are, and what stopped it.

    Without compression the buffer is `data` itself. What stopped it: the offset to fetch from next, and what
    is wrong there, or None where only the bound of a set was reached.
    """
    if not any(batch.codec for batch in batches):
        return _place_plain(data, batches)
    sections = Sections(min(max_decompressed_bytes, 4 * len(data)))
    table = array("q")
    stopped: tuple[int, str | None] | None = None
    for batch in batches:
        if sections.used >= max_decompressed_bytes:
            stopped = batch.position, None
            break
        try:
            start, end = sections.append(batch.codec, data[batch.start : batch.end], max_decompressed_bytes)
            _check_count(batch, end - start)
        except (CompressionError, BatchError) as error:
            stopped = batch.position, f"{error} (in {batch.describe()})"
            break
        table.extend(batch.row(start, end))
    return memoryview(sections.finish()), table, stopped


def _place_plain(data: memoryview, batches: Sequence[Batch]) -> Placed:
    table = array("q")
    for batch in batches:
        try:
            _check_count(batch, batch.end - batch.start)
        except BatchError as error:
            return data, table, (batch.position, f"{error} (in {batch.describe()})")
        table.extend(batch.row(batch.start, batch.end))
    return data, table, None


def _check_count(batch: Batch, size: int) -> None:
    """Before anything is allocated for that many records."""
    if batch.count * MIN_RECORD_BYTES > size:
        raise BatchError(f"{batch.count} records cannot be in {size} bytes")
