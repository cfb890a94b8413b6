"""What is known of the cluster: brokers, topics, leaders; and when to ask again.

Laws
1. Any broker can be asked. While none is known, or none of the known answers, the bootstrap servers are; when none of
   these answers either, the known ones are asked again (KIP-899). A broker that says REBOOTSTRAP_REQUIRED makes us
   forget all of them (KIP-1102).
2. A refresh is asked for by whoever saw an error; it is sent once, after the back-off, however many asked: two answers
   that say the same are retry_backoff apart at least.
3. A topic or partition of interest that stays unknown is told to the user once, and so is a topic that may not be read.
4. What a broker says of a leader that is older than what is known already is not believed (KIP-320), as long as it
   speaks of the same topic.
5. Until a first broker was reached, the failure of the whole bootstrap list is told to the user.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final
from uuid import UUID

from instride.config import parse_bootstrap_servers
from instride.core.events import ErrorRaised
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.connections import Address
from instride.core.network.context import Context
from instride.errors import (
    NotKafkaError,
    TopicAuthorizationFailedError,
    TransportError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from instride.records import TopicPartition
from instride.wire import api

__all__ = ["MISSING_GRACE", "UNKNOWN_TOPIC", "Cluster"]

MISSING_GRACE: Final = 5.0
"""Seconds for which a broker may say that a topic does not exist before it is believed: it may have just started."""
UNKNOWN_TOPIC: Final = 3
_REBOOTSTRAP_REQUIRED = 129
_TOPIC_AUTHORIZATION_FAILED = 29


class Cluster:
    """The present metadata and its refreshing. Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._bootstrap = parse_bootstrap_servers(context.config.bootstrap_servers)
        self._next_bootstrap = 0
        self._backoff = context.backoff()
        self._asking = False
        self._due_at = 0.0
        self._not_before = 0.0
        self._interest: frozenset[str] = frozenset()
        self._everything = False
        self._failed_since: float | None = None
        self._failures: dict[Address, Exception] = {}
        self._missing_since: dict[str, float] = {}
        self._lacking: dict[TopicPartition, float] = {}
        self._told: set[str] = set()
        self._suspects: set[int] = set()
        self.brokers: dict[int, api.Broker] = {}
        self.topics: dict[str, api.MetadataTopic] = {}
        self._leaders: dict[TopicPartition, tuple[api.Broker, int]] = {}
        self.version = 0
        self.knows_everything = False
        self.on_update: list[Callable[[float], None]] = []

    # -- what is known

    def leader(self, partition: TopicPartition) -> tuple[api.Broker, int] | None:
        """The leading broker and its leader epoch, or None where that is unknown."""
        return self._leaders.get(partition)

    def why_no_leader(self, partition: TopicPartition) -> str:
        """As far as the metadata tells."""
        known, count = self.topics.get(partition.topic), self.partition_count(partition.topic)
        if known is not None and known.error == UNKNOWN_TOPIC:
            return f"{partition} is not there: its topic does not exist"
        if count is not None and not self._has(partition):
            return f"{partition} is not there: its topic has {count} partitions"
        return f"no leader of {partition} is known"

    def partition_count(self, topic: str) -> int | None:
        known = self.topics.get(topic)
        return len(known.partitions) if known is not None and known.error == 0 else None

    def racks(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[str, ...]]:
        """The racks of each partition's replicas, sorted; those of brokers without one are left out."""
        of_broker = {node: broker.rack for node, broker in self.brokers.items() if broker.rack}
        return {
            TopicPartition(topic, each.partition): tuple(
                sorted({of_broker[n] for n in each.replicas if n in of_broker})
            )
            for topic in topics
            for each in self.topics[topic].partitions
        }

    def topic_id(self, topic: str) -> UUID:
        known = self.topics.get(topic)
        return known.topic_id if known is not None else api.NO_TOPIC_ID

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        return {topic: self.topic_id(topic) for topic in topics if self.topic_id(topic) != api.NO_TOPIC_ID}

    def refusal(self, topic: str) -> Exception | None:
        """Why the topic may not be used, where a broker said so."""
        known = self.topics.get(topic)
        refused = known is not None and known.error == _TOPIC_AUTHORIZATION_FAILED
        return _topic_error(topic, _TOPIC_AUTHORIZATION_FAILED) if refused else None

    def is_gone(self, topic: str) -> bool:
        """Whether a broker said that there is no such topic."""
        known = self.topics.get(topic)
        return known is not None and known.error == UNKNOWN_TOPIC

    def any_node(self, now: float) -> tuple[ConnectionKey, Address]:
        """Where to send what any broker can answer."""
        connections = self._context.connections
        known = [ConnectionKey(Role.DATA, node) for node in self.brokers]
        usable = [key for key in known if key.node_id not in self._suspects and not connections.backing_off(key, now)]
        usable.sort(key=lambda key: (not connections.is_ready(key), connections.busy(key), key.node_id))
        if usable:
            broker = self.brokers[usable[0].node_id]
            return usable[0], (broker.host, broker.port)
        place = self._next_bootstrap % len(self._bootstrap)
        return ConnectionKey(Role.BOOTSTRAP, place), self._bootstrap[place]

    def unanswered(self, key: ConnectionKey) -> None:
        """What any broker can answer was not answered there: ask another."""
        if key.role is not Role.BOOTSTRAP:
            self.suspect(key.node_id)
        elif key.node_id == self._next_bootstrap % len(self._bootstrap):  # else another request has told it already
            self._next_bootstrap += 1
            if self._next_bootstrap % len(self._bootstrap) == 0:
                self._suspects.clear()  # none of the list answers either: ask all again, the known ones first

    def suspect(self, node_id: int) -> None:
        """This broker did not answer; ask others until the metadata is fresh."""
        self._suspects.add(node_id)

    # -- refreshing

    def follow(self, topics: frozenset[str], *, everything: bool = False) -> None:
        """The topics whose metadata is wanted. everything: that of all others too."""
        if everything != self._everything:
            self._everything = everything
            self._due_at = self._not_before = 0.0
        if topics != self._interest:
            if topics - self._interest:
                self._due_at = self._not_before = 0.0
            self._interest = topics
            self._missing_since = {topic: t for topic, t in self._missing_since.items() if topic in topics}

    def refresh(self) -> None:
        """Something is out of date: ask as soon as the back-off allows."""
        self._due_at = 0.0

    def doubt(self, topics: AbstractSet[str]) -> None:
        """A broker does not know the ids of these: ask again. Of a topic that nobody follows forget it."""
        for topic in topics - self._interest:
            self.topics.pop(topic, None)
        self.refresh()

    def miss(self, partition: TopicPartition, now: float) -> None:
        """Somebody wants this partition and found no leader. That its topic has no such partition is told once."""
        self.refresh()
        count = self.partition_count(partition.topic)
        if count is None or self._has(partition):
            self._lacking.pop(partition, None)
            return
        since = self._lacking.setdefault(partition, now)
        if str(partition) not in self._told and now - since >= MISSING_GRACE:
            self._told.add(str(partition))
            why = f"partition {partition} does not exist: its topic has {count} partitions"
            self._context.deliver(ErrorRaised(error=UnknownTopicOrPartitionError(why)))

    def _has(self, partition: TopicPartition) -> bool:
        return any(each.partition == partition.partition for each in self.topics[partition.topic].partitions)

    def poll(self, now: float) -> float:
        """Send what is due. Returns when to be asked again."""
        if self._asking:
            return float("inf")
        due = max(self._due_at, self._not_before, self._backoff.ready_at)
        if not (self._interest or self._everything) and self.brokers:
            return float("inf")
        if now < due:
            return due
        self._asking = True
        key, address = self.any_node(now)
        everything = self._everything
        request = api.Metadata(topics=None if everything else tuple(sorted(self._interest)))

        def done(result: api.Answer | Exception, then: float) -> None:
            self._asking = False
            self._answered(key, address, result, then, everything=everything)

        self._context.connections.send(key, address, request, done, now)
        return float("inf")

    def _answered(
        self, key: ConnectionKey, address: Address, result: api.Answer | Exception, now: float, *, everything: bool
    ) -> None:
        self._context.touch()
        if isinstance(result, api.MetadataAnswer) and result.error == _REBOOTSTRAP_REQUIRED:
            self._start_anew(key, now)
            return
        if not isinstance(result, api.MetadataAnswer):
            self._failed(key, address, result if isinstance(result, Exception) else TypeError(type(result)), now)
            return
        self._works_again(address, now)
        self._suspects.clear()
        self.brokers = {broker.node_id: broker for broker in result.brokers}
        if everything:  # what is not in the answer does not exist
            self.topics = {name: api.MetadataTopic(name=name, error=UNKNOWN_TOPIC) for name in self._interest}
        self.knows_everything = everything and self._everything
        for topic in result.topics:
            self.topics[topic.name] = _newest(topic, self.topics.get(topic.name))
        self._leaders = dict(self._find_leaders())
        self._context.connections.keep({node: (each.host, each.port) for node, each in self.brokers.items()}, now)
        self.version += 1
        self._due_at = now + self._context.config.metadata_max_age
        self._not_before = now + self._context.config.retry_backoff
        if self._look_for_trouble(result, now):
            self._due_at = 0.0
            self._backoff.failed(now)
        else:
            self._backoff.succeeded()
        if everything != self._everything:  # changed while it was asked
            self._due_at = self._not_before = 0.0
        if key.role is Role.BOOTSTRAP and self.brokers:
            self._context.connections.close(key, TransportError("bootstrap is done"), now)
        for hook in self.on_update:
            hook(now)

    def _works_again(self, address: Address, now: float) -> None:
        if self._failed_since is not None:
            where, since = f"{address[0]}:{address[1]}", now - self._failed_since
            self._context.log(logging.INFO, f"metadata is answered again, by {where}, after {since:.1f} s")
        self._failed_since = None
        self._failures.clear()

    def _start_anew(self, key: ConnectionKey, now: float) -> None:
        """KIP-1102: what is known of the brokers is no good any more; the bootstrap servers are asked again."""
        self._context.log(logging.INFO, "a broker asks for the cluster to be discovered anew")
        self.brokers = {}
        self._leaders = {}
        self._suspects.clear()
        self._backoff.failed(now)
        self.refresh()
        if key.role is Role.BOOTSTRAP:
            self.unanswered(key)

    def _find_leaders(self) -> Iterator[tuple[TopicPartition, tuple[api.Broker, int]]]:
        for name, topic in self.topics.items():
            for each in topic.partitions:
                broker = self.brokers.get(each.leader)
                if broker is not None:
                    yield TopicPartition(name, each.partition), (broker, each.leader_epoch)

    def _look_for_trouble(self, answer: api.MetadataAnswer, now: float) -> bool:
        """Whether something is missing that a later answer may have."""
        trouble = False
        answered = {topic.name: topic for topic in answer.topics}
        for name in self._interest:
            topic = answered.get(name)
            error = topic.error if topic is not None else UNKNOWN_TOPIC
            if error == 0 and topic is not None:
                self._missing_since.pop(name, None)
                self._told.discard(name)
                trouble |= any(each.leader < 0 for each in topic.partitions)
            elif topic is None and self._everything:
                pass  # it is gone, and what matches the pattern shrinks with it
            else:
                trouble |= self._tell_topic(name, error, now)
        return trouble

    def _tell_topic(self, name: str, error: int, now: float) -> bool:
        since = self._missing_since.setdefault(name, now)
        grace = 0.0 if error == _TOPIC_AUTHORIZATION_FAILED else MISSING_GRACE
        if name not in self._told and now - since >= grace:
            self._told.add(name)
            self._context.deliver(ErrorRaised(error=_topic_error(name, error)))
        return True

    def _failed(self, key: ConnectionKey, address: Address, error: Exception, now: float) -> None:
        self._backoff.failed(now)
        level = logging.DEBUG if self._context.connections.closing else logging.WARNING
        self._context.log(level, f"metadata from {address[0]}:{address[1]} failed: {error}")
        self.unanswered(key)
        self._failures[address] = error
        if self._failed_since is None:
            self._failed_since = now
        if not self._context.connections.ever_connected and self._bootstrap_failed(now):
            self._failed_since = now
            self._context.deliver(ErrorRaised(error=self.unreachable()))

    def _bootstrap_failed(self, now: float) -> bool:
        """Law 5: at once where what answers is not Kafka, else after request_timeout."""
        assert self._failed_since is not None
        if set(self._failures) != set(self._bootstrap) or self._context.connections.refused is not None:
            return False  # of credentials that are refused `Connections` tells
        hopeless = all(isinstance(error, NotKafkaError) for error in self._failures.values())
        if hopeless and "hopeless" not in self._told:
            self._told.add("hopeless")
            return True
        return now - self._failed_since >= self._context.config.request_timeout

    def unreachable(self) -> TransportError:
        """The error that tells why no broker was reached."""
        failures = "; ".join(f"{host}:{port}: {error}" for (host, port), error in self._failures.items())
        text = f"no broker of bootstrap_servers answers ({failures or 'none was tried yet'})"
        if self._failures and all(isinstance(error, NotKafkaError) for error in self._failures.values()):
            return NotKafkaError(text)
        return TransportError(text)


def _newest(topic: api.MetadataTopic, known: api.MetadataTopic | None) -> api.MetadataTopic:
    """Law 4. Without topic ids nobody can tell a topic from one that was made anew."""
    if known is None or topic.topic_id != known.topic_id or topic.topic_id == api.NO_TOPIC_ID:
        return topic
    epochs = {each.partition: each for each in known.partitions}
    newest = (_newer(each, epochs.get(each.partition)) for each in topic.partitions)
    return replace(topic, partitions=tuple(newest))


def _newer(one: api.MetadataPartition, known: api.MetadataPartition | None) -> api.MetadataPartition:
    return known if known is not None and 0 <= one.leader_epoch < known.leader_epoch else one


def _topic_error(name: str, error: int) -> Exception:
    if error == UNKNOWN_TOPIC:
        return UnknownTopicOrPartitionError(
            f"topic {name!r} does not exist on this cluster; create it, or check the name in subscribe"
        )
    if error == _TOPIC_AUTHORIZATION_FAILED:
        return TopicAuthorizationFailedError(f"not authorised for topic {name!r}: it needs Read and Describe")
    return error_for_code(error, f"topic {name!r}: the broker answered with error code {error}")
