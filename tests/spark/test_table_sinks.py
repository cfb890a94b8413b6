"""Sinks that are tables: a commit that another's comes into, what an engine's upkeep does to them, what they refuse."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType
from table_help import MAKERS, READERS, catalog, delta, iceberg

from instride.errors import MissingDataError, NotASinkError, SinkError, SinkWriteError
from instride.records import TopicPartition
from instride.spark import DeltaSink, IcebergSink
from instride.spark._tables import delta as delta_module
from instride.spark._tables import iceberg as iceberg_module
from instride.spark._tables.combining import Combiner
from instride.spark._tables.table_sink import Reached, Snapshot, TableSink
from instride.spark._tables.writer import TableWriter
from instride.spark.contract import CHECKS, SCHEMA, SinkUnderTest
from instride.spark.sink import CommitOutcome, CommitStatus, FileInfo, JobResult, OutputRange, Sink, WrittenRange

COMMITTED, CONFLICT = CommitStatus.COMMITTED, CommitStatus.CONFLICT
Place = Callable[[Path], SinkUnderTest]
both = pytest.mark.parametrize("place", [delta, iceberg], ids=["delta", "iceberg"])
each_format = pytest.mark.parametrize("kind", ["delta", "iceberg"])
AT = TopicPartition("flights", 0)
SIZES = pa.schema([("offset", pa.int64()), ("size", pa.int64())])
NOTED = SIZES.append(pa.field("note", pa.string()))


def span(start: int, end: int, partition: int = 0) -> OutputRange:
    return OutputRange(topic="flights", partition=partition, start=start, end=end)


def batches(output: OutputRange, job: str) -> Iterator[pa.RecordBatch]:
    offsets = list(range(output.start, output.end))
    rows = {"partition": [output.partition] * len(offsets), "offset": offsets, "job": [job] * len(offsets)}
    yield pa.RecordBatch.from_pydict(rows, schema=SCHEMA)


def write(sink: Sink, output: OutputRange, job: str) -> WrittenRange:
    return sink.writer().write(output, job=job, attempt=0, batches=batches(output, job))


def commit(sink: Sink, job: str, *written: WrittenRange) -> list[CommitOutcome]:
    found = sink.commit(JobResult(job=job, written=written))
    return [found[each.range.topic_partition] for each in written]


def put(sink: Sink, start: int, **columns: Any) -> CommitStatus:
    """Write and commit one row, at this offset of partition 0."""
    output = span(start, start + 1)
    written = sink.writer().write(output, job=f"j{start}", attempt=0, batches=iter([pa.record_batch(columns)]))
    (outcome,) = commit(sink, f"j{start}", written)
    return outcome.status


def add_note(kind: str, folder: Path) -> None:
    """As an engine's ALTER TABLE ... ADD COLUMN."""
    if kind == "delta":
        DeltaTable(str(folder)).alter.add_columns([Field("note", PrimitiveType("string"), nullable=True)])
    else:
        with catalog(folder).load_table("made.flights").update_schema() as change:
            change.add_column("note", StringType())


class Interposed:
    """A table to which another driver commits between a snapshot and the commit from it, once."""

    def __init__(self, sink: Sink, act: Callable[[], object]) -> None:
        assert isinstance(sink, TableSink)
        self._table = sink._table
        self._act: Callable[[], object] | None = act
        self.commits = 0
        self.name = "interposed"

    def writer(self) -> TableWriter:
        return self._table.writer()

    def snapshot(self) -> Snapshot:
        return _Late(self, self._table.snapshot())

    def act(self) -> None:
        self.commits += 1
        act, self._act = self._act, None
        if act is not None:
            act()


class _Late:
    def __init__(self, table: Interposed, snapshot: Snapshot) -> None:
        self._table = table
        self._snapshot = snapshot
        self.folder = snapshot.folder

    def reached(self, partition: TopicPartition) -> Reached | None:
        return self._snapshot.reached(partition)

    def commit(self, reached: Mapping[TopicPartition, Reached], files: Sequence[FileInfo]) -> bool:
        self._table.act()
        return self._snapshot.commit(reached, files)


@both
@pytest.mark.parametrize("begun", [False, True])
def test_a_commit_that_another_comes_into_is_decided_anew(place: Place, begun: bool, tmp_path: Path) -> None:
    case = place(tmp_path / "out")
    other, sink = case.make(), case.make()
    if begun:
        sink.begin(TopicPartition("flights", 0), 0)
    quicker, mine = write(other, span(0, 7), "other"), [write(sink, span(0, 5, p), "mine") for p in (0, 1)]
    outcomes = commit(TableSink(Interposed(sink, lambda: commit(other, "other", quicker))), "mine", *mine)
    assert outcomes == [
        CommitOutcome(status=CONFLICT, position=7),
        CommitOutcome(status=COMMITTED, position=5),
    ]
    case.holds((span(0, 7), "other"), (span(0, 5, 1), "mine"))


