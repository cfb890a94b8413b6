"""Fetching: every class of error, stale responses, corrupt bytes; one partition's trouble stops no other."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    EARLIEST,
    LATEST,
    ChangeSettings,
    Consumed,
    EndsFound,
    Fetched,
    PartitionFailed,
    Pause,
    Resume,
    SetPosition,
)
from instride._core.metrics.meters import Buffered
from instride._core.network.machine import NetworkMachine
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride.errors import (
    CorruptRecordError,
    ErrorCode,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    TransportError,
    UnsupportedVersionError,
)

STALE_METADATA = [3, 5, 6, 9, 56, 74, 78, 100, 103]


def data(partition: int, start: int, end: int, *, skip_to: int | None = None) -> api.FetchedPartition:
    """Records [start, end); the position goes on to `skip_to` where that is given."""
    chunk = RangeChunk(topic="t", partition=partition, first_offset=start, next_offset=end)
    return api.FetchedPartition(
        chunk=chunk if end > start else None,  # type: ignore[arg-type]  # a chunk without record objects will do
        next_offset=end if skip_to is None else skip_to,
        high_watermark=10_000,
    )


def response(script: NetworkScript, **partitions: api.FetchedPartition) -> None:
    """p0=..., p1=...: respond to the oldest fetch."""
    found: dict[tuple[str, int], api.FetchedPartition] = {tp(int(name[1:])): each for name, each in partitions.items()}
    script.response(api.Fetch, api.FetchResponse(partitions=found))


def fetches(script: NetworkScript) -> dict[int, int]:
    """Partition -> offset, of every fetch that waits."""
    requests = [each.request for each in script.waiting if isinstance(each.request, api.Fetch)]
    return {each.partition: each.offset for request in requests for each in request.partitions}


@pytest.fixture
def script() -> NetworkScript:
    made = NetworkScript()
    made.member_of(1, 0, 1)
    return made


@pytest.mark.requirement("KIP-41/11")
def test_records_go_up_and_the_next_fetch_goes_on_after_them(script: NetworkScript) -> None:
    response(script, p0=data(0, 0, 5), p1=data(1, 0, 0))
    (event,) = script.take(Fetched)
    assert (event.partition, event.epoch, event.next_offset, event.high_watermark) == (
        tp(0),
        script.epoch(0),
        5,
        10_000,
    )
    assert fetches(script)[0] == 5


@pytest.mark.vector(64)
def test_a_batch_without_records_to_return_moves_the_position_and_is_told(script: NetworkScript) -> None:
    response(script, p0=data(0, 0, 0, skip_to=9))
    (event,) = script.take(Fetched)
    assert (event.chunk, event.next_offset) == (None, 9)
    assert fetches(script)[0] == 9


def test_an_empty_response_tells_of_no_records(script: NetworkScript) -> None:
    response(script, p0=data(0, 0, 0), p1=data(1, 0, 0))
    assert script.take(Fetched) == []
    assert fetches(script) == {0: 0, 1: 0}


def ends(script: NetworkScript) -> list[dict[int, int]]:
    """Of each event: partition -> end."""
    return [{each.partition.partition: each.end for each in event.ends} for event in script.take(EndsFound)]


def at_end(end: int) -> api.FetchedPartition:
    return api.FetchedPartition(next_offset=0, high_watermark=end, last_stable_offset=end - 1)


@pytest.mark.rule("20")
@pytest.mark.requirement("surface/lag")
def test_an_end_that_comes_without_records_is_told_once(script: NetworkScript) -> None:
    """A partition that begins at its end had no lag before its next record came."""
    response(script, p0=at_end(0), p1=at_end(0))
    assert ends(script) == [{0: 0, 1: 0}], "one event, however many partitions"
    response(script, p0=at_end(0), p1=at_end(0))
    assert ends(script) == [], "the broker has no session, and says the same again"
    response(script, p0=at_end(0), p1=at_end(7))
    assert ends(script) == [{1: 7}], "the response was full before it came to it"
    for _ in range(2):  # it lags, and is fetched beside the other
        response(script, p0=at_end(0), p1=at_end(3))
    assert ends(script) == [{1: 3}], "the log was cut"


@pytest.mark.rule("20")
def test_an_end_that_comes_with_records_is_told_with_them(script: NetworkScript) -> None:
    response(script, p0=data(0, 0, 5), p1=data(1, 0, 0))
    assert [event.high_watermark for event in script.take(Fetched)] == [10_000]
    assert ends(script) == [{1: 10_000}]
    response(script, p0=data(0, 5, 5), p1=data(1, 0, 0))
    assert ends(script) == []


def test_an_end_that_moved_back_is_told_besides_the_records(script: NetworkScript) -> None:
    """Of what comes with records the application takes the greater one: a smaller one may be a guess (law 11)."""
    response(script, p0=at_end(50), p1=at_end(0))
    assert ends(script) == [{0: 50, 1: 0}]
    for _ in range(2):  # it lags, and is fetched beside the other
        response(script, p0=replace(data(0, 0, 5), high_watermark=20), p1=at_end(0))
    assert [event.high_watermark for event in script.take(Fetched)] == [20]
    assert ends(script) == [{0: 20}]


@pytest.mark.requirement("surface/lag")
@pytest.mark.parametrize("code", [*STALE_METADATA, 1, 2, 7, 29, 75, -1, 12345])
def test_no_end_is_guessed_where_the_response_refuses_the_partition(script: NetworkScript, code: int) -> None:
    """A program that reads until its lag is 0 would stop with everything unread."""
    response(script, p0=api.FetchedPartition(error=code))
    assert ends(script) == [{1: 0}]


@pytest.mark.requirement("surface/lag")
@pytest.mark.requirement("surface/throttling")
def test_no_end_is_guessed_where_a_broker_throttles_and_states_nothing(script: NetworkScript) -> None:
    script.response(api.Fetch, api.FetchResponse(throttle_time=1.0))
    assert ends(script) == []
    script.pass_time(1.1)
    response(script, p0=at_end(9))
    assert ends(script) == [{0: 9, 1: 0}], "it looked: a session leaves out what has no news"


def test_an_end_that_is_a_guess_is_told_where_none_is_known(script: NetworkScript) -> None:
    """A session leaves out what has no news (law 11), as of a partition that was revoked and came back."""
    response(script)
    assert ends(script) == [{0: 0, 1: 0}]
    response(script, p0=at_end(9))
    assert ends(script) == [{0: 9}]
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=4))
    response(script)
    response(script)
    assert ends(script) == [], "that a seek led elsewhere moves no end"


def test_the_end_of_a_read_committed_fetch_is_the_last_stable_offset() -> None:
    script = NetworkScript(isolation_level="read_committed")
    script.member_of(1, 0)
    response(script, p0=at_end(9))
    assert ends(script) == [{0: 8}]


@pytest.mark.requirement("threading/7")
@pytest.mark.rule("3")
def test_what_was_fetched_for_an_older_fetch_number_is_dropped(script: NetworkScript) -> None:
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=70))
    response(script, p0=data(0, 0, 5), p1=data(1, 0, 2))
    assert [event.partition for event in script.take(Fetched)] == [tp(1)]
    assert fetches(script)[0] == 70


@pytest.mark.rule("14")
@pytest.mark.parametrize("resumed", [False, True])
def test_a_pause_voids_no_fetch_that_is_in_flight(script: NetworkScript, resumed: bool) -> None:
    """What it brings is kept; the next one is not sent before the partition is resumed."""
    epoch = script.epoch(0)
    script.do(Pause(partition=tp(0), epoch=epoch))
    if resumed:
        script.do(Resume(partition=tp(0), epoch=epoch))
    response(script, p0=data(0, 0, 5), p1=data(1, 0, 2))
    found = [(event.partition, event.fetch_number, event.start, event.next_offset) for event in script.take(Fetched)]
    assert found == [(tp(0), 0, 0, 5), (tp(1), 0, 0, 2)]
    assert fetches(script) == ({0: 5, 1: 2} if resumed else {1: 2})
    script.do(Resume(partition=tp(0), epoch=epoch))
    assert script.requested(api.Fetch).partitions[0].partition in (0, 1)


@pytest.mark.rule("14")
def test_pausing_and_resuming_again_and_again_fetches_every_byte_once() -> None:
    """The README's back-pressure: it took 224 MB for 25 MB of records."""
    script = NetworkScript()
    script.member_of(1, 0)
    epoch, brought, requested = script.epoch(0), 0, []
    for _ in range(50):
        script.do(Pause(partition=tp(0), epoch=epoch), Resume(partition=tp(0), epoch=epoch))
        requested.append(fetches(script)[0])
        response(script, p0=data(0, brought, brought + 5))
        brought += 5
    assert requested == list(range(0, 250, 5))
    assert [event.start for event in script.take(Fetched)] == requested


