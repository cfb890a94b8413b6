"""Index columns to an Arrow record batch. pyarrow is imported when it is first used.

Laws
1. Offsets and timestamps are not copied; keys, values and headers are copied once. With `binary_view` keys and values
   are not copied: a batch keeps the memory that they stand in. No Python object is made for a record, but where a
   header's name is no UTF-8.
2. The schema is the same for every batch: `schema()`, or what was chosen of it. Nothing is made of the other columns.
3. A batch is handed to pyarrow whole (but where a record has headers, or for debugging): each of its own calls gives up
   the GIL, which beside a busy thread comes back late.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from instride._wire.arrow_array import COMPILED, discard, export

if TYPE_CHECKING:
    import pyarrow as pa

    from instride._topic_partition import TopicPartition
    from instride._wire.arrow_array import Buffer, Node
    from instride._wire.decoder import RecordColumns

__all__ = ["reader", "schema", "table", "to_arrow"]

_KEY, _VALUE = 0, 1
_OFFSET, _TIMESTAMP = 0, 1
_INT: Final = Struct("=i")
_LONG: Final = Struct("=q")
# What offsets of four bytes can point at.
_LARGEST_COLUMN: Final = (1 << 31) - 1
# Offsets of more rows are not kept for the next batch.
_MANY: Final = 1 << 16


def _pyarrow() -> Any:
    try:
        import pyarrow  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise ImportError('Arrow output needs pyarrow: pip install "instride[arrow]"') from error
    return pyarrow


@functools.cache
def schema(*, binary_view: bool = False, dictionary: bool = False) -> pa.Schema:
    """Of every batch that `to_arrow` makes with these. headers: null where a record has none."""
    arrow = _pyarrow()
    binary = arrow.binary_view() if binary_view else arrow.binary()
    name, number = arrow.string(), arrow.int32()
    if dictionary:
        name, number = arrow.dictionary(arrow.int32(), name), arrow.dictionary(arrow.int32(), number)
    header = arrow.struct([arrow.field("key", arrow.string(), nullable=False), ("value", arrow.binary())])
    return arrow.schema(
        [
            arrow.field("topic", name, nullable=False),
            arrow.field("partition", number, nullable=False),
            arrow.field("offset", arrow.int64(), nullable=False),
            arrow.field("timestamp", arrow.timestamp("ms", tz="UTC"), nullable=False),
            arrow.field("timestamp_type", arrow.int32(), nullable=False),
            arrow.field("key", binary),
            arrow.field("value", binary),
            arrow.field("headers", arrow.list_(arrow.field("element", header, nullable=False))),
        ]
    )


def to_arrow(
    columns: RecordColumns,
    name: TopicPartition,
    start: int,
    stop: int,
    chosen: Sequence[str] | None = None,
    *,
    binary_view: bool = False,
    dictionary: bool = False,
) -> pa.RecordBatch:
    """The rows [start, stop) as one record batch. chosen: of its columns, in this order; None: all.

    binary_view, dictionary: as of `ConsumerRecords.to_arrow`.
    Raises ImportError without pyarrow, KeyError for a column that there is not.
    """
    arrow = _pyarrow()
    if chosen is not None and not chosen:  # made of no columns it would have no rows
        return to_arrow(columns, name, start, stop, ("offset",)).select([])
    rows = stop - start
    fields = schema(binary_view=binary_view, dictionary=dictionary)
    if chosen is not None:
        fields = arrow.schema([fields.field(each) for each in chosen])
    binary = _views(columns, start, stop) if binary_view else functools.partial(_binary, columns, start, stop)
    topic, partition = name.topic.encode(), _INT.pack(name.partition)
    makers: dict[str, Callable[[], Node]] = {
        "topic": lambda: _same(rows, _repeated(topic, 1)) if dictionary else _repeated(topic, rows),
        "partition": lambda: _same(rows, _fixed(1, partition)) if dictionary else _fixed(rows, partition * rows),
        "offset": lambda: _fixed(rows, columns.longs(_OFFSET, start, stop)),
        "timestamp": lambda: _fixed(rows, columns.longs(_TIMESTAMP, start, stop)),
        "timestamp_type": lambda: _fixed(rows, columns.timestamp_types(start, stop)),
        "key": lambda: binary(_KEY),
        "value": lambda: binary(_VALUE),
        "headers": lambda: _no_headers(rows),
    }
    have_headers = "headers" in fields.names and columns.have_headers(start, stop)
    # A column that is named twice is there twice.
    nodes = [makers[each]() for each in fields.names]
    if COMPILED and not have_headers:
        return _handed_over(arrow, (rows, (None,), tuple(nodes), None), fields)
    arrays = [
        _headers(arrow, columns, start, stop)
        if have_headers and field.name == "headers"
        else _array(arrow, field.type, node)
        for field, node in zip(fields, nodes, strict=True)
    ]
    return arrow.RecordBatch.from_arrays(arrays, schema=fields)


def _handed_over(arrow: Any, node: Node, fields: pa.Schema) -> pa.RecordBatch:
    """Law 3."""
    address = export(node)
    try:
        return arrow.RecordBatch._import_from_c(address, fields)
    finally:
        # The import has moved what was in it: the struct itself stays ours to free.
        discard(address)


def _array(arrow: Any, kind: Any, node: Node) -> Any:
    length, buffers, children, dictionary = node
    if dictionary is not None:
        indices = _array(arrow, kind.index_type, (length, buffers, (), None))
        return arrow.DictionaryArray.from_arrays(indices, _array(arrow, kind.value_type, dictionary))
    if kind == arrow.binary_view():
        buffers = buffers[:-1]  # pyarrow finds the lengths by itself
    made = [None if each is None else arrow.py_buffer(each) for each in buffers]
    kinds = [kind.field(n).type for n in range(kind.num_fields)]
    inner = [_array(arrow, *each) for each in zip(kinds, children, strict=True)]
    return arrow.Array.from_buffers(kind, length, made, children=inner or None)


def table(batches: Sequence[pa.RecordBatch], *, binary_view: bool = False, dictionary: bool = False) -> pa.Table:
    """These batches, of this layout, as one table; nothing is copied. Raises ImportError without pyarrow."""
    return _pyarrow().Table.from_batches(batches, schema(binary_view=binary_view, dictionary=dictionary))


def reader(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    """A stream of these batches. Raises ImportError without pyarrow."""
    return _pyarrow().RecordBatchReader.from_batches(schema(), batches)


def _fixed(rows: int, data: Buffer) -> Node:
    return rows, (None, data), (), None


def _same(rows: int, value: Node) -> Node:
    """The one value of a dictionary, in each row."""
    return rows, (None, _zeros(_INT.size, rows)), (), value


def _zeros(size: int, rows: int) -> bytes:
    # Rounded up as in `_repeated`.
    return bytes(size * rows) if rows > _MANY else _kept_zeros(size << rows.bit_length())


@functools.lru_cache(maxsize=16)
def _kept_zeros(size: int) -> bytes:
    return bytes(size)


def _repeated(text: bytes, rows: int) -> Node:
    # Rounded up to a power of two, so that polls of any size share a few: Arrow takes a buffer that is too long.
    steps = _steps(len(text), rows) if rows > _MANY else _kept_steps(len(text), 1 << rows.bit_length())
    return rows, (None, steps, text * rows), (), None


@functools.lru_cache(maxsize=8)
def _kept_steps(length: int, rows: int) -> memoryview:
    return _steps(length, rows)


def _steps(length: int, rows: int) -> memoryview:
    """Offsets of so many texts of this length. Raises OverflowError."""
    if length * rows > _LARGEST_COLUMN:
        raise OverflowError("over 2 GiB of topic names do not fit into one Arrow column; use dictionary=True")
    return memoryview(array("i", range(0, length * rows + 1, length) if length else [0] * (rows + 1))).cast("B")


def _binary(columns: RecordColumns, start: int, stop: int, field: int) -> Node:
    offsets, data, validity = columns.binary(field, start, stop)
    return stop - start, (validity, offsets, data), (), None


def _views(columns: RecordColumns, start: int, stop: int) -> Callable[[int], Node]:
    """The column of a field, as views. Both fields point to the same bytes, which are kept once."""
    kept: list[Any] = []

    def column(field: int) -> Node:
        if not kept:
            kept.extend(columns.kept_bytes(start, stop))
        views, buffers, validity = columns.binary_view(field, start, stop, *kept)
        if views is None:
            return _nulls(stop - start)
        lengths = b"".join(_LONG.pack(len(each)) for each in buffers)  # Arrow's C data interface wants them last
        return stop - start, (validity, views, *buffers, lengths), (), None

    return column


def _nulls(rows: int) -> Node:
    """Views of nothing. One buffer is its bitmap as well."""
    zeros = _zeros(16, rows)
    return rows, (zeros, zeros, b""), (), None


def _no_headers(rows: int) -> Node:
    empty: Node = (0, (None, bytes(4), b""), (), None)  # even no text at all has one offset
    element: Node = (0, (None,), (empty, empty), None)
    return rows, (bytes((rows + 7) // 8), bytes(4 * (rows + 1))), (element,), None


def _headers(arrow: Any, columns: RecordColumns, start: int, stop: int) -> Any:
    kind = schema().field("headers").type
    if not columns.have_headers(start, stop):
        return arrow.nulls(stop - start, kind)
    count, offsets, present, name_offsets, names, value_offsets, values, valid = columns.header_columns(start, stop)
    element = kind.value_type
    buffers = [None, arrow.py_buffer(name_offsets), arrow.py_buffer(names)]
    keys = arrow.Array.from_buffers(arrow.string(), count, buffers)
    try:
        keys.validate(full=True)
    except arrow.ArrowInvalid:  # a name that is no UTF-8: what of it can be shown
        return _headers_one_by_one(arrow, columns, start, stop)
    buffers = [arrow.py_buffer(valid), arrow.py_buffer(value_offsets), arrow.py_buffer(values)]
    contents = arrow.Array.from_buffers(arrow.binary(), count, buffers)
    headers = arrow.StructArray.from_arrays([keys, contents], fields=list(element))
    found = [arrow.py_buffer(present), arrow.py_buffer(offsets)]
    return arrow.Array.from_buffers(kind, stop - start, found, children=[headers])


def _headers_one_by_one(arrow: Any, columns: RecordColumns, start: int, stop: int) -> Any:
    kind = schema().field("headers").type
    rows = (columns.headers(row) for row in range(start, stop))
    return arrow.array([[{"key": key, "value": value} for key, value in headers] or None for headers in rows], kind)
