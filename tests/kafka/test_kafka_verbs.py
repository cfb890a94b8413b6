"""What a consumer can ask of the brokers: topics, partitions, offsets by time, of one or many partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from kafka_help import poll_until, tps

from filled_topics import fill
from instride import Consumer, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from instride.errors import IllegalStateError, InvalidTopicError, KafkaTimeoutError, TransportError
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]

BASE = 1_700_000_000_000


@pytest.mark.requirement("surface/topics")
def test_partitions_for_tells_of_each_partition(kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open) -> None:
    topic = kafka_topic(3)
    infos = open_consumer().partitions_for(topic)
    assert [each.topic_partition for each in infos] == tps(topic, 0, 1, 2)
    for each in infos:
        assert each.leader is not None
        assert f"{each.leader.host}:{each.leader.port}" == kafka.bootstrap_servers
        assert each.replicas == each.in_sync_replicas == (each.leader.node_id,)
        assert each.offline_replicas == ()
        assert each.leader_epoch >= 0
    (topic_id,) = {each.topic_id for each in infos}
    assert topic_id is not None


@pytest.mark.requirement("surface/topics")
def test_a_topic_that_does_not_exist_has_no_partitions_and_is_not_made(open_consumer: Open, group: str) -> None:
    consumer = open_consumer()
    assert consumer.partitions_for(f"nowhere-{group}") == []
    assert f"nowhere-{group}" not in consumer.list_topics()


def test_a_name_that_no_topic_can_have_is_an_error(open_consumer: Open) -> None:
    with pytest.raises(InvalidTopicError, match="a name/with"):
        open_consumer().partitions_for("a name/with marks")


@pytest.mark.requirement("surface/topics")
def test_list_topics_leaves_internal_ones_out_unless_requested(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(2)
    consumer = open_consumer(group_id=group)
    consumer.committed(*tps(topic, 0))  # makes the broker make __consumer_offsets
    topics = consumer.list_topics()
    assert [each.partition for each in topics[topic]] == [0, 1]
    assert "__consumer_offsets" not in topics
    everything = consumer.list_topics(include_internal=True)
    assert len(everything["__consumer_offsets"]) > 0
    assert list(everything) == sorted(everything)


@pytest.mark.requirement("surface/topics")
def test_asking_joins_no_group_and_moves_nothing(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    (tp,) = tps(topic, 0)
    fill(kafka, topic, {0: 5})
    consumer = open_consumer(group_id=group)
    consumer.assign([tp])
    poll_until(consumer, 5)
    consumer.list_topics()
    consumer.partitions_for(topic)
    consumer.offsets_for_times({tp: 0})
    assert consumer.position(tp) == 5
    assert consumer.assignment() == {tp}
    assert not consumer.subscription()


@pytest.mark.requirement("surface/offsets-for-times")
def test_offsets_for_times_are_those_of_the_first_record_as_late(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic(2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(5):
        producer.produce(topic, b"", partition=0, timestamp=BASE + 1000 * number)
    assert producer.flush(30) == 0
    zero, one = tps(topic, 0, 1)
    consumer = open_consumer()
    found = consumer.offsets_for_times({zero: BASE + 1001, one: 0})
    assert found[one] is None, "it is empty"
    assert found[zero] == OffsetAndTimestamp(offset=2, timestamp=BASE + 2000, leader_epoch=0)
    assert consumer.offsets_for_times({zero: BASE + 4001}) == {zero: None}, "all are older"
    assert consumer.offsets_for_times({}) == {}
    consumer.assign([zero])
    consumer.seek(zero, 2)
    assert [each.timestamp for each in poll_until(consumer, 3)] == [BASE + 1000 * number for number in (2, 3, 4)]


def test_committed_of_several_partitions_some_of_which_have_none(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topics = [kafka_topic(2), kafka_topic(1)]
    zero, one, other = *tps(topics[0], 0, 1), *tps(topics[1], 0)
    consumer = open_consumer(group_id=group)
    consumer.assign([zero, other])
    consumer.commit({zero: OffsetAndMetadata(offset=3, metadata="mine"), other: 4})
    found = consumer.committed(zero, one, other)
    assert found == {
        zero: OffsetAndMetadata(offset=3, metadata="mine"),
        one: None,
        other: OffsetAndMetadata(offset=4),
    }
    assert consumer.committed() == {}
    with pytest.raises(IllegalStateError, match="group_id"):
        open_consumer().committed(zero)


@pytest.mark.parametrize(
    "ask",
    [
        lambda consumer, tp: consumer.list_topics(timeout=0.3),
        lambda consumer, tp: consumer.partitions_for("t", timeout=0.3),
        lambda consumer, tp: consumer.offsets_for_times({tp: 1}, timeout=0.3),
        lambda consumer, tp: consumer.beginning_offsets([tp], timeout=0.3),
        lambda consumer, tp: consumer.end_offsets([tp], timeout=0.3),
        lambda consumer, tp: consumer.committed(tp, timeout=0.3),
    ],
    ids=["list_topics", "partitions_for", "offsets_for_times", "beginning_offsets", "end_offsets", "committed"],
)
def test_a_request_that_nobody_responds_ends_in_time_and_says_why(
    open_consumer: Open, ask: Callable[[Consumer, TopicPartition], object]
) -> None:
    consumer = open_consumer(bootstrap_servers="127.0.0.1:1", group_id="g", default_api_timeout=60.0)
    with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1") as late:
        ask(consumer, TopicPartition("t", 0))
    assert isinstance(late.value.__cause__, TransportError)
