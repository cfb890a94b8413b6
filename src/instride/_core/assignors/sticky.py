"""`sticky` and `cooperative-sticky` (KIP-429): even loads and few moves, in the eager and in the cooperative protocol.

Laws of what members own
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

Laws of the balance: even loads, and as few moves as that allows. Three cases, each a function: all members subscribe to
the same topics (`assign_constrained`); the same, and racks matter (`assign_aligned`, KIP-881); subscriptions differ
(`assign_general`)
B1. Same subscriptions: with P partitions and N members, P mod N members get one more than floor(P / N); all others get
    floor(P / N). A member loses what it owns only where it owns more than its quota. Each topic is spread evenly too,
    as far as the partitions that members keep allow.
B2. With racks: first a member keeps what it owns in its own rack. Then free partitions go to members in their racks,
    those with the fewest of such first. Then a member keeps what it owns elsewhere. The rest goes to the member that
    has least.
B3. Different subscriptions: `assign_general` decides only numbers, that is how many partitions of each topic a member
    gets, since partitions of one topic can go to the same members. A member keeps what it owns, up to its number.
B4. Free partitions are assigned and moved first. An owned one moves only where the balance needs it. So the round
    after the hand-overs finds even loads without moving anything owned: two rounds suffice.
B5. Members and topics are looked at in order of their names: equal input, equal output.
"""

from __future__ import annotations

import heapq
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Final

from instride._core.assignors.assignor import (
    Assignment,
    ClusterView,
    MemberSubscription,
    Racks,
    as_assignment,
    subscribers,
    topics_of,
)
from instride._core.ownership import RebalanceProtocol
from instride.records import TopicPartition

__all__ = [
    "OwnedPartitions",
    "CooperativeStickyAssignor",
    "KeptPartitions",
    "StickyAssignor",
    "StickyUserdata",
    "assign_aligned",
    "assign_constrained",
    "assign_general",
    "generation_userdata",
    "read_generation",
    "read_sticky",
    "withhold_transferring",
    "write_sticky",
]


KeptPartitions = dict[str, list[TopicPartition]]
"""Member id -> what it owns and may keep, for every member."""


# -- same subscriptions


def assign_constrained(partitions: Sequence[TopicPartition], kept: KeptPartitions) -> dict[str, list[TopicPartition]]:
    """partitions: all that are to be assigned, sorted. kept: by every member, with nothing owned twice."""
    quota, longer = divmod(len(partitions), len(kept))
    parts: dict[str, list[TopicPartition]] = {}
    for member_id in sorted(kept):
        owned = sorted(kept[member_id], key=_number_first)
        # Who owns more than the quota keeps one of the longer shares: so less moves.
        has_longer = longer > 0 and len(owned) > quota
        longer -= has_longer
        parts[member_id] = owned[: quota + has_longer]
    taken = {partition for owned in parts.values() for partition in owned}
    free = [partition for partition in partitions if partition not in taken]
    for partition, member_id in zip(free, _takers(parts, quota), strict=False):
        parts[member_id].append(partition)
    return parts


_number_first: Final = itemgetter(1, 0)
"""Low numbers of all topics before high ones of any, so that what is kept is spread over the topics."""


def _takers(parts: dict[str, list[TopicPartition]], quota: int) -> Iterator[str]:
    """Who takes the next free partition: those under the quota in turn, then each that has just the quota
    once."""
    hungry = deque((member_id, quota - len(owned)) for member_id, owned in parts.items() if len(owned) < quota)
    content = [member_id for member_id, owned in parts.items() if len(owned) <= quota]
    while hungry:
        member_id, missing = hungry.popleft()
        yield member_id
        if missing > 1:
            hungry.append((member_id, missing - 1))
    yield from content


# -- same subscriptions, and racks matter

Near = Callable[[str, TopicPartition], bool]
"""Whether the member runs in a rack that has a replica of the partition."""
_Takers = list[tuple[int, str]]
"""A heap of members, by how much they had when they were last looked at."""


class _Shares:
    """The quotas of B1, while they are filled."""

    def __init__(self, partitions: Sequence[TopicPartition], members: Sequence[str]) -> None:
        self._quota, self._longer = divmod(len(partitions), len(members))
        self.free = dict.fromkeys(partitions)
        self.parts: dict[str, list[TopicPartition]] = {member: [] for member in members}

    def capacity(self, member: str) -> bool:
        has = len(self.parts[member])
        return has < self._quota or (has == self._quota and self._longer > 0)

    def give(self, member: str, partition: TopicPartition) -> None:
        self._longer -= len(self.parts[member]) == self._quota
        self.parts[member].append(partition)
        del self.free[partition]

    def takers(self, members: Iterable[str]) -> _Takers:
        found = [(len(self.parts[member]), member) for member in members]
        heapq.heapify(found)
        return found

    def give_to_least(self, partition: TopicPartition, takers: _Takers) -> None:
        """Of these. What they have, and their capacity, is looked at when their turn comes: both only go one way."""
        while takers:
            had, member = takers[0]
            has = len(self.parts[member])
            if not self.capacity(member):
                heapq.heappop(takers)
            elif has != had:
                heapq.heapreplace(takers, (has, member))
            else:
                self.give(member, partition)
                return


