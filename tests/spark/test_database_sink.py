"""A table of a database as a sink: what the contract's checks do not see. The faults are those of its connections."""

from __future__ import annotations

import itertools
import math
import pickle
import re
import sqlite3
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
import pytest
from table_help import database_of, place, ready, sqlite, table_in

from instride import DatabaseStore
from instride.errors import ConfigError, MissingDataError, NotASinkError, SinkError, SinkWriteError
from instride.records import TopicPartition
from instride.spark import DatabaseSink
from instride.spark import _database as database_module
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
        self.interposed: Callable[[], None] | None = None
        self.statements: list[str] = []

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
        if gate is not None and statement.startswith('UPDATE "instride_sink_offsets"'):
            self.gate = None
            self.waits.set()
            assert gate.wait(120)

    def interpose(self) -> None:
        """What another does between two statements, once."""
        act, self.interposed = self.interposed, None
        if act is not None:
            act()


faults = Faults()


@pytest.fixture(autouse=True)
def no_faults() -> None:
    faults.__init__()  # type: ignore[misc]


class BreakingCursor(sqlite3.Cursor):
    def execute(self, statement: str, values: Any = ()) -> BreakingCursor:
        execute = super().execute
        faults.statements.append(statement)
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


def test_an_error_of_one_connection_has_no_table_looked_at_again(tmp_path: Path) -> None:
    """All partitions' calls would, and each may meet a connection that hangs."""
    case = place("sqlite", tmp_path / "out")
    case.make()
    path, table = str(tmp_path / "out" / "flights.db"), table_in(tmp_path / "out")
    sink = DatabaseSink(partial(sqlite, path, BreakingConnection), table, columns=SCHEMA.names)
    written = write(sink, span(0, 3), "a")
    faults.steps, faults.due, faults.statements = 0, 3, []
    with pytest.raises(SinkWriteError, match="the connection broke"):
        commit(sink, "a", written)
    assert commit(sink, "a", written).status is CommitStatus.COMMITTED
    assert not [each for each in faults.statements if "WHERE 1 = 0" in each or "CREATE" in each]


def waiting(path: str) -> Any:
    """The first to connect waits until the gate opens."""
    gate, faults.gate = faults.gate, None
    if gate is not None:
        faults.waits.set()
        assert gate.wait(120)
    return sqlite(path)


