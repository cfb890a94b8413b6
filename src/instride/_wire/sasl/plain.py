"""PLAIN (RFC 4616): the password as it is. So only over TLS, unless the user asked otherwise (`config`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from instride.errors import AuthenticationError

__all__ = ["Plain"]


@dataclass(frozen=True, slots=True)
class Plain:
    username: str
    password: str = field(repr=False)

    @property
    def name(self) -> str:
        return "PLAIN"

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.password,)

    def start(self) -> bytes:
        return f"\0{self.username}\0{self.password}".encode()

    def response(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise AuthenticationError("the broker responded to PLAIN with a challenge, which PLAIN does not have")
        return None
