"""Which offsets become a job: the planner's laws, by example and by property. Time is a number."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Container
from dataclasses import dataclass, field, replace
from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instride.records import OffsetRange, TopicPartition
from instride.spark._planning import Limits, Planner

LIMITS = Limits(range_records=100, range_bytes=1 << 30, jobs=4, linger=0.0, retries=2, backoff=1.0, backoff_max=3.0)


def span(
    start: int, end: int, partition: int = 0, *, epoch: int = 1, seek_number: int = 0, leader_epoch: int = 7
) -> OffsetRange:
    return OffsetRange(
        topic="t",
        partition=partition,
        start=start,
        end=end,
        epoch=epoch,
        seek_number=seek_number,
        leader_epoch=leader_epoch,
    )


def bounds(ranges: tuple[OffsetRange, ...]) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in ranges]


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def plan(
    plans: Planner, now: float, *, jobs: int, cores: int, blocked: Container[TopicPartition] = ()
) -> tuple[OffsetRange, ...]:
    """The ranges of the job, whatever their tasks."""
    return tuple(each for task in plans.plan(now, jobs=jobs, cores=cores, blocked=blocked) for each in task)


def planner(**changes: float) -> Planner:
    return Planner(replace(LIMITS, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("range_records", "seconds", "range_bytes", "expected"),
    [
        (None, 0.05, 1 << 30, 1_000_000),
        (None, 10.0, 1 << 30, 100_000),
        (None, 0.05, 7_000_000, 700_000),
        (100, 0.05, 1 << 30, 100),
        (70_000, 10.0, 1 << 30, 70_000),
    ],
)
def test_what_is_quick_comes_in_larger_ranges(
    range_records: int | None, seconds: float, range_bytes: int, expected: int
) -> None:
    """Within the bound of bytes (a record has ten), unless a bound of records was chosen. seconds: of 100,000."""
    plans = Planner(replace(LIMITS, range_records=range_records, range_bytes=range_bytes))
    plans.offer([span(0, 5_000_000)], 0.0)
    (first,) = plan(plans, 0.0, jobs=0, cores=1)
    records = first.end - first.start
    plans.told(first, seconds=seconds * records / 100_000)
    plans.succeeded(first, records=records, nbytes=10 * records)
    (second,) = plan(plans, 0.0, jobs=0, cores=1)
    assert bounds((second,)) == [(0, records, records + expected)]


@pytest.mark.parametrize(
    ("waiting", "seconds", "range_bytes", "expected"),
    [
        (1_500_000, 0.05, 1 << 30, 1_500_000),
        (1_500_001, 0.05, 1 << 30, 1_000_000),
        (1_500_000, 0.05, 7_000_000, 700_000),
        (150_000, 10.0, 1 << 30, 75_000),
        (434_464, 1.5, 1 << 30, 86_893),
        (434_464, 1.0, 1 << 30, 100_000),
    ],
)
def test_a_small_rest_is_no_range_of_its_own(waiting: int, seconds: float, range_bytes: int, expected: int) -> None:
    """seconds: of 100,000 records; so many are expected to take half a second that half as many more come. Of what is
    slow the ranges are equal: after a rest that was quick, a core was kept for a partition that had nothing more."""
    plans = Planner(replace(LIMITS, range_records=None, range_bytes=range_bytes))
    plans.offer([span(0, 1_000)], 0.0)
    (first,) = plan(plans, 0.0, jobs=0, cores=1)
    plans.told(first, seconds=seconds / 100)
    plans.succeeded(first, records=1_000, nbytes=10_000)
    plans.offer([span(1_000, 1_000 + waiting)], 1.0)
    (second,) = plan(plans, 2.0, jobs=0, cores=1)
    assert bounds((second,)) == [(0, 1_000, 1_000 + expected)]


UNBOUNDED = replace(LIMITS, range_records=None, range_bytes=64 << 20)
BACKLOG = [span(0, 500_000, partition) for partition in range(12)]


@pytest.mark.parametrize(
    ("seconds", "record_bytes", "begin", "expected"),
    [
        (0.06, 100, 8, 500_000),
        (0.125, 100, 8, 262_144),
        (0.5, 100, 1, 65_536),
        (9.0, 100, 1, 65_536),
        (0.06, 10_240, 8, 6_553),
        (9.0, 10_240, 8, 6_553),
    ],
)
def test_what_a_topics_first_ranges_tell_holds_for_its_other_partitions(
    seconds: float, record_bytes: int, begin: int, expected: int
) -> None:
    """Each partition's first range was a small one: a backlog of twelve partitions had 24 ranges for 16. That the first
    range was slow holds for no other. But of what may be slow no range is larger than it would be if nobody had told,
    and no more begin at once: with 100,000 records each, a small partition waited half as long again for a core."""
    plans = Planner(UNBOUNDED)
    plans.offer(BACKLOG, 0.0)
    first = plan(plans, 0.0, jobs=0, cores=2)
    assert bounds(first) == [(partition, 0, 65_536) for partition in range(4)]
    plans.told(first[0], seconds=seconds, records=65_536, nbytes=65_536 * record_bytes)
    others = bounds(plan(plans, 0.1, jobs=1, cores=2))
    assert others == [(partition, 0, expected) for partition in range(4, 4 + begin)]


def test_many_offsets_with_few_records_tell_nothing_of_a_topics_others() -> None:
    """A compacted log, or aborted transactions: a range of a million records was planned for each of the others."""
    plans = Planner(UNBOUNDED)
    plans.offer(BACKLOG, 0.0)
    first = plan(plans, 0.0, jobs=0, cores=2)
    plans.told(first[0], seconds=0.03, records=10, nbytes=200)
    assert bounds(plan(plans, 0.1, jobs=1, cores=2)) == [(4, 0, 65_536)]


def test_what_would_fill_a_first_range_does_not_linger_to_fill_a_larger_one() -> None:
    plans = Planner(replace(UNBOUNDED, linger=10.0))
    plans.offer(BACKLOG, 0.0)
    first = plan(plans, 0.0, jobs=0, cores=2)
    plans.told(first[0], seconds=0.05, records=65_536, nbytes=65_536 * 100)
    others = bounds(plan(plans, 0.1, jobs=1, cores=2))
    assert others == [(partition, 0, 500_000) for partition in range(4, 12)]


def test_what_was_told_of_a_topics_records_is_kept_when_its_partitions_are_lost() -> None:
    plans = Planner(UNBOUNDED)
    plans.offer(BACKLOG[:1], 0.0)
    (first,) = plan(plans, 0.0, jobs=0, cores=2)
    plans.told(first, seconds=0.06, records=65_536, nbytes=65_536 * 100)
    plans.reset(tp(0))
    plans.offer(BACKLOG[:1], 1.0)
    assert bounds(plan(plans, 1.0, jobs=0, cores=2)) == [(0, 0, 500_000)]


def test_what_a_partition_knows_of_itself_comes_first() -> None:
    plans = Planner(UNBOUNDED)
    plans.offer(BACKLOG[:2], 0.0)
    for each, seconds in zip(plan(plans, 0.0, jobs=0, cores=2), (0.125, 0.06), strict=True):
        plans.told(each, seconds=seconds, records=65_536, nbytes=65_536 * 100)
        plans.succeeded(each, records=65_536, nbytes=65_536 * 100)
    assert bounds(plan(plans, 0.1, jobs=0, cores=2)) == [(0, 65_536, 65_536 + 262_144), (1, 65_536, 500_000)]


def test_while_the_first_ranges_tell_nothing_others_begin_as_cores_come_free() -> None:
    """They failed, or had no records, which is not in the sink yet. What has waited longest is the next."""
    plans = Planner(replace(UNBOUNDED, backoff=9.0, backoff_max=9.0))
    plans.offer([span(0, 500_000, 7)], 0.0)
    plans.offer(BACKLOG[:7], 1.0)
    plans.offer([span(500_000, 500_001, 7)], 2.0)
    first = plan(plans, 2.0, jobs=0, cores=2)
    assert [each.partition for each in first] == [7, 0, 1, 2]
    for each in first[:2]:
        plans.told(each, seconds=0.2)
    plans.failed(first[0], 2.0)
    assert [each.partition for each in plan(plans, 3.0, jobs=1, cores=2)] == [3, 4]


def test_of_first_ranges_that_share_a_task_one_is_at_work() -> None:
    """While the others wait behind it, partitions with a backlog take the other core."""
    plans = Planner(UNBOUNDED)
    plans.offer([span(0, 20_000, partition) for partition in range(100, 140)], 0.0)
    shared, *others = plans.plan(0.0, jobs=0, cores=2)
    assert len(shared) == 5
    for each in chain.from_iterable(others):
        plans.told(each, seconds=0.02)
        plans.succeeded(each, records=0, nbytes=0)
    plans.offer(BACKLOG, 0.5)
    assert [each.partition for each in plan(plans, 0.5, jobs=1, cores=2)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("limits", "ranges"),
    [
        (UNBOUNDED, [replace(each, topic=f"t{each.partition}") for each in BACKLOG]),
        (UNBOUNDED, [replace(each, end=65_536) for each in BACKLOG]),
        (replace(UNBOUNDED, range_records=50_000), BACKLOG),
        (replace(UNBOUNDED, range_bytes=1 << 20), BACKLOG),
    ],
    ids=["other topics", "no more than a first range", "a bound of records", "too few to tell"],
)
def test_nothing_waits_for_what_would_make_its_range_no_larger(limits: Limits, ranges: list[OffsetRange]) -> None:
    plans = Planner(limits)
    plans.offer(ranges, 0.0)
    assert len(plan(plans, 0.0, jobs=0, cores=2)) == 12


def test_a_few_records_tell_nothing_of_a_topics_others() -> None:
    """Five large ones, say: a backlog of others was read in small ranges. Nor does one wait for them."""
    plans = Planner(UNBOUNDED)
    plans.offer([span(0, 5, partition) for partition in range(20, 28)], 0.0)
    first = plan(plans, 0.0, jobs=0, cores=4)
    plans.told(first[0], seconds=0.03, records=5, nbytes=5 * 10_240)
    plans.offer(BACKLOG[:2], 0.0)
    assert bounds(plan(plans, 0.0, jobs=1, cores=4)) == [(0, 0, 65_536), (1, 0, 65_536)]


def test_idle_partitions_with_offsets_share_a_job() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 9, 1)], 0.0)
    assert bounds(plan(plans, 0.0, jobs=0, cores=2)) == [(0, 0, 5), (1, 0, 9)]
    assert plans.in_flight == 2


def test_a_partition_has_one_range_in_flight() -> None:
    plans = planner()
    plans.offer([span(0, 5)], 0.0)
    plan(plans, 0.0, jobs=0, cores=2)
    plans.offer([span(5, 8)], 0.0)
    assert plan(plans, 0.0, jobs=1, cores=2) == ()


def test_a_slow_partition_is_alone_and_holds_up_no_other() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 5, 1)], 0.0)
    _slow, quick = plan(plans, 0.0, jobs=0, cores=2)
    plans.succeeded(quick, records=5, nbytes=50)
    plans.offer([span(5, 9, 0), span(5, 9, 1)], 1.0)
    assert bounds(plan(plans, 1.0, jobs=1, cores=2)) == [(1, 5, 9)]


def test_as_many_tasks_as_there_are_cores_wait_behind_those_that_run() -> None:
    plans = planner()
    for partition in range(4):
        plans.offer([span(0, 5, partition)], 0.0)
        assert bounds(plan(plans, 0.0, jobs=partition, cores=2)) == [(partition, 0, 5)]
    plans.offer([span(0, 5, 4)], 0.0)
    assert plan(plans, 0.0, jobs=0, cores=2) == ()
    plans.told(span(0, 5, 0))
    assert bounds(plan(plans, 0.0, jobs=0, cores=2)) == [(4, 0, 5)]


def test_nothing_waits_behind_tasks_that_take_long() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 5, 1)], 0.0)
    first, _ = plan(plans, 0.0, jobs=0, cores=2)
    plans.offer([span(0, 5, 2)], 5.0)
    assert plan(plans, 5.0, jobs=1, cores=2) == ()
    plans.told(first)
    assert bounds(plan(plans, 5.0, jobs=1, cores=2)) == [(2, 0, 5)]


def test_what_a_task_has_told_of_holds_no_core_while_the_sink_commits_it() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 5, 1)], 0.0)
    for each in plan(plans, 0.0, jobs=0, cores=2):
        plans.told(each)
    plans.offer([span(5, 9, 0), span(0, 5, 2)], 9.0)
    assert bounds(plan(plans, 9.0, jobs=1, cores=2)) == [(2, 0, 5)], "partition 0 still has a range in flight"


def test_many_small_ranges_share_tasks_within_a_second_and_a_number() -> None:
    plans = planner(task_ranges=8)
    plans.offer([span(0, 5, partition) for partition in range(1_000)], 0.0)
    tasks = plans.plan(0.0, jobs=0, cores=2)
    assert len(tasks) == 32
    assert {len(task) for task in tasks} == {8}
    assert [len(task) for task in planner_with(12).plan(0.0, jobs=0, cores=2)] == [1] * 12


@pytest.mark.parametrize(
    ("partitions", "cores", "tasks"), [(32, 2, 32), (33, 2, 8), (256, 2, 8), (257, 2, 9), (1_000, 2, 32), (80, 16, 64)]
)
def test_ranges_that_share_tasks_share_as_few_as_keep_the_cores_busy(partitions: int, cores: int, tasks: int) -> None:
    planned = planner_with(partitions).plan(0.0, jobs=0, cores=cores)
    assert (len(planned), sum(map(len, planned))) == (tasks, partitions)


def test_ranges_that_take_a_while_share_no_fewer_tasks_than_they_fill() -> None:
    plans = planner_with(40)
    for each in plan(plans, 0.0, jobs=0, cores=2):
        plans.told(each, seconds=0.3)
        plans.succeeded(each, records=5, nbytes=5)
    plans.offer([span(5, 10, partition) for partition in range(40)], 9.0)
    assert [len(task) for task in plans.plan(9.0, jobs=0, cores=2)] == [3] * 13


def planner_with(partitions: int) -> Planner:
    plans = planner()
    plans.offer([span(0, 5, partition) for partition in range(partitions)], 0.0)
    return plans


def test_those_that_took_long_share_with_nobody_and_leave_a_core_to_the_others() -> None:
    plans = planner(task_ranges=1_000)
    slow, quick = range(3), range(3, 200)
    plans.offer([span(0, 5, partition) for partition in (*slow, *quick)], 0.0)
    for each in plan(plans, 0.0, jobs=0, cores=3):
        plans.told(each, seconds=9.0 if each.partition in slow else 0.01)
        plans.succeeded(each, records=5, nbytes=5)
    plans.offer([span(5, 9, partition) for partition in (*slow, *quick)], 9.0)
    tasks = plans.plan(9.0, jobs=0, cores=3)
    assert [[each.partition for each in task] for task in tasks[:2]] == [[0], [1]]
    assert all(each.partition in quick for task in tasks[2:] for each in task)
    # Where all are slow, all cores are used.
    alone = planner()
    alone.offer([span(0, 5, partition) for partition in slow], 0.0)
    for each in plan(alone, 0.0, jobs=0, cores=2):
        alone.told(each, seconds=9.0)
        alone.succeeded(each, records=5, nbytes=5)
    alone.offer([span(5, 9, partition) for partition in slow], 9.0)
    assert len(alone.plan(9.0, jobs=0, cores=2)) == 3


@dataclass
class Spark:
    """Cores in virtual time: a job's tasks begin in order as cores come free, some time after it was submitted.

    failing: partitions of which each try fails.
    """

    plans: Planner
    cores: int
    seconds: dict[int, float]
    submit: float = 0.06
    per_task: float = 0.02
    failing: frozenset[int] = frozenset()
    now: float = 0.0
    free: list[float] = field(default_factory=list)
    ends: list[tuple[float, int, OffsetRange]] = field(default_factory=list)
    began: dict[int, float] = field(default_factory=dict)

    def turn(self) -> None:
        """The loop's: take what has ended, plan, let time pass."""
        self.free = self.free or [0.0] * self.cores
        while self.ends and self.ends[0][0] <= self.now:
            _, _, done = heapq.heappop(self.ends)
            self.plans.told(done, seconds=self.seconds.get(done.partition, 0.005))
            if done.partition in self.failing:
                assert self.plans.failed(done, self.now)
            else:
                self.plans.succeeded(done, records=1, nbytes=1)
        for task in self.plans.plan(self.now, jobs=0, cores=self.cores):
            at = max(heapq.heappop(self.free), self.now + self.submit) + self.per_task
            for each in task:
                self.began.setdefault(each.partition, at)
                at += self.seconds.get(each.partition, 0.005)
            for each in task:
                heapq.heappush(self.ends, (at, each.partition, each))
            heapq.heappush(self.free, at)
        self.now += 0.01


