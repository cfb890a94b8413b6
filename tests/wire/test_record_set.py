"""What of a record set is returned, what is skipped, and where the next fetch begins."""

from __future__ import annotations

import errno
import os
import random
import struct
import tracemalloc
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import CODECS, Rec, batch, corrupt, decode, marker, plain, read, record, records_of

from instride._core.application.partition import Delivery
from instride._wire import compression, record_set
from instride._wire.batch_filter import BatchWalk
from instride._wire.compression import Sections
from instride._wire.frames import FrameBuffer
from instride._wire.memory_pool import Pages, Segment, Segments
from instride._wire.record_set import RecordSet, decode_record_set
from instride.consumer_records import ConsumerRecords
from instride.records import TopicPartition
from step_counter import calls

FULL = [
    Rec(offset=5, timestamp=1000, key=b"k", value=b"v" * 300, headers=(("a", b"1"), ("a", None), ("é", b""))),
    Rec(offset=6, timestamp=990, key=None, value=b""),
    Rec(offset=7, timestamp=1010, key=b"", value=None),
]


@pytest.mark.parametrize("codec", CODECS)
def test_every_field_arrives_with_every_codec(codec: str) -> None:
    chunk, next_offset, error = decode(batch(FULL, codec=codec), 5)
    assert (next_offset, error) == (8, None)
    found = [
        Rec(offset=r.offset, timestamp=r.timestamp, key=r.key, value=r.value, headers=r.headers)
        for r in records_of(chunk)
    ]
    assert found == FULL
    first = records_of(chunk)[0]
    assert (first.topic, first.partition, first.timestamp_type, first.leader_epoch) == ("t", 3, 0, 7)
    assert (first.epoch, first.seek_number, first.topic_partition) == (1, 2, ("t", 3))


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd"])
def test_a_large_value_is_there_once(codec: str) -> None:
    """The records have it as it was decompressed or received, all those that are made of it the same object."""
    values = [b"small", bytes(range(256)) * (5 << 12), None, b"b" * ((1 << 20) - 1), b"c" * (4 << 20), b"last"]
    keys = [b"k" * (1 << 20), None, b"key", None, b"", b"k"]
    recs = [Rec(offset=n, key=key, value=value) for n, (key, value) in enumerate(zip(keys, values, strict=True))]
    chunk, _, error = decode(Segment(batch(recs, codec=codec), Segments()), 0)
    assert error is None
    once, twice = records_of(chunk), records_of(chunk)
    assert [(each.key, each.value) for each in once] == list(zip(keys, values, strict=True))
    shared = [again.value is each.value for again, each in zip(twice, once, strict=True)]
    assert shared == [False, True, True, False, True, False]
    assert chunk is not None
    for part, first in ((chunk, 0), (chunk.split(3)[1], 3)):
        for views in (False, True):
            table = part.to_arrow(["key", "value"], binary_view=views).to_pydict()
            assert table == {"key": keys[first:], "value": values[first:]}


