"""Logs that an unclean leader election has truncated: what members may do then, and what they have to."""

from __future__ import annotations

import pytest
from stories import OWNS, READS, P, Say, commits, done, poll, tell

from instride.testing.check import BROKER, check

END: Say = (BROKER, "end", True)
TOLD: list[Say] = [("A", "out of range", P), ("A", "positioned", P, 1, 3)]


OUT_OF_RANGE: list[Say] = [("A", "out of range", P), ("A", "positioned", P, 1, 0)]
LEFT_BEHIND_A_MARKER: list[Say] = [
    *[*READS, (BROKER, "hole", P, 5, 6), *commits("A", 1), (BROKER, "truncated", P, 6, 6)],
    *[("A", "out of range", P), ("A", "positioned", P, 1, 6), ("A", "revoked", ((P, 1),))],
]
"""A has read and finished five, and was behind the markers at 5 and 6. It has committed the first alone."""
BEGINS: list[Say] = [*OWNS, poll("A", 0, 4), *(("A", "begins", P, at, 1) for at in range(5))]


def truncated(end: int, *, produced: int, leader_epoch: int = 6) -> list[Say]:
    return [(BROKER, "truncated", P, end, leader_epoch), (BROKER, "produced", P, produced)]


def reads(first: int, last: int, *, leader_epoch: int = 6, seek_number: int = 1) -> list[Say]:
    return [("A", "poll", ((P, 1, seek_number, first, last, leader_epoch),), (), ()), done("A", first, last)]


def begins_of_b(committed: int) -> list[Say]:
    """B begins there, is returned what was read of the log, finishes and commits it."""
    return [
        *[("B", "assigned", 2, ((P, 7),)), ("B", "looked up", P, 1, 0), ("B", "positioned", P, 7, committed)],
        *[poll("B", committed, 4, epoch=7), done("B", committed, 4, epoch=7), *commits("B", 5)],
    ]


def reads_on(last: int, *, number: int = 2) -> list[Say]:
    """A is returned what has taken the place of the lost records, finishes and commits it."""
    return [*reads(3, last), *commits("A", last + 1, number=number, leader_epoch=6)]


