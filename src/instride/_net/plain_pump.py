"""The plain form of `pump`: what `compiled_pump` does, in Python. A test compares the two."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from instride._net.clock import now

__all__ = ["Line", "Pump", "Waker", "receive", "send"]

D = TypeVar("D")

_READ: Final = 1
_WRITE: Final = 2
_MOMENT: Final = 0.1
_PAUSE: Final = 0.005
_AT_ONCE: Final = 1 << 20
_HEAD: Final = 4


class Line:
    """Where a socket's bytes are received while `Pump.select` waits. Of plain text only: TLS is read by Python here."""

    trouble: tuple[int, int, int] | None = None

    def __init__(self, secured: tuple[int, ...] | None = None, keeper: object = None) -> None:
        assert secured is None
        self.buffer: memoryview | None = None
        self.used = 0
        self.wanted = 0
        self.least = 1

    def offer(self, buffer: memoryview, wanted: int) -> None:
        self.buffer, self.used, self.wanted = buffer, 0, wanted

    @property
    def received(self) -> int:
        return self.used

    def take(self) -> int:
        used, self.used = self.used, 0
        self.buffer = None
        return used

    def receive(self, number: int, *, eager: bool) -> bool:
        """Whether the frame is whole, or the connection over."""
        assert self.buffer is not None
        try:
            got = os.readv(number, [self.buffer[self.used :]])
        except BlockingIOError:
            return False
        except OSError:
            return True
        self.used += got
        if self.wanted == 0:
            self.wanted = _frame_end(self.buffer, self.used)
        if eager:
            self.wake_for_rest(number)
        return got == 0 or self.used == len(self.buffer) or 0 < self.wanted <= self.used

    def wake_for_rest(self, number: int) -> None:
        least = max(1, min(self.wanted - self.used, _AT_ONCE))
        if least != self.least:
            self.least = least
            # A copy of the number, since the `with` closes it: the socket is the transport's.
            with suppress(OSError), socket.socket(fileno=os.dup(number)) as copy:
                copy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)


def _frame_end(octets: memoryview, used: int) -> int:
    """How many bytes the frame takes that begins here: 0 where that is not known yet, `used` where it has no room."""
    if used < _HEAD:
        return 0
    length = int.from_bytes(octets[:_HEAD], "big", signed=True)
    return length + _HEAD if 0 <= length <= len(octets) - _HEAD else used


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry(Generic[D]):
    number: int
    events: int
    data: D
    line: Line | None

    def told(self, ready: int, *, whole: bool) -> int:
        received = self.line is not None and self.line.used > 0
        mask = _READ if received or whole or ready & ~select.POLLOUT else 0
        if ready & select.POLLOUT or (ready and self.events == select.POLLOUT):
            mask |= _WRITE
        return mask


class Pump(Generic[D]):
    """See `compiled_pump.pyi`."""

    def __init__(self, *, eager: bool) -> None:
        self._entries: dict[D, _Entry[D]] = {}
        self._eager = eager
        self.crowded = False
        self.takes = 0

    def register(self, data: D, number: int, interest: int, line: Line | None = None) -> None:
        events = (select.POLLIN if interest & _READ else 0) | (select.POLLOUT if interest & _WRITE else 0)
        self._entries[data] = _Entry(number=number, events=events, data=data, line=line)

    def unregister(self, data: D) -> None:
        self._entries.pop(data, None)

    def select(self, timeout: float) -> list[tuple[D, int]]:
        poll, entries = select.poll(), list(self._entries.values())
        for entry in entries:
            poll.register(entry.number, entry.events)
            line = entry.line
            # Others may have read since: less is missing now, or another frame is awaited.
            if self._eager and line is not None and line.buffer is not None and line.wanted - line.used < line.least:
                line.wake_for_rest(entry.number)
        at = now()
        until = at + max(0.0, timeout)
        self.takes += 1
        while True:
            ready, whole = _polled(poll, max(0.0, until - at)), set()
            idle = not ready
            for entry in entries:
                line = entry.line
                if line is not None and line.buffer is not None and ready.get(entry.number, 0) == select.POLLIN:
                    del ready[entry.number]
                    if line.receive(entry.number, eager=self._eager):
                        whole.add(entry.number)
                    if line.used:
                        until = min(until, now() + _MOMENT)
            at = now()
            if ready or whole or (at >= until and idle) or at >= until + _MOMENT:
                told = [(each, each.told(ready.get(each.number, 0), whole=each.number in whole)) for each in entries]
                return [(each.data, mask) for each, mask in told if mask]


def _polled(poll: select.poll, seconds: float) -> dict[int, int]:
    try:
        return dict(poll.poll(seconds * 1000))
    except OSError as error:
        if error.errno not in (errno.ENOMEM, errno.EAGAIN):
            raise
        time.sleep(_PAUSE)  # the system may have memory again soon
        return {}


class Waker:
    """See `compiled_pump.pyi`."""

    def __init__(self, number: int) -> None:
        self._number = number

    def wake(self) -> None:
        with suppress(OSError):
            os.write(self._number, b"\0")

    def close(self) -> None:
        self._number = -1


def send(number: int, data: memoryview) -> int:
    """See `compiled_pump.pyi`."""
    return os.write(number, data)


def receive(number: int, buffer: memoryview) -> int:
    """See `compiled_pump.pyi`."""
    return os.readv(number, [buffer])
