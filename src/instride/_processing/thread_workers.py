"""Plain handlers in threads. What is started when, the engine decides.

Laws
1. At most `concurrency` handlers at a time, for all partitions together; and one thread more, where all are busy and a
   store is to be told of a dead letter, or one is due since outputs were refused (`Desk.places`), until one of them has
   ended its work. Threads are started when there is work. Of those that wait one is woken at a time: when it has taken
   a record, and there is another one, it wakes the next. So short work wakes few, and what an end makes startable waits
   for no poll. Where the system makes no more threads, those that there are go on; where there is none, the run ends by
   that.
2. Each call has a copy of its thread's context, in which a context variable tells which attempt it is.
3. Threads are daemons: a handler that never ends keeps no program alive. One whose time is out cannot be stopped: its
   attempt has failed, also if it returns, but only when it ends, since until then its key is busy. Another thread
   takes its place meanwhile. Once a handler has returned in time, the producing of its outputs and the commit of its
   transaction make it late no more.
4. An attempt that returned outputs has ended when these are acknowledged. No thread waits for that, but where too many
   are in flight (`OutputWriter`); nor for a dead letter (`LetterWriter`).
5. No thread waits for the lock while another of these threads has it: it leaves its result to that one, and rests. For
   a lock that is handed to a sleeper is a switch of threads for each record, as long as the work is short. (Law 3 is
   the exception: what is produced or committed is no short work.)
6. In a process that a handler forked nothing of ours goes on: it ends where the handler does (`forks.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from instride._processing.attempts import Desk, tells_store, time_by
from instride._processing.dead_letters import LetterWriter, Produce
from instride._processing.engine import Job, Task, Verdict
from instride._processing.lifespan import Lifespan, SyncLifespan
from instride._processing.outputs import OutputWriter

__all__ = ["ThreadWorkers"]

_logger = logging.getLogger("instride.processing")


class _Gate:
    """Where one thread rests until another lets it go on."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        # A bare lock: each wait of an Event makes another one.
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self) -> None:
        self._lock.acquire()

    def open(self) -> None:
        self._lock.release()


