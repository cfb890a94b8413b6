"""A question of the application that is under way: its retries, its obstacle and its one answer.

Laws
1. Each is answered once: with a result, a final error, or at its deadline with `KafkaTimeoutError` that names the
   last obstacle.
2. What is retriable is retried, after a back-off, until the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from instride.core.events import CallCompleted, FetchCommitted, FetchMetadata, FetchOffsets
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.errors import KafkaError, KafkaTimeoutError
from instride.records import OffsetAndTimestamp, TopicPartition

__all__ = ["PendingRequest", "PendingRequests", "LookupEvent"]

LookupEvent = FetchCommitted | FetchOffsets | FetchMetadata


@dataclass(slots=True, kw_only=True, eq=False)
class PendingRequest:
    """flying: how many requests of it are under way. obstacle: what went wrong last.

    metadata_version: that of the cluster when it was asked; only what is newer may refuse it.
    """

    event: LookupEvent
    backoff: Backoff
    metadata_version: int
    in_flight: int = 0
    found: dict[TopicPartition, OffsetAndTimestamp] = field(default_factory=dict)
    obstacle: Exception | None = None


class PendingRequests:
    """Those that are open. Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster) -> None:
        self._context = context
        self._cluster = cluster
        self.open: list[PendingRequest] = []

    def add(self, event: LookupEvent) -> PendingRequest:
        pending = PendingRequest(event=event, backoff=self._context.backoff(), metadata_version=self._cluster.version)
        self.open.append(pending)
        self._context.touch()
        return pending

    def failed(self, pending: PendingRequest, error: object, now: float) -> None:
        """Law 2."""
        pending.backoff.failed(now)
        pending.obstacle = error if isinstance(error, Exception) else TypeError(repr(error))
        if not (isinstance(error, KafkaError) and error.retriable):
            self.response(pending, error=pending.obstacle)

    def refused(self, pending: PendingRequest) -> None:
        """Where no broker takes our credentials, waiting helps nobody."""
        if self._context.connections.refused is not None:
            self.response(pending, error=self._context.connections.refused)

    def timed_out(self, pending: PendingRequest) -> None:
        obstacle = pending.obstacle or self._context.connections.last_error
        if obstacle is None and not self._context.connections.ever_connected:
            obstacle = self._cluster.unreachable()
        error = KafkaTimeoutError(f"no answer within the timeout; last obstacle: {obstacle or 'none'}")
        error.__cause__ = obstacle
        self.response(pending, error=error)

    def response(self, pending: PendingRequest, *, result: object = None, error: Exception | None = None) -> None:
        if pending in self.open:
            self.open.remove(pending)
            self._context.deliver(CallCompleted(call=pending.event.call, result=result, error=error))