def assign_aligned(
    partitions: Sequence[TopicPartition], kept: KeptPartitions, racks: Racks
) -> dict[str, list[TopicPartition]]:
    """partitions: all that are to be assigned, sorted. kept: by every member, with nothing owned twice."""
    members = sorted(kept)
    shares = _Shares(partitions, members)
    _keep(shares, kept, racks.near)
    examples = {racks.of(each): each for each in shares.free}
    beside = {where: [member for member in members if racks.near(member, each)] for where, each in examples.items()}
    takers = {where: shares.takers(near) for where, near in beside.items()}
    few = {where: len(near) for where, near in beside.items()}
    for partition in sorted(shares.free, key=lambda each: few[racks.of(each)]):  # of equally many: in their order
        shares.give_to_least(partition, takers[racks.of(partition)])
    _keep(shares, kept, lambda _member, _partition: True)
    anybody = shares.takers(members)
    for partition in list(shares.free):
        shares.give_to_least(partition, anybody)
    return shares.parts


def _keep(shares: _Shares, kept: KeptPartitions, near: Near) -> None:
    for member in shares.parts:
        for partition in sorted(kept[member], key=_number_first):
            if partition in shares.free and near(member, partition) and shares.capacity(member):
                shares.give(member, partition)


# -- different subscriptions


def assign_general(
    partitions: Mapping[str, Sequence[TopicPartition]],
    consumers: Mapping[str, Sequence[str]],
    kept: KeptPartitions,
    racks: Racks | None = None,
) -> dict[str, list[TopicPartition]]:
    """partitions: of each topic that is to be assigned. consumers: of each of these topics, the member ids.

    kept: by every member, with nothing owned twice and only topics that it may have. racks: where they matter.
    """
    owned = _by_topic(kept)
    counts = Counts(consumers={topic: sorted(consumers[topic]) for topic in partitions}, members=sorted(kept))
    for member_id, topics in owned.items():
        for topic, numbers in topics.items():
            counts.add(member_id, topic, len(numbers))
    # Those with the fewest subscribers first: the others can still even out what these must give to few.
    for topic in sorted(partitions, key=lambda topic: (len(consumers[topic]), topic)):
        _deal(counts, topic, len(partitions[topic]) - counts.of_topic(topic))
    # B4: what is owned is a floor at first.
    rebalance(counts, floor={member: {topic: len(own) for topic, own in owned[member].items()} for member in owned})
    rebalance(counts, floor={})
    return _pick(partitions, counts, owned, racks)


def _by_topic(kept: KeptPartitions) -> dict[str, dict[str, list[TopicPartition]]]:
    owned: dict[str, dict[str, list[TopicPartition]]] = {}
    for member_id, partitions in kept.items():
        topics = owned.setdefault(member_id, {})
        for partition in sorted(partitions):
            topics.setdefault(partition.topic, []).append(partition)
    return owned


def _deal(counts: Counts, topic: str, free: int) -> None:
    """Give each free partition of a topic to its subscriber with the least load."""
    heap = [(counts.load[member_id], member_id) for member_id in counts.consumers[topic]]
    heapq.heapify(heap)
    for _ in range(free):
        load, member_id = heap[0]
        counts.add(member_id, topic, 1)
        heapq.heapreplace(heap, (load + 1, member_id))


def _pick(
    partitions: Mapping[str, Sequence[TopicPartition]],
    counts: Counts,
    owned: Mapping[str, Mapping[str, Sequence[TopicPartition]]],
    racks: Racks | None,
) -> dict[str, list[TopicPartition]]:
    """Turn numbers into partitions: of each topic first what a member owns, then what is free, near ones first."""
    parts: dict[str, list[TopicPartition]] = {member_id: [] for member_id in counts.load}
    for topic in partitions:
        kept = {member: owned[member].get(topic, ())[:number] for member, number in counts.holders(topic)}
        taken = {partition for own in kept.values() for partition in own}
        free = dict.fromkeys(each for each in partitions[topic] if each not in taken)
        wanted = {member_id: number - len(kept[member_id]) for member_id, number in counts.holders(topic)}
        for member_id, own in kept.items():
            parts[member_id] += own
        for queue in _queues(free, racks):
            for member_id, number in wanted.items():
                given = list(islice(queue(member_id), number))
                for each in given:
                    del free[each]
                wanted[member_id] -= len(given)
                parts[member_id] += given
    return parts


