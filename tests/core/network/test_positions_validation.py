"""Validation by leader epoch (KIP-320), and topics that were deleted and made again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    BY_DURATION,
    EARLIEST,
    LATEST,
    CallCompleted,
    Fetched,
    PartitionFailed,
    Pause,
    Positioned,
    SetPosition,
)
from instride._core.network.actions import Transmit
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride.errors import (
    CommitFailedError,
    ErrorCode,
    LogTruncationError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
    TransportError,
    UnsupportedVersionError,
)

OLD, NEW = UUID(int=1), UUID(int=2)


class Validating(NetworkScript):
    """Partition 0 is read up to offset 10, in leader epoch 3."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.leader_epochs = dict.fromkeys(range(4), 3)
        self.topic_ids = {"t": OLD}
        self.member_of(1, 0, 1)
        self.read(0, 0, 10)

    def read(self, partition: int, start: int, end: int, *, leader_epoch: int = 3) -> None:
        chunk = RangeChunk(
            topic="t", partition=partition, first_offset=start, next_offset=end, leader_epoch=leader_epoch
        )
        fetched = api.FetchedPartition(chunk=chunk, next_offset=end, high_watermark=end)  # type: ignore[arg-type]
        self.response(api.Fetch, api.FetchResponse(partitions={tp(partition): fetched}))
        self.take(Fetched)

    def new_leader(self, epoch: int, partition: int = 0) -> None:
        self.leader_epochs[partition] = epoch
        self.response(
            api.Fetch,
            api.FetchResponse(partitions={tp(partition): api.FetchedPartition(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)}),
        )
        self.pass_time(1.0)

    def ended(self, end_offset: int, leader_epoch: int = 3, *, error: int = 0, partition: int = 0) -> None:
        end = api.EpochEnd(error=error, leader_epoch=leader_epoch, end_offset=end_offset)
        self.response(api.OffsetForLeaderEpoch, api.OffsetForLeaderEpochResponse(ends={tp(partition): end}))

    def fetch_parts(self) -> list[tuple[Transmit, api.FetchPartition]]:
        """What the fetches that wait ask for."""
        fetches = [(each, each.request) for each in self.waiting if isinstance(each.request, api.Fetch)]
        return [(each, part) for each, request in fetches for part in request.partitions]

    def fetched_from(self) -> dict[int, int]:
        return {part.partition: part.offset for _, part in self.fetch_parts()}

    def seek(self, offset: int, number: int = 1, **options: Any) -> None:
        numbers = {"seek_number": number, "fetch_number": number, **options}
        self.do(SetPosition(partition=tp(0), epoch=self.epoch(0), offset=offset, **numbers))


@pytest.mark.requirement("surface/validation")
def test_a_new_leader_is_asked_whether_the_position_is_one_of_its_log() -> None:
    script = Validating()
    assert "OffsetForLeaderEpoch" not in script.waits(), "all was read under this leader"
    script.new_leader(5)
    request = script.requested(api.OffsetForLeaderEpoch)
    assert (request.epochs, request.leader_epochs) == ({tp(0): 3}, {tp(0): 5})
    assert 0 not in script.fetched_from(), "nothing is fetched before the response"
    script.ended(12)
    script.pass_time(1.0)
    assert script.fetched_from()[0] == 10
    assert script.take(PartitionFailed) == []
    script.fresh_metadata()
    assert "OffsetForLeaderEpoch" not in script.waits(), "once for each leader"


def test_other_partitions_are_fetched_meanwhile() -> None:
    script = Validating()
    script.new_leader(5)
    assert 1 in script.fetched_from()


@pytest.mark.requirement("surface/validation")
@pytest.mark.vector(74)
@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H"])
def test_a_log_that_was_cut_is_read_on_from_the_cut_where_there_is_a_policy(policy: str) -> None:
    script = Validating(auto_offset_reset=policy)
    script.new_leader(7)
    script.ended(5, 2)
    (event,) = script.take(PartitionFailed)
    assert (event.reset, event.leader_epoch, event.void_from) == (5, 2, 5)
    assert 0 not in script.fetched_from()


@pytest.mark.requirement("surface/validation")
@pytest.mark.vector(74)
def test_a_log_that_was_cut_is_an_error_with_the_cut_where_there_is_no_policy() -> None:
    script = Validating(auto_offset_reset="none")
    script.new_leader(7)
    script.ended(5, 2)
    (event,) = script.take(PartitionFailed)
    error = event.error
    assert isinstance(error, LogTruncationError)
    assert (error.topic, error.partition, error.offset, error.divergent_offset) == ("t", 0, 10, 5)
    assert (event.reset, event.void_from) == (None, 5)
    script.pass_time(5.0)
    assert 0 not in script.fetched_from()
    script.seek(5, leader_epoch=2, divergences=event.divergences)
    script.pass_time(1.0)
    script.ended(5, 2)
    assert script.fetched_from()[0] == 5


