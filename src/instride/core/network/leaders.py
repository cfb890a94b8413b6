"""Requests to the leaders of partitions: the one way to send them, whatever they ask for.

Laws
1. One request of a kind is in flight to a leader at a time, and it names every partition that needs it.
2. A partition without a leader waits for fresh metadata, after a back-off of its own. Before the first metadata
   has come all wait for that, and none backs off.
3. After a failure the leader is asked again after a back-off, and the metadata is refreshed: another broker may lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.assigned_partitions import AssignedPartition
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.connections import OnDone
from instride.core.network.context import Context
from instride.records import TopicPartition
from instride.wire import api

__all__ = ["LeaderRequests", "by_leader", "list_offsets", "send_to_leader"]


def by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """The partitions of each leader, by its node id, and those that have no leader."""
    led: dict[int, list[TopicPartition]] = {}
    leaderless = []
    for partition in partitions:
        leader = cluster.leader(partition)
        if leader is None:
            leaderless.append(partition)
        else:
            led.setdefault(leader[0].node_id, []).append(partition)
    return led, leaderless


def list_offsets(
    context: Context, timestamps: Mapping[TopicPartition, int], leader_epochs: dict[api.Partition, int]
) -> api.ListOffsets:
    """timestamps: EARLIEST, LATEST or milliseconds. The end is the one that this consumer's isolation level reads."""
    return api.ListOffsets(
        timestamps=dict(timestamps.items()),
        leader_epochs=leader_epochs,
        read_committed=context.config.isolation_level == "read_committed",
    )


def send_to_leader(
    context: Context, cluster: Cluster, node_id: int, request: api.Request, on_done: OnDone, now: float
) -> None:
    broker = cluster.brokers[node_id]
    key = ConnectionKey(Role.DATA, node_id)
    context.connections.send(key, (broker.host, broker.port), request, on_done, now)


class LeaderRequests:
    """Requests of one kind. Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster) -> None:
        self._context = context
        self._cluster = cluster
        self._in_flight: set[int] = set()
        self._backoff: dict[int, Backoff] = {}
        self._not_before: dict[int, float] = {}

    def poll(
        self,
        waiting: Iterable[AssignedPartition],
        ask: Callable[[int, list[AssignedPartition], float], None],
        now: float,
    ) -> float:
        """Calls `ask` for each leader that may be asked now, with its partitions. Returns when to be polled again."""
        if not self._cluster.version:
            return float("inf")  # law 2: the metadata's response is an event of its own
        partitions = {assigned.partition: assigned for assigned in waiting}
        led, leaderless = by_leader(self._cluster, partitions)
        wake = float("inf")
        for partition in leaderless:
            backoff = partitions[partition].backoff
            backoff.failed(now)
            wake = min(wake, backoff.ready_at)
            self._cluster.miss(partition, now)
        for node_id, of_leader in led.items():
            if node_id in self._in_flight:
                continue
            ready_at = max(self._backoff_of(node_id).ready_at, self._not_before.get(node_id, 0.0))
            if now >= ready_at:
                ask(node_id, [partitions[partition] for partition in of_leader], now)
            else:
                wake = min(wake, ready_at)
        return wake

    def leader_epochs(self, partitions: Iterable[AssignedPartition]) -> dict[api.Partition, int]:
        """A broker that leads no more, or not yet, says so instead of an answer from another log (KIP-320)."""
        leaders = {assigned.partition: self._cluster.leader(assigned.partition) for assigned in partitions}
        return {partition: leader[1] for partition, leader in leaders.items() if leader is not None}

    def send(self, node_id: int, request: api.Request, on_done: OnDone, now: float) -> None:
        self._in_flight.add(node_id)

        def done(result: api.Response | Exception, then: float) -> None:
            self._context.touch()
            self._in_flight.discard(node_id)
            on_done(result, then)

        send_to_leader(self._context, self._cluster, node_id, request, done, now)

    def succeeded(self, node_id: int, *, next_at: float = 0.0) -> None:
        """next_at: when to ask this leader again, at the earliest."""
        self._backoff_of(node_id).succeeded()
        self._not_before[node_id] = next_at

    def failed(self, node_id: int, now: float) -> None:
        """Law 3."""
        self._backoff_of(node_id).failed(now)
        self._cluster.suspect(node_id)
        self._cluster.refresh()

    def _backoff_of(self, node_id: int) -> Backoff:
        return self._backoff.setdefault(node_id, self._context.backoff())