def test_a_thousand_partitions_that_trickle_are_served_within_five_seconds() -> None:
    spark = Spark(planner(), cores=2, seconds={})
    spark.plans.offer([span(0, 5, partition) for partition in range(1_000)], 0.0)
    while len(spark.began) < 1_000:
        spark.turn()
        assert spark.now < 5.0


def test_an_idle_partition_begins_within_half_a_second_whatever_long_jobs_do() -> None:
    """The demo's case: one partition takes 15 s on one of two cores, eleven others go on."""
    spark = Spark(planner(), cores=2, seconds={0: 15.0})
    spark.plans.offer([span(0, 1, 0)], 0.0)
    spark.turn()
    assert max(gaps(spark, 0)) < 0.5


def test_an_idle_partition_begins_within_half_a_second_whatever_slow_ones_fail() -> None:
    """Two of them, on two cores. That they take long is known from their first tries."""
    plans = planner(retries=1_000, backoff=0.1)
    spark = Spark(plans, cores=2, seconds={12: 15.0, 13: 15.0}, failing=frozenset((12, 13)))
    plans.offer([span(0, 1, partition) for partition in range(1, 14)], 0.0)
    while spark.now < 20.0:
        spark.turn()
    assert max(gaps(spark, 1)) < 0.5


def gaps(spark: Spark, first: int) -> list[float]:
    """How long partitions wait that have one record now and then. first: their offset."""
    found = []
    for turn in range(20):
        partition = 1 + turn % 11
        spark.began.pop(partition, None)
        at, start = spark.now, first + turn // 11
        spark.plans.offer([span(start, start + 1, partition)], at)
        while partition not in spark.began:
            spark.turn()
        found.append(spark.began[partition] - at)
        while spark.now < at + 0.3:
            spark.turn()
    return found