def test_a_position_behind_a_marker_is_validated_with_the_markers_epoch() -> None:
    """The marker was the first batch of a new leader: with the epoch of the last record the log seemed to be cut."""
    script = Validating()
    moved = api.FetchedPartition(next_offset=11, leader_epoch=4, high_watermark=11)
    script.response(api.Fetch, api.FetchResponse(partitions={tp(0): moved}))
    (event,) = script.take(Fetched)
    assert (event.chunk, event.next_offset, event.leader_epoch) == (None, 11, 4)
    script.new_leader(7)
    assert script.requested(api.OffsetForLeaderEpoch).epochs == {tp(0): 4}


@pytest.mark.parametrize(("policy", "reset"), [("earliest", EARLIEST), ("latest", LATEST), ("none", None)])
def test_where_the_log_knows_no_end_the_policy_says(policy: str, reset: int | None) -> None:
    script = Validating(auto_offset_reset=policy)
    script.new_leader(7)
    script.ended(-1, -1)
    (event,) = script.take(PartitionFailed)
    assert (event.reset, event.void_from) == (reset, None)
    assert isinstance(event.error, LogTruncationError)
    assert event.error.divergent_offset is None


@pytest.mark.vector(74)
def test_a_response_that_a_seek_overtook_is_ignored() -> None:
    script = Validating()
    script.new_leader(7)
    script.seek(50)
    script.ended(5, 2)
    assert script.take(PartitionFailed) == []
    assert script.fetched_from()[0] == 50


@pytest.mark.rule("14")
def test_a_pause_meanwhile_voids_nothing() -> None:
    script = Validating()
    script.new_leader(7)
    epoch = script.epoch(0)
    script.do(Pause(partition=tp(0), epoch=epoch))
    script.ended(5, 2)
    (failed,) = script.take(PartitionFailed)
    assert (failed.fetch_number, failed.void_from) == (0, 5)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_an_error_is_asked_again_with_fresh_metadata(code: int) -> None:
    script = Validating()
    script.new_leader(5)
    script.leader_epochs[0] = 6
    script.ended(-1, -1, error=code)
    assert script.take(PartitionFailed) == []
    script.pass_time(2.0)
    assert script.requested(api.OffsetForLeaderEpoch).leader_epochs == {tp(0): 6}
    script.ended(10)
    script.pass_time(1.0)
    assert script.fetched_from()[0] == 10


def test_a_leader_that_does_not_respond_is_asked_again() -> None:
    script = Validating()
    script.new_leader(5)
    script.response(api.OffsetForLeaderEpoch, TransportError("gone"))
    script.pass_time(2.0)
    script.ended(10)
    script.pass_time(1.0)
    assert script.fetched_from()[0] == 10


def test_a_leader_that_is_gone_while_it_is_to_be_asked_is_waited_for() -> None:
    script = Validating()
    script.new_leader(5)
    script.leaders[0] = -1
    script.ended(-1, -1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    script.pass_time(3.0)
    assert "OffsetForLeaderEpoch" not in script.waits()
    script.leaders[0] = 1
    script.pass_time(3.0)
    script.ended(10)
    script.pass_time(1.0)
    assert script.fetched_from()[0] == 10


def test_a_topic_that_may_not_be_described_parks_its_partition() -> None:
    script = Validating()
    script.new_leader(5)
    script.ended(-1, -1, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (event,) = script.take(PartitionFailed)
    assert isinstance(event.error, TopicAuthorizationFailedError)


def test_a_broker_that_cannot_be_asked_is_trusted() -> None:
    script = Validating()
    script.new_leader(5)
    script.response(api.OffsetForLeaderEpoch, UnsupportedVersionError("no common version"))
    script.pass_time(1.0)
    assert script.take(PartitionFailed) == []
    assert script.fetched_from()[0] == 10


def test_a_response_that_breaks_the_protocol_is_no_response() -> None:
    script = Validating()
    script.new_leader(5)
    script.response(api.OffsetForLeaderEpoch, ValueError("what is this"))
    script.pass_time(1.0)
    assert script.take(PartitionFailed) == []
    assert 0 not in script.fetched_from()
    script.requested(api.OffsetForLeaderEpoch)


def test_a_refusal_that_is_final_parks() -> None:
    script = Validating()
    script.new_leader(5)
    script.response(api.OffsetForLeaderEpoch, TopicAuthorizationFailedError("no"))
    assert len(script.take(PartitionFailed)) == 1


def test_a_committed_offset_of_an_older_epoch_is_validated_before_it_is_fetched() -> None:
    script = NetworkScript()
    script.leader_epochs = {0: 4}
    script.committed_offset = None
    script.member_of(1, 0)
    found = api.CommittedOffset(offset=8, leader_epoch=2)
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets={tp(0): found}))
    assert script.requested(api.OffsetForLeaderEpoch).epochs == {tp(0): 2}
    assert "Fetch" not in script.waits()


