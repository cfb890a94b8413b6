"""`format("instride-parquet")` without Spark's JVM: schema, tasks, and what a task reads."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from parquet_help import commit, span, write
from pyspark.sql.types import StructType

from instride.errors import ConfigError, MissingDataError, NotASinkError, SinkError
from instride.spark.parquet import ParquetSink, compact, read_files, vacuum
from instride.spark.parquet import _data_source as module
from instride.spark.parquet._spark_options import parse_parquet_options, spark_option
from pyspark_instride_parquet import DefaultSource


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink(tmp_path / "out")


def _add(sink: ParquetSink, start: int, batch: pa.RecordBatch) -> None:
    output = span(start, start + batch.num_rows)
    commit(sink, "j", sink.writer().write(output, job="j", attempt=0, batches=iter([batch])))


def _rows(folder: Path, schema: StructType | None = None, **options: str) -> list[dict[str, Any]]:
    return [row for batch in _read(folder, schema, **options) for row in batch.to_pylist()]


def _read(folder: Path, schema: StructType | None = None, **options: str) -> Iterator[pa.RecordBatch]:
    """As Spark does it: the schema by one copy of the source, tasks by another, reading by a third."""
    given = {"path": str(folder), **options}
    schema = schema or DefaultSource(given).schema()
    reader = DefaultSource(given).reader(schema)
    for task in reader.partitions():
        yield from pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(task)))


def test_columns_of_all_files_in_sparks_types(sink: ParquetSink) -> None:
    noon = datetime(2013, 1, 1, 12, tzinfo=UTC)
    noon_ns = int(noon.timestamp()) * 10**9 + 999
    _add(sink, 0, pa.record_batch({"a": pa.array([1], pa.int32()), "c": pa.array(["x"]).dictionary_encode()}))
    _add(
        sink, 1, pa.record_batch({"a": pa.array([2], pa.int64()), "t": pa.array([noon_ns], pa.timestamp("ns", "UTC"))})
    )
    assert DefaultSource({"path": str(sink.folder)}).schema() == (
        StructType().add("a", "long").add("c", "string").add("t", "timestamp")
    )
    expected: list[dict[str, Any]] = [{"a": 1, "c": "x", "t": None}, {"a": 2, "c": None, "t": noon}]
    assert _rows(sink.folder) == expected
    assert _rows(sink.folder, columns="t, a") == [{"t": row["t"], "a": row["a"]} for row in expected]
    assert _rows(sink.folder, StructType().add("a", "string").add("new", "integer")) == [
        {"a": "1", "new": None},
        {"a": "2", "new": None},
    ]


def test_small_files_share_a_task_and_large_ones_do_not(sink: ParquetSink, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in range(5):
        commit(sink, "a", write(sink, span(start, start + 1), "a"))
    bytes_ = Path(read_files(sink.folder)[0]).stat().st_size
    monkeypatch.setattr(module, "_OPEN_BYTES", 0)
    monkeypatch.setattr(module, "_TASK_BYTES", 2 * bytes_)
    options = {"path": str(sink.folder)}
    tasks = DefaultSource(options).reader(DefaultSource(options).schema()).partitions()
    assert [len(task.files) for task in tasks if isinstance(task, module.FilesPartition)] == [2, 2, 1]


SHOWN = [
    "access_key",
    "account_key",
    "aws_sse_customer_key_base64",
    "azure_storage_account_key",
    "azure_storage_access_key",
    "azure_storage_master_key",
    "azure_storage_sas_key",
    "google_service_account_key",
    "sas_key",
]


@pytest.mark.parametrize("name", SHOWN)
def test_a_secret_that_spark_would_show_is_refused_by_its_name(name: str) -> None:
    """`storage.secret.NAME` means the same, and Spark masks it."""
    shown, masked = f"storage.{name}", f"storage.secret.{name}"
    with pytest.raises(
        ConfigError, match=rf"^{shown} is a secret, and Spark may show it .* call it {masked}, "
    ) as caught:
        DefaultSource({"path": "az://box/x", shown: "hush"})
    assert "hush" not in str(caught.value)
    assert spark_option(name) == masked
    assert parse_parquet_options({"path": "az://box/x", masked.upper(): "hush"}).storage == {name: "hush"}


@pytest.mark.parametrize(
    "name",
    ["aws_access_key_id", "aws_secret_access_key", "secret_access_key", "sse_kms_key_id", "azure_storage_sas_token"],
)
def test_what_is_no_secret_or_is_masked_keeps_its_name(name: str) -> None:
    assert spark_option(name) == f"storage.{name}"
    options = parse_parquet_options({"path": "s3://box/x", f"storage.{name}": "hush"})
    assert options.storage == {name: "hush"}
    assert "hush" not in repr(options)


def test_an_option_of_the_store_is_given_once_and_has_a_name() -> None:
    path = {"path": "s3://box/x"}
    with pytest.raises(
        ConfigError, match=r"^storage\.secret\.aws_region and storage\.aws_region are one option: give it once"
    ) as caught:
        parse_parquet_options({**path, "storage.secret.aws_region": "hush", "storage.AWS_region": "hush"})
    assert "hush" not in str(caught.value)
    for name in ("storage.", "storage.secret."):
        with pytest.raises(ConfigError, match=rf"^{name} names no option of the store"):
            parse_parquet_options({**path, name: "hush"})


def test_a_snapshot_that_was_kept_too_short_is_an_error_that_says_so(sink: ParquetSink) -> None:
    for start in range(2):
        commit(sink, "a", write(sink, span(start, start + 1), "a"))
    options = {"path": str(sink.folder)}
    reader = DefaultSource(options).reader(DefaultSource(options).schema())
    tasks = reader.partitions()
    compact(sink.folder)
    vacuum(sink.folder)
    assert len([batch for task in tasks for batch in reader.read(task)]) == 2
    vacuum(sink.folder, keep_for=0)
    with pytest.raises(MissingDataError, match=r"longer than vacuum\(keep_for=\.\.\.\), or .* does not share the"):
        list(reader.read(tasks[0]))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({}, ConfigError, r"give the sink's folder, and one only: load\(folder\)"),
        ({"path": "/x", "mergeSchema": "true"}, ConfigError, "unknown option 'mergeschema'"),
        ({"path": "HERE", "columns": "offset,b"}, ConfigError, "has no column b; it has partition, offset, job"),
        ({"path": "/nowhere/at/all"}, NotASinkError, "is not a sink of instride"),
    ],
)
def test_what_is_refused(sink: ParquetSink, options: dict[str, str], error: type[Exception], match: str) -> None:
    commit(sink, "a", write(sink, span(0, 1), "a"))
    given = {name: value.replace("HERE", str(sink.folder)) for name, value in options.items()}
    with pytest.raises(error, match=match):
        DefaultSource(given).schema()


def test_a_sink_without_rows_has_no_tasks(sink: ParquetSink) -> None:
    sink.writer()
    assert _rows(sink.folder) == []


def test_types_that_spark_lacks_are_read_as_the_next(sink: ParquetSink) -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16)))
    columns = {
        "u": pa.array([2**64 - 1], pa.uint64()),
        "i": pa.array([2**32 - 1], pa.uint32()),
        "f": pa.array([1.5], pa.float16()),
        "s": pa.array(["x"], pa.string_view()),
        "id": ids,
        "ids": pa.ListArray.from_arrays([0, 1], ids),
        "both": pa.StructArray.from_arrays([ids, pa.array([0.5], pa.float16())], ["id", "f"]),
        "t": pa.array([5], pa.time32("ms")),
        "m": pa.array([[("a", 5)]], pa.map_(pa.string(), pa.uint8())),
    }
    _add(sink, 0, pa.record_batch(columns))
    assert _rows(sink.folder) == [
        {
            "u": Decimal(2**64 - 1),
            "i": 2**32 - 1,
            "f": 1.5,
            "s": "x",
            "id": b"0123456789abcdef",
            "ids": [b"0123456789abcdef"],
            "both": {"id": b"0123456789abcdef", "f": 0.5},
            "t": time(0, 0, 0, 5_000),
            "m": [("a", 5)],
        }
    ]


def test_what_a_task_cannot_read_is_a_typed_error_that_names_the_file(sink: ParquetSink) -> None:
    commit(sink, "a", write(sink, span(0, 3), "a"))
    file = read_files(sink.folder)[0]
    with pytest.raises(SinkError, match=f"^cannot read {file}: Failed to parse"):
        list(_read(sink.folder, StructType().add("job", "long")))
    options = {"path": str(sink.folder)}
    reader = DefaultSource(options).reader(DefaultSource(options).schema())
    os.truncate(file, 100)
    for read in (lambda: list(reader.read(reader.partitions()[0])), lambda: DefaultSource(options).schema()):
        with pytest.raises(SinkError, match=f"^cannot read {file}: "):
            read()
