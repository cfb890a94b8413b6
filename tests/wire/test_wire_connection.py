"""The sans-IO connection, against bytes that kio's writers made."""

from __future__ import annotations

import errno
import struct
from importlib import metadata
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader
from wire_broker import framed, greeting

from instride._wire import api, message_codecs
from instride._wire.connection import Connection, Received
from instride._wire.message_codecs import software_version
from instride.errors import (
    ClusterAuthorizationFailedError,
    ConfigError,
    ErrorCode,
    FrameTooLargeError,
    NotKafkaError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
)


def connected(ranges: dict[int, tuple[int, int]] | None = None, *, max_frame_bytes: int = 1 << 20) -> Connection:
    connection = Connection(client_id="test", max_frame_bytes=max_frame_bytes)
    connection.handshake()
    connection.receive_data(greeting(ranges=ranges))
    assert connection.ready
    return connection


def header_and_body(frame: bytes) -> tuple[dict[str, int | str | None], Any]:
    """What a broker sees, by kio's reader."""
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    key, version = struct.unpack_from(">hh", frame, 4)
    schema = load_request_schema(key, version)
    header, consumed = entity_reader(schema.__header_schema__)(frame, 4)
    entity, size = entity_reader(schema)(frame, 4 + consumed)
    assert 4 + consumed + size == len(frame)
    return {"key": key, "version": version, "id": header.correlation_id, "client": header.client_id}, entity


def heartbeat_response(correlation_id: int, error: int = 0) -> bytes:
    return framed(struct.pack(">ibihb", correlation_id, 0, 0, error, 0))


HEARTBEAT = api.Heartbeat(group_id="g", generation=1, member_id="m")


def test_the_first_frame_says_who_we_are() -> None:
    connection = Connection(client_id="test", max_frame_bytes=1000)
    header, body = header_and_body(connection.handshake())
    assert header == {"key": 18, "version": 3, "id": 0, "client": "test"}
    assert body.client_software_name == "instride"
    assert body.client_software_version
    assert connection.handshake() == b""
    assert not connection.ready


def test_the_handshake_gives_the_versions_and_no_response() -> None:
    connection = Connection(client_id="test", max_frame_bytes=1000)
    connection.handshake()
    assert connection.receive_data(greeting(ranges={3: (0, 13), 12: (0, 4)})) == []
    assert connection.ready
    assert connection.versions == {3: (0, 13), 12: (0, 4)}
    assert connection.handshake() == b""


@pytest.mark.parametrize("rest", [b"", b"\x00", b"\x00\x00\x00\x00", b"\x00\x00\x00\x01\x00\x12\x00\x00\x00\x02"])
def test_a_refused_version_is_asked_again_in_version_0(rest: bytes) -> None:
    connection = Connection(client_id="test", max_frame_bytes=1000)
    connection.handshake()
    connection.receive_data(framed(struct.pack(">ih", 0, 35) + rest))
    assert connection.failure is None
    header, _ = header_and_body(connection.handshake())
    assert header["version"] == 0
    connection.receive_data(greeting(0, correlation_id=1))
    assert connection.ready


def test_a_broker_that_refuses_even_version_0() -> None:
    connection = Connection(client_id="test", max_frame_bytes=1000)
    for correlation_id in range(2):
        assert connection.handshake()
        connection.receive_data(framed(struct.pack(">ih", correlation_id, 35)))
    assert isinstance(connection.failure, UnsupportedVersionError)
    assert connection.handshake() == b""


def test_a_broker_that_refuses_us() -> None:
    connection = Connection(client_id="test", max_frame_bytes=1000)
    connection.handshake()
    connection.receive_data(framed(struct.pack(">ihi", 0, 31, 0)))
    assert isinstance(connection.failure, ClusterAuthorizationFailedError)


def test_send_before_the_handshake_is_the_callers_fault() -> None:
    connection = Connection(client_id="test", max_frame_bytes=1000)
    with pytest.raises(RuntimeError, match="handshake"):
        connection.send(1, HEARTBEAT)


def test_a_response_names_its_request() -> None:
    connection = connected()
    header, body = header_and_body(connection.send(77, HEARTBEAT))
    assert header == {"key": 12, "version": 4, "id": 1, "client": "test"}
    assert (body.group_id, body.generation_id, body.member_id) == ("g", 1, "m")
    assert list(connection.outstanding) == [77]
    assert connection.receive_data(heartbeat_response(1, 27)) == [
        Received(request_id=77, response=api.HeartbeatResponse(error=ErrorCode.REBALANCE_IN_PROGRESS), nbytes=12)
    ]
    assert list(connection.outstanding) == []


