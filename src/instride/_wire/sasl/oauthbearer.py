"""OAUTHBEARER (RFC 7628, KIP-255): a bearer token.

Laws
1. A broker that refuses a token first sends why, as a message of the mechanism, and wants one byte before it ends the
   exchange with an error. One that then says that all is well is refused.
2. Nothing can be smuggled into the message: token and extensions are checked for the letters that they may have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from instride.errors import AuthenticationError
from instride.errors._quoting import quoted_from

__all__ = ["LONGEST_LIFE", "OAuthBearer", "OAuthToken"]

LONGEST_LIFE: Final = 10**9
"""Seconds for which a token is believed to be good."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthToken:
    """A bearer token. Raises ValueError where it has other letters than such tokens have, or is
    good for longer than 30 years.

    expires_in: seconds from now for which it is good, where that is known; until shortly before it is used again
    for other connections. extensions: SASL extensions (KIP-342).
    """

    value: str = field(repr=False)
    expires_in: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.value, str) or not _TOKEN.fullmatch(self.value):
            raise ValueError("the OAuth token is empty, or has letters that a bearer token cannot have")
        life = self.expires_in
        if life is not None and not (isinstance(life, int | float) and life < LONGEST_LIFE):
            raise ValueError(f"the OAuth token's expires_in must be a number of seconds, less than {LONGEST_LIFE}")
        # `auth` is the key of the token itself (RFC 7628, KIP-342).
        for name, value in self.extensions.items():
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise ValueError(f"the SASL extension {name!r} is not allowed: name or value has the wrong letters")


class OAuthBearer:
    """One exchange with one token."""

    def __init__(self, token: OAuthToken) -> None:
        self.token: Final = token
        self._refusal = ""

    @property
    def name(self) -> str:
        return "OAUTHBEARER"

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.token.value,)

    def start(self) -> bytes:
        parts = [f"auth=Bearer {self.token.value}", *(f"{k}={v}" for k, v in self.token.extensions.items())]
        return ("n,,\x01" + "".join(f"{part}\x01" for part in parts) + "\x01").encode()

    def response(self, challenge: bytes) -> bytes | None:
        if self._refusal:
            raise AuthenticationError(f"the broker refused the OAuth token: {self._refusal}")
        if not challenge:
            return None
        self._refusal = quoted_from(challenge.decode(errors="replace"), self.secrets)
        return b"\x01"
