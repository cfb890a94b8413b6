"""The application machine: what happens inside a call of the consumer, on the application's thread.

Laws
1. No clock, socket, thread or lock: calls are generators (`calls`), time is an argument.
2. It owns what was returned and consumed, the lists of KIP-983, buffers, fairness, pause and seek.
3. It speaks with the network machine by events only, and reads one number of it: the lease.
4. A local verb (seek, pause, assignment, the lists) never waits.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from uuid import UUID

from instride._core.application import closing, committing, lookup_calls, seeking, subscribing
from instride._core.application.background_events import drain
from instride._core.application.calls import Call, Wait, Write, last
from instride._core.application.deserializing import Read
from instride._core.application.ownership_view import Reason
from instride._core.application.partition import Delivery, OwnedPartition, PollResult
from instride._core.application.polling import Poller
from instride._core.application.revoke_lists import refuse_with_auto_commit
from instride._core.application.state import ApplicationState, OnCommit
from instride._core.events import (
    ApplicationEvent,
    Assign,
    BackgroundEvent,
    ChangeSettings,
    DelayExplained,
    EnforceRebalance,
    Pause,
    Resume,
    Wakeup,
)
from instride._core.metrics.meters import NOTHING_BUFFERED, Buffered, NetworkMeter
from instride._core.metrics.snapshot import metrics
from instride._core.ownership import RebalanceProtocol
from instride._core.session_lease import Lease, Standing
from instride.commits import CommitResult
from instride.config import ConsumerConfig
from instride.errors import IllegalStateError, KafkaTimeoutError, WakeupError
from instride.listeners import AsyncRebalanceListener
from instride.metrics import MetricName
from instride.records import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition
from instride.telemetry import Hold, TelemetryEvent

__all__ = ["ApplicationMachine"]


class ApplicationMachine:
    """One consumer's application side. Not thread-safe; blocking verbs return a `Call` for a driver to run."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        protocol: RebalanceProtocol,
        queue: deque[BackgroundEvent],
        post: Callable[[ApplicationEvent], None],
        lease: Lease,
        on_commit: OnCommit | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """post, wake: hand an event to the network side (as `ApplicationState` says)."""
        self._state = ApplicationState(
            config, protocol=protocol, queue=queue, send=post, wake=wake, lease=lease, on_commit=on_commit
        )
        self._config = config
        self._poller = Poller(self._state)

    def change_settings(self, config: ConsumerConfig, *, tell: bool) -> None:
        """From now on. tell: whether a network side runs that must hear of it."""
        self._config = config
        self._state.change_settings(config)
        if tell:
            self._state.post(ChangeSettings(config=config))

    # -- what is read

    def subscribe(
        self,
        topics: Iterable[str] | None,
        listener: AsyncRebalanceListener | None,
        pattern: str | re.Pattern[str] | None = None,
    ) -> None:
        """Topics, or a pattern. Changes nothing when it raises."""
        subscribing.subscribe(self._state, topics, pattern, listener)

    def assign(self, partitions: Iterable[TopicPartition], *, now: float | None = None) -> None:
        """Read exactly these, without a membership. Those that were assigned before keep their position."""
        self._at(now)
        wanted = dict.fromkeys(TopicPartition(*tp) for tp in partitions)
        drain(self._state)  # an assignment of the group's may be in the queue: its epochs are not given again
        # Where a handler of a signal assigns as well, this comes after it.
        self._state.write_computed(partial(self._assigning, wanted))

    def _assigning(self, wanted: Collection[TopicPartition]) -> list[Write]:
        state = self._state
        state.refuse_while_unsubscribing()
        if state.subscribed:
            raise IllegalStateError("this consumer has a subscription; unsubscribe before assign")
        owned = dict(state.lists.owned)
        gone = [tp for tp in owned if tp not in wanted]
        # No revoke and no later poll will (as in Java).
        committing.commit_before_release(state, state.ownership_view.now, gone)
        kept = {tp: each.epoch for tp, each in owned.items() if tp in wanted}
        new = [tp for tp in wanted if tp not in kept]
        # Not strict, since `count` has no end.
        epochs = dict(zip(new, count(state.lists.newest_epoch + 1), strict=False))
        return [
            *state.lists.leaving_by_hand(gone),
            *state.lists.assigned(epochs),
            (setattr, state, "assigned_by_hand", True),
            state.lists.polls.changing(),
            (state.send, Assign(partitions={**kept, **epochs})),
        ]

    def enforce_rebalance(self, reason: str) -> None:
        if not self._state.subscribed:
            raise IllegalStateError("enforce_rebalance needs a subscription; call subscribe first")
        self._state.post(EnforceRebalance(reason=reason))

    def group_metadata(self) -> GroupMetadata:
        if self._config.group_id is None:
            raise IllegalStateError("group_metadata needs a group_id")
        state = self._state
        return GroupMetadata(self._config.group_id, state.generation, state.member_id, self._config.group_instance_id)

    def subscription(self) -> frozenset[str]:
        drain(self._state)
        return self._state.topics

    def assignment(self) -> frozenset[TopicPartition]:
        drain(self._state)
        released = self._state.inbox.released()
        return frozenset(tp for tp, owned in list(self._state.lists.owned.items()) if (tp, owned.epoch) not in released)

    def positions(self) -> dict[TopicPartition, tuple[int, int, int | None]]:
        """Of each partition: assignment epoch, seek number, and its position, or None where it is not known."""
        drain(self._state)
        owned = list(self._state.lists.owned.items())
        return {tp: (each.epoch, each.seek_number, each.position) for tp, each in owned}

    # -- polling and the lists of KIP-983

    def poll(
        self, now: float, timeout: float, *, immediate: bool, limit: int, read: Read | None = None
    ) -> Call[list[Delivery]]:
        """The poll is completed when this returns."""
        return self._completed(self.poll_aside(now, timeout, immediate=immediate, limit=limit, read=read))

    def poll_aside(
        self, now: float, timeout: float, *, immediate: bool, limit: int, read: Read | None = None
    ) -> Call[PollResult]:
        """The poll is completed when its caller sets `aside` of the result to None; before, it took none (rule 13)."""
        state = self._state
        if not state.subscribed and not state.assigned_by_hand:
            raise IllegalStateError("poll needs a subscription or an assignment; call subscribe or assign first")
        return self._measured(now, self._poller.poll(now, timeout, immediate=immediate, limit=limit, read=read))

    def _completed(self, poll: Call[PollResult]) -> Call[list[Delivery]]:
        result = yield from poll
        deliveries = list(result.deliveries)
        result.aside = None
        return deliveries

    def _measured(self, now: float, poll: Call[PollResult]) -> Call[PollResult]:
        view = self._state.ownership_view
        view.meter.poll_began(now)
        try:
            return (yield from poll)
        finally:
            view.meter.poll_ended(view.now)

    def to_be_revoked(self) -> frozenset[TopicPartition]:
        return self._state.lists.to_be_revoked()

    def standing(self) -> Standing:
        """For whoever starts work on what the last poll returned, beside the polls."""
        return self._state.standing

    def lost(self) -> frozenset[TopicPartition]:
        return self._state.lists.lost()

    def delay_revoke(
        self, partitions: Iterable[TopicPartition], *, reason: Reason = None, now: float | None = None
    ) -> bool:
        """now: else the time of the last call that had one."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        refuse_with_auto_commit(wanted, self._config)
        drain(self._state)
        self._at(now)
        accepted = self._state.lists.delay(wanted, self._state.inbox.losses, now=self._state.ownership_view.now)
        self._explain(wanted, reason)
        return accepted

    def _explain(self, wanted: list[TopicPartition], reason: Reason) -> None:
        blockers = self._state.ownership_view.because(wanted, reason)
        if blockers:
            epochs = {tp: self._state.lists.owned[tp].epoch for tp in blockers}
            self._state.post(DelayExplained(partitions=epochs, blockers=blockers))

    def failed(self) -> dict[TopicPartition, Exception]:
        """What keeps each partition that failed from going on."""
        drain(self._state)
        failing = self._state.lists.failing.those()
        failures = {each.partition: each.failure() if each.unreadable else each.hopeless() for each in failing}
        return {tp: error for tp, error in failures.items() if error is not None}

    def revoke_deadline(self, now: float, partition: TopicPartition) -> float | None:
        """Seconds until the partition would be lost; None where no revoke of it is pending."""
        drain(self._state)
        deadline = self._state.owned(partition).deadline
        return None if deadline == float("inf") else max(0.0, deadline - now)

    # -- telemetry

    def telemetry(self) -> Sequence[TelemetryEvent]:
        """What is to be told, in order; each event once."""
        return self._state.ownership_view.take()

    def holdings(self) -> dict[TopicPartition, Hold]:
        """Any thread may ask."""
        return self._state.ownership_view.holds()

    def metrics(
        self, network: NetworkMeter, now: float, buffered: Buffered = NOTHING_BUFFERED
    ) -> dict[MetricName, float]:
        """Any thread may ask. buffered: as the network side counts it."""
        view = self._state.ownership_view
        return metrics(
            network,
            view.meter,
            client_id=self._config.client_id,
            holds=view.holds(),
            lags=view.lags(),
            failed=view.failed(),
            buffered=buffered,
            now=now,
        )

    def _at(self, now: float | None) -> None:
        if now is not None:
            self._state.ownership_view.now = now

    # -- positions

    def refuse_unassigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Before a change of many: ValueError where one of them is not assigned."""
        self._all_owned(partitions)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """offset: a number, EARLIEST or LATEST."""
        seeking.seek(self._state, self._state.owned(partition), offset, leader_epoch)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing is returned, and no fetch is sent, until resume. What is buffered or in flight stays."""
        for owned in self._all_owned(partitions):
            if not owned.paused:
                told = Pause(partition=owned.partition, epoch=owned.epoch)
                mark = self._state.lists.paused.marking(owned)
                self._state.write([mark, (setattr, owned, "paused", True), (self._state.send, told)])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for owned in self._all_owned(partitions):
            if owned.paused:
                told = Resume(partition=owned.partition, epoch=owned.epoch)
                # What is buffered is looked at again.
                marks = [self._state.lists.filled.marking(owned), *self._state.marking_moved(owned)]
                self._state.write([*marks, (setattr, owned, "paused", False), (self._state.send, told)])

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(each.partition for each in self._state.lists.paused.those())

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the last known high watermark; None while either is unknown."""
        drain(self._state)
        return self._state.owned(partition).lag

    def fetched_topic_id(self, partition: TopicPartition) -> UUID | None:
        """By which all of it was fetched since its assignment or the last seek; None where that is not known."""
        return self._state.owned(partition).topic_id

    def position(self, now: float, partition: TopicPartition, timeout: float) -> Call[int]:
        deadline = now + timeout
        while True:
            drain(self._state)
            owned = self._state.owned(partition)
            if owned.position is not None:
                return owned.position
            self._raise_what_ends_a_wait(owned)
            if now >= deadline:
                raise KafkaTimeoutError(f"the position of {partition} was not found within {timeout} s")
            now = yield Wait(until=deadline)

    def _raise_what_ends_a_wait(self, owned: OwnedPartition) -> None:
        inbox = self._state.inbox
        if inbox.woken:
            inbox.woken = False
            raise WakeupError("wakeup() was called during position")
        # Without a traceback: the same object may be raised again and again, and would grow by each.
        if inbox.errors:
            raise inbox.errors.popleft().with_traceback(None)
        hopeless = owned.hopeless()
        if hopeless is not None:
            raise hopeless.with_traceback(None)

    def _all_owned(self, partitions: Iterable[TopicPartition]) -> list[OwnedPartition]:
        return [self._state.owned(TopicPartition(*tp)) for tp in partitions]

    # -- the group's and the brokers' offsets

    def commit(
        self,
        now: float,
        offsets: committing.Offsets | None,
        timeout: float,
        *,
        carry_over: bool,
        allow_rewind: bool = False,
    ) -> Call[CommitResult]:
        self._at(now)
        try:
            return (
                yield from committing.commit(
                    self._state, now, offsets, timeout, carry_over=carry_over, allow_rewind=allow_rewind
                )
            )
        finally:
            self._state.ownership_view.meter.commit_seconds += self._state.ownership_view.now - now

    def commit_async(
        self,
        now: float,
        offsets: committing.Offsets | None,
        *,
        allow_rewind: bool = False,
        on_call: Callable[[int], None] | None = None,
    ) -> int:
        """Hand a commit over. on_call: hears the number of its response before anything is sent."""
        deadline = now + self._config.default_api_timeout
        call = self._state.next_call()
        committing.start_commit(self._state, call, offsets, deadline, allow_rewind=allow_rewind, on_call=on_call)
        return call

    def committed(
        self, now: float, partitions: Iterable[TopicPartition], timeout: float
    ) -> Call[Mapping[TopicPartition, OffsetAndMetadata | None]]:
        self._at(now)
        try:
            return (yield from lookup_calls.committed(self._state, now, partitions, timeout))
        finally:
            self._state.ownership_view.meter.committed_seconds += self._state.ownership_view.now - now

    def offsets_for(
        self, now: float, timestamps: Mapping[TopicPartition, int], timeout: float
    ) -> Call[Mapping[TopicPartition, int]]:
        return lookup_calls.offsets_for(self._state, now, timestamps, timeout)

    def offsets_for_times(
        self, now: float, timestamps: Mapping[TopicPartition, int], timeout: float
    ) -> Call[Mapping[TopicPartition, OffsetAndTimestamp | None]]:
        return lookup_calls.offsets_for_times(self._state, now, timestamps, timeout)

    def topics(
        self, now: float, names: tuple[str, ...] | None, timeout: float, *, internal: bool
    ) -> Call[Mapping[str, tuple[PartitionInfo, ...]]]:
        return lookup_calls.topics(self._state, now, names, timeout, internal=internal)

    def wakeup_waits(self) -> bool:
        """Thread-safe. Whether the last event of the queue is a wakeup: another one would say nothing new, and a queue
        that nobody polls would grow by it."""
        newest = last(self._state.queue)
        return isinstance(newest, Wakeup)

    # -- the end

    def unsubscribe(self, now: float, timeout: float) -> Call[bool]:
        """True: every revoke was completed within the timeout."""
        self._at(now)
        self._state.unsubscribing = True
        return self._unsubscribe(now, timeout)

    def _unsubscribe(self, now: float, timeout: float) -> Call[bool]:
        try:
            return (yield from closing.unsubscribe(self._state, now, timeout))
        finally:
            self._poller.forget()

    @property
    def unsubscribed(self) -> int:
        """The number of the newest unsubscribe that the network side was told of."""
        return self._state.unsubscribed

    def give_up(self, now: float, timeout: float, *, since: int) -> None:
        """Ends an unsubscribe that was interrupted: the group is left, the network side sees to it. May come twice.

        since: `unsubscribed` before it began. What was subscribed after the network side was told stands.
        """
        if self._state.unsubscribed == since:
            closing.leave_group(self._state, now + timeout)
        # Nobody awaits its response any more.
        self._state.awaited.discard(self._state.unsubscribed)
        self._state.completions.pop(self._state.unsubscribed, None)
        self._poller.forget()

    def end(self, now: float, timeout: float, *, leave: bool | None) -> None:
        """Ends a close that was interrupted: the network side sends what it has, leaves and stops. May come twice."""
        closing.stop(self._state, now + timeout, leave=leave)

    def close(self, now: float, timeout: float, *, leave: bool | None) -> Call[bool]:
        self._at(now)
        return closing.close(self._state, now, timeout, leave=leave)
