"""A partition that looks for its position, or that a rebalance takes away, and the fetches of the others."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Consumed, Fetched, Positioned
from instride._core.network.ranges import RangeChunk
from instride._wire import api

REBALANCE_IN_PROGRESS = 27


def records(partition: int, start: int, end: int) -> api.FetchedPartition:
    chunk = RangeChunk(topic="t", partition=partition, first_offset=start, next_offset=end)
    return api.FetchedPartition(chunk=chunk, next_offset=end, high_watermark=1000)  # type: ignore[arg-type]


def response(script: NetworkScript, **partitions: api.FetchedPartition) -> None:
    found: dict[tuple[str, int], api.FetchedPartition] = {tp(int(name[1:])): each for name, each in partitions.items()}
    script.response(api.Fetch, api.FetchResponse(partitions=found))


def fetched(script: NetworkScript) -> list[tuple[int, int]]:
    """(partition, next offset) of what went up."""
    return [(each.partition.partition, each.next_offset) for each in script.take(Fetched)]


def waiting_fetches(script: NetworkScript) -> dict[int, int]:
    requests = [each.request for each in script.waiting if isinstance(each.request, api.Fetch)]
    return {each.partition: each.offset for request in requests for each in request.partitions}


@pytest.mark.vector(57)
def test_a_partition_that_looks_for_its_position_stops_no_other() -> None:
    script = NetworkScript()
    script.committed_offset = None
    script.member_of(1, 0, 1)
    found: dict[tuple[str, int], api.CommittedOffset]
    found = {tp(0): api.CommittedOffset(offset=7), tp(1): api.CommittedOffset(offset=-1)}
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=found))
    assert script.requested(api.ListOffsets).timestamps.keys() == {tp(1)}
    assert waiting_fetches(script) == {0: 7}
    response(script, p0=records(0, 7, 9))
    assert fetched(script) == [(0, 9)]
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(1): api.ListedOffset(offset=3)}))
    assert [each.offset for each in script.take(Positioned) if each.partition == tp(1)] == [3]
    response(script, p0=records(0, 9, 9))
    assert waiting_fetches(script)[1] == 3


@pytest.mark.vector(49)
def test_an_eager_rebalance_drops_what_is_under_way() -> None:
    script = NetworkScript(assignors=["range"])
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    response(script, p0=records(0, 0, 5), p1=records(1, 0, 5))
    assert fetched(script) == []


@pytest.mark.requirement("KIP-429/15")
@pytest.mark.vector(49)
@pytest.mark.vector(39)
def test_a_cooperative_rebalance_keeps_what_is_under_way_of_what_stays() -> None:
    script = NetworkScript()
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    response(script, p0=records(0, 0, 5), p1=records(1, 0, 5))
    assert fetched(script) == [(0, 5), (1, 5)], "the join is pending"
    script.rebalance(2, 0)
    response(script, p0=records(0, 5, 6), p1=records(1, 5, 6))
    assert fetched(script) == [(0, 6)], "1 is to be revoked"


@pytest.mark.vector(45)
@pytest.mark.requirement("KIP-41/12")
def test_nothing_is_fetched_while_a_poll_can_be_filled() -> None:
    script = NetworkScript(prefetch="total", max_poll_records=2)
    script.member_of(1, 0)
    response(script, p0=records(0, 0, 3))
    assert waiting_fetches(script) == {}
    script.do(Consumed(partitions={tp(0): (script.epoch(0), 0, 2, 0)}))
    assert waiting_fetches(script) == {0: 3}, "one is left, and two make a poll"
