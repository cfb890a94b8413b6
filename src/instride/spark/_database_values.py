"""Arrow's values on their way into a column of PostgreSQL, which reads them from text.

What it would read as something else, without an error, is sent in another way, or refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa

from instride.errors import SinkError

__all__ = ["forms_of", "values_for", "with_structs"]

_Change = Callable[[Any], Any]
_A_WINTER_AND_A_SUMMER: Final = (1_767_225_600, 1_782_864_000)
"""Of 2026: the second of a day in January, and of one in July."""
_TEXTS: Final = {True: "true", False: "false", None: None}
_LETTERS: Final = {True: "t", False: "f", None: None}
_TIME: Final = re.compile(r"time(stamp)?(\(\d\))? with")
_LOCAL_TIME: Final = re.compile(r"timestamp(\(\d\))? without")
_SHORT: Final = re.compile(r"character( varying)?\([1-4]\)")
_HEX: Final = re.compile(r"\\x([0-9a-fA-F]{2})*")


def forms_of(types: Mapping[str, str], columns: Sequence[str]) -> str:
    """A mark of the types, as far as it depends on them how values are sent. Wider types have the same."""
    forms = {name: _form(types.get(name, "")) for name in sorted(columns)}
    told = repr([(name, form) for name, form in forms.items() if form])
    return sha256(told.encode()).hexdigest()[:8]


def _form(there: str) -> str:
    plain = re.sub(r"\(.*?\)", "", there)
    if plain.startswith(("bytea", "time", "interval", "json")):
        return plain
    return "[]" if plain.endswith("[]") else ""


def values_for(column: str, array: pa.Array, there: str) -> list[Any]:
    """The array's values. there: the type of the table's column, as PostgreSQL names it; "": values stay as they are.

    Raises SinkError, which names the column.
    """
    try:
        change = _change(array.type, there) if there else None
        values: list[Any] = array.to_pylist()
        if change is None or (change is _without_nul and not _holds_nul(array)):
            return values
        return list(map(change, values))
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 ({error.reason}): give the column the type bytea, or let the function decode it"
    except _UnfitError as error:
        problem = str(error)
    raise SinkError(f"the table's column {column} of type {there} does not take {array.type}: {problem}")


def with_structs(error: SinkError, schema: pa.Schema) -> SinkError:
    """The error of a driver that takes no dict, with the columns: it names the type only."""
    structs = [field.name for field in schema if pa.types.is_struct(field.type)]
    if error.retriable or not structs:
        return error
    return SinkError(f"{error} (structs in the columns {', '.join(structs)}: let the function return json.dumps(...))")


class _UnfitError(Exception):
    """What to do instead."""


_AS_BINARY: Final = "let the function return binary values, such as str.encode gives"


def _change(given: pa.DataType, there: str) -> _Change | None:
    """What becomes of each value; None: nothing. Raises _UnfitError."""
    if pa.types.is_dictionary(given) or pa.types.is_run_end_encoded(given):
        return _change(given.value_type, there)
    if pa.types.is_map(given) or pa.types.is_interval(given):
        raise _UnfitError("let the function return a text, such as json.dumps gives")
    if _is_list(given):
        return _change_of_list(given.value_type, there)
    is_binary = _is_binary(given)
    if there.removesuffix("[]") == "bytea" and not (is_binary or pa.types.is_null(given)):
        if not _is_text(given):
            raise _UnfitError(_AS_BINARY)
        return _escaped
    if there.startswith("interval") and _is_number(given):
        raise _UnfitError("a number does not tell its unit: let the function return durations")
    if _TIME.match(there) and _is_number(given):
        raise _UnfitError("a number does not tell its unit: let the function return times")
    if _LOCAL_TIME.match(there) and pa.types.is_timestamp(given) and not _is_utc(given):
        raise _UnfitError("it would lose the zone: make it timestamp with time zone, or let the function return UTC")
    if is_binary and not there.startswith("bytea"):
        return _decoded
    if _is_text(given):
        return _without_nul
    if pa.types.is_boolean(given):
        # PostgreSQL's own "t" is a boolean in no other type.
        return (_LETTERS if _SHORT.match(there) else _TEXTS).get
    return None


def _change_of_list(element: pa.DataType, there: str) -> _Change | None:
    if not there.endswith("[]"):
        raise _UnfitError("let the function return a text, such as json.dumps gives, or make it an array")
    is_nested = _is_list(element)
    change = _change(element, there if is_nested else there.removesuffix("[]"))

    def each(values: list[Any] | None) -> list[Any] | None:
        if is_nested and values and [] in values:
            raise _UnfitError("an array of PostgreSQL holds no empty list")
        return values if values is None or change is None else list(map(change, values))

    return each if is_nested or change is not None else None


def _decoded(value: bytes | None) -> str | None:
    return _without_nul(None if value is None else value.decode())


def _without_nul(value: str | None) -> str | None:
    if "\0" in (value or ""):
        raise _UnfitError("a text of PostgreSQL holds no NUL: give the column the type bytea")
    return value


def _holds_nul(texts: pa.Array) -> bool:
    """A fourth of the time that a look at each value takes. Also for what cannot be looked at in this way."""
    if pa.types.is_run_end_encoded(texts.type):
        return True
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and most workers do not need it

    # PyArrow looks at no view.
    return bool(pc.any(pc.match_substring(texts.cast(pa.large_string()), "\0")).as_py())


def _escaped(value: str | None) -> str | None:
    """A text whose bytes are meant, or PostgreSQL's own form of bytes."""
    if value is not None and "\\" in value and not _HEX.fullmatch(value):
        # Backslashes would be taken for escapes.
        raise _UnfitError(_AS_BINARY)
    if value is not None and "\0" in value:
        raise _UnfitError(_AS_BINARY)
    return value


def _is_utc(kind: pa.TimestampType) -> bool:
    if kind.tz is None:
        return True
    found = pa.array(_A_WINTER_AND_A_SUMMER, pa.timestamp("s", kind.tz)).to_pylist()
    return not any(each.utcoffset() for each in found)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return hasattr(kind, "value_field") and not isinstance(kind, pa.BaseExtensionType)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
