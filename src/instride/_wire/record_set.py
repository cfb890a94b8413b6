"""A record set (the batches that one fetch brought of one partition) to chunks of decoded records, piece by piece.

Laws
1. What is good before the first bad batch is returned; the bad batch becomes one `CorruptRecordError`, and
   nothing after it is looked at. A batch is taken whole or not at all.
2. A cut-off batch at the end is how brokers keep to size limits, and no error; unless it is the only one.
3. Control batches, aborted transactions (for readers of committed data) and records below the fetch offset
   are never returned, but `next_offset` goes past them.
4. Nothing is decompressed or indexed that is larger than the memory given, before it is there; but for one batch,
   `alone`, of at most max_decompressed_bytes with its index. While it is decompressed it is there as it came, too: of
   that what is over a quarter of max_decompressed_bytes counts.
5. A piece is a view of the response where it is most of it, and then says all the memory that it keeps. A smaller one
   is a view only where the response's segment may stay (law 3 of `memory_pool`): else small pieces that nobody consumes
   would keep whole responses. It says its own part then, and the segment knows that.
6. A large value is not there twice: a record has it as it was decompressed or received, unless that could not be moved.
7. `next_offset` is what the headers say, before a byte is checked: after the last whole batch. Where they are not such
   that they could lead on (a length that is none, an offset that does not rise), it is the fetch offset.
8. Of a partition a broker sends what was requested, or one batch that is larger (KIP-74), and some brokers somewhat
   more. What is beyond twice of that, and much memory, is as good as cut off: it is fetched again, and fills no memory
   meanwhile.
9. Compressed batches behind the first one of a piece are decompressed by one call where they can be (`compression`, law
   4). What comes of them is what would come one by one, and the bound of each batch is the same.
10. As a rule a batch is decompressed once, but for the first one of a response, where that batch becomes very much:
   those before it say how much a compressed byte becomes. A piece ends before a batch that would take it beyond what a
   cache holds.

Checksums: `batch_headers`, law 1. What becomes of the partition of a bad batch: `_core/network/fetcher.py`, law 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from instride._topic_partition import TopicPartition
from instride._wire.batch_filter import HEADER_BYTES, INDEX_BYTES, BatchWalk, check_count
from instride._wire.batch_headers import Batch, BatchError, end_of_batches, table_of
from instride._wire.compression import MARKS, CompressionError, Sections, TooLargeError, moved, releases_of
from instride._wire.decoder import RecordColumns, index_batches
from instride._wire.memory_pool import LARGE_BYTES, Pages, Segment
from instride._wire.record_chunk import Piece
from instride._wire.record_index import LARGEST_BASE, MIN_RECORD_BYTES
from instride.errors import CorruptRecordError, TransportError
from instride.errors._quoting import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from instride._wire.decoder import ConsumerRecord

__all__ = ["MAX_DECOMPRESSED_BYTES", "RecordSet", "RecordSetChunk", "decode_record_set"]

MAX_DECOMPRESSED_BYTES: Final = 64 << 20
"""What one batch may decompress to, unless told otherwise. Brokers take batches of 1 MiB by default."""

# So many record objects are made at a time where they are gone over.
_RUN: Final = 256
# Of a batch: where the length of what follows stands.
_LENGTH_AT: Final = 8
# Of one aborted transaction: a tuple and two numbers.
_ABORTED_BYTES: Final = 136
# This part of max_decompressed_bytes a compressed batch may have besides (law 4).
_AS_IT_CAME: Final = 4
# What a compressed byte may become, before any is decompressed: much, as with too little it is decompressed once more.
_EXPANSION: Final = 32.0
# A piece of compressed batches has about so many bytes: what is decompressed is gone over while the cache has it.
_DECOMPRESSED_BYTES: Final = 1 << 21


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSetChunk:
    """The rows [start, stop) of an index: the real `RecordChunk`.

    end_epoch: the leader epoch of the last batch before next_offset, or -1 where that is of the last row.
    """

    topic_partition: TopicPartition
    columns: RecordColumns
    start: int
    stop: int
    next_offset: int
    end_epoch: int = -1

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
        # Control and aborted batches have an epoch too. With that of the last record, a position behind them would lie
        # beyond the end of its epoch: a validation would say that the log was cut (KIP-320).
        return max(self.end_epoch, self.columns.leader_epoch(self.stop - 1))

    @property
    def nbytes(self) -> int:
        return self.columns.nbytes(self.start, self.stop)

    @property
    def lets_go_of(self) -> int:
        columns = self.columns
        return columns.nbytes(columns.first, columns.rows) if self.stop == columns.rows else self.nbytes

    def __len__(self) -> int:
        return self.stop - self.start

    def split(self, count: int) -> tuple[RecordSetChunk, RecordSetChunk]:
        """The first `count` records (0 < count < len) and the rest; both share this chunk's memory."""
        if not 0 < count < len(self):
            raise ValueError(f"cannot split {count} of {counted(len(self), 'record')} off")
        middle = self.start + count
        next_offset = self.columns.offset(middle - 1) + 1
        first = self._part(self.start, middle, next_offset)
        return first, self._part(middle, self.stop, self.next_offset, self.end_epoch)

    def records(self, *, epoch: int, seek_number: int) -> list[ConsumerRecord]:
        return self.columns.records(self.topic_partition, self.start, self.stop, epoch, seek_number)

    def record_runs(self, *, epoch: int, seek_number: int) -> Iterator[list[ConsumerRecord]]:
        # Thousands at once would not fit the cache, and malloc would return their memory to the system each time.
        def run(start: int) -> list[ConsumerRecord]:
            stop = min(start + _RUN, self.stop)
            return self.columns.records(self.topic_partition, start, stop, epoch, seek_number)

        return map(run, range(self.start, self.stop, _RUN))  # no generator: threads may share it

    def to_arrow(
        self, columns: Sequence[str] | None = None, *, binary_view: bool = False, dictionary: bool = False
    ) -> pa.RecordBatch:
        from instride._wire.arrow import to_arrow  # noqa: PLC0415 - pyarrow is an extra, and slow to import

        return to_arrow(
            self.columns,
            self.topic_partition,
            self.start,
            self.stop,
            columns,
            binary_view=binary_view,
            dictionary=dictionary,
        )

    def _part(self, start: int, stop: int, next_offset: int, end_epoch: int = -1) -> RecordSetChunk:
        return RecordSetChunk(
            topic_partition=self.topic_partition,
            columns=self.columns,
            start=start,
            stop=stop,
            next_offset=next_offset,
            end_epoch=end_epoch,
        )


