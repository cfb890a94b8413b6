"""What the parts of the network machine share: settings, the way out, and the way to the brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from instride.config import ConsumerConfig
from instride.core.events import Assigned, BackgroundEvent, ErrorRaised, Lost, Reassigned, RevocationRequested, Revoked
from instride.core.network.actions import Action, Deliver, Log
from instride.core.network.backoff import Backoff
from instride.core.network.connections import Connections
from instride.core.network.lines import Lines
from instride.core.network.standing import Standing

__all__ = ["Context"]


class Context:
    """Passed to every part. `touch` says that something changed, so that the parts are asked again at once.

    config: some of it may change at any time (`config.RunningSettings`); a part that uses that asks anew each time.
    now: the time of what is being handled, for fences. on_deliver: telemetry, which hears of every event that goes up.
    """

    def __init__(self, config: ConsumerConfig, random: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self.config = config
        self.random = random
        self.wall_clock = wall_clock
        self.out: list[Action] = []
        self.connections = Connections(config, random, self.out)
        self.standing = Standing(lambda error: self.deliver(ErrorRaised(error=error)))
        self.touched = False
        self.now = 0.0
        self._lines = Lines()
        self.on_deliver: Callable[[BackgroundEvent], None] = lambda _event: None

    @property
    def commit_budget(self) -> float:
        """What is kept free before a revoke's deadline, so that a last commit arrives (docs/rebalance.md)."""
        seen = min(2 * self.connections.round_trip, self.config.max_poll_interval / 2)
        return max(self.config.commit_budget, seen)

    def touch(self) -> None:
        self.touched = True

    def deliver(self, event: BackgroundEvent) -> None:
        if isinstance(event, RevocationRequested | Reassigned | Lost | Assigned | Revoked):
            event = replace(event, at=self.now)
        self.on_deliver(event)
        self.out.append(Deliver(event=event))

    def log(self, level: int, message: str) -> None:
        """No line comes again and again (`lines`)."""
        line = self._lines.say(level, message, self.now)
        if line is not None:
            self.out.append(Log(level=line[0], message=line[1]))

    def backoff(self, *, together: bool = False) -> Backoff:
        return Backoff(self.config.retry_backoff, self.config.retry_backoff_max, self.random, together=together)
