"""Coroutine handlers on an event loop. What is started when, the engine decides.

Laws
1. At most `concurrency` handlers at a time, for all partitions together. A dead letter counts as one until it is handed
   over: a `produce=` that waits for the acknowledgement takes a thread, of those that `asyncio.to_thread` has for all.
   And it does so while a store is told of it, but there is one place more for that, and for a letter that is due since
   outputs were refused (`Desk.places`).
2. Each attempt has a context of its own. An asyncio task makes one attempt after the other, since a task for each is
   felt by all: until one was cancelled in it.
3. An attempt that takes longer than `timeout` is cancelled, and has failed, also if its handler returns all the same.
   Once that has returned in time, the commit of its transaction and its outputs make it late no more.
4. An attempt that returned outputs has ended when these are acknowledged. It counts as a handler until they are handed
   over, as a dead letter does; and for longer where too many are in flight (`Room`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from instride._processing.attempts import Desk, is_late, tells_store, time_by
from instride._processing.dead_letters import Produce, write_letter_async
from instride._processing.engine import Batch, Job, Task
from instride._processing.forks import end_child, process
from instride._processing.lifespan import AsyncLifespan
from instride._processing.outputs import Room, produce_all_async
from instride.errors import IllegalStateError

__all__ = ["LoopWorkers"]


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
        # By the asyncio task that makes it, since each of these looks for its own when it ends.
        self._attempts: dict[asyncio.Task[None], Job] = {}
        self._clocks: dict[Job, asyncio.Timeout] = {}
        # Of the attempts those whose dead letter, or outputs, are handed over: their handlers have ended.
        self._in_flight: set[Job] = set()
        self._room = Room(concurrency, self._let_go)
        # Not that of an attempt: whatever is started next would see what its handler has set.
        self._context = copy_context()
        # Of the attempts those that only tell a store of a letter.
        self._tellers: set[Job] = set()
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
            await asyncio.wait(list(self._attempts), timeout=patience)

    def _fill(self) -> None:
        # First: a wake that comes while this looks must call it once more, or its record would wait.
        self._waking = False
        self._find_late()
        while (task := self._task_for_free_place()) is not None:
            self._start(task)

    def _task_for_free_place(self) -> Job | None:
        with self._desk.lock:
            places = self._desk.places(self._concurrency, lambda: bool(self._tellers))
            return self._next() if len(self._attempts) - len(self._in_flight) < places else None

    def _find_late(self) -> None:
        """In an outage: a probe that keeps its cancellation to itself may never end, and another one is to follow."""
        breaker = self._desk.engine.breaker
        if breaker is not None and breaker.open_until is not None:
            for job, clock in self._clocks.items():
                job.late |= clock.expired()

    def _next(self) -> Job | None:
        """Under the lock."""
        job = None if self._closed else self._desk.next_task()
        if job is not None and tells_store(job):
            self._tellers.add(job)
        return job

    def _start(self, job: Job) -> None:
        # Not by the loop's factory: an eager one would run the handler here, before the attempt is noted.
        server = asyncio.Task(self._serve(job), loop=self._loop)
        self._attempts[server] = job
        server.add_done_callback(self._has_ended)

    def _has_ended(self, server: asyncio.Task[None]) -> None:
        """One that was cancelled before its first step, since its work was given up, leaves its place behind. So does
        one that cannot go on, and what it has in progress would be so for ever: the run ends by its error."""
        left = self._attempts.pop(server, None)
        error = None if server.cancelled() else server.exception()
        if error is not None:
            self._desk.fail(error)
        if left is not None:
            self._tellers.discard(left)
            self._fill()

    def _cancel(self, tasks: Sequence[Task]) -> None:
        """On the event loop. What has ended meanwhile is not there, its asyncio task may be at another's attempt."""
        given_up = set(tasks)
        for server, job in self._attempts.items():
            if not given_up.isdisjoint(job.tasks if isinstance(job, Batch) else [job]):
                server.cancel()

    async def _serve(self, job: Job | None) -> None:
        """One attempt after the other, as long as there is a next. In one coroutine, since each object more is felt:
        whatever this does, all handlers of the loop wait for."""
        desk, server = self._desk, asyncio.current_task()
        assert server is not None
        while job is not None:
            following, task, has_place = None, job, True
            if not task.writes_dead_letter:
                error: BaseException | None = None
                try:
                    await _InContext(self._attempt(task), self._lifespan.context.copy())
                except GeneratorExit:
                    self._is_thrown_away(task)
                    raise
                except BaseException as caught:  # noqa: BLE001 - the engine decides what becomes of it
                    error = caught
                with desk.lock:
                    is_cancelled = error is not None and server.cancelling() > 0
                    # Another one has taken its place: it takes no record, and writes no letter.
                    has_place = self._room.leave(task)
                    end = desk.end if has_place else desk.end_handed_over
                    verdict, attention = end(task, error, is_cancelled=is_cancelled)
                    following = self._next() if has_place and verdict is None else None
                if verdict is not None:
                    desk.note(task, verdict)
                if attention:
                    desk.attention()
            if not has_place:
                self._in_flight.discard(task)
            elif task.writes_dead_letter and isinstance(task, Task) and not task.over:
                await self._write(task)
            del self._attempts[server]
            self._tellers.discard(task)
            job = None
            if following is not None and server.cancelling():
                self._start(following)
            elif following is not None:
                job = following
                self._attempts[server] = job
        self._fill()

    async def _write(self, task: Task) -> None:
        try:
            await write_letter_async(self._desk, self._produce, task, partial(self._is_handed_over, task))
        except GeneratorExit:
            self._is_thrown_away(task)
            raise
        finally:
            self._in_flight.discard(task)

    def _is_handed_over(self, task: Task) -> None:
        """Another one takes its place (law 1)."""
        self._in_flight.add(task)
        self._fill()

    def _has_handed_outputs_over(self, job: Job) -> None:
        with self._desk.lock:
            self._room.enter(job)

    def _let_go(self, job: Job) -> None:
        """The same of outputs, in the context of an attempt. Under the lock."""
        self._desk.engine.handed_over(job)
        self._in_flight.add(job)
        self._loop.call_soon(self._fill, context=self._context)

    def _is_thrown_away(self, job: Job) -> None:
        """Where it waited, with its event loop: that was closed, and nothing can go on."""
        with self._desk.lock:
            self._desk.engine.taken_back(job)
            self._desk.engine.put_back(job, was_tried=True)
        self._desk.fail(IllegalStateError("the event loop was closed before the processor had ended"))

    async def _attempt(self, job: Job) -> None:
        desk = self._desk
        record = desk.read(job)
        if self._timeout is None:
            returned = await self._handle(record)
        else:
            try:
                async with asyncio.timeout(self._timeout) as clock:
                    self._clocks[job] = clock
                    time_by(partial(_stop_clock, clock))
                    returned = await self._handle(record)
                    # Of a handler that kept its cancellation to itself.
                    if is_late(job):
                        raise TimeoutError(f"the attempt took longer than {self._timeout:g} s")
            finally:
                self._clocks.pop(job, None)
        if outputs := desk.outputs(job, returned):
            handed_over = partial(self._has_handed_outputs_over, job)
            await produce_all_async(self._produce, outputs, handed_over=handed_over)


def _stop_clock(clock: asyncio.Timeout, job: Job) -> None:
    if clock.expired():
        job.late = True
    elif clock.when() is not None:  # else it was stopped before: by the store, then by whoever looks for outputs
        clock.reschedule(None)


class _InContext:
    """Awaited, it runs a coroutine to its end, each of its steps in this context."""

    __slots__ = ("_context", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, None, None], context: Context) -> None:
        self._coroutine = coroutine
        self._context = context

    def __await__(self) -> Generator[Any, None, None]:
        run, send = self._context.run, self._coroutine.send
        error: BaseException | None = None
        me = process["pid"]
        while True:
            try:
                awaited = run(send, None) if error is None else run(self._coroutine.throw, error)
            except StopIteration:
                return
            if process["pid"] != me:
                end_child(
                    IllegalStateError("a child that a handler forked awaits something: the event loop is its parent's")
                )
            error = None
            try:
                yield awaited
            except BaseException as caught:  # noqa: BLE001 - it is the coroutine's: a cancellation, say
                error = caught
