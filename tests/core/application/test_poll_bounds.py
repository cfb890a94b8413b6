"""max_poll_records over the borders of fetches, and a bound that is another in each poll."""

from __future__ import annotations

import pytest
from application_script import Script, tp

from instride._core.events import Commit, Consumed, Fetched, Polled
from instride.testing._simulation.chunk import SimulatedChunk


@pytest.mark.vector(45)
@pytest.mark.requirement("KIP-41/4")
def test_what_is_over_the_bound_comes_with_the_next_poll(script: Script) -> None:
    script.assigned(0)
    script.fetched(0, 1, 4, start=0)
    assert script.poll(limit=2) == [(0, 1, 3)]
    assert script.poll(limit=2) == [(0, 3, 4)]
    script.fetched(0, 4, 6)
    assert script.poll(limit=2) == [(0, 4, 6)]


@pytest.mark.vector(46)
@pytest.mark.requirement("KIP-41/10")
def test_a_bound_that_does_not_fit_the_fetches_is_filled_over_their_borders(script: Script) -> None:
    script.assigned(0, 1)
    script.fetched(0, 0, 3)
    script.fetched(1, 0, 3)
    polls = [script.poll(limit=2) for _ in range(4)]
    assert [sum(end - start for _, start, end in each) for each in polls] == [2, 2, 2, 0]
    assert sorted(part for each in polls for part in each) == [(0, 0, 2), (0, 2, 3), (1, 0, 1), (1, 1, 3)]


@pytest.mark.requirement("KIP-41/15")
def test_the_bound_may_be_another_in_each_poll(script: Script) -> None:
    script.assigned(0)
    script.fetched(0, 0, 10)
    assert [script.poll(limit=limit) for limit in (1, 5, -1)] == [[(0, 0, 1)], [(0, 1, 6)], [(0, 6, 10)]]


@pytest.mark.requirement("KIP-41/4")
def test_proportional_polls_begin_after_whoever_got_the_last_odd_record() -> None:
    script = Script(fetch_fairness="proportional")
    script.subscribe()
    script.assigned(0, 1, 2)
    for p in (0, 1, 2):
        script.fetched(p, 0, 10)
    polls = [script.poll(limit=2) for _ in range(3)]
    assert [sum(end - start for _, start, end in each) for each in polls] == [2, 2, 2]
    took = [part[0] for each in polls for part in each]
    assert sorted(took) == [0, 0, 1, 1, 2, 2], "none waits for a second share of another"


@pytest.mark.vector(64)
@pytest.mark.parametrize("returned_before", [True, False])
def test_the_position_moves_over_batches_without_a_record_to_return(script: Script, returned_before: bool) -> None:
    """Aborted transactions and control batches: what is committed and what is fetched next is behind them."""
    script.assigned(0)
    if returned_before:
        script.fetched(0, 0, 3)
    script.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=3 * returned_before, chunk=None, next_offset=9))
    assert script.poll() == ([(0, 0, 3)] if returned_before else [])
    assert script.run(script.machine.position(script.now, tp(0), 0.0)) == 9
    script.machine.commit_async(script.now, None)
    (commit,) = script.take_posted(Commit)
    assert commit.entries[tp(0)].offset == 9


@pytest.mark.vector(64)
@pytest.mark.parametrize("limit", [-1, 4])
def test_a_batch_without_a_record_to_return_parts_no_others(script: Script, limit: int) -> None:
    script.assigned(0)
    script.fetched(0, 0, 3)
    script.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=3, chunk=None, next_offset=9))
    script.fetched(0, 9, 11)
    found = script.poll(limit=limit) + script.poll(limit=limit)
    assert [each for _, start, end in found for each in range(start, end)] == [0, 1, 2, 9, 10]
    assert script.run(script.machine.position(script.now, tp(0), 0.0)) == 11


# -- what the network side is told (law 10)


def test_polls_are_told_some_twenty_times_a_second_at_most() -> None:
    script = Script()
    script.subscribe()
    script.assigned(0)
    for _ in range(10):
        script.poll()
    assert len(script.take_posted(Polled)) == 1
    script.now += 0.06
    script.poll()
    assert len(script.take_posted(Polled)) == 1


def consumed(script: Script) -> list[int]:
    return [each.partitions[tp(0)][2] for each in script.take_posted(Consumed)]


def test_what_polls_took_is_told_in_sums() -> None:
    script = Script()
    script.subscribe()
    script.assigned(0)
    script.poll()
    script.fetched(0, 0, 5)
    script.posted.clear()
    assert [len(script.poll(limit=2)) for _ in range(2)] == [1, 1]
    assert consumed(script) == [], "there is more to take, and it is little"
    assert len(script.poll(limit=2)) == 1
    assert consumed(script) == [5]


@pytest.mark.parametrize(("prefetch", "fetch_buffer_bytes"), [("total", 64 << 20), ("bytes", 1000)])
def test_what_makes_room_for_a_fetch_is_told_at_once(prefetch: str, fetch_buffer_bytes: int) -> None:
    script = Script(prefetch=prefetch, fetch_buffer_bytes=fetch_buffer_bytes)
    script.subscribe()
    script.assigned(0, 1)
    script.poll()
    chunk = SimulatedChunk(topic="t", partition=0, first_offset=0, next_offset=5)
    script.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=0, chunk=chunk, next_offset=5))
    script.posted.clear()
    script.poll(limit=2)
    assert consumed(script) == [2]


def test_what_was_taken_of_a_partition_that_is_gone_is_not_told() -> None:
    script = Script()
    script.subscribe()
    script.assigned(0, 1)
    script.poll()
    script.fetched(0, 0, 5)
    script.poll(limit=2)
    script.lost(0)
    script.fetched(1, 0, 2)
    script.posted.clear()
    script.poll()
    assert [list(each.partitions) for each in script.take_posted(Consumed)] == [[tp(1)]]
