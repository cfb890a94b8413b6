"""The consumer's local verbs, and those that wait for one response."""

from __future__ import annotations

import gc
import re
import weakref
from dataclasses import replace
from typing import Any

import pytest
from application_script import RecordingListener, Script, epochs, tp

from instride._core.events import (
    EARLIEST,
    LATEST,
    Assign,
    Assigned,
    CallCompleted,
    ChangeSettings,
    Consumed,
    DeadlineMoved,
    EndFound,
    EndsFound,
    ErrorRaised,
    FetchCommitted,
    Fetched,
    FetchMetadata,
    FetchOffsets,
    PartitionFailed,
    Pause,
    Positioned,
    PositionsFound,
    Resume,
    SetPosition,
    Subscribe,
    SubscriptionMatched,
)
from instride._core.metrics.meters import Buffered, NetworkMeter
from instride.errors import ConfigError, IllegalStateError, KafkaTimeoutError, TransportError
from instride.records import OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition


@pytest.fixture
def owner(script: Script) -> Script:
    script.assigned(0, 1)
    script.poll()
    script.posted.clear()
    return script


def completed(script: Script, call: Any, kind: type[Any], **completion: Any) -> Any:
    """Start a call, complete the event that it posts, and give its result."""
    script.start(call)
    (event,) = script.take_posted(kind)
    script.up(CallCompleted(call=event.call, **completion))
    with pytest.raises(StopIteration) as end:
        call.send(script.now)
    return end.value.value


# --- subscribe and assign -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "error"), [("t", TypeError), ([], ValueError), ([""], ValueError), ([1], TypeError)]
)
def test_a_subscription_is_a_list_of_topics(topics: Any, error: type[Exception]) -> None:
    script = Script()
    with pytest.raises(error):
        script.machine.subscribe(topics, None)
    assert script.posted == []


def test_a_subscription_is_told_with_whether_there_is_a_listener() -> None:
    script = Script()
    script.machine.subscribe(["a", "b"], RecordingListener())
    assert script.take_posted(Subscribe) == [Subscribe(topics=frozenset({"a", "b"}), listener=True)]
    assert script.machine.subscription() == {"a", "b"}


def test_subscribing_and_assigning_exclude_each_other() -> None:
    subscribed, by_hand = Script(), Script()
    subscribed.subscribe()
    with pytest.raises(IllegalStateError, match="unsubscribe before assign"):
        subscribed.machine.assign([tp(0)])
    by_hand.machine.assign([tp(0)])
    with pytest.raises(IllegalStateError, match="unsubscribe before subscribe"):
        by_hand.subscribe()


def test_polling_needs_something_to_poll() -> None:
    with pytest.raises(IllegalStateError, match="call subscribe or assign"):
        Script().poll()


def test_an_assignment_keeps_what_it_had_and_gives_the_new_new_epochs() -> None:
    script = Script()
    script.machine.assign([tp(0), tp(1)])
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=7))
    script.poll()
    script.machine.assign([tp(0), tp(2)])
    first, second = script.take_posted(Assign)
    assert first.partitions == {tp(0): 1, tp(1): 2}
    assert second.partitions == {tp(0): 1, tp(2): 3}
    assert script.assignment() == {0, 2}
    script.machine.assign([tp(1)])
    assert script.take_posted(Assign)[0].partitions == {tp(1): 4}, "again: a new epoch"


def test_an_epoch_of_the_group_that_waits_in_the_queue_is_not_given_again() -> None:
    """Else data of an assignment that an unsubscribe gave up would be taken for that of the assign."""
    script = Script()
    script.up(Assigned(generation=2, partitions={tp(7): 9}, unsubscribed=-1))
    script.machine.assign([tp(7)])
    (told,) = script.take_posted(Assign)
    assert told.partitions == {tp(7): 10}


@pytest.mark.vector(47)
def test_records_of_an_assignment_that_is_over_are_dropped() -> None:
    script = Script()
    script.machine.assign([tp(0)])
    script.machine.assign([])
    script.fetched(0, 0, 5, epoch=1)
    assert script.poll() == []
    script.machine.assign([tp(0)])
    script.fetched(0, 0, 5, epoch=1)
    assert script.poll() == []


