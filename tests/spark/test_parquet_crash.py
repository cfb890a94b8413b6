"""A process may end, another may come between, and the disk may fill, at every single system call.

Each test runs an action once to count its system calls, and then once for each of them.
"""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from parquet_help import PARTITION, Crash, DeadFrom, FailingFrom, SystemCalls, batches, commit, rows, span, write

from instride.errors import SinkWriteError
from instride.spark.parquet import ParquetSink, read_files, vacuum, write_data_file
from instride.spark.parquet import _files as files
from instride.spark.parquet._manifest import chain_folder
from instride.spark.sink import CommitStatus, WrittenRange

MonkeyPatch = pytest.MonkeyPatch


def _whole(folder: Path, patch: MonkeyPatch) -> None:
    """All that a driver and an executor do for one range, in a folder that is not there yet."""
    sink = ParquetSink(folder)
    commit(sink, "a", write(sink, span(0, 5), "a"))


def _second(folder: Path, patch: MonkeyPatch) -> None:
    """The same for the next range."""
    sink = ParquetSink(folder)
    commit(sink, "a", write(sink, span(5, 9), "a"))


def _calls_of(action: Callable[[Path, MonkeyPatch], None], folder: Path, patch: MonkeyPatch) -> int:
    with patch.context() as inner:
        calls = SystemCalls().install(inner)
        action(folder, patch)
    return len(calls.made)


def _recover(folder: Path, end: int) -> list[tuple[int, int, str]]:
    """What is there after another application has come, asked, and gone on to the end."""
    sink = ParquetSink(folder)
    reached = sink.positions([PARTITION])[PARTITION] or 0
    if reached < end:
        assert commit(sink, "z", write(sink, span(reached, end), "z")).status is CommitStatus.COMMITTED
    return rows(folder)


