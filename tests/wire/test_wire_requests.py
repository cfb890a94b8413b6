"""Every API in every version: what a broker reads of our requests."""

from __future__ import annotations

from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader
from wire_examples import EVERY_VERSION, REQUESTS, A, B
from wire_strategies import plain

from instride._wire import api
from instride._wire.message_codecs import codec_of
from instride._wire.sasl.messages import SaslAuthenticate, SaslHandshake
from instride.errors import ConfigError
from step_counter import calls


def seen_by_the_broker(request: api.Request, version: int) -> Any:
    """Our request's body as kio reads it (these bytes are ours, so its reader may have them)."""
    codec = codec_of(type(request))
    body = codec.encode(request, version)
    entity, size = entity_reader(load_request_schema(codec.api_key, version))(body, 0)
    assert size == len(body)
    return plain(entity)


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
def test_a_broker_can_read_the_request(kind: type[api.Request], version: int) -> None:
    CHECKS[kind](seen_by_the_broker(REQUESTS[kind], version), version)


def check_api_versions(seen: Any, version: int) -> None:
    if version >= 3:
        assert seen["client_software_name"] == "instride"
    else:
        assert seen == {}


def check_metadata(seen: Any, version: int) -> None:
    assert [topic["name"] for topic in seen["topics"]] == ["a", "b"]
    if version >= 4:
        assert seen["allow_auto_topic_creation"] is False


def check_find_coordinator(seen: Any, version: int) -> None:
    assert (seen["coordinator_keys"] == ["g"]) if version >= 4 else (seen["key"] == "g")
    assert seen.get("key_type", 0) == 0


def check_join_group(seen: Any, version: int) -> None:
    assert seen["group_id"] == "g"
    assert seen["member_id"] == "m"
    assert seen["session_timeout"] == 45_000
    assert seen["protocol_type"] == "consumer"
    assert seen["protocols"] == [{"name": "x", "metadata": b"1"}, {"name": "y", "metadata": b""}]
    if version >= 1:
        assert seen["rebalance_timeout"] == 300_500
    if version >= 8:
        assert seen["reason"] == "why"


def check_sync_group(seen: Any, version: int) -> None:
    assert (seen["group_id"], seen["generation_id"], seen["member_id"]) == ("g", 4, "m")
    assert seen["assignments"] == [
        {"member_id": "m", "assignment": b"1"},
        {"member_id": "n", "assignment": b"2"},
    ]
    if version >= 5:
        assert (seen["protocol_type"], seen["protocol_name"]) == ("consumer", "x")


def check_heartbeat(seen: Any, _version: int) -> None:
    assert (seen["group_id"], seen["generation_id"], seen["member_id"]) == ("g", 4, "m")


def check_leave_group(seen: Any, version: int) -> None:
    assert seen["group_id"] == "g"
    if version < 3:
        assert seen["member_id"] == "m"
    else:
        (member,) = seen["members"]
        assert member["member_id"] == "m"
        assert member["group_instance_id"] is None
        assert member.get("reason", "why") == "why"


def check_describe_group(seen: Any, version: int) -> None:
    assert list(seen["groups"]) == ["g"]
    if version >= 3:
        assert seen["include_authorized_operations"] is False


def check_offset_commit(seen: Any, version: int) -> None:
    assert (seen["group_id"], seen["generation_id_or_member_epoch"], seen["member_id"]) == ("g", 4, "m")
    key = "topic_id" if version >= 10 else "name"
    assert [topic[key] for topic in seen["topics"]] == ([A, B] if version >= 10 else ["a", "b"])
    first, second = (topic["partitions"] for topic in seen["topics"])
    assert [(each["partition_index"], each["committed_offset"]) for each in first] == [(0, 10), (3, 12)]
    assert [(each["partition_index"], each["committed_offset"]) for each in second] == [(1, 11)]
    assert first[0]["committed_metadata"] == "text"
    if version >= 6:
        assert first[0]["committed_leader_epoch"] == 2
        assert second[0]["committed_leader_epoch"] == -1
    if version <= 4:
        assert seen["retention_time"] == -1


def check_offset_fetch(seen: Any, version: int) -> None:
    group = seen["groups"][0] if version >= 8 else seen
    assert group["group_id"] == "g"
    key = "topic_id" if version >= 10 else "name"
    topics = [(topic[key], topic["partition_indexes"]) for topic in group["topics"]]
    assert topics == [(A if version >= 10 else "a", (0, 3)), (B if version >= 10 else "b", (1,))]
    if version >= 7:
        assert seen["require_stable"] is True


def check_list_offsets(seen: Any, version: int) -> None:
    assert seen["replica_id"] == -1
    partitions = {
        (topic["name"], each["partition_index"]): each for topic in seen["topics"] for each in topic["partitions"]
    }
    assert {key: each["timestamp"] for key, each in partitions.items()} == {
        ("a", 0): -1,
        ("b", 1): -2,
        ("a", 3): 1_700_000_000_000,
    }
    if version >= 2:
        assert seen["isolation_level"] == 0
    if version >= 4:
        assert partitions["b", 1]["current_leader_epoch"] == 6
        assert partitions["a", 0]["current_leader_epoch"] == -1
    if version >= 10:
        assert seen["timeout"] > 0


@pytest.mark.parametrize("version", range(2, 12))
@pytest.mark.parametrize(("committed", "level"), [(False, 0), (True, 1)])
def test_an_end_is_requested_by_its_isolation_level(version: int, *, committed: bool, level: int) -> None:
    request = api.ListOffsets(timestamps={("a", 0): -1}, read_committed=committed)
    assert seen_by_the_broker(request, version)["isolation_level"] == level


