"""A leader that calls an offset out of range is not believed before the ends of its log say so as well."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    EARLIEST,
    LATEST,
    Fetched,
    MissingOffsets,
    Noticed,
    PartitionFailed,
    Pause,
    Positioned,
    Resume,
    SetPosition,
)
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride.errors import ErrorCode, OffsetOutOfRangeError, TransportError, UnsupportedVersionError
from instride.telemetry import PartitionStalled, PositionReset, ResetCause

OUT_OF_RANGE = 1


def refused(*partitions: int) -> api.FetchResponse:
    return api.FetchResponse(partitions={tp(each): api.FetchedPartition(error=OUT_OF_RANGE) for each in partitions})


class Doubting(NetworkScript):
    """Partition 0 is read up to offset 20 of the log 0 to 50."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.member_of(1, 0)
        self.fetched(0, 20)
        self.take(Fetched)
        self.logs.clear()
        self.levels.clear()

    def fetched(self, start: int, end: int) -> None:
        chunk = RangeChunk(topic="t", partition=0, first_offset=start, next_offset=end)
        found = api.FetchedPartition(chunk=chunk, next_offset=end, high_watermark=50)  # type: ignore[arg-type]
        self.response(api.Fetch, api.FetchResponse(partitions={tp(0): found}))

    def called_out_of_range(self) -> None:
        self.response(api.Fetch, refused(0))

    def reset(self, failed: PartitionFailed, number: int = 1) -> None:
        """As the application does it, once all before was returned."""
        assert failed.reset is not None
        self.do(
            SetPosition(
                partition=tp(0),
                epoch=failed.epoch,
                seek_number=number,
                fetch_number=number,
                offset=failed.reset,
                reset_from=20,
            )
        )

    def resets(self) -> list[tuple[ResetCause, int, int, int]]:
        events = [each.event for each in self.take(Noticed)]
        found = [each for each in events if isinstance(each, PositionReset)]
        return [(each.cause, each.from_offset, each.to_offset, each.count) for each in found]

    def warnings(self) -> list[str]:
        return [text for text, level in zip(self.logs, self.levels, strict=True) if level >= logging.WARNING]


@pytest.mark.rule("17")
@pytest.mark.parametrize("asked", ["where it begins", "where it ends"])
def test_a_look_that_fails_for_good_is_told_and_done_again_later(asked: str) -> None:
    script = Doubting()
    script.called_out_of_range()
    if asked == "where it ends":
        script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=0)}))
    script.response(api.ListOffsets, UnsupportedVersionError("too old"))
    (failed,) = script.take(PartitionFailed)
    assert (type(failed.error), failed.tried_again) == (UnsupportedVersionError, True)
    script.pass_time(2.0)
    script.log_reaches(0, 50)
    assert script.requested(api.Fetch).partitions[0].offset == 20


@pytest.mark.requirement("surface/reset")
@pytest.mark.parametrize("policy", ["earliest", "latest", "none", "by_duration:PT1H"])
@pytest.mark.parametrize(("start", "end"), [(0, 50), (20, 50), (0, 20), (20, 20)])
def test_an_offset_that_the_log_has_is_fetched_again_and_nothing_is_reset(policy: str, start: int, end: int) -> None:
    """30 of 50 records were lost so with "latest"."""
    script = Doubting(auto_offset_reset=policy)
    script.called_out_of_range()
    request = script.requested(api.ListOffsets)
    assert (request.timestamps, request.read_committed) == ({tp(0): EARLIEST}, False)
    script.log_reaches(start, end)
    assert script.take(PartitionFailed) == []
    assert script.requested(api.Fetch).partitions[0].offset == 20
    script.fetched(20, 50)
    assert [(each.start, each.next_offset) for each in script.take(Fetched)] == [(20, 50)]
    (line,) = script.warnings()
    assert line == "offset 20 of t-0 was called out of range, and the log has it: fetched again"


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_end_of_the_log_is_requested_as_any_reader_sees_it(isolation: str) -> None:
    """One that reads committed records may stand behind the last stable offset, after a seek."""
    script = Doubting(isolation_level=isolation)
    script.called_out_of_range()
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=0)}))
    request = script.requested(api.ListOffsets)
    assert (request.timestamps, request.read_committed) == ({tp(0): LATEST}, False)


