"""Which topic the records of a partition are of, by the id by which they were fetched (KIP-516)."""

from __future__ import annotations

from uuid import UUID

import pytest
from application_script import Script, tp

A, B = UUID(int=1), UUID(int=2)


@pytest.fixture
def script() -> Script:
    made = Script()
    made.subscribe()
    made.assigned(0, 1)
    made.poll()
    return made


def test_it_is_known_once_something_was_fetched_and_stays_so(script: Script) -> None:
    assert script.machine.fetched_topic_id(tp(0)) is None
    script.fetched(0, 0, 3, topic_id=A)
    script.poll()
    script.fetched(0, 3, 5, topic_id=A)
    script.poll()
    script.poll()
    assert script.machine.fetched_topic_id(tp(0)) == A
    assert script.machine.fetched_topic_id(tp(1)) is None


@pytest.mark.parametrize("other", [None, B])
def test_it_is_not_known_where_some_was_fetched_otherwise(script: Script, other: UUID | None) -> None:
    """A mixture tells nothing, also where its last part was fetched by an id."""
    script.fetched(0, 0, 3, topic_id=A)
    script.fetched(0, 3, 5, topic_id=other)
    script.fetched(0, 5, 6, topic_id=A)
    script.poll()
    assert script.machine.fetched_topic_id(tp(0)) is None


def test_a_seek_begins_anew(script: Script) -> None:
    script.fetched(0, 0, 3)
    script.poll()
    script.machine.seek(tp(0), 1)
    assert script.machine.fetched_topic_id(tp(0)) is None
    script.fetched(0, 1, 3, fetch_number=0, topic_id=B)  # of before the seek
    script.fetched(0, 1, 3, fetch_number=1, topic_id=A)
    script.poll()
    assert script.machine.fetched_topic_id(tp(0)) == A


def test_a_fetch_that_is_made_again_makes_no_difference(script: Script) -> None:
    """Where an arrival does not continue what is buffered, that stays."""
    script.fetched(0, 0, 3)
    script.poll()
    script.fetched(0, 7, 9, topic_id=A)  # it would skip records
    script.fetched(0, 3, 9, fetch_number=1, topic_id=A)
    script.poll()
    assert script.machine.fetched_topic_id(tp(0)) is None, "some of it was fetched by name"


def test_one_that_is_not_ours_is_refused(script: Script) -> None:
    with pytest.raises(ValueError, match="t-7 is not assigned"):
        script.machine.fetched_topic_id(tp(7))
