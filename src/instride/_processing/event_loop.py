"""The event loop of coroutine handlers, where the processor makes one: timers are exact.

asyncio's own selector on Linux waits in whole milliseconds, rounded up, so that each timer is up to 1 ms late: a tenth
of a handler that waits 5 ms. `select` knows microseconds, and an epoll object is itself a file that can be waited for.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
from typing import Final

__all__ = ["new_event_loop"]

_SELECTABLE: Final = 1024
"""File descriptors below this one may be given to `select` (FD_SETSIZE)."""


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
                timeout = 0.0
            return super().select(timeout)
