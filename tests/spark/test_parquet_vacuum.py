"""Vacuum deletes what no commit can ever list, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from parquet_help import Crash as ProcessEnd
from parquet_help import DeadFrom, commit, rows, span, write

from instride.errors import ConfigError
from instride.spark.parquet import ParquetSink, read_files, vacuum
from instride.spark.sink import CommitStatus


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink(tmp_path / "out")


def test_files_that_the_chain_has_passed_go_and_others_stay(sink: ParquetSink) -> None:
    loser = write(sink, span(0, 5), "b")
    in_flight = write(sink, span(5, 9), "c")
    listed = write(sink, span(0, 5), "a")
    commit(sink, "a", listed)
    stranger = (sink.folder / listed.files[0].path).with_name("README")
    stranger.write_text("keep me")
    assert vacuum(sink.folder) == [str(sink.folder / loser.files[0].path)]
    assert stranger.exists()
    assert read_files(sink.folder) == [str(sink.folder / listed.files[0].path)]
    assert commit(sink, "c", in_flight).status is CommitStatus.COMMITTED


@pytest.mark.parametrize("given", [0, 899.9])
def test_a_store_may_take_what_was_sent_up_to_a_quarter_of_an_hour_ago(given: float) -> None:
    """A vacuum could delete what a request that was under way then listed."""
    refused = rf"^keep_for must be a number of seconds, of at least 900 in an object store; it is {given}$"
    with pytest.raises(ConfigError, match=refused):
        vacuum("s3://bucket/out", keep_for=given)


def test_nothing_goes_before_the_chain_begins(sink: ParquetSink) -> None:
    written = write(sink, span(0, 5), "a")
    assert vacuum(sink.folder) == []
    assert commit(sink, "a", written).status is CommitStatus.COMMITTED


def test_half_written_files_go_once_they_can_come_to_nothing(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.positions([])
    _die_in_write(sink, monkeypatch)
    _die_in_commit(sink, monkeypatch)
    hidden = {str(path) for path in sink.folder.rglob(".*.tmp")}
    assert len(hidden) == 2
    assert vacuum(sink.folder) == []
    commit(sink, "b", write(sink, span(0, 5), "b"))
    assert hidden <= set(vacuum(sink.folder))
    assert len(rows(sink.folder)) == 5


def _die_in_write(sink: ParquetSink, monkeypatch: pytest.MonkeyPatch) -> None:
    write(sink, span(0, 5), "a")
    with monkeypatch.context() as patch:
        DeadFrom(1).install(patch)
        with pytest.raises(ProcessEnd):
            write(sink, span(0, 5), "a")


def _die_in_commit(sink: ParquetSink, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write(sink, span(0, 5), "a")
    with monkeypatch.context() as patch:
        calls = DeadFrom(10**6).install(patch)
        calls._at = _index_of_first_fsync_of_a_file()
        with pytest.raises(ProcessEnd):
            commit(sink, "a", written)


def _index_of_first_fsync_of_a_file() -> int:
    # The chain's folder and those above it are made first: mkdir, open, fsync, close for each of the two.
    return 2 * 4 + 2
