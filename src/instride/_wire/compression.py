"""Kafka's codecs, decompressed into one buffer for a whole record set, within a bound.

Laws
1. Memory follows what is there, never what bytes claim: it grows step by step up to `limit`, then stops. What is
   expected is a hint: it is taken up to `LARGE_BYTES` at once, and where the system refuses that, less is tried.
   Much of it never exists twice: what is large is decompressed into pages that exist once they are written to, and
   that can be released to the system one by one.
2. Whatever is wrong with the bytes, `CompressionError` says so; no other error leaves this module.
3. Besides the buffer zstd's decoder keeps a window, as large as its frame says: what is larger than usual counts.
4. The package gives up the GIL in each call, and makes a decoder: so small batches go to it many at a time, joined.
   Each must be one whole frame, which claims nothing of what follows. Where its records end is known by a mark between
   the frames: random, chosen once per process, compressed by itself. If the marks do not come out as they went in, the
   whole output is discarded, and each batch is decompressed alone: then the one that is broken or too large is known.
5. What malloc would take from the system and return to it each time is a segment of the pool, which is used again.
   A new page costs as much as to decompress what it holds.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import cramjam

from instride._wire.memory_pool import LARGE_BYTES, Pages, Segment, Segments, extended, segment_bytes, trim_malloc

__all__ = ["CODECS", "MARKS", "CompressionError", "Sections", "TooLargeError", "moved", "releases_of"]

# The three low bits of a batch's attributes.
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_ZSTD: Final = 4
_FRAME: Final = b"\x28\xb5\x2f\xfd"
_SKIPPED_FRAME: Final = b"\x2a\x4d\x18"
# Of a decoder's window: up to level 19, and in what RFC 8878 wants every decoder to have. What none is larger than.
_USUAL_WINDOW: Final = 8 << 20
_LARGEST_WINDOW: Final = 1 << 62
# Data of up to so many bytes is copied, and the copy searched for a second frame.
_SEARCHED_BYTES: Final = 1 << 14
# Each holds up to 128 KiB. Of more the window is not known.
_MOST_BLOCKS: Final = 10_000
# How cramjam says that the output did not fit. With snappy it has other words.
_TOO_SMALL: Final = ("failed to write whole buffer", "snappy: output buffer ")

_SNAPPY_BLOCK: Final = cramjam.snappy.decompress_raw_into

# snappy-java's framing (the Java client's): magic, two versions, then blocks with their lengths before them.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16

# Law 4. A repetition, so that compressed it is another text.
_MARK: Final = os.urandom(8) * 6
MARKS: Final = {
    1: bytes(cramjam.gzip.compress(_MARK)),
    3: bytes(cramjam.lz4.compress(_MARK)),
    4: bytes(cramjam.zstd.compress(_MARK)),
}
"""The mark as each codec compresses it, where batches may be joined. A block of snappy has no end of its own."""

_GZIP_MEMBER: Final = b"\x1f\x8b"
_LZ4: Final = 3
_LZ4_FRAME: Final = b"\x04\x22\x4d\x18"
# Frames of more blocks are not joined: to go over them takes as long as a call of the package.
_BLOCKS_OF_JOINED: Final = 100

_SMALLEST_STEP: Final = 1 << 16
# Law 5. What is smaller malloc has at hand, and there would be very many of them to look through.
_SMALLEST_SEGMENT: Final = 1 << 20
# A buffer is copied where it would keep a part of this more than is used.
_WORTH_A_COPY: Final = 4
# What is moved is there twice a part at a time.
_MOVED_BYTES: Final = 1 << 20

# To give pages back.
_GIVE_BACK: Final = mmap.MADV_DONTNEED
_MADVISE: Final = getattr(ctypes.CDLL(None), "madvise", None)


class CompressionError(ValueError):
    """Compressed bytes are broken, of an unknown codec, or more than the bound when decompressed."""


class TooLargeError(CompressionError):
    """They are more than the bound when decompressed; with a larger one they may be well."""


class Sections:
    """The records of several batches, decompressed, one after another in one buffer.

    segments: where the buffer comes from (law 5). What is free of them goes before much memory is taken.
    kept: once it is finished, how much memory the buffer keeps.
    """

    __slots__ = ("_buffer", "_segments", "_used", "kept")

    def __init__(self, expected_bytes: int, segments: Segments | None = None) -> None:
        self._segments = segments
        self._buffer: bytearray | mmap.mmap = bytearray()
        with suppress(MemoryError):  # a hint (law 1)
            self._buffer = _buffer_of(expected_bytes, segments)
        self._used = 0
        self.kept = 0

    @property
    def used(self) -> int:
        return self._used

    def append(self, codec: int, data: memoryview, limit: int, *, expected_bytes: int = 0) -> tuple[int, int]:
        """Adds a batch's records. Returns where they start and end. Raises CompressionError, MemoryError.

        expected_bytes: of the records, for the first try (law 1); 0 where nothing is known.
        """
        # Decompressing a few rows takes hardly longer than these steps, so there are as few as possible.
        window = 0
        if codec == _ZSTD:
            window = _window(data)
            limit = _limit_beside(window, limit)
        start, size = self._used, self._fill_growing(codec, data, expected_bytes or len(data), limit)
        if size < 0:
            # The limit was lowered for the window: without a word of it, the batch would seem to fit.
            beside = " beside its decoder's large window" if window > _USUAL_WINDOW else ""
            raise TooLargeError(f"a {CODECS[codec]} batch holds over {limit} bytes{beside}")
        self._used = start + size
        return start, self._used

    def append_joined(
        self,
        codec: int,
        batches: Sequence[memoryview],
        *,
        least_bytes: Sequence[int],
        expected_bytes: int,
        limit: int,
    ) -> list[tuple[int, int]] | None:
        """Adds several batches' records by one call of the codec (law 4), one of `MARKS`.

        least_bytes: of each. expected_bytes, limit: of all. Returns where each starts and ends. None: nothing was
        added, and each batch alone may still decompress.
        """
        if not all(_may_be_joined(codec, each) for each in batches):
            return None
        start = self._used
        try:
            size = self._fill_growing(codec, memoryview(MARKS[codec].join(batches)), expected_bytes, limit)
        except (CompressionError, MemoryError):
            return None
        found = self._between_marks(start, start + size) if size >= 0 else []
        if len(found) != len(batches):
            return None
        if any(end - at < least for (at, end), least in zip(found, least_bytes, strict=True)):
            return None
        self._used = start + size
        return found

    def finish(self) -> memoryview:
        """What was added. Nothing can be added after it."""
        self.kept = self._used
        if isinstance(self._buffer, Segment) and self._segments is not None:
            return self._finish_segment(self._buffer, self._segments.decompressed)
        return memoryview(self._finish_buffer())

    def _finish_segment(self, segment: Segment, segments: Segments) -> memoryview:
        used = memoryview(segment)[: self._used]
        segments.keep(segment)
        if (len(segment) - self._used) * _WORTH_A_COPY > self._used:
            return memoryview(bytes(used))
        self.kept = len(segment)
        segment.lend(used, self.kept)
        return used

    def _finish_buffer(self) -> bytes | bytearray | mmap.mmap:
        """The buffer, cut to what is used."""
        if isinstance(self._buffer, mmap.mmap):
            # Where it cannot be cut, or somebody has a view of it: its last pages were never there.
            with suppress(SystemError, BufferError, OSError):
                self._buffer.resize(max(1, self._used))
            return self._buffer
        spare = len(self._buffer) - self._used
        # A bytearray that is cut to less than half gives back the rest, without a copy. Else it keeps all: for so much
        # spare a copy is worth it.
        shrinks = 2 * self._used < len(self._buffer)
        if spare * _WORTH_A_COPY > self._used and not shrinks:
            return bytes(memoryview(self._buffer)[: self._used])
        try:
            del self._buffer[self._used :]
        except BufferError:  # as in `extended`
            return bytes(memoryview(self._buffer)[: self._used])
        # What stays with the bytearray counts.
        self.kept = self._used if shrinks else self._used + spare
        return self._buffer

    @property
    def releases(self) -> bool:
        """Whether its pages can be released one by one."""
        return isinstance(self._buffer, mmap.mmap)

    def release(self, start: int, end: int) -> None:
        """Gives back the pages that lie wholly within these bytes. Only where it `releases`."""
        first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if isinstance(self._buffer, mmap.mmap) and first < last:
            # Pages that the process has locked into memory (mlockall) stay there until the buffer goes.
            with suppress(OSError):
                self._buffer.madvise(_GIVE_BACK, first, last - first)

    def _between_marks(self, start: int, end: int) -> list[tuple[int, int]]:
        found = []
        while (at := self._buffer.find(_MARK, start, end)) >= 0:
            found.append((start, at))
            start = at + len(_MARK)
        found.append((start, end))
        return found

    def _fill_growing(self, codec: int, data: memoryview, expected_bytes: int, limit: int) -> int:
        """How many bytes it filled, or -1 where they are more than the limit."""
        space = min(limit, len(self._buffer) - self._used)
        if space < expected_bytes:
            space = self._expecting(expected_bytes, max(space, len(data)), limit)
        while (size := self._fill(codec, data, space)) < 0 and space < limit:
            space = self._more(space, limit)
        return size

    def _expecting(self, expected_bytes: int, least: int, limit: int) -> int:
        """What is tried first where what is there seems too little (law 1)."""
        least = min(limit, least)
        space = min(limit, expected_bytes, LARGE_BYTES - self._used)
        if space > least:
            with suppress(MemoryError):
                self._grow(self._used + space)
                return space
        return least

    def _more(self, space: int, limit: int) -> int:
        """What is tried after so much was too little."""
        # By half of what is there at least: so few batches are tried twice.
        more = min(limit, max(2 * space, len(self._buffer) // 2, _SMALLEST_STEP))
        if more <= LARGE_BYTES:
            return more
        # From here on it is made of pages, which are there only where something is written. The system may refuse the
        # whole bound all the same: it counts addresses (RLIMIT_AS), or promises no more than it has (overcommit).
        with suppress(MemoryError):
            self._grow(self._used + limit)
            return limit
        return more

    def _fill(self, codec: int, data: memoryview, space: int) -> int:
        """How many bytes it filled, or -1 where they do not fit."""
        end = self._used + space
        if end > len(self._buffer):
            self._grow(end)
        # Released at once: a buffer that somebody views cannot grow in place.
        with memoryview(self._buffer)[self._used : end] as target:
            try:
                return int(_DECOMPRESS_INTO[codec](data, target))
            except KeyError:
                raise CompressionError(f"compression codec {codec} is unknown") from None
            except cramjam.DecompressionError as error:
                if str(error).startswith(_TOO_SMALL):
                    return -1
                raise CompressionError(f"the {CODECS[codec]} data of a batch is broken: {error}") from error

    def _grow(self, size: int) -> None:
        old = self._buffer
        if size <= LARGE_BYTES and isinstance(old, bytearray):
            self._buffer = extended(old, size - len(old))
            return
        if self._segments is not None:
            self._segments.let_go()
        self._buffer = Pages(size)
        self._buffer.write(memoryview(old)[: self._used])
        del old
        # Malloc may keep it for later, with what the decoder took to try it and what was there before: as much again.
        trim_malloc()


def _buffer_of(nbytes: int, segments: Segments | None) -> bytearray:
    """Of any content. Raises MemoryError."""
    if segments is None or nbytes < _SMALLEST_SEGMENT:
        # Not `bytearray(nbytes)`: it writes zeros where the codec writes next.
        return extended(bytearray(), nbytes)
    pool = segments.decompressed
    return pool.take(nbytes) or pool.extended(pool.new(b""), segment_bytes(nbytes))


def releases_of(data: memoryview) -> Callable[[int, int], object] | None:
    """Gives back the pages that lie wholly within these bytes of `data`, as `Sections.release` does.

    None where `data` is nothing large that was received.
    """
    return _releases_of_part(data) if len(data) > LARGE_BYTES else None


def moved(data: memoryview, *, gives_back: bool = True) -> memoryview:
    """A copy of it; nobody reads `data` any more. Raises MemoryError, and then `data` is still there.

    gives_back: a part of a large buffer gives back its pages as it is copied, so little is there twice, however much
        it is. That makes the system clear a page for each that is copied, and one for each that is received next: more
        than twice the CPU time of a record. So it is for what comes seldom.
    """
    release, owner = _releases_of_part(data) if gives_back else None, data.obj
    if release is None:
        return memoryview(bytes(data))
    if len(data) > LARGE_BYTES:
        trim_malloc()  # what was decoded before may be kept for later, as much as this again
    pages = Pages(len(data), owner.pool if isinstance(owner, Segment | Pages) else None)
    for start in range(0, len(data), _MOVED_BYTES):
        end = min(start + _MOVED_BYTES, len(data))
        pages.write(data[start:end])
        # From a page before: the page in which two parts meet lies wholly in neither.
        release(max(0, start - mmap.PAGESIZE), end)
    return memoryview(pages)


def _releases_of_part(data: memoryview) -> Callable[[int, int], object] | None:
    """The same for a part of such a buffer, however small."""
    owner = data.obj
    if _MADVISE is None or not isinstance(owner, Segment | Pages) or not data or len(owner) <= LARGE_BYTES:
        return None
    begin = ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))

    def release(start: int, end: int) -> None:
        first = -(-(begin + start) // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (begin + end) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last:
            _MADVISE(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _GIVE_BACK)

    return release


def _limit_beside(window: int, limit: int) -> int:
    """Law 3. As much of the window is there as was decompressed, or all of it."""
    return limit if window <= _USUAL_WINDOW else max(limit - window, limit // 2)


def _window(data: memoryview) -> int:
    """The largest of all frames. Of bytes that are no frames any more the decoder tells."""
    at = largest = blocks = 0
    try:
        # Where nothing looks like a second frame the first is the only one, and no block need be looked at.
        if len(data) <= _SEARCHED_BYTES and data.tobytes().rfind(_FRAME) == 0:
            return _frame_header(data, 4)[0]
        while at < len(data) and blocks <= _MOST_BLOCKS:
            if bytes(data[at + 1 : at + 4]) == _SKIPPED_FRAME:
                at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
                blocks += 1
            elif bytes(data[at : at + 4]) == _FRAME:
                window, at, checked = _frame_header(data, at + 4)
                largest = max(largest, window)
                at, blocks = _end_of_blocks(data, at, blocks)
                at += 4 * checked
            else:
                return largest
    except IndexError:
        return largest
    return largest if blocks <= _MOST_BLOCKS else _LARGEST_WINDOW


def _may_be_joined(codec: int, data: memoryview) -> bool:
    """Law 4. A member of gzip that claims what follows would have to meet a checksum that the mark enters."""
    try:
        if codec == _ZSTD:
            return _is_usual_zstd(data)
        return _is_one_lz4(data) if codec == _LZ4 else bytes(data[:2]) == _GZIP_MEMBER
    except IndexError:
        return False


def _is_usual_zstd(data: memoryview) -> bool:
    """One whole frame, with a usual window."""
    window, at, checked = _frame_header(data, 4)
    at, blocks = _end_of_blocks(data, at, _MOST_BLOCKS - _BLOCKS_OF_JOINED)
    is_whole = bytes(data[:4]) == _FRAME and blocks <= _MOST_BLOCKS and at + 4 * checked == len(data)
    return is_whole and window <= _USUAL_WINDOW


def _is_one_lz4(data: memoryview) -> bool:
    """One whole frame (lz4_Frame_format.md)."""
    flags = data[4]
    checks_blocks, states_size, checks_all, dictionary = (flags >> bit & 1 for bit in (4, 3, 2, 0))
    at = 7 + 8 * states_size + 4 * dictionary
    for _ in range(_BLOCKS_OF_JOINED):
        head = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if not head:
            return bytes(data[:4]) == _LZ4_FRAME and at + 4 * checks_all == len(data)
        at += (head & 0x7FFFFFFF) + 4 * checks_blocks
    return False


def _frame_header(data: memoryview, at: int) -> tuple[int, int, bool]:
    """Of the frame: its window, where its blocks begin, whether a checksum ends it."""
    said = data[at]
    single, dictionary = bool(said & 32), (0, 1, 2, 4)[said & 3]
    size = (1 if single else 0, 2, 4, 8)[said >> 6]
    if single:
        at += 1 + dictionary
        # RFC 8878 (3.1.1.1.4): a size in two bytes counts from 256 on.
        return int.from_bytes(data[at : at + size], "little") + (256 if size == 2 else 0), at + size, bool(said & 4)
    # RFC 8878 (3.1.1.1.2): an exponent of five bits, and eighths in the three below.
    base = 1 << 10 + (data[at + 1] >> 3)
    return base + base // 8 * (data[at + 1] & 7), at + 2 + dictionary + size, bool(said & 4)


def _end_of_blocks(data: memoryview, at: int, blocks: int) -> tuple[int, int]:
    """Where a frame's last block ends, and how many there were up to it. Raises IndexError."""
    last = False
    while not last and blocks <= _MOST_BLOCKS:
        head = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        last, repeated, size = bool(head & 1), head >> 1 & 3 == 1, head >> 3
        at += 3 + (1 if repeated else size)
        blocks += 1
    return at, blocks


def _copy(data: memoryview, target: memoryview) -> int:
    if len(data) > len(target):
        return -1
    target[: len(data)] = data
    return len(data)


def _snappy(data: memoryview, target: memoryview) -> int:
    # librdkafka writes one bare block, without snappy-java's framing.
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return int(_SNAPPY_BLOCK(data, target))
    at, filled = _XERIAL_HEADER_BYTES, 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at:
            raise CompressionError("a snappy block is longer than its batch")
        filled += _SNAPPY_BLOCK(data[at : at + size], target[filled:])
        at += size
    return filled


_DECOMPRESS_INTO: Final[dict[int, Callable[[memoryview, memoryview], int]]] = {
    0: _copy,
    1: cramjam.gzip.decompress_into,
    2: _snappy,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