def _queues(
    free: dict[TopicPartition, None], racks: Racks | None
) -> Iterator[Callable[[str], Iterable[TopicPartition]]]:
    """What a member may have: first what is near, then anything."""
    if racks is not None:
        yield racks.queues(free)
    yield lambda _member: free


# -- rebalancing the numbers
#
# A chain of moves: one partition of some topic goes from member a to member b, one of another topic from b to c, and
# so on, where the last has at least two fewer than the first. The loads are as even as the subscriptions allow when
# no chain is left (Harvey et al., "Semi-matchings for bipartite graphs and load balancing"). Each chain lowers the
# sum of the squared loads, so the search ends: there is no loop to run into, as KAFKA-15106's was. The shortest chain
# is taken, so that the fewest partitions move. What a failed search has reached can be part of no later chain, and is
# never entered again. No more is taken from a member than what it has above its floor.

Floor = Mapping[str, Mapping[str, int]]
"""Member id -> topic -> how many it must keep; 0 where not named."""
Step = tuple[str, str]
"""How a member was reached: (the member that gives, the topic that it gives of)."""
Chain = list[tuple[str, str, str]]
"""(Who gives, of which topic, who takes): the last step first."""


class Counts:
    """The numbers under decision. `consumers` never changes; `load` is the sum over a member's topics."""

    __slots__ = ("_holders", "_numbers", "consumers", "load")

    def __init__(self, *, consumers: Mapping[str, Sequence[str]], members: Iterable[str]) -> None:
        self.consumers = consumers
        self.load: dict[str, int] = dict.fromkeys(members, 0)
        self._numbers: dict[str, dict[str, int]] = {member_id: {} for member_id in self.load}
        self._holders: dict[str, dict[str, int]] = {topic: {} for topic in consumers}

    def add(self, member_id: str, topic: str, number: int) -> None:
        numbers, holders = self._numbers[member_id], self._holders[topic]
        numbers[topic] = holders[member_id] = numbers.get(topic, 0) + number
        if not numbers[topic]:
            del numbers[topic], holders[member_id]
        self.load[member_id] += number

    def of_topic(self, topic: str) -> int:
        return sum(self._holders[topic].values())

    def holders(self, topic: str) -> list[tuple[str, int]]:
        return sorted(self._holders[topic].items())

    def can_spare(self, member_id: str, topic: str, floor: Floor) -> bool:
        return self._numbers[member_id].get(topic, 0) > floor.get(member_id, {}).get(topic, 0)

    def spare_topics(self, member_id: str, floor: Floor) -> list[str]:
        """Topics of which the member has more than its floor, those of which it has most first."""
        least = floor.get(member_id, {})
        numbers = self._numbers[member_id]
        return sorted(
            (topic for topic in numbers if numbers[topic] > least.get(topic, 0)), key=lambda t: (-numbers[t], t)
        )


