"""A partition that lags never waits for one that is read to its end."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import LATEST, Consumed, EndsFound, Fetched, SetPosition
from instride._core.network.actions import Role
from instride._core.network.ranges import RangeChunk
from instride._wire import api


def fetches(script: NetworkScript) -> dict[Role, list[int]]:
    """Which partitions are requested, on which connection."""
    return {
        each.key.role: sorted(part.partition for part in each.request.partitions)
        for each in script.waiting
        if isinstance(each.request, api.Fetch)
    }


def wait_of(script: NetworkScript, role: Role) -> float:
    (request,) = [
        each.request for each in script.waiting if each.key.role is role and isinstance(each.request, api.Fetch)
    ]
    return request.max_wait


def response(script: NetworkScript, role: Role, **found: tuple[int, int]) -> None:
    """Respond to a fetch: p0=(next offset, high watermark) ..."""
    action = next(each for each in script.waiting if each.key.role is role and isinstance(each.request, api.Fetch))
    assert isinstance(action.request, api.Fetch)
    partitions = {}
    for part in action.request.partitions:
        end, high_watermark = found.get(f"p{part.partition}", (part.offset, part.offset))
        chunk = RangeChunk(
            topic="t", partition=part.partition, first_offset=part.offset, next_offset=end, nbytes=end - part.offset
        )
        partitions[part.topic, part.partition] = api.FetchedPartition(
            high_watermark=high_watermark,
            chunk=chunk if end > part.offset else None,  # type: ignore[arg-type]  # records are not looked at
            next_offset=end,
        )
    script.waiting.remove(action)
    script.machine.response_received(action.request_id, api.FetchResponse(partitions=partitions), script.now)
    script.settle()


def silence(script: NetworkScript, role: Role) -> None:
    """Respond to a fetch: nothing has news."""
    action = next(each for each in script.waiting if each.key.role is role and isinstance(each.request, api.Fetch))
    script.waiting.remove(action)
    script.machine.response_received(action.request_id, api.FetchResponse(session_id=7), script.now)
    script.settle()


def test_the_first_fetch_asks_for_all_and_waits_as_long_as_it_may() -> None:
    script = NetworkScript()
    script.member_of(1, 0, 1, 2)
    assert fetches(script) == {Role.TAIL: [0, 1, 2]}
    assert wait_of(script, Role.TAIL) == script.config.fetch_max_wait


def test_lagging_partitions_have_a_fetch_of_their_own() -> None:
    script = NetworkScript()
    script.member_of(1, 0, 1, 2)
    response(script, Role.TAIL, p0=(10, 1000), p1=(10, 10))
    assert fetches(script) == {Role.DATA: [0], Role.TAIL: [1, 2]}
    response(script, Role.DATA, p0=(20, 1000))
    assert fetches(script) == {Role.DATA: [0], Role.TAIL: [1, 2]}, "it did not wait for the others"


def test_a_fetch_at_the_end_that_leaves_one_out_waits_briefly() -> None:
    script = NetworkScript(fetch_buffer_bytes=100, max_partition_fetch_bytes=100)
    script.member_of(1, 0, 1)
    response(script, Role.TAIL, p0=(60, 60))
    assert fetches(script) == {Role.TAIL: [1]}, "0 is full: a quarter of 100 bytes is its share"
    assert wait_of(script, Role.TAIL) == 0.05
    script.do(Consumed(partitions={tp(0): (script.epoch(0), 0, 60, 60)}))
    response(script, Role.TAIL)
    assert fetches(script) == {Role.TAIL: [0, 1]}
    assert wait_of(script, Role.TAIL) == script.config.fetch_max_wait


def test_what_is_requested_is_not_requested_twice() -> None:
    script = NetworkScript()
    script.member_of(1, 0)
    response(script, Role.TAIL, p0=(5, 1000))
    script.pass_time(0.2)
    assert fetches(script) == {Role.DATA: [0]}


def test_an_end_that_a_throttling_broker_does_not_state_does_not_make_us_spin() -> None:
    """A fetch that asks for it is not to be held back, and no end is guessed: the broker has not looked."""
    script = NetworkScript()
    script.member_of(1, 0, 1)
    response(script, Role.TAIL)
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=5))
    requested, until = 0, script.now + 2.0
    while script.now < until:
        for each in [each for each in script.waiting if each.key.role is Role.DATA]:
            assert wait_of(script, Role.DATA) == 0.0
            requested += 1
            script.waiting.remove(each)
            throttled = api.FetchResponse(session_id=7, throttle_time=0.001)
            script.machine.response_received(each.request_id, throttled, script.now)
        script.pass_time(0.001)
    assert 8 < requested <= 24
    assert [each.end for event in script.take(EndsFound) for each in event.ends] == [0, 0], "before the seek"
    script.pass_time(1.0)
    (waiting,) = [each for each in script.waiting if each.key.role is Role.DATA]
    stated = api.FetchResponse(session_id=7, partitions={tp(0): api.FetchedPartition(next_offset=5, high_watermark=9)})
    script.machine.response_received(waiting.request_id, stated, script.now)
    script.settle()
    assert [each.end for event in script.take(EndsFound) for each in event.ends] == [9]


@pytest.mark.parametrize("told", ["left out by the session", "without an end"])
def test_a_response_that_tells_no_end_does_not_make_us_spin(told: str) -> None:
    """After seek_to_end: the session has told of that end before, and leaves out what has no news."""
    script = NetworkScript()
    script.member_of(1, 0, 1)
    response(script, Role.TAIL, p0=(10, 1000), p1=(10, 10))
    response(script, Role.DATA, p0=(20, 1000))
    epoch = script.epoch(0)
    script.do(SetPosition(partition=tp(0), epoch=epoch, seek_number=1, fetch_number=1, offset=LATEST))
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=1000)}))
    response(script, Role.DATA, p0=(30, 1000))  # of before the seek
    assert fetches(script) == {Role.DATA: [0], Role.TAIL: [1]}
    assert wait_of(script, Role.DATA) == 0.0, "it does not wait for a fetch that was sent without it"
    if told == "without an end":
        response(script, Role.DATA, p0=(1000, -1))
    else:
        silence(script, Role.DATA)
    assert fetches(script) == {Role.TAIL: [1]}
    response(script, Role.TAIL)
    assert fetches(script) == {Role.TAIL: [0, 1]}
    response(script, Role.TAIL, p0=(1005, 1005))
    assert [each.start for each in script.take(Fetched) if each.fetch_number == 1] == [1000]
