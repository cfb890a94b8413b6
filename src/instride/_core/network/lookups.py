"""Requests that change nothing: committed offsets, offsets by time, topics.

Committed offsets come from the coordinator, offsets by time from the leaders, topics from any broker.

Laws
1. Each call ends once: with the whole result (as in Java), a final error, or at its deadline with `KafkaTimeoutError`
   that names the last obstacle, and the partitions without an offset where others have one.
2. What is retriable is retried, after a back-off, until the deadline.
3. That nobody takes our credentials, or finds the group's coordinator for us, ends a call once for each refusal. A call
   that comes later waits for the next attempt: it may be accepted, and a program that calls again must not spin.
4. A topic that does not exist is left out of the result; one that may not be described, or has an invalid name, is a
   final error. No topic is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from instride._core.events import CallCompleted, FetchCommitted, FetchMetadata, FetchOffsets
from instride._core.network.actions import ConnectionKey
from instride._core.network.cluster import (
    ASKS_FOR_BOOTSTRAP,
    KNOWS_NO_BROKER,
    Cluster,
    by_leader,
    list_offsets,
    send_to_leader,
)
from instride._core.network.connections import Backoff
from instride._core.network.context import Context
from instride._core.network.coordinator import Coordinator
from instride._wire import api
from instride.errors import KafkaError, KafkaTimeoutError, TransportError, error_for_code
from instride.errors._quoting import first_of
from instride.errors.broker import name_of_code
from instride.errors.codes import COORDINATOR_MOVED, ErrorCode
from instride.records import Node, OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition

__all__ = ["LookupEvent", "Lookups"]

LookupEvent = FetchCommitted | FetchOffsets | FetchMetadata


@dataclass(slots=True, kw_only=True, eq=False)
class _Lookup:
    """One call. in_flight: how many of its requests are. obstacle: what went wrong last.

    metadata_version: the cluster's when the call was made; only newer metadata may refuse it. refusals: how many
    there were when a call before it raised one; only another ends it (law 3).
    """

    event: LookupEvent
    backoff: Backoff
    metadata_version: int
    refusals: int
    in_flight: int = 0
    found: dict[TopicPartition, OffsetAndTimestamp] = field(default_factory=dict)
    obstacle: Exception | None = None


class Lookups:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster, coordinator: Coordinator) -> None:
        self._context = context
        self._cluster = cluster
        self._coordinator = coordinator
        # While it is empty the machine does not ask for topics, nor poll.
        self.open: list[_Lookup] = []
        self._refusals = 0  # how many there were when a call raised one

    def add(self, event: LookupEvent) -> None:
        lookup = _Lookup(
            event=event,
            backoff=self._context.backoff(),
            metadata_version=self._cluster.version,
            refusals=self._refusals,
        )
        self.open.append(lookup)
        self._context.touch()
        if _is_empty(event):
            self._end(lookup, result={})

    def close(self, error: Exception) -> None:
        """The consumer has closed: every open call ends now."""
        for lookup in list(self.open):
            self._end(lookup, error=error)

    def topics(self) -> frozenset[str]:
        """Whose metadata the open calls need."""
        events = [each.event for each in self.open]
        return frozenset(tp.topic for event in events if isinstance(event, FetchOffsets) for tp in event.timestamps)

    def poll(self, now: float) -> float:
        wake = float("inf")
        for lookup in list(self.open):
            if now >= lookup.event.deadline:
                self._timed_out(lookup)
                continue
            wake = min(wake, lookup.event.deadline)
            if lookup.in_flight:
                continue
            if lookup.backoff.ready(now):
                self._ask(lookup, now)
            wake = min(wake, max(lookup.backoff.ready_at, now + 0.001) if not lookup.in_flight else wake)
        return wake

    def _ask(self, lookup: _Lookup, now: float) -> None:
        match lookup.event:
            case FetchCommitted():
                self._ask_coordinator(lookup, lookup.event, now)
            case FetchOffsets():
                self._ask_leaders(lookup, lookup.event, now)
            case FetchMetadata():
                self._ask_any_broker(lookup, lookup.event, now)
            case _:
                assert_never(lookup.event)

    # -- committed offsets

    def _ask_coordinator(self, lookup: _Lookup, event: FetchCommitted, now: float) -> None:
        if not self._coordinator.need():
            lookup.backoff.failed(now)
            lookup.obstacle = self._context.connections.last_error
            self._refused(lookup, self._coordinator.refused)
            return
        lookup.in_flight = 1
        request = api.OffsetFetch(
            group_id=self._context.config.group_id or "",
            partitions=event.partitions,
            topic_ids=self._cluster.topic_ids({tp.topic for tp in event.partitions}),
        )
        self._coordinator.send(request, lambda result, then: self._committed(lookup, result, then), now)

    def _committed(self, lookup: _Lookup, result: api.Response | Exception, now: float) -> None:
        lookup.in_flight = 0
        self._context.touch()
        if not isinstance(result, api.OffsetFetchResponse):
            self._coordinator.lost(result)
            self._failed(lookup, result, now)
            return
        # Where the group has an error, the partitions that the response leaves out have none of their own.
        codes = {result.error} if result.error else {found.error for found in result.offsets.values()} - {0}
        if not codes:
            self._end(lookup, result=_offsets(result))
            return
        if codes & COORDINATOR_MOVED:
            self._coordinator.lost(error_for_code(min(codes & COORDINATOR_MOVED)))
        if ErrorCode.UNKNOWN_TOPIC_ID in codes:
            self._cluster.doubt({topic for topic, _ in result.offsets})
        what = f"committed offsets of group {self._context.config.group_id!r}"
        errors = [error_for_code(code, f"{what}: {name_of_code(code)}") for code in sorted(codes)]
        self._failed(lookup, _foremost(errors), now)

    # -- offsets by time

    def _ask_leaders(self, lookup: _Lookup, event: FetchOffsets, now: float) -> None:
        wanted = [tp for tp in event.timestamps if tp not in lookup.found]
        led, leaderless = by_leader(self._cluster, wanted)
        for tp in leaderless:
            self._cluster.refresh()
            refusal = self._cluster.refusal(tp.topic)
            if refusal is not None and self._cluster.version > lookup.metadata_version:
                self._end(lookup, error=refusal)
                return
            if self._cluster.brokers and type(lookup.obstacle) in (type(None), KafkaError):
                lookup.obstacle = KafkaError(self._cluster.why_no_leader(tp))  # of the newest metadata
        if not led:
            lookup.backoff.failed(now)
            self._refused(lookup, self._context.connections.refused)
        for node_id, partitions in led.items():
            lookup.in_flight += 1
            request = list_offsets(self._context, {tp: event.timestamps[tp] for tp in partitions}, {})
            send_to_leader(self._context, self._cluster, node_id, request, partial(self._listed, lookup), now)

    def _listed(self, lookup: _Lookup, result: api.Response | Exception, now: float) -> None:
        lookup.in_flight -= 1
        self._context.touch()
        errors: list[object] = [result]
        if isinstance(result, api.ListOffsetsResponse):
            lookup.found |= {
                TopicPartition(*tp): OffsetAndTimestamp(
                    offset=each.offset, timestamp=each.timestamp, leader_epoch=each.leader_epoch
                )
                for tp, each in result.offsets.items()
                if not each.error
            }
            errors = [_error_of(tp, each.error) for tp, each in result.offsets.items() if each.error]
        if errors:
            self._cluster.refresh()
            self._failed(lookup, _foremost(errors), now)
        if isinstance(lookup.event, FetchOffsets) and len(lookup.found) == len(lookup.event.timestamps):
            self._end(lookup, result=dict(lookup.found))

    # -- topics

    def _ask_any_broker(self, lookup: _Lookup, event: FetchMetadata, now: float) -> None:
        if not self._cluster.brokers:
            # The bootstrap connection is closed once the brokers are known: wait for these.
            lookup.backoff.failed(now)
            self._refused(lookup, self._context.connections.refused)
            return
        key, address = self._cluster.any_node(now)
        lookup.in_flight = 1
        self._context.connections.send(
            key,
            address,
            api.Metadata(topics=event.topics),
            lambda result, then: self._described(key, lookup, event, result, then),
            now,
        )

    def _described(
        self,
        key: ConnectionKey,
        lookup: _Lookup,
        event: FetchMetadata,
        result: api.Response | Exception,
        now: float,
    ) -> None:
        lookup.in_flight = 0
        self._context.touch()
        if not isinstance(result, api.MetadataResponse):
            self._cluster.no_response(key)
            self._failed(lookup, result, now)
            return
        if result.error == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._cluster.start_anew(key, now)
            self._failed(lookup, TransportError(ASKS_FOR_BOOTSTRAP), now)
            return
        if not result.brokers:
            self._cluster.no_response(key)
            self._failed(lookup, TransportError(KNOWS_NO_BROKER), now)
            return
        found = [topic for topic in result.topics if event.internal or not topic.is_internal]
        for topic in found:
            if topic.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                error = error_for_code(topic.error, f"topic {topic.name!r}: error code {topic.error}")
                self._failed(lookup, error, now)
                return
        nodes = {each.node_id: _node(each) for each in result.brokers}
        self._end(lookup, result={each.name: _infos(each, nodes) for each in found if each.error == ErrorCode.NONE})

    # -- the result of each

    def _failed(self, lookup: _Lookup, error: object, now: float) -> None:
        """Law 2."""
        lookup.backoff.failed(now)
        lookup.obstacle = error if isinstance(error, Exception) else TypeError(repr(error))
        if not _is_passing(error):
            self._end(lookup, error=lookup.obstacle)

    def _refused(self, lookup: _Lookup, error: Exception | None) -> None:
        """Law 3."""
        if error is not None and self._coordinator.refusals > lookup.refusals:
            self._refusals = self._coordinator.refusals
            self._end(lookup, error=error)

    def _timed_out(self, lookup: _Lookup) -> None:
        obstacle = lookup.obstacle or self._context.connections.last_error
        if obstacle is None and not self._context.connections.ever_connected:
            obstacle = self._cluster.unreachable()
        what = f"no response within the timeout{_lacking(lookup)}"
        error = KafkaTimeoutError(f"{what}; last obstacle: {obstacle or 'none'}")
        error.__cause__ = obstacle
        self._end(lookup, error=error)

    def _end(self, lookup: _Lookup, *, result: object = None, error: Exception | None = None) -> None:
        if lookup in self.open:
            self.open.remove(lookup)
            self._context.deliver(CallCompleted(call=lookup.event.call, result=result, error=error))


def _is_passing(error: object) -> bool:
    return isinstance(error, KafkaError) and error.retriable


def _foremost(errors: Sequence[object]) -> object:
    """One that no retry mends ends the call, whatever else there is."""
    return next((each for each in errors if not _is_passing(each)), errors[-1])


def _error_of(partition: api.Partition, code: int) -> KafkaError:
    return error_for_code(code, f"the offset of {TopicPartition(*partition)}: {name_of_code(code)}")


def _is_empty(event: LookupEvent) -> bool:
    match event:
        case FetchCommitted():
            return not event.partitions
        case FetchOffsets():
            return not event.timestamps
        case FetchMetadata():
            return event.topics == ()
        case _:
            assert_never(event)


def _lacking(lookup: _Lookup) -> str:
    """Where some partitions have an offset and others have none: which ones, so that a user finds their leader."""
    if not isinstance(lookup.event, FetchOffsets) or not lookup.found:
        return ""
    lacking = sorted(lookup.event.timestamps.keys() - lookup.found.keys())
    return f" for {len(lacking)} of {len(lookup.event.timestamps)} partitions: {first_of(lacking)}"


def _offsets(response: api.OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata | None]:
    return {
        TopicPartition(*tp): None
        if found.offset < 0
        else OffsetAndMetadata(offset=found.offset, metadata=found.metadata, leader_epoch=found.leader_epoch)
        for tp, found in response.offsets.items()
    }


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
