"""What happens in the demo, once for each kind of consumer.

    A and B start; A joins and owns everything; flights begin to arrive, all the time, at one pace
    A meets a flight that takes long      -> B joins, while A is at work on it
    some time after B works as well       -> B leaves
    all flights have been sent and worked on -> A leaves

Laws
1. The scenario waits for what the history says, never for a time alone; each wait has an end, and then an error.
2. All kinds get the same flights at the same pace, and the same flight takes long. The last tenth of the flights waits
   until B owns something, and B stays until it has worked on some, however slow the machine is.
3. However it ends, the source has stopped when `play` returns. Members that have not left then end with their keeper. A
   member that ends before it was asked to is an error that shows the end of its log.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from demo.flights import PARTITIONS, DemoError, Flight, flights, send
from demo.history import History, HistoryTail, Note, recorder
from demo.member import Plan
from demo.view import View
from instride._net.clock import now
from instride.records import TopicPartition
from instride.testing import Recorder
from instride.testing._kafka.processes import Processes

APPS: Final = ("A", "B")
TICK_SECONDS: Final = 0.2
STEP_SECONDS: Final = 240.0  # two Sparks start beside each other on a busy machine
LAST_PART: Final = 0.9
"""The flights after this part of all wait for B."""
LOG_LINES: Final = 25

Step = tuple[str, Callable[[], bool]]
"""What is awaited before the scenario goes on, and whether it is there."""


def play(plan: Plan, processes: Processes, view: View) -> None:
    """Play the scenario to its end, which ends its history too. DemoError if a member fails or a step does not come."""
    with recorder(plan.histories, plan.topic, "scenario") as history, ThreadPoolExecutor(1) as pool:
        run = _Run(plan, processes, history)
        try:
            for what, came in run.steps(pool):
                deadline = time.monotonic() + plan.seconds + STEP_SECONDS
                while run.goes_on(view) and not came():
                    if time.monotonic() >= deadline:
                        raise DemoError(f"{plan.kind}: waited in vain for {what}")
                    time.sleep(TICK_SECONDS)
        except BaseException:
            run.stop_source()
            raise


class _Run:
    """One run: its members, its source, and the history of both so far."""

    def __init__(self, plan: Plan, processes: Processes, recorder: Recorder) -> None:
        self._plan = plan
        self._processes = processes
        self._recorder = recorder
        self._tail = HistoryTail(plan.histories)
        self._history = History()
        self._started: list[str] = []
        self._may_end: set[str] = set()
        self._source: Future[int] = Future()
        self._last_part = threading.Event()
        self._stopped = threading.Event()

    def steps(self, pool: Executor) -> Iterator[Step]:
        """Do each step, and say what the next one waits for."""
        history, plan = self._history, self._plan
        for app in APPS:
            command = [sys.executable, "-m", f"demo.{plan.kind}_member", app, plan.argument()]
            self._processes.start(self._name(app), command, self._log(app))
            self._started.append(app)
        yield "the start of both processes", lambda: history.ready >= set(APPS)
        self._join("A")
        yield f"A to own {PARTITIONS} partitions", lambda: len(history.owned_by("A")) == PARTITIONS
        self._source = pool.submit(self._send)
        yield "A to meet the flight that takes long", self._is_at_slow_flight
        self._join("B")
        yield "B to own partitions", lambda: bool(history.owned_by("B"))
        self._last_part.set()
        end = now() + plan.stay_seconds
        yield "B to work on flights", lambda: now() >= end and any(each.app == "B" for each in history.done)
        self._leave("B")
        yield "B to leave", lambda: not self._runs("B")
        yield "every flight to be worked on", self._is_drained
        self._leave("A")
        yield "A to leave", lambda: not self._runs("A")
        # The checker is told at the end what was to be done by now, since the machine may be slow.
        for partition, offset in sorted(history.ends.items()):
            self._recorder.produced(TopicPartition(plan.topic, partition), offset)
        self._recorder.end(drained=True)

    def goes_on(self, view: View) -> bool:
        """Show what happened since the last call. DemoError if a member ended that was to go on."""
        view.show(self._history, self._history.apply(self._tail.new_events()), now())
        if self._source.done():
            self._source.result()
        for app in self._started:
            code = self._processes.exit_code(self._name(app))
            if code is not None and (code or app not in self._may_end):
                lines = self._log(app).read_text(encoding="utf-8", errors="replace").splitlines()
                raise DemoError(
                    "\n".join([f"{app} ended with status {code}; the end of its log:", *lines[-LOG_LINES:]])
                )
        return True

    def stop_source(self) -> None:
        """Law 3."""
        self._stopped.set()
        self._last_part.set()

    # -- what is awaited

    def _is_at_slow_flight(self) -> bool:
        """A has been at work for a second on the flight that takes long."""
        return any(
            each.partition == self._plan.slow_partition
            and each.first <= self._plan.slow_offset < each.last
            and each.start < now() - 1.0
            for each in self._history.running.values()
        )

    def _is_drained(self) -> bool:
        """Every flight has been sent, worked on and committed."""
        lag = sum(map(self._history.lag, range(PARTITIONS)))
        return self._source.done() and not lag and not self._history.running

    def _runs(self, app: str) -> bool:
        return self._processes.exit_code(self._name(app)) is None

    # -- what is done

    def _join(self, app: str) -> None:
        self._recorder.add("scenario", Note.MARK, f"{app} joins")
        self._plan.join_file(app).touch()

    def _leave(self, app: str) -> None:
        self._recorder.add("scenario", Note.MARK, f"{app} leaves")
        self._may_end.add(app)
        self._processes.signal(self._name(app), signal.SIGTERM)

    def _send(self) -> int:
        return send(
            self._flights(),
            bootstrap_servers=self._plan.bootstrap_servers,
            topic=self._plan.topic,
            rate=self._plan.rows / self._plan.seconds,
            sent=lambda partition, end: self._recorder.add("source", Note.SENT, partition, end),
        )

    def _flights(self) -> Iterator[Flight]:
        for flight in flights(self._plan.rows):
            if flight.row >= LAST_PART * self._plan.rows:
                self._last_part.wait()
            if self._stopped.is_set():
                return
            yield flight

    # -- names

    def _name(self, app: str) -> str:
        return f"{self._plan.kind}-{app}"

    def _log(self, app: str) -> Path:
        return self._plan.folder / f"{app}.log"
