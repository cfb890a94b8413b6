"""The reader of primitives: the same values as trusted writers wrote, and a ProtocolError for all else."""

from __future__ import annotations

import io
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers

from instride._wire.reader import Reader
from instride.errors import ProtocolError


def written(write: Callable[..., None], value: object) -> bytes:
    buffer = io.BytesIO()
    write(buffer, value)
    return buffer.getvalue()


INT8 = st.integers(-(2**7), 2**7 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=50)

PAIRS: dict[str, tuple[Callable[[Reader], Any], Callable[..., None], st.SearchStrategy[Any]]] = {
    "int8": (Reader.int8, writers.write_int8, INT8),
    "int16": (Reader.int16, writers.write_int16, INT16),
    "uint16": (Reader.uint16, writers.write_uint16, st.integers(0, 2**16 - 1)),
    "int32": (Reader.int32, writers.write_int32, INT32),
    "uint32": (Reader.uint32, writers.write_uint32, st.integers(0, 2**32 - 1)),
    "int64": (Reader.int64, writers.write_int64, INT64),
    "float64": (Reader.float64, writers.write_float64, st.floats(allow_nan=False)),
    "boolean": (Reader.boolean, writers.write_boolean, st.booleans()),
    "uuid": (Reader.uuid, writers.write_uuid, st.uuids(allow_nil=True)),
    "uvarint": (Reader.uvarint, writers.write_unsigned_varint, st.integers(0, 2**32 - 1)),
    "varint": (Reader.varint, writers.write_signed_varint, INT32),
    "varlong": (Reader.varlong, writers.write_signed_varlong, INT64),
    "string": (Reader.string, writers.write_legacy_string, TEXT),
    "nullable_string": (Reader.nullable_string, writers.write_nullable_legacy_string, st.none() | TEXT),
    "compact_string": (Reader.compact_string, writers.write_compact_string, TEXT),
    "compact_nullable_string": (
        Reader.compact_nullable_string,
        writers.write_nullable_compact_string,
        st.none() | TEXT,
    ),
    "bytes_": (Reader.bytes_, writers.write_legacy_bytes, st.binary(max_size=50)),
    "nullable_bytes": (
        Reader.nullable_bytes,
        writers.write_nullable_legacy_bytes,
        st.none() | st.binary(max_size=50),
    ),
    "compact_bytes": (Reader.compact_bytes, writers.write_compact_string, st.binary(max_size=50)),
    "compact_nullable_bytes": (
        Reader.compact_nullable_bytes,
        writers.write_nullable_compact_string,
        st.none() | st.binary(max_size=50),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data(), tail=st.binary(max_size=3))
def test_every_type_reads_what_was_written_and_no_further(name: str, data: st.DataObject, tail: bytes) -> None:
    read, write, values = PAIRS[name]
    value = data.draw(values)
    body = written(write, value)
    reader = Reader(body + tail)
    assert read(reader) == value
    assert reader.position == len(body)
    assert reader.remaining == len(tail)


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
def test_every_type_refuses_every_truncation(name: str, data: st.DataObject) -> None:
    read, write, values = PAIRS[name]
    body = written(write, data.draw(values))
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            read(Reader(body[:size]))


@pytest.mark.parametrize("name", PAIRS)
@given(garbage=st.binary(max_size=30))
def test_garbage_gives_a_value_or_a_protocol_error(name: str, garbage: bytes) -> None:
    try:
        PAIRS[name][0](Reader(garbage))
    except ProtocolError:
        pass


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (Reader.string, b"\xff\xff"),
        (Reader.compact_string, b"\x00"),
        (Reader.bytes_, b"\xff\xff\xff\xff"),
        (Reader.compact_bytes, b"\x00"),
    ],
)
def test_null_where_it_must_not_be(read: Callable[[Reader], object], body: bytes) -> None:
    with pytest.raises(ProtocolError, match="null"):
        read(Reader(body))


def test_a_length_below_minus_one_is_refused() -> None:
    with pytest.raises(ProtocolError, match="length -2"):
        Reader(b"\xff\xfe").nullable_string()
    with pytest.raises(ProtocolError, match="length -2"):
        Reader(b"\xff\xff\xff\xfe").nullable_bytes()


@pytest.mark.parametrize("body", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00"])
def test_a_varint_of_too_many_bits(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="32 bits"):
        Reader(body).uvarint()


def test_text_that_is_not_utf8() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        Reader(b"\x00\x02\xff\xfe").string()


def test_array_counts() -> None:
    assert Reader(b"\xff\xff\xff\xff").array_count() is None
    assert Reader(b"\x00").compact_array_count() is None
    assert Reader(b"\x00\x00\x00\x02ab").array_count(1) == 2
    assert Reader(b"\x03ab").compact_array_count(1) == 2
    with pytest.raises(ProtocolError, match="claims 2 elements of at least 2 bytes; 3 bytes left"):
        Reader(b"\x00\x00\x00\x02abc").array_count(2)
    with pytest.raises(ProtocolError, match="claims -2"):
        Reader(b"\xff\xff\xff\xfe").array_count()


@pytest.mark.parametrize("count", [2**31 - 1, 2**20])
def test_a_huge_count_allocates_nothing(count: int) -> None:
    body = struct.pack(">i", count) + bytes(11)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            Reader(body).array_count(4)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_known_tags_are_read_and_others_skipped() -> None:
    body = b"\x03" + b"\x05\x02\xaa\xbb" + b"\x01\x02\x00\x07" + b"\x09\x00" + b"rest"
    reader = Reader(body)
    assert reader.tagged_fields({1: Reader.int16}) == {1: 7}
    assert bytes(reader.take(4)) == b"rest"
    assert Reader(body).tagged_fields() == {}


def test_a_tag_cannot_read_beyond_its_size() -> None:
    with pytest.raises(ProtocolError, match="too few"):
        Reader(b"\x01\x01\x02\x00\x07\x00\x00").tagged_fields({1: Reader.int32})


def test_views_are_not_copies() -> None:
    data = bytearray(b"\x00\x00\x00\x03abc")
    view = Reader(data).nullable_bytes_view()
    assert view is not None
    data[4] = ord("x")
    assert bytes(view) == b"xbc"


def test_a_uuid_of_zeros_is_a_value() -> None:
    assert Reader(bytes(16)).uuid() == UUID(int=0)


def test_int32s() -> None:
    assert Reader(struct.pack(">3i", 1, -1, 2)).int32s(3) == (1, -1, 2)
