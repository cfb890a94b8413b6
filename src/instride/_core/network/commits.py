"""Commits: collected, sent one at a time, kept back and carried over while a rebalance refuses them.

Laws of sending (`Commits`)
1. One OffsetCommit is in flight for the group; what the application commits meanwhile goes with the next (aggregated).
2. The newest offset of a partition wins; who waits for an older one hears the newer one's result. Within an epoch and
   seek number what the broker accepted is never taken back, unless a commit says that it may (rule 15): an offset that
   is behind it is refused. What the broker refused is no bar. What it may have accepted, since it was transmitted and
   its response is missing or was no final one, is sent once more in place of a later commit that is behind it, until
   the broker accepts one that is as far, or that may go back, or finds its metadata too long. An older epoch never
   replaces a newer one.
3. A rebalance is no reason to refuse: while the broker accepts the present generation the commit is sent; from the Join
   response to the Sync response it is kept back, and sent with the new generation.
4. REBALANCE_IN_PROGRESS and, during a rebalance, ILLEGAL_GENERATION mean "not yet". In a stable group
   ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID mean that the membership is lost: that in which the commit was sent. Of the
   next one they say nothing.
5. Only partitions that are owned in the entry's epoch are sent, and nothing of a topic that was recreated since. The
   caller hears of every partition, at its deadline at the latest.
6. Nothing is sent without a lease.
7. A commit of a topic that does not exist any more ends with that error. The metadata must say so too, where anybody
   still follows the topic, and the coordinator for a while: one that has just started may not know its topics yet. The
   same holds for its response about a start (law 9). That the group has no offset is no word about the topic. Until
   then a commit names the id of the topic that its offset is of, where the broker goes by ids (Kafka 4.1), also when
   the metadata have lost it.
8. The work of a turn follows the partitions that wait, not the calls: of each partition one entry waits (rule 20).
   What is remembered of a partition goes with its assignment, once no call is open that was handed over before.
9. A start offset is sent only where no other commit of its epoch was accepted or waits, and the group has no
   offset from elsewhere (a transactional producer's, say): the coordinator is asked first, and again where the start
   cannot be sent then (but for a back-off), or must be sent again. Where its response cannot be read it is asked once
   more, not for ever: the revoke waits. A start bars none (rule 18). If a reset led to it, what was committed before it
   counts for nothing, where the log did not have that: from there the next owner would be reset as well, and to a later
   end. Where the log was truncated since (`MissingOffsets.cut`), retention may have taken the place where the next
   owner would begin. Then the leader is asked, not for long, where the log begins. If that is further, it is committed:
   nobody knows what of the rest is finished. An own commit without a leader epoch that lies behind the truncation
   counts for nothing, since nobody would notice that: where the log was truncated is committed.
10. A commit for which no call waits any more is not sent, but for one of a partition that completes its
    revoke: that is tried again until the deadline of the revoke, since the next owner would repeat what was finished.
11. A request is of limited length, and the rest goes with the next: a coordinator writes a request as one batch of its
    log, and refuses all of one that is larger than a batch may be (Kafka 4.3: with UNKNOWN_SERVER_ERROR).

Laws of the results (`Waiters`, rule 15)
W1. Each call ends once: when all of its partitions are settled, at its deadline at the latest. One that waits for some
    keeps no other's result back: what became of those is told at once, and again with the end.
W2. A result is true of the group: a partition is committed only where the broker accepted this very offset. A later
    one of the same assignment and seek overtook it; one that was committed earlier and is further refuses it; a commit
    of another assignment or seek is stale. A call for several partitions ends with what the group has at the end.
W3. A call raises what its user must see: a refusal, the time-out, and a commit of which nothing is committed since it
    is stale. What a ledger, auto-commit or the positions name may be stale or overtaken in part: the result says so.
    Of several refusals it raises too long a metadata first: only the caller can mend that, and no later commit may say
    so while another partition of it is refused for good.
W4. Nothing here walks over all waiters but their end: an outage gathers tens of thousands of them (rule 20).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from uuid import UUID

from instride._core.events import EARLIEST, CallCompleted, Commit, MissingOffsets, PartlyCommitted
from instride._core.network.cluster import MISSING_GRACE, Cluster, by_leader, list_offsets, send_to_leader
from instride._core.network.connections import NotSentError
from instride._core.network.context import Context
from instride._core.network.coordinator import Coordinator
from instride._core.network.group import Membership
from instride._wire import api
from instride.commits import CommitEntry, CommitResult
from instride.errors import (
    CommitFailedError,
    CommitOvertakenError,
    CommitRewindError,
    KafkaError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    ProtocolError,
    RebalanceInProgressError,
    StaleCommitError,
    error_for_code,
)
from instride.errors.codes import COORDINATOR_MOVED, ErrorCode
from instride.records import TopicPartition

__all__ = ["Commits", "Waiter", "Waiters", "abandoned", "final_error", "told"]

# -- results

# Fewer deadlines of calls that have ended are not worth a new heap.
_FEW = 64


@dataclass(slots=True, kw_only=True, eq=False)
class Waiter:
    """A call whose commit has no result yet.

    behind: of partitions where a commit before this one names a later offset, that offset.
    moved: of starts, what was committed in their place.
    number: of this call among all, in the order in which they were handed over.
    told: how many of the results, which come in order, the application knows already.
    """

    event: Commit
    number: int
    waiting: set[TopicPartition]
    results: dict[TopicPartition, KafkaError | None]
    told: int
    behind: dict[TopicPartition, int] = field(default_factory=dict)
    moved: dict[TopicPartition, CommitEntry] = field(default_factory=dict)


class Waiters:
    """Not thread-safe: the network machine owns it. accepted: what the broker accepted last, as it is at any time."""

    def __init__(self, context: Context, accepted: Mapping[TopicPartition, CommitEntry]) -> None:
        self._context = context
        self._accepted = accepted
        self._by_call: dict[int, Waiter] = {}
        # How many there were.
        self.added = 0
        # Those that do not wait for a rebalance.
        self._impatient: dict[int, Waiter] = {}
        # Those of which a partition was settled since the application was told.
        self._untold: dict[int, Waiter] = {}
        # Deadline and call; of calls that have their response as well, until they come to the top or are too many.
        self._deadlines: list[tuple[float, int]] = []

    def add(self, event: Commit) -> Waiter:
        waiter = Waiter(
            event=event,
            number=self.added,
            waiting=set(event.entries),
            results=dict(event.dropped),
            told=len(event.dropped),
        )
        self.added += 1
        self._by_call[event.call] = waiter
        if not event.carry_over:
            self._impatient[event.call] = waiter
        if len(self._deadlines) > 2 * len(self._by_call) + _FEW:
            self._deadlines = [each for each in self._deadlines if each[1] in self._by_call]
            heapify(self._deadlines)
        heappush(self._deadlines, (event.deadline, event.call))
        return waiter

    def settle(self, waiter: Waiter, partition: TopicPartition, error: KafkaError | None) -> None:
        """error: None where the broker accepted this very offset."""
        waiter.waiting.discard(partition)
        waiter.results[partition] = error
        if waiter.waiting:
            self._untold[waiter.event.call] = waiter
        self.end_if_done(waiter)

    def end_if_done(self, waiter: Waiter) -> None:
        call = waiter.event.call
        if not waiter.waiting and self._by_call.pop(call, None) is not None:
            self._impatient.pop(call, None)
            for tp, error in waiter.results.items() if len(waiter.results) > 1 else ():
                waiter.results[tp] = _by_now(tp, waiter, error, self._accepted.get(tp))
            self._context.deliver(_completed(waiter, waiter.results))

    def tell(self) -> None:
        """W1, of calls that wait still, once all is settled that is settled at this moment."""
        untold, self._untold = self._untold, {}
        parts = tuple(_part(waiter) for waiter in untold.values() if waiter.waiting)
        if parts:
            self._context.deliver(PartlyCommitted(calls=parts))

    def impatient(self) -> list[Waiter]:
        return list(self._impatient.values())

    def oldest(self) -> int:
        """The number of the first one that has not ended; of the next one, if all have."""
        return next((waiter.number for waiter in self._by_call.values()), self.added)

    def everybody(self) -> list[Waiter]:
        return list(self._by_call.values())

    def due(self, now: float) -> Iterator[Waiter]:
        """Those whose deadline has come, each once."""
        while self._deadlines and now >= self._deadlines[0][0]:
            _, call = heappop(self._deadlines)
            if call in self._by_call:
                yield self._by_call[call]

    def next_deadline(self) -> float:
        while self._deadlines and self._deadlines[0][1] not in self._by_call:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else float("inf")


def told(partition: TopicPartition, waiter: Waiter, accepted: CommitEntry) -> KafkaError | None:
    """W2: what a waiter hears of a partition of which the broker accepted `accepted`."""
    own = waiter.moved.get(partition, waiter.event.entries[partition])
    if own == accepted:
        return None
    if (own.epoch, own.seek_number) != (accepted.epoch, accepted.seek_number):
        return StaleCommitError(
            f"offset {own.offset} of {partition} was not committed: the partition was assigned anew, or sought "
            f"elsewhere, since; the group has {accepted.offset}"
        )
    behind = waiter.behind.get(partition)
    return _overtaken(partition, own, accepted, refused=behind is not None and accepted.offset >= behind)


def _by_now(
    partition: TopicPartition, waiter: Waiter, error: KafkaError | None, accepted: CommitEntry | None
) -> KafkaError | None:
    """What was true when the partition was settled, as it is now that the last one is."""
    if accepted is None or not (error is None or isinstance(error, CommitOvertakenError)):
        return error
    own = waiter.event.entries[partition]
    if _place(accepted) < _place(own):
        return error  # a start is never kept as accepted, and what was is of an earlier assignment or seek
    if own == accepted:
        return None
    refused = isinstance(error, CommitRewindError) and own.offset < accepted.offset
    return _overtaken(partition, own, accepted, refused=refused)


def _overtaken(partition: TopicPartition, own: CommitEntry, accepted: CommitEntry, *, refused: bool) -> KafkaError:
    if refused:
        why = "was not committed; seek first, or commit with allow_rewind=True, if it is to go back"
    else:
        why = "was overtaken by a later commit"
    kind = CommitRewindError if refused else CommitOvertakenError
    return kind(
        f"offset {own.offset} of {partition} {why}: the group has {accepted.offset}",
        offset=own.offset,
        committed=accepted.offset,
    )


def _part(waiter: Waiter) -> CallCompleted:
    news = dict(islice(waiter.results.items(), waiter.told, None))
    waiter.told = len(waiter.results)
    return _completed(waiter, news)


def _completed(waiter: Waiter, results: Mapping[TopicPartition, KafkaError | None]) -> CallCompleted:
    event, moved = waiter.event, waiter.moved
    committed = {tp: moved.get(tp, event.entries[tp]) for tp, error in results.items() if error is None}
    result = CommitResult(
        committed={tp: entry.to_offset_and_metadata() for tp, entry in committed.items()},
        not_committed={tp: error for tp, error in results.items() if error is not None},
    )
    return CallCompleted(call=event.call, result=result, error=_raised(event, result), committed=results)


def _raised(event: Commit, result: CommitResult) -> KafkaError | None:
    """W3."""
    refusals = [
        error
        for tp, error in result.not_committed.items()
        if tp not in event.dropped and not _is_only_told(error, event)
    ]
    if refusals:
        return next((each for each in refusals if isinstance(each, OffsetMetadataTooLargeError)), refusals[0])
    overtaken = [error for error in result.not_committed.values() if isinstance(error, CommitOvertakenError)]
    nothing = result.not_committed and not result.committed and not overtaken
    return next(iter(result.not_committed.values())) if nothing else None


def _is_only_told(error: KafkaError, event: Commit) -> bool:
    if event.by_hand:
        return isinstance(error, CommitOvertakenError) and not isinstance(error, CommitRewindError)
    return isinstance(error, CommitOvertakenError | StaleCommitError)


# -- errors


_NOT_A_MEMBER = "this consumer is no longer a member of the group; process less per poll, or raise max_poll_interval"
_HAS_MEMBERS = (
    "the group has members, and takes commits of these alone; use another group_id with assign(), or subscribe()"
)


def abandoned(tp: TopicPartition, commit: CommitEntry, why: str, *, unanswered: bool = False) -> StaleCommitError:
    """It is lost, revoked, or was sought elsewhere since. unanswered: the broker may have accepted it all the same."""
    what = "was not committed:"
    if unanswered:  # or one that it went with was
        what = "may not have been committed: a commit of the partition had no final response, and"
    return StaleCommitError(f"offset {commit.offset} of {tp} {what} {why}")


def final_error(tp: TopicPartition, commit: CommitEntry, code: int, *, member: bool = True) -> KafkaError:
    """What a broker's code says that no retry mends. member: a member of the group committed it, not an assign()."""
    if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
        why = _NOT_A_MEMBER if member else _HAS_MEMBERS
        return CommitFailedError(f"offset {commit.offset} of {tp} was not committed: {why}")
    return error_for_code(code, f"offset {commit.offset} of {tp} was not committed (error code {code})")


