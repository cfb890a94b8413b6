"""A member with another client: what is seen of it from outside.

Laws
1. What it has, it owns; what it had and has no more, it let go of, or lost where it says so. A loss of what nobody saw
   it have is no news. What it lost it may have again in the same turn: the loss came first.
2. Its epochs are counted here. What is finished and committed is what is told, if anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from instride.records import TopicPartition
from instride.testing._check.vocabulary import parts

__all__ = ["RecordedPeer"]


class RecordedPeer:
    """Not thread-safe."""

    def __init__(self, say: Callable[..., None], name: str, *, finishes: str, commits: bool) -> None:
        self.name = name
        self._add = partial(say, name)
        self._epoch = 1
        self._number = 0
        self._owned: dict[TopicPartition, int] = {}
        self._add("started", False, finishes, commits)

    def turn(
        self,
        records: Mapping[TopicPartition, Iterable[int]],
        owned: Iterable[TopicPartition],
        lost: Iterable[TopicPartition] = (),
    ) -> None:
        """A poll of it has ended: the offsets that it returned, what it owns now, and what it says that it lost."""
        now, gone = set(owned), self._owned.keys() & set(lost)
        self._ends("lost", gone)
        if gone:
            self._add("poll", (), (), tuple(sorted(gone)))
        self._ends("revoked", {tp for tp in self._owned if tp not in now and tp not in records})
        self._begins({tp for tp in (*now, *records) if tp not in self._owned})
        stretches = [
            (tp, self._owned[tp], 0, *part, -1)
            for tp in records
            for stretch in _stretches(records[tp])
            for part in parts(*stretch)
        ]
        if stretches:
            self._add("poll", tuple(stretches), (), ())
        self._ends("revoked", {tp for tp in self._owned if tp not in now})

    def _begins(self, partitions: set[TopicPartition]) -> None:
        if partitions:
            for tp in sorted(partitions):
                self._owned[tp] = self._epoch
                self._epoch += 1
            self._add("assigned", None, tuple((tp, self._owned[tp]) for tp in sorted(partitions)))

    def _ends(self, how: str, partitions: set[TopicPartition]) -> None:
        if partitions:
            self._add(how, tuple((tp, self._owned.pop(tp)) for tp in sorted(partitions)))

    def done(self, partition: TopicPartition, first: int, last: int) -> None:
        """The work on these offsets is finished, while it owns the partition."""
        for part in parts(first, last):
            self._add("range done", partition, *part, self._owned[partition])

    def not_begun(self, partition: TopicPartition, offset: int) -> None:
        """It is about to let go of what it was returned from this offset on, and no work on that was begun."""
        self._add("not begun", partition, self._owned[partition], offset)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The broker has taken this commit."""
        self._number += 1
        self._add("commit response", self._number, tuple((tp, offset, 0) for tp, offset in sorted(offsets.items())))

    def closed(self) -> None:
        """It left the group, having committed what it returned."""
        self._owned.clear()
        self._add("closed", True)

    def crashed(self) -> None:
        """It was killed: what it returned may come again."""
        self._owned.clear()
        self._add("crashed")


def _stretches(offsets: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] + 1 == offset:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found
