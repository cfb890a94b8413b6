"""One attempt at a record: what its executor does around the user's handler, in threads and on an event loop alike.

Laws
1. The engine is asked under the lock; deserializers, handlers and the dead-letter producer run without it.
2. A record is deserialized by whoever handles it, so an error of that is the attempt's, and goes the same way.
3. What somebody else cancelled (a task that a handler awaits, say) is an error of its attempt as others are. A bare
   CancelledError says that we were cancelled: it would end the run, and whoever awaits that would take it for his own.
4. Whether an attempt was in time is decided once, before its outputs are produced or its transaction is committed. Of a
   late one nothing stays, and one that was in time is not late because of these.

Whether and when a record is tried again `retries.py` decides; `dead_letters.py` writes a dead letter.
"""

from __future__ import annotations

import logging
import threading
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

from instride._coroutines import refuse_coroutine
from instride._processing.dead_letters import DeadLetter, dead_letter, told
from instride._processing.engine import Batch, Engine, Job, Task, Verdict
from instride._processing.outputs import OutputRecord, outputs_of
from instride._processing.retries import Step
from instride._record_deserializer import RecordDeserializer
from instride.errors import HandlerCancelledError, IllegalStateError

__all__ = ["Attempt", "Desk", "current_attempt", "current_job", "enter_attempt", "is_late", "tells_store", "time_by"]

_logger = logging.getLogger("instride.processing")
_current: Final[ContextVar[Call]] = ContextVar("instride_attempt")
_stop_clock: Final[ContextVar[Callable[[Job], object]]] = ContextVar("instride_stop_clock")


class Call(Protocol):
    """What an attempt is told by: a job, or what a process knows of one."""

    @property
    def attempts(self) -> int: ...

    @property
    def over(self) -> bool: ...

    @property
    def late(self) -> bool: ...


class Attempt:
    """What a handler may know of the call it is in: `current_attempt()`.

    number: 1 for the first attempt at this record. cancelled: whether its result is ignored, since its partition was
    lost, the processor gave it up, or its time is out: it may as well stop. In asyncio it is cancelled besides.
    """

    __slots__ = ("_task",)

    def __init__(self, job: Call) -> None:
        self._task = job

    @property
    def number(self) -> int:
        return self._task.attempts + 1

    @property
    def cancelled(self) -> bool:
        return self._task.over or self._task.late


def current_attempt() -> Attempt:
    """In a handler: its attempt. Raises IllegalStateError elsewhere, in threads that the handler starts too."""
    found = _current.get(None)
    if found is None:
        raise IllegalStateError("current_attempt() is for handlers, while a Processor calls them")
    return Attempt(found)


def current_job() -> Job:
    """In a handler: what the engine knows of its call. Not in a process of `processes=`."""
    job = _current.get()
    assert isinstance(job, Task | Batch)
    return job


def enter_attempt(call: Call) -> None:
    """From here on `current_attempt` tells of it, in this context."""
    _current.set(call)


def time_by(stop_clock: Callable[[Job], object]) -> None:
    """In this context a job is made late by another thread, until `stop_clock` is called with it."""
    _stop_clock.set(stop_clock)


def tells_store(job: Job) -> bool:
    """Whether nothing else of it is due: its letter is acknowledged."""
    return isinstance(job, Task) and job.letter_written


