"""The KIP-983 lists: what is to be revoked, what is delayed, what was lost (docs/rebalance.md, rules 1 to 8).

Laws of the lists (`RevokeLists`)
1. The lists are views of the partitions' ownership states; there is no second copy that could disagree.
2. The step happens once for each poll that returns. A poll that raised after it is continued by the next one.
3. A lost partition is in the list of lost, once, and in no other.
4. `delay_revoke` never changes anything when it raises. It is refused for a partition whose revocation the group did
   not request, and with enable_auto_commit.
5. What becomes of an event's partitions is written by one `at_once` (rule 13).

What becomes of a delayed partition at its deadline the network side decides: `network/assignment.py`, law 4.

Laws of the marks (`Marks`): the partitions of which something may be so, which a poll looks at instead of all
M1. Whatever makes it so marks the partition, by the same write or before it. A mark that is not true any more does no
    harm: whoever looks at the marks next takes it away.
M2. No interrupt, and no handler of a signal that calls the consumer meanwhile, loses a mark: it is taken away first,
    and put back where a look after that finds that it is true.
M3. Whoever takes a partition out of the assignment takes its marks away by the same write: a mark keeps the partition,
    and its records, in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from instride._core.application.calls import Write, at_once
from instride._core.application.ownership_view import OwnershipView
from instride._core.application.partition import OwnedPartition, Polls
from instride._core.events import Epochs, Lost
from instride._core.ownership import Ownership, OwnershipInput, RebalanceProtocol, next_ownership
from instride.config import ConsumerConfig
from instride.errors import ConfigError
from instride.records import TopicPartition

__all__ = ["Marks", "RevokeLists", "refuse_with_auto_commit"]


class Marks:
    """Not thread-safe: the application machine owns it. holds: whether it is so, as a look at the partition tells."""

    __slots__ = ("_doubted", "_holds", "_marked")

    def __init__(self, holds: Callable[[OwnedPartition], bool]) -> None:
        self._holds = holds
        self._marked: dict[OwnedPartition, None] = {}
        self._doubted: dict[OwnedPartition, None] = {}

    def marking(self, owned: OwnedPartition) -> Write:
        return (self._marked.__setitem__, owned, None)

    def mark(self, owned: OwnedPartition) -> None:
        self._marked[owned] = None

    def unmarking(self, owned: OwnedPartition) -> list[Write]:
        return [(self._marked.pop, owned, None), (self._doubted.pop, owned, None)]

    def clearing(self) -> list[Write]:
        return [(self._marked.clear,), (self._doubted.clear,)]

    def __bool__(self) -> bool:
        """Whether there is a mark. Without one it is so of none."""
        return bool(self._marked or self._doubted)

    def those(self) -> list[OwnedPartition]:
        """Of which it is so now, in the order in which they were marked."""
        if not self:  # as nearly always where nothing failed, and in a poll that waits
            return []
        for owned in list(self._marked):
            if not self._holds(owned):
                self._doubt(owned)
        for owned in list(self._doubted):  # M2; those of a look that was interrupted, too
            again = [self.marking(owned)] if self._holds(owned) else []
            at_once([*again, (self._doubted.pop, owned, None)])
        return list(self._marked)

    def any(self, so: Callable[[OwnedPartition], bool]) -> bool:
        """Whether one of which it is so is `so` as well: the look ends at the first."""
        for owned in list(self._marked):
            if not self._holds(owned):
                self._doubt(owned)
            elif so(owned):
                return True
        return any(so(owned) for owned in self.those())

    def _doubt(self, owned: OwnedPartition) -> None:
        at_once([(self._doubted.__setitem__, owned, None), (self._marked.pop, owned, None)])


def refuse_with_auto_commit(wanted: Sequence[TopicPartition], config: ConsumerConfig) -> None:
    """Raises ConfigError where a delay is wanted with auto-commit."""
    if wanted and config.enable_auto_commit:
        raise ConfigError(
            "delay_revoke is refused with enable_auto_commit=True: auto-commit would commit records that are "
            "still being processed"
        )


_PENDING = (Ownership.REVOKE_NEXT, Ownership.REVOKE_THEREAFTER)


class RevokeLists:
    """States of the owned partitions: every partition of the assignment, whatever its state."""

    __slots__ = (
        "_lost",
        "_marks",
        "_revocation_requested",
        "failing",
        "filled",
        "newest",
        "newest_epoch",
        "owned",
        "ownership_view",
        "paused",
        "pending",
        "polls",
        "protocol",
        "uncommitted",
        "untold",
    )

    def __init__(
        self,
        protocol: RebalanceProtocol,
        ownership_view: OwnershipView,
        *,
        is_uncommitted: Callable[[OwnedPartition], bool],
    ) -> None:
        """is_uncommitted: whether auto-commit has not handed the position over yet, of one that is owned."""
        self.protocol = protocol
        self.ownership_view = ownership_view
        self.polls = Polls()
        self.owned: dict[TopicPartition, OwnedPartition] = {}
        # Those whose revocation is requested; of which a poll may take something; that failed; that are paused; of
        # which auto-commit has something new to commit, or will have when a poll returns what is buffered (with
        # auto-commit off, none); of which polls took something that the network side was not told of.
        self.pending = Marks(lambda owned: owned.state in _PENDING and self._is_owned(owned))
        self.filled = Marks(self._may_give)
        self.failing = Marks(lambda owned: owned.fails() and self._is_owned(owned))
        self.paused = Marks(lambda owned: owned.paused and self._is_owned(owned))
        self.uncommitted = Marks(
            lambda owned: self._may_give(owned) or (self._is_owned(owned) and is_uncommitted(owned))
        )
        self.untold = Marks(self._is_owned)
        self._marks = (self.pending, self.filled, self.failing, self.paused, self.uncommitted, self.untold)
        self.newest_epoch = 0
        self.newest: dict[TopicPartition, int] = {}
        self._lost: set[TopicPartition] = set()
        # The epoch in which the revocation of each was last requested: delaying it late is False, no error (rule 6).
        self._revocation_requested: dict[TopicPartition, int] = {}

    # -- what the user sees

    def to_be_revoked(self) -> frozenset[TopicPartition]:
        return frozenset(each.partition for each in self.pending.those() if each.state is Ownership.REVOKE_NEXT)

    def lost(self) -> frozenset[TopicPartition]:
        return frozenset(self._lost)

    def are_quiet(self) -> bool:
        """A step would change nothing, and no partition keeps a poll from returning records."""
        return not (self.pending or self.failing or self._lost)

    def delay(
        self, partitions: Iterable[TopicPartition], losses: Iterable[Lost] = (), *, now: float = float("-inf")
    ) -> bool:
        """Rule 6. Raises ValueError for a partition whose revocation was never requested.

        losses: those that no poll has taken yet; what is in them is not delayed any more. now: past its deadline a
        partition is refused as well, though the network side may not have come to tell of its loss. It is kept until
        then: who wants a delay has not finished, so the next poll must not complete it as if he had.
        """
        wanted = list(partitions)
        never = [tp for tp in wanted if tp not in self._revocation_requested]
        if never:
            names = ", ".join(str(tp) for tp in sorted(never))
            raise ValueError(f"delay_revoke: the group did not ask for {names}")
        accepted = True
        gone = {part for loss in losses for part in loss.partitions.items()}
        for tp in wanted:
            epoch = self._revocation_requested[tp]
            owned = None if (tp, epoch) in gone else self.owned.get(tp)
            if owned is None or owned.state is Ownership.COMPLETING or owned.epoch != epoch:
                accepted = False
            else:
                at_once([*self._move(owned, OwnershipInput.DELAYED), self.polls.changing()])
                # Refused, and kept all the same: see above.
                accepted &= now < owned.deadline
        self.ownership_view.catch_up()
        return accepted

    # -- what a poll does: each says what is to be written, and whoever takes an event does all of it at once

    def step(self, gone: Collection[TopicPartition] = ()) -> tuple[dict[TopicPartition, int], list[Write]]:
        """Rule 2: the partitions whose revoke is to be completed now. The list of lost becomes `gone`."""
        writes: list[Write] = [(setattr, self, "_lost", set(gone))]
        completing = {}
        for owned in self.pending.those():
            after = next_ownership(self.protocol, owned.state, OwnershipInput.POLL_STARTED)
            writes += self._move(owned, OwnershipInput.POLL_STARTED)
            if after is Ownership.COMPLETING:
                completing[owned.partition] = owned.epoch
        return completing, writes

    def assigned(self, partitions: Epochs) -> list[Write]:
        """As many writes for thousands as for one."""
        owned = {tp: OwnedPartition(tp, epoch, self.polls) for tp, epoch in partitions.items()}
        return [
            (self.owned.update, owned),
            (self.newest.update, dict(partitions)),
            *self.ownership_view.beginning(owned.values()),
            self.counting(partitions),
        ]

    def counting(self, partitions: Epochs) -> Write:
        """By hand, none of these epochs is given again."""
        return (setattr, self, "newest_epoch", max((self.newest_epoch, *partitions.values())))

    def revocation_requested(
        self, partitions: Epochs, deadline: float
    ) -> tuple[frozenset[TopicPartition], list[Write]]:
        """Rule 3. The partitions for which this is news; their buffers are dropped."""
        news = set()
        writes: list[Write] = []
        for owned in self.matching(partitions):
            # It may have moved before this was taken.
            writes.append((setattr, owned, "deadline", min(owned.deadline, deadline)))
            if owned.state is Ownership.OWNED:
                # What is buffered goes: if the partition is reassigned it is fetched again from its position (rule 8).
                news.add(owned.partition)
                writes += owned.restarting()
            writes += self._move(owned, OwnershipInput.REVOCATION_REQUESTED)
            writes.append((self._revocation_requested.__setitem__, owned.partition, owned.epoch))
        return frozenset(news), writes

    def reassigned(self, partitions: Epochs) -> tuple[list[OwnedPartition], list[Write]]:
        """Rule 8. Those that are owned again, to be fetched on from their position."""
        back = []
        writes: list[Write] = []
        for owned in self.matching(partitions):
            after = next_ownership(self.protocol, owned.state, OwnershipInput.REASSIGNED)
            if owned.state in _PENDING and after is Ownership.OWNED:
                writes += [(setattr, owned, "deadline", float("inf")), *owned.restarting()]
                back.append(owned)
            writes += self._move(owned, OwnershipInput.REASSIGNED)
        return back, writes

    def release(self, partitions: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], list[Write]]:
        """Rule 12 and immediate mode: complete the revoke of these now."""
        completing = {}
        writes: list[Write] = []
        for tp in partitions:
            owned = self.owned[tp]
            if owned.state is not Ownership.COMPLETING:
                dropped = owned.dropping() if owned.buffered else ()
                writes += [*dropped, *self._move(owned, OwnershipInput.RELEASED)]
                completing[tp] = owned.epoch
        return completing, writes

    def losing(self, losses: Iterable[Lost]) -> tuple[frozenset[TopicPartition], list[Write]]:
        """Rule 5: these leave the assignment and every list."""
        every = {part for loss in losses for part in loss.partitions.items()}
        return self._leaving(dict(part for part in every if self.holds(*part)), OwnershipInput.LOST)

    def holds(self, partition: TopicPartition, epoch: int) -> bool:
        owned = self.owned.get(partition)
        return owned is not None and owned.epoch == epoch

    def revoked(self, partitions: Epochs) -> tuple[frozenset[TopicPartition], list[Write]]:
        """The assignment shrinks by these."""
        return self._leaving(partitions, OwnershipInput.COMPLETED)

    def _leaving(self, partitions: Epochs, how: OwnershipInput) -> tuple[frozenset[TopicPartition], list[Write]]:
        gone = self.matching(partitions)
        writes = [write for owned in gone for write in self._move(owned, how)]
        return frozenset(owned.partition for owned in gone), [*writes, *self._removing(gone)]

    def leaving_by_hand(self, partitions: Iterable[TopicPartition]) -> list[Write]:
        """Another assign() does not name these."""
        gone = self._those(partitions)
        return [*self.ownership_view.dropping(gone, lost=False), *self._removing(gone)]

    def _removing(self, gone: Sequence[OwnedPartition]) -> list[Write]:
        """Law M3."""
        unmarking = [write for owned in gone for marks in self._marks for write in marks.unmarking(owned)]
        return [*[(self.owned.pop, owned.partition) for owned in gone], *unmarking]

    def adding_lost(self, partitions: Iterable[TopicPartition]) -> Write:
        return (setattr, self, "_lost", self._lost.union(partitions))

    def clearing(self, *, lost: bool) -> list[Write]:
        """Nothing is owned any more. lost: what still was is given up without a hand-over."""
        owned = self._those(self.owned)
        moves = self.ownership_view.dropping(owned, lost=lost)
        writes: list[Write] = [*moves, (self.owned.clear,), (setattr, self, "_lost", set())]
        unmarking = [write for marks in self._marks for write in marks.clearing()]
        return [*writes, *unmarking, (self._revocation_requested.clear,)]

    def _those(self, partitions: Iterable[TopicPartition]) -> list[OwnedPartition]:
        """But for what a handler of a signal, by assign, has just let go of."""
        return [each for tp in sorted(partitions) if (each := self.owned.get(tp)) is not None]

    def matching(self, partitions: Epochs) -> list[OwnedPartition]:
        """Owned partitions of exactly these epochs; one of another epoch is stale."""
        found = []
        for tp, epoch in partitions.items():
            owned = self.owned.get(tp)
            if owned is not None and owned.epoch == epoch:
                found.append(owned)
        return found

    def _move(self, owned: OwnedPartition, event: OwnershipInput) -> list[Write]:
        after = next_ownership(self.protocol, owned.state, event)
        moves: list[Write] = [(setattr, owned, "state", after), self.ownership_view.moving(owned, owned.state, after)]
        return [self.pending.marking(owned), *moves] if after in _PENDING else moves

    def _may_give(self, owned: OwnedPartition) -> bool:
        return not owned.paused and owned.buffered > 0 and self._is_owned(owned)

    def _is_owned(self, owned: OwnedPartition) -> bool:
        return self.owned.get(owned.partition) is owned
