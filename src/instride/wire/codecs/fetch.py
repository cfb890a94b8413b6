"""Fetch (key 1): the hot path. Its messages have a codec of their own, `wire.fetch_codec`."""

from __future__ import annotations

from typing import Final

from instride.wire.api import NO_TOPIC_ID, Fetch
from instride.wire.codecs.base import ANY_VERSION, Codec, Needs
from instride.wire.fetch_codec import FETCH_VERSIONS, decode_fetch, encode_fetch

__all__ = ["CODEC"]

_LAST_WITH_NAMES: Final = 12


def _needs(request: Fetch) -> Needs:
    ids = {each.topic: each.topic_id for each in request.partitions}
    topics = {*ids, *(topic for topic, _ in request.forgotten)}
    if all(ids.get(topic, NO_TOPIC_ID) != NO_TOPIC_ID for topic in topics):
        return ANY_VERSION
    return Needs(highest=_LAST_WITH_NAMES, because="some topic ids are unknown")


CODEC = Codec(
    name="Fetch",
    api_key=1,
    lowest=FETCH_VERSIONS[0],
    highest=FETCH_VERSIONS[1],
    flexible_from=12,
    encode=encode_fetch,
    decode=decode_fetch,
    needs=_needs,
)