# -- sending

# As in Java, a time-out of the commit's write too: the coordinator's log may have another leader by now.
_REDISCOVER = COORDINATOR_MOVED | {ErrorCode.REQUEST_TIMED_OUT}
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_FENCED = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_NOTHING_KNOWN = api.CommittedOffset(error=ErrorCode.UNKNOWN_SERVER_ERROR)
# Law 9, in seconds: a release and a close wait for it, but never more than half of their own time.
_LEADER_AWAITED = 1.0
_ELSEWHERE = "committed by another"
_NOT_OWNED = "it is not this consumer's any more, or was sought elsewhere, or its topic was recreated"
# These say nothing of the commit itself: it is sent again as it is.
_RETRY = _REDISCOVER | _GONE | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

# Law 11: half of what a batch may have at a broker's default settings (message.max.bytes).
_MOST_BYTES = 512 << 10
# Of an offset in the coordinator's log, besides its texts: numbers, versions, lengths, a topic's id, the record's own.
_BYTES_OF_AN_OFFSET = 100


@dataclass(slots=True, kw_only=True, eq=False)
class _Entry:
    """What of one partition is to be committed next, and who wants to hear of it, by call.

    rewind: it may lie behind what the group has. start: nobody's work, but where the partition began (law 9).
    free: of a start: the membership, as of when the coordinator was asked, in which the group has no offset of the
    partition, or one of `missing`: after a reset, what the log did not have. Of a later one that says nothing.
    unanswered: it was transmitted before, and the response was missing or no final one.
    unreadable: of a start: the coordinator was asked, and its response could not be read.
    doubted: of a start: where the next owner would begin, which the log may not have; -1: it has. Since `doubted_since`
    its leader is asked; `asked_of`: by which version of the metadata. own: what of this member is known in it.
    """

    commit: CommitEntry
    rewind: bool
    start: bool
    waiters: dict[int, Waiter]
    free: tuple[int, int, int] | None = None
    missing: MissingOffsets | None = None
    unanswered: bool = False
    unreadable: bool = False
    doubted: int = -1
    doubted_since: float = 0.0
    own: CommitEntry | None = None
    asked_of: int = -1


