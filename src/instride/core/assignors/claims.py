"""Who owns what, as the members themselves say, and what may therefore not be granted yet.

Laws
1. Of two members that list a partition, the one with the higher generation has it: the other is out of date.
2. Where the highest generation is shared, neither keeps it, nor is granted it before the other lets go.
3. A claim is kept only where the member subscribes to the topic and the cluster has the partition. A claim
   that cannot be kept still stands in the way of a grant: its member may be at work on it.
4. A claim that nobody disputes counts, whatever its generation. A later join without it ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from instride.core.assignors.api import Assignment, ClusterView, MemberSubscription
from instride.core.assignors.members import topics_of
from instride.records import TopicPartition

__all__ = ["Claim", "Kept", "keepable", "withhold_transferring"]

Kept = dict[str, list[TopicPartition]]
"""Member id -> what it owns and may keep, for every member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one member lists as its own, and of which generation."""

    member: MemberSubscription
    owned: tuple[TopicPartition, ...]
    generation: int


def keepable(cluster: ClusterView, claims: Iterable[Claim]) -> Kept:
    claims = list(claims)
    holders = _holders(claims)
    kept: Kept = {}
    for claim in claims:
        member_id, topics = claim.member.member_id, topics_of(claim.member, cluster)
        kept[member_id] = [
            partition
            for partition in dict.fromkeys(claim.owned)
            if partition.topic in topics and partition in cluster and holders[partition] == [member_id]
        ]
    return kept


def withhold_transferring(assignment: Assignment, claims: Iterable[Claim]) -> Assignment:
    """The assignment without what another member must give up first: it is granted in the round after
    that."""
    holders = _holders(claims)
    return {
        member_id: tuple(partition for partition in partitions if holders.get(partition, [member_id]) == [member_id])
        for member_id, partitions in assignment.items()
    }


def _holders(claims: Iterable[Claim]) -> Mapping[TopicPartition, list[str]]:
    """Partition -> the members that list it with the highest generation of those that list it."""
    highest: dict[TopicPartition, int] = {}
    holders: dict[TopicPartition, list[str]] = {}
    for claim in claims:
        for partition in dict.fromkeys(claim.owned):
            best = highest.get(partition)
            if best is None or claim.generation > best:
                highest[partition] = claim.generation
                holders[partition] = [claim.member.member_id]
            elif claim.generation == best:
                holders[partition].append(claim.member.member_id)
    return holders
