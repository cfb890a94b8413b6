"""The pipeline's loop: what is begun, kept, committed and let go when, with the group, Spark and the sink played."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import Event
from uuid import UUID

import pytest
from run_help import TOPIC, Script, Stage, position_reset, tp, turns, until

from instride.errors import (
    CorruptManifestError,
    OffsetsGoneError,
    RangeFailedError,
    SinkError,
    SinkWriteError,
    TopicAuthorizationFailedError,
    WrongTopicError,
)
from instride.records import TopicPartition
from instride.spark._events import (
    JobFinished,
    JobStarted,
    PipelineEvent,
    RangeCommitted,
    RangeDropped,
    RangeFailed,
)
from instride.spark._planning import Limits
from instride.telemetry import OwnershipChange, OwnershipChanged, ResetCause


def changes(stage: Stage) -> list[tuple[OwnershipChange, list[int]]]:
    return [(each.change, [p.partition for p in each.partitions]) for each in stage.of(OwnershipChanged)]


def started(stage: Stage) -> list[list[tuple[int, int, int]]]:
    return [[(each.partition, each.start, each.end) for each in ranges] for _, ranges in stage.runner.started]


def test_a_job_is_committed_to_the_sink_then_to_the_group() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 5)
        stage.consumer.offer(1, 7)
        yield from until(lambda: stage.runner.started)
        stage.runner.finish(0)
        yield from until(lambda: len(stage.consumer.committed) == 2)

    stage.play(script())
    assert stage.sink.reached == {tp(0): 5, tp(1): 7}
    assert stage.consumer.committed == {tp(0): 5, tp(1): 7}
    kinds = [type(event) for event in stage.events]
    assert kinds == [OwnershipChanged, JobStarted, RangeCommitted, RangeCommitted, JobFinished]
    assert stage.consumer.closed
    assert stage.runner.closed


def test_a_committed_range_says_how_far_behind_its_partition_is() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.offer(0, 3)
        stage.consumer.offer(0, 4)
        stage.runner.finish(0)
        yield from until(lambda: len(stage.runner.started) == 2)
        stage.runner.finish(1)
        yield from until(lambda: stage.consumer.committed == {tp(0): 12})

    stage.play(script())
    assert [(event.range.end, event.behind) for event in stage.of(RangeCommitted)] == [(5, 7), (12, 0)]


def test_what_a_task_has_read_says_how_large_the_topics_other_ranges_are() -> None:
    """At once: the sink may take long to commit it."""
    stage = Stage(limits=Limits(linger=0.0))

    def script() -> Script:
        yield from stage.assigned(*range(5))
        for partition in range(5):
            stage.consumer.offer(partition, 100_000)
        yield from stage.until_started(1)
        stage.sink.gate.clear()
        stage.runner.part_succeeds(0, 0, seconds=0.01)
        yield from stage.until_started(2)
        stage.sink.gate.set()
        for job in range(2):
            stage.runner.finish(job)

    stage.play(script())
    first, second, *_ = started(stage)
    assert first == [(partition, 0, 65_536) for partition in range(4)]
    assert second == [(4, 0, 100_000)], "quick, and a record was one byte"


def test_a_range_that_failed_does_not_say_how_quick_the_topics_records_are() -> None:
    """Its other part read nothing, in no time."""
    stage = Stage(limits=Limits(linger=0.0, split=True, backoff=99.0, backoff_max=99.0))

    def script() -> Script:
        yield from stage.assigned(*range(2))
        stage.consumer.offer(0, 65_536)
        yield from stage.until_started(1)
        stage.runner.part_succeeds(0, 0, seconds=0.01)
        stage.runner.part_fails(0, 1)
        stage.runner.end(0)
        yield from until(lambda: stage.of(RangeFailed))
        stage.consumer.offer(1, 100_000)
        yield from stage.until_started(2)
        stage.runner.finish(1)

    stage.play(script())
    assert started(stage)[:2] == [[(0, 0, 65_536)], [(1, 0, 65_536)]]


def test_a_partition_begins_where_the_sink_is() -> None:
    stage = Stage(positions={0: 40})

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 2)
        stage.consumer.offer(1, 2)
        yield from until(lambda: stage.runner.started)
        stage.runner.finish(0)

    stage.play(script())
    assert started(stage) == [[(0, 40, 42), (1, 0, 2)]]


def test_the_sink_gets_the_topics_id_which_is_requested_with_each_assignment() -> None:
    stage = Stage()
    seen: list[Mapping[str, str]] = []

    def beyond(number: int) -> bool:
        return len(stage.runner.started) > number

    def script() -> Script:
        for number, topic_id in enumerate((UUID(int=1), UUID(int=2))):
            stage.consumer.topic_id = topic_id
            yield from stage.assigned(number)
            seen.append(dict(stage.sink.topic_ids or {}))
            stage.consumer.offer(number, 2)
            yield from until(partial(beyond, number))
            stage.runner.finish(number)

    stage.play(script())
    first, second = str(UUID(int=1)), str(UUID(int=2))
    assert seen == [{TOPIC: first}, {TOPIC: second}]
    assert [[each.topic_id for each in ranges] for _, ranges in stage.runner.started] == [[first], [second]]


def test_partitions_of_one_assignment_ask_for_their_topic_once() -> None:
    stage = Stage()
    stage.play(stage.assigned(*range(20)))
    assert stage.consumer.lookups == 1


def test_a_topic_without_a_known_id_is_requested_again_and_not_worked_on() -> None:
    stage = Stage()
    stage.consumer.topic_id = None

    def script() -> Script:
        stage.consumer.assign(0)
        stage.consumer.offer(0, 2)
        yield from until(lambda: stage.consumer.lookups == 1)
        assert stage.sink.topic_ids is None
        stage.consumer.topic_id = UUID(int=7)
        yield from until(lambda: stage.runner.started)
        stage.runner.finish(0)

    stage.play(script())
    assert stage.runner.started[0][1][0].topic_id == str(UUID(int=7))


def test_where_a_partition_begins_is_in_the_sink_before_its_first_job() -> None:
    """ "latest" lost what a first job failed at: nothing knew where the partition had begun."""
    stage = Stage(retries=0)
    stage.consumer.committed[tp(0)] = 7

    def script() -> Script:
        yield from stage.assigned(0)
        assert stage.sink.reached == {tp(0): 7}
        stage.consumer.offer(0, 25)
        yield from until(lambda: stage.runner.started)
        stage.runner.fail(0, 0)
        stage.runner.end(0)
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError):
        stage.play(script())
    assert stage.sink.reached == {tp(0): 7}
    assert stage.sink.begun == [(tp(0), 7, str(UUID(int=1)))]


def test_a_partition_that_another_began_meanwhile_begins_where_that_one_did() -> None:
    stage = Stage()

    def begin(partition: TopicPartition, offset: int, *, topic_id: str = "") -> int:
        return stage.sink.reached.setdefault(partition, 3)

    stage.sink.begin = begin  # type: ignore[method-assign]
    stage.consumer.committed[tp(0)] = 7

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.finish(0)

    stage.play(script())
    assert started(stage) == [[(0, 3, 8)]]


def test_a_sink_that_tells_nothing_of_one_partition_holds_up_no_other_and_no_poll() -> None:
    stage = Stage()
    gate = stage.sink.slow[tp(0)] = Event()

    def script() -> Script:
        stage.consumer.assign(0)
        yield from stage.assigned(1)
        stage.consumer.offer(0, 5)
        for number in range(3):
            stage.consumer.offer(1, 5)
            yield from stage.until_started(number + 1)
            stage.runner.finish(number)
        gate.set()
        yield from stage.until_started(4)
        stage.runner.finish(3)

    stage.play(script())
    assert started(stage) == [[(1, 0, 5)], [(1, 5, 10)], [(1, 10, 15)], [(0, 0, 5)]]


def test_what_the_sink_tells_of_an_assignment_that_has_ended_moves_nothing() -> None:
    stage = Stage(positions={0: 40})
    gate = stage.sink.slow[tp(0)] = Event()

    def script() -> Script:
        stage.consumer.assign(0)
        yield
        stage.consumer.lose(0)
        yield
        gate.set()
        yield from stage.assigned(1)
        stage.consumer.offer(1, 1)
        yield from until(lambda: stage.runner.started)
        stage.runner.finish(0)

    stage.play(script())
    assert stage.consumer.position[tp(0)] == 0


def test_a_sink_without_a_response_ends_the_run_and_a_full_one_is_tried_again() -> None:
    stage = Stage()
    stage.sink.start_errors = [SinkWriteError("the disk is full")]
    stage.play(stage.assigned(0))
    assert stage.sink.reached == {tp(0): 0}
    stage = Stage()
    stage.sink.start_errors = [WrongTopicError("made again")]
    with pytest.raises(WrongTopicError):
        stage.play(stage.assigned(0))


def test_however_many_partitions_have_no_start_another_one_begins() -> None:
    """More than there are threads to ask for starts."""
    stage = Stage()
    many = range(20)
    stage.sink.without_start = {tp(each) for each in many}

    def script() -> Script:
        stage.consumer.assign(*many, 20)
        yield from until(lambda: tp(20) in stage.sink.reached)
        stage.sink.without_start = set()
        yield from until(lambda: len(stage.sink.reached) == 21)

    stage.play(script())


def test_others_go_on_while_a_job_is_under_way_in_one() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 5)
        stage.consumer.offer(1, 5)
        yield from until(lambda: stage.runner.started)
        for number in range(3):
            stage.runner.succeed(number, 1)
            if number:
                stage.runner.end(number)
            stage.consumer.offer(0, 5)
            stage.consumer.offer(1, 5)
            yield from stage.until_started(number + 2)
        stage.runner.finish(0)
        stage.runner.finish(3)

    stage.play(script())
    assert started(stage) == [[(0, 0, 5), (1, 0, 5)], [(1, 5, 10)], [(1, 10, 15)], [(1, 15, 20)]]
    assert stage.consumer.committed == {tp(0): 5, tp(1): 20}


def test_a_revoke_is_delayed_until_the_jobs_result_is_committed() -> None:
    stage = Stage()
    reasons: list[str] = []

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 5)
        yield from until(lambda: stage.runner.started)
        stage.consumer.ask(0)
        stage.consumer.offer(0, 5)
        yield from until(lambda: stage.consumer.delays)
        reasons.append(stage.consumer.reasons[tp(0)])
        stage.consumer.offer(1, 5)
        yield from until(lambda: len(stage.runner.started) == 2)
        assert tp(0) in stage.consumer.owned
        stage.runner.finish(0)
        yield from until(lambda: tp(0) not in stage.consumer.owned)
        stage.runner.finish(1)

    stage.play(script())
    assert started(stage) == [[(0, 0, 5)], [(1, 0, 5)]]
    assert stage.consumer.committed == {tp(0): 5, tp(1): 5}
    assert changes(stage) == [
        (OwnershipChange.ASSIGNED, [0, 1]),
        (OwnershipChange.REVOKE_REQUESTED, [0]),
        (OwnershipChange.DELAYED, [0]),
        (OwnershipChange.COMPLETING, [0]),
        (OwnershipChange.REVOKED, [0]),
    ]
    job = stage.of(JobStarted)[0].job
    assert reasons == [f"job {job} on offsets 0 to 4"]


def test_a_partition_without_work_is_let_go_at_once() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.assigned(0)
        stage.consumer.ask(0)
        yield from until(lambda: not stage.consumer.owned)

    stage.play(script())
    assert stage.consumer.delays == []


def test_a_partition_that_is_reassigned_goes_on_without_a_gap() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.offer(0, 3)
        stage.consumer.ask(0)
        yield from until(lambda: stage.consumer.delays)
        stage.consumer.reassign(0)
        yield
        stage.runner.finish(0)
        yield from until(lambda: len(stage.runner.started) == 2)
        stage.runner.finish(1)

    stage.play(script())
    assert started(stage) == [[(0, 0, 5)], [(0, 5, 8)]]
    assert OwnershipChange.REASSIGNED in dict(changes(stage))


def test_a_lost_partitions_job_is_cancelled_and_its_result_is_not_committed() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.lose(0)
        yield from until(lambda: stage.runner.cancelled)
        stage.runner.finish(0)
        yield from until(lambda: stage.of(JobFinished))

    stage.play(script())
    assert stage.sink.reached == {tp(0): 0}
    assert stage.sink.jobs == []
    assert stage.consumer.committed == {}
    assert len(stage.of(RangeDropped)) == 1


def test_a_result_that_waits_for_the_sink_is_dropped_once_its_partition_is_lost() -> None:
    stage = Stage()
    stage.sink.errors = [SinkError("not now")]

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.finish(0)
        yield from until(lambda: not stage.sink.errors)
        stage.consumer.lose(0)
        yield from until(lambda: stage.of(JobFinished))

    stage.play(script())
    assert stage.sink.jobs == []


def test_what_shares_a_job_with_a_lost_partition_is_not_done_again() -> None:
    """The job is cancelled when nothing is left in it but what was lost."""
    stage = Stage(retries=0)

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 5)
        stage.consumer.offer(1, 5)
        yield from until(lambda: stage.runner.started)
        stage.consumer.lose(0)
        yield from until(lambda: stage.of(RangeDropped))
        assert stage.runner.cancelled == []
        stage.runner.succeed(0, 1)
        yield from until(lambda: stage.runner.cancelled)
        stage.runner.end(0, "cancelled")
        yield from until(lambda: stage.of(JobFinished))

    stage.play(script())
    assert started(stage) == [[(0, 0, 5), (1, 0, 5)]]
    assert [each.range.partition for each in stage.of(RangeDropped)] == [0]
    assert stage.sink.reached == {tp(0): 0, tp(1): 5}


def test_a_partition_that_was_lost_and_assigned_again_does_not_take_the_old_result() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.lose(0)
        yield
        stage.consumer.position[tp(0)] = 0
        yield from stage.assigned(0)
        stage.consumer.offer(0, 3)
        yield from until(lambda: len(stage.runner.started) == 2)
        stage.runner.finish(0)
        stage.runner.finish(1)
        yield from until(lambda: len(stage.of(JobFinished)) == 2)

    stage.play(script())
    assert stage.sink.reached == {tp(0): 3}
    assert stage.consumer.committed == {tp(0): 3}


def test_after_a_conflict_work_goes_on_from_the_sinks_position() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.offer(0, 5)
        yield
        stage.sink.reached[tp(0)] = 8
        stage.runner.finish(0)
        yield from until(lambda: stage.of(RangeDropped))
        stage.consumer.offer(0, 2)
        yield from until(lambda: len(stage.runner.started) == 2)
        stage.runner.finish(1)

    stage.play(script())
    assert started(stage) == [[(0, 0, 5)], [(0, 8, 10)]]
    assert [event.position for event in stage.of(RangeDropped)] == [8]
    assert stage.consumer.committed == {tp(0): 10}


def test_a_job_that_spark_gave_up_for_good_is_told_without_a_traceback() -> None:
    stage = Stage(retries=0)

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.end(0, reason="an executor was lost too often")
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError, match=r"for good.*SparkJobFailed: an executor was lost too often") as raised:
        stage.play(script())
    assert not getattr(raised.value, "__notes__", [])


def test_a_failure_is_none_where_the_sink_has_gone_on() -> None:
    stage = Stage(retries=0)

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.reached[tp(0)] = 5
        stage.runner.fail(0, 0)
        stage.runner.end(0)
        yield from until(lambda: stage.of(JobFinished))

    stage.play(script())
    assert stage.of(RangeFailed) == []
    assert stage.consumer.position[tp(0)] == 5


def test_a_fatal_failure_is_one_though_the_sink_has_gone_on() -> None:
    """Of a topic that was made again while the sink was at 20: the run went on for ever."""
    stage = Stage(positions={0: 20})

    def script() -> Script:
        yield from stage.assigned(0)
        stage.consumer.position[tp(0)] = 0
        stage.consumer.offer(0, 5)
        yield from stage.until_started(1)
        stage.runner.fail(0, 0, fatal=True)
        stage.runner.end(0)
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError):
        stage.play(script())
    assert stage.of(RangeDropped) == []


def test_offsets_that_another_has_read_may_be_gone() -> None:
    """A driver that slept past the retention finds that the sink has gone on."""
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.reached[tp(0)] = 5
        stage.runner.fail(0, 0, fatal=True, kind="OffsetsGoneError")
        stage.runner.end(0)
        yield from until(lambda: stage.of(JobFinished))

    stage.play(script())
    assert stage.of(RangeFailed) == []
    assert stage.consumer.position[tp(0)] == 5


def test_a_failure_counts_where_the_sink_is_behind_the_range() -> None:
    stage = Stage(positions={0: 20})

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.reached[tp(0)] = 10  # as of an older copy of the sink
        stage.runner.fail(0, 0)
        stage.runner.end(0)
        yield from stage.until_started(2)
        stage.runner.finish(1)
        yield from until(lambda: stage.of(RangeDropped))
        stage.consumer.offer(0, 15)
        yield from stage.until_started(3)
        stage.runner.finish(2)

    stage.play(script())
    assert [event.reason for event in stage.of(RangeFailed)] == ["ValueError: no flight"]
    assert started(stage) == [[(0, 20, 25)], [(0, 20, 25)], [(0, 10, 25)]]


# --- the log does not have what is to be read next ------------------------------------------------------------


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("cause", [ResetCause.OUT_OF_RANGE, ResetCause.TRUNCATED])
def test_a_partition_that_is_led_back_stops_the_run(cause: ResetCause, fail_on_data_loss: bool) -> None:
    """The sink cannot go back. The run went on for ever, with jobs whose output was dropped."""
    stage = Stage(positions={0: 15}, fail_on_data_loss=fail_on_data_loss)

    def script() -> Script:
        yield from stage.assigned(0)
        stage.consumer.reset(0, 0, cause)
        stage.consumer.offer(0, 10)
        yield from turns(5)
        assert stage.runner.started == []
        yield from until(lambda: False)

    with pytest.raises(OffsetsGoneError, match=f"t-0 .* offset 15, but {cause.value}.* offset 0.*another sink"):
        stage.play(script())
    assert stage.sink.reached == {tp(0): 15}


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("to", [0, 20, 30])
def test_a_topic_that_is_made_again_stops_the_run(to: int, fail_on_data_loss: bool) -> None:
    """Wherever the reset leads: its offsets mean other records."""
    stage = Stage(positions={0: 20}, fail_on_data_loss=fail_on_data_loss)

    def script() -> Script:
        yield from stage.assigned(0)
        stage.consumer.reset(0, to, ResetCause.RECREATED)
        stage.consumer.offer(0, 5)
        yield from until(lambda: False)

    with pytest.raises(WrongTopicError, match=r"t-0: .*made again"):
        stage.play(script())
    assert stage.runner.started == []


def test_a_partition_that_is_led_forward_stops_the_run() -> None:
    stage = Stage(positions={0: 10})

    def script() -> Script:
        yield from stage.assigned(0)
        stage.consumer.reset(0, 15)
        stage.consumer.offer(0, 5)
        yield from until(lambda: False)

    with pytest.raises(OffsetsGoneError, match=r"t-0 .* offset 10, but .* offset 15\..*fail_on_data_loss=False"):
        stage.play(script())
    assert stage.runner.started == []


@pytest.mark.parametrize("to", [10, 15])
def test_where_data_may_be_lost_the_task_passes_over_it(to: int) -> None:
    """A range must begin where the sink is: what is gone is a part of the next one. Each offset is read once."""
    stage = Stage(positions={0: 10, 1: 0}, fail_on_data_loss=False)

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.reset(0, to)
        stage.consumer.offer(0, 5)  # in the very poll that tells of the reset
        stage.consumer.offer(1, 3)
        yield from stage.until_started(1)
        stage.runner.finish(0)
        stage.consumer.offer(0, 12)
        yield from stage.until_started(2)
        stage.runner.finish(1)
        yield from until(lambda: stage.consumer.committed == {tp(0): 22, tp(1): 3})

    stage.play(script())
    assert started(stage) == [[(1, 0, 3)], [(0, 10, 22)]]
    assert stage.of(RangeDropped) == []


def test_what_is_under_way_is_committed_when_a_partition_is_led_back() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 5)
        stage.consumer.offer(1, 5)
        yield from stage.until_started(1)
        stage.consumer.reset(0, 3)
        yield from turns(3)
        stage.runner.finish(0)
        yield from until(lambda: False)

    with pytest.raises(OffsetsGoneError, match="offset 5, but"):
        stage.play(script())
    assert stage.sink.reached == {tp(0): 5, tp(1): 5}
    # What was read before a reset no commit to the group names: it would be behind the log's end.
    assert stage.consumer.committed == {tp(1): 5}


def test_after_a_conflict_a_partition_that_is_led_back_stops_the_run() -> None:
    """Another driver went further than the log now reaches."""
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.reached[tp(0)] = 8
        stage.runner.finish(0)
        yield from until(lambda: stage.of(RangeDropped))
        stage.consumer.reset(0, 0)
        yield from until(lambda: False)

    with pytest.raises(OffsetsGoneError, match="offset 8, but"):
        stage.play(script())


def test_a_reset_before_the_sink_has_told_where_to_begin_stops_nothing() -> None:
    """Of the group's offset, which counts only where the sink has none."""
    stage = Stage(positions={0: 7})
    gate = stage.sink.slow[tp(0)] = Event()
    stage.consumer.position[tp(0)] = 40

    def script() -> Script:
        stage.consumer.assign(0)
        stage.consumer.reset(0, 3)
        yield from turns(3)
        gate.set()
        yield from until(lambda: tp(0) not in stage.consumer.paused)
        stage.consumer.notices.append(position_reset(0, 40, 3))  # one that was told late
        stage.consumer.offer(0, 2)
        yield from stage.until_started(1)
        stage.runner.finish(0)

    stage.play(script())
    assert started(stage) == [[(0, 7, 9)]]


