"""The network machine leaves out a part that says that it has nothing to do (law 2 of `_core/network/machine.py`).

Each history is played twice. The second time every part is polled in every turn, and the history is the same. A run
plays a part of the histories, which the commit says (`drawn_by_commit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from drawn_by_commit import WHOLE, commit, drawn
from instride._core.network.actions import Action
from instride._core.network.machine import NetworkMachine
from instride.records import TopicPartition
from instride.testing._simulation.campaign import planned
from instride.testing._simulation.planning_groups import GROUPS
from instride.testing._simulation.planning_harsh import HARSH
from instride.testing._simulation.planning_unruly import MEANS
from instride.testing.simulation import History, run

SEEDS = range(700, 712)
PLAYED = SEEDS if WHOLE else drawn(commit(), "parts left out", SEEDS, 2)


@contextmanager
def every_part_polled() -> Iterator[None]:
    tick, poll_parts = NetworkMachine.tick, NetworkMachine._poll_parts

    def never_quiet(machine: NetworkMachine) -> None:
        for each in (machine._assignment, machine._cluster, machine._monitor):
            each.poll_at = float("-inf")
        machine._closing.under_way = True
        machine._followed = ()

    def ticked(machine: NetworkMachine, now: float) -> list[Action]:
        never_quiet(machine)
        return tick(machine, now)

    def polled(machine: NetworkMachine, now: float) -> float:
        never_quiet(machine)
        return poll_parts(machine, now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NetworkMachine, "tick", ticked)
        patch.setattr(NetworkMachine, "_poll_parts", polled)
        yield


def told(history: History) -> list[tuple[object, ...]]:
    """Partitions of one event are sorted: which of them changed first is told apart only where nothing is left out."""
    return [(each.time, each.who, each.what, *map(_sorted, each.detail)) for each in history]


def _sorted(detail: object) -> object:
    return sorted(detail, key=repr) if isinstance(detail, tuple) and not isinstance(detail, TopicPartition) else detail


@pytest.mark.slow
@pytest.mark.parametrize("means", [(), MEANS, HARSH, GROUPS], ids=["ordinary", "unruly", "harsh", "groups"])
def test_no_part_that_is_left_out_had_anything_to_do(means: Sequence[str]) -> None:
    for seed in PLAYED:
        plan = planned(seed, frozenset(means))
        history = run(plan)
        with every_part_polled():
            assert told(run(plan)) == told(history), f"seed {seed}"
