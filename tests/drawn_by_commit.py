"""Which part of the slow tests a run plays. The commit says it: over some commits, all are played.

    @pytest.mark.drawn(3)              of the cases of this test, three
    @pytest.mark.drawn(2, "demo")      of the cases of all tests with this name, two
    @pytest.mark.slow                  of the cases of all tests that have this mark and are not `drawn`, a third

    INSTRIDE_WHOLE=1 pytest ...        plays everything, and so does `make whole`

Laws
1. Each process of a run, and each run of a commit, draws the same part.
2. Each case is in the part of some commit.
3. A test that proves a requirement is always played, by some of its cases: only others may share a name.
4. Of the slow ones, too, those that prove a requirement are always played.
5. What is named by its own id (`pytest FILE::TEST`) is played whole: so a mutant finds the test that kills it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Final, TypeVar

import pytest

__all__ = ["WHOLE", "commit", "drawn", "without_undrawn"]

WHOLE: Final = os.environ.get("INSTRIDE_WHOLE") == "1"
_PROOFS: Final = ("requirement", "rule", "vector")
_SLOW: Final = 3

T = TypeVar("T")


@cache
def commit() -> str:
    """Its hash; "0" where there is no git, or no repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "0"


def drawn(seed: str, name: str, all_of_it: Sequence[T], count: int) -> list[T]:
    """So many of them, in their order. Each name has a draw of its own."""
    places = Random(f"{seed} {name}").sample(range(len(all_of_it)), min(count, len(all_of_it)))
    return [all_of_it[place] for place in sorted(places)]


def without_undrawn(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """These, and of those that are drawn the part of the seed."""
    groups: dict[str, tuple[int, list[pytest.Item]]] = {}
    slow: list[pytest.Item] = []
    for item in items:
        proves = any(item.get_closest_marker(proof) for proof in _PROOFS)
        if (mark := item.get_closest_marker("drawn")) is not None:
            count, *named = mark.args
            if named and proves:
                raise pytest.UsageError(f"{item.nodeid} proves a requirement: it may share its draw with no other test")
            name = named[0] if named else item.nodeid.partition("[")[0]
            groups.setdefault(name, (count, []))[1].append(item)
        elif item.get_closest_marker("slow") is not None and not proves:
            slow.append(item)
    groups["of all that are marked slow"] = -(-len(slow) // _SLOW), slow
    left_out: set[pytest.Item] = set()
    for name, (count, cases) in groups.items():
        in_order = sorted(cases, key=lambda item: item.nodeid)
        left_out |= set(in_order) - set(drawn(seed, name, in_order, count))
    return [item for item in items if item not in left_out]