@pytest.mark.rule("14")
def test_what_is_kept_while_paused_counts_against_its_share_of_the_bytes() -> None:
    script = NetworkScript(fetch_buffer_bytes=100)
    script.member_of(1, 0)
    epoch = script.epoch(0)
    script.do(Pause(partition=tp(0), epoch=epoch))
    big = RangeChunk(topic="t", partition=0, first_offset=0, next_offset=50, nbytes=1000)
    response(script, p0=api.FetchedPartition(chunk=big, next_offset=50, high_watermark=99))  # type: ignore[arg-type]
    script.do(Resume(partition=tp(0), epoch=epoch))
    assert fetches(script) == {}, "its buffer is full"
    script.do(Consumed(partitions={tp(0): (epoch, 0, 50, 1000)}))
    assert fetches(script) == {0: 50}


@pytest.mark.rule("14")
def test_what_is_fetched_again_keeps_the_count_of_what_is_buffered() -> None:
    script = NetworkScript(prefetch="partition", max_poll_records=5)
    script.member_of(1, 0)
    epoch = script.epoch(0)
    response(script, p0=data(0, 0, 3))
    response(script, p0=data(0, 5, 9))
    assert fetches(script) == {}, "seven are buffered"
    refused = {tp(0): (epoch, 0, 4, 0)}
    again = SetPosition(partition=tp(0), epoch=epoch, seek_number=0, fetch_number=1, offset=3, keeps_buffer=True)
    script.do(Consumed(partitions=refused), again)
    assert fetches(script) == {0: 3}
    response(script, p0=data(0, 3, 5))
    (_, _, event) = script.take(Fetched)
    assert (event.start, event.fetch_number) == (3, 1)
    assert fetches(script) == {}, "five are buffered"


