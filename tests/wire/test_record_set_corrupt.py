"""Bad batches: what was good before them is returned, and the error says where they begin."""

from __future__ import annotations

import mmap
import random
import struct
import tracemalloc
from typing import Any

import cramjam
import pytest
from record_batches import (
    CODECS,
    Rec,
    batch,
    corrupt,
    decode,
    marker,
    nullable,
    plain,
    read,
    record,
    records_of,
    seal,
    zigzag,
)
from record_batches import BatchHeader as Header

from instride._wire import compression, record_set
from instride._wire.record_chunk import Piece
from instride._wire.record_set import RecordSet
from instride.errors import TransportError

GOOD = batch(plain(0, 1))


def _bad_header(**wrong: Any) -> bytes:
    return batch(plain(2, 3), **wrong)


@pytest.mark.requirement("surface/old-formats")
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (_bad_header(crc=1), "checksum"),
        (_bad_header(magic=0), "record format 0 is not supported"),
        (_bad_header(magic=1), "record format 1 is not supported"),
        (_bad_header(magic=-1), "record format 255"),
        (_bad_header(attributes=5), "unknown compression codec 5"),
        (_bad_header(attributes=7), "unknown compression codec 7"),
        (_bad_header(last_delta=-1), "claims the offset 2 and -1 more"),
        (_bad_header(base_offset=-1), "claims the offset -1"),
        (_bad_header(base_offset=(1 << 63) - 1), "claims the offset"),
        (_bad_header(count=-1), "states -1 records"),
        (_bad_header(count=(1 << 31) - 1), "2147483647 records cannot be in"),
        (_bad_header(count=3), "a number is cut off"),
        (_bad_header(count=0), "bytes are left after the last record"),
        (_bad_header(count=0, attributes=4), "zstd data of a batch is broken"),
        (_bad_header(count=1), "bytes are left after the last record"),
        (_bad_header(last_delta=0), "offsets do not rise, or leave their batch"),
        (seal(Header(base_offset=2, last_delta=1, count=1), b""), "1 record cannot be in 0 bytes"),
    ],
)
def test_a_bad_header(bad: bytes, says: str) -> None:
    offsets, error = corrupt(GOOD + bad + batch(plain(4)))
    assert offsets == [0, 1]
    assert error.offset == 2
    assert says in str(error)


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 48])
def test_a_bad_length(length: int) -> None:
    bad = bytearray(batch(plain(2, 3)))
    bad[8:12] = struct.pack(">i", length)
    offsets, error = corrupt(GOOD + bytes(bad))
    assert offsets == [0, 1]
    assert f"a length of {length} bytes" in str(error)


def _section(body: bytes, *, length: int | None = None) -> bytes:
    return zigzag(len(body) if length is None else length) + body


