"""Reading from the follower in our own rack (KIP-392): node n is in rack "rn"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from kafka_help import PATIENCE, QUICK, Member, drive, each_once, ids, poll_until, tps

from filled_topics import fill
from instride import Consumer
from instride.testing import LocalKafka, Recorder

_ACKS: Final = {"acks": "all"}


@pytest.fixture(scope="module")
def racks() -> Iterator[LocalKafka]:
    with LocalKafka(3, racks=["r1", "r2", "r3"]) as kafka:
        yield kafka


def follower_of(kafka: LocalKafka, topic: str) -> int:
    leader = kafka.leader(topic)
    return next(node for node in kafka.nodes if node != leader)


def reads_from(consumer: Consumer) -> set[int]:
    """The nodes that the last responses came from; -1 stands for the leaders."""
    found = consumer.metrics().items()
    return {int(value) for name, value in found if name.name == "preferred-read-replica"}


def reader(kafka: LocalKafka, topic: str, rack: str | None, **settings: Any) -> Consumer:
    merged: dict[str, Any] = {**QUICK, "client_rack": rack, "request_timeout": 3.0, **settings}
    consumer = Consumer(bootstrap_servers=kafka.bootstrap_servers, **merged)
    consumer.assign(tps(topic, 0))
    return consumer


@pytest.mark.requirement("surface/follower-fetch")
def test_a_consumer_in_the_rack_of_a_follower_reads_while_the_leader_is_suspended() -> None:
    """Of two nodes the one left cannot be made the leader. So what arrives came from the follower."""
    topic = "suspended-leader"
    with LocalKafka(2, racks=["r1", "r2"]) as kafka:
        kafka.create_topic(topic)
        leader, follower = kafka.leader(topic), follower_of(kafka, topic)
        assert leader is not None
        written = fill(kafka, topic, {0: 1000}, settings={**_ACKS, "batch.num.messages": 10})
        with reader(kafka, topic, f"r{follower}") as first:
            poll_until(first, 1000)  # now the follower knows that all is committed
            assert reads_from(first) == {follower}
        little = {"max_poll_records": 10, "fetch_buffer_bytes": 1000}
        with reader(kafka, topic, f"r{follower}", **little) as near, reader(kafka, topic, None, **little) as far:
            seen = ids(poll_until(near, 50))
            poll_until(far, 50)
            assert (reads_from(near), reads_from(far)) == ({follower}, {-1})
            kafka.suspend(leader)
            seen += ids(poll_until(near, 1000 - len(seen)))
            assert reads_from(near) == {follower}
            assert len(all_that_is_buffered(far)) < 900
            kafka.resume(leader)
    assert seen == written


def all_that_is_buffered(consumer: Consumer) -> list[Any]:
    records: list[Any] = []
    while more := consumer.poll(timeout=0.5):
        records += more
    return records


@pytest.mark.drawn(1)
@pytest.mark.requirement("surface/follower-fetch")
@pytest.mark.parametrize("dies", ["leader", "follower"])
def test_in_a_group_each_record_comes_once_whoever_dies(
    racks: LocalKafka, dies: str, group: str, history: Recorder
) -> None:
    """Killed while it is read from; then a node that is alive is asked, and after its restart it is asked again."""
    topic = f"{dies}-dies"
    racks.create_topic(topic)
    leader, follower = racks.leader(topic), follower_of(racks, topic)
    assert leader is not None
    written = fill(racks, topic, {0: 100}, settings=_ACKS)
    settings: dict[str, Any] = {**QUICK, "session_timeout": 30.0, "metadata_max_age": 2.0, "max_poll_records": 20}
    consumer = Consumer(
        bootstrap_servers=racks.bootstrap_servers, group_id=group, client_rack=f"r{follower}", **settings
    )
    history.watch(consumer, "a", finishes="delivered")
    consumer.subscribe([topic])
    a = Member("a", consumer)
    killed = leader if dies == "leader" else follower
    with consumer:
        drive(a, until=lambda: len(a.records) == 100 and reads_from(consumer) == {follower})
        racks.kill(killed)
        written += write(racks, topic, start=100)
        drive(a, until=lambda: len(a.records) == 200, timeout=2 * PATIENCE)
        assert killed not in reads_from(consumer)
        racks.restart(killed)
        written += write(racks, topic, start=200)
        drive(a, until=lambda: len(a.records) == 300, timeout=2 * PATIENCE)
        drive(a, until=lambda: reads_from(consumer) == {-1 if racks.leader(topic) == follower else follower})
        each_once(written, a)
        assert a.seen == written, "in order"
        assert a.lost == []
        assert len({each.epoch for each in a.records}) == 1, "nor was it assigned anew"


def write(kafka: LocalKafka, topic: str, *, start: int) -> list[tuple[int, int]]:
    return fill(kafka, topic, {0: 100}, start=start, settings={**_ACKS, "retries": 1000})


def test_records_that_a_follower_has_not_got_yet_are_waited_for(racks: LocalKafka) -> None:
    """A follower that lags behind the leader: nothing is skipped, nothing comes twice, and no reset takes place."""
    topic = "lagging-follower"
    racks.create_topic(topic)
    follower = follower_of(racks, topic)
    written = fill(racks, topic, {0: 50}, settings=_ACKS)
    with reader(racks, topic, f"r{follower}", auto_offset_reset="none") as consumer:
        consumer.seek(tps(topic, 0)[0], 0)
        seen = ids(poll_until(consumer, 50))
        assert reads_from(consumer) == {follower}
        racks.suspend(follower)
        try:
            written += fill(racks, topic, {0: 50}, start=50, settings={"acks": "1"})
            for _ in range(10):
                seen += ids(consumer.poll(timeout=0.1))
        finally:
            racks.resume(follower)
        seen += ids(poll_until(consumer, 100 - len(seen)))
    assert seen == written
