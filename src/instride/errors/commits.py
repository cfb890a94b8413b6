"""Why an offset was not committed, more precisely than the broker's code says."""

from __future__ import annotations

from instride.errors.broker import CommitFailedError

__all__ = ["CommitOvertakenError", "CommitRewindError", "StaleCommitError"]


class StaleCommitError(CommitFailedError):
    """The offset speaks of an assignment of the partition, or of a seek, that is over. It was not committed, and never
    will be. If its response was missing, it may have been committed all the same, and the message says so. Whoever owns
    the partition now begins at what the group has.
    """


class CommitOvertakenError(CommitFailedError):
    """A later commit of the partition went in this one's place: the group has `committed`, and nothing is to be done.

    offset: that was not committed. committed: what the group has instead.
    """

    def __init__(self, message: str, *, offset: int, committed: int) -> None:
        super().__init__(message)
        self.offset = offset
        self.committed = committed


class CommitRewindError(CommitOvertakenError):
    """The group had committed a later offset already, and this one would take it back. If that is meant, ``seek``
    first, or commit with ``allow_rewind=True``.

    offset: that was not committed. committed: what the group has.
    """
