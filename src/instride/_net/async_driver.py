"""Runs calls in the tasks of an event loop, and guards against misuse.

Laws
1. Laws 1 to 3 of `driver`. Only the network thread is a thread: a call that waits is a coroutine that waits.
2. One event loop uses a consumer, from the first verb within it to the end; any of its tasks may. One poll, unsubscribe
   or close at a time.
3. A call goes on from one wait to the next without a pause. So a cancellation comes where it waits, and ends it there:
   it leaves what a signal's exception leaves in a blocking consumer (docs/rebalance.md, rule 13).
4. Whatever a task changes, every other that waits in a call looks again; and so does the task's own call, where a
   listener that it runs changes something.
5. An asynchronous method of the listener is awaited in the task whose call it belongs to. What it raises, and a
   cancellation that comes meanwhile, is raised by that call, also where another task closes the consumer.
6. We are in the listener also in a task that its method began, for as long as the method is awaited. On Python 3.11
   `wait_for` begins one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from typing import Final, Self, TypeVar

from instride._core.application.calls import Call, Wait
from instride._core.application.state import OnCommit
from instride._net.clock import now
from instride._net.driver import Shell
from instride._net.loop_mailbox import LoopMailbox
from instride.commits import CommitResult
from instride.config import ConsumerConfig
from instride.errors import ConcurrentUseError, ConsumerClosedError, IllegalStateError, TransportError

__all__ = ["AsyncDriver", "in_loop"]

T = TypeVar("T")
Ending = Callable[[], Awaitable[None]]
_listener_calls: Final[ContextVar[tuple[object, ...]]] = ContextVar("instride_listener_calls", default=())
"""Those that this context is in, of all consumers (law 6)."""


class _Use:
    """What `AsyncDriver.use` gives to a verb's `with`."""

    __slots__ = ("_driver",)

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver

    def __enter__(self) -> None:
        self._driver.enter()

    def __exit__(self, *_: object) -> None:
        self._driver.leave()


class _Alone:
    """What `AsyncDriver.alone` gives to a verb's `async with`."""

    __slots__ = ("_driver", "_verb")

    def __init__(self, driver: AsyncDriver, verb: str) -> None:
        self._driver = driver
        self._verb = verb

    async def __aenter__(self) -> Self:
        self._driver.enter_alone(self._verb)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._driver.leave_alone()


