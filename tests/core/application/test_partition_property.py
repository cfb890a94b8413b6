"""Whatever arrives and is taken, by polls of any size that are completed or are not: each record comes once, in order.
There are two ways to take (of what the last poll left of a chunk, and any other): nobody must see which one it was.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from instride._core.application.calls import at_once
from instride._core.application.partition import OwnedPartition, PollResult, Polls
from instride._core.network.ranges import RangeChunk
from instride.records import TopicPartition

pytestmark = pytest.mark.part

STEPS = 120


class Buffer:
    """One of each move, with a model: where the position is, up to where it is buffered, and what a poll has aside."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.polls = Polls()
        self.owned = OwnedPartition(TopicPartition("t", 0), epoch=1, polls=self.polls)
        self.owned.positioned(0, 0, -1)
        self.position = self.taken = self.arrived = 0
        # Offsets that exist. Between them are those of batches that nobody is given.
        self.records: list[int] = []
        self.told = 0
        self.returned: list[int] = []

    # -- moves

    def arrive(self) -> None:
        """Also while a poll that may still be completed has something aside."""
        chunk: Any = None
        if self.random.random() < 0.25:
            end = self.arrived + self.random.randint(1, 3)
        else:
            first = self.arrived + self.random.choice((0, 0, 2))
            end = first + self.random.randint(1, 12)
            chunk = RangeChunk(topic="t", partition=0, first_offset=first, next_offset=end)
            self.records += range(first, end)
        at_once([self.owned.arriving(chunk, end, -1)])
        self.arrived = end
        if chunk is None and not self.left(self.position):
            self.position = self.taken = end

    def take(self, count: int) -> None:
        """For the poll that is under way. Nothing was taken before of one that was not completed."""
        waiting = self.left(self.taken)[:count]
        deliveries = self.owned.take(count)
        found = [offset for each in deliveries for offset in range(each.chunk.first_offset, each.chunk.next_offset)]
        assert found == waiting
        assert all(each.start <= each.chunk.first_offset and len(each.chunk) for each in deliveries)
        if found:
            assert self.polls.current.aside is not None
            self.polls.current.aside.deliveries += deliveries
            self.taken = found[-1] + 1

    def small(self) -> None:
        self.take(self.random.randint(0, 3))

    def large(self) -> None:
        self.take(self.random.randint(4, 40))

    def complete(self) -> None:
        result = self.polls.current
        if result.aside is not None:
            deliveries = result.aside.deliveries
            self.returned += [o for each in deliveries for o in range(each.chunk.first_offset, each.chunk.next_offset)]
            result.aside = None
            self.position = self.taken
        self.begin()

    def begin(self) -> None:
        """The next poll. One that was not completed took nothing."""
        self.polls.current = PollResult()
        self.taken = self.position

    def seek(self) -> None:
        offset = self.random.randint(0, self.arrived)
        at_once(self.owned.seeking(offset, -1))
        self.returned = [each for each in self.returned if each < 0]  # a new order begins
        self.records = []
        self.position = self.taken = self.arrived = offset
        self.polls.current = PollResult()
        self.told = 0

    def look(self) -> None:
        """A position is of completed polls alone; markers behind it may have moved it on."""
        position = self.owned.position
        assert position is not None
        assert self.left(self.position) == self.left(position)
        assert self.owned.buffered == len(self.left(self.taken))

    def count(self) -> None:
        """What was told of a poll that was not completed is not told again."""
        (_, _, records, _), noted = self.owned.untold()
        at_once([noted])
        before, self.told = self.told, max(self.told, len(self.records) - len(self.left(self.taken)))
        assert records == self.told - before

    def left(self, offset: int) -> list[int]:
        return [each for each in self.records if each >= offset]


@pytest.mark.parametrize("seed", range(200))
def test_each_record_is_taken_once_and_in_order_by_polls_of_any_size(seed: int) -> None:
    random = Random(seed)
    buffer = Buffer(random)
    moves = [buffer.arrive, buffer.small, buffer.small, buffer.complete, buffer.complete, buffer.large]
    rare = [buffer.begin, buffer.seek, buffer.look, buffer.count]
    for _ in range(STEPS):
        random.choice(moves if random.random() < 0.85 else rare)()
        assert buffer.returned == sorted(set(buffer.returned))
    buffer.complete()
    buffer.take(1 << 20)
    assert buffer.left(buffer.taken) == []
