"""The sink with real Spark tasks: retries and their files, and the DataFrame of what was committed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from parquet_help import PARTITION, commit, span, write
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from s3_server import S3Server, options_for
from session_help import local_session

from instride.spark.parquet import ParquetSink, ParquetWriter, compact, read_dataframe, read_files, read_table
from instride.spark.parquet._spark_options import spark_option
from instride.spark.sink import CommitStatus, JobResult, OutputRange, WrittenRange

pytestmark = [
    pytest.mark.spark,
    pytest.mark.drawn(6, "Parquet on Spark"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session("sink", "local[2,3]", {}) as session:
        yield session


def _run(spark: SparkSession, writer: ParquetWriter, job: str, ranges: list[OutputRange]) -> JobResult:
    """A job as the pipeline runs it: one task a range, the first attempt of each fails after it has written."""

    def task(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        output = ranges[context.partitionId()]
        offsets = list(range(output.start, output.end))
        rows = pa.record_batch({"partition": [output.partition] * len(offsets), "offset": offsets})
        attempt = context.taskAttemptId()
        written = writer.write(output, job=job, attempt=attempt, batches=iter([rows]))
        if context.attemptNumber() == 0:
            raise RuntimeError("lost after it has written")
        yield pa.record_batch({"written": [written.to_json()]})

    frame = spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(task, "written string")
    return JobResult.merge(job, (WrittenRange.from_json(row.written) for row in frame.collect()))


def test_tasks_that_fail_after_writing_leave_nothing_visible(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out of the way")
    ranges = [span(0, 5, partition=0), span(7, 9, partition=1)]
    outcomes = sink.commit(_run(spark, sink.writer(), "a", ranges))
    assert {outcome.status for outcome in outcomes.values()} == {CommitStatus.COMMITTED}
    seen = sorted((row.partition, row.offset) for row in read_dataframe(spark, sink.folder).collect())
    assert seen == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 7), (1, 8)]
    assert len(list((sink.folder / "_data").rglob("*.parquet"))) == 4
    assert len(read_files(sink.folder)) == 2


def test_a_sink_without_rows_is_an_empty_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    sink.positions([])
    sink.writer()
    assert read_dataframe(spark, sink.folder).count() == 0


@pytest.mark.parametrize("name", ["_hidden", "a=b", "x[1]{2}*", "with space%20"])
def test_any_folder_can_be_read(spark: SparkSession, tmp_path: Path, name: str) -> None:
    sink = ParquetSink(tmp_path / name)
    for start in (0, 5):
        commit(sink, "a", write(sink, span(start, start + 5), "a"))
    frame = read_dataframe(spark, sink.folder)
    assert frame.columns == ["partition", "offset", "job"]
    assert sorted(row.offset for row in frame.collect()) == list(range(10))


def test_reading_without_the_manifests_says_what_to_use(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    write(sink, span(0, 5), "zombie")
    for reader in (spark.read.option("recursiveFileLookup", "true"), spark.read.schema("offset long")):
        with pytest.raises(Exception, match=r"-folder-with-format\(instride-parquet\)"):
            reader.parquet(f"file://{sink.folder}").collect()


def test_the_source_reads_what_was_committed_when_the_query_was_planned(spark: SparkSession, tmp_path: Path) -> None:
    """Found by its name. Several tasks; the columns that are requested; a snapshot for each `load`."""
    sink = ParquetSink(tmp_path / "out")
    for start in (0, 5):
        commit(sink, "a", write(sink, span(start, start + 5), "a"))
    write(sink, span(10, 12), "zombie")
    reader = spark.read.format("instride-parquet")
    frame = reader.load(str(sink.folder))
    assert sorted(map(tuple, frame.collect())) == [(3, offset, "a") for offset in range(10)]
    commit(sink, "a", write(sink, span(10, 11), "a"))
    compact(sink.folder)
    assert frame.count() == 10
    again = reader.option("columns", "job,offset").load(str(sink.folder))
    assert again.columns == ["job", "offset"]
    assert sorted(map(tuple, again.collect())) == [("a", offset) for offset in range(11)]
    with pytest.raises(PySparkException, match="hdfs://namenode/out is not served"):
        reader.load("hdfs://namenode/out")


def test_columns_that_came_later_are_null_before(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    for start, batch in enumerate([pa.record_batch({"a": [1]}), pa.record_batch({"a": [2], "b": ["x"]})]):
        written = sink.writer().write(span(start, start + 1), job="j", attempt=0, batches=iter([batch]))
        commit(sink, "j", written)
    seen = read_dataframe(spark, sink.folder).orderBy("a").collect()
    assert [tuple(row) for row in seen] == [(1, None), (2, "x")]


def test_a_sink_in_an_object_store_is_written_and_read_by_executors(spark: SparkSession, s3: S3Server) -> None:
    """Retried tasks upload twice. The data source and `read_dataframe` read there; no plan shows a secret."""
    options = options_for(s3.endpoint)
    uri = "s3://bucket/on/spark"
    sink = ParquetSink(uri, storage_options=options)
    outcomes = sink.commit(_run(spark, sink.writer(), "a", [span(0, 5, partition=0), span(7, 9, partition=1)]))
    assert {outcome.status for outcome in outcomes.values()} == {CommitStatus.COMMITTED}
    given = {f"storage.{name}": value for name, value in options.items()}
    frame = spark.read.format("instride-parquet").options(**given).load(uri)
    seen = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 7), (1, 8)]
    for each in (frame, read_dataframe(spark, uri, storage_options=options)):
        assert sorted((row.partition, row.offset) for row in each.collect()) == seen
        assert "hush" not in each._jdf.queryExecution().toString()
    assert sum("/_data/" in key for _, key in s3.objects) == 4


def test_no_secret_of_the_store_is_in_what_spark_tells_of_a_view(spark: SparkSession) -> None:
    """A command's description has the options of the DataFrames in it. Spark masks them by their names."""
    names = ["aws_secret_access_key", "aws_session_token", "azure_storage_account_key", "azure_storage_sas_key"]
    names += [
        "azure_storage_client_secret",
        "bearer_token",
        "google_service_account_key",
        "aws_sse_customer_key_base64",
    ]
    options = {spark_option(name): f"hush-{name}" for name in names}
    reader = spark.read.format("instride-parquet").schema("offset long").option("storage.aws_region", "shown-region")
    reader.options(**options).load("s3://bucket/x").createOrReplaceTempView("secrets")
    with pytest.raises(PySparkException, match=r"storage\.account_key is a secret, .* storage\.secret\.account_key"):
        spark.read.format("instride-parquet").option("storage.account_key", "hush").load("s3://bucket/x")
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    told = spark._jsparkSession.sharedState().statusStore().executionsList()
    text = "\n".join(told.apply(number).physicalPlanDescription() for number in range(told.size()))
    assert "shown-region" in text
    assert "hush" not in text


