"""`TopicPartition`, by itself: the decoder makes records of it, and `instride.records` offers both."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TopicPartition"]


class TopicPartition(NamedTuple):
    """A partition of a topic. Sorts by topic, then partition, as Kafka's own clients sort."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


TopicPartition.__module__ = "instride.records"  # its home for everybody else: pickles and messages name it
