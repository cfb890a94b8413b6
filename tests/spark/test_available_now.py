"""With available_now: what was there when the run began may be gone by now, and is not awaited for ever."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest
from run_help import PATIENCE, PanicError, Script, Stage, tp, turns, until

from instride.errors import (
    KafkaTimeoutError,
    OffsetsGoneError,
    SinkError,
    SinkWriteError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from instride.records import TopicPartition
from instride.spark import _targets


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_targets, "_PAUSE", 0.0)


def is_over() -> Script:
    """Nothing more happens: the run is to end by itself."""
    yield from until(lambda: False)


def read_up_to(stage: Stage, end: int) -> Script:
    """Partition 0 is assigned, and the sink has this many of its records."""
    yield from stage.assigned(0)
    if end:
        stage.consumer.offer(0, end)
        yield from stage.until_started(1)
        stage.runner.finish(0)
        yield from until(lambda: stage.consumer.committed.get(tp(0)) == end)


@pytest.mark.parametrize("end", [0, 5])
def test_a_log_that_became_shorter_than_its_target_is_an_error(end: int) -> None:
    """It was cut after its end had been looked up, or the topic was made again before its id was: the run hung."""
    stage = Stage(targets={0: 8})
    stage.consumer.ends[tp(0)] = end

    def script() -> Script:
        yield from read_up_to(stage, end)
        yield from is_over()

    with pytest.raises(OffsetsGoneError, match=rf"^t-0 was to be read up to offset 8, but its log ends at {end} now"):
        stage.play(script())
    assert stage.consumer.committed.get(tp(0), 0) == end, "what it has is committed"
    assert stage.consumer.closed


def test_a_log_that_became_shorter_is_read_to_its_end_if_loss_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage(targets={0: 8, 1: 3}, fail_on_data_loss=False)
    stage.consumer.ends[tp(0)] = 5

    def script() -> Script:
        stage.consumer.assign(1)
        yield from read_up_to(stage, 5)
        yield from until(lambda: stage.loop._target(tp(0)) == 5)
        stage.consumer.offer(1, 3)
        yield from stage.until_started(2)
        stage.runner.finish(1)
        yield from is_over()

    stage.play(script())
    assert stage.sink.reached == {tp(0): 5, tp(1): 3}
    (told,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert told == "t-0 was to be read up to offset 8, but its log ends at 5 now"


def test_a_shorter_log_is_read_to_its_end_later_too_if_loss_is_passed_over() -> None:
    stage = Stage(targets={0: 8}, fail_on_data_loss=False)
    stage.consumer.ends[tp(0)] = 5

    def script() -> Script:
        yield from stage.assigned(0)
        yield from until(lambda: stage.loop._target(tp(0)) == 5)
        yield from turns(3)
        stage.consumer.offer(0, 5)
        yield from stage.until_started(1)
        stage.runner.finish(0)
        yield from is_over()

    stage.play(script())
    assert stage.sink.reached == {tp(0): 5}


@pytest.mark.parametrize("fails", [True, False])
def test_a_sink_beyond_the_end_of_a_log_cannot_go_back(*, fails: bool) -> None:
    """The run ended well, though what comes into the log before the sink's position is never read."""
    stage = Stage(positions={0: 6}, targets={0: 8}, fail_on_data_loss=fails)
    stage.consumer.ends[tp(0)] = 5

    def script() -> Script:
        yield from stage.assigned(0)
        yield from is_over()

    with pytest.raises(OffsetsGoneError, match=r"its log ends at 5 now, and the sink is at 6. No sink can go back"):
        stage.play(script())


