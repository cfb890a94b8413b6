"""Chunks as Arrow record batches."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import duckdb
import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import CODECS, Rec, batch, decode, plain, records_of

from instride import ConsumerRecords, TopicPartition
from instride._core.application.partition import Delivery
from instride._wire import arrow, arrow_array
from instride._wire.memory_pool import Segment, Segments
from instride._wire.record_set import RecordSet, RecordSetChunk

payload = st.none() | st.binary(max_size=20)
header_lists = st.lists(st.tuples(st.text(max_size=5), payload), max_size=2).map(tuple)
bodies = st.lists(st.tuples(payload, payload, header_lists), min_size=1, max_size=40)


def _chunk(data: bytes, fetch_offset: int = 0) -> RecordSetChunk:
    chunk, _, error = decode(data, fetch_offset)
    assert error is None
    assert isinstance(chunk, RecordSetChunk)
    return chunk


def _expected(chunk: RecordSetChunk) -> list[dict[str, Any]]:
    return [
        {
            "topic": r.topic,
            "partition": r.partition,
            "offset": r.offset,
            "timestamp": datetime.fromtimestamp(r.timestamp / 1000, UTC),
            "timestamp_type": r.timestamp_type,
            "key": r.key,
            "value": r.value,
            "headers": [{"key": key, "value": value} for key, value in r.headers] or None,
        }
        for r in records_of(chunk)
    ]


class NoText(str):
    """A name that a hostile producer writes."""

    def encode(self, *_: Any) -> bytes:
        return b"\xff\xfe"


@given(rows=bodies, codec=st.sampled_from(CODECS), cut=st.integers(0, 40))
def test_arrow_and_records_agree(rows: list[tuple[Any, Any, Any]], codec: str, cut: int) -> None:
    made = [Rec(offset=n, timestamp=n * 1000, key=k, value=v, headers=h) for n, (k, v, h) in enumerate(rows)]
    chunk = _chunk(batch(made, codec=codec), min(cut, len(rows) - 1))
    parts = [chunk]
    if len(chunk) > 1:
        parts += chunk.split(len(chunk) // 2)
    for part in parts:
        table = part.to_arrow()
        table.validate(full=True)
        assert table.schema == arrow.schema()
        assert table.to_pylist() == _expected(part)


views = st.sampled_from([None, b"", b"k" * 12, b"k" * 13, b"value" * 9])


@given(
    rows=st.lists(st.tuples(views, views), min_size=1, max_size=40),
    codec=st.sampled_from(CODECS),
    cut=st.integers(0, 40),
    compiled=st.booleans(),
)
def test_views_and_records_agree(rows: list[tuple[Any, Any]], codec: str, cut: int, compiled: bool) -> None:
    made = [Rec(offset=n, timestamp=n, key=k, value=v) for n, (k, v) in enumerate(rows)]
    chunk = _chunk(batch(made, codec=codec), min(cut, len(rows) - 1))
    parts = [chunk]
    if len(chunk) > 1:
        parts += chunk.split(max(1, len(chunk) // 5))
    for part in parts:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow, "COMPILED", compiled)
            table = part.to_arrow(binary_view=True, dictionary=True)
        table.validate(full=True)
        assert table.schema == arrow.schema(binary_view=True, dictionary=True)
        assert table.to_pylist() == _expected(part)


def test_a_view_of_a_large_value_is_of_the_memory_that_it_has() -> None:
    values = [b"small", b"a" * (1 << 20), None, b"b" * 100, b"c" * (2 << 20), b"last"]
    data = bytearray(batch([Rec(offset=n, value=value) for n, value in enumerate(values)]))
    chunk, _, _ = decode(data)
    for part in (chunk, *chunk.split(1), *chunk.split(4)):
        column = part.to_arrow(binary_view=True).column("value")
        column.validate(full=True)
        assert column.to_pylist() == values[part.first_offset : part.next_offset]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 2), (1, 2), (1, 400), (0, 9001), (5000, 9001)])
def test_views_keep_six_times_their_bytes_also_beside_a_large_value(codec: str, start: int, stop: int) -> None:
    """Of which the memory is its own: one row of 1 KB kept all of the 10 MB that it was decompressed with."""
    noise = random.Random(1)
    values = [noise.randbytes(1 << 20), *(noise.randbytes(1000) for _ in range(9000))]
    log = batch([Rec(offset=n, value=value) for n, value in enumerate(values)], codec=codec)
    part, _, error = decode(Segment(log, Segments()))
    assert error is None
    part = part.split(stop)[0] if stop < len(part) else part
    part = part.split(start)[1] if start else part
    column = part.to_arrow(["value"], binary_view=True).column("value")
    column.validate(full=True)
    assert column.to_pylist() == values[start:stop]
    assert sum(each.size for each in column.buffers()[2:]) <= 6 * sum(map(len, values[start:stop]))


def test_views_keep_the_memory_that_they_point_to() -> None:
    data = bytearray(batch([Rec(offset=n, value=b"value" * 9) for n in range(100)]))
    chunk, _, _ = decode(data)
    views = chunk.to_arrow(binary_view=True).column("value").slice(7, 1)
    del chunk
    with pytest.raises(BufferError):
        data.append(0)  # as who wants to use it again tries (law 1 of `memory_pool`)
    assert views.to_pylist() == [b"value" * 9]
    del views
    data.append(0)


def test_views_of_a_few_rows_keep_nothing_of_the_others() -> None:
    data = bytearray(batch([Rec(offset=n, key=b"the key of it", value=b"value" * 9) for n in range(100)]))
    chunk, _, _ = decode(data)
    few = chunk.split(15)[0].to_arrow(binary_view=True)
    del chunk
    data.append(0)
    assert few.column("value").to_pylist() == [b"value" * 9] * 15
    shown = [few.column(name).buffers()[2] for name in ("key", "value")]
    assert shown[0].address == shown[1].address, "one copy serves both"
    assert shown[0].size < 15 * 100


@pytest.mark.parametrize(("others", "copied"), [(0, False), (4, False), (6, True)])
def test_views_keep_six_times_their_bytes_at_most(others: int, copied: bool) -> None:
    """The rows of one partition of a response, where others have as much in it."""
    log = batch([Rec(offset=n, value=b"value" * 9) for n in range(100)])
    response = bytearray(log + bytes(others * len(log)))
    chunk = RecordSet(memoryview(response)[: len(log)], topic="t", partition=3, fetch_offset=0).decode(1, 1 << 20)
    assert chunk is not None
    assert chunk.chunk is not None
    (shown,) = chunk.chunk.to_arrow(["value"], binary_view=True).column("value").buffers()[2:]
    assert (shown.address != memory_of(response)) == copied


def memory_of(buffer: bytearray) -> int:
    return int(pa.py_buffer(buffer).address)


def test_short_values_are_in_their_views_and_keep_nothing() -> None:
    data = bytearray(batch([Rec(offset=n, key=b"key", value=b"twelve bytes") for n in range(9)]))
    chunk, _, _ = decode(data)
    values = chunk.to_arrow(["value"], binary_view=True)
    del chunk
    data.append(0)
    assert len(values.column("value").buffers()) == 2
    assert values.column("value").to_pylist() == [b"twelve bytes"] * 9


@pytest.mark.parametrize("headers", [(), (("h", b"1"),)])
@pytest.mark.parametrize("column", arrow.schema().names)
def test_a_column_that_is_named_twice_is_there_twice(column: str, headers: tuple[tuple[str, bytes], ...]) -> None:
    chunk = _chunk(batch([Rec(offset=0, key=b"k", value=b"v", headers=headers), Rec(offset=1)]))
    found = chunk.to_arrow([column, "offset", column])
    found.validate(full=True)
    assert found.schema.names == [column, "offset", column]
    once = chunk.to_arrow([column]).column(0)
    assert found.column(0) == found.column(2) == once


def test_dictionaries_of_several_partitions_become_one_table() -> None:
    deliveries = [
        Delivery(partition=TopicPartition("t", 0), chunk=_chunk(batch(plain(*rows))), epoch=1, seek_number=0)
        for rows in ((0, 1), (2,))
    ]
    table = arrow.table(ConsumerRecords(deliveries).to_arrow(dictionary=True), dictionary=True)
    assert table.column("topic").to_pylist() == ["t"] * 3
    assert list(table.unify_dictionaries().to_pandas()["partition"]) == [3] * 3
    assert table.column("topic").type == pa.dictionary(pa.int32(), pa.string())


def test_headers_whose_names_are_no_text_are_shown_as_records_show_them() -> None:
    headers = ((NoText(), b"v"), ("n", None))
    data = batch([Rec(offset=0), Rec(offset=1, headers=headers), Rec(offset=2, headers=(("n", b""),))])
    chunk = _chunk(data)
    found = chunk.to_arrow()
    found.validate(full=True)
    assert found.to_pylist() == _expected(chunk)
    assert found.column("headers").to_pylist()[1][0] == {"key": "\ufffd\ufffd", "value": b"v"}


def test_a_stream_is_taken_by_what_speaks_arrow() -> None:
    deliveries = [
        Delivery(partition=TopicPartition("t", 0), chunk=_chunk(batch(plain(*rows))), epoch=1, seek_number=0)
        for rows in ((0, 1), (2,))
    ]
    records = ConsumerRecords(deliveries)
    assert pa.table(records).column("offset").to_pylist() == [0, 1, 2]
    assert pa.table(ConsumerRecords()).schema == arrow.schema()


ROWS = [
    Rec(offset=0, timestamp=1000, key=b"k", value=b"longer than a view", headers=(("h", b"1"), ("n", None))),
    Rec(offset=1, timestamp=2000, value=b""),
    Rec(offset=2, timestamp=3000, key=b"twelve bytes"),
]


def _of_pandas(data: Any) -> list[tuple[Any, ...]]:
    frame = pa.table(data).to_pandas()
    frame["headers"] = [cell if cell is None else [*cell] for cell in frame["headers"]]  # arrays are not compared so
    return list(frame.itertuples(index=False, name=None))


def _of_duckdb(data: Any) -> list[tuple[Any, ...]]:
    found = duckdb.sql("FROM data")
    assert found is not None
    return found.fetchall()


TAKERS: dict[str, Callable[[Any], list[tuple[Any, ...]]]] = {
    "pandas": _of_pandas,
    "Polars": lambda data: polars.DataFrame(data).rows(),
    "DuckDB": _of_duckdb,
}


@pytest.mark.parametrize("binary_view", [False, True], ids=["plain", "views"])
@pytest.mark.parametrize("library", TAKERS)
def test_each_library_that_the_pages_name_takes_the_rows(library: str, *, binary_view: bool) -> None:
    """Plain: the records themselves. With views: the table that `poll_arrow(binary_view=True)` returns."""
    chunks = [_chunk(batch(ROWS[:2])), _chunk(batch(ROWS[2:]))]
    records = ConsumerRecords(
        [Delivery(partition=TopicPartition("t", 0), chunk=each, epoch=1, seek_number=0) for each in chunks]
    )
    table = arrow.table(records.to_arrow(binary_view=True), binary_view=True)
    expected = [tuple(row.values()) for each in chunks for row in _expected(each)]
    assert TAKERS[library](table if binary_view else records) == expected


def test_each_batch_has_its_own_timestamp_type() -> None:
    chunk = _chunk(batch(plain(0, 1)) + batch(plain(2), log_append=True, max_timestamp=9) + batch(plain(3)))
    assert chunk.to_arrow().column("timestamp_type").to_pylist() == [0, 0, 1, 0]
    _, right = chunk.split(2)
    assert right.to_arrow().column("timestamp_type").to_pylist() == [1, 0]


def test_of_more_topic_names_than_a_column_holds_the_error_says_what_to_do() -> None:
    with pytest.raises(OverflowError, match="do not fit into one Arrow column; use dictionary=True"):
        arrow._repeated(b"t" * 249, 9_000_000)


def test_offsets_are_not_copied() -> None:
    chunk = _chunk(batch(plain(0, 1, 2)))
    first, second = (chunk.to_arrow().column("offset").buffers()[1].address for _ in range(2))
    assert first == second


class Counted:
    """A decoder's columns, and which of them were requested."""

    def __init__(self, columns: Any) -> None:
        self._columns = columns
        self.requested: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._ask(name, *arguments)

    def _ask(self, name: str, *arguments: Any) -> Any:
        self.requested.append((name, *arguments))
        return getattr(self._columns, name)(*arguments)


