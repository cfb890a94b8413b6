"""What becomes of a record whose handler failed: tried again, written to the dead-letter topic, skipped, or the end.

Laws
1. Pure: time and chance are arguments, nothing is written or waited for.
2. The attempt limit is of one record over all of its owners, where these commit with remembered attempts
   (`commit_metadata`); without that, of one owner.
3. What is no `Exception` (Ctrl-C, SystemExit) is never retried, skipped or dead-lettered: it ends the processing.
4. A record that cannot be deserialized is tried again only where `on` names that error: bytes do not change.
5. An ExceptionGroup (of a handler's task group) is named by classes that name it, or each error in it. A handler's
   request (`SkipRecord`, say) is one also where it is alone in a group; beside other errors it is an error as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias

from instride import _arguments as arguments
from instride.errors import DeserializationError, HandlerDiedError, StorePositionError

__all__ = [
    "REQUESTS",
    "AfterFailure",
    "DeadLetterRecord",
    "Failures",
    "Retry",
    "RetryOn",
    "RetryRecord",
    "SkipRecord",
    "Step",
    "chosen",
    "refuse_wrong_choice",
    "sole",
]

RetryOn: TypeAlias = "type[BaseException] | tuple[type[BaseException], ...] | Callable[[Exception], bool]"
AfterFailure = Literal["stop", "skip", "dead-letter"]


def refuse_wrong_choice(verb: str, on: RetryOn) -> None:
    """Raises TypeError."""
    if not (all(isinstance(each, type) for each in on) if isinstance(on, tuple) else callable(on)):
        raise TypeError(f"{verb}: on must be error classes or a function of the error, not {on!r}")


def chosen(on: RetryOn, error: Exception) -> bool:
    """Whether `on` names this error. That of deserializing only by itself, not by a class above it (law 4)."""
    if not isinstance(on, tuple | type):
        try:
            return bool(on(error))
        except Exception as failed:  # noqa: BLE001 - the record's own error must not be lost
            with suppress(Exception):  # a user's class may do anything
                error.add_note(f"the function that chooses errors raised {failed!r}: not chosen")
            return False
    classes = on if isinstance(on, tuple) else (on,)
    # Law 4: the default `on=Exception` is above it, and shall not name it.
    if isinstance(error, DeserializationError):
        classes = tuple(each for each in classes if issubclass(each, DeserializationError))
    if isinstance(error, classes) or not isinstance(error, ExceptionGroup):
        return isinstance(error, classes)
    return all(chosen(classes, each) for each in error.exceptions)


def sole(error: Exception) -> Exception:
    """What is alone in the groups around it (law 5); else the error itself."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class RetryRecord(Exception):  # noqa: N818 - a handler's request, not an error
    """A handler raises it to be called with the record again. It counts as an attempt.

    after: seconds until then; None: the back-off of the `Retry` policy.
    """

    # For a subclass whose own `__init__` does not call this one.
    after: float | None = None

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else arguments.seconds("RetryRecord", after, name="after")


def _requested(error: RetryRecord) -> float | None:
    """Seconds. None where it says nothing, and where a subclass says what are no seconds."""
    try:
        return None if error.after is None else arguments.seconds("RetryRecord", error.after, name="after")
    except Exception as wrong:  # noqa: BLE001 - a user's class may do anything
        with suppress(Exception):
            error.add_note(f"the back-off of the policy is taken: {wrong!r}")
        return None


class SkipRecord(Exception):  # noqa: N818
    """A handler raises it to leave the record out: it counts as finished, and is counted and logged as skipped."""


class DeadLetterRecord(Exception):  # noqa: N818
    """A handler raises it to have the record written to the dead-letter topic now, whatever attempts are left."""


REQUESTS: Final = (RetryRecord, SkipRecord, DeadLetterRecord)
"""A handler's requests, which are no errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a failed record is tried again. Immutable; any thread may use it.

    attempts: how often a record is handled at most, the first time included; None: without a limit.
    on: which errors: a class, a tuple of them, or a function of the error. `RetryRecord` needs none: it is tried again
        while attempts are left.
    backoff: seconds before the second attempt; doubled for each further one, up to backoff_max.
    jitter: up to this part of a delay is added or taken off by chance.
    Raises TypeError or ValueError for a wrong value.
    """

    attempts: int | None = 5
    on: RetryOn = field(default=Exception)
    backoff: float = 0.5
    backoff_max: float = 60.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.attempts is not None:
            arguments.positive("Retry", "attempts", self.attempts)
        refuse_wrong_choice("Retry", self.on)
        for name in ("backoff", "backoff_max"):
            arguments.seconds("Retry", getattr(self, name), name=name)
        if self.backoff > self.backoff_max:
            raise ValueError(f"Retry: backoff ({self.backoff:g}) is above backoff_max ({self.backoff_max:g})")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"Retry: jitter must be 0 to 1; it is {self.jitter!r}")

    def covers(self, error: Exception) -> bool:
        """Whether `on` names this error (law 4)."""
        return chosen(self.on, error)

    def delay(self, attempts: int, chance: float) -> float:
        """Seconds until the next attempt after so many. chance: in [0, 1)."""
        # Bounded: 2.0 ** 1024 is an OverflowError.
        doubled = self.backoff * 2.0 ** min(attempts - 1, 60)
        return min(doubled, self.backoff_max) * (1 + self.jitter * (2 * chance - 1))

    def is_last(self, attempts: int) -> bool:
        """Whether no attempt is left after so many."""
        return self.attempts is not None and attempts >= self.attempts


NO_RETRY: Final = Retry(attempts=1)
# Without a Retry too: a process may die by no fault of its record (out of memory by a neighbour, say).
_ATTEMPTS_THAT_DIE: Final = 3


class Step(Enum):
    RETRY = "retry"
    DEAD_LETTER = "dead letter"
    SKIP = "skip"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The whole policy. after: what becomes of a record that is not tried again. has_dead_letters: whether there is a
    topic for what raises `DeadLetterRecord`; without one that is a failure as others are."""

    retry: Retry = NO_RETRY
    after: AfterFailure = "stop"
    has_dead_letters: bool = False

    def decide(self, error: BaseException, attempts: int, chance: float) -> tuple[Step, float]:
        """What to do with a record after so many attempts, and for a retry the seconds until then."""
        if not isinstance(error, Exception):
            return Step.STOP, 0.0
        alone = sole(error)
        if isinstance(alone, StorePositionError):
            return Step.STOP, 0.0
        if isinstance(alone, SkipRecord):
            return Step.SKIP, 0.0
        if isinstance(alone, DeadLetterRecord) and self.has_dead_letters:
            return Step.DEAD_LETTER, 0.0
        if isinstance(alone, HandlerDiedError) and attempts < _ATTEMPTS_THAT_DIE:
            return Step.RETRY, self.retry.delay(attempts, chance)
        requested = isinstance(alone, RetryRecord | HandlerDiedError)
        retries = not isinstance(alone, DeadLetterRecord) and (requested or self.retry.covers(error))
        if retries and not self.retry.is_last(attempts):
            after = _requested(alone) if isinstance(alone, RetryRecord) else None
            return Step.RETRY, self.retry.delay(attempts, chance) if after is None else after
        return Step(self.after.replace("-", " ")), 0.0
