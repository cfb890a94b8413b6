"""`DatabaseStore`: what a handler writes and its offset are one transaction, whoever writes; SQLite and PostgreSQL."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from contextvars import copy_context
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import create_engine, text

from instride import AsyncDatabaseStore, ConsumerRecord, DatabaseStore, Processor, Retry, SkipRecord, TopicPartition
from instride._processing.attempts import enter_attempt
from instride._processing.engine import Lane, Task
from instride._processing.store import Offsets, Request, Rows
from instride.errors import ConfigError, IllegalStateError, StorePositionError

T0 = TopicPartition("t", 0)
ID, OTHER_ID = UUID(int=1), UUID(int=2)


class Bank:
    """A database, by one way of connecting: its store, and the records that were written to it."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self.connect = connect
        self.store: DatabaseStore[Any] = DatabaseStore(connect)
        self._run("CREATE TABLE bills (amount INTEGER)")
        self.store.database.prepare()
        self.store.database.prepare()  # it is there

    def _run(self, statement: str) -> None:
        with closing(self.connect()) as connection:
            execute(connection, statement)
            connection.commit()

    def bill(self, records: list[ConsumerRecord[Any, Any]]) -> None:
        for record in records:
            execute(self.store.connection, f"INSERT INTO bills VALUES ({record.offset})")

    def written(self) -> list[int]:
        with closing(self.connect()) as connection:
            return sorted(row[0] for row in execute(connection, "SELECT amount FROM bills").fetchall())

    def set_row(self, offset: int) -> None:
        self._run(f"UPDATE instride_offsets SET next_offset = {offset}")

    def position(self, topic_id: UUID | None = ID) -> int | None:
        return self.store.database.positions("g", {T0: topic_id}).get(T0)


def execute(connection: Any, statement: str) -> Any:
    if hasattr(connection, "exec_driver_sql"):
        return connection.execute(text(statement))
    cursor = connection.cursor()
    cursor.execute(statement)
    return cursor


class Owner:
    """One member's view: its calls of the handler, each of a list of offsets."""

    def __init__(self, store: DatabaseStore[Any], handler: Callable[[Any], object], topic_id: UUID | None = ID) -> None:
        self._call = store.database.transactions(handler, "g")
        self.lane = Lane(T0, 1, 0, 0)
        self.lane.topic_id = topic_id
        self.over = self.late = False

    def handles(self, offsets: range) -> None:
        records = [ConsumerRecord("t", 0, offset, epoch=1) for offset in offsets]
        job = Task(records[0], self.lane, None, 1)
        job.over, job.late = self.over, self.late
        copy_context().run(self._handle, job, records)

    def _handle(self, job: Task, records: list[ConsumerRecord]) -> None:
        enter_attempt(job)
        self._call(records)


def ways(request: pytest.FixtureRequest, file: Path) -> Any:
    """To connect: a function, and what ends it."""
    name = request.param
    if name.startswith("sqlite3"):
        level: Any = None if name.endswith("None") else ""
        return (lambda: sqlite3.connect(file, isolation_level=level)), lambda: None
    uri = "" if name.endswith("SQLite") else request.getfixturevalue("postgres_database")
    if name == "psycopg":
        import psycopg

        return (lambda: psycopg.connect(uri)), lambda: None
    engine = create_engine(uri.replace("postgresql://", "postgresql+psycopg://") or f"sqlite:///{file}")
    return engine.connect, engine.dispose


@pytest.fixture(params=["sqlite3", "sqlite3, isolation_level None", "SQLAlchemy on SQLite", "psycopg", "SQLAlchemy"])
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bank]:
    connect, end = ways(request, tmp_path / "bank.db")
    bank = Bank(connect)
    with bank.store.database.thread():
        yield bank
    end()


@pytest.fixture
def elephant(postgres_database: str) -> Iterator[Bank]:
    import psycopg

    bank = Bank(lambda: psycopg.connect(postgres_database))
    with bank.store.database.thread():
        yield bank


def test_records_and_offset_are_one_transaction(bank: Bank) -> None:
    owner = Owner(bank.store, bank.bill)
    assert bank.position() is None
    owner.handles(range(3))
    owner.handles(range(3, 5))
    assert (bank.written(), bank.position()) == ([0, 1, 2, 3, 4], 5)

    def fails(records: Any) -> None:
        bank.bill(records)
        raise OSError("the bank is closed")

    with pytest.raises(OSError, match="closed"):
        Owner(bank.store, fails).handles(range(5, 8))
    assert (bank.written(), bank.position()) == ([0, 1, 2, 3, 4], 5), "nothing of it is there"
    owner.handles(range(5, 8))
    assert (bank.written(), bank.position()) == (list(range(8)), 8)


