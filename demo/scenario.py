"""What happens in the demo, once for each kind of consumer.

    A and B start; A joins and owns everything; flights begin to arrive, all the time, at one pace
    A meets a flight that takes long      -> B joins, while it is in progress
    some time after B works as well       -> B leaves
    all flights have been sent and worked on -> A leaves

and once more, where one is killed:

    A and B start, and share the partitions; all flights are sent as fast as the source can send them
    one of them meets a flight that takes long -> it is killed (SIGKILL), while that is in progress
    the other one has worked on all of them    -> it leaves

Laws
1. The scenario waits for what the history says, never for a time alone; each wait has an end, and then an error.
2. All kinds that are compared get the same flights at the same pace, and the same flight takes long. The last tenth of
   the flights waits until B owns something (or until one was killed: so the other one gets some of each partition), and
   B stays until it has worked on some, however slow the machine is.
3. However it ends, the source has stopped when `play` returns. Members that have not left then end with their keeper. A
   member that ends before it was asked to is an error that shows the end of its log.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from demo.flights import PARTITIONS, DemoError, Flight, flights, send
from demo.history import History, HistoryTail, Note
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
    with plan.recorder("scenario") as history, ThreadPoolExecutor(1) as pool:
        run = _Run(plan, processes, history)
        try:
            for what, came in run.steps(pool):
                deadline = time.monotonic() + plan.seconds + STEP_SECONDS
                while run.goes_on(view) and not came():
                    if time.monotonic() >= deadline:
                        raise DemoError(f"{plan.kind}: waited in vain for {what}")
                    time.sleep(TICK_SECONDS)
        finally:
            run.stop_source()


class _Run:
    """One run: its members, its source, and the history of both so far."""

    def __init__(self, plan: Plan, processes: Processes, recorder: Recorder) -> None:
        self._plan = plan
        self._processes = processes
        self._recorder = recorder
        self._tail = HistoryTail(plan.histories)
        self._history = History()
        self._may_end: dict[str, int] = {}
        """By member, the status with which it ends."""
        self._source: Future[None] = Future()
        self._last_part = threading.Event()
        self._stopped = threading.Event()

    def steps(self, pool: Executor) -> Iterator[Step]:
        """Do each step, and say what the next one waits for."""
        history, plan = self._history, self._plan
        for app in APPS:
            command = [sys.executable, "-m", f"demo.{plan.member}_member", app, plan.argument()]
            self._processes.start(str(self._log(app)), command, self._log(app))
        yield "the start of both processes", lambda: history.ready >= set(APPS)
        last = yield from (self._one_is_killed if plan.killed else self._one_joins_and_leaves)(pool)
        yield "every flight to be worked on", self._is_drained
        yield self._leave(last)
        # The checker is told at the end what was to be done by now, since the machine may be slow.
        for partition, offset in sorted(history.ends.items()):
            self._recorder.produced(TopicPartition(plan.topic, partition), offset)
        self._recorder.end(drained=True)

    def _one_joins_and_leaves(self, pool: Executor) -> Generator[Step, None, str]:
        """Returns who is left."""
        history = self._history
        self._join("A")
        yield f"A to own {PARTITIONS} partitions", lambda: len(history.owned_by("A")) == PARTITIONS
        self._source = pool.submit(self._send)
        yield "A to meet the flight that takes long", lambda: self._at_slow_flight() == "A"
        self._join("B")
        yield "B to own partitions", lambda: bool(history.owned_by("B"))
        self._last_part.set()
        end = now() + self._plan.stay_seconds
        yield "B to work on flights", lambda: now() >= end and any(each.app == "B" for each in history.done)
        yield self._leave("B")
        return "A"

    def _one_is_killed(self, pool: Executor) -> Generator[Step, None, str]:
        """Returns who is left."""
        for app in APPS:
            self._join(app)
        yield "both to own partitions", lambda: all(map(self._history.owned_by, APPS))
        self._source = pool.submit(self._send)
        yield "one of them to meet the flight that takes long", lambda: bool(self._at_slow_flight())
        killed = self._at_slow_flight()
        self._mark(f"{killed} is killed")
        yield self._end(killed, signal.SIGKILL, -signal.SIGKILL)
        self._recorder.add(killed, "crashed")
        self._last_part.set()
        (left,) = set(APPS) - {killed}
        yield f"{left} to own {PARTITIONS} partitions", lambda: len(self._history.owned_by(left)) == PARTITIONS
        return left

    def goes_on(self, view: View) -> bool:
        """Show what happened since the last call. DemoError if a member ended that was to go on."""
        view.show(self._history, self._history.apply(self._tail.new_events()), now())
        if self._source.done():
            self._source.result()
        for app in APPS:
            code = self._processes.exit_code(str(self._log(app)))
            if code is not None and code != self._may_end.get(app):
                lines = self._log(app).read_text(encoding="utf-8", errors="replace").splitlines()
                raise DemoError("\n".join([f"{app} ended with status {code}; its log's end:", *lines[-LOG_LINES:]]))
        return True

    def stop_source(self) -> None:
        """Law 3."""
        self._stopped.set()
        self._last_part.set()

    # -- what is awaited

    def _at_slow_flight(self) -> str:
        """Who has had the flight that takes long in progress for a second; else nobody, ""."""
        for each in self._history.running.values():
            at_it = each.partition == self._plan.slow_partition and each.first <= self._plan.slow_offset < each.last
            if at_it and each.start < now() - 1.0:
                return each.app
        return ""

    def _is_drained(self) -> bool:
        """Every flight has been sent, worked on and committed. The history may be older than the source's end."""
        finished = sum(self._history.positions.values())
        return self._source.done() and finished == self._plan.rows and not self._history.running

    # -- what is done

    def _join(self, app: str) -> None:
        self._mark(f"{app} joins")
        self._plan.join_file(app).touch()

    def _leave(self, app: str) -> Step:
        self._mark(f"{app} leaves")
        return self._end(app, signal.SIGTERM, 0)

    def _end(self, app: str, number: signal.Signals, status: int) -> Step:
        self._may_end[app] = status
        self._processes.signal(str(self._log(app)), number)
        return f"{app} to end", lambda: self._processes.exit_code(str(self._log(app))) is not None

    def _mark(self, text: str) -> None:
        self._recorder.add("scenario", Note.MARK, text)

    def _send(self) -> None:
        send(
            self._flights(),
            bootstrap_servers=self._plan.bootstrap_servers,
            topic=self._plan.topic,
            rate=math.inf if self._plan.killed else self._plan.rows / self._plan.seconds,
            sent=lambda partition, end: self._recorder.add("source", Note.SENT, partition, end),
        )

    def _flights(self) -> Iterator[Flight]:
        for flight in flights(self._plan.rows):
            if flight.row >= LAST_PART * self._plan.rows:
                self._last_part.wait()
            if self._stopped.is_set():
                return
            yield flight

    def _log(self, app: str) -> Path:
        """It names the process, too."""
        return self._plan.folder / f"{app}.log"
