"""Kerberos tickets for GSSAPI, by the package `gssapi` (extra ``instride[gssapi]``).

Laws
1. Asking a KDC takes as long as it takes: on a thread of its own, one at a time, never on the network thread. Whoever
   waits gives up before its connection does.
2. Tickets and keys stay with the library: nothing here shows or keeps one. With a keytab, tickets are in the memory of
   this process; without, they are those of the user's own cache (kinit).
3. A KDC that does not respond, is busy, or cannot be reached may do so later, and so may this machine have files and
   memory again: a TransportError. What a KDC refuses is an AuthenticationError.
4. The ticket is for the name that is connected to, as with TLS; the broker must prove that it has that name's key.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from instride._net.clock import now
from instride._wire.sasl.exchange import Mechanism
from instride._wire.sasl.gssapi import Gssapi
from instride.config import ConsumerConfig
from instride.errors import AuthenticationError, ConfigError, TransportError

if TYPE_CHECKING:
    import gssapi

__all__ = ["KerberosAuthenticator"]

T = TypeVar("T")
Prepared = Callable[[Gssapi | AuthenticationError | TransportError], None]

_SHOWN: Final = 400
# Codes of MIT's library (krb5.h), as GSSAPI has them: KRB5_KDC_UNREACH, KRB5_REALM_CANT_RESOLVE,
# KRB5KDC_ERR_SVC_UNAVAILABLE. What the system says is among them as it is.
_PASSING: Final = frozenset(
    each & 0xFFFFFFFF for each in (-1765328228, -1765328164, -1765328355, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
)
_numbers = count(1)


class KerberosAuthenticator:
    """The `Authenticator` of GSSAPI: see there. patience: seconds for one. wake: makes the network thread call `poll`.

    Raises ConfigError without the package, or where the keytab cannot be read.
    """

    def __init__(self, config: ConsumerConfig, *, patience: float, wake: Callable[[], None]) -> None:
        self._tickets = _Tickets(config)
        self.patience: Final = patience
        self._wake = wake
        self._waiting: dict[int, tuple[float, Prepared]] = {}
        self._due: deque[tuple[int, str]] = deque()
        self._arrived: deque[tuple[int, Gssapi | AuthenticationError | TransportError]] = deque()
        self._busy = threading.Lock()

    @property
    def deadline(self) -> float:
        return min((until for until, _ in self._waiting.values()), default=float("inf"))

    def prepare(self, host: str, on_done: Prepared) -> None:
        number = next(_numbers)
        # Before `_due`: the worker passes over whom it does not find waiting.
        self._waiting[number] = now() + self.patience, on_done
        self._due.append((number, host))
        self._start()

    def _start(self) -> None:
        """Law 1: the lock is the running thread's."""
        if self._due and self._busy.acquire(blocking=False):
            try:
                threading.Thread(target=self._work, name="instride-kerberos", daemon=True).start()
            except (RuntimeError, MemoryError) as error:
                self._not_started(error)

    def _not_started(self, error: Exception) -> None:
        self._busy.release()
        while self._due:
            number, host = self._due.popleft()
            why = f"cannot ask for a ticket for {host}: no thread can be started ({error})"
            self._arrived.append((number, TransportError(why)))
        self._wake()

    def _work(self) -> None:
        try:
            while self._due:
                number, host = self._due.popleft()
                if number in self._waiting:
                    self._arrived.append((number, self._tickets.exchange(host)))
                    self._wake()
        finally:
            self._busy.release()
            self._wake()  # what came between the last look and this is started by `poll`

    def poll(self) -> None:
        self._start()
        while self._arrived:
            number, result = self._arrived.popleft()
            entry = self._waiting.pop(number, None)
            # An exchange that timed out was removed from `_waiting`, and its connection was told.
            if entry is not None:
                entry[1](result)
        for number in [number for number, (until, _) in self._waiting.items() if now() >= until]:
            _, on_done = self._waiting.pop(number)
            within = f"within {self.patience:g} s (see connection_setup_timeout)"
            on_done(TransportError(f"no Kerberos ticket came {within}: is the KDC there?"))

    def refused(self, mechanism: Mechanism) -> None:
        """The library keeps the tickets, and renews them."""

    def accepted(self, mechanism: Mechanism) -> None:
        """The same."""


