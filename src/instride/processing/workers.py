"""Handlers in threads, and coroutine handlers on an event loop. What is started when, the engine decides.

Laws
1. At most `concurrency` handlers at a time, for all partitions together. Threads are started when there is work.
2. Each attempt in asyncio is a task of its own, with a context of its own; in threads a context variable tells which.
3. Threads are daemons: a handler that never ends keeps no program alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any

from instride.errors import ConfigError, KafkaTimeoutError
from instride.processing.attempts import Desk
from instride.processing.dead_letters import Produce
from instride.processing.engine import Job, Task, Verdict

__all__ = ["LoopWorkers", "ThreadWorkers"]

_ACKNOWLEDGED = 30.0
"""Seconds in which a dead letter must be acknowledged; then it is tried again."""


class ThreadWorkers:
    """Plain functions, each call in one of so many threads."""

    def __init__(self, desk: Desk, handle: Callable[[Any], object], produce: Produce | None, concurrency: int) -> None:
        self._desk = desk
        self._handle = handle
        self._produce = produce
        self._concurrency = concurrency
        self._work = threading.Condition(desk.lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def wake(self) -> None:
        with self._work:
            engine = self._desk.engine
            if not engine.has_next(self._desk.clock()):
                return
            queued = engine.queued
            for _ in range(min(queued - self._idle, self._concurrency - len(self._threads))):
                name = f"instride-handler-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._work.notify(queued)

    def cancel(self, tasks: Sequence[Task]) -> None:
        """A thread cannot be stopped: its handler sees `current_attempt().cancelled`."""

    def close(self) -> None:
        """Threads without work end; others when their handler does."""
        with self._work:
            self._closed = True
            self._work.notify_all()

    def _run(self) -> None:
        context = contextvars.Context()
        context.run(self._serve)

    def _serve(self) -> None:
        desk, work = self._desk, self._work
        task: Job | None = None
        error: BaseException | None = None
        verdict: Verdict | None
        while True:
            verdict, attention, before = None, False, task
            with work:
                if before is not None:
                    verdict, attention = desk.end(before, error)
                told = attention or verdict is not None  # then there is more to do before it may wait
                writes = before is not None and before.writes_dead_letter
                task = before if writes else desk.next_task() if told else self._next()
            if verdict is not None and before is not None:
                desk.note(before, verdict)
            if attention:
                desk.attention()
            if task is None:
                if not told:
                    return
            elif isinstance(task, Task) and task.writes_dead_letter:
                self._write(task)
                task = None
            else:
                error = self._error_of(task)

    def _next(self) -> Job | None:
        """Waits for one; None when this is closed."""
        while (task := self._desk.next_task()) is None:
            if self._closed:
                return None
            self._idle += 1
            self._work.wait()
            self._idle -= 1
        return task

    def _error_of(self, task: Job) -> BaseException | None:
        try:
            self._handle(self._desk.read(task))
        except BaseException as error:  # noqa: BLE001 - the engine decides what becomes of it
            return error
        return None

    def _write(self, task: Task) -> None:
        error: BaseException | None = None
        try:
            assert self._produce is not None
            found = self._produce(self._desk.letter(task))
            if isinstance(found, Future):
                found.result(_ACKNOWLEDGED)
            elif found is not None:
                raise ConfigError(
                    "produce returned an awaitable to a plain handler; return None or a concurrent Future"
                )
        except Exception as caught:  # noqa: BLE001 - it is tried again
            error = caught
        if self._desk.wrote(task, error):
            self._desk.attention()


class LoopWorkers:
    """Coroutine functions, each call a task of the event loop. `wake` and `cancel` may come from any thread.

    timeout: seconds of one attempt, or None.
    """

    def __init__(
        self,
        desk: Desk,
        handle: Callable[[Any], Awaitable[object]],
        produce: Produce | None,
        concurrency: int,
        loop: asyncio.AbstractEventLoop,
        timeout: float | None,
    ) -> None:
        self._desk = desk
        self._handle = handle
        self._produce = produce
        self._concurrency = concurrency
        self._loop = loop
        self._timeout = timeout
        self._attempts: dict[Job, asyncio.Task[None]] = {}
        self._waking = False
        self._closed = False

    def wake(self) -> None:
        if not (self._waking or self._closed):
            self._waking = True
            self._loop.call_soon_threadsafe(self._fill)

    def cancel(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.canceller is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(task.canceller)

    def close(self) -> None:
        self._closed = True

    def _fill(self) -> None:
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

    def _start(self, task: Job) -> None:
        attempt = self._attempts[task] = self._loop.create_task(self._attempt(task))
        task.canceller = attempt.cancel

    async def _attempt(self, task: Job) -> None:
        """To its end; then the next is started, with one look at the engine for both."""
        desk, following = self._desk, None
        if not task.writes_dead_letter:
            error = await self._error_of(task)
            with desk.lock:
                verdict, attention = desk.end(task, error)
                following = self._next() if verdict is None else None
            if verdict is not None:
                desk.note(task, verdict)
            if attention:
                desk.attention()
        if isinstance(task, Task) and task.writes_dead_letter and not task.over:
            await self._write(task)
        del self._attempts[task]
        if following is not None:
            self._start(following)
        else:
            self._fill()

    async def _error_of(self, task: Job) -> BaseException | None:
        try:
            record = self._desk.read(task)
            if self._timeout is None:
                await self._handle(record)
            else:
                async with asyncio.timeout(self._timeout):
                    await self._handle(record)
        except BaseException as error:  # noqa: BLE001 - the engine decides what becomes of it
            return error
        return None

    async def _write(self, task: Task) -> None:
        error: BaseException | None = None
        try:
            assert self._produce is not None
            async with asyncio.timeout(_ACKNOWLEDGED):
                await self._produced(self._produce, task)
        except Exception as caught:  # noqa: BLE001 - it is tried again
            error = caught
        except asyncio.CancelledError:
            error = KafkaTimeoutError("it was cancelled")
        if self._desk.wrote(task, error):
            self._desk.attention()

    async def _produced(self, produce: Produce, task: Task) -> None:
        letter = self._desk.letter(task)
        if inspect.iscoroutinefunction(produce):
            found: Any = produce(letter)
        else:  # it may block
            found = await asyncio.to_thread(produce, letter)
        if isinstance(found, Future):
            await asyncio.wrap_future(found)
        elif found is not None:
            await found
