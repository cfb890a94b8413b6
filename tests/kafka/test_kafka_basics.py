"""One consumer and a real broker: every verb does what its name says."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from kafka_help import ids, poll_until, ranges_until, tps

from filled_topics import fill
from instride import Consumer, ConsumerRecord, OffsetAndMetadata, OffsetLedger, RangeConsumer, TopicPartition
from instride.errors import (
    CommitRewindError,
    ConfigError,
    ConsumerClosedError,
    IllegalStateError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]


@pytest.mark.requirement("KIP-983/5")
def test_subscribe_poll_commit_and_go_on_where_it_stopped(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(3)
    written = fill(kafka, topic, {0: 10, 1: 10, 2: 10})

    with open_consumer(group_id=group) as first:
        first.subscribe([topic])
        assert first.subscription() == {topic}
        assert sorted(ids(poll_until(first, 30))) == written
        assert first.assignment() == set(tps(topic, 0, 1, 2))
        first.commit()
        assert first.committed(*tps(topic, 0, 1, 2)) == {
            tp: OffsetAndMetadata(offset=10, leader_epoch=0) for tp in tps(topic, 0, 1, 2)
        }

    more = fill(kafka, topic, {1: 5}, start=10)
    with open_consumer(group_id=group) as second:
        second.subscribe([topic])
        assert ids(poll_until(second, 5)) == more


def test_commit_of_some_offsets_with_metadata(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 10, 1: 10})
    zero, one = tps(topic, 0, 1)
    consumer = open_consumer(group_id=group)
    consumer.subscribe([topic])
    poll_until(consumer, 20)

    consumer.commit({zero: OffsetAndMetadata(offset=4, metadata="by hand"), one: 7})
    assert consumer.committed(zero, one) == {
        zero: OffsetAndMetadata(offset=4, metadata="by hand"),
        one: OffsetAndMetadata(offset=7),
    }
    consumer.commit_async({one: 8}).result(timeout=20)
    assert consumer.committed(one) == {one: OffsetAndMetadata(offset=8)}
    with pytest.raises(CommitRewindError, match="the group has 8"):
        consumer.commit({one: 3})
    assert consumer.committed(one) == {one: OffsetAndMetadata(offset=8)}
    assert consumer.commit({one: 3}, allow_rewind=True)
    assert consumer.committed(one) == {one: OffsetAndMetadata(offset=3)}


@pytest.mark.rule("18")
def test_what_came_between_two_owners_is_read_though_nobody_committed(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    """The README's loop, with auto_offset_reset="latest": the first owner read nothing."""
    topic = kafka_topic()
    (zero,) = tps(topic, 0)
    fill(kafka, topic, {0: 10})
    first = open_consumer(group_id=group, auto_offset_reset="latest")
    first.subscribe([topic])
    while zero not in first.assignment():
        first.poll(timeout=0.2)
    assert first.position(zero) == 10
    assert first.commit_async(OffsetLedger().committable()).result(20)
    first.close()
    written = fill(kafka, topic, {0: 5}, start=10)
    second = open_consumer(group_id=group, auto_offset_reset="latest")
    second.subscribe([topic])
    assert ids(poll_until(second, 5)) == written


def test_committed_is_none_where_nothing_was_committed(kafka_topic: Topic, open_consumer: Open, group: str) -> None:
    tp = TopicPartition(kafka_topic(), 0)
    assert open_consumer(group_id=group).committed(tp) == {tp: None}


@pytest.mark.requirement("surface/assign")
def test_assign_reads_without_a_group(kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 5, 1: 5})
    consumer = open_consumer()
    consumer.assign(tps(topic, 1))
    assert ids(poll_until(consumer, 5)) == written[5:]
    consumer.assign(tps(topic, 0, 1))
    assert ids(poll_until(consumer, 5)) == written[:5], "a partition that stays assigned keeps its position"
    with pytest.raises(IllegalStateError, match="group_id"):
        consumer.commit()