def test_a_crash_at_any_call_leaves_all_or_nothing(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    total = _calls_of(_whole, tmp_path / "count", monkeypatch)
    assert total > 40
    winners = []
    for at in range(total):
        folder = tmp_path / str(at)
        with monkeypatch.context() as patch:
            DeadFrom(at).install(patch)
            with pytest.raises(Crash):
                _whole(folder, patch)
        seen = _recover(folder, 5)
        assert [offset for _, offset, _ in seen] == [0, 1, 2, 3, 4], f"after a crash at call {at}"
        assert len({job for _, _, job in seen}) == 1
        winners.append(seen[0][2])
        vacuum(folder)
        assert rows(folder) == seen
        assert not list(folder.rglob("*.tmp"))
    assert winners == sorted(winners, reverse=True), "from the link on, and only from there, the first has won"
    assert set(winners) == {"a", "z"}


def test_a_crash_at_any_call_of_a_later_commit_keeps_what_was_there(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    def prepared(name: str) -> Path:
        _whole(tmp_path / name, monkeypatch)
        return tmp_path / name

    for at in range(_calls_of(_second, prepared("count"), monkeypatch)):
        folder = prepared(str(at))
        with monkeypatch.context() as patch:
            DeadFrom(at).install(patch)
            with pytest.raises(Crash):
                _second(folder, patch)
        seen = _recover(folder, 9)
        assert [offset for _, offset, _ in seen] == list(range(9))
        assert {job for _, offset, job in seen if offset < 5} == {"a"}


def test_a_driver_that_saw_no_response_may_commit_again(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    count, sink = 0, ParquetSink(tmp_path / "count")
    written = write(sink, span(0, 5), "a")
    with monkeypatch.context() as patch:
        calls = SystemCalls().install(patch)
        commit(sink, "a", written)
        count = len(calls.made)
    results = []
    for at in range(count):
        sink = ParquetSink(tmp_path / str(at))
        written = write(sink, span(0, 5), "a")
        with monkeypatch.context() as patch:
            DeadFrom(at).install(patch)
            with pytest.raises(Crash):
                commit(sink, "a", written)
        results.append(commit(ParquetSink(sink.folder), "a", written).status.value)
        assert [offset for _, offset, _ in rows(sink.folder)] == [0, 1, 2, 3, 4]
    assert results == sorted(results, reverse=True)
    assert set(results) == {"committed", "already"}


@pytest.mark.parametrize("end", [3, 5, 8])
def test_another_coming_between_any_two_calls_leaves_one_winner(
    tmp_path: Path, monkeypatch: MonkeyPatch, end: int
) -> None:
    winners: list[str] = []
    for at in range(_calls_of(_whole, tmp_path / "count", monkeypatch)):
        folder = tmp_path / str(at)

        def intrude(folder: Path = folder, patch: MonkeyPatch = monkeypatch) -> None:
            other = ParquetSink(folder)
            commit(other, "b", write(other, span(0, end), "b"))

        with monkeypatch.context() as patch:
            SystemCalls(at, intrude).install(patch)
            _whole(folder, patch)
        seen = rows(folder)
        jobs = {job for _, _, job in seen}
        assert len(jobs) == 1, f"after another came at call {at}"
        assert [offset for _, offset, _ in seen] == list(range(5 if jobs == {"a"} else end))
        winners += jobs
    assert set(winners) == {"a", "b"}


def test_vacuum_between_any_two_calls_does_no_harm(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    _whole(tmp_path / "count", monkeypatch)
    for at in range(_calls_of(_second, tmp_path / "count", monkeypatch)):
        folder = tmp_path / str(at)
        _whole(folder, monkeypatch)
        with monkeypatch.context() as patch:
            SystemCalls(at, partial(_vacuum, folder)).install(patch)
            _second(folder, patch)
        assert [offset for _, offset, _ in rows(folder)] == list(range(9))


def test_a_loser_is_in_conflict_even_if_a_vacuum_runs_within_its_commit(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    results = []
    for at in range(17):
        sink = ParquetSink(tmp_path / str(at))
        written = write(sink, span(0, 5), "a")

        def intrude(folder: Path = sink.folder) -> None:
            other = ParquetSink(folder)
            commit(other, "b", write(other, span(0, 5), "b"))
            vacuum(folder)

        with monkeypatch.context() as patch:
            SystemCalls(at, intrude).install(patch)
            results.append(commit(sink, "a", written).status.value)
    assert set(results) == {"committed", "conflict"}


def _vacuum(folder: Path) -> None:
    vacuum(folder)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_disk_that_refuses_at_any_call_leaves_nothing_visible_and_loses_nothing(
    tmp_path: Path, monkeypatch: MonkeyPatch, number: int
) -> None:
    for at in range(_calls_of(_whole, tmp_path / "count", monkeypatch)):
        folder = tmp_path / str(at)
        with monkeypatch.context() as patch:
            FailingFrom(at, number).install(patch)
            error = _write_error(partial(_whole, folder, monkeypatch))
        if error is not None:
            assert ("no room" in str(error)) == (number in (errno.ENOSPC, errno.EDQUOT))
            assert isinstance(error.__cause__, OSError)
            assert error.retriable
        assert not list(folder.rglob("*.tmp"))
        assert [offset for _, offset, _ in _recover(folder, 5)] == [0, 1, 2, 3, 4]


def _write_error(action: Callable[[], None]) -> SinkWriteError | None:
    try:
        action()
    except SinkWriteError as error:
        return error
    return None


def test_a_manifest_is_on_disk_before_it_is_seen_and_its_name_before_it_is_reported(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    _whole(tmp_path / "out", monkeypatch)
    sink = ParquetSink(tmp_path / "out")
    written = write(sink, span(5, 9), "b")
    with monkeypatch.context() as patch:
        calls = SystemCalls().install(patch)
        commit(sink, "b", written)
    made = ["open", "write", "fsync", "close", "utime", "link", "unlink", "open", "fsync", "close"]
    assert calls.made == made


def _committed(sink: ParquetSink) -> None:
    commit(sink, "b", WrittenRange(range=span(0, 5)))


def _begun(sink: ParquetSink) -> None:
    sink.begin(PARTITION, 5)


@pytest.mark.parametrize("action", [_committed, _begun])
def test_what_is_done_again_after_an_error_is_durable_when_it_returns(
    tmp_path: Path, monkeypatch: MonkeyPatch, action: Callable[[ParquetSink], None]
) -> None:
    """The first call may have failed after the link, at the sync of the folder: the second found it done."""
    for at in range(_calls_of(lambda folder, _: action(ParquetSink(folder)), tmp_path / "count", monkeypatch)):
        sink = ParquetSink(tmp_path / str(at))
        with monkeypatch.context() as patch:
            FailingFrom(at, errno.EIO).install(patch)
            with suppress(SinkWriteError):
                action(sink)
        with monkeypatch.context() as patch:
            calls = SystemCalls().install(patch)
            action(ParquetSink(sink.folder))
        assert calls.made[-3:] == ["open", "fsync", "close"]
        assert set(calls.opened) >= {tmp_path, *_folders_of_chain(sink.folder)}, "each is durable in the one above it"


def _written(sink: ParquetSink) -> None:
    write(sink, span(0, 5), "a")


def _written_for_a_table(sink: ParquetSink) -> None:
    output = span(0, 5)
    write_data_file(sink.folder, output, job="a", attempt=0, batches=batches(output, "a"), below="instride")


@pytest.mark.parametrize("in_another_process", [False, True])
@pytest.mark.parametrize("action", [_written, _written_for_a_table, _committed, _begun])
def test_a_folder_whose_maker_failed_is_durable_when_the_next_returns(
    tmp_path: Path, monkeypatch: MonkeyPatch, action: Callable[[ParquetSink], None], in_another_process: bool
) -> None:
    """A folder of data files was made, its sync failed, and from then on it was there: nobody synced its place."""
    deep = tmp_path / "count" / "deep" / "out"
    for at in range(_calls_of(lambda folder, _: action(ParquetSink(folder)), deep, monkeypatch)):
        above = tmp_path / str(at)
        sink = ParquetSink(above / "deep" / "out")
        with monkeypatch.context() as patch:
            failing = FailingFrom(at, errno.EIO)
            failing.install(patch)
            with suppress(SinkWriteError):
                action(sink)
        with monkeypatch.context() as patch:
            if in_another_process:
                patch.setattr(files, "_durable", {})
            calls = SystemCalls().install(patch)
            calls.volatile |= failing.volatile
            action(ParquetSink(sink.folder))
        # The marker can be written by hand, and what was committed cannot.
        may = {sink.folder / "_instride" / "sink.json"}
        # What is above a sink's place only its maker syncs: another process would sync all, up to the root.
        assert calls.volatile <= may | ({above, above / "deep"} if in_another_process else set()), at


@pytest.mark.parametrize("number", [errno.EACCES, errno.EINVAL, errno.EROFS, errno.ENOTSUP, errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("action", [_written, _committed])
def test_the_place_of_a_sink_is_synced_where_the_system_allows_it(
    tmp_path: Path, monkeypatch: MonkeyPatch, action: Callable[[ParquetSink], None], number: int
) -> None:
    """It may be another user's, or no disk's. The error of a disk passed for that, and nobody tried again."""
    sink = ParquetSink(tmp_path / "place" / "out")
    _committed(sink)

    class Refusing(SystemCalls):
        def _note(self, name: str, args: tuple[Any, ...], result: Any) -> None:
            if name == "fsync" and self._handles[args[0]] == tmp_path / "place":
                raise OSError(number, "refused")
            super()._note(name, args, result)

    # The first process has ended.
    monkeypatch.setattr(files, "_durable", {})
    with monkeypatch.context() as patch:
        Refusing().install(patch)
        error = _write_error(partial(action, ParquetSink(sink.folder)))
        assert (error is None) == (number not in (errno.EIO, errno.ENOSPC))
    with monkeypatch.context() as patch:
        calls = SystemCalls().install(patch)
        action(ParquetSink(sink.folder))
    assert error is None or tmp_path / "place" in calls.opened


def test_a_driver_that_follows_another_makes_its_chains_folders_durable(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """One that died after its first manifest, and before it synced what is above it: the next never began the chain."""
    _begun(ParquetSink(tmp_path / "out"))
    with monkeypatch.context() as patch:
        patch.setattr(files, "_durable", {})
        calls = SystemCalls().install(patch)
        commit(ParquetSink(tmp_path / "out"), "b", WrittenRange(range=span(5, 9)))
    assert set(calls.opened) >= {tmp_path, *_folders_of_chain(tmp_path / "out")}


def _folders_of_chain(folder: Path) -> set[Path]:
    chain = folder / "_instride" / chain_folder(PARTITION.topic, PARTITION.partition)
    return {each for each in (chain, *chain.parents) if each.is_relative_to(folder)}


def test_a_file_system_without_links_is_named(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        FailingFrom(0, errno.EPERM).install(patch)
        with pytest.raises(SinkWriteError, match="hard links are needed, or a sink in an object store"):
            ParquetSink(tmp_path / "out").writer()


_FILL = """
import resource, signal, sys
import pyarrow as pa
from instride.errors import SinkWriteError
from instride.spark.parquet import ParquetSink
from instride.spark.sink import OutputRange

sink = ParquetSink(sys.argv[1])
writer = sink.writer()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
output = OutputRange(topic="flights", partition=3, start=0, end=10)
noise = open("/dev/urandom", "rb")
batches = (pa.record_batch({"bytes": [noise.read(100_000)]}) for _ in range(10))
try:
    writer.write(output, job="a", attempt=0, batches=batches)
except SinkWriteError as error:
    assert "no room on the disk" in str(error), error
    sys.exit(77)
"""


def test_a_file_that_really_cannot_grow_is_a_typed_error_and_leaves_nothing(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _FILL, str(tmp_path / "out")], capture_output=True, timeout=60, check=False
    )
    assert run.returncode == 77, run.stderr.decode()
    assert [path for path in (tmp_path / "out" / "_data").rglob("*") if path.is_file()] == []
    assert read_files(tmp_path / "out") == []
