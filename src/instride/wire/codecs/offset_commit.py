"""OffsetCommit (key 8): store a group's offsets. Version 10 and later name topics by id."""

from __future__ import annotations

from typing import Final

from instride.wire.api import OffsetCommit, OffsetCommitAnswer, OffsetToCommit
from instride.wire.codecs.base import (
    UNKNOWN_SERVER_ERROR,
    Needs,
    all_topics_have_ids,
    by_topic,
    many_bytes,
    message_codec,
    topic_keys,
    topic_name,
)
from instride.wire.entities import Fields

__all__ = ["CODEC"]

_BROKERS_RETENTION: Final = -1


def _needs(request: OffsetCommit) -> Needs:
    static = request.group_instance_id is not None
    named = not all_topics_have_ids(request.offsets, request.topic_ids)
    reasons = ["group_instance_id is set (static membership)"] if static else []
    reasons += ["some topic ids are unknown"] if named else []
    return Needs(lowest=7 if static else 0, highest=9 if named else 32767, because=", ".join(reasons))


def _fields(request: OffsetCommit, _version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "generation_id_or_member_epoch": request.generation,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "retention_time": _BROKERS_RETENTION,
        "topics": [
            topic_keys(topic, request.topic_ids)
            | {"partitions": [_partition(number, request.offsets[topic, number]) for number in partitions]}
            for topic, partitions in by_topic(request.offsets).items()
        ],
    }


def _partition(number: int, commit: OffsetToCommit) -> Fields:
    return {
        "partition_index": number,
        "committed_offset": commit.offset,
        "committed_leader_epoch": commit.leader_epoch,
        "committed_metadata": commit.metadata,
    }


def _answer(fields: Fields, request: OffsetCommit) -> OffsetCommitAnswer:
    errors = dict.fromkeys(request.offsets, UNKNOWN_SERVER_ERROR)
    names = {topic_id: name for name, topic_id in request.topic_ids.items()}
    for topic in fields["topics"]:
        name = topic_name(topic, names)
        for partition in topic["partitions"]:
            key = (name, partition["partition_index"])
            if key in errors:
                errors[key] = partition["error_code"]
    return OffsetCommitAnswer(errors=errors)


CODEC = message_codec(
    most_bytes=many_bytes,
    name="OffsetCommit",
    api_key=8,
    versions=(2, 10),
    flexible_from=8,
    fields=_fields,
    answer=_answer,
    needs=_needs,
)
