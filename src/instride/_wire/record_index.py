# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Records (magic 2) to an index of where their parts stand. Compiled to C by Cython.

Laws
1. Bytes are hostile. Every length is compared with the bytes that are left before it is used, and every loop
   is bounded by them. Bad bytes end the index at the batch before; nothing is raised or read outside.
2. One compiled call indexes a record set, without the GIL unless `keep_gil` said to keep it for what is short. No
   Python object is made for a record there.
3. Both forms (compiled, and with INSTRIDE_PURE=1 plain Python) give the same results; a test compares them.

Keys, values and headers are made of the index by `decoder.py`, when somebody reads them.

How to read it: `cython.pointer` types hold memoryviews where this is not compiled, so code for both forms
only ever indexes them. Sums that may overflow go through `_wrapping_sum`. Literals stay below 2**31, since
larger ones would be Python objects. `record_index.pyi` is what type checkers see.
"""

from __future__ import annotations

from instride._wire.compiled import require_compiled

try:
    import cython
except ImportError:
    require_compiled(__name__, compiled=False)
    raise
if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy

__all__ = [
    "BATCH_WIDTH",
    "COMPILED",
    "FAILURES",
    "LARGEST_BASE",
    "MIN_RECORD_BYTES",
    "header_bytes",
    "header_columns",
    "index_records",
    "keep_gil",
    "read_headers",
]

COMPILED: bool = cython.compiled
require_compiled(__name__, compiled=COMPILED)

Octets = cython.typedef(cython.pointer[cython.const[cython.uchar]])
Longs = cython.typedef(cython.p_longlong)
Ints = cython.typedef(cython.p_int)

# A row of the batch table, as `Batch.row` makes it. The index fills in FIRST_ROW.
_START = cython.declare(cython.int, 0)
_END = cython.declare(cython.int, 1)
_COUNT = cython.declare(cython.int, 2)
_BASE_OFFSET = cython.declare(cython.int, 3)
_LAST_DELTA = cython.declare(cython.int, 4)
_TIMESTAMP = cython.declare(cython.int, 5)
_LOG_APPEND = cython.declare(cython.int, 6)
_FIRST_ROW = cython.declare(cython.int, 8)  # 7 is the leader epoch
_WIDTH = cython.declare(cython.int, 9)
BATCH_WIDTH = _WIDTH

# Of a record's row: five ints (where the key starts, its length or -1, the same of the value, where the
# headers start or -1 where there are none) and two longs in columns of their own (offset, timestamp).
_ROW_INTS = cython.declare(cython.int, 5)
# length, attributes, timestamp, offset, key length, value length, header count: one byte each.
MIN_RECORD_BYTES = 7
# Positions are of 31 bits.
LARGEST_BASE = 2147483647

# A header of two bytes becomes objects of a hundred: a record must not cost far more than its bytes.
_MOST_HEADERS = cython.declare(cython.int, 10000)

# Some milliseconds' work: the longest that the GIL is kept for.
_SHORT = cython.declare(cython.Py_ssize_t, 16777216)
_keeps_gil = cython.declare(cython.bint, False)

_BAD_VARINT = cython.declare(cython.int, -1)
_BAD_LENGTH = cython.declare(cython.int, -2)
_BAD_OFFSET = cython.declare(cython.int, -3)
_BAD_FIELD = cython.declare(cython.int, -4)
_BAD_HEADERS = cython.declare(cython.int, -5)
_BAD_END = cython.declare(cython.int, -6)
_TRAILING = cython.declare(cython.int, -7)
_TOO_MANY_HEADERS = cython.declare(cython.int, -8)
FAILURES = {
    -1: "a number is cut off or too long",
    -2: "a record's length is over the bytes left in its batch, or too small",
    -3: "record offsets do not rise, or leave their batch",
    -4: "a key or value is longer than its record",
    -5: "a header is longer than its record",
    -6: "a record is longer than its fields",
    -7: "bytes are left after the last record",
    -8: "a record has over 10000 headers",
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
            # The last byte has seven bits where four (of 32) or one (of 64) are left.
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
        # A header's value may be null, its name may not.
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
def _index_record(  # noqa: PLR0912, PLR0917 - one straight line of fields, read once a record
    octets: Octets,
    at: cython.Py_ssize_t,
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
    end: cython.Py_ssize_t = batch[b + _END]
    number, at = _zigzag(octets, at, end, 32)
    if at < 0:
        return 0, _BAD_VARINT
    # MIN_RECORD_BYTES without the length itself.
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
    # With log append time (KIP-32) the batch's time is that of all, and the producer's deltas mean nothing.
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
    # Before the count, which `read_headers` reads again.
    ints[cell + 4] = at
    number, at = _zigzag(octets, at, end, 32)
    if at < 0 or number < 0:
        return 0, _BAD_HEADERS
    if number > _MOST_HEADERS:
        return 0, _TOO_MANY_HEADERS
    if number == 0:
        ints[cell + 4] = -1
    else:
        at = _end_of_headers(octets, at, end, number)
        if at < 0:
            return 0, _BAD_HEADERS
    if at != end:
        return 0, _BAD_END
    return delta, at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _index_batch(
    octets: Octets,
    table: Longs,
    b: cython.Py_ssize_t,
    longs: Longs,
    ints: Ints,
    row: cython.Py_ssize_t,
    capacity: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Fills the rows of one batch. Returns the row after them, or a failure below 0."""
    at: cython.Py_ssize_t = table[b + _START]
    left: cython.longlong = table[b + _COUNT]
    delta: cython.longlong = -1
    table[b + _FIRST_ROW] = row
    while left > 0:
        delta, at = _index_record(octets, at, table, b, longs, ints, row, capacity, delta)
        if at < 0:
            return at
        row += 1
        left -= 1
    return row if at == table[b + _END] else _TRAILING


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _index_batches(
    octets: Octets, table: Longs, size: cython.Py_ssize_t, longs: Longs, ints: Ints, capacity: cython.Py_ssize_t
) -> tuple[cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t]:
    """The batch that it ended at, the rows before it, and a failure below 0."""
    b: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t = 0
    after: cython.Py_ssize_t = 0
    while b < size:
        after = _index_batch(octets, table, b, longs, ints, row, capacity)
        if after < 0:
            break
        row = after
        b += _WIDTH
    return b, row, after