@pytest.mark.requirement("surface/reset")
@pytest.mark.parametrize(("start", "end"), [(21, 50), (0, 19)])
@pytest.mark.parametrize(("policy", "to"), [("earliest", EARLIEST), ("latest", LATEST)])
def test_an_offset_that_the_log_has_not_is_reset_and_told_with_from_to_and_count(
    policy: str, to: int, start: int, end: int
) -> None:
    script = Doubting(auto_offset_reset=policy)
    script.called_out_of_range()
    script.log_reaches(start, end)
    (failed,) = script.take(PartitionFailed)
    assert (failed.reset, failed.void_from) == (to, None)
    assert str(failed.error) == f"t-0 has no records at offset 20: its log begins at {start} and ends at {end}"
    assert script.resets() == []
    script.reset(failed)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=33)}))
    assert script.resets() == [(ResetCause.OUT_OF_RANGE, 20, 33, 13)]
    assert [each.offset for each in script.take(Positioned)][-1] == 33
    (line,) = script.warnings()
    assert "t-0 is read on from offset 33 instead of 20 (13 offsets skipped)" in line
    meter = script.machine.meter
    assert (meter.resets.number, meter.resets.total) == (1, 13)
    script.fetched(33, 40)
    assert script.resets() == [], "told once"


def test_a_reset_that_leads_back_skips_nothing() -> None:
    script = Doubting()
    script.called_out_of_range()
    script.log_reaches(0, 10)
    (failed,) = script.take(PartitionFailed)
    script.reset(failed)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=0)}))
    assert script.resets() == [(ResetCause.OUT_OF_RANGE, 20, 0, -20)]
    assert (script.machine.meter.resets.number, script.machine.meter.resets.total) == (1, 0)


def test_without_a_policy_it_is_an_error_that_names_the_ends() -> None:
    script = Doubting(auto_offset_reset="none")
    script.called_out_of_range()
    script.log_reaches(30, 50)
    (failed,) = script.take(PartitionFailed)
    assert failed.reset is None
    assert isinstance(failed.error, OffsetOutOfRangeError)
    why = "t-0 has no records at offset 20: its log begins at 30 and ends at 50"
    why += ', and auto_offset_reset is "none"; seek to go on'
    assert str(failed.error) == why


def play(script: Doubting, seconds: float, ends: list[tuple[int, int]]) -> tuple[int, int]:
    """A broker that responds to all at once, and calls every offset out of range. ends: of its log, the last for good.
    Returns how many fetches and how many questions there were."""
    end, fetches, questions, number = script.now + seconds, 0, 0, 0
    while script.now < end:
        waits = script.waits()
        if "Fetch" in waits:
            fetches += 1
            script.called_out_of_range()
        elif "ListOffsets" in waits:
            questions += 1
            place = 0 if script.requested(api.ListOffsets).timestamps[tp(0)] == EARLIEST else 1
            listed = api.ListedOffset(offset=ends[0][place])
            script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): listed}))
            ends = ends[1:] if place and len(ends) > 1 else ends
        for failed in script.take(PartitionFailed):
            number += 1
            script.reset(failed, number)
        if not {"Fetch", "ListOffsets"} & set(script.waits()):
            script.pass_time(0.01)
    return fetches, questions


@pytest.mark.requirement("surface/back-off")
def test_a_broker_that_repeats_it_is_asked_ever_less_often() -> None:
    """It made a thousand fetches and 1,500 log lines a second."""
    script = Doubting()
    fetches, questions = play(script, 60.0, [(0, 50)])
    assert 50 <= fetches <= 75, "one a second, once the back-off has grown"
    assert questions <= 2 * fetches
    assert len(script.warnings()) <= 3, "one in half a minute"
    assert script.take(PartitionFailed) == []


@pytest.mark.requirement("surface/back-off")
def test_a_broker_that_tells_of_another_log_each_time_is_asked_ever_less_often() -> None:
    script = Doubting(auto_offset_reset="latest")
    fetches, _ = play(script, 60.0, [(at * 100 + 60, at * 100 + 90) for at in range(1000)])
    assert 20 <= fetches <= 75
    assert len(script.warnings()) <= fetches


@pytest.mark.rule("18")
@pytest.mark.parametrize(("start", "end", "begin"), [(30, 50, 30), (0, 10, 0), (0, 0, 0), (5, 10, 5)])
def test_where_a_reset_leads_is_told_with_what_the_log_lacked(start: int, end: int, begin: int) -> None:
    """Before its beginning a log has nothing. One that ended before the position may have what is before that."""
    script = Doubting(auto_offset_reset="latest")
    script.called_out_of_range()
    script.log_reaches(start, end)
    (failed,) = script.take(PartitionFailed)
    script.take(Positioned)
    script.reset(failed)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=60)}))
    (event,) = script.take(Positioned)
    assert (event.offset, event.reset, event.missing) == (60, True, MissingOffsets(20, begin))


def test_records_that_arrive_end_the_growth_of_the_back_off() -> None:
    script = Doubting()
    play(script, 10.0, [(0, 50)])
    while "Fetch" not in script.waits():
        if "ListOffsets" in script.waits():
            script.log_reaches(0, 50)
        script.pass_time(0.1)
    script.fetched(20, 21)
    script.called_out_of_range()
    assert "ListOffsets" in script.waits(), "at once"


