"""When a partition is paused and resumed: one that stands still leaves space for the others.

What `engine` and law 8 of `partition_queues` go by. Bytes are those of all of a partition's records that are not
finished; of what is queued they are taken for its part by number.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from instride.records import TopicPartition

__all__ = ["BelowShare", "Queue", "has_its_share", "may_resume"]


class Queue(Protocol):
    """One partition's. records, size: how many are not finished, and their bytes."""

    records: int
    size: int

    @property
    def queued(self) -> int: ...


class _NamedQueue(Queue, Protocol):
    partition: TopicPartition


Q = TypeVar("Q", bound=_NamedQueue)


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


class BelowShare(Generic[Q]):
    """Queues that have not their share, and did not change since that was seen. They take no more than they did then,
    so only less space concerns them: a round looks at none of them as long as there is enough."""

    __slots__ = ("_batch", "_enough", "_enough_bytes", "_queues")

    def __init__(self, batch: int = 1) -> None:
        self._batch = batch
        self._queues: dict[tuple[str, int], Q] = {}
        self._enough = 1
        self._enough_bytes = 1

    def keep(self, queue: Q) -> None:
        self._queues[queue.partition] = queue
        if queue.queued >= self._batch:
            self._enough = max(self._enough, 2 * queue.queued + 1)
            self._enough_bytes = max(self._enough_bytes, 2 * queue.size * queue.queued // queue.records + 1)

    def concerned(self, free: int, free_bytes: int) -> dict[tuple[str, int], Q]:
        """Those that may have their share now; they leave."""
        if free >= self._enough and free_bytes >= self._enough_bytes:
            return {}
        found, self._queues = self._queues, {}
        self._enough = self._enough_bytes = 1
        return found

    def pop(self, partition: tuple[str, int], default: None = None) -> None:
        """Also one that is not here."""
        self._queues.pop(partition, default)
