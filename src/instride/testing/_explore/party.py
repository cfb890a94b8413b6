"""One member in a small world: both machines, the queues between them, its connections. It moves when it is told to.

Laws
1. A connection opens at once, and an assignor ends at once. A request is served when it is sent, one of a connection
   after the other; its response waits until the network side is told to take it.
2. The network side ticks after each thing that it takes.
3. One call at a time: it goes on, or is interrupted, at its waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from instride._core.application.calls import Wait
from instride._core.application.machine import ApplicationMachine
from instride._core.events import ApplicationEvent, BackgroundEvent
from instride._core.network.actions import (
    CloseConnection,
    ConnectionKey,
    Deliver,
    OpenConnection,
    PerformAssignment,
    Stop,
    Transmit,
)
from instride._core.network.machine import NetworkMachine
from instride._core.session_lease import Lease
from instride._wire.api import Request, Response
from instride.config import ConsumerConfig
from instride.testing._simulation.broker_model import BrokerModel
from instride.testing._simulation.history import History
from instride.testing._simulation.scheduler import Scheduler
from instride.testing._simulation.untaken import Untaken
from instride.testing._tap import Tap

__all__ = ["Channel", "Party"]

Call = Generator[Wait, float, Any]


class Channel:
    """A connection. responses: those that wait for the network side. Law 1."""

    __slots__ = ("_busy", "_requests", "_serve", "closed", "responses")

    def __init__(self, serve: Callable[[Request, Callable[[Response], None]], None]) -> None:
        self._serve = serve
        self._requests: deque[tuple[int, Request]] = deque()
        self._busy = False
        self.closed = False
        self.responses: deque[tuple[int, Response]] = deque()

    def send(self, number: int, request: Request) -> None:
        self._requests.append((number, request))
        self._next()

    def _next(self) -> None:
        if self._requests and not self._busy:
            self._busy = True
            number, request = self._requests.popleft()
            self._serve(request, partial(self._served, number))

    def _served(self, number: int, response: Response) -> None:
        self._busy = False
        if not self.closed:
            self.responses.append((number, response))
        self._next()


class Party:
    """name: the member's. call: what its application is in the middle of, by its name; None: of nothing."""

    def __init__(
        self, name: str, config: ConsumerConfig, scheduler: Scheduler, history: History, brokers: BrokerModel
    ) -> None:
        self.name = name
        self.scheduler = scheduler
        self.history = history
        self.nervous = False
        self.stopped = False
        self.queue: deque[BackgroundEvent] = deque()
        self.events: deque[ApplicationEvent] = deque()
        self.channels: dict[ConnectionKey, Channel] = {}
        self.call: tuple[str, Call, Wait] | None = None
        self._brokers = brokers
        lease = Lease()
        self.machine = NetworkMachine(config, lease=lease, random=lambda: 0.5, wall_clock=lambda: scheduler.now)
        self.application = ApplicationMachine(
            config, protocol=self.machine.protocol, queue=self.queue, post=self.events.append, lease=lease
        )
        self.untaken = Untaken(self.application, self.queue)
        self._tap = Tap(
            partial(history.add, name),
            session_timeout=config.session_timeout,
            overtaken=self.untaken.is_overtaken,
        )

    # -- its network side

    @property
    def now(self) -> float:
        return self.scheduler.now

    def take(self, count: int = 1) -> None:
        """So many application events, then a tick."""
        for _ in range(min(count, len(self.events))):
            self.machine.handle(self.events.popleft(), self.now)
        self.tick()

    def response(self, key: ConnectionKey) -> None:
        number, response = self.channels[key].responses.popleft()
        self._tap.on_response(number, response, self.now)
        self.machine.response_received(number, response, self.now)
        self.tick()

    def tick(self) -> None:
        """Law 2; and law 1, since what opens or ends at once asks for more."""
        again = True
        while again and not self.stopped:
            again = False
            for action in self.machine.tick(self.now):
                match action:
                    case Deliver():
                        self._tap.on_background_event(action.event, self.now)
                        self.queue.append(action.event)
                    case Transmit():
                        self._tap.on_request(action.key, action.request_id, action.request, self.now)
                        self.channels[action.key].send(action.request_id, action.request)
                    case OpenConnection():
                        self._close(action.key)
                        self.channels[action.key] = Channel(partial(self._brokers.serve, 1, self.name))
                        self.machine.opened(action.key, self.now)
                        again = True
                    case CloseConnection():
                        self._close(action.key)
                    case PerformAssignment():
                        self.machine.assignment_performed(action, action.outcome(), self.now)
                        again = True
                    case Stop():
                        self.stopped = True

    def _close(self, key: ConnectionKey) -> None:
        gone = self.channels.pop(key, None)
        if gone is not None:
            gone.closed = True
            self._tap.on_connection_closed(key, self.now)

    def waiting(self) -> list[ConnectionKey]:
        """Connections with a response that can be taken."""
        return [] if self.stopped else [key for key, each in self.channels.items() if each.responses]

    # -- its application

    def start(self, name: str, call: Call) -> Any:
        """Returns what the call returned, where it ended at once."""
        return self._step(name, call, lambda: next(call))

    def go_on(self) -> Any:
        assert self.call is not None
        name, call, _ = self.call
        return self._step(name, call, lambda: call.send(self.now))

    def interrupt(self) -> str:
        """As `_net.driver` does where a signal's exception ends its wait. Returns the call's name."""
        assert self.call is not None
        name, call, _ = self.call
        self.call = None
        call.close()
        return name

    def _step(self, name: str, call: Call, step: Callable[[], Wait]) -> Any:
        self.call = None
        try:
            self.call = name, call, step()
        except StopIteration as end:
            return end.value
        return None