def test_only_so_many_jobs_run_at_a_time() -> None:
    plans = planner(jobs=1)
    plans.offer([span(0, 5)], 0.0)
    assert plan(plans, 0.0, jobs=1, cores=2) == ()


def test_where_ranges_are_to_be_alone_each_job_has_that_which_has_waited_longest() -> None:
    plans = planner(alone=True)
    plans.offer([span(0, 5, 1)], 0.0)
    plans.offer([span(0, 5, 0)], 1.0)
    assert bounds(plan(plans, 2.0, jobs=0, cores=2)) == [(1, 0, 5)]
    assert bounds(plan(plans, 2.0, jobs=1, cores=2)) == [(0, 0, 5)]
    assert plan(plans, 2.0, jobs=2, cores=2) == ()


def test_a_backlog_that_has_waited_longest_takes_turns_with_the_others() -> None:
    """It never has nothing that waits: by that alone it would be the first each time (law 3)."""
    plans = planner(alone=True)
    plans.offer([span(0, 300, 1)], 0.0)
    plans.offer([span(0, 5, 0)], 1.0)
    for now, expected in ((2.0, (1, 0, 100)), (3.0, (0, 0, 5)), (4.0, (1, 100, 200))):
        (done,) = plan(plans, now, jobs=0, cores=1)
        assert bounds((done,)) == [expected]
        plans.told(done, seconds=0.5)
        plans.succeeded(done, records=done.end - done.start, nbytes=1)


