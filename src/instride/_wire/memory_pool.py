"""Memory for long frames, which is used again once nothing refers to what was received into it.

Laws
1. A segment is used again only where no view of it is left: while there is one, nothing can change its size.
2. Of segments that are free so many are kept that they take `most_bytes` together at most, and with what is idle of
   those in use twice that; the one that was used least lately goes first. What became free since, `trim` lets go of.
3. Idle is what nobody counts any more of a segment of which somebody has a part. Parts may stay (`may_stay`) while what
   is idle takes `most_bytes` together at most, and what is in use twice that. What stays may become idle then. All
   segments are looked at once for several parts, and anew once another one is kept: a response may have many parts.
4. A segment that is used again is not much longer than what is received into it, so that little of it is unused.
5. Before much memory is taken, all of this pool that is free goes (`let_go`). What takes it has pages of its own, which
   go back to the system with it: malloc would keep them, and what a buffer grew through. As long as those are there of
   a response, or of a part of one, `most_bytes` is less by them.
6. What is decompressed has a pool of its own beside, of a part as large. By that part less may be idle (law 3): all of
   it together takes no more memory than without it.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Final

__all__ = ["LARGE_BYTES", "Pages", "Segment", "Segments", "extended", "kept_bytes", "segment_bytes", "trim_malloc"]

LARGE_BYTES: Final = 8 << 20
"""What is longer is much memory (law 5)."""

_MALLOC_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)

# Part of Python's stable C interface. It alone makes a bytearray longer without bytes to fill it with. As an item it is
# an object of this module's own; as an attribute it is one that all libraries of the process share, with its argtypes.
_RESIZE: Final = ctypes.pythonapi["PyByteArray_Resize"]
_RESIZE.argtypes = (ctypes.py_object, ctypes.c_ssize_t)

# Segments that are in use take so many times `most_bytes`.
_IN_USE = 2
# Law 3: one look is for an eighth as many parts as segments are in use. So a part costs as much however many they are.
_LOOKED_AT = 8
# In 32nds of fetch_buffer_bytes: two of the longest responses, an eighth of it each, in segments that are an eighth
# longer. With room for one only, a consumer that is behind receives each second response into new memory.
_KEPT = 9
# Law 6: of `most_bytes`. An application frees much at once, and what is decompressed meanwhile needs less than that.
_DECOMPRESSED = 4


def kept_bytes(fetch_buffer_bytes: int) -> int:
    """The `most_bytes` of a consumer's pool."""
    return fetch_buffer_bytes * _KEPT // 32