def test_a_reset_of_a_partition_that_has_gone_stops_nothing() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.lose(0)
        stage.consumer.reset(0, 0)
        yield from until(lambda: stage.runner.cancelled)
        stage.runner.end(0, "cancelled")

    stage.play(script())


def test_a_failed_range_is_tried_again_then_the_pipeline_stops_with_nothing_skipped() -> None:
    stage = Stage(retries=2)

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 5)
        stage.consumer.offer(1, 5)
        yield from until(lambda: stage.runner.started)
        stage.consumer.offer(0, 5)
        for number in range(3):
            yield from stage.until_started(number + 1)
            stage.runner.fail(number, 0)
            stage.runner.end(number) if number else None
        yield from until(lambda: len(stage.of(RangeFailed)) == 3)
        # The other partition's work, still under way, is finished and committed.
        stage.runner.finish(0)
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError, match=r"t-0 \[0, 5\).*ValueError: no flight"):
        stage.play(script())
    assert started(stage) == [[(0, 0, 5), (1, 0, 5)], [(0, 0, 5)], [(0, 0, 5)]]
    assert [event.again for event in stage.of(RangeFailed)] == [True, True, False]
    assert stage.sink.reached == {tp(0): 0, tp(1): 5}
    assert stage.consumer.committed == {tp(1): 5}
    assert stage.consumer.closed


