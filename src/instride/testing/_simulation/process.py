"""One member's process: both machines, the queues between them, and two threads that take turns by chance.

Laws
1. The network thread does what `_net.thread` does: application events, responses, tick, actions. A turn takes any first
   part of what has come, so that everything can come between two events.
2. The application's thread runs a generator. It waits as `_net.mailbox` does: at once where something is queued.
3. A suspended process does nothing; what comes meanwhile is there when it goes on. A crashed one never does.
4. What raises where nothing may raise is written down as "died": the checker calls it a violation.
5. What is assigned by hand is written down at the step at which it is: no interrupt, and no handler, comes between. So
   is a commit that may go back, when it is handed over; and where a reset leads that needs no look-up, since it is
   known where the log was truncated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping
from dataclasses import dataclass
from functools import partial

from instride._core.application.calls import Wait
from instride._core.application.machine import ApplicationMachine
from instride._core.events import (
    ApplicationEvent,
    Assign,
    BackgroundEvent,
    Commit,
    Epochs,
    PartitionFailed,
    Positioned,
    SetPosition,
    Unsubscribe,
    Wakeup,
)
from instride._core.network.actions import (
    CloseConnection,
    ConnectionKey,
    Deliver,
    Log,
    OpenConnection,
    PerformAssignment,
    Role,
    Stop,
    Transmit,
)
from instride._core.network.machine import NetworkMachine
from instride._core.session_lease import Lease
from instride._wire.api import OffsetCommit, Request, Response
from instride.config import ConsumerConfig
from instride.errors import FencedInstanceIdError, TransportError
from instride.telemetry import TelemetryEvent
from instride.testing._simulation.busiest import Busiest
from instride.testing._simulation.history import History
from instride.testing._simulation.interrupts import spared
from instride.testing._simulation.links import Link
from instride.testing._simulation.load import load
from instride.testing._simulation.scheduler import Scheduler
from instride.testing._simulation.topic_ids import as_told
from instride.testing._simulation.untaken import Untaken
from instride.testing._tap import Tap

__all__ = ["Process", "Sleep", "UserLoop"]

_FOREVER = float("inf")
_TURN = 0.002
"""A thread's next turn comes within these seconds."""
_SAMPLED_EVERY = 0.5
"""Seconds; a sample is taken in the network thread's next turn, which a heartbeat brings at the latest."""
_SPINNING = 400
"""Turns of a network thread without anything new, within a second: it would burn a processor."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """The user's own code takes so many seconds."""

    seconds: float


UserLoop = Generator[Wait | Sleep, float, None]
"""Yields what it waits for, and is sent the time."""


@dataclass(frozen=True, slots=True)
class _Input:
    """Something that the network thread finds at its sockets; or the outcome of an assignor."""

    link: Link | None
    opened: bool = False
    closed: bool = False
    request_id: int = 0
    response: Response | None = None
    assigned: tuple[PerformAssignment, Mapping[str, bytes] | Exception] | None = None


class _Tap(Tap):
    """Leader epochs as a history has them."""

    def __init__(
        self,
        name: str,
        history: History,
        *,
        session_timeout: float,
        overtaken: Callable[[Positioned | PartitionFailed], bool],
    ) -> None:
        super().__init__(partial(history.add, name), session_timeout=session_timeout, overtaken=overtaken)
        self._name, self._history = name, history

    def on_request(self, connection: Hashable, number: int, request: Request, at: float) -> None:
        told = as_told(request, self._name, self._history) if isinstance(request, OffsetCommit) else request
        super().on_request(connection, number, told, at)


