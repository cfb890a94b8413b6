"""A broker of one node that keeps a topic "t", and responds as Kafka does wherever a case does not make it lie.

Laws
1. A case overrides what it lies about, and no more. Everything else is right: what suffers is seen.
2. It counts what it was asked, so that a judge can tell patience from a storm.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from attack.bytes_of import array, assignment, batch, record, text
from instride._wire.message_codecs import read_request

__all__ = ["Broker", "Request"]

VERSIONS = {18: 0, 3: 7, 10: 1, 11: 5, 14: 3, 12: 3, 13: 2, 9: 5, 8: 7, 2: 5, 23: 3, 1: 11, 17: 1, 36: 1}
# aiokafka has Metadata up to 5 and ListOffsets up to 3: both without the leaders' epochs.
_LEAST = {3: 5, 2: 2}
PER_BATCH = 10

Request = dict[str, Any]


class Broker:
    """Serves until it is closed. partitions: of "t". end: each log's; a batch has ten records."""

    partitions = 3
    end = 200
    sasl = False
    settings: Mapping[str, Any] = MappingProxyType({})
    """The victim's, where they come from this very broker: its certificate authority."""

    def __init__(self) -> None:
        self.requested: Counter[int] = Counter()
        self.fetched: Counter[int] = Counter()
        # Of the request that this thread responds to: its version; of a fetch, how many bytes of a partition it wants.
        self.asking = threading.local()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._start(self._accept)

    def _start(self, serve: Callable[..., None], *arguments: object) -> None:
        started = threading.Thread(target=serve, args=arguments, daemon=True)
        started.start()
        self._threads.append(started)  # only now: `close` waits for those that have begun

    def close(self) -> None:
        """It waits for its threads, but not for ever: a case may have one sleep."""
        for each in (self._server, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        until = time.monotonic() + 1.0
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    # -- serving

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            self._sockets.append(peer)
            self._start(self._serve, peer)

    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError, struct.error), peer.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", head)[0])
                peer.sendall(self.response(frame))

    def response(self, frame: bytes) -> bytes:
        """The whole of it, with its length."""
        key, version, correlation, client = struct.unpack_from(">hhih", frame)
        self.requested[key] += 1
        body = self.body(key, version, frame[10 + max(client, 0) :])
        return struct.pack(">ii", len(body) + 4, correlation) + body

    def body(self, key: int, version: int, rest: bytes) -> bytes:
        self.asking.version = version
        if key == 18:
            return self.versions(version)
        return self.respond(key, read_request(rest, key, version))

    def respond(self, key: int, request: Request) -> bytes:
        made: bytes = {
            3: self.metadata,
            10: self.coordinator,
            11: self.join,
            14: self.sync,
            12: lambda _: struct.pack(">ih", 0, self.heartbeat_error()),
            13: lambda _: bytes(6),
            9: self.committed,
            8: self.commit,
            2: self.list_offsets,
            23: self.epoch_ends,
            1: self.fetch,
            17: self.sasl_handshake,
            36: self.sasl_authenticate,
        }[key](request)
        return made

    # -- what a case may lie about

    def versions(self, version: int) -> bytes:
        offered = [key for key in VERSIONS if self.sasl or key < 17 or key == 23]
        known = [struct.pack(">hhh", key, _LEAST.get(key, VERSIONS[key]), VERSIONS[key]) for key in offered]
        # Of no use here, but librdkafka takes a broker without Produce for one of 2015.
        known += [struct.pack(">hhh", 18, 0, 0), struct.pack(">hhh", 0, 3, 8)]
        return struct.pack(">h", 35 if version else 0) + array(known)

    def nodes(self) -> list[tuple[int, str, int]]:
        return [(1, "127.0.0.1", self.port)]

    def partition_entry(self, topic: str, index: int) -> bytes:
        return struct.pack(">hiiiiiiii", 0, index, 1, 0, 1, 1, 1, 1, 0)

    def topic_entry(self, topic: str) -> bytes:
        if topic != "t":
            return struct.pack(">h", 3) + text(topic) + b"\0" + array(())
        entries: Iterable[bytes] = (self.partition_entry(topic, index) for index in range(self.partitions))
        if self.asking.version < 7:
            entries = (each[:10] + each[14:] for each in entries)
        return struct.pack(">h", 0) + text(topic) + b"\0" + array(entries)

    def metadata(self, request: Request) -> bytes:
        nodes = (
            struct.pack(">i", node) + text(host) + struct.pack(">i", port) + text(None)
            for node, host, port in self.nodes()
        )
        names = ["t"] if request["topics"] is None else [each["name"] for each in request["topics"]]
        return bytes(4) + array(nodes) + text("c") + struct.pack(">i", 1) + array(map(self.topic_entry, names))

    def coordinator(self, _: Request) -> bytes:
        return (
            struct.pack(">ih", 0, 0)
            + text(None)
            + struct.pack(">i", 1)
            + text("127.0.0.1")
            + struct.pack(">i", self.port)
        )

    def heartbeat_error(self) -> int:
        return 0

    def join(self, request: Request) -> bytes:
        """Another member leads."""
        return self.joined(request, leader="other", members=())

    def joined(self, request: Request, *, leader: str, members: tuple[tuple[str, bytes], ...], error: int = 0) -> bytes:
        protocol = request["protocols"][0]["name"]
        listed = (text(name) + text(None) + struct.pack(">i", len(known)) + known for name, known in members)
        return struct.pack(">ihi", 0, error, 1) + text(protocol) + text(leader) + text("me") + array(listed)

    def leads(self, request: Request, *fellows: tuple[str, bytes]) -> bytes:
        """We lead, beside members with these subscriptions."""
        mine = bytes(request["protocols"][0]["metadata"])
        return self.joined(request, leader="me", members=(("me", mine), *fellows))

    def sync(self, request: Request) -> bytes:
        given = {each["member_id"]: bytes(each["assignment"]) for each in request["assignments"]}
        return self.synced(given.get("me") or assignment({"t": range(self.partitions)}))

    def synced(self, given: bytes, error: int = 0) -> bytes:
        return struct.pack(">ihi", 0, error, len(given)) + given

    def committed(self, request: Request) -> bytes:
        def topic(requested: Request) -> bytes:
            numbers = requested["partition_indexes"]
            return text(requested["name"]) + array(struct.pack(">iqihh", each, -1, -1, 0, 0) for each in numbers)

        return bytes(4) + array(map(topic, request["topics"] or ())) + bytes(2)

    def commit(self, request: Request) -> bytes:
        def topic(requested: Request) -> bytes:
            return text(requested["name"]) + array(
                struct.pack(">ih", each["partition_index"], 0) for each in requested["partitions"]
            )

        return bytes(4) + array(map(topic, request["topics"]))

    def list_offsets(self, request: Request) -> bytes:
        size = 26 if self.asking.version >= 4 else 22

        def offset(each: Request) -> bytes:
            found = 0 if each["timestamp"] == -2 else self.end
            return struct.pack(">ihqqi", each["partition_index"], 0, -1, found, 0)[:size]

        def topic(requested: Request) -> bytes:
            return text(requested["name"]) + array(map(offset, requested["partitions"]))

        return bytes(4) + array(map(topic, request["topics"]))

    def epoch_ends(self, request: Request) -> bytes:
        def topic(requested: Request) -> bytes:
            return text(requested["topic"]) + array(
                struct.pack(">hiiq", 0, each["partition"], 0, self.end) for each in requested["partitions"]
            )

        return bytes(4) + array(map(topic, request["topics"]))

    def fetch(self, request: Request) -> bytes:
        entries: dict[str, list[bytes]] = {}
        brought = brought_bytes = 0
        for topic in request["topics"]:
            for each in topic["partitions"]:
                self.fetched[each["partition"]] += 1
                self.asking.most = min(each["partition_max_bytes"], request["max_bytes"] - brought_bytes)
                entry = self.fetch_entry(each["partition"], each["fetch_offset"])
                brought += len(entry) > 60
                brought_bytes += len(entry)
                entries.setdefault(topic["topic"], []).append(entry)
        if not brought:
            self.linger()
        return struct.pack(">ihi", 0, 0, 0) + array(text(topic) + array(each) for topic, each in entries.items())

    def linger(self) -> None:
        """There is nothing new."""
        time.sleep(0.05)

    def fetch_entry(self, index: int, offset: int) -> bytes:
        return self.fetched_entry(index, self.records(index, offset))

    def fetched_entry(
        self, index: int, records: bytes, *, error: int = 0, end: int | None = None, aborted: bytes = b""
    ) -> bytes:
        end = self.end if end is None else end
        head = struct.pack(">ihqqq", index, error, end, end, 0)
        return head + struct.pack(">i", len(aborted) // 16) + aborted + struct.pack(">ii", -1, len(records)) + records

    def records(self, index: int, offset: int) -> bytes:
        """One batch, whose records say where they belong."""
        base = offset - offset % PER_BATCH
        if offset >= self.end:
            return b""
        return batch(base, b"".join(record(n, b"%d:%d" % (index, base + n)) for n in range(PER_BATCH)), PER_BATCH)

    def sasl_handshake(self, _: Request) -> bytes:
        return struct.pack(">h", 0) + array([text("PLAIN")])

    def sasl_authenticate(self, _: Request) -> bytes:
        return struct.pack(">hhiq", 0, -1, 0, 0)