@both
@pytest.mark.parametrize("known", [0, 3])
def test_a_start_that_another_sets_meanwhile_stands(place: Place, known: int, tmp_path: Path) -> None:
    case = place(tmp_path / "out")
    other, sink = case.make(), case.make()
    for number in range(1, 1 + known):  # a table that has been committed to, or never
        sink.begin(TopicPartition("flights", number), 0)
    partition = TopicPartition("flights", 0)
    assert TableSink(Interposed(sink, lambda: other.begin(partition, 70))).begin(partition, 3) == 70
    assert case.make().positions([partition]) == {partition: 70}


@both
def test_many_ranges_are_one_commit(place: Place, tmp_path: Path) -> None:
    sink = place(tmp_path / "out").make()
    watched = Interposed(sink, lambda: None)
    parts = [write(sink, span(0, 3, partition), "a") for partition in range(12)]
    assert all(each.is_in for each in commit(TableSink(watched), "a", *parts))
    assert watched.commits == 1


def test_what_threads_ask_during_a_commit_is_done_by_the_next() -> None:
    begun, go = threading.Event(), threading.Event()
    rounds: list[list[int]] = []

    def work(requests: Sequence[int]) -> Sequence[int | BaseException]:
        rounds.append(list(requests))
        begun.set()
        assert go.wait(60)
        if 4 in requests:
            raise OSError("the round fails")
        return [ValueError("its own") if each == 3 else each * 10 for each in requests]

    combiner = Combiner(work)
    results: dict[int, object] = {}

    def ask(number: int) -> None:
        try:
            results[number] = combiner(number)
        except (ValueError, OSError) as error:
            results[number] = str(error)

    def start(number: int, queued: int) -> threading.Thread:
        thread = threading.Thread(target=ask, args=(number,))
        thread.start()
        while len(combiner._queue) < queued:
            threading.Event().wait(0.001)
        return thread

    first = threading.Thread(target=ask, args=(1,))
    first.start()
    assert begun.wait(60)
    threads = [first, start(2, 1), start(3, 2)]
    go.set()
    for thread in threads:
        thread.join()
    assert rounds[0] == [1]
    assert sorted(rounds[1]) == [2, 3]
    ask(4)
    assert results == {1: 10, 2: 20, 3: "its own", 4: "the round fails"}


@both
def test_missing_files_keep_only_their_range_back(place: Place, tmp_path: Path) -> None:
    case = place(tmp_path / "out")
    sink = case.make()
    lost, fine = (write(sink, span(0, 3, partition), "a") for partition in (0, 1))
    Path(sink.writer().folder, lost.files[0].path).unlink()  # type: ignore[attr-defined]
    with pytest.raises(MissingDataError, match="share that folder"):
        commit(sink, "a", lost, fine)
    case.holds((span(0, 3, 1), "a"))
    with pytest.raises(ValueError, match="not a file of job b"):
        commit(sink, "b", fine)


