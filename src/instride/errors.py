"""Every error instride raises, in one tree.

    KafkaError
    ├── ConfigError (also ValueError)          a wrong, unknown or contradictory setting
    ├── ConsumerClosedError                    use after close
    ├── IllegalStateError (also RuntimeError)  the call does not fit what the consumer is doing
    ├── ConcurrentUseError                     two threads inside one consumer at once
    ├── ForkedConsumerError                    an open consumer used in a child process
    ├── WakeupError                            Consumer.wakeup() interrupted the call
    ├── NetworkThreadDiedError                 the network thread ended; __cause__ says why
    ├── KafkaTimeoutError (also TimeoutError)  the call's own time ended
    ├── TransportError                         no connection, or it broke
    │   └── NotKafkaError                      what answers there does not speak Kafka's protocol
    ├── ProtocolError                          bytes that break the protocol's rules
    │   ├── FrameTooLargeError                 a frame's stated length is over the bound, or negative
    │   ├── UnsupportedVersionError            broker and client share no version of a request
    │   └── CorruptRecordError                 a record batch that cannot be read
    ├── AuthenticationError                    the broker refused who we are, or did not prove who it is
    │   ├── TlsError                           TLS was not agreed: a certificate is refused, or no version in common
    │   └── (also BrokerResponseErrors)        UnsupportedSaslMechanismError, IllegalSaslStateError,
    │                                          SaslAuthenticationFailedError: what the broker refused
    ├── BrokerResponseError                    a broker answered with an error code
    │   ├── (one class for each code: see BROKER_ERRORS)
    │   └── CommitFailedError                  the group moved on; these offsets were not committed
    ├── NoOffsetForPartitionError              no committed offset, and auto_offset_reset="none"
    ├── NoAssignorInCommonError                the group's members share no assignor or rebalance protocol
    ├── DeserializationError                   a key or value deserializer raised; names the record
    ├── SinkError                              the pipeline's output could not be written, committed or read
    │   ├── NotASinkError                      the folder holds something else, or a newer format
    │   ├── WrongTopicError                    the sink holds another topic of the same name
    │   ├── CorruptManifestError               a manifest cannot be read, or the chain has a gap
    │   ├── MissingDataError                   a data file that was reported or listed is not there
    │   └── SinkWriteError                     the disk is full, or refuses; nothing became visible
    ├── PipelineError                          the pipeline stopped; what was committed stays, nothing was skipped
    │   ├── RangeFailedError                   work on a range of offsets failed as often as it was to be tried
    │   └── OffsetsGoneError                   offsets that are due are not in the log any more
    ├── HistoryError (also ValueError)         instride.testing: a recorded history that cannot be read
    └── LocalKafkaError                        instride.testing: the Kafka for tests, used wrongly or broken
        ├── JavaNotFoundError                  no Java that can run a broker
        ├── KafkaNotFoundError                 no Apache Kafka here, and none could be fetched
        ├── ChecksumMismatchError              what was fetched is not what is pinned
        └── BrokerStartError                   a broker ended while it was to start

Laws
1. Whether trying again can help is data: ``retriable``. Whether the consumer can go on at all: ``fatal``.
2. A message names the setting, topic, partition or host concerned, and says what to do.
3. No message holds a secret.
4. A broker's error code has exactly one class; an unknown code raises the base class with that code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from instride.records import TopicPartition
    from instride.wire.decoder import ConsumerRecord

__all__ = [
    "BROKER_ERRORS",
    "AuthenticationError",
    "BrokerResponseError",
    "BrokerStartError",
    "ChecksumMismatchError",
    "CommitFailedError",
    "ConcurrentUseError",
    "ConfigError",
    "ConsumerClosedError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptManifestError",
    "CorruptRecordError",
    "DeserializationError",
    "FencedInstanceIdError",
    "ForkedConsumerError",
    "FrameTooLargeError",
    "GroupAuthorizationFailedError",
    "IllegalSaslStateError",
    "HistoryError",
    "IllegalGenerationError",
    "IllegalStateError",
    "JavaNotFoundError",
    "KafkaError",
    "KafkaNotFoundError",
    "KafkaTimeoutError",
    "LocalKafkaError",
    "MissingDataError",
    "NetworkThreadDiedError",
    "NoAssignorInCommonError",
    "NoOffsetForPartitionError",
    "NotASinkError",
    "NotCoordinatorError",
    "NotKafkaError",
    "NotLeaderOrFollowerError",
    "OffsetOutOfRangeError",
    "ProtocolError",
    "RebalanceInProgressError",
    "SaslAuthenticationFailedError",
    "SinkError",
    "SinkWriteError",
    "PipelineError",
    "RangeFailedError",
    "OffsetsGoneError",
    "TlsError",
    "TopicAuthorizationFailedError",
    "TransportError",
    "UnknownMemberIdError",
    "UnknownTopicOrPartitionError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "WakeupError",
    "WrongTopicError",
    "error_for_code",
]


class KafkaError(Exception):
    """Base of every error here.

    retriable: the same call may succeed later.
    fatal: this consumer cannot go on; close it.
    """

    retriable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False


class ConfigError(KafkaError, ValueError):
    """A setting is unknown, out of bounds, or contradicts another. Raised when the consumer is built."""


class ConsumerClosedError(KafkaError):
    """The consumer was closed."""


class IllegalStateError(KafkaError, RuntimeError):
    """The call does not fit what the consumer is doing: polling without a subscription, say."""


class ConcurrentUseError(KafkaError):
    """Another thread is inside a call. A consumer may move between threads, not be used by two at once."""


class ForkedConsumerError(KafkaError):
    """The process forked after the consumer was opened; the child must build its own."""


class WakeupError(KafkaError):
    """``Consumer.wakeup()`` interrupted this call."""

    retriable = True


class NetworkThreadDiedError(KafkaError):
    """The network thread ended unexpectedly. ``__cause__`` holds what ended it."""

    fatal = True


class KafkaTimeoutError(KafkaError, TimeoutError):
    """The call's time ended before the answer came."""

    retriable = True


