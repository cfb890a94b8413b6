"""A partition that looks for its position, that a rebalance takes away or whose batches are large, and the others."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Assign, Consumed, Fetched, Positioned
from instride._core.network.actions import Transmit
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride.errors import FrameTooLargeError

REBALANCE_IN_PROGRESS = 27
KIB = 1 << 10
MIB = 1 << 20


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


def forty_brokers() -> NetworkScript:
    """Each leads one partition, which is read to its end."""
    script = NetworkScript(topics={"t": 40}, group_id=None)
    script.nodes = tuple(range(40))
    script.leaders = {node: node for node in script.nodes}
    script.do(Assign(partitions={tp(node): node + 1 for node in script.nodes}))
    for request in [each for each in script.waiting if isinstance(each.request, api.ListOffsets)]:
        assert isinstance(request.request, api.ListOffsets)
        offsets = {each: api.ListedOffset(offset=0) for each in request.request.timestamps}
        script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=offsets))
    return script


def fetches_by_node(script: NetworkScript) -> dict[int, Transmit]:
    return {each.key.node_id: each for each in script.waiting if isinstance(each.request, api.Fetch)}


def too_long(script: NetworkScript, nodes: range, length: int) -> None:
    """What these brokers have is longer than their fetches allow."""
    for node in nodes:
        action = fetches_by_node(script)[node]
        script.waiting.remove(action)
        script.open.discard(action.key)
        script.machine.closed(action.key, FrameTooLargeError("too long", length=length), script.now)
    script.pass_time(0.2)


def nothing_new(script: NetworkScript, node: int) -> None:
    action = fetches_by_node(script)[node]
    script.waiting.remove(action)
    found: dict[tuple[str, int], api.FetchedPartition]
    found = {tp(node): api.FetchedPartition(next_offset=0, high_watermark=0)}
    script.machine.response_received(action.request_id, api.FetchResponse(partitions=found), script.now)
    script.settle()


def test_large_batches_of_several_brokers_are_fetched_beside_each_other() -> None:
    script = forty_brokers()
    too_long(script, range(5), 600 * KIB)
    nothing_new(script, 20)
    assert sorted(fetches_by_node(script)) == list(range(40))
    assert sum(each.request.most_bytes for each in script.waiting if isinstance(each.request, api.Fetch)) < 64 * MIB


def test_a_broker_that_waits_for_another_ones_large_batch_makes_no_third_wait() -> None:
    script = forty_brokers()
    too_long(script, range(3), 40 * MIB)
    assert {0, 1, 2} & fetches_by_node(script).keys() == {0}, "the others wait for its memory"
    nothing_new(script, 20)
    assert 20 in fetches_by_node(script)
    nothing_new(script, 0)
    assert {0, 1, 2} & fetches_by_node(script).keys() == {1}, "one after the other"
