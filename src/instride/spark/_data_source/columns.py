"""The source's columns: Spark's schema of them, and Arrow batches in exactly that schema.

Laws
1. Names and types are those of Spark's Kafka connector. timestampType as it writes it: 0 created, 1 appended, -1 none.
2. Only the columns that were chosen are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from instride.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["in_spark_schema", "made_of", "spark_schema"]

_RENAMED: Final = {"timestampType": "timestamp_type"}
_LATEST: Final = (2**63 - 1) // 1000
"""The most milliseconds that a timestamp in microseconds can hold."""
_PLACE: Final = ("topic", "partition", "offset")


def spark_schema(columns: Sequence[str]) -> StructType:
    """Of these columns, in this order."""
    from pyspark.sql import types  # noqa: PLC0415 - slow, and not for every user of the package

    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    kinds: dict[str, types.DataType] = {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        "headers": types.ArrayType(header),
    }
    schema = types.StructType()
    for name in columns:
        schema.add(name, kinds[name])
    return schema


def made_of(columns: Sequence[str]) -> tuple[str, ...]:
    """As `ConsumerRecords.to_arrow` names them."""
    return tuple(_RENAMED.get(name, name) for name in columns)


def in_spark_schema(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """batch: as `ConsumerRecords.to_arrow` has them. Raises ConfigError for a timestamp that Spark cannot hold."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    kinds = {
        # Spark knows microseconds, Kafka milliseconds.
        "timestamp": pa.timestamp("us", tz="UTC"),
        "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }
    arrays = []
    for name in columns:
        array = batch.column(_RENAMED.get(name, name))
        try:
            arrays.append(array.cast(kinds[name]) if name in kinds else array)
        except pa.ArrowInvalid as error:
            if name != "timestamp":
                raise
            raise _beyond(batch) from error
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _beyond(batch: pa.RecordBatch) -> ConfigError:
    times = batch.column("timestamp").cast("int64").to_pylist()
    row = next(row for row, time in enumerate(times) if time is not None and abs(time) > _LATEST)
    known = [f"{name} {batch.column(name)[row]}" for name in _PLACE if name in batch.schema.names]
    place = ", ".join(known) or f"its place is not known: none of {', '.join(_PLACE)} is read"
    return ConfigError(
        f"the timestamp of a record ({place}) is {times[row]} ms since 1970, which no timestamp of Spark can hold; "
        "leave out the column timestamp with the option columns"
    )
