# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Record batches (magic 2) to index columns, and from these to record objects. Compiled to C by Cython.

Laws
1. Bytes are hostile. Every length is compared with the bytes that are left before it is used, and every loop
   is bounded by them. Bad bytes end the index at the batch before; nothing is raised or read outside.
2. One compiled call indexes a record set, without the GIL. No Python object is made for a record there.
3. Both forms (compiled, and with INSTRIDE_PURE=1 plain Python) give the same answers; a test compares them.

How to read it: `cython.pointer` types hold memoryviews where this is not compiled, so code for both forms
only ever indexes them. Sums that may overflow go through `_wrapping_sum`. Literals stay below 2**31, since
larger ones would be Python objects. `decoder.pyi` is what users and type checkers see.
"""

from __future__ import annotations

import os
import warnings

from instride.records import TopicPartition

NOT_COMPILED = (
    "instride.wire.decoder is not compiled here. Install instride from a wheel (pip install instride) or, in"
    " a checkout, run: python setup.py build_ext --inplace. INSTRIDE_PURE=1 in the environment allows the slow"
    " form, for debugging (it needs the package cython)."
)

try:
    import cython
except ImportError as error:
    raise ImportError(NOT_COMPILED) from error

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy
elif os.environ.get("INSTRIDE_PURE") == "1":
    warnings.warn("instride.wire.decoder runs uncompiled (INSTRIDE_PURE=1): slow", RuntimeWarning, stacklevel=2)
else:
    raise ImportError(NOT_COMPILED)

__all__ = ["COMPILED", "ConsumerRecord", "RecordColumns", "index_batches"]

COMPILED: bool = cython.compiled

Octets = cython.typedef(cython.pointer[cython.const[cython.uchar]])
Longs = cython.typedef(cython.p_longlong)
Ints = cython.typedef(cython.p_int)

# A row of the batch table, as `record_set` fills it in. FIRST_ROW is filled in by `index_batches`.
_START = cython.declare(cython.int, 0)
_END = cython.declare(cython.int, 1)
_COUNT = cython.declare(cython.int, 2)
_BASE_OFFSET = cython.declare(cython.int, 3)
_LAST_DELTA = cython.declare(cython.int, 4)
_TIMESTAMP = cython.declare(cython.int, 5)
_LOG_APPEND = cython.declare(cython.int, 6)
_LEADER_EPOCH = cython.declare(cython.int, 7)
_FIRST_ROW = cython.declare(cython.int, 8)
_WIDTH = cython.declare(cython.int, 9)
BATCH_WIDTH = _WIDTH

# Of a record's row: five ints (where the key starts, its length or -1, the same of the value, where the
# headers start or -1 where there are none) and two longs in columns of their own (offset, timestamp).
_ROW_INTS = cython.declare(cython.int, 5)
_ROW_BYTES = cython.declare(cython.int, 5 * 4 + 2 * 8)
# length, attributes, timestamp, offset, key length, value length, header count: one byte each.
MIN_RECORD_BYTES = 7

_LARGEST_COLUMN = cython.declare(cython.longlong, 2147483647)

_BAD_VARINT = cython.declare(cython.int, -1)
_BAD_LENGTH = cython.declare(cython.int, -2)
_BAD_OFFSET = cython.declare(cython.int, -3)
_BAD_FIELD = cython.declare(cython.int, -4)
_BAD_HEADERS = cython.declare(cython.int, -5)
_BAD_END = cython.declare(cython.int, -6)
_TRAILING = cython.declare(cython.int, -7)
_FAILURES = {
    -1: "a number is cut off or too long",
    -2: "a record's length is over the bytes left in its batch, or too small",
    -3: "record offsets do not rise, or leave their batch",
    -4: "a key or value is longer than its record",
    -5: "a header is longer than its record",
    -6: "a record is longer than its fields",
    -7: "bytes are left after the last record",
}


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _wrapping_sum(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """As Java adds: producers make timestamp deltas by a subtraction that may overflow."""
    if cython.compiled:
        return cython.cast(cython.longlong, cython.cast(cython.ulonglong, a) + cython.cast(cython.ulonglong, b))
    else:  # noqa: RET505 - Cython drops this branch, whose literals need the GIL
        return (a + b + (1 << 63)) % (1 << 64) - (1 << 63)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _zigzag(
    octets: Octets, at: cython.Py_ssize_t, end: cython.Py_ssize_t, bits: cython.int
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """A zigzag varint of at most `bits` (32 or 64) and the position after it, which is -1 for bad bytes."""
    value: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.uchar
    while at < end and shift < bits:
        byte = octets[at]
        at += 1
        value |= cython.cast(cython.ulonglong, byte & 127) << shift
        if byte < 128:
            if shift + 7 > bits and (byte >> (bits - shift)) != 0:
                return 0, -1
            return cython.cast(cython.longlong, value >> 1) ^ -cython.cast(cython.longlong, value & 1), at
        shift += 7
    return 0, -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _field(octets: Octets, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The length of nullable bytes (-1: null) and where they start, which is -1 for bad bytes."""
    length: cython.longlong
    length, at = _zigzag(octets, at, end, 32)
    if at < 0 or length < -1 or length > end - at:
        return 0, -1
    return length, at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _end_of_headers(
    octets: Octets, at: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.longlong
) -> cython.Py_ssize_t:
    """The position after `count` headers, or -1. Each takes two bytes or more, so bad counts end early."""
    length: cython.longlong
    while count > 0:
        length, at = _field(octets, at, end)
        if at < 0 or length < 0:
            return -1
        length, at = _field(octets, at + length, end)
        if at < 0:
            return -1
        if length > 0:
            at += length
        count -= 1
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _index_record(
    octets: Octets,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    batch: Longs,
    b: cython.Py_ssize_t,
    longs: Longs,
    ints: Ints,
    row: cython.Py_ssize_t,
    capacity: cython.Py_ssize_t,
    last_delta: cython.longlong,
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """Fills one row. Returns the record's offset delta and the position after it, or a failure below 0."""
    number: cython.longlong
    delta: cython.longlong
    cell: cython.Py_ssize_t = row * _ROW_INTS
    number, at = _zigzag(octets, at, end, 32)
    if at < 0:
        return 0, _BAD_VARINT
    if number < 6 or number > end - at:
        return 0, _BAD_LENGTH
    end = at + number
    number, at = _zigzag(octets, at + 1, end, 64)  # one byte of attributes is unused
    if at < 0:
        return 0, _BAD_VARINT
    delta, at = _zigzag(octets, at, end, 32)
    if at < 0:
        return 0, _BAD_VARINT
    if delta <= last_delta or delta > batch[b + _LAST_DELTA]:
        return 0, _BAD_OFFSET
    longs[row] = batch[b + _BASE_OFFSET] + delta
    if batch[b + _LOG_APPEND] != 0:
        number = 0
    longs[capacity + row] = _wrapping_sum(batch[b + _TIMESTAMP], number)
    number, at = _field(octets, at, end)
    if at < 0:
        return 0, _BAD_FIELD
    ints[cell] = at
    ints[cell + 1] = number
    if number > 0:
        at += number
    number, at = _field(octets, at, end)
    if at < 0:
        return 0, _BAD_FIELD
    ints[cell + 2] = at
    ints[cell + 3] = number
    if number > 0:
        at += number
    ints[cell + 4] = at
    number, at = _zigzag(octets, at, end, 32)
    if at < 0 or number < 0:
        return 0, _BAD_HEADERS
    if number == 0:
        ints[cell + 4] = -1
    else:
        at = _end_of_headers(octets, at, end, number)
        if at < 0:
            return 0, _BAD_HEADERS
    if at != end:
        return 0, _BAD_END
    return delta, at


@cython.final
@cython.no_gc
@cython.freelist(1024)
@cython.cclass
class ConsumerRecord:
    """A record as a broker gave it, stamped with the assignment it was returned in. See `decoder.pyi`."""

    topic = cython.declare(str, visibility="readonly")
    partition = cython.declare(cython.int, visibility="readonly")
    offset = cython.declare(cython.longlong, visibility="readonly")
    timestamp = cython.declare(cython.longlong, visibility="readonly")
    timestamp_type = cython.declare(cython.int, visibility="readonly")
    key = cython.declare(bytes, visibility="readonly")
    value = cython.declare(bytes, visibility="readonly")
    headers = cython.declare(tuple, visibility="readonly")
    leader_epoch = cython.declare(cython.int, visibility="readonly")
    epoch = cython.declare(cython.longlong, visibility="readonly")
    seek_number = cython.declare(cython.longlong, visibility="readonly")
    topic_partition = cython.declare(object, visibility="readonly")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple = (),
        leader_epoch: int = -1,
        epoch: int = 0,
        seek_number: int = 0,
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch
        self.epoch = epoch
        self.seek_number = seek_number
        self.topic_partition = TopicPartition(topic, partition)

    def _content(self) -> tuple:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
            self.epoch,
            self.seek_number,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset, self.epoch, self.seek_number))

    def __reduce__(self) -> tuple:
        return _rebuild_record, self._content()

    def __repr__(self) -> str:
        """Sizes, never contents: records end up in logs."""
        key = "None" if self.key is None else f"<{len(self.key)} bytes>"
        value = "None" if self.value is None else f"<{len(self.value)} bytes>"
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={key}, value={value}, headers={len(self.headers)}, "
            f"epoch={self.epoch}, seek_number={self.seek_number})"
        )