class _Tickets:
    """What the settings ask for, in the library's terms. Its calls block."""

    def __init__(self, config: ConsumerConfig) -> None:
        try:
            import gssapi  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise ConfigError(
                'sasl_mechanism GSSAPI needs the package gssapi: pip install "instride[gssapi]" (which compiles against'
                f" Kerberos: on Debian libkrb5-dev); {error}"
            ) from None
        self._gssapi = gssapi
        self._service = config.sasl_kerberos_service_name or "kafka"
        self._principal = config.sasl_kerberos_principal
        self._keytab = config.sasl_kerberos_keytab_file
        if self._keytab is not None:
            _check_readable(self._keytab)
        # A name of its own: consumers with different keytabs must not find each other's tickets.
        self._cache = f"MEMORY:instride-{next(_numbers)}"

    def exchange(self, host: str) -> Gssapi | AuthenticationError | TransportError:
        """With its first token, for which the KDC is asked."""
        lib = self._gssapi
        try:
            flag = lib.RequirementFlag
            context = _Context(
                lib,
                lib.SecurityContext(
                    name=lib.Name(f"{self._service}@{host.removesuffix('.')}", lib.NameType.hostbased_service),
                    creds=self._credentials(),
                    mech=lib.MechType.kerberos,
                    flags=flag.mutual_authentication | flag.out_of_sequence_detection | flag.replay_detection,
                    usage="initiate",
                ),
            )
            return Gssapi(context, context.first())
        except lib.exceptions.GSSError as error:
            kind = TransportError if getattr(error, "min_code", 0) & 0xFFFFFFFF in _PASSING else AuthenticationError
            return kind(_told(f"no Kerberos ticket for {self._service}/{host}", error))
        except Exception as error:  # noqa: BLE001 - whatever the library raises, those who wait must hear of it
            kind = TransportError if isinstance(error, MemoryError) else AuthenticationError
            return kind(f"no Kerberos ticket for {self._service}/{host}: {type(error).__name__}")

    def _credentials(self) -> gssapi.Credentials | None:
        lib = self._gssapi
        if self._principal is None and self._keytab is None:
            return None
        name = None if self._principal is None else lib.Name(self._principal, lib.NameType.kerberos_principal)
        # Not as `keytab`: of a `client_keytab` MIT's library gets tickets itself, and new ones when they end.
        store = None if self._keytab is None else {"client_keytab": self._keytab, "ccache": self._cache}
        return lib.Credentials(name=name, usage="initiate", store=store)


class _Context:
    """`_wire.sasl.gssapi.SecurityContext` over the library's, of which a mere look at a flag may raise: when the ticket
    has ended amid the exchange, say."""

    def __init__(self, lib: Any, context: gssapi.SecurityContext) -> None:
        self._lib = lib
        self._context = context

    @property
    def complete(self) -> bool:
        return self._call(lambda: bool(self._context.complete))

    @property
    def mutual(self) -> bool:
        flag = self._lib.RequirementFlag.mutual_authentication
        return self._call(lambda: bool(self._context.actual_flags & flag))

    def first(self) -> bytes:
        """Asks the KDC. Raises what the library does."""
        return bytes(self._context.step() or b"")

    def step(self, token: bytes) -> bytes:
        return self._call(lambda: bytes(self._context.step(token) or b""))

    def wrap(self, message: bytes) -> bytes:
        # RFC 4752 wants the choice of a layer signed, not encrypted.
        return self._call(lambda: bytes(self._context.wrap(message, encrypt=False).message))

    def unwrap(self, message: bytes) -> bytes:
        return self._call(lambda: bytes(self._context.unwrap(message).message))

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except self._lib.exceptions.GSSError as error:
            raise AuthenticationError(_told("GSSAPI with the broker came to nothing", error)) from None


def _check_readable(keytab: str) -> None:
    """The library reads it whenever tickets end; that it cannot is better known at once."""
    try:
        Path(keytab).open("rb").close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"sasl_kerberos_keytab_file {keytab!r} cannot be read: {why}") from None


def _told(what: str, error: Exception) -> str:
    """The library's words name principals, hosts and files, no keys."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(error)[:_SHOWN])
    return f"{what}: {text}"
