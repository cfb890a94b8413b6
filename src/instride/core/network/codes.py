"""Shorter names for the error codes of the group's coordinator (`errors.codes`)."""

from __future__ import annotations

from typing import Final

from instride.errors.codes import COORDINATOR_MOVED, ErrorCode

__all__ = [
    "FENCED_INSTANCE_ID",
    "ILLEGAL_GENERATION",
    "INCONSISTENT_GROUP_PROTOCOL",
    "INVALID_GROUP_ID",
    "MEMBER_ID_REQUIRED",
    "MOVED",
    "REBALANCE_IN_PROGRESS",
    "UNKNOWN_MEMBER_ID",
]

ILLEGAL_GENERATION: Final = ErrorCode.ILLEGAL_GENERATION
INCONSISTENT_GROUP_PROTOCOL: Final = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
INVALID_GROUP_ID: Final = ErrorCode.INVALID_GROUP_ID
UNKNOWN_MEMBER_ID: Final = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE_IN_PROGRESS: Final = ErrorCode.REBALANCE_IN_PROGRESS
MEMBER_ID_REQUIRED: Final = ErrorCode.MEMBER_ID_REQUIRED
FENCED_INSTANCE_ID: Final = ErrorCode.FENCED_INSTANCE_ID
MOVED: Final = COORDINATOR_MOVED
