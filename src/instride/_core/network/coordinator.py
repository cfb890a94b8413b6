"""The coordinator connection (T): DOWN -> INITIALIZED -> COORDINATOR_DISCOVERY -> STABLE.

Laws
1. It stays INITIALIZED until an event needs a coordinator.
2. COORDINATOR_DISCOVERY has one FindCoordinator under way. It fails: back to INITIALIZED, and again after a back-off.
3. STABLE ends when a broker says that it is not the coordinator, or its connection breaks. When another one is found,
   a Join that is pending at the old one is ended.
4. A refusal (a group that may not be read, say) is told, and again while it stands; the search goes on, so that a right
   granted later is enough.
5. Where a connection to it has broken, or it has another address now, a Join that is pending is ended as well, though
   its node is the same: a machine that went without a word, and came back, knows nothing of that connection.
6. A connection may lead to another machine than the coordinator (`Denials`). So where the node that is found has
   another address, or has denied for 5 s, its connections are closed; then its denials count anew, so a broker that
   denies for long is not connected to all the time. They also do after a good heartbeat of a stable member. A Join in
   flight stays where only others were denied: that machine would have responded at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

from instride._core.network.actions import ConnectionKey, Role
from instride._core.network.cluster import Cluster
from instride._core.network.connections import DOUBTED_AFTER, Address, Denials, OnDone, Wanted
from instride._core.network.context import Context
from instride._core.ownership import IllegalTransitionError
from instride._wire import api
from instride.errors import BrokerResponseError, KafkaError, TransportError, error_for_code
from instride.errors.codes import COORDINATOR_MOVED, ErrorCode

__all__ = ["TRANSITIONS", "Coordinator", "CoordinatorInput", "CoordinatorState", "next_coordinator_state"]


class CoordinatorState(Enum):
    DOWN = "the machine has not started"
    INITIALIZED = "started; nobody needs a coordinator, or the last search failed"
    COORDINATOR_DISCOVERY = "FindCoordinator is under way"
    STABLE = "the coordinator is known"


class CoordinatorInput(Enum):
    STARTED = "the machine starts"
    NEEDED = "an event needs the coordinator"
    FOUND = "the FindCoordinator response names a broker"
    FAILED = "FindCoordinator failed or timed out"
    LOST = "not the coordinator any more, or disconnected"
    CLOSED = "the consumer closes"


_S = CoordinatorState
_I = CoordinatorInput

TRANSITIONS: Final[dict[tuple[CoordinatorState, CoordinatorInput], CoordinatorState]] = {
    (_S.DOWN, _I.STARTED): _S.INITIALIZED,
    (_S.INITIALIZED, _I.NEEDED): _S.COORDINATOR_DISCOVERY,
    (_S.INITIALIZED, _I.CLOSED): _S.DOWN,
    (_S.COORDINATOR_DISCOVERY, _I.FOUND): _S.STABLE,
    (_S.COORDINATOR_DISCOVERY, _I.FAILED): _S.INITIALIZED,
    (_S.COORDINATOR_DISCOVERY, _I.CLOSED): _S.DOWN,
    (_S.STABLE, _I.LOST): _S.INITIALIZED,
    (_S.STABLE, _I.CLOSED): _S.DOWN,
}


def next_coordinator_state(state: CoordinatorState, event: CoordinatorInput) -> CoordinatorState:
    """The state after the event. Raises `IllegalTransitionError` where the table has no row."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"coordinator: {event.name} in {state.name}") from None