# --- positions ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("surface/seek")
def test_a_seek_drops_what_was_fetched_and_what_is_under_way(owner: Script) -> None:
    owner.fetched(0, 0, 5)
    owner.machine.revoke_deadline(owner.now, tp(0))  # takes what came
    owner.machine.seek(tp(0), 40)
    owner.fetched(0, 5, 9)
    assert owner.poll() == []
    (told,) = owner.take_posted(SetPosition)
    assert (told.offset, told.seek_number, told.fetch_number) == (40, 1, 1)
    owner.fetched(0, 40, 42, fetch_number=1)
    assert owner.poll() == [(0, 40, 42)]


def test_a_position_that_is_known_needs_no_waiting(owner: Script) -> None:
    owner.fetched(0, 0, 5)
    owner.poll()
    assert owner.run(owner.machine.position(owner.now, tp(0), 0.0)) == 5


def test_a_position_is_waited_for_and_times_out(owner: Script) -> None:
    owner.machine.seek(tp(0), LATEST)
    call = owner.machine.position(owner.now, tp(0), 10.0)
    owner.start(call)
    owner.up(Positioned(partition=tp(0), epoch=1, seek_number=1, offset=99))
    with pytest.raises(StopIteration) as end:
        call.send(owner.now)
    assert end.value.value == 99
    owner.machine.seek(tp(0), EARLIEST)
    with pytest.raises(KafkaTimeoutError, match="t-0"):
        owner.run(owner.machine.position(owner.now, tp(0), 10.0))


def test_an_error_of_the_group_ends_the_wait_for_a_position(owner: Script) -> None:
    owner.machine.seek(tp(0), LATEST)
    owner.up(ErrorRaised(error=TransportError("unreachable")))
    with pytest.raises(TransportError):
        owner.run(owner.machine.position(owner.now, tp(0), 10.0))


@pytest.mark.parametrize(
    "verb",
    [
        lambda machine: machine.seek(tp(9), 0),
        lambda machine: machine.pause([tp(9)]),
        lambda machine: machine.resume([tp(9)]),
        lambda machine: machine.lag(tp(9)),
        lambda machine: machine.revoke_deadline(0.0, tp(9)),
        lambda machine: next(machine.position(0.0, tp(9), 1.0)),
    ],
)
def test_what_is_not_assigned_is_refused(owner: Script, verb: Any) -> None:
    with pytest.raises(ValueError, match="t-9 is not assigned"):
        verb(owner.machine)


def test_positions_are_known_with_what_fences_them(owner: Script) -> None:
    owner.fetched(0, 0, 5)
    owner.poll()
    owner.machine.seek(tp(1), 7)
    found = owner.machine.positions()
    assert found[tp(0)] == (1, 0, 5)
    assert found[tp(1)] == (1, 1, 7)


@pytest.mark.requirement("surface/lag")
def test_the_lag_is_known_from_what_was_fetched(owner: Script) -> None:
    assert owner.machine.lag(tp(0)) is None
    owner.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=0, chunk=None, next_offset=10, high_watermark=25))
    assert owner.machine.lag(tp(0)) == 15
    owner.machine.seek(tp(0), LATEST)
    assert owner.machine.lag(tp(0)) is None


@pytest.mark.requirement("surface/lag")
def test_the_lag_is_known_from_an_end_that_came_without_records(owner: Script) -> None:
    """As of a partition that begins at its end."""
    owner.up(EndsFound(ends=(EndFound(tp(0), 1, 0), EndFound(tp(1), 1, 12), EndFound(tp(9), 1, 12))))
    assert (owner.machine.lag(tp(0)), owner.machine.lag(tp(1))) == (0, 12)
    owner.up(EndsFound(ends=(EndFound(tp(0), 0, 40), EndFound(tp(1), 1, 5))))
    assert owner.machine.lag(tp(0)) == 0, "of an assignment that is over"
    assert owner.machine.lag(tp(1)) == 5, "the log was cut"


def test_an_end_that_came_before_its_assignment_was_taken_is_kept() -> None:
    script = Script()
    script.subscribe()
    script.assigned(0)
    script.up(EndsFound(ends=(EndFound(tp(0), 1, 3),)))
    script.machine.assignment()
    script.poll()
    assert script.machine.lag(tp(0)) == 3


