"""Values of each of Arrow's types in columns of each of Delta's and Iceberg's: a file holds them as they were, or they
are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_help import MAKERS
from test_database_sink_values import GIVEN, said
from test_table_sinks import each_format, span

from instride.errors import SinkError
from instride.spark._tables.writer import TableWriter

COLUMNS = (
    *(pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(12, 3), pa.string(), pa.binary()),
    *(pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.list_(pa.string()), pa.list_(pa.int64())),
    *(pa.struct([("a", pa.int8())]), pa.map_(pa.string(), pa.string())),
)
TIMES = [each for each in GIVEN if each.startswith(("time", "duration"))]
AS_CAST = {
    *((each, "bool") for each in GIVEN if "int" in each),
    *((each, column) for each in TIMES for column in ("int64", "string", "date32[day]")),
    ("date", "int32"),
    *((each, column) for each in ("timestamp", "date") for column in ("timestamp[us]", "timestamp[us, tz=UTC]")),
    *((each, "timestamp[us]") for each in TIMES),
    ("whole float", "string"),
}
"""Not 0 is true, a time is its number, or a part of it, and UTC is what has no zone."""


@each_format
@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_a_file_holds_a_value_as_it_was_or_the_sink_refuses_it(kind: str, column: pa.DataType, tmp_path: Path) -> None:
    writer, wrong, held = MAKERS[kind](tmp_path / "out", pa.schema([("a", column)])).writer(), list[str](), 0
    assert isinstance(writer, TableWriter)
    for at, (name, array) in enumerate(GIVEN.items()):
        batch = pa.record_batch({"a": array})
        try:
            written = writer.write(span(at, at + 1), job="j", attempt=0, batches=iter([batch]))
        except SinkError as error:
            if error.retriable:
                raise
            continue
        held += 1
        (value,), (found,) = array.to_pylist(), read(Path(writer.folder, written.files[0].path))
        if (name, str(column)) not in AS_CAST and found not in meant(value):
            wrong.append(f"{name} {value!r} is {found!r}")
    assert not wrong
    assert held > 1, "all but null are refused"


def read(path: Path) -> list[Any]:
    return list(pq.ParquetFile(path).read()["a"].to_pylist())


def meant(value: Any) -> list[Any]:
    if value is None:
        return [None]
    if isinstance(value, list):
        return [value, [None if each is None else said(each) for each in value]]
    text = said(value)
    return [value, text, text.encode(), *([int(text)] if text == "7" else [])]
