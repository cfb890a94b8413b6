"""What happened in a simulation, as a value: events as docs/histories.md has them.

Laws
1. An event never changes. Equal histories have equal lines, byte for byte.
2. An event is written where the thing is decided: a delivery when a poll returns, a commit when the broker takes it.
3. What is of no kind in `check.vocabulary` is a note: faults, and a machine's own words ("log": level, text).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from instride.records import TopicPartition
from instride.testing._check.events import BROKER, Event
from instride.testing._simulation.scheduler import Scheduler

__all__ = ["BROKER", "Event", "History"]


class History:
    """Events in the order of time. recreated: of which partitions the topic ever was."""

    __slots__ = ("_scheduler", "events", "keep_logs", "recreated")

    def __init__(self, scheduler: Scheduler, *, keep_logs: bool = False) -> None:
        self._scheduler = scheduler
        self.events: list[Event] = []
        self.recreated: set[TopicPartition] = set()
        self.keep_logs = keep_logs

    def add(self, who: str, what: str, *detail: Any) -> None:
        """Write down what happens at this moment."""
        self.events.append(Event(self._scheduler.now, who, what, detail))

    def mark(self) -> tuple[int, float]:
        """This moment."""
        return len(self.events), self._scheduler.now

    def add_at(self, moment: tuple[int, float], who: str, what: str, *detail: Any) -> None:
        """Write down what was decided then, before what has happened since."""
        place, time = moment
        self.events.insert(place, Event(time, who, what, detail))

    def has_since(self, moment: tuple[int, float], who: str, what: str) -> bool:
        """Whether this member has told such an event since."""
        return any((each.who, each.what) == (who, what) for each in self.events[moment[0] :])

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def lines(self) -> str:
        """The whole history, as JSON lines."""
        return "".join(event.line() + "\n" for event in self.events)