@pytest.mark.vector(73)
def test_a_position_that_a_seek_overtook_is_not_taken(owner: Script) -> None:
    owner.machine.seek(tp(0), LATEST)
    owner.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=7))
    with pytest.raises(KafkaTimeoutError):
        owner.run(owner.machine.position(owner.now, tp(0), 0.0))
    owner.up(Positioned(partition=tp(0), epoch=1, seek_number=1, offset=90))
    assert owner.run(owner.machine.position(owner.now, tp(0), 0.0)) == 90


def test_a_position_that_comes_twice_moves_nothing_back(owner: Script) -> None:
    owner.fetched(0, 0, 5)
    assert owner.poll() == [(0, 0, 5)]
    owner.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
    assert owner.run(owner.machine.position(owner.now, tp(0), 0.0)) == 5


# --- pause and resume ---------------------------------------------------------------------------------------


@pytest.mark.vector(50)
def test_what_is_buffered_survives_a_pause(owner: Script) -> None:
    owner.fetched(0, 0, 5)
    owner.fetched(1, 0, 2)
    assert owner.poll(limit=3) == [(0, 0, 3)]
    owner.machine.pause([tp(0)])
    owner.machine.pause([tp(0)])
    assert owner.machine.paused() == {tp(0)}
    assert owner.poll() == [(1, 0, 2)]
    owner.machine.resume([tp(0)])
    owner.machine.resume([tp(0)])
    assert owner.poll() == [(0, 3, 5)]
    assert owner.take_posted(Pause) == [Pause(partition=tp(0), epoch=1)]
    assert owner.take_posted(Resume) == [Resume(partition=tp(0), epoch=1)]


@pytest.mark.vector(51)
def test_after_a_seek_during_a_pause_nothing_of_before_is_returned(owner: Script) -> None:
    owner.fetched(0, 0, 5)
    owner.machine.pause([tp(0)])
    owner.machine.seek(tp(0), 40)
    owner.machine.resume([tp(0)])
    owner.fetched(0, 5, 9)
    assert owner.poll() == []


@pytest.mark.vector(76)
def test_what_is_to_be_revoked_is_not_shown_as_paused(owner: Script) -> None:
    owner.machine.pause([tp(1)])
    owner.revocation_requested(0)
    owner.fetched(0, 0, 5)
    assert owner.poll() == []
    assert owner.to_be_revoked() == {0}
    assert owner.machine.paused() == {tp(1)}


@pytest.mark.vector(53)
@pytest.mark.vector(54)
def test_an_error_of_a_partition_is_raised_once_when_all_before_it_was_returned(owner: Script) -> None:
    owner.fetched(0, 0, 2)
    owner.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=TransportError("no good")))
    owner.fetched(1, 0, 1)
    assert owner.poll() == [(0, 0, 2), (1, 0, 1)]
    with pytest.raises(TransportError, match="no good"):
        owner.poll()
    owner.fetched(1, 1, 2)
    assert owner.poll() == [(1, 1, 2)]


# --- KIP-983 ------------------------------------------------------------------------------------------------


@pytest.mark.rule("deadline")
def test_the_deadline_of_a_revoke_is_known_in_seconds(owner: Script) -> None:
    assert owner.machine.revoke_deadline(owner.now, tp(1)) is None
    owner.revocation_requested(1, deadline=owner.now + 30)
    owner.poll()
    assert owner.machine.revoke_deadline(owner.now + 10, tp(1)) == 20
    assert owner.machine.revoke_deadline(owner.now + 31, tp(1)) == 0
    owner.up(DeadlineMoved(partitions={tp(1): 1, tp(5): 1, tp(0): 9}, deadline=owner.now + 60))
    assert owner.machine.revoke_deadline(owner.now, tp(1)) == 60
    assert owner.machine.revoke_deadline(owner.now, tp(0)) is None


def test_delaying_is_refused_with_auto_commit() -> None:
    script = Script(enable_auto_commit=True)
    script.subscribe()
    script.assigned(0)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    assert script.delay() is True, "nothing is nothing"
    with pytest.raises(ConfigError, match="enable_auto_commit"):
        script.delay(0)


