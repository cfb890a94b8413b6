"""Static members on a real broker (KIP-345): a restart within the session moves nothing, and a successor fences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kafka_help import Member, drive, each_once, poll_until, tps
from peer_help import Peer

from filled_topics import fill
from instride import Consumer, TopicPartition
from instride.errors import FencedInstanceIdError
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
Topic = Callable[..., str]
Join = Callable[..., Member]

ASSIGNORS = [["range"], ["cooperative-sticky"]]


@pytest.mark.requirement("surface/static-membership")
@pytest.mark.parametrize("assignors", ASSIGNORS, ids="+".join)
def test_a_restart_keeps_what_it_had_and_nobody_else_is_asked(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, assignors: list[str]
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    settings: dict[str, Any] = {"assignors": assignors, "session_timeout": 20.0}
    a = join("a", topic, group_instance_id="a", **settings)
    b = join("b", topic, group_instance_id="b", **settings)
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 2 and len(a.records) + len(b.records) == 40)
    mine, a.revocation_requested = b.owned, []
    for member in (a, b):
        member.consumer.commit()
    b.consumer.close()
    again = join("b2", topic, group_instance_id="b", **settings)
    drive(a, again, until=lambda: again.owned == mine)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(a, again, until=lambda: len(a.records) + len(b.records) + len(again.records) == 80)
    each_once(written, a, b, again)
    assert (a.lost, a.revocation_requested) == ([], []), "the other member was requested nothing"


@pytest.mark.parametrize("assignors", ASSIGNORS, ids="+".join)
def test_a_leader_that_restarts_makes_no_assignment_and_leads_on(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, assignors: list[str]
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    settings: dict[str, Any] = {"assignors": assignors, "session_timeout": 20.0}
    leader = join("leader", topic, group_instance_id="leader", **settings)
    drive(leader, until=lambda: len(leader.records) == 40)
    b = join("b", topic, group_instance_id="b", **settings)
    drive(leader, b, until=lambda: len(leader.owned) == len(b.owned) == 2)
    mine = leader.owned
    leader.consumer.commit()
    leader.consumer.close()
    again = join("again", topic, group_instance_id="leader", **settings)
    drive(again, b, until=lambda: again.owned == mine and len(b.owned) == 2)
    third = join("third", topic, **settings)
    drive(again, b, third, until=lambda: third.owned)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    members = (leader, again, b, third)
    drive(again, b, third, until=lambda: sum(len(each.records) for each in members) == 80)
    each_once(written, *members)


@pytest.mark.requirement("surface/static-membership")
def test_a_successor_fences_and_the_fenced_one_is_told(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    first = join("first", topic, group_instance_id="one")
    drive(first, until=lambda: len(first.records) == 10)
    second = join("second", topic, group_instance_id="one")
    drive(second, until=lambda: second.owned)
    with pytest.raises(FencedInstanceIdError):
        drive(first, until=lambda: False)
    first.consumer.poll(timeout=0)
    assert first.consumer.assignment() == frozenset()
    fill(kafka, topic, {0: 5}, start=10)
    drive(second, until=lambda: [each.offset for each in second.records][-1:] == [14])


@pytest.mark.requirement("surface/static-delaying")
@pytest.mark.rule("deadline")
def test_what_a_static_member_delayed_when_it_went_is_dealt_out_when_it_is_back(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    """Without a further join those partitions would be with nobody: the broker sees no reason for a rebalance."""
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    a = join("a", topic, group_instance_id="a", session_timeout=60.0)
    drive(a, until=lambda: len(a.records) == 40)
    a.consumer.commit()
    a.holding = set(tps(topic, 0, 1, 2, 3))
    b = join("b", topic)
    drive(a, b, until=lambda: len(a.revocation_requested) == 2)
    a.consumer.close()
    drive(b, until=lambda: True)
    assert b.owned == frozenset()
    again = join("again", topic, group_instance_id="a", session_timeout=60.0)
    drive(again, b, until=lambda: len(again.owned) == len(b.owned) == 2)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(again, b, until=lambda: len(a.records) + len(again.records) + len(b.records) == 80)
    each_once(written, a, again, b)


@pytest.mark.rule("deadline")
@pytest.mark.requirement("surface/static-delaying")
@pytest.mark.parametrize("session", [60.0, 3.0], ids=["within its session", "after its session"])
def test_a_static_member_that_is_killed_while_it_delays_and_comes_back(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, start_peer: Callable[..., Peer], session: float
) -> None:
    """Its process dies without a word. What it had committed never comes again, and all else comes once."""
    topic = kafka_topic(4)
    fill(kafka, topic, dict.fromkeys(range(4), 10))
    settings: dict[str, Any] = {"group_instance_id": "a", "session_timeout": session}
    a = start_peer("instride", "a", topic, **settings)
    a.verb = "poll-and-commit"
    drive(a, until=lambda: len(a.seen) == 40)
    a.verb = "poll-and-hold"
    b = join("b", topic)
    drive(a, b, until=lambda: "delayed:" in a.log)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(a, b, until=lambda: len(a.seen) == 60)  # of the two that it keeps, and does not commit any more
    assert b.owned == frozenset()
    a.kill()
    if session < 60:
        drive(b, until=lambda: len(b.owned) == 4)
    again = start_peer("instride", "again", topic, **settings)
    again.verb = "poll-and-commit"
    drive(again, b, until=lambda: len(again.owned) == len(b.owned) == 2)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=20)
    drive(again, b, until=lambda: len(again.seen) + len(b.seen) == len(written))
    each_once(written, again, b)
    assert again.lost == b.lost == []
    b.consumer.commit()
    committed = b.consumer.committed(*tps(topic, *range(4)))
    assert {each.offset for each in committed.values() if each is not None} == {30}


@pytest.mark.requirement("surface/close-leaves")
def test_leaving_is_by_choice(kafka: LocalKafka, kafka_topic: Topic, join: Join, open_consumer: Open) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 5, 1: 5})
    a = join("a", topic, group_instance_id="a", session_timeout=60.0)
    drive(a, until=lambda: len(a.records) == 10)
    b = join("b", topic)
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 1)
    a.consumer.close(leave_group=True)
    drive(b, until=lambda: len(b.owned) == 2)


@pytest.mark.requirement("surface/enforce-rebalance")
@pytest.mark.parametrize("assignors", ASSIGNORS, ids="+".join)
def test_a_rebalance_that_is_enforced_takes_place(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, assignors: list[str]
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 5, 1: 5})
    a, b = join("a", topic, assignors=assignors), join("b", topic, assignors=assignors)
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 1 and len(a.records) + len(b.records) == 10)
    for member in (a, b):  # the leader's join always starts one; a follower's does where its metadata is new
        before = member.consumer.group_metadata().generation_id
        assert before >= 0
        member.consumer.enforce_rebalance("because the test wants it")
        drive(a, b, until=partial(_both_beyond, before, a, b))
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 1)


def _both_beyond(generation: int, *members: Member) -> bool:
    return all(each.consumer.group_metadata().generation_id > generation for each in members)


@pytest.mark.requirement("surface/group-metadata")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_transactional_producer_commits_our_offsets(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    from kafka.structs import ConsumerGroupMetadata
    from kafka.structs import OffsetAndMetadata as TheirOffset

    from kafka import KafkaProducer
    from kafka import TopicPartition as TheirPartition

    source, sink = kafka_topic(1), kafka_topic(1)
    fill(kafka, source, {0: 10})
    consumer = open_consumer(group_id=group, group_instance_id="one", isolation_level="read_committed")
    consumer.subscribe([source])
    poll_until(consumer, 10)
    metadata = consumer.group_metadata()
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=f"tx-{group}")
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(sink, b"0:0")
        offsets = {TheirPartition(source, 0): TheirOffset(7, "", -1)}
        producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(*metadata))
        producer.commit_transaction()
        (committed,) = consumer.committed(TopicPartition(source, 0)).values()
        assert committed is not None
        assert committed.offset == 7

        producer.begin_transaction()
        stale = ConsumerGroupMetadata(*metadata._replace(generation_id=metadata.generation_id - 1))
        with pytest.raises(Exception, match=r"(?i)generation|commit"):
            producer.send_offsets_to_transaction({TheirPartition(source, 0): TheirOffset(9, "", -1)}, stale)
        producer.abort_transaction()
    finally:
        producer.close(timeout=10)
    (committed,) = consumer.committed(TopicPartition(source, 0)).values()
    assert committed is not None
    assert committed.offset == 7, "one that is out of date is fenced by the broker (KIP-447)"


@pytest.mark.vector(41)
def test_a_static_member_that_is_absent_at_a_rebalance_stays_a_member(
    kafka: LocalKafka, kafka_topic: Topic, join: Join, start_peer: Callable[..., Peer]
) -> None:
    """It is suspended over the barrier: the generation rises without it, and it comes back with its id."""
    topic = kafka_topic(4)
    fill(kafka, topic, dict.fromkeys(range(4), 10))
    settings = {"assignors": ["range"], "max_poll_interval": 6.0, "session_timeout": 60.0}
    static = start_peer("instride", "static", topic, group_instance_id="one", **settings)
    drive(static, until=lambda: len(static.owned) == 4)
    static.suspend()
    b = join("b", topic, **settings)
    drive(b, until=lambda: b.owned)
    assert len(b.owned) == 2, "the other half is the absent one's still"
    assert b.consumer.group_metadata().generation_id >= 2
    static.resume()
    drive(static, until=lambda: static.lost)  # by its next heartbeat it knows
    drive(static, b, until=lambda: len(static.owned) == len(b.owned) == 2)
    assert sorted(each.partition for each in static.lost) == [0, 1, 2, 3], "what it owned was not its own any more"
