"""One direction of a connection: what is sent arrives in order, whole, or as bytes that are cut anywhere.

Laws
1. What arrives is a first part of what was sent. Once something was lost, nothing that was sent after it arrives.
2. As bytes, each message is a frame. Its pieces come apart, and `wire`'s own frame reader puts them together: where a
   connection breaks within a frame, the message has not arrived.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from instride._wire.frames import FrameBuffer
from instride.testing._simulation.scheduler import Scheduler

__all__ = ["FramedPipe", "Pipe", "WholePipe"]

Arrived = Callable[[int, Any], None]
_HEAD = struct.Struct(">ii")
_MOST = 1 << 20
_LARGE = 70_000
"""Bytes of a message now and then: more than the frame reader's own buffer has."""


class Pipe(Protocol):
    def send(self, number: int, message: Any) -> None: ...


class WholePipe:
    """latency: of the next message. blocked_until: a time. passes: whether anything still comes through."""

    __slots__ = ("_arrived", "_arrives", "_blocked_until", "_latency", "_passes", "_scheduler", "_under_way")

    def __init__(
        self,
        scheduler: Scheduler,
        latency: Callable[[], float],
        blocked_until: Callable[[], float],
        passes: Callable[[], bool],
        arrived: Arrived,
    ) -> None:
        self._scheduler = scheduler
        self._latency = latency
        self._blocked_until = blocked_until
        self._passes = passes
        self._arrived = arrived
        self._arrives = 0.0
        self._under_way: deque[Callable[[], None]] = deque()

    def send(self, number: int, message: Any) -> None:
        self._after(partial(self._arrived, number, message))

    def _after(self, step: Callable[[], None]) -> None:
        """In order, each after its latency."""
        self._under_way.append(step)
        self._arrives = max(self._arrives, self._scheduler.now + self._latency())
        self._scheduler.at(self._arrives, self._arrive)

    def _arrive(self) -> None:
        """The time of one has come, and it is always the first's turn."""
        if self._scheduler.now < self._blocked_until():
            self._arrives = max(self._arrives, self._blocked_until())
            self._scheduler.at(self._blocked_until(), self._arrive)
            return
        step = self._under_way.popleft()
        if self._passes():
            step()


class FramedPipe(WholePipe):
    """Law 2. partly: called when a part of a message has arrived, and the rest has not."""

    __slots__ = ("_frames", "_partly", "_sent")

    def __init__(
        self,
        scheduler: Scheduler,
        latency: Callable[[], float],
        blocked_until: Callable[[], float],
        passes: Callable[[], bool],
        arrived: Arrived,
        *,
        partly: Callable[[], None],
    ) -> None:
        super().__init__(scheduler, latency, blocked_until, passes, arrived)
        self._frames = FrameBuffer(max_frame_bytes=_MOST)
        self._sent: dict[int, Any] = {}
        self._partly = partly

    def send(self, number: int, message: Any) -> None:
        random = self._scheduler.random
        size = _LARGE if random.random() < 0.01 else random.randrange(300)
        data = _HEAD.pack(size + 4, number) + bytes(size)
        self._sent[number] = message
        cuts = sorted(random.randrange(len(data)) for _ in range(random.randrange(4)))
        for first, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            self._after(partial(self._receive, data[first:end]))

    def _receive(self, data: bytes) -> None:
        for frame in self._frames.receive_data(data):
            (number,) = struct.unpack_from(">i", frame)
            self._arrived(number, self._sent.pop(number))
        if not self._frames.is_between_frames:
            self._partly()