def fails(stage: Stage, times: int, *, private: bool = False) -> Script:
    """Each try of the one range that there is."""
    yield from stage.assigned(0)
    stage.consumer.offer(0, 5)
    for number in range(times):
        yield from stage.until_started(number + 1)
        stage.runner.fail(number, 0, private=private)
        stage.runner.end(number)
    yield from until(lambda: False)


def test_a_failing_functions_traceback_is_raised_once_and_logged_by_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It was logged with each try."""
    stage = Stage(retries=2)
    with caplog.at_level("INFO"), pytest.raises(RangeFailedError) as caught:
        stage.play(fails(stage, 3))
    assert "line 7" not in caplog.text
    assert [note.count("line 7") for note in caught.value.__notes__] == [1]
    assert caplog.text.count("ValueError: no flight") == 4  # three tries, and the end


def test_the_text_of_a_functions_error_is_logged_at_debug_alone(caplog: pytest.LogCaptureFixture) -> None:
    """It may have a record's content. The error that `run` raises has it, and so has the event."""
    stage = Stage(retries=1)
    with caplog.at_level("DEBUG"), pytest.raises(RangeFailedError, match="ValueError: no flight"):
        stage.play(fails(stage, 2, private=True))
    texts = [(each.levelname, "no flight" in each.getMessage()) for each in caplog.records if "failed" in each.msg]
    assert ("WARNING", True) not in texts
    assert ("ERROR", True) not in texts
    said = [each.getMessage() for each in caplog.records if each.levelname in ("WARNING", "ERROR")]
    assert [text.count("ValueError") for text in said] == [1, 1, 1], said
    assert sum("no flight" in each.getMessage() for each in caplog.records if each.levelname == "DEBUG") == 2
    assert [each.reason for each in stage.of(RangeFailed)] == ["ValueError: no flight"] * 2


