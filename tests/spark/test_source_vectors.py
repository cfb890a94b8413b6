"""The source as Spark calls it, at a real Kafka and without Spark: what the suites of Spark's own connector try."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pipeline_help import wait_for

from filled_topics import fill
from instride.errors import KafkaTimeoutError, OffsetsGoneError, UnknownTopicOrPartitionError
from instride.records import TopicPartition
from instride.spark import _range_reader
from instride.spark._data_source.options import parse_options
from instride.spark._data_source.reading import RangesPartition
from instride.spark._data_source.stream import StreamReader
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Topic = Callable[..., str]


@pytest.fixture(autouse=True)
def _readers_are_closed() -> Iterator[None]:
    """A Spark worker process keeps them for its next tasks, and so would ours for the next test."""
    yield
    for settings in {settings for settings, _ in _range_reader._readers}:
        _range_reader.forget(settings)


class Query:
    """What Spark does: plans a batch, logs its end, reads it. The checkpoint is `logged`."""

    def __init__(self, kafka: LocalKafka, **given: str) -> None:
        named = {name.replace("__", "."): value for name, value in given.items()}
        self._given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "startingOffsets": "earliest", **named}
        self.logged: list[dict[str, Any]] = []

    @contextmanager
    def running(self) -> Iterator[StreamReader]:
        made = StreamReader(parse_options(self._given, "stream"))
        try:
            yield made
        finally:
            made.stop()

    def plan(self, made: StreamReader) -> list[RangesPartition]:
        """The next batch, if there is one."""
        start = self.logged[-1] if self.logged else made.initialOffset()
        end = made.latestOffset(start, made.getDefaultReadLimit())
        if end == start:
            return []
        self.logged.append(json.loads(json.dumps(end)))
        return cast(list[RangesPartition], made.partitions(start, end))

    def run(self) -> list[tuple[int, int]]:
        """What a run reads until there is nothing new: partition and offset."""
        found = []
        with self.running() as made:
            while tasks := self.plan(made):
                found += [row for task in tasks for row in rows(made, task)]
        return found

    def again(self) -> list[tuple[int, int]]:
        """The last batch, by a run that finds it logged and not committed."""
        with self.running() as made:
            before = self.logged[-2] if len(self.logged) > 1 else made.initialOffset()
            tasks = cast(list[RangesPartition], made.partitions(before, self.logged[-1]))
            return [row for task in tasks for row in rows(made, task)]


def rows(made: StreamReader, task: RangesPartition) -> list[tuple[int, int]]:
    return [
        (row["partition"], row["offset"])
        for batch in made.read(task)
        for row in batch.select(["partition", "offset"]).to_pylist()
    ]


def span(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


BOTH = ("false", "true")
"""Of failOnDataLoss."""

STARTS = {
    "earliest": {0: 0, 1: 0},
    "latest": {0: 5, 1: 5},
    '{"TOPIC": {"0": 3, "1": -1}}': {0: 3, 1: 5},
}


@pytest.mark.drawn(3)
@pytest.mark.requirement("source/1")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("named", ["assign", "subscribe", "subscribePattern"])
def test_however_topics_and_starts_are_named_a_restart_goes_on(
    kafka: LocalKafka, kafka_topic: Topic, named: str, start: str
) -> None:
    topic = kafka_topic(2)
    kafka.create_topic(f"{topic}-other", 1)
    fill(kafka, topic, {0: 5, 1: 5})
    of = {"assign": json.dumps({topic: [0, 1]}), "subscribe": topic, "subscribePattern": f"{topic[:-1]}."}[named]
    query = Query(kafka, startingOffsets=start.replace("TOPIC", topic), **{named: of})
    first = query.run()
    assert query.again() == first
    fill(kafka, topic, {0: 3, 1: 3}, start=5)
    second = query.run()
    assert query.again() == second
    expected = [row for partition, at in STARTS[start].items() for row in span(partition, at, 8)]
    assert sorted(first + second) == expected


@pytest.mark.requirement("source/2")
def test_each_partition_begins_at_its_own_offset(kafka: LocalKafka, kafka_topic: Topic) -> None:
    topic = kafka_topic(5)
    fill(kafka, topic, dict.fromkeys(range(5), 4))
    starts = {str(partition): offset for partition, offset in enumerate((-2, -1, 0, 1, 2))}
    query = Query(kafka, subscribe=topic, startingOffsets=json.dumps({topic: starts}))
    assert query.run() == span(0, 0, 4) + span(2, 0, 4) + span(3, 1, 4) + span(4, 2, 4)
    fill(kafka, topic, {1: 1}, start=4)
    assert query.run() == span(1, 4, 5)


@pytest.mark.requirement("source/3")
def test_a_partition_that_is_added_is_read_from_its_first_record(kafka: LocalKafka, kafka_topic: Topic) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 5})
    query = Query(kafka, subscribe=topic, startingOffsets="latest")
    assert query.run() == []
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    fill(kafka, topic, {0: 1, 2: 2})
    found: list[tuple[int, int]] = []

    def all_read() -> bool:
        found.extend(query.run())
        return len(found) >= 3

    wait_for(all_read, "what was written since")
    assert sorted(found) == span(0, 5, 6) + span(2, 0, 2)


ABORTED = {"all": {0, 1, 2}, "the first": {0}, "the middle": {1}, "the last": {2}}
"""Of three transactions, for each partition."""


@pytest.mark.requirement("source/15", "source/16")
def test_what_was_aborted_is_invisible_to_who_reads_what_is_committed(kafka: LocalKafka, kafka_topic: Topic) -> None:
    """Its query has come just as far as one that reads everything, and neither waits for what is invisible."""
    topic = kafka_topic(len(ABORTED))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for turn in range(3):
        for aborts in (True, False):
            producer.begin_transaction()
            for partition, aborted in enumerate(ABORTED.values()):
                for number in range(4 if (turn in aborted) == aborts else 0):
                    producer.produce(topic, b"%d" % number, partition=partition)
            assert producer.flush(30) == 0
            producer.abort_transaction(30) if aborts else producer.commit_transaction(30)
    # A marker behind the four records of each transaction.
    written = [(turn, row) for part in range(4) for turn in range(3) for row in span(part, 5 * turn, 5 * turn + 4)]
    committed = Query(kafka, subscribe=topic, kafka__isolation__level="read_committed")
    everything = Query(kafka, subscribe=topic, kafka__isolation__level="read_uncommitted")
    aborted_in = [*ABORTED.values()]
    assert committed.run() == [row for turn, row in written if turn not in aborted_in[row[0]]]
    assert everything.run() == [row for _, row in written]
    assert committed.logged == everything.logged


@pytest.mark.requirement("source/20")
def test_a_topic_of_a_pattern_is_deleted_and_made_again_between_batches(kafka: LocalKafka, kafka_topic: Topic) -> None:
    stays, goes = kafka_topic(1), kafka_topic(1)
    fill(kafka, stays, {0: 4})
    fill(kafka, goes, {0: 6})
    lenient, strict = (Query(kafka, subscribePattern=f"{stays}|{goes}", failOnDataLoss=each) for each in BOTH)
    for query in (lenient, strict):
        assert sorted(query.run()) == sorted(span(0, 0, 4) + span(0, 0, 6))
    kafka.delete_topic(goes)
    kafka.create_topic(goes, 1)
    fill(kafka, goes, {0: 9})
    fill(kafka, stays, {0: 1}, start=4)
    # Each looks for the old topic for five seconds: both at once.
    with ThreadPoolExecutor(1) as pool:
        fails = pool.submit(strict.run)
        # From its first record, though the old one was read up to the sixth. A deviation of ours: the connector
        # goes on.
        assert sorted(lenient.run()) == sorted(span(0, 0, 9) + span(0, 4, 5))
        with pytest.raises(OffsetsGoneError, match=goes):
            fails.result()
    assert lenient.run() == []


@pytest.mark.drawn(1)
@pytest.mark.requirement("source/21")
@pytest.mark.parametrize("moment", ["before it is read", "while it is read"])
def test_a_topic_is_deleted_while_a_job_runs(kafka: LocalKafka, moment: str) -> None:
    """Strict, the task fails by its name; lenient, it ends with what was there, and the query goes on."""
    topic = f"deleted-{moment.replace(' ', '-')}"
    kafka.create_topic(topic, 1)
    fill(kafka, topic, {0: 5})
    options = {"subscribe": topic, "kafkaConsumer__pollTimeoutMs": "60000"}
    lenient, strict = (Query(kafka, failOnDataLoss=each, **options) for each in BOTH)
    with lenient.running() as one, strict.running() as other:
        (task,), (same,) = lenient.plan(one), strict.plan(other)
        if moment == "while it is read":
            (whole,) = task.ranges
            # Records are to come that never will.
            task = same = RangesPartition((replace(whole, end=whole.end + 5),))
            first, second = one.read(task), other.read(same)
            assert next(first).num_rows == next(second).num_rows == 5
        else:
            first, second = one.read(task), other.read(same)
        kafka.delete_topic(topic)
        # It looks for the topic for five seconds, and so does each task: the driver beside the tasks, as in Spark.
        with ThreadPoolExecutor(1) as driver:
            planned = driver.submit(lenient.plan, one)
            assert sum(batch.num_rows for batch in first) == 0
            with pytest.raises(UnknownTopicOrPartitionError, match=topic):
                list(second)
            assert planned.result() == []


@pytest.mark.requirement("source/22")
def test_what_retention_took_is_passed_over_once_and_nothing_comes_twice(kafka: LocalKafka, kafka_topic: Topic) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    query = Query(kafka, subscribe=topic, failOnDataLoss="false")
    with query.running() as made:
        (task,) = query.plan(made)
        delete_before(kafka, topic, 6)
        assert rows(made, task) == span(0, 6, 10)
        delete_before(kafka, topic, 10)
        assert rows(made, task) == []
    fill(kafka, topic, {0: 3}, start=10)
    assert query.run() == span(0, 10, 13)
    strict = Query(kafka, subscribe=topic).running()
    with strict as made, pytest.raises(OffsetsGoneError, match=str(TopicPartition(topic, 0))):
        rows(made, task)


@pytest.mark.requirement("source/22")
@pytest.mark.parametrize(("start", "left"), [(4, 10), (12, 12)])
def test_a_log_that_ends_before_a_batch_ends_the_batch(
    kafka: LocalKafka, kafka_topic: Topic, start: int, left: int
) -> None:
    """As after an unclean leader election. Strict, the task fails; lenient, it ends with what there is."""
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    options = {"subscribe": topic, "kafkaConsumer__pollTimeoutMs": "2000"}
    lenient, strict = (Query(kafka, failOnDataLoss=each, **options) for each in BOTH)
    with lenient.running() as one, strict.running() as other:
        (task,) = lenient.plan(one)
        task = RangesPartition((replace(task.ranges[0], start=start, end=20),))
        assert rows(one, task) == span(0, start, left)
        with pytest.raises((OffsetsGoneError, KafkaTimeoutError), match=re.escape(f"{topic}-0 [{start}, 20)")):
            rows(other, task)


@pytest.mark.requirement("source/3", "source/24")
def test_a_topic_that_a_pattern_matches_later_is_read_from_its_first_record(
    kafka: LocalKafka, kafka_topic: Topic
) -> None:
    """Nothing matched when the query began with "latest", and then the topic came between two runs."""
    later = f"{kafka_topic(1)}-later"
    query = Query(kafka, subscribePattern=later, startingOffsets="latest")
    assert query.run() == []
    assert len(query.logged) == 1
    kafka.create_topic(later, 1)
    fill(kafka, later, {0: 7})
    assert query.run() == span(0, 0, 7)


def test_available_now_begins_at_latest_though_records_come_meanwhile(kafka: LocalKafka, kafka_topic: Topic) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 5})
    query = Query(kafka, subscribe=topic, startingOffsets="latest")
    with query.running() as made:
        made.prepareForTriggerAvailableNow()
        fill(kafka, topic, {0: 4}, start=5)
        assert query.plan(made) == []
        assert query.plan(made) == []
        assert len(query.logged) == 1
    fill(kafka, topic, {0: 4}, start=9)
    assert query.run() == span(0, 9, 13)


def delete_before(kafka: LocalKafka, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([At(topic, 0, offset)]).values():
        future.result(60)
