"""A connection of sqlite3 whose verbs are awaited, and end at once: for `AsyncDatabaseStore` in virtual time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from instride import AsyncDatabaseStore

__all__ = ["AwaitedConnection", "awaited_store"]


class AwaitedConnection:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def cursor(self) -> AwaitedCursor:
        return AwaitedCursor(self._connection.cursor())

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    async def commit(self) -> None:
        self._connection.commit()

    async def rollback(self) -> None:
        self._connection.rollback()

    async def close(self) -> None:
        self._connection.close()


class AwaitedCursor:
    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    async def execute(self, statement: str, values: Any = ()) -> None:
        self._cursor.execute(statement, values)

    async def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    async def close(self) -> None:
        self._cursor.close()


def awaited_store(connect: Callable[[], sqlite3.Connection]) -> AsyncDatabaseStore[AwaitedConnection]:
    async def open_it() -> AwaitedConnection:
        return AwaitedConnection(connect())

    return AsyncDatabaseStore(open_it, paramstyle="qmark")
