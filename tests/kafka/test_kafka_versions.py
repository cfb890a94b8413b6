"""The same basics on a real Kafka 2.8 (with ZooKeeper), 3.9 and 4.x: versions are negotiated, nothing is configured.

Each version is started once; the newest is the run's own broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from kafka_help import PATIENCE, Member, drive, each_once, ids, poll_until, tps
from peer_help import Peer

from filled_topics import fill
from instride import Consumer, OffsetAndMetadata, TopicPartition
from instride.testing import LocalKafka
from instride.testing._kafka.kafka_home import KAFKA_VERSION, KAFKA_VERSIONS

Topic = Callable[..., str]
Open = Callable[..., Consumer]
Join = Callable[..., Member]
Start = Callable[..., Peer]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module", params=list(KAFKA_VERSIONS))
def instride_kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """In place of the run's broker, and so where topics are made: one of each version."""
    if request.param == KAFKA_VERSION:
        yield request.getfixturevalue("instride_kafka")
        return
    with LocalKafka(version=request.param) as started:
        yield started


@pytest.fixture(scope="module")
def kafka(instride_kafka: LocalKafka) -> LocalKafka:
    return instride_kafka


@pytest.mark.drawn(1)
@pytest.mark.requirement("surface/versions")
def test_all_codecs_are_read_committed_and_gone_on_from(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    topic = kafka_topic(len(CODECS))
    written: list[tuple[int, int]] = []
    for partition, codec in enumerate(CODECS):
        written += fill(kafka, topic, {partition: 20}, settings={"compression.type": codec})
    first = open_consumer(group_id=group)
    first.subscribe([topic])
    assert sorted(ids(poll_until(first, len(written)))) == written
    first.commit(timeout=PATIENCE)
    first.close()

    added = fill(kafka, topic, dict.fromkeys(range(len(CODECS)), 5), start=20)
    second = open_consumer(group_id=group)
    second.subscribe([topic])
    assert sorted(ids(poll_until(second, len(added)))) == added


@pytest.mark.requirement("surface/ends")
def test_offsets_are_looked_up(kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 7})
    consumer = open_consumer(group_id=group)
    zero, one = (TopicPartition(topic, number) for number in range(2))
    assert consumer.beginning_offsets([zero, one], timeout=PATIENCE) == {zero: 0, one: 0}
    assert consumer.end_offsets([zero, one], timeout=PATIENCE) == {zero: 7, one: 0}
    consumer.assign([zero, one])
    consumer.commit({zero: OffsetAndMetadata(offset=3, metadata="half")}, timeout=PATIENCE)
    found = consumer.committed(zero, one, timeout=PATIENCE)
    assert found == {zero: OffsetAndMetadata(offset=3, metadata="half"), one: None}


@pytest.mark.requirement("surface/versions")
def test_a_delayed_partition_is_handed_over_when_its_work_is_done(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    first = join("first", topic)
    drive(first, until=lambda: len(first.records) == 40)
    first.holding = set(tps(topic, *range(4)))
    second = join("second", topic)
    drive(first, second, until=lambda: len(first.revocation_requested) == 2)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    kept = sorted(first.owned - set(first.revocation_requested))
    drive(first, second, until=lambda: len(first.records) == 60)
    assert {record.topic_partition for record in first.records[40:]} == set(kept)
    assert second.records == []

    first.holding.clear()
    drive(first, second, until=lambda: len(second.records) == 20)
    each_once(written, first, second)
    assert first.lost == second.lost == []


@pytest.mark.drawn(1)
@pytest.mark.requirement("surface/versions")
@pytest.mark.parametrize("kind", ["java", "confluent"])
def test_a_group_with_another_client(
    kind: str, kafka: LocalKafka, kafka_topic: Topic, join: Join, start_peer: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The Java client is the one of the broker's own version."""
    caplog.set_level(logging.INFO, "instride.network")
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    theirs = start_peer(kind, "theirs", topic)
    drive(theirs, until=lambda: len(theirs.seen) == 40)
    ours = join("ours", topic)
    drive(ours, theirs, until=lambda: len(ours.owned) == len(theirs.owned) == 2)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(ours, theirs, until=lambda: len(ours.seen) + len(theirs.seen) == 80)
    theirs.close()
    drive(ours, until=lambda: len(ours.owned) == 4)
    each_once(written, ours, theirs)
    assert ours.lost == theirs.lost == []


@pytest.mark.slow
def test_a_node_comes_back(kafka: LocalKafka) -> None:
    """Of an older version: ZooKeeper forgets the killed node, and its topics are served again."""
    if kafka.version in {KAFKA_VERSION, ""}:
        pytest.skip("the run's own broker is not to be killed; tests/testing does so to another")
    kafka.create_topic("stays", 2)
    kafka.kill(1)
    kafka.restart(1)
    assert kafka.topics()["stays"] == 2
    assert kafka.leader("stays", 1) == 1
    kafka.delete_topic("stays")
    assert "stays" not in kafka.topics()
