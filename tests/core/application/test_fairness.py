"""KIP-41: which buffered records a poll returns."""

from __future__ import annotations

from itertools import pairwise

import pytest
from application_script import tp
from hypothesis import given
from hypothesis import strategies as st

from instride.core.application.fairness import Greedy, Proportional
from instride.core.application.partition import OwnedPartition
from instride.core.network.ranges import RangeChunk


class Buffers:
    """Partitions whose buffers the test fills."""

    def __init__(self, *counts: int) -> None:
        self.partitions = {tp(number): OwnedPartition(tp(number), 1) for number in range(len(counts))}
        self.ends = dict.fromkeys(range(len(counts)), 0)
        for number, count in enumerate(counts):
            self.fill(number, count)

    def fill(self, number: int, count: int) -> None:
        if not count:
            return
        start = self.ends[number]
        end = self.ends[number] = start + count
        chunk = RangeChunk(topic="t", partition=number, first_offset=start, next_offset=end)
        self.partitions[tp(number)].arrived(0, chunk, end)  # type: ignore[arg-type]

    def collect(self, fairness: Greedy | Proportional, limit: int) -> list[tuple[int, int]]:
        """(partition, how many) in the order in which they were returned."""
        found = fairness.collect(self.partitions, limit)
        return [(each.partition.partition, len(each.chunk)) for each in found]


@pytest.mark.requirement("KIP-41/9")
@pytest.mark.requirement("KIP-41/4")
@pytest.mark.requirement("KIP-41/10")
@pytest.mark.rule("M")
def test_greedy_takes_all_of_one_then_the_next_and_begins_where_it_left_off() -> None:
    buffers, greedy = Buffers(250, 100, 300), Greedy()
    assert buffers.collect(greedy, 300) == [(0, 250), (1, 50)]
    assert buffers.collect(greedy, 300) == [(1, 50), (2, 250)]
    assert buffers.collect(greedy, 300) == [(2, 50)]


@pytest.mark.requirement("KIP-41/7")
@pytest.mark.rule("M")
def test_a_turn_ends_with_what_was_retained_when_it_began() -> None:
    buffers, greedy = Buffers(100, 100), Greedy()
    assert buffers.collect(greedy, 60) == [(0, 60)]
    buffers.fill(0, 1000)
    assert buffers.collect(greedy, 60) == [(0, 40), (1, 20)]


@pytest.mark.requirement("KIP-41/8")
@pytest.mark.rule("M")
def test_proportional_gives_equal_shares_and_passes_on_what_one_lacks() -> None:
    assert dict(Buffers(300, 300, 300).collect(Proportional(), 300)) == {0: 100, 1: 100, 2: 100}
    buffers = Buffers(300, 300, 0)
    got = buffers.collect(Proportional(), 300)
    assert sum(count for _, count in got) == 300
    assert {number: sum(c for n, c in got if n == number) for number in (0, 1)} == {0: 150, 1: 150}


@pytest.mark.requirement("KIP-41/3")
def test_no_bound_returns_everything() -> None:
    assert Buffers(3, 0, 7).collect(Greedy(), -1) == [(0, 3), (2, 7)]
    assert sorted(Buffers(3, 0, 7).collect(Proportional(), -1)) == [(0, 3), (2, 7)]


def test_a_paused_partition_stops_no_other_and_keeps_its_buffer() -> None:
    buffers, greedy = Buffers(5, 5), Greedy()
    buffers.partitions[tp(0)].paused = True
    assert buffers.collect(greedy, 100) == [(1, 5)]
    buffers.partitions[tp(0)].paused = False
    assert buffers.collect(greedy, 100) == [(0, 5)]


@pytest.mark.requirement("KIP-41/1")
@pytest.mark.requirement("KIP-41/7")
@pytest.mark.rule("M")
@given(
    refills=st.lists(st.lists(st.integers(0, 40), min_size=4, max_size=4), min_size=1, max_size=30),
    limit=st.integers(1, 50),
    proportional=st.booleans(),
)
def test_none_with_data_waits_more_than_one_round(refills: list[list[int]], limit: int, proportional: bool) -> None:
    """Whatever is refetched in between: a partition with data is served before any other has its turn twice."""
    buffers = Buffers(0, 0, 0, 0)
    fairness = Proportional() if proportional else Greedy()
    turns_since: dict[int, list[int]] = {}
    for refill in refills:
        for number, count in enumerate(refill):
            buffers.fill(number, count)
        for number in range(4):
            if buffers.partitions[tp(number)].available():
                turns_since.setdefault(number, [])
        got = buffers.collect(fairness, limit)
        assert sum(count for _, count in got) <= limit
        previous = None
        for number, _ in got:
            turns_since.pop(number, None)
            for waiting in turns_since.values():
                if number != previous:
                    waiting.append(number)
            previous = number
        for waiter, waiting in turns_since.items():
            for other in set(waiting):
                assert waiting.count(other) <= 2 + limit_crossings(waiting, other), (waiter, waiting)


def limit_crossings(waiting: list[int], other: int) -> int:
    """A turn that the bound cut goes on in the next poll: the same partition twice in a row is one turn."""
    return sum(1 for one, two in pairwise(waiting) if one == two == other)
