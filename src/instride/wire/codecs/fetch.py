"""Fetch (key 1): the hot path. Its messages have a codec of their own, `wire.fetch_codec`."""

from __future__ import annotations

from typing import Final

from instride.wire.api import NO_TOPIC_ID, Fetch
from instride.wire.codecs.base import ANY_VERSION, LARGE_BYTES, Codec, Needs
from instride.wire.fetch_codec import FETCH_VERSIONS, decode_fetch, encode_fetch

__all__ = ["CODEC"]

_LAST_WITH_NAMES: Final = 12


def _needs(request: Fetch) -> Needs:
    asked = (*request.partitions, *request.forgotten)
    if request.named or any(each.topic_id == NO_TOPIC_ID for each in asked):
        return Needs(highest=_LAST_WITH_NAMES, because="some topic ids are unknown")
    return ANY_VERSION


def _most_bytes(request: Fetch) -> int:
    """What was asked for, or one larger batch (a broker gives that whole, KIP-74), and all that is not records."""
    return max(request.max_bytes, request.max_decompressed_bytes) + LARGE_BYTES


CODEC = Codec(
    name="Fetch",
    api_key=1,
    lowest=FETCH_VERSIONS[0],
    highest=FETCH_VERSIONS[1],
    flexible_from=12,
    encode=encode_fetch,
    decode=decode_fetch,
    needs=_needs,
    most_bytes=_most_bytes,
)
