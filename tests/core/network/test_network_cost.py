"""The network side's work grows with the partitions, and no faster: twice as many, twice the steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from network_script import NetworkScript, tp

from held_bytes import bytes_of
from instride._core.events import (
    Assign,
    Assigned,
    Commit,
    Consumed,
    Fetched,
    Lost,
    PartitionFailed,
    Pause,
    Polled,
    Positioned,
    Revoked,
)
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride._wire.record_chunk import Piece
from instride.commits import CommitEntry
from instride.errors import ErrorCode
from step_counter import calls, steps

pytestmark = pytest.mark.rule("20")

FEW = 100
REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID = 27, 25


def member(many: int) -> NetworkScript:
    script = NetworkScript(topics={"t": many})
    script.member_of(1, *range(many))
    return script


def assign(many: int) -> Callable[[], object]:
    return lambda: member(many)


def request_revocation(many: int) -> Callable[[], object]:
    script = member(many)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    return lambda: script.rebalance(2)


def complete(many: int) -> Callable[[], object]:
    script = member(many)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2)
    return lambda: script.complete(*range(many))


def reassign(many: int) -> Callable[[], object]:
    script = member(many)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    return lambda: script.rebalance(3, *range(many))


def lose(many: int) -> Callable[[], object]:
    script = member(many)
    script.commit(dict.fromkeys(range(many), 1))
    return lambda: script.heartbeat(UNKNOWN_MEMBER_ID)


def commit_one_by_one(many: int) -> Callable[[], object]:
    script = member(many)
    epoch = script.epoch(0)

    def commit() -> None:
        for p in range(many):
            entries = {tp(p): CommitEntry(offset=1, epoch=epoch + p, seek_number=0)}
            script.machine.handle(Commit(call=p + 1, deadline=script.now + 60, entries=entries), script.now)
        script.settle()
        script.committed()

    return commit


def fetch_from_each_of_so_many_brokers(many: int) -> Callable[[], object]:
    script = NetworkScript(topics={"t": many}, group_id=None)
    script.nodes, script.leaders = tuple(range(1, many + 1)), {p: p + 1 for p in range(many)}
    script.do(Assign(partitions={tp(p): p + 1 for p in range(many)}))
    for p in range(many):
        start = api.ListOffsetsResponse(offsets={tp(p): api.ListedOffset(offset=0)})
        script.response(api.ListOffsets, start, settle=False)
    return script.settle


@pytest.mark.parametrize(
    "situation",
    [
        assign,
        request_revocation,
        complete,
        reassign,
        lose,
        commit_one_by_one,
        fetch_from_each_of_so_many_brokers,
    ],
)
def test_twice_the_partitions_take_twice_the_steps(situation: Callable[[int], Callable[[], object]]) -> None:
    few, many = steps(situation(FEW)), steps(situation(2 * FEW))
    assert many <= 2.1 * few, f"{few} steps with {FEW} partitions, {many} with twice as many"


def assign_by_hand(many: int) -> Callable[[], object]:
    """Until every partition is in a fetch session, at its end."""
    script = NetworkScript(topics={"t": many}, group_id=None)
    wanted = Assign(partitions={tp(p): p + 1 for p in range(many)})
    starts = api.ListOffsetsResponse(offsets={tp(p): api.ListedOffset(offset=0) for p in range(many)})
    ends: dict[api.Partition, api.FetchedPartition] = {
        tp(p): api.FetchedPartition(high_watermark=0, next_offset=0) for p in range(many)
    }

    def assign() -> None:
        script.do(wanted)
        script.response(api.ListOffsets, starts)
        script.response(api.Fetch, api.FetchResponse(session_id=7, partitions=ends))
        script.response(api.Fetch, api.FetchResponse(session_id=7))

    return assign


def test_a_partition_that_is_assigned_takes_as_many_calls_among_ten_times_as_many() -> None:
    few, many = calls(assign_by_hand(FEW)) / FEW, calls(assign_by_hand(10 * FEW)) / (10 * FEW)
    assert many <= few, f"{few} calls a partition among {FEW}, {many} among ten times as many"
    assert many <= 197  # 181 with Python 3.11; newer ones count some more of what is written in C


def test_an_assignment_makes_as_many_events_for_a_hundred_partitions_as_for_two() -> None:
    """Each event costs the application's thread more than what it says."""
    two, hundred = member(2), member(100)
    assert hundred.events == two.events
    (assigned,) = hundred.take(Assigned)
    assert len(assigned.partitions) == len(hundred.take(Positioned)) == 100


