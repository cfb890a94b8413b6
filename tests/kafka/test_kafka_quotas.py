"""A broker that throttles us, since a quota is used up (KIP-124, KIP-219): that comes later, all else goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any, Final

import pytest
from kafka_help import PATIENCE, QUICK, Member, drive, each_once, tps

from filled_topics import fill
from instride import Consumer
from instride.testing import LocalKafka, Recorder, find_java, find_kafka

MANY: Final = 50_000
"""Records, of some 15 bytes each."""


def configure_client(kafka: LocalKafka, client_id: str, *change: str) -> None:
    """``kafka-configs --alter`` of one client id."""
    command = [str(find_java().path), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"]
    command += ["-cp", find_kafka(kafka.version or None).class_path, "kafka.admin.ConfigCommand"]
    command += ["--bootstrap-server", kafka.bootstrap_servers, "--alter", *change]
    command += ["--entity-type", "clients", "--entity-name", client_id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def metric(consumer: Consumer, name: str) -> float:
    return next(value for each, value in consumer.metrics().items() if each.name == name)


@pytest.fixture
def open_member(kafka_cluster: LocalKafka, group: str, history: Recorder) -> Callable[..., Member]:
    def build(client_id: str, topic: str, **settings: Any) -> Member:
        merged: dict[str, Any] = {**QUICK, **settings}
        consumer = Consumer(
            bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=group, client_id=client_id, **merged
        )
        history.watch(consumer, client_id, finishes="delivered")
        consumer.subscribe([topic])
        return Member(client_id, consumer)

    return build


@pytest.mark.requirement("surface/throttling")
@pytest.mark.history("faults")  # a throttled partition has records to read, and its turns return none
def test_a_broker_that_throttles_our_fetches_stops_nobody_else(
    kafka_cluster: LocalKafka, open_member: Callable[..., Member]
) -> None:
    topic = "throttled"
    kafka_cluster.create_topic(topic, 6)
    throttled, *others = tps(topic, *range(6))
    node = kafka_cluster.leader(topic, throttled.partition)
    elsewhere = next(each for each in others if kafka_cluster.leader(topic, each.partition) != node)
    configure_client(kafka_cluster, "greedy", "--add-config", "consumer_byte_rate=10000")
    written = fill(kafka_cluster, topic, {throttled.partition: MANY})
    a = open_member("greedy", topic, session_timeout=3.0, max_poll_records=5000)
    with a.consumer:
        drive(a, until=lambda: metric(a.consumer, "fetch-throttle-time-max") > 0)
        beats = metric(a.consumer, "heartbeat-total")
        written += fill(kafka_cluster, topic, {elsewhere.partition: 100})
        drive(a, until=lambda: sum(each.partition == elsewhere.partition for each in a.records) == 100)
        drive(a, until=lambda: metric(a.consumer, "heartbeat-total") >= beats + 30)
        assert len(a.records) < len(written), "while the one partition was throttled"

        configure_client(kafka_cluster, "greedy", "--delete-config", "consumer_byte_rate")
        drive(a, until=lambda: len(a.records) == len(written), timeout=4 * PATIENCE)
        each_once(written, a)
        assert a.lost == []
        assert len({(each.partition, each.epoch) for each in a.records}) == 2, "no partition was assigned anew"


@pytest.mark.drawn(1, "faults")
@pytest.mark.history("faults")
def test_throttled_in_everything_we_stay_a_member_and_commit(
    kafka_cluster: LocalKafka, open_member: Callable[..., Member]
) -> None:
    """A quota of processor time delays heartbeats, joins and commits too, and fetch responses bring no records."""
    topic = "slow-motion"
    kafka_cluster.create_topic(topic, 6)
    written = fill(kafka_cluster, topic, dict.fromkeys(range(6), 10))
    a, b = (open_member(name, topic, session_timeout=10.0) for name in ("slow-a", "slow-b"))
    with a.consumer, b.consumer:
        drive(a, b, until=lambda: len(a.records) + len(b.records) == 60 and len(a.owned) == len(b.owned) == 3)
        for name in ("slow-a", "slow-b"):
            configure_client(kafka_cluster, name, "--add-config", "request_percentage=0.01")
        drive(a, b, until=lambda: all(metric(each.consumer, "fetch-throttle-time-max") > 0 for each in (a, b)))
        beats = [metric(each.consumer, "heartbeat-total") for each in (a, b)]
        written += fill(kafka_cluster, topic, dict.fromkeys(range(6), 10), start=10)
        a.consumer.commit(timeout=PATIENCE)
        b.consumer.close()  # a rebalance in slow motion
        drive(a, until=lambda: len(a.owned) == 6)
        drive(a, until=lambda: metric(a.consumer, "heartbeat-total") >= beats[0] + 5)
        configure_client(kafka_cluster, "slow-a", "--delete-config", "request_percentage")
        drive(a, until=lambda: len(a.records) + len(b.records) == len(written), timeout=2 * PATIENCE)
        each_once(written, a, b)
        assert a.lost == b.lost == []
