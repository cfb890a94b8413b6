"""A dead letter tells where it is from, and is the record again that it was."""

from __future__ import annotations

from typing import Any

import pytest

from instride import ConsumerRecord, OutputRecord, Processor
from instride._processing.dead_letters import DeadLetter
from instride._processing.origin import DeadLetterOrigin, replay_of


def letter_of(headers: tuple[tuple[str, bytes | None], ...] = ()) -> DeadLetter:
    def handle(record: ConsumerRecord[Any, Any]) -> None:
        raise ValueError("no such\norder")

    with Processor(handle, topics=["orders"], dead_letters="dlq").testing(partitions=3) as kit:
        kit.give("orders", b"v", key=b"k", headers=headers, partition=2)
        kit.run()
        return kit.dead_letters[0]


def read(letter: DeadLetter, **changes: Any) -> ConsumerRecord[Any, Any]:
    content = {"key": letter.key, "value": letter.value, "headers": letter.headers, **changes}
    return ConsumerRecord("dlq", 0, 7, **content)


def test_a_letter_tells_where_it_is_from() -> None:
    assert DeadLetterOrigin.of(read(letter_of())) == DeadLetterOrigin(
        topic="orders",
        partition=2,
        offset=0,
        timestamp=0,
        group="kit",
        attempts=1,
        error="builtins.ValueError",
        message="no such\norder",
    )


def test_it_is_sent_again_as_it_was_to_where_it_was() -> None:
    headers = (("h", b"1"), ("instride.topic", b"mine"), ("h", None))
    record = read(letter_of(headers))
    again = OutputRecord(key=b"k", value=b"v", headers=headers, topic="orders", partition=2)
    assert replay_of(record) == again
    assert replay_of(record, "retry") == OutputRecord(key=b"k", value=b"v", headers=headers, topic="retry")


def test_a_letter_of_a_letter_is_the_newer_ones() -> None:
    first = letter_of()
    second = letter_of(first.headers)
    assert replay_of(read(second)).headers == first.headers


@pytest.mark.parametrize("cut", range(1, 9))
def test_what_no_processor_wrote_is_no_letter(cut: int) -> None:
    letter = letter_of()
    short = read(letter, headers=letter.headers[:-cut])
    assert DeadLetterOrigin.of(short) is None
    with pytest.raises(ValueError, match="no dead letter"):
        replay_of(short)
    wrong = tuple((name, b"x" if name == "instride.offset" else value) for name, value in letter.headers)
    assert DeadLetterOrigin.of(read(letter, headers=wrong)) is None


@pytest.mark.parametrize("name", ["partition", "offset", "timestamp", "attempts"])
@pytest.mark.parametrize("number", [b"1" + b"0" * 5000, b"9223372036854775808", b"-9223372036854775808", b"1e5", b""])
def test_a_number_that_kafka_does_not_have_is_of_no_letter(name: str, number: bytes) -> None:
    """Whoever may write to the topic may write any header."""
    letter = letter_of()
    headers = tuple((key, number if key == f"instride.{name}" else value) for key, value in letter.headers)
    assert DeadLetterOrigin.of(read(letter, headers=headers)) is None
