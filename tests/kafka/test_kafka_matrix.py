"""A part of the matrix of mixed groups, by the commit (`make interop` runs all of it): two pairs of a sample of eight.
The sample has each peer, and each assignor with each side leading; in each pair the other joins, leaves and is killed.
And that the judge can find something.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from interop_history import History, Watched
from interop_matrix import ALL, EVENTS, KNOWN, PEERS, Pair, all_pairs, run
from interop_sample import SEED, WHOLE, sampled_pairs
from peer_help import GO, Peer

from drawn_by_commit import commit
from instride import TopicPartition
from instride.testing import LocalKafka


def played() -> list[Any]:
    """This run's pairs. Without Go the other peers stand in for franz-go, and a skipped pair says so."""
    if WHOLE:
        return [needs_go(pair) for pair in all_pairs() if pair not in KNOWN]
    if GO is not None:
        return [needs_go(pair) for pair in sampled_pairs(SEED, PEERS)]
    absent = Pair("franz", "cooperative-sticky", "we")
    return [needs_go(pair) for pair in [*sampled_pairs(SEED, set(PEERS) - {"franz"}), absent]]


def needs_go(pair: Pair) -> Any:
    skip = pytest.mark.skipif(
        pair.peer == "franz" and GO is None, reason="franz-go's peer needs Go 1.26, which is not here"
    )
    return pytest.param(pair, marks=skip, id=str(pair))


@pytest.mark.drawn(2)
@pytest.mark.requirement("surface/peers")
@pytest.mark.slow
@pytest.mark.parametrize("pair", played())
def test_a_pair(pair: Pair, kafka: LocalKafka, tmp_path: Path) -> None:
    assert run(kafka, pair, tmp_path) == dict.fromkeys(EVENTS, "")


@pytest.mark.requirement("surface/peers")
@pytest.mark.parametrize("peers", [set(PEERS), set(PEERS) - {"franz"}], ids=["all", "without Go"])
def test_each_part_has_every_peer_and_each_assignor_led_by_each_side(peers: set[str]) -> None:
    assert EVENTS == ("join", "leave", "kill"), "in each pair"
    for seed in range(100):
        pairs = sampled_pairs(str(seed), peers)
        assert {pair.peer for pair in pairs} == peers
        assert {(pair.assignor, pair.leads) for pair in pairs} == {
            (name, side) for name in ALL for side in ("we", "they")
        }
        assert pairs == sampled_pairs(str(seed), peers), "each process of a run draws the same"


def test_every_pair_is_in_the_part_of_some_commit() -> None:
    parts = [sampled_pairs(str(seed), PEERS) for seed in range(100)]
    assert {pair for part in parts for pair in part} == set(all_pairs()) - set(KNOWN)


def test_without_git_the_part_is_always_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit.__wrapped__() == "0", "asked anew: what the run has asked before is kept"


class Told:
    """In a peer's place: each turn says what it is told to."""

    name = "peer"

    def __init__(self, *turns: tuple[list[tuple[int, int]], set[int], set[int]]) -> None:
        self._turns = list(turns)
        self.owned: frozenset[TopicPartition] = frozenset()
        self.lost: list[TopicPartition] = []
        self.seen: list[tuple[int, int]] = []

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition("t", number)

    def turn(self) -> list[tuple[int, int]]:
        records, owned, lost = self._turns.pop(0)
        self.owned = frozenset(map(self.partition, owned))
        self.lost += map(self.partition, lost)
        return records


def judged(kind: str, *members: Told, end: int = 3) -> str:
    """What is found where the members take turns, all of the first one's first."""
    history = History(kind, {TopicPartition("t", 0): 0})
    history.say("broker", "produced", TopicPartition("t", 0), end)
    for number, member in enumerate(members):
        member.name = f"member-{number}"
        watched = Watched(cast(Peer, member), history)
        while member._turns:
            watched.turn()
    return "; ".join(history.violations())


ALL_THREE = [(0, 0), (0, 1), (0, 2)]


def test_a_history_in_which_all_is_well() -> None:
    assert judged("calm", Told(([], {0}, set()), (ALL_THREE[:2], {0}, set()), ([(0, 2)], set(), set()))) == ""
    assert (
        judged("calm", Told((ALL_THREE[:1], {0}, set()), ([], set(), set())), Told((ALL_THREE[1:], {0}, set()))) == ""
    )


def test_what_the_judge_finds() -> None:
    assert "S1" in judged("calm", Told((ALL_THREE, {0}, set()), ([], set(), set())), Told(([(0, 2)], {0}, set())))
    assert "S3" in judged("calm", Told(([(0, 0), (0, 2)], {0}, set())))
    assert "L3" in judged("calm", Told((ALL_THREE, {0}, set())), end=4)
    assert "P3" in judged("calm", Told((ALL_THREE, {0}, set()), ([], set(), {0})))
    assert judged("faults", Told((ALL_THREE, {0}, set()), ([], set(), {0})), Told(([(0, 2)], {0}, set()))) == ""
