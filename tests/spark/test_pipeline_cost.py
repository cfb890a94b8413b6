"""The loop's work grows with what happened since its last step, and not with what it owns or what shares a job."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from run_help import TOPIC, Script, Stage, tp, until

from instride.records import OffsetRange
from instride.spark import _targets
from instride.spark._events import RangeCommitted, RangeFailed
from instride.spark._jobs import JobRunner
from instride.spark._planning import Limits
from instride.spark._running_jobs import Job
from step_counter import calls, steps

pytestmark = pytest.mark.rule("20")


@pytest.fixture(autouse=True)
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the targets costs by their number, but there is one every five seconds only."""
    monkeypatch.setattr(_targets, "_PAUSE", 1e9)


Situation = Callable[[Stage], Script]


def idle(stage: Stage) -> Script:
    yield


def some_have_offsets(stage: Stage) -> Script:
    """The step that is counted plans them, and starts their job."""
    for each in range(3):
        stage.consumer.offer(each, 5)
    yield from ()


def one_is_worked_on(stage: Stage) -> Script:
    stage.consumer.offer(0, 5)
    yield from until(lambda: stage.runner.started)


def one_is_delayed(stage: Stage) -> Script:
    yield from one_is_worked_on(stage)
    stage.consumer.ask(0)
    yield from until(lambda: stage.consumer.delays)


def one_waits_for_a_slow_sink(stage: Stage) -> Script:
    stage.sink.gate.clear()
    yield from one_is_worked_on(stage)
    stage.runner.finish(0)
    yield from until(stage.sink.reached_gate.is_set)
    yield


def one_failed(stage: Stage) -> Script:
    """It waits for its next try."""
    yield from one_is_worked_on(stage)
    stage.runner.fail(0, 0)
    yield from until(lambda: stage.of(RangeFailed))


def one_is_split(stage: Stage) -> Script:
    stage.sink.gate.clear()
    stage.consumer.offer(0, 50_000)
    yield from until(lambda: stage.runner.started)
    stage.runner.part_succeeds(0, 0)
    yield


def served(stage: Stage, owned: range) -> Script:
    """Each has had a range, which is in the sink: so all that keeps count of partitions knows them."""
    for each in owned:
        stage.consumer.offer(each, 1)
    finished = 0
    while len(stage.of(RangeCommitted)) < len(owned) or stage.loop._jobs:
        for number in range(finished, len(stage.runner.started)):
            stage.runner.finish(number)
            finished = number + 1
        yield
    stage.runner.started.clear()
    stage.runner.tasks.clear()


def turn(stage: Stage) -> None:
    stage.loop._have_all()
    stage.loop._step()


def step_of(many: int, situation: Situation, *, split: bool, targets: int | None) -> int:
    """Instructions of a step that begins in the situation, with so many idle partitions beside."""
    limits = Limits(linger=0.0, retries=2, backoff=30.0, split=split)
    owned = range(many + 10)
    stage = Stage(
        positions=dict.fromkeys(owned, 5),
        targets=None if targets is None else dict.fromkeys(owned, targets),
        limits=limits,
        stop_timeout=0.0,
    )
    counted: list[int] = []

    def script() -> Script:
        yield from stage.assigned(*owned)
        yield from served(stage, owned)
        yield from situation(stage)
        counted.append(steps(lambda: turn(stage)))
        stage.sink.gate.set()
        stage.runner.obeys = True

    stage.play(script())
    return counted[0]


@pytest.mark.parametrize("targets", [None, 1 << 40], ids=["endless", "with targets"])
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize(
    "situation",
    [idle, some_have_offsets, one_is_worked_on, one_is_delayed, one_waits_for_a_slow_sink, one_failed, one_is_split],
)
def test_idle_partitions_cost_a_step_nothing(situation: Situation, split: bool, targets: int | None) -> None:
    few, many = (step_of(each, situation, split=split, targets=targets) for each in (30, 300))
    assert few == many