@dataclass(slots=True, kw_only=True)
class _InFlightCommit:
    """member: the membership's number. A static member may join anew under the same generation (KIP-814).
    transmitted: it was put on its connection: from then on the broker may have it.
    """

    entries: dict[TopicPartition, _Entry]
    member: int
    generation: int
    syncs: int
    transmitted: bool = False

    def note_transmitted(self) -> None:
        self.transmitted = True


class Commits:
    """Not thread-safe: the network machine owns it.

    holds: whether what speaks of this partition, epoch and seek number may be committed.
    topic_id: that of the topic which a partition's offsets are of in an epoch; NO_TOPIC_ID where none is known.
    completes: whether the revoke of this partition is completing; revoked_by: how long that waits for its commits.
    group_refused: hears of an error code by which the group's coordinator refused a commit, and when; returns the code
    that it takes it for.
    """

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        coordinator: Coordinator,
        *,
        membership: Membership,
        holds: Callable[[TopicPartition, int, int], bool],
        topic_id: Callable[[TopicPartition, int], UUID],
        completes: Callable[[TopicPartition], bool],
        revoked_by: Callable[[TopicPartition], float],
        group_refused: Callable[[int, float], int],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._coordinator = coordinator
        self._membership = membership
        self._holds = holds
        self._topic_id = topic_id
        self._completes = completes
        self._revoked_by = revoked_by
        # The deadline of a close or an unsubscribe that is under way, or to come.
        self.end_by = float("inf")
        self._group_refused = group_refused
        self._backoff = context.backoff()
        self._queued: dict[TopicPartition, _Entry] = {}
        # Law 9: until it is known that nothing else was committed of the partition, nor waits.
        self._starts: dict[TopicPartition, _Entry] = {}
        self._lookup_in_flight = False
        self._sent: _InFlightCommit | None = None
        # What the broker accepted last of each partition.
        self._accepted: dict[TopicPartition, CommitEntry] = {}
        # Law 2: the furthest of those that it may have accepted.
        self._doubtful: dict[TopicPartition, CommitEntry] = {}
        self._waiters = Waiters(context, self._accepted)
        # Law 7: in which epoch, and since when, the coordinator has not known a partition.
        self._unknown_since: dict[TopicPartition, tuple[int, float]] = {}
        # Law 8: partitions whose assignment has ended, their epochs, and how many calls there were by then.
        self._ended: deque[tuple[TopicPartition, int, int]] = deque()
        # Commits wait until more syncs than these had their response (law 4).
        self._deferred_until = -1
        # How many refusals of the coordinator's (`Coordinator.refusals`) commits have ended with.
        self._refusals = 0

    # -- what others ask

    def outstanding(self, partition: TopicPartition) -> bool:
        """Whether a commit of it has no response yet."""
        return partition in self._queued or partition in self._starts or self.in_flight(partition)

    def outstanding_epochs(self, partition: TopicPartition) -> set[int]:
        """Those of its commits that have no response yet."""
        pending = (self._in_flight(partition), self._queued.get(partition), self._starts.get(partition))
        return {entry.commit.epoch for entry in pending if entry is not None}

    def in_flight(self, partition: TopicPartition) -> bool:
        return self._in_flight(partition) is not None

    def _in_flight(self, partition: TopicPartition) -> _Entry | None:
        return self._sent.entries.get(partition) if self._sent is not None else None

    def anything_outstanding(self) -> bool:
        return bool(self._queued) or bool(self._starts) or self._sent is not None

    def deferred(self) -> bool:
        """Whether a commit waits for the next sync."""
        return bool(self._queued or self._starts) and self._waits_for_sync()

    def _waits_for_sync(self) -> bool:
        """Without a membership (by assign, say, after a subscription that ended) there is no sync to wait for."""
        return self._deferred_until >= self._membership.syncs and self._membership.generation >= 0

    def abandon(self, partition: TopicPartition, why: str) -> None:
        """What is queued for the partition is not sent any more. What is in flight gets its response."""
        for table in (self._queued, self._starts):
            entry = table.pop(partition, None)
            if entry is not None:
                self._abandon(partition, entry, why)

    def assignment_ended(self, partition: TopicPartition, epoch: int) -> None:
        """What is remembered of it is of no use to a later one (law 8)."""
        self._ended.append((partition, epoch, self._waiters.added))

    def close(self, error: KafkaError) -> None:
        """The consumer has closed: who waits still hears of it now."""
        for waiter in self._waiters.everybody():
            self._give_up(waiter, error)

    # -- handing over

    def add(self, event: Commit, now: float) -> None:
        waiter = self._waiters.add(event)
        for tp, commit in event.entries.items():
            self._queue(tp, commit, waiter)
        if not event.carry_over and self._membership.sync_pending:
            self._refuse(waiter, "a rebalance is under way")
        self._waiters.end_if_done(waiter)
        self._context.touch()

    def _queue(self, tp: TopicPartition, commit: CommitEntry, waiter: Waiter) -> None:
        event = waiter.event
        if not self._holds(tp, commit.epoch, commit.seek_number):
            self._waiters.settle(waiter, tp, abandoned(tp, commit, _NOT_OWNED))
            return
        in_flight, queued = self._in_flight(tp), self._queued.get(tp)
        if queued is None and in_flight is not None and in_flight.commit == commit:
            in_flight.waiters[event.call] = waiter  # a ledger offers what is in flight until it has its response
            return
        # Not merged: the older assignment is over, and whoever committed in it must hear that, not the newer result.
        if queued is not None and queued.commit.epoch < commit.epoch:
            self.abandon(tp, "the partition was assigned anew")
        self._note_what_is_further(tp, commit, waiter)
        entry = _of(tp, waiter)
        table = self._starts if event.starts else self._queued
        table[tp] = _merged(table[tp], entry) if tp in table else entry

    def _note_what_is_further(self, tp: TopicPartition, commit: CommitEntry, waiter: Waiter) -> None:
        if waiter.event.allow_rewind:
            return
        pending = (self._in_flight(tp), self._queued.get(tp))
        before = [entry.commit for entry in pending if entry is not None and not entry.start]
        before += [table[tp] for table in (self._accepted, self._doubtful) if tp in table]
        further = [each.offset for each in before if _older(commit, each)]
        if further:
            waiter.behind[tp] = min(further)

    # -- sending

    def poll(self, now: float) -> float:
        self._forget_what_ended()
        self._refuse_the_impatient()
        wake = min(self._send_queued(now), self._ask_about_starts(now))
        self._expire(now)  # a call without any time is a call all the same
        self._waiters.tell()
        return min(wake, self._waiters.next_deadline())

    def _forget_what_ended(self) -> None:
        """Law 8. In the order of their ends: none is looked at before its turn."""
        while self._ended and self._ended[0][2] <= self._waiters.oldest():
            tp, epoch, _ = self._ended[0]
            if any(each <= epoch for each in self.outstanding_epochs(tp)):
                return
            self._ended.popleft()
            for table in (self._accepted, self._doubtful):
                if tp in table and table[tp].epoch <= epoch:
                    del table[tp]
            if self._unknown_since.get(tp, (epoch + 1, 0.0))[0] <= epoch:
                del self._unknown_since[tp]

    def _send_queued(self, now: float) -> float:
        """Returns when to try again, where only time has to pass."""
        if self._sent is None:
            self._queue_starts(now)
            self._drop_hopeless()
        if self._sent is not None or not self._queued:
            return float("inf")
        if not self._coordinator.need():
            self._settle_refused()
        elif self._may_send(now):
            if not self._backoff.ready(now):
                return self._backoff.ready_at
            self._send(now)
        return float("inf")

    def _send(self, now: float) -> None:
        # From here on the entries are in flight: nothing of them is queued, so nothing goes out twice at once (law 1).
        (entries, topic_ids), member = self._take_what_fits(), self._membership
        sent = _InFlightCommit(entries=entries, member=member.number, generation=member.generation, syncs=member.syncs)
        self._sent = sent
        request = api.OffsetCommit(
            group_id=self._context.config.group_id or "",
            generation=sent.generation,
            member_id=member.member_id,
            # Not without a member id (KAFKA-14201): there is no membership then.
            group_instance_id=self._context.config.group_instance_id if member.member_id else None,
            offsets={
                tp: api.OffsetToCommit(
                    offset=entry.commit.offset,
                    leader_epoch=entry.commit.leader_epoch,
                    metadata=entry.commit.metadata,
                )
                for tp, entry in entries.items()
            },
            topic_ids=topic_ids,
        )
        self._coordinator.send_if(
            lambda then: self._may_still_go(sent, then),
            request,
            lambda result, then: self._on_response(sent, result, then),
            now,
            on_sent=sent.note_transmitted,
        )

    def _take_what_fits(self) -> tuple[dict[TopicPartition, _Entry], dict[str, UUID]]:
        """Law 11. What waits longest is first; one is sent however large it is. With them the ids of their topics.

        Law 7. By name, a topic that is recreated while a commit is on its way would take offsets of the old one. A
        request names one id of a topic: what is of another topic of the same name waits for the next request.
        """
        taken: dict[TopicPartition, _Entry] = {}
        topic_ids: dict[str, UUID] = {}
        group = len((self._context.config.group_id or "").encode())
        free = _MOST_BYTES
        for tp, entry in self._queued.items():
            topic_id = self._topic_id(tp, entry.commit.epoch)
            if topic_ids.get(tp.topic, topic_id) != topic_id:
                continue
            free -= _BYTES_OF_AN_OFFSET + group + len(tp.topic.encode()) + len(entry.commit.metadata.encode())
            if free < 0 and taken:
                break
            taken[tp], topic_ids[tp.topic] = entry, topic_id
        for tp in taken:
            del self._queued[tp]
        return taken, {topic: each for topic, each in topic_ids.items() if each != api.NO_TOPIC_ID}

    def _may_still_go(self, sent: _InFlightCommit, now: float) -> bool:
        """The connection may have to be opened first: until then a rebalance may begin, the lease end, or something of
        it be lost or given up."""
        entries = sent.entries.items()
        assigned = all(self._holds(tp, entry.commit.epoch, entry.commit.seek_number) for tp, entry in entries)
        awaited = all(entry.waiters or self._completes(tp) for tp, entry in entries)  # law 10
        return assigned and self._same(sent) and self._membership.may_commit(now) and awaited

    def _may_send(self, now: float) -> bool:
        """Whether a commit may be sent now, but for a back-off."""
        return not self._waits_for_sync() and self._membership.may_commit(now)

    def _queue_starts(self, now: float) -> None:
        """Law 9, while nothing is under way. What is known of a start may be of before a rebalance."""
        # A back-off, which is bounded, is no reason to ask again: else a commit that is refused again and again would
        # hold up all starts.
        soon = self._coordinator.known and self._may_send(now)
        for tp in [tp for tp, entry in self._queued.items() if entry.start and not (soon and self._is_free(entry))]:
            self._requeue(tp, self._queued.pop(tp))
        for tp in [tp for tp in self._starts if tp not in self._queued]:
            entry, accepted = self._starts.pop(tp), self._accepted.get(tp)
            if not self._holds(tp, entry.commit.epoch, entry.commit.seek_number):
                self._abandon(tp, entry, _NOT_OWNED)
            elif accepted is not None and accepted.epoch == entry.commit.epoch and not _was_reset(accepted, entry):
                self._settle_accepted(tp, entry, accepted)
            elif soon and self._is_free(entry):
                self._queued[tp] = entry
            else:
                entry.free = None
                self._starts[tp] = entry

    def _ask_about_starts(self, now: float) -> float:
        """Law 9. Returns when to try again, where only time has to pass."""
        wake = self._ask_leaders(now)
        starts = {tp: entry for tp, entry in self._starts.items() if entry.doubted < 0 and not self._is_free(entry)}
        if not starts:
            return wake
        # First: the response of a look-up in flight may come late, and the coordinator is lost.
        if not self._coordinator.need():
            self._settle_refused()
        elif not self._lookup_in_flight and self._may_send(now):
            if not self._backoff.ready(now):
                return min(wake, self._backoff.ready_at)
            self._ask_about(starts, now)
        return wake

    def _ask_leaders(self, now: float) -> float:
        """Law 9: of each version of the metadata once. Returns until when they are awaited."""
        wake, version, unasked = float("inf"), self._cluster.version, dict[TopicPartition, _Entry]()
        for tp, entry in self._starts.items():
            if entry.doubted >= 0 and now >= (until := self._awaits_leader_until(tp, entry)):
                _note_begin(entry, self._accepted.get(tp))
            elif entry.doubted >= 0:
                wake = min(wake, until)
                if entry.asked_of != version:
                    entry.asked_of, unasked[tp] = version, entry
        led, leaderless = by_leader(self._cluster, unasked)
        if leaderless:
            self._cluster.refresh()
        for node_id, of_leader in led.items():
            request = list_offsets(self._context, dict.fromkeys(of_leader, EARLIEST), {})
            on_done = partial(self._begins_known, {tp: unasked[tp] for tp in of_leader})
            send_to_leader(self._context, self._cluster, node_id, request, on_done, now)
        return wake

    def _awaits_leader_until(self, tp: TopicPartition, entry: _Entry) -> float:
        left = max(0.0, min(self.end_by, self._revoked_by(tp)) - entry.doubted_since)
        return entry.doubted_since + min(_LEADER_AWAITED, left / 2)

    def _begins_known(
        self, doubted: dict[TopicPartition, _Entry], result: api.Response | Exception, _now: float
    ) -> None:
        """What the leader refuses is asked again, once the metadata are newer."""
        self._context.touch()
        listed = result.offsets if isinstance(result, api.ListOffsetsResponse) else {}
        for tp, entry in doubted.items():
            begin = listed.get(tp)
            if begin is None or begin.error:
                self._cluster.refresh()
            elif entry.doubted >= 0:
                _note_begin(entry, self._accepted.get(tp), begin)

    def _ask_about(self, starts: dict[TopicPartition, _Entry], now: float) -> None:
        self._lookup_in_flight = True
        request = api.OffsetFetch(
            group_id=self._context.config.group_id or "",
            partitions=tuple(sorted(starts)),
            topic_ids=self._cluster.topic_ids({tp.topic for tp in starts}),
        )
        asked = self._present()
        self._coordinator.send(request, lambda result, then: self._known(starts, asked, result, then), now)

    def _known(
        self,
        starts: dict[TopicPartition, _Entry],
        asked: tuple[int, int, int],
        result: api.Response | Exception,
        now: float,
    ) -> None:
        """What the group has of partitions whose start is to be committed. What may be known later is asked again.
        asked: the membership by then."""
        self._lookup_in_flight = False
        self._context.touch()
        code = getattr(result, "error", 0)
        if isinstance(result, Exception) or code in _REDISCOVER:
            self._coordinator.lost(error_for_code(code) if code else result)
        current = [(tp, entry) for tp, entry in starts.items() if self._starts.get(tp) is entry]
        known = [self._known_of(tp, entry, asked, result, now) for tp, entry in current]
        if not all(known):
            self._backoff.failed(now)

    def _known_of(
        self,
        tp: TopicPartition,
        entry: _Entry,
        asked: tuple[int, int, int],
        result: api.Response | Exception,
        now: float,
    ) -> bool:
        """False: it is to be asked again."""
        found = _NOTHING_KNOWN
        if isinstance(result, api.OffsetFetchResponse):
            found = api.CommittedOffset(error=result.error) if result.error else result.offsets.get(tp, found)
        error = result if isinstance(result, Exception) else error_for_code(found.error) if found.error else None
        if found.error == ErrorCode.UNKNOWN_TOPIC_ID:
            self._cluster.doubt({tp.topic})
        # Any other response says nothing of the topic: refusals of its commit are counted on (law 7).
        gone = found.error in _GONE and self._is_gone(tp, entry.commit.epoch, found.error, now)
        if isinstance(error, KafkaError) and _is_asked_again(error, entry) and not gone:
            return False
        if error is not None:
            del self._starts[tp]
            self._settle(tp, entry, error)
        elif _is_in_doubt(entry):
            _note_own(entry, self._accepted.get(tp))
            entry.doubted, entry.doubted_since = _begins_at(found.offset, entry), now
        elif found.offset < 0 or _is_missing(found.offset, entry) or _is_its_own(found.offset, entry):
            entry.free = asked
        else:
            del self._starts[tp]
            self._settle_accepted(tp, entry, replace(entry.commit, offset=found.offset, metadata=_ELSEWHERE))
        return True

    def _is_free(self, entry: _Entry) -> bool:
        return entry.free == self._present()

    def _drop_hopeless(self) -> None:
        """What is not owned any more, and what lies behind what the broker accepted (law 2)."""
        for tp, entry in list(self._queued.items()):
            accepted = self._accepted.get(tp)
            # Else the offset of work on an older assignment would overwrite what the next owner has committed.
            if not self._holds(tp, entry.commit.epoch, entry.commit.seek_number):
                self.abandon(tp, _NOT_OWNED)
            elif accepted is not None and not entry.rewind and _older(entry.commit, accepted):
                self._settle_accepted(tp, self._queued.pop(tp), accepted)
            elif self._takes_back_what_is_doubtful(tp, entry):
                entry.commit = self._doubtful[tp]

    def _takes_back_what_is_doubtful(self, tp: TopicPartition, entry: _Entry) -> bool:
        doubtful = self._doubtful.get(tp)
        if doubtful is None or entry.rewind or _place(entry.commit) != _place(doubtful):
            return False
        return _older(entry.commit, doubtful)

    def _settle_refused(self) -> None:
        """Nobody finds the coordinator for us. Each refusal ends what waits then; what comes later waits for the next
        attempt: it may be accepted, and a program that commits again and again must not spin."""
        refused, refusals = self._coordinator.refused, self._coordinator.refusals
        if refused is not None and refusals > self._refusals:
            self._refusals = refusals
            self._settle_all(refused)

    def _settle_all(self, error: Exception) -> None:
        for table in (self._queued, self._starts):
            while table:
                self._settle(*table.popitem(), error)
        self._context.touch()

    # -- responses

    def _on_response(self, sent: _InFlightCommit, result: api.Response | Exception, now: float) -> None:
        self._sent = None
        self._context.touch()
        if not isinstance(result, api.OffsetCommitResponse):
            error = result if isinstance(result, Exception) else TypeError(type(result))
            self._failed(sent, error, now)
            return
        # A broker that leaves a partition out has not said that it accepted its offset.
        codes = {tp: result.errors.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR) for tp in sent.entries}
        # One partition's error makes all wait: a request for the others would come at the same coordinator at once.
        if any(codes.values()):
            self._backoff.failed(now)
        else:
            self._backoff.succeeded()
        # As it is before anything is made of it: where it ends the membership, no generation is the same any more.
        not_yet = frozenset(code for code in codes.values() if self._means_not_yet(code, sent))
        meant = {code: self._react(code, sent, now, not_yet) for code in set(codes.values()) if code}
        codes = {tp: meant.get(code, code) for tp, code in codes.items()}
        # All marks move before anybody is told: who waits for several partitions is told of all of them.
        taken = {tp: sent.entries[tp] for tp, code in codes.items() if not code}
        self._accepted.update({tp: entry.commit for tp, entry in taken.items() if not entry.start})
        self._note_what_is_doubtful(sent, codes)
        for tp, code in codes.items():
            self._settle_code(tp, sent, code, now, not_yet)
        # Before this turn completes the revoke of one: its hand-over is told with what was committed.
        self._waiters.tell()

    def _failed(self, sent: _InFlightCommit, error: Exception, now: float) -> None:
        # The broker has not seen it: so nothing is doubtful, and there is nothing to back off from.
        if isinstance(error, NotSentError):
            for unsent in sent.entries.items():
                self._requeue(*unsent)
            return
        if sent.transmitted:
            self._note_what_is_doubtful(sent, dict.fromkeys(sent.entries))
        if isinstance(error, KafkaError) and error.retriable:
            self._backoff.failed(now)
            self._coordinator.lost(error)
            for tp, entry in sent.entries.items():
                self._requeue(tp, entry)
            return
        for tp, entry in sent.entries.items():
            self._settle(tp, entry, error)

    def _note_what_is_doubtful(self, sent: _InFlightCommit, codes: Mapping[TopicPartition, int | None]) -> None:
        """Law 2. codes: None where there was no response."""
        for tp, entry in sent.entries.items():
            code, before, accepted = codes[tp], self._doubtful.get(tp), self._accepted.get(tp)
            if code is None or code in _RETRY:
                entry.unanswered = True
                # The group has either of the two: what is behind the further one is no longer known to be behind.
                if entry.rewind and accepted is not None and _older(entry.commit, accepted):
                    further = self._accepted.pop(tp)
                    if before is None or _older(before, further):
                        self._doubtful[tp] = further
                elif not entry.start and (before is None or _older(before, entry.commit)):
                    self._doubtful[tp] = entry.commit
            # The group has what this one says, whatever became of the doubtful one; or it never had that, since its
            # metadata are too long. Any other refusal is of how things are by now: an authorization may have been
            # withdrawn since, and another program may have joined the group.
            elif before is not None and (
                _replaces(entry, before)
                if code == ErrorCode.NONE
                else entry.commit == before and code == ErrorCode.OFFSET_METADATA_TOO_LARGE
            ):
                del self._doubtful[tp]

    def _react(self, code: int, sent: _InFlightCommit, now: float, not_yet: frozenset[int]) -> int:
        """What an error code says of the group or its coordinator. Returns the code that it is taken for."""
        if code in _REDISCOVER:
            self._coordinator.lost(error_for_code(code))
        elif code == ErrorCode.UNKNOWN_TOPIC_ID:
            self._cluster.doubt({tp.topic for tp in sent.entries})
        elif code in not_yet:
            # A sync may have come between the request and its response: then there is nothing to wait for.
            self._deferred_until = max(self._deferred_until, sent.syncs)
            if self._same(sent):
                self._group_refused(ErrorCode.REBALANCE_IN_PROGRESS, now)
        # Only of the present generation: what is said of an older one does not end the membership of now.
        elif code in _FENCED and self._same(sent):
            return self._group_refused(code, now)
        return code

    def _settle_code(
        self, tp: TopicPartition, sent: _InFlightCommit, code: int, now: float, not_yet: frozenset[int]
    ) -> None:
        entry = sent.entries[tp]
        gone = self._is_gone(tp, entry.commit.epoch, code, now)
        if code == ErrorCode.NONE:
            self._settle_accepted(tp, entry, entry.commit)
        elif code in not_yet:
            # Found first: queued again, the entry may be merged with one whose callers this response does not concern.
            impatient = [each for each in self._waiters.impatient() if each.event.call in entry.waiters]
            self._requeue(tp, entry)
            for waiter in impatient:
                self._refuse(waiter, "the broker is rebalancing the group")
        elif code in _RETRY and not gone:
            self._requeue(tp, entry)
        else:
            self._refused(tp, sent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else code)

    def _refused(self, tp: TopicPartition, sent: _InFlightCommit, code: int) -> None:
        """The broker refuses it for good. Where the metadata were too long, a caller whose own are shorter may have its
        offset committed still."""
        entry, member = sent.entries[tp], sent.generation >= 0
        self._context.log(logging.WARNING, str(final_error(tp, entry.commit, code, member=member)))
        other = _other_metadata(tp, entry) if code == ErrorCode.OFFSET_METADATA_TOO_LARGE else None
        if other is not None:
            queued = self._queued.get(tp)
            later = () if queued is None else queued.waiters.values()
            _note_who_is_behind(tp, other, chain(other.waiters.values(), later))
            self._requeue(tp, other)
        for call, waiter in entry.waiters.items():
            if other is None or call not in other.waiters:
                self._waiters.settle(waiter, tp, final_error(tp, waiter.event.entries[tp], code, member=member))

    def _is_gone(self, tp: TopicPartition, epoch: int, code: int, now: float) -> bool:
        """Law 7. What was said in an earlier assignment is too old to count."""
        if code not in _GONE:
            self._unknown_since.pop(tp, None)
            return False
        # The coordinator alone is not believed (law 7): the metadata must say the same.
        self._cluster.refresh()
        since = self._unknown_since.get(tp)
        if since is None or since[0] != epoch:
            since = self._unknown_since[tp] = (epoch, now)
        # Another assign() may have left this one behind: of a topic that nobody follows no metadata are requested.
        agreed = self._cluster.is_gone(tp.topic) or not self._cluster.follows(tp.topic)
        return agreed and now - since[1] >= MISSING_GRACE

    def _means_not_yet(self, code: int, sent: _InFlightCommit) -> bool:
        """Law 4. A commit of an older generation was refused because a rebalance came between."""
        # From JoinGroup's response to SyncGroup's the broker takes no commit; after that it does.
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return True
        return code == ErrorCode.ILLEGAL_GENERATION and (self._membership.rebalancing or not self._same(sent))

    def _same(self, sent: _InFlightCommit) -> bool:
        return (sent.member, sent.generation, sent.syncs) == self._present()

    def _present(self) -> tuple[int, int, int]:
        member = self._membership
        return member.number, member.generation, member.syncs

    def _requeue(self, tp: TopicPartition, entry: _Entry) -> None:
        """Law 2: what was handed over meanwhile is the newer."""
        # Nobody waits, and no revoke does: a later commit says more.
        if not entry.waiters and not self._completes(tp):
            return  # law 10
        if not self._holds(tp, entry.commit.epoch, entry.commit.seek_number):
            self._abandon(tp, entry, _NOT_OWNED)
            return
        entry.free = None  # law 9: another's offset may have come meanwhile
        table = self._starts if entry.start else self._queued
        newer = table.get(tp)
        table[tp] = entry if newer is None else _merged(entry, newer)

    # -- who waits

    def _settle(self, tp: TopicPartition, entry: _Entry, error: Exception) -> None:
        """It failed for good. The log says so, since a call may not wait for it."""
        what = "may not have been committed" if entry.unanswered else "was not committed"
        self._context.log(logging.WARNING, f"offset {entry.commit.offset} of {tp} {what}: {error!r}")
        for waiter in entry.waiters.values():
            self._waiters.settle(waiter, tp, error if isinstance(error, KafkaError) else KafkaError(repr(error)))

    def _settle_accepted(self, tp: TopicPartition, entry: _Entry, accepted: CommitEntry) -> None:
        if entry.start and accepted is entry.commit:
            self._settle_start(tp, entry)
        for waiter in entry.waiters.values():
            self._waiters.settle(waiter, tp, told(tp, waiter, accepted))

    def _settle_start(self, tp: TopicPartition, entry: _Entry) -> None:
        """Law 9: what was committed in its place, those who wait hear as their own."""
        for waiter in entry.waiters.values():
            begun = waiter.event.entries[tp]
            if begun != entry.commit:
                waiter.moved[tp] = entry.commit
                at, why = entry.commit.offset, "the log was truncated"
                self._context.log(logging.INFO, f"offset {at} of {tp} was committed in place of {begun.offset}: {why}")

    def _abandon(self, tp: TopicPartition, entry: _Entry, why: str) -> None:
        error_of = partial(abandoned, tp, why=why, unanswered=entry.unanswered)
        self._context.log(logging.WARNING, str(error_of(entry.commit)))
        for waiter in entry.waiters.values():
            self._waiters.settle(waiter, tp, error_of(waiter.event.entries[tp]))

    def _expire(self, now: float) -> None:
        for waiter in self._waiters.due(now):
            if self._membership.sync_pending or self.deferred():
                self._refuse(waiter, "the rebalance did not end within the commit's timeout", late=True)
            else:
                error = KafkaTimeoutError("the commit had no response within its timeout")
                self._give_up(waiter, error, late=True)

    def _refuse_the_impatient(self) -> None:
        """Who does not wait for a rebalance hears of it at once, unless its commit is on its way already."""
        if not (self._membership.sync_pending or self.deferred()):
            return
        for waiter in self._waiters.impatient():
            queued = [self._queued[tp] for tp in waiter.waiting if tp in self._queued]
            if any(waiter.event.call in entry.waiters for entry in queued):
                self._refuse(waiter, "a rebalance is under way")

    def _refuse(self, waiter: Waiter, why: str, *, late: bool = False) -> None:
        error = RebalanceInProgressError(f"{why}; poll, then commit what is still assigned and not committed yet")
        self._give_up(waiter, error, late=late)

    def _give_up(self, waiter: Waiter, error: KafkaError, *, late: bool = False) -> None:
        """Complete the call now. What only this one wanted is not sent any more. late: but for law 10."""
        for tp in waiter.waiting:
            waiter.results[tp] = error
            in_flight = self._in_flight(tp)
            if in_flight is not None:
                # It cannot be called back; its response only has nobody to tell.
                in_flight.waiters.pop(waiter.event.call, None)
            for table in (self._queued, self._starts):
                entry = table.get(tp)
                if entry is not None and waiter.event.call in entry.waiters:
                    del entry.waiters[waiter.event.call]
                    if not entry.waiters and not (late and self._completes(tp)):
                        del table[tp]
        waiter.waiting.clear()
        self._waiters.end_if_done(waiter)
        self._context.touch()


