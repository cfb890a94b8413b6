"""What reads bytes of others, as functions of bytes: each returns, or raises what it may, and nothing else.

A target that raises anything else, or that a sanitizer stops, is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from instride._wire import api
from instride._wire.connection import Connection
from instride._wire.consumer_protocol import read_assignment, read_subscription
from instride._wire.message_codecs import codec_of
from instride._wire.record_set import decode_record_set
from instride._wire.sasl.messages import SaslAuthenticate, SaslHandshake
from instride._wire.sasl.oauthbearer import OAuthBearer, OAuthToken
from instride._wire.sasl.plain import Plain
from instride._wire.sasl.scram import Scram, ScramCredentials
from instride.errors import AuthenticationError, KafkaError, ProtocolError

__all__ = ["REQUESTS", "TARGETS"]

Target = Callable[[bytes], None]
_LIMIT: Final = 1 << 18

REQUESTS: Final[tuple[api.Request, ...]] = (
    api.ApiVersions(),
    api.Metadata(topics=("t",)),
    api.FindCoordinator(group_id="g"),
    api.JoinGroup(group_id="g", session_timeout=1.0, rebalance_timeout=1.0, member_id="m", protocols=(), reason=""),
    api.SyncGroup(group_id="g", generation=1, member_id="m", protocol="x", assignments={}),
    api.Heartbeat(group_id="g", generation=1, member_id="m"),
    api.LeaveGroup(group_id="g", member_id="m", reason=""),
    api.DescribeGroup(group_id="g"),
    api.OffsetCommit(group_id="g", generation=1, member_id="m", offsets={("t", 0): api.OffsetToCommit(offset=1)}),
    api.OffsetFetch(group_id="g", partitions=(("t", 0),)),
    api.ListOffsets(timestamps={("t", 0): -1}),
    api.OffsetForLeaderEpoch(epochs={("t", 0): 3}),
    SaslHandshake(mechanism="PLAIN"),
    SaslAuthenticate(auth_bytes=b""),
)


def _response(request: api.Request, version: int) -> Target:
    codec = codec_of(type(request))

    def read(data: bytes) -> None:
        try:
            codec.decode(memoryview(data), version, request)
        except ProtocolError:
            pass

    return read


def _responses() -> Iterator[tuple[str, Target]]:
    for request in REQUESTS:
        codec = codec_of(type(request))
        for version in range(codec.lowest, codec.highest + 1):
            yield f"response {codec.name} {version}", _response(request, version)
    fetch = api.Fetch(
        partitions=(api.FetchPartition(topic="t", partition=0, offset=0),), max_wait=0.0, min_bytes=1, max_bytes=1 << 20
    )
    codec = codec_of(api.Fetch)
    for version in range(codec.lowest, codec.highest + 1):
        yield f"response Fetch {version}", _response(fetch, version)


def _records(*, read_committed: bool) -> Target:
    options: dict[str, Any] = {"max_decompressed_bytes": _LIMIT, "read_committed": read_committed}

    def read(data: bytes) -> None:
        for piece in decode_record_set(memoryview(data), topic="t", partition=0, fetch_offset=0, **options):
            if piece.chunk is not None:
                for each in piece.chunk.records(epoch=1, seek_number=1):
                    _ = each.key, each.value, each.headers

    return read


def _stream(data: bytes) -> None:
    connection = Connection(client_id="c", max_frame_bytes=1 << 20, mechanism=Plain("u", "p"))
    connection.handshake()
    for at in range(0, len(data), 7):
        connection.receive_data(data[at : at + 7])
        connection.handshake()


def _quietly(read: Callable[[bytes], object], *kinds: type[KafkaError]) -> Target:
    def call(data: bytes) -> None:
        try:
            read(data)
        except kinds:
            pass

    return call


def _scram(data: bytes) -> None:
    mechanism = Scram(ScramCredentials("SCRAM-SHA-256", "u", "p"), nonce="n")
    for part in data.split(b"\0", 1):
        mechanism.response(part)


TARGETS: Final[dict[str, Target]] = {
    **dict(_responses()),
    "records": _records(read_committed=False),
    "records of transactions": _records(read_committed=True),
    "stream": _stream,
    "subscription": _quietly(read_subscription, ProtocolError),
    "assignment": _quietly(read_assignment, ProtocolError),
    "SCRAM": _quietly(_scram, AuthenticationError),
    "OAUTHBEARER": _quietly(OAuthBearer(OAuthToken(value="t")).response, AuthenticationError),
}
