"""The plain values that every layer and every user speaks of, and the record."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from instride._topic_partition import TopicPartition
from instride._wire.decoder import ConsumerRecord

__all__ = [
    "ConsumerRecord",
    "GroupMetadata",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetRange",
    "PartitionInfo",
    "TopicPartition",
]


class GroupMetadata(NamedTuple):
    """A member as a transactional producer names it, so that the broker fences one that is out of date (KIP-447).

    generation_id, member_id: of the newest assignment that a poll has taken; -1 and "" before the first.
    group_instance_id: of a static member, or None.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def for_confluent_kafka(self) -> bytes:
        """What confluent-kafka's `Producer.send_offsets_to_transaction` takes in place of its own consumer's metadata.

        librdkafka's form of it: CGMDv2 (librdkafka 1.9 and later).
        """
        instance = b"\1" if self.group_instance_id is None else b"\0" + self.group_instance_id.encode() + b"\0"
        generation = self.generation_id.to_bytes(4, sys.byteorder, signed=True)
        return b"CGMDv2:%b%b\0%b\0%b" % (generation, self.group_id.encode(), self.member_id.encode(), instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndMetadata:
    """A committed offset: that of the next record to read.

    offset: the next record's offset.
    metadata: the committer's own text.
    leader_epoch: of the last record consumed, or -1 where unknown (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndTimestamp:
    """The first record at or after a time, as `Consumer.offsets_for_times` finds it.

    timestamp: the record's, in milliseconds. leader_epoch: of the record, or -1 where unknown.
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker, as its cluster tells of it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """What the cluster says of one partition.

    leader: None while there is none. replicas, in_sync_replicas, offline_replicas: numbers of nodes.
    topic_id: Kafka's id of the topic (KIP-516), by which a later topic of the same name is another one; None where the
    broker has none (Kafka before 2.8).
    """

    topic: str
    partition: int
    leader: Node | None
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    topic_id: UUID | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Records of one partition that a `RangeConsumer` hands out as one piece of work: [start, end).

    epoch: the assignment epoch; rises with every assignment of the partition to this consumer.
    seek_number: rises with each seek of the partition.
    """

    topic: str
    partition: int
    start: int
    end: int
    epoch: int
    seek_number: int
    leader_epoch: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)
