"""Sinks that are tables: a commit that another's comes into, what an engine's upkeep does to them, what they refuse."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from table_help import READERS, catalog, delta, iceberg

from instride.errors import MissingDataError, NotASinkError, SinkError, SinkWriteError
from instride.records import TopicPartition
from instride.spark import DeltaSink, IcebergSink
from instride.spark._tables.combining import Combiner
from instride.spark._tables.table_sink import Reached, Snapshot, TableSink
from instride.spark._tables.writer import TableWriter
from instride.spark.contract import CHECKS, SCHEMA, SinkUnderTest
from instride.spark.sink import CommitOutcome, CommitStatus, FileInfo, JobResult, OutputRange, Sink, WrittenRange

COMMITTED, CONFLICT = CommitStatus.COMMITTED, CommitStatus.CONFLICT
Place = Callable[[Path], SinkUnderTest]
both = pytest.mark.parametrize("place", [delta, iceberg], ids=["delta", "iceberg"])


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
        (pa.record_batch({"job": ["a"]}), "does not fit"),
        (pa.record_batch({"partition": ["x"], "offset": [1], "job": ["a"]}), "does not fit"),
    ):
        with pytest.raises(SinkError, match=text):
            writer.write(span(0, 1), job="a", attempt=0, batches=iter([wrong]))


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


def test_a_rule_that_comes_while_drivers_run_stops_them(tmp_path: Path) -> None:
    sink = DeltaSink(f"file://{tmp_path}/out", schema=SCHEMA)
    commit(sink, "a", write(sink, span(0, 3), "a"))
    DeltaTable(str(tmp_path / "out")).alter.add_constraint({"late": "offset > -1"})
    with pytest.raises(NotASinkError, match=r"delta\.constraints\.late"):
        commit(sink, "b", write(sink, span(3, 6), "b"))


def test_places_that_are_no_iceberg_sink_are_refused(tmp_path: Path) -> None:
    made, at = catalog(tmp_path / "out"), TopicPartition("flights", 0)
    with pytest.raises(SinkWriteError, match=r"cannot load the Iceberg table made\.flights"):
        IcebergSink(made, "made.flights").positions([at])
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
