"""Whether a position still is one of its log: KIP-320, and topics that were deleted and made again.

Laws
1. A position that was read under an older leader epoch is validated at the new leader before anything is fetched. One
   without a known epoch cannot be, and one of the present epoch need not be.
2. A log that ends the position's epoch before the position was cut there: reading goes on at the cut where a reset
   policy is set, else the user hears of it. Where the log knows no end, the reset policy applies.
3. A topic whose id has changed is another topic: an offset of the old one is never used in it, and no commit of it
   is sent any more. The reset policy applies, or the user hears of it.
4. An answer applies only if the partition is as it was asked for (epoch, fetch number, topic).
5. One question to a leader is under way at a time.
6. A broker that cannot be asked (before Kafka 2.3) is trusted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from instride.core.group.ownership import Ownership
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.assigned_partition import AssignedPartition, Phase
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.positions import Fences, Positions, asked, is_passing
from instride.errors import KafkaError, TopicAuthorizationFailedError, UnsupportedVersionError, error_for_code
from instride.records import TopicPartition
from instride.wire import api

__all__ = ["Validation"]

_TOPIC_AUTHORIZATION_FAILED = 29


class Validation:
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
        version = self._cluster.version
        waiting = []
        for assigned in self._held().values():
            if assigned.checked != version:
                assigned.checked = version
                self._check(assigned)
            if assigned.phase is Phase.VALIDATE and not assigned.asking and assigned.state is Ownership.OWNED:
                waiting.append(assigned)
        return self._ask(waiting, now) if waiting else float("inf")

    # -- what the metadata says

    def _check(self, assigned: AssignedPartition) -> None:
        topic_id = self._cluster.topic_id(assigned.partition.topic)
        if topic_id not in (assigned.topic_id, api.NO_TOPIC_ID):
            old, assigned.topic_id = assigned.topic_id, topic_id
            if old != api.NO_TOPIC_ID:
                self._positions.topic_recreated(assigned, old)
                return
        leader = self._cluster.leader(assigned.partition)
        if assigned.phase is not Phase.FETCHING or leader is None or leader[1] <= assigned.validated:
            return
        assigned.replica = None  # it was the old leader's choice
        if 0 <= assigned.leader_epoch < leader[1]:
            assigned.phase = Phase.VALIDATE
            self._context.touch()
        else:
            assigned.validated = leader[1]

    # -- asking

    def _ask(self, waiting: list[AssignedPartition], now: float) -> float:
        wake = float("inf")
        by_leader: dict[int, list[AssignedPartition]] = {}
        for assigned in waiting:
            leader = self._cluster.leader(assigned.partition)
            if not assigned.backoff.ready(now):
                wake = min(wake, assigned.backoff.ready_at)
            elif leader is None:
                assigned.backoff.failed(now)
                wake = min(wake, assigned.backoff.ready_at)
                self._cluster.miss(assigned.partition, now)
            elif leader[0].node_id not in self._asking:
                by_leader.setdefault(leader[0].node_id, []).append(assigned)
        for node_id, partitions in by_leader.items():
            backoff = self._backoff.setdefault(node_id, self._context.backoff())
            if backoff.ready(now):
                self._ask_leader(node_id, partitions, now)
            else:
                wake = min(wake, backoff.ready_at)
        return wake

    def _ask_leader(self, node_id: int, partitions: list[AssignedPartition], now: float) -> None:
        broker = self._cluster.brokers[node_id]
        epochs: dict[api.Partition, int] = {assigned.partition: self._leader_epoch(assigned) for assigned in partitions}
        fences = asked(partitions)
        self._asking.add(node_id)
        request = api.OffsetForLeaderEpoch(
            epochs={assigned.partition: assigned.leader_epoch for assigned in partitions}, leader_epochs=epochs
        )
        self._context.connections.send(
            ConnectionKey(Role.DATA, node_id),
            (broker.host, broker.port),
            request,
            lambda result, then: self._on_response(node_id, fences, epochs, result, then),
            now,
        )

    def _leader_epoch(self, assigned: AssignedPartition) -> int:
        leader = self._cluster.leader(assigned.partition)
        return leader[1] if leader is not None else -1

    def _on_response(
        self,
        node_id: int,
        fences: Fences,
        epochs: Mapping[api.Partition, int],
        result: api.Response | Exception,
        now: float,
    ) -> None:
        self._context.touch()
        self._asking.discard(node_id)
        current = [assigned for assigned in self._positions.current(fences) if assigned.phase is Phase.VALIDATE]
        if isinstance(result, api.OffsetForLeaderEpochResponse):
            self._backoff[node_id].succeeded()
            for assigned in current:
                self._take(assigned, epochs[assigned.partition], result.ends[assigned.partition], now)
        elif isinstance(result, UnsupportedVersionError):
            for assigned in current:
                self._valid(assigned, epochs[assigned.partition])
        else:
            self._failed(node_id, current, result, now)

    def _failed(self, node_id: int, current: list[AssignedPartition], result: object, now: float) -> None:
        self._context.log(logging.INFO, f"validating positions at node {node_id} failed: {result}")
        self._backoff[node_id].failed(now)
        self._cluster.suspect(node_id)
        self._cluster.refresh()
        if isinstance(result, KafkaError) and not is_passing(result):
            for assigned in current:
                self._positions.fail(assigned, result)

    # -- one partition's answer

    def _take(self, assigned: AssignedPartition, epoch: int, end: api.EpochEnd, now: float) -> None:
        if end.error == _TOPIC_AUTHORIZATION_FAILED:
            why = f"not authorised to validate a position of topic {assigned.partition.topic!r}: it needs Describe"
            self._positions.fail(assigned, TopicAuthorizationFailedError(why))
        elif end.error:
            self._context.log(logging.INFO, f"validating {assigned.partition} failed: {error_for_code(end.error)}")
            self._cluster.refresh()
            assigned.backoff.failed(now)
        elif end.leader_epoch < 0 or end.end_offset < 0:
            self._positions.truncated(assigned, None)
        elif end.end_offset < assigned.offset:
            self._positions.truncated(assigned, (end.end_offset, end.leader_epoch))
        else:
            self._valid(assigned, epoch)

    def _valid(self, assigned: AssignedPartition, epoch: int) -> None:
        assigned.backoff.succeeded()
        assigned.phase, assigned.validated, assigned.known_end = Phase.FETCHING, epoch, -1
