"""`AsyncDatabaseStore`: what a coroutine handler writes and its offset in one transaction; `store` has it for others.

Laws
1. Those of `store`, from which the requests come; here they are awaited.
2. Each transaction has a connection to itself, from its begin to its end, and leaves it to the next one. One that ends
   by an error closes it: a task that its handler began, and left behind, may still have a cursor, and must not write
   into another handler's transaction. A handler's request (`SkipRecord`, say) is no error. All are opened and closed on
   the event loop of the handlers. For its roll-back, or its end, no connection is waited for long.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast
from uuid import UUID

from instride._processing.attempts import current_job
from instride._processing.retries import REQUESTS, sole
from instride._processing.store import (
    COMMITS_ALONE,
    OWN_TRANSACTIONS,
    Offsets,
    ParamStyle,
    Request,
    Rows,
    bound,
    check_arguments,
    refuse_autocommit,
    style_of,
)
from instride.errors import ConfigError, IllegalStateError
from instride.records import TopicPartition

if TYPE_CHECKING:
    from instride._processing.engine import Job, Task

__all__ = ["AsyncDatabaseStore", "AsyncTransactions"]

C = TypeVar("C")
T = TypeVar("T")
_ENDING = 10.0
"""Seconds for a roll-back, and for the end of a connection."""
_transaction: Final[ContextVar[_Transaction]] = ContextVar("instride_async_transaction")


class AsyncDatabaseStore(Generic[C]):
    """`Processor(..., store=AsyncDatabaseStore(connect))` for coroutine handlers. To be used on their event loop.

        store = AsyncDatabaseStore(lambda: psycopg.AsyncConnection.connect("postgresql://localhost/billing"))

        async def bill(records: list[ConsumerRecord[bytes | None, int]]) -> None:
            async with store.connection.cursor() as cursor:
                await cursor.executemany("INSERT INTO bills VALUES (%s)", [(record.value,) for record in records])

    The processor commits, or rolls back when the handler raises; the handler does neither. A handler awaits each task
    that it begins: for one that outlives it `connection` raises, and a cursor that it has already may be in another
    handler's transaction.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[C]],
        *,
        table: str = "instride_offsets",
        paramstyle: ParamStyle | None = None,
    ) -> None:
        """connect: opens a connection when it is awaited, such as `psycopg.AsyncConnection.connect`. It must not commit
        each statement by itself (autocommit). The processor keeps as many as there were transactions at a time.

        table, paramstyle: as for a `DatabaseStore`, whose table it is too. Raises ConfigError or TypeError. No I/O.
        """
        check_arguments("AsyncDatabaseStore", connect, table, paramstyle)
        self.database = AsyncDatabase(connect, table, paramstyle)

    @property
    def connection(self) -> C:
        """In a handler: the connection with the transaction of its records. Raises IllegalStateError elsewhere, also in
        a task that the handler began and that goes on when the transaction is over."""
        return cast("C", self.database.connection())

    @property
    def schema(self) -> str:
        """The statement by which the table is made; for those who may not make one in their program."""
        return self.database.offsets.schema


class AsyncDatabase:
    """What the processor does with it. See the laws."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], table: str, paramstyle: ParamStyle | None) -> None:
        self.offsets = Offsets(table)
        self._connect = connect
        self._paramstyle = paramstyle
        # By event loop, since a connection can be awaited only on the one on which it was opened.
        self._idle: dict[asyncio.AbstractEventLoop, list[AsyncSession]] = {}

    def connection(self) -> Any:
        """Of the handler that this context is in."""
        found = _transaction.get(None)
        if found is None or found.owner is not self or found.is_over:
            raise IllegalStateError("connection is for a handler, while a Processor with this store calls it")
        return found.connection

    async def prepare(self) -> None:
        """Make the table, if it is not there. Raises what the database raises, and ConfigError for autocommit."""
        async with self.connections(), self.transaction() as session:
            await perform(self.offsets.prepare(), session)

    async def positions(
        self, group: str, partitions: Mapping[TopicPartition, UUID | None]
    ) -> dict[TopicPartition, int]:
        """Where each of them goes on, of those that it has. partitions: with their topics' ids."""
        async with self.transaction() as session:
            return await perform(self.offsets.positions(group, partitions), session)

    @asynccontextmanager
    async def connections(self) -> AsyncIterator[None]:
        """Around a run (law 2)."""
        try:
            yield
        finally:
            for session in self._idle.pop(asyncio.get_running_loop(), []):
                await session.close()

    def transactions(self, handler: Callable[[Any], Awaitable[object]], group: str) -> AsyncTransactions:
        """For one run."""
        return AsyncTransactions(self, handler, group)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """On a connection to itself. Rolled back unless `commit` was requested."""
        idle = self._idle.setdefault(asyncio.get_running_loop(), [])
        session = idle.pop() if idle else await self._open()
        transaction = _Transaction(self, session.connection)
        token = _transaction.set(transaction)
        try:
            yield session
        except BaseException as error:
            transaction.is_over = True
            is_kept = False
            with suppress(BaseException):  # it is broken, or silent, or this was cancelled again
                await session.roll_back()
                is_kept = isinstance(error, Exception) and isinstance(sole(error), REQUESTS)
            if is_kept:
                self._leave(session)
            else:
                await session.close()
            raise
        else:
            transaction.is_over = True
            self._leave(session)
        finally:
            _transaction.reset(token)

    def _leave(self, session: AsyncSession) -> None:
        self._idle.setdefault(asyncio.get_running_loop(), []).append(session)

    async def _open(self) -> AsyncSession:
        connection = await self._connect()
        try:
            refuse_autocommit("AsyncDatabaseStore", connection)
            _refuse_modes_of_sqlite(connection)
            style = self._paramstyle or style_of(connection)
        except ConfigError:
            with suppress(Exception):  # what is raised says more
                await connection.close()
            raise
        return AsyncSession(connection, style)


