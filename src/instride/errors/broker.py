"""A broker's error codes: one class for each, found by its code.

Laws
1. A code has exactly one class; an unknown code raises the base class with that code.
"""

from __future__ import annotations

from typing import ClassVar, Final

from instride.errors.base import KafkaError
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
    "name_of_code",
]


class BrokerResponseError(KafkaError):
    """A broker answered with an error code.

    code: the numeric code of Kafka's protocol.
    advice: what to do about it, where that can be said; it ends the message of `error_for_code`.
    """

    code: int = -1
    advice: ClassVar[str] = ""

    def __init__(self, message: str = "", *, code: int | None = None) -> None:
        if code is not None:
            self.code = code
        super().__init__(message or f"{type(self).__name__} (code {self.code})")


class OffsetOutOfRangeError(BrokerResponseError):
    """The log does not have the offset, and ``auto_offset_reset`` is "none". ``Consumer.seek`` to go on."""

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
    advice = "The text beside the offset is longer than the broker's offset.metadata.max.bytes: shorten it"


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
    advice = "A topic's name has 1 to 249 ASCII letters, digits, dots, '_' and '-': correct it"


class IllegalGenerationError(BrokerResponseError):
    code = 22
    advice = "The group went on without this member: poll, and it joins again"


class InconsistentGroupProtocolError(BrokerResponseError):
    code = 23
    fatal = True


class InvalidGroupIdError(BrokerResponseError):
    code = 24
    advice = "Check group_id"
    fatal = True


class UnknownMemberIdError(BrokerResponseError):
    code = 25
    advice = "The group went on without this member: poll, and it joins again"


class InvalidSessionTimeoutError(BrokerResponseError):
    code = 26
    advice = "session_timeout must lie between the broker's group.min.session.timeout.ms and its max"
    fatal = True


class RebalanceInProgressError(BrokerResponseError):
    code = 27
    retriable = True


class InvalidCommitOffsetSizeError(BrokerResponseError):
    code = 28
    advice = "Commit fewer partitions at once, or shorter metadata"


class TopicAuthorizationFailedError(BrokerResponseError):
    code = 29


class GroupAuthorizationFailedError(BrokerResponseError):
    code = 30
    advice = "This principal needs Read for the group (an ACL)"
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
    advice = "The topic's log is in a format of before Kafka 0.11"


class KafkaStorageError(BrokerResponseError):
    code = 56
    retriable = True


class FetchSessionIdNotFoundError(BrokerResponseError):
    code = 70
    retriable = True


class FetchSessionTopicIdError(BrokerResponseError):
    code = 106
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
    advice = "The group has as many members as the broker's group.max.size allows"
    fatal = True


class FencedInstanceIdError(BrokerResponseError):
    code = 82
    advice = "Another consumer has joined with the same group_instance_id: give each its own"
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
    """These offsets were not committed: the group gave the partitions to another member before, say."""

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
"""The class of each error code of the protocol."""


def name_of_code(code: int) -> str:
    """The class and the number, for messages."""
    return f"{BROKER_ERRORS.get(code, BrokerResponseError).__name__} (error code {code})"


def error_for_code(code: int, message: str = "") -> BrokerResponseError:
    """The error of a broker's code (which must not be 0), of the base class where the code is unknown."""
    kind = BROKER_ERRORS.get(code)
    if kind is not None:
        text = message or name_of_code(code)
        return kind(f"{text}. {kind.advice}" if kind.advice else text)
    return BrokerResponseError(message or f"the broker answered with error code {code}", code=code)
