"""`AsyncDatabaseStore`: what a coroutine writes and its offset are one transaction, whoever writes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from awaited import AwaitedConnection, awaited_store

from instride import (
    AsyncDatabaseStore,
    ConsumerRecord,
    DatabaseStore,
    DeadLetterRecord,
    Processor,
    Retry,
    SkipRecord,
    TopicPartition,
)
from instride._processing import async_store
from instride._processing.attempts import enter_attempt
from instride._processing.engine import Lane, Task
from instride.errors import ConfigError, IllegalStateError, StorePositionError

T0 = TopicPartition("t", 0)
ID, OTHER_ID = UUID(int=1), UUID(int=2)


class Bank:
    """A database, by one way of connecting: its store, and the records that were written to it."""

    def __init__(self, store: AsyncDatabaseStore[Any]) -> None:
        self.store = store

    async def make(self) -> None:
        async with self.store.database.transaction() as session:
            await session.run("CREATE TABLE bills (amount INTEGER)")
            await session.commit()
        await self.store.database.prepare()
        await self.store.database.prepare()  # it is there

    async def bill(self, records: list[ConsumerRecord[Any, Any]]) -> None:
        for record in records:
            await self.store.connection.cursor().execute(f"INSERT INTO bills VALUES ({record.offset})")

    async def written(self) -> list[int]:
        async with self.store.database.transaction() as session:
            found = await session.rows("SELECT amount FROM bills")
            await session.roll_back()
        return sorted(row[0] for row in found)

    async def set_row(self, offset: int) -> None:
        async with self.store.database.transaction() as session:
            await session.run("UPDATE instride_offsets SET next_offset = ?", offset)
            await session.commit()

    async def position(self, topic_id: UUID | None = ID) -> int | None:
        return (await self.store.database.positions("g", {T0: topic_id})).get(T0)


class Owner:
    """One member's view: its calls of the handler, each of a list of offsets."""

    def __init__(self, bank: Bank, handler: Callable[[Any], Awaitable[object]] | None = None) -> None:
        self._call = bank.store.database.transactions(handler or bank.bill, "g")
        self.lane = Lane(T0, 1, 0, 0)
        self.lane.topic_id = ID
        self.over = False

    async def handles(self, offsets: range) -> None:
        records = [ConsumerRecord("t", 0, offset, epoch=1) for offset in offsets]
        job = Task(records[0], self.lane, None, 1)
        job.over = self.over
        enter_attempt(job)
        await self._call(records)


Play = Callable[[Callable[[Bank], Awaitable[None]]], None]