class Process:
    """connect: makes the link of an opened connection, or None where nobody listens. assigning: the seconds that an
    assignor takes; one that takes none ends within the network thread's turn."""

    def __init__(
        self,
        name: str,
        config: ConsumerConfig,
        scheduler: Scheduler,
        history: History,
        *,
        connect: Callable[[Process, ConnectionKey, str, int], Link | None],
        latency: Callable[[], float],
        assigning: Callable[[], float],
    ) -> None:
        self.name = name
        self.scheduler = scheduler
        self.history = history
        self.links: dict[ConnectionKey, Link] = {}
        self.suspended_until = 0.0
        self.nervous = False  # a delay is followed by a wakeup
        self.crashed = False
        self.loop_ended = False
        self._config = config
        self._connect = connect
        self._latency = latency
        self._assigning = assigning
        self._stopped = False
        lease = Lease()
        self.machine = NetworkMachine(
            config, lease=lease, random=scheduler.random.random, wall_clock=lambda: scheduler.now
        )
        self._queue: deque[BackgroundEvent] = deque()
        self._events: deque[ApplicationEvent] = deque()
        self._inputs: deque[_Input] = deque()
        self.application = ApplicationMachine(
            config, protocol=self.machine.protocol, queue=self._queue, post=self._post, lease=lease
        )
        self.untaken = Untaken(self.application, self._queue)
        self._tap = _Tap(
            name,
            history,
            session_timeout=config.session_timeout,
            overtaken=self.untaken.is_overtaken,
        )
        self.told: list[TelemetryEvent] = []  # what a telemetry listener would have heard
        self._by_hand: Epochs = {}
        self._network_at = _FOREVER
        self._application_at = _FOREVER
        self._loop: UserLoop | None = None
        self._begun = False
        self._waits = False
        self.died_of: BaseException | None = None
        self._second = 0
        self._turns = 0
        self._sample_at = 0.0
        self._busiest = Busiest()

    # -- the world's side

    @property
    def running(self) -> bool:
        return not self.crashed and not self.loop_ended

    def start(self, loop: UserLoop, *, steady: bool) -> None:
        """steady: it never stops reading of its own will."""
        self._loop = loop
        self.history.add(self.name, "started", steady, "told", True)
        self._wake_application(self.scheduler.now)

    def crash(self) -> None:
        self.history.add(self.name, "crashed")
        self._end()

    def suspend(self, seconds: float) -> None:
        self.history.add(self.name, "suspended", round(seconds, 3))
        self.suspended_until = self.scheduler.now + seconds

    def wakeup(self) -> None:
        if not self.application.wakeup_waits():
            self._deliver(Wakeup())

    def work(self, seconds: float) -> None:
        """The application's thread is busy for so long, in a listener say: everybody else goes on meanwhile."""
        with spared():
            self.scheduler.run(self.scheduler.now + seconds, lambda: False)

    def _end(self) -> None:
        self.crashed = True
        for link in self.links.values():
            link.close()

    def _died(self, what: str, error: BaseException) -> None:
        self.history.add(self.name, "died", what, f"{type(error).__name__}: {error}")
        self.died_of = error
        self._end()

    def link_responded(self, link: Link, request_id: int, response: Response) -> None:
        self._input(_Input(link, request_id=request_id, response=response))

    def link_closed(self, link: Link) -> None:
        self._input(_Input(link, closed=True))

    def _input(self, what: _Input) -> None:
        if not self._stopped and not self.crashed:
            self._turns = 0
            self._inputs.append(what)
            self._wake_network(self.scheduler.now + self.scheduler.jitter(_TURN))

    # -- the network thread

    def _post(self, event: ApplicationEvent) -> None:
        if isinstance(event, Assign):
            self._assigned_by_hand(event.partitions)
        elif isinstance(event, Unsubscribe):
            self._by_hand = {}
        elif isinstance(event, Commit) and event.allow_rewind:
            allowed = tuple(sorted((tp, each.offset) for tp, each in event.entries.items()))
            self.history.add(self.name, "allows rewind", allowed)
        elif isinstance(event, SetPosition) and event.reset_from is not None and event.offset >= 0:
            self.history.add(self.name, "positioned", event.partition, event.epoch, event.offset)
        self._turns = 0
        self._events.append(event)
        self._wake_network(self.scheduler.now + self.scheduler.jitter(_TURN))

    def _assigned_by_hand(self, partitions: Epochs) -> None:
        """Law 5."""
        before, self._by_hand = self._by_hand, dict(partitions)
        if gone := tuple(sorted(before.items() - partitions.items())):
            self.history.add(self.name, "revoked", gone)
        if new := tuple(sorted(partitions.items() - before.items())):
            self.history.add(self.name, "assigned", None, new)

    def _wake_network(self, time: float) -> None:
        if time < self._network_at:
            self._network_at = time
            self.scheduler.at(time, partial(self._network_turn, time))

    def _network_turn(self, time: float) -> None:
        if time != self._network_at or self.crashed or self._stopped:
            return
        now = self.scheduler.now
        self._network_at = _FOREVER
        if now < self.suspended_until:
            self._wake_network(self.suspended_until + self.scheduler.jitter(_TURN))
            return
        try:
            self._guard_against_spinning(now)
            self._busiest.turn(now)
            self._turn(now)
        except Exception as error:  # noqa: BLE001 - law 4
            self._died("network thread", error)
            return
        if not self._stopped:
            self._sleep(now)
        if now >= self._sample_at:
            self._sample_at = now + _SAMPLED_EVERY
            self._sample()

    def _sample(self) -> None:
        queues = (self._queue, self._events, self._inputs)
        found = load(self._config, self.machine, self.application, self._queue, queues, len(self.links))
        self.history.add(self.name, "load", *found, *self._busiest.take())

    def _sleep(self, now: float) -> None:
        if self._events or self._inputs:
            self._wake_network(now + self.scheduler.jitter(_TURN))
        else:
            self._wake_network(max(self.machine.deadline(), now) + self.scheduler.jitter(_TURN))

    def _guard_against_spinning(self, now: float) -> None:
        if int(now) != self._second:
            self._second, self._turns = int(now), 0
        self._turns += 1
        if self._turns > _SPINNING:
            raise RuntimeError(f"the network thread spins; its deadline is {self.machine.deadline()}")

    def _turn(self, now: float) -> None:
        random = self.scheduler.random.random
        machine = self.machine
        for _ in range(self._some(len(self._events), random())):
            event = self._events.popleft()
            self._busiest.took(event)
            machine.handle(event, now)
        for _ in range(self._some(len(self._inputs), random())):
            self._take(self._inputs.popleft(), now)
        self._act(now)

    @staticmethod
    def _some(count: int, chance: float) -> int:
        """All of them, two times in three; else any number of the first."""
        return count if chance < 0.66 else min(count, int(count * (chance - 0.66) * 3))

    def _take(self, what: _Input, now: float) -> None:
        if what.assigned is not None:
            self.machine.assignment_performed(*what.assigned, now)
        if what.link is None:
            return
        key = what.link.key
        if self.links.get(key) is not what.link:
            return
        if what.opened:
            self.machine.opened(key, now)
        elif what.closed:
            del self.links[key]
            what.link.close()
            self._tap.on_connection_closed(key, now)
            self.machine.closed(key, TransportError("the connection broke"), now)
        elif what.response is not None:
            self._tap.on_response(what.request_id, what.response, now)
            self.machine.response_received(what.request_id, what.response, now)

    def _act(self, now: float) -> None:
        delivered, again = [], False
        for action in self.machine.tick(now):
            match action:
                case Deliver():
                    delivered.append(action.event)
                case Transmit():
                    self._transmit(action, now)
                case OpenConnection():
                    self._open(action)
                case CloseConnection():
                    gone = self.links.pop(action.key, None)
                    if gone is not None:
                        gone.close(abort=action.abort)
                    self._tap.on_connection_closed(action.key, now)
                case PerformAssignment():
                    again = self._assign(action)
                case Log():
                    if self.history.keep_logs:
                        self.history.add(self.name, "log", action.level, action.message)
                case Stop():
                    self._stopped = True
        for event in delivered:
            self._deliver(event)
        if again:
            self._act(now)

    def _transmit(self, action: Transmit, now: float) -> None:
        link = self.links.get(action.key)
        if link is not None:
            self._tap.on_request(action.key, action.request_id, action.request, now)
            self._busiest.sent(action.request)
            link.transmit(action.request_id, action.request)

    def _assign(self, action: PerformAssignment) -> bool:
        """Whether it has ended already."""
        assigned, seconds = _Input(None, assigned=(action, action.outcome())), self._assigning()
        if seconds:
            self.scheduler.after(seconds, partial(self._input, assigned))
            return False
        self._take(assigned, self.scheduler.now)
        return True

    def _open(self, action: OpenConnection) -> None:
        old = self.links.pop(action.key, None)
        if old is not None:
            old.close()
            self._tap.on_connection_closed(action.key, self.scheduler.now)
        link = self._connect(self, action.key, action.host, action.port)
        if link is not None:
            self.links[action.key] = link
            ready = _Input(link, opened=link.alive, closed=not link.alive)
            self.scheduler.after(2 * self._latency(), partial(self._opened, link, ready))

    def _opened(self, link: Link, ready: _Input) -> None:
        if self.scheduler.now < link.blocked_until:
            self.scheduler.at(link.blocked_until, partial(self._opened, link, ready))
        elif not link.stalled:
            self._input(ready)

    def cut(self, role: Role) -> None:
        for key, link in self.links.items():
            if key.role is role and link.alive:
                self.history.add(self.name, "cut", str(key))
                link.cut()

    def make_fragile(self, role: Role) -> None:
        """Its connections of that role break within the next message; at once where messages are not bytes."""
        for key, link in self.links.items():
            if key.role is role and link.framed:
                link.fragile = True
            elif key.role is role:
                self.history.add(self.name, "cut", str(key))
                link.cut()

    def link_broke_within_a_frame(self, link: Link) -> None:
        self.history.add(self.name, "cut", str(link.key), "within a frame")

    def stall(self, role: Role) -> None:
        for key, link in self.links.items():
            if key.role is role:
                self.history.add(self.name, "stalled", str(key))
                link.stalled = True

    # -- between them

    def _deliver(self, event: BackgroundEvent) -> None:
        self._tap.on_background_event(event, self.scheduler.now)
        self._queue.append(event)
        if self._waits:
            self._wake_application(self.scheduler.now + self.scheduler.jitter(_TURN))

    # -- the application's thread

    def _wake_application(self, time: float) -> None:
        if time < self._application_at:
            self._application_at = time
            self.scheduler.at(time, partial(self._application_turn, time))

    def _application_turn(self, time: float) -> None:
        if time != self._application_at or not self.running:
            return
        now = self.scheduler.now
        self._application_at = _FOREVER
        if now < self.suspended_until:
            self._wake_application(self.suspended_until + self.scheduler.jitter(_TURN))
            return
        assert self._loop is not None
        self._waits = False
        try:
            wait = self._loop.send(now) if self._begun else next(self._loop)
            self._begun = True
        except StopIteration:
            self.loop_ended = True
            self.history.add(self.name, "stopped")
            return
        except FencedInstanceIdError:  # another process has taken its place: this one ends
            self.history.add(self.name, "fenced")
            self.crash()
            return
        except Exception as error:  # noqa: BLE001 - law 4
            self._died("application", error)
            return
        finally:
            self.told += self.application.telemetry()
        self._wait(wait, now)

    def _wait(self, wait: Wait | Sleep, now: float) -> None:
        if isinstance(wait, Sleep):
            self._wake_application(now + wait.seconds)
            return
        self._waits = True
        soon = now + self.scheduler.jitter(_TURN)
        self._wake_application(soon if self._queue else max(wait.until, now))
