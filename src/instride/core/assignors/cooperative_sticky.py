"""`cooperative-sticky` (KIP-429): even loads, few moves, and no grant before the owner has let go.

Laws
1. What a member owns is what its subscription lists; never what its userdata says.
2. The generation is the subscription's field; the userdata is read only where the field is absent (-1).
3. A partition that another member lists is withheld from everybody. Its owner sees it missing, revokes it
   and joins again; in that round it is granted. While a member delays it lists it, and it stays withheld.
4. With equal input again the assignment is the same, and no further round is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from instride.core.assignors.api import Assignment, ClusterView, MemberSubscription
from instride.core.assignors.claims import Claim, withhold_transferring
from instride.core.assignors.stickiness import stick
from instride.core.assignors.userdata import generation_userdata, read_generation
from instride.core.group.protocol import RebalanceProtocol
from instride.records import TopicPartition

__all__ = ["CooperativeStickyAssignor"]


class CooperativeStickyAssignor:
    """Even loads, few moves; nothing is granted that another member lists as its own."""

    name: Final = "cooperative-sticky"
    version: Final = 0
    protocols: Final = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        """The generation: Java leaders before 3.4 read it only here, and give away what an old one lists."""
        return generation_userdata(generation)

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        claims = [_claim(member) for member in members]
        return withhold_transferring(stick(cluster, claims), claims)

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        pass


def _claim(member: MemberSubscription) -> Claim:
    generation = member.generation if member.generation >= 0 else read_generation(member.userdata)
    return Claim(member=member, owned=member.owned, generation=generation)
