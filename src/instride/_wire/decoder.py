# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""From the index of a record set (`record_index`) to record objects and columns. Compiled to C by Cython.

Laws
1. The index has been proven by `record_index`: what it points at lies within its buffer. Rows are checked here.
2. A large value is in memory of its own (`own_large_values`); all records of its row share that.
3. A record object is made in one step, without the interpreter; it costs little more than its bytes objects. To that
   end it takes no part in garbage collection: a deserialized value that refers to its own record is never freed.

`decoder.pyi` is what users and type checkers see.
"""

from __future__ import annotations

from struct import Struct
from types import GenericAlias

from instride._topic_partition import TopicPartition
from instride._wire import record_index
from instride._wire.compiled import require_compiled
from instride._wire.record_index import BATCH_WIDTH, FAILURES, header_bytes, header_columns, index_records, read_headers

try:
    import cython
except ImportError:
    require_compiled(__name__, compiled=False)
    raise
if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy

__all__ = ["COMPILED", "ConsumerRecord", "RecordColumns", "index_batches", "keep_gil", "replaced"]

COMPILED: bool = cython.compiled
require_compiled(__name__, compiled=COMPILED)

Octets = cython.typedef(cython.pointer[cython.const[cython.uchar]])
Longs = cython.typedef(cython.p_longlong)
Ints = cython.typedef(cython.p_int)

# Of a row of the batch table, and of a record's row: see `record_index`.
_LOG_APPEND = cython.declare(cython.int, 6)
_LEADER_EPOCH = cython.declare(cython.int, 7)
_FIRST_ROW = cython.declare(cython.int, 8)
_WIDTH = cython.declare(cython.int, 9)
_ROW_INTS = cython.declare(cython.int, 5)
_ROW_BYTES = cython.declare(cython.int, 36)

# A value that is as long as this is moved out of the buffer, in steps of so much.
_LARGE_VALUE = cython.declare(cython.longlong, 1048576)

# Arrow's view of so few bytes holds them itself; of more it holds the first four, and where they stand.
_INLINE = cython.declare(cython.int, 12)
_VIEW_BYTES = cython.declare(cython.Py_ssize_t, 16)
_INLINE_VIEW = Struct("=i12s")
_VIEW = Struct("=i4sii")

_LARGEST_COLUMN = cython.declare(cython.longlong, 2147483647)
# Some milliseconds' work: the longest that the GIL is kept for.
_SHORT = cython.declare(cython.Py_ssize_t, 16777216)
_keeps_gil = cython.declare(cython.bint, False)


def keep_gil(*, keep: bool) -> None:
    """See `decoder.pyi`."""
    global _keeps_gil  # noqa: PLW0603 - of the process, as the GIL is
    _keeps_gil = keep
    record_index.keep_gil(keep=keep)


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
    key = cython.declare(object, visibility="readonly")
    value = cython.declare(object, visibility="readonly")
    # Bytes, until somebody asks for them: a header of two bytes becomes objects of a hundred.
    _headers = cython.declare(object)
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
        key: object = None,
        value: object = None,
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
        self._headers = headers
        self.leader_epoch = leader_epoch
        self.epoch = epoch
        self.seek_number = seek_number
        self.topic_partition = TopicPartition(topic, partition)

    @property
    def headers(self) -> tuple:
        headers: object = self._headers
        if type(headers) is bytes:
            headers = read_headers(memoryview(headers), 0)
            self._headers = headers
        return headers

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

    @classmethod
    def __class_getitem__(cls, item: object) -> object:
        return GenericAlias(cls, item)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        # Without key and value: what a deserializer makes need not be hashable.
        return hash((self.topic, self.partition, self.offset, self.epoch, self.seek_number))

    def __reduce__(self) -> tuple:
        return _rebuild_record, self._content()

    def __repr__(self) -> str:
        """Sizes, never contents: records end up in logs."""
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={_shown(self.key)}, value={_shown(self.value)}, "
            f"headers={len(self.headers)}, "
            f"epoch={self.epoch}, seek_number={self.seek_number})"
        )


def _shown(part: object) -> str:
    if part is None:
        return "None"
    return f"<{len(part)} byte{'s' * (len(part) != 1)}>" if isinstance(part, bytes) else f"<{type(part).__name__}>"


def replaced(record: ConsumerRecord, key: object, value: object) -> ConsumerRecord:
    """The same record with another key and value."""
    out: ConsumerRecord = ConsumerRecord.__new__(ConsumerRecord)
    out.topic = record.topic
    out.partition = record.partition
    out.offset = record.offset
    out.timestamp = record.timestamp
    out.timestamp_type = record.timestamp_type
    out.key = key
    out.value = value
    out._headers = record._headers
    out.leader_epoch = record.leader_epoch
    out.epoch = record.epoch
    out.seek_number = record.seek_number
    out.topic_partition = record.topic_partition
    return out


_OPTIONAL = ("timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch", "epoch", "seek_number")


def _rebuild_record(topic: str, partition: int, offset: int, *rest: object) -> ConsumerRecord:
    """What pickle calls."""
    return ConsumerRecord(topic, partition, offset, **dict(zip(_OPTIONAL, rest, strict=True)))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _copy_rows(
    octets: Octets,
    ints: Ints,
    cell: cython.Py_ssize_t,
    rows: cython.Py_ssize_t,
    offsets: cython.int[::1],
    out: cython.p_char,
) -> cython.void:
    """One field of so many rows, from the one on whose part of the index begins at `cell`."""
    at: cython.Py_ssize_t = 0
    length: cython.Py_ssize_t
    n: cython.Py_ssize_t
    for n in range(rows):
        offsets[n] = at
        length = ints[cell + 1]
        if length > 0:
            if cython.compiled:
                memcpy(out + at, octets + ints[cell], length)
            else:
                out[at : at + length] = octets[ints[cell] : ints[cell] + length]
            at += length
        cell += _ROW_INTS
    offsets[rows] = at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _view_rows(
    octets: Octets,
    ints: Ints,
    cell: cython.Py_ssize_t,
    rows: cython.Py_ssize_t,
    first: cython.int,
    out: cython.p_char,
) -> cython.Py_ssize_t:
    """Arrow's views of one field of so many rows. Returns how many point to buffer 0, which begins at `first`."""
    pointing: cython.Py_ssize_t = 0
    length: cython.int
    at: cython.int
    n: cython.Py_ssize_t
    view: Ints
    for n in range(rows):
        at = ints[cell]
        length = ints[cell + 1] if ints[cell + 1] > 0 else 0
        if length > _INLINE:
            pointing += 1
        if not cython.compiled:
            if length > _INLINE:
                _VIEW.pack_into(out, n * _VIEW_BYTES, length, bytes(octets[at : at + 4]), 0, at - first)
            else:
                _INLINE_VIEW.pack_into(out, n * _VIEW_BYTES, length, bytes(octets[at : at + length]))
        else:
            view = cython.cast(Ints, out + n * _VIEW_BYTES)
            view[0] = length
            view[2] = 0  # the number of the buffer
            if length > _INLINE:
                memcpy(view + 1, octets + at, 4)
                view[3] = at - first
            else:
                # What a short value leaves of its view must be zeros.
                view[1] = 0
                view[3] = 0
                memcpy(view + 1, octets + at, length)
        cell += _ROW_INTS
    return pointing


