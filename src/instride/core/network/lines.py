"""What is logged, within a bound: an outage fills no log, and is not forgotten either.

Laws
1. Lines are of one kind when they differ only in quoted words and in words with a digit: names, offsets, numbers.
2. Of each kind come at most `_MOST` lines in half a minute. The first one after that says how many did not come.
3. Within those, the very same line again goes at DEBUG, unless it is an error.
4. Texts of brokers may make any number of kinds: beyond `_KINDS` all the others are one.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Lines"]

_WINDOW: Final = 30.0
_MOST: Final = 20
_KINDS: Final = 300
_VARIES: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\S*\d\S*")


@dataclass(slots=True, kw_only=True)
class _Kind:
    began: float
    said: set[str] = field(default_factory=set)
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
        elif message in kind.said and level < logging.ERROR:
            level = min(level, logging.DEBUG)
        kind.said.add(message)
        return level, message

    def _kind(self, message: str, now: float) -> _Kind:
        key = _VARIES.sub("#", message)
        if key not in self._kinds and len(self._kinds) >= _KINDS:
            key = ""
        kind = self._kinds.setdefault(key, _Kind(began=now))
        if now >= kind.began + _WINDOW:
            kind.began, kind.lines = now, 0
            kind.said.clear()
        return kind
