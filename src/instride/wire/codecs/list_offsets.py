"""ListOffsets (key 2): the offset at a time, or at either end of a partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from instride.wire.api import ListedOffset, ListOffsets, ListOffsetsAnswer
from instride.wire.codecs.base import UNKNOWN_SERVER_ERROR, Needs, by_topic, many_bytes, message_codec
from instride.wire.entities import Fields

__all__ = ["CODEC"]

_CONSUMER: Final = -1
# How long a broker may look in remote storage (version 10 and later): as long as a request of ours lives.
_REMOTE_TIMEOUT_MS: Final = 30_000
# "Timestamps" that came later: of the greatest time, first local, last tiered, first not tiered yet.
_LOWEST_FOR: Final[Mapping[int, int]] = {-3: 7, -4: 8, -5: 9, -6: 11}


def _needs(request: ListOffsets) -> Needs:
    lowest = max((_LOWEST_FOR.get(at, 1) for at in request.timestamps.values()), default=1)
    if lowest > 1:
        return Needs(lowest=lowest, because="a special timestamp")
    if request.read_committed:
        return Needs(lowest=2, because="isolation level read_committed")
    return Needs(lowest=1)


def _fields(request: ListOffsets, _version: int) -> Fields:
    return {
        "replica_id": _CONSUMER,
        "isolation_level": int(request.read_committed),
        "timeout": _REMOTE_TIMEOUT_MS,
        "topics": [
            {"name": topic, "partitions": [_partition(request, topic, number) for number in partitions]}
            for topic, partitions in by_topic(request.timestamps).items()
        ],
    }


def _partition(request: ListOffsets, topic: str, number: int) -> Fields:
    return {
        "partition_index": number,
        "current_leader_epoch": request.leader_epochs.get((topic, number), -1),
        "timestamp": request.timestamps[topic, number],
    }


def _answer(fields: Fields, request: ListOffsets) -> ListOffsetsAnswer:
    offsets = dict.fromkeys(request.timestamps, ListedOffset(error=UNKNOWN_SERVER_ERROR))
    for topic in fields["topics"]:
        for partition in topic["partitions"]:
            key = (topic["name"], partition["partition_index"])
            if key in offsets:
                offsets[key] = _listed(partition)
    return ListOffsetsAnswer(offsets=offsets)


def _listed(fields: Fields) -> ListedOffset:
    return ListedOffset(
        error=fields["error_code"],
        offset=fields["offset"],
        timestamp=fields["timestamp"],
        leader_epoch=fields.get("leader_epoch", -1),
    )


CODEC = message_codec(
    most_bytes=many_bytes,
    name="ListOffsets",
    api_key=2,
    versions=(1, 11),
    flexible_from=6,
    fields=_fields,
    answer=_answer,
    needs=_needs,
)
