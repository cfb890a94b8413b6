"""Deserializing what a poll returns, so that a record which cannot be read stands in nobody's way for good.

Laws
1. A poll returns what comes before such a record, and of other partitions; its own partition stands at it. The error
   is raised once: in this poll where there is nothing to return, else in the next.
2. It is read again after a back-off, which grows and is bounded; when it fails again, the error is raised again. One
   that was dropped for want of memory is fetched first, once the back-off is over. Until
   it can be read, or a seek goes past it, it stands in `failed_partitions`, and its partition returns nothing.
3. Trying it again takes nothing from the records of others.
4. What a poll took and does not return was never taken: position, leader epoch and buffer are as before. A record that
   cannot be read, behind what was taken, was never reached either: who seeks past it would lose what is before it.
5. A deserializer, or a handler of a signal while it runs, may seek, or release the partition: then the error concerns
   nothing that is still read, and blocks neither another position nor another assignment.

How a deserializer is called, and that it is not called for null: `_record_deserializer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from instride._core.application.committing import speaks_of
from instride._core.application.partition import Delivery, OwnedPartition, PollResult, Unreadable
from instride._core.application.revoke_lists import RevokeLists
from instride.errors import DeserializationError
from instride.records import ConsumerRecord, TopicPartition

__all__ = ["FIRST_RETRY", "LONGEST_RETRY", "Read", "next_retry", "read_taken", "retry_unreadable"]

Read = Callable[[ConsumerRecord], ConsumerRecord]
"""Deserializes one record. Raises DeserializationError."""

FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 60.0
"""Seconds between two tries: doubled from the first to the longest."""


def next_retry(partitions: Iterable[OwnedPartition]) -> float:
    """When the first of those that cannot be read is tried again; infinity where there is none."""
    waiting = (each.unreadable for each in partitions if not each.paused)
    return min((each.retry_at for each in waiting if each is not None and not each.awaited), default=float("inf"))


def retry_unreadable(read: Read | None, partitions: Iterable[OwnedPartition], now: float) -> None:
    """Law 2. read: None where this poll deserializes nothing, so that nothing is unreadable."""
    for owned in partitions:
        before = owned.unreadable
        if before is None or owned.paused or (read is not None and now < before.retry_at):
            continue
        if read is not None and not owned.buffered:
            owned.unreadable = replace(before, awaited=True)
            continue
        owned.unreadable = None
        if read is not None:
            tried = owned.take(min(owned.available(), 1))
            _, error = _read(read, tried)
            # Law 3: it was taken for the try alone, and is returned in its turn.
            owned.take_only(0)
            if error is not None and speaks_of(tried[0], owned):  # law 5
                owned.unreadable = _unreadable(error, now, min(before.delay * 2, LONGEST_RETRY))


def read_taken(read: Read, lists: RevokeLists, taken: Iterable[Delivery], now: float) -> list[Delivery]:
    """Law 1: what was taken, deserialized, up to the first of each partition that cannot be."""
    by_partition: dict[TopicPartition, list[Delivery]] = {}
    for delivery in taken:
        by_partition.setdefault(delivery.partition, []).append(delivery)
    return [each for deliveries in by_partition.values() for each in _read_partition(read, lists, deliveries, now)]


def _read_partition(read: Read, lists: RevokeLists, taken: Sequence[Delivery], now: float) -> list[Delivery]:
    records, error = _read(read, taken)
    if error is not None:
        owned = lists.owned.get(taken[0].partition)
        if owned is None or not speaks_of(taken[0], owned):
            # Law 5: the poll sees that it is of no present place, and collects anew.
            return list(taken)
        lists.failing.mark(owned)
        taken = owned.take_only(len(records))
        owned.unreadable = _unreadable(error, now, FIRST_RETRY, after=lists.polls.current if taken else None)
    left = iter(records)
    return [replace(each, records=tuple(islice(left, len(each.chunk)))) for each in taken]


def _read(read: Read, taken: Iterable[Delivery]) -> tuple[list[ConsumerRecord], DeserializationError | None]:
    records: list[ConsumerRecord] = []
    try:
        for each in taken:
            # No comprehension: what was read before the error is returned (law 1).
            for record in each.chunk.records(epoch=each.epoch, seek_number=each.seek_number):
                records.append(read(record))
    except DeserializationError as error:
        return records, error
    return records, None


def _unreadable(
    error: DeserializationError, now: float, delay: float, *, after: PollResult | None = None
) -> Unreadable:
    return Unreadable(error=error, retry_at=now + delay, delay=delay, after=after)