KEPT: dict[str, list[Say | float]] = {
    "another record has the same offset": [
        *[*READS, *commits("A", 5), *truncated(3, produced=8), *TOLD, *reads_on(7), END],
    ],
    "who has not heard of it commits what was truncated": [
        *[*READS, *truncated(3, produced=4), *commits("A", 5), *TOLD, *reads_on(3), END],
    ],
    "who has not heard of it delays until his work on what was truncated is committed": [
        *[*BEGINS, *truncated(0, produced=2), done("A", 0, 4), ("A", "requested", ((P, 1),))],
        *[each for _ in range(4) for each in (("A", "poll", (), (P,), ()), ("A", "delay", (P,), True))],
        *[*commits("A", 5), *OUT_OF_RANGE, *reads(0, 1), *commits("A", 2, number=2, leader_epoch=6), END],
    ],
    "such a commit is taken after the reset": [
        *[*READS, commits("A", 5)[0], *truncated(3, produced=4), *TOLD, *commits("A", 5)[1:], *reads_on(3), END],
    ],
    "what is committed was truncated, and nothing was written since": [
        *[*READS, *commits("A", 5), *truncated(3, produced=3), *TOLD, END],
    ],
    "the next owner goes on where the log was truncated": [
        *[*READS, *commits("A", 5), *truncated(3, produced=4), ("A", "revoked", ((P, 1),))],
        *[("B", "assigned", 2, ((P, 7),)), ("B", "looked up", P, 5, 0), ("B", "positioned", P, 7, 5)],
        *[("B", "out of range", P), ("B", "positioned", P, 7, 3), ("B", "poll", ((P, 7, 1, 3, 3, 6),), (), ())],
        *[done("B", 3, 3, epoch=7), *commits("B", 4, leader_epoch=6), END],
    ],
    "what was fetched before may still be returned, and passes over the holes that there were": [
        *[*READS, (BROKER, "hole", P, 6, 6), (BROKER, "truncated", P, 3, 6), (BROKER, "hole", P, 8, 8)],
        *[(BROKER, "produced", P, 9), *reads(5, 5, leader_epoch=5, seek_number=0), poll("A", 7, 9)],
        *[*TOLD, *reads(3, 7), *commits("A", 8, leader_epoch=6), END],
    ],
    "work on a lost record ends after the reset": [
        *[*OWNS, poll("A", 0, 4), done("A", 0, 2), *truncated(3, produced=4), *TOLD],
        *[done("A", 3, 4), *reads_on(3), END],
    ],
    "a commit of before the reset is stale": [
        *[*READS, *truncated(3, produced=4), *TOLD, ("A", "commit failed", "StaleCommitError"), *reads_on(3), END],
    ],
    "it is truncated twice": [
        *[*READS, *truncated(3, produced=9), *TOLD, *reads(3, 8), *truncated(5, produced=6, leader_epoch=7)],
        *[("A", "out of range", P), ("A", "positioned", P, 1, 5), *reads(5, 5, leader_epoch=7, seek_number=2)],
        *[*commits("A", 6, leader_epoch=7), END],
    ],
    "it is truncated again before a reset is told": [
        *[*READS, *truncated(3, produced=9), *truncated(2, produced=2, leader_epoch=7), *TOLD],
        *[("A", "out of range", P), ("A", "positioned", P, 1, 2), *commits("A", 2), END],
    ],
    "it is truncated again before a reset leads to where it was, behind what has no record": [
        *[*READS, (BROKER, "hole", P, 5, 6), *truncated(7, produced=8), *truncated(3, produced=3, leader_epoch=7)],
        *[("A", "out of range", P), ("A", "positioned", P, 1, 7), *TOLD, END],
    ],
    "retention took the place where it was truncated": [
        *[*READS, *truncated(3, produced=9), (BROKER, "hole", P, 0, 6), (BROKER, "log starts", P, 7)],
        *[("A", "out of range", P), ("A", "positioned", P, 1, 7), *reads(7, 8), *commits("A", 9, leader_epoch=6), END],
    ],
    "what is committed is behind a marker that was truncated": [
        *[*READS, (BROKER, "hole", P, 5, 5), *commits("A", 6), *truncated(5, produced=5), ("A", "out of range", P)],
        *[("A", "positioned", P, 1, 5), *commits("A", 5, number=2), END],
    ],
    "who was reset commits what is below with what comes next, or leaves it to the next owner": [
        *[*READS, *commits("A", 1), *truncated(3, produced=3), *TOLD, ("A", "revoked", ((P, 1),))],
        *[("B", "assigned", 2, ((P, 7),)), ("B", "looked up", P, 1, 0), ("B", "positioned", P, 7, 1)],
        *[poll("B", 1, 2, epoch=7), done("B", 1, 2, epoch=7), *commits("B", 3), END],
    ],
    "only what has no record was truncated behind what was read": [*LEFT_BEHIND_A_MARKER, *begins_of_b(1), END],
    "nobody has anything to commit since the reset": [
        *[*READS, *commits("A", 1), *truncated(3, produced=3), *TOLD, END],
    ],
    "a place that a user names has no leader epoch, so nobody notices": [
        *[*READS, *reads(5, 9, leader_epoch=5, seek_number=0), ("A", "seek", P), ("A", "positioned", P, 1, 8)],
        *[*truncated(3, produced=10), *reads(8, 9), *commits("A", 10, leader_epoch=6), END],
    ],
    "such a place is behind the end, and the policy leads back": [
        *[*READS, *reads(5, 9, leader_epoch=5, seek_number=0), ("A", "seek", P), ("A", "positioned", P, 1, 8)],
        *[*truncated(3, produced=3), ("A", "out of range", P), ("A", "positioned", P, 1, 0)],
        *[*reads(0, 2, leader_epoch=5, seek_number=2), *commits("A", 3), END],
    ],
    "a commit without a leader epoch may speak of what was truncated": [
        *[*READS, ("A", "own offsets", ((P, 5),)), *truncated(3, produced=4), *commits("A", 5, leader_epoch=-1)],
        *[*TOLD, *reads_on(3), END],
    ],
    "retention took what had taken the place of the lost records": [
        *[*READS, *truncated(3, produced=5), (BROKER, "hole", P, 0, 4), (BROKER, "log starts", P, 5)],
        *[(BROKER, "produced", P, 7), *reads(5, 6, seek_number=0), *commits("A", 7, leader_epoch=6), END],
    ],
    "nothing that was read is lost": [
        *[*READS, *truncated(5, produced=7), *reads(5, 6, seek_number=0), *commits("A", 7, leader_epoch=6), END],
    ],
}


