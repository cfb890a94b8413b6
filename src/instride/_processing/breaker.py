"""The circuit breaker: while what the handlers depend on is away, nothing is started, and no record is to blame.

Laws
1. Pure: time is an argument; nothing of the user's is called but `CircuitBreaker.on`.
2. Closed, it counts the newest attempts: those that ended well, and those that ended with a chosen error. Other errors
   say nothing of the outage. It opens when so many of the window failed, and then starts nothing for a while.
3. After that while one attempt is started, the probe. It ended well: closed. With a chosen error, or late (its time is
   out, and its thread goes on): open for twice as long. With another error, or given up: another probe, at once.
4. A chosen error counts as an attempt of its record only while the breaker is closed, and if another attempt has ended
   well since the same record failed so before. Otherwise nothing says whether the record or the outage is to blame.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from instride import _arguments as arguments
from instride._processing.retries import DeadLetterRecord, RetryOn, SkipRecord, chosen, refuse_wrong_choice, sole

__all__ = ["Breaker", "CircuitBreaker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """When an outage pauses a processor. Immutable; any thread may use it.

    on: the errors of an outage: a class, a tuple of them, or a function of the error. Choose those that say that a
    service is away, not that it dislikes a record.
    rate: it trips when this part of the newest attempts failed so. attempts: how many of them are looked at.
    pause: seconds until one record probes; doubled after each probe that failed, up to pause_max.
    Raises TypeError or ValueError for a wrong value.
    """

    on: RetryOn
    rate: float = 0.5
    attempts: int = 20
    pause: float = 5.0
    pause_max: float = 60.0

    def __post_init__(self) -> None:
        refuse_wrong_choice("CircuitBreaker", self.on)
        arguments.positive("CircuitBreaker", "attempts", self.attempts)
        for name in ("pause", "pause_max"):
            arguments.seconds("CircuitBreaker", getattr(self, name), name=name)
        if self.pause > self.pause_max:
            raise ValueError(f"CircuitBreaker: pause ({self.pause:g}) is above pause_max ({self.pause_max:g})")
        if not 0 < self.rate <= 1:
            raise ValueError(f"CircuitBreaker: rate must be above 0, and 1 at most; it is {self.rate!r}")

    def chooses(self, error: BaseException | None) -> bool:
        """Whether it is the error of an outage."""
        if not isinstance(error, Exception) or isinstance(sole(error), SkipRecord | DeadLetterRecord):
            return False
        return chosen(self.on, error)


class _Job(Protocol):
    """What is read of a record's or batch's work, and the one thing that is noted there."""

    spared_at: int

    @property
    def over(self) -> bool: ...
    @property
    def late(self) -> bool: ...
    @property
    def writes_dead_letter(self) -> bool: ...


class Breaker:
    """The state of one run. open_until: the time of the next probe; None while it is closed.

    trips: how often it has opened. error: by which it opened, or the newest probe failed; None while it is closed.
    """

    def __init__(self, plan: CircuitBreaker) -> None:
        self.open_until: float | None = None
        self.trips = 0
        self.error: BaseException | None = None
        self._plan = plan
        self._newest: deque[bool] = deque(maxlen=plan.attempts)
        self._pause = plan.pause
        self._probe: _Job | None = None
        self._ended_well = 0

    def lets_start(self, now: float) -> bool:
        """Whether an attempt may be started now (law 3)."""
        if self.open_until is None:
            return True
        if self._probe is not None and self._probe.late:
            # Nobody knows when it ends. Without a pause the next one would hang too, and then all threads.
            self._probe = None
            self._pause_again(now)
        return self.open_until <= now and self._may_probe()

    def next_probe(self) -> float | None:
        """When `lets_start` becomes true by the passing of time."""
        return self.open_until if self._may_probe() else None

    def _may_probe(self) -> bool:
        """Law 3: a probe that was given up has no end to wait for."""
        return self._probe is None or self._probe.over

    def started(self, job: _Job) -> None:
        """After `lets_start`. A dead letter to be written is no probe."""
        if self.open_until is not None and not job.writes_dead_letter:
            self._probe = job

    def was_put_back(self, job: _Job) -> None:
        """It was not handled: another one probes."""
        if self._probe is job:
            self._probe = None

    def ended(self, job: _Job, error: BaseException | None, now: float) -> bool:
        """An attempt ended. Whether it counts as one of its record (law 4)."""
        is_probe, is_chosen = self._probe is job, self._plan.chooses(error)
        if is_probe:
            self._probe = None
        if error is None:
            self._well(is_probe=is_probe)
        if not is_chosen:
            job.spared_at = -1
            return True
        counts = self.open_until is None and -1 < job.spared_at < self._ended_well
        job.spared_at = self._ended_well
        self._badly(error, now, is_probe=is_probe)
        return counts

    def _well(self, *, is_probe: bool) -> None:
        self._ended_well += 1
        if is_probe:
            self.open_until = self.error = None
            self._pause = self._plan.pause
            # What failed in the outage would open it again at the next error.
            self._newest.clear()
        if self.open_until is None:
            self._newest.append(False)

    def _badly(self, error: BaseException | None, now: float, *, is_probe: bool) -> None:
        plan, newest = self._plan, self._newest
        if is_probe:
            self.error = error
            self._pause_again(now)
        # Started before the breaker opened, or late, it says nothing that is not known.
        elif self.open_until is None:
            newest.append(True)
            if len(newest) >= plan.attempts and sum(newest) / plan.attempts >= plan.rate:
                self.trips += 1
                self.error, self.open_until = error, now + self._pause

    def _pause_again(self, now: float) -> None:
        """A probe failed."""
        self._pause = min(2 * self._pause, self._plan.pause_max)
        self.open_until = now + self._pause
