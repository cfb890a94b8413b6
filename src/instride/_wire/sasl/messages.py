"""The two requests of Kafka's authentication, free of versions like all of `_wire.api`, which takes them up.

Laws
1. No repr shows what proves an identity.
2. What a refusal means, of the mechanism or of the proof, is in `exchange.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "SaslResponse",
    "SaslAuthenticate",
    "SaslAuthenticateResponse",
    "SaslHandshake",
    "SaslHandshakeResponse",
    "SaslRequest",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshake:
    """Which mechanism is to be used."""

    mechanism: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    """mechanisms: those that the listener takes."""

    error: int = 0
    mechanisms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticate:
    """auth_bytes: one message of the mechanism."""

    auth_bytes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateResponse:
    """session_lifetime: seconds after which the broker wants to be convinced anew (KIP-368); 0 for never."""

    error: int = 0
    error_message: str = ""
    auth_bytes: bytes = field(default=b"", repr=False)
    session_lifetime: float = 0.0


SaslRequest = SaslHandshake | SaslAuthenticate
SaslResponse = SaslHandshakeResponse | SaslAuthenticateResponse
