"""Connections between a member's process and a broker, in virtual time.

Laws
1. What is sent on one connection arrives in order; between connections anything may overtake anything.
2. A broker serves a connection's requests one at a time: what is behind a pending JoinGroup waits for its response.
3. A cut connection loses every response. What was on its way to the broker may arrive until the client hears of it, or
   is lost. A fragile one breaks within a frame. A stalled one is half open: nothing arrives any more, and nobody is
   told.
4. A blocked one is beyond a network partition: what is sent arrives when that has ended, unless the client
   has reset the connection before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from instride._core.network.actions import ConnectionKey
from instride._wire.api import Request, Response
from instride.testing._simulation.pipes import FramedPipe, Pipe, WholePipe
from instride.testing._simulation.scheduler import Scheduler

__all__ = ["Link", "LinkOwner", "Reply", "Serve"]

Reply = Callable[[Response], None]
Serve = Callable[[int, str, Request, Reply], None]
"""(node, who asks, request, reply): serve a request; `reply` may be called later, once."""
_FOREVER = float("inf")


class LinkOwner(Protocol):
    """The process at the client's end."""

    name: str

    def link_responded(self, link: Link, request_id: int, response: Response) -> None: ...
    def link_closed(self, link: Link) -> None: ...
    def link_broke_within_a_frame(self, link: Link) -> None: ...


class Link:
    """One connection, from its opening to its end.

    framed: messages are bytes. fragile: where they are, it breaks within the next one. blocked_until: law 4.
    """

    __slots__ = (
        "_back",
        "_busy",
        "_latency",
        "_out",
        "_passes_until",
        "_queue",
        "_scheduler",
        "_serve",
        "alive",
        "blocked_until",
        "fragile",
        "framed",
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
        *,
        framed: bool = False,
    ) -> None:
        self.owner = owner
        self.key = key
        self.node = node
        self.alive = True
        self.stalled = False
        self.fragile = False
        self.framed = framed
        self.blocked_until = 0.0
        self._scheduler = scheduler
        self._serve = serve
        self._latency = latency
        self._passes_until = -1.0  # what is on its way when it ends
        self._queue: deque[tuple[int, Request]] = deque()
        self._busy = False
        kind: Callable[..., Pipe] = partial(FramedPipe, partly=self._partly) if framed else WholePipe
        self._out = kind(scheduler, latency, self._blocked_until, self._passes_out, self._arrived)
        self._back = kind(scheduler, latency, self._blocked_until, self._passes_back, self._delivered)

    def transmit(self, request_id: int, request: Request) -> None:
        self._out.send(request_id, request)

    def _blocked_until(self) -> float:
        return self.blocked_until

    def _passes_out(self) -> bool:
        return not self.stalled and (self.alive or self._scheduler.now <= self._passes_until)

    def _passes_back(self) -> bool:
        return self.alive and not self.stalled

    def _arrived(self, request_id: int, request: Request) -> None:
        self._queue.append((request_id, request))
        self._next()

    def _next(self) -> None:
        if self._queue and not self._busy:
            self._busy = True
            request_id, request = self._queue.popleft()
            self._serve(self.node, self.owner.name, request, partial(self._reply, request_id))

    def _reply(self, request_id: int, response: Response) -> None:
        self._busy = False
        self._back.send(request_id, response)
        self._next()

    def _delivered(self, request_id: int, response: Response) -> None:
        self.owner.link_responded(self, request_id, response)

    def _partly(self) -> None:
        if self.fragile and self.alive:
            self.owner.link_broke_within_a_frame(self)
            self.cut(clean=True)

    def cut(self, *, clean: bool = False) -> None:
        """It breaks; the client hears of it a moment later. clean: nothing that is on its way arrives."""
        if self.alive and not self.stalled:
            self.alive = False
            soon = self._scheduler.now + self._latency()
            if not clean and self._scheduler.random.random() < 0.5:
                self._passes_until = soon
            self._scheduler.at(soon, partial(self.owner.link_closed, self))

    def close(self, *, abort: bool = False) -> None:
        """The client closes it: what it sent before arrives, if anything can; unless it resets the connection."""
        if self.alive:
            self.alive = False
            self._passes_until = -1.0 if abort else _FOREVER
