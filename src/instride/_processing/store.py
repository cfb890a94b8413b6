"""`DatabaseStore`: what a handler writes, and how far its partition was read, in one transaction of a database.

Laws
1. One row for each group, topic and partition: the offset from which on nothing was written. What lies below was
   written exactly once, or was skipped or dead-lettered (that is a transaction without records).
2. The row moves in the transaction of the records, by compare-and-set: from the offset that this owner left there, or
   found. If another one is there, another owner has written: all is rolled back, the row is read again, and what lies
   below it is left out. So whoever writes, and however late (a former owner, a suspended process), no record is
   written twice.
3. The database says where a partition begins, before any of its records is handled; the group's offset only where the
   database has no row. The row of a topic that was deleted and recreated counts for nothing.
4. A row never moves back by itself. If it did while the processor ran, somebody restored the database: the processor
   stops, since records before the ones that it has are missing there; started again, it begins at the row. It stops
   too if the log was cut below the row: new records there would count as written.
5. Each thread has a connection of its own, and closes it; one of SQLAlchemy's it gives back to the pool after each
   transaction. One that failed is rolled back, or else closed and replaced.
6. What the laws want done is said as requests. `perform` does them here, `async_store` awaits them.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast, get_args
from uuid import UUID

from instride._coroutines import refuse_coroutine
from instride._processing.attempts import current_job, is_late
from instride.errors import ConfigError, IllegalStateError, StorePositionError
from instride.records import TopicPartition

if TYPE_CHECKING:
    from instride._processing.engine import Job, Lane, Task

__all__ = [
    "COMMITS_ALONE",
    "OWN_TRANSACTIONS",
    "DatabaseStore",
    "Offsets",
    "ParamStyle",
    "Request",
    "Rows",
    "Transactions",
    "bound",
    "check_arguments",
    "refuse_autocommit",
    "style_of",
]

C = TypeVar("C")
T = TypeVar("T")
ParamStyle = Literal["qmark", "numeric", "named", "format", "pyformat"]

# A table's name is put into the statements as it is: no driver binds names.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_COLUMNS: Final = "group_id, topic, part, topic_id, next_offset"
COMMITS_ALONE: Final = "the connection commits each statement by itself: open it without autocommit"
OWN_TRANSACTIONS: Final = "open SQLite without autocommit=: the store begins its own transactions"
_OF_ROW: Final = "WHERE group_id = ? AND topic = ? AND part = ?"


class DatabaseStore(Generic[C]):
    """`Processor(..., store=DatabaseStore(connect))`: each batch and its offset are one transaction. Any thread.

        store = DatabaseStore(lambda: sqlite3.connect("billing.db"))

        def bill(records: list[ConsumerRecord[bytes | None, int]]) -> None:
            store.connection.executemany("INSERT INTO bills VALUES (?)", [(record.value,) for record in records])

    The processor commits, or rolls back when the handler raises; the handler does neither.
    """

    def __init__(
        self, connect: Callable[[], C], *, table: str = "instride_offsets", paramstyle: ParamStyle | None = None
    ) -> None:
        """connect: opens a connection of the DB-API (PEP 249) such as `psycopg.connect`, or is SQLAlchemy's
        `engine.connect`. It must not commit each statement by itself (autocommit).

        table: of the offsets, with its schema if need be; it is made where it is not there. It cannot be that of a
        `DatabaseSink`. paramstyle: of the driver; by default what the driver's module says. Raises ConfigError or
        TypeError. Does no I/O.
        """
        check_arguments("DatabaseStore", connect, table, paramstyle)
        self.database = Database(connect, table, paramstyle)

    @property
    def connection(self) -> C:
        """In a handler: the connection with the transaction of its records. Raises IllegalStateError elsewhere."""
        return cast("C", self.database.connection())

    @property
    def schema(self) -> str:
        """The statement by which the table is made; for those who may not make one in their program."""
        return self.database.offsets.schema


def check_arguments(name: str, connect: object, table: str, paramstyle: str | None) -> None:
    """Of a store. name: of its class. Raises ConfigError or TypeError."""
    if not callable(connect):
        raise TypeError(f"{name}: connect must be a function that opens a connection, not {type(connect).__name__}")
    if not _NAME.fullmatch(table):
        raise ConfigError(f"{name}: table must be a plain name, such as billing.offsets; it is {table!r}")
    if paramstyle is not None and paramstyle not in get_args(ParamStyle):
        raise ConfigError(f"{name}: paramstyle must be one of {', '.join(get_args(ParamStyle))}")


def _nothing(_: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Request:
    """A call of the session's (`run`, `rows`, `commit`, `roll_back`), or "handle": of the handler."""

    name: str
    args: tuple[Any, ...] = ()


