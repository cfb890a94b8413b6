"""The network side's telemetry: phases of rebalances, delays that take long, partitions that stand still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assign,
    Assigned,
    BackgroundEvent,
    Consumed,
    DelayExplained,
    FetchesBegan,
    Lost,
    Noticed,
    PartitionsAssigned,
    Pause,
    Polled,
    RevocationRequested,
    Revoked,
    Unsubscribe,
)
from instride._core.network.machine import NetworkMachine
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride.errors import ErrorCode, TransportError
from instride.telemetry import (
    Blocker,
    DelayAtRisk,
    FetchBegan,
    PartitionFlows,
    PartitionStalled,
    RebalanceEnded,
    RebalanceOutcome,
    RebalanceStarted,
    StallCause,
    TelemetryEvent,
)
from step_counter import steps

E = TypeVar("E")


def noticed(event: BackgroundEvent) -> Sequence[TelemetryEvent]:
    """What it tells telemetry."""
    if isinstance(event, FetchesBegan):
        return event.began
    return [event.event] if isinstance(event, Noticed) else []


class MonitorScript(NetworkScript):
    """With a fetch whose response is what the test says."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(heartbeat_interval=1.0, request_timeout=3600.0, **settings)

    def noticed(self, kind: type[E]) -> list[E]:
        """Events of the kind since the last look."""
        told = [(event, each) for event in self.delivered for each in noticed(event) if isinstance(each, kind)]
        taken = [event for event, _ in told]
        self.delivered = [event for event in self.delivered if event not in taken]
        return [each for _, each in told]

    def live_for(self, seconds: int) -> None:
        """Heartbeats get their responses, and the application polls."""
        for _ in range(seconds):
            self.heartbeat()
            self.do(Polled(at=self.now))

    def fetched(self, start: int, end: int, *, high_watermark: int) -> None:
        chunk = RangeChunk(topic="t", partition=0, first_offset=start, next_offset=end)
        part = api.FetchedPartition(
            chunk=chunk,  # type: ignore[arg-type]  # a chunk without record objects will do
            next_offset=end,
            high_watermark=high_watermark,
        )
        self.response(api.Fetch, api.FetchResponse(partitions={("t", 0): part}))

    def consumed(self, records: int) -> None:
        self.do(Consumed(partitions={tp(0): (self.epoch(0), 0, records, 0)}))


class RangesScript(MonitorScript):
    """The same of a RangeConsumer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(range_poll_interval=0.5, **settings)
        self.machine = NetworkMachine(
            self.config, lease=self.lease, random=lambda: 0.5, wall_clock=lambda: self.wall_clock, ranges=True
        )


# -- who has a partition


@pytest.mark.rule("19")
def test_the_first_fetch_of_an_assignment_is_told_once() -> None:
    script = MonitorScript()
    script.committed_offset = None
    script.member_of(1, 0)
    assigned_at = script.now
    assert script.noticed(FetchBegan) == []
    script.pass_time(0.5)
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets={("t", 0): api.CommittedOffset(offset=0)}))
    (began,) = script.noticed(FetchBegan)
    assert began == FetchBegan(at=script.now, partition=tp(0), epoch=script.epoch(0), assigned_at=assigned_at)
    assert script.machine.meter.first_fetch_at == {tp(0): script.wall_clock}
    script.fetched(0, 10, high_watermark=10)
    script.requested(api.Fetch)
    assert script.noticed(FetchBegan) == []


@pytest.mark.rule("20")
def test_first_fetches_that_are_sent_in_one_turn_are_one_event() -> None:
    """Of an assignment of thousands: each event costs the application's thread more than what it says."""
    script = MonitorScript(topics={"t": 50})
    script.member_of(1, *range(50))
    (event,) = script.take(FetchesBegan)
    assert sorted(each.partition for each in event.began) == [tp(p) for p in range(50)]


@pytest.mark.rule("19")
def test_what_was_released_is_told_with_its_time_and_not_fetched_first_any_more() -> None:
    script = MonitorScript()
    script.committed_offset = None
    script.member_of(1, 0)
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.rebalance(2)
    script.wall_clock += 7.0
    script.complete(0)
    assert script.machine.meter.released_at == {tp(0): script.wall_clock}
    assert script.machine.meter.first_fetch_at == {}


