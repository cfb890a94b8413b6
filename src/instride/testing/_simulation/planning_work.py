"""Plans in which there is work for the other partitions while one is delayed (L1).

Law: by numbers of its own, so that all else of a seed's plan stays as it is.
"""

from __future__ import annotations

import random
from dataclasses import replace

from instride.testing._simulation.plan import LoopKind, Plan

__all__ = ["with_work_for_others"]

_LOOPS: tuple[LoopKind, ...] = ("flagship", "flagship", "changes")


def with_work_for_others(seed: int, plan: Plan) -> Plan:
    """In half of the slow ones: some handlers take long and are waited for, polls are small, records come all along."""
    rng = random.Random(f"work {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    if plan.kind != "slow" or rng.random() >= 0.5:
        return plan
    members = tuple(
        replace(each, loop=rng.choice(_LOOPS), most_in_flight=10_000, limit=rng.choice((1, 3)), poll_timeout=0.3)
        for each in plan.members
    )
    steadily = [(time / 5, number, 1) for number in range(plan.partitions) for time in range(int(5 * plan.quiet_after))]
    return replace(
        plan,
        members=tuple(replace(each, assignors=("cooperative-sticky",)) for each in members),
        produced=tuple(sorted((*plan.produced, *steadily))),
        handler=(0.001, 0.005, 6.0, 0.05),
        max_poll_interval=60.0,
    )
