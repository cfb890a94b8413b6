"""What the two sticky assignors share: even loads first, then as few moves as those allow.

Where all members subscribe to the same topics (of those that the cluster has) the answer follows from quotas;
where subscriptions differ it is searched for. Racks (KIP-881) are looked at where they matter: with the same topics
they come before stickiness, as in Java's client; where subscriptions differ, they choose among a topic's free ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from instride.core.assignors.aligned import assign_aligned
from instride.core.assignors.api import Assignment, ClusterView
from instride.core.assignors.claims import Claim, keepable
from instride.core.assignors.constrained import assign_constrained
from instride.core.assignors.general import assign_general
from instride.core.assignors.members import as_assignment, subscribers, topics_of
from instride.core.assignors.racks import Racks

__all__ = ["stick"]


def stick(cluster: ClusterView, claims: Sequence[Claim]) -> Assignment:
    """The assignment to aim at, as if every partition could be handed over at once."""
    if not claims:
        return {}
    kept = keepable(cluster, claims)
    consumers = subscribers([claim.member for claim in claims], cluster)
    partitions = {topic: cluster.of_topic(topic) for topic in consumers}
    everything = [each for of_one in partitions.values() for each in of_one]
    racks = Racks(cluster, [claim.member for claim in claims])
    matter = racks.matter(everything, kept)
    if len({topics_of(claim.member, cluster) for claim in claims}) == 1:
        if matter:
            return as_assignment(assign_aligned(everything, kept, racks.near))
        return as_assignment(assign_constrained(everything, kept))
    ids = {topic: [member.member_id for member in members] for topic, members in consumers.items()}
    return as_assignment(assign_general(partitions, ids, kept, racks.near if matter else None))
