"""Queries in group mode at a real Kafka, with a played Spark: hand-over, restart, crash, leaving. See `group_help`.

`make spark-groups`: two applications join and leave 20 times.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from group_help import Checkpoint, Played
from pipeline_help import PATIENCE, wait_for

from filled_topics import fill
from instride import Consumer, TopicPartition
from instride.errors import ConfigError, KafkaTimeoutError, OffsetsGoneError
from instride.spark import stop
from instride.testing import LocalKafka

pytestmark = [pytest.mark.kafka]

TURNS = int(os.environ.get("GROUP_TURNS", "4"))
Topic = Callable[..., str]
Start = Callable[..., Played]


@pytest.fixture
def start(kafka: LocalKafka) -> Iterator[Start]:
    with ExitStack() as stack:

        def made(topic: str, checkpoint: Checkpoint, **options: Any) -> Played:
            query = Played(kafka, topic, checkpoint, **options)
            stack.callback(query.stop)
            return query

        yield made


def leave(query: Played, timeout: float = PATIENCE) -> None:
    stop(cast("Any", query), timeout=timeout)


def each_once(counts: dict[int, int], *checkpoints: Checkpoint) -> None:
    there = Counter(row for each in checkpoints for row in each.rows)
    expected = Counter((partition, offset) for partition, count in counts.items() for offset in range(count))
    assert there == expected, f"lost {list(expected - there)[:5]}, twice {list(there - expected)[:5]}"


def committed(kafka: LocalKafka, topic: str, partitions: int) -> dict[int, int | None]:
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=topic) as consumer:
        found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)])
    return {partition.partition: None if each is None else each.offset for partition, each in found.items()}


@pytest.mark.requirement("source/elastic")
def test_two_applications_join_and_leave_and_each_record_is_read_once(
    kafka: LocalKafka, kafka_topic: Topic, start: Start
) -> None:
    topic, counts = kafka_topic(4), dict.fromkeys(range(4), 0)
    kept = [Checkpoint(), Checkpoint()]

    def write() -> None:
        for partition in counts:
            fill(kafka, topic, {partition: 30}, start=counts[partition])
            counts[partition] += 30

    def has_more(query: Played, than: int) -> bool:
        write()
        return len(query.checkpoint.rows) > than

    staying = start(topic, kept[0])
    for turn in range(TURNS):
        joining = start(topic, kept[1 - turn % 2])
        joining.until(partial(has_more, joining, len(joining.checkpoint.rows)), "records for the one that joined")
        write()
        leave(staying)
        assert staying.error is None
        staying = joining
    staying.until(lambda: len(kept[0].rows) + len(kept[1].rows) >= sum(counts.values()), "every record")
    leave(staying)
    each_once(counts, *kept)
    assert committed(kafka, topic, 4) == counts


@pytest.mark.requirement("source/revoke")
def test_a_partition_is_handed_over_right_after_its_batch(kafka: LocalKafka, kafka_topic: Topic, start: Start) -> None:
    """The one that joins reads nothing of it before, and what it got at once flows."""
    topic, kept = kafka_topic(2), [Checkpoint(), Checkpoint()]
    fill(kafka, topic, {0: 10, 1: 10})
    first = start(topic, kept[0])
    first.until_rows(20)
    first.gate.clear()
    fill(kafka, topic, {0: 5, 1: 5}, start=10)
    first.until(lambda: first.reading, "a batch in flight")
    second = start(topic, kept[1])
    second.until(lambda: second.lastProgress is not None, "its first batch, which is empty")
    reading = set(first.reading)
    fill(kafka, topic, {0: 5, 1: 5}, start=15)
    with pytest.raises(KafkaTimeoutError, match="stop it again"):
        leave(first, timeout=0.5)
    assert not {partition for partition, _ in kept[1].rows} & reading
    first.gate.set()
    leave(first)
    second.until_rows(40 - len(kept[0].rows))
    leave(second)
    each_once({0: 20, 1: 20}, *kept)


@pytest.mark.requirement("source/batch-0")
def test_a_batch_that_was_pending_is_read_again_or_left_to_its_new_owner(
    kafka: LocalKafka, kafka_topic: Topic, start: Start
) -> None:
    """Batch 0 too. A crash in mid-batch repeats nothing and loses nothing, whoever reads it."""
    topic, kept = kafka_topic(2), [Checkpoint(), Checkpoint()]
    fill(kafka, topic, {0: 10, 1: 10})
    first = start(topic, kept[0], startingOffsets="earliest")
    first.gate.clear()
    first.until(lambda: first.reading, "a batch in flight")
    first.crash()
    again = start(topic, kept[0], startingOffsets="latest")
    again.until_rows(20)
    again.gate.clear()
    fill(kafka, topic, {0: 5, 1: 5}, start=10)
    again.until(lambda: again.reading, "a batch in flight")
    again.crash()
    other = start(topic, kept[1])
    other.until_rows(10)
    third = start(topic, kept[0])
    third.until(lambda: third.lastProgress is not None, "the replay")
    leave(other)
    fill(kafka, topic, {0: 5, 1: 5}, start=15)
    third.until_rows(40 - len(kept[1].rows))
    leave(third)
    each_once({0: 20, 1: 20}, *kept)
    assert kept[1].rows


@pytest.mark.parametrize("other_first", [False, True])
def test_a_source_that_ends_in_mid_batch_repeats_nothing_unless_another_takes_over(
    kafka: LocalKafka, kafka_topic: Topic, start: Start, *, other_first: bool
) -> None:
    """The group never hears of the batch, which Spark finishes. Only the run that goes on with the checkpoint knows."""
    topic, kept = kafka_topic(2), [Checkpoint(), Checkpoint()]
    fill(kafka, topic, {0: 10, 1: 10})
    first = start(topic, kept[0])
    first.until_rows(20)
    first.gate.clear()
    fill(kafka, topic, {0: 5, 1: 5}, start=10)
    first.until(lambda: first.reading, "a batch in flight")
    first.lose_source()
    batch = kept[0].rows[20:]
    assert batch
    if other_first:
        other = start(topic, kept[1])
        other.until_rows(10)
        leave(other)
        assert set(batch) <= set(kept[1].rows)
        del kept[0].rows[20:]
    fill(kafka, topic, {0: 5, 1: 5}, start=15)
    again = start(topic, kept[0])
    again.until(lambda: len(kept[0].rows) + len(kept[1].rows) >= 40, "every record")
    leave(again)
    each_once({0: 20, 1: 20}, *kept)


def test_a_replay_does_not_wait_for_a_topic_that_is_gone(kafka: LocalKafka, kafka_topic: Topic, start: Start) -> None:
    topic, kept = kafka_topic(1), Checkpoint()
    goes = f"{topic}-goes"
    kafka.create_topic(goes, partitions=1)
    both = f"{topic},{goes}"
    fill(kafka, topic, {0: 10})
    fill(kafka, goes, {0: 10})
    first = start(topic, kept, subscribe=both)
    first.until_rows(20)
    first.gate.clear()
    fill(kafka, goes, {0: 5}, start=10)
    first.until(lambda: first.reading, "a batch in flight")
    first.crash()
    kafka.delete_topic(goes)
    again = start(topic, kept, subscribe=both)
    fill(kafka, topic, {0: 5}, start=10)
    again.until_rows(25)
    leave(again)


def test_a_bare_stop_repeats_what_was_in_flight_at_most(kafka: LocalKafka, kafka_topic: Topic, start: Start) -> None:
    topic, kept = kafka_topic(1), [Checkpoint(), Checkpoint()]
    fill(kafka, topic, {0: 10})
    first = start(topic, kept[0])
    first.gate.clear()
    first.until(lambda: first.reading, "a batch in flight")
    first.stop()  # the batch ends, and Spark does not ask what follows it
    second = start(topic, kept[1])
    second.until_rows(10)
    leave(second)
    assert kept[0].rows == kept[1].rows


def again(kafka: LocalKafka, topic: str) -> None:
    """At once: a group's members have the partitions still."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(PATIENCE)

    def is_made() -> bool:
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE)
        except KafkaException:  # it is not gone yet
            return False
        return True

    wait_for(is_made, "the topic")


