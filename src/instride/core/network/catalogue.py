"""Questions about topics and their partitions: asked of any broker, answered from that answer alone.

Laws
1. Nothing that is read or subscribed changes by them, and no topic is created.
2. A topic that does not exist is left out; one that may not be described, or has no such name, is a final error.
"""

from __future__ import annotations

from instride.core.events import FetchMetadata
from instride.core.network.actions import ConnectionKey
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.questions import Question, Questions
from instride.errors import error_for_code
from instride.records import Node, PartitionInfo
from instride.wire import api

__all__ = ["Catalogue"]

_UNKNOWN_TOPIC = 3


class Catalogue:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster, questions: Questions) -> None:
        self._context = context
        self._cluster = cluster
        self._questions = questions

    def ask(self, question: Question, event: FetchMetadata, now: float) -> None:
        if not self._cluster.brokers:
            # The bootstrap connection is closed once the brokers are known: wait for these.
            question.backoff.failed(now)
            self._questions.refused(question)
            return
        key, address = self._cluster.any_node(now)
        question.flying = 1
        self._context.connections.send(
            key,
            address,
            api.Metadata(topics=event.topics),
            lambda result, then: self._answered(key, question, event, result, then),
            now,
        )

    def _answered(
        self, key: ConnectionKey, question: Question, event: FetchMetadata, result: api.Answer | Exception, now: float
    ) -> None:
        question.flying = 0
        self._context.touch()
        if not isinstance(result, api.MetadataAnswer):
            self._cluster.unanswered(key)
            self._questions.failed(question, result, now)
            return
        asked = [topic for topic in result.topics if event.internal or not topic.is_internal]
        for topic in asked:
            if topic.error not in (0, _UNKNOWN_TOPIC):
                error = error_for_code(topic.error, f"topic {topic.name!r}: error code {topic.error}")
                self._questions.failed(question, error, now)
                return
        nodes = {each.node_id: _node(each) for each in result.brokers}
        self._questions.answer(question, result={each.name: _infos(each, nodes) for each in asked if each.error == 0})


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
