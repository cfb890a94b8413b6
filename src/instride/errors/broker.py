"""The class of each error code of the table (`errors.codes`), and what to do about it.

Laws
1. A code has exactly one class; UNKNOWN_SERVER_ERROR, and an unknown code, raise the base class with that code.
2. `retriable` and `fatal` are read from the table.
"""

from __future__ import annotations

from typing import ClassVar, Final

from instride.errors.base import KafkaError
from instride.errors.codes import ErrorCode
from instride.errors.connection import AuthenticationError

__all__ = [
    "BROKER_ERRORS",
    "BrokerNotAvailableError",
    "BrokerResponseError",
    "ClusterAuthorizationFailedError",
    "CommitFailedError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptMessageError",
    "FencedInstanceIdError",
    "FencedLeaderEpochError",
    "FetchSessionIdNotFoundError",
    "FetchSessionTopicIdError",
    "GroupAuthorizationFailedError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "IllegalGenerationError",
    "IllegalSaslStateError",
    "InconsistentGroupProtocolError",
    "InconsistentTopicIdError",
    "InvalidCommitOffsetSizeError",
    "InvalidFetchSessionEpochError",
    "InvalidGroupIdError",
    "InvalidRequestError",
    "InvalidSessionTimeoutError",
    "InvalidTopicError",
    "KafkaStorageError",
    "LeaderNotAvailableError",
    "MemberIdRequiredError",
    "NetworkExceptionError",
    "NotCoordinatorError",
    "NotLeaderOrFollowerError",
    "OffsetMetadataTooLargeError",
    "OffsetNotAvailableError",
    "OffsetOutOfRangeError",
    "RebalanceInProgressError",
    "RebootstrapRequiredError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "SaslAuthenticationFailedError",
    "TopicAuthorizationFailedError",
    "UnknownLeaderEpochError",
    "UnknownMemberIdError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnstableOffsetCommitError",
    "UnsupportedCompressionTypeError",
    "UnsupportedForMessageFormatError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionCodeError",
    "error_for_code",
]


class BrokerResponseError(KafkaError):
    """A broker responded with an error code.

    code: the number in Kafka's protocol; of a known code it is an `ErrorCode`, which names it.
    advice: what to do about it, where that can be said; it ends the message of `error_for_code`.
    """

    code: int = ErrorCode.UNKNOWN_SERVER_ERROR
    advice: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """`retriable` and `fatal` are those of its code's row."""
        super().__init_subclass__()
        own = vars(cls).get("code")
        if isinstance(own, ErrorCode):
            cls.retriable, cls.fatal = own.retriable, own.fatal

    def __init__(self, message: str = "", *, code: int | None = None) -> None:
        if code is not None:
            self.code = code
        super().__init__(message or f"{type(self).__name__} (code {self.code})")


class OffsetOutOfRangeError(BrokerResponseError):
    """The log does not have the offset, and ``auto_offset_reset`` is "none". ``Consumer.seek`` to go on."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessageError(BrokerResponseError):
    code = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartitionError(BrokerResponseError):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LeaderNotAvailableError(BrokerResponseError):
    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollowerError(BrokerResponseError):
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOutError(BrokerResponseError):
    code = ErrorCode.REQUEST_TIMED_OUT


class BrokerNotAvailableError(BrokerResponseError):
    code = ErrorCode.BROKER_NOT_AVAILABLE


class ReplicaNotAvailableError(BrokerResponseError):
    code = ErrorCode.REPLICA_NOT_AVAILABLE


class OffsetMetadataTooLargeError(BrokerResponseError):
    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
    advice = "The text beside the offset is longer than the broker's offset.metadata.max.bytes: shorten it"


class NetworkExceptionError(BrokerResponseError):
    code = ErrorCode.NETWORK_EXCEPTION


class CoordinatorLoadInProgressError(BrokerResponseError):
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailableError(BrokerResponseError):
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorError(BrokerResponseError):
    code = ErrorCode.NOT_COORDINATOR


class InvalidTopicError(BrokerResponseError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    advice = "A topic's name has 1 to 249 ASCII letters, digits, dots, '_' and '-': correct it"


class IllegalGenerationError(BrokerResponseError):
    code = ErrorCode.ILLEGAL_GENERATION
    advice = "The group went on without this member: poll, and it joins again"


class InconsistentGroupProtocolError(BrokerResponseError):
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupIdError(BrokerResponseError):
    code = ErrorCode.INVALID_GROUP_ID
    advice = "Check group_id"


class UnknownMemberIdError(BrokerResponseError):
    code = ErrorCode.UNKNOWN_MEMBER_ID
    advice = "The group went on without this member: poll, and it joins again"


class InvalidSessionTimeoutError(BrokerResponseError):
    code = ErrorCode.INVALID_SESSION_TIMEOUT
    advice = "session_timeout must lie between the broker's group.min.session.timeout.ms and its max"


class RebalanceInProgressError(BrokerResponseError):
    code = ErrorCode.REBALANCE_IN_PROGRESS


class InvalidCommitOffsetSizeError(BrokerResponseError):
    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    advice = "Commit fewer partitions at once, or shorter metadata"


class TopicAuthorizationFailedError(BrokerResponseError):
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailedError(BrokerResponseError):
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    advice = "This principal needs Read for the group (an ACL)"


class ClusterAuthorizationFailedError(BrokerResponseError):
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class UnsupportedSaslMechanismError(BrokerResponseError, AuthenticationError):
    """The listener does not take this ``sasl_mechanism``; the message names those that it takes."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslStateError(BrokerResponseError, AuthenticationError):
    """The listener does not want SASL, or not at this point."""

    code = ErrorCode.ILLEGAL_SASL_STATE