BODY = b"\0\0\0"  # attributes, timestamp, offset


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (_section(BODY + b"\1\1\0", length=-1), "length is over the bytes left"),
        (_section(BODY + b"\1\1\0", length=5), "length is over the bytes left"),
        (_section(BODY + b"\1\1\0", length=7), "length is over the bytes left"),
        (_section(BODY + b"\1\1\0\0"), "longer than its fields"),
        (_section(b"\0\0\1\1\1\0"), "offsets do not rise"),
        (_section(BODY + zigzag(-2) + b"\1\0"), "key or value is longer"),
        (_section(BODY + b"\1" + zigzag(-2) + b"\0"), "key or value is longer"),
        (_section(BODY + zigzag(3) + b"\1\0"), "key or value is longer"),
        (_section(BODY + zigzag((1 << 31) - 1) + b"\1\0"), "key or value is longer"),
        (_section(BODY + b"\1\1" + zigzag(-1)), "header"),
        (_section(BODY + b"\1\1" + zigzag(1)), "header"),
        (_section(BODY + b"\1\1" + zigzag((1 << 31) - 1)), "header"),
        (_section(BODY + b"\1\1" + zigzag(1) + nullable(None) + nullable(b"x")), "header"),
        (_section(BODY + b"\1\1" + zigzag(1) + nullable(b"x") + zigzag(-2)), "header"),
        (_section(BODY + b"\1\1" + zigzag(1) + nullable(b"x") + zigzag(2) + b"y"), "header"),
        (b"\xff" * 5 + b"\0" * 9, "a number is cut off or too long"),
        (b"\xff\xff\xff\xff\x1f" + b"\0" * 9, "a number is cut off or too long"),
        (_section(b"\0" + b"\xff" * 10 + b"\0\1\1\0"), "a number is cut off or too long"),
        (_section(b"\0" + b"\xff" * 9 + b"\2" + b"\0\1\1\0"), "a number is cut off or too long"),
        (_section(b"\0\0" + b"\xff" * 5 + b"\1\1\0"), "a number is cut off or too long"),
    ],
)
def test_a_bad_record(section: bytes, says: str) -> None:
    bad = batch([Rec(offset=2)], compressed=section)
    offsets, error = corrupt(GOOD + bad)
    assert offsets == [0, 1]
    assert error.offset == 2
    assert says in str(error)
    assert "the batch of offsets 2 to 2" in str(error)


def test_the_largest_numbers_are_no_error() -> None:
    """Ten bytes of varlong, and offset deltas of 31 bits."""
    last = (1 << 31) - 1
    section = record(Rec(offset=2, timestamp=-(1 << 63)), 2, 0) + record(Rec(offset=2 + last), 2, 1_600_000_000_000)
    data = batch([Rec(offset=2, timestamp=0), Rec(offset=2 + last)], compressed=section, last_delta=last)
    assert read(data, 2) == ([2, 2 + last], 3 + last)


def test_offsets_must_rise_within_a_batch() -> None:
    section = record(Rec(offset=2), 2, 0) * 2
    offsets, error = corrupt(GOOD + batch(plain(2, 3), compressed=section))
    assert offsets == [0, 1]
    assert "do not rise" in str(error)


def test_a_bad_batch_takes_back_its_own_good_records() -> None:
    section = record(Rec(offset=2), 2, 0) + record(Rec(offset=3), 2, 0)[:-1] + b"\1"
    offsets, _ = corrupt(GOOD + batch(plain(2, 3), compressed=section))
    assert offsets == [0, 1]


def test_skipped_batches_are_checked_too() -> None:
    bad = bytearray(marker(2, 1, commit=False))
    bad[-1] ^= 1
    assert corrupt(GOOD + bytes(bad))[0] == [0, 1]


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_an_abort_marker_that_cannot_be_read(key: bytes | None) -> None:
    bad = batch([Rec(offset=2, key=key)], control=True, transactional=True, producer_id=1)
    _, error = corrupt(GOOD + bad, read_committed=True, aborted=[(1, 0)])
    assert error.offset == 2
    assert "broken control batch" in str(error)
    assert read(GOOD + bad) == ([0, 1], 3)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_broken_compression(codec: str) -> None:
    for broken in (b"", b"\0", b"junk" * 20, batch(plain(2, 3), codec=codec)[61:-3]):
        offsets, error = corrupt(GOOD + batch(plain(2, 3), codec=codec, compressed=broken))
        assert offsets == [0, 1]
        assert error.offset == 2