def test_assign_with_a_group_commits_and_starts_at_the_committed_offset(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 10})
    (tp,) = tps(topic, 0)
    with open_consumer(group_id=group) as first:
        first.assign([tp])
        poll_until(first, 10)
        first.commit({tp: 6})
    with open_consumer(group_id=group) as second:
        second.assign([tp])
        assert second.position(tp) == 6
        assert ids(poll_until(second, 4)) == written[6:]


@pytest.mark.requirement("surface/ends")
@pytest.mark.requirement("surface/seek")
def test_position_seek_and_both_ends(kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 10, 1: 3})
    zero, one = tps(topic, 0, 1)
    consumer = open_consumer()
    consumer.assign([zero])
    assert consumer.position(zero) == 0
    assert consumer.beginning_offsets([zero, one]) == {zero: 0, one: 0}
    assert consumer.end_offsets([zero, one]) == {zero: 10, one: 3}

    poll_until(consumer, 10)
    assert (consumer.position(zero), consumer.lag(zero)) == (10, 0)
    consumer.seek(zero, 7)
    assert consumer.position(zero) == 7
    assert ids(poll_until(consumer, 3)) == written[7:10]
    consumer.seek_to_beginning()
    assert ids(poll_until(consumer, 10)) == written[:10]
    consumer.seek(zero, 2)
    consumer.seek_to_end(zero)
    assert consumer.position(zero) == 10
    assert ids(fill_and_poll(kafka, consumer, topic, start=10)) == [(0, 10)]
    with pytest.raises(ValueError, match="negative"):
        consumer.seek(zero, -5)
    with pytest.raises(ValueError, match="not assigned"):
        consumer.seek(one, 0)


def fill_and_poll(kafka: LocalKafka, consumer: Consumer, topic: str, *, start: int) -> list[ConsumerRecord]:
    fill(kafka, topic, {0: 1}, start=start)
    return poll_until(consumer, 1)


@pytest.mark.requirement("surface/seek")
def test_what_was_polled_before_a_seek_is_never_returned_after_it(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 1000})
    consumer = open_consumer(max_poll_records=10)
    consumer.assign(tps(topic, 0))
    poll_until(consumer, 1)
    for offset in (500, 0, 980, 3, 250):
        consumer.seek(TopicPartition(topic, 0), offset)
        assert ids(poll_until(consumer, 1))[0] == (0, offset)


@pytest.mark.requirement("surface/pause")
def test_pause_stops_one_partition_and_loses_nothing_of_it(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 100, 1: 100})
    zero, one = tps(topic, 0, 1)
    consumer = open_consumer(max_poll_records=10)
    consumer.assign([zero, one])
    before = poll_until(consumer, 10)

    consumer.pause(zero)
    assert consumer.paused() == {zero}
    rest = 100 - len([each for each in before if each.partition == 1])
    during = poll_until(consumer, rest)
    assert {each.partition for each in during} == {1}
    assert not consumer.poll(timeout=0.1)

    consumer.resume(zero)
    assert consumer.paused() == set()
    after = poll_until(consumer, 200 - len(before) - len(during))
    assert sorted(ids(before + during + after)) == written


@pytest.mark.requirement("KIP-41/1")
@pytest.mark.requirement("KIP-41/4")
def test_max_poll_records_bounds_a_poll_and_loses_nothing(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic(3)
    written = fill(kafka, topic, {0: 50, 1: 50, 2: 50})
    consumer = open_consumer(max_poll_records=7)
    consumer.assign(tps(topic, 0, 1, 2))
    seen: list[tuple[int, int]] = []
    while len(seen) < 150:
        records = consumer.poll(timeout=5)
        assert 0 < len(records) <= 7
        seen += ids(records)
    assert sorted(seen) == written
    consumer.seek_to_beginning()
    assert len(consumer.poll(timeout=5, max_records=2)) == 2


def test_a_small_buffer_that_is_taken_bit_by_bit_is_filled_again_to_the_end(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    """What a poll takes leaves the buffer whole: a byte that stayed behind each time would stop the partition."""
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 2000}, settings={"batch.num.messages": 10})
    consumer = open_consumer(max_poll_records=7, fetch_buffer_bytes=1000)
    consumer.assign(tps(topic, 0))
    assert ids(poll_until(consumer, 2000)) == written


