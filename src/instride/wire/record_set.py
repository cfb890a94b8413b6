"""A record set (the batches that one fetch brought of one partition) to a chunk of decoded records.

Laws
1. What is good before the first bad batch is returned; the bad batch becomes one `CorruptRecordError`, and
   nothing after it is looked at. A batch is taken whole or not at all.
2. A cut-off batch at the end is how brokers keep to size limits, and no error; unless it is the only one.
3. Control batches, aborted transactions (for readers of committed data) and records below the fetch offset
   are never returned, but `next_offset` goes past them.
4. One set takes at most about twice `max_decompressed_bytes` and its index; more is fetched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from instride.errors import CorruptRecordError
from instride.records import TopicPartition
from instride.wire.batches import BatchWalk, place
from instride.wire.decoder import RecordColumns, index_batches

if TYPE_CHECKING:
    import pyarrow as pa

    from instride.wire.decoder import ConsumerRecord

__all__ = ["MAX_DECOMPRESSED_BYTES", "RecordSetChunk", "decode_record_set"]

MAX_DECOMPRESSED_BYTES: Final = 64 << 20
"""What one batch may decompress to, unless told otherwise. Brokers take batches of 1 MiB by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSetChunk:
    """The rows [start, stop) of an index: the real `RecordChunk`. It keeps the answer it came in alive."""

    topic_partition: TopicPartition
    columns: RecordColumns
    start: int
    stop: int
    next_offset: int

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_partition.partition

    @property
    def first_offset(self) -> int:
        return self.columns.offset(self.start)

    @property
    def last_offset(self) -> int:
        return self.columns.offset(self.stop - 1)

    @property
    def leader_epoch(self) -> int:
        return self.columns.leader_epoch(self.stop - 1)

    @property
    def nbytes(self) -> int:
        return self.columns.nbytes(self.start, self.stop)

    def __len__(self) -> int:
        return self.stop - self.start

    def split(self, count: int) -> tuple[RecordSetChunk, RecordSetChunk]:
        """The first `count` records (0 < count < len) and the rest; both share this chunk's memory."""
        if not 0 < count < len(self):
            raise ValueError(f"cannot split {count} of {len(self)} records off")
        middle = self.start + count
        next_offset = self.columns.offset(middle - 1) + 1
        return self._part(self.start, middle, next_offset), self._part(middle, self.stop, self.next_offset)

    def records(self, *, epoch: int, seek_number: int) -> list[ConsumerRecord]:
        return self.columns.records(self.topic_partition, self.start, self.stop, epoch, seek_number)

    def to_arrow(self) -> pa.RecordBatch:
        from instride.wire.arrow import to_arrow  # noqa: PLC0415 - pyarrow is an extra, and slow to import

        return to_arrow(self.columns, self.topic_partition, self.start, self.stop)

    def _part(self, start: int, stop: int, next_offset: int) -> RecordSetChunk:
        return RecordSetChunk(
            topic_partition=self.topic_partition,
            columns=self.columns,
            start=start,
            stop=stop,
            next_offset=next_offset,
        )


def decode_record_set(
    data: memoryview,
    *,
    topic: str,
    partition: int,
    fetch_offset: int,
    read_committed: bool = False,
    aborted: Sequence[tuple[int, int]] = (),
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> tuple[RecordSetChunk | None, int, CorruptRecordError | None]:
    """The records from `fetch_offset` on, where to fetch next, and what is wrong with the rest (or None).

    data: batches as a fetch brought them, not copied; the chunk keeps them alive.
    aborted: (producer id, first offset) of the transactions to skip; looked at if `read_committed`.
    max_decompressed_bytes: bound of one batch.
    Raises nothing for any bytes.
    """
    walk = BatchWalk(data, fetch_offset, aborted if read_committed else None, max_decompressed_bytes)
    failure = walk.run()
    next_offset = walk.next_offset
    base, table, unread = place(data, walk.batches, max_decompressed_bytes)
    if unread is not None:
        next_offset, failure = unread
    columns = index_batches(base, table, fetch_offset)
    if columns.failed_batch >= 0:
        bad = walk.batches[columns.failed_batch]
        next_offset, failure = bad.position, f"{columns.failure} (in {bad.describe()})"
    chunk = None
    name = TopicPartition(topic, partition)
    if columns.first < columns.rows:
        chunk = RecordSetChunk(
            topic_partition=name,
            columns=columns,
            start=columns.first,
            stop=columns.rows,
            next_offset=next_offset,
        )
    return chunk, next_offset, _error(failure, name, next_offset)


def _error(failure: str | None, name: TopicPartition, offset: int) -> CorruptRecordError | None:
    if failure is None:
        return None
    text = f"partition {name} cannot be read at offset {offset}: {failure}. Seek past it to go on."
    return CorruptRecordError(text, topic=name.topic, partition=name.partition, offset=offset)
