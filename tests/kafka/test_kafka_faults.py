"""Processes that die, sleep or are busy, and brokers that come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest
from kafka_help import PATIENCE, QUICK, Member, drive, each_once, poll_until, tps
from peer_help import Peer

from drawn_by_commit import WHOLE
from filled_topics import fill
from instride import Consumer, TopicPartition
from instride.errors import ConsumerClosedError, KafkaError
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]
Join = Callable[..., Member]
Start = Callable[..., Peer]

SHORT = 2.0
"""Seconds of a session that is to end within the test."""


def committed(consumer: Consumer, topic: str, partitions: int) -> dict[int, int]:
    found = consumer.committed(*tps(topic, *range(partitions)))
    return {tp.partition: each.offset if each is not None else 0 for tp, each in found.items()}


@pytest.mark.drawn(1, "faults")
def test_after_sigkill_in_mid_batch_the_other_goes_on_at_the_last_commit(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, start_peer: Start, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 200))
    killed = start_peer("instride", "killed", topic, session_timeout=SHORT, max_poll_records=50)
    for command in ["poll-and-commit"] * 2 + ["poll"]:
        before = len(killed.seen)
        while len(killed.seen) < before + 50:
            killed.say(command)
            killed.hear()
    killed.kill()

    starts = committed(open_consumer(group_id=group), topic, 4)
    assert sum(starts.values()) >= 100
    other = join("other", topic)
    drive(other, until=lambda: len(other.records) == 800 - sum(starts.values()))
    assert sorted(other.seen) == [(p, offset) for p, offset in written if offset >= starts[p]]
    assert set(killed.seen) | set(other.seen) == set(written), "at least once"


@pytest.mark.drawn(1, "faults")
def test_after_a_suspension_longer_than_the_session_nothing_of_the_lost_is_returned(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, start_peer: Start
) -> None:
    """Fence yourself: its buffer is full of records that have another owner by now."""
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 500, 1: 500})
    sleeper = start_peer("instride", "sleeper", topic, session_timeout=SHORT, max_poll_records=10)
    while len(sleeper.seen) < 50:
        sleeper.say("poll-and-commit")
        sleeper.hear()
    sleeper.suspend()
    other = join("other", topic)
    drive(other, until=lambda: len(other.records) == 1000 - len(sleeper.seen))

    sleeper.say("poll")
    sleeper.resume()
    assert sleeper.hear() == [], "the first thing that it does is to return nothing"
    while not sleeper.lost:
        assert sleeper.turn() == []
    assert set(sleeper.lost) == set(tps(topic, 0, 1))
    drive(sleeper, other, until=lambda: len(sleeper.owned) == len(other.owned) == 1)
    each_once(written, sleeper, other)


@pytest.mark.requirement("surface/busy")
@pytest.mark.requirement("KIP-41/5")
@pytest.mark.requirement("threading/3")
def test_a_handler_that_never_lets_go_of_the_processor_stays_a_member(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 10, 1: 10})
    busy = join("busy", topic, session_timeout=1.5)
    drive(busy, until=lambda: len(busy.records) == 20)
    end = time.monotonic() + 3 * 1.5
    while time.monotonic() < end:
        sum(range(1000))  # holds the interpreter
    written += fill(kafka, topic, {0: 10, 1: 10}, start=10)
    drive(busy, until=lambda: len(busy.records) == 40)
    each_once(written, busy)
    assert busy.lost == []
    assert len(epochs(busy)) == 2, "no partition was assigned anew"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.requirement("threading/3")
@pytest.mark.requirement("surface/busy")
def test_rebalances_go_on_while_a_handler_is_busy_for_twelve_sessions(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, start_peer: Start
) -> None:
    """It never polls and never lets go of the interpreter by itself: another member comes, goes and comes meanwhile.

    `make whole` has sessions of six seconds, and so is busy for more than a minute.
    """
    session = 6.0 if WHOLE else SHORT
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    busy = join("busy", topic, session_timeout=session)
    drive(busy, until=lambda: len(busy.records) == 40)
    busy.consumer.commit()
    peers: list[Peer] = []

    def come_and_go() -> None:
        for name in ("first", "second"):
            peer = start_peer("instride", name, topic, session_timeout=session)
            peer.verb = "poll-and-commit"
            peers.append(peer)
            while "joined group" not in peer.log:
                peer.turn()
            if name == "first":
                peer.close()

    visitors = Thread(target=come_and_go)
    visitors.start()
    end = time.monotonic() + 12 * session
    while time.monotonic() < end or visitors.is_alive():
        sum(range(1000))
    visitors.join()
    second = peers[1]
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(busy, second, until=lambda: len(busy.owned) == len(second.owned) == 2)
    drive(busy, second, until=lambda: len(busy.records) + len(second.seen) == 80)
    each_once(written, busy, *peers)
    assert busy.lost == second.lost == []


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    """One broker of this module's own, to be stopped and started."""
    with LocalKafka() as kafka:
        yield kafka


