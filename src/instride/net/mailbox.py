"""The queue of background events, and the application thread's wait for it.

Laws
1. `queue` is appended to by the network thread (and by `wakeup` of any thread) and popped by the application's.
2. The condition only wakes; what is true is read from the queue and `died`. A notification between the reader's look
   and its wait is not missed, since both hold the condition's lock.
"""

from __future__ import annotations

import threading
from collections import deque

from instride.core.events import BackgroundEvent
from instride.errors import NetworkThreadDiedError
from instride.net.clock import now

__all__ = ["Mailbox"]

_LONGEST_WAIT = 3600.0


class Mailbox:
    """Thread-safe."""

    def __init__(self) -> None:
        self.queue: deque[BackgroundEvent] = deque()
        self.died: BaseException | None = None
        self._condition = threading.Condition()

    def deliver(self, events: list[BackgroundEvent]) -> None:
        self.queue.extend(events)
        with self._condition:
            self._condition.notify_all()

    def network_died(self, error: BaseException) -> None:
        with self._condition:
            self.died = error
            self._condition.notify_all()

    def check_alive(self) -> None:
        """Raises `NetworkThreadDiedError` once the network thread has died."""
        if self.died is not None:
            raise NetworkThreadDiedError(
                f"the network thread died of {type(self.died).__name__}; this consumer cannot go on: close it"
            ) from self.died

    def wait(self, until: float) -> None:
        """Until an event is there, or the time. Raises `NetworkThreadDiedError`."""
        with self._condition:
            while not self.queue and self.died is None:
                left = until - now()
                if left <= 0:
                    break
                self._condition.wait(min(left, _LONGEST_WAIT))
        if not self.queue:
            self.check_alive()
