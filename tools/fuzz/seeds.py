"""Bytes that are right, of which the kept corpus begins; the same with each run."""

from __future__ import annotations

import dataclasses
import io
import struct
from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args, get_origin

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from attack.bytes_of import CODECS, assignment, batch, record
from fuzz.targets import REQUESTS
from instride._wire import api
from instride._wire.consumer_protocol import Subscription, write_subscription
from instride._wire.message_codecs import codec_of

__all__ = ["seeds"]

_VALUES: dict[str, Any] = {"string": "t", "bytes": b"\0\1", "bool": True, "error_code": ErrorCode(0)}


def seeds() -> Iterator[tuple[str, bytes]]:
    """Of each target's name, and bytes for it."""
    for kind in (*map(type, REQUESTS), api.Fetch):
        codec = codec_of(kind)
        for version in range(codec.lowest, codec.highest + 1):
            out = io.BytesIO()
            schema: Any = load_response_schema(codec.api_key, version)
            entity_writer(schema)(out, _filled(schema))
            yield f"response {codec.name} {version}", out.getvalue()
    for codec_name in CODECS:
        records = b"".join(record(n, b"value %d" % n, n) for n in range(4))
        whole = batch(0, records, 4, codec_name) + batch(4, records, 4, codec_name, producer=1)
        yield "records", whole
        yield "records of transactions", whole
    yield "stream", struct.pack(">iihi", 14, 0, 0, 1) + struct.pack(">hhh", 18, 0, 3)
    yield "subscription", write_subscription(Subscription(topics=("t",)))
    yield "assignment", assignment({"t": range(3)}, b"user data")
    yield "SCRAM", b"r=nonce,s=W22Z,i=4096\0v=AAAA"
    yield "OAUTHBEARER", b'{"status":"invalid_token"}'


def _filled(schema: Any) -> Any:
    """One of everything."""
    return schema(**{field.name: _value(field) for field in dataclasses.fields(schema)})


def _value(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    kind: Any = field.type
    if NoneType in get_args(kind):
        if field.metadata.get("kafka_type") in ("uuid", "records"):
            return None
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        return (_filled(inner) if dataclasses.is_dataclass(inner) else _plain(field),)
    return _filled(kind) if dataclasses.is_dataclass(kind) else _plain(field)


def _plain(field: dataclasses.Field[Any]) -> Any:
    from datetime import timedelta  # noqa: PLC0415
    from uuid import UUID  # noqa: PLC0415

    name = field.metadata.get("kafka_type", "")
    if name.startswith("timedelta"):
        return timedelta(0)
    if name == "uuid":
        return UUID(int=7)
    return _VALUES.get(name, 0)
