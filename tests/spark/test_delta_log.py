"""A Delta table's offsets are read from its log once, not one by one; where that cannot be, deltalake tells them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from instride.errors import SinkWriteError
from instride.records import TopicPartition
from instride.spark import DeltaSink
from instride.spark._tables.delta_log import TransactionLog, commit_file

SCHEMA = pa.schema([("offset", pa.int64())])
PARTITIONS = [TopicPartition("flights", number) for number in range(20)]
OFFSETS = {each: each.partition * 3 for each in PARTITIONS}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of deltalake; each reads the log once more."""
    asked: list[str] = []
    real = DeltaTable.transaction_version

    def counted(table: DeltaTable, application: str) -> int | None:
        asked.append(application)
        return real(table, application)

    monkeypatch.setattr(DeltaTable, "transaction_version", counted)
    return asked


def begun(folder: Path) -> DeltaSink:
    sink = DeltaSink(folder, schema=SCHEMA)
    for partition, offset in OFFSETS.items():
        sink.begin(partition, offset)
    return sink


def as_it_is(log: Path) -> None:
    pass


def with_a_checkpoint(log: Path) -> None:
    DeltaTable(str(log.parent)).create_checkpoint()
    set_first(log, 7)


def cleaned_up(log: Path) -> None:
    table = DeltaTable(str(log.parent))
    table.create_checkpoint()
    for version in range(table.version()):
        commit_file(log, version).unlink()
    set_first(log, 7)


def in_parts(log: Path) -> None:
    cleaned_up(log)
    (whole,) = log.glob("*.checkpoint.parquet")
    version = whole.name.partition(".")[0]
    whole.rename(log / f"{version}.checkpoint.0000000001.0000000001.parquet")
    (log / "_last_checkpoint").unlink()


def set_first(log: Path, offset: int) -> None:
    """As another driver does, meanwhile."""
    table = DeltaTable(str(log.parent))
    numbers = CommitProperties(app_transactions=[Transaction("instride/flights/0/offset", offset)])
    table.create_write_transaction([], mode="append", schema=table.schema(), commit_properties=numbers)


@pytest.mark.parametrize("change", [as_it_is, with_a_checkpoint, cleaned_up])
def test_offsets_of_all_partitions_ask_deltalake_nothing(
    change: Callable[[Path], None], tmp_path: Path, asked: list[str]
) -> None:
    old = begun(tmp_path / "out")
    change(tmp_path / "out" / "_delta_log")
    expected = OFFSETS | {PARTITIONS[0]: 0 if change is as_it_is else 7}
    for sink in (old, DeltaSink(tmp_path / "out")):
        assert sink.positions([*PARTITIONS, TopicPartition("flights", 99)]) == {
            **expected,
            TopicPartition("flights", 99): None,
        }
    assert asked == []


def test_a_log_with_a_checkpoint_in_parts_is_read_by_deltalake(tmp_path: Path, asked: list[str]) -> None:
    begun(tmp_path / "out")
    in_parts(tmp_path / "out" / "_delta_log")
    assert DeltaSink(tmp_path / "out").positions(PARTITIONS) == OFFSETS | {PARTITIONS[0]: 7}
    assert len(asked) == 3 * len(PARTITIONS)


def test_a_log_that_deltalake_cannot_read_either_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path / "out")
    in_parts(tmp_path / "out" / "_delta_log")

    def gone(_table: DeltaTable, _application: str) -> int:
        raise DeltaError("the log is gone")

    monkeypatch.setattr(DeltaTable, "transaction_version", gone)
    with pytest.raises(SinkWriteError, match=r"cannot read the Delta table .*: the log is gone"):
        DeltaSink(tmp_path / "out").positions(PARTITIONS)


def test_each_commit_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path / "out")
    folder, newest = tmp_path / "out" / "_delta_log", DeltaTable(str(tmp_path / "out")).version()
    opened: list[str] = []
    real = Path.open

    def counted(path: Path, *args: object, **named: object) -> object:
        opened.append(path.name)
        return real(path, *args, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", counted)
    log = TransactionLog(folder)
    for version in (3, 3, newest, newest):
        assert log.at(version) is not None
    assert opened == [commit_file(folder, each).name for each in range(newest + 1)]


def test_an_older_version_is_read_from_the_beginning(tmp_path: Path) -> None:
    """Where another table has come into the folder, say."""
    begun(tmp_path / "out")
    log = TransactionLog(tmp_path / "out" / "_delta_log")
    assert log.at(2) == {"instride/flights/0/offset": 0, "instride/flights/0/job": 0, "instride/flights/0/topic": 0} | {
        f"instride/flights/1/{name}": number for name, number in (("offset", 3), ("job", 0), ("topic", 0))
    }
    later = log.at(20)
    assert later is not None
    assert len(later) == 60
    earlier = log.at(2)
    assert earlier is not None
    assert len(earlier) == 6


def test_a_table_made_anew_under_a_driver_has_the_offsets_of_its_own(tmp_path: Path) -> None:
    """Else the old driver's next range would be committed, and the rows before it be in no table."""
    folder = tmp_path / "out"
    old = begun(folder)
    assert old.positions(PARTITIONS) == OFFSETS
    shutil.rmtree(folder)
    new = DeltaSink(folder, schema=pa.schema([*SCHEMA, ("note", pa.string())]))
    for number in range(30):
        new.begin(TopicPartition("others", number), 5)
    new.begin(PARTITIONS[1], 1)
    assert old.positions(PARTITIONS) == dict.fromkeys(PARTITIONS) | {PARTITIONS[1]: 1}
    assert old.begin(PARTITIONS[2], 8) == 8
    assert old.writer().schema.names == ["offset", "note"]


@pytest.mark.parametrize("change", [with_a_checkpoint, cleaned_up, in_parts])
def test_a_log_whose_last_file_is_another_is_read_from_the_beginning(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    begun(tmp_path / "out")
    folder = tmp_path / "out" / "_delta_log"
    log = TransactionLog(folder)
    assert log.at(20) == as_numbers(OFFSETS)
    newest = commit_file(folder, 20)
    newest.write_bytes(newest.read_bytes().replace(b'"version":57', b'"version":58'))
    assert log.at(20) == as_numbers(OFFSETS | {PARTITIONS[19]: 58})
    change(folder)
    newest.unlink(missing_ok=True)
    found = log.at(21)
    assert found is None if change is in_parts else found is not None and found["instride/flights/0/offset"] == 7


def test_a_table_made_anew_at_a_checkpoint_is_read_from_the_beginning(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    begun(folder)
    DeltaTable(str(folder)).create_checkpoint()
    log = TransactionLog(folder / "_delta_log")
    assert log.at(20) == as_numbers(OFFSETS)
    shutil.rmtree(folder)
    new = DeltaSink(folder, schema=SCHEMA)
    anew = {each: each.partition * 3 + 1 for each in PARTITIONS}
    for partition, offset in anew.items():
        new.begin(partition, offset)
    assert log.at(20) == as_numbers(anew)


def as_numbers(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {
        f"instride/flights/{each.partition}/{name}": number
        for each, offset in offsets.items()
        for name, number in (("offset", offset), ("job", 0), ("topic", 0))
    }


def test_a_log_that_ends_before_the_version_tells_nothing(tmp_path: Path) -> None:
    begun(tmp_path / "out")
    log = TransactionLog(tmp_path / "out" / "_delta_log")
    assert log.at(99) is None
    assert log.at(20) is not None