def keep_gil(*, keep: bool) -> None:
    """See `record_index.pyi`."""
    global _keeps_gil  # noqa: PLW0603 - of the process, as the GIL is
    _keeps_gil = keep


@cython.cfunc
def _capacity(table: cython.longlong[::1], size: cython.longlong) -> cython.Py_ssize_t:
    """How many records the table claims. Raises ValueError where they cannot be within `size` bytes."""
    total: cython.longlong = 0
    b: cython.Py_ssize_t
    for b in range(0, table.shape[0], _WIDTH):
        start: cython.longlong = table[b + _START]
        end: cython.longlong = table[b + _END]
        count: cython.longlong = table[b + _COUNT]
        if start < 0 or end < start or end > size or count < 0 or count > (end - start) // MIN_RECORD_BYTES:
            raise ValueError("a batch lies outside its buffer")
        total += count
    return total


def index_records(base: object, table: bytearray) -> tuple:
    """Indexes the records of the batches in `table` over `base`: see `record_index.pyi`."""
    view: cython.const[cython.uchar][::1] = base
    batches: cython.longlong[::1] = memoryview(table).cast("q")
    octets: Octets
    rows: Longs
    longs: Longs
    ints: Ints
    b: cython.Py_ssize_t
    row: cython.Py_ssize_t
    after: cython.Py_ssize_t
    size: cython.Py_ssize_t = batches.shape[0]
    if size % _WIDTH != 0 or view.shape[0] > LARGEST_BASE:
        raise ValueError("a broken batch table, or over 2 GiB in one record set")
    capacity: cython.Py_ssize_t = _capacity(batches, view.shape[0])
    # An empty view has no first byte to take the address of below.
    if size == 0 or view.shape[0] == 0:
        return b"", b"", 0, 0, -1, 0
    if cython.compiled:
        # Not zeroed: every row that is read was written, and zeroing costs as much as indexing.
        long_columns = PyBytes_FromStringAndSize(cython.NULL, capacity * 16)
        int_columns = PyBytes_FromStringAndSize(cython.NULL, capacity * 20)
        longs = cython.cast(cython.p_longlong, PyBytes_AS_STRING(long_columns))
        ints = cython.cast(cython.p_int, PyBytes_AS_STRING(int_columns))
        octets = cython.address(view[0])
        rows = cython.address(batches[0])
    else:
        long_columns, int_columns = bytearray(capacity * 16), bytearray(capacity * 20)
        longs, ints = memoryview(long_columns).cast("q"), memoryview(int_columns).cast("i")
        octets, rows = view, batches
    if _keeps_gil and view.shape[0] <= _SHORT:
        b, row, after = _index_batches(octets, rows, size, longs, ints, capacity)
    else:
        with cython.nogil:
            b, row, after = _index_batches(octets, rows, size, longs, ints, capacity)
    if after < 0:
        return long_columns, int_columns, capacity, row, b // _WIDTH, after
    return long_columns, int_columns, capacity, row, -1, 0


def header_bytes(base: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> bytes:
    """A copy of the headers that start there, which must have been indexed: for `read_headers`, later."""
    octets: Octets = cython.address(base[0]) if cython.compiled else base
    end: cython.Py_ssize_t = base.shape[0]
    count: cython.longlong
    start: cython.Py_ssize_t = at
    count, at = _zigzag(octets, at, end, 32)
    at = _end_of_headers(octets, at, end, count)
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, octets + start), at - start)
    return bytes(base[start:at])


