"""What a commit remembers beside its offset: which later records are finished, and how often others were tried.

Laws
1. Pure bytes. What cannot be read (a foreign text, a damaged one, another version) is None, never an error.
2. It speaks of one topic id and one committed offset. For any other it means nothing: the topic was made again, or
   somebody else moved the offset.
3. A range names offsets in which every record that a poll may return is finished. Offsets that the log does not have
   may lie in it: they never become records.
4. It is never longer than the bound: ranges that do not fit are left out from the top, and those records are handled
   again. `fits` says so before.

The text: "instride:1:" and base64 (URL alphabet, without padding) of
    16 bytes    topic id; zeros where the broker has none
    varint      the committed offset
    varint      number of finished ranges, then of each: varint gap (from the end of the one before, of the first from
                the committed offset), varint length
    varint      number of records with attempts, then of each: varint offset (from the one before, of the first from
                the committed offset), varint attempts
    4 bytes     CRC-32 of all that, big-endian
A varint is seven bits a byte, the lowest first, the eighth bit set in all but the last (LEB128).
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

__all__ = ["PREFIX", "Remembered", "decode", "encode"]

PREFIX: Final = "instride:1:"
_NO_ID: Final = UUID(int=0)
_LONGEST: Final = 1 << 16
_LARGEST: Final = (1 << 63) - 1

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """finished: ranges [start, end) beyond the committed offset, rising. attempts: of those that failed, by offset."""

    finished: Sequence[Range] = ()
    attempts: Mapping[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.finished or self.attempts)


def encode(offset: int, what: Remembered, *, topic_id: UUID | None = None, limit: int) -> str:
    """The metadata of a commit at this offset; "" where there is nothing to remember. limit: characters at most."""
    if not what:
        return ""
    room = (limit - len(PREFIX)) * 3 // 4 - 20
    head, fixed = (topic_id or _NO_ID).bytes, _varint(offset)
    tried = _attempts(offset, what.attempts, (room - len(fixed)) // 2)
    ranges = _ranges(offset, what.finished, room - len(fixed) - len(tried) - 5)
    if ranges == b"\0" and tried == b"\0":
        return ""
    data = head + fixed + ranges + tried
    data += binascii.crc32(data).to_bytes(4, "big")
    return PREFIX + urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _ranges(offset: int, ranges: Sequence[Range], room: int) -> bytes:
    body, count, before = b"", 0, offset
    for start, end in ranges:
        more = _varint(start - before) + _varint(end - start)
        if len(body) + len(more) > room:
            break
        body, count, before = body + more, count + 1, end
    return _varint(count) + body


def _attempts(offset: int, attempts: Mapping[int, int], room: int) -> bytes:
    body, count, before = b"", 0, offset
    for at in sorted(attempts):
        more = _varint(at - before) + _varint(attempts[at])
        if len(body) + len(more) > room:
            break
        body, count, before = body + more, count + 1, at
    return _varint(count) + body


def decode(text: str, offset: int, topic_id: UUID | None = None) -> Remembered | None:
    """What the metadata of a commit at this offset remembers; None where it is not ours, or is damaged (laws 1, 2)."""
    if not text.startswith(PREFIX) or len(text) > _LONGEST or not text.isascii():
        return None
    encoded = text[len(PREFIX) :]
    try:
        data = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return None
    body, checksum = data[:-4], data[-4:]
    if len(body) < 16 or binascii.crc32(body).to_bytes(4, "big") != checksum:
        return None
    named = UUID(bytes=body[:16])
    if topic_id is not None and named not in (_NO_ID, topic_id):
        return None
    return _body(_numbers(body[16:]), offset)


def _body(numbers: Iterator[int], offset: int) -> Remembered | None:
    try:
        if next(numbers) != offset:
            return None
        finished, at = [], offset
        for _ in range(next(numbers)):
            start = at + next(numbers)
            at = start + next(numbers)
            finished.append((start, at))
        attempts, at = {}, offset
        for _ in range(next(numbers)):
            at += next(numbers)
            attempts[at] = next(numbers)
    except StopIteration:
        return None
    if next(numbers, None) is not None or max([at, *(end for _, end in finished)]) > _LARGEST:
        return None
    return Remembered(finished=tuple(finished), attempts=attempts)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _numbers(data: bytes) -> Iterator[int]:
    """All of them; nothing after one that is cut off."""
    number = shift = 0
    for each in data:
        number |= (each & 127) << shift
        shift += 7
        if each < 128:
            yield number
            number = shift = 0
