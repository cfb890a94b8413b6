"""What happened in a run, folded from its history (docs/histories.md), while it is written and when it is over.

Laws
1. The members' recorders tell who owns what and what is finished. What only the demo knows is added as notes, whose
   names stand here. There is no other log.
2. A partition is in one state of one application at a time. An assignment ends what another one still had: a killed
   process never says that it released it. What a former owner says late changes nothing.
3. A hand-over goes from the request (or the release, or the loss) to the next assignment, of whichever application.
4. A partition is *moving* from then until work on it is finished after that. Only the others count as not moving.
5. Nothing is missed of a partition without records: a gap begins where work on it ended last, or, if all that was sent
   was finished then, where more was sent.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from instride.testing.check import Event, decode

SUFFIX: Final = ".history.jsonl"


class Note(StrEnum):
    """What the demo adds to its histories."""

    READY = "ready"  # a member could join, and waits until it may
    WORK_BEGAN = "work began"  # partition, first offset, end; it ends with "range done", or with:
    WORK_FAILED = "work failed"  # partition, first offset, reason
    REVOKE_WAITS = "revoke waits"  # partitions: the revoke callback of another client was called for these
    SENT = "sent"  # partition, end: by the source
    MARK = "mark"  # text: something for a reader of the picture to know


class State(StrEnum):
    """What the owner of a partition is about to do with it."""

    OWNED = "owned"
    TO_BE_REVOKED = "to be revoked"
    DELAYED = "delayed"


_STATES: Final[dict[str, State | None]] = {
    "assigned": State.OWNED,
    "reassigned": State.OWNED,
    "requested": State.TO_BE_REVOKED,
    "delay": State.DELAYED,
    Note.REVOKE_WAITS: State.DELAYED,
    "revoked": None,
    "lost": None,
}
"""The state after an event."""


@dataclass(slots=True)
class Span:
    """A partition is in one state of one application from start to end (seconds; infinite while it is)."""

    partition: int
    app: str
    state: State
    start: float
    end: float = math.inf


@dataclass(slots=True)
class Work:
    """On the offsets [first, last) of a partition. end: infinite while it runs, or where its process died."""

    app: str
    partition: int
    first: int
    last: int
    start: float
    end: float = math.inf

    @property
    def rows(self) -> int:
        return self.last - self.first

    def __str__(self) -> str:
        return f"{self.app}'s work on partition {self.partition} offsets {self.first:,}-{self.last - 1:,}"


@dataclass(slots=True)
class Handover:
    """From one application to another, or back to the first.

    requested, released, resumed: when the revocation was requested, when it ended, when the partition was owned again.
    settled: when work on it was finished after that; infinite if never.
    """

    partition: int
    before: str
    after: str
    requested: float
    released: float
    resumed: float
    settled: float

    @property
    def delay(self) -> float:
        return self.released - self.requested


class Gap(NamedTuple):
    """No work on the partition was finished for `length` seconds, although it had records (law 5)."""

    length: float
    partition: int
    start: float


class History:
    """A run so far. Times are those of the events. For one thread.

    owned: by partition, its present span. running: work in progress, by application, partition and first offset. done:
    finished work in the order of its ends. ends, positions: by partition, what was sent and what is finished.
    gaps: before each end of work but a partition's first, whether it was moving or not.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.start = self.end = 0.0
        self.ready: set[str] = set()
        self.spans: list[Span] = []
        self.owned: dict[int, Span] = {}
        self.running: dict[tuple[str, int, int], Work] = {}
        self.done: list[Work] = []
        self.marks: list[tuple[float, str]] = []
        self.ends: Counter[int] = Counter()
        self.positions: Counter[int] = Counter()
        self.gaps: list[Gap] = []
        self._last_done: dict[int, float] = {}
        self._lags_since: dict[int, float] = {}
        self.apply(events)

    @property
    def partitions(self) -> list[int]:
        return sorted({span.partition for span in self.spans} | {work.partition for work in self.done})

    def owned_by(self, app: str) -> list[int]:
        return sorted(partition for partition, span in self.owned.items() if span.app == app)

    def lag(self, partition: int) -> int:
        """Records that are sent and not finished."""
        return max(0, self.ends[partition] - self.positions[partition])

    # -- taking events in

    def apply(self, events: Iterable[Event]) -> list[str]:
        """Take events in, and return the sentences that tell of changes worth a line."""
        return [sentence for event in events if (sentence := self._apply(event))]

    def _apply(self, event: Event) -> str:
        match event.what, event.detail:
            case "delay", (_, False):
                pass
            case what, _ if what in _STATES:
                return self._change(event, _STATES[what])
            case "range done", ((_, partition), first, last, _):
                self._finish(event, partition, first, last + 1)
            case Note.WORK_BEGAN, (partition, first, end):
                self.running[event.who, partition, first] = Work(event.who, partition, first, end, event.time)
            case Note.WORK_FAILED, (partition, first, reason):
                self.running.pop((event.who, partition, first), None)
                return f"{event.who}: work on partition {partition} failed: {reason}"
            case Note.SENT, (partition, end):
                if self.ends[partition] <= self.positions[partition] < end:
                    self._lags_since[partition] = event.time
                self.ends[partition] = end
            case Note.MARK, (text,):
                self._happened(event)
                self.marks.append((event.time, text))
                return str(text)
            case Note.READY, _:
                self.ready.add(event.who)
                return f"{event.who} is ready"
            case "crashed", _:
                return self._crash(event)
            case "closed", _ if event.who in self.ready:
                self.ready.discard(event.who)
                return f"{event.who} has left"
        return ""

    def _happened(self, event: Event) -> None:
        self.start = self.start or event.time
        self.end = max(self.end, event.time)

    def _crash(self, event: Event) -> str:
        """Its process was killed: what it owned has no owner, and what it worked on is at an end."""
        self._happened(event)
        for partition in self.owned_by(event.who):
            self._change_one(event, None, partition)
        self.running = {key: work for key, work in self.running.items() if work.app != event.who}
        return f"{event.who} is gone"

    def _change(self, event: Event, state: State | None) -> str:
        self._happened(event)
        where = [partition for partition in _partitions(event) if self._change_one(event, state, partition)]
        word = event.what if state in (State.OWNED, None) else state
        return f"{event.who}: {word}: {', '.join(map(str, where))}" if where else ""

    def _change_one(self, event: Event, state: State | None, partition: int) -> bool:
        span = self.owned.get(partition)
        if event.what != "assigned" and (span is None or span.app != event.who):
            return False  # law 2
        if span is not None and (span.app, span.state) == (event.who, state):
            return False
        if event.what == "delay" and span is not None and span.state is not State.TO_BE_REVOKED:
            return False  # each poll delays it again
        if span is not None:
            span.end = event.time
            del self.owned[partition]
        if state is not None:
            self.owned[partition] = Span(partition, event.who, state, event.time)
            self.spans.append(self.owned[partition])
        return True

    def _finish(self, event: Event, partition: int, first: int, end: int) -> None:
        self._happened(event)
        begun = self.running.pop((event.who, partition, first), None)
        start = event.time if begun is None else begun.start
        self.done.append(Work(event.who, partition, first, end, start, event.time))
        if partition in self._last_done:
            since = max(self._last_done[partition], self._lags_since.get(partition, 0.0))
            self.gaps.append(Gap(event.time - since, partition, since))
        self._last_done[partition] = event.time
        self.positions[partition] = max(self.positions[partition], end)

    # -- what it adds up to

    @property
    def handovers(self) -> list[Handover]:
        """Those that an application took up, in the order of their requests."""
        moves = [each for partition in self.partitions for each in self.moves(partition)]
        return sorted(moves, key=lambda each: each.requested)

    def moves(self, partition: int) -> list[Handover]:
        """The partition's hand-overs (law 3): from the end of its owner's plain possession to the next owner's."""
        moves: list[Handover] = []
        ends = [work.end for work in self.done if work.partition == partition]
        before = last = None
        for span in (each for each in self.spans if each.partition == partition):
            if span.state is State.OWNED:
                if before and last and (last is not before or before.end < span.start):
                    settled = min((end for end in ends if end >= span.start), default=math.inf)
                    moves.append(Handover(partition, before.app, span.app, before.end, last.end, span.start, settled))
                before = span
            last = span
        return moves

    def cause(self, handover: Handover) -> Work | None:
        """What it was delayed for: of the work in progress at the request, what ended last before the release.

        It may be work on another partition, if both were released together: eager clients release only all.
        """
        release = (handover.before, handover.released)
        together = {each.partition for each in self.handovers if (each.before, each.released) == release}
        works = (each for each in self.done if each.app == handover.before and each.partition in together)
        waited_for = [each for each in works if each.start <= handover.requested < each.end <= handover.released]
        return max(waited_for, key=lambda each: (each.end, each.partition == handover.partition), default=None)

    def rate(self, chosen: Callable[[Work], bool] = lambda _: True) -> np.ndarray:
        """Records in each second from the run's start, of the finished work that is chosen."""
        works = [each for each in self.done if chosen(each)]
        seconds = np.array([int(each.end - self.start) for each in works], dtype=int)
        return np.bincount(seconds, [each.rows for each in works], minlength=int(self.end - self.start) + 1)

    def longest_gap(self) -> Gap | None:
        """The longest time between two ends of work on a partition that was not moving."""
        moves = {partition: self.moves(partition) for partition in self.partitions}
        still = (gap for gap in self.gaps if not any(_overlap(gap, move) for move in moves[gap.partition]))
        return max(still, key=lambda each: each.length, default=None)


