"""What the application side knows of one partition in one assignment epoch.

Laws
1. `position` is the offset after the last returned record. Only `take`, `put_back`, `seek` and `positioned` move it.
2. The buffer holds what was fetched and not yet returned, in order; its first entry begins at `position` or later.
3. seek_number rises with each seek; fetch_number with each seek, giving back and refusal (law 4). An arrival with
   an older fetch_number is dropped. A pause voids nothing: what arrives meanwhile is kept.
4. An arrival that does not begin where the buffer ends is refused, and fetched again from there.
5. A parked partition gives its error, or its reset, once everything before it was returned, once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from instride.core.events import COMMITTED, Parked
from instride.core.group.ownership import Ownership
from instride.records import TopicPartition
from instride.wire.chunk import RecordChunk
from instride.wire.decoder import ConsumerRecord

__all__ = ["Delivery", "OwnedPartition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A chunk that a poll returns, with what stamps its records.

    records: the chunk's, deserialized; None where they are made when they are asked for.
    """

    partition: TopicPartition
    chunk: RecordChunk
    epoch: int
    seek_number: int
    records: tuple[ConsumerRecord, ...] | None = None


class OwnedPartition:
    """Position and buffer of a partition. Not thread-safe: the application machine owns it."""

    __slots__ = (
        "_buffer",
        "began",
        "buffered",
        "deadline",
        "epoch",
        "error",
        "fetch_number",
        "high_watermark",
        "leader_epoch",
        "origin",
        "partition",
        "paused",
        "position",
        "reset",
        "reset_epoch",
        "seek_number",
        "state",
        "unreadable",
    )

    def __init__(self, partition: TopicPartition, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.state = Ownership.OWNED
        self.seek_number = 0
        self.fetch_number = 0
        self.position: int | None = None
        # Where the network side is to look for a position that is not known.
        self.origin = COMMITTED
        self.leader_epoch = -1
        # Where a reset by policy found the beginning (rule 18): offset, leader epoch. None otherwise, and after a seek.
        self.began: tuple[int, int] | None = None
        self.high_watermark = -1
        self.paused = False
        self.deadline = float("inf")
        self.error: Exception | None = None
        self.reset: int | None = None
        # The first record of the buffer could not be deserialized.
        self.unreadable = False
        self.reset_epoch = -1
        self.buffered = 0
        self._buffer: deque[tuple[RecordChunk | None, int]] = deque()

    def positioned(self, seek_number: int, offset: int, leader_epoch: int, *, reset: bool = False) -> None:
        """The network side found where the partition begins."""
        if seek_number == self.seek_number and self.position is None:
            self.position = offset
            self.leader_epoch = leader_epoch
            self.began = (offset, leader_epoch) if reset else None

    def awaits(self, fetch_number: int) -> bool:
        """Whether what was fetched under this number is wanted (law 3)."""
        return fetch_number == self.fetch_number and self.state is Ownership.OWNED

    def arrived(self, start: int, chunk: RecordChunk | None, next_offset: int) -> bool:
        """False: it is refused (law 4)."""
        if start != self.fetch_end():
            return False
        self._buffer.append((chunk, next_offset))
        self.buffered += len(chunk) if chunk is not None else 0
        self._skip_empty()
        return True

    def parked(self, event: Parked) -> None:
        if event.fetch_number == self.fetch_number:
            self.error, self.reset, self.reset_epoch = event.error, event.reset, event.leader_epoch
            if event.void_from is not None:
                self._cut(event.void_from)

    def due_error(self) -> Exception | None:
        """The error of a parked partition, once, when nothing is left before it."""
        if self.reset is not None or not self._stands():
            return None
        error, self.error = self.error, None
        return error

    def hopeless(self) -> Exception | None:
        """Why no position will be found without a seek. `due_error` gives it as well."""
        return self.error if self.reset is None else None

    def due_reset(self) -> int | None:
        """Where to seek, once, when nothing is left before an offset that is out of range."""
        return self.reset if self._stands() else None

    def _cut(self, offset: int) -> None:
        """The log ends here now: what was fetched from behind it is not returned."""
        kept: deque[tuple[RecordChunk | None, int]] = deque()
        for chunk, next_offset in self._buffer:
            if next_offset <= offset:
                kept.append((chunk, next_offset))
            elif chunk is not None and chunk.first_offset < offset:
                kept.append((_before(chunk, offset), offset))
        self._buffer = kept
        self.buffered = sum(len(chunk) for chunk, _ in kept if chunk is not None)

    def _stands(self) -> bool:
        return self.error is not None and not self._buffer and self.state is Ownership.OWNED

    def available(self) -> int:
        """How many records a poll may take now."""
        return self.buffered if self.state is Ownership.OWNED and not self.paused else 0

    def take(self, count: int) -> list[Delivery]:
        """Return up to `count` buffered records and move the position after them."""
        deliveries = []
        while count > 0 and self._buffer:
            chunk, next_offset = self._buffer.popleft()
            if chunk is None:
                self.position = next_offset
                continue
            if len(chunk) > count:
                chunk, rest = chunk.split(count)
                self._buffer.appendleft((rest, next_offset))
                next_offset = chunk.next_offset
            count -= len(chunk)
            self.buffered -= len(chunk)
            self.position = next_offset
            self.leader_epoch = chunk.leader_epoch
            deliveries.append(
                Delivery(partition=self.partition, chunk=chunk, epoch=self.epoch, seek_number=self.seek_number)
            )
        self._skip_empty()
        return deliveries

    def put_back(self, chunks: Sequence[RecordChunk], position: int | None, leader_epoch: int) -> None:
        """Undo the end of a take: these chunks, the last that were taken. position, leader_epoch: as before them."""
        assert self.position is not None
        ends = [*(chunk.next_offset for chunk in chunks[:-1]), self.position]
        self._buffer.extendleft(reversed(list(zip(chunks, ends, strict=True))))
        self.buffered += sum(len(chunk) for chunk in chunks)
        self.position, self.leader_epoch = position, leader_epoch

    def _skip_empty(self) -> None:
        # Control and aborted batches move the position though no record of them is returned.
        while self._buffer and self._buffer[0][0] is None:
            self.position = self._buffer.popleft()[1]

    def drop_buffer(self) -> None:
        self._buffer.clear()
        self.buffered = 0

    def seek(self, offset: int, leader_epoch: int) -> None:
        """offset: a number, or below zero where only the network side can find it (earliest, latest)."""
        self.restart_fetch()
        self.seek_number += 1
        self.began = None
        self.position = offset if offset >= 0 else None
        self.origin = offset
        self.leader_epoch = leader_epoch

    def restart_fetch(self) -> None:
        """Forget what was fetched; whatever is under way is dropped when it arrives."""
        self.drop_buffer()
        self.drop_arrivals()
        self.error = self.reset = None
        self.unreadable = False

    def drop_arrivals(self) -> None:
        self.fetch_number += 1

    def fetch_end(self) -> int | None:
        """Where fetching goes on after what is buffered."""
        return self._buffer[-1][1] if self._buffer else self.position

    def end_epoch(self) -> int:
        """The leader epoch of the last record before `fetch_end`, or -1."""
        buffered = (chunk.leader_epoch for chunk, _ in reversed(self._buffer) if chunk is not None)
        return next(buffered, self.leader_epoch)


def _before(chunk: RecordChunk, offset: int) -> RecordChunk:
    """The part of a chunk before an offset behind its first."""
    low, high = 1, len(chunk)
    while low < high:
        middle = (low + high + 1) // 2
        if chunk.split(middle)[0].last_offset < offset if middle < len(chunk) else chunk.last_offset < offset:
            low = middle
        else:
            high = middle - 1
    return chunk.split(low)[0] if low < len(chunk) else chunk
