"""An assignor of the user's own, the one of docs/assignors.md, on a real broker: alone, and beside one of ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

import pytest
from kafka_help import Member, drive, each_once

from filled_topics import fill
from instride import TopicPartition
from instride.assignors import Assignment, ClusterView, MemberSubscription, RebalanceProtocol
from instride.testing import LocalKafka

Topic = Callable[..., str]
Join = Callable[..., Member]
SESSION = 6.0
"""Seconds; brokers allow no shorter one by default."""


class FirstComeAssignor:
    """Everything to the member whose name is first: an active member and its stand-bys."""

    name = "first-come"
    version = 0
    protocols = frozenset({RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self.given: list[tuple[int, int]] = []

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        return None

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        group = sorted(members, key=lambda member: member.group_instance_id or member.member_id)
        topics = sorted({topic for member in group for topic in member.topics})
        everything = tuple(each for topic in topics for each in cluster.of_topic(topic))
        return {member.member_id: everything if place == 0 else () for place, member in enumerate(group)}

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        self.given.append((generation, len(assignment)))


class SlowAssignor(FirstComeAssignor):
    """Longer than the session of its member."""

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        time.sleep(SESSION + 2.0)
        return super().assign(cluster, members)


class BrokenAssignor(FirstComeAssignor):
    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        raise LookupError("no idea")


@pytest.mark.requirement("surface/custom-assignor")
def test_a_stand_by_takes_over(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    mine, theirs = FirstComeAssignor(), FirstComeAssignor()
    a = join("a", topic, assignors=[mine, "range"], group_instance_id="a")
    drive(a, until=lambda: len(a.owned) == 4)  # b would read them if it were in the group first
    b = join("b", topic, assignors=[theirs], group_instance_id="b")
    drive(a, b, until=lambda: len(a.records) == 40 and theirs.given and len(a.owned) == 4)
    assert not b.owned
    assert mine.given[-1][1] == 4
    a.consumer.close(leave_group=True)
    drive(b, until=lambda: len(b.owned) == 4)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(b, until=lambda: len(b.records) == 40)
    each_once(written, a, b)


@pytest.mark.requirement("surface/custom-assignor")
def test_one_that_takes_longer_than_the_session_costs_no_membership(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    assignor = SlowAssignor()
    a = join("a", topic, assignors=[assignor], session_timeout=SESSION, heartbeat_interval=1.0)
    drive(a, until=lambda: len(a.records) == 40)
    assert assignor.given == [(1, 4)], "the first generation that it joined"
    each_once(written, a)


@pytest.mark.requirement("surface/custom-assignor")
def test_what_it_raises_is_raised_by_the_poll(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(1)
    a = join("a", topic, assignors=[BrokenAssignor()])
    with pytest.raises(LookupError, match="no idea"):
        drive(a, until=lambda: False)
