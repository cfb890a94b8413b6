"""Offsets that a log does not have any more, more precisely than the broker's code says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instride.errors.broker import OffsetOutOfRangeError

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["LogTruncationError", "TopicRecreatedError"]


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


class TopicRecreatedError(OffsetOutOfRangeError):
    """The topic was deleted and made again under the same name: offsets of the old one mean nothing in it.

    topic, partition: which. old_topic_id, topic_id: Kafka's ids. ``Consumer.seek`` to go on.
    """

    def __init__(self, message: str, *, topic: str, partition: int, old_topic_id: UUID, topic_id: UUID) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.old_topic_id = old_topic_id
        self.topic_id = topic_id
