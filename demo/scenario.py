"""What happens in the demo, once for each kind of consumer.

    A and B start; A joins and owns everything; flights begin to arrive, all the time, at one pace
    A meets a flight that takes long      -> B joins, while A is at work on it
    some time after B works as well       -> B leaves
    all flights have been sent and worked on -> A leaves

Laws
1. The scenario waits for what the history says, never for a time alone; each wait has an end, and then an error.
2. Both kinds get the same flights at the same pace, and the same flight takes long. The last tenth of the flights waits
   until B owns something, and B stays until it has worked on some, however slow the machine is.
3. However it ends, the source has stopped and every member has left or was asked to when `play` returns. A member that
   ends before it was asked to is an error that shows the end of its log.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo.flights import FLIGHTS, Flight, flights, partition_of, send
from demo.history import History, HistoryTail, Note, recorder
from demo.member import MemberSettings
from demo.view import View
from instride._net.clock import now
from instride.errors import KafkaError
from instride.records import TopicPartition
from instride.testing.processes import Processes
from instride.testing.recording import Recorder

__all__ = ["Contender", "DemoError", "Plan", "Stage", "play", "slow_flight"]

TICK_SECONDS: Final = 0.2
START_SECONDS: Final = 240.0  # two Sparks beside each other on a busy machine
STEP_SECONDS: Final = 60.0
LEAVE_SECONDS: Final = 4.0
LAST_PART: Final = 0.9
"""The flights after this part of all wait for B."""
LOG_LINES: Final = 25


class DemoError(KafkaError):
    """The demo cannot go on: a member ended, or did not come to where it should be in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """rows, seconds: how many flights are sent, in how much time. slow_after: the part of them before the slow one.

    slow_seconds: how long that one takes. stay_seconds: how long B stays once it owns something.
    """

    partitions: int = 12
    rows: int = FLIGHTS
    seconds: float = 60.0
    slow_after: float = 0.15
    slow_seconds: float = 15.0
    stay_seconds: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A kind of consumer. name: for people. slug: for files and groups. module: run as a member's process.

    slow_partition: one that its group moves to the second of two members. written: finds what the members wrote.
    ours: the demo's own success hangs on it; the others are there to be compared with.
    """

    name: str
    slug: str
    module: str
    slow_partition: int
    written: Callable[[Path], list[Path]]
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where one run takes place: its broker, its topic, and the folder of all its files."""

    bootstrap_servers: str
    topic: str
    folder: Path

    @property
    def histories(self) -> Path:
        return self.folder / "histories"

    @property
    def output(self) -> Path:
        return self.folder / "output"


def slow_flight(plan: Plan, partition: int) -> tuple[int, int]:
    """Row and offset of the first flight of the partition after `slow_after` of all. DemoError if there is none."""
    start, offset = round(plan.rows * plan.slow_after), 0
    for flight in flights(plan.rows):
        if partition_of(flight.key, plan.partitions) == partition:
            if flight.row >= start:
                return flight.row, offset
            offset += 1
    raise DemoError(f"no flight from row {start} to {plan.rows} is in partition {partition}")


def play(plan: Plan, contender: Contender, stage: Stage, processes: Processes, view: View) -> None:
    """Play the scenario to its end, which ends its history too. DemoError if a member fails or a step does not come."""
    with recorder(stage.histories, stage.topic, "scenario") as history, _Source(plan, stage, history) as source:
        run = _Run(plan, contender, stage, processes, source, history, view)
        try:
            run.start_members()
            run.join("A")
            source.start()
            run.slow_flight()
            run.join("B")
            source.go_on()
            run.stay()
            run.leave("B")
            run.drain()
            run.leave("A")
            run.end()
        except BaseException:
            run.all_leave()
            raise


class _Source:
    """Sends the flights from a thread of its own, at the plan's pace."""

    def __init__(self, plan: Plan, stage: Stage, history: Recorder) -> None:
        self._plan = plan
        self._stage = stage
        self._history = history
        self._stop = threading.Event()
        self._last_part = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source", daemon=True)
        self.error: Exception | None = None
        self.sent: int | None = None

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def start(self) -> None:
        self._thread.start()

    def go_on(self) -> None:
        """Send the last part of the flights too."""
        self._last_part.set()

    def _flights(self) -> Iterator[Flight]:
        last_part = round(LAST_PART * self._plan.rows)
        for flight in flights(self._plan.rows):
            while flight.row >= last_part and not self._stop.is_set() and not self._last_part.wait(TICK_SECONDS):
                pass
            if self._stop.is_set():
                return
            yield flight

    def _run(self) -> None:
        try:
            self.sent = send(
                self._flights(),
                bootstrap_servers=self._stage.bootstrap_servers,
                topic=self._stage.topic,
                partitions=self._plan.partitions,
                rows_per_second=self._plan.rows / self._plan.seconds,
                sent=lambda partition, end: self._history.add("source", Note.SENT, partition, end),
            )
        except Exception as error:  # noqa: BLE001 - raised again where the scenario waits
            self.error = error


