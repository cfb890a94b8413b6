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
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.held import HeldPartition, Phase
from instride.core.network.positions import Positions, Stamps, asked
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
        held: Callable[[], Mapping[TopicPartition, HeldPartition]],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._positions = positions
        self._held = held
        self._asking: set[int] = set()
        self._backoff: dict[int, Backoff] = {}

    def poll(self, now: float) -> float:
        wake = float("inf")
        by_leader: dict[int, list[HeldPartition]] = {}
        for held in self._held().values():
            if held.phase is not Phase.VERIFY_RANGE or held.asking or held.state is not Ownership.OWNED:
                continue
            leader = self._cluster.leader(held.partition)
            ready_at = max(held.backoff.ready_at, held.doubt.ready_at)
            if now < ready_at:
                wake = min(wake, ready_at)
            elif leader is None:
                held.backoff.failed(now)
                wake = min(wake, held.backoff.ready_at)
                self._cluster.miss(held.partition, now)
            elif leader[0].node_id not in self._asking:
                by_leader.setdefault(leader[0].node_id, []).append(held)
        for node_id, partitions in by_leader.items():
            backoff = self._backoff.setdefault(node_id, self._context.backoff())
            if backoff.ready(now):
                self._ask(node_id, partitions, None, now)
            else:
                wake = min(wake, backoff.ready_at)
        return wake

    def _ask(self, node_id: int, partitions: list[HeldPartition], starts: _Starts | None, now: float) -> None:
        """starts: where their logs begin, once that is known; then it is their ends that are asked for."""
        broker = self._cluster.brokers[node_id]
        self._asking.add(node_id)
        stamps = asked(partitions)
        leaders = {held.partition: self._cluster.leader(held.partition) for held in partitions}
        request = api.ListOffsets(
            timestamps=dict.fromkeys(stamps, EARLIEST if starts is None else LATEST),
            leader_epochs={tp: leader[1] for tp, leader in leaders.items() if leader is not None},
        )
        self._context.connections.send(
            ConnectionKey(Role.DATA, node_id),
            (broker.host, broker.port),
            request,
            lambda result, then: self._answered(node_id, stamps, starts, result, then),
            now,
        )

    def _answered(
        self, node_id: int, stamps: Stamps, starts: _Starts | None, result: api.Answer | Exception, now: float
    ) -> None:
        self._context.touch()
        self._asking.discard(node_id)
        current = [held for held in self._positions.current(stamps) if held.state is Ownership.OWNED]
        if not isinstance(result, api.ListOffsetsAnswer):
            self._backoff[node_id].failed(now)
            self._cluster.suspect(node_id)
            self._cluster.refresh()
            return
        self._backoff[node_id].succeeded()
        found = {held.partition: self._found(held, result, now) for held in current}
        known = {tp: offset for tp, offset in found.items() if offset is not None}
        rest = [held for held in current if held.partition in known]
        if starts is None:
            if rest and node_id in self._cluster.brokers:
                self._ask(node_id, rest, known, now)
            return
        for held in rest:
            self._judge(held, starts[held.partition], known[held.partition], now)

    def _found(self, held: HeldPartition, answer: api.ListOffsetsAnswer, now: float) -> int | None:
        listed = answer.offsets.get(held.partition)
        if listed is not None and not listed.error:
            return listed.offset
        self._cluster.refresh()
        self._positions.not_listed(held, listed, now)
        return None

    def _judge(self, held: HeldPartition, start: int, end: int, now: float) -> None:
        """Laws 2 and 3."""
        held.doubt.failed(now)
        if not start <= held.offset <= end:
            self._positions.out_of_range(held, start, end)
            return
        held.in_range(end)
        # Without the log's end, which may grow: the same line again is one (`Context.log`).
        why = f"offset {held.offset} of {held.partition} was called out of range, and the log has it: fetched again"
        self._context.log(logging.WARNING, why)
