"""One partition's records in one assignment epoch and seek number: which are finished, and what may be committed.

Laws
1. Pure: no lock and no callback. The ledger holds its lock around every call.
2. A record is in progress, finished, failed or cancelled. Finished is final; a failed or cancelled one may be tried
   again. Only what is in progress can be cancelled.
3. `next_offset` is that after the last record of the unbroken finished stretch from the beginning, in the order of
   delivery. Offsets have gaps (compaction, transactions), so nothing is ever counted up to.
4. A finished record is let go of at once, its block once all in it are finished. A byte of state and a place in a
   list is all that a record costs until then.
5. A stretch that begins beyond the end of the one before leaves a gap that the log does not have: `next_offset` stays
   before the first such gap. Where a start or an end is not known there is no gap.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from operator import attrgetter, lt
from typing import Any, Final

from instride._core.session_lease import Standing
from instride.commits import CommitEntry
from instride.consumer_records import ConsumerRecords, Stretch
from instride.errors import OffsetGapError
from instride.records import OffsetRange, TopicPartition

__all__ = [
    "CANCELLED",
    "FAILED",
    "FINISHED",
    "UNDER_WAY",
    "Block",
    "PolledRanges",
    "PartitionLedger",
    "standing_of",
    "stretches_of",
]

UNDER_WAY: Final = 0
FINISHED: Final = 1
FAILED: Final = 2
CANCELLED: Final = 3

BLOCK_SIZE: Final = 4096
"""Small blocks are joined up to this size: a slow trickle behind one slow record makes no long list of blocks."""

# \x01 is FINISHED: a block's states are searched as bytes, not one by one in Python.
_SAME: Final = re.compile(rb"\x01+|[^\x01]+")
"""Neighbours that are finished, and neighbours that are not."""
_BEGINNINGS: Final = (b"\x00\x01", b"\x02\x01", b"\x03\x01")
"""Where neighbours begin that are finished."""

Offsets = Sequence[int]


class Block:
    """Consecutive deliveries of one leader epoch. `offsets` is a range where they have no gaps.

    start: the position before it; until: the end of its stretch. -1 where that is not known.
    """

    __slots__ = ("ends", "head", "leader_epoch", "offsets", "records", "start", "states", "until")

    def __init__(self, records: list[Any]) -> None:
        """Raises ValueError where the offsets do not rise."""
        self.records = records
        self.leader_epoch: int = records[0].leader_epoch
        self.states = bytearray(len(records))
        self.head = 0
        self.start = -1
        self.until = -1
        self.ends: array[int] | None = None
        if isinstance(records[0], OffsetRange):
            self.offsets = _rising(array("q", [each.start for each in records]))
            self.ends = array("q", [each.end for each in records])
        else:
            self.offsets = _rising(array("q", map(attrgetter("offset"), records)))

    def find(self, offset: int) -> int:
        """The place of a record, or -1."""
        if isinstance(self.offsets, range):
            return offset - self.offsets.start if offset in self.offsets else -1
        place = bisect_left(self.offsets, offset)
        return place if place < len(self.offsets) and self.offsets[place] == offset else -1

    def end(self, place: int) -> int:
        """The offset to commit once this record and all before it are finished."""
        return self.offsets[place] + 1 if self.ends is None else self.ends[place]

    @property
    def last_offset(self) -> int:
        """Of the last record; of a range the last offset in it."""
        return self.end(len(self.states) - 1) - 1

    def advance(self) -> bool:
        """Move the head past what is finished; True where that is everything."""
        head, states = self.head, self.states
        while head < len(states) and states[head] == FINISHED:
            head += 1
        self.head = head
        return head == len(states)

    def takes(self, other: Block) -> bool:
        return (
            len(self.states) + len(other.states) <= BLOCK_SIZE
            and self.leader_epoch == other.leader_epoch
            and (self.ends is None) == (other.ends is None)
        )

    def extend(self, other: Block) -> None:
        self.records += other.records
        self.states += other.states
        self.offsets = _joined(self.offsets, other.offsets)
        if self.ends is not None and other.ends is not None:
            self.ends += other.ends


def _rising(offsets: array[int]) -> Offsets:
    dense = range(offsets[0], offsets[0] + len(offsets))
    # Compared in C: most partitions have no gaps, and a range needs no memory of eight bytes a record.
    if array("q", dense) == offsets:
        return dense
    if not all(map(lt, offsets, islice(offsets, 1, None))):
        raise ValueError("offsets must rise from record to record of a partition")
    return offsets


def _joined(left: Offsets, right: Offsets) -> Offsets:
    if isinstance(left, range) and isinstance(right, range) and left.stop == right.start:
        return range(left.start, right.stop)
    joined = left if isinstance(left, array) else array("q", left)
    joined.extend(right)
    return joined


class PartitionLedger:
    """See the laws above."""

    __slots__ = (
        "_blocks",
        "_leader_epoch",
        "committed",
        "epoch",
        "failures",
        "gap",
        "is_awaited",
        "last_offset",
        "next_offset",
        "partition",
        "refused",
        "seek_number",
        "stale",
        "under_way",
        "until",
    )

    def __init__(self, partition: TopicPartition, epoch: int, seek_number: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.seek_number = seek_number
        self.last_offset = -1
        self.next_offset = -1
        self.committed = -1
        self.refused = -1
        self.is_awaited = False
        self.under_way = 0
        self.stale = False
        self.until = -1
        self.gap: OffsetGapError | None = None
        self.failures: dict[int, BaseException] = {}
        self._leader_epoch = -1
        self._blocks: list[Block] = []

    def is_of(self, epoch: int, seek_number: int) -> bool:
        return self.epoch == epoch and self.seek_number == seek_number

    def add(self, block: Block) -> None:
        """Append deliveries, all in progress. Their offsets must be beyond `last_offset`."""
        self.under_way += len(block.states)
        self.last_offset = block.last_offset
        # Where an end or a start is not known it is -1, and the one or the other comparison fails (law 5).
        opens_gap = self.gap is None and -1 < self.until < block.start
        if opens_gap:
            topic, number = self.partition
            self.gap = OffsetGapError(topic=topic, partition=number, start=self.until, end=block.start)
        self.until = block.until
        # A block that begins behind the gap stays apart: `_advance` stops between two blocks, never within one.
        if self._blocks and not opens_gap and self._blocks[-1].takes(block):
            self._blocks[-1].extend(block)
        else:
            self._blocks.append(block)

    def mark(self, offset: int, state: int, error: BaseException | None = None) -> bool:
        """Note what became of a record. False where it is not here, or its state does not allow it (law 2)."""
        blocks = self._blocks
        number = 0 if len(blocks) == 1 else bisect_right(blocks, offset, key=_first) - 1
        place = blocks[number].find(offset) if number >= 0 else -1
        if place < 0:
            return False
        block = blocks[number]
        before = block.states[place]
        if before == FINISHED or (state == CANCELLED and before != UNDER_WAY):
            return False
        self.under_way += (state == UNDER_WAY) - (before == UNDER_WAY)
        block.states[place] = state
        if self.failures:
            self.failures.pop(offset, None)
        if error is not None:
            self.failures[offset] = error
        if state == FINISHED:
            # At once: a slow record before it would else keep all that were finished since (law 4).
            block.records[place] = None
            if number == 0 and place == block.head:
                self._advance()
        return True

    def _advance(self) -> None:
        while self._blocks and self._is_before_gap(self._blocks[0]):
            block = self._blocks[0]
            whole = block.advance()
            if block.head:
                self.next_offset = block.end(block.head - 1)
                # A block has one epoch, so this is that of the last record to be committed (KIP-320).
                self._leader_epoch = block.leader_epoch
            if not whole:
                return
            del self._blocks[0]

    def _is_before_gap(self, block: Block) -> bool:
        return self.gap is None or block.offsets[0] < self.gap.end

    def is_worth_a_delay(self) -> bool:
        """Whether there is something to commit, or may be once what is in progress ends."""
        if self.asks_for_commit() or self.gap is None:
            return self.asks_for_commit() or self.under_way > 0
        # Searched in C: each poll of a hand-over asks, and what ended since lies before what is in progress.
        before_gap = takewhile(self._is_before_gap, self._blocks)
        return any(block.states.find(UNDER_WAY, block.head) >= 0 for block in before_gap)

    def commits(self, offset: int) -> None:
        """The broker has it. Snapshots may be settled in another order than they were taken in."""
        self.committed = max(self.committed, offset)
        self.is_awaited = False

    def refuses(self, offset: int) -> None:
        """The broker refuses it for good, or until the right is granted: what nobody waited for is tried again."""
        if self.is_awaited:
            self.refused = max(self.refused, offset)

    def waits_no_more(self) -> None:
        """The hand-over that asked has ended otherwise: the right to commit may be granted before the next one."""
        self.is_awaited, self.refused = False, -1

    def is_ahead(self) -> bool:
        """Whether something is finished that was not committed and can be."""
        return self.next_offset > self.committed and not self.stale

    def asks_for_commit(self) -> bool:
        """Whether somebody who now begins to wait for a commit, or did before, has one to wait for: it is ahead, and
        since then the broker has not refused that for good."""
        self.is_awaited = True
        return self.is_ahead() and self.next_offset > self.refused

    def entry(self) -> CommitEntry:
        return CommitEntry(
            offset=self.next_offset,
            epoch=self.epoch,
            seek_number=self.seek_number,
            leader_epoch=self._leader_epoch,
        )

    def first_unfinished(self) -> int:
        """The offset of the first record that is not finished, or -1. (What is finished before it is gone.)"""
        return self._blocks[0].offsets[self._blocks[0].head] if self._blocks else -1

    def finished_beyond(self) -> list[tuple[int, int]]:
        """Ranges [start, end) beyond the first record that is not finished, in which all records are finished."""
        found: list[tuple[int, int]] = []
        joins = False
        for block in takewhile(self._is_before_gap, self._blocks):
            for match in _SAME.finditer(block.states, block.head):
                finished = block.states[match.start()] == FINISHED
                if finished and not joins:
                    found.append((block.offsets[match.start()], block.end(match.end() - 1)))
                elif finished:
                    found[-1] = (found[-1][0], block.end(match.end() - 1))
                joins = finished
        return found

    def ranges_beyond(self) -> int:
        """How many `finished_beyond` has. Counted in C, since it is called for single records."""
        count, joins = 0, False
        for block in takewhile(self._is_before_gap, self._blocks):
            begins = block.states[block.head] == FINISHED and not joins
            count += begins + sum(block.states.count(pair, block.head) for pair in _BEGINNINGS)
            joins = block.states[-1] == FINISHED
        return count

    def records(self, *states: int) -> Iterator[Any]:
        """The records in these states, in order of delivery. (Finished ones are gone.)"""
        return _in_states(self._blocks, states)

    def records_before_gap(self, *states: int) -> Iterator[Any]:
        """The same, of those that may be committed: all, where there is no gap."""
        return _in_states(takewhile(self._is_before_gap, self._blocks), states)

    def record_at(self, offset: int) -> Any:
        block = self._blocks[bisect_right(self._blocks, offset, key=_first) - 1]
        return block.records[block.find(offset)]


def _in_states(blocks: Iterable[Block], states: tuple[int, ...]) -> Iterator[Any]:
    for block in blocks:
        for place in range(block.head, len(block.states)):
            if block.states[place] in states:
                yield block.records[place]


def _first(block: Block) -> int:
    return block.offsets[0]


class PolledRanges(list[OffsetRange]):
    """The ranges of one poll: a list that knows the standing of its poll, as `ConsumerRecords.standing`."""

    __slots__ = ("standing",)

    def __init__(self, standing: Standing) -> None:
        super().__init__()
        self.standing = standing


def standing_of(records: object) -> Standing | None:
    """Of what a poll returned; None for any other records, of which nobody knows."""
    return records.standing if isinstance(records, ConsumerRecords | PolledRanges) else None


def stretches_of(records: object) -> list[Stretch] | None:
    """Of what a poll returned; None for any other records."""
    return records.stretches() if isinstance(records, ConsumerRecords) else None
