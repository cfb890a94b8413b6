"""The pipeline's loop where something comes late, twice, from an older assignment, or at the very end."""

from __future__ import annotations

import itertools
import queue
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import FrameType
from typing import Any, cast

import pytest
import run_help
from run_help import PATIENCE, FakeConsumer, PanicError, Script, Stage, tp, turns, until

import instride.spark._pipeline_loop
from contained import contained
from instride.commits import CommitSnapshot
from instride.errors import (
    KafkaError,
    KafkaTimeoutError,
    NetworkThreadDiedError,
    NoOffsetForPartitionError,
    RangeFailedError,
    SinkError,
    SinkWriteError,
    TopicAuthorizationFailedError,
    WakeupError,
    WrongTopicError,
)
from instride.records import TopicPartition
from instride.spark._daemon_pool import DaemonPool
from instride.spark._events import JobFinished, PipelineEvent, RangeCommitted, RangeDropped, RangeFailed
from instride.spark._membership import OwnershipObserver
from instride.spark._pipeline_loop import Message, PipelineLoop, inbox_dispatcher
from instride.spark._planning import Limits
from instride.spark._report import JobEnded, RangeReport, Reported
from instride.spark._starting import Start, Started
from instride.spark.sink import WrittenRange
from instride.telemetry import OwnershipChange, OwnershipChanged, RebalanceStarted


def then(*scripts: Script) -> Callable[[], bool]:
    """For `run`: the first script is played before the stop, the other one from then on."""
    before, after = scripts

    def stopping() -> bool:
        if next(before, "over") is None:
            return False
        next(after, None)
        return True

    return stopping


# --- polls and failures ------------------------------------------------------------------------------------


def test_a_wakeup_is_no_failure() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.errors = [WakeupError("woken")]
        yield from turns(2)
        stage.runner.finish(0)
        yield from until(lambda: stage.consumer.committed)

    stage.play(script())
    assert stage.consumer.committed == {tp(0): 5}


def test_a_dead_network_thread_ends_the_run_at_once() -> None:
    stage = Stage(stop_timeout=1e6)
    stage.runner.obeys = True

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.errors = [NetworkThreadDiedError("a bug")]
        yield from until(lambda: False)

    with pytest.raises(NetworkThreadDiedError):
        stage.play(script())
    assert stage.runner.cancelled == [stage.runner.started[0][0]]


def test_of_two_failures_the_first_is_raised() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.errors = [TopicAuthorizationFailedError("first"), TopicAuthorizationFailedError("second")]
        yield from turns(2)
        stage.runner.finish(0)
        yield from until(lambda: False)

    with pytest.raises(TopicAuthorizationFailedError, match="first"):
        stage.play(script())


def test_a_panic_of_the_sink_is_a_failure_of_the_range_for_good() -> None:
    """Nobody heard of it: the range was under way for ever."""
    stage = Stage()
    stage.sink.errors = [PanicError("index out of bounds")]

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.finish(0)
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError, match="PanicError: index out of bounds"):
        stage.play(script())
    assert len(stage.runner.started) == 1


def test_a_panic_of_the_sink_about_a_failed_range_ends_the_run() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.position_errors = [PanicError("index out of bounds")]
        stage.runner.fail(0, 0)
        stage.runner.end(0)
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError, match="PanicError: index out of bounds"):
        stage.play(script())


def test_a_sink_that_is_away_hides_no_error_of_the_function() -> None:
    """Its own error was all that anybody heard of: the last one of all tries."""
    stage = Stage(retries=0)

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.position_errors = [SinkWriteError("away")]
        stage.runner.fail(0, 0)
        stage.runner.end(0)
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError, match="ValueError: no flight"):
        stage.play(script())
    assert [each.reason for each in stage.of(RangeFailed)] == ["ValueError: no flight"]