@both
def test_a_file_that_the_system_refuses_keeps_only_its_range_back(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = place(tmp_path / "out")
    sink = case.make()
    refused, fine = (write(sink, span(0, 3, partition), "a") for partition in (0, 1))
    real = Path.stat

    def stat(path: Path, **named: Any) -> object:
        if str(path).endswith(refused.files[0].path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stat)
        with pytest.raises(SinkError, match=r"Permission denied.*the driver's user") as caught:
            commit(sink, "a", refused, fine)
    assert not isinstance(caught.value, MissingDataError)
    case.holds((span(0, 3, 1), "a"))
    assert [each.status for each in commit(sink, "a", refused)] == [COMMITTED]


@both
def test_a_commit_whose_outcome_is_unknown_is_repeated(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = place(tmp_path / "out")
    sink = case.make()
    written = write(sink, span(0, 3), "a")
    without_response = Interposed(sink, lambda: None)
    snapshot = without_response.snapshot

    def silent() -> Snapshot:
        found = snapshot()
        real = found.commit

        def commit_and_say_nothing(*args: Any) -> bool:
            real(*args)
            raise SinkWriteError("no response came")

        monkeypatch.setattr(found, "commit", commit_and_say_nothing)
        return found

    monkeypatch.setattr(without_response, "snapshot", silent)
    with pytest.raises(SinkWriteError, match="no response"):
        commit(TableSink(without_response), "a", written)
    assert [each.status for each in commit(sink, "a", written)] == [CommitStatus.ALREADY]
    case.holds((span(0, 3), "a"))


@both
def test_results_are_fitted_to_the_tables_columns_or_refused(place: Place, tmp_path: Path) -> None:
    writer = place(tmp_path / "out").make().writer()
    narrow = pa.record_batch({"job": ["a"], "offset": pa.array([1], pa.int32()), "partition": pa.array([0], pa.int8())})
    assert writer.write(span(0, 1), job="a", attempt=0, batches=iter([narrow])).rows == 1
    for wrong, text in (
        (pa.record_batch({"delay": [1]}), "no columns delay"),
        (pa.record_batch({"partition": ["x"], "offset": [1], "job": ["a"]}), "does not fit"),
    ):
        with pytest.raises(SinkError, match=text):
            writer.write(span(0, 1), job="a", attempt=0, batches=iter([wrong]))


INNER = pa.struct([("x", pa.int64())])
MORE, CASED = pa.struct([("x", pa.int64()), ("note", pa.string())]), pa.struct([("X", pa.int64())])
TWICE = pa.struct([("x", pa.int64()), ("x", pa.int64())])
AROUND: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "a": lambda kind: kind,
    "a.y": lambda kind: pa.struct([("y", kind)]),
    "a.element": pa.list_,
    "a.key": lambda kind: pa.map_(kind, pa.int64()),
    "a.value": lambda kind: pa.map_(pa.int64(), kind),
}
OTHER_LISTS = (pa.large_list, lambda kind: pa.list_(kind, 1), pa.list_view, pa.large_list_view)
NESTED = [
    *((around, around, given) for around in AROUND.values() for given in (MORE, CASED, TWICE)),
    *((pa.list_, around, MORE) for around in OTHER_LISTS),
]


@each_format
@pytest.mark.parametrize(("there", "given", "inner"), NESTED)
def test_a_field_within_a_column_that_the_table_lacks_is_refused(
    kind: str,
    there: Callable[[pa.DataType], pa.DataType],
    given: Callable[[pa.DataType], pa.DataType],
    inner: pa.DataType,
    tmp_path: Path,
) -> None:
    sink = MAKERS[kind](tmp_path / "out", pa.schema([("offset", pa.int64()), ("a", there(INNER))]))
    (path,) = (path for path, around in AROUND.items() if around is there)
    with pytest.raises(SinkError, match=rf"there is no field {path}\.{inner.names[-1]} to take.*: a is ") as caught:
        put(sink, 0, offset=[0], a=pa.nulls(1, given(inner)))
    assert not caught.value.retriable


MISREAD = [
    (pa.timestamp("us", tz="UTC"), pa.int64(), 1, "a number does not tell its unit"),
    (pa.timestamp("us", tz="UTC"), pa.uint32(), 1, "a number does not tell its unit"),
    (pa.date32(), pa.int32(), 1, "a number does not tell its unit"),
    (pa.bool_(), pa.float64(), 0.5, "returned double: return booleans"),
    (pa.timestamp("us", tz="UTC"), pa.dictionary(pa.int32(), pa.int64()), 1, "a number does not tell its unit"),
    (pa.bool_(), pa.dictionary(pa.int32(), pa.float64()), 0.5, "returned double: return booleans"),
]


HOLDING: dict[str, Callable[[Any], Any]] = {
    "a": lambda value: value,
    "a.y": lambda value: {"y": value},
    "a.element": lambda value: [value],
    "a.value": lambda value: [(7, value)],
}


@each_format
@pytest.mark.parametrize("around", HOLDING)
@pytest.mark.parametrize(
    ("there", "given", "number", "told"), MISREAD, ids=[f"{each[1]} for {each[0]}" for each in MISREAD]
)
def test_a_number_is_not_taken_for_what_was_hardly_meant(
    kind: str, around: str, there: pa.DataType, given: pa.DataType, number: float, told: str, tmp_path: Path
) -> None:
    """Milliseconds were taken for microseconds, 0.5 for true."""
    sink = MAKERS[kind](tmp_path / "out", pa.schema([("a", AROUND[around](there))]))
    with pytest.raises(SinkError, match=rf"{re.escape(around)} is .*{told}") as caught:
        put(sink, 0, a=pa.array([HOLDING[around](number)], AROUND[around](given)))
    assert not caught.value.retriable
    assert put(sink, 0, a=pa.nulls(1, AROUND[around](there))) is COMMITTED


@each_format
def test_a_float_that_is_0_or_1_is_a_boolean(kind: str, tmp_path: Path) -> None:
    """So pandas gives a flag that some records lack: its batch failed the range."""
    sink = MAKERS[kind](tmp_path / "out", pa.schema([("late", pa.bool_())]))
    assert put(sink, 0, late=pa.array([0.0, 1.0, None])) is COMMITTED
    assert READERS[kind](tmp_path / "out")["late"].to_pylist() == [False, True, None]


@each_format
def test_a_column_that_holds_no_value_is_taken_whatever_its_type(kind: str, tmp_path: Path) -> None:
    """So pandas gives a column of nulls, or one that `apply` gave for no rows: its batch failed the range for ever."""
    times = pa.timestamp("us", tz="UTC")
    sink = MAKERS[kind](tmp_path / "out", pa.schema([("at", times), ("late", pa.bool_()), ("l", pa.list_(times))]))
    lists = pa.array([[None]], pa.list_(pa.int64()))
    assert put(sink, 0, at=pa.nulls(1, pa.int64()), late=pa.nulls(1, pa.float64()), l=lists) is COMMITTED
    assert READERS[kind](tmp_path / "out").to_pylist() == [{"at": None, "late": None, "l": [None]}]


@each_format
def test_a_nested_field_that_is_not_returned_is_null_as_a_column_is(kind: str, tmp_path: Path) -> None:
    sink = MAKERS[kind](tmp_path / "out", pa.schema([("offset", pa.int64()), ("a", MORE), ("l", pa.list_(MORE))]))
    assert put(sink, 0, offset=[0], a=pa.array([{"x": 7}]), l=pa.array([[{"note": "n"}]])) is COMMITTED
    (row,) = READERS[kind](tmp_path / "out").to_pylist()
    assert row == {"offset": 0, "a": {"x": 7, "note": None}, "l": [{"x": None, "note": "n"}]}


@each_format
@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
def test_a_list_view_is_refused_since_arrow_cannot_make_lists_of_it(
    kind: str, view: Callable[[pa.DataType], pa.DataType], tmp_path: Path
) -> None:
    """Its lists were empty or another's."""
    sink = MAKERS[kind](tmp_path / "out", pa.schema([("offset", pa.int64()), ("l", pa.list_(pa.int64()))]))
    with pytest.raises(SinkError, match=r"l is (large_)?list_view<.*return lists"):
        put(sink, 0, offset=[0], l=pa.array([[1, 2]], view(pa.int64())))


@each_format
def test_a_required_column_is_written_and_its_lack_is_told(kind: str, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("offset", pa.int64(), nullable=False), ("note", pa.string())])
    sink = MAKERS[kind](tmp_path / "out", schema)
    assert put(sink, 0, offset=[0]) is COMMITTED
    assert put(MAKERS[kind](tmp_path / "out", schema), 1, offset=[1], note=["late"]) is COMMITTED
    rows = READERS[kind](tmp_path / "out").sort_by("offset").to_pylist()
    assert rows == [{"offset": 0, "note": None}, {"offset": 1, "note": "late"}]
    for wrong in ({"offset": pa.array([None], pa.int64())}, {"note": ["x"]}):
        with pytest.raises(SinkError, match=r"table.*\boffset\b") as caught:
            put(sink, 2, **wrong)
        assert not caught.value.retriable


