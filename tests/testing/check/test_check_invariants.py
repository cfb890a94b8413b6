"""The checker is checked: for each rule a history that breaks it, and nothing else; and the same history, kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from stories import OWNS, READS, STARTED, P, Q, Say, commits, done, poll, tell

from instride.errors import ErrorCode
from instride.records import TopicPartition
from instride.testing._check.rules import RULES
from instride.testing.check import BROKER, INVARIANTS, check

END: Say = (BROKER, "end", True)
OVER: Say = (BROKER, "end", False)
TO_B: list[Say] = [("A", "revoked", ((P, 1),)), ("B", "assigned", 2, ((P, 7),))]
B_BEGINS: list[Say] = [*TO_B, ("B", "looked up", P, 5, 0), ("B", "positioned", P, 7, 5)]
ASKED: list[Say] = [("A", "requested", ((P, 1),)), ("A", "poll", (), (P,), ())]
HANDED_OVER: list[Say] = [*READS, *commits("A", 5), *ASKED, *B_BEGINS]
SIGNAL: Say = ("A", "signal", ((P, 1, 0),))
SOUGHT_IN_A_POLL: list[Say] = [*READS, SIGNAL, ("A", "seek", P), ("A", "positioned", P, 1, 2)]
JUMPS: list[Say] = [
    *[*READS, ("A", "seek", P), ("A", "positioned", P, 1, 2), ("A", "poll", ((P, 1, 1, 2, 4, 5),), (), ())],
    *[("A", "positioned", P, 1, 8), ("A", "poll", ((P, 1, 1, 8, 9, 5),), (), ()), done("A", 2, 9), *commits("A", 10)],
    END,
]
"""After a seek, and records of where it led, A goes on elsewhere unasked."""
RETAINED: list[Say] = [(BROKER, "hole", P, 0, 6), (BROKER, "log starts", P, 7), ("A", "out of range", P)]
CUT: list[Say] = [(BROKER, "truncated", P, 3, 6), (BROKER, "produced", P, 10)]
CUT_AND_TOLD: list[Say] = [*CUT, ("A", "out of range", P)]
RESET: list[Say] = [*READS, *commits("A", 5), *RETAINED, ("A", "positioned", P, 1, 7), poll("A", 7, 7)]
REWINDS: list[Say] = [*READS, *commits("A", 5), ("A", "allows rewind", ((P, 2),)), *commits("A", 2, number=2)]
READS_ALL: list[Say] = [*OWNS, poll("A", 0, 9), done("A", 0, 9), *commits("A", 10)]
BY_HAND: list[Say] = [
    *STARTED,
    (BROKER, "produced", P, 10),
    ("A", "assigned", None, ((P, 1),)),
    *OWNS[-2:],
    *READS[-2:],
]
SENDS_BACK_AFTER_A_SEEK: list[Say] = [
    *[*READS_ALL, ("A", "seek", P), ("A", "positioned", P, 1, 0), ("A", "poll", ((P, 1, 1, 0, 4, 5),), (), ())],
    *[done("A", 0, 4), commits("A", 5, number=2)[0], ("A", "crashed")],
]
AGAIN_BY_HAND: list[Say] = [("A", "revoked", ((P, 1),)), ("A", "assigned", None, ((P, 2),))]
BEGINS_AT_FIVE: list[Say] = [
    *[*READS, *commits("A", 5), ("A", "revoked", ((P, 1),)), ("A", "assigned", 2, ((P, 2),))],
    *[("A", "looked up", P, 5, 0), ("A", "positioned", P, 2, 5)],
]
A_THOUSAND: list[Say] = [*OWNS, ("A", "assigned", 1, tuple((TopicPartition("many", n), 7) for n in range(1000)))]


def by_hand(offset: int) -> Say:
    """The coordinator takes it, of no member."""
    return ("A", "commit", -1, ((P, offset, 0),))


def sample(megabytes: int, files: int = 30, threads: int = 9, buffered: int = 0) -> Say:
    return ("A", "sample", megabytes << 20, files, threads, buffered, 1000)


def load(
    buffered: int = 0, queued: int = 3, requests: int = 2, connections: int = 4, turns: int = 60, sent: int = 20
) -> Say:
    return ("A", "load", buffered, 1000, queued, requests, connections, turns, sent)


def beats(count: int) -> list[Say | float]:
    """A's heartbeats have their responses, and its polls return nothing."""
    return [each for number in range(count) for each in (("A", "alive", 1e6 + number), ("A", "poll", (), (), ()))]


def b_begins(offset: int) -> list[Say]:
    """B is assigned what A had, where the coordinator says that this is committed."""
    return [TO_B[1], ("B", "looked up", P, offset, 0), ("B", "positioned", P, 7, offset)]


def sought(offset: int) -> list[Say]:
    """A has sought there, and reads all that follows."""
    return [
        *[("A", "seek", P), ("A", "positioned", P, 1, offset), ("A", "poll", ((P, 1, 1, offset, 9, 5),), (), ())],
        done("A", offset, 9),
    ]


def reads_anew(last: int) -> list[Say]:
    """A is returned what was written in the place of what was truncated, and finishes it."""
    return [("A", "poll", ((P, 1, 1, 3, last, 6),), (), ()), done("A", 3, last)]


def rounds(count: int) -> list[Say]:
    """Records are written to both partitions, one after the other, and A is returned those of the other one only."""
    said: list[Say] = [("A", "assigned", 1, ((Q, 2),)), ("A", "looked up", Q, 0, 0), ("A", "positioned", Q, 2, 0)]
    for at in range(count):
        said += [(BROKER, "produced", Q, at + 1), ("A", "poll", ((Q, 2, 0, at, at, 5),), (), ())]
    return said


def refused(code: int) -> list[Say | float]:
    """A's last commit is refused; it lets go all the same, and B is returned what A was."""
    sent: list[Say] = [("A", "sends commit", 7, ((P, 5, 5),)), ("A", "commit response", 7, ((P, 5, code),))]
    again: list[Say] = [*TO_B, ("B", "looked up", P, None, 0), ("B", "positioned", P, 7, 0), poll("B", 0, 4, epoch=7)]
    return [*READS, *ASKED, *sent, *again]


TIMED_OUT: Say = ("A", "timed out", "unsubscribe")
TRIES: list[Say] = [("A", "sends commit", 7, ((P, 5, 5),)), ("A", "commit response", 7, ((P, 5, 7),))]


def unsubscribes(*said: Say | float) -> list[Say | float]:
    """A has not committed what it has finished, and leaves for a while; B is returned what A was."""
    goes: list[Say | float] = [*READS, ("A", "unsubscribes", "resubscribe"), *said, ("A", "unsubscribed")]
    return [*goes, TO_B[1], ("B", "looked up", P, None, 0), ("B", "positioned", P, 7, 0), poll("B", 0, 4, epoch=7)]


def refused_at_once() -> list[Say | float]:
    """The same, by the brokers that are asked who coordinates the group."""
    again: list[Say] = [*TO_B, ("B", "looked up", P, None, 0), ("B", "positioned", P, 7, 0), poll("B", 0, 4, epoch=7)]
    return [*READS, *ASKED, ("A", "group refused"), *again]


def at_the_end(*said: Say) -> list[Say | float]:
    """A begins at the end of the log, where nothing is committed, and has committed something of another partition."""
    begins: list[Say] = [*OWNS[:-1], ("A", "positioned", P, 1, 10), ("A", "sends commit", 1, ((Q, 0, 5),))]
    return [*begins, ("A", "commit response", 1, ((Q, 0, 0),)), *said, *ASKED, ("A", "revoked", ((P, 1),))]


def at_a_reset(*said: Say) -> list[Say | float]:
    """A has committed 5, and then the log begins at 8: A is reset to its end, 10, before it is to let go of it."""
    retained: list[Say] = [(BROKER, "hole", P, 0, 7), (BROKER, "log starts", P, 8), ("A", "out of range", P)]
    reads: list[Say] = [*READS, *commits("A", 5), *retained, ("A", "positioned", P, 1, 10)]
    return [*reads, *said, *ASKED, ("A", "revoked", ((P, 1),))]