@pytest.fixture(params=["sqlite3", "psycopg"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Runs a coroutine function with a bank, on an event loop of its own."""
    if request.param == "sqlite3":
        store: AsyncDatabaseStore[Any] = awaited_store(lambda: sqlite3.connect(tmp_path / "bank.db"))
    else:
        import psycopg

        uri = request.getfixturevalue("postgres_database")
        store = AsyncDatabaseStore(lambda: psycopg.AsyncConnection.connect(uri))

    def run(what: Callable[[Bank], Awaitable[None]]) -> None:
        async def main() -> None:
            async with store.database.connections():
                bank = Bank(store)
                await bank.make()
                await what(bank)

        asyncio.run(main())

    return run


def test_records_and_offset_are_one_transaction(play: Play) -> None:
    async def fails(records: Any) -> None:
        raise OSError("the bank is closed")

    async def what(bank: Bank) -> None:
        async def writes_and_fails(records: Any) -> None:
            await bank.bill(records)
            await fails(records)

        owner = Owner(bank)
        assert await bank.position() is None
        await owner.handles(range(3))
        await owner.handles(range(3, 5))
        with pytest.raises(OSError, match="closed"):
            await Owner(bank, writes_and_fails).handles(range(5, 8))
        assert (await bank.written(), await bank.position()) == ([0, 1, 2, 3, 4], 5), "nothing of it is there"
        await owner.handles(range(5, 8))
        assert (await bank.written(), await bank.position()) == (list(range(8)), 8)
        assert await bank.position(OTHER_ID) is None

    play(what)


def test_a_former_owner_that_goes_on_writes_nothing_twice(play: Play) -> None:
    """It believes the row to be where it left it; so does the new owner, behind whose back it wrote."""

    async def what(bank: Bank) -> None:
        zombie, owner = Owner(bank), Owner(bank)
        await zombie.handles(range(3))
        await owner.handles(range(3, 6))
        await zombie.handles(range(3, 8))
        await owner.handles(range(6, 9))
        assert (await bank.written(), await bank.position()) == (list(range(9)), 9)

    play(what)


def test_what_was_given_up_meanwhile_is_rolled_back(play: Play) -> None:
    async def what(bank: Bank) -> None:
        owner = Owner(bank)
        owner.over = True
        with pytest.raises(IllegalStateError, match="another"):
            await owner.handles(range(3))
        assert (await bank.written(), await bank.position()) == ([], None)

    play(what)


def test_what_is_cancelled_in_its_transaction_is_rolled_back(play: Play) -> None:
    async def what(bank: Bank) -> None:
        written = asyncio.Event()

        async def handler(records: Any) -> None:
            await bank.bill(records)
            written.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(Owner(bank, handler).handles(range(3)))
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await bank.written(), await bank.position()) == ([], None)
        await Owner(bank).handles(range(2))
        assert (await bank.written(), await bank.position()) == ([0, 1], 2)

    play(what)


@pytest.mark.parametrize("silent", ["rollback", "close"])
def test_a_connection_that_is_silent_at_its_end_is_waited_for_no_longer(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cancelled, or out of time, would hold its handler's place for ever."""
    monkeypatch.setattr(async_store, "_ENDING", 0.0)
    raw, waited = sqlite3.connect(":memory:"), list[str]()
    connection = AwaitedConnection(raw)

    async def for_long() -> None:
        await asyncio.sleep(5.0)
        waited.append(silent)

    async def connect() -> AwaitedConnection:
        return connection

    async def play() -> None:
        with pytest.raises(TimeoutError):
            async with AsyncDatabaseStore(connect, paramstyle="qmark").database.transaction():
                raise TimeoutError

    monkeypatch.setattr(connection, silent, for_long)
    with closing(raw):
        asyncio.run(play())
    assert waited == []


def test_a_task_that_outlives_its_handler_writes_into_no_other_transaction(play: Play) -> None:
    """`gather` raises with its first error, and leaves the other calls running."""

    async def what(bank: Bank) -> None:
        go_on, late, ends = asyncio.Event(), list[asyncio.Task[Any]](), list[BaseException | None]()

        async def asks_later() -> None:
            await go_on.wait()
            await bank.bill([ConsumerRecord("t", 0, 100)])

        async def has_a_cursor() -> None:
            cursor = bank.store.connection.cursor()
            await go_on.wait()
            await cursor.execute("INSERT INTO bills VALUES (200)")

        async def fails(records: Any) -> None:
            late.extend(asyncio.create_task(each()) for each in (asks_later, has_a_cursor))
            await asyncio.sleep(0)
            raise OSError("the bank is closed")

        async def meets_them(records: Any) -> None:
            go_on.set()
            await asyncio.wait(late)
            ends.extend(each.exception() for each in late)
            await bank.bill(records)

        with pytest.raises(OSError, match="closed"):
            await Owner(bank, fails).handles(range(3))
        await Owner(bank, meets_them).handles(range(3))
        assert (await bank.written(), await bank.position()) == ([0, 1, 2], 3)
        assert isinstance(ends[0], IllegalStateError)
        assert ends[1] is not None

    play(what)


def test_a_task_that_outlives_a_handler_that_went_well_has_no_connection_either(play: Play) -> None:
    async def what(bank: Bank) -> None:
        go_on, late = asyncio.Event(), list[asyncio.Task[Any]]()

        async def asks_later() -> None:
            await go_on.wait()
            await bank.bill([ConsumerRecord("t", 0, 100)])

        async def leaves_it(records: Any) -> None:
            late.append(asyncio.create_task(asks_later()))
            await bank.bill(records)

        async def meets_it(records: Any) -> None:
            go_on.set()
            await asyncio.wait(late)
            await bank.bill(records)

        await Owner(bank, leaves_it).handles(range(3))
        owner = Owner(bank, meets_it)
        await owner.handles(range(3, 5))
        assert (await bank.written(), await bank.position()) == (list(range(5)), 5)
        assert isinstance(late[0].exception(), IllegalStateError)

    play(what)


@pytest.mark.parametrize(
    ("error", "opened"), [(SkipRecord("x"), 1), (ExceptionGroup("", [DeadLetterRecord("x")]), 1), (OSError("x"), 2)]
)
def test_a_request_keeps_the_connection_and_an_error_does_not(tmp_path: Path, error: Exception, opened: int) -> None:
    connections: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        connections.append(sqlite3.connect(tmp_path / "bank.db"))
        return connections[-1]

    async def raises(records: Any) -> None:
        raise error

    async def main() -> None:
        bank = Bank(awaited_store(connect))
        async with bank.store.database.connections():
            await bank.make()
            before = len(connections)
            with pytest.raises(type(error)):
                await Owner(bank, raises).handles(range(3))
            await Owner(bank).handles(range(3))
            assert (await bank.written(), len(connections) - before) == ([0, 1, 2], opened)

    asyncio.run(main())


def test_a_connection_of_an_unknown_style_is_closed() -> None:
    closed: list[int] = []

    class Unknown:
        async def close(self) -> None:
            closed.append(1)
            raise OSError("its own error says less")

    async def connect() -> Unknown:
        return Unknown()

    with pytest.raises(ConfigError, match="paramstyle"):
        asyncio.run(AsyncDatabaseStore(connect).database.prepare())
    assert closed == [1]


def test_a_row_that_was_set_back_is_refused_since_records_would_be_missing(play: Play) -> None:
    async def what(bank: Bank) -> None:
        owner = Owner(bank)
        await owner.handles(range(5))
        await bank.set_row(2)
        with pytest.raises(StorePositionError, match=r"t-0: its row in the database is at 2, .* up to 5"):
            await owner.handles(range(5, 7))
        assert (await bank.written(), await bank.position()) == (list(range(5)), 2)

    play(what)


@pytest.mark.parametrize("play", ["psycopg"], indirect=True)
def test_a_former_owner_whose_transaction_is_open_is_overtaken(play: Play) -> None:
    """It began first, writes, and is overtaken before it ends: it rolls back, and writes what is left."""

    async def what(bank: Bank) -> None:
        written, may_end = asyncio.Event(), asyncio.Event()

        async def slow(records: Any) -> None:
            await bank.bill(records)
            written.set()
            await may_end.wait()

        zombie = asyncio.create_task(Owner(bank, slow).handles(range(6)))
        await written.wait()
        await Owner(bank).handles(range(4))
        may_end.set()
        await zombie
        assert (await bank.written(), await bank.position()) == (list(range(6)), 6)

    play(what)


@pytest.mark.parametrize("play", ["psycopg"], indirect=True)
def test_a_connection_that_breaks_is_replaced(play: Play) -> None:
    import psycopg

    async def what(bank: Bank) -> None:
        async def breaks(records: Any) -> None:
            connection = bank.store.connection
            await bank.bill(records)
            async with bank.store.database.transaction() as other:
                await other.rows("SELECT pg_terminate_backend(?)", connection.info.backend_pid)
            await bank.bill(records)

        with pytest.raises(psycopg.OperationalError):
            await Owner(bank, breaks).handles(range(3))
        await Owner(bank).handles(range(3))
        assert (await bank.written(), await bank.position()) == ([0, 1, 2], 3)

    play(what)


def test_a_connection_without_transactions_is_refused() -> None:
    class Careless(AwaitedConnection):
        autocommit = True

    async def connect() -> AwaitedConnection:
        return Careless(sqlite3.connect(":memory:"))

    with pytest.raises(ConfigError, match="autocommit"):
        asyncio.run(AsyncDatabaseStore(connect).database.prepare())


class Mode(AwaitedConnection):
    """What aiosqlite tells, or aiomysql."""

    def __init__(self, level: str | None, *, in_transaction: bool, commits: bool) -> None:
        super().__init__(sqlite3.connect(":memory:"))
        self.isolation_level = level
        self.get_autocommit = lambda: commits
        if in_transaction:
            self._connection.execute("BEGIN")


@pytest.mark.parametrize(
    ("level", "in_transaction", "commits", "told"),
    [
        (None, False, False, "commits each statement by itself"),
        ("", False, True, "commits each statement by itself"),
        ("", True, False, "without autocommit="),
        ("", False, False, None),
    ],
)
def test_a_mode_in_which_the_store_has_no_transactions_is_refused(
    level: str | None, in_transaction: bool, commits: bool, told: str | None
) -> None:
    async def connect() -> Mode:
        return Mode(level, in_transaction=in_transaction, commits=commits)

    with nullcontext() if told is None else pytest.raises(ConfigError, match=told):
        asyncio.run(AsyncDatabaseStore(connect, paramstyle="qmark").database.prepare())


async def handle(record: ConsumerRecord) -> None: ...


def handle_plainly(record: ConsumerRecord) -> None: ...


async def nowhere() -> None: ...


@pytest.mark.parametrize(
    ("handler", "store", "text"),
    [(handle_plainly, AsyncDatabaseStore(nowhere), "coroutines"), (handle, DatabaseStore(lambda: None), "coroutines")],
)
def test_a_store_of_the_other_kind_is_refused(handler: Any, store: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Processor(handler, topics=["t"], store=store)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"connect": 5}, TypeError), ({"table": "a; b"}, ConfigError), ({"paramstyle": "colon"}, ConfigError)],
)
def test_a_wrong_store_is_refused(options: dict[str, Any], error: Any) -> None:
    with pytest.raises(error, match="AsyncDatabaseStore"):
        AsyncDatabaseStore(**{"connect": nowhere, **options})


