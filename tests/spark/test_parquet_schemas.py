"""The columns of files that differ: what they are together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from parquet_help import commit, span

from instride.errors import SinkError
from instride.spark.parquet import ParquetSink, read_dataframe, read_files, read_table
from instride.spark.parquet import _read as read
from instride.spark.parquet._data_source import ParquetReader, parquet_schema
from instride.spark.parquet._local_storage import LocalStorage
from instride.spark.parquet._read import schema_of
from instride.spark.parquet._schemas import together

UTC_TIME = pa.timestamp("us", "UTC")
BERLIN = pa.timestamp("us", "Europe/Berlin")
WORDS = pa.dictionary(pa.int32(), pa.string())


def _schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("a", kind)])


@pytest.mark.parametrize(
    ("kinds", "common"),
    [
        ([UTC_TIME, BERLIN], UTC_TIME),
        ([BERLIN, pa.timestamp("ns", "+00:00")], pa.timestamp("ns", "UTC")),
        ([WORDS, pa.string()], pa.string()),
        ([pa.null(), pa.string(), WORDS], pa.string()),
        ([WORDS, pa.large_string()], pa.large_string()),
        ([WORDS, pa.dictionary(pa.int32(), pa.large_string()), pa.string()], pa.large_string()),
        ([pa.dictionary(pa.int8(), BERLIN), UTC_TIME], UTC_TIME),
        ([pa.string_view(), pa.string()], pa.string()),
        ([pa.binary_view(), pa.binary()], pa.binary()),
        ([pa.uuid(), pa.binary(16)], pa.binary(16)),
        ([pa.json_(), pa.string()], pa.string()),
        ([pa.list_(WORDS), pa.list_(pa.string_view())], pa.list_(pa.string())),
        ([pa.large_list(WORDS), pa.large_list(pa.string())], pa.large_list(pa.string())),
        ([pa.list_(BERLIN, 2), pa.list_(UTC_TIME, 2)], pa.list_(UTC_TIME, 2)),
        ([pa.struct([("x", WORDS)]), pa.struct([("x", pa.string())])], pa.struct([("x", pa.string())])),
        ([pa.map_(WORDS, BERLIN), pa.map_(pa.string(), UTC_TIME)], pa.map_(pa.string(), UTC_TIME)),
    ],
    ids=str,
)
def test_forms_of_one_type_go_together_in_either_order(kinds: list[pa.DataType], common: pa.DataType) -> None:
    for order in (kinds, kinds[::-1]):
        assert together([_schema(kind) for kind in order]).field("a").type == common


def test_a_column_that_goes_together_keeps_its_form() -> None:
    one = pa.schema([("words", WORDS), ("at", BERLIN)], metadata={"made": "here"})
    other = pa.schema([("words", WORDS), ("at", UTC_TIME), ("more", BERLIN)])
    merged = together([one, other])
    assert merged == pa.schema([("words", WORDS), ("at", UTC_TIME), ("more", BERLIN)])
    assert merged.metadata == one.metadata
    assert together([one, one]) == one
    assert together([]) == pa.schema([])


@pytest.mark.parametrize(
    "kinds",
    [
        (UTC_TIME, pa.timestamp("us")),
        (WORDS, pa.list_(pa.string())),
        (pa.list_view(pa.string()), pa.list_(pa.string())),
    ],
    ids=str,
)
def test_other_types_do_not_go_together(kinds: tuple[pa.DataType, pa.DataType]) -> None:
    with pytest.raises(pa.ArrowException, match="a"):
        together([_schema(kind) for kind in kinds])


def _required(name: str, kind: pa.DataType | None = None) -> pa.Field:
    return pa.field(name, kind or pa.int64(), nullable=False)


def test_a_column_that_some_file_lacks_may_be_null() -> None:
    first = pa.schema([_required("both"), _required("gone")])
    second = pa.schema([_required("both"), _required("later")])
    for order in ([first, second], [second, first]):
        merged = together(order)
        assert {field.name: field.nullable for field in merged} == {"both": False, "gone": True, "later": True}
    assert together([first, first]) == first


@pytest.mark.parametrize("nest", [lambda kind: kind, pa.list_, lambda kind: pa.map_(pa.string(), kind)])
def test_a_field_within_that_some_file_lacks_may_be_null(nest: Callable[[pa.DataType], pa.DataType]) -> None:
    first = _schema(nest(pa.struct([_required("x")])))
    second = _schema(nest(pa.struct([_required("x"), _required("later", pa.struct([_required("y")]))])))
    loose = _schema(nest(pa.struct([("x", pa.int64()), ("later", pa.struct([("y", pa.int64())]))])))
    for order in ([first, second], [second, first]):
        assert together(order) == loose
    assert together([second, second]) == second


def test_required_columns_that_come_and_go_are_read(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    inner = pa.struct([_required("x")])
    wider = pa.struct([_required("x"), _required("later")])
    given = [
        (pa.schema([_required("gone"), pa.field("in", inner)]), {"gone": [1], "in": [{"x": 1}]}),
        (pa.schema([_required("came"), pa.field("in", wider)]), {"came": [2], "in": [{"x": 2, "later": 2}]}),
    ]
    for start, (schema, columns) in enumerate(given):
        batches = iter([pa.record_batch(columns, schema)])
        commit(sink, "j", sink.writer().write(span(start, start + 1), job="j", attempt=0, batches=batches))
    table = read_table(sink.folder)
    assert table.cast(table.schema).to_pylist() == [
        {"gone": 1, "in": {"x": 1, "later": None}, "came": None},
        {"gone": None, "in": {"x": 2, "later": 2}, "came": 2},
    ]


class _Spark:
    """Stands in for a session and its reader: says which reader was chosen."""

    @property
    def read(self) -> _Spark:
        return self

    def schema(self, _: object) -> _Spark:
        return self

    def format(self, _: object) -> _Spark:
        return self

    def option(self, *_: object) -> _Spark:
        return self

    def options(self, **_: object) -> _Spark:
        return self

    def load(self, _: str) -> str:
        return "the data source"

    def parquet(self, *_: str) -> str:
        return "Spark's own"


AT = datetime(2024, 1, 1, tzinfo=UTC)


def _write(sink: ParquetSink, columns: Sequence[pa.Array]) -> None:
    for start, column in enumerate(columns):
        batches = iter([pa.record_batch({"a": column})])
        commit(sink, "j", sink.writer().write(span(start, start + 1), job="j", attempt=0, batches=batches))


LISTS = [["x"], None, [], ["y", "x", None]]


@pytest.mark.parametrize(
    ("kinds", "values"),
    [
        ([UTC_TIME, BERLIN], [AT, None]),
        ([UTC_TIME, pa.timestamp("us", "+00:00")], [AT, None]),
        ([WORDS, pa.string()], ["x", None, "y", "x"]),
        ([pa.string_view(), pa.large_string()], ["x", None, "", "more than twelve bytes"]),
        ([pa.list_(WORDS), pa.list_(pa.string_view()), pa.list_(pa.string())], LISTS),
        ([pa.large_list(WORDS), pa.list_(pa.string())], LISTS),
        ([pa.struct([("x", WORDS)]), pa.struct([("x", pa.string())])], [{"x": "y"}, None, {"x": None}]),
        ([pa.map_(pa.string(), BERLIN), pa.map_(pa.string(), UTC_TIME)], [[("x", AT)], None, [], [("y", None)]]),
    ],
    ids=str,
)
def test_forms_of_one_type_are_read_by_every_reader(tmp_path: Path, kinds: list[Any], values: list[Any]) -> None:
    sink = ParquetSink(tmp_path / "out")
    _write(sink, [pa.array(values, kind) for kind in kinds])
    session: Any = _Spark()
    chosen: Any = read_dataframe(session, sink.folder)
    assert chosen == "Spark's own"
    options = {"path": str(sink.folder)}
    source = ParquetReader(options, parquet_schema(options))
    batches = [batch for task in source.partitions() for batch in source.read(task)]
    for table in (read_table(sink.folder), pa.Table.from_batches(batches)):
        table.validate(full=True)
        assert table["a"].to_pylist() == values * len(kinds)


@pytest.fixture
def many(tmp_path: Path) -> LocalStorage:
    sink = ParquetSink(tmp_path / "out")
    _write(sink, [pa.array([number]) for number in range(12)])
    return LocalStorage(sink.folder)


def test_equal_schemas_are_put_together_once(many: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Sequence[pa.Schema]] = []

    def record(schemas: Sequence[pa.Schema]) -> pa.Schema:
        given.append(schemas)
        return together(schemas)

    monkeypatch.setattr(read, "_FOOTERS", 5)
    monkeypatch.setattr(read, "together", record)
    assert schema_of(many).names == ["a"]
    assert [len(schemas) for schemas in given] == [1]


def test_footers_are_read_several_at_once(many: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for a second one: one after another, none would end."""
    met, real = threading.Barrier(2, timeout=30), read._schema

    def schema(*args: Any) -> pa.Schema:
        met.wait()
        return real(*args)

    monkeypatch.setattr(read, "_FOOTERS", 6)
    monkeypatch.setattr(read, "_THREADS", 2)
    monkeypatch.setattr(read, "_schema", schema)
    assert schema_of(many).names == ["a"]


def test_a_footer_that_fails_is_the_callers_error(many: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_FOOTERS", 4)
    damaged = read_files(many.folder)[6]
    Path(damaged).write_bytes(b"no Parquet")
    with pytest.raises(SinkError, match=f"^cannot read {damaged}: "):
        schema_of(many)


def test_columns_are_in_the_order_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ParquetSink(tmp_path / "out")
    for start, name in enumerate("dacabd"):
        batches = iter([pa.record_batch({name: [start]})])
        commit(sink, "j", sink.writer().write(span(start, start + 1), job="j", attempt=0, batches=batches))
    for parts in (1, 2, 6):
        monkeypatch.setattr(read, "_FOOTERS", parts)
        assert schema_of(LocalStorage(sink.folder)).names == ["d", "a", "c", "b"]
