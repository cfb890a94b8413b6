"""What surrounds the handlers: set-up and tear-down of a run and of its threads, and middleware around each call.

Laws
1. What is set up first is torn down last: the run's, then each thread's; the threads' end before the run's does.
2. Context variables that a set-up sets, the handlers see: each coroutine, and each thread, has a copy of that context.
3. A tear-down runs in the context, and for coroutines in the very task, of its set-up.
4. The processor begins when the set-up of the run has ended. What a set-up raises, and what ends one of coroutines in
   the middle, ends the run; what the tear-down of the run raises, the run raises.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from functools import partial, reduce
from typing import Any, TypeAlias

from instride.errors import IllegalStateError

__all__ = ["AsyncLifespan", "Lifespan", "Middleware", "SyncLifespan", "wrapped"]

Lifespan: TypeAlias = "Callable[[], AbstractContextManager[object] | AbstractAsyncContextManager[object]]"
"""A function that returns a context manager, such as one decorated with `contextlib.contextmanager`."""
Middleware: TypeAlias = "Callable[[Any, Callable[[Any], Any]], Any]"
"""Called with a record (or the list of a batch) and with what comes next, which it calls, or awaits."""


def wrapped(handler: Callable[[Any], Any], middleware: Sequence[Middleware]) -> Callable[[Any], Any]:
    """The first is the outermost."""
    return reduce(lambda following, each: partial(_call, each, following), reversed(middleware), handler)


def _call(middleware: Middleware, following: Callable[[Any], Any], what: Any) -> Any:
    return middleware(what, following)


class SyncLifespan:
    """Of plain handlers. context: what each call has a copy of."""

    def __init__(self, within: contextvars.Context | None = None) -> None:
        self.context = contextvars.Context() if within is None else within.copy()
        self._stack = ExitStack()

    def enter(self, factory: Callable[[], Any] | None) -> None:
        if factory is not None:
            self.context.run(lambda: self._stack.enter_context(factory()))

    def leave(self) -> None:
        self.context.run(self._stack.close)


class AsyncLifespan:
    """Of coroutine handlers: a task of their event loop, from the set-up to the tear-down.

    fail: told of what ends it in the middle.
    """

    def __init__(self, fail: Callable[[BaseException], object], within: contextvars.Context | None = None) -> None:
        self.context = contextvars.Context() if within is None else within.copy()
        self._fail = fail
        self._entered: asyncio.Event = asyncio.Event()
        self._leave: asyncio.Event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def enter(self, factory: Callable[[], Any] | None) -> None:
        # Law 3: a timeout or a task group of asyncio must be left by the task that has entered it.
        self._task = asyncio.create_task(self._run(factory), context=self.context)
        entered = asyncio.create_task(self._entered.wait())
        try:
            # Both, since a set-up that raises never enters.
            await asyncio.wait([self._task, entered], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        finally:
            entered.cancel()
        if self._entered.is_set():
            self._task.add_done_callback(self._ended)
        else:
            self._task.result()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self._leave.is_set():
            error = None if task.cancelled() else task.exception()
            if error is None:
                error = IllegalStateError("the lifespan ended before the processor did")
            self._fail(error)

    async def _run(self, factory: Callable[[], Any] | None) -> None:
        if factory is not None:
            async with factory():
                await self._until_left()
        else:
            await self._until_left()

    async def _until_left(self) -> None:
        self._entered.set()
        await self._leave.wait()

    async def leave(self) -> None:
        self._leave.set()
        if self._task is not None and self._entered.is_set():
            await self._task
