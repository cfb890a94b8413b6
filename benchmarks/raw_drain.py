"""The ceiling: what any client could read at most. Responses go into one buffer; only the batches' headers are read.

The partitions are shared out among `connections` x `outstanding` groups. Each group has one fetch outstanding, each
connection a thread.
"""

from __future__ import annotations

import queue
import socket
import ssl
import struct
import threading
from collections.abc import Iterator

_BATCH = struct.Struct(">qi")
_ROWS = struct.Struct(">i")
_TO_LAST_DELTA = 23


def drain(
    servers: str,
    topic: str,
    *,
    partitions: int,
    partition_bytes: int,
    fetch_bytes: int,
    connections: int,
    outstanding: int,
    ca_file: str = "",
) -> Iterator[int]:
    """How many rows each response held."""
    host, port = servers.split(",", maxsplit=1)[0].rsplit(":", 1)
    found: queue.SimpleQueue[int] = queue.SimpleQueue()
    for mine in shared(partitions, connections, outstanding):
        peer = socket.create_connection((host, int(port)))
        if ca_file:
            peer = ssl.create_default_context(cafile=ca_file).wrap_socket(peer, server_hostname=host)
        connection = _Connection(peer, topic, mine, partition_bytes, fetch_bytes)
        threading.Thread(target=connection.run, args=(found,), daemon=True).start()
    while True:
        yield found.get()


def shared(partitions: int, connections: int, outstanding: int) -> list[list[list[int]]]:
    """The groups of each connection. A group without partitions would ask the broker again and again for nothing."""
    groups = min(connections * outstanding, partitions)
    return [
        [list(range(group, partitions, groups)) for group in range(number, groups, connections)]
        for number in range(min(connections, groups))
    ]


class _Connection:
    def __init__(
        self, peer: socket.socket, topic: str, groups: list[list[int]], partition_bytes: int, fetch_bytes: int
    ) -> None:
        self._peer = peer
        self._topic = struct.pack(">h", len(topic)) + topic.encode()
        self._groups = groups
        self._offsets = dict.fromkeys((each for group in groups for each in group), 0)
        self._limits = partition_bytes, fetch_bytes
        self._buffer = bytearray(fetch_bytes + (1 << 20))

    def run(self, found: queue.SimpleQueue[int]) -> None:
        for number in range(len(self._groups)):
            self._request(number)
        while True:
            self._receive(4)
            length = _ROWS.unpack_from(self._buffer)[0]
            self._receive(length)
            number = _ROWS.unpack_from(self._buffer)[0]
            rows = self._take()
            self._request(number)
            found.put(rows)

    def _receive(self, length: int) -> None:
        view, done = memoryview(self._buffer), 0
        while done < length:
            done += self._peer.recv_into(view[done:length])

    def _request(self, number: int) -> None:
        """Fetch v11, without a session."""
        partition_bytes, fetch_bytes = self._limits
        group = self._groups[number]
        rows = b"".join(struct.pack(">iiqqi", each, -1, self._offsets[each], -1, partition_bytes) for each in group)
        body = struct.pack(">hhih", 1, 11, number, -1) + struct.pack(">iiiibii", -1, 500, 1, fetch_bytes, 0, 0, -1)
        body += struct.pack(">i", 1) + self._topic + struct.pack(">i", len(group)) + rows + struct.pack(">ih", 0, 0)
        self._peer.sendall(struct.pack(">i", len(body)) + body)

    def _take(self) -> int:
        """Move on behind each partition's last whole batch; the rows on the way."""
        place, rows = 4 + 4 + 2 + 4, 0
        for _ in range(self._number(place)):
            place += 4 + len(self._topic)
            count, place = self._number(place), place + 4
            for _ in range(count):
                partition = self._number(place)
                aborted = self._number(place + 30)
                place += 34 + 16 * max(0, aborted) + 4
                length, place = self._number(place), place + 4
                rows += self._walk(partition, place, place + length)
                place += length
        return rows

    def _walk(self, partition: int, place: int, end: int) -> int:
        rows = 0
        while place + 12 <= end:
            base, length = _BATCH.unpack_from(self._buffer, place)
            if place + 12 + length > end:
                break
            count = self._number(place + _TO_LAST_DELTA) + 1
            self._offsets[partition] = base + count
            rows += count
            place += 12 + length
        return rows

    def _number(self, place: int) -> int:
        return int(_ROWS.unpack_from(self._buffer, place)[0])
