"""A range names the topic that it is of by its id: no record of another topic of that name counts as read.

The brokers are played, since a topic is to be made again between any two steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from instride import PartitionInfo
from instride.errors import (
    KafkaError,
    NotKafkaError,
    TopicRecreatedError,
    TransportError,
    UnknownTopicOrPartitionError,
    WrongTopicError,
)
from instride.records import TopicPartition
from instride.spark import _range_reader
from instride.spark._range_reader import RangeReader, ReaderSettings, end_offsets, followed, reader_for
from instride.spark.sink import OutputRange

PARTITIONS = 3
LENGTH = 60
AHEAD = 9


class Clock:
    """Time passes for who sleeps."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def infos(topic_id: UUID) -> list[PartitionInfo]:
    return [PartitionInfo(topic="t", partition=n, leader=None, topic_id=topic_id) for n in range(PARTITIONS)]


class Brokers:
    """One topic. Each record has its topic's id as its value. again: how likely it is made again at a step.

    behind: what the broker that is asked for the topic says until then. errors: of the next polls.
    """

    def __init__(self, seed: int, *, by_id: bool, again: float) -> None:
        self.clock = Clock()
        self.behind: list[PartitionInfo] = []
        self.behind_until = 0.0
        self.errors: list[KafkaError] = []
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
        if self._brokers.errors:
            raise self._brokers.errors.pop(0)
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
        if self._brokers.clock.at < self._brokers.behind_until:
            return self._brokers.behind
        return infos(self._brokers.topic_id)

    def list_topics(self, topics: Iterable[str], *, timeout: float) -> dict[str, list[PartitionInfo]]:
        return {topic: found for topic in topics if (found := self.partitions_for(topic, timeout=timeout))}

    def end_offsets(self, partitions: Iterable[TopicPartition], *, timeout: float) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, LENGTH)

    def __enter__(self) -> PlayedConsumer:
        return self

    def __exit__(self, *_: object) -> None: ...

    def close(self, *, timeout: float) -> None: ...


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(seed: int, *, by_id: bool, again: float) -> Brokers:
        brokers = Brokers(seed, by_id=by_id, again=again)
        monkeypatch.setattr(_range_reader, "Consumer", lambda **_: PlayedConsumer(brokers))
        monkeypatch.setattr(_range_reader, "time", brokers.clock)
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


@pytest.mark.slow
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


UNKNOWN = UnknownTopicOrPartitionError("topic 'other' does not exist")
WHOLE = OutputRange(topic="t", partition=0, start=3, end=20, topic_id=str(UUID(int=1)))


@pytest.mark.parametrize("topic_id", [str(UUID(int=1)), ""])
@pytest.mark.parametrize("error", [UNKNOWN, TransportError("no broker answers")])
def test_what_ends_no_range_leaves_none_of_it_out(play: Any, error: KafkaError, topic_id: str) -> None:
    """Another topic that this reader has read is deleted. Or no broker can be reached at present."""
    play(983, by_id=True, again=0.0).errors = [error, error]
    reader = RangeReader(ReaderSettings(bootstrap_servers="nowhere:1", fail_on_data_loss=False))
    assert read(reader, replace(WHOLE, topic_id=topic_id), None, []) == list(range(3, 20))


@pytest.mark.parametrize("behind", [[], infos(UUID(int=7)), infos(UUID(int=1))[1:]], ids=["none", "other", "fewer"])
@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "by name"])
def test_a_broker_that_is_behind_for_a_while_ends_no_range(
    play: Any, behind: list[PartitionInfo], *, by_id: bool
) -> None:
    brokers = play(983, by_id=by_id, again=0.0)
    brokers.behind, brokers.behind_until, brokers.errors = behind, 3.0, [UNKNOWN]
    reader = RangeReader(ReaderSettings(bootstrap_servers="nowhere:1"))
    assert read(reader, WHOLE, None, []) == list(range(3, 20))


@pytest.mark.parametrize(
    ("behind", "kind"),
    [
        ([], UnknownTopicOrPartitionError),
        (infos(UUID(int=7)), WrongTopicError),
        (infos(UUID(int=1))[1:], UnknownTopicOrPartitionError),
    ],
)
def test_a_topic_that_is_gone_ends_its_range(play: Any, behind: list[PartitionInfo], kind: type[KafkaError]) -> None:
    brokers = play(983, by_id=True, again=0.0)
    brokers.behind, brokers.behind_until, brokers.errors = behind, 1e9, [UNKNOWN]
    reader = RangeReader(ReaderSettings(bootstrap_servers="nowhere:1"))
    with pytest.raises(kind, match="t-0"):
        read(reader, WHOLE, None, [])
    assert brokers.clock.at < 10.0


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "by name"])
def test_another_topic_is_believed_at_once_where_records_were_given_out(play: Any, *, by_id: bool) -> None:
    """The next broker may be behind, and know the older one."""
    brokers = play(983, by_id=by_id, again=0.0)
    reader = RangeReader(ReaderSettings(bootstrap_servers="nowhere:1"))
    batches = reader.read(WHOLE)
    next(batches)
    brokers.behind, brokers.behind_until = infos(UUID(int=7)), 0.05
    brokers.errors = [UNKNOWN]
    with pytest.raises(WrongTopicError):
        list(batches)


