"""How fast record sets become columns, Arrow and record objects: one core, bytes in the cache, best of several runs.

    python -m benchmarks.decoder [--codec none|gzip|snappy|lz4|zstd]

Checksums (and decompression) are in every figure but the one named so. Records are made 500 at a time, as polls
hand them out; keeping them all would measure the memory instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from crc32c import crc32c

from benchmarks.batches import CODECS, Log, batch
from instride._wire.chunk import RecordChunk
from instride._wire.decoder import COMPILED
from instride._wire.record_set import decode_record_set

POLL = 500
TOTAL_BYTES = 2 << 20  # of one record set, before compression


def record_set(rows: int, size: int, codec: str) -> memoryview:
    count = max(1, TOTAL_BYTES // (rows * (size + 20)))
    one = batch(0, Log(rows=rows, size=size, key=True, codec=codec))
    return memoryview(b"".join((n * rows).to_bytes(8, "big") + one[8:] for n in range(count)))


def decode(data: memoryview) -> RecordChunk:
    (piece,) = decode_record_set(data, topic="flights", partition=0, fetch_offset=0)
    if piece.chunk is None or piece.corrupt is not None:
        raise RuntimeError(f"the benchmark's own records cannot be read: {piece.corrupt}")
    return piece.chunk


def polls(chunk: RecordChunk) -> None:
    rest = chunk
    while len(rest) > POLL:
        first, rest = rest.split(POLL)
        first.records(epoch=1, seek_number=0)
    rest.records(epoch=1, seek_number=0)


def seconds(work: Callable[[], object], runs: int = 30) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def checksums(data: memoryview) -> None:
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "big")
        crc32c(data[at + 21 : at + 12 + length])
        at += 12 + length


def measure(label: str, rows: int, size: int, codec: str) -> None:
    data = record_set(rows, size, codec)
    count = len(decode(data))
    figures = {
        "checksums only": seconds(lambda: checksums(data)),
        "columns": seconds(lambda: decode(data)),
        "Arrow": seconds(lambda: decode(data).to_arrow()),
        "records": seconds(lambda: polls(decode(data))),
    }
    row = "".join(f"{count / taken / 1e6:>16.1f}" for taken in figures.values())
    print(f"{label:<24}{row}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", choices=CODECS, default="none")
    codec = parser.parse_args().codec
    print(f"{'M rows/s, ' + codec:<24}{'checksums only':>16}{'columns':>16}{'Arrow':>16}{'records':>16}")
    if not COMPILED:
        print("(uncompiled: INSTRIDE_PURE=1)")
    measure("100 B, 140 a batch", 140, 100, codec)
    measure("100 B, 10 a batch", 10, 100, codec)
    measure("1 KB, 16 a batch", 16, 1000, codec)


if __name__ == "__main__":
    main()
