"""Topics that were deleted and created again under the same name: what members may do then, and what they have to."""

from __future__ import annotations

import pytest
from stories import OWNS, READS, STARTED, P, Say, commits, done, poll, tell

from instride.testing.check import BROKER, check

END: Say = (BROKER, "end", True)
TOLD: list[Say] = [("A", "out of range", P), ("A", "positioned", P, 1, 0)]
TO_B: list[Say] = [("A", "revoked", ((P, 1),)), ("B", "assigned", 2, ((P, 7),))]


OLD_START: list[Say] = [*READS, *commits("A", 5), (BROKER, "hole", P, 0, 6), (BROKER, "log starts", P, 7)]
"""Retention has taken more of the old log than was read."""


IN_THE_OLD_ONE: list[Say] = [
    *[*READS, (BROKER, "truncated", P, 3, 6), (BROKER, "produced", P, 5), (BROKER, "recreated", P, 1000)],
    *[(BROKER, "produced", P, 2), ("A", "out of range", P), ("A", "positioned", P, 1, 3)],
]
"""A is reset to where the deleted topic's log was truncated."""


def recreated(*, produced: int, leader_epoch: int = 1000) -> list[Say]:
    return [(BROKER, "recreated", P, leader_epoch), (BROKER, "produced", P, produced)]


def reads(first: int, last: int, *, leader_epoch: int = 1000, seek_number: int = 1) -> list[Say]:
    return [("A", "poll", ((P, 1, seek_number, first, last, leader_epoch),), (), ()), done("A", first, last)]


def ends(*offsets: int, leader_epoch: int) -> list[Say]:
    """A's work on these, which says of which log they are."""
    return [("A", "done", P, offset, 1, leader_epoch) for offset in offsets]


def reads_all(last: int) -> list[Say]:
    """A is returned what the new topic has, finishes and commits it."""
    return [*reads(0, last), *commits("A", last + 1, number=2, leader_epoch=1000)]


BEFORE_THE_THIRD: list[Say] = [
    *[*STARTED, (BROKER, "produced", P, 10), ("A", "assigned", 1, ((P, 1),)), *recreated(produced=4)],
    *[("A", "looked up", P, None, 0), *recreated(produced=3, leader_epoch=2000), ("A", "positioned", P, 1, 0)],
    *[("A", "out of range", P), *recreated(produced=2, leader_epoch=3000), ("A", "positioned", P, 1, 0)],
]
"""A asked where it begins in the first of three recreated topics. It is reset as the second one is there, and told as
the third one is."""
FROM_THE_SECOND_TO_THE_THIRD: list[Say] = [
    *[*BEFORE_THE_THIRD, *reads(0, 2, leader_epoch=2000), ("A", "out of range", P), ("A", "positioned", P, 1, 0)],
]


