"""The two halves of a hand-over, joined."""

from __future__ import annotations

import pytest

from instride import TopicPartition
from instride.testing.check import Event, WithoutOwner, percentile, without_owner

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_release_and_the_next_owners_first_fetch_are_joined() -> None:
    events = [
        Event(1.0, "m", "first fetch", (A, 1)),
        Event(2.0, "m", "revoked", (((A, 1), (B, 2)),)),
        Event(2.5, "n", "first fetch", (A, 1)),
        Event(2.6, "n", "poll", (((A, 1, 0, 5, 6, -1),), (), ())),
        Event(3.0, "peer", "poll", (((B, 1, 0, 5, 6, -1),), (), ())),
    ]
    assert without_owner(events) == [
        WithoutOwner(partition=A, released_by="m", released_at=2.0, taken_by="n", first_fetch_at=2.5),
        WithoutOwner(partition=B, released_by="m", released_at=2.0, taken_by="peer", first_fetch_at=3.0),
    ]
    assert [each.seconds for each in without_owner(events)] == [0.5, 1.0]


def test_what_was_lost_was_not_handed_over() -> None:
    events = [
        Event(1.0, "m", "revoked", (((A, 1),),)),
        Event(1.5, "n", "lost", (((A, 1),),)),
        Event(2.0, "m", "first fetch", (A, 2)),
    ]
    assert without_owner(events) == []


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.25, 1), (0.5, 2), (0.95, 4), (1.0, 4)])
def test_a_percentile_is_one_of_the_values(share: float, expected: int) -> None:
    assert percentile([4, 2, 1, 3], share) == expected


def test_of_nothing_there_is_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing was handed over"):
        percentile([], 0.5)
