"""Where reading goes on at a real broker: a topic made anew, a reset by duration, epochs in commits."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from kafka_help import PATIENCE, QUICK, ids, poll_until, tps

from filled_topics import fill
from instride import Consumer, OffsetAndMetadata, RangeConsumer
from instride.errors import TopicRecreatedError
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]


def remake(kafka: LocalKafka, topic: str, count: int) -> list[tuple[int, int]]:
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)
    return fill(kafka, topic, {0: count})


@pytest.mark.requirement("surface/topic-ids")
def test_a_topic_that_was_made_anew_and_is_longer_is_read_from_its_beginning(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    """No offset is out of range: only the topic's id tells."""
    topic = kafka_topic()
    fill(kafka, topic, {0: 20})
    consumer = open_consumer(metadata_max_age=0.3)
    consumer.assign(tps(topic, 0))
    poll_until(consumer, 20)
    written = remake(kafka, topic, 50)
    assert ids(poll_until(consumer, 50)) == written


def test_without_a_reset_policy_it_is_an_error_with_both_ids(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    (tp,) = tps(topic, 0)
    fill(kafka, topic, {0: 20})
    consumer = open_consumer(metadata_max_age=0.3, auto_offset_reset="none")
    consumer.assign([tp])
    consumer.seek(tp, 0)
    poll_until(consumer, 20)
    written = remake(kafka, topic, 50)
    deadline = time.monotonic() + PATIENCE
    with pytest.raises(TopicRecreatedError) as raised:  # noqa: PT012  # whichever poll comes first after the metadata
        while time.monotonic() < deadline:
            assert not list(consumer.poll(timeout=0.2)), "nothing of the new topic from an old offset"
    assert raised.value.old_topic_id != raised.value.topic_id
    consumer.seek(tp, 40)
    assert ids(poll_until(consumer, 10)) == written[40:]


def test_a_consumer_of_ranges_hears_of_it_too(kafka: LocalKafka, kafka_topic: Topic) -> None:
    topic = kafka_topic()
    (tp,) = tps(topic, 0)
    fill(kafka, topic, {0: 20})
    settings = {**QUICK, "bootstrap_servers": kafka.bootstrap_servers, "metadata_max_age": 0.3}
    with RangeConsumer(**settings) as consumer:
        consumer.assign([tp])
        deadline = time.monotonic() + PATIENCE
        first: list[tuple[int, int]] = []
        while not first and time.monotonic() < deadline:
            first = [(each.start, each.end) for each in consumer.poll(timeout=0.2)]
        assert first == [(0, 20)]
        remake(kafka, topic, 50)
        # What was written before the metadata was fresh may come as a range of the old topic's offsets first.
        reached: list[tuple[int, int]] = []
        while 0 not in {start for start, _ in reached} or reached[-1][1] < 50:
            assert time.monotonic() < deadline, reached
            reached += [(each.start, each.end) for each in consumer.poll(timeout=0.2)]


@pytest.mark.requirement("surface/reset")
def test_a_reset_by_duration_reads_what_was_written_since(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic(2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    present = int(time.time() * 1000)
    for offset, hours in enumerate((50, 30, 20, 1)):
        producer.produce(topic, f"0:{offset}".encode(), partition=0, timestamp=present - hours * 3_600_000)
        producer.produce(topic, f"1:{offset}".encode(), partition=1, timestamp=present - 50 * 3_600_000)
    assert producer.flush(PATIENCE) == 0
    consumer = open_consumer(auto_offset_reset="by_duration:P1D")
    zero, one = tps(topic, 0, 1)
    consumer.assign([zero, one])
    assert ids(poll_until(consumer, 2)) == [(0, 2), (0, 3)]
    assert consumer.position(one) == 4, "nothing was written within a day: the end"


@pytest.mark.requirement("surface/validation")
def test_a_commit_carries_the_epoch_and_what_reads_on_from_it_is_validated(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    (tp,) = tps(topic, 0)
    written = fill(kafka, topic, {0: 20})
    first = open_consumer(group_id=group)
    first.assign([tp])
    poll_until(first, 20)
    first.commit({tp: OffsetAndMetadata(offset=12, leader_epoch=0)})
    assert first.committed(tp) == {tp: OffsetAndMetadata(offset=12, leader_epoch=0)}
    second = open_consumer(group_id=group)
    second.assign([tp])
    assert ids(poll_until(second, 8)) == written[12:]