class TransportError(KafkaError):
    """A connection could not be made, or broke."""

    retriable = True


class NotKafkaError(TransportError):
    """Something answers at that address, but not in Kafka's protocol (or it wants TLS)."""

    retriable = False


class ProtocolError(KafkaError):
    """Bytes from a broker break the protocol's rules. The connection that brought them is closed."""


class FrameTooLargeError(ProtocolError):
    """A frame states a length that is negative or over ``max_frame_bytes``. Nothing was allocated for it."""


class UnsupportedVersionError(ProtocolError):
    """The broker and this client share no version of a request."""

    fatal = True


class CorruptRecordError(ProtocolError):
    """A record batch cannot be read: bad checksum, lengths, codec or format.

    Its partition is parked there; others flow. ``Consumer.seek`` past it, or to it again, resumes it.

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


class NoOffsetForPartitionError(KafkaError):
    """A partition has no committed offset and ``auto_offset_reset`` is "none"."""


class NoAssignorInCommonError(KafkaError):
    """The configured assignors share no rebalance protocol, or none is known to the rest of the group."""

    fatal = True


class DeserializationError(KafkaError):
    """A key or value deserializer raised. ``__cause__`` holds its error.

    The partition's position stays at the record, and each poll raises this again, until it can be read, or the
    application goes past it: ``consumer.seek(error.topic_partition, error.offset + 1)``.

    part: "key" or "value". record: as it was fetched, its key and value as bytes.
    """

    def __init__(self, message: str, *, part: str, record: ConsumerRecord) -> None:
        super().__init__(message)
        self.part = part
        self.record = record

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def partition(self) -> int:
        return self.record.partition

    @property
    def topic_partition(self) -> TopicPartition:
        return self.record.topic_partition

    @property
    def offset(self) -> int:
        return self.record.offset

    def __reduce__(self) -> tuple[object, ...]:
        return _deserialization_error, (self.args[0], self.part, self.record)


def _deserialization_error(message: str, part: str, record: ConsumerRecord) -> DeserializationError:
    """What pickle calls."""
    return DeserializationError(message, part=part, record=record)


class SinkError(KafkaError):
    """The pipeline's output could not be written, committed or read. What was committed before stays."""