_OPTIONAL = ("timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch", "epoch", "seek_number")


def _rebuild_record(topic: str, partition: int, offset: int, *rest: object) -> ConsumerRecord:
    """What pickle calls."""
    return ConsumerRecord(topic, partition, offset, **dict(zip(_OPTIONAL, rest, strict=True)))


@cython.final
@cython.cclass
class RecordColumns:
    """The index of a record set: where each record's parts stand in `base`. Immutable once it is made."""

    first = cython.declare(cython.Py_ssize_t, visibility="readonly")
    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    failed_batch = cython.declare(cython.Py_ssize_t, visibility="readonly")
    failure = cython.declare(str, visibility="readonly")
    _base: cython.const[cython.uchar][::1]
    _octets: Octets
    _table: cython.longlong[::1]
    _batches: cython.Py_ssize_t
    _capacity: cython.Py_ssize_t
    _longs_owner: object
    _ints_owner: object
    _longs: Longs
    _ints: Ints

    def __init__(self, base: object, table: object, capacity: int):
        self._base = base
        self._table = table
        self._batches = len(table) // BATCH_WIDTH
        self._capacity = capacity
        self.first = 0
        self.rows = 0
        self.failed_batch = -1
        self.failure = ""
        if cython.compiled:
            # Not zeroed: every row that is read was written, and zeroing costs as much as indexing.
            self._longs_owner = PyBytes_FromStringAndSize(cython.NULL, capacity * 16)
            self._ints_owner = PyBytes_FromStringAndSize(cython.NULL, capacity * 20)
            self._longs = cython.cast(cython.p_longlong, PyBytes_AS_STRING(self._longs_owner))
            self._ints = cython.cast(cython.p_int, PyBytes_AS_STRING(self._ints_owner))
            self._octets = cython.address(self._base[0]) if self._base.shape[0] > 0 else cython.NULL
        else:
            self._longs_owner = bytearray(capacity * 16)
            self._ints_owner = bytearray(capacity * 20)
            self._longs = memoryview(self._longs_owner).cast("q")
            self._ints = memoryview(self._ints_owner).cast("i")
            self._octets = self._base

    @cython.cfunc
    def _run(self, fetch_offset: cython.longlong) -> object:
        batch: Longs
        octets: Octets = self._octets
        longs: Longs = self._longs
        ints: Ints = self._ints
        b: cython.Py_ssize_t
        n: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        row: cython.Py_ssize_t = 0
        capacity: cython.Py_ssize_t = self._capacity
        left: cython.longlong
        delta: cython.longlong
        first: cython.Py_ssize_t = 0
        if self._batches == 0:
            return None
        batch = cython.address(self._table[0]) if cython.compiled else self._table
        with cython.nogil:
            for n in range(self._batches):
                b = n * _WIDTH
                batch[b + _FIRST_ROW] = row
                at = batch[b + _START]
                end = batch[b + _END]
                delta = -1
                left = batch[b + _COUNT]
                while left > 0:
                    delta, at = _index_record(octets, at, end, batch, b, longs, ints, row, capacity, delta)
                    if at < 0:
                        break
                    row += 1
                    left -= 1
                if at >= 0 and at != end:
                    at = _TRAILING
                if at < 0:
                    row = batch[b + _FIRST_ROW]
                    self.failed_batch = n
                    break
            while first < row and longs[first] < fetch_offset:
                first += 1
        if at < 0:
            self._batches = self.failed_batch
            self.failure = _FAILURES[at]
        self.first = first
        self.rows = row
        return None

    @cython.cfunc
    def _batch_of(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The table position of the last batch that starts at or before this row."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self._batches
        middle: cython.Py_ssize_t
        while high - low > 1:
            middle = (low + high) // 2
            if self._table[middle * _WIDTH + _FIRST_ROW] <= row:
                low = middle
            else:
                high = middle
        return low

    @cython.cfunc
    def _bytes(self, at: cython.Py_ssize_t, length: cython.Py_ssize_t) -> object:
        if length < 0:
            return None
        if cython.compiled:
            return PyBytes_FromStringAndSize(cython.cast(cython.p_char, self._octets + at), length)
        return bytes(self._base[at : at + length])

    @cython.cfunc
    def _headers(self, at: cython.Py_ssize_t) -> tuple:
        """The headers that start there; `index_batches` has checked them."""
        end: cython.Py_ssize_t = self._base.shape[0]
        count: cython.longlong
        length: cython.longlong
        out: list = []
        name: str
        count, at = _zigzag(self._octets, at, end, 32)
        while count > 0:
            length, at = _field(self._octets, at, end)
            name = self._bytes(at, length).decode("utf-8", "replace")
            length, at = _field(self._octets, at + length, end)
            out.append((name, self._bytes(at, length)))
            if length > 0:
                at += length
            count -= 1
        return tuple(out)

    @cython.cfunc
    def _check(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> object:
        if start < 0 or stop > self.rows or start > stop:
            raise IndexError(f"rows {start} to {stop} of {self.rows}")
        return None

    def offset(self, row: cython.Py_ssize_t) -> int:
        self._check(row, row + 1)
        return self._longs[row]

    def leader_epoch(self, row: cython.Py_ssize_t) -> int:
        self._check(row, row + 1)
        return self._table[self._batch_of(row) * _WIDTH + _LEADER_EPOCH]

    def key(self, row: cython.Py_ssize_t) -> bytes | None:
        self._check(row, row + 1)
        return self._bytes(self._ints[row * _ROW_INTS], self._ints[row * _ROW_INTS + 1])

    def nbytes(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> int:
        """Bytes from the first row's key to the end of the last row's value, and the index's own."""
        self._check(start, stop)
        if start == stop:
            return 0
        last: cython.Py_ssize_t = (stop - 1) * _ROW_INTS
        size: cython.Py_ssize_t = self._ints[last + 2] - self._ints[start * _ROW_INTS]
        if self._ints[last + 3] > 0:
            size += self._ints[last + 3]
        return size + (stop - start) * _ROW_BYTES

    def records(
        self,
        topic_partition: object,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        epoch: cython.longlong,
        seek_number: cython.longlong,
    ) -> list:
        """Record objects of the rows [start, stop)."""
        out: list = []
        record: ConsumerRecord
        topic: str = topic_partition[0]
        partition: cython.int = topic_partition[1]
        row: cython.Py_ssize_t
        cell: cython.Py_ssize_t
        n: cython.Py_ssize_t
        b: cython.Py_ssize_t
        self._check(start, stop)
        n = self._batch_of(start)
        b = n * _WIDTH
        for row in range(start, stop):
            while n + 1 < self._batches and self._table[b + _WIDTH + _FIRST_ROW] <= row:
                n += 1
                b += _WIDTH
            cell = row * _ROW_INTS
            record = ConsumerRecord.__new__(ConsumerRecord)
            record.topic = topic
            record.partition = partition
            record.topic_partition = topic_partition
            record.offset = self._longs[row]
            record.timestamp = self._longs[self._capacity + row]
            record.timestamp_type = self._table[b + _LOG_APPEND]
            record.leader_epoch = self._table[b + _LEADER_EPOCH]
            record.key = self._bytes(self._ints[cell], self._ints[cell + 1])
            record.value = self._bytes(self._ints[cell + 2], self._ints[cell + 3])
            record.headers = () if self._ints[cell + 4] < 0 else self._headers(self._ints[cell + 4])
            record.epoch = epoch
            record.seek_number = seek_number
            out.append(record)
        return out

    def longs(self, column: cython.Py_ssize_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> memoryview:
        """Offsets (column 0) or timestamps (column 1) of the rows [start, stop), 8 bytes each, not copied."""
        self._check(start, stop)
        base: cython.Py_ssize_t = 0 if column == 0 else self._capacity
        return memoryview(self._longs_owner)[(base + start) * 8 : (base + stop) * 8]

    def timestamp_types(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytearray:
        """The timestamp type of the rows [start, stop), as 4-byte ints."""
        out: bytearray = bytearray((stop - start) * 4)
        types: cython.int[::1] = memoryview(out).cast("i")
        row: cython.Py_ssize_t
        n: cython.Py_ssize_t
        self._check(start, stop)
        n = self._batch_of(start)
        for row in range(start, stop):
            while n + 1 < self._batches and self._table[(n + 1) * _WIDTH + _FIRST_ROW] <= row:
                n += 1
            types[row - start] = self._table[n * _WIDTH + _LOG_APPEND]
        return out

    @cython.cfunc
    def _copy_field(
        self,
        field: cython.Py_ssize_t,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        offsets: cython.int[::1],
        data: cython.uchar[::1],
    ) -> object:
        octets: Octets = self._octets
        ints: Ints = self._ints
        cell: cython.Py_ssize_t = start * _ROW_INTS + field * 2
        at: cython.Py_ssize_t = 0
        length: cython.Py_ssize_t
        n: cython.Py_ssize_t
        with cython.nogil:
            for n in range(stop - start):
                offsets[n] = at
                length = ints[cell + 1]
                if length > 0:
                    if cython.compiled:
                        memcpy(cython.address(data[at]), octets + ints[cell], length)
                    else:
                        data[at : at + length] = octets[ints[cell] : ints[cell] + length]
                    at += length
                cell += _ROW_INTS
            offsets[stop - start] = at
        return None

    def binary(self, field: cython.Py_ssize_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> tuple:
        """Keys (field 0) or values (field 1) of the rows [start, stop) as Arrow lays them out: 4-byte
        offsets, the bytes, and a bitmap of what is not null (None where nothing is null).
        """
        ints: Ints = self._ints
        cell: cython.Py_ssize_t = start * _ROW_INTS + field * 2 + 1
        total: cython.longlong = 0
        row: cython.Py_ssize_t
        validity: bytearray | None = None
        self._check(start, stop)
        for row in range(stop - start):
            if ints[cell] >= 0:
                total += ints[cell]
            else:
                if validity is None:
                    validity = bytearray(b"\xff") * ((stop - start + 7) // 8)
                validity[row // 8] &= 255 - (1 << (row % 8))
            cell += _ROW_INTS
        if total > _LARGEST_COLUMN:
            raise OverflowError("over 2 GiB of keys or values do not fit into one Arrow column; split the chunk")
        offsets: bytearray = bytearray((stop - start + 1) * 4)
        data: bytearray = bytearray(total)
        self._copy_field(
            field, start, stop, memoryview(offsets).cast("i"), data if cython.compiled else memoryview(data)
        )
        return offsets, data, validity

    def headers(self, row: cython.Py_ssize_t) -> tuple:
        """The headers of one row, () where it has none."""
        self._check(row, row + 1)
        at: cython.Py_ssize_t = self._ints[row * _ROW_INTS + 4]
        return () if at < 0 else self._headers(at)

    def have_headers(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bool:
        """Whether any of the rows [start, stop) has headers."""
        row: cython.Py_ssize_t
        self._check(start, stop)
        for row in range(start, stop):
            if self._ints[row * _ROW_INTS + 4] >= 0:
                return True
        return False


def index_batches(base: object, table: object, fetch_offset: cython.longlong) -> RecordColumns:
    """Indexes the records of the batches in `table` (array of "q", BATCH_WIDTH numbers a batch) over `base`.

    Each START, END lies within `base` (under 2 GiB) and each COUNT times MIN_RECORD_BYTES fits between them.
    """
    capacity: cython.longlong = 0
    size: cython.longlong = len(base)
    n: cython.Py_ssize_t
    rows: cython.longlong[::1] = table
    if len(table) % BATCH_WIDTH != 0 or size > _LARGEST_COLUMN:
        raise ValueError("a broken batch table, or over 2 GiB in one record set")
    for n in range(len(table) // BATCH_WIDTH):
        start: cython.longlong = rows[n * _WIDTH + _START]
        end: cython.longlong = rows[n * _WIDTH + _END]
        count: cython.longlong = rows[n * _WIDTH + _COUNT]
        if start < 0 or end < start or end > size or count < 0 or count > (end - start) // MIN_RECORD_BYTES:
            raise ValueError("a batch lies outside its buffer")
        capacity += count
    columns: RecordColumns = RecordColumns(base, table, capacity)
    columns._run(fetch_offset)
    return columns