def test_offsets_that_another_may_have_read_are_tried_again_while_the_sink_is_away() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.position_errors = [SinkWriteError("away")]
        stage.runner.fail(0, 0, fatal=True, kind="OffsetsGoneError")
        stage.runner.end(0)
        yield from stage.until_started(2)
        stage.sink.reached[tp(0)] = 8
        stage.runner.fail(1, 0, fatal=True, kind="OffsetsGoneError")
        stage.runner.end(1)
        yield from until(lambda: stage.of(RangeDropped))

    stage.play(script())
    assert stage.consumer.position[tp(0)] == 8


def test_a_fatal_error_of_a_sink_that_is_asked_is_the_reason() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.position_errors = [WrongTopicError("it was made again")]
        stage.runner.fail(0, 0)
        stage.runner.end(0)
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError, match="WrongTopicError: it was made again"):
        stage.play(script())


def test_what_fails_while_the_run_stops_is_not_said_to_be_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    def after() -> Script:
        stage.runner.fail(0, 0)
        stage.runner.end(0)
        yield

    stage.loop.run(then(stage.working(0), after()))
    assert [each.again for each in stage.of(RangeFailed)] == [False]
    assert len(stage.runner.started) == 1
    assert "t-0 [0, 5) failed, and the next start tries it again" in caplog.text


def test_a_panic_of_the_sink_where_a_partition_begins_ends_the_run() -> None:
    stage = Stage()
    stage.sink.start_errors = [PanicError("index out of bounds")]
    with pytest.raises(SinkError, match="t-0: PanicError: index out of bounds") as raised:
        stage.play(stage.assigned(0))
    assert isinstance(raised.value.__cause__, PanicError)


def test_what_a_task_tells_is_taken_at_once_and_all_of_it() -> None:
    consumer, inbox = FakeConsumer(), queue.SimpleQueue[Message]()
    inbox_dispatcher(inbox, cast(Any, consumer))(JobEnded(job="j"))
    assert consumer._woken.is_set(), "it wakes the poll"
    stage = Stage()

    def script() -> Script:
        yield from stage.assigned(*range(6))
        for number in range(6):
            stage.consumer.offer(number, 5)
        yield from stage.until_started(1)
        job = stage.loop._jobs[stage.runner.started[0][0]]
        stage.runner.finish(0)
        yield
        assert job.ended

    stage.play(script())


def test_a_report_of_another_run_or_job_is_not_taken_for_ours() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        (wanted,) = stage.runner.started[0][1]
        written = WrittenRange(range=wanted, files=())
        stage.runner._tell(Reported(report=RangeReport(job="another", range=wanted, written=written)))
        yield from turns(3)
        assert not next(iter(stage.loop._jobs.values())).running_jobs[tp(0)].reported
        stage.runner.finish(0)

    stage.play(script())


def test_cores_are_free_once_tasks_have_told_though_the_sink_is_slow() -> None:
    stage = Stage()
    stage.sink.gate.clear()

    def script() -> Script:
        yield from stage.assigned(*range(6))
        for number in range(6):
            stage.consumer.offer(number, 5)
            yield from stage.until_started(number + 1)
            stage.runner.succeed(number)
        stage.sink.gate.set()
        for number in range(6):
            stage.runner.end(number)
        yield from until(lambda: len(stage.consumer.committed) == 6)

    stage.play(script())


def test_a_job_that_spark_has_ended_keeps_no_place_while_a_commit_hangs() -> None:
    """Eight commits that hung stopped the whole pipeline, that of partitions with no job, too."""
    stage = Stage(limits=Limits(range_records=1_000, jobs=1, linger=0.0, retries=2, backoff=0.0))
    stage.sink.gate.clear()

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 5)
        yield from stage.until_started(1)
        stage.runner.finish(0)
        yield from until(stage.sink.reached_gate.is_set)
        stage.consumer.offer(1, 5)
        yield from stage.until_started(2)
        stage.sink.gate.set()
        stage.runner.finish(1)
        yield from until(lambda: len(stage.consumer.committed) == 2)

    stage.play(script())


