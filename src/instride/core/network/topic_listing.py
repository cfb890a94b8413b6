"""PendingRequests about topics and their partitions: asked of any broker, answered from that answer alone.

Laws
1. Nothing that is read or subscribed changes by them, and no topic is created.
2. A topic that does not exist is left out; one that may not be described, or has no such name, is a final error.
"""

from __future__ import annotations

from instride.core.events import FetchMetadata
from instride.core.network.actions import ConnectionKey
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.pending_requests import PendingRequest, PendingRequests
from instride.errors import error_for_code
from instride.errors.codes import ErrorCode
from instride.records import Node, PartitionInfo
from instride.wire import api

__all__ = ["TopicListing"]


class TopicListing:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster, questions: PendingRequests) -> None:
        self._context = context
        self._cluster = cluster
        self._pending = questions

    def ask(self, pending: PendingRequest, event: FetchMetadata, now: float) -> None:
        if not self._cluster.brokers:
            # The bootstrap connection is closed once the brokers are known: wait for these.
            pending.backoff.failed(now)
            self._pending.refused(pending)
            return
        key, address = self._cluster.any_node(now)
        pending.in_flight = 1
        self._context.connections.send(
            key,
            address,
            api.Metadata(topics=event.topics),
            lambda result, then: self._on_response(key, pending, event, result, then),
            now,
        )

    def _on_response(
        self,
        key: ConnectionKey,
        pending: PendingRequest,
        event: FetchMetadata,
        result: api.Response | Exception,
        now: float,
    ) -> None:
        pending.in_flight = 0
        self._context.touch()
        if not isinstance(result, api.MetadataResponse):
            self._cluster.unanswered(key)
            self._pending.failed(pending, result, now)
            return
        asked = [topic for topic in result.topics if event.internal or not topic.is_internal]
        for topic in asked:
            if topic.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                error = error_for_code(topic.error, f"topic {topic.name!r}: error code {topic.error}")
                self._pending.failed(pending, error, now)
                return
        nodes = {each.node_id: _node(each) for each in result.brokers}
        self._pending.response(pending, result={each.name: _infos(each, nodes) for each in asked if each.error == 0})


def _node(broker: api.Broker) -> Node:
    return Node(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)


def _infos(topic: api.MetadataTopic, nodes: dict[int, Node]) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(
            topic=topic.name,
            partition=each.partition,
            leader=nodes.get(each.leader),
            leader_epoch=each.leader_epoch,
            replicas=tuple(each.replicas),
            in_sync_replicas=tuple(each.in_sync_replicas),
            offline_replicas=tuple(each.offline_replicas),
            topic_id=None if topic.topic_id == api.NO_TOPIC_ID else topic.topic_id,
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition)
    )
