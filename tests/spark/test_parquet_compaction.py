"""Compaction: the same rows in fewer files, opened by one checkpoint, whoever works beside it or dies."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from parquet_help import PARTITION, Crash, DeadFrom, SystemCalls, commit, rows, span, write

from instride.errors import CorruptManifestError, MissingDataError, SinkError, SinkWriteError
from instride.spark.parquet import ParquetSink, _compaction, compact, read_files, read_table, vacuum
from instride.spark.parquet._checkpoint import checkpoint_key
from instride.spark.parquet._data import write_to
from instride.spark.parquet._local_storage import LocalStorage
from instride.spark.parquet._manifest_chain import Chain
from instride.spark.parquet._read import listed_files
from instride.spark.sink import CommitStatus, FileInfo, JobResult

_READ = LocalStorage.read


def _go_on(sink: ParquetSink, ranges: int, *, size: int = 3) -> None:
    for _ in range(ranges):
        start = sink.positions([PARTITION])[PARTITION] or 0
        commit(sink, "a", write(sink, span(start, start + size), "a"))


@pytest.fixture(autouse=True)
def _no_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine crashes here, and syncing is nearly all that these tests would wait for."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    made = ParquetSink(tmp_path / "out")
    _go_on(made, 6)
    return made


def _places(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_same_rows_in_one_file_and_those_that_came_since(sink: ParquetSink) -> None:
    before = read_table(sink.folder)
    made = compact(sink.folder)
    assert read_files(sink.folder) == made
    assert len(made) == 1
    assert read_table(sink.folder) == before
    _go_on(sink, 2)
    assert [Path(path).parts[-4] for path in read_files(sink.folder)] == ["_compacted", "_data", "_data"]
    assert [offset for _, offset, _ in rows(sink.folder)] == list(range(24))


def test_the_schema_of_each_file_is_read_once(sink: ParquetSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read twice: in an object store that is a request, or two, for each file more."""
    asked: list[str] = []
    opened = LocalStorage.opened

    def asks(storage: LocalStorage, file: FileInfo) -> Any:
        asked.append(file.path)
        return opened(storage, file)

    monkeypatch.setattr(LocalStorage, "opened", asks)
    compact(sink.folder)
    once = {path: count for path, count in Counter(asked).items() if path.startswith("_data/")}
    assert list(once.values()) == [2] * 6, "its schema, and then its rows"


