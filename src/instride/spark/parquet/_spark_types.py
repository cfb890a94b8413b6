"""The columns of data files in Spark's types, and which files Spark's own reader takes.

Laws
1. A type that Spark lacks becomes the next one that holds all its values: unsigned numbers, half floats, views,
   dictionaries and Arrow's extension types, wherever they are nested. Only of nanoseconds the last digits are lost.
2. Spark's own reader is given a file only if each of its columns comes out as the values of the sink's schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from instride.errors import SinkError
from instride.spark.parquet._schemas import held

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["spark_reads", "spark_schema"]

_NEXT: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
}
_MOST_DIGITS: Final = 38
# Spark's reader widens these, by the names of its types.
_WIDENED: Final = frozenset(
    {
        *(("tinyint", wider) for wider in ("smallint", "int", "bigint", "double")),
        *(("smallint", wider) for wider in ("int", "bigint", "double")),
        *(("int", wider) for wider in ("bigint", "double")),
        ("float", "double"),
    }
)


def spark_schema(schema: pa.Schema) -> StructType:
    """What Spark is told of the columns. Law 1. Raises SinkError for decimals that are too wide for it."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - only where Spark reads is it needed

    for field in schema:
        if _has_wide_decimal(field.type):
            raise SinkError(
                f"the column {field.name} has decimals of more than {_MOST_DIGITS} digits ({field.type}), which Spark "
                "does not have: read it with read_table"
            )
    return from_arrow_schema(pa.schema([(field.name, _known(field.type)) for field in schema]))


def spark_reads(schema: pa.Schema, wanted: StructType) -> bool:
    """Whether Spark's own reader takes a file of these columns for a part of the wanted ones. Law 2."""
    return not any(_is_misread(field.type) for field in schema) and _fits(spark_schema(schema), wanted)


def _known(kind: pa.DataType) -> pa.DataType:
    types, kind = pa.types, held(kind)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_known(field.type)) for field in kind])
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_known(key.type)), item.with_type(_known(item.type)))
    if _is_list(kind):
        return pa.list_(kind.value_field.with_type(_known(kind.value_type)))
    return _NEXT.get(kind, kind)


def _has_wide_decimal(kind: pa.DataType) -> bool:
    kind = held(kind)
    if pa.types.is_nested(kind):
        return any(_has_wide_decimal(field.type) for field in _below(kind))
    return bool(pa.types.is_decimal(kind) and kind.precision > _MOST_DIGITS)


def _is_misread(kind: pa.DataType) -> bool:
    """Spark's own reader refuses it, or takes it for numbers of another unit."""
    types, kind = pa.types, held(kind)
    if types.is_nested(kind):
        below = _below(kind)
        # Within a struct it takes names that differ in case for one, and refuses them.
        is_clear = len({field.name.lower() for field in below}) == len(below)
        return not is_clear or any(_is_misread(field.type) for field in below)
    if types.is_timestamp(kind):
        return bool(kind.unit == "ns")
    if types.is_duration(kind):
        return bool(kind.unit != "us")
    return bool(types.is_float16(kind) or types.is_time(kind))


def _below(kind: pa.DataType) -> list[pa.Field[Any]]:
    """The fields of a nested type."""
    return [kind.field(place) for place in range(kind.num_fields)]


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    looks = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(look(kind) for look in looks)


def _fits(found: DataType, wanted: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: PLC0415

    if isinstance(found, StructType) and isinstance(wanted, StructType):
        return all(field.name in wanted.names and _fits(field.dataType, wanted[field.name].dataType) for field in found)
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        return _fits(found.elementType, wanted.elementType)
    if isinstance(found, MapType) and isinstance(wanted, MapType):
        return _fits(found.keyType, wanted.keyType) and _fits(found.valueType, wanted.valueType)
    return found == wanted or (found.simpleString(), wanted.simpleString()) in _WIDENED
