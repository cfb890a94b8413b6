"""A consumer that is recorded: what it does is observed, what its application finishes is told.

Laws
1. What is seen comes by `instride.observers`, so the consumer does what it would do otherwise.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from instride._consumer_base import ConsumerBase
from instride.observers import Observer
from instride.records import ConsumerRecord, OffsetRange, TopicPartition
from instride.testing._check.vocabulary import parts
from instride.testing._recording.observer import Hold, Recording

__all__ = ["Observable", "RecordedMember"]

Say = Callable[..., None]
Finishes = Literal["told", "delivered"]


class Observable(Protocol):
    """A `Consumer`, a `RangeConsumer`, a `Pipeline`."""

    def observe(self, observer: Observer) -> None: ...


class RecordedMember:
    """What an application tells of itself, besides what is seen. Thread-safe."""

    def __init__(
        self, say: Say, hold: Hold, consumer: Observable, name: str, *, finishes: Finishes, holes: bool
    ) -> None:
        self.name = name
        self._say = partial(say, name)
        self._recording = Recording(self._say, partial(hold, name), holes=holes)
        consumer.observe(self._recording)
        self._say("started", False, finishes, True)

    def done(self, record: ConsumerRecord | OffsetRange) -> None:
        """The work on it is finished."""
        if isinstance(record, OffsetRange):
            for part in parts(record.start, record.end - 1):
                self._say("range done", record.topic_partition, *part, record.epoch)
        else:
            self._say("done", record.topic_partition, record.offset, record.epoch)

    def failed(self, record: ConsumerRecord) -> None:
        """Its handler raised: it may be handled again."""
        self._say("failed", record.topic_partition, record.offset, record.epoch)

    def not_begun(self, partition: TopicPartition, offset: int = 0) -> None:
        """It lets go of what the present assignment returned from this offset on: no work on that was begun."""
        epoch = self._recording.epoch_of(partition)
        if epoch is not None:
            self._say("not begun", partition, epoch, offset)

    def leaving(self) -> None:
        """It is asked to go."""
        self._say("leaving")

    def crashed(self) -> None:
        """It was killed, or dropped without `close`."""
        self._say("crashed")

    def note(self, what: str, *detail: Any) -> None:
        """Something for a reader of the history; the checker does not judge it."""
        self._say(what, *detail)

    def sample(self) -> None:
        """What the process and this consumer's buffers need now (R1): call it regularly in a soak."""
        consumer = self._recording.consumer
        assert consumer is not None
        before = _alone(consumer)
        metrics = {each.name: int(value) for each, value in consumer.metrics().items() if value >= 0}
        cap = metrics["buffered-bytes-limit"] + max(before, _alone(consumer))
        self._say("sample", *_memory_and_files(), threading.active_count(), metrics["buffered-bytes"], cap)


def _alone(consumer: ConsumerBase) -> int:
    """Bytes of the batch that has passed alone (`NetworkMachine.buffered`): more than what is decoded else may have. It
    may be larger than the limit, and is there besides. Any thread may ask."""
    assigned = consumer._driver._network._assigned_partitions().copy().values()
    largest = max((piece.nbytes for each in assigned for piece in tuple(each.pieces or ())), default=0)
    return largest if largest > consumer._config.fetch_buffer_bytes // 2 else 0


def _memory_and_files() -> tuple[int, int]:
    """Bytes of memory, and how many files are open; zeros where the system does not say so as Linux does."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0, 0