@each_format
def test_a_pipeline_goes_on_while_a_column_is_added(kind: str, tmp_path: Path) -> None:
    """The order that the page tells: first the table, then the function and the schema, driver by driver."""
    folder = tmp_path / "out"
    old = MAKERS[kind](folder, SIZES)
    writer = old.writer()
    assert put(old, 0, offset=[0], size=[0]) is COMMITTED
    add_note(kind, folder)
    one = pa.record_batch({"offset": [1], "size": [1]})
    (outcome,) = commit(old, "j1", writer.write(span(1, 2), job="j1", attempt=0, batches=iter([one])))
    assert outcome.status is COMMITTED
    assert put(old, 2, offset=[2], size=[2]) is COMMITTED
    assert put(MAKERS[kind](folder, SIZES), 3, offset=[3], size=[3]) is COMMITTED
    assert put(MAKERS[kind](folder, NOTED), 4, offset=[4], size=[4], note=["new"]) is COMMITTED
    assert put(MAKERS[kind](folder, SIZES), 5, offset=[5], size=[5]) is COMMITTED
    rows = READERS[kind](folder).sort_by("offset").to_pylist()
    assert rows == [{"offset": each, "size": each, "note": "new" if each == 4 else None} for each in range(6)]


@each_format
def test_batches_of_a_range_with_and_without_a_column_are_one_file(kind: str, tmp_path: Path) -> None:
    sink = MAKERS[kind](tmp_path / "out", NOTED)
    batches = [pa.record_batch({"offset": [0], "note": ["x"]}), pa.record_batch({"size": [7], "offset": [1]})]
    commit(sink, "a", sink.writer().write(span(0, 2), job="a", attempt=0, batches=iter(batches)))
    rows = READERS[kind](tmp_path / "out").sort_by("offset").to_pylist()
    assert rows == [{"offset": 0, "size": None, "note": "x"}, {"offset": 1, "size": 7, "note": None}]


@each_format
@pytest.mark.parametrize(
    ("given", "text"),
    [
        (NOTED, "it has no column note"),
        (pa.schema([("offset", pa.int64()), ("size", pa.string())]), "its column size is int64 and not"),
        (pa.schema([("size", pa.int64())]), "its column offset is required"),
        (pa.schema([("offset", pa.int64()), ("at", pa.struct([("y", pa.int64())]))]), r"it has no column at\.y"),
    ],
    ids=["absent", "type", "required", "nested"],
)
def test_a_schema_that_the_table_does_not_have_is_refused(
    kind: str, given: pa.Schema, text: str, tmp_path: Path
) -> None:
    at = pa.field("at", pa.struct([("x", pa.int64()), ("z", pa.int64())]))
    there = pa.schema([pa.field("offset", pa.int64(), nullable=False), ("size", pa.int64()), at])
    MAKERS[kind](tmp_path / "out", there).begin(AT, 0)
    with pytest.raises(NotASinkError, match=text):
        MAKERS[kind](tmp_path / "out", given).positions([AT])
    fine = pa.schema([("offset", pa.int64()), ("at", pa.struct([("x", pa.int64())]))])
    assert MAKERS[kind](tmp_path / "out", fine).positions([AT]) == {AT: 0}


INTEGERS, FLOATS = [pa.int32(), pa.int64()], [pa.float32(), pa.float64()]
DECIMALS = [pa.decimal128(10, 2), pa.decimal128(12, 2), pa.decimal128(12, 3)]
KINDS = (*INTEGERS, *FLOATS, *DECIMALS, pa.string(), pa.bool_(), pa.date32())
WIDER = {(INTEGERS[1], INTEGERS[0]), (FLOATS[1], FLOATS[0]), (DECIMALS[1], DECIMALS[0])}
"""What a table has, and what a schema may give then."""


