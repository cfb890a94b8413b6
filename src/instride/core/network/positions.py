"""Where a partition begins: the group's committed offset, else where the reset policy says.

Laws
1. The reset policy applies only when the broker says "no offset" or "out of range", never after an error.
2. An answer applies only if the partition is still in the epoch and fetch number it was asked for in.
3. A question to the coordinator, or to a leader, asks for all that need it; one is under way at a time. If it fails as
   a whole, all of it is asked again, after one back-off.
4. An offset out of range is reset by a seek of the application side, once all before it was returned: the seek number
   must rise, since the new position may be a lower one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from instride.core.events import EARLIEST, LATEST, Parked, Positioned
from instride.core.group.ownership import Ownership
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator
from instride.core.network.held import HeldPartition, Phase
from instride.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError, error_for_code
from instride.records import TopicPartition
from instride.wire import api

__all__ = ["Positions"]

_MOVED = frozenset({15, 16})
_RETRY = frozenset({3, 5, 6, 7, 9, 13, 14, 15, 16, 56, 74, 75, 78, 88, 100})

Stamps = dict[TopicPartition, tuple[int, int]]


class Positions:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        coordinator: Coordinator,
        held: Callable[[], Mapping[TopicPartition, HeldPartition]],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._coordinator = coordinator
        self._held = held
        self._committed_backoff = context.backoff()
        self._asking_committed = False
        self._leader_backoff: dict[int, Backoff] = {}
        self._asking_leaders: set[int] = set()

    def poll(self, now: float) -> float:
        waiting = [each for each in self._held().values() if self._needs(each)]
        ready = [each for each in waiting if each.backoff.ready(now)]
        wake = min((each.backoff.ready_at for each in waiting if each.backoff.ready_at > now), default=float("inf"))
        committed = [each for each in ready if each.phase is Phase.FIND_COMMITTED]
        if committed:
            wake = min(wake, self._find_committed(committed, now))
        offsets = [each for each in ready if each.phase is Phase.FIND_OFFSET]
        if offsets:
            wake = min(wake, self._find_offsets(offsets, now))
        return wake

    def _needs(self, held: HeldPartition) -> bool:
        searching = held.phase in (Phase.FIND_COMMITTED, Phase.FIND_OFFSET)
        return searching and not held.asking and held.state is Ownership.OWNED

    # -- the committed offset

    def _find_committed(self, partitions: list[HeldPartition], now: float) -> float:
        """Returns when to be asked again."""
        if self._context.config.group_id is None:
            for held in partitions:
                self._reset(held, NoOffsetForPartitionError)
            return float("inf")
        if self._asking_committed or not self._coordinator.need():
            return float("inf")
        if not self._committed_backoff.ready(now):
            return self._committed_backoff.ready_at
        self._asking_committed = True
        stamps = _ask(partitions)
        request = api.OffsetFetch(
            group_id=self._context.config.group_id,
            partitions=tuple(sorted(stamps)),
            topic_ids=self._cluster.topic_ids({tp.topic for tp in stamps}),
        )
        self._coordinator.send(request, lambda result, then: self._committed(stamps, result, then), now)
        return float("inf")

    def _committed(self, stamps: Stamps, result: api.Answer | Exception, now: float) -> None:
        self._context.touch()
        self._asking_committed = False
        current = self._current(stamps)
        if isinstance(result, api.OffsetFetchAnswer) and result.error == 0:
            self._committed_backoff.succeeded()
            for held in current:
                found = result.offsets.get(held.partition)
                self._take_committed(held, found if found is not None else api.CommittedOffset(error=-1), now)
            return
        code = result.error if isinstance(result, api.OffsetFetchAnswer) else 0
        error = error_for_code(code) if code else result
        self._context.log(logging.INFO, f"looking up committed offsets failed: {error}")
        if code in _MOVED or not code:
            self._coordinator.lost(error)
        self._failed(self._committed_backoff, current, error, now)

    def _take_committed(self, held: HeldPartition, found: api.CommittedOffset, now: float) -> None:
        if found.error:
            self._retry_or_park(held, error_for_code(found.error), now)
        elif found.offset < 0:
            self._reset(held, NoOffsetForPartitionError)
        else:
            self._found(held, found.offset, found.leader_epoch)

    # -- the ends of the log

    def _find_offsets(self, partitions: list[HeldPartition], now: float) -> float:
        """Returns when to be asked again."""
        by_leader: dict[int, list[HeldPartition]] = {}
        for held in partitions:
            leader = self._cluster.leader(held.partition)
            if leader is None:
                held.backoff.failed(now)
                self._cluster.miss(held.partition, now)
            else:
                by_leader.setdefault(leader[0].node_id, []).append(held)
        wake = float("inf")
        for node_id, group in by_leader.items():
            backoff = self._leader_backoff.setdefault(node_id, self._context.backoff())
            if node_id in self._asking_leaders:
                continue
            if backoff.ready(now):
                self._ask_leader(node_id, group, now)
            else:
                wake = min(wake, backoff.ready_at)
        return wake

    def _ask_leader(self, node_id: int, partitions: list[HeldPartition], now: float) -> None:
        broker = self._cluster.brokers[node_id]
        self._asking_leaders.add(node_id)
        stamps = _ask(partitions)
        request = api.ListOffsets(
            timestamps={held.partition: held.timestamp for held in partitions},
            read_committed=self._context.config.isolation_level == "read_committed",
        )
        self._context.connections.send(
            ConnectionKey(Role.DATA, node_id),
            (broker.host, broker.port),
            request,
            lambda result, then: self._listed(node_id, stamps, result, then),
            now,
        )

    def _listed(self, node_id: int, stamps: Stamps, result: api.Answer | Exception, now: float) -> None:
        self._context.touch()
        self._asking_leaders.discard(node_id)
        current = self._current(stamps)
        if not isinstance(result, api.ListOffsetsAnswer):
            self._cluster.suspect(node_id)
            self._cluster.refresh()
            self._failed(self._leader_backoff[node_id], current, result, now)
            return
        self._leader_backoff[node_id].succeeded()
        for held in current:
            found = result.offsets.get(held.partition)
            if found is None or found.error:
                self._cluster.refresh()
                self._retry_or_park(held, error_for_code(found.error if found is not None else -1), now)
            else:
                self._found(held, found.offset, found.leader_epoch)

    # -- outcomes

    def out_of_range(self, held: HeldPartition) -> None:
        """A fetch found the offset outside of the log."""
        self._context.log(
            logging.WARNING, f"offset {held.offset} of {held.partition} is out of range: auto_offset_reset applies"
        )
        self._reset(held, OffsetOutOfRangeError)

    def _reset(self, held: HeldPartition, error: type[KafkaError]) -> None:
        policy = self._context.config.auto_offset_reset
        what = "no committed offset" if error is NoOffsetForPartitionError else f"no records at offset {held.offset}"
        if policy == "none":
            self.park(held, error(f'{held.partition} has {what}, and auto_offset_reset is "none"; seek to go on'))
        elif error is OffsetOutOfRangeError:
            self.park(held, error(f"{held.partition} has {what}"), reset=EARLIEST if policy == "earliest" else LATEST)
        else:
            held.find_offset(EARLIEST if policy == "earliest" else LATEST)
        self._context.touch()

    def _found(self, held: HeldPartition, offset: int, leader_epoch: int) -> None:
        held.found(offset, leader_epoch)
        self._context.deliver(
            Positioned(
                partition=held.partition,
                epoch=held.epoch,
                seek_number=held.seek_number,
                offset=offset,
                leader_epoch=leader_epoch,
            )
        )

    def _failed(self, backoff: Backoff, partitions: list[HeldPartition], error: object, now: float) -> None:
        """A question failed as a whole (law 3)."""
        backoff.failed(now)
        if not _is_passing(error):
            for held in partitions:
                self._retry_or_park(held, error, now)

    def _retry_or_park(self, held: HeldPartition, error: object, now: float) -> None:
        if _is_passing(error):
            held.backoff.failed(now)
        else:
            self.park(held, error if isinstance(error, Exception) else TypeError(repr(error)))

    def park(self, held: HeldPartition, error: Exception, *, reset: int | None = None) -> None:
        held.phase = Phase.PARKED
        # Who assigns by hand may be about to seek; who is not hears of it from poll.
        quiet = reset is not None or isinstance(error, NoOffsetForPartitionError)
        self._context.log(logging.INFO if quiet else logging.ERROR, f"{held.partition} is parked: {error}")
        self._context.deliver(
            Parked(
                partition=held.partition,
                epoch=held.epoch,
                fetch_number=held.fetch_number,
                error=error,
                reset=reset,
            )
        )

    def _current(self, stamps: Stamps) -> list[HeldPartition]:
        """Law 2. They may be asked for again."""
        table = self._held()
        current = [table[tp] for tp, stamp in stamps.items() if tp in table and table[tp].stamp == stamp]
        for held in current:
            held.asking = False
        return current


def _is_passing(error: object) -> bool:
    return isinstance(error, KafkaError) and (error.retriable or getattr(error, "code", 0) in _RETRY)


def _ask(partitions: list[HeldPartition]) -> Stamps:
    for held in partitions:
        held.asking = True
    return {held.partition: held.stamp for held in partitions}
