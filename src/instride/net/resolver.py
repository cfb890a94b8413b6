"""Names to addresses, without stopping the network thread: a slow DNS server must not cost a heartbeat."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from instride.errors import TransportError

__all__ = ["SocketAddress", "resolve", "resolve_canonical", "rotated"]

SocketAddress = tuple[int, Any]
"""Address family, and the address as `socket.connect` takes it."""
Resolved = list[SocketAddress] | TransportError


def resolve(host: str, port: int, on_done: Callable[[Resolved], None]) -> None:
    """Call `on_done` with every address, in the resolver's order, or an error. Literals are answered at once;
    else a short-lived daemon thread asks and calls.
    """
    try:
        on_done(_lookup(host, port, flags=socket.AI_NUMERICHOST))
    except (OSError, UnicodeError):  # a name, or what cannot even be one
        _on_a_thread(host, lambda: on_done(_ask(host, port)))


def resolve_canonical(host: str, port: int, turn: int, on_done: Callable[[str, Resolved], None]) -> None:
    """The same for one of the canonical names of the host's addresses, the next one with each turn; that name first.

    For a bootstrap server whose name stands for many brokers, where certificates or Kerberos speak of the brokers' own.
    """

    def ask() -> None:
        found = _ask(host, port)
        if isinstance(found, TransportError):
            on_done(host, found)
            return
        names = list(dict.fromkeys(_canonical(address, host) for _, address in found))
        name = names[turn % len(names)]
        on_done(name, _ask(name, port))

    _on_a_thread(host, ask)


def rotated(addresses: list[SocketAddress], turn: int) -> list[SocketAddress]:
    """All of them, another one first with each turn: one that takes the whole time-out must not hide the others."""
    start = turn % len(addresses) if addresses else 0
    return addresses[start:] + addresses[:start]


def _on_a_thread(host: str, ask: Callable[[], None]) -> None:
    threading.Thread(target=ask, name=f"instride-resolve-{host}", daemon=True).start()


def _ask(host: str, port: int) -> Resolved:
    try:
        return _lookup(host, port)
    except (OSError, UnicodeError) as error:
        return TransportError(f"cannot resolve {host!r}: {error}")


def _canonical(address: Any, host: str) -> str:
    try:
        return socket.getnameinfo(address, socket.NI_NAMEREQD)[0]
    except OSError:
        return host  # an address without a name of its own


def _lookup(host: str, port: int, flags: int = 0) -> list[SocketAddress]:
    return [
        (family, address)
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    ]
