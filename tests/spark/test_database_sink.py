"""A table of a database as a sink: what the contract's checks do not see. The faults are those of its connections."""

from __future__ import annotations

import itertools
import pickle
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from table_help import database_of, place, ready, sqlite, table_in

from instride.errors import ConfigError, MissingDataError, NotASinkError, SinkError, SinkWriteError
from instride.records import TopicPartition
from instride.spark import DatabaseSink
from instride.spark.contract import SCHEMA
from instride.spark.sink import CommitOutcome, CommitStatus, JobResult, OutputRange, WrittenRange

AT = TopicPartition("flights", 0)


def span(start: int, end: int) -> OutputRange:
    return OutputRange(topic="flights", partition=0, start=start, end=end)


def batches(output: OutputRange, job: str) -> Iterator[pa.RecordBatch]:
    offsets = list(range(output.start, output.end))
    rows = {"partition": [0] * len(offsets), "offset": offsets, "job": [job] * len(offsets)}
    yield pa.RecordBatch.from_pydict(rows, schema=SCHEMA)


def write(sink: DatabaseSink, output: OutputRange, job: str) -> WrittenRange:
    return sink.writer().write(output, job=job, attempt=0, batches=batches(output, job))


def commit(sink: DatabaseSink, job: str, written: WrittenRange) -> CommitOutcome:
    return sink.commit(JobResult(job=job, written=(written,)))[AT]


# -- connections that fail


class Faults:
    """Of every connection of this process: at which of their steps one breaks."""

    def __init__(self) -> None:
        self.due: int | None = None
        self.after = False
        self.steps = 0
        self.gate: threading.Event | None = None
        self.waits = threading.Event()

    def step(self, work: Callable[[], Any]) -> Any:
        self.steps += 1
        broken = self.steps == self.due
        if broken and not self.after:
            raise sqlite3.OperationalError("the connection broke")
        result = work()
        if broken:
            raise sqlite3.OperationalError("the connection broke")
        return result

    def hold(self, statement: str) -> None:
        """Whoever has just set an offset says nothing until the gate opens."""
        gate = self.gate
        if gate is not None and statement.startswith('UPDATE "instride_offsets"'):
            self.gate = None
            self.waits.set()
            assert gate.wait(120)


faults = Faults()


@pytest.fixture(autouse=True)
def no_faults() -> None:
    faults.__init__()  # type: ignore[misc]


class BreakingCursor(sqlite3.Cursor):
    def execute(self, statement: str, values: Any = ()) -> BreakingCursor:
        execute = super().execute
        faults.step(lambda: execute(statement, values))
        return self


class BreakingConnection(sqlite3.Connection):
    def cursor(self, *_: Any) -> Any:
        return BreakingCursor(self)

    def commit(self) -> None:
        faults.step(super().commit)


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_each_step_leaves_all_or_nothing_and_commits_may_be_repeated(after: bool, tmp_path: Path) -> None:
    """Before or after each statement and each commit of a driver that begins a partition and commits twice."""
    jobs = [("a", span(3, 8)), ("b", span(8, 9))]
    whole = [(0, each, job) for job, output in jobs for each in range(output.start, output.end)]
    for due in itertools.count(1):
        folder = tmp_path / str(due)
        case = place("sqlite", folder)
        case.make()
        faults.steps, faults.due, faults.after = 0, due, after  # each step breaks once
        make = partial(DatabaseSink, partial(sqlite, str(folder / "flights.db"), BreakingConnection), table_in(folder))
        try:
            drive(make(columns=SCHEMA.names), jobs)
        except SinkWriteError:
            assert sorted(case.rows()) in ([], whole[:5], whole)
            drive(make(columns=SCHEMA.names), jobs)
        case.holds(*((output, job) for job, output in jobs))
        if faults.steps < due:
            break  # there is no such step
    assert due > 25, "few steps: is it still each?"


def drive(sink: DatabaseSink, jobs: Sequence[tuple[str, OutputRange]]) -> None:
    reached = sink.begin(AT, 3)
    for job, output in jobs:
        if reached <= output.end:
            outcome = commit(sink, job, write(sink, output, job))
            assert outcome.is_in
            reached = outcome.position


def holding(uri: str) -> Any:
    """A connection of psycopg's that does nothing for as long as `faults` says, as a driver that was stopped."""
    import psycopg

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **more: Any) -> Cursor:
            super().execute(query, *args, **more)
            faults.hold(str(query))
            return self

    return psycopg.connect(uri, cursor_factory=Cursor)