def test_beginnings_that_one_response_finds_are_one_event() -> None:
    script = NetworkScript(topics={"t": 100}, group_id=None)
    script.do(Assign(partitions={tp(p): p + 1 for p in range(100)}))
    before = script.events
    starts: dict[api.Partition, api.ListedOffset] = {tp(p): api.ListedOffset(offset=p) for p in range(100)}
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=starts))
    assert script.events == before + 1
    assert [(each.partition, each.offset) for each in script.take(Positioned)] == [(tp(p), p) for p in range(100)]


def idle(many: int) -> NetworkScript:
    """All of them are at their end, in a fetch session that is told of no news."""
    script = NetworkScript(topics={"t": many})
    script.member_of(1, *range(many))
    ends: dict[api.Partition, api.FetchedPartition] = {
        tp(p): api.FetchedPartition(high_watermark=0, next_offset=0) for p in range(many)
    }
    script.response(api.Fetch, api.FetchResponse(session_id=7, partitions=ends))
    script.response(api.Fetch, api.FetchResponse(session_id=7))
    return script


def a_turn(script: NetworkScript) -> Callable[[], object]:
    return lambda: script.do(Polled(at=script.now))


def a_silent_fetch(script: NetworkScript) -> Callable[[], object]:
    return lambda: script.response(api.Fetch, api.FetchResponse(session_id=7))


def a_record(script: NetworkScript) -> Callable[[], object]:
    chunk = RangeChunk(topic="t", partition=3, first_offset=0, next_offset=1)
    one = api.FetchedPartition(high_watermark=1, next_offset=1, chunk=chunk)  # type: ignore[arg-type]
    return lambda: script.response(api.Fetch, api.FetchResponse(session_id=7, partitions={tp(3): one}))


def a_pause(script: NetworkScript) -> Callable[[], object]:
    return lambda: script.do(Pause(partition=tp(3), epoch=script.epoch(3)))


def delayed(many: int) -> NetworkScript:
    """The revocation of all but a few is requested, and the application delays it."""
    script = idle(many)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, *range(10))
    script.response(api.Fetch, api.FetchResponse(session_id=7))
    return script


@pytest.fixture(scope="module", params=[idle, delayed])
def idle_ones(request: pytest.FixtureRequest) -> tuple[NetworkScript, NetworkScript]:
    return request.param(100), request.param(10_000)


@pytest.mark.parametrize("situation", [a_turn, a_silent_fetch, a_record, a_pause])
def test_idle_partitions_cost_nothing_in_a_turn(
    situation: Callable[[NetworkScript], Callable[[], object]], idle_ones: tuple[NetworkScript, NetworkScript]
) -> None:
    few, many = (steps(situation(each)) for each in idle_ones)
    assert many <= few + 20, f"{few} steps with 100 partitions, {many} with 10,000"


