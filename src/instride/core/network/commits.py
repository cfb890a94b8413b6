"""Commits: collected, sent one at a time, held and carried over while a rebalance refuses them.

Laws
1. One OffsetCommit is under way for the group; what is handed over meanwhile goes with the next (aggregated).
2. The newest offset of a partition wins. Within an epoch and seek number it never goes back; an older epoch never
   replaces a newer one.
3. A rebalance is no reason to refuse: while the broker accepts the present generation it is sent; from the answered
   join to the answered sync it is held, and sent with the new generation.
4. REBALANCE_IN_PROGRESS and, during a rebalance, ILLEGAL_GENERATION mean "not yet". In a stable group
   ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID mean that the membership is lost.
5. Only what is held in the entry's epoch is sent, and nothing of a topic that was made anew since. Whoever asked hears
   of every partition, at its deadline at the latest.
6. Nothing is sent without a lease.
7. A commit of a topic that does not exist any more ends with that error. The metadata must say so too, and the
   coordinator for a while: one that has just started may not know its topics yet.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Protocol

from instride.commits import CommitEntry
from instride.core.events import Answered, Commit
from instride.core.network.cluster import MISSING_GRACE, UNKNOWN_TOPIC, Cluster
from instride.core.network.codes import FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID
from instride.core.network.connections import NotSentError
from instride.core.network.context import Context
from instride.core.network.coordinator import Coordinator
from instride.core.network.refused_commits import final_error, not_held
from instride.errors import (
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    error_for_code,
)
from instride.records import TopicPartition
from instride.wire import api

__all__ = ["CommitGroup", "Commits"]

_REDISCOVER = frozenset({7, 15, 16})
_UNKNOWN_TOPIC_ID = 100
_RETRY = frozenset({3, 7, 14, 15, 16, _UNKNOWN_TOPIC_ID})


class CommitGroup(Protocol):
    """What commits must know of the group, and tell it."""

    @property
    def generation(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def syncs(self) -> int: ...
    @property
    def sync_pending(self) -> bool: ...
    @property
    def rebalancing(self) -> bool: ...
    def may_commit(self, now: float) -> bool: ...
    def commit_refused(self, code: int, now: float) -> None: ...


class CommitBook(Protocol):
    def holds(self, partition: TopicPartition, epoch: int, seek_number: int) -> bool: ...


@dataclass(slots=True, kw_only=True)
class _Asker:
    """An application event that waits for its answer."""

    event: Commit
    waiting: set[TopicPartition]
    results: dict[TopicPartition, Exception | None] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Entry:
    """An offset to commit, and who wants to hear of it."""

    commit: CommitEntry
    askers: list[_Asker]


@dataclass(slots=True, kw_only=True)
class _Flight:
    entries: dict[TopicPartition, _Entry]
    generation: int
    syncs: int


class Commits:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context, cluster: Cluster, coordinator: Coordinator) -> None:
        self._context = context
        self._cluster = cluster
        self._coordinator = coordinator
        self._backoff = context.backoff()
        self._queued: dict[TopicPartition, _Entry] = {}
        self._flight: _Flight | None = None
        self._askers: list[_Asker] = []
        self._newest: dict[TopicPartition, CommitEntry] = {}
        self._unknown_since: dict[TopicPartition, float] = {}
        # Held until more syncs than these were answered (law 4).
        self._held_syncs = -1
        self.group: CommitGroup
        self.book: CommitBook

    # -- what others ask

    def outstanding(self, partition: TopicPartition) -> bool:
        return partition in self._queued or self.in_flight(partition)

    def in_flight(self, partition: TopicPartition) -> bool:
        return self._flight is not None and partition in self._flight.entries

    def anything_outstanding(self) -> bool:
        return bool(self._queued) or self._flight is not None

    def held_back(self) -> bool:
        """Whether a commit waits for the next sync."""
        return bool(self._queued) and self._waits_for_sync()

    def _waits_for_sync(self) -> bool:
        """Without a membership (by assign, say, after a subscription that ended) there is no sync to wait for."""
        return self._held_syncs >= self.group.syncs and self.group.generation >= 0

    def abandon(self, partition: TopicPartition, why: str) -> None:
        """What is queued for the partition is not sent any more. What is under way is answered by the broker."""
        entry = self._queued.pop(partition, None)
        if entry is not None:
            error = CommitFailedError(f"offset {entry.commit.offset} of {partition} was not committed: {why}")
            self._context.log(logging.WARNING, str(error))
            self._settle(partition, entry, error)

    def close(self, error: Exception) -> None:
        """The consumer has closed: who waits still hears of it now."""
        for asker in list(self._askers):
            self._give_up(asker, error)

    # -- handing over

    def add(self, event: Commit, now: float) -> None:
        asker = _Asker(event=event, waiting=set(event.entries))
        self._askers.append(asker)
        for tp, commit in event.entries.items():
            self._queue(tp, commit, asker)
        if not event.carry_over and self.group.sync_pending:
            self._refuse(asker, "a rebalance is under way")
        self._answer_done(asker)
        self._context.touch()

    def _queue(self, tp: TopicPartition, commit: CommitEntry, asker: _Asker) -> None:
        if not self.book.holds(tp, commit.epoch, commit.seek_number):
            self._settle(tp, _Entry(commit=commit, askers=[asker]), not_held(tp))
            return
        queued = self._queued.get(tp)
        if queued is None:
            self._queue_first(tp, self._not_back(tp, commit), asker)
            return
        if queued.commit.epoch < commit.epoch:
            self.abandon(tp, "the partition was assigned anew")
            self._queued[tp] = _Entry(commit=commit, askers=[asker])
            return
        queued.askers.append(asker)
        if not _older(commit, queued.commit):
            queued.commit = commit

    def _queue_first(self, tp: TopicPartition, commit: CommitEntry, asker: _Asker) -> None:
        flying = self._flight.entries.get(tp) if self._flight is not None else None
        if flying is not None and flying.commit == commit:
            flying.askers.append(asker)  # a ledger offers what is on its way until it is answered
        else:
            self._queued[tp] = _Entry(commit=commit, askers=[asker])

    def _not_back(self, tp: TopicPartition, commit: CommitEntry) -> CommitEntry:
        """Law 2: an offset behind one that was sent already is replaced by that one."""
        newest = self._newest.get(tp)
        return newest if newest is not None and _older(commit, newest) else commit

    # -- sending

    def poll(self, now: float) -> float:
        self._refuse_the_impatient()
        wake = self._send_queued(now)
        self._expire(now)  # who gave no time at all has asked all the same
        return min([wake, *(asker.event.deadline for asker in self._askers)])

    def _send_queued(self, now: float) -> float:
        """Returns when to try again, where only time has to pass."""
        if self._flight is None:
            self._drop_not_held()
        if self._flight is not None or not self._queued:
            return float("inf")
        if not self._coordinator.need():
            if self._coordinator.refused is not None:
                self._settle_all(self._coordinator.refused)
        elif not self._waits_for_sync() and self.group.may_commit(now):
            if not self._backoff.ready(now):
                return self._backoff.ready_at
            self._send(now)
        return float("inf")

    def _send(self, now: float) -> None:
        entries, self._queued = self._queued, {}
        flight = _Flight(entries=entries, generation=self.group.generation, syncs=self.group.syncs)
        self._flight = flight
        for tp, entry in entries.items():
            self._newest[tp] = entry.commit
        request = api.OffsetCommit(
            group_id=self._context.config.group_id or "",
            generation=flight.generation,
            member_id=self.group.member_id,
            # Not without a member id (KAFKA-14201): there is no membership then.
            group_instance_id=self._context.config.group_instance_id if self.group.member_id else None,
            offsets={
                tp: api.OffsetToCommit(
                    offset=entry.commit.offset,
                    leader_epoch=entry.commit.leader_epoch,
                    metadata=entry.commit.metadata,
                )
                for tp, entry in entries.items()
            },
            topic_ids=self._cluster.topic_ids({tp.topic for tp in entries}),
        )
        self._coordinator.send_if(
            lambda then: self._may_still_go(flight, then),
            request,
            lambda result, then: self._answered(flight, result, then),
            now,
        )

    def _may_still_go(self, flight: _Flight, now: float) -> bool:
        """The connection may have to be opened first: until then a rebalance may begin, the lease end, or something of
        it be lost."""
        entries = flight.entries.items()
        held = all(self.book.holds(tp, entry.commit.epoch, entry.commit.seek_number) for tp, entry in entries)
        return held and self._same(flight) and self.group.may_commit(now)

    def _drop_not_held(self) -> None:
        for tp, entry in list(self._queued.items()):
            if not self.book.holds(tp, entry.commit.epoch, entry.commit.seek_number):
                self.abandon(tp, "it is not this consumer's any more")

    def _settle_all(self, error: Exception) -> None:
        entries, self._queued = self._queued, {}
        for tp, entry in entries.items():
            self._settle(tp, entry, error)
        self._context.touch()

    # -- answers

    def _answered(self, flight: _Flight, result: api.Answer | Exception, now: float) -> None:
        self._flight = None
        self._context.touch()
        if not isinstance(result, api.OffsetCommitAnswer):
            error = result if isinstance(result, Exception) else TypeError(type(result))
            self._failed(flight, error, now)
            return
        codes = {tp: result.errors.get(tp, -1) for tp in flight.entries}
        if any(codes.values()):
            self._backoff.failed(now)
        else:
            self._backoff.succeeded()
        for code in {code for code in codes.values() if code}:
            self._react(code, flight, now)
        for tp, code in codes.items():
            self._settle_code(tp, flight, code, now)

    def _failed(self, flight: _Flight, error: Exception, now: float) -> None:
        if isinstance(error, NotSentError):
            for unsent in flight.entries.items():
                self._requeue(*unsent)
            return
        if isinstance(error, KafkaError) and error.retriable:
            self._backoff.failed(now)
            self._coordinator.lost(error)
            for tp, entry in flight.entries.items():
                self._requeue(tp, entry)
            return
        for tp, entry in flight.entries.items():
            self._settle(tp, entry, error)

    def _react(self, code: int, flight: _Flight, now: float) -> None:
        """What an error code says of the group or its coordinator."""
        if code in _REDISCOVER:
            self._coordinator.lost(error_for_code(code))
        elif code == _UNKNOWN_TOPIC_ID:
            self._cluster.doubt({tp.topic for tp in flight.entries})
        elif self._means_not_yet(code, flight):
            self._held_syncs = max(self._held_syncs, flight.syncs)
            if self._same(flight):
                self.group.commit_refused(REBALANCE_IN_PROGRESS, now)
        elif code in (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID) and self._same(flight):
            self.group.commit_refused(code, now)

    def _settle_code(self, tp: TopicPartition, flight: _Flight, code: int, now: float) -> None:
        entry, gone = flight.entries[tp], self._is_gone(tp, code, now)
        if code == 0:
            self._settle(tp, entry, None)
        elif self._means_not_yet(code, flight):
            self._requeue(tp, entry)
            for asker in [asker for asker in entry.askers if not asker.event.carry_over]:
                self._refuse(asker, "the broker is rebalancing the group")
        elif code in _RETRY and not gone:
            self._requeue(tp, entry)
        else:
            error = final_error(tp, entry.commit, code)
            self._context.log(logging.WARNING, str(error))
            self._settle(tp, entry, error)

    def _is_gone(self, tp: TopicPartition, code: int, now: float) -> bool:
        """Law 7."""
        if code != UNKNOWN_TOPIC:
            self._unknown_since.pop(tp, None)
            return False
        self._cluster.refresh()
        return now - self._unknown_since.setdefault(tp, now) >= MISSING_GRACE and self._cluster.is_gone(tp.topic)

    def _means_not_yet(self, code: int, flight: _Flight) -> bool:
        """Law 4. A commit of an older generation was refused because a rebalance came between."""
        if code == REBALANCE_IN_PROGRESS:
            return True
        return code == ILLEGAL_GENERATION and (self.group.rebalancing or not self._same(flight))

    def _same(self, flight: _Flight) -> bool:
        return flight.generation == self.group.generation and flight.syncs == self.group.syncs

    def _requeue(self, tp: TopicPartition, entry: _Entry) -> None:
        """Law 2: only where nothing newer was handed over meanwhile."""
        if not entry.askers:
            return  # everybody who wanted it gave up
        if not self.book.holds(tp, entry.commit.epoch, entry.commit.seek_number):
            self._settle(tp, entry, not_held(tp))
            return
        queued = self._queued.get(tp)
        if queued is None:
            self._queued[tp] = entry
        else:
            queued.askers.extend(entry.askers)  # of the same epoch, as both are held

    # -- askers

    def _settle(self, tp: TopicPartition, entry: _Entry, error: Exception | None) -> None:
        for asker in entry.askers:
            asker.waiting.discard(tp)
            asker.results[tp] = error
            self._answer_done(asker)

    def _answer_done(self, asker: _Asker) -> None:
        if not asker.waiting and asker in self._askers:
            self._askers.remove(asker)
            self._context.deliver(Answered(call=asker.event.call, committed=asker.results))

    def _expire(self, now: float) -> None:
        for asker in [asker for asker in self._askers if now >= asker.event.deadline]:
            if self.group.sync_pending or self.held_back():
                self._refuse(asker, "the rebalance did not end within the commit's timeout")
            else:
                self._give_up(asker, KafkaTimeoutError("the commit was not answered within its timeout"))

    def _refuse_the_impatient(self) -> None:
        """Who does not wait for a rebalance hears of it at once, unless its commit is on its way already."""
        if not (self.group.sync_pending or self.held_back()):
            return
        for entry in list(self._queued.values()):
            for asker in [each for each in entry.askers if not each.event.carry_over]:
                self._refuse(asker, "a rebalance is under way")

    def _refuse(self, asker: _Asker, why: str) -> None:
        self._give_up(
            asker, RebalanceInProgressError(f"{why}; poll, then commit what is still assigned and not committed yet")
        )

    def _give_up(self, asker: _Asker, error: Exception) -> None:
        """Answer now. What only this asker wanted is not sent any more."""
        for tp in asker.waiting:
            asker.results[tp] = error
        flying = self._flight.entries if self._flight is not None else {}
        for entry in (*self._queued.values(), *flying.values()):
            entry.askers = [each for each in entry.askers if each is not asker]
        for tp in [tp for tp, entry in self._queued.items() if not entry.askers]:
            del self._queued[tp]
        asker.waiting.clear()
        self._answer_done(asker)
        self._context.touch()


def _older(one: CommitEntry, other: CommitEntry) -> bool:
    """Whether `one` would take back what `other` says."""
    if (one.epoch, one.seek_number) != (other.epoch, other.seek_number):
        return (one.epoch, one.seek_number) < (other.epoch, other.seek_number)
    return one.offset < other.offset