def _overlap(gap: Gap, move: Handover) -> bool:
    return move.requested < gap.start + gap.length and gap.start < move.settled


def _partitions(event: Event) -> list[int]:
    """The partitions of an event of ownership: with epochs, without, or, in a note, as plain numbers."""
    listed = event.detail[-1] if event.what == "assigned" else event.detail[0]
    if event.what in list(Note):
        return list(listed)
    return [each[1] if event.what == "delay" else each[0][1] for each in listed]


def history_files(folder: Path) -> list[Path]:
    """All parts of a run's history so far."""
    return sorted(folder.glob(f"*{SUFFIX}"))


class HistoryTail:
    """Follows every part of a history, also those that appear later. It takes whole lines only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: defaultdict[Path, int] = defaultdict(int)

    def new_events(self) -> list[Event]:
        """What was written since the last call, in the order of time. Never waits."""
        events = [decode(line) for path in history_files(self._folder) for line in self._new_lines(path)]
        return sorted(events, key=lambda event: event.time)

    def _new_lines(self, path: Path) -> list[str]:
        with path.open("rb") as file:
            file.seek(self._read[path])
            # Not line by line: that reads on after the end, and drops the beginning of a line that was half written.
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read[path] += len(whole) + len(newline)
        return [line.decode() for line in whole.splitlines()]