def test_a_task_knows_its_ranges_last_try_and_dead_letters_come_with_the_commit() -> None:
    stage = Stage(retries=2)

    def script() -> Script:
        yield from stage.working(0)
        for number in range(2):
            stage.runner.fail(number, 0)
            stage.runner.end(number)
            yield from stage.until_started(number + 2)
        stage.runner.succeed(2, letters=3)
        stage.runner.end(2)
        stage.consumer.offer(0, 1)
        yield from stage.until_started(4)
        stage.runner.finish(3)

    stage.play(script())
    assert stage.runner.last_tries == [False, False, True, False]
    assert [event.dead_letters for event in stage.of(RangeCommitted)] == [3, 0]


def test_what_is_available_now_is_read_and_then_the_run_ends_by_itself() -> None:
    """Partition 1 has nothing, 2 was begun beyond its target, 3 is new since; each has more by now."""
    stage = Stage(positions={2: 9}, targets={0: 8, 1: 0, 2: 4})

    def script() -> Script:
        yield from stage.assigned(0, 1, 2, 3)
        stage.consumer.offer(0, 5)
        yield from stage.until_started(1)
        stage.runner.finish(0)
        stage.consumer.offer(0, 5)
        yield from stage.until_started(2)
        assert tp(0) in stage.consumer.paused
        stage.runner.finish(1)
        yield from until(lambda: False)

    stage.play(script())
    assert stage.sink.reached == {tp(0): 10, tp(1): 0, tp(2): 9, tp(3): 0}
    assert stage.consumer.committed == {tp(0): 10}


