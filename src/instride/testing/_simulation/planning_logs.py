"""Plans whose logs have holes: transactions, committed and aborted, some of them open for long; and compactions.

Law: by numbers of its own, so that all else of a seed's plan stays as it is.
"""

from __future__ import annotations

import random
from dataclasses import replace

from instride.testing._simulation.plan import Plan

__all__ = ["with_holes"]


def with_holes(seed: int, plan: Plan) -> Plan:
    """One history in four has transactions, one in six compactions."""
    rng = random.Random(f"logs {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    if rng.random() < 0.25:
        plan = _transactional(rng, plan)
    if rng.random() < 0.17:
        plan = _compacted(rng, plan)
    return plan


def _transactional(rng: random.Random, plan: Plan) -> Plan:
    """About half of what is produced is so in transactions. All of them end before the quiet time."""
    produced, transactions = [], []
    for each in plan.produced:
        time, number, count = each
        if rng.random() < 0.5:
            seconds = min(rng.choice((0.0, 0.05, 0.5, 2.0)), plan.quiet_after - time)
            transactions.append((time, number, count, seconds, rng.random() < 0.6))
        else:
            produced.append(each)
    return replace(plan, produced=tuple(produced), transactions=tuple(transactions))


def _compacted(rng: random.Random, plan: Plan) -> Plan:
    times = sorted(rng.uniform(0.0, plan.quiet_after) for _ in range(rng.randint(1, 6)))
    return replace(plan, compactions=tuple((time, rng.randrange(plan.partitions)) for time in times))
