"""How long each phase of a rebalance takes: folds the states of `core.group.membership` to events.

Laws
1. It sees states, not their causes: so it says the same of every protocol and of whatever makes the group move.
2. A rebalance goes from the first join to the poll that takes the assignment, to the next join, or to the membership's
   end, whichever comes first. Each that started ends once.
3. A sync that is refused leads back to the join: the same rebalance, with one join more.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import pairwise
from typing import Final

from instride.core.group.membership import GroupState
from instride.telemetry import RebalanceEnded, RebalanceOutcome, RebalanceStarted

__all__ = ["STEPS", "Phase", "Phases", "Step"]


class Phase(Enum):
    QUIET = "no rebalance is under way, as far as this member knows"
    JOINING = "until Join is answered"
    SYNCING = "until Sync is answered"
    TAKING = "until a poll takes the assignment"


class Step(Enum):
    STARTED = "the first join"
    JOINED = "Join was answered"
    SYNCED = "Sync was answered"
    AGAIN = "the sync was refused"
    TAKEN = "a poll took the assignment"
    SUPERSEDED = "the next join began before"
    FAILED = "the membership ended"


_P, _G, _S = Phase, GroupState, Step

# What it means when the group is seen in another state. A pair that is not here means nothing.
STEPS: Final[Mapping[tuple[Phase, GroupState], tuple[Step, Phase]]] = {
    (_P.QUIET, _G.PREPARING_REBALANCE): (_S.STARTED, _P.JOINING),
    (_P.JOINING, _G.COMPLETING_REBALANCE): (_S.JOINED, _P.SYNCING),
    (_P.JOINING, _G.UNJOINED): (_S.FAILED, _P.QUIET),
    (_P.SYNCING, _G.ASSIGNING_PARTITIONS): (_S.SYNCED, _P.TAKING),
    (_P.SYNCING, _G.PREPARING_REBALANCE): (_S.AGAIN, _P.JOINING),
    (_P.SYNCING, _G.UNJOINED): (_S.FAILED, _P.QUIET),
    (_P.TAKING, _G.STABLE): (_S.TAKEN, _P.QUIET),
    (_P.TAKING, _G.PREPARING_REBALANCE): (_S.SUPERSEDED, _P.JOINING),
    (_P.TAKING, _G.UNJOINED): (_S.FAILED, _P.QUIET),
}

_OUTCOMES: Final = {
    Step.TAKEN: RebalanceOutcome.TAKEN,
    Step.SUPERSEDED: RebalanceOutcome.SUPERSEDED,
    Step.FAILED: RebalanceOutcome.FAILED,
}


class Phases:
    """Not thread-safe: the network machine owns it."""

    def __init__(self) -> None:
        self.phase = Phase.QUIET
        self._began = 0.0
        self._reason = ""
        self._joins = 0
        self._marks: list[float] = []

    def seen(
        self, state: GroupState, generation: int, reason: str, now: float
    ) -> list[RebalanceStarted | RebalanceEnded]:
        """The group is in this state now."""
        found = STEPS.get((self.phase, state))
        if found is None:
            return []
        step, self.phase = found
        if step is Step.STARTED:
            return [self._start(generation, reason, now)]
        if step is Step.AGAIN:
            self._joins += 1
            self._marks.clear()
            return []
        if step in (Step.JOINED, Step.SYNCED):
            self._marks.append(now)
            return []
        ended = self._end(_OUTCOMES[step], generation, now)
        return [ended, self._start(generation, reason, now)] if step is Step.SUPERSEDED else [ended]

    def _start(self, generation: int, reason: str, now: float) -> RebalanceStarted:
        self._began, self._reason, self._joins = now, reason, 1
        self._marks.clear()
        return RebalanceStarted(at=now, generation=generation, reason=reason)

    def _end(self, outcome: RebalanceOutcome, generation: int, now: float) -> RebalanceEnded:
        times = [self._began, *self._marks]
        if outcome is RebalanceOutcome.TAKEN:
            times.append(now)
        took = [after - before for before, after in pairwise(times)]
        joining, syncing, taking = [*took, None, None, None][:3]
        return RebalanceEnded(
            at=now,
            started_at=self._began,
            generation=generation,
            reason=self._reason,
            outcome=outcome,
            joins=self._joins,
            joining=joining,
            syncing=syncing,
            taking=taking,
        )