def test_what_others_did_of_the_available_is_not_awaited_and_what_they_left_is_read() -> None:
    stage = Stage(targets={0: 5})

    def script() -> Script:
        yield from stage.working(0)
        stage.sink.reached[tp(0)] = 3  # another member's commit
        stage.runner.finish(0)
        yield from until(lambda: stage.of(RangeDropped))
        stage.consumer.offer(0, 2)
        yield from stage.until_started(2)
        stage.runner.finish(1)
        yield from until(lambda: False)

    stage.play(script())
    assert started(stage) == [[(0, 0, 5)], [(0, 3, 5)]]


def test_a_fatal_failure_is_not_tried_again() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.fail(0, 0, fatal=True)
        stage.runner.end(0)
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError):
        stage.play(script())
    assert len(stage.runner.started) == 1


def test_a_job_that_spark_gave_up_fails_what_it_did_not_tell_of() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 5)
        stage.consumer.offer(1, 5)
        yield from until(lambda: stage.runner.started)
        stage.runner.succeed(0, 1)
        stage.runner.end(0, "executor lost")
        yield from until(lambda: len(stage.runner.started) == 2)
        stage.runner.finish(1)

    stage.play(script())
    assert started(stage) == [[(0, 0, 5), (1, 0, 5)], [(0, 0, 5)]]
    assert [event.reason for event in stage.of(RangeFailed)] == ["SparkJobFailed: executor lost"]
    assert stage.sink.reached == {tp(0): 5, tp(1): 5}


