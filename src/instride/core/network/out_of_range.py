"""An offset that its leader calls out of range: nothing is reset before the ends of the log say so as well.

Laws
1. The leader is asked where the log begins and where it ends, as any reader sees it (not "read_committed").
2. An offset from the beginning to the end, both included, is one of the log: the broker contradicts itself, and the
   offset is fetched again. Any other is reset, or is an error, as auto_offset_reset says.
3. The first look is at once. The next ones of a partition are spaced by a back-off that grows until records arrive: so
   a broker that repeats itself, or that tells of another log each time, costs little.
4. One question to a leader is under way at a time, of all partitions that need it: one request can ask for one end.
5. An answer applies only if the partition is as it was asked for (epoch, fetch number, topic).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from instride.core.events import EARLIEST, LATEST
from instride.core.group.ownership import Ownership
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.assigned_partition import AssignedPartition, Phase
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.positions import Fences, Positions, asked
from instride.records import TopicPartition
from instride.wire import api

__all__ = ["OutOfRange"]

_Starts = dict[TopicPartition, int]


class OutOfRange:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        positions: Positions,
        assigned: Callable[[], Mapping[TopicPartition, AssignedPartition]],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._positions = positions
        self._held = assigned
        self._asking: set[int] = set()
        self._backoff: dict[int, Backoff] = {}

    def poll(self, now: float) -> float:
        wake = float("inf")
        by_leader: dict[int, list[AssignedPartition]] = {}
        for assigned in self._held().values():
            if assigned.phase is not Phase.VERIFY_RANGE or assigned.asking or assigned.state is not Ownership.OWNED:
                continue
            leader = self._cluster.leader(assigned.partition)
            ready_at = max(assigned.backoff.ready_at, assigned.doubt.ready_at)
            if now < ready_at:
                wake = min(wake, ready_at)
            elif leader is None:
                assigned.backoff.failed(now)
                wake = min(wake, assigned.backoff.ready_at)
                self._cluster.miss(assigned.partition, now)
            elif leader[0].node_id not in self._asking:
                by_leader.setdefault(leader[0].node_id, []).append(assigned)
        for node_id, partitions in by_leader.items():
            backoff = self._backoff.setdefault(node_id, self._context.backoff())
            if backoff.ready(now):
                self._ask(node_id, partitions, None, now)
            else:
                wake = min(wake, backoff.ready_at)
        return wake

    def _ask(self, node_id: int, partitions: list[AssignedPartition], starts: _Starts | None, now: float) -> None:
        """starts: where their logs begin, once that is known; then it is their ends that are asked for."""
        broker = self._cluster.brokers[node_id]
        self._asking.add(node_id)
        fences = asked(partitions)
        leaders = {assigned.partition: self._cluster.leader(assigned.partition) for assigned in partitions}
        request = api.ListOffsets(
            timestamps=dict.fromkeys(fences, EARLIEST if starts is None else LATEST),
            leader_epochs={tp: leader[1] for tp, leader in leaders.items() if leader is not None},
        )
        self._context.connections.send(
            ConnectionKey(Role.DATA, node_id),
            (broker.host, broker.port),
            request,
            lambda result, then: self._on_response(node_id, fences, starts, result, then),
            now,
        )

    def _on_response(
        self, node_id: int, fences: Fences, starts: _Starts | None, result: api.Response | Exception, now: float
    ) -> None:
        self._context.touch()
        self._asking.discard(node_id)
        current = [assigned for assigned in self._positions.current(fences) if assigned.state is Ownership.OWNED]
        if not isinstance(result, api.ListOffsetsResponse):
            self._backoff[node_id].failed(now)
            self._cluster.suspect(node_id)
            self._cluster.refresh()
            return
        self._backoff[node_id].succeeded()
        found = {assigned.partition: self._found(assigned, result, now) for assigned in current}
        known = {tp: offset for tp, offset in found.items() if offset is not None}
        rest = [assigned for assigned in current if assigned.partition in known]
        if starts is None:
            if rest and node_id in self._cluster.brokers:
                self._ask(node_id, rest, known, now)
            return
        for assigned in rest:
            self._judge(assigned, starts[assigned.partition], known[assigned.partition], now)

    def _found(self, assigned: AssignedPartition, response: api.ListOffsetsResponse, now: float) -> int | None:
        listed = response.offsets.get(assigned.partition)
        if listed is not None and not listed.error:
            return listed.offset
        self._cluster.refresh()
        self._positions.not_listed(assigned, listed, now)
        return None

    def _judge(self, assigned: AssignedPartition, start: int, end: int, now: float) -> None:
        """Laws 2 and 3."""
        assigned.doubt.failed(now)
        if not start <= assigned.offset <= end:
            self._positions.out_of_range(assigned, start, end)
            return
        assigned.in_range(end)
        # Without the log's end, which may grow: the same line again is one (`Context.log`).
        called = f"offset {assigned.offset} of {assigned.partition} was called out of range"
        why = f"{called}, and the log has it: fetched again"
        self._context.log(logging.WARNING, why)