def test_one_request_to_a_leader_is_under_way_at_a_time() -> None:
    script = Validating()
    script.new_leader(5)
    script.seek(9, leader_epoch=3)
    assert script.waits().count("OffsetForLeaderEpoch") == 1
    script.ended(12)
    assert script.requested(api.OffsetForLeaderEpoch).epochs == {tp(0): 3}


def test_an_older_leader_that_a_broker_still_tells_of_is_not_believed() -> None:
    script = Validating()
    script.new_leader(5)
    script.ended(10)
    script.leader_epochs[0] = 4
    script.leaders[0] = 9
    script.fresh_metadata()
    fetches = [(each.key.node_id, part) for each, part in script.fetch_parts() if part.partition == 0]
    assert {(node, part.leader_epoch) for node, part in fetches} == {(1, 5)}


def test_an_epoch_that_its_leader_does_not_know_was_damaged_on_the_way() -> None:
    """Law 4 of the cluster: three times, so that a leader may be late."""
    script = Validating()
    script.new_leader(1 << 20)
    script.ended(10)
    script.pass_time(1.0)
    script.leader_epochs[0] = 3
    known: list[int] = []
    while known[-1:] != [3]:
        known += [part.leader_epoch for _, part in script.fetch_parts() if part.partition == 0]
        unknown = api.FetchedPartition(error=ErrorCode.UNKNOWN_LEADER_EPOCH)
        quiet = api.FetchedPartition(next_offset=0, high_watermark=0)
        script.response(api.Fetch, api.FetchResponse(partitions={tp(0): unknown, tp(1): quiet}))
        script.pass_time(2.0)
    assert known[:3] == [1 << 20] * 3
    assert len(known) <= 5, "it may be asked once more before the metadata come"
    assert script.take(PartitionFailed) == []


@pytest.mark.requirement("surface/validation")
def test_after_such_an_epoch_the_next_leader_is_asked_for_its_log() -> None:
    """All real epochs seemed to be older ones, and a log that was cut was read on."""
    script = Validating()
    script.new_leader(1 << 20)
    script.ended(10)
    script.leader_epochs[0] = 3
    for _ in range(20):
        if {part.leader_epoch for _, part in script.fetch_parts() if part.partition == 0} == {3}:
            break
        unknown = api.FetchedPartition(error=ErrorCode.UNKNOWN_LEADER_EPOCH)
        quiet = api.FetchedPartition(next_offset=0, high_watermark=0)
        script.response(api.Fetch, api.FetchResponse(partitions={tp(0): unknown, tp(1): quiet}))
        script.pass_time(2.0)
    script.leader_epochs[0] = 4
    script.fresh_metadata()
    request = script.requested(api.OffsetForLeaderEpoch)
    assert (request.epochs, request.leader_epochs) == ({tp(0): 3}, {tp(0): 4})
    script.ended(5, 2)
    assert [event.void_from for event in script.take(PartitionFailed)] == [5]


@pytest.mark.parametrize("serves", [True, False])
def test_an_epoch_is_doubted_only_where_its_leader_did_not_serve_in_between(serves: bool) -> None:
    """A leader that is late for a moment, three times in a year."""
    script = NetworkScript()
    script.topic_ids, script.leader_epochs = {"t": OLD}, {0: 5}
    script.member_of(1, 0)
    script.leader_epochs = {0: 4}  # of a broker that lags
    unknown, well = api.FetchedPartition(error=ErrorCode.UNKNOWN_LEADER_EPOCH), api.FetchedPartition(next_offset=0)
    for _ in range(3):
        for each in (well, unknown) if serves else (unknown,):
            script.response(api.Fetch, api.FetchResponse(partitions={tp(0): each}))
        script.pass_time(2.0)
    script.fresh_metadata()
    script.response(api.Fetch, api.FetchResponse(partitions={tp(0): well}))
    assert [part.leader_epoch for part in script.requested(api.Fetch).partitions] == [5 if serves else 4]