@pytest.mark.requirement("KIP-983/16")
@pytest.mark.rule("deadline")
def test_past_its_deadline_a_delay_is_refused_even_before_a_poll_tells_of_it(owner: Script) -> None:
    owner.revocation_requested(0, 1)
    owner.poll()
    owner.lost(1)
    assert owner.delay(0, 1) is False
    assert owner.to_be_revoked() == {1}, "the other is delayed, and the lists move at a poll only"
    assert owner.lost_partitions() == set()
    owner.poll()
    assert owner.lost_partitions() == {1}


# --- questions ----------------------------------------------------------------------------------------------


def test_committed_offsets_are_the_response(owner: Script) -> None:
    found = {tp(0): OffsetAndMetadata(offset=3)}
    call = owner.machine.committed(owner.now, [("t", 0)], 10.0)  # type: ignore[list-item]  # any such tuple
    assert completed(owner, call, FetchCommitted, result=found) == found


def test_offsets_by_time_are_the_response(owner: Script) -> None:
    call = owner.machine.offsets_for(owner.now, {tp(0): EARLIEST}, 10.0)
    found = {tp(0): OffsetAndTimestamp(offset=3, timestamp=-1)}
    assert completed(owner, call, FetchOffsets, result=found) == {tp(0): 3}


@pytest.mark.requirement("surface/offsets-for-times")
def test_offsets_for_times_are_none_where_no_record_is_as_late(owner: Script) -> None:
    call = owner.machine.offsets_for_times(owner.now, {("t", 0): 5, ("t", 1): 6}, 10.0)  # type: ignore[dict-item]
    early = OffsetAndTimestamp(offset=3, timestamp=7, leader_epoch=1)
    found = {tp(0): early, tp(1): OffsetAndTimestamp(offset=-1, timestamp=-1)}
    assert completed(owner, call, FetchOffsets, result=found) == {tp(0): early, tp(1): None}


def test_a_time_before_1970_is_refused(owner: Script) -> None:
    with pytest.raises(ValueError, match="t-0"):
        owner.run(owner.machine.offsets_for_times(owner.now, {tp(0): -2}, 10.0))
    assert owner.take_posted(FetchOffsets) == []


@pytest.mark.parametrize("names", [None, ("t",)])
def test_topics_are_the_response(owner: Script, names: tuple[str, ...] | None) -> None:
    found = {"t": (PartitionInfo(topic="t", partition=0, leader=None),)}
    call = owner.machine.topics(owner.now, names, 10.0, internal=False)
    owner.start(call)
    (event,) = owner.take_posted(FetchMetadata)
    assert event == FetchMetadata(call=event.call, deadline=owner.now + 10, topics=names, internal=False)
    owner.up(CallCompleted(call=event.call, result=found))
    with pytest.raises(StopIteration) as end:
        call.send(owner.now)
    assert end.value.value == found


