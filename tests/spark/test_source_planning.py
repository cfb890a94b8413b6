"""What a micro-batch reads and which task reads it: the source's decisions, with the brokers played."""

from __future__ import annotations

import itertools
import json
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.datasource import DataSourceReader, EqualTo, LessThan
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from instride._core.network.cluster import MISSING_GRACE
from instride.errors import (
    ConfigError,
    KafkaTimeoutError,
    NotKafkaError,
    OffsetsGoneError,
    TransportError,
    UnknownTopicOrPartitionError,
    WrongTopicError,
)
from instride.records import PartitionInfo, TopicPartition
from instride.spark import OffsetsBehindListener
from instride.spark._data_source import batch, batch_reader, cluster, planning, reading, sampling, source_schema, stream
from instride.spark._data_source.admission import Pace, Sample, Scale, admitted
from instride.spark._data_source.columns import in_spark_schema
from instride.spark._data_source.fused import Transform
from instride.spark._data_source.offsets import BatchPlan, Found, Gone, GroupMark, Span
from instride.spark._data_source.options import EARLIEST, LATEST, Bound, Topics, parse_options
from instride.spark._data_source.reading import RangesPartition, TaskReader
from instride.spark._data_source.splitting import tasks_of
from instride.spark._functions import pickle_function
from instride.spark._range_reader import ReaderSettings
from instride.spark.sink import OutputRange


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


# -- offsets


def test_an_offset_comes_back_as_it_was_and_is_in_order() -> None:
    gone = {tp(2, "z"): Gone(topic_id="z-id", offset=5), tp(1, "b"): Gone(topic_id="b-id", offset=0)}
    plan = BatchPlan({tp(10): Span(1, 2), tp(9): Span(3, 3), tp(0, "a"): Span(0, 7)}, {"t": "id", "a": ""}, gone=gone)
    data = json.loads(json.dumps(plan.to_json()))
    assert BatchPlan.from_json(data) == plan
    assert list(data["topics"]) == ["a", "t"]
    assert list(data["topics"]["t"]["partitions"]) == ["9", "10"]
    assert [*BatchPlan.from_json(data).gone] == [*gone], "in the order in which they went"


def test_a_first_batch_without_partitions_is_told_from_no_batch() -> None:
    """Spark compares offsets as text, and asks for the initial one again after a crash."""
    nothing, empty = BatchPlan(), BatchPlan(empty=True)
    assert nothing.to_json() == {"version": 1, "topics": {}}
    assert empty.to_json() == {**nothing.to_json(), "begun": True}
    assert [BatchPlan.from_json(each.to_json()) for each in (nothing, empty)] == [nothing, empty]
    mark = GroupMark(group="g", subscribed="t", run="")
    plans = [nothing, empty, BatchPlan({tp(0): Span(0, 0)}), BatchPlan(mark=mark)]
    assert [each.begun for each in plans] == [False, True, True, True]


@pytest.mark.requirement("source/24")
@pytest.mark.parametrize(
    "data",
    [
        {},
        {"version": 2, "topics": {}},
        {"t": {"0": 5}},
        {"version": 3, "topics": {}, "group": {}},
        5,
        None,
        {"version": 1, "topics": {"t": {}}},
        {"version": 1, "topics": {}, "gone": [["t", 0]]},
        {"version": 1, "topics": {"t": {"id": "", "partitions": {"0": 5}}}},
        {"version": 1, "topics": {"t": {"id": "", "partitions": {"zero": [1, 2]}}}},
    ],
)
def test_an_offset_of_another_source_or_version_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="checkpoint"):
        BatchPlan.from_json(data)


# -- admission


@pytest.mark.requirement("source/10")
def test_a_limit_is_shared_by_backlog_and_starves_nobody() -> None:
    lag = {tp(0): 1_000_000, tp(1): 3, tp(2): 0}
    assert admitted(lag, 100) == {tp(0): 99, tp(1): 1, tp(2): 0}
    assert admitted(lag, None) == lag
    assert admitted(lag, 2**63 - 1) == lag


@pytest.mark.requirement("source/10")
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20), st.integers(1, 2**63 - 1))
def test_nobody_gets_more_than_it_has_and_everybody_something(sizes: list[int], limit: int) -> None:
    lag = {tp(number): size for number, size in enumerate(sizes)}
    shares = admitted(lag, limit)
    assert all((share > 0) == (size > 0) and share <= size for share, size in zip(shares.values(), sizes, strict=True))
    assert sum(shares.values()) <= limit + len(sizes)


@pytest.mark.requirement("source/11")
def test_a_least_number_waits_for_so_many_or_so_long_but_not_the_first_time() -> None:
    pace = Pace(10, 60.0)
    assert pace.may_start(0, 0.0)
    assert not pace.may_start(0, 100.0)
    assert pace.may_start(3, 101.0)
    assert not pace.may_start(9, 160.0)
    assert pace.may_start(10, 160.0)
    assert pace.may_start(1, 220.0)


def sample(start: int, end: int, nbytes: int, *, first: int | None = None) -> Sample:
    return Sample(start=start, first=start if first is None else first, end=end, nbytes=nbytes)


def test_bytes_are_shared_by_the_backlogs_bytes_and_starve_nobody() -> None:
    scale = Scale()
    scale.note({tp(0): sample(0, 10, 1_000), tp(1): sample(0, 5, 50_000), tp(2): sample(0, 1, 1_000_000)})
    lag = {tp(0): 1_000, tp(1): 10, tp(2): 3, tp(3): 0}
    assert scale.admitted(lag, 3_200_000) == {**lag, tp(3): 0}
    # A tenth of each: of the last one a record is more than its share, and goes on all the same.
    assert scale.admitted(lag, 320_000) == {tp(0): 100, tp(1): 1, tp(2): 1, tp(3): 0}
    # Nobody knows what the fourth weighs.
    assert scale.admitted({tp(0): 1_000, tp(3): 50}, 10_000) == {tp(0): 100, tp(3): 1}


def test_offsets_before_the_first_record_do_not_make_the_records_light() -> None:
    """Compaction left a gap there, and maybe none behind it."""
    scale = Scale()
    scale.note({tp(0): sample(0, 1_010, 1_000, first=1_000)})
    assert scale.admitted({tp(0): 5_000}, 10_000) == {tp(0): 100}


def test_a_partition_is_weighed_anew_where_it_goes_on_beyond_its_sample() -> None:
    scale = Scale()
    scale.note({tp(0): sample(10, 20, 100)})
    asked = {start: list(scale.unknown({tp(0): Span(start, 99), tp(1): Span(4, 4)})) for start in (9, 10, 19, 20, 99)}
    assert asked == {9: [tp(0)], 10: [], 19: [], 20: [tp(0)], 99: []}


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**6)), min_size=1), st.integers(1, 2**63 - 1))
def test_what_is_admitted_weighs_no_more_than_the_limit_but_for_one_record_each(
    backlogs: list[tuple[int, int]], limit: int
) -> None:
    scale, lag = Scale(), {tp(number): size for number, (size, _) in enumerate(backlogs)}
    scale.note({tp(number): sample(0, 1, weight) for number, (_, weight) in enumerate(backlogs)})
    shares = scale.admitted(lag, limit)
    assert all((share > 0) == (lag[each] > 0) and share <= lag[each] for each, share in shares.items())
    beyond = [share for each, share in shares.items() if share > 1]
    weights = [weight for _, weight in backlogs]
    assert sum(shares[tp(n)] * w for n, w in enumerate(weights) if shares[tp(n)] > 1) <= limit * (1 + 1e-9)
    assert beyond or sum(shares.values()) <= len(lag)


# -- splitting


def span(partition: int, start: int, end: int) -> OutputRange:
    return OutputRange(topic="t", partition=partition, start=start, end=end)