def test_responses_in_another_order_find_their_requests() -> None:
    connection = connected()
    for request_id in (10, 11, 12):
        connection.send(request_id, HEARTBEAT)
    received = connection.receive_data(heartbeat_response(3) + heartbeat_response(1))
    assert [each.request_id for each in received] == [12, 10]
    assert connection.outstanding == (11,)


def test_a_response_split_at_every_byte() -> None:
    stream = heartbeat_response(1, 1) + heartbeat_response(2, 2)
    for cut in range(len(stream)):
        connection = connected()
        connection.send(1, HEARTBEAT)
        connection.send(2, HEARTBEAT)
        received = connection.receive_data(stream[:cut]) + connection.receive_data(stream[cut:])
        assert [each.response for each in received] == [
            api.HeartbeatResponse(error=ErrorCode.OFFSET_OUT_OF_RANGE),
            api.HeartbeatResponse(error=ErrorCode.CORRUPT_MESSAGE),
        ]


def test_unknown_tags_in_a_header_are_skipped() -> None:
    connection = connected()
    connection.send(5, HEARTBEAT)
    frame = framed(struct.pack(">i", 1) + b"\x01\x07\x02ab" + struct.pack(">ihb", 0, 25, 0))
    assert connection.receive_data(frame)[0].response == api.HeartbeatResponse(error=ErrorCode.UNKNOWN_MEMBER_ID)


def test_api_versions_responds_with_the_old_header_always() -> None:
    connection = connected()
    connection.send(5, api.ApiVersions())
    (received,) = connection.receive_data(greeting(4, {3: (1, 2)}, correlation_id=1))
    assert received.response == api.ApiVersionsResponse(versions={3: (1, 2)})


def test_a_response_without_a_request() -> None:
    connection = connected()
    connection.send(5, HEARTBEAT)
    received = connection.receive_data(heartbeat_response(1) + heartbeat_response(9) + heartbeat_response(1))
    assert [each.request_id for each in received] == [5]
    assert isinstance(connection.failure, ProtocolError)
    assert "correlation id 9" in str(connection.failure)
    assert not connection.ready
    with pytest.raises(RuntimeError):
        connection.send(6, HEARTBEAT)


def test_a_long_response_without_a_request_is_refused_at_its_beginning() -> None:
    """Nothing is received of what nobody waits for."""
    connection = connected()
    connection.receive_data(struct.pack(">ii", 500_000, 9))
    assert isinstance(connection.failure, FrameTooLargeError)
    assert "for which no request waits" in str(connection.failure)


def test_the_same_response_twice() -> None:
    connection = connected()
    connection.send(5, HEARTBEAT)
    assert len(connection.receive_data(heartbeat_response(1) * 2)) == 1
    assert isinstance(connection.failure, ProtocolError)


def test_a_response_that_cannot_be_decoded() -> None:
    connection = connected()
    connection.send(5, HEARTBEAT)
    (received,) = connection.receive_data(framed(struct.pack(">ib", 1, 0)))
    assert received.request_id == 5
    assert isinstance(received.error, ProtocolError)
    assert connection.failure is received.error


@pytest.mark.parametrize("size", range(4))
def test_a_response_without_a_correlation_id(size: int) -> None:
    connection = connected()
    connection.receive_data(framed(bytes(size)))
    assert isinstance(connection.failure, ProtocolError)


def test_an_oversized_frame() -> None:
    connection = connected(max_frame_bytes=500)
    connection.send(5, HEARTBEAT)
    received = connection.receive_data(heartbeat_response(1) + struct.pack(">i", 501))
    assert [each.request_id for each in received] == [5]
    assert isinstance(connection.failure, FrameTooLargeError)


@pytest.mark.parametrize(("most_bytes", "refused"), [(0, 0), (300_000, 0), (200_000, 250_000)])
def test_a_fetch_says_how_long_its_response_may_be(most_bytes: int, refused: int) -> None:
    connection = connected({1: (4, 12)})
    connection.send(5, api.Fetch(partitions=(), max_wait=0.0, min_bytes=1, max_bytes=1000, most_bytes=most_bytes))
    connection.receive_data(struct.pack(">ii", 250_000, 1) + bytes(100_000))
    failure = connection.failure
    assert (failure.length if isinstance(failure, FrameTooLargeError) else 0) == refused


def test_not_kafka() -> None:
    connection = Connection(client_id="test", max_frame_bytes=1 << 30)
    connection.handshake()
    connection.receive_data(b"HTTP/1.1 400 Bad Request\r\n")
    assert isinstance(connection.failure, NotKafkaError)
    assert "HTTP server" in str(connection.failure)
    assert connection.end_of_stream() is connection.failure