@pytest.mark.vector(52)
@pytest.mark.requirement("threading/15")
@pytest.mark.rule("3")
def test_what_is_in_flight_when_a_revoke_is_requested_is_dropped(script: NetworkScript) -> None:
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.rebalance(2, 1)
    response(script, p0=data(0, 0, 5), p1=data(1, 0, 2))
    assert [event.partition for event in script.take(Fetched)] == [tp(1)]
    assert 0 not in fetches(script)


def test_an_event_of_an_older_epoch_moves_nothing(script: NetworkScript) -> None:
    old = script.epoch(0) - 1
    script.do(
        SetPosition(partition=tp(0), epoch=old, seek_number=1, fetch_number=1, offset=70),
        Pause(partition=tp(0), epoch=old),
        Consumed(partitions={tp(0): (old, 0, 5, 5)}),
    )
    assert fetches(script)[0] == 0


# --- errors of a partition ----------------------------------------------------------------------------------


@pytest.mark.requirement("threading/13")
@pytest.mark.parametrize("code", [*STALE_METADATA, 7, 75, -1])
def test_a_passing_error_is_tried_again_and_stops_no_other(script: NetworkScript, code: int) -> None:
    response(script, p0=api.FetchedPartition(error=code), p1=data(1, 0, 4))
    assert [event.partition for event in script.take(Fetched)] == [tp(1)]
    assert 0 not in fetches(script), "after a back-off"
    script.pass_time(1.0)
    assert script.take(PartitionFailed) == []
    response(script, p1=data(1, 4, 6))
    script.pass_time(1.0)
    assert fetches(script)[0] == 0


@pytest.mark.parametrize("code", STALE_METADATA)
def test_a_leaders_error_asks_for_fresh_metadata(script: NetworkScript, code: int) -> None:
    before = script.metadata_responses
    response(script, p0=api.FetchedPartition(error=code))
    script.pass_time(2.0)
    assert script.metadata_responses > before