def test_offsets_gather_for_the_linger_unless_there_are_enough() -> None:
    plans = planner(linger=1.0)
    plans.offer([span(0, 5)], 10.0)
    plans.offer([span(5, 9)], 10.9)
    assert plan(plans, 10.9, jobs=0, cores=2) == ()
    assert bounds(plan(plans, 11.0, jobs=0, cores=2)) == [(0, 0, 9)]
    plans.offer([span(0, 100, 1)], 11.0)
    assert bounds(plan(plans, 11.0, jobs=1, cores=2)) == [(1, 0, 100)]


def test_offsets_of_a_quick_partition_gather_for_the_linger_too() -> None:
    plans = Planner(replace(LIMITS, linger=1.0, range_records=None))
    plans.offer([span(0, 5)], 0.0)
    (first,) = plan(plans, 1.0, jobs=0, cores=2)
    plans.told(first, seconds=0.001)
    plans.succeeded(first, records=5, nbytes=50)
    plans.offer([span(5, 9)], 3.0)
    assert plan(plans, 3.9, jobs=0, cores=2) == ()
    assert bounds(plan(plans, 4.0, jobs=0, cores=2)) == [(0, 5, 9)]


def test_ranges_that_have_a_job_each_wait_for_no_other_job() -> None:
    plans = planner(linger=1.0, alone=True)
    plans.offer([span(0, 5, partition) for partition in range(2)], 0.0)
    assert [bounds(plan(plans, 1.0, jobs=jobs, cores=4)) for jobs in range(2)] == [[(0, 0, 5)], [(1, 0, 5)]]


