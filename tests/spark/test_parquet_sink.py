"""The contract of a sink, law by law, on the Parquet sink."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from parquet_help import PARTITION, batches, commit, rows, span, write

from instride.errors import (
    ConfigError,
    CorruptManifestError,
    MissingDataError,
    NotASinkError,
    SinkError,
    WrongTopicError,
)
from instride.records import TopicPartition
from instride.spark import DeltaSink
from instride.spark.parquet import (
    ParquetSink,
    compact,
    read_files,
    read_manifests,
    read_table,
    vacuum,
    write_data_file,
)
from instride.spark.parquet import _data as data
from instride.spark.sink import (
    CommitStatus,
    FileInfo,
    JobResult,
    OutputRange,
    RangeWriter,
    Sink,
    WrittenRange,
    new_job_id,
)


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink(tmp_path / "out")


def _seen(start: int, end: int, job: str, partition: int = 3) -> list[tuple[int, int, str]]:
    return [(partition, offset, job) for offset in range(start, end)]


def test_is_a_sink(sink: ParquetSink) -> None:
    assert isinstance(sink, Sink)
    assert isinstance(sink.writer(), RangeWriter)


def test_building_one_touches_nothing(tmp_path: Path) -> None:
    ParquetSink(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_uri_is_served_where_it_is_local_and_else_refused(tmp_path: Path) -> None:
    """It was a folder called "s3:"."""
    assert ParquetSink(tmp_path.as_uri()).folder == tmp_path
    calls: list[Callable[[str], object]] = [ParquetSink, read_table, vacuum]
    for call in calls:
        with pytest.raises(NotASinkError, match=r"hdfs://bucket/out is not served: give .* s3://, .* abfss://"):
            call("hdfs://bucket/out")


def test_a_new_sink_holds_nothing(sink: ParquetSink) -> None:
    assert sink.positions([PARTITION]) == {PARTITION: None}
    assert read_files(sink.folder) == []
    assert read_table(sink.folder).num_rows == 0


def test_commits_chain(sink: ParquetSink) -> None:
    for start, end in [(40, 47), (47, 48), (48, 60)]:
        outcome = commit(sink, f"job{start}", write(sink, span(start, end), f"job{start}"))
        assert (outcome.status, outcome.position) == (CommitStatus.COMMITTED, end)
    assert rows(sink.folder) == _seen(40, 47, "job40") + _seen(47, 48, "job47") + _seen(48, 60, "job48")
    assert ParquetSink(sink.folder).positions([PARTITION]) == {PARTITION: 60}
    assert [m.sequence for m in read_manifests(sink.folder)[PARTITION]] == [1, 2, 3]


def test_what_is_written_is_invisible_until_committed(sink: ParquetSink) -> None:
    write(sink, span(0, 5), "a")
    assert rows(sink.folder) == []


def test_the_same_job_again_is_already_in(sink: ParquetSink) -> None:
    written = write(sink, span(0, 5), "a")
    commit(sink, "a", written)
    assert commit(ParquetSink(sink.folder), "a", written).status is CommitStatus.ALREADY
    other_attempt = write(sink, span(0, 5), "a", attempt=1)
    assert commit(sink, "a", other_attempt).status is CommitStatus.ALREADY
    assert rows(sink.folder) == _seen(0, 5, "a")


def test_a_late_repeat_is_already_in_after_others_went_on(sink: ParquetSink) -> None:
    first = write(sink, span(0, 5), "a")
    commit(sink, "a", first)
    for start in range(5, 25):
        commit(sink, "b", write(sink, span(start, start + 1), "b"))
    outcome = commit(sink, "a", first)
    assert (outcome.status, outcome.position, outcome.is_in) == (CommitStatus.ALREADY, 25, True)


@pytest.mark.parametrize(("start", "end"), [(0, 5), (0, 3), (2, 5), (3, 9), (0, 9), (7, 9)])
def test_another_job_is_in_conflict(sink: ParquetSink, start: int, end: int) -> None:
    commit(sink, "a", write(sink, span(0, 5), "a"))
    outcome = commit(sink, "b", write(sink, span(start, end), "b"))
    assert (outcome.status, outcome.position, outcome.is_in) == (CommitStatus.CONFLICT, 5, False)
    assert rows(sink.folder) == _seen(0, 5, "a")


def test_the_same_job_with_another_range_is_in_conflict(sink: ParquetSink) -> None:
    commit(sink, "a", write(sink, span(0, 5), "a"))
    assert commit(sink, "a", write(sink, span(0, 7), "a")).status is CommitStatus.CONFLICT


def test_a_dropped_jobs_files_are_deleted_if_the_chain_has_passed_them(sink: ParquetSink) -> None:
    commit(sink, "a", write(sink, span(0, 5), "a"))
    passed, ahead = write(sink, span(0, 5), "b"), write(sink, span(7, 9), "c")
    commit(sink, "b", passed)
    commit(sink, "c", ahead)
    assert not (sink.folder / passed.files[0].path).exists()
    assert (sink.folder / ahead.files[0].path).exists()


def test_partitions_of_a_job_are_independent(sink: ParquetSink) -> None:
    commit(sink, "a", write(sink, span(0, 5, partition=0), "a"))
    job = JobResult(job="b", written=tuple(write(sink, span(0, 4, partition=p), "b") for p in (0, 1)))
    outcomes = sink.commit(job)
    assert [outcomes[TopicPartition("flights", p)].status.value for p in (0, 1)] == ["conflict", "committed"]
    assert rows(sink.folder) == _seen(0, 5, "a", 0) + _seen(0, 4, "b", 1)


def test_an_empty_range_writes_no_file_and_advances_the_chain(sink: ParquetSink) -> None:
    empty = batches(span(0, 4), "a"), (batch.slice(0, 0) for batch in batches(span(4, 9), "a"))
    first = sink.writer().write(span(0, 4), job="a", attempt=0, batches=iter([]))
    second = sink.writer().write(span(4, 9), job="b", attempt=0, batches=empty[1])
    assert (first.files, second.files) == ((), ())
    commit(sink, "a", first)
    commit(sink, "b", second)
    assert sink.positions([PARTITION]) == {PARTITION: 9}
    assert read_files(sink.folder) == []


def test_several_tasks_may_write_one_range(sink: ParquetSink) -> None:
    parts = [write(sink, span(0, 4), "a", attempt=n) for n in (7, 8)]
    job = JobResult.merge("a", parts)
    assert [file.attempt for file in job.written[0].files] == [7, 8]
    sink.commit(job)
    assert len(rows(sink.folder)) == 8
    with pytest.raises(ValueError, match="twice"):
        JobResult.merge("a", [parts[0], write(sink, span(0, 5), "a")])


def test_the_wire_form_of_a_written_range() -> None:
    file = FileInfo(path="data/x", rows=3, bytes=9, attempt=4)
    written = WrittenRange(range=span(3, 9, topic_id="id"), files=(file, file))
    assert WrittenRange.from_json(written.to_json()) == written
    assert written.rows == 6


def test_the_writer_travels(sink: ParquetSink) -> None:
    writer = pickle.loads(pickle.dumps(sink.writer()))
    written = writer.write(span(0, 2), job="a", attempt=0, batches=batches(span(0, 2), "a"))
    assert commit(sink, "a", written).status is CommitStatus.COMMITTED


def test_names_hold_range_job_and_attempt(sink: ParquetSink) -> None:
    path = Path(write(sink, span(10, 25), "abc", attempt=17).files[0].path)
    assert str(path.parent) == "_data/topic-flights/partition-00003"
    assert path.name.startswith(f"{10:020d}-{25:020d}-abc-17-")


def test_two_writes_by_one_attempt_do_not_meet(sink: ParquetSink) -> None:
    first = write(sink, span(0, 5), "a")
    commit(sink, "a", first)
    write(sink, span(0, 5), "a")
    assert rows(sink.folder) == _seen(0, 5, "a")
    assert len(list((sink.folder / "_data").rglob("*.parquet"))) == 2


def test_small_batches_share_row_groups(sink: ParquetSink) -> None:
    file = read_files_of(sink, rows_=5000, size=10)
    assert pa.parquet.ParquetFile(file).num_row_groups == 1


def read_files_of(sink: ParquetSink, rows_: int, size: int) -> Path:
    output = span(0, rows_)
    info = write_data_file(sink.folder, output, job="a", attempt=0, batches=batches(output, "a", size=size))
    assert info is not None
    assert info.rows == rows_
    return sink.folder / info.path


def test_a_users_error_passes_through_and_leaves_nothing(sink: ParquetSink) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(span(0, 5), "a")
        raise ConnectionResetError("Kafka went away")

    with pytest.raises(ConnectionResetError, match="Kafka went away"):
        sink.writer().write(span(0, 9), job="a", attempt=0, batches=broken())
    assert [path for path in (sink.folder / "_data").rglob("*") if path.is_file()] == []


def test_batches_of_one_range_share_a_schema(sink: ParquetSink) -> None:
    mixed = [pa.record_batch({"a": [1]}), pa.record_batch({"a": ["x"]})]
    with pytest.raises(SinkError, match="differ in schema"):
        sink.writer().write(span(0, 9), job="a", attempt=0, batches=iter(mixed))


def _words(start: int, end: int) -> pa.Array:
    """As pandas gives categories: each batch has those that it uses, and indices of one byte."""
    return pa.array([f"airport{number}" for number in range(start, end)], pa.dictionary(pa.int8(), pa.string()))


def _categories(start: int, end: int) -> pa.RecordBatch:
    words = _words(start, end)
    lists = pa.ListArray.from_arrays(pa.array(range(len(words) + 1), pa.int32()), words)
    return pa.record_batch({"a": words, "in_struct": pa.StructArray.from_arrays([words], ["x"]), "in_list": lists})


def _check_categories(folder: Path, end: int) -> None:
    table, words = read_table(folder).combine_chunks(), [f"airport{number}" for number in range(end)]
    table.validate(full=True)
    assert pa.types.is_dictionary(table.schema.field("a").type)
    assert table["a"].to_pylist() == words
    assert table["in_struct"].to_pylist() == [{"x": word} for word in words]
    assert table["in_list"].to_pylist() == [[word] for word in words]
    # So read compact, and the tasks of Spark's source.
    for file in read_files(folder):
        with pq.ParquetFile(file) as opened:
            assert sum(batch.num_rows for batch in opened.iter_batches()) == opened.metadata.num_rows


@pytest.mark.parametrize("group_rows", [1 << 17, 100])
def test_categories_of_a_ranges_batches_may_be_more_than_each_ones_index_holds(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch, group_rows: int
) -> None:
    monkeypatch.setattr(data, "_GROUP_ROWS", group_rows)
    given = iter([_categories(0, 100), _categories(100, 200), _categories(200, 300)])
    commit(sink, "j", sink.writer().write(span(0, 300), job="j", attempt=0, batches=given))
    _check_categories(sink.folder, 300)


def test_categories_stay_readable_where_files_become_one(sink: ParquetSink) -> None:
    for start in (0, 100, 200):
        given = iter([_categories(start, start + 100)])
        commit(sink, "j", sink.writer().write(span(start, start + 100), job="j", attempt=0, batches=given))
    assert len(compact(sink.folder)) == 1
    _check_categories(sink.folder, 300)


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32()], ids=str)
def test_ordered_categories_stay_so(sink: ParquetSink, index: pa.DataType) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([2, 0], index), ["low", "mid", "high"], ordered=True)
    for start in (0, 2):
        given = iter([pa.record_batch({"a": words})])
        commit(sink, "j", sink.writer().write(span(start, start + 2), job="j", attempt=0, batches=given))
    for _ in ("as written", "compacted"):
        kind = read_table(sink.folder).schema.field("a").type
        assert kind.ordered
        assert kind.index_type == (index if index == pa.uint32() else pa.int32())
        compact(sink.folder)


def test_columns_that_no_reader_can_tell_apart_are_refused(sink: ParquetSink) -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"]), pa.array([2])], names=["a", "b", "a"])
    none = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    for batch, message in ((twice, "two columns named 'a'"), (none, "rows without columns")):
        with pytest.raises(SinkError, match=message):
            sink.writer().write(span(0, 1), job="j", attempt=0, batches=iter([batch]))
    assert [path for path in (sink.folder / "_data").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("values", [pa.array([{"x": 1}]), pa.array(["x", None])], ids=["structs", "a null"])
def test_a_dictionary_that_parquet_lacks_is_a_typed_error(sink: ParquetSink, values: pa.Array) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), values)
    with pytest.raises(SinkError, match=r"^a Parquet file cannot have the columns of this result: .*ictionary"):
        sink.writer().write(span(0, 2), job="j", attempt=0, batches=iter([pa.record_batch({"a": column})]))
    assert [path for path in (sink.folder / "_data").rglob("*") if path.is_file()] == []


def test_schemas_of_ranges_are_united(sink: ParquetSink) -> None:
    for start, batch in enumerate([pa.record_batch({"a": [1]}), pa.record_batch({"a": [2], "b": ["x"]})]):
        written = sink.writer().write(span(start, start + 1), job="j", attempt=0, batches=iter([batch]))
        commit(sink, "j", written)
    assert read_table(sink.folder).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_a_reported_file_must_be_there(sink: ParquetSink) -> None:
    written = write(sink, span(0, 5), "a")
    (sink.folder / written.files[0].path).unlink()
    with pytest.raises(MissingDataError, match="share that folder"):
        commit(sink, "a", written)
    assert sink.positions([PARTITION]) == {PARTITION: None}


def test_an_error_in_one_partition_does_not_keep_the_others_back(sink: ParquetSink) -> None:
    lost, fine = (write(sink, span(0, 5, partition=p), "a") for p in (0, 1))
    (sink.folder / lost.files[0].path).write_bytes(b"cut")
    with pytest.raises(MissingDataError, match="has 3 bytes") as caught:
        sink.commit(JobResult(job="a", written=(lost, fine)))
    assert "flights-0 [0, 5)" in caught.value.__notes__[0]
    assert sink.positions([TopicPartition("flights", p) for p in (0, 1)]) == {("flights", 0): None, ("flights", 1): 5}


def test_files_of_another_job_or_place_are_refused(sink: ParquetSink) -> None:
    written = write(sink, span(0, 5), "a")
    for path in (written.files[0].path, "../../etc/passwd", "_data/topic-flights/partition-00003/../x"):
        file = FileInfo(path=path, rows=1, bytes=1, attempt=0)
        with pytest.raises(ValueError, match="not a file of job b"):
            commit(sink, "b", WrittenRange(range=span(0, 5), files=(file,)))


@pytest.mark.parametrize("job", ["", "a-b", "a/b", "../x", "x" * 65])
def test_a_jobs_id_must_fit_a_name(sink: ParquetSink, job: str) -> None:
    with pytest.raises(ValueError, match="a job's id"):
        write(sink, span(0, 5), job)
    with pytest.raises(ValueError, match="a job's id"):
        sink.commit(JobResult(job=job))
    assert new_job_id().isalnum()


def test_a_topic_cannot_lead_out_of_the_folder(sink: ParquetSink) -> None:
    output = OutputRange(topic="../../x", partition=0, start=0, end=1)
    with pytest.raises(ValueError, match="not the name of a Kafka topic"):
        write(sink, output, "a")
    with pytest.raises(ValueError, match="not the name of a Kafka topic"):
        sink.positions([TopicPartition("a/b", 0)])


@pytest.mark.parametrize(("start", "end"), [(5, 5), (5, 4), (-1, 4)])
def test_a_range_is_never_empty(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        span(start, end)


def test_a_topic_made_anew_is_told_from_the_old(sink: ParquetSink) -> None:
    commit(sink, "a", write(sink, span(0, 5, topic_id="old"), "a"))
    commit(sink, "b", write(sink, span(5, 6), "b"))
    assert sink.positions([PARTITION], topic_ids={"flights": "old"}) == {PARTITION: 6}
    with pytest.raises(WrongTopicError, match="deleted and made again"):
        sink.positions([PARTITION], topic_ids={"flights": "new"})
    for start in (0, 6):
        with pytest.raises(WrongTopicError):
            commit(sink, "c", write(sink, span(start, 9, topic_id="new"), "c"))
    assert sink.positions([PARTITION]) == {PARTITION: 6}


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("years of work")
    with pytest.raises(NotASinkError, match=r"not empty \(it holds thesis\.doc\)"):
        ParquetSink(tmp_path).positions([PARTITION])
    with pytest.raises(NotASinkError, match="not a sink of instride"):
        read_table(tmp_path)
    with pytest.raises(NotASinkError):
        vacuum(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]


def test_a_file_is_no_sink(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotASinkError, match="is a file"):
        ParquetSink(tmp_path / "file").writer()


@pytest.mark.parametrize("marker", ["", "{}", '{"format": "instride-parquet", "version": 2}', "[1]"])
def test_a_sink_of_another_version_is_refused(sink: ParquetSink, marker: str) -> None:
    sink.positions([PARTITION])
    (sink.folder / "_instride" / "sink.json").write_text(marker)
    with pytest.raises(NotASinkError, match="not a sink of version 1"):
        ParquetSink(sink.folder).positions([PARTITION])


def test_names_that_no_sink_gives_are_passed_over(sink: ParquetSink) -> None:
    """A console's folder, a backup, a copy: each partition, manifest and checkpoint has one name."""
    for start in (0, 3):
        commit(sink, "a", write(sink, span(start, start + 3), "a"))
    chain = sink.folder / "_instride" / "topic-flights" / "partition-00003"
    for name in ("partition-3", "partition-000003", "partition-\u0663"):
        (chain.parent / name).mkdir()
    for name in ("99", "000000000000000000099", "checkpoint-7", "checkpoint-000000000000000000007"):
        (chain / f"{name}.json").write_text("{}")
    compact(sink.folder)
    vacuum(sink.folder, keep_for=0)
    assert rows(sink.folder) == _seen(0, 6, "a")
    assert ParquetSink(sink.folder).positions([PARTITION]) == {PARTITION: 6}
    assert (chain / "99.json").exists()


