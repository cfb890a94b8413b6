"""Plans whose sessions outlast max_poll_interval, as with the defaults of many frameworks and of static members.

Law: by numbers of its own, so that all else of a seed's plan stays as it is.
"""

from __future__ import annotations

import random
from dataclasses import replace

from instride.testing._simulation.plan import Fault, Plan

__all__ = ["with_long_sessions"]

_LONGEST = 6.0
"""Seconds: who is suspended for longer comes back after the end of most histories."""


def with_long_sessions(seed: int, plan: Plan) -> Plan:
    """One history with faults in six. While a member is suspended, another one joins, and the group goes on without
    the first at max_poll_interval; its session goes on, so that only its own clock tells it that it is too late."""
    rng = random.Random(f"sessions {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    if plan.kind != "faults" or plan.max_poll_interval > _LONGEST or rng.random() >= 1 / 6:
        return plan
    plan = replace(plan, session_timeout=rng.choice((1.5, 3.0)) * plan.max_poll_interval)
    for place in rng.sample(range(len(plan.members)), 2):
        time = rng.uniform(0.5, plan.quiet_after)
        seconds = plan.max_poll_interval + rng.choice((0.05, 0.5, 2.0))
        fault = Fault(time=time, kind="suspend", member=place, seconds=seconds)
        name = f"S{place}"
        visitor = replace(plan.members[place], name=name, joins_at=time + 0.1, leaves_at=float("inf"), instance=None)
        plan = replace(plan, faults=(*plan.faults, fault), members=(*plan.members, visitor))
    return plan
