# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The headers of record batches (magic 2), checked one by one. Compiled to C by Cython.

Laws
1. Nothing of a batch is believed before its checksum holds, but its length and format. (The checksum does not
   cover base offset, length and leader epoch; so offsets must rise from batch to batch, and lie between what was asked
   for and the end of the log. An epoch that goes back, or is later than the leader's own, is taken for none.)
2. A batch that is cut off ends the walk; one that is bad raises `BatchError`. Nothing is read outside the data.
3. Small batches are many: those that are read like the one before them, by the same codec, are gone over in one call
   (`run`). What it gives is what `next` gives one by one; before anything that wants a decision it stops.
4. Which batches are skipped (aborted transactions, control batches) `batch_filter` decides. What becomes of a bad one:
   `record_set`, law 1, and `_core/network/fetcher.py`, law 4.

`batch_headers.pyi` is what type checkers see.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from instride._wire.compiled import require_compiled
from instride._wire.record_index import MIN_RECORD_BYTES

try:
    import cython
except ImportError:
    require_compiled(__name__, compiled=False)
    raise
if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_READ
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory

__all__ = [
    "COMPILED",
    "INDEX_BYTES",
    "Batch",
    "BatchError",
    "BatchReader",
    "OverlapError",
    "end_of_batches",
    "table_of",
]

COMPILED: bool = cython.compiled
require_compiled(__name__, compiled=COMPILED)

Octets = cython.typedef(cython.pointer[cython.const[cython.uchar]])

# Where the fields of a header begin, beside the base offset at 0, the producer epoch and the base sequence.
_LENGTH = cython.declare(cython.int, 8)
_LEADER_EPOCH = cython.declare(cython.int, 12)
_MAGIC = cython.declare(cython.int, 16)
_CRC = cython.declare(cython.int, 17)
_ATTRIBUTES = cython.declare(cython.int, 21)
_LAST_DELTA = cython.declare(cython.int, 23)
_BASE_TIMESTAMP = cython.declare(cython.int, 27)
_MAX_TIMESTAMP = cython.declare(cython.int, 35)
_PRODUCER_ID = cython.declare(cython.int, 43)
_COUNT = cython.declare(cython.int, 57)
_RECORDS = cython.declare(cython.int, 61)
_UNCOUNTED = cython.declare(cython.int, 12)  # base offset and length: what the length does not count

_CODEC = cython.declare(cython.int, 7)
_LOG_APPEND_TIME = cython.declare(cython.int, 8)
_TRANSACTIONAL = cython.declare(cython.int, 16)
_CONTROL = cython.declare(cython.int, 32)
_LAST_CODEC = cython.declare(cython.int, 4)

_SHORT = cython.declare(cython.Py_ssize_t, 16777216)

# So high that no sum of it overflows.
_HIGHEST = cython.declare(cython.longlong, (1 << 62) - 1)

_LEAST_RECORD = cython.declare(cython.longlong, MIN_RECORD_BYTES)
_INDEX_BYTES = cython.declare(cython.longlong, 36)
INDEX_BYTES = _INDEX_BYTES

_ROW = struct.Struct("=9q")
_ROW_BYTES = cython.declare(cython.Py_ssize_t, 72)


class BatchError(ValueError):
    """A batch that cannot be read. Never leaves `wire`: `record_set` makes it a CorruptRecordError."""


class OverlapError(BatchError):
    """The offsets of two batches do not rise: one of them is wrong, nobody knows which."""


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _integer(octets: Octets, at: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
    """A big-endian number with a sign."""
    value: cython.longlong = octets[at]
    n: cython.int
    if value > 127:
        value -= 256
    for n in range(1, size):
        value = value * 256 + octets[at + n]
    return value


@cython.final
@cython.no_gc
@cython.freelist(256)
@cython.cclass
class Batch:
    """A checked header. See `batch_headers.pyi`."""

    position = cython.declare(cython.longlong, visibility="readonly")
    start = cython.declare(cython.Py_ssize_t, visibility="readonly")
    end = cython.declare(cython.Py_ssize_t, visibility="readonly")
    base_offset = cython.declare(cython.longlong, visibility="readonly")
    last_offset = cython.declare(cython.longlong, visibility="readonly")
    leader_epoch = cython.declare(cython.longlong, visibility="readonly")
    codec = cython.declare(cython.int, visibility="readonly")
    transactional = cython.declare(cython.bint, visibility="readonly")
    control = cython.declare(cython.bint, visibility="readonly")
    producer_id = cython.declare(cython.longlong, visibility="readonly")
    count = cython.declare(cython.longlong, visibility="readonly")
    _log_append: cython.longlong
    _timestamp: cython.longlong

    def describe(self) -> str:
        return f"the batch of offsets {self.base_offset} to {self.last_offset}"

    def row(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bytes:
        """The batch's row in the table that `record_index` reads, its records being at [start, end) there."""
        if cython.compiled:
            cells = cython.declare(cython.longlong[9])
            self._fill(cells, start, end)
            return PyBytes_FromStringAndSize(cython.cast(cython.p_char, cells), _ROW_BYTES)
        else:  # noqa: RET505 - dropped by Cython
            last_delta = self.last_offset - self.base_offset
            times = (self._timestamp, self._log_append)
            return _ROW.pack(start, end, self.count, self.base_offset, last_delta, *times, self.leader_epoch, 0)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _fill(self, cells: cython.p_longlong, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
        cells[0] = start
        cells[1] = end
        cells[2] = self.count
        cells[3] = self.base_offset
        cells[4] = self.last_offset - self.base_offset
        cells[5] = self._timestamp
        cells[6] = self._log_append
        cells[7] = self.leader_epoch
        cells[8] = 0


def table_of(batches: list, shift: cython.Py_ssize_t) -> bytearray:
    """See `batch_headers.pyi`."""
    batch: Batch
    if cython.compiled:
        table: bytearray = bytearray(len(batches) * _ROW_BYTES)
        cells: cython.p_longlong = cython.cast(cython.p_longlong, PyByteArray_AS_STRING(table))
        for batch in batches:
            batch._fill(cells, batch.start - shift, batch.end - shift)
            cells += 9
        return table
    else:  # noqa: RET505 - dropped by Cython
        return bytearray().join([batch.row(batch.start - shift, batch.end - shift) for batch in batches])


@cython.final
@cython.cclass
class BatchReader:
    """Walks once over the batches of `data`."""

    at = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _data: object
    _view: cython.const[cython.uchar][::1]
    _octets: Octets
    _size: cython.Py_ssize_t
    _least_offset: cython.longlong
    _fetch_offset: cython.longlong
    _end: cython.longlong
    _least_epoch: cython.longlong
    _most_epoch: cython.longlong

    def __init__(
        self,
        data: object,
        fetch_offset: cython.longlong,
        end: cython.longlong,
        least_epoch: cython.longlong = -1,
        most_epoch: cython.longlong = -1,
    ):
        self._data = data
        self._fetch_offset = fetch_offset
        self._end = end
        self._least_epoch = least_epoch
        self._most_epoch = most_epoch
        self._view = data
        self._size = len(data)
        self._least_offset = 0
        self.at = 0
        if cython.compiled:
            self._octets = cython.address(self._view[0]) if self._size > 0 else cython.NULL
        else:
            self._octets = self._view

    def next(self, position: cython.longlong) -> Batch | None:
        """The next complete batch, or None at the end or where the rest is cut off. Raises BatchError."""
        return self._next(position)

    def run(
        self,
        ahead: object,
        found: list,
        count: cython.longlong,
        limit: cython.longlong,
        most: cython.longlong,
        committed: cython.bint,
        scale: cython.longlong,
    ) -> tuple:
        """Law 3; see `batch_headers.pyi`."""
        records: cython.Py_ssize_t
        batch: Batch = found[0]
        after: Batch
        begin: cython.longlong = batch.start
        codec: cython.int = batch.codec
        batch = ahead
        while batch is not None:
            if batch.codec != codec or batch.control or (committed and batch.producer_id >= 0):
                break
            records = batch.end - batch.start
            if records == 0 or (not codec and batch.count * _LEAST_RECORD > records):
                break
            if batch.count * _INDEX_BYTES > most:
                break
            if (batch.end - begin) * scale + (count + batch.count) * _INDEX_BYTES > limit:
                break
            try:
                after = self._next(batch.last_offset + 1)
            except BatchError:
                break  # `next` meets it again
            found.append(batch)
            count += batch.count
            batch = after
        return batch, count

    @cython.cfunc
    def _next(self, position: cython.longlong) -> Batch:
        octets: Octets = self._octets
        at: cython.Py_ssize_t = self.at
        left: cython.Py_ssize_t = self._size - at
        # The magic stands at this place in all formats, so that old ones are told from damage.
        if left <= _MAGIC:
            return None
        if octets[at + _MAGIC] != 2:
            raise BatchError(f"record format {octets[at + _MAGIC]} is not supported (only 2, of Kafka 0.11 on)")
        size: cython.longlong = _integer(octets, at + _LENGTH, 4) + _UNCOUNTED
        if size < _RECORDS:
            raise BatchError(f"a batch states a length of {size - _UNCOUNTED} bytes")
        if size > left:
            return None
        self._check_sum(at, size)
        batch: Batch = self._read(at, size)
        batch.position = position
        self._check(batch)
        self._least_offset = batch.last_offset + 1
        self.at = at + size
        return batch

    @cython.cfunc
    def _check_sum(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> object:
        stated: cython.longlong = _integer(self._octets, at + _CRC, 4)
        if stated < 0:
            stated += cython.cast(cython.longlong, 1) << 32
        covered: object
        if cython.compiled:  # a view by a slice takes twice as long, and small batches are many
            place: cython.p_char = cython.cast(cython.p_char, self._octets + at + _ATTRIBUTES)
            covered = PyMemoryView_FromMemory(place, size - _ATTRIBUTES, PyBUF_READ)
        else:
            covered = self._data[at + _ATTRIBUTES : at + size]
        # Whoever gives up the GIL may get it back late: only what takes long does so.
        if crc32c(covered, 0, 0 if size <= _SHORT else -1) != stated:
            raise BatchError("a batch's checksum is wrong")
        return None

    @cython.cfunc
    def _read(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> Batch:
        octets: Octets = self._octets
        batch: Batch = Batch.__new__(Batch)
        flags: cython.longlong = _integer(octets, at + _ATTRIBUTES, 2)
        batch.start = at + _RECORDS
        batch.end = at + size
        batch.base_offset = _integer(octets, at, 8)
        batch.leader_epoch = self._believed(_integer(octets, at + _LEADER_EPOCH, 4))
        batch.codec = flags & _CODEC
        batch.transactional = (flags & _TRANSACTIONAL) != 0
        batch.control = (flags & _CONTROL) != 0
        batch._log_append = 1 if flags & _LOG_APPEND_TIME else 0
        # With log append time (KIP-32) the largest timestamp is that of every record, whatever its delta says.
        batch._timestamp = _integer(octets, at + (_MAX_TIMESTAMP if batch._log_append else _BASE_TIMESTAMP), 8)
        batch.producer_id = _integer(octets, at + _PRODUCER_ID, 8)
        batch.count = _integer(octets, at + _COUNT, 4)
        batch.last_offset = _integer(octets, at + _LAST_DELTA, 4)  # `_check` adds the base, once that is safe
        return batch

    @cython.cfunc
    @cython.exceptval(check=False)
    def _believed(self, epoch: cython.longlong) -> cython.longlong:
        """Law 1. With a wrong one, a position would be taken for one that was cut off."""
        if self._most_epoch < 0:
            return epoch
        if epoch < self._least_epoch or epoch > self._most_epoch:
            return -1
        self._least_epoch = epoch
        return epoch

    @cython.cfunc
    def _check(self, batch: Batch) -> object:
        """Completes `last_offset`, and compares what the header says with itself and with the batch before."""
        highest: cython.longlong = (cython.cast(cython.longlong, 1) << 62) - 1
        if batch.last_offset < 0 or batch.base_offset < 0 or batch.base_offset > highest:
            raise BatchError(f"a batch claims the offset {batch.base_offset} and {batch.last_offset} more")
        batch.last_offset += batch.base_offset
        if batch.base_offset < self._least_offset:
            raise OverlapError(f"{batch.describe()} comes after offset {self._least_offset - 1}")
        if batch.last_offset < self._fetch_offset:
            raise BatchError(f"{batch.describe()} lies before the requested offset, {self._fetch_offset}")
        # A broker may note the log's end just before it reads: then what was written in between follows without a gap.
        if self._end >= 0 and batch.last_offset >= self._end and batch.base_offset > batch.position:
            raise BatchError(f"{batch.describe()} reaches beyond the end of the log, {self._end}")
        if batch.count < 0:
            raise BatchError(f"{batch.describe()} states {batch.count} records")
        if batch.codec > _LAST_CODEC:
            raise BatchError(f"{batch.describe()} has the unknown compression codec {batch.codec}")
        return None


def end_of_batches(data: object, fetch_offset: cython.longlong) -> int:
    """See `batch_headers.pyi`."""
    view: cython.const[cython.uchar][::1] = data
    size: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    end: cython.longlong = fetch_offset
    octets: Octets = cython.NULL if cython.compiled else view
    if cython.compiled and size > 0:
        octets = cython.address(view[0])
    while size - at >= _RECORDS:
        length: cython.longlong = _integer(octets, at + _LENGTH, 4) + _UNCOUNTED
        if length > size - at:
            break
        base: cython.longlong = _integer(octets, at, 8)
        delta: cython.longlong = _integer(octets, at + _LAST_DELTA, 4)
        if octets[at + _MAGIC] != 2 or length < _RECORDS or base < 0 or base > _HIGHEST or delta < 0:
            return fetch_offset
        if base + delta < end:
            return fetch_offset
        end = base + delta + 1
        at += length
    return end