@dataclass(slots=True)
class _Decompressed:
    """Batches of one piece, whose records are in `sections`. count: of these.

    expansion: what a compressed byte became before these; 0 where that is unknown. compressed_bytes: of the batches, as
    they came.
    """

    sections: Sections
    expansion: float
    table: bytearray = field(default_factory=bytearray)
    batches: list[Batch] = field(default_factory=list)
    compressed_bytes: int = 0
    count: int = 0

    @property
    def nbytes(self) -> int:
        return self.sections.used + self.count * INDEX_BYTES

    def expected(self, compressed_bytes: int) -> int:
        """What so many become; 0 where there were none before."""
        expansion = self.sections.used / self.compressed_bytes if self.compressed_bytes else self.expansion
        return _expected(compressed_bytes, expansion)

    def add(self, batch: Batch, start: int, end: int) -> None:
        self.table += batch.row(start, end)
        self.batches.append(batch)
        self.compressed_bytes += batch.end - batch.start
        self.count += batch.count


class RecordSet:
    """Record batches of one partition as a response brought them. Not thread-safe.

    data: not copied; it must not change. frame_bytes: how much memory it keeps, being a part of more.
    requested_bytes: see law 8. `length` counts what is cut off, too.
    aborted: (producer id, first offset) of the transactions to skip, looked at if `read_committed`; a function, since
        they may be many and are not to be there before there is room. aborted_count: how many.
    end: of the log, as far as it may be read; -1 where that is unknown.
    epochs: the leader epoch of what is before fetch_offset, and the leader's own; -1 where that is unknown.
    max_decompressed_bytes: bound of one batch, decompressed and indexed.
    """

    def __init__(
        self,
        data: memoryview,
        *,
        topic: str,
        partition: int,
        fetch_offset: int,
        read_committed: bool = False,
        aborted: Callable[[], Sequence[tuple[int, int]]] = tuple,
        aborted_count: int = 0,
        end: int = -1,
        frame_bytes: int = 0,
        requested_bytes: int = LARGEST_BASE,
        epochs: tuple[int, int] = (-1, -1),
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        length = len(data)
        if length > LARGE_BYTES:
            data = _as_requested(data, requested_bytes)
        self._name = TopicPartition(topic, partition)
        self._data = data
        self._segment = data.obj if isinstance(data.obj, Segment) else None
        # Known when the data was copied out, too.
        self._segments = data.obj.pool if isinstance(data.obj, Segment | Pages) else None
        if self._segment is not None:
            self._segment.lend(data, len(data))
        self._length = length
        self._frame_bytes = max(frame_bytes, length)
        self._fetch_offset = fetch_offset
        self._read_committed = read_committed
        self._aborted = aborted
        self._aborted_bytes = aborted_count * _ABORTED_BYTES if read_committed else 0
        self._end = end
        self._epochs = epochs
        self._most_bytes = max_decompressed_bytes
        self._walk: BatchWalk | None = None
        self._pending: Batch | None = None
        # What the pending batch needs at least, as far as is known: it was tried with less.
        self._least_room = 0
        # Whether several batches may be decompressed by one call: until that was in vain.
        self._joins = True
        # What a compressed byte of the last piece became; 0 where there was none.
        self._expansion = 0.0
        self.done = False

    @property
    def nbytes(self) -> int:
        """Memory that it keeps."""
        return self._frame_bytes + (self._aborted_bytes if self._walk is not None else 0)

    @property
    def length(self) -> int:
        """Bytes of its batches, as they came."""
        return self._length

    @property
    def next_offset(self) -> int:
        """Law 7. Read it before anything is decoded."""
        return end_of_batches(self._data, self._fetch_offset)

    def decode(self, target: int, capacity: int, *, alone: bool = False) -> Piece | None:
        """The next records: batches up to about `target` bytes, within `capacity` bytes. None: that is too little.

        alone: the first batch may take max_decompressed_bytes in any case. Raises nothing for any bytes; that the
        system has no memory left is an error of the piece, which may pass.
        """
        at = self._position
        try:
            return self._decode(target, capacity, alone=alone)
        except MemoryError:
            self.done = True  # some of it may have been gone over already: it is to be fetched again
            why = f"no memory is left to decode what came of partition {self._name} from offset {at} on"
            return Piece(next_offset=at, corrupt=TransportError(why))

    def _decode(self, target: int, capacity: int, *, alone: bool) -> Piece | None:
        most = max(capacity, self._most_bytes) if alone else capacity
        if self._walk is None and self._aborted_bytes > most:
            return self._failed_at(self._fetch_offset, "too many aborted transactions are listed") if alone else None
        walk = self._begin()
        if self._pending is None:
            self._pending = walk.next()
        if self._pending is None:
            return self._end_piece(walk)
        if (most <= 0 or self._least_room > most) and not alone:
            return None
        try:
            return (
                # An uncompressed batch is in memory already: alone, it may be as large as an index can point at.
                self._plain(target, LARGEST_BASE if alone else most)
                if self._pending.codec == 0
                else self._compressed(target, capacity, most)
            )
        except (CompressionError, BatchError) as error:
            return self._failed_at(self._pending.position, f"{error} (in {self._pending.describe()})")

    @property
    def _position(self) -> int:
        """Behind what was decoded."""
        if self._pending is not None:
            return self._pending.position
        # Nothing is pending before the first, and once the rest was copied out: the walk begins anew there.
        return self._fetch_offset if self._walk is None else self._walk.next_offset

    def detach(self, most: int = LARGEST_BASE, *, usual: int = 0, stays: bool = False) -> None:
        """Copy out what is left, where much more than that is kept for it.

        most: bytes that are worth keeping behind the next batch; where there are more they are dropped.
        stays: where there is memory enough, it may stay where it is (law 5).
        usual: a response that keeps no more than this is copied from at once, and the next one is received into its
            memory. A longer one gives back its pages as it is copied from, so that little is there twice.
        """
        if self.done or self._walk is None or self._pending is None:
            at, batch, end = 0, None, len(self._data)
        else:
            at, batch, end = self._pending.start - HEADER_BYTES, self._pending, len(self._data)
            end = batch.end if end - batch.end > most else end
        left = end - at
        if self.done or self._frame_bytes - left <= left // 8:
            return
        if stays and self._segment is not None and self._segment.may_stay():
            return
        try:
            self._data = moved(self._data[at:end], gives_back=self._frame_bytes > usual)
        except MemoryError:
            return  # there is no room for a copy: it stays where it is
        self._segment = None
        self._frame_bytes = left
        if self._walk is not None and batch is not None:
            self._walk.move(self._data, batch)
            self._pending = None

    def _begin(self) -> BatchWalk:
        if self._walk is None:
            aborted = self._aborted() if self._read_committed else None
            self._walk = BatchWalk(self._data, self._fetch_offset, aborted, self._end, self._epochs)
            # The walk has its own by now: let go of the bytes that the list came in.
            self._aborted = tuple
        return self._walk

    def _plain(self, target: int, most: int) -> Piece | None:
        """Uncompressed batches are used where they are, if they are most of the response."""
        first, walk = self._pending, self._walk
        assert first is not None
        assert walk is not None
        batches: list[Batch] = []
        batch: Batch | None = first
        count, limit, begin, most_bytes = 0, most, first.start, self._most_bytes
        while batch is not None and batch.codec == 0:
            end, rows = batch.end, batch.count
            if rows * MIN_RECORD_BYTES > end - batch.start or rows * INDEX_BYTES > most_bytes:
                if batches:
                    break  # it is told of when it comes first
                check_count(batch, end - begin, most_bytes)
            if end - begin + (count + rows) * INDEX_BYTES > limit:
                break
            batches.append(batch)
            # Only the first batch may need all the room there is: what follows stops at the target.
            limit = target
            count = walk.run(batches, count + rows, target, most_bytes)
            batch = walk.next()
        self._pending = batch
        if not batches:
            self._least_room = first.end - first.start + first.count * INDEX_BYTES
            return None
        self._least_room = 0
        start, end = first.start, batches[-1].end
        kept = end - start
        if 2 * kept >= self._frame_bytes:
            base, start, kept = self._data, 0, self._frame_bytes
        elif self._segment is not None and self._segment.may_stay():
            base = self._data[start:end]
        else:
            base = memoryview(bytes(self._data[start:end]))
        if isinstance(base.obj, Segment):
            base.obj.lend(base, kept)
        table = table_of(batches, start)
        return self._piece(base, table, batches, kept + count * INDEX_BYTES, releases_of(base))

    def _compressed(self, target: int, capacity: int, most: int) -> Piece | None:
        first = self._pending
        assert first is not None
        target = min(target, _DECOMPRESSED_BYTES)
        expected = _expected(len(self._data) - first.start, self._expansion or _EXPANSION)
        expected = max(0, min(most, self._most_bytes, target, expected))
        found = _Decompressed(Sections(expected, self._segments), self._expansion)
        while (batch := self._pending) is not None and (not found.batches or found.nbytes < target):
            # One that would go far beyond the target comes first in the next piece: the buffer need not grow.
            if found.batches and found.nbytes + found.expected(batch.end - batch.start) > target:
                break
            if not (self._add_several(found, target, capacity) or self._add_one(found, capacity, most)):
                break
        sections = found.sections
        base = sections.finish()
        if not found.batches:
            return None
        self._expansion = sections.used / max(1, found.compressed_bytes)
        release = sections.release if sections.releases else None
        return self._piece(base, found.table, found.batches, sections.kept + found.count * INDEX_BYTES, release)

    def _add_one(self, found: _Decompressed, capacity: int, most: int) -> bool:
        """The pending batch. False: it comes first in the next piece. Raises CompressionError, BatchError."""
        batch, sections = self._pending, found.sections
        assert batch is not None
        index = (found.count + batch.count) * INDEX_BYTES
        # Law 4: `alone` is for one batch; those behind it must fit what is really there.
        allowed = (capacity if found.batches else most) - index - sections.used
        over = max(0, batch.end - batch.start - self._most_bytes // _AS_IT_CAME)
        full = max(0, self._most_bytes - batch.count * INDEX_BYTES - over)
        # What follows stops where much memory would begin: it comes first in the next piece.
        most_used = min(LARGE_BYTES, LARGEST_BASE) if found.batches else LARGEST_BASE
        limit = max(0, min(allowed, full, most_used - sections.used))
        try:
            # The index alone may be too large: that is known before anything is decompressed.
            check_count(batch, LARGEST_BASE, self._most_bytes)
            data = self._data[batch.start : batch.end]
            start, end = sections.append(batch.codec, data, limit, expected_bytes=found.expected(len(data)))
            check_count(batch, end - start, self._most_bytes)
        except TooLargeError as error:
            if not found.batches and allowed >= full:
                taken = f"the index of {counted(batch.count, 'record')} takes {batch.count * INDEX_BYTES} of them"
                taken += f", the batch as it came {over}" if over else ""
                raise TooLargeError(f"{error}: max_decompressed_bytes is {self._most_bytes}, and {taken}") from None
            # How much it needs is not known: so that it is not decompressed in vain often, twice as much is tried next.
            self._least_room = 0 if found.batches else min(2 * most, self._most_bytes)
            return False
        except (CompressionError, BatchError):
            if not found.batches:
                raise
            return False  # it is told of when it comes first
        found.add(batch, start, end)
        self._pending = self._next()
        return True

    def _add_several(self, found: _Decompressed, target: int, capacity: int) -> bool:
        """The pending batch with those behind it, up to about the target (law 9). False: nothing was added."""
        first, walk = self._pending, self._walk
        assert first is not None
        assert walk is not None
        if not (found.compressed_bytes and self._joins and first.codec in MARKS):
            return False
        # Within this none of them has more than `_add_one` would allow it.
        most = min(capacity, self._most_bytes, LARGE_BYTES, 2 * target) - found.nbytes
        # What a byte became so far and a quarter more, and the joined copy.
        scale = 5 * found.sections.used // (4 * found.compressed_bytes) + 2
        run = [first]
        count = walk.run(run, first.count, min(most, target - found.nbytes), self._most_bytes, scale)
        if len(run) == 1:
            return False
        joined = sum(each.end - each.start for each in run) + (len(run) - 1) * len(MARKS[first.codec])
        places = found.sections.append_joined(
            first.codec,
            [self._data[each.start : each.end] for each in run],
            least_bytes=[each.count * MIN_RECORD_BYTES for each in run],
            expected_bytes=found.expected(joined),
            limit=max(0, most - joined - count * INDEX_BYTES),
        )
        if places is None:
            self._joins = False
            walk.push_back(run)
            self._pending = walk.next()
            return False
        for batch, (start, end) in zip(run, places, strict=True):
            found.add(batch, start, end)
        self._pending = self._next()
        return True

    def _next(self) -> Batch | None:
        assert self._walk is not None
        self._least_room = 0
        return self._walk.next()

    def _piece(
        self,
        base: memoryview,
        table: bytearray,
        batches: Sequence[Batch],
        nbytes: int,
        release: Callable[[int, int], object] | None = None,
    ) -> Piece:
        """release: gives back the base's pages one by one, if that can be."""
        columns = index_batches(base, table, self._fetch_offset)
        if release is not None:
            columns.own_large_values(release)
        if columns.failed_batch >= 0:
            bad = batches[columns.failed_batch]
            failure = f"{columns.failure} (in {bad.describe()})"
            return self._failed_at(bad.position, failure, self._chunk(columns, bad.position), nbytes)
        if self._pending is None:
            assert self._walk is not None
            chunk = self._chunk(columns, self._walk.next_offset, self._walk.leader_epoch)
            return self._end_piece(self._walk, chunk, nbytes)
        at = self._pending.position
        epoch = self._walk.leader_epoch if self._walk is not None else -1
        chunk = self._chunk(columns, at, epoch)
        return Piece(chunk=chunk, next_offset=at, leader_epoch=epoch, nbytes=nbytes)

    def _chunk(self, columns: RecordColumns, next_offset: int, end_epoch: int = -1) -> RecordSetChunk | None:
        if columns.first == columns.rows:
            return None
        return RecordSetChunk(
            topic_partition=self._name,
            columns=columns,
            start=columns.first,
            stop=columns.rows,
            next_offset=next_offset,
            end_epoch=end_epoch,
        )

    def _end_piece(self, walk: BatchWalk, chunk: RecordSetChunk | None = None, nbytes: int = 0) -> Piece:
        if walk.failure is not None:
            return self._failed_at(walk.next_offset, walk.failure, chunk, nbytes)
        self.done = True
        return Piece(chunk=chunk, next_offset=walk.next_offset, leader_epoch=walk.leader_epoch, nbytes=nbytes)

    def _failed_at(self, offset: int, failure: str, chunk: RecordSetChunk | None = None, nbytes: int = 0) -> Piece:
        self.done = True
        tp = self._name
        text = f"partition {tp} cannot be read at offset {offset}: {failure}. Seek past it to go on."
        error = CorruptRecordError(text, topic=tp.topic, partition=tp.partition, offset=offset)
        return Piece(chunk=chunk, next_offset=offset, nbytes=nbytes, corrupt=error)


def _expected(compressed_bytes: int, expansion: float) -> int:
    """What so many become: as much as those before, and an eighth more."""
    return int(compressed_bytes * expansion * 9 / 8)


def _as_requested(data: memoryview, requested_bytes: int) -> memoryview:
    """Law 8."""
    first = int.from_bytes(data[_LENGTH_AT : _LENGTH_AT + 4], "big") + _LENGTH_AT + 4
    return data[: max(first, 2 * requested_bytes, LARGE_BYTES)]


def decode_record_set(
    data: memoryview,
    *,
    topic: str,
    partition: int,
    fetch_offset: int,
    read_committed: bool = False,
    aborted: Sequence[tuple[int, int]] = (),
    end: int = -1,
    epochs: tuple[int, int] = (-1, -1),
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    capacity: int = LARGEST_BASE,
) -> Iterator[Piece]:
    """All pieces of a record set; parameters as of `RecordSet`. capacity: of a piece. Raises nothing for any bytes."""
    records = RecordSet(
        data,
        topic=topic,
        partition=partition,
        fetch_offset=fetch_offset,
        read_committed=read_committed,
        aborted=lambda: aborted,
        end=end,
        epochs=epochs,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    while not records.done:
        piece = records.decode(capacity, capacity, alone=True)
        assert piece is not None, "alone it always has room"
        yield piece
