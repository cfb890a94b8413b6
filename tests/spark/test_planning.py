"""Which offsets become a job: the planner's laws, by example and by property. Time is a number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instride.records import OffsetRange, TopicPartition
from instride.spark.planning import Limits, Planner

LIMITS = Limits(range_records=100, range_bytes=1 << 30, jobs=4, linger=0.0, retries=2, backoff=1.0, backoff_max=3.0)


def span(start: int, end: int, partition: int = 0, *, seek_number: int = 0, leader_epoch: int = 7) -> OffsetRange:
    return OffsetRange(
        topic="t",
        partition=partition,
        start=start,
        end=end,
        epoch=1,
        seek_number=seek_number,
        leader_epoch=leader_epoch,
    )


def bounds(ranges: tuple[OffsetRange, ...]) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in ranges]


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def planner(**changes: float) -> Planner:
    return Planner(replace(LIMITS, **changes))  # type: ignore[arg-type]


def test_idle_partitions_with_offsets_share_a_job() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 9, 1)], 0.0)
    assert bounds(plans.plan(0.0, jobs=0, cores=2)) == [(0, 0, 5), (1, 0, 9)]
    assert plans.in_flight == 2


def test_a_partition_has_one_range_in_flight() -> None:
    plans = planner()
    plans.offer([span(0, 5)], 0.0)
    plans.plan(0.0, jobs=0, cores=2)
    plans.offer([span(5, 8)], 0.0)
    assert plans.plan(0.0, jobs=1, cores=2) == ()


def test_a_slow_partition_is_alone_and_holds_up_no_other() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 5, 1)], 0.0)
    _slow, quick = plans.plan(0.0, jobs=0, cores=2)
    plans.succeeded(quick, records=5, nbytes=50)
    plans.offer([span(5, 9, 0), span(5, 9, 1)], 1.0)
    assert bounds(plans.plan(1.0, jobs=1, cores=2)) == [(1, 5, 9)]


def test_nothing_is_planned_while_every_core_has_a_range() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 5, 1)], 0.0)
    first, _ = plans.plan(0.0, jobs=0, cores=2)
    plans.offer([span(0, 5, 2)], 0.0)
    assert plans.plan(0.0, jobs=1, cores=2) == ()
    plans.succeeded(first, records=5, nbytes=50)
    assert bounds(plans.plan(0.0, jobs=1, cores=2)) == [(2, 0, 5)]


def test_only_so_many_jobs_run_at_a_time() -> None:
    plans = planner(jobs=1)
    plans.offer([span(0, 5)], 0.0)
    assert plans.plan(0.0, jobs=1, cores=2) == ()


def test_offsets_gather_for_the_linger_unless_there_are_enough() -> None:
    plans = planner(linger=1.0)
    plans.offer([span(0, 5)], 10.0)
    plans.offer([span(5, 9)], 10.9)
    assert plans.plan(10.9, jobs=0, cores=2) == ()
    assert bounds(plans.plan(11.0, jobs=0, cores=2)) == [(0, 0, 9)]
    plans.offer([span(0, 100, 1)], 11.0)
    assert bounds(plans.plan(11.0, jobs=1, cores=2)) == [(1, 0, 100)]


def test_a_range_is_bounded_in_records() -> None:
    plans = planner()
    plans.offer([span(0, 250)], 0.0)
    (first,) = plans.plan(0.0, jobs=0, cores=2)
    assert (first.start, first.end, first.leader_epoch) == (0, 100, -1)
    plans.succeeded(first, records=100, nbytes=1)
    (second,) = plans.plan(0.0, jobs=0, cores=2)
    plans.succeeded(second, records=100, nbytes=1)
    (third,) = plans.plan(0.0, jobs=0, cores=2)
    assert (third.start, third.end, third.leader_epoch) == (200, 250, 7)


def test_a_range_is_bounded_in_bytes_by_what_records_were_seen_to_weigh() -> None:
    plans = planner(range_bytes=10 * 1024)
    plans.offer([span(0, 250)], 0.0)
    (first,) = plans.plan(0.0, jobs=0, cores=2)
    assert first.end == 10
    plans.succeeded(first, records=10, nbytes=10 * 512)
    (second,) = plans.plan(0.0, jobs=0, cores=2)
    assert (second.start, second.end) == (10, 30)


def test_a_failed_range_is_tried_again_as_it_was_later_and_alone() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 5, 1)], 0.0)
    bad, good = plans.plan(0.0, jobs=0, cores=9)
    assert plans.failed(bad, 0.0)
    plans.succeeded(good, records=5, nbytes=1)
    plans.offer([span(5, 9, 0), span(5, 9, 1)], 0.0)
    assert bounds(plans.plan(0.9, jobs=0, cores=9)) == [(1, 5, 9)]
    plans.offer([span(0, 9, 2)], 0.9)
    assert plans.plan(1.0, jobs=0, cores=9) == (bad,)
    assert bounds(plans.plan(1.0, jobs=1, cores=9)) == [(2, 0, 9)]


def test_retries_end_and_their_pauses_double_up_to_a_bound() -> None:
    plans = planner(retries=3)
    plans.offer([span(0, 5)], 0.0)
    now = 0.0
    for pause in (1.0, 2.0, 3.0):
        (running_job,) = plans.plan(now, jobs=0, cores=2)
        assert plans.failed(running_job, now)
        assert plans.plan(now + pause - 0.01, jobs=0, cores=2) == ()
        now += pause
    (running_job,) = plans.plan(now, jobs=0, cores=2)
    assert not plans.failed(running_job, now)


def test_a_success_makes_earlier_failures_forgotten() -> None:
    plans = planner(retries=1)
    plans.offer([span(0, 100), span(100, 300)], 0.0)
    for start in (0, 100):
        (running_job,) = plans.plan(10.0 * start, jobs=0, cores=2)
        assert plans.failed(running_job, 10.0 * start)
        (again,) = plans.plan(10.0 * start + 1.0, jobs=0, cores=2)
        assert again.start == start
        plans.succeeded(again, records=100, nbytes=1)


def test_blocked_partitions_get_no_job_and_go_on_when_they_are_not() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 5, 1)], 0.0)
    assert bounds(plans.plan(0.0, jobs=0, cores=9, blocked={tp(0)})) == [(1, 0, 5)]
    assert bounds(plans.plan(0.0, jobs=1, cores=9)) == [(0, 0, 5)]


def test_what_is_withdrawn_is_planned_anew_without_a_gap() -> None:
    plans = planner()
    plans.offer([span(0, 5)], 0.0)
    (running_job,) = plans.plan(0.0, jobs=0, cores=2)
    plans.failed(running_job, 0.0)
    plans.offer([span(5, 9)], 0.0)
    assert plans.is_waiting_to_retry(tp(0))
    plans.withdraw(tp(0))
    assert not plans.is_waiting_to_retry(tp(0))
    assert bounds(plans.plan(0.0, jobs=0, cores=2)) == [(0, 0, 9)]
    plans.withdraw(tp(0))
    assert plans.in_flight == 0
    assert bounds(plans.plan(0.0, jobs=0, cores=2)) == [(0, 0, 9)]


def test_a_reset_partition_is_forgotten_with_its_flight() -> None:
    plans = planner()
    plans.offer([span(0, 5)], 0.0)
    (running_job,) = plans.plan(0.0, jobs=0, cores=2)
    plans.reset(tp(0))
    assert plans.in_flight == 0
    plans.offer([span(3, 9, seek_number=1)], 0.0)
    plans.succeeded(running_job, records=1, nbytes=1)
    assert plans.failed(running_job, 0.0)
    assert bounds(plans.plan(0.0, jobs=0, cores=2)) == [(0, 3, 9)]
    assert plans.in_flight == 1


def test_ranges_of_different_seeks_are_never_joined() -> None:
    plans = planner()
    plans.offer([span(0, 5), span(5, 9, seek_number=1)], 0.0)
    assert bounds(plans.plan(0.0, jobs=0, cores=2)) == [(0, 0, 5)]


steps = st.lists(
    st.tuples(st.sampled_from(["offer", "plan", "succeed", "fail", "withdraw"]), st.integers(0, 2), st.integers(1, 40)),
    max_size=60,
)


@given(steps)
@pytest.mark.parametrize("most", [7])
def test_success_covers_each_partition_in_order_without_gap_or_overlap(
    most: int, script: list[tuple[str, int, int]]
) -> None:
    """Whatever fails, is withdrawn or comes late."""
    plans = planner(range_records=most, retries=1_000_000, backoff=0.0)
    offered = [0, 0, 0]
    done = [0, 0, 0]
    running_jobs: dict[int, OffsetRange] = {}
    for now, (verb, partition, count) in enumerate(script):
        if verb == "offer":
            plans.offer([span(offered[partition], offered[partition] + count, partition)], now)
            offered[partition] += count
        elif verb == "plan":
            for each in plans.plan(now, jobs=0, cores=3):
                assert each.partition not in running_jobs
                assert each.start == done[each.partition]
                assert 0 < each.end - each.start <= most
                running_jobs[each.partition] = each
        elif verb == "withdraw":
            plans.withdraw(tp(partition))
            running_jobs.pop(partition, None)
        elif partition in running_jobs:
            running_job = running_jobs.pop(partition)
            if verb == "succeed":
                plans.succeeded(running_job, records=1, nbytes=1)
                done[partition] = running_job.end
            else:
                assert plans.failed(running_job, now)
        assert plans.in_flight == len(running_jobs)
    assert all(reached <= end for reached, end in zip(done, offered, strict=True))