KEPT: dict[str, list[Say | float]] = {
    "the new topic is read from its beginning": [
        *READS,
        *commits("A", 5),
        *recreated(produced=8),
        *TOLD,
        *reads_all(7),
        END,
    ],
    "who has not heard of it is refused": [
        *[*READS, *recreated(produced=4), *commits("A", 5, code=100), *TOLD, *reads_all(3), END],
    ],
    "it had committed as much of the deleted one": [
        *[*READS, *commits("A", 5), *recreated(produced=5), *TOLD, *reads_all(4), END],
    ],
    "what was fetched of the deleted one is returned before": [
        *[*READS, *recreated(produced=3), poll("A", 5, 9), *TOLD, *reads_all(2), END],
    ],
    "work on a record of it ends after the reset": [
        *[*OWNS, poll("A", 0, 4), done("A", 0, 2), *recreated(produced=2), *TOLD, done("A", 3, 4), *reads_all(1), END],
    ],
    "or after the new one's record of that offset was returned": [
        *[*OWNS, poll("A", 0, 4), done("A", 0, 2), *recreated(produced=2), *TOLD],
        *[("A", "poll", ((P, 1, 1, 0, 1, 1000),), (), ()), *ends(0, 3, 4, leader_epoch=5)],
        *[*ends(0, 1, leader_epoch=1000), *commits("A", 2, number=2, leader_epoch=1000), END],
    ],
    "the new one has nothing": [*READS, *commits("A", 5), *recreated(produced=0), *TOLD, END],
    "the next owner finds nothing committed": [
        *[*READS, *commits("A", 5), *recreated(produced=2), *TO_B, ("B", "looked up", P, None, 0)],
        *[("B", "positioned", P, 7, 0), ("B", "poll", ((P, 7, 0, 0, 1, 1000),), (), ()), done("B", 0, 1, epoch=7)],
        *[*commits("B", 2, leader_epoch=1000), END],
    ],
    "it had read, and committed, nothing but holes of the deleted one": [
        *[*OWNS[:2], (BROKER, "hole", P, 0, 9), *OWNS[2:], *commits("A", 10), *recreated(produced=2), *TOLD],
        *[
            *commits("A", 0, number=2, leader_epoch=1000),
            *reads(0, 1),
            *commits("A", 2, number=3, leader_epoch=1000),
            END,
        ],
    ],
    "a broker that has not heard of it serves the next owner, too": [
        *[*READS, *commits("A", 5), *TO_B, ("B", "looked up", P, 5, 0), *recreated(produced=2)],
        *[("B", "positioned", P, 7, 5), ("B", "poll", ((P, 7, 0, 5, 9, 5),), (), ()), ("B", "out of range", P)],
        *[("B", "positioned", P, 7, 0), ("B", "poll", ((P, 7, 1, 0, 1, 1000),), (), ()), done("B", 0, 1, epoch=7)],
        *[*commits("B", 2, leader_epoch=1000), END],
    ],
    "or says where the deleted one began": [
        *[*READS, (BROKER, "hole", P, 0, 6), (BROKER, "log starts", P, 7), ("A", "out of range", P)],
        *[*recreated(produced=2), ("A", "positioned", P, 1, 7), ("A", "poll", ((P, 1, 1, 7, 9, 5),), (), ()), *TOLD],
        *[*reads(0, 1, seek_number=2), *commits("A", 2, leader_epoch=1000), END],
    ],
    "or says it, and the new one begins there, too": [
        *[*OLD_START, *recreated(produced=9), (BROKER, "hole", P, 0, 6), (BROKER, "log starts", P, 7)],
        *[("A", "out of range", P), ("A", "positioned", P, 1, 7), *reads(7, 8)],
        *[*commits("A", 9, number=2, leader_epoch=1000), END],
    ],
    "the new one is truncated, and a broker that has not heard serves the old one": [
        *[*READS, *commits("A", 5), *recreated(produced=4), (BROKER, "truncated", P, 2, 1001), *TO_B],
        *[("B", "looked up", P, None, 0), ("B", "positioned", P, 7, 0)],
        *[("B", "poll", ((P, 7, 0, 0, 4, 5),), (), ()), ("B", "out of range", P), ("B", "positioned", P, 7, 0)],
        *[("B", "poll", ((P, 7, 1, 0, 1, 1000),), (), ()), done("B", 0, 1, epoch=7)],
        *[*commits("B", 2, leader_epoch=1000), END],
    ],
    "retention had moved the old log": [
        *[*READS, *commits("A", 5), (BROKER, "hole", P, 0, 4), (BROKER, "log starts", P, 5), *recreated(produced=3)],
        *[*TOLD, *reads_all(2), END],
    ],
    "it is recreated twice before that is told": [
        *[*READS, *recreated(produced=9), *recreated(produced=2, leader_epoch=2000), *TOLD],
        *[*reads(0, 1, leader_epoch=2000), *commits("A", 2, leader_epoch=2000), END],
    ],
    "it is twice, and a broker that has not heard of the third topic serves the second": [
        *[*FROM_THE_SECOND_TO_THE_THIRD, *reads(0, 1, leader_epoch=3000, seek_number=2)],
        *[*commits("A", 2, leader_epoch=3000), END],
    ],
    "it is truncated before, and the member is reset to there first": [
        *[*READS, (BROKER, "truncated", P, 3, 6), *recreated(produced=2), ("A", "out of range", P)],
        *[("A", "positioned", P, 1, 3), *TOLD, *reads_all(1), END],
    ],
    "so it is, and a broker that has not heard of the next topic serves it there": [
        *[*IN_THE_OLD_ONE, *reads(3, 4, leader_epoch=6), *TOLD, *reads_all(1), END],
    ],
}
LATEST: dict[str, list[Say | float]] = {
    "the policy leads to the end of the new one": [
        *[*READS, *commits("A", 5), *recreated(produced=8), ("A", "out of range", P), ("A", "positioned", P, 1, 8)],
        *[(BROKER, "produced", P, 9), *reads(8, 8), *commits("A", 9, number=2, leader_epoch=1000), END],
    ],
    "which is where the old one was read to": [
        *[*READS, *commits("A", 5), *recreated(produced=5), ("A", "out of range", P), ("A", "positioned", P, 1, 5)],
        *[(BROKER, "produced", P, 7), *reads(5, 6), *commits("A", 7, number=2, leader_epoch=1000), END],
    ],
}


@pytest.mark.parametrize("name", KEPT)
def test_what_a_recreation_brings_is_not_reported(name: str) -> None:
    assert [str(each) for each in check(tell(*KEPT[name]))] == []