@pytest.mark.requirement("source/20", "source/22")
@pytest.mark.parametrize("fail", [False, True])
def test_a_topic_that_is_made_again_under_a_query_is_read_anew_or_data_loss(
    kafka: LocalKafka, kafka_topic: Topic, start: Start, *, fail: bool
) -> None:
    topic, kept = kafka_topic(1), Checkpoint()
    fill(kafka, topic, {0: 20})
    query = start(topic, kept, failOnDataLoss=str(fail).lower())
    query.until_rows(20)
    again(kafka, topic)
    fill(kafka, topic, {0: 10})
    if fail:
        with pytest.raises(OffsetsGoneError, match="was deleted and made again"):
            query.until(lambda: False, "its failure")
        return
    query.until_rows(30)
    fill(kafka, topic, {0: 15}, start=10)
    query.until_rows(45)
    leave(query)
    assert kept.rows[20:] == [(0, offset) for offset in range(25)]
    assert committed(kafka, topic, 1) == {0: 25}


@pytest.mark.slow
@pytest.mark.parametrize("fail", [False, True])
def test_a_topic_that_is_deleted_under_a_batch_keeps_no_other_from_being_read(
    kafka: LocalKafka, kafka_topic: Topic, start: Start, *, fail: bool
) -> None:
    """It did until the member had lost all its partitions, after five minutes."""
    stays, goes, kept = kafka_topic(1), kafka_topic(2), Checkpoint()
    fill(kafka, stays, {0: 10})
    fill(kafka, goes, {1: 10})
    query = start(stays, kept, subscribe=f"{stays},{goes}", failOnDataLoss=str(fail).lower())
    query.until_rows(20)
    query.gate.clear()
    fill(kafka, goes, {1: 5}, start=10)
    query.until(lambda: query.reading, "a batch in flight")
    kafka.delete_topic(goes)
    query.gate.set()
    fill(kafka, stays, {0: 5}, start=10)
    if fail:
        with pytest.raises(OffsetsGoneError, match="is not there any more"):
            query.until(lambda: False, "its failure")
        query = start(stays, kept, subscribe=f"{stays},{goes}")
    query.until_rows(30)
    leave(query)
    assert committed(kafka, stays, 1) == {0: 15}


