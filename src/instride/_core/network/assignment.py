"""The assignment: which partitions are owned, which the group assigned to us, and how one becomes the other.

Laws
1. The group's target is what the last Sync assigned. What is in it and not owned is assigned in a new epoch; what is
   owned and not in it is to be revoked.
2. An owned partition is listed in every join until its revoke is complete (docs/rebalance.md, the deadline).
3. Completing, in this order: its commits have their responses, the listener, the assignment shrinks, the group is told.
4. The deadline of a delay counts from the first Sync that requested it, less the commit budget. Past it the
   partition is lost; one that completes is lost when the budget has ended as well and a commit of it has no response,
   since its user must hear that what was finished is not committed. The group is told when no commit of it is under
   way, or the budget has ended too (eager: half of the budget; the other half is the join's).
5. Reassigned while pending: owned again, same epoch. Reassigned while completing: the revoke finishes, and it is
   assigned in a new epoch (rule 8).
6. Revokes that complete within a moment share one rejoin: the group is told when none is pending any more, or 0.4 s
   after the first (rule 19). A join that is sent before tells it too.
7. By hand nobody else waits for a partition: commits that were handed over before another assign() are still sent. Then
   the assignment has ended, as in any other case once the partition is not owned any more. Only then a newer one asks
   where the partition begins, or after request_timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Set
from functools import partial
from uuid import UUID

from instride._core.events import (
    Assigned,
    CommitsSettled,
    DeadlineMoved,
    Epochs,
    Lost,
    Reassigned,
    RevocationRequested,
    Revoked,
)
from instride._core.network.assigned_partitions import AssignedPartition, AssignedPartitions
from instride._core.network.context import Context
from instride._core.ownership import Ownership, OwnershipInput, RebalanceProtocol, next_ownership
from instride._wire.api import NO_TOPIC_ID
from instride.records import TopicPartition

__all__ = ["MemberAssignment"]

# Law 6: so many seconds after the first complete revoke the group is told of all.
_GATHERED_FOR = 0.4
_NAMED = 20


class MemberAssignment:
    """Not thread-safe: the network machine owns it.

    commit_outstanding: whether a commit of this partition has no response yet; outstanding_epochs: the epochs of all
    that have none; commit_in_flight: whether one of them was sent.
    abandon_commit: takes a partition whose queued commit shall not be sent any more, and why. released: is called when
    the group must be told, with the reason. ended: takes a partition and the epoch of its assignment that has ended.
    """

    def __init__(
        self,
        context: Context,
        protocol: RebalanceProtocol,
        *,
        commit_outstanding: Callable[[TopicPartition], bool],
        outstanding_epochs: Callable[[TopicPartition], Set[int]],
        commit_in_flight: Callable[[TopicPartition], bool],
        abandon_commit: Callable[[TopicPartition, str], None],
        released: Callable[[str], None],
        ended: Callable[[TopicPartition, int], None],
    ) -> None:
        self._context = context
        self._new_backoff = partial(context.backoff, together=True)
        self._protocol = protocol
        # Of the commit budget, for commits; the rest is the join's.
        self._share = 0.5 if protocol is RebalanceProtocol.EAGER else 1.0
        self._commit_outstanding = commit_outstanding
        self._outstanding_epochs = outstanding_epochs
        self._commit_in_flight = commit_in_flight
        self._abandon_commit = abandon_commit
        self._released = released
        self._ended = ended
        self._newest_epoch = 0
        self._generation, self._member_id = -1, ""
        # Lost by their deadline, but a commit of them is under way: until when the group is not told yet.
        self._draining: dict[TopicPartition, float] = {}
        self._tell_at = float("inf")  # law 6
        # Of those whose revocation is requested: as the last look at all of them found it.
        self._any_completes = False
        self._next_deadline = float("inf")
        # When `poll` has something to do next, if nothing is told. While a revoke is under way each turn polls.
        self.poll_at = float("-inf")
        # Law 7: the topics' ids of partitions, and the epochs, that were let go with commits outstanding.
        self._parting: dict[tuple[TopicPartition, int], tuple[UUID, float]] = {}
        self.partitions = AssignedPartitions()
        self.target: frozenset[TopicPartition] = frozenset()
        self.listener = False
        self.leaving = False
        self.unsubscribed = 0

    # -- what is known

    def owned_partitions(self) -> list[TopicPartition]:
        """Law 2: what a join lists as owned, sorted."""
        return sorted(self.partitions.keys() | self._draining.keys())

    def draining(self) -> bool:
        return bool(self._draining)

    def anything_pending(self) -> bool:
        return bool(self.partitions.pending())

    def get(self, partition: TopicPartition, epoch: int) -> AssignedPartition | None:
        """The owned partition, if it is owned in this very epoch."""
        assigned = self.partitions.get(partition)
        return assigned if assigned is not None and assigned.epoch == epoch else None

    def holds(self, partition: TopicPartition, epoch: int, seek_number: int) -> bool:
        """Whether what speaks of this epoch and seek may be committed."""
        assigned = self.get(partition, epoch)
        if assigned is None:
            return (partition, epoch) in self._parting
        return seek_number > assigned.stale_seek_number

    def parting(self, now: float) -> dict[TopicPartition, float]:
        """Those of which an assignment that another one by hand replaced has commits outstanding; and until when these
        are awaited (law 7)."""
        parting = self._parting.items()
        awaited = {tp: until for (tp, epoch), (_, until) in parting if epoch in self._outstanding_epochs(tp)}
        return {tp: until for tp, until in awaited.items() if now < until}

    def topic_id(self, partition: TopicPartition, epoch: int) -> UUID:
        """That of the topic which the offsets of this epoch are of, as far as it is known."""
        assigned = self.get(partition, epoch)
        if assigned is not None:
            return assigned.topic_id
        return self._parting.get((partition, epoch), (NO_TOPIC_ID, 0.0))[0]

    def completes(self, partition: TopicPartition) -> bool:
        assigned = self.partitions.get(partition)
        return assigned is not None and assigned.state is Ownership.COMPLETING

    def revoked_by(self, partition: TopicPartition) -> float:
        """When its revoke, if it completes, waits for a commit no longer (law 4)."""
        assigned = self.partitions.get(partition)
        return float("inf") if assigned is None else assigned.deadline + assigned.grace

    # -- what the group says

    def apply(self, target: frozenset[TopicPartition], generation: int, now: float, *, member_id: str = "") -> None:
        """Law 1: a Sync had its response."""
        self.target = target
        self._generation, self._member_id = generation, member_id
        # Revocations before assignments, as listeners hear of them in Java (KIP-429).
        self._request_revocation(self.partitions.keys() - target, self._cooperative_deadline(now))
        self._reassign(self.partitions.keys() & target)
        # One that leaves has joined for its commits alone; a subscription that follows shall not hear of these.
        self._assign([] if self.leaving else sorted(target - self.partitions.keys()))

    def request_revocation_outside(self, topics: frozenset[str], now: float) -> None:
        """Rule 11: partitions of topics that left the subscription."""
        gone = {tp for tp in self.partitions if tp.topic not in topics}
        # Else a revoke of these that completes would be followed by a new assignment of them.
        self.target -= gone
        self._request_revocation(gone, self._cooperative_deadline(now))

    def request_revocation_of_all(self, deadline: float) -> None:
        """Eager: a rebalance begins. The application hears of it also where nothing is owned (KIP-429)."""
        self.target = frozenset()
        if self.partitions:
            self._request_revocation(list(self.partitions), deadline)
        else:
            self._context.deliver(RevocationRequested(partitions={}, deadline=deadline))

    def bring_forward(self, deadline: float) -> None:
        """Eager: every requested revocation has this deadline now."""
        # The broker has one deadline for the whole member: it removes a member that has not joined by then.
        for assigned in self.partitions.values():
            self._bound(assigned, deadline)
        epochs = {tp: assigned.epoch for tp, assigned in self.partitions.items()}
        self._context.deliver(DeadlineMoved(partitions=epochs, deadline=deadline))
        self._context.touch()

    def lose_all(self, now: float) -> None:
        """The membership is lost."""
        self.target = frozenset()
        self.group_told()  # a lost member joins by itself
        self._lose(list(self.partitions.values()), now)

    def assign_by_hand(self, partitions: Epochs) -> None:
        """assign(): the application chose partitions and epochs itself."""
        for tp in [tp for tp, assigned in self.partitions.items() if partitions.get(tp) != assigned.epoch]:
            parted = self.partitions.remove(tp)
            self._is_no_longer_ours(tp)
            if parted.epoch in self._outstanding_epochs(tp):
                awaited_until = self._context.now + self._context.config.request_timeout
                self._parting[tp, parted.epoch] = parted.topic_id, awaited_until
            else:
                self._ended(tp, parted.epoch)
        for tp, epoch in partitions.items():
            if tp not in self.partitions:
                self.partitions.add(self._new(tp, epoch))
        self._newest_epoch = max([self._newest_epoch, *partitions.values()])
        self.poll_at = float("-inf")

    def group_told(self) -> None:
        """A join lists what is owned now."""
        self._tell_at = float("inf")

    def forget_all(self) -> None:
        self.group_told()
        for assigned in self.partitions.values():
            self._end(assigned.partition, assigned.epoch)
        for tp, epoch in self._parting:
            self._ended(tp, epoch)
        self.partitions.clear()
        self._draining.clear()
        self._parting.clear()
        self.target = frozenset()
        self.leaving = False
        self.poll_at = float("-inf")

    # -- what the application says

    def complete(self, partitions: Epochs) -> None:
        """The step of the lists, or close: let go of these."""
        for assigned in self._matching(partitions):
            self._move(assigned, OwnershipInput.RELEASED)

    def listener_done(self, partitions: Epochs) -> None:
        for assigned in self._matching(partitions):
            assigned.listener_done = True

    # -- time

    def poll(self, now: float) -> float:
        """Complete what can be, give up what must be. Returns when to be asked again."""
        self.poll_at = float("inf")  # what happens from here on brings it forward
        for tp, until in list(self._draining.items()):
            # The next owner begins at the committed offset. Before this commit has arrived it would repeat records.
            if now >= until or not self._commit_in_flight(tp):
                del self._draining[tp]
                self._context.touch()
        for tp, epoch in list(self._parting):
            if epoch not in self._outstanding_epochs(tp):
                del self._parting[tp, epoch]
                self._ended(tp, epoch)
        # A partition that completes waits for its commits and its listener, so each turn looks at it. One that is
        # delayed waits for its deadline alone.
        if self.partitions.take_pending_changed() or self._any_completes or now >= self._next_deadline:
            self._end_pending(now)
        # A rejoin costs the whole group a rebalance: while another revoke is pending, it may complete in the same one.
        if now >= self._tell_at or (self._tell_at < float("inf") and not self.anything_pending()):
            self.group_told()
            self._released("a revoke is complete")
        times = [self._tell_at, *self._draining.values(), self._next_deadline]
        wake = min((each for each in times if each > now), default=float("inf"))
        under_way = self._draining or self._parting or self.anything_pending()
        self.poll_at = min(self.poll_at, float("-inf") if under_way else wake)
        return wake

    # -- inside

    def _end_pending(self, now: float) -> None:
        late = [assigned for assigned in self.partitions.pending() if self._is_late(assigned, now)]
        if late:
            self._context.log(logging.WARNING, f"revoke of {_named(late)} was not complete at its deadline: lost")
            self._lose(late, now)
            self._released("a delayed revoke reached its deadline")
        self._complete_all([each for each in self.partitions.pending() if each.state is Ownership.COMPLETING], now)
        pending = self.partitions.pending()
        self._any_completes = any(each.state is Ownership.COMPLETING for each in pending)
        # Past its deadline, only the end of its commit's budget is left to wait for (law 4).
        times = (each.deadline if each.deadline > now else each.deadline + each.grace for each in pending)
        self._next_deadline = min((each for each in times if each > now), default=float("inf"))

    def _is_late(self, assigned: AssignedPartition, now: float) -> bool:
        if now < assigned.deadline:
            return False
        if assigned.state is not Ownership.COMPLETING:
            return assigned.state is Ownership.REVOKE_NEXT
        if self._commit_outstanding(assigned.partition):
            return now >= assigned.deadline + assigned.grace
        # One whose commits have their responses, but whose listener the application never came to run, is late as well.
        return self.listener and not assigned.listener_done and assigned.settled_told

    def _cooperative_deadline(self, now: float) -> float:
        """Law 4: the broker sets none."""
        return now + self._context.config.max_poll_interval - self._context.commit_budget

    def _request_revocation(self, partitions: Iterable[TopicPartition], deadline: float) -> None:
        news = {}
        for tp in sorted(partitions):
            assigned = self.partitions[tp]
            if assigned.deadline == float("inf"):  # one that completes since before it was reassigned may have none
                self._bound(assigned, deadline)
            # The application knows already of those whose revocation was requested before.
            if assigned.state is Ownership.OWNED:
                news[tp] = assigned.epoch
            self._move(assigned, OwnershipInput.REVOCATION_REQUESTED)
        if news:
            self._context.deliver(RevocationRequested(partitions=news, deadline=deadline))

    def _bound(self, assigned: AssignedPartition, deadline: float) -> None:
        assigned.deadline, assigned.grace = deadline, self._grace()

    def _grace(self) -> float:
        return self._context.commit_budget * self._share

    def _reassign(self, partitions: Iterable[TopicPartition]) -> None:
        back = {}
        for tp in sorted(partitions):
            assigned = self.partitions[tp]
            if assigned.state is Ownership.REVOKE_NEXT:
                back[tp] = assigned.epoch
                assigned.deadline = float("inf")
                # The application says where to fetch on from, once it has taken this (SetPosition).
                assigned.asking = True
            self._move(assigned, OwnershipInput.REASSIGNED)
        if back:
            self._context.deliver(Reassigned(partitions=back))

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        epochs = {}
        for tp in partitions:
            # Each assignment its own: what is said of an earlier one of the same partition is told apart.
            self._newest_epoch += 1
            self.partitions.add(self._new(tp, self._newest_epoch))
            epochs[tp] = self._newest_epoch
        generation, member_id, unsubscribed = self._generation, self._member_id, self.unsubscribed
        self._context.deliver(
            Assigned(generation=generation, partitions=epochs, member_id=member_id, unsubscribed=unsubscribed)
        )
        self._context.touch()

    def _new(self, partition: TopicPartition, epoch: int) -> AssignedPartition:
        table = self.partitions
        return AssignedPartition(partition, epoch, self._new_backoff, table.changed, table.unchecked)

    def _complete_all(self, partitions: Iterable[AssignedPartition], now: float) -> None:
        """Law 3. What happens to many at one time is told in one event."""
        settled: dict[TopicPartition, int] = {}
        complete = []
        for assigned in partitions:
            if self._commit_outstanding(assigned.partition):
                continue
            if not self.listener or assigned.listener_done:
                complete.append(assigned)
            elif not assigned.settled_told:
                assigned.settled_told = True
                settled[assigned.partition] = assigned.epoch
        self._release(complete)
        # Law 5: the group assigned these again while they completed.
        back = [] if self.leaving else [each.partition for each in complete if each.partition in self.target]
        if back:
            self._assign(back)
        if len(back) < len(complete):
            self._tell_at = min(self._tell_at, now + _GATHERED_FOR)
        if settled:
            self._context.deliver(CommitsSettled(partitions=settled))

    def _release(self, partitions: Iterable[AssignedPartition]) -> None:
        released = {}
        for assigned in partitions:
            self._move(assigned, OwnershipInput.COMPLETED)
            self.partitions.remove(assigned.partition)
            self._end(assigned.partition, assigned.epoch)
            released[assigned.partition] = assigned.epoch
        if released:
            self._context.deliver(Revoked(partitions=released))
            self._context.touch()

    def _lose(self, partitions: list[AssignedPartition], now: float) -> None:
        # Their last commit had its response: nothing is repeated, and their listener has heard of a revoke, not a loss.
        complete = [each for each in partitions if self._is_complete(each)]
        self._release(complete)
        lost = {}
        for assigned in partitions:
            tp = assigned.partition
            if assigned.state is Ownership.REVOKED:
                continue
            self._move(assigned, OwnershipInput.LOST)
            self.partitions.remove(tp)
            self._end(tp, assigned.epoch)
            lost[tp] = assigned.epoch
            # Until this commit has its response the join waits, so that the next owner begins after it.
            if self._commit_in_flight(tp):
                self._draining[tp] = (
                    now + self._grace() if now < assigned.deadline else assigned.deadline + assigned.grace
                )
            self._abandon_commit(tp, "it was lost")
        if lost:
            self._context.deliver(Lost(partitions=lost))
            self._context.touch()

    def _end(self, partition: TopicPartition, epoch: int) -> None:
        """However it has ended, the application may never hear of it: after an unsubscribe, or by hand."""
        self._ended(partition, epoch)
        self._is_no_longer_ours(partition)

    def _is_no_longer_ours(self, partition: TopicPartition) -> None:
        self._context.connections.meter.released(partition, self._context.wall_clock())

    def _is_complete(self, assigned: AssignedPartition) -> bool:
        done = not self.listener or assigned.listener_done
        outstanding = self._commit_outstanding(assigned.partition)
        return assigned.state is Ownership.COMPLETING and done and not outstanding

    def _matching(self, partitions: Epochs) -> list[AssignedPartition]:
        found = (self.get(tp, epoch) for tp, epoch in partitions.items())
        return [assigned for assigned in found if assigned is not None]

    def _move(self, assigned: AssignedPartition, event: OwnershipInput) -> None:
        assigned.state = next_ownership(self._protocol, assigned.state, event)
        self.poll_at = float("-inf")
        self._context.touch()


def _named(partitions: list[AssignedPartition]) -> str:
    names = ", ".join(str(assigned.partition) for assigned in partitions[:_NAMED])
    return names if len(partitions) <= _NAMED else f"{names} and {len(partitions) - _NAMED} more"
