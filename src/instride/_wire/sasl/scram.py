"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677, KIP-84): the password is proved, never sent; the broker proves itself.

Laws
1. The nonce that the broker responds with begins with ours and is longer, or it is not a response to us.
2. 4096 <= iterations <= 1,000,000: fewer would make a stolen proof cheap to try, more would keep us busy.
3. The broker's signature is checked, in constant time. Without a good one there is no success.
4. Names escape "," and "=". Names and passwords are sent as UTF-8 without SASLprep, as the Java client does: what is
   ASCII is the same either way. Apache Kafka takes ASCII names only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, Literal

from instride.errors import AuthenticationError
from instride.errors._quoting import quoted_from

__all__ = ["MOST_ITERATIONS", "Scram", "ScramCredentials"]

MOST_ITERATIONS: Final = 1_000_000
_FEWEST_ITERATIONS: Final = 4096
_GS2_HEADER: Final = "n,,"
_LONGEST: Final = 4096

ScramName = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
_HASHES: Final[dict[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramCredentials:
    """A name and password for many exchanges. Not thread-safe.

    It keeps the last salted password, since to salt one takes longer than all else.
    """

    def __init__(self, name: ScramName, username: str, password: str) -> None:
        self.name = name
        self.username = username
        self.hash = _HASHES[name]
        self._password = password
        self._salted: tuple[bytes, int, bytes] | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._password,)

    def salted(self, salt: bytes, iterations: int) -> bytes:
        if self._salted is None or self._salted[:2] != (salt, iterations):
            made = hashlib.pbkdf2_hmac(self.hash, self._password.encode(), salt, iterations)
            self._salted = (salt, iterations, made)
        return self._salted[2]


class Scram:
    """One exchange. nonce: fresh, random, printable ASCII without commas."""

    def __init__(self, credentials: ScramCredentials, *, nonce: str) -> None:
        self._credentials = credentials
        self._nonce = nonce
        self._first_bare = f"n={_escaped(credentials.username)},r={nonce}"
        self._step = 0
        self._expected = b""
        # Once it is sent: with salt and nonce, which others may see, passwords can be tried on it.
        self._proof = ""

    @property
    def name(self) -> str:
        return self._credentials.name

    @property
    def secrets(self) -> tuple[str, ...]:
        return (*self._credentials.secrets, self._proof) if self._proof else self._credentials.secrets

    def start(self) -> bytes:
        return (_GS2_HEADER + self._first_bare).encode()

    def response(self, challenge: bytes) -> bytes | None:
        self._step += 1
        if self._step == 1:
            return self._prove(challenge)
        self._check(challenge)
        return None

    def _prove(self, challenge: bytes) -> bytes:
        nonce, salt, iterations = self._read_first(_attributes(challenge))
        without_proof = f"c={_b64(_GS2_HEADER.encode())},r={nonce}"
        message = ",".join((self._first_bare, challenge.decode(), without_proof)).encode()
        salted = self._credentials.salted(salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._credentials.hash, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = self._hmac(self._hmac(salted, b"Server Key"), message)
        self._proof = _b64(proof)
        return f"{without_proof},p={self._proof}".encode()

    def _read_first(self, attributes: list[tuple[str, str]]) -> tuple[str, bytes, int]:
        """Nonce, salt and iterations; laws 1 and 2."""
        # An `m=` before them is an extension that one has to know: RFC 5802 (5.1) has the exchange fail.
        if [name for name, _ in attributes[:3]] != ["r", "s", "i"]:
            raise _broken("it does not hold nonce, salt and iterations")
        nonce, salt, count = (value for _, value in attributes[:3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise _broken("its nonce is not bound to ours")
        # `isdigit` alone takes a superscript two, which `int` does not. Nine digits are more than law 2 allows anyway.
        if not (count.isascii() and count.isdigit() and len(count) <= 9):
            raise _broken("its iterations are not a number")
        iterations = int(count)
        if not _FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise _broken(f"its {iterations} iterations are not from {_FEWEST_ITERATIONS} to {MOST_ITERATIONS}")
        return nonce, _unb64(salt), iterations

    def _check(self, challenge: bytes) -> None:
        """Law 3."""
        attributes = dict(_attributes(challenge))
        if "e" in attributes:
            raise AuthenticationError(f"the broker refused {self.name}: {quoted_from(attributes['e'], self.secrets)}")
        if "v" not in attributes or not hmac.compare_digest(_unb64(attributes["v"]), self._expected):
            raise AuthenticationError(
                f"the broker's {self.name} signature is wrong: it does not know the password, and may be an impostor"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._credentials.hash)


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _attributes(challenge: bytes) -> list[tuple[str, str]]:
    """The parts "x=value", in order."""
    try:
        text = challenge.decode()
    except UnicodeDecodeError:
        raise _broken("it is not text") from None
    parts = [part.partition("=") for part in text.split(",")]
    if len(challenge) > _LONGEST or not all(len(name) == 1 and equals for name, equals, _ in parts):
        raise _broken("it is not a list of attributes")
    return [(name, value) for name, _, value in parts]


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise _broken("a part of it is not base64") from None


def _broken(why: str) -> AuthenticationError:
    return AuthenticationError(f"the broker's SCRAM message breaks the rules: {why}")