def test_a_slow_partition_that_must_wait_delays_no_quick_one() -> None:
    plans = planner(linger=1.0)
    plans.offer([span(0, 5, partition) for partition in range(3)], 0.0)
    for each, seconds in zip(plan(plans, 1.0, jobs=0, cores=3), (2.0, 2.0, 0.1), strict=True):
        plans.told(each, seconds=seconds)
        plans.succeeded(each, records=5, nbytes=5)
    plans.offer([span(5, 9)], 3.0)
    assert bounds(plan(plans, 4.0, jobs=0, cores=2)) == [(0, 5, 9)]
    plans.offer([span(5, 9, 1)], 5.0)
    assert plan(plans, 6.4, jobs=1, cores=2) == (), "one that takes long runs, and the other core is for others"
    plans.offer([span(5, 9, 2)], 6.5)
    assert bounds(plan(plans, 6.5, jobs=1, cores=2)) == [(2, 5, 9)]


def test_ranges_that_end_shortly_after_one_another_go_on_in_one_job() -> None:
    plans = planner(linger=1.0)
    ranges = [span(0, 5, partition) for partition in range(3)]
    plans.offer(ranges, 0.0)
    assert len(plan(plans, 1.0, jobs=0, cores=4)) == 3
    plans.offer([span(5, 9, partition) for partition in range(3)], 1.0)
    found = []
    for each, at in zip(ranges, (2.1, 2.3, 2.5), strict=True):
        plans.told(each)
        plans.succeeded(each, records=5, nbytes=5)
        found.append(bounds(plan(plans, at, jobs=1, cores=4)))
    assert found == [[(0, 5, 9)], [], []]
    plans.offer([span(0, 100, 3)], 2.6)
    assert bounds(plan(plans, 2.6, jobs=1, cores=4)) == [(1, 5, 9), (2, 5, 9), (3, 0, 100)], "one of them is full"


def test_a_range_is_bounded_in_records() -> None:
    plans = planner()
    plans.offer([span(0, 250)], 0.0)
    (first,) = plan(plans, 0.0, jobs=0, cores=2)
    assert (first.start, first.end, first.leader_epoch) == (0, 100, 7)
    plans.succeeded(first, records=100, nbytes=1)
    (second,) = plan(plans, 0.0, jobs=0, cores=2)
    plans.succeeded(second, records=100, nbytes=1)
    (third,) = plan(plans, 0.0, jobs=0, cores=2)
    assert (third.start, third.end, third.leader_epoch) == (200, 250, 7)


def test_a_range_is_bounded_in_bytes_by_what_records_were_seen_to_weigh() -> None:
    plans = planner(range_bytes=10 * 1024)
    plans.offer([span(0, 250)], 0.0)
    (first,) = plan(plans, 0.0, jobs=0, cores=2)
    assert first.end == 10
    plans.succeeded(first, records=10, nbytes=10 * 512)
    (second,) = plan(plans, 0.0, jobs=0, cores=2)
    assert (second.start, second.end) == (10, 30)


def test_a_failed_range_is_tried_again_as_it_was_later_and_alone() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 5, 1)], 0.0)
    bad, good = plan(plans, 0.0, jobs=0, cores=9)
    assert plans.failed(bad, 0.0)
    plans.succeeded(good, records=5, nbytes=1)
    plans.offer([span(5, 9, 0), span(5, 9, 1)], 0.0)
    assert bounds(plan(plans, 0.9, jobs=0, cores=9)) == [(1, 5, 9)]
    plans.offer([span(0, 9, 2)], 0.9)
    assert plan(plans, 1.0, jobs=0, cores=9) == (bad,)
    assert bounds(plan(plans, 1.0, jobs=1, cores=9)) == [(2, 0, 9)]


def test_retries_end_and_their_pauses_double_up_to_a_bound() -> None:
    plans = planner(retries=3)
    plans.offer([span(0, 5)], 0.0)
    now = 0.0
    for pause in (1.0, 2.0, 3.0):
        (running_job,) = plan(plans, now, jobs=0, cores=2)
        assert plans.failed(running_job, now)
        assert plan(plans, now + pause - 0.01, jobs=0, cores=2) == ()
        now += pause
    (running_job,) = plan(plans, now, jobs=0, cores=2)
    assert not plans.failed(running_job, now)


