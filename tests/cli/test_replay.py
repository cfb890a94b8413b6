"""`instride dead-letters replay` sends each letter, also those that are written while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from typer.testing import CliRunner

from instride import ConsumerRecord, OffsetAndMetadata, PartitionInfo, TopicPartition
from instride._cli import dead_letters
from instride._processing.dead_letters import dead_letter

Letter = ConsumerRecord[Any, Any]
PARTITIONS = [TopicPartition("dlq", number) for number in range(2)]


class Topic:
    """Two partitions of letters, and the offsets of the group that replays them. comes: letters that are written as
    soon as a reader knows where the topic ends."""

    def __init__(self, *counts: int) -> None:
        self.logs: dict[TopicPartition, list[Letter]] = {each: [] for each in PARTITIONS}
        self.group: dict[TopicPartition, OffsetAndMetadata] = {}
        self.comes: list[TopicPartition] = []
        for partition, count in zip(PARTITIONS, counts, strict=True):
            for _ in range(count):
                self.write(partition)

    def write(self, partition: TopicPartition) -> None:
        log = self.logs[partition]
        record: Letter = ConsumerRecord("orders", partition.partition, len(log), key=b"k", value=b"v")
        letter = dead_letter("dlq", record, ValueError("no such order"), 1, "billing")
        log.append(ConsumerRecord(*partition, len(log), key=letter.key, value=letter.value, headers=letter.headers))


class Reader:
    """A consumer of it."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._positions: dict[TopicPartition, int] = {}

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None: ...

    def partitions_for(self, topic: str, **_: Any) -> list[PartitionInfo]:
        return [PartitionInfo(topic=topic, partition=each.partition, leader=None) for each in PARTITIONS]

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions, 0)

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._positions.update((each, len(self._topic.logs[each])) for each in partitions)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._positions.update(dict.fromkeys(partitions, 0))
        while self._topic.comes:
            self._topic.write(self._topic.comes.pop())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    def committed(self, *partitions: TopicPartition, **_: Any) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return {each: self._topic.group.get(each) for each in partitions}

    def position(self, partition: TopicPartition, **_: Any) -> int:
        return self._positions[partition]

    def poll(self, **_: Any) -> list[Letter]:
        found: list[Letter] = []
        for partition, position in self._positions.items():
            found += self._topic.logs[partition][position:]
            self._positions[partition] = len(self._topic.logs[partition])
        return found

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], **_: Any) -> None:
        self._topic.group.update(offsets)


class Produce:
    def __init__(self, *_: Any) -> None: ...

    def __call__(self, record: object) -> Future[None]:
        acknowledged: Future[None] = Future()
        acknowledged.set_result(None)
        return acknowledged

    def close(self) -> None: ...


def replay(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(dead_letters, "Consumer", lambda **_: Reader(topic))
    monkeypatch.setattr(dead_letters, "ConfluentProduce", Produce)
    done = CliRunner().invoke(dead_letters.app, ["replay", "dlq", "--bootstrap-servers", "b:1"])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_letters_that_are_written_during_a_replay_are_sent_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(2, 0)
    topic.comes = PARTITIONS.copy()
    assert replay(topic, monkeypatch) == ["0:0  sent", "0:1  sent"]
    assert replay(topic, monkeypatch) == ["0:2  sent", "1:0  sent"]
    assert replay(topic, monkeypatch) == []
