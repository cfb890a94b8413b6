"""One request of each kind, and which versions its codec speaks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from instride._wire import api
from instride._wire.message_codecs import Codec, codec_of
from instride._wire.sasl.messages import SaslAuthenticate, SaslHandshake

__all__ = ["A", "B", "CODECS", "EVERY_VERSION", "IDS", "REQUESTS"]

A, B = UUID(int=0xA), UUID(int=0xB)
IDS = {"a": A, "b": B}

REQUESTS: dict[type[api.Request], api.Request] = {
    api.ApiVersions: api.ApiVersions(),
    api.Metadata: api.Metadata(topics=("a", "b")),
    api.FindCoordinator: api.FindCoordinator(group_id="g"),
    api.JoinGroup: api.JoinGroup(
        group_id="g",
        session_timeout=45.0,
        rebalance_timeout=300.5,
        member_id="m",
        protocols=(api.GroupProtocol(name="x", metadata=b"1"), api.GroupProtocol(name="y", metadata=b"")),
        reason="why",
    ),
    api.SyncGroup: api.SyncGroup(
        group_id="g", generation=4, member_id="m", protocol="x", assignments={"n": b"2", "m": b"1"}
    ),
    api.Heartbeat: api.Heartbeat(group_id="g", generation=4, member_id="m"),
    api.LeaveGroup: api.LeaveGroup(group_id="g", member_id="m", reason="why"),
    api.DescribeGroup: api.DescribeGroup(group_id="g"),
    api.OffsetCommit: api.OffsetCommit(
        group_id="g",
        generation=4,
        member_id="m",
        offsets={
            ("a", 0): api.OffsetToCommit(offset=10, leader_epoch=2, metadata="text"),
            ("b", 1): api.OffsetToCommit(offset=11),
            ("a", 3): api.OffsetToCommit(offset=12),
        },
        topic_ids=IDS,
    ),
    api.OffsetFetch: api.OffsetFetch(group_id="g", partitions=(("a", 0), ("b", 1), ("a", 3)), topic_ids=IDS),
    api.ListOffsets: api.ListOffsets(
        timestamps={("a", 0): -1, ("b", 1): -2, ("a", 3): 1_700_000_000_000}, leader_epochs={("b", 1): 6}
    ),
    api.OffsetForLeaderEpoch: api.OffsetForLeaderEpoch(
        epochs={("a", 0): 3, ("b", 1): 4, ("a", 3): 0}, leader_epochs={("b", 1): 6}
    ),
    SaslHandshake: SaslHandshake(mechanism="PLAIN"),
    SaslAuthenticate: SaslAuthenticate(auth_bytes=b"\0u\0p"),
}
CODECS: dict[type[api.Request], Codec[Any, Any]] = {kind: codec_of(kind) for kind in REQUESTS}
EVERY_VERSION = [
    pytest.param(kind, version, id=f"{codec.name}-{version}")
    for kind, codec in CODECS.items()
    for version in range(codec.lowest, codec.highest + 1)
]
