"""The errors that whoever asked for a commit hears."""

from __future__ import annotations

from instride.commits import CommitEntry
from instride.core.network.codes import ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID
from instride.errors import CommitFailedError, error_for_code
from instride.records import TopicPartition

__all__ = ["final_error", "not_held"]


def not_held(tp: TopicPartition) -> CommitFailedError:
    """It is lost, revoked, or was sought elsewhere since."""
    return CommitFailedError(f"{tp} is not this consumer's any more; its offset was not committed")


def final_error(tp: TopicPartition, commit: CommitEntry, code: int) -> Exception:
    """What a broker's code says that no retry mends."""
    if code in (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID):
        return CommitFailedError(
            f"offset {commit.offset} of {tp} was not committed: this consumer is no longer a member of the group; "
            "process less per poll, or raise max_poll_interval"
        )
    return error_for_code(code, f"offset {commit.offset} of {tp} was not committed (error code {code})")