def test_of_columns_that_are_not_chosen_nothing_is_made() -> None:
    rows = [Rec(offset=n, timestamp=n, key=b"k", value=b"v", headers=(("h", b"1"),)) for n in range(3)]
    chunk = _chunk(batch(rows))
    counted = Counted(chunk.columns)
    table = arrow.to_arrow(cast(Any, counted), chunk.topic_partition, 0, 3, ["value", "partition"])
    assert table.schema.names == ["value", "partition"]
    assert counted.requested == [("binary", 1, 0, 3)], "neither headers, an object a record, nor any other"
    counted.requested.clear()
    arrow.to_arrow(cast(Any, counted), chunk.topic_partition, 0, 3, ["offset"], binary_view=True)
    assert [name for name, *_ in counted.requested] == ["longs"], "nothing is copied for columns that are not made"
    assert chunk.to_arrow(["offset"]).to_pydict() == {"offset": [0, 1, 2]}
    with pytest.raises(KeyError):
        chunk.to_arrow(["body"])


@pytest.mark.parametrize("compiled", [True, False])
def test_a_batch_without_columns_has_its_rows(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    if not compiled:
        monkeypatch.setattr(arrow, "COMPILED", False)
    made = _chunk(batch(plain(0, 1, 2))).to_arrow([])
    assert (made.num_rows, made.schema.names) == (3, [])
    made.validate(full=True)


def test_arrow_outlives_the_chunk() -> None:
    chunk = _chunk(batch(plain(*range(300))))
    table = chunk.to_arrow()
    del chunk
    assert table.column("value").to_pylist() == [b"v%d" % n for n in range(300)]
    assert pa.Table.from_batches([table]).num_rows == 300


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"instride\[arrow\]"):
        _chunk(batch(plain(0))).to_arrow()