@pytest.mark.requirement("surface/reset")
@pytest.mark.parametrize(("policy", "reset"), [("earliest", EARLIEST), ("latest", LATEST), ("none", None)])
def test_out_of_range_goes_by_the_policy(policy: str, reset: int | None) -> None:
    script = NetworkScript(auto_offset_reset=policy)
    script.member_of(1, 0, 1)
    response(script, p0=api.FetchedPartition(error=ErrorCode.OFFSET_OUT_OF_RANGE), p1=data(1, 0, 4))
    assert fetches(script) == {1: 4}, "it stops no other"
    script.log_reaches(5, 9)
    (event,) = script.take(PartitionFailed)
    assert (event.partition, event.reset) == (tp(0), reset)
    assert isinstance(event.error, OffsetOutOfRangeError)
    assert fetches(script) == {1: 4}


@pytest.mark.vector(55)
def test_out_of_range_that_a_seek_overtook_is_ignored(script: NetworkScript) -> None:
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=70))
    response(script, p0=api.FetchedPartition(error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert script.take(PartitionFailed) == []
    assert fetches(script)[0] == 70


def test_a_topic_that_may_not_be_read_parks_its_partition(script: NetworkScript) -> None:
    response(script, p0=api.FetchedPartition(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED), p1=data(1, 0, 4))
    (event,) = script.take(PartitionFailed)
    assert isinstance(event.error, TopicAuthorizationFailedError)
    assert "'t'" in str(event.error)
    assert fetches(script) == {1: 4}


def test_an_unknown_error_parks_with_its_code(script: NetworkScript) -> None:
    response(script, p0=api.FetchedPartition(error=12345))
    (event,) = script.take(PartitionFailed)
    assert "12345" in str(event.error)
    assert "t-0 at offset 0" in str(event.error)
    assert event.tried_again


# --- corrupt bytes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["by the decoder", "by the broker"])
def test_corrupt_bytes_are_fetched_once_more_then_the_partition_fails(script: NetworkScript, how: str) -> None:
    error = CorruptRecordError("bad checksum", topic="t", partition=0, offset=2)

    def corrupt(start: int, end: int) -> api.FetchedPartition:
        if how == "by the broker":
            return api.FetchedPartition(error=ErrorCode.CORRUPT_MESSAGE)
        made = data(0, start, end)
        return api.FetchedPartition(chunk=made.chunk, next_offset=end, high_watermark=100, corrupt=error)

    response(script, p0=corrupt(0, 2), p1=data(1, 0, 1))
    assert script.take(PartitionFailed) == []
    script.pass_time(1.0)
    response(script, p1=data(1, 1, 2))
    script.pass_time(1.0)
    offset = fetches(script)[0]
    assert offset == (2 if how == "by the decoder" else 0), "what is good before it was returned"
    response(script, p0=corrupt(offset, offset))
    (event,) = script.take(PartitionFailed)
    assert event.partition == tp(0)
    assert event.tried_again
    script.pass_time(0.7)
    assert 0 not in fetches(script), "tried again later (test_failed_partitions)"
    assert 1 in fetches(script)


def test_bytes_that_are_good_the_second_time_are_no_error(script: NetworkScript) -> None:
    corrupt = api.FetchedPartition(next_offset=0, corrupt=CorruptRecordError("bad checksum"))
    response(script, p0=corrupt)
    for _ in range(2):
        script.pass_time(1.0)
        response(script, p0=data(0, 0, 3), p1=data(1, 0, 0))
    assert script.take(PartitionFailed) == []
    assert script.take(Fetched)[-1].next_offset == 3


# --- errors of a broker ---------------------------------------------------------------------------------------


def test_a_broken_connection_is_tried_again_after_a_back_off(script: NetworkScript) -> None:
    script.response(api.Fetch, TransportError("gone"))
    assert fetches(script) == {}
    script.pass_time(2.0)
    assert script.take(PartitionFailed) == []
    assert fetches(script) == {0: 0, 1: 0}


def test_a_broker_that_never_responds_is_given_up_after_the_request_timeout(script: NetworkScript) -> None:
    script.pass_time(script.config.request_timeout + script.config.fetch_max_wait + 2)
    assert any("fetch from node 1 failed" in each for each in script.logs)
    assert fetches(script) == {0: 0, 1: 0}


def test_a_broker_that_cannot_be_spoken_with_parks_what_it_leads(script: NetworkScript) -> None:
    script.response(api.Fetch, UnsupportedVersionError("no common version"))
    assert {event.partition for event in script.take(PartitionFailed)} == {tp(0), tp(1)}


def test_a_partition_without_a_leader_waits_and_stops_no_other() -> None:
    script = NetworkScript(topics={"t": 1})
    script.member_of(1, 0, 1)
    assert fetches(script) == {0: 0}
    script.topics["t"] = 2
    script.pass_time(3.0)
    assert fetches(script) == {0: 0, 1: 0}, "it does not wait for the other's fetch"


def test_partitions_take_turns_at_the_head_of_a_request(script: NetworkScript) -> None:
    heads = []
    for _ in range(4):
        request = next(each.request for each in script.waiting if isinstance(each.request, api.Fetch))
        heads.append(request.partitions[0].partition)
        response(script, p0=data(0, 0, 0), p1=data(1, 0, 0))
    assert heads in ([0, 1, 0, 1], [1, 0, 1, 0])


# --- capacity -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.requirement("KIP-41/12")
@pytest.mark.requirement("threading/30")
@pytest.mark.rule("M")
def test_a_partition_is_fetched_again_when_its_buffer_is_under_its_share() -> None:
    """A half of the bound is for what is buffered, the other half for what is on its way."""
    script = NetworkScript(fetch_buffer_bytes=200)
    script.member_of(1, 0, 1)
    big = RangeChunk(topic="t", partition=0, first_offset=0, next_offset=5, nbytes=60)
    fetched = api.FetchedPartition(chunk=big, next_offset=5, high_watermark=50)  # type: ignore[arg-type]
    response(script, p0=fetched, p1=data(1, 0, 5))
    assert set(fetches(script)) == {1}
    script.do(Consumed(partitions={tp(0): (script.epoch(0), 0, 1, 20)}))
    response(script, p1=data(1, 5, 5))
    assert set(fetches(script)) == {0, 1}


@pytest.mark.requirement("surface/metrics")
def test_what_is_buffered_and_may_be_is_counted_for_the_metrics() -> None:
    script = NetworkScript(fetch_buffer_bytes=200, max_partition_fetch_bytes=50)
    assert script.machine.buffered() == Buffered(nbytes=0, limit=200)
    script.member_of(1, 0, 1)
    big = RangeChunk(topic="t", partition=0, first_offset=0, next_offset=5, nbytes=60)
    fetched = api.FetchedPartition(chunk=big, next_offset=5, high_watermark=50)  # type: ignore[arg-type]
    response(script, p0=fetched)
    assert script.machine.buffered() == Buffered(nbytes=60, limit=300)
    script.do(Consumed(partitions={tp(0): (script.epoch(0), 0, 5, 60)}))
    assert script.machine.buffered() == Buffered(nbytes=0, limit=300)


@pytest.mark.requirement("KIP-41/12")
@pytest.mark.requirement("KIP-41/13")
@pytest.mark.rule("M")
def test_heuristic_1_fetches_all_while_fewer_than_a_poll_are_retained() -> None:
    script = NetworkScript(prefetch="total", max_poll_records=10)
    script.member_of(1, 0, 1)
    response(script, p0=data(0, 0, 6), p1=data(1, 0, 4))
    assert fetches(script) == {}
    script.do(Consumed(partitions={tp(0): (script.epoch(0), 0, 1, 0)}))
    assert set(fetches(script)) == {0, 1}


@pytest.mark.vector(46)
@pytest.mark.requirement("KIP-41/14")
@pytest.mark.rule("M")
def test_heuristic_2_fetches_each_partition_below_its_share() -> None:
    script = NetworkScript(prefetch="partition", max_poll_records=10)
    script.member_of(1, 0, 1)
    response(script, p0=data(0, 0, 6), p1=data(1, 0, 4))
    assert set(fetches(script)) == {1}
    script.do(Consumed(partitions={tp(0): (script.epoch(0), 0, 2, 0)}))
    response(script, p1=data(1, 4, 4))
    assert set(fetches(script)) == {0, 1}


@pytest.mark.rule("M")
@pytest.mark.parametrize("prefetch", ["total", "partition"])
def test_without_a_bound_on_records_only_bytes_count(prefetch: str) -> None:
    script = NetworkScript(prefetch=prefetch, max_poll_records=-1)
    script.member_of(1, 0, 1)
    response(script, p0=data(0, 0, 6000), p1=data(1, 0, 4000))
    assert set(fetches(script)) == {0, 1}


@pytest.mark.requirement("surface/ends")
@pytest.mark.parametrize(("isolation", "end"), [("read_uncommitted", 10_000), ("read_committed", 7)])
def test_the_end_that_is_told_is_the_one_that_may_be_read(isolation: str, end: int) -> None:
    made = NetworkScript(isolation_level=isolation)
    made.member_of(1, 0)
    response(made, p0=replace(data(0, 0, 5), last_stable_offset=7))
    (event,) = made.take(Fetched)
    assert event.high_watermark == end


@pytest.mark.requirement("KIP-41/13")
@pytest.mark.requirement("KIP-41/14")
@pytest.mark.rule("M")
def test_heuristic_1_leaves_a_quiet_partition_alone_and_heuristic_2_does_not() -> None:
    """M's own example: a poll returns one record, A has a thousand, B none."""
    for prefetch, fetched in (("total", set()), ("partition", {1})):
        script = NetworkScript(prefetch=prefetch, max_poll_records=1)
        script.member_of(1, 0, 1)
        response(script, p0=data(0, 0, 1000), p1=data(1, 0, 0))
        assert set(fetches(script)) == fetched, prefetch


@pytest.mark.rule("M")
@pytest.mark.parametrize("prefetch", ["bytes", "total", "partition"])
def test_what_a_paused_partition_retains_stops_no_other(prefetch: str) -> None:
    script = NetworkScript(prefetch=prefetch, max_poll_records=4, fetch_buffer_bytes=100)
    script.member_of(1, 0, 1)
    big = RangeChunk(topic="t", partition=0, first_offset=0, next_offset=50, nbytes=1000)
    fetched = api.FetchedPartition(chunk=big, next_offset=50, high_watermark=50)  # type: ignore[arg-type]
    response(script, p0=fetched, p1=data(1, 0, 0))
    script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    for each in range(3):
        response(script, p1=data(1, each, each + 1))
        assert set(fetches(script)) == {1}
        script.do(Consumed(partitions={tp(1): (script.epoch(1), 0, 1, 0)}))


@pytest.mark.requirement("threading/30")
@pytest.mark.requirement("surface/byte-bounds")
@pytest.mark.rule("M")
def test_a_fetch_brings_no_more_of_a_partition_than_its_share() -> None:
    script = NetworkScript(fetch_buffer_bytes=2000, max_partition_fetch_bytes=600)
    script.member_of(1, 0)
    assert script.requested(api.Fetch).partitions[0].max_bytes == 600
    script = NetworkScript(fetch_buffer_bytes=2000, max_partition_fetch_bytes=600)
    script.member_of(1, 0, 1)
    assert script.requested(api.Fetch).partitions[0].max_bytes == 500
    assert script.requested(api.Fetch).max_bytes == 250, "an eighth: it may be there twice while it is taken apart"


@pytest.mark.requirement("surface/settings-while-running")
@pytest.mark.requirement("threading/31")
@pytest.mark.rule("M")
def test_settings_that_change_hold_from_the_next_fetch_on() -> None:
    script = NetworkScript(prefetch="total", max_poll_records=10)
    script.member_of(1, 0, 1)
    response(script, p0=data(0, 0, 10), p1=data(1, 0, 4))
    assert fetches(script) == {}
    changed = {"max_poll_records": 100, "fetch_max_wait": 0.25, "fetch_min_bytes": 7, "fetch_max_bytes": 70}
    script.do(ChangeSettings(config=replace(script.config, max_partition_fetch_bytes=6, **changed)))  # type: ignore[arg-type]
    request = script.requested(api.Fetch)
    assert {each.partition for each in request.partitions} == {0, 1}
    assert (request.max_wait, request.min_bytes, request.max_bytes) == (0.25, 7, 70)
    assert request.partitions[0].max_bytes == 6


def test_what_was_consumed_of_an_older_position_makes_no_room() -> None:
    script = NetworkScript(prefetch="partition", max_poll_records=5)
    script.member_of(1, 0)
    epoch = script.epoch(0)
    response(script, p0=data(0, 0, 5))
    assert fetches(script) == {}, "full"
    script.do(SetPosition(partition=tp(0), epoch=epoch, seek_number=1, fetch_number=1, offset=70))
    response(script, p0=data(0, 70, 75))
    script.do(Consumed(partitions={tp(0): (epoch, 0, 5, 0)}))
    assert fetches(script) == {}, "what was consumed is of before the seek"
    script.do(Consumed(partitions={tp(0): (epoch, 1, 5, 0)}))
    assert fetches(script) == {0: 75}


# --- a connection that leads to the wrong machine ---------------------------------------------------------------


def no_news(partition: int, *, at_end: bool) -> api.FetchedPartition:
    return replace(data(partition, 0, 0), high_watermark=0) if at_end else data(partition, 0, 0)


def denied(
    script: NetworkScript, seconds: float, *partitions: int, session_id: int = 0, at_end: tuple[int, ...] = ()
) -> None:
    """For so long a fetch of one of these has the response that this broker does not lead; of another it is served.

    session_id: of the session in which it is fetched. What is served and was named once is not named again there.
    at_end: these are read to their end; the others lag.
    """
    script.attempts.clear()
    refused = api.FetchedPartition(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    until = script.now + seconds
    while script.now < until:
        for request in [each.request for each in script.waiting if isinstance(each.request, api.Fetch)]:
            named = [each.partition for each in request.partitions]
            told: dict[api.Partition, api.FetchedPartition]
            told = {tp(p): refused if p in partitions else no_news(p, at_end=p in at_end) for p in named}
            script.response(api.Fetch, api.FetchResponse(session_id=session_id, partitions=told))
        script.pass_time(0.5)


def test_a_leader_that_denies_for_long_is_connected_to_anew(script: NetworkScript) -> None:
    """Its name led to another broker's machine when the connection was opened."""
    denied(script, 4.0, 0, 1)
    assert script.attempts == [], "an election may take as long"
    denied(script, 4.0, 0, 1)
    assert script.attempts == [("b", 1)], "the connection on which it denies"
    denied(script, 4.0, 0, 1)
    assert script.attempts == [], "the next ones count anew"
    denied(script, 4.0)
    assert len(script.take(EndsFound)) > 0, "it serves"


@pytest.mark.parametrize("misled", [0, 1])
def test_a_connection_that_denies_is_opened_anew_though_the_other_one_serves(
    script: NetworkScript, misled: int
) -> None:
    """What lags and what is at its end have one each. The name led elsewhere when one of the two was opened."""
    response(script, p0=no_news(0, at_end=False), p1=no_news(1, at_end=True))
    denied(script, 4.0, misled, at_end=(1,))
    assert script.attempts == []
    denied(script, 4.0, misled, at_end=(1,))
    assert script.attempts == [("b", 1)], "that one alone"


def test_a_leader_that_denies_one_partition_only_keeps_its_connections(script: NetworkScript) -> None:
    response(script, p0=data(0, 0, 0), p1=data(1, 0, 0))
    denied(script, 20.0, 0)
    assert script.attempts == []


def test_a_connection_to_a_follower_of_a_neighbour_is_opened_anew_in_the_end(script: NetworkScript) -> None:
    """The machine there serves fetches of that one, as a follower; and it leads nothing that is denied."""
    response(script, p0=data(0, 0, 0), p1=data(1, 0, 0))
    opened: list[object] = []
    for _ in range(70):
        denied(script, 1.0, 0)
        opened += script.attempts
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    assert opened.count(("b", 1)) == 1


def test_a_partition_that_is_denied_alone_has_another_connection_ever_less_often(script: NetworkScript) -> None:
    """It has no leader that serves. The other one, which does, lags: so it has the other connection."""
    opened, until = [], script.now + 300.0
    while script.now < until:
        denied(script, 1.0, 0)
        opened += [script.now] * len(script.attempts)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    assert len(opened) == 7
    apart = [after - before for before, after in itertools.pairwise(opened)]
    assert apart == sorted(apart)
    assert apart[-1] > 60.0, "at most once in a minute"


def test_a_broker_that_serves_nothing_at_all_is_connected_to_anew_each_few_seconds(script: NetworkScript) -> None:
    """All its connections led elsewhere when they were opened: each may be the first one that leads to it again."""
    opened, until = [], script.now + 100.0
    while script.now < until:
        denied(script, 1.0, 0, 1)
        opened += [script.now] * len(script.attempts)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    assert max(after - before for before, after in itertools.pairwise(opened)) < 9.0


def test_an_idle_neighbour_in_a_session_keeps_the_connections(script: NetworkScript) -> None:
    """What has no news is not named: a response without it says that it is served."""
    response(script, p0=data(0, 0, 0), p1=data(1, 0, 0))
    denied(script, 20.0, 0, session_id=7)
    assert script.attempts == []


def test_a_broker_that_throttles_and_looks_at_nothing_does_not_serve(script: NetworkScript) -> None:
    denied(script, 4.0, 0, 1)
    while "Fetch" not in script.waits():
        script.pass_time(0.1)
    script.response(api.Fetch, api.FetchResponse(throttle_time=0.1))
    denied(script, 4.0, 0, 1)
    assert script.attempts == [("b", 1)]


def test_a_follower_that_serves_does_not_speak_for_the_leader() -> None:
    """KIP-392: a broker that is read from instead of the leader has another connection."""
    script = NetworkScript(client_rack="r2")
    script.nodes = (1, 2)
    script.member_of(1, 0, 1)
    response(script, p0=data(0, 0, 0), p1=replace(data(1, 0, 0), preferred_read_replica=2))
    denied(script, 20.0, 0)
    assert script.attempts.count(("b", 1)) >= 2


def test_a_leader_that_lists_an_end_keeps_its_connections() -> None:
    """What reads ranges sends no fetch. One of its partitions is denied, and one is at its end."""
    script = NetworkScript()
    script.machine = NetworkMachine(
        script.config, lease=script.lease, random=lambda: 0.5, wall_clock=lambda: script.wall_clock, ranges=True
    )
    script.member_of(1, 0, 1)
    refused = api.ListedOffset(offset=-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for _ in range(40):
        if "ListOffsets" in script.waits():
            named = script.requested(api.ListOffsets).timestamps
            told = {each: refused if each == tp(0) else api.ListedOffset(offset=0) for each in named}
            script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=told))
        script.pass_time(0.5)
    assert script.attempts.count(("b", 1)) == 3, "no connection was opened anew"


def test_a_leader_that_holds_a_fetch_back_is_waited_for_where_it_denies_another() -> None:
    """As long as it may hold it back, nothing says that it serves."""
    script = NetworkScript(fetch_max_wait=20.0)
    script.committed_offset = -1
    script.member_of(1, 0, 1)
    refused, found = api.ListedOffset(offset=-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), api.ListedOffset(offset=0)
    until = script.now + 18.0
    while script.now < until:
        if "ListOffsets" in script.waits():
            named = script.requested(api.ListOffsets).timestamps
            told = {each: refused if each == tp(0) else found for each in named}
            script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=told))
        if fetches(script) == {1: 0} and script.requested(api.Fetch).max_wait < 20.0:
            response(script, p1=data(1, 0, 0))
        script.pass_time(0.5)
    assert script.attempts.count(("b", 1)) == 4, "no connection was opened anew"


