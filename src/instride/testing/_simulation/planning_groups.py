"""Plans of groups that begin at the end of the logs, of users whose workers have a queue for each partition, of logs
that are cut by retention or truncated by unclean elections, and of topics that are recreated.

Laws
1. By numbers of its own, so that all else of a seed's plan stays as it is, but what a means speaks of: who works and
   how, when records are written, and how many. With truncations at most 25 at once are, and everybody stays where he
   is led (`MemberPlan.stays`); so he does with recreations, which are faults.
2. A history has each of the means that are used.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from instride.testing._simulation.plan import Plan

__all__ = ["GROUPS", "with_groups"]

GROUPS: Final = ("executors", "latest", "retention", "truncations", "recreations")
"""executors: users handle their records as `PartitionExecutor` does (rule 16). latest: where nothing is committed the
group begins at the end of the log, so that many partitions are handed over before anything of them is (rule 18).
retention: logs lose what is old, read or not, so that members are reset while partitions move. truncations: brokers
whose logs end earlier become leaders, so that what was read, and committed, is there no more, and other records take
the same offsets (KIP-320). recreations: topics are deleted and created again under the same name, with another id
(KIP-516), so that no offset that was read, or committed, means anything in the new one."""


def with_groups(seed: int, plan: Plan, means: frozenset[str] = frozenset(GROUPS)) -> Plan:
    """means: of GROUPS, those that are used."""
    rng = random.Random(f"groups {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    if "executors" in means:
        plan = _with_executors(rng, plan)
    plan = _latest(rng, plan) if "latest" in means else plan
    plan = _retained(seed, plan) if "retention" in means else plan
    plan = _truncated(seed, plan) if "truncations" in means else plan
    return _recreated(seed, plan) if "recreations" in means else plan


def _with_executors(rng: random.Random, plan: Plan) -> Plan:
    """Few workers and polls of many records, so that much is queued when a revoke is requested."""
    members = tuple(
        replace(
            each,
            loop="executor",
            workers=rng.choice((1, 2, 4)),
            limit=rng.choice((10, 500)),
            most_in_flight=rng.choice((20, 1_000_000)),
            flickers=0.0,
            pauses=0.0,
            seeks=0.0,
            rewinds=False,
        )
        if rng.random() < 0.8
        else each
        for each in plan.members
    )
    return replace(plan, members=members)


def _latest(rng: random.Random, plan: Plan) -> Plan:
    """Little is written after the beginning: what is handed over has often returned nothing yet."""
    produced = tuple(each for each in plan.produced if not each[0] or rng.random() < 0.4)
    return replace(plan, reset="latest", start_offsets=rng.random() < 0.5, produced=produced)


def _retained(seed: int, plan: Plan) -> Plan:
    """Often all of a log, so that a reset leads to its end."""
    rng = random.Random(f"retention {seed}")  # noqa: S311 - the same
    times = sorted(rng.uniform(0.2, plan.quiet_after) for _ in range(rng.randint(1, 8)))
    cuts = ((time, rng.randrange(plan.partitions), rng.choice((0, 0, 1, 3, 10))) for time in times)
    return replace(plan, retentions=tuple(cuts))


def _truncated(seed: int, plan: Plan) -> Plan:
    """Most are soon followed by other records, often by as many as were lost. Nobody seeks: a place that a user names
    has no leader epoch, so nobody can tell that it is of the log of before."""
    rng = random.Random(f"truncations {seed}")  # noqa: S311 - the same
    truncations, produced = [], list(plan.produced)
    for _ in range(rng.randint(1, 5)):
        time, number = rng.uniform(0.2, plan.quiet_after), rng.randrange(plan.partitions)
        lost = rng.choice((1, 2, 3, 5, 10, 1000))
        truncations.append((time, number, lost))
        if rng.random() < 0.8:
            soon = min(time + rng.choice((0.0, 0.01, 0.1, 0.5)), plan.quiet_after)
            produced.append((soon, number, rng.choice((1, lost, lost + 3, 20))))
    return replace(
        plan,
        truncations=tuple(sorted(truncations)),
        produced=tuple(sorted((time, number, min(count, 25)) for time, number, count in produced)),
        members=tuple(replace(each, seeks=0.0, rewinds=False, stays=True) for each in plan.members),
    )


def _recreated(seed: int, plan: Plan) -> Plan:
    """Some topics are away for longer than members doubt that: then their partitions are revoked, and assigned again.
    Most partitions of the new one have records soon, some of them more than the old one had. Nobody seeks: a place that
    a user names is of no topic."""
    rng = random.Random(f"recreations {seed}")  # noqa: S311 - the same
    recreations, produced = [], list(plan.produced)
    for _ in range(rng.randint(1, 3)):
        time, topic = rng.uniform(0.2, plan.quiet_after), rng.randrange(plan.topics)
        created = min(time + rng.choice((0.0, 0.0, 0.05, 0.3, 1.0, 3.0, 8.0)), plan.quiet_after)
        recreations.append((time, topic, created - time))
        for number in range(topic, plan.partitions, plan.topics):
            if rng.random() < 0.8:
                soon = min(created + rng.choice((0.0, 0.01, 0.1, 0.5)), plan.quiet_after)
                produced.append((soon, number, rng.choice((1, 3, 10, 25))))
    return replace(
        plan,
        kind="faults",
        recreations=tuple(sorted(recreations)),
        produced=tuple(sorted(produced)),
        members=tuple(replace(each, seeks=0.0, rewinds=False, stays=True) for each in plan.members),
    )
