"""A range names the topic that it is of by its id: no record of another topic of that name counts as read.

The brokers are played, since a topic is to be made again between any two steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from instride import PartitionInfo
from instride.errors import TopicRecreatedError, WrongTopicError
from instride.records import TopicPartition
from instride.spark import _range_reader
from instride.spark._range_reader import RangeReader, ReaderSettings, followed
from instride.spark.sink import OutputRange

PARTITIONS = 3
LENGTH = 60
AHEAD = 9


class Brokers:
    """One topic. Each record has its topic's id as its value. again: how likely it is made again at a step."""

    def __init__(self, seed: int, *, by_id: bool, again: float) -> None:
        self.chance = random.Random(seed)
        self.by_id = by_id
        self.topic_id = UUID(int=1)
        self.lookups = 0
        self._again = again

    def step(self) -> None:
        if self.chance.random() < self._again:
            self.topic_id = UUID(int=self.topic_id.int + 1)

    def wanted(self) -> OutputRange:
        """As a driver plans it."""
        start = self.chance.randrange(LENGTH - 1)
        end = self.chance.randrange(start + 1, LENGTH)
        partition = self.chance.randrange(PARTITIONS)
        return OutputRange(topic="t", partition=partition, start=start, end=end, topic_id=str(self.topic_id))


class Records:
    def __init__(self, first: int, topics: Sequence[UUID]) -> None:
        self._columns = {
            "offset": pa.array(range(first, first + len(topics)), pa.int64()),
            "value": pa.array([str(each) for each in topics], pa.string()),
        }

    def to_arrow(self, columns: Iterable[str] | None) -> list[pa.RecordBatch]:
        assert columns is None
        return [pa.record_batch(self._columns)] if len(self._columns["offset"]) else []


class PlayedConsumer:
    """What a `RangeReader` needs of a consumer. It fetches ahead, and its metadata may be old: it finds that out by its
    next fetch, or has buffered records of the old topic then.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._paused: frozenset[TopicPartition] = frozenset()
        self._known = brokers.topic_id
        self._buffer: list[UUID] = []
        self._at = 0
        self._fetched: UUID | None = None

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._brokers.step()
        if self._brokers.chance.random() < 0.3:  # else its metadata are as old as they were
            self._known = self._brokers.topic_id
        self._assigned = frozenset(partitions)
        self._paused = frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        return self._assigned

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused |= set(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused -= set(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        assert partition in self._assigned
        self._at, self._buffer, self._fetched = offset, [], None

    def position(self, partition: TopicPartition, *, timeout: float) -> int:
        return self._at

    def poll(self, *, timeout: float, max_records: int) -> Records:
        assert not self._paused
        self._fetch()
        count = self._brokers.chance.randint(0, min(max_records, len(self._buffer)))
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        first, self._at = self._at, self._at + count
        return Records(first, taken)

    def _fetch(self) -> None:
        self._brokers.step()
        known = self._brokers.topic_id
        if self._brokers.by_id and self._known != known:
            if self._brokers.chance.random() < 0.3:  # its leader has not heard of it yet
                known = self._known
            elif self._buffer:
                return
            else:
                old, self._known = self._known, self._brokers.topic_id
                raise TopicRecreatedError("made again", topic="t", partition=0, old_topic_id=old, topic_id=self._known)
        room = min(AHEAD, LENGTH - self._at) - len(self._buffer)
        self._buffer += [known] * max(0, self._brokers.chance.randint(0, AHEAD) and room)
        if self._buffer:
            self._fetched = known

    def fetched_topic_id(self, partition: TopicPartition) -> UUID | None:
        assert partition in self._assigned
        return self._fetched if self._brokers.by_id else None

    def partitions_for(self, topic: str, *, timeout: float) -> list[PartitionInfo]:
        self._brokers.step()
        self._brokers.lookups += 1
        return [PartitionInfo(topic=topic, partition=0, leader=None, topic_id=self._brokers.topic_id)]

    def close(self, *, timeout: float) -> None:
        pass


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(seed: int, *, by_id: bool, again: float) -> Brokers:
        brokers = Brokers(seed, by_id=by_id, again=again)
        monkeypatch.setattr(_range_reader, "Consumer", lambda **_: PlayedConsumer(brokers))
        return brokers

    return made


def read(reader: RangeReader, wanted: OutputRange, following: OutputRange | None, given: list[str]) -> list[int]:
    """given: the ids of the topics of the records that were given out, also where it raises."""
    offsets = []
    for batch in reader.read(wanted, following):
        given += batch["value"].to_pylist()
        offsets += batch["offset"].to_pylist()
    return offsets


def ranges(brokers: Brokers) -> Iterator[tuple[OutputRange, OutputRange | None]]:
    """Of one task. What is told to follow may be another one than what follows."""
    chosen = [brokers.wanted() for _ in range(brokers.chance.randint(1, 5))]
    for wanted, following in followed(chosen):
        yield wanted, brokers.chance.choice((following, following, None, brokers.wanted()))


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "by name"])
def test_a_range_that_was_read_is_of_the_topic_that_it_names(play: Any, *, by_id: bool) -> None:
    whole = refused = 0
    for seed in range(400):
        brokers = play(seed, by_id=by_id, again=0.02)
        reader = RangeReader(ReaderSettings(bootstrap_servers="nowhere:1"))
        for wanted, following in (each for _ in range(4) for each in ranges(brokers)):
            given: list[str] = []
            try:
                assert read(reader, wanted, following, given) == list(range(wanted.start, wanted.end)), seed
            except WrongTopicError:
                refused += 1
                assert wanted.topic_id != str(brokers.topic_id), f"seed {seed}: refused, though the topic is the same"
                reader.close()
                reader = RangeReader(ReaderSettings(bootstrap_servers="nowhere:1"))
                assert not by_id or set(given) <= {wanted.topic_id}, f"seed {seed}: given out, though it failed then"
            else:
                whole += 1
                assert set(given) == {wanted.topic_id}, f"seed {seed}"
    assert min(whole, refused) > 200


def test_by_name_a_topic_is_looked_up_before_and_after_its_records(play: Any) -> None:
    brokers = play(983, by_id=False, again=0.0)
    reader = RangeReader(ReaderSettings(bootstrap_servers="nowhere:1"))
    for count, (wanted, following) in enumerate(ranges(brokers), 1):
        read(reader, wanted, following, [])
        assert brokers.lookups == 2 * count


def test_by_id_no_topic_is_looked_up(play: Any) -> None:
    """A lookup brings all partitions of the topic: of a thousand in 20 ms of CPU."""
    brokers = play(983, by_id=True, again=0.0)
    reader = RangeReader(ReaderSettings(bootstrap_servers="nowhere:1"))
    for wanted, following in (each for _ in range(20) for each in ranges(brokers)):
        assert read(reader, wanted, following, []) == list(range(wanted.start, wanted.end))
    assert brokers.lookups == 0


def test_a_range_without_a_topic_id_is_never_looked_up(play: Any) -> None:
    """Its topic had none when it was planned."""
    brokers = play(983, by_id=False, again=0.0)
    reader = RangeReader(ReaderSettings(bootstrap_servers="nowhere:1"))
    wanted = OutputRange(topic="t", partition=0, start=3, end=20)
    assert read(reader, wanted, None, []) == list(range(3, 20))
    assert brokers.lookups == 0
