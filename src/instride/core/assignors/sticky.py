"""`sticky`: even loads and few moves under the eager protocol.

Laws
1. What a member owned, and in which generation, is in its userdata: eager members list nothing as owned.
2. Nothing is withheld, since everybody has revoked everything before the join.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from instride.core.assignors.api import Assignment, ClusterView, MemberSubscription
from instride.core.assignors.claims import Claim
from instride.core.assignors.stickiness import stick
from instride.core.assignors.userdata import read_sticky, write_sticky
from instride.core.group.protocol import RebalanceProtocol
from instride.records import TopicPartition

__all__ = ["StickyAssignor"]


class StickyAssignor:
    """Even loads, few moves, in one round: for eager members, who list nothing as their own."""

    name: Final = "sticky"
    version: Final = 1
    protocols: Final = frozenset({RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._last: tuple[tuple[TopicPartition, ...], int] | None = None

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        """The last assignment, since `owned` is empty by the time of an eager join; None before the first."""
        return None if self._last is None else write_sticky(*self._last)

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        return stick(cluster, [_claim(member) for member in members])

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        self._last = (tuple(assignment), generation)


def _claim(member: MemberSubscription) -> Claim:
    said = read_sticky(member.userdata)
    return Claim(member=member, owned=said.owned, generation=said.generation)