def test_a_validation_that_names_such_an_epoch_is_made_with_the_right_one() -> None:
    script = Validating()
    script.new_leader(1 << 20)
    script.leader_epochs[0] = 3
    for _ in range(3):
        assert script.requested(api.OffsetForLeaderEpoch).leader_epochs == {tp(0): 1 << 20}
        script.ended(-1, -1, error=ErrorCode.UNKNOWN_LEADER_EPOCH)
        script.pass_time(2.0)
    assert script.requested(api.OffsetForLeaderEpoch).leader_epochs == {tp(0): 3}


def test_the_beginning_of_a_log_is_found_though_such_an_epoch_was_told() -> None:
    """What a real Kafka behind a damaging network has shown: a seek to the beginning stood still for ever."""
    script = Validating()
    script.new_leader(1 << 20)
    script.leader_epochs[0] = 3
    script.seek(EARLIEST)
    for _ in range(3):
        assert script.requested(api.ListOffsets).leader_epochs == {tp(0): 1 << 20}
        unknown = api.ListedOffset(error=ErrorCode.UNKNOWN_LEADER_EPOCH)
        script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): unknown}))
        script.pass_time(2.0)
    assert script.requested(api.ListOffsets).leader_epochs == {tp(0): 3}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_look_whether_an_offset_is_out_of_range_doubts_such_an_epoch_too(code: int) -> None:
    """That one leads no more says nothing of its epoch."""
    script = Validating()
    script.new_leader(1 << 20)
    script.ended(10)
    script.leader_epochs[0] = 3
    script.pass_time(1.0)
    fetched = api.FetchedPartition(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    quiet = api.FetchedPartition(next_offset=0, high_watermark=0)
    script.response(api.Fetch, api.FetchResponse(partitions={tp(1): quiet}))
    script.response(api.Fetch, api.FetchResponse(partitions={tp(0): fetched}))
    for _ in range(3):
        script.pass_time(2.0)
        assert script.requested(api.ListOffsets).leader_epochs == {tp(0): 1 << 20}
        refused = api.ListedOffset(error=code)
        script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): refused}))
    script.pass_time(2.0)
    doubted = code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert script.requested(api.ListOffsets).leader_epochs == {tp(0): 3 if doubted else 1 << 20}


def test_a_leader_that_is_no_broker_is_not_believed_for_ever_whatever_its_epoch() -> None:
    """One bit of metadata that shifts what follows makes both. Nobody is there who could say that he does not lead."""
    script = Validating()
    script.leaders[0] = 1 << 24
    script.new_leader(1 << 20)
    script.leaders[0], script.leader_epochs[0] = 1, 3
    for seconds in (3.0, 5.0):
        assert 0 not in script.fetched_from(), "a broker that lags may tell of the leader before"
        script.pass_time(seconds)
        quiet = api.FetchedPartition(next_offset=0, high_watermark=0)
        script.response(api.Fetch, api.FetchResponse(partitions={tp(1): quiet}))
    assert script.fetched_from()[0] == 10