def test_outside_of_a_handler_there_is_no_connection() -> None:
    store = AsyncDatabaseStore(nowhere)
    with pytest.raises(IllegalStateError, match="handler"):
        _ = store.connection
    assert store.schema.startswith("CREATE TABLE instride_offsets")


# -- in a processor, in virtual time


@pytest.mark.parametrize("has_lifespan", [False, True])
def test_a_crash_after_the_transaction_repeats_nothing_and_letters_are_written_once(
    tmp_path: Path, *, has_lifespan: bool
) -> None:
    """Its offsets were never committed to the group; the database knows where to go on."""

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "bank.db")

    store, told = awaited_store(connect), []
    with closing(connect()) as connection:
        connection.execute("CREATE TABLE seen (value TEXT)")

    @asynccontextmanager
    async def lifespan() -> Any:
        told.append("+")
        yield
        told.append("-")

    async def write(records: list[ConsumerRecord[bytes | None, str]]) -> None:
        for record in records:
            if record.value == "old":
                raise SkipRecord if len(records) == 1 else ValueError("one of them")
            if record.value == "bad":
                raise ValueError("bad")
            await asyncio.sleep(0.01)
            await store.connection.cursor().execute("INSERT INTO seen VALUES (?)", (record.value,))

    make: Any = Processor
    lifespans = {"lifespan": lifespan} if has_lifespan else {}
    processor = make(
        write,
        topics=["t"],
        value_deserializer=bytes.decode,
        store=store,
        max_batch=4,
        max_wait=0.0,
        retry=Retry(attempts=2),
        dead_letters="dlq",
        commit_interval=1000.0,
        **lifespans,
    )
    with processor.testing() as kit:
        for number in range(10):
            kit.give("t", b"%d" % number)
        kit.give("t", b"old")
        kit.give("t", b"bad")
        kit.advance(100)
        assert kit.committed == {T0: 0}
        kit.crash()
        kit.give("t", b"10")
        kit.advance(10)
        assert [record.value for record in kit.handled].count("0") == 1, "it was not even read again"
        assert [letter.value for letter in kit.dead_letters] == [b"bad"]
    with closing(connect()) as connection:
        found = Counter(row[0] for row in connection.execute("SELECT value FROM seen"))
    assert found == Counter(map(str, range(11)))
    assert told == (["+", "-", "+", "-"] if has_lifespan else [])