def perform(requests: Generator[Request, Any, T], session: Session, handler: Callable[[Any], object] = _nothing) -> T:
    """To their end; what one raises is theirs to judge. handler: where there is one to call."""
    result: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = requests.send(result) if error is None else requests.throw(error)
        except StopIteration as end:
            return cast("T", end.value)
        result = error = None
        try:
            result = (handler if request.name == "handle" else getattr(session, request.name))(*request.args)
        except BaseException as caught:  # noqa: BLE001 - it goes back to who requested it
            error = caught


class Offsets:
    """The table of offsets: what is requested of a session."""

    def __init__(self, table: str) -> None:
        # "part" and "group_id", since PARTITION and GROUP are words of SQL.
        self.schema = (
            f"CREATE TABLE {table} (group_id VARCHAR(255) NOT NULL, topic VARCHAR(255) NOT NULL, "
            "part INTEGER NOT NULL, topic_id VARCHAR(36) NOT NULL, next_offset BIGINT NOT NULL, "
            "PRIMARY KEY (group_id, topic, part))"
        )
        self._table = table

    def prepare(self) -> Generator[Request, Any, None]:
        if (yield from self._is_there()):
            return
        try:
            # Looked for first: a user who may make no tables can do with one that is there.
            yield Request("run", (self.schema,))
            yield Request("commit")
        except Exception as error:
            yield Request("roll_back")
            if not (yield from self._is_there()):  # else another process made it in this moment
                if (yield from self._is_there("1")):
                    raise ConfigError(
                        f"the table {self._table} has other columns than those of a store ({_COLUMNS}): is it a "
                        "DatabaseSink's? table= gives it another name"
                    ) from error
                raise

    def _is_there(self, columns: str = _COLUMNS) -> Generator[Request, Any, bool]:
        try:
            yield Request("rows", (f"SELECT {columns} FROM {self._table} WHERE 1 = 0",))  # noqa: S608 - a checked name
        except Exception:  # noqa: BLE001 - each driver has errors of its own
            found = False
        else:
            found = True
        # In any case: after an error PostgreSQL takes nothing more in the transaction, and a SELECT has begun one, too.
        yield Request("roll_back")
        return found

    def positions(
        self, group: str, partitions: Mapping[TopicPartition, UUID | None]
    ) -> Generator[Request, Any, dict[TopicPartition, int]]:
        found: dict[TopicPartition, int] = {}
        for partition, topic_id in partitions.items():
            row = yield from self.row(group, partition)
            if row is not None and row.is_of(topic_id):
                found[partition] = row.next_offset
        yield Request("roll_back")
        return found

    def row(self, group: str, partition: TopicPartition) -> Generator[Request, Any, Row | None]:
        statement = f"SELECT next_offset, topic_id FROM {self._table} {_OF_ROW}"  # noqa: S608
        found = yield Request("rows", (statement, group, *partition))
        return Row(int(found[0][0]), str(found[0][1])) if found else None

    def move(
        self, group: str, partition: TopicPartition, before: Row | None, after: Row
    ) -> Generator[Request, Any, int]:
        """Law 2: 1 if the row was `before`. May raise what the driver raises where it was not."""
        if before is None:
            statement = f"INSERT INTO {self._table} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608
            yield Request("run", (statement, group, *partition, after.topic_id, after.next_offset))
            return 1
        statement = (
            f"UPDATE {self._table} SET next_offset = ?, topic_id = ? {_OF_ROW} AND next_offset = ? AND topic_id = ?"  # noqa: S608
        )
        values = after.next_offset, after.topic_id, group, *partition, before.next_offset, before.topic_id
        return cast("int", (yield Request("run", (statement, *values))))


