"""Fetch sessions (KIP-227), quotas (KIP-219) and connections of brokers that have gone, as the brokers see them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Close, Fetched, PartitionFailed, Pause
from instride._core.network.actions import ConnectionKey, Role
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride.errors import ErrorCode, TransportError

A, B = UUID(int=1), UUID(int=2)


def numbers(partitions: tuple[api.FetchPartition, ...]) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in partitions]


# --- in the fetcher -----------------------------------------------------------------------------------------


class Fetching(NetworkScript):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.topic_ids = {"t": A}
        self.by_id = True
        self.member_of(1, 0, 1)

    def reply(self, *, session_id: int = 7, error: int = 0, throttle_time: float = 0.0, **records: int) -> None:
        """p0=3: three records of partition 0. To the oldest fetch."""
        request = next(each.request for each in self.waiting if isinstance(each.request, api.Fetch))
        known = {each.partition: each for each in (*request.known.values(), *request.partitions)}
        found: dict[api.Partition, api.FetchedPartition] = {
            tp(int(name[1:])): self.chunk(int(name[1:]), known[int(name[1:])].offset, count)
            for name, count in records.items()
        }
        response = api.FetchResponse(
            error=error, session_id=session_id, partitions=found, throttle_time=throttle_time, by_id=self.by_id
        )
        self.response(api.Fetch, response)

    def chunk(self, partition: int, start: int, count: int) -> api.FetchedPartition:
        chunk = RangeChunk(topic="t", partition=partition, first_offset=start, next_offset=start + count)
        end = start + count
        return api.FetchedPartition(chunk=chunk if count else None, next_offset=end, high_watermark=end)  # type: ignore[arg-type]

    def request(self) -> api.Fetch:
        return self.requested(api.Fetch)


@pytest.mark.requirement("surface/fetch-sessions")
def test_the_second_fetch_names_only_what_has_moved() -> None:
    script = Fetching()
    assert (script.request().session_id, script.request().session_epoch) == (0, 0)
    script.reply(p0=3, p1=0)
    request = script.request()
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert numbers(request.partitions) == [(0, 3)]
    script.reply(p1=2)
    assert numbers(script.request().partitions) == [(1, 2)]
    assert [(each.partition.partition, each.next_offset) for each in script.take(Fetched)] == [(0, 3), (1, 2)]


def test_a_session_that_a_broker_ends_in_its_response_begins_anew() -> None:
    script = Fetching()
    script.reply(p0=0, p1=0)
    assert script.request().session_epoch == 1
    script.reply(session_id=0, p0=3)
    request = script.request()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert sorted(numbers(request.partitions)) == [(0, 3), (1, 0)]
    assert [each.next_offset for each in script.take(Fetched)] == [3], "what it brought is taken"


@pytest.mark.requirement("surface/fetch-sessions")
def test_a_session_names_everything_again_from_time_to_time() -> None:
    """A request that was damaged on the way: the broker's session has partition 5 for 1, and is silent of 1."""
    script = Fetching(metadata_max_age=60.0)
    script.reply(p0=0, p1=0)
    epochs = []
    for _ in range(4):
        request = script.request()
        epochs.append(request.session_epoch)
        script.pass_time(20.0)
        script.reply()
    assert epochs == [1, 2, 3, 0]
    assert (request.session_id, sorted(numbers(request.partitions))) == (7, [(0, 0), (1, 0)])
    script.reply(p1=2)
    assert script.request().session_epoch == 2, "that is enough for as long again"


def test_what_is_paused_is_forgotten() -> None:
    script = Fetching()
    script.reply(p0=0, p1=0)
    script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    script.reply()
    assert numbers(script.request().forgotten) == [(0, 0)]
    assert set(script.request().known) == {tp(1)}


@pytest.mark.requirement("surface/fetch-sessions")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
def test_a_lost_session_is_made_anew_at_once_and_nobody_hears_of_it(code: int) -> None:
    script = Fetching()
    script.reply(p0=3, p1=0)
    script.reply(error=code)
    request = script.request()
    assert (request.session_id, request.session_epoch) == (0 if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND else 7, 0)
    assert sorted(numbers(request.partitions)) == [(0, 3), (1, 0)]
    assert script.take(PartitionFailed) == []


