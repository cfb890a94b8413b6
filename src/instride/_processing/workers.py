"""Handlers in threads, and coroutine handlers on an event loop. What is started when, the engine decides.

Laws
1. At most `concurrency` handlers at a time, for all partitions together. Threads are started when there is work. Of
   those that wait one is woken at a time: when it has taken a record, and there is another one, it wakes the next. So
   short work wakes few, and what an end makes startable waits for no poll.
2. Each attempt in asyncio has a context of its own; in threads a context variable tells which. An asyncio task makes
   one attempt after the other, since a task for each is felt by all: until one was cancelled in it.
3. Threads are daemons: a handler that never ends keeps no program alive. One whose time is out cannot be stopped: its
   attempt has failed, also if it returns, but only when it ends, since until then its key is at work. Another thread
   takes its place meanwhile.
4. An attempt that returned outputs has ended when these are acknowledged.
5. No thread waits for the lock while another of these threads has it: it leaves its result to that one, and rests. For
   a lock that is handed to a sleeper is a switch of threads for each record, as long as the work is short.
6. In a process that a handler forked nothing of ours goes on: it ends where the handler does.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import Context
from typing import Any

from instride._processing.attempts import Desk
from instride._processing.dead_letters import DeadLetter, Produce, smaller
from instride._processing.engine import Batch, Job, Task, Verdict
from instride._processing.forks import end_child
from instride._processing.lifespan import AsyncLifespan, Lifespan, SyncLifespan
from instride._processing.outputs import OutputRecord
from instride.errors import ConfigError, KafkaTimeoutError, RecordTooLargeError

__all__ = ["LoopWorkers", "ThreadWorkers", "produce_all", "write_letter"]

_logger = logging.getLogger("instride.processing")

_ACKNOWLEDGED = 30.0
"""Seconds in which a dead letter must be acknowledged; then it is tried again."""
_OUTPUT_ACKNOWLEDGED = 120.0
"""Seconds in which an output must be; then the attempt has failed. The producer tries again for so long by itself."""


def produce_all(
    produce: Produce | None, records: Sequence[OutputRecord | DeadLetter], patience: float = _OUTPUT_ACKNOWLEDGED
) -> None:
    """In their order, for plain handlers. Raises what kept one from being acknowledged."""
    if not records:
        return
    assert produce is not None
    # All are handed over before the first is waited for: the producer may put them into one batch.
    for found in [produce(each) for each in records]:
        if isinstance(found, Future):
            # Not `result(patience)`, whose TimeoutError could be the producer's own.
            wait([found], patience)
            if not found.done():
                raise _not_acknowledged(records, patience)
            found.result()
        elif found is not None:
            raise ConfigError("produce returned an awaitable to a plain handler; return None or a concurrent Future")


def _not_acknowledged(records: Sequence[OutputRecord | DeadLetter], patience: float) -> TimeoutError:
    return TimeoutError(f"{records[0].topic}: not acknowledged in {patience:g} s")


def write_letter(desk: Desk, produce: Produce | None, task: Task) -> None:
    """For plain handlers. Of a record that is skipped, only a database is told. What fails is tried again."""
    error: BaseException | None = None
    try:
        if not task.is_skipped:
            _produce_letter(produce, desk.letter(task))
        desk.pass_over(task)
    except BaseException as caught:  # noqa: BLE001 - it is tried again, or ends the run
        error = caught
    if desk.wrote(task, error):
        desk.attention()


def _produce_letter(produce: Produce | None, letter: DeadLetter) -> None:
    while True:
        try:
            produce_all(produce, [letter], _ACKNOWLEDGED)
        except RecordTooLargeError as error:
            letter = smaller(letter, error)
        else:
            return


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
        self._handle = handle
        self._produce = produce
        self._concurrency = concurrency
        self._threads: list[threading.Thread] = []
        # Law 5. What ended, and None where a thread went to rest; dead letters to be written. Whether a thread of ours
        # has the lock, and whether one waits for it: who has seen one of these true has its end looked at after that.
        self._ended: deque[tuple[Job, BaseException | None] | None] = deque()
        self._letters: deque[Job] = deque()
        self._is_served = False
        self._is_awaited = False
        self._resting: list[_Gate] = []
        self._is_waking = False
        self._closed = False
        self._pid = os.getpid()

    def wake(self) -> None:
        with self._desk.lock:
            engine = self._desk.engine
            for job in self._find_late():
                _logger.warning("%s at offset %d: its time is out", job.lane.partition, job.offset)
            if not engine.has_next(self._desk.clock()):
                return
            queued = engine.queued
            for _ in range(min(queued - len(self._resting), self._most_threads - len(self._threads))):
                name = f"instride-handler-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                thread.start()
                # Once it has started: where the system has no thread left, none is counted.
                self._threads.append(thread)
            self._wake_one()

    def _wake_one(self) -> None:
        """Under the lock. Of those that rest, if none is on its way: that one wakes the next."""
        if self._resting and not self._is_waking:
            self._is_waking = True
            self._resting.pop().open()

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
            job.late = True
            self._late += 1
            found.append(job)
        return found

    @property
    def _most_threads(self) -> int:
        """Bounded: handlers that never end would else make threads without end."""
        return self._concurrency + min(self._late, self._concurrency)

    def cancel(self, tasks: Sequence[Task]) -> None:
        """A thread cannot be stopped: its handler sees `current_attempt().cancelled`."""

    def close(self, patience: float = 0.0) -> None:
        """Threads without work end, within so many seconds; others when their handler does."""
        with self._desk.lock:
            self._closed = True
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
        mine.context.run(self._serve)
        try:
            mine.leave()
        except BaseException:
            _logger.exception("the tear-down of a handler's thread failed")

    def _serve(self) -> None:
        me, gate = threading.current_thread(), _Gate()
        while True:
            job, stays = self._next(me, gate)
            if not stays:
                return
            if job is None:
                self._rest(gate)
            elif isinstance(job, Task) and job.writes_dead_letter:
                write_letter(self._desk, self._produce, job)
            else:
                self._ended.append((job, self._error_of(job)))

    def _rest(self, gate: _Gate) -> None:
        gate.wait()
        # Without the lock: this thread looks for work next, and finds any for which `_wake_one` woke nobody meanwhile.
        self._is_waking = False

    def _next(self, me: threading.Thread, gate: _Gate) -> tuple[Job | None, bool]:
        """What this thread is to do now; None: it is to rest, and is listed. And whether it stays a thread of ours."""
        self._busy.discard(me)
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
        if len(self._threads) <= self._most_threads:
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

    def _error_of(self, task: Job) -> BaseException | None:
        try:
            returned = self._handle(self._desk.read(task))
            if os.getpid() != self._pid:
                end_child()
            outputs = self._desk.outputs(task, returned)
            if outputs:
                produce_all(self._produce, outputs)
        except BaseException as error:  # noqa: BLE001 - the engine decides what becomes of it
            if os.getpid() != self._pid:
                end_child(error)
            return error
        return None


class LoopWorkers:
    """Coroutine functions, so many calls at a time on an event loop. `wake` and `cancel` may come from any thread.

    timeout: seconds of one attempt, or None.
    """

    def __init__(
        self,
        desk: Desk,
        handle: Callable[[Any], Awaitable[Any]],
        produce: Produce | None,
        concurrency: int,
        loop: asyncio.AbstractEventLoop,
        timeout: float | None,
        lifespan: AsyncLifespan,
    ) -> None:
        self._desk = desk
        self._handle = handle
        self._produce = produce
        self._concurrency = concurrency
        self._loop = loop
        self._timeout = timeout
        self._lifespan = lifespan
        self._attempts: dict[Job, asyncio.Task[None]] = {}
        self._waking = False
        self._closed = False

    def wake(self) -> None:
        if not (self._waking or self._closed):
            self._waking = True
            self._loop.call_soon_threadsafe(self._fill)

    def cancel(self, tasks: Sequence[Task]) -> None:
        if tasks and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel, tasks)

    def close(self, patience: float = 0.0) -> None:
        """Nothing more is started. What was cancelled has so many seconds to end."""
        self._closed = True
        if patience and not self._loop.is_closed():
            ended = asyncio.run_coroutine_threadsafe(self._until_ended(patience), self._loop)
            with suppress(TimeoutError):
                ended.result(patience)

    async def _until_ended(self, patience: float) -> None:
        if self._attempts:
            await asyncio.wait(list(self._attempts.values()), timeout=patience)

    def _fill(self) -> None:
        # First: a wake that comes while this looks must call it once more, or its record would wait.
        self._waking = False
        while len(self._attempts) < self._concurrency:
            with self._desk.lock:
                task = self._next()
            if task is None:
                return
            self._start(task)

    def _next(self) -> Job | None:
        """Under the lock."""
        return None if self._closed else self._desk.next_task()

    def _start(self, job: Job) -> None:
        self._attempts[job] = self._loop.create_task(self._serve(job))

    def _cancel(self, tasks: Sequence[Task]) -> None:
        """On the event loop. What has ended meanwhile is not there, its asyncio task may be at another's attempt."""
        given_up = set(tasks)
        for job, server in self._attempts.items():
            if not given_up.isdisjoint(job.tasks if isinstance(job, Batch) else [job]):
                server.cancel()

    async def _serve(self, job: Job | None) -> None:
        """One attempt after the other, as long as there is a next. In one coroutine, since each object more is felt:
        whatever this does, all handlers of the loop wait for."""
        desk, server = self._desk, asyncio.current_task()
        assert server is not None
        while job is not None:
            following, task = None, job
            if not task.writes_dead_letter:
                error: BaseException | None = None
                try:
                    await _InContext(self._attempt(task), self._lifespan.context.copy())
                except BaseException as caught:  # noqa: BLE001 - the engine decides what becomes of it
                    error = caught
                with desk.lock:
                    verdict, attention = desk.end(task, error)
                    following = self._next() if verdict is None else None
                if verdict is not None:
                    desk.note(task, verdict)
                if attention:
                    desk.attention()
            if task.writes_dead_letter and isinstance(task, Task) and not task.over:
                await self._write(task)
            del self._attempts[task]
            job = None
            if following is not None and server.cancelling():
                self._start(following)
            elif following is not None:
                job = following
                self._attempts[job] = server
        self._fill()

    async def _attempt(self, job: Job) -> None:
        desk = self._desk
        record = desk.read(job)
        if self._timeout is None:
            returned = await self._handle(record)
        else:
            async with asyncio.timeout(self._timeout):
                returned = await self._handle(record)
        if outputs := desk.outputs(job, returned):
            await self._produce_all(outputs, _OUTPUT_ACKNOWLEDGED)

    async def _write(self, task: Task) -> None:
        error: BaseException | None = None
        try:
            if not task.is_skipped:
                await self._produce_letter(self._desk.letter(task))
            if (passed := self._desk.pass_over(task)) is not None:
                await passed
        # CancelledError is no Exception, by which the run would end (`Desk.wrote`): the letter is tried again.
        except asyncio.CancelledError:
            error = KafkaTimeoutError("it was cancelled")
        except BaseException as caught:  # noqa: BLE001 - it is tried again, or ends the run
            error = caught
        if self._desk.wrote(task, error):
            self._desk.attention()

    async def _produce_letter(self, letter: DeadLetter) -> None:
        while True:
            try:
                await self._produce_all([letter], _ACKNOWLEDGED)
            except RecordTooLargeError as error:
                letter = smaller(letter, error)
            else:
                return

    async def _produce_all(self, records: Sequence[OutputRecord | DeadLetter], patience: float) -> None:
        """In their order. Raises what kept one from being acknowledged."""
        limit = asyncio.timeout(patience)
        try:
            async with limit:
                await self._until_acknowledged(records)
        except TimeoutError as error:
            # Else it is a TimeoutError of the producer's own, which says more.
            if limit.expired():
                raise _not_acknowledged(records, patience) from error
            raise

    async def _until_acknowledged(self, records: Sequence[OutputRecord | DeadLetter]) -> None:
        produce: Any = self._produce
        # One after the other: coroutines that run beside each other would write in any order.
        if inspect.iscoroutinefunction(produce):
            for each in records:
                await produce(each)
            return
        for found in await asyncio.to_thread(lambda: [produce(each) for each in records]):  # it may block
            if isinstance(found, Future):
                await asyncio.wrap_future(found)
            elif found is not None:
                await found


class _InContext:
    """Awaited, it runs a coroutine to its end, each of its steps in this context."""

    __slots__ = ("_context", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, None, None], context: Context) -> None:
        self._coroutine = coroutine
        self._context = context

    def __await__(self) -> Generator[Any, None, None]:
        run, send = self._context.run, self._coroutine.send
        error: BaseException | None = None
        while True:
            try:
                awaited = run(send, None) if error is None else run(self._coroutine.throw, error)
            except StopIteration:
                return
            error = None
            try:
                yield awaited
            except BaseException as caught:  # noqa: BLE001 - it is the coroutine's: a cancellation, say
                error = caught