class Database:
    """What the processor does with it. See the laws."""

    def __init__(self, connect: Callable[[], Any], table: str, paramstyle: ParamStyle | None) -> None:
        self.offsets = Offsets(table)
        self._connect = connect
        self._paramstyle = paramstyle
        self._mine: _Mine = _Mine()

    def connection(self) -> Any:
        """Of the handler that this thread is in."""
        if self._mine.session is None or not self._mine.is_in_transaction:
            raise IllegalStateError("connection is for a handler, while a Processor with this store calls it")
        return self._mine.session.connection

    def prepare(self) -> None:
        """Make the table, if it is not there. Raises what the database raises, and ConfigError for autocommit, or where
        a table of that name has other columns.
        """
        with self._session() as session:
            perform(self.offsets.prepare(), session)

    def positions(self, group: str, partitions: Mapping[TopicPartition, UUID | None]) -> dict[TopicPartition, int]:
        """Where each of them goes on, of those that it has (law 3). partitions: with their topics' ids."""
        with self._session() as session:
            return perform(self.offsets.positions(group, partitions), session)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        session = Session(self._connect(), self._paramstyle)
        try:
            yield session
        finally:
            session.close()

    @contextmanager
    def thread(self) -> Iterator[None]:
        """Around all that a thread of handlers does (law 5)."""
        try:
            yield
        finally:
            self._drop()

    def transactions(self, handler: Callable[[Any], object], group: str) -> Transactions:
        """For one run."""
        return Transactions(self, handler, group)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """On this thread's connection. Rolled back unless `commit` was called."""
        mine = self._mine
        if mine.session is None:
            mine.session = Session(self._connect(), self._paramstyle)
        session = mine.session
        try:
            session.begin()
            mine.is_in_transaction = True
            yield session
        except BaseException:
            self._roll_back_or_drop(session)
            raise
        finally:
            mine.is_in_transaction = False
            if session.is_of_pool:
                self._drop()

    def _roll_back_or_drop(self, session: Session) -> None:
        try:
            session.roll_back()
        except Exception:  # noqa: BLE001 - it is broken; what broke it is raised already
            self._drop()

    def _drop(self) -> None:
        session, self._mine.session = self._mine.session, None
        if session is not None:
            with suppress(Exception):
                session.close()


