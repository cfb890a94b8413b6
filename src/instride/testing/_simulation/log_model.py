"""A model of one partition's log: records, transactions with their markers, and what compaction, retention and an
unclean leader election take.

Laws
1. Offsets rise by one with each record and each marker, and are given twice only after a truncation. A transaction's
   records stand together; when it ends, a marker is appended.
2. Who reads committed records only sees nothing from the first open transaction on (`stable`), nor records of an
   aborted one. Nobody sees a marker. Both have bytes: a fetch that finds only such ones moves on, and has no record.
3. A compaction leaves no bytes of what it takes. It takes records before the last one that is stable, by chance.
4. Retention moves the beginning of the log, never beyond what is stable. Nothing before it can be read.
5. A truncation takes all from an offset on. Of a transaction that has lost all of its records nobody knows any more;
   one that has lost some ends as any other. One that has lost its marker has ended all the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Found", "LogModel"]


class Found(NamedTuple):
    """offsets: of records, a range where all are there. size: how many of them and of the unseen ones were read."""

    offsets: Sequence[int]
    next_offset: int
    size: int


class LogModel:
    """start: the first offset that is left. end: after the last offset that was given. stable: where an open
    transaction holds readers up, or `end`."""

    __slots__ = ("_aborted", "_begun", "_gone", "_markers", "_open", "end", "start")

    def __init__(self) -> None:
        self.start = self.end = 0
        # Each by a number of its own: after a truncation another one may begin at the same offset.
        self._open: dict[int, range] = {}
        self._begun = 0
        self._aborted: set[int] = set()
        self._markers: set[int] = set()
        self._gone: set[int] = set()

    @property
    def stable(self) -> int:
        return min((each.start for each in self._open.values()), default=self.end)

    def append(self, count: int) -> None:
        self.end += count

    def begin(self, count: int) -> int:
        """A transaction of so many records. Returns its number."""
        self._begun += 1
        self._open[self._begun] = range(self.end, self.end + count)
        self.end += count
        return self._begun

    def finish(self, number: int, *, commit: bool) -> list[range]:
        """End a transaction. Returns where there is no record for readers of committed ones."""
        written = self._open.pop(number, None)
        if written is None:
            return []  # law 5
        self._markers.add(self.end)
        self.end += 1
        marker = range(self.end - 1, self.end)
        if commit or not written:
            return [marker]
        self._aborted.update(written)
        return [written, marker]

    def compact(self, chance: random.Random) -> list[int]:
        """Law 3. Returns the offsets that have a record no more."""
        last = next((at for at in range(self.stable - 1, self.start, -1) if self._has_record(at)), self.start)
        taken = [at for at in range(self.start, last) if self._has_record(at) and chance.random() < 0.5]
        self._gone.update(taken)
        return taken

    def retain(self, count: int) -> range:
        """Law 4: so many offsets before `stable` are left. Returns those that are not any more."""
        taken = range(self.start, max(self.start, self.stable - count))
        self.start = taken.stop
        return taken

    def truncate(self, end: int) -> None:
        """Law 5. The log ends here now, but not before it begins."""
        self.end = max(self.start, min(self.end, end))
        for places in (self._aborted, self._markers, self._gone):
            places.difference_update([at for at in places if at >= self.end])
        left = {number: range(each.start, min(each.stop, self.end)) for number, each in self._open.items()}
        self._open = {number: each for number, each in left.items() if each}

    def next_record(self, offset: int) -> int:
        """The first offset from this one on that has a committed record, or `end`."""
        return next((at for at in range(max(offset, self.start), self.end) if self._has_record(at)), self.end)

    def _has_record(self, offset: int) -> bool:
        return offset not in self._markers and offset not in self._aborted and offset not in self._gone

    def read(self, offset: int, most: int, *, committed: bool) -> Found:
        """From an offset on, `most` at the most."""
        limit = self.stable if committed else self.end
        if not (self._markers or self._aborted or self._gone):
            upto = max(offset, min(limit, offset + most))
            return Found(range(offset, upto), upto, upto - offset)
        offsets, size, at = [], 0, offset
        while at < limit and size < most:
            if at not in self._gone:
                size += 1
                if at not in self._markers and not (committed and at in self._aborted):
                    offsets.append(at)
            at += 1
        return Found(offsets, at, size) if size else Found((), offset, 0)
