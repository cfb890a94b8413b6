"""Plans whose users read some records again, go back to what is committed, or pause single partitions.

Law: by numbers of its own, so that all else of a seed's plan stays as it is.
"""

from __future__ import annotations

import random
from dataclasses import replace

from instride.testing._simulation.plan import MemberPlan, Plan

__all__ = ["with_users"]


def with_users(seed: int, plan: Plan) -> Plan:
    """In one history of three."""
    rng = random.Random(f"users {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    if rng.random() >= 0.35:
        return plan
    return replace(plan, members=tuple(_of_its_own_mind(rng, each) for each in plan.members))


def _of_its_own_mind(rng: random.Random, member: MemberPlan) -> MemberPlan:
    return replace(
        member,
        seeks=rng.choice((0.0, 0.05, 0.2)),
        pauses=rng.choice((0.0, 0.1, 0.4)),
        rewinds=rng.random() < 0.5,
    )
