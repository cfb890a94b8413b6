"""Telling the group that a member leaves (docs/rebalance.md, rules 12 and 19).

Laws
1. It is tried again where that can help, with a search for the coordinator and a back-off between: until the broker
   answers, or the session has ended, after which the broker needs no telling.
2. A broker that knows no such member, or another one in its place, has been told: the group waits for nobody.
3. Who asked for it hears how it ended, once, and truly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from instride.core.network.backoff import Backoff
from instride.core.network.codes import FENCED_INSTANCE_ID, MOVED, UNKNOWN_MEMBER_ID
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator
from instride.errors import KafkaError, KafkaTimeoutError, error_for_code
from instride.wire import api

__all__ = ["Leaving"]

_LEFT = (0, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID)


@dataclass(slots=True, kw_only=True, eq=False)
class _Farewell:
    """One LeaveGroup, until it is answered for good. until: when the session has ended."""

    request: api.LeaveGroup
    on_done: Callable[[Exception | None], None]
    backoff: Backoff
    until: float
    in_flight: bool = False


class Leaving:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, coordinator: Coordinator) -> None:
        self._context = context
        self._coordinator = coordinator
        self._farewells: list[_Farewell] = []

    def begin(self, request: api.LeaveGroup, on_done: Callable[[Exception | None], None], now: float) -> None:
        """`on_done` hears of the end, at once where it comes at once."""
        until = now + self._context.config.session_timeout
        farewell = _Farewell(request=request, on_done=on_done, backoff=self._context.backoff(), until=until)
        self._farewells.append(farewell)
        self._try(farewell, now)

    def poll(self, now: float) -> float:
        times = [float("inf")]
        for farewell in list(self._farewells):
            if now >= farewell.until:
                self._end(farewell, KafkaTimeoutError("the group was not left before the session ended"))
                continue
            times.append(farewell.until)
            if not farewell.in_flight:
                times.append(self._try(farewell, now))
        return min(times)

    def _try(self, farewell: _Farewell, now: float) -> float:
        if now < farewell.backoff.ready_at:
            return farewell.backoff.ready_at
        if self._coordinator.need():
            farewell.in_flight = True
            self._coordinator.send(
                farewell.request, lambda result, then: self._on_response(farewell, result, then), now
            )
        return float("inf")

    def _on_response(self, farewell: _Farewell, result: api.Response | Exception, now: float) -> None:
        if farewell not in self._farewells:
            return  # the session has ended meanwhile
        farewell.in_flight = False
        self._context.touch()
        error = _error_of(result)
        if error is None or not isinstance(error, KafkaError) or not error.retriable:
            self._end(farewell, error)
            return
        farewell.backoff.failed(now)
        if not isinstance(result, api.LeaveGroupResponse) or result.error in MOVED:
            self._coordinator.lost(error)

    def _end(self, farewell: _Farewell, error: Exception | None) -> None:
        self._farewells.remove(farewell)
        farewell.on_done(error)


def _error_of(result: api.Response | Exception) -> Exception | None:
    """Law 2."""
    if isinstance(result, Exception):
        return result
    code = result.error if isinstance(result, api.LeaveGroupResponse) else 0
    return None if code in _LEFT else error_for_code(code, "the group was not left")