def test_what_no_time_mends_ends_a_range_at_once(play: Any) -> None:
    play(983, by_id=True, again=0.0).errors = [NotKafkaError("a web server responds there")]
    reader = RangeReader(ReaderSettings(bootstrap_servers="nowhere:1"))
    with pytest.raises(NotKafkaError):
        read(reader, WHOLE, None, [])


def test_a_reader_fetches_nothing_of_a_range_that_another_one_reads(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """How large a record is it learns by the range before: then the one that follows counts as a long one."""
    play(983, by_id=True, again=0.0)
    monkeypatch.setattr(_range_reader, "_LONG", _range_reader.Fetches(most_bytes=1, buffer_bytes=200))
    monkeypatch.setattr(_range_reader, "_record_bytes", {})
    monkeypatch.setattr(_range_reader, "_readers", {})
    settings = ReaderSettings(bootstrap_servers="nowhere:1")
    short, long = replace(WHOLE, end=4), replace(WHOLE, partition=1, end=LENGTH)
    first = reader_for(settings, short)
    read(first, short, long, [])
    assert first._consumer.assignment() == {long.topic_partition}
    assert reader_for(settings, long) is not first
    assert first._consumer._paused == {long.topic_partition}  # type: ignore[attr-defined]  # a played one


def test_a_reader_may_wait_for_longer_than_a_consumer_may_be_stalled() -> None:
    """`kafkaConsumer.pollTimeoutMs` may be 2147483647."""
    RangeReader(ReaderSettings(bootstrap_servers="nowhere:1", timeout=2147483.647)).close()


def test_the_ends_of_a_topic_are_known_though_a_broker_is_behind(play: Any) -> None:
    """Else a run with available_now would end at once, with nothing of it read."""
    brokers = play(983, by_id=True, again=0.0)
    brokers.behind_until = 3.0
    ends = end_offsets(ReaderSettings(bootstrap_servers="nowhere:1"), ["t"])
    assert ends == {TopicPartition("t", n): LENGTH for n in range(PARTITIONS)}
    brokers.behind_until = 1e9
    assert end_offsets(ReaderSettings(bootstrap_servers="nowhere:1"), ["t"]) == {}


class Listing(PlayedConsumer):
    """Each response names the topics that one broker knows. asked: which topics, by request."""

    def __init__(self, brokers: Brokers, *known: str) -> None:
        super().__init__(brokers)
        self._known_by = list(known)
        self.asked: list[str] = []

    def list_topics(self, topics: Iterable[str], *, timeout: float) -> dict[str, list[PartitionInfo]]:
        self.asked.append("".join(sorted(topics)))
        known = self._known_by.pop(0) if len(self._known_by) > 1 else self._known_by[0]
        # "E": e without partitions.
        there = {topic: [PartitionInfo(topic=topic, partition=0, leader=None)] for topic in known if topic in topics}
        return there | ({"e": []} if "E" in known else {})


@pytest.mark.parametrize(
    ("known", "topics", "asked"),
    [
        (("abc",), "abc", ["abc"]),
        (("ab", "c", "b"), "abc", ["abc", "c"]),
        (("a", "c", "b"), "abc", ["abc", "bc", "b"]),
        (("aE", "e"), "ae", ["ae", "e"]),
        (("",), "", [""]),
    ],
    ids=["all at once", "two brokers", "three brokers", "no partitions yet", "nothing"],
)
def test_the_ends_of_several_topics_are_asked_together_and_what_lacks_again(
    play: Any, monkeypatch: pytest.MonkeyPatch, known: tuple[str, ...], topics: str, asked: list[str]
) -> None:
    """What one broker has told stays told: another one may be behind in what this one knew."""
    consumer = Listing(play(983, by_id=True, again=0.0), *known)
    monkeypatch.setattr(_range_reader, "Consumer", lambda **_: consumer)
    ends = end_offsets(ReaderSettings(bootstrap_servers="nowhere:1"), list(topics))
    assert ends == {TopicPartition(topic, 0): LENGTH for topic in topics}
    assert consumer.asked == asked