class _Mine(threading.local):
    """A thread's."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.is_in_transaction = False


@dataclass(frozen=True, slots=True)
class Row:
    """topic_id: "" where the broker has none."""

    next_offset: int
    topic_id: str

    def is_of(self, topic_id: UUID | None) -> bool:
        """Whether it may be of this topic; of one that was deleted it is not."""
        return topic_id is None or self.topic_id in ("", str(topic_id))


@dataclass(slots=True)
class _Known:
    """Of a partition in one assignment (a lane). is_sure: whether the row is as it was, for all that is known here."""

    lane: Lane
    row: Row | None
    is_sure: bool = True


class Transactions:
    """The innermost call around a handler: in a transaction. A partition has one call at a time; one that was lost
    meanwhile is `over`."""

    def __init__(self, database: Database, handler: Callable[[Any], object], group: str) -> None:
        self._database = database
        self._handler = handler
        self._rows = Rows(database.offsets, group)

    def __call__(self, what: Any) -> None:
        self._repeat(current_job(), what, self._handler)

    def pass_over(self, task: Task) -> None:
        """It was skipped, or its dead letter is acknowledged: the row moves behind it."""
        self._repeat(task, task.record, _nothing)

    def _repeat(self, job: Job, what: Any, handler: Callable[[Any], object]) -> None:
        while not self._try(job, what, handler):
            pass  # another owner has written meanwhile, and each time that is something

    def _try(self, job: Job, what: Any, handler: Callable[[Any], object]) -> bool:
        with self._database.transaction() as session:
            return perform(self._rows.attempt(job, what), session, handler)


class Rows:
    """What one run knows of its partitions' rows, and what it requests of a transaction (laws 2 to 4)."""

    def __init__(self, offsets: Offsets, group: str) -> None:
        self._offsets = offsets
        self._group = group
        self._known: dict[TopicPartition, _Known] = {}

    def attempt(self, job: Job, what: Any) -> Generator[Request, Any, bool]:
        """False: the row was not where it was thought to be."""
        # Before what is known is touched: the next owner in this process may know the partition already.
        _refuse_over(job)
        known = yield from self._know(job.lane)
        # Until the commit has returned, nobody knows which of the two rows is there.
        known.is_sure = False
        # Once: an attempt that was given up may still commit, and tell of it, while this one's handler runs.
        before = known.row
        after = yield from _handle(job.lane, before, what)
        # Asked after the handler, too: the partition may have been lost while that ran.
        _refuse_over(job)
        if after is not None and not (yield from self._moves(job.lane, before, after)):
            yield Request("roll_back")
            return False
        # Last, since from here on its time cannot run out. Its letter, which comes after that, is written all the same.
        if not job.writes_dead_letter and is_late(job):
            raise TimeoutError(f"{job.lane.partition} at offset {job.offset}: out of time, so it is rolled back")
        yield Request("commit")
        known.row, known.is_sure = after or before, True
        return True

    def _know(self, lane: Lane) -> Generator[Request, Any, _Known]:
        known = self._known.get(lane.partition)
        if known is None or known.lane is not lane:
            row = yield from self._read(lane)
            # Once: by then the lane's own transactions have moved the row.
            if not lane.is_compared:
                _refuse_cut(lane, row)
                lane.is_compared = True
            known = self._known[lane.partition] = _Known(lane, row)
        elif not known.is_sure:
            before = known.row
            found = yield from self._read(lane)
            _refuse_set_back(lane.partition, found, before)
            known.row = found
        return known

    def _read(self, lane: Lane) -> Generator[Request, Any, Row | None]:
        return (yield from self._offsets.row(self._group, lane.partition))

    def _moves(self, lane: Lane, before: Row | None, after: Row) -> Generator[Request, Any, bool]:
        partition = lane.partition
        try:
            count = yield from self._offsets.move(self._group, partition, before, after)
        # Two owners may insert at once: the second one's driver raises, and each driver by a class of its own.
        except Exception:
            yield Request("roll_back")
            if (yield from self._read(lane)) == before:
                raise  # it is no other owner that kept it from moving
            return False
        if count == 1:
            return True
        yield Request("roll_back")
        # As above. To repeat it would never end.
        if (yield from self._read(lane)) == before:
            raise StorePositionError(
                f"{partition}: the UPDATE of its row changed {count} rows, says the rowcount of the driver's cursor, "
                "and no other owner has changed the row. A store needs a driver that counts the rows of an UPDATE"
            )
        return False


def _refuse_over(job: Job) -> None:
    if job.over:
        raise IllegalStateError(f"{job.lane.partition} is another's: what was handled is rolled back")


def _handle(lane: Lane, before: Row | None, what: Any) -> Generator[Request, Any, Row | None]:
    """The row as it is to be. None: nothing of this is to be written any more."""
    records = what if isinstance(what, list) else [what]
    topic_id = lane.topic_id
    start = before.next_offset if before is not None and before.is_of(topic_id) else 0
    new = [record for record in records if record.offset >= start]
    if not new:
        return None
    returned = yield Request("handle", (new if isinstance(what, list) else new[0],))
    refuse_coroutine(returned)
    named = "" if before is None else before.topic_id
    return Row(new[-1].offset + 1, named if topic_id is None else str(topic_id))


def _refuse_set_back(partition: TopicPartition, found: Row | None, before: Row | None) -> None:
    """Law 4."""
    if before is None or (found is not None and found.next_offset >= before.next_offset):
        return
    at = "is gone" if found is None else f"is at {found.next_offset}"
    raise StorePositionError(
        f"{partition}: its row in the database {at}, and this processor had written up to {before.next_offset}. "
        "Was the database restored? Start the processor again: it goes on from the row"
    )


