"""What the tests of `instride.processing` share."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from instride import ConsumerRecord, TopicPartition
from instride.commits import CommitSnapshot

__all__ = ["P0", "P1", "commit", "offsets", "records", "refuse_threads", "tp"]


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


P0, P1 = tp(0), tp(1)


def records(
    partition: TopicPartition, *numbers: int, epoch: int = 1, seek: int = 0, value: bytes | None = None
) -> list[ConsumerRecord]:
    topic, number = partition
    return [ConsumerRecord(topic, number, each, epoch=epoch, seek_number=seek, value=value) for each in numbers]


def offsets(found: Iterable[ConsumerRecord]) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in found]


def refuse_threads(monkeypatch: pytest.MonkeyPatch, left: int = 0) -> list[int]:
    """So many threads more can be made: the number may be changed."""
    found, start = [left], threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if found[0] == 0:
            raise RuntimeError("can't start new thread")
        found[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    return found


def commit(snapshot: CommitSnapshot) -> dict[TopicPartition, int]:
    """The broker takes it."""
    for partition, entry in snapshot.entries.items():
        snapshot.settle(partition, entry, committed=True)
    return {partition: each.offset for partition, each in snapshot.items()}
