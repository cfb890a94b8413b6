"""Connections between a member's process and a broker, in virtual time.

Laws
1. What is sent on one connection arrives in order; between connections anything may overtake anything.
2. A broker serves a connection's requests one at a time: what is behind a pending JoinGroup waits for its answer.
3. A cut connection loses every answer. What was on its way to the broker is lost too, or arrives nevertheless: all of
   it, by chance. A stalled one is half open: nothing arrives any more, and nobody is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from instride.core.network.actions import ConnectionKey
from instride.testing.simulation.scheduler import Scheduler
from instride.wire.api import Answer, Request

__all__ = ["Link", "LinkOwner", "Reply", "Serve"]

Reply = Callable[[Answer], None]
Serve = Callable[[int, str, Request, Reply], None]
"""(node, who asks, request, reply): serve a request; `reply` may be called later, once."""


class LinkOwner(Protocol):
    """The process at the client's end."""

    name: str

    def link_answered(self, link: Link, request_id: int, answer: Answer) -> None: ...
    def link_closed(self, link: Link) -> None: ...


class Link:
    """One connection, from its opening to its end."""

    __slots__ = (
        "_arrives",
        "_busy",
        "_drains",
        "_latency",
        "_queue",
        "_returns",
        "_scheduler",
        "_serve",
        "alive",
        "key",
        "node",
        "owner",
        "stalled",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        owner: LinkOwner,
        key: ConnectionKey,
        node: int,
        serve: Serve,
        latency: Callable[[], float],
    ) -> None:
        self.owner = owner
        self.key = key
        self.node = node
        self.alive = True
        self.stalled = False
        self._scheduler = scheduler
        self._serve = serve
        self._latency = latency
        self._arrives = 0.0
        self._returns = 0.0
        self._queue: deque[tuple[int, Request]] = deque()
        self._busy = False
        self._drains = False

    def transmit(self, request_id: int, request: Request) -> None:
        self._arrives = max(self._arrives, self._scheduler.now + self._latency())
        self._scheduler.at(self._arrives, partial(self._arrive, request_id, request))

    def _arrive(self, request_id: int, request: Request) -> None:
        if self.stalled or not (self.alive or self._drains):
            return
        self._queue.append((request_id, request))
        self._next()

    def _next(self) -> None:
        if self._queue and not self._busy:
            self._busy = True
            request_id, request = self._queue.popleft()
            self._serve(self.node, self.owner.name, request, partial(self._reply, request_id))

    def _reply(self, request_id: int, answer: Answer) -> None:
        self._busy = False
        self._returns = max(self._returns, self._scheduler.now + self._latency())
        self._scheduler.at(self._returns, partial(self._deliver, request_id, answer))
        self._next()

    def _deliver(self, request_id: int, answer: Answer) -> None:
        if self.alive and not self.stalled:
            self.owner.link_answered(self, request_id, answer)

    def cut(self) -> None:
        """It breaks; the client hears of it a moment later."""
        if self.alive and not self.stalled:
            self.alive = False
            self._drains = self._scheduler.random.random() < 0.5
            self._scheduler.after(self._latency(), partial(self.owner.link_closed, self))

    def close(self) -> None:
        """The client closes it: what it sent before arrives."""
        if self.alive:
            self.alive, self._drains = False, True
