"""Responses of kio's classes from plain values, for tests that say what a broker responds."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from types import NoneType
from typing import Any, get_args, get_origin

from kio.schema.errors import ErrorCode

__all__ = ["build"]

_ZEROS: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "error_code": 0, "timedelta_i32": 0}


def build(schema: Any, values: dict[str, Any]) -> Any:
    """What the class does not have is left out; what `values` does not have is zero, empty or the default."""
    return schema(**{field.name: _value(field, values) for field in dataclasses.fields(schema)})


def _value(field: dataclasses.Field[Any], values: dict[str, Any]) -> Any:
    kind: Any = field.type
    if NoneType in get_args(kind):
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    is_array = get_origin(kind) is tuple
    if field.name not in values:
        if field.default is not dataclasses.MISSING:
            return field.default
        return () if is_array else _converted(field, _ZEROS.get(field.metadata["kafka_type"], 0))
    if is_array and dataclasses.is_dataclass(get_args(kind)[0]):
        return tuple(build(get_args(kind)[0], each) for each in values[field.name])
    return _converted(field, values[field.name])


def _converted(field: dataclasses.Field[Any], value: Any) -> Any:
    kafka_type = field.metadata.get("kafka_type")
    if kafka_type == "error_code":
        return ErrorCode(value)
    if kafka_type == "timedelta_i32":
        return timedelta(milliseconds=value)
    if kafka_type == "uuid" and value == 0:
        return None
    return value
