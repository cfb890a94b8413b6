"""What `instride run` decides: when a worker is started, replaced or told to end, and by what the whole ends.

Laws
1. Pure: no process, no clock. Its owner tells it what happened, and does what it returns.
2. A worker that died (by a signal, or with a code that is none of ours), or ended by itself, is replaced after a pause;
   the pause doubles for one that does not live long.
3. A worker whose processor ended by an error, or that cannot begin, ends the whole: the others are stopped.
4. The first signal stops the workers, the second cancels them, a third kills them, and so does the end of the grace.
   One that comes at once after another is the same wish, which a program between us and the sender has passed on.
5. The workers are told by their pipes, not by signals: they may have had the init's signal too (`worker.py`, law 3).
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

__all__ = ["CANNOT_BEGIN", "FAILED", "Action", "Start", "Supervisor", "Tell", "Word"]

FAILED: Final = 1
CANNOT_BEGIN: Final = 2

_BACKOFF, _BACKOFF_MAX = 0.5, 30.0
_LONG_LIFE: Final = 60.0
"""Seconds after which a worker's death is the first again."""
_SAME_WISH: Final = 0.5
"""Seconds in which another signal counts as the one before."""
_CLEAN: Final = (0, -signal.SIGTERM, -signal.SIGINT)
"""Of a worker that is to stop; the others where the signal came before its processor began."""


@dataclass(frozen=True, slots=True)
class Start:
    """A worker for this slot."""

    slot: int


class Word(Enum):
    """How a worker is to end. The value is what its pipe carries; for KILL its process group is sent a SIGKILL."""

    STOP = b"s"
    CANCEL = b"c"
    KILL = b""


@dataclass(frozen=True, slots=True)
class Tell:
    """This word to the slot's worker."""

    slot: int
    word: Word


Action: TypeAlias = Start | Tell

_WORDS: Final = tuple(Word)
"""For the first signal, the second, and each after that."""


@dataclass(slots=True)
class _Slot:
    """alive_since: None while it has no worker. due: when it gets its next one. pause: before that."""

    alive_since: float | None = None
    due: float | None = None
    pause: float = _BACKOFF


class Supervisor:
    """exit_code: of the whole, once no worker is left. grace: seconds from a stop to the kill.

    pauses: of the slots whose worker died, the seconds until the next one.
    """

    def __init__(self, *, workers: int, grace: float) -> None:
        self.exit_code: int | None = None
        self._slots = {number: _Slot() for number in range(workers)}
        self._grace = grace
        self._signals = 0
        self._signalled_at = float("-inf")
        self._code = 0
        self._kill_at: float | None = None

    @property
    def is_stopping(self) -> bool:
        return self._kill_at is not None

    def begin(self, now: float) -> list[Action]:
        return [self._start(number, now) for number in self._slots]

    def ended(self, number: int, code: int, now: float) -> list[Action]:
        """The slot's worker has ended with this code; minus a signal's number, as `subprocess` has it."""
        slot = self._slots[number]
        lived, slot.alive_since = now - (slot.alive_since or now), None
        actions: list[Action] = []
        if code in (FAILED, CANNOT_BEGIN):
            self._code = self._code or code
            actions = [] if self.is_stopping else self._stop(now)
        elif self.is_stopping:
            self._code = self._code or (0 if code in _CLEAN else FAILED)
        else:
            slot.pause = _BACKOFF if lived >= _LONG_LIFE else slot.pause
            slot.due = now + slot.pause
            slot.pause = min(2 * slot.pause, _BACKOFF_MAX)
        if self.is_stopping and not self._alive():
            self.exit_code = self._code
        return actions

    def pause_of(self, number: int, now: float) -> float | None:
        """Seconds until the slot's next worker; None where it gets none."""
        due = self._slots[number].due
        return None if due is None else due - now

    def signalled(self, now: float) -> list[Action]:
        """SIGTERM or SIGINT came to the supervisor."""
        if now - self._signalled_at < _SAME_WISH:
            return []
        self._signalled_at = now
        word = _WORDS[min(self._signals, len(_WORDS) - 1)]
        self._signals += 1
        return self._tell(word) if self.is_stopping else self._stop(now)

    def passed(self, now: float) -> list[Action]:
        """Time has passed."""
        if self._kill_at is not None:
            if now < self._kill_at:
                return []
            self._signals, self._kill_at = len(_WORDS), float("inf")
            return self._tell(Word.KILL)
        return [self._start(number, now) for number, slot in self._slots.items() if slot.due and slot.due <= now]

    def next_due(self) -> float | None:
        """When `passed` has something to do."""
        if self._kill_at is not None:
            return self._kill_at
        return min((slot.due for slot in self._slots.values() if slot.due is not None), default=None)

    def _start(self, number: int, now: float) -> Action:
        slot = self._slots[number]
        slot.alive_since, slot.due = now, None
        return Start(number)

    def _stop(self, now: float) -> list[Action]:
        self._kill_at = now + self._grace
        for slot in self._slots.values():
            slot.due = None
        if not self._alive():
            self.exit_code = self._code
        return self._tell(Word.STOP)

    def _tell(self, word: Word) -> list[Action]:
        return [Tell(each, word) for each in self._alive()]

    def _alive(self) -> list[int]:
        return [number for number, slot in self._slots.items() if slot.alive_since is not None]
