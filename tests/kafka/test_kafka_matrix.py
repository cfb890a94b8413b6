"""A covering part of the matrix of mixed groups (`make interop` runs all of it): each peer with each assignor, each
side leading, and in each the other joins, leaves and is killed. And that the judge of the matrix can find something.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from interop_history import History, Watched
from interop_matrix import EVENTS, KNOWN, PEERS, Pair, all_pairs, covering_pairs, run
from peer_help import GO, Peer

from instride import TopicPartition
from instride.testing import LocalKafka


def needs_go(pair: Pair) -> Any:
    skip = pytest.mark.skipif(
        pair.peer == "franz" and GO is None, reason="franz-go's peer needs Go 1.26, which is not here"
    )
    return pytest.param(pair, marks=skip, id=str(pair))


@pytest.mark.requirement("surface/peers")
@pytest.mark.slow
@pytest.mark.parametrize("pair", [needs_go(pair) for pair in covering_pairs()])
def test_a_pair(pair: Pair, kafka: LocalKafka, tmp_path: Path) -> None:
    assert run(kafka, pair, tmp_path) == dict.fromkeys(EVENTS, "")


@pytest.mark.requirement("surface/peers")
def test_the_covering_part_covers() -> None:
    pairs = covering_pairs()
    assert set(pairs) <= set(all_pairs())
    assert not set(pairs) & set(KNOWN)
    assert EVENTS == ("join", "leave", "kill"), "in each pair"
    sides = {"we", "they"}
    for peer, names in PEERS.items():
        own = [pair for pair in pairs if pair.peer == peer]
        assert {pair.assignor for pair in own} >= set(names) - {"sticky"}
        assert {pair.leads for pair in own} == sides
    for assignor in ("cooperative-sticky", "range", "roundrobin", "sticky"):
        assert {pair.leads for pair in pairs if pair.assignor == assignor} == sides


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
