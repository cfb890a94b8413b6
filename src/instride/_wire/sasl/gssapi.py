"""GSSAPI, which is Kerberos (RFC 4752): tickets instead of passwords; both sides prove themselves.

Laws
1. Nothing is agreed before the context says that it is complete and that the broker has proved itself (mutual).
2. No security layer: TLS is there for that. A broker that offers none without a layer is refused.
3. The library behind the context is the caller's: nothing here knows one.
"""

from __future__ import annotations

from typing import Final, Protocol

from instride.errors import AuthenticationError

__all__ = ["Gssapi", "SecurityContext"]

_NO_LAYER: Final = 1
_OFFER_BYTES: Final = 4


class SecurityContext(Protocol):
    """A GSS-API context of ours with one broker. Its calls raise AuthenticationError."""

    @property
    def complete(self) -> bool: ...

    @property
    def mutual(self) -> bool:
        """Whether the broker has proved itself too; of a complete context."""
        ...

    def step(self, token: bytes) -> bytes:
        """Takes the broker's token; gives the next of ours, empty where none is needed."""
        ...

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, message: bytes) -> bytes: ...


class Gssapi:
    """One exchange. first: the context's first token, which it took asking a KDC to make."""

    def __init__(self, context: SecurityContext, first: bytes) -> None:
        self._context = context
        self._first = first
        self._agreed = False

    @property
    def name(self) -> str:
        return "GSSAPI"

    @property
    def secrets(self) -> tuple[str, ...]:
        return ()

    def start(self) -> bytes:
        return self._first

    def response(self, challenge: bytes) -> bytes | None:
        if self._agreed:
            if challenge:
                raise AuthenticationError("the broker's GSSAPI does not come to an end")
            return None
        if not self._context.complete:
            # An empty token is sent as well: the broker makes its offer in response to it (RFC 4752, 3.1).
            return self._context.step(challenge)
        return self._choose(challenge)

    def _choose(self, challenge: bytes) -> bytes:
        """The broker offers layers, a byte of bits and three of a size; ours is none, of no size, for whom the ticket
        names."""
        if not self._context.mutual:
            raise AuthenticationError("the broker did not prove who it is: GSSAPI without mutual authentication")
        offer = self._context.unwrap(challenge)
        if len(offer) != _OFFER_BYTES or not offer[0] & _NO_LAYER:
            raise AuthenticationError("the broker wants a GSSAPI security layer, which is not there: use SASL_SSL")
        self._agreed = True
        return self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)))