def member_of(kafka: LocalKafka, name: str, group: str, topic: str, **settings: Any) -> Member:
    merged: dict[str, Any] = {**QUICK, "session_timeout": 30.0, **settings}
    consumer = Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group, client_id=name, **merged)
    consumer.subscribe([topic])
    return Member(name, consumer)


def epochs(member: Member) -> set[tuple[int, int]]:
    return {(each.partition, each.epoch) for each in member.records}


@pytest.mark.requirement("surface/reconnects")
def test_a_broker_that_restarts_costs_neither_a_record_nor_a_rebalance(broker: LocalKafka, group: str) -> None:
    topic = "restarted"
    broker.create_topic(topic, 3)
    written = fill(broker, topic, dict.fromkeys(range(3), 100))
    a = member_of(broker, "a", group, topic, max_poll_records=20)
    with a.consumer:
        drive(a, until=lambda: len(a.records) >= 100)
        broker.restart(1)
        written += fill(broker, topic, dict.fromkeys(range(3), 100), start=100)
        drive(a, until=lambda: len(a.records) == 600)
        each_once(written, a)
        assert a.lost == []
        assert len(epochs(a)) == 3, "no partition was assigned anew"
        a.consumer.commit()
        assert committed(a.consumer, topic, 3) == dict.fromkeys(range(3), 200)


@pytest.mark.requirement("surface/reconnects")
def test_a_broker_that_is_killed_and_comes_back_costs_no_record(broker: LocalKafka, group: str) -> None:
    topic = "killed"
    broker.create_topic(topic, 3)
    written = fill(broker, topic, dict.fromkeys(range(3), 100))
    a = member_of(broker, "a", group, topic, max_poll_records=20)
    with a.consumer:
        drive(a, until=lambda: len(a.records) >= 100)
        a.consumer.commit()
        broker.kill(1)
        future = a.consumer.commit_async()
        for _ in range(20):
            a.turn()
        broker.restart(1)
        drive(a, until=lambda: len(a.records) == 300)
        future.result(timeout=30)
        written += fill(broker, topic, dict.fromkeys(range(3), 100), start=100)
        drive(a, until=lambda: len(a.records) == 600)
        each_once(written, a)
        assert a.lost == []


@pytest.mark.drawn(1, "faults")
def test_a_delayed_partition_is_still_ours_after_the_broker_restarted(broker: LocalKafka, group: str) -> None:
    topic = "delayed"
    broker.create_topic(topic, 2)
    written = fill(broker, topic, {0: 10, 1: 10})
    a = member_of(broker, "a", group, topic)
    a.holding = set(tps(topic, 0, 1))
    drive(a, until=lambda: len(a.records) == 20)
    b = member_of(broker, "b", group, topic)
    with a.consumer, b.consumer:
        drive(a, b, until=lambda: a.revocation_requested)
        broker.restart(1)
        written += fill(broker, topic, {0: 10, 1: 10}, start=10)
        drive(a, b, until=lambda: len(a.records) == 30)
        assert b.owned == frozenset()
        a.holding.clear()
        drive(a, b, until=lambda: len(a.records) + len(b.records) == 40)
        each_once(written, a, b)
        assert a.lost == []


