"""The ends of its partitions' logs: that is all that a RangeConsumer requests from brokers.

Laws
1. No record is fetched. A range begins where the last one ended, and ends at the high watermark (or, with
   isolation_level "read_committed", at the last stable offset).
2. What comes back under an older epoch or fetch number, or of a topic that was recreated since, is dropped.
3. A turn looks at what has changed. It looks at all partitions only when the next request is due, after one that failed
   or named a partition that has (or a seek ended the back-off of one), when the leader of one more may be asked, and
   when the metadata have changed.
4. A log that ends before the position: at once refresh the metadata, since the topic may be another one; if the next
   response says the same, it is as if a fetch had been out of range. The last stable offset may lie before the position
   of a reader of committed records, for as long as a transaction is open: once the log was found to have the position,
   that is no news until the partition has another leader or leader epoch: a log is truncated only with a new one.
5. One range of a partition is found at a time. Until a poll has taken all of it, the log's end is not requested again.
   So the application side tells the network side at once what a poll takes (`waits_for_capacity`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from instride._core.events import LATEST, EndsFound, Fetched
from instride._core.network.assigned_partitions import AssignedPartition, AssignedPartitions, keep
from instride._core.network.cluster import Cluster, LeaderRequests, list_offsets
from instride._core.network.context import Context
from instride._core.network.positions import Fences, Positions, note_fetch
from instride._wire import api
from instride.errors.broker import name_of_code
from instride.records import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LogEnds", "RangeChunk"]


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

    @property
    def lets_go_of(self) -> int:
        return self.nbytes

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

    def record_runs(self, *, epoch: int, seek_number: int) -> Iterator[list[OffsetRange]]:
        yield self.records(epoch=epoch, seek_number=seek_number)

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

    def to_arrow(
        self, columns: Sequence[str] | None = None, *, binary_view: bool = False, dictionary: bool = False
    ) -> pa.RecordBatch:
        raise TypeError("a RangeConsumer returns ranges of offsets, not records")


class LogEnds:
    """Follows the ends of the logs. Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        positions: Positions,
        assigned: Callable[[], AssignedPartitions],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._positions = positions
        self._assigned = assigned
        self._requests = LeaderRequests(context, cluster)
        # Those that may be asked about, but for their back-off; whether to look at them now, or when (law 3).
        self._askable: dict[AssignedPartition, None] = {}
        self._look = False
        self._look_at = float("inf")
        self._metadata_version = 0
        # Law 4: of which place its range was looked up, and under which leader.
        self._looked_up: dict[AssignedPartition, tuple[tuple[int, int, int], int, tuple[api.Broker, int] | None]] = {}

    @property
    def waits_for_capacity(self) -> bool:
        """Law 5: whether a range may wait for its poll, or a partition is paused."""
        return len(self._askable) < len(self._assigned())

    def end(self, now: float) -> None:
        """The consumer closes. Brokers remember nothing of these requests."""

    def poll(self, now: float) -> float:
        """Law 3."""
        self._follow()
        known, self._metadata_version = self._metadata_version, self._cluster.version
        if self._look or now >= self._look_at or known != self._metadata_version:
            self._look = False
            self._look_at = self._look_at_all(now)
        return self._look_at

    def _follow(self) -> None:
        table = self._assigned()
        for assigned in table.changed_for_fetches():
            is_ours = table.get(assigned.partition) is assigned
            if not is_ours:
                self._looked_up.pop(assigned, None)
            askable = is_ours and assigned.fetchable and not assigned.records
            if askable:
                # Also of one that was askable before: a seek ends its back-off.
                ready_at = max(assigned.backoff.ready_at, self._requests.ready_at(assigned.partition))
                self._look_at = min(self._look_at, ready_at)
            keep(self._askable, assigned, wanted=askable)

    def _look_at_all(self, now: float) -> float:
        wake, ready = float("inf"), []
        for assigned in self._askable:
            if assigned.backoff.ready(now):
                ready.append(assigned)
            else:
                wake = min(wake, assigned.backoff.ready_at)
        return min(wake, self._requests.poll(ready, self._ask, now))

    def _ask(self, node_id: int, partitions: list[AssignedPartition], now: float) -> None:
        fences = {assigned.partition: assigned.fence for assigned in partitions}
        timestamps = dict.fromkeys(fences, LATEST)
        request = list_offsets(self._context, timestamps, self._requests.leader_epochs(partitions))
        self._requests.send(node_id, request, partial(self._on_response, node_id, fences), now)

    def _on_response(self, node_id: int, fences: Fences, result: api.Response | Exception, now: float) -> None:
        if not isinstance(result, api.ListOffsetsResponse):
            self._look = True
            self._context.log(logging.INFO, f"asking node {node_id} for the ends of its partitions failed: {result}")
            self._requests.failed(node_id, now)
            note_fetch(self._assigned(), fences, str(result))
            return
        # ListOffsets waits for nothing at the broker, as a fetch does: so the pace is kept here.
        next_at = now + self._context.config.range_poll_interval
        self._requests.succeeded(node_id, next_at=next_at)
        self._look_at = min(self._look_at, next_at)
        table, ends = self._assigned(), []
        for tp, listed in result.offsets.items():
            assigned = table.get(TopicPartition(*tp))
            if assigned is None or fences.get(assigned.partition) != assigned.fence or not assigned.awaits_records:
                continue
            if not listed.error and listed.offset == assigned.offset != assigned.told_end:
                ends.append(assigned.end_found(listed.offset))  # no range tells it
            if _is_known(assigned, listed):
                continue
            assigned.fetch_error = name_of_code(listed.error) if listed.error else ""
            self._look = self._look or listed.offset < assigned.offset
            if listed.error:
                assigned.hold_back(now)
                self._cluster.refresh()
            elif 0 <= listed.offset < assigned.offset:
                self._beyond_the_end(assigned, now)
            else:
                assigned.corrupt_at = -1
                assigned.backoff.succeeded()
                self._cluster.served(assigned.partition)
                self._positions.recovered(assigned)
                if listed.offset > assigned.offset:
                    self._deliver(assigned, listed)
        if ends:
            self._context.deliver(EndsFound(ends=tuple(ends)))

    def _beyond_the_end(self, assigned: AssignedPartition, now: float) -> None:
        """Law 4."""
        # The metadata are newer than the first such response: if the topic had been recreated, the fence would differ.
        if assigned.corrupt_at == assigned.offset:
            stable = self._context.config.isolation_level == "read_committed"
            looked_up = assigned.fence, assigned.offset, self._cluster.leader(assigned.partition)
            if not stable or self._looked_up.get(assigned) != looked_up:
                self._looked_up[assigned] = looked_up
                self._positions.called_out_of_range(assigned)
            return
        assigned.corrupt_at = assigned.offset
        assigned.hold_back(now)
        self._cluster.refresh()

    def _deliver(self, assigned: AssignedPartition, listed: api.ListedOffset) -> None:
        chunk = RangeChunk(
            topic=assigned.partition.topic,
            partition=assigned.partition.partition,
            first_offset=assigned.offset,
            next_offset=listed.offset,
            leader_epoch=listed.leader_epoch,
        )
        assigned.offset, assigned.leader_epoch = chunk.next_offset, listed.leader_epoch
        assigned.reached(chunk.next_offset)
        assigned.records += len(chunk)
        assigned.end_told(listed.offset)
        self._context.deliver(
            Fetched(
                partition=assigned.partition,
                epoch=assigned.epoch,
                fetch_number=assigned.fetch_number,
                start=chunk.first_offset,
                chunk=chunk,  # type: ignore[arg-type]  # its record is a range
                next_offset=listed.offset,
                high_watermark=listed.offset,
            )
        )


def _is_known(assigned: AssignedPartition, listed: api.ListedOffset) -> bool:
    """Most ends have not moved. To note them again would have all partitions looked at in the next turn."""
    failed = listed.error or assigned.fetch_error or assigned.corrupt_at >= 0 or assigned.trouble is not None
    return listed.offset == assigned.offset and not failed