def test_the_example_of_an_object_store_runs(spark: SparkSession, s3: S3Server) -> None:
    options = options_for(s3.endpoint)
    sink = ParquetSink("s3://bucket/flights", storage_options=options)
    commit(sink, "a", write(sink, span(0, 5), "a"))
    page = (Path(__file__).parents[2] / "docs" / "parquet-sink.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(options = .*?)```", page, re.DOTALL)
    code = re.sub(r"options = {.*?}", f"options = {options!r}", code)
    names: dict[str, Any] = {"spark": spark, "ParquetSink": ParquetSink, "read_table": read_table}
    exec(code, names)
    assert names["sink"].positions([PARTITION]) == {PARTITION: 5}
    assert (names["table"].num_rows, names["frame"].count()) == (5, 5)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            [pa.array([1_356_998_400_000_000_999], pa.timestamp("ns", "UTC"))],
            [datetime(2013, 1, 1, tzinfo=UTC)],
        ),
        ([pa.nulls(1), pa.array(["x"])], [None, "x"]),
        ([pa.array([1], pa.int32()), pa.array([2**40], pa.int64())], [1, 2**40]),
        ([pa.array([1], pa.int64()), pa.array([0.5], pa.float64())], [1.0, 0.5]),
        ([pa.array([2**32 - 1], pa.uint32())], [2**32 - 1]),
        ([pa.array([0.5], pa.float16())], [0.5]),
        ([pa.array(["x"], pa.string_view())], ["x"]),
    ],
    ids=["nanoseconds", "nulls", "wider", "double", "unsigned", "half", "view"],
)
def test_every_reader_reads_what_the_others_do(
    spark: SparkSession, tmp_path: Path, columns: list[pa.Array], expected: list[Any]
) -> None:
    sink = ParquetSink(tmp_path / "out")
    for start, values in enumerate(columns):
        rows = iter([pa.record_batch({"a": values})])
        commit(sink, "j", sink.writer().write(span(start, start + 1), job="j", attempt=0, batches=rows))
    assert read_table(sink.folder).num_rows == len(expected)
    for frame in (
        spark.read.format("instride-parquet").load(str(sink.folder)),
        read_dataframe(spark, sink.folder),
    ):
        found = [row.a.astimezone(UTC) if isinstance(row.a, datetime) else row.a for row in frame.collect()]
        assert sorted(found, key=str) == sorted(expected, key=str)


def test_a_file_that_is_gone_is_no_empty_file_whatever_the_session_says(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    for start in (0, 5):
        commit(sink, "a", write(sink, span(start, start + 5), "a"))
    lost, damaged = read_files(sink.folder)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        frame = read_dataframe(spark, sink.folder)
        Path(damaged).write_bytes(b"PAR1")
        with pytest.raises(Exception, match="FAILED_READ_FILE"):
            frame.collect()
        Path(lost).unlink()
        with pytest.raises(Exception, match="FAILED_READ_FILE"):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


def test_names_that_differ_in_case_are_one_column_to_sparks_reader(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    for start, name in enumerate(("Size", "size")):
        rows = iter([pa.record_batch({name: [start]})])
        commit(sink, "j", sink.writer().write(span(start, start + 1), job="j", attempt=0, batches=rows))
    assert sorted(row[0] for row in read_dataframe(spark, sink.folder).collect()) == [0, 1]