def test_denials_of_a_cluster_that_was_left_count_no_more(script: NetworkScript) -> None:
    script.hold_metadata = True
    denied(script, 4.0, 0, 1)
    script.hold_metadata = False
    script.response(api.Metadata, api.MetadataResponse(error=ErrorCode.REBOOTSTRAP_REQUIRED))
    script.pass_time(1.0)
    denied(script, 4.0, 0, 1)
    assert script.attempts == [("b", 1)], "the second of its connections: the first one stays"


def test_denials_that_are_long_ago_count_no_more(script: NetworkScript) -> None:
    """Its partitions move to other brokers, say, and those that stay have no records."""
    for _ in range(3):
        denied(script, 2.0, 0, 1)
        assert script.attempts == []
        script.do(*(Pause(partition=tp(p), epoch=script.epoch(p)) for p in (0, 1)))
        script.pass_time(40.0)
        script.do(*(Resume(partition=tp(p), epoch=script.epoch(p)) for p in (0, 1)))


def test_a_denial_that_comes_when_nobody_leads_any_more_blames_no_connection() -> None:
    script = NetworkScript()
    script.committed_offset = -1
    script.member_of(1, 0)
    script.leaders = {0: -1}
    script.fresh_metadata()
    refused = api.ListedOffset(offset=-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): refused}))
    script.leaders = {}
    script.fresh_metadata()
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=3)}))
    assert fetches(script) == {0: 3}
