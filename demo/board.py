"""Where a run stands now, folded from its events: for the live view, and for the scenario to wait on.

Laws
1. Events are applied in the order in which a tail gives them. A file may be read a moment late, so a word of
   one that is the owner no more changes nothing, as in `history`.
2. A rate is that of the last seconds before the time that the caller names; the board asks no clock.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from demo.events import (
    Change,
    Event,
    JobFailed,
    JobFinished,
    JobStarted,
    Life,
    Mark,
    Ownership,
    Phase,
    Produced,
    Progress,
)
from demo.history import STATE_AFTER, State

__all__ = ["Board", "Lane"]

RATE_SECONDS: Final = 4.0


@dataclass(slots=True)
class Lane:
    """One partition now. position: the offset that work has reached; end: that of the topic."""

    partition: int
    owner: str | None = None
    state: State | None = None
    since: float = 0.0
    position: int = 0
    end: int = 0
    recent: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def lag(self) -> int:
        """Records that are produced and not yet written and committed."""
        return max(0, self.end - self.position)

    def rate(self, at: float) -> float:
        """Records a second over the last seconds."""
        while self.recent and self.recent[0][0] < at - RATE_SECONDS:
            self.recent.popleft()
        return sum(rows for _, rows in self.recent) / RATE_SECONDS


class Board:
    """All partitions, applications and jobs of a run, as of the last event applied. For one thread."""

    def __init__(self, partitions: int) -> None:
        self.lanes: Final = {number: Lane(number) for number in range(partitions)}
        self.phases: Final[dict[str, Phase]] = {}
        self.jobs: Final[dict[tuple[str, str], JobStarted]] = {}
        self.rows = 0
        self.rows_by: Final[Counter[str]] = Counter()

    def apply(self, events: Iterable[Event]) -> list[str]:
        """Take events in, and give back the sentences that tell of changes worth a line."""
        return [sentence for event in events if (sentence := self._apply(event))]

    def running_at(self, partition: int, offset: int) -> list[JobStarted]:
        """The jobs under way that work on a record."""
        return [
            job
            for job in self.jobs.values()
            if any(each.partition == partition and each.start <= offset < each.end for each in job.ranges)
        ]

    def owned_by(self, app: str) -> list[int]:
        return [lane.partition for lane in self.lanes.values() if lane.owner == app]

    @property
    def lag(self) -> int:
        return sum(lane.lag for lane in self.lanes.values())

    def _apply(self, event: Event) -> str:
        match event:
            case Ownership():
                return self._change(event)
            case Progress():
                self._progress(event)
            case Produced():
                self._lane(event.partition).end = event.end
            case JobStarted():
                self.jobs[event.app, event.job] = event
            case JobFinished():
                self.jobs.pop((event.app, event.job), None)
            case JobFailed():
                self.jobs.pop((event.app, event.job), None)
                return f"{event.app}: {event.job} failed: {event.reason}"
            case Life():
                self.phases[event.app] = event.phase
                return f"{event.app} is {event.phase}" if event.phase is not Phase.LEFT else f"{event.app} has left"
            case Mark():
                return event.text
        return ""

    def _lane(self, partition: int) -> Lane:
        return self.lanes.setdefault(partition, Lane(partition))

    def _change(self, event: Ownership) -> str:
        changed = [p for p in event.partitions if self._change_lane(event, self._lane(p))]
        where = ", ".join(map(str, changed))
        return f"{event.app}: {event.change.replace('_', ' ')}: {where}" if changed else ""

    def _change_lane(self, event: Ownership, lane: Lane) -> bool:
        if event.change is not Change.ASSIGNED and lane.owner != event.app:
            return False
        before = lane.owner, lane.state
        lane.state = STATE_AFTER[event.change]
        lane.owner = event.app if lane.state is not None else None
        if before != (lane.owner, lane.state):
            lane.since = event.t
        return before != (lane.owner, lane.state)

    def _progress(self, event: Progress) -> None:
        lane = self._lane(event.partition)
        lane.position = max(lane.position, event.end)
        lane.recent.append((event.t, event.rows))
        self.rows += event.rows
        self.rows_by[event.app] += event.rows
