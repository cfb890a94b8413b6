"""Topics that change under a consumer: more partitions, a shorter log, a namesake, large records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka_help import Member, drive, ids, poll_until, tps, until

from filled_topics import fill
from instride import Consumer, ConsumerRecord, OffsetAndMetadata, RebalanceListener, TopicPartition
from instride.errors import BrokerResponseError, UnknownTopicOrPartitionError
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]
Join = Callable[..., Member]


@pytest.fixture
def admin(kafka: LocalKafka) -> Any:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


@pytest.mark.requirement("surface/added-partitions")
def test_partitions_that_are_added_are_found_and_dealt_out(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, admin: Any
) -> None:
    topic = kafka_topic(2)
    a = join("a", topic, metadata_max_age=0.3)
    b = join("b", topic, metadata_max_age=0.3)
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 1)
    for future in admin.create_partitions([NewPartitions(topic, 4)]).values():
        future.result(20)
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 2)
    written = fill(kafka, topic, dict.fromkeys(range(4), 5))
    drive(a, b, until=lambda: len(a.records) + len(b.records) == 20)
    assert sorted(a.seen + b.seen) == written


def test_records_that_were_deleted_are_skipped_by_the_reset_policy(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, admin: Any, group: str
) -> None:
    topic = kafka_topic()
    (tp,) = tps(topic, 0)
    written = fill(kafka, topic, {0: 20})
    with open_consumer(group_id=group) as before:
        before.assign([tp])
        before.commit({tp: 3})
    for future in admin.delete_records([At(topic, 0, 12)]).values():
        future.result(20)
    consumer = open_consumer(group_id=group)
    consumer.assign([tp])
    assert ids(poll_until(consumer, 8)) == written[12:]
    assert consumer.beginning_offsets([tp]) == {tp: 12}


@pytest.mark.rule("18")
def test_a_start_after_deleted_records_moves_with_its_partition(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, admin: Any, group: str
) -> None:
    """The group's offset is deleted, and "latest" leads to the end. The next owner was led to a later one."""
    topic = kafka_topic()
    (tp,) = tps(topic, 0)
    fill(kafka, topic, {0: 20})
    with open_consumer(group_id=group) as before:
        before.assign([tp])
        before.commit({tp: 3})
    for future in admin.delete_records([At(topic, 0, 12)]).values():
        future.result(20)
    with open_consumer(group_id=group, auto_offset_reset="latest", commit_start_offsets=True) as first:
        first.assign([tp])
        until(lambda: not list(first.poll(timeout=0.1)) and first.position(tp) == 20)
    written = fill(kafka, topic, {0: 5}, start=20)
    after = open_consumer(group_id=group, auto_offset_reset="latest")
    after.assign([tp])
    assert ids(poll_until(after, 5)) == written


@pytest.mark.requirement("surface/deleted-topics")
def test_a_topic_that_is_deleted_and_made_again_is_read_from_its_new_beginning(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 20})
    consumer = open_consumer()
    consumer.assign(tps(topic, 0))
    poll_until(consumer, 20)
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)
    written = fill(kafka, topic, {0: 5})
    assert ids(poll_until(consumer, 5)) == written


class Subscribed(Member):
    """To a topic by its name that is gone: it is told so, where that lasts."""

    def turn(self) -> list[ConsumerRecord]:
        try:
            return super().turn()
        except UnknownTopicOrPartitionError:
            return []


@pytest.mark.requirement("KIP-429/4")
@pytest.mark.requirement("surface/deleted-topics")
@pytest.mark.parametrize("mode", ["two-step", "immediate"])
def test_a_deleted_topic_leaves_the_members_with_the_others(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str, mode: str
) -> None:
    """Its partitions are revoked, and only they (KIP-429)."""
    revoked: list[TopicPartition] = []

    class Told(RebalanceListener):
        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            revoked.extend(partitions)

    stays, goes = kafka_topic(), f"goes-{group}"
    kafka.create_topic(goes)
    fill(kafka, goes, {0: 3})
    consumer = open_consumer(group_id=group, revoke_mode=mode)
    consumer.subscribe([stays, goes], listener=Told())
    poll_until(consumer, 3)
    kafka.delete_topic(goes)
    written = fill(kafka, stays, {0: 5})
    member = Subscribed("a", consumer)
    drive(member, until=lambda: len(member.records) == 5 and member.owned == set(tps(stays, 0)) and revoked)
    assert ids(member.records) == written
    assert revoked == tps(goes, 0)
    assert member.lost == []
    consumer.commit({tps(stays, 0)[0]: 5})


def test_a_record_larger_than_every_fetch_size_arrives(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for size in (10, 500_000, 20, 900_000):
        producer.produce(topic, bytes(size), partition=0)
    assert producer.flush(20) == 0
    consumer = open_consumer(max_partition_fetch_bytes=1000, fetch_max_bytes=1000, fetch_buffer_bytes=1000)
    consumer.assign(tps(topic, 0))
    assert [len(each.value or b"") for each in poll_until(consumer, 4)] == [10, 500_000, 20, 900_000]


def test_many_partitions_of_many_topics(kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str) -> None:
    topics = [kafka_topic(20) for _ in range(3)]
    for topic in topics:
        fill(kafka, topic, dict.fromkeys(range(20), 3))
    consumer = open_consumer(group_id=group)
    consumer.subscribe(topics)
    records = poll_until(consumer, 180)
    assert {(each.topic, each.partition, each.offset) for each in records} == {
        (topic, partition, offset) for topic in topics for partition in range(20) for offset in range(3)
    }
    consumer.commit()
    found = consumer.committed(*consumer.assignment())
    assert {each.offset for each in found.values() if each is not None} == {3}
    assert len(found) == 60


def test_a_commit_that_the_broker_refuses_for_good_is_raised_and_the_next_one_taken(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    (tp,) = tps(topic, 0)
    fill(kafka, topic, {0: 5})
    consumer = open_consumer(group_id=group)
    consumer.subscribe([topic])
    poll_until(consumer, 5)
    with pytest.raises(BrokerResponseError, match=f"{tp}.*12"):
        consumer.commit({tp: OffsetAndMetadata(offset=2, metadata="x" * 10_000)})
    consumer.commit({tp: OffsetAndMetadata(offset=3, metadata="short")})
    assert consumer.committed(tp) == {tp: OffsetAndMetadata(offset=3, metadata="short")}
