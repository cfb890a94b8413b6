"""Two members of one group, polled in turns: partitions move, and every record is processed exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

import pytest
from kafka_help import PATIENCE, Member, drive, each_once, ids, poll_until, tps

from filled_topics import fill
from instride import Consumer, ConsumerRecord, OffsetLedger, RebalanceListener, TopicPartition
from instride.errors import CommitFailedError
from instride.testing import LocalKafka

Open = Callable[..., Consumer]
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


@pytest.mark.requirement("threading/21")
def test_a_second_member_takes_half_and_gives_it_back_when_it_leaves(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 20))
    a = join("a", topic)
    drive(a, until=lambda: len(a.records) == 80)

    b = join("b", topic)
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 2)
    assert not a.owned & b.owned
    assert set(a.revocation_requested) == b.owned
    written += fill(kafka, topic, dict.fromkeys(range(4), 20), start=20)
    drive(a, b, until=lambda: len(a.records) + len(b.records) == 160)
    assert len(b.records) == 40, "what a had committed is not read again"

    b.consumer.close()
    drive(a, until=lambda: len(a.owned) == 4)
    written += fill(kafka, topic, dict.fromkeys(range(4), 5), start=40)
    drive(a, until=lambda: len(a.records) + len(b.records) == 180)
    each_once(written, a, b)
    assert a.lost == []


def test_the_next_owner_does_not_wait_for_its_heartbeat(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    """Rule 19. By its setting the next owner's first heartbeat is beyond this test's patience; it is told that it waits
    for a partition. That costs no rebalance more: one in which it joins, one that hands over, one when it has left."""
    seldom = {"heartbeat_interval": 500.0, "session_timeout": 1700.0}
    assert seldom["heartbeat_interval"] > 2 * PATIENCE
    topic = kafka_topic(2)
    a = join("a", topic)
    drive(a, until=lambda: len(a.owned) == 2)
    for before in (1, 4):
        assert a.consumer.group_metadata().generation_id == before
        b = join(f"b{before}", topic, **seldom)
        drive(a, b, until=partial(one_each, a, b))
        assert b.consumer.group_metadata().generation_id == before + 2
        b.consumer.close()
        drive(a, until=lambda: len(a.owned) == 2)


@pytest.mark.requirement("KIP-983/31")
@pytest.mark.requirement("KIP-983/1")
@pytest.mark.requirement("KIP-983/13")
@pytest.mark.requirement("KIP-429/15")
@pytest.mark.vector(39)
def test_a_delayed_partition_stays_until_released_and_the_others_go_on(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    a = join("a", topic)
    drive(a, until=lambda: len(a.records) == 40)
    a.holding = set(tps(topic, 0, 1, 2, 3))

    b = join("b", topic)
    drive(a, b, until=lambda: len(a.revocation_requested) == 2)
    moving = frozenset(a.revocation_requested)
    staying = a.owned - moving
    for start in (10, 20, 30):
        written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=start)
        drive(a, b, until=partial(reached, a, staying, 2 * (start + 10)))
    assert count(a, moving) == 20, "poll returns no record of what is to be revoked (rule 3)"
    assert b.owned == frozenset()
    assert a.owned == moving | staying

    a.holding.clear()
    drive(a, b, until=lambda: b.owned == moving)
    drive(a, b, until=lambda: len(a.records) + len(b.records) == 160)
    each_once(written, a, b)
    assert (a.lost, a.owned) == ([], staying)


def one_each(*members: Member) -> bool:
    return all(len(each.owned) == 1 for each in members)


def reached(member: Member, partitions: frozenset[TopicPartition], wanted: int) -> bool:
    return count(member, partitions) == wanted


def count(member: Member, partitions: frozenset[TopicPartition]) -> int:
    return sum(TopicPartition(each.topic, each.partition) in partitions for each in member.records)


@pytest.mark.requirement("KIP-983/27")
def test_delayed_ones_are_reassigned_when_the_peer_leaves(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    """Rule 8: same epoch, from the position after the last returned record, nothing twice."""
    topic = kafka_topic(4)
    told = Told()
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    a = join("a", topic, listener=told, commits=False, max_poll_records=7)
    a.holding = set(tps(topic, 0, 1, 2, 3))
    drive(a, until=lambda: len(a.records) == 40)
    b = join("b", topic)
    drive(a, b, until=lambda: len(a.revocation_requested) == 2)
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(a, b, until=lambda: len(a.records) == 60)

    b.consumer.close()
    drive(a, until=lambda: len(a.records) == 80)
    each_once(written, a, b)
    epochs = {(each.partition, each.epoch) for each in a.records}
    assert len(epochs) == 4, "reassigned in the same epoch"
    assert told.told == [("assigned", [0, 1, 2, 3])]
    assert a.consumer.to_be_revoked_partitions() == frozenset()
    a.consumer.commit()


@pytest.mark.requirement("KIP-983/11")
@pytest.mark.requirement("KIP-983/16")
def test_a_delay_past_its_deadline_is_a_loss(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 10, 1: 10})
    told = Told()
    a = join("a", topic, listener=told, max_poll_interval=3.0, commit_budget=1.0)
    drive(a, until=lambda: len(a.records) == 20)
    a.holding = set(tps(topic, 0, 1))
    b = join("b", topic)
    drive(a, b, until=lambda: a.revocation_requested)
    (moving,) = a.revocation_requested
    left = a.consumer.revoke_deadline(moving)
    assert left is not None
    assert 0 < left <= 2.0

    drive(a, b, until=lambda: a.lost)
    assert a.lost == [moving]
    assert moving not in a.owned
    assert a.consumer.to_be_revoked_partitions() == frozenset()
    assert a.consumer.delay_revoke([moving]) is False
    with pytest.raises(CommitFailedError, match="not this consumer's any more"):
        a.consumer.commit({moving: 10})
    drive(a, b, until=lambda: b.owned == {moving})
    drive(a, b, until=lambda: len(a.owned) == 1)
    assert ("lost", [moving.partition]) in told.told
    assert ("revoked", [moving.partition]) not in told.told


@pytest.mark.requirement("threading/28")
@pytest.mark.requirement("KIP-429/1")
def test_max_poll_interval_exceeded_loses_all_and_the_next_poll_joins_again(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 10, 1: 10})
    a = join("a", topic, max_poll_interval=1.0, commit_budget=0.2)
    drive(a, until=lambda: len(a.records) == 20)
    a.consumer.commit()
    b = join("b", topic)
    drive(b, until=lambda: len(b.owned) == 2)  # while a does not poll

    a.turn()
    assert a.lost == tps(topic, 0, 1)
    assert a.owned == frozenset()
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 1)
    assert b.records == []


@pytest.mark.requirement("KIP-983/4")
@pytest.mark.requirement("KIP-429/8")
@pytest.mark.requirement("KIP-429/10")
def test_immediate_mode_revokes_within_the_poll_and_keeps_kip_429s_order(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 10))
    a_told, b_told = Told(), Told()
    a = join("a", topic, listener=a_told, revoke_mode="immediate")
    drive(a, until=lambda: len(a.records) == 40)
    b = join("b", topic, listener=b_told, revoke_mode="immediate")
    drive(a, b, until=lambda: len(a.owned) == len(b.owned) == 2)
    moved = sorted(each.partition for each in b.owned)
    assert a.revocation_requested == [], "nothing is ever left on the list between two polls"
    written += fill(kafka, topic, dict.fromkeys(range(4), 10), start=10)
    drive(a, b, until=lambda: len(a.records) + len(b.records) == 80)
    each_once(written, a, b)
    assert a_told.told[0] == ("assigned", [0, 1, 2, 3])
    assert a_told.told.index(("revoked", moved)) == 1
    assert a_told.told[2:] == [("assigned", [])] * len(a_told.told[2:]), "each assignment is told, an empty one too"
    assert ("assigned", moved) in b_told.told


@pytest.mark.requirement("KIP-983/6")
def test_listener_may_commit_in_revoked_and_the_next_owner_goes_on_there(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 10, 1: 10})

    class Commits(RebalanceListener):
        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            a.consumer.commit({each: a.consumer.position(each) for each in partitions})

    a = join("a", topic, listener=Commits(), commits=False)
    drive(a, until=lambda: len(a.records) == 20)
    b = join("b", topic)
    drive(a, b, until=lambda: len(b.owned) == 1)
    written += fill(kafka, topic, {0: 5, 1: 5}, start=10)
    drive(a, b, until=lambda: len(a.records) + len(b.records) == 30)
    each_once(written, a, b)


def test_a_listeners_error_is_raised_by_poll_once_and_the_rebalance_goes_on(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 10, 1: 10})

    class Breaks(RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            raise LookupError("of the user")

    a = join("a", topic, listener=Breaks())
    with pytest.raises(LookupError, match="of the user"):
        drive(a, until=lambda: False)
    drive(a, until=lambda: len(a.records) == 20)


@pytest.mark.requirement("surface/close-commits")
def test_close_commits_what_was_handed_over_and_releases_what_is_delayed(
    kafka: LocalKafka, kafka_topic: Topic, join: Join
) -> None:
    """Rule 12."""
    topic = kafka_topic(2)
    written = fill(kafka, topic, {0: 10, 1: 10})
    told = Told()
    a = join("a", topic, listener=told, commits=False)
    drive(a, until=lambda: len(a.records) == 20)
    a.holding = set(tps(topic, 0, 1))
    b = join("b", topic)
    drive(a, b, until=lambda: a.revocation_requested)
    drive(a, b, until=lambda: len(a.owned) == 2 and not b.owned)

    future = a.consumer.commit_async()
    a.consumer.close(timeout=20)
    assert future.done()
    assert future.exception() is None
    assert ("revoked", [0, 1]) in told.told or sorted(told.told[1:]) == [("revoked", [0]), ("revoked", [1])]
    drive(b, until=lambda: len(b.owned) == 2)
    written += fill(kafka, topic, {0: 5, 1: 5}, start=10)
    drive(b, until=lambda: len(b.records) == 10)
    each_once(written, a, b)


@pytest.mark.requirement("surface/commit-phases")
@pytest.mark.requirement("KIP-983/1")
@pytest.mark.requirement("threading/2")
def test_commits_are_taken_all_through_a_rebalance(kafka: LocalKafka, kafka_topic: Topic, join: Join) -> None:
    """A rebalance is no reason to refuse a commit: every one of them succeeds while members come and go."""
    topic = kafka_topic(4)
    fill(kafka, topic, dict.fromkeys(range(4), 2000))
    a = join("a", topic, commits=False, max_poll_records=50)
    drive(a, until=lambda: len(a.records) >= 200)
    futures = []
    for name in ("b", "c"):
        peer = join(name, topic)

        def committed_through(peer: Member = peer) -> bool:
            futures.append(a.consumer.commit_async())
            a.consumer.commit()
            return bool(peer.owned)

        drive(a, peer, until=committed_through)
        peer.consumer.close()
    drive(a, until=lambda: all(each.done() for each in futures))
    assert [each.exception() for each in futures if each.exception() is not None] == []


@pytest.mark.requirement("KIP-983/2")
@pytest.mark.requirement("KIP-983/3")
@pytest.mark.requirement("KIP-983/19")
def test_the_loop_with_a_ledger_and_a_pool_hands_over_exactly_once(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    """The flagship loop: one slow handler delays its partition; all is handled once, by a or by b."""
    topic = kafka_topic(4)
    written = fill(kafka, topic, dict.fromkeys(range(4), 50))
    slow = Event()
    handled: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}

    def handler(name: str) -> Callable[[ConsumerRecord], None]:
        def handle(record: ConsumerRecord) -> None:
            if record.offset == 49 and name == "a":
                assert slow.wait(60)
            handled[name].append(ids([record])[0])

        return handle

    with ThreadPoolExecutor(16) as pool:
        loops = {name: Loop(open_consumer(group_id=group, client_id=name), handler(name), pool) for name in "a"}
        loops["a"].consumer.subscribe([topic])
        until(loops, lambda: len(handled["a"]) == 196)
        loops["b"] = Loop(open_consumer(group_id=group, client_id="b"), handler("b"), pool)
        loops["b"].consumer.subscribe([topic])
        until(loops, lambda: loops["a"].delayed)
        written += fill(kafka, topic, dict.fromkeys(range(4), 20), start=50)
        until(loops, lambda: len(handled["a"]) == 196 + 40)
        assert handled["b"] == [], "what is delayed has one owner"
        slow.set()
        until(loops, lambda: len(handled["a"]) + len(handled["b"]) == 280)
    assert sorted(handled["a"] + handled["b"]) == sorted(written)
    assert len(handled["b"]) == 40


class Loop:
    """The loop of the README, one turn at a time."""

    def __init__(self, consumer: Consumer, handle: Callable[[ConsumerRecord], None], pool: ThreadPoolExecutor) -> None:
        self.consumer = consumer
        self.ledger = OffsetLedger()
        self.delayed = False
        self._handle = handle
        self._pool = pool

    def turn(self) -> None:
        consumer, ledger = self.consumer, self.ledger
        records = consumer.poll(timeout=0.02)
        assert list(ledger.forget(consumer.lost_partitions())) == []
        for record in ledger.track(records):
            ledger.watch(record, self._pool.submit(self._handle, record))
        consumer.commit_async(ledger.committable())
        uncommitted = ledger.uncommitted(consumer.to_be_revoked_partitions())
        self.delayed = bool(uncommitted)
        assert consumer.delay_revoke(uncommitted)
        ledger.check()


def until(loops: dict[str, Loop], done: Callable[[], object]) -> None:
    import time

    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, "it did not come to be"
        for loop in loops.values():
            loop.turn()


def test_a_consumer_moves_between_groups_of_topics_with_a_delay(
    kafka: LocalKafka, kafka_topic: Topic, open_consumer: Open, group: str
) -> None:
    """Rule 11: partitions of a topic that left the subscription are requested like any other."""
    one, other = kafka_topic(), kafka_topic()
    fill(kafka, one, {0: 3})
    fill(kafka, other, {0: 4})
    consumer = open_consumer(group_id=group)
    consumer.subscribe([one])
    poll_until(consumer, 3)
    consumer.subscribe([other])
    member = Member("a", consumer)
    member.holding = set(tps(one, 0))
    drive(member, until=lambda: len(member.records) == 4)
    assert member.owned == {*tps(one, 0), *tps(other, 0)}
    consumer.commit()
    member.holding.clear()
    drive(member, until=lambda: member.owned == set(tps(other, 0)))
    assert member.lost == []
