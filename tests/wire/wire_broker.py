"""A broker's side of the handshake, in bytes."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from wire_strategies import body_of

from instride._wire import api
from instride._wire.message_codecs import codec_of

__all__ = ["framed", "greeting"]

ALL_KEYS = {codec_of(kind).api_key: (0, 99) for kind in api.RESPONSES if kind is not api.Fetch}


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def greeting(version: int = 3, ranges: dict[int, tuple[int, int]] | None = None, *, correlation_id: int = 0) -> bytes:
    """A broker's good response to ApiVersions."""
    schema: Any = load_response_schema(18, version)
    key_class = schema.__annotations__["api_keys"].__args__[0]
    keys = tuple(
        key_class(api_key=key, min_version=low, max_version=high) for key, (low, high) in (ranges or ALL_KEYS).items()
    )
    extra = {} if version == 0 else {"throttle_time": timedelta(0)}
    entity = schema(error_code=ErrorCode.none, api_keys=keys, **extra)
    return framed(struct.pack(">i", correlation_id) + body_of(entity))