def _is_asked_again(error: KafkaError, start: _Entry) -> bool:
    """Law 9. Marks the start: the bytes of a response may have been damaged on the way, but hardly those of two."""
    damaged = isinstance(error, ProtocolError) and not error.fatal and not start.unreadable
    start.unreadable |= damaged
    return error.retriable or damaged


def _older(one: CommitEntry, other: CommitEntry) -> bool:
    """Whether `one` would take back what `other` says."""
    if _place(one) != _place(other):
        return _place(one) < _place(other)
    return one.offset < other.offset


def _place(commit: CommitEntry) -> tuple[int, int]:
    return commit.epoch, commit.seek_number


def _was_reset(accepted: CommitEntry, start: _Entry) -> bool:
    """Law 9: whether this commit is of before the reset that led to the start, and the log may not have it."""
    before = _place(accepted) < _place(start.commit)
    return before and (_is_missing(accepted.offset, start) or _is_in_doubt(start))


def _is_missing(offset: int, start: _Entry) -> bool:
    return start.missing is not None and start.missing.include(offset)


def _is_in_doubt(start: _Entry) -> bool:
    """The leader is to say whether the log has what it should have."""
    return start.missing is not None and start.missing.cut >= 0


def _note_own(start: _Entry, accepted: CommitEntry | None) -> None:
    """Law 9: what this member committed last, in the assignment in which the log was truncated."""
    missing = start.missing
    assert missing is not None, "the log was truncated"
    if accepted is None or accepted == start.own or accepted.epoch != start.commit.epoch:
        return
    if accepted.seek_number >= missing.since:  # what the log lacked says nothing of it
        missing = missing._replace(position=-1, begin=0)
    if _place(accepted) < _place(start.commit) and accepted.leader_epoch < 0 and accepted.offset > missing.cut:
        missing = missing._replace(position=accepted.offset)
        start.commit = replace(start.commit, offset=missing.cut, leader_epoch=-1)
    start.missing, start.own = missing, accepted
    if start.doubted >= 0:
        start.doubted = _begins_at(accepted.offset, start)


