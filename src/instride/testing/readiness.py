"""When a cluster, or a topic on it, is ready: questions put to every node that serves, each about its own view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from instride.testing.running import Running

if TYPE_CHECKING:
    from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponsePartition

__all__ = ["all_ready", "topics_gone", "topics_ready"]


def all_ready(running: Running) -> bool:
    """Whether all nodes that serve answer, know the controller, count each other as alive, and lead what they can."""
    serving = set(running.serving())
    return bool(serving) and all(
        answer.cluster_id == running.cluster_id  # else another process's Kafka took the port first
        and _counts_all(answer, serving)
        and _leads(answer, serving)
        for answer in _answers(running, None)
    )


def topics_ready(running: Running, topics: Mapping[str, int]) -> bool:
    """Whether all nodes that serve know these topics with so many partitions, each with a leader."""
    return all(_knows_all(answer, topics) for answer in _answers(running, tuple(topics)))


def topics_gone(running: Running, names: tuple[str, ...]) -> bool:
    """Whether no node that serves knows any of these topics."""
    return all(
        not topic.partitions for answer in _answers(running, names) for topic in answer.topics if topic.name in names
    )


def _answers(running: Running, topics: tuple[str, ...] | None) -> list[MetadataResponse]:
    answers = []
    for number in running.serving():
        with running.probe(number) as admin:
            answers.append(admin.metadata(topics))
    return answers


def _counts_all(answer: MetadataResponse, serving: set[int]) -> bool:
    return answer.controller_id >= 0 and {int(broker.node_id) for broker in answer.brokers} >= serving


def _leads(answer: MetadataResponse, serving: set[int]) -> bool:
    """A partition may be without a leader only where none of its in-sync replicas serves."""
    return all(
        _has_leader(part) or not serving.intersection(part.isr_nodes)
        for topic in answer.topics
        for part in topic.partitions
    )


def _knows_all(answer: MetadataResponse, topics: Mapping[str, int]) -> bool:
    found = {str(topic.name): topic.partitions for topic in answer.topics}
    return all(
        len(found.get(name, ())) == count and all(map(_has_leader, found[name])) for name, count in topics.items()
    )


def _has_leader(part: MetadataResponsePartition) -> bool:
    return part.leader_id >= 0
