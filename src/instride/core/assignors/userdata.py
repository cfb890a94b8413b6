"""The userdata of the two sticky assignors: bytes <-> what a member owned, and when.

`cooperative-sticky` of Java: one INT32, the generation.
`sticky`: an array of (topic, array of INT32 partitions), then an INT32 generation, which version 0 lacks.
librdkafka writes the layout of `sticky` under the name `cooperative-sticky` too.

Laws
1. Nothing here raises on bytes of other members: what cannot be read to its exact end says nothing.
2. A count is checked against the bytes that are left before anything is read for it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from instride.records import TopicPartition

__all__ = ["StickyUserdata", "generation_userdata", "read_generation", "read_sticky", "write_sticky"]

NO_GENERATION: Final = -1
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyUserdata:
    """owned: the last assignment. generation: of it, or -1 where unknown."""

    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


def generation_userdata(generation: int) -> bytes:
    """As Java's cooperative-sticky writes it. Leaders older than 3.4 read the generation only here."""
    return _INT32.pack(generation)


def read_generation(userdata: bytes | None) -> int:
    """The generation in a cooperative-sticky member's userdata, or -1.

    Four bytes are Java's. More can only be librdkafka's: its first four bytes count topics.
    """
    if userdata is not None and len(userdata) == _INT32.size:
        return _generation(userdata, 0)
    return read_sticky(userdata).generation


def write_sticky(owned: Sequence[TopicPartition], generation: int) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(owned):
        topics.setdefault(topic, []).append(number)
    out = bytearray(_INT32.pack(len(topics)))
    for topic, numbers in topics.items():
        name = topic.encode()
        out += _INT16.pack(len(name)) + name + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return bytes(out + _INT32.pack(generation))


def read_sticky(userdata: bytes | None) -> StickyUserdata:
    """Version 1 or 0 of sticky's userdata; nothing owned where it is absent or malformed."""
    if not userdata:
        return StickyUserdata()
    try:
        return _read_sticky(memoryview(userdata))
    except (struct.error, ValueError):
        return StickyUserdata()


def _read_sticky(data: memoryview) -> StickyUserdata:
    owned: list[TopicPartition] = []
    at = _INT32.size
    for _ in range(_count(data, 0, _INT16.size + _INT32.size)):
        (length,) = _INT16.unpack_from(data, at)
        end = at + _INT16.size + length
        if length < 0 or end > len(data):
            raise ValueError("a topic's name ends beyond the bytes")
        topic = str(data[at + _INT16.size : end], "utf-8")
        count = _count(data, end, _INT32.size)
        numbers = struct.unpack_from(f">{count}i", data, end + _INT32.size)
        owned += [TopicPartition(topic, number) for number in numbers]
        at = end + _INT32.size * (1 + count)
    if at == len(data):
        return StickyUserdata(owned=tuple(owned))
    if at + _INT32.size != len(data):
        raise ValueError("bytes are left over")
    return StickyUserdata(owned=tuple(owned), generation=_generation(data, at))


def _count(data: memoryview, at: int, item_size: int) -> int:
    (count,) = _INT32.unpack_from(data, at)
    if not 0 <= count <= (len(data) - at - _INT32.size) // item_size:
        raise ValueError("a count goes beyond the bytes")
    return int(count)


def _generation(data: bytes | memoryview, at: int) -> int:
    (generation,) = _INT32.unpack_from(data, at)
    return max(int(generation), NO_GENERATION)