@pytest.mark.parametrize("given", [-1, -0.5, float("nan"), float("inf"), None, "1d", timedelta(days=1), True])
def test_a_vacuum_that_is_to_keep_for_no_time_deletes_nothing(sink: ParquetSink, given: Any) -> None:
    commit(sink, "a", write(sink, span(0, 3), "a"))
    loser = write(sink, span(0, 3), "b")
    with pytest.raises(ConfigError, match=r"^keep_for must be a number of seconds, of at least 0; it is "):
        vacuum(sink.folder, keep_for=given)
    assert (sink.folder / loser.files[0].path).exists()


@pytest.mark.parametrize("given", [0, -1, 1.5, float("nan"), None, "128MiB", True])
def test_a_size_that_no_file_has_is_refused(sink: ParquetSink, given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^target_bytes must be a whole number of at least 1; it is "):
        compact(sink.writer().folder, target_bytes=given)


@pytest.mark.parametrize("given", [-1, -1001, 2**63, 1.5, True, "3", None])
def test_a_partition_begins_at_an_offset_or_not_at_all(sink: ParquetSink, given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^flights-3 begins at an offset, from 0 to 2\*\*63 - 1, not at "):
        sink.begin(PARTITION, given)
    assert not sink.folder.exists()
    assert sink.begin(PARTITION, 0) == 0


def test_reading_needs_a_sink(tmp_path: Path) -> None:
    with pytest.raises(NotASinkError):
        read_files(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_a_listed_file_that_is_gone_is_named(sink: ParquetSink) -> None:
    written = write(sink, span(0, 5), "a")
    commit(sink, "a", written)
    (sink.folder / written.files[0].path).unlink()
    with pytest.raises(MissingDataError, match=r"\.parquet, but it is not there"):
        read_table(sink.folder)


def test_topics_with_hidden_names_and_many_partitions_are_read_in_order(sink: ParquetSink) -> None:
    for topic, partition in [("_x", 0), ("b", 11), ("b", 2), (".a", 0)]:
        output = OutputRange(topic=topic, partition=partition, start=0, end=1)
        commit(sink, "a", write(sink, output, "a"))
    assert list(read_manifests(sink.folder)) == [(".a", 0), ("_x", 0), ("b", 2), ("b", 11)]
    assert len(read_files(sink.folder)) == 4


def test_where_a_partition_begins_is_set_once_and_known_to_every_driver(sink: ParquetSink) -> None:
    assert sink.begin(PARTITION, 7, topic_id="x") == 7
    assert ParquetSink(sink.folder).begin(PARTITION, 90, topic_id="x") == 7
    assert sink.positions([PARTITION]) == {PARTITION: 7}
    assert read_table(sink.folder).num_rows == 0
    with pytest.raises(WrongTopicError):
        sink.begin(PARTITION, 7, topic_id="y")


def test_what_follows_a_start_is_committed_once_and_meets_it(sink: ParquetSink) -> None:
    sink.begin(PARTITION, 7)
    elsewhere, here = span(8, 10), span(7, 10)
    assert commit(sink, "a", write(sink, elsewhere, "a")).status is CommitStatus.CONFLICT
    written = write(sink, here, "b")
    assert commit(sink, "b", written).status is CommitStatus.COMMITTED
    assert commit(sink, "b", written).status is CommitStatus.ALREADY
    assert commit(sink, "c", write(sink, here, "c")).status is CommitStatus.CONFLICT
    assert rows(sink.folder) == [(3, offset, "b") for offset in (7, 8, 9)]
    assert sink.begin(PARTITION, 0) == 10


@pytest.mark.parametrize("name", ["my lake", "a%20b", "50%", "ü #?&+", "a[1]*"])
def test_a_file_uri_and_the_path_are_one_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    uri = folder.as_uri()
    sink = ParquetSink(uri)
    assert sink.folder == folder
    commit(sink, "a", write(sink, span(0, 2), "a"))
    assert read_table(folder).num_rows == read_table(uri).num_rows == 2
    path = uri.removeprefix("file://")
    for other in (f"file:{path}", f"file://localhost{path}", f"FILE://LocalHost{path}"):
        assert ParquetSink(other).folder == folder


@pytest.mark.parametrize(
    ("uri", "match"),
    [
        ("file://namenode/data", r"^file://namenode/data is on a machine of its own, .* give file:///FOLDER"),
        ("file:///data?token=hush", r"^file:///data\?\*\*\*: a sink's URI holds no \? and no #"),
        ("file:///data#hush", r"^file:///data\?\*\*\*: a sink's URI holds no \? and no #"),
        ("file:///data%00", "no character 0"),
        ("/data\0", "no character 0"),
        ("file:///latin-%E9", "a folder's name is UTF-8"),
        (os.fsdecode(b"/latin-\xe9"), "a folder's name is UTF-8"),
        ("hdfs://user:hush@namenode/x", r"^hdfs://\*\*\*@namenode/x is not served"),
        ("https://account.blob.core.windows.net/c/p?sv=1&sig=hush", r"^https://account.*/c/p\?\*\*\* is not served"),
        ("postgresql://user:hu/sh@host/db", r"^postgresql://\*\*\*@host/db is not served"),
    ],
)
def test_what_no_uri_of_a_folder_is(uri: str, match: str) -> None:
    calls: list[Callable[[str], object]] = [ParquetSink, read_table, vacuum, compact]
    for call in calls:
        with pytest.raises(NotASinkError, match=match) as caught:
            call(uri)
        assert "hu" not in str(caught.value)


SPELLINGS = [
    *((f"{odd}s3://KEY:hush@bucket/x", "begins or ends with") for odd in (" ", "\t", "\n", "\ufeff", "'", '"', "\x85")),
    *((f"s3://bucket/hush{odd}", "begins or ends with") for odd in (" ", "\r\n", "\ufeff", "'")),
    *((f"/data/hush{odd}", "begins or ends with") for odd in (" ", "\n", "\u2028", '"')),
    ("s3://bucket/hush\x00", r"no control character.*'\\x00'"),
    ("file:///data/hush%20", "begins or ends with"),
    ("s3://KEY:hush\n@bucket/x", r"no control character.*'\\n'"),
    ("file:///data/hu\x1bsh", r"no control character.*'\\x1b'"),
    *(
        (f"{begin}KEY:hush@bucket/x", "lost its slashes")
        for begin in ("s3:", "S3:", "s3//", "gs:", "abfss:", "s3_a://")
    ),
    *((f"{begin}hush/x", "lost its slashes") for begin in ("file:", "hdfs:", "s3:\\\\", "https:", "file//", "s3a//")),
]


@pytest.mark.parametrize(("place", "match"), SPELLINGS, ids=repr)
def test_a_place_that_is_misspelt_is_no_local_folder(
    place: str, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of that name was made on each machine, in silence."""
    monkeypatch.chdir(tmp_path)
    calls: list[Callable[[str], object]] = [ParquetSink, read_table, vacuum, DeltaSink]
    for call in calls:
        with pytest.raises(NotASinkError, match=match) as caught:
            call(place)
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["run:5", "2026-11-29T11:00", "my lake", "it's", "a: b", "s3", "s3x:y", "./s3:x", "x//y", "file.d"]
)
def test_a_local_path_may_hold_colons_blanks_and_quotes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commit(ParquetSink(name), "a", write(ParquetSink(name), span(0, 2), "a"))
    assert read_table(tmp_path / name).num_rows == 2


@pytest.mark.parametrize("name", ["bogus", "bz2", "lzo", "", 3, {"offset": "bogus"}, {3: "zstd"}, ["zstd"]])
def test_a_compression_that_parquet_lacks_is_refused_at_once(sink: ParquetSink, name: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: ParquetSink(sink.folder, compression=name),
        lambda: compact(sink.folder, compression=name),
        lambda: write_data_file(
            sink.folder, span(0, 3), job="a", attempt=0, batches=batches(span(0, 3), "a"), compression=name
        ),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"^compression (must be one of none, .* zstd, not |names columns by st)"):
            call()


@pytest.mark.parametrize(
    ("given", "written"),
    [
        *((name, name.upper()) for name in ("snappy", "gzip", "brotli", "lz4", "ZSTD")),
        *((name, "UNCOMPRESSED") for name in ("none", None)),
        ("lz4_raw", "LZ4"),
        ({"partition": "zstd", "offset": "GZIP", "absent": "lz4"}, "GZIP"),
        ({"partition": "zstd", "offset": None}, "UNCOMPRESSED"),
        (MappingProxyType({"offset": "lz4_raw"}), "LZ4"),
    ],
    ids=str,
)
def test_every_compression_that_is_taken_can_be_written_and_read(tmp_path: Path, given: Any, written: str) -> None:
    sink = ParquetSink(tmp_path / "out", compression=given)
    pickle.loads(pickle.dumps(sink.writer()))
    commit(sink, "a", write(sink, span(0, 3), "a"))
    commit(sink, "a", write(sink, span(3, 6), "a"))
    for file in (*read_files(sink.folder), *compact(sink.folder, compression=given)):
        assert pq.read_metadata(file).row_group(0).column(1).compression == written
    assert len(rows(sink.folder)) == 6


def test_what_the_system_refuses_of_a_folder_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    calls: list[Callable[[Path], object]] = [read_table, read_files, read_manifests, vacuum, compact]
    calls += [lambda folder: ParquetSink(folder).positions([PARTITION]), lambda folder: ParquetSink(folder).writer()]
    for folder in (tmp_path / ("x" * 300), tmp_path / "file" / "below"):
        for call in calls:
            with pytest.raises(SinkError, match=str(folder)):
                call(folder)


Damage = Callable[[Path], object]


def _cut(file: Path) -> None:
    os.truncate(file, 100)


def _overwrite(file: Path) -> None:
    """The rows, and not the columns' names and types at the end."""
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"\xff" * 60 + content[64:])


@pytest.mark.parametrize("damage", [_cut, _overwrite])
def test_a_damaged_data_file_is_named_by_every_reader(sink: ParquetSink, damage: Damage) -> None:
    for start in (0, 3, 6):
        commit(sink, "a", write(sink, span(start, start + 3), "a"))
    file = read_files(sink.folder)[1]
    damage(Path(file))
    reads: list[Callable[[Path], object]] = [read_table, compact]
    for read in reads:
        with pytest.raises(SinkError, match=f"^cannot read {file}: ") as caught:
            read(sink.folder)
        assert not isinstance(caught.value, CorruptManifestError | MissingDataError)


def test_columns_that_do_not_go_together_are_a_typed_error(sink: ParquetSink) -> None:
    for start, values in enumerate([pa.array(["x"]), pa.array([[1]])]):
        output = span(start, start + 1)
        rows_of_one = iter([pa.record_batch({"a": values})])
        commit(sink, "j", sink.writer().write(output, job="j", attempt=0, batches=rows_of_one))
    with pytest.raises(SinkError, match=f"^the columns of the files of {sink.folder} do not go together: .*a"):
        read_table(sink.folder)


def test_a_value_that_the_common_type_cannot_hold_names_its_file(sink: ParquetSink) -> None:
    for start, values in enumerate([pa.array([2**60 + 1]), pa.array([0.5])]):
        output = span(start, start + 1)
        rows_of_one = iter([pa.record_batch({"a": values})])
        commit(sink, "j", sink.writer().write(output, job="j", attempt=0, batches=rows_of_one))
    with pytest.raises(SinkError, match=f"^cannot read {read_files(sink.folder)[0]}: "):
        read_table(sink.folder)


def test_files_that_a_vacuum_deletes_while_they_are_read_are_missing_data(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in (0, 3):
        commit(sink, "a", write(sink, span(start, start + 3), "a"))
    real = ds.dataset

    def late(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        compact(sink.folder)
        vacuum(sink.folder, keep_for=0)
        return found

    monkeypatch.setattr(ds, "dataset", late)
    with pytest.raises(MissingDataError, match=r"a manifest lists .*\.parquet, but it is not there"):
        read_table(sink.folder)
