"""The application thread's wait: nothing that came is missed, whoever brought it."""

from __future__ import annotations

import signal
import threading
from collections import deque
from threading import Lock
from types import FrameType

import pytest

from instride._core.events import BackgroundEvent, Wakeup
from instride._net.clock import now
from instride._net.mailbox import Mailbox
from instride.errors import NetworkThreadDiedError

LONG = 60.0


class Interrupted(deque[BackgroundEvent]):
    """Empty at the first look; right after it a signal handler delivers."""

    def __init__(self, mailbox: Mailbox) -> None:
        super().__init__()
        self._mailbox: Mailbox | None = mailbox

    def __bool__(self) -> bool:
        seen = len(self) > 0
        if self._mailbox is not None:
            mailbox, self._mailbox = self._mailbox, None
            mailbox.deliver([Wakeup()])
        return seen


def test_what_a_signal_handler_delivers_between_the_look_and_the_wait_ends_the_wait() -> None:
    mailbox = Mailbox()
    mailbox.queue = Interrupted(mailbox)
    until = now() + LONG
    mailbox.wait(until)
    assert now() < until
    assert list(mailbox.queue) == [Wakeup()]


def test_a_signal_whose_handler_outlasts_the_wait_does_not_make_it_endless() -> None:
    """CPython's SimpleQueue (3.11, 3.12) takes what is left then, which is negative, for no time-out at all."""
    mailbox, until = Mailbox(), now() + 0.05
    signals = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        assert signals == 1, "it waits still"
        while now() <= until:
            pass
        signal.setitimer(signal.ITIMER_REAL, LONG / 2)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        mailbox.wait(until)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not mailbox.queue


def test_a_wait_ends_with_what_another_thread_delivers() -> None:
    mailbox = Mailbox()
    other = threading.Thread(target=mailbox.deliver, args=([Wakeup()],))
    other.start()
    mailbox.wait(now() + LONG)
    other.join()
    assert list(mailbox.queue) == [Wakeup()]


def test_an_old_token_ends_no_later_wait() -> None:
    mailbox = Mailbox()
    mailbox.deliver([Wakeup()])
    mailbox.queue.clear()
    until = now() + 0.01
    mailbox.wait(until)
    assert now() >= until


class Noticed:
    """A token that another thread leaves right after it was looked for."""

    def __init__(self, token: Lock) -> None:
        self._token = token
        self.release = token.release
        self.acquire = token.acquire

    def locked(self) -> bool:
        found = self._token.locked()
        if found:
            self._token.release()
        return found


def test_tokens_do_not_pile_up_whoever_leaves_them() -> None:
    mailbox = Mailbox()
    mailbox._no_token = Noticed(mailbox._no_token)  # type: ignore[assignment]  # scripted
    for _ in range(100):
        mailbox.deliver([Wakeup()])
    mailbox.queue.clear()
    until = now() + 0.01
    mailbox.wait(until)
    assert now() >= until


def test_a_time_that_is_past_does_not_wait() -> None:
    Mailbox().wait(now() - 1)


@pytest.mark.requirement("threading/29")
def test_the_death_of_the_network_thread_is_raised_after_the_events_before_it() -> None:
    mailbox = Mailbox()
    mailbox.deliver([Wakeup()])
    mailbox.network_died(LookupError("a bug"))
    mailbox.wait(now() + LONG)
    mailbox.queue.clear()
    with pytest.raises(NetworkThreadDiedError, match="LookupError") as raised:
        mailbox.wait(now() + LONG)
    assert isinstance(raised.value.__cause__, LookupError)
    with pytest.raises(NetworkThreadDiedError):
        mailbox.check_alive()
