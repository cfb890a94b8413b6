"""The columns of several files together.

Laws
1. Types that PyArrow unifies are unified by it: numbers are widened, a missing column is null. So a field that a file
   lacks may be null, whatever the others say; PyArrow would not say so.
2. The columns that it does not unify are tried once more in plain form: dictionaries and extension types as what they
   hold, timestamps with a zone in UTC, views as strings and bytes. Each holds the same values. Not views of lists:
   PyArrow 26 makes lists of them whose offsets are wrong.
3. What a column is in the end depends on no other column, and for law 2 not on the files' order.
4. A file is written with types that PyArrow reads back, whatever the values. It puts the dictionaries of a file's
   batches together, and cannot read an index that the file's type does not hold: so indices have four bytes. It reads
   no dictionaries within another type across row groups: there are values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

__all__ = ["held", "stored", "together"]

_INDEX_BITS: Final = 32


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


def stored(schema: pa.Schema) -> pa.Schema:
    """The columns as a file has them. Law 4."""
    return pa.schema([field.with_type(_stored(field.type)) for field in schema], metadata=schema.metadata)


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        is_narrow = kind.index_type.bit_width < _INDEX_BITS
        return pa.dictionary(pa.int32(), kind.value_type, kind.ordered) if is_narrow else kind
    return _inside(kind, _without_dictionary)


def _without_dictionary(field: pa.Field) -> pa.Field:
    kind = field.type
    return field.with_type(_inside(kind.value_type if pa.types.is_dictionary(kind) else kind, _without_dictionary))


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    unified = pa.unify_schemas(list(schemas) or [pa.schema([])], promote_options="permissive")
    return pa.schema([_where_some_lack_it(field, schemas) for field in unified], metadata=unified.metadata)


def _where_some_lack_it(field: pa.Field, schemas: Sequence[pa.Schema]) -> pa.Field:
    places = [(schema, schema.get_field_index(field.name)) for schema in schemas]
    kinds = [schema.field(place).type for schema, place in places if place >= 0]
    if any(kind != field.type for kind in kinds):
        # Structs within differ in their fields: all of them may be null then.
        field = field.with_type(_inside(field.type, _nullable))
    return field.with_nullable(field.nullable or len(kinds) < len(schemas))


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_type(_inside(field.type, _nullable)).with_nullable(True)


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
    return _inside(kind, _plain_field)


def _inside(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """A nested type with its fields changed, but no view of lists; any other type as it is."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([change(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(change(kind.key_field).with_nullable(False), change(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(change(kind.value_field))
    if types.is_list(kind):
        return pa.list_(change(kind.value_field))
    return kind
