"""Where a partition is read: its committed offset, else where the reset policy leads; and if the log still has that.

Laws
1. The reset policy applies only when the broker says "no offset", when the ends of the log say too that an offset is
   out of range, or when the log was truncated or its topic recreated; never after an error.
2. A response applies only if the partition is still as it was when the request was sent: epoch, fetch number, topic.
3. A request to the coordinator, or to a leader, names all partitions that need it; one of a kind is in flight at a
   time. If it fails as a whole, all of it is sent again, after one back-off.
4. A partition that failed is tried again, after 1 s, then ever longer, up to a minute: a right may be granted, a broker
   replaced, a batch be good on another replica. The user hears each time that it fails, and when it has recovered. What
   only a seek can mend (`_NEEDS_SEEK`) waits for one.
5. An offset out of range, or of a truncated log or a recreated topic, is reset by a seek of the application side, once
   all before it was returned: the seek number must rise, since the new position may be a lower one. The user hears once
   where that leads: what lies between is skipped, or comes again.

Reset (`auto_offset_reset`)
6. "earliest" and "latest" are the ends of the log. By a duration (KIP-1106) it is the first record that was written
   within it, by the wall clock when the request is sent; where there is none, the end of the log. That end is asked for
   first: asked for afterwards, it could lie behind records that were written in between.

An offset that its leader calls out of range
7. The leader is asked where the log begins and where it ends, as any reader sees it (not "read_committed").
8. An offset from the beginning to the end, both included, is one of the log: the broker contradicts itself, and the
   offset is fetched again. Any other is reset, or is an error, as auto_offset_reset says.
9. The first look is at once. The next ones of a partition are spaced by a back-off that grows until records arrive
   from behind all offsets that were called out of range, or a seek: so a broker that repeats itself, or that tells of
   another log each time, costs little, also where it sends the same records again after each reset.

Validation (KIP-320), and topics that were recreated: deleted, and created again under the same name
10. A position that was read under an older leader epoch is validated at the new leader before anything is fetched. One
    without a known epoch cannot be, and one of the present epoch need not be.
11. A log that ends the position's epoch before the position was truncated there: reading goes on at that offset where
    a reset policy is set, else the user hears of it. Where the log knows no end, the reset policy applies.
12. A topic whose id has changed is another topic: an offset of the old one is never used in it, and no commit of it
    is sent any more. The reset policy applies, or the user hears of it: again, where the application names an offset
    of the old one again, as it does when the group gives a partition back (rule 8).
13. A broker that cannot be asked (before Kafka 2.3) is trusted.
14. Metadata that know an older leader epoch than the position's may name a broker that leads no more, without knowing
    it: its log may end before the position. Newer ones are awaited, for 5 s (law 4 of `Cluster`).
15. A position and its log diverge where the log is truncated below it, or the topic recreated. Who seeks before he was
    told of that (`SetPosition.divergences`) names an offset of the log as it was. Where no reset policy is set he is
    told all the same, and nothing goes on before the next seek. Where one is set, a seek in a truncated log stands, and
    so does one to an end of a recreated topic; any other offset there is reset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from uuid import UUID

from instride._core.events import (
    BY_DURATION,
    EARLIEST,
    LATEST,
    MissingOffsets,
    Noticed,
    PartitionFailed,
    PartitionRecovered,
    Positioned,
    PositionsFound,
    SetPosition,
)
from instride._core.network.assigned_partitions import AssignedPartition, AssignedPartitions, Phase
from instride._core.network.cluster import Cluster, LeaderRequests, list_offsets
from instride._core.network.connections import Backoff
from instride._core.network.context import Context
from instride._core.network.coordinator import Coordinator
from instride._core.ownership import Ownership
from instride._core.telemetry_lines import formatted
from instride._setting_parsing import reset_duration
from instride._wire import api
from instride.config import ConsumerConfig
from instride.errors import (
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
    UnsupportedVersionError,
    error_for_code,
)
from instride.errors.broker import name_of_code
from instride.errors.codes import COORDINATOR_MOVED, ErrorCode
from instride.records import TopicPartition
from instride.telemetry import PositionReset, ResetCause

__all__ = ["Fences", "Positions", "note_fetch", "unchanged"]

_NOTHING_KNOWN = api.CommittedOffset(error=ErrorCode.UNKNOWN_SERVER_ERROR)
# And what is derived from them: a truncated log, a recreated topic.
_NEEDS_SEEK = (NoOffsetForPartitionError, OffsetOutOfRangeError)
# Law 14, in seconds.
_NEWER_AWAITED = 5.0
_FIRST_TRY = 1.0
_LONGEST_TROUBLE = 60.0

Fences = dict[TopicPartition, tuple[int, int, int]]
_Offsets = dict[TopicPartition, int]


class Positions:
    """Not thread-safe: the network machine owns it.

    parting: of which partitions commits of an earlier assignment are outstanding, and until when that is awaited.
    """

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        coordinator: Coordinator,
        assigned: Callable[[], AssignedPartitions],
        parting: Callable[[float], Mapping[TopicPartition, float]],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._coordinator = coordinator
        self._assigned = assigned
        self._parting = parting
        self._committed_backoff = context.backoff()
        self._committed_in_flight = False
        self._finding = LeaderRequests(context, cluster)
        self._verifying = LeaderRequests(context, cluster)
        self._validating = LeaderRequests(context, cluster)
        # Law 14: since when a position is of a newer leader epoch than the metadata.
        self._ahead: dict[AssignedPartition, float] = {}
        self._ahead_backoff = context.backoff()
        # Law 6: the ends of logs, of which is asked next what was written within the duration. For which fence.
        self._ends: dict[TopicPartition, tuple[tuple[int, int, int], api.ListedOffset]] = {}
        # Of the response that is being read, to be told together.
        self._told: list[Positioned] = []
        # That all positions were compared with. While it is the newest, and all are fetched, the machine does not poll.
        self.metadata_version = -1

    def poll(self, now: float) -> float:
        """Returns when to be polled again."""
        return min(self._try_failed(now), self._find(now), self._verify_ranges(now), self._validate(now))

    def _try_failed(self, now: float) -> float:
        """Law 4. Returns when the next one is due."""
        due = float("inf")
        for assigned in self._assigned().in_phase(Phase.FAILED):
            if assigned.trouble is not None and assigned.state is Ownership.OWNED:
                if assigned.trouble.ready(now):
                    assigned.try_again()
                    self._context.touch()
                else:
                    due = min(due, assigned.trouble.ready_at)
        return due

    def _in_phase(self, phase: Phase) -> list[AssignedPartition]:
        """Those whose next request is to be sent."""
        found = self._assigned().in_phase(phase)
        return [each for each in found if not each.asking and each.state is Ownership.OWNED]

    def _find(self, now: float) -> float:
        waiting = [*self._in_phase(Phase.FIND_COMMITTED), *self._in_phase(Phase.FIND_OFFSET)]
        wake = min((each.backoff.ready_at for each in waiting if each.backoff.ready_at > now), default=float("inf"))
        ready = [each for each in waiting if each.backoff.ready_at <= now]
        committed = [each for each in ready if each.phase is Phase.FIND_COMMITTED]
        parting = self._parting(now) if committed else {}
        wake = min([wake, *(parting[each.partition] for each in committed if each.partition in parting)])
        committed = [each for each in committed if each.partition not in parting]
        if committed:
            wake = min(wake, self._find_committed(committed, now))
        offsets = [each for each in ready if each.phase is Phase.FIND_OFFSET]
        return min(wake, self._finding.poll(offsets, self._find_offsets, now))

    # -- the committed offset

    def _find_committed(self, partitions: list[AssignedPartition], now: float) -> float:
        """Returns when to be polled again."""
        if self._context.config.group_id is None:
            for assigned in partitions:
                self._uncommitted(assigned)
            return float("inf")
        if self._committed_in_flight or not self._coordinator.need():
            return float("inf")
        if not self._committed_backoff.ready(now):
            return self._committed_backoff.ready_at
        self._committed_in_flight = True
        fences = _requested(partitions)
        request = api.OffsetFetch(
            group_id=self._context.config.group_id,
            partitions=tuple(sorted(fences)),
            topic_ids=self._cluster.topic_ids({tp.topic for tp in fences}),
        )
        self._coordinator.send(request, lambda result, then: self._committed(fences, result, then), now)
        return float("inf")

    def _committed(self, fences: Fences, result: api.Response | Exception, now: float) -> None:
        self._context.touch()
        self._committed_in_flight = False
        current = self._current(fences)
        if isinstance(result, api.OffsetFetchResponse) and result.error == ErrorCode.NONE:
            self._committed_backoff.succeeded()
            for assigned in current:
                found = result.offsets.get(assigned.partition)
                self._take_committed(
                    assigned,
                    found if found is not None else api.CommittedOffset(error=ErrorCode.UNKNOWN_SERVER_ERROR),
                    now,
                )
            self._tell_found()
            return
        code = result.error if isinstance(result, api.OffsetFetchResponse) else 0
        why = f"committed offsets of group {self._context.config.group_id!r}: {name_of_code(code)}"
        error = error_for_code(code, why) if code else result
        self._context.log(logging.INFO, f"looking up committed offsets failed: {error}")
        # No code: no response came, so this coordinator may be gone.
        if code in COORDINATOR_MOVED or not code:
            self._coordinator.lost(error)
        # One request for all of them: so the whole group of partitions waits, not each one alone.
        self._committed_backoff.failed(now)
        self._all_failed(current, error, now)

    def _take_committed(self, assigned: AssignedPartition, found: api.CommittedOffset, now: float) -> None:
        if found.error:
            if found.error == ErrorCode.UNKNOWN_TOPIC_ID:
                self._cluster.doubt({assigned.partition.topic})
            # UNSTABLE_OFFSET_COMMIT too: a transaction of a producer has this offset, and ends sooner or later.
            why = f"the committed offset of {assigned.partition}: {name_of_code(found.error)}"
            self._retry_or_fail(assigned, error_for_code(found.error, why), now)
        elif found.offset < 0:
            self._uncommitted(assigned)
        else:
            self._found(assigned, found.offset, found.leader_epoch)

    # -- the ends of the log

    def _find_offsets(self, node_id: int, partitions: list[AssignedPartition], now: float) -> None:
        fences = _requested(partitions)
        config, wall_clock = self._context.config, self._context.wall_clock()
        timestamps = {
            each.partition: LATEST if self._wants_end(each) else _reset_timestamp(config, each.timestamp, wall_clock)
            for each in partitions
        }
        request = list_offsets(self._context, timestamps, self._finding.leader_epochs(partitions))
        self._finding.send(node_id, request, partial(self._offsets_found, node_id, fences), now)

    def _offsets_found(self, node_id: int, fences: Fences, result: api.Response | Exception, now: float) -> None:
        current = self._current(fences)
        if not isinstance(result, api.ListOffsetsResponse):
            self._finding.failed(node_id, now)
            self._all_failed(current, result, now)
            return
        self._finding.succeeded(node_id)
        for assigned in current:
            found = result.offsets.get(assigned.partition)
            code = found.error if found is not None else ErrorCode.UNKNOWN_SERVER_ERROR
            if found is None or code:
                self._not_listed(assigned, found, now)
            elif found.offset < 0 and (assigned.timestamp != BY_DURATION or self._wants_end(assigned)):
                self._not_listed(assigned, None, now)  # no log begins or ends there
            elif self._wants_end(assigned):
                self._ends[assigned.partition] = (assigned.fence, found)
            else:
                self._listed(assigned, found)
        self._tell_found()

    def _wants_end(self, assigned: AssignedPartition) -> bool:
        """Law 6: by a duration, and the end of the log is not known yet."""
        known = self._ends.get(assigned.partition)
        return assigned.timestamp == BY_DURATION and (known is None or known[0] != assigned.fence)

    def _listed(self, assigned: AssignedPartition, found: api.ListedOffset) -> None:
        _, end = self._ends.pop(assigned.partition, (None, found))
        if found.offset < 0:
            found = end  # nothing was written within the duration
        # Rule 18: the next owner would find a later end, so this start is to be committed. Of the beginning it finds
        # the same, and a seek is the user's own word.
        by_policy = not assigned.seek_number or assigned.reset_from is not None
        reset = assigned.timestamp != EARLIEST and by_policy
        self._found(assigned, found.offset, found.leader_epoch, reset=reset)

    def _not_listed(self, assigned: AssignedPartition, found: api.ListedOffset | None, now: float) -> None:
        code = found.error if found is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        self._refused(assigned, code, f"the offset where {assigned.partition} begins", now)

    # -- called out of range

    def called_out_of_range(self, assigned: AssignedPartition) -> None:
        """By its leader: the ends of the log are looked up before anything is reset."""
        assigned.phase = Phase.VERIFY_RANGE
        assigned.doubted = max(assigned.doubted, assigned.offset)
        self._context.touch()

    def _verify_ranges(self, now: float) -> float:
        wake, ready = float("inf"), []
        for assigned in self._in_phase(Phase.VERIFY_RANGE):
            ready_at = max(assigned.backoff.ready_at, assigned.doubt.ready_at)
            if now < ready_at:
                wake = min(wake, ready_at)
            else:
                ready.append(assigned)
        return min(wake, self._verifying.poll(ready, self._ask_for_starts, now))

    def _ask_for_starts(self, node_id: int, partitions: list[AssignedPartition], now: float) -> None:
        self._ask_for_ends(node_id, partitions, None, now)

    def _ask_for_ends(
        self, node_id: int, partitions: list[AssignedPartition], starts: _Offsets | None, now: float
    ) -> None:
        """starts: where the logs begin; None: that is what to ask for first, since a request asks for one end."""
        fences = _requested(partitions)
        request = api.ListOffsets(
            timestamps=dict.fromkeys(fences, EARLIEST if starts is None else LATEST),
            leader_epochs=self._verifying.leader_epochs(partitions),
        )
        self._verifying.send(node_id, request, partial(self._ends_found, node_id, fences, starts), now)

    def _ends_found(
        self, node_id: int, fences: Fences, starts: _Offsets | None, result: api.Response | Exception, now: float
    ) -> None:
        current = [assigned for assigned in self._current(fences) if assigned.state is Ownership.OWNED]
        if not isinstance(result, api.ListOffsetsResponse):
            self._verifying.failed(node_id, now)
            self._all_failed(current, result, now)
            return
        self._verifying.succeeded(node_id)
        found = {assigned.partition: self._end_of(assigned, result, now) for assigned in current}
        known = {tp: offset for tp, offset in found.items() if offset is not None}
        rest = [assigned for assigned in current if assigned.partition in known]
        if starts is None:
            # If the node has left the metadata meanwhile, the partitions wait in their phase, and the next leader is
            # asked.
            if rest and node_id in self._cluster.brokers:
                self._ask_for_ends(node_id, rest, known, now)
            return
        for assigned in rest:
            self._judge_range(assigned, starts[assigned.partition], known[assigned.partition], now)

    def _end_of(self, assigned: AssignedPartition, response: api.ListOffsetsResponse, now: float) -> int | None:
        listed = response.offsets.get(assigned.partition)
        if listed is not None and not listed.error and listed.offset >= 0:
            return listed.offset
        self._not_listed(assigned, listed if listed is not None and listed.error else None, now)
        return None

    def _judge_range(self, assigned: AssignedPartition, start: int, end: int, now: float) -> None:
        """Laws 8 and 9."""
        assigned.doubt_range(now)
        # The end itself is in range: there the next record will be written.
        if not start <= assigned.offset <= end:
            self._out_of_range(assigned, start, end)
            return
        assigned.in_range(end)
        # Without the log's end, which may grow: the same line again is one (`Context.log`).
        called = f"offset {assigned.offset} of {assigned.partition} was called out of range"
        why = f"{called}, and the log has it: fetched again"
        self._context.log(logging.WARNING, why)

    def _out_of_range(self, assigned: AssignedPartition, start: int, end: int) -> None:
        """Its log begins at `start` and ends at `end`, and does not have the next offset."""
        where = _reset_position(self._context.config)
        missing = f"{assigned.partition} has no records at offset {assigned.offset}"
        why = f"{missing}: its log begins at {start} and ends at {end}"
        assigned.reset_cause, assigned.log_begin = ResetCause.OUT_OF_RANGE, start
        if where is None:
            why += ', and auto_offset_reset is "none"; seek to go on'
        self.fail(assigned, OffsetOutOfRangeError(why), reset=where)
        self._context.touch()

    # -- validation

    def _validate(self, now: float) -> float:
        version, table = self._cluster.version, self._assigned()
        known, self.metadata_version = self.metadata_version, version
        unchecked = table.take_unchecked()
        # Only newer metadata concern all of them (rule 20).
        for assigned in unchecked if version == known else list(table.values()):
            self._compare_with_metadata(assigned)
        wake, ready, ahead = float("inf"), list[AssignedPartition](), dict[AssignedPartition, float]()
        for assigned in self._in_phase(Phase.VALIDATE):
            if self._is_ahead(assigned):
                ahead[assigned] = self._ahead.get(assigned, now)
            elif assigned.backoff.ready(now):
                ready.append(assigned)
            else:
                wake = min(wake, assigned.backoff.ready_at)
        self._ahead = ahead
        return min(wake, self._await_newer(now), self._validating.poll(ready, self._ask_for_epoch_ends, now))

    def _is_ahead(self, assigned: AssignedPartition) -> bool:
        leader = self._cluster.leader(assigned.partition)
        return leader is not None and 0 <= leader[1] < assigned.leader_epoch

    def _await_newer(self, now: float) -> float:
        """Law 14. Returns when to be polled again."""
        for assigned in [each for each, since in self._ahead.items() if now >= since + _NEWER_AWAITED]:
            del self._ahead[assigned]
            leader = self._cluster.leader(assigned.partition)
            assert leader is not None, "it knows an older epoch"
            self._valid(assigned, leader[1])
            self._context.touch()
        if not self._ahead:
            self._ahead_backoff.succeeded()
            return float("inf")
        if self._ahead_backoff.ready(now):
            self._ahead_backoff.failed(now)
            self._cluster.refresh()
        return min(min(self._ahead.values()) + _NEWER_AWAITED, self._ahead_backoff.ready_at)

    def _compare_with_metadata(self, assigned: AssignedPartition) -> None:
        """Laws 10 and 12."""
        topic_id = self._cluster.topic_id(assigned.partition.topic)
        if topic_id not in (assigned.topic_id, api.NO_TOPIC_ID):
            if assigned.topic_id != api.NO_TOPIC_ID:
                self._topic_recreated(assigned, topic_id)
                return
            assigned.topic_id = topic_id
        if assigned.phase is not Phase.FETCHING:
            return
        leader = self._cluster.leader(assigned.partition)
        if leader is None:
            return
        # An older leader epoch is no reason to validate again. But if the cluster believes it, the one under which the
        # position was validated may have been damaged on the way, and all later ones would seem to be older.
        if leader[1] <= assigned.validated:
            if leader[1] >= 0 and topic_id != api.NO_TOPIC_ID:  # without an id, metadata that lag are believed, too
                assigned.valid_under(leader[1])
            return
        if assigned.replica is not None or assigned.undecoded:
            # The new leader names a replica anew (KIP-392), and its log may differ from what is undecoded.
            assigned.replica, assigned.undecoded = None, ()
        # KIP-320: a new leader's log may be shorter, and so may the log of one which is none any more (law 14). Without
        # the last record's epoch there is nothing to compare.
        if assigned.leader_epoch not in (-1, leader[1]):
            assigned.phase = Phase.VALIDATE
            self._context.touch()
        else:
            assigned.valid_under(leader[1])

    def _ask_for_epoch_ends(self, node_id: int, partitions: list[AssignedPartition], now: float) -> None:
        fences, leader_epochs = _requested(partitions), self._validating.leader_epochs(partitions)
        request = api.OffsetForLeaderEpoch(
            epochs={assigned.partition: assigned.leader_epoch for assigned in partitions}, leader_epochs=leader_epochs
        )
        self._validating.send(node_id, request, partial(self._epoch_ends_found, node_id, fences, leader_epochs), now)

    def _epoch_ends_found(
        self,
        node_id: int,
        fences: Fences,
        leader_epochs: Mapping[api.Partition, int],
        result: api.Response | Exception,
        now: float,
    ) -> None:
        current = [assigned for assigned in self._current(fences) if assigned.phase is Phase.VALIDATE]
        if isinstance(result, api.OffsetForLeaderEpochResponse):
            self._validating.succeeded(node_id)
            for assigned in current:
                self._judge_epoch(assigned, leader_epochs[assigned.partition], result.ends[assigned.partition], now)
        # Law 13.
        elif isinstance(result, UnsupportedVersionError):
            for assigned in current:
                self._valid(assigned, leader_epochs[assigned.partition])
        else:
            self._not_validated(node_id, current, result, now)

    def _not_validated(self, node_id: int, current: list[AssignedPartition], result: object, now: float) -> None:
        self._context.log(logging.INFO, f"validating positions at node {node_id} failed: {result}")
        self._validating.failed(node_id, now)
        if isinstance(result, KafkaError) and not _is_passing(result):
            for assigned in current:
                self.fail(assigned, result)

    def _judge_epoch(self, assigned: AssignedPartition, leader_epoch: int, end: api.EpochEnd, now: float) -> None:
        """Law 11. leader_epoch: the leader's own, under which the position is valid if it is."""
        if end.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            why = f"not authorised to validate a position of topic {assigned.partition.topic!r}: it needs Describe"
            self.fail(assigned, TopicAuthorizationFailedError(why))
        elif end.error:
            self._refused(assigned, end.error, f"validating {assigned.partition}", now)
        # The leader knows no end of that epoch: so it cannot say where the logs part.
        elif end.leader_epoch < 0 or end.end_offset < 0:
            self._truncated(assigned, None)
        # KIP-320: of that epoch the leader's log ends before what was read, so what was read is there no more.
        elif end.end_offset < assigned.offset:
            self._truncated(assigned, (end.end_offset, end.leader_epoch))
        else:
            self._valid(assigned, leader_epoch)

    def _valid(self, assigned: AssignedPartition, leader_epoch: int) -> None:
        """Under the epoch that was requested: metadata that came meanwhile may name a newer one."""
        assigned.backoff.succeeded()
        assigned.divergence = None
        assigned.valid_under(leader_epoch)
        assigned.in_range(-1)

    def _truncated(self, assigned: AssignedPartition, end: tuple[int, int] | None) -> None:
        """end: the offset to which the log was truncated, and its epoch there; None where that is unknown."""
        tp, (offset, epoch) = assigned.partition, end if end is not None else (None, -1)
        known = f"to offset {offset}" if end is not None else "nobody knows where to"
        error = LogTruncationError(
            f"the log of {tp} was truncated ({known}), and was read up to offset {assigned.offset}; seek to go on",
            topic=tp.topic,
            partition=tp.partition,
            offset=assigned.offset,
            divergent_offset=offset,
        )
        policy = _reset_position(self._context.config)
        reset = policy if offset is None or policy is None else offset
        assigned.diverges(ResetCause.TRUNCATED)
        assigned.divergence = self.fail(assigned, error, reset=reset, leader_epoch=epoch, void_from=offset)

    def _topic_recreated(self, assigned: AssignedPartition, new: UUID) -> None:
        """Law 12."""
        tp, old = assigned.partition, assigned.topic_id
        assigned.other_topic(new)
        self._context.touch()
        if not assigned.is_refused:
            return  # no position in the old one is known; what was requested is requested again
        error = TopicRecreatedError(
            f"topic {tp.topic!r} was deleted and recreated (its id was {old}, and is {new}): offset "
            f"{assigned.offset} of partition {tp.partition} is of the old one; seek to go on",
            topic=tp.topic,
            partition=tp.partition,
            old_topic_id=old,
            topic_id=new,
        )
        assigned.diverges(ResetCause.RECREATED)
        assigned.divergence = self.fail(assigned, error, reset=_reset_position(self._context.config))

    # -- outcomes

    def _uncommitted(self, assigned: AssignedPartition) -> None:
        where = _reset_position(self._context.config)
        if where is None:
            why = f'{assigned.partition} has no committed offset, and auto_offset_reset is "none"; seek to go on'
            self.fail(assigned, NoOffsetForPartitionError(why))
        else:
            assigned.find_offset(where)
        self._context.touch()

    def move(self, assigned: AssignedPartition, event: SetPosition) -> None:
        """The application says where it goes on."""
        sought, divergence = event.seek_number > assigned.seek_number, assigned.divergence
        assigned.set_position(event)
        if sought and divergence is not None and _is_of_before(event, divergence):
            assigned.refuse_seek(is_of_another_topic=_is_of_another_topic(divergence))
        if divergence is not None and assigned.is_refused:
            # What said so before was of an older fetch number, and is dropped.
            self._fail(assigned, replace(divergence, fetch_number=event.fetch_number))
            return
        if sought:
            assigned.divergence = None
        if assigned.phase is Phase.FETCHING:
            self._tell_reset(assigned)

    def _tell_reset(self, assigned: AssignedPartition) -> None:
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
        self._context.log(*formatted(event))
        self._context.deliver(Noticed(event=event))

    def _found(self, assigned: AssignedPartition, offset: int, leader_epoch: int, *, reset: bool = False) -> None:
        stood = assigned.reset_from if reset else None
        assigned.found(offset, leader_epoch)
        self._tell_reset(assigned)
        self.recovered(assigned)
        self._told.append(
            Positioned(
                partition=assigned.partition,
                epoch=assigned.epoch,
                seek_number=assigned.seek_number,
                offset=offset,
                leader_epoch=leader_epoch,
                reset=reset,
                missing=None if stood is None else MissingOffsets(stood, assigned.log_begin),
            )
        )

    def _tell_found(self) -> None:
        """All of a response in one event: each one costs the application's thread more than what it says."""
        told = tuple(self._told)
        self._told.clear()
        if told:
            self._context.deliver(PositionsFound(positions=told) if len(told) > 1 else told[0])

    def _all_failed(self, partitions: list[AssignedPartition], error: object, now: float) -> None:
        """A request failed as a whole (law 3)."""
        if not _is_passing(error):
            for assigned in partitions:
                self._retry_or_fail(assigned, error, now)

    def _refused(self, assigned: AssignedPartition, code: int, what: str, now: float) -> None:
        """By its leader. One that does not know what went wrong may know better the next time (as in Java)."""
        error = error_for_code(code, f"{what}: {name_of_code(code)}")
        self._cluster.refresh()
        unknown = code == ErrorCode.UNKNOWN_SERVER_ERROR
        if unknown or error.retriable:
            self._context.log(logging.WARNING if unknown else logging.INFO, str(error))
            assigned.hold_back(now)
        else:
            self.fail(assigned, error)

    def _retry_or_fail(self, assigned: AssignedPartition, error: object, now: float) -> None:
        if _is_passing(error):
            assigned.hold_back(now)
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
    ) -> PartitionFailed:
        """What the application is told."""
        event = PartitionFailed(
            partition=assigned.partition,
            epoch=assigned.epoch,
            fetch_number=assigned.fetch_number,
            error=error,
            reset=reset,
            leader_epoch=leader_epoch,
            void_from=void_from,
            tried_again=reset is None and not isinstance(error, _NEEDS_SEEK),
            divergences=assigned.divergences,
        )
        self._fail(assigned, event)
        return event

    def _fail(self, assigned: AssignedPartition, event: PartitionFailed) -> None:
        assigned.fail(self._context.now, (assigned.trouble or self._trouble()) if event.tried_again else None)
        # Of a reset `move` tells. Where no offset is committed, who assigns by hand may be about to seek. If he does
        # not, his next poll raises the error.
        level = logging.INFO if isinstance(event.error, NoOffsetForPartitionError) else logging.ERROR
        level = logging.DEBUG if event.reset is not None else level
        self._context.log(level, f"{assigned.partition} has failed: {event.error}")
        self._context.deliver(event)

    def recovered(self, assigned: AssignedPartition) -> None:
        """What it needed had a good response."""
        if assigned.trouble is None:
            return
        assigned.trouble, assigned.alone = None, False
        self._context.log(logging.INFO, f"{assigned.partition} has recovered")
        self._context.deliver(
            PartitionRecovered(partition=assigned.partition, epoch=assigned.epoch, fetch_number=assigned.fetch_number)
        )

    def _trouble(self) -> Backoff:
        return Backoff(_FIRST_TRY, _LONGEST_TROUBLE, self._context.random, together=True)

    def _current(self, fences: Fences) -> list[AssignedPartition]:
        """Law 2. They may be requested again."""
        current = unchanged(self._assigned(), fences)
        for assigned in current:
            assigned.request_ended()
        return current


