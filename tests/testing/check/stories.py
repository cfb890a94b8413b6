"""Small histories, told by hand: `tell(("A", "assigned", 1, ((P, 1),)), 0.5, ...)`. A number lets time pass."""

from __future__ import annotations

from typing import Any, Final

from instride import TopicPartition
from instride.testing.check import BROKER, Event, Parameters

__all__ = ["OWNS", "P", "Q", "READS", "STARTED", "Say", "commits", "done", "poll", "tell"]

P: Final = TopicPartition("t", 0)
Q: Final = TopicPartition("t", 1)
Say = tuple[Any, ...]

STARTED: Final[list[Say]] = [("A", "started", True, "told", True), ("B", "started", True, "told", True)]
OWNS: Final[list[Say]] = [
    *STARTED,
    (BROKER, "produced", P, 10),
    ("A", "assigned", 1, ((P, 1),)),
    ("A", "looked up", P, None, 0),
    ("A", "positioned", P, 1, 0),
]
"""A owns P, which has ten records, and begins at 0."""


def poll(who: str, first: int, last: int, *, epoch: int = 1, to_be_revoked: Any = (), lost: Any = ()) -> Say:
    return (who, "poll", ((P, epoch, 0, first, last, 5),), to_be_revoked, lost)


def done(who: str, first: int, last: int, *, epoch: int = 1) -> Say:
    return (who, "range done", P, first, last, epoch)


def commits(who: str, offset: int, *, number: int = 1, leader_epoch: int = 5, code: int = 0) -> list[Say]:
    """Sent, taken and responded to."""
    return [
        (who, "sends commit", number, ((P, offset, leader_epoch),)),
        (who, "commit", 1, ((P, offset, code),)),
        (who, "commit response", number, ((P, offset, code),)),
    ]


READS: Final[list[Say]] = [*OWNS, poll("A", 0, 4), done("A", 0, 4)]
"""Then A has read and finished the first five."""


def tell(*said: Say | float, **parameters: Any) -> list[Event]:
    """The history, of a calm kind and seen by the broker unless parameters say otherwise. Events are 10 ms apart."""
    chosen: dict[str, Any] = {
        "kind": "calm",
        "view": "broker",
        "reset": "earliest",
        "gap": 2.0,
        "rebalance": 3.0,
        "delay": 6.0,
    } | parameters
    now, events = (
        0.0,
        [Event(0.0, BROKER, "history", tuple(Parameters(source="a story", session=2.5, beat=1.0, **chosen)))],
    )
    for each in said:
        if isinstance(each, float):
            now += each
        else:
            now += 0.01
            events.append(Event(now, each[0], each[1], tuple(each[2:])))
    return events