def failed_after(plans: Planner, *seconds: float) -> None:
    """Each partition's first range has failed, after so many seconds, and its next try is due; the last one is done."""
    plans.offer([span(0, 5, partition) for partition in range(len(seconds))], 0.0)
    for each in plan(plans, 0.0, jobs=0, cores=2):
        plans.told(each, seconds=seconds[each.partition])
        if each.partition < len(seconds) - 1:
            plans.failed(each, 0.0)
        else:
            plans.succeeded(each, records=5, nbytes=5)


def test_tries_of_what_takes_long_leave_a_core_to_the_others() -> None:
    """Two slow partitions that failed had both cores for as long as their tries took."""
    plans = planner(backoff=0.0)
    failed_after(plans, 5.0, 5.0, 0.01)
    assert bounds(plan(plans, 10.0, jobs=0, cores=2)) == [(0, 0, 5)]
    assert plan(plans, 10.0, jobs=1, cores=2) == ()
    plans.offer([span(5, 9, 2)], 11.0)
    assert bounds(plan(plans, 12.0, jobs=1, cores=2)) == [(2, 5, 9)]
    plans.told(span(0, 5), seconds=5.0)
    assert bounds(plan(plans, 15.0, jobs=2, cores=2)) == [(1, 0, 5)]


def test_tries_of_what_takes_long_have_all_cores_where_there_are_no_others() -> None:
    plans = planner(backoff=0.0)
    failed_after(plans, 5.0, 5.0, 5.0)
    assert [bounds(plan(plans, 10.0, jobs=0, cores=2)) for _ in range(2)] == [[(0, 0, 5)], [(1, 0, 5)]]


def test_a_try_takes_as_long_as_its_range_did_whatever_waits_behind_it() -> None:
    plans = planner(backoff=0.0)
    failed_after(plans, 5.0, 0.9, 0.01)
    plans.offer([span(5, 105, 1)], 10.0)
    assert [bounds(plan(plans, 10.0, jobs=0, cores=2)) for _ in range(2)] == [[(0, 0, 5)], [(1, 0, 5)]]


def test_a_success_makes_earlier_failures_forgotten() -> None:
    plans = planner(retries=1)
    plans.offer([span(0, 100), span(100, 300)], 0.0)
    for start in (0, 100):
        (running_job,) = plan(plans, 10.0 * start, jobs=0, cores=2)
        assert plans.failed(running_job, 10.0 * start)
        (again,) = plan(plans, 10.0 * start + 1.0, jobs=0, cores=2)
        assert again.start == start
        plans.succeeded(again, records=100, nbytes=1)


def test_blocked_partitions_get_no_job_and_go_on_when_they_are_not() -> None:
    plans = planner()
    plans.offer([span(0, 5, 0), span(0, 5, 1)], 0.0)
    assert bounds(plan(plans, 0.0, jobs=0, cores=9, blocked={tp(0)})) == [(1, 0, 5)]
    assert bounds(plan(plans, 0.0, jobs=1, cores=9)) == [(0, 0, 5)]


def test_what_is_withdrawn_is_planned_anew_without_a_gap() -> None:
    plans = planner()
    plans.offer([span(0, 5)], 0.0)
    (running_job,) = plan(plans, 0.0, jobs=0, cores=2)
    plans.failed(running_job, 0.0)
    plans.offer([span(5, 9)], 0.0)
    assert plans.is_waiting_to_retry(tp(0))
    plans.withdraw(tp(0))
    assert not plans.is_waiting_to_retry(tp(0))
    assert bounds(plan(plans, 0.0, jobs=0, cores=2)) == [(0, 0, 9)]
    plans.withdraw(tp(0))
    assert plans.in_flight == 0
    assert bounds(plan(plans, 0.0, jobs=0, cores=2)) == [(0, 0, 9)]


def test_what_is_not_known_is_nothing() -> None:
    plans = planner()
    plans.withdraw(tp(0))
    plans.told(span(0, 5))
    plans.offer([span(0, 5)], 0.0)
    plans.withdraw(tp(0))
    assert plans.behind(tp(0)) == 5
    assert bounds(plan(plans, 0.0, jobs=0, cores=2)) == [(0, 0, 5)]


def test_what_is_withdrawn_after_failures_has_all_its_tries_again() -> None:
    """Its next try may be in a job with others: the task was told that it was not the last one, and the pipeline then
    stopped for a record that should have become a dead letter.
    """
    plans = planner(retries=1, backoff=0.0)
    plans.offer([span(0, 5)], 0.0)
    (wanted,) = plan(plans, 0.0, jobs=0, cores=2)
    assert plans.failed(wanted, 0.0)
    plans.withdraw(tp(0))
    plans.offer([span(0, 5, 1)], 0.0)
    assert bounds(plan(plans, 0.0, jobs=0, cores=2)) == [(0, 0, 5), (1, 0, 5)]
    assert [plans.is_last_try(tp(each)) for each in (0, 1)] == [False, False]
    assert plans.failed(wanted, 0.0), "it is not the last try"