def test_a_driver_that_stops_within_its_transaction_blocks_nobody_writes_nothing(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Law 3: it has the partition's lock, and its rows are as good as in the table."""
    ready("postgresql", request, tmp_path)
    folder = tmp_path / "out"
    case = place("postgresql", folder)
    other = case.make()
    assert isinstance(other, DatabaseSink)
    other.begin(AT, 0)
    stopped = DatabaseSink(
        partial(holding, request.getfixturevalue("postgres_database")),
        table_in(folder),
        columns=SCHEMA.names,
        transaction_timeout=0.2,
    )
    written = write(stopped, span(0, 5), "stopped")
    faults.gate = gate = threading.Event()
    problems: list[Exception] = []

    def go() -> None:
        try:
            commit(stopped, "stopped", written)
        except SinkError as error:
            problems.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        assert faults.waits.wait(120)
        assert commit(other, "other", write(other, span(0, 7), "other")).status is CommitStatus.COMMITTED
    finally:
        gate.set()
        thread.join()
    assert [type(problem) for problem in problems] == [SinkWriteError]
    assert commit(stopped, "stopped", written) == CommitOutcome(status=CommitStatus.CONFLICT, position=7)
    case.holds((span(0, 7), "other"))


def test_staged_rows_go_with_the_next_commit_and_a_range_without_rows_does_not(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Laws 4 and 5; and a connection that has died is not used again."""
    ready("postgresql", request, tmp_path)
    folder = tmp_path / "out"
    case = place("postgresql", folder)
    sink = case.make()
    assert isinstance(sink, DatabaseSink)
    connect = database_of("postgresql", folder)

    def staged() -> int:
        with closing(connect()) as connection:
            count: int = connection.execute(f"SELECT count(*) FROM {sink.staging_table}").fetchone()[0]
            return count

    first = write(sink, span(0, 5), "a")
    write(sink, span(0, 5), "zombie")
    later = write(sink, span(5, 7), "b")
    assert staged() == 12
    assert commit(sink, "a", first).status is CommitStatus.COMMITTED
    assert staged() == 2
    with closing(connect()) as connection:
        connection.execute(f"TRUNCATE {sink.staging_table}")  # as after a crash of the server
        connection.commit()
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        connection.commit()
    with pytest.raises(MissingDataError, match="staged 2 rows"):
        commit(sink, "b", later)
    assert commit(sink, "b", write(sink, span(5, 7), "b")).status is CommitStatus.COMMITTED
    case.holds((span(0, 5), "a"), (span(5, 7), "b"))


def test_values_of_many_types_upserts_and_a_schema(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    at = datetime(2026, 11, 22, 12, tzinfo=UTC)
    columns = "flight text PRIMARY KEY, delay double precision, at timestamptz, late boolean, raw bytea, note text"
    with closing(connect()) as connection:
        connection.execute("CREATE SCHEMA made")
        connection.execute(f"CREATE TABLE made.delays ({columns})")
        connection.commit()

    def automatic() -> Any:
        connection = connect()
        connection.autocommit = True  # which would split the transaction
        return connection

    sink = DatabaseSink(
        automatic,
        "made.delays",
        columns=["flight", "delay", "at", "late", "raw", "note"],
        on_conflict="(flight) DO UPDATE SET delay = excluded.delay WHERE excluded.flight NOT LIKE 'x%'",
    )
    for start, delay in ((0, 1.5), (1, 2.5)):
        rows = [{"flight": "DL1", "delay": delay, "at": at, "late": True, "raw": b"\x00\xff"}]
        written = sink.writer().write(
            span(start, start + 1), job="j", attempt=0, batches=iter([pa.RecordBatch.from_pylist(rows)])
        )
        assert commit(sink, "j", written).status is CommitStatus.COMMITTED
    with closing(connect()) as connection:
        assert connection.execute("SELECT * FROM made.delays").fetchall() == [("DL1", 2.5, at, True, b"\x00\xff", None)]


def test_what_the_table_does_not_take_is_refused_and_nothing_is_committed(tmp_path: Path) -> None:
    case = place("sqlite", tmp_path / "out")
    sink = case.make()
    wrong = pa.RecordBatch.from_pydict({"gate": ["A1"]})
    with pytest.raises(SinkError, match="no columns gate: it has partition, offset, job"):
        sink.writer().write(span(0, 1), job="a", attempt=0, batches=iter([wrong]))
    connect = database_of("sqlite", tmp_path / "out")
    with closing(connect()) as connection:
        connection.execute("CREATE TABLE once (n integer UNIQUE)")
    once = DatabaseSink(connect, "once", columns=["n"])
    twice = pa.RecordBatch.from_pydict({"n": [1, 1]})
    written = once.writer().write(span(0, 2), job="a", attempt=0, batches=iter([twice]))
    with pytest.raises(SinkError, match="the database refuses it: IntegrityError") as caught:
        commit(once, "a", written)
    assert not caught.value.retriable
    assert once.positions([AT]) == {AT: None}
    case.holds()


def test_places_and_settings_that_cannot_be_a_sink_are_named(tmp_path: Path) -> None:
    connect = database_of("sqlite", tmp_path / "out")
    with pytest.raises(SinkError, match="no such table: absent"):
        DatabaseSink(connect, "absent", columns=["n"]).writer()
    place("sqlite", tmp_path / "out").make().writer()
    with pytest.raises(NotASinkError, match="has no columns gate"):
        DatabaseSink(connect, table_in(tmp_path / "out"), columns=["gate"]).writer()
    good: dict[str, Any] = {"connect": connect, "table": "t", "columns": ["n"]}
    for name, value, text in [
        ("connect", "dbname=x", "connect must be a function"),
        ("columns", "n", "columns must be a list"),
        ("columns", ['n"; DROP TABLE t'], "no name of a table or column"),
        ("table", "made.", "no name of a table or column"),
        ("table", "t" * 64, "no name of a table or column"),
        ("on_conflict", "(n) DO UPDATE SET n = ?", "question mark"),
        ("transaction_timeout", 0, "transaction_timeout must be above 0"),
    ]:
        with pytest.raises(ConfigError, match=text):
            DatabaseSink(**{**good, name: value})
    sink = DatabaseSink(partial(sqlite3.connect, "file:secret"), "t" * 60, columns=["n"])
    assert len(sink.staging_table) <= 63
    writer = pickle.dumps(sink._database)
    assert b"secret" in writer
    assert "secret" not in repr(sink) + repr(sink._database)
