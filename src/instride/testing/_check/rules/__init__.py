"""The invariants. One file for each, or for a few that are of one kind.

once (S1, S2), order (S3), committable (S4 to S6), revokes (S7), losses (S8), resets (S9), lease (S10), owners (S11)
delays (L1, L2, L5), liveness (L3, L4), resources (R1), promises (P1 to P5); rule: how one is declared
"""

from __future__ import annotations

from instride.testing._check.rules import (
    committable,
    delays,
    lease,
    liveness,
    losses,
    once,
    order,
    owners,
    promises,
    resets,
    resources,
    revokes,
)
from instride.testing._check.rules.rule import RULES, Rule

__all__ = ["RULES", "Rule"]

_ALL = (committable, delays, lease, liveness, losses, once, order, owners, promises, resets, resources, revokes)
"""That they are imported is what fills RULES."""
