"""Which codec speaks for a request, and in which version to a given broker.

Laws
1. Every class of `api.Request` has exactly one codec. It is imported when it is first needed.
2. The version chosen is the highest that broker and codec share and that can say what the request says.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any, Final

from instride.errors import UnsupportedVersionError
from instride.wire import api
from instride.wire.codecs.base import Codec, Needs
from instride.wire.sasl.messages import SaslAuthenticate, SaslHandshake

__all__ = ["choose_version", "codec_of"]

_MODULES: Final[dict[type[api.Request], str]] = {
    api.ApiVersions: "api_versions",
    api.Metadata: "metadata",
    api.FindCoordinator: "find_coordinator",
    api.JoinGroup: "join_group",
    api.SyncGroup: "sync_group",
    api.Heartbeat: "heartbeat",
    api.LeaveGroup: "leave_group",
    api.DescribeGroup: "describe_groups",
    api.OffsetCommit: "offset_commit",
    api.OffsetFetch: "offset_fetch",
    api.ListOffsets: "list_offsets",
    api.Fetch: "fetch",
    api.OffsetForLeaderEpoch: "offset_for_leader_epoch",
    SaslHandshake: "sasl_handshake",
    SaslAuthenticate: "sasl_authenticate",
}


def codec_of(kind: type[api.Request]) -> Codec[Any, Any]:
    """The codec of a request class."""
    return _load(_MODULES[kind])


@functools.cache
def _load(module: str) -> Codec[Any, Any]:
    codec: Codec[Any, Any] = import_module(f"instride.wire.codecs.{module}").CODEC
    return codec


def choose_version(request: api.Request, broker_range: tuple[int, int] | None) -> int:
    """The version in which to send `request` to a broker that speaks `broker_range` of its API.

    broker_range: (lowest, highest), or None where the broker does not have the API.
    Raises UnsupportedVersionError where no version will do.
    """
    codec = codec_of(type(request))
    if broker_range is None:
        raise UnsupportedVersionError(f"the broker does not know the request {codec.name}")
    needs = codec.needs(request)
    lowest = max(codec.lowest, broker_range[0], needs.lowest)
    highest = min(codec.highest, broker_range[1], needs.highest)
    if lowest <= highest:
        return highest
    raise UnsupportedVersionError(_no_common_version(codec, broker_range, needs))


def _no_common_version(codec: Codec[Any, Any], broker_range: tuple[int, int], needs: Needs) -> str:
    text = (
        f"no common version of {codec.name}: the broker speaks {broker_range[0]} to {broker_range[1]},"
        f" instride {codec.lowest} to {codec.highest}"
    )
    if not needs.because:
        return text
    lowest, highest = max(codec.lowest, needs.lowest), min(codec.highest, needs.highest)
    return f"{text}, of which this request can use {lowest} to {highest} ({needs.because})"
