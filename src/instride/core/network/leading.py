"""What a member does when it leads its group: deal out the partitions.

Laws
1. It waits until the metadata of every subscribed topic of every member is known.
2. What a member says of itself that cannot be read makes that member subscribe to nothing; it stops nobody else.
3. The counts of partitions that an assignment was made from are kept, so that a change of them is seen; where members
   say in which racks they run, the racks of the replicas too (KIP-881).
4. Each assignment carries a notice for members of ours: the group's size, and how many partitions are withheld until
   their owners have released them (docs/rebalance.md, rule 19). Other clients do not read user data of this kind.
5. A static leader that comes back to a stable group makes none: the group goes on with the one there is (KIP-814).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from instride.core.assignors.assignor import Assignor, ClusterView, MemberSubscription
from instride.core.network.cluster import Cluster
from instride.errors import ProtocolError
from instride.records import TopicPartition
from instride.wire import api
from instride.wire.consumer_protocol import Assignment, Subscription, read_subscription, write_assignment
from instride.wire.group_notice import GroupNotice, write_notice

__all__ = ["Leading"]


class Leading:
    """The members of one generation."""

    def __init__(self, answer: api.JoinGroupAnswer, cluster: Cluster) -> None:
        self._cluster = cluster
        self._members = tuple(_decoded(member) for member in answer.members)
        self.topics = frozenset(topic for member in self._members for topic in member.topics)
        self._skips = answer.skip_assignment
        self._racked = any(member.rack is not None for member in self._members)
        self._view: ClusterView | None = None

    def ready(self) -> bool:
        """Law 1: known, or known to be missing."""
        return all(topic in self._cluster.topics for topic in self.topics)

    def outdated(self) -> bool:
        return self._view is not None and self._view != self._present_view()

    def assign(self, assignor: Assignor) -> dict[str, bytes]:
        """Member id -> assignment bytes. Raises what the assignor raises."""
        self._view = self._present_view()
        if self._skips:
            return {}
        made = assignor.assign(self._view, self._members)
        withheld = self._withheld(made)
        places = {member: place for place, member in enumerate(sorted(made))}
        notices = {
            member: write_notice(GroupNotice(members=len(places), place=place, withheld=withheld))
            for member, place in places.items()
        }
        return {
            member: write_assignment(Assignment(partitions=tuple(parts), userdata=notices[member]))
            for member, parts in made.items()
        }

    def _withheld(self, made: Mapping[str, Iterable[TopicPartition]]) -> int:
        """Partitions that a member still owns and is to release. Eager members own none when they join."""
        released = (set(each.owned).difference(made.get(each.member_id, ())) for each in self._members)
        return len(set[TopicPartition]().union(*released))

    def _present_view(self) -> ClusterView:
        counts = {topic: self._cluster.partition_count(topic) for topic in self.topics}
        known = {topic: count for topic, count in counts.items() if count is not None}
        return ClusterView(partitions=known, racks=self._cluster.racks(known) if self._racked else {})


def _decoded(member: api.GroupMember) -> MemberSubscription:
    try:
        said = read_subscription(member.metadata)
    except ProtocolError:
        said = Subscription(topics=())
    return MemberSubscription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=said.topics,
        owned=said.owned,
        generation=said.generation,
        rack=said.rack,
        userdata=said.userdata,
    )