def test_one_task_a_range_unless_told_otherwise() -> None:
    ranges = [span(0, 0, 10), span(1, 5, 6)]
    assert tasks_of(ranges) == [(ranges[0],), (ranges[1],)]
    assert tasks_of([], min_partitions=5, max_partitions=9, max_records=1) == []


@pytest.mark.requirement("source/19")
def test_large_ranges_are_cut_for_more_tasks() -> None:
    """Vector 19: 6 tasks of 3 partitions."""
    assert len(tasks_of([span(n, 0, 100) for n in range(3)], min_partitions=6)) == 6
    uneven = tasks_of([span(0, 0, 1_000), span(1, 0, 10)], min_partitions=4)
    assert [(each.partition, each.start, each.end) for (each,) in uneven] == [
        (0, 0, 250), (0, 250, 500), (0, 500, 750), (0, 750, 1_000), (1, 0, 10),
    ]  # fmt: skip
    assert [each.end - each.start for (each,) in tasks_of([span(0, 0, 10)], max_records=4)] == [3, 3, 4]


def test_small_ranges_share_tasks() -> None:
    tasks = tasks_of([span(n, 0, n + 1) for n in range(8)], max_partitions=2)
    assert len(tasks) == 2
    assert sorted(sum(each.end - each.start for each in task) for task in tasks) == [18, 18]


@given(
    st.lists(st.integers(1, 10_000), max_size=20),
    st.integers(1, 5_000) | st.none(),
    st.integers(1, 50) | st.none(),
    st.integers(1, 50) | st.none(),
)
def test_every_offset_is_in_one_task(
    sizes: list[int], max_records: int | None, least: int | None, most: int | None
) -> None:
    ranges = [span(number, 7, 7 + size) for number, size in enumerate(sizes)]
    tasks = tasks_of(ranges, max_records=max_records, min_partitions=least, max_partitions=most)
    pieces = sorted((each.partition, each.start, each.end) for task in tasks for each in task)
    joined: list[tuple[int, int, int]] = []
    for partition, start, end in pieces:
        if joined and joined[-1][0] == partition:
            assert joined[-1][2] == start
            joined.append((partition, joined.pop()[1], end))
        else:
            joined.append((partition, start, end))
    assert joined == [(each.partition, each.start, each.end) for each in ranges]
    assert most is None or len(tasks) <= most
    assert max_records is None or all(end - start <= max_records for _, start, end in pieces)


# -- the streaming reader


class Brokers:
    """What `Cluster` asks, played: logs by partition, [begin, end)."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, tuple[int, int]] = {}
        self.topic_id = "one"
        self.committed: list[tuple[str, dict[TopicPartition, int]]] = []
        self.error: Exception | None = None
        self.weights: dict[TopicPartition, int] = {}
        self.sampled: list[dict[TopicPartition, Span]] = []
        self.behind: list[Found] = []

    def sample(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, Sample]:
        """Of ten records, where there are so many."""
        if spans:
            self.sampled.append(dict(spans))
        found = {}
        for each, span in spans.items():
            end = min(span.end, span.start + 10)
            weight = self.weights[each] * (end - span.start)
            found[each] = Sample(start=span.start, first=span.start, end=end, nbytes=weight)
        return found

    def partitions(self, topics: Topics) -> Found:
        """First what brokers say that are behind."""
        return self.behind.pop(0) if self.behind else dict.fromkeys(self.logs, self.topic_id)

    require = cluster.Cluster.require

    def earliest(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return {each: self.logs[each][0] for each in partitions}

    def latest(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return {each: self.logs[each][1] for each in partitions}

    def resolve(
        self, bound: Bound, partitions: Iterable[TopicPartition], *, name: str, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        look = self.latest if bound.every == LATEST else self.earliest
        return look(partitions, timeout=timeout)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self.error is not None:
            raise self.error
        self.committed.append((group, dict(offsets)))

    def close(self) -> None: ...


class Clock:
    """Time passes for who sleeps."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    played = Clock()
    monkeypatch.setattr(stream, "time", played)
    return played


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Brokers:
    played = Brokers()
    played.logs = {tp(0): (0, 10), tp(1): (0, 0)}
    monkeypatch.setattr(stream, "Cluster", lambda options: played)
    return played


def reader(**given: str) -> stream.StreamReader:
    return named_reader(**{"subscribe": "t", **given})


def named_reader(**given: str) -> stream.StreamReader:
    """Of what is given by name: a topic, partitions or a pattern."""
    options = {"kafka.bootstrap.servers": "nowhere:1", "startingOffsets": "earliest", **given}
    return stream.StreamReader(parse_options(options, "stream"))