def test_files_of_one_schema_share_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One was kept for each file, of some 10 KB."""
    sink = ParquetSink(tmp_path / "out")
    for number in range(6):
        # PyArrow takes schemas for equal that differ in their metadata only.
        batch = pa.RecordBatch.from_pydict({"offset": [number]}).replace_schema_metadata({"told": str(number // 3)})
        commit(sink, "a", sink.writer().write(span(number, number + 1), job="a", attempt=0, batches=iter([batch])))
    kept: dict[str, pa.Schema] = {}
    monkeypatch.setattr(_compaction, "_Compaction", partial(_compaction._Compaction, schemas=kept))
    compact(sink.folder)
    assert len(kept) == 6
    assert len({id(each) for each in kept.values()}) == 2


def test_with_nothing_new_there_is_nothing_to_do(sink: ParquetSink) -> None:
    compact(sink.folder)
    before = _places(sink.folder)
    assert compact(sink.folder) == []
    assert _places(sink.folder) == before


@pytest.mark.parametrize("ranges", [3, 12])
def test_a_compacted_chain_opens_with_one_checkpoint_however_long_it_is(tmp_path: Path, ranges: int) -> None:
    sink = ParquetSink(tmp_path / "out")
    _go_on(sink, ranges)
    compact(sink.folder)
    opened: list[str] = []

    def read(storage: LocalStorage, key: str) -> bytes | None:
        opened.append(key)
        return _READ(storage, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStorage, "read", read)
        assert len(read_files(sink.folder)) == 1
    assert opened == ["sink.json", checkpoint_key("flights", 3, 1)]
    vacuum(sink.folder, keep_for=0)
    names = [path.name for path in _places(sink.folder)]
    assert len(names) == 5, "the folder's marker and its signpost, one manifest, one checkpoint, one file"


def test_files_are_put_together_up_to_a_size(sink: ParquetSink) -> None:
    size = Path(read_files(sink.folder)[0]).stat().st_size
    made = compact(sink.folder, target_bytes=2 * size)
    assert len(made) == 3
    assert [offset for _, offset, _ in rows(sink.folder)] == list(range(18))


def test_neighbours_of_another_schema_stay_apart(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    columns = [{"a": [1]}, {"a": [2]}, {}, {"a": [3], "b": ["x"]}, {"a": [4], "b": ["y"]}]
    for start, made in enumerate(columns):
        batches = iter([pa.record_batch(made)] if made else [])
        commit(sink, "j", sink.writer().write(span(start, start + 1), job="j", attempt=0, batches=batches))
    before = read_table(sink.folder)
    assert len(compact(sink.folder)) == 2
    assert read_table(sink.folder) == before


def test_a_range_of_two_schemas_stays_as_it_is_and_stops_no_other(tmp_path: Path) -> None:
    """Its tasks share it, and all values of a column are null in one of them."""
    sink = ParquetSink(tmp_path / "out")
    columns: list[list[dict[str, pa.Array]]] = [
        [{"a": pa.array([1])}],
        [{"a": pa.array([2])}, {"a": pa.nulls(1)}],
        [{"a": pa.array([3])}],
        [{"a": pa.array([4])}],
    ]
    for start, parts in enumerate(columns):
        writer, output = sink.writer(), span(start, start + 1)
        written = [
            writer.write(output, job="j", attempt=attempt, batches=iter([pa.record_batch(made)]))
            for attempt, made in enumerate(parts)
        ]
        sink.commit(JobResult.merge("j", written))
    before = read_table(sink.folder)
    assert len(compact(sink.folder)) == 1, "the last two ranges"
    assert read_table(sink.folder) == before
    assert sorted(before["a"].to_pylist(), key=str) == [1, 2, 3, 4, None]


def test_metadata_that_all_files_share_stays(tmp_path: Path) -> None:
    """Of a DataFrame it names the index, and the types that Arrow does not have."""
    sink = ParquetSink(tmp_path / "out")
    for start in (0, 2):
        frame = pd.DataFrame({"size": [1, None]}, index=pd.Index([start, start + 1], name="at"), dtype="Int32")
        batches = iter([pa.RecordBatch.from_pandas(frame)])
        commit(sink, "j", sink.writer().write(span(start, start + 2), job="j", attempt=0, batches=batches))
    before = read_table(sink.folder).to_pandas()
    assert before.index.name == "at"
    assert len(compact(sink.folder)) == 1
    pd.testing.assert_frame_equal(read_table(sink.folder).to_pandas(), before)
    others = iter([pa.record_batch([pa.array([1], pa.int32()), pa.array([4])], ["size", "at"])])
    commit(sink, "j", sink.writer().write(span(4, 5), job="j", attempt=0, batches=others))
    assert len(compact(sink.folder)) == 1
    assert read_table(sink.folder).schema.metadata is None


def test_what_cannot_be_read_back_replaces_nothing(sink: ParquetSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyArrow wrote it without an error."""

    def damaging(*args: Any, **kwargs: Any) -> FileInfo | None:
        made = write_to(*args, **kwargs)
        assert made is not None
        place = sink.folder / made.path
        content = place.read_bytes()
        place.write_bytes(content[:4] + b"\xff" * 60 + content[64:])
        return made

    before = read_files(sink.folder)
    with monkeypatch.context() as patch:
        patch.setattr("instride.spark.parquet._compaction.write_to", damaging)
        with pytest.raises(SinkError, match=r"^cannot read .*/_compacted/"):
            compact(sink.folder)
    assert read_files(sink.folder) == before
    vacuum(sink.folder, keep_for=0)
    assert [offset for _, offset, _ in rows(sink.folder)] == list(range(18))


def test_what_was_replaced_stays_for_readers_that_began_before(sink: ParquetSink) -> None:
    snapshot = read_files(sink.folder)
    taken = listed_files(LocalStorage(sink.folder))
    compact(sink.folder)
    assert vacuum(sink.folder) == []
    assert all(Path(path).exists() for path in snapshot)
    assert set(vacuum(sink.folder, keep_for=0)) == set(snapshot)
    with pytest.raises(MissingDataError, match=r"this reader took longer than vacuum\(keep_for=...\)"):
        _read_late(sink.folder, taken)
    assert [offset for _, offset, _ in rows(sink.folder)] == list(range(18))


