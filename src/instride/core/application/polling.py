"""One poll (docs/rebalance.md, rules 1 to 5, 9 and 10).

Laws
1. In this order: wakeup and queued errors; losses leave the lists; the step; the other events with the listeners
   they call; records. When a wakeup or error is raised at the start, nothing else was taken.
2. A poll that raises after its step is continued by the next one: the lists do not move again; requests and
   losses add up.
3. It returns as soon as there is a record, a newly requested revoke or a loss; otherwise at its time-out.
4. State is changed before a listener runs, and what the listener's end must tell the network side is told even
   when it raises.
5. Completions are taken before changes. In immediate mode a requested revoke is completed before any later change.
6. Without a lease nothing is returned. It is read *before* what has come is taken: who read it afterwards could find
   the lease of a new membership, and return what the old one lost in between. For the same reason a poll looks again
   at the lease, the clock and the queue when its listener has run, which may take long.
7. Where records are deserialized, that is the last step; an error of it is raised as `reading` says.
8. A poll that waits long tells the network side now and then that the application is alive, and commits each
   auto_commit_interval what earlier polls returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from instride.core.application.calls import Call, Wait
from instride.core.application.committing import auto_commit_due, commit_before_release, next_auto_commit
from instride.core.application.drain import apply_early, drain
from instride.core.application.inbox import Change, Completion, split_change
from instride.core.application.partition import Delivery
from instride.core.application.reading import Read, read_first, read_taken
from instride.core.application.seeking import reset_due, tell_position
from instride.core.application.state import ApplicationState
from instride.core.events import (
    Assigned,
    CommitsSettled,
    CompleteRevoke,
    Consumed,
    Epochs,
    GivenBack,
    PartitionsAssigned,
    PartitionsRevoked,
    Polled,
    Revoked,
    RevokeRequested,
)
from instride.errors import WakeupError
from instride.records import TopicPartition

__all__ = ["Poller", "run_revoked_listener"]


class Poller:
    """The state of polling that outlives one poll."""

    def __init__(self, state: ApplicationState) -> None:
        self._state = state
        self._stepped = False
        self._news = False
        # Partitions whose loss this poll took: none of their later events is taken by it (rule 5).
        self._held_back: set[TopicPartition] = set()
        # Immediate mode: revokes that this poll waits for.
        self._awaited: dict[TopicPartition, int] = {}

    def forget(self) -> None:
        """Everything was given up: nothing of it is continued or awaited."""
        self._stepped = self._news = False
        self._held_back.clear()
        self._awaited.clear()

    def poll(
        self, now: float, timeout: float, *, immediate: bool, limit: int, read: Read | None = None
    ) -> Call[list[Delivery]]:
        """read: deserializes each record that is returned."""
        state = self._state
        deadline = now + timeout
        holds = self._look(now)
        state.post(Polled())
        self._raise_due()
        self._begin(now)
        alive = now + state.config.max_poll_interval / 3
        while True:
            heard = self._take_events(now, immediate=immediate)
            deliveries = self._collect(limit, read) if holds and not heard else []
            if not heard and (deliveries or self._news or now >= deadline):
                self._stepped = self._news = False
                return deliveries
            now = yield Wait(until=now if heard else min(deadline, alive, next_auto_commit(state)))
            holds = self._look(now)
            if now >= alive:  # law 8; however often something woke it meanwhile
                alive = now + state.config.max_poll_interval / 3
                state.post(Polled())
            self._raise_due()
            self._take_losses()
            if now >= next_auto_commit(state):
                auto_commit_due(state, now)

    def _look(self, now: float) -> bool:
        """At the lease, then at the queue (law 6). Whether the lease holds."""
        state = self._state
        holds = state.lease.holds(now)
        state.holdings.now = now
        drain(state)
        return holds

    def _raise_due(self) -> None:
        inbox = self._state.inbox
        if inbox.woken:
            inbox.woken = False
            raise WakeupError("wakeup() was called")
        if inbox.errors:
            raise inbox.errors.popleft()
        for held in self._state.lists.held.values():
            error = held.due_error()
            if error is not None:
                raise error

    def _begin(self, now: float) -> None:
        """Rules 1 and 2: losses leave the lists, the step, then the list of lost."""
        state = self._state
        if not self._stepped:
            # Leave the lists before the step, so that what was lost is not completed.
            lost = self._drop_lost()
            self._held_back.clear()
            auto_commit_due(state, now)
            completing = state.lists.step()
            self._stepped = True
            if completing:
                commit_before_release(state, now, completing)
                state.post(CompleteRevoke(partitions=completing))
            self._tell_lost(lost)
        else:
            self._take_losses()

    # -- losses

    def _take_losses(self) -> None:
        if self._state.inbox.losses:
            self._tell_lost(self._drop_lost())

    def _drop_lost(self) -> frozenset[TopicPartition]:
        state = self._state
        lost: frozenset[TopicPartition] = frozenset()
        while state.inbox.losses:
            loss = state.inbox.losses.popleft()
            known = state.lists.losing(loss.partitions)
            lost |= known
            for partition, epoch in loss.partitions.items():
                state.inbox.forget_before(partition, epoch)
                self._awaited.pop(partition, None)
            self._forget_changes(loss.partitions)
        return lost

    def _forget_changes(self, lost: Epochs) -> None:
        """Changes of an epoch that is lost are stale; of an assignment that nobody saw nothing is told."""
        changes = self._state.inbox.changes
        for _ in range(len(changes)):
            before = changes.popleft()
            after = _without(before, lost)
            # An empty request has a meaning of its own (C); one of which nothing is left has none.
            if after.partitions or not before.partitions or isinstance(after, Assigned):
                changes.append(after)

    def _tell_lost(self, lost: frozenset[TopicPartition]) -> None:
        if not lost:
            return
        self._news = True
        self._held_back |= lost
        self._state.lists.add_lost(lost)
        if self._state.listener is not None:
            self._state.listener.on_partitions_lost(sorted(lost))

    # -- the other events

    def _take_events(self, now: float, *, immediate: bool) -> bool:
        """Whether a listener may have heard of one."""
        inbox = self._state.inbox
        put_back: list[Change] = []
        took = False
        try:
            while True:
                if inbox.completions and self._awaited_are_settled():
                    self._take_completion(inbox.completions.popleft())
                    took = True
                elif inbox.changes and not self._awaited:
                    change, later = split_change(inbox.changes.popleft(), self._held_back)
                    if later is not None:
                        put_back.append(later)
                    if change.partitions or later is None:
                        self._take_change(change, now, immediate=immediate)
                        took = True
                else:
                    return took and self._state.listener is not None
        finally:
            inbox.changes.extendleft(reversed(put_back))

    def _take_change(self, change: Change, now: float, *, immediate: bool) -> None:
        match change:
            case RevokeRequested():
                self._asked_for(change, now, immediate=immediate)
            case GivenBack():
                self._given_back(change)
            case Assigned():
                self._assigned(change, immediate=immediate)
            case _:
                assert_never(change)

    def _asked_for(self, change: RevokeRequested, now: float, *, immediate: bool) -> None:
        state = self._state
        asked = state.lists.asked_for(change.partitions, change.deadline)
        if not asked:
            if immediate and not change.partitions and state.listener is not None:
                state.listener.on_partitions_revoked([])  # eager, and nothing is held (C)
            return
        if not immediate:
            self._news = True
            return
        completing = state.lists.let_go(asked)
        commit_before_release(state, now, completing)
        state.post(CompleteRevoke(partitions=completing))
        self._awaited.update(completing)

    def _given_back(self, change: GivenBack) -> None:
        for held in self._state.lists.given_back(change.partitions):
            tell_position(self._state, held)

    def _assigned(self, change: Assigned, *, immediate: bool) -> None:
        state = self._state
        state.lists.assigned(change.partitions)
        state.generation, state.member_id = change.generation, change.member_id
        apply_early(state, change)
        try:
            if state.listener is not None and (change.partitions or immediate):
                state.listener.on_partitions_assigned(sorted(change.partitions))
        finally:
            state.post(PartitionsAssigned(generation=change.generation))

    def _awaited_are_settled(self) -> bool:
        """Immediate mode: what was asked for together is told to the listener in one call, as C does."""
        completions = self._state.inbox.completions
        if not self._awaited.keys() <= {tp for event in completions for tp in event.partitions}:
            return False
        if self._awaited:
            settled = [event for event in completions if isinstance(event, CommitsSettled)]
            together = {tp: epoch for event in settled for tp, epoch in event.partitions.items()}
            others = [event for event in completions if not isinstance(event, CommitsSettled)]
            completions.clear()
            completions.extend([CommitsSettled(partitions=together), *others] if together else others)
        return True

    def _take_completion(self, event: Completion) -> None:
        for partition in event.partitions:
            self._awaited.pop(partition, None)
        match event:
            case CommitsSettled():
                run_revoked_listener(self._state, event.partitions)
            case Revoked():
                self._state.lists.revoked(event.partitions)
            case _:
                assert_never(event)

    # -- records

    def _collect(self, limit: int, read: Read | None) -> list[Delivery]:
        state = self._state
        if self._awaited:
            return []
        reset_due(state)
        if read is None:
            deliveries = state.fairness.collect(state.lists.held, limit)
        else:
            deliveries = self._collect_read(limit, read)
        if deliveries:
            room = _room(state, deliveries)
            state.holdings.returned(deliveries)
            state.holdings.meter.returned(room, state.holdings.now)
            state.post(Consumed(partitions=room))
        return deliveries

    def _collect_read(self, limit: int, read: Read) -> list[Delivery]:
        """What could not be read before is tried alone: so its error waits for nobody else's records."""
        state = self._state
        first = read_first(read, state.lists.held.values())
        if first:
            return first
        return read_taken(read, state.lists.held, lambda: state.fairness.collect(state.lists.held, limit))