@pytest.mark.parametrize("name", LATEST)
def test_nor_is_what_it_brings_at_the_latest(name: str) -> None:
    assert [str(each) for each in check(tell(*LATEST[name], reset="latest"))] == []


BROKEN: dict[str, tuple[str, list[Say | float]]] = {
    "the old offset is read in the new topic": (
        "a truncation is noticed",
        [*READS, *recreated(produced=10), *reads(5, 9, seek_number=0)],
    ),
    "a reset leads to the old offset": (
        "a truncated log is read on where it was truncated",
        [*READS, *recreated(produced=10), ("A", "out of range", P), ("A", "positioned", P, 1, 5)],
    ),
    "what was fetched of the old one is returned after the reset": (
        "nothing of a truncated log",
        [*READS, *recreated(produced=10), *TOLD, ("A", "poll", ((P, 1, 1, 0, 4, 5),), (), ())],
    ),
    "the old offset is committed": (
        "no commit of a deleted topic",
        [*READS, *recreated(produced=10), *commits("A", 5)],
    ),
    "work on a record of the old one counts for the new one": (
        "no commit beyond a gap",
        [
            *[*OWNS, poll("A", 0, 4), *recreated(produced=2), *TOLD, ("A", "poll", ((P, 1, 1, 0, 1, 1000),), (), ())],
            *[*ends(0, 1, leader_epoch=5), *commits("A", 2, leader_epoch=1000)],
        ],
    ),
    "the next owner begins at the old offset": (
        "begins where committed",
        [
            *[*READS, *commits("A", 5), *recreated(produced=10), *TO_B, ("B", "looked up", P, 5, 0)],
            *[("B", "positioned", P, 7, 5), ("B", "poll", ((P, 7, 0, 5, 9, 1000),), (), ())],
        ],
    ),
    "a reset to where the old one began passes over records of the new one": (
        "a truncation is noticed",
        [*OLD_START, *recreated(produced=9), ("A", "out of range", P), ("A", "positioned", P, 1, 7), *reads(7, 8)],
    ),
    "a reset leads to where the topic before the last began": (
        "a truncated log is read on where it was truncated",
        [
            *[*OLD_START, *recreated(produced=5), *TOLD, *reads(0, 4), (BROKER, "truncated", P, 2, 1001)],
            *[(BROKER, "produced", P, 9), ("A", "out of range", P), ("A", "positioned", P, 1, 7)],
        ],
    ),
    "what was truncated before is returned after": (
        "nothing of a truncated log",
        [
            *[*READS, (BROKER, "truncated", P, 3, 6), (BROKER, "produced", P, 6), ("A", "out of range", P)],
            *[("A", "positioned", P, 1, 3), *recreated(produced=0), ("A", "poll", ((P, 1, 1, 3, 5, 5),), (), ())],
        ],
    ),
    "what was fetched of the old one, of which nothing was returned, is after the reset": (
        "nothing of a truncated log",
        [*OWNS, *recreated(produced=10), *TOLD, ("A", "poll", ((P, 1, 1, 0, 4, 5),), (), ())],
    ),
    "after a reset one before the first of three topics is read": (
        "nothing of a truncated log",
        [*BEFORE_THE_THIRD, *reads(0, 4, leader_epoch=5)],
    ),
    "the second of three topics is read, and the first one after it": (
        "nothing of a truncated log",
        [*BEFORE_THE_THIRD, *reads(0, 1, leader_epoch=2000), *reads(2, 3, leader_epoch=1000)],
    ),
    "the second of three topics is read again after the next reset": (
        "nothing of a truncated log",
        [*FROM_THE_SECOND_TO_THE_THIRD, *reads(0, 2, leader_epoch=2000, seek_number=2)],
    ),
    "the first of three topics is read again after a reset that the third was there for": (
        "nothing of a truncated log",
        [
            *[*READS, *recreated(produced=4), *TOLD, *reads(0, 3), *recreated(produced=3, leader_epoch=2000)],
            *[("A", "out of range", P), *recreated(produced=2, leader_epoch=3000), ("A", "positioned", P, 1, 0)],
            *reads(0, 3, seek_number=2),
        ],
    ),
    "and after it was reset to where that one was truncated": (
        "nothing of a truncated log",
        [*IN_THE_OLD_ONE, *TOLD, ("A", "poll", ((P, 1, 1, 0, 1, 6),), (), ())],
    ),
    "where that one was truncated the new one is read": (
        "a truncation is noticed",
        [*IN_THE_OLD_ONE, (BROKER, "produced", P, 5), *reads(3, 4)],
    ),
    "the new topic is not read": ("all is done", [*READS, *commits("A", 5), *recreated(produced=3), END]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_no_member_may_do_is(name: str) -> None:
    law, history = BROKEN[name]
    assert {each.law for each in check(tell(*history))} == {law}