def test_what_failed_is_not_kept_for_another_try_when_the_group_asks_for_it() -> None:
    stage = Stage(retries=1_000)

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.ask(0)
        yield from until(lambda: stage.consumer.delays)
        stage.runner.fail(0, 0)
        stage.runner.end(0)
        yield from until(lambda: not stage.consumer.owned)

    stage.play(script())
    assert len(stage.runner.started) == 1
    assert stage.consumer.committed == {}


def test_a_sinks_error_is_tried_again_with_the_same_job() -> None:
    stage = Stage()
    stage.sink.errors = [SinkError("not now"), SinkError("nor now")]

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.finish(0)
        yield from until(lambda: stage.consumer.committed)

    stage.play(script())
    assert len(stage.runner.started) == 1
    assert stage.sink.reached == {tp(0): 5}


def test_a_fatal_error_of_the_sink_stops_the_pipeline() -> None:
    stage = Stage()
    stage.sink.errors = [CorruptManifestError("a gap")]

    def script() -> Script:
        yield from stage.working(0)
        stage.runner.finish(0)
        yield from until(lambda: False)

    with pytest.raises(RangeFailedError, match="CorruptManifestError: a gap"):
        stage.play(script())


def test_a_stop_waits_for_what_is_under_way_and_begins_nothing() -> None:
    stage = Stage()

    def stopping() -> bool:
        if not stage.consumer.owned:
            stage.consumer.assign(0)
        elif stage.consumer.paused:
            pass
        elif not stage.runner.started:
            stage.consumer.offer(0, 5)
        else:
            stage.consumer.offer(0, 5)
            polls.append(1)
            if len(polls) == 5:
                stage.runner.finish(0)
        return bool(stage.runner.started)

    polls: list[int] = []
    stage.loop.run(stopping)
    assert len(stage.runner.started) == 1
    assert stage.consumer.committed == {tp(0): 5}


