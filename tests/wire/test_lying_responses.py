"""Every response that a broker may send, as long as it may be and full of one thing: what is made of it is bounded.

A response is filled with elements of one array, with texts, or with tags, whatever its schema has; so each new API or
version is tried too.
"""

from __future__ import annotations

import dataclasses
import struct
import tracemalloc
from collections.abc import Iterator
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

import pytest
from kio.index import load_response_schema

from instride._wire import api, message_codecs
from instride._wire.message_codecs import LARGE_BYTES, SMALL_BYTES, codec_of
from instride._wire.sasl.messages import SaslAuthenticate, SaslHandshake
from instride.errors import ProtocolError

REQUESTS: dict[type[api.Request], api.Request] = {
    api.ApiVersions: api.ApiVersions(),
    api.Metadata: api.Metadata(topics=None),
    api.FindCoordinator: api.FindCoordinator(group_id="t"),
    api.JoinGroup: api.JoinGroup(
        group_id="t", session_timeout=45.0, rebalance_timeout=60.0, member_id="t", protocols=()
    ),
    api.SyncGroup: api.SyncGroup(group_id="t", generation=1, member_id="t"),
    api.Heartbeat: api.Heartbeat(group_id="t", generation=1, member_id="t"),
    api.LeaveGroup: api.LeaveGroup(group_id="t", member_id="t"),
    api.DescribeGroup: api.DescribeGroup(group_id="t"),
    api.OffsetCommit: api.OffsetCommit(
        group_id="t", generation=1, member_id="t", offsets={("t", 0): api.OffsetToCommit(offset=1)}
    ),
    api.OffsetFetch: api.OffsetFetch(group_id="t", partitions=(("t", 0),)),
    api.ListOffsets: api.ListOffsets(timestamps={("t", 0): -1}),
    api.OffsetForLeaderEpoch: api.OffsetForLeaderEpoch(epochs={("t", 0): 0}),
    SaslHandshake: SaslHandshake(mechanism="PLAIN"),
    SaslAuthenticate: SaslAuthenticate(auth_bytes=b""),
}
_WIDTHS = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4, "timedelta_i32": 4}
# UTF-8 gives a letter of four bytes for each of them, once one of them needs four.
ONE_TEXT = 300_000
_WIDE_TEXT = ("x" * 32_000 + "\N{GRINNING FACE}").encode()


class Kind(NamedTuple):
    """A field's. inner: the type of it, or of its elements."""

    inner: Any
    is_array: bool
    nullable: bool


def kind_of(field: dataclasses.Field[Any]) -> Kind:
    kind: Any = field.type
    nullable = NoneType in get_args(kind)
    if nullable:
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    is_array = get_origin(kind) is tuple
    return Kind(get_args(kind)[0] if is_array else kind, is_array, nullable)


def plain_fields(schema: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(schema) if "tag" not in field.metadata]


