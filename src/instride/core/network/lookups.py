"""PendingRequests of the application that need an answer: committed offsets, offsets by time, topics.

Laws: those of `questions`. What is asked is asked of the coordinator, of the leaders, or (`catalogue`) of any broker.
"""

from __future__ import annotations

from functools import partial
from typing import assert_never

from instride.core.events import FetchCommitted, FetchMetadata, FetchOffsets
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator
from instride.core.network.leaders import by_leader, list_offsets, send_to_leader
from instride.core.network.pending_requests import LookupEvent, PendingRequest, PendingRequests
from instride.core.network.topic_listing import TopicListing
from instride.errors import KafkaError, error_for_code
from instride.errors.broker import name_of_code
from instride.errors.codes import COORDINATOR_MOVED, ErrorCode
from instride.records import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from instride.wire import api

__all__ = ["Lookups"]


class Lookups:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster, coordinator: Coordinator) -> None:
        self._context = context
        self._cluster = cluster
        self._coordinator = coordinator
        self._pending = PendingRequests(context, cluster)
        self._topic_listing = TopicListing(context, cluster, self._pending)

    def add(self, event: LookupEvent) -> None:
        pending = self._pending.add(event)
        if _is_empty(event):
            self._pending.response(pending, result={})

    def close(self, error: Exception) -> None:
        """The consumer has closed: what is open still is answered now."""
        for pending in list(self._pending.open):
            self._pending.response(pending, error=error)

    def topics(self) -> frozenset[str]:
        """Whose metadata the questions need."""
        events = [each.event for each in self._pending.open]
        return frozenset(tp.topic for event in events if isinstance(event, FetchOffsets) for tp in event.timestamps)

    def poll(self, now: float) -> float:
        wake = float("inf")
        for pending in list(self._pending.open):
            if now >= pending.event.deadline:
                self._pending.timed_out(pending)
                continue
            wake = min(wake, pending.event.deadline)
            if pending.in_flight:
                continue
            if pending.backoff.ready(now):
                self._ask(pending, now)
            wake = min(wake, max(pending.backoff.ready_at, now + 0.001) if not pending.in_flight else wake)
        return wake

    def _ask(self, pending: PendingRequest, now: float) -> None:
        match pending.event:
            case FetchCommitted():
                self._ask_coordinator(pending, pending.event, now)
            case FetchOffsets():
                self._ask_leaders(pending, pending.event, now)
            case FetchMetadata():
                self._topic_listing.ask(pending, pending.event, now)
            case _:
                assert_never(pending.event)

    # -- committed offsets

    def _ask_coordinator(self, pending: PendingRequest, event: FetchCommitted, now: float) -> None:
        if not self._coordinator.need():
            pending.backoff.failed(now)
            pending.obstacle = self._context.connections.last_error
            if self._coordinator.refused is not None:
                self._pending.response(pending, error=self._coordinator.refused)
            return
        pending.in_flight = 1
        request = api.OffsetFetch(
            group_id=self._context.config.group_id or "",
            partitions=event.partitions,
            topic_ids=self._cluster.topic_ids({tp.topic for tp in event.partitions}),
        )
        self._coordinator.send(request, lambda result, then: self._committed(pending, result, then), now)

    def _committed(self, pending: PendingRequest, result: api.Response | Exception, now: float) -> None:
        pending.in_flight = 0
        self._context.touch()
        if not isinstance(result, api.OffsetFetchResponse):
            self._coordinator.lost(result)
            self._pending.failed(pending, result, now)
            return
        # Where the group has an error, the partitions that the answer leaves out have none of their own.
        codes = {result.error} if result.error else {found.error for found in result.offsets.values()} - {0}
        if not codes:
            self._pending.response(pending, result=_dressed(result))
            return
        if codes & COORDINATOR_MOVED:
            self._coordinator.lost(error_for_code(min(codes & COORDINATOR_MOVED)))
        if ErrorCode.UNKNOWN_TOPIC_ID in codes:
            self._cluster.doubt({topic for topic, _ in result.offsets})
        why = f"committed offsets of group {self._context.config.group_id!r}: {name_of_code(min(codes))}"
        self._pending.failed(pending, error_for_code(min(codes), why), now)

    # -- offsets by time

    def _ask_leaders(self, pending: PendingRequest, event: FetchOffsets, now: float) -> None:
        wanted = [tp for tp in event.timestamps if tp not in pending.found]
        led, leaderless = by_leader(self._cluster, wanted)
        for tp in leaderless:
            self._cluster.refresh()
            refusal = self._cluster.refusal(tp.topic)
            if refusal is not None and self._cluster.version > pending.metadata_version:
                self._pending.response(pending, error=refusal)
                return
            if self._cluster.brokers and type(pending.obstacle) in (type(None), KafkaError):
                pending.obstacle = KafkaError(self._cluster.why_no_leader(tp))  # of the newest metadata
        if not led:
            pending.backoff.failed(now)
            self._pending.refused(pending)
        for node_id, partitions in led.items():
            pending.in_flight += 1
            request = list_offsets(self._context, {tp: event.timestamps[tp] for tp in partitions}, {})
            send_to_leader(self._context, self._cluster, node_id, request, partial(self._listed, pending), now)

    def _listed(self, pending: PendingRequest, result: api.Response | Exception, now: float) -> None:
        pending.in_flight -= 1
        self._context.touch()
        if isinstance(result, api.ListOffsetsResponse):
            for tp, listed in result.offsets.items():
                if listed.error:
                    self._cluster.refresh()
                    why = f"the offset of {TopicPartition(*tp)}: {name_of_code(listed.error)}"
                    self._pending.failed(pending, error_for_code(listed.error, why), now)
                else:
                    pending.found[TopicPartition(*tp)] = OffsetAndTimestamp(
                        offset=listed.offset, timestamp=listed.timestamp, leader_epoch=listed.leader_epoch
                    )
        else:
            self._cluster.refresh()
            self._pending.failed(pending, result, now)
        if isinstance(pending.event, FetchOffsets) and len(pending.found) == len(pending.event.timestamps):
            self._pending.response(pending, result=dict(pending.found))


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


def _dressed(response: api.OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata | None]:
    return {
        TopicPartition(*tp): None
        if found.offset < 0
        else OffsetAndMetadata(offset=found.offset, metadata=found.metadata, leader_epoch=found.leader_epoch)
        for tp, found in response.offsets.items()
    }
