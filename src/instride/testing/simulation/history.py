"""What happened, as a value.

Laws
1. An event never changes. Its detail is made of texts, numbers, partitions and tuples of these, and nothing else.
2. Equal histories have equal lines; a line is JSON.
3. An event is written where the thing is decided: a delivery when a poll returns, a commit when the broker takes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from instride.testing.simulation.scheduler import Scheduler

__all__ = ["BROKER", "Event", "History"]

BROKER = "broker"
"""Who speaks where no member does."""


class Event(NamedTuple):
    """time: virtual seconds. who: a member's name, or BROKER. what: see `History`."""

    time: float
    who: str
    what: str
    detail: tuple[Any, ...]

    def line(self) -> str:
        return json.dumps([round(self.time, 6), self.who, self.what, self.detail], separators=(",", ":"))


class History:
    """Events in the order of time. Kinds of event and their detail:

    produced (partition, end)                         the log ends there now
    started, crashed, stopped (), closed (clean)      of a member; "died" (error): its loop or a machine raised
    suspended (seconds), cut/stalled (connection)     faults, and "moved" (node, loading seconds), "unreachable" (...)
    assigned (generation, ((partition, epoch), ...))  its network side delivered it; so do the next five
    requested, given back, lost, revoked, settled (((partition, epoch), ...),)
    poll (deliveries, to be revoked, lost)            a poll returned; a delivery: (partition, epoch, seek, first, last)
    delay (partitions, accepted), commit asked (...)  what the loop did
    done, failed, cancelled (partition, offset, epoch) a handler ended
    commit (generation, ((partition, offset, code), ...)) the coordinator answered it
    group (state, generation, members), joined, synced, evicted, left   at the coordinator
    log (level, text)                                 a machine's own words
    """

    __slots__ = ("_scheduler", "events", "keep_logs")

    def __init__(self, scheduler: Scheduler, *, keep_logs: bool = False) -> None:
        self._scheduler = scheduler
        self.events: list[Event] = []
        self.keep_logs = keep_logs

    def add(self, who: str, what: str, *detail: Any) -> None:
        self.events.append(Event(self._scheduler.now, who, what, detail))

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def lines(self) -> str:
        """The whole history, as JSON lines."""
        return "".join(event.line() + "\n" for event in self.events)