@pytest.mark.requirement("threading/32")
def test_iteration_goes_on_over_polls(kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 25})
    consumer = open_consumer(max_poll_records=10)
    consumer.assign(tps(topic, 0))
    records = iter(consumer)
    assert ids(next(records) for _ in range(25)) == written


@pytest.mark.requirement("surface/codecs")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_of_librdkafkas_producer(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, codec: str
) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 2000}, settings={"compression.type": codec, "linger.ms": 50})
    consumer = open_consumer()
    consumer.assign(tps(topic, 0))
    assert ids(poll_until(consumer, 2000)) == written


@pytest.mark.requirement("surface/headers")
def test_keys_headers_timestamps_and_nulls_arrive_as_written(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    from confluent_kafka import Producer

    topic = kafka_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b"v", b"k", partition=0, timestamp=1234567890123, headers=[("a", b"1"), ("a", None)])
    producer.produce(topic, None, None, partition=0, timestamp=1)
    assert producer.flush(20) == 0
    consumer = open_consumer()
    consumer.assign(tps(topic, 0))
    full, empty = poll_until(consumer, 2)
    assert (full.key, full.value, full.timestamp) == (b"k", b"v", 1234567890123)
    assert list(full.headers) == [("a", b"1"), ("a", None)]
    assert (empty.key, empty.value, list(empty.headers)) == (None, None, [])


@pytest.mark.requirement("surface/reset")
def test_auto_offset_reset_latest_starts_at_the_end(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 5})
    consumer = open_consumer(group_id=group, auto_offset_reset="latest")
    consumer.assign(tps(topic, 0))
    assert consumer.position(*tps(topic, 0)) == 5
    assert ids(fill_and_poll(kafka, consumer, topic, start=5)) == [(0, 5)]


@pytest.mark.requirement("surface/reset")
def test_auto_offset_reset_none_is_an_error_that_a_seek_mends(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 5, 1: 5})
    zero, one = tps(topic, 0, 1)
    consumer = open_consumer(group_id=group, auto_offset_reset="none")
    consumer.assign([zero, one])
    consumer.seek(one, 0)
    with pytest.raises(NoOffsetForPartitionError, match=f"{zero}.*seek to go on"):
        poll_until(consumer, 6)
    consumer.seek(one, 0)
    assert ids(poll_until(consumer, 5)) == written[5:], "the other partition goes on"
    consumer.seek(zero, 0)
    assert ids(poll_until(consumer, 5)) == written[:5]


