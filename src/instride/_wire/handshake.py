"""The first exchange on a connection: which versions the broker speaks (KIP-511).

Laws
1. The first ApiVersions has version 3, with our name and version in it. A broker that refuses it with
   UNSUPPORTED_VERSION gets the request again in version 0, and then no more.
2. The error code is read before anything else: what follows a refusal has one broker's shape or another's.
"""

from __future__ import annotations

from typing import Final

from instride._wire.api import ApiVersions
from instride._wire.message_codecs import codec_of
from instride._wire.reader import Reader
from instride.errors import KafkaError, ProtocolError, UnsupportedVersionError, error_for_code

__all__ = ["Handshake"]

_UNSUPPORTED_VERSION: Final = 35
_FIRST: Final = 3
_LAST: Final = 0


class Handshake:
    """What has been agreed. Not thread-safe.

    versions: the broker's range by api key, once it has responded.
    """

    def __init__(self) -> None:
        self.versions: dict[int, tuple[int, int]] | None = None
        self._version: int | None = None
        self._to_ask: int | None = _FIRST

    def next_version(self) -> int | None:
        """The version in which to ask now, or None: a response is awaited, or was given."""
        version, self._to_ask = self._to_ask, None
        if version is not None:
            self._version = version
        return version

    def response_received(self, body: memoryview) -> KafkaError | None:
        """Takes the response's body. Returns the error that the broker refused us with, if it did.

        Raises ProtocolError where the bytes do not hold a response.
        """
        assert self._version is not None, "nothing was sent"
        # Law 2: a broker that does not know version 3 responds in version 0 (KIP-511).
        error = Reader(body).int16()
        if error == 0:
            versions = codec_of(ApiVersions).decode(body, self._version, ApiVersions()).versions
            wrong = [key for key, (lowest, highest) in versions.items() if not 0 <= lowest <= highest]
            if wrong:
                raise ProtocolError(f"the broker states versions that cannot be, of the api keys {wrong[:5]}")
            self.versions = versions
            return None
        if error != _UNSUPPORTED_VERSION:
            return error_for_code(error, f"the broker refused ApiVersions with error code {error}")
        if self._version == _LAST:
            return UnsupportedVersionError("the broker refuses ApiVersions even in version 0")
        self._to_ask = _LAST
        return None
