"""Names to addresses, without stopping the network thread: a slow DNS server must not cost a heartbeat.

Which address of a place is tried first: `AddressOrder`. For how long: `share`. Which is tried next: `transport.py`,
law 2.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - a look-up needs it: no call's time is spent on its import
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from instride._net.clock import now
from instride.errors import TransportError

__all__ = ["AddressOrder", "Resolver", "SocketAddress", "least_share", "lookup", "share"]

SocketAddress = tuple[int, Any]
"""Address family, and the address as `socket.connect` takes it."""
Resolved = list[SocketAddress] | TransportError
# More than one, so that a name whose server is silent does not hold up the others.
_MOST: Final = 4
# Of one host: the second where the first does not return.
_MOST_OF_A_HOST: Final = 2
# Seconds after which a look-up is taken to hang. Those that hang do not count as threads, but so many at most.
_HANGS_AFTER: Final = 10.0
_MOST_HANGING: Final = 8
_HIGHEST_PORT: Final = 65535
# Characters. A name of DNS has 253 at most.
_LONGEST_HOST: Final = 255
# Places of which failures are known, up to so many: a broker may make up others for ever.
_MOST_PLACES: Final = 1000


class AddressOrder:
    """In which order the addresses of a place (a host and port) are tried.

    Laws
    1. Those that have not failed come first, in the system's order; then those that have, the oldest failure first. So
       an address that drops packets is waited for once, whatever the connections are for, and not again before all
       others have failed as well. Where all have, an attempt's first address has most of its time (`share`), so only
       that one has failed anew: each has its turn, also one that takes long.
    2. A failure is forgotten where the address works, or is no address of the place any more.
    """

    def __init__(self) -> None:
        self._failed: dict[str, dict[SocketAddress, int]] = {}
        self._failures = 0

    def ordered(self, place: str, found: list[SocketAddress]) -> list[SocketAddress]:
        # A copy, and a new one: another thread may change the old one, or look at it (`OAuthClientCredentials`).
        before = self._failed.get(place, {}).copy()
        failed = {each: before[each] for each in found if each in before}
        if failed != before:
            self._failed[place] = failed
        return sorted(found, key=lambda each: failed.get(each, 0))

    def worked(self, place: str, address: SocketAddress) -> None:
        self._failed.get(place, {}).pop(address, None)

    def all_failed(self, place: str, ordered: list[SocketAddress]) -> bool:
        """Of addresses as `ordered` returns them."""
        return bool(ordered) and ordered[0] in self._failed.get(place, {})

    def failed(self, place: str, *tried: SocketAddress) -> None:
        """Those that one attempt has tried in vain, in its order."""
        if len(self._failed) >= _MOST_PLACES:
            self._failed.clear()
        before = self._failed.setdefault(place, {})
        for each in tried[:1] if tried and tried[0] in before else tried:  # law 1
            self._failures += 1
            before[each] = self._failures


def share(left: float, others: int, *, least: float, patient: bool) -> float:
    """Seconds for one address to take the connection. left: for it and the others together, which are tried later.

    patient: it is the first one of an attempt, and all have failed before: perhaps each takes long.
    """
    if not others:
        return left
    return 0.8 * left if patient else min(max(left / (others + 1), least), left)


def least_share(whole: float, least: float) -> float:
    """Seconds: `least`, where an attempt that takes `whole` has time for two addresses then."""
    return min(least, 0.4 * whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiter:
    port: int
    take: Callable[[Resolved], None]
    wanted: Callable[[], bool]


class Resolver:
    """The look-ups of one consumer. Its methods may be called from one thread only; `on_done` is called on any.

    Laws
    1. There are at most `_MOST` threads, and a few more while some hang; each ends when nothing is left to look up.
    2. `on_done` is called once, unless `wanted` says no when its turn comes, or the resolver was closed.
    3. Where no thread can be started, that is an error of the look-up: it can be tried again.
    4. A host is looked up once at a time, and all that ask meanwhile get that result: a name whose server is silent
       takes one thread, however often a connection to it is opened anew. One that does not return is left alone: who
       asks after `_HANGS_AFTER` seconds begins a second one, which takes no thread from other names. There is no third.

    clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._due: deque[str] = deque()
        # By host; without those that a look-up has taken.
        self._waiting: dict[str, list[_Waiter]] = {}
        # When the look-ups of a host began that have not ended, the oldest first.
        self._begun: dict[str, list[float]] = {}
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
        if len(host) > _LONGEST_HOST or "\0" in host:
            # The encoding of a long one takes the thread seconds; the system would look up what is before a NUL.
            on_done(TransportError(f"{host!r} is no host: a name has no NUL, and at most {_LONGEST_HOST} characters"))
            return
        try:
            on_done(lookup(host, port, flags=socket.AI_NUMERICHOST))
        except (OSError, UnicodeError):  # a name, or what cannot even be one
            self._add(host, _Waiter(port=port, take=on_done, wanted=wanted))

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

        def take(found: Resolved) -> None:
            if isinstance(found, TransportError):
                on_done(host, found)
                return
            names = list(dict.fromkeys(_canonical(address, host) for _, address in found))
            name = names[turn % len(names)]
            on_done(name, _ask(name, port))

        self._add(host, _Waiter(port=port, take=take, wanted=wanted))

    def close(self) -> None:
        """What was not begun is dropped. One that hangs in the system is not waited for: its thread is a daemon."""
        with self._lock:
            self._closed = True
            self._due.clear()

    def _add(self, host: str, waiter: _Waiter) -> None:
        with self._lock:
            if self._closed:
                return
            # Without those that were given up, which would else become more and more.
            others = self._waiting.get(host, [])
            self._waiting[host] = [*(each for each in others if each.wanted()), waiter]
            if host not in self._due and self._may_begin(host):
                self._due.append(host)
            if not self._due or self._threads >= self._most():
                return
            self._threads += 1
        try:
            # Outside the lock, which `_not_started` takes.
            threading.Thread(target=self._work, name="instride-resolve", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            self._not_started(error)

    def _may_begin(self, host: str) -> bool:
        """Law 4."""
        begun = self._begun.get(host, [])
        return len(begun) < _MOST_OF_A_HOST and all(map(self._hangs, begun))

    def _hangs(self, begun: float) -> bool:
        return self._clock() >= begun + _HANGS_AFTER

    def _most(self) -> int:
        """Law 1: threads."""
        hanging = sum(self._hangs(each) for begun in self._begun.values() for each in begun)
        return _MOST + min(hanging, _MOST_HANGING)

    def _not_started(self, error: Exception) -> None:
        """Law 3. Threads that run already take what is due."""
        left: list[tuple[str, _Waiter]] = []
        with self._lock:
            self._threads -= 1
            while self._due and not self._threads:
                host = self._due.popleft()
                left += [(host, each) for each in self._waiting.pop(host, [])]
        for host, each in left:
            each.take(TransportError(f"cannot look up {host!r}: no thread can be started ({error})"))

    def _work(self) -> None:
        while True:
            # The look and the count under one lock: whoever adds after it sees that this thread is gone.
            with self._lock:
                if not self._due:
                    self._threads -= 1
                    return
                host, begun = self._due.popleft(), self._clock()
                self._begun.setdefault(host, []).append(begun)
            ended = False
            try:
                self._look_up(host, begun)
                ended = True
            finally:
                if not ended:
                    self._died(host, begun)

    def _look_up(self, host: str, begun: float) -> None:
        found: Resolved | None = None
        port = 0
        while waiting := self._taken(host, begun):
            for each in waiting:
                if each.wanted():
                    if found is None:
                        port, found = each.port, _ask(host, each.port)
                    if isinstance(found, TransportError) or each.port == port:
                        each.take(found)
                    else:
                        each.take(_with_port(found, each.port))

    def _taken(self, host: str, begun: float) -> list[_Waiter]:
        """Those that wait for it now; where there are none, the look-up has ended."""
        with self._lock:
            waiting = self._waiting.pop(host, [])
            if not waiting:  # under the same lock: who comes after it begins another one
                self._end(host, begun)
            return waiting

    def _end(self, host: str, begun: float) -> None:
        self._begun[host].remove(begun)
        if not self._begun[host]:
            del self._begun[host]

    def _died(self, host: str, begun: float) -> None:
        """As for want of memory: the next that asks begins anew."""
        with self._lock:
            self._threads -= 1
            self._waiting.pop(host, None)
            self._end(host, begun)


def _ask(host: str, port: int) -> Resolved:
    try:
        return lookup(host, port)
    except (OSError, UnicodeError, MemoryError) as error:
        return TransportError(f"cannot resolve {host!r}: {error}")


def _with_port(found: list[SocketAddress], port: int) -> list[SocketAddress]:
    return [(family, (address[0], port, *address[2:])) for family, address in found]


def _canonical(address: Any, host: str) -> str:
    try:
        # Without the flag an address that has no name comes back as digits, which no certificate or ticket names.
        return socket.getnameinfo(address, socket.NI_NAMEREQD)[0]
    except (OSError, MemoryError):
        return host  # an address without a name of its own


def lookup(host: str, port: int, flags: int = 0) -> list[SocketAddress]:
    """What the system says, in its order. Waits for it. Raises OSError, UnicodeError, MemoryError."""
    return [
        (family, address)
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    ]
