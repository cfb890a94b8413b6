"""Record batches from plain values, right or wrong on purpose. Written apart from the product's decoder."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import cramjam
from crc32c import crc32c

from instride._wire.record_chunk import RecordChunk
from instride._wire.record_set import decode_record_set
from instride.errors import CorruptRecordError
from instride.records import ConsumerRecord

__all__ = [
    "BatchHeader",
    "CODECS",
    "HEADER",
    "Rec",
    "batch",
    "compress",
    "corrupt",
    "decode",
    "marker",
    "nullable",
    "plain",
    "read",
    "record",
    "records_of",
    "seal",
    "xerial",
    "zigzag",
]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
HEADER: Final = struct.Struct(">qiibIhiqqqhii")

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rec:
    offset: int
    timestamp: int = 1_600_000_000_000
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    base_offset: int = 0
    length: int = 0
    leader_epoch: int = 7
    magic: int = 2
    crc: int = 0
    attributes: int = 0
    last_delta: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int = 0


def zigzag(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def nullable(data: bytes | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def record(rec: Rec, base_offset: int, base_timestamp: int) -> bytes:
    body = b"\0" + zigzag(rec.timestamp - base_timestamp) + zigzag(rec.offset - base_offset)
    body += nullable(rec.key) + nullable(rec.value) + zigzag(len(rec.headers))
    body += b"".join(nullable(key.encode()) + nullable(value) for key, value in rec.headers)
    return zigzag(len(body)) + body


def compress(codec: str, data: bytes) -> bytes:
    if codec == "none":
        return data
    if codec == "snappy":
        return xerial(data)
    return bytes(getattr(cramjam, codec).compress(data))


def xerial(data: bytes, block: int = 32) -> bytes:
    """As snappy-java frames it, in small blocks so that there is more than one."""
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), block):
        part = bytes(cramjam.snappy.compress_raw(data[at : at + block]))
        out += struct.pack(">i", len(part)) + part
    return out


def seal(header: BatchHeader, records: bytes, **wrong: int) -> bytes:
    """The batch's bytes with the right length and checksum, and then what `wrong` says in their place."""
    header = replace(header, length=len(records) + HEADER.size - 12, **{k: v for k, v in wrong.items() if k != "crc"})
    body = HEADER.pack(*_values(header))[21:] + records
    header = replace(header, crc=wrong.get("crc", crc32c(body)))
    return HEADER.pack(*_values(header)) + records


def _values(header: BatchHeader) -> tuple[int, ...]:
    return tuple(getattr(header, name) for name in BatchHeader.__dataclass_fields__)


def batch(
    records: Sequence[Rec],
    *,
    codec: str = "none",
    compressed: bytes | None = None,
    transactional: bool = False,
    control: bool = False,
    log_append: bool = False,
    **header: Any,
) -> bytes:
    """One batch. header: fields of `BatchHeader` that are to be other than what the records say."""
    base = records[0].offset if records else 0
    base_timestamp = records[0].timestamp if records else 0
    attributes = CODECS.index(codec) | 8 * log_append | 16 * transactional | 32 * control
    section = b"".join(record(rec, base, base_timestamp) for rec in records)
    right = BatchHeader(
        base_offset=base,
        attributes=attributes,
        last_delta=records[-1].offset - base if records else 0,
        base_timestamp=base_timestamp,
        max_timestamp=max((rec.timestamp for rec in records), default=0),
        count=len(records),
    )
    return seal(right, compress(codec, section) if compressed is None else compressed, **header)


def marker(offset: int, producer_id: int, *, commit: bool, **header: Any) -> bytes:
    """A control batch that ends a transaction. header: as of `batch`."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    end = Rec(offset=offset, key=key, value=b"\0" * 6)
    return batch([end], control=True, transactional=True, producer_id=producer_id, **header)


def plain(*offsets: int) -> list[Rec]:
    return [Rec(offset=offset, key=b"k%d" % offset, value=b"v%d" % offset) for offset in offsets]


class Chunks:
    """What several pieces brought, as if it were one."""

    def __init__(self, chunks: Sequence[RecordChunk]) -> None:
        self.chunks = chunks

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    def records(self, *, epoch: int, seek_number: int) -> list[ConsumerRecord]:
        return [each for chunk in self.chunks for each in chunk.records(epoch=epoch, seek_number=seek_number)]


def decode(data: bytes | bytearray, fetch_offset: int = 0, **options: Any) -> tuple[Any, int, Any]:
    """All pieces together: their chunk or `Chunks` or None, where to go on, and what is wrong there."""
    pieces = list(decode_record_set(memoryview(data), topic="t", partition=3, fetch_offset=fetch_offset, **options))
    chunks = [each.chunk for each in pieces if each.chunk is not None]
    assert [each.corrupt for each in pieces[:-1]] == [None] * (len(pieces) - 1)
    whole: Any = None
    if chunks:
        whole = chunks[0] if len(chunks) == 1 else Chunks(chunks)
    return whole, pieces[-1].next_offset if pieces else fetch_offset, pieces[-1].corrupt if pieces else None


def records_of(chunk: RecordChunk | Chunks | None) -> list[ConsumerRecord]:
    return [] if chunk is None else chunk.records(epoch=1, seek_number=2)


def read(data: bytes, fetch_offset: int = 0, **options: Any) -> tuple[list[int], int]:
    """Offsets and next offset of what must be readable."""
    chunk, next_offset, error = decode(data, fetch_offset, **options)
    assert error is None
    return [each.offset for each in records_of(chunk)], next_offset


def corrupt(data: bytes, fetch_offset: int = 0, **options: Any) -> tuple[list[int], CorruptRecordError]:
    """Offsets before what must not be readable, and the error."""
    chunk, next_offset, error = decode(data, fetch_offset, **options)
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset) == ("t", 3, next_offset)
    assert "t-3" in str(error)
    assert str(next_offset) in str(error)
    return [each.offset for each in records_of(chunk)], error