def _begins_at(committed: int, start: _Entry) -> int:
    """Where the next owner will: at what the group has, or at the start."""
    return start.commit.offset if committed < 0 or _is_missing(committed, start) else committed


def _note_begin(start: _Entry, accepted: CommitEntry | None, begin: api.ListedOffset | None = None) -> None:
    """Law 9. What the leader says, or that it does not. It leaves no doubt: now the coordinator is asked again."""
    _note_own(start, accepted)  # it may have come while the leader was asked
    assert start.missing is not None, "else there is no doubt"
    start.missing = start.missing._replace(cut=-1)
    if begin is not None and begin.offset > start.doubted:
        start.missing = start.missing._replace(begin=begin.offset)
        start.commit = replace(start.commit, offset=begin.offset, leader_epoch=begin.leader_epoch)
    start.doubted = -1


def _is_its_own(offset: int, start: _Entry) -> bool:
    """Its response was missing: the group has it, as far as anybody can tell."""
    return start.unanswered and offset == start.commit.offset


def _replaces(entry: _Entry, before: CommitEntry) -> bool:
    return entry.rewind or not _older(entry.commit, before)


def _merged(older: _Entry, newer: _Entry) -> _Entry:
    """Law 2: both as one; `older` was handed over first. The longer list of who waits is never copied (law 8)."""
    same = _place(older.commit) == _place(newer.commit)
    goes_on = older.start or (same and newer.rewind) or not _older(newer.commit, older.commit)
    first = newer if goes_on else older
    more, fewer = older.waiters, newer.waiters
    if len(more) < len(fewer):
        more, fewer = fewer, more
    more.update(fewer)
    rewind = first.rewind or (same and older.rewind)
    return _Entry(
        commit=first.commit,
        rewind=rewind,
        start=first.start,
        waiters=more,
        missing=first.missing,
        unanswered=older.unanswered or newer.unanswered,
    )


