"""Kafka's error codes that the group's coordinator answers with, by Kafka's names."""

from __future__ import annotations

from typing import Final

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

ILLEGAL_GENERATION: Final = 22
INCONSISTENT_GROUP_PROTOCOL: Final = 23
INVALID_GROUP_ID: Final = 24
UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
MEMBER_ID_REQUIRED: Final = 79
FENCED_INSTANCE_ID: Final = 82
# COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR: look for it again.
MOVED: Final = frozenset({15, 16})