def rebalance(counts: Counts, *, floor: Floor) -> None:
    fair = -(-sum(counts.load.values()) // len(counts.load))
    heap = [(-load, member_id) for member_id, load in counts.load.items()]
    heapq.heapify(heap)
    closed: set[str] = set()
    while heap:
        load, member_id = heapq.heappop(heap)
        # Its load has changed since: a newer entry of it is in the heap.
        if member_id in closed or -load != counts.load[member_id]:
            continue
        changed = {member_id}
        for number, chain in enumerate(_find_chains(counts, member_id, floor, closed)):
            if number == 0 or _still_balances(counts, chain, floor, fair):
                _move_along(counts, chain)
                changed.add(chain[0][2])
        for each in changed if len(changed) > 1 else ():
            heapq.heappush(heap, (-counts.load[each], each))


def _move_along(counts: Counts, chain: Chain) -> None:
    for giver, topic, taker in chain:
        counts.add(giver, topic, -1)
        counts.add(taker, topic, 1)


def _still_balances(counts: Counts, chain: Chain, floor: Floor, fair: int) -> bool:
    """After others of its search: a heavy member gives on, but neither it nor a taker has to give or take back."""
    ((giver, topic, taker),) = chain
    return counts.load[giver] > fair > counts.load[taker] and counts.can_spare(giver, topic, floor)


def _find_chains(counts: Counts, start: str, floor: Floor, closed: set[str]) -> list[Chain]:
    """The shortest chains from `start`, that to the least load first; none, with all that was reached closed.

    Many where they are of one step, so that a heavy member needs few searches; else one, since they share steps.
    """
    reached: dict[str, Step | None] = {start: None}
    seen_topics: set[str] = set()
    layer = deque([start])
    while layer:
        found = _next_layer(counts, layer, floor, reached, seen_topics, closed)
        light = [each for each in found if counts.load[each] <= counts.load[start] - 2]
        if light:
            ends = sorted(light, key=lambda each: (counts.load[each], each))
            return [_trace(reached, end) for end in (ends if start in layer else ends[:1])]
        layer = deque(found)
    closed.update(reached)
    return []


def _next_layer(
    counts: Counts,
    layer: Iterable[str],
    floor: Floor,
    reached: dict[str, Step | None],
    seen_topics: set[str],
    closed: set[str],
) -> list[str]:
    found: list[str] = []
    for giver in layer:
        for topic in counts.spare_topics(giver, floor):
            if topic in seen_topics:
                continue
            # All members are reached or closed: no further topic can bring one.
            if len(reached) + len(closed) == len(counts.load):
                return found
            seen_topics.add(topic)
            for taker in counts.consumers[topic]:
                if taker not in reached and taker not in closed:
                    reached[taker] = (giver, topic)
                    found.append(taker)
    return found


def _trace(reached: Mapping[str, Step | None], end: str) -> Chain:
    chain: Chain = []
    step = reached[end]
    while step is not None:
        giver, topic = step
        chain.append((giver, topic, end))
        end, step = giver, reached[giver]
    return chain


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
        return stick(cluster, [_owned_of_eager(member) for member in members])

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        self._last = (tuple(assignment), generation)


def _owned_of_eager(member: MemberSubscription) -> OwnedPartitions:
    decoded = read_sticky(member.userdata)
    return OwnedPartitions(member=member, owned=decoded.owned, generation=decoded.generation)


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
        owned = [_owned_of_cooperative(member) for member in members]
        return withhold_transferring(stick(cluster, owned), owned)

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        pass


def _owned_of_cooperative(member: MemberSubscription) -> OwnedPartitions:
    generation = member.generation if member.generation >= 0 else read_generation(member.userdata)
    return OwnedPartitions(member=member, owned=member.owned, generation=generation)


def stick(cluster: ClusterView, owned: Sequence[OwnedPartitions]) -> Assignment:
    """The assignment to aim at, as if every partition could be handed over at once."""
    if not owned:
        return {}
    kept = keepable(cluster, owned)
    consumers = subscribers([each.member for each in owned], cluster)
    partitions = {topic: cluster.of_topic(topic) for topic in consumers}
    everything = [each for of_one in partitions.values() for each in of_one]
    racks = Racks(cluster, [each.member for each in owned])
    matter = racks.matter(everything, kept)
    if len({topics_of(each.member, cluster) for each in owned}) == 1:
        if matter:
            return as_assignment(assign_aligned(everything, kept, racks))
        return as_assignment(assign_constrained(everything, kept))
    ids = {topic: [member.member_id for member in members] for topic, members in consumers.items()}
    return as_assignment(assign_general(partitions, ids, kept, racks if matter else None))


# -- owned partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPartitions:
    """What one member lists as its own, and of which generation."""

    member: MemberSubscription
    owned: tuple[TopicPartition, ...]
    generation: int


def keepable(cluster: ClusterView, owned: Iterable[OwnedPartitions]) -> KeptPartitions:
    owned, counts = list(owned), cluster.partitions
    owners = _owners(owned)
    kept: KeptPartitions = {}
    for each in owned:
        member_id, topics = each.member.member_id, topics_of(each.member, cluster)
        kept[member_id] = [
            partition
            for partition in dict.fromkeys(each.owned)
            if partition[0] in topics and 0 <= partition[1] < counts[partition[0]] and owners[partition] == member_id
        ]
    return kept


def withhold_transferring(assignment: Assignment, owned: Iterable[OwnedPartitions]) -> Assignment:
    """The assignment without what another member must give up first: it is granted in the round after
    that."""
    owners = _owners(list(owned))
    return {
        member_id: tuple([partition for partition in partitions if owners.get(partition, member_id) == member_id])
        for member_id, partitions in assignment.items()
    }


def _owners(owned: Sequence[OwnedPartitions]) -> Mapping[TopicPartition, str | None]:
    """Partition -> the member that lists it with the highest generation of those that list it; None: several do."""
    owners: dict[TopicPartition, str | None] = {}
    listed = 0
    for each in owned:
        mine = dict.fromkeys(each.owned, each.member.member_id)
        listed += len(mine)
        owners.update(mine)
    # In most groups nobody lists what another does: then no generation is compared.
    return owners if len(owners) == listed else _owners_of_disputed(owned)


def _owners_of_disputed(owned: Sequence[OwnedPartitions]) -> Mapping[TopicPartition, str | None]:
    highest: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str | None] = {}
    for each in owned:
        for partition in dict.fromkeys(each.owned):
            best = highest.get(partition)
            if best is None or each.generation > best:
                highest[partition], owners[partition] = each.generation, each.member.member_id
            elif each.generation == best:
                owners[partition] = None
    return owners


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
