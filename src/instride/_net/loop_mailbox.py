"""The queue of background events, and the waits of an event loop's tasks for it.

Laws
1. Those of `mailbox`, but for the token: whoever waits has a waiter in `_waiters`, and each delivery wakes all of them.
2. A waiter is there before the last look at the queue, and a delivery looks for waiters after its append: so nothing
   that came between a look and the wait is missed.
   What a call changes on the loop's own thread is counted (`notified`): who looked before that does not wait.
3. The loop hears of any number of deliveries once (`_noted`), and of none while nobody waits.
4. A loop that was closed is told nothing: the network thread does not die of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from instride._net.clock import LONGEST_WAIT, now
from instride._net.mailbox import Mailbox

__all__ = ["LoopMailbox"]


class LoopMailbox(Mailbox):
    """`deliver`, `network_died` and `network_ended` are thread-safe; the rest belongs to the loop's thread."""

    def __init__(self) -> None:
        super().__init__()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._noted = False
        self.notified = 0

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tasks of this loop wait from now on. Of one that was closed nobody does any more."""
        self._loop = loop
        self._waiters.clear()
        self._noted = False

    async def pause(self, until: float, before: int) -> None:
        """Until an event is there or was taken by another call, or the time. Raises `NetworkThreadDiedError`.

        before: `notified`, when the caller began its last look.
        """
        if not self.queue:
            self.check_alive()
            await self._pause(until, lambda: bool(self.queue) or self.died is not None or self.notified != before)

    async def look_again(self, until: float) -> None:
        """Until somebody has changed something, or the time."""
        await self._pause(until, lambda: False)

    async def until_ended(self, until: float) -> bool:
        """Whether the network thread has ended."""
        while not self.ended and now() < until:
            await self._pause(until, lambda: self.ended)
        return self.ended

    async def _pause(self, until: float, ready: Callable[[], bool]) -> None:
        left = until - now()
        if left <= 0 or self._loop is None:
            return
        waiter = self._loop.create_future()
        timer = self._loop.call_later(min(left, LONGEST_WAIT), _wake, waiter)
        # Before the look at `ready` (law 2): a delivery in between must find it.
        self._waiters.add(waiter)
        try:
            if not ready():
                await waiter
        finally:
            self._waiters.discard(waiter)
            timer.cancel()

    def notify(self) -> None:
        """On the loop's thread: everybody who waits looks again."""
        self._noted = False
        self.notified += 1
        # The set stays as it is meanwhile: a task that is woken only runs in the loop's next turn.
        for waiter in self._waiters:
            _wake(waiter)

    def _wake(self) -> None:
        if not self._waiters or self._noted or self._loop is None:
            return
        self._noted = True
        try:
            self._loop.call_soon_threadsafe(self.notify)
        except RuntimeError:
            pass  # law 4


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
