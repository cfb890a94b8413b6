"""What the network side replies to the application side, where a test stands in its place and no broker refuses.

Each log goes from offset 0 to before 9.
"""

from __future__ import annotations

from collections.abc import Callable

from instride import TopicPartition
from instride._core.events import (
    LATEST,
    ApplicationEvent,
    BackgroundEvent,
    CallCompleted,
    Close,
    Commit,
    CommitsSettled,
    CompleteRevoke,
    FetchCommitted,
    PartitionsRevoked,
    Positioned,
    Revoked,
    SetPosition,
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
        case FetchCommitted():
            return CallCompleted(call=event.call, result=dict.fromkeys(event.partitions))
        case SetPosition() if event.offset < 0 and not event.keeps_buffer:
            found = 9 if event.offset == LATEST else 0
            return Positioned(partition=event.partition, epoch=event.epoch, seek_number=event.seek_number, offset=found)
        case Unsubscribe() | Close():
            return CallCompleted(call=event.call)
        case _:
            return None