def test_no_common_version_leaves_the_connection_good() -> None:
    connection = connected({12: (90, 99)})
    with pytest.raises(UnsupportedVersionError, match=r"Heartbeat: the broker speaks 90 to 99, instride 0 to 4"):
        connection.send(1, HEARTBEAT)
    with pytest.raises(UnsupportedVersionError, match="does not know the request LeaveGroup"):
        connection.send(1, api.LeaveGroup(group_id="g", member_id="m"))
    assert connection.ready
    assert connection.outstanding == ()


def test_a_request_that_does_not_fit_leaves_the_connection_good() -> None:
    connection = connected({12: (0, 3)})
    with pytest.raises(ConfigError):
        connection.send(1, api.Heartbeat(group_id="g" * 40_000, generation=1, member_id="m"))
    assert connection.outstanding == ()
    assert header_and_body(connection.send(2, HEARTBEAT))[0]["id"] == 1


def test_the_old_header_for_old_versions() -> None:
    header, _ = header_and_body(connected({12: (0, 2)}).send(1, HEARTBEAT))
    assert header == {"key": 12, "version": 2, "id": 1, "client": "test"}


def test_end_of_stream_says_where() -> None:
    fresh = Connection(client_id="test", max_frame_bytes=1000)
    assert "handshake" in str(fresh.end_of_stream())
    connection = connected()
    assert isinstance(connection.end_of_stream(), TransportError)
    assert "between" in str(connection.end_of_stream())
    connection.receive_data(b"\x00\x00")
    assert "in the middle" in str(connection.end_of_stream())


def test_the_callers_buffer() -> None:
    connection = connected()
    connection.send(5, HEARTBEAT)
    response = heartbeat_response(1)
    connection.get_buffer()[: len(response)] = response
    assert [each.request_id for each in connection.buffer_updated(len(response))] == [5]


@given(pieces=st.lists(st.binary(max_size=40), max_size=5), greeted=st.booleans())
def test_garbage_never_raises(pieces: list[bytes], greeted: bool) -> None:
    connection = connected(max_frame_bytes=10_000) if greeted else Connection(client_id="t", max_frame_bytes=10_000)
    if greeted:
        connection.send(1, api.Metadata(topics=("t",)))
    else:
        connection.handshake()
    for piece in pieces:
        for received in connection.receive_data(piece):
            assert received.request_id == 1


@given(damage=st.binary(max_size=60), kind=st.sampled_from(["metadata", "offsets", "join"]))
def test_a_damaged_response_never_raises(damage: bytes, kind: str) -> None:
    requests: dict[str, api.Request] = {
        "metadata": api.Metadata(topics=None),
        "offsets": api.OffsetFetch(group_id="g", partitions=(("t", 0),), topic_ids={"t": UUID(int=1)}),
        "join": api.JoinGroup(group_id="g", session_timeout=1, rebalance_timeout=1, member_id="", protocols=()),
    }
    connection = connected()
    connection.send(3, requests[kind])
    (received,) = connection.receive_data(framed(struct.pack(">ib", 1, 0) + damage))
    assert (received.error is None) == (connection.failure is None)


def test_a_version_that_nobody_knows_is_told_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run from a checkout that is not installed, say."""

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    software_version.cache_clear()
    try:
        assert software_version() == "unknown"
    finally:
        software_version.cache_clear()


@pytest.mark.parametrize("versions", [(8193, 11), (-1, 4)])
def test_versions_that_cannot_be_are_no_handshake(versions: tuple[int, int]) -> None:
    """Else they would be believed for as long as the connection lives."""
    connection = Connection(client_id="test", max_frame_bytes=1000)
    connection.handshake()
    connection.receive_data(greeting(ranges={2: versions}))
    assert isinstance(connection.failure, ProtocolError)
    assert not connection.ready


def test_a_message_that_cannot_be_imported_without_files_is_an_error_that_may_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages of an older broker are imported when they are first needed, on the network thread."""
    connection = connected({12: (0, 0)})
    kio = message_codecs._kio()

    def no_files(_api_key: int, _version: int) -> type:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        message_codecs._schemas.cache_clear()
        patch.setattr(message_codecs, "_kio", lambda: kio._replace(response_schema=no_files))
        with pytest.raises(TransportError, match="Too many open files"):
            connection.send(1, HEARTBEAT)
    assert connection.failure is None
    assert connection.send(2, HEARTBEAT)
