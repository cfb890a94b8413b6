"""What an assignor is given and what it gives: the contract for ours and for the user's own. What all of ours share.

Laws
1. An assignor is pure arithmetic on the leader's side: equal input, equal output, on every machine.
2. It assigns each partition of a topic to exactly one member that subscribes to the topic, or to none.
3. Under the cooperative protocol it grants no partition that another member still owns (`withhold_transferring`).
4. Topics that the cluster does not know have no partitions. Every member is in the result, perhaps with none.
5. Static members come first, by instance id: they keep their place when a restart changes their member id. Dynamic
   members follow, by member id.
6. Racks (KIP-881): a member whose rack is unknown is near every partition. A partition whose racks are unknown is
   near no other member. Racks matter where some member's rack has a replica, and not every partition has one in every
   rack.
7. What one returns is checked (`checked`), since it may be the user's own code, and any type: members of the group, and
   partitions, each once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from types import MappingProxyType
from typing import Final, Protocol

from instride._core.ownership import RebalanceProtocol
from instride.errors import AssignorError
from instride.records import TopicPartition

__all__ = [
    "Assignment",
    "Assignor",
    "ClusterView",
    "MemberSubscription",
    "Racks",
    "Stateless",
    "as_assignment",
    "checked",
    "in_order",
    "no_partitions",
    "subscribers",
    "topics_of",
]

Assignment = dict[str, tuple[TopicPartition, ...]]
"""Member id -> its partitions, sorted."""

# As its own constructor does, which is written in Python: a leader makes a hundred thousand.
_TOPIC_PARTITION: Final = partial(tuple.__new__, TopicPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What an assignor knows of the cluster.

    partitions: topic -> number of partitions.
    racks: of a partition's replicas, sorted; empty where no member says in which rack it runs.
    """

    partitions: Mapping[str, int]
    racks: Mapping[TopicPartition, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions in order; none where the topic is unknown."""
        return list(map(_TOPIC_PARTITION, zip(repeat(topic), range(self.partitions.get(topic, 0)))))

    def __contains__(self, partition: TopicPartition) -> bool:
        return 0 <= partition.partition < self.partitions.get(partition.topic, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What one member said of itself when it joined, decoded.

    owned: what it lists as its own. Empty below version 1 of the metadata, and in the eager protocol.
    generation: of which it owns them; -1 where unknown (below version 2).
    rack: None where unknown.
    userdata: the assignor's own bytes; None or empty where there are none.
    """

    member_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    userdata: bytes | None = None


class Stateless:
    """What an assignor does that has no user data and remembers no assignment."""

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        return None

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        pass


class Assignor(Protocol):
    """A strategy of dealing out partitions. Used by one thread at a time: `assign` runs on one of its own, and may take
    long; the other methods run on the network thread, and must not block.

    An instance belongs to one consumer and may remember its own last assignment.
    """

    @property
    def name(self) -> str:
        """As the group's members know it, for instance "range"."""
        ...

    @property
    def version(self) -> int:
        """Of the userdata. Told to nobody; for the assignor's own use."""
        ...

    @property
    def protocols(self) -> Collection[RebalanceProtocol]:
        """The rebalance protocols under which its assignments are safe."""
        ...

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        """Bytes for the leader, which will find them in our subscription.

        Deterministic: the broker takes changed bytes for a changed member.

        owned, generation: what we join with; generation is -1 where we are no member yet.
        """
        ...

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        """Deal out the partitions. Called where we lead the group."""
        ...

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        """What this member was assigned, after each Sync."""
        ...


# -- members


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
    known: dict[tuple[str, ...], frozenset[str]] = {}  # most groups have one subscription
    for member in members:
        if member.topics not in known:
            known[member.topics] = topics_of(member, cluster)
        for topic in known[member.topics]:
            found.setdefault(topic, []).append(member)
    return {topic: found[topic] for topic in sorted(found)}


def as_assignment(parts: dict[str, list[TopicPartition]]) -> Assignment:
    return {member_id: tuple(sorted(partitions)) for member_id, partitions in parts.items()}


# -- what an assignor returns

_SHOWN: Final = 80
"""Characters of a value that is no assignment."""


def checked(assignor: Assignor, view: ClusterView, members: Sequence[MemberSubscription]) -> Assignment:
    """What it assigns. Raises what it raises, and AssignorError (law 7)."""
    made: object = assignor.assign(view, members)
    if not isinstance(made, Mapping):
        raise AssignorError(f"assignor {assignor.name!r} returned {_shown(made)}: return member id -> partitions")
    known = {member.member_id for member in members}
    listed = {member: _listed(assignor.name, member, parts, known) for member, parts in made.items()}
    # By sets first: only the error needs a count of each, of perhaps a hundred thousand.
    if len(frozenset().union(*listed.values())) < sum(map(len, listed.values())):
        twice = next(tp for tp, times in Counter(chain.from_iterable(listed.values())).items() if times > 1)
        owners = [member for member, partitions in listed.items() for each in partitions if each == twice]
        raise AssignorError(f"assignor {assignor.name!r} assigns {twice} to {' and to '.join(map(repr, owners))}")
    return listed


def _listed(assignor: str, member: object, partitions: object, known: Container[str]) -> tuple[TopicPartition, ...]:
    if not isinstance(member, str) or member not in known:
        raise AssignorError(f"assignor {assignor!r} assigns to {_shown(member)}, which is no member id of this group")
    try:
        made = tuple(TopicPartition(*each) for each in partitions)  # type: ignore[attr-defined]
        hash(made)  # what has no hash is no topic and no number
        return made
    except (TypeError, ValueError) as error:
        raise no_partitions(assignor, member, partitions, error) from error


def no_partitions(assignor: str, member: str, partitions: object, error: Exception) -> AssignorError:
    return AssignorError(
        f"assignor {assignor!r} gives {_shown(partitions)} to {member!r}: give TopicPartitions ({error})"
    )


def _shown(value: object) -> str:
    return f"{repr(value)[:_SHOWN]} (a {type(value).__name__})"


# -- racks


class Racks:
    """The racks of one group's members, and of the cluster's replicas."""

    def __init__(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> None:
        self._members = {member.member_id: member.rack for member in members}
        self._replicas = cluster.racks

    def near(self, member_id: str, partition: TopicPartition) -> bool:
        """Law 6."""
        rack = self._members.get(member_id)
        return rack is None or rack in self._replicas.get(partition, ())

    def of(self, partition: TopicPartition) -> tuple[str, ...]:
        """Of its replicas; those of equal racks are near the same members."""
        return self._replicas.get(partition, ())

    def queues(self, free: Mapping[TopicPartition, None]) -> Callable[[str], Iterator[TopicPartition]]:
        """Gives a member what is near it, in the order of `free`, without what is not in `free` any more when it comes.

        What comes must be taken out of `free`: it does not come again to a member in the same rack.
        """
        of_rack: dict[str, list[TopicPartition]] = {}
        for each in free:
            for rack in self.of(each):
                of_rack.setdefault(rack, []).append(each)
        queues = {rack: iter(partitions) for rack, partitions in of_rack.items()}

        def near(member_id: str) -> Iterator[TopicPartition]:
            rack = self._members.get(member_id)
            if rack is None:
                return iter(free)
            return (each for each in queues.get(rack, ()) if each in free)

        return near

    def matter(self, partitions: Collection[TopicPartition], members: Iterable[str]) -> bool:
        """Law 6."""
        if not self._replicas:
            return False
        of_members = {rack for member in members if (rack := self._members.get(member)) is not None}
        if not of_members:
            return False
        combinations = {self._replicas.get(each, ()) for each in partitions}  # few, of however many partitions
        everywhere = frozenset().union(*combinations)
        return bool(of_members & everywhere) and any(everywhere.difference(each) for each in combinations)
