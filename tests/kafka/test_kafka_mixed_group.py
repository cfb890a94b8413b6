"""A group of KIP-848 with classic members in it: ours, while the broker itself deals out the partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_help import Member, drive, each_once, tps
from peer_help import Peer

from filled_topics import fill
from instride.testing import LocalKafka

Topic = Callable[..., str]
Join = Callable[..., Member]
Start = Callable[..., Peer]

KINDS = ["java-848", "confluent-848"]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("assignors", [["cooperative-sticky"], ["range"]], ids="+".join)
@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_of_the_new_protocol_comes_and_goes(
    kind: str, assignors: list[str], kafka: LocalKafka, kafka_topic: Topic, join: Join, start_peer: Start
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    ours = join("ours", topic, assignors=assignors)
    drive(ours, until=lambda: len(ours.records) == 40)
    theirs = start_peer(kind, "theirs", topic)
    drive(ours, theirs, until=lambda: len(ours.owned) == len(theirs.owned) == 2)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(ours, theirs, until=lambda: len(ours.seen) + len(theirs.seen) == 80)
    theirs.close()
    drive(ours, until=lambda: len(ours.owned) == 4)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=20)
    drive(ours, until=lambda: len(ours.seen) + len(theirs.seen) == 120)
    each_once(written, ours, theirs)
    assert ours.lost == theirs.lost == []


@pytest.mark.slow
def test_what_we_delay_is_ours_until_we_release_it(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, start_peer: Start
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    theirs = start_peer("java-848", "theirs", topic)
    drive(theirs, until=lambda: len(theirs.seen) == 40)
    ours = join("ours", topic, max_poll_interval=30.0)
    drive(ours, theirs, until=lambda: len(ours.owned) == len(theirs.owned) == 2)
    ours.holding = set(tps(topic, *range(4)))
    third = join("third", topic)
    drive(ours, theirs, third, until=lambda: ours.revocation_requested or len(third.owned) == 1)
    requested = len(ours.revocation_requested)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(ours, theirs, third, until=lambda: len(ours.seen) + len(theirs.seen) + len(third.seen) == 80 - 10 * requested)
    ours.holding.clear()
    drive(ours, theirs, third, until=lambda: len(ours.seen) + len(theirs.seen) + len(third.seen) == 80)
    each_once(written, ours, theirs, third)
    assert ours.lost == []
