"""What the network side replies to the application side, where a test stands in its place and no broker refuses."""

from __future__ import annotations

from collections.abc import Callable

from instride import TopicPartition
from instride._core.events import (
    ApplicationEvent,
    BackgroundEvent,
    CallCompleted,
    Close,
    Commit,
    CommitsSettled,
    CompleteRevoke,
    PartitionsRevoked,
    Revoked,
    Unsubscribe,
)

__all__ = ["reply"]


def reply(event: ApplicationEvent, returned: Callable[[TopicPartition], int]) -> BackgroundEvent | None:
    """None: no reply. returned: before which offset of a partition every record was returned by a completed poll."""
    match event:
        case CompleteRevoke():
            return CommitsSettled(partitions=event.partitions)
        case PartitionsRevoked():
            return Revoked(partitions=event.partitions)
        case Commit():
            for partition, entry in event.entries.items():
                assert entry.offset <= returned(partition), "a commit speaks of what no poll returned"
            return CallCompleted(call=event.call, committed=dict.fromkeys(event.entries))
        case Unsubscribe() | Close():
            return CallCompleted(call=event.call)
        case _:
            return None
