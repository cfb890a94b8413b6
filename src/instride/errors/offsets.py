"""Offsets that a log does not have any more, more precisely than the broker's code says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instride.errors.base import KafkaError
from instride.errors.broker import OffsetOutOfRangeError

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["LogTruncationError", "OffsetGapError", "TopicRecreatedError"]


class LogTruncationError(OffsetOutOfRangeError):
    """The log was cut behind what was read, as after an unclean leader election (KIP-320). ``Consumer.seek`` to go on.

    topic, partition, offset: where reading was. divergent_offset: the first offset whose record may be another one
    now, or None where the log does not know; seek to it to read what replaced the records that were lost.
    """

    def __init__(self, message: str, *, topic: str, partition: int, offset: int, divergent_offset: int | None) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.divergent_offset = divergent_offset


class OffsetGapError(KafkaError):
    """An `OffsetLedger` was not told of records that the log has, so it commits nothing behind them.

    A poll returned them and they never came to `OffsetLedger.track`: an exception came between the two, say.
    topic, partition: where. start, end: the offsets that are missing, the end exclusive.
    """

    def __init__(self, *, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(
            f"{topic}-{partition}: offsets {start} to {end - 1} were never tracked, so nothing is committed beyond "
            f"{start}. To handle them, seek to {start} once the records before it are committed; to leave them out, "
            "give the partition to `forget`, and track what is polled from then on"
        )
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end


class TopicRecreatedError(OffsetOutOfRangeError):
    """The topic was deleted and recreated under the same name: offsets of the old one mean nothing in it.

    topic, partition: which. old_topic_id, topic_id: Kafka's ids. ``Consumer.seek`` to go on.
    """

    def __init__(self, message: str, *, topic: str, partition: int, old_topic_id: UUID, topic_id: UUID) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.old_topic_id = old_topic_id
        self.topic_id = topic_id