def after_a_reset_over_all(*said: Say, commits_of_b: Sequence[Say] = ()) -> list[Say | float]:
    """A has committed 5, seeks to what retention has deleted, and is reset to the end; then B reads two records."""
    seeks: list[Say] = [(BROKER, "hole", P, 0, 1), (BROKER, "log starts", P, 2), ("A", "seek", P)]
    led: list[Say] = [("A", "positioned", P, 1, 1), ("A", "out of range", P), ("A", "positioned", P, 1, 10), TO_B[0]]
    reads: list[Say] = [*b_begins(5), poll("B", 5, 6, epoch=7), done("B", 5, 6, epoch=7), *commits_of_b]
    return [*READS, *commits("A", 5), *seeks, *led, *said, *reads, END]


HAS_BEGUN: list[Say] = [*OWNS, poll("A", 0, 9), ("A", "begins", P, 0, 1)]
DELAYS: Say = ("A", "delay", (P,), True)
ALIVE: Say = ("A", "alive", 1e6 - 1)
CLIENTS: dict[str, Any] = {"view": "clients", "gap": None, "delay": None, "rebalance": None}
Broken = tuple[str, str, list[Say | float], dict[str, Any]]
BROKEN: list[Broken] = [
    ("S1", "exactly once", refused(3), {"kind": "faults"}),
    ("S1", "exactly once", unsubscribes(*TRIES), {"kind": "faults"}),
    ("S1", "exactly once", unsubscribes(TIMED_OUT), {"kind": "faults"}),
    (
        "S1",
        "exactly once",
        [
            *READS,
            *ASKED,
            *TO_B,
            ("B", "looked up", P, None, 0),
            ("B", "positioned", P, 7, 0),
            poll("B", 0, 4, epoch=7),
            OVER,
        ],
        {},
    ),
    (
        "S1",
        "exactly once",
        [
            *[*OWNS, poll("A", 0, 6), done("A", 0, 4), *commits("A", 3), ("A", "allows rewind", ((P, 5),))],
            *[*commits("A", 5, number=2), done("A", 5, 6), *ASKED, *B_BEGINS, poll("B", 5, 9, epoch=7)],
        ],
        {},
    ),
    (
        "S2",
        "at least once",
        [
            *OWNS,
            poll("A", 0, 9),
            ("A", "crashed"),
            ("B", "assigned", 2, ((P, 1),)),
            ("B", "looked up", P, None, 0),
            ("B", "positioned", P, 1, 0),
            poll("B", 0, 9),
            done("B", 0, 6),
            *commits("B", 7),
            END,
        ],
        {"kind": "faults"},
    ),
    (
        "S2",
        "duplicates are confined",
        [
            *READS,
            *commits("A", 4),
            ("A", "crashed"),
            ("C", "started", True, "delivered", False),  # where its commits are not seen, S3 has nothing to say
            ("C", "assigned", 2, ((P, 7),)),
            ("C", "looked up", P, 3, 0),
            ("C", "positioned", P, 7, 3),
            poll("C", 3, 9, epoch=7),
        ],
        {"kind": "faults"},
    ),
    ("S3", "no skip", [*READS, poll("A", 6, 9)], {}),
    ("S3", "no skip", [*STARTED, (BROKER, "hole", P, 5, 6), *READS[2:], poll("A", 8, 9)], {}),
    ("S3", "nothing that is no record", [*STARTED, (BROKER, "hole", P, 5, 6), *READS[2:], poll("A", 5, 9)], {}),
    ("S3", "no skip", [*READS, ("A", "seek", P), ("A", "positioned", P, 1, 2), poll("A", 3, 9)], {}),
    ("S4", "no commit of a deleted topic", [*READS, (BROKER, "recreated", P, 9), *commits("A", 5)], {}),
    ("S3", "a truncation is noticed", [*READS, *CUT, ("A", "poll", ((P, 1, 0, 5, 9, 6),), (), ())], {}),
    (
        "S3",
        "nothing of a truncated log",
        [*READS, *CUT_AND_TOLD, ("A", "positioned", P, 1, 3), ("A", "poll", ((P, 1, 1, 3, 4, 5),), (), ())],
        {},
    ),
    ("S3", "no skip", [*SOUGHT_IN_A_POLL, poll("A", 2, 9)], {}),
    ("S3", "no skip", [*SOUGHT_IN_A_POLL, poll("A", 6, 9)], {}),
    ("S3", "no skip", [*SOUGHT_IN_A_POLL, ("A", "poll", ((P, 1, 1, 5, 9, 5),), (), ())], {}),
    ("S3", "no skip", [*SOUGHT_IN_A_POLL, ("A", "signal over"), poll("A", 5, 9)], {}),
    ("S6", "no commit of an older epoch", [*SOUGHT_IN_A_POLL, poll("A", 5, 9), done("A", 5, 9), *commits("A", 10)], {}),
    (
        "S1",
        "exactly once",
        [
            *READS,
            ("A", "seek", P),
            ("A", "positioned", P, 1, 0),
            poll("A", 0, 4),
            *ASKED,
            *TO_B,
            ("B", "looked up", P, None, 0),
            ("B", "positioned", P, 7, 0),
            poll("B", 0, 4, epoch=7),
            OVER,
        ],
        {},
    ),
    (
        "S3",
        "begins where committed",
        [*HANDED_OVER[:-2], ("B", "looked up", P, 7, 0), ("B", "positioned", P, 7, 7), poll("B", 7, 9, epoch=7)],
        {"kind": "faults"},
    ),
    (
        "S3",
        "begins where committed",
        [*SENDS_BACK_AFTER_A_SEEK, *b_begins(4), poll("B", 4, 9, epoch=7)],
        {**CLIENTS, "kind": "faults"},
    ),
    (
        "S3",
        "begins where committed",
        [*SENDS_BACK_AFTER_A_SEEK, *b_begins(7), poll("B", 7, 9, epoch=7)],
        {**CLIENTS, "kind": "faults"},
    ),
    (
        "S3",
        "begins where committed",
        [
            *[*BEGINS_AT_FIVE[:-2], ("A", "looked up", P, 7, 0), ("A", "positioned", P, 2, 7)],
            *[("A", "allows rewind", ((P, 2),)), *commits("A", 2, number=2), poll("A", 7, 9, epoch=2)],
        ],
        {},
    ),
    (
        "S2",
        "duplicates are confined",
        [
            *[*REWINDS[:-2], ("A", "crashed"), ("C", "started", True, "delivered", False), *b_begins(1)],
            *[poll("B", 1, 9, epoch=7)],
        ],
        {**CLIENTS, "kind": "faults"},
    ),
    ("S4", "no commit beyond a gap", [*OWNS, poll("A", 0, 4), done("A", 0, 2), done("A", 4, 4), *commits("A", 5)], {}),
    ("S5", "commits rise", [*READS, *commits("A", 5), *commits("A", 4, number=2)], {}),
    (
        "S5",
        "commits rise",
        [*READS, *commits("A", 5), ("A", "commit failed", "KafkaTimeoutError"), *commits("A", 4, number=2)],
        {"kind": "faults"},
    ),
    ("S5", "commits rise", [*REWINDS[:-3], *commits("A", 1, number=2)], {}),
    ("S5", "commits rise", [*REWINDS, *commits("A", 5, number=3), *commits("A", 2, number=4)], {}),
    (
        "S5",
        "commits rise",
        [
            *[*REWINDS[:-3], ("A", "revoked", ((P, 1),)), ("A", "assigned", 2, ((P, 2),))],
            *[("A", "looked up", P, 5, 0), ("A", "positioned", P, 2, 5), poll("A", 5, 9, epoch=2)],
            *[done("A", 5, 9, epoch=2), *commits("A", 8, number=2), *commits("A", 6, number=3)],
        ],
        {},
    ),
    (
        "S5",
        "commits rise",
        [
            *[*READS_ALL, *[("A", "allows rewind", ((P, 2),))] * 2, *commits("A", 2, number=2)],
            *[*commits("A", 5, number=3), *commits("A", 2, number=4)],
        ],
        {},
    ),
    (
        "S5",
        "commits rise",
        [
            *[*READS_ALL, *sought(3), ("A", "allows rewind", ((P, 5),))],
            *[*commits("A", 5, number=2), *commits("A", 4, number=3)],
        ],
        {},
    ),
    (
        "S5",
        "commits rise",
        [
            *[*READS_ALL, ("A", "allows rewind", ((P, 2),)), *sought(6)[:2]],
            *[*commits("A", 6, number=2, leader_epoch=-1), *sought(6)[2:]],
            *[*commits("A", 10, number=3), *commits("A", 8, number=4)],
        ],
        {},
    ),
    ("S6", "by hand no generation", [*BY_HAND, *commits("A", 5)], {}),
    ("S5", "one commit at a time", [*READS, *commits("A", 3)[:2], *commits("A", 5, number=2)], {}),
    ("S5", "commits carry the leader epoch", [*READS, *commits("A", 5, leader_epoch=-1)], {}),
    (
        "S6",
        "no commit of an older epoch",
        [
            *READS,
            *commits("A", 3),
            ("A", "lost", ((P, 1),)),
            ("A", "assigned", 2, ((P, 2),)),
            ("A", "looked up", P, 3, 0),
            ("A", "positioned", P, 2, 3),
            ("A", "poll", (), (), (P,)),
            *commits("A", 5),
        ],
        {"kind": "faults"},
    ),
    ("S7", "nothing after the request", [*READS, *ASKED, poll("A", 5, 9)], {}),
    (
        "S7",
        "commits have their responses first",
        [*READS, *ASKED, commits("A", 5)[0], ("A", "revoked", ((P, 1),))],
        {},
    ),
    ("S7", "no commit after the revoke", [*READS, *ASKED, ("A", "revoked", ((P, 1),)), commits("A", 5)[0]], {}),
    ("S7", "a start moves with its partition", at_the_end(), {"reset": "latest"}),
    ("S7", "a start moves with its partition", at_a_reset(), {"reset": "latest"}),
    ("S7", "a delayed partition begins nothing more", [*HAS_BEGUN, *ASKED, DELAYS, ("A", "begins", P, 1, 1)], {}),
    ("S7", "the lowest offset begins first", [*HAS_BEGUN, ("A", "begins", P, 3, 1), ("A", "begins", P, 2, 1)], {}),
    ("S8", "no commit after lost", [*READS, ("A", "lost", ((P, 1),)), commits("A", 5)[0]], {"kind": "slow"}),
    (
        "S8",
        "no commit after a hand-over",
        [*READS, commits("A", 5)[0], ("A", "crashed"), ("B", "assigned", 2, ((P, 7),)), commits("A", 5)[1]],
        {"kind": "faults"},
    ),
    ("S8", "losses are told", [*READS, ("A", "lost", ((P, 1),)), ("A", "poll", (), (), ())], {"kind": "slow"}),
    (
        "S8",
        "losses are told",
        [*READS, *ASKED, ("A", "lost", ((P, 1),)), ALIVE, *[("A", "poll", (), (P,), ())] * 2],
        {**CLIENTS, "kind": "slow"},
    ),
    (
        "S8",
        "losses are told",
        [*READS, ("A", "lost", ((P, 1),)), ALIVE, *[("A", "poll", (), (), ())] * 2],
        {**CLIENTS, "kind": "slow"},
    ),
    ("S8", "lost once", [*READS, ("A", "poll", (), (), (P,))], {}),
    ("S9", "no reset after an error", [*OWNS[:-2], ("A", "looked up", P, None, 14), ("A", "positioned", P, 1, 0)], {}),
    ("S9", "no reset after an error", [*JUMPS], {}),
    (
        "S9",
        "a truncated log is read on where it was truncated",
        [*READS, *CUT_AND_TOLD, ("A", "positioned", P, 1, 0)],
        {},
    ),
    ("S9", "no reset after an error", [*RESET, ("A", "positioned", P, 1, 9)], {}),
    ("S9", "no reset after an error", [*READS, ("A", "positioned", P, 1, 7)], {}),
    ("S10", "fences itself", [*READS, ("A", "alive", 1.0), 1.5, poll("A", 5, 9)], {}),
    ("S10", "commits as a member only", [*READS, ("A", "alive", 1.0), 1.5, *commits("A", 5)], {}),
    ("S11", "one owner", [*READS, *commits("A", 5), ("B", "assigned", 2, ((P, 7),))], {}),
    (
        "S11",
        "one owner",
        [*READS, *commits("A", 5), ("B", "assigned", 2, ((P, 7),)), poll("A", 5, 9)],
        {"kind": "slow"},
    ),
    ("S11", "one owner", [*READS, ("A", "assigned", 2, ((P, 2),))], {}),
    ("L1", "the others go on", [*READS, 4.0, poll("A", 5, 9)], {}),
    ("L1", "no turn passes one over", [*READS, *beats(41)], CLIENTS),
    ("L1", "no turn passes one over", [*READS, *ASKED, ("A", "reassigned", ((P, 1),)), *beats(41)], CLIENTS),
    ("L1", "no turn passes one over", [*READS, ALIVE, *rounds(41)], CLIENTS),
    ("L2", "a delay ends", [*READS, *ASKED, ("A", "delay", (P,), True), 7.0, ("A", "revoked", ((P, 1),))], {}),
    (
        "L2",
        "a delay keeps its deadline",
        [
            *READS,
            ASKED[0],
            ("A", "deadline", ((P, 1),), 0.5),
            ASKED[1],
            1.0,
            *[
                each
                for number in range(41)
                for each in (("A", "delay", (P,), True), ("A", "alive", 1e6 + number), ("A", "poll", (), (P,), ()))
            ],
        ],
        CLIENTS,
    ),
    (
        "L2",
        "queued work delays nothing",
        [*HAS_BEGUN, done("A", 0, 0), *commits("A", 1), *ASKED, *[DELAYS] * 3],
        {},
    ),
    ("L2", "only work holds a revoke up", [*READS, *ASKED, *beats(41)], CLIENTS),
    ("L2", "a delay ends", [*READS, *ASKED, ("A", "delay", (P,), True), 7.0, OVER], {}),
    ("L3", "all is done", [*READS, *commits("A", 5), END], {}),
    ("L3", "all is done", after_a_reset_over_all(commits_of_b=commits("B", 7)), {"reset": "latest", "kind": "faults"}),
    ("L3", "all is done", after_a_reset_over_all(("B", "leaving")), {"reset": "latest", "kind": "faults"}),
    ("L3", "all is done", [*READS_ALL, *CUT_AND_TOLD, ("A", "positioned", P, 1, 3), *reads_anew(9), END], {}),
    ("L3", "all is done", [*READS, poll("A", 5, 9), done("A", 5, 9), *commits("A", 5), END], {}),
    (
        "L3",
        "what is sought back is returned",
        [
            *READS,
            poll("A", 5, 9),
            done("A", 5, 9),
            *commits("A", 10),
            ("A", "seek", P),
            ("A", "positioned", P, 1, 7),
            4.0,
            END,
        ],
        {"kind": "faults"},
    ),
    (
        "L3",
        "an interrupted end is an end",
        [
            ("A", "subscribes", ("t",)),
            ("A", "interrupted", "close", 1.0),
            4.0,
            (BROKER, "group", "Stable", 2, ("A",)),
        ],
        {},
    ),
    (
        "L3",
        "a rebalance waits for no delay",
        [
            ("A", "subscribes", ("t",)),
            (BROKER, "group", "PreparingRebalance", 1, ("A",)),
            4.0,
            (BROKER, "group", "CompletingRebalance", 2, ("A",)),
        ],
        {},
    ),
    (
        "L3",
        "few rounds",
        [
            ("A", "subscribes", ("t",)),
            *[(BROKER, "group", "PreparingRebalance", each, ("A",)) for each in range(3)],
            OVER,
        ],
        {},
    ),
    ("L4", "heartbeats go on", [*READS, ("A", "evicted", "no heartbeat within the session time-out")], {}),
    ("L4", "nothing dies", [*READS, ("A", "died", "network thread", "KeyError: 7")], {"kind": "faults"}),
    (
        "L5",
        "a failed commit stops nothing",
        [*READS, *commits("A", 5, code=ErrorCode.REBALANCE_IN_PROGRESS), 4.0, poll("A", 5, 9)],
        {},
    ),
    (
        "L5",
        "a failed commit stops no turn",
        [*READS, *commits("A", 5, code=ErrorCode.REBALANCE_IN_PROGRESS), *beats(41)],
        CLIENTS,
    ),
    ("R1", "buffers keep their caps", [*STARTED, sample(100, buffered=1001)], {}),
    ("R1", "buffers keep their caps", [*STARTED, load(buffered=1001)], {}),
    ("R1", "little is under way", [*STARTED, load(queued=301)], {}),
    ("R1", "little is under way", [*A_THOUSAND, load(queued=4_305)], {}),
    ("R1", "little is under way", [*STARTED, load(requests=41)], {}),
    ("R1", "little is under way", [*STARTED, load(connections=21)], {}),
    ("R1", "little is under way", [*STARTED, load(turns=1501)], {}),
    ("R1", "little is under way", [*STARTED, load(sent=401)], {}),
    ("R1", "resources stay flat", [*STARTED, *(load(queued=each) for each in range(120)), OVER], {}),
    (
        "R1",
        "resources stay flat",
        [*STARTED, *(load(queued=each) for each in range(120)), ("A", "leaving"), load(), OVER],
        {},
    ),
    ("R1", "resources stay flat", [*STARTED, *(load(requests=each // 4) for each in range(120)), OVER], {}),
    ("R1", "resources stay flat", [*STARTED, *(load(connections=each // 8) for each in range(120)), OVER], {}),
    ("R1", "resources stay flat", [*STARTED, *(sample(100 + 5 * each) for each in range(12)), OVER], {}),
    ("R1", "resources stay flat", [*STARTED, *(sample(100, files=30 + each) for each in range(12)), OVER], {}),
    ("R1", "resources stay flat", [*STARTED, *(sample(100, threads=9 + each) for each in range(12)), OVER], {}),
    ("P1", "nothing while paused", [*READS, ("A", "still paused", (P,)), poll("A", 5, 9)], {}),
    (
        "P1",
        "nothing while paused",
        [*READS, SIGNAL, ("A", "pauses", (P,)), ("A", "signal over"), ("A", "still paused", (P,)), poll("A", 5, 9)],
        {},
    ),
    ("P2", "listeners hear once", [*READS, ("A", "on assigned", (P,)), ("A", "on assigned", (P,))], {}),
    ("P2", "listeners hear once", [*READS, ("A", "on assigned", (P,)), ("A", "on revoked", (P, Q))], {}),
    ("P2", "listeners hear once", [*READS, ("A", "on assigned", (P,)), ("A", "closed", True)], {}),
    (
        "P2",
        "listeners hear once",
        [
            *[*READS, ("A", "subscribes", ("t",)), ("A", "on revoked", (P,)), ("A", "revoked", ((P, 1),))],
            *[("A", "assigned", 2, ((P, 2),)), ("A", "on assigned", (P,)), ("A", "closed", True)],
        ],
        CLIENTS,
    ),
    ("P2", "listeners hear once", [*READS, ("A", "subscribes", ("t",)), *[("A", "on revoked", (P,))] * 2], CLIENTS),
    ("P3", "a calm history loses nothing", [*READS, ("A", "lost", ((P, 1),)), ("A", "poll", (), (), (P,))], {}),
    ("P4", "a calm commit succeeds", [*READS, ("A", "commit failed", "CommitFailedError")], {}),
    ("P4", "a calm commit succeeds", [*READS, ("A", "commit failed", "StaleCommitError")], {}),
    (
        "P4",
        "a calm commit succeeds",
        [*READS, ("A", "seek", P), ("A", "positioned", P, 1, 2), ("A", "commit failed", "CommitFailedError")],
        {},
    ),
    ("S5", "a commit's result is true", [*READS, *commits("A", 4), ("A", "commit told", ((P, 5),), ())], {}),
    ("S5", "a commit's result is true", [*READS, *commits("A", 4), ("A", "commit told", (), ((P, 3),))], {}),
    ("P5", "epochs rise", [*READS, ("A", "revoked", ((P, 1),)), ("A", "assigned", 2, ((P, 1),))], {}),
    (
        "P5",
        "epochs rise",
        [*READS, *TO_B, ("B", "revoked", ((P, 7),)), ("A", "assigned", 3, ((P, 1),))],
        {},
    ),
]


@pytest.mark.parametrize(
    ("number", "law", "said", "parameters"),
    BROKEN,
    ids=[f"{each[0]} {each[1]} {place}" for place, each in enumerate(BROKEN)],
)
def test_what_breaks_one_rule_is_reported_by_its_number_alone(
    number: str, law: str, said: list[Say | float], parameters: dict[str, Any]
) -> None:
    history = tell(*said, **parameters)
    found = check(history)
    assert {(each.number, each.law) for each in found} == {(number, law)}, "\n".join(map(str, found))
    for violation in found:
        assert all(1 <= line <= len(history) for line in violation.lines), "each line is one of the history's"
        assert violation.lines, "it says where"


def test_a_commit_that_went_back_is_in_doubt_until_one_is_taken() -> None:
    said = [
        *[*SENDS_BACK_AFTER_A_SEEK[:-1], commits("A", 5, number=2)[2]],
        *[("A", "poll", ((P, 1, 1, 5, 6, 5),), (), ()), done("A", 5, 6), *commits("A", 7, number=3)[::2]],
        *[("A", "crashed"), *b_begins(5), poll("B", 5, 9, epoch=7)],
    ]
    found = check(tell(*said, **CLIENTS | {"kind": "faults"}))
    assert {each.law for each in found} == {"begins where committed", "duplicates are confined"}


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_nobody_begins_at_a_commit_that_went_back_and_was_refused(code: ErrorCode) -> None:
    said = [
        *[*REWINDS[:-2], ("A", "commit response", 2, ((P, 2, code),)), ("A", "revoked", ((P, 1),))],
        *[*b_begins(2), poll("B", 2, 9, epoch=7)],
    ]
    found = check(tell(*said, **CLIENTS | {"kind": "faults"}))
    assert {each.law for each in found} == {"begins where committed", "exactly once"}


def test_a_commit_that_went_back_and_was_not_taken_allows_no_record_again() -> None:
    said = [
        *[*REWINDS[:-2], ("A", "commit response", 2, ((P, 2, -1),)), ("A", "revoked", ((P, 1),))],
        *[*b_begins(5), poll("B", 2, 9, epoch=7)],
    ]
    found = check(tell(*said, **CLIENTS | {"kind": "faults"}))
    assert {each.law for each in found} == {"no skip", "exactly once"}


def test_a_rewind_of_before_a_seek_lets_no_commit_go_back_further() -> None:
    said = [
        *[*READS_ALL, ("A", "allows rewind", ((P, 2),)), ("A", "own offsets", ((P, 7),)), *sought(5)[:2]],
        *[*commits("A", 2, number=2), *commits("A", 7, number=3), *commits("A", 1, number=4)],
    ]
    assert {each.law for each in check(tell(*said))} == {"commits rise", "no commit of an older epoch"}


def test_a_seek_allows_no_commit_to_go_back_once_one_was_taken_since() -> None:
    said = [
        *[*READS_ALL, *sought(0), *commits("A", 7, number=2)[::2], commits("A", 4, number=3)[0]],
        *[("A", "crashed"), *b_begins(4), poll("B", 4, 9, epoch=7)],
    ]
    found = check(tell(*said, **CLIENTS | {"kind": "faults"}))
    assert {each.law for each in found} == {"begins where committed", "duplicates are confined"}


def test_each_rule_has_a_history_that_breaks_it() -> None:
    assert {(each.number, each.law) for each in RULES} == {(number, law) for number, law, _, _ in BROKEN}
    assert set(INVARIANTS) >= {f"S{n}" for n in range(1, 12)} | {f"L{n}" for n in range(1, 6)} | {"R1"}


def test_each_rule_says_what_it_means() -> None:
    for each in RULES:
        assert each.judge.__doc__, f"{each.number}, {each.law} has no definition"


KEPT: dict[str, tuple[list[Say | float], dict[str, Any]]] = {
    "commits are refused for longer than an unsubscribe may take": (
        unsubscribes(*TRIES, TIMED_OUT),
        {"kind": "faults"},
    ),
    "the same, as a recorder sees it": (unsubscribes(*TRIES, TIMED_OUT), {"kind": "faults", **CLIENTS}),
    "a commit has no response for as long as an unsubscribe may take": (
        unsubscribes(TRIES[0], TIMED_OUT),
        {"kind": "faults"},
    ),
    "a user who sought back a moment before the end has not been returned it yet": (
        [
            *READS,
            poll("A", 5, 9),
            done("A", 5, 9),
            *commits("A", 10),
            ("A", "seek", P),
            ("A", "positioned", P, 1, 7),
            1.0,
            END,
        ],
        {"kind": "faults"},
    ),
    "a hand-over": (
        [*HANDED_OVER, poll("B", 5, 9, epoch=7), done("B", 5, 9, epoch=7), *commits("B", 10), END],
        {},
    ),
    "a crash, and what was not committed comes again": (
        [
            *READS,
            *commits("A", 3),
            ("A", "crashed"),
            ("B", "assigned", 2, ((P, 7),)),
            ("B", "looked up", P, 3, 0),
            ("B", "positioned", P, 7, 3),
            poll("B", 3, 9, epoch=7),
            done("B", 3, 9, epoch=7),
            *commits("B", 10),
            END,
        ],
        {"kind": "faults"},
    ),
    "a failed handler is the user's to repeat": (
        [*OWNS, poll("A", 0, 9), done("A", 0, 3), ("A", "failed", P, 4, 1), done("A", 4, 9), *commits("A", 10), END],
        {"kind": "faults"},
    ),
    "holes are no skips": (
        [
            *STARTED,
            (BROKER, "hole", P, 2, 3),
            *OWNS[2:],
            poll("A", 0, 1),
            poll("A", 4, 9),
            done("A", 0, 1),
            done("A", 4, 9),
            *commits("A", 10),
            END,
        ],
        {},
    ),
    "what a compaction takes may be on its way": (
        [*READS, (BROKER, "hole", P, 6, 7), poll("A", 5, 9), done("A", 5, 9), *commits("A", 10), END],
        {},
    ),
    "a log that ends in holes is done before them, or behind": (
        [
            *STARTED,
            (BROKER, "hole", P, 0, 1),
            (BROKER, "hole", P, 5, 9),
            *OWNS[2:],
            poll("A", 2, 4),
            done("A", 2, 4),
            *commits("A", 5),
            *commits("A", 10, number=2),
            END,
        ],
        {},
    ),
    "holes are nothing to wait for": (
        [
            *READS[:-2],
            poll("A", 0, 9),
            done("A", 0, 9),
            *commits("A", 10),
            (BROKER, "hole", P, 10, 12),
            (BROKER, "produced", P, 13),
            5.0,
            (BROKER, "produced", P, 14),
            poll("A", 13, 13),
            done("A", 13, 13),
            *commits("A", 14),
            END,
        ],
        {},
    ),
    "a delayed revoke, reassigned": (
        [
            *READS,
            *ASKED,
            ("A", "delay", (P,), True),
            ("A", "reassigned", ((P, 1),)),
            poll("A", 5, 9),
            done("A", 5, 9),
            *commits("A", 10),
            END,
        ],
        {},
    ),
    "a loss that is told, and comes again": (
        [
            *READS,
            *commits("A", 3),
            ("A", "lost", ((P, 1),)),
            ("A", "poll", (), (), (P,)),
            ("A", "assigned", 2, ((P, 2),)),
            ("A", "looked up", P, 3, 0),
            ("A", "positioned", P, 2, 3),
            poll("A", 3, 9, epoch=2),
            done("A", 3, 9, epoch=2),
            *commits("A", 10),
            END,
        ],
        {"kind": "slow"},
    ),
    "a loss that is told at once, as clients see it": (
        [
            *READS,
            *commits("A", 3),
            ("A", "lost", ((P, 1),)),
            ("A", "poll", (), (), (P,)),
            ("A", "assigned", 2, ((P, 2),)),
            ("A", "looked up", P, 3, 0),
            ("A", "positioned", P, 2, 3),
            poll("A", 3, 9, epoch=2),
        ],
        {"kind": "slow", "view": "clients"},
    ),
    "a user who seeks back": (
        [
            *READS,
            *commits("A", 5),
            ("A", "seek", P),
            ("A", "positioned", P, 1, 2),
            ("A", "poll", ((P, 1, 1, 2, 9, 5),), (), ()),
            done("A", 2, 9),
            *commits("A", 10, number=2),
            END,
        ],
        {"kind": "faults"},
    ),
    "a signal's handler seeks while a poll has records in hand": (
        [
            *SOUGHT_IN_A_POLL,
            poll("A", 5, 6),
            poll("A", 7, 9),
            ("A", "signal over"),
            done("A", 5, 9),
            ("A", "poll", ((P, 1, 1, 2, 9, 5),), (), ()),
            done("A", 2, 9),
            *commits("A", 10),
            END,
        ],
        {},
    ),
    "the lease ends while a signal's handler runs in a poll that has records in hand": (
        [
            *READS,
            ("A", "alive", 1.0),
            SIGNAL,
            1.5,
            poll("A", 5, 9),
            ("A", "signal over"),
            ("A", "alive", 9.0),
            done("A", 5, 9),
            *commits("A", 10),
            END,
        ],
        {},
    ),
    "a signal's handler pauses while a poll has records in hand": (
        [
            *READS,
            SIGNAL,
            ("A", "pauses", (P,)),
            ("A", "still paused", (P,)),
            poll("A", 5, 9),
            ("A", "signal over"),
            done("A", 5, 9),
            *commits("A", 10),
            END,
        ],
        {},
    ),
    "a commit of a place that its user has left by a seek is stale": (
        [
            *READS,
            ("A", "seek", P),
            ("A", "positioned", P, 1, 2),
            ("A", "commit failed", "StaleCommitError"),
            ("A", "poll", ((P, 1, 1, 2, 9, 5),), (), ()),
            done("A", 2, 9),
            *commits("A", 10),
            END,
        ],
        {},
    ),
    "what was requested before a seek is taken after it": (
        [
            *READS,
            ("A", "sends commit", 1, ((P, 5, 5),)),
            ("A", "seek", P),
            ("A", "positioned", P, 1, 2),
            ("A", "commit", 1, ((P, 5, 0),)),
            ("A", "commit response", 1, ((P, 5, 0),)),
            *commits("A", 2, number=2, leader_epoch=-1),
            ("A", "poll", ((P, 1, 1, 2, 9, 5),), (), ()),
            done("A", 2, 9),
            *commits("A", 10, number=3),
            END,
        ],
        {},
    ),
    "what was not committed before a seek may come to the next owner again": (
        [
            *READS,
            *commits("A", 3),
            ("A", "seek", P),
            ("A", "positioned", P, 1, 4),
            *ASKED,
            ("A", "poll", (), (P,), ()),
            ("A", "revoked", ((P, 1),)),
            ("B", "assigned", 2, ((P, 7),)),
            ("B", "looked up", P, 3, 0),
            ("B", "positioned", P, 7, 3),
            poll("B", 3, 9, epoch=7),
            done("B", 3, 9, epoch=7),
            *commits("B", 10, number=2),
            END,
        ],
        {},
    ),
    "a paused partition waits for nobody": (
        [*READS, ("A", "pauses", (P,)), 5.0, ("A", "resumes", (P,)), 1.0, poll("A", 5, 9), OVER],
        {},
    ),
    "a fenced twin may not know it": (
        [
            *READS,
            ("A", "evicted", "another one has its instance id"),
            ("B", "assigned", 1, ((P, 7),)),
            1.0,
            poll("A", 5, 9),
        ],
        {"kind": "faults"},
    ),
    "what was let go of before any work on it": (
        [
            *OWNS,
            poll("A", 0, 9),
            done("A", 0, 4),
            *commits("A", 5),
            *ASKED,
            ("A", "not begun", P, 1, 5),
            *B_BEGINS,
            poll("B", 5, 9, epoch=7),
            done("B", 5, 9, epoch=7),
            *commits("B", 10),
            END,
        ],
        {},
    ),
    "a failed record is tried again though its partition is delayed": (
        [*HAS_BEGUN, ("A", "begins", P, 1, 1), ("A", "failed", P, 0, 1), *ASKED, DELAYS, ("A", "begins", P, 0, 1)],
        {"kind": "faults"},
    ),
    "a delay until it is known that what is finished is committed": (
        [*HAS_BEGUN, done("A", 0, 0), *commits("A", 1)[:2], *ASKED, *[DELAYS] * 9],
        {},
    ),
    "less is committed than the coordinator took, where that was told as a failure": (
        [
            *READS,
            *commits("A", 3),
            *commits("A", 5, number=2)[:2],
            ("A", "commit response", 2, ((P, 5, -1),)),
            ("A", "commit failed", "KafkaTimeoutError"),
            *commits("A", 4, number=3),
        ],
        {"kind": "faults"},
    ),
    "a start before holes that were told before it": (
        [
            *OWNS[:-1],
            (BROKER, "hole", P, 10, 11),
            (BROKER, "produced", P, 12),
            ("A", "positioned", P, 1, 10),
            *commits("A", 12),
        ],
        {"reset": "latest"},
    ),
    "who leaves reads only a part of what another one was reset over": (
        after_a_reset_over_all(("B", "leaving"), commits_of_b=commits("B", 7)),
        {"reset": "latest", "kind": "faults"},
    ),
    "a start that is committed": (at_the_end(*commits("A", 10, number=2)), {"reset": "latest"}),
    "what was taken between two signals of a poll, of which one resumes and one pauses": (
        [
            *[*READS, ("A", "pauses", (P,)), SIGNAL, ("A", "resumes", (P,)), SIGNAL, ("A", "pauses", (P,))],
            *[("A", "still paused", (P,)), poll("A", 5, 9), ("A", "signal over")],
        ],
        {},
    ),
    "a start after a later reset": (at_a_reset(*commits("A", 10, number=2)), {"reset": "latest"}),
    "what was done before a reset is committed late": (
        at_a_reset(*commits("A", 5, number=2), *commits("A", 10, number=3)),
        {"reset": "latest"},
    ),
    "a reset that leads nowhere before the end of the revoke": (
        [each for each in at_a_reset() if each != ("A", "positioned", P, 1, 10)],
        {"reset": "latest"},
    ),
    "a log that loses all that was to be read": (
        [*READS, (BROKER, "hole", P, 0, 9), (BROKER, "log starts", P, 10), *beats(400)],
        {},
    ),
    "a start that a later owner's reset passes over": (
        [
            *at_the_end()[:-1],
            ("A", "lost", ((P, 1),)),
            (BROKER, "produced", P, 20),
            ("B", "assigned", 2, ((P, 7),)),
            ("B", "looked up", P, None, 0),
            ("B", "positioned", P, 7, 20),
            END,
        ],
        {"reset": "latest", "kind": "faults"},
    ),
    "a commit that goes back since its user allows that, and what follows comes again": (
        [
            *[*REWINDS, *TO_B, ("B", "looked up", P, 2, 0), ("B", "positioned", P, 7, 2), poll("B", 2, 9, epoch=7)],
            *[done("B", 2, 9, epoch=7), *commits("B", 10, number=3), END],
        ],
        {},
    ),
    "a commit that goes back in a later assignment, since its user allows that": (
        [
            *[*READS, *commits("A", 5), ("A", "revoked", ((P, 1),)), ("A", "assigned", 2, ((P, 2),))],
            *[("A", "looked up", P, 5, 0), ("A", "positioned", P, 2, 5), ("A", "allows rewind", ((P, 2),))],
            *commits("A", 2, number=2),
        ],
        {},
    ),
    "a commit that was in flight before its user allowed the next one to go back": (
        [
            *[*READS, *commits("A", 3), *commits("A", 5, number=2)[:1], ("A", "allows rewind", ((P, 2),))],
            *[*commits("A", 5, number=2)[1:], *commits("A", 2, number=3), *TO_B],
            *[("B", "looked up", P, 2, 0), ("B", "positioned", P, 7, 2), poll("B", 2, 9, epoch=7)],
        ],
        {},
    ),
    "the same, and it was sent only then": (
        [
            *[*READS, *commits("A", 3), ("A", "allows rewind", ((P, 2),)), *commits("A", 5, number=2)],
            *commits("A", 2, number=3),
        ],
        CLIENTS,
    ),
    "the same, after a commit that went back": (
        [
            *[*READS_ALL, ("A", "allows rewind", ((P, 3),)), *commits("A", 3, number=2)],
            *[commits("A", 6, number=3)[0], ("A", "allows rewind", ((P, 4),)), *commits("A", 6, number=3)[1:]],
            *commits("A", 4, number=4),
        ],
        {},
    ),
    "the same, after a seek back": (
        [
            *[*READS_ALL, ("A", "seek", P), ("A", "positioned", P, 1, 2), *commits("A", 2, number=2, leader_epoch=-1)],
            *[("A", "poll", ((P, 1, 1, 2, 9, 5),), (), ()), done("A", 2, 9), commits("A", 6, number=3)[0]],
            *[("A", "allows rewind", ((P, 4),)), *commits("A", 6, number=3)[1:], *commits("A", 4, number=4)],
        ],
        {},
    ),
    "the same, after a seek back, and it was sent only then": (
        [
            *[*READS_ALL, ("A", "seek", P), ("A", "positioned", P, 1, 2), *commits("A", 2, number=2, leader_epoch=-1)],
            *[("A", "poll", ((P, 1, 1, 2, 9, 5),), (), ()), done("A", 2, 9), ("A", "allows rewind", ((P, 4),))],
            *[*commits("A", 6, number=3), *commits("A", 4, number=4)],
        ],
        {},
    ),
    "a commit that goes back, allowed once more while it is in flight": (
        [
            *[*BEGINS_AT_FIVE, ("A", "allows rewind", ((P, 2),)), commits("A", 2, number=2)[0]],
            *[("A", "allows rewind", ((P, 2),)), *commits("A", 2, number=2)[1:], *commits("A", 2, number=3)],
        ],
        {},
    ),
    "a commit that goes back before its assignment has returned anything": (
        [*BEGINS_AT_FIVE, ("A", "allows rewind", ((P, 2),)), *commits("A", 2, number=2), poll("A", 5, 9, epoch=2)],
        {},
    ),
    "a commit that may go back is asked for before a seek that leads back further": (
        [
            *[*READS_ALL, ("A", "allows rewind", ((P, 7),)), ("A", "seek", P), ("A", "positioned", P, 1, 6)],
            *[*commits("A", 7, number=2), *commits("A", 6, number=3, leader_epoch=-1)],
        ],
        {},
    ),
    "the same, and another one that may go back follows": (
        [
            *[*READS_ALL, ("A", "allows rewind", ((P, 7),)), ("A", "seek", P), ("A", "positioned", P, 1, 6)],
            *[*commits("A", 7, number=2), ("A", "allows rewind", ((P, 2),))],
            *[*commits("A", 6, number=3, leader_epoch=-1), *commits("A", 2, number=4)],
        ],
        {},
    ),
    "a later commit in the place of one that may go back, and the next may while it is in flight": (
        [
            *[*READS_ALL, ("A", "allows rewind", ((P, 2),)), commits("A", 7, number=2)[0]],
            *[("A", "allows rewind", ((P, 3),)), *commits("A", 7, number=2)[1:], *commits("A", 3, number=3)],
        ],
        {},
    ),
    "the same, and its user seeks before it is taken": (
        [
            *[*READS_ALL, ("A", "allows rewind", ((P, 2),)), commits("A", 7, number=2)[0]],
            *[("A", "allows rewind", ((P, 3),)), *sought(5)[:2], *commits("A", 7, number=2)[1:]],
            *commits("A", 3, number=3),
        ],
        {},
    ),
    "a commit that goes back in the place of one that was not sent yet, and what follows comes again": (
        [
            *[*READS, *commits("A", 3), ("A", "allows rewind", ((P, 4),)), *commits("A", 4, number=2), *ASKED, *TO_B],
            *[("B", "looked up", P, 4, 0), ("B", "positioned", P, 7, 4), poll("B", 4, 9, epoch=7)],
        ],
        {},
    ),
    "a commit that goes back is taken after a seek, and then one that was asked for between the two": (
        [
            *[*READS_ALL, ("A", "allows rewind", ((P, 2),)), ("A", "own offsets", ((P, 7),)), *sought(5)[:2]],
            *[*commits("A", 2, number=2), *commits("A", 7, number=3)],
        ],
        {},
    ),
    "the same, and what it speaks of has been read again by then": (
        [
            *[*READS_ALL, ("A", "allows rewind", ((P, 7),)), ("A", "seek", P), ("A", "positioned", P, 1, 5)],
            *[("A", "poll", ((P, 1, 1, 5, 7, 5),), (), ()), done("A", 5, 7)],
            *[*commits("A", 7, number=2), *commits("A", 6, number=3)],
        ],
        {},
    ),
    "a commit that goes back by a seek was sent before its user allowed another one, and then sought": (
        [
            *[*READS_ALL, *sought(8)[:2], commits("A", 8, number=2, leader_epoch=-1)[0]],
            *[("A", "allows rewind", ((P, 2),)), *sought(6)[:2], *commits("A", 8, number=2)[1:]],
            *commits("A", 2, number=3),
        ],
        {},
    ),
    "the same, and it was sent only after that was allowed": (
        [
            *[*READS_ALL, *sought(8)[:2], ("A", "allows rewind", ((P, 2),))],
            *[commits("A", 8, number=2, leader_epoch=-1)[0], *sought(6)[:2], *commits("A", 8, number=2)[1:]],
            *commits("A", 2, number=3),
        ],
        {},
    ),
    "the same, and it was sent only after the second seek": (
        [
            *[*READS_ALL, *sought(8)[:2], ("A", "allows rewind", ((P, 2),)), *sought(6)[:2]],
            *[*commits("A", 8, number=2, leader_epoch=-1), *commits("A", 2, number=3)],
        ],
        {},
    ),
    "a handler's seek comes between what is asked for and what is handed over": (
        [
            *[*READS_ALL, *sought(0)[:2], ("A", "allows rewind", ((P, 2),)), *commits("A", 2, number=2)],
            *commits("A", 0, number=3, leader_epoch=-1),
        ],
        {},
    ),
    "a commit that goes back by a seek is sent once its user has allowed the next one to go back further": (
        [
            *[*READS_ALL, ("A", "seek", P), ("A", "positioned", P, 1, 6), ("A", "allows rewind", ((P, 2),))],
            *[*commits("A", 6, number=2, leader_epoch=-1), *commits("A", 2, number=3)],
        ],
        {},
    ),
    "commits that rise again to where their assignment began": (
        [
            *[*BEGINS_AT_FIVE, ("A", "allows rewind", ((P, 2),)), *commits("A", 2, number=2)],
            *[*commits("A", 2, number=3), *commits("A", 3, number=4), *commits("A", 5, number=5)],
        ],
        {},
    ),
    "a commit that goes back, called before the network thread tells of its assignment by hand": (
        [
            *[*BY_HAND, *commits("A", 5), AGAIN_BY_HAND[0], ("A", "allows rewind", ((P, 2),)), AGAIN_BY_HAND[1]],
            *commits("A", 2, number=2)[::2],
        ],
        CLIENTS,
    ),
    "a commit by hand, sent once its partition is assigned anew": (
        [*BY_HAND, *AGAIN_BY_HAND, *commits("A", 5)[::2]],
        CLIENTS,
    ),
    "a commit by hand, taken once its partition is assigned anew": (
        [*BY_HAND, commits("A", 5)[0], *AGAIN_BY_HAND, by_hand(5)],
        {},
    ),
    "one of before a seek, taken then": (
        [
            *[*BY_HAND, commits("A", 5)[0], ("A", "seek", P), ("A", "positioned", P, 1, 2)],
            *[*AGAIN_BY_HAND, by_hand(5)],
        ],
        {},
    ),
    "a commit of a membership that was interrupted, taken once its partition is by hand": (
        [*READS, commits("A", 5)[0], ("A", "interrupted", "unsubscribe", 9.0), AGAIN_BY_HAND[1], commits("A", 5)[1]],
        {"kind": "faults"},
    ),
    "a commit by hand that goes back to before its assignment, which has returned nothing yet": (
        [
            *[*BY_HAND, commits("A", 5)[0], by_hand(5), commits("A", 5)[2], *AGAIN_BY_HAND],
            *[("A", "looked up", P, 5, 0), ("A", "positioned", P, 2, 5), ("A", "allows rewind", ((P, 2),))],
            *[commits("A", 2, number=2)[0], by_hand(2), poll("A", 5, 9, epoch=2)],
        ],
        {},
    ),
    "where an assignment would begin that another by hand has ended": (
        [
            *[*BY_HAND, *AGAIN_BY_HAND, ("A", "revoked", ((P, 2),)), ("A", "assigned", None, ((P, 3),))],
            *[("A", "looked up", P, None, 0), ("A", "positioned", P, 2, 0)],
        ],
        {},
    ),
    "two commits that may go back, one after the other": (
        [
            *[*READS, *commits("A", 5), ("A", "allows rewind", ((P, 4),)), ("A", "allows rewind", ((P, 2),))],
            *[*commits("A", 4, number=2), *commits("A", 2, number=3)],
        ],
        {},
    ),
    "a commit that goes back behind one that may have been taken": (
        [
            *[*READS, *commits("A", 3), *commits("A", 5, number=2, code=-1), ("A", "allows rewind", ((P, 3),))],
            *[*commits("A", 3, number=3), *TO_B],
            *[("B", "looked up", P, 3, 0), ("B", "positioned", P, 7, 3), poll("B", 3, 9, epoch=7)],
        ],
        {**CLIENTS, "kind": "faults"},
    ),
    "a commit that goes back after a seek has no response, and was taken": (
        [*SENDS_BACK_AFTER_A_SEEK, *b_begins(5), poll("B", 5, 9, epoch=7)],
        {**CLIENTS, "kind": "faults"},
    ),
    "a commit that goes back after a seek has no response, and was not taken": (
        [*SENDS_BACK_AFTER_A_SEEK, *b_begins(10)],
        {**CLIENTS, "kind": "faults"},
    ),
    "a commit that goes back since its user allows that has no response, and was taken": (
        [*REWINDS[:-2], ("A", "crashed"), *b_begins(2), poll("B", 2, 9, epoch=7)],
        {**CLIENTS, "kind": "faults"},
    ),
    "the same, where the first record from there on is gone": (
        [*REWINDS[:-2], ("A", "crashed"), (BROKER, "hole", P, 2, 2), TO_B[1], poll("B", 3, 9, epoch=7)],
        {**CLIENTS, "kind": "faults"},
    ),
    "the same, of a member that lives on": (
        [
            *[*REWINDS[:-2], ("A", "commit response", 2, ((P, 2, -1),)), ("A", "revoked", ((P, 1),))],
            *[*b_begins(2), poll("B", 2, 9, epoch=7)],
        ],
        {**CLIENTS, "kind": "faults"},
    ),
    "a static member that unsubscribes, and then reads by hand": (
        [
            *[*READS, *commits("A", 5)[::2], ("A", "alive", 1.0), ("A", "unsubscribes", "unsubscribe")],
            *[("A", "revoked", ((P, 1),)), ("A", "unsubscribed"), ("A", "assigned", None, ((P, 2),))],
            *[("A", "looked up", P, 5, 0), ("A", "positioned", P, 2, 5)],
            1.5,
            *[poll("A", 5, 9, epoch=2), done("A", 5, 9, epoch=2), *commits("A", 10, number=2)[::2]],
        ],
        CLIENTS,
    ),
    "a listener that is there no more once its member subscribes anew": (
        [
            *[*READS, ("A", "on assigned", (P,)), ("A", "subscribes", ("t",)), ("A", "revoked", ((P, 1),))],
            ("A", "closed", True),
        ],
        CLIENTS,
    ),
    "a listener that comes when its member subscribes anew": (
        [
            *[*READS, ("A", "subscribes", ("t",)), ("A", "on revoked", (P,)), ("A", "revoked", ((P, 1),))],
            ("A", "closed", True),
        ],
        CLIENTS,
    ),
    "a listener that comes when its member subscribes anew, and hears of a loss of before": (
        [
            *[*READS, ("A", "lost", ((P, 1),)), ("A", "subscribes", ("t",)), ("A", "on lost", (P,))],
            *[("A", "poll", (), (), (P,)), ("A", "closed", True)],
        ],
        {**CLIENTS, "kind": "slow"},
    ),
    "a commit of what is let go of by hand has its response later": (
        [
            *[*OWNS[:-3], ("A", "assigned", None, ((P, 1),)), *OWNS[-2:], *READS[-2:]],
            *[("A", "sends commit", 1, ((P, 3, 5),)), ("A", "revoked", ((P, 1),))],
            *[("A", "commit response", 1, ((P, 3, 0),)), *commits("A", 5, number=2)],
        ],
        CLIENTS,
    ),
    "a later commit in the place of one that may go back": (
        [*REWINDS[:-3], *commits("A", 3, number=2), *commits("A", 5, number=3), OVER],
        {},
    ),
    "numbers of the user's own, without a leader epoch": (
        [*READS, ("A", "own offsets", ((P, 5),)), *commits("A", 5, leader_epoch=-1), OVER],
        {},
    ),
    "records that come before the fortieth turn": ([*READS, *beats(39), poll("A", 5, 9)], CLIENTS),
    "turns of one that has nothing to read": ([*READS, poll("A", 5, 9), *beats(60)], CLIENTS),
    "turns of one that is paused": (
        [
            *READS,
            *[
                each
                for number in range(60)
                for each in (
                    ("A", "alive", 1e6 + number),
                    ("A", "still paused", (P,)),
                    ("A", "poll", (), (), ()),
                )
            ],
        ],
        CLIENTS,
    ),
    "a loss that the network thread has written down, and not delivered yet": (
        [
            *READS,
            *ASKED,
            ("A", "lost", ((P, 1),)),
            *[("A", "poll", (), (P,), ())] * 3,
            ALIVE,
            ("A", "poll", (), (), (P,)),
        ],
        {**CLIENTS, "kind": "slow"},
    ),
    "polls without a heartbeat are no turns": ([*READS, ALIVE, *[("A", "poll", (), (), ())] * 60], CLIENTS),
    "many polls of what was fetched before are no turns": (
        [
            *READS,
            ALIVE,
            (BROKER, "produced", Q, 60),
            *rounds(0),
            *[("A", "poll", ((Q, 2, 0, at, at, 5),), (), ()) for at in range(60)],
        ],
        CLIENTS,
    ),
    "an application that takes the time that it is given": (
        [
            *READS,
            ASKED[0],
            ("A", "deadline", ((P, 1),), 9.0),
            ASKED[1],
            *[
                each
                for number in range(60)
                for each in (("A", "delay", (P,), True), ("A", "alive", 1e6 + number), ("A", "poll", (), (P,), ()))
            ],
            ("A", "revoked", ((P, 1),)),
        ],
        CLIENTS,
    ),
    "a deadline that moved": (
        [
            *READS,
            ASKED[0],
            ("A", "deadline", ((P, 1),), 0.2),
            ASKED[1],
            ("A", "delay", (P,), True),
            ("A", "deadline", ((P, 1),), None),
            *[
                each
                for number in range(60)
                for each in (("A", "alive", 1e6 + number), ("A", "poll", (), (P,), ()), ("A", "delay", (P,), True))
            ],
        ],
        CLIENTS,
    ),
    "a hand-over that waits for the response to its commit": (
        [*READS, *ASKED, commits("A", 5)[0], *beats(60), *commits("A", 5)[1:], ("A", "revoked", ((P, 1),))],
        CLIENTS,
    ),
    "a delayed revoke that ends on its own costs a round": (
        [
            ("A", "subscribes", ("t",)),
            *READS,
            *ASKED,
            ("A", "delay", (P,), True),
            *[(BROKER, "group", "PreparingRebalance", each, ("A",)) for each in range(3)],
            (BROKER, "group", "Stable", 3, ("A",)),
            *commits("A", 5),
            ("A", "revoked", ((P, 1),)),
            OVER,
        ],
        {},
    ),
    "a peak near the end": ([*STARTED, *[load()] * 100, *[load(0, 150, 30, 15)] * 9, *[load()] * 11, OVER], {}),
    "a short history whose user works at its end": ([*STARTED, *[load()] * 12, *[load(0, 79)] * 3, OVER], {}),
    "a user who is away for the last quarter, and comes back": (
        [*STARTED, *[load()] * 90, *[load(0, 60)] * 29, load(), OVER],
        {},
    ),
    "little under way, for long": ([*STARTED, *[load(900), load(0, 30, 9, 9)] * 20, OVER], {}),
    "a heartbeat in time": ([*READS, ("A", "alive", 1.0), ("A", "alive", 4.0), 1.5, poll("A", 5, 9)], {}),
    "a join under way": ([*READS, ("A", "alive", 1.0), ("A", "alive", None), 1.5, poll("A", 5, 9)], {}),
    "a seek in what is lost, before a poll told of it": (
        [*HANDED_OVER, ("B", "lost", ((P, 7),)), ("B", "seek", P), ("B", "positioned", P, 7, 3)],
        {"kind": "faults"},
    ),
    "a seek in what is lost, and assigned again": (
        [
            *HANDED_OVER,
            ("B", "lost", ((P, 7),)),
            ("B", "assigned", 3, ((P, 8),)),
            ("B", "seek", P),
            ("B", "positioned", P, 7, 3),
        ],
        {"kind": "faults"},
    ),
    "what has no record was passed over before a seek": (
        [
            *STARTED,
            (BROKER, "hole", P, 5, 6),
            *READS[2:],
            *commits("A", 5),
            ("A", "revoked", ((P, 1),)),
            ("A", "assigned", 2, ((P, 2),)),
            ("A", "looked up", P, 5, 0),
            ("A", "positioned", P, 2, 5),
            ("A", "sends commit", 2, ((P, 7, -1),)),
            ("A", "seek", P),
            ("A", "positioned", P, 2, 6),
            ("A", "commit", 1, ((P, 7, 0),)),
            ("A", "commit response", 2, ((P, 7, 0),)),
            *commits("A", 6, number=3),
        ],
        {"kind": "faults"},
    ),
    "results of commits": ([*READS, *commits("A", 4), ("A", "commit told", ((P, 4),), ((P, 4),))], {}),
    "who may not ask for its group": (refused_at_once(), {"kind": "faults"}),
    "who was fenced by its twin": ([*refused(82)], {"kind": "faults"}),
    "who missed a barrier cannot know": (
        [*READS, ("A", "evicted", "it did not join in time"), ("B", "assigned", 2, ((P, 7),)), poll("A", 5, 9)],
        {"kind": "faults"},
    ),
    "who missed a barrier begins late": (
        [
            *OWNS,
            ("A", "evicted", "no heartbeat within the session time-out"),
            *TO_B[1:],
            ("B", "looked up", P, None, 0),
            ("B", "positioned", P, 7, 0),
            poll("B", 0, 4, epoch=7),
            done("B", 0, 4, epoch=7),
            *commits("B", 5),
            ("A", "blind"),
            poll("A", 0, 4),
            ("A", "lost", ((P, 1),)),
        ],
        {"kind": "faults"},
    ),
    "late word of an older generation": (
        [*STARTED, ("B", "assigned", 3, ((P, 1),)), ("A", "assigned", 2, ((P, 1),)), ("A", "lost", ((P, 1),))],
        {"kind": "faults"},
    ),
    "where each of 1,000 partitions begins is queued": ([*A_THOUSAND, load(queued=4_304)], {}),
    "resources that rise while warming up": ([*STARTED, sample(50), sample(90), *[sample(120)] * 10, OVER], {}),
    "a peer that tells of records and partitions only": (
        [
            ("A", "started", False, "delivered", False),
            (BROKER, "produced", P, 4),
            ("A", "assigned", None, ((P, 1),)),
            ("A", "poll", ((P, 1, 0, 0, 3, -1),), (), ()),
            (BROKER, "stored", ((P, 4),)),
            END,
        ],
        {"view": "clients"},
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_right_is_not_reported(name: str) -> None:
    said, parameters = KEPT[name]
    assert [str(each) for each in check(tell(*said, **parameters))] == []
