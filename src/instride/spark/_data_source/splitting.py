"""Which Spark task reads which offsets. Pure, and the same each time: a batch that runs again has the same tasks.

Laws
1. Every offset is in one task. A task reads its ranges one after another.
2. As with Spark's connector: one task for each range, at first cut so that none exceeds `max_records`, then large ones
   cut so that there are about `min_partitions` in all.
3. With `max_partitions` small ranges share tasks: a task costs Spark some 50 ms. The largest go first, each to the task
   with the fewest offsets.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from instride.spark.sink import OutputRange

__all__ = ["cut", "tasks_of"]


def tasks_of(
    ranges: Sequence[OutputRange],
    *,
    max_records: int | None = None,
    min_partitions: int | None = None,
    max_partitions: int | None = None,
) -> list[tuple[OutputRange, ...]]:
    """The ranges of each task."""
    pieces = list(ranges)
    if max_records is not None:
        pieces = [part for each in pieces for part in cut(each, -(-_size(each) // max_records))]
    if min_partitions is not None and 0 < len(pieces) < min_partitions:
        total = sum(map(_size, pieces))
        pieces = [part for each in pieces for part in cut(each, round(_size(each) / total * min_partitions))]
    if max_partitions is None or len(pieces) <= max_partitions:
        return [(each,) for each in pieces]
    return _packed(pieces, max_partitions)


def _size(wanted: OutputRange) -> int:
    return wanted.end - wanted.start


def cut(wanted: OutputRange, parts: int) -> list[OutputRange]:
    """In `parts` of equal size, as nearly as can be; none is empty."""
    parts = max(1, min(parts, _size(wanted)))
    edges = [wanted.start + _size(wanted) * n // parts for n in range(parts + 1)]
    return [replace(wanted, start=start, end=end) for start, end in pairwise(edges)]


def _packed(pieces: Sequence[OutputRange], tasks: int) -> list[tuple[OutputRange, ...]]:
    # The number: of two tasks with one load the ranges would be compared, and cannot be.
    heap: list[tuple[int, int, list[OutputRange]]] = [(0, number, []) for number in range(tasks)]
    for each in sorted(pieces, key=_size, reverse=True):
        load, number, chosen = heap[0]
        chosen.append(each)
        heapq.heapreplace(heap, (load + _size(each), number, chosen))
    packed = [chosen for _, _, chosen in sorted(heap, key=lambda entry: entry[1]) if chosen]
    # In order: a reader goes on in a partition with what it has fetched ahead.
    return [tuple(sorted(chosen, key=lambda each: (each.topic_partition, each.start))) for chosen in packed]