def test_a_broker_that_refuses_every_session_is_not_asked_without_a_pause() -> None:
    script = Fetching()
    script.reply(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert "Fetch" not in script.waits()
    script.pass_time(1.0)
    assert script.request().session_epoch == 0


def test_a_broken_connection_costs_the_session() -> None:
    script = Fetching()
    script.reply(p0=3, p1=0)
    script.response(api.Fetch, TransportError("gone"))
    script.pass_time(1.0)
    assert (script.request().session_id, script.request().session_epoch) == (7, 0)


def test_each_lane_has_a_session_of_its_own() -> None:
    script = Fetching()
    script.reply(p0=0, p1=0)
    found = replace(script.chunk(0, 0, 1), high_watermark=100)
    script.response(api.Fetch, api.FetchResponse(session_id=7, partitions={tp(0): found}))
    lanes = {each.key.role: each.request for each in script.waiting if isinstance(each.request, api.Fetch)}
    assert (lanes[Role.DATA].session_id, lanes[Role.DATA].session_epoch) == (0, 0)
    assert (lanes[Role.TAIL].session_id, numbers(lanes[Role.TAIL].forgotten)) == (7, [(0, 0)])


def test_a_topic_that_was_made_anew_is_requested_in_a_new_session() -> None:
    script = Fetching()
    script.reply(p0=3, p1=0)
    script.topic_ids = {"t": B}
    script.fresh_metadata()
    script.reply(p0=1)
    assert [each.next_offset for each in script.take(Fetched)] == [3], "of the old topic"
    assert "Fetch" not in script.waits(), "both wait for their reset"


@pytest.mark.requirement("surface/fetch-sessions")
def test_closing_tells_the_broker_to_forget_and_fetches_no_more() -> None:
    script = Fetching()
    script.reply(p0=3, p1=0)
    script.do(Close(call=1, deadline=script.now + 5.0))
    fetches = [each.request for each in script.waiting if isinstance(each.request, api.Fetch)]
    assert (fetches[-1].session_id, fetches[-1].session_epoch, fetches[-1].partitions) == (7, -1, ())
    script.reply(p0=1)
    assert len([each for each in script.waiting if isinstance(each.request, api.Fetch)]) == 1


def test_what_was_fetched_says_by_which_topic_id() -> None:
    """By name: Kafka 2.8 and 3.0 know ids, and fetch by names all the same."""
    script = Fetching()
    script.reply(p0=3, p1=0)
    assert [each.topic_id for each in script.take(Fetched)] == [A]
    script.by_id = False
    script.reply(p0=2)
    assert [each.topic_id for each in script.take(Fetched)] == [None]


def test_closing_without_a_session_says_nothing() -> None:
    script = Fetching()
    script.reply(session_id=0, p0=3, p1=0)
    script.do(Close(call=1, deadline=script.now + 5.0))
    assert [each for each in script.waiting if isinstance(each.request, api.Fetch)][1:] == []


# --- quotas (KIP-219) ---------------------------------------------------------------------------------------


@pytest.mark.requirement("surface/throttling")
def test_a_broker_that_throttles_is_not_asked_before_its_time() -> None:
    script = Fetching()
    script.reply(throttle_time=3.0, session_id=0)
    assert script.take(PartitionFailed) == []
    script.pass_time(2.9)
    assert "Fetch" not in script.waits()
    script.pass_time(0.2)
    assert sorted(numbers(script.request().partitions)) == [(0, 0), (1, 0)]


def test_a_throttle_time_is_believed_for_request_timeout_at_most() -> None:
    script = Fetching(request_timeout=5.0)
    script.reply(throttle_time=2e6, session_id=0)
    script.pass_time(4.9)
    assert "Fetch" not in script.waits()
    script.pass_time(0.2)
    assert "Fetch" in script.waits()


@pytest.mark.requirement("surface/throttling")
def test_the_other_lanes_response_does_not_shorten_a_throttle_time() -> None:
    script = Fetching()
    behind = replace(script.chunk(0, 0, 1), high_watermark=100)
    script.response(api.Fetch, api.FetchResponse(session_id=7, partitions={tp(0): behind}))
    assert script.waits().count("Fetch") == 2, "one partition lags, the other is read to its end"
    script.reply(throttle_time=3.0)
    script.reply(throttle_time=0.5)
    script.pass_time(2.9)
    assert "Fetch" not in script.waits()
    script.pass_time(0.2)
    assert "Fetch" in script.waits()


@pytest.mark.requirement("surface/throttling")
@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_throttle_time_beside_an_error_is_obeyed(code: int) -> None:
    script = Fetching()
    script.reply(p0=3, p1=0)
    script.reply(throttle_time=3.0, error=code)
    script.pass_time(2.9)
    assert "Fetch" not in script.waits()
    script.pass_time(0.2)
    assert script.request().session_epoch == 0


@pytest.mark.requirement("surface/throttling")
def test_what_a_throttled_response_brings_is_taken() -> None:
    script = Fetching()
    script.reply(throttle_time=1.0, p0=3)
    assert [each.next_offset for each in script.take(Fetched)] == [3]
    assert "Fetch" not in script.waits()
    script.pass_time(1.1)
    assert script.request().session_epoch == 1


# --- connections of brokers that have gone --------------------------------------------------------------------


def test_connections_to_brokers_that_left_the_metadata_are_closed() -> None:
    script = NetworkScript()
    script.nodes, script.leaders = (1, 2), {0: 1, 1: 2}
    script.member_of(1, 0, 1)
    tail = ConnectionKey(Role.TAIL, 2)
    assert tail in script.open
    script.nodes, script.leaders = (1,), {0: 1, 1: 1}
    script.fresh_metadata()
    script.pass_time(1.0)
    assert tail not in script.open
    assert all(each.key.node_id == 1 for each in script.waiting)
    assert "Fetch" in script.waits()