@pytest.mark.requirement("surface/back-off")
@pytest.mark.parametrize("seek", [False, True])
def test_the_same_records_again_after_each_reset_do_not_end_it(*, seek: bool) -> None:
    """A broker whose log is another one in each response made 57 resets a second."""
    script = Doubting()
    looks: list[float] = []
    for number in range(1, 8):
        script.called_out_of_range()
        called = script.now
        while "ListOffsets" not in script.waits() and script.now < called + 3.0:
            script.pass_time(0.01)
        looks.append(script.now - called)
        script.log_reaches(0, 0)
        (failed,) = script.take(PartitionFailed)
        position = SetPosition(
            partition=tp(0),
            epoch=failed.epoch,
            seek_number=number,
            fetch_number=number,
            offset=0,
            reset_from=None if seek else 20,
        )
        script.do(position)
        script.fetched(0, 5)
        assert script.take(Fetched)
    assert looks[0] == 0
    assert looks[-1] == 0 if seek else 0.5 < looks[-1] < 2.0


def test_it_stands_still_as_one_can_see() -> None:
    script = Doubting(stalled_after=20.0)
    play(script, 60.0, [(0, 50)])
    stalls = [each.event for each in script.delivered if isinstance(each, Noticed)]
    assert [each.partition for each in stalls if isinstance(each, PartitionStalled)] == [tp(0)]


def test_a_seek_overtakes_the_look() -> None:
    script = Doubting()
    script.called_out_of_range()
    script.do(SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=1, fetch_number=1, offset=45))
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=30)}))
    assert script.requested(api.Fetch).partitions[0].offset == 45
    assert "ListOffsets" not in script.waits()
    assert script.take(PartitionFailed) == []
    assert script.resets() == [], "a seek of the user's is no reset"


def test_a_pause_does_not_void_the_look() -> None:
    script = Doubting()
    script.called_out_of_range()
    script.do(Pause(partition=tp(0), epoch=script.epoch(0)))
    script.log_reaches(0, 50)
    assert "Fetch" not in script.waits()
    script.do(Resume(partition=tp(0), epoch=script.epoch(0)))
    assert script.requested(api.Fetch).partitions[0].offset == 20


def test_a_revoke_ends_the_look() -> None:
    script = Doubting()
    script.called_out_of_range()
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.rebalance(2)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=30)}))
    script.pass_time(5.0)
    assert "ListOffsets" not in script.waits()
    assert script.take(PartitionFailed) == []


def test_a_leader_that_does_not_respond_is_asked_again() -> None:
    script = Doubting()
    script.called_out_of_range()
    script.response(api.ListOffsets, TransportError("gone"))
    assert "ListOffsets" not in script.waits()
    script.pass_time(2.0)
    script.log_reaches(0, 50)
    assert script.requested(api.Fetch).partitions[0].offset == 20


def test_a_response_that_leaves_the_partition_out_says_nothing() -> None:
    script = Doubting()
    script.called_out_of_range()
    script.response(api.ListOffsets, api.ListOffsetsResponse())
    script.pass_time(2.0)
    script.log_reaches(0, 50)
    assert script.requested(api.Fetch).partitions[0].offset == 20


def test_an_end_below_zero_is_none() -> None:
    script = Doubting()
    script.called_out_of_range()
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=-5)}))
    script.pass_time(2.0)
    script.log_reaches(0, 50)
    assert script.requested(api.Fetch).partitions[0].offset == 20


def test_a_leader_that_goes_meanwhile_is_waited_for() -> None:
    script = Doubting()
    script.nodes = (2,)
    script.called_out_of_range()
    script.response(
        api.ListOffsets,
        api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)}),
    )
    script.pass_time(5.0)
    assert "ListOffsets" not in script.waits(), "no broker leads it"
    script.nodes = (1,)
    script.pass_time(5.0)
    script.log_reaches(0, 50)
    assert script.requested(api.Fetch).partitions[0].offset == 20


def test_one_request_to_a_leader_is_under_way_at_a_time() -> None:
    script = NetworkScript()
    script.member_of(1, 0, 1, 2)
    script.response(api.Fetch, refused(0, 1))
    assert set(script.requested(api.ListOffsets).timestamps) == {tp(0), tp(1)}
    script.response(api.Fetch, refused(2))
    both: dict[api.Partition, api.ListedOffset] = {tp(each): api.ListedOffset(offset=0) for each in (0, 1)}
    for _ in range(2):
        assert set(script.requested(api.ListOffsets).timestamps) == {tp(0), tp(1)}
        script.response(api.ListOffsets, api.ListOffsetsResponse(offsets=both))
    assert set(script.requested(api.ListOffsets).timestamps) == {tp(2)}
