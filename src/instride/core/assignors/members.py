"""The order of a group's members, and who may have what.

Laws
1. Static members come first, by instance id: they keep their place when a restart changes their member id.
2. Dynamic members follow, by member id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from instride.core.assignors.api import Assignment, ClusterView, MemberSubscription
from instride.records import TopicPartition

__all__ = ["as_assignment", "in_order", "subscribers", "topics_of"]


def in_order(members: Iterable[MemberSubscription]) -> list[MemberSubscription]:
    return sorted(members, key=_rank)


def _rank(member: MemberSubscription) -> tuple[bool, str]:
    instance = member.group_instance_id
    return (True, member.member_id) if instance is None else (False, instance)


def topics_of(member: MemberSubscription, cluster: ClusterView) -> frozenset[str]:
    """The topics of the subscription that have partitions."""
    return frozenset(topic for topic in member.topics if cluster.partitions.get(topic, 0) > 0)


def subscribers(members: Sequence[MemberSubscription], cluster: ClusterView) -> dict[str, list[MemberSubscription]]:
    """Each subscribed topic that has partitions, by name, with its subscribers in the order of `members`."""
    found: dict[str, list[MemberSubscription]] = {}
    for member in members:
        for topic in topics_of(member, cluster):
            found.setdefault(topic, []).append(member)
    return {topic: found[topic] for topic in sorted(found)}


def as_assignment(parts: dict[str, list[TopicPartition]]) -> Assignment:
    return {member_id: tuple(sorted(partitions)) for member_id, partitions in parts.items()}