def segment_bytes(length: int) -> int:
    """How long a segment for so many bytes is: an eighth longer at most, so that one fits the next frame as well."""
    step = 1 << max(0, length.bit_length() - 4)
    return -(-length // step) * step


def trim_malloc() -> None:
    """Give back to the system, where that can be, what malloc keeps for later: as much as was freed."""
    if _MALLOC_TRIM is not None:
        _MALLOC_TRIM(0)


class Pages(mmap.mmap):
    """Pages of this process alone, each of which exists once it is written to."""

    __slots__ = ("_pool",)

    def __new__(cls, size: int, pool: Segments | None = None) -> Pages:
        """Raises MemoryError."""
        try:
            return super().__new__(cls, -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"no room for {size} bytes") from error

    def __init__(self, size: int, pool: Segments | None = None) -> None:
        self._pool = None if pool is None else weakref.ref(pool)
        if pool is not None and size > LARGE_BYTES:
            pool.is_beside(self)

    @property
    def pool(self) -> Segments | None:
        """What it was received beside; None where that is no more."""
        return None if self._pool is None else self._pool()


def extended(buffer: bytearray, size: int) -> bytearray:
    """The buffer with so many bytes more, of any content. Raises MemoryError, and then the buffer is as it was.

    A copy of it where somebody else has a view of it: a profiler that lists all objects of the process, say.
    """
    try:
        # Not `extend(bytes(size))`: it writes zeros where a response is received next. Of a segment of 8 MiB that took
        # a millisecond, and each of its pages twice.
        _RESIZE(buffer, len(buffer) + size)
    except BufferError:
        return buffer + bytes(size)
    return buffer


class Segment(bytearray):
    """Memory for a long frame. It does not keep its pool. One thread works with it, and any may drop views of it."""

    __slots__ = ("__weakref__", "_ended", "_lent", "_live", "_pool", "kept")

    def __init__(self, source: bytes | bytearray | memoryview, pool: Segments) -> None:
        super().__init__(source)
        self._pool = weakref.ref(pool)
        self.kept = False
        # Of the parts that were lent: how many bytes they have together, less those that ended and are not counted yet.
        self._live = 0
        self._lent: dict[int, tuple[weakref.ref[memoryview], int]] = {}
        self._ended: list[weakref.ref[memoryview]] = []

    @property
    def pool(self) -> Segments | None:
        """What it was received beside; None where that is no more."""
        return self._pool()

    def may_stay(self) -> bool:
        """Whether a part may be lent: memory enough is free for all of the segment to stay with it."""
        pool = self._pool()
        return pool is not None and pool.may_stay(self)

    def lend(self, part: memoryview, nbytes: int) -> None:
        """Somebody else counts so many bytes of this segment until that view goes."""
        # A function in C: in one of Python a signal could come, whose exception would be lost there. By identity, as a
        # view that can be written to has no hash.
        reference = weakref.ref(part, self._ended.append)
        self._lent[id(reference)] = (reference, nbytes)
        self._live += nbytes

    @property
    def idle(self) -> int:
        """How many of its bytes nobody counts."""
        # Any thread may add to the list meanwhile: what it adds is counted now or the next time.
        while self._ended:
            ended = self._lent.pop(id(self._ended.pop()), None)
            self._live -= 0 if ended is None else ended[1]
        return max(0, len(self) - self._live)

    def forget(self) -> None:
        """It is taken: no part is left. Of one that is about to say so nobody takes note."""
        self.kept = False
        self._lent.clear()
        self._ended.clear()
        self._live = 0


class Segments:
    """Not thread-safe: one thread receives into them. Views of them may be dropped by any thread.

    most_bytes: of segments that are kept for the next frame; 0 keeps none. See law 2.
    """

    __slots__ = ("__weakref__", "_decompressed", "_in_use", "_in_use_for", "_kept", "_most_bytes", "_pages")

    def __init__(self, most_bytes: int = 0) -> None:
        self._most_bytes = most_bytes
        self._decompressed: Segments | None = None
        # Those in use, too: they are there in any case, and so are known.
        self._kept: list[Segment] = []
        self._pages: list[weakref.ref[Pages]] = []
        # Law 3: how many bytes were in use and idle when they were looked at, and for how many parts that holds.
        self._in_use = (0, 0)
        self._in_use_for = 0

    def bound(self, most_bytes: int) -> None:
        """Of what is kept from now on."""
        self._most_bytes = most_bytes
        self.trim()
        if self._decompressed is not None:
            self._decompressed.bound(most_bytes // _DECOMPRESSED)

    @property
    def decompressed(self) -> Segments:
        """The pool of law 6."""
        if self._decompressed is None:
            self._decompressed = Segments(self._most_bytes // _DECOMPRESSED)
        return self._decompressed

    def new(self, source: bytes | bytearray | memoryview) -> Segment:
        """With this content; it may grow. `keep` it once it is whole."""
        return Segment(source, self)

    def new_pages(self, length: int) -> Pages | None:
        """For a frame of this length, where it is so long that it would not be kept: law 5. Raises MemoryError."""
        if segment_bytes(length) <= max(self._most_bytes, LARGE_BYTES):
            return None
        self.let_go()
        trim_malloc()
        return Pages(length, self)

    def take(self, length: int) -> Segment | None:
        """A segment for so many bytes, with its old content; None where none that is kept fits and is free."""
        most = segment_bytes(length) + length // 8
        for place in range(len(self._kept) - 1, -1, -1):
            segment = self._kept[place]
            if length <= len(segment) <= most and _is_free(segment):
                del self._kept[place]
                segment.forget()
                return segment
        return None

    def extended(self, segment: Segment, size: int) -> Segment:
        """The segment with so many bytes more; see `extended`."""
        grown = extended(segment, size)
        return grown if isinstance(grown, Segment) else Segment(grown, self)

    def keep(self, segment: Segment) -> None:
        """For the next frame. Call this once there is a view of it."""
        # It would push out all others, and itself.
        if len(segment) <= self._most_bytes:
            self._kept.append(segment)
            segment.kept, self._in_use_for = True, 0
            self.trim()

    def trim(self) -> None:
        """Law 2."""
        free = [each for each in self._kept if _is_free(each)]
        if not free:
            return
        most_bytes = self._most_beside_pages()
        over = sum(map(len, free)) - most_bytes
        over += max(0, sum(each.idle for each in self._kept if not _is_free(each)) - self._most_idle(most_bytes))
        for each in free:
            if over <= 0:
                return
            # Not `remove`, which compares contents.
            self._kept = [other for other in self._kept if other is not each]
            over -= len(each)

    def let_go(self) -> None:
        """Law 5."""
        self._kept = [each for each in self._kept if not _is_free(each)]
        if self._decompressed is not None:
            self._decompressed.let_go()

    def may_stay(self, segment: Segment) -> bool:
        """Law 3, of a segment that is kept."""
        if not segment.kept:
            return False
        if self._in_use_for <= 0:
            used = [each for each in self._kept if not _is_free(each)]
            self._in_use = sum(map(len, used)), sum(each.idle for each in used)
            self._in_use_for = len(used) // _LOOKED_AT
        self._in_use_for -= 1
        (used_bytes, idle), most_bytes = self._in_use, self._most_beside_pages()
        return used_bytes <= _IN_USE * most_bytes and idle <= self._most_idle(most_bytes)

    def is_beside(self, pages: Pages) -> None:
        """Law 5."""
        self._pages = [each for each in self._pages if each() is not None]
        self._pages.append(weakref.ref(pages))

    def _most_idle(self, most_bytes: int) -> int:
        """Law 6."""
        return most_bytes if self._decompressed is None else max(0, most_bytes - self._decompressed._most_bytes)

    def _most_beside_pages(self) -> int:
        """Law 5."""
        if not self._pages:
            return self._most_bytes
        there = (pages for each in self._pages if (pages := each()) is not None)
        return max(0, self._most_bytes - sum(map(len, there)))


def _is_free(segment: Segment) -> bool:
    """Law 1."""
    try:
        last = segment.pop()
    except BufferError:
        return False
    segment.append(last)
    return True