class _Run:
    """The steps of one run. Everything that waits goes through `_until`, which keeps the view up to date."""

    def __init__(
        self,
        plan: Plan,
        contender: Contender,
        stage: Stage,
        processes: Processes,
        source: _Source,
        history: Recorder,
        view: View,
    ) -> None:
        self._plan = plan
        self._contender = contender
        self._stage = stage
        self._processes = processes
        self._source = source
        self._recorder = history
        self._view = view
        self._tail = HistoryTail(stage.histories)
        self._slow_offset = -1
        self._started: list[str] = []
        self._asked: set[str] = set()
        self._history = History()

    # -- the steps

    def start_members(self) -> None:
        slow, self._slow_offset = slow_flight(self._plan, self._contender.slow_partition)
        for app in ("A", "B"):
            command = [sys.executable, "-m", self._contender.module, self._settings(app, slow).argument()]
            self._processes.start(self._name(app), command, self._log(app))
            self._started.append(app)
        self._until(lambda: self._history.ready >= {"A", "B"}, "the start of both processes", seconds=START_SECONDS)

    def join(self, app: str) -> None:
        self._recorder.add("scenario", Note.MARK, f"{app} joins")
        self._join_file(app).touch()
        wanted = self._plan.partitions if app == "A" else 1
        self._until(lambda: len(self._history.owned_by(app)) >= wanted, f"{app} to own {wanted} partitions or more")

    def slow_flight(self) -> None:
        """Until A is at work for a second on the flight that takes long."""
        slow, offset = self._contender.slow_partition, self._slow_offset
        self._until(
            lambda: any(
                each.partition == slow and each.first <= offset < each.last and each.start < now() - 1.0
                for each in self._history.running.values()
            ),
            "A to meet the flight that takes long",
            seconds=self._plan.seconds + STEP_SECONDS,
        )

    def stay(self) -> None:
        """B owns something; let it work for a while."""
        end = now() + self._plan.stay_seconds
        self._until(
            lambda: now() >= end and any(each.app == "B" for each in self._history.done),
            "B to work on flights",
            seconds=self._plan.stay_seconds + STEP_SECONDS,
        )

    def leave(self, app: str) -> None:
        self._recorder.add("scenario", Note.MARK, f"{app} leaves")
        self._ask_to_leave(app)
        self._until(lambda: app not in self._running(), f"{app} to leave")

    def drain(self) -> None:
        """Until every flight has been sent, worked on and committed."""
        self._until(self._is_drained, "every flight to be worked on", seconds=self._plan.seconds + 2 * STEP_SECONDS)
        if self._source.sent != self._plan.rows:
            raise DemoError(f"{self._source.sent} flights were sent, not {self._plan.rows}")

    def _is_drained(self) -> bool:
        lag = sum(map(self._history.lag, range(self._plan.partitions)))
        return self._source.sent is not None and not lag and not self._history.running

    def end(self) -> None:
        """Tell the checker what was to be done by now. It is told at the end, since the machine may be slow."""
        for partition, end in sorted(self._history.ends.items()):
            self._recorder.produced(TopicPartition(self._stage.topic, partition), end)
        self._recorder.end(drained=True)

    # -- waiting

    def _until(self, condition: Callable[[], bool], what: str, *, seconds: float = STEP_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while True:
            self._view.show(self._history, self._history.apply(self._tail.new_events()), now())
            if self._source.error is not None:
                raise self._source.error
            self._check_members()
            if condition():
                return
            if time.monotonic() >= deadline:
                raise DemoError(f"{self._contender.name}: waited {seconds:.0f} s in vain for {what}")
            time.sleep(TICK_SECONDS)

    # -- the members

    def all_leave(self) -> None:
        for app in self._running():
            self._ask_to_leave(app)
        deadline = time.monotonic() + LEAVE_SECONDS
        while self._running() and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)

    def _ask_to_leave(self, app: str) -> None:
        self._asked.add(app)
        self._processes.signal(self._name(app), signal.SIGTERM)

    def _running(self) -> list[str]:
        return [app for app in self._started if self._processes.exit_code(self._name(app)) is None]

    def _check_members(self) -> None:
        for app in self._started:
            code = self._processes.exit_code(self._name(app))
            if code is not None and (code or app not in self._asked):
                lines = self._log(app).read_text(encoding="utf-8", errors="replace").splitlines()
                end = "\n".join(lines[-LOG_LINES:]) or "(it is empty)"
                raise DemoError(f"{app} ended with status {code}; the end of its log:\n{end}")

    def _name(self, app: str) -> str:
        return f"{self._contender.slug}-{app}"

    def _log(self, app: str) -> Path:
        return self._processes.folder / f"{self._name(app)}.log"

    def _join_file(self, app: str) -> Path:
        return self._stage.folder / f"join-{app}"

    def _settings(self, app: str, slow: int) -> MemberSettings:
        return MemberSettings(
            app=app,
            bootstrap_servers=self._stage.bootstrap_servers,
            topic=self._stage.topic,
            group_id=f"demo-{self._contender.slug}",
            output=self._stage.output,
            histories=self._stage.histories,
            join=self._join_file(app),
            slow_row=slow,
            slow_seconds=self._plan.slow_seconds,
        )
