"""The index of records believes no table: a batch that is not within its buffer is refused before a byte is read."""

from __future__ import annotations

import struct

import pytest

from instride._wire.record_index import BATCH_WIDTH, MIN_RECORD_BYTES, index_records

BASE = memoryview(bytes(70))


def table(start: int, end: int, count: int) -> bytearray:
    return bytearray(struct.pack(f"{BATCH_WIDTH}q", start, end, count, *[0] * (BATCH_WIDTH - 3)))


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        (-1, 70, 1),
        (0, 71, 1),
        (8, 7, 0),
        (0, 70, -1),
        (0, 70, 70 // MIN_RECORD_BYTES + 1),
        (0, 1 << 62, 1),
        (0, 70, 1 << 62),
    ],
)
def test_a_batch_outside_its_buffer_is_refused(start: int, end: int, count: int) -> None:
    with pytest.raises(ValueError, match="outside its buffer"):
        index_records(BASE, table(start, end, count))


def test_a_table_that_is_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="broken batch table"):
        index_records(BASE, table(0, 70, 1)[:-8])


@pytest.mark.parametrize("base", [BASE, memoryview(b"")])
def test_no_batches_are_no_rows(base: memoryview) -> None:
    assert index_records(base, bytearray())[2:] == (0, 0, -1, 0)