def steps_where_all_but_one_are_denied(many: int) -> int:
    script = NetworkScript(topics={"t": many})
    script.member_of(1, *range(many))
    denied = api.FetchedPartition(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    came: dict[api.Partition, api.FetchedPartition] = dict.fromkeys(map(tp, range(1, many)), denied)
    came[tp(0)] = api.FetchedPartition(high_watermark=0, next_offset=0)
    script.response(api.Fetch, api.FetchResponse(session_id=7, partitions=came))
    script.response(api.Fetch, api.FetchResponse(session_id=7))
    return steps(a_silent_fetch(script))


def test_what_is_denied_costs_the_responses_of_the_others_nothing() -> None:
    few, many = steps_where_all_but_one_are_denied(FEW), steps_where_all_but_one_are_denied(10 * FEW)
    assert many <= few + 20, f"{few} steps with {FEW} partitions, {many} with ten times as many"


class Waiting:
    """Batches of one record each, of `size` bytes in memory, that came in little more than nothing."""

    length = 1024
    next_offset = 3

    def __init__(self, partition: int, size: int) -> None:
        self.partition, self.size, self.offset = partition, size, 0

    @property
    def done(self) -> bool:
        return self.offset == self.next_offset

    @property
    def nbytes(self) -> int:
        return self.length

    def decode(self, target: int, capacity: int, *, alone: bool = False) -> Piece | None:
        if self.size > capacity and not alone:
            return None
        start, self.offset = self.offset, self.offset + 1
        chunk = RangeChunk(
            topic="t", partition=self.partition, first_offset=start, next_offset=self.offset, nbytes=self.size
        )
        return Piece(chunk=chunk, next_offset=self.offset, nbytes=self.size)  # type: ignore[arg-type]

    def detach(self, most: int = -1, *, usual: int = 0, stays: bool = False) -> None:
        pass


def lagging(many: int, shares: int) -> NetworkScript:
    """Something came of each, and is decoded as far as there is capacity. A batch fills the shares of so many."""
    script = NetworkScript(topics={"t": many})
    script.member_of(1, *range(many))
    size = script.config.fetch_buffer_bytes // (2 * many) * shares
    came: dict[api.Partition, api.FetchedPartition] = {
        tp(p): api.FetchedPartition(next_offset=0, high_watermark=1000, undecoded=Waiting(p, size)) for p in range(many)
    }
    script.response(api.Fetch, api.FetchResponse(session_id=7, partitions=came))
    script.do(Polled(at=script.now))  # what was decoded in the last turn is looked at once more
    return script


def a_batch_that_is_consumed(script: NetworkScript) -> Callable[[], object]:
    taken = script.take(Fetched)[0]
    assert taken.chunk is not None
    partition, nbytes = taken.partition, taken.chunk.nbytes
    consumed = Consumed(partitions={partition: (script.epoch(partition.partition), 0, 1, nbytes)})

    def consume() -> None:
        script.do(consumed)
        assert len(script.take(Fetched)) == 1

    return consume


@pytest.fixture(scope="module", params=[1, 4], ids=["all full", "some wait for capacity"])
def lagging_ones(request: pytest.FixtureRequest) -> tuple[NetworkScript, NetworkScript]:
    few, many = lagging(100, request.param), lagging(2000, request.param)
    assert len([each for each in many.delivered if isinstance(each, Fetched)]) == 2000 // request.param
    return few, many


@pytest.mark.parametrize("situation", [a_turn, a_pause, a_batch_that_is_consumed])
def test_undecoded_partitions_cost_nothing_in_a_turn(
    situation: Callable[[NetworkScript], Callable[[], object]], lagging_ones: tuple[NetworkScript, NetworkScript]
) -> None:
    few, many = (steps(situation(each)) for each in lagging_ones)
    assert many <= few + 20, f"{few} steps with 100 partitions, {many} with 2,000"


def steps_of_a_failed_partition(many: int) -> int:
    """In a turn, after an assign() took the place of another one, of which so many commits have no response."""
    script = NetworkScript(topics={"t": many + 1})
    script.do(Assign(partitions={tp(p): p + 1 for p in range(many)}))
    entries = {tp(p): CommitEntry(offset=1, epoch=p + 1, seek_number=0) for p in range(many)}
    script.do(Commit(call=1, deadline=script.now + 60, entries=entries), Assign(partitions={tp(many): many + 1}))
    before = steps(a_turn(script))
    failed = api.FetchedPartition(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    while not script.take(PartitionFailed):
        script.response(api.Fetch, api.FetchResponse(partitions={tp(many): failed}))
    script.do(Polled(at=script.now))
    assert "OffsetCommit" in script.waits()
    return steps(a_turn(script)) - before


def test_outstanding_commits_cost_nothing_where_no_committed_offset_is_searched() -> None:
    few, many = steps_of_a_failed_partition(FEW), steps_of_a_failed_partition(10 * FEW)
    assert many <= few + 20, f"{few} steps with {FEW} outstanding commits, {many} with ten times as many"


def test_a_loss_at_the_deadline_is_one_line_that_names_twenty() -> None:
    script = member(50)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2)
    while not script.take(Lost):
        script.pass_time(script.config.heartbeat_interval)
        script.do(Polled(at=script.now))
        for request in script.waits():
            if request == "Heartbeat":
                script.response(api.Heartbeat, api.HeartbeatResponse(error=0))
    told = [line for line in script.logs if "was not complete at its deadline" in line]
    assert len(told) == 1
    assert "t-19 and 30 more" in told[0]


def test_an_idle_partition_costs_little_memory() -> None:
    script, bytes_kept = bytes_of("network", lambda: idle(1000))
    assert script.epoch(999) == 1000
    assert bytes_kept < 2000 * 1000, bytes_kept


def test_what_is_complete_at_one_time_is_told_at_one_time() -> None:
    """A thousand partitions that are let go are one event, not a thousand."""
    script = member(50)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2)
    script.complete(*range(50))
    (revoked,) = script.take(Revoked)
    assert revoked.partitions.keys() == {tp(p) for p in range(50)}
