"""KIP-41: which buffered records a poll returns."""

from __future__ import annotations

import pytest
from application_script import tp
from hypothesis import given
from hypothesis import strategies as st

from instride._core.application.calls import at_once
from instride._core.application.fairness import Greedy, Proportional
from instride._core.application.partition import OwnedPartition
from instride._core.network.ranges import RangeChunk

pytestmark = pytest.mark.part


class Buffers:
    """Partitions whose buffers the test fills."""

    def __init__(self, *counts: int) -> None:
        self.ends = dict.fromkeys(range(len(counts)), 0)
        self.partitions = {tp(number): self.owned(number) for number in range(len(counts))}
        for number, count in enumerate(counts):
            self.fill(number, count)

    def owned(self, number: int) -> OwnedPartition:
        partition = OwnedPartition(tp(number), 1)
        partition.positioned(0, self.ends[number], -1)
        return partition

    def fill(self, number: int, count: int) -> None:
        if not count:
            return
        partition = self.partitions[tp(number)]
        start = partition.fetch_end() or 0
        end = self.ends[number] = start + count
        chunk = RangeChunk(topic="t", partition=number, first_offset=start, next_offset=end)
        at_once([partition.arriving(chunk, end, 0)])  # type: ignore[arg-type]

    def change(self, number: int, what: str, count: int) -> None:
        partition = self.partitions.get(tp(number))
        if partition is None:
            self.partitions[tp(number)] = partition = self.owned(number)
        if what == "fill":
            partition.paused = False
            self.fill(number, count)
        elif what == "pause":
            partition.paused = True
        elif what == "drop":
            at_once(partition.dropping())
        else:
            del self.partitions[tp(number)]

    def available(self, number: int) -> int:
        partition = self.partitions.get(tp(number))
        return partition.available() if partition is not None else 0

    def collect(self, fairness: Greedy | Proportional, limit: int) -> list[tuple[int, int]]:
        """(partition, how many) in the order in which they were returned."""
        self.before = {number: self.available(number) for number in self.ends}
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


@pytest.mark.requirement("surface/pause")
def test_a_paused_partition_stops_no_other_and_keeps_its_buffer() -> None:
    buffers, greedy = Buffers(5, 5), Greedy()
    buffers.partitions[tp(0)].paused = True
    assert buffers.collect(greedy, 100) == [(1, 5)]
    buffers.partitions[tp(0)].paused = False
    assert buffers.collect(greedy, 100) == [(0, 5)]


@pytest.mark.requirement("KIP-41/1")
@pytest.mark.requirement("KIP-41/7")
@pytest.mark.rule("M")
def test_what_cannot_be_shared_equally_goes_round() -> None:
    buffers, proportional = Buffers(9, 9, 9, 9), Proportional()
    assert buffers.collect(proportional, 2) == [(0, 1), (1, 1)]
    assert buffers.collect(proportional, 3) == [(2, 1), (3, 1), (0, 1)]
    assert buffers.collect(proportional, 6) == [(1, 2), (2, 2), (3, 1), (0, 1)]


def test_without_a_partition_there_is_nothing_to_share() -> None:
    assert Buffers().collect(Proportional(), 10) == []
    assert Buffers().collect(Greedy(), 10) == []


@pytest.mark.requirement("KIP-41/8")
@given(available=st.lists(st.integers(0, 30), max_size=6), limit=st.integers(0, 60))
def test_proportional_shares_differ_only_by_what_one_lacks(available: list[int], limit: int) -> None:
    """M's ideal: whoever gave less than another gave all it had, or one less."""
    got = dict(Buffers(*available).collect(Proportional(), limit))
    assert sum(got.values()) == min(limit, sum(available))
    for place, had in enumerate(available):
        if got.get(place, 0) < had:
            assert got.get(place, 0) >= max(got.values(), default=0) - 1


class Waits:
    """Who waits with data, and what the others were given meanwhile."""

    def __init__(self) -> None:
        self.waiting: dict[int, dict[int, list[int]]] = {}
        self.most_retained: dict[int, int] = {}

    def before_poll(self, available: dict[int, int]) -> None:
        for number, count in available.items():
            self.most_retained[number] = max(count, self.most_retained.get(number, 0))
            if count:
                self.waiting.setdefault(number, {})
            else:
                self.waiting.pop(number, None)

    def after_poll(self, place: int, got: list[tuple[int, int]]) -> None:
        for number, count in got:
            self.waiting.pop(number, None)
            for others in self.waiting.values():
                others.setdefault(number, []).extend([place] * count)

    def check(self, *, greedy: bool) -> None:
        for waiter, others in self.waiting.items():
            for other, polls in others.items():
                if greedy:
                    # One turn, which ends with what was retained when it began: polls in a row, of a bounded sum.
                    assert len(set(polls)) == polls[-1] - polls[0] + 1, (waiter, other, "had two turns")
                    assert len(polls) <= self.most_retained[other], (waiter, other, "was refilled in its turn")
                else:
                    assert len(polls) <= 1, (waiter, other, "had a second share")


@pytest.mark.requirement("KIP-41/10")
@pytest.mark.requirement("KIP-41/7")
@pytest.mark.rule("M")
@pytest.mark.parametrize("greedy", [True, False])
@given(data=st.data())
def test_none_with_data_waits_more_than_one_round(greedy: bool, data: st.DataObject) -> None:
    """Whatever is refetched, paused, dropped or assigned in between."""
    fairness: Greedy | Proportional = Greedy() if greedy else Proportional()
    buffers, waits = Buffers(0, 0, 0, 0, 0), Waits()
    for number in range(5):
        buffers.fill(number, data.draw(st.integers(0, 40), label="at first"))
    change = st.tuples(
        st.integers(0, 4), st.sampled_from(["fill", "fill", "pause", "drop", "leave"]), st.integers(0, 40)
    )
    for place in range(data.draw(st.integers(1, 20), label="polls")):
        for number, what, count in data.draw(st.lists(change, max_size=4), label="changes"):
            buffers.change(number, what, count)
        waits.before_poll({number: buffers.available(number) for number in range(5)})
        limit = data.draw(st.integers(1, 4) | st.integers(1, 50), label="limit")
        got = buffers.collect(fairness, limit)
        assert sum(count for _, count in got) == min(limit, sum(buffers.before.values()))
        waits.after_poll(place, got)
        waits.check(greedy=greedy)