def timed(tmp_path: Path, commit: Callable[[AwaitedConnection], Awaitable[None]], handler: Any = None) -> Any:
    """The kit of a handler that has 2 seconds and one attempt, and writes its record; with a COMMIT of the test's."""

    class Connection(AwaitedConnection):
        async def commit(self) -> None:
            await commit(self)
            await super().commit()

    async def connect() -> AwaitedConnection:
        return Connection(sqlite3.connect(tmp_path / "bank.db"))

    with closing(sqlite3.connect(tmp_path / "bank.db")) as connection:
        connection.execute("CREATE TABLE seen (value BLOB)")
    store = AsyncDatabaseStore(connect, paramstyle="qmark")

    async def write(record: ConsumerRecord) -> None:
        await store.connection.cursor().execute("INSERT INTO seen VALUES (?)", (record.value,))
        if handler is not None:
            await handler()

    return Processor(write, topics=["t"], store=store, timeout=2.0, dead_letters="dlq").testing()


def seen(tmp_path: Path) -> list[bytes]:
    with closing(sqlite3.connect(tmp_path / "bank.db")) as connection:
        return [row[0] for row in connection.execute("SELECT value FROM seen")]


def test_what_is_in_time_stays_so_while_its_transaction_is_committed(tmp_path: Path) -> None:
    """A record whose COMMIT takes its time is in the database: it must not be a dead letter besides."""

    async def commit(connection: AwaitedConnection) -> None:
        if connection.in_transaction:
            await asyncio.sleep(5)

    with timed(tmp_path, commit) as kit:
        kit.give("t", b"one")
        kit.advance(10)
        assert (kit.tally.finished, kit.dead_letters) == (1, [])
    assert seen(tmp_path) == [b"one"]


