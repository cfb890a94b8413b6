"""Names to addresses, without stopping the network thread: a slow DNS server must not cost a heartbeat.

Which address of a name is tried next: `transport.py`, law 2. Each new attempt begins with another one: `thread.py`.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - a look-up needs it: no call's time is spent on its import
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from instride.errors import TransportError

__all__ = ["Resolver", "SocketAddress", "rotated"]

SocketAddress = tuple[int, Any]
"""Address family, and the address as `socket.connect` takes it."""
Resolved = list[SocketAddress] | TransportError
# More than one, so that a name whose server is silent does not hold up the others.
_MOST: Final = 4
_HIGHEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lookup:
    host: str
    ask: Callable[[], None]
    fail: Callable[[TransportError], None]
    wanted: Callable[[], bool]


class Resolver:
    """The look-ups of one consumer. Its methods may be called from one thread only; `on_done` is called on any.

    Laws
    1. There are at most `_MOST` threads, and each ends when nothing is left to look up.
    2. `on_done` is called once, unless `wanted` says no when its turn comes, or the resolver was closed.
    3. Where no thread can be started, that is an error of the look-up: it can be tried again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: deque[_Lookup] = deque()
        self._threads = 0
        self._closed = False

    def resolve(
        self, host: str, port: int, on_done: Callable[[Resolved], None], *, wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Call `on_done` with every address, in the system's order, or an error. Literals are resolved at once."""
        if not 0 < port <= _HIGHEST_PORT:
            # Where the system takes it, it takes it modulo 65536: the port of somebody else.
            on_done(TransportError(f"{host}:{port} is no address: ports are 1 to {_HIGHEST_PORT}"))
            return
        try:
            on_done(_lookup(host, port, flags=socket.AI_NUMERICHOST))
        except (OSError, UnicodeError):  # a name, or what cannot even be one
            self._add(_Lookup(host=host, ask=lambda: on_done(_ask(host, port)), fail=on_done, wanted=wanted))

    def resolve_canonical(
        self,
        host: str,
        port: int,
        turn: int,
        on_done: Callable[[str, Resolved], None],
        *,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """The same for one of the canonical names of the host's addresses, the next one with each turn; it comes first.

        For a bootstrap server whose name stands for many brokers, where certificates or Kerberos speak of the brokers'
        own.
        """

        def ask() -> None:
            found = _ask(host, port)
            if isinstance(found, TransportError):
                on_done(host, found)
                return
            names = list(dict.fromkeys(_canonical(address, host) for _, address in found))
            name = names[turn % len(names)]
            on_done(name, _ask(name, port))

        self._add(_Lookup(host=host, ask=ask, fail=lambda error: on_done(host, error), wanted=wanted))

    def close(self) -> None:
        """What was not begun is dropped. One that hangs in the system is not waited for: its thread is a daemon."""
        with self._lock:
            self._closed = True
            self._due.clear()

    def _add(self, lookup: _Lookup) -> None:
        with self._lock:
            if self._closed:
                return
            self._due.append(lookup)
            if self._threads >= _MOST:
                return
            self._threads += 1
        try:
            # Outside the lock, which `_not_started` takes.
            threading.Thread(target=self._work, name="instride-resolve", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            self._not_started(error)

    def _not_started(self, error: Exception) -> None:
        """Law 3. Threads that run already take what is due."""
        with self._lock:
            self._threads -= 1
            left = [] if self._threads else list(self._due)
            if left:
                self._due.clear()
        for each in left:
            each.fail(TransportError(f"cannot look up {each.host!r}: no thread can be started ({error})"))

    def _work(self) -> None:
        while True:
            # The look and the count under one lock: whoever adds after it sees that this thread is gone.
            with self._lock:
                if not self._due:
                    self._threads -= 1
                    return
                lookup = self._due.popleft()
            if lookup.wanted():
                lookup.ask()


def rotated(addresses: list[SocketAddress], turn: int) -> list[SocketAddress]:
    """All of them, another one first with each turn: one that takes the whole time-out must not hide the others."""
    start = turn % len(addresses) if addresses else 0
    return addresses[start:] + addresses[:start]


def _ask(host: str, port: int) -> Resolved:
    try:
        return _lookup(host, port)
    except (OSError, UnicodeError, MemoryError) as error:
        return TransportError(f"cannot resolve {host!r}: {error}")


def _canonical(address: Any, host: str) -> str:
    try:
        # Without the flag an address that has no name comes back as digits, which no certificate or ticket names.
        return socket.getnameinfo(address, socket.NI_NAMEREQD)[0]
    except (OSError, MemoryError):
        return host  # an address without a name of its own


def _lookup(host: str, port: int, flags: int = 0) -> list[SocketAddress]:
    return [
        (family, address)
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    ]
