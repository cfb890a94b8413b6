"""OffsetForLeaderEpoch (key 23): where a leader's epoch ends in the log, to find out whether it was cut (KIP-320).

From version 3 on it needs the right to describe the topic only; older ones are for brokers among each other.
"""

from __future__ import annotations

from typing import Final

from instride.wire.api import EpochEnd, OffsetForLeaderEpoch, OffsetForLeaderEpochAnswer
from instride.wire.codecs.base import UNKNOWN_SERVER_ERROR, by_topic, many_bytes, message_codec
from instride.wire.entities import Fields

__all__ = ["CODEC"]

_CONSUMER: Final = -1


def _fields(request: OffsetForLeaderEpoch, _version: int) -> Fields:
    return {
        "replica_id": _CONSUMER,
        "topics": [
            {"topic": topic, "partitions": [_partition(request, topic, number) for number in partitions]}
            for topic, partitions in by_topic(request.epochs).items()
        ],
    }


def _partition(request: OffsetForLeaderEpoch, topic: str, number: int) -> Fields:
    return {
        "partition": number,
        "current_leader_epoch": request.leader_epochs.get((topic, number), -1),
        "leader_epoch": request.epochs[topic, number],
    }


def _answer(fields: Fields, request: OffsetForLeaderEpoch) -> OffsetForLeaderEpochAnswer:
    ends = dict.fromkeys(request.epochs, EpochEnd(error=UNKNOWN_SERVER_ERROR))
    for topic in fields["topics"]:
        for partition in topic["partitions"]:
            key = (topic["topic"], partition["partition"])
            if key in ends:
                ends[key] = EpochEnd(
                    error=partition["error_code"],
                    leader_epoch=partition["leader_epoch"],
                    end_offset=partition["end_offset"],
                )
    return OffsetForLeaderEpochAnswer(ends=ends)


CODEC = message_codec(
    most_bytes=many_bytes,
    name="OffsetForLeaderEpoch",
    api_key=23,
    versions=(3, 4),
    flexible_from=4,
    fields=_fields,
    answer=_answer,
)
