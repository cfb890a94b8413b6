"""Every API in every version: what we read of a broker's responses, true ones and damaged ones."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from response_builder import build
from wire_examples import CODECS, EVERY_VERSION, IDS, REQUESTS, A
from wire_strategies import body_of, plain, responses

from instride._wire import api
from instride.errors import ErrorCode, ProtocolError


def response_to(kind: type[api.Request], version: int, entity: Any) -> Any:
    return CODECS[kind].decode(memoryview(body_of(entity)), version, REQUESTS[kind])


@pytest.mark.drawn(35)
@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
@settings(max_examples=10)
@given(data=st.data())
def test_any_true_response_is_decoded(kind: type[api.Request], version: int, data: st.DataObject) -> None:
    entity = data.draw(responses(CODECS[kind].api_key, version))
    try:
        response = response_to(kind, version, entity)
    except ProtocolError as error:
        assert "does not speak of the group" in str(error)  # noqa: PT017
        return
    assert isinstance(response, api.RESPONSES[kind])
    assert getattr(response, "error", 0) in codes_in(plain(entity))


def codes_in(value: Any) -> set[int]:
    """Every error code of a response, and 0."""
    if isinstance(value, dict):
        own = {value["error_code"]} if "error_code" in value else {0}
        return own.union(*(codes_in(each) for each in value.values()))
    if isinstance(value, list | tuple):
        return {0}.union(*(codes_in(each) for each in value))
    return {0}


@pytest.mark.drawn(35)
@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damage_gives_a_response_or_a_protocol_error(
    kind: type[api.Request], version: int, data: st.DataObject
) -> None:
    body = bytearray(body_of(data.draw(responses(CODECS[kind].api_key, version))))
    for _ in range(data.draw(st.integers(0, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    try:
        response = CODECS[kind].decode(memoryview(body)[:cut], version, REQUESTS[kind])
    except ProtocolError:
        return
    assert isinstance(response, api.RESPONSES[kind])


def response_entity(kind: type[api.Request], version: int, **fields: Any) -> Any:
    """A response of kio's class from plain values: what the version lacks is left out, the rest has defaults."""
    return build(load_response_schema(CODECS[kind].api_key, version), fields)


def versions_of(kind: type[api.Request]) -> range:
    return range(CODECS[kind].lowest, CODECS[kind].highest + 1)


def test_api_versions_response() -> None:
    for version in versions_of(api.ApiVersions):
        entity = response_entity(
            api.ApiVersions, version, error_code=0, api_keys=[{"api_key": 3, "min_version": 1, "max_version": 9}]
        )
        assert response_to(api.ApiVersions, version, entity) == api.ApiVersionsResponse(versions={3: (1, 9)})


def test_metadata_response() -> None:
    partition = {
        "partition_index": 1,
        "error_code": ErrorCode.LEADER_NOT_AVAILABLE,
        "leader_id": 7,
        "leader_epoch": 3,
        "replica_nodes": (7, 8),
        "isr_nodes": (7,),
        "offline_replicas": (8,),
    }
    for version in versions_of(api.Metadata):
        entity = response_entity(
            api.Metadata,
            version,
            error_code=0,
            brokers=[{"node_id": 7, "host": "h", "port": 9092, "rack": "r"}],
            cluster_id="c",
            controller_id=7,
            topics=[
                {
                    "name": "a",
                    "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "topic_id": A,
                    "is_internal": True,
                    "partitions": [partition],
                }
            ],
        )
        response = response_to(api.Metadata, version, entity)
        topic = api.MetadataTopic(
            name="a",
            error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            topic_id=A if version >= 10 else api.NO_TOPIC_ID,
            is_internal=True,
            partitions=(
                api.MetadataPartition(
                    partition=1,
                    error=ErrorCode.LEADER_NOT_AVAILABLE,
                    leader=7,
                    leader_epoch=3 if version >= 7 else -1,
                    replicas=(7, 8),
                    in_sync_replicas=(7,),
                    offline_replicas=(8,) if version >= 5 else (),
                ),
            ),
        )
        assert response == api.MetadataResponse(
            brokers=(api.Broker(node_id=7, host="h", port=9092, rack="r"),),
            topics=(topic,),
            cluster_id="c" if version >= 2 else None,
            controller_id=7,
        )