@pytest.mark.requirement("surface/close-bounded")
def test_close_ends_in_time_with_its_coordinator_gone_and_futures_hear_of_it(broker: LocalKafka, group: str) -> None:
    topic = "closed-alone"
    broker.create_topic(topic, 2)
    fill(broker, topic, {0: 10, 1: 10})
    a = member_of(broker, "a", group, topic)
    a.consumer.poll(timeout=0)
    drive(a, until=lambda: len(a.records) == 20)
    a.consumer.commit()
    broker.kill(1)
    try:
        future = a.consumer.commit_async({tps(topic, 0)[0]: 5})
        closing = Thread(target=a.consumer.close, kwargs={"timeout": 1.0})
        closing.start()
        closing.join(PATIENCE)
        assert not closing.is_alive()
        assert isinstance(future.exception(timeout=0), KafkaError)
        with pytest.raises(ConsumerClosedError):
            a.consumer.poll(timeout=0)
    finally:
        broker.restart(1)
    b = member_of(broker, "b", group, topic)
    with b.consumer:
        assert committed(b.consumer, topic, 2) == {0: 10, 1: 10}


@pytest.mark.requirement("surface/rediscovery")
@pytest.mark.requirement("threading/11")
def test_when_the_coordinator_is_killed_another_takes_over(kafka_cluster: LocalKafka, group: str) -> None:
    topic = "orphaned"
    kafka_cluster.create_topic(topic, 6)
    written = fill(kafka_cluster, topic, dict.fromkeys(range(6), 50))
    a = member_of(kafka_cluster, "a", group, topic)
    with a.consumer:
        drive(a, until=lambda: len(a.records) == 300)
        a.consumer.commit()
        coordinator = a.consumer._driver._thread._machine._coordinator.node_id
        kafka_cluster.kill(coordinator)
        acks = {"acks": "all"}
        written += fill(kafka_cluster, topic, dict.fromkeys(range(6), 50), start=50, settings=acks)
        drive(a, until=lambda: len(a.records) == 600)
        a.consumer.commit()
        assert committed(a.consumer, topic, 6) == dict.fromkeys(range(6), 100)
        each_once(written, a)
        assert a.lost == []
        assert len(epochs(a)) == 6
        kafka_cluster.restart(coordinator)


@pytest.mark.requirement("surface/reconnects")
def test_a_broker_that_hangs_stops_only_what_it_leads(kafka_cluster: LocalKafka) -> None:
    topic = "hanging"
    kafka_cluster.create_topic(topic, 6)
    leaders = {partition: kafka_cluster.leader(topic, partition) for partition in range(6)}
    hung = leaders[0]
    assert hung is not None
    going = {partition: 10 for partition, leader in leaders.items() if leader != hung}
    settings: dict[str, Any] = {**QUICK, "request_timeout": 1.0, "connection_setup_timeout": 1.0}
    with Consumer(bootstrap_servers=kafka_cluster.bootstrap_servers, **settings) as consumer:
        consumer.assign(tps(topic, *range(6)))
        fill(kafka_cluster, topic, dict.fromkeys(range(6), 10))
        assert len(poll_until(consumer, 60)) == 60
        kafka_cluster.suspend(hung)
        try:
            fill(kafka_cluster, topic, going, start=10, settings={"acks": "1"})
            arrived = poll_until(consumer, sum(going.values()))
            assert {each.partition for each in arrived} == going.keys()
        finally:
            kafka_cluster.resume(hung)
        missing = {partition: 10 for partition in range(6) if partition not in going}
        fill(kafka_cluster, topic, missing, start=10)
        assert len(poll_until(consumer, sum(missing.values()))) == sum(missing.values())


@pytest.mark.drawn(1, "faults")
@pytest.mark.slow
def test_wherever_it_begins_is_found_again(kafka_cluster: LocalKafka, group: str) -> None:
    """A consumer that knows one broker only finds the others through it, and goes on when that one dies."""
    topic = "one-door"
    kafka_cluster.create_topic(topic, 3)
    written = fill(kafka_cluster, topic, dict.fromkeys(range(3), 10))
    settings: dict[str, Any] = {**QUICK, "session_timeout": 30.0}
    consumer = Consumer(bootstrap_servers=kafka_cluster.address(2), group_id=group, **settings)
    consumer.subscribe([topic])
    a = Member("a", consumer)
    with consumer:
        drive(a, until=lambda: len(a.records) == 30)
        kafka_cluster.kill(2)
        written += fill(kafka_cluster, topic, dict.fromkeys(range(3), 10), start=10)
        drive(a, until=lambda: len(a.records) == 60)
        each_once(written, a)
        assert TopicPartition(topic, 0) in a.owned
        kafka_cluster.restart(2)
