"""`range`: each topic by itself is cut into pieces, one a subscriber.

Laws
1. Within a topic the pieces differ by at most one partition; the first members get the longer ones.
2. Where racks do not matter the pieces are contiguous, and topics with equally many partitions and the same subscribers
   are cut alike, so that equal numbers meet.
3. Where racks matter (KIP-881) partitions go to members in their racks first, as far as law 1 allows. Of topics that
   would be cut alike, equal numbers still meet: each goes to a member that is near it in all of them, or waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from instride._core.assignors.assignor import (
    Assignment,
    ClusterView,
    MemberSubscription,
    Racks,
    Stateless,
    as_assignment,
    in_order,
    subscribers,
)
from instride._core.ownership import RebalanceProtocol
from instride.records import TopicPartition

__all__ = ["RangeAssignor"]


class RangeAssignor(Stateless):
    """Each topic in contiguous pieces, one for each of its subscribers."""

    name: Final = "range"
    version: Final = 0
    protocols: Final = frozenset({RebalanceProtocol.EAGER})

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        group = in_order(members)
        racks = Racks(cluster, group)
        topics = [
            (cluster.of_topic(topic), [member.member_id for member in consumers])
            for topic, consumers in subscribers(group, cluster).items()
        ]
        parts: dict[str, list[TopicPartition]] = {member.member_id: [] for member in group}
        if any(racks.matter(partitions, consumers) for partitions, consumers in topics):
            _add_near(parts, [_Cut(partitions, consumers) for partitions, consumers in topics], racks)
        else:
            for partitions, consumers in topics:
                _add_pieces(parts, partitions, consumers)
        return as_assignment(parts)


def _add_pieces(
    parts: dict[str, list[TopicPartition]], partitions: Sequence[TopicPartition], consumers: Sequence[str]
) -> None:
    """Law 2."""
    size, longer = divmod(len(partitions), len(consumers))
    start = 0
    for place, member in enumerate(consumers):
        end = start + size + (place < longer)
        parts[member] += partitions[start:end]
        start = end


def _add_near(parts: dict[str, list[TopicPartition]], cuts: list[_Cut], racks: Racks) -> None:
    """Law 3."""
    for alike in _alike(cuts):
        _deal_near(alike, racks)
    for cut in cuts:
        cut.deal(lambda _member, free=cut.free: free)  # type: ignore[misc]  # bound now
        for member, given in cut.given.items():
            parts[member] += given


class _Cut:
    """One topic, on the way to law 1. given: its subscribers in their order, with what they have of it."""

    def __init__(self, partitions: list[TopicPartition], members: list[str]) -> None:
        self._size, self._longer = divmod(len(partitions), len(members))
        self.free = dict.fromkeys(partitions)
        self.given: dict[str, list[TopicPartition]] = {member: [] for member in members}

    def capacity(self, member: str) -> int:
        return max(0, self._size + (self._longer > 0) - len(self.given[member]))

    def give(self, member: str, partitions: Sequence[TopicPartition]) -> None:
        given = self.given[member]
        given += partitions
        self._longer -= bool(partitions) and len(given) > self._size
        for each in partitions:
            del self.free[each]

    def deal(self, queue: Callable[[str], Iterable[TopicPartition]]) -> None:
        """queue: what of the free ones a member may have, in order."""
        for member in self.given:
            self.give(member, list(islice(queue(member), self.capacity(member))))


def _alike(cuts: Iterable[_Cut]) -> Iterable[list[_Cut]]:
    """Those with the same subscribers and equally many partitions, together."""
    found: dict[tuple[tuple[str, ...], int], list[_Cut]] = {}
    for cut in cuts:
        found.setdefault((tuple(cut.given), len(cut.free)), []).append(cut)
    return found.values()


def _deal_near(alike: list[_Cut], racks: Racks) -> None:
    """Law 3."""
    first = alike[0]
    if len(alike) == 1:
        if racks.matter(first.free, first.given):
            first.deal(racks.queues(first.free))
        return
    members = dict.fromkeys(first.given)
    for equal in zip(*[list(cut.free) for cut in alike], strict=True):
        for member in members:
            if all(cut.capacity(member) and racks.near(member, each) for cut, each in zip(alike, equal, strict=True)):
                for cut, each in zip(alike, equal, strict=True):
                    cut.give(member, [each])
                if not first.capacity(member):
                    del members[member]  # it gets no more in this one, so in none
                break