@pytest.mark.parametrize("names", [("",), (1,)])
def test_a_topic_that_is_looked_up_has_a_name(owner: Script, names: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        owner.run(owner.machine.topics(owner.now, names, 10.0, internal=True))


def test_committed_offsets_of_several_are_requested_once(owner: Script) -> None:
    call = owner.machine.committed(owner.now, [tp(0), tp(1), tp(0)], 10.0)
    owner.start(call)
    (event,) = owner.take_posted(FetchCommitted)
    assert event.partitions == (tp(0), tp(1))


def test_a_response_that_is_an_error_is_raised(owner: Script) -> None:
    call = owner.machine.offsets_for(owner.now, {tp(0): EARLIEST}, 10.0)
    owner.start(call)
    (event,) = owner.take_posted(FetchOffsets)
    owner.up(CallCompleted(call=event.call, error=KafkaTimeoutError("no leader")))
    with pytest.raises(KafkaTimeoutError, match="no leader"):
        call.send(owner.now)


class Found(dict[TopicPartition, int]):
    """A result of which can be seen whether anybody has it still."""


def is_kept_by_nobody(script: Script, call: int) -> bool:
    """Whether a response to this call is forgotten once a poll has taken it."""
    result = Found()
    seen = weakref.ref(result)
    script.up(CallCompleted(call=call, result=result))
    del result
    script.poll()
    gc.collect()
    return seen() is None


def test_a_late_response_of_a_call_that_gave_up_is_kept_by_nobody(owner: Script) -> None:
    call = owner.machine.offsets_for(owner.now, {tp(0): EARLIEST}, 1.0)
    with pytest.raises(KafkaTimeoutError):
        owner.run(call)
    (event,) = owner.take_posted(FetchOffsets)
    assert is_kept_by_nobody(owner, event.call)


def test_an_interrupted_call_leaves_nothing_behind(owner: Script) -> None:
    call = owner.machine.offsets_for(owner.now, {tp(0): EARLIEST}, 1.0)
    owner.start(call)
    call.close()
    (event,) = owner.take_posted(FetchOffsets)
    assert is_kept_by_nobody(owner, event.call)


def test_partitions_may_be_plain_tuples(owner: Script) -> None:
    owner.machine.pause([("t", 0)])  # type: ignore[list-item]  # any such tuple
    assert owner.machine.paused() == {TopicPartition("t", 0)}


# --- patterns -----------------------------------------------------------------------------------------------


def test_a_pattern_is_told_and_its_topics_are_known_when_they_match() -> None:
    script = Script()
    script.machine.subscribe(None, None, "fl.*")
    (event,) = script.take_posted(Subscribe)
    assert event == Subscribe(topics=frozenset(), pattern=re.compile("fl.*"), listener=False)
    assert script.machine.subscription() == set()
    assert script.poll() == [], "a pattern is a subscription, whatever it matches"
    script.up(SubscriptionMatched(pattern=re.compile("fl.*"), topics=frozenset({"flights"})))
    assert script.machine.subscription() == {"flights"}
    with pytest.raises(IllegalStateError):
        script.machine.assign([tp(0)])


def test_topics_of_a_pattern_that_is_over_are_not_the_subscription() -> None:
    script = Script()
    script.machine.subscribe(None, None, "fl.*")
    script.machine.subscribe(["t"], None)
    script.up(SubscriptionMatched(pattern=re.compile("fl.*"), topics=frozenset({"flights"})))
    assert script.machine.subscription() == {"t"}


def test_the_same_pattern_again_keeps_its_topics_and_another_does_not() -> None:
    script = Script()
    script.machine.subscribe(None, None, "fl.*")
    script.up(SubscriptionMatched(pattern=re.compile("fl.*"), topics=frozenset({"flights"})))
    script.poll()
    script.machine.subscribe(None, RecordingListener(), "fl.*")
    assert script.machine.subscription() == {"flights"}
    script.machine.subscribe(None, None, "x.*")
    assert script.machine.subscription() == set()


def test_after_unsubscribe_a_pattern_is_gone() -> None:
    script = Script()
    script.machine.subscribe(None, None, "fl.*")
    script.run(script.machine.unsubscribe(script.now, 1.0))
    with pytest.raises(IllegalStateError, match="call subscribe"):
        script.poll()


@pytest.mark.parametrize(
    ("topics", "pattern", "error"),
    [
        (None, None, TypeError),
        (["t"], "t", TypeError),
        (None, "(", ValueError),
        (None, re.compile(b"t"), TypeError),
        (None, ["fl.*"], TypeError),
        (["^fl.*"], None, ValueError),
        (["\ud800"], None, ValueError),
    ],
)
def test_a_wrong_pattern_changes_nothing(topics: Any, pattern: Any, error: type[Exception]) -> None:
    script = Script()
    script.subscribe()
    script.take_posted(Subscribe)
    with pytest.raises(error):
        script.machine.subscribe(topics, None, pattern)
    assert script.posted == []
    assert script.machine.subscription() == {"t"}


@pytest.mark.requirement("surface/settings-while-running")
@pytest.mark.rule("M")
def test_fairness_may_change_between_two_polls() -> None:
    script = Script()
    script.subscribe()
    script.assigned(0, 1)
    script.fetched(0, 0, 10)
    script.fetched(1, 0, 10)
    assert script.poll(limit=4) == [(0, 0, 4)]
    config = replace(script.config, fetch_fairness="proportional")
    script.machine.change_settings(config, tell=True)
    assert script.take_posted(ChangeSettings) == [ChangeSettings(config=config)]
    assert sorted(script.poll(limit=4)) == [(0, 4, 6), (1, 0, 2)]
    script.machine.change_settings(replace(config, max_poll_records=7), tell=False)
    assert script.take_posted(ChangeSettings) == []


# --- what comes late, and what has no records ---------------------------------------------------------------


def test_a_beginning_that_was_found_for_an_older_seek_moves_nothing(owner: Script) -> None:
    owner.machine.seek(tp(0), 30)
    owner.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=5))
    assert owner.run(owner.machine.position(owner.now, tp(0), 1.0)) == 30
    owner.machine.seek(tp(1), EARLIEST)
    owner.up(Positioned(partition=tp(1), epoch=1, seek_number=0, offset=5))
    owner.up(Positioned(partition=tp(1), epoch=1, seek_number=1, offset=8))
    assert owner.run(owner.machine.position(owner.now, tp(1), 1.0)) == 8


