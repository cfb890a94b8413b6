"""Code of the user that sees all records on their way out, and all offsets that were committed: for traces, say."""

from __future__ import annotations

from collections.abc import Mapping

from instride.consumer_records import ConsumerRecords
from instride.records import OffsetAndMetadata, TopicPartition

__all__ = ["ConsumerInterceptor"]


class ConsumerInterceptor:
    """Subclass it, and give objects of it to the setting `interceptors`. Its methods may not call the consumer."""

    def on_consume(self, records: ConsumerRecords) -> None:
        """Called with what a poll is about to return, where that is not empty. Deserialized, where that is done."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called with what a broker has committed, once for each commit: in the call that takes its response, often the
        next poll. Not with what failed.
        """

    def close(self) -> None:
        """Called once, at the end of the consumer's close."""
