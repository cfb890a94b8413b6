"""One connection to a broker, without the socket: requests in, bytes out; bytes in, responses out.

Laws
1. The handshake comes first, then authentication where there is any. Until both are done (`ready`) nothing else may be
   sent: to send is the caller's fault. While it authenticates anew the connection is not ready either; requests that
   were sent before have their responses all the same. When it does so `_net/transport.py` decides (KIP-368).
2. Every request has one response or none, and a response names its request, whatever the order.
3. What the peer sends never makes a call raise. A fault in the stream sets `failure`, once and for good: close
   the connection then. Responses that were complete before the fault are still given.
4. A response that cannot be decoded gives its request the error, and is a fault too.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from instride._wire import api
from instride._wire.frames import FrameBuffer
from instride._wire.handshake import Handshake
from instride._wire.memory_pool import Segments
from instride._wire.message_codecs import Codec, choose_version, codec_of
from instride._wire.reader import Reader
from instride._wire.sasl.exchange import Exchange, Mechanism
from instride._wire.sasl.messages import SaslResponse
from instride.errors import KafkaError, ProtocolError, TransportError, UnsupportedVersionError

__all__ = ["Connection", "Received"]

_LENGTH_BYTES: Final = 4
_REQUEST_HEADER: Final = struct.Struct(">ihhih")
# Tagged fields of a response's header, of which there are none yet.
_MOST_HEADER_TAGS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The outcome of one request: its response, or the error that decoding it gave.

    nbytes: of the response's frame.
    """

    request_id: int
    response: api.Response | None = None
    error: KafkaError | None = None
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class _Sent:
    """request_id: the caller's, or None for the handshake's own."""

    request_id: int | None
    request: api.Request
    version: int