def test_metadata_response_without_a_name_is_left_out() -> None:
    entity = response_entity(
        api.Metadata,
        13,
        error_code=ErrorCode.REBOOTSTRAP_REQUIRED,
        topics=[{"name": None, "error_code": ErrorCode.UNKNOWN_TOPIC_ID}],
    )
    assert response_to(api.Metadata, 13, entity) == api.MetadataResponse(error=ErrorCode.REBOOTSTRAP_REQUIRED)


def test_find_coordinator_response() -> None:
    found = {
        "key": "g",
        "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "error_message": "text",
        "node_id": 7,
        "host": "h",
        "port": 1,
    }
    other = found | {"key": "other", "node_id": 8}
    for version in versions_of(api.FindCoordinator):
        entity = response_entity(api.FindCoordinator, version, coordinators=[other, found], **found)
        assert response_to(api.FindCoordinator, version, entity) == api.FindCoordinatorResponse(
            error=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            error_message="text" if version >= 1 else None,
            node_id=7,
            host="h",
            port=1,
        )


def test_find_coordinator_response_for_another_group() -> None:
    entity = response_entity(api.FindCoordinator, 6, coordinators=[{"key": "other"}])
    with pytest.raises(ProtocolError, match="does not speak of the group 'g'"):
        response_to(api.FindCoordinator, 6, entity)


def test_join_group_response() -> None:
    for version in versions_of(api.JoinGroup):
        entity = response_entity(
            api.JoinGroup,
            version,
            error_code=0,
            generation_id=5,
            protocol_type="consumer",
            protocol_name="x",
            leader="m",
            skip_assignment=True,
            member_id="m",
            members=[{"member_id": "m", "group_instance_id": "i", "metadata": b"1"}],
        )
        assert response_to(api.JoinGroup, version, entity) == api.JoinGroupResponse(
            generation=5,
            protocol_type="consumer" if version >= 7 else None,
            protocol="x",
            leader="m",
            skip_assignment=version >= 9,
            member_id="m",
            members=(api.GroupMember(member_id="m", metadata=b"1", group_instance_id="i" if version >= 5 else None),),
        )