def test_what_is_out_of_time_and_returns_all_the_same_is_rolled_back(tmp_path: Path) -> None:
    async def commit(connection: AwaitedConnection) -> None: ...

    async def insists() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)

    with timed(tmp_path, commit, insists) as kit:
        kit.give("t", b"one")
        kit.advance(10)
        assert [letter.value for letter in kit.dead_letters] == [b"one"]
        assert isinstance(kit.dead_letters[0].error, TimeoutError)
    assert seen(tmp_path) == []


def test_a_row_that_is_set_back_before_a_dead_letter_stops_the_processor(tmp_path: Path) -> None:
    async def commit(connection: AwaitedConnection) -> None: ...

    async def fails_then() -> None:
        if len(kit.handled) == 1:
            raise ValueError("bad")

    with timed(tmp_path, commit, fails_then) as kit:
        kit.give("t", b"one")
        kit.run()
        with closing(sqlite3.connect(tmp_path / "bank.db")) as connection:
            connection.execute("UPDATE instride_offsets SET next_offset = 0")
            connection.commit()
        kit.give("t", b"two")
        with pytest.raises(StorePositionError, match="restored"):
            kit.advance(60)
        assert [letter.value for letter in kit.dead_letters] == [b"two"]


def test_the_kit_says_that_it_cannot_wait_for_a_server() -> None:
    async def connect() -> AwaitedConnection:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    processor = Processor(handle, topics=["t"], store=AsyncDatabaseStore(connect, paramstyle="qmark"))
    with pytest.raises(IllegalStateError, match="running"):
        processor.testing().__enter__()