def test_an_offset_out_of_range_follows_the_reset_policy(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    written = fill(kafka, topic, {0: 5})
    (tp,) = tps(topic, 0)
    consumer = open_consumer()
    consumer.assign([tp])
    consumer.seek(tp, 100)
    assert ids(poll_until(consumer, 5)) == written
    strict = open_consumer(auto_offset_reset="none")
    strict.assign([tp])
    strict.seek(tp, 100)
    with pytest.raises(OffsetOutOfRangeError, match=f"{tp}.*100"):
        strict.poll(timeout=20)
    strict.seek(tp, 4)
    assert ids(poll_until(strict, 1)) == written[4:]


@pytest.mark.requirement("surface/read-committed")
def test_read_committed_leaves_aborted_transactions_out(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    transact(kafka, topic, [("a", True), ("b", False), ("c", True), ("d", False), ("e", True)])
    committed = open_consumer(isolation_level="read_committed")
    committed.assign(tps(topic, 0))
    assert [each.value for each in poll_until(committed, 9)] == [b"a"] * 3 + [b"c"] * 3 + [b"e"] * 3
    (tp,) = tps(topic, 0)
    drain(committed, tp)
    assert committed.position(tp) == committed.end_offsets([tp])[tp] == 20, "markers count, though nobody sees them"
    everything = open_consumer()
    everything.assign(tps(topic, 0))
    assert len(poll_until(everything, 15)) == 15


@pytest.mark.requirement("surface/read-committed")
def test_read_committed_waits_for_an_open_transaction(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open
) -> None:
    topic = kafka_topic()
    (tp,) = tps(topic, 0)
    transact(kafka, topic, [("a", True)])
    producer = transactional(kafka)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(20) == 0
    consumer = open_consumer(isolation_level="read_committed")
    consumer.assign([tp])
    assert len(poll_until(consumer, 3)) == 3
    assert consumer.end_offsets([tp]) == {tp: 4}, "the last stable offset"
    assert not consumer.poll(timeout=0.3)
    producer.commit_transaction(20)
    assert [each.value for each in poll_until(consumer, 1)] == [b"open"]


def transactional(kafka: LocalKafka) -> Any:
    import uuid

    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    return producer


def transact(kafka: LocalKafka, topic: str, transactions: list[tuple[str, bool]]) -> None:
    """Each transaction writes three records; True commits, False aborts."""
    producer = transactional(kafka)
    for text, commits in transactions:
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, text.encode(), partition=0)
        assert producer.flush(20) == 0
        producer.commit_transaction(20) if commits else producer.abort_transaction(20)


def drain(consumer: Consumer, tp: TopicPartition) -> None:
    for _ in range(50):
        if consumer.lag(tp) == 0:
            return
        consumer.poll(timeout=0.1)


@pytest.mark.requirement("KIP-983/5")
@pytest.mark.vector(71)
def test_auto_commit_commits_what_earlier_polls_returned(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 10})
    (tp,) = tps(topic, 0)
    with open_consumer(group_id=group, enable_auto_commit=True, max_poll_records=10) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, 10)
        with pytest.raises(ConfigError, match="enable_auto_commit"):
            consumer.delay_revoke([tp])
    assert open_consumer(group_id=group).committed(tp) == {tp: OffsetAndMetadata(offset=10, leader_epoch=0)}


def test_auto_commit_goes_on_at_its_interval(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 10})
    (tp,) = tps(topic, 0)
    consumer = open_consumer(group_id=group, enable_auto_commit=True, auto_commit_interval=0.05)
    consumer.subscribe([topic])
    poll_until(consumer, 10)
    for _ in range(200):
        consumer.poll(timeout=0.05)
        found = consumer.committed(tp)[tp]
        if found is not None and found.offset == 10:
            return
    pytest.fail("auto-commit committed nothing")


