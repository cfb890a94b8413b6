"""What a RangeConsumer does instead of fetching: ask how far its partitions' logs reach.

Laws
1. No record is fetched. A range begins where the last one ended, and ends at the high watermark (or, with
   isolation_level "read_committed", at the last stable offset).
2. What comes back under an older epoch or fetch number, or of a topic that was made anew since, is dropped.
3. A log that ends before the position: at once refresh the metadata, since the topic may be another one; if the next
   answer says the same, it is as if a fetch had been out of range.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from instride.core.events import LATEST, Fetched
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.held import HeldPartition
from instride.core.network.positions import Positions, Stamps
from instride.records import OffsetRange, TopicPartition
from instride.wire import api

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RangeChunk", "RangeFetcher"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeChunk:
    """Offsets that exist, as a chunk without records: its only "record" is the `OffsetRange`."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    leader_epoch: int = -1
    nbytes: int = 0

    @property
    def last_offset(self) -> int:
        return self.next_offset - 1

    def __len__(self) -> int:
        return self.next_offset - self.first_offset

    def split(self, count: int) -> tuple[RangeChunk, RangeChunk]:
        middle = self.first_offset + count
        return self._part(self.first_offset, middle), self._part(middle, self.next_offset)

    def _part(self, start: int, end: int) -> RangeChunk:
        return RangeChunk(
            topic=self.topic,
            partition=self.partition,
            first_offset=start,
            next_offset=end,
            leader_epoch=self.leader_epoch,
        )

    def records(self, *, epoch: int, seek_number: int) -> list[OffsetRange]:
        return [
            OffsetRange(
                topic=self.topic,
                partition=self.partition,
                start=self.first_offset,
                end=self.next_offset,
                epoch=epoch,
                seek_number=seek_number,
                leader_epoch=self.leader_epoch,
            )
        ]

    def to_arrow(self) -> pa.RecordBatch:
        raise TypeError("a RangeConsumer returns ranges of offsets, not records")


class RangeFetcher:
    """Not thread-safe: the network machine owns it. The same surface as `Fetcher`."""

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
        self._flying: set[int] = set()
        self._due: dict[int, float] = {}

    def end(self, now: float) -> None:
        """The consumer closes. There are no sessions."""

    def poll(self, now: float) -> float:
        wake = float("inf")
        by_leader: dict[int, list[HeldPartition]] = {}
        for held in self._held().values():
            if not held.fetchable:
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
            elif leader[0].node_id not in self._flying:
                by_leader.setdefault(leader[0].node_id, []).append(held)
        for node_id, partitions in by_leader.items():
            due = self._due.get(node_id, 0.0)
            if now >= due:
                self._ask(node_id, partitions, now)
            else:
                wake = min(wake, due)
        return wake

    def _ask(self, node_id: int, partitions: list[HeldPartition], now: float) -> None:
        broker = self._cluster.brokers[node_id]
        stamps = {held.partition: held.stamp for held in partitions}
        self._flying.add(node_id)
        request = api.ListOffsets(
            timestamps=dict.fromkeys(stamps, LATEST),
            leader_epochs={held.partition: self._leader_epoch(held) for held in partitions},
            read_committed=self._context.config.isolation_level == "read_committed",
        )
        self._context.connections.send(
            ConnectionKey(Role.DATA, node_id),
            (broker.host, broker.port),
            request,
            lambda result, then: self._answered(node_id, stamps, result, then),
            now,
        )

    def _leader_epoch(self, held: HeldPartition) -> int:
        leader = self._cluster.leader(held.partition)
        return leader[1] if leader is not None else -1

    def _answered(self, node_id: int, stamps: Stamps, result: api.Answer | Exception, now: float) -> None:
        self._flying.discard(node_id)
        self._due[node_id] = now + self._context.config.range_poll_interval
        self._context.touch()
        if not isinstance(result, api.ListOffsetsAnswer):
            self._context.log(logging.INFO, f"asking node {node_id} for the ends of its partitions failed: {result}")
            self._cluster.suspect(node_id)
            self._cluster.refresh()
            return
        table = self._held()
        for tp, listed in result.offsets.items():
            held = table.get(TopicPartition(*tp))
            if held is None or stamps.get(held.partition) != held.stamp or not held.awaits_records:
                continue
            if listed.error:
                self._cluster.refresh()
            elif 0 <= listed.offset < held.offset:
                self._beyond_the_end(held, now)
            else:
                held.corrupt_at = -1
                self._positions.recovered(held)
                if listed.offset > held.offset:
                    self._deliver(held, listed)

    def _beyond_the_end(self, held: HeldPartition, now: float) -> None:
        """Law 3."""
        if held.corrupt_at == held.offset:
            self._positions.called_out_of_range(held)
            return
        held.corrupt_at = held.offset
        held.backoff.failed(now)
        self._cluster.refresh()

    def _deliver(self, held: HeldPartition, listed: api.ListedOffset) -> None:
        chunk = RangeChunk(
            topic=held.partition.topic,
            partition=held.partition.partition,
            first_offset=held.offset,
            next_offset=listed.offset,
            leader_epoch=listed.leader_epoch,
        )
        held.offset, held.leader_epoch = chunk.next_offset, listed.leader_epoch
        held.backoff.succeeded()
        held.doubt.succeeded()
        held.records += len(chunk)
        self._context.deliver(
            Fetched(
                partition=held.partition,
                epoch=held.epoch,
                fetch_number=held.fetch_number,
                start=chunk.first_offset,
                chunk=chunk,  # type: ignore[arg-type]  # its record is a range
                next_offset=listed.offset,
                high_watermark=listed.offset,
            )
        )
