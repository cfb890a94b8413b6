"""Connections that fail, bytes that break the protocol, and peers that do not prove who they are."""

from __future__ import annotations

from instride.errors.base import KafkaError

__all__ = [
    "AuthenticationError",
    "CorruptRecordError",
    "FrameTooLargeError",
    "NotKafkaError",
    "ProtocolError",
    "TlsError",
    "TransportError",
    "UnsupportedVersionError",
]


class TransportError(KafkaError):
    """A connection could not be made, or broke."""

    retriable = True


class NotKafkaError(TransportError):
    """Something responds at that address, but not in Kafka's protocol (or it wants TLS)."""

    retriable = False


class ProtocolError(KafkaError):
    """Bytes from a broker break the protocol's rules. The connection that brought them is closed."""


class FrameTooLargeError(ProtocolError):
    """A frame states a length that is negative or over ``max_frame_bytes``. Nothing was allocated for it.

    length: where it was more than its request allows: how long it was to be; else 0.
    """

    def __init__(self, message: str, *, length: int = 0) -> None:
        super().__init__(message)
        self.length = length


class UnsupportedVersionError(ProtocolError):
    """The broker and this client share no version of a request."""

    fatal = True


class CorruptRecordError(ProtocolError):
    """A record batch cannot be read: bad checksum, lengths, codec or format.

    Its partition has failed there; others flow. ``Consumer.seek`` past it, or to it again, resumes it.

    topic, partition: where. offset: of the first record that cannot be read (or the fetch position).
    """

    def __init__(self, message: str, *, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class AuthenticationError(KafkaError):
    """The broker refused the credentials, or did not prove who it is. It is tried again, a second or more later."""

    fatal = True


class TlsError(AuthenticationError):
    """TLS was not agreed: the broker's certificate is not good for its name or not trusted, or it refuses ours."""
