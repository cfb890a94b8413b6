"""Who runs beside which replicas (KIP-881): a member that reads from its own rack costs no traffic between racks.

Laws
1. A member of which no rack is known is beside everything; a partition of which none is known, beside nobody else.
2. Racks matter where some member's rack has a replica, and not every partition has one in every rack: else any
   assignment is as good as any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from instride.core.assignors.api import ClusterView, MemberSubscription
from instride.records import TopicPartition

__all__ = ["Racks"]


class Racks:
    """The racks of one group's members, and of the cluster's replicas."""

    def __init__(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> None:
        self._members = {member.member_id: member.rack for member in members}
        self._replicas = cluster.racks

    def near(self, member_id: str, partition: TopicPartition) -> bool:
        """Law 1."""
        rack = self._members.get(member_id)
        return rack is None or rack in self._replicas.get(partition, ())

    def matter(self, partitions: Collection[TopicPartition], members: Iterable[str]) -> bool:
        """Law 2."""
        of_members = {rack for member in members if (rack := self._members.get(member)) is not None}
        if not of_members:
            return False
        of_each = [frozenset(self._replicas.get(each, ())) for each in partitions]
        everywhere = frozenset().union(*of_each)
        return bool(of_members & everywhere) and any(each != everywhere for each in of_each)