class HeldLook:
    """The second look that finds something is told once it is let go, and reads nothing anew."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        assert stage.loop._targets is not None
        self.made, self.let_go = threading.Event(), threading.Event()
        self._count = 0
        self._tell = stage.loop._targets._tell
        monkeypatch.setattr(stage.loop._targets, "_tell", self.tell)

    def tell(self, message: _targets.Looked) -> None:
        self._count += bool(message.short)
        if self._count == 2:
            self.made.set()
            assert self.let_go.wait(PATIENCE)
        self._tell(message)


def test_what_was_read_during_a_look_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look knew an older position of the sink. With it the partition was never done: the run hung."""
    stage = Stage(targets={0: 8}, fail_on_data_loss=False)
    stage.consumer.ends[tp(0)] = 5
    look = HeldLook(stage, monkeypatch)

    def script() -> Script:
        yield from stage.assigned(0)
        yield from until(look.made.is_set)
        stage.consumer.offer(0, 5)
        yield from stage.until_started(1)
        stage.runner.finish(0)
        yield from until(lambda: stage.consumer.committed.get(tp(0)) == 5)
        look.let_go.set()
        yield from is_over()

    stage.play(script())
    assert stage.sink.reached == {tp(0): 5}


def test_what_goes_to_another_during_a_look_is_that_ones_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(targets={0: 8, 1: 8})
    stage.consumer.ends[tp(0)] = 5
    look = HeldLook(stage, monkeypatch)

    def script() -> Script:
        yield from stage.assigned(0, 1)
        yield from until(look.made.is_set)
        stage.consumer.lose(0)
        yield from until(lambda: stage.loop._membership.owned == 1)
        look.let_go.set()
        looks = len(stage.consumer.looks)
        yield from until(lambda: len(stage.consumer.looks) > looks)

    stage.play(script())


def nobody_has_it(stage: Stage) -> Script:
    yield


def it_is_ours(stage: Stage) -> Script:
    """And the consumer has not noticed."""
    yield from stage.assigned(0)


def it_was_ours(stage: Stage) -> Script:
    yield from stage.assigned(0)
    stage.consumer.lose(0)
    yield from until(lambda: not stage.loop._membership.owned)


@pytest.mark.parametrize("situation", [nobody_has_it, it_is_ours, it_was_ours])
@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_went_away_is_an_error(situation: Callable[[Stage], Script], *, fails: bool) -> None:
    """The consumer tells of it, too, but may take minutes where none of its partitions is ours."""
    stage = Stage(targets={0: 8}, fail_on_data_loss=fails)

    def script() -> Script:
        yield from situation(stage)
        del stage.consumer.ends[tp(0)]
        yield from is_over()

    with pytest.raises(UnknownTopicOrPartitionError, match=r"^t-0 was to be read up to offset 8, but it is not there"):
        stage.play(script())


def both_are_read_but_one(stage: Stage) -> Script:
    """Of two partitions one is ours, and read."""
    yield from stage.assigned(0)
    stage.consumer.offer(0, 5)
    yield from stage.until_started(1)
    stage.runner.finish(0)
    yield from is_over()


def test_what_went_away_before_it_was_ours_is_told_before_the_run_ends() -> None:
    """Its records were lost in silence: the run ended well, since what it owned was read."""
    stage = Stage(targets={0: 5, 1: 5})
    del stage.consumer.ends[tp(1)]
    with pytest.raises(UnknownTopicOrPartitionError, match=r"^t-1 was to be read"):
        stage.play(both_are_read_but_one(stage))
    assert stage.consumer.committed == {tp(0): 5}


def test_what_went_away_when_all_of_it_was_read_is_no_loss() -> None:
    """By another member."""
    stage = Stage(targets={0: 5, 1: 5}, positions={1: 5})
    del stage.consumer.ends[tp(1)]
    stage.play(both_are_read_but_one(stage))
    assert stage.consumer.committed == {tp(0): 5}


def test_what_is_anothers_is_its_concern_as_long_as_it_is_there() -> None:
    stage = Stage(targets={0: 5, 1: 5})
    stage.consumer.ends[tp(1)] = 2
    stage.play(both_are_read_but_one(stage))
    assert stage.consumer.looks
    assert not any(tp(1) in asked for asked in stage.consumer.looks), "that would be a request for each log of a group"


