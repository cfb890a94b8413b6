"""`range`: each topic by itself is cut into contiguous pieces, one a subscriber.

Laws
1. Within a topic the pieces differ by at most one partition; the first members get the longer ones.
2. Topics with equally many partitions and the same subscribers are cut alike, so that equal numbers meet.
3. Racks are not looked at (KIP-881 is left for later).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Final

from instride.core.assignors.api import Assignment, ClusterView, MemberSubscription
from instride.core.assignors.members import as_assignment, in_order, subscribers
from instride.core.group.protocol import RebalanceProtocol
from instride.records import TopicPartition

__all__ = ["RangeAssignor"]


class RangeAssignor:
    name: Final = "range"
    version: Final = 0
    protocols: Final = frozenset({RebalanceProtocol.EAGER})

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        return None

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        group = in_order(members)
        parts: dict[str, list[TopicPartition]] = {member.member_id: [] for member in group}
        for topic, consumers in subscribers(group, cluster).items():
            pieces = _cut(cluster.of_topic(topic), len(consumers))
            for member, piece in zip(consumers, pieces, strict=True):
                parts[member.member_id] += piece
        return as_assignment(parts)

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        pass


def _cut(partitions: list[TopicPartition], count: int) -> list[list[TopicPartition]]:
    size, longer = divmod(len(partitions), count)
    starts = [index * size + min(index, longer) for index in range(count + 1)]
    return [partitions[start:end] for start, end in pairwise(starts)]
