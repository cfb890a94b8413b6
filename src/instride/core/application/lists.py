"""The KIP-983 lists: what is to be revoked, what is delayed, what was lost (docs/rebalance.md, rules 1 to 8).

Laws
1. The lists are views of the partitions' ownership states; there is no second copy that could disagree.
2. The step happens once for each poll that returns. A poll that raised after it is continued by the next one.
3. A lost partition is in the list of lost, once, and in no other.
4. `delay_revoke` never changes anything when it raises.
"""

from __future__ import annotations

from collections.abc import Iterable

from instride.core.application.holdings import Holdings
from instride.core.application.partition import OwnedPartition
from instride.core.events import Epochs, Lost
from instride.core.group.ownership import Ownership, OwnershipInput, next_ownership
from instride.core.group.protocol import RebalanceProtocol
from instride.records import TopicPartition

__all__ = ["RevokeLists"]

_PENDING = (Ownership.REVOKE_NEXT, Ownership.REVOKE_THEREAFTER)


class RevokeLists:
    """States of the held partitions. `held` is every partition of the assignment, whatever its state."""

    __slots__ = ("_asked_for", "_lost", "held", "holdings", "newest", "newest_epoch", "protocol")

    def __init__(self, protocol: RebalanceProtocol, holdings: Holdings) -> None:
        self.protocol = protocol
        self.holdings = holdings
        self.held: dict[TopicPartition, OwnedPartition] = {}
        self.newest_epoch = 0
        self.newest: dict[TopicPartition, int] = {}
        self._lost: set[TopicPartition] = set()
        # The epoch in which each was last asked for: delaying one of these late is False, no error (rule 6).
        self._asked_for: dict[TopicPartition, int] = {}

    # -- what the user sees

    def to_be_revoked(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, held in self.held.items() if held.state is Ownership.REVOKE_NEXT)

    def lost(self) -> frozenset[TopicPartition]:
        return frozenset(self._lost)

    def delay(
        self, partitions: Iterable[TopicPartition], losses: Iterable[Lost] = (), *, now: float = float("-inf")
    ) -> bool:
        """Rule 6. Raises ValueError for a partition that was never asked for.

        losses: those that no poll has taken yet; what is in them is not delayed any more. now: past its deadline a
        partition is refused as well, though the network side may not have come to tell of its loss. It is kept until
        then: who wants a delay has not finished, so the next poll must not complete it as if he had.
        """
        wanted = list(partitions)
        never = [tp for tp in wanted if tp not in self._asked_for]
        if never:
            names = ", ".join(str(tp) for tp in sorted(never))
            raise ValueError(f"delay_revoke: the group did not ask for {names}")
        accepted = True
        gone = {part for loss in losses for part in loss.partitions.items()}
        pending = {tp: held for tp, held in self.held.items() if (tp, held.epoch) not in gone}
        for tp in wanted:
            held = pending.get(tp)
            if held is None or held.state is Ownership.COMPLETING or held.epoch != self._asked_for[tp]:
                accepted = False
            else:
                self._move(held, OwnershipInput.DELAYED)
                accepted &= now < held.deadline
        return accepted

    # -- what a poll does

    def step(self) -> dict[TopicPartition, int]:
        """Rule 2: the partitions whose revoke is to be completed now; the list of lost is emptied."""
        self._lost = set()
        completing = {}
        for tp, held in self.held.items():
            if held.state in _PENDING:
                self._move(held, OwnershipInput.POLL_STARTED)
                if held.state is Ownership.COMPLETING:
                    completing[tp] = held.epoch
        return completing

    def assigned(self, partitions: Epochs) -> None:
        for tp, epoch in partitions.items():
            self.held[tp] = owned = OwnedPartition(tp, epoch)
            self.holdings.moved(owned, None, owned.state)
            self.newest[tp] = epoch
            self.newest_epoch = max(self.newest_epoch, epoch)

    def asked_for(self, partitions: Epochs, deadline: float) -> frozenset[TopicPartition]:
        """Rule 3. The partitions for which this is news; their buffers are dropped."""
        news = set()
        for held in self._matching(partitions):
            held.deadline = min(held.deadline, deadline)  # it may have moved before this was taken
            if held.state is Ownership.OWNED:
                news.add(held.partition)
                held.restart_fetch()
            self._move(held, OwnershipInput.ASKED_FOR)
            self._asked_for[held.partition] = held.epoch
        return frozenset(news)

    def given_back(self, partitions: Epochs) -> list[OwnedPartition]:
        """Rule 8. Those that are owned again, to be fetched on from their position."""
        back = []
        for held in self._matching(partitions):
            pending = held.state in _PENDING
            self._move(held, OwnershipInput.GIVEN_BACK)
            if pending and held.state is Ownership.OWNED:
                held.deadline = float("inf")
                held.restart_fetch()
                back.append(held)
        return back

    def let_go(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Rule 12 and immediate mode: complete the revoke of these now."""
        completing = {}
        for tp in partitions:
            held = self.held[tp]
            if held.state is not Ownership.COMPLETING:
                held.drop_buffer()
                self._move(held, OwnershipInput.LET_GO)
                completing[tp] = held.epoch
        return completing

    def losing(self, partitions: Epochs) -> frozenset[TopicPartition]:
        """Rule 5: these leave the assignment and every list."""
        gone = set()
        for held in self._matching(partitions):
            self._move(held, OwnershipInput.LOST)
            del self.held[held.partition]
            gone.add(held.partition)
        return frozenset(gone)

    def add_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self._lost.update(partitions)

    def revoked(self, partitions: Epochs) -> frozenset[TopicPartition]:
        """The assignment shrinks by these."""
        gone = set()
        for held in self._matching(partitions):
            self._move(held, OwnershipInput.COMPLETED)
            del self.held[held.partition]
            gone.add(held.partition)
        return frozenset(gone)

    def clear(self, *, lost: bool) -> None:
        """Nothing is held any more. lost: what still was is given up without a hand-over."""
        self.holdings.dropped(self.held, lost=lost)
        self.held.clear()
        self._lost.clear()
        self._asked_for.clear()

    def _matching(self, partitions: Epochs) -> list[OwnedPartition]:
        """Held partitions of these very epochs; what bears another epoch is stale."""
        found = []
        for tp, epoch in partitions.items():
            held = self.held.get(tp)
            if held is not None and held.epoch == epoch:
                found.append(held)
        return found

    def _move(self, held: OwnedPartition, event: OwnershipInput) -> None:
        before, held.state = held.state, next_ownership(self.protocol, held.state, event)
        self.holdings.moved(held, before, held.state)
