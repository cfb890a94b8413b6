"""What a run is to be, and what every member process of it shares: `python -m demo.<kind>_member APP PLAN`.

Laws
1. A member is told everything on its command line; it reads nothing else.
2. It says that it is ready, waits for its file to join, works, and on SIGTERM or SIGINT finishes what is in progress,
   commits, leaves the group and ends with status 0.
3. All kinds of members do the same work: `Plan.work`.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from demo.flights import parse
from demo.history import SUFFIX, Note
from instride.observers import Observer
from instride.records import OffsetRange, TopicPartition
from instride.telemetry import OwnershipChange, OwnershipChanged, TelemetryEvent
from instride.testing import Recorder

LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """kind: of the run. member: its members are processes of the module demo.<member>_member. folder: of all its files.

    killed: whoever works on the slow flight is killed, and the flights are sent as fast as they can be. rows, seconds:
    how many flights are sent, else in how much time. slow_row: the flight that takes slow_seconds to work on;
    the others take none. slow_offset: its own, in slow_partition, which the group moves to the second of two members.
    stay_seconds: how long B stays once it owns something.
    """

    kind: str
    member: str
    killed: bool
    bootstrap_servers: str
    folder: Path
    rows: int
    seconds: float
    slow_partition: int
    slow_row: int
    slow_offset: int
    slow_seconds: float
    stay_seconds: float

    @property
    def topic(self) -> str:
        return f"flights-{self.kind}"

    @property
    def histories(self) -> Path:
        return self.folder / "histories"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def recorder(self, who: str) -> Recorder:
        """Of a process's own part of the run's history, which is of this kind (docs/histories.md)."""
        self.histories.mkdir(parents=True, exist_ok=True)
        path, source = self.histories / f"{who}{SUFFIX}", f"the demo on {self.topic}"
        return Recorder(path, source=source, kind="faults" if self.killed else "calm", reset="earliest")

    def join_file(self, app: str) -> Path:
        """Its appearing lets the member join, so that a slow start-up costs nobody anything."""
        return self.folder / f"join-{app}"

    def argument(self) -> str:
        """All of it, for a command line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_argument(cls, text: str) -> Self:
        values = json.loads(text)
        return cls(**{**values, "folder": Path(values["folder"])})

    def work(self, values: Iterable[bytes | memoryview]) -> pa.Table:
        """What every member does: parse these record values. It takes long if the slow flight is among them."""
        table = parse(values)
        if pc.index(table["row"], self.slow_row).as_py() >= 0:
            time.sleep(self.slow_seconds)
        return table


class Member(NamedTuple):
    """run: until `stop` is called, which a signal's handler does, also before."""

    run: Callable[[], None]
    stop: Callable[[], None]


class WorkNotes(Observer):
    """Tells the history what a consumer of ours cannot know: which work was begun. recorded: what is seen of it."""

    def __init__(self, history: Recorder, consumer: Any, app: str) -> None:
        self.recorded = history.watch(consumer, app)
        self._begun: dict[TopicPartition, int] = {}
        consumer.observe(self)

    def began(self, work: OffsetRange) -> None:
        self._begun[work.topic_partition] = work.end
        self.recorded.note(Note.WORK_BEGAN, work.partition, work.start, work.end)

    def on_telemetry(self, event: TelemetryEvent) -> None:
        """Of a partition that is released, the records that were returned and on which no work was begun."""
        if isinstance(event, OwnershipChanged) and event.change is OwnershipChange.COMPLETING:
            for each in event.partitions:
                self.recorded.not_begun(each, self._begun.get(each, 0))


def main(member: Callable[[Plan, str, Recorder], AbstractContextManager[Member]]) -> None:
    """Run one member until SIGTERM."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    app, plan = sys.argv[1], Plan.from_argument(sys.argv[2])
    stopped = threading.Event()
    with plan.recorder(app) as history, member(plan, app, history) as made:

        def stop(*_: object) -> None:
            stopped.set()
            made.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        history.add(app, Note.READY)
        while not plan.join_file(app).exists() and not stopped.wait(LOOK_SECONDS):
            pass
        if not stopped.is_set():
            made.run()