def test_records_that_are_gone_over_are_not_all_there_at_once() -> None:
    """Each of them is gone before many others are made."""
    values = [b"%04d" % n * 250 for n in range(5000)]
    chunk, _, _ = decode(batch([Rec(offset=n, value=value) for n, value in enumerate(values)]))
    gone_over = ConsumerRecords([Delivery(partition=TopicPartition("t", 3), chunk=chunk, epoch=1, seek_number=2)])
    assert [record.value for record in gone_over] == values
    assert [record.offset for record in gone_over] == list(range(5000))
    tracemalloc.start()
    deque(gone_over, maxlen=0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 100_000 < most < 1_000_000, "of five million"


def test_batches_of_all_codecs_in_one_set() -> None:
    data = b"".join(batch(plain(2 * n, 2 * n + 1), codec=codec) for n, codec in enumerate(CODECS))
    assert read(data) == (list(range(10)), 10)


def test_nothing_at_all_is_nothing() -> None:
    assert decode(b"", 41) == (None, 41, None)


def test_records_below_the_fetch_offset_are_dropped() -> None:
    data = batch(plain(0, 1, 2, 3)) + batch(plain(4, 5))
    assert read(data, 2) == ([2, 3, 4, 5], 6)
    assert read(data[_first_length(data) :], 5) == ([5], 6)


def _first_length(data: bytes) -> int:
    return 12 + int.from_bytes(data[8:12], "big")


def test_a_batch_that_is_cut_off_at_the_end_is_no_error() -> None:
    whole, cut = batch(plain(0, 1)), batch(plain(2, 3))
    for length in range(len(cut)):
        assert read(whole + cut[:length]) == ([0, 1], 2)


@pytest.mark.parametrize("length", [1, 16, 17, 60, 61, 70])
def test_a_set_without_a_complete_batch_is_corrupt(length: int) -> None:
    offsets, error = corrupt(batch(plain(0, 1))[:length], 0)
    assert offsets == []
    assert "no complete batch" in str(error)


def test_a_set_that_ends_before_the_fetch_offset_is_corrupt() -> None:
    """Or it would be fetched again and again."""
    _, error = corrupt(batch(plain(0, 1)), 2)
    assert "lies before the requested offset, 2" in str(error)


def test_control_batches_are_never_returned() -> None:
    data = batch(plain(0), transactional=True, producer_id=9) + marker(1, 9, commit=True) + batch(plain(2))
    assert read(data) == ([0, 2], 3)
    assert read(data, read_committed=True) == ([0, 2], 3)
    assert read(marker(7, 9, commit=True), 7) == ([], 8)


@pytest.mark.parametrize(
    "behind",
    [
        marker(2, 9, commit=True, leader_epoch=4),
        batch([], base_offset=2, leader_epoch=4),
        batch(plain(2), transactional=True, producer_id=9, leader_epoch=4),
    ],
    ids=["a marker", "a batch that compaction emptied", "an aborted transaction"],
)
def test_the_leader_epoch_behind_records_is_that_of_the_last_batch(behind: bytes) -> None:
    """With that of the last record, a validation of the position 3 would say that the log was cut at 2 (KIP-320)."""
    chunk, _, _ = decode(batch(plain(0, 1), leader_epoch=3) + behind, 0, read_committed=True, aborted=[(9, 2)])
    assert (chunk.next_offset, chunk.leader_epoch) == (3, 4)
    assert [record.leader_epoch for record in records_of(chunk)] == [3, 3]
    first, rest = chunk.split(1)
    assert (first.leader_epoch, rest.leader_epoch) == (3, 4)
    (alone,) = decode_record_set(
        memoryview(behind), topic="t", partition=0, fetch_offset=2, read_committed=True, aborted=[(9, 2)]
    )
    assert (alone.chunk, alone.next_offset, alone.leader_epoch) == (None, 3, 4)


def test_the_last_part_of_a_batch_lets_go_of_all_of_it() -> None:
    """It keeps the memory of all parts."""
    chunk, _, _ = decode(batch([Rec(offset=offset, value=bytes(1000)) for offset in range(10)]))
    first, rest = chunk.split(9)
    assert chunk.lets_go_of == chunk.nbytes > 10_000
    assert (first.lets_go_of, rest.lets_go_of) == (first.nbytes, chunk.nbytes)


def test_the_leader_epoch_between_two_pieces_is_that_of_the_batch_between_them() -> None:
    data = batch(plain(0, 1), leader_epoch=3) + marker(2, 9, commit=True, leader_epoch=4)
    records = RecordSet(memoryview(data + batch(plain(3, 4), leader_epoch=5)), topic="t", partition=0, fetch_offset=0)
    small = 1
    first = records.decode(small, 1 << 20)
    records.detach()
    second = records.decode(small, 1 << 20)
    assert first is not None
    assert second is not None
    assert [(each.next_offset, each.leader_epoch) for each in (first, second)] == [(3, 4), (5, 5)]
    assert [each.chunk.leader_epoch for each in (first, second) if each.chunk is not None] == [4, 5]


@pytest.mark.parametrize(
    ("stated", "epochs", "believed"),
    [
        ((3, 4), (3, 4), (3, 4)),
        ((4, 3), (3, 4), (4, -1)),  # it goes back
        ((2, 3), (3, 4), (-1, 3)),  # it was past already
        ((5, 4), (3, 4), (-1, 4)),  # the leader does not know it yet
        ((1 << 30, -(1 << 31)), (-1, 4), (-1, -1)),
        ((0, 2), (9, 4), (-1, -1)),  # committed by whoever may
        ((9, 3), (-1, -1), (9, 3)),  # of a broker that tells no epochs
    ],
)
def test_a_leader_epoch_that_cannot_be_is_none(
    stated: tuple[int, int], epochs: tuple[int, int], believed: tuple[int, int]
) -> None:
    """The checksum does not cover it. With a wrong one a position would be taken for one that was cut off (KIP-320)."""
    data = batch(plain(0), leader_epoch=stated[0]) + batch(plain(1), leader_epoch=stated[1])
    for records in (data, batch(plain(0), codec="gzip", leader_epoch=stated[0]) + data[len(data) // 2 :]):
        (piece,) = decode_record_set(memoryview(records), topic="t", partition=0, fetch_offset=0, epochs=epochs)
        assert piece.chunk is not None
        assert tuple(each.leader_epoch for each in records_of(piece.chunk)) == believed
        assert piece.chunk.leader_epoch == believed[1]


def test_a_leader_epoch_that_goes_back_is_none_also_behind_what_was_copied_out() -> None:
    data = batch(plain(0), leader_epoch=5) + batch(plain(1), leader_epoch=3)
    records = RecordSet(
        memoryview(data), topic="t", partition=0, fetch_offset=0, epochs=(0, 8), frame_bytes=100 * len(data)
    )
    first = records.decode(1, 1 << 20)
    records.detach()
    second = records.decode(1, 1 << 20)
    pieces = [each.chunk for each in (first, second) if each is not None]
    assert [record.leader_epoch for chunk in pieces for record in records_of(chunk)] == [5, -1]


def test_only_an_abort_marker_of_its_producer_closes_an_aborted_transaction() -> None:
    log = batch(plain(0), transactional=True, producer_id=1) + marker(1, 1, commit=True)
    log += marker(2, 8, commit=False) + batch(plain(3), transactional=True, producer_id=1)
    log += marker(4, 1, commit=False) + batch(plain(5), transactional=True, producer_id=1)
    assert read(log, read_committed=True, aborted=[(1, 0)]) == ([5], 6)


def test_what_a_producer_writes_outside_its_transactions_is_returned() -> None:
    log = batch(plain(0), transactional=True, producer_id=1) + batch(plain(1), producer_id=1)
    assert read(log, read_committed=True, aborted=[(1, 0)]) == ([1], 2)


def test_log_append_time_is_the_batch_s_max_timestamp() -> None:
    chunk, _, _ = decode(batch(FULL, log_append=True, max_timestamp=5555), 5)
    assert [(r.timestamp, r.timestamp_type) for r in records_of(chunk)] == [(5555, 1)] * 3


def test_timestamps_wrap_as_java_s_do() -> None:
    """A producer makes the delta by a subtraction that may overflow, so the sum must overflow back."""
    low, high = -1, (1 << 63) - 1
    section = record(Rec(offset=0, timestamp=low), 0, low)
    wrapped = (high - low) - (1 << 64)
    section += record(Rec(offset=1, timestamp=low + wrapped), 0, low)
    data = batch([Rec(offset=0, timestamp=low), Rec(offset=1, timestamp=low)], compressed=section)
    chunk, _, error = decode(data)
    assert error is None
    assert [r.timestamp for r in records_of(chunk)] == [low, high]


def test_leader_epoch_comes_from_the_batch_of_the_record() -> None:
    chunk, _, _ = decode(batch(plain(0, 1), leader_epoch=3) + batch(plain(2), leader_epoch=4))
    assert chunk is not None
    assert [r.leader_epoch for r in records_of(chunk)] == [3, 3, 4]
    assert chunk.leader_epoch == 4
    left, right = chunk.split(2)
    assert (left.leader_epoch, right.leader_epoch) == (3, 4)


@pytest.mark.requirement("surface/headers")
def test_header_names_that_are_not_utf_8_are_kept_readable() -> None:
    section = record(Rec(offset=0, headers=(("xx", b"1"),)), 0, 0).replace(b"xx", b"\xff\xfe")
    chunk, _, error = decode(batch([Rec(offset=0)], compressed=section))
    assert error is None
    assert records_of(chunk)[0].headers == (("\ufffd\ufffd", b"1"),)


# Java's vectors (FetcherTest), by their names there. The first, testFetchedRecordsRaisesOnSerializationErrors, is
# about deserializers, which the wire does not know.


@pytest.mark.vector(59)
def test_parse_invalid_record_batch() -> None:
    good = batch(plain(0, 1))
    bad = bytearray(batch(plain(2, 3, 4)))
    bad[-1] ^= 1
    offsets, error = corrupt(good + bytes(bad) + batch(plain(5)))
    assert offsets == [0, 1]
    assert error.offset == 2
    assert "checksum" in str(error)


@pytest.mark.vector(60)
def test_read_committed_with_committed_and_aborted_transactions() -> None:
    """1 commits, 2 aborts, their records interleaved, and 1 begins and aborts one more."""

    def data(offset: int, producer_id: int) -> bytes:
        return batch(plain(offset), transactional=True, producer_id=producer_id)

    log = [data(0, 1), data(1, 2), data(2, 1), marker(3, 1, commit=True), data(4, 2), marker(5, 2, commit=False)]
    log += [data(6, 1), data(7, 1), marker(8, 1, commit=False), data(9, 2), marker(10, 2, commit=True)]
    aborted = [(2, 1), (1, 6)]
    assert read(b"".join(log), read_committed=True, aborted=aborted) == ([0, 2, 9], 11)
    assert read(b"".join(log), aborted=aborted) == ([0, 1, 2, 4, 6, 7, 9], 11)


@pytest.mark.vector(61)
def test_multiple_abort_markers() -> None:
    log = batch(plain(0), transactional=True, producer_id=1) + marker(1, 1, commit=False)
    log += marker(2, 1, commit=False) + batch(plain(3, 4), transactional=True, producer_id=1)
    log += marker(5, 1, commit=True)
    assert read(log, read_committed=True, aborted=[(1, 0)]) == ([3, 4], 6)


@pytest.mark.vector(62)
def test_read_committed_abort_marker_with_no_data() -> None:
    log = marker(5, 1, commit=False) + batch(plain(6, 7, 8), transactional=True, producer_id=1)
    log += marker(9, 1, commit=True)
    assert read(log, 5, read_committed=True, aborted=[(1, 0)]) == ([6, 7, 8], 10)


@pytest.mark.vector(63)
def test_read_committed_with_compacted_topic() -> None:
    """The log cleaner took the first records of each transaction; what is aborted still begins before."""

    def data(producer_id: int, *offsets: int) -> bytes:
        return batch(plain(*offsets), transactional=True, producer_id=producer_id)

    log = data(3, 3, 4) + data(2, 10, 15) + data(1, 20, 25) + marker(26, 2, commit=False)
    log += marker(27, 1, commit=False) + marker(28, 3, commit=True) + data(2, 30, 31, 32) + marker(40, 2, commit=True)
    aborted = [(2, 6), (1, 0)]
    assert read(log, read_committed=True, aborted=aborted) == ([3, 4, 30, 31, 32], 41)


@pytest.mark.vector(64)
def test_consumer_position_updated_when_skipping_aborted_transactions() -> None:
    log = batch(plain(0, 1), transactional=True, producer_id=1) + marker(2, 1, commit=False)
    assert read(log, read_committed=True, aborted=[(1, 0)]) == ([], 3)


@pytest.mark.vector(65)
def test_update_position_with_last_record_missing_from_batch() -> None:
    assert read(batch(plain(0, 1, 2), last_delta=3)) == ([0, 1, 2], 4)


@pytest.mark.vector(65)
def test_update_position_on_empty_batch() -> None:
    assert read(batch([], base_offset=37, last_delta=17), 37) == ([], 55)


@pytest.mark.vector(66)
def test_empty_control_batch() -> None:
    empty = batch([], base_offset=1, control=True, transactional=True, producer_id=1)
    log = empty + batch(plain(2, 3), transactional=True, producer_id=1) + marker(4, 1, commit=True)
    assert read(log, 1, read_committed=True, aborted=[(1, 0)])[1] == 5
    assert read(log, 1, read_committed=True) == ([2, 3], 5)


@pytest.mark.vector(48)
def test_fetch_non_continuous_records() -> None:
    assert read(batch(plain(15, 20, 30)), 15) == ([15, 20, 30], 31)


# Chunks


def test_a_chunk_splits_without_copying() -> None:
    chunk, _, _ = decode(batch(plain(0, 2, 4), last_delta=9) + marker(10, 1, commit=True), 1)
    assert chunk is not None
    assert (len(chunk), chunk.first_offset, chunk.last_offset, chunk.next_offset) == (2, 2, 4, 11)
    left, right = chunk.split(1)
    assert left.columns is right.columns
    assert (left.first_offset, left.last_offset, left.next_offset, len(left)) == (2, 2, 3, 1)
    assert (right.first_offset, right.last_offset, right.next_offset, len(right)) == (4, 4, 11, 1)
    assert [r.offset for r in records_of(left) + records_of(right)] == [2, 4]
    assert left.nbytes + right.nbytes == chunk.nbytes


@pytest.mark.parametrize("count", [-1, 0, 2, 3])
def test_a_split_leaves_no_part_empty(count: int) -> None:
    chunk, _, _ = decode(batch(plain(0, 1)))
    assert chunk is not None
    with pytest.raises(ValueError, match="cannot split"):
        chunk.split(count)


@given(
    sizes=st.lists(
        st.lists(st.tuples(st.none() | st.integers(0, 40), st.none() | st.integers(0, 40), st.integers(0, 3))),
        min_size=1,
        max_size=4,
    ),
    codecs=st.lists(st.sampled_from(sorted(CODECS)), min_size=4, max_size=4),
    most=st.integers(1, 5),
)
def test_the_parts_of_a_chunk_account_for_all_of_it(
    sizes: list[list[tuple[int | None, int | None, int]]], codecs: list[str], most: int
) -> None:
    """Or a buffer that is taken bit by bit never counts as empty, and is not filled again."""
    data, offset = b"", 0
    for batch_sizes, codec in zip(sizes, codecs, strict=False):
        records = [
            Rec(offset=offset + n, key=_of(key), value=_of(value), headers=(("trace", b"t" * 50),) * headers)
            for n, (key, value, headers) in enumerate(batch_sizes)
        ]
        if records:
            data += batch(records, codec=codec)
            offset += len(records)
    if not data:
        return
    chunk, _, _ = decode(data)
    for rest in getattr(chunk, "chunks", [chunk]):
        whole, taken = rest.nbytes, 0
        while len(rest) > most:
            part, rest = rest.split(most)  # noqa: PLW2901
            assert part.nbytes > 0
            taken += part.nbytes
        assert taken + rest.nbytes == whole


def _of(size: int | None) -> bytes | None:
    return None if size is None else b"x" * size


def test_nbytes_follows_the_data() -> None:
    small, _, _ = decode(batch([Rec(offset=0, value=b"v")]))
    large, _, _ = decode(batch([Rec(offset=0, value=b"v" * 5000)]))
    assert small is not None
    assert large is not None
    assert large.nbytes - small.nbytes == pytest.approx(4999, abs=4)


# --- where the next fetch goes on, by the headers ----------------------------------------------------------------


def ahead(data: bytes, fetch_offset: int = 0) -> int:
    return RecordSet(memoryview(data), topic="t", partition=0, fetch_offset=fetch_offset).next_offset


@pytest.mark.parametrize("codec", CODECS)
def test_headers_say_where_the_next_fetch_goes_on(codec: str) -> None:
    data = batch(plain(2, 3), codec=codec) + batch(plain(7), codec=codec)
    assert ahead(data, 3) == read(data, 3)[1] == 8
    assert ahead(data[:-1], 3) == read(data[:-1], 3)[1] == 4, "the last one is cut off"


def test_what_returns_no_record_leads_on_as_well() -> None:
    data = batch(plain(0, 1)) + marker(2, producer_id=1, commit=True)
    assert ahead(data) == read(data)[1] == 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        batch(plain(0, 1))[:-1],
        batch(plain(0, 1))[:16],
        batch(plain(5, 6)) + batch(plain(5, 6)),
        batch(plain(0, 1)) + batch(plain(2))[:16] + b"\x01" + batch(plain(2))[17:],
        batch(plain(0, 1)) + batch(plain(2))[:8] + b"\x00\x00\x00\x30" + batch(plain(2))[12:],
        batch(plain(0, 1)) + batch(plain(2))[:8] + b"\xff" + batch(plain(2))[9:],
        b"\xff" + batch(plain(0, 1))[1:],
        b"\x7f" + batch(plain(0, 1))[1:],
        batch(plain(0, 1))[:23] + b"\xff" + batch(plain(0, 1))[24:],
    ],
    ids=["none", "cut", "cut early", "no rise", "format", "short", "negative", "base", "overflow", "delta"],
)
def test_headers_that_are_none_lead_no_further(data: bytes) -> None:
    assert ahead(data) == 0


@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_bytes_lead_back_never(data: bytes, cut: int) -> None:
    assert ahead((batch(plain(3, 4)) + data)[:cut], 3) >= 3


def _decoded(data: bytes, *, committed: bool, capacity: int, most: int) -> list[object]:
    pieces = decode_record_set(
        memoryview(data),
        topic="t",
        partition=3,
        fetch_offset=0,
        read_committed=committed,
        aborted=[(1, 0)],
        end=1000,
        epochs=(0, 8),
        capacity=capacity,
        max_decompressed_bytes=most,
    )
    found: list[object] = []
    for piece in pieces:
        chunk = piece.chunk
        rows = None if chunk is None else [*chunk.records(epoch=1, seek_number=0), chunk.leader_epoch, len(chunk)]
        found.append((rows, piece.next_offset, piece.leader_epoch, piece.nbytes, str(piece.corrupt)))
    return found


_KINDS = st.sampled_from(
    ["plain", "plain", "plain", "gzip", "control", "empty", "producer", "aborted", "gap", "back", "count", "crc", "cut"]
)


def _several(kinds: list[str]) -> bytes:
    """Batches of two records, one of each kind. Those of producer 1 are aborted until its marker comes."""
    out, offset = b"", 0
    for kind in kinds:
        at = max(0, offset + {"gap": 5, "back": -1}.get(kind, 0))
        own: dict[str, Any] = {"base_offset": at, "last_delta": 1}
        if kind in ("producer", "aborted"):
            own |= {"transactional": True, "producer_id": 1 if kind == "aborted" else 9}
        if kind == "count":
            own["count"] = 9
        if kind == "control":
            one = marker(at, 1, commit=False)
        else:
            one = batch([] if kind == "empty" else plain(at, at + 1), codec="gzip" if kind == "gzip" else "none", **own)
        out += {"crc": one[:-1] + bytes([one[-1] ^ 1]), "cut": one[:-1]}.get(kind, one)
        offset = at + 2
    return out


@given(
    kinds=st.lists(_KINDS, min_size=1, max_size=8),
    committed=st.booleans(),
    capacity=st.integers(100, 2000),
    most=st.sampled_from([72, 1 << 16]),
)
def test_batches_of_one_run_are_those_that_are_read_one_by_one(
    kinds: list[str], committed: bool, capacity: int, most: int
) -> None:
    data = _several(kinds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_set, "MARKS", {})  # what is compressed ends its pieces elsewhere: see below
        together = _decoded(data, committed=committed, capacity=capacity, most=most)
        patch.setattr(BatchWalk, "run", lambda self, found, count, limit, most, scale=1: count)
        assert _decoded(data, committed=committed, capacity=capacity, most=most) == together


_GOOD = ["good", "good", "good", "good", "large", "none", "snappy", "control", "empty", "producer", "aborted", "gap"]
_COMPRESSED = st.tuples(st.sampled_from([*_GOOD, "broken", "long", "count", "crc"]), st.integers(0, 400))


def _compressed(kinds: list[tuple[str, int]], codec: str, *, epoch: int | None = None) -> bytes:
    """Batches of two records, one of each kind, with values of so many bytes. Those of producer 1 are aborted."""
    out, at = b"", 0
    for kind, size in kinds:
        at += 5 if kind == "gap" else 0
        value = bytes(size * 20) if kind == "large" else random.Random(size).randbytes(size)
        recs = [] if kind == "empty" else [Rec(offset=at + n, value=value) for n in range(2)]
        own: dict[str, Any] = {
            "leader_epoch": size % 10 if epoch is None else epoch,
            "base_offset": at,
            "last_delta": 1,
            "codec": kind if kind in ("none", "snappy") else codec,
        }
        if kind in ("producer", "aborted"):
            own |= {"transactional": True, "producer_id": 1 if kind == "aborted" else 9}
        if kind == "count":
            own["count"] = 3 + size
        one = marker(at, 1, commit=False) if kind == "control" else batch(recs, **own)
        if kind in ("broken", "long"):
            records = one[61:]
            own["compressed"] = records[: size % len(records)] if kind == "broken" else records + records
            one = batch(recs, **own)
        out += one[:-1] + bytes([one[-1] ^ 1]) if kind == "crc" else one
        at += 2
    return out


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
@given(
    kinds=st.lists(_COMPRESSED, min_size=1, max_size=12),
    committed=st.booleans(),
    capacity=st.integers(100, 20_000),
    most=st.sampled_from([1000, 4000, 1 << 16]),
)
def test_batches_that_one_call_decompresses_are_those_that_come_one_by_one(
    codec: str, kinds: list[tuple[str, int]], committed: bool, capacity: int, most: int
) -> None:
    """Pieces may end elsewhere."""

    def whole() -> tuple[list[object], object]:
        pieces: list[Any] = _decoded(data, committed=committed, capacity=capacity, most=most)
        records = [record for rows, *_ in pieces if rows is not None for record in rows[:-2]]
        # A buffer may keep a quarter more than it has. What is not compressed stays where it is, with all around it.
        assert plain_ones or all(nbytes <= max(capacity, most) * 5 // 4 for *_, nbytes, _ in pieces)
        return records, (pieces[-1][1], pieces[-1][2], pieces[-1][4])

    data, plain_ones = _compressed(kinds, codec), any(kind == "none" for kind, _ in kinds)
    together = whole()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_set, "MARKS", {})
        assert whole() == together


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
@given(
    kinds=st.lists(_COMPRESSED, min_size=1, max_size=12),
    committed=st.booleans(),
    target=st.integers(1, 4000),
    detached=st.booleans(),
)
def test_so_are_those_of_small_pieces_and_what_was_copied_out_between_them(
    codec: str, kinds: list[tuple[str, int]], committed: bool, target: int, detached: bool
) -> None:
    def whole() -> tuple[list[object], int, str]:
        records, found, piece = _set_of(data, committed=committed), list[object](), None
        while not records.done:
            piece = records.decode(target, 4 * target) or records.decode(target, 4 * target, alone=True)
            assert piece is not None
            found += [] if piece.chunk is None else piece.chunk.records(epoch=1, seek_number=0)
            if detached:
                records.detach()
        return found, -1 if piece is None else piece.next_offset, "" if piece is None else str(piece.corrupt)

    data = _compressed(kinds, codec, epoch=7)
    together = whole()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_set, "MARKS", {})
        assert whole() == together


