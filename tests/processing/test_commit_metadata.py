"""What a commit's metadata remembers: the encoding, its bounds, and what is none of ours."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instride._processing.commit_metadata import NO_MARK, PREFIX, Mark, Remembered, decode, encode

TOPIC, OTHER = UUID(int=7), UUID(int=8)
BROKERS_DEFAULT = 4096


@st.composite
def memories(draw: st.DrawFn) -> tuple[int, Remembered]:
    offset = at = draw(st.integers(0, 1 << 40))
    ranges = []
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 20)), max_size=50)):
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    numbers = st.dictionaries(st.integers(offset, offset + (1 << 20)), st.integers(1, 1000), max_size=20)
    places = st.integers(offset, offset + (1 << 20))
    marks = st.builds(
        Mark, reach=places, named=places | st.just(-1), deaths=st.integers(0, 200), is_at_work=st.booleans()
    )
    attempts = draw(numbers)
    return offset, Remembered(
        finished=tuple(ranges),
        attempts=attempts,
        due=draw(st.frozensets(st.sampled_from(sorted(attempts)))) if attempts else frozenset(),
        mark=draw(st.just(NO_MARK) | marks),
    )


@given(memories())
def test_what_is_written_is_read(given_memory: tuple[int, Remembered]) -> None:
    offset, memory = given_memory
    text = encode(offset, memory, topic_id=TOPIC, limit=BROKERS_DEFAULT)
    assert decode(text, offset, TOPIC) == (memory if memory else None)
    assert decode(text, offset) == (memory if memory else None)
    assert text.isascii()
    assert text.isprintable()


@given(memories(), st.integers(0, 200))
def test_it_is_never_longer_than_requested_and_what_is_left_out_is_at_the_top(
    given_memory: tuple[int, Remembered], limit: int
) -> None:
    offset, memory = given_memory
    text = encode(offset, memory, topic_id=TOPIC, limit=limit)
    assert len(text) <= limit
    found = decode(text, offset, TOPIC) or Remembered()
    assert tuple(found.finished) == tuple(memory.finished)[: len(found.finished)]
    assert list(found.attempts.items()) == sorted(memory.attempts.items())[: len(found.attempts)]
    assert found.due == {at for at in memory.due if at in found.attempts}


@given(memories(), st.data())
def test_damage_is_noticed(given_memory: tuple[int, Remembered], data: st.DataObject) -> None:
    offset, memory = given_memory
    text = encode(offset, memory, topic_id=TOPIC, limit=BROKERS_DEFAULT)
    if text:
        place = data.draw(st.integers(0, len(text) - 1))
        letter = data.draw(st.characters())
        damaged = text[:place] + letter + text[place + 1 :]
        assert decode(damaged, offset, TOPIC) in (None, memory)
        assert decode(text[:place], offset, TOPIC) is None


@given(st.text())
def test_any_text_is_read_or_is_none(text: str) -> None:
    decode(text, 5, TOPIC)
    decode(PREFIX + text, 5, TOPIC)


@given(st.binary(max_size=60))
def test_any_bytes_with_a_good_checksum_are_read_or_are_none(body: bytes) -> None:
    from base64 import urlsafe_b64encode
    from binascii import crc32

    data = body + crc32(body).to_bytes(4, "big")
    found = decode(PREFIX + urlsafe_b64encode(data).rstrip(b"=").decode(), 5)
    assert found is None or all(5 <= start <= end for start, end in found.finished)


def test_it_speaks_of_one_topic_and_one_offset() -> None:
    memory = Remembered(finished=((12, 15),))
    text = encode(10, memory, topic_id=TOPIC, limit=BROKERS_DEFAULT)
    assert decode(text, 10, TOPIC) == memory
    assert decode(text, 11, TOPIC) is None
    assert decode(text, 10, OTHER) is None


def test_a_broker_without_topic_ids_is_believed() -> None:
    memory = Remembered(finished=((12, 15),))
    text = encode(10, memory, limit=BROKERS_DEFAULT)
    assert decode(text, 10, TOPIC) == memory


def test_the_encoding_is_what_the_page_says() -> None:
    """docs/processor.md; a change of it is another version."""
    memory = Remembered(finished=((12, 15), (300, 301)), attempts={10: 2})
    assert (
        encode(10, memory, topic_id=TOPIC, limit=BROKERS_DEFAULT)
        == "instride:1:AAAAAAAAAAAAAAAAAAAABwoCAgOdAgEBAAJAhjSd"
    )


def test_a_letter_that_is_due_is_told_in_a_way_that_older_versions_read() -> None:
    """They take the last of two numbers of attempts."""
    text = encode(10, Remembered(attempts={10: 2, 14: 3}, due={14}), topic_id=TOPIC, limit=BROKERS_DEFAULT)
    data = urlsafe_b64decode(text.removeprefix(PREFIX) + "==")
    assert list(data[16:-4]) == [10, 0, 3, 0, 2, 4, 3, 0, 3]
    assert decode(text, 10, TOPIC) == Remembered(attempts={10: 2, 14: 3}, due={14})


def test_the_mark_is_there_in_the_second_version_only() -> None:
    memory = Remembered(mark=Mark(reach=74, named=10, deaths=2, is_at_work=True))
    text = encode(10, memory, topic_id=TOPIC, limit=BROKERS_DEFAULT)
    assert text == "instride:2:AAAAAAAAAAAAAAAAAAAABwoAAEEBBdQ8jjE"
    assert decode(text, 10, TOPIC) == memory


def test_a_thousand_ranges_fit() -> None:
    ranges = tuple((place, place + 1) for place in range(2, 2_002, 2))
    text = encode(0, Remembered(finished=ranges), topic_id=TOPIC, limit=4_000)
    found = decode(text, 0, TOPIC)
    assert found is not None
    assert len(found.finished) == 1_000


@pytest.mark.parametrize("attempts", [1 << 63, 10**5000], ids=["2^63", "more digits than Python writes"])
def test_no_number_is_larger_than_an_offset(attempts: int) -> None:
    """Anyone who may commit for the group may have written it; it would be written into a dead letter's headers."""
    assert decode(encode(5, Remembered(attempts={5: attempts}), limit=1 << 16), 5) is None
    assert decode(encode(5, Remembered(attempts={5: (1 << 63) - 1}), limit=4096), 5) is not None