def test_a_reset_partition_is_forgotten_with_what_is_in_flight() -> None:
    plans = planner()
    plans.offer([span(0, 5)], 0.0)
    (running_job,) = plan(plans, 0.0, jobs=0, cores=2)
    plans.reset(tp(0))
    assert plans.in_flight == 0
    plans.offer([span(3, 9, seek_number=1)], 0.0)
    plans.succeeded(running_job, records=1, nbytes=1)
    assert plans.failed(running_job, 0.0)
    assert bounds(plan(plans, 0.0, jobs=0, cores=2)) == [(0, 3, 9)]
    assert plans.in_flight == 1


@pytest.mark.parametrize("after", [span(5, 9, seek_number=1), span(5, 9, epoch=2), span(6, 9)])
def test_ranges_of_two_seeks_or_epochs_or_with_a_gap_are_never_joined(after: OffsetRange) -> None:
    """A gap is one that the log has: what is in a range is read and counted."""
    plans = planner()
    plans.offer([span(0, 5), after], 0.0)
    assert bounds(plan(plans, 0.0, jobs=0, cores=2)) == [(0, 0, 5)]


def test_a_range_holds_as_many_offsets_as_it_may_and_not_one_more() -> None:
    plans = planner(range_records=5)
    plans.offer([span(0, 5, 0), span(0, 6, 1)], 0.0)
    assert bounds(plan(plans, 0.0, jobs=0, cores=2)) == [(0, 0, 5), (1, 0, 5)]


def test_a_result_of_another_range_ends_nothing() -> None:
    """Of a job that was given up while the partition went on, from the sink's position, say."""
    plans = planner()
    plans.offer([span(0, 5)], 0.0)
    plan(plans, 0.0, jobs=0, cores=2)
    plans.succeeded(span(0, 3), records=3, nbytes=3)
    assert plans.failed(span(0, 3), 0.0)
    assert (plans.in_flight, plans.is_waiting_to_retry(tp(0))) == (1, False)


def test_a_range_without_records_tells_nothing_of_what_records_weigh() -> None:
    """Aborted transactions and markers only: were it taken for a weight of nothing, the next range had no bound."""
    plans = planner(range_records=10_000, range_bytes=10 << 10)
    plans.offer([span(0, 10_000)], 0.0)
    (first,) = plan(plans, 0.0, jobs=0, cores=2)
    assert (first.start, first.end) == (0, 10), "a record is taken for 1 KiB before any was seen"
    plans.succeeded(first, records=0, nbytes=0)
    assert bounds(plan(plans, 0.0, jobs=0, cores=2)) == [(0, 10, 20)]


def test_a_reset_partitions_task_holds_no_core() -> None:
    plans = planner(jobs=9)
    for number in range(2):
        plans.offer([span(0, 5, number)], 0.0)
        assert plan(plans, 0.0, jobs=number, cores=1)
    plans.offer([span(0, 5, 2)], 0.0)
    assert not plan(plans, 0.0, jobs=2, cores=1), "one runs, and one waits for the core"
    plans.reset(tp(0))
    assert bounds(plan(plans, 0.0, jobs=1, cores=1)) == [(2, 0, 5)]


def test_the_delay_is_that_of_the_ranges_first_offset() -> None:
    plans = planner()
    plans.offer([span(0, 5)], 0.0)
    plans.offer([span(5, 9)], 2.0)
    assert plans.delay(span(0, 9), 3.0) == 3.0
    assert plans.delay(span(5, 9), 3.0) == 1.0, "what ends where the range begins is not of it"
    assert plans.delay(span(9, 12), 3.0) == 0.0


