"""What a user needs for an assignor of their own, and the assignors that come with instride (docs/assignors.md)."""

from __future__ import annotations

from instride.core.assignors.assignor import Assignment, Assignor, ClusterView, MemberSubscription
from instride.core.assignors.range import RangeAssignor
from instride.core.assignors.roundrobin import RoundRobinAssignor
from instride.core.assignors.sticky import Claim, CooperativeStickyAssignor, StickyAssignor, withhold_transferring
from instride.core.ownership import RebalanceProtocol

__all__ = [
    "Assignment",
    "Assignor",
    "Claim",
    "ClusterView",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "withhold_transferring",
]
