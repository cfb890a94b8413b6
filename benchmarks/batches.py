"""Record batches for the benchmarks, made by hand: quick, and of any shape."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import dataclass

import cramjam
from crc32c import crc32c

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# As Java's producer and librdkafka write it: independent blocks of 64 KiB, and no checksums but that of this header.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What the records are like. hot: how many of the partitions have records.

    tls: the folder of the certificates, where connections are encrypted.
    """

    partitions: int = 12
    hot: int = 12
    size: int = 100
    rows: int = 140
    key: bool = False
    header: bool = False
    random: bool = False
    codec: str = "none"
    tls: str = ""


def zigzag(value: int) -> bytes:
    value, out = value << 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def flight(offset: int, size: int) -> bytes:
    """Compressible, as flights are."""
    text = json.dumps(
        {"flight": offset, "carrier": "UA", "origin": "EWR", "dest": "IAH", "delay": offset % 97}
    ).encode()
    return (text * (size // len(text) + 1))[:size]


def record(delta: int, log: Log) -> bytes:
    value = random.Random(delta).randbytes(log.size) if log.random else flight(delta, log.size)
    key = zigzag(9) + b"N%08d" % delta if log.key else b"\x01"
    headers = zigzag(1) + zigzag(5) + b"trace" + zigzag(8) + b"%08d" % delta if log.header else b"\0"
    body = b"\0" + zigzag(delta) * 2 + key + zigzag(log.size) + value + headers
    return zigzag(len(body)) + body


def lz4(data: bytes) -> bytes:
    """One frame. cramjam's has a checksum of the content, too, which no producer writes and Java does not check."""
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK):
        plain = data[start : start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        is_smaller = len(block) < len(plain)
        parts += [
            struct.pack("<I", len(block) if is_smaller else len(plain) | 1 << 31),
            block if is_smaller else plain,
        ]
    return b"".join([*parts, bytes(4)])


def batch(base: int, log: Log) -> bytes:
    """One batch of `log.rows` records of `log.size` bytes, compressed by `log.codec`."""
    section = b"".join(record(delta, log) for delta in range(log.rows))
    if log.codec == "snappy":
        section = bytes(cramjam.snappy.compress_raw(section))
    elif log.codec == "lz4":
        section = lz4(section)
    elif log.codec != "none":
        section = bytes(getattr(cramjam, log.codec).compress(section))
    numbers = (CODECS.index(log.codec), log.rows - 1, 0, log.rows, -1, -1, -1, log.rows)
    tail = struct.pack(">hiqqqhii", *numbers) + section
    return struct.pack(">qiibI", base, len(tail) + 9, 0, 2, crc32c(tail)) + tail
