"""What the parts of the network machine share: settings, the log, standing errors, the way to the brokers.

Laws of the log (`Lines`): an outage fills no log, and is not forgotten either
1. Lines are of one kind when they differ only in quoted words and in words with a digit: names, offsets, numbers.
2. Of each kind come at most `_MOST` lines in half a minute. The first one after that says how many did not come.
3. Within those, the very same line again goes at DEBUG, unless it is an error.
4. Texts of brokers may make any number of kinds: beyond `_KINDS` all the others are one.

Laws of standing errors (`Standing`): each is raised at once, and again with a growing back-off, until its cause passed
S1. A cause has a key. While it stands its newest error is what is raised; `passed` ends it, in silence.
S2. It is raised again 5 s later, then 10 s, 20 s, 40 s, then each minute, if the application has polled since: an
    application that does not poll would find a queue of the same.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from instride._core.events import (
    Assigned,
    BackgroundEvent,
    CallCompleted,
    CallsCompleted,
    DeadlineMoved,
    ErrorRaised,
    Lost,
    Reassigned,
    RevocationRequested,
    Revoked,
)
from instride._core.network.actions import Action, Deliver, Log
from instride._core.network.connections import Backoff, Connections
from instride.config import ConsumerConfig

__all__ = ["OF_OWNERSHIP", "Context", "Lines", "OwnershipEvent", "Standing"]

_WINDOW: Final = 30.0
_MOST: Final = 20
_KINDS: Final = 300
_VARIES: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\S*\d\S*")


@dataclass(slots=True, kw_only=True)
class _Kind:
    began: float
    logged: set[str] = field(default_factory=set)
    lines: int = 0
    deferred: int = 0


class Lines:
    """Not thread-safe: the network machine owns it."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def say(self, level: int, message: str, now: float) -> tuple[int, str] | None:
        """Level and text of the line to log, or None."""
        kind = self._kind(message, now)
        if kind.lines >= _MOST:
            kind.deferred += 1
            return None
        kind.lines += 1
        if kind.deferred:
            message = f"{message} (and {kind.deferred} more lines like this one before)"
            kind.deferred = 0
        # Once in the window is enough for a reader; an error is never hidden.
        elif message in kind.logged and level < logging.ERROR:
            level = min(level, logging.DEBUG)
        kind.logged.add(message)
        return level, message

    def _kind(self, message: str, now: float) -> _Kind:
        key = _VARIES.sub("#", message)
        # Names that a broker makes up could give kinds without end: from here on they share one.
        if key not in self._kinds and len(self._kinds) >= _KINDS:
            key = ""
        kind = self._kinds.setdefault(key, _Kind(began=now))
        if now >= kind.began + _WINDOW:
            kind.began, kind.lines = now, 0
            kind.logged.clear()
        return kind


_AGAIN: Final = 5.0
_SELDOM: Final = 60.0


@dataclass(slots=True, kw_only=True)
class _Cause:
    """told: the error that was raised last."""

    error: Exception
    backoff: Backoff
    polled: bool = False
    told: Exception | None = None


class Standing:
    """Not thread-safe: the network machine owns it. `tell` raises an error in the application's next poll."""

    def __init__(self, tell: Callable[[Exception], None]) -> None:
        self._tell = tell
        self._causes: dict[str, _Cause] = {}

    def stands(self, key: str, error: Exception, now: float) -> None:
        cause = self._causes.get(key)
        if cause is None:
            cause = self._causes[key] = _Cause(error=error, backoff=Backoff(_AGAIN, _SELDOM, lambda: 0.5))
            self._raise(cause, now)
        # Not raised again at once: the user has heard of it, and the back-off decides when he hears again.
        cause.error = error

    def passed(self, key: str) -> None:
        self._causes.pop(key, None)

    def passed_but(self, kind: str, names: frozenset[str]) -> None:
        """Of a kind (keys "kind name") only these still stand."""
        for key in [key for key in self._causes if key.startswith(f"{kind} ") and key[len(kind) + 1 :] not in names]:
            del self._causes[key]

    @property
    def awaits_poll(self) -> bool:
        """Whether a poll changes what is raised next."""
        return bool(self._causes)

    def polled(self) -> None:
        for cause in self._causes.values():
            cause.polled = True

    def poll(self, now: float) -> float:
        """Returns when to be asked again."""
        for cause in self._causes.values():
            # One error waits at most: without polls they would pile up in the queue.
            if cause.polled and cause.backoff.ready(now):
                self._raise(cause, now)
        return min((each.backoff.ready_at for each in self._causes.values() if each.polled), default=float("inf"))

    def _raise(self, cause: _Cause, now: float) -> None:
        cause.polled = False
        cause.backoff.failed(now)
        if cause.told is cause.error:
            cause.error.with_traceback(None)  # it would grow by the frames of each raise
        cause.told = cause.error
        self._tell(cause.error)


