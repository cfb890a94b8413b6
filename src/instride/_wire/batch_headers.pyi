"""What `batch_headers.py` offers, for type checkers (its own annotations speak Cython)."""

from typing import Final, final

COMPILED: Final[bool]
INDEX_BYTES: Final[int]
"""What the index of one record takes."""

class BatchError(ValueError):
    """A batch that cannot be read. Never leaves `wire`: `record_set` makes it a CorruptRecordError."""

class OverlapError(BatchError):
    """The offsets of two batches do not rise: one of them is wrong, nobody knows which."""

@final
class Batch:
    """A batch whose checksum holds. Immutable; made by `BatchReader` only.

    position: the offset to fetch from to get this batch. start, end: where its records are, compressed or not.
    codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. count: of its records, not yet compared with its bytes.
    """

    @property
    def position(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def control(self) -> bool: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def count(self) -> int: ...
    def describe(self) -> str: ...
    def row(self, start: int, end: int) -> bytes: ...

@final
class BatchReader:
    """Walks once over the batches of `data`. at: where the next one begins.

    fetch_offset: what was requested. end: of the log, or -1 where that is unknown. least_epoch: that of what is before
    fetch_offset, or -1. most_epoch: the leader's own; -1: no epoch is compared with either.
    """

    def __init__(
        self, data: memoryview, fetch_offset: int, end: int, least_epoch: int = -1, most_epoch: int = -1
    ) -> None: ...
    @property
    def at(self) -> int: ...
    def next(self, position: int) -> Batch | None: ...
    def run(
        self, ahead: Batch | None, found: list[Batch], count: int, limit: int, most: int, committed: bool, scale: int
    ) -> tuple[Batch | None, int]:
        """Batches from `ahead` on, which follows on the last one found, as long as they are read like the first one.

        They are added to `found`. None is of another codec, empty, a control batch, or (if only what is committed is
        read) of a producer that may have aborted it; each has its successor's header read. limit: of the bytes from
        the first one found to their end, each counted `scale` times, with the index of `count` and their records.
        most: of the index of one.
        Returns the batch that comes next, and how many records were found. Raises nothing: `next` meets it again.
        """

def table_of(batches: list[Batch], shift: int) -> bytearray:
    """The rows of these batches, in a base that begins `shift` bytes after theirs."""

def end_of_batches(data: memoryview, fetch_offset: int) -> int:
    """The offset after the last whole batch, by the headers, which are not checked.

    fetch_offset itself where they do not lead further: none is whole, one is no batch, or offsets do not rise.
    """
