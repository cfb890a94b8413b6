"""Short words for the assignors' tests, and a group in miniature that plays cooperative rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from instride._core.assignors.assignor import Assignment, ClusterView, MemberSubscription
from instride._core.assignors.sticky import CooperativeStickyAssignor
from instride.records import TopicPartition

__all__ = ["Group", "assert_valid", "assignable", "cluster", "member", "shown", "sizes", "tps"]


def tps(text: str) -> tuple[TopicPartition, ...]:
    """ "1-0 2-3" is partition 0 of t1 and partition 3 of t2."""
    return tuple(
        TopicPartition(f"t{topic}", int(number)) for topic, number in (each.split("-") for each in text.split())
    )


def cluster(**partitions: int) -> ClusterView:
    return ClusterView(partitions=partitions)


def member(
    member_id: str, topics: str = "t1", owned: str = "", *, generation: int = -1, instance: str | None = None
) -> MemberSubscription:
    return MemberSubscription(
        member_id=member_id,
        topics=tuple(topics.split()),
        owned=tps(owned),
        generation=generation,
        group_instance_id=instance,
    )


def shown(assignment: Assignment) -> dict[str, str]:
    """The reverse of `tps`, for comparing by eye."""
    return {
        member_id: " ".join(f"{each.topic[1:]}-{each.partition}" for each in partitions)
        for member_id, partitions in assignment.items()
    }


def sizes(assignment: Assignment) -> list[int]:
    return sorted(len(partitions) for partitions in assignment.values())


def assert_valid(view: ClusterView, members: Iterable[MemberSubscription], assignment: Assignment) -> None:
    """Law 2 and 4 of `api`: each partition once at most, to a subscriber, and every member is there."""
    topics = {each.member_id: each.topics for each in members}
    assert assignment.keys() == topics.keys()
    granted = Counter(each for partitions in assignment.values() for each in partitions)
    assert not [partition for partition, times in granted.items() if times > 1]
    for member_id, partitions in assignment.items():
        assert list(partitions) == sorted(partitions)
        assert all(each in view and each.topic in topics[member_id] for each in partitions)


def assignable(view: ClusterView, members: Iterable[MemberSubscription]) -> set[TopicPartition]:
    topics = {topic for each in members for topic in each.topics}
    return {each for topic in topics for each in view.of_topic(topic)}


@dataclass(kw_only=True)
class Group:
    """Members that take what they are assigned, let go of what is missing and join again, as KIP-429 has
    it."""

    view: ClusterView
    members: dict[str, MemberSubscription] = field(default_factory=dict)
    generation: int = 0
    delayed: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)
    """Member id -> what it will not let go of yet."""

    def join(self, *members: MemberSubscription) -> None:
        self.members.update({each.member_id: each for each in members})

    def leave(self, member_id: str) -> None:
        del self.members[member_id]

    def owned(self) -> Assignment:
        return {member_id: each.owned for member_id, each in self.members.items()}

    def round(self) -> bool:
        """One rebalance: True if some member has to let go of something, so that another round follows."""
        assignment = CooperativeStickyAssignor().assign(self.view, self.members.values())
        assert_valid(self.view, self.members.values(), assignment)
        self.generation += 1
        before = self.owned()
        for member_id, granted in assignment.items():
            late = self.delayed.get(member_id, frozenset()) & set(before[member_id])
            owned = tuple(sorted({*granted, *late}))
            self.members[member_id] = replace(self.members[member_id], owned=owned, generation=self.generation)
        self.assert_one_owner()
        return any(set(before[each]) - set(granted) for each, granted in assignment.items())

    def settle(self) -> int:
        """Rounds until none asks for another; at most 10."""
        for rounds in range(1, 11):
            if not self.round():
                return rounds
        raise AssertionError("the group goes on rebalancing")

    def assert_one_owner(self) -> None:
        owners = Counter(each for member in self.members.values() for each in member.owned)
        assert not [partition for partition, times in owners.items() if times > 1]
