"""Eager groups on a real broker: everything is given up in each rebalance; a delay holds it up, within its bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from kafka_help import Member, drive, each_once, tps

from filled_topics import fill
from instride import RebalanceListener, TopicPartition
from instride.testing import LocalKafka, Recorder

Topic = Callable[..., str]
Join = Callable[..., Member]


class Told(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("assigned", [each.partition for each in partitions]))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("revoked", [each.partition for each in partitions]))

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("lost", [each.partition for each in partitions]))


@pytest.mark.requirement("threading/20")
@pytest.mark.requirement("KIP-429/12")
@pytest.mark.parametrize(
    "assignors", [["range"], ["roundrobin"], ["sticky"], ["range", "cooperative-sticky"]], ids="+".join
)
def test_partitions_go_to_and_fro(kafka: LocalKafka, kafka_topic: Topic, join: Join, assignors: list[str]) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    a = join("a", topic, assignors=assignors)
    drive(a, until=lambda: len(a.records) == 40)
    b = join("b", topic, assignors=assignors)
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 2)
    assert set(a.revocation_requested) == set(tps(topic, 0, 1, 2, 3)), "everything is requested"
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(a, b, until=lambda: len(a.records) + len(b.records) == 80)
    b.consumer.close()
    drive(a, until=lambda: len(a.owned) == 4)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=20)
    drive(a, until=lambda: len(a.records) + len(b.records) == 120)
    each_once(written, a, b)
    assert a.lost == b.lost == []


@pytest.mark.rule("deadline")
def test_a_delay_holds_up_the_group_and_its_commits_are_taken(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, history: Recorder
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 10, 1: 10})
    a = join("a", topic, assignors=["range"], commits=False)
    a.holding = set(tps(topic, 0))
    drive(a, until=lambda: len(a.records) == 20)
    history.add("a", "gave up", tps(topic, 1))
    b = join("b", topic, assignors=["range"])
    drive(a, b, until=lambda: a.owned == set(tps(topic, 0)))
    for offset in (3, 6, 10):
        a.consumer.commit({TopicPartition(topic, 0): offset}, timeout=5.0)
    assert b.owned == frozenset(), "it waits for our join"
    assert a.consumer.revoke_deadline(TopicPartition(topic, 0)) is not None
    a.holding.clear()
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 1)
    drive(a, b, until=lambda: len(b.records) == 10)
    assert [each.offset for each in b.records] == list(range(10)), (
        "what was not committed is read again by its new owner"
    )
    assert (a.lost, b.lost) == ([], [])


@pytest.mark.rule("deadline")
def test_at_the_bound_the_partitions_are_lost_and_the_membership_is_kept(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 10, 1: 10})
    a = join("a", topic, assignors=["range"], max_poll_interval=8.0, commit_budget=2.0)
    a.holding = set(tps(topic, 0))
    drive(a, until=lambda: len(a.records) == 20)
    b = join("b", topic, assignors=["range"], max_poll_interval=8.0, commit_budget=2.0)
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 1 and a.lost)
    assert a.lost == tps(topic, 0), "only what was delayed, and not what the broker gave it since"
    written += fill(kafka, topic, {0: 10, 1: 10}, start=10)
    drive(a, b, until=lambda: len(a.records) + len(b.records) == 40)
    each_once(written, a, b)


@pytest.mark.requirement("KIP-429/2")
@pytest.mark.requirement("KIP-429/3")
@pytest.mark.rule("10")
def test_the_eager_timeline_of_immediate_mode(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 5})
    told = [Told(), Told()]
    settings = {"assignors": ["range"], "revoke_mode": "immediate"}
    a = join("a", topic, listener=told[0], **settings)
    drive(a, until=lambda: len(a.records) == 5)
    b = join("b", topic, listener=told[1], **settings)
    drive(a, b, until=lambda: len(told[0].told) > 2 and told[1].told)  # both have taken what the rebalance gave them
    owner, other = (0, 1) if a.owned else (1, 0)
    assert told[0].told[:2] == [("assigned", [0]), ("revoked", [0])]
    assert told[owner].told[-1] == ("assigned", [0])
    assert told[other].told[-1] == ("assigned", []), "even if empty"
    members = (a, b)
    before = len(told[other].told)
    members[owner].consumer.close()
    drive(members[other], until=lambda: members[other].owned)
    assert told[other].told[before:] == [("revoked", []), ("assigned", [0])], "revoked, even if empty, before each join"
    assert told[owner].told[-1] == ("revoked", [0])
