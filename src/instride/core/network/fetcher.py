"""Fetching: for each broker one request of the partitions that lag, and one of those that are read to their end.

Why two: a broker holds a fetch back until there is something to answer. A partition that lags must not wait for one
that has nothing new, so each kind has its own connection.

Laws
1. What comes back under an older epoch or fetch number is dropped.
2. The partitions of a request take turns in its order, so that a full answer starves none.
3. An error of one partition stops that partition only. A leader's error asks for fresh metadata and waits.
4. A corrupt batch, or an answer that cannot be read, is fetched once more; then its partitions are parked.
5. The position moves only by what a broker answered: to the end of the last complete batch.
6. A partition is in one request at a time. A fetch at the end that leaves out a partition of its broker (since its
   buffer is full, or it lags) waits briefly only, so that this one can join it soon.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from instride.core.events import Fetched
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.held import HeldPartition
from instride.core.network.positions import Positions, Stamps
from instride.core.network.room import most_bytes, with_room
from instride.errors import KafkaError, ProtocolError, TopicAuthorizationFailedError, TransportError, error_for_code
from instride.records import TopicPartition
from instride.wire import api

__all__ = ["Fetcher"]

_OFFSET_OUT_OF_RANGE = 1
_CORRUPT_MESSAGE = 2
_TOPIC_AUTHORIZATION_FAILED = 29
_STALE_METADATA = frozenset({3, 5, 6, 9, 56, 74, 78, 100, 103})
_RETRY = frozenset({7, 75, -1})
_BRIEFLY = 0.05

# Which fetch: the broker's id, and Role.DATA for partitions that lag or Role.TAIL for those at their end.
Lane = tuple[int, Role]


class Fetcher:
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
        self._flying: dict[Lane, Stamps] = {}
        self._node_backoff: dict[int, Backoff] = {}
        self._unreadable: set[int] = set()
        self._turn = 0

    def poll(self, now: float) -> float:
        wake = float("inf")
        ready: dict[Lane, list[HeldPartition]] = {}
        for held in with_room(self._context.config, self._held().values()):
            if self._under_way(held):
                continue
            if not held.backoff.ready(now):
                wake = min(wake, held.backoff.ready_at)
                continue
            leader = self._cluster.leader(held.partition)
            if leader is None:
                held.backoff.failed(now)
                wake = min(wake, held.backoff.ready_at)
                self._cluster.miss(held.partition, now)
                self._context.touch()
            else:
                ready.setdefault((leader[0].node_id, _role(held)), []).append(held)
        for lane, partitions in ready.items():
            if lane in self._flying:
                continue
            backoff = self._node_backoff.setdefault(lane[0], self._context.backoff())
            if backoff.ready(now):
                self._send(lane, partitions, now)
            else:
                wake = min(wake, backoff.ready_at)
        return wake

    def _under_way(self, held: HeldPartition) -> bool:
        return any(stamps.get(held.partition) == held.stamp for stamps in self._flying.values())

    def _send(self, lane: Lane, partitions: list[HeldPartition], now: float) -> None:
        node_id, role = lane
        broker = self._cluster.brokers[node_id]
        self._turn += 1
        start = self._turn % len(partitions)
        ordered = partitions[start:] + partitions[:start]
        stamps = {held.partition: held.stamp for held in ordered}
        self._flying[lane] = stamps
        request = api.Fetch(
            partitions=tuple(self._partition(held) for held in ordered),
            max_wait=self._wait(lane, stamps),
            min_bytes=self._context.config.fetch_min_bytes,
            max_bytes=self._context.config.fetch_max_bytes,
            read_committed=self._context.config.isolation_level == "read_committed",
            max_decompressed_bytes=self._context.config.max_decompressed_bytes,
        )
        self._context.connections.send(
            ConnectionKey(role, node_id),
            (broker.host, broker.port),
            request,
            lambda result, then: self._answered(lane, stamps, result, then),
            now,
            timeout=self._context.config.request_timeout + self._context.config.fetch_max_wait,
        )

    def _wait(self, lane: Lane, stamps: Stamps) -> float:
        """Law 6."""
        longest = self._context.config.fetch_max_wait
        for held in self._held().values():
            if held.partition not in stamps and held.fetchable:
                leader = self._cluster.leader(held.partition)
                if leader is not None and leader[0].node_id == lane[0]:
                    return min(longest, _BRIEFLY)
        return longest

    def _partition(self, held: HeldPartition) -> api.FetchPartition:
        leader = self._cluster.leader(held.partition)
        return api.FetchPartition(
            topic=held.partition.topic,
            partition=held.partition.partition,
            offset=held.offset,
            topic_id=self._cluster.topic_id(held.partition.topic),
            leader_epoch=leader[1] if leader is not None else -1,
            max_bytes=most_bytes(self._context.config, len(self._held())),
        )

    def _answered(self, lane: Lane, stamps: Stamps, result: api.Answer | Exception, now: float) -> None:
        self._flying.pop(lane, None)
        self._context.touch()
        if not isinstance(result, api.FetchAnswer) or result.error:
            self._failed(lane[0], stamps, result, now)
            return
        self._node_backoff[lane[0]].succeeded()
        self._unreadable.discard(lane[0])
        table = self._held()
        for tp, fetched in result.partitions.items():
            held = table.get(TopicPartition(*tp))
            if held is not None and stamps.get(held.partition) == held.stamp and held.fetchable:
                self._take(held, fetched, now)

    def _failed(self, node_id: int, stamps: Stamps, result: api.Answer | Exception, now: float) -> None:
        error = _error_of(result)
        self._node_backoff[node_id].failed(now)
        self._context.log(logging.INFO, f"fetch from node {node_id} failed: {error}")
        if isinstance(error, TransportError | TimeoutError):
            self._cluster.suspect(node_id)
        self._cluster.refresh()
        if self._is_final(node_id, error):
            for held in [held for held in self._held().values() if stamps.get(held.partition) == held.stamp]:
                self._positions.park(held, error)

    def _is_final(self, node_id: int, error: Exception) -> bool:
        """Law 4 for a whole answer that cannot be read: its bytes, too, may have been damaged on the way."""
        if isinstance(error, ProtocolError) and not error.fatal and node_id not in self._unreadable:
            self._unreadable.add(node_id)
            return False
        return isinstance(error, KafkaError) and not error.retriable

    # -- one partition's answer

    def _take(self, held: HeldPartition, fetched: api.FetchedPartition, now: float) -> None:
        if fetched.error:
            self._partition_failed(held, fetched.error, now)
            return
        held.backoff.succeeded()
        stable = self._context.config.isolation_level == "read_committed"
        held.known_end = fetched.last_stable_offset if stable else fetched.high_watermark
        if fetched.next_offset > held.offset:
            self._deliver(held, fetched)
        if fetched.corrupt is not None:
            self._corrupt(held, fetched.corrupt, now)

    def _deliver(self, held: HeldPartition, fetched: api.FetchedPartition) -> None:
        held.offset = fetched.next_offset
        if fetched.chunk is not None:
            held.records += len(fetched.chunk)
            held.nbytes += fetched.chunk.nbytes
            held.leader_epoch = fetched.chunk.leader_epoch
        self._context.deliver(
            Fetched(
                partition=held.partition,
                epoch=held.epoch,
                fetch_number=held.fetch_number,
                chunk=fetched.chunk,
                next_offset=fetched.next_offset,
                high_watermark=held.known_end,
            )
        )

    def _corrupt(self, held: HeldPartition, error: Exception, now: float) -> None:
        """Law 4: the bytes may have been damaged on the way."""
        if held.corrupt_at == held.offset:
            self._positions.park(held, error)
            return
        held.corrupt_at = held.offset
        held.backoff.failed(now)
        self._context.log(logging.WARNING, f"fetching {held.partition} at offset {held.offset} once more: {error}")

    def _partition_failed(self, held: HeldPartition, code: int, now: float) -> None:
        where = f"{held.partition} at offset {held.offset}"
        error = error_for_code(code, f"fetching {where}: the broker answered with error code {code}")
        if code == _OFFSET_OUT_OF_RANGE:
            self._positions.out_of_range(held)
        elif code in _STALE_METADATA:
            self._cluster.refresh()
            held.backoff.failed(now)
        elif code == _CORRUPT_MESSAGE:
            self._corrupt(held, error, now)
        elif code in _RETRY:
            held.backoff.failed(now)
        elif code == _TOPIC_AUTHORIZATION_FAILED:
            why = f"not authorised to read topic {held.partition.topic!r}: it needs Read"
            self._positions.park(held, TopicAuthorizationFailedError(why))
        else:
            self._positions.park(held, error)


def _error_of(result: api.Answer | Exception) -> Exception:
    if isinstance(result, api.FetchAnswer):
        return error_for_code(result.error)
    return result if isinstance(result, Exception) else TypeError(repr(result))


def _role(held: HeldPartition) -> Role:
    return Role.DATA if held.lagging else Role.TAIL
