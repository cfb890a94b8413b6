"""The fields within columns, at any depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

__all__ = ["check_no_loss", "fields_in"]

Path = tuple[str, ...]

_HALF: Final = 16
"""Bits of a float16."""


def fields_in(fields: Iterable[pa.Field], path: Path = ()) -> Iterator[tuple[Path, pa.Field]]:
    """These and all below them, with their paths. In lists and maps they are called element, key and value."""
    for field in fields:
        here = (*path, field.name)
        yield here, field
        yield from fields_in(_below(field.type), here)


def check_no_loss(there: pa.Schema, given: pa.Table) -> None:
    """Raise ValueError where PyArrow's cast of the given columns to those that are there would lose values in silence,
    or take them for others.

    Both have columns of the same names. A field that only `there` has is no loss: it is null, or the cast refuses it.
    """
    _check_fields(there, given.schema)
    kinds = {path: _plain(field.type) for path, field in fields_in(there)}
    returned = {path: _plain(field.type) for path, field in fields_in(given.schema)}
    doubtful = dict.fromkeys(path for path, kind in returned.items() if _is_doubtful(kinds[path], kind))
    for name in dict.fromkeys(path[0] for path in doubtful):
        for chunk in given.column(name).chunks:
            for path, array in _arrays_in((name,), chunk):
                # What holds no value has any type: pandas makes float64 of nulls, and int64 of what `apply` gives for
                # no rows.
                if path in doubtful and array.null_count < len(array):
                    _check_values(".".join(path), kinds[path], returned[path], array)


def _check_fields(there: pa.Schema, given: pa.Schema) -> None:
    lost = Counter(path for path, _ in fields_in(given)) - Counter(path for path, _ in fields_in(there))
    if lost:
        columns = ", ".join(f"{name} is {there.field(name).type}" for name in dict.fromkeys(path[0] for path in lost))
        raise ValueError(f"there is no field {', '.join(map('.'.join, lost))} to take what was returned: {columns}")
    for field in given:
        if field.type != there.field(field.name).type and any(_is_view(each) for _, each in fields_in([field])):
            # PyArrow 26 makes lists whose offsets are wrong.
            raise ValueError(f"{field.name} is {field.type}, and PyArrow turns no list view into lists: return lists")


def _is_doubtful(kind: pa.DataType, returned: pa.DataType) -> bool:
    """Whether the cast may take values of the type that was returned for others of the one that is there."""
    if pa.types.is_temporal(kind):
        return bool(pa.types.is_integer(returned))
    if pa.types.is_boolean(kind):
        return bool(pa.types.is_floating(returned))
    if not pa.types.is_floating(kind):
        return False
    if pa.types.is_floating(returned):
        return bool(returned.bit_width > kind.bit_width)
    # Also a text may be too great for a float64. No integer is for a float32.
    return not (pa.types.is_integer(returned) and kind.bit_width > _HALF)


def _check_values(name: str, kind: pa.DataType, returned: pa.DataType, values: pa.Array) -> None:
    """That none of what is doubtful is taken for another value."""
    # It would take milliseconds for microseconds, and 0.5 for true.
    if pa.types.is_temporal(kind):
        raise ValueError(f"{name} is {kind}, and a number does not tell its unit: return such values")
    if pa.types.is_boolean(kind):
        numbers = values.cast(returned)
        # pandas makes floats of booleans of which some are missing. PyArrow makes no boolean of a float16.
        if pa.types.is_float16(returned) or not numbers.cast(kind).cast(returned).equals(numbers):
            raise ValueError(f"{name} is {kind}, and the function returned {returned}: return booleans")
        return
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and most workers do not need it

    # PyArrow 20 does not ask it of a float16.
    is_inf = pc.is_inf(values.cast(kind).cast(pa.float64()))
    if not pc.any(is_inf).as_py():
        return
    if pa.types.is_floating(returned):
        is_meant = pc.is_inf(values.cast(pa.float64()))
    else:
        is_meant = pc.match_substring(values.cast(pa.string()), "inf", ignore_case=True)
    if pc.any(pc.and_not(is_inf, is_meant)).as_py():
        raise ValueError(f"{name} is {kind}, which has no number as great as one that was returned")


def _plain(kind: pa.DataType) -> pa.DataType:
    """What an extension type or a dictionary holds; any other type as it is."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    return _plain(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _arrays_in(path: Path, array: pa.Array) -> Iterator[tuple[Path, pa.Array]]:
    """The values of each field of `fields_in` that has none below it. Where one above it is null, they are, or are left
    out."""
    if isinstance(array.type, pa.BaseExtensionType):
        yield from _arrays_in(path, array.storage)
        return
    below = _below(array.type)
    if not below:
        yield path, array
        return
    if pa.types.is_struct(array.type):
        parts = array.flatten()
    elif pa.types.is_map(array.type):
        # PyArrow 26 flattens no map, and gives the entries of all that a slice is of.
        parts = array.cast(pa.list_(pa.field("entries", pa.struct(below), nullable=False))).flatten().flatten()
    else:
        parts = [array.flatten()]
    for field, part in zip(below, parts, strict=True):
        yield from _arrays_in((*path, field.name), part)


def _below(kind: pa.DataType) -> list[pa.Field]:
    if isinstance(kind, pa.BaseExtensionType):
        return _below(kind.storage_type)
    if pa.types.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    if pa.types.is_struct(kind):
        return list(kind)
    # Lists of every kind, and views of them.
    return [kind.value_field.with_name("element")] if hasattr(kind, "value_field") else []


def _is_view(field: pa.Field) -> bool:
    return bool(pa.types.is_list_view(field.type) or pa.types.is_large_list_view(field.type))