def read_headers(base: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> tuple:
    """The headers that start there, which must have been indexed."""
    octets: Octets = cython.address(base[0]) if cython.compiled else base
    end: cython.Py_ssize_t = base.shape[0]
    count: cython.longlong
    length: cython.longlong
    out: list = []
    count, at = _zigzag(octets, at, end, 32)
    while count > 0:
        length, at = _field(octets, at, end)
        # No broker checks a header's name, and Java's consumer replaces as well: it must not stop the partition.
        name: str = bytes(base[at : at + length]).decode("utf-8", "replace")
        length, at = _field(octets, at + length, end)
        if length < 0:
            out.append((name, None))
        else:
            out.append((name, bytes(base[at : at + length])))
            at += length
        count -= 1
    return tuple(out)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _measure_headers(
    octets: Octets, end: cython.Py_ssize_t, ints: Ints, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.longlong, cython.longlong]:
    """Of the rows [start, stop): how many headers, and the bytes of their names and of their values."""
    headers: cython.longlong = 0
    names: cython.longlong = 0
    values: cython.longlong = 0
    count: cython.longlong
    length: cython.longlong
    at: cython.Py_ssize_t
    row: cython.Py_ssize_t
    for row in range(start, stop):
        at = ints[row * _ROW_INTS + 4]
        if at < 0:
            continue
        count, at = _zigzag(octets, at, end, 32)
        headers += count
        while count > 0:
            length, at = _field(octets, at, end)
            names += length
            length, at = _field(octets, at + length, end)
            if length > 0:
                values += length
                at += length
            count -= 1
    return headers, names, values


def header_columns(
    base: cython.const[cython.uchar][::1], int_columns: object, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> tuple:
    """The headers of the rows [start, stop), which must have been indexed: see `record_index.pyi`."""
    octets: Octets = cython.address(base[0]) if cython.compiled else base
    end: cython.Py_ssize_t = base.shape[0]
    table: cython.const[cython.uchar][::1] = int_columns
    ints: Ints = cython.cast(Ints, cython.address(table[0])) if cython.compiled else memoryview(int_columns).cast("i")
    headers: cython.longlong
    name_bytes: cython.longlong
    value_bytes: cython.longlong
    headers, name_bytes, value_bytes = _measure_headers(octets, end, ints, start, stop)
    rows: cython.Py_ssize_t = stop - start
    offsets: bytearray = bytearray((rows + 1) * 4)
    present: bytearray = bytearray((rows + 7) // 8)
    name_offsets: bytearray = bytearray((headers + 1) * 4)
    names: bytearray = bytearray(name_bytes)
    value_offsets: bytearray = bytearray((headers + 1) * 4)
    values: bytearray = bytearray(value_bytes)
    valid: bytearray = bytearray((headers + 7) // 8)
    _fill_headers(
        octets,
        end,
        ints,
        start,
        rows,
        memoryview(offsets).cast("i"),
        present,
        memoryview(name_offsets).cast("i"),
        names,
        memoryview(value_offsets).cast("i"),
        values,
        valid,
    )
    return headers, offsets, present, name_offsets, names, value_offsets, values, valid


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _copy(
    out: cython.uchar[::1], to: cython.Py_ssize_t, octets: Octets, at: cython.Py_ssize_t, length: cython.longlong
) -> cython.Py_ssize_t:
    """Returns the place after the copy, for which there is room."""
    if length <= 0:
        return to
    if cython.compiled:
        memcpy(cython.address(out[to]), octets + at, length)
    else:
        out[to : to + length] = octets[at : at + length]
    return to + length


@cython.cfunc
def _fill_headers(  # noqa: PLR0917 - the columns, each written once
    octets: Octets,
    end: cython.Py_ssize_t,
    ints: Ints,
    start: cython.Py_ssize_t,
    rows: cython.Py_ssize_t,
    offsets: cython.int[::1],
    present: cython.uchar[::1],
    name_offsets: cython.int[::1],
    names: cython.uchar[::1],
    value_offsets: cython.int[::1],
    values: cython.uchar[::1],
    valid: cython.uchar[::1],
) -> object:
    header: cython.Py_ssize_t = 0
    name_at: cython.Py_ssize_t = 0
    value_at: cython.Py_ssize_t = 0
    count: cython.longlong
    length: cython.longlong
    at: cython.Py_ssize_t
    row: cython.Py_ssize_t
    with cython.nogil:
        for row in range(rows):
            offsets[row] = header
            at = ints[(start + row) * _ROW_INTS + 4]
            if at < 0:
                continue
            present[row // 8] |= 1 << (row % 8)
            count, at = _zigzag(octets, at, end, 32)
            while count > 0:
                name_offsets[header], value_offsets[header] = name_at, value_at
                length, at = _field(octets, at, end)
                name_at = _copy(names, name_at, octets, at, length)
                length, at = _field(octets, at + length, end)
                if length >= 0:
                    valid[header // 8] |= 1 << (header % 8)
                    value_at = _copy(values, value_at, octets, at, length)
                    at += length
                header += 1
                count -= 1
        offsets[rows], name_offsets[header], value_offsets[header] = header, name_at, value_at
    return None