def _other_metadata(tp: TopicPartition, refused: _Entry) -> _Entry | None:
    """What would have been sent, had those whose metadata is shorter been the only ones."""
    in_order = (_of(tp, refused.waiters[call]) for call in sorted(refused.waiters))
    others = [each for each in in_order if len(each.commit.metadata) < len(refused.commit.metadata)]
    return reduce(_merged, others) if others else None


def _note_who_is_behind(tp: TopicPartition, other: _Entry, waiters: Iterable[Waiter]) -> None:
    """Of those that were handed over after it: while it stood behind what is refused now, nobody saw that."""
    first = min(call for call, waiter in other.waiters.items() if waiter.event.entries[tp] == other.commit)
    for waiter in waiters:
        event = waiter.event
        if event.call > first and not event.allow_rewind and _older(event.entries[tp], other.commit):
            waiter.behind[tp] = min(other.commit.offset, waiter.behind.get(tp, other.commit.offset))


def _of(tp: TopicPartition, waiter: Waiter) -> _Entry:
    """What this one alone wants of the partition."""
    event = waiter.event
    commit, waiters = event.entries[tp], {event.call: waiter}
    missing = event.missing.get(tp)
    return _Entry(commit=commit, rewind=event.allow_rewind, start=event.starts, waiters=waiters, missing=missing)
