"""What a member does when it leads its group: deal out the partitions.

Laws
1. It waits until the metadata of every subscribed topic of every member is known.
2. What a member says of itself that cannot be read makes that member subscribe to nothing; it stops nobody else.
3. The counts of partitions that an assignment was made from are kept, so that a change of them is seen; where members
   say in which racks they run, the racks of the replicas too (KIP-881).
4. Each assignment carries a notice for members of ours: the group's size, and how many partitions are withheld until
   their owners have released them (docs/rebalance.md, rule 19). Other clients do not read user data of this kind.
5. A static leader that comes back to a stable group makes none: the group goes on with the one there is (KIP-814).
6. What an assignor returns is checked before it is written: it may be the user's own code, and any type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from instride.core.assignors.assignor import Assignor, ClusterView, MemberSubscription
from instride.core.network.cluster import Cluster
from instride.errors import AssignorError, ProtocolError
from instride.records import TopicPartition
from instride.wire import api
from instride.wire.consumer_protocol import Assignment, Subscription, read_subscription, write_assignment
from instride.wire.group_notice import GroupNotice, write_notice

__all__ = ["LeaderAssignment"]

_SHOWN: Final = 80


class LeaderAssignment:
    """The members of one generation."""

    def __init__(self, response: api.JoinGroupResponse, cluster: Cluster) -> None:
        self._cluster = cluster
        self._members = tuple(_decoded(member) for member in response.members)
        self.topics = frozenset(topic for member in self._members for topic in member.topics)
        self._skips = response.skip_assignment
        self._racked = any(member.rack is not None for member in self._members)
        self._view: ClusterView | None = None

    def ready(self) -> bool:
        """Law 1: known, or known to be missing."""
        return all(topic in self._cluster.topics for topic in self.topics)

    def outdated(self) -> bool:
        return self._view is not None and self._view != self._present_view()

    def assign(self, assignor: Assignor) -> dict[str, bytes]:
        """Member id -> assignment bytes. Raises what the assignor raises, and AssignorError (law 5)."""
        view = self._view = self._present_view()
        if self._skips:
            return {}
        made = self._checked(assignor, view)
        withheld = self._withheld(made)
        places = {member: place for place, member in enumerate(sorted(made))}
        notices = {
            member: write_notice(GroupNotice(members=len(places), place=place, withheld=withheld))
            for member, place in places.items()
        }
        return {member: _written(assignor.name, member, parts, notices[member]) for member, parts in made.items()}

    def _checked(self, assignor: Assignor, view: ClusterView) -> dict[str, tuple[TopicPartition, ...]]:
        """Law 6."""
        made: object = assignor.assign(view, self._members)
        if not isinstance(made, Mapping):
            raise AssignorError(f"assignor {assignor.name!r} returned {_shown(made)}: return member id -> partitions")
        known = {member.member_id for member in self._members}
        return {member: _listed(assignor.name, member, parts, known) for member, parts in made.items()}

    def _withheld(self, made: Mapping[str, Iterable[TopicPartition]]) -> int:
        """Partitions that a member still owns and is to release. Eager members own none when they join."""
        released = (set(each.owned).difference(made.get(each.member_id, ())) for each in self._members)
        return len(set[TopicPartition]().union(*released))

    def _present_view(self) -> ClusterView:
        counts = {topic: self._cluster.partition_count(topic) for topic in self.topics}
        known = {topic: count for topic, count in counts.items() if count is not None}
        return ClusterView(partitions=known, racks=self._cluster.racks(known) if self._racked else {})


def _listed(assignor: str, member: object, partitions: object, known: AbstractSet[str]) -> tuple[TopicPartition, ...]:
    if not isinstance(member, str) or member not in known:
        raise AssignorError(f"assignor {assignor!r} assigns to {_shown(member)}, which is no member id of this group")
    try:
        return tuple(TopicPartition(*each) for each in partitions)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise _no_partitions(assignor, member, partitions, error) from error


def _written(assignor: str, member: str, partitions: tuple[TopicPartition, ...], notice: bytes) -> bytes:
    try:
        return write_assignment(Assignment(partitions=partitions, userdata=notice))
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise _no_partitions(assignor, member, partitions, error) from error


def _no_partitions(assignor: str, member: str, partitions: object, error: Exception) -> AssignorError:
    return AssignorError(
        f"assignor {assignor!r} gives {_shown(partitions)} to {member!r}: give TopicPartitions ({error})"
    )


def _shown(value: object) -> str:
    return f"{repr(value)[:_SHOWN]} (a {type(value).__name__})"


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