class SaslAuthenticationFailedError(BrokerResponseError, AuthenticationError):
    """The broker refused the credentials."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnsupportedVersionCodeError(BrokerResponseError):
    code = ErrorCode.UNSUPPORTED_VERSION


class InvalidRequestError(BrokerResponseError):
    code = ErrorCode.INVALID_REQUEST


class UnsupportedForMessageFormatError(BrokerResponseError):
    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    advice = "The topic's log is in a format of before Kafka 0.11"


class KafkaStorageError(BrokerResponseError):
    code = ErrorCode.KAFKA_STORAGE_ERROR


class GroupIdNotFoundError(BrokerResponseError):
    code = ErrorCode.GROUP_ID_NOT_FOUND


class FetchSessionIdNotFoundError(BrokerResponseError):
    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class FetchSessionTopicIdError(BrokerResponseError):
    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class InvalidFetchSessionEpochError(BrokerResponseError):
    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class FencedLeaderEpochError(BrokerResponseError):
    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(BrokerResponseError):
    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionTypeError(BrokerResponseError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class OffsetNotAvailableError(BrokerResponseError):
    code = ErrorCode.OFFSET_NOT_AVAILABLE


class MemberIdRequiredError(BrokerResponseError):
    code = ErrorCode.MEMBER_ID_REQUIRED


class GroupMaxSizeReachedError(BrokerResponseError):
    code = ErrorCode.GROUP_MAX_SIZE_REACHED
    advice = "The group has as many members as the broker's group.max.size allows"


class FencedInstanceIdError(BrokerResponseError):
    code = ErrorCode.FENCED_INSTANCE_ID
    advice = "Another consumer has joined with the same group_instance_id: give each its own"


class UnstableOffsetCommitError(BrokerResponseError):
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


class UnknownTopicIdError(BrokerResponseError):
    code = ErrorCode.UNKNOWN_TOPIC_ID


class InconsistentTopicIdError(BrokerResponseError):
    code = ErrorCode.INCONSISTENT_TOPIC_ID


class RebootstrapRequiredError(BrokerResponseError):
    code = ErrorCode.REBOOTSTRAP_REQUIRED


class CommitFailedError(BrokerResponseError):
    """These offsets were not committed: the group gave the partitions to another member before, say."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


def _register() -> dict[int, type[BrokerResponseError]]:
    table: dict[int, type[BrokerResponseError]] = {}
    for kind in BrokerResponseError.__subclasses__():
        if kind is CommitFailedError:
            continue
        if kind.code in table:
            raise RuntimeError(f"error code {kind.code} is claimed twice")
        table[kind.code] = kind
    return table


BROKER_ERRORS: Final[dict[int, type[BrokerResponseError]]] = _register()
"""The class of each error code of the protocol."""


def name_of_code(code: int) -> str:
    """The class and the number, for messages; of the code that has no class of its own (law 1) Kafka's name."""
    if code == ErrorCode.UNKNOWN_SERVER_ERROR:
        return f"{ErrorCode.UNKNOWN_SERVER_ERROR.name} (error code {code})"
    return f"{BROKER_ERRORS.get(code, BrokerResponseError).__name__} (error code {code})"


def error_for_code(code: int, message: str = "") -> BrokerResponseError:
    """The error of a broker's code (which must not be 0), of the base class where the code is unknown."""
    kind = BROKER_ERRORS.get(code)
    if kind is not None:
        text = message or name_of_code(code)
        return kind(f"{text}. {kind.advice}" if kind.advice else text)
    return BrokerResponseError(message or f"the broker responded with error code {code}", code=code)
