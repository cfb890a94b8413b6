"""How many partitions of each topic every member has, and the search for chains that even the loads out.

Laws
1. `relieve` ends when no chain is left that leads to a member with at least two fewer partitions.
2. It takes no more from a member than what that has above its floor.
3. The shortest chain is taken: the fewest partitions move for each step towards balance.
4. What a failed search has reached can be part of no later chain, and is never entered again.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Counts", "relieve"]

Floor = Mapping[str, Mapping[str, int]]
"""Member id -> topic -> how many it must keep; 0 where not named."""
Step = tuple[str, str]
"""How a member was reached: (the member that gives, the topic that it gives of)."""
Chain = list[tuple[str, str, str]]
"""(Who gives, of which topic, who takes): the last step first."""


class Counts:
    """The numbers under decision. `consumers` never changes; `load` is the sum over a member's topics."""

    __slots__ = ("_held", "_holders", "consumers", "load")

    def __init__(self, *, consumers: Mapping[str, Sequence[str]], members: Iterable[str]) -> None:
        self.consumers = consumers
        self.load: dict[str, int] = dict.fromkeys(members, 0)
        self._held: dict[str, dict[str, int]] = {member_id: {} for member_id in self.load}
        self._holders: dict[str, dict[str, int]] = {topic: {} for topic in consumers}

    def add(self, member_id: str, topic: str, number: int) -> None:
        held, holders = self._held[member_id], self._holders[topic]
        held[topic] = holders[member_id] = held.get(topic, 0) + number
        if not held[topic]:
            del held[topic], holders[member_id]
        self.load[member_id] += number

    def of_topic(self, topic: str) -> int:
        return sum(self._holders[topic].values())

    def holders(self, topic: str) -> list[tuple[str, int]]:
        return sorted(self._holders[topic].items())

    def can_spare(self, member_id: str, topic: str, floor: Floor) -> bool:
        return self._held[member_id].get(topic, 0) > floor.get(member_id, {}).get(topic, 0)

    def spare_topics(self, member_id: str, floor: Floor) -> list[str]:
        """Topics of which the member has more than its floor, those of which it has most first."""
        least = floor.get(member_id, {})
        held = self._held[member_id]
        return sorted((topic for topic in held if held[topic] > least.get(topic, 0)), key=lambda t: (-held[t], t))


def relieve(counts: Counts, *, floor: Floor) -> None:
    fair = -(-sum(counts.load.values()) // len(counts.load))
    heap = [(-load, member_id) for member_id, load in counts.load.items()]
    heapq.heapify(heap)
    closed: set[str] = set()
    while heap:
        load, member_id = heapq.heappop(heap)
        if member_id in closed or -load != counts.load[member_id]:
            continue
        changed = {member_id}
        for number, chain in enumerate(_find_chains(counts, member_id, floor, closed)):
            if number == 0 or _still_relieves(counts, chain, floor, fair):
                _move_along(counts, chain)
                changed.add(chain[0][2])
        for each in changed if len(changed) > 1 else ():
            heapq.heappush(heap, (-counts.load[each], each))


def _move_along(counts: Counts, chain: Chain) -> None:
    for giver, topic, taker in chain:
        counts.add(giver, topic, -1)
        counts.add(taker, topic, 1)


def _still_relieves(counts: Counts, chain: Chain, floor: Floor, fair: int) -> bool:
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