def _read_late(folder: Path, snapshot: list[FileInfo]) -> None:
    """A reader that took its snapshot long ago, and opens its files now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("instride.spark.parquet._read.listed_files", lambda *_, **__: snapshot)
        read_table(folder)


def test_what_only_an_older_checkpoint_lists_goes_with_it(sink: ParquetSink) -> None:
    first = compact(sink.folder)
    _go_on(sink, 2)
    second = compact(sink.folder)
    assert set(first) <= set(vacuum(sink.folder, keep_for=0))
    assert read_files(sink.folder) == second
    assert [offset for _, offset, _ in rows(sink.folder)] == list(range(24))


def test_a_writer_of_long_ago_finds_its_place(sink: ParquetSink) -> None:
    """It remembers a manifest that has expired: the ones after it are absent, and it is not the last."""
    late = ParquetSink(sink.folder)
    assert late.positions([PARTITION]) == {PARTITION: 18}
    output = write(late, span(18, 20), "late")
    _go_on(sink, 3)
    compact(sink.folder)
    vacuum(sink.folder, keep_for=0)
    assert late.positions([PARTITION]) == {PARTITION: 27}
    outcome = commit(late, "late", output)
    assert (outcome.status, outcome.position) == (CommitStatus.CONFLICT, 27)
    assert [job for *_, job in rows(sink.folder)] == ["a"] * 27


def test_a_late_repeat_deletes_nothing_that_is_in_the_sink(sink: ParquetSink) -> None:
    """Nobody can tell any more that it was this job: its files may be those that the checkpoint lists."""
    written = write(sink, span(18, 20), "b")
    commit(sink, "b", written)
    _go_on(sink, 1)
    compact(sink.folder, target_bytes=1)
    assert commit(ParquetSink(sink.folder), "b", written).status is CommitStatus.CONFLICT
    assert [offset for _, offset, _ in rows(sink.folder)] == list(range(23))


Action = Callable[[Path], object]


def _keep_small(folder: Path) -> None:
    compact(folder)
    vacuum(folder, keep_for=0)


def _others(folder: Path) -> None:
    _go_on(ParquetSink(folder), 2)
    _keep_small(folder)


def _goes_on(folder: Path) -> None:
    """A pipeline's part: if others have done its range meanwhile, it says so, or its file is gone."""
    with contextlib.suppress(SinkWriteError):
        _go_on(ParquetSink(folder), 1)


