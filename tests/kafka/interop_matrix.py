"""Our consumer and another client in one group, as a matrix: peer, assignor, who leads, and join, leave or kill.

    make interop        runs every cell and prints the table (exit status 1 where a cell fails that is not known to)

Laws
1. Each cell is judged twice: while it runs no partition may be owned by two, and each must come where it belongs; then
   the checker of `instride.testing.check` judges the recorded history: every record once, in order, and none missing.
2. The first member to join leads, and stays the leader while it is there. Who joins, leaves or is killed is the other.
3. A cell that fails for a peer's reasons stays in the table, with the reason, in `KNOWN`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interop_history import History, Watched
from kafka_help import drive
from peer_help import GO, Peer, start

from filled_topics import fill
from instride import TopicPartition
from instride.testing import LocalKafka

__all__ = ["ALL", "EVENTS", "KNOWN", "PEERS", "Pair", "all_pairs", "run"]

ALL: Final = ("cooperative-sticky", "range", "roundrobin", "sticky")
PEERS: Final[dict[str, tuple[str, ...]]] = {
    "java": ALL,
    "java-2.8.2": ALL,
    "confluent": ALL[:3],
    "franz": ALL,
    "kafka_python": ALL,
    "aiokafka": ALL[1:],
}
"""The peers, and what each can assign by."""

EVENTS: Final = ("join", "leave", "kill")
_PARTITIONS: Final = 4
_RECORDS: Final = 10
_SESSION: Final = 6.0
_PATIENCE: Final = 60.0
_SHOWN: Final = 500


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """peer: a key of PEERS. leads: "we" or "they"."""

    peer: str
    assignor: str
    leads: str

    def __str__(self) -> str:
        return f"{self.peer}-{self.assignor}-{self.leads}-lead"


KNOWN: Final[dict[Pair, str]] = {}
"""Pairs that may fail, and whose fault that is."""


def all_pairs() -> list[Pair]:
    return [Pair(peer, name, leads) for peer, names in PEERS.items() for name in names for leads in ("we", "they")]


class Scene:
    """One pair on one topic, from the leader's start to the end of what the follower does."""

    def __init__(self, kafka: LocalKafka, pair: Pair, folder: Path, stack: ExitStack) -> None:
        self._kafka, self._pair, self._folder, self._stack = kafka, pair, folder, stack
        self._topic = f"{pair}-{uuid.uuid4().hex[:8]}"
        self._group = f"group-{self._topic}"
        kafka.create_topic(self._topic, _PARTITIONS)
        stack.callback(kafka.delete_topic, self._topic)
        self._written = 0
        self._peers: list[Peer] = []
        self._begin("calm")

    def _begin(self, kind: str) -> None:
        self.history = History(kind, dict.fromkeys(self._partitions, self._written))

    @property
    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in range(_PARTITIONS)]

    def _write(self) -> None:
        fill(self._kafka, self._topic, dict.fromkeys(range(_PARTITIONS), _RECORDS), start=self._written)
        self._written += _RECORDS
        for partition in self._partitions:
            self.history.say("broker", "produced", partition, self._written)

    def _start(self, *, ours: bool, name: str) -> Peer:
        kind = "instride" if ours else self._pair.peer
        settings = {"assignor": self._pair.assignor, "session": _SESSION}
        if ours:
            settings = {"assignors": [self._pair.assignor], "session_timeout": _SESSION}
        peer = start(kind, self._kafka, self._group, self._topic, name, self._folder, settings)
        peer.verb = "poll-and-go-on" if ours else "poll"
        self._stack.callback(peer.end)
        self._peers.append(peer)
        return peer

    def _everything_is_seen(self) -> bool:
        seen = {each for peer in self._peers for each in peer.seen}
        return len(seen) == self._written * _PARTITIONS

    def _go(self, *members: Watched, until: Callable[[], bool]) -> None:
        drive(*members, until=until, timeout=_PATIENCE)

    def join(self) -> None:
        self._write()
        we_lead = self._pair.leads == "we"
        self.leader = Watched(self._start(ours=we_lead, name="leader"), self.history)
        self._go(self.leader, until=self._everything_is_seen)
        self._joined("follower")
        ours = self._peers[0 if we_lead else 1].log
        said = [line for line in ours.splitlines() if "joined group" in line][-1]
        assert said.endswith("as leader") == we_lead, said

    def _joined(self, name: str) -> None:
        self.follower = Watched(self._start(ours=self._pair.leads == "they", name=name), self.history)
        both = (self.leader, self.follower)
        self._go(*both, until=lambda: len(self.leader.owned) == len(self.follower.owned) == _PARTITIONS // 2)
        self._write()
        self._go(*both, until=self._everything_is_seen)

    def leave(self) -> None:
        self.follower.close()
        self._alone()

    def _alone(self) -> None:
        self._go(self.leader, until=lambda: len(self.leader.owned) == _PARTITIONS)
        self._write()
        self._go(self.leader, until=self._everything_is_seen)

    def kill(self) -> None:
        """A history of its own: what was not committed comes again, which a calm one may not show."""
        self._begin("faults")
        self.leader = Watched(self.leader.peer, self.history)
        self._joined("follower-again")
        self.follower.kill()
        self._alone()


def run(kafka: LocalKafka, pair: Pair, folder: Path) -> dict[str, str]:
    """Event -> "" where the cell is good, else what is wrong; an event that was not reached is not there."""
    found: dict[str, str] = {}
    with ExitStack() as stack:
        scene = Scene(kafka, pair, folder, stack)
        for event in EVENTS:
            try:
                getattr(scene, event)()
                found[event] = "; ".join(scene.history.violations())
            except AssertionError as error:
                found[event] = str(error)
            scene.history.save(folder / f"{event}.jsonl")
            if found[event]:
                break
    return found


def _cells(pairs: list[Pair], kafka: LocalKafka, folder: Path) -> Iterator[tuple[Pair, dict[str, str]]]:
    for pair in pairs:
        if pair.peer == "franz" and GO is None:
            yield pair, {}
            continue
        place = folder / str(pair)
        place.mkdir(parents=True)
        yield pair, run(kafka, pair, place)


def _word(pair: Pair, event: str, found: dict[str, str]) -> str:
    if event not in found:
        return "skipped: no Go here" if not found else "not reached"
    if not found[event]:
        return "good"
    return "known" if pair in KNOWN else "FAILS"


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="make interop", description="Every cell of the matrix of mixed groups.")
    parser.add_argument("--only", default="", metavar="WORD", help="only pairs whose name has this in it")
    parser.add_argument("--keep", type=Path, help="where histories and logs are kept; else they are not")
    parser.add_argument("--broker", metavar="VERSION", help="of Kafka, as LocalKafka knows it; else the newest")
    arguments = parser.parse_args()
    failed: list[tuple[Pair, str]] = []
    with tempfile.TemporaryDirectory() as scratch, LocalKafka(version=arguments.broker) as kafka:
        pairs = [pair for pair in all_pairs() if arguments.only in str(pair)]
        print("| peer | assignor | leads | join | leave | kill | seconds |\n|---|---|---|---|---|---|---|", flush=True)
        began = time.monotonic()
        for pair, found in _cells(pairs, kafka, arguments.keep or Path(scratch)):
            words = [_word(pair, event, found) for event in EVENTS]
            took = time.monotonic() - began
            print(f"| {pair.peer} | {pair.assignor} | {pair.leads} | {' | '.join(words)} | {took:.0f} |", flush=True)
            failed += [(pair, f"{pair}, {event}: {why[:_SHOWN]}") for event, why in found.items() if why]
            began = time.monotonic()
    print(
        "\n".join(["", *(text for _, text in failed), *(sorted({KNOWN[pair] for pair, _ in failed if pair in KNOWN}))])
    )
    return int(any(pair not in KNOWN for pair, _ in failed))


if __name__ == "__main__":
    sys.exit(main())
