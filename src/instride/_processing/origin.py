"""Where a dead letter is from, and the record that it was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from instride._processing.dead_letters import LEFT_OUT
from instride._processing.outputs import OutputRecord

if TYPE_CHECKING:
    from instride._wire.decoder import ConsumerRecord

__all__ = ["DeadLetterOrigin", "replay_of"]

_PREFIX: Final = "instride."
_LARGEST: Final = (1 << 63) - 1
_NAMES: Final = ("topic", "partition", "offset", "timestamp", "group", "attempts", "error", "message")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOrigin:
    """What a dead letter's headers tell. timestamp: milliseconds since 1970. error: the class of the last attempt's.

    left_out: what of the record is not in the letter, since the dead-letter topic does not take so much; else "".
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    group: str
    attempts: int
    error: str
    message: str
    left_out: str = ""

    @classmethod
    def of(cls, letter: ConsumerRecord[Any, Any]) -> DeadLetterOrigin | None:
        """None for what no `Processor` wrote. Of a letter of a letter the newest.

        Whoever may write to the topic may have written the headers: what they say is no more to be trusted than that.
        """
        told = letter.headers[-len(_NAMES) :]
        if tuple(name for name, _ in told) != tuple(_PREFIX + name for name in _NAMES):
            return None
        try:
            # "replace": whoever may write to the topic may write bytes that are no UTF-8.
            topic, partition, offset, timestamp, group, attempts, error, message = (
                (text or b"").decode("utf-8", "replace") for _, text in told
            )
            return cls(
                topic=topic,
                partition=_number(partition, 0, (1 << 31) - 1),
                offset=_number(offset, 0, _LARGEST),
                timestamp=_number(timestamp, -_LARGEST, _LARGEST),
                group=group,
                attempts=_number(attempts, 0, _LARGEST),
                error=error,
                message=message,
                left_out=_left_out(letter),
            )
        except ValueError:
            return None


def _left_out(letter: ConsumerRecord[Any, Any]) -> str:
    before = letter.headers[: -len(_NAMES)]
    # A letter in a reduced form has no value: beside one, the header is the record's own.
    if not before or before[-1][0] != LEFT_OUT or letter.value:
        return ""
    return (before[-1][1] or b"").decode("utf-8", "replace")


def _number(text: str, least: int, most: int) -> int:
    """Raises ValueError for what is none, or none that Kafka has."""
    number = int(text)
    if not least <= number <= most:
        raise ValueError(f"{number} is not within {least} and {most}")
    return number


def replay_of(letter: ConsumerRecord[Any, Any], topic: str | None = None) -> OutputRecord:
    """The record as it was, for the partition it is from, or another topic.

    ValueError for what is no dead letter, and for one in a reduced form.
    """
    origin = DeadLetterOrigin.of(letter)
    if origin is None:
        raise ValueError(f"{letter.topic_partition} at offset {letter.offset} is no dead letter of a Processor")
    if origin.left_out:
        raise ValueError(
            f"{letter.topic_partition} at offset {letter.offset} has no {origin.left_out}: too large for its topic. "
            f"Its record is that of {origin.topic}-{origin.partition} at offset {origin.offset}, while the topic has it"
        )
    again = OutputRecord(key=letter.key, value=letter.value, headers=letter.headers[: -len(_NAMES)], topic=topic)
    return again if topic is not None else replace(again, topic=origin.topic, partition=origin.partition)