def test_what_comes_again_is_left_out_and_no_handler_called_for_nothing(bank: Bank) -> None:
    calls: list[int] = []

    def handle(records: Any) -> None:
        calls.append(len(records))
        bank.bill(records)

    Owner(bank.store, handle).handles(range(5))
    Owner(bank.store, handle).handles(range(3, 8))
    Owner(bank.store, handle).handles(range(8))
    assert (calls, bank.written(), bank.position()) == ([5, 3], list(range(8)), 8)


def test_a_former_owner_that_goes_on_writes_nothing_twice(bank: Bank) -> None:
    """It believes the row to be where it left it; so does the new owner, behind whose back it wrote."""
    zombie, owner = Owner(bank.store, bank.bill), Owner(bank.store, bank.bill)
    zombie.handles(range(3))
    owner.handles(range(3, 6))
    zombie.handles(range(3, 8))
    owner.handles(range(6, 9))
    assert (bank.written(), bank.position()) == (list(range(9)), 9)


def test_what_was_given_up_meanwhile_is_rolled_back(bank: Bank) -> None:
    owner = Owner(bank.store, bank.bill)
    owner.over = True
    with pytest.raises(IllegalStateError, match="another"):
        owner.handles(range(3))
    assert (bank.written(), bank.position()) == ([], None)


def test_what_is_out_of_time_is_rolled_back_and_its_letter_moves_the_row(bank: Bank) -> None:
    owner = Owner(bank.store, bank.bill)
    owner.late = True
    with pytest.raises(TimeoutError, match="out of time"):
        owner.handles(range(3))
    assert (bank.written(), bank.position()) == ([], None)
    letter = Task(ConsumerRecord("t", 0, 0, epoch=1), owner.lane, None, 1)
    letter.late = letter.writes_dead_letter = True
    bank.store.database.transactions(bank.bill, "g").pass_over(letter)
    assert (bank.written(), bank.position()) == ([], 1)


def test_a_topic_that_was_made_again_begins_anew(bank: Bank) -> None:
    Owner(bank.store, bank.bill).handles(range(5))
    assert bank.position(OTHER_ID) is None
    Owner(bank.store, bank.bill, OTHER_ID).handles(range(2))
    assert bank.written() == [0, 0, 1, 1, 2, 3, 4]
    assert (bank.position(OTHER_ID), bank.position(ID), bank.position(None)) == (2, None, 2)


def test_where_the_broker_has_no_topic_ids_rows_count(bank: Bank) -> None:
    Owner(bank.store, bank.bill, None).handles(range(2))
    Owner(bank.store, bank.bill).handles(range(4))
    Owner(bank.store, bank.bill, None).handles(range(6))
    assert (bank.written(), bank.position(ID), bank.position(OTHER_ID)) == (list(range(6)), 6, None)


def test_a_row_that_was_set_back_is_refused_since_records_would_be_missing(bank: Bank) -> None:
    owner = Owner(bank.store, bank.bill)
    owner.handles(range(5))
    bank.set_row(2)
    with pytest.raises(StorePositionError, match=r"t-0: its row in the database is at 2, .* up to 5"):
        owner.handles(range(5, 7))
    assert (bank.written(), bank.position()) == (list(range(5)), 2)


@pytest.mark.parametrize("reset_to", [3, 5])
def test_a_log_that_was_cut_below_the_row_is_refused(bank: Bank, reset_to: int) -> None:
    """New records below it would count as written."""
    Owner(bank.store, bank.bill).handles(range(5))
    owner = Owner(bank.store, bank.bill)
    owner.lane.reset_to = reset_to
    if reset_to == 5:
        owner.handles(range(5, 7))
        assert (bank.written(), bank.position()) == (list(range(7)), 7)
        return
    with pytest.raises(
        StorePositionError,
        match=r"t-0: its row in the database is at 5, .* position to 3.* to the offset at which the log was truncated",
    ):
        owner.handles(range(3, 7))
    assert (bank.written(), bank.position()) == (list(range(5)), 5)
    other = Owner(bank.store, bank.bill, OTHER_ID)
    other.lane.reset_to = 0
    other.handles(range(2))
    assert bank.position(OTHER_ID) == 2, "the row is of a deleted topic"


