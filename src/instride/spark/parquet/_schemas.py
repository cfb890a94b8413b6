"""The columns of several files together.

Laws
1. Types that PyArrow unifies are unified by it: numbers are widened, a missing column is null.
2. The columns that it does not unify are tried once more in plain form: dictionaries and extension types as what they
   hold, timestamps with a zone in UTC, views as strings and bytes. Each holds the same values. Not views of lists:
   PyArrow 26 makes lists of them whose offsets are wrong.
3. What a column is in the end depends on no other column, and for law 2 not on the files' order.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

__all__ = ["held", "together"]


def together(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """One schema for all; PyArrow's error where there is none. The metadata is the first one's."""
    try:
        return _unified(schemas)
    except pa.ArrowException:
        names = {name for schema in schemas for name in schema.names}
        others = {name for name in names if not _goes_together(name, schemas)}
        return _unified([_plain_columns(schema, others) for schema in schemas])


def held(kind: pa.DataType) -> pa.DataType:
    """What an extension type or a dictionary holds; any other type as it is."""
    if isinstance(kind, pa.BaseExtensionType):
        return held(kind.storage_type)
    return held(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    return pa.unify_schemas(list(schemas) or [pa.schema([])], promote_options="permissive")


def _goes_together(name: str, schemas: Sequence[pa.Schema]) -> bool:
    try:
        _unified([pa.schema([schema.field(name)]) for schema in schemas if schema.names.count(name) == 1])
    except pa.ArrowException:
        return False
    return True


def _plain_columns(schema: pa.Schema, names: set[str]) -> pa.Schema:
    fields = [_plain_field(field) if field.name in names else field for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain(field.type))


def _plain(kind: pa.DataType) -> pa.DataType:
    types, kind = pa.types, held(kind)
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    return _plain_inside(kind) if types.is_nested(kind) else kind


def _plain_inside(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    return kind
