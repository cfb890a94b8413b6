"""Subscriptions by pattern on a real Kafka: topics that are made and deleted while the members run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from kafka_help import Member, drive, each_once, tps

from filled_topics import fill
from instride import Consumer, TopicPartition
from instride.testing import LocalKafka

Join = Callable[..., Consumer]
Make = Callable[..., str]


@pytest.fixture
def make(kafka: LocalKafka, group: str) -> Iterator[Make]:
    """``make("1", 2)``: a topic of this test's, whose name ends in that; deleted at the end."""
    made: list[str] = []

    def create(end: str, partitions: int = 1) -> str:
        made.append(f"{group}-{end}")
        kafka.create_topic(made[-1], partitions)
        return made[-1]

    yield create
    for topic in made:
        try:
            kafka.delete_topic(topic)
        except Exception:  # the test deleted it
            pass


def member(
    open_consumer: Callable[..., Consumer], group: str, name: str, pattern: str, assignor: str = "cooperative-sticky"
) -> Member:
    consumer = open_consumer(group_id=group, client_id=name, metadata_max_age=0.3, assignors=[assignor])
    consumer.subscribe(pattern=pattern)
    return Member(name, consumer)


@pytest.mark.requirement("surface/pattern")
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_topics_that_are_made_later_are_read_and_deleted_ones_are_given_up(
    kafka: LocalKafka, make: Make, open_consumer: Callable[..., Consumer], group: str, assignor: str
) -> None:
    first, other = make("1", 2), make("other")
    a = member(open_consumer, group, "a", rf"{group}-\d+", assignor)
    drive(a, until=lambda: a.owned == set(tps(first, 0, 1)))
    assert a.consumer.subscription() == {first}
    second = make("2", 2)
    drive(a, until=lambda: a.owned == {*tps(first, 0, 1), *tps(second, 0, 1)})
    assert a.consumer.subscription() == {first, second}
    written = fill(kafka, second, {0: 5, 1: 5})
    fill(kafka, other, {0: 5})
    drive(a, until=lambda: len(a.records) == len(written))
    each_once(written, a)
    kafka.delete_topic(first)
    drive(a, until=lambda: a.owned == set(tps(second, 0, 1)))
    assert a.consumer.subscription() == {second}
    assert not a.lost, "what goes with its topic is revoked, not lost"


@pytest.mark.requirement("surface/pattern")
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "roundrobin"])
def test_two_members_share_what_matches(
    kafka: LocalKafka, make: Make, open_consumer: Callable[..., Consumer], group: str, assignor: str
) -> None:
    topics = [make(str(number)) for number in range(4)]
    a, b = (member(open_consumer, group, name, rf"{group}-\d+", assignor) for name in "ab")
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 2)
    topics += [make("4"), make("5")]
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 3)
    assert a.owned | b.owned == {TopicPartition(topic, 0) for topic in topics}


def test_a_pattern_that_matches_nothing_yet_waits_without_an_error(
    kafka: LocalKafka, make: Make, open_consumer: Callable[..., Consumer], group: str
) -> None:
    a = member(open_consumer, group, "a", f"{group}-.*")
    for _ in range(5):
        a.turn()
    topic = make("late")
    written = fill(kafka, topic, {0: 3})
    drive(a, until=lambda: len(a.records) == 3)
    each_once(written, a)


def test_internal_topics_can_be_read_where_they_are_wanted(open_consumer: Callable[..., Consumer], group: str) -> None:
    settings = {"metadata_max_age": 0.3, "auto_offset_reset": "latest"}
    with open_consumer(group_id=group, exclude_internal_topics=False, **settings) as wanting:
        wanting.subscribe(pattern=re.compile("__consumer_.*"))
        member = Member("wanting", wanting, commits=False)
        drive(member, until=lambda: wanting.subscription() == {"__consumer_offsets"} and wanting.assignment())


def test_a_rebalance_may_be_wanted_while_nothing_matches(
    make: Make, open_consumer: Callable[..., Consumer], group: str
) -> None:
    a = member(open_consumer, group, "a", rf"{group}-\d+")
    drive(a, until=lambda: a.consumer.group_metadata().generation_id == 1)
    a.consumer.enforce_rebalance("is there nothing yet")
    drive(a, until=lambda: a.consumer.group_metadata().generation_id == 2)
    topic = make("1")
    drive(a, until=lambda: a.owned == set(tps(topic, 0)))