@pytest.mark.parametrize("over", [True, False])
def test_what_this_owner_has_written_since_a_reset_is_no_cut(bank: Bank, *, over: bool) -> None:
    """A thread of the owner before comes late. Or it has read the row when its partition is lost."""
    Owner(bank.store, bank.bill).handles(range(5))
    owner = Owner(bank.store, bank.bill)
    owner.lane.reset_to = 5
    owner.handles(range(5, 7))
    lane, owner.lane, owner.over = owner.lane, Lane(T0, 1, 0, 0), over
    with pytest.raises(IllegalStateError, match="another") if over else nullcontext():
        owner.handles(range(3, 4))
    owner.lane, owner.over = lane, False
    owner.handles(range(7, 8))
    assert (bank.written(), bank.position()) == (list(range(8)), 8)


def test_a_former_owner_whose_transaction_is_open_is_overtaken(elephant: Bank) -> None:
    """It began first, writes, and is overtaken before it ends: it rolls back, and writes what is left."""
    is_written, may_end = threading.Event(), threading.Event()

    def slow(records: Any) -> None:
        elephant.bill(records)
        is_written.set()
        assert may_end.wait(60)

    def go_on() -> None:
        with elephant.store.database.thread():
            Owner(elephant.store, slow).handles(range(6))

    zombie = threading.Thread(target=go_on)
    zombie.start()
    assert is_written.wait(60)
    Owner(elephant.store, elephant.bill).handles(range(4))
    may_end.set()
    zombie.join(60)
    assert (elephant.written(), elephant.position()) == (list(range(6)), 6)


class Attempt:
    """One attempt at the record at offset 5, request by request, so that others may come between."""

    def __init__(self, rows: Rows, lane: Lane) -> None:
        record = ConsumerRecord("t", 0, 5, epoch=1)
        self._requests: Generator[Request, Any, bool] = rows.attempt(Task(record, lane, None, 1), record)
        assert next(self._requests).name == "rows"

    def gets(self, *results: Any) -> Request | bool:
        """What it requests after these results; or what it ends by."""
        try:
            return [self._requests.send(result) for result in results][-1]
        except StopIteration as end:
            return bool(end.value)


def test_an_abandoned_attempt_that_commits_beside_its_copy_is_the_only_one() -> None:
    """Its COMMIT is on its way when it is given up; so the copy still reads the row as it was."""
    at_5, at_6, rows, lane = [(5, str(ID))], [(6, str(ID))], Rows(Offsets("offsets"), "g"), Lane(T0, 1, 0, 0)
    lane.topic_id = ID
    abandoned = Attempt(rows, lane)
    assert abandoned.gets(at_5, None, 1) == Request("commit")
    copy = Attempt(rows, lane)
    assert isinstance(handles := copy.gets(at_5), Request)
    assert handles.name == "handle"
    assert abandoned.gets(None) is True
    assert isinstance(update := copy.gets(None), Request)
    assert update.args[-2:] == (5, str(ID)), "it moves the row from where it was when its records were chosen"
    assert copy.gets(0, None, at_6, None) is False


def test_a_commit_that_returns_while_its_copy_reads_the_row_sets_nothing_back() -> None:
    at_5, rows, lane = [(5, str(ID))], Rows(Offsets("offsets"), "g"), Lane(T0, 1, 0, 0)
    lane.topic_id = ID
    abandoned = Attempt(rows, lane)
    assert abandoned.gets(at_5, None, 1) == Request("commit")
    copy = Attempt(rows, lane)
    assert abandoned.gets(None) is True
    assert isinstance(handles := copy.gets(at_5), Request), "it was read before the commit, which is no restore"
    assert handles.name == "handle"