def _is_passing(error: object) -> bool:
    """Whether asking again may help."""
    return isinstance(error, KafkaError) and error.retriable


def _is_of_before(seek: SetPosition, divergence: PartitionFailed) -> bool:
    """Law 15: whether the seek is refused."""
    if seek.divergences >= divergence.divergences:
        return False
    return divergence.reset is None or (seek.offset >= 0 and _is_of_another_topic(divergence))


def _is_of_another_topic(divergence: PartitionFailed) -> bool:
    return isinstance(divergence.error, TopicRecreatedError)


def unchanged(table: Mapping[TopicPartition, AssignedPartition], fences: Fences) -> list[AssignedPartition]:
    """The partitions that have not changed since the request."""
    return [table[tp] for tp, fence in fences.items() if tp in table and table[tp].fence == fence]


def note_fetch(table: Mapping[TopicPartition, AssignedPartition], fences: Fences, error: str) -> None:
    """How a request of these ended; error: empty where the response was good."""
    for assigned in unchanged(table, fences):
        assigned.fetch_error = error


def _requested(partitions: list[AssignedPartition]) -> Fences:
    """They are requested now, as they are."""
    for assigned in partitions:
        assigned.request_sent()
    return {assigned.partition: assigned.fence for assigned in partitions}


def _reset_position(config: ConsumerConfig) -> int | None:
    """EARLIEST, LATEST or BY_DURATION; None where there is no policy."""
    if config.auto_offset_reset == "none":
        return None
    if config.auto_offset_reset == "earliest":
        return EARLIEST
    return LATEST if reset_duration(config.auto_offset_reset) is None else BY_DURATION


def _reset_timestamp(config: ConsumerConfig, position: int, wall_clock: float) -> int:
    """What ListOffsets asks for: milliseconds, or an end of the log. wall_clock: seconds since 1970."""
    if position != BY_DURATION:
        return position
    return max(0, int((wall_clock - (reset_duration(config.auto_offset_reset) or 0.0)) * 1000))
