"""Sticky assignment where subscriptions differ: the best balance there is, with as few moves as that allows.

Partitions of one topic can go to the same members, so only their *numbers* are decided here: how many of each
topic a member gets. Which ones follows from that: a member keeps what it owns, up to its number.

A member's load is its number of partitions. A *relief* is a chain: one partition of some topic goes from
member a to member b, one of another topic from b to c, and so on, where the last has at least two fewer
than the first. The loads are as even as the subscriptions allow when no relief is left (Harvey et al.,
"Semi-matchings for bipartite graphs and load balancing"). Each relief lowers the sum of the squared loads,
so the search ends: there is no loop to run into, as KAFKA-15106's was.

Laws
1. First only free partitions are dealt out and moved. An owned one moves only where the balance needs it.
2. So the round after the hand-overs finds even loads without moving anything owned: two rounds suffice.
3. Members and topics are looked at in order of their names: equal input, equal output.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import islice

from instride.core.assignors.aligned import Near
from instride.core.assignors.claims import Kept
from instride.core.assignors.relief import Counts, relieve
from instride.records import TopicPartition

__all__ = ["assign_general"]


def assign_general(
    partitions: Mapping[str, Sequence[TopicPartition]],
    consumers: Mapping[str, Sequence[str]],
    kept: Kept,
    near: Near | None = None,
) -> dict[str, list[TopicPartition]]:
    """partitions: of each topic that is to be assigned. consumers: of each of these topics, the member ids.

    kept: by every member, with nothing owned twice and only topics that it may have. near: where racks matter.
    """
    owned = _by_topic(kept)
    counts = Counts(consumers={topic: sorted(consumers[topic]) for topic in partitions}, members=sorted(kept))
    for member_id, topics in owned.items():
        for topic, numbers in topics.items():
            counts.add(member_id, topic, len(numbers))
    for topic in sorted(partitions, key=lambda topic: (len(consumers[topic]), topic)):
        _deal(counts, topic, len(partitions[topic]) - counts.of_topic(topic))
    relieve(counts, floor={member: {topic: len(own) for topic, own in owned[member].items()} for member in owned})
    relieve(counts, floor={})
    return _pick(partitions, counts, owned, near)


def _by_topic(kept: Kept) -> dict[str, dict[str, list[TopicPartition]]]:
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
    near: Near | None,
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
        for may in (near, _anybody) if near is not None else (_anybody,):
            for member_id, number in wanted.items():
                given = list(islice((each for each in free if may(member_id, each)), number))
                for each in given:
                    del free[each]
                wanted[member_id] -= len(given)
                parts[member_id] += given
    return parts


def _anybody(_member_id: str, _partition: TopicPartition) -> bool:
    return True