# --- commits to the group ------------------------------------------------------------------------------------


def test_commits_to_the_group_go_out_once_for_each_thing_that_they_say() -> None:
    stage = Stage()
    handed: list[tuple[dict[TopicPartition, int], Future[None]]] = []

    def commit_async(snapshot: Any) -> Future[None]:
        handed.append(({each: entry.offset for each, entry in snapshot.entries.items()}, Future()))
        return handed[-1][1]

    stage.consumer.commit_async = commit_async  # type: ignore[method-assign]

    def script() -> Script:
        yield from stage.assigned(0)
        for number in range(2):
            stage.consumer.offer(0, 5)
            yield from stage.until_started(number + 1)
            stage.runner.finish(number)
            yield from until(lambda number=number: len(handed) > number)  # type: ignore[misc]
            yield from turns(5)
            assert len(handed) == number + 1, "what is on its way is not sent again, and holds up nothing newer"
        handed[1][1].set_result(None)  # it has ended, and committed nothing
        yield from until(lambda: len(handed) == 3)

    stage.play(script())
    assert [each for each, _ in handed][:3] == [{tp(0): 5}, {tp(0): 10}, {tp(0): 10}]
    assert stage.consumer.committed == {tp(0): 10}, "the last commit awaits its response"


def test_what_is_on_its_way_is_not_sent_again_when_others_of_its_commit_are_settled() -> None:
    """It waits for a topic that is away."""
    stage = Stage()
    handed: list[CommitSnapshot] = []

    def commit_async(snapshot: CommitSnapshot) -> Future[None]:
        handed.append(snapshot)
        return Future()

    stage.consumer.commit_async = commit_async  # type: ignore[method-assign]

    def script() -> Script:
        yield from stage.assigned(0, 1)
        for number in range(2):
            stage.consumer.offer(number, 5)
            yield from stage.until_started(number + 1)
            stage.runner.finish(number)
        yield from until(lambda: handed and len(handed[-1]) == 2)
        commits = len(handed)
        handed[-1].settle(tp(1), handed[-1].entries[tp(1)], committed=True)
        yield from turns(5)
        assert len(handed) == commits

    stage.play(script())


@pytest.mark.parametrize("verb", ["commit", "close"])
@pytest.mark.parametrize("error", [WakeupError("woken"), KafkaTimeoutError("no coordinator")])
def test_the_end_of_a_run_outlives_an_error(verb: str, error: KafkaError) -> None:
    stage = Stage()
    stage.consumer.commit_async = lambda snapshot: Future()  # type: ignore[method-assign]
    real, errors = getattr(stage.consumer, verb), [error]

    def fails_once(*arguments: Any, **named: Any) -> None:
        if errors:
            raise errors.pop()
        real(*arguments, **named)

    setattr(stage.consumer, verb, fails_once)

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.finish(0)
        yield from until(lambda: not stage.loop._running_jobs)

    stage.play(script())
    again = isinstance(error, WakeupError)
    assert stage.consumer.committed == ({tp(0): 5} if again or verb == "close" else {})
    assert stage.consumer.closed is (again or verb == "commit")
    assert stage.runner.closed


def ended(pool: DaemonPool) -> None:
    """One that the loop has closed: its threads end."""
    for thread in pool._threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("leaves", [True, False])
def test_nothing_is_committed_to_the_sink_after_the_end(monkeypatch: pytest.MonkeyPatch, *, leaves: bool) -> None:
    def silent(**_: float) -> None:
        raise KafkaTimeoutError("no coordinator")

    stage = Stage(stop_timeout=0.0)
    if not leaves:
        monkeypatch.setattr(stage.consumer, "close", silent)
    stage.sink.gate.clear()
    stage.sink.errors = [SinkError("try again")]

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.finish(0)
        yield from until(stage.sink.reached_gate.is_set)

    stage.play(script())
    stage.sink.gate.set()
    ended(stage.loop._committer._pool)
    assert stage.sink.reached == {tp(0): 0}


