"""How fast record sets become columns, Arrow and record objects: CPU of one thread, bytes in the cache, best of runs.

    python -m benchmarks.decoder [--codec none|gzip|snappy|lz4|zstd ...]

Checksums (and decompression) are in every figure but the one named so. Records are made 500 at a time, as polls
hand them out; keeping them all would measure the memory instead.

With a codec the last column compares the way to Arrow with the least that it could take: the bare library (cramjam,
each batch's payload into a buffer that is there already) and the uncompressed path together. 1.00: nothing besides.

"other work %": how much of the machine other work took meanwhile. A row with more than 5 % is void; the table says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import cramjam
from crc32c import crc32c

from benchmarks.batches import CODECS, Log, batch
from benchmarks.load import ForeignLoad, foreign_cell
from instride._wire.decoder import COMPILED
from instride._wire.memory_pool import Segments
from instride._wire.record_chunk import RecordChunk
from instride._wire.record_set import decode_record_set

POLL = 500
TOTAL_BYTES = 2 << 20  # of one record set, before compression


# As a consumer's: what is decompressed goes into its memory.
POOL = Segments(16 << 20)


def record_set(rows: int, size: int, codec: str) -> memoryview:
    count = max(1, TOTAL_BYTES // (rows * (size + 20)))
    one = batch(0, Log(rows=rows, size=size, key=True, codec=codec))
    return memoryview(POOL.new(b"".join((n * rows).to_bytes(8, "big") + one[8:] for n in range(count))))


def decode(data: memoryview) -> list[RecordChunk]:
    chunks = []
    for piece in decode_record_set(data, topic="flights", partition=0, fetch_offset=0):
        if piece.chunk is None or piece.corrupt is not None:
            raise RuntimeError(f"the benchmark's own records cannot be read: {piece.corrupt}")
        chunks.append(piece.chunk)
    return chunks


def to_arrow(chunks: list[RecordChunk], columns: Sequence[str] | None = None) -> None:
    for chunk in chunks:
        chunk.to_arrow(columns)


def polls(chunks: list[RecordChunk]) -> None:
    for rest in chunks:
        while len(rest) > POLL:
            first, rest = rest.split(POLL)  # noqa: PLW2901
            first.records(epoch=1, seek_number=0)
        rest.records(epoch=1, seek_number=0)


def seconds(work: Callable[[], object], runs: int = 30) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return best


def checksums(data: memoryview) -> None:
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "big")
        crc32c(data[at + 21 : at + 12 + length])
        at += 12 + length


def bare(data: memoryview, codec: str, space: bytearray) -> None:
    """Decompress each batch's payload by the library alone."""
    decompress = cramjam.snappy.decompress_raw_into if codec == "snappy" else getattr(cramjam, codec).decompress_into
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "big")
        decompress(data[at + 61 : at + 12 + length], space)
        at += 12 + length


def of_least(rows: int, size: int, codec: str, taken: float) -> float:
    """Of the time of the bare library and of the uncompressed path to Arrow together, over what was taken."""
    data, plain = record_set(rows, size, codec), record_set(rows, size, "none")
    space = bytearray(rows * (size + 64))
    least = seconds(lambda: bare(data, codec, space)) + seconds(lambda: to_arrow(decode(plain)))
    return least / taken


def measure(rows: int, size: int, codec: str) -> dict[str, float]:
    """M rows a second of each form."""
    load = ForeignLoad()
    data = record_set(rows, size, codec)
    count = sum(map(len, decode(data)))
    taken = {
        "checksums only": seconds(lambda: checksums(data)),
        "columns": seconds(lambda: decode(data)),
        "Arrow": seconds(lambda: to_arrow(decode(data))),
        "records": seconds(lambda: polls(decode(data))),
    }
    figures = {form: count / each / 1e6 for form, each in taken.items()}
    if codec != "none":
        figures["of the least"] = of_least(rows, size, codec, taken["Arrow"])
    return {**figures, "foreign": load.share()}


SHAPES = {"100 B, 140 a batch": (140, 100), "100 B, 10 a batch": (10, 100), "1 KB, 16 a batch": (16, 1000)}


def main(arguments: list[str]) -> dict[str, dict[str, dict[str, float]]]:
    parser = argparse.ArgumentParser(
        prog="benchmarks decoder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--codec", choices=CODECS, nargs="+", default=["none"])
    chosen = parser.parse_args(arguments)
    if not COMPILED:
        print("(uncompiled: INSTRIDE_PURE=1)")
    found: dict[str, dict[str, dict[str, float]]] = {}
    for codec in chosen.codec:
        last = "" if codec == "none" else f"{'of the least':>16}"
        print(
            f"{'M rows/s, ' + codec:<24}{'checksums only':>16}{'columns':>16}{'Arrow':>16}{'records':>16}{last}"
            f"{'other work %':>16}"
        )
        found[codec] = {}
        for label, (rows, size) in SHAPES.items():
            found[codec][label] = row = measure(rows, size, codec)
            cells = "".join(f"{row[each]:>16.{2 if 'least' in each else 1}f}" for each in row if each != "foreign")
            print(f"{label:<24}{cells}{foreign_cell(row['foreign'])}", flush=True)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