def _room(state: ApplicationState, deliveries: Sequence[Delivery]) -> dict[TopicPartition, tuple[int, int, int, int]]:
    room: dict[TopicPartition, tuple[int, int, int, int]] = {}
    for delivery in deliveries:
        tp, chunk = delivery.partition, delivery.chunk
        _, _, records, nbytes = room.get(tp, (0, 0, 0, 0))
        number = state.lists.held[tp].fetch_number
        room[tp] = (delivery.epoch, number, records + len(chunk), nbytes + chunk.nbytes)
    return room


def run_revoked_listener(state: ApplicationState, partitions: Epochs) -> None:
    """The listener's turn in a revoke; commits of these partitions are taken while it runs."""
    held = {tp: epoch for tp, epoch in partitions.items() if _is_held(state, tp, epoch)}
    state.in_revoke_listener = frozenset(held)
    try:
        if state.listener is not None and held:
            state.listener.on_partitions_revoked(sorted(held))
    finally:
        state.in_revoke_listener = frozenset()
        state.lists.revoked(held)
        state.post(PartitionsRevoked(partitions=held))


def _is_held(state: ApplicationState, partition: TopicPartition, epoch: int) -> bool:
    held = state.lists.held.get(partition)
    return held is not None and held.epoch == epoch


def _without(change: Change, lost: Epochs) -> Change:
    return replace(
        change, partitions={tp: epoch for tp, epoch in change.partitions.items() if epoch > lost.get(tp, -1)}
    )
