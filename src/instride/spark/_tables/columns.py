"""The columns of a table beside those that a user gives, or that a file has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

from instride.errors import NotASinkError
from instride.spark._nested import fields_in

__all__ = ["check_columns", "converted", "differences"]

_INSTEAD: Final = {8: "int16", 16: "int32", 32: "int64", 64: "decimal128(20, 0)"}
"""By the bits of an unsigned type: one that holds all its values."""


def converted(table: str, schema: pa.Schema, convert: Callable[[pa.Schema], pa.Schema], *, is_new: bool) -> pa.Schema:
    """The schema as the table's format would give it back. table: its name, for people. is_new: it is made with it.

    Raises NotASinkError that names the column whose type the format does not have.
    """
    for field in schema:
        try:
            if _has_empty_struct(field):
                raise ValueError("a data file holds no struct without fields")
            made = convert(pa.schema([field]))
            # What versions before have made, with too few bits, goes on as it did.
            if is_new:
                _check_unsigned(_plain(field), made.field(0))
        except Exception as error:
            # deltalake's is an Exception and no more, with Rust's stack below its first line.
            reason = str(error).partition("\n")[0]
            raise NotASinkError(
                f"{table} cannot have the column {field.name} of type {field.type} ({reason}). Give it another type in "
                "the schema, timestamps in microseconds with the zone UTC or with none: the sink casts to it what the "
                "function returns"
            ) from error
    return convert(schema)


def _check_unsigned(given: pa.Field, there: pa.Field) -> None:
    """The formats have signed integers only, and some give an unsigned one a type of no more bits."""
    made = {path: field.type for path, field in fields_in([there])}
    for path, wanted in fields_in([given]):
        kind = _plain(wanted).type
        if pa.types.is_unsigned_integer(kind) and made[path].bit_width <= kind.bit_width:
            raise ValueError(f"it would be {made[path]}, which lacks the upper half: give {_INSTEAD[kind.bit_width]}")


def _plain(field: pa.Field) -> pa.Field:
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def _has_empty_struct(field: pa.Field) -> bool:
    return any(pa.types.is_struct(each.type) and each.type.num_fields == 0 for _, each in fields_in([field]))


def check_columns(table: str, there: pa.Schema, given: pa.Schema) -> None:
    """Raise NotASinkError unless the table has each given column, with its type or a wider one, and besides only
    nullable ones. table: its name.
    """
    problems = differences(there, given)
    if problems:
        raise NotASinkError(
            f"{table} has other columns than the schema: {'; '.join(problems)}. Change the table first, then the schema"
        )


def differences(there: pa.Schema, given: pa.Schema) -> list[str]:
    """What keeps rows with the given columns out of the table, in words; none where they fit."""
    return list(_differences(there, given, ""))


def _differences(there: Iterable[pa.Field], given: Iterable[pa.Field], within: str) -> Iterator[str]:
    known, wanted = {field.name: field for field in there}, {field.name: field for field in given}
    for name, field in wanted.items():
        if name not in known:
            yield f"it has no column {within}{name}"
        else:
            yield from _of_types(known[name].type, field.type, within + name)
    for name, field in known.items():
        # One that may be null is filled with nulls where it is written.
        if name not in wanted and not field.nullable:
            yield f"its column {within}{name} is required"


def _of_types(there: pa.DataType, given: pa.DataType, name: str) -> Iterator[str]:
    if pa.types.is_struct(there) and pa.types.is_struct(given):
        yield from _differences(there, given, f"{name}.")
    elif not _takes_whole(there, given):
        yield f"its column {name} is {there} and not {given}"


def _takes_whole(there: pa.DataType, given: pa.DataType) -> bool:
    """Whether each value of the type that is given has one of the type that is there: the writer casts to it."""
    if pa.types.is_signed_integer(there) and pa.types.is_signed_integer(given):
        return bool(there.bit_width >= given.bit_width)
    if pa.types.is_floating(there) and pa.types.is_floating(given):
        return bool(there.bit_width >= given.bit_width)
    if pa.types.is_decimal(there) and pa.types.is_decimal(given):
        return bool(there.scale == given.scale and there.precision >= given.precision)
    return bool(there == given)
