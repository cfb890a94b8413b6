"""Schema-driven reading and writing, against kio's own writers and readers over trusted bytes."""

from __future__ import annotations

import dataclasses
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from wire_strategies import body_of, plain, responses

from instride._wire import api
from instride._wire.message_codecs import codec_of, milliseconds, read_request, read_response, write_request
from instride.errors import ConfigError, ProtocolError

SCHEMA_DRIVEN = [kind for kind in api.RESPONSES if kind is not api.Fetch]
EVERY_VERSION = [
    pytest.param(codec_of(kind).api_key, version, id=f"{codec_of(kind).name}-{version}")
    for kind in SCHEMA_DRIVEN
    for version in range(codec_of(kind).lowest, codec_of(kind).highest + 1)
]


def without_absent_tags(entity: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """A tagged field with its default value is not on the wire."""
    tagged = {field.name for field in dataclasses.fields(entity) if "tag" in field.metadata}
    return {name: value for name, value in plain(entity).items() if name in fields or name not in tagged}


@pytest.mark.drawn(35)
@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
@settings(max_examples=10)
@given(data=st.data())
def test_reads_what_kio_wrote(api_key: int, version: int, data: st.DataObject) -> None:
    entity = data.draw(responses(api_key, version))
    fields = read_response(body_of(entity), api_key, version)
    expected = without_absent_tags(entity, fields)
    assert normal(fields) == normal(expected)


def normal(value: Any) -> Any:
    """Empty arrays of numbers are tuples with us and undecided in `plain`."""
    if isinstance(value, dict):
        return {name: normal(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [normal(each) for each in value]
    return value


@pytest.mark.drawn(35)
@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
@settings(max_examples=10)
@given(data=st.data())
def test_a_damaged_response_gives_fields_or_a_protocol_error(api_key: int, version: int, data: st.DataObject) -> None:
    body = bytearray(body_of(data.draw(responses(api_key, version))))
    for _ in range(data.draw(st.integers(1, 4))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    try:
        read_response(body[:cut], api_key, version)
    except ProtocolError:
        pass


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
@settings(max_examples=10)
@given(garbage=st.binary(max_size=60))
def test_garbage_gives_fields_or_a_protocol_error(api_key: int, version: int, garbage: bytes) -> None:
    try:
        read_response(garbage, api_key, version)
    except ProtocolError:
        pass


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_a_huge_array_is_refused_before_it_is_allocated(api_key: int, version: int) -> None:
    read_response_or_none(bytes(40), api_key, version)  # builds the plan outside of the measurement
    bombs = [bytes(lead) + struct.pack(">i", 2**31 - 1) + bytes(11) for lead in range(12)]
    bombs += [bytes(lead) + b"\xff\xff\xff\xff\x0f" + bytes(11) for lead in range(12)]
    tracemalloc.start()
    try:
        for bomb in bombs:
            read_response_or_none(bomb, api_key, version)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_topics_that_were_not_requested_cost_nothing() -> None:
    """Each would be a dict and an object of some hundred bytes, for ten that came."""

    def entry(name: bytes, partitions: bytes) -> bytes:
        return struct.pack(">hh", 0, len(name)) + name + b"\0" + partitions

    partition = struct.pack(">i", 1) + struct.pack(">hiiiiiiii", 0, 5, 1, 7, 1, 1, 1, 1, 0)
    others = entry(b"x", struct.pack(">i", 0)) * 50_000
    topics = struct.pack(">i", 50_001) + others + entry(b"t", partition)
    body = memoryview(bytes(4) + struct.pack(">i", 0) + struct.pack(">h", -1) + struct.pack(">i", 1) + topics)
    codec = codec_of(api.Metadata)
    found = codec.decode(body, 7, api.Metadata(topics=("t", "u")))  # builds the plan outside of the measurement
    (topic,) = found.topics
    assert (topic.name, [(each.partition, each.leader_epoch) for each in topic.partitions]) == ("t", [(5, 7)])
    assert len(codec.decode(body, 7, api.Metadata(topics=None)).topics) == 50_001
    tracemalloc.start()
    try:
        codec.decode(body, 7, api.Metadata(topics=("t", "u")))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def read_response_or_none(body: bytes, api_key: int, version: int) -> dict[str, Any] | None:
    try:
        return read_response(body, api_key, version)
    except ProtocolError:
        return None


def test_an_error_says_where() -> None:
    body = struct.pack(">hi", 0, 3) + bytes(17)
    with pytest.raises(ProtocolError, match=r"ApiVersionsResponse version 0: api_keys: .* claims 3 elements"):
        read_response(body, 18, 0)


def test_an_unknown_error_code_passes() -> None:
    assert read_response(struct.pack(">ih", 0, 12345), 12, 3)["error_code"] == 12345


def test_an_unknown_tag_is_skipped() -> None:
    assert read_response(struct.pack(">ih", 0, 27) + b"\x01\x63\x03abc", 12, 4)["error_code"] == 27


def test_fields_that_a_version_lacks_are_left_out() -> None:
    fields = {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": "i"}
    assert "group_instance_id" not in read_request(write_request(12, 2, fields), 12, 2)
    assert read_request(write_request(12, 4, fields), 12, 4) == fields


@pytest.mark.parametrize("value", ["x" * 40_000, "\ud800"])
def test_a_value_that_does_not_fit_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="HeartbeatRequest version 3"):
        write_request(12, 3, {"group_id": value, "generation_id": 3, "member_id": "m"})


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="HeartbeatRequest"):
        write_request(12, 3, {"group_id": "g", "generation_id": 2**40, "member_id": "m"})


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, 0), (0.0004, 0), (45.0, 45_000), (1e12, 2**31 - 1), (float("inf"), 2**31 - 1), (-1.0, 0)],
)
def test_milliseconds(seconds: float, expected: int) -> None:
    assert milliseconds(seconds) == expected


def test_all_schemas_of_our_range_exist() -> None:
    for kind in SCHEMA_DRIVEN:
        codec = codec_of(kind)
        for version in range(codec.lowest, codec.highest + 1):
            schema = load_response_schema(codec.api_key, version)
            assert schema.__flexible__ == (version >= codec.flexible_from)


def test_an_array_that_must_be_there_and_is_null_is_refused() -> None:
    with pytest.raises(ProtocolError, match="topics: an array before byte 4 is null and must not be"):
        read_response(struct.pack(">i", -1), 9, 1)