def _set_of(data: bytes, *, committed: bool) -> RecordSet:
    """A small part of a response."""
    return RecordSet(
        memoryview(data),
        topic="t",
        partition=3,
        fetch_offset=0,
        read_committed=committed,
        aborted=lambda: [(1, 0)],
        end=1000,
        frame_bytes=100 * len(data),
        max_decompressed_bytes=1 << 16,
    )


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_those_before_a_broken_batch_are_returned_though_it_was_joined_to_them(codec: str) -> None:
    good = [batch(plain(n, n + 1), codec=codec) for n in range(0, 20, 2)]
    broken = batch(plain(20, 21), codec=codec, compressed=good[0][61:-5])
    behind = [batch(plain(n, n + 1), codec=codec) for n in range(22, 30, 2)]
    offsets, error = corrupt(b"".join([*good, broken, *behind]))
    assert offsets == list(range(20))
    assert "in the batch of offsets 20 to 21" in str(error)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_small_compressed_batches_go_to_the_codec_many_at_a_time(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And two hundred of them not far more often than twenty."""
    fills: list[int] = []
    before = Sections._fill

    def fill(sections: Sections, codec: int, data: memoryview, space: int) -> int:
        fills.append(len(data))
        return before(sections, codec, data, space)

    monkeypatch.setattr(Sections, "_fill", fill)
    for count, most in ((20, 6), (200, 10)):
        fills.clear()
        assert read(b"".join(batch(plain(n, n + 1), codec=codec) for n in range(0, 2 * count, 2)))[1] == 2 * count
        assert len(fills) <= most


def _compressible(codec: str, rows: int) -> bytes:
    """Twelve batches, whose rows have 10 kB each and become a hundred times as much as they came."""
    text = b"flight of today " * 625
    one = batch([Rec(offset=offset, value=b"%04d" % offset + text) for offset in range(rows)], codec=codec)
    return b"".join((number * rows).to_bytes(8, "big") + one[8:] for number in range(12))


def _in_pieces(data: bytes, target: int) -> list[int]:
    """How many bytes each piece keeps."""
    records, sizes = RecordSet(memoryview(data), topic="t", partition=3, fetch_offset=0), []
    while not records.done:
        piece = records.decode(target, 1 << 30)
        assert piece is not None
        assert piece.corrupt is None
        sizes.append(piece.nbytes)
    return sizes


@pytest.mark.drawn(4)
@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("rows", [30, 110, 350])
def test_a_batch_that_becomes_much_is_decompressed_once(codec: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the first one: how much it becomes is not known before."""
    fills: list[int] = []
    before = Sections._fill

    def fill(sections: Sections, codec: int, data: memoryview, space: int) -> int:
        fills.append(before(sections, codec, data, space))
        return fills[-1]

    monkeypatch.setattr(Sections, "_fill", fill)
    _in_pieces(_compressible(codec, rows), 4 << 20)
    tries = next(number for number, size in enumerate(fills) if size > 0)
    assert (tries <= 5, fills[tries:].count(-1)) == (True, 0)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_piece_of_compressed_batches_is_not_much(codec: str) -> None:
    """What is decompressed is gone over while the cache has it."""
    sizes = _in_pieces(_compressible(codec, 60), 16 << 20)
    assert (len(sizes), max(sizes) < 9 << 18) == (4, True)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_without_capacity_nothing_is_decompressed_in_vain(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was in every turn of the network thread, for as long as a full buffer was not polled."""
    appends: list[int] = []
    before = Sections.append

    def append(sections: Sections, codec: int, data: memoryview, limit: int, *, expected_bytes: int) -> tuple[int, int]:
        appends.append(limit)
        return before(sections, codec, data, limit, expected_bytes=expected_bytes)

    monkeypatch.setattr(Sections, "append", append)
    records = _set_of(batch(plain(*range(100)), codec=codec), committed=False)
    for capacity in (0, -1, 0, 0):
        assert records.decode(1 << 20, capacity) is None
    assert appends == []
    piece = records.decode(1 << 20, 1 << 20)
    assert piece is not None
    assert piece.next_offset == 100
    assert piece.chunk is not None
    assert len(piece.chunk) == 100


def test_ten_times_the_batches_take_no_more_calls() -> None:
    """Of Python: those that are read like the one before cost none."""
    few, many = (b"".join(batch(plain(n)) for n in range(count)) for count in (20, 200))
    decode(few)
    assert calls(lambda: decode(many)) <= calls(lambda: decode(few))


def test_pages_that_the_process_has_locked_into_memory_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after mlockall: the system gives none of them back. The network thread ended of it."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(Pages, "madvise", refuse)
    monkeypatch.setattr(Pages, "resize", refuse)
    values = [bytes([n]) * size for n, size in enumerate([1000, 2 << 20, *[500_000] * 20])]
    chunk, next_offset, error = decode(
        batch([Rec(offset=n, value=each) for n, each in enumerate(values)], codec="zstd")
    )
    assert (next_offset, error) == (22, None)
    assert [each.value for each in records_of(chunk)] == values


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("target", [1, 0, -1000])
def test_alone_a_batch_is_decoded_whatever_the_target(codec: str, target: int) -> None:
    log = batch(plain(0), codec=codec) + batch(plain(1), codec=codec)
    records = RecordSet(memoryview(log), topic="t", partition=3, fetch_offset=0)
    piece = records.decode(target, target, alone=True)
    assert piece is not None
    assert (piece.next_offset, piece.corrupt, len(records_of(piece.chunk))) == (1, None, 1)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_where_the_bound_is_more_than_the_system_gives_less_is_taken(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a bounded address space, say, no batch over 8 MiB could ever be read."""

    def pages(size: int) -> Pages:
        if size > 20 << 20:
            raise MemoryError
        return Pages(size)

    monkeypatch.setattr(compression, "Pages", pages)
    value = b"v" * (9 << 20)
    chunk, _, error = decode(batch([Rec(offset=0, value=value)], codec=codec), max_decompressed_bytes=1 << 30)
    assert error is None
    assert [each.value for each in records_of(chunk)] == [value]


def test_of_a_large_response_what_is_copied_out_is_not_there_twice() -> None:
    """Its pages are given back part by part: a response of 60 MB took 120 while it was taken apart."""
    log = batch([Rec(offset=n, value=bytes([n + 1]) * 1_000_000) for n in range(12)])
    response = Segments().new(bytes(2 * len(log)))
    response[len(log) :] = log
    records = RecordSet(
        memoryview(response)[len(log) :], topic="t", partition=3, fetch_offset=0, frame_bytes=len(response)
    )
    records.detach()
    left = [place for place in range(len(log), len(response), 1 << 16) if response[place]]
    assert len(left) <= len(log) >> 20, "a page at most where two parts meet"
    piece = records.decode(1 << 20, 1 << 30)
    assert piece is not None
    assert [each.value[:1] for each in records_of(piece.chunk)] == [bytes([n + 1]) for n in range(12)]


def test_a_small_part_of_a_large_response_gives_its_pages_back() -> None:
    log = batch([Rec(offset=0, value=b"a" * 100_000)])
    response = Segments().new(log + bytes(9 << 20))
    records = RecordSet(
        memoryview(response)[: len(log)], topic="t", partition=3, fetch_offset=0, frame_bytes=len(response)
    )
    records.detach()
    assert response[50_000] == 0
    piece = records.decode(1 << 20, 1 << 20)
    assert piece is not None
    assert [each.value for each in records_of(piece.chunk)] == [b"a" * 100_000]


def test_a_usual_response_keeps_its_pages_for_the_next_one() -> None:
    """All full responses gave them back once, as 8 MiB was over a fixed bound: half of the rate was lost."""
    log = batch([Rec(offset=0, value=b"a" * 100_000)])
    response = Segments().new(log + bytes(9 << 20))
    records = RecordSet(
        memoryview(response)[: len(log)], topic="t", partition=3, fetch_offset=0, frame_bytes=len(response)
    )
    records.detach(usual=len(response))
    assert response[: len(log)] == log
    piece = records.decode(1 << 20, 1 << 20)
    assert piece is not None
    assert [each.value for each in records_of(piece.chunk)] == [b"a" * 100_000]


@pytest.mark.parametrize("room", [True, False])
def test_a_small_part_of_a_response_stays_where_it_is_while_memory_is_free(*, room: bool) -> None:
    log = batch([Rec(offset=0, value=b"a" * 1000)]) + batch([Rec(offset=1, value=b"b" * 1000)])
    segments = Segments(60_000)
    response = segments.new(log + bytes(20_000))
    segments.keep(response)
    records = RecordSet(
        memoryview(response)[: len(log)], topic="t", partition=3, fetch_offset=0, frame_bytes=len(response)
    )
    others = segments.new(bytes(1000 if room else 50_000))
    view = memoryview(others)  # of which nobody counts a byte
    segments.keep(others)
    found = []
    while not records.done:
        piece = records.decode(1, 1 << 20)
        assert piece is not None
        if piece.chunk is not None:
            assert 1000 < piece.nbytes < 1200, "its own part, whatever else stays"
            found.append(piece.chunk)
        records.detach(stays=True)
    del records, piece
    assert is_in_use(response) == room
    assert is_in_use(view.obj)
    assert [each.value for chunk in found for each in records_of(chunk)] == [b"a" * 1000, b"b" * 1000]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_decompressed_into_the_same_memory_again(codec: str) -> None:
    """Each piece of 2 MiB came to new pages, which cost more than to decompress it."""
    segments = Segments(16 << 20)
    log = b"".join(batch([Rec(offset=n, value=b"%d" % n * 100_000)], codec=codec) for n in range(60))
    response = segments.new(log)
    view = memoryview(response)
    segments.keep(response)
    memory: list[object] = []
    kept: list[Any] = []
    for _ in range(3):
        records = RecordSet(view, topic="t", partition=3, fetch_offset=0, frame_bytes=len(response))
        while not records.done:
            piece = records.decode(2 << 20, 1 << 30)
            assert piece is not None
            assert piece.corrupt is None
            if piece.chunk is not None and len(kept) < 2:
                kept.append(piece.chunk)
            del piece
        now = segments.decompressed._kept
        memory = memory or list(now)
        assert {id(each) for each in now} == {id(each) for each in memory}
    assert 2 <= len(memory) <= 4, "two are kept"
    for chunk in kept:
        for each in records_of(chunk):
            assert each.value == b"%d" % each.offset * 100_000, "nothing was written to what is kept"


def is_in_use(buffer: Any) -> bool:
    try:
        buffer.append(0)
    except BufferError:
        return True
    return False


@pytest.mark.parametrize(("size", "kept"), [(1 << 20, True), (9 << 20, False)])
@pytest.mark.parametrize("frame", ["short", "long", "in pages"])
def test_what_is_free_makes_way_for_a_large_batch(frame: str, size: int, *, kept: bool) -> None:
    """However the response came: a bomb is short, and one that is too long to be kept has pages of its own, beside
    which nothing is kept."""
    segments = Segments(9 << 20)
    frames = FrameBuffer(max_frame_bytes=1 << 30, segments=segments)
    log = batch([Rec(offset=0, value=b"a" * size)], codec="zstd")
    body = log + bytes({"short": 0, "long": 70_000, "in pages": 20 << 20}[frame])
    frames.receive_data(struct.pack(">i", 5) + b"first")
    (response,) = frames.receive_data(struct.pack(">i", len(body)) + body)
    segments.keep(segments.new(bytes(1000)))
    records = RecordSet(
        response[: len(log)], topic="t", partition=3, fetch_offset=0, frame_bytes=memoryview(response.obj).nbytes
    )
    piece = records.decode(1, 10, alone=True)
    assert piece is not None
    assert piece.corrupt is None
    assert (segments.take(1000) is not None) == (kept and frame != "in pages")


@pytest.mark.parametrize(
    ("sizes", "requested", "next_offset"),
    [
        ((2, 2), 1, 2),
        ((7, 7), 1, 1),
        ((7, 7), 6, 1),
        ((7, 7), 8, 2),
        ((3,) * 10, 1, 2),
        ((3,) * 10, 5, 3),
        ((20,), 1, 1),
        ((20, 1), 1, 1),
    ],
)
def test_what_is_far_beyond_what_was_requested_is_as_good_as_cut_off(
    sizes: tuple[int, ...], requested: int, next_offset: int
) -> None:
    """In MiB. One batch is whole in any case (KIP-74), and 8 MiB are no matter. Of a broker that sent 52 MB for one all
    was kept for minutes."""
    log = b"".join(batch([Rec(offset=place, value=bytes(size << 20))]) for place, size in enumerate(sizes))
    records = RecordSet(memoryview(log), topic="t", partition=3, fetch_offset=0, requested_bytes=requested << 20)
    assert records.next_offset == next_offset
    found = records.decode(1 << 30, 1 << 30)
    assert found is not None
    assert (found.next_offset, found.corrupt) == (next_offset, None)
    assert records.length == len(log)


@pytest.mark.parametrize(("most", "read_on"), [(1000, True), (10, False)])
def test_what_follows_a_batch_may_be_dropped(most: int, *, read_on: bool) -> None:
    """It is fetched again: what is left says that the batch was the last."""
    log = batch(plain(0), codec="zstd") + batch(plain(1), codec="zstd")
    records = RecordSet(memoryview(log), topic="t", partition=3, fetch_offset=0, frame_bytes=1 << 20)
    assert records.decode(1, 10) is None
    records.detach(most)
    piece = records.decode(1, 10, alone=True)
    assert piece is not None
    assert (piece.next_offset, piece.corrupt, records.done) == (1, None, not read_on)
