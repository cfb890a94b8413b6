"""A stream of bytes cut into Kafka's frames: an INT32 length, then so many bytes.

Laws
1. A length is judged before anything is allocated for it, and a long one by its request, whose number
   the first bytes of the frame say. Once one is refused, no further frame comes out.
2. A frame that does not fit into the scratch buffer gets one segment (`memory_pool`), into which the caller receives
   directly. Where none is there to be used again, it grows with what has arrived: a claimed length costs nothing. Up
   to the length of the longest frame that this connection has sent whole, a claimed length is believed. One that is too
   long to be kept gets pages: what is claimed takes addresses, and memory only where it has arrived.
   Frames are views, and records decoded from them may keep them. Where a long frame is likely, since the last one was
   long, a segment that is there to be used again takes it from its first byte on.
3. The first frame of a connection is small. What is not is judged by its first bytes: it is not Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from instride._wire.memory_pool import Pages, Segment, Segments, segment_bytes
from instride._wire.not_kafka import not_kafka
from instride.errors import FrameTooLargeError, KafkaError
from instride.errors._quoting import counted

__all__ = ["FIRST_FRAME_BYTES", "FrameBuffer"]

_LENGTH: Final = struct.Struct(">i")
_SCRATCH_BYTES: Final = 64 * 1024
# A longer frame is a long one.
_SHORT: Final = _SCRATCH_BYTES - _LENGTH.size
# By how much the buffer of a long frame grows at once: as much as has arrived, at most this. After each growth the
# network thread waits anew. So up to the length of the longest frame that came whole, the buffer is made at once.
_LARGEST_STEP: Final = 1 << 20
# The response to ApiVersions is under 2 KB. Any text, TLS record or foreign greeting read as a length is above this.
FIRST_FRAME_BYTES: Final = 1 << 20


class FrameBuffer:
    """Receives bytes, gives frames. Not thread-safe.

    max_frame_bytes: the longest frame to accept. most_bytes: the longest one that begins with this number, or None
        where a frame that begins so is for nobody. segments: what long frames are received into.
    After `failure` is set the stream is useless; bytes are taken and ignored.
    """

    def __init__(
        self,
        *,
        max_frame_bytes: int,
        most_bytes: Callable[[int], int | None] | None = None,
        segments: Segments | None = None,
    ) -> None:
        self._segments = Segments() if segments is None else segments
        self._max_frame_bytes = max_frame_bytes
        self._most_bytes = most_bytes
        self._small = bytearray(_SCRATCH_BYTES)
        self._scratch: bytearray = self._small  # or a segment
        self._scratch_used = 0
        self._last_long = 0  # how long the last frame was, if that was a long one
        self._longest = 0  # of all long ones that came whole
        self._large: Segment | Pages | None = None
        self._large_used = 0
        self._large_length = 0
        self._seen_first = False
        self.failure: KafkaError | None = None

    @property
    def is_between_frames(self) -> bool:
        """Whether no part of an unfinished frame has been received."""
        return self._large is None and self._scratch_used == 0

    @property
    def wanted(self) -> int:
        """How many bytes of the buffer make the frame whole that has begun; 0 where none has begun."""
        if self._large is not None:
            return self._large_length - self._large_used
        if self._scratch_used < _LENGTH.size:
            # Of a length that is not whole: any byte may be the last that it lacks.
            return min(self._scratch_used, 1)
        (length,) = _LENGTH.unpack_from(self._scratch)
        return max(1, _LENGTH.size + int(length) - self._scratch_used)

    def get_buffer(self, *, whole: bool = False) -> memoryview:
        """Where to receive next, never empty. Release it, and call `buffer_updated` before calling this again.

        whole: a frame is awaited, and is to be received at once if it is as long as the last one.
        """
        if self._large is not None:
            return memoryview(self._large)[self._large_used : self._large_length]
        if self._scratch_used == 0:
            self._make_room(self._last_long if whole else 0)
        return memoryview(self._scratch)[self._scratch_used :]

    def _make_room(self, length: int) -> None:
        """For a frame of this length, or for short ones."""
        if isinstance(self._scratch, Segment):
            if length:
                return
            self._segments.keep(self._scratch)
            self._scratch = self._small
        if not length:
            self._segments.trim()
        segment = self._segments.take(_LENGTH.size + length) if length else None
        if segment is not None:
            self._scratch = segment

    def buffer_updated(self, size: int) -> list[memoryview]:
        """Takes note of `size` bytes received into the buffer. Returns the frames that are now complete."""
        if self.failure is not None:
            return []
        if self._large is None:
            self._scratch_used += size
            return self._cut()
        self._large_used += size
        if self._large_used < self._large_length:
            self._grow(self._large)
            return []
        memory, self._large = self._large, None
        return [self._handed_out(memory, 0, self._large_length)]

    def _handed_out(self, memory: Segment | Pages, start: int, end: int) -> memoryview:
        """A long frame, which stays where it is."""
        frame = memoryview(memory)[start:end]
        if isinstance(memory, Segment):
            self._segments.keep(memory)
        self._last_long = end - start
        self._longest = max(self._longest, self._last_long)
        return frame

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """The same for bytes that were received elsewhere, at the price of a copy."""
        frames: list[memoryview] = []
        rest = memoryview(data)
        while rest and self.failure is None:
            buffer = self.get_buffer()
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            # A view that is left would have `extended` copy the buffer instead of growing it.
            buffer.release()
            rest = rest[size:]
            frames += self.buffer_updated(size)
        return frames

    def _cut(self) -> list[memoryview]:
        """All whole frames of the scratch buffer. What is left of it moves to the front, or to a large buffer."""
        frames: list[memoryview] = []
        start, end = 0, self._scratch_used
        while end - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._scratch, start)
            if not self._accept(length, start):
                return frames
            if length > end - start - _LENGTH.size:
                break
            start += _LENGTH.size
            if length > _SHORT and not self._accept_long(length, start):
                return frames
            if isinstance(self._scratch, Segment) and length > _SHORT and start + length == end:
                frames.append(self._handed_out(self._scratch, start, end))
                self._scratch, self._scratch_used = self._small, 0
                return frames
            # A copy: the scratch buffer is received into again while records are still read from frames. It is never
            # kept; from a segment whoever decompresses records finds its pool (law 5 of `memory_pool`).
            frames.append(memoryview(self._segments.new(memoryview(self._scratch)[start : start + length])))
            self._last_long = 0
            start += length
        self._keep(start, end)
        return frames

    def _accept(self, length: int, start: int) -> bool:
        if not self._seen_first:
            if not 0 <= length <= min(FIRST_FRAME_BYTES, self._max_frame_bytes):
                self.failure = not_kafka(bytes(self._scratch[start : self._scratch_used]))
        elif not 0 <= length <= self._max_frame_bytes:
            self.failure = FrameTooLargeError(
                f"a frame of {counted(length, 'byte')} was announced; max_frame_bytes allows {self._max_frame_bytes}"
            )
        self._seen_first = True
        return self.failure is None

    def _keep(self, start: int, end: int) -> None:
        """Keeps an unfinished frame's beginning (or nothing)."""
        begun = end - start - _LENGTH.size
        if begun >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._scratch, start)
            if length > len(self._scratch) - _LENGTH.size:
                self._begin_large(length, start + _LENGTH.size, end)
                return
        if start:  # else it is there: a long frame that comes in small pieces would be copied with each of them
            self._scratch[: end - start] = self._scratch[start:end]
        self._scratch_used = end - start

    def _accept_long(self, length: int, start: int) -> bool:
        """start: of its body, whose first bytes are there."""
        (number,) = _LENGTH.unpack_from(self._scratch, start)
        most = self._max_frame_bytes if self._most_bytes is None else self._most_bytes(number)
        if most is None or length > most:
            why = "for which no request waits" if most is None else f"{most} are the most for what was asked"
            self.failure = FrameTooLargeError(
                f"a frame of {counted(length, 'byte')} was announced, {why}", length=length
            )
        return self.failure is None

    def _begin_large(self, length: int, start: int, end: int) -> None:
        if not self._accept_long(length, start):
            return
        self._large_used, self._large_length, self._scratch_used = end - start, length, 0
        self._large = self._segments.take(length) or self._segments.new_pages(length)
        if self._large is None:
            # As much as is there, not as is claimed (law 2).
            self._large = self._segments.new(memoryview(self._scratch)[start:end])
            self._grow(self._large)
        else:
            self._large[: end - start] = memoryview(self._scratch)[start:end]
        if isinstance(self._scratch, Segment):
            # Beside pages it would be there for nothing (law 5 of `memory_pool`).
            if isinstance(self._large, Segment):
                self._segments.keep(self._scratch)
            self._scratch = self._small

    def _grow(self, large: Segment | Pages) -> None:
        if isinstance(large, Segment) and self._large_used == len(large):
            step = min(_LARGEST_STEP, max(_SCRATCH_BYTES, self._large_used))
            step = max(step, self._longest - self._large_used)
            step = min(step, segment_bytes(self._large_length) - self._large_used)
            self._large = self._segments.extended(large, step)
