"""What a row costs in memory: its bytes are copied once, when they are handed out, and no object is made before."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from record_batches import Rec, batch, decode, records_of

from instride._wire.memory_pool import Segments
from instride._wire.record_set import RecordSet

BYTES = 1000
ROWS = 500


def rows(count: int) -> bytes:
    return batch([Rec(offset=n, timestamp=n, value=bytes(BYTES)) for n in range(count)])


def made(action: Callable[[], object]) -> float:
    """Bytes of memory that it takes at most, for each row. A copy that is dropped at once counts as well."""
    action()  # what is made once
    tracemalloc.start()
    found = action()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del found
    return most / ROWS


def test_to_decode_copies_no_value() -> None:
    data = rows(ROWS)
    assert made(lambda: decode(data)) < BYTES / 10


def test_a_part_of_a_response_is_decoded_where_it_is() -> None:
    """A third of it was copied out: half of the rate of values of 1 KB was lost."""
    data, segments = rows(ROWS), Segments(1 << 24)
    response = segments.new(data + bytes(3 * len(data)))
    segments.keep(response)

    def decoded() -> Any:
        part = memoryview(response)[: len(data)]
        records = RecordSet(part, topic="t", partition=3, fetch_offset=0, frame_bytes=len(response))
        found = records.decode(1 << 24, 1 << 24)
        records.detach(stays=True)
        return found

    assert made(decoded) < BYTES / 10


def test_to_arrow_copies_a_value_once() -> None:
    chunk, _, _ = decode(rows(ROWS))
    assert BYTES < made(chunk.to_arrow) < BYTES * 1.1


def test_to_arrows_views_no_value_is_copied() -> None:
    chunk, _, _ = decode(rows(ROWS))
    assert made(lambda: chunk.to_arrow(binary_view=True)) < BYTES / 10


def test_a_record_copies_a_value_once() -> None:
    chunk, _, _ = decode(rows(ROWS))
    assert BYTES < made(lambda: [each.value for each in records_of(chunk)]) < BYTES * 1.3


def blocks(count: int) -> int:
    """How many blocks of memory a response of so many rows keeps, to Arrow."""
    data, kept = rows(count), list[Any]()
    for _ in range(2):  # the first one also makes what is made once
        kept.clear()
        before = sys.getallocatedblocks()
        chunk, _, _ = decode(data)
        kept += [chunk, chunk.to_arrow()]
        after = sys.getallocatedblocks()
    return after - before


def test_twice_the_rows_of_a_response_make_no_more_objects() -> None:
    few, many = blocks(ROWS), blocks(2 * ROWS)
    assert many <= few + 20, f"{few} blocks for {ROWS} rows, {many} for twice as many"