class Connection:
    """The protocol's side of one TCP connection. Not thread-safe.

    client_id: names this client in the broker's logs and quotas.
    max_frame_bytes: the longest response to accept; of most requests far shorter ones are the longest.
    mechanism: proves who we are before anything else; None where the listener does not ask.
    segments: what long responses are received into, also of other connections.

    Use: send what `handshake` returns. Receive into `get_buffer` and say so by `buffer_updated` (or give bytes to
    `receive_data`); after each look at `failure` and, until `ready`, send what `handshake` returns. Then `send`.
    """

    def __init__(
        self,
        *,
        client_id: str,
        max_frame_bytes: int,
        mechanism: Mechanism | None = None,
        segments: Segments | None = None,
    ) -> None:
        self._client_id = client_id.encode()
        self._max_frame_bytes = max_frame_bytes
        self._frames = FrameBuffer(max_frame_bytes=max_frame_bytes, most_bytes=self._most_bytes, segments=segments)
        self._handshake = Handshake()
        self._exchange = Exchange(mechanism) if mechanism is not None else None
        self._on_response = False
        self._sent: dict[int, _Sent] = {}
        self._next_correlation_id = 0
        self._failure: KafkaError | None = None

    @property
    def ready(self) -> bool:
        """Handshake and authentication are done and the connection has not failed."""
        authenticated = self._exchange is None or self._exchange.done
        return self._handshake.versions is not None and authenticated and self.failure is None

    @property
    def standing(self) -> str:
        """What is waited for, until `ready`."""
        if self._handshake.versions is None:
            return "the broker does not respond to ApiVersions"
        return "SASL authentication has not ended"

    @property
    def session_lifetime(self) -> float:
        """Seconds from the last authentication in which the broker wants another (KIP-368); 0 for never."""
        return self._exchange.session_lifetime if self._exchange is not None else 0.0

    @property
    def failure(self) -> KafkaError | None:
        """Why the connection is of no use any more, or None.

        A ProtocolError (also FrameTooLargeError, UnsupportedVersionError), a NotKafkaError, an AuthenticationError,
        or the error with which the broker refused the handshake.
        """
        return self._failure or self._frames.failure

    @property
    def in_the_middle(self) -> bool:
        """Whether a part of a response has come, and the rest has not."""
        return not self._frames.is_between_frames

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The broker's (lowest, highest) version by api key; empty until the handshake is done."""
        return dict(self._handshake.versions or {})

    @property
    def outstanding(self) -> tuple[int, ...]:
        """The ids of the requests that wait for their response, oldest first."""
        return tuple(sent.request_id for sent in self._sent.values() if sent.request_id is not None)

    # Out

    def handshake(self) -> bytes:
        """What handshake and authentication want sent now: empty where they wait, are done or have failed."""
        if self.failure is not None:
            return b""
        version = self._handshake.next_version()
        if version is not None:
            return self._frame(None, api.ApiVersions(), version)
        if self._handshake.versions is None or self._exchange is None:
            return b""
        request = self._exchange.next_request()
        if request is None:
            return b""
        try:
            version = choose_version(request, self._handshake.versions.get(codec_of(type(request)).api_key))
            return self._frame(None, request, version)
        except (UnsupportedVersionError, TransportError) as error:
            self._failure = error
            return b""

    def authenticate_again(self, mechanism: Mechanism) -> None:
        """Begin another authentication: not `ready` until it is done. Send what `handshake` returns then.

        Raises RuntimeError where the connection is not ready.
        """
        if not self.ready:
            raise RuntimeError("authenticate_again() needs a connection that is ready")
        self._exchange = Exchange(mechanism)

    def send(self, request_id: int, request: api.Request) -> bytes:
        """The frame of a request. `request_id` is the caller's own and comes back with the response.

        Raises UnsupportedVersionError where the broker has no version for it, ConfigError where a value does
        not fit: the connection stays good. Raises RuntimeError before `ready` and after a failure.
        """
        if not self.ready:
            raise RuntimeError("send() needs a connection whose handshake is done and which has not failed")
        versions = self._handshake.versions or {}
        version = choose_version(request, versions.get(codec_of(type(request)).api_key))
        return self._frame(request_id, request, version)

    def _frame(self, request_id: int | None, request: api.Request, version: int) -> bytes:
        codec = codec_of(type(request))
        # Before the request is noted: one that does not fit must not leave a response to wait for.
        body = codec.encode(request, version)
        # The client id has the old form even in the flexible header, which ends in an empty set of tags.
        rest = self._client_id + (b"\x00" if version >= codec.flexible_from else b"") + body
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF  # an INT32 that stays positive
        self._sent[correlation_id] = _Sent(request_id, request, version)
        size = _REQUEST_HEADER.size - _LENGTH_BYTES + len(rest)
        header = _REQUEST_HEADER.pack(size, codec.api_key, version, correlation_id, len(self._client_id))
        return header + rest

    # In

    def get_buffer(self) -> memoryview:
        """Where to receive the next bytes; never empty. Large responses are received in place."""
        return self._frames.get_buffer(whole=bool(self._sent))

    @property
    def wanted(self) -> int:
        """How many bytes of `get_buffer` make the response whole that has begun to come; 0 where none has."""
        return self._frames.wanted

    def buffer_updated(self, size: int) -> list[Received]:
        """Takes note of `size` bytes received into the buffer that `get_buffer` gave last."""
        return self._take(self._frames.buffer_updated(size))

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[Received]:
        """The same for bytes that were received elsewhere."""
        return self._take(self._frames.receive_data(data))

    def end_of_stream(self) -> KafkaError:
        """The error to report where the peer has closed the connection."""
        if self.failure is not None:
            return self.failure
        if self._handshake.versions is None:
            return TransportError(
                "the connection was closed during the handshake: a listener that wants TLS does so,"
                " and so does what is not Kafka"
            )
        if self._exchange is not None and not self._exchange.done:
            return TransportError("the broker closed the connection during authentication")
        # A listener that wants SASL responds to ApiVersions without it, then closes at the first other request.
        if self._sent and not self._on_response:
            return TransportError(
                "the broker closed the connection instead of responding: a listener that wants SASL does so"
                " (see security_protocol)"
            )
        where = "between two responses" if self._frames.is_between_frames else "in the middle of a response"
        return TransportError(f"the broker closed the connection {where}")

    def _most_bytes(self, correlation_id: int) -> int | None:
        sent = self._sent.get(correlation_id)
        if sent is None:
            return None
        return min(self._max_frame_bytes, codec_of(type(sent.request)).most_bytes(sent.request))

    def _take(self, frames: list[memoryview]) -> list[Received]:
        received: list[Received] = []
        for frame in frames:
            if self._failure is not None:
                break
            outcome = self._receive(frame)
            if outcome is not None:
                received.append(outcome)
        return received

    def _receive(self, frame: memoryview) -> Received | None:
        reader = Reader(frame, elements=_MOST_HEADER_TAGS)
        try:
            sent = self._match(reader.int32())
            response = self._response(sent, reader)
        except ProtocolError as error:
            # No request can be named for it: with the stream, all that wait fail.
            self._failure = error
            return None
        return response

    def _match(self, correlation_id: int) -> _Sent:
        sent = self._sent.pop(correlation_id, None)
        if sent is None:
            raise ProtocolError(f"a response has the correlation id {correlation_id}, for which no request waits")
        return sent

    def _response(self, sent: _Sent, reader: Reader) -> Received | None:
        if sent.request_id is None:
            self._failure = self._take_own(sent, reader)
            return None
        self._on_response = True
        nbytes = reader.position + reader.remaining
        try:
            response = _decode(codec_of(type(sent.request)), sent, reader)
        except ProtocolError as error:
            self._failure = error
            return Received(request_id=sent.request_id, error=error, nbytes=nbytes)
        return Received(request_id=sent.request_id, response=response, nbytes=nbytes)

    def _take_own(self, sent: _Sent, reader: Reader) -> KafkaError | None:
        """The response to a request of the handshake or the authentication."""
        if isinstance(sent.request, api.ApiVersions):
            return self._handshake.response_received(reader.take(reader.remaining))
        assert self._exchange is not None, "only an exchange sends these"
        response = _decode(codec_of(type(sent.request)), sent, reader)
        assert isinstance(response, SaslResponse), "the codec of a SASL request decodes to its response"
        return self._exchange.response_received(response)


def _decode(codec: Codec[Any, Any], sent: _Sent, reader: Reader) -> api.Response:
    # ApiVersions responds with the old header always, so that a client that speaks no common version can read it.
    if sent.version >= codec.flexible_from and not isinstance(sent.request, api.ApiVersions):
        reader.tagged_fields()
    response: api.Response = codec.decode(reader.take(reader.remaining), sent.version, sent.request)
    return response
