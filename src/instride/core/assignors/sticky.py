"""`sticky` and `cooperative-sticky` (KIP-429): even loads and few moves, in the eager and in the cooperative protocol.

Laws
1. What an eager member owned, and in which generation, is in its userdata, since eager members list nothing as owned.
   What a cooperative member owns is what its subscription lists; never what its userdata says. Its generation is the
   subscription's field; the userdata is read only where the field is absent (-1).
2. Of two members that list a partition, the one with the higher generation owns it: the other is out of date. Where
   they share the highest generation, neither keeps it, nor is granted it before the other lets go.
3. A member keeps a partition only where it subscribes to the topic and the cluster has the partition. A listed
   partition that cannot be kept still stands in the way of a grant: its member may be processing it.
4. A partition that one member alone lists is owned by it, whatever its generation. A later join without it ends that.
5. `cooperative-sticky` withholds from everybody a partition that another member lists. Its owner sees it missing,
   revokes it and joins again; in that round it is granted. While a member delays the revoke it lists it, and it stays
   withheld. `sticky` withholds nothing, since every member has revoked everything before the join.
6. With equal input again the assignment is the same, and no further round is requested.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from instride.core.assignors.assignor import (
    Assignment,
    ClusterView,
    MemberSubscription,
    Racks,
    as_assignment,
    subscribers,
    topics_of,
)
from instride.core.assignors.sticky_balance import Kept, assign_aligned, assign_constrained, assign_general
from instride.core.ownership import RebalanceProtocol
from instride.records import TopicPartition

__all__ = [
    "Claim",
    "CooperativeStickyAssignor",
    "StickyAssignor",
    "StickyUserdata",
    "generation_userdata",
    "read_generation",
    "read_sticky",
    "withhold_transferring",
    "write_sticky",
]


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
        return stick(cluster, [_claim_of_eager(member) for member in members])

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        self._last = (tuple(assignment), generation)


def _claim_of_eager(member: MemberSubscription) -> Claim:
    said = read_sticky(member.userdata)
    return Claim(member=member, owned=said.owned, generation=said.generation)


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
        claims = [_claim_of_cooperative(member) for member in members]
        return withhold_transferring(stick(cluster, claims), claims)

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        pass


def _claim_of_cooperative(member: MemberSubscription) -> Claim:
    generation = member.generation if member.generation >= 0 else read_generation(member.userdata)
    return Claim(member=member, owned=member.owned, generation=generation)


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
            return as_assignment(assign_aligned(everything, kept, racks))
        return as_assignment(assign_constrained(everything, kept))
    ids = {topic: [member.member_id for member in members] for topic, members in consumers.items()}
    return as_assignment(assign_general(partitions, ids, kept, racks if matter else None))


# -- owned partitions


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


# -- userdata: bytes <-> what a member owned, and when
#
# `cooperative-sticky` of Java: one INT32, the generation.
# `sticky`: an array of (topic, array of INT32 partitions), then an INT32 generation, which version 0 lacks.
# librdkafka writes the layout of `sticky` under the name `cooperative-sticky` too.
# Nothing here raises on bytes of other members: what cannot be read to its exact end says nothing. A count is checked
# against the bytes that are left before anything is read for it.


NO_GENERATION: Final = -1
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyUserdata:
    """owned: the last assignment. generation: of it, or -1 where unknown."""

    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


def generation_userdata(generation: int) -> bytes:
    """As Java's cooperative-sticky writes it. Leaders older than 3.4 read the generation only here."""
    return _INT32.pack(generation)


def read_generation(userdata: bytes | None) -> int:
    """The generation in a cooperative-sticky member's userdata, or -1.

    Four bytes are Java's. More can only be librdkafka's: its first four bytes count topics.
    """
    if userdata is not None and len(userdata) == _INT32.size:
        return _generation(userdata, 0)
    return read_sticky(userdata).generation


def write_sticky(owned: Sequence[TopicPartition], generation: int) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(owned):
        topics.setdefault(topic, []).append(number)
    out = bytearray(_INT32.pack(len(topics)))
    for topic, numbers in topics.items():
        name = topic.encode()
        out += _INT16.pack(len(name)) + name + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return bytes(out + _INT32.pack(generation))


def read_sticky(userdata: bytes | None) -> StickyUserdata:
    """Version 1 or 0 of sticky's userdata; nothing owned where it is absent or malformed."""
    if not userdata:
        return StickyUserdata()
    try:
        return _read_sticky(memoryview(userdata))
    except (struct.error, ValueError):
        return StickyUserdata()


def _read_sticky(data: memoryview) -> StickyUserdata:
    owned: list[TopicPartition] = []
    at = _INT32.size
    for _ in range(_count(data, 0, _INT16.size + _INT32.size)):
        (length,) = _INT16.unpack_from(data, at)
        end = at + _INT16.size + length
        if length < 0 or end > len(data):
            raise ValueError("a topic's name ends beyond the bytes")
        topic = str(data[at + _INT16.size : end], "utf-8")
        count = _count(data, end, _INT32.size)
        numbers = struct.unpack_from(f">{count}i", data, end + _INT32.size)
        owned += [TopicPartition(topic, number) for number in numbers]
        at = end + _INT32.size * (1 + count)
    if at == len(data):
        return StickyUserdata(owned=tuple(owned))
    if at + _INT32.size != len(data):
        raise ValueError("bytes are left over")
    return StickyUserdata(owned=tuple(owned), generation=_generation(data, at))


def _count(data: memoryview, at: int, item_size: int) -> int:
    (count,) = _INT32.unpack_from(data, at)
    if not 0 <= count <= (len(data) - at - _INT32.size) // item_size:
        raise ValueError("a count goes beyond the bytes")
    return int(count)


def _generation(data: bytes | memoryview, at: int) -> int:
    (generation,) = _INT32.unpack_from(data, at)
    return max(int(generation), NO_GENERATION)