def arrays(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where arrays stand: the names on the way to each."""
    for field in plain_fields(schema):
        inner, is_array, _ = kind_of(field)
        if is_array:
            yield (*path, field.name)
        if dataclasses.is_dataclass(inner):
            yield from arrays(inner, (*path, field.name))


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


class Lie:
    """A response's bytes. The array at `path` has as many elements as `most` bytes hold, the others on the way one.

    text: what all its texts say.
    """

    def __init__(self, schema: Any, path: tuple[str, ...], most: int, text: bytes) -> None:
        self.flexible = bool(schema.__flexible__)
        self.most, self.text = most - 4 * len(text) - 200, text
        self.body = self.entity(schema, path)

    def entity(self, schema: Any, path: tuple[str, ...]) -> bytes:
        made = b"".join(self.field(field, path) for field in plain_fields(schema))
        return made + b"\0" if self.flexible else made

    def field(self, field: dataclasses.Field[Any], path: tuple[str, ...]) -> bytes:
        inner, is_array, nullable = kind_of(field)
        on_the_way = bool(path) and path[0] == field.name
        if is_array:
            count, elements = self.elements(field, inner, path[1:]) if on_the_way else (0, b"")
            return self.length(count, 4) + elements
        if dataclasses.is_dataclass(inner):
            return (b"\1" if nullable else b"") + self.entity(inner, path[1:] if on_the_way else ())
        return self.value(field.metadata["kafka_type"])

    def elements(self, field: dataclasses.Field[Any], inner: Any, rest: tuple[str, ...]) -> tuple[int, bytes]:
        one = self.entity(inner, rest) if dataclasses.is_dataclass(inner) else self.value(field.metadata["kafka_type"])
        count = 1 if rest else self.most // len(one)
        return count, one * count

    def length(self, length: int, width: int) -> bytes:
        return uvarint(length + 1) if self.flexible else length.to_bytes(width, "big")

    def value(self, kafka_type: str) -> bytes:
        if kafka_type == "uuid":
            return bytes(range(16))
        if kafka_type in ("string", "bytes", "records"):
            return self.length(len(self.text), 2 if kafka_type == "string" else 4) + self.text
        return struct.pack(">q", 1001)[-_WIDTHS.get(kafka_type, 8) :]  # no number that Python shares


class Nested(Lie):
    """The array at `path` has elements, each of which has one of the next array within."""

    def __init__(self, schema: Any, path: tuple[str, ...], depth: int, most: int) -> None:
        self.left = depth
        super().__init__(schema, path, most, b"t")

    def elements(self, field: dataclasses.Field[Any], inner: Any, rest: tuple[str, ...]) -> tuple[int, bytes]:
        self.left -= 1
        filled = self.left == 0
        one = self.entity(inner, rest) if dataclasses.is_dataclass(inner) else self.value(field.metadata["kafka_type"])
        count = self.most // len(one) if filled else 1
        return count, one * count


def lies(kind: type[api.Request], version: int, most: int) -> Iterator[tuple[str, bytes]]:
    schema = load_response_schema(codec_of(kind).api_key, version)
    for path in arrays(schema):
        for depth in range(1, len(path) + 1):
            yield f"{path[:depth]} with {path[depth:]}", Nested(schema, path, depth, most).body
        yield f"{'.'.join(path)} with long texts", Lie(schema, path, most, _WIDE_TEXT).body
    if schema.__flexible__:
        few = Lie(schema, (), most, b"t").body[:-1]
        tags = (most - len(few) - 5) // 2
        yield "tags", few + uvarint(tags) + b"\1\0" * tags


def peak(kind: type[api.Request], version: int, body: bytes) -> int:
    """Bytes that were made of it at once."""
    tracemalloc.start()
    try:
        codec_of(kind).decode(memoryview(body), version, REQUESTS[kind])
    except ProtocolError:
        pass
    finally:
        made = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return made


def test_every_response_is_tried() -> None:
    assert {*REQUESTS, api.Fetch} == set(api.RESPONSES)


@pytest.mark.drawn(9)
@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("longest", [LARGE_BYTES, 1 << 18])
def test_what_is_made_of_a_response_takes_twice_its_longest_form_at_most(
    kind: type[api.Request], longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where responses are shorter than they may be, as many elements as fit are within their own bound too."""
    monkeypatch.setattr(message_codecs, "LARGE_BYTES", longest)
    monkeypatch.setattr(message_codecs, "SMALL_BYTES", min(longest, SMALL_BYTES))
    codec = codec_of(kind)
    most = codec.most_bytes(REQUESTS[kind])
    for version in {codec.highest, codec.highest if longest == LARGE_BYTES else codec.lowest}:
        peak(kind, version, b"")  # the plan is built outside of the measurement
        for what, body in lies(kind, version, most):
            assert len(body) <= most
            assert peak(kind, version, body) <= 2 * most + ONE_TEXT, (version, what)


def test_a_fetch_with_very_much_that_nobody_requested_is_refused() -> None:
    """Each would be some objects and ten microseconds."""
    request = api.Fetch(
        partitions=(api.FetchPartition(topic="t", partition=0, offset=0),), max_wait=0.1, min_bytes=1, max_bytes=1
    )
    partition = struct.pack(">ihqqqiii", 1, 0, 1, 1, 1, 0, -1, 0)
    head, topic = struct.pack(">ihi", 0, 0, 0), b"\0\1t"
    for body in (
        head + struct.pack(">i", 1) + topic + struct.pack(">i", 400_000) + partition * 400_000,
        head + struct.pack(">i", 2_000_000) + (topic + bytes(4)) * 2_000_000,
    ):
        with pytest.raises(ProtocolError, match="more than such a message may have"):
            codec_of(api.Fetch).decode(memoryview(body), 11, request)


def test_a_cluster_that_is_too_large_says_what_can_be_done() -> None:
    head = bytes(4) + struct.pack(">ihii", 0, -1, 1, 200_001)
    body = memoryview(head + (b"\0\0\0\1t\0" + bytes(4)) * 200_001)
    with pytest.raises(ProtocolError, match="subscribe to topics by their names"):
        codec_of(api.Metadata).decode(body, 7, api.Metadata(topics=None))
