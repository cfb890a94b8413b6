"""The invariants. One file for each, or for a few that are of one kind."""

from __future__ import annotations

from instride.testing._check.rules import (
    commits,
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

_ALL = (commits, delays, lease, liveness, losses, once, order, owners, promises, resets, resources, revokes)
"""That they are imported is what fills RULES."""
