"""When a partition is paused and resumed: one that stands still leaves space for the others.

What `engine` and law 8 of `partition_queues` go by. Bytes are those of all of a partition's records that are not
finished; of what is queued they are taken for its part by number.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Queue", "has_its_share", "may_resume"]


class Queue(Protocol):
    """One partition's. records, size: how many are not finished, and their bytes."""

    records: int
    size: int

    @property
    def queued(self) -> int: ...


def has_its_share(queue: Queue, free: int, free_bytes: int, *, batch: int = 1) -> bool:
    """Whether to pause it: it takes half of the space that is left. A batch is let grow to its size.

    free, free_bytes: the space that all partitions have left, in records and bytes.
    """
    if free <= 0 or free_bytes <= 0:
        return True
    if queue.queued < batch:
        return False
    return 2 * queue.queued >= free or 2 * queue.size * queue.queued >= free_bytes * queue.records


def may_resume(queue: Queue, free: int, free_bytes: int) -> bool:
    """Whether it is empty, or takes no more than a quarter of the space that is left."""
    if not queue.queued:
        return True
    return 4 * queue.queued <= free and 4 * queue.size * queue.queued <= free_bytes * queue.records
