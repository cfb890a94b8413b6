"""Rolling bounces between the eager and the cooperative protocol: real processes, restarted one by one (KIP-429).

Up: all eager; then each restarted with both assignors, which acts eager still; then each with the cooperative one only.
Down is the reverse. librdkafka and kafka-python take no list of both: all members of theirs change over at once, while
the others offer both. At no moment is a partition owned twice, and each record is processed once; the recorded history
is judged as a calm one.

A run plays three of the six groups, each one way: which ones, the commit says. `make interop` plays all twelve.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Partition
from interop_sample import SEED, WHOLE, sampled_bounces
from kafka_help import PATIENCE, drive, each_once
from peer_help import GO, Peer

from filled_topics import fill
from instride.testing import LocalKafka

Topic = Callable[..., str]
Start = Callable[..., Peer]

EAGER, BOTH, COOPERATIVE = ["range"], ["cooperative-sticky", "range"], ["cooperative-sticky"]
BOUNCES = {"up": (EAGER, BOTH, COOPERATIVE), "down": (COOPERATIVE, BOTH, EAGER)}
# The first to join leads, and after it has been bounced the next: so everybody leads once.
GROUPS = {
    "ours": ["instride"] * 3,
    "with Java": ["java", "instride", "instride"],
    "old Java": ["java-2.8.2", "instride"],
    "with franz-go": ["franz", "instride", "instride"],
    "with librdkafka": ["confluent", "instride", "confluent"],
    "with kafka-python": ["kafka_python", "instride", "kafka_python"],
}
TAKES_NO_MIXED_LIST = {"confluent", "kafka_python"}
PARTITIONS = 6
RECORDS = 10


def played() -> list[Any]:
    """This run's bounces."""
    sample = sampled_bounces(SEED, list(BOUNCES), list(GROUPS))
    chosen = [(way, name) for way in BOUNCES for name in GROUPS] if WHOLE else sample
    needs_go = pytest.mark.skipif(GO is None, reason="franz-go's peer needs Go 1.26, which is not here")
    return [
        pytest.param(way, GROUPS[name], id=f"{way}-{name}", marks=[needs_go] if "franz" in GROUPS[name] else [])
        for way, name in chosen
    ]


class Rolling:
    """A group whose members are restarted with other assignors, and a topic that is written to after each restart."""

    def __init__(self, kafka: LocalKafka, topic: str, start_peer: Start) -> None:
        self._kafka, self._topic, self._start_peer = kafka, topic, start_peer
        self._rounds = 0
        self.running: list[Peer] = []
        self.everybody: list[Peer] = []
        self.written: list[tuple[int, int]] = []

    def begin(self, kinds: list[str], assignors: list[str]) -> None:
        self._write()
        self.running = [self._start(kind, assignors) for kind in kinds]
        self._share()

    def bounce(self, places: list[int], kinds: list[str], assignors: list[str]) -> None:
        """Stop these, all of them before the first is started again."""
        leaving = [self.running[place] for place in places]
        staying = [each for each in self.running if each not in leaving]
        for peer in leaving:
            peer.leave()
        drive(*staying, until=lambda: all(each.left() for each in leaving))
        self._write()
        if len(places) > 1:
            drive(*staying, until=lambda: sum(len(each.owned) for each in staying) == PARTITIONS)
        for place in places:
            self.running[place] = self._start(kinds[place], assignors)
        self._share()

    def end(self) -> None:
        drive(*self.running, until=lambda: sum(len(each.seen) for each in self.everybody) >= len(self.written))
        each_once(self.written, *self.everybody)
        assert [each.lost for each in self.everybody] == [[]] * len(self.everybody)

    def _write(self) -> None:
        start, self._rounds = RECORDS * self._rounds, self._rounds + 1
        self.written += fill(self._kafka, self._topic, dict.fromkeys(range(PARTITIONS), RECORDS), start=start)

    def _start(self, kind: str, assignors: list[str]) -> Peer:
        name = f"{len(self.everybody)}-{kind}"
        if kind == "instride":
            peer = self._start_peer(kind, name, self._topic, assignors=assignors)
            peer.verb = "poll-and-commit"
        else:
            peer = self._start_peer(kind, name, self._topic, assignor=",".join(assignors))
        self.everybody.append(peer)
        return peer

    def _share(self) -> None:
        running = self.running
        drive(
            *running,
            until=lambda: (
                all(each.owned for each in running) and sum(len(each.owned) for each in running) == PARTITIONS
            ),
            timeout=2 * PATIENCE,
        )
        rounds = count()
        drive(*running, until=lambda: next(rounds) == 2)  # what a rebalance refused to commit, the next turn commits


