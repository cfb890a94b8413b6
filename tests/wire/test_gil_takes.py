"""How often decoding gives up the GIL: a few times for all batches, but of snappy once a batch (its package does)."""

from __future__ import annotations

import platform
import sys

import cramjam
import pytest
import record_batches
from record_batches import CODECS

from benchmarks.batches import Log, batch
from gil_takes import gil_takes
from instride._wire.compression import Sections
from instride._wire.decoder import COMPILED
from instride._wire.record_set import decode_record_set

pytestmark = pytest.mark.skipif(
    not COMPILED or sys.platform != "linux" or platform.architecture()[0] != "64bit",
    reason="only compiled code gives it up; the count needs Linux's format of modules",
)


def record_set(codec: str, batches: int, rows: int) -> memoryview:
    """Of snappy each batch is one block, as librdkafka writes it."""
    one = batch(0, Log(rows=rows, codec=codec, key=True))
    return memoryview(b"".join((number * rows).to_bytes(8, "big") + one[8:] for number in range(batches)))


def takes(data: memoryview, *, to_arrow: bool = False) -> int:
    """Of decoding one partition's part of a response, after it was decoded once."""

    def read() -> None:
        (piece,) = decode_record_set(data, topic="t", partition=0, fetch_offset=0)
        assert piece.chunk is not None
        if to_arrow:
            piece.chunk.to_arrow()

    read()
    return gil_takes(read)


@pytest.mark.parametrize("rows", [10, 140])
@pytest.mark.parametrize(("codec", "of_a_batch"), [(codec, int(codec == "snappy")) for codec in CODECS])
def test_a_batch_of_snappy_takes_the_gil_once_and_another_never(codec: str, of_a_batch: int, rows: int) -> None:
    few, many = (takes(record_set(codec, batches, rows)) for batches in (10, 60))
    # Two: a buffer that was guessed too small has a batch decompressed twice.
    assert 50 * of_a_batch <= many - few <= 50 * of_a_batch + 2, f"{few} of 10 batches, {many} of 60"
    assert of_a_batch or many <= 8


@pytest.mark.parametrize("codec", CODECS)
def test_arrow_takes_the_gil_some_times_more_for_all_batches(codec: str) -> None:
    data = record_set(codec, 60, 140)
    columns, arrow = (takes(data, to_arrow=to_arrow) for to_arrow in (False, True))
    assert arrow - columns <= 4, f"{columns} without Arrow, {arrow} with it"


def test_a_batch_of_snappy_from_java_takes_the_gil_once_a_block() -> None:
    """Of 32 KiB each, in snappy-java's framing, which the package does not know."""
    blocks = 8
    data = record_batches.xerial(bytes(blocks << 15), 32 << 10)
    sections = Sections(blocks << 15)
    assert gil_takes(lambda: sections.append(CODECS.index("snappy"), memoryview(data), 1 << 20)) == blocks


@pytest.mark.parametrize("codec", CODECS[1:])
def test_one_call_of_the_package_takes_the_gil_once_however_much_it_is(codec: str) -> None:
    package = getattr(cramjam, codec)
    unpack = package.decompress_raw_into if codec == "snappy" else package.decompress_into
    for size in (100, 1 << 20):
        packed = bytes(package.compress_raw(bytes(size)) if codec == "snappy" else package.compress(bytes(size)))
        target = bytearray(size)
        assert gil_takes(lambda packed=packed, target=target: unpack(packed, target)) == 1  # type: ignore[misc]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_the_package_unpacks_several_batches_in_one_take(codec: str) -> None:
    """But for snappy, whose raw blocks have no end of their own."""
    package = getattr(cramjam, codec)
    packed, target = bytes(package.compress(b"abc")) + bytes(package.compress(b"def")), bytearray(6)
    assert gil_takes(lambda: package.decompress_into(packed, target)) == 1
    assert target == b"abcdef"
