"""What a user needs for an assignor of their own, and the assignors that come with instride (docs/assignors.md)."""

from __future__ import annotations

from instride._core.assignors.assignor import Assignment, Assignor, ClusterView, MemberSubscription
from instride._core.assignors.range import RangeAssignor
from instride._core.assignors.roundrobin import RoundRobinAssignor
from instride._core.assignors.sticky import (
    CooperativeStickyAssignor,
    OwnedPartitions,
    StickyAssignor,
    withhold_transferring,
)
from instride._core.ownership import RebalanceProtocol

__all__ = [
    "Assignment",
    "Assignor",
    "OwnedPartitions",
    "ClusterView",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "withhold_transferring",
]
