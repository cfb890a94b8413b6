"""Where a dead letter is from, and the record that it was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from instride.processing.outputs import OutputRecord

if TYPE_CHECKING:
    from instride._wire.decoder import ConsumerRecord

__all__ = ["DeadLetterOrigin", "replay_of"]

_PREFIX: Final = "instride."
_NAMES: Final = ("topic", "partition", "offset", "timestamp", "group", "attempts", "error", "message")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOrigin:
    """What a dead letter's headers tell. timestamp: milliseconds since 1970. error: the class of the last attempt's."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    group: str
    attempts: int
    error: str
    message: str

    @classmethod
    def of(cls, letter: ConsumerRecord[Any, Any]) -> DeadLetterOrigin | None:
        """None for what no `Processor` wrote. Of a letter of a letter the newest."""
        told = letter.headers[-len(_NAMES) :]
        if tuple(name for name, _ in told) != tuple(_PREFIX + name for name in _NAMES):
            return None
        try:
            topic, partition, offset, timestamp, group, attempts, error, message = (
                (text or b"").decode("utf-8", "replace") for _, text in told
            )
            return cls(
                topic=topic,
                partition=int(partition),
                offset=int(offset),
                timestamp=int(timestamp),
                group=group,
                attempts=int(attempts),
                error=error,
                message=message,
            )
        except ValueError:
            return None


def replay_of(letter: ConsumerRecord[Any, Any], topic: str | None = None) -> OutputRecord:
    """The record as it was, for the partition it is from, or another topic. ValueError for what is no dead letter."""
    origin = DeadLetterOrigin.of(letter)
    if origin is None:
        raise ValueError(f"{letter.topic_partition} at offset {letter.offset} is no dead letter of a Processor")
    again = OutputRecord(key=letter.key, value=letter.value, headers=letter.headers[: -len(_NAMES)], topic=topic)
    return again if topic is not None else replace(again, topic=origin.topic, partition=origin.partition)