def test_unsubscribe_leaves_and_subscribe_joins_again(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    one, other = kafka_topic(), kafka_topic()
    fill(kafka, one, {0: 3})
    fill(kafka, other, {0: 4})
    consumer = open_consumer(group_id=group)
    consumer.subscribe([one])
    poll_until(consumer, 3)
    consumer.commit()
    consumer.unsubscribe()
    assert not consumer.assignment()
    assert not consumer.subscription()
    with pytest.raises(IllegalStateError, match="subscribe or assign first"):
        consumer.poll(timeout=0)
    consumer.subscribe([other])
    assert {each.topic for each in poll_until(consumer, 4)} == {other}
    consumer.unsubscribe()
    consumer.assign(tps(one, 0))
    assert consumer.position(*tps(one, 0)) == 3


def test_a_new_subscription_replaces_the_old_one(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    one, other = kafka_topic(), kafka_topic()
    fill(kafka, one, {0: 3})
    fill(kafka, other, {0: 4})
    consumer = open_consumer(group_id=group)
    consumer.subscribe([one])
    poll_until(consumer, 3)
    consumer.subscribe([other])
    assert {each.topic for each in poll_until(consumer, 4)} == {other}
    for _ in range(100):
        if consumer.assignment() == set(tps(other, 0)):
            return
        consumer.poll(timeout=0.1)
    pytest.fail(f"the old topic's partition is still owned: {consumer.assignment()}")


def test_subscribe_and_assign_exclude_each_other(kafka_topic: Topic, open_consumer: Open, group: str) -> None:
    topic = kafka_topic()
    consumer = open_consumer(group_id=group)
    consumer.subscribe([topic])
    with pytest.raises(IllegalStateError, match="unsubscribe before assign"):
        consumer.assign(tps(topic, 0))
    with pytest.raises(TypeError, match="takes a list of topics"):
        consumer.subscribe(topic)
    with pytest.raises(ConfigError, match="group_id"):
        open_consumer().subscribe([topic])


@pytest.mark.requirement("threading/24")
def test_a_poll_without_records_ends_at_its_timeout(kafka_topic: Topic, open_consumer: Open) -> None:
    consumer = open_consumer()
    consumer.assign(tps(kafka_topic(), 0))
    assert not consumer.poll(timeout=0)
    assert len(consumer.poll(timeout=0.05)) == 0


@pytest.mark.requirement("threading/24")
def test_a_position_that_no_broker_tells_ends_at_its_timeout() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Consumer(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}") as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(KafkaTimeoutError):
            consumer.position(TopicPartition("t", 0), timeout=0)
        consumer.close(timeout=0)


@pytest.mark.requirement("surface/use-after-close")
def test_close_is_idempotent_and_use_after_it_refused(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 3})
    consumer = open_consumer(group_id=group)
    consumer.subscribe([topic])
    poll_until(consumer, 3)
    consumer.close()
    consumer.close()
    for call in (consumer.assignment, consumer.poll, consumer.commit, consumer.unsubscribe):
        with pytest.raises(ConsumerClosedError):
            call()
    assert "closed" in repr(consumer)


@pytest.mark.requirement("threading/8")
def test_building_and_closing_a_consumer_needs_no_broker() -> None:
    with Consumer(bootstrap_servers="localhost:1", group_id="g") as consumer:
        assert consumer.assignment() == set()


def test_ranges_cover_the_log_and_commit(kafka: LocalKafka, kafka_topic: Topic, group: str) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 10, 1: 20})
    zero, one = tps(topic, 0, 1)
    with RangeConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        first = ranges_until(consumer, {zero: 10, one: 20})
        assert sorted((each.partition, each.start, each.end) for each in first) == [(0, 0, 10), (1, 0, 20)]
        fill(kafka, topic, {1: 5}, start=20)
        (more,) = ranges_until(consumer, {one: 25})
        assert (more.start, more.end) == (20, 25)
        consumer.commit()
        assert {tp: each.offset for tp, each in consumer.committed(zero, one).items() if each} == {zero: 10, one: 25}


def test_ranges_are_bounded_by_max_offsets(kafka: LocalKafka, kafka_topic: Topic) -> None:
    topic = kafka_topic()
    fill(kafka, topic, {0: 10})
    with RangeConsumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(tps(topic, 0))
        sizes: list[int] = []
        while sum(sizes) < 10:
            ranges = consumer.poll(timeout=20, max_offsets=4)
            sizes.append(sum(each.end - each.start for each in ranges))
        assert sizes == [4, 4, 2]


@pytest.mark.requirement("surface/settings-while-running")
@pytest.mark.rule("M")
def test_settings_that_change_while_it_runs(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 30})
    consumer = open_consumer(group_id=group, max_poll_records=5)
    consumer.subscribe([topic])
    sizes: list[int] = []
    while sum(sizes) < 10:
        sizes.append(len(consumer.poll(timeout=30)))
    assert max(sizes) == 5
    consumer.change_settings(max_poll_records=3, fetch_fairness="proportional", fetch_max_wait=0.1)
    got: list[tuple[int, int]] = []
    while len(got) < 20:
        records = consumer.poll(timeout=30)
        assert len(records) <= 3
        got += ids(records)
    assert len(set(got)) == 20
