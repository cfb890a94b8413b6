"""Errors that stand: each is raised at once, and again with a growing back-off, until what caused it has passed.

Laws
1. A cause has a key. While it stands its newest error is what is raised; `passed` ends it, in silence.
2. It is raised again 5 s later, then 10 s, 20 s, 40 s, then each minute, if the application has polled since: who does
   not poll would find a queue of the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from instride.core.network.backoff import Backoff

__all__ = ["Standing"]

_AGAIN: Final = 5.0
_SELDOM: Final = 60.0


@dataclass(slots=True, kw_only=True)
class _Cause:
    error: Exception
    backoff: Backoff
    polled: bool = False


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
        cause.error = error

    def passed(self, key: str) -> None:
        self._causes.pop(key, None)

    def passed_but(self, kind: str, names: frozenset[str]) -> None:
        """Of a kind (keys "kind name") only these still stand."""
        for key in [key for key in self._causes if key.startswith(f"{kind} ") and key[len(kind) + 1 :] not in names]:
            del self._causes[key]

    def polled(self) -> None:
        for cause in self._causes.values():
            cause.polled = True

    def poll(self, now: float) -> float:
        """Returns when to be asked again."""
        for cause in self._causes.values():
            if cause.polled and cause.backoff.ready(now):
                self._raise(cause, now)
        return min((each.backoff.ready_at for each in self._causes.values() if each.polled), default=float("inf"))

    def _raise(self, cause: _Cause, now: float) -> None:
        cause.polled = False
        cause.backoff.failed(now)
        self._tell(cause.error)
