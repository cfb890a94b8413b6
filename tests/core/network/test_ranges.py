"""A RangeConsumer's side of the network: how far the logs reach, and nothing fetched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    EARLIEST,
    LATEST,
    Consumed,
    EndFound,
    EndsFound,
    Fetched,
    PartitionFailed,
    Pause,
    Polled,
    Resume,
    SetPosition,
    Unsubscribe,
)
from instride._core.network.machine import NetworkMachine
from instride._core.network.ranges import RangeChunk
from instride._core.session_lease import Lease
from instride._wire import api
from instride.errors import ErrorCode, OffsetOutOfRangeError, TopicRecreatedError, TransportError
from instride.records import OffsetRange
from step_counter import steps


class Ranging(NetworkScript):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.lease = Lease()
        self.wall_clock = 1_700_000_000.0
        self.machine = NetworkMachine(
            self.config, lease=self.lease, random=lambda: 0.5, wall_clock=lambda: self.wall_clock, ranges=True
        )

    def ends(self, error: int = 0, **ends: int) -> None:
        """p0=..., p1=...: respond how far the logs reach."""
        listed = {("t", int(name[1:])): api.ListedOffset(offset=end, error=error) for name, end in ends.items()}
        self.response(api.ListOffsets, api.ListOffsetsResponse(offsets=listed))

    def ranges(self) -> list[tuple[int, int, int]]:
        """A poll takes all that is there."""
        found, consumed = [], {}
        for event in self.take(Fetched):
            assert event.chunk is not None
            found.append((event.partition.partition, event.chunk.first_offset, event.next_offset))
            consumed[event.partition] = (event.epoch, event.fetch_number, len(event.chunk), 0)
        if consumed:
            self.do(Consumed(partitions=consumed))
        return found

    def asks_for(self) -> set[int]:
        """Of which partitions the ends are requested now."""
        requests = [each.request for each in self.waiting if isinstance(each.request, api.ListOffsets)]
        assert all(set(request.timestamps.values()) == {LATEST} for request in requests)
        return {partition for request in requests for _, partition in request.timestamps}


def idle(many: int) -> Ranging:
    """All of them are at their end, and the next look is a second away."""
    script = Ranging(range_poll_interval=1.0, topics={"t": many})
    script.member_of(1, *range(many))
    script.ends(**{f"p{each}": 0 for each in range(many)})
    return script


def a_turn(script: Ranging) -> Callable[[], object]:
    return lambda: script.do(Polled(at=script.now))


def a_pause(script: Ranging) -> Callable[[], object]:
    return lambda: script.do(Pause(partition=tp(3), epoch=script.epoch(3)))


def what_is_consumed(script: Ranging) -> Callable[[], object]:
    return lambda: script.do(Consumed(partitions={tp(3): (script.epoch(3), 0, 1, 0)}))


@pytest.fixture(scope="module")
def idle_ones() -> tuple[Ranging, Ranging]:
    return idle(100), idle(10_000)


@pytest.mark.rule("20")
@pytest.mark.parametrize("situation", [a_turn, a_pause, what_is_consumed])
def test_idle_partitions_cost_nothing_in_a_turn_between_two_looks(
    situation: Callable[[Ranging], Callable[[], object]], idle_ones: tuple[Ranging, Ranging]
) -> None:
    few, many = (steps(situation(each)) for each in idle_ones)
    assert many <= few + 20, f"{few} steps with 100 partitions, {many} with 10,000"


def test_ends_that_have_not_moved_are_looked_at_once() -> None:
    """A look at a thousand quiet partitions: their leaders, one request, one comparison for each."""
    script = idle(1000)

    def look() -> None:
        script.pass_time(1.0)
        script.ends(**{f"p{each}": 0 for each in range(1000)})

    look()
    taken = steps(look)
    assert taken < 200 * 1000, f"{taken} steps; it was 426 for each partition"


@pytest.fixture
def script() -> Ranging:
    made = Ranging(range_poll_interval=1.0)
    made.member_of(1, 0, 1)
    return made


def test_ranges_follow_each_other_without_a_gap_and_nothing_is_fetched(script: Ranging) -> None:
    assert script.requested(api.ListOffsets).timestamps == {tp(0): LATEST, tp(1): LATEST}
    script.ends(p0=10, p1=0)
    assert script.ranges() == [(0, 0, 10)], "what is empty is no range"
    script.pass_time(1.0)
    script.ends(p0=15, p1=3)
    assert script.ranges() == [(0, 10, 15), (1, 0, 3)]
    assert "Fetch" not in script.waits()


@pytest.mark.requirement("surface/lag")
def test_an_end_where_a_partition_begins_is_told_once(script: Ranging) -> None:
    """It gives no range, and without it no lag would be known."""
    script.ends(p0=10, p1=0)
    assert script.ranges() == [(0, 0, 10)]
    (event,) = script.take(EndsFound)
    assert event.ends == (EndFound(tp(1), script.epoch(1), 0),), "of the other its range tells"
    script.pass_time(1.0)
    script.ends(p0=10, p1=0)
    assert script.take(EndsFound) == []


@pytest.mark.requirement("surface/byte-bounds")
def test_one_range_of_a_partition_waits_for_its_poll_however_much_the_log_grows(script: Ranging) -> None:
    """While nobody polls, one more came each interval: all of them were kept."""
    script.ends(p0=10, p1=0)
    for _ in range(3):
        script.pass_time(1.0)
        assert script.asks_for() == {1}
        script.ends(p1=0)
    script.do(Consumed(partitions={tp(0): (script.epoch(0), 0, 4, 0)}))
    script.pass_time(1.0)
    assert script.asks_for() == {1}, "a part of it is left"


def hears_at_once(script: Ranging) -> bool:
    return script.machine.waits_for_capacity


def test_a_partition_whose_range_was_taken_is_asked_about_at_once_if_that_is_due(script: Ranging) -> None:
    assert not hears_at_once(script)
    script.ends(p0=10, p1=10)
    script.pass_time(5.0)
    assert script.asks_for() == set()
    assert hears_at_once(script), "so what a poll takes wakes the network thread"
    assert script.ranges() == [(0, 0, 10), (1, 0, 10)]
    assert script.asks_for() == {0, 1}
    assert not hears_at_once(script)
    script.ends(p0=15, p1=10)
    assert script.ranges() == [(0, 10, 15)]
    script.pass_time(0.9)
    assert script.asks_for() == set(), "not before the interval is over"
    script.pass_time(0.1)
    assert script.asks_for() == {0, 1}


def test_the_ends_are_requested_each_interval(script: Ranging) -> None:
    script.ends(p0=1, p1=1)
    script.ranges()
    script.pass_time(0.9)
    assert "ListOffsets" not in script.waits()
    script.pass_time(0.1)
    script.requested(api.ListOffsets)


def test_read_committed_asks_for_the_last_stable_offset() -> None:
    script = Ranging(isolation_level="read_committed")
    script.member_of(1, 0)
    assert script.requested(api.ListOffsets).read_committed


def test_a_response_from_before_a_seek_is_dropped(script: Ranging) -> None:
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=4))
    script.ends(p0=10, p1=10)
    assert script.ranges() == [(1, 0, 10)]
    script.pass_time(1.0)
    script.ends(p0=12, p1=10)
    assert script.ranges() == [(0, 4, 12)]


@pytest.mark.rule("14")
def test_a_response_that_was_under_way_when_it_was_paused_is_taken(script: Ranging) -> None:
    epoch = script.epoch(0)
    script.do(Pause(partition=tp(0), epoch=epoch))
    script.ends(p0=10, p1=10)
    assert script.ranges() == [(0, 0, 10), (1, 0, 10)]
    script.pass_time(1.0)
    assert set(script.requested(api.ListOffsets).timestamps) == {tp(1)}
    script.ends(p1=10)
    script.do(Resume(partition=tp(0), epoch=epoch))
    script.pass_time(1.0)
    script.ends(p0=12, p1=10)
    assert script.ranges() == [(0, 10, 12)]


def test_an_error_of_one_partition_stops_no_other(script: Ranging) -> None:
    listed = {("t", 0): api.ListedOffset(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), ("t", 1): api.ListedOffset(offset=4)}
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=listed))
    assert script.ranges() == [(1, 0, 4)]
    script.pass_time(1.0)
    script.ends(p0=2, p1=4)
    assert script.ranges() == [(0, 0, 2)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_partition_that_is_refused_for_long_is_asked_about_ever_more_seldom(code: int) -> None:
    script = Ranging(range_poll_interval=0.1)
    script.member_of(1, 0)
    refused, before = 0, script.metadata_responses
    for _ in range(200):
        if script.asks_for():
            refused += 1
            script.ends(error=code, p0=-1)
        script.pass_time(0.05)
    assert refused <= 16, "in ten seconds"
    assert script.metadata_responses - before <= 16
    for _ in range(100):
        if script.asks_for():
            break
        script.pass_time(0.05)
    script.ends(p0=3)
    assert script.ranges() == [(0, 0, 3)]
    script.pass_time(0.1)
    assert script.asks_for() == {0}, "it is well again"


def test_a_seek_ends_the_back_off_of_a_partition_that_was_refused() -> None:
    script = Ranging(range_poll_interval=0.1, retry_backoff_max=60.0)
    script.member_of(1, 0)
    refused = 0
    while refused < 6:
        if script.asks_for():
            refused += 1
            script.ends(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, p0=-1)
        script.pass_time(0.05)
    script.pass_time(1.0)
    assert script.asks_for() == set()
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=4))
    script.pass_time(0.1)
    assert script.asks_for() == {0}


def test_a_broker_that_does_not_respond_is_asked_again(script: Ranging) -> None:
    script.response(api.ListOffsets, TransportError("gone"))
    script.pass_time(2.0)
    script.ends(p0=2, p1=4)
    assert script.ranges() == [(0, 0, 2), (1, 0, 4)]


def test_a_partition_without_a_leader_is_looked_for_again() -> None:
    script = Ranging(topics={"t": 1}, range_poll_interval=1.0)
    script.committed_offset = 0
    script.member_of(1, 0, 1)
    script.ends(p0=1)
    script.topics["t"] = 2
    script.pass_time(3.0)
    script.ends(p0=1, p1=1)
    assert (1, 0, 1) in script.ranges()


def test_an_end_that_is_behind_gives_no_range(script: Ranging) -> None:
    script.ends(p0=10, p1=0)
    assert script.ranges() == [(0, 0, 10)]
    script.pass_time(1.0)
    script.ends(p0=8, p1=0)
    assert script.ranges() == []


def test_a_chunk_splits_into_ranges_that_meet() -> None:
    chunk = RangeChunk(topic="t", partition=3, first_offset=10, next_offset=30, leader_epoch=2)
    first, rest = chunk.split(5)
    assert (len(first), len(rest), first.last_offset, rest.first_offset) == (5, 15, 14, 15)
    assert first.records(epoch=4, seek_number=1) == [
        OffsetRange(topic="t", partition=3, start=10, end=15, epoch=4, seek_number=1, leader_epoch=2)
    ]
    with pytest.raises(TypeError, match="ranges of offsets"):
        chunk.to_arrow()


def test_a_chunk_is_one_range_however_it_is_gone_over() -> None:
    chunk = RangeChunk(topic="t", partition=3, first_offset=5, next_offset=9)
    (run,) = chunk.record_runs(epoch=1, seek_number=2)
    assert run == chunk.records(epoch=1, seek_number=2)


def test_a_log_that_ends_before_the_position_twice_is_out_of_range(script: Ranging) -> None:
    """As a fetch would find it: the topic may have been made anew, or the log cut."""
    script.ends(p0=10, p1=0)
    script.ranges()
    script.pass_time(1.0)
    before = script.metadata_responses
    script.ends(p0=4, p1=0)
    script.pass_time(1.0)
    assert script.metadata_responses > before
    assert script.take(PartitionFailed) == [], "a new leader may not know all at once"
    script.ends(p0=4, p1=0)
    script.log_reaches(0, 4)
    (event,) = script.take(PartitionFailed)
    assert (event.partition, event.reset) == (tp(0), EARLIEST)
    assert isinstance(event.error, OffsetOutOfRangeError)


def test_a_log_that_ends_before_the_position_once_is_asked_again(script: Ranging) -> None:
    script.ends(p0=10, p1=0)
    found = script.ranges()
    for end in (4, 10, 4, 12):
        script.pass_time(1.0)
        script.ends(p0=end, p1=0)
        found += script.ranges()
    assert script.take(PartitionFailed) == []
    assert found == [(0, 0, 10), (0, 10, 12)]


def test_a_position_behind_the_last_stable_offset_is_looked_up_once() -> None:
    """A transaction is open, and another consumer of the group has committed past it."""
    script = Ranging(range_poll_interval=1.0, isolation_level="read_committed")
    script.committed_offset = 10
    script.member_of(1, 0)
    script.ends(p0=5)
    script.pass_time(1.0)
    script.ends(p0=5)
    script.log_reaches(0, 12)
    for stable in (5, 5, 6, 7):
        script.pass_time(1.0)
        assert script.asks_for() == {0}
        script.ends(p0=stable)
    script.fresh_metadata()
    script.ends(p0=7)
    assert len([line for line in script.logs if "out of range" in line]) == 1, "metadata that say nothing new"
    script.leader_epochs = {0: 1}
    script.fresh_metadata()
    script.pass_time(1.0)
    script.ends(p0=7)
    script.log_reaches(0, 12)
    script.pass_time(1.0)
    script.ends(p0=13)
    assert script.ranges() == [(0, 10, 13)]
    assert script.take(PartitionFailed) == []
    script.do(Unsubscribe(call=99, deadline=script.now + 10.0))
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    script.waiting.clear()
    script.pass_time(2.0)
    assert script.asks_for() == set()


def test_a_position_that_is_sought_beyond_the_end_again_is_out_of_range_again() -> None:
    """Else the partition would stand still, and nobody would say why."""
    script = Ranging(range_poll_interval=1.0, isolation_level="read_committed", auto_offset_reset="none")
    script.committed_offset = 100
    script.member_of(1, 0)
    for number in (1, 2, 3):
        script.ends(p0=50)
        script.pass_time(1.0)
        script.ends(p0=50)
        script.log_reaches(0, 50)
        (failed,) = script.take(PartitionFailed)
        assert isinstance(failed.error, OffsetOutOfRangeError)
        epoch = script.epoch(0)
        script.do(SetPosition(partition=tp(0), epoch=epoch, seek_number=number, fetch_number=number, offset=100))
        script.pass_time(2.0)


def test_a_topic_that_was_made_anew_is_told_though_its_log_is_longer(script: Ranging) -> None:
    script.topic_ids = {"t": UUID(int=1)}
    script.fresh_metadata()
    script.ends(p0=10, p1=0)
    script.topic_ids = {"t": UUID(int=2)}
    script.fresh_metadata()
    failed = script.take(PartitionFailed)
    assert {type(event.error) for event in failed} == {TopicRecreatedError}
    assert {event.reset for event in failed} == {EARLIEST}
    assert script.ranges() == [(0, 0, 10)]


def test_leaders_get_requests_in_their_epoch_and_a_new_one_validates_the_position() -> None:
    script = Ranging(range_poll_interval=1.0)
    script.leader_epochs = {0: 3}
    script.member_of(1, 0)
    assert script.requested(api.ListOffsets).leader_epochs == {tp(0): 3}
    listed = api.ListedOffset(offset=10, leader_epoch=3)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): listed}))
    script.leader_epochs = {0: 4}
    script.fresh_metadata()
    assert script.requested(api.OffsetForLeaderEpoch).epochs == {tp(0): 3}


def test_an_epoch_that_the_leader_never_knew_keeps_no_range_from_coming() -> None:
    """Law 4 of the cluster: it may have been damaged on the way."""
    script = Ranging(range_poll_interval=1.0)
    script.topic_ids = {"t": UUID(int=1)}
    script.leader_epochs = {0: 1 << 20}
    script.member_of(1, 0)
    script.leader_epochs = {0: 3}
    for _ in range(3):
        assert script.requested(api.ListOffsets).leader_epochs == {tp(0): 1 << 20}
        script.ends(error=ErrorCode.UNKNOWN_LEADER_EPOCH, p0=-1)
        script.pass_time(2.0)
    assert script.requested(api.ListOffsets).leader_epochs == {tp(0): 3}