def latest(made: stream.StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """As Spark calls it: the start has been through JSON."""
    return made.latestOffset(json.loads(json.dumps(start)), made.getDefaultReadLimit())


def spans(end: dict[str, Any]) -> dict[int, tuple[int, int]]:
    return {each.partition: (span.start, span.end) for each, span in BatchPlan.from_json(end).spans.items()}


@pytest.mark.requirement("source/25")
def test_batches_meet_and_nothing_new_is_the_start_itself(brokers: Brokers) -> None:
    made = reader()
    first = latest(made, made.initialOffset())
    assert spans(first) == {0: (0, 10), 1: (0, 0)}
    assert latest(made, first) == first
    brokers.logs[tp(1)] = (0, 4)
    second = latest(made, first)
    assert spans(second) == {0: (10, 10), 1: (0, 4)}
    (only,) = made.partitions(first, second)
    assert isinstance(only, RangesPartition)
    assert [str(each) for each in only.ranges] == ["t-1 [0, 4)"]
    assert made.partitions(second, second) == []


@pytest.mark.requirement("source/24")
def test_where_latest_was_is_durable_with_an_empty_first_batch_whoever_asks_again(brokers: Brokers) -> None:
    """A reader that forgot it lost what came between: the initial offset is not logged and looked up again."""
    made = reader(startingOffsets="latest")
    first = latest(made, made.initialOffset())
    assert spans(first) == {0: (10, 10), 1: (0, 0)}
    brokers.logs[tp(0)] = (0, 25)
    again = reader(startingOffsets="latest")
    assert again.partitions(again.initialOffset(), first) == []
    assert spans(latest(again, first))[0] == (10, 25)


@pytest.mark.requirement("source/3", "source/24")
@pytest.mark.parametrize("restarts", [False, True])
def test_a_pattern_that_matched_nothing_at_first_misses_no_first_record(brokers: Brokers, restarts: bool) -> None:
    """The query has begun with that: "latest" is not looked up once more."""
    brokers.logs = {}
    made = named_reader(subscribePattern="t", startingOffsets="latest")
    first = latest(made, made.initialOffset())
    assert (first == made.initialOffset(), made.partitions(made.initialOffset(), first)) == (False, [])
    assert latest(made, first) == first, "no second batch of nothing"
    brokers.logs = {tp(0): (0, 7)}
    made = named_reader(subscribePattern="t", startingOffsets="latest") if restarts else made
    assert spans(second := latest(made, first)) == {0: (0, 7)}
    assert latest(made, second) == second


def test_a_batch_that_is_planned_again_is_the_same_whatever_has_come_since(brokers: Brokers) -> None:
    made = reader()
    first = latest(made, made.initialOffset())
    before = [each.ranges for each in cast(Any, made.partitions(made.initialOffset(), first))]
    brokers.logs = {tp(0): (8, 99)}
    again = reader()
    assert [each.ranges for each in cast(Any, again.partitions(again.initialOffset(), first))] == before


@pytest.mark.requirement("source/3")
def test_new_partitions_begin_at_their_first_record(brokers: Brokers) -> None:
    made = reader(startingOffsets="latest")
    first = latest(made, made.initialOffset())
    brokers.logs[tp(2)] = (0, 5)
    assert spans(latest(made, first)) == {0: (10, 10), 1: (0, 0), 2: (0, 5)}


@pytest.mark.requirement("source/11")
def test_a_limit_and_a_least_number(brokers: Brokers) -> None:
    made = reader(maxOffsetsPerTrigger="4")
    assert made.getDefaultReadLimit() == ReadMaxRows(4)
    first = latest(made, made.initialOffset())
    assert spans(first)[0] == (0, 4)
    # Trigger.Once reads everything.
    assert spans(made.latestOffset(first, ReadAllAvailable()))[0] == (4, 10)
    waiting = reader(minOffsetsPerTrigger="100")
    assert waiting.getDefaultReadLimit() == ReadMinRows(100)
    first = latest(waiting, waiting.initialOffset())
    brokers.logs[tp(0)] = (0, 20)
    assert latest(waiting, first) == first
    brokers.logs[tp(0)] = (0, 110)
    assert spans(latest(waiting, first))[0] == (10, 110)


def test_a_limit_of_bytes(brokers: Brokers) -> None:
    brokers.logs, brokers.weights = {tp(0): (0, 1_000), tp(1): (0, 10)}, {tp(0): 100, tp(1): 10_000}
    made = reader(maxBytesPerTrigger="20000")
    assert made.getDefaultReadLimit() == ReadMaxBytes(20_000)
    first = latest(made, made.initialOffset())
    assert spans(first) == {0: (0, 100), 1: (0, 1)}
    brokers.weights[tp(0)] = 1_000
    second = latest(made, first)
    assert spans(second)[0] == (100, 118)
    assert brokers.sampled[1:] == [{tp(0): Span(100, 1_000)}], "what was sampled of the other still counts"
    # Trigger.Once reads everything, and asks nobody.
    assert spans(made.latestOffset(second, ReadAllAvailable())) == {0: (118, 1_000), 1: (2, 10)}
    assert len(brokers.sampled) == 2


class GoneMeanwhile:
    """A consumer that is past one partition's markers when it hears that a topic of the others is gone."""

    def __init__(self, **_: object) -> None:
        self._polls = 0

    def poll(self, *, timeout: float) -> SimpleNamespace:
        self._polls += 1
        if self._polls > 1:
            raise UnknownTopicOrPartitionError("there is no t in the cluster")
        return SimpleNamespace(to_arrow=lambda columns: [])

    def position(self, partition: TopicPartition, *, timeout: float) -> int:
        return 0 if partition.topic == "t" else 5

    def assign(self, partitions: object) -> None: ...

    pause = assign

    def seek(self, partition: TopicPartition, offset: int) -> None: ...


def test_a_topic_that_is_gone_is_not_weighed_and_ends_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """With failOnDataLoss=false too, the query failed."""
    monkeypatch.setattr(sampling, "Consumer", GoneMeanwhile)
    options = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t,u", "maxBytesPerTrigger": "1"}
    sampler = sampling.Sampler(parse_options(options, "stream"))
    found = sampler.sample({tp(0): Span(0, 9), tp(0, "u"): Span(0, 5)})
    assert found == {tp(0, "u"): sample(0, 5, 0)}


class BrokenMeanwhile(GoneMeanwhile):
    """Its first polls raise these errors. Then it is past the markers of every partition."""

    errors: ClassVar[list[TransportError]] = []

    def poll(self, *, timeout: float) -> SimpleNamespace:
        if self.errors:
            raise self.errors.pop(0)
        return SimpleNamespace(to_arrow=lambda columns: [])

    def position(self, partition: TopicPartition, *, timeout: float) -> int:
        return 5


def test_an_outage_that_passes_while_records_are_weighed_ends_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """One response of no server ended it, though it could wait for two minutes."""
    monkeypatch.setattr(sampling, "Consumer", BrokenMeanwhile)
    options = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "maxBytesPerTrigger": "1"}
    broken, wrong = TransportError("refused"), NotKafkaError("it speaks HTTP")
    BrokenMeanwhile.errors = [broken, broken]
    made = sampling.Sampler(parse_options(options, "stream"))
    assert made.sample({tp(0): Span(0, 5)}) == {tp(0): sample(0, 5, 0)}
    BrokenMeanwhile.errors = [wrong]
    with pytest.raises(NotKafkaError):
        made.sample({tp(0): Span(0, 5)})
    BrokenMeanwhile.errors = [broken]
    clock = itertools.count(0, 100)
    monkeypatch.setattr(sampling, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.raises(KafkaTimeoutError, match="no record of t-0 came from offset 0 on within 60 s") as raised:
        sampling.Sampler(parse_options({**options, "kafkaConsumer.pollTimeoutMs": "60000"}, "stream")).sample(
            {tp(0): Span(0, 5)}
        )
    assert raised.value.__cause__ is broken


class Weighed(BrokenMeanwhile):
    """It passes the markers of `t` once it has no error left, and those of `u` never."""

    def position(self, partition: TopicPartition, *, timeout: float) -> int:
        return 5 if partition.topic == "t" else 0


def test_an_outage_that_was_over_is_not_why_records_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "Consumer", Weighed)
    Weighed.errors = [TransportError("refused")]
    monkeypatch.setattr(sampling, "time", SimpleNamespace(monotonic=itertools.count(0, 30).__next__))
    options = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t,u", "kafkaConsumer.pollTimeoutMs": "60000"}
    with pytest.raises(KafkaTimeoutError, match="no record of u-0 came") as raised:
        sampling.Sampler(parse_options(options, "stream")).sample({tp(0): Span(0, 5), tp(0, "u"): Span(0, 5)})
    assert raised.value.__cause__ is None


