"""The sticky assignors' userdata: exact bytes, and nothing at all from what cannot be read."""

from __future__ import annotations

import pytest
from assignor_group import tps
from hypothesis import given
from hypothesis import strategies as st

from instride._core.assignors.sticky import (
    StickyUserdata,
    generation_userdata,
    read_generation,
    read_sticky,
    write_sticky,
)
from instride.records import TopicPartition

VERSION_0 = bytes.fromhex("00000001 0002 7431 00000002 00000000 00000003")
"""One topic, "t1", with partitions 0 and 3; no generation."""


def test_the_layout_is_kafkas() -> None:
    assert write_sticky(tps("1-3 1-0"), 258) == VERSION_0 + bytes.fromhex("00000102")


@pytest.mark.vector(20)
def test_version_0_has_no_generation() -> None:
    assert read_sticky(VERSION_0) == StickyUserdata(owned=tps("1-0 1-3"), generation=-1)


OWNED = st.lists(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1)), unique=True)


@given(owned=OWNED, generation=st.integers(-1, 2**31 - 1))
def test_what_is_written_is_read(owned: list[TopicPartition], generation: int) -> None:
    data = write_sticky(owned, generation)
    assert read_sticky(data) == StickyUserdata(owned=tuple(sorted(owned)), generation=generation)
    assert read_generation(data) == generation
    assert read_generation(generation_userdata(generation)) == generation


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\x00\x00\x01",
        b"\x7f\xff\xff\xff\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        VERSION_0 + b"\x00",
        VERSION_0[:-1],
        VERSION_0 + b"\x00\x00\x00\x05\x00",
        b"\x00\x00\x00\x01\xff\xff" + VERSION_0[6:],
        b"\x00\x00\x00\x01\x00\x02\xff\xff" + VERSION_0[8:],
    ],
)
def test_what_is_malformed_says_nothing(data: bytes | None) -> None:
    assert read_sticky(data) == StickyUserdata()
    assert read_generation(data) == -1


def test_a_negative_generation_is_none() -> None:
    assert read_generation(b"\x80\x00\x00\x00") == -1


@given(st.binary(max_size=60))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    read_generation(data)
    for partition in read_sticky(data).owned:
        assert len(partition.topic.encode()) + 4 <= len(data)


@given(st.data())
def test_no_damage_makes_it_raise(data: st.DataObject) -> None:
    good = bytearray(write_sticky(data.draw(OWNED), 7))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] = data.draw(st.integers(0, 255))
    read_sticky(bytes(good))
    read_generation(bytes(good))