@pytest.mark.requirement("surface/bombs")
@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_stops_at_the_bound(codec: str) -> None:
    """16 MiB in a few KiB. Nothing near that is allocated."""
    zeros = bytes(16 << 20)
    bomb = (
        bytes(cramjam.snappy.compress_raw(zeros))
        if codec == "snappy"
        else bytes(getattr(cramjam, codec).compress(zeros))
    )
    data = GOOD + batch(plain(2), codec=codec, compressed=bomb)
    tracemalloc.start()
    offsets, error = corrupt(data, max_decompressed_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert offsets == [0, 1]
    over = max(0, len(bomb) - (1 << 18))
    told = f"holds over {(1 << 20) - 36 - over} bytes: max_decompressed_bytes is {1 << 20}, and the index of 1 record"
    assert told in str(error)
    assert peak < 4 << 20


def pieces(data: bytes, *, target: int, capacity: int, **options: Any) -> tuple[RecordSet, list[Piece]]:
    """What a record set gives while there is room for a batch."""
    records = RecordSet(memoryview(data), topic="t", partition=3, fetch_offset=0, **options)
    found: list[Piece] = []
    while not records.done and (piece := records.decode(target, capacity)) is not None:
        found.append(piece)
    return records, found


@pytest.mark.parametrize("codec", CODECS)
def test_no_more_is_decoded_than_there_is_room_for(codec: str) -> None:
    log = b"".join(batch([Rec(offset=n, value=bytes(60_000))], codec=codec) for n in range(10))
    _, found = pieces(log, target=100_000, capacity=150_000)
    assert (
        [each.next_offset for each in found] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] if codec == "none" else [2, 4, 6, 8, 10]
    )
    assert all(each.nbytes <= 150_000 for each in found)
    records, found = pieces(log, target=100_000, capacity=50_000)
    assert found == []
    assert records.decode(100_000, 50_000) is None
    piece = records.decode(1, 50_000, alone=True)
    assert piece is not None
    assert (piece.next_offset, len(piece.chunk or [])) == (1, 1)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_left_is_copied_out_of_a_large_response(codec: str) -> None:
    """A small rest would pin all of it."""
    log = b"".join(batch(plain(n, n + 1), codec=codec) for n in range(0, 40, 2))
    records = RecordSet(memoryview(log), topic="t", partition=3, fetch_offset=0, frame_bytes=1 << 20)
    assert records.nbytes == 1 << 20
    records.detach()
    assert records.nbytes == len(log)
    found: list[int] = []
    while not records.done:
        piece = records.decode(200, 1 << 20)
        assert piece is not None
        found += [each.offset for each in records_of(piece.chunk)]
        assert piece.next_offset == found[-1] + 1
        before = records.nbytes
        records.detach()
        assert records.nbytes <= before
    assert found == list(range(40))


def test_a_small_part_of_a_response_does_not_keep_it() -> None:
    log = batch(plain(0, 1))
    records = RecordSet(memoryview(bytearray(log)), topic="t", partition=3, fetch_offset=0, frame_bytes=1 << 20)
    piece = records.decode(1 << 20, 1 << 20)
    assert piece is not None
    assert piece.nbytes < 300


def test_where_offsets_do_not_rise_both_batches_are_doubtful() -> None:
    """A flipped bit in the base offset of the first one: no checksum covers it."""
    log = batch(plain(0)) + batch(plain(2, 3), base_offset=6) + batch(plain(4, 5))
    offsets, error = corrupt(log)
    assert offsets == [0]
    assert error.offset == 1
    assert "comes after offset 7" in str(error)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_an_index_that_takes_more_than_the_bound_is_refused(codec: str) -> None:
    """7 bytes a record are indexed with 36."""
    section = b"".join(b"\x0c\0\0" + zigzag(n) + b"\1\1\0" for n in range(60))
    data = GOOD + batch(plain(2, 100), compressed=section if codec == "none" else None, count=60, codec=codec)
    offsets, error = corrupt(data, max_decompressed_bytes=2000)
    assert offsets == [0, 1]
    assert "the index of 60 records takes over 2000 bytes" in str(error)


def test_too_many_aborted_transactions_are_an_error_where_nothing_else_waits() -> None:
    options: dict[str, Any] = {"read_committed": True, "aborted_count": 1000, "max_decompressed_bytes": 2000}
    records, found = pieces(GOOD, target=5000, capacity=5000, **options)
    assert found == []
    piece = records.decode(1, 1, alone=True)
    assert piece is not None
    assert "too many aborted transactions" in str(piece.corrupt)


