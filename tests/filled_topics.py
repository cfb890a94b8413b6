"""Topics that are filled with records whose values say what they are: those that arrived are compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Producer

from instride import TopicPartition
from instride.testing import LocalKafka

__all__ = ["fill", "fill_values", "told_of_writes"]

_PATIENCE: Final = 60.0
_BATCH: Final = 5_000
_LISTENERS: Final[list[Callable[[TopicPartition, int], None]]] = []


@contextmanager
def told_of_writes(listener: Callable[[TopicPartition, int], None]) -> Iterator[None]:
    """listener: hears of each partition that `fill` writes to, and where its log ends then."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


def fill(
    kafka: LocalKafka,
    topic: str,
    counts: Mapping[int, int],
    *,
    start: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> list[tuple[int, int]]:
    """Write counts[partition] records, values "partition:number" from `start` on. What was written.

    start: the partition's next offset, where a test takes numbers for offsets.
    Up to 5,000 of a partition are one batch, where its size allows that, since the flush ends the linger: who reads
    sees all of them, or none.
    """
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 10_000, **(settings or {})})
    # A producer that does not know the leader yet gives the records to its partition one by one, while they are sent.
    producer.list_topics(topic, timeout=_PATIENCE)
    written = []
    for partition, count in counts.items():
        for number in range(start, start + count):
            written.append((partition, number))
            producer.produce(topic, f"{partition}:{number}".encode(), partition=partition)
            producer.poll(0)
            if (number - start) % _BATCH == _BATCH - 1:
                producer.flush(_PATIENCE)
    assert producer.flush(_PATIENCE) == 0, "the producer could not write everything"
    for partition, count in counts.items():
        for listener in _LISTENERS:
            listener(TopicPartition(topic, partition), start + count)
    return written


def fill_values(
    kafka: LocalKafka,
    topic: str,
    counts: Mapping[int, int],
    *,
    start: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> list[str]:
    """As `fill`; the values that were written, as texts."""
    return [f"{partition}:{number}" for partition, number in fill(kafka, topic, counts, start=start, settings=settings)]
