"""Shared groups with other clients: partitions go to and fro, each as leader, every record exactly once.

The first to join leads, and leads on while it stays. `drive` checks after every turn that nothing is owned twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from kafka_help import Member, drive, each_once, tps
from peer_help import Peer

from filled_topics import fill
from instride.testing import LocalKafka

Topic = Callable[..., str]
Join = Callable[..., Member]
Start = Callable[..., Peer]

KINDS = ["java", "confluent", "kafka_python"]
# Java before 3.4 gives away what lists an old generation: it reads that only from the assignor's own bytes.
LEADERS = ["java", "java-2.8.2", "confluent", "kafka_python"]


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "instride.network")


def leads(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether our last join made us the group's leader."""
    joined = [each for each in caplog.messages if ": joined group" in each]
    return joined[-1].endswith("as leader")


@pytest.mark.drawn(2)
@pytest.mark.requirement("surface/peers")
@pytest.mark.requirement("KIP-429/17")
@pytest.mark.parametrize("kind", KINDS)
def test_we_lead_and_a_peer_comes_and_goes(
    kind: str,
    kafka: LocalKafka,
    kafka_topic: Topic,
    join: Join,
    start_peer: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    ours = join("ours", topic)
    drive(ours, until=lambda: len(ours.records) == 40)

    theirs = start_peer(kind, "theirs", topic)
    drive(ours, theirs, until=lambda: len(ours.owned) == len(theirs.owned) == 2)
    assert leads(caplog)
    assert set(ours.revocation_requested) == theirs.owned
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(ours, theirs, until=lambda: len(ours.seen) + len(theirs.seen) == 80)

    theirs.close()
    drive(ours, until=lambda: len(ours.owned) == 4)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=20)
    drive(ours, until=lambda: len(ours.seen) + len(theirs.seen) == 120)
    each_once(written, ours, theirs)
    assert ours.lost == theirs.lost == []


@pytest.mark.drawn(2)
@pytest.mark.requirement("surface/peers")
@pytest.mark.parametrize("kind", LEADERS)
def test_a_peer_leads_and_we_come_and_go(
    kind: str,
    kafka: LocalKafka,
    kafka_topic: Topic,
    join: Join,
    start_peer: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    theirs = start_peer(kind, "theirs", topic)
    drive(theirs, until=lambda: len(theirs.seen) == 40)

    ours = join("ours", topic)
    drive(ours, theirs, until=lambda: len(ours.owned) == len(theirs.owned) == 2)
    assert not leads(caplog)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(ours, theirs, until=lambda: len(ours.seen) + len(theirs.seen) == 80)

    ours.consumer.close()
    drive(theirs, until=lambda: len(theirs.owned) == 4)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=20)
    drive(theirs, until=lambda: len(ours.seen) + len(theirs.seen) == 120)
    each_once(written, ours, theirs)
    assert ours.lost == theirs.lost == []


@pytest.mark.drawn(2)
@pytest.mark.requirement("KIP-983/13")
@pytest.mark.requirement("KIP-429/7")
@pytest.mark.parametrize("kind", LEADERS)
def test_what_we_delay_is_ours_through_rebalances_that_a_peer_leads(
    kind: str,
    kafka: LocalKafka,
    kafka_topic: Topic,
    join: Join,
    start_peer: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = kafka_topic(6)
    written = fill(kafka, topic, dict.fromkeys(range(6), 5))
    leader = start_peer(kind, "leader", topic)
    drive(leader, until=lambda: len(leader.seen) == 30)
    ours = join("ours", topic)
    drive(ours, leader, until=lambda: len(ours.owned) == len(leader.owned) == 3)
    ours.holding = set(tps(topic, *range(6)))

    third = join("third", topic)
    drive(ours, leader, third, until=lambda: ours.revocation_requested)
    delayed = frozenset(ours.revocation_requested)
    fourth = join("fourth", topic)
    drive(ours, leader, third, fourth, until=lambda: any("fourth: joined" in each for each in caplog.messages))
    if kind == "java-2.8.2":
        # One of before 3.1 forgets what it owns when its Sync response is REBALANCE_IN_PROGRESS (KAFKA-13419), and
        # as the leader gives that to another as well (seen). So its Sync ends before somebody leaves.
        drive(ours, leader, third, fourth, until=lambda: fourth.consumer.group_metadata().generation_id >= 0)
    fourth.consumer.close()
    drive(ours, leader, third, until=lambda: len(leader.owned | third.owned | ours.owned) == 6)
    assert delayed <= ours.owned
    assert not leads(caplog)

    written += fill(kafka, topic, dict.fromkeys(range(6), 5), start=5)
    ours.holding.clear()
    drive(ours, leader, third, until=lambda: {len(each.owned) for each in (ours, leader, third)} == {2})
    members = (ours, leader, third, fourth)
    drive(ours, leader, third, until=lambda: sum(len(each.seen) for each in members) == 60)
    each_once(written, *members)
    assert ours.lost == []


@pytest.mark.slow
def test_java_releases_to_us_what_it_had(kafka: LocalKafka, kafka_topic: Topic, join: Join, start_peer: Start) -> None:
    """Two of theirs and one of ours: what the leader takes from a Java member reaches us."""
    topic = kafka_topic(3)
    written = fill(kafka, topic, dict.fromkeys(range(3), 10))
    first, second = (start_peer("java", name, topic) for name in ("first", "second"))
    drive(first, second, until=lambda: len(first.owned | second.owned) == 3 and first.owned and second.owned)
    ours = join("ours", topic)
    drive(first, second, ours, until=lambda: len(ours.owned) == 1)
    written += fill(kafka, topic, dict.fromkeys(range(3), 10), start=10)
    drive(first, second, ours, until=lambda: len(first.seen) + len(second.seen) + len(ours.seen) == 60)
    each_once(written, first, second, ours)