def _calls(action: Action, folder: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        calls = SystemCalls().install(patch)
        action(folder)
    return len(calls.made)


def _prepared(folder: Path) -> Path:
    sink = ParquetSink(folder)
    _go_on(sink, 2)
    compact(folder)
    _go_on(sink, 1)
    return folder


def test_a_crash_at_any_call_changes_no_row(tmp_path: Path) -> None:
    total = _calls(_keep_small, _prepared(tmp_path / "count"))
    assert total > 15
    for at in range(total):
        folder = _prepared(tmp_path / str(at))
        with pytest.MonkeyPatch.context() as patch:
            DeadFrom(at).install(patch)
            with pytest.raises(Crash):
                _keep_small(folder)
        _others(folder)
        assert [offset for _, offset, _ in rows(folder)] == list(range(15)), f"after a crash at call {at}"
        assert len(_places(folder)) == 5, f"after a crash at call {at}"


@pytest.mark.parametrize("stopped", [_keep_small, _goes_on], ids=["compaction", "writer"])
def test_others_may_do_all_of_it_between_any_two_calls(tmp_path: Path, stopped: Action) -> None:
    for at in range(_calls(stopped, _prepared(tmp_path / "count"))):
        folder = _prepared(tmp_path / str(at))
        with pytest.MonkeyPatch.context() as patch:
            SystemCalls(at, lambda folder=folder: _others(folder)).install(patch)  # type: ignore[misc]
            stopped(folder)
        seen = [offset for _, offset, _ in rows(folder)]
        assert seen == list(range(max(15, len(seen)))), f"after others came at call {at}"
        _others(folder)
        assert [offset for _, offset, _ in rows(folder)] == list(range(len(seen) + 6))
        assert len(_places(folder)) == 5, f"after others came at call {at}"


def test_a_repeat_is_in_whatever_others_do_between_two_of_its_calls(tmp_path: Path) -> None:
    """What it saw last may have expired before it makes that durable."""

    def repeat(folder: Path) -> None:
        outcome = commit(ParquetSink(folder), "b", written)
        assert outcome.status is CommitStatus.ALREADY, "whether it is in does not depend on who went on since"

    for at in range(30):
        folder = tmp_path / str(at)
        written = write(ParquetSink(folder), span(0, 3), "b")
        commit(ParquetSink(folder), "b", written)
        with pytest.MonkeyPatch.context() as patch:
            calls = SystemCalls(at, lambda folder=folder: _others(folder)).install(patch)  # type: ignore[misc]
            repeat(folder)
        if len(calls.made) <= at:
            break
        assert [offset for _, offset, _ in rows(folder)] == list(range(9)), f"after others came at call {at}"
    assert 0 < at < 29


@pytest.mark.parametrize("damage", ["cut", "gone", "copied"])
def test_a_damaged_checkpoint_stops_readers_and_writers(sink: ParquetSink, damage: str) -> None:
    compact(sink.folder)
    vacuum(sink.folder, keep_for=0)
    place = sink.folder / "_instride" / checkpoint_key("flights", 3, 1)
    content = place.read_bytes()
    place.unlink()
    if damage == "cut":
        place.write_bytes(content[:90])
    elif damage == "copied":
        (place.parent / place.name.replace("1", "2")).write_bytes(content)
    with pytest.raises(CorruptManifestError):
        read_table(sink.folder)
    with pytest.raises(CorruptManifestError):
        ParquetSink(sink.folder).positions([PARTITION])


def test_a_listing_of_what_expires_meanwhile_is_made_anew(sink: ParquetSink) -> None:
    """Between listing and reading, others compact and delete all that the listing showed."""

    class Slow(LocalStorage):
        expired: list[str] = []  # noqa: RUF012

        def read(self, key: str) -> bytes | None:
            if not self.expired and "partition" in key:
                self.expired.append(key)
                _others(sink.folder)
            return _READ(self, key)

    compact(sink.folder)
    chain = Chain(Slow(sink.folder / "_instride"), "flights", 3)
    last = chain.state().last
    assert last is not None
    assert last.end == 24
    Slow.expired.clear()
    again = Chain(Slow(sink.folder / "_instride"), "flights", 3).last()
    assert again is not None
    assert again.end == 30


def test_a_checkpoint_that_appears_long_after_it_was_made_is_new(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its compaction was stopped for two hours just before it created it: readers began meanwhile. The temporary file
    had been written.
    """
    snapshot = read_files(sink.folder)
    long_ago = time.time() - 7_200
    with monkeypatch.context() as patch:
        patch.setattr("instride.spark.parquet._compaction.time", SimpleNamespace(time=lambda: long_ago))
        patch.setattr(os, "fsync", lambda handle: os.utime(handle, (long_ago, long_ago)))
        assert len(compact(sink.folder)) == 1
    assert vacuum(sink.folder, keep_for=3_600) == []
    assert all(Path(path).exists() for path in snapshot)
    assert set(vacuum(sink.folder, keep_for=0)) == set(snapshot)


def test_a_change_of_owners_or_rights_makes_no_checkpoint_younger(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes changes the group of all files at each mount (fsGroup): no vacuum would delete anything."""
    snapshot = read_files(sink.folder)
    long_ago = time.time() - 7_200
    with monkeypatch.context() as patch:
        patch.setattr("instride.spark.parquet._compaction.time", SimpleNamespace(time=lambda: long_ago))
        compact(sink.folder)
    for path in _places(sink.folder):
        os.utime(path, (long_ago, long_ago))
        os.chown(path, -1, os.getgid())
        path.chmod(0o664)
    assert set(vacuum(sink.folder, keep_for=3_600)) == set(snapshot)