class NotASinkError(SinkError):
    """The folder is not a sink: it holds something else, or was written by a newer version."""

    fatal = True


class WrongTopicError(SinkError):
    """The sink holds a topic of the same name with another id: the topic was deleted and made again."""

    fatal = True


class CorruptManifestError(SinkError):
    """A manifest cannot be read, or its chain has a gap. Nothing is written until that is repaired."""

    fatal = True


class MissingDataError(SinkError):
    """A data file that a task reported, or that a manifest lists, is not where this process looks for it."""


class SinkWriteError(SinkError):
    """Writing failed, as on a full disk. Nothing became visible; ``__cause__`` is the system's error."""

    retriable = True


class PipelineError(KafkaError):
    """The pipeline stopped because it could not go on. What was committed stays; nothing was skipped."""


class RangeFailedError(PipelineError):
    """Work on a range of offsets failed as often as it was to be tried. The message holds the last reason."""


class OffsetsGoneError(PipelineError):
    """Offsets that are to be read are not in the log any more: retention or deletion was quicker."""

    fatal = True


class HistoryError(KafkaError, ValueError):
    """A line is no event of a history, or events contradict each other: see docs/histories.md."""


class LocalKafkaError(KafkaError):
    """`instride.testing.LocalKafka` was used wrongly, or what it stands on broke."""


class JavaNotFoundError(LocalKafkaError):
    """No Java that can run a broker. The message tells every place looked at, and why its Java would not do."""


class KafkaNotFoundError(LocalKafkaError):
    """No Apache Kafka here, and none could be fetched."""


class ChecksumMismatchError(LocalKafkaError):
    """A fetched file is not the one that is pinned. It was not run."""


class BrokerStartError(LocalKafkaError):
    """A broker ended while it was to start. The message holds the end of its log.

    port_taken: whether it ended because another process listens on one of its ports.
    """

    def __init__(self, message: str, *, port_taken: bool = False) -> None:
        super().__init__(message)
        self.port_taken = port_taken


class BrokerResponseError(KafkaError):
    """A broker answered with an error code.

    code: the numeric code of Kafka's protocol.
    """

    code: int = -1

    def __init__(self, message: str = "", *, code: int | None = None) -> None:
        if code is not None:
            self.code = code
        super().__init__(message or f"{type(self).__name__} (code {self.code})")


class OffsetOutOfRangeError(BrokerResponseError):
    code = 1


class CorruptMessageError(BrokerResponseError):
    code = 2
    retriable = True


class UnknownTopicOrPartitionError(BrokerResponseError):
    code = 3
    retriable = True


class LeaderNotAvailableError(BrokerResponseError):
    code = 5
    retriable = True


class NotLeaderOrFollowerError(BrokerResponseError):
    code = 6
    retriable = True


class RequestTimedOutError(BrokerResponseError):
    code = 7
    retriable = True


class BrokerNotAvailableError(BrokerResponseError):
    code = 8
    retriable = True


class ReplicaNotAvailableError(BrokerResponseError):
    code = 9
    retriable = True


class OffsetMetadataTooLargeError(BrokerResponseError):
    code = 12


class NetworkExceptionError(BrokerResponseError):
    code = 13
    retriable = True


class CoordinatorLoadInProgressError(BrokerResponseError):
    code = 14
    retriable = True


class CoordinatorNotAvailableError(BrokerResponseError):
    code = 15
    retriable = True


