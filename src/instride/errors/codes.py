"""Kafka's error codes: one table, with Kafka's names, what a code is about, and whether the request may succeed later.

Laws
1. A code that a response may carry to this consumer has a row. `errors.broker` has its class: each row has exactly one.
2. Code that compares error codes names them from here; the numbers stand nowhere else.
3. A broker may send a code that is not here, of a newer Kafka. It stays a number, and is neither retriable nor fatal.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

__all__ = ["ErrorCategory", "ErrorCode"]


class ErrorCategory(Enum):
    """What an error code is about."""

    BROKER = "the broker has a trouble of its own"
    METADATA = "the metadata is out of date: another broker leads, or the topic is another one"
    COORDINATOR = "the coordinator is elsewhere, or not ready"
    SESSION = "the broker lost the fetch session"
    MEMBERSHIP = "the group's generation or its members changed"
    OFFSET = "the offset, or the text beside it"
    RECORDS = "the record batches"
    SETTING = "a setting, or a name that the user chose"
    AUTHENTICATION = "who the client is"
    AUTHORIZATION = "what the client may do"
    PROTOCOL = "a request that the broker does not take"


class _Fate(Enum):
    FINAL = 0
    RETRIABLE = 1
    FATAL = 2


_C = ErrorCategory
_RETRIABLE: Final = _Fate.RETRIABLE
_FATAL: Final = _Fate.FATAL


class ErrorCode(IntEnum):
    """An error code of Kafka's protocol. It equals its number.

    category: what it is about. retriable: the same request may succeed later. fatal: to repeat it does not help by
    itself.
    """

    category: ErrorCategory
    retriable: bool
    fatal: bool

    def __new__(cls, code: int, category: ErrorCategory = ErrorCategory.BROKER, fate: _Fate = _Fate.FINAL) -> ErrorCode:
        row = int.__new__(cls, code)
        row._value_ = code
        row.category, row.retriable, row.fatal = category, fate is _Fate.RETRIABLE, fate is _Fate.FATAL
        return row

    UNKNOWN_SERVER_ERROR = -1, _C.BROKER
    NONE = 0, _C.BROKER
    OFFSET_OUT_OF_RANGE = 1, _C.OFFSET
    CORRUPT_MESSAGE = 2, _C.RECORDS, _RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, _C.METADATA, _RETRIABLE
    LEADER_NOT_AVAILABLE = 5, _C.METADATA, _RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, _C.METADATA, _RETRIABLE
    REQUEST_TIMED_OUT = 7, _C.BROKER, _RETRIABLE
    BROKER_NOT_AVAILABLE = 8, _C.BROKER, _RETRIABLE
    REPLICA_NOT_AVAILABLE = 9, _C.METADATA, _RETRIABLE
    OFFSET_METADATA_TOO_LARGE = 12, _C.OFFSET
    NETWORK_EXCEPTION = 13, _C.BROKER, _RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, _C.COORDINATOR, _RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, _C.COORDINATOR, _RETRIABLE
    NOT_COORDINATOR = 16, _C.COORDINATOR, _RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, _C.SETTING
    ILLEGAL_GENERATION = 22, _C.MEMBERSHIP
    INCONSISTENT_GROUP_PROTOCOL = 23, _C.SETTING, _FATAL
    INVALID_GROUP_ID = 24, _C.SETTING, _FATAL
    UNKNOWN_MEMBER_ID = 25, _C.MEMBERSHIP
    INVALID_SESSION_TIMEOUT = 26, _C.SETTING, _FATAL
    REBALANCE_IN_PROGRESS = 27, _C.MEMBERSHIP, _RETRIABLE
    INVALID_COMMIT_OFFSET_SIZE = 28, _C.OFFSET
    TOPIC_AUTHORIZATION_FAILED = 29, _C.AUTHORIZATION
    GROUP_AUTHORIZATION_FAILED = 30, _C.AUTHORIZATION, _FATAL
    CLUSTER_AUTHORIZATION_FAILED = 31, _C.AUTHORIZATION, _FATAL
    UNSUPPORTED_SASL_MECHANISM = 33, _C.AUTHENTICATION, _FATAL
    ILLEGAL_SASL_STATE = 34, _C.AUTHENTICATION, _FATAL
    UNSUPPORTED_VERSION = 35, _C.PROTOCOL, _FATAL
    INVALID_REQUEST = 42, _C.PROTOCOL
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _C.RECORDS
    KAFKA_STORAGE_ERROR = 56, _C.METADATA, _RETRIABLE
    SASL_AUTHENTICATION_FAILED = 58, _C.AUTHENTICATION, _FATAL
    GROUP_ID_NOT_FOUND = 69, _C.MEMBERSHIP
    FETCH_SESSION_ID_NOT_FOUND = 70, _C.SESSION, _RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, _C.SESSION, _RETRIABLE
    FENCED_LEADER_EPOCH = 74, _C.METADATA, _RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, _C.BROKER, _RETRIABLE  # the broker's own metadata is older than ours
    UNSUPPORTED_COMPRESSION_TYPE = 76, _C.RECORDS
    OFFSET_NOT_AVAILABLE = 78, _C.METADATA, _RETRIABLE
    MEMBER_ID_REQUIRED = 79, _C.MEMBERSHIP, _RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, _C.SETTING, _FATAL
    FENCED_INSTANCE_ID = 82, _C.MEMBERSHIP, _FATAL
    UNSTABLE_OFFSET_COMMIT = 88, _C.OFFSET, _RETRIABLE
    UNKNOWN_TOPIC_ID = 100, _C.METADATA, _RETRIABLE
    INCONSISTENT_TOPIC_ID = 103, _C.METADATA, _RETRIABLE
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _C.SESSION, _RETRIABLE
    REBOOTSTRAP_REQUIRED = 129, _C.BROKER


def of_category(category: ErrorCategory) -> frozenset[ErrorCode]:
    """Every error code of it, without NONE."""
    return frozenset(code for code in ErrorCode if code.category is category and code is not ErrorCode.NONE)


COORDINATOR_MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""The coordinator is to be looked for again. The third of its category, "load in progress", only has to be awaited."""