def test_a_set_never_outgrows_what_its_index_can_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_set, "LARGEST_BASE", 100_000)
    log = b"".join(batch([Rec(offset=n, value=bytes(60_000))], codec="zstd") for n in range(2))
    _, found = pieces(log, target=1 << 20, capacity=1 << 20)
    assert [each.next_offset for each in found] == [1, 2]


def test_pieces_of_usual_batches_take_no_pages_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each piece of batches of 4 MiB would let go of the memory for responses, and would be copied."""
    log = b"".join(batch([Rec(offset=n, value=bytes(3_700_000))], codec="zstd") for n in range(5))
    taken: list[int] = []

    def pages(size: int) -> mmap.mmap:
        taken.append(size)
        return mmap.mmap(-1, size)

    monkeypatch.setattr(compression, "Pages", pages)
    _, found = pieces(log, target=8 << 20, capacity=64 << 20)
    assert ([each.next_offset for each in found], taken) == ([1, 2, 3, 4, 5], [])


def test_a_record_of_very_many_headers_is_an_error_of_its_partition() -> None:
    """A kilobyte of a producer's became gigabytes of objects in every consumer."""
    empty = (("", None),)
    good = batch([Rec(offset=2, headers=empty * 10_000)], codec="zstd")
    assert read(GOOD + good) == ([0, 1, 2], 3)
    offsets, error = corrupt(GOOD + batch([Rec(offset=2, headers=empty * 10_001)], codec="zstd"))
    assert offsets == [0, 1]
    assert "a record has over 10000 headers (in the batch of offsets 2 to 2). Seek past it to go on" in str(error)


def test_headers_become_objects_when_they_are_requested() -> None:
    records = [Rec(offset=n, headers=(("", None),) * 10_000) for n in range(50)]
    chunk, _, _ = decode(batch(records, codec="zstd"))
    tracemalloc.start()
    found = records_of(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20, "a million bytes of headers"
    assert found[0].headers == records[0].headers
    assert found[0].headers is found[0].headers


@pytest.mark.parametrize("copied_out", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_no_memory_is_an_error_that_may_pass_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, alone: bool, copied_out: bool
) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    data = memoryview(batch(plain(*range(5))) + batch(plain(*range(5, 9)), codec="zstd"))
    records = RecordSet(data, topic="t", partition=0, fetch_offset=2, frame_bytes=100 * len(data))
    first = records.decode(1, 1 << 20)
    assert first is not None
    assert first.next_offset == 5
    if copied_out:
        records.detach(0)
    monkeypatch.setattr(record_set, "index_batches", refuse)
    piece = records.decode(1 << 20, 1 << 20, alone=alone)
    assert piece is not None
    assert (piece.chunk, piece.next_offset, records.done) == (None, 5, True)
    assert isinstance(piece.corrupt, TransportError)
    assert "from offset 5 on" in str(piece.corrupt)
    again = RecordSet(data, topic="t", partition=0, fetch_offset=3).decode(1 << 20, 1 << 20)
    assert again is not None
    assert (again.next_offset, isinstance(again.corrupt, TransportError)) == (3, True)


@pytest.mark.parametrize(("size", "refused"), [(600_000, False), (700_000, True)])
def test_what_does_not_compress_counts_as_it_came_as_well(size: int, *, refused: bool) -> None:
    """Both are there at once: 60 MB of noise took 120."""
    noise = random.Random(1).randbytes(size)
    log = batch([Rec(offset=0, value=noise)], codec="gzip")
    _, _, error = decode(log, 0, max_decompressed_bytes=1 << 20)
    assert (error is not None) is refused
    if refused:
        over = 12 + int.from_bytes(log[8:12], "big") - 61 - (1 << 18)
        assert f"takes 36 of them, the batch as it came {over}" in str(error)