def test_a_connection_that_hangs_holds_up_its_own_call_only(tmp_path: Path) -> None:
    case = place("sqlite", tmp_path / "out")
    case.make()
    path, table = str(tmp_path / "out" / "flights.db"), table_in(tmp_path / "out")
    sink = DatabaseSink(partial(waiting, path), table, columns=SCHEMA.names)
    faults.gate = gate = threading.Event()
    found: list[Any] = []
    hanging = threading.Thread(target=lambda: found.append(sink.positions([AT])), daemon=True)
    hanging.start()
    assert faults.waits.wait(120)
    free = threading.Thread(target=lambda: found.append(commit(sink, "a", write(sink, span(0, 3), "a"))), daemon=True)
    free.start()
    free.join(20)
    outcomes = list(found)
    gate.set()
    hanging.join(120)
    assert outcomes == [CommitOutcome(status=CommitStatus.COMMITTED, position=3)]
    assert found[1:] == [{AT: 3}]


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


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_rows_of_lost_attempts_are_deleted_however_their_ranges_were_cut(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Law 5: staged before the commit, after it, and by whoever wakes up long after it."""
    ready(kind, request, tmp_path)
    case, connect = place(kind, tmp_path / "out"), database_of(kind, tmp_path / "out")
    sink = case.make()
    assert isinstance(sink, DatabaseSink)

    def starts() -> list[int]:
        query = f"SELECT DISTINCT instride_start FROM {sink.staging_table} ORDER BY 1"
        return [start for (start,) in run(connect, query)]

    def go_on(driver: Any, start: int) -> list[int]:
        assert commit(driver, "j", write(driver, span(start, start + 5), "j")).is_in
        return starts()

    write(sink, span(3, 40), "before all")
    assert go_on(sink, 5) == []
    write(sink, span(5, 20), "late")
    write(sink, span(10, 20), "as the next")
    write(sink, span(12, 14), "within the next")
    assert go_on(sink, 10) == []
    assert go_on(sink, 15) == []
    write(sink, span(7, 9), "awake again")
    write(sink, span(30, 40), "ahead")
    assert go_on(sink, 20) == [7, 30]
    assert go_on(case.make(), 25) == [30]
    assert go_on(sink, 30) == []
    case.holds(*((span(start, start + 5), "j") for start in range(5, 35, 5)))


def test_rows_that_are_staged_late_go_within_so_many_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stayed as long as the driver ran."""
    monkeypatch.setattr(database_module, "_SWEPT_EACH", 4)
    case, connect = place("sqlite", tmp_path / "out"), database_of("sqlite", tmp_path / "out")
    sink = case.make()
    assert isinstance(sink, DatabaseSink)
    left = list[int]()
    for start in range(5, 65, 5):
        assert commit(sink, "j", write(sink, span(start, start + 5), "j")).is_in
        left.append(run(connect, f"SELECT count(*) FROM {sink.staging_table}")[0][0])
        if start in (5, 30):
            write(sink, span(0, 50), "awake again")
    assert left == [0, 50, 50, 50, 0, 0, 50, 50, 0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_commit_in_conflict_leaves_no_rows_of_its_job(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """But those of one that comes too early."""
    ready(kind, request, tmp_path)
    case, connect = place(kind, tmp_path / "out"), database_of(kind, tmp_path / "out")
    slow, quick = case.make(), case.make()
    assert isinstance(slow, DatabaseSink)
    assert isinstance(quick, DatabaseSink)
    assert commit(slow, "a", write(slow, span(0, 5), "a")).is_in
    for start in (5, 10):
        assert commit(quick, "b", write(quick, span(start, start + 5), "b")).is_in
    dropped, early = write(slow, span(5, 50), "late"), write(slow, span(20, 25), "early")
    assert [commit(slow, job, each).status for job, each in (("late", dropped), ("early", early))] == [
        CommitStatus.CONFLICT
    ] * 2
    assert run(connect, f"SELECT DISTINCT instride_start FROM {quick.staging_table}") == [(20,)]
    assert commit(quick, "b", write(quick, span(15, 20), "b")).is_in
    assert commit(slow, "early", early).status is CommitStatus.COMMITTED


def telling(uri: str) -> Any:
    """A connection of psycopg's that keeps what it deletes from the staging table, as it would be explained."""
    import psycopg

    class Cursor(psycopg.ClientCursor[Any]):
        def execute(self, query: Any, *args: Any, **more: Any) -> Cursor:
            super().execute(query, *args, **more)
            if str(query).startswith('DELETE FROM "instride_rows_'):
                faults.statements.append(self.mogrify(query, *args))
            return self

    return psycopg.connect(uri, cursor_factory=Cursor)


def test_an_open_snapshot_does_not_make_each_commit_cost_more_than_the_one_before(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Law 5: rows that it may see stay in the index after they are deleted."""
    ready("postgresql", request, tmp_path)
    connect, uri = database_of("postgresql", tmp_path / "out"), request.getfixturevalue("postgres_database")
    run(connect, "CREATE TABLE sizes (n integer)")
    sink = DatabaseSink(partial(telling, uri), "sizes", columns=["n"])
    sink.begin(AT, 0)
    batch, found = pa.record_batch({"n": list(range(200))}), list[int]()

    def buffers() -> int:
        """That the statements of the last commit would read now."""
        read = 0
        with closing(connect()) as connection:
            connection.execute("SET enable_seqscan = off")
            for statement in faults.statements:
                plan = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}").fetchone()[0][0]
                read += plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
        return read

    with closing(connect()) as snapshot:
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        snapshot.execute("SELECT count(*) FROM sizes")
        for start in range(50):
            written = sink.writer().write(span(start, start + 1), job="j", attempt=0, batches=iter([batch]))
            faults.statements = []
            assert commit(sink, "j", written).is_in
            found.append(buffers())
    assert found[49] < 2 * found[9], found


def lossy(uri: str) -> Any:
    """A connection of psycopg's that does what `faults` has right before rows go into the table."""
    import psycopg

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **more: Any) -> Cursor:
            if str(query).startswith(('INSERT INTO "flights_', 'INSERT INTO "bills"')):
                faults.interpose()
            super().execute(query, *args, **more)
            return self

    return psycopg.connect(uri, cursor_factory=Cursor)


def test_rows_that_vanish_while_they_are_committed_are_missed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Law 4: what counts is what the transaction itself has taken."""
    ready("postgresql", request, tmp_path)
    folder = tmp_path / "out"
    case = place("postgresql", folder)
    case.make()
    sink = DatabaseSink(
        partial(lossy, request.getfixturevalue("postgres_database")), table_in(folder), columns=SCHEMA.names
    )
    written = write(sink, span(0, 5), "a")

    def delete() -> None:
        run(database_of("postgresql", folder), f"DELETE FROM {sink.staging_table} WHERE \"offset\" IN ('3')")

    faults.interposed = delete
    with pytest.raises(MissingDataError, match=r"staged 5 rows .* has 4"):
        commit(sink, "a", written)
    assert sink.positions([AT]) == {AT: None}
    assert commit(sink, "a", write(sink, span(0, 5), "a")).status is CommitStatus.COMMITTED
    case.holds((span(0, 5), "a"))


@pytest.mark.parametrize("first", ["a", "c"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_sinks_of_one_table_with_offsets_of_their_own_share_no_staged_row(
    kind: str, first: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Two pipelines of the same topic; and one that names the table in another way.

    first: who makes the staging table. Of one with its schema SQLite could not make the index.
    """
    ready(kind, request, tmp_path)
    case = place(kind, tmp_path / "out")
    case.make()
    connect, table = database_of(kind, tmp_path / "out"), table_in(tmp_path / "out")
    schema = "main" if kind == "sqlite" else run(connect, "SELECT current_schema()")[0][0]
    sinks = {
        "a": DatabaseSink(connect, table, columns=SCHEMA.names, offsets_table="offsets_a"),
        "b": DatabaseSink(connect, table, columns=SCHEMA.names, offsets_table="offsets_b"),
        "c": DatabaseSink(connect, f"{schema}.{table}", columns=SCHEMA.names, offsets_table="offsets_b"),
    }
    written = {job: write(sinks[job], span(0, 3), job) for job in sorted(sinks, key=lambda job: job != first)}
    for job, sink in sinks.items():
        assert commit(sink, job, written[job]).status is CommitStatus.COMMITTED
    case.holds(*((span(0, 3), job) for job in sinks))


class Refusing:
    """A connection to a server, or through a proxy, that refuses the setting."""

    made: ClassVar[list[Refusing]] = []

    def __init__(self) -> None:
        self.closed = False
        self.made.append(self)

    def cursor(self) -> Any:
        def execute(*_: object) -> None:
            raise LookupError("SET")

        return SimpleNamespace(execute=execute, close=lambda: None)

    def close(self) -> None:
        self.closed = True


def test_a_connection_that_cannot_be_set_up_is_closed() -> None:
    """Each try left one to the server, until no more were granted."""
    sink = DatabaseSink(Refusing, "bills", columns=["n"])
    with pytest.raises(LookupError, match="SET"):
        sink.positions([AT])
    assert Refusing.made
    assert all(each.closed for each in Refusing.made)


class Breaking(Refusing):
    """And breaks while it is closed."""

    def close(self) -> None:
        super().close()
        raise ConnectionResetError("while it was closed")


def test_an_error_of_closing_a_connection_that_cannot_be_set_up_hides_no_cause() -> None:
    with pytest.raises(LookupError, match="SET"):
        DatabaseSink(Breaking, "bills", columns=["n"]).positions([AT])


@pytest.mark.parametrize("text", ["postgres//made:canary@localhost/made", "host=localhost password=a canary dbname=x"])
def test_a_connection_string_that_cannot_be_parsed_is_not_quoted(text: str) -> None:
    """psycopg quotes it, with its password."""
    sink = DatabaseSink(partial(psycopg.connect, text), "bills", columns=["n"])
    with pytest.raises(SinkError, match="is what it gives its driver a connection string") as raised:
        sink.writer()
    told = "".join(traceback.format_exception(raised.value))
    assert "canary" not in told
    assert "Tried" not in told


def unreachable(text: str) -> Any:
    """As psycopg, without a look-up: the host is what follows the first @."""
    raise psycopg.OperationalError(f"failed to resolve host {text.partition('@')[2].partition('/')[0]!r}")


@pytest.mark.parametrize("user", ["made:p@canary/word", "made:p@canary", "made@canary:word", "made:p/@canary"])
def test_a_password_that_is_not_percent_encoded_is_not_quoted(user: str) -> None:
    """Of one with an @ a driver takes a part for the host."""
    text = f"postgresql://{user}@127.0.0.1:1/made"
    for connect in (partial(unreachable, text), partial(unreachable, text=text), lambda: unreachable(text)):
        with pytest.raises(SinkWriteError, match="user and password are percent-encoded") as raised:
            DatabaseSink(connect, "bills", columns=["n"]).writer()
        assert "canary" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("text", ["postgresql://made:p%40ss:word@nowhere/made?application_name=a/b", "host=@nowhere"])
def test_why_a_database_cannot_be_reached_is_told(text: str) -> None:
    with pytest.raises(SinkWriteError, match="OperationalError: failed to resolve host 'nowhere'"):
        DatabaseSink(partial(unreachable, text), "bills", columns=["n"]).writer()


# -- a table that changes

WIDENED = [
    ("numeric(10,0)", "numeric(12,2)", Decimal("12.34")),
    ("integer", "numeric(12,2)", Decimal("12.34")),
    ("integer", "bigint", 2**40),
    ("real", "double precision", 1234567.891),
    ("timestamp(0)", "timestamp(6)", datetime(2026, 1, 1, 0, 0, 0, 123456)),  # noqa: DTZ001 - as the column
    ("varchar(3)", "text", "longer"),
]


def run(connect: Callable[[], Any], *statements: str) -> Any:
    """What the last one found, if anything."""
    with closing(connect()) as connection:
        for statement in statements:
            found = connection.execute(statement)
        rows = found.fetchall() if found.description else None
        connection.commit()
    return rows


def put(sink: DatabaseSink, at: int, **values: Any) -> WrittenRange:
    batch = pa.RecordBatch.from_pydict({name: [value] for name, value in values.items()})
    return sink.writer().write(span(at, at + 1), job="j", attempt=0, batches=iter([batch]))


@pytest.mark.parametrize(("old", "new", "value"), WIDENED, ids=[f"{old}-{new}" for old, new, _ in WIDENED])
def test_a_column_that_was_widened_takes_values_whole(
    old: str, new: str, value: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Those staged before it too, by drivers that began before it and after it, and in a table made anew."""
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    run(connect, f"CREATE TABLE bills (n integer, amount {old})")
    make = partial(DatabaseSink, connect, "bills", columns=["n", "amount"])
    early = make()
    assert commit(early, "j", put(early, 0, n=0)).is_in
    staged = put(early, 1, n=1, amount=value)
    run(connect, f"ALTER TABLE bills ALTER amount TYPE {new}")
    assert commit(early, "j", staged).is_in
    for at, sink in ((2, early), (3, make())):
        assert commit(sink, "j", put(sink, at, n=at, amount=value)).is_in
    assert run(connect, "SELECT amount FROM bills WHERE n > 0 ORDER BY n") == [(value,)] * 3
    run(connect, "DROP TABLE bills", f"CREATE TABLE bills (n integer, amount {new})")
    for at, sink in ((4, early), (5, make())):
        assert commit(sink, "j", put(sink, at, n=at, amount=value)).is_in
    assert run(connect, "SELECT amount FROM bills") == [(value,)] * 2


MIGRATED = [
    ("text", "bytea USING convert_to(value, 'UTF8')", b"a\\101b", b"a\\101b"),
    ("bytea", "text USING convert_from(value, 'UTF8')", b"DL1", "DL1"),
    ("text", "varchar(9)[] USING ARRAY[value]", "{NULL}", None),
    ("text", "time USING NULL", 1200, None),
]
"""The column's type before and after; a value; what the table holds then, or None where it is refused."""


@pytest.mark.parametrize(
    ("old", "new", "value", "then"), MIGRATED, ids=[f"{old}-{new[:5]}" for old, new, *_ in MIGRATED]
)
def test_rows_staged_for_a_column_of_another_kind_are_not_committed(
    old: str, new: str, value: Any, then: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """They were misread: the range is worked on again."""
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    run(connect, f"CREATE TABLE bills (value {old})")
    sink = DatabaseSink(connect, "bills", columns=["value"])
    staged = put(sink, 0, value=value)
    run(connect, f"ALTER TABLE bills ALTER value TYPE {new}")
    with pytest.raises(MissingDataError, match="columns of other types than bills has now"):
        commit(sink, "j", staged)
    assert sink.positions([AT]) == {AT: None}
    if then is not None:
        assert commit(sink, "j", put(sink, 0, value=value)).is_in
        assert run(connect, "SELECT value FROM bills") == [(then,)]


@pytest.mark.parametrize("isolation", list(psycopg.IsolationLevel), ids=lambda level: level.name)
def test_no_isolation_shows_a_commit_the_types_of_before_a_migration(
    isolation: psycopg.IsolationLevel, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A snapshot of before it ended did: the value was read as the old type, and lost digits."""
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    run(connect, "CREATE TABLE bills (amount real)")
    sink = DatabaseSink(partial(isolated, connect, isolation), "bills", columns=["amount"])
    assert commit(sink, "j", put(sink, 0, amount=1.0)).is_in
    written = put(sink, 1, amount=1234567.891)
    with closing(connect()) as migration, ThreadPoolExecutor(1) as pool:
        migration.execute("ALTER TABLE bills ALTER amount TYPE double precision")
        committing = pool.submit(commit, sink, "j", written)
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'EXPLAIN INSERT%'"
        while not run(connect, waiting):
            assert not committing.done()
        migration.commit()
        assert committing.result(60).is_in
    assert run(connect, "SELECT amount FROM bills") == [(1.0,), (1234567.891,)]


def isolated(connect: Callable[[], Any], level: psycopg.IsolationLevel) -> Any:
    connection = connect()
    connection.isolation_level = level
    return connection


@pytest.mark.parametrize(
    "change", ["ALTER TABLE bills ALTER amount TYPE double precision", "CREATE INDEX ON bills (n)"]
)
def test_a_table_stays_as_it_is_until_a_commit_ends(
    change: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Else values would be read by one type and put into a column of another; and a migration that gets one lock and
    waits for the next would be waited for.
    """
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    run(connect, "CREATE TABLE bills (amount real, n integer)")
    sink = DatabaseSink(partial(lossy, request.getfixturevalue("postgres_database")), "bills", columns=["amount"])
    written, problems = put(sink, 0, amount=1234567.891), list[str]()

    def migrate() -> None:
        try:
            run(connect, "SET LOCAL lock_timeout = 100", change)
        except Exception as error:
            problems.append(type(error).__name__)

    faults.interposed = migrate
    assert commit(sink, "j", written).is_in
    assert problems == ["LockNotAvailable"]


@pytest.mark.parametrize(
    "column", ["varchar(3)", "char(3)", "bit(3)", "short", "short_short", "varchar(3)[]", "integer", "mood"]
)
def test_a_value_that_does_not_fit_is_refused_and_never_cut(
    column: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """As SQL's CAST would: its length is none of a type's, but of a column's."""
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    run(
        connect,
        "CREATE DOMAIN short AS varchar(3)",
        "CREATE DOMAIN short_short AS short",
        "CREATE TYPE mood AS ENUM ('101')",
        f"CREATE TABLE texts (value {column})",
    )
    sink = DatabaseSink(connect, "texts", columns=["value"])
    named = run(connect, "SELECT current_setting('server_version_num')::integer >= 160000")[0][0]
    long, fits = ("{10101}", "{101}") if column.endswith("[]") else ("10101.", "101")
    with pytest.raises(SinkError, match=r"the database refuses it: .* \(column value\)" if named else "refuses it"):
        commit(sink, "j", put(sink, 0, value=long))
    assert commit(sink, "j", put(sink, 0, value=fits)).is_in
    assert run(connect, "SELECT CAST(value AS text) FROM texts") == [(fits,)]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_new_column_may_be_written_by_a_new_driver(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """While one that does not know of it goes on."""
    ready(kind, request, tmp_path)
    connect = database_of(kind, tmp_path / "out")
    run(connect, "CREATE TABLE sizes (n integer)")
    early = DatabaseSink(connect, "sizes", columns=["n"])
    staged = put(early, 0, n=0)
    run(connect, "ALTER TABLE sizes ADD COLUMN note text")
    late = DatabaseSink(connect, "sizes", columns=["n", "note"])
    assert commit(late, "j", staged).is_in
    assert commit(late, "j", put(late, 1, n=1, note="new")).is_in
    assert commit(early, "j", put(early, 2, n=2)).is_in
    assert run(connect, "SELECT n, note FROM sizes ORDER BY n") == [(0, None), (1, "new"), (2, None)]


def test_a_new_column_waits_for_a_stopped_writer_no_longer_than_the_timeout(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Everybody else would wait behind it."""
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    run(connect, "CREATE TABLE sizes (n integer, note text)")
    early = DatabaseSink(connect, "sizes", columns=["n"])
    early.writer()
    late = DatabaseSink(connect, "sizes", columns=["n", "note"], transaction_timeout=0.1)
    with closing(connect()) as stopped:
        stopped.execute(f"INSERT INTO {early.staging_table} (n) VALUES ('1')")
        with pytest.raises(SinkWriteError, match="lock timeout"):
            late.writer()
        assert commit(early, "j", put(early, 0, n=0)).is_in
    assert commit(late, "j", put(late, 1, n=1, note="new")).is_in


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_tables_that_are_gone_are_made_anew_after_an_error(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ready(kind, request, tmp_path)
    case = place(kind, tmp_path / "out")
    sink = case.make()
    assert isinstance(sink, DatabaseSink)
    assert commit(sink, "a", write(sink, span(0, 2), "a")).is_in
    written = write(sink, span(2, 3), "b")
    run(database_of(kind, tmp_path / "out"), f"DROP TABLE {sink.staging_table}")
    with pytest.raises(SinkError, match=sink.staging_table):
        commit(sink, "b", written)
    with pytest.raises(MissingDataError):
        commit(sink, "b", written)
    assert commit(sink, "c", write(sink, span(2, 3), "c")).is_in
    case.holds((span(0, 2), "a"), (span(2, 3), "c"))


def test_a_staging_table_of_other_types_is_refused(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    run(connect, "CREATE TABLE bills (n integer, amount numeric(12,2))")
    sink = DatabaseSink(connect, "bills", columns=["n", "amount"])
    assert commit(sink, "j", put(sink, 0, n=0)).is_in
    run(connect, f"ALTER TABLE {sink.staging_table} ALTER amount TYPE numeric(10,0) USING 0")
    with pytest.raises(NotASinkError, match=r'"instride_rows_bills" .*columns amount are not of type text: drop it'):
        DatabaseSink(connect, "bills", columns=["n", "amount"]).writer()


@pytest.fixture
def role(postgres_database: str) -> Iterator[Callable[[], Any]]:
    """Connects as a user who may write to all tables that are there, and make none."""
    import psycopg

    connect = partial(psycopg.connect, postgres_database)
    name = f"role_{uuid.uuid4().hex[:12]}"
    schema = run(connect, "SELECT current_schema()")[0][0]
    run(connect, f"CREATE ROLE {name}", f"GRANT USAGE ON SCHEMA {schema} TO {name}")

    def connected() -> Any:
        run(connect, f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {name}")
        connection = connect()
        connection.execute(f"SET ROLE {name}")
        connection.commit()
        return connection

    yield connected
    run(connect, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_who_may_make_no_tables_is_told_the_statements(
    role: Callable[[], Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Those that were tried can be run by somebody else."""
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    run(connect, "CREATE TABLE sizes (n integer)")
    missing = [("CREATE TABLE", ["n"]), ("CREATE UNLOGGED TABLE", ["n"]), ("ALTER TABLE", ["n", "note"])]
    for verb, columns in missing:
        if "note" in columns:
            run(connect, "ALTER TABLE sizes ADD COLUMN note text")
        refused = DatabaseSink(role, "sizes", columns=columns)
        with pytest.raises(NotASinkError, match=f"InsufficientPrivilege: .* Tried: {verb}") as caught:
            refused.writer()
        run(connect, *str(caught.value).partition("Tried: ")[2].split(";"))
    assert commit(refused, "j", put(refused, 0, n=1, note="x")).is_in
    assert run(connect, "SELECT n, note FROM sizes") == [(1, "x")]


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_the_privilege_to_insert_into_the_columns_is_enough(
    kind: str, role: Callable[[], Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    definition = "(n integer, note text)" if kind == "TABLE" else "AS SELECT n, note FROM below"
    run(connect, "CREATE TABLE below (n integer, note text)", f"CREATE {kind} sizes {definition}")
    DatabaseSink(connect, "sizes", columns=["n"]).writer()
    with closing(role()) as granted:
        name = granted.execute("SELECT current_user").fetchone()[0]
    sink = DatabaseSink(partial(as_role, connect, name), "sizes", columns=["n"])
    run(connect, f"REVOKE ALL ON sizes, below FROM {name}", f"GRANT INSERT (n) ON sizes TO {name}")
    assert commit(sink, "j", put(sink, 0, n=1)).is_in
    assert run(connect, "SELECT n FROM sizes") == [(1,)]


def as_role(connect: Callable[[], Any], name: str) -> Any:
    connection = connect()
    connection.execute(f"SET ROLE {name}")
    connection.commit()
    return connection


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_offsets_where_versions_before_kept_them_are_not_overlooked(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """All rows would be written again. Also where somebody has made the new table already."""
    ready(kind, request, tmp_path)
    connect = database_of(kind, tmp_path / "out")
    run(connect, "CREATE TABLE sizes (n integer)", "CREATE TABLE others (n integer)")
    before = DatabaseSink(connect, "sizes", columns=["n"], offsets_table="instride_offsets")
    assert commit(before, "j", put(before, 0, n=1)).is_in
    DatabaseSink(connect, "others", columns=["n"]).begin(AT, 3)
    after = DatabaseSink(connect, "sizes", columns=["n"])
    told = r'RENAME TO instride_sink_offsets\), or give offsets_table="instride_offsets"'
    for call in (after.writer, partial(after.positions, [AT]), partial(after.begin, AT, 0)):
        with pytest.raises(NotASinkError, match=told):
            call()
    run(connect, "DROP TABLE instride_sink_offsets")
    with pytest.raises(NotASinkError, match=told) as caught:
        after.writer()
    run(connect, str(caught.value).partition("(")[2].partition("(")[2].partition(")")[0])
    assert after.positions([AT]) == {AT: 1}


def test_a_staging_table_beside_that_of_a_version_before_has_its_index(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    run(
        connect,
        "CREATE TABLE sizes (n integer)",
        "CREATE UNLOGGED TABLE instride_staged_sizes (instride_topic text, instride_partition integer, n integer)",
        "CREATE INDEX instride_ranges_sizes ON instride_staged_sizes (instride_topic, instride_partition)",
    )
    sink = DatabaseSink(connect, "sizes", columns=["n"])
    sink.writer()
    indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = current_schema() AND tablename = "
    assert run(connect, f"{indexes}'{sink.staging_table}'") == [(1,)]


def test_the_statements_of_the_page_make_what_the_sink_makes(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    ready("postgresql", request, tmp_path)
    connect = database_of("postgresql", tmp_path / "out")
    page = (Path(__file__).parents[2] / "docs" / "table-sinks.md").read_text(encoding="utf-8")
    found = re.search(r"```sql\n(.*?)```", page, re.DOTALL)
    assert found is not None
    run(connect, 'CREATE TABLE sizes ("offset" bigint, size integer)')

    def made() -> list[Any]:
        columns = (
            "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND table_name LIKE 'instride%' ORDER BY 1, ordinal_position"
        )
        indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY tablename"
        return [run(connect, columns), [each.partition(" ON ")[2] for (each,) in run(connect, indexes)]]

    schema = run(connect, "SELECT current_schema()")[0][0]
    run(connect, *found[1].replace("made.", f"{schema}.").strip().rstrip(";").split(";"))
    by_page = made()
    run(connect, "DROP TABLE instride_sink_offsets", "DROP TABLE instride_rows_sizes")
    DatabaseSink(connect, "sizes", columns=["offset", "size"]).writer()
    assert by_page == made()
    assert [len(part) for part in by_page] == [13, 2]


def test_offsets_of_a_store_are_not_taken_for_those_of_a_sink(tmp_path: Path) -> None:
    """Both keep offsets in one database, each in its table; where they are given one table, each says so."""
    connect = database_of("sqlite", tmp_path / "out")
    run(connect, "CREATE TABLE sizes (n integer)")
    DatabaseStore(connect).database.prepare()
    sink = DatabaseSink(connect, "sizes", columns=["n"])
    assert sink.begin(AT, 3) == 3
    with pytest.raises(NotASinkError, match=r"a DatabaseStore's\? offsets_table= gives it another name"):
        DatabaseSink(connect, "sizes", columns=["n"], offsets_table="instride_offsets").positions([AT])
    with pytest.raises(ConfigError, match=r"a DatabaseSink's\? table= gives it another name"):
        DatabaseStore(connect, table="instride_sink_offsets").database.prepare()


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


NO_SECONDS = (0, math.nan, math.inf, "30", True, None, 2_147_484)
"""Some came out as an error of another kind, some only of the server, at the first commit."""


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
        *(("transaction_timeout", each, "transaction_timeout must be above 0") for each in NO_SECONDS),
    ]:
        with pytest.raises(ConfigError, match=text):
            DatabaseSink(**{**good, name: value})
    assert DatabaseSink(**good, transaction_timeout=0.0001)._database.timeout == 1  # 0 would mean: for ever
    assert DatabaseSink(**good, transaction_timeout=2_147_483)._database.timeout < 1 << 31
    sink = DatabaseSink(partial(sqlite3.connect, "file:secret"), "t" * 60, columns=["n"])
    assert len(sink.staging_table) <= 63
    writer = pickle.dumps(sink._database)
    assert b"secret" in writer
    assert "secret" not in repr(sink) + repr(sink._database)


class Autocommitting(sqlite3.Connection):
    """Of Python 3.12 and later, where `sqlite3.connect` takes autocommit."""

    autocommit = True


@pytest.mark.parametrize("given", [True, False])
def test_sqlite_with_transactions_of_its_own_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """Each call failed, as one that may pass when it is tried again: for ever."""
    monkeypatch.setattr(Autocommitting, "autocommit", given)
    connect = partial(sqlite3.connect, tmp_path / "db", factory=Autocommitting)
    with pytest.raises(ConfigError, match="without autocommit="):
        DatabaseSink(connect, "t", columns=["n"]).writer()
