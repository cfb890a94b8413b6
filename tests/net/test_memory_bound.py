"""What a consumer holds of what brokers and producers send stays within the bound that docs/settings.md publishes.

Each case runs in a process of its own, whose memory is measured: a network machine with the real codec, brokers that
respond to every fetch with as much as it asks for, and an application that consumes nothing, or leaves a few records of
each partition (a poll takes some of each chunk).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
MIB = 1 << 20

SCRIPT = """
import io, json, resource, struct, sys
from importlib import import_module
from uuid import UUID

from kio.serial import entity_writer
from network_script import NetworkScript, tp
from record_batches import Rec, batch
from response_builder import build

from instride._core.events import Consumed, Fetched
from instride._wire import api
from instride._wire.fetch_codec import decode_fetch

codec, partitions, budget, records, size, leaves = json.loads(sys.argv[1])
SCHEMA = import_module("kio.schema.fetch.v12.response").FetchResponse
line = b"2026-01-01 12:00:00 INFO request %06d of flight UA%04d was done in %03d ms; path=/api/v2/flights"
value = lambda n: (line % (n, n % 9999, n % 777) * (size // 100 + 1))[:size]
ONE = batch([Rec(offset=n, key=b"k", value=value(n)) for n in range(records)], codec=codec)


def log(offset, most):
    base = offset - offset % records
    out = [struct.pack(">q", base) + ONE[8:]]
    while (len(out) + 1) * len(ONE) <= most:
        out.append(struct.pack(">q", base + len(out) * records) + ONE[8:])
    return b"".join(out)


def body(request):
    parts, left = [], request.max_bytes
    for each in request.known.values() or request.partitions:
        data = log(each.offset, min(each.max_bytes, left)) if left > 0 else None
        left -= len(data or b"")
        ends = {"high_watermark": 1 << 50, "last_stable_offset": 1 << 50}
        parts.append({"partition_index": each.partition, "records": data, **ends})
    out = io.BytesIO()
    entity_writer(SCHEMA)(out, build(SCHEMA, {"responses": [{"topic": "t", "partitions": parts}]}))
    return memoryview(out.getvalue())


def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


script = NetworkScript(topics={"t": partitions}, fetch_buffer_bytes=budget)
script.member_of(1, *range(partitions))
buffers, most, start, fetched = {}, 0, memory(), 0
for turn in range(200):
    fetches = [each for each in script.waiting if isinstance(each.request, api.Fetch)]
    if not fetches:
        break
    request = fetches[0].request
    script.response(api.Fetch, decode_fetch(body(request), 12, request))
    most = max(most, memory())
    for event in script.take(Fetched):
        if event.chunk is not None:
            fetched += len(event.chunk)
            buffers.setdefault(event.partition, []).append((event, event.chunk))
    script.delivered[:] = [each for each in script.delivered if not isinstance(each, Fetched)]
    for partition, chunks in buffers.items() if leaves else ():
        (event, chunk), records_of, bytes_of = chunks[-1], 0, 0
        for _, each in chunks[:-1]:
            records_of, bytes_of = records_of + len(each), bytes_of + each.nbytes
        if len(chunk) > leaves:
            left, chunk = chunk.split(len(chunk) - leaves)
            records_of, bytes_of = records_of + len(left), bytes_of + left.nbytes
        chunks[:] = [(event, chunk)]
        left = each = None
        script.do(Consumed(partitions={partition: (event.epoch, event.fetch_number, records_of, bytes_of)}))
most = max(most, memory())
print(json.dumps([most - start, turn, fetched]))
"""


@pytest.mark.drawn(2)
@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.parametrize(
    ("codec", "partitions", "budget", "records", "size", "leaves"),
    [
        ("gzip", 50, 64 * MIB, 1000, 1000, 0),
        ("zstd", 3, 8 * MIB, 4000, 1000, 0),
        ("none", 50, 64 * MIB, 200, 1000, 0),
        ("none", 50, 64 * MIB, 200, 1000, 5),
        ("lz4", 200, 64 * MIB, 500, 1000, 5),
    ],
)
def test_what_is_buffered_stays_within_the_bound(
    codec: str, partitions: int, budget: int, records: int, size: int, leaves: int
) -> None:
    case = json.dumps([codec, partitions, budget, records, size, leaves])
    paths = [str(TESTS / "core" / "network"), str(TESTS / "wire")]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}\n{SCRIPT}", case],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"},  # what is freed, goes
    )
    assert done.returncode == 0, done.stderr
    bytes_kept, turns, fetched = json.loads(done.stdout)
    assert bytes_kept < budget * 1.1 + 40 * MIB, f"{bytes_kept / MIB:.0f} MiB after {turns} responses"
    assert fetched > 0
