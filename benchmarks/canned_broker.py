"""A broker in a process of its own that replays prebuilt record batches: what a client costs, without Kafka's own cost.

It knows four requests (ApiVersions, Metadata, ListOffsets, Fetch with sessions). Partitions below `hot` have records
without end; of the others it says that they are empty. Batches are prebuilt; only their base offsets are written anew,
which no checksum covers.
"""

from __future__ import annotations

import multiprocessing
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.batches import Log, batch

TOPIC = "canned"
_END = 1 << 50
_SESSION = 7
_BASE_OFFSET = struct.Struct(">q")


@dataclass(slots=True)
class Counts:
    """Shared with the broker's process. Of connections that fetch records, in seconds: idle while no fetch was there to
    respond to, busy while one was."""

    idle: object
    busy: object
    fetches: object
    named: object

    @property
    def without_a_fetch(self) -> float:
        """A share of the time, as the broker sees it: what it has sent may still be on its way."""
        idle, busy = self.idle.value, self.busy.value  # type: ignore[attr-defined]
        return float(idle / ((idle + busy) or 1.0))


class _Reader:
    """A request's fields, old and not flexible."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self._data, self._at)
        self._at += struct.calcsize(">" + form)
        return int(value)

    def row(self, form: struct.Struct) -> tuple[int, ...]:
        found = form.unpack_from(self._data, self._at)
        self._at += form.size
        return found

    def text(self) -> str:
        length = self.take("h")
        self._at += max(0, length)
        return self._data[self._at - max(0, length) : self._at].decode()


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _api_versions() -> bytes:
    ranges = ((1, 11, 11), (2, 2, 2), (3, 7, 7), (18, 0, 3))
    rows = b"".join(struct.pack(">hhhb", *each, 0) for each in ranges)
    return struct.pack(">hb", 0, len(ranges) + 1) + rows + struct.pack(">ib", 0, 0)


def _metadata(log: Log, port: int) -> bytes:
    broker = struct.pack(">ii", 1, 0) + _text("127.0.0.1") + struct.pack(">ih", port, -1)
    rows = b"".join(struct.pack(">hiiiiiiii", 0, number, 0, 3, 1, 0, 1, 0, 0) for number in range(log.partitions))
    topic = struct.pack(">h", 0) + _text(TOPIC) + struct.pack(">bi", 0, log.partitions) + rows
    return struct.pack(">i", 0) + broker + struct.pack(">hi", -1, 0) + struct.pack(">i", 1) + topic


class _Connection:
    """One client's connection: responds in order, in a thread."""

    _REQUESTED = struct.Struct(">iiqqi")

    def __init__(self, log: Log, peer: socket.socket, port: int, template: bytes, step: int, counts: Counts) -> None:
        self._log = log
        self._peer = peer
        self._port = port
        self._template = bytearray(template)
        self._step = step
        self._counts = counts
        self._session: dict[int, tuple[int, int]] = {}
        self._hot: dict[int, None] = {}

    def serve(self) -> None:
        stream = self._peer.makefile("rb", buffering=1 << 16)
        ended = time.perf_counter()
        while head := stream.read(4):
            came, fetches_records = time.perf_counter(), bool(self._hot)
            body = _Reader(stream.read(struct.unpack(">i", head)[0]))
            key, version, number = body.take("h"), body.take("h"), body.take("i")
            body.text()
            parts = self._respond(key, body)
            frame = [struct.pack(">ii", 4 + sum(map(len, parts)), number), *parts]
            self._send(frame)
            before, ended = ended, time.perf_counter()
            if fetches_records:
                self._counts.idle.value += came - before  # type: ignore[attr-defined]
                self._counts.busy.value += ended - came  # type: ignore[attr-defined]
            del version

    def _send(self, parts: list[bytes | memoryview]) -> None:
        if self._log.tls:
            self._peer.sendall(b"".join(parts))
            return
        rest = [memoryview(each) for each in parts]
        while rest:
            sent = self._peer.sendmsg(rest[:512])
            while rest and sent >= len(rest[0]):
                sent -= len(rest.pop(0))
            if sent:
                rest[0] = rest[0][sent:]

    def _respond(self, key: int, body: _Reader) -> list[bytes | memoryview]:
        if key == 18:
            return [_api_versions()]
        if key == 3:
            return [_metadata(self._log, self._port)]
        if key == 2:
            return [self._offsets(body)]
        return self._fetch(body)

    def _offsets(self, body: _Reader) -> bytes:
        body.take("i"), body.take("b")
        out = struct.pack(">ii", 0, body.take("i"))
        out += _text(body.text())
        count = body.take("i")
        requested = [body.row(struct.Struct(">iq"))[0] for _ in range(count)]
        return out + struct.pack(">i", count) + b"".join(struct.pack(">ihqq", each, 0, -1, 0) for each in requested)

    def _fetch(self, body: _Reader) -> list[bytes | memoryview]:
        body.take("i")
        wait, _, most, _ = body.take("i"), body.take("i"), body.take("i"), body.take("b")
        body.take("i")
        full = body.take("i") == 0
        if full:
            self._session, self._hot = {}, {}
        for _ in range(body.take("i")):
            body.text()
            count = body.take("i")
            self._counts.named.value += count  # type: ignore[attr-defined]
            for _ in range(count):
                number, _, offset, _, limit = body.row(self._REQUESTED)
                self._session[number] = (offset, limit)
                if number < self._log.hot:
                    self._hot[number] = None
        for _ in range(body.take("i")):
            body.text()
            for _ in range(body.take("i")):
                number = body.take("i")
                self._session.pop(number, None)
                self._hot.pop(number, None)
        self._counts.fetches.value += 1  # type: ignore[attr-defined]
        if not self._hot and not full:
            time.sleep(wait / 1000)
        return self._records(full=full, most=most)

    def _records(self, *, full: bool, most: int) -> list[bytes | memoryview]:
        out: list[bytes | memoryview] = []
        listed, used = 0, 0
        for number in list(self._hot):
            offset, limit = self._session[number]
            if used >= most:
                break
            records = self._batches(offset, max(len(self._template) // 16, min(limit, most - used)))
            used += len(records)
            listed += 1
            out += [struct.pack(">ihqqqiii", number, 0, _END, _END, 0, -1, -1, len(records)), records]
            del self._hot[number]  # what was sent goes to the end
            self._hot[number] = None
        if full:
            quiet = [each for each in self._session if each >= self._log.hot]
            listed += len(quiet)
            out += [struct.pack(">ihqqqiii", each, 0, 0, 0, 0, -1, -1, 0) for each in quiet]
            unlisted = [each for each in self._hot if used >= most and each not in list(self._hot)[-listed:]]
            listed += len(unlisted)
            out += [struct.pack(">ihqqqiii", each, 0, _END, _END, 0, -1, -1, 0) for each in unlisted]
        head = struct.pack(">ihi", 0, 0, _SESSION)
        topics = struct.pack(">i", 1) + _text(TOPIC) + struct.pack(">i", listed) if listed else struct.pack(">i", 0)
        return [head, topics, *out]

    def _batches(self, offset: int, most: int) -> memoryview:
        count = max(1, min(most, len(self._template)) // self._step)
        out = bytearray(memoryview(self._template)[: count * self._step])
        for number in range(count):
            _BASE_OFFSET.pack_into(out, number * self._step, offset + number * self._log.rows)
        return memoryview(out)


def _server_context(folder: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(f"{folder}/server.pem")
    return context


def _run(log: Log, ports: object, counts: Counts) -> None:
    one = batch(0, log)
    template = one * max(1, (4 << 20) // len(one))
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        port = server.getsockname()[1]
        ports.put(port)  # type: ignore[attr-defined]
        while True:
            peer, _ = server.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if log.tls:
                peer = _server_context(log.tls).wrap_socket(peer, server_side=True)
            connection = _Connection(log, peer, port, template, len(one), counts)
            threading.Thread(target=_served, args=(connection,), daemon=True).start()


def _served(connection: _Connection) -> None:
    try:
        connection.serve()
    except OSError:
        pass  # the client is gone


@contextmanager
def canned_broker(log: Log) -> Iterator[tuple[int, Counts]]:
    """Yields its port, and what it counts."""
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    counts = Counts(*(context.Value(form, 0) for form in "ddqq"))
    process = context.Process(target=_run, args=(log, ports, counts), daemon=True)
    process.start()
    try:
        yield ports.get(timeout=60), counts
    finally:
        process.kill()
        process.join()