@pytest.fixture
def rolling(kafka: LocalKafka, kafka_topic: Topic, start_peer: Start) -> Rolling:
    return Rolling(kafka, kafka_topic(PARTITIONS), start_peer)


@pytest.mark.drawn(1)
@pytest.mark.requirement("KIP-429/12")
@pytest.mark.requirement("KIP-429/13")
@pytest.mark.requirement("KIP-429/14")
@pytest.mark.slow
@pytest.mark.history("calm")
@pytest.mark.parametrize(("way", "kinds"), played())
def test_two_rolling_bounces(way: str, kinds: list[str], rolling: Rolling) -> None:
    first, both, last = BOUNCES[way]
    at_once = [place for place, kind in enumerate(kinds) if kind in TAKES_NO_MIXED_LIST]
    one_by_one = [place for place in range(len(kinds)) if place not in at_once]
    rolling.begin(kinds, first)
    for place in one_by_one:
        rolling.bounce([place], kinds, both)
    if at_once:
        rolling.bounce(at_once, kinds, last)
    for place in one_by_one:
        rolling.bounce([place], kinds, last)
    rolling.end()


def test_each_run_bounces_every_group_and_three_each_way() -> None:
    seen = set()
    for seed in map(str, range(100)):
        part = sampled_bounces(seed, list(BOUNCES), list(GROUPS))
        assert sorted(name for _, name in part) == sorted(GROUPS)
        assert sorted(way for way, _ in part) == ["down"] * 3 + ["up"] * 3
        assert part == sampled_bounces(seed, list(BOUNCES), list(GROUPS)), "each process of a run draws the same"
        seen |= set(part)
    assert seen == {(way, name) for way in BOUNCES for name in GROUPS}, "over the commits every group goes both ways"


@pytest.mark.slow
@pytest.mark.history("calm")
def test_java_commits_what_a_rebalance_refused_before_it_closes(
    kafka: LocalKafka, group: str, kafka_topic: Topic, start_peer: Start
) -> None:
    """It reads and may not commit, since it has rejoined and its fellow has not. Nobody reads that again."""
    topic = kafka_topic(2)
    java, fellow = (start_peer("java", name, topic) for name in ("java", "fellow"))
    drive(java, fellow, until=lambda: [len(each.owned) for each in (java, fellow)] == [1, 1])
    (owned,) = java.owned
    third = start_peer("instride", "third", topic)
    third.verb = "poll-and-commit"
    written: list[tuple[int, int]] = []

    def java_read_all() -> bool:
        return len(java.seen) == len(written)

    refused = False
    with closing(Librdkafka({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})) as asks:
        while not refused:
            assert len(written) < 1000, "each commit was accepted"
            written += fill(kafka, topic, {owned.partition: 1}, start=len(written))
            drive(java, third, until=java_read_all)
            (committed,) = asks.committed([Partition(topic, owned.partition)], timeout=PATIENCE)
            refused = committed.offset < len(written)
    java.leave()
    drive(fellow, third, until=java.left)
    written += fill(kafka, topic, {owned.partition: 1}, start=len(written))
    members = [java, fellow, third]
    drive(fellow, third, until=lambda: sum(len(each.seen) for each in members) >= len(written))
    each_once(written, *members)


# If one of these fails, that client may be bounced as the others are: docs/interop.md says that it may not.


def test_librdkafka_takes_no_mixed_list() -> None:
    mixed = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "partition.assignment.strategy": ",".join(BOTH)}
    with pytest.raises(KafkaException, match="cooperative"):
        Librdkafka(mixed)


REFUSED = """
import sys
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

mixed = [RangePartitionAssignor, CooperativeStickyAssignor]
KafkaConsumer(bootstrap_servers=sys.argv[1], group_id="g", partition_assignment_strategy=mixed)
"""


def test_kafka_python_takes_no_mixed_list(kafka: LocalKafka) -> None:
    """In a process of its own: the consumer that it refuses to make leaves its thread and its connections behind."""
    made = subprocess.run(
        [sys.executable, "-c", REFUSED, kafka.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert made.returncode == 1
    assert "KafkaConfigurationError" in made.stderr
    assert "Mixing EAGER and COOPERATIVE" in made.stderr