class WrongLeader(Validating):
    """One bit of metadata named another broker as the leader of partition 0, another a high epoch."""

    def __init__(self) -> None:
        super().__init__(metadata_max_age=60.0)
        self.nodes = (1, 2)
        self.leaders[0] = 2
        self.new_leader(1 << 20)
        self.leaders[0], self.leader_epochs[0] = 1, 3

    def denied(self, seconds: float, *, code: int = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> set[int]:
        """For so long whoever is taken for the leader says that it does not lead. Who was asked last."""
        until, requested = self.now + seconds, set[int]()
        while self.now < until:
            requested = {
                each.key.node_id for each in self.waiting if isinstance(each.request, api.OffsetForLeaderEpoch)
            }
            if requested == {1}:
                break
            if requested:
                self.ended(-1, -1, error=code)
            self.pass_time(1.0)
        return requested


def test_a_leader_that_denies_for_long_is_not_believed_for_ever_whatever_its_epoch() -> None:
    """Law 4 of the cluster: it lives, and no metadata says any more that it leads."""
    script = WrongLeader()
    assert script.denied(55.0) == {2}, "an election may take its time, and a broker that lags tell of the leader before"
    assert script.denied(10.0) == {1}


def test_a_leader_that_some_metadata_confirm_is_asked_on() -> None:
    script = WrongLeader()
    script.denied(50.0)
    script.leaders[0], script.leader_epochs[0] = 2, 1 << 20
    script.denied(5.0)
    script.leaders[0], script.leader_epochs[0] = 1, 3
    assert script.denied(50.0) == {2}
    assert script.denied(20.0) == {1}


def test_a_leader_that_denied_and_then_served_is_asked_on() -> None:
    """Only metadata of brokers that lag name the one before."""
    script = WrongLeader()
    script.denied(50.0)
    script.pass_time(40.0)
    assert script.denied(50.0) == {2}
    assert script.denied(20.0) == {1}


def test_a_final_error_fails_the_partition_which_is_asked_again_later() -> None:
    script = Validating()
    script.new_leader(5)
    script.ended(-1, -1, error=12345)
    (failed,) = script.take(PartitionFailed)
    assert (failed.partition, failed.tried_again) == (tp(0), True)
    assert "OffsetForLeaderEpoch" not in script.waits()
    script.pass_time(2.0)
    script.requested(api.OffsetForLeaderEpoch)
    script.ended(12)
    assert script.fetched_from()[0] == 10


@pytest.mark.requirement("surface/validation")
def test_a_failed_partition_is_validated_before_its_next_try() -> None:
    """Its leader changed while it waited: the new one's log may be shorter."""
    script = Validating(retry_backoff_max=0.1)
    script.response(api.Fetch, api.FetchResponse(partitions={tp(0): api.FetchedPartition(error=12345)}))
    assert len(script.take(PartitionFailed)) == 1
    script.leader_epochs[0] = 4
    script.fresh_metadata()
    script.pass_time(2.0)
    assert script.requested(api.OffsetForLeaderEpoch).epochs == {tp(0): 3}
    assert 0 not in script.fetched_from()
    script.ended(5, 2)
    assert script.take(PartitionFailed)[0].void_from == 5


@pytest.mark.requirement("surface/validation")
def test_a_leader_that_changes_during_the_question_is_asked_as_well() -> None:
    script = Validating()
    script.new_leader(5)
    script.leader_epochs[0] = 6
    script.fresh_metadata()
    script.ended(12)
    assert script.requested(api.OffsetForLeaderEpoch).leader_epochs == {tp(0): 6}
    assert 0 not in script.fetched_from()


class Ahead(NetworkScript):
    """The committed offset is of leader epoch 7. Metadata from a node that is cut off name node 1, in epoch 5."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = (1, 2)
        self.leader_epochs = {0: 5}
        self.committed_offset = None
        self.member_of(1, 0)
        offsets: dict[api.Partition, api.CommittedOffset] = {tp(0): api.CommittedOffset(offset=50, leader_epoch=7)}
        self.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=offsets))


@pytest.mark.requirement("surface/validation")
def test_a_position_newer_than_the_metadata_waits_for_newer_ones() -> None:
    script = Ahead()
    script.pass_time(2.0)
    assert not {"Fetch", "OffsetForLeaderEpoch", "ListOffsets"}.intersection(script.waits()), "its log may be shorter"
    assert 3 <= script.metadata_responses <= 8
    script.leaders[0], script.leader_epochs[0] = 2, 7
    script.pass_time(1.5)
    (action,) = [each for each in script.waiting if isinstance(each.request, api.OffsetForLeaderEpoch)]
    assert action.key.node_id == 2
    ends: dict[api.Partition, api.EpochEnd] = {tp(0): api.EpochEnd(leader_epoch=7, end_offset=60)}
    script.response(api.OffsetForLeaderEpoch, api.OffsetForLeaderEpochResponse(ends=ends))
    assert script.requested(api.Fetch).partitions[0].offset == 50
    assert script.take(PartitionFailed) == []


def test_a_position_newer_than_any_metadata_is_read_after_a_while() -> None:
    """Its epoch may have been damaged, or be of another cluster."""
    script = Ahead()
    script.pass_time(4.9)
    assert "Fetch" not in script.waits()
    script.pass_time(0.2)
    assert script.requested(api.Fetch).partitions[0].offset == 50
    before = script.metadata_responses
    script.pass_time(30.0)
    assert script.metadata_responses == before, "nothing is awaited any more"


# --- topics that were made anew -----------------------------------------------------------------------------


class Recreated(Validating):
    def recreate(self) -> None:
        self.topic_ids["t"] = NEW
        self.leader_epochs = dict.fromkeys(range(4), 0)
        self.fresh_metadata()


@pytest.mark.requirement("surface/topic-ids")
@pytest.mark.parametrize(
    ("policy", "reset"), [("earliest", EARLIEST), ("latest", LATEST), ("by_duration:PT1H", BY_DURATION)]
)
def test_an_offset_of_a_topic_that_was_made_anew_is_reset_by_policy(policy: str, reset: int) -> None:
    script = Recreated(auto_offset_reset=policy)
    script.recreate()
    failed = {event.partition: event for event in script.take(PartitionFailed)}
    assert {event.reset for event in failed.values()} == {reset}
    assert isinstance(failed[tp(0)].error, TopicRecreatedError)
    script.response(api.Fetch, api.FetchResponse(partitions={}))
    assert script.fetched_from() == {}, "no old offset is used"
    script.seek(reset)
    for _ in range(2 if reset == BY_DURATION else 1):  # the end, and what was written since
        script.response(
            api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=0, leader_epoch=0)})
        )
    assert script.take(Positioned)[-1].offset == 0
    assert script.fetched_from() == {0: 0}
    assert script.requested(api.Fetch).partitions[0].topic_id == NEW


def test_without_a_policy_it_is_an_error_with_both_ids() -> None:
    script = Recreated(auto_offset_reset="none")
    script.recreate()
    error = script.take(PartitionFailed)[0].error
    assert isinstance(error, TopicRecreatedError)
    assert (error.old_topic_id, error.topic_id, error.topic) == (OLD, NEW, "t")


@pytest.mark.requirement("surface/topic-ids")
def test_what_was_fetched_from_the_old_one_and_arrives_late_is_dropped() -> None:
    script = Recreated()
    script.recreate()
    script.take(PartitionFailed)
    script.read(1, 0, 5)
    assert script.take(Fetched) == []


@pytest.mark.requirement("surface/topic-ids")
def test_a_commit_of_the_old_one_is_refused() -> None:
    script = Recreated()
    script.commit({0: 5}, epoch=script.epoch(0))
    script.committed()
    script.take(CallCompleted)
    script.recreate()
    script.commit({0: 10}, epoch=script.epoch(0))
    (response,) = script.take(CallCompleted)
    assert isinstance(response.committed[tp(0)], CommitFailedError)
    assert "OffsetCommit" not in script.waits()
    script.seek(3, divergences=1)
    script.commit({0: 4}, epoch=script.epoch(0), seek_number=1)
    assert script.committed() == {0: 4}


def test_a_topic_that_is_gone_for_a_while_is_known_again_as_another() -> None:
    script = Recreated()
    partitions = script.topics.pop("t")
    script.fresh_metadata()
    assert script.take(PartitionFailed) == []
    script.topics["t"] = partitions
    script.recreate()
    assert len(script.take(PartitionFailed)) == 2


def lagging() -> Recreated:
    """The new topic is read, and a broker that is behind says that the old one is there."""
    script = Recreated()
    script.recreate()
    script.take(PartitionFailed)
    script.seek(4, divergences=1)
    script.topic_ids["t"] = OLD
    script.fresh_metadata()
    return script


@pytest.mark.requirement("surface/topic-ids")
def test_a_broker_that_is_behind_does_not_turn_a_topic_back_into_the_old_one() -> None:
    """What was read was read again, or with "latest" passed over, and each commit refused."""
    script = lagging()
    assert script.take(PartitionFailed) == []
    script.commit({0: 4}, epoch=script.epoch(0), seek_number=1)
    request = script.requested(api.OffsetCommit)
    assert request.topic_ids == {"t": NEW}
    before = script.metadata_responses
    script.pass_time(2.0)
    assert script.metadata_responses > before, "another broker is asked soon"
    script.topic_ids["t"] = NEW
    script.pass_time(8.0)
    script.topic_ids["t"] = OLD
    script.fresh_metadata()
    assert script.take(PartitionFailed) == [], "the time counts anew"


@pytest.mark.requirement("surface/topic-ids")
def test_an_id_that_is_named_again_for_long_is_believed() -> None:
    """The first broker that named the other id may have been the one that was behind."""
    script = lagging()
    script.pass_time(8.0)
    assert {event.partition for event in script.take(PartitionFailed)} == {tp(0), tp(1)}


def test_a_position_that_is_still_searched_is_searched_in_the_new_one() -> None:
    script = NetworkScript()
    script.topic_ids = {"t": OLD}
    script.committed_offset = None
    script.member_of(1, 0)
    nothing: dict[api.Partition, api.CommittedOffset] = {tp(0): api.CommittedOffset()}
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=nothing))
    script.requested(api.ListOffsets)
    script.topic_ids = {"t": NEW}
    script.fresh_metadata()
    listed = api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=7)})
    script.response(api.ListOffsets, listed)
    assert script.take(Positioned) == [], "that may have been the old one's end"
    script.response(api.ListOffsets, listed)
    assert script.take(Positioned)[0].offset == 7
    assert script.take(PartitionFailed) == []
    script.commit({0: 7})
    assert script.committed() == {0: 7}, "nothing of it is of the old one"


def test_a_search_that_failed_goes_on_in_the_new_one() -> None:
    script = NetworkScript(retry_backoff_max=0.1)
    script.topic_ids = {"t": OLD}
    script.committed_offset = None
    script.member_of(1, 0)
    refused: dict[api.Partition, api.CommittedOffset] = {tp(0): api.CommittedOffset(error=12345)}
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets=refused))
    assert len(script.take(PartitionFailed)) == 1
    script.committed_offset = 7
    script.topic_ids = {"t": NEW}
    script.fresh_metadata()
    assert script.take(PartitionFailed) == [], "it had no offset of the old one"
    script.pass_time(2.0)
    assert script.take(Positioned)[0].offset == 7
    script.commit({0: 7})
    assert script.committed() == {0: 7}


@pytest.mark.rule("8")
@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_one_that_is_given_back_is_not_read_on_at_the_old_offset(policy: str) -> None:
    """The application heard of the new topic while its revocation was pending, when it takes nothing."""
    script = Recreated(auto_offset_reset=policy)
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.rebalance(2, 1)
    script.recreate()
    script.take(PartitionFailed)
    script.response(api.Fetch, api.FetchResponse(partitions={}))
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.rebalance(3, 0, 1)
    back = SetPosition(partition=tp(0), epoch=script.epoch(0), seek_number=0, fetch_number=2, offset=10, leader_epoch=3)
    script.do(back)
    (failed,) = script.take(PartitionFailed)
    assert (failed.partition, failed.fetch_number) == (tp(0), 2)
    assert (type(failed.error), failed.reset) == (TopicRecreatedError, EARLIEST if policy == "earliest" else None)
    script.pass_time(5.0)
    assert 0 not in script.fetched_from()
    script.seek(4, number=3, divergences=failed.divergences)
    assert script.fetched_from()[0] == 4
    script.commit({0: 5}, epoch=script.epoch(0), seek_number=3)
    assert script.committed() == {0: 5}


def test_a_failed_partition_of_the_old_one_does_not_go_on_at_its_offset() -> None:
    script = Recreated(auto_offset_reset="none")
    script.response(api.Fetch, api.FetchResponse(partitions={tp(0): api.FetchedPartition(error=12345)}))
    assert len(script.take(PartitionFailed)) == 1
    script.recreate()
    assert {type(event.error) for event in script.take(PartitionFailed)} == {TopicRecreatedError}


# --- seeks of who did not know of that yet --------------------------------------------------------------------


@pytest.mark.requirement("surface/topic-ids")
@pytest.mark.parametrize("policy", ["latest", "none"])
def test_a_seek_of_who_did_not_know_of_the_new_topic_leads_nowhere_in_it(policy: str) -> None:
    """Its offset is one of the old topic. It was read from there in the new one, and nobody heard of the loss."""
    script = Recreated(auto_offset_reset=policy)
    script.recreate()
    script.take(PartitionFailed)
    script.seek(4)
    (failed,) = script.take(PartitionFailed)
    assert (type(failed.error), failed.fetch_number) == (TopicRecreatedError, 1)
    assert failed.reset == (LATEST if policy == "latest" else None)
    script.response(api.Fetch, api.FetchResponse(partitions={}))
    assert 0 not in script.fetched_from()
    script.commit({0: 4}, epoch=script.epoch(0), seek_number=1)
    (response,) = script.take(CallCompleted)
    assert isinstance(response.committed[tp(0)], CommitFailedError)
    script.seek(4, number=2, divergences=failed.divergences)
    assert script.take(PartitionFailed) == []
    assert script.fetched_from()[0] == 4


@pytest.mark.parametrize("end", [EARLIEST, LATEST])
def test_a_seek_to_an_end_is_one_to_that_of_the_new_topic_where_there_is_a_policy(end: int) -> None:
    """It names no offset of the old one. Where the policy leads instead records may be passed over."""
    script = Recreated(auto_offset_reset="latest" if end == EARLIEST else "earliest")
    script.recreate()
    script.take(PartitionFailed)
    script.response(api.Fetch, api.FetchResponse(partitions={}))
    script.seek(end)
    assert script.requested(api.ListOffsets).timestamps == {tp(0): end}
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=3)}))
    script.seek(2, number=2)
    assert script.take(PartitionFailed) == [], "of this topic a position was known by then"
    script.response(api.Fetch, api.FetchResponse(partitions={}))
    assert script.fetched_from()[0] == 2


def test_without_a_policy_the_user_hears_of_a_topic_made_anew_whatever_he_sought() -> None:
    script = Recreated(auto_offset_reset="none")
    script.recreate()
    script.take(PartitionFailed)
    script.seek(EARLIEST)
    assert [type(event.error) for event in script.take(PartitionFailed)] == [TopicRecreatedError]
    script.topic_ids["t"] = UUID(int=3)
    script.fresh_metadata()
    newest = {event.partition: event for event in script.take(PartitionFailed)}[tp(0)]
    assert isinstance(newest.error, TopicRecreatedError)
    assert newest.error.topic_id == UUID(int=3), "it was made anew once more"
    assert "ListOffsets" not in script.waits()
    script.seek(EARLIEST, number=2, divergences=newest.divergences)
    assert script.requested(api.ListOffsets).timestamps == {tp(0): EARLIEST}


@pytest.mark.requirement("surface/validation")
@pytest.mark.parametrize("offset", [2, 8, LATEST])
def test_without_a_policy_the_user_hears_of_a_log_that_was_cut_though_he_sought(offset: int) -> None:
    script = Validating(auto_offset_reset="none")
    script.new_leader(7)
    script.ended(5, 2)
    script.take(PartitionFailed)
    script.seek(offset)
    (failed,) = script.take(PartitionFailed)
    assert isinstance(failed.error, LogTruncationError)
    assert (failed.error.divergent_offset, failed.fetch_number) == (5, 1)
    script.pass_time(2.0)
    assert 0 not in script.fetched_from()
    script.seek(3, number=2, divergences=failed.divergences)
    assert script.fetched_from()[0] == 3


def cut() -> tuple[Recreated, PartitionFailed]:
    """At 5, and without a policy."""
    script = Recreated(auto_offset_reset="none")
    script.new_leader(7)
    script.ended(5, 2)
    (failed,) = script.take(PartitionFailed)
    return script, failed


@pytest.mark.parametrize("offset", [2, 8, LATEST])
def test_a_reassigned_partition_is_not_read_on_where_a_refused_seek_led(offset: int) -> None:
    script, _ = cut()
    script.seek(offset)
    script.take(PartitionFailed)
    script.seek(offset, number=1, fetch_number=2)
    (failed,) = script.take(PartitionFailed)
    assert (type(failed.error), failed.fetch_number) == (LogTruncationError, 2)
    assert 0 not in script.fetched_from()


def test_a_seek_between_a_reassignment_and_its_validation_is_one_of_before() -> None:
    script, _ = cut()
    script.seek(10, number=0, fetch_number=1, leader_epoch=3)
    script.seek(8, number=1, fetch_number=2)
    assert [type(event.error) for event in script.take(PartitionFailed)] == [LogTruncationError]
    assert 0 not in script.fetched_from()


def test_one_truncation_that_is_found_twice_is_told_as_one() -> None:
    """The user knows it, and seeks: that was refused, since a reassignment had found the same once more."""
    script, failed = cut()
    script.seek(10, number=0, fetch_number=1, leader_epoch=3)
    script.ended(5, 2)
    script.take(PartitionFailed)
    script.seek(5, number=1, fetch_number=2, divergences=failed.divergences)
    assert script.take(PartitionFailed) == []
    script.response(api.Fetch, api.FetchResponse(partitions={}))
    assert script.fetched_from()[0] == 5


def test_a_truncation_that_is_over_is_told_of_no_later_seek() -> None:
    """Another leader has what the last one lacked."""
    script, _ = cut()
    script.seek(10, number=0, fetch_number=1, leader_epoch=3)
    script.ended(10, 3)
    script.seek(8, number=1, fetch_number=2)
    assert script.take(PartitionFailed) == []


def test_a_refused_seek_leads_into_no_topic_that_is_made_anew() -> None:
    script, truncated = cut()
    script.seek(LATEST)
    script.take(PartitionFailed)
    script.recreate()
    assert {type(event.error) for event in script.take(PartitionFailed)} == {TopicRecreatedError}
    script.seek(5, number=2, divergences=truncated.divergences)
    assert [type(event.error) for event in script.take(PartitionFailed)] == [TopicRecreatedError]
    assert 0 not in script.fetched_from()


def test_where_there_is_a_policy_a_seek_takes_the_place_of_a_reset_to_the_cut() -> None:
    script = Validating(auto_offset_reset="latest")
    script.new_leader(7)
    script.ended(5, 2)
    script.take(PartitionFailed)
    script.seek(2)
    assert script.take(PartitionFailed) == []
    assert script.fetched_from()[0] == 2


@pytest.mark.requirement("surface/topic-ids")
def test_a_reset_to_a_cut_leads_nowhere_in_a_topic_that_was_made_anew_meanwhile() -> None:
    script = Recreated(auto_offset_reset="latest")
    script.new_leader(7)
    script.ended(5, 2)
    (cut,) = script.take(PartitionFailed)
    script.recreate()
    script.take(PartitionFailed)
    script.seek(5, leader_epoch=2, reset_from=10, divergences=cut.divergences)
    (failed,) = script.take(PartitionFailed)
    assert (type(failed.error), failed.reset) == (TopicRecreatedError, LATEST)
    assert 0 not in script.fetched_from()
