"""The event loop of coroutine handlers, where the processor makes one: timers are exact.

asyncio's own selector on Linux waits in whole milliseconds, rounded up, so that each timer is up to 1 ms late: a tenth
of a handler that waits 5 ms. `select` knows microseconds, and an epoll object is itself a file that can be waited for.
Linux then lets each thread sleep 50 microseconds longer, to wake for several timers at once; a thread may refuse that.

What runs handlers on it, and their time-out: `coroutine_workers.py`.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

__all__ = ["be_punctual", "going_on", "new_event_loop", "result_of"]

T = TypeVar("T")

_SELECTABLE: Final = 1024
"""File descriptors below this one may be given to `select` (FD_SETSIZE)."""


def result_of(future: Future[T]) -> T:
    """Waits for it. Its own `result` returns None instead of an error whose class says that it is false (`__len__`)."""
    error = future.exception()
    if error is not None:
        raise error
    return future.result()


def be_punctual() -> None:
    """The calling thread's timers end when they are due (PR_SET_TIMERSLACK of prctl(2)), where the system allows it."""
    with suppress(OSError):
        # 1 ns, since 0 stands for the system's default.
        Path(f"/proc/{threading.get_native_id()}/timerslack_ns").write_text("1")


def going_on(
    loop: asyncio.AbstractEventLoop, until: asyncio.Future[Any], fail: Callable[[BaseException], object]
) -> None:
    """Run the loop until the future is done, whatever coroutines raise. fail: told of what would have ended the loop.

    asyncio ends a loop in which a coroutine raises SystemExit or KeyboardInterrupt. The loop goes on, since what waits
    for another coroutine (for the tear-down, say) would wait in vain. A future ends it, for `loop.stop` is forgotten
    where a coroutine raises in the same turn.
    """
    while not until.done():
        try:
            loop.run_until_complete(until)
        except (SystemExit, KeyboardInterrupt) as error:
            fail(error)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """What asyncio's policy makes (uvloop's, say); its own standard loop with exact timers."""
    loop = asyncio.new_event_loop()
    if sys.platform != "linux" or type(loop) is not asyncio.SelectorEventLoop:
        return loop
    selector = _ExactSelector()
    if selector.fileno() >= _SELECTABLE:
        selector.close()
        return loop
    loop.close()
    return asyncio.SelectorEventLoop(selector)


if sys.platform == "linux":

    class _ExactSelector(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0.0:
                select.select([self], [], [], timeout)
                # `select` has waited, and says only that something is ready: epoll says what, and waits no more.
                timeout = 0.0
            return super().select(timeout)
