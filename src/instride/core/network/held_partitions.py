"""The table of held partitions, with what is asked of it all the time kept ready.

Laws
1. A turn costs by what has changed: no part of the machine walks over all partitions in each turn. Whatever is set of a
   partition puts it into `changed`; the next question takes note of all that is in there.
2. A partition without demand has no share of the room: it is at its end, and nothing of it is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from instride.core.group.ownership import Ownership
from instride.core.network.assigned_partition import AssignedPartition, Phase
from instride.records import TopicPartition

__all__ = ["HeldPartitions", "keep"]

# However few have demand, so many share the room (of those that are held): one that fills up leaves some to others.
_SHARERS = 16

_Group = dict[AssignedPartition, None]
K = TypeVar("K")


class _Standing(NamedTuple):
    """What was counted of one partition. flows: a poll may take what is buffered of it."""

    phase: Phase | None = None
    pending: bool = False
    unchecked: bool = False
    undecoded: bool = False
    demand: bool = False
    owned: bool = False
    flows: bool = False
    kept: int = 0
    records: int = 0


class HeldPartitions(dict[TopicPartition, AssignedPartition]):
    """Not thread-safe: the assignment owns it. Changed by `add`, `remove` and `clear` alone; whoever asks may not
    change it, nor a partition, while it goes over what it got as an iterator.

    changed: to be taken note of; every partition of this table shares it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed: _Group = {}
        self._changed_for_fetches: _Group = {}
        self._counted: dict[AssignedPartition, _Standing] = {}
        self._of_phase: dict[Phase, _Group] = {each: {} for each in Phase}
        self._pending: _Group = {}
        self._unchecked: _Group = {}
        self._undecoded: _Group = {}
        self._demand = self._owned = 0
        self._kept = self._flowing_kept = self._flowing_records = 0
        self._of_topic: dict[str, int] = {}
        self._topics: frozenset[str] = frozenset()

    def add(self, assigned: AssignedPartition) -> None:
        self[assigned.partition] = assigned
        self.changed[assigned] = None
        topic = assigned.partition.topic
        if topic not in self._of_topic:
            self._topics |= {topic}
        self._of_topic[topic] = self._of_topic.get(topic, 0) + 1

    def remove(self, partition: TopicPartition) -> AssignedPartition:
        assigned = self.pop(partition)
        self.changed[assigned] = None
        topic = partition.topic
        self._of_topic[topic] -= 1
        if not self._of_topic[topic]:
            del self._of_topic[topic]
            self._topics -= {topic}
        return assigned

    def clear(self) -> None:
        for partition in list(self):
            self.remove(partition)

    # -- what is asked

    @property
    def topics(self) -> frozenset[str]:
        return self._topics

    def in_phase(self, phase: Phase) -> list[AssignedPartition]:
        self._take_note()
        return list(self._of_phase[phase])

    def pending(self) -> list[AssignedPartition]:
        """Those that are not simply owned: their revocation was requested, or completes."""
        self._take_note()
        return list(self._pending)

    def unchecked(self) -> list[AssignedPartition]:
        """Those that no metadata was compared with since their position is known."""
        self._take_note()
        return list(self._unchecked)

    def undecoded(self) -> list[AssignedPartition]:
        """Of which something came that is not decoded."""
        self._take_note()
        return list(self._undecoded)

    def changed_for_fetches(self) -> Iterator[AssignedPartition]:
        """What has changed since this was asked last, those that are held no more included."""
        self._take_note()
        changed, self._changed_for_fetches = self._changed_for_fetches, {}
        return iter(changed)

    @property
    def sharers(self) -> int:
        """How many partitions share the room (law 2); one at least."""
        self._take_note()
        return max(1, self._demand, min(self._owned, _SHARERS))

    @property
    def kept_bytes(self) -> int:
        """Memory that decoded records keep."""
        self._take_note()
        return self._kept

    @property
    def flowing_kept_bytes(self) -> int:
        """The same, of records that a poll may take."""
        self._take_note()
        return self._flowing_kept

    @property
    def flowing_records(self) -> int:
        """How many records are buffered that a poll may take."""
        self._take_note()
        return self._flowing_records

    # -- inside

    def _take_note(self) -> None:
        """Law 1."""
        if not self.changed:
            return
        changed = list(self.changed)
        self.changed.clear()
        for assigned in changed:
            self._changed_for_fetches[assigned] = None
            before = self._counted.pop(assigned, _NOTHING)
            after = _NOTHING
            if self.get(assigned.partition) is assigned:
                after = self._counted[assigned] = _standing(assigned)
            if before != after:
                self._count(assigned, before, after)

    def _count(self, assigned: AssignedPartition, before: _Standing, after: _Standing) -> None:
        if before.phase is not after.phase:
            if before.phase is not None:
                del self._of_phase[before.phase][assigned]
            if after.phase is not None:
                self._of_phase[after.phase][assigned] = None
        keep(self._pending, assigned, wanted=after.pending)
        keep(self._unchecked, assigned, wanted=after.unchecked)
        keep(self._undecoded, assigned, wanted=after.undecoded)
        self._demand += after.demand - before.demand
        self._owned += after.owned - before.owned
        self._kept += after.kept - before.kept
        self._flowing_kept += after.kept * after.flows - before.kept * before.flows
        self._flowing_records += after.records * after.flows - before.records * before.flows


_NOTHING = _Standing()


def _standing(assigned: AssignedPartition) -> _Standing:
    owned, undecoded = assigned.state is Ownership.OWNED, assigned.undecoded is not None
    wants = assigned.fetchable and (assigned.lagging or assigned.known_end < 0)
    return _Standing(
        phase=assigned.phase,
        pending=not owned,
        unchecked=assigned.checked < 0,
        undecoded=undecoded,
        demand=owned and (wants or undecoded or assigned.records > 0),
        owned=owned,
        flows=owned and not assigned.paused,
        kept=assigned.kept_bytes,
        records=assigned.records,
    )


def keep(group: dict[K, None], key: K, *, wanted: bool) -> None:
    """Have it in the group, or have it not. A dict is a set that keeps its order."""
    if wanted:
        group[key] = None
    else:
        group.pop(key, None)
