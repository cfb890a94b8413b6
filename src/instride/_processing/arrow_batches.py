"""Handlers of Arrow: the records of a batch as one table, with the columns of `Consumer.poll_arrow`.

Laws
1. What is around the handler (middleware, a store, retries) sees the list of records, as with any batch.
2. Keys and values are the bytes that were fetched. The table owns what it holds: it may outlive the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from instride._wire.arrow import schema

if TYPE_CHECKING:
    import pyarrow as pa

    from instride._wire.decoder import ConsumerRecord

__all__ = ["in_arrow", "table_of"]


def table_of(records: Sequence[ConsumerRecord[Any, Any]]) -> pa.Table:
    """Raises ImportError without pyarrow."""
    # First: without pyarrow it raises an ImportError that names the extra.
    fields = schema()
    import pyarrow as pa  # noqa: PLC0415 - an extra, and slow to import

    columns = [
        [each.topic for each in records],
        [each.partition for each in records],
        [each.offset for each in records],
        [each.timestamp for each in records],
        [each.timestamp_type for each in records],
        [each.key for each in records],
        [each.value for each in records],
        [[{"key": key, "value": value} for key, value in each.headers] or None for each in records],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=fields)


def in_arrow(handler: Callable[[Any], Any], *, is_async: bool) -> Callable[[Any], Any]:
    """Of a handler of tables one of lists; it can be pickled where the handler can."""
    return _Awaited(handler) if is_async else _Called(handler)


class _Called:
    __slots__ = ("_handler",)

    def __init__(self, handler: Callable[[Any], Any]) -> None:
        self._handler = handler

    def __call__(self, records: Sequence[ConsumerRecord[Any, Any]]) -> Any:
        return self._handler(table_of(records))


class _Awaited:
    __slots__ = ("_handler",)

    def __init__(self, handler: Callable[[Any], Awaitable[Any]]) -> None:
        self._handler = handler

    async def __call__(self, records: Sequence[ConsumerRecord[Any, Any]]) -> Any:
        return await self._handler(table_of(records))
