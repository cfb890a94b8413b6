"""The user's function on its way to the executors, and what it may return."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["batches_of", "cast_to", "pickle_function", "unpickled"]


def batches_of(result: Any) -> Iterator[pa.RecordBatch]:
    """What the function returned, as record batches: one, a table, a DataFrame, an iterable of them, or None."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    if result is None:
        return
    if isinstance(result, pa.RecordBatch):
        yield result
    elif isinstance(result, pa.Table):
        yield from result.to_batches()
    # By its looks, since pandas need not be there.
    elif hasattr(result, "iloc"):
        yield pa.RecordBatch.from_pandas(result, preserve_index=False)
    # These can be iterated over, and are a mistake.
    elif isinstance(result, Iterable) and not isinstance(result, str | bytes | dict):
        for each in result:
            yield from batches_of(each)
    else:
        raise TypeError(
            f"the function returned {type(result).__name__}; it must return a pyarrow RecordBatch or Table, "
            "a pandas DataFrame, an iterable of these, or None"
        )


def cast_to(batch: pa.RecordBatch, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The columns of the schema, in its types; without one the batch itself.

    Raises KeyError for a column that is not there, and ValueError (pa.ArrowInvalid is one) for values that do not fit:
    also for those of a field within a column that the schema's column lacks, for a number where a time is meant, for a
    float other than 0 and 1 where a boolean is, and for a float that the schema's type does not hold.
    """
    if schema is None:
        yield batch
        return
    import pyarrow as pa  # noqa: PLC0415 - an extra

    from instride.spark._nested import check_no_loss  # noqa: PLC0415

    chosen = pa.Table.from_batches([batch]).select(schema.names)
    if chosen.schema != schema:
        check_no_loss(schema, chosen)
    yield from chosen.cast(schema).to_batches()


_functions: dict[bytes, Callable[..., Any]] = {}


def pickle_function(function: Callable[..., Any]) -> bytes:
    """The function by value, as Spark pickles functions. Raises pickle.PicklingError and its kin."""
    from pyspark import cloudpickle  # noqa: PLC0415 - in the driver only

    payload: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    return payload


def unpickled(payload: bytes) -> Callable[..., Any]:
    """Once a process: what the function keeps in globals stays."""
    key = hashlib.sha256(payload).digest()
    if key not in _functions:
        _functions[key] = pickle.loads(payload)  # noqa: S301 - the driver's own function
    return _functions[key]