def is_late(job: Job) -> bool:
    """Law 4: from here on its time cannot run out any more."""
    stop_clock = _stop_clock.get(None)
    if stop_clock is not None:
        stop_clock(job)
    return job.late


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What the executors of one run share. attention: makes the loop's poll return; called without the lock.

    clock: seconds. chance: in [0, 1). group: for dead letters. wants_attention, may_start: see `Rounds`; called under
    the lock.
    pass_over: tells a database, if there is one, that a record is dealt with; may raise what the database raises. For
    coroutines what it returns is awaited, unless it is None.
    """

    engine: Engine
    lock: threading.RLock
    reader: RecordDeserializer
    clock: Callable[[], float]
    chance: Callable[[], float]
    attention: Callable[[], object]
    wants_attention: Callable[[], bool]
    dead_letters: str | None
    output: str | None
    group: str
    may_start: Callable[[], bool]
    pass_over: Callable[[Task], Any] = lambda _: None

    def places(self, concurrency: int, is_told: Callable[[], bool]) -> int:
        """Under the lock. For so many handlers, which may be long, and one for what a hand-over alone may wait for: who
        tells a store of a letter, or hands one over. is_told: whether somebody tells of one, or has nothing to do."""
        is_due = self.engine.to_write or (self.engine.to_tell and not is_told())
        return concurrency + (1 if is_due else 0)

    def next_task(self) -> Job | None:
        """Under the lock. What a store is to be told of, or whose letter is due, is in progress: it waits for no leave
        to start."""
        if self.engine.to_tell:
            return self.engine.to_tell.popleft()
        if self.engine.to_write:
            return self.engine.to_write.popleft()
        return self.engine.take(self.clock()) if self.may_start() else None

    def end(self, task: Job, error: BaseException | None, *, is_cancelled: bool = False) -> tuple[Verdict | None, bool]:
        """Under the lock. Whether the loop is to be woken, besides. Raises nothing: whoever called it would end by it,
        and its record be in progress for ever. is_cancelled: the task that makes the attempt (law 3)."""
        verdict: Verdict | None = None
        if error is not None and isinstance(error, CancelledError) and not is_cancelled:
            where = f"{task.lane.partition} at offset {task.offset}"
            cause, error = error, HandlerCancelledError(f"{where}: what its handler awaited was cancelled by another")
            error.__cause__ = cause
        try:
            verdict = self.engine.end(task, error, self.clock(), self.chance())
        except BaseException as broken:  # noqa: BLE001 - a class of errors of the user's, or `Retry.on`, may do anything
            self._fail(broken)
            with suppress(Exception):
                self.engine.put_back(task, was_tried=True)
        return verdict, self.wants_attention()

    def end_handed_over(
        self, task: Job, error: BaseException | None, *, is_cancelled: bool = False
    ) -> tuple[Verdict | None, bool]:
        """The same, of an attempt whose outputs were handed over, and hold no place. If its dead letter is due, whoever
        has one writes it."""
        self.engine.taken_back(task)
        verdict, attention = self.end(task, error, is_cancelled=is_cancelled)
        if verdict is not None and isinstance(task, Task) and task.writes_dead_letter:
            self.engine.to_write.append(task)
        return verdict, attention

    def read(self, job: Job) -> Any:
        """For its handler: a record, or the list of a batch. Raises DeserializationError. Sets `current_attempt`."""
        _current.set(job)
        read = self.reader.read if self.reader else None
        if isinstance(job, Batch):
            return [task.record if read is None else read(task.record) for task in job.tasks]
        return job.record if read is None else read(job.record)

    def fail(self, error: BaseException) -> None:
        """A thread's set-up raised, say: the run ends by it. Takes the lock."""
        with self.lock:
            self._fail(error)
        self.attention()

    def _fail(self, error: BaseException) -> None:
        if self.engine.failure is None:
            self.engine.failure = error

    def outputs(self, job: Job, returned: Any) -> list[OutputRecord]:
        """What is to be produced before the attempt has ended well. Nothing of a job that is over or late.

        Raises TypeError for what is no output, and for a coroutine or a generator, whose code has not run.
        """
        if returned is not None:
            refuse_coroutine(returned)
        found = [] if self.output is None else outputs_of(returned, self.output)
        # Of what failed, or is handled again by whoever comes next, these outputs would be there twice.
        return [] if not found or job.over or is_late(job) else found

    def letter(self, task: Task) -> DeadLetter:
        assert self.dead_letters is not None
        return dead_letter(self.dead_letters, task.record, task.error, task.attempts, self.group)

    def note(self, task: Job, verdict: Verdict) -> None:
        """In the log: sizes and places, never contents. Without the lock."""
        where = task.lane.partition
        if verdict.step is Step.RETRY:
            number = f"attempt {task.attempts}" if verdict.counts else "an attempt that does not count"
            text = "%s at offset %d: %s failed, tried again in %.1f s: %s"
            _logger.info(text, where, task.offset, number, verdict.after, told(task.error))
        elif verdict.step is Step.SKIP:
            _logger.warning("%s at offset %d: skipped: %s", where, task.offset, told(task.error))
        elif verdict.step is Step.STOP:
            text = "%s at offset %d: failed for good, the processor stops: %s"
            _logger.error(text, where, task.offset, told(task.error))