@pytest.mark.parametrize("leader_epochs", [1, 3])
def test_what_is_known_of_a_partition_that_is_behind_takes_no_more_with_each_poll(leader_epochs: int) -> None:
    """Each poll's offsets stayed as they came, and when: 9 MB an hour and partition."""
    plans = planner()
    sizes: list[int] = []
    for number in range(36_000):
        plans.offer([span(number, number + 1, leader_epoch=number * leader_epochs // 36_000)], number / 10)
        if number == 0:
            plan(plans, 0.0, jobs=0, cores=1)
        if number in (1_000, 35_999):
            sizes.append(len(pickle.dumps(plans)))
            (lane,) = plans._lanes.values()
            assert len(lane.pending) <= leader_epochs
            assert len(lane.known) <= 500
    assert sizes[1] < 3 * sizes[0]
    assert plans.behind(tp(0)) == 35_999


def test_the_delay_of_what_has_waited_long_is_nearly_that_of_its_first_offset() -> None:
    """Never too short, and at most by a thirtieth of the wait too long."""
    plans = planner()
    for number in range(36_000):
        plans.offer([span(number, number + 1)], number / 10)
    for start in (0, 1, 17, 5_000, 20_000, 35_990):
        waited = 3_600.0 - start / 10
        assert waited <= plans.delay(span(start, start + 1), 3_600.0) <= waited + start / 10 / 30


def test_a_night_without_records_is_no_delay_of_the_next_ones() -> None:
    """What was done long ago set how nearly two offers count as one: 302 seconds were told where 4 were true."""
    plans = planner(range_records=10)
    plans.offer([span(0, 10)], 0.0)
    plan(plans, 0.0, jobs=0, cores=1)
    plans.succeeded(span(0, 10), records=10, nbytes=10)
    morning = 12 * 3_600.0
    plans.offer([span(10, 20)], morning)
    plan(plans, morning, jobs=0, cores=1)
    for number in range(20, 320):
        plans.offer([span(number, number + 1)], morning + number - 19)
    assert plans.delay(span(316, 317), morning + 302.0) < 302.0 - 297.0 + 5.0


def test_offers_of_two_leaders_stay_apart_so_that_a_range_has_its_own_ones() -> None:
    plans = planner(range_records=6)
    plans.offer([span(0, 4, leader_epoch=3)], 0.0)
    plans.offer([span(4, 6, leader_epoch=3)], 0.0)
    plans.offer([span(6, 9, leader_epoch=5)], 0.0)
    first = plan(plans, 0.0, jobs=0, cores=1)
    assert first == (span(0, 6, leader_epoch=3),)


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
            for each in plan(plans, now, jobs=0, cores=3):
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


failures = st.lists(
    st.tuples(st.sampled_from(["offer", "plan", "plan", "succeed", "fail", "withdraw"]), st.integers(0, 1), st.just(3)),
    min_size=20,
    max_size=60,
)


@given(failures)
def test_what_fails_for_good_was_in_a_job_that_knew_its_last_try(script: list[tuple[str, int, int]]) -> None:
    """A job is told it once, for all its ranges."""
    plans = planner(retries=1, backoff=0.0)
    offered = [0, 0, 0]
    running_jobs: dict[int, tuple[OffsetRange, bool]] = {}
    for now, (verb, partition, count) in enumerate(script):
        if verb == "offer":
            plans.offer([span(offered[partition], offered[partition] + count, partition)], now)
            offered[partition] += count
        elif verb == "plan":
            job = plan(plans, now, jobs=0, cores=3)
            told = {plans.is_last_try(each.topic_partition) for each in job}
            assert len(told) <= 1, "one job, two results"
            running_jobs.update({each.partition: (each, told == {True}) for each in job})
        elif verb == "withdraw":
            plans.withdraw(tp(partition))
            running_jobs.pop(partition, None)
        elif partition in running_jobs:
            running_job, is_last = running_jobs.pop(partition)
            if verb == "succeed":
                plans.succeeded(running_job, records=1, nbytes=1)
            else:
                assert plans.failed(running_job, now) is not is_last
                if is_last:
                    return  # the pipeline stops


def _tasks(plans: Planner, cores: int, *sizes: int) -> list[int]:
    """How many tasks each partition's range has, in a job of ranges of these sizes."""
    plans.offer([span(0, size, number) for number, size in enumerate(sizes)], 0.0)
    return [plans.parts(each.topic_partition) for each in plan(plans, 0.0, jobs=0, cores=cores)]


@pytest.mark.parametrize(
    ("cores", "sizes", "parts"),
    [
        (2, [100_000], [2]),
        (8, [100_000], [8]),
        (8, [30_000], [3]),
        (8, [19_999], [1]),
        (2, [100_000, 100_000], [1, 1]),
        (8, [100_000, 100_000], [4, 4]),
        (8, [100_000, 5], [6, 1]),
        (2, [100_000, 5], [1, 1]),
    ],
)
def test_a_large_range_takes_the_cores_that_would_be_idle(cores: int, sizes: list[int], parts: list[int]) -> None:
    """Law 7. And one stays for the other partitions, where there are any."""
    assert _tasks(planner(range_records=100_000, split=True), cores, *sizes) == parts
    assert _tasks(planner(range_records=100_000), cores, *sizes) == [1] * len(sizes)


def test_parts_hold_cores_until_all_have_told() -> None:
    plans = planner(range_records=100_000, split=True)
    plans.offer([span(0, 200_000)], 0.0)
    (first,) = plan(plans, 0.0, jobs=0, cores=2)
    for partition in (1, 2, 3):
        plans.offer([span(0, 5, partition)], 0.0)
        assert len(plan(plans, 0.0, jobs=1, cores=2)) == (1 if partition < 3 else 0), "two run, and two may wait"
    plans.told(first, seconds=1.0)
    assert len(plan(plans, 0.0, jobs=1, cores=2)) == 1


def test_a_range_that_is_tried_again_is_whole() -> None:
    plans = planner(range_records=100_000, split=True)
    plans.offer([span(0, 100_000)], 0.0)
    (first,) = plan(plans, 0.0, jobs=0, cores=2)
    plans.failed(first, 0.0)
    assert plan(plans, 9.0, jobs=0, cores=2) == (first,)
    assert plans.parts(first.topic_partition) == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40_000)), min_size=1, max_size=8), st.integers(1, 8))
@example([(0, 5), (1, 40_000)], 8)
def test_each_part_of_a_range_has_enough_to_do(offers: list[tuple[int, int]], cores: int) -> None:
    """By the range's own size: more offsets may wait behind a seek. One with more parts than offsets never told."""
    plans, end = planner(range_records=60_000, split=True), 0
    for seek_number, count in offers:
        plans.offer([span(end, end + count, seek_number=seek_number)], 0.0)
        end += count
    (first,) = plan(plans, 0.0, jobs=0, cores=cores)
    parts = plans.parts(tp(0))
    assert parts == 1 or (first.end - first.start) // parts >= 10_000