def _refuse_modes_of_sqlite(connection: Any) -> None:
    """Of aiosqlite, which does not pass on what `autocommit` is. Raises ConfigError."""
    # Not by `isolation_level` alone: psycopg's is None where it leaves the level to the server.
    if not hasattr(connection, "in_transaction"):
        return
    if getattr(connection, "isolation_level", "") is None:
        raise ConfigError(f"AsyncDatabaseStore: {COMMITS_ALONE}")
    # By Python 3.12 with autocommit=False: one that has read, and then writes, is refused a lock while others do so.
    if connection.in_transaction:
        raise ConfigError(f"AsyncDatabaseStore: {OWN_TRANSACTIONS}, and commit what `connect` writes")


class _Transaction:
    """One of a connection's, for whoever has this context: also for tasks that the handler began."""

    __slots__ = ("connection", "is_over", "owner")

    def __init__(self, owner: AsyncDatabase, connection: Any) -> None:
        self.owner = owner
        self.connection = connection
        self.is_over = False


class AsyncTransactions:
    """The innermost call around a coroutine handler: in a transaction. See `Transactions`."""

    def __init__(self, database: AsyncDatabase, handler: Callable[[Any], Awaitable[object]], group: str) -> None:
        self._database = database
        self._handler = handler
        self._rows = Rows(database.offsets, group)

    async def __call__(self, what: Any) -> None:
        await self._repeat(current_job(), what, self._handler)

    async def pass_over(self, task: Task) -> None:
        """It was skipped, or its dead letter is acknowledged: the row moves behind it."""
        await self._repeat(task, task.record, _nothing)

    async def _repeat(self, job: Job, what: Any, handler: Callable[[Any], Awaitable[object]]) -> None:
        while not await self._try(job, what, handler):
            pass  # another owner has written meanwhile, and each time that is something

    async def _try(self, job: Job, what: Any, handler: Callable[[Any], Awaitable[object]]) -> bool:
        async with self._database.transaction() as session:
            return await perform(self._rows.attempt(job, what), session, handler)


async def _nothing(_: Any) -> None: ...


async def perform(
    requests: Generator[Request, Any, T],
    session: AsyncSession,
    handler: Callable[[Any], Awaitable[object]] = _nothing,
) -> T:
    """To their end; what one raises is theirs to judge."""
    result: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = requests.send(result) if error is None else requests.throw(error)
        except StopIteration as end:
            return cast("T", end.value)
        result = error = None
        call: Callable[..., Awaitable[object]] = handler if request.name == "handle" else getattr(session, request.name)
        try:
            result = await call(*request.args)
        except BaseException as caught:  # noqa: BLE001 - it goes back to who requested it
            error = caught


class AsyncSession:
    """A connection and how it is spoken to: the verbs of PEP 249, awaited."""

    def __init__(self, connection: Any, style: ParamStyle) -> None:
        self.connection = connection
        self._style = style

    async def run(self, statement: str, *values: object) -> int:
        """How many rows it wrote."""
        cursor = await self._execute(statement, values)
        count = int(cursor.rowcount)
        await cursor.close()
        return count

    async def rows(self, statement: str, *values: object) -> list[Any]:
        cursor = await self._execute(statement, values)
        found = list(await cursor.fetchall())
        await cursor.close()
        return found

    async def _execute(self, statement: str, values: Sequence[object]) -> Any:
        """statement: with a question mark for each value."""
        text, given = bound(statement, values, self._style)
        cursor = self.connection.cursor()
        # aiomysql's `cursor()` is awaited, psycopg's is not.
        if inspect.isawaitable(cursor):
            cursor = await cursor
        await cursor.execute(text, given)
        return cursor

    async def commit(self) -> None:
        await self.connection.commit()

    async def roll_back(self) -> None:
        async with asyncio.timeout(_ENDING):
            await self.connection.rollback()

    async def close(self) -> None:
        with suppress(Exception):  # it is broken, or about to end
            async with asyncio.timeout(_ENDING):
                await self.connection.close()