@each_format
@pytest.mark.parametrize("there", KINDS, ids=str)
def test_a_schema_with_narrower_types_than_the_tables_fits(kind: str, there: pa.DataType, tmp_path: Path) -> None:
    """As after the table's column was widened, by the order that the page tells: first the table, then the schema."""
    MAKERS[kind](tmp_path / "out", nested(there)).begin(AT, 0)
    at = 0
    for given in KINDS:
        sink = MAKERS[kind](tmp_path / "out", nested(given))
        if given != there and (there, given) not in WIDER:
            assert "its column at.x is" in (refusal(sink.writer) or "")
            continue
        value = pa.array([{"x": None}], nested(given).field("at").type)
        assert put(sink, at, at=value) is COMMITTED
        at += 1
    assert at >= 1
    assert len(READERS[kind](tmp_path / "out")) == at


def nested(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("at", pa.struct([("x", kind)]))])


TYPES = (
    *(pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int64(), pa.uint32(), pa.uint64(), pa.float16(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(16), pa.decimal128(20, 3)),
    *(pa.decimal256(50, 3), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("s")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp(unit, tz=zone) for unit in ("us", "ns") for zone in ("UTC", "Europe/Berlin", "+01:00")),
    *(pa.month_day_nano_interval(), pa.dictionary(pa.int32(), pa.string()), pa.map_(pa.string(), pa.int64())),
    *(pa.list_(pa.int64()), pa.struct([("x", pa.timestamp("ns", tz="Europe/Berlin"))])),
    *(pa.map_(pa.string(), pa.timestamp("us", tz=zone)) for zone in ("UTC", None)),
    *(pa.list_(pa.map_(pa.timestamp("us"), pa.int64())), pa.struct([("x", pa.list_(pa.timestamp("us")))])),
    *(pa.map_(pa.string(), pa.struct([("x", pa.list_(pa.timestamp("us")))])), pa.struct([]), pa.list_(pa.struct([]))),
)


@each_format
@pytest.mark.parametrize("given", TYPES, ids=str)
def test_a_type_is_written_or_refused_by_its_columns_name(kind: str, given: pa.DataType, tmp_path: Path) -> None:
    schema, folder = pa.schema([("offset", pa.int64()), ("what", given)]), tmp_path / "out"
    what = pa.array([greatest(given), None], given)
    refused = refusal(lambda: put(MAKERS[kind](folder, schema), 0, offset=[0], what=what[:1]))
    if refused is None:
        assert put(MAKERS[kind](folder, schema), 1, offset=[1], what=what[1:]) is COMMITTED
        found, second = READERS[kind](folder).sort_by("offset").to_pylist()
        assert found == {"offset": 0, "what": what[0].as_py()}
        # pyiceberg reads a null map of structs as an empty one.
        assert (second["offset"], second["what"] or None) == (1, None)
    else:
        assert "cannot have the column what of type" in refused
        assert "timestamps in microseconds" in refused
        assert not list(folder.rglob("_delta_log")), "a table is left that cannot be a sink"


@each_format
@pytest.mark.parametrize(("bits", "instead"), [(8, "int16"), (16, "int32"), (32, "int64"), (64, "decimal128(20, 0)")])
@pytest.mark.parametrize("around", AROUND)
def test_an_unsigned_type_is_refused_with_one_that_holds_its_values(
    kind: str, bits: int, instead: str, around: str, tmp_path: Path
) -> None:
    """Unless the format has a wider one: rows were refused, of a table that could not be mended."""
    names = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
    given = pa.schema([("what", AROUND[around](names[bits]))])
    told = refusal(MAKERS[kind](tmp_path / "out", given).writer)
    assert (told is None) == (kind == "iceberg" and bits < 32)
    assert told is None or f"lacks the upper half: give {instead})" in told
    fine = pa.schema([("what", AROUND[around](pa.type_for_alias(instead) if bits < 64 else pa.decimal128(20, 0)))])
    assert refusal(MAKERS[kind](tmp_path / "other", fine).writer) is None
    if around == "a":
        value = pa.array([2**bits - 1], names[bits])
        assert put(MAKERS[kind](tmp_path / "other", fine), 0, what=value) is COMMITTED
        assert READERS[kind](tmp_path / "other").to_pylist() == [{"what": 2**bits - 1}]


@each_format
@pytest.mark.parametrize(("there", "given"), [(32, 32), (64, 32), (64, 64)])
def test_a_table_that_is_there_takes_an_unsigned_type_as_it_did(
    kind: str, there: int, given: int, tmp_path: Path
) -> None:
    """Pipelines that ran stopped at their next start: versions before made int32 of uint32."""
    folder, column = tmp_path / "out", {32: pa.int32(), 64: pa.int64()}[there]
    MAKERS[kind](folder, pa.schema([("what", column)])).begin(AT, 0)
    sink = MAKERS[kind](folder, pa.schema([("what", {32: pa.uint32(), 64: pa.uint64()}[given])]))
    assert put(sink, 0, what=pa.array([7], pa.uint32())) is COMMITTED
    if there == given:
        with pytest.raises(SinkError, match="does not fit"):
            put(sink, 1, what=pa.array([2 ** (there - 1)], pa.uint64()))
    assert READERS[kind](folder).to_pylist() == [{"what": 7}]


@each_format
@pytest.mark.parametrize("inner", [pa.list_(pa.int64()), pa.struct([("x", pa.int64())])], ids=str)
def test_a_dictionary_of_nested_values_is_a_column_of_those_values(
    kind: str, inner: pa.DataType, tmp_path: Path
) -> None:
    """It was refused with an error of zip's."""
    schema = pa.schema([("what", pa.dictionary(pa.int32(), inner))])
    sink = MAKERS[kind](tmp_path / "out", schema)
    value = [7] if pa.types.is_list(inner) else {"x": 7}
    assert put(sink, 0, what=pa.array([value], inner)) is COMMITTED
    assert READERS[kind](tmp_path / "out").to_pylist() == [{"what": value}]
    unsigned = pa.schema([("what", pa.dictionary(pa.int32(), pa.list_(pa.uint64())))])
    assert "give decimal128(20, 0))" in (refusal(MAKERS[kind](tmp_path / "other", unsigned).writer) or "")


@each_format
def test_a_float_that_the_column_does_not_hold_is_refused(kind: str, tmp_path: Path) -> None:
    """It was inf."""
    sink = MAKERS[kind](tmp_path / "out", pa.schema([("what", pa.float32())]))
    fine = [-3e38, float("inf"), None]
    assert put(sink, 0, what=fine) is COMMITTED
    assert READERS[kind](tmp_path / "out")["what"].to_pylist() == pa.array(fine, pa.float32()).to_pylist()
    with pytest.raises(SinkError, match="what is float, which has no number as great") as caught:
        put(sink, 1, what=[1.0, None, -1e300])
    assert not caught.value.retriable


def greatest(kind: pa.DataType) -> Any:
    """A value of the type that a smaller one would not hold."""
    if pa.types.is_integer(kind):
        return 2 ** (kind.bit_width - pa.types.is_signed_integer(kind)) - 1
    if pa.types.is_decimal(kind):
        return Decimal("9" * kind.precision).scaleb(-kind.scale, Context(prec=kind.precision))
    if pa.types.is_struct(kind):
        return {field.name: greatest(field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(greatest(kind.key_type), greatest(kind.item_type))]
    if pa.types.is_list(kind):
        return [greatest(kind.value_type)]
    if pa.types.is_timestamp(kind):
        return datetime(2200 if kind.unit == "ns" else 9000, 12, 31, 23, 59, 59, tzinfo=UTC if kind.tz else None)
    return GREATEST.get(str(kind), "\U0010ffff")


GREATEST: dict[str, Any] = {
    "null": None,
    "bool": True,
    "halffloat": 65504.0,
    "double": sys.float_info.max,
    "binary": b"\xff",
    "fixed_size_binary[16]": b"\xff" * 16,
    **dict.fromkeys(("date32[day]", "date64[ms]"), date.max),
    **dict.fromkeys(("time32[s]", "time64[us]"), time(23, 59, 59)),
    "duration[s]": timedelta(days=9999),
    "month_day_nano_interval": (1, 2, 3),
}


def refusal(work: Callable[[], object]) -> str | None:
    try:
        work()
    except NotASinkError as error:
        return str(error)
    return None


def test_an_iceberg_column_renamed_under_a_pipeline_is_told(tmp_path: Path) -> None:
    sink = MAKERS["iceberg"](tmp_path / "out", SIZES)
    one = pa.record_batch({"offset": [0], "size": [0]})
    written = sink.writer().write(span(0, 1), job="a", attempt=0, batches=iter([one]))
    with catalog(tmp_path / "out").load_table("made.flights").update_schema() as change:
        change.rename_column("size", "bytes")
    with pytest.raises(SinkError, match=r"made\.flights does not .* no column size.*Start the pipeline") as caught:
        commit(sink, "a", written)
    assert not caught.value.retriable
    assert put(IcebergSink(catalog(tmp_path / "out"), "made.flights"), 0, offset=[0], bytes=[0]) is COMMITTED


def test_deltas_own_upkeep_does_not_move_offsets(tmp_path: Path) -> None:
    """Checkpoints, merged files and a vacuum; a driver whose snapshot is from before all that goes on."""
    case, at = delta(tmp_path / "out"), TopicPartition("flights", 0)
    old = case.make()
    for start in range(0, 12, 3):
        commit(case.make(), f"j{start}", write(old, span(start, start + 3), f"j{start}"))
    unseen = write(old, span(0, 9), "zombie")
    table = DeltaTable(str(tmp_path / "out"))
    table.optimize.compact()
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert not (tmp_path / "out" / unseen.files[0].path).exists()
    assert case.make().positions([at]) == old.positions([at]) == {at: 12}
    assert [each.status for each in commit(old, "z", write(old, span(12, 14), "z"))] == [COMMITTED]
    case.holds(*((span(start, start + 3), f"j{start}") for start in range(0, 12, 3)), (span(12, 14), "z"))


def test_a_log_that_cannot_be_synced_is_told_and_synced_whole_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, sink = (DeltaSink(tmp_path / "out", schema=SCHEMA) for _ in range(2))
    sink.begin(AT, 0)
    for number in (1, 2, 3):
        other.begin(TopicPartition("flights", number), 0)
    broken, opened = [True], list[str]()

    def fsync(_handle: int) -> None:
        if broken[0]:
            raise OSError(5, "Input/output error")

    def open_noted(path: Path, flags: int) -> int:
        opened.append(path.name)
        return os.open(path, flags)

    mine = SimpleNamespace(O_RDONLY=os.O_RDONLY, open=open_noted, fsync=fsync, close=os.close)
    monkeypatch.setattr(delta_module, "os", mine)
    with pytest.raises(SinkWriteError, match="cannot sync the log of the Delta table"):
        sink.positions([AT])
    broken[0] = False
    opened.clear()
    assert sink.positions([AT]) == {AT: 0}
    assert opened == [*(f"{version:020d}.json" for version in (2, 3, 4)), "_delta_log"]


def test_deltas_restore_leaves_offsets_and_a_second_restore_mends_it(tmp_path: Path) -> None:
    """What the page tells of it."""
    case, folder = delta(tmp_path / "out"), str(tmp_path / "out")
    for start in (0, 3):
        commit(case.make(), f"j{start}", write(case.make(), span(start, start + 3), f"j{start}"))
    newest = DeltaTable(folder).version()
    DeltaTable(folder).restore(newest - 1)
    case.holds((span(0, 3), "j0"))
    assert case.make().positions([AT]) == {AT: 6}
    DeltaTable(folder).restore(newest)
    commit(case.make(), "j6", write(case.make(), span(6, 9), "j6"))
    case.holds(*((span(start, start + 3), f"j{start}") for start in (0, 3, 6)))


def test_icebergs_rollback_leaves_offsets_and_going_forward_again_mends_it(tmp_path: Path) -> None:
    case = iceberg(tmp_path / "out")
    for start in (0, 3):
        commit(case.make(), f"j{start}", write(case.make(), span(start, start + 3), f"j{start}"))
    table = catalog(tmp_path / "out").load_table("made.flights")
    first, newest = (each.snapshot_id for each in table.snapshots())
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    case.holds((span(0, 3), "j0"))
    assert case.make().positions([AT]) == {AT: 6}
    table.refresh().manage_snapshots().set_current_snapshot(newest).commit()
    commit(case.make(), "j6", write(case.make(), span(6, 9), "j6"))
    case.holds(*((span(start, start + 3), f"j{start}") for start in (0, 3, 6)))


def test_icebergs_expiry_of_snapshots_does_not_move_offsets(tmp_path: Path) -> None:
    case, at = iceberg(tmp_path / "out"), TopicPartition("flights", 0)
    sink = case.make()
    for start in range(0, 9, 3):
        commit(sink, f"j{start}", write(sink, span(start, start + 3), f"j{start}"))
    table = catalog(tmp_path / "out").load_table("made.flights")
    ids = [each.snapshot_id for each in table.snapshots()]
    table.maintenance.expire_snapshots().by_ids(ids[:-1]).commit()
    assert len(catalog(tmp_path / "out").load_table("made.flights").snapshots()) == 1
    assert sink.positions([at]) == {at: 9}
    assert len(READERS["iceberg"](tmp_path / "out")) == 9


def test_files_of_metadata_that_icebergs_commits_leave_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = "write.metadata.previous-versions-max"
    assert iceberg_module._MADE_WITH[kept] == "100", "it is Iceberg's own default"
    monkeypatch.setitem(iceberg_module._MADE_WITH, kept, "20")
    sink = MAKERS["iceberg"](tmp_path / "out", SIZES)
    for start in range(25):
        assert put(sink, start, offset=[start], size=[0]) is COMMITTED
    assert len(list(tmp_path.rglob("*.metadata.json"))) == 21
    assert _offsets(READERS["iceberg"](tmp_path / "out")) == list(range(25))


def test_places_that_are_no_delta_sink_are_refused(tmp_path: Path) -> None:
    at = TopicPartition("flights", 0)
    with pytest.raises(NotASinkError, match="give DeltaSink a schema"):
        DeltaSink(tmp_path / "absent").positions([at])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.doc").write_text("years of work")
    with pytest.raises(NotASinkError, match=r"not empty \(it holds thesis.doc\)"):
        DeltaSink(tmp_path / "other", schema=SCHEMA).positions([at])
    with pytest.raises(NotASinkError, match="not on a local file system"):
        DeltaSink("s3://bucket/flights", schema=SCHEMA)
    for name in ("a%20b", "a%2520b", "a\\b"):
        with pytest.raises(NotASinkError, match="choose a path without"):
            DeltaSink(tmp_path / name, schema=SCHEMA)
    DeltaTable.create(str(tmp_path / "parted"), SCHEMA, partition_by=["partition"])
    with pytest.raises(NotASinkError, match="the partition column partition"):
        DeltaSink(tmp_path / "parted").positions([at])
    table = DeltaTable.create(str(tmp_path / "ruled"), SCHEMA)
    table.alter.add_constraint({"late": "offset > 5"})
    with pytest.raises(NotASinkError, match=r"delta\.constraints\.late"):
        DeltaSink(tmp_path / "ruled").positions([at])
    DeltaTable.create(str(tmp_path / "old"), pa.schema([("offset", pa.int64())]))
    with pytest.raises(NotASinkError, match="other columns"):
        DeltaSink(tmp_path / "old", schema=SCHEMA).positions([at])


@pytest.mark.parametrize("name", ["my lake", "50%", "a#b", "a?b", "ünï", "a+b", "a[b]*"])
def test_a_delta_folder_of_any_other_name_by_path_and_uri(name: str, tmp_path: Path) -> None:
    for place, start in ((tmp_path / name, 0), ((tmp_path / name).as_uri(), 1)):
        assert put(DeltaSink(place, schema=SIZES), start, offset=[start], size=[0]) is COMMITTED
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert _offsets(DeltaTable(str(tmp_path / name)).to_pyarrow_table()) == [0, 1]


@pytest.mark.parametrize("name", ["my lake", "my%20lake"])
def test_an_iceberg_table_is_where_pyiceberg_takes_its_location_to_be(name: str, tmp_path: Path) -> None:
    made = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/{name}")
    for start in (0, 1):
        assert put(IcebergSink(made, "made.flights", schema=SIZES), start, offset=[start], size=[0]) is COMMITTED
    assert sorted(each.name for each in tmp_path.iterdir()) == ["catalog.db", name]
    assert _offsets(made.load_table("made.flights").scan().to_arrow()) == [0, 1]


def _offsets(table: pa.Table) -> list[int]:
    return sorted(table["offset"].to_pylist())


def test_a_rule_that_comes_while_drivers_run_stops_them(tmp_path: Path) -> None:
    sink = DeltaSink(f"file://{tmp_path}/out", schema=SCHEMA)
    commit(sink, "a", write(sink, span(0, 3), "a"))
    DeltaTable(str(tmp_path / "out")).alter.add_constraint({"late": "offset > -1"})
    with pytest.raises(NotASinkError, match=r"delta\.constraints\.late"):
        commit(sink, "b", write(sink, span(3, 6), "b"))


@pytest.mark.parametrize("around", ["struct", "array", "map"])
def test_a_rule_for_a_nested_field_is_seen(around: str, tmp_path: Path) -> None:
    """Spark keeps it; rows that break it were committed."""
    rule = {"delta.invariants": json.dumps({"expression": {"expression": "s.x > 3"}})}
    inner = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": rule}]}
    kinds: dict[str, Any] = {
        "struct": inner,
        "array": {"type": "array", "elementType": inner, "containsNull": True},
        "map": {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True},
    }
    schema = {"type": "struct", "fields": [{"name": "s", "type": kinds[around], "nullable": True, "metadata": {}}]}
    table = {
        "id": "a",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1,
    }
    log = tmp_path / "_delta_log"
    log.mkdir()
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": table}]
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(NotASinkError, match=r"a rule for the column s\.(element\.|value\.)?x"):
        DeltaSink(tmp_path).writer()


def test_places_that_are_no_iceberg_sink_are_refused(tmp_path: Path) -> None:
    made, at = catalog(tmp_path / "out"), TopicPartition("flights", 0)
    with pytest.raises(NotASinkError, match=r"no Iceberg table made\.flights .*give IcebergSink a schema"):
        IcebergSink(made, "made.flights").positions([at])
    with pytest.raises(NotASinkError, match=r"as in 'made\.flights'"):
        IcebergSink(made, "flights", schema=SCHEMA)
    made.create_namespace("made")
    made.create_table("made.retries", SCHEMA)
    with pytest.raises(NotASinkError, match=r"commit\.retry\.num-retries = 0"):
        IcebergSink(made, "made.retries").positions([at])
    table = made.create_table("made.parted", SCHEMA, properties={"commit.retry.num-retries": "0"})
    with table.update_spec() as change:
        change.add_identity("partition")
    with pytest.raises(NotASinkError, match="is partitioned"):
        IcebergSink(made, "made.parted").positions([at])


def test_the_examples_of_the_page(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "table-sinks.md").read_text(encoding="utf-8")
    made, database, checked = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "lake").mkdir()
    names: dict[str, Any] = {}
    exec(compile(made.replace("/data/", f"{tmp_path}/"), "example", "exec"), names)
    at = TopicPartition("flights", 0)
    assert [names[each].begin(at, 7) for each in ("delta", "iceberg")] == [7, 7]
    exec(compile(database, "example", "exec"), names)
    assert repr(names["database"]) == "DatabaseSink('made.sizes')"
    names = {"MySink": partial(DeltaSink, schema=SCHEMA), "rows_in": lambda folder: delta(folder).rows()}
    exec(compile(checked, "example", "exec"), names)
    names["test_my_sink_keeps_the_contract"](CHECKS[1], tmp_path / "mine")


def test_a_folder_that_cannot_be_made_is_an_error_of_the_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told as an error of reading a table that was not there yet."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(delta_module, "make_folders", full)
    with pytest.raises(SinkWriteError, match=r"cannot make the Delta table .*No space left") as raised:
        DeltaSink(tmp_path / "made", schema=SIZES).positions([AT])
    assert raised.value.retriable
