"""Which part of the mixed groups a run of the tests plays. The commit says it: over some commits, all are played.

    INSTRIDE_WHOLE=1 pytest tests/kafka/test_kafka_bounces.py      plays everything

Laws
1. Each process of a run, and each run of a commit, draws the same part.
2. Each part has every kind that `sampled_pairs` and `sampled_bounces` name, and each pair is in the part of some seed.
   Of such a part a run plays some (`drawn_by_commit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from interop_matrix import ALL, KNOWN, Pair, all_pairs

from drawn_by_commit import WHOLE, commit

__all__ = ["SEED", "WHOLE", "sampled_bounces", "sampled_pairs"]

SEED: Final = commit()


def sampled_pairs(seed: str, peers: Iterable[str]) -> list[Pair]:
    """Each assignor with each side as the leader, eight pairs; among them each of these peers."""
    wanted, draw = set(peers), Random(seed)
    able = [pair for pair in all_pairs() if pair.peer in wanted and pair not in KNOWN]
    kinds = [
        [pair for pair in able if (pair.assignor, pair.leads) == (name, side)]
        for name in ALL
        for side in ("we", "they")
    ]
    while True:
        pairs = [draw.choice(kind) for kind in kinds]
        if {pair.peer for pair in pairs} == wanted:
            return pairs


def sampled_bounces(seed: str, ways: Sequence[str], groups: Sequence[str]) -> list[tuple[str, str]]:
    """Each group one way, and as many groups the one way as the other."""
    shuffled = Random(seed).sample(groups, len(groups))
    return [(ways[place % len(ways)], group) for place, group in enumerate(shuffled)]
