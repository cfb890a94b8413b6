"""Names to addresses, without stopping the network thread: a slow DNS server must not cost a heartbeat."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from instride.errors import TransportError

__all__ = ["SocketAddress", "resolve"]

SocketAddress = tuple[int, Any]
"""Address family, and the address as `socket.connect` takes it."""


def resolve(host: str, port: int, on_done: Callable[[list[SocketAddress] | TransportError], None]) -> None:
    """Call `on_done` with every address, in the resolver's order, or an error. Literals are answered at once;
    else a short-lived daemon thread asks and calls.
    """
    try:
        on_done(_lookup(host, port, flags=socket.AI_NUMERICHOST))
    except (OSError, UnicodeError):  # a name, or what cannot even be one
        threading.Thread(target=_ask, args=(host, port, on_done), name=f"instride-resolve-{host}", daemon=True).start()


def _ask(host: str, port: int, on_done: Callable[[list[SocketAddress] | TransportError], None]) -> None:
    try:
        found = _lookup(host, port)
    except (OSError, UnicodeError) as error:
        on_done(TransportError(f"cannot resolve {host!r}: {error}"))
        return
    on_done(found)


def _lookup(host: str, port: int, flags: int = 0) -> list[SocketAddress]:
    return [
        (family, address)
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    ]
