"""What the tests of `Engine` share: one with its records, its commits responded to, and time that is a number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from processing_help import commit

from instride import ConsumerRecord, OffsetAndMetadata, TopicPartition
from instride._processing.attempts import Desk
from instride._processing.commit_metadata import decode
from instride._processing.engine import Batch, Engine, EnginePlan, Job, Task, Verdict
from instride._processing.retries import Failures, Retry
from instride._record_deserializer import RecordDeserializer
from instride.consumer_records import Stretch

__all__ = ["TOPIC_ID", "Bench", "desk_of", "keyed"]

TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")


def desk_of(
    engine: Engine,
    lock: threading.RLock | None = None,
    *,
    clock: Callable[[], float] = lambda: 0.0,
    dead_letters: str | None = None,
    output: str | None = None,
    may_start: Callable[[], bool] = lambda: True,
    wants_attention: Callable[[], bool] = lambda: False,
) -> Desk:
    """Of workers whose poll needs no waking, in the group g."""
    return Desk(
        engine=engine,
        lock=lock or threading.RLock(),
        reader=RecordDeserializer(None, None),
        clock=clock,
        chance=lambda: 0.5,
        attention=lambda: None,
        wants_attention=wants_attention,
        may_start=may_start,
        dead_letters=dead_letters,
        output=output,
        group="g",
    )


def keyed(partition: TopicPartition, keys: str, start: int = 0, epoch: int = 1, seek: int = 0) -> list[ConsumerRecord]:
    """One record a letter; "-" has no key, "." is an offset that the log does not have."""
    topic, number = partition
    found = [(start + place, None if key == "-" else key.encode()) for place, key in enumerate(keys) if key != "."]
    return [ConsumerRecord(topic, number, at, epoch=epoch, seek_number=seek, key=key, value=b"v") for at, key in found]


class Bench:
    """An engine whose partitions began at a committed offset, unless `located` is False. log_begin: of all."""

    def __init__(
        self,
        *,
        located: bool = True,
        log_begin: int = -1,
        retry: Retry | None = None,
        after: Any = "stop",
        **plan: Any,
    ) -> None:
        failures = Failures(retry=retry or Retry(attempts=1), after=after, has_dead_letters=after == "dead-letter")
        self.engine = Engine(EnginePlan(failures=failures, **plan), lambda _: 1)
        self.now = 0.0
        self._located = located
        self._log_begin = log_begin

    def submit(self, records: Iterable[ConsumerRecord], lost: Iterable[TopicPartition] = ()) -> list[int]:
        batch = list(records)
        stretches = [Stretch(each.offset, each.offset + 1, 1) for each in batch]
        given_up = self.engine.submit(batch, lost, stretches, self.now)
        if self._located:
            for partition in self.engine.unlocated():
                first = min(each.offset for each in batch if each.topic_partition == partition)
                self.engine.locate(partition, OffsetAndMetadata(offset=first), TOPIC_ID, log_begin=self._log_begin)
        return [task.offset for task in given_up]

    def take(self) -> Task:
        task = self.engine.take(self.now)
        assert isinstance(task, Task)
        return task

    def take_batch(self) -> Batch:
        batch = self.engine.take(self.now)
        assert isinstance(batch, Batch)
        return batch

    def takes(self) -> list[Task]:
        found = []
        while (task := self.engine.take(self.now)) is not None:
            assert isinstance(task, Task)
            found.append(task)
        return found

    def end(self, task: Job, error: BaseException | None = None) -> Verdict | None:
        return self.engine.end(task, error, self.now, 0.5)

    def commit(self) -> dict[TopicPartition, tuple[int, tuple[tuple[int, int], ...], dict[int, int]]]:
        """The broker takes it. Of each partition: offset, ranges finished beyond it, attempts."""
        snapshot = self.engine.committable()
        found = {}
        for partition, each in snapshot.items():
            memory = decode(each.metadata, each.offset, TOPIC_ID)
            assert bool(each.metadata) == (memory is not None)
            found[partition] = (
                (each.offset, (), {})
                if memory is None
                else (each.offset, tuple(memory.finished), dict(memory.attempts))
            )
        commit(snapshot)
        return found
