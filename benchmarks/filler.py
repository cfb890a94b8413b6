"""Fill a topic with prebuilt batches: far quicker than a producer, and the same bytes for each run."""

from __future__ import annotations

import socket
import struct

from benchmarks.batches import Log, batch

_IN_FLIGHT = 4
_REQUEST_BYTES = 1 << 20
_SECONDS = 60.0
_ROW = 4 + 2 + 8 + 8 + 8
"""Of a response: a partition, its error code, its base offset, a time and its log's start."""


def fill(servers: str, topic: str, log: Log, rows: int) -> int:
    """Four requests in flight, each with a batch of one partition, or of several if they are small; returns how many
    rows there are then.

    By Produce v7, the first version that takes zstd.
    """
    host, port = servers.split(",", maxsplit=1)[0].rsplit(":", 1)
    records = batch(0, log)
    turns = -(-rows // (log.rows * log.hot))
    most = max(1, _REQUEST_BYTES // len(records))
    requests = [_produce(topic, range(first, min(first + most, log.hot)), records) for first in range(0, log.hot, most)]
    with socket.create_connection((host, int(port)), timeout=_SECONDS) as peer:
        replies, in_flight = peer.makefile("rb"), 0
        for _ in range(turns):
            for request in requests:
                peer.sendall(request)
                in_flight += 1
                if in_flight > _IN_FLIGHT:
                    _accepted(replies.read(struct.unpack(">i", replies.read(4))[0]))
                    in_flight -= 1
        while in_flight:
            _accepted(replies.read(struct.unpack(">i", replies.read(4))[0]))
            in_flight -= 1
    return turns * log.rows * log.hot


def _produce(topic: str, partitions: range, records: bytes) -> bytes:
    """Every request has the correlation id 0: a connection's responses come in order."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    head = struct.pack(">hhih", 0, 7, 0, -1) + struct.pack(">hhi", -1, 1, 30_000)
    rows = b"".join(struct.pack(">ii", each, len(records)) + records for each in partitions)
    body = struct.pack(">i", 1) + name + struct.pack(">i", len(partitions)) + rows
    return struct.pack(">i", len(head) + len(body)) + head + body


def _accepted(reply: bytes) -> None:
    """Correlation id, one topic, its partitions: each error code must be 0."""
    (length,) = struct.unpack_from(">h", reply, 8)
    (count,) = struct.unpack_from(">i", reply, 10 + length)
    for number in range(count):
        partition, code = struct.unpack_from(">ih", reply, 14 + length + _ROW * number)
        if code:
            raise SystemExit(f"the broker refused a batch of partition {partition}: error {code}")