def test_a_connection_that_breaks_is_replaced(elephant: Bank) -> None:
    import psycopg

    owner = Owner(elephant.store, elephant.bill)
    owner.handles(range(3))
    victim = elephant.store.database._mine.session
    assert victim is not None
    with closing(elephant.connect()) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (victim.connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        owner.handles(range(3, 5))
    owner.handles(range(3, 5))
    assert (elephant.written(), elephant.position()) == (list(range(5)), 5)


def test_a_pool_has_its_connection_back_after_each_transaction(tmp_path: Path) -> None:
    """Else every thread that ever had a record keeps one, and there are more of these than handlers at a time."""
    engine = create_engine(f"sqlite:///{tmp_path / 'bank.db'}", pool_size=1, max_overflow=0, pool_timeout=0)
    bank = Bank(engine.connect)

    def fails(records: Any) -> None:
        bank.bill(records)
        raise OSError("the bank is closed")

    with bank.store.database.thread():
        Owner(bank.store, bank.bill).handles(range(3))
        assert (bank.written(), bank.position()) == ([0, 1, 2], 3)
        with pytest.raises(OSError, match="closed"):
            Owner(bank.store, fails).handles(range(3, 5))
        assert (bank.written(), bank.position()) == ([0, 1, 2], 3)
    engine.dispose()


def test_many_owners_at_once(elephant: Bank) -> None:
    """Each handles all, in batches of its own; what is written is each record once."""
    errors: list[BaseException] = []

    def handle_all(size: int) -> None:
        try:
            with elephant.store.database.thread():
                owner = Owner(elephant.store, elephant.bill)
                for start in range(0, 60, size):
                    owner.handles(range(start, start + size))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=handle_all, args=(size,)) for size in (2, 3, 4, 5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not errors
    assert (elephant.written(), elephant.position()) == (list(range(60)), 60)


def test_the_example_of_the_page(elephant: Bank, postgres_database: str) -> None:
    """docs/exactly-once.md, as it stands."""
    page = (Path(__file__).parents[2] / "docs" / "exactly-once.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code.replace("postgresql://localhost/billing", postgres_database), names)
    with names["billing"].testing() as kit:
        for number in range(5):
            kit.give("orders", b"%d" % number)
        kit.advance(2)
    assert elephant.written() == [0, 1, 2, 3, 4]


def test_a_connection_without_transactions_is_refused(tmp_path: Path) -> None:
    class Careless(sqlite3.Connection):
        autocommit = True

    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "x.db", factory=Careless))
    with pytest.raises(ConfigError, match="autocommit"):
        store.database.prepare()


@pytest.mark.parametrize("given", [True, False])
def test_sqlite_with_transactions_of_its_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """Python 3.12 and later: `BEGIN IMMEDIATE` would never be sent, and of two writers one refused for ever."""

    class Own(sqlite3.Connection):
        autocommit = given

    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "x.db", factory=Own))
    with pytest.raises(ConfigError, match="without autocommit"):
        store.database.prepare()


@pytest.mark.parametrize("commits", [True, False])
def test_a_driver_that_tells_its_mode_by_a_method_is_asked(tmp_path: Path, commits: bool) -> None:
    """PyMySQL, mysqlclient."""

    class Asked(sqlite3.Connection):
        def autocommit(self, value: bool) -> None: ...

        def get_autocommit(self) -> bool:
            return commits

    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "x.db", factory=Asked))
    with pytest.raises(ConfigError, match="commits each statement by itself") if commits else nullcontext():
        store.database.prepare()


@pytest.mark.parametrize("kind", [DatabaseStore, AsyncDatabaseStore])
def test_a_store_of_a_uri_is_refused_and_does_not_show_it(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"a function that opens a connection, not str$"):
        kind("postgresql://billing:hunter2@localhost/billing")


def test_a_connection_of_an_unknown_style_is_closed() -> None:
    class Unknown:
        closed = 0

        def close(self) -> None:
            self.closed += 1

    connection = Unknown()
    with pytest.raises(ConfigError, match="paramstyle"):
        DatabaseStore(lambda: connection).database.prepare()
    assert connection.closed == 1


def test_a_driver_that_does_not_count_its_rows_is_named(tmp_path: Path) -> None:
    """PEP 249 allows it -1."""

    class Uncounted(sqlite3.Cursor):
        rowcount = -1

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(Uncounted)

    bank = Bank(partial(sqlite3.connect, tmp_path / "bank.db", factory=Connection))
    calls = count(1)

    def handle(records: Any) -> None:
        assert next(calls) < 5, "it is called again and again"
        bank.bill(records)

    with bank.store.database.thread():
        owner = Owner(bank.store, handle)
        owner.handles(range(2))
        with pytest.raises(StorePositionError, match="changed -1 rows, says the rowcount"):
            owner.handles(range(2, 4))
    assert (bank.written(), bank.position()) == ([0, 1], 2)


