"""What the parts of the network machine share: settings, the way out, and the way to the brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from instride.config import ConsumerConfig
from instride.core.events import Assigned, BackgroundEvent, GivenBack, Lost, Revoked, RevokeRequested
from instride.core.network.actions import Action, Deliver, Log
from instride.core.network.backoff import Backoff
from instride.core.network.connections import Connections

__all__ = ["Context"]

_SAY_AGAIN = 30.0


class Context:
    """Passed to every part. `touch` says that something changed, so that the parts are asked again at once.

    config: some of it may change at any time (`config.RunningSettings`); a part that uses that asks anew each time.
    now: the time of what is being handled, for stamps. on_deliver: telemetry, which hears of every event that goes up.
    """

    def __init__(self, config: ConsumerConfig, random: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self.config = config
        self.random = random
        self.wall_clock = wall_clock
        self.out: list[Action] = []
        self.connections = Connections(config, random, self.out)
        self.touched = False
        self.now = 0.0
        self._said: dict[str, float] = {}
        self.on_deliver: Callable[[BackgroundEvent], None] = lambda _event: None

    @property
    def commit_budget(self) -> float:
        """What is kept free before a revoke's deadline, so that a last commit arrives (docs/rebalance.md)."""
        seen = min(2 * self.connections.round_trip, self.config.max_poll_interval / 2)
        return max(self.config.commit_budget, seen)

    def touch(self) -> None:
        self.touched = True

    def deliver(self, event: BackgroundEvent) -> None:
        if isinstance(event, RevokeRequested | GivenBack | Lost | Assigned | Revoked):
            event = replace(event, at=self.now)
        self.on_deliver(event)
        self.out.append(Deliver(event=event))

    def log(self, level: int, message: str) -> None:
        """The same again within half a minute goes at DEBUG: an outage fills no log, and is not forgotten either."""
        if logging.DEBUG < level < logging.ERROR and self._said_lately(message):
            level = logging.DEBUG
        self.out.append(Log(level=level, message=message))

    def _said_lately(self, message: str) -> bool:
        self._said = {each: at for each, at in self._said.items() if self.now < at + _SAY_AGAIN}
        lately = message in self._said
        self._said.setdefault(message, self.now)
        return lately

    def backoff(self) -> Backoff:
        return Backoff(self.config.retry_backoff, self.config.retry_backoff_max, self.random)
