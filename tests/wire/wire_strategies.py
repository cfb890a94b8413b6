"""Values of kio's response classes, drawn at random: the trusted side of the codecs' tests."""

from __future__ import annotations

import dataclasses
import io
from datetime import timedelta
from types import NoneType
from typing import Any, get_args, get_origin

from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

__all__ = ["body_of", "plain", "responses"]

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=12)

_BY_KAFKA_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-128, 127),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": INT32,
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uuid": st.uuids(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": st.integers(0, 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(0, 2**40).map(lambda ms: timedelta(milliseconds=ms)),
    "string": TEXT,
    "bytes": st.binary(max_size=12),
}


def responses(api_key: int, version: int) -> st.SearchStrategy[Any]:
    return entities(load_response_schema(api_key, version))


def entities(schema: Any) -> st.SearchStrategy[Any]:
    return st.builds(schema, **{field.name: _values(field) for field in dataclasses.fields(schema)})


def _values(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    kind: Any = field.type
    nullable = NoneType in get_args(kind)
    if nullable:
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    is_array = get_origin(kind) is tuple
    inner = get_args(kind)[0] if is_array else kind
    one = entities(inner) if dataclasses.is_dataclass(inner) else _BY_KAFKA_TYPE[field.metadata["kafka_type"]]
    values = st.lists(one, max_size=3).map(tuple) if is_array else one
    # kio writes the zero uuid for None, and reads it back so.
    return st.none() | values if nullable and field.metadata.get("kafka_type") != "uuid" else values


def body_of(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def plain(value: Any) -> Any:
    """The same value as our reader gives it: dicts, lists, numbers."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        items = [plain(item) for item in value]
        return tuple(items) if items and all(type(item) is int for item in items) else items
    if isinstance(value, ErrorCode):
        return int(value.value)
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    return value
