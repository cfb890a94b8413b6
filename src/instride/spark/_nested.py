"""The fields within columns, at any depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa

__all__ = ["check_no_loss", "fields_in"]

Path = tuple[str, ...]


def fields_in(fields: Iterable[pa.Field], path: Path = ()) -> Iterator[tuple[Path, pa.Field]]:
    """These and all below them, with their paths. In lists and maps they are called element, key and value."""
    for field in fields:
        here = (*path, field.name)
        yield here, field
        yield from fields_in(_below(field.type), here)


def check_no_loss(there: pa.Schema, given: pa.Schema) -> None:
    """Raise ValueError where PyArrow's cast of the given columns to those that are there would lose values in silence.

    Both have columns of the same names. A field that only `there` has is no loss: it is null, or the cast refuses it.
    """
    lost = Counter(path for path, _ in fields_in(given)) - Counter(path for path, _ in fields_in(there))
    if lost:
        columns = ", ".join(f"{name} is {there.field(name).type}" for name in dict.fromkeys(path[0] for path in lost))
        raise ValueError(f"there is no field {', '.join(map('.'.join, lost))} to take what was returned: {columns}")
    for field in given:
        if field.type != there.field(field.name).type and any(_is_view(each) for _, each in fields_in([field])):
            # PyArrow 26 makes lists whose offsets are wrong.
            raise ValueError(f"{field.name} is {field.type}, and PyArrow turns no list view into lists: return lists")


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