def test_a_job_that_has_told_of_all_its_ranges_is_awaited_at_the_end() -> None:
    """It was cancelled, and nobody heard that it had finished: of nearly every run the last one."""
    stage = Stage(targets={0: 5})

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.succeed(0)
        yield from until(lambda: stage.consumer.committed)
        yield from turns(3)
        stage.runner.end(0)
        yield from until(lambda: False)

    stage.play(script())
    assert stage.runner.cancelled == []
    assert isinstance(stage.events[-1], JobFinished)


def test_a_failed_job_is_told_as_finished_before_its_failure_is_raised() -> None:
    stage = Stage(retries=0)

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.fail(0, 0)
        yield from until(lambda: stage.of(RangeFailed))
        yield from turns(3)
        stage.runner.end(0)
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError):
        stage.play(script())
    assert stage.runner.cancelled == []
    assert len(stage.of(JobFinished)) == 1


def test_what_a_stop_cancels_is_told_as_dropped_and_its_job_as_finished() -> None:
    stage = Stage(stop_timeout=0.0)
    stage.runner.obeys = True
    stage.play(stage.working(0))
    assert [type(each) for each in stage.events[-2:]] == [RangeDropped, JobFinished]
    assert len(stage.of(RangeDropped)) == 1, "the group takes it back afterwards"


def test_a_job_that_was_just_being_submitted_is_cancelled_again_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark did not know it yet: it ran to its end, for nobody."""
    monkeypatch.setattr(instride.spark._pipeline_loop, "_CANCEL_AGAIN_SECONDS", 0.05)
    stage, closed = Stage(stop_timeout=0.0), list[tuple[bool, bool]]()
    cancel = stage.runner.cancel

    def noted(job: str) -> None:
        closed.append((stage.consumer.closed, stage.runner.closed))
        cancel(job)

    stage.runner.cancel = noted  # type: ignore[method-assign]
    stage.play(stage.working(0))
    assert closed == [(False, False), (True, False)]


class Clock:
    """Each turn of the loop takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_stop_waits_for_its_time_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, clock, seen = Stage(stop_timeout=7.0), Clock(), []
    monkeypatch.setattr(instride.spark._pipeline_loop, "time", clock)
    stage.runner.obeys = True

    def before() -> Script:
        stage.consumer.assign(0)
        yield from until(lambda: tp(0) not in stage.consumer.paused)
        stage.consumer.offer(0, 5)
        yield from until(lambda: stage.runner.started)

    def after() -> Script:
        for turn in range(100):
            seen.append(turn)
            clock.now += 1.0
            yield
        pytest.fail("it goes on for ever")

    stage.loop.run(then(before(), after()))
    assert seen == list(range(8))
    assert stage.runner.cancelled == [stage.runner.started[0][0]]