@given(rows=bodies, chosen=st.none() | st.lists(st.sampled_from(arrow.schema().names), unique=True))
def test_a_batch_that_is_handed_over_whole_is_what_pyarrow_makes_of_the_parts(
    rows: list[tuple[Any, Any, Any]], chosen: list[str] | None
) -> None:
    chunk = _chunk(batch([Rec(offset=n, timestamp=n, key=k, value=v) for n, (k, v, _) in enumerate(rows)]))
    whole = chunk.to_arrow(chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "COMPILED", False)
        assert whole == chunk.to_arrow(chosen)
    assert whole.schema == chunk.to_arrow(chosen).schema
    whole.validate(full=True)


def test_what_was_handed_over_lives_as_long_as_the_last_part_of_it() -> None:
    text = bytearray(b"abcdef")
    before = sys.getrefcount(text)
    nodes: list[Any] = [(2, (None, memoryview(b"\0\0\0\0\3\0\0\0\6\0\0\0"), text), (), None) for _ in range(2)]
    fields = pa.schema([("a", pa.string()), ("b", pa.string())])
    address = arrow_array.export((2, (None,), tuple(nodes), None))
    made = pa.RecordBatch._import_from_c(address, fields)
    arrow_array.discard(address)
    del nodes
    kept = made.column(1).slice(1)
    del made
    assert kept.to_pylist() == ["def"]
    del kept
    assert sys.getrefcount(text) == before


