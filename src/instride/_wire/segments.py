"""Memory for long frames, which is used again once nothing refers to what was received into it.

Laws
1. A segment is used again only where no view of it is left: while there is one, nothing can change its size.
2. Segments that are kept take `most_bytes` together at most; the one that was used least lately goes first. One that
   goes while there are views of it lives as long as they do, and counts as in use for so long.
3. A segment that is used again is not much longer than what is received into it, so that little of it is idle.
"""

from __future__ import annotations

import weakref

__all__ = ["Segment", "Segments", "extended", "segment_bytes"]


def segment_bytes(length: int) -> int:
    """How long a segment for so many bytes is: an eighth longer at most, so that one fits the next frame as well."""
    step = 1 << max(0, length.bit_length() - 4)
    return -(-length // step) * step


def extended(buffer: bytearray, size: int) -> bytearray:
    """The buffer with so many bytes more.

    A copy of it where somebody else has a view of it: a profiler that lists all objects of the process, say.
    """
    try:
        buffer.extend(bytes(size))
    except BufferError:
        return buffer + bytes(size)
    return buffer


class Segment(bytearray):
    """Memory for a long frame. It does not keep its pool."""

    __slots__ = ("__weakref__", "_pool")

    def __init__(self, source: bytes | bytearray | memoryview, pool: Segments) -> None:
        super().__init__(source)
        self._pool = weakref.ref(pool)

    def may_stay(self) -> bool:
        """Whether there is memory enough that a view of a part may keep all of it. The thread that receives asks."""
        pool = self._pool()
        return pool is not None and pool.may_stay(self)


class Segments:
    """Not thread-safe: one thread receives into them. Views of them may be dropped by any thread.

    most_bytes: of segments that are kept for the next frame, in use or not; 0 keeps none.
    """

    __slots__ = ("__weakref__", "_gone", "_kept", "_most_bytes", "_nbytes")

    def __init__(self, most_bytes: int = 0) -> None:
        self._most_bytes = most_bytes
        self._kept: list[Segment] = []
        self._nbytes = 0
        # Those that went while there were views of them (law 2).
        self._gone: list[weakref.ref[Segment]] = []

    def new(self, source: bytes | bytearray | memoryview) -> Segment:
        """With this content; it may grow. `keep` it once it is whole."""
        return Segment(source, self)

    def take(self, length: int) -> Segment | None:
        """A segment for so many bytes, with its old content; None where none that is kept fits and is free."""
        most = segment_bytes(length) + length // 8
        for place in range(len(self._kept) - 1, -1, -1):
            segment = self._kept[place]
            if length <= len(segment) <= most and _is_free(segment):
                del self._kept[place]
                self._nbytes -= len(segment)
                return segment
        return None

    def extended(self, segment: Segment, size: int) -> Segment:
        """The segment with so many bytes more; see `extended`."""
        grown = extended(segment, size)
        return grown if isinstance(grown, Segment) else Segment(grown, self)

    def keep(self, segment: Segment) -> None:
        """For the next frame. Call this once there is a view of it."""
        # It would push out all others, and itself.
        if len(segment) > self._most_bytes:
            return
        self._kept.append(segment)
        self._nbytes += len(segment)
        while self._nbytes > self._most_bytes:
            oldest = self._kept.pop(0)
            self._nbytes -= len(oldest)
            if not _is_free(oldest):
                self._gone.append(weakref.ref(oldest))

    def may_stay(self, segment: Segment) -> bool:
        """Whether all that is in use is within the bound, this one too."""
        used = sum(len(each) for each in self._kept if not _is_free(each))
        for reference in tuple(self._gone):
            alive = reference()
            if alive is None:
                self._gone.remove(reference)
            else:
                used += len(alive)
        return used <= self._most_bytes and len(segment) <= self._most_bytes


def _is_free(segment: Segment) -> bool:
    """Law 1."""
    try:
        last = segment.pop()
    except BufferError:
        return False
    segment.append(last)
    return True
