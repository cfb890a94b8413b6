"""Metadata (key 3): brokers, and topics with their partitions and leaders."""

from __future__ import annotations

from instride.wire.api import (
    NO_TOPIC_ID,
    Broker,
    Metadata,
    MetadataAnswer,
    MetadataPartition,
    MetadataTopic,
)
from instride.wire.codecs.base import Needs, many_bytes, message_codec
from instride.wire.entities import Fields

__all__ = ["CODEC"]


def _needs(request: Metadata) -> Needs:
    # Before version 4 a broker creates what it is asked for; before version 1 an empty list means all.
    if request.allow_auto_topic_creation:
        return Needs(lowest=1)
    return Needs(lowest=4, because="older versions would create the topics that are asked for")


def _fields(request: Metadata, _version: int) -> Fields:
    topics = request.topics
    return {
        "topics": None if topics is None else [{"name": name, "topic_id": NO_TOPIC_ID} for name in topics],
        "allow_auto_topic_creation": request.allow_auto_topic_creation,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def _answer(fields: Fields, _request: Metadata) -> MetadataAnswer:
    return MetadataAnswer(
        brokers=tuple(map(_broker, fields["brokers"])),
        # A topic has no name only if it was asked for by id, which we do not.
        topics=tuple(_topic(topic) for topic in fields["topics"] if topic["name"] is not None),
        cluster_id=fields.get("cluster_id"),
        controller_id=fields["controller_id"],
        error=fields.get("error_code", 0),
    )


def _broker(fields: Fields) -> Broker:
    return Broker(node_id=fields["node_id"], host=fields["host"], port=fields["port"], rack=fields["rack"])


def _topic(fields: Fields) -> MetadataTopic:
    return MetadataTopic(
        name=fields["name"],
        error=fields["error_code"],
        topic_id=fields.get("topic_id", NO_TOPIC_ID),
        is_internal=fields["is_internal"],
        partitions=tuple(map(_partition, fields["partitions"])),
    )


def _partition(fields: Fields) -> MetadataPartition:
    return MetadataPartition(
        partition=fields["partition_index"],
        error=fields["error_code"],
        leader=fields["leader_id"],
        leader_epoch=fields.get("leader_epoch", -1),
        replicas=fields["replica_nodes"],
        in_sync_replicas=fields["isr_nodes"],
        offline_replicas=fields.get("offline_replicas", ()),
    )


CODEC = message_codec(
    most_bytes=many_bytes,
    name="Metadata",
    api_key=3,
    versions=(1, 13),
    flexible_from=9,
    fields=_fields,
    answer=_answer,
    needs=_needs,
)
