"""Where a partition begins: the group's committed offset, else where the reset policy says.

Laws
1. The reset policy applies only when the broker says "no offset", or when an offset is out of range and the ends of
   the log say so as well (`OutOfRange`), never after an error.
2. An answer applies only if the partition is still as it was asked for: epoch, fetch number, topic.
3. A question to the coordinator, or to a leader, asks for all that need it; one is under way at a time. If it fails as
   a whole, all of it is asked again, after one back-off.
4. A partition that failed is tried again, after 1 s, then ever longer, up to a minute: a right may be granted, a broker
   replaced, a batch be good on another replica. It is told each time that it fails, and when it has recovered. What
   only a seek can mend (`_NEEDS_SEEK`) waits for one.
5. An offset out of range, or of a log that was cut or made anew, is reset by a seek of the application side, once all
   before it was returned: the seek number must rise, since the new position may be a lower one. Where that leads is
   told, once: what lies between is skipped, or comes again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from instride.core.events import (
    BY_DURATION,
    EARLIEST,
    LATEST,
    Noticed,
    PartitionFailed,
    PartitionRecovered,
    Positioned,
)
from instride.core.group.ownership import Ownership
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.assigned_partition import AssignedPartition, Phase
from instride.core.network.backoff import Backoff
from instride.core.network.cluster import Cluster
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator
from instride.core.network.reset import reset_position, reset_timestamp
from instride.core.telemetry_lines import words
from instride.errors import (
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    error_for_code,
)
from instride.errors.broker import name_of_code
from instride.records import TopicPartition
from instride.telemetry import PositionReset, ResetCause
from instride.wire import api

__all__ = ["Positions", "Fences", "asked", "is_passing"]

_MOVED = frozenset({15, 16})
_UNKNOWN_TOPIC_ID = 100
_UNKNOWN_SERVER_ERROR = -1
_RETRY = frozenset({3, 5, 6, 7, 9, 13, 14, 15, 16, 56, 74, 75, 78, 88, 100})

_NEEDS_SEEK = (
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)  # and what is derived: a log that was cut, or made anew
_FIRST_TRY = 1.0
_LONGEST_TROUBLE = 60.0

Fences = dict[TopicPartition, tuple[int, int, int]]


class Positions:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        coordinator: Coordinator,
        assigned: Callable[[], Mapping[TopicPartition, AssignedPartition]],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._coordinator = coordinator
        self._held = assigned
        self._committed_backoff = context.backoff()
        self._asking_committed = False
        self._leader_backoff: dict[int, Backoff] = {}
        self._asking_leaders: set[int] = set()

    def poll(self, now: float) -> float:
        due = self._try_failed(now)
        waiting = [each for each in self._held().values() if self._needs(each)]
        ready = [each for each in waiting if each.backoff.ready(now)]
        wake = min((each.backoff.ready_at for each in waiting if each.backoff.ready_at > now), default=float("inf"))
        wake = min(wake, due)
        committed = [each for each in ready if each.phase is Phase.FIND_COMMITTED]
        if committed:
            wake = min(wake, self._find_committed(committed, now))
        offsets = [each for each in ready if each.phase is Phase.FIND_OFFSET]
        if offsets:
            wake = min(wake, self._find_offsets(offsets, now))
        return wake

    def _try_failed(self, now: float) -> float:
        """Law 4. Returns when the next one is due."""
        due = float("inf")
        for assigned in self._held().values():
            if assigned.phase is Phase.FAILED and assigned.trouble is not None and assigned.state is Ownership.OWNED:
                if assigned.trouble.ready(now):
                    assigned.try_again()
                    self._context.touch()
                else:
                    due = min(due, assigned.trouble.ready_at)
        return due

    def _needs(self, assigned: AssignedPartition) -> bool:
        searching = assigned.phase in (Phase.FIND_COMMITTED, Phase.FIND_OFFSET)
        return searching and not assigned.asking and assigned.state is Ownership.OWNED

    # -- the committed offset

    def _find_committed(self, partitions: list[AssignedPartition], now: float) -> float:
        """Returns when to be asked again."""
        if self._context.config.group_id is None:
            for assigned in partitions:
                self._uncommitted(assigned)
            return float("inf")
        if self._asking_committed or not self._coordinator.need():
            return float("inf")
        if not self._committed_backoff.ready(now):
            return self._committed_backoff.ready_at
        self._asking_committed = True
        fences = asked(partitions)
        request = api.OffsetFetch(
            group_id=self._context.config.group_id,
            partitions=tuple(sorted(fences)),
            topic_ids=self._cluster.topic_ids({tp.topic for tp in fences}),
        )
        self._coordinator.send(request, lambda result, then: self._committed(fences, result, then), now)
        return float("inf")

    def _committed(self, fences: Fences, result: api.Response | Exception, now: float) -> None:
        self._context.touch()
        self._asking_committed = False
        current = self.current(fences)
        if isinstance(result, api.OffsetFetchResponse) and result.error == 0:
            self._committed_backoff.succeeded()
            for assigned in current:
                found = result.offsets.get(assigned.partition)
                self._take_committed(assigned, found if found is not None else api.CommittedOffset(error=-1), now)
            return
        code = result.error if isinstance(result, api.OffsetFetchResponse) else 0
        why = f"committed offsets of group {self._context.config.group_id!r}: {name_of_code(code)}"
        error = error_for_code(code, why) if code else result
        self._context.log(logging.INFO, f"looking up committed offsets failed: {error}")
        if code in _MOVED or not code:
            self._coordinator.lost(error)
        self._failed(self._committed_backoff, current, error, now)

    def _take_committed(self, assigned: AssignedPartition, found: api.CommittedOffset, now: float) -> None:
        if found.error:
            if found.error == _UNKNOWN_TOPIC_ID:
                self._cluster.doubt({assigned.partition.topic})
            why = f"the committed offset of {assigned.partition}: {name_of_code(found.error)}"
            self._retry_or_fail(assigned, error_for_code(found.error, why), now)
        elif found.offset < 0:
            self._uncommitted(assigned)
        else:
            self._found(assigned, found.offset, found.leader_epoch)

    # -- the ends of the log

    def _find_offsets(self, partitions: list[AssignedPartition], now: float) -> float:
        """Returns when to be asked again."""
        by_leader: dict[int, list[AssignedPartition]] = {}
        for assigned in partitions:
            leader = self._cluster.leader(assigned.partition)
            if leader is None:
                assigned.backoff.failed(now)
                self._cluster.miss(assigned.partition, now)
            else:
                by_leader.setdefault(leader[0].node_id, []).append(assigned)
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

    def _ask_leader(self, node_id: int, partitions: list[AssignedPartition], now: float) -> None:
        broker = self._cluster.brokers[node_id]
        self._asking_leaders.add(node_id)
        fences = asked(partitions)
        config, wall_clock = self._context.config, self._context.wall_clock()
        leaders = {assigned.partition: self._cluster.leader(assigned.partition) for assigned in partitions}
        request = api.ListOffsets(
            timestamps={
                assigned.partition: reset_timestamp(config, assigned.timestamp, wall_clock) for assigned in partitions
            },
            leader_epochs={tp: leader[1] for tp, leader in leaders.items() if leader is not None},
            read_committed=self._context.config.isolation_level == "read_committed",
        )
        self._context.connections.send(
            ConnectionKey(Role.DATA, node_id),
            (broker.host, broker.port),
            request,
            lambda result, then: self._listed(node_id, fences, result, then),
            now,
        )

    def _listed(self, node_id: int, fences: Fences, result: api.Response | Exception, now: float) -> None:
        self._context.touch()
        self._asking_leaders.discard(node_id)
        current = self.current(fences)
        if not isinstance(result, api.ListOffsetsResponse):
            self._cluster.suspect(node_id)
            self._cluster.refresh()
            self._failed(self._leader_backoff[node_id], current, result, now)
            return
        self._leader_backoff[node_id].succeeded()
        for assigned in current:
            found = result.offsets.get(assigned.partition)
            code = found.error if found is not None else _UNKNOWN_SERVER_ERROR
            if found is None or code:
                self._cluster.refresh()
                self.not_listed(assigned, found, now)
            elif found.offset < 0 and assigned.timestamp == BY_DURATION:
                assigned.find_offset(LATEST)  # nothing was written since
            else:
                reset = assigned.timestamp != EARLIEST and not assigned.seek_number
                self._found(assigned, found.offset, found.leader_epoch, reset=reset)

    def not_listed(self, assigned: AssignedPartition, found: api.ListedOffset | None, now: float) -> None:
        """A leader that does not know what went wrong may know better the next time (as in Java)."""
        code = found.error if found is not None else _UNKNOWN_SERVER_ERROR
        error = error_for_code(code, f"the offset where {assigned.partition} begins: {name_of_code(code)}")
        if code == _UNKNOWN_SERVER_ERROR:
            self._context.log(logging.WARNING, str(error))
            assigned.backoff.failed(now)
        else:
            self._retry_or_fail(assigned, error, now)

    # -- outcomes

    def called_out_of_range(self, assigned: AssignedPartition) -> None:
        """By its leader: `OutOfRange` looks whether that is so."""
        assigned.phase = Phase.VERIFY_RANGE
        self._context.touch()

    def out_of_range(self, assigned: AssignedPartition, start: int, end: int) -> None:
        """Its log begins at `start` and ends at `end`, and does not have the next offset."""
        where = reset_position(self._context.config)
        missing = f"{assigned.partition} has no records at offset {assigned.offset}"
        why = f"{missing}: its log begins at {start} and ends at {end}"
        assigned.reset_cause = ResetCause.OUT_OF_RANGE
        if where is None:
            why += ', and auto_offset_reset is "none"; seek to go on'
        self.fail(assigned, OffsetOutOfRangeError(why), reset=where)
        self._context.touch()

    def truncated(self, assigned: AssignedPartition, cut: tuple[int, int] | None) -> None:
        """cut: the offset at which the log was cut, and the epoch that it ends there; None where that is unknown."""
        tp, offset = assigned.partition, cut[0] if cut is not None else None
        known = f"it is cut at offset {offset}" if cut is not None else "nobody knows where"
        error = LogTruncationError(
            f"the log of {tp} was cut behind offset {assigned.offset}, which was read already ({known}); seek to go on",
            topic=tp.topic,
            partition=tp.partition,
            offset=assigned.offset,
            divergent_offset=offset,
        )
        policy = reset_position(self._context.config)
        reset = policy if cut is None or policy is None else cut[0]
        assigned.reset_cause = ResetCause.TRUNCATED
        self.fail(assigned, error, reset=reset, leader_epoch=cut[1] if cut is not None else -1, void_from=offset)

    def topic_recreated(self, assigned: AssignedPartition, old: UUID) -> None:
        assigned.other_topic()
        self._context.touch()
        if assigned.phase in (Phase.FIND_COMMITTED, Phase.FIND_OFFSET):
            return  # nothing of the old one is known; what was asked for is asked for again
        tp = assigned.partition
        error = TopicRecreatedError(
            f"topic {tp.topic!r} was deleted and made again (its id was {old}, and is {assigned.topic_id}): offset "
            f"{assigned.offset} of partition {tp.partition} is of the old one; seek to go on",
            topic=tp.topic,
            partition=tp.partition,
            old_topic_id=old,
            topic_id=assigned.topic_id,
        )
        assigned.reset_cause = ResetCause.RECREATED
        self.fail(assigned, error, reset=reset_position(self._context.config))

    def _uncommitted(self, assigned: AssignedPartition) -> None:
        where = reset_position(self._context.config)
        if where is None:
            why = f'{assigned.partition} has no committed offset, and auto_offset_reset is "none"; seek to go on'
            self.fail(assigned, NoOffsetForPartitionError(why))
        else:
            assigned.find_offset(where)
        self._context.touch()

    def moved(self, assigned: AssignedPartition) -> None:
        """Where it goes on is known. If a reset led there, it is told: an event, a line of the log, and metrics."""
        if assigned.reset_from is None:
            return
        start, assigned.reset_from = assigned.reset_from, None
        event = PositionReset(
            at=self._context.now,
            partition=assigned.partition,
            epoch=assigned.epoch,
            cause=assigned.reset_cause,
            from_offset=start,
            to_offset=assigned.offset,
        )
        self._context.connections.meter.reset(event)
        self._context.log(*words(event))
        self._context.deliver(Noticed(event=event))

    def _found(self, assigned: AssignedPartition, offset: int, leader_epoch: int, *, reset: bool = False) -> None:
        assigned.found(offset, leader_epoch)
        self.moved(assigned)
        self.recovered(assigned)
        self._context.deliver(
            Positioned(
                partition=assigned.partition,
                epoch=assigned.epoch,
                seek_number=assigned.seek_number,
                offset=offset,
                leader_epoch=leader_epoch,
                reset=reset,
            )
        )

    def _failed(self, backoff: Backoff, partitions: list[AssignedPartition], error: object, now: float) -> None:
        """A question failed as a whole (law 3)."""
        backoff.failed(now)
        if not is_passing(error):
            for assigned in partitions:
                self._retry_or_fail(assigned, error, now)

    def _retry_or_fail(self, assigned: AssignedPartition, error: object, now: float) -> None:
        if is_passing(error):
            assigned.backoff.failed(now)
        else:
            self.fail(assigned, error if isinstance(error, Exception) else TypeError(repr(error)))

    def fail(
        self,
        assigned: AssignedPartition,
        error: Exception,
        *,
        reset: int | None = None,
        leader_epoch: int = -1,
        void_from: int | None = None,
    ) -> None:
        again = reset is None and not isinstance(error, _NEEDS_SEEK)
        assigned.fail(self._context.now, (assigned.trouble or self._trouble()) if again else None)
        # Of a reset `moved` tells. Who assigns by hand may be about to seek; who is not hears of it from poll.
        level = logging.INFO if isinstance(error, NoOffsetForPartitionError) else logging.ERROR
        level = logging.DEBUG if reset is not None else level
        self._context.log(level, f"{assigned.partition} has failed: {error}")
        self._context.deliver(
            PartitionFailed(
                partition=assigned.partition,
                epoch=assigned.epoch,
                fetch_number=assigned.fetch_number,
                error=error,
                reset=reset,
                leader_epoch=leader_epoch,
                void_from=void_from,
                tried_again=again,
            )
        )

    def recovered(self, assigned: AssignedPartition) -> None:
        """What it needed was answered well."""
        if assigned.trouble is None:
            return
        assigned.trouble, assigned.alone = None, False
        self._context.log(logging.INFO, f"{assigned.partition} has recovered")
        self._context.deliver(
            PartitionRecovered(partition=assigned.partition, epoch=assigned.epoch, fetch_number=assigned.fetch_number)
        )

    def _trouble(self) -> Backoff:
        return Backoff(_FIRST_TRY, _LONGEST_TROUBLE, self._context.random, together=True)

    def current(self, fences: Fences) -> list[AssignedPartition]:
        """Law 2. They may be asked for again."""
        table = self._held()
        current = [table[tp] for tp, stamp in fences.items() if tp in table and table[tp].stamp == stamp]
        for assigned in current:
            assigned.asking = False
        return current


def is_passing(error: object) -> bool:
    """Whether asking again may help."""
    return isinstance(error, KafkaError) and (error.retriable or getattr(error, "code", 0) in _RETRY)


def asked(partitions: list[AssignedPartition]) -> Fences:
    """They are asked for now, as they are."""
    for assigned in partitions:
        assigned.asking = True
    return {assigned.partition: assigned.stamp for assigned in partitions}
