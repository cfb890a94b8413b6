"""OffsetFetch (key 9): a group's committed offsets. Version 8 and later ask for several groups, 10 by id.

`require_stable` is left out before version 7: such brokers cannot wait for transactions (KIP-447).
"""

from __future__ import annotations

from instride.errors import ProtocolError
from instride.wire.api import CommittedOffset, OffsetFetch, OffsetFetchAnswer
from instride.wire.codecs.base import (
    ANY_VERSION,
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


def _needs(request: OffsetFetch) -> Needs:
    if all_topics_have_ids(request.partitions, request.topic_ids):
        return ANY_VERSION
    return Needs(highest=9, because="some topic ids are unknown")


def _fields(request: OffsetFetch, _version: int) -> Fields:
    topics = [
        topic_keys(topic, request.topic_ids) | {"partition_indexes": tuple(partitions)}
        for topic, partitions in by_topic(request.partitions).items()
    ]
    # The member id and epoch of version 9 are for the protocol of KIP-848.
    group = {"group_id": request.group_id, "member_id": None, "member_epoch": -1, "topics": topics}
    return group | {"groups": [group], "require_stable": request.require_stable}


def _answer(fields: Fields, request: OffsetFetch) -> OffsetFetchAnswer:
    group = _ours(fields["groups"], request.group_id) if "groups" in fields else fields
    offsets = dict.fromkeys(request.partitions, CommittedOffset(error=UNKNOWN_SERVER_ERROR))
    names = {topic_id: name for name, topic_id in request.topic_ids.items()}
    for topic in group["topics"]:
        name = topic_name(topic, names)
        for partition in topic["partitions"]:
            key = (name, partition["partition_index"])
            if key in offsets:
                offsets[key] = _committed(partition)
    return OffsetFetchAnswer(error=group.get("error_code", 0), offsets=offsets)


def _ours(groups: list[Fields], group_id: str) -> Fields:
    for group in groups:
        if group["group_id"] == group_id:
            return group
    raise ProtocolError(f"the OffsetFetch response does not speak of the group {group_id!r}")


def _committed(fields: Fields) -> CommittedOffset:
    return CommittedOffset(
        offset=fields["committed_offset"],
        leader_epoch=fields.get("committed_leader_epoch", -1),
        metadata=fields["metadata"] or "",
        error=fields["error_code"],
    )


CODEC = message_codec(
    most_bytes=many_bytes,
    name="OffsetFetch",
    api_key=9,
    versions=(1, 10),
    flexible_from=6,
    fields=_fields,
    answer=_answer,
    needs=_needs,
)