@pytest.mark.parametrize("version", [1, 4, 11])
@pytest.mark.parametrize("timestamps", [{("a", 0): 1 << 63}, {("a", 1 << 31): -1}])
def test_what_does_not_fit_into_a_request_for_offsets_is_an_error_of_its_own(
    version: int, timestamps: dict[api.Partition, int]
) -> None:
    with pytest.raises(ConfigError, match=f"does not fit into ListOffsets version {version}"):
        codec_of(api.ListOffsets).encode(api.ListOffsets(timestamps=timestamps), version)


@pytest.mark.parametrize("version", [1, 5, 11])
def test_a_request_for_offsets_calls_no_schema_for_each_partition(version: int) -> None:
    """A `RangeConsumer` sends it ten times a second, with all of its partitions."""
    codec = codec_of(api.ListOffsets)
    few, many = (api.ListOffsets(timestamps=dict.fromkeys(places(count), -1)) for count in (1, 1000))
    codec.encode(few, version)  # the first of a version imports what its messages are made of
    made = calls(lambda: codec.encode(many, version)) - calls(lambda: codec.encode(few, version))
    assert made <= 4 * 999 + 10, "C's for its epoch, to pack it, to find its topic, to append it"


def places(count: int) -> list[api.Partition]:
    return [("t", number) for number in range(count)]


@pytest.mark.parametrize("version", [5, 6, 11])
def test_many_partitions_of_topics_with_long_names_are_requested(version: int) -> None:
    """Where a count or a length takes more than one byte, or more than two."""
    names = {"x" * 249: 300, "y": 17_000}
    timestamps = {(name, number): -2 for name, count in names.items() for number in range(count)}
    seen = seen_by_the_broker(api.ListOffsets(timestamps=timestamps), version)
    assert {topic["name"]: len(topic["partitions"]) for topic in seen["topics"]} == names
    assert [each["partition_index"] for each in seen["topics"][1]["partitions"]] == list(range(17_000))


def check_offset_for_leader_epoch(seen: Any, _version: int) -> None:
    assert seen["replica_id"] == -1
    partitions = {(topic["topic"], each["partition"]): each for topic in seen["topics"] for each in topic["partitions"]}
    assert {key: each["leader_epoch"] for key, each in partitions.items()} == {("a", 0): 3, ("b", 1): 4, ("a", 3): 0}
    assert {key: each["current_leader_epoch"] for key, each in partitions.items()} == {
        ("a", 0): -1,
        ("b", 1): 6,
        ("a", 3): -1,
    }


def check_sasl_handshake(seen: Any, _version: int) -> None:
    assert seen == {"mechanism": "PLAIN"}


def check_sasl_authenticate(seen: Any, _version: int) -> None:
    assert seen == {"auth_bytes": b"\0u\0p"}


CHECKS: dict[type[api.Request], Any] = {
    api.ApiVersions: check_api_versions,
    api.Metadata: check_metadata,
    api.FindCoordinator: check_find_coordinator,
    api.JoinGroup: check_join_group,
    api.SyncGroup: check_sync_group,
    api.Heartbeat: check_heartbeat,
    api.LeaveGroup: check_leave_group,
    api.DescribeGroup: check_describe_group,
    api.OffsetCommit: check_offset_commit,
    api.OffsetFetch: check_offset_fetch,
    api.ListOffsets: check_list_offsets,
    api.OffsetForLeaderEpoch: check_offset_for_leader_epoch,
    SaslHandshake: check_sasl_handshake,
    SaslAuthenticate: check_sasl_authenticate,
}


def test_static_membership_reaches_the_broker() -> None:
    static: list[api.Request] = [
        api.JoinGroup(
            group_id="g",
            session_timeout=1,
            rebalance_timeout=1,
            member_id="",
            protocols=(),
            group_instance_id="i",
        ),
        api.SyncGroup(group_id="g", generation=1, member_id="m", group_instance_id="i"),
        api.Heartbeat(group_id="g", generation=1, member_id="m", group_instance_id="i"),
        api.LeaveGroup(group_id="g", member_id="m", group_instance_id="i"),
        api.OffsetCommit(group_id="g", generation=1, member_id="m", offsets={}, group_instance_id="i"),
    ]
    for request in static:
        codec = codec_of(type(request))
        lowest = codec.needs(request).lowest
        assert lowest > codec.lowest
        for version in range(lowest, codec.highest + 1):
            seen = seen_by_the_broker(request, version)
            member = seen["members"][0] if "members" in seen else seen
            assert member["group_instance_id"] == "i"


@pytest.mark.vector(37)
def test_a_reason_is_cut_to_what_brokers_take() -> None:
    join = api.JoinGroup(
        group_id="g", session_timeout=1, rebalance_timeout=1, member_id="", protocols=(), reason="r" * 300
    )
    assert seen_by_the_broker(join, 9)["reason"] == "r" * 255
    leave = api.LeaveGroup(group_id="g", member_id="m", reason="r" * 300)
    assert seen_by_the_broker(leave, 5)["members"][0]["reason"] == "r" * 255


@pytest.mark.parametrize("version", range(1, 14))
def test_metadata_of_all_topics_and_of_none(version: int) -> None:
    for topics in (None, ()):
        request = api.Metadata(topics=topics, allow_auto_topic_creation=True)
        assert seen_by_the_broker(request, version)["topics"] == (None if topics is None else [])
