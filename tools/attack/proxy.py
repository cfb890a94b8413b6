"""A network that damages what brokers send, by chance with a seed. In front of any broker, a real Kafka too."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection

__all__ = ["DAMAGES", "Proxy", "passed"]

# What becomes of bytes, and whether the connection ends after them.
Damage = Callable[[random.Random, bytes], tuple[bytes, bool]]


def _flip(dice: random.Random, data: bytes) -> tuple[bytes, bool]:
    at = dice.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << dice.randrange(8),)) + data[at + 1 :], False


def _cut(dice: random.Random, data: bytes) -> tuple[bytes, bool]:
    return data[: dice.randrange(len(data))], True


def _late(dice: random.Random, data: bytes) -> tuple[bytes, bool]:
    time.sleep(dice.uniform(0.05, 0.6))
    return data, False


def _twice(_: random.Random, data: bytes) -> tuple[bytes, bool]:
    return data + data, False


def _shortened(dice: random.Random, data: bytes) -> tuple[bytes, bool]:
    start = dice.randrange(len(data))
    return data[:start] + data[start + dice.randrange(1, 65) :], False


def _swapped(dice: random.Random, data: bytes) -> tuple[bytes, bool]:
    a, b, c, d = sorted(dice.randrange(len(data) + 1) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:], False


DAMAGES: dict[str, Damage] = {
    "flipped": _flip,
    "cut": _cut,
    "late": _late,
    "twice": _twice,
    "shortened": _shortened,
    "swapped": _swapped,
}


class Proxy:
    """To the broker at `port` of 127.0.0.1, whose responses lead back here wherever they name that address.

    damages: of DAMAGES; this share of what is received at once suffers one of them. seconds: after so many from the
    first connection on the network is good. asked: how often anything was sent to the broker.
    """

    def __init__(
        self, port: int, damages: Collection[str], seed: int, *, share: float = 0.1, seconds: float = float("inf")
    ) -> None:
        self._target, self._dice = port, random.Random(seed)  # noqa: S311
        self._share = share
        self._damages = [DAMAGES[each] for each in damages]
        self._seconds, self._good_at = seconds, 0.0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._address = b"127.0.0.1" + struct.pack(">i", port)
        self._own_address = b"127.0.0.1" + struct.pack(">i", self.port)
        self.damaged = 0
        self.requested: Counter[int] = Counter()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            self._good_at = self._good_at or time.monotonic() + self._seconds
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            threading.Thread(target=passed, args=(near, far, self._count), daemon=True).start()
            threading.Thread(target=passed, args=(far, near, self._damage), daemon=True).start()

    def _count(self, data: bytes) -> tuple[bytes, bool]:
        self.requested[0] += 1
        return data, False

    def _damage(self, data: bytes) -> tuple[bytes, bool]:
        data = data.replace(self._address, self._own_address)
        if time.monotonic() >= self._good_at or self._dice.random() >= self._share:
            return data, False
        self.damaged += 1
        return self._dice.choice(self._damages)(self._dice, data)


def passed(source: socket.socket, sink: socket.socket, change: Callable[[bytes], tuple[bytes, bool]]) -> None:
    """Give on what the source receives, until it ends. change: what becomes of it, and whether that was all."""
    # Each closes what it reads; to shut the other down makes the other's reader do the same.
    with source, contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            data, end = change(data)
            sink.sendall(data)
            if end:
                break
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
