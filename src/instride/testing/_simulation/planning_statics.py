"""Plans with static members: some restart, within their session or after it; of some a twin comes and takes the place.

Laws
1. By numbers of its own, so that all else of a seed's plan stays as it is.
2. A restart is another process: a member with another name and the same instance id, after the others in the plan.
"""

from __future__ import annotations

import random
from dataclasses import replace

from instride.testing._simulation.plan import Fault, LoopKind, MemberPlan, Plan

__all__ = ["with_statics"]


def with_statics(seed: int, plan: Plan) -> Plan:
    """In three of ten histories with faults; in half of these handlers are slow and somebody comes just before a
    restart, so that many are amid a delay."""
    rng = random.Random(f"statics {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    if plan.kind != "faults" or rng.random() >= 0.3:
        return plan
    if rng.random() < 0.2:
        return _idle(rng, plan)
    slow = rng.random() < 0.5
    if slow:
        plan = replace(plan, handler=(0.001, 0.3, rng.choice((1.0, 3.0)), 0.3))
    for place, each in enumerate(plan.members[:6]):
        if rng.random() < 0.6:
            loop: LoopKind = rng.choice(("flagship", "changes")) if slow else each.loop
            plan = _replaced(plan, place, replace(each, instance=each.name, loop=loop))
            time = min(plan.quiet_after - 0.2, each.joins_at + rng.uniform(0.2, 0.7) * plan.quiet_after)
            plan = _restarted(rng, plan, place, time) if place else plan
            plan = _visited(rng, plan, place, time) if slow else plan
    return plan


def _idle(rng: random.Random, plan: Plan) -> Plan:
    """More members than partitions, far away, and who comes back does not poll at once: it joins once more without
    anything to tell, and has the generation that it had, of which its application has not heard yet."""
    time = sorted(rng.uniform(0.5, plan.quiet_after - 1.5) for _ in range(5))
    usual = MemberPlan(name="A", assignors=("cooperative-sticky",), poll_timeout=0.1)
    members = [replace(usual, name=name, joins_at=rng.uniform(0.0, 0.3), instance=name) for name in "ABCDEF"]
    members[1:] = [replace(each, leaves_at=at) for each, at in zip(members[1:], time, strict=True)]
    back = [
        replace(each, name=each.name.lower(), joins_at=each.leaves_at + rng.uniform(0.1, 1.0), leaves_at=float("inf"))
        for each in members[1:]
    ]
    pauses = tuple(
        Fault(time=each.joins_at + 0.02, kind="pause", seconds=rng.uniform(0.7, 1.6), member=place)
        for place, each in enumerate(back, start=len(members))
    )
    return replace(
        plan,
        members=(*members, *back),
        topics=1,
        partitions=2,
        produced=tuple(each for each in plan.produced if each[1] < 2),
        faults=pauses,
        latency=(0.02, 0.15),
        max_poll_interval=6.0,
    )


def _visited(rng: random.Random, plan: Plan, place: int, time: float) -> Plan:
    """One who stays for a while, and for whom others have to give something up at that time."""
    stays = plan.session_timeout * rng.choice((0.3, 1.0))
    joins_at = max(0.1, time - plan.session_timeout * rng.uniform(0.05, 0.4))
    alike = replace(plan.members[place], instance=None, name=f"V{place}")
    return replace(plan, members=(*plan.members, replace(alike, joins_at=joins_at, leaves_at=joins_at + stays)))


def _restarted(rng: random.Random, plan: Plan, place: int, time: float) -> Plan:
    """It closes, or crashes, and comes back; or a twin comes while it is there; or nothing happens to it."""
    member, last = plan.members[place], plan.quiet_after - 0.2
    how = rng.choice(("closes", "closes", "crashes", "twin", "stays"))
    if how == "stays":
        return plan
    if how == "crashes":
        plan = replace(plan, faults=(*plan.faults, Fault(time=time, kind="crash", member=place)))
    if how == "closes":
        plan = _replaced(plan, place, replace(member, leaves_at=time))
    absent = plan.session_timeout * rng.choice((0.02, 0.2, 0.6, 1.3)) if how != "twin" else 0.0
    back = replace(member, name=member.name.lower(), joins_at=min(last, time + absent), leaves_at=float("inf"))
    return replace(plan, members=(*plan.members, back))


def _replaced(plan: Plan, place: int, member: MemberPlan) -> Plan:
    return replace(plan, members=(*plan.members[:place], member, *plan.members[place + 1 :]))