class NotCoordinatorError(BrokerResponseError):
    code = 16
    retriable = True


class InvalidTopicError(BrokerResponseError):
    code = 17


class IllegalGenerationError(BrokerResponseError):
    code = 22


class InconsistentGroupProtocolError(BrokerResponseError):
    code = 23
    fatal = True


class InvalidGroupIdError(BrokerResponseError):
    code = 24
    fatal = True


class UnknownMemberIdError(BrokerResponseError):
    code = 25


class InvalidSessionTimeoutError(BrokerResponseError):
    code = 26
    fatal = True


class RebalanceInProgressError(BrokerResponseError):
    code = 27
    retriable = True


class InvalidCommitOffsetSizeError(BrokerResponseError):
    code = 28


class TopicAuthorizationFailedError(BrokerResponseError):
    code = 29


class GroupAuthorizationFailedError(BrokerResponseError):
    code = 30
    fatal = True


class ClusterAuthorizationFailedError(BrokerResponseError):
    code = 31
    fatal = True


class UnsupportedSaslMechanismError(BrokerResponseError, AuthenticationError):
    """The listener does not take this ``sasl_mechanism``; the message names those that it takes."""

    code = 33
    fatal = True


class IllegalSaslStateError(BrokerResponseError, AuthenticationError):
    """The listener does not want SASL, or not at this point."""

    code = 34
    fatal = True


class SaslAuthenticationFailedError(BrokerResponseError, AuthenticationError):
    """The broker refused the credentials."""

    code = 58
    fatal = True


class UnsupportedVersionCodeError(BrokerResponseError):
    code = 35
    fatal = True


class InvalidRequestError(BrokerResponseError):
    code = 42


class UnsupportedForMessageFormatError(BrokerResponseError):
    code = 43


class KafkaStorageError(BrokerResponseError):
    code = 56
    retriable = True


class FetchSessionIdNotFoundError(BrokerResponseError):
    code = 70
    retriable = True


class InvalidFetchSessionEpochError(BrokerResponseError):
    code = 71
    retriable = True


class FencedLeaderEpochError(BrokerResponseError):
    code = 74
    retriable = True


class UnknownLeaderEpochError(BrokerResponseError):
    code = 75
    retriable = True


class UnsupportedCompressionTypeError(BrokerResponseError):
    code = 76


class OffsetNotAvailableError(BrokerResponseError):
    code = 78
    retriable = True


class MemberIdRequiredError(BrokerResponseError):
    code = 79
    retriable = True


class GroupMaxSizeReachedError(BrokerResponseError):
    code = 81
    fatal = True


class FencedInstanceIdError(BrokerResponseError):
    code = 82
    fatal = True


class UnstableOffsetCommitError(BrokerResponseError):
    code = 88
    retriable = True


class UnknownTopicIdError(BrokerResponseError):
    code = 100
    retriable = True


class InconsistentTopicIdError(BrokerResponseError):
    code = 103
    retriable = True


class CommitFailedError(BrokerResponseError):
    """The group gave the partitions to another member before these offsets were committed."""

    code = -1


def _register() -> dict[int, type[BrokerResponseError]]:
    table: dict[int, type[BrokerResponseError]] = {}
    for kind in BrokerResponseError.__subclasses__():
        if kind.code == -1:
            continue
        if kind.code in table:
            raise RuntimeError(f"error code {kind.code} is claimed twice")
        table[kind.code] = kind
    return table


BROKER_ERRORS: Final[dict[int, type[BrokerResponseError]]] = _register()


def error_for_code(code: int, message: str = "") -> BrokerResponseError:
    """The error of a broker's code (which must not be 0), of the base class where the code is unknown."""
    kind = BROKER_ERRORS.get(code)
    if kind is not None:
        return kind(message)
    return BrokerResponseError(message or f"the broker answered with error code {code}", code=code)
