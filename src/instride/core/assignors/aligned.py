"""Sticky assignment where all members subscribe to the same topics and racks matter (KIP-881).

Laws
1. With P partitions and N members, P mod N members get one more than floor(P / N); all others get floor(P / N).
2. First a member keeps what it owns in its own rack; then free partitions go to members in their racks, those with the
   fewest of such first; then a member keeps what it owns elsewhere; the rest goes to whoever has least.
3. With equal input again the assignment is the same: what was placed in its rack is kept there, and what found no room
   in its rack finds none in the next round either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from instride.core.assignors.claims import Kept
from instride.records import TopicPartition

__all__ = ["Near", "assign_aligned"]

Near = Callable[[str, TopicPartition], bool]
"""Whether the member runs in a rack that has a replica of the partition."""


class _Shares:
    """Law 1, while it is filled."""

    def __init__(self, partitions: Sequence[TopicPartition], members: Sequence[str]) -> None:
        self._quota, self._longer = divmod(len(partitions), len(members))
        self.free = dict.fromkeys(partitions)
        self.parts: dict[str, list[TopicPartition]] = {member: [] for member in members}

    def room(self, member: str) -> bool:
        has = len(self.parts[member])
        return has < self._quota or (has == self._quota and self._longer > 0)

    def give(self, member: str, partition: TopicPartition) -> None:
        self._longer -= len(self.parts[member]) == self._quota
        self.parts[member].append(partition)
        del self.free[partition]

    def give_to_least(self, partition: TopicPartition, members: Sequence[str]) -> None:
        takers = [member for member in members if self.room(member)]
        if takers:
            self.give(min(takers, key=lambda member: (len(self.parts[member]), member)), partition)


def assign_aligned(partitions: Sequence[TopicPartition], kept: Kept, near: Near) -> dict[str, list[TopicPartition]]:
    """partitions: all that are to be assigned, sorted. kept: by every member, with nothing owned twice."""
    members = sorted(kept)
    shares = _Shares(partitions, members)
    _keep(shares, kept, near)
    beside = {each: [member for member in members if near(member, each)] for each in shares.free}
    for partition in sorted(shares.free, key=lambda each: (len(beside[each]), each)):
        shares.give_to_least(partition, beside[partition])
    _keep(shares, kept, lambda _member, _partition: True)
    for partition in list(shares.free):
        shares.give_to_least(partition, members)
    return shares.parts


def _keep(shares: _Shares, kept: Kept, near: Near) -> None:
    for member in shares.parts:
        for partition in sorted(kept[member], key=lambda each: (each.partition, each.topic)):
            if partition in shares.free and near(member, partition) and shares.room(member):
                shares.give(member, partition)