# -- phases


def test_the_machine_tells_its_rebalances() -> None:
    script = MonitorScript()
    script.member_of(1, 0)
    (started,) = script.noticed(RebalanceStarted)
    assert (started.generation, started.reason) == (-1, "a new membership")
    (ended,) = script.noticed(RebalanceEnded)
    assert (ended.outcome, ended.generation) == (RebalanceOutcome.TAKEN, 1)


def test_what_goes_up_says_when_the_network_side_knew() -> None:
    script = MonitorScript()
    script.now = 200.0
    script.member_of(1, 0, 1)
    assert {event.at for event in script.take(Assigned)} == {200.0}
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.rebalance(2, 1)
    assert [event.at for event in script.take(RevocationRequested)] == [script.now]


# -- metrics


def test_the_connections_measure_what_is_asked() -> None:
    script = MonitorScript()
    script.subscribe()
    script.pass_time(0.5)
    script.rebalance(1, 0)
    meter = script.machine.meter
    assert meter.by_kind["join"].most(script.now) == pytest.approx(500.0)
    assert meter.by_kind["sync"].number == 1
    assert meter.opened.number >= 2, "a broker's and the coordinator's"
    assert meter.closed.number == 1, "bootstrap is done"
    assert meter.sent.number > meter.latency.number > 0


# -- delays


@pytest.fixture
def requested() -> MonitorScript:
    """A member that was requested partition 0, for 100 s."""
    script = MonitorScript(max_poll_interval=101.0, commit_budget=1.0)
    script.member_of(1, 0, 1)
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.rebalance(2, 1)
    script.do(PartitionsAssigned(generation=2))
    assert script.take(RevocationRequested)
    return script


def test_a_delay_is_warned_of_at_half_its_time_once(requested: MonitorScript) -> None:
    requested.do(
        DelayExplained(partitions={tp(0): 1}, blockers={tp(0): Blocker(text="the record at offset 5", offset=5)})
    )
    requested.live_for(48)
    assert requested.noticed(DelayAtRisk) == []
    requested.live_for(4)
    (risk,) = requested.noticed(DelayAtRisk)
    assert (risk.partition, risk.epoch, str(risk.blocker)) == (tp(0), 1, "the record at offset 5")
    assert 46.0 < risk.seconds_left <= 50.0
    (line,) = [each for each in requested.logs if "half of the time" in each]
    assert "t-0" in line
    assert "the record at offset 5" in line
    requested.live_for(10)
    assert requested.noticed(DelayAtRisk) == []


def test_a_blocker_of_an_older_epoch_is_none(requested: MonitorScript) -> None:
    requested.do(
        DelayExplained(partitions={tp(0): 0, tp(3): 1}, blockers={tp(0): Blocker(text="old"), tp(3): Blocker(text="x")})
    )
    requested.live_for(52)
    (risk,) = requested.noticed(DelayAtRisk)
    assert risk.blocker is None


def test_what_came_back_is_at_no_risk(requested: MonitorScript) -> None:
    requested.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    requested.rebalance(3, 0, 1)
    requested.do(PartitionsAssigned(generation=3))
    requested.live_for(60)
    assert requested.noticed(DelayAtRisk) == []


def unsubscribed(script: MonitorScript) -> None:
    """At once: nothing is revoked before, and no event tells of any partition's end."""
    script.do(Unsubscribe(call=1, deadline=script.now))
    assert script.take(Revoked) == []
    assert script.take(Lost) == []


def test_what_an_unsubscribe_has_given_up_is_released_and_at_no_risk(requested: MonitorScript) -> None:
    requested.wall_clock += 7.0
    unsubscribed(requested)
    assert requested.machine.meter.released_at == {tp(0): requested.wall_clock, tp(1): requested.wall_clock}
    requested.pass_time(60.0)
    assert requested.noticed(DelayAtRisk) == []
    assert [each for each in requested.logs if "half of the time" in each] == []


