"""Metrics of members of a real group."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_help import PATIENCE, Member, drive, poll_until

from filled_topics import fill
from instride import Consumer
from instride.metrics import DESCRIPTIONS
from instride.testing import LocalKafka, find_java, find_kafka

Topic = Callable[..., str]
Join = Callable[..., Member]


def values(consumer: Consumer, **tags: str) -> dict[str, float]:
    """By name; those that have exactly these tags."""
    found = consumer.metrics().items()
    return {
        name.name: value for name, value in found if {**dict(name.tags), "client-id": ""} == {**tags, "client-id": ""}
    }


@pytest.mark.requirement("surface/metrics")
def test_a_member_counts_what_it_does(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 30, 1: 20})
    a = join("a", topic, commits=False)
    drive(a, until=lambda: len(a.records) == 50)
    a.consumer.commit(timeout=PATIENCE)
    drive(a, until=lambda: values(a.consumer)["heartbeat-total"] >= 1)
    seen = values(a.consumer)
    assert seen["records-consumed-total"] == values(a.consumer, topic=topic)["records-consumed-total"] == 50
    assert seen["bytes-consumed-total"] > 0
    assert seen["assigned-partitions"] == 2
    assert seen["records-lag-max"] == 0
    of_one = values(a.consumer, topic=topic, partition="0")
    assert of_one.pop("first-fetch-at") > 0
    assert of_one == {"records-lag": 0, "preferred-read-replica": -1}
    assert seen["commit-total"] >= 1
    assert seen["commit-sync-time-ns-total"] > 0
    assert seen["commit-latency-max"] >= seen["commit-latency-avg"] > 0
    assert seen["join-total"] >= 1
    assert (seen["sync-total"], seen["rebalance-total"]) == (1, 1)
    assert seen["fetch-total"] >= 1
    assert seen["fetch-latency-max"] > 0
    assert seen["connection-count"] >= 2, "a broker, and the coordinator's"
    assert seen["records-uncommitted"] == 0
    assert 0 <= seen["poll-idle-ratio-avg"] <= 1


@pytest.mark.requirement("surface/lag")
def test_lag_and_what_is_not_committed(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    a = join("a", topic, commits=False, max_poll_records=4)
    poll_until(a.consumer, 4)
    seen = values(a.consumer)
    assert seen["records-uncommitted"] == seen["records-consumed-total"]
    assert seen["records-lag-max"] == 10 - seen["records-consumed-total"]


@pytest.mark.requirement("surface/metrics")
def test_any_thread_may_ask_while_another_polls(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(2)
    a = join("a", topic)
    drive(a, until=lambda: len(a.owned) == 2)  # or both join the first generation, and nothing is handed over
    errors: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.wait(0.001):
                a.consumer.metrics()
                a.consumer.holdings()
        except BaseException as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        b = join("b", topic)
        drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 1)
        b.consumer.close()
        drive(a, until=lambda: len(a.owned) == 2)
    finally:
        done.set()
        asking.join(PATIENCE)
    assert errors == []
    assert values(a.consumer)["partitions-handed-over-total"] == 1
    assert values(b.consumer)["connection-count"] == 0, "closed"


@pytest.mark.requirement("surface/metrics")
def test_what_has_javas_name_has_it_in_the_java_client_too(kafka: LocalKafka, kafka_topic: Topic, group: str) -> None:
    """Group, name and tags; the deprecated tags that name topics otherwise do not count."""
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    command = [str(find_java().path), "-XX:TieredStopAtLevel=1", "-cp", find_kafka(kafka.version or None).class_path]
    command += [str(Path(__file__).with_name("java") / "Metrics.java"), kafka.bootstrap_servers, group, topic]
    output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    theirs = set()
    for line in output.splitlines():
        of, name, tags = line.split(" ")
        theirs.add((of, name, tuple(each for each in tags.split(",") if each != "client-id")))
    assert len(theirs) > 100
    ours = {name for name, about in DESCRIPTIONS.items() if about.java}
    assert sorted(ours - theirs) == []
