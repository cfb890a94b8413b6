"""Listeners that call the consumer: offsets kept elsewhere, positions read, pauses from the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from kafka_help import Member, drive, each_once, ids, poll_until, tps

from filled_topics import fill
from instride import Consumer, RebalanceListener, TopicPartition
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]
Join = Callable[..., Member]

MODES = ["two-step", "immediate"]


@pytest.mark.vector(76)
@pytest.mark.parametrize("mode", MODES)
def test_a_seek_when_assigned_decides_where_to_begin(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str, mode: str
) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 10, 1: 10})

    class Seeks(RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            for tp in partitions:
                consumer.seek(tp, 7)

    consumer = open_consumer(group_id=group, revoke_mode=mode)
    consumer.subscribe([topic], listener=Seeks())
    assert sorted(ids(poll_until(consumer, 6))) == [each for each in written if each[1] >= 7]


@pytest.mark.requirement("KIP-983/6")
@pytest.mark.requirement("threading/6")
@pytest.mark.parametrize("mode", MODES)
def test_blocking_calls_within_a_listener_return(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str, mode: str
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 10, 1: 10})
    found: list[object] = []

    class Asks(RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            found.append([consumer.position(tp) for tp in partitions])
            found.append(list(consumer.committed(*partitions).values()))
            found.append(list(consumer.end_offsets(partitions).values()))
            consumer.commit(dict.fromkeys(partitions, 4))
            found.append([each.offset for each in consumer.committed(*partitions).values() if each is not None])

    consumer = open_consumer(group_id=group, revoke_mode=mode)
    consumer.subscribe([topic], listener=Asks())
    poll_until(consumer, 20)
    assert found == [[0, 0], [None, None], [10, 10], [4, 4]]


def test_a_pause_when_assigned_returns_nothing_until_resumed(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 10, 1: 10})

    class Pauses(RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            consumer.pause(partitions[0])

    consumer = open_consumer(group_id=group)
    consumer.subscribe([topic], listener=Pauses())
    assert ids(poll_until(consumer, 10)) == written[10:]
    assert not consumer.poll(timeout=0.2)
    consumer.resume(*consumer.paused())
    assert ids(poll_until(consumer, 10)) == written[:10]


@pytest.mark.parametrize("mode", MODES)
def test_a_paused_partition_moves_and_is_read_by_its_new_owner(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, mode: str
) -> None:
    topic = kafka_topic(4)
    a = join("a", topic, revoke_mode=mode)
    drive(a, until=lambda: len(a.owned) == 4)
    a.consumer.pause(*a.owned)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    b = join("b", topic, revoke_mode=mode)
    drive(a, b, until=lambda: len(b.records) == 20 and len(a.consumer.paused()) == 2)
    assert a.records == []
    a.consumer.resume(*a.consumer.paused())
    drive(a, b, until=lambda: len(a.records) == 20)
    each_once(written, a, b)


def test_on_revoked_runs_when_unsubscribing_and_closing(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(2)
    revoked: list[list[int]] = []

    class Writes(RebalanceListener):
        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            consumer.commit(dict.fromkeys(partitions, 1))
            revoked.append([each.partition for each in partitions])

    fill(kafka, topic, {0: 5, 1: 5})
    consumer = open_consumer(group_id=group)
    for leave in (consumer.unsubscribe, consumer.close):
        consumer.subscribe([topic], listener=Writes())
        while len(consumer.assignment()) < 2:
            consumer.poll(timeout=0.1)
        leave()
    assert revoked == [[0, 1], [0, 1]]
    found = open_consumer(group_id=group).committed(*tps(topic, 0, 1))
    assert {each.offset for each in found.values() if each is not None} == {1}


@pytest.mark.parametrize("mode", MODES)
def test_an_error_in_on_revoked_is_raised_once_and_the_partition_still_moves(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, mode: str
) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 5, 1: 5})

    class Breaks(RebalanceListener):
        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            if b_joined:
                raise LookupError("of the user")

    b_joined = False
    a = join("a", topic, listener=Breaks(), revoke_mode=mode)
    drive(a, until=lambda: len(a.records) == 10)
    b = join("b", topic)
    b_joined = True
    with pytest.raises(LookupError, match="of the user"):
        drive(a, b, until=lambda: False)
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 1)
    b_joined = False
    written += fill(kafka, topic, {0: 5, 1: 5}, start=5)
    drive(a, b, until=lambda: len(a.records) + len(b.records) == 20)
    each_once(written, a, b)


@pytest.mark.requirement("KIP-983/5")
def test_auto_commit_in_immediate_mode_hands_over_exactly_once(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 50))
    settings = {"enable_auto_commit": True, "revoke_mode": "immediate", "max_poll_records": 7}
    a = join("a", topic, commits=False, **settings)
    drive(a, until=lambda: len(a.records) >= 30)
    b = join("b", topic, commits=False, **settings)
    drive(a, b, until=lambda: len(a.records) + len(b.records) == 200)
    a.consumer.close()
    written += fill(kafka, topic, dict.fromkeys(range(4), 5), start=50)
    drive(b, until=lambda: len(a.records) + len(b.records) == 220)
    each_once(written, a, b)