def test_what_was_given_up_before_its_first_fetch_is_not_said_to_be_fetched() -> None:
    script = MonitorScript()
    script.committed_offset = None
    script.member_of(1, 0)
    unsubscribed(script)
    script.do(Assign(partitions={tp(0): 5}))
    found = api.OffsetFetchResponse(offsets={("t", 0): api.CommittedOffset(offset=0)})
    for _ in range(2):  # of both assignments
        script.response(api.OffsetFetch, found)
    assert "Fetch" in script.waits()
    assert (script.noticed(FetchBegan), script.machine.meter.first_fetch_at) == ([], {})


@pytest.mark.rule("20")
def test_what_was_given_up_before_its_first_fetch_is_not_waited_for() -> None:
    """While one is, the monitor looks in each turn."""

    def turn(*, fetched: bool) -> int:
        script = MonitorScript(stalled_after=8.0)
        script.committed_offset = 0 if fetched else None
        script.member_of(1, 0)
        unsubscribed(script)
        script.response(api.LeaveGroup, api.LeaveGroupResponse())
        script.pass_time(2.0)
        return steps(script.turn)

    assert turn(fetched=False) == turn(fetched=True)


# -- partitions that stand still


@pytest.fixture
def reading() -> MonitorScript:
    """A member that fetches partition 0 from offset 0."""
    script = MonitorScript(stalled_after=10.0)
    script.member_of(1, 0)
    return script


def test_records_that_nobody_takes_are_a_stall(reading: MonitorScript) -> None:
    reading.fetched(0, 5, high_watermark=9)
    reading.live_for(14)
    (stalled,) = reading.noticed(PartitionStalled)
    assert (stalled.partition, stalled.cause, stalled.waiting) == (tp(0), StallCause.NOT_TAKEN, 5)
    assert stalled.seconds >= 10.0
    reading.live_for(20)
    assert reading.noticed(PartitionStalled) == [], "it is told once"
    reading.consumed(5)
    reading.live_for(3)
    (flows,) = reading.noticed(PartitionFlows)
    assert flows.seconds >= stalled.seconds
    assert [each for each in reading.logs if "stands still for" in each]
    assert [each for each in reading.logs if "stands still no more" in each]


def test_a_fetch_that_brings_nothing_of_what_is_there_is_a_stall(reading: MonitorScript) -> None:
    reading.fetched(0, 5, high_watermark=9)
    reading.consumed(5)
    reading.live_for(14)
    (stalled,) = reading.noticed(PartitionStalled)
    assert (stalled.cause, stalled.offset, stalled.end) == (StallCause.NOT_FETCHED, 5, 9)


def test_the_end_of_the_log_is_no_stall(reading: MonitorScript) -> None:
    reading.fetched(0, 5, high_watermark=5)
    reading.consumed(5)
    reading.live_for(30)
    assert reading.noticed(PartitionStalled) == []


def test_a_partition_of_which_no_fetch_ever_succeeded_stalls(reading: MonitorScript) -> None:
    """Nobody knows whether it has records: silence of the broker is no end of the log."""
    reading.live_for(14)
    (stalled,) = reading.noticed(PartitionStalled)
    assert (stalled.cause, stalled.offset, stalled.end) == (StallCause.FETCH_FAILS, 0, -1)
    assert stalled.error == "no fetch of it has had a response yet"
    reading.fetched(0, 5, high_watermark=5)
    reading.consumed(5)
    reading.live_for(3)
    assert [each.partition for each in reading.noticed(PartitionFlows)] == [tp(0)]


def test_a_partition_at_its_end_stalls_while_each_fetch_of_it_is_refused(reading: MonitorScript) -> None:
    reading.fetched(0, 5, high_watermark=5)
    reading.consumed(5)
    for _ in range(14):
        refused = {("t", 0): api.FetchedPartition(error=ErrorCode.UNKNOWN_LEADER_EPOCH)}
        reading.response(api.Fetch, api.FetchResponse(partitions=refused))
        reading.live_for(1)
    (stalled,) = reading.noticed(PartitionStalled)
    assert (stalled.cause, stalled.offset, stalled.end) == (StallCause.FETCH_FAILS, 5, 5)
    assert stalled.error == "UnknownLeaderEpochError (error code 75)"
    assert [each for each in reading.logs if "stands still for" in each and stalled.error in each]


