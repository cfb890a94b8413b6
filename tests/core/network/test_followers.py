"""Reading from a replica in the client's rack (KIP-392)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Assign, Fetched, PartitionFailed
from instride._core.network.ranges import RangeChunk
from instride._wire import api
from instride.errors import ErrorCode, TransportError
from instride.records import TopicPartition


class Racks(NetworkScript):
    """Node 1 leads; nodes 2 and 3 follow."""

    def __init__(self, *partitions: int, metadata_max_age: float = 60.0, group_id: str | None = "g") -> None:
        super().__init__(client_rack="r2", metadata_max_age=metadata_max_age, group_id=group_id)
        self.nodes = (1, 2, 3)
        self.leader_epochs = {0: 3}
        if group_id is not None:
            self.member_of(1, *partitions or (0,))

    def fetch(self, *, to: int, partition: int = 0, **response: Any) -> None:
        """Respond to the oldest fetch, which is at this node."""
        action = next(each for each in self.waiting if isinstance(each.request, api.Fetch))
        assert action.key.node_id == to, f"node {action.key.node_id} was asked"
        assert isinstance(action.request, api.Fetch)
        offset = action.request.partitions[0].offset if action.request.partitions else 0
        fetched = api.FetchedPartition(**{"next_offset": offset, "high_watermark": 100, **response})
        self.waiting.remove(action)
        self.machine.response_received(
            action.request_id, api.FetchResponse(partitions={tp(partition): fetched}), self.now
        )
        self.settle()

    def next_fetch(self, node_id: int) -> set[int]:
        """The fetch at this node ends without records; the partitions that the next one names."""
        (action,) = (
            each for each in self.waiting if each.key.node_id == node_id and isinstance(each.request, api.Fetch)
        )
        self.waiting.remove(action)
        self.machine.response_received(action.request_id, api.FetchResponse(), self.now)
        self.settle()
        requests = [each.request for each in self.waiting if each.key.node_id == node_id]
        fetches = (request for request in requests if isinstance(request, api.Fetch))
        return {each.partition for fetch in fetches for each in fetch.partitions}

    def records(self, end: int) -> dict[str, Any]:
        chunk = RangeChunk(topic="t", partition=0, first_offset=0, next_offset=end, leader_epoch=3)
        return {"chunk": chunk, "next_offset": end}

    def asked_node(self) -> int:
        (action,) = [each for each in self.waiting if isinstance(each.request, api.Fetch)]
        return action.key.node_id


@pytest.fixture
def script() -> Racks:
    return Racks()


@pytest.mark.requirement("surface/follower-fetch")
def test_the_leader_is_told_our_rack_and_the_replica_it_names_is_read_from(script: Racks) -> None:
    assert script.requested(api.Fetch).rack == "r2"
    script.fetch(to=1, preferred_read_replica=2)
    script.fetch(to=2, **script.records(5))
    assert [each.next_offset for each in script.take(Fetched)] == [5]
    assert script.asked_node() == 2


def test_a_metric_tells_which_follower_has_responded(script: Racks) -> None:
    meter = script.machine.meter
    script.fetch(to=1, preferred_read_replica=2)
    assert meter.replicas == {}, "that was the leader"
    script.fetch(to=2, **script.records(5))
    assert meter.replicas == {TopicPartition("t", 0): 2}
    script.fetch(to=2, error=ErrorCode.REPLICA_NOT_AVAILABLE)
    script.pass_time(1.0)
    script.fetch(to=1)
    assert meter.replicas == {}


def test_the_follower_of_a_partition_that_is_ours_no_more_is_forgotten() -> None:
    script = Racks(group_id=None)
    script.do(Assign(partitions={tp(0): 1}))
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=0)}))
    script.fetch(to=1, preferred_read_replica=2)
    script.fetch(to=2, **script.records(5))
    assert script.machine.meter.replicas == {TopicPartition("t", 0): 2}
    script.do(Assign(partitions={tp(1): 2}))
    assert script.machine.meter.replicas == {}


def test_without_a_rack_none_is_told() -> None:
    script = NetworkScript()
    script.member_of(1, 0)
    assert script.requested(api.Fetch).rack == ""


@pytest.mark.vector(75)
def test_the_replica_is_forgotten_after_metadata_max_age_and_the_leader_chooses(script: Racks) -> None:
    script.fetch(to=1, preferred_read_replica=2)
    script.now += 59.0
    script.fetch(to=2)
    assert script.asked_node() == 2
    script.now += 2.0
    script.fetch(to=2)
    assert script.asked_node() == 1
    script.fetch(to=1, preferred_read_replica=3)
    assert script.asked_node() == 3


def test_replicas_whose_time_is_over_are_left_once_a_second() -> None:
    """Not one by one: each look goes over all partitions that are owned."""
    script = Racks(0, 1, metadata_max_age=5.0)
    script.hold_metadata = True  # a look for another reason
    script.fetch(to=1, preferred_read_replica=2)
    script.pass_time(0.9)
    script.fetch(to=1, partition=1, preferred_read_replica=2)
    assert script.next_fetch(2) == {0, 1}
    script.now += 4.1
    script.settle()
    assert script.next_fetch(2) == {1}, "the other's time is over"
    script.now += 0.95
    script.settle()
    assert script.next_fetch(2) == {1}, "its time has been over for 50 ms, and the look was 950 ms ago"
    script.now += 0.1
    script.settle()
    assert not script.next_fetch(2)


@pytest.mark.rule("20")
def test_a_leader_does_not_wait_briefly_for_what_a_follower_is_asked_for() -> None:
    script = Racks(0, 1)
    script.fetch(to=1, preferred_read_replica=2, high_watermark=0)
    assert script.next_fetch(1) == {1}
    waits = {each.key.node_id: each.request.max_wait for each in script.waiting if isinstance(each.request, api.Fetch)}
    assert waits == dict.fromkeys((1, 2), script.config.fetch_max_wait)


@pytest.mark.requirement("surface/follower-fetch")
@pytest.mark.vector(56)
def test_out_of_range_at_a_follower_is_asked_of_the_leader(script: Racks) -> None:
    script.fetch(to=1, preferred_read_replica=2)
    script.fetch(to=2, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert script.take(PartitionFailed) == [], "it may only lag behind"
    script.pass_time(1.0)
    assert script.asked_node() == 1
    script.fetch(to=1, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    script.log_reaches(5, 9)
    assert len(script.take(PartitionFailed)) == 1, "the leader knows"


@pytest.mark.requirement("surface/follower-fetch")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
def test_a_follower_that_fails_is_left(script: Racks, code: int) -> None:
    script.fetch(to=1, preferred_read_replica=2)
    script.fetch(to=2, error=code)
    script.pass_time(1.0)
    assert script.asked_node() == 1
    assert script.take(PartitionFailed) == []


def test_an_epoch_that_a_follower_does_not_know_is_not_doubted_for_that(script: Racks) -> None:
    """It may only be late. Three times the leader itself says so before another epoch is believed."""
    script.topic_ids = {"t": UUID(int=1)}
    script.fresh_metadata()
    script.fetch(to=1, preferred_read_replica=2)
    script.leader_epochs = {0: 2}  # of a broker that lags
    for node in (2, 1, 1):
        script.fetch(to=node, error=ErrorCode.UNKNOWN_LEADER_EPOCH)
        script.pass_time(2.0)
    script.fresh_metadata()
    script.fetch(to=1)
    assert [part.leader_epoch for part in script.requested(api.Fetch).partitions] == [3]


def test_a_follower_whose_connection_breaks_is_left(script: Racks) -> None:
    script.fetch(to=1, preferred_read_replica=2)
    script.response(api.Fetch, TransportError("gone"))
    script.pass_time(1.0)
    assert script.asked_node() == 1


def test_a_follower_that_has_left_the_cluster_is_left(script: Racks) -> None:
    script.fetch(to=1, preferred_read_replica=2)
    script.nodes = (1, 3)
    script.fresh_metadata()
    script.pass_time(1.0)
    assert script.asked_node() == 1


def test_a_replica_that_nobody_knows_is_not_asked(script: Racks) -> None:
    script.fetch(to=1, preferred_read_replica=9)
    script.pass_time(1.0)
    assert script.asked_node() == 1


def test_a_replica_that_nobody_knows_yet_is_looked_for(script: Racks) -> None:
    """The leader gives nothing out meanwhile, and names it again each time."""
    script.fetch(to=1, preferred_read_replica=4)
    script.nodes = (1, 2, 3, 4)
    script.pass_time(2.0)
    script.fetch(to=1, preferred_read_replica=4)
    assert script.asked_node() == 4


@pytest.mark.parametrize("replica", [2, 9])
def test_a_leader_that_names_a_useless_replica_again_and_again_makes_nobody_spin(script: Racks, replica: int) -> None:
    requested, end = 0, script.now + 2.0
    while script.now < end:
        if "Fetch" not in script.waits():
            script.pass_time(0.01)
        elif script.asked_node() == 1:
            requested += 1
            script.fetch(to=1, preferred_read_replica=replica)
        else:
            script.fetch(to=2, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert requested <= 2.0 / (script.config.retry_backoff * 0.8) + 1


def test_a_new_leader_decides_anew(script: Racks) -> None:
    script.fetch(to=1, preferred_read_replica=2)
    script.leaders[0], script.leader_epochs[0] = 3, 4
    script.fresh_metadata()
    script.fetch(to=2)
    assert script.asked_node() == 3


def test_an_error_of_the_leader_is_the_leaders(script: Racks) -> None:
    script.fetch(to=1, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    script.log_reaches(5, 9)
    assert len(script.take(PartitionFailed)) == 1