def test_outside_of_a_handler_there_is_no_connection(tmp_path: Path) -> None:
    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "x.db"))
    with pytest.raises(IllegalStateError, match="handler"):
        _ = store.connection


def test_a_table_that_cannot_be_made_is_told_of_by_the_driver(tmp_path: Path) -> None:
    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "x.db"), table="nowhere.offsets")
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        store.database.prepare()


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("numeric", ("a = :1, b = :2", (5, "x"))),
        ("named", ("a = :v1, b = :v2", {"v1": 5, "v2": "x"})),
        ("format", ("a = %s, b = %s", (5, "x"))),
        ("pyformat", ("a = %(v1)s, b = %(v2)s", {"v1": 5, "v2": "x"})),
        ("qmark", ("a = ?, b = ?", (5, "x"))),
    ],
)
def test_every_style_of_parameters(style: Any, expected: tuple[str, Any]) -> None:
    from instride._processing.store import bound

    assert bound("a = ?, b = ?", (5, "x"), style) == expected


def handle(record: ConsumerRecord) -> None: ...


async def handle_async(record: ConsumerRecord) -> None: ...


STORE = DatabaseStore(lambda: sqlite3.connect(":memory:"))


@pytest.mark.parametrize(
    ("handler", "options", "error", "text"),
    [
        (handle, {"store": sqlite3.connect}, TypeError, "DatabaseStore"),
        (handle_async, {"store": STORE}, ConfigError, "plain functions"),
        (handle, {"store": STORE, "processes": 2}, ConfigError, "threads"),
        (handle, {"store": STORE, "order": "key"}, ConfigError, "partition"),
        (handle, {"store": STORE, "output": "o"}, ConfigError, "output"),
    ],
)
def test_a_store_that_cannot_be_is_refused(handler: Any, options: dict[str, Any], error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        Processor(handler, topics=["t"], **options)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"connect": 5}, TypeError), ({"table": "a; b"}, ConfigError), ({"paramstyle": "colon"}, ConfigError)],
)
def test_a_wrong_store_is_refused(options: dict[str, Any], error: Any) -> None:
    with pytest.raises(error, match="DatabaseStore"):
        DatabaseStore(**{"connect": handle, **options})


# -- in a processor, in virtual time


@pytest.fixture
def safe(tmp_path: Path) -> Bank:
    return Bank(lambda: sqlite3.connect(tmp_path / "bank.db"))


def values(connect: Callable[[], sqlite3.Connection]) -> Counter[str]:
    with closing(connect()) as connection:
        return Counter(row[0] for row in connection.execute("SELECT value FROM seen"))


def seen(safe: Bank) -> Counter[str]:
    return values(safe.connect)


