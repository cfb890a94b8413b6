"""The errors that whoever asked for a commit hears."""

from __future__ import annotations

from instride.commits import CommitEntry
from instride.errors import CommitFailedError, KafkaError, StaleCommitError, error_for_code
from instride.errors.codes import ErrorCode
from instride.records import TopicPartition

__all__ = ["abandoned", "final_error"]


def abandoned(tp: TopicPartition, commit: CommitEntry, why: str) -> StaleCommitError:
    """It is lost, revoked, or was sought elsewhere since."""
    return StaleCommitError(f"offset {commit.offset} of {tp} was not committed: {why}")


def final_error(tp: TopicPartition, commit: CommitEntry, code: int) -> KafkaError:
    """What a broker's code says that no retry mends."""
    if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
        return CommitFailedError(
            f"offset {commit.offset} of {tp} was not committed: this consumer is no longer a member of the group; "
            "process less per poll, or raise max_poll_interval"
        )
    return error_for_code(code, f"offset {commit.offset} of {tp} was not committed (error code {code})")