@pytest.mark.parametrize("reached", [5, 6], ids=["all", "none"])
def test_whether_all_targets_are_reached_is_known_without_a_walk(reached: int) -> None:
    def counted(many: int) -> int:
        stage = Stage(positions=dict.fromkeys(range(many), 5), targets=dict.fromkeys(range(many), reached))
        found: list[int] = []

        def script() -> Script:
            yield from stage.assigned(*range(many))
            assert stage.loop._have_all() is (reached == 5)
            found.append(calls(stage.loop._have_all) + steps(stage.loop._have_all))

        stage.play(script())
        return found[0]

    assert counted(100) == counted(10_000)


def finished_one_by_one(many: int) -> Callable[[], object]:
    """As a job's ranges are told of and settled, the job's end first: a slow sink."""
    job = Job(name="j")
    ranges = [
        job.add(OffsetRange(topic=TOPIC, partition=each, start=0, end=1, epoch=1, seek_number=0), 1)
        for each in range(many)
    ]
    job.ended = True

    def settle() -> None:
        for each in ranges:
            job.reported(each)
            job.settled(each)
            assert job.finished is (each is ranges[-1])

    return settle


def test_a_jobs_ranges_cost_each_the_same_however_many_share_it() -> None:
    few, many = (steps(finished_one_by_one(each)) for each in (100, 1_000))
    assert few * 10 == many


def test_a_report_looks_at_no_other_range_of_its_job() -> None:
    def reported(many: int) -> int:
        limits = Limits(linger=0.0, retries=2, backoff=0.0)
        stage = Stage(limits=limits)
        counted: list[int] = []

        def script() -> Script:
            yield from stage.assigned(*range(many))
            for each in range(many):
                stage.consumer.offer(each, 5)
            yield from stage.until_started(1)
            job = stage.loop._jobs[stage.runner.started[0][0]]
            assert len(job.running_jobs) == many
            for each in range(many - 1):
                job.reported(job.running_jobs[tp(each)])
            counted.append(steps(lambda: stage.loop._cancel_if_lost(job, 0.0)))
            stage.consumer.lose(*range(many))
            yield from until(lambda: not stage.loop._running_jobs)

        stage.play(script())
        return counted[0]

    assert reported(20) == reported(400)


class PlayedContext:
    """Spark's, as far as a runner needs it before its first job. asked: how often for the cores."""

    asked = 0

    def accumulator(self, value: object, param: object) -> Any:
        return None

    @property
    def defaultParallelism(self) -> int:
        self.asked += 1
        return self.asked


class ColdContext(PlayedContext):
    """Each job takes as long as it is said here; the last one's time is that of all further ones."""

    def __init__(self, *seconds: float) -> None:
        self.now = 7.0
        self.jobs = 0
        self._seconds = seconds

    def parallelize(self, tasks: object, slices: int) -> ColdContext:
        return self

    def mapPartitions(self, function: object) -> ColdContext:
        return self

    def collect(self) -> list[str]:
        self.now += self._seconds[min(self.jobs, len(self._seconds) - 1)]
        self.jobs += 1
        return []


@pytest.mark.parametrize(
    ("seconds", "jobs"),
    [
        ((3.0, 0.2, 0.1, 0.08), 7),  # the first one starts the workers
        ((0.1, 0.03, 0.04, 0.03), 5),  # a session that has run jobs already
        ((3.0, 0.9, 0.7, 0.5, 0.3), 4),  # for two seconds
    ],
)
def test_jobs_run_before_the_group_is_joined_until_they_get_no_quicker(
    seconds: tuple[float, ...], jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ColdContext(*seconds)
    monkeypatch.setattr("instride.spark._jobs.time.monotonic", lambda: context.now)
    JobRunner(cast(Any, context), lambda _: None).prepare(cast(Any, SimpleNamespace(prepare=None)))
    assert context.jobs == jobs


def test_the_jvm_is_asked_for_the_cores_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    context, now = PlayedContext(), [7.0]
    monkeypatch.setattr("instride.spark._jobs.time.monotonic", lambda: now[0])
    runner = JobRunner(cast(Any, context), lambda _: None)
    assert [runner.cores for _ in range(100)] == [1] * 100
    now[0] += 1.0
    assert [runner.cores for _ in range(100)] == [2] * 100
    assert context.asked == 2