class AsyncDriver(Shell):
    """What `AsyncConsumer` has below its verbs."""

    def __init__(self, config: ConsumerConfig, *, ranges: bool = False, on_commit: OnCommit | None = None) -> None:
        self._mailbox = LoopMailbox()
        super().__init__(config, self._mailbox, ranges=ranges, on_commit=on_commit)
        self._loop: asyncio.AbstractEventLoop | None = None
        # The verb that one task at a time may be inside.
        self._alone = ""
        # The methods of the listener that are awaited; and whether a step of a call runs right now, in which the
        # listener's plain methods run.
        self._listening: list[object] = []
        self._stepping = 0
        self._at_end: Ending | None = None
        # Whether a task is inside close: nobody else begins a poll.
        self.closing = False

    # -- guards

    def use(self) -> _Use:
        """Inside: an open consumer, of this process and this loop."""
        return _Use(self)

    def alone(self, verb: str) -> _Alone:
        """Inside besides: no other poll, unsubscribe or close."""
        return _Alone(self, verb)

    def enter(self) -> None:
        self._check_process()
        self._check_open()
        self._check_loop()

    def leave(self) -> None:
        try:
            self._tell()
        finally:
            self._mailbox.notify()  # law 4

    def enter_alone(self, verb: str) -> None:
        self.enter()
        if self.nested:
            raise IllegalStateError(f"{verb} cannot be called from a rebalance listener")
        if self.closing:
            raise ConsumerClosedError("this consumer is being closed")
        if self._alone:
            raise ConcurrentUseError(
                f"another task is inside {self._alone} of this consumer; only one at a time may be in poll, "
                "unsubscribe or close"
            )
        self._alone = verb

    async def leave_alone(self) -> None:
        # First: `leave` may raise an interrupt out of a telemetry listener, and nobody could poll again.
        self._alone = ""
        try:
            self.leave()
        finally:
            if self._at_end is not None:
                at_end, self._at_end = self._at_end, None
                await at_end()

    def _check_loop(self) -> None:
        # The public one raises where no loop runs; verbs that never wait are allowed there.
        running = asyncio._get_running_loop()
        if self._loop is None:
            if running is not None:
                self._bind(running)
        elif running is not self._loop and not self._rests():
            raise ConcurrentUseError(
                "this consumer is used by another event loop; call it in that loop's thread, as with "
                "asyncio.run_coroutine_threadsafe (wakeup alone may come from any)"
            )

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._mailbox.bind(loop)

    def _rests(self) -> bool:
        """Whether the loop of this consumer runs nothing now, and we are in no other."""
        assert self._loop is not None
        if self._loop.is_closed():
            raise IllegalStateError(
                "the event loop that this consumer was used in is closed; close the consumer in the new one, and build "
                "another"
            )
        return asyncio._get_running_loop() is None and not self._loop.is_running()

    def running_loop(self, verb: str) -> asyncio.AbstractEventLoop:
        running = asyncio._get_running_loop()
        if running is None:
            raise IllegalStateError(f"{verb} needs a running event loop; call it in a coroutine")
        return running

    def enter_close(self) -> None:
        """A consumer whose loop was closed can still be closed, in another one."""
        if self._loop is None or self._loop.is_closed():
            self._bind(self.running_loop("close"))
            # The tasks of a closed loop may never come to leave what they were in.
            self._alone, self._listening, self.closing = "", [], False
        self._check_process()
        self._check_loop()

    @property
    def nested(self) -> bool:
        """Whether we are in a method of the listener."""
        if not self._listening:
            return self._stepping > 0
        return self._stepping > 0 or any(each in self._listening for each in _listener_calls.get())

    def close_later(self, close: Ending) -> None:
        """In a listener: `close` when the call that it is in ends, which is woken up."""
        self._at_end = close
        self.wakeup()

    # -- running

    async def run(self, call: Call[T], *, alone: bool = False) -> T:
        """Run a call to its end in this task. Raises what it raises, `NetworkThreadDiedError`, `ConsumerClosedError`.

        alone: it is a poll's or an unsubscribe's, which end when the consumer is being closed.
        """
        failed: BaseException | None = None
        try:
            # Another task may have begun to close the consumer since this one entered, or does so during a wait.
            self._raise_closed(failed, alone=alone)
            before, wait = self._mailbox.notified, self._step(call.__next__)
            while True:
                self._dispatcher.tell()
                if wait.awaited is None:  # a method of the listener that has begun is awaited first
                    self._raise_closed(failed, alone=alone)
                raised = await self._wait(wait, before)
                before = self._mailbox.notified
                if raised is None:
                    self._raise_closed(failed, alone=alone)
                    wait = self._step(call.send, now())
                else:
                    failed = raised if failed is None else failed
                    wait = self._step(call.throw, raised)
        except StopIteration as end:
            result: T = end.value
            return result
        except TransportError:
            if not self.started:
                await self._back_off()
                self._raise_closed(failed, alone=alone)
            raise
        finally:
            call.close()

    async def _back_off(self) -> None:
        """A loop that tries again at once must not spin, also beside others that wake this task. A close ends it."""
        until = now() + self._retry_backoff
        while not (self.closed or self.closing) and now() < until:
            await self._mailbox.look_again(until)

    def _step(self, step: Callable[..., Wait], *arguments: object) -> Wait:
        self._stepping += 1
        try:
            return step(*arguments)
        finally:
            self._stepping -= 1

    async def _wait(self, wait: Wait, before: int) -> BaseException | None:
        """What a method of the listener raised: the call says what becomes of it (law 5). before: how often something
        had been changed when the call began to look.
        """
        if wait.awaited is None:
            if not wait.in_hand and wait.until <= now():
                await asyncio.sleep(0)  # however often a call looks again, the loop's other tasks have their turn
            await self._mailbox.pause(wait.until, before)
            return None
        listening = object()
        self._listening.append(listening)
        token = _listener_calls.set((*_listener_calls.get(), listening))
        try:
            await wait.awaited
        except GeneratorExit:
            raise  # its loop was closed: nobody is there to go on
        except BaseException as error:  # noqa: BLE001
            # A cancellation too: the call has to leave its state as rule 13 says.
            return error
        finally:
            with suppress(ValueError):  # a close in another loop has cleared it
                self._listening.remove(listening)
            with suppress(ValueError):  # it is thrown away, from another context
                _listener_calls.reset(token)
        return None

    def _raise_closed(self, failed: BaseException | None, *, alone: bool) -> None:
        """failed: what a method of the listener raised, which the call keeps for its end (law 5)."""
        if self.closed or (alone and self.closing):
            raise ConsumerClosedError("this consumer was closed meanwhile") if failed is None else failed

    def close_others(self) -> None:
        """Whoever waits in a poll or an unsubscribe raises ConsumerClosedError."""
        self.closing = True
        self._mailbox.notify()

    async def until_left(self, until: float) -> bool:
        """Whether nobody is inside poll or unsubscribe any more."""
        while self._alone and now() < until:
            await self._mailbox.look_again(until)
        return not self._alone

    async def until_ended(self, until: float) -> None:
        """Of a close that another task is in, or that was cancelled: until the network thread has ended too."""
        while not self.closed and now() < until:
            await self._mailbox.look_again(until)
        await self.joined(max(0.0, until - now()))

    def end(self) -> None:
        """It is closed: whoever waits raises. What the close has changed after its last wait is told."""
        self.mark_closed()
        self.leave()

    async def joined(self, timeout: float) -> bool:
        """Whether the network thread has ended."""
        if not self.alive:
            return True
        # To have ended is the last thing that the thread tells: the join, which blocks the loop, takes no time then.
        return await self._mailbox.until_ended(now() + timeout) and self._thread.join(1.0)


def in_loop(source: Future[CommitResult], loop: asyncio.AbstractEventLoop) -> asyncio.Future[CommitResult]:
    """The same as the loop's future. An error that nobody asks it for is not logged; to cancel it cancels nothing."""
    target: asyncio.Future[CommitResult] = loop.create_future()

    def done(_: object) -> None:
        try:
            loop.call_soon_threadsafe(_copy, source, target)
        except RuntimeError:
            pass  # the loop was closed: nobody waits

    source.add_done_callback(done)
    return target


def _copy(source: Future[CommitResult], target: asyncio.Future[CommitResult]) -> None:
    # The user may have cancelled the loop's future.
    if target.done():
        return
    error = source.exception()
    if error is None:
        target.set_result(source.result())
    else:
        target.set_exception(error)
        # asyncio logs an exception that nobody retrieved: this retrieves it.
        target.exception()
