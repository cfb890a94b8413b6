"""A network that damages what brokers send: bytes flipped, cut, late, or twice. In front of any broker."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable

__all__ = ["DAMAGES", "Proxy"]

# Connections reach this far before anything happens to them, so that each kind of response has its turn.
_SPARED = 0.9

Damage = Callable[[random.Random, bytes], bytes | None]


def _flip(dice: random.Random, data: bytes) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << dice.randrange(8),)) + data[at + 1 :]


def _cut(dice: random.Random, data: bytes) -> bytes | None:
    return None if dice.random() < 0.5 else data[: dice.randrange(len(data))]


def _late(dice: random.Random, data: bytes) -> bytes:
    time.sleep(dice.uniform(0.05, 0.6))
    return data


def _twice(_: random.Random, data: bytes) -> bytes:
    return data + data


DAMAGES: dict[str, Damage] = {"flipped": _flip, "cut": _cut, "late": _late, "twice": _twice}


class Proxy:
    """To the broker at `port`. damage: of DAMAGES; a tenth of what is received at once suffers it."""

    def __init__(self, port: int, damage: str, seed: int) -> None:
        self._target, self._damage, self._dice = port, DAMAGES[damage], random.Random(seed)  # noqa: S311
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.damaged = 0
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
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            threading.Thread(target=self._pass, args=(near, far, None), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, self._damage), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, damage: Damage | None) -> None:
        # Each closes what it reads; to shut the other down makes the other's reader do the same.
        with source, contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if damage is not None and self._dice.random() > _SPARED:
                    self.damaged += 1
                    changed = damage(self._dice, data)
                    if changed is None:
                        break
                    data = changed
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