def _refuse_cut(lane: Lane, row: Row | None) -> None:
    """Law 4."""
    if row is None or not row.is_of(lane.topic_id) or not -1 < lane.reset_to < row.next_offset:
        return
    raise StorePositionError(
        f"{lane.partition}: its row in the database is at {row.next_offset}, and the consumer has reset the position "
        f"to {lane.reset_to}: the log was truncated. New records from there on would count as written. Undo what is "
        "written of the lost ones, set next_offset of the row to the offset at which the log was truncated, and start "
        "the processor again"
    )


class Session:
    """A connection and how it is spoken to: that of a driver (PEP 249), or SQLAlchemy's. A thread's."""

    def __init__(self, connection: Any, paramstyle: ParamStyle | None) -> None:
        self.connection = connection
        # SQLAlchemy's connection has the driver's in its pool's: that one knows its style, and of autocommit.
        pooled = getattr(connection, "connection", None)
        self._driven: Any = getattr(pooled, "dbapi_connection", None) or connection
        self._alchemy = getattr(connection, "exec_driver_sql", None)
        try:
            self._style = paramstyle or style_of(self._driven)
            refuse_autocommit("DatabaseStore", self._driven)
            # Python 3.12 and later: with False it is in a transaction always, and would never be told how to begin it.
            if isinstance(self._driven, sqlite3.Connection) and getattr(self._driven, "autocommit", None) is False:
                raise ConfigError(f"DatabaseStore: {OWN_TRANSACTIONS}")
        except ConfigError:
            with suppress(Exception):  # what is raised says more
                self.close()
            raise

    @property
    def is_of_pool(self) -> bool:
        """Of SQLAlchemy's: there may be fewer than threads, and `close` keeps it open."""
        return self._alchemy is not None

    def begin(self) -> None:
        """Others begin by themselves."""
        # sqlite3 begins by itself only where it writes; and SQLite may refuse a lock to one that began by reading.
        if isinstance(self._driven, sqlite3.Connection) and not self._driven.in_transaction:
            self._driven.execute("BEGIN IMMEDIATE")

    def run(self, statement: str, *values: object) -> int:
        """How many rows it wrote."""
        cursor = self._execute(statement, values)
        count = int(cursor.rowcount)
        cursor.close()
        return count

    def rows(self, statement: str, *values: object) -> list[Any]:
        cursor = self._execute(statement, values)
        found = list(cursor.fetchall())
        cursor.close()
        return found

    def _execute(self, statement: str, values: Sequence[object]) -> Any:
        """statement: with a question mark for each value."""
        text, given = bound(statement, values, self._style)
        if self._alchemy is not None:
            return self._alchemy(text, given)
        cursor = self.connection.cursor()
        cursor.execute(text, given)
        return cursor

    def commit(self) -> None:
        self.connection.commit()

    def roll_back(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


def refuse_autocommit(name: str, connection: Any) -> None:
    """name: of the store's class. Raises ConfigError, as far as the driver says in which mode it is."""
    # Of PyMySQL, mysqlclient and aiomysql `autocommit` is a method that sets it; and sqlite3's may be -1.
    asked = getattr(connection, "get_autocommit", None)
    if getattr(connection, "autocommit", None) is True or (asked is not None and asked() is True):
        raise ConfigError(f"{name}: {COMMITS_ALONE}")


def style_of(connection: Any) -> ParamStyle:
    """What its driver's module says; of a connection of a subclass, what that of its base says."""
    for kind in type(connection).__mro__:
        found = getattr(sys.modules.get(kind.__module__.partition(".")[0]), "paramstyle", None)
        if found in get_args(ParamStyle):
            return cast("ParamStyle", found)
    raise ConfigError(f"DatabaseStore: no paramstyle is known of {type(connection).__name__}: give one")


def bound(statement: str, values: Sequence[object], style: ParamStyle) -> tuple[str, Any]:
    if style == "qmark":
        return statement, tuple(values)
    marks = {"numeric": ":{}", "named": ":v{}", "format": "%s", "pyformat": "%(v{})s"}[style]
    parts = statement.split("?")
    text = parts[0] + "".join(marks.format(number) + part for number, part in enumerate(parts[1:], 1))
    if style in ("numeric", "format"):
        return text, tuple(values)
    return text, {f"v{number}": value for number, value in enumerate(values, 1)}