def test_sync_group_and_heartbeat_responses() -> None:
    for version in versions_of(api.SyncGroup):
        entity = response_entity(api.SyncGroup, version, error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"123")
        assert response_to(api.SyncGroup, version, entity) == api.SyncGroupResponse(
            error=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"123"
        )
    for version in versions_of(api.Heartbeat):
        entity = response_entity(api.Heartbeat, version, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        assert response_to(api.Heartbeat, version, entity) == api.HeartbeatResponse(error=ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize(("top", "own", "expected"), [(0, 0, 0), (16, 0, 16), (0, 25, 25), (16, 25, 16)])
def test_leave_group_response(top: int, own: int, expected: int) -> None:
    for version in versions_of(api.LeaveGroup):
        entity = response_entity(
            api.LeaveGroup,
            version,
            error_code=top,
            members=[{"member_id": "m", "group_instance_id": None, "error_code": own}],
        )
        error = expected if version >= 3 else top
        assert response_to(api.LeaveGroup, version, entity) == api.LeaveGroupResponse(error=error)


def test_describe_group_response() -> None:
    for version in versions_of(api.DescribeGroup):
        member: dict[str, Any] = {"member_id": "m", "client_id": "theirs", "client_host": "h"}
        member |= {"member_metadata": b"1", "member_assignment": b"2", "group_instance_id": None}
        ours: dict[str, Any] = {"error_code": 0, "group_id": "g", "group_state": "Stable", "protocol_type": "consumer"}
        ours |= {"protocol_data": "range", "members": [member], "error_message": None}
        other = {**ours, "group_id": "other", "error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
        told = api.DescribeGroupResponse(protocol_type="consumer", protocol="range", clients=("theirs",))
        assert (
            response_to(api.DescribeGroup, version, response_entity(api.DescribeGroup, version, groups=[other, ours]))
            == told
        )
        with pytest.raises(ProtocolError, match="'g'"):
            response_to(api.DescribeGroup, version, response_entity(api.DescribeGroup, version, groups=[other]))


def topics_of(*partitions: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": IDS.get(name, UUID(int=0xC)), "partitions": [each]} for name, each in partitions]


def test_offset_commit_response() -> None:
    topics = topics_of(
        ("a", {"partition_index": 0, "error_code": 0}),
        ("b", {"partition_index": 1, "error_code": ErrorCode.ILLEGAL_GENERATION}),
        ("b", {"partition_index": 99, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        ("unasked", {"partition_index": 0, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    )
    for version in versions_of(api.OffsetCommit):
        response = response_to(api.OffsetCommit, version, response_entity(api.OffsetCommit, version, topics=topics))
        # ("a", 3) was requested and is not in the response.
        assert response == api.OffsetCommitResponse(errors={("a", 0): 0, ("b", 1): 22, ("a", 3): -1})


def test_offset_fetch_response() -> None:
    topics = topics_of(
        ("a", {"partition_index": 0, "committed_offset": 8, "committed_leader_epoch": 2, "metadata": "x"}),
        (
            "b",
            {
                "partition_index": 1,
                "committed_offset": -1,
                "metadata": None,
                "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT,
            },
        ),
        ("unasked", {"partition_index": 0, "committed_offset": 1, "metadata": ""}),
    )
    for version in versions_of(api.OffsetFetch):
        group = {"group_id": "g", "topics": topics, "error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        entity = response_entity(api.OffsetFetch, version, groups=[{"group_id": "other"}, group], **group)
        assert response_to(api.OffsetFetch, version, entity) == api.OffsetFetchResponse(
            error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else 0,
            offsets={
                ("a", 0): api.CommittedOffset(offset=8, leader_epoch=2 if version >= 5 else -1, metadata="x"),
                ("b", 1): api.CommittedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT),
                ("a", 3): api.CommittedOffset(error=ErrorCode.UNKNOWN_SERVER_ERROR),
            },
        )


def test_offset_fetch_response_for_another_group() -> None:
    entity = response_entity(api.OffsetFetch, 10, groups=[{"group_id": "other"}])
    with pytest.raises(ProtocolError, match="does not speak of the group 'g'"):
        response_to(api.OffsetFetch, 10, entity)


def test_offset_for_leader_epoch_response() -> None:
    topics = (
        {"topic": "a", "partitions": [{"partition": 0, "leader_epoch": 3, "end_offset": 8, "error_code": 0}]},
        {
            "topic": "b",
            "partitions": [
                {"partition": 1, "leader_epoch": -1, "end_offset": -1, "error_code": ErrorCode.FENCED_LEADER_EPOCH}
            ],
        },
        {"topic": "unasked", "partitions": [{"partition": 0, "leader_epoch": 1, "end_offset": 1}]},
    )
    for version in versions_of(api.OffsetForLeaderEpoch):
        entity = response_entity(api.OffsetForLeaderEpoch, version, topics=topics)
        assert response_to(api.OffsetForLeaderEpoch, version, entity) == api.OffsetForLeaderEpochResponse(
            ends={
                ("a", 0): api.EpochEnd(leader_epoch=3, end_offset=8),
                ("b", 1): api.EpochEnd(error=ErrorCode.FENCED_LEADER_EPOCH),
                ("a", 3): api.EpochEnd(error=ErrorCode.UNKNOWN_SERVER_ERROR),
            }
        )


def test_list_offsets_response() -> None:
    topics = topics_of(
        ("a", {"partition_index": 0, "offset": 8, "timestamp": 9, "leader_epoch": 2}),
        ("b", {"partition_index": 1, "offset": -1, "timestamp": -1, "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}),
    )
    for version in versions_of(api.ListOffsets):
        entity = response_entity(api.ListOffsets, version, topics=topics)
        assert response_to(api.ListOffsets, version, entity) == api.ListOffsetsResponse(
            offsets={
                ("a", 0): api.ListedOffset(offset=8, timestamp=9, leader_epoch=2 if version >= 4 else -1),
                ("b", 1): api.ListedOffset(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
                ("a", 3): api.ListedOffset(error=ErrorCode.UNKNOWN_SERVER_ERROR),
            }
        )


def test_an_offset_that_was_not_requested_is_ignored() -> None:
    topics = topics_of(
        ("a", {"partition_index": 0, "offset": 8, "timestamp": 9}),
        ("a", {"partition_index": 77, "offset": 1, "timestamp": 1}),
        ("z", {"partition_index": 0, "offset": 1, "timestamp": 1}),
    )
    response = response_to(api.ListOffsets, 4, response_entity(api.ListOffsets, 4, topics=topics))
    assert response.offsets.keys() == {("a", 0), ("b", 1), ("a", 3)}
    assert response.offsets["a", 0].offset == 8