# Not a union in `deliver`: one would be made for each event.
_STAMPED = (RevocationRequested, Reassigned, Lost, Assigned, Revoked)
OF_OWNERSHIP = (*_STAMPED, DeadlineMoved)
OwnershipEvent = RevocationRequested | Reassigned | Lost | Assigned | Revoked | DeadlineMoved


class Context:
    """Passed to every part. `touch` says that something changed, so that the parts are asked again at once.

    config: some of it may change at any time (`config.RunningSettings`); a part that uses that asks anew each time.
    now: the time of what is being handled, for fences. turn: rises when actions leave.
    on_deliver: the monitor, which hears of each event of `OF_OWNERSHIP` before the application does.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        random: Callable[[], float],
        wall_clock: Callable[[], float],
        on_deliver: Callable[[OwnershipEvent], None] = lambda _event: None,
    ) -> None:
        self.config = config
        self.random = random
        self.wall_clock = wall_clock
        self.out: list[Action] = []
        self.connections = Connections(config, random, self.out)
        self.standing = Standing(lambda error: self.deliver(ErrorRaised(error=error)))
        self.touched = False
        self.now = 0.0
        self.turn = 0
        self._lines = Lines()
        self._on_deliver = on_deliver

    @property
    def commit_budget(self) -> float:
        """What is kept free before a revoke's deadline, so that a last commit arrives (docs/rebalance.md)."""
        # To the broker and back, for the commit and for the join after it.
        seen = min(2 * self.connections.round_trip, self.config.max_poll_interval / 2)
        return max(self.config.commit_budget, seen)

    def touch(self) -> None:
        self.touched = True

    def deliver(self, event: BackgroundEvent) -> None:
        if isinstance(event, _STAMPED):
            event = replace(event, at=self.now)
        if isinstance(event, OF_OWNERSHIP):
            self._on_deliver(event)
        self.out.append(Deliver(event=event))

    def take_actions(self) -> list[Action]:
        """All that are to be done now."""
        self.turn += 1
        actions = _gathered(self.out)
        self.out.clear()
        return actions

    def log(self, level: int, message: str) -> None:
        """No line comes again and again (`Lines`)."""
        line = self._lines.say(level, message, self.now)
        if line is not None:
            self.out.append(Log(level=line[0], message=line[1]))

    def backoff(self, *, together: bool = False) -> Backoff:
        return Backoff(self.config.retry_backoff, self.config.retry_backoff_max, self.random, together=together)


def _gathered(actions: list[Action]) -> list[Action]:
    """Calls that were completed one directly after the other are one event, as many as an outage may have gathered."""
    if sum(map(_completes_a_call, actions)) < 2:
        return list(actions)
    gathered: list[Action] = []
    for _, run in groupby(actions, _completes_a_call):
        part = list(run)
        calls = tuple(
            each.event for each in part if isinstance(each, Deliver) and isinstance(each.event, CallCompleted)
        )
        gathered += [Deliver(event=CallsCompleted(calls=calls))] if len(calls) > 1 else part
    return gathered


def _completes_a_call(action: Action) -> bool:
    return isinstance(action, Deliver) and isinstance(action.event, CallCompleted)
