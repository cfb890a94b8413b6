"""When a cluster, or a topic on it, is ready: questions put to every node that serves, each about its own view.

A broker's metadata names it as a leader a moment before it serves as one; so each leader must give an offset, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from instride.testing._kafka.running import Running

if TYPE_CHECKING:
    from kio.schema.metadata.v9.response import MetadataResponse, MetadataResponsePartition

__all__ = ["all_ready", "topics_gone", "topics_ready"]


def all_ready(running: Running) -> bool:
    """Whether all nodes that serve respond, know the controller, count each other as alive, and lead what they can."""
    serving = set(running.serving())
    responses = _responses(running, serving, None)
    return (
        bool(serving)
        and all(
            response.cluster_id == running.cluster_id  # else another process's Kafka took the port first
            and _counts_all(response, serving)
            and _has_leaders(response, serving)
            and {str(topic.name) for topic in response.topics} >= running.stored_topics
            for response in responses
        )
        and _leaders_serve(running, serving, responses[0])
    )


def topics_ready(running: Running, topics: Mapping[str, int]) -> bool:
    """Whether all nodes that serve know these topics with so many partitions, each with a leader that serves it."""
    serving = set(running.serving())
    responses = _responses(running, serving, tuple(topics))
    return (
        bool(serving)
        and all(_knows_all(response, topics) for response in responses)
        and _leaders_serve(running, serving, responses[0])
    )


def topics_gone(running: Running, names: tuple[str, ...]) -> bool:
    """Whether no node that serves knows any of these topics."""
    return all(
        not topic.partitions
        for response in _responses(running, set(running.serving()), names)
        for topic in response.topics
        if topic.name in names
    )


def _responses(running: Running, serving: set[int], topics: tuple[str, ...] | None) -> list[MetadataResponse]:
    """One of each of these nodes. Who serves is looked up once a question: a node may end at any moment, and then this
    raises TransportError, upon which `Running.wait` looks at the node and asks again."""
    responses = []
    for number in sorted(serving):
        with running.probe(number) as admin:
            responses.append(admin.metadata(topics))
    return responses


def _counts_all(response: MetadataResponse, serving: set[int]) -> bool:
    return response.controller_id >= 0 and {int(broker.node_id) for broker in response.brokers} >= serving


def _has_leaders(response: MetadataResponse, serving: set[int]) -> bool:
    """A partition may be without a leader only where none of its in-sync replicas serves."""
    return all(
        _has_leader(part) or not serving.intersection(part.isr_nodes)
        for topic in response.topics
        for part in topic.partitions
    )


def _leaders_serve(running: Running, serving: set[int], response: MetadataResponse) -> bool:
    """Whether every leader among these nodes gives an offset of each partition that it leads."""
    led: dict[int, dict[str, list[int]]] = {}
    for topic in response.topics:
        for part in topic.partitions:
            led.setdefault(int(part.leader_id), {}).setdefault(str(topic.name), []).append(int(part.partition_index))
    for number in serving.intersection(led):
        with running.probe(number) as admin:
            if not admin.leads(led[number]):
                return False
    return True


def _knows_all(response: MetadataResponse, topics: Mapping[str, int]) -> bool:
    found = {str(topic.name): topic.partitions for topic in response.topics}
    return all(
        len(found.get(name, ())) == count and all(map(_has_leader, found[name])) for name, count in topics.items()
    )


def _has_leader(part: MetadataResponsePartition) -> bool:
    return part.leader_id >= 0