def empty_batch(script: Script, start: int, next_offset: int) -> None:
    """A control or aborted batch: it has offsets and no records."""
    script.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=start, chunk=None, next_offset=next_offset))


def test_a_batch_without_records_from_before_a_seek_moves_nothing_and_takes_no_room(owner: Script) -> None:
    owner.machine.seek(tp(0), 30)
    empty_batch(owner, 0, 12)
    assert owner.poll() == []
    assert owner.take_posted(Consumed) == []
    assert owner.run(owner.machine.position(owner.now, tp(0), 1.0)) == 30


def test_one_poll_reads_across_a_batch_without_records(owner: Script) -> None:
    owner.fetched(0, 0, 4)
    empty_batch(owner, 4, 6)
    owner.fetched(0, 6, 9)
    assert owner.poll(limit=5) == [(0, 0, 4), (0, 6, 7)]
    assert owner.run(owner.machine.position(owner.now, tp(0), 1.0)) == 7
    assert owner.poll() == [(0, 7, 9)]


# --- metrics ------------------------------------------------------------------------------------------------


def test_metrics_tell_the_lag_of_what_is_known(owner: Script) -> None:
    owner.fetched(0, 0, 4)
    owner.up(Fetched(partition=tp(0), epoch=1, fetch_number=0, start=4, chunk=None, next_offset=4, high_watermark=10))
    owner.poll()
    found = owner.machine.metrics(NetworkMeter(), owner.now)
    lags = {dict(name.tags)["partition"]: value for name, value in found.items() if name.name == "records-lag"}
    assert lags == {"0": 6.0}, "of partition 1 no end is known"
    assert {dict(name.tags)["client-id"] for name in found} == {"instride"}
    assigned = [value for name, value in found.items() if name.name == "assigned-partitions"]
    assert assigned == [2.0]


def test_metrics_tell_what_is_buffered_and_may_be(owner: Script) -> None:
    found = owner.machine.metrics(NetworkMeter(), owner.now, Buffered(nbytes=60, limit=300))
    values = {name.name: value for name, value in found.items()}
    assert (values["buffered-bytes"], values["buffered-bytes-limit"]) == (60.0, 300.0)


def test_of_positions_that_come_together_each_is_judged_alone() -> None:
    """One is of an assignment that no poll has taken, one of one that is over, and one was sought meanwhile."""
    script = Script()
    script.subscribe()
    script.up(Assigned(generation=1, partitions=epochs(0, 1, 2)))
    script.poll()
    script.machine.seek(tp(2), 40)
    script.up(Assigned(generation=2, partitions={tp(3): 2}))
    found = [(0, 1), (1, 0), (2, 1), (3, 2)]
    where = tuple(Positioned(partition=tp(p), epoch=epoch, seek_number=0, offset=7) for p, epoch in found)
    script.up(PositionsFound(positions=where))
    assert {tp.partition: position for tp, (_, _, position) in script.machine.positions().items()} == {
        0: 7,
        1: None,
        2: 40,
    }
    script.poll()
    assert script.machine.positions()[tp(3)] == (2, 0, 7)
