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

    def spare_topics(self, member_id: str, floor: Floor) -> list[str]:
        """Topics of which the member has more than its floor, those of which it has most first."""
        least = floor.get(member_id, {})
        held = self._held[member_id]
        return sorted((topic for topic in held if held[topic] > least.get(topic, 0)), key=lambda t: (-held[t], t))


def relieve(counts: Counts, *, floor: Floor) -> None:
    heap = [(-load, member_id) for member_id, load in counts.load.items()]
    heapq.heapify(heap)
    closed: set[str] = set()
    while heap:
        load, member_id = heapq.heappop(heap)
        if member_id in closed or -load != counts.load[member_id]:
            continue
        chain = _find_chain(counts, member_id, floor, closed)
        for giver, topic, taker in chain:
            counts.add(giver, topic, -1)
            counts.add(taker, topic, 1)
        if chain:
            for changed in (member_id, chain[0][2]):
                heapq.heappush(heap, (-counts.load[changed], changed))


def _find_chain(counts: Counts, start: str, floor: Floor, closed: set[str]) -> list[tuple[str, str, str]]:
    """The shortest chain from `start`, last step first; empty, with all that was reached closed, if there
    is none.

    Of the ends that are equally near the one with the least load is taken.
    """
    reached: dict[str, Step | None] = {start: None}
    seen_topics: set[str] = set()
    layer = deque([start])
    while layer:
        found = _next_layer(counts, layer, floor, reached, seen_topics, closed)
        end = min(found, key=counts.load.__getitem__, default=start)
        if counts.load[end] <= counts.load[start] - 2:
            return _trace(reached, end)
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


def _trace(reached: Mapping[str, Step | None], end: str) -> list[tuple[str, str, str]]:
    chain: list[tuple[str, str, str]] = []
    step = reached[end]
    while step is not None:
        giver, topic = step
        chain.append((giver, topic, end))
        end, step = giver, reached[giver]
    return chain
