"""Kafka's primitive types, read from bytes that nobody vouches for; and those that are written by hand.

Laws
1. Every read is checked against the bytes that are left, before anything is allocated for it.
2. An array's count is checked against the smallest size that so many elements can have.
3. Whatever is wrong with the bytes is a ProtocolError that says what and where. No other error leaves here.
4. Reading moves forward only, so it ends.
5. Whoever reads may bound what is made of the bytes: `memory`, and `elements`. More is a ProtocolError: for one text
   after it was made, for all else before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar
from uuid import UUID

from instride.errors import ProtocolError
from instride.errors._quoting import counted

__all__ = ["Reader", "written_count", "written_text", "written_uvarint"]

T = TypeVar("T")

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_UINT16: Final = struct.Struct(">H")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_FLOAT64: Final = struct.Struct(">d")

_ENDLESS: Final = 1 << 62
# Of a text of the compact form, whose length could be anything: as of the older form, which Kafka keeps to.
_LONGEST_TEXT: Final = 32767
# What Python needs for a text or byte string besides its letters.
_OBJECT_BYTES: Final = 56


class Reader:
    """A cursor over one message. Not thread-safe.

    data: a contiguous buffer of bytes; it is not copied. Strings, ``bytes`` and numbers are copies;
    `take` and the ``*_view`` methods give views of `data`, which must then stay as it is.
    memory: bytes that what is made of the data may take. elements: how many of them there may be, of arrays and tags:
    what reading them takes is bounded by that.
    """

    __slots__ = ("_end", "_position", "_view", "elements", "memory")

    def __init__(
        self, data: bytes | bytearray | memoryview, *, memory: int = _ENDLESS, elements: int = _ENDLESS
    ) -> None:
        self._view = memoryview(data)
        self._end = len(self._view)
        self._position = 0
        self.memory = memory
        self.elements = elements

    @property
    def position(self) -> int:
        """The offset of the next byte to be read."""
        return self._position

    @property
    def remaining(self) -> int:
        return self._end - self._position

    def next_is(self, written: bytes) -> bool:
        """Whether these bytes are the next. Then they are read."""
        end = self._position + len(written)
        if end > self._end or self._view[self._position : end] != written:
            return False
        self._position = end
        return True

    def since(self, position: int) -> bytes:
        """A copy of what was read from there on."""
        return bytes(self._view[position : self._position])

    # Law 5

    def spend(self, nbytes: int) -> None:
        """So much is made of what was read."""
        self.memory -= nbytes
        if self.memory < 0:
            raise ProtocolError(f"what stands before byte {self._position} takes more memory than such a message may")

    def claim(self, count: int) -> int:
        """So many elements are to be read. Returns the count."""
        self.elements -= count
        if self.elements < 0:
            raise ProtocolError(f"{count} elements before byte {self._position}: more than such a message may have")
        return count

    # Numbers

    def row(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Numbers that stand one behind the other. layout: of fixed size, big-endian, without padding."""
        try:
            values = layout.unpack_from(self._view, self._position)
        except struct.error:
            raise self._short(layout.size) from None
        self._position += layout.size
        return values

    def int8(self) -> int:
        value: int = self._fixed(_INT8)
        return value

    def int16(self) -> int:
        value: int = self._fixed(_INT16)
        return value

    def uint16(self) -> int:
        value: int = self._fixed(_UINT16)
        return value

    def int32(self) -> int:
        value: int = self._fixed(_INT32)
        return value

    def uint32(self) -> int:
        value: int = self._fixed(_UINT32)
        return value

    def int64(self) -> int:
        value: int = self._fixed(_INT64)
        return value

    def float64(self) -> float:
        value: float = self._fixed(_FLOAT64)
        return value

    def boolean(self) -> bool:
        return self.int8() != 0

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self.take(16)))

    def uvarint(self) -> int:
        """An unsigned number of at most 32 bits, in at most five bytes."""
        position = self._position
        if position < self._end:
            byte = self._view[position]
            if byte < 0x80:  # as nearly always
                self._position = position + 1
                return byte
        return self._base128(bits=32)

    def varint(self) -> int:
        """A zigzag number of 32 bits."""
        value = self._base128(bits=32)
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        """A zigzag number of 64 bits."""
        value = self._base128(bits=64)
        return (value >> 1) ^ -(value & 1)

    # Text and bytes. The plain forms refuse null.

    def string(self) -> str:
        return self._present(self.nullable_string(), "string")

    def nullable_string(self) -> str | None:
        return self._text(self._length(self.int16(), "string"))

    def compact_string(self) -> str:
        return self._present(self.compact_nullable_string(), "string")

    def compact_nullable_string(self) -> str | None:
        length = self._length(self.uvarint() - 1, "string")
        if length is not None and length > _LONGEST_TEXT:
            raise ProtocolError(f"a string before byte {self._position} has the length {length}")
        return self._text(length)

    def bytes_(self) -> bytes:
        return self._present(self.nullable_bytes(), "byte string")

    def nullable_bytes(self) -> bytes | None:
        return self._copied(self.nullable_bytes_view())

    def nullable_bytes_view(self) -> memoryview | None:
        length = self._length(self.int32(), "byte string")
        return None if length is None else self.take(length)

    def compact_bytes(self) -> bytes:
        return self._present(self.compact_nullable_bytes(), "byte string")

    def compact_nullable_bytes(self) -> bytes | None:
        return self._copied(self.compact_nullable_bytes_view())

    def compact_nullable_bytes_view(self) -> memoryview | None:
        length = self._length(self.uvarint() - 1, "byte string")
        return None if length is None else self.take(length)

    # Arrays

    def array_count(self, smallest: int = 1) -> int | None:
        """How many elements follow, or None for a null array.

        smallest: the fewest bytes that one element can take, at least 1.
        """
        return self._count(self.int32(), smallest)

    def compact_array_count(self, smallest: int = 1) -> int | None:
        """`array_count` of the compact form."""
        return self._count(self.uvarint() - 1, smallest)

    def int32s(self, count: int) -> tuple[int, ...]:
        """`count` numbers at once; `count` came from an array count whose `smallest` was 4."""
        return struct.unpack(f">{count}i", self.take(4 * count))

    # Tagged fields (KIP-482)

    def tagged_fields(self, known: dict[int, Callable[[Reader], Any]] | None = None) -> dict[int, Any]:
        """The values of the `known` tags that are there; all others are skipped."""
        count = self.uvarint()
        if not count:  # as nearly always
            return {}
        values: dict[int, Any] = {}
        for _ in range(self.claim(self._count(count, 2) or 0)):
            tag = self.uvarint()
            size = len(self.take(self.uvarint()))
            if known and tag in known:
                values[tag] = self._within(size, known[tag])
        return values

    def _within(self, size: int, read: Callable[[Reader], T]) -> T:
        """What stands in the last `size` bytes."""
        end, last = self._end, self._position
        self._position, self._end = last - size, last
        value = read(self)
        # Numbers are only checked against all of the bytes (`_fixed`, `row`), not against `_end`.
        if self._position > last:
            raise ProtocolError(f"a tagged field ends at byte {last}: too few for what it has")
        self._position, self._end = last, end
        return value

    # Plain bytes

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, not copied."""
        start = self._position
        if not 0 <= size <= self._end - start:
            raise self._short(size)
        self._position = start + size
        return self._view[start : start + size]

    # What the above share

    def _fixed(self, layout: struct.Struct) -> Any:
        try:
            (value,) = layout.unpack_from(self._view, self._position)
        except struct.error:
            raise self._short(layout.size) from None
        self._position += layout.size
        return value

    def _base128(self, *, bits: int) -> int:
        value = shift = 0
        while shift < bits:
            if self._position >= self._end:
                raise self._short(1)
            byte = self._view[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                # The last byte may have more bits than are left.
                if value >> bits:
                    break
                return value
            shift += 7
        raise ProtocolError(f"a varint before byte {self._position} has more than {bits} bits")

    def _length(self, length: int, what: str) -> int | None:
        if length < -1:
            raise ProtocolError(f"a {what} before byte {self._position} has the length {length}")
        return None if length == -1 else length

    def _text(self, length: int | None) -> str | None:
        if length is None:
            return None
        start = self._position
        try:
            text = str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a string at byte {start} is not UTF-8: {error.reason}") from None
        self.spend(text.__sizeof__())  # up to four times as many as came
        return text

    def _copied(self, view: memoryview | None) -> bytes | None:
        if view is None:
            return None
        self.spend(_OBJECT_BYTES + len(view))
        return bytes(view)

    def _count(self, count: int, smallest: int) -> int | None:
        if count == -1:
            return None
        if not 0 <= count * smallest <= self._end - self._position:
            left = self._end - self._position
            raise ProtocolError(
                f"an array before byte {self._position} claims {counted(count, 'element')} of at least "
                f"{counted(smallest, 'byte')}; {counted(left, 'byte')} left"
            )
        return count

    def _present(self, value: T | None, what: str) -> T:
        if value is None:
            raise ProtocolError(f"a {what} before byte {self._position} is null and must not be")
        return value

    def _short(self, wanted: int) -> ProtocolError:
        return ProtocolError(f"{counted(wanted, 'byte')} wanted at byte {self._position} of {self._end}: too few")


def written_count(count: int, *, compact: bool) -> bytes:
    """Of an array, as `Reader.array_count` or `Reader.compact_array_count` reads it. struct.error: it does not fit."""
    return written_uvarint(count + 1) if compact else _INT32.pack(count)


def written_text(text: str, *, compact: bool) -> bytes:
    """As `Reader.string` or `Reader.compact_string` reads it. struct.error, UnicodeEncodeError: it does not fit."""
    data = text.encode()
    return (written_uvarint(len(data) + 1) if compact else _INT16.pack(len(data))) + data


def written_uvarint(value: int) -> bytes:
    """As `Reader.uvarint` reads it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