@pytest.mark.parametrize("name", KEPT)
def test_what_a_truncation_brings_is_not_reported(name: str) -> None:
    assert [str(each) for each in check(tell(*KEPT[name]))] == []


def test_work_on_a_lost_record_finishes_none_of_the_present_log() -> None:
    """Its handler ends once the offset is another record's."""
    ends_late: list[Say | float] = [
        *[*OWNS, poll("A", 0, 4), done("A", 0, 2), *truncated(3, produced=4), *TOLD, done("A", 3, 4)],
        *[*commits("A", 4, leader_epoch=6), *reads(3, 3), END],
    ]
    assert {each.number for each in check(tell(*ends_late))} == {"S4"}


def test_what_took_the_place_of_lost_records_is_returned_once() -> None:
    twice: list[Say | float] = [
        *[*READS, *truncated(3, produced=4), *TOLD, *reads_on(3), ("A", "revoked", ((P, 1),))],
        *[("B", "assigned", 2, ((P, 7),)), ("B", "looked up", P, 3, 0), ("B", "positioned", P, 7, 3)],
        ("B", "poll", ((P, 7, 0, 3, 3, 6),), (), ()),
    ]
    assert {each.law for each in check(tell(*twice))} == {"begins where committed", "exactly once"}


def test_what_was_committed_before_a_truncation_comes_not_again() -> None:
    """Be what was truncated a record, or none."""
    again: list[Say | float] = [*LEFT_BEHIND_A_MARKER, *begins_of_b(0)]
    confined = [str(each) for each in check(tell(*again)) if each.law == "duplicates are confined"]
    assert ["offset 0 came again" in each for each in confined] == [True]


def test_of_two_truncations_a_reset_leads_to_the_lower_one() -> None:
    """A has heard of neither when the leader is asked. Where the second one was, others have taken the places."""
    late: list[Say | float] = [*READS, *truncated(3, produced=9), *truncated(7, produced=8, leader_epoch=7)]
    led_on: list[Say | float] = [*late, ("A", "out of range", P), ("A", "positioned", P, 1, 7)]
    assert {each.law for each in check(tell(*led_on))} == {"a truncated log is read on where it was truncated"}


def test_a_second_reset_before_anything_is_read_is_judged_too() -> None:
    twice: list[Say | float] = [*READS, *truncated(3, produced=4), *TOLD, *truncated(2, produced=2, leader_epoch=7)]
    led_back: list[Say | float] = [*twice, ("A", "out of range", P), ("A", "positioned", P, 1, 0)]
    assert {each.law for each in check(tell(*led_back))} == {"a truncated log is read on where it was truncated"}


def test_a_commit_without_an_epoch_that_no_user_named_is_none_of_a_truncated_log() -> None:
    without: list[Say | float] = [*READS, *truncated(3, produced=4), *commits("A", 5, leader_epoch=-1)]
    assert {each.law for each in check(tell(*without))} == {"commits carry the leader epoch", "no commit beyond a gap"}


def test_who_leaves_leaves_nothing_uncommitted_behind_a_truncation() -> None:
    """What A has finished of the log since, it commits; whether B reads anything does not matter."""
    left: list[Say | float] = [
        *[*READS, *commits("A", 1), *truncated(3, produced=5), *TOLD, *reads(3, 4), ("A", "revoked", ((P, 1),))],
        *[("B", "leaving"), ("B", "assigned", 2, ((P, 7),)), ("B", "looked up", P, 1, 0), ("B", "positioned", P, 7, 1)],
    ]
    assert {each.law for each in check(tell(*left, END))} == {"all is done"}
    empty: list[Say | float] = [*READS, *commits("A", 1), *truncated(3, produced=3), *TOLD, ("A", "revoked", ((P, 1),))]
    assert check(tell(*empty, *left[-4:], END)) == [], "of what A was reset below, B need read nothing"


def test_who_has_heard_of_it_delays_for_no_record_that_was_truncated() -> None:
    delays = [each for _ in range(4) for each in (("A", "poll", (), (P,), ()), ("A", "delay", (P,), True))]
    story = [*BEGINS, done("A", 0, 4), *truncated(0, produced=2), *OUT_OF_RANGE, ("A", "requested", ((P, 1),)), *delays]
    assert {each.law for each in check(tell(*story))} == {"queued work delays nothing"}
