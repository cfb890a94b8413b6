"""Fill a topic with prebuilt batches: far quicker than a producer, and the same bytes for each run."""

from __future__ import annotations

import socket
import struct

from benchmarks.batches import Log, batch

_BATCHES_A_REQUEST = 4
_SECONDS = 60.0


def fill(servers: str, topic: str, log: Log, rows: int) -> int:
    """One partition after the other, four batches in flight; returns how many rows there are then.

    By Produce v7, the first version that takes zstd.
    """
    host, port = servers.split(",", maxsplit=1)[0].rsplit(":", 1)
    records = batch(0, log)
    turns = -(-rows // (log.rows * log.hot))
    with socket.create_connection((host, int(port)), timeout=_SECONDS) as peer:
        replies, in_flight = peer.makefile("rb"), 0
        for turn in range(turns):
            for partition in range(log.hot):
                peer.sendall(_produce(topic, partition, records, turn))
                in_flight += 1
                if in_flight > _BATCHES_A_REQUEST:
                    _accepted(replies.read(struct.unpack(">i", replies.read(4))[0]))
                    in_flight -= 1
        while in_flight:
            _accepted(replies.read(struct.unpack(">i", replies.read(4))[0]))
            in_flight -= 1
    return turns * log.rows * log.hot


def _produce(topic: str, partition: int, records: bytes, number: int) -> bytes:
    name = struct.pack(">h", len(topic)) + topic.encode()
    head = struct.pack(">hhih", 0, 7, number, -1) + struct.pack(">hhi", -1, 1, 30_000)
    body = struct.pack(">i", 1) + name + struct.pack(">iii", 1, partition, len(records)) + records
    return struct.pack(">i", len(head) + len(body)) + head + body


def _accepted(reply: bytes) -> None:
    """Correlation id, one topic, one partition: its error code must be 0."""
    (length,) = struct.unpack_from(">h", reply, 8)
    (code,) = struct.unpack_from(">h", reply, 10 + length + 8)
    if code:
        raise SystemExit(f"the broker refused a batch: error {code}")