def test_an_error_of_the_callback_at_the_very_end_leaves_nothing_open(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    close = stage.consumer.close

    def revokes(*, timeout: float) -> None:
        stage.consumer._tell(OwnershipChange.REVOKED, stage.consumer.owned)
        close(timeout=timeout)

    def raises(event: PipelineEvent) -> None:
        if stage.consumer.owned and getattr(event, "change", None) is OwnershipChange.REVOKED:
            raise LookupError("mine")

    stage.consumer.close = revokes  # type: ignore[method-assign]
    stage.on_event = raises
    stage.play(stage.assigned(0))
    assert stage.runner.closed
    assert "while the pipeline stopped: mine" in caplog.text


def test_what_the_callback_raises_in_the_last_turn_of_a_run_is_raised() -> None:
    """The run returned as one that was stopped, and only the log had the error."""
    stage = Stage(stop_timeout=0.0)

    def raises(event: PipelineEvent) -> None:
        if getattr(event, "change", None) is OwnershipChange.DELAYED:
            raise LookupError("mine")

    def script() -> Script:
        yield from stage.working(0)
        stage.on_event = raises
        stage.consumer.ask(0)
        yield from until(lambda: stage.consumer.delays)

    with pytest.raises(LookupError, match="mine"):
        stage.play(script())
    assert (stage.consumer.closed, stage.runner.closed) == (True, True)


@pytest.mark.parametrize("kind", [SystemExit, LookupError])
def test_a_callback_that_raises_again_and_again_leaves_nothing_open(kind: type[BaseException]) -> None:
    """The member stayed in the group, and the job with Spark: it raised once more as it was told what was dropped."""
    stage, raised = Stage(stop_timeout=0.0), list[PipelineEvent]()
    stage.runner.obeys = True

    def raises(event: PipelineEvent) -> None:
        raised.append(event)
        raise kind(f"mine {len(raised)}")

    def script() -> Script:
        yield from stage.working(0)
        stage.on_event = raises
        stage.consumer.lose(7)
        yield from until(lambda: False)

    with pytest.raises(kind, match="mine"):
        stage.play(script())
    assert [type(each) for each in raised] == [OwnershipChanged, RangeDropped, JobFinished]
    assert (stage.consumer.closed, stage.runner.closed) == (True, True)
    assert stage.runner.cancelled == [stage.runner.started[0][0]]


def test_a_second_interrupt_wherever_it_comes_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it came before the last commit, the member stayed in the group; or a range was told as dropped twice."""
    monkeypatch.setattr(instride.spark._pipeline_loop, "_CANCEL_AGAIN_SECONDS", 0.0)
    last = 0
    while _interrupted_twice(last):
        last += 1
    assert last > 5


def _interrupted_twice(at: int) -> bool:
    """At that line of what is done before the last commit. Whether there is such a line."""
    stage, lines = Stage(), itertools.count()
    stage.runner.obeys = True
    close = stage.consumer.close

    def revokes(*, timeout: float) -> None:
        assert stage.consumer._listener is not None
        stage.consumer._listener.on_partitions_revoked(sorted(stage.consumer.owned))
        close(timeout=timeout)

    stage.consumer.close = revokes  # type: ignore[method-assign]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        is_dropping = frame.f_code is PipelineLoop._drop_the_rest.__code__
        if event == "line" and is_dropping and next(lines) == at:
            raise KeyboardInterrupt("second")
        return trace if is_dropping else None

    def script() -> Script:
        yield from stage.working(0)
        raise KeyboardInterrupt("first")

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt) as raised:
            contained(lambda: stage.play(script()))
    finally:
        sys.settrace(before)
    assert (stage.consumer.closed, stage.runner.closed) == (True, True)
    assert [pool._is_closed for pool in (stage.loop._committer._pool, stage.loop._starts._pool)] == [True, True], at
    assert len(stage.of(RangeDropped)) <= 1, at
    return "second" in str(raised.value)


@pytest.mark.parametrize("kind", [KafkaTimeoutError, LookupError, SystemExit])
def test_an_error_of_the_callback_at_a_loss_leaves_no_loss_half_done(kind: type[BaseException]) -> None:
    """It comes within a poll, out of which an error of Kafka's is taken for the group's: the run went on, and committed
    what was lost.
    """
    stage, dropped, went_on = Stage(), list[int](), list[str]()
    stage.runner.obeys = True

    def raises(event: PipelineEvent) -> None:
        if isinstance(event, RangeDropped):
            dropped.append(event.range.partition)
            raise kind("mine")

    def script() -> Script:
        yield from stage.assigned(0, 1, 2)
        stage.consumer.offer(0, 5)
        stage.consumer.offer(1, 5)
        yield from stage.until_started(1)
        stage.consumer.offer(2, 5)
        yield from stage.until_started(2)
        stage.on_event = raises
        stage.consumer.lose(0, 1)
        stage.runner.finish(0)
        yield
        went_on.append("what on_event raises cancels what is under way")

    with pytest.raises(kind, match="mine"):
        stage.play(script())
    assert (went_on, dropped[:2]) == ([], [0, 1])
    ended(stage.loop._committer._pool)
    assert stage.sink.reached == {tp(0): 0, tp(1): 0, tp(2): 0}
    assert set(stage.runner.cancelled) == {job for job, _ in stage.runner.started}


# --- partitions that go and come again ----------------------------------------------------------------------


def test_a_partition_is_released_in_the_turn_of_its_commit() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.ask(0)
        yield from until(lambda: stage.consumer.delays)
        stage.runner.finish(0)
        yield from until(lambda: stage.consumer.committed)
        assert tp(0) not in stage.consumer.delayed

    stage.play(script())


def test_what_a_hand_over_stopped_is_done_when_the_hand_over_is_taken_back() -> None:
    limits = Limits(range_records=1_000, jobs=8, linger=0.0, retries=2, backoff=1e6, backoff_max=1e6)
    stage = Stage(limits=limits)

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.fail(0, 0)
        stage.runner.end(0)
        yield from until(lambda: stage.of(RangeFailed))
        stage.consumer.ask(0)
        yield
        stage.consumer.reassign(0)
        yield from stage.until_started(2)
        stage.runner.finish(1)
        yield from until(lambda: stage.consumer.committed == {tp(0): 5})

    stage.play(script())


@pytest.mark.parametrize(("pause", "again"), [(0.0, True), (1e6, False)])
def test_a_lost_job_is_cancelled_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch, pause: float, *, again: bool
) -> None:
    """Spark may not have known the job yet, the first time."""
    monkeypatch.setattr(instride.spark._pipeline_loop, "_CANCEL_AGAIN_SECONDS", pause)
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.lose(0)
        yield from turns(5)
        assert (len(stage.runner.cancelled) > 1) is again
        stage.runner.end(0, "cancelled")

    stage.play(script())


def test_a_conflict_of_an_older_assignment_moves_nothing() -> None:
    stage = Stage()
    stage.sink.gate.clear()

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.finish(0)
        yield from until(stage.sink.reached_gate.is_set)
        stage.consumer.lose(0)
        stage.sink.reached[tp(0)] = 8  # its owner meanwhile
        yield from stage.assigned(0)
        stage.consumer.offer(0, 2)
        yield from stage.until_started(2)
        stage.sink.gate.set()
        yield from until(lambda: [event for event in stage.of(RangeDropped) if event.position == 8])
        stage.runner.finish(1)
        yield from until(lambda: stage.consumer.committed == {tp(0): 10})

    stage.play(script())


def test_what_the_sink_took_of_a_lost_partition_is_told_and_moves_nothing() -> None:
    stage = Stage()
    stage.sink.gate.clear()

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.finish(0)
        yield from until(stage.sink.reached_gate.is_set)
        stage.consumer.lose(0)
        yield
        stage.sink.gate.set()
        yield from until(lambda: stage.of(RangeCommitted) or stage.of(RangeDropped))

    stage.play(script())
    assert [(each.range.end, each.delay) for each in stage.of(RangeCommitted)] == [(5, 0.0)]
    assert stage.sink.reached == {tp(0): 5}
    assert stage.consumer.committed == {}


def test_a_partition_whose_revoke_could_not_be_delayed_is_dropped_its_job_goes_on() -> None:
    """Others' work in the job may be ours still."""
    stage = Stage()
    stage.consumer.delay_revoke = lambda partitions, *, reason: False  # type: ignore[method-assign]

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.ask(0)
        yield from until(lambda: stage.of(RangeDropped))
        stage.runner.finish(0)
        yield from until(lambda: stage.of(JobFinished))

    stage.play(script())
    assert stage.runner.cancelled == []
    assert stage.sink.reached == {tp(0): 0}
    assert stage.consumer.committed == {}


def test_a_conflict_of_what_is_leaving_moves_nothing() -> None:
    """Between the end of an ownership and the callback that tells of it."""
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.reached[tp(0)] = 8
        stage.runner.finish(0)
        stage.consumer.owned.discard(tp(0))
        yield from until(lambda: stage.of(RangeDropped))

    stage.play(script())
    assert [each.position for each in stage.of(RangeDropped)] == [8]
    assert stage.consumer.position[tp(0)] == 5


def test_what_is_leaving_does_not_go_back_after_a_reset() -> None:
    """Between the end of an ownership and the callback that tells of it."""
    stage = Stage(positions={0: 10}, fail_on_data_loss=False)

    def script() -> Script:
        yield from stage.assigned(0)
        stage.consumer.reset(0, 15)
        stage.consumer.owned.discard(tp(0))
        yield from until(lambda: not stage.consumer.notices)

    stage.play(script())
    assert stage.consumer.position[tp(0)] == 15


def test_a_revoke_is_delayed_for_a_commit_without_a_response() -> None:
    stage = Stage()
    stage.consumer.commit_async = lambda snapshot: Future()  # type: ignore[method-assign]

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.finish(0)
        yield from until(lambda: stage.of(JobFinished))
        stage.consumer.ask(0)
        yield from until(lambda: stage.consumer.delays)

    stage.play(script())
    assert stage.consumer.reasons == {tp(0): "the commit of what its last job finished"}
    assert stage.consumer.committed == {tp(0): 5}, "the last commit awaits its response"


def test_many_small_ranges_share_tasks_and_each_is_committed() -> None:
    stage = Stage()
    partitions = range(40)

    def script() -> Script:
        yield from stage.assigned(*partitions)
        for each in partitions:
            stage.consumer.offer(each, 3)
        yield from stage.until_started(1)
        stage.runner.finish(0)
        yield from until(lambda: len(stage.consumer.committed) == len(partitions))

    stage.play(script())
    (tasks,) = stage.runner.tasks
    assert len(tasks) < len(partitions) == sum(map(len, tasks))


def test_a_stop_waits_for_a_partitions_new_job_though_its_old_one_ends() -> None:
    stage = Stage()

    def before() -> Script:
        yield from stage.working(0)
        stage.consumer.lose(0)
        yield
        yield from stage.assigned(0)
        stage.consumer.offer(0, 5)
        yield from stage.until_started(2)
        old = stage.loop._jobs[stage.runner.started[0][0]]
        stage.runner.finish(0)
        yield from until(lambda: old.finished)

    def after() -> Script:
        yield from turns(3)
        stage.runner.finish(1)

    stage.loop.run(then(before(), after()))
    first, second = (ranges[0] for _, ranges in stage.runner.started)
    assert stage.sink.reached == {tp(0): second.end}
    assert stage.consumer.committed == {tp(0): second.end}
    assert first.start == 0


def test_an_error_of_the_callback_is_raised_once() -> None:
    """The first one, of several."""
    errors = [LookupError("mine"), KeyError("after it")]

    def raises(event: PipelineEvent) -> None:
        raise errors.pop(0)

    observer = OwnershipObserver(raises)
    for _ in range(2):
        observer.on_telemetry(OwnershipChanged(at=0.0, change=OwnershipChange.LOST, partitions=(tp(0),)))
    with pytest.raises(LookupError, match="mine"):
        observer.check()
    observer.check()
    observer.on_telemetry(RebalanceStarted(at=0.0, generation=-1, reason="not ownership"))
    observer.check()


# --- where partitions begin ----------------------------------------------------------------------------------


def test_a_partition_is_paused_until_it_begins_and_sought_only_where_it_must_be() -> None:
    stage = Stage(positions={1: 7})
    paused: set[TopicPartition] = set()
    pause = stage.consumer.pause

    def noted(partitions: Iterable[TopicPartition]) -> None:
        paused.update(partitions)
        pause(partitions)

    stage.consumer.pause = noted  # type: ignore[method-assign]
    stage.play(stage.assigned(0, 1))
    assert paused == {tp(0), tp(1)}
    assert stage.consumer.seek_number == {tp(0): 0, tp(1): 1}


class Unknown:
    """Positions are not known, for so many questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, questions: float, error: KafkaError) -> None:
        self.left = questions
        known = run_help._Positions.__call__

        def position(positions: Any, partition: TopicPartition, *, timeout: float) -> int:
            self.left -= 1
            if self.left >= 0:
                raise error
            return known(positions, partition, timeout=timeout)

        monkeypatch.setattr(run_help._Positions, "__call__", position)


def test_a_partition_begins_once_its_position_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    Unknown(monkeypatch, 3, KafkaTimeoutError("not yet"))
    stage = Stage()
    stage.play(stage.assigned(0))
    assert stage.sink.begun == [(tp(0), 0, str(stage.consumer.topic_id))]


def test_a_partition_without_a_position_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    Unknown(monkeypatch, float("inf"), NoOffsetForPartitionError("none"))
    stage = Stage()
    with pytest.raises(NoOffsetForPartitionError):
        stage.play(stage.assigned(0))


def test_of_a_partition_that_has_gone_no_position_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    Unknown(monkeypatch, float("inf"), KafkaTimeoutError("not yet"))
    stage = Stage()

    def script() -> Script:
        stage.consumer.assign(0)
        yield from until(lambda: stage.loop._starts._unplaced)
        stage.consumer.lose(0)
        yield
        assert stage.loop._starts._unplaced == {}

    stage.play(script())


def test_a_start_of_an_older_assignment_moves_nothing() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.assigned(1)
        stage.consumer.topic_id = None
        stage.consumer.assign(0)
        yield
        starts = stage.loop._starts
        old = starts._starts[tp(0)]
        stage.consumer.lose(0)
        stage.consumer.assign(0)
        yield
        starts.take(Started(start=old, position=7))
        assert tp(0) in stage.consumer.paused
        assert stage.consumer.position[tp(0)] == 0
        assert not starts._starts[tp(0)].forgotten

    stage.play(script())


def test_what_is_asked_for_starts_ends_with_the_run() -> None:
    stage = Stage()
    stage.consumer.topic_id = None
    starts: list[Start] = []

    def script() -> Script:
        stage.consumer.assign(0)
        yield
        starts.extend(stage.loop._starts._starts.values())

    stage.play(script())
    assert [each.forgotten for each in starts] == [True]
    ended(stage.loop._starts._pool)


# --- what is available now -------------------------------------------------------------------------------------


def test_before_anything_is_assigned_nothing_is_over() -> None:
    stage, seen = Stage(targets={0: 0}), []

    def script() -> Script:
        for turn in range(3):
            seen.append(turn)
            yield
        stage.consumer.assign(0)
        yield from until(lambda: False)

    stage.play(script())
    assert seen == [0, 1, 2]
    assert stage.sink.begun


def test_what_another_has_brought_to_its_target_is_done() -> None:
    stage = Stage(targets={0: 5})

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.reached[tp(0)] = 5
        stage.runner.finish(0)
        yield from turns(400)
        pytest.fail("it went on")

    stage.play(script())


def test_what_was_reached_before_a_loss_does_not_count_after_it() -> None:
    stage = Stage(targets={0: 5, 1: 5})
    going = []

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 5)
        yield from stage.until_started(1)
        stage.runner.finish(0)
        yield from until(lambda: stage.consumer.committed)
        stage.consumer.topic_id = None
        stage.consumer.lose(0)
        stage.consumer.assign(0)
        stage.consumer.offer(1, 5)
        yield from stage.until_started(2)
        stage.runner.finish(1)
        yield from until(lambda: tp(1) in stage.consumer.committed)
        yield from turns(3)
        going.append("where partition 0 begins is not known")

    stage.play(script())
    assert going