def test_a_partition_at_its_end_stalls_while_its_broker_fails_every_fetch(reading: MonitorScript) -> None:
    reading.fetched(0, 5, high_watermark=5)
    reading.consumed(5)
    for _ in range(14):
        reading.response(api.Fetch, api.FetchResponse(error=ErrorCode.UNKNOWN_SERVER_ERROR))
        reading.live_for(1)
    (stalled,) = reading.noticed(PartitionStalled)
    assert (stalled.cause, stalled.offset) == (StallCause.FETCH_FAILS, 5)
    assert "error code -1" in stalled.error


def test_a_partition_whose_end_cannot_be_listed_stalls() -> None:
    script = RangesScript(stalled_after=10.0)
    script.member_of(1, 0)
    for _ in range(14):
        if "ListOffsets" in script.waits():  # not while it backs off
            refused = api.ListedOffset(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={("t", 0): refused}))
        script.live_for(1)
    (stalled,) = script.noticed(PartitionStalled)
    assert stalled.cause is StallCause.FETCH_FAILS
    assert "error code 6" in stalled.error
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={("t", 0): api.ListedOffset(offset=0)}))
    script.live_for(3)
    assert script.noticed(PartitionFlows)
    for _ in range(14):
        script.response(api.ListOffsets, TransportError("the connection broke"))
        script.live_for(1)
    (stalled,) = script.noticed(PartitionStalled)
    assert stalled.error == "the connection broke"


def test_a_long_poll_that_is_not_over_yet_is_no_stall() -> None:
    script = MonitorScript(stalled_after=10.0, fetch_max_wait=20.0)
    script.member_of(1, 0)
    script.live_for(28)
    assert script.noticed(PartitionStalled) == []
    script.live_for(6)
    assert [each.cause for each in script.noticed(PartitionStalled)] == [StallCause.FETCH_FAILS]


def test_a_paused_partition_does_not_stall(reading: MonitorScript) -> None:
    reading.fetched(0, 5, high_watermark=9)
    reading.do(Pause(partition=tp(0), epoch=1))
    reading.live_for(30)
    assert reading.noticed(PartitionStalled) == []


def test_a_partition_without_a_position_stalls() -> None:
    script = MonitorScript(stalled_after=10.0)
    script.committed_offset = None
    script.member_of(1, 0)
    assert "OffsetFetch" in script.waits(), "nobody responds to it"
    script.live_for(14)
    (stalled,) = script.noticed(PartitionStalled)
    assert (stalled.cause, stalled.offset) == (StallCause.NO_POSITION, -1)


def test_what_is_lost_while_it_stalls_is_told_to_stall_no_more(reading: MonitorScript) -> None:
    reading.fetched(0, 5, high_watermark=9)
    reading.live_for(14)
    assert reading.noticed(PartitionStalled)
    reading.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    reading.pass_time(3.0)
    (flows,) = reading.noticed(PartitionFlows)
    assert flows.partition == tp(0)


def test_a_partition_without_a_leader_stalls(reading: MonitorScript) -> None:
    reading.leaders[0] = -1
    reading.response(
        api.Fetch,
        api.FetchResponse(partitions={("t", 0): api.FetchedPartition(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)}),
    )
    reading.live_for(14)
    (stalled,) = reading.noticed(PartitionStalled)
    assert (stalled.cause, stalled.offset) == (StallCause.NO_LEADER, 0)
    reading.leaders[0] = 1
    reading.live_for(4)
    assert [each.partition for each in reading.noticed(PartitionFlows)] == [tp(0)]


def test_a_rebalance_is_taken_when_its_own_assignment_is() -> None:
    """The application may still be at the assignment before."""
    script = MonitorScript()
    script.subscribe()
    script.rebalance(1, 0)
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    script.noticed(RebalanceEnded)
    script.do(PartitionsAssigned(generation=1))
    assert script.noticed(RebalanceEnded) == []
    script.do(PartitionsAssigned(generation=2))
    (ended,) = script.noticed(RebalanceEnded)
    assert (ended.generation, ended.outcome) == (2, RebalanceOutcome.TAKEN)
