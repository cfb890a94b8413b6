"""Connections and the requests on them: when to open, what is in flight, when to give up, when to try again.

Laws of connections (`Connections`)
1. A request's sender hears of it exactly once: a response, or an error.
2. A request has a deadline from the moment it is sent. One that passes it closes its connection, since the
   responses behind it would come too late as well. What the broker has not received by then must not arrive later.
3. What waited for its connection is sent only where it is still wanted.
4. After a failure a connection is not opened again before its back-off ends; requests wait for that.
5. What is sent on one connection is transmitted in order.
6. `round_trip` is how long the coordinator takes to respond: the longest of late, each later response halving what is
   above it. (Join and Sync, which wait for others, are on a connection of their own and count for nothing.)
7. An authentication that failed raises in the user's call, and is made again a second later at the earliest. To the
   requests it is a broken connection: when the credentials are good again, all goes on. A call that comes when others
   have raised it (`refusals`) waits for the next attempt: a program that calls again and again must not spin.
8. A broker that is said not to know what every broker knows is asked anew what it knows, on another connection: what it
   said when this one was opened may have been damaged on the way.
9. An idle connection is left open: the broker closes it, by its own connections.max.idle.ms. The next request that
   needs the connection opens it again, once the back-off has passed.

Laws of the back-off (`Backoff`): exponential, with jitter, bounded (KIP-580)
B1. It belongs to a purpose: it grows with each failure, until the purpose succeeds.
B2. Where many of a kind fail one by one (partitions of one broker), `together` lets them end at the same moments: so
    they are tried again in one request, and the thread wakes for all of them at once.

Laws of denials (`Denials`): a connection may lead to another machine, and that one denies what only the leader serves
D1. The broker's name led there when the connection was opened. So it is closed where one thing was denied on it for
    `DOUBTED_AFTER`: not at once, since a broker that has just started may deny for a while, and each connection costs
    it a handshake.
D2. Two that are far apart do not count together: something may have been served meanwhile. (Those of a leader's offsets
    do: look-ups may be rare, and all that is served is told.) Nor do two of which each came on another connection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from instride._core.events import ErrorRaised
from instride._core.metrics.meters import NetworkMeter
from instride._core.network.actions import (
    Action,
    CloseConnection,
    ConnectionKey,
    Deliver,
    OpenConnection,
    Role,
    Transmit,
)
from instride._wire.api import (
    Fetch,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    ListOffsets,
    Metadata,
    OffsetCommit,
    OffsetFetch,
    Request,
    Response,
    SyncGroup,
)
from instride.config import ConsumerConfig
from instride.errors import (
    AuthenticationError,
    FrameTooLargeError,
    KafkaTimeoutError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
)

__all__ = [
    "Address",
    "Backoff",
    "Connections",
    "DOUBTED_AFTER",
    "Denials",
    "NO_FAILURE",
    "NoFailure",
    "NotSentError",
    "OnDone",
    "Wanted",
    "forget",
]


_JITTER = 0.2


class Backoff:
    """Counts failures of one thing. `random` gives numbers in [0, 1)."""

    __slots__ = ("_high", "_low", "_random", "_together", "failures", "ready_at")

    def __init__(self, low: float, high: float, random: Callable[[], float], *, together: bool = False) -> None:
        self._low = low
        self._high = high
        self._random = random
        self._together = together
        self.failures = 0
        self.ready_at = 0.0

    def failed(self, now: float, *, at_least: float = 0.0) -> None:
        """at_least: seconds, for what must not be tried often."""
        delay = max(at_least, min(self._high, self._low * 2.0 ** min(self.failures, 30)))
        self.failures += 1
        self.ready_at = now + max(at_least, delay * (1 + _JITTER * (2 * self._random() - 1)))
        if self._together:  # B2: at the next whole multiple of a quarter of the delay
            self.ready_at = math.ceil(self.ready_at / delay * 4) * delay / 4

    def succeeded(self) -> None:
        self.failures = 0
        self.ready_at = 0.0

    def ready(self, now: float) -> bool:
        return now >= self.ready_at

    def is_over(self, now: float) -> bool:
        """Whether its last failure is so long ago that it may be forgotten (B1)."""
        return now >= self.ready_at + 2 * self._high


class NoFailure:
    """In place of the `Backoff` of what has not failed yet. It never changes, so one of them serves all."""

    __slots__ = ()
    ready_at: Final = 0.0

    def succeeded(self) -> None:
        pass

    def ready(self, now: float) -> bool:
        return True


NO_FAILURE: Final = NoFailure()


def forget(backoffs: dict[int, Backoff], brokers: Container[int], now: float) -> list[int]:
    """Drop, and return, the nodes that are no brokers any more: a broker may make up others for ever."""
    gone = [node_id for node_id, each in backoffs.items() if node_id not in brokers and each.is_over(now)]
    for node_id in gone:
        del backoffs[node_id]
    return gone


DOUBTED_AFTER: Final = 5.0
"""D1, in seconds."""
_DENIALS_TOGETHER: Final = 30.0


class Denials:
    """For how long one thing is denied: a coordinator, say. Where it is served, its next denials are counted anew."""

    __slots__ = ("_since", "last")

    def __init__(self) -> None:
        self._since, self.last = float("inf"), float("-inf")

    def came(self, now: float, *, rarest: float) -> None:
        """rarest: how many seconds may be between two requests for it."""
        if self.last < self._since or self.are_over(now, rarest=rarest):
            self._since = now
        self.last = now

    def are_over(self, now: float, *, rarest: float) -> bool:
        """D2: whether one that comes now does not count together with the last."""
        return now - self.last > max(_DENIALS_TOGETHER, 2 * rarest)

    def count_anew(self) -> None:
        """What comes from now on."""
        self._since = float("inf")

    @property
    def lasted(self) -> float:
        """Seconds from the first to the last; below zero where there is none."""
        return self.last - self._since


Address = tuple[str, int]
OnDone = Callable[[Response | Exception, float], None]
"""Called with the response or error, and the time."""
Wanted = Callable[[float], bool]
"""Whether a request is still to be sent, at that time."""
_REFUSED_BACKOFF = 1.0
# Every broker that we speak to has a version of these (law 8).
_KNOWN_TO_ALL = (
    Fetch,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    ListOffsets,
    Metadata,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
# A user who does not poll is told again, but not often: what is told waits in a queue.
_TOLD_AGAIN = 5.0


class NotSentError(Exception):
    """The end of a request that nobody wanted any more when its connection was open. It reaches no user."""


def _always(_now: float) -> bool:
    return True


class _State(Enum):
    CLOSED = auto()
    OPENING = auto()
    READY = auto()


@dataclass(slots=True, kw_only=True)
class _Pending:
    request_id: int
    request: Request
    on_done: OnDone
    deadline: float
    wanted: Wanted
    on_sent: Callable[[], None] | None = None
    sent_at: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Link:
    backoff: Backoff
    address: Address = ("", 0)
    state: _State = _State.CLOSED
    opening_deadline: float = 0.0
    standing: str = ""  # while it is opened: how far it came
    failure: Exception | None = None  # why it was closed last; none since it was open
    waiting: list[_Pending] = field(default_factory=list)
    in_flight: dict[int, _Pending] = field(default_factory=dict)

    def idle(self, now: float) -> bool:
        """Whether nothing is lost where it is made anew."""
        return self.state is _State.CLOSED and not self.waiting and self.backoff.is_over(now)

    @property
    def has_nothing_due(self) -> bool:
        return not (self.in_flight or self.waiting or self.state is _State.OPENING)


class Connections:
    """All connections of one consumer. Not thread-safe: the network machine owns it."""

    def __init__(self, config: ConsumerConfig, random: Callable[[], float], out: list[Action]) -> None:
        self._config = config
        self._random = random
        self._out = out
        self._links: dict[ConnectionKey, _Link] = {}
        self._where: dict[int, ConnectionKey] = {}
        self._requests = 0
        self.on_broken: list[Callable[[ConnectionKey, Exception], None]] = []
        # Called when an open connection has closed, before its requests end; not for one that was only being opened.
        self.on_closed: list[Callable[[ConnectionKey], None]] = []
        self.closing = False
        self.ever_connected = False  # and had a response
        self.last_error: Exception | None = None
        self.refused: AuthenticationError | None = None
        self.refusals = 0  # how often one came
        self._told_at: float | None = None
        self.meter = NetworkMeter()
        self.round_trip = 0.0
        # Those with a request, or that are being opened; idle ones may be among them until the next look.
        self._busy: dict[ConnectionKey, _Link] = {}
        # Nothing is late, and no back-off over, before that. It may be too early where what it stood for has ended.
        self._next_due = float("inf")
        self._due_is_exact = True

    # -- the core's side

    def send(
        self,
        key: ConnectionKey,
        address: Address,
        request: Request,
        on_done: OnDone,
        now: float,
        *,
        timeout: float | None = None,
        wanted: Wanted = _always,
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        """Hand a request over; `on_done` hears of its end. timeout: seconds, else request_timeout.

        wanted: asked when the connection is open, which may be much later; else it ends with `NotSentError`.
        on_sent: called when it is put on the connection: from then on the broker may have it.
        """
        self._requests += 1
        pending = _Pending(
            request_id=self._requests,
            request=request,
            on_done=on_done,
            deadline=now + (self._config.request_timeout if timeout is None else timeout),
            wanted=wanted,
            on_sent=on_sent,
        )
        link = self._link(key)
        link.address = address
        self._where[pending.request_id] = key
        link.waiting.append(pending)
        self._busy[key] = link
        self._next_due = min(self._next_due, pending.deadline)
        self._advance(key, link, now)

    def is_ready(self, key: ConnectionKey) -> bool:
        link = self._links.get(key)
        return link is not None and link.state is _State.READY

    def backing_off(self, key: ConnectionKey, now: float) -> bool:
        link = self._links.get(key)
        return link is not None and link.state is _State.CLOSED and not link.backoff.ready(now)

    def busy(self, key: ConnectionKey) -> bool:
        link = self._links.get(key)
        return link is not None and bool(link.waiting or link.in_flight)

    def in_flight(self, key: ConnectionKey) -> bool:
        """Whether a request was put on the connection and has no response yet."""
        link = self._links.get(key)
        return link is not None and bool(link.in_flight)

    def leads_to(self, key: ConnectionKey, address: Address) -> bool:
        """False: it is open, or being opened, to another one; or a request waits for that."""
        link = self._links.get(key)
        return link is None or not _leads_elsewhere(link, address)

    def close(self, key: ConnectionKey, error: Exception, now: float, *, abort: bool = False) -> None:
        """Drop a connection; its requests end with the error. abort: they must not reach the broker any more."""
        link = self._links.get(key)
        if link is None:
            return
        if link.state is not _State.CLOSED:
            self._out.append(CloseConnection(key=key, abort=abort and bool(link.in_flight)))
            self.meter.connection_closed(now, None, ready=link.state is _State.READY)
        self._has_closed(key, link)
        self._due_is_exact = False
        self._fail_all(link, error, now)

    def keep(self, brokers: Mapping[int, Address], now: float) -> None:
        """Close connections to brokers that have left the metadata, or have another address there. What waits for such
        a connection ends: else that address would be dialled once more, at the end of the back-off.

        Those to the coordinator are its own affair: it may be met again before the metadata knows it.
        """
        for key, link in list(self._links.items()):
            if key.role in (Role.DATA, Role.TAIL) and _leads_elsewhere(link, brokers.get(key.node_id)):
                self.close(key, TransportError(f"{_name(link)} is not the address of a broker any more"), now)
            if key.role is not Role.BOOTSTRAP and key.node_id not in brokers and link.idle(now):
                del self._links[key]

    def polled(self) -> None:
        """The application polls: it has heard, or will at once hear, what it was told."""
        self._told_at = None

    @property
    def awaits_poll(self) -> bool:
        """Whether a poll changes what is told next."""
        return self._told_at is not None

    def close_all(self, now: float) -> None:
        self.closing = True
        self._close_each("the consumer is closing", now, abort=False)

    def abandon_all(self, why: str, now: float) -> None:
        """No broker that is known is to be spoken to any more."""
        self._close_each(why, now, abort=True)

    def _close_each(self, why: str, now: float, *, abort: bool) -> None:
        for key in list(self._links):
            self.close(key, TransportError(why), now, abort=abort)

    # -- the shell's side

    def opening(self, key: ConnectionKey, standing: str) -> None:
        link = self._links.get(key)
        if link is not None and link.state is _State.OPENING:
            link.standing = standing

    def opened(self, key: ConnectionKey, now: float) -> None:
        link = self._links.get(key)
        if link is None or link.state is not _State.OPENING:
            return
        link.state = _State.READY
        self._due_is_exact = False
        link.failure = None
        self.meter.connection_opened(now)
        link.backoff.succeeded()
        self.refused = None
        self._advance(key, link, now)

    def closed(self, key: ConnectionKey, error: Exception, now: float) -> None:
        link = self._links.get(key)
        if link is None or link.state is _State.CLOSED:
            return
        was_ready = link.state is _State.READY
        self._due_is_exact = False
        self.meter.connection_closed(now, error, ready=was_ready)
        blamed, broken = None, error
        if link.state is _State.READY and isinstance(error, ProtocolError):
            # The response that broke the rules was given to its request; the others were only on the same connection.
            blamed = self._blamed(link, error)
            error = TransportError(f"the connection was given up: {error}")
        self._has_closed(key, link)
        if isinstance(error, AuthenticationError):
            link.backoff.failed(now, at_least=_REFUSED_BACKOFF)
            error = self._was_refused(error, now)
        else:
            link.backoff.failed(now)
        self.last_error = link.failure = error
        self._fail_all(link, error, now)
        if was_ready:
            for hook in self.on_broken:
                hook(key, error)
        if blamed is not None:
            blamed.on_done(broken, now)

    def _has_closed(self, key: ConnectionKey, link: _Link) -> None:
        state, link.state = link.state, _State.CLOSED
        if state is _State.READY:
            for hook in self.on_closed:
                hook(key)

    def _blamed(self, link: _Link, error: ProtocolError) -> _Pending | None:
        """A frame over the bound came to nobody as a response: it is the oldest's, since brokers respond in order."""
        if not isinstance(error, FrameTooLargeError) or not link.in_flight:
            return None
        oldest = link.in_flight.pop(next(iter(link.in_flight)))
        self._where.pop(oldest.request_id, None)
        return oldest

    def response_received(self, request_id: int, result: Response | Exception, now: float) -> None:
        key = self._where.pop(request_id, None)
        pending = self._links[key].in_flight.pop(request_id, None) if key is not None else None
        if pending is not None and key is not None:
            if pending.deadline <= self._next_due:
                self._due_is_exact = False
            self.ever_connected |= not isinstance(result, Exception)
            if key.role is Role.COORDINATOR and not isinstance(result, Exception):
                took = now - pending.sent_at
                self.round_trip = max(took, (self.round_trip + took) / 2)
            self.meter.response_received(pending.request, result, pending.sent_at, now)
            pending.on_done(result, now)
            if isinstance(result, UnsupportedVersionError) and isinstance(pending.request, _KNOWN_TO_ALL):
                why = f"{_name(self._links[key])} is asked anew for its versions"
                self._give_up(key, self._links[key], why, now)

    # -- time

    def expire(self, now: float) -> None:
        if now < self._next_due:
            return
        for key, link in list(self._busy.items()):
            if now < self._link_deadline(link):
                continue
            late = [each for each in (*link.in_flight.values(), *link.waiting) if now >= each.deadline]
            if link.state is _State.OPENING and now >= link.opening_deadline:
                standing = f": {link.standing}" if link.standing else ""
                why = f"no connection to {_name(link)} within connection_setup_timeout{standing}"
                self._give_up(key, link, why, now)
            # A broker responds in order: while one response is missing, those of all later requests are, too.
            elif any(each.request_id in link.in_flight for each in late):
                self._give_up(key, link, f"no response from {_name(link)} within request_timeout", now)
            else:
                self._expire_waiting(link, late, now)
                self._advance(key, link, now)
        self._due_is_exact = False

    def deadline(self) -> float:
        """A turn costs by what is under way, not by the connections that are idle."""
        if not self._due_is_exact:
            for key in [key for key, link in self._busy.items() if link.has_nothing_due]:
                del self._busy[key]
            self._next_due = min(map(self._link_deadline, self._busy.values()), default=float("inf"))
            self._due_is_exact = True
        return self._next_due

    def _link_deadline(self, link: _Link) -> float:
        times = [each.deadline for each in (*link.in_flight.values(), *link.waiting)]
        if link.state is _State.OPENING:
            times.append(link.opening_deadline)
        elif link.state is _State.CLOSED and link.waiting:
            times.append(link.backoff.ready_at)
        return min(times, default=float("inf"))

    # -- inside

    def _link(self, key: ConnectionKey) -> _Link:
        link = self._links.get(key)
        if link is None:
            config = self._config
            backoff = Backoff(config.reconnect_backoff, config.reconnect_backoff_max, self._random)
            link = self._links[key] = _Link(backoff=backoff)
        return link

    def _advance(self, key: ConnectionKey, link: _Link, now: float) -> None:
        if link.state is _State.READY:
            waiting, link.waiting = link.waiting, []
            for pending in waiting:
                if pending.wanted(now):
                    link.in_flight[pending.request_id] = pending
                    pending.sent_at = now
                    if pending.on_sent is not None:
                        pending.on_sent()
                    self.meter.request_sent(pending.request, now)
                    self._out.append(Transmit(key=key, request_id=pending.request_id, request=pending.request))
                else:
                    self._where.pop(pending.request_id, None)
                    pending.on_done(NotSentError("nobody wants it any more"), now)
        elif link.state is _State.CLOSED and link.waiting:
            if not link.backoff.ready(now):
                self._next_due = min(self._next_due, link.backoff.ready_at)
                return
            link.state, link.standing = _State.OPENING, ""
            link.opening_deadline = now + self._config.connection_setup_timeout
            self._next_due = min(self._next_due, link.opening_deadline)
            self._out.append(OpenConnection(key=key, host=link.address[0], port=link.address[1]))

    def _was_refused(self, error: AuthenticationError, now: float) -> TransportError:
        """Law 7. Returns what the requests get to hear."""
        self.refused = error
        self.refusals += 1
        if self._told_at is None or now - self._told_at >= _TOLD_AGAIN:
            self._told_at = now
            self._out.append(Deliver(event=ErrorRaised(error=error)))
        broken = TransportError(str(error))
        broken.__cause__ = error
        return broken

    def _give_up(self, key: ConnectionKey, link: _Link, why: str, now: float) -> None:
        # By a reset: a request that was given up must not reach the broker later, behind the one that takes its place.
        late = link.state is _State.OPENING
        self._out.append(CloseConnection(key=key, abort=bool(link.in_flight), late=late))
        self.closed(key, TransportError(why), now)

    def _expire_waiting(self, link: _Link, late: list[_Pending], now: float) -> None:
        for pending in late:
            link.waiting.remove(pending)
            self._where.pop(pending.request_id, None)
        last = f"; it failed last with: {link.failure}" if link.failure is not None else ""
        for pending in late:  # none of them is known here any more, whatever the end of another does
            pending.on_done(KafkaTimeoutError(f"no connection to {_name(link)} within the timeout{last}"), now)

    def _fail_all(self, link: _Link, error: Exception, now: float) -> None:
        # All are forgotten before the first one hears of it, since its `on_done` may send the next request here.
        failed = [*link.in_flight.values(), *link.waiting]
        link.in_flight.clear()
        link.waiting.clear()
        for pending in failed:
            self._where.pop(pending.request_id, None)
        for pending in failed:
            pending.on_done(error, now)


def _leads_elsewhere(link: _Link, address: Address | None) -> bool:
    in_use = link.state is not _State.CLOSED or bool(link.waiting)
    return in_use and link.address != address


def _name(link: _Link) -> str:
    return f"{link.address[0]}:{link.address[1]}"
