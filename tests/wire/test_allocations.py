"""How often memory is allocated for a response: for each of its partitions a few times, for a row never."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from record_batches import Rec, batch

from allocations import allocations
from instride._wire.api import Fetch, FetchPartition
from instride._wire.decoder import COMPILED
from instride._wire.fetch_codec import decode_fetch
from instride._wire.frames import FrameBuffer
from instride._wire.memory_pool import Segments

pytestmark = pytest.mark.skipif(not COMPILED, reason="the debugging form makes objects for what it reads")

VERSION = 11
PARTITIONS = 12
REQUEST = Fetch(
    partitions=tuple(FetchPartition(topic="t", partition=number, offset=0) for number in range(PARTITIONS)),
    max_wait=0.5,
    min_bytes=1,
    max_bytes=1 << 26,
)


def response(batches: int, rows: int) -> bytes:
    """As it comes, with its length before it. Each of its partitions has so many batches of so many rows."""
    records = b"".join(
        batch([Rec(offset=first + n, timestamp=n, key=b"key", value=bytes(100)) for n in range(rows)])
        for first in range(0, batches * rows, rows)
    )
    heads = (struct.pack(">ihqqqiii", n, 0, 1 << 50, 1 << 50, 0, -1, -1, len(records)) for n in range(PARTITIONS))
    topic = struct.pack(">h", 1) + b"t" + struct.pack(">i", PARTITIONS) + b"".join(head + records for head in heads)
    body = struct.pack(">iihii", 0, 0, 0, 7, 1) + topic
    return struct.pack(">i", len(body)) + body


class Reader:
    """Receives a response, and makes of its records what `form` says."""

    def __init__(self, form: str) -> None:
        self._frames = FrameBuffer(max_frame_bytes=1 << 26, segments=Segments(1 << 26))
        self._frames.receive_data(struct.pack(">i", 4) + bytes(4))  # the first frame is short
        self._form = form

    def read(self, data: bytes) -> int:
        (frame,) = self._frames.receive_data(data)
        rows = 0
        for each in decode_fetch(frame[4:], VERSION, REQUEST).partitions.values():
            assert each.undecoded is not None
            piece = each.undecoded.decode(1 << 26, 1 << 26)
            assert piece is not None
            rows += self._made_of(piece.chunk)
        return rows

    def _made_of(self, chunk: Any) -> int:
        if self._form == "Arrow":
            return int(chunk.to_arrow().num_rows)
        if self._form == "views":
            return int(chunk.to_arrow(binary_view=True, dictionary=True).num_rows)
        return len(chunk.records(epoch=1, seek_number=0))


def of_a_response(form: str, *, batches: int, rows: int) -> int:
    reader, data = Reader(form), response(batches, rows)
    for _ in range(3):  # what is made once; and the memory of the first response is used again
        assert reader.read(data) == PARTITIONS * batches * rows
    return allocations(lambda: reader.read(data))


@pytest.mark.parametrize("form", ["Arrow", "views"])
def test_a_row_to_arrow_allocates_nothing(form: str) -> None:
    few, many = (of_a_response(form, batches=2, rows=rows) for rows in (300, 600))
    assert many <= few + PARTITIONS, f"{few} with 300 rows a batch, {many} with 600"


def test_a_partition_of_a_response_to_arrow_allocates_some_hundred_times() -> None:
    made = of_a_response("Arrow", batches=1, rows=300)
    assert made <= PARTITIONS * 300, made  # 260 with Python 3.11


def test_a_batch_more_of_a_partition_allocates_a_few_times() -> None:
    few, many = (of_a_response("Arrow", batches=batches, rows=50) for batches in (10, 110))
    assert many - few <= PARTITIONS * 100 * 8, f"{few} with 10 batches a partition, {many} with 110"


def test_a_record_allocates_its_key_and_its_value() -> None:
    """The object itself is one that was used before."""
    few, many = (of_a_response("records", batches=1, rows=rows) for rows in (300, 600))
    assert many - few <= PARTITIONS * 300 * 2.1, f"{few} with 300 rows a batch, {many} with 600"