def test_a_stop_does_not_wait_for_ever() -> None:
    stage = Stage(stop_timeout=0.05)
    stage.runner.obeys = True

    def script() -> Script:
        yield from stage.working(0)

    stage.play(script())
    assert stage.runner.cancelled == [stage.runner.started[0][0]]
    assert stage.consumer.closed
    assert stage.sink.reached == {tp(0): 0}


def test_a_hand_over_goes_on_while_the_pipeline_stops() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.assigned(0, 1)
        stage.consumer.offer(0, 5)
        stage.consumer.offer(1, 5)
        yield from until(lambda: stage.runner.started)
        stage.consumer.ask(0)

    def while_it_stops() -> Script:
        yield from until(lambda: len(stage.consumer.delays) > 2)
        stage.runner.succeed(0, 0)
        yield from until(lambda: tp(0) not in stage.consumer.owned)
        stage.runner.succeed(0, 1)
        stage.runner.end(0)
        yield from until(lambda: False)

    before, after = script(), while_it_stops()

    def stopping() -> bool:
        if next(before, "over") is None:
            return False
        next(after)
        return True

    stage.loop.run(stopping)
    assert (OwnershipChange.REVOKED, [0]) in changes(stage)
    assert stage.consumer.committed == {tp(0): 5, tp(1): 5}


