"""What happened in a run: one event a line, one append-only file for each process.

Laws
1. `t` is in seconds of the machine's monotonic clock, which its processes share: so the files of one run
   merge by it.
2. A process writes only its own file and each line is flushed at once: what a killed process did up to then
   is there.
3. A reader takes whole lines only. So a file can be read while it is being written.
4. `rows` counts records; `start` and `end` are offsets, the end exclusive.

    event              fields                                says
    assigned           partitions                            the application owns them from now on
    revoke_requested   partitions                            the group asks for them; nothing new of them is begun
    delayed            partitions                            asked for, and kept because work on them is under way
    completing         partitions                            the last commits are awaited
    revoked            partitions                            handed over
    lost               partitions                            gone without a hand-over
    reassigned         partitions                            asked for, then left to the application after all
    job_started        job, ranges                           work on these offsets began
    job_finished       job                                   it succeeded
    job_failed         job, reason                           it did not
    progress           partition, start, end, rows           these are written and committed
    produced           partition, end                        the partition reaches up to here
    life               phase                                 how far the application's process is
    mark               text                                  something for a reader of the timeline to know
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

__all__ = [
    "Change",
    "Event",
    "EventLog",
    "EventTail",
    "JobFailed",
    "JobFinished",
    "JobStarted",
    "Life",
    "Mark",
    "Ownership",
    "Phase",
    "Produced",
    "Progress",
    "Range",
    "decode",
    "encode",
    "now",
    "read_events",
]

SUFFIX: Final = ".events.jsonl"


class Change(StrEnum):
    """What became of an application's ownership of a partition."""

    ASSIGNED = "assigned"
    REVOKE_REQUESTED = "revoke_requested"
    DELAYED = "delayed"
    COMPLETING = "completing"
    REVOKED = "revoked"
    LOST = "lost"
    REASSIGNED = "reassigned"


class Phase(StrEnum):
    """How far an application's process is. READY: it could join, and waits until it may."""

    READY = "ready"
    JOINING = "joining"
    LEAVING = "leaving"
    LEFT = "left"


class Range(NamedTuple):
    """Offsets [start, end) of a partition."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    t: float
    app: str
    change: Change
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    t: float
    app: str
    partition: int
    start: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted:
    t: float
    app: str
    job: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished:
    t: float
    app: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed:
    t: float
    app: str
    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    t: float
    app: str
    partition: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    t: float
    app: str
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    t: float
    app: str
    text: str


Event = Ownership | Progress | JobStarted | JobFinished | JobFailed | Produced | Life | Mark

_NAMES: Final[dict[str, type[Any]]] = {
    "progress": Progress,
    "job_started": JobStarted,
    "job_finished": JobFinished,
    "job_failed": JobFailed,
    "produced": Produced,
    "life": Life,
    "mark": Mark,
}
_NAME_OF: Final = {kind: name for name, kind in _NAMES.items()}


def now() -> float:
    """The clock of every event: monotonic, in seconds, the same for all processes of this machine."""
    return time.monotonic()


def encode(event: Event) -> str:
    """The event as one line of JSON, without the line's end."""
    fields = asdict(event)
    name = fields.pop("change", None) or _NAME_OF[type(event)]
    return json.dumps({"event": name, **fields}, separators=(",", ":"))


def decode(line: str) -> Event:
    """The event of a line. ValueError if the line is none."""
    try:
        fields = json.loads(line)
        name = fields.pop("event")
        if name in _NAMES:
            return _build(_NAMES[name], fields)
        return Ownership(change=Change(name), **{**fields, "partitions": tuple(fields["partitions"])})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not an event of the demo: {line!r}") from error


def _build(kind: type[Any], fields: dict[str, Any]) -> Event:
    if kind is JobStarted:
        fields["ranges"] = tuple(Range(*each) for each in fields["ranges"])
    if kind is Life:
        fields["phase"] = Phase(fields["phase"])
    event: Event = kind(**fields)
    return event


class EventLog:
    """One process's own file of events. Every thread of the process may write.

    directory: where the files of a run are; it is made if it is not there. app: the file's, and each event's, name.
    """

    def __init__(self, directory: Path, app: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.app = app
        self._lock = threading.Lock()
        self._file = (directory / f"{app}{SUFFIX}").open("a", encoding="utf-8")

    def write(self, event: Event) -> None:
        with self._lock:
            self._file.write(encode(event) + "\n")
            self._file.flush()

    def change(self, change: Change, partitions: Iterable[int]) -> None:
        """An event of ownership, now. Without partitions nothing is written."""
        chosen = tuple(sorted(partitions))
        if chosen:
            self.write(Ownership(t=now(), app=self.app, change=change, partitions=chosen))

    def progress(self, where: Range, rows: int) -> None:
        partition, start, end = where
        self.write(Progress(t=now(), app=self.app, partition=partition, start=start, end=end, rows=rows))

    def job_started(self, job: str, ranges: Iterable[Range]) -> None:
        self.write(JobStarted(t=now(), app=self.app, job=job, ranges=tuple(ranges)))

    def job_finished(self, job: str) -> None:
        self.write(JobFinished(t=now(), app=self.app, job=job))

    def job_failed(self, job: str, reason: str) -> None:
        self.write(JobFailed(t=now(), app=self.app, job=job, reason=reason))

    def produced(self, partition: int, end: int) -> None:
        self.write(Produced(t=now(), app=self.app, partition=partition, end=end))

    def life(self, phase: Phase) -> None:
        self.write(Life(t=now(), app=self.app, phase=phase))

    def mark(self, text: str) -> None:
        self.write(Mark(t=now(), app=self.app, text=text))

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class EventTail:
    """Follows every event file of a directory, also those that appear later."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def new_events(self) -> list[Event]:
        """What was written since the last call, in the order of time. Never waits."""
        events: list[Event] = []
        for path in sorted(self._directory.glob(f"*{SUFFIX}")):
            events += self._new_lines(path)
        return sorted(events, key=lambda event: event.t)

    def _new_lines(self, path: Path) -> Iterator[Event]:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read[path] = self._read.get(path, 0) + len(whole) + len(newline)
        return (decode(line.decode()) for line in whole.splitlines())


def read_events(directory: Path) -> list[Event]:
    """Every event of a run, in the order of time."""
    return EventTail(directory).new_events()
