"""A record that a deserializer cannot read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instride.errors.base import KafkaError

if TYPE_CHECKING:
    from instride.records import ConsumerRecord, TopicPartition

__all__ = [
    "DeserializationError",
]


class DeserializationError(KafkaError):
    """A key or value deserializer raised. ``__cause__`` holds its error.

    The partition's position stays at the record, which is read again with a growing back-off, and this is raised again,
    until it can be read, or the application goes past it: ``consumer.seek(error.topic_partition, error.offset + 1)``.

    part: "key" or "value". record: as it was fetched, its key and value as bytes.
    """

    def __init__(self, message: str, *, part: str, record: ConsumerRecord) -> None:
        super().__init__(message)
        self.part = part
        self.record = record

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def partition(self) -> int:
        return self.record.partition

    @property
    def topic_partition(self) -> TopicPartition:
        return self.record.topic_partition

    @property
    def offset(self) -> int:
        return self.record.offset
