"""The assignment: which partitions are held, which the group wants us to have, and how one becomes the other.

Laws
1. The group's target is what the last Sync assigned. What is in it and not held is assigned in a new epoch; what is
   held and not in it is asked for.
2. A held partition is listed as owned in every join until its revoke is complete (docs/rebalance.md, the deadline).
3. Completing, in this order: every commit of it answered, the listener, the assignment shrinks, the group is told.
4. The deadline of a delay counts from the first Sync that asked for it, less the commit budget. Past it the
   partition is lost; one that completes is lost when the budget has ended as well and a commit of it is not answered,
   since its user must hear that what was finished is not committed. The group is told when no commit of it is under
   way, or the budget has ended too (eager: half of the budget; the other half is the join's).
5. Given back while pending: owned again, same epoch. Given back while completing: the revoke finishes, and it is
   assigned in a new epoch (rule 8).
6. Revokes that complete within a moment share one rejoin: the group is told when none is pending any more, or 0.4 s
   after the first (rule 19). A join that is sent before tells it too.
7. By hand nobody else waits for a partition: commits that were handed over before another assign() are still sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from instride.core.events import (
    Assigned,
    CommitsSettled,
    DeadlineMoved,
    Epochs,
    GivenBack,
    Lost,
    Revoked,
    RevokeRequested,
)
from instride.core.group.ownership import Ownership, OwnershipInput, next_ownership
from instride.core.group.protocol import RebalanceProtocol
from instride.core.network.context import Context
from instride.core.network.held import HeldPartition
from instride.records import TopicPartition

__all__ = ["Book", "OutstandingCommits"]


_GATHERED_FOR = 0.4


class OutstandingCommits(Protocol):
    """What the book must know of commits."""

    def outstanding(self, partition: TopicPartition) -> bool: ...
    def in_flight(self, partition: TopicPartition) -> bool: ...
    def abandon(self, partition: TopicPartition, why: str) -> None: ...


class Book:
    """Not thread-safe: the network machine owns it. `on_released` is called when the group must be told."""

    def __init__(
        self,
        context: Context,
        protocol: RebalanceProtocol,
        commits: OutstandingCommits,
        on_released: Callable[[str], None],
    ) -> None:
        self._context = context
        self._protocol = protocol
        # Of the commit budget, for commits; the rest is the join's.
        self._share = 0.5 if protocol is RebalanceProtocol.EAGER else 1.0
        self._commits = commits
        self._on_released = on_released
        self._newest_epoch = 0
        self._generation, self._member_id = -1, ""
        # Lost by their deadline, but a commit of them is under way: until when the group is not told yet.
        self._draining: dict[TopicPartition, float] = {}
        self._tell_at = float("inf")  # law 6
        # Law 7: the epochs of partitions that were let go with commits outstanding.
        self._parting: dict[TopicPartition, int] = {}
        self.held: dict[TopicPartition, HeldPartition] = {}
        self.target: frozenset[TopicPartition] = frozenset()
        self.listener = False
        self.leaving = False

    # -- what is known

    def claimed(self) -> list[TopicPartition]:
        """Law 2: what a join lists as owned, sorted."""
        return sorted(self.held.keys() | self._draining.keys())

    def draining(self) -> bool:
        return bool(self._draining)

    def anything_pending(self) -> bool:
        return any(held.state is not Ownership.OWNED for held in self.held.values())

    def get(self, partition: TopicPartition, epoch: int) -> HeldPartition | None:
        """The held partition, if it is held in this very epoch."""
        held = self.held.get(partition)
        return held if held is not None and held.epoch == epoch else None

    def holds(self, partition: TopicPartition, epoch: int, seek_number: int) -> bool:
        """Whether what speaks of this epoch and seek may be committed."""
        held = self.get(partition, epoch)
        if held is None:
            return self._parting.get(partition) == epoch
        return seek_number > held.voided

    # -- what the group says

    def apply(self, target: frozenset[TopicPartition], generation: int, now: float, *, member_id: str = "") -> None:
        """Law 1: a Sync was answered."""
        self.target = target
        self._generation, self._member_id = generation, member_id
        self._ask_for(self.held.keys() - target, self._cooperative_deadline(now))
        self._give_back(self.held.keys() & target)
        self._assign(sorted(target - self.held.keys()))

    def ask_for_topics_outside(self, topics: frozenset[str], now: float) -> None:
        """Rule 11: partitions of topics that left the subscription."""
        gone = {tp for tp in self.held if tp.topic not in topics}
        self.target -= gone
        self._ask_for(gone, self._cooperative_deadline(now))

    def ask_for_all(self, deadline: float) -> None:
        """Eager: a rebalance begins. The application hears of it also where nothing is held (KIP-429)."""
        self.target = frozenset()
        if self.held:
            self._ask_for(list(self.held), deadline)
        else:
            self._context.deliver(RevokeRequested(partitions={}, deadline=deadline))

    def bring_forward(self, deadline: float) -> None:
        """Eager: everything that is asked for has this deadline now."""
        for held in self.held.values():
            self._bound(held, deadline)
        epochs = {tp: held.epoch for tp, held in self.held.items()}
        self._context.deliver(DeadlineMoved(partitions=epochs, deadline=deadline))
        self._context.touch()

    def lose_all(self, now: float) -> None:
        """The membership is lost."""
        self.target = frozenset()
        self.group_told()  # a lost member joins without being asked
        self._lose(list(self.held.values()), now)

    def assign_by_hand(self, partitions: Epochs) -> None:
        """assign(): the application chose partitions and epochs itself."""
        for tp in [tp for tp, held in self.held.items() if partitions.get(tp) != held.epoch]:
            parted = self.held.pop(tp)
            if self._commits.outstanding(tp):
                self._parting[tp] = parted.epoch
        for tp, epoch in partitions.items():
            if tp not in self.held:
                self.held[tp] = self._new(tp, epoch)
        self._newest_epoch = max([self._newest_epoch, *partitions.values()])

    def group_told(self) -> None:
        """A join says what is held now."""
        self._tell_at = float("inf")

    def forget_all(self) -> None:
        self.group_told()
        self.held.clear()
        self._draining.clear()
        self._parting.clear()
        self.target = frozenset()
        self.leaving = False

    # -- what the application says

    def complete(self, partitions: Epochs) -> None:
        """The step of the lists, or close: let go of these."""
        for held in self._matching(partitions):
            self._move(held, OwnershipInput.LET_GO)

    def listener_done(self, partitions: Epochs) -> None:
        for held in self._matching(partitions):
            held.listener_done = True

    # -- time

    def poll(self, now: float) -> float:
        """Complete what can be, give up what must be. Returns when to be asked again."""
        for tp, until in list(self._draining.items()):
            if now >= until or not self._commits.in_flight(tp):
                del self._draining[tp]
                self._context.touch()
        late = [held for held in self.held.values() if self._is_late(held, now)]
        if late:
            names = ", ".join(str(held.partition) for held in late)
            self._context.log(logging.WARNING, f"revoke of {names} was not complete at its deadline: lost")
            self._lose(late, now)
            self._on_released("a delayed revoke reached its deadline")
        settled: dict[TopicPartition, int] = {}
        for held in [held for held in self.held.values() if held.state is Ownership.COMPLETING]:
            self._complete(held, now, settled)
        if settled:
            self._context.deliver(CommitsSettled(partitions=settled))
        if now >= self._tell_at or (self._tell_at < float("inf") and not self.anything_pending()):
            self.group_told()
            self._on_released("a revoke is complete")
        return self._next_deadline(now)

    def _next_deadline(self, now: float) -> float:
        times = [self._tell_at, *self._draining.values()]
        for held in self.held.values():
            times.append(held.deadline if held.deadline > now else held.deadline + held.grace)
        return min((each for each in times if each > now), default=float("inf"))

    # -- inside

    def _is_late(self, held: HeldPartition, now: float) -> bool:
        if now < held.deadline:
            return False
        if held.state is not Ownership.COMPLETING:
            return held.state is Ownership.REVOKE_NEXT
        if self._commits.outstanding(held.partition):
            return now >= held.deadline + held.grace
        # One whose commits are answered, but whose listener the application never came to run, is late as well.
        return self.listener and not held.listener_done and held.settled_told

    def _cooperative_deadline(self, now: float) -> float:
        """Law 4: the broker sets none."""
        return now + self._context.config.max_poll_interval - self._context.commit_budget

    def _ask_for(self, partitions: Iterable[TopicPartition], deadline: float) -> None:
        news = {}
        for tp in sorted(partitions):
            held = self.held[tp]
            if held.deadline == float("inf"):  # one that completes since before it was given back may have none
                self._bound(held, deadline)
            if held.state is Ownership.OWNED:
                news[tp] = held.epoch
            self._move(held, OwnershipInput.ASKED_FOR)
        if news:
            self._context.deliver(RevokeRequested(partitions=news, deadline=deadline))

    def _bound(self, held: HeldPartition, deadline: float) -> None:
        held.deadline, held.grace = deadline, self._grace()

    def _grace(self) -> float:
        return self._context.commit_budget * self._share

    def _give_back(self, partitions: Iterable[TopicPartition]) -> None:
        back = {}
        for tp in sorted(partitions):
            held = self.held[tp]
            if held.state is Ownership.REVOKE_NEXT:
                back[tp] = held.epoch
                held.deadline = float("inf")
                # The application says where to fetch on from, once it has taken this (SetPosition).
                held.asking = True
            self._move(held, OwnershipInput.GIVEN_BACK)
        if back:
            self._context.deliver(GivenBack(partitions=back))

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        epochs = {}
        for tp in partitions:
            self._newest_epoch += 1
            self.held[tp] = self._new(tp, self._newest_epoch)
            epochs[tp] = self._newest_epoch
        self._context.deliver(Assigned(generation=self._generation, partitions=epochs, member_id=self._member_id))
        self._context.touch()

    def _new(self, partition: TopicPartition, epoch: int) -> HeldPartition:
        context = self._context
        return HeldPartition(partition, epoch, context.backoff(together=True), context.backoff(together=True))

    def _complete(self, held: HeldPartition, now: float, settled: dict[TopicPartition, int]) -> None:
        """Law 3. `settled` collects those whose listener may run: it is called for all of them together."""
        tp = held.partition
        if self._commits.outstanding(tp):
            return
        if self.listener and not held.listener_done:
            if not held.settled_told:
                held.settled_told = True
                settled[tp] = held.epoch
            return
        self._release(held)
        if tp in self.target and not self.leaving:
            self._assign([tp])
        else:
            self._tell_at = min(self._tell_at, now + _GATHERED_FOR)

    def _release(self, held: HeldPartition) -> None:
        self._move(held, OwnershipInput.COMPLETED)
        del self.held[held.partition]
        self._context.deliver(Revoked(partitions={held.partition: held.epoch}))
        self._context.touch()

    def _lose(self, partitions: list[HeldPartition], now: float) -> None:
        lost = {}
        for held in partitions:
            tp = held.partition
            done = not self.listener or held.listener_done
            if held.state is Ownership.COMPLETING and done and not self._commits.outstanding(tp):
                self._release(held)
                continue
            self._move(held, OwnershipInput.LOST)
            del self.held[tp]
            lost[tp] = held.epoch
            if self._commits.in_flight(tp):
                self._draining[tp] = now + self._grace() if now < held.deadline else held.deadline + held.grace
            self._commits.abandon(tp, "it was lost")
        if lost:
            self._context.deliver(Lost(partitions=lost))
            self._context.touch()

    def _matching(self, partitions: Epochs) -> list[HeldPartition]:
        found = (self.get(tp, epoch) for tp, epoch in partitions.items())
        return [held for held in found if held is not None]

    def _move(self, held: HeldPartition, event: OwnershipInput) -> None:
        held.state = next_ownership(self._protocol, held.state, event)
        self._context.touch()