def test_an_error_of_the_group_stops_the_pipeline_after_what_is_under_way() -> None:
    stage = Stage()

    def script() -> Script:
        yield from stage.working(0)
        stage.consumer.errors = [TopicAuthorizationFailedError("not yours")]
        yield
        stage.runner.finish(0)
        yield from until(lambda: False)

    with pytest.raises(TopicAuthorizationFailedError):
        stage.play(script())
    assert stage.consumer.committed == {tp(0): 5}


def test_an_error_of_the_callback_is_raised_after_the_group_was_left() -> None:
    stage = Stage()

    def listen(event: PipelineEvent) -> None:
        raise KeyError("mine")

    stage.on_event = listen

    def script() -> Script:
        stage.consumer.assign(0)
        yield from until(lambda: False)

    with pytest.raises(KeyError, match="mine"):
        stage.play(script())
    assert stage.consumer.closed


SPLIT = Limits(range_records=60_000, jobs=8, linger=0.0, retries=2, backoff=0.0, split=True)


def test_the_backlog_of_one_partition_is_worked_on_by_all_cores() -> None:
    """A task for each core; the range is committed once, when all have written their parts."""
    stage = Stage(limits=SPLIT)

    def script() -> Script:
        yield from stage.assigned(0)
        stage.consumer.offer(0, 60_000)
        yield from stage.until_started(1)
        stage.runner.part_succeeds(0, 1)
        stage.runner.part_succeeds(0, 1)
        yield from (None for _ in range(3))
        assert not stage.of(RangeCommitted)
        stage.runner.part_succeeds(0, 0)
        yield from until(lambda: stage.of(RangeCommitted))
        stage.runner.end(0)

    stage.play(script())
    assert [[(part.offsets.start, part.offsets.end) for part in parts] for parts in stage.runner.tasks[0]] == [
        [(0, 30_000)],
        [(30_000, 60_000)],
    ]
    (committed,) = stage.of(RangeCommitted)
    assert (committed.range.start, committed.range.end, committed.rows) == (0, 60_000, 60_000)
    assert stage.consumer.committed == {tp(0): 60_000}


def test_a_part_that_fails_has_the_whole_range_tried_again() -> None:
    stage = Stage(limits=SPLIT)

    def script() -> Script:
        yield from stage.assigned(0)
        stage.consumer.offer(0, 60_000)
        yield from stage.until_started(1)
        stage.runner.part_fails(0, 0)
        stage.runner.part_succeeds(0, 1)
        stage.runner.end(0)
        yield from stage.until_started(2)
        stage.runner.finish(1)
        yield from until(lambda: stage.of(RangeCommitted))

    stage.play(script())
    assert [len(tasks) for tasks in stage.runner.tasks] == [2, 1]
    assert len(stage.of(RangeFailed)) == 1
    assert stage.consumer.committed == {tp(0): 60_000}