@pytest.mark.requirement("source/22")
@pytest.mark.parametrize("fail", [False, True])
def test_a_log_that_ends_before_the_groups_offset_is_data_loss_or_read_on(
    kafka: LocalKafka, kafka_topic: Topic, start: Start, *, fail: bool
) -> None:
    """As after an unclean leader election: new records were passed over in silence."""
    topic, kept = kafka_topic(1), Checkpoint()
    fill(kafka, topic, {0: 10})
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=topic, auto_offset_reset="latest") as consumer:
        consumer.assign([partition])
        consumer.commit({partition: 15}, allow_rewind=True)
    query = start(topic, kept, startingOffsets="latest", failOnDataLoss=str(fail).lower())
    if fail:
        with pytest.raises(OffsetsGoneError, match="cannot go on at offset 15"):
            query.until(lambda: False, "its failure")
        assert committed(kafka, topic, 1) == {0: 15}
        return
    query.until(lambda: committed(kafka, topic, 1) == {0: 10}, "the group's offset to go back")
    fill(kafka, topic, {0: 3}, start=10)
    query.until_rows(3)
    leave(query)
    assert kept.rows == [(0, offset) for offset in range(10, 13)]


@pytest.mark.requirement("source/22")
def test_a_group_that_has_forgotten_its_offsets_is_data_loss(
    kafka: LocalKafka, kafka_topic: Topic, start: Start
) -> None:
    """As after a pause of two weeks: what came then was passed over. Once somebody sets the offsets, it is read."""
    topic, kept = kafka_topic(2), Checkpoint()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    fill(kafka, topic, {0: 10, 1: 10})
    first = start(topic, kept)
    first.until_rows(20)
    fill(kafka, topic, {0: 1}, start=10)  # so that the last batch has no more than that partition
    first.until_rows(21)
    leave(first)
    admin.delete_consumer_groups([topic])[topic].result(PATIENCE)
    fill(kafka, topic, {1: 10}, start=10)
    second = start(topic, kept, startingOffsets="latest")
    with pytest.raises(OffsetsGoneError, match=f"forgotten its offsets of topic {topic}, .* {topic}-1: some data may"):
        second.until(lambda: False, "its error")
    assert committed(kafka, topic, 2) == {0: None, 1: None}
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=topic) as consumer:
        at = {TopicPartition(topic, 0): 11, TopicPartition(topic, 1): 10}
        consumer.assign(at)
        consumer.pause(at)
        consumer.commit(at)
    third = start(topic, kept, startingOffsets="latest")
    third.until_rows(31)
    leave(third)
    each_once({0: 11, 1: 20}, kept)


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": "4"}, {"maxBytesPerTrigger": "32", "columns": "value"}])
def test_available_now_ends_when_all_that_is_assigned_is_read(
    kafka: LocalKafka, kafka_topic: Topic, start: Start, limit: dict[str, str]
) -> None:
    topic, kept = kafka_topic(3), Checkpoint()
    fill(kafka, topic, {0: 10, 1: 3})
    query = start(topic, kept, available_now=True, **limit)
    query.until(lambda: not query.isActive, "its end")
    assert len(kept.offsets) > 2, "one batch, or an empty one and one"
    each_once({0: 10, 1: 3, 2: 0}, kept)
    assert committed(kafka, topic, 3) == {0: 10, 1: 3, 2: 0}


@pytest.mark.parametrize("batches", [0, 1])
def test_asynchronous_progress_tracking_is_refused_with_the_reason(
    kafka: LocalKafka, kafka_topic: Topic, start: Start, batches: int
) -> None:
    """Also where the checkpoint has batches already. Without it the query goes on, and nothing is lost."""
    topic, kept = kafka_topic(1), Checkpoint()
    fill(kafka, topic, {0: 10})
    if batches:
        first = start(topic, kept)
        first.until_rows(10)
        leave(first)
        fill(kafka, topic, {0: 10}, start=10)
    query = start(topic, kept, async_progress=True)
    written = 10 * (batches + 1)

    def write_more() -> None:
        nonlocal written
        fill(kafka, topic, {0: 1}, start=written)
        written += 1

    refusal = "asyncProgressTrackingEnabled does not go with consumerGroup: .* Remove it"
    with pytest.raises(ConfigError, match=refusal):
        query.until(write_more, "to be refused")
    again = start(topic, kept)
    again.until(lambda: committed(kafka, topic, 1) == {0: written}, "every record")
    leave(again)
    each_once({0: written}, kept)
