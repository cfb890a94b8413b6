"""Bytes as a broker writes them: fields of the protocol's older form and, as `compact`, of the newer one, and record
batches. Right, or wrong on purpose.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import cramjam
from crc32c import crc32c

__all__ = ["CODECS", "array", "assignment", "batch", "compact_array", "compact_bytes", "record", "text"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value.encode())) + value.encode()


def array(items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return struct.pack(">i", len(listed)) + b"".join(listed)


def compact_bytes(value: bytes | None) -> bytes:
    """Of a text too."""
    return b"\0" if value is None else unsigned(len(value) + 1) + value


def compact_array(items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return unsigned(len(listed) + 1) + b"".join(listed)


def assignment(topics: dict[str, Iterable[int]], user_data: bytes | None = None) -> bytes:
    """As a group's leader sends it to a member."""
    named = (text(topic) + array(struct.pack(">i", each) for each in numbers) for topic, numbers in topics.items())
    rest = struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    return struct.pack(">h", 1) + array(named) + rest


def varint(value: int) -> bytes:
    return unsigned((value << 1) ^ (value >> 63))


def unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes((value,))


def record(delta: int, value: bytes, headers: int = 0) -> bytes:
    """headers: so many, each with an empty key and no value."""
    body = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(headers)
    body += b"\0\1" * headers
    return varint(len(body)) + body


def batch(base: int, records: bytes, count: int, codec: str = "none", *, producer: int = -1) -> bytes:
    """`records`: of `record`, deltas from 0 to count - 1. producer: of a transaction, where it is none of -1."""
    packed = records if codec == "none" else bytes(getattr(cramjam, codec).compress(records))
    attributes = CODECS.index(codec) | (16 if producer >= 0 else 0)
    after = struct.pack(">hiqqqhii", attributes, count - 1, 0, 0, producer, -1, -1, count) + packed
    return struct.pack(">qiibI", base, len(after) + 9, 0, 2, crc32c(after)) + after