def test_a_record_whose_time_spark_cannot_hold_is_named() -> None:
    """Each task ended by an error of Arrow's that named nothing. Some producers write nanoseconds."""
    times = pa.array([None, 2**63 // 1000, 1_700_000_000_000_000_000], pa.timestamp("ms", tz="UTC"))
    made = pa.record_batch({"topic": ["t"] * 3, "partition": [7] * 3, "offset": [4, 5, 6], "timestamp": times})
    with pytest.raises(ConfigError, match=r"\(topic t, partition 7, offset 6\) is 17\d{17} ms .*the option columns"):
        in_spark_schema(made, ("timestamp",))
    assert in_spark_schema(made.slice(0, 2), ("offset", "timestamp")).num_rows == 2
    with pytest.raises(
        ConfigError, match=r"\(its place is not known: none of topic, partition, offset is read\) is 17"
    ):
        in_spark_schema(made.select(["timestamp"]), ("timestamp",))


def test_of_two_limits_the_smaller_one_counts(brokers: Brokers) -> None:
    brokers.logs, brokers.weights = {tp(0): (0, 1_000), tp(1): (0, 1_000)}, {tp(0): 1, tp(1): 1_000}
    made = reader(maxBytesPerTrigger="100100", maxOffsetsPerTrigger="1600")
    assert made.getDefaultReadLimit() == ReadMaxRows(1_600)
    assert spans(latest(made, made.initialOffset())) == {0: (0, 100), 1: (0, 100)}
    made = reader(maxBytesPerTrigger="100100", maxOffsetsPerTrigger="16")
    assert spans(latest(made, made.initialOffset())) == {0: (0, 8), 1: (0, 8)}
    made = reader(maxBytesPerTrigger="100100", minOffsetsPerTrigger="16")
    assert made.getDefaultReadLimit() == ReadMinRows(16)
    assert spans(latest(made, made.initialOffset())) == {0: (0, 100), 1: (0, 100)}


def test_available_now_ends_at_what_there_was_in_batches_of_bytes_too(brokers: Brokers) -> None:
    brokers.logs, brokers.weights = {tp(0): (0, 15)}, {tp(0): 7}
    made = reader(maxBytesPerTrigger="35")
    made.prepareForTriggerAvailableNow()
    ends, start = [], made.initialOffset()
    while (end := latest(made, start)) != start:
        ends.append(spans(end)[0])
        start = end
    assert ends == [(0, 5), (5, 10), (10, 15)]


@pytest.mark.requirement("source/12")
def test_available_now_ends_at_what_there_was_in_batches_of_the_limit(brokers: Brokers) -> None:
    """Vector 12: 15 records, 5 at a time, are 3 batches. What comes later, and new partitions, are for the next run."""
    brokers.logs = {tp(0): (0, 15)}
    made = reader(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5")
    made.prepareForTriggerAvailableNow()
    brokers.logs = {tp(0): (0, 100), tp(1): (0, 9)}
    ends, start = [], made.initialOffset()
    while (end := latest(made, start)) != start:
        ends.append(spans(end)[0])
        start = end
    assert ends == [(0, 5), (5, 10), (10, 15)]


@pytest.mark.parametrize("start", ["latest", "the offset of the newest record"])
def test_available_now_ends_where_it_begins_if_that_is_behind_its_target(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    """Records come between two requests: for what there is, and for where to begin."""
    made = reader(startingOffsets="latest")
    made.prepareForTriggerAvailableNow()
    brokers.logs[tp(0)] = (0, 13)
    begins = 13
    if start != "latest":
        begins = 12
        monkeypatch.setattr(brokers, "resolve", lambda *_, **__: {tp(0): begins, tp(1): 0})
    first = latest(made, made.initialOffset())
    assert spans(first) == {0: (begins, begins), 1: (0, 0)}
    brokers.logs[tp(0)] = (0, 15)
    assert latest(made, first) == first, "it is over"


def test_a_start_beyond_the_end_of_the_log_is_told_with_available_now_too(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reader()
    made.prepareForTriggerAvailableNow()
    monkeypatch.setattr(brokers, "resolve", lambda *_, **__: {tp(0): 50, tp(1): 0})
    with pytest.raises(OffsetsGoneError, match="the log of t-0 ends at 10, before the offset 50"):
        latest(made, made.initialOffset())


@pytest.mark.requirement("source/13", "source/14")
@pytest.mark.parametrize("change", ["lost", "shrunk"])
def test_available_now_fails_where_its_target_cannot_be_reached(brokers: Brokers, change: str) -> None:
    """Vectors 13 and 14."""
    made = reader()
    made.prepareForTriggerAvailableNow()
    brokers.logs = {tp(1): (0, 0)} if change == "lost" else {tp(0): (0, 5), tp(1): (0, 0)}
    with pytest.raises(OffsetsGoneError, match="t-0"):
        latest(made, made.initialOffset())


LOSSES: list[tuple[str, dict[TopicPartition, tuple[int, int]], str, dict[int, tuple[int, int]]]] = [
    ("partition t-0 is not there", {tp(1): (0, 3)}, "one", {1: (0, 3)}),
    ("topic t was deleted and made again", {tp(0): (0, 3), tp(1): (0, 1)}, "two", {0: (0, 3), 1: (0, 1)}),
    ("the log of t-0 ends at 5", {tp(0): (0, 5), tp(1): (0, 3)}, "one", {0: (10, 10), 1: (0, 3)}),
    ("t-2 is new, and its log begins at 4", {tp(0): (0, 10), tp(1): (0, 0), tp(2): (4, 6)}, "one",
     {0: (10, 10), 1: (0, 0), 2: (4, 6)}),
]  # fmt: skip


@pytest.mark.requirement("source/22")
@pytest.mark.parametrize(("message", "logs", "topic_id", "left"), LOSSES)
def test_data_loss_is_an_error_or_what_is_left_is_read(
    brokers: Brokers,
    message: str,
    logs: dict[TopicPartition, tuple[int, int]],
    topic_id: str,
    left: dict[int, tuple[int, int]],
) -> None:
    strict, lenient = reader(), reader(failOnDataLoss="false")
    first = latest(strict, strict.initialOffset())
    brokers.logs, brokers.topic_id = logs, topic_id
    with pytest.raises(OffsetsGoneError, match=message):
        latest(strict, first)
    assert spans(latest(lenient, first)) == left


BEHIND: dict[str, Found] = {
    "no topic": {},
    "a partition less": {tp(0): "one"},
    "the id before": {tp(0): "zero", tp(1): "zero"},
}


@pytest.mark.requirement("source/22", "source/29")
@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("says", BEHIND)
def test_what_a_broker_says_that_is_behind_is_no_data_loss(brokers: Brokers, says: str, now: bool) -> None:
    """One such response failed the query. With failOnDataLoss=false the partition was new in the next batch, and so was
    read twice."""
    made = reader()
    first = latest(made, made.initialOffset())
    brokers.logs = {tp(0): (0, 12), tp(1): (0, 3)}
    if now:
        made.prepareForTriggerAvailableNow()
    brokers.behind = [BEHIND[says]] * 3
    assert spans(latest(made, first)) == {0: (10, 12), 1: (0, 3)}
    assert brokers.behind == []


@pytest.mark.parametrize("says", BEHIND)
def test_a_broker_that_is_behind_takes_nothing_from_what_is_available_now(brokers: Brokers, says: str) -> None:
    """It was asked for the target, and did not know a partition of the last batch. A run of that query left it out, and
    said nothing. Which partition is new is seen once, at the run's first batch."""
    made = reader(maxOffsetsPerTrigger="2")
    first = latest(made, made.initialOffset())
    made = reader()
    # Without the topic: for longer than it is looked for.
    brokers.behind = [BEHIND[says]] * (1 if BEHIND[says] else 60)
    made.prepareForTriggerAvailableNow()
    brokers.logs = {tp(0): (0, 12), tp(1): (0, 3), tp(2): (0, 5)}
    second = latest(made, first)
    known = {each.partition for each in BEHIND[says]}
    assert spans(second) == {0: (2, 10 if 0 in known else 12), 1: (0, 0 if 1 in known else 3), 2: (0, 0)}
    brokers.logs = {tp(0): (0, 15), tp(1): (0, 6), tp(2): (0, 7)}
    assert latest(made, second) == second, "it is over"


@pytest.mark.parametrize("says", ["no topic", "a partition less"])
def test_a_target_that_a_broker_does_not_know_yet_is_no_data_loss(brokers: Brokers, says: str) -> None:
    """A new query failed at once where the topic was not known yet."""
    made = reader()
    made.prepareForTriggerAvailableNow()
    brokers.behind = [BEHIND[says]] * 3
    assert spans(latest(made, made.initialOffset())) == {0: (0, 10), 1: (0, 0)}


@pytest.mark.parametrize("named", [{"subscribe": "t,late"}, {"assign": '{"t":[0,1],"late":[0]}'}])
def test_a_target_that_lacks_a_named_topic_at_first_waits_for_it(brokers: Brokers, named: dict[str, str]) -> None:
    """The broker that was asked for the target was behind. A new query read nothing of the topic, and ended well."""
    behind, brokers.logs[tp(0, "late")] = dict.fromkeys(brokers.logs, "one"), (0, 7)
    brokers.behind = [behind]
    made = named_reader(**named)
    made.prepareForTriggerAvailableNow()
    first = latest(made, made.initialOffset())
    assert BatchPlan.from_json(first).spans == {tp(0): Span(0, 10), tp(1): Span(0, 0), tp(0, "late"): Span(0, 7)}


def test_a_target_that_is_gone_or_that_was_never_there_fails_a_new_query(brokers: Brokers, clock: Clock) -> None:
    """What the target has is looked for again. What it lacks was looked for when it was made."""
    brokers.logs |= {tp(0, "u"): (0, 1)}
    made, before = reader(subscribe="t,u,tpyo"), clock.at
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no tpyo in"):
        latest(made, made.initialOffset())
    assert clock.at == before
    made.prepareForTriggerAvailableNow()
    assert clock.at >= before + MISSING_GRACE
    before = clock.at
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no tpyo in"):
        latest(made, made.initialOffset())
    assert clock.at == before
    del brokers.logs[tp(0, "u")]
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no tpyo, u in"):
        latest(made, made.initialOffset())
    assert clock.at > before + MISSING_GRACE


@pytest.mark.parametrize(
    "later", [{}, {tp(0): "two", tp(1): "two"}, {tp(0): "one"}], ids=["gone", "made again", "a partition is gone"]
)
def test_what_is_gone_is_looked_for_once_though_nothing_else_is_there_to_read(
    brokers: Brokers, clock: Clock, caplog: pytest.LogCaptureFixture, later: Found
) -> None:
    """Such a query keeps its last batch, and would wait at each request."""
    made, asked = reader(failOnDataLoss="false"), []
    first = latest(made, made.initialOffset())
    brokers.logs = dict.fromkeys(later, (0, 0))
    brokers.topic_id = later.get(tp(0), "one")
    for _ in range(3):
        before = clock.at
        assert latest(made, first) == first
        asked.append(clock.at - before > MISSING_GRACE)
    assert asked == [True, False, False]
    assert len([each for each in caplog.messages if "some data may be lost" in each]) <= 2


@pytest.mark.requirement("source/22")
@pytest.mark.parametrize("now", [False, True])
def test_a_log_that_ends_before_the_position_is_told_once_while_it_grows(
    brokers: Brokers, caplog: pytest.LogCaptureFixture, now: bool
) -> None:
    """Each batch warned anew, and remembered that."""
    made = reader(failOnDataLoss="false")
    first = latest(made, made.initialOffset())
    if now:
        made.prepareForTriggerAvailableNow()
    for end in (3, 4, 5):
        brokers.logs[tp(0)] = (0, end)
        latest(made, first)
    ends = [each for each in caplog.messages if "the log of t-0 ends at" in each]
    assert [each.split(", before")[0] for each in ends] == ["the log of t-0 ends at 3"] * (1 + now)
    assert len(made._loss._told) == 1 + now


U0 = tp(0, "u")


def hidden_for_a_while(brokers: Brokers) -> dict[str, Any]:
    """The end of a batch that was planned after five records of u, while nobody told of that topic."""
    made = named_reader(subscribePattern=".*", failOnDataLoss="false")
    brokers.logs[U0] = (0, 5)
    first = latest(made, made.initialOffset())
    brokers.logs = {tp(0): (0, 12), tp(1): (0, 0)}
    second = latest(made, first)
    assert BatchPlan.from_json(second).spans == {tp(0): Span(10, 12), tp(1): Span(0, 0)}
    brokers.logs = {tp(0): (0, 13), tp(1): (0, 0)}
    return second


@pytest.mark.requirement("source/22", "source/29")
def test_a_partition_that_is_there_again_goes_on_where_it_was(brokers: Brokers) -> None:
    """It was read again from its first record, as after a right to describe it was taken away and given back. With
    failOnDataLoss that loss is not told of again."""
    third = latest(reader(), hidden_for_a_while(brokers))
    assert BatchPlan.from_json(third).spans == {tp(0): Span(12, 13), tp(1): Span(0, 0)}
    brokers.logs |= {U0: (0, 7)}
    assert BatchPlan.from_json(latest(reader(), third)) == BatchPlan(
        {tp(0): Span(13, 13), tp(1): Span(0, 0), U0: Span(5, 7)}, {"t": "one", "u": "one"}
    )


@pytest.mark.requirement("source/22")
@pytest.mark.parametrize(
    ("wrong", "span"), [(["two"], (5, 7)), (["two"] * 100, (0, 7))], ids=["for a moment", "always"]
)
def test_what_is_there_again_with_another_id_is_new(brokers: Brokers, wrong: list[str], span: tuple[int, int]) -> None:
    """A broker may be behind, and still have the id of before."""
    second = hidden_for_a_while(brokers)
    brokers.logs |= {U0: (0, 7)}
    brokers.behind = [{tp(0): "one", tp(1): "one", U0: each} for each in wrong]
    assert BatchPlan.from_json(latest(reader(), second)).spans[U0] == Span(*span)


@pytest.mark.requirement("source/22", "source/29")
def test_a_broker_that_names_the_id_of_before_for_long_has_nothing_read_twice(brokers: Brokers) -> None:
    """What was read of a topic that was made again was new once more, when the broker knew of that at last."""
    made = reader(failOnDataLoss="false")
    first = latest(made, made.initialOffset())
    brokers.topic_id, brokers.logs = "two", {tp(0): (0, 4), tp(1): (0, 1)}
    second = latest(made, first)
    assert spans(second) == {0: (0, 4), 1: (0, 1)}
    brokers.behind = [dict.fromkeys(brokers.logs, "one")] * 100
    third = latest(made, second)
    assert BatchPlan.from_json(third).topic_ids == {"t": "one"}, "of that a task reads nothing"
    brokers.behind, brokers.logs = [], {tp(0): (0, 6), tp(1): (0, 1)}
    assert spans(latest(made, third)) == {0: (4, 6), 1: (1, 1)}


def test_of_what_is_gone_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the checkpoint would grow with each topic that there ever was."""
    monkeypatch.setattr(planning, "_REMEMBERED", 1)
    last, remembered = BatchPlan(), []
    for names in ("ab", "c", "", "d", ""):
        found = {tp(0, name): "one" for name in names}
        gone = planning.now_gone(last, found)
        remembered.append("".join(each.topic for each in gone))
        last = BatchPlan(dict.fromkeys(found, Span(0, 1)), dict.fromkeys(names, "one"), gone=gone)
    assert remembered == ["", "ab", "bc", "bc", "cd"]


def test_what_a_batch_forgets_is_told_once_it_is_made(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing is to be read, no batch is made, and the checkpoint has all of it still."""
    monkeypatch.setattr(planning, "_REMEMBERED", 1)
    made, told = named_reader(subscribePattern=".*", failOnDataLoss="false"), list[str]()

    def planned(last: dict[str, Any], end: int, names: str) -> dict[str, Any]:
        brokers.logs = {tp(0): (0, end)} | {tp(0, name): (0, 1) for name in names}
        caplog.clear()
        after = latest(made, last)
        told.extend(each for each in caplog.messages if each.startswith("forgotten"))
        return after

    first = planned(made.initialOffset(), 1, "abcdefgh")
    third = planned(planned(first, 2, ""), 3, "z")
    assert planned(third, 3, "h") == third, "h is there again, z is gone"
    assert not told
    planned(planned(third, 4, "h"), 5, "h")
    assert told == [
        "forgotten, and read from the first record if they come back, are a-0, b-0, c-0, d-0, e-0 and 1 more"
    ]


class SilentLeaders(Brokers):
    """No leader says where the log of a partition ends that is not there any more, and none says so in no time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def earliest(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return super().earliest(self._led(partitions, timeout))

    def latest(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return super().latest(self._led(partitions, timeout))

    def _led(self, partitions: Iterable[TopicPartition], timeout: float | None) -> list[TopicPartition]:
        wanted = list(partitions)
        if timeout == 0.0 or not all(each in self.logs for each in wanted):
            self._clock.at += 60.0 if timeout is None else timeout
            raise KafkaTimeoutError("no leader")
        return wanted


@pytest.mark.parametrize("total", [{}, {"kafka.default.api.timeout.ms": "5000"}], ids=["a minute", "5 s"])
@pytest.mark.parametrize("lenient", [True, False])
def test_a_topic_that_is_deleted_after_the_look_at_topics_is_data_loss(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, lenient: bool, total: dict[str, str]
) -> None:
    """A warning or an error, as in all other cases; the others go on. It ended the query, and named a time-out."""
    played = SilentLeaders(clock)
    monkeypatch.setattr(stream, "Cluster", lambda options: played)
    played.logs = {tp(0): (0, 10), tp(0, "gone"): (0, 5)}
    made = named_reader(subscribe="t,gone", **total, **({"failOnDataLoss": "false"} if lenient else {}))
    first = latest(made, made.initialOffset())
    played.behind = [dict.fromkeys(played.logs, played.topic_id)]
    played.logs = {tp(0): (0, 12)}
    if lenient:
        assert spans(latest(made, first)) == {0: (10, 12)}
    else:
        with pytest.raises(OffsetsGoneError, match="gone-0 is not there any more"):
            latest(made, first)
    assert clock.at < 120.0


def test_where_no_leader_says_where_a_log_ends_the_query_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    played = SilentLeaders(clock)
    monkeypatch.setattr(stream, "Cluster", lambda options: played)
    played.logs = {tp(0): (0, 10)}
    made = named_reader(subscribe="t", **{"kafka.default.api.timeout.ms": "20000"})
    first = latest(made, made.initialOffset())
    played.behind = [{tp(0): "one", tp(1): "one"}] * 100
    with pytest.raises(KafkaTimeoutError):
        latest(made, first)
    assert clock.at == 120.0


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_topic_that_is_deleted_after_the_first_look_of_all_ends_no_query(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, start: str, *, now: bool
) -> None:
    """Where it begins was asked for without a time."""
    played = SilentLeaders(clock)
    monkeypatch.setattr(stream, "Cluster", lambda options: played)
    played.logs = {tp(0): (3, 10)}
    made = named_reader(subscribePattern=".*", startingOffsets=start)
    if now:
        made.prepareForTriggerAvailableNow()
    played.behind = [{tp(0): "one", tp(0, "gone"): "one"}]
    assert spans(latest(made, made.initialOffset())) == {0: (3 if start == "earliest" else 10, 10)}


class Asked:
    """A consumer that notes for how long it is asked. Its group has committed nothing, and no record is as late."""

    def __init__(self) -> None:
        self.timeouts: list[float | None] = []

    def beginning_offsets(
        self, wanted: Iterable[TopicPartition], *, timeout: float | None
    ) -> dict[TopicPartition, int]:
        self.timeouts.append(timeout)
        return dict.fromkeys(wanted, 5)

    end_offsets = beginning_offsets

    def committed(self, wanted: Iterable[TopicPartition], *, timeout: float | None) -> dict[TopicPartition, None]:
        self.timeouts.append(timeout)
        return dict.fromkeys(wanted)

    offsets_for_times = committed


@pytest.mark.parametrize(
    "bound",
    [
        Bound(every=EARLIEST),
        Bound(every=LATEST),
        Bound(offsets=((tp(0), EARLIEST), (tp(1), LATEST))),
        Bound(timestamp=7, unmatched="latest"),
        Bound(timestamps=((tp(0), 7), (tp(1), 8)), unmatched="latest"),
        Bound(group="g"),
    ],
    ids=["earliest", "latest", "each", "a time", "times", "a group"],
)
def test_each_request_for_where_a_query_begins_has_the_time_that_was_given(
    monkeypatch: pytest.MonkeyPatch, bound: Bound
) -> None:
    asked = Asked()
    monkeypatch.setattr(cluster, "Consumer", lambda **_: asked)
    made = cluster.Cluster(parse_options({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}, "stream"))
    assert made.resolve(bound, [tp(0), tp(1)], name="startingOffsets", timeout=1.5) == {tp(0): 5, tp(1): 5}
    assert set(asked.timeouts) == {1.5}


class Listing:
    """A consumer of topics that have an id each, which notes what it is asked of them."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def list_topics(self, names: Iterable[str]) -> dict[str, list[PartitionInfo]]:
        self.asked.append(list(names))
        there = [name for name in self.asked[-1] if name != "gone"]
        return {
            name: [PartitionInfo(topic=name, partition=each, leader=None, topic_id=UUID(int=1)) for each in range(2)]
            for name in there
        }


@pytest.mark.parametrize("option", ["subscribe", "assign"])
def test_a_look_at_named_topics_is_one_request(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """Each topic was one: a query of a hundred waited for a hundred responses at each of its looks."""
    names, asked = [f"t{number}" for number in range(100)] + ["gone"], Listing()
    monkeypatch.setattr(cluster, "Consumer", lambda **_: asked)
    topics = (
        Topics(subscribe=tuple(names)) if option == "subscribe" else Topics(assign=tuple(tp(1, name) for name in names))
    )
    made = cluster.Cluster(parse_options({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}, "stream"))
    numbers = (0, 1) if option == "subscribe" else (1,)
    assert made.partitions(topics) == {tp(each, name): str(UUID(int=1)) for name in names[:-1] for each in numbers}
    assert [sorted(each) for each in asked.asked] == [sorted(names)]


class SlowBroker(Brokers):
    """It takes 16 s for each response, in order; also for a request that nobody waits for any more."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._free_at = clock.at

    def latest(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        until = self._clock.at + (60.0 if timeout is None else timeout)
        self._free_at = max(self._free_at, self._clock.at) + 16.0
        self._clock.at = min(self._free_at, until)
        if self._free_at > until:
            raise KafkaTimeoutError("no response yet")
        return super().latest(partitions)


def test_a_broker_that_takes_long_for_each_response_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """It had to respond to each look that was too short, before it came to one that waited."""
    played = SlowBroker(clock)
    monkeypatch.setattr(stream, "Cluster", lambda options: played)
    played.logs = {tp(0): (0, 10)}
    made = reader()
    assert spans(latest(made, made.initialOffset())) == {0: (0, 10)}


class BusyBroker(Brokers):
    """It takes 2 s for each response."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def latest(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        seconds = 60.0 if timeout is None else timeout
        self._clock.at += min(2.0, seconds)
        if seconds < 2.0:
            raise KafkaTimeoutError("no response yet")
        return super().latest(partitions)


@pytest.mark.parametrize("total", [5, 6, 7])
@pytest.mark.parametrize("now", [False, True])
def test_what_is_looked_for_takes_nothing_from_the_time_that_a_broker_has(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, now: bool, total: int
) -> None:
    """The five seconds of that look were of the user's time: of 6 s a broker had 1.5 s, and the query failed."""
    played = BusyBroker(clock)
    monkeypatch.setattr(stream, "Cluster", lambda options: played)
    played.logs = {tp(0): (0, 10), tp(0, "gone"): (0, 5)}
    options = {"kafka.default.api.timeout.ms": f"{total}000", "failOnDataLoss": "false"}
    first = latest(made := named_reader(subscribe="t,gone", **options), BatchPlan().to_json())
    played.logs = {tp(0): (0, 12)}
    if now:
        made.prepareForTriggerAvailableNow()
    assert spans(latest(made, first)) == {0: (10, 12)}


class ChangingBrokers(Brokers):
    """Topics come with records, grow, are deleted, and come again with another id. One of the brokers is behind."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[str, str] = {}
        self.hidden: set[str] = set()
        self._made = 0
        self._before: list[Found] = [{}]

    def partitions(self, topics: Topics) -> Found:
        found = self.behind.pop() if self.behind else self._now()
        # Of what is gone since a broker that is behind would name a leader, which would not respond.
        return {each: topic_id for each, topic_id in found.items() if each in self.logs and self.shows(each)}

    def hide(self, topic: str) -> None:
        """Nobody tells of it, however often it is looked for, until this is called again."""
        self.hidden ^= {topic}

    def shows(self, partition: TopicPartition) -> bool:
        return partition.topic not in self.hidden

    def _now(self) -> Found:
        return {each: self.ids[each.topic] for each in self.logs}

    def lag(self, changes: int) -> None:
        """The next response is that of so many changes ago."""
        self.behind = [self._before[max(0, len(self._before) - changes)]]

    def write(self, topic: str, partition: int, count: int) -> None:
        self._before.append(self._now())
        if topic not in self.ids:
            self._made += 1
            self.ids[topic] = f"id-{self._made}"
        for each in range(partition + 1):
            begin, end = self.logs.get(tp(each, topic), (0, 0))
            self.logs[tp(each, topic)] = (begin, end + count * (each == partition))

    def delete(self, topic: str) -> None:
        self._before.append(self._now())
        self.ids.pop(topic, None)
        self.logs = {each: log for each, log in self.logs.items() if each.topic != topic}

    def records(self) -> set[tuple[str, int, int]]:
        return {
            (self.ids[each.topic], each.partition, offset)
            for each, (_, end) in self.logs.items()
            for offset in range(end)
        }

    def records_of(self, end: dict[str, Any]) -> set[tuple[str, int, int]]:
        """Of the partitions that are in this batch."""
        known = BatchPlan.from_json(end)
        partitions = {(known.topic_ids[each.topic], each.partition) for each in known.spans if self.shows(each)}
        return {each for each in self.records() if each[:2] in partitions}


def drawn_reader(most: str, *, now: bool = False) -> stream.StreamReader:
    limit = {"maxOffsetsPerTrigger": most} if most else {}
    made = named_reader(subscribePattern="t.", failOnDataLoss="false", **limit)
    if now:
        made.prepareForTriggerAvailableNow()
    return made


MOVES = st.tuples(
    st.sampled_from(["write", "write", "delete", "batch", "batch", "lag", "hide", "restart", "now"]), st.integers(0, 2)
)
MADE_AGAIN = [(("write", 0), 0, 5), (("batch", 0), 0, 1), (("delete", 0), 0, 1), (("write", 0), 0, 3)]
LEFT_OUT = [(("write", 0), 0, 1), (("batch", 0), 0, 1), (("write", 0), 0, 1), (("lag", 0), 0, 2), (("now", 0), 0, 1)]
HIDDEN = [(("write", 0), 0, 5), (("batch", 0), 0, 1), (("hide", 0), 0, 1), (("write", 1), 0, 1), (("batch", 0), 0, 1)]
LATE = [(("write", 1), 0, 1), (("write", 0), 0, 5), (("batch", 0), 0, 1), (("lag", 0), 0, 1), (("write", 1), 0, 1)]


@pytest.mark.requirement("source/22", "source/29")
@example(moves=MADE_AGAIN, most="")
@example(moves=[*MADE_AGAIN, (("batch", 0), 0, 1), (("lag", 0), 0, 2), (("batch", 0), 0, 1)], most="")
@example(moves=[*LATE, (("batch", 0), 0, 1)], most="")
@example(moves=LEFT_OUT, most="")
@example(moves=HIDDEN, most="")
@given(st.lists(st.tuples(MOVES, st.integers(0, 3), st.integers(1, 9)), max_size=40), st.sampled_from(["", "1", "7"]))
def test_whatever_topics_do_and_whoever_restarts_each_record_is_in_one_batch(
    moves: list[tuple[tuple[str, int], int, int]], most: str
) -> None:
    brokers = ChangingBrokers()
    read: Counter[tuple[str, int, int]] = Counter()
    written: set[tuple[str, int, int]] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "Cluster", lambda options: brokers)
        patch.setattr(stream, "time", Clock())
        made = drawn_reader(most)
        before, at = made.initialOffset(), made.initialOffset()

        def planned() -> list[OutputRange]:
            return [each for task in made.partitions(before, at) for each in cast(RangesPartition, task).ranges]

        def batch() -> bool:
            nonlocal before, at
            before, at = at, latest(made, at)
            ranges = planned()
            # A task reads nothing of a topic with another id than it was told (`_range_reader.py`).
            there = [each for each in ranges if each.topic_id == brokers.ids.get(each.topic)]
            read.update((each.topic_id, each.partition, n) for each in there for n in range(each.start, each.end))
            return bool(ranges)

        for (move, number), partition, count in moves:
            match move:
                case "write":
                    brokers.write(f"t{number}", partition, count)
                    written |= brokers.records()
                case "delete" | "hide":
                    getattr(brokers, move)(f"t{number}")
                case "batch":
                    batch()
                case "lag":
                    brokers.lag(count)
                case "restart":
                    last = planned()
                    made = drawn_reader(most)
                    assert planned() == last
                case "now":
                    due, made = brokers.records_of(at), drawn_reader(most, now=True)
                    while batch():
                        pass
                    assert due <= set(read)
                    made = drawn_reader(most)
        brokers.behind, brokers.hidden = [], set()
        while batch():
            pass
    assert set(read.values()) <= {1}
    assert brokers.records() <= set(read) <= written


def test_the_group_hears_of_a_batch_when_it_is_committed_and_stops_no_query(brokers: Brokers) -> None:
    made = reader(commitOffsetsToGroup="lag")
    first = latest(made, made.initialOffset())
    assert brokers.committed == []
    latest(made, first)
    latest(made, first)
    assert brokers.committed == [("lag", {tp(0): 10, tp(1): 0})]


def test_a_group_that_cannot_be_told_is_left_alone_for_half_a_minute(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each batch waited a minute for a coordinator that was away; a group with members made two warnings a second."""
    clock, tries = [100.0], []
    monkeypatch.setattr("instride.spark._data_source.stream.time.monotonic", lambda: clock[0])
    made = reader(commitOffsetsToGroup="lag")
    first = latest(made, made.initialOffset())

    def fail(group: str, offsets: Mapping[TopicPartition, int]) -> None:
        tries.append(clock[0])
        raise KafkaTimeoutError("no coordinator")

    with monkeypatch.context() as broken:
        broken.setattr(brokers, "commit", fail)
        for _ in range(61):
            assert latest(made, first) == first
            clock[0] += 1.0
    assert tries == [100.0, 101.0, 131.0]
    assert [each.message.partition(" was not told")[0] for each in caplog.records] == [
        "the group lag (commitOffsetsToGroup)"
    ] * 2
    assert clock[0] == 161.0
    latest(made, first)
    assert brokers.committed == [("lag", {tp(0): 10, tp(1): 0})]


@pytest.mark.parametrize("fails", [True, False])
def test_available_now_goes_on_without_a_topic_that_was_deleted_if_it_may(brokers: Brokers, *, fails: bool) -> None:
    """As the same query does without it; a new query is refused."""
    brokers.logs = {tp(0): (0, 10), tp(0, "gone"): (0, 5)}
    options = {"subscribe": "t,gone", "failOnDataLoss": str(fails).lower()}
    first = latest(made := reader(**options), made.initialOffset())
    brokers.logs = {tp(0): (0, 12)}
    made = reader(**options)
    made.prepareForTriggerAvailableNow()
    if fails:
        with pytest.raises(OffsetsGoneError, match="gone-0 is not there any more"):
            latest(made, first)
    else:
        assert spans(latest(made, first)) == {0: (10, 12)}


def test_a_named_topic_that_was_never_there_is_told_once(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    first = latest(made := reader(subscribe="t"), made.initialOffset())
    made = reader(subscribe="t,tpyo")
    for _ in range(3):
        latest(made, first)
    assert [each.message for each in caplog.records] == [
        "there is no tpyo in the cluster: the query reads it once it is there"
    ]


@pytest.mark.parametrize(
    ("named", "missing"),
    [({"subscribe": "t,tpyo"}, "tpyo"), ({"assign": '{"t":[0],"tpyo":[3]}'}, "tpyo-3")],
    ids=["subscribe", "assign"],
)
def test_what_was_never_there_fails_available_now_unless_it_may_have_been_deleted(
    brokers: Brokers, caplog: pytest.LogCaptureFixture, named: dict[str, str], missing: str
) -> None:
    """A scheduled run with a mistyped partition ended well and said nothing."""
    first = latest(made := reader(subscribe="t"), made.initialOffset())
    for may, more in ((False, {}), (True, {"failOnDataLoss": "false"})):
        made = named_reader(**named, **more)
        made.prepareForTriggerAvailableNow()
        if may:
            latest(made, first)
        else:
            with pytest.raises(UnknownTopicOrPartitionError, match=f"there is no {missing} in"):
                latest(made, first)
    assert [each.message.partition(" in")[0] for each in caplog.records] == [f"there is no {missing}"]


def test_available_now_tells_of_a_group_at_once(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    """It may have one batch in each of its processes: of a second failure it would never know."""
    first = latest(made := reader(), made.initialOffset())
    made = reader(commitOffsetsToGroup="lag")
    made.prepareForTriggerAvailableNow()
    brokers.error = KafkaTimeoutError("no coordinator")
    latest(made, first)
    assert [each.message.partition(" was not told")[0] for each in caplog.records] == [
        "the group lag (commitOffsetsToGroup)"
    ]


def test_the_newest_offsets_are_reported(brokers: Brokers) -> None:
    made = reader(maxOffsetsPerTrigger="1")
    assert made.reportLatestOffset() is None
    latest(made, made.initialOffset())
    assert spans(cast(Any, made.reportLatestOffset()))[0] == (0, 10)


@pytest.mark.requirement("source/27")
def test_a_listener_hears_how_far_each_partition_is_behind(brokers: Brokers) -> None:
    made = reader(maxOffsetsPerTrigger="4")
    end = latest(made, made.initialOffset())
    ours = SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(made.reportLatestOffset()))
    others = [
        SimpleNamespace(endOffset=text, latestOffset=text)
        for text in (None, "17", "{}", '{"version": 1, "topics": []}')
    ]
    told: list[Any] = []
    listener = OffsetsBehindListener(lambda name, behind: told.append((name, dict(behind))))
    for name, sources in (("q", [*others, ours]), (None, [ours]), ("rate", others)):
        progress = SimpleNamespace(name=name, id=7, sources=sources)
        listener.onQueryProgress(cast(Any, SimpleNamespace(progress=progress)))
    assert told == [("q", {tp(0): 6, tp(1): 0}), ("7", {tp(0): 6, tp(1): 0})]


def test_of_two_sources_of_one_topic_the_one_that_is_farther_behind_is_told() -> None:
    """The last of them was told: "nothing behind", while the other stood still."""

    def source(end: int, latest: int) -> SimpleNamespace:
        first, last = (
            json.dumps({"version": 1, "topics": {"t": {"id": "", "partitions": {"0": [0, at]}}}})
            for at in (end, latest)
        )
        return SimpleNamespace(endOffset=first, latestOffset=last)

    told: list[Any] = []
    listener = OffsetsBehindListener(lambda name, behind: told.append(dict(behind)))
    for sources in ([source(10, 1_000), source(50, 50)], [source(50, 50), source(10, 1_000)]):
        progress = SimpleNamespace(name="q", id=1, sources=sources)
        listener.onQueryProgress(cast(Any, SimpleNamespace(progress=progress)))
    assert told == [{tp(0): 990}] * 2


@pytest.mark.parametrize(
    ("raised", "ends_by"),
    [(WrongTopicError("of another cluster"), WrongTopicError), (StopIteration(), RuntimeError)],
    ids=["as data loss", "as an end"],
)
def test_no_error_of_a_fused_function_ends_a_range_in_silence(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, ends_by: type[Exception]
) -> None:
    """With failOnDataLoss=false the rest of the range was passed over."""
    batches = [pa.record_batch({"offset": [offset]}) for offset in range(3)]
    forgotten: list[ReaderSettings] = []
    monkeypatch.setattr(reading, "reader_for", lambda *_: SimpleNamespace(read=lambda *_: iter(batches)))
    monkeypatch.setattr(reading, "forget", forgotten.append)
    monkeypatch.setattr(reading, "in_spark_schema", lambda made, _: made)

    def results(made: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if made["offset"][0].as_py() == 1:
            raise raised
        yield made

    settings = ReaderSettings(bootstrap_servers="nowhere:1", fail_on_data_loss=False)
    transform = cast(Any, SimpleNamespace(results=results))
    task = TaskReader(settings=settings, columns=("offset",), transform=transform)
    given = task.read(RangesPartition((OutputRange(topic="t", partition=0, start=0, end=3),)))
    assert next(given).num_rows == 1
    with pytest.raises(ends_by):
        next(given)
    assert forgotten == [settings]


def test_the_fused_form_refuses_a_field_that_its_schema_lacks() -> None:
    def noted(_: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"a": [[{"x": 7, "note": "important"}]]})

    below = StructType().add("x", LongType())
    schema = StructType().add("a", ArrayType(below))
    transform = Transform(pickle_function(noted), schema.json())
    with pytest.raises(ValueError, match=r"there is no field a\.element\.note to take what was returned"):
        list(transform.results(pa.record_batch({"offset": [0]})))
    below.add("note", StringType()).add("y", LongType())
    (made,) = Transform(pickle_function(noted), schema.json()).results(pa.record_batch({"offset": [0]}))
    assert made.to_pylist() == [{"a": [{"x": 7, "note": "important", "y": None}]}]


@pytest.mark.parametrize("lenient", [True, False])
def test_a_topic_that_is_gone_ends_its_range_alone_where_that_is_no_error(
    monkeypatch: pytest.MonkeyPatch, *, lenient: bool
) -> None:
    def read(wanted: OutputRange, _: object) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"partition": [wanted.partition]})
        if wanted.partition == 0:
            raise WrongTopicError("it was made again")

    forgotten: list[ReaderSettings] = []
    monkeypatch.setattr(reading, "reader_for", lambda *_: SimpleNamespace(read=read))
    monkeypatch.setattr(reading, "forget", forgotten.append)
    monkeypatch.setattr(reading, "in_spark_schema", lambda made, _: made)
    settings = ReaderSettings(bootstrap_servers="nowhere:1", fail_on_data_loss=not lenient)
    ranges = tuple(OutputRange(topic="t", partition=number, start=0, end=1) for number in range(2))
    given = TaskReader(settings=settings, columns=("partition",)).read(RangesPartition(ranges))
    assert next(given)["partition"].to_pylist() == [0]
    if lenient:
        assert [batch["partition"].to_pylist() for batch in given] == [[1]]
    else:
        with pytest.raises(WrongTopicError):
            next(given)
    assert set(forgotten) == {settings}


def test_filters_are_for_who_asks_for_them_and_leave_less_to_read(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark refuses a reader that takes filters where its own setting for that is off."""
    monkeypatch.setattr(batch, "Cluster", lambda options: brokers)
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
    plain = batch_reader(given, source_schema(given))
    assert type(plain).pushFilters is DataSourceReader.pushFilters
    taking = batch_reader({**given, "pushFilters": "true"}, source_schema(given))
    assert list(taking.pushFilters([EqualTo(("partition",), 0), LessThan(("offset",), 4)])) == []
    tasks = cast(list[RangesPartition], pickle.loads(pickle.dumps(taking)).partitions())
    assert [(each.partition, each.start, each.end) for task in tasks for each in task.ranges] == [(0, 0, 4)]
