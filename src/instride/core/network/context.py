"""What the parts of the network machine share: settings, the way out, and the way to the brokers."""

from __future__ import annotations

from collections.abc import Callable

from instride.config import ConsumerConfig
from instride.core.events import BackgroundEvent
from instride.core.network.actions import Action, Deliver, Log
from instride.core.network.backoff import Backoff
from instride.core.network.connections import Connections

__all__ = ["Context"]


class Context:
    """Passed to every part. `touch` says that something changed, so that the parts are asked again at once.

    config: some of it may change at any time (`config.RunningSettings`); a part that uses that asks anew each time.
    """

    def __init__(self, config: ConsumerConfig, random: Callable[[], float]) -> None:
        self.config = config
        self.random = random
        self.out: list[Action] = []
        self.connections = Connections(config, random, self.out)
        self.touched = False

    def touch(self) -> None:
        self.touched = True

    def deliver(self, event: BackgroundEvent) -> None:
        self.out.append(Deliver(event=event))

    def log(self, level: int, message: str) -> None:
        self.out.append(Log(level=level, message=message))

    def backoff(self) -> Backoff:
        return Backoff(self.config.retry_backoff, self.config.retry_backoff_max, self.random)
