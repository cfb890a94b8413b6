"""Time without an owner, at default heartbeats (3 s), for each kind of peer.

    python benchmarks/ownerless.py [--rounds N] [KIND...]

A first member owns 12 partitions, which are written all the time; a second joins. For each partition that moves: from
the poll after which the first member has it no more, to the poll in which the second one returns a record of it. Both
are processes, seen from outside: a client whose poll tells late that a partition is gone looks better than it is.

"Rebalances" are the generations that the broker's log names for a group, from the second member's start until all its
partitions have moved: the most of any round.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kafka"))
os.environ["PEER_HEARTBEAT_MS"] = "3000"

from peer_help import Peer, start

from instride.testing import LocalKafka
from instride.testing.check import percentile

PARTITIONS = 12
PAIRS = [
    ("instride", "instride"),
    *[
        (a, b)
        for kind in ("java", "confluent", "franz", "kafka_python")
        for a, b in ((kind, kind), (kind, "instride"), ("instride", kind))
    ],
]
LONGEST = 40.0


class Watched:
    """A peer that polls all the time, in a thread. released and first: by partition, when."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.released: dict[int, float] = {}
        self.first: dict[int, float] = {}
        self.owned: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            returned = self.peer.turn()
            now = time.monotonic()
            owned = {each.partition for each in self.peer.owned}
            self.released |= dict.fromkeys(self.owned - owned, now)
            for partition, _ in returned:
                self.first.setdefault(partition, now)
            self.owned = owned

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self.peer.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    seconds: list[float]
    """Without an owner, for each partition that moved."""
    rebalances: int


def hand_over(kafka: LocalKafka, first: str, second: str, topic: str, folder: Path) -> HandOver:
    kafka.create_topic(topic, partitions=PARTITIONS)
    stop = threading.Event()
    feeder = threading.Thread(target=feed, args=(kafka.bootstrap_servers, topic, stop))
    feeder.start()
    owner = Watched(start(first, kafka, topic, topic, f"{topic}-a", folder, settings_of(first)))
    try:
        wait(lambda: len(owner.first) == PARTITIONS)
        time.sleep(3.5)  # more than one heartbeat, at any phase
        before = generations(kafka, topic)
        joins = Watched(start(second, kafka, topic, topic, f"{topic}-b", folder, settings_of(second)))
        try:
            wait(lambda: len(joins.first) == PARTITIONS // 2)
            rebalances = generations(kafka, topic) - before
        finally:
            joins.end()
    finally:
        owner.end()
        stop.set()
        feeder.join()
    seconds = [joins.first[each] - owner.released[each] for each in joins.first if each in owner.released]
    return HandOver(seconds=seconds, rebalances=rebalances)


def generations(kafka: LocalKafka, group: str) -> int:
    """How many the broker's log names: the coordinator logs a line for each one that all members have joined."""
    return kafka.log().count(f"Stabilized group {group} generation ")


def settings_of(kind: str) -> dict[str, object]:
    return {} if kind == "instride" else {"assignor": "cooperative-sticky", "session": 30}


def wait(until: object) -> None:
    end = time.monotonic() + LONGEST
    while not until() and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(0.02)


def feed(servers: str, topic: str, stop: threading.Event) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
    while not stop.wait(0.02):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"x", partition=partition)
        producer.poll(0)
    producer.flush(5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("kinds", nargs="*")
    options = parser.parse_args()
    pairs = [pair for pair in PAIRS if not options.kinds or set(pair) & set(options.kinds) or pair == PAIRS[0]]
    print("| from | to | partitions | half within | 95 of 100 within | longest | rebalances |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, LocalKafka() as kafka:
        for first, second in pairs:
            inside = Path(folder) / "logs"
            inside.mkdir(exist_ok=True)
            rounds = [
                hand_over(kafka, first, second, f"{first}-{second}-{number}", inside)
                for number in range(options.rounds)
            ]
            print("|", " | ".join([first, second, *row(rounds)]), "|", flush=True)


def row(rounds: Sequence[HandOver]) -> list[str]:
    """Of the table: what all rounds of a pair have shown."""
    seconds = [each for one in rounds for each in one.seconds]
    times = (percentile(seconds, 0.5), percentile(seconds, 0.95), max(seconds)) if seconds else ()
    shown = [f"{each:.2f} s" for each in times] or ["-"] * 3
    return [str(len(seconds)), *shown, str(max(one.rebalances for one in rounds))]


if __name__ == "__main__":
    main()