def test_brokers_that_do_not_respond_hold_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_targets, "_PAUSE", 1e9)
    stage = Stage(targets={0: 5, 1: 5})
    stage.consumer.ends_errors = [KafkaTimeoutError("no broker")]
    stage.play(both_are_read_but_one(stage))
    assert len(stage.consumer.looks) == 1


@pytest.mark.parametrize("now", [5, 8])
def test_one_look_alone_ends_nothing(monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    """A broker may be behind."""
    stage = Stage(targets={0: 8})
    stage.consumer.ends[tp(0)] = 5
    seen: list[Any] = []
    take = _targets.Targets.take

    def taken(self: _targets.Targets, message: _targets.Looked) -> Any:
        found = take(self, message)
        if seen or message.short:  # before, the partition had not begun
            stage.consumer.ends[tp(0)] = now
            seen.append(found)
        return found

    monkeypatch.setattr(_targets.Targets, "take", taken)

    def script() -> Script:
        yield from read_up_to(stage, 5)
        yield from until(lambda: len(seen) >= 3)

    if now == 8:
        stage.play(script())
        assert not any(seen)
    else:
        with pytest.raises(OffsetsGoneError):
            stage.play(script())
        assert [bool(each) for each in seen] == [False, True]


def test_a_look_that_fails_says_nothing_of_what_the_one_before_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counted as the second that says so."""
    stage, looks = Stage(targets={0: 8}), list[int]()

    def ends(_: object, ours: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        if tp(0) not in ours:  # it has not begun
            return {tp(0): None}
        looks.append(len(looks))
        if len(looks) == 2:
            raise KafkaTimeoutError("no broker")
        return {tp(0): 5 if len(looks) == 1 else 8}

    assert stage.loop._targets is not None
    monkeypatch.setattr(stage.loop._targets, "_ends", ends)

    def script() -> Script:
        yield from read_up_to(stage, 5)
        yield from until(lambda: len(looks) >= 4)

    stage.play(script())


@pytest.mark.parametrize("error", [KafkaTimeoutError("no broker"), WakeupError("the run has ended")])
def test_a_look_that_fails_is_followed_by_another(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Its warning tells of brokers, and not of a run that ends."""
    stage = Stage(targets={0: 8})
    stage.consumer.ends[tp(0)] = 5
    stage.consumer.ends_errors = [error]

    def script() -> Script:
        yield from read_up_to(stage, 5)
        yield from is_over()

    with pytest.raises(OffsetsGoneError):
        stage.play(script())
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [each for each in warnings if "not known now" in each] == [
        f"whether all is there that is to be read is not known now: {each}"
        for each in [error]
        if not isinstance(each, WakeupError)
    ]


@pytest.mark.parametrize(
    ("error", "raised"),
    [(TopicAuthorizationFailedError("no"), TopicAuthorizationFailedError), (PanicError("x"), SinkError)],
)
def test_a_look_that_no_other_mends_ends_the_run(error: BaseException, raised: type[Exception]) -> None:
    stage = Stage(targets={0: 8})
    stage.consumer.ends_errors = [error]
    with pytest.raises(raised):
        stage.play(is_over())


def test_a_sink_that_is_away_is_asked_again_about_what_is_gone() -> None:
    stage = Stage(targets={0: 8})

    def script() -> Script:
        yield from stage.assigned(0)
        stage.sink.position_errors = [SinkWriteError("the disk is full")]
        del stage.consumer.ends[tp(0)]
        yield from is_over()

    with pytest.raises(UnknownTopicOrPartitionError):
        stage.play(script())


def test_nobody_is_asked_while_a_job_is_under_way_or_without_targets() -> None:
    stage, endless = Stage(targets={0: 8}), Stage()

    def working(stage: Stage) -> Script:
        yield from stage.working(0)
        looks = len(stage.consumer.looks)
        yield from turns(5)
        assert len(stage.consumer.looks) <= looks + 1, "but for one that was under way"
        stage.runner.finish(0)

    stage.play(working(stage))
    endless.play(working(endless))
    assert not endless.consumer.looks