@cython.final
@cython.cclass
class RecordColumns:
    """The index of a record set: where each record's parts stand in `base`. See `decoder.pyi`."""

    first = cython.declare(cython.Py_ssize_t, visibility="readonly")
    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    failed_batch = cython.declare(cython.Py_ssize_t, visibility="readonly")
    failure = cython.declare(str, visibility="readonly")
    _base: cython.const[cython.uchar][::1]
    # The same, as it was given: who shows a part of it keeps it.
    _buffer: object
    _table: cython.longlong[::1]
    _batches: cython.Py_ssize_t
    _capacity: cython.Py_ssize_t
    _long_columns: object
    _int_columns: object
    # Values that are in memory of their own, by where they stood; None where there are none.
    _large: dict
    _octets: Octets
    _longs: Longs
    _ints: Ints

    def __init__(self, base: object, table: bytearray, fetch_offset: cython.longlong):
        index = index_records(base, table)
        self._base = base
        self._buffer = base
        self._large = None
        self._table = memoryview(table).cast("q")
        self._long_columns, self._int_columns, self._capacity, self.rows, self.failed_batch, code = index
        # Batches behind a bad one have no first row, by which `_batch_of` searches.
        self._batches = len(table) // (8 * BATCH_WIDTH) if self.failed_batch < 0 else self.failed_batch
        self.failure = FAILURES[code] if code else ""
        if cython.compiled:
            self._longs = cython.cast(cython.p_longlong, PyBytes_AS_STRING(self._long_columns))
            self._ints = cython.cast(cython.p_int, PyBytes_AS_STRING(self._int_columns))
            self._octets = cython.address(self._base[0]) if self._base.shape[0] > 0 else cython.NULL
        else:
            self._longs = memoryview(self._long_columns).cast("q")
            self._ints = memoryview(self._int_columns).cast("i")
            self._octets = self._base
        # A broker gives the whole batch in which the fetch offset lies: it may begin with records from before.
        self.first = 0
        while self.first < self.rows and self._longs[self.first] < fetch_offset:
            self.first += 1

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

    def own_large_values(self, release: object) -> None:
        """Moves each large value into memory of its own: see `decoder.pyi`."""
        row: cython.Py_ssize_t
        cell: cython.Py_ssize_t
        for row in range(self.rows):
            cell = row * _ROW_INTS + 2
            if self._ints[cell + 1] >= _LARGE_VALUE:
                if self._large is None:
                    self._large = {}
                self._large[self._ints[cell]] = self._moved(self._ints[cell], self._ints[cell + 1], release)

    @cython.cfunc
    def _moved(self, at: cython.Py_ssize_t, length: cython.Py_ssize_t, release: object) -> object:
        done: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        value = PyBytes_FromStringAndSize(cython.NULL, length) if cython.compiled else self._bytes(at, length)
        while done < length:
            size = min(length - done, _LARGE_VALUE)
            if cython.compiled:
                memcpy(PyBytes_AS_STRING(value) + done, self._octets + at + done, size)
            done += size
            release(at + done - size, at + done)
        return value

    @cython.cfunc
    def _value(self, at: cython.Py_ssize_t, length: cython.Py_ssize_t) -> object:
        if self._large is not None and length >= _LARGE_VALUE:
            # Not from the buffer: the system has its pages again, and they read as zeros.
            return self._large[at]
        return self._bytes(at, length)

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
        """Bytes from the first row's key to the next row's after the last, and the index's own.

        So the parts of a chunk account for all of it, whatever stands between its rows.
        """
        self._check(start, stop)
        if start == stop:
            return 0
        return self._edge(stop) - self._edge(start) + (stop - start) * _ROW_BYTES

    @cython.cfunc
    def _edge(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Where the row's key starts; behind the last row, where that one's value ends."""
        if row < self.rows:
            return self._ints[row * _ROW_INTS]
        last: cython.Py_ssize_t = (row - 1) * _ROW_INTS
        length: cython.Py_ssize_t = self._ints[last + 3]
        return self._ints[last + 2] + (length if length > 0 else 0)

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
            record.value = self._value(self._ints[cell + 2], self._ints[cell + 3])
            record._headers = () if self._ints[cell + 4] < 0 else header_bytes(self._base, self._ints[cell + 4])
            record.epoch = epoch
            record.seek_number = seek_number
            out.append(record)
        return out

    def longs(self, column: cython.Py_ssize_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> memoryview:
        """Offsets (column 0) or timestamps (column 1) of the rows [start, stop), 8 bytes each, not copied."""
        self._check(start, stop)
        base: cython.Py_ssize_t = 0 if column == 0 else self._capacity
        return memoryview(self._long_columns)[(base + start) * 8 : (base + stop) * 8]

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
        self, field: cython.Py_ssize_t, start: cython.Py_ssize_t, offsets: cython.int[::1], data: object
    ) -> object:
        """Copies one field of as many rows as `offsets` tells apart into `data`, which is large enough."""
        octets: Octets = self._octets
        ints: Ints = self._ints
        rows: cython.Py_ssize_t = offsets.shape[0] - 1
        cell: cython.Py_ssize_t = start * _ROW_INTS + field * 2
        out: cython.p_char
        out = PyBytes_AS_STRING(data) if cython.compiled else memoryview(data)
        if _keeps_gil and len(data) <= _SHORT:
            _copy_rows(octets, ints, cell, rows, offsets, out)
        else:
            with cython.nogil:
                _copy_rows(octets, ints, cell, rows, offsets, out)
        return None

    @cython.cfunc
    def _validity(self, field: cython.Py_ssize_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> object:
        """A bit for each row, set where the field is not null."""
        out: bytearray = bytearray((stop - start + 7) // 8)
        bits: cython.uchar[::1] = out
        ints: Ints = self._ints
        cell: cython.Py_ssize_t = start * _ROW_INTS + field * 2 + 1
        row: cython.Py_ssize_t
        for row in range(stop - start):  # so short that the GIL is kept
            if ints[cell] >= 0:
                bits[row // 8] |= 1 << (row % 8)
            cell += _ROW_INTS
        return out

    def binary(self, field: cython.Py_ssize_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> tuple:
        """Keys (field 0) or values (field 1) of the rows [start, stop) as Arrow lays them out: 4-byte
        offsets, the bytes, and a bitmap of what is not null (None where nothing is null).
        """
        ints: Ints = self._ints
        cell: cython.Py_ssize_t = start * _ROW_INTS + field * 2 + 1
        total: cython.longlong = 0
        nulls: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        self._check(start, stop)
        for row in range(stop - start):  # noqa: B007 - a Cython variable; so short that the GIL is kept
            if ints[cell] >= 0:
                total += ints[cell]
            else:
                nulls += 1
            cell += _ROW_INTS
        validity: object = None if nulls == 0 else self._validity(field, start, stop)
        if total > _LARGEST_COLUMN:
            raise OverflowError("over 2 GiB of keys or values do not fit into one Arrow column; split the chunk")
        offsets: bytearray = bytearray((stop - start + 1) * 4)
        # Not zeroed: `_copy_field` writes all of it.
        data = PyBytes_FromStringAndSize(cython.NULL, total) if cython.compiled else bytearray(total)
        self._copy_field(field, start, memoryview(offsets).cast("i"), data)
        if field == 1 and self._large is not None:
            # Over the zeros that `_copy_field` has read there: the system has those pages again.
            self._copy_large(start, memoryview(offsets).cast("i"), data)
        return offsets, data, validity

    def kept_bytes(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> tuple:
        """A buffer with the keys and values of the rows [start, stop), and where in the base it begins: see
        `decoder.pyi`.
        """
        self._check(start, stop)
        if start == stop:
            return b"", 0
        first: cython.Py_ssize_t = self._edge(start)
        end: cython.Py_ssize_t = self._edge(stop)
        kept: cython.Py_ssize_t = memoryview(self._buffer.obj).nbytes
        if self._large is not None:
            # Of values that are in memory of their own the system has the base's pages again.
            kept -= sum(map(len, self._large.values()))
        if 6 * (end - first) >= kept:
            return self._buffer, 0
        return self._bytes(first, end - first), first

    def binary_view(
        self,
        field: cython.Py_ssize_t,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        kept: object,
        first: cython.Py_ssize_t,
    ) -> tuple:
        """Keys (field 0) or values (field 1) of the rows [start, stop) as Arrow's views: see `decoder.pyi`."""
        octets: Octets = self._octets
        ints: Ints = self._ints
        rows: cython.Py_ssize_t = stop - start
        cell: cython.Py_ssize_t = start * _ROW_INTS + field * 2
        size: cython.Py_ssize_t = rows * _VIEW_BYTES
        pointing: cython.Py_ssize_t
        nulls: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t
        self._check(start, stop)
        for n in range(rows):  # so short that the GIL is kept
            if ints[cell + n * _ROW_INTS + 1] < 0:
                nulls += 1
        if nulls == rows:
            return None, (), None
        # Not zeroed: `_view_rows` writes all of it.
        data = PyBytes_FromStringAndSize(cython.NULL, size) if cython.compiled else bytearray(size)
        views: cython.p_char = PyBytes_AS_STRING(data) if cython.compiled else data
        if _keeps_gil and size <= _SHORT:
            pointing = _view_rows(octets, ints, cell, rows, first, views)
        else:
            with cython.nogil:
                pointing = _view_rows(octets, ints, cell, rows, first, views)
        validity: object = None if nulls == 0 else self._validity(field, start, stop)
        if field == 1 and self._large is not None:
            return data, (kept, *self._view_large(start, stop, views)), validity
        return data, (kept,) if pointing else (), validity

    @cython.cfunc
    def _view_large(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, views: cython.p_char) -> object:
        """Those values that are in memory of their own, each of which becomes a buffer; their views point there."""
        found: list = []
        row: cython.Py_ssize_t
        cell: cython.Py_ssize_t
        at: cython.Py_ssize_t
        number: cython.int
        nothing: cython.int = 0
        for row in range(start, stop):
            cell = row * _ROW_INTS + 2
            at = (row - start) * _VIEW_BYTES
            if self._ints[cell + 1] >= _LARGE_VALUE:
                value: bytes = self._large[self._ints[cell]]
                found.append(value)
                number = len(found)
                if cython.compiled:
                    memcpy(views + at + 4, PyBytes_AS_STRING(value), 4)
                    memcpy(views + at + 8, cython.address(number), 4)
                    memcpy(views + at + 12, cython.address(nothing), 4)
                else:
                    _VIEW.pack_into(views, at, len(value), value[:4], number, 0)
        return found

    @cython.cfunc
    def _copy_large(self, start: cython.Py_ssize_t, offsets: cython.int[::1], data: object) -> object:
        """Those values that are in memory of their own."""
        n: cython.Py_ssize_t
        length: cython.Py_ssize_t
        cell: cython.Py_ssize_t = start * _ROW_INTS + 2
        for n in range(offsets.shape[0] - 1):
            length = self._ints[cell + 1]
            if length >= _LARGE_VALUE:
                value: bytes = self._large[self._ints[cell]]
                if cython.compiled:
                    memcpy(PyBytes_AS_STRING(data) + offsets[n], PyBytes_AS_STRING(value), length)
                else:
                    memoryview(data)[offsets[n] : offsets[n] + length] = value
            cell += _ROW_INTS
        return None

    def headers(self, row: cython.Py_ssize_t) -> tuple:
        """The headers of one row, () where it has none."""
        self._check(row, row + 1)
        at: cython.Py_ssize_t = self._ints[row * _ROW_INTS + 4]
        return () if at < 0 else read_headers(self._base, at)

    def header_columns(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> tuple:
        """The headers of the rows [start, stop) as Arrow lays them out: see `record_index.pyi`."""
        self._check(start, stop)
        return header_columns(self._base, self._int_columns, start, stop)

    def have_headers(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bool:
        """Whether any of the rows [start, stop) has headers."""
        row: cython.Py_ssize_t
        self._check(start, stop)
        for row in range(start, stop):  # noqa: SIM110 - any() would make a Python generator here
            if self._ints[row * _ROW_INTS + 4] >= 0:
                return True
        return False


def index_batches(base: object, table: bytearray, fetch_offset: int) -> RecordColumns:
    """Indexes the batches of `table` over `base`: see `decoder.pyi`."""
    return RecordColumns(base, table, fetch_offset)
