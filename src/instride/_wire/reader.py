"""Kafka's primitive types, read from bytes that nobody vouches for.

Laws
1. Every read is checked against the bytes that are left, before anything is allocated for it.
2. An array's count is checked against the smallest size that so many elements can have.
3. Whatever is wrong with the bytes is a ProtocolError that says what and where. No other error leaves here.
4. Reading moves forward only, so it ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar
from uuid import UUID

from instride.errors import ProtocolError

__all__ = ["Reader"]

T = TypeVar("T")

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_UINT16: Final = struct.Struct(">H")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_FLOAT64: Final = struct.Struct(">d")


class Reader:
    """A cursor over one message. Not thread-safe.

    data: a contiguous buffer of bytes; it is not copied. Strings, ``bytes`` and numbers are copies;
    `take` and the ``*_view`` methods give views of `data`, which must then stay as it is.
    """

    __slots__ = ("_end", "_position", "_view")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data)
        self._end = len(self._view)
        self._position = 0

    @property
    def position(self) -> int:
        """The offset of the next byte to be read."""
        return self._position

    @property
    def remaining(self) -> int:
        return self._end - self._position

    # Numbers

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
        return self._text(self._length(self.uvarint() - 1, "string"))

    def bytes_(self) -> bytes:
        return self._present(self.nullable_bytes(), "byte string")

    def nullable_bytes(self) -> bytes | None:
        view = self.nullable_bytes_view()
        return None if view is None else bytes(view)

    def nullable_bytes_view(self) -> memoryview | None:
        length = self._length(self.int32(), "byte string")
        return None if length is None else self.take(length)

    def compact_bytes(self) -> bytes:
        return self._present(self.compact_nullable_bytes(), "byte string")

    def compact_nullable_bytes(self) -> bytes | None:
        view = self.compact_nullable_bytes_view()
        return None if view is None else bytes(view)

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
        values: dict[int, Any] = {}
        for _ in range(self._count(self.uvarint(), 2) or 0):
            tag = self.uvarint()
            body = self.take(self.uvarint())
            if known and tag in known:
                values[tag] = known[tag](Reader(body))
        return values

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
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a string at byte {start} is not UTF-8: {error.reason}") from None

    def _count(self, count: int, smallest: int) -> int | None:
        if count == -1:
            return None
        if not 0 <= count * smallest <= self._end - self._position:
            left = self._end - self._position
            raise ProtocolError(
                f"an array before byte {self._position} claims {count} elements of {smallest} or more bytes;"
                f" {left} bytes are left"
            )
        return count

    def _present(self, value: T | None, what: str) -> T:
        if value is None:
            raise ProtocolError(f"a {what} before byte {self._position} is null and must not be")
        return value

    def _short(self, wanted: int) -> ProtocolError:
        return ProtocolError(f"{wanted} bytes wanted at byte {self._position} of {self._end}: too few")