class ThreadWorkers:
    """Plain functions, each call in one of so many threads.

    lifespan: of the run, entered. around: the set-up of a thread. timeout: seconds of one attempt, or None.
    """

    def __init__(
        self,
        desk: Desk,
        handle: Callable[[Any], object],
        produce: Produce | None,
        concurrency: int,
        lifespan: SyncLifespan,
        around: Lifespan | None = None,
        timeout: float | None = None,
    ) -> None:
        self._desk = desk
        self._timeout = timeout
        self._timed: dict[Job, float] = {}
        self._late = 0
        self._lifespan = lifespan
        self._around = around
        self._busy: set[threading.Thread] = set()
        self._tellers: set[threading.Thread] = set()
        self._handle = handle
        self._concurrency = concurrency
        self._threads: list[threading.Thread] = []
        # Law 5. What ended, and None where a thread went to rest; dead letters to be written. Whether a thread of ours
        # has the lock, and whether one waits for it: who has seen one of these true has its end looked at after that.
        self._ended: deque[tuple[Job, BaseException | None] | None] = deque()
        self._letters: deque[Job] = deque()
        self._writer = LetterWriter(desk, produce, self._go_on)
        self._outputs = OutputWriter(desk, produce, concurrency, self._go_on)
        self._is_served = False
        self._is_awaited = False
        self._resting: list[_Gate] = []
        self._is_waking = False
        self._told_of_fewer = False
        self._closed = False

    def wake(self) -> None:
        self._writer.look()
        self._outputs.look()
        refused: RuntimeError | None = None
        with self._desk.lock:
            engine = self._desk.engine
            for job in self._find_late():
                _logger.warning("%s at offset %d: its time is out", job.lane.partition, job.offset)
            if not engine.has_next(self._desk.clock()):
                return
            try:
                many = engine.queued + len(engine.to_tell) + len(engine.to_write) - len(self._resting)
                for _ in range(min(many, self._most_threads - len(self._threads))):
                    self._add_thread()
            except RuntimeError as error:
                refused = error
            self._wake_one()
        if refused is not None:
            self._go_on_with_fewer(refused)

    def _add_thread(self) -> None:
        """Under the lock. Raises RuntimeError where the system has no thread left."""
        name = f"instride-handler-{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        # Once it has started: where the system has no thread left, none is counted.
        self._threads.append(thread)

    def _go_on_with_fewer(self, error: RuntimeError) -> None:
        """The next wake-up tries again. Without any thread the run ends: nobody would handle a record."""
        if not self._threads:
            self._desk.fail(error)
        elif not self._told_of_fewer:
            self._told_of_fewer = True
            text = "the system makes no thread for another handler: %d of %d go on (%s)"
            _logger.warning(text, len(self._threads), self._concurrency, error)

    def _wake_one(self) -> None:
        """Under the lock. Of those that rest, if none is on its way: that one wakes the next."""
        if self._resting and not self._is_waking:
            self._is_waking = True
            self._resting.pop().open()

    def _go_on(self) -> None:
        """A store is to be told of a letter, which threads of ours alone may do; or what waited for it, or for outputs,
        is startable."""
        with self._desk.lock:
            self._wake_for_more()

    def _wake_all(self) -> None:
        """Under the lock."""
        while self._resting:
            self._resting.pop().open()

    def _find_late(self) -> list[Job]:
        """Under the lock. Whose time is out since the last look; the oldest is first."""
        found: list[Job] = []
        # One time-out for all: the order of the dict is that of the deadlines.
        while self._timed and self._desk.clock() >= next(iter(self._timed.values())):
            job = next(iter(self._timed))
            del self._timed[job]
            found.append(job)
        if found:
            # It was in time as far as anybody knows: its thread waits for the lock to tell so.
            ended = {each[0] for each in self._ended.copy() if each is not None}
            found = [job for job in found if job not in ended]
        for job in found:
            job.late = True
        self._late += len(found)
        return found

    @property
    def _most_threads(self) -> int:
        """Bounded: handlers that never end would else make threads without end."""
        places = self._desk.places(self._concurrency, lambda: bool(self._tellers or self._resting))
        return places + min(self._late, self._concurrency)

    def cancel(self, tasks: Sequence[Task]) -> None:
        """A thread cannot be stopped: its handler sees `current_attempt().cancelled`."""

    def close(self, patience: float = 0.0) -> None:
        """Threads without work end, within so many seconds; others when their handler does."""
        with self._desk.lock:
            self._closed = True
            self._outputs.close()
            self._wake_all()
            idle = [thread for thread in self._threads if thread not in self._busy]
        until = time.monotonic() + patience
        for thread in idle:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        mine = SyncLifespan(self._lifespan.context)
        try:
            mine.enter(self._around)
        except BaseException as error:  # noqa: BLE001 - it ends the run
            self._desk.fail(error)
            return
        try:
            mine.context.run(self._serve)
        except BaseException as error:  # it would end in silence, and what it has in progress be so for ever
            _logger.exception("a thread of handlers cannot go on")
            self._desk.fail(error)
        try:
            mine.leave()
        except BaseException:
            _logger.exception("the tear-down of a handler's thread failed")

    def _serve(self) -> None:
        me, gate = threading.current_thread(), _Gate()
        if self._timeout is not None:
            time_by(self._stop_clock)
        while True:
            job, stays = self._next(me, gate)
            if not stays:
                return
            if job is None:
                self._rest(gate)
            elif isinstance(job, Task) and job.writes_dead_letter:
                # It may have been given up while it waited for a thread: whoever comes next writes it.
                if not job.over:
                    copy_context().run(self._writer.write, job)
            else:
                copy_context().run(self._work_on, job)

    def _rest(self, gate: _Gate) -> None:
        gate.wait()
        # Without the lock: this thread looks for work next, and finds any for which `_wake_one` woke nobody meanwhile.
        self._is_waking = False

    def _next(self, me: threading.Thread, gate: _Gate) -> tuple[Job | None, bool]:
        """What this thread is to do now; None: it is to rest, and is listed. And whether it stays a thread of ours."""
        self._busy.discard(me)
        self._tellers.discard(me)
        if not self._enters(gate):
            return None, True
        job, stays = None, False
        try:
            told = self._settle()
            stays = bool(self._letters) or not self._is_one_too_many(me)
            if stays:
                job = self._take(me)
                stays = job is not None or not self._closed
                if stays and job is None:
                    self._resting.append(gate)
        finally:
            self._leave()
        self._tell(*told)
        # Law 5: what others left since `_settle` nobody else looks at, for they saw `_is_served`.
        while self._ended and self._looks_again():
            pass
        return job, stays

    def _enters(self, gate: _Gate) -> bool:
        """Take the lock. False: another thread of ours has it, and looks at what this one leaves: it is listed."""
        if self._desk.lock.acquire(blocking=False):
            self._is_served = True
            return True
        self._resting.append(gate)
        # The None makes the other look again. Both are listed before the flags are read: it looks after it has let go.
        self._ended.append(None)
        if self._is_served or self._is_awaited:
            return False
        self._wait_for_lock()
        if gate in self._resting:
            self._resting.remove(gate)
        else:
            self._rest(gate)  # it was woken meanwhile
        return True

    def _wait_for_lock(self) -> None:
        # Until `_leave` one of the two flags is true at each moment, so that nobody else waits.
        self._is_awaited = True
        self._desk.lock.acquire()
        self._is_served = True
        self._is_awaited = False

    def _leave(self) -> None:
        # Before the release: after it the flag may be another thread's.
        self._is_served = False
        self._desk.lock.release()

    def _looks_again(self) -> bool:
        """Others left something while this thread had the lock. False: another one is there to look."""
        if self._desk.lock.acquire(blocking=False):
            self._is_served = True
        elif self._is_served or self._is_awaited:
            return False
        else:
            self._wait_for_lock()
        try:
            told = self._settle()
            self._wake_for_more()
        finally:
            self._leave()
        self._tell(*told)
        return True

    def _settle(self) -> tuple[list[tuple[Job, Verdict]], bool]:
        """Under the lock. What became of all that has ended, as far as it is told; whether the loop is to be woken."""
        verdicts: list[tuple[Job, Verdict]] = []
        wakes, desk = False, self._desk
        while self._ended:
            ended = self._ended.popleft()
            if ended is None:
                continue
            job, error = ended
            verdict, attention = desk.end(job, self._in_time(job, error))
            wakes |= attention
            if verdict is not None:
                verdicts.append((job, verdict))
            if job.writes_dead_letter:
                self._letters.append(job)
        return verdicts, wakes

    def _tell(self, verdicts: list[tuple[Job, Verdict]], wakes_loop: bool, /) -> None:  # noqa: FBT001 - of `_settle`
        """Without the lock."""
        for job, verdict in verdicts:
            self._desk.note(job, verdict)
        if wakes_loop:
            self._desk.attention()

    def _take(self, me: threading.Thread) -> Job | None:
        """Under the lock."""
        job = self._letters.popleft() if self._letters else self._desk.next_task()
        if job is None:
            return None
        self._busy.add(me)
        if tells_store(job):
            self._tellers.add(me)
        self._wake_for_more()
        if self._timeout is not None and not job.writes_dead_letter:
            self._timed[job] = self._desk.clock() + self._timeout
        return job

    def _wake_for_more(self) -> None:
        """Under the lock."""
        if self._closed:
            self._wake_all()
        elif self._resting and not self._is_waking and (self._letters or self._has_next()):
            self._wake_one()

    def _has_next(self) -> bool:
        return self._desk.engine.has_next(self._desk.clock())

    def _is_one_too_many(self, me: threading.Thread) -> bool:
        """Under the lock. It took the place of one that was late, and is back: then it is no thread of ours."""
        # First what costs least: it is evaluated for each record.
        if len(self._threads) <= self._concurrency or len(self._threads) <= self._most_threads:
            return False
        self._threads.remove(me)
        self._wake_for_more()
        return True

    def _in_time(self, job: Job, error: BaseException | None) -> BaseException | None:
        """Under the lock. What its attempt ended by: of a late one by that, whatever it returned or raised."""
        self._timed.pop(job, None)
        if not job.late:
            return error
        self._late -= 1
        late = TimeoutError(f"the attempt took longer than {self._timeout:g} s")
        late.__cause__ = error
        return late

    def _stop_clock(self, job: Job) -> None:
        with self._desk.lock:
            self._timed.pop(job, None)

    def _work_on(self, job: Job) -> None:
        """Its end is left to `_settle`; where outputs are not acknowledged yet, `OutputWriter` tells of it."""
        error: BaseException | None = None
        try:
            returned = self._handle(self._desk.read(job))
            outputs = self._desk.outputs(job, returned)
            if outputs and not self._outputs.hand_over(job, outputs):
                return
        except BaseException as caught:  # noqa: BLE001 - the engine decides what becomes of it
            error = caught
        self._ended.append((job, error))