def processor(safe: Bank, **options: Any) -> Processor[bytes | None, str]:
    with closing(safe.connect()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS seen (value TEXT)")

    def write(records: list[ConsumerRecord[bytes | None, str]]) -> None:
        for record in records:
            if record.value == "bad":
                raise SkipRecord if len(records) == 1 else ValueError("one of them")
            safe.store.connection.execute("INSERT INTO seen VALUES (?)", (record.value,))

    options = {"max_batch": 4, "max_wait": 0.0, "retry": Retry(attempts=2), **options}
    return Processor(write, topics=["t"], value_deserializer=bytes.decode, store=safe.store, **options)


def test_a_crash_after_the_transaction_repeats_nothing(safe: Bank) -> None:
    """Its offsets were never committed to the group; the database knows where to go on."""
    with processor(safe, commit_interval=1000.0).testing() as kit:
        for number in range(10):
            kit.give("t", b"%d" % number)
        kit.run()
        assert kit.committed == {T0: 0}
        kit.crash()
        kit.give("t", b"10")
        kit.run()
        assert [record.value for record in kit.handled].count("0") == 1, "it was not even read again"
        assert seen(safe) == Counter(map(str, range(11)))


def test_the_database_says_where_to_begin_also_before_the_groups_offset(safe: Bank) -> None:
    """It was restored from a copy of yesterday: what is missing there is written again."""
    with processor(safe).testing() as kit:
        for number in range(6):
            kit.give("t", b"%d" % number)
        kit.advance(2)
        assert kit.committed == {T0: 6}
        kit.crash()
        safe.set_row(2)
        with closing(safe.connect()) as connection:
            connection.execute("DELETE FROM seen WHERE value >= '2'")
            connection.commit()
        kit.run()
        assert seen(safe) == Counter(map(str, range(6)))


@pytest.mark.parametrize("last", [b"bad", b"\xff"])
@pytest.mark.parametrize("max_batch", [1, 4])
def test_what_is_skipped_or_dead_lettered_is_so_once(safe: Bank, last: bytes, max_batch: int) -> None:
    """Also where nothing comes behind it: the row says that it is dealt with, and a new owner begins behind it."""
    with processor(safe, dead_letters="dlq", max_batch=max_batch, commit_interval=1000.0).testing() as kit:
        for value in (b"1", b"bad", b"2", b"\xff", b"3", last):
            kit.give("t", value)
        kit.advance(10)
        assert seen(safe) == Counter(["1", "2", "3"])
        assert safe.store.database.positions("kit", {T0: None}) == {T0: 6}
        assert kit.tally.skipped + kit.tally.dead_lettered == 3
        letters = len(kit.dead_letters)
        kit.crash()
        kit.advance(10)
        assert (kit.tally.skipped, len(kit.dead_letters)) == (0, letters)
        assert kit.committed == {T0: 6}, "tools see it too"


def test_a_database_that_is_away_is_asked_again_and_nothing_begins_before(safe: Bank) -> None:
    away = [True]
    connect = safe.connect
    store: DatabaseStore[sqlite3.Connection] = DatabaseStore(lambda: refuse() if away[0] else connect())

    def refuse() -> Any:
        raise OSError("no route")

    handled: list[int] = []
    away[0] = False
    with Processor(lambda record: handled.append(record.offset), topics=["t"], store=store).testing() as kit:
        away[0] = True
        kit.give("t", b"1")
        kit.run()
        assert handled == []
        away[0] = False
        kit.advance(3)
        assert handled == [0]


def test_a_row_that_is_set_back_stops_the_processor(safe: Bank) -> None:
    kit = processor(safe, on_failure="skip").testing()
    kit.give("t", b"1")
    kit.run()
    safe.set_row(0)
    kit.give("t", b"2")
    with pytest.raises(StorePositionError, match="restored"):
        kit.advance(60)
    assert seen(safe) == Counter(["1"])


@pytest.mark.parametrize(("last", "letters"), [(b"bad", 0), (b"\xff", 1)])
def test_a_row_that_is_set_back_before_a_skip_or_a_letter_stops_it_too(safe: Bank, last: bytes, letters: int) -> None:
    with processor(safe, dead_letters="dlq").testing() as kit:
        kit.give("t", b"1")
        kit.run()
        safe.set_row(0)
        kit.give("t", last)
        with pytest.raises(StorePositionError, match="restored"):
            kit.advance(60)
        assert len(kit.dead_letters) == letters


@pytest.mark.parametrize("is_done", [False, True])
def test_wherever_the_database_fails_once_all_is_written_once(tmp_path: Path, *, is_done: bool) -> None:
    """At any statement or commit: before it, or when it is done. No letter is written again for that, either."""
    calls = count(1)
    fatal = 0

    def do(call: Callable[..., Any], *args: Any) -> Any:
        fails = next(calls) == fatal
        found = call(*args) if is_done or not fails else None
        if fails:
            raise sqlite3.OperationalError("the database is away")
        return found

    class Shaky(sqlite3.Cursor):
        def execute(self, *args: Any) -> Any:
            return do(super().execute, *args)

    class ShakyConnection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(Shaky)

        def commit(self) -> None:
            do(super().commit)

    for at in count(1):
        fatal = 0
        safe = Bank(partial(sqlite3.connect, tmp_path / f"{at}.db", factory=ShakyConnection))
        with processor(safe, dead_letters="dlq", max_batch=2, retry=Retry(attempts=5)).testing() as kit:
            calls, fatal = count(1), at
            for value in (b"1", b"bad", b"2", b"\xff", b"3"):
                kit.give("t", value)
            kit.advance(60)
            used, fatal = next(calls), 0
            assert (seen(safe), [letter.value for letter in kit.dead_letters]) == (Counter("123"), [b"\xff"])
            assert kit.committed == {T0: 5}
        if used <= at:
            break
    assert at > 10
