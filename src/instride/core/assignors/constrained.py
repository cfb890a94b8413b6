"""Sticky assignment where all members subscribe to the same topics: quotas, in one pass.

Laws
1. With P partitions and N members, P mod N members get one more than floor(P / N); all others get floor(P /
   N).
2. A member loses what it owns only where it owns more than its quota.
3. Each topic is spread evenly too, as far as the partitions that members keep allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from instride.core.assignors.claims import Kept
from instride.records import TopicPartition

__all__ = ["assign_constrained"]


def assign_constrained(partitions: Sequence[TopicPartition], kept: Kept) -> dict[str, list[TopicPartition]]:
    """partitions: all that are to be assigned, sorted. kept: by every member, with nothing owned twice."""
    quota, longer = divmod(len(partitions), len(kept))
    parts: dict[str, list[TopicPartition]] = {}
    for member_id in sorted(kept):
        owned = sorted(kept[member_id], key=_number_first)
        has_longer = longer > 0 and len(owned) > quota
        longer -= has_longer
        parts[member_id] = owned[: quota + has_longer]
    taken = {partition for owned in parts.values() for partition in owned}
    free = [partition for partition in partitions if partition not in taken]
    for partition, member_id in zip(free, _takers(parts, quota), strict=False):
        parts[member_id].append(partition)
    return parts


def _number_first(partition: TopicPartition) -> tuple[int, str]:
    """Low numbers of all topics before high ones of any, so that what is kept is spread over the topics."""
    return partition.partition, partition.topic


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