@pytest.mark.parametrize("refused", [None, 7, "text"])
def test_what_cannot_be_exported_or_is_not_imported_is_freed(refused: Any) -> None:
    text = bytearray(b"abc")
    before = sys.getrefcount(text)
    good: Any = (3, (None, text), (), (3, (None, text), (), None))
    if refused is None:
        arrow_array.discard(arrow_array.export((3, (None,), (good, good), None)))
    else:
        with pytest.raises(TypeError):
            arrow_array.export((3, (None,), (good, (3, (None, refused), (), None)), None))
        with pytest.raises(TypeError):
            arrow_array.export((3, (None, text), (), (3, (None, refused), (), None)))
    del good
    assert sys.getrefcount(text) == before


@pytest.mark.parametrize("views", [False, True])
def test_a_batch_costs_pyarrow_a_call(views: bool) -> None:
    """Each of its calls gives up the GIL."""
    chunk = _chunk(batch([Rec(offset=n, timestamp=n, value=b"value") for n in range(9)]))
    chunk.to_arrow(binary_view=views, dictionary=views)
    calls: list[str] = []

    def count(_frame: object, event: str, made: object) -> None:
        if event == "c_call" and (getattr(made, "__module__", "") or "").startswith("pyarrow"):
            calls.append(getattr(made, "__qualname__", ""))

    sys.setprofile(count)
    chunk.to_arrow(binary_view=views, dictionary=views)
    sys.setprofile(None)
    assert len(calls) <= 1, calls