class Coordinator:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster) -> None:
        self._context = context
        self._cluster = cluster
        self._backoff = context.backoff()
        self._needed = False
        self.state = CoordinatorState.DOWN
        self.node_id = -1
        self._address: Address = ("", 0)
        self._refusal: Exception | None = None
        self._refusals = 0
        self._broken = False
        self._denials = Denials()
        context.connections.on_broken.append(self._connection_broke)
        context.connections.on_closed.append(self._connection_closed)
        cluster.on_abandoned.append(self.lost)

    def move(self, event: CoordinatorInput) -> None:
        self.state = next_coordinator_state(self.state, event)
        self._context.touch()

    @property
    def refused(self) -> Exception | None:
        """Why nobody finds the coordinator for us: the group may not be read, or no broker takes our credentials."""
        return self._refusal or self._context.connections.refused

    @property
    def refusals(self) -> int:
        """How often somebody said so: more, where another attempt was refused."""
        return self._refusals + self._context.connections.refusals

    @property
    def known(self) -> bool:
        return self.state is CoordinatorState.STABLE

    def need(self) -> bool:
        """Whether the coordinator is known; if not, it will be looked for."""
        if not self.known:
            self._needed = True
        return self.known

    def lost(self, why: object) -> None:
        """A broker or its connection said that this is not the coordinator any more."""
        if self.known:
            self._context.log(logging.INFO, f"coordinator node {self.node_id} is gone: {why}")
            self._broken = isinstance(why, TransportError | TimeoutError)
            if isinstance(why, BrokerResponseError) and why.code in COORDINATOR_MOVED:
                config = self._context.config
                rarest = max(config.heartbeat_interval, config.retry_backoff_max)
                self._denials.came(self._context.now, rarest=rarest)
            self.move(CoordinatorInput.LOST)

    def served(self) -> None:
        """It accepts what a member requests, and nothing waits for a Join, whose connection may lead elsewhere."""
        self._denials = Denials()

    def _connection_closed(self, key: ConnectionKey) -> None:
        """No denial was on the one that is opened next."""
        if key.node_id == self.node_id and key.role in (Role.COORDINATOR, Role.JOIN):
            self._denials = Denials()

    def _connection_broke(self, key: ConnectionKey, error: Exception) -> None:
        if key == ConnectionKey(Role.COORDINATOR, self.node_id):
            self.lost(error)

    def drop_join(self, now: float, why: str) -> None:
        """Close the connection of Join and Sync: a Join may be pending there for minutes, and others wait behind it."""
        self._context.connections.close(ConnectionKey(Role.JOIN, self.node_id), TransportError(why), now)

    def send(self, request: api.Request, on_done: OnDone, now: float, *, timeout: float | None = None) -> None:
        """On the coordinator connection: heartbeats, committed offsets, leaving."""
        self._send(Role.COORDINATOR, request, on_done, now, timeout)

    def send_if(
        self, wanted: Wanted, request: api.Request, on_done: OnDone, now: float, *, on_sent: Callable[[], None]
    ) -> None:
        """On the same connection, once it is open, if that is then still wanted: commits. on_sent: called then."""
        key = ConnectionKey(Role.COORDINATOR, self.node_id)
        self._context.connections.send(key, self._address, request, on_done, now, wanted=wanted, on_sent=on_sent)

    def send_join(
        self,
        request: api.Request,
        on_done: OnDone,
        now: float,
        *,
        timeout: float | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        """On the connection that Join and Sync have for themselves. on_sent: called when it is put on that."""
        self._send(Role.JOIN, request, on_done, now, timeout, on_sent)

    def join_in_flight(self) -> bool:
        """Whether a Join or Sync is on its connection; else it waits for that."""
        return self._context.connections.in_flight(ConnectionKey(Role.JOIN, self.node_id))

    def _send(
        self,
        role: Role,
        request: api.Request,
        on_done: OnDone,
        now: float,
        timeout: float | None,
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        key = ConnectionKey(role, self.node_id)
        self._context.connections.send(key, self._address, request, on_done, now, timeout=timeout, on_sent=on_sent)

    def poll(self, now: float) -> float:
        if self.state is not CoordinatorState.INITIALIZED or not self._needed:
            return float("inf")
        if not self._cluster.brokers:
            return float("inf")  # the bootstrap connection is closed once the brokers are known: ask these
        if not self._backoff.ready(now):
            return self._backoff.ready_at
        group_id = self._context.config.group_id
        assert group_id is not None
        self.move(CoordinatorInput.NEEDED)
        key, address = self._cluster.any_node(now)
        self._context.connections.send(
            key, address, api.FindCoordinator(group_id=group_id), lambda r, t: self._on_response(key, r, t), now
        )
        return float("inf")

    def _on_response(self, key: ConnectionKey, result: api.Response | Exception, now: float) -> None:
        # It was closed meanwhile.
        if self.state is not CoordinatorState.COORDINATOR_DISCOVERY:
            return
        if isinstance(result, api.FindCoordinatorResponse) and result.error == ErrorCode.NONE:
            self._needed = False
            self._refusal = None
            self._context.standing.passed("coordinator")
            self._backoff.succeeded()
            self._close_old(result.node_id, (result.host, result.port), now)
            self.node_id = result.node_id
            self._address = (result.host, result.port)
            self.move(CoordinatorInput.FOUND)
            return
        self._backoff.failed(now)
        self.move(CoordinatorInput.FAILED)
        if isinstance(result, Exception):  # no response, or none that could be read: another broker may do better
            self._cluster.no_response(key)
            self._cluster.refresh()
        self._refused(result, now)
        self._context.log(logging.DEBUG, f"FindCoordinator failed: {result}")

    def _close_old(self, node_id: int, address: Address, now: float) -> None:
        """Laws 3, 5 and 6: what is of no use now that the coordinator was found there."""
        # A Join that is pending at the old coordinator, or on a half-open connection, would have no response ever.
        if node_id != self.node_id:
            self._denials = Denials()
            self.drop_join(now, "the coordinator has moved")
        elif self._broken:
            self.drop_join(now, "another connection to the coordinator has broken")
        self._broken = False
        denied = self._denials.lasted >= DOUBTED_AFTER
        connections = self._context.connections
        for role in (Role.COORDINATOR, Role.JOIN):
            key = ConnectionKey(role, node_id)
            stays = role is Role.JOIN and connections.in_flight(key)
            if not connections.leads_to(key, address) or (denied and not stays):
                connections.close(key, TransportError("another was opened to the coordinator"), now, abort=True)

    def _refused(self, result: api.Response | Exception, now: float) -> None:
        """Law 4."""
        error = result
        if isinstance(result, api.FindCoordinatorResponse):
            group = self._context.config.group_id
            error = error_for_code(result.error, f"group {group!r}: {result.error_message or 'refused'}")
        if isinstance(error, KafkaError) and _is_final(error):
            self._refusal = error
            self._refusals += 1
            self._context.standing.stands("coordinator", error, now)


def _is_final(error: KafkaError) -> bool:
    """A broker that knows not what went wrong with it may know better the next time."""
    return not error.retriable and getattr(error, "code", 0) != ErrorCode.UNKNOWN_SERVER_ERROR
