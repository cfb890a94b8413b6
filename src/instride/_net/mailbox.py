"""The queue of background events, and the application thread's wait for it.

Laws
1. `queue` is appended to by the network thread (and by `wakeup` of any thread) and popped by the application's.
2. A token only wakes; what is true is read from the queue and `died`. It is left after the append and taken before the
   next look, so that nothing that came between a look and the wait is missed.
3. A signal handler may call `deliver` at any moment, also in the middle of `wait` on the same thread: so nothing here
   is guarded by a lock. The token itself is one, which is locked while there is no token; any thread may unlock it at
   any moment.
4. A handler that delivers nothing may run for longer than what is left of a wait, which ends then. (That of a
   `SimpleQueue` is endless then in CPython 3.11 and 3.12: what is left is negative, and that means no time-out to it.)
"""

from __future__ import annotations

from collections import deque
from threading import Lock

from instride._core.events import BackgroundEvent
from instride._net.clock import LONGEST_WAIT, now
from instride.errors import NetworkThreadDiedError

__all__ = ["Mailbox"]


class Mailbox:
    """Thread-safe; one thread at a time may be in `wait`."""

    def __init__(self) -> None:
        self.queue: deque[BackgroundEvent] = deque()
        self.died: BaseException | None = None
        self.ended = False
        self._no_token = Lock()
        self._no_token.acquire()

    def deliver(self, events: list[BackgroundEvent]) -> None:
        self.queue.extend(events)
        self._wake()

    def network_died(self, error: BaseException) -> None:
        self.died = error
        self._wake()

    def network_ended(self) -> None:
        """The last thing that the thread does."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        if self._no_token.locked():  # one is enough: it is taken before the next look
            try:
                self._no_token.release()
            except RuntimeError:  # another thread, or a handler of ours, left it just now
                pass

    def check_alive(self) -> None:
        """Raises `NetworkThreadDiedError` once the network thread has died."""
        if self.died is not None:
            raise NetworkThreadDiedError(
                f"the network thread died of {type(self.died).__name__}; this consumer cannot go on: close it"
            ) from self.died

    def wait(self, until: float) -> None:
        """Until an event is there, or the time. Raises `NetworkThreadDiedError`."""
        while not self.queue and self.died is None:
            left = until - now()
            if left <= 0:
                break
            self._no_token.acquire(timeout=min(left, LONGEST_WAIT))
        # What the thread delivered before it died is taken first.
        if not self.queue:
            self.check_alive()
