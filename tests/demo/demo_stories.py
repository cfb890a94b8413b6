"""Events of a demo's history, in short; a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from demo.history import Note
from demo.member import Plan
from instride import TopicPartition
from instride.testing.check import Event

__all__ = ["MOVED", "began", "change", "delay", "done", "mark", "note", "plan_in"]


def change(t: float, app: str, what: str, *partitions: int) -> Event:
    """assigned, requested, reassigned, revoked or lost."""
    with_epochs = tuple((TopicPartition("flights", each), 1) for each in partitions)
    return Event(t, app, what, (None, with_epochs) if what == "assigned" else (with_epochs,))


def delay(t: float, app: str, *partitions: int, accepted: bool = True) -> Event:
    return Event(t, app, "delay", (tuple(TopicPartition("flights", each) for each in partitions), accepted))


def done(t: float, app: str, partition: int, first: int = 0, end: int = 10) -> Event:
    return Event(t, app, "range done", (TopicPartition("flights", partition), first, end - 1, 1))


def note(t: float, who: str, what: Note, *detail: object) -> Event:
    return Event(t, who, what, detail)


def began(t: float, app: str, partition: int, first: int = 0, end: int = 10) -> Event:
    return note(t, app, Note.WORK_BEGAN, partition, first, end)


def mark(t: float, text: str) -> Event:
    return note(t, "scenario", Note.MARK, text)


def plan_in(folder: Path) -> Plan:
    return Plan(
        kind="confluent",
        member="confluent",
        killed=False,
        bootstrap_servers="127.0.0.1:1",
        folder=folder,
        rows=15,
        seconds=1.0,
        slow_partition=3,
        slow_row=1,
        slow_offset=1,
        slow_seconds=1.0,
        stay_seconds=1.0,
    )


MOVED: Final = (
    change(0, "A", "assigned", 0, 1),
    began(1, "A", 1, 0, 50),
    began(1, "A", 0, 0, 70),
    change(2, "A", "requested", 1),
    delay(3, "A", 1),
    done(4, "A", 0, 70, 80),
    delay(5, "A", 1),
    done(8, "A", 1, 0, 50),
    change(9, "A", "revoked", 1),
    done(9, "A", 0, 0, 70),
    change(10, "B", "assigned", 1),
    done(12, "B", 1, 50, 60),
    done(15, "B", 1, 60, 70),
)
"""Partition 1 goes from A to B, delayed by the work on it."""
